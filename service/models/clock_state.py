"""The time until which the service is known to have run: the clock never starts before it."""

import peewee

from service import clock
from service.db import Table
from service.fields import Integer
from service.models.idempotency_keys import KEY_LIFETIME, IdempotencyKey
from service.models.logins import LoginAttempt, LoginSession
from service.models.messages import Message


class ClockState(Table):
    """A single row: the latest time, in milliseconds, at which the service is known to have run."""

    id = Integer(primary_key=True)
    latest = Integer()

    @classmethod
    def record(cls) -> None:
        """Store the current time."""
        inserted = peewee.EXCLUDED.latest
        row = cls.insert(id=1, latest=clock.now())
        row.on_conflict(conflict_target=[cls.id], update={cls.latest: inserted}, where=inserted > cls.latest).execute()


def restore_clock() -> None:
    """Move the clock forward to the newest stored time, for hosts whose clock was set back.

    An imported message may have a time in the future; it counts only up to one day ahead of the others. All other
    times are written by the service itself.
    """
    columns = (
        (LoginSession.rotated_at, 0),
        (LoginAttempt.at, 0),
        (IdempotencyKey.expires_at, KEY_LIFETIME),
        (ClockState.latest, 0),
    )
    for column, ahead in columns:
        newest = column.model.select(peewee.fn.max(column)).scalar()
        clock.advance_to((newest or 0) - ahead)
    newest = Message.select(peewee.fn.max(Message.id)).scalar()
    if newest and clock.ulid_time(newest) <= clock.now() + clock.DAY:
        clock.advance_to(clock.ulid_time(newest) + 1)  # in the same millisecond, a new ULID could sort before it
