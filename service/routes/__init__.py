"""The table of contents: every operation of the service, part by part."""

from collections.abc import Iterator

from service.operations import Operation
from service.routes import (
    auth,
    bots,
    chats,
    consent,
    conversing,
    events,
    feedback,
    health,
    notifications,
    reference,
    sharing,
    sign_in,
    updates,
    users,
)
from service.routes.console import account as console_account
from service.routes.console import bots as console_bots
from service.routes.console import chats as console_chats
from service.routes.console import inbox as console_inbox
from service.routes.console import sharing as console_sharing

PARTS = (
    auth.routes,
    auth.account,
    consent.routes,
    consent.clients,
    chats.routes,
    conversing.routes,
    bots.routes,
    users.routes,
    sharing.routes,
    feedback.routes,
    events.routes,
    notifications.routes,
    updates.routes,
    users.images,
    health.routes,
    sign_in.routes,
    console_chats.routes,
    console_inbox.routes,
    console_bots.routes,
    console_sharing.routes,
    console_account.routes,
    reference.routes,
)


def operations(documented_only: bool = False) -> Iterator[Operation]:
    """All operations, or the documented ones and those that operators need."""
    for routes in PARTS:
        for operation in routes:
            if operation.vital or not (documented_only and operation.extension):
                yield operation
