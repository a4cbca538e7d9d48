"""Import and export as JSON Lines (contract, section 9): one record a line, all of a run or nothing.

Input is read twice, first to find every fault and to hash passwords, then to write, so that the write lock is held no
longer than the rows need. What comes in through a pipe is therefore kept in a temporary file.
"""

import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import peewee

from service import db
from service.auth.passwords import hash_password
from service.decoding import convert, read_json
from service.errors import BadRequest
from service.fields import Column, Flag, members, primary_key, row_json
from service.models import RECORDS
from service.models.chats import settle

FAULTS_SHOWN = 20
BATCH = 500

Progress = Callable[[int], None]


class Line(NamedTuple):
    """A record and where it stands."""

    place: str  # FILE:LINE
    kind: str
    given: dict[str, Any]


class _Faulty(Exception):
    """Undoes the transaction of an import that found faults."""


def take_in(paths: Iterable[Path | None], progress: Progress = lambda size: None) -> list[str]:
    """Import files (None is standard input): the faults, at most 20, as `FILE:LINE: path: reason`; none means done.

    `progress` is told the bytes of each line, twice over in the course of a run.
    """
    with ExitStack() as stack:
        files = [_open(path, stack) for path in paths]
        faults: list[str] = []
        hashes: dict[str, str] = {}
        for line in _lines(files, progress, faults):
            try:
                if "password" in line.given:
                    hashes[line.place] = hash_password(line.given["password"])
                _row(line, hashes)
            except ValueError as error:
                faults.append(f"{line.place}: $.{line.kind}: {error}")
            if len(faults) >= FAULTS_SHOWN:
                break
        try:
            if not faults:
                with db.write():
                    _write(files, progress, hashes, faults)
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
            rows = f"SELECT {row_json(table, export=True)} FROM {named}"
            for (row,) in db.database.execute_sql(rows):
                write(f'{{"{kind}":{row}}}\n'.encode())
                progress(1)


def count_rows() -> int:
    """How many lines an export has."""
    return sum(table.select().count() for table in RECORDS.values())


def _open(path: Path | None, stack: ExitStack) -> tuple[str, BinaryIO]:
    """A file that can be read twice, and its name."""
    if path is None:
        spool = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        shutil.copyfileobj(sys.stdin.buffer, spool)
        return "-", spool
    return str(path), stack.enter_context(path.open("rb"))


def _lines(files: list[tuple[str, BinaryIO]], progress: Progress, faults: list[str]) -> Iterator[Line]:
    """Every readable record from the beginning; what is not readable goes to `faults`."""
    for name, file in files:
        file.seek(0)
        for number, raw in enumerate(file, 1):
            progress(len(raw))
            place = f"{name}:{number}"
            if not raw.strip():
                continue
            try:
                record = read_json(raw)
                if len(record) != 1 or next(iter(record)) not in RECORDS:
                    known = ", ".join(RECORDS)
                    raise BadRequest(f"$: expected one member, which names the record: {known}")
                kind = next(iter(record))
                yield Line(place, kind, _present(getattr(convert(record, _accepted(kind)), kind)))
            except BadRequest as fault:
                faults.append(f"{place}: {fault}")
                if len(faults) >= FAULTS_SHOWN:
                    return


_structs: dict[str, Any] = {}


def _accepted(kind: str) -> type[msgspec.Struct]:
    """A line of a kind: one member, which may hold every member of its table and no other."""
    if kind not in _structs:
        table = RECORDS[kind]
        accepts = {name: column.accepts for name, column in members(table, export=True).items()} | table.also_accepts
        fields = [(name, what | msgspec.UnsetType, msgspec.UNSET) for name, what in accepts.items()]
        record = msgspec.defstruct(kind, fields, forbid_unknown_fields=True)
        _structs[kind] = msgspec.defstruct("Line", [(kind, record)])
    return _structs[kind]  # type: ignore[no-any-return]


def _present(read: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(read).items() if value is not msgspec.UNSET}


def _row(line: Line, hashes: dict[str, str]) -> dict[str, Any]:
    """The columns of a record. Raises ValueError."""
    table = RECORDS[line.kind]
    given = dict(line.given)
    if given.pop("password", None) is not None:
        given["password_hash"] = hashes[line.place]
    given = table.adopt(given)
    row: dict[str, Any] = {}
    for column in table._meta.sorted_fields:
        name = column.name
        if name not in given:
            if column.default is None and not column.null:
                raise ValueError(f"missing required member {name}")
            row[name] = column.default() if callable(column.default) else column.default
            continue
        try:
            row[name] = column.store(given[name]) if isinstance(column, Column) else given[name]
        except (ValueError, msgspec.ValidationError) as error:
            raise ValueError(f"{name}: {error}") from None
    for name, flag in members(table).items():
        if isinstance(flag, Flag) and given.get(name) and row[flag.timestamp] is None:
            row[flag.timestamp] = row["created_at"]
    return row


def _write(files: list[tuple[str, BinaryIO]], progress: Progress, hashes: dict[str, str], faults: list[str]) -> None:
    """Write every record, then check references and mend what is derived."""
    waiting: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    touched: set[str] = set()
    for line in _lines(files, progress, faults):
        row = _row(line, hashes)
        if line.kind in ("chat_session", "message"):
            touched.add(row["chat_session_id" if line.kind == "message" else "id"])
        waiting[line.kind].append(tuple(row.values()))
        unique = any(column.unique for column in RECORDS[line.kind]._meta.sorted_fields)
        if unique or len(waiting[line.kind]) >= BATCH:
            try:
                _insert(line.kind, waiting.pop(line.kind))
            except peewee.IntegrityError as error:
                faults.append(f"{line.place}: $.{line.kind}: {error}")
                return
    for kind, rows in waiting.items():
        _insert(kind, rows)
    faults += _dangling(files)
    if not faults:
        settle(touched)


def _insert(kind: str, rows: list[tuple[Any, ...]]) -> None:
    """Insert rows; those whose identifier exists are replaced as a whole."""
    table = RECORDS[kind]
    names = [column.sql for column in table._meta.sorted_fields]
    marks = ", ".join([db.database.param] * len(names))
    replace = ", ".join(f"{name} = excluded.{name}" for name in names[1:])
    sql = (
        f'INSERT INTO "{table._meta.table_name}" ({", ".join(names)}) VALUES ({marks}) '
        f"ON CONFLICT ({names[0]}) DO UPDATE SET {replace}"
    )
    db.database.cursor().executemany(sql, rows)


def _dangling(files: list[tuple[str, BinaryIO]]) -> list[str]:
    """The lines that refer to rows which are not there."""
    missing: dict[tuple[str, str], set[str]] = {}
    for kind, table in RECORDS.items():
        for column in table._meta.sorted_fields:
            if column.refers_to:
                parents = RECORDS[column.refers_to].alias()
                lost = table.select(column).distinct().where(column.is_null(False))
                lost = lost.where(~peewee.fn.EXISTS(parents.select(parents.id).where(parents.id == column)))
                rows: Any = lost.limit(1000).tuples()
                found = {value for (value,) in rows}
                if found:
                    missing[kind, column.name] = found
    if not missing:
        return []
    faults = []
    for line in _lines(files, lambda size: None, []):
        for name, value in line.given.items():
            if isinstance(value, str) and value.lower() in {v.lower() for v in missing.get((line.kind, name), ())}:
                faults.append(f"{line.place}: $.{line.kind}.{name}: refers to nothing: {value}")
    return faults
