"""What waits for a user: notifications, and events on a calendar."""

import contextlib
import json
from typing import Any

from service import clock, formats
from service.db import Order, Page, Position, Table, page, snapshot
from service.fields import EXPORT, NEVER, Boolean, Flag, Identifier, JsonAsBytes, Sortable, Text, Timestamp, reference


class Notification(Table):
    """A notification of one user (section 2.10 of the document)."""

    id = Identifier(primary_key=True, default=clock.uuid)
    type = Text(64, default="chat_message")
    title = Text(200)
    body = Text(10_000)
    conversation_id = Identifier(null=True)
    session_id = Identifier(null=True, refers_to="chat_session")
    payload = JsonAsBytes()
    is_read = Flag("read_at")
    read_at = Timestamp(null=True)
    created_at = Timestamp(default=clock.timestamp)
    user_id = reference("user", leaves=EXPORT)
    message_id = Sortable(null=True, leaves=NEVER, index=True)  # of the message it announces, from the payload

    @classmethod
    def adopt(cls, given: dict[str, Any]) -> dict[str, Any]:
        """The payload tells which message is announced."""
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):  # it may be anything
            payload = json.loads(bytes(json.loads(given["payload"])))
            return {"message_id": clock.read_ulid(payload["message_id"])}
        return {}

    @classmethod
    def inbox(cls, user_id: str, after: Position, limit: int, unread_only: bool) -> "Page[Notification]":
        """A page of a user's notifications, the newest first, and how many are unread of all."""
        own = cls.select().where(cls.user_id == user_id)
        unread = own.where(cls.read_at.is_null())
        order = [Order(cls.created_at, True), Order(cls.id, True)]
        with snapshot():
            return page(unread if unread_only else own, order, after, limit, unread_count=unread.count())

    @classmethod
    def mark_read(cls, user_id: str, before: str | None) -> int:
        """Mark a user's unread notifications as read, all or those created earlier than `before`; how many it were."""
        unread = (cls.user_id == user_id) & cls.read_at.is_null()
        if before is not None:
            unread &= cls.created_at < before
        return int(cls.update(read_at=clock.timestamp()).where(unread).execute())

    class Meta:
        indexes = ((("user_id", "created_at", "id"), False),)


Notification.add_index(
    Notification.user_id,
    Notification.created_at,
    Notification.id,
    name="notification_unread",
    where=Notification.read_at.is_null(),
)


class Event(Table):
    """An event of one user (section 2.9 of the document)."""

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

    @classmethod
    def calendar(
        cls, user_id: str, after: Position, limit: int, *, first: str, last: str, time_sensitive_only: bool
    ) -> "Page[Event]":
        """A page of a user's events that start from `first` to `last`, both included, in the order of their start."""
        own = cls.select().where(cls.user_id == user_id, cls.starts_at.between(first, last))
        if time_sensitive_only:
            own = own.where(cls.is_time_sensitive)
        with snapshot():
            return page(own, [Order(cls.starts_at), Order(cls.id)], after, limit, total=own.count())

    class Meta:
        indexes = ((("user_id", "starts_at", "id"), False),)


Event.add_index(
    Event.user_id,
    Event.source,
    Event.source_event_id,
    name="event_source",
    unique=True,
    where=Event.source_event_id.is_null(False),
)
Event.add_index(Event.user_id, Event.starts_at, Event.id, name="event_time_sensitive", where=Event.is_time_sensitive)
