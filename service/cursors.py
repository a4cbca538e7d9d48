"""Cursors: opaque, signed positions in a list, bound to the operation, the caller and the filters they were made for.

They survive restarts, backups and restores, because the key lives in the database; they grant nothing, because every
request is checked anew.
"""

import functools
import hashlib
import json
from typing import Any

from service import clock
from service.auth.signing import sign, verify
from service.db import Page, Position
from service.operations import Operation

_encode = json.JSONEncoder(default=str, sort_keys=True).encode
FREE = ("cursor", "limit", "per_page", "direction")  # what may change in the middle of a walk


def meta(operation: Operation, bound_to: list[Any], query: Any, page: Page[Any]) -> dict[str, Any]:
    """What an operation tells of a page: where the next one begins, and whatever of the rest it declares."""
    number = query.cursor.number
    values = {
        "next_cursor": make(operation, bound_to, query, number + 1, page.next_key),
        "page": number,
        "per_page": getattr(query, "limit", None) or getattr(query, "per_page", None),
        **page.counts,
    }
    return {name: values[name] for name in operation.meta}


def make(operation: Operation, bound_to: list[Any], query: Any, page: int, key: tuple[Any, ...]) -> str:
    """The cursor of the page `page` that begins after `key`; without a key the walk has ended and it is empty."""
    return sign("cursor", [_binding(operation, bound_to, query), page, *key]) if key else ""


def read(operation: Operation, bound_to: list[Any], text: str, query: Any) -> Position:
    """The position of a cursor. Raises ValueError for one that was altered or belongs to another list.

    Where messages are listed, the ULID of a message is a position too.
    """
    if getattr(query, "takes_ulids", False) and len(text) == 26:
        return Position(key=(clock.read_ulid(text),))
    binding, page, *key = verify("cursor", text)
    if binding != _binding(operation, bound_to, query):
        raise ValueError("a cursor of another list")
    return Position(page, tuple(key))


def _binding(operation: Operation, bound_to: list[Any], query: Any) -> str:
    names = _filters(query.__class__)
    return _bound(operation.name, tuple(bound_to), names, tuple([getattr(query, name) for name in names]))


@functools.cache
def _filters(kind: Any) -> tuple[str, ...]:
    return tuple(name for name in kind.__struct_fields__ if name not in FREE)


@functools.lru_cache(256)
def _bound(name: str, bound_to: tuple[Any, ...], filters: tuple[str, ...], values: tuple[Any, ...]) -> str:
    named = _encode([name, bound_to, dict(zip(filters, values, strict=True))])
    return hashlib.sha256(named.encode()).hexdigest()[:16]
