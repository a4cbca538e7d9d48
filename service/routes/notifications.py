"""Notifications (section 4.8 of the document; contract, section 8)."""

from typing import Annotated

from msgspec import Meta, Raw, Struct

from service.db import Page
from service.models import Notification
from service.models.people import Caller
from service.operations import Routes
from service.signature import Cursor, LowerBound

routes = Routes("Notifications", scope="notifications")


class InboxWindow(Struct):
    """Which notifications, and how many."""

    cursor: Cursor = Cursor()
    limit: Annotated[int, Meta(ge=1, le=100)] = 25
    unread_only: bool = False


class CutOff(Struct):
    """Only what was created earlier than `before` is marked; all of it without one."""

    before: Annotated[LowerBound, Meta(min_length=1)] | None = None

    @classmethod
    def nothing(cls) -> "CutOff":
        """The cut-off that nothing lies before."""
        return cls("")


class MarkedRead(Struct):
    """How many notifications were unread until now."""

    marked_read: int


class UnreadCount(Struct):
    """How many notifications are unread."""

    unread_count: int


class Dismissed(Struct):
    """The notification is gone."""

    deleted: bool


@routes.get("/notifications", answers=(200, 401), meta=("next_cursor", "per_page", "unread_count"))
def list_notifications(caller: Caller, query: InboxWindow) -> Page[Notification]:
    """Your notifications, the newest first."""
    return Notification.inbox(caller.id, query.cursor, query.limit, query.unread_only)


@routes.patch(
    "/notifications/read-all",
    answers=(200, 401),
    example={"before": "2026-11-20T10:00:00Z"},
)
def mark_notifications_read(caller: Caller, body: CutOff) -> MarkedRead:
    """Mark your unread notifications as read, all of them or those before a cut-off."""
    return MarkedRead(Notification.mark_read(caller.id, body.before))


@routes.get("/notifications/unread-count", answers=(200, 304, 401), extension=True)
def count_unread_notifications(caller: Caller) -> UnreadCount:
    """How many of your notifications are unread."""
    return UnreadCount(Notification.count_unread(caller.id))


@routes.put("/notifications/{id}/read", answers=(200, 400, 403, 404), extension=True)
def mark_notification_read(notification: Notification) -> Annotated[Raw, Notification]:
    """Mark one of your notifications as read."""
    return notification.mark(read=True)


@routes.delete("/notifications/{id}/read", answers=(200, 400, 403, 404), extension=True)
def mark_notification_unread(notification: Notification) -> Annotated[Raw, Notification]:
    """Mark one of your notifications as unread."""
    return notification.mark(read=False)


@routes.delete("/notifications/{id}", answers=(200, 400, 403, 404), extension=True)
def delete_notification(notification: Notification) -> Dismissed:
    """Take one of your notifications out of the list for good."""
    notification.dismiss()
    return Dismissed(True)
