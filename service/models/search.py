"""Search in the messages visible to a caller."""

from service import validators
from service.db import (
    Order,
    Page,
    Position,
    Query,
    compiled,
    contains,
    pad_values,
    page,
    search_pattern,
    snapshot,
)
from service.fields import SqlValue
from service.models.callers import Caller
from service.models.inbox import merge, nth
from service.models.messages import NOT_DELETED, PUBLIC, SEARCHED, Message, with_receipts
from service.models.visibility import Scope, scope_condition, scopes_of

SEARCH_DEPTH = 20_000  # messages read for one page: 50 ms on a slow machine


def search(caller: Caller, text: str, after: Position, limit: int) -> Page[Message]:
    """Return a page of the messages that contain a text, in any case, newest first.

    A page reads at most SEARCH_DEPTH messages, so it may hold fewer than `limit`, or none; the next page continues
    from there.
    """
    pattern, nulls = search_pattern(validators.fold(text.strip())), caller.role != "admin"
    bounds = (Message.owner_id.stored(caller.id), Message.app_id.stored(caller.app_id), *after.key)
    with snapshot():
        scopes = scopes_of(caller)
        bottom = max(_nth(*bounds, scope=scope, nulls=nulls, depth=SEARCH_DEPTH).value() or "" for scope in scopes)
        queries = (_matches(pattern, bottom, limit + 1, *bounds, scope=scope, nulls=nulls) for scope in scopes)
        ids = [id for (id,) in merge(limit + 1, queries)]
        found: Page[Message] = page(
            _by_ids(*pad_values(ids), receipts=caller.shows_receipts), [Order(Message.id, True)], Position(), limit
        )
    found.next_key = found.next_key or ((bottom,) if bottom else ())
    return found


@compiled
def _nth(*bounds: SqlValue, scope: Scope, nulls: bool, depth: int) -> Query:
    return nth(_older(*bounds, scope=scope), Order(Message.id, True, explicit_nulls=nulls), depth)


@compiled
def _matches(pattern: str, bottom: str, limit: int, *bounds: SqlValue, scope: Scope, nulls: bool) -> Query:
    found = _older(*bounds, scope=scope).where(Message.id >= bottom, contains(SEARCHED, pattern))
    return found.order_by(Order(Message.id, True, explicit_nulls=nulls).sql()).limit(limit)


def _older(user_id: SqlValue, caller_app_id: SqlValue, *before: str, scope: Scope) -> Query:
    """Select the messages of a scope, older than `before` if given."""
    own = (Message.owner_id == user_id) & PUBLIC
    found = Message.select(Message.id).where(scope_condition(scope, own, Message.app_id, caller_app_id, NOT_DELETED))
    return found.where(Message.id < before[0]) if before else found


@compiled
def _by_ids(*ids: str, receipts: bool) -> Query:
    found = Message.select(with_receipts()) if receipts else Message.select()
    return found.where(Message.id.in_(ids))
