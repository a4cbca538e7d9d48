"""Live updates of the console's pages: a long poll by their script."""

from typing import Annotated

from msgspec import Meta, Struct

from service import updates
from service.api.operations import Routes
from service.api.parameter_types import HtmlPage, RequestInfo
from service.errors import InvalidCursor
from service.models import Notification
from service.models.callers import Caller

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")


class UpdatesQuery(Struct):
    """Start position and waiting time in seconds."""

    after: Annotated[str, Meta(max_length=16_384)] = ""
    wait: Annotated[int, Meta(ge=0, le=55)] = 0


@routes.get("/console/news", statuses=(200, 400, 401), errors=(InvalidCursor,))
def show_news(caller: Caller, query: UpdatesQuery, request_info: RequestInfo) -> HtmlPage:
    """Wait for changes on the pages (long poll of their script)."""
    changes = updates.since(caller, query.after)
    if query.after and changes.is_empty:
        request_info.long_poll.wait(caller.id, updates.topics(caller), query.wait)
    return HtmlPage("console-updates.html", {"changes": changes, "unread": Notification.count_unread(caller.id)})
