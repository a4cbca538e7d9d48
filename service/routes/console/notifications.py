"""The page of notifications."""

from contextlib import suppress
from typing import Literal

from msgspec import Struct

from service import clock
from service.api.operations import MAX_FORM, Routes
from service.api.parameter_types import Cursor, HtmlPage, LowerBound, Redirect
from service.console import layout
from service.console.labels import notification_body, notification_title
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure, OptionalUuid, Row
from service.console.messages import json_value
from service.errors import NotificationNotFound
from service.models import Notification
from service.models.callers import Caller
from service.translation import gettext

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")


class NotificationsQuery(Struct):
    """Filter of the list."""

    unread_only: bool = False
    cursor: Cursor = Cursor()
    done: str = ""


class NotificationsForm(ConsoleForm, kw_only=True):
    """A change of all notifications that the page shows, or of one."""

    act: Literal["read_all", "read", "unread", "delete"]
    before: LowerBound = ""
    id: OptionalUuid = ""
    unread_only: bool = False


@routes.get("/console/notifications", statuses=(200, 400, 401))
def show_notifications(caller: Caller, query: NotificationsQuery) -> HtmlPage:
    """Show the page of notifications."""
    return notifications_page(caller, query)


def notifications_page(caller: Caller, query: NotificationsQuery, failure: FormFailure = NO_FAILURE) -> HtmlPage:
    """Return the page of notifications."""
    now = clock.timestamp(clock.now() + 1)  # later than every notification on the page
    page = Notification.inbox(caller.id, query.cursor, layout.PAGE_ROWS, query.unread_only)
    return layout.show(
        caller,
        "notifications",
        gettext("Notifications"),
        page=page,
        query=query,
        done=query.done,
        shown_at=now,
        title_of=title_of,
        body_of=notification_body,
        failure=failure,
    )


def title_of(row: Row) -> str:
    """Return the title of a notification: in the language of the request if the service has composed it."""
    return notification_title(str(row["type"]), str(row["title"]), json_value(row["payload"]))


@routes.post("/console/notifications", statuses=(303, 400, 401, 403, 404), max_body=MAX_FORM)
@layout.form_handler(notifications_page, NotificationsQuery)
def change_notifications(caller: Caller, body: NotificationsForm) -> Redirect:
    """Mark notifications as read or unread, or delete one."""
    if body.act == "read_all":
        Notification.mark_read(caller.id, body.before or clock.timestamp())
    elif body.act == "delete":
        with suppress(NotificationNotFound):  # already deleted: a double click
            Notification.get_for(caller, body.id).remove()
    else:
        Notification.get_for(caller, body.id).set_read(read=body.act == "read")
    done = {"delete": "deleted", "unread": "unread"}.get(body.act, "read")
    return Redirect(f"/console/notifications?{'unread_only=true&' if body.unread_only else ''}done={done}")
