"""The table of contents: every operation of the service, part by part."""

from collections.abc import Iterator

from service.operations import Operation
from service.routes import (
    auth,
    bots,
    chats,
    consent,
    feedback,
    health,
    inbox,
    pages,
    reference,
    sharing,
    sign_in,
    users,
)

PARTS = (
    auth.routes,
    consent.routes,
    consent.clients,
    chats.routes,
    bots.routes,
    users.routes,
    sharing.routes,
    feedback.routes,
    inbox.events,
    inbox.notifications,
    users.images,
    health.routes,
    pages.routes,
    sign_in.routes,
    reference.routes,
)


def operations(documented_only: bool = False) -> Iterator[Operation]:
    """All operations, or the documented ones and those that operators need."""
    for routes in PARTS:
        for operation in routes:
            if operation.vital or not (documented_only and operation.extension):
                yield operation
