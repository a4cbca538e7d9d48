"""Which customers' messages wait for the answer of an assistant, and who is asking it at the moment."""

from collections.abc import Sequence

from service import clock
from service.db import Table
from service.fields import Integer, Sortable, Text, reference

FEW = 10  # that are tried to be claimed, of those that others may claim at the same time


class DueAnswer(Table):
    """A message to be answered, at most one of a chat session: the newest.

    Whoever claims it puts off `due_at`, so nobody else claims it until then, and somebody else does if it is still
    there afterwards. Whoever stores the answer deletes the row in the same write; without a row, nothing is stored.
    """

    message_id = Sortable(primary_key=True)
    chat_session_id = reference("chat_session", unique=True)
    languages = Text()  # to answer in, the dearest first, apart by blanks
    attempts = Integer(default=0)  # that were begun
    due_at = Integer(index=True)

    @classmethod
    def add(cls, message_id: str, session_id: str, languages: Sequence[str]) -> None:
        """Let a message wait, in place of an earlier one of its session; inside the write that stores it."""
        cls.delete().where(cls.chat_session_id == session_id).execute()
        cls.create(message_id=message_id, chat_session_id=session_id, languages=" ".join(languages), due_at=clock.now())

    @classmethod
    def claim(cls, lease: int) -> "DueAnswer | None":
        """The one that has been due for the longest time, now ours for so many milliseconds."""
        now = clock.now()
        for due in list(cls.select().where(cls.due_at <= now).order_by(cls.due_at, cls.message_id).limit(FEW)):
            if due._put_off(now + lease, attempts=cls.attempts + 1):
                due.attempts += 1
                return due
        return None

    def postpone(self, milliseconds: int) -> None:
        """Let go of what was claimed, until somebody tries again."""
        self._put_off(clock.now() + milliseconds)

    def _put_off(self, until: int, **columns: object) -> bool:
        """Change when it is due, unless somebody else did."""
        same = (DueAnswer.message_id == self.message_id) & (DueAnswer.due_at == self.due_at)
        changed = DueAnswer.update(due_at=until, **columns).where(same).execute()
        self.due_at = until
        return bool(changed)

    def settle(self) -> bool:
        """Take it off the list for good; whether it was still there."""
        return bool(DueAnswer.delete().where(DueAnswer.message_id == self.message_id).execute())
