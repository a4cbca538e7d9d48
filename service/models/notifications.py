"""Notifications of users: creating, listing, reading and removing them."""

import contextlib
import json

import msgspec
import peewee
from msgspec import Raw

from service import clock
from service.db import (
    Order,
    Page,
    Position,
    Query,
    Table,
    compiled,
    is_unavailable,
    literal,
    page,
    render,
    retry_on_conflict,
    write,
)
from service.errors import Forbidden, NotificationNotFound
from service.fields import (
    EXPORT_ONLY,
    INTERNAL,
    Identifier,
    JsonAsBytes,
    SqlValue,
    Text,
    Timestamp,
    TimestampFlag,
    UlidIdentifier,
    json_of_bytes,
    reference,
)
from service.models.deliveries import Delivery
from service.models.events import Event
from service.models.ownership import Owned
from service.models.users import User
from service.types import JsonObject

REMINDER = "event_reminder"
MAX_ANNOUNCED = 20  # notifications in one e-mail
BATCH_SIZE = 100  # users whose reminders are created by one call


class Notification(Owned, Table):
    """A notification of a user."""

    get_for_errors = (NotificationNotFound, Forbidden)
    id = Identifier(primary_key=True, default=clock.uuid)
    type = Text(64, default="chat_message")
    title = Text(200)
    body = Text(10_000)
    conversation_id = Identifier(null=True)
    session_id = Identifier(null=True, refers_to="chat_session")
    payload = JsonAsBytes()
    is_read = TimestampFlag("read_at")
    read_at = Timestamp(null=True)
    created_at = Timestamp(default=clock.timestamp)
    user_id = reference("user", visibility=EXPORT_ONLY)
    # The message that the notification announces, from the payload.
    message_id = UlidIdentifier(null=True, visibility=INTERNAL, index=True)

    @classmethod
    def from_import(cls, given: dict[str, SqlValue]) -> dict[str, SqlValue]:
        """Return the message that the payload names."""
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):  # any JSON
            payload = json.loads(bytes(msgspec.json.decode(given["payload"])))
            return {"message_id": clock.read_ulid(payload["message_id"])}
        return {}

    @classmethod
    def notify(
        cls,
        user_id: str,
        type: str,
        title: str,
        payload: JsonObject,
        *,
        is_urgent: bool = False,
        **columns: SqlValue,
    ) -> None:
        """Create a notification, inside the write that causes it, and queue its announcement."""
        rendered = json_of_bytes(payload)
        created = cls.create(user_id=user_id, type=type, title=title, payload=rendered, **columns)
        User.mark_changed(user_id)
        is_reminder = type == REMINDER  # which comes at its time
        about = {"session_id": created.session_id} if created.session_id else {"notification_id": created.id}
        since = clock.milliseconds(created.created_at)
        Delivery.announce(user_id, about, since=since, is_urgent=is_urgent, delay=0 if is_reminder else None)

    @classmethod
    def announced_by(cls, delivery: Delivery) -> "list[Notification]":
        """Return the unread notifications that a delivery announces, oldest first; of very many, the newest."""
        about = json.loads(delivery.payload)
        same = cls.session_id == about["session_id"] if "session_id" in about else cls.id == about["notification_id"]
        first, last = (clock.timestamp(moment) for moment in (delivery.created_at, delivery.closed_at or clock.now()))
        unread = cls.select().where(cls.user_id == delivery.user_id, cls.read_at.is_null(), same)
        newest_first = (cls.created_at.desc(), cls.message_id.desc(), cls.id.desc())
        newest = unread.where(cls.created_at.between(first, last)).order_by(*newest_first)
        return list(newest.limit(MAX_ANNOUNCED))[::-1]

    @classmethod
    def remind(cls, user_id: str) -> int:
        """Create the notifications of a user's due reminders. Return their number."""
        with write(user_id):
            due = Event.claim_due_reminders(user_id)
            for event in due:
                about = {"event_id": event.id}
                cls.notify(user_id, REMINDER, event.title, about, is_urgent=event.is_time_sensitive)
            return len(due)

    @classmethod
    def remind_all(cls) -> int:
        """Create the notifications of due reminders, of at most BATCH_SIZE users. Return their number."""
        due = [id for (id,) in _users_to_remind(clock.timestamp()).rows()]
        return sum(retry_on_conflict(lambda id=id: cls.remind(id)) for id in due)  # type: ignore[misc]

    @classmethod
    def remind_or_wait(cls, user_id: str) -> None:
        """Create the notifications of due reminders before a read. If nothing can be written, a later read does."""
        try:
            cls.remind(user_id)
        except peewee.DatabaseError as error:
            if not is_unavailable(error):
                raise

    @classmethod
    def inbox(cls, user_id: str, after: Position, limit: int, unread_only: bool) -> "Page[Notification]":
        """Return a page of a user's notifications, newest first, and the number of all unread ones."""

        def read() -> Page[Notification]:
            found, unread = _inbox(user_id, unread=unread_only), _inbox(user_id, unread=True)
            return page(found, LATEST_FIRST, after, limit, unread_count=unread, due=Event.due_reminders(user_id))

        found = read()
        if found.counts["due"]:
            cls.remind_or_wait(user_id)
            found = read()
        return found

    @classmethod
    def count_unread(cls, user_id: str) -> int:
        """Return the number of a user's unread notifications."""
        if Event.due_reminders(user_id).count():
            cls.remind_or_wait(user_id)
        return cls.count_stored_unread(user_id)

    @classmethod
    def count_stored_unread(cls, user_id: str) -> int:
        """Return the number of a user's unread notifications, without those of reminders that are due."""
        return _inbox(user_id, unread=True).count()

    @classmethod
    def mark_read(cls, user_id: str, before: str | None) -> int:
        """Mark a user's notifications as read, or only those created before `before`. Return how many changed."""
        unread = (cls.user_id == user_id) & cls.read_at.is_null()
        if before is not None:
            unread &= cls.created_at < before
        with write(user_id):
            marked = int(cls.update(read_at=clock.timestamp()).where(unread).execute())
            if marked:
                User.mark_changed(user_id)
            return marked

    def set_read(self, *, read: bool) -> Raw:
        """Mark the notification as read or unread. Return it, rendered. Raises NotificationNotFound."""
        own, read_at = Notification.id == self.id, clock.timestamp() if read else None
        with write(self.user_id):
            if Notification.update(read_at=read_at).where(own, Notification.read_at.is_null(read)).execute():
                User.mark_changed(self.user_id)
            try:
                return render(Notification, self.id)
            except peewee.DoesNotExist:
                raise NotificationNotFound from None

    def remove(self) -> None:
        """Delete the notification. Raises NotificationNotFound."""
        with write(self.user_id):
            if not Notification.delete().where(Notification.id == self.id).execute():
                raise NotificationNotFound
            User.mark_changed(self.user_id)

    class Meta:
        indexes = ((("user_id", "created_at", "id"), False),)


LATEST_FIRST = (Order(Notification.created_at, True), Order(Notification.id, True))


@compiled
def _users_to_remind(now: str) -> Query:
    due = Event.select(Event.user_id).where(Event.reminder_due <= now)
    return due.order_by(Event.reminder_due).limit(literal(BATCH_SIZE))


@compiled
def _inbox(user_id: str, *, unread: bool) -> Query:
    own = Notification.select().where(Notification.user_id == user_id)
    return own.where(Notification.read_at.is_null()) if unread else own


_unread = Notification.read_at.is_null()
Notification.add_index(
    Notification.user_id, Notification.created_at, Notification.id, name="notification_unread", where=_unread
)
Notification.add_index(  # of a session; covers the condition, so that SQLite counts without reading the rows
    Notification.user_id,
    Notification.read_at,
    Notification.session_id,
    Notification.message_id,
    name="notification_unread_session",
    where=_unread,
)
