"""Migrations: the steps from an empty database to the current schema. A step that was released never changes.

The table `schema_version` has the number of applied steps. All pending steps run in one transaction, so an interrupted
migration does not change the database. The names of column types are valid in all supported databases.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence

import peewee

from service import db
from service.db.migrations import (
    step_1,
    step_2,
    step_3,
    step_4,
    step_5,
    step_6,
    step_7,
    step_8,
    step_9,
    step_10,
    step_11,
    step_12,
    step_13,
    step_14,
    step_15,
    step_16,
    step_17,
    step_18,
    step_19,
    step_20,
    step_21,
    step_22,
    step_23,
    step_24,
    step_25,
    step_26,
    step_27,
    step_28,
    step_29,
    step_30,
    step_31,
    step_32,
    step_33,
    step_34,
    step_35,
    step_36,
    step_37,
)

# SQL, a function where SQL is not enough, or a mapping from the engines to their own.
Statement = str | Callable[[], None] | Mapping[str, str] | Mapping[str, Callable[[], None]]

STEPS: tuple[tuple[Statement, ...], ...] = (
    step_1.STATEMENTS,
    step_2.STATEMENTS,
    step_3.STATEMENTS,
    step_4.STATEMENTS,
    step_5.STATEMENTS,
    step_6.STATEMENTS,
    step_7.STATEMENTS,
    step_8.STATEMENTS,
    step_9.STATEMENTS,
    step_10.STATEMENTS,
    step_11.STATEMENTS,
    step_12.STATEMENTS,
    step_13.STATEMENTS,
    step_14.STATEMENTS,
    step_15.STATEMENTS,
    step_16.STATEMENTS,
    step_17.STATEMENTS,
    step_18.STATEMENTS,
    step_19.STATEMENTS,
    step_20.STATEMENTS,
    step_21.STATEMENTS,
    step_22.STATEMENTS,
    step_23.STATEMENTS,
    step_24.STATEMENTS,
    step_25.STATEMENTS,
    step_26.STATEMENTS,
    step_27.STATEMENTS,
    step_28.STATEMENTS,
    step_29.STATEMENTS,
    step_30.STATEMENTS,
    step_31.STATEMENTS,
    step_32.STATEMENTS,
    step_33.STATEMENTS,
    step_34.STATEMENTS,
    step_35.STATEMENTS,
    step_36.STATEMENTS,
    step_37.STATEMENTS,
)

log = logging.getLogger("cx.server")

REWRITTEN = 37  # the last step after which a file is rewritten, because its rows need less room
RATE = 20 * 2**20  # bytes of a file that are copied, migrated and rewritten per second on a slow host
ROOM = 3  # free space that is needed, as a multiple of the file: for its copy, its journal and a temporary file
FIXED = 8  # the number of steps that never change: of these schemas, databases exist
TRIGGERS = step_5.TRIGGERS  # all triggers of a valid file
TABLES = step_8.TABLES  # the new names of renamed tables


def version() -> int:
    """Return the number of applied steps; 0 for a new database.

    Raises DatabaseUnusable for a database of another program.
    """
    tables = db.database.get_tables()
    if "schema_version" in tables:
        return version_in(db.database.execute_sql("SELECT version FROM schema_version").fetchone())
    if tables:
        raise db.DatabaseUnusable("this database belongs to another program")
    return 0


def version_in(row: Sequence[object] | None) -> int:
    """Return the number in the row of `schema_version`.

    Raises DatabaseUnusable for a value that this program never writes.
    """
    number = row[0] if row else None
    if type(number) is not int or number < 1:
        raise db.DatabaseUnusable("the schema version of the database is not a positive whole number, so it is damaged")
    return number


def migrate(*, save_copy: bool = True) -> int:
    """Apply the pending steps. Returns their number. Raises DatabaseUnusable for a schema that is too new.

    Before the first change, a copy of a file is saved as `service.db.schema-2`. Without space for it, nothing changes.
    """
    with db.database.migrating(), db.write():
        found = version()
        if found > len(STEPS):
            raise db.DatabaseUnusable(
                f"the database has schema {found}, which is newer than this program: use a newer version"
            )
        if found == len(STEPS):
            return 0
        if found == 0:
            db.database.execute_sql("CREATE TABLE schema_version (version INTEGER NOT NULL)")
            db.database.execute_sql("INSERT INTO schema_version VALUES (0)")
        else:
            log.info("the schema changes from %d to %d%s", found, len(STEPS), f": {text}" if (text := needs()) else "")
            if save_copy:
                db.database.save_copy(f"schema-{found}")  # while other writers are excluded
        db.database.prepare_schema()
        for statements in STEPS[found:]:
            for statement in statements:
                apply(statement)
        db.database.execute_sql(f"UPDATE schema_version SET version = {len(STEPS)}")
        return len(STEPS) - found


def needs() -> str:
    """Return about how much time and free space the migration of a file needs, for operators; empty for a server."""
    sizes = db.database.sizes()
    if not sizes:
        return ""
    size = sizes["database"] + sizes["journal"]
    room, free = math.ceil(ROOM * size / 2**20) + 1, sizes["free"] // 2**20
    return f"this takes about {math.ceil(size / RATE)} s and up to {room:,} MiB of free space; {free:,} MiB are free"


def rewrite_after(steps: int) -> None:
    """Rewrite a file after the last `steps` steps if they have made its rows smaller.

    Without it, or if it fails, the file keeps its size, and new rows use the free pages.
    """
    found = len(STEPS) - steps
    if not steps or not 0 < found < REWRITTEN or db.database.kind != "sqlite":
        return
    try:
        db.database.rewrite()
    except (peewee.DatabaseError, db.DatabaseUnusable) as error:
        log.warning("%s may keep its size, and new rows use its free pages: %s", db.database.name, db.reason(error))
    else:
        log.info("%s is rewritten: %s bytes", db.database.name, f"{db.database.sizes()['database']:,}")


def apply(statement: Statement) -> None:
    """Apply one statement of a step."""
    if isinstance(statement, Mapping):
        if db.database.kind in statement:
            apply(statement[db.database.kind])
    elif callable(statement):
        statement()
    else:
        db.database.execute_sql(db.database.adapt(statement))
