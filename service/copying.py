"""Everything from one database into another, row by row as it is stored, so that whatever was signed stays good.

The target changes in one transaction, in which it also gives back what it took: it has all of it or nothing. Rows pass
one at a time; no table is ever in memory.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec
import peewee

from service import db, migrations
from service.db import Table
from service.db.engine import exceptions, reason
from service.fields import Column
from service.models import TABLES, Moment, SigningKey

Database = Any  # an Engine, which is one of Peewee's databases as well
Row = tuple[Any, ...]
Progress = Callable[[int], None]

# The types of columns: how a value is read, so that both databases give the same, and what it may be.
KINDS: dict[str, tuple[str, Any]] = {
    "TEXT": ("{}", str),
    "BIGINT": ("{}", int),
    "BOOL": ("CAST({} AS INTEGER)", Literal[0, 1]),
    "REAL": ("{} + 0.0", float),  # SQLite keeps no negative zero
}


class Uncopyable(Exception):
    """There is no copy; the text is one sentence for the operator."""


class Tally:
    """Counts the rows that come by, and takes a digest of them."""

    def __init__(self, progress: Progress) -> None:
        self.rows, self._digest, self._progress = 0, hashlib.sha256(), progress

    def watch(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self._digest.update(msgspec.msgpack.encode(row))
            self.rows += 1
            self._progress(1)
            yield row

    @property
    def digest(self) -> bytes:
        return self._digest.digest()


def see_that_it_is_current(source: Database) -> None:
    """See that a database, from here on the one of this process, has this program's schema. Raises Uncopyable."""
    db.database.initialize(source)
    version, today = migrations.version(), len(migrations.STEPS)
    if version == 0:
        raise Uncopyable(f"there is nothing to copy in {source.name}")
    if version != today:
        what = "run `cx-service migrate` on it first" if version < today else "use a newer program"
        raise Uncopyable(f"{source.name} has schema {version}, and this program {today}: {what}")


def count_rows(source: Database) -> int:
    """How many rows there are to copy."""
    return sum(source.execute_sql(f"SELECT count(*) FROM {_name(table)}").fetchone()[0] for table in TABLES)


def copy(source: Database, target: Database, progress: Progress = lambda rows: None) -> dict[str, int]:
    """Copy every row of every table into a new or empty database; how many there were, by the name of the table.

    `progress` is told of each row twice: when it is written, and when it is read back. From here on the target is the
    database of this process, since migrations and models know only one. Raises Uncopyable.
    """
    db.database.initialize(target)
    try:
        if source.identity() == target.identity():
            raise Uncopyable(f"{source.name} cannot be copied into itself")
        with target.write():
            migrations.migrate()
            _make_way(target)
            with source.snapshot():
                given = {table: _transfer(source, target, table, progress) for table in TABLES}
            for table, tally in given.items():
                _compare(target, table, tally, progress)
    except peewee.DatabaseError as error:
        raise Uncopyable(f"the copy was not finished: {reason(error)}") from None
    return {table._meta.table_name: tally.rows for table, tally in given.items()}


def _make_way(target: Database) -> None:
    """See that the target is empty, but for what a new database gets when it is started: that goes."""
    started = (SigningKey, Moment)
    for table in TABLES:
        if table not in started and table.select().exists():
            raise Uncopyable(f"{target.name} holds data already ({_name(table)}): name a new or an empty database")
    for table in started:
        table.delete().execute()


def _transfer(source: Database, target: Database, table: type[Table], progress: Progress) -> Tally:
    tally = Tally(progress)
    rows = tally.watch(_rows(source, table))
    if target.kind == "postgresql":
        rows = _without_nul(table, rows)
    target.fill(_name(table), [column.sql for column in table._meta.sorted_fields], rows)
    return tally


def _compare(target: Database, table: type[Table], given: Tally, progress: Progress) -> None:
    """Read a table back. Raises Uncopyable if it differs from what was given."""
    found = Tally(progress)
    for _ in found.watch(_rows(target, table)):
        pass
    if (found.rows, found.digest) != (given.rows, given.digest):
        what = f"{found.rows} rows in place of {given.rows}" if found.rows != given.rows else "other rows"
        raise Uncopyable(f"nothing was copied: of {_name(table)}, {target.name} gave back {what}")


def _rows(database: Database, table: type[Table]) -> Iterator[Row]:
    """The rows of a table in the order of their keys. Raises Uncopyable for a value that its column cannot hold."""
    columns = table._meta.sorted_fields
    kinds = [KINDS[column.field_type] for column in columns]
    read = ", ".join(how.format(column.sql) for (how, _), column in zip(kinds, columns, strict=True))
    order = ", ".join(key.sql for key in _keys(table))
    types = (what | None if column.null else what for (_, what), column in zip(kinds, columns, strict=True))
    check = msgspec.msgpack.Decoder(tuple[tuple(types)])  # type: ignore[misc]
    row: Row = ()
    try:
        with exceptions:
            for row in database.stream(f"SELECT {read} FROM {_name(table)} ORDER BY {order}"):
                yield check.decode(msgspec.msgpack.encode(row))
    except msgspec.ValidationError as fault:
        why, _, place = str(fault).rpartition(" - at ")  # `$[3]`
        raise Uncopyable(_fault(table, row, int(place.strip("`$[]")), why)) from None
    except peewee.OperationalError as error:  # a text that is not UTF-8, or a lost connection
        raise Uncopyable(f"nothing was copied: {_name(table)} cannot be read: {reason(error)}") from None


def _without_nul(table: type[Table], rows: Iterable[Row]) -> Iterator[Row]:
    """The rows. Raises Uncopyable for a text that PostgreSQL cannot store."""
    for row in rows:
        for place, value in enumerate(row):
            if type(value) is str and "\0" in value:
                raise Uncopyable(_fault(table, row, place, "a NUL character, which PostgreSQL cannot store"))
        yield row


def _name(table: type[Table]) -> str:
    return f'"{table._meta.table_name}"'


def _keys(table: type[Table]) -> list[Column]:
    """The columns that together are the primary key."""
    return list(table._meta.get_primary_keys())  # type: ignore[no-untyped-call]


def _key(table: type[Table], row: Row) -> str:
    """The key of a row, for people."""
    keys = [key.name for key in _keys(table)]
    return " ".join(repr(v) for c, v in zip(table._meta.sorted_fields, row, strict=True) if c.name in keys)


def _fault(table: type[Table], row: Row, place: int, why: str) -> str:
    column = table._meta.sorted_fields[place].name
    return f"nothing was copied: {table._meta.table_name} {_key(table, row)}: {column}: {why}"
