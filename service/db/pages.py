"""Pages of lists: rows that the database renders as JSON itself, from a position on, in one statement."""

import functools
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import peewee

from service.db.engine import Order, database, page_bytes
from service.db.prepared import Made, Prepared, sum_of
from service.fields import row_form

Row = TypeVar("Row")


def row_json(table: type[peewee.Model], *, own: bool = False, export: bool = False) -> str:
    """SQL that renders one row of a table as a JSON object."""
    return str(database.fill_in(*row_form(table, own=own, export=export)))


class Position(NamedTuple):
    """Where a page begins: after the row with this key; `number` counts the pages of the walk from 1."""

    number: int = 1
    key: tuple[Any, ...] = ()
    nowhere: bool = False  # nothing lies behind this position: what an unreadable cursor becomes where no 400 is


class Page(Generic[Row]):
    """A page of a list: a finished JSON array, the position of the next page, and the counts for `meta`."""

    def __init__(self, rows: bytes, next_key: tuple[Any, ...], **counts: int) -> None:
        self.rows = msgspec.Raw(rows)
        self.next_key = next_key
        self.counts = counts


def page(
    query: "peewee.ModelSelect[Any] | Prepared",
    order: Sequence[Order],
    after: Position,
    limit: int,
    *,
    goes_on: bool = True,
    **counts: int | Prepared,
) -> Page[Any]:
    """Rows of `query` in `order` after a position, at most `limit`, rendered in one statement that returns one row.

    A page ends before a row with which it would have more than `page_bytes`; it has at least one row.

    The columns of `order` must be members of the document, unless the list never `goes_on` after this page; together
    they are unique. Rows are parted by a newline, which JSON text never holds, so the last one is found without parsing
    the others. Queries among `counts` are counted in the same statement, and so at the same moment.
    """
    known = {name: count for name, count in counts.items() if isinstance(count, int)}
    asked = {name: count for name, count in counts.items() if isinstance(count, Prepared)}
    if after.nowhere:
        return Page(b"[]", (), **known, **{name: count.count() for name, count in asked.items()})

    def make(query: Any, byte_limit: Any, *given: Any) -> Made:
        parts, values = _parts(query, order, *given)
        return database.join_rows(parts, order), [byte_limit, *values]

    engine = database.obj
    given = (engine.byte_limit(limit + 1), *after.key, limit + 1)
    use = ("page", tuple(order), len(given))
    sql, values = query.made(use, make, *given) if isinstance(query, Prepared) else make(query, *given)
    for count in asked.values():
        counting, more = count.counting()
        sql, values = _with_count(sql, counting), [*more, *values]
    with engine.reading():
        row = engine.fetch_joined(sql, values)
    if row is None:
        with engine.snapshot():
            row = *_join_one_by_one(query, order, *given[1:]), *(count.count() for count in asked.values())
    found, text, fit, *numbers = row
    known |= dict(zip(asked, numbers, strict=True))
    if found <= limit and fit == found:
        return Page(b"[%b]" % (text or b""), (), **known)
    if fit > limit:
        text = text[: text.rindex(b",\n")]  # the one row too many only told that more follow
    if not goes_on:
        return Page(b"[%b]" % text, (), **known)
    last = msgspec.json.decode(text[text.rfind(b"\n") + 1 :], type=_key_of(*(part.column.name for part in order)))
    return Page(b"[%b]" % text, msgspec.structs.astuple(last), **known)


def _parts(query: Any, order: Sequence[Order], *given: Any) -> Made:
    """SQL for the rows of each part of a page after a key, and their values; the last one given is how many."""
    *key, most = given
    keys = database.page_keys(order)
    rows = query.select(peewee.SQL(row_json(query.model)).alias("row"), *keys).limit(sum_of(most))
    rows = rows.order_by(*(part.sql() for part in order))
    parts = [rows.where(beyond).sql() for beyond in _beyond(order, key)] or [rows.sql()]
    values = [value for _, values in parts for value in values]
    return [sql for sql, _ in parts], values + [most] * (len(parts) > 1)


def _join_one_by_one(query: Any, order: Sequence[Order], *given: Any) -> tuple[int, bytes, int]:
    """What `Engine.join_rows` selects, of rows that are fetched one by one, as far as they fit and one more."""

    def make(query: Any, *given: Any) -> Made:
        return _parts(query, order, *given)

    use = ("parts of a page", tuple(order), len(given))
    parts, values = query.made(use, make, *given) if isinstance(query, Prepared) else make(query, *given)
    fitting: list[bytes] = []
    size, room = 0, page_bytes(given[-1])
    with closing(database.fetch_each(parts, order, values)) as rows:
        for row in rows:
            size += len(row) + 2
            if fitting and size > room:
                return len(fitting) + 1, b",\n".join(fitting), len(fitting)
            fitting.append(row)
    return len(fitting), b",\n".join(fitting), len(fitting)


@functools.lru_cache(256)
def _with_count(page: str, count: str) -> str:
    """SQL for a page and one count more. Of texts that are there for long, so that they are told apart at a glance."""
    return f"SELECT page.*, ({count}) FROM ({page}) AS page"


@functools.cache
def _key_of(*names: str) -> type[msgspec.Struct]:
    """The members of a row that a position consists of; reading them passes over all others."""
    return msgspec.defstruct("Key", names)


def _beyond(order: Sequence[Order], key: Sequence[Any]) -> Iterator[Any]:
    """The conditions that together mean «sorts after `key`», the nearest rows first.

    One for each column: equal in all columns before it, and beyond in this one. Apart, each is a single range of an
    index, whatever the directions; joined by OR they would not be.
    """
    for depth in range(len(key) - 1, -1, -1):
        (column, descending, _), value = order[depth], key[depth]
        beyond = column < value if descending else column > value
        for (above, *_), same in zip(order[:depth], key[:depth], strict=True):
            beyond &= above == same
        yield beyond
