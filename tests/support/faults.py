"""Failures of the database, as this thread's connection gets them, on SQLite and on PostgreSQL."""

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import peewee
import psycopg

from service import db
from service.db import postgresql
from service.models import TABLES
from service.settings import Settings
from tests.support.postgres import is_chosen

DISK_FULL = """CREATE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN RAISE 'No space left on device' USING ERRCODE = '53100'; END $$"""


def disk_full() -> peewee.OperationalError:
    """The error of a statement for which the disk has no space, as Peewee raises it on SQLite."""
    return peewee.OperationalError(apsw.FullError(), "database or disk is full")


@contextmanager
def between(begin: str, end: str) -> Iterator[None]:
    """Execute one statement before the block, and one after it, also if the block fails."""
    db.database.execute_sql(begin)
    try:
        yield
    finally:
        db.database.execute_sql(end)


def another_connection(settings: Settings | None = None) -> Any:
    """Another connection to the open database, or to that of some settings, in autocommit mode."""
    where = (settings.database or settings.data / db.FILE_NAME) if settings else db.database.database
    if is_chosen():
        return closing(psycopg.connect(str(where), autocommit=True))
    return closing(db.open_file(where))


@contextmanager
def locked() -> Iterator[None]:
    """Another connection holds the write lock for longer than this one waits."""
    if is_chosen():
        usual = postgresql.LOCK_TIMEOUT
        tables = ", ".join(f'"{table._meta.table_name}"' for table in TABLES)
        with another_connection() as other:
            other.execute(f"BEGIN; SELECT pg_advisory_xact_lock(0); LOCK TABLE {tables} IN EXCLUSIVE MODE")
            postgresql.LOCK_TIMEOUT = "20ms"
            try:
                yield
            finally:
                postgresql.LOCK_TIMEOUT = usual
    else:
        db.database.execute_sql("PRAGMA busy_timeout = 20")
        with another_connection() as other:
            other.execute("BEGIN IMMEDIATE")
            yield


@contextmanager
def full() -> Iterator[None]:
    """The disk has no space for another row."""
    if is_chosen():
        with ExitStack() as stack:
            stack.enter_context(between(DISK_FULL, "DROP FUNCTION disk_full CASCADE"))
            for table in TABLES:
                where = f'BEFORE INSERT ON "{table._meta.table_name}"'
                db.database.execute_sql(f"CREATE TRIGGER disk_full {where} EXECUTE FUNCTION disk_full()")
            yield
    else:
        pages, usual = (db.database.execute_sql(f"PRAGMA {name}_count").fetchone()[0] for name in ("page", "max_page"))
        with between(f"PRAGMA max_page_count = {pages}", f"PRAGMA max_page_count = {usual}"):
            yield


@contextmanager
def unwritable() -> Iterator[None]:
    """This process, which contains SQLite, cannot write to any file."""
    if is_chosen():
        with full():
            yield
    else:
        usual = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, usual[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)


@contextmanager
def read_only() -> Iterator[None]:
    """The disk or the server is read-only."""
    if is_chosen():
        with between("SET default_transaction_read_only = on", "SET default_transaction_read_only = off"):
            yield
    else:
        db.database.pragma("query_only", 1, permanent=True)  # also for new connections
        yield
        db.database.pragma("query_only", 0, permanent=True)


@contextmanager
def damaged(first: int = 0, last: int | None = None) -> Iterator[None]:
    """SQLite's file is corrupt: all of it, or the part from `first` to `last`.

    Applies to connections opened inside the block. This thread's connection is closed before, and the log is empty.
    """
    path = Path(db.database.database)
    db.database.execute_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close_database()
    whole = path.read_bytes()
    last = len(whole) if last is None else last
    with path.open("r+b", buffering=0) as file:
        os.pwrite(file.fileno(), bytes([0xA5]) * (last - first), first)
        try:
            yield
        finally:
            os.pwrite(file.fileno(), whole, 0)
