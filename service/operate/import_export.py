"""Import and export as JSON Lines: one record per line. An import writes all records or none.

An import first reads all lines, collects the errors and hashes passwords; checked records are spooled to a temporary
file. Then it writes, so that the write lock is held only for the writes. References are checked under the lock; if
there are other errors, they are checked without it, so that all errors are reported together.
"""

import bisect
import contextlib
import errno
import functools
import os
import re
import sys
import tempfile
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import msgspec
import peewee

from service import db
from service.db import Query, Row
from service.errors import BadRequest
from service.fields import Column, SqlValue, primary_key
from service.models import RECORDS, AuditLog, Avatar, Bot, ChatSession, FeedbackScreenshot, Message, User
from service.models.audit_log import OPERATOR
from service.models.ratings import recompute_ratings
from service.models.recompute import recompute, sessions_of
from service.operate import import_lines

MAX_ERRORS = 20
BATCH_SIZE = 500  # rows
SESSION = "chat_session"
FROM_SESSION = {"owner_id": "user_id", "app_id": "app_id", "conversation_id": "conversation_id"}
LINES_AHEAD = 16  # lines that are read before the next is written, so that several passwords are hashed at a time

_IDENTIFIER = re.compile(rb'"id"\s*:\s*"([0-9A-Za-z-]{26,36})"')

Progress = Callable[[int], None]
ReadRow = Callable[[], tuple[str, list[SqlValue]]]  # the kind and the row of a line


class Record(msgspec.Struct, array_like=True):
    """A checked record in the spool file."""

    number: int  # of its line, counted across all files
    location: str  # FILE:LINE
    size: int  # of its line, in bytes
    kind: str
    row: list[SqlValue]  # the values of its columns as stored


class Report(list[str]):
    """The first errors of an import, at most 20, as `FILE:LINE: path: reason`. Empty if everything was imported."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0  # number of errors
        self.counts = Counter[str]()  # imported records by kind
        self._numbers: list[int] = []  # line numbers of the errors in this list

    def add(self, number: int, error: str) -> None:
        """Add an error in the line with a number. Keeps the errors with the lowest line numbers."""
        self.total += 1
        index = bisect.bisect(self._numbers, number)
        if index < MAX_ERRORS:
            self._numbers.insert(index, number)
            self.insert(index, error)
            del self._numbers[MAX_ERRORS:], self[MAX_ERRORS:]


class _Rollback(Exception):
    """Rolls back the transaction of an import with errors."""


class _References:
    """The identifiers in an import and the references to check, in a temporary database since there may be millions.

    The methods raise OSError if the disk is full.
    """

    def __init__(self) -> None:
        self._buffer: tuple[list[Row], list[Row]] = [], []  # rows for the tables `known` and `wanted`
        self._connection = db.open_file("")
        self._run("PRAGMA journal_mode = OFF")
        self._run("BEGIN")
        self._run("CREATE TABLE known (id TEXT, kind TEXT, PRIMARY KEY (id, kind)) WITHOUT ROWID")
        self._run("CREATE TABLE wanted (kind TEXT, id TEXT, PRIMARY KEY (kind, id)) WITHOUT ROWID")

    def add(self, kind: str, row: list[SqlValue]) -> None:
        """Add the identifier and the references of a record."""
        known, wanted = self._buffer
        known.append((row[0], kind))
        wanted.extend((column.refers_to, row[index]) for index, column in _references_of(kind) if row[index])
        if len(known) >= BATCH_SIZE:
            self._flush()

    def add_invalid(self, raw: bytes) -> None:
        """Add the identifiers in an invalid line, of any kind, so that references to it are not reported too."""
        for found in _IDENTIFIER.findall(raw):
            text = found.decode()
            self._buffer[0].extend(((text.lower(), ""), (text.upper(), "")))

    def drop_found(self) -> bool:
        """Drop the references to records in the import or in the database. Returns whether any reference remains."""
        self._flush()
        self._run(
            "DELETE FROM wanted WHERE EXISTS"
            " (SELECT 1 FROM known WHERE known.id = wanted.id AND known.kind IN (wanted.kind, ''))"
        )
        for kind, table in RECORDS.items():
            key, last = primary_key(table), ""
            select = "SELECT id FROM wanted WHERE kind = ? AND id > ? ORDER BY id LIMIT ?"
            while batch := [id for (id,) in self._run(select, (kind, last, BATCH_SIZE))]:
                last = batch[-1]
                rows: Query = table.select(key).where(key.in_(batch)).tuples()
                for (id,) in rows:
                    self._run("DELETE FROM wanted WHERE kind = ? AND id = ?", (kind, id))
        return bool(self._run("SELECT 1 FROM wanted LIMIT 1"))

    def is_missing(self, kind: str, id: str | None) -> bool:
        """Return whether a reference remains."""
        return bool(id and self._run("SELECT 1 FROM wanted WHERE kind = ? AND id = ?", (kind, id)))

    def close(self) -> None:
        self._connection.close()

    def _flush(self) -> None:
        for table, rows in zip(("known", "wanted"), self._buffer, strict=True):
            self._run(f"INSERT OR IGNORE INTO {table} VALUES (?, ?)", many=rows)
            rows.clear()

    def _run(self, sql: str, values: Sequence[object] = (), many: Sequence[Row] | None = None) -> list[Row]:
        try:
            if many is not None:
                self._connection.executemany(sql, many)
                return []
            return list(self._connection.execute(sql, values))
        except db.SqliteError as error:
            raise OSError(errno.ENOSPC, str(error)) from None


def import_files(paths: Iterable[Path | None], progress: Progress = lambda size: None) -> Report:
    """Import files (None is standard input). With any error, nothing is imported.

    `progress` is called twice with the size of each line in bytes: when it is read and when it is written.
    """
    report = Report()
    with tempfile.TemporaryFile() as spool, contextlib.closing(_References()) as references:
        _check(paths, spool, references, report, progress)
        if report:
            for number, error in _check_references(spool, references):
                report.add(number, error)
            return report
        with contextlib.suppress(_Rollback), db.bulk_write():
            for number, error in _check_references(spool, references):
                report.add(number, error)
            if not report:
                _write(spool, report, progress)
            if report:
                raise _Rollback
    return report


def export(write: Callable[[bytes], object], progress: Progress = lambda rows: None) -> None:
    """Export all records. The order of the lines depends on the rows alone."""
    with db.snapshot():
        for kind, table in RECORDS.items():
            source = f'"{table._meta.table_name}" ORDER BY {primary_key(table).sql}'
            rows = f"SELECT {db.row_json(table, export=True)} FROM {source}"
            for (row,) in db.database.execute_sql(rows):
                write(f'{{"{kind}":{row}}}\n'.encode())
                progress(1)


def count_rows() -> int:
    """Return the number of lines of an export."""
    return sum(table.select().count() for table in RECORDS.values())


def _lines(paths: Iterable[Path | None]) -> Iterator[tuple[str, bytes]]:
    """Yield every line with its location, FILE:LINE."""
    for path in paths:
        with sys.stdin.buffer if path is None else path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                yield f"{'-' if path is None else path}:{number}", raw


def _check(
    paths: Iterable[Path | None], spool: BinaryIO, references: _References, report: Report, progress: Progress
) -> None:
    """Check all lines. Writes their records to the spool, collects their references, and reports errors."""
    for number, location, raw, read_row in _read_ahead(paths):
        try:
            kind, row = read_row()
            if kind:
                spool.write(msgspec.json.encode(Record(number, location, len(raw), kind, row)) + b"\n")
                references.add(kind, row)
        except (BadRequest, ValueError) as error:
            report.add(number, f"{location}: {error}")
            references.add_invalid(raw)
        progress(len(raw))


def _read_ahead(
    paths: Iterable[Path | None],
) -> Iterator[tuple[int, str, bytes, ReadRow]]:
    """Yield every line, and a function that returns its kind and row. Passwords are hashed on all cores."""
    waiting: deque[tuple[int, str, bytes, ReadRow]] = deque()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, (location, raw) in enumerate(_lines(paths)):
            read_row: ReadRow = functools.partial(_read_row, raw)
            if import_lines.has_password(raw):
                read_row = pool.submit(read_row).result
            waiting.append((number, location, raw, read_row))
            if len(waiting) > LINES_AHEAD:
                yield waiting.popleft()
        yield from waiting


def _read_row(raw: bytes) -> tuple[str, list[SqlValue]]:
    """Return the kind and the row of a line; an empty kind for an empty line."""
    if not raw.strip():
        return "", []
    record = import_lines.read(raw)
    return record.kind, import_lines.row_of(record)


@functools.cache
def _references_of(kind: str) -> list[tuple[int, Column]]:
    """Return the columns of a kind that refer to other records, with their positions in a row."""
    columns = RECORDS[kind]._meta.sorted_fields
    return [(index, column) for index, column in enumerate(columns) if column.refers_to]


def _records(spool: BinaryIO) -> Iterator[Record]:
    """Yield the records in the spool, from the beginning."""
    spool.seek(0)
    return map(msgspec.json.Decoder(Record).decode, spool)


def _write(spool: BinaryIO, report: Report, progress: Progress) -> None:
    """Write all records, then recompute derived values. Reports the counts, or the first row that is not unique."""
    pending: dict[str, list[list[SqlValue]]] = defaultdict(list)
    changed_sessions: set[str] = set()
    counts = Counter[str]()
    unwritten_sessions = _prepare(spool)

    def insert(kind: str) -> None:
        nonlocal changed_sessions
        if RECORDS[kind] is Message:
            insert(SESSION)
            _complete_messages(pending[kind], unwritten_sessions)
        changed_sessions |= _insert(kind, pending[kind])
        if kind == SESSION:
            unwritten_sessions.subtract(row[0] for row in pending[kind])
        pending[kind].clear()

    for record in _records(spool):
        progress(record.size)
        counts[record.kind] += 1
        rows, unique = pending[record.kind], _unique_of(record.kind)
        if len(rows) == BATCH_SIZE or any(record.row[index] is not None for index, _ in unique):
            insert(record.kind)
        rows.append(record.row)
        if any(record.row[index] is not None for index, _ in unique):  # alone, so that an error names its line
            try:
                insert(record.kind)
            except peewee.IntegrityError:
                error = f"$.{record.kind}.{unique[0][1].name}: another {record.kind} has this value"
                report.add(record.number, f"{record.location}: {error}")
                return
    for kind in list(pending):
        insert(kind)
    recompute(changed_sessions)
    Avatar.recompute()
    Bot.recompute_pictures()
    FeedbackScreenshot.recompute()
    recompute_ratings()
    if counts:
        AuditLog.record("imported", OPERATOR, "", **counts)
    report.counts = counts


@functools.cache
def _unique_of(kind: str) -> list[tuple[int, Column]]:
    """Return the unique columns of a kind, with their positions in a row."""
    unique = RECORDS[kind].unique_members()
    return [(index, column) for index, column in enumerate(RECORDS[kind]._meta.sorted_fields) if column.name in unique]


def _prepare(spool: BinaryIO) -> Counter[str]:
    """Clear the unique values of the rows that will be replaced, so that two rows may exchange theirs.

    Returns the number of records of each chat session.
    """
    pending: dict[str, list[SqlValue]] = defaultdict(list)
    sessions = Counter[str]()
    for record in _records(spool):
        if record.kind == SESSION:
            sessions[record.row[0]] += 1
        if _unique_of(record.kind):
            pending[record.kind].append(record.row[0])
            if len(pending[record.kind]) == BATCH_SIZE:
                _release(record.kind, pending.pop(record.kind))
    for kind, identifiers in pending.items():
        _release(kind, identifiers)
    return sessions


def _complete_messages(rows: list[list[SqlValue]], unwritten_sessions: Counter[str]) -> None:
    """Fill in the columns of messages that come from their chat sessions.

    `recompute` does so at the end, but rows that grow then leave pages half empty. It remains for the messages of
    sessions that an import has not written yet, or will write again.
    """
    columns = Message._meta.sorted_fields
    session, *positions = map([column.name for column in columns].index, ("chat_session_id", *FROM_SESSION))
    identifiers = [id for id in {row[session] for row in rows} if not unwritten_sessions[id]]
    if not identifiers:
        return
    found = {id: values for id, *values in _sessions(*db.pad_values(identifiers)).rows()}
    for row in rows:
        for position, value in zip(positions, found.get(row[session], ()), strict=False):
            row[position] = row[position] or columns[position].db_value(value)


@db.compiled
def _sessions(*identifiers: str) -> Query:
    columns = [getattr(ChatSession, name) for name in FROM_SESSION.values()]
    found: Query = ChatSession.select(ChatSession.id, *columns).where(ChatSession.id.in_(identifiers))
    return found


def _release(kind: str, identifiers: list[SqlValue]) -> None:
    for _, column in _unique_of(kind):
        _cleared(*db.pad_values(identifiers), column=column).run()


@db.compiled
def _cleared(*identifiers: str, column: Column) -> Query:
    key = primary_key(column.model)
    cleared: Query = column.model.update({column: key}).where(key.in_(identifiers), column.is_null(False))
    return cleared


def _insert(kind: str, rows: list[list[SqlValue]]) -> set[str]:
    """Insert rows; rows with an existing identifier are replaced completely. Returns the chat sessions affected."""
    table = RECORDS[kind]
    names = [column.sql for column in table._meta.sorted_fields]
    # client_message_id is not replaced, so that sending stays idempotent after an import has replaced the message.
    replaced = [column.sql for column in table._meta.sorted_fields[1:] if column is not Message.client_message_id]
    assignments = ", ".join(f"{name} = excluded.{name}" for name in replaced)
    if not rows:
        return set()
    identifiers = [row[0] for row in rows]
    before = sessions_of(table, identifiers)
    if table is User:
        for row in rows:
            User.end_logins_if_password_differs(*(row[names.index(name)] for name in ('"id"', '"password_hash"')))
    on_conflict = f"ON CONFLICT ({names[0]}) DO UPDATE SET {assignments}"
    with table.reindexing(identifiers):
        db.database.bulk_insert(f'"{table._meta.table_name}"', names, rows, on_conflict)
    return before | sessions_of(table, identifiers)


def _check_references(spool: BinaryIO, references: _References) -> Iterator[tuple[int, str]]:
    """Yield an error for each reference to a record neither in the import nor in the database, with its line."""
    if not references.drop_found():
        return
    for record in _records(spool):
        for index, column in _references_of(record.kind):
            if references.is_missing(column.refers_to, record.row[index]):
                value = record.row[index]
                error = f"$.{record.kind}.{column.name}: refers to a missing record: {value}"
                yield record.number, f"{record.location}: {error}"
