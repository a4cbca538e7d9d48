"""What a database has to do for us beyond Peewee: each of the two answers these questions in a module of its own."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any, ClassVar, NamedTuple

import peewee

PAGE_BYTES = 4 * 1024 * 1024  # of the rows of a page; the largest row that can be written through the API has half
SMALL_PAGE_BYTES = 1024 * 1024  # that every page may have, however few rows it is to have
ROW_BYTES = 20 * 1024  # for each row, of which a page is to have more

Rows = Generator[bytes, None, None]

exceptions = peewee.__exception_wrapper__  # type: ignore[attr-defined]

database: Any = peewee.DatabaseProxy()  # the one that is open; each look through it costs, so hot paths ask its `obj`


class Unusable(Exception):
    """The database cannot be opened; the text is one sentence for the operator."""


class NeedsThread(BaseException):
    """Ends a request on the event loop, which writes or takes long; it is begun anew in a thread of the pool.

    Not an `Exception`, so that no handler of exceptions answers it as a failure.
    """


class TransactionLost(peewee.OperationalError):
    """The database has rolled a transaction back by itself; its statements so far have not happened."""


def reason(error: BaseException) -> str:
    """The first line of what a database says, without the values of rows that it may add."""
    if ("no transaction is active" in str(error) or isinstance(error, TransactionLost)) and error.__context__:
        return reason(error.__context__)  # why SQLite has rolled it back
    text = str(error if isinstance(error, OSError) or not error.args else error.args[0])
    return text.partition("\n")[0].partition(" with text ")[0]


def page_bytes(rows: int) -> int:
    """The bytes that the rows of a page may have, of which there are to be so many."""
    return min(max(rows * ROW_BYTES, SMALL_PAGE_BYTES), PAGE_BYTES)


class Order(NamedTuple):
    """One column of a sort order."""

    column: peewee.Field
    descending: bool = False
    apart: bool = False  # the index of the list counts nulls as smallest, so that PostgreSQL takes no other; see step 1

    @property
    def direction(self) -> str:
        words = ("DESC", "NULLS LAST") if self.descending else ("ASC", "NULLS FIRST")
        return " ".join(words[: 1 + self.apart])

    def sql(self) -> Any:
        """The order as a query takes it. It goes along the index both ways, so nulls change ends with the direction."""
        nulls = ("last" if self.descending else "first") if self.apart else None
        return self.column.desc(nulls=nulls) if self.descending else self.column.asc(nulls=nulls)


class _Savepoint(peewee._savepoint):
    """A savepoint under a name that others have too, so that its statements are prepared once.

    The name means the last one that is there: one that was rolled back may not stay.
    """

    def rollback(self, begin: bool = False) -> None:
        super().rollback(begin=False)
        self.commit(begin=False)


class Engine:
    """A database as the rest of the service sees it; a base beside one of Peewee's."""

    kind: ClassVar[str]  # in migrations, the key of a statement that is meant for this one alone
    reads_inline: ClassVar[bool] = False  # whether reads may run on the event loop, within a time budget
    groups_writes: ClassVar[bool] = False  # whether the writes of several requests may share a transaction
    text_aggregate: ClassVar[str]  # the function that joins texts of several rows, given what stands between them
    name: str  # for people: where the data is, without a password

    def write(self, *things: str) -> AbstractContextManager[None]:
        """A transaction during which nobody else writes to `things`, or with none named to anything."""
        raise NotImplementedError

    def savepoint(self) -> Any:
        """A part of a transaction that is written or undone by itself."""
        return _Savepoint(self, "part")

    def bulk_write(self) -> AbstractContextManager[None]:
        """A `write()` of very many rows, whose references are checked by the caller, or late."""
        return self.write()

    def snapshot(self) -> AbstractContextManager[None]:
        """Several reads that see one state."""
        raise NotImplementedError

    def inline_read(self) -> AbstractContextManager[None]:
        """Reads on the event loop: NeedsThread is raised by a write, and by a read that takes too long."""
        raise NotImplementedError

    def is_reading_inline(self) -> bool:
        """Whether this thread is inside `inline_read`."""
        return False

    def group_commit(self) -> AbstractContextManager[Callable[[], None]]:
        """A transaction for the writes of several requests; each outermost `write()` in it is a savepoint.

        Gives a function that raises TransactionLost if the database has rolled the transaction back by itself.
        """
        raise NotImplementedError

    def reading(self) -> AbstractContextManager[None]:
        """A read that a replica may answer."""
        return nullcontext()

    def is_unavailable(self, error: BaseException | None) -> bool:
        """Whether an error means «not now» and not a fault of ours."""
        raise NotImplementedError

    def distrust_after(self, error: BaseException) -> None:
        """Open this thread's connection anew, after its transaction, if an error may last longer in it than outside."""

    def is_conflict(self, error: BaseException) -> bool:
        """Whether an error means that the transaction was undone, and would succeed if it were begun again."""
        return False

    def fill_in(self, form: str, values: Sequence[str]) -> str:
        """SQL for a text with a value, which is SQL too and never NULL, in each place of a `%s`."""
        raise NotImplementedError

    def join_rows(self, parts: Sequence[str], order: Sequence[Order]) -> str:
        """SQL for the number of rows of all `parts`, the nearest first, for those of them that fit, and their number.

        The rows are bytes, joined by `,\\n`. The first value of the statement is `byte_limit`; of several parts, the
        last one is how many rows there may be.
        """
        raise NotImplementedError

    def byte_limit(self, rows: int) -> int:
        """The first value of the statement that `join_rows` makes for at most so many rows."""
        raise NotImplementedError

    def fetch_joined(self, sql: str, values: Sequence[Any]) -> Any:
        """The row of a statement that `join_rows` made; None where the rows have to be fetched one by one."""
        return self.execute_sql(sql, values).fetchone()  # type: ignore[attr-defined]

    def fetch_each(self, parts: Sequence[str], order: Sequence[Order], values: Sequence[Any]) -> Rows:
        """The rows of all `parts`, the nearest first, none of them before it is asked for."""
        raise NotImplementedError

    def byte_length(self, column: Any) -> Any:
        """How many bytes a text has, as SQL."""
        raise NotImplementedError

    def page_keys(self, order: Sequence[Order]) -> list[Any]:
        """What the parts of a page must select beside the rows."""
        return []

    def sought(self, text: str) -> str:
        """A text as `contains` takes it."""
        return text

    def contains(self, column: Any, text: Any) -> Any:
        """The condition that a column holds a `sought` text somewhere, letter for letter."""
        raise NotImplementedError

    def clue(self, column: Any, text: str) -> str:
        """What leads to the few rows that may hold a text in a column; empty where they are many, or unknown."""
        return ""

    def among(self, table: Any, clue: Any) -> Any:
        """The condition that a row of a table is among those that a `clue` leads to."""
        raise NotImplementedError

    def state(self) -> Any:
        """Something that differs when another connection has committed anything since."""
        raise NotImplementedError

    def stream(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a long answer, never all of them in memory; inside a snapshot."""
        raise NotImplementedError

    def sizes(self) -> dict[str, int]:
        """Bytes of its files, and of what is `free` on their disk, where that can be seen from here."""
        return {}

    def identity(self) -> tuple[Any, ...]:
        """What tells this database from every other one, whichever address it was opened at."""
        raise NotImplementedError

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement once for each row, with its values."""
        with exceptions, closing(self.cursor()) as cursor:  # type: ignore[attr-defined]
            cursor.executemany(sql, rows)

    def fill(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], otherwise: str = "") -> None:
        """Insert very many rows into a table, or do `otherwise` where one is there; names are quoted already."""
        marks = ", ".join([self.param] * len(columns))  # type: ignore[attr-defined]
        self.execute_many(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) {otherwise}", rows)

    def adapt(self, statement: str) -> str:
        """A statement of a migration as this database takes it."""
        return statement

    def prepare_schema(self) -> None:
        """Whatever statements of migrations and pages expect to be there."""

    def rewrite(self) -> None:
        """Write the database anew, so that no byte of what was emptied stays. Raises Unusable."""
        raise NotImplementedError

    def keep(self, suffix: str) -> None:
        """Keep a copy under a name with this suffix, where it is ours to do so. Raises Unusable."""

    @contextmanager
    def until_closed(self) -> Iterator[None]:
        """Close this thread's connection at the end of the block."""
        try:
            yield
        finally:
            self.disconnect()

    def disconnect(self) -> None:
        """Close this thread's connection, if it is open."""
        raise NotImplementedError
