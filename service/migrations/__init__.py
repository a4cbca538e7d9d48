"""The steps from an empty database to today's schema. Append only: a step that was released never changes.

The number of steps taken is kept in the table `schema_version`. All pending steps run in one transaction, so an
interrupted migration leaves the database as it was. Column types are words that every supported database takes.
"""

from collections.abc import Callable, Mapping
from typing import Any

from service import db
from service.migrations import step_1, step_2, step_3, step_4, step_5, step_6, step_7

# SQL, a function where SQL is not enough, or what each kind of database does in its own way.
Statement = str | Callable[[], None] | Mapping[str, str] | Mapping[str, Callable[[], None]]

STEPS: tuple[tuple[Statement, ...], ...] = (
    step_1.STATEMENTS,
    step_2.STATEMENTS,
    step_3.STATEMENTS,
    step_4.STATEMENTS,
    step_5.STATEMENTS,
    step_6.STATEMENTS,
    step_7.STATEMENTS,
)

TRIGGERS = step_5.TRIGGERS  # all that a file may have


def version() -> int:
    """How many steps the open database has taken; 0 for a new one. Raises Unusable for a file that is not ours."""
    tables = db.database.get_tables()
    if "schema_version" in tables:
        return version_in(db.database.execute_sql("SELECT version FROM schema_version").fetchone())
    if tables:
        raise db.Unusable("this database belongs to another program")
    return 0


def version_in(row: Any) -> int:
    """The number in the row of `schema_version`. Raises Unusable where it is none that this program ever wrote."""
    number = row[0] if row else None
    if type(number) is not int or number < 1:
        raise db.Unusable("the schema version of the database is not a positive whole number, so it is damaged")
    return number


def migrate(*, keeping: bool = True) -> int:
    """Bring the open database up to date; the number of steps taken. Raises Unusable for a newer schema.

    A file is kept as it was, `service.db.schema-2`, before the first change; without room for that, nothing changes.
    """
    with db.write():
        found = version()
        if found > len(STEPS):
            raise db.Unusable(f"the database has schema {found}, newer than this program knows; use a newer one")
        if found == len(STEPS):
            return 0
        if found == 0:
            db.database.execute_sql("CREATE TABLE schema_version (version INTEGER NOT NULL)")
            db.database.execute_sql("INSERT INTO schema_version VALUES (0)")
        elif keeping:
            db.database.keep(f"schema-{found}")  # while nobody else can write
        db.database.prepare_schema()
        for statements in STEPS[found:]:
            for statement in statements:
                take(statement)
        db.database.execute_sql(f"UPDATE schema_version SET version = {len(STEPS)}")
        return len(STEPS) - found


def take(statement: Statement) -> None:
    """Take one statement of a step."""
    if isinstance(statement, Mapping):
        if db.database.kind in statement:
            take(statement[db.database.kind])
    elif callable(statement):
        statement()
    else:
        db.database.execute_sql(db.database.adapt(statement))
