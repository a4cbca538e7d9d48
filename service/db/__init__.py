"""The database: opening it, writing to it, and reading pages of rows that it renders as JSON itself.

Whatever differs between databases sits in the modules of this package and in `service.fields`.
"""

import functools
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import msgspec
import peewee

from service.db.engine import Engine, NeedsThread, Order, Unusable, database, reason
from service.db.pages import Page, Position, page, row_json
from service.db.postgresql import Postgresql
from service.db.prepared import Made, Prepared, fixed, padded, prepared, sum_of
from service.db.sqlite import (
    FILE_NAME,
    FleetingSqlite,
    Missing,
    ReadOnlySqlite,
    Sqlite,
    has_wal_reset_bug,
    kept_copies,
    sqlite3,
)
from service.fields import Column, Standing, primary_key

__all__ = [
    "FILE_NAME",
    "FleetingSqlite",
    "NeedsThread",
    "Order",
    "Page",
    "Position",
    "Prepared",
    "ReadOnlySqlite",
    "Sqlite",
    "Table",
    "Unusable",
    "after_failure",
    "among",
    "bulk_write",
    "close_database",
    "clue",
    "contains",
    "database",
    "fixed",
    "forget_database",
    "group_commit",
    "has_wal_reset_bug",
    "inline_read",
    "is_unavailable",
    "kept_copies",
    "open_database",
    "padded",
    "page",
    "prepared",
    "reason",
    "render",
    "rewrite_files",
    "row_json",
    "settled",
    "snapshot",
    "sought",
    "sqlite3",
    "state",
    "sum_of",
    "write",
]

TRIES = 4  # of an action that the database undid

# What libpq would take for a host or port, and tell everybody, is none of a password that was not encoded.
_ADDRESS = re.compile(r"[a-z]+://(?:[^/?#@]*@)?[^/?#@]*(?:/[^/?#@]*)?(?:\?.*)?", re.DOTALL)

Result = TypeVar("Result")


@prepared
def _inserted(*values: Any, table: "type[Table]") -> Any:
    return table.insert(dict(zip(table._meta.sorted_fields, values, strict=True)))


@prepared
def _by_identifier(id: str, *, table: "type[Table]") -> Any:
    return table.select().where(primary_key(table) == id)


class Table(peewee.Model):
    """A table of the one database."""

    also_accepts: ClassVar[dict[str, Any]] = {}  # what an import takes beside the columns
    reach_raises: ClassVar[tuple[type[Any], ...]] = ()  # the errors of `reach`, which a path leads to

    @classmethod
    def known(cls, id: str) -> "Self | None":
        """The row with an identifier, if there is one."""
        row = _by_identifier(id, table=cls).row()
        if row is None:
            return None
        found = cls(__no_default__=True)
        found.__data__ = dict(zip(_names(cls), row, strict=True))
        for column in _converted(cls):
            found.__data__[column.name] = column.python_value(found.__data__[column.name])
        return found

    @classmethod
    def get_by_id(cls, pk: str) -> Self:
        """The row with an identifier. Raises peewee.DoesNotExist."""
        found = cls.known(pk)
        if found is None:
            raise peewee.DoesNotExist
        return found

    @classmethod
    def create(cls, **columns: Any) -> Self:
        """A new row, written; columns that are not given get their defaults."""
        made = cls(__no_default__=True)
        made.__data__ = cls._meta.get_default_dict() | columns
        made.save(force_insert=True)
        return made

    def save(self, force_insert: bool = False, only: Any = None) -> int:
        """Write the row; a new one by a statement that was built before."""
        if not force_insert:
            return int(super().save(only=only))
        values = [column.db_value(self.__data__.get(column.name)) for column in self._meta.sorted_fields]
        vars(self)["_dirty"].clear()
        return _inserted(*values, table=type(self)).run()

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
    def indexed_anew(cls, identifiers: Sequence[str]) -> AbstractContextManager[None]:
        """A block that writes rows without `save`: afterwards, what other tables hold of them is derived anew."""
        return nullcontext()

    @classmethod
    def unique_members(cls) -> list[str]:
        """The columns that no two rows may share; of several that are unique together, the last."""
        alone = [column.name for column in cls._meta.sorted_fields if column.unique]
        together = [index._expressions[-1].name for index in cls._meta.indexes if getattr(index, "_unique", False)]
        return alone + together

    class Meta:
        database = database
        legacy_table_names = False


def connect(folder: Path, url: str = "", replica: str = "", *, writable: bool = True, create: bool = False) -> Engine:
    """The database at a URL, or without one `service.db` in a folder; maybe to look at it only.

    Only with `create` is a missing folder or file made. Raises Unusable.
    """
    if url.startswith(("postgresql://", "postgres://")):
        if not all(_ADDRESS.fullmatch(one) for one in filter(None, (url, replica))):
            raise Unusable("in an address of a database, a password is percent-encoded: its @ is %40, its / is %2F")
        return Postgresql(url, replica, writable=writable)
    if url or replica:
        raise Unusable("--database and --replica are addresses that begin with postgresql://, and a replica needs both")
    return Sqlite(folder, create=create) if writable else ReadOnlySqlite(folder)


def open_database(
    folder: Path, url: str = "", replica: str = "", *, writable: bool = True, create: bool = False
) -> None:
    """From now on, use the database at a URL, or `service.db` in a folder.

    Without `create`, a database that does not exist or has no tables raises Unusable, and nothing is made.
    """
    close_database()
    database.initialize(connect(folder, url, replica, writable=writable, create=create))
    if not create and not database.get_tables():
        raise Unusable(f"there are no tables in {database.name}") if url else Missing(folder)


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


def inline_read() -> AbstractContextManager[None]:
    """Reads on the event loop: NeedsThread is raised by a write, and by a read that takes too long."""
    return database.inline_read()  # type: ignore[no-any-return]


def group_commit() -> AbstractContextManager[Callable[[], None]]:
    """A transaction for the writes of several requests; each outermost `write()` in it is a savepoint.

    Gives a function that raises TransactionLost if the database has rolled the transaction back by itself.
    """
    return database.group_commit()  # type: ignore[no-any-return]


def state() -> Any:
    """Something that differs when another connection has committed anything since."""
    return database.state()


def rewrite_files() -> None:
    """Write the database anew, so that no byte of what was emptied stays in its files."""
    database.rewrite()


def is_unavailable(error: BaseException | None) -> bool:
    """Whether an error of the database means «not now», and not a fault of ours."""
    return bool(database.is_unavailable(error))


def after_failure(error: BaseException) -> None:
    """Open this thread's connection anew, after its transaction, if an error may last longer in it than outside.

    Raises NeedsThread on the event loop, where the error may be that of an interrupted read.
    """
    database.distrust_after(error)
    if database.is_reading_inline():
        raise NeedsThread


def settled(action: Callable[[], Result]) -> Result:
    """What an action gives, begun again, a few times, if the database undid it since it crossed another."""
    for _ in range(TRIES - 1):
        try:
            return action()
        except peewee.DatabaseError as error:
            if database.in_transaction() or not database.is_conflict(error):
                raise
    return action()


def render(table: type[Table], id: str, *, own: bool = False) -> msgspec.Raw:
    """A row as the JSON object that it is on the wire, rendered by the database. Raises peewee.DoesNotExist."""

    def make(query: Any) -> Made:
        made: Made = query.select(peewee.SQL(row_json(table, own=own))).sql()
        return made

    query = _by_identifier(id, table=table)
    made = query.made(("rendered", own), make) if _is_timeless(table) else make(query.build(id, table=table))
    row = database.execute_sql(*made).fetchone()
    if row is None:
        raise peewee.DoesNotExist
    return msgspec.Raw(row[0].encode())


@functools.cache
def _names(table: type[Table]) -> list[str]:
    """The columns, in the order of the table."""
    return [column.name for column in table._meta.sorted_fields]


@functools.cache
def _converted(table: type[Table]) -> list[Column]:
    """The columns whose values may be others in Python than in the database."""
    plain = (peewee.Field.adapt, peewee.Field.python_value)
    return [column for column in table._meta.sorted_fields if (type(column).adapt, type(column).python_value) != plain]


@functools.cache
def _is_timeless(table: type[Table]) -> bool:
    """Whether a row is rendered alike at any time, so that its SQL can be kept."""
    return not any(isinstance(value, Standing) for value in vars(table).values())


def contains(column: Any, text: Any) -> Any:
    """The condition that a column holds a `sought` text somewhere, letter for letter."""
    return database.contains(column, text)


def clue(column: Any, text: str) -> str:
    """What leads to the few rows that may hold a text in a column; empty where they are many, or unknown."""
    return str(database.clue(column, text))


def among(table: type[Table], clue: Any) -> Any:
    """The condition that a row of a table is among those that a `clue` leads to."""
    return database.among(table, clue)


def sought(text: str) -> str:
    """A text as `contains` looks for it."""
    return str(database.sought(text))
