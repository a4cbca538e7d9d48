"""Idempotency keys: a request that is repeated with the same key gets the first answer again, and acts once."""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from service import clock
from service.db import write
from service.errors import BadRequest, IdempotencyKeyReused
from service.models import KeptAnswer


class Asked(NamedTuple):
    """A request with an Idempotency-Key."""

    user_id: str
    operation: str
    key: str
    content: bytes


class Once(NamedTuple):
    """The body of the first response to a request, and whether this is a repetition."""

    body: bytes
    is_replayed: bool


def once(asked: Asked, act: Callable[[], bytes]) -> Once:
    """The body of the first response: what `act` returns, stored in the same transaction.

    Kept for 24 hours. Raises IdempotencyKeyReused when the same key came with other content.
    """
    if len(asked.key) > 255 or not asked.key.isprintable():
        raise BadRequest("Idempotency-Key: expected at most 255 printable characters.")
    fingerprint = hashlib.sha256(asked.content).hexdigest()
    own = (
        (KeptAnswer.user_id == asked.user_id)
        & (KeptAnswer.operation == asked.operation)
        & (KeptAnswer.key == asked.key)
    )
    with write(asked.user_id):
        KeptAnswer.delete().where(KeptAnswer.kept_until <= clock.now()).execute()
        kept = KeptAnswer.get_or_none(own)
        if kept:
            if kept.fingerprint != fingerprint:
                raise IdempotencyKeyReused
            return Once(kept.answer(), True)
        body = act()
        KeptAnswer.keep(body, user_id=asked.user_id, operation=asked.operation, key=asked.key, fingerprint=fingerprint)
        return Once(body, False)
