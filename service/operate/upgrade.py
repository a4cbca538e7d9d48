"""Checks whether an executable can replace this one, without running it.

Each executable has a description in its archive, `release.json`, which the build writes.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import msgspec
import peewee

from service import db
from service.db import migrations
from service.operate.doctor.findings import Finding, error, ok, warning
from service.settings import Settings
from service.version import HOST, VERSION

DESCRIPTION = "release.json"
CHECKSUMS = ("SHA256SUMS", "{}.sha256")  # beside the file, in the format of sha256sum


class Release(msgspec.Struct):
    """The description of an executable."""

    version: str
    commit: str
    schema: int  # of the databases that it serves; older ones are migrated
    hosts: list[str]  # such as cpython-311-x86_64-linux-gnu
    postgresql: bool  # whether it supports PostgreSQL


def check(path: Path, settings: Settings) -> Iterator[Finding]:
    """Yield the findings about the file, its version, this host and the database."""
    try:
        release = read(path)
    except ValueError as problem:
        yield error("file", f"{path} {problem}")
        return
    yield check_checksum(path)
    yield check_version(release)
    yield check_host(release)
    yield from check_database(release, settings)


def read(path: Path) -> Release:
    """Return the description in an executable whose archive is complete. Raises ValueError."""
    try:
        with ZipFile(path) as archive:
            content = archive.read(DESCRIPTION)
            damaged = archive.testzip()
    except OSError as problem:
        raise ValueError(f"cannot be read: {problem.strerror}") from None
    except KeyError:
        raise ValueError("is not an executable of cx-service, or one of a version before 0.2.0") from None
    except (BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError):
        raise ValueError("is not an executable of cx-service, or damaged: download it again") from None
    if damaged:
        raise ValueError("is damaged: download it again")
    try:
        return msgspec.json.decode(content, type=Release)
    except msgspec.DecodeError as problem:
        raise ValueError(f"has an invalid description: {problem}") from None


def check_checksum(path: Path) -> Finding:
    """Compare the SHA-256 checksum of a file with the one in a file beside it."""
    for name in CHECKSUMS:
        sums = path.with_name(name.format(path.name))
        if sums.is_file():
            found = re.search(rf"^([0-9a-f]{{64}}) [ *]{re.escape(path.name)}$", sums.read_text("utf-8"), re.MULTILINE)
            if found:
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                if digest == found[1]:
                    return ok("file", f"{path} is complete, and has the checksum in {sums.name}")
                return error("file", f"{path} does not have the checksum in {sums.name}: download both again")
    return warning("file", f"{path} is complete; without SHA256SUMS beside it, its checksum cannot be compared")


def check_version(release: Release) -> Finding:
    """Compare the version with that of this program."""
    commit = f" (commit {release.commit})" if release.commit else ""
    text = f"{release.version}{commit}; this program is {VERSION}"
    if _order(release.version) < _order(VERSION):
        return warning("version", f"{text}, which is newer")
    return ok("version", text)


def check_host(release: Release) -> Finding:
    """Check that the file is for this Python, processor and C library."""
    if HOST in release.hosts:
        return ok("host", f"the file is for {HOST}")
    return error("host", f"this host is {HOST}; the file is for {', '.join(release.hosts)}: download another")


def check_database(release: Release, settings: Settings) -> Iterator[Finding]:
    """Check that the file can serve the database, and say whether it will change its schema."""
    if settings.database and not release.postgresql:
        yield error("database", "the file does not support PostgreSQL: download cx-service-full")
        return
    try:
        db.open_database(settings.data, settings.database, writable=False)
        schema, needs = migrations.version(), migrations.needs()
    except (db.DatabaseUnusable, peewee.DatabaseError) as problem:
        yield warning("database", f"cannot be read: {db.reason(problem)}")
        return
    finally:
        db.release_database()
    if schema > release.schema:
        yield error("database", f"has schema {schema}, but the file supports schemas up to {release.schema}")
    elif schema < release.schema:
        text = f"has schema {schema}; the first start migrates it to {release.schema}: make a backup first"
        yield ok("database", f"{text}; {needs}" if needs else text)
    else:
        yield ok("database", f"has schema {schema}, as the file needs")


def _order(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))
