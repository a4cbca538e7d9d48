"""Feedback from users of the app."""

import re
from typing import Literal, Self, get_args

from msgspec import Raw

from service import clock, validators
from service.db import Order, Page, Position, Table, page, render, write
from service.errors import FeedbackNotFound, Forbidden
from service.fields import Identifier, JsonAsBytes, SqlValue, Text, Timestamp, reference
from service.models.audit_log import AuditLog
from service.models.callers import Caller
from service.models.notifications import Notification
from service.models.webhooks import emit

Status = Literal["new", "seen", "in_progress", "done", "declined"]  # accepted from admins; imports may have others
STATUSES: tuple[str, ...] = get_args(Status)
FEEDBACK_STATUS = "feedback_status"  # type of the notification of the user who gave it
SCREENSHOT_PATH = "/api/v1/feedback/{}/screenshot"  # of an uploaded screenshot

_SCREENSHOT = re.compile(SCREENSHOT_PATH.format("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"))


def screenshot_address(text: str) -> str:
    """Return the path of an uploaded screenshot, or a web address, unchanged. Raises ValueError for any other text."""
    return text if _SCREENSHOT.fullmatch(text) else validators.web_address(text)


class Feedback(Table):
    """Feedback of a user."""

    get_for_errors = (FeedbackNotFound, Forbidden)
    id = Identifier(primary_key=True, default=clock.uuid)
    user_id = reference("user")
    feedback_type = Text(64, validator=validators.slug, default="general")
    description = Text(10_000, min_length=1, default=None)
    app_version = Text(64)
    device_info = JsonAsBytes(max_length=16 * 1024)
    screenshot_url = Text(2048, validator=screenshot_address)  # never fetched
    status = Text(64, validator=validators.slug, default=STATUSES[0])
    created_at = Timestamp(default=clock.timestamp)
    updated_at = Timestamp(default=clock.timestamp)

    @classmethod
    def submit(cls, user_id: str, **columns: SqlValue) -> Raw:
        """Create feedback of a user. Return it, rendered."""
        now = clock.timestamp()
        with write(user_id):
            created = cls.create(user_id=user_id, created_at=now, updated_at=now, **columns)
            emit("feedback.created", created.id, feedback_id=created.id, user_id=user_id, status=created.status)
            return render(cls, created.id)

    @classmethod
    def get_for(cls, caller: Caller, id: str, *above: Table) -> Self:
        """Return the feedback, for admins. Raises FeedbackNotFound or Forbidden."""
        feedback = cls.find(id)
        if feedback is None:
            raise FeedbackNotFound
        require_admin(caller)
        return feedback

    @classmethod
    def list_page(
        cls, caller: Caller, after: Position, limit: int, *, all_users: bool, status: str
    ) -> "Page[Feedback]":
        """Return a page of the caller's feedback, or of that of all users, newest first. Raises Forbidden."""
        found = cls.select()
        if all_users:
            require_admin(caller)
        else:
            found = found.where(cls.user_id == caller.id)
        if status:
            found = found.where(cls.status == status)
        filtered = bool(status) or not all_users
        return page(found, [Order(cls.created_at, True, filtered), Order(cls.id, True, filtered)], after, limit)

    def set_status(self, status: str, caller: Caller) -> Raw:
        """Set the status. Return the feedback, rendered. No effect if the status is the same."""
        changed = (Feedback.id == self.id) & (Feedback.status != status)
        with write(self.id, self.user_id):
            if Feedback.update(status=status, updated_at=clock.timestamp()).where(changed).execute():
                emit("feedback.status_changed", self.id, feedback_id=self.id, user_id=self.user_id, status=status)
                AuditLog.record("feedback_changed", caller.id, self.user_id, feedback=self.id, status=status)
                if caller.id != self.user_id:
                    about = {"feedback_id": self.id, "status": status}
                    title = f"Your feedback is {status.replace('_', ' ')}"
                    Notification.notify(self.user_id, FEEDBACK_STATUS, title, about)
        return render(Feedback, self.id)

    class Meta:
        indexes = tuple(((*first, "created_at", "id"), False) for first in (("user_id",), ("status",), ()))


def require_admin(caller: Caller) -> None:
    """Raise Forbidden for all callers but admins; feedback belongs to no app, so agents have no access."""
    if caller.role != "admin":
        raise Forbidden(not_found=FeedbackNotFound)
