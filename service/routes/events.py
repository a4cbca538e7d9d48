"""Events, and the calendar feed (iCalendar)."""

from typing import Annotated

from msgspec import Meta, Raw, Struct, field

from service import icalendar
from service.api.operations import PREFIX, Routes
from service.api.parameter_types import Cursor, LowerBound, Media, RequestInfo, UpperBound
from service.api.schemas import BodyColumns
from service.auth.consent import ACCOUNT
from service.db import Page
from service.errors import EventExists, FeedNotFound
from service.models import CalendarFeed, Event
from service.models.callers import Caller
from service.types import JsonObject

routes = Routes("Events", scope="events")

WRITABLE = ("app_id", "ends_at", "is_time_sensitive", "notes", "reminder_at", "source", "source_event_id", "starts_at")
NewEvent = Annotated[JsonObject, BodyColumns(Event, "title", *WRITABLE, required=("title",))]
EventChanges = Annotated[JsonObject, BodyColumns(Event, "title", *WRITABLE, required=("title",), partial=True)]


class EventsQuery(Struct):
    """Period, filter and page size for the list of events."""

    first: LowerBound = field(name="from", default="")
    last: UpperBound = field(name="to", default="~")
    time_sensitive_only: bool = False
    cursor: Cursor = Cursor()
    limit: Annotated[int, Meta(ge=1, le=200, description="Maximum number of events to return.")] = 25


class Cancelled(Struct):
    """The event is deleted."""

    deleted: bool


class FeedAddress(Struct):
    """The secret address of your calendar feed. It needs no token: anyone with the address can read your events."""

    url: str


class NoFeed(Struct):
    """The calendar feed is revoked."""

    revoked: bool


class FeedQuery(Struct):
    """The secret of a calendar feed."""

    token: Annotated[str, Meta(min_length=1, max_length=100)]


@routes.get("/events", statuses=(200, 401), meta=("next_cursor", "page", "per_page", "total"))
def list_events(caller: Caller, query: EventsQuery) -> Page[Event]:
    """List your events by start time."""
    return Event.calendar(
        caller.id,
        query.cursor,
        query.limit,
        first=query.first,
        last=query.last,
        time_sensitive_only=query.time_sensitive_only,
    )


@routes.post(
    "/events",
    statuses=(201, 400, 401),
    extension=True,
    errors=(EventExists,),
    example={"title": "Pub quiz", "starts_at": "2027-03-05T19:30:00Z", "reminder_at": "2027-03-05T18:30:00Z"},
)
def create_event(caller: Caller, body: NewEvent) -> Annotated[Raw, Event]:
    """Create an event."""
    return Event.add(caller.id, body)


@routes.get("/events/{id}", statuses=(200, 400, 403, 404), extension=True)
def get_event(event: Event) -> Annotated[Raw, Event]:
    """Get one of your events."""
    return event.rendered()


@routes.patch(
    "/events/{id}",
    statuses=(200, 400, 403, 404),
    extension=True,
    errors=(EventExists,),
    example={"title": "Pub quiz, final round", "notes": "Bring pencils."},
)
def update_event(event: Event, body: EventChanges) -> Annotated[Raw, Event]:
    """Update an event; `null` clears a member."""
    return event.edit(body)


@routes.delete("/events/{id}", statuses=(200, 400, 403, 404), extension=True)
def delete_event(event: Event) -> Cancelled:
    """Delete an event permanently."""
    event.remove()
    return Cancelled(True)


@routes.post("/events/feed", statuses=(200, 401), extension=True, scope=ACCOUNT)
def renew_calendar_feed(caller: Caller, request_info: RequestInfo) -> FeedAddress:
    """Create a secret address for calendar programs to subscribe to; replaces the previous address."""
    return FeedAddress(f"{request_info.base_url}{PREFIX}/events.ics?token={CalendarFeed.renew(caller.id)}")


@routes.delete("/events/feed", statuses=(200, 401), extension=True, scope=ACCOUNT)
def revoke_calendar_feed(caller: Caller) -> NoFeed:
    """Revoke the secret address of your calendar feed."""
    CalendarFeed.revoke(caller.id)
    return NoFeed(True)


@routes.get(
    "/events.ics",
    statuses=(200, 304, 400, 404),
    extension=True,
    public=True,
    scope="",
    produces=icalendar.CONTENT_TYPE,
    runs="slow",
    errors=(FeedNotFound,),
)
def get_calendar(query: FeedQuery) -> Media:
    """Get the calendar feed of a secret address (iCalendar, RFC 5545)."""
    return Media(icalendar.calendar(Event.feed(CalendarFeed.owner(query.token))), personal=True)
