"""What a user is told: the list of notifications, what is read of it, and how others put something there."""

import contextlib
import json
from typing import Any

import peewee
from msgspec import Raw

from service import clock
from service.db import Order, Page, Position, Table, is_unavailable, page, prepared, render, write
from service.errors import Forbidden, NotificationNotFound
from service.fields import (
    EXPORT,
    NEVER,
    Flag,
    Identifier,
    JsonAsBytes,
    Sortable,
    Text,
    Timestamp,
    as_bytes,
    compact_json,
    reference,
)
from service.models.events import Event
from service.models.people import Caller, User

REMINDER = "event_reminder"


class Notification(Table):
    """A notification of one user (section 2.10 of the document)."""

    reach_raises = (NotificationNotFound, Forbidden)
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
    def reach(cls, caller: Caller, id: str, *above: Any) -> "Notification":
        """The notification, for the user who was told. Raises NotificationNotFound or Forbidden."""
        notification = cls.known(id)
        if notification is None:
            raise NotificationNotFound
        if notification.user_id != caller.id:
            raise Forbidden(concealed=NotificationNotFound)
        return notification

    @classmethod
    def tell(cls, user_id: str, type: str, title: str, payload: dict[str, Any], **columns: Any) -> None:
        """Notify a user of something, inside the write that does it."""
        rendered = compact_json(as_bytes(payload))
        cls.create(user_id=user_id, type=type, title=title, payload=rendered, **columns)
        User.touch(user_id)

    @classmethod
    def remind(cls, user_id: str) -> None:
        """Notify a user of the reminders that have come by now, each once; whoever reads the list asks for this.

        When nothing can be written now, they come with a later reading: readers must not stop.
        """
        try:
            with write(user_id):
                for event in Event.take_due(user_id):
                    cls.tell(user_id, REMINDER, event.title, {"event_id": event.id})
        except peewee.DatabaseError as error:
            if not is_unavailable(error):
                raise

    @classmethod
    def inbox(cls, user_id: str, after: Position, limit: int, unread_only: bool) -> "Page[Notification]":
        """A page of a user's notifications, the newest first, and how many are unread of all."""

        def read() -> Page[Notification]:
            found, unread = _inbox(user_id, unread=unread_only), _inbox(user_id, unread=True)
            return page(found, LATEST_FIRST, after, limit, unread_count=unread, due=Event.due(user_id))

        found = read()
        if found.counts["due"]:
            cls.remind(user_id)
            found = read()
        return found

    @classmethod
    def count_unread(cls, user_id: str) -> int:
        """How many of a user's notifications are unread."""
        if Event.due(user_id).count():
            cls.remind(user_id)
        return _inbox(user_id, unread=True).count()

    @classmethod
    def mark_read(cls, user_id: str, before: str | None) -> int:
        """Mark a user's unread notifications as read, all or those created earlier than `before`; how many it were."""
        unread = (cls.user_id == user_id) & cls.read_at.is_null()
        if before is not None:
            unread &= cls.created_at < before
        with write(user_id):
            marked = int(cls.update(read_at=clock.timestamp()).where(unread).execute())
            if marked:
                User.touch(user_id)
            return marked

    def mark(self, *, read: bool) -> Raw:
        """Mark this one as read, if it is not, or as unread; as it is then. Raises NotificationNotFound."""
        own, moment = Notification.id == self.id, clock.timestamp() if read else None
        with write(self.user_id):
            if Notification.update(read_at=moment).where(own, Notification.read_at.is_null(read)).execute():
                User.touch(self.user_id)
            try:
                return render(Notification, self.id)
            except peewee.DoesNotExist:
                raise NotificationNotFound from None

    def dismiss(self) -> None:
        """Take it out of the list for good. Raises NotificationNotFound."""
        with write(self.user_id):
            if not Notification.delete().where(Notification.id == self.id).execute():
                raise NotificationNotFound
            User.touch(self.user_id)

    class Meta:
        indexes = ((("user_id", "created_at", "id"), False),)


LATEST_FIRST = (Order(Notification.created_at, True), Order(Notification.id, True))


@prepared
def _inbox(user_id: str, *, unread: bool) -> Any:
    own = Notification.select().where(Notification.user_id == user_id)
    return own.where(Notification.read_at.is_null()) if unread else own


_unread = Notification.read_at.is_null()
Notification.add_index(
    Notification.user_id, Notification.created_at, Notification.id, name="notification_unread", where=_unread
)
Notification.add_index(  # of a session; and SQLite counts without a look at the rows when it sees what it counts
    Notification.user_id,
    Notification.read_at,
    Notification.session_id,
    Notification.message_id,
    name="notification_told",
    where=_unread,
)
