"""The page of events, and the page of one event."""

from contextlib import suppress
from typing import Literal, TypeAlias

from msgspec import Struct

from service import clock
from service.api.operations import KIB, MAX_FORM, PREFIX, Routes
from service.api.parameter_types import Cursor, HtmlPage, Redirect, RequestInfo
from service.api.schemas import BodyColumns
from service.console import layout
from service.console.app_choice import apps_of
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure, OptionalUuid
from service.console.times import Times
from service.errors import EventExists, EventNotFound, InvalidBody
from service.fields import SqlValue
from service.models import CalendarFeed, Event
from service.models.callers import Caller
from service.translation import gettext

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")

MAX_EVENT_FORM = 160 * KIB  # bytes: notes may have 10,000 characters of twelve bytes each
TIMES = ("starts_at", "ends_at", "reminder_at")
MEMBERS = ("title", *TIMES, "notes", "is_time_sensitive")
NEW_EVENT = BodyColumns(Event, *MEMBERS, required=("title",))
EVENT_CHANGES = BodyColumns(Event, *MEMBERS, "app_id", "source", "source_event_id", required=("title",), partial=True)

Fields: TypeAlias = dict[str, str | bool]
"""The values of the fields of a form, by member."""


class EventsQuery(Struct):
    """Period of the list: past events, or those of today and later."""

    past: bool = False
    cursor: Cursor = Cursor()
    done: str = ""


class EventPageQuery(Struct):
    """The result of the previous form, see `layout.SUCCESS_MESSAGES`."""

    done: str = ""


class EventMembers(ConsoleForm, kw_only=True):
    """The members of an event; times are in the time zone of the user."""

    title: str = ""
    starts_at: str = ""
    ends_at: str = ""
    reminder_at: str = ""
    notes: str = ""
    is_time_sensitive: bool = False


class EventForm(EventMembers, kw_only=True):
    """An event to add or to delete."""

    act: Literal["add", "delete"]
    id: OptionalUuid = ""


class CalendarForm(ConsoleForm, kw_only=True):
    """The secret address of the calendar feed to create or to revoke."""


class EventChangeForm(EventMembers, kw_only=True):
    """An event to change."""

    app_id: OptionalUuid = ""
    source: str = ""
    source_event_id: str = ""


@routes.get("/console/events", statuses=(200, 400, 401))
def show_events(caller: Caller, query: EventsQuery) -> HtmlPage:
    """Show the page of events."""
    return events_page(caller, query)


def events_page(
    caller: Caller, query: EventsQuery, failure: FormFailure = NO_FAILURE, *, feed_address: str = ""
) -> HtmlPage:
    """Return the page of events; `feed_address` is the secret address of the calendar feed, if it was just created."""
    today = start_of_today(layout.times_of(caller))
    first, last = ("", clock.timestamp(clock.milliseconds(today) - 1)) if query.past else (today, "~")
    page = Event.calendar(caller.id, query.cursor, layout.PAGE_ROWS, first=first, last=last, time_sensitive_only=False)
    return layout.show(
        caller,
        "events",
        gettext("Events"),
        page=page,
        query=query,
        done=query.done,
        failure=failure,
        feed_address=feed_address,
        has_feed=CalendarFeed.exists_for(caller.id),
    )


@routes.post("/console/events", statuses=(303, 400, 401, 403, 404), max_body=MAX_EVENT_FORM)
@layout.form_handler(events_page, EventsQuery)
def change_events(caller: Caller, body: EventForm) -> Redirect:
    """Add or delete an event."""
    if body.act == "delete":
        with suppress(EventNotFound):  # already deleted: a double click
            Event.get_for(caller, body.id).remove()
        return Redirect("/console/events?done=deleted")
    event = NEW_EVENT.read(read_fields(entered_fields(body, NEW_EVENT), layout.times_of(caller)))
    layout.run_once(caller, "event", body, lambda: Event.add(caller.id, event))
    return Redirect("/console/events?done=added")


@routes.post("/console/calendar", statuses=(200, 400, 401), max_body=MAX_FORM)
@layout.form_handler(events_page, EventsQuery)
def create_calendar_address(caller: Caller, body: CalendarForm, request_info: RequestInfo) -> HtmlPage:
    """Create a secret address of your calendar feed, and show it."""
    token = CalendarFeed.renew(caller.id, layout.derived_secret(caller, "calendar feed", body)[:32])
    address = f"{request_info.base_url}{PREFIX}/events.ics?token={token}"
    return events_page(caller, EventsQuery(done="feed_created"), feed_address=address)


@routes.post("/console/calendar/removal", statuses=(303, 400, 401), max_body=MAX_FORM)
@layout.form_handler(events_page, EventsQuery)
def revoke_calendar_address(caller: Caller, body: CalendarForm) -> Redirect:
    """Revoke the secret address of your calendar feed."""
    CalendarFeed.revoke(caller.id)
    return Redirect("/console/events?done=feed_revoked")


@routes.get("/console/events/{id}", statuses=(200, 400, 401, 403, 404))
def show_event(caller: Caller, event: Event, query: EventPageQuery) -> HtmlPage:
    """Show the form of an event."""
    return event_page(caller, event, query)


def event_page(caller: Caller, event: Event, query: EventPageQuery, failure: FormFailure = NO_FAILURE) -> HtmlPage:
    """Return the page with the form of an event."""
    times = layout.times_of(caller)
    return layout.show(
        caller,
        "event",
        gettext("Edit event"),
        active="events",
        done=query.done,
        failure=failure,
        event_id=event.id,
        is_past=event.starts_at < start_of_today(times),
        apps=apps_of(caller, event.app_id),
        current=shown_fields(event, times) | failure.values,
    )


@routes.post(
    "/console/events/{id}",
    statuses=(303, 400, 401, 403, 404),
    max_body=MAX_EVENT_FORM,
    errors=(EventExists,),
)
@layout.form_handler(event_page, EventPageQuery)
def edit_event(caller: Caller, event: Event, body: EventChangeForm) -> Redirect:
    """Update an event: the members whose fields were changed."""
    times = layout.times_of(caller)
    shown, entered = shown_fields(event, times), entered_fields(body, EVENT_CHANGES)
    changed = {name: value for name, value in entered.items() if value != cleaned(shown[name])}
    event.edit(EVENT_CHANGES.read(read_fields(changed, times)))
    return Redirect(f"/console/events/{event.id}?done=changed")


def shown_fields(event: Event, times: Times) -> Fields:
    """Return the fields of an event as the form shows them: times without seconds."""
    values = {name: getattr(event, name) for name in EVENT_CHANGES.columns}
    return {name: times.field(value) if name in TIMES else value or "" for name, value in values.items()}


def entered_fields(body: EventMembers, columns: BodyColumns) -> Fields:
    """Return the fields of a form, without surrounding whitespace."""
    return {name: cleaned(getattr(body, name)) for name in columns.columns}


def cleaned(value: str | bool) -> str | bool:
    """Return the value of a field, a text without surrounding whitespace."""
    return layout.clean_text(value) if isinstance(value, str) else value


def read_fields(fields: Fields, times: Times) -> dict[str, SqlValue]:
    """Return the members of an event as the API takes them. Raises InvalidBody."""
    members: dict[str, SqlValue] = dict(fields)
    for name in members.keys() & set(TIMES):
        if members[name] or name == "starts_at":
            try:
                members[name] = times.read(members[name])
            except ValueError as error:
                raise InvalidBody(f"$.{name}: {error}") from None
    return members


def start_of_today(times: Times) -> str:
    """Return the timestamp at which the current day began."""
    return times.read(times.local(clock.timestamp()).strftime("%Y-%m-%dT00:00"))
