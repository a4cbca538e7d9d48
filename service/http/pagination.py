"""Cursors: opaque, signed positions in a list. A cursor is valid for one operation, caller and set of filters.

Cursors remain valid after a restart or a restore, because the key is in the database. They grant no access: every
request is authorized.
"""

import functools
import hashlib
import json

from msgspec import Struct

from service import clock
from service.api.operations import Operation
from service.db import Page, Position
from service.fields import Decoded
from service.signing import sign, verify

_encode = json.JSONEncoder(default=str, sort_keys=True).encode
UNBOUND = ("cursor", "limit", "per_page", "direction")  # parameters that may change from page to page


def meta(operation: Operation, bound_to: list[object], query: Decoded, page: Page[object]) -> dict[str, object]:
    """Return the `meta` of a page: the members that the operation declares."""
    number = query.cursor.number
    values = {
        "next_cursor": make(operation, bound_to, query, number + 1, page.next_key),
        "page": number,
        "per_page": getattr(query, "limit", None) or getattr(query, "per_page", None),
        **page.counts,
    }
    return {name: values[name] for name in operation.meta}


def make(operation: Operation, bound_to: list[object], query: Decoded, page: int, key: tuple[object, ...]) -> str:
    """Return the cursor of the page with the number `page`, which begins after `key`; empty without a key."""
    return sign("cursor", [_binding(operation, bound_to, query), page, *key]) if key else ""


def read(operation: Operation, bound_to: list[object], text: str, query: Decoded) -> Position:
    """Return the position of a cursor. Raises ValueError if it was altered or belongs to another list.

    In lists of messages, the ULID of a message is also a position.
    """
    if getattr(query, "takes_ulids", False) and len(text) == 26:
        return Position(key=(clock.read_ulid(text),))
    binding, page, *key = verify("cursor", text)
    if binding != _binding(operation, bound_to, query):
        raise ValueError("a cursor of another list")
    return Position(page, tuple(key))


def _binding(operation: Operation, bound_to: list[object], query: Decoded) -> str:
    names = _filters(query.__class__)
    return _bound(operation.name, tuple(bound_to), names, tuple([getattr(query, name) for name in names]))


@functools.cache
def _filters(kind: type[Struct]) -> tuple[str, ...]:
    return tuple(name for name in kind.__struct_fields__ if name not in UNBOUND)


@functools.lru_cache(256)
def _bound(name: str, bound_to: tuple[object, ...], filters: tuple[str, ...], values: tuple[object, ...]) -> str:
    named = _encode([name, bound_to, dict(zip(filters, values, strict=True))])
    return hashlib.sha256(named.encode()).hexdigest()[:16]
