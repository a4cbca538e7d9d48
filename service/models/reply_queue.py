"""The queue of customers' messages that wait for a reply of the assistant."""

from collections.abc import Sequence

from service import clock
from service.db import Table
from service.fields import Integer, Text, UlidIdentifier, reference
from service.models.leases import Leased

CANDIDATES = 10  # rows that a worker tries to claim, because other workers may claim the first ones concurrently


class PendingReply(Leased, Table):
    """A message that waits for a reply: at most one in each chat session, the newest.

    The write that stores the reply deletes the row; without the row, no reply is stored.
    """

    message_id = UlidIdentifier(primary_key=True)
    chat_session_id = reference("chat_session", unique=True)
    languages = Text()  # to reply in, separated by spaces, preferred first
    attempts = Integer(default=0)  # started so far
    due_at = Integer(index=True)
    turn = Text()  # its calls of tools; see models/turns.py

    @classmethod
    def add(cls, message_id: str, session_id: str, languages: Sequence[str]) -> None:
        """Queue a message in place of an earlier one of its session, inside the write that stores it."""
        cls.delete().where(cls.chat_session_id == session_id).execute()
        cls.create(message_id=message_id, chat_session_id=session_id, languages=" ".join(languages), due_at=clock.now())

    @classmethod
    def claim(cls, lease: int) -> "PendingReply | None":
        """Claim the row that has been due for the longest time, for `lease` ms. Return None if no row is due."""
        due = cls.select().where(cls.due_at <= clock.now()).order_by(cls.due_at, cls.message_id).limit(CANDIDATES)
        return cls.claim_first(list(due), lease)
