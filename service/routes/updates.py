"""Updates: a long poll and a stream of events for changes in chat sessions and notifications."""

from typing import Annotated

from msgspec import Meta, Struct

from service import updates
from service.api.event_stream import EventStream
from service.api.operations import Routes
from service.api.parameter_types import RequestInfo
from service.errors import InvalidCursor
from service.models.callers import Caller
from service.updates import Changes

routes = Routes("Updates", scope="chats", extension=True)


class StreamQuery(Struct):
    """Start position."""

    after: Annotated[
        str,
        Meta(
            max_length=16_384, description="`after` of the previous response; if empty, returns the current position."
        ),
    ] = ""


class UpdatesQuery(StreamQuery):
    """Start position and waiting time."""

    wait: Annotated[int, Meta(ge=0, le=55, description="Maximum number of seconds to wait for a change.")] = 25


@routes.get("/updates", statuses=(200, 400, 401), errors=(InvalidCursor,))
def await_updates(caller: Caller, query: UpdatesQuery, request_info: RequestInfo) -> Changes:
    """Wait for changes in your chat sessions or notifications (long poll)."""
    found = updates.since(caller, query.after)
    if query.after and found.is_empty:
        request_info.long_poll.wait(caller.id, updates.topics(caller), query.wait)
    return found


@routes.get("/updates/stream", statuses=(200, 400, 401), errors=(InvalidCursor,), produces="text/event-stream")
def stream_updates(caller: Caller, query: StreamQuery, request_info: RequestInfo) -> EventStream:
    """Receive changes in your chat sessions or notifications (server-sent events).

    Events are `changes`, with what `GET /updates` returns, and `receipt`: `side` (`customer` or `app`) has received or
    read (`status`) the messages of the other side in `chat_session_id` up to `message_id`; and `typing`: another
    user or a bot writes in `chat_session_id`, shown for six seconds or until the message arrives. Events `draft` have
    the text so far of replies that bots are writing, until the status is `stored` or `withdrawn`. A client that
    connects again sends the identifier of the last event in the header Last-Event-ID.
    """
    request_info.long_poll.require_room(caller.id)
    return updates.UpdateStream(caller, request_info.last_event_id or query.after)
