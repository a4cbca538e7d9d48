"""Announcements: messages of an app's staff to all its customers who accept marketing."""

import peewee
from msgspec import Raw

from service import clock
from service.api.schemas import BodyColumns
from service.db import Order, Page, Position, Query, Table, compiled, literal, page, render, retry_on_conflict, write
from service.errors import AppNotFound
from service.fields import INTERNAL, Identifier, Integer, SqlValue, Text, Timestamp, reference
from service.models.apps import App
from service.models.audit_log import AuditLog
from service.models.chats import ChatSession
from service.models.notifications import Notification
from service.models.users import User

ANNOUNCEMENT = "announcement"  # type of the notification
BATCH_SIZE = 50  # customers who are notified in one transaction


class Announcement(Table):
    """An announcement. The timer notifies the customers in the order of their identifiers, in batches."""

    id = Identifier(primary_key=True, default=clock.uuid)
    app_id = reference("app")
    title = Text(200, min_length=1, default=None)
    body = Text(10_000)
    recipients = Integer(default=0)  # customers who were notified so far
    created_at = Timestamp(default=clock.timestamp)
    finished_at = Timestamp(null=True)  # when all were notified
    last_user_id = Text(visibility=INTERNAL)  # the last customer who was considered

    @classmethod
    def add(cls, app_id: str, columns: dict[str, SqlValue], actor_id: str) -> Raw:
        """Create an announcement, which is sent soon. Return it, rendered. Raises AppNotFound."""
        created = cls(app_id=app_id, **columns)
        with write(app_id):
            if App.find(app_id) is None:
                raise AppNotFound
            created.save(force_insert=True)
            AuditLog.record("announcement_sent", actor_id, created.id, app=app_id)
            return render(cls, created.id)

    @classmethod
    def page_of(cls, app_id: str, after: Position, limit: int) -> "Page[Announcement]":
        """Return a page of an app's announcements, newest first."""
        own = cls.select().where(cls.app_id == app_id)
        return page(own, [Order(cls.created_at, True), Order(cls.id, True)], after, limit)

    @classmethod
    def send_next(cls) -> int:
        """Notify the next customers of the oldest unfinished announcement. Return the number who were considered."""
        unfinished = cls.select().where(cls.finished_at.is_null()).order_by(cls.created_at, cls.id).limit(1)
        announcement = next(iter(unfinished), None)
        return retry_on_conflict(announcement._send_batch) if announcement else 0

    def _send_batch(self) -> int:
        """Notify a batch of customers, unless another process does. Return the number who were considered."""
        customers = [id for (id,) in _customers(self.app_id, self.last_user_id).rows()]
        is_last = len(customers) < BATCH_SIZE
        with write(self.id, *customers):
            same = (Announcement.id == self.id) & (Announcement.last_user_id == self.last_user_id)
            position = customers[-1] if customers else self.last_user_id
            finished_at = clock.timestamp() if is_last else None
            unsent = Announcement.update(last_user_id=position, finished_at=finished_at)
            if not unsent.where(same, Announcement.finished_at.is_null()).execute():
                return 0
            chosen = [id for id in customers if User.preferences_of(id)["notifications"]["marketing_enabled"]]
            for id in chosen:
                Notification.notify(id, ANNOUNCEMENT, self.title, {"announcement_id": self.id}, body=self.body)
            recipients = Announcement.recipients + len(chosen)
            Announcement.update(recipients=recipients).where(Announcement.id == self.id).execute()
        return len(customers)

    class Meta:
        indexes = ((("app_id", "created_at", "id"), False),)


NEW_ANNOUNCEMENT = BodyColumns(Announcement, "title", "body")
"""The columns that the staff sets."""

Announcement.add_index(
    Announcement.created_at, name="announcement_unfinished", where=Announcement.finished_at.is_null()
)


@compiled
def _customers(app_id: str, after: str) -> Query:
    """Select the next enabled customers who have had a chat of an app."""
    chats = ChatSession.select(literal(1)).where(ChatSession.user_id == User.id, ChatSession.app_id == app_id)
    found = User.select(User.id).where(User.id > after, User.role == "user", ~User.is_disabled, peewee.fn.EXISTS(chats))
    return found.order_by(User.id).limit(literal(BATCH_SIZE))
