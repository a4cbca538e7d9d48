"""Import and export as JSON Lines (contract, section 9): one record a line, all of a run or nothing.

An import first reads everything, finds every fault and hashes passwords; what it has checked waits in a temporary file.
Only then does it write, so that the write lock is held no longer than the rows need. References are checked before the
first row is written, so that an import with faults of form reports them too, and takes no lock for it.
"""

import bisect
import contextlib
import errno
import functools
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
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

_IDENTIFIER = re.compile(rb'"id"\s*:\s*"([0-9A-Za-z-]{26,36})"')

Progress = Callable[[int], None]


class Record(msgspec.Struct, array_like=True):
    """A record that was checked and waits to be written."""

    number: int  # of its line, counted through all files
    place: str  # FILE:LINE
    size: int  # of its line, in bytes
    kind: str
    row: list[Any]  # its columns as stored


class Report(list[str]):
    """The first faults of an import, at most 20, as `FILE:LINE: path: reason`; none means that all was imported."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0  # how many faults there are
        self.counts = Counter[str]()  # of the records that were imported, by kind
        self._numbers: list[int] = []

    def add(self, number: int, fault: str) -> None:
        """Add a fault of the line with a number; only those of the first lines are kept."""
        self.total += 1
        place = bisect.bisect(self._numbers, number)
        if place < FAULTS_SHOWN:
            self._numbers.insert(place, number)
            self.insert(place, fault)
            del self._numbers[FAULTS_SHOWN:], self[FAULTS_SHOWN:]


class _Faulty(Exception):
    """Undoes the transaction of an import that found faults."""


class _References:
    """The identifiers in an import and those that it refers to, in a temporary database: there may be very many.

    Its methods raise OSError when the disk has no room for it.
    """

    def __init__(self) -> None:
        self._new: tuple[list[Any], list[Any]] = [], []
        self._connection = db.sqlite3.connect("", isolation_level=None)
        self._run("PRAGMA journal_mode = OFF")
        self._run("BEGIN")
        self._run("CREATE TABLE known (id TEXT, kind TEXT, PRIMARY KEY (id, kind)) WITHOUT ROWID")
        self._run("CREATE TABLE wanted (kind TEXT, id TEXT, PRIMARY KEY (kind, id)) WITHOUT ROWID")

    def add(self, kind: str, row: list[Any]) -> None:
        """Note a record: its identifier and what it refers to."""
        known, wanted = self._new
        known.append((row[0], kind))
        wanted.extend((column.refers_to, row[place]) for place, column in _references_of(kind) if row[place])
        if len(known) >= BATCH:
            self._flush()

    def add_faulty(self, raw: bytes) -> None:
        """Note the identifiers in a line with a fault, of whichever kind, so that references to it are none."""
        for found in _IDENTIFIER.findall(raw):
            text = found.decode()
            self._new[0].extend(((text.lower(), ""), (text.upper(), "")))

    def drop_found(self) -> bool:
        """Drop the references to what is in the import or in the database; whether any is left."""
        self._flush()
        self._run(
            "DELETE FROM wanted WHERE EXISTS"
            " (SELECT 1 FROM known WHERE known.id = wanted.id AND known.kind IN (wanted.kind, ''))"
        )
        for kind, table in RECORDS.items():
            key, last = primary_key(table), ""
            asked = "SELECT id FROM wanted WHERE kind = ? AND id > ? ORDER BY id LIMIT ?"
            while batch := [id for (id,) in self._run(asked, (kind, last, BATCH))]:
                last = batch[-1]
                rows: Any = table.select(key).where(key.in_(batch)).tuples()
                for (id,) in rows:
                    self._run("DELETE FROM wanted WHERE kind = ? AND id = ?", (kind, id))
        return bool(self._run("SELECT 1 FROM wanted LIMIT 1"))

    def is_missing(self, kind: str, id: str | None) -> bool:
        """Whether a reference is left."""
        return bool(id and self._run("SELECT 1 FROM wanted WHERE kind = ? AND id = ?", (kind, id)))

    def close(self) -> None:
        self._connection.close()

    def _flush(self) -> None:
        for what, rows in zip(("known", "wanted"), self._new, strict=True):
            self._run(f"INSERT OR IGNORE INTO {what} VALUES (?, ?)", many=rows)
            rows.clear()

    def _run(self, sql: str, values: Sequence[Any] = (), many: Sequence[Any] | None = None) -> list[Any]:
        try:
            if many is not None:
                self._connection.executemany(sql, many)
                return []
            return list(self._connection.execute(sql, values))
        except db.sqlite3.Error as error:
            raise OSError(errno.ENOSPC, str(error)) from None


def take_in(paths: Iterable[Path | None], progress: Progress = lambda size: None) -> Report:
    """Import files (None is standard input), all of them or, with any fault, nothing.

    `progress` is told the bytes of each line, twice over in the course of a run.
    """
    report = Report()
    with tempfile.TemporaryFile() as spool, contextlib.closing(_References()) as references:
        _check(paths, spool, references, report, progress)
        if report:
            for number, fault in _check_references(spool, references):
                report.add(number, fault)
            return report
        with contextlib.suppress(_Faulty), db.bulk_write():
            for number, fault in _check_references(spool, references):
                report.add(number, fault)
            if not report:
                _write(spool, report, progress)
            if report:
                raise _Faulty
    return report


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


def _check(
    paths: Iterable[Path | None], spool: BinaryIO, references: _References, report: Report, progress: Progress
) -> None:
    """Put the records of all lines into the spool, and note their references; faults go into the report."""
    for number, (place, raw) in enumerate(_lines(paths)):
        try:
            if raw.strip():
                kind, given = _read(raw)
                row = _row(kind, given)
                spool.write(msgspec.json.encode(Record(number, place, len(raw), kind, row)) + b"\n")
                references.add(kind, row)
        except (BadRequest, ValueError) as fault:
            report.add(number, f"{place}: {fault}")
            references.add_faulty(raw)
        progress(len(raw))


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


@functools.cache
def _references_of(kind: str) -> list[tuple[int, Column]]:
    """The columns of a kind that name records, and their places in a row."""
    columns = _columns(kind)[0].values()
    return [(place, column) for place, column in enumerate(columns) if column.refers_to]


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


def _write(spool: BinaryIO, report: Report, progress: Progress) -> None:
    """Write every record, then what is derived; counts, or the first row that is not unique, go into the report."""
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
                fault = f"$.{record.kind}.{unique[0]}: another {record.kind} has it already"
                report.add(record.number, f"{record.place}: {fault}")
                return
    for kind, rows in waiting.items():
        touched |= _insert(kind, rows)
    settle(touched)
    Avatar.settle()
    if counts:
        Ledger.record("imported", OPERATOR, "", **counts)
    report.counts = counts


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
    with table.indexed_anew(identifiers):
        db.database.fill(f'"{table._meta.table_name}"', names, rows, otherwise)
    return before | sessions_of(table, identifiers)


def _check_references(spool: BinaryIO, references: _References) -> Iterator[tuple[int, str]]:
    """The faults of records that refer to what is neither in the import nor in the database, with their numbers."""
    if not references.drop_found():
        return
    for record in _records(spool):
        for place, column in _references_of(record.kind):
            if references.is_missing(column.refers_to, record.row[place]):
                value = record.row[place]
                yield record.number, f"{record.place}: $.{record.kind}.{column.name}: refers to nothing: {value}"
