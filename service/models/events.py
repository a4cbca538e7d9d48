"""Calendar events of users, their reminders, and the calendar feed with its secret token."""

import hashlib
import secrets

import msgspec
import peewee

from service import clock, validators
from service.db import CompiledQuery, Order, Page, Position, Query, Table, compiled, page, render, write
from service.errors import EventExists, EventNotFound, FeedNotFound, Forbidden, InvalidBody
from service.fields import INTERNAL, Boolean, Identifier, SqlValue, Text, Timestamp, reference
from service.models.apps import App
from service.models.audit_log import AuditLog
from service.models.ownership import Owned
from service.models.users import User
from service.types import JsonObject

MAX_REMINDERS = 100  # created by one request; the next request creates further ones
FEED_LIMIT = 1000  # events
FEED_PAST = 90 * clock.DAY  # the feed has no earlier events


class Event(Owned, Table):
    """A calendar event of a user."""

    get_for_errors = (EventNotFound, Forbidden)
    id = Identifier(primary_key=True, default=clock.uuid)
    user_id = reference("user")
    app_id = reference("app", null=True)
    title = Text(200)
    notes = Text(10_000)
    starts_at = Timestamp(default=None)
    ends_at = Timestamp(null=True)
    reminder_at = Timestamp(null=True)
    is_time_sensitive = Boolean(default=False)
    source = Text(64, validator=validators.slug, default="manual")
    source_event_id = Text(255, null=True, default=None)
    created_at = Timestamp(default=clock.timestamp)
    updated_at = Timestamp(default=clock.timestamp)
    reminder_due = Timestamp(null=True, visibility=INTERNAL)  # `reminder_at` until the reminder is created

    @classmethod
    def from_import(cls, given: dict[str, SqlValue]) -> dict[str, SqlValue]:
        """Return `reminder_due` of a future reminder; past reminders may have been sent before the import."""
        reminder_at = given.get("reminder_at")
        return {"reminder_due": reminder_at} if reminder_at and reminder_at > clock.timestamp() else {}

    @classmethod
    def calendar(
        cls, user_id: str, after: Position, limit: int, *, first: str, last: str, time_sensitive_only: bool
    ) -> "Page[Event]":
        """Return a page of a user's events that start from `first` to `last` (inclusive), by start."""
        own = _calendar(user_id, first, last, time_sensitive_only=time_sensitive_only)
        return page(own, BY_START, after, limit, total=own)

    @classmethod
    def feed(cls, user_id: str) -> list[JsonObject]:
        """Return the events of a user's calendar feed: the first 1,000 that start after 90 days ago, by start."""
        since = clock.timestamp(clock.now() - FEED_PAST)
        own = cls.select().where(cls.user_id == user_id, cls.starts_at >= since)
        rows = page(own, BY_START, Position(), FEED_LIMIT).rows
        return list(msgspec.json.decode(rows))

    @classmethod
    def add(cls, user_id: str, columns: dict[str, SqlValue]) -> msgspec.Raw:
        """Create an event. Return it, rendered. Raises EventExists or InvalidBody."""
        with write(user_id):
            now = clock.timestamp()
            event = cls(user_id=user_id, created_at=now, updated_at=now, **columns)
            event._validate(columns)
            event.reminder_due = event._reminder_due()
            event.save(force_insert=True)
            return event.rendered()

    def edit(self, columns: dict[str, SqlValue]) -> msgspec.Raw:
        """Set columns. Return the event, rendered. Raises EventNotFound, EventExists or InvalidBody."""
        with write(self.user_id):
            event = Event.get_or_none(Event.id == self.id)  # read again inside the write
            if event is None:
                raise EventNotFound
            changed = {name: value for name, value in columns.items() if value != getattr(event, name)}
            for name, value in changed.items():
                setattr(event, name, value)
            event._validate(changed)
            if "reminder_at" in changed:
                changed["reminder_due"] = event._reminder_due()
            if changed:
                Event.update(updated_at=clock.timestamp(), **changed).where(Event.id == self.id).execute()
            return event.rendered()

    def remove(self) -> None:
        """Delete the event and its reminder. Raises EventNotFound."""
        with write(self.user_id):
            if not Event.delete().where(Event.id == self.id).execute():
                raise EventNotFound

    def rendered(self) -> msgspec.Raw:
        """Return the event, rendered. Raises EventNotFound if it was deleted concurrently."""
        try:
            return render(Event, self.id)
        except peewee.DoesNotExist:
            raise EventNotFound from None

    def _validate(self, changed: dict[str, SqlValue]) -> None:
        """Validate the event after a change of columns. Raises EventExists or InvalidBody."""
        if {"starts_at", "ends_at"} & set(changed) and self.ends_at and self.ends_at < self.starts_at:
            raise InvalidBody("$.ends_at: expected a time not before starts_at")
        if changed.get("app_id") and not App.select().where(App.id == self.app_id).exists():
            raise InvalidBody("$.app_id: no such app")
        if {"source", "source_event_id"} & set(changed) and self.source_event_id is not None:
            same = (Event.source == self.source) & (Event.source_event_id == self.source_event_id)
            duplicate = Event.get_or_none(Event.user_id == self.user_id, same, Event.id != self.id)
            if duplicate:
                raise EventExists(f"You already have this event from this source; its id is {duplicate.id}.")

    def _reminder_due(self) -> str | None:
        """Return the time of the reminder; None if both the reminder and the start of the event have passed."""
        passed = max(self.reminder_at or "", self.starts_at) <= clock.timestamp()
        return None if passed else self.reminder_at

    @classmethod
    def due_reminders(cls, user_id: str) -> CompiledQuery:
        """Return the query of a user's events with a due reminder. Every list of notifications counts them."""
        return _reminders_due(user_id, clock.timestamp())

    @classmethod
    def claim_due_reminders(cls, user_id: str) -> "list[Event]":
        """Return the events with a due reminder, earliest first, and mark their reminders as done, inside a write."""
        own = cls.select().where(cls.user_id == user_id, cls.reminder_due <= clock.timestamp())
        due = list(own.order_by(cls.reminder_due, cls.id).limit(MAX_REMINDERS))
        cls.update(reminder_due=None).where(cls.id.in_([event.id for event in due])).execute()
        return due

    class Meta:
        indexes = ((("user_id", "starts_at", "id"), False),)


BY_START = (Order(Event.starts_at), Order(Event.id))


@compiled
def _calendar(user_id: str, first: str, last: str, *, time_sensitive_only: bool) -> Query:
    own = Event.select().where(Event.user_id == user_id, Event.starts_at.between(first, last))
    return own.where(Event.is_time_sensitive) if time_sensitive_only else own


@compiled
def _reminders_due(user_id: str, now: str) -> Query:
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
_has_reminder = Event.reminder_due.is_null(False)
Event.add_index(Event.user_id, Event.reminder_due, name="event_reminder_due", where=_has_reminder)
Event.add_index(Event.reminder_due, Event.user_id, name="event_reminders_due", where=_has_reminder)


class CalendarFeed(Table):
    """The calendar feed of a user. Its token grants access; only the SHA-256 digest of the token is stored."""

    user_id = reference("user", primary_key=True, visibility=INTERNAL)
    digest = Text(unique=True, visibility=INTERNAL)

    @classmethod
    def renew(cls, user_id: str, secret: str = "") -> str:
        """Return a new token of the feed, with a given or a random secret; the previous one becomes invalid.

        No effect if the feed has this token already.
        """
        token = f"cxf_{secret or secrets.token_urlsafe(24)}"
        columns = {"digest": _digest(token)}
        with write(user_id):
            if not cls.select().where(cls.user_id == user_id, cls.digest == columns["digest"]).exists():
                renewed = cls.insert(user_id=user_id, **columns)
                renewed.on_conflict(conflict_target=[cls.user_id], update=columns).execute()
                AuditLog.record("calendar_feed_renewed", user_id, user_id)
        return token

    @classmethod
    def exists_for(cls, user_id: str) -> bool:
        """Return whether a user has a feed."""
        return bool(cls.select().where(cls.user_id == user_id).exists())

    @classmethod
    def revoke(cls, user_id: str) -> None:
        """Revoke the token of a user's feed, if there is one."""
        with write(user_id):
            if cls.delete().where(cls.user_id == user_id).execute():
                AuditLog.record("calendar_feed_revoked", user_id, user_id)

    @classmethod
    def owner(cls, token: str) -> str:
        """Return the user of a feed by its token. Raises FeedNotFound."""
        feeds = cls.select(cls.user_id).join(User, on=(User.id == cls.user_id))
        user_id = feeds.where(cls.digest == _digest(token), ~User.is_disabled).scalar()
        if user_id is None:
            raise FeedNotFound
        return str(user_id)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
