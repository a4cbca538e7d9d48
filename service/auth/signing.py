"""Signed texts: tokens and cursors that nobody else can make, good for as long as the database lives."""

import functools
import hashlib
from typing import Any

from itsdangerous import BadData, URLSafeSerializer
from itsdangerous.encoding import base64_decode, base64_encode

from service.models import SigningKey


def sign(purpose: str, value: list[Any]) -> str:
    """A URL-safe text that carries `value`, readable by anyone; it verifies for the same purpose only."""
    return str(_serializer(purpose, _keys()).dumps(value))


def verify(purpose: str, text: str) -> list[Any]:
    """The value that `sign` was given. Raises ValueError for everything that it did not make."""
    try:
        value = _serializer(purpose, _keys()).loads(text)
        signature = text.rpartition(".")[2]
        # Base64 can be spelled in several ways; only ours is not altered.
        if base64_encode(base64_decode(signature)) != signature.encode():
            raise BadData("another spelling")
    except (BadData, UnicodeError):
        raise ValueError("not a text of ours") from None
    return list(value)


def forget_keys() -> None:
    """Read the keys again at the next use: another database was opened."""
    _keys.cache_clear()


@functools.cache
def _keys() -> tuple[str, ...]:
    return tuple(SigningKey.secrets())


@functools.lru_cache(maxsize=256)
def _serializer(purpose: str, keys: tuple[str, ...]) -> URLSafeSerializer:
    signer = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
    return URLSafeSerializer(list(keys), salt=f"cx.{purpose}.v1", signer_kwargs=signer)
