"""Events and the feed of a calendar (section 4.7 of the document; contract, section 8)."""

from typing import Annotated, Any

from msgspec import Meta, Raw, Struct, field

from service import icalendar
from service.auth.consent import ACCOUNT
from service.db import Page
from service.errors import EventExists, FeedNotFound
from service.models import CalendarFeed, Event
from service.models.people import Caller
from service.operations import PREFIX, Routes
from service.shapes import Writes
from service.signature import Cursor, LowerBound, Media, Origin, UpperBound

routes = Routes("Events", scope="events")

WRITTEN = ("app_id", "ends_at", "is_time_sensitive", "notes", "reminder_at", "source", "source_event_id", "starts_at")
NewEvent = Annotated[dict[str, Any], Writes(Event, "title", *WRITTEN, needed=("title",))]
EventChanges = Annotated[dict[str, Any], Writes(Event, "title", *WRITTEN, needed=("title",), partial=True)]


class EventWindow(Struct):
    """Which events, and how many."""

    first: LowerBound = field(name="from", default="")
    last: UpperBound = field(name="to", default="~")
    time_sensitive_only: bool = False
    cursor: Cursor = Cursor()
    limit: Annotated[int, Meta(ge=1, le=200)] = 25


class Cancelled(Struct):
    """The event is gone."""

    deleted: bool


class FeedAddress(Struct):
    """Where calendar programs find your events; whoever knows the address can read them."""

    url: str


class NoFeed(Struct):
    """There is no feed."""

    revoked: bool


class Key(Struct):
    """What opens a feed."""

    token: Annotated[str, Meta(min_length=1, max_length=100)]


@routes.get("/events", answers=(200, 401), meta=("next_cursor", "page", "per_page", "total"))
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


@routes.post(
    "/events",
    answers=(201, 400, 401),
    extension=True,
    raises=(EventExists,),
    example={"title": "Pub quiz", "starts_at": "2027-03-05T19:30:00Z", "reminder_at": "2027-03-05T18:30:00Z"},
)
def create_event(caller: Caller, body: NewEvent) -> Annotated[Raw, Event]:
    """Put an event on your calendar."""
    return Event.plan(caller.id, body)


@routes.get("/events/{id}", answers=(200, 400, 403, 404), extension=True)
def get_event(event: Event) -> Annotated[Raw, Event]:
    """One of your events."""
    return event.rendered()


@routes.patch(
    "/events/{id}",
    answers=(200, 400, 403, 404),
    extension=True,
    raises=(EventExists,),
    example={"title": "Pub quiz, final round", "notes": "Bring pencils."},
)
def update_event(event: Event, body: EventChanges) -> Annotated[Raw, Event]:
    """Change some of an event; `null` clears a member."""
    return event.change(body)


@routes.delete("/events/{id}", answers=(200, 400, 403, 404), extension=True)
def delete_event(event: Event) -> Cancelled:
    """Take an event off your calendar for good."""
    event.cancel()
    return Cancelled(True)


@routes.post("/events/feed", answers=(200, 401), extension=True, scope=ACCOUNT)
def renew_calendar_feed(caller: Caller, origin: Origin) -> FeedAddress:
    """Get a new secret address of your calendar, for programs that subscribe to it; the old one ends."""
    return FeedAddress(f"{origin.site}{PREFIX}/events.ics?token={CalendarFeed.renew(caller.id)}")


@routes.delete("/events/feed", answers=(200, 401), extension=True, scope=ACCOUNT)
def revoke_calendar_feed(caller: Caller) -> NoFeed:
    """End the secret address of your calendar."""
    CalendarFeed.revoke(caller.id)
    return NoFeed(True)


@routes.get(
    "/events.ics",
    answers=(200, 304, 400, 404),
    extension=True,
    public=True,
    scope="",
    produces=icalendar.CONTENT_TYPE,
    runs="slow",
    raises=(FeedNotFound,),
)
def get_calendar(query: Key) -> Media:
    """The calendar behind a secret address, for programs that subscribe to it (iCalendar, RFC 5545)."""
    return Media(icalendar.calendar(Event.feed(CalendarFeed.owner(query.token))), personal=True)
