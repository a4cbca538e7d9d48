"""The table of contents: every operation of the service, part by part."""

from collections.abc import Iterator

from service.operations import Operation
from service.routes import auth, chats, health, pages

PARTS = (auth.routes, chats.routes, health.routes, pages.routes)


def operations(documented_only: bool = False) -> Iterator[Operation]:
    """All operations, or the documented ones and those that operators need."""
    for routes in PARTS:
        for operation in routes:
            if operation.vital or not (documented_only and operation.extension):
                yield operation
