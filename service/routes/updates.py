"""Waiting for what is new, in place of asking again and again."""

from typing import Annotated

from msgspec import Meta, Struct

from service import updates
from service.errors import InvalidCursor
from service.models.people import Caller
from service.operations import Routes
from service.signature import Origin
from service.updates import Changes

routes = Routes("Updates", scope="chats", extension=True)


class Since(Struct):
    """From where on, and for how long."""

    after: Annotated[str, Meta(max_length=16_384, description="From the last answer; none: say where to begin.")] = ""
    wait: Annotated[int, Meta(ge=0, le=55, description="Seconds to wait for something to change.")] = 25


@routes.get("/updates", answers=(200, 400, 401), raises=(InvalidCursor,))
def await_updates(caller: Caller, query: Since, origin: Origin) -> Changes:
    """Wait until something changes in your chat sessions or notifications, and say where."""
    found = updates.since(caller, query.after)
    if query.after and found.is_nothing:
        origin.patience.wait(caller.id, updates.topics(caller), query.wait)
    return found
