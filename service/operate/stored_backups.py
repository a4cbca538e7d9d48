"""Backups in the data folder, which admins make, download and delete in the console.

A process of its own makes a backup, by the command `backup`: it neither blocks requests nor shares memory with them.
"""

import contextlib
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from service import clock, db
from service.db.files import BACKUP_FOLDER, PRIVATE, FolderLock, replace_durably, stored_backups, sync
from service.errors import BackupNotFound, NoSpaceForBackup
from service.operate.doctor import host
from service.settings import Settings

log = logging.getLogger("cx.server")

KEPT = 3  # backups; older ones are deleted when a newer one is complete
MAX_ERROR = 500  # characters

_NAME = re.compile(r"cx-(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)\.(\d{3})Z\.db", re.ASCII)
_UNFINISHED, _RUNNING, _FAILED = "unfinished.db", "running", "failed"
_COMMAND = "import app; app.main()"  # with the modules of this process


class StoredBackup(NamedTuple):
    """A complete backup."""

    name: str
    created_at: str  # when it was requested; it may have later writes
    size: int  # bytes


class BackupState(NamedTuple):
    """All complete backups, newest first, and the last attempt."""

    backups: list[StoredBackup]
    is_running: bool
    error: str  # why the last attempt failed; empty if it did not


def folder_of(settings: Settings) -> Path:
    """Return the folder of the backups, which exists once the first one was requested."""
    return settings.data / BACKUP_FOLDER


def state(settings: Settings) -> BackupState:
    """Return what is in the folder now."""
    folder = folder_of(settings)
    found = []
    for path in stored_backups(settings.data):
        match = _NAME.fullmatch(path.name)
        if match:
            with contextlib.suppress(FileNotFoundError):  # deleted in the meantime
                created_at = "{}-{}-{}T{}:{}:{}.{}Z".format(*match.groups())
                found.append(StoredBackup(path.name, created_at, path.stat().st_size))
    try:
        error = (folder / _FAILED).read_text("utf-8", "replace")
    except FileNotFoundError:
        error = ""
    return BackupState(sorted(found, reverse=True), _is_running(folder), error)


def begin(settings: Settings, record: Callable[[], object]) -> None:
    """Begin a backup, in a process of its own, unless one is being made. Raises NoSpaceForBackup or OSError.

    `record` is called before.
    """
    folder = folder_of(settings)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        lock = FolderLock(folder, exclusive=True)
    except BlockingIOError:
        return
    try:
        _require_space(folder)
        record()
        (folder / _FAILED).unlink(missing_ok=True)
        os.close(os.open(folder / _RUNNING, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE))
        name = f"cx-{re.sub('[-:]', '', clock.timestamp())}.db"
        threading.Thread(target=_make, args=(settings, folder, name, lock), name="backup", daemon=True).start()
    except BaseException:
        lock.release()
        raise


def open_backup(settings: Settings, name: str) -> BinaryIO:
    """Open a backup. It stays readable if it is deleted in the meantime. Raises BackupNotFound."""
    try:
        return _path_of(settings, name).open("rb")
    except FileNotFoundError:
        raise BackupNotFound from None


def delete(settings: Settings, name: str) -> None:
    """Delete a backup. Raises BackupNotFound."""
    path = _path_of(settings, name)
    path.unlink(missing_ok=True)
    sync(path.parent)


def _path_of(settings: Settings, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise BackupNotFound
    return folder_of(settings) / name


def _is_running(folder: Path) -> bool:
    """Return whether a process of this service makes a backup. One that was killed has left its file, but no lock."""
    if not (folder / _RUNNING).exists():
        return False
    try:
        FolderLock(folder).release()
    except BlockingIOError:
        return True
    return False


def _require_space(folder: Path) -> None:
    """Raise NoSpaceForBackup if the disk would be full afterwards, so that the service could not write."""
    free, files = host.free_space(folder)
    sizes = db.database.sizes()
    needed = sizes.get("database", 0) + sizes.get("journal", 0) + host.MIN_FREE
    if free < needed or not files:
        raise NoSpaceForBackup(f"The backup needs {needed:,} bytes, but only {free:,} are free: free some disk space.")


def _make(settings: Settings, folder: Path, name: str, lock: FolderLock) -> None:
    """Make a backup, and store the error if that fails. Holds the lock until then."""
    try:
        error = _run_command(settings, folder / _UNFINISHED)
        if not error:
            replace_durably(folder / _UNFINISHED, folder / name)
            for old in state(settings).backups[KEPT:]:
                (folder / old.name).unlink(missing_ok=True)
    except OSError as failure:
        error = str(failure)
    try:
        if error:
            log.error("no backup: %s", error)
            (folder / _FAILED).write_text(error)
        (folder / _RUNNING).unlink(missing_ok=True)
    except OSError as failure:
        log.error("the state of a backup cannot be stored: %s", failure)
    lock.release()


def _run_command(settings: Settings, target: Path) -> str:
    """Run the command `backup`. Returns its error, empty if there is none."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CX_")}
    own = {"CX_DATA": str(settings.data.absolute()), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    if settings.database:
        own["CX_DATABASE"] = settings.database  # not a flag: it may contain a password
    done = subprocess.run(
        [sys.executable, "-P", "-c", _COMMAND, "backup", "--force", str(target.absolute())],
        env=inherited | own,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"status {done.returncode}"]
    return lines[-1].removeprefix("cx-service: ")[:MAX_ERROR]
