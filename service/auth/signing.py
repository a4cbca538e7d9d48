"""Signed texts: tokens and cursors that nobody else can make, good for as long as the database lives."""

import functools
import hashlib
import hmac
import threading
from time import monotonic
from typing import Any

import msgspec
from itsdangerous import BadData, BadSignature, Signer, URLSafeSerializer
from itsdangerous.encoding import base64_decode, base64_encode

from service.models import SigningKey

KNOWN = 60.0  # seconds for which the keys are known without asking: all instances sign with a new one after that
FORGED = 1.0  # seconds between the times that a text of nobody's makes us ask

_asking = threading.Lock()
_asked_at = {KNOWN: 0.0, FORGED: 0.0}  # for either reason, by the clock that nobody sets
_known: tuple[str, ...] = ()


def sign(purpose: str, value: list[Any]) -> str:
    """A URL-safe text that carries `value`, readable by anyone; it verifies for the same purpose only."""
    return _sign(purpose, _keys(), msgspec.json.encode(value))


def verify(purpose: str, text: str) -> list[Any]:
    """The value that `sign` was given. Raises ValueError for everything that it did not make."""
    try:
        try:
            return list(_read(purpose, _keys(), text))
        except BadSignature:
            # Another instance may have made a key since; what is merely forged must not cost a question every time.
            return list(_read(purpose, _keys(FORGED), text))
    except (BadData, UnicodeError):
        raise ValueError("not a text of ours") from None


def forget_keys() -> None:
    """Read the keys again at the next use: another database was opened."""
    global _known
    _known, _asked_at[FORGED] = (), 0.0


@functools.lru_cache(maxsize=128)
def _sign(purpose: str, keys: tuple[str, ...], value: bytes) -> str:
    """Kept, since who asks for a page again and again is given the same cursor each time."""
    return _signer(purpose, keys).sign(base64_encode(value)).decode()


@functools.lru_cache(maxsize=1024)
def _read(purpose: str, keys: tuple[str, ...], text: str) -> tuple[Any, ...]:
    """What a text of ours carries; the same token comes with request after request."""
    value = _serializer(purpose, keys).loads(text)
    signature = text.rpartition(".")[2]
    # Base64 can be spelled in several ways; only ours is not altered.
    if base64_encode(base64_decode(signature)) != signature.encode():
        raise BadData("another spelling")
    return tuple(value)


def _keys(rest: float = KNOWN) -> tuple[str, ...]:
    """All keys, asked for anew unless they were, for the same reason, in the last `rest` seconds; one thread asks."""
    global _known
    if _are_due(rest):
        with _asking:
            if _are_due(rest):
                try:
                    _known = tuple(SigningKey.secrets())
                finally:  # where there was no answer, the others do not ask in turn, each for as long
                    _asked_at[KNOWN] = _asked_at[rest] = monotonic()
    return _known


def _are_due(rest: float) -> bool:
    return not _known or monotonic() - _asked_at[rest] >= rest


@functools.lru_cache(maxsize=256)
def _signer(purpose: str, keys: tuple[str, ...]) -> Signer:
    """What signs, without compressing: ours are short. Those of earlier versions may be compressed, and are read."""
    return _serializer(purpose, keys).make_signer()


@functools.lru_cache(maxsize=256)
def _serializer(purpose: str, keys: tuple[str, ...]) -> URLSafeSerializer:
    """What reads for a purpose: by keys of its own, which are made of ours once and not, as usual, for each text."""
    salt = f"cx.{purpose}.v1"
    derived = [hmac.digest(key.encode(), salt.encode(), hashlib.sha256) for key in keys]
    return URLSafeSerializer(derived, salt, signer_kwargs={"key_derivation": "none", "digest_method": hashlib.sha256})
