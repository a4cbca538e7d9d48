"""What the service keeps for itself: signing keys, and answers that a repeated request gets again."""

import secrets

import peewee

from service import clock
from service.db import Table, write
from service.fields import NEVER, Integer, Sortable, Text, reference
from service.models.chats import Message
from service.models.people import LoginSession


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


def hold_clock() -> None:
    """See that the clock is not behind what was written before, on a host that was set back.

    Logins are written by this service alone; a message may have been imported from a time to come, and counts only if
    somebody was logged in about then.
    """
    login = LoginSession.select(peewee.fn.max(LoginSession.rotated_at)).scalar() or 0
    clock.not_before(login)
    newest = Message.select(peewee.fn.max(Message.id)).scalar()
    if newest and clock.ulid_time(newest) <= clock.now() + clock.DAY:
        clock.not_before(clock.ulid_time(newest))


class KeptAnswer(Table):
    """The answer to a request that came with an Idempotency-Key, kept for 24 hours."""

    user_id = reference("user")
    operation = Text(leaves=NEVER)
    key = Text(leaves=NEVER)
    fingerprint = Text(leaves=NEVER)
    body = Text(leaves=NEVER)
    kept_until = Integer(index=True)

    class Meta:
        primary_key = peewee.CompositeKey("user_id", "operation", "key")
