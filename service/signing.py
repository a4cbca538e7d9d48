"""Signs and verifies tokens and cursors, with keys that are stored in the database."""

import functools
import hashlib
import hmac
import threading
from time import monotonic

import msgspec
from itsdangerous import BadData, BadSignature, Signer, URLSafeSerializer
from itsdangerous.encoding import base64_decode, base64_encode

from service.models import SigningKey
from service.types import JsonValue

KEY_LIFETIME = 60.0  # seconds for which the keys are cached; then, all instances sign with a new key
RETRY_INTERVAL = 1.0  # seconds between reloads of the keys because of invalid signatures

_loading = threading.Lock()
_loaded_at = {KEY_LIFETIME: 0.0, RETRY_INTERVAL: 0.0}  # monotonic time of the latest load, by its reason
_cached_keys: tuple[str, ...] = ()


def sign(purpose: str, value: list[object]) -> str:
    """Return a URL-safe signed text with `value`, which is not encrypted. It is valid for the same purpose only."""
    return _sign(purpose, _keys(), msgspec.json.encode(value))


def verify(purpose: str, text: str) -> list[JsonValue]:
    """Return the value of a signed text. Raises ValueError if the text is not valid for the purpose."""
    try:
        try:
            return list(_read(purpose, _keys(), text))
        except BadSignature:
            # Another instance may have created a key. An invalid text must not cause a query each time.
            return list(_read(purpose, _keys(RETRY_INTERVAL), text))
    except (BadData, UnicodeError):
        raise ValueError("not a valid signed text") from None


def pseudonym(purpose: str, *values: str) -> str:
    """Return a text that stands for some values: always the same, and only the keys can derive it.

    Made with the oldest key, so that it stays the same when a key is added.
    """
    content = msgspec.json.encode([f"cx.{purpose}.v1", *values])
    return base64_encode(hmac.digest(_keys()[0].encode(), content, hashlib.sha256)).decode()


def forget_keys() -> None:
    """Load the keys again at the next use, after another database was opened."""
    global _cached_keys
    _cached_keys, _loaded_at[RETRY_INTERVAL] = (), 0.0


@functools.lru_cache(maxsize=128)
def _sign(purpose: str, keys: tuple[str, ...], value: bytes) -> str:
    """Return the signed text. Cached, because repeated requests for a page return the same cursor."""
    return _signer(purpose, keys).sign(base64_encode(value)).decode()


@functools.lru_cache(maxsize=1024)
def _read(purpose: str, keys: tuple[str, ...], text: str) -> tuple[JsonValue, ...]:
    """Return the value of a signed text. Cached, because many requests have the same token."""
    value = _serializer(purpose, keys).loads(text)
    signature = text.rpartition(".")[2]
    # Several Base64 texts decode to the same bytes; only the canonical one is accepted.
    if base64_encode(base64_decode(signature)) != signature.encode():
        raise BadData("not canonical")
    return tuple(value)


def _keys(max_age: float = KEY_LIFETIME) -> tuple[str, ...]:
    """Return all keys, loaded again by one thread if the latest load for this reason is older than `max_age` s."""
    global _cached_keys
    if _must_load(max_age):
        with _loading:
            if _must_load(max_age):
                try:
                    _cached_keys = tuple(SigningKey.secrets())
                finally:  # after a failure, other threads do not try one after the other
                    _loaded_at[KEY_LIFETIME] = _loaded_at[max_age] = monotonic()
    return _cached_keys


def _must_load(max_age: float) -> bool:
    return not _cached_keys or monotonic() - _loaded_at[max_age] >= max_age


@functools.lru_cache(maxsize=256)
def _signer(purpose: str, keys: tuple[str, ...]) -> Signer:
    """Sign without compression, because values are short. Compressed texts of earlier versions are still read."""
    return _serializer(purpose, keys).make_signer()


@functools.lru_cache(maxsize=256)
def _serializer(purpose: str, keys: tuple[str, ...]) -> URLSafeSerializer:
    """Verify texts for a purpose. Its keys are derived once, rather than, as by default, for each text."""
    salt = f"cx.{purpose}.v1"
    derived = [hmac.digest(key.encode(), salt.encode(), hashlib.sha256) for key in keys]
    return URLSafeSerializer(derived, salt, signer_kwargs={"key_derivation": "none", "digest_method": hashlib.sha256})
