"""The doctor: checks of an installation, each a small function. All checks are read-only.

The checks also work while the service runs, on a read-only disk, and on a file that is not a database.
"""

from collections.abc import Callable, Iterable, Iterator

import peewee

from service import db
from service.db import migrations
from service.operate.doctor import host, rows, schema
from service.operate.doctor.findings import Check, Finding, error
from service.settings import Settings

__all__ = ["Finding", "examine", "examine_host"]

Progress = Callable[[int], Callable[[int], None]]  # from the number of checks, returns a callback for completed checks

HOST_CHECKS: tuple[Check, ...] = (host.check_program, host.check_address)
FOLDER_CHECKS: tuple[Check, ...] = (host.check_folder, host.check_leftovers, host.check_disk)
DATABASE_CHECKS: tuple[Check, ...] = (
    schema.check_pages,
    schema.check_journal,
    schema.check_version,
    schema.check_server,
)
ROW_CHECKS: tuple[Check, ...] = (  # only with the schema of this program
    schema.check_tables,
    schema.check_references,
    rows.check_keys,
    rows.check_avatars,
    rows.check_images,
    rows.check_bot_pictures,
    rows.check_clock,
    rows.check_audit,
    rows.check_derived,
)
# Those that take longer as the database grows.
LONG_CHECKS = {
    schema.check_pages,
    schema.check_references,
    rows.check_avatars,
    rows.check_images,
    rows.check_bot_pictures,
    rows.check_audit,
    rows.check_derived,
}


# Errors that a check may raise: rows may hold any value, and SQLite's own cursors raise their own errors.
READ_ERRORS = (peewee.DatabaseError, db.SqliteError, ValueError, ArithmeticError, OSError)


def examine(
    settings: Settings, *, quick: bool = False, progress: Progress = lambda checks: lambda done: None
) -> list[Finding]:
    """Return all findings, including `ok`; with `quick`, without LONG_CHECKS. Closes the database of this process."""
    try:
        return [*examine_host(settings), *_examine_database(settings, quick, progress)]
    finally:
        db.release_database()


def examine_host(settings: Settings) -> list[Finding]:
    """Return the findings about program, address, folder and disk. Reads no database, so a service can call it."""
    return list(_run(HOST_CHECKS if settings.database else (*HOST_CHECKS, *FOLDER_CHECKS), settings))


def _examine_database(settings: Settings, quick: bool, progress: Progress) -> list[Finding]:
    """Return the findings in the database. Repeats the checks once if another process has opened the file since."""
    for _ in range(2):
        try:
            db.open_database(settings.data, settings.database, writable=False)
            is_current = migrations.version() == len(migrations.STEPS)
        except (db.DatabaseUnusable, peewee.DatabaseError) as problem:
            return [error("database", f"cannot be read: {db.reason(problem)}; if this persists, restore a backup")]
        checks = [*DATABASE_CHECKS, *(ROW_CHECKS if is_current else ())]
        checks = [check for check in checks if not (quick and check in LONG_CHECKS)]
        found = list(_run(checks, settings, progress(len(checks))))
        if not (isinstance(db.database.obj, db.ReadOnlySqlite) and db.database.is_outdated()):
            break
    return found


def _run(
    checks: Iterable[Check], settings: Settings, advance: Callable[[int], None] = lambda done: None
) -> Iterator[Finding]:
    """Yield the findings of some checks. A check that fails to read yields an error."""
    for check in checks:
        try:
            yield from check(settings)
        except READ_ERRORS as problem:
            yield error(check.__name__.removeprefix("check_"), f"cannot be checked: {db.reason(problem)}")
        advance(1)
