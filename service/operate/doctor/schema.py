"""Checks of the database: its file or server, its schema and its references."""

import re
from collections.abc import Iterator
from pathlib import Path

import peewee

from service import db
from service.db import migrations
from service.models import TABLES
from service.operate.doctor.findings import Finding, error, errors_or_ok, ok, warning
from service.settings import Settings

IN_WAL_MODE = b"\x02\x02"  # sqlite.org/fileformat.html, 1.3.3
MAX_DAMAGE = 1000  # lines of PRAGMA integrity_check


def check_pages(settings: Settings) -> Iterator[Finding]:
    """Check every page of the file."""
    if db.database.kind != "sqlite":
        return
    path = settings.data / db.FILE_NAME
    try:
        found = [text for (text,) in db.database.execute_sql(f"PRAGMA integrity_check({MAX_DAMAGE})")]
    except (peewee.DatabaseError, db.SqliteError) as problem:  # at any row
        found = [db.reason(problem)]
    damage = [] if found == ["ok"] else [" ".join(line.split()) for text in found for line in text.splitlines()]
    advice = "restore a backup; `export` writes the records that can be read"
    yield from errors_or_ok("file", (f"{path} is damaged: {line}: {advice}" for line in damage), f"{path} is undamaged")


def check_journal(settings: Settings) -> Iterator[Finding]:
    """Check that the file is in WAL mode, in which readers and writers do not block each other."""
    if db.database.kind != "sqlite":
        return
    path = settings.data / db.FILE_NAME
    with path.open("rb", buffering=0) as file:
        versions = file.read(20)[18:]
    if versions != IN_WAL_MODE:
        yield warning("file", f"{path} is not in WAL mode, so readers and writers block: the next start sets WAL mode")


def check_version(_: Settings) -> Iterator[Finding]:
    """Check that the schema is the one of this program."""
    version, expected = migrations.version(), len(migrations.STEPS)
    if version > expected:
        yield error("schema", f"schema {version} is newer than this program, which has {expected}: use a newer version")
    elif version < expected:
        yield warning("schema", f"schema {version} is old: the next start migrates it to schema {expected}")
    else:
        yield ok("schema", f"schema {version} is current")


def check_tables(_: Settings) -> Iterator[Finding]:
    """Check that all tables, columns and indexes exist, and in SQLite that their SQL is that of the migrations."""
    actual = schema_objects()
    database, fresh = db.database.obj, db.InMemorySqlite()
    try:
        db.database.initialize(fresh)
        migrations.migrate()
        expected = schema_objects()
    finally:
        db.database.initialize(database)
        fresh.disconnect()
    if database.kind != "sqlite":  # only SQLite has the triggers and their tables
        tables = {"schema_version", *(table._meta.table_name for table in TABLES)}
        expected = {name: "" for name in expected if name.startswith("index ") or re.split("[ .]", name)[1] in tables}
    advice = "restore a backup, or `copy` to a new database"
    errors = [f"missing {name}: {advice}" for name in expected if name not in actual]
    if database.kind == "sqlite":
        changed = [name for name in expected if actual.get(name, expected[name]) != expected[name]]
        errors += [f"{name} differs from the schema of this program: {advice}" for name in changed]
        active = database.execute_sql("SELECT type || ' ' || name FROM sqlite_schema WHERE type IN ('trigger', 'view')")
        unknown = [name for (name,) in active if name not in expected]
        errors += [f"unknown {name}, which is not part of the schema: drop it" for name in unknown]
    yield from errors_or_ok("tables", errors, f"{len(TABLES)} tables and their indexes exist")


def schema_objects() -> dict[str, str]:
    """Return the tables, columns, indexes and triggers of the open database with their SQL; empty if unknown."""
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
    """Check that every reference is to an existing row."""

    def missing() -> Iterator[str]:
        for table in TABLES:
            key = ", ".join(one.sql for one in table._meta.get_primary_keys())  # type: ignore[no-untyped-call]
            name = table._meta.table_name
            for column in table._meta.sorted_fields:
                if column.refers_to:
                    parent = f'SELECT 1 FROM "{column.refers_to}" AS parent WHERE parent.id = child.{column.sql}'
                    rows = f'SELECT {column.sql}, {key} FROM "{name}" AS child WHERE {column.sql} IS NOT NULL'
                    for value, *row in db.database.stream(f"{rows} AND NOT EXISTS ({parent})"):
                        yield f"{name} {' '.join(map(str, row))}: {column.name} is not a {column.refers_to}: {value}"

    with db.snapshot():
        yield from errors_or_ok("references", missing(), "all references are valid")


def check_server(settings: Settings) -> Iterator[Finding]:
    """Check the durability settings of PostgreSQL, its indexes, and the replica."""
    if db.database.kind != "postgresql":
        return
    settings_of_server = dict(db.database.execute_sql("SELECT name, setting FROM pg_settings").fetchall())
    if settings_of_server["synchronous_commit"] == "off":
        yield warning("server", "synchronous_commit is off: a crash can lose acknowledged writes; set it to on")
    for name in ("fsync", "full_page_writes"):
        if settings_of_server[name] == "off":
            yield error("server", f"{name} is off: a crash can corrupt the whole database; set it to on")
    invalid = db.database.execute_sql("SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid").fetchall()
    for (name,) in invalid:
        yield error("server", f"the index {name} is invalid and not used: REINDEX INDEX {name}")
    yield ok("server", f"PostgreSQL {settings_of_server['server_version']}, {settings_of_server['server_encoding']}")
    if settings.replica:
        yield _check_replica(settings)


def _check_replica(settings: Settings) -> Finding:
    cluster_id = "SELECT system_identifier FROM pg_control_system()"
    replica = db.connect(Path(), settings.replica, writable=False)
    try:
        with replica.disconnecting():
            is_replica, cluster = replica.execute_sql(f"SELECT pg_is_in_recovery(), ({cluster_id})").fetchone()
    except (db.DatabaseUnusable, peewee.DatabaseError) as problem:
        return warning("replica", f"{replica.name} is unreachable; all queries go to the primary: {problem}")
    if not is_replica or cluster != db.database.execute_sql(cluster_id).fetchone()[0]:
        return warning("replica", f"{replica.name} is not a replica of {db.database.name}, and is not used")
    return ok("replica", replica.name)
