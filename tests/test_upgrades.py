"""Upgrades: from every schema that was ever released, what people had then is still theirs, however often it stops.

`tests/upgrades/schema_N.sql` was written by the program that had schema N, and never changes.
"""

import hashlib
import itertools
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import app
from service import clock, commands, db, doctor, migrations
from service.db import sqlite, turns
from service.doctor import schema
from service.models import BotAnswer, BotAnswerWord, Event, answer_index
from service.settings import Settings
from tests.conftest import PASSWORD, Client, Clock, at, flags_of
from tests.postgres import on_sqlite_alone
from tests.serving import ROOT, environment
from tests.trouble import another_connection

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent / "upgrades"
TODAY = len(migrations.STEPS)
RELEASED = sorted(int(path.stem.removeprefix("schema_")) for path in FOLDER.glob("schema_*.sql"))
EARLIER = [version for version in RELEASED if version < TODAY]
TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
PARTS = "SELECT name FROM pragma_table_list WHERE type = 'shadow'"  # of virtual tables, which make them themselves
MADE = f"SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT IN ({PARTS})"
ALICE, SESSION = "00000000-0000-4000-8000-000000000011", "00000000-0000-4000-8000-000000000031"
SAID = [f"01JD4Q8M0{number}0000000000000000" for number in (0, 1, 2, 4, 6)]  # 3 is a note, 5 was deleted


def texts(version: int) -> tuple[dict[str, str], list[str], list[str]]:
    """What was noted of a database when it was made, the statements of its tables, and those of its rows."""
    text = (FOLDER / f"schema_{version}.sql").read_text("utf-8")
    notes = dict(re.findall(r"^-- (\w+) (\S+)$", text, re.MULTILINE))
    statements = list(parted(re.sub(r"^--.*\n", "", text, flags=re.M)))
    rows = [statement for statement in statements if statement.startswith("INSERT")]
    return notes, [statement for statement in statements if statement not in rows], rows


def parted(text: str) -> Iterator[str]:
    """The statements of a text: in a trigger, lines end with a semicolon too."""
    read = ""
    for line in text.splitlines(keepends=True):
        read += line
        if db.sqlite3.complete_statement(read):
            yield read.strip().removesuffix(";")
            read = ""
    assert not read.strip()


def make_file(folder: Path, version: int) -> None:
    """The database as the program of then left it."""
    _, tables, rows = texts(version)
    folder.mkdir(mode=0o700)
    with closing(db.sqlite3.connect(folder / db.FILE_NAME, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.executescript(";\n".join(["BEGIN", *tables, *rows, "COMMIT"]))
    (folder / db.FILE_NAME).chmod(0o600)


def make(settings: Settings, version: int) -> None:
    """The same, on PostgreSQL by the steps of then, which are what they were."""
    if not settings.database:
        make_file(settings.data, version)
        return
    db.open_database(settings.data, settings.database, create=True)
    with db.write():
        take_steps(version)
        for statement in texts(version)[2]:
            if 'INTO "schema_version"' not in statement:
                db.database.execute_sql(statement)
    db.close_database()


def take_steps(number: int) -> None:
    steps = migrations.STEPS
    try:
        migrations.STEPS = steps[:number]
        migrations.migrate()
    finally:
        migrations.STEPS = steps


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(params=RELEASED)
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def rows(columns: dict[str, list[str]]) -> dict[str, list[Any]]:
    """All rows of the open database, of some columns."""
    return {
        table: sorted(db.database.execute_sql(f'SELECT {", ".join(names)} FROM "{table}"').fetchall(), key=repr)
        for table, names in columns.items()
    }


def columns() -> dict[str, list[str]]:
    """All columns of the open database."""
    tables = sorted(set(db.database.get_tables()) - {"schema_version"})
    return {table: [f'"{column.name}"' for column in db.database.get_columns(table)] for table in tables}


def test_every_step_that_was_released_has_a_database_of_then() -> None:
    assert list(range(1, RELEASED[-1] + 1)) == RELEASED and RELEASED[-1] >= TODAY - 1


@on_sqlite_alone
def test_a_released_step_makes_what_it_made_then(version: int, data: Path) -> None:
    db.open_database(data, create=True)
    take_steps(version)
    now = {sql for (sql,) in db.database.execute_sql(MADE)}
    db.close_database()
    assert now == set(texts(version)[1])


def test_nothing_of_then_is_lost(version: int, data: Path) -> None:
    settings = at(data)
    make(settings, version)
    db.open_database(settings.data, settings.database)
    then = columns()
    before = rows(then)
    assert migrations.migrate() == TODAY - version
    assert rows(then) == before
    db.close_database()


def test_an_upgraded_database_has_the_tables_of_a_new_one(version: int, data: Path, tmp_path: Path) -> None:
    settings = at(data)
    make(settings, version)
    app.prepare(settings, create=True)
    upgraded = schema.parts()
    db.close_database()
    app.prepare(at(tmp_path / "new"), create=True)
    assert schema.parts() == upgraded
    db.close_database()


def test_prepared_answers_of_then_are_indexed(version: int, data: Path) -> None:
    settings = at(data)
    make(settings, version)
    db.open_database(settings.data, settings.database)
    migrations.migrate()
    answers: Any = BotAnswer.select(BotAnswer.id, BotAnswer.bot_id, BotAnswer.words).tuples()
    expected = {row for answer in answers for row in answer_index.rows_of(*answer)}
    assert set(BotAnswerWord.select().tuples()) == expected
    assert bool(expected) == (version >= 3)
    db.close_database()


def test_tokens_cursors_pictures_and_passwords_of_then_are_good(version: int, data: Path, host_clock: Clock) -> None:
    notes, _, _ = texts(version)
    host_clock.now = clock.milliseconds(notes["at"])
    settings = at(data)
    make(settings, version)
    application = app.build(settings)
    alice = Client(application, notes["access"])
    assert alice.get("/users/me").data["id"] == ALICE
    page = alice.get(f"/chats/{SESSION}/messages?cursor={notes['cursor']}")
    assert [message["id"] for message in page.data] == SAID[2:]
    first = alice.get(f"/chats/{SESSION}/messages")
    assert [message["id"] for message in first.data] == SAID and first.meta["total"] == len(SAID)
    assert [one["id"] for one in alice.get("/chats/search?q=GR%C3%9CSSE").data] == SAID[:1]
    assert [bot["name"] for bot in alice.get(f"/bots?app_id={first_app()}&search=strasse").data] == ["Hilda"]
    assert [one["title"] for one in alice.get("/notifications").data] == ["Hilda"]
    if version > 1:
        picture = alice.get("/users/me").data["profile_image"]
        assert alice.get(f"/{picture}").raw.startswith(b"RIFF")
        assert len(alice.get("/data-shares").data) == len(alice.get("/events").data) == 1
        assert Event.select().where(Event.reminder_due.is_null(False)).count() == 1
    again = alice.post("/auth/refresh", {"refresh_token": notes["refresh"]}).data["tokens"]
    assert Client(application, again["access_token"]).get("/users/me").data["id"] == ALICE
    assert alice.post("/auth/login", {"email": "alice@example.com", "password": PASSWORD}).status == 200
    assert alice.post(f"/chats/{SESSION}/messages", {"content": {"text": "And now"}}).status == 201
    db.close_database()
    found = doctor.examine(settings)
    assert [finding for finding in found if finding.level != "ok" and finding.about not in ("server", "address")] == []


def first_app() -> str:
    return "00000000-0000-4000-8000-000000000001"


# The copy that is kept.


@on_sqlite_alone
class TestTheCopy:
    @pytest.mark.parametrize("version", EARLIER)
    def test_is_the_database_as_it_was(self, version: int, data: Path) -> None:
        make_file(data, version)
        before = whole(data / db.FILE_NAME)
        app.prepare(at(data), create=True)
        db.forget_database()
        kept = data / f"service.db.schema-{version}"
        assert kept.stat().st_mode & 0o777 == 0o600
        assert whole(kept) == before
        assert commands.run(["restore", str(kept), *flags_of(at(data))]) == 0
        assert whole(data / db.FILE_NAME) == before

    def test_is_not_made_of_a_new_database_or_a_current_one(self, data: Path) -> None:
        app.prepare(at(data), create=True)
        app.prepare(at(data), create=True)
        db.close_database()
        assert [path.name for path in data.iterdir()] == ["service.db"]

    def test_replaces_an_older_one_and_what_was_left_of_another(self, data: Path) -> None:
        make_file(data, 1)
        for name in ("service.db.schema-1", "service.db.schema-1.unfinished"):
            (data / name).write_bytes(b"old")
        before = whole(data / db.FILE_NAME)
        app.prepare(at(data), create=True)
        db.close_database()
        assert whole(data / "service.db.schema-1") == before
        assert not (data / "service.db.schema-1.unfinished").exists()

    def test_needs_room_and_without_it_nothing_changes(self, data: Path) -> None:
        make_file(data, 1)
        before = whole(data / db.FILE_NAME)
        done = migrate_with(data, most=64 * 1024)
        assert (done.returncode, done.stdout) == (1, b"")
        told = done.stderr.decode()
        assert re.fullmatch(r"cx-service: before its schema changes, [\d,]+ bytes of [^\n]+\n", told), told
        assert "`cx-service migrate --no-copy`" in told
        assert whole(data / db.FILE_NAME) == before
        assert not list(data.glob("*schema-1*"))
        assert commands.run(["migrate", "--no-copy", *flags_of(at(data))]) == 0
        db.close_database()
        assert not list(data.glob("*schema-1*"))


def whole(path: Path) -> tuple[list[str], ...]:
    """All that a file holds, tables and rows, as text."""
    with closing(db.sqlite3.connect(path)) as connection:
        made = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")]
        tables = [name for (name,) in connection.execute(TABLES)]
        return sorted(made), [repr(row) for name in tables for row in connection.execute(f'SELECT * FROM "{name}"')]


def migrate_with(data: Path, *, most: int) -> "subprocess.CompletedProcess[bytes]":
    """Migrate where no file may be larger than so many bytes."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    line = [sys.executable, "-B", "app.py", "migrate", "--data", str(data)]
    return subprocess.run(line, cwd=ROOT, env=environment(), capture_output=True, timeout=60, preexec_fn=limit)


# Interrupted, at once, and backwards.


@on_sqlite_alone
@pytest.mark.parametrize("version", EARLIER[:1])
def test_killed_at_any_statement_it_is_what_it_was_and_the_next_start_completes_it(version: int, data: Path) -> None:
    db.forget_database()
    make_file(data, version)
    before = whole(data / db.FILE_NAME)
    for place in itertools.count():
        if migrate_in_a_child(data, place) == 0:
            break
        assert whole(data / db.FILE_NAME) == before
    assert place > sum(map(len, migrations.STEPS[version:]))
    with closing(db.sqlite3.connect(data / db.FILE_NAME)) as connection:
        assert connection.execute("SELECT version FROM schema_version").fetchone() == (TODAY,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchone() is None
        assert connection.execute("SELECT count(*) FROM message").fetchone() == (7,)


def migrate_in_a_child(data: Path, place: int) -> int:
    """Migrate in a process that is killed before its statement number `place`; its exit status."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            sqlite.turns = turns.Turns()  # else it would wait for the one that went down with its forerunner
            db.open_database(data)
            execute, left = db.database.obj.execute_sql, place

            def execute_sql(sql: str, *more: Any) -> Any:
                nonlocal left
                if left == 0:
                    os._exit(9)
                left -= 1
                return execute(sql, *more)

            db.database.obj.execute_sql = execute_sql
            migrations.migrate()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


class Interrupted(Exception):
    """A statement fails."""


@pytest.mark.parametrize("version", EARLIER[:1])
def test_failing_at_any_statement_it_is_what_it_was(version: int, data: Path) -> None:
    settings = at(data)
    make(settings, version)
    db.open_database(settings.data, settings.database)
    then, made = columns(), schema.parts()
    before = rows(then)
    execute = db.database.obj.execute_sql
    for place in itertools.count():
        left = place

        def execute_sql(sql: str, *more: Any) -> Any:
            nonlocal left
            if left == 0 and not sql.startswith(("BEGIN", "ROLLBACK")):
                raise Interrupted
            left -= 1
            return execute(sql, *more)

        db.database.obj.execute_sql = execute_sql
        try:
            migrations.migrate()
            break
        except Interrupted:
            pass
        finally:
            del db.database.obj.execute_sql
        if place % 8 == 0:
            assert schema.parts() == made
            assert rows(then) == before
    assert rows(then) == before
    assert migrations.version() == TODAY
    db.close_database()


@pytest.mark.parametrize("version", EARLIER[:1])
def test_of_several_starts_at_once_one_takes_the_steps(version: int, data: Path) -> None:
    settings = at(data)
    make(settings, version)
    db.forget_database()
    line = [sys.executable, "app.py", "migrate", *flags_of(settings)]
    started = [
        subprocess.Popen(line, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    told = [process.communicate(timeout=60) for process in started]
    assert sum(b"is kept as" in errors for _, errors in told) == int(not settings.database)
    said = sorted(output.decode().partition(": ")[2] for output, _ in told)
    assert said == [f"{TODAY - version} steps taken\n", *["up to date\n"] * 3]


@on_sqlite_alone
@pytest.mark.parametrize("name", ["serve", "migrate", "export"])
def test_a_newer_schema_is_left_alone(name: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app.prepare(at(data), create=True)
    with another_connection(at(data)) as connection:
        connection.execute("UPDATE schema_version SET version = 999")
    db.forget_database()
    before = hashlib.sha256((data / db.FILE_NAME).read_bytes()).digest()
    assert commands.run([name, *flags_of(at(data))]) == 1
    line = "cx-service: the database has schema 999, newer than this program knows; use a newer one\n"
    assert capsys.readouterr() == ("", line)
    db.forget_database()
    assert [path.name for path in data.iterdir()] == ["service.db"]
    assert hashlib.sha256((data / db.FILE_NAME).read_bytes()).digest() == before
