"""The database: opening it, writing to it, and reading pages of rows that it renders as JSON itself.

Whatever differs between databases sits in the modules of this package and in `service.fields`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec
import peewee

from service.db.engine import Engine, Order, Unusable, reason
from service.db.postgresql import Postgresql
from service.db.sqlite import FILE_NAME, FleetingSqlite, ReadOnlySqlite, Sqlite, has_wal_reset_bug, kept_copies, sqlite3
from service.fields import Column, primary_key, row_json

__all__ = [
    "FILE_NAME",
    "FleetingSqlite",
    "Order",
    "Page",
    "Position",
    "ReadOnlySqlite",
    "Sqlite",
    "Table",
    "Unusable",
    "bulk_write",
    "close_database",
    "contains",
    "database",
    "forget_database",
    "has_wal_reset_bug",
    "is_unavailable",
    "kept_copies",
    "open_database",
    "page",
    "reason",
    "render",
    "rewrite_files",
    "settled",
    "snapshot",
    "sqlite3",
    "state",
    "write",
]

database: Any = peewee.DatabaseProxy()

TRIES = 4  # of an action that the database undid

# What libpq would take for a host or port, and tell everybody, is none of a password that was not encoded.
_ADDRESS = re.compile(r"[a-z]+://(?:[^/?#@]*@)?[^/?#@]*(?:/[^/?#@]*)?(?:\?.*)?", re.DOTALL)

Row = TypeVar("Row")
Result = TypeVar("Result")


class Table(peewee.Model):
    """A table of the one database."""

    also_accepts: ClassVar[dict[str, Any]] = {}  # what an import takes beside the columns

    @classmethod
    def path_column(cls) -> Column:
        """The column that names a row in a path."""
        return primary_key(cls)

    @classmethod
    def reach(cls, caller: Any, id: str, *above: Any) -> Any:
        """The row that a path names below the rows `above`, if the caller may reach it. Raises a Refusal."""
        raise NotImplementedError

    @classmethod
    def adopt(cls, given: dict[str, Any]) -> dict[str, Any]:
        """The columns that follow from the members of an imported record, columns as stored. Raises ValueError."""
        return {}

    @classmethod
    def unique_members(cls) -> list[str]:
        """The columns that no two rows may share; of several that are unique together, the last."""
        alone = [column.name for column in cls._meta.sorted_fields if column.unique]
        together = [index._expressions[-1].name for index in cls._meta.indexes if getattr(index, "_unique", False)]
        return alone + together

    class Meta:
        database = database
        legacy_table_names = False


def connect(folder: Path, url: str = "", replica: str = "", *, writable: bool = True) -> Engine:
    """The database at a URL, or without one `service.db` in a folder; maybe to look at it only. Raises Unusable."""
    if url.startswith(("postgresql://", "postgres://")):
        if not all(_ADDRESS.fullmatch(one) for one in filter(None, (url, replica))):
            raise Unusable("in an address of a database, a password is percent-encoded: its @ is %40, its / is %2F")
        return Postgresql(url, replica, writable=writable)
    if url or replica:
        raise Unusable("--database and --replica are addresses that begin with postgresql://, and a replica needs both")
    return Sqlite(folder) if writable else ReadOnlySqlite(folder)


def open_database(folder: Path, url: str = "", replica: str = "", *, writable: bool = True) -> None:
    """From now on, use the database at a URL, or `service.db` in a folder. Raises Unusable."""
    close_database()
    database.initialize(connect(folder, url, replica, writable=writable))


def close_database() -> None:
    """Close this thread's connection."""
    if database.obj is not None:
        database.disconnect()


def forget_database() -> None:
    """Close this thread's connection, and hold no folder any longer."""
    close_database()
    database.initialize(None)


def write(*things: str) -> AbstractContextManager[None]:
    """A transaction in which nobody else writes to `things`: use it for every read-then-write, and name what is read.

    A thing is an identifier, mostly of the user or the chat session that the rows belong to. Without one, the whole
    database is meant, and all other writers wait. Nothing slow inside: no hashing, no picture work, no calls out.
    """
    return database.write(*things)  # type: ignore[no-any-return]


def bulk_write() -> AbstractContextManager[None]:
    """A `write()` of very many rows in any order; the caller checks, at its end, that no reference leads nowhere."""
    return database.bulk_write()  # type: ignore[no-any-return]


def snapshot() -> AbstractContextManager[None]:
    """Several reads that see one state of the database."""
    return database.snapshot()  # type: ignore[no-any-return]


def state() -> Any:
    """Something that differs when another connection has committed anything since."""
    return database.state()


def rewrite_files() -> None:
    """Write the database anew, so that no byte of what was emptied stays in its files."""
    database.rewrite()


def is_unavailable(error: BaseException | None) -> bool:
    """Whether an error of the database means «not now», and not a fault of ours."""
    return bool(database.is_unavailable(error))


def settled(action: Callable[[], Result]) -> Result:
    """What an action gives, begun again, a few times, if the database undid it since it crossed another."""
    for _ in range(TRIES - 1):
        try:
            return action()
        except peewee.DatabaseError as error:
            if database.in_transaction() or not database.is_conflict(error):
                raise
    return action()


def render(query: "peewee.ModelSelect[Any]", *, own: bool = False) -> msgspec.Raw:
    """The first row of a query as the JSON object of its table, rendered by the database; there must be one."""
    (row,) = query.select(peewee.SQL(row_json(query.model, own=own))).tuples().get()
    return msgspec.Raw(row.encode())


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
    query: "peewee.ModelSelect[Any]", order: Sequence[Order], after: Position, limit: int, **counts: int
) -> Page[Any]:
    """Rows of `query` in `order` after a position, at most `limit`, rendered in one statement that returns one row.

    The columns of `order` must be members of the document; together they are unique. Rows are parted by a newline,
    which JSON text never holds, so the last one is found without parsing the others.
    """
    if after.nowhere:
        return Page(b"[]", (), **counts)
    keys = database.page_keys(order)
    rows = query.select(peewee.SQL(row_json(query.model)).alias("row"), *keys).limit(limit + 1)
    rows = rows.order_by(*(part.sql() for part in order))
    parts = [rows.where(beyond).sql() for beyond in _beyond(order, after.key)] or [rows.sql()]
    joined = database.join_rows([sql for sql, _ in parts], order, limit + 1)
    with database.reading():
        found, text = database.execute_sql(joined, [value for _, values in parts for value in values]).fetchone()
    if found <= limit:
        return Page(f"[{text or ''}]".encode(), (), **counts)
    text = text[: text.rindex(",\n")]  # the one row too many only told that more follow
    last = msgspec.json.decode(text[text.rfind("\n") + 1 :])
    return Page(f"[{text}]".encode(), tuple(last[part.column.name] for part in order), **counts)


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


def contains(column: Any, text: str) -> Any:
    """The condition that a column holds a text somewhere, letter for letter."""
    return database.contains(column, text)
