"""What the service keeps for itself: signing keys, and answers that a repeated request gets again."""

import secrets
from typing import Any

import msgspec
import peewee

from service import clock
from service.db import Table, write
from service.fields import NEVER, Integer, Sortable, Text, reference
from service.models.chats import Message
from service.models.people import LoginAttempt, LoginSession


class SigningKey(Table):
    """A key that signs tokens and cursors; the newest signs, all of them verify."""

    id = Sortable(primary_key=True, default=clock.ulid)
    created_at = Integer(default=clock.now)
    secret = Text(leaves=NEVER)

    @classmethod
    def ensure(cls) -> None:
        """Make the first key of a new database."""
        with write():
            if not cls.select().exists():
                cls.create(secret=secrets.token_hex(32))

    @classmethod
    def secrets(cls) -> list[str]:
        """All keys, the oldest first."""
        return [key.secret for key in cls.select().order_by(cls.id)]


class Moment(Table):
    """One row: the latest moment at which the service is known to have run."""

    id = Integer(primary_key=True)
    latest = Integer()

    @classmethod
    def note(cls) -> None:
        """Write down what time it is."""
        given = peewee.EXCLUDED.latest
        noted = cls.insert(id=1, latest=clock.now())
        noted.on_conflict(conflict_target=[cls.id], update={cls.latest: given}, where=given > cls.latest).execute()


class _Made(msgspec.Struct):
    id: str = ""
    chat_session_id: str | None = None  # of a message only


class _Answer(msgspec.Struct):
    data: _Made = msgspec.field(default_factory=_Made)


class KeptAnswer(Table):
    """The answer to a request that came with an Idempotency-Key, kept for 24 hours."""

    user_id = reference("user")
    operation = Text(leaves=NEVER)
    key = Text(leaves=NEVER)
    fingerprint = Text(leaves=NEVER)
    body = Text(leaves=NEVER)  # empty where a message is shown: its text is kept in one place only
    kept_until = Integer(index=True)
    message_id = Sortable(null=True, leaves=NEVER)

    @classmethod
    def keep(cls, body: bytes, **columns: Any) -> None:
        """Keep an answer, or which message it shows."""
        made = msgspec.json.decode(body, type=_Answer).data
        shown = made.id if made.chat_session_id else None
        kept_until = clock.now() + clock.DAY
        cls.create(body="" if shown else body.decode(), message_id=shown, kept_until=kept_until, **columns)

    def answer(self) -> bytes:
        """The answer again; a message as it is by now. Raises MessageNotFound for one that was deleted or purged."""
        if not self.message_id:
            return str(self.body).encode()
        shown = Message.get(Message.id == self.message_id).again()
        return msgspec.json.encode({"success": True, "data": shown})

    class Meta:
        primary_key = peewee.CompositeKey("user_id", "operation", "key")


def hold_clock() -> None:
    """See that the clock is not behind what was written before, on a host that was set back.

    Moments, logins, attempts and kept answers are written by this service alone; a message may have been imported from
    a time to come, and counts only if that is not far from theirs.
    """
    own = ((LoginSession.rotated_at, 0), (LoginAttempt.at, 0), (KeptAnswer.kept_until, clock.DAY), (Moment.latest, 0))
    for moment, ahead in own:
        newest = moment.model.select(peewee.fn.max(moment)).scalar()
        clock.not_before((newest or 0) - ahead)
    newest = Message.select(peewee.fn.max(Message.id)).scalar()
    if newest and clock.ulid_time(newest) <= clock.now() + clock.DAY:
        clock.not_before(clock.ulid_time(newest))
