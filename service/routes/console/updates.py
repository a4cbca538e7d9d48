"""Live updates of the console's pages: a stream of events and a long poll by their script."""

from typing import Annotated

from msgspec import Meta, Struct

from service import updates
from service.api.event_stream import EventStream
from service.api.operations import Routes
from service.api.parameter_types import HtmlPage, RequestInfo
from service.errors import InvalidCursor
from service.models import Notification
from service.models.callers import Caller
from service.updates import Changes, UpdateStream

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")


class StreamQuery(Struct):
    """Start position."""

    after: Annotated[str, Meta(max_length=16_384)] = ""


class UpdatesQuery(StreamQuery):
    """Start position and waiting time in seconds."""

    wait: Annotated[int, Meta(ge=0, le=55)] = 0


class PageChanges(Changes):
    """Changes, and the number of unread notifications that pages show."""

    unread: int


def page_changes(caller: Caller, found: Changes) -> PageChanges:
    """Return changes for the script of the pages. Writes nothing: the timer creates the notifications of reminders."""
    return PageChanges(found.chats, found.notifications, found.after, Notification.count_stored_unread(caller.id))


@routes.get("/console/news", statuses=(200, 400, 401), errors=(InvalidCursor,))
def show_news(caller: Caller, query: UpdatesQuery, request_info: RequestInfo) -> HtmlPage:
    """Wait for changes on the pages (long poll of their script)."""
    changes = updates.since(caller, query.after)
    if query.after and changes.is_empty:
        request_info.long_poll.wait(caller.id, updates.topics(caller), query.wait)
    return HtmlPage("console-updates.html", {"changes": changes, "unread": Notification.count_unread(caller.id)})


@routes.get("/console/news/stream", statuses=(200, 400, 401), errors=(InvalidCursor,), produces="text/event-stream")
def stream_news(caller: Caller, query: StreamQuery, request_info: RequestInfo) -> EventStream:
    """Receive changes on the pages (server-sent events, for their script)."""
    request_info.long_poll.require_room(caller.id)
    return UpdateStream(caller, request_info.last_event_id or query.after, page_changes)
