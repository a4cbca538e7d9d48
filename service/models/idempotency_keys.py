"""Idempotency keys: a request repeated with the same key is executed once and gets the first response again."""

import hashlib
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgspec
import peewee

from service import clock
from service.db import Table, write
from service.errors import BadRequest, IdempotencyKeyReused
from service.fields import INTERNAL, Integer, Text, UlidIdentifier, reference
from service.models.messages import Message
from service.models.users import User

MAX_KEY_LENGTH = 255
KEY_LIFETIME = clock.DAY

Result = TypeVar("Result")


class KeyedRequest(NamedTuple):
    """A request with an Idempotency-Key."""

    user_id: str
    operation: str
    key: str
    content: bytes  # must be equal in all repetitions of the request


class Stored(NamedTuple):
    """The stored response: its body, or the identifier of the message that it shows.

    The text of a message is stored in the message only, so that deleting the message erases it.
    """

    body: bytes = b""
    message_id: str | None = None


class Replay(NamedTuple):
    """The response to a repeated request: the stored body, or the message, rendered as it is now."""

    body: bytes = b""
    message: msgspec.Raw | None = None


class IdempotencyKey(Table):
    """An Idempotency-Key and the response to its first request, stored for 24 hours."""

    user_id = reference("user")
    operation = Text(visibility=INTERNAL)
    key = Text(visibility=INTERNAL)
    fingerprint = Text(visibility=INTERNAL)  # SHA-256 of the content
    body = Text(visibility=INTERNAL)  # empty where `message_id` is set
    expires_at = Integer(index=True)
    message_id = UlidIdentifier(null=True, visibility=INTERNAL)

    def replay(self) -> Replay:
        """Return the response again. Raises MessageNotFound if its message was deleted or purged."""
        if not self.message_id:
            return Replay(str(self.body).encode())
        receipts = bool(User.preferences_of(self.user_id)["privacy"]["show_read_receipts"])
        return Replay(message=Message.get(Message.id == self.message_id).rendered(receipts=receipts))

    class Meta:
        primary_key = peewee.CompositeKey("user_id", "operation", "key")


def run_once(
    request: KeyedRequest, act: Callable[[], Result], to_stored: Callable[[Result], Stored]
) -> Result | Replay:
    """Run `act` in a transaction that also stores its response. Return its result, or a `Replay` for a repetition.

    Raises BadRequest for a malformed key, and IdempotencyKeyReused for a known key with other content.
    """
    if len(request.key) > MAX_KEY_LENGTH or not request.key.isprintable():
        raise BadRequest(f"Idempotency-Key: expected at most {MAX_KEY_LENGTH} printable characters.")
    fingerprint = hashlib.sha256(request.content).hexdigest()
    key = {"user_id": request.user_id, "operation": request.operation, "key": request.key}
    with write(request.user_id):
        IdempotencyKey.delete().where(IdempotencyKey.expires_at <= clock.now()).execute()
        known = IdempotencyKey.get_or_none(**key)
        if known:
            if known.fingerprint != fingerprint:
                raise IdempotencyKeyReused
            return known.replay()
        result = act()
        body, message_id = to_stored(result)
        IdempotencyKey.create(
            **key,
            fingerprint=fingerprint,
            body=body.decode(),
            message_id=message_id,
            expires_at=clock.now() + KEY_LIFETIME,
        )
        return result
