"""Backup and restore. A backup is one file with all data of the service; it can be made while the service runs.

A backup is always a `service.db`, also of a PostgreSQL database, so that it can be restored into either kind.
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

from service import clock, db
from service.db import migrations
from service.db.engine import Connection, Engine
from service.db.files import FolderLock, create, replace_durably, sync, work_folder
from service.models import TABLES
from service.operate import database_copy

CHUNK = 1 << 20  # bytes
HEADER = b"SQLite format 3\0"

Advance = Callable[[int], None]  # for completed rows, or bytes
Progress = Callable[[int], Advance]  # from their total


class BackupError(Exception):
    """The backup or the restore has failed. The text is one sentence for the operator."""


class Contents(NamedTuple):
    """The contents of a backup that was checked."""

    schema: int
    rows: int
    messages: int
    size: int  # bytes
    digest: str  # SHA-256, hexadecimal


def back_up(source: Engine, target: Path | BinaryIO, progress: Progress, *, replace: bool = False) -> Contents:
    """Write a backup of a database to a file or a stream. Returns its contents.

    The file appears complete or not at all. An existing file is replaced only with `replace`. Raises BackupError.
    """
    if not isinstance(target, Path):
        with _explained("there is no backup"), tempfile.TemporaryDirectory() as folder:
            contents = _write_backup(source, Path(folder, db.FILE_NAME), progress)
            with Path(folder, db.FILE_NAME).open("rb") as file:
                shutil.copyfileobj(file, target, CHUNK)
            target.flush()
            return contents
    with _explained(f"cannot write {target}"):
        resolved = target.resolve()
        _check_target(resolved, source, replace)
    with _explained(f"there is no backup in {target}"), work_folder(resolved) as folder:
        contents = _write_backup(source, folder / db.FILE_NAME, progress)
        _check_target(resolved, source, replace)  # it may have been created in the meantime
        replace_durably(folder / db.FILE_NAME, resolved)
        return contents


def restore(source: Path | BinaryIO, folder: Path) -> tuple[Contents, Path | None]:
    """Replace the database in a folder by a backup. Returns its contents, and the path of the former database.

    At any time, the folder contains the old or the new database. Raises BackupError, and then nothing has changed.
    """
    path = folder / db.FILE_NAME
    with _explained(f"nothing was restored into {folder}"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock = FolderLock(folder, exclusive=True)
        except BlockingIOError:
            raise BackupError("the database is in use: stop the service, and wait for other commands") from None
        if isinstance(source, Path) and path.exists() and source.samefile(path):
            raise BackupError(f"{source} is the database to be replaced")
        with work_folder(path) as temporary:
            restored = temporary / db.FILE_NAME
            contents = _read_backup(source, restored)
            _set_journal(restored, "wal")
            sync(restored)
            former = _save_former(path)
            replace_durably(restored, path)
        del lock
        return contents, former


def restore_into(target: Engine, source: Path | BinaryIO, progress: Progress) -> Contents:
    """Restore a backup into an empty PostgreSQL database. Returns its contents.

    Makes the target the database of this process. Raises BackupError, and then nothing has changed.
    """
    with _explained(f"nothing was restored into {target.name}"), tempfile.TemporaryDirectory() as folder:
        contents = _read_backup(source, Path(folder, db.FILE_NAME))
        restored = db.connect(Path(folder))
        with restored.disconnecting(), target.disconnecting():
            db.database.initialize(restored)
            migrations.migrate(save_copy=False)
            database_copy.copy(restored, target, progress(2 * database_copy.count_rows(restored)))
        return contents


def examine(path: Path, advance: Advance = lambda size: None) -> Contents:
    """Check that a file without a journal is an undamaged database of this service, with a known schema.

    `advance` is called with numbers of bytes that were read, in all about twice the size of the file. Raises
    BackupError or DatabaseUnusable.
    """
    with closing(db.open_file(f"{path.absolute().as_uri()}?immutable=1")) as connection:
        connection.execute("PRAGMA trusted_schema = 0")
        connection.execute("PRAGMA cell_size_check = 1")

        def number(sql: str) -> int:
            return int((connection.execute(sql).fetchone() or [0])[0])

        found = connection.execute("SELECT type, name, sql FROM sqlite_schema").fetchall()
        tables = {name for kind, name, _ in found if kind == "table"}
        known = ("table", "index")
        unknown = [
            f"{kind} {name}" for kind, name, sql in found if kind not in known and sql not in migrations.TRIGGERS
        ]
        if "schema_version" not in tables or unknown:
            details = "".join(f", but has the {item}" for item in unknown)
            raise BackupError(f"it is not a database of this service{details}")
        schema = migrations.version_in(connection.execute("SELECT version FROM schema_version").fetchone())
        if schema > len(migrations.STEPS):
            raise BackupError(f"it has schema {schema}, which is newer than this program: use a newer version")
        damage = _damage(connection, advance)
        if damage != "ok":
            raise BackupError(f"it is damaged: {damage}")
        missing = connection.execute("PRAGMA foreign_key_check").fetchone()
        if missing:
            table, row, parent, _ = map(str, missing)
            raise BackupError(f'it is damaged: row {row} of "{table}" refers to a missing row of "{parent}"')
        if number("SELECT count(*) FROM login_session") and not number("SELECT count(*) FROM signing_key"):
            raise BackupError("it has login sessions, but no signing key")
        current = {table._meta.table_name for table in TABLES}
        names = {name for name in map(str, tables) if migrations.TABLES.get(name, name) in current}
        rows = sum(number(f'SELECT count(*) FROM "{name}"') for name in names)
        messages = number("SELECT count(*) FROM message")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, hashlib.sha256).hexdigest()
    return Contents(schema, rows, messages, path.stat().st_size, digest)


def _check_target(path: Path, source: Engine, replace: bool) -> None:
    """Check that a backup may be written to a path: not to a folder, a device or the database itself.

    An existing file is accepted only with `replace`. Raises BackupError or OSError.
    """
    if path.exists():
        if not stat.S_ISREG(path.stat().st_mode):
            raise BackupError("it exists, and is not a regular file")
        if isinstance(source, db.Sqlite) and path.samefile(source.name):
            raise BackupError("that is the database itself")
        if not replace:
            raise BackupError("it exists; name another file, or replace it with --force")
    elif not path.parent.is_dir():
        raise BackupError("no such folder")


def _write_backup(source: Engine, path: Path, progress: Progress) -> Contents:
    """Write a backup to a new file. Raises BackupError.

    A source other than SQLite becomes the database of this process.
    """
    if isinstance(source, db.Sqlite):
        size = Path(source.name).stat().st_size
        advance = progress(3 * size)
        source.write_copy(path, advance)
        contents = examine(path, advance)
        advance(3 * size)  # complete, however much was read
        return contents
    database_copy.check_schema(source)
    copy = db.connect(path.parent, create=True)
    with copy.disconnecting():
        database_copy.copy(source, copy, progress(2 * database_copy.count_rows(source)))
    _set_journal(path, "delete")
    return examine(path)


def _read_backup(source: Path | BinaryIO, path: Path) -> Contents:
    """Copy a backup, with its journal if there is one, to a new file, and check the result. Raises BackupError."""
    create(path)
    if isinstance(source, Path):
        copies = {source: path, source.with_name(f"{source.name}-wal"): path.with_name(f"{path.name}-wal")}
        before = list(map(_file_version, copies))
        for original, copy in copies.items():
            if original == source or original.exists():
                shutil.copyfile(original, copy)
        if list(map(_file_version, copies)) != before:
            raise BackupError(f"{source} is in use: make a backup of it, and restore that")
    else:
        with path.open("wb") as file:
            shutil.copyfileobj(source, file, CHUNK)
    _set_journal(path, "delete")  # also applies the journal
    return examine(path)


def _file_version(path: Path) -> tuple[int, ...]:
    """Return a value that changes when the file is written; empty if there is no file."""
    if not path.exists():
        return ()
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _set_journal(path: Path, mode: str) -> None:
    """Apply the journal of a file that is not in use, and set its journal mode."""
    with closing(db.open_file(path, timeout=1)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()


def _save_former(path: Path) -> Path | None:
    """Save the database under another name, with its journal if that cannot be applied. Raises BackupError."""
    journals = [path.with_name(f"{path.name}{suffix}") for suffix in ("-wal", "-shm")]
    former = None
    if path.exists() and path.stat().st_size:
        try:
            with path.open("rb") as file:
                is_sqlite = file.read(len(HEADER)) == HEADER
            if is_sqlite:  # for any other file, SQLite would delete the journal
                _set_journal(path, "delete")
        except db.SqliteDamage:
            pass  # a damaged file is saved unchanged
        except db.SqliteError as error:
            raise BackupError(f"{path.name} is in use by another program, or cannot be written: {error}") from None
        former = path.with_name(f"{path.name}.before-{re.sub('[-:]', '', clock.timestamp())}")
        _link(path, former)
        if journals[0].exists():
            _link(journals[0], former.with_name(f"{former.name}-wal"))
        sync(path.parent)
    for journal in journals:  # before the new file is moved into place: SQLite would apply the old journal to it
        journal.unlink(missing_ok=True)
    sync(path.parent)
    return former


def _link(path: Path, name: Path) -> None:
    """Link a file to a second name, or copy it on file systems without hard links."""
    try:
        name.hardlink_to(path)
    except OSError:
        shutil.copy2(path, name)
        sync(name)


def _damage(connection: Connection, advance: Advance) -> str:
    """Return the first damage of a file that SQLite reports, `ok` without any."""
    try:
        with db.reporting_reads(connection, advance):
            return " ".join(connection.execute("PRAGMA integrity_check(1)").fetchone()[0].split())
    except db.SqliteError as error:
        if "vtable constructor failed" in str(error):  # a damaged search index
            return str(error)
        raise


@contextmanager
def _explained(summary: str) -> Iterator[None]:
    """Convert errors to BackupError: the summary, a colon and the reason."""
    try:
        yield
    except BlockingIOError as error:
        raise BackupError(f"{summary}: another command is writing it") from error
    except OSError as error:
        path = f"{error.filename}: " if error.filename else ""
        raise BackupError(f"{summary}: {path}{error.strerror}") from None
    except (BackupError, database_copy.CopyError, db.DatabaseUnusable) as error:
        raise BackupError(f"{summary}: {error}") from None
    except (peewee.DatabaseError, db.SqliteError) as error:
        raise BackupError(f"{summary}: {db.reason(error)}") from None
