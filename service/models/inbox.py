"""What waits for a user: notifications."""

import contextlib
import json
from typing import Any

from service import clock
from service.db import Table
from service.fields import EXPORT, NEVER, Flag, Identifier, JsonAsBytes, Sortable, Text, Timestamp, reference


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

    class Meta:
        indexes = ((("user_id", "created_at"), False),)
