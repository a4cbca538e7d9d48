"""Signed texts: tokens and cursors that nobody else can make, good for as long as the database lives."""

import functools
import hashlib
from typing import Any

from itsdangerous import BadData, BadSignature, URLSafeSerializer
from itsdangerous.encoding import base64_decode, base64_encode

from service import clock
from service.models import SigningKey

KNOWN = clock.MINUTE  # how long the keys are known without asking: all instances sign with a new one after that
FORGED = clock.SECOND  # how often a text of nobody's makes us ask

_known: dict[str, tuple[int, tuple[str, ...]]] = {}


def sign(purpose: str, value: list[Any]) -> str:
    """A URL-safe text that carries `value`, readable by anyone; it verifies for the same purpose only."""
    return str(_serializer(purpose, _keys()).dumps(value))


def verify(purpose: str, text: str) -> list[Any]:
    """The value that `sign` was given. Raises ValueError for everything that it did not make."""
    try:
        value = _load(purpose, text)
        signature = text.rpartition(".")[2]
        # Base64 can be spelled in several ways; only ours is not altered.
        if base64_encode(base64_decode(signature)) != signature.encode():
            raise BadData("another spelling")
    except (BadData, UnicodeError):
        raise ValueError("not a text of ours") from None
    return list(value)


def forget_keys() -> None:
    """Read the keys again at the next use: another database was opened."""
    _known.clear()


def _load(purpose: str, text: str) -> Any:
    try:
        return _serializer(purpose, _keys()).loads(text)
    except BadSignature:
        # Another instance may have made a key since; what is merely forged must not cost a question every time.
        return _serializer(purpose, _keys(at_most=FORGED)).loads(text)


def _keys(at_most: int = KNOWN) -> tuple[str, ...]:
    """All keys, as they were read at most so many milliseconds ago."""
    read_at, keys = _known.get("keys", (0, ()))
    if not keys or not 0 <= clock.now() - read_at < at_most:
        keys = tuple(SigningKey.secrets())
        _known["keys"] = clock.now(), keys
    return keys


@functools.lru_cache(maxsize=256)
def _serializer(purpose: str, keys: tuple[str, ...]) -> URLSafeSerializer:
    signer = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
    return URLSafeSerializer(list(keys), salt=f"cx.{purpose}.v1", signer_kwargs=signer)
