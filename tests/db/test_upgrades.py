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

import peewee
import pytest

import app
from service import clock, commands, db
from service.db import migrations, sqlite, write_lock
from service.db.migrations import step_8
from service.models import (
    AuditLog,
    CannedAnswer,
    CannedAnswerWord,
    ChatSession,
    ClockState,
    Event,
    Message,
    Notification,
    canned_answer_index,
)
from service.models.audit_log import OPERATOR, Head
from service.operate import backups, doctor
from service.operate.doctor import schema
from service.settings import Settings
from tests.support.client import Client
from tests.support.faults import another_connection
from tests.support.host_clock import Clock
from tests.support.installation import flags_of, settings_at
from tests.support.observe import at_once
from tests.support.passwords import PASSWORD
from tests.support.paths import ROOT
from tests.support.released_schemas import FOLDER, columns, make_file, renamed, rows, texts
from tests.support.server_process import environment

pytestmark = [pytest.mark.slow, pytest.mark.database]

TODAY = len(migrations.STEPS)
RELEASED = sorted(int(path.stem.removeprefix("schema_")) for path in FOLDER.glob("schema_*.sql"))
EARLIER = [version for version in RELEASED if version < TODAY]
TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
PARTS = "SELECT name FROM pragma_table_list WHERE type = 'shadow'"  # of virtual tables, which make them themselves
MADE = f"SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT IN ({PARTS})"
ALICE, SESSION = "00000000-0000-4000-8000-000000000011", "00000000-0000-4000-8000-000000000031"
FORMER_NAMES = {  # of the copies of columns and their indexes on PostgreSQL
    *(f"column chat_session.{name}" for name in ("news_at", "public_news_at")),
    *("column user.news_at", "column approval.answered_at", "index user_news_at", "index approval_answered_at"),
    *("index chat_session_news_at_id", "index chat_session_user_id_public_news_at_id"),
}
COPIES = [
    (table, former, new)
    for table in ("chat_session", "user", "approval")
    for former, new in step_8.COLUMNS[table].items()
]
SAID = [f"01JD4Q8M0{number}0000000000000000" for number in (0, 1, 2, 4, 6)]  # 3 is a note, 5 was deleted


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


def test_every_step_that_was_released_has_a_database_of_then() -> None:
    assert list(range(1, migrations.FIXED + 1)) == RELEASED


@pytest.mark.sqlite_only
def test_a_released_step_makes_what_it_made_then(version: int, data: Path) -> None:
    db.open_database(data, create=True)
    take_steps(version)
    now = {sql for (sql,) in db.database.execute_sql(MADE)}
    db.close_database()
    assert now == set(texts(version)[1])


def test_nothing_of_then_is_lost(version: int, data: Path) -> None:
    settings = settings_at(data)
    make(settings, version)
    db.open_database(settings.data, settings.database)
    then = columns()
    before = rows(then)
    assert migrations.migrate() == TODAY - version
    assert list(rows(renamed(then)).values()) == list(before.values())
    db.close_database()


def test_an_upgraded_database_has_the_tables_of_a_new_one(version: int, data: Path, tmp_path: Path) -> None:
    settings = settings_at(data)
    make(settings, version)
    app.prepare(settings, create=True)
    upgraded = schema.schema_objects()
    db.close_database()
    app.prepare(settings_at(tmp_path / "new"), create=True)
    new = schema.schema_objects()
    db.close_database()
    if settings.database and version < 8:  # instances of the previous version use the former names of step 8
        assert not FORMER_NAMES & new.keys()
        new |= dict.fromkeys(FORMER_NAMES, "")
        upgraded |= {name: "" for name in upgraded if name in FORMER_NAMES}
    assert upgraded == new


def test_read_once_messages_of_then_are_sealed(version: int, data: Path) -> None:
    settings = settings_at(data)
    make(settings, version)
    db.open_database(settings.data, settings.database)
    with db.write():
        change = "is_read_once = TRUE, original_content = content"
        db.database.execute_sql(f"UPDATE message SET {change} WHERE id = '{SAID[1]}'")
        db.database.execute_sql(f"UPDATE message SET reply_snapshot = '[123,125]' WHERE id = '{SAID[3]}'")
    before = list(db.database.execute_sql(f"SELECT content FROM message WHERE id = '{SAID[1]}'"))
    migrations.migrate()
    sealed = Message.get_by_id(SAID[1])
    assert [(sealed.sealed_content,)] == before
    assert (sealed.content, sealed.original_content, sealed.plain_text, sealed.search_text) == ("[]", "[]", "", "")
    assert Message.get_by_id(SAID[3]).reply_snapshot == "[]"
    about = Notification.select().where(Notification.message_id == SAID[1])
    assert {notification.body for notification in about} <= {""}
    assert (Message.get_by_id(SAID[0]).plain_text, Message.get_by_id(SAID[0]).sealed_content) == ("Grüße 👋", "[]")
    db.close_database()


def test_prepared_answers_of_then_are_indexed(version: int, data: Path) -> None:
    settings = settings_at(data)
    make(settings, version)
    db.open_database(settings.data, settings.database)
    migrations.migrate()
    answers: Any = CannedAnswer.select(CannedAnswer.id, CannedAnswer.bot_id, CannedAnswer.words).tuples()
    expected = {row for answer in answers for row in canned_answer_index.rows_of(*answer)}
    assert set(CannedAnswerWord.select().tuples()) == expected
    assert bool(expected) == (version >= 3)
    db.close_database()


def test_tokens_cursors_pictures_and_passwords_of_then_are_good(version: int, data: Path, host_clock: Clock) -> None:
    notes, _, _ = texts(version)
    host_clock.now = clock.milliseconds(notes["at"])
    settings = settings_at(data)
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


# Instances of the previous version beside an upgraded database.


@pytest.fixture
def upgraded(data: Path) -> Iterator[None]:
    """A database of schema 7 that was upgraded while instances of the previous version use it."""
    settings = settings_at(data)
    make(settings, 7)
    db.open_database(settings.data, settings.database)
    migrations.migrate()
    yield
    db.close_database()


@pytest.mark.postgresql_only
@pytest.mark.usefixtures("upgraded")
class TestAnInstanceOfThePreviousVersion:
    def test_reads_all_rows_by_their_former_names(self) -> None:
        for statement in texts(7)[2]:
            table, names, values = re.findall(r'INSERT INTO "(\w+)" \((.*?)\) VALUES \((.*)\)', statement, re.S)[0]
            if table != "schema_version":
                key, value = names.partition(",")[0], values.partition(",")[0]
                found = db.database.execute_sql(f'SELECT {names} FROM "{table}" WHERE {key} = {value}').fetchall()
                assert found, statement

    def test_writes_all_tables_by_their_former_names(self) -> None:
        shown = columns()
        shown["user"].remove('"search_text"')  # the previous version does not write it, see docs/topologies.md
        before = rows(shown)
        inserts = [statement for statement in texts(7)[2] if 'INTO "schema_version"' not in statement]
        tables = [statement.split(" ")[2] for statement in inserts]
        with db.write():
            for table in reversed(list(dict.fromkeys(tables))):
                db.database.execute_sql(f"DELETE FROM {table}")
            assert not any(rows(shown).values())
            for statement in inserts:
                db.database.execute_sql(statement)
        assert rows(shown) == before

    @pytest.mark.parametrize(("table", "former", "new"), COPIES)
    def test_sees_changes_of_the_current_version_and_the_reverse(self, table: str, former: str, new: str) -> None:
        select = f'SELECT {former}, {new} FROM "{table}"'
        (latest,) = db.database.execute_sql(f'SELECT max({new}) FROM "{table}"').fetchone()
        for number, changed in enumerate((new, former, new, former), latest + 1):
            db.database.execute_sql(f'UPDATE "{table}" SET {changed} = {number}')
            assert set(db.database.execute_sql(select)) == {(number, number)}

    def test_stores_the_time_of_its_clock(self) -> None:
        upsert = """INSERT INTO "moment" ("id", "latest") VALUES (1, {}) ON CONFLICT ("id")
            DO UPDATE SET "latest" = EXCLUDED."latest" WHERE (EXCLUDED."latest" > "moment"."latest")"""
        for latest in (2**52, 5):
            db.database.execute_sql(upsert.format(latest))
            assert list(ClockState.select(ClockState.latest).tuples()) == [(2**52,)]

    def test_appends_to_the_audit_log_in_turn_with_the_current_version(self) -> None:
        def append(number: int) -> None:
            with db.write():
                if number % 2:
                    AuditLog.record("purged", OPERATOR, "")
                    return
                with db.write("ledger"):
                    last = db.database.execute_sql("SELECT position, hash FROM ledger ORDER BY position DESC LIMIT 1")
                    entry = clock.timestamp(), "purged", OPERATOR, "", "{}"
                    head = Head(*last.fetchone()).followed_by(*entry)
                    values = ", ".join(f"'{text}'" for text in (head.position, *entry, head.hash))
                    db.database.execute_sql(f"INSERT INTO ledger VALUES ({values})")

        assert at_once(8, append) == [None] * 8
        assert AuditLog.verify().position == 10


# The copy that is kept.


@pytest.mark.sqlite_only
class TestTheCopy:
    @pytest.mark.parametrize("version", EARLIER)
    def test_is_the_database_as_it_was(self, version: int, data: Path) -> None:
        make_file(data, version)
        before = whole(data / db.FILE_NAME)
        app.prepare(settings_at(data), create=True)
        db.release_database()
        kept = data / f"service.db.schema-{version}"
        assert kept.stat().st_mode & 0o777 == 0o600
        assert whole(kept) == before
        assert commands.run(["restore", str(kept), *flags_of(settings_at(data))]) == 0
        assert whole(data / db.FILE_NAME) == before

    @pytest.mark.parametrize("version", EARLIER)
    def test_has_all_rows_in_the_report_of_a_restore(self, version: int, data: Path) -> None:
        make_file(data, version)
        inserts = [statement for statement in texts(version)[2] if 'INTO "schema_version"' not in statement]
        assert backups.examine(data / db.FILE_NAME).rows == len(inserts)

    def test_is_not_made_of_a_new_database_or_a_current_one(self, data: Path) -> None:
        app.prepare(settings_at(data), create=True)
        app.prepare(settings_at(data), create=True)
        db.close_database()
        assert [path.name for path in data.iterdir()] == ["service.db"]

    def test_replaces_an_older_one_and_what_was_left_of_another(self, data: Path) -> None:
        make_file(data, 1)
        for name in ("service.db.schema-1", "service.db.schema-1.unfinished"):
            (data / name).write_bytes(b"old")
        before = whole(data / db.FILE_NAME)
        app.prepare(settings_at(data), create=True)
        db.close_database()
        assert whole(data / "service.db.schema-1") == before
        assert not (data / "service.db.schema-1.unfinished").exists()

    def test_needs_room_and_without_it_nothing_changes(self, data: Path) -> None:
        make_file(data, 1)
        before = whole(data / db.FILE_NAME)
        done = migrate_with(data, most=64 * 1024)
        assert (done.returncode, done.stdout) == (1, b"")
        announced, _, errors = done.stderr.decode().partition("\n")
        assert re.search(f"from 1 to {TODAY}: this takes about 1 s and up to [1-9] MiB of free space; ", announced)
        line = r"cx-service: cannot save a copy of [^\n]+ \([\d,]+ bytes\) before its schema changes: [^\n]+\n"
        assert re.fullmatch(line, errors), errors
        assert "`cx-service migrate --no-copy`" in errors
        assert whole(data / db.FILE_NAME) == before
        assert not list(data.glob("*schema-1*"))
        assert commands.run(["migrate", "--no-copy", *flags_of(settings_at(data))]) == 0
        db.close_database()
        assert not list(data.glob("*schema-1*"))


# What SQLite stores in fewer bytes since step 37.


@pytest.mark.sqlite_only
def test_rows_of_messages_are_shorter_and_the_file_is_rewritten(
    version: int, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_file(data, version)
    caplog.set_level("INFO", "cx.server")
    app.prepare(settings_at(data), create=True)
    execute = db.database.execute_sql
    assert list(execute("PRAGMA freelist_count")) == [(0,)]
    owners = "SELECT DISTINCT typeof(owner_id), length(owner_id), typeof(app_id), length(app_id) FROM message"
    assert list(execute(owners)) == [("blob", 16, "blob", 16)]
    assert not list(execute("SELECT id FROM message WHERE search_text = lower(plain_text) AND search_text <> ''"))
    messages = Message.select(Message.owner_id, Message.app_id, ChatSession.user_id, ChatSession.app_id)
    joined = messages.join(ChatSession, on=(ChatSession.id == Message.chat_session_id)).tuples()
    assert len(joined) == 7
    assert all(row[:2] == row[2:] for row in joined)
    lines = [record.getMessage() for record in caplog.records]
    assert re.search(f"from {version} to {TODAY}: this takes about 1 s and up to [1-9] MiB of free space; ", lines[0])
    assert lines[-1].endswith(f"service.db is rewritten: {(data / db.FILE_NAME).stat().st_size:,} bytes")
    db.close_database()


@pytest.mark.sqlite_only
def test_a_file_that_cannot_be_rewritten_is_served(
    data: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any) -> None:
        raise peewee.OperationalError("database or disk is full")

    make_file(data, 8)
    monkeypatch.setattr(sqlite.Sqlite, "rewrite", fail)
    app.prepare(settings_at(data), create=True)
    assert caplog.messages[-1].endswith("new rows use its free pages: database or disk is full")
    assert migrations.version() == TODAY
    db.close_database()
    app.prepare(settings_at(data))
    assert len(caplog.messages) == 1
    db.close_database()


def whole(path: Path) -> tuple[list[str], ...]:
    """All that a file holds, tables and rows, as text."""
    with closing(db.open_file(path)) as connection:
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


@pytest.mark.sqlite_only
@pytest.mark.parametrize("version", EARLIER[:1])
def test_killed_at_any_statement_it_is_what_it_was_and_the_next_start_completes_it(version: int, data: Path) -> None:
    db.release_database()
    make_file(data, version)
    before = whole(data / db.FILE_NAME)
    for place in itertools.count():
        if migrate_in_a_child(data, place) == 0:
            break
        assert whole(data / db.FILE_NAME) == before
    assert place > sum(map(len, migrations.STEPS[version:]))
    with closing(db.open_file(data / db.FILE_NAME)) as connection:
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
            sqlite.write_lock = (
                write_lock.WriteLock()
            )  # else it would wait for the one that went down with its forerunner
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
    settings = settings_at(data)
    make(settings, version)
    db.open_database(settings.data, settings.database)
    then, made = columns(), schema.schema_objects()
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
            assert schema.schema_objects() == made
            assert rows(then) == before
    assert list(rows(renamed(then)).values()) == list(before.values())
    assert migrations.version() == TODAY
    db.close_database()


@pytest.mark.parametrize("version", EARLIER[:1])
def test_of_several_starts_at_once_one_takes_the_steps(version: int, data: Path) -> None:
    settings = settings_at(data)
    make(settings, version)
    db.release_database()
    line = [sys.executable, "app.py", "migrate", *flags_of(settings)]
    started = [
        subprocess.Popen(line, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    outputs = [process.communicate(timeout=60) for process in started]
    assert sum(b"is saved as" in errors for _, errors in outputs) == int(not settings.database)
    printed = sorted(output.decode().partition(": ")[2] for output, _ in outputs)
    applied = f"{TODAY - version} migration{'s' * (TODAY - version > 1)} applied\n"
    assert printed == [applied, *["up to date\n"] * 3]


@pytest.mark.sqlite_only
@pytest.mark.parametrize("name", ["serve", "migrate", "export"])
def test_a_newer_schema_is_left_alone(name: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app.prepare(settings_at(data), create=True)
    with another_connection(settings_at(data)) as connection:
        connection.execute("UPDATE schema_version SET version = 999")
    db.release_database()
    before = hashlib.sha256((data / db.FILE_NAME).read_bytes()).digest()
    assert commands.run([name, *flags_of(settings_at(data))]) == 1
    line = "cx-service: the database has schema 999, which is newer than this program: use a newer version\n"
    assert capsys.readouterr() == ("", line)
    db.release_database()
    lock = {"service.lock"} if name == "serve" else set()
    assert {path.name for path in data.iterdir()} == {"service.db"} | lock
    assert hashlib.sha256((data / db.FILE_NAME).read_bytes()).digest() == before
