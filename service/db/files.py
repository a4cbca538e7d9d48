"""Files and folders of the database: locks on folders, and files that are replaced atomically."""

import contextlib
import errno
import fcntl
import os
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path

PRIVATE = 0o600  # the mode of all files that contain rows
BACKUP_FOLDER = "backups"  # in the data folder


class FolderLock:
    """A lock on a folder, shared or exclusive, which is held as long as this object exists.

    Forked processes share the lock. The folder is locked rather than the database, because closing any descriptor of a
    database file would release the locks that SQLite holds on it in this process.
    """

    def __init__(self, folder: Path, *, exclusive: bool = False) -> None:
        """Raise BlockingIOError if a lock of another process conflicts, and OSError."""
        self.descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.release = weakref.finalize(self, os.close, self.descriptor)
        fcntl.flock(self.descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)

    def share(self) -> None:
        """Change an exclusive lock into a shared one."""
        fcntl.flock(self.descriptor, fcntl.LOCK_SH)


class ServingLock:
    """The lock of a service on its data folder, exclusive or shared with other services, until `release`.

    It is on a file of its own, because every other command also locks the folder. The kernel releases it when the
    process ends, so that the file has no meaning by itself. A forked process has a copy, and must release it as well.
    """

    def __init__(self, folder: Path, *, is_shared: bool) -> None:
        """Raise BlockingIOError if a lock of another process conflicts, and OSError."""
        self.descriptor = os.open(folder / "service.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        try:
            fcntl.flock(self.descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Release the lock of this process. In a forked process, the lock of the others remains."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


@contextlib.contextmanager
def work_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside the file `target`, removed at the end of the block.

    Files of an interrupted run are removed at the start. Raises BlockingIOError while another process writes the same
    file, and OSError.
    """
    folder = target.with_name(f".{target.name}.unfinished")
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        lock = FolderLock(folder, exclusive=True)
        locked = os.fstat(lock.descriptor)
        if folder.is_symlink() or locked.st_uid != os.geteuid():  # in /tmp, another user may have created it
            raise PermissionError(errno.EPERM, "it belongs to another user", str(folder))
        with contextlib.suppress(FileNotFoundError):
            if folder.stat().st_ino == locked.st_ino:
                break  # otherwise the process that held the lock before has just removed the folder
    try:
        _empty(folder)
        lock.share()  # so that a database in the folder can be opened
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def stored_backups(folder: Path) -> list[Path]:
    """Return the complete backups that a service has stored in its data folder, oldest first."""
    return sorted((folder / BACKUP_FOLDER).glob("cx-*.db"))


def replace_durably(source: Path, target: Path) -> None:
    """Rename a finished file of the same file system to `target`, so that it survives a power failure."""
    sync(source)
    source.replace(target)
    sync(target.parent)


def sync(path: Path) -> None:
    """Write a file, or the entries of a folder, to the disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create(path: Path) -> None:
    """Create an empty file that only its owner may read. Replaces an existing file."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE))


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
