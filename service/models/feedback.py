"""What users tell the makers of the app."""

from typing import Any

from msgspec import Raw

from service import clock, formats
from service.db import Table, render, write
from service.fields import Identifier, JsonAsBytes, Text, Timestamp, reference


class Feedback(Table):
    """A feedback record (section 2.11 of the document)."""

    id = Identifier(primary_key=True, default=clock.uuid)
    user_id = reference("user", index=True)
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
            return render(cls.select().where(cls.id == made.id))
