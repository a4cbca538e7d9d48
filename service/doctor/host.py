"""Checks around the database: the folder and its files, the disk, the program, the address."""

import ipaddress
import os
import pwd
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from service import db
from service.doctor.findings import Finding, fault, ok, warning
from service.settings import Settings

MIB = 1 << 20
LONG_JOURNAL = 256 * MIB  # four times what is left of it after a checkpoint
LEAST = 64 * MIB  # of free disk
OLD = 30  # days for which somebody may want an earlier database back


def room_on(folder: Path) -> tuple[int, int]:
    """How many bytes are free on the disk of a folder, and how many files may still be made; tests replace it."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize, disk.f_favail if disk.f_files else 1


def check_folder(settings: Settings) -> Iterator[Finding]:
    """The data folder: there, ours alone, writable, and everything in it of one owner."""
    folder = settings.data
    if not folder.is_dir():
        yield fault("folder", f"there is no folder {folder}: name another with --data, or begin with `serve`")
        return
    about = folder.stat()
    if about.st_mode & 0o077:
        yield warning("folder", f"others may look into {folder}: chmod 700 {folder}")
    if not os.access(folder, os.W_OK):
        yield fault("folder", f"{folder} cannot be written by {_name(os.geteuid())}, or its disk is read-only")
    closed = True
    for file in sorted(folder.glob(f"{db.FILE_NAME}*")):
        mode, owner = file.stat().st_mode, file.stat().st_uid
        if file.is_file() and mode & 0o077:
            closed = False
            yield fault("folder", f"others may read {file}, which holds keys and passwords' hashes: chmod 600 {file}")
        if owner != about.st_uid:
            closed = False
            names = f"{_name(owner)}, and the folder to {_name(about.st_uid)}"
            yield fault("folder", f"{file} belongs to {names}: chown it, and run commands as that user")
    if closed:
        yield ok("folder", f"what is in {folder} is its owner's alone")


def check_leftovers(settings: Settings) -> Iterator[Finding]:
    """Earlier databases that were kept, what a killed command has left, and a journal that does not end."""
    folder = settings.data
    for path in db.kept_copies(folder):
        age = int((time.time() - path.stat().st_mtime) / 86400)
        text = f"{path} ({path.stat().st_size:,} bytes, of {age} days ago) was kept, with all that was purged since"
        yield warning("leftovers", f"{text}: delete it") if age > OLD else ok("leftovers", text)
    for path in sorted([*folder.glob(".*.unfinished"), *folder.glob("*.unfinished"), *folder.glob(".*.partial")]):
        yield warning("leftovers", f"{path} was left by a command that was killed, unless one is running: delete it")
    journal = folder / f"{db.FILE_NAME}-wal"
    if journal.is_file() and journal.stat().st_size > LONG_JOURNAL:
        text = f"{journal} has {journal.stat().st_size:,} bytes: a reader does not end, or somebody copies the file"
        yield warning("leftovers", f"{text}; stop the service and start it again")


def check_disk(settings: Settings) -> Iterator[Finding]:
    """Free disk: for what comes, and for what needs as much again as there is (backups, purges, upgrades)."""
    if not settings.data.is_dir():
        return
    free, files = room_on(settings.data)
    used = sum(path.stat().st_size for path in settings.data.glob(f"{db.FILE_NAME}*") if path.is_file())
    text = f"{free:,} bytes are free on the disk of {settings.data}"
    if free < LEAST or not files:
        yield fault(
            "disk", f"{text if files else 'no more files can be made'}: make room before nothing can be written"
        )
    elif free < used:
        yield warning("disk", f"{text}, too few for a backup, a purge or an upgrade of {used:,}: make room")
    else:
        yield ok("disk", text)


def check_program(settings: Settings) -> Iterator[Finding]:
    """SQLite without the fault that can damage files, and a folder in which the executable can unpack itself."""
    version = db.sqlite3.sqlite_version
    if settings.database:
        pass
    elif db.has_wal_reset_bug(db.sqlite3.sqlite_version_info):
        yield warning("program", f"SQLite {version} can damage a file that several connections write to: use 3.51.3")
    else:
        yield ok("program", f"SQLite {version}")
    place = os.environ.get("SHIV_ROOT", "")  # as the executable has chosen it
    if place and not os.access(place, os.W_OK):
        yield warning("program", f"{place} cannot be written, so another version cannot be unpacked: set SHIV_ROOT")
    elif place and Path(place).stat().st_mode & 0o022:
        yield warning("program", f"others can write to {place}, from which the program runs: chmod 700 {place}")


def check_address(settings: Settings) -> Iterator[Finding]:
    """No public address without TLS before it: passwords and tokens would pass in the clear."""
    public = urlsplit(settings.public_url)
    if public.scheme == "http" and not is_own(public.hostname or ""):
        yield warning("address", f"{settings.public_url} has no TLS: others on the way read passwords and tokens")
    elif not is_own(settings.host) and public.scheme != "https" and not settings.trusted_proxy:
        text = f"{settings.host} can be reached from outside, and nothing says that TLS is before it"
        yield warning("address", f"{text}: name the proxy with --trusted-proxy and its address with --public-url")
    else:
        yield ok("address", settings.public_url or settings.host)


def is_own(host: str) -> bool:
    """Whether only this computer reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
