"""Events on a user's calendar, when their reminders are due, and the secret address of a calendar's feed."""

import hashlib
import secrets
from typing import Any

import msgspec
import peewee

from service import clock, formats
from service.db import Order, Page, Position, Prepared, Table, page, prepared, render, write
from service.errors import EventExists, EventNotFound, FeedNotFound, Forbidden, InvalidBody
from service.fields import NEVER, Boolean, Identifier, Text, Timestamp, reference
from service.models.ledger import Ledger
from service.models.people import App, Caller, User

DUE_AT_ONCE = 100  # reminders; if there should be more, they come with the next reading
FEED_LIMIT = 1000  # events
FEED_PAST = 90 * clock.DAY


class Event(Table):
    """An event of one user (section 2.9 of the document)."""

    reach_raises = (EventNotFound, Forbidden)
    id = Identifier(primary_key=True, default=clock.uuid)
    user_id = reference("user")
    app_id = reference("app", null=True)
    title = Text(200)
    notes = Text(10_000)
    starts_at = Timestamp(default=None)
    ends_at = Timestamp(null=True)
    reminder_at = Timestamp(null=True)
    is_time_sensitive = Boolean(default=False)
    source = Text(64, form=formats.word, default="manual")
    source_event_id = Text(255, null=True, default=None)
    created_at = Timestamp(default=clock.timestamp)
    updated_at = Timestamp(default=clock.timestamp)
    reminder_due = Timestamp(null=True, leaves=NEVER)  # `reminder_at`, until the user was reminded

    @classmethod
    def adopt(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Of an imported reminder that has passed, nobody knows whether it was told."""
        reminder_at = given.get("reminder_at")
        return {"reminder_due": reminder_at} if reminder_at and reminder_at > clock.timestamp() else {}

    @classmethod
    def reach(cls, caller: Caller, id: str, *above: Any) -> "Event":
        """The event, for the user whose it is. Raises EventNotFound or Forbidden."""
        event = cls.known(id)
        if event is None:
            raise EventNotFound
        if event.user_id != caller.id:
            raise Forbidden(concealed=EventNotFound)
        return event

    @classmethod
    def calendar(
        cls, user_id: str, after: Position, limit: int, *, first: str, last: str, time_sensitive_only: bool
    ) -> "Page[Event]":
        """A page of a user's events that start from `first` to `last`, both included, in the order of their start."""
        own = _calendar(user_id, first, last, time_sensitive_only=time_sensitive_only)
        return page(own, BY_START, after, limit, total=own)

    @classmethod
    def feed(cls, user_id: str) -> list[dict[str, Any]]:
        """What a user's calendar programs are shown: the events of the last 90 days and to come, the first 1,000."""
        since = clock.timestamp(clock.now() - FEED_PAST)
        own = cls.select().where(cls.user_id == user_id, cls.starts_at >= since)
        rows = page(own, BY_START, Position(), FEED_LIMIT).rows
        return list(msgspec.json.decode(rows))

    @classmethod
    def plan(cls, user_id: str, columns: dict[str, Any]) -> msgspec.Raw:
        """A new event, rendered. Raises EventExists or InvalidBody."""
        with write(user_id):
            now = clock.timestamp()
            event = cls(user_id=user_id, created_at=now, updated_at=now, **columns)
            event._expect_sound(columns)
            event.reminder_due = event._due()
            event.save(force_insert=True)
            return event.rendered()

    def change(self, columns: dict[str, Any]) -> msgspec.Raw:
        """Set some columns; the event, rendered. Raises EventNotFound, EventExists or InvalidBody."""
        with write(self.user_id):
            event = Event.get_or_none(Event.id == self.id)  # as it is now that nobody else changes it
            if event is None:
                raise EventNotFound
            changed = {name: value for name, value in columns.items() if value != getattr(event, name)}
            for name, value in changed.items():
                setattr(event, name, value)
            event._expect_sound(changed)
            if "reminder_at" in changed:
                changed["reminder_due"] = event._due()
            if changed:
                Event.update(updated_at=clock.timestamp(), **changed).where(Event.id == self.id).execute()
            return event.rendered()

    def cancel(self) -> None:
        """Take the event off the calendar for good, and its reminder with it. Raises EventNotFound."""
        with write(self.user_id):
            if not Event.delete().where(Event.id == self.id).execute():
                raise EventNotFound

    def rendered(self) -> msgspec.Raw:
        """The event as it is stored. Raises EventNotFound, if it has been deleted meanwhile."""
        try:
            return render(Event, self.id)
        except peewee.DoesNotExist:
            raise EventNotFound from None

    def _expect_sound(self, changed: dict[str, Any]) -> None:
        """Refuse what `changed` columns make of the event. Raises EventExists or InvalidBody."""
        if {"starts_at", "ends_at"} & set(changed) and self.ends_at and self.ends_at < self.starts_at:
            raise InvalidBody("$.ends_at: expected no time before starts_at")
        if changed.get("app_id") and not App.select().where(App.id == self.app_id).exists():
            raise InvalidBody("$.app_id: refers to nothing")
        if {"source", "source_event_id"} & set(changed) and self.source_event_id is not None:
            same = (Event.source == self.source) & (Event.source_event_id == self.source_event_id)
            twin = Event.get_or_none(Event.user_id == self.user_id, same, Event.id != self.id)
            if twin:
                raise EventExists(f"You have this event of that source already; its id is {twin.id}.")

    def _due(self) -> str | None:
        """When the user is to be reminded; never, if both the reminder and the event's start have passed."""
        passed = max(self.reminder_at or "", self.starts_at) <= clock.timestamp()
        return None if passed else self.reminder_at

    @classmethod
    def due(cls, user_id: str) -> Prepared:
        """The events of which a user is to be reminded by now; every list of notifications asks how many there are."""
        return _reminders_due(user_id, clock.timestamp())

    @classmethod
    def take_due(cls, user_id: str) -> "list[Event]":
        """The events of which a user is to be reminded by now, the earliest reminder first, and never again.

        Inside a write of the user's.
        """
        own = cls.select().where(cls.user_id == user_id, cls.reminder_due <= clock.timestamp())
        due = list(own.order_by(cls.reminder_due, cls.id).limit(DUE_AT_ONCE))
        cls.update(reminder_due=None).where(cls.id.in_([event.id for event in due])).execute()
        return due

    class Meta:
        indexes = ((("user_id", "starts_at", "id"), False),)


BY_START = (Order(Event.starts_at), Order(Event.id))


@prepared
def _calendar(user_id: str, first: str, last: str, *, time_sensitive_only: bool) -> Any:
    own = Event.select().where(Event.user_id == user_id, Event.starts_at.between(first, last))
    return own.where(Event.is_time_sensitive) if time_sensitive_only else own


@prepared
def _reminders_due(user_id: str, now: str) -> Any:
    return Event.select().where(Event.user_id == user_id, Event.reminder_due <= now)


Event.add_index(
    Event.user_id,
    Event.source,
    Event.source_event_id,
    name="event_source",
    unique=True,
    where=Event.source_event_id.is_null(False),
)
Event.add_index(Event.user_id, Event.starts_at, Event.id, name="event_time_sensitive", where=Event.is_time_sensitive)
Event.add_index(Event.user_id, Event.reminder_due, name="event_reminder_due", where=Event.reminder_due.is_null(False))


class CalendarFeed(Table):
    """The feed of a user's calendar, open to whoever knows its token; only the digest of that is kept."""

    user_id = reference("user", primary_key=True, leaves=NEVER)
    digest = Text(unique=True, leaves=NEVER)

    @classmethod
    def renew(cls, user_id: str) -> str:
        """A new token, in place of the one that the user had."""
        token = f"cxf_{secrets.token_urlsafe(24)}"
        kept = {"digest": _digest(token)}
        with write(user_id):
            cls.insert(user_id=user_id, **kept).on_conflict(conflict_target=[cls.user_id], update=kept).execute()
            Ledger.record("calendar_feed_renewed", user_id, user_id)
        return token

    @classmethod
    def revoke(cls, user_id: str) -> None:
        """End the token that a user has, if any."""
        with write(user_id):
            if cls.delete().where(cls.user_id == user_id).execute():
                Ledger.record("calendar_feed_revoked", user_id, user_id)

    @classmethod
    def owner(cls, token: str) -> str:
        """The user whose calendar a token opens. Raises FeedNotFound."""
        known = cls.select(cls.user_id).join(User, on=(User.id == cls.user_id))
        user_id = known.where(cls.digest == _digest(token), ~User.is_disabled).scalar()
        if user_id is None:
            raise FeedNotFound
        return str(user_id)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
