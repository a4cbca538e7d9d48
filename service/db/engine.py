"""The interface of a database engine: what SQLite and PostgreSQL have to provide beyond Peewee.

Each engine has a separate module:

    sqlite         One file, with one writer at a time. Reads may run on the event loop, within a time budget
                   (`reads_inline`), because in WAL mode readers do not wait for writers. Writes of several requests may
                   share a transaction (`groups_writes`), because each would wait for the others anyway.
    postgresql     A server that several instances share. Statements wait for the network, so each runs in a thread, and
                   each write has a separate transaction. Writers lock only the names that they pass. Lists may be read
                   from a replica.
"""

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import peewee

from service.db import signals

PAGE_BYTES = 4 * 1024 * 1024  # maximum size of a page; the largest row that the API can write has half of it
SMALL_PAGE_BYTES = 1024 * 1024  # minimum size limit of a page, however few rows it is limited to
ROW_BYTES = 20 * 1024  # size limit of larger pages, for each row of their limit
HTML_PAGE_BYTES = 256 * 1024  # maximum size of each list on an HTML page, which is rendered in Python

Rows = Generator[bytes, None, None]
Result = TypeVar("Result")

# Peewee gives no types for the objects of the database drivers.
Connection: TypeAlias = Any
Cursor: TypeAlias = Any
Row: TypeAlias = Any  # a tuple, or None after the last row

exceptions = peewee.__exception_wrapper__  # type: ignore[attr-defined]


class DatabaseUnusable(Exception):
    """The database cannot be used. The message is a sentence for the operator."""


class NeedsThread(BaseException):
    """Ends a request on the event loop that writes or exceeds its time budget. A thread executes it again.

    Not an `Exception`, so that handlers of exceptions do not turn it into an error response.
    """


class TransactionLost(peewee.OperationalError):
    """The database has rolled back the transaction on an error, with all statements so far."""


def reason(error: BaseException) -> str:
    """Return the first line of a database's error message, without the values of rows that it may contain."""
    if ("no transaction is active" in str(error) or isinstance(error, TransactionLost)) and error.__context__:
        return reason(error.__context__)  # the error after which SQLite has rolled back the transaction
    text = str(error if isinstance(error, OSError) or not error.args else error.args[0])
    return text.partition("\n")[0].partition(" with text ")[0]


class _PageLimit(threading.local):
    size = PAGE_BYTES


_page_limit = _PageLimit()


@contextmanager
def limit_pages(size: int) -> Iterator[None]:
    """Limit the pages that this thread reads in the block to `size` bytes. Of nested blocks, the innermost applies."""
    outer = _page_limit.size
    _page_limit.size = size
    try:
        yield
    finally:
        _page_limit.size = outer


def page_bytes(rows: int) -> int:
    """Return the maximum size of a page that is limited to a number of rows, in bytes."""
    return min(max(rows * ROW_BYTES, SMALL_PAGE_BYTES), _page_limit.size)


class Order(NamedTuple):
    """A column of a sort order."""

    column: peewee.Field
    descending: bool = False
    # Write the position of nulls into the SQL, although the column has none. The index of the list is declared with
    # nulls first, so PostgreSQL uses no other index; see migration step 1.
    explicit_nulls: bool = False

    @property
    def direction(self) -> str:
        words = ("DESC", "NULLS LAST") if self.descending else ("ASC", "NULLS FIRST")
        return " ".join(words[: 1 + self.explicit_nulls])

    def sql(self) -> peewee.Ordering:
        """Return the order for Peewee. The index is read in both directions, so the position of nulls depends on it."""
        nulls = ("last" if self.descending else "first") if self.explicit_nulls else None
        ordering: peewee.Ordering = (self.column.desc if self.descending else self.column.asc)(nulls=nulls)
        return ordering


class _Savepoint(peewee._savepoint):
    """A savepoint with a constant name, so that its statements are prepared once.

    The name refers to the latest savepoint with it, so a savepoint must be released after a rollback to it.
    """

    def rollback(self, begin: bool = False) -> None:
        super().rollback(begin=False)
        self.commit(begin=False)


if TYPE_CHECKING:

    class _PeeweeDatabase(peewee.Database):
        """The base that every implementation has in addition, with the types that Peewee does not give."""

        def execute_sql(self, sql: str, params: Sequence[object] | None = None) -> Cursor: ...

else:
    _PeeweeDatabase = object


class Engine(_PeeweeDatabase):
    """The interface of a database. An implementation also has one of Peewee's database classes as a base."""

    kind: ClassVar[str]  # the name of the engine, for example in statements of migrations for one engine
    reads_inline: ClassVar[bool] = False  # whether reads may run on the event loop, within a time budget
    groups_writes: ClassVar[bool] = False  # whether the writes of several requests may share a transaction
    text_aggregate: ClassVar[str]  # the SQL function that joins texts of several rows with a separator
    name: str  # the location of the data for display, without a password

    def write(self, *names: str) -> AbstractContextManager[None]:
        """Return a transaction that excludes other writers with a common name, or without names, all other writers."""
        raise NotImplementedError

    def savepoint(self) -> peewee._savepoint:
        """Return a savepoint: a part of a transaction that can be rolled back separately."""
        return _Savepoint(self, "part")

    def bulk_write(self) -> AbstractContextManager[None]:
        """Return a `write()` of very many rows. Foreign keys may be unchecked until its end; the caller checks them."""
        return self.write()

    def snapshot(self) -> AbstractContextManager[None]:
        """Return a read transaction: all its reads see the same state of the database."""
        raise NotImplementedError

    def inline_read(self) -> AbstractContextManager[None]:
        """Read on the event loop. A write, or a read that exceeds the time budget, raises NeedsThread."""
        raise NotImplementedError

    def inline_snapshot(self) -> AbstractContextManager[None]:
        """Open one snapshot for several `inline_read` blocks of this thread, so that the read lock is acquired once."""
        raise NotImplementedError

    def is_reading_inline(self) -> bool:
        """Return whether this thread is inside `inline_read`."""
        return False

    def group_commit(self) -> AbstractContextManager[Callable[[], None]]:
        """Return a transaction for the writes of several requests; each outermost `write()` in it is a savepoint.

        Yields a function that raises TransactionLost if the database has rolled back the transaction on an error.
        """
        raise NotImplementedError

    def checkpointing(self) -> AbstractContextManager[None]:
        """Checkpoint the journal in a thread until the end of the block, so that no commit waits for it."""
        return nullcontext()

    def replica_read(self) -> AbstractContextManager[None]:
        """Return a read that a replica may execute."""
        return nullcontext()

    def is_unavailable(self, error: BaseException | None) -> bool:
        """Return whether an error means that the database is unavailable, rather than a bug."""
        raise NotImplementedError

    def reconnect_after(self, error: BaseException) -> None:
        """Reconnect this thread after its transaction, if the error may persist in the connection."""

    def is_conflict(self, error: BaseException) -> bool:
        """Return whether an error means that the transaction was rolled back, and may succeed when it is retried."""
        return False

    def format_sql(self, template: str, values: Sequence[str]) -> str:
        """Return SQL for a text with a value for each `%s`. The values are SQL and never NULL."""
        raise NotImplementedError

    def join_rows(self, parts: Sequence[str], order: Sequence[Order]) -> str:
        """Return SQL for the number of rows of all `parts` in order, the rows that fit in a page, and their number.

        The rows are bytes, joined by `,\\n`. The first value of the statement is `byte_limit`. If there are several
        parts, the last value is the maximum number of rows.
        """
        raise NotImplementedError

    def byte_limit(self, rows: int) -> int:
        """Return the first value of the statement of `join_rows`, for a page of at most `rows` rows."""
        raise NotImplementedError

    def fetch_joined(self, sql: str, values: Sequence[object]) -> Row:
        """Return the row of a statement of `join_rows`, or None if the rows must be fetched one by one."""
        return self.execute_sql(sql, values).fetchone()

    def fetch_each(self, parts: Sequence[str], order: Sequence[Order], values: Sequence[object]) -> Rows:
        """Yield the rows of all `parts` in order, each fetched when it is needed."""
        raise NotImplementedError

    def byte_length(self, column: peewee.Field) -> peewee.Node:
        """Return SQL for the number of bytes of a text."""
        raise NotImplementedError

    def page_keys(self, order: Sequence[Order]) -> list[peewee.Node]:
        """Return the columns that the parts of a page must select in addition to the rows."""
        return []

    def search_pattern(self, text: str) -> str:
        """Return the argument of `contains` for a text."""
        return text

    def contains(self, column: peewee.Node, text: object) -> peewee.Node:
        """Return the condition that a column contains the text of a `search_pattern`; case-sensitive."""
        raise NotImplementedError

    def read_matches(self, read: Callable[[str], Result], column: peewee.Field, text: str, *, covered: bool) -> Result:
        """Read a page of the rows whose column contains a text.

        `read` gets a query for `is_match`, or "" to read the list in its order. `covered` tells whether an index in
        the order of the list contains the column.
        """
        return read("")

    def is_match(self, table: type[peewee.Model], expression: object) -> peewee.Node:
        """Return the condition that a row of a table is found by an index query of `read_matches`."""
        raise NotImplementedError

    def change_marker(self) -> object:
        """Return a value that changes when another connection commits."""
        raise NotImplementedError

    def send_signal(self, text: str) -> None:
        """Send a text of at most `signals.MAX_BYTES` to all processes that listen; it is not stored."""
        signals.shared.send(text)

    @contextmanager
    def listening(self) -> Iterator[Callable[[], list[str]]]:
        """Give a function that returns the texts that were sent since its last call."""
        counts = signals.shared.counts()
        yield lambda: signals.shared.received(counts)

    def stream(self, sql: str) -> Iterator[tuple[object, ...]]:
        """Yield the rows of a query without loading all of them into memory. Only inside a snapshot.

        Raises the errors of Peewee: DataError if SQLite has stored a text that is not UTF-8.
        """
        raise NotImplementedError

    def sizes(self) -> dict[str, int]:
        """Return the size of each file, and `free` for the free disk space, in bytes; empty for a remote database."""
        return {}

    def identity(self) -> tuple[object, ...]:
        """Return a value that identifies the database, whichever address it was opened with."""
        raise NotImplementedError

    def execute_many(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """Execute a statement once for each row of values."""
        with exceptions, closing(self.cursor()) as cursor:
            cursor.executemany(sql, rows)

    def bulk_insert(
        self, table: str, columns: Sequence[str], rows: Iterable[Sequence[object]], on_conflict: str = ""
    ) -> None:
        """Insert very many rows. `on_conflict` is an ON CONFLICT clause; names are quoted by the caller."""
        placeholders = ", ".join([self.param] * len(columns))
        self.execute_many(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({placeholders}) {on_conflict}", rows)

    def adapt(self, statement: str) -> str:
        """Return a statement of a migration in the dialect of this database."""
        return statement

    def prepare_schema(self) -> None:
        """Create the functions that migrations and pages use."""

    def migrating(self) -> AbstractContextManager[None]:
        """Return a block in which the schema changes."""
        return nullcontext()

    def rewrite(self) -> None:
        """Rewrite the database, so that its files contain no deleted data. Raises DatabaseUnusable."""
        raise NotImplementedError

    def save_copy(self, suffix: str) -> None:
        """Save a copy of a database file under a name with this suffix. Raises DatabaseUnusable."""

    @contextmanager
    def disconnecting(self) -> Iterator[None]:
        """Close this thread's connection at the end of the block."""
        try:
            yield
        finally:
            self.disconnect()

    def disconnect(self) -> None:
        """Close this thread's connection if it is open."""
        raise NotImplementedError


class Database(peewee.DatabaseProxy):
    """A database that is opened later. Its attributes are slower than those of `obj`, which frequent calls use."""

    obj: Engine


database = Database()  # the open database
