"""The page on which staff announces something to the customers of an app."""

import msgspec
from msgspec import Struct

from service.api.operations import KIB, Routes
from service.api.parameter_types import Cursor, HtmlPage, Redirect
from service.console import layout
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure
from service.models import Announcement, App
from service.models.announcements import NEW_ANNOUNCEMENT
from service.models.callers import Caller
from service.translation import gettext

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")

MAX_ANNOUNCEMENT_FORM = 160 * KIB  # bytes: the text may have 10,000 characters of twelve bytes each


class AnnouncementsPageQuery(Struct):
    """The position in the list."""

    cursor: Cursor = Cursor()
    done: str = ""


class AnnouncementForm(ConsoleForm, kw_only=True):
    """An announcement to send."""

    title: str = ""
    body: str = ""


@routes.get("/console/apps/{app_id}/announcements", statuses=(200, 400, 401, 403, 404))
def show_announcements(caller: Caller, app: App, query: AnnouncementsPageQuery) -> HtmlPage:
    """Show the page of the announcements of an app (staff only)."""
    return announcements_page(caller, app, query)


def announcements_page(
    caller: Caller, app: App, query: AnnouncementsPageQuery, failure: FormFailure = NO_FAILURE
) -> HtmlPage:
    """Return the page of the announcements of an app."""
    return layout.show(
        caller,
        "announcements",
        gettext("Announcements"),
        page=Announcement.page_of(app.id, query.cursor, layout.PAGE_ROWS),
        query=query,
        active="catalogue",
        done=query.done,
        failure=failure,
        app=app,
        current=failure.values,
    )


@routes.post("/console/apps/{app_id}/announcements", statuses=(303, 400, 401, 403, 404), max_body=MAX_ANNOUNCEMENT_FORM)
@layout.form_handler(announcements_page, AnnouncementsPageQuery)
def send_announcement(caller: Caller, app: App, body: AnnouncementForm) -> Redirect:
    """Notify all customers of an app who accept marketing (staff only)."""
    columns = NEW_ANNOUNCEMENT.read({name: layout.clean_text(getattr(body, name)) for name in ("title", "body")})

    def send() -> str:
        return str(msgspec.json.decode(Announcement.add(app.id, columns, caller.id))["id"])

    layout.run_once(caller, "announcement", body, send)
    return Redirect(f"/console/apps/{app.id}/announcements?done=announced")
