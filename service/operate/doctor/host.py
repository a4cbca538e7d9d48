"""Checks of the host: the data folder and its files, the disk, the program, the address."""

import ipaddress
import os
import pwd
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from service import db
from service.db.files import BACKUP_FOLDER, stored_backups
from service.operate.doctor.findings import Finding, error, ok, warning
from service.settings import ListenAddress, Settings

MIB = 1 << 20
LARGE_JOURNAL = 256 * MIB  # four times the size that a checkpoint leaves
MIN_FREE = 64 * MIB  # bytes of free disk space
MAX_COPY_AGE = 30  # days until a saved copy of the database is reported


def free_space(folder: Path) -> tuple[int, int]:
    """Return the free bytes on the disk of a folder, and the number of files that can be created. Tests replace it."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize, disk.f_favail if disk.f_files else 1


def check_folder(settings: Settings) -> Iterator[Finding]:
    """Check that the data folder exists, is private and writable, and that all files in it have the same owner."""
    folder = settings.data
    if not folder.is_dir():
        yield error("folder", f"{folder} does not exist: name another with --data, or create it with `serve`")
        return
    status = folder.stat()
    if status.st_mode & 0o077:
        yield warning("folder", f"other users can list {folder}: chmod 700 {folder}")
    if not os.access(folder, os.W_OK):
        yield error("folder", f"{folder} is not writable for {_name(os.geteuid())}, or its disk is read-only")
    is_private = True
    for file in sorted(folder.glob(f"{db.FILE_NAME}*")):
        mode, owner = file.stat().st_mode, file.stat().st_uid
        if file.is_file() and mode & 0o077:
            is_private = False
            yield error(
                "folder", f"other users can read {file}, which holds keys and password hashes: chmod 600 {file}"
            )
        if owner != status.st_uid:
            is_private = False
            owners = f"{_name(owner)}, but the folder to {_name(status.st_uid)}"
            yield error("folder", f"{file} belongs to {owners}: chown it, and run commands as that user")
    if is_private:
        yield ok("folder", f"only the owner can read the files in {folder}")


def check_leftovers(settings: Settings) -> Iterator[Finding]:
    """Report saved copies of the database, unfinished files of interrupted commands, and a large journal."""
    folder = settings.data
    for path in db.saved_copies(folder) + stored_backups(folder):
        age = int((time.time() - path.stat().st_mtime) / 86400)
        text = f"{path} ({path.stat().st_size:,} bytes, {age} days old) is a saved copy, with content purged since"
        yield warning("leftovers", f"{text}: delete it") if age > MAX_COPY_AGE else ok("leftovers", text)
    backups = folder / BACKUP_FOLDER
    unfinished = [*backups.glob(".*.unfinished"), *folder.glob(".*.unfinished"), *folder.glob("*.unfinished")]
    for path in sorted([*unfinished, *folder.glob(".*.partial")]):
        yield warning("leftovers", f"{path} is from an interrupted command: delete it, unless a command is running")
    journal = folder / f"{db.FILE_NAME}-wal"
    if journal.is_file() and journal.stat().st_size > LARGE_JOURNAL:
        text = f"{journal} has {journal.stat().st_size:,} bytes: a process holds a long read transaction"
        yield warning("leftovers", f"{text}; restart the service")


def check_disk(settings: Settings) -> Iterator[Finding]:
    """Check the free disk space. Backups, purges and migrations need the size of the database again."""
    if not settings.data.is_dir():
        return
    free, files = free_space(settings.data)
    used = sum(path.stat().st_size for path in settings.data.glob(f"{db.FILE_NAME}*") if path.is_file())
    text = f"{free:,} bytes are free on the disk of {settings.data}"
    if free < MIN_FREE or not files:
        yield error("disk", f"{text if files else 'the disk has no free inodes'}: free some space, or writes will fail")
    elif free < used:
        yield warning(
            "disk", f"{text}, fewer than the {used:,} that a backup, purge or migration needs: free some space"
        )
    else:
        yield ok("disk", text)


def check_program(settings: Settings) -> Iterator[Finding]:
    """Report the version of SQLite, and the folder into which the executable unpacks itself."""
    if not settings.database:
        yield ok("program", f"SQLite {db.SQLITE_VERSION}")
    folder = os.environ.get("SHIV_ROOT", "")  # set by the launcher of the executable
    if folder and not os.access(folder, os.W_OK):
        yield warning("program", f"{folder} is not writable, so another version cannot be unpacked: set SHIV_ROOT")
    elif folder and Path(folder).stat().st_mode & 0o022:
        yield warning("program", f"other users can write to {folder}, from which the program runs: chmod 700 {folder}")


def check_address(settings: Settings) -> Iterator[Finding]:
    """Check that a public address has TLS. Without it, passwords and tokens are sent in the clear."""
    public = urlsplit(settings.public_url)
    if public.scheme == "http" and not is_loopback(public.hostname or ""):
        yield warning("address", f"{settings.public_url} has no TLS: passwords and tokens can be intercepted")
    elif not is_local(settings.address) and public.scheme != "https" and not settings.trusted_proxy:
        text = f"{settings.address.host} is reachable from other hosts, and no TLS proxy is configured"
        yield warning("address", f"{text}: set --trusted-proxy to the proxy and --public-url to its URL")
    else:
        yield ok("address", settings.public_url or settings.address.host or str(settings.address))


def is_local(address: ListenAddress) -> bool:
    """Return whether an address is a Unix socket, or reachable from this host only."""
    return bool(address.path) or is_loopback(address.host)


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable from this host only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
