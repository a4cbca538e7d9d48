"""What may be wrong with an installation: each kind of fault is looked for by a small function, and nothing is changed.

It works beside a running service, on a disk that cannot be written, and on a file that is no database.
"""

from collections.abc import Iterable, Iterator

import peewee

from service import db, migrations
from service.doctor import host, rows, schema
from service.doctor.findings import Check, Finding, fault
from service.settings import Settings

__all__ = ["Finding", "examine"]

OF_THE_HOST: tuple[Check, ...] = (host.check_program, host.check_address)
OF_THE_FOLDER: tuple[Check, ...] = (host.check_folder, host.check_leftovers, host.check_disk)
OF_THE_DATABASE: tuple[Check, ...] = (schema.check_file, schema.check_version, schema.check_server)
OF_ITS_ROWS: tuple[Check, ...] = (  # where the schema is this program's
    schema.check_tables,
    schema.check_references,
    rows.check_keys,
    rows.check_avatars,
    rows.check_clock,
    rows.check_ledger,
    rows.check_derived,
)


# What stops a check: rows may hold anything, and a cursor of SQLite's own raises its own errors.
UNREADABLE = (peewee.DatabaseError, db.sqlite3.Error, ValueError, ArithmeticError, OSError)


def examine(settings: Settings) -> list[Finding]:
    """All that was found, good and bad. The database of this process is then none."""
    around = OF_THE_HOST if settings.database else (*OF_THE_HOST, *OF_THE_FOLDER)
    try:
        return [*_found(around, settings), *_inside(settings)]
    finally:
        db.forget_database()


def _inside(settings: Settings) -> list[Finding]:
    """What was found in the database; looked at again if somebody opened the file as we began to read it."""
    for _ in range(2):
        try:
            db.open_database(settings.data, settings.database, writable=False)
            is_current = migrations.version() == len(migrations.STEPS)
        except (db.Unusable, peewee.DatabaseError) as error:
            return [fault("database", f"it cannot be read: {db.reason(error)}: restore a backup if it stays so")]
        found = list(_found((*OF_THE_DATABASE, *(OF_ITS_ROWS if is_current else ())), settings))
        if not (isinstance(db.database.obj, db.ReadOnlySqlite) and db.database.is_overtaken()):
            break
    return found


def _found(checks: Iterable[Check], settings: Settings) -> Iterator[Finding]:
    """What some checks find; where one cannot look, that."""
    for check in checks:
        try:
            yield from check(settings)
        except UNREADABLE as error:
            yield fault(check.__name__.removeprefix("check_"), f"it could not be looked at: {db.reason(error)}")
