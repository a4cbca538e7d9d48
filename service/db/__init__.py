"""The database: engines, transactions, compiled queries, and pages of rows that the database renders as JSON.

Only the modules of this package and `service.fields` contain code for one engine; see `engine` for their differences.

Transactions:

- A single statement needs none: it commits automatically. A single read sees the latest committed state.
- Code that reads rows and then writes depending on them does both inside `write(...)`. Its arguments are the names of
  the locks to acquire: the identifiers of the users or chat sessions that the rows belong to, so that no concurrent
  writer changes these rows. SQLite always excludes all other writers; PostgreSQL excludes those with a common name.
- A nested `write` is a savepoint: an exception rolls back this part only.
- Several reads that must see the same state are inside `snapshot()`.
- Only database statements run inside a transaction: no hashing, no decoding of pictures, no calls to other services.
  All writers of SQLite wait for it.
- Code may be executed twice, so it has no other side effects before its transaction is committed: `NeedsThread` ends a
  request on the event loop, which a thread then executes again; `retry_on_conflict` repeats an action that PostgreSQL
  has rolled back; and after a failed group commit, its requests are executed again, one by one.
"""

import functools
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

import msgspec
import peewee

from service.db.compiled_queries import CompiledQuery, Query, Statement, compiled, literal, pad_values
from service.db.engine import (
    HTML_PAGE_BYTES,
    DatabaseUnusable,
    Engine,
    NeedsThread,
    Order,
    Row,
    database,
    limit_pages,
    reason,
)
from service.db.list_pages import Page, Position, RenderedRow, page, rendered_row, row_json
from service.db.postgresql import Postgresql
from service.db.sqlite import (
    FILE_NAME,
    DatabaseMissing,
    InMemorySqlite,
    ReadOnlySqlite,
    Sqlite,
    SqliteDamage,
    SqliteError,
    lock_for_serving,
    open_file,
    reporting_reads,
    saved_copies,
)
from service.db.sqlite import (
    VERSION as SQLITE_VERSION,
)
from service.errors.base import ApiError
from service.fields import ActiveFlag, Column, SqlValue, WireType, primary_key

__all__ = [
    "CompiledQuery",
    "DatabaseUnusable",
    "FILE_NAME",
    "HTML_PAGE_BYTES",
    "InMemorySqlite",
    "NeedsThread",
    "Order",
    "Page",
    "Position",
    "Query",
    "ReadOnlySqlite",
    "RenderedRow",
    "Row",
    "SQLITE_VERSION",
    "Sqlite",
    "SqliteDamage",
    "SqliteError",
    "Table",
    "bulk_write",
    "change_marker",
    "close_database",
    "compiled",
    "contains",
    "database",
    "group_commit",
    "inline_read",
    "inline_snapshot",
    "is_match",
    "is_unavailable",
    "limit_pages",
    "listening",
    "literal",
    "lock_for_serving",
    "open_database",
    "open_file",
    "pad_values",
    "page",
    "read_matches",
    "read_or",
    "reason",
    "reconnect_after",
    "release_database",
    "render",
    "rendered_row",
    "reporting_reads",
    "retry_on_conflict",
    "rewrite_files",
    "row_json",
    "saved_copies",
    "send_signal",
    "search_pattern",
    "snapshot",
    "write",
]

MAX_ATTEMPTS = 4  # to execute an action after conflicts

# A URL with at most one @ before the path. libpq would read a password that is not percent-encoded as a part of the
# host or port, and include it in error messages.
_ADDRESS = re.compile(r"[a-z]+://(?:[^/?#@]*@)?[^/?#@]*(?:/[^/?#@]*)?(?:\?.*)?", re.DOTALL)

Result = TypeVar("Result")

# The classes of these are declared in `service.models`; each table declares which it accepts.
Caller: TypeAlias = Any
PathRow: TypeAlias = Any


@compiled
def _insert(*values: SqlValue, table: "type[Table]") -> Query:
    return table.insert(dict(zip(table._meta.sorted_fields, values, strict=True)))


@compiled
def _by_identifier(id: str, *, table: "type[Table]") -> Query:
    return table.select().where(primary_key(table) == id)


class Table(peewee.Model):
    """Base class of all tables."""

    also_accepts: ClassVar[dict[str, WireType]] = {}  # further members of an imported record, with their types
    get_for_errors: ClassVar[tuple[type[ApiError], ...]] = ()  # the errors that `get_for` raises

    @classmethod
    def find(cls, id: str) -> "Self | None":
        """Return the row with an identifier, or None."""
        row = _by_identifier(id, table=cls).row()
        return None if row is None else cls.from_row(row)

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Return an instance with the values of all columns, in the order of the table."""
        found = cls(__no_default__=True)
        found.__data__ = dict(zip(_names(cls), row, strict=True))
        for column in _converted(cls):
            found.__data__[column.name] = column.python_value(found.__data__[column.name])
        return found

    @classmethod
    def get_by_id(cls, pk: str) -> Self:
        """Return the row with an identifier. Raises peewee.DoesNotExist."""
        found = cls.find(pk)
        if found is None:
            raise peewee.DoesNotExist
        return found

    @classmethod
    def create(cls, **columns: object) -> Self:
        """Insert and return a row. Columns that are not given get their defaults."""
        created = cls(__no_default__=True)
        created.__data__ = cls._meta.get_default_dict() | columns
        created.save(force_insert=True)
        return created

    def save(self, force_insert: bool = False, only: Sequence[peewee.Field] | None = None) -> int:
        """Write the row, or insert it by a compiled statement. Returns the number of rows written."""
        if not force_insert:
            return int(super().save(only=only))
        values = [column.db_value(self.__data__.get(column.name)) for column in self._meta.sorted_fields]
        vars(self)["_dirty"].clear()
        return _insert(*values, table=type(self)).run()

    @classmethod
    def path_column(cls) -> Column:
        """Return the column whose value identifies a row in a path."""
        return primary_key(cls)

    @classmethod
    def get_for(cls, caller: Caller, id: str, *above: PathRow) -> Self:
        """Return the row with an identifier of a path, below the rows `above`. Raises ApiError without access."""
        raise NotImplementedError

    @classmethod
    def from_import(cls, given: dict[str, SqlValue]) -> dict[str, SqlValue]:
        """Return columns of an imported record that are derived from its members, as stored. Raises ValueError."""
        return {}

    @classmethod
    def reindexing(cls, identifiers: Sequence[str]) -> AbstractContextManager[None]:
        """Return a block that writes rows without `save`. At its end, data derived from them is updated."""
        return nullcontext()

    @classmethod
    def unique_members(cls) -> list[str]:
        """Return the unique columns; of several columns that are unique together, the last."""
        single = [column.name for column in cls._meta.sorted_fields if column.unique]
        together = [index._expressions[-1].name for index in cls._meta.indexes if getattr(index, "_unique", False)]
        return single + together

    class Meta:
        database = database
        legacy_table_names = False


def connect(folder: Path, url: str = "", replica: str = "", *, writable: bool = True, create: bool = False) -> Engine:
    """Return the engine for the database at a URL, or without a URL for `service.db` in a folder.

    A missing folder or file is created only with `create`. Raises DatabaseUnusable.
    """
    if url.startswith(("postgresql://", "postgres://")):
        if not all(_ADDRESS.fullmatch(address) for address in filter(None, (url, replica))):
            raise DatabaseUnusable("in the URL of a database, the password must be percent-encoded: @ as %40, / as %2F")
        return Postgresql(url, replica, writable=writable)
    if url or replica:
        raise DatabaseUnusable(
            "--database and --replica must be URLs that begin with postgresql://; --replica requires --database"
        )
    return Sqlite(folder, create=create) if writable else ReadOnlySqlite(folder)


def open_database(
    folder: Path, url: str = "", replica: str = "", *, writable: bool = True, create: bool = False
) -> None:
    """Open the database at a URL, or `service.db` in a folder, for the whole process.

    Without `create`, nothing is created: a database that is missing or has no tables raises DatabaseUnusable.
    """
    close_database()
    database.initialize(connect(folder, url, replica, writable=writable, create=create))
    if not create and not database.get_tables():
        raise DatabaseUnusable(f"there are no tables in {database.name}") if url else DatabaseMissing(folder)


def close_database() -> None:
    """Close this thread's connection."""
    if database.obj is not None:
        database.disconnect()


def release_database() -> None:
    """Close this thread's connection, and release the lock on the data folder."""
    close_database()
    database.initialize(None)


def write(*names: str) -> AbstractContextManager[None]:
    """Return a transaction that excludes other writers with a common name.

    Required to read rows and write depending on them.

    A name is an identifier, usually of the user or chat session that the rows belong to. Without names, all other
    writers are excluded. Only database statements may run inside; see the rules at the top of this module.
    """
    return database.obj.write(*names)


def bulk_write() -> AbstractContextManager[None]:
    """Return a `write()` of very many rows in any order.

    Before its end, the caller checks that all references are valid.
    """
    return database.obj.bulk_write()


def snapshot() -> AbstractContextManager[None]:
    """Return a read transaction: all its reads see the same state of the database."""
    return database.obj.snapshot()


def inline_read() -> AbstractContextManager[None]:
    """Read on the event loop. A write, or a read that exceeds the time budget, raises NeedsThread."""
    return database.obj.inline_read()


def inline_snapshot() -> AbstractContextManager[None]:
    """Open one snapshot for several `inline_read` blocks of this thread, so that the read lock is acquired once."""
    return database.obj.inline_snapshot()


def group_commit() -> AbstractContextManager[Callable[[], None]]:
    """Return a transaction for the writes of several requests; each outermost `write()` in it is a savepoint.

    Yields a function that raises TransactionLost if the database has rolled back the transaction on an error.
    """
    return database.obj.group_commit()


def checkpointing() -> AbstractContextManager[None]:
    """Checkpoint the journal in a thread until the end of the block, so that no commit waits for it.

    Affects connections that are opened inside the block, of this process.
    """
    return database.obj.checkpointing()


def send_signal(text: str) -> None:
    """Send a short text to all processes of the server; on PostgreSQL, of all servers. It is not stored."""
    database.obj.send_signal(text)


def listening() -> AbstractContextManager[Callable[[], list[str]]]:
    """Give a function that returns the texts that were sent since its last call."""
    return database.obj.listening()


def change_marker() -> object:
    """Return a value that changes when another connection commits."""
    return database.obj.change_marker()


def rewrite_files() -> None:
    """Rewrite the database, so that its files contain no deleted data."""
    database.obj.rewrite()


def is_unavailable(error: BaseException | None) -> bool:
    """Return whether an error means that the database is unavailable, rather than a bug."""
    return database.obj.is_unavailable(error)


def read_or(default: Result, read: Callable[[], Result]) -> Result:
    """Return what `read` returns, or `default` while the database is unavailable."""
    try:
        return read()
    except Exception as error:
        reconnect_after(error)
        if not is_unavailable(error):
            raise
        return default


def reconnect_after(error: BaseException) -> None:
    """Reconnect this thread after its transaction, if the error may persist in the connection.

    Raises NeedsThread on the event loop, where the cause may be an interrupted read.
    """
    database.reconnect_after(error)
    if database.is_reading_inline():
        raise NeedsThread


def retry_on_conflict(action: Callable[[], Result]) -> Result:
    """Return the result of an action, retried on serialization failures: at most MAX_ATTEMPTS attempts in all."""
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return action()
        except peewee.DatabaseError as error:
            if database.in_transaction() or not database.is_conflict(error):
                raise
    return action()


def render(
    table: type[Table], id: str, *, own: bool = False, row: Callable[[], RenderedRow] | None = None
) -> msgspec.Raw:
    """Return the JSON object of a row, rendered by the database; `row` returns other SQL.

    Raises peewee.DoesNotExist.
    """

    def make(query: peewee.Select) -> Statement:
        statement: Statement = query.select(row() if row else peewee.SQL(row_json(table, own=own))).sql()
        return statement

    query = _by_identifier(id, table=table)
    statement = (
        query.statement(("rendered", own, row), make) if _is_constant(table) else make(query.build(id, table=table))
    )
    found = database.execute_sql(*statement).fetchone()
    if found is None:
        raise peewee.DoesNotExist
    return msgspec.Raw(found[0].encode())


@functools.cache
def _names(table: type[Table]) -> list[str]:
    """Return the names of the columns, in the order of the table."""
    return [column.name for column in table._meta.sorted_fields]


@functools.cache
def _converted(table: type[Table]) -> list[Column]:
    """Return the columns whose values differ between Python and the database."""
    plain = (peewee.Field.adapt, peewee.Field.python_value)
    return [column for column in table._meta.sorted_fields if (type(column).adapt, type(column).python_value) != plain]


@functools.cache
def _is_constant(table: type[Table]) -> bool:
    """Return whether the SQL that renders a row is independent of the time, so that it can be cached."""
    return not any(isinstance(value, ActiveFlag) for value in vars(table).values())


def contains(column: peewee.Node, text: object) -> peewee.Node:
    """Return the condition that a column contains the text of a `search_pattern`; case-sensitive."""
    return database.obj.contains(column, text)


def read_matches(read: Callable[[str], Result], column: peewee.Field, text: str, *, covered: bool) -> Result:
    """Read a page of the rows whose column contains a text.

    `read` gets a query for `is_match`, or "" to read the list in its order. `covered` tells whether an index in the
    order of the list contains the column.
    """
    return database.obj.read_matches(read, column, text, covered=covered)


def is_match(table: type[Table], expression: object) -> peewee.Node:
    """Return the condition that a row of a table is found by an index query of `read_matches`."""
    return database.obj.is_match(table, expression)


def search_pattern(text: str) -> str:
    """Return the argument of `contains` for a text."""
    return database.obj.search_pattern(text)
