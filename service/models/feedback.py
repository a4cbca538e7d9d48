"""What users tell the makers of the app."""

from typing import Any

from msgspec import Raw

from service import clock, formats
from service.db import Order, Page, Position, Table, page, render, write
from service.errors import FeedbackNotFound, Forbidden
from service.fields import Identifier, JsonAsBytes, Text, Timestamp, reference
from service.models.ledger import Ledger
from service.models.people import Caller


class Feedback(Table):
    """A feedback record (section 2.11 of the document)."""

    reach_raises = (FeedbackNotFound, Forbidden)
    id = Identifier(primary_key=True, default=clock.uuid)
    user_id = reference("user")
    feedback_type = Text(64, form=formats.word, default="general")
    description = Text(10_000, least=1, default=None)
    app_version = Text(64)
    device_info = JsonAsBytes(most=16 * 1024)
    screenshot_url = Text(2048, form=formats.web_address)  # never fetched
    status = Text(64, form=formats.word, default="new")
    created_at = Timestamp(default=clock.timestamp)
    updated_at = Timestamp(default=clock.timestamp)

    @classmethod
    def submit(cls, user_id: str, **columns: Any) -> Raw:
        """A new record of a user, rendered."""
        now = clock.timestamp()
        with write(user_id):
            made = cls.create(user_id=user_id, created_at=now, updated_at=now, **columns)
            return render(cls, made.id)

    @classmethod
    def reach(cls, caller: Caller, id: str, *above: Any) -> "Feedback":
        """The record, for those who work through feedback: admins. Raises FeedbackNotFound or Forbidden."""
        feedback = cls.known(id)
        if feedback is None:
            raise FeedbackNotFound
        expect_admin(caller)
        return feedback

    @classmethod
    def listed_for(
        cls, caller: Caller, after: Position, limit: int, *, everybody: bool, status: str
    ) -> "Page[Feedback]":
        """A page of the caller's records, or of everybody's, the newest first. Raises Forbidden."""
        found = cls.select()
        if everybody:
            expect_admin(caller)
        else:
            found = found.where(cls.user_id == caller.id)
        if status:
            found = found.where(cls.status == status)
        some = bool(status) or not everybody
        return page(found, [Order(cls.created_at, True, some), Order(cls.id, True, some)], after, limit)

    def become(self, status: str, caller: Caller) -> Raw:
        """Say how far the work is; the record, rendered. The same status again changes nothing."""
        other = (Feedback.id == self.id) & (Feedback.status != status)
        with write(self.id):
            if Feedback.update(status=status, updated_at=clock.timestamp()).where(other).execute():
                Ledger.record("feedback_changed", caller.id, self.user_id, feedback=self.id, status=status)
        return render(Feedback, self.id)

    class Meta:
        indexes = tuple(((*first, "created_at", "id"), False) for first in (("user_id",), ("status",), ()))


def expect_admin(caller: Caller) -> None:
    """Raises Forbidden for everybody else: a record names no app whose agents it could be for."""
    if caller.role != "admin":
        raise Forbidden(concealed=FeedbackNotFound)
