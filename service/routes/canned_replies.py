"""Canned replies of an app, for its staff."""

from typing import Annotated

from msgspec import Meta, Raw, Struct

from service.api.operations import Routes
from service.api.parameter_types import Cursor
from service.api.schemas import BodyColumns
from service.db import Page
from service.errors import CannedReplyExists, CannedReplyLimitReached
from service.models import App, CannedReply
from service.types import JsonObject

routes = Routes("Canned replies", scope="chats", extension=True)

NewReply = Annotated[JsonObject, BodyColumns(CannedReply, "shortcut", "text", "language")]
ReplyChanges = Annotated[JsonObject, BodyColumns(CannedReply, "shortcut", "text", "language", partial=True)]


class RepliesQuery(Struct):
    """Prefix and page size for the canned replies of an app."""

    prefix: Annotated[str, Meta(max_length=64, description="Beginning of the shortcut; case-insensitive.")] = ""
    cursor: Cursor = Cursor()
    per_page: Annotated[int, Meta(ge=1, le=100, description="Maximum number of canned replies to return.")] = 25


class RemovedReply(Struct):
    """Whether the canned reply was deleted."""

    deleted: bool


@routes.get("/apps/{app_id}/canned-replies", statuses=(200, 400, 403, 404), meta=("next_cursor", "per_page"))
def list_canned_replies(app: App, query: RepliesQuery) -> Page[CannedReply]:
    """List the canned replies of an app by shortcut (staff only)."""
    return CannedReply.page_of(app.id, query.prefix, query.cursor, query.per_page)


@routes.post(
    "/apps/{app_id}/canned-replies",
    statuses=(201, 400, 403, 404),
    errors=(CannedReplyExists, CannedReplyLimitReached),
    example={"shortcut": "thanks", "text": "Thank you for your message.", "language": "en"},
)
def create_canned_reply(app: App, body: NewReply) -> Annotated[Raw, CannedReply]:
    """Add a canned reply to an app (staff only)."""
    return CannedReply.add(app.id, body)


@routes.patch(
    "/apps/{app_id}/canned-replies/{id}",
    statuses=(200, 400, 403, 404),
    errors=(CannedReplyExists,),
    example={"text": "Thank you!"},
)
def update_canned_reply(app: App, reply: CannedReply, body: ReplyChanges) -> Annotated[Raw, CannedReply]:
    """Update a canned reply of an app (staff only)."""
    return reply.edit(body)


@routes.delete("/apps/{app_id}/canned-replies/{id}", statuses=(200, 400, 403, 404))
def delete_canned_reply(app: App, reply: CannedReply) -> RemovedReply:
    """Delete a canned reply of an app (staff only)."""
    reply.remove()
    return RemovedReply(True)
