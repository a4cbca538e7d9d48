"""Copies all rows from one database to another unchanged, so that signed tokens and cursors stay valid.

The target is written and read back in one transaction: it receives all rows or none. Rows are streamed; no table
is loaded into memory.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec
import peewee

from service import db
from service.db import Table, migrations
from service.db.engine import Engine, exceptions, reason
from service.fields import Column, ShortIdentifier, SqlValue, WireType
from service.models import TABLES, ClockState, SigningKey

Row = tuple[SqlValue, ...]
Progress = Callable[[int], None]

# By column type: the SQL that reads a value, so that both kinds of database return the same, and the allowed values.
COLUMN_TYPES: dict[str, tuple[str, WireType]] = {
    "TEXT": ("{}", str),
    "BIGINT": ("{}", int),
    "BOOL": ("CAST({} AS INTEGER)", Literal[0, 1]),
    "REAL": ("{} + 0.0", float),  # SQLite stores no negative zero
}


class CopyError(Exception):
    """Nothing was copied. The text is one sentence for the operator."""


class RowDigest:
    """The number and the digest of the rows that pass through it."""

    def __init__(self, progress: Progress) -> None:
        self.rows, self._digest, self._progress = 0, hashlib.sha256(), progress

    def update(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self._digest.update(msgspec.msgpack.encode(row))
            self.rows += 1
            self._progress(1)
            yield row

    @property
    def digest(self) -> bytes:
        return self._digest.digest()


def check_schema(source: Engine) -> None:
    """Check that a database has the current schema. Makes it the database of this process. Raises CopyError."""
    db.database.initialize(source)
    version, expected = migrations.version(), len(migrations.STEPS)
    if version == 0:
        raise CopyError(f"there is nothing to copy in {source.name}")
    if version != expected:
        advice = "run `cx-service migrate` on it first" if version < expected else "use a newer version of this program"
        raise CopyError(f"{source.name} has schema {version}, but this program needs schema {expected}: {advice}")


def count_rows(source: Engine) -> int:
    """Return the number of rows to copy."""
    return sum(source.execute_sql(f"SELECT count(*) FROM {_name(table)}").fetchone()[0] for table in TABLES)


def copy(source: Engine, target: Engine, progress: Progress = lambda rows: None) -> dict[str, int]:
    """Copy all rows to a new or empty database. Returns the number of rows by table name.

    `progress` is called twice for each row: when it is written and when it is read back. The target becomes the
    database of this process, since migrations and models use only one. Raises CopyError.
    """
    db.database.initialize(target)
    try:
        if source.identity() == target.identity():
            raise CopyError(f"{source.name} cannot be copied to itself")
        with target.write():
            migrations.migrate()
            _check_empty(target)
            with source.snapshot():
                copied = {table: _copy_table(source, target, table, progress) for table in TABLES}
            for table, expected in copied.items():
                _verify(target, table, expected, progress)
    except peewee.DatabaseError as error:
        raise CopyError(f"the copy failed: {reason(error)}") from None
    return {table._meta.table_name: digest.rows for table, digest in copied.items()}


def _check_empty(target: Engine) -> None:
    """Check that the target is empty. Deletes the rows that starting a service creates. Raises CopyError."""
    created_at_start = (SigningKey, ClockState)
    for table in TABLES:
        if table not in created_at_start and table.select().exists():
            raise CopyError(f"{target.name} is not empty ({_name(table)} has rows): name a new or empty database")
    for table in created_at_start:
        table.delete().execute()


def _copy_table(source: Engine, target: Engine, table: type[Table], progress: Progress) -> RowDigest:
    digest = RowDigest(progress)
    rows: Iterable[Row] = digest.update(_rows(source, table))
    if target.kind == "postgresql":
        rows = _without_nul(table, rows)
    rows = _with_short_identifiers(table, rows, ShortIdentifier.db_value)
    target.bulk_insert(_name(table), [column.sql for column in table._meta.sorted_fields], rows)
    return digest


def _verify(target: Engine, table: type[Table], expected: RowDigest, progress: Progress) -> None:
    """Read a table back. Raises CopyError if it differs from the source."""
    actual = RowDigest(progress)
    for _ in actual.update(_rows(target, table)):
        pass
    if (actual.rows, actual.digest) != (expected.rows, expected.digest):
        same_number = actual.rows == expected.rows
        difference = "different rows" if same_number else f"{actual.rows} rows instead of {expected.rows}"
        raise CopyError(f"nothing was copied: {_name(table)} in {target.name} has {difference}")


def _rows(database: Engine, table: type[Table]) -> Iterator[Row]:
    """Yield the rows of a table, ordered by primary key. Raises CopyError for a value of another type."""
    columns = table._meta.sorted_fields
    types = [COLUMN_TYPES[column.field_type] for column in columns]
    selected = ", ".join(sql.format(column.sql) for (sql, _), column in zip(types, columns, strict=True))
    order = ", ".join(key.sql for key in _keys(table))
    allowed = (values | None if column.null else values for (_, values), column in zip(types, columns, strict=True))
    decoder = msgspec.msgpack.Decoder(tuple[tuple(allowed)])  # type: ignore[misc]
    row: Row = ()
    try:
        with exceptions:
            stored = database.stream(f"SELECT {selected} FROM {_name(table)} ORDER BY {order}")
            for row in _with_short_identifiers(table, stored, ShortIdentifier.python_value):
                yield decoder.decode(msgspec.msgpack.encode(row))
    except msgspec.ValidationError as error:
        message, _, index = str(error).rpartition(" - at ")  # such as `$[3]`
        raise CopyError(_value_error(table, row, int(index.strip("`$[]")), message)) from None
    except peewee.DatabaseError as error:  # a text that is not UTF-8, or a lost connection
        raise CopyError(f"nothing was copied: {_name(table)} cannot be read: {reason(error)}") from None


def _with_short_identifiers(
    table: type[Table], rows: Iterable[Row], convert: Callable[[ShortIdentifier, SqlValue], SqlValue]
) -> Iterable[Row]:
    """Return the rows with converted short identifiers, whose stored form differs between databases.

    Raises CopyError for one that has no stored form.
    """
    columns = list(enumerate(table._meta.sorted_fields))
    short = [(index, column) for index, column in columns if isinstance(column, ShortIdentifier)]

    def converted() -> Iterator[Row]:
        for row in rows:
            values = list(row)
            for index, column in short:
                try:
                    values[index] = convert(column, values[index])
                except ValueError:
                    raise CopyError(_value_error(table, row, index, f"{values[index]!r} is no UUID")) from None
            yield tuple(values)

    return converted() if short else rows


def _without_nul(table: type[Table], rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows. Raises CopyError for a text with a NUL character, which PostgreSQL cannot store."""
    for row in rows:
        for index, value in enumerate(row):
            if type(value) is str and "\0" in value:
                raise CopyError(_value_error(table, row, index, "a NUL character, which PostgreSQL cannot store"))
        yield row


def _name(table: type[Table]) -> str:
    return f'"{table._meta.table_name}"'


def _keys(table: type[Table]) -> list[Column]:
    """Return the columns of the primary key."""
    return list(table._meta.get_primary_keys())  # type: ignore[no-untyped-call]


def _key(table: type[Table], row: Row) -> str:
    """Return the primary key of a row, for messages."""
    keys = [key.name for key in _keys(table)]
    return " ".join(repr(v) for c, v in zip(table._meta.sorted_fields, row, strict=True) if c.name in keys)


def _value_error(table: type[Table], row: Row, index: int, message: str) -> str:
    column = table._meta.sorted_fields[index].name
    return f"nothing was copied: {table._meta.table_name} {_key(table, row)}: {column}: {message}"
