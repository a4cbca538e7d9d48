"""Events and notifications (sections 4.7 and 4.8 of the document; contract, section 8)."""

from typing import Annotated

from msgspec import Meta, Struct, field

from service.db import Page
from service.models import Event, Notification
from service.models.people import Caller
from service.operations import Routes
from service.signature import Cursor, LowerBound, UpperBound

events = Routes("Events", scope="events")
notifications = Routes("Notifications", scope="notifications")


class EventWindow(Struct):
    """Which events, and how many."""

    first: LowerBound = field(name="from", default="")
    last: UpperBound = field(name="to", default="~")
    time_sensitive_only: bool = False
    cursor: Cursor = Cursor()
    limit: Annotated[int, Meta(ge=1, le=200)] = 25


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


@events.get("/events", answers=(200, 401), meta=("next_cursor", "page", "per_page", "total"))
def list_events(caller: Caller, query: EventWindow) -> Page[Event]:
    """Your events, in the order of their start."""
    return Event.calendar(
        caller.id,
        query.cursor,
        query.limit,
        first=query.first,
        last=query.last,
        time_sensitive_only=query.time_sensitive_only,
    )


@notifications.get("/notifications", answers=(200, 401), meta=("next_cursor", "per_page", "unread_count"))
def list_notifications(caller: Caller, query: InboxWindow) -> Page[Notification]:
    """Your notifications, the newest first."""
    return Notification.inbox(caller.id, query.cursor, query.limit, query.unread_only)


@notifications.patch("/notifications/read-all", answers=(200, 401))
def mark_notifications_read(caller: Caller, body: CutOff) -> MarkedRead:
    """Mark your unread notifications as read, all of them or those before a cut-off."""
    return MarkedRead(Notification.mark_read(caller.id, body.before))
