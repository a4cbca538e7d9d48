"""Announcements of an app to its customers, by its staff."""

from typing import Annotated

from msgspec import Meta, Raw, Struct

from service.api.operations import Routes
from service.api.parameter_types import Cursor
from service.db import Page
from service.models import Announcement, App
from service.models.announcements import NEW_ANNOUNCEMENT
from service.models.callers import Caller
from service.types import JsonObject

routes = Routes("Announcements", scope="bots", extension=True)


class AnnouncementsQuery(Struct):
    """Page size for the announcements of an app."""

    cursor: Cursor = Cursor()
    per_page: Annotated[int, Meta(ge=1, le=100, description="Maximum number of announcements to return.")] = 25


@routes.get("/apps/{app_id}/announcements", statuses=(200, 400, 403, 404), meta=("next_cursor", "per_page"))
def list_announcements(app: App, query: AnnouncementsQuery) -> Page[Announcement]:
    """List the announcements of an app, newest first (staff only)."""
    return Announcement.page_of(app.id, query.cursor, query.per_page)


@routes.post(
    "/apps/{app_id}/announcements",
    statuses=(201, 400, 403, 404),
    example={"title": "New opening hours", "body": "From Monday on, we are open until six."},
)
def create_announcement(
    caller: Caller, app: App, body: Annotated[JsonObject, NEW_ANNOUNCEMENT]
) -> Annotated[Raw, Announcement]:
    """Notify all customers of an app who accept marketing (staff only)."""
    return Announcement.add(app.id, body, caller.id)
