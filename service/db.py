"""The database: opening it, writing to it, and reading pages of rows that it renders as JSON itself.

Whatever differs between databases sits here and in `service.fields`.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec
import peewee

from service.fields import Column, primary_key, row_json

# Through Peewee only: two SQLite libraries that open one file in one process would drop each other's locks.
sqlite3 = peewee.sqlite3  # type: ignore[attr-defined]

FILE_NAME = "service.db"

# Order matters: nothing that touches the file comes before the busy timeout, which `timeout=` sets.
PRAGMAS = (
    ("journal_mode", "wal"),
    ("synchronous", "full"),  # an answered write survives a power cut
    ("foreign_keys", 1),
    ("journal_size_limit", 64 * 1024 * 1024),
    ("trusted_schema", 0),
    ("cell_size_check", 1),
)

database = peewee.DatabaseProxy()

Row = TypeVar("Row")


class Unusable(Exception):
    """The database cannot be opened; the text is one sentence for the operator."""


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


def has_wal_reset_bug(version: tuple[int, ...]) -> bool:
    """Whether this SQLite can corrupt a database that two connections write to (sqlite.org/wal.html#walresetbug)."""
    mended = {(3, 44): 6, (3, 50): 7}
    return version < (3, 51, 3) and version[2] < mended.get((version[0], version[1]), version[2] + 1)


def open_database(folder: Path) -> Path:
    """Open `service.db` in `folder`, both made if they are missing and readable by their owner only."""
    path = folder / FILE_NAME
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise Unusable(f"cannot write the data folder {folder}: {error.strerror}") from None
    # Connections are opened by each thread at its first use, so never before a fork.
    database.initialize(peewee.SqliteDatabase(str(path), pragmas=PRAGMAS, timeout=5, lock_type="IMMEDIATE"))
    return path


def close_database() -> None:
    """Close this thread's connection."""
    if database.obj is not None and not database.is_closed():
        database.close()


@contextmanager
def write() -> Iterator[None]:
    """A transaction that holds the write lock from its beginning: use it for every read-then-write.

    Nothing slow inside: no hashing, no picture work, no calls out.
    """
    try:
        with database.atomic():
            yield
    except peewee.OperationalError as error:
        if "readonly" in str(error) and not database.in_transaction():
            close_database()  # it was opened while the disk was read-only, and would stay so when the disk no longer is
        raise


def rewrite_files() -> None:
    """Write the database anew, so that no byte of what was emptied stays in the file or its journal."""
    database.execute_sql("VACUUM")
    busy, *_ = database.execute_sql("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise Unusable("the journal is in use and still holds old bytes: run this again when the service is quieter")


@contextmanager
def bulk_write() -> Iterator[None]:
    """A `write()` of very many rows in any order; the caller checks, at its end, that no reference leads nowhere.

    SQLite would look through all children whenever a parent comes after one of them, and write pages out early.
    """
    normal = {name: database.execute_sql(f"PRAGMA {name}").fetchone()[0] for name in ("foreign_keys", "cache_size")}
    database.execute_sql("PRAGMA foreign_keys = 0")
    database.execute_sql("PRAGMA cache_size = -65536")  # 64 MiB
    try:
        with write():
            yield
    finally:
        for name, value in normal.items():
            database.execute_sql(f"PRAGMA {name} = {value}")


@contextmanager
def snapshot() -> Iterator[None]:
    """Several reads that see one state of the database."""
    with database.atomic("DEFERRED"):
        yield


def is_unavailable(error: BaseException | None) -> bool:
    """Whether a database error means «not now» (locked, full, read-only, unreadable) and not a fault of ours."""
    if not isinstance(error, peewee.OperationalError):
        return False
    taken_back = ("no transaction is active", "no such savepoint")  # by SQLite itself, before Peewee tried; see why
    if any(words in str(error) for words in taken_back):
        return is_unavailable(error.__context__ and error.__context__.__context__)
    words = ("locked", "busy", "full", "readonly", "unable to open", "disk i/o")
    return any(word in str(error).lower() for word in words)


def render(query: "peewee.ModelSelect[Any]", *, own: bool = False) -> msgspec.Raw:
    """The first row of a query as the JSON object of its table, rendered by the database; there must be one."""
    (row,) = query.select(peewee.SQL(row_json(query.model, own=own))).tuples().get()
    return msgspec.Raw(row.encode())


class Position(NamedTuple):
    """Where a page begins: after the row with this key; `number` counts the pages of the walk from 1."""

    number: int = 1
    key: tuple[Any, ...] = ()
    nowhere: bool = False  # nothing lies behind this position: what an unreadable cursor becomes where no 400 is


class Order(NamedTuple):
    """One column of a sort order."""

    column: peewee.Field
    descending: bool = False


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
    rows = query.select(peewee.SQL(row_json(query.model)).alias("row")).limit(limit + 1)
    rows = rows.order_by(*(part.column.desc() if part.descending else part.column.asc() for part in order))
    parts = [rows.where(beyond).sql() for beyond in _beyond(order, after.key)] or [rows.sql()]
    sql = parts[0][0]
    if len(parts) > 1:
        sql = " UNION ALL ".join(f"SELECT * FROM ({part}) AS part" for part, _ in parts) + f" LIMIT {limit + 1}"
    joined = f"SELECT count(*), group_concat(\"row\", ',\n') FROM ({sql}) AS page"
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
        (column, descending), value = order[depth], key[depth]
        beyond = column < value if descending else column > value
        for (above, _), same in zip(order[:depth], key[:depth], strict=True):
            beyond &= above == same
        yield beyond


def contains(column: Any, text: str) -> Any:
    """The condition that a column holds a text somewhere, letter for letter."""
    return peewee.fn.instr(column, text) > 0
