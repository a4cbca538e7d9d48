"""Import and export as JSON Lines (contract, section 9): one record a line, all of a run or nothing.

An import first reads everything, finds every fault and hashes passwords; what it has checked waits in a temporary file.
Only then does it write, so that the write lock is held no longer than the rows need.
"""

import functools
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import peewee

from service import db
from service.auth.passwords import hash_password
from service.decoding import read_json
from service.errors import BadRequest, InvalidBody
from service.fields import Column, Flag, members, primary_key
from service.models import RECORDS, Avatar, Ledger, Message, User
from service.models.ledger import OPERATOR
from service.models.settling import sessions_of, settle
from service.shapes import convert

FAULTS_SHOWN = 20
BATCH = 500

Progress = Callable[[int], None]


class Record(msgspec.Struct, array_like=True):
    """A record that was checked and waits to be written."""

    place: str  # FILE:LINE
    size: int  # of its line, in bytes
    kind: str
    row: list[Any]  # its columns as stored


class _Faulty(Exception):
    """Undoes the transaction of an import that found faults."""


def take_in(paths: Iterable[Path | None], progress: Progress = lambda size: None) -> list[str]:
    """Import files (None is standard input): the faults, at most 20, as `FILE:LINE: path: reason`; none means done.

    `progress` is told the bytes of each line, twice over in the course of a run.
    """
    with tempfile.TemporaryFile() as spool:
        faults = _check(paths, spool, progress)
        try:
            if not faults:
                with db.bulk_write():
                    faults = _write(spool, progress)
                    if faults:
                        raise _Faulty
        except _Faulty:
            pass
        return faults[:FAULTS_SHOWN]


def give_out(write: Callable[[bytes], Any], progress: Progress = lambda rows: None) -> None:
    """Export everything, in an order that depends on the rows alone."""
    with db.snapshot():
        for kind, table in RECORDS.items():
            named = f'"{table._meta.table_name}" ORDER BY {primary_key(table).sql}'
            rows = f"SELECT {db.row_json(table, export=True)} FROM {named}"
            for (row,) in db.database.execute_sql(rows):
                write(f'{{"{kind}":{row}}}\n'.encode())
                progress(1)


def count_rows() -> int:
    """How many lines an export has."""
    return sum(table.select().count() for table in RECORDS.values())


def _lines(paths: Iterable[Path | None]) -> Iterator[tuple[str, bytes]]:
    """Every line and where it stands."""
    for path in paths:
        with sys.stdin.buffer if path is None else path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                yield f"{'-' if path is None else path}:{number}", raw


def _check(paths: Iterable[Path | None], spool: BinaryIO, progress: Progress) -> list[str]:
    """Put the records of all lines into the spool; the faults."""
    faults: list[str] = []
    for place, raw in _lines(paths):
        try:
            if raw.strip():
                kind, given = _read(raw)
                spool.write(msgspec.json.encode(Record(place, len(raw), kind, _row(kind, given))) + b"\n")
        except (BadRequest, ValueError) as fault:
            faults.append(f"{place}: {fault}")
            if len(faults) == FAULTS_SHOWN:
                break
        progress(len(raw))
    return faults


def _read(raw: bytes) -> tuple[str, dict[str, Any]]:
    """The kind of a record and the members that it has. Raises BadRequest with the place of the fault."""
    try:
        record = read_json(raw)
    except BadRequest as fault:
        reason = str(fault).removeprefix("The body ")
        raise BadRequest(reason if reason.startswith("$") else f"$: {reason}") from None
    if len(record) != 1 or next(iter(record)) not in RECORDS:
        raise BadRequest(f"$: expected one member, which names the record: {', '.join(RECORDS)}")
    kind = next(iter(record))
    read = getattr(convert(record, _accepted(kind)), kind)
    return kind, {name: value for name, value in msgspec.structs.asdict(read).items() if value is not msgspec.UNSET}


@functools.cache
def _accepted(kind: str) -> type[msgspec.Struct]:
    """A line of a kind: one member, which may hold every member of its table and no other."""
    table = RECORDS[kind]
    accepts = {name: column.accepts for name, column in members(table, export=True).items()} | table.also_accepts
    fields = [(name, what | msgspec.UnsetType, msgspec.UNSET) for name, what in accepts.items()]
    return msgspec.defstruct("Line", [(kind, msgspec.defstruct(kind, fields, forbid_unknown_fields=True))])


@functools.cache
def _columns(kind: str) -> tuple[dict[str, Column], list[Flag]]:
    table = RECORDS[kind]
    flags = [flag for flag in members(table).values() if isinstance(flag, Flag)]
    return {column.name: column for column in table._meta.sorted_fields}, flags


def _row(kind: str, given: dict[str, Any]) -> list[Any]:
    """The columns of a record as stored. Raises ValueError with the place of the fault."""
    columns, flags = _columns(kind)

    def store(name: str, value: Any) -> Any:
        try:
            return hash_password(value) if name == "password" else columns[name].store(value)
        except ValueError as error:
            raise ValueError(f"$.{kind}.{name}: {error}") from None
        except InvalidBody as fault:  # with a place inside the member
            raise ValueError(f"$.{kind}.{name}{str(fault).removeprefix('$')}") from None

    row = {name: store(name, value) for name, value in given.items() if name in columns or name == "password"}
    try:
        adopted = RECORDS[kind].adopt(given | row)
    except ValueError as error:
        raise ValueError(f"$.{kind}: {error}") from None
    row |= {name: store(name, value) for name, value in adopted.items()}
    for name, column in columns.items():
        if name not in row:
            if column.default is None and not column.null:
                raise ValueError(f"$.{kind}: missing required member {name}")
            row[name] = column.default() if callable(column.default) else column.default
    for flag in flags:
        flag.imply(given.get(flag.name), row)
    return [row[name] for name in columns]


def _records(spool: BinaryIO) -> Iterator[Record]:
    """What waits in the spool, from the beginning."""
    spool.seek(0)
    return map(msgspec.json.Decoder(Record).decode, spool)


def _write(spool: BinaryIO, progress: Progress) -> list[str]:
    """Write every record, then check references and mend what is derived; the faults."""
    waiting: dict[str, list[list[Any]]] = defaultdict(list)
    touched: set[str] = set()
    counts = Counter[str]()
    _make_way(spool)
    for record in _records(spool):
        progress(record.size)
        counts[record.kind] += 1
        waiting[record.kind].append(record.row)
        unique = RECORDS[record.kind].unique_members()
        if unique or len(waiting[record.kind]) == BATCH:
            try:
                touched |= _insert(record.kind, waiting.pop(record.kind))
            except peewee.IntegrityError:
                return [f"{record.place}: $.{record.kind}.{unique[0]}: another {record.kind} has it already"]
    for kind, rows in waiting.items():
        touched |= _insert(kind, rows)
    faults = _dangling(spool)
    if not faults:
        settle(touched)
        Avatar.settle()
        if counts:
            Ledger.record("imported", OPERATOR, "", **counts)
    return faults


def _make_way(spool: BinaryIO) -> None:
    """Take what only one row may have from the rows that are about to be replaced, so that two may swap it."""
    for record in _records(spool):
        table = RECORDS[record.kind]
        for name in table.unique_members():
            key, column = primary_key(table), getattr(table, name)
            table.update({column: key}).where(key == record.row[0], column.is_null(False)).execute()


def _insert(kind: str, rows: list[list[Any]]) -> set[str]:
    """Insert rows; those whose identifier exists are replaced as a whole. The chat sessions that this touches."""
    table = RECORDS[kind]
    names = [column.sql for column in table._meta.sorted_fields]
    # A sender may still send a message again that an import has replaced.
    replaced = [column.sql for column in table._meta.sorted_fields[1:] if column is not Message.client_message_id]
    replace = ", ".join(f"{name} = excluded.{name}" for name in replaced)
    identifiers = [row[0] for row in rows]
    before = sessions_of(table, identifiers)
    if table is User:
        for row in rows:
            User.end_sessions_of_another_password(*(row[names.index(name)] for name in ('"id"', '"password_hash"')))
    otherwise = f"ON CONFLICT ({names[0]}) DO UPDATE SET {replace}"
    db.database.fill(f'"{table._meta.table_name}"', names, rows, otherwise)
    return before | sessions_of(table, identifiers)


def _dangling(spool: BinaryIO) -> list[str]:
    """The records that refer to rows which are not there."""
    missing: dict[tuple[str, str], set[str]] = {}
    for kind, table in RECORDS.items():
        for column in table._meta.sorted_fields:
            if column.refers_to:
                parents = RECORDS[column.refers_to].alias()
                lost = table.select(column).distinct().where(column.is_null(False))
                lost = lost.where(~peewee.fn.EXISTS(parents.select(parents.id).where(parents.id == column)))
                rows: Any = lost.tuples()
                missing[kind, column.name] = {value for (value,) in rows}
    if not any(missing.values()):
        return []
    return [
        f"{record.place}: $.{record.kind}.{name}: refers to nothing: {value}"
        for record in _records(spool)
        for name, value in zip(_columns(record.kind)[0], record.row, strict=True)
        if value in missing.get((record.kind, name), ())
    ]
