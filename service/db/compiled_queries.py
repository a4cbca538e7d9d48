"""Queries that are compiled once. Peewee takes several times as long to generate SQL as SQLite to execute it.

    @compiled
    def messages_of(session_id: str, *, staff: bool) -> Query:
        return Message.select().where(Message.chat_session_id == session_id, ...)

Such a function is called once, with placeholders for its values. The SQL of the query that it returns is cached, and
later calls only bind their values. So the function must pass its values on without inspecting them. Parameters that it
inspects are keyword-only: each combination of them has a separate query.
"""

import functools
import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeAlias, TypeVar

import peewee

from service.db.engine import Row, database
from service.fields import SqlValue

Parameters = ParamSpec("Parameters")

Query: TypeAlias = peewee.Query

# Peewee gives no types for these.
BuiltQuery: TypeAlias = Any  # of one of several classes without a common type, or a list
Context: TypeAlias = Any  # the statement that is being generated

Sql = TypeVar("Sql")
Statement = tuple[str, Sequence[object]]  # SQL and its values
Statements = tuple[list[tuple[str, int]], Sequence[object]]  # each with the number of its values; and all values

_cache: dict[Hashable, tuple[Any, Sequence[object]]] = {}


class Placeholder(peewee.Node):
    """The position of a value in a compiled query. Values are bound as stored: no column converts them."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __sql__(self, ctx: Context) -> Context:
        ctx._values.append(self)  # as Peewee does for a plain value
        return ctx.literal(database.param)


def literal(number: int) -> peewee.SQL:
    """Return a constant limit as part of the SQL, so that the query planner knows it."""
    return peewee.SQL(str(number))


@dataclass(slots=True)
class CompiledQuery:
    """A compiled query with the values of one call."""

    build: Callable[..., BuiltQuery]
    values: tuple[object, ...]
    variant: tuple[tuple[str, Hashable], ...]  # the keyword arguments

    def statement(
        self, use: Hashable, make: Callable[..., tuple[Sql, Sequence[object]]], *more: object
    ) -> tuple[Sql, Sequence[object]]:
        """Return the statement that `make` returns for the query and `more` values. Cached for each `use`."""
        key = (database.obj.kind, self.build, len(self.values), self.variant, use)
        cached = _cache.get(key)
        if cached is None:
            placeholders = [Placeholder(number) for number in range(len(self.values) + len(more))]
            query = self.build(*placeholders[: len(self.values)], **dict(self.variant))
            cached = _cache[key] = make(query, *placeholders[len(self.values) :])
        given = self.values + more
        return cached[0], [given[value.number] if type(value) is Placeholder else value for value in cached[1]]

    def row(self) -> Row:
        """Return the first row as a tuple, or None."""
        return database.obj.execute_sql(*self.statement("as built", _sql)).fetchone()

    def value(self) -> SqlValue:
        """Return the first column of the first row, or None."""
        row = self.row()
        return row and row[0]

    def rows(self) -> list[Row]:
        """Return all rows as tuples."""
        return list(database.obj.execute_sql(*self.statement("as built", _sql)).fetchall())

    def run(self) -> int:
        """Execute a statement that writes. Returns the number of rows changed."""
        return int(database.obj.rows_affected(database.obj.execute_sql(*self.statement("as built", _sql))))

    def run_all(self) -> None:
        """Execute a list of statements that write, in order."""
        texts, values = self.statement("all", _all)
        remaining = iter(values)
        for sql, number in texts:
            database.obj.execute_sql(sql, [*itertools.islice(remaining, number)])

    def count_statement(self) -> Statement:
        """Return the statement that counts the rows."""
        return self.statement("count", _count)

    def count(self) -> int:
        """Return the number of rows."""
        return int(database.obj.execute_sql(*self.count_statement()).fetchone()[0])


def compiled(build: Callable[Parameters, Query | list[Query]]) -> Callable[Parameters, CompiledQuery]:
    """Decorate a function that builds a query. Its calls return the compiled query with their values."""

    @functools.wraps(build)
    def call(*values: Parameters.args, **variant: Parameters.kwargs) -> CompiledQuery:
        return CompiledQuery(build, values, tuple(variant.items()))

    return call


def pad_values(values: list[SqlValue]) -> list[SqlValue]:
    """Return values for an IN, the last repeated up to the next power of two, so that few queries are compiled."""
    return values + values[-1:] * ((1 << (len(values) - 1).bit_length()) - len(values))


def _sql(query: Query) -> Statement:
    sql, values = query.sql()
    return sql, values


def _all(queries: Sequence[Query]) -> Statements:
    statements = [query.sql() for query in queries]
    return [(sql, len(values)) for sql, values in statements], [value for _, values in statements for value in values]


def _count(query: peewee.Select) -> Statement:
    return _sql(query.order_by().select(peewee.fn.count(peewee.SQL("*"))))
