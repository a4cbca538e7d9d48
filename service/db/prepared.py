"""Queries that are built once: writing the SQL takes Peewee several times as long as SQLite to answer it.

    @prepared
    def messages_of(session_id: str, *, staff: bool) -> Any:
        return Message.select().where(Message.chat_session_id == session_id, ...)

Such a function is called once, and then with places for its values; what it builds is kept, and filled in ever after.
So it passes its values on and never looks at them. Whatever it looks at is a keyword: there is a query for each.

A limit is `fixed` or a `sum_of`: SQLite plans a query anew whenever it is given the number that is its limit, which
takes longer than to answer most of them.
"""

import functools
import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec

import peewee

from service.db.engine import database

Parameters = ParamSpec("Parameters")

Made = tuple[Any, Sequence[Any]]  # SQL, or several texts and how many values each takes; the values

_statements: dict[Hashable, Made] = {}


class Place(peewee.Node):
    """A value that a query will be given; as it is stored, since no column converts it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __sql__(self, ctx: Any) -> Any:
        ctx._values.append(self)  # what Peewee does with a value that is none of its nodes
        return ctx.literal(database.param)


def fixed(number: int) -> Any:
    """A number as a limit that is the same each time: it stands in the SQL."""
    return peewee.SQL(str(number))


def sum_of(number: Any) -> Any:
    """A number as a limit that may be another one each time."""
    return peewee.NodeList((number, peewee.SQL("+ 0")))


@dataclass(slots=True)
class Prepared:
    """A query and its values of today."""

    build: Callable[..., Any]
    values: tuple[Any, ...]
    shape: tuple[tuple[str, Hashable], ...]

    def made(self, use: Hashable, make: Callable[..., Made], *more: Any) -> Made:
        """What `make` makes of the query, and of `more` values; it is called once for each `use` of the query."""
        key = (database.obj.kind, self.build, len(self.values), self.shape, use)
        known = _statements.get(key)
        if known is None:
            places = [Place(number) for number in range(len(self.values) + len(more))]
            query = self.build(*places[: len(self.values)], **dict(self.shape))
            known = _statements[key] = make(query, *places[len(self.values) :])
        given = self.values + more
        return known[0], [given[value.number] if type(value) is Place else value for value in known[1]]

    def row(self) -> Any:
        """The first row, as a tuple; None where there is none."""
        return database.obj.execute_sql(*self.made("as built", _sql)).fetchone()

    def value(self) -> Any:
        """The first column of the first row; None where there is none."""
        row = self.row()
        return row and row[0]

    def rows(self) -> list[Any]:
        """All rows, as tuples."""
        return list(database.obj.execute_sql(*self.made("as built", _sql)).fetchall())

    def run(self) -> int:
        """Write; the number of rows that were."""
        return int(database.obj.rows_affected(database.obj.execute_sql(*self.made("as built", _sql))))

    def run_all(self) -> None:
        """Write what several queries say, one after the other."""
        texts, values = self.made("all", _all)
        given = iter(values)
        for sql, number in texts:
            database.obj.execute_sql(sql, [*itertools.islice(given, number)])

    def counting(self) -> Made:
        """SQL that counts the rows."""
        return self.made("count", _count)

    def count(self) -> int:
        """How many rows there are."""
        return int(database.obj.execute_sql(*self.counting()).fetchone()[0])


def prepared(build: Callable[Parameters, Any]) -> Callable[Parameters, Prepared]:
    """A function whose query is built once; calls of it give the query with their values."""

    @functools.wraps(build)
    def prepare(*values: Parameters.args, **shape: Parameters.kwargs) -> Prepared:
        return Prepared(build, values, tuple(shape.items()))

    return prepare


def padded(values: list[Any]) -> list[Any]:
    """A list for an IN, the last value repeated until there are a power of two: so there are few queries for any."""
    return values + values[-1:] * ((1 << (len(values) - 1).bit_length()) - len(values))


def _sql(query: Any) -> Made:
    sql, values = query.sql()
    return sql, values


def _all(queries: Sequence[Any]) -> Made:
    made = [query.sql() for query in queries]
    return [(sql, len(values)) for sql, values in made], [value for _, values in made for value in values]


def _count(query: Any) -> Made:
    return _sql(query.order_by().select(peewee.fn.count(peewee.SQL("*"))))
