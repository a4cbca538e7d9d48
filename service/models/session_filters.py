"""Filters of lists of chat sessions. Each query reads a limited part of one range of an index."""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import peewee

from service import clock
from service.db import Order, Position, Query, Row, compiled, database, literal
from service.fields import SqlValue
from service.models.callers import Caller
from service.models.chats import STATUSES, ChatSession
from service.models.visibility import STAFF_SCOPES, Scope, scope_condition, scopes_of

OWN = "me"
UNASSIGNED = "none"
DEPTH = 5_000  # chat sessions that a query with further conditions reads
KEY = (ChatSession.active_at, ChatSession.id)
BOUNDS = {  # conditions that limit the range of an index
    "app_id": ChatSession.app_id,
    "assignee_id": ChatSession.assignee_id,
    "status": ChatSession.status,
}


def check_assignee(text: str) -> str:
    """Return `me`, `none` or a UUID, in lower case. Raises ValueError."""
    return text if text in (OWN, UNASSIGNED) else clock.read_uuid(text)


class SessionFilters(NamedTuple):
    """Conditions for the chat sessions of a list; an empty one selects all."""

    statuses: tuple[str, ...] = ()
    assignee: str = ""  # a user, or UNASSIGNED
    app_id: str = ""
    bot_id: str = ""


NO_FILTERS = SessionFilters()


def find_keys(caller: Caller, filters: SessionFilters, after: Position, limit: int) -> tuple[list[Row], Row]:
    """Return the sort keys of the first sessions of a list after a position, latest activity first.

    Also returns the key at which the search ended because it has read DEPTH sessions of a status: later sessions may
    match, too. It is empty if the search was complete.
    """
    found, end = list[Row](), tuple[SqlValue, ...]()
    for values, variant in _ranges(caller, filters, after):
        matching = _matching(limit, *values, **variant).rows()
        found += matching
        if len(matching) < limit and _has_more_conditions(**variant):
            end = max(end, _last_read(*values, **variant).row() or ())
    return sorted((key for key in found if key >= end), reverse=True)[:limit], end


def _ranges(
    caller: Caller, filters: SessionFilters, after: Position
) -> Iterator[tuple[list[SqlValue], dict[str, Any]]]:
    """Yield values and variant of each query. With a filter, there is one for each status, see the indexes."""
    is_unassigned = filters.assignee == UNASSIGNED
    given = {"app_id": filters.app_id, "assignee_id": "" if is_unassigned else filters.assignee}
    given = {name: value for name, value in {**given, "bot_id": filters.bot_id}.items() if value}
    statuses = filters.statuses or (STATUSES if filters.assignee or filters.bot_id else ("",))
    for scope, status in itertools.product(scopes_of(caller), dict.fromkeys(statuses)):
        values = {"status": status, **given} if status else given
        variant = {"scope": scope, "by": tuple(values), "unassigned": is_unassigned, "continued": bool(after.key)}
        if scope in STAFF_SCOPES or not filters.assignee:
            yield [caller.id, caller.app_id, *values.values(), *after.key], variant


def _has_more_conditions(*, by: tuple[str, ...], unassigned: bool, **_: object) -> bool:
    """Return whether a query has conditions that do not limit the range of the index."""
    return unassigned or "bot_id" in by


@compiled
def _matching(limit: int, *values: SqlValue, **variant: Any) -> Query:
    """Select the first keys of a range that match. PostgreSQL and SQLite keep the order of the inner query."""
    found = _in_range(*values, **variant)
    if not _has_more_conditions(**variant):
        return found.limit(limit)
    found = found.select_extend(ChatSession.assignee_id, ChatSession.bot_id)
    read = found.limit(literal(DEPTH)).alias("read")
    matching = peewee.Select((read,), (read.c.active_at, read.c.id)).limit(limit)
    if variant["unassigned"]:
        matching = matching.where(read.c.assignee_id.is_null())
    if "bot_id" in variant["by"]:
        matching = matching.where(read.c.bot_id == _named(variant["by"], values)["bot_id"])
    return matching.bind(database)


@compiled
def _last_read(*values: SqlValue, **variant: Any) -> Query:
    return _in_range(*values, **variant).limit(literal(1)).offset(literal(DEPTH - 1))


def _in_range(
    user_id: SqlValue,
    caller_app_id: SqlValue,
    *values: SqlValue,
    scope: Scope,
    by: tuple[str, ...],
    continued: bool,
    **_: object,
) -> "peewee.ModelSelect[ChatSession]":
    """Select the keys of a range, latest activity first; `values` are those of the filters, and the previous key."""
    columns: dict[str, SqlValue] = dict(BOUNDS)
    if "assignee_id" in by:
        columns["app_id"] = ChatSession.app_id.concat("")  # excludes the indexes that begin with the app
    own, every = ChatSession.user_id == user_id, ChatSession.id.is_null(False)
    found = ChatSession.select(*KEY).where(scope_condition(scope, own, columns["app_id"], caller_app_id, every))
    named = _named(by, (user_id, caller_app_id, *values))
    found = found.where(*(column == named[name] for name, column in columns.items() if name in named))
    if continued:
        found = found.where(peewee.Tuple(*KEY) < peewee.Tuple(*values[-len(KEY) :]))
    # See Order: only the index of the list of all sessions has no explicit nulls.
    is_explicit = scope != "all" or bool(BOUNDS.keys() & {*by})
    return found.order_by(*(Order(column, True, explicit_nulls=is_explicit).sql() for column in KEY))


def _named(by: tuple[str, ...], values: tuple[SqlValue, ...]) -> dict[str, SqlValue]:
    """Return the values of the filters by name."""
    return dict(zip(by, values[2:], strict=False))
