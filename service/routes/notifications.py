"""Notifications."""

from typing import Annotated

from msgspec import Meta, Raw, Struct

from service.api.operations import Routes
from service.api.parameter_types import Cursor, LowerBound
from service.db import Page
from service.models import Notification
from service.models.callers import Caller

routes = Routes("Notifications", scope="notifications")


class NotificationsQuery(Struct):
    """Filter and page size for the list of notifications."""

    cursor: Cursor = Cursor()
    limit: Annotated[int, Meta(ge=1, le=100, description="Maximum number of notifications to return.")] = 25
    unread_only: bool = False


class CutOff(Struct):
    """Notifications created before this time are marked as read; by default all."""

    before: Annotated[LowerBound, Meta(min_length=1)] | None = None

    @classmethod
    def nothing(cls) -> "CutOff":
        """Return a cut-off that excludes every notification."""
        return cls("")


class MarkedRead(Struct):
    """The number of notifications that were marked as read."""

    marked_read: int


class UnreadCount(Struct):
    """The number of unread notifications."""

    unread_count: int


class Dismissed(Struct):
    """The notification is deleted."""

    deleted: bool


@routes.get("/notifications", statuses=(200, 401), meta=("next_cursor", "per_page", "unread_count"))
def list_notifications(caller: Caller, query: NotificationsQuery) -> Page[Notification]:
    """List your notifications, newest first."""
    return Notification.inbox(caller.id, query.cursor, query.limit, query.unread_only)


@routes.patch(
    "/notifications/read-all",
    statuses=(200, 401),
    example={"before": "2026-11-20T10:00:00Z"},
)
def mark_notifications_read(caller: Caller, body: CutOff) -> MarkedRead:
    """Mark all your notifications as read, or those created before a given time."""
    return MarkedRead(Notification.mark_read(caller.id, body.before))


@routes.get("/notifications/unread-count", statuses=(200, 304, 401), extension=True)
def count_unread_notifications(caller: Caller) -> UnreadCount:
    """Count your unread notifications."""
    return UnreadCount(Notification.count_unread(caller.id))


@routes.put("/notifications/{id}/read", statuses=(200, 400, 403, 404), extension=True)
def mark_notification_read(notification: Notification) -> Annotated[Raw, Notification]:
    """Mark one of your notifications as read."""
    return notification.set_read(read=True)


@routes.delete("/notifications/{id}/read", statuses=(200, 400, 403, 404), extension=True)
def mark_notification_unread(notification: Notification) -> Annotated[Raw, Notification]:
    """Mark one of your notifications as unread."""
    return notification.set_read(read=False)


@routes.delete("/notifications/{id}", statuses=(200, 400, 403, 404), extension=True)
def delete_notification(notification: Notification) -> Dismissed:
    """Delete one of your notifications permanently."""
    notification.remove()
    return Dismissed(True)
