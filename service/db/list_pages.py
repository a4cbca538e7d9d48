"""Pages of lists (keyset pagination). The database renders the rows as JSON, in one statement."""

import functools
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Generic, NamedTuple, TypeVar

import msgspec
import peewee

from service.db.compiled_queries import CompiledQuery, Statement
from service.db.engine import Order, database, page_bytes
from service.fields import SqlValue, row_template
from service.fields import members as row_members

Parts = tuple[list[str], Sequence[object]]  # SQL for each part of a page, and the values of all

Item = TypeVar("Item", covariant=True)
Model = TypeVar("Model", bound=peewee.Model)


def row_json(table: type[peewee.Model], *, own: bool = False, export: bool = False) -> str:
    """Return SQL that renders a row of a table as a JSON object."""
    return str(database.format_sql(*row_template(table, own=own, export=export)))


class RenderedRow(peewee.NodeList):
    """SQL that renders a row of a table as a JSON object; selected by a query, it replaces the row of `row_json`."""


def rendered_row(table: type[peewee.Model], **members: peewee.Node) -> RenderedRow:
    """Return SQL for a row as `row_json` renders it, with other SQL for the JSON of some members."""
    template, values = row_template(table)
    marks = {name: f"\0{name}\0" for name in members}
    own = zip(row_members(table), values, strict=True)
    remaining = database.format_sql(template, [marks.get(name, value) for name, value in own])
    parts: list[peewee.Node] = []
    for name in filter(marks.__contains__, row_members(table)):
        before, _, remaining = remaining.partition(marks[name])
        parts += peewee.SQL(before), members[name]
    return RenderedRow([*parts, peewee.SQL(remaining)], glue="")


class Position(NamedTuple):
    """The start of a page: after the row with this key. `number` is the number of the page, counted from 1."""

    number: int = 1
    key: tuple[object, ...] = ()
    past_end: bool = False  # the page is empty: for an invalid cursor, where the operation has no status 400


class Page(Generic[Item]):
    """A page of a list: a rendered JSON array, the key of the next page (empty on the last), and counts for `meta`."""

    def __init__(self, rows: bytes, next_key: tuple[object, ...], **counts: int) -> None:
        self.rows = msgspec.Raw(rows)
        self.next_key = next_key
        self.counts = counts


def page(
    query: "peewee.ModelSelect[Model] | CompiledQuery",
    order: Sequence[Order],
    after: Position,
    limit: int,
    *,
    is_paginated: bool = True,
    **counts: int | CompiledQuery,
) -> Page[Model]:
    """At most `limit` rows of `query` in `order` after a position, rendered in one statement that returns one row.

    A page ends before the row with which it would exceed `page_bytes`; it has at least one row.

    The columns of `order` must be unique together, and members of the resource unless the list is not paginated. Rows
    are separated by a newline, which JSON text never contains, so the last row is found without parsing the others.
    Queries in `counts` are counted in the same statement, and so on the same state of the database.
    """
    known = {name: count for name, count in counts.items() if isinstance(count, int)}
    queries = {name: count for name, count in counts.items() if isinstance(count, CompiledQuery)}
    if after.past_end:
        return Page(b"[]", (), **known, **{name: count.count() for name, count in queries.items()})

    def make(query: "peewee.ModelSelect[Model]", byte_limit: object, *given: object) -> Statement:
        parts, values = _parts(query, order, *given)
        return database.join_rows(parts, order), [byte_limit, *values]

    engine = database.obj
    given = (engine.byte_limit(limit + 1), *after.key, limit + 1)
    use = ("page", tuple(order), len(given))
    sql, values = query.statement(use, make, *given) if isinstance(query, CompiledQuery) else make(query, *given)
    for count in queries.values():
        count_sql, more = count.count_statement()
        sql, values = _with_count(sql, count_sql), [*more, *values]
    with engine.replica_read():
        row = engine.fetch_joined(sql, values)
    if row is None:
        with engine.snapshot():
            row = *_join_one_by_one(query, order, *given[1:]), *(count.count() for count in queries.values())
    fetched, text, fitting, *numbers = row
    known |= dict(zip(queries, numbers, strict=True))
    if fetched <= limit and fitting == fetched:
        return Page(b"[%b]" % (text or b""), (), **known)
    if fitting > limit:
        text = text[: text.rindex(b",\n")]  # the additional row only shows that more follow
    if not is_paginated:
        return Page(b"[%b]" % text, (), **known)
    last = msgspec.json.decode(text[text.rfind(b"\n") + 1 :], type=_key_of(*(part.column.name for part in order)))
    return Page(b"[%b]" % text, msgspec.structs.astuple(last), **known)


def _parts(query: "peewee.ModelSelect[Model]", order: Sequence[Order], *given: object) -> Parts:
    """Return SQL for each part of a page after a key, and the values.

    `given` is the key and the maximum number of rows.
    """
    *key, max_rows = given
    keys = database.page_keys(order)
    rendered = [column for column in query.selected_columns if isinstance(column, RenderedRow)]
    row = rendered[0] if rendered else peewee.SQL(row_json(query.model))
    rows = query.select(row.alias("row"), *keys).limit(max_rows)
    rows = rows.order_by(*(part.sql() for part in order))
    parts = [rows.where(condition).sql() for condition in _after_key(order, key)] or [rows.sql()]
    values = [value for _, values in parts for value in values]
    return [sql for sql, _ in parts], values + [max_rows] * (len(parts) > 1)


def _join_one_by_one(
    query: "peewee.ModelSelect[Model] | CompiledQuery", order: Sequence[Order], *given: SqlValue
) -> tuple[int, bytes, int]:
    """Return the result of `Engine.join_rows`, from rows fetched one by one until the first that does not fit."""

    def make(query: "peewee.ModelSelect[Model]", *given: object) -> Parts:
        return _parts(query, order, *given)

    use = ("parts of a page", tuple(order), len(given))
    parts, values = query.statement(use, make, *given) if isinstance(query, CompiledQuery) else make(query, *given)
    fitting: list[bytes] = []
    size, max_size = 0, page_bytes(given[-1])
    with closing(database.fetch_each(parts, order, values)) as rows:
        for row in rows:
            size += len(row) + 2
            if fitting and size > max_size:
                return len(fitting) + 1, b",\n".join(fitting), len(fitting)
            fitting.append(row)
    return len(fitting), b",\n".join(fitting), len(fitting)


@functools.lru_cache(256)
def _with_count(page: str, count: str) -> str:
    """Return SQL for a page and one more count. Cached, so that the texts are the same objects and compare quickly."""
    return f"SELECT page.*, ({count}) FROM ({page}) AS page"


@functools.cache
def _key_of(*names: str) -> type[msgspec.Struct]:
    """Return the members of a row that are the key of a position. Decoding skips all others."""
    return msgspec.defstruct("Key", names)


def _after_key(order: Sequence[Order], key: Sequence[object]) -> Iterator[peewee.Expression]:
    """Return the conditions of which one is true for each row that sorts after `key`, in the order of the list.

    There is one for each column: equal in all columns before it, and after `key` in this one. Each condition is a
    single range of an index, whatever the directions; joined by OR they would not be.
    """
    for depth in range(len(key) - 1, -1, -1):
        (column, descending, _), value = order[depth], key[depth]
        condition = column < value if descending else column > value
        for (earlier, *_), equal in zip(order[:depth], key[:depth], strict=True):
            condition &= earlier == equal
        yield condition
