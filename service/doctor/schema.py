"""Checks of the database as such: whether it can be read, is whole, and has the tables that this program makes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peewee

from service import db, migrations
from service.doctor.findings import Finding, each, fault, ok, warning
from service.models import TABLES
from service.settings import Settings

IN_WAL_MODE = b"\x02\x02"  # sqlite.org/fileformat.html, 1.3.3
SHOWN = 1000  # of the faults that SQLite finds in a file


def check_file(settings: Settings) -> Iterator[Finding]:
    """The file: every page of it, and that its journal is the kind that lets readers and writers alone."""
    if db.database.kind != "sqlite":
        return
    path = settings.data / db.FILE_NAME
    try:
        found = [text for (text,) in db.database.execute_sql(f"PRAGMA integrity_check({SHOWN})")]
    except (peewee.DatabaseError, db.sqlite3.DatabaseError) as error:  # at the first row, or at a later one
        found = [db.reason(error)]
    damage = [] if found == ["ok"] else [" ".join(line.split()) for text in found for line in text.splitlines()]
    advice = "restore a backup; what can be read, `export` still gives"
    yield from each("file", (f"{path} is damaged: {what}: {advice}" for what in damage), f"{path} is whole")
    with path.open("rb", buffering=0) as file:
        kind = file.read(20)[18:]
    if kind != IN_WAL_MODE and not damage:
        yield warning("file", f"{path} is not in WAL mode, so readers and writers wait: the next start sets it")


def check_version(_: Settings) -> Iterator[Finding]:
    """The schema is that of this program."""
    version, today = migrations.version(), len(migrations.STEPS)
    if version > today:
        yield fault("schema", f"the database has schema {version}, and this program knows {today}: use a newer one")
    elif version < today:
        yield warning("schema", f"the database has schema {version}, which the next start brings to {today}")
    else:
        yield ok("schema", f"schema {version}, as this program makes it")


def check_tables(_: Settings) -> Iterator[Finding]:
    """Every table, column and index is there, and in a file exactly as the migrations make it."""
    found = parts()
    usual, fresh = db.database.obj, db.FleetingSqlite()
    try:
        db.database.initialize(fresh)
        migrations.migrate()
        made = parts()
    finally:
        db.database.initialize(usual)
        fresh.disconnect()
    if usual.kind != "sqlite":  # which alone has the triggers, and the tables that they write
        ours = {"schema_version", *(table._meta.table_name for table in TABLES)}
        made = {name: "" for name in made if name.startswith("index ") or re.split("[ .]", name)[1] in ours}
    advice = "restore a backup, or `copy` to a new database"
    missing = [f"there is no {name}: {advice}" for name in made if name not in found]
    if usual.kind == "sqlite":
        other = [name for name in made if found.get(name, made[name]) != made[name]]
        missing += [f"the {name} is not as this program makes it: {advice}" for name in other]
        acting = usual.execute_sql("SELECT type || ' ' || name FROM sqlite_schema WHERE type IN ('trigger', 'view')")
        strange = [name for (name,) in acting if name not in made]
        missing += [f"there is a {name}, which this program does not make: drop it" for name in strange]
    yield from each("tables", missing, f"{len(TABLES)} tables and their indexes are there")


def parts() -> dict[str, str]:
    """The tables, columns, indexes and triggers of the open database, with the SQL of those that a file has SQL of."""
    found: dict[str, str] = {}
    sql: dict[str, str] = {}
    if db.database.kind == "sqlite":
        sql = dict(db.database.execute_sql("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall())
        found = {f"trigger {name}": text for name, text in sql.items() if text.startswith("CREATE TRIGGER")}
    for table in db.database.get_tables():
        found[f"table {table}"] = sql.get(table, "")
        found |= {f"column {table}.{column.name}": "" for column in db.database.get_columns(table)}
        found |= {f"index {one.name}": sql.get(one.name, "") for one in db.database.get_indexes(table) if one.sql}
    return found


def check_references(_: Settings) -> Iterator[Finding]:
    """Whatever a row names is there."""

    def lost() -> Iterator[str]:
        for table in TABLES:
            key = ", ".join(one.sql for one in table._meta.get_primary_keys())  # type: ignore[no-untyped-call]
            name = table._meta.table_name
            for column in table._meta.sorted_fields:
                if column.refers_to:
                    parent = f'SELECT 1 FROM "{column.refers_to}" AS parent WHERE parent.id = child.{column.sql}'
                    rows = f'SELECT {column.sql}, {key} FROM "{name}" AS child WHERE {column.sql} IS NOT NULL'
                    for value, *row in db.database.stream(f"{rows} AND NOT EXISTS ({parent})"):
                        yield f"{name} {' '.join(map(str, row))}: {column.name} names no {column.refers_to}: {value}"

    with db.snapshot():
        yield from each("references", lost(), "every row that is named is there")


def check_server(settings: Settings) -> Iterator[Finding]:
    """PostgreSQL: what it answers to have written is on its disk, and its indexes and its replica are in order."""
    if db.database.kind != "postgresql":
        return
    known = dict(db.database.execute_sql("SELECT name, setting FROM pg_settings").fetchall())
    lost = "what was answered can be lost in a crash"
    if known["synchronous_commit"] == "off":
        yield warning("server", f"synchronous_commit is off: {lost}; set it to on")
    for name in ("fsync", "full_page_writes"):
        if known[name] == "off":
            yield fault("server", f"{name} is off: a crash can damage everything beyond repair; set it to on")
    broken = db.database.execute_sql("SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid").fetchall()
    for (name,) in broken:
        yield fault("server", f"the index {name} is invalid and not used: REINDEX INDEX {name}")
    yield ok("server", f"PostgreSQL {known['server_version']}, {known['server_encoding']}")
    if settings.replica:
        yield _check_replica(settings)


def _check_replica(settings: Settings) -> Finding:
    which = "SELECT system_identifier FROM pg_control_system()"
    replica: Any = db.connect(Path(), settings.replica, writable=False)
    try:
        with replica.until_closed():
            is_behind, cluster = replica.execute_sql(f"SELECT pg_is_in_recovery(), ({which})").fetchone()
    except (db.Unusable, peewee.DatabaseError) as error:
        return warning("replica", f"{replica.name} cannot be asked, and the primary answers everything: {error}")
    if not is_behind or cluster != db.database.execute_sql(which).fetchone()[0]:
        return warning("replica", f"{replica.name} is no replica of {db.database.name}, and is never asked")
    return ok("replica", replica.name)
