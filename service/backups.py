"""Backups: one file that is the whole system, made while the service runs, and put back.

A backup is a `service.db`, whichever database it was made from, so that one kind of file can be restored anywhere.
"""

import hashlib
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import peewee

from service import clock, copying, db, migrations
from service.db.engine import Engine
from service.db.files import Hold, create, put_in_place, sync, workshop
from service.models import TABLES

CHUNK = 1 << 20  # bytes
HEADER = b"SQLite format 3\0"

Progress = Callable[[int], Callable[[int], None]]  # is told how many rows come; what it gives, how many have come


class Unsound(Exception):
    """There is no backup, or nothing was restored; the text is one sentence for the operator."""


class Contents(NamedTuple):
    """What a file holds that was found to be whole."""

    schema: int
    rows: int
    messages: int
    size: int  # bytes
    digest: str  # SHA-256, as hexadecimal digits


def back_up(source: Engine, target: Path | BinaryIO, progress: Progress, *, replace: bool = False) -> Contents:
    """Write a backup of a database into a file, or into a stream; what it holds. The file appears whole or not at all.

    Only with `replace` does it take the place of a file that exists. Raises Unsound.
    """
    if not isinstance(target, Path):
        with _told("there is no backup"), tempfile.TemporaryDirectory() as folder:
            contents = _make(source, Path(folder, db.FILE_NAME), progress)
            with Path(folder, db.FILE_NAME).open("rb") as file:
                shutil.copyfileobj(file, target, CHUNK)
            target.flush()
            return contents
    with _told(f"cannot write {target}"):
        resolved = target.resolve()
        _check_target(resolved, source, replace)
    with _told(f"there is no backup in {target}"), workshop(resolved) as folder:
        contents = _make(source, folder / db.FILE_NAME, progress)
        _check_target(resolved, source, replace)  # it may exist by now
        put_in_place(folder / db.FILE_NAME, resolved)
        return contents


def restore(given: Path | BinaryIO, folder: Path) -> tuple[Contents, Path | None]:
    """Put a backup in place of the database in a folder; what it holds, and where the old one is kept.

    At every moment the folder has the old database or the new one. Raises Unsound, and nothing has changed.
    """
    path = folder / db.FILE_NAME
    with _told(f"nothing was restored into {folder}"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            alone = Hold(folder, alone=True)
        except BlockingIOError:
            raise Unsound("somebody uses it: stop the service, and wait for other commands") from None
        if isinstance(given, Path) and path.exists() and given.samefile(path):
            raise Unsound(f"{given} is what would be replaced")
        with workshop(path) as room:
            made = room / db.FILE_NAME
            contents = _take(given, made)
            _set_journal(made, "wal")
            sync(made)
            kept = _keep(path)
            put_in_place(made, path)
        del alone
        return contents, kept


def restore_into(target: Engine, given: Path | BinaryIO, progress: Progress) -> Contents:
    """Put a backup into an empty database that is no file; what it holds.

    From here on the target is the database of this process. Raises Unsound, and nothing has changed.
    """
    with _told(f"nothing was restored into {target.name}"), tempfile.TemporaryDirectory() as folder:
        contents = _take(given, Path(folder, db.FILE_NAME))
        source = db.connect(Path(folder))
        with source.until_closed(), target.until_closed():
            db.database.initialize(source)
            migrations.migrate(keeping=False)
            copying.copy(source, target, progress(2 * copying.count_rows(source)))
        return contents


def examine(path: Path) -> Contents:
    """See that a file without a journal is a whole database of this service, of a known schema.

    Raises Unsound or Unusable.
    """
    with closing(db.sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as connection:
        connection.execute("PRAGMA trusted_schema = 0")
        connection.execute("PRAGMA cell_size_check = 1")

        def number(sql: str) -> int:
            return int((connection.execute(sql).fetchone() or [0])[0])

        found = connection.execute("SELECT type, name, sql FROM sqlite_schema").fetchall()
        tables = {name for kind, name, _ in found if kind == "table"}
        others = ((kind, name) for kind, name, sql in found if sql not in migrations.TRIGGERS)
        strange = [f"{kind} {name}" for kind, name in others if kind not in ("table", "index")]
        if "schema_version" not in tables or strange:
            raise Unsound(f"it is no database of this service{''.join(f', but has the {what}' for what in strange)}")
        schema = migrations.version_in(connection.execute("SELECT version FROM schema_version").fetchone())
        if schema > len(migrations.STEPS):
            raise Unsound(f"it has schema {schema}, newer than this program knows; use a newer one")
        damage = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if damage != "ok":
            raise Unsound(f"it is damaged: {' '.join(damage.split())}")
        lost = connection.execute("PRAGMA foreign_key_check").fetchone()
        if lost:
            raise Unsound(f'it is damaged: row {lost[1]} of "{lost[0]}" refers to a "{lost[2]}" that is not there')
        if number("SELECT count(*) FROM login_session") and not number("SELECT count(*) FROM signing_key"):
            raise Unsound("it has logins and no signing key")
        ours = tables.intersection(table._meta.table_name for table in TABLES)
        rows = sum(number(f'SELECT count(*) FROM "{name}"') for name in ours)
        messages = number("SELECT count(*) FROM message")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, hashlib.sha256).hexdigest()
    return Contents(schema, rows, messages, path.stat().st_size, digest)


def _check_target(place: Path, source: Engine, replace: bool) -> None:
    """Check that a backup can have a name: in a folder, and not that of a file unless it may be replaced.

    Never that of a folder, a device or the database itself. Raises Unsound or OSError.
    """
    if place.exists():
        if not stat.S_ISREG(place.stat().st_mode):
            raise Unsound("it exists, and is not a file")
        if isinstance(source, db.Sqlite) and place.samefile(source.name):
            raise Unsound("that is the database itself")
        if not replace:
            raise Unsound("it exists; name another file, or replace it with --force")
    elif not place.parent.is_dir():
        raise Unsound("no such folder")


def _make(source: Engine, made: Path, progress: Progress) -> Contents:
    """Write a backup; what it holds. Not from a file, it then is the database of this process. Raises Unsound."""
    if isinstance(source, db.Sqlite):
        source.write_copy(made)
    else:
        copying.see_that_it_is_current(source)
        copy = db.connect(made.parent, create=True)
        with copy.until_closed():
            copying.copy(source, copy, progress(2 * copying.count_rows(source)))
        _set_journal(made, "delete")
    return examine(made)


def _take(given: Path | BinaryIO, made: Path) -> Contents:
    """Copy a backup, with a journal that lies beside it; what it holds. Raises Unsound."""
    create(made)
    if isinstance(given, Path):
        files = {given: made, given.with_name(f"{given.name}-wal"): made.with_name(f"{made.name}-wal")}
        before = list(map(_version, files))
        for source, copy in files.items():
            if source == given or source.exists():
                shutil.copyfile(source, copy)
        if list(map(_version, files)) != before:
            raise Unsound(f"{given} is being written to: make a backup of it, and restore that")
    else:
        with made.open("wb") as file:
            shutil.copyfileobj(given, file, CHUNK)
    _set_journal(made, "delete")  # which takes in what the journal holds
    return examine(made)


def _version(path: Path) -> tuple[int, ...]:
    """Something that differs when a file has been written to."""
    if not path.exists():
        return ()
    about = path.stat()
    return about.st_ino, about.st_size, about.st_mtime_ns


def _set_journal(path: Path, mode: str) -> None:
    """Take in the journal of a file that nobody else uses, and name the kind that it is to have from now on."""
    with closing(db.sqlite3.connect(path, timeout=1)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()


def _keep(path: Path) -> Path | None:
    """Keep a database, with its journal where that cannot be taken in, under another name. Raises Unsound."""
    journals = [path.with_name(f"{path.name}{suffix}") for suffix in ("-wal", "-shm")]
    kept = None
    if path.exists() and path.stat().st_size:
        try:
            with path.open("rb") as file:
                is_ours = file.read(len(HEADER)) == HEADER
            if is_ours:  # else SQLite would make nothing of the file, but delete its journal
                _set_journal(path, "delete")
        except db.sqlite3.OperationalError as error:
            raise Unsound(f"{path.name} is used by another program, or cannot be written: {error}") from None
        except db.sqlite3.DatabaseError:
            pass  # it is damaged, and stays as it lies
        kept = path.with_name(f"{path.name}.before-{re.sub('[-:]', '', clock.timestamp())}")
        _link(path, kept)
        if journals[0].exists():
            _link(journals[0], kept.with_name(f"{kept.name}-wal"))
        sync(path.parent)
    for journal in journals:  # before the new file comes, which would take in what they hold
        journal.unlink(missing_ok=True)
    sync(path.parent)
    return kept


def _link(path: Path, name: Path) -> None:
    """Give a file a second name, or make a copy where there is only one to a file."""
    try:
        name.hardlink_to(path)
    except OSError:
        shutil.copy2(path, name)
        sync(name)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Tell whatever goes wrong as the reason of something. Raises Unsound."""
    try:
        yield
    except BlockingIOError as error:
        raise Unsound(f"{what}: another command is making it just now") from error
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise Unsound(f"{what}: {place}{error.strerror}") from None
    except (Unsound, copying.Uncopyable, db.Unusable) as error:
        raise Unsound(f"{what}: {error}") from None
    except (peewee.DatabaseError, db.sqlite3.Error) as error:
        raise Unsound(f"{what}: {db.reason(error)}") from None
