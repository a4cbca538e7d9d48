"""Databases of every released schema."""

import re
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from service import db
from service.db.migrations import step_8
from tests.support.paths import ROOT

FOLDER = ROOT / "tests" / "upgrades"


def texts(version: int) -> tuple[dict[str, str], list[str], list[str]]:
    """Return the notes in the dump of a schema version, the statements of its tables, and those of its rows."""
    text = (FOLDER / f"schema_{version}.sql").read_text("utf-8")
    notes = dict(re.findall(r"^-- (\w+) (\S+)$", text, re.MULTILINE))
    statements = list(split_statements(re.sub(r"^--.*\n", "", text, flags=re.M)))
    rows = [statement for statement in statements if statement.startswith("INSERT")]
    return notes, [statement for statement in statements if statement not in rows], rows


def split_statements(text: str) -> Iterator[str]:
    """Split a script into statements. A semicolon at the end of a line can be inside a trigger."""
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if apsw.complete(statement):
            yield statement.strip().removesuffix(";")
            statement = ""
    assert not statement.strip()


def make_file(folder: Path, version: int) -> None:
    """Create a SQLite database with a released schema and its rows."""
    _, tables, rows = texts(version)
    folder.mkdir(mode=0o700)
    with closing(db.open_file(folder / db.FILE_NAME)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute(";\n".join(["BEGIN", *tables, *rows, "COMMIT"]))
    (folder / db.FILE_NAME).chmod(0o600)


SEARCHED = """CASE "search_text" WHEN '' THEN lower("plain_text") ELSE "search_text" END"""


def rows(columns: dict[str, list[str]]) -> dict[str, list[Any]]:
    """Return all rows of the open database, limited to the given columns of each table.

    What step 37 stores in another form is returned as before: the search texts of messages, and UUIDs.
    """
    selected = {
        table: [SEARCHED if (table, name) == ("message", '"search_text"') else name for name in names]
        for table, names in columns.items()
    }
    return {
        table: sorted(map(_with_uuids, db.database.execute_sql(f'SELECT {", ".join(names)} FROM "{table}"')), key=repr)
        for table, names in selected.items()
    }


def _with_uuids(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        str(uuid.UUID(bytes=value)) if isinstance(value, bytes) and len(value) == 16 else value for value in row
    )


def renamed(columns: dict[str, list[str]]) -> dict[str, list[str]]:
    """The columns of a database of an earlier schema, in the same order, by the names of the current schema."""
    found = {}
    for former, names in columns.items():
        table = step_8.TABLES.get(former, former)
        new_names = {f'"{old}"': f'"{new}"' for old, new in step_8.COLUMNS.get(table, {}).items()}
        found[table] = [new_names.get(name, name) for name in names]
    return found


def columns() -> dict[str, list[str]]:
    """Return the quoted column names of each table of the open database."""
    tables = sorted(set(db.database.get_tables()) - {"schema_version"})
    return {table: [f'"{column.name}"' for column in db.database.get_columns(table)] for table in tables}
