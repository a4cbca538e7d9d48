"""Files and folders: who may work in a folder, and how a file gets there whole or not at all."""

import contextlib
import errno
import fcntl
import os
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path

PRIVATE = 0o600  # the mode of everything that holds rows


class Hold:
    """A hold on a folder for as long as this object lives: many may share it, or one has it alone.

    Processes that are forked meanwhile share it too. It is the folder that is locked and not the database, since
    closing any descriptor of a database would drop the locks that SQLite has on it in this process.
    """

    def __init__(self, folder: Path, *, alone: bool = False) -> None:
        """Raises BlockingIOError if others hold the folder, and one of the two wants it alone; OSError."""
        self.descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self.descriptor)
        fcntl.flock(self.descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)

    def share(self) -> None:
        """Let others hold the folder too, though nobody alone."""
        fcntl.flock(self.descriptor, fcntl.LOCK_SH)


@contextlib.contextmanager
def workshop(target: Path) -> Iterator[Path]:
    """An empty folder beside a file that is to be made; gone at the end, and what a killed run left in it at once.

    Raises BlockingIOError while somebody else makes the same file, and OSError.
    """
    folder = target.with_name(f".{target.name}.unfinished")
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        hold = Hold(folder, alone=True)
        held = os.fstat(hold.descriptor)
        if folder.is_symlink() or held.st_uid != os.geteuid():  # in /tmp, anybody may have made it
            raise PermissionError(errno.EPERM, "it is somebody else's", str(folder))
        with contextlib.suppress(FileNotFoundError):
            if folder.stat().st_ino == held.st_ino:
                break  # else whoever had it before has just removed it
    try:
        _empty(folder)
        hold.share()  # with a database that is opened in it
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put_in_place(made: Path, target: Path) -> None:
    """Give a finished file of the same disk its name, in place of whatever has it, so that a power cut leaves it."""
    sync(made)
    made.replace(target)
    sync(target.parent)


def sync(path: Path) -> None:
    """See that a file, or what a folder lists, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create(path: Path) -> None:
    """Make an empty file that only its owner may read, in place of one that is there."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE))


def _empty(folder: Path) -> None:
    for left in folder.iterdir():
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()
