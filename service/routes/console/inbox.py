"""News, notifications, events and feedback: what comes in, what is to come, and what is said of it."""

from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from service import clock, formats, updates
from service.console import faces, frame
from service.console.frame import ConsoleForm, OptionalUuid
from service.errors import EventNotFound, Forbidden, InvalidBody, InvalidCursor, NotificationNotFound
from service.models import Event, Feedback, Notification, User
from service.models.people import Caller
from service.operations import FORM, KIB, Routes
from service.shapes import Writes
from service.signature import Cursor, Html, LowerBound, Moved, Origin

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")

NEW_EVENT = Writes(
    Event, "title", "starts_at", "ends_at", "reminder_at", "notes", "is_time_sensitive", needed=("title",)
)
NEW_FEEDBACK = Writes(Feedback, "description", "feedback_type")
PROGRESS = ("new", "seen", "in_progress", "done", "declined")


class Since(Struct):
    """From where on, and for how long."""

    after: Annotated[str, Meta(max_length=16_384)] = ""
    wait: Annotated[int, Meta(ge=0, le=55)] = 0


class Told(Struct):
    """Which notifications."""

    unread_only: bool = False
    cursor: Cursor = Cursor()
    done: str = ""


class ToldForm(ConsoleForm, kw_only=True):
    """What becomes of notifications: all that a page has shown, or one of them."""

    act: Literal["read_all", "read", "unread", "delete"]
    before: LowerBound = ""
    id: OptionalUuid = ""
    unread_only: bool = False


class Calendar(Struct):
    """Which events."""

    past: bool = False
    cursor: Cursor = Cursor()
    done: str = ""


class EventForm(ConsoleForm, kw_only=True):
    """An event to be planned, or to be taken off the calendar."""

    act: Literal["add", "delete"]
    id: OptionalUuid = ""
    title: str = ""
    starts_at: str = ""
    ends_at: str = ""
    reminder_at: str = ""
    notes: str = ""
    is_time_sensitive: bool = False


class Opinions(Struct):
    """Which feedback."""

    everybody: bool = False
    status: Annotated[str, frame.optional(formats.word)] = ""
    cursor: Cursor = Cursor()
    done: str = ""


class FeedbackForm(ConsoleForm, kw_only=True):
    """Something to be told to the makers of the app; for admins, how far the work on it is."""

    act: Literal["give", "status"]
    feedback_type: str = ""
    description: str = ""
    id: OptionalUuid = ""
    status: Literal["new", "seen", "in_progress", "done", "declined", ""] = ""


@routes.get("/console/news", answers=(200, 400, 401), raises=(InvalidCursor,))
def show_news(caller: Caller, query: Since, origin: Origin) -> Html:
    """Wait until something changes that your pages show, and say what, for their script."""
    found = updates.since(caller, query.after)
    if query.after and found.is_nothing:
        origin.patience.wait(caller.id, updates.topics(caller), query.wait)
    return Html("console-news.html", {"found": found, "unread": Notification.count_unread(caller.id)})


@routes.get("/console/notifications", answers=(200, 400, 401))
def show_notifications(caller: Caller, query: Told) -> Html:
    """Your notifications, as a page."""
    return notifications_page(caller, query)


def notifications_page(caller: Caller, query: Told, **told: Any) -> Html:
    """The page of notifications."""
    now = clock.timestamp(clock.now() + 1)  # what is shown was created before
    page = Notification.inbox(caller.id, query.cursor, 25, query.unread_only)
    return frame.show(
        caller, "notifications", "Notifications", page=page, query=query, done=query.done, shown_at=now, **told
    )


@routes.post("/console/notifications", answers=(303, 400, 401, 403, 404), most=FORM)
@frame.told_on(notifications_page, Told)
def change_notifications(caller: Caller, body: ToldForm) -> Moved:
    """Mark your notifications as read or unread, or take one out of the list."""
    if body.act == "read_all":
        Notification.mark_read(caller.id, body.before or clock.timestamp())
    elif body.act == "delete":
        with suppress(NotificationNotFound):  # a second click
            Notification.reach(caller, body.id).dismiss()
    else:
        Notification.reach(caller, body.id).mark(read=body.act == "read")
    done = {"delete": "deleted", "unread": "unread"}.get(body.act, "read")
    return Moved(f"/console/notifications?{'unread_only=true&' if body.unread_only else ''}done={done}")


@routes.get("/console/events", answers=(200, 400, 401))
def show_events(caller: Caller, query: Calendar) -> Html:
    """Your events, as a page."""
    return events_page(caller, query)


def events_page(caller: Caller, query: Calendar, **told: Any) -> Html:
    """The page of events: those of today and to come, or the ones before."""
    times = frame.times_of(User.get_by_id(caller.id))
    midnight = times.local(clock.timestamp()).strftime("%Y-%m-%dT00:00")
    today = times.read(midnight)
    first, last = ("", clock.timestamp(clock.milliseconds(today) - 1)) if query.past else (today, "~")
    page = Event.calendar(caller.id, query.cursor, 50, first=first, last=last, time_sensitive_only=False)
    return frame.show(caller, "events", "Events", page=page, query=query, done=query.done, **told)


@routes.post("/console/events", answers=(303, 400, 401, 403, 404), most=FORM)
@frame.told_on(events_page, Calendar)
def change_events(caller: Caller, body: EventForm) -> Moved:
    """Put an event on your calendar, or take one off it."""
    if body.act == "delete":
        with suppress(EventNotFound):  # a second click
            Event.reach(caller, body.id).cancel()
        return Moved("/console/events?done=deleted")
    times = frame.times_of(User.get_by_id(caller.id))
    given: dict[str, Any] = {"title": body.title.strip(), "notes": frame.plain(body.notes)}
    for name in ("starts_at", "ends_at", "reminder_at"):
        text = getattr(body, name)
        if text:
            try:
                given[name] = times.read(text)
            except ValueError as error:
                raise InvalidBody(f"$.{name}: {error}") from None
    if "starts_at" not in given:
        raise InvalidBody("$.starts_at: expected a date and a time")
    columns = NEW_EVENT.read(given | {"is_time_sensitive": body.is_time_sensitive})
    frame.once(caller, "event", body, lambda: Event.plan(caller.id, columns))
    return Moved("/console/events?done=added")


@routes.get("/console/feedback", answers=(200, 400, 401, 403), raises=(Forbidden,))
def show_feedback(caller: Caller, query: Opinions) -> Html:
    """The feedback that you gave, or for admins that of everybody, as a page."""
    return feedback_page(caller, query)


def feedback_page(caller: Caller, query: Opinions, **told: Any) -> Html:
    """The page of feedback."""
    if (told.get("given") or {}).get("act") == "status":
        query = Opinions(everybody=caller.role == "admin")
    page = Feedback.listed_for(caller, query.cursor, 25, everybody=query.everybody, status=query.status)
    told |= {"people": faces.people(row["user_id"] for row in msgspec.json.decode(page.rows)), "progress": PROGRESS}
    return frame.show(caller, "feedback", "Feedback", page=page, query=query, done=query.done, **told)


@routes.post("/console/feedback", answers=(303, 400, 401, 403, 404), most=128 * KIB)
@frame.told_on(feedback_page, Opinions)
def change_feedback(caller: Caller, body: FeedbackForm) -> Moved:
    """Tell the makers of the app something; for admins, say how far the work on it is."""
    if body.act == "status":
        feedback = Feedback.reach(caller, body.id)
        if not body.status:
            raise InvalidBody("Choose a status first.")
        feedback.become(body.status, caller)
        return Moved(f"/console/feedback?everybody=true&done=changed#f-{feedback.id}")
    given = {"description": frame.plain(body.description), "feedback_type": body.feedback_type}
    if not given["description"]:
        raise InvalidBody("Write something first.")
    columns = NEW_FEEDBACK.read(given)
    frame.once(caller, "feedback", body, lambda: Feedback.submit(caller.id, **columns))
    return Moved("/console/feedback?done=thanks")
