"""The command line: what operators type, what they read, and what is refused in one line with exit status 1."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import app
from service import commands, db, migrations
from service.auth import passwords
from service.clock import ulid, uuid
from service.db import postgresql, sqlite
from service.models import TABLES, LoginSession, User
from service.routes import operations
from service.settings import Settings
from service.version import VERSION
from tests.conftest import Client, at
from tests.postgres import is_chosen, on_sqlite_alone
from tests.serving import ALICE, APP, ROOT, SESSION, chat, command, environment, json_lines, where
from tests.trouble import another_connection
from tests.watching import files_of


class Outcome(NamedTuple):
    """What a command said, and its exit status."""

    status: int
    output: str
    errors: str


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def cx(data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Runs a command on the data folder; `typed` comes from standard input."""
    monkeypatch.setenv("CX_DATA", str(data))
    monkeypatch.setenv("CX_DATABASE", at(data).database)

    def run(*arguments: str, typed: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed), encoding="utf-8"))
        capsys.readouterr()
        try:
            status = commands.run(list(arguments))
        except SystemExit as leaving:
            status = int(leaving.code or 0)
        finally:
            db.close_database()
        return Outcome(status, *capsys.readouterr())

    return run


def refusal(outcome: Outcome) -> str:
    """The one line of a command that would not."""
    assert (outcome.status, outcome.output) == (1, "")
    assert re.fullmatch(r"cx-service: [^\n]+\n", outcome.errors)
    return outcome.errors.removeprefix("cx-service: ").rstrip("\n")


# Help and documentation.


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_command_has_help(name: str, cx: Callable[..., Outcome]) -> None:
    status, output, errors = cx(name, "--help")
    assert (status, errors) == (0, "")
    assert output.startswith(f"usage: cx-service {name}")
    assert "--data" in output or name in ("serve", "user", "healthcheck")


@pytest.mark.parametrize("action", ["add", "list", "password", "disable", "enable"])
def test_every_action_on_users_has_help(action: str, cx: Callable[..., Outcome]) -> None:
    assert cx("user", action, "--help").output.startswith(f"usage: cx-service user {action}")


def test_the_help_lists_every_command(cx: Callable[..., Outcome]) -> None:
    status, output, _ = cx("--help")
    assert status == 0
    for name, (_, about) in commands.COMMANDS.items():
        assert re.search(rf"^ +{name}\s+{about[:30]}", output, re.MULTILINE)


def test_the_readme_lists_every_command() -> None:
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("|")]
    for name in commands.COMMANDS:
        assert any(re.search(rf"`(cx-service )?{name}\b", row.split("|")[1]) for row in rows), name


def test_the_first_commands_of_the_readme_run_as_printed(tmp_path: Path) -> None:
    block = (ROOT / "README.md").read_text().split("To begin with your own data")[1].split("```sh\n")[1].split("```")[0]
    *script, last = block.replace("dist/cx-service.pyz", f"{sys.executable} {ROOT / 'app.py'}").splitlines()
    assert last.endswith(" serve")
    told = environment(**where(tmp_path / "my-data"))
    line = ["sh", "-ec", "\n".join(script)]
    done = subprocess.run(line, input=b"long enough\n", cwd=tmp_path, env=told, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert re.search(rb"\n +3 records imported in .*\n[0-9a-f-]{36}\n$", done.stdout)
    assert b"admin  enabled   anna@example.com" in command("user", "list", "--data", tmp_path / "my-data").stdout


@pytest.mark.parametrize("arguments", [(), ("fly",), ("import",), ("purge",), ("user",), ("serve", "--port", "x")])
def test_what_is_not_a_command_line_gets_the_usage_and_status_2(
    arguments: tuple[str, ...], cx: Callable[..., Outcome]
) -> None:
    status, output, errors = cx(*arguments)
    assert (status, output) == (2, "")
    assert errors.startswith("usage: cx-service")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("serve", "--prot", "1"), "cx-service serve: error: unrecognized arguments: --prot 1; did you mean --port?"),
        (("serve", "--prot=1"), "cx-service serve: error: unrecognized arguments: --prot=1; did you mean --port?"),
        (
            ("user", "list", "--datta"),
            "cx-service user list: error: unrecognized arguments: --datta; did you mean --data?",
        ),
        (("routes", "--xyzzy"), "cx-service routes: error: unrecognized arguments: --xyzzy"),
        (("migrate", "now"), "cx-service migrate: error: unrecognized arguments: now"),
    ],
)
def test_an_unknown_flag_gets_the_usage_of_its_command_and_a_hint(
    arguments: tuple[str, ...], error: str, cx: Callable[..., Outcome]
) -> None:
    status, output, errors = cx(*arguments)
    assert (status, output) == (2, "")
    assert errors.startswith(f"usage: {error.partition(':')[0]} [-h]")
    assert errors.splitlines()[-1] == error


def test_the_version_is_the_same_in_the_command_line_the_document_the_metrics_and_the_package(
    cx: Callable[..., Outcome], anyone: Client
) -> None:
    assert cx("--version") == (0, f"cx-service {VERSION}\n", "")
    assert json.loads(cx("openapi").output)["info"]["version"] == VERSION
    assert f'cx_build_info{{version="{VERSION}",' in anyone.get("//metrics").raw.decode()
    line = [sys.executable, "-c", "import setuptools; setuptools.setup()", "--version"]
    assert subprocess.run(line, cwd=ROOT, capture_output=True, check=True).stdout.decode() == f"{VERSION}\n"


def test_the_program_is_started_as_a_file() -> None:
    done = command("routes", "--documented-only")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"/api/v1/auth/login" in done.stdout


# What the service offers.


def test_routes_lists_every_operation(cx: Callable[..., Outcome]) -> None:
    lines = cx("routes").output.splitlines()
    assert len(lines) == len(list(operations()))
    for operation in operations():
        (line,) = [line for line in lines if line.split()[:2] == [operation.method, operation.full_path]]
        assert line.endswith(operation.summary)
        assert ("  none  " in line) is operation.public


def test_openapi_prints_the_document_and_needs_no_database(cx: Callable[..., Outcome], data: Path) -> None:
    document = json.loads(cx("openapi").output)
    assert document["openapi"].startswith("3.1")
    described = [operation for operation in operations() if not (operation.is_page and operation.extension)]
    assert {operation.full_path for operation in described} == set(document["paths"])
    assert not data.exists()


@pytest.mark.parametrize("name", ["routes", "openapi"])
def test_documented_only_leaves_extensions_out(name: str, cx: Callable[..., Outcome]) -> None:
    shorter = cx(name, "--documented-only").output
    assert "/auth/refresh" in cx(name).output
    assert "/auth/refresh" not in shorter
    assert "/auth/login" in shorter
    assert "/healthz" in shorter and "/readyz" in shorter


# People.


def test_a_user_is_added_with_a_password_from_standard_input(cx: Callable[..., Outcome]) -> None:
    status, output, errors = cx("user", "add", " Alice@Example.COM ", typed="pässwörd\n".encode())
    assert (status, errors) == (0, "")
    alice = User.by_email("alice@example.com")
    assert alice is not None
    assert output == f"{alice.id}\n"
    assert (alice.role, alice.app_id, alice.is_disabled) == ("user", None, False)
    assert passwords.is_right("pässwörd", alice.password_hash)


def test_a_password_may_hold_blanks_and_only_its_line_ending_goes(cx: Callable[..., Outcome]) -> None:
    cx("user", "add", "alice@example.com", typed=b" two words \r\nnext line\n")
    alice = User.by_email("alice@example.com")
    assert alice is not None
    assert passwords.is_right(" two words ", alice.password_hash)


@pytest.mark.parametrize("typed", [b"", b"\n", b"7 chars\n", "pässwör\n".encode(), b"x" * 1025])
def test_a_password_that_is_too_short_or_too_long_is_refused(typed: bytes, cx: Callable[..., Outcome]) -> None:
    assert refusal(cx("user", "add", "alice@example.com", typed=typed)) == "a password has 8 to 1024 characters"
    assert cx("user", "list").output == ""
    cx("user", "add", "alice@example.com", typed=b"8 chars!\n")
    line = refusal(cx("user", "password", "alice@example.com", typed=typed))
    assert line == "a password has 8 to 1024 characters"
    alice = User.by_email("alice@example.com")
    assert alice is not None
    assert passwords.is_right("8 chars!", alice.password_hash)


def test_a_password_is_no_argument(cx: Callable[..., Outcome]) -> None:
    assert cx("user", "add", "alice@example.com", "secret").status == 2
    assert cx("user", "add", "alice@example.com", "--password", "secret").status == 2


@pytest.mark.parametrize("email", ["alice", "@", "a@b@c", "a b@example.com", "alice@", f"{'a' * 250}@b.de", "a\0@b.de"])
def test_what_is_no_address_is_refused(email: str, cx: Callable[..., Outcome]) -> None:
    line = refusal(cx("user", "add", email, typed=b"long enough\n"))
    assert line == "expected an e-mail address such as ada@example.com"


def test_a_taken_address_is_refused_however_it_is_written(cx: Callable[..., Outcome]) -> None:
    cx("user", "add", "alice@example.com", typed=b"long enough\n")
    assert refusal(cx("user", "add", "ALICE@example.com", typed=b"x\n")) == "there is a user alice@example.com already"


def test_an_agent_needs_an_app_that_exists(cx: Callable[..., Outcome]) -> None:
    add = ("user", "add", "agnes@example.com", "--role", "agent")
    assert "--app" in refusal(cx(*add, typed=b"long enough\n"))
    assert refusal(cx(*add, "--app", APP, typed=b"long enough\n")) == f"there is no app {APP}"
    assert refusal(cx(*add, "--app", "shop", typed=b"long enough\n")) == "expected a UUID"
    cx("import", "-", typed=json_lines(chat()))
    assert cx(*add, "--app", APP, typed=b"long enough\n").status == 0
    agnes = User.by_email("agnes@example.com")
    assert agnes is not None
    assert (agnes.role, agnes.user_type, agnes.app_id) == ("agent", "staff", APP)


def test_the_list_shows_who_may_log_in(cx: Callable[..., Outcome]) -> None:
    cx("user", "add", "bob@example.com", typed=b"long enough\n")
    cx("user", "add", "ada@example.com", "--role", "admin", typed=b"long enough\n")
    cx("user", "disable", "bob@example.com")
    rows = [line.split() for line in cx("user", "list").output.splitlines()]
    assert [row[1:] for row in rows] == [
        ["admin", "enabled", "ada@example.com"],
        ["user", "disabled", "bob@example.com"],
    ]


def test_another_password_ends_every_login(cx: Callable[..., Outcome]) -> None:
    cx("import", "-", typed=json_lines(chat()))
    session = LoginSession.create(user_id=ALICE, expires_at=2**50)
    assert cx("user", "password", "alice@example.com", typed=b"new words\n") == (0, "", "")
    alice = User.get_by_id(ALICE)
    assert passwords.is_right("new words", alice.password_hash)
    assert LoginSession.get_by_id(session.id).ended_at is not None


def test_disabling_ends_every_login_and_enabling_lets_in_again(cx: Callable[..., Outcome]) -> None:
    cx("import", "-", typed=json_lines(chat()))
    session = LoginSession.create(user_id=ALICE, expires_at=2**50)
    assert cx("user", "disable", "ALICE@example.com") == (0, "", "")
    assert User.get_by_id(ALICE).is_disabled
    assert LoginSession.get_by_id(session.id).ended_at is not None
    assert cx("user", "enable", "alice@example.com") == (0, "", "")
    assert not User.get_by_id(ALICE).is_disabled


@pytest.mark.parametrize("action", ["password", "disable", "enable"])
def test_an_unknown_user_is_one_line(action: str, cx: Callable[..., Outcome]) -> None:
    cx("migrate")
    line = refusal(cx("user", action, "nobody@example.com", typed=b"long enough\n"))
    assert line == "there is no user nobody@example.com"


def on_a_terminal(data: Path, *typed: str) -> tuple[int, str]:
    """Add a user from a terminal: the exit status, and all that the terminal shows."""
    line = [sys.executable, str(ROOT / "app.py"), "user", "add", "alice@example.com", "--data", str(data)]
    ours, theirs = pty.openpty()
    told = environment(**where(data))
    with subprocess.Popen(
        line, stdin=theirs, stdout=theirs, stderr=theirs, env=told, start_new_session=True
    ) as process:
        os.close(theirs)
        shown = b""
        prompts = [b"Password: ", b"Once more: "]
        try:
            while chunk := os.read(ours, 1000):
                shown += chunk
                if prompts and prompts[0] in shown:
                    os.write(ours, f"{typed[2 - len(prompts)]}\n".encode())
                    prompts.pop(0)
        except OSError:  # the other side has hung up
            pass
        os.close(ours)
        return process.wait(30), shown.decode()


def test_on_a_terminal_the_password_is_asked_for_twice_and_never_shown(data: Path) -> None:
    status, shown = on_a_terminal(data, "s3cret words", "s3cret words")
    assert status == 0
    assert shown.startswith("Password: ") and "Once more: " in shown
    assert "s3cret words" not in shown


def test_two_different_passwords_on_a_terminal_are_refused(data: Path) -> None:
    status, shown = on_a_terminal(data, "s3cret words", "other words")
    assert status == 1
    assert shown.endswith("cx-service: the two passwords differ\r\n")


def test_who_is_added_twice_at_the_same_time_is_added_once(
    cx: Callable[..., Outcome], data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Meanwhile(io.StringIO):
        """A password that is typed while somebody else adds the same user."""

        def readline(self, *_: object) -> str:
            User.create(email="alice@example.com")
            return "long enough\n"

    cx("migrate")
    monkeypatch.setattr(sys, "stdin", Meanwhile())
    capsys.readouterr()
    status = commands.run(["user", "add", "Alice@example.com"])
    assert refusal(Outcome(status, *capsys.readouterr())) == "there is a user alice@example.com already"
    assert User.select().count() == 1
    db.close_database()


# The schema and the files.


def test_migrate_brings_the_schema_up_to_date_once(cx: Callable[..., Outcome]) -> None:
    steps = len(migrations.STEPS)
    assert cx("migrate") == (0, f"schema {steps}: {steps} steps taken\n", "")
    assert cx("migrate") == (0, f"schema {steps}: up to date\n", "")


@on_sqlite_alone
def test_the_data_folder_and_the_database_are_for_their_owner_only(cx: Callable[..., Outcome], data: Path) -> None:
    before = os.umask(0)
    try:
        cx("migrate")
        cx("user", "add", "alice@example.com", typed=b"long enough\n")
    finally:
        os.umask(before)
    assert data.stat().st_mode & 0o777 == 0o700
    for file in data.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600, file


CREATING = [("serve", "--port", "0"), ("import", "/dev/null"), ("migrate",)]
READING = [("export",), ("user", "list"), ("purge", "--user", "alice@example.com")]
EVERY_COMMAND = [*CREATING, *READING]

NEEDS_A_DATABASE = [
    *READING,
    ("user", "password", "alice@example.com"),
    ("user", "disable", "alice@example.com"),
    ("user", "enable", "alice@example.com"),
    ("ledger", "list"),
    ("ledger", "verify"),
    ("doctor",),
    ("backup", "BACKUP"),
    ("copy", "--from", "DATABASE", "--to", "COPY"),
]
MAKES_A_DATABASE = [*CREATING, ("user", "add"), ("restore",)]
WITHOUT_A_DATABASE = [("client",), ("healthcheck",), ("routes",), ("openapi",)]


def test_every_command_says_whether_it_makes_a_database(cx: Callable[..., Outcome]) -> None:
    known = {" ".join(line[:2] if line[0] in ("user", "ledger") else line[:1]) for line in NEEDS_A_DATABASE}
    known |= {" ".join(line[: 2 if line[0] == "user" else 1]) for line in MAKES_A_DATABASE + WITHOUT_A_DATABASE}
    expected = {*commands.COMMANDS} - {"user", "ledger"}
    for name in ("user", "ledger"):
        actions = re.findall(r"^    (\w+) ", cx(name, "--help").output, re.MULTILINE)
        expected |= {f"{name} {action}" for action in actions}
    assert known == expected


@pytest.mark.parametrize("arguments", NEEDS_A_DATABASE, ids=" ".join)
@pytest.mark.parametrize("folder", ["data", "no/such/folder", "an empty folder"])
def test_a_command_that_reads_never_creates_a_database(
    folder: str, arguments: tuple[str, ...], cx: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "an empty folder").mkdir()
    data = tmp_path / folder
    url = at(data).database
    before = sorted(tmp_path.rglob("*"))
    places = {"BACKUP": tmp_path / "backup", "COPY": tmp_path / "copy", "DATABASE": url or data}
    more = [] if arguments[0] == "copy" else ["--data", str(data), *(["--database", url] if url else [])]
    status, output, errors = cx(*(str(places.get(word, word)) for word in arguments), *more, typed=b"long enough\n")
    assert status == 1
    assert sorted(tmp_path.rglob("*")) == before
    if url:
        assert "there are no tables in " in output + errors or "there is nothing to copy in " in errors
        with another_connection(at(data)) as connection:
            assert not connection.execute("SELECT 1 FROM pg_tables WHERE schemaname = 'public'").fetchall()
    else:
        assert f"there is no database in {data}" in output + errors
        assert arguments[0] == "doctor" or errors == f"cx-service: there is no database in {data}\n"


@pytest.mark.parametrize("arguments", EVERY_COMMAND, ids=lambda arguments: arguments[0])
def test_a_newer_schema_is_refused(arguments: tuple[str, ...], cx: Callable[..., Outcome], data: Path) -> None:
    cx("migrate")
    with another_connection(at(data)) as connection:
        connection.execute("UPDATE schema_version SET version = 999")
    assert refusal(cx(*arguments)) == "the database has schema 999, newer than this program knows; use a newer one"


@pytest.mark.parametrize("arguments", EVERY_COMMAND, ids=lambda arguments: arguments[0])
def test_a_database_of_another_program_is_refused_and_left_alone(
    arguments: tuple[str, ...], cx: Callable[..., Outcome], data: Path
) -> None:
    data.mkdir(mode=0o700)
    with another_connection(at(data)) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    before = schema(data)
    assert refusal(cx(*arguments)) == "this database belongs to another program"
    assert schema(data) == before != []


@on_sqlite_alone
@pytest.mark.parametrize("arguments", EVERY_COMMAND, ids=lambda arguments: arguments[0])
def test_what_is_no_database_is_refused_and_left_alone(
    arguments: tuple[str, ...], cx: Callable[..., Outcome], data: Path
) -> None:
    data.mkdir(mode=0o700)
    (data / "service.db").write_bytes(b"Dear diary, " * 1000)
    assert "not a database" in refusal(cx(*arguments))
    assert (data / "service.db").read_bytes() == b"Dear diary, " * 1000


@on_sqlite_alone
@pytest.mark.parametrize("arguments", CREATING, ids=lambda arguments: arguments[0])
@pytest.mark.parametrize("place", ["a file/data", "a file", "/proc/cx-data"])
def test_a_folder_that_cannot_be_written_is_refused(
    arguments: tuple[str, ...], place: str, cx: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "a file").touch()
    folder = tmp_path / place
    assert refusal(cx(*arguments, "--data", str(folder))).startswith(f"cannot write the data folder {folder}: ")


def test_a_database_that_another_process_keeps_is_refused_in_one_line(
    cx: Callable[..., Outcome], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cx("migrate")
    monkeypatch.setattr(sqlite, "PRAGMAS", (*sqlite.PRAGMAS, ("busy_timeout", 50)))
    monkeypatch.setattr(postgresql, "LOCK_TIMEOUT", "50ms")
    with another_connection(at(data)) as keeper:
        keeper.execute("BEGIN; SELECT pg_advisory_xact_lock(0)" if is_chosen() else "BEGIN IMMEDIATE")
        complaint = "canceling statement due to lock timeout" if is_chosen() else "database is locked"
        assert refusal(cx("import", "/dev/null")) == f"the database cannot be used: {complaint}"


@on_sqlite_alone
def test_a_disk_that_is_full_is_named_as_such(
    cx: Callable[..., Outcome], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cx("import", "-", typed=json_lines(chat()))
    before = cx("export").output
    monkeypatch.setattr(sqlite, "PRAGMAS", (*sqlite.PRAGMAS, ("max_page_count", 100)))
    much = json_lines({"app": {"name": "x" * 200}} for _ in range(5000))
    assert refusal(cx("import", "-", typed=much)) == "the database cannot be used: database or disk is full"
    assert cx("export").output == before


@pytest.mark.slow
def test_no_room_for_what_an_import_has_checked_is_not_blamed_on_its_file(data: Path, tmp_path: Path) -> None:
    command("migrate", "--data", data)
    much = tmp_path / "much.jsonl"
    much.write_bytes(json_lines({"app": {"name": "x" * 200}} for _ in range(5000)))
    line = f"ulimit -f 1000; exec {sys.executable} -B app.py import {much} --data {data}"
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, env=environment(**where(data)), capture_output=True, timeout=60)
    told = done.stderr.decode()
    assert done.returncode == 1
    assert re.fullmatch(r"cx-service: nothing was imported: what was checked waits in \S+: [^\n]+\n", told), told


def schema(data: Path) -> list[tuple[str, ...]]:
    """All that has a name in a database, each with something that tells it from others."""
    sql = "SELECT name, sql FROM sqlite_master ORDER BY name"
    if is_chosen():
        sql = """SELECT relname, attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
                WHERE relnamespace = 'public'::regnamespace
            UNION SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace
            ORDER BY 1, 2"""
    with another_connection(at(data)) as connection:
        return list(connection.execute(sql).fetchall())


class _Interrupted(Exception):
    """The power goes out."""


def test_an_interrupted_migration_leaves_the_database_as_it_was(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db.open_database(data, at(data).database, create=True)
    execute = db.database.obj.execute_sql
    place = 0

    def interrupted(sql: str, *more: object) -> object:
        nonlocal left
        if left == 0 and not sql.startswith(("BEGIN", "ROLLBACK")):
            raise _Interrupted
        left -= 1
        return execute(sql, *more)

    while True:
        left = place
        with monkeypatch.context() as patch:
            patch.setattr(db.database.obj, "execute_sql", interrupted)
            try:
                migrations.migrate()
                break
            except _Interrupted:
                pass
        assert schema(data) == []
        place += 1
    assert place > sum(map(len, migrations.STEPS))
    assert migrations.migrate() == 0
    db.close_database()


def test_an_interrupted_later_step_leaves_the_earlier_ones(
    cx: Callable[..., Outcome], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cx("import", "-", typed=json_lines(chat()))
    before, rows = schema(data), cx("export").output
    steps = len(migrations.STEPS)
    step = ('ALTER TABLE "bot" ADD COLUMN mood TEXT', "UPDATE bot SET mood = 'new'", "UPDATE absent SET a = 1")
    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, step))
    complaint = 'relation "absent" does not exist' if is_chosen() else "no such table: absent"
    assert complaint in refusal(cx("migrate"))
    assert schema(data) == before
    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS[:-1], step[:-1]))
    assert cx("migrate").output == f"schema {steps + 1}: 1 steps taken\n"
    assert cx("export").output == rows


def test_migrations_make_what_the_tables_declare(cx: Callable[..., Outcome], data: Path) -> None:
    cx("migrate")
    db.open_database(data, at(data).database, create=True)
    for table in TABLES:
        made = {column.name for column in db.database.get_columns(table._meta.table_name)}
        assert made == {column.column_name for column in table._meta.sorted_fields}, table
    db.close_database()


# The legal purge.


def contents(cx: Callable[..., Outcome]) -> dict[str, tuple[str, list[int]]]:
    records = [json.loads(line) for line in cx("export").output.splitlines()]
    said = [record["message"] for record in records if "message" in record]
    return {one["id"]: (one["content_type"], one["content"]) for one in said}


@pytest.mark.parametrize("which", ["message", "session", "user"])
def test_purge_empties_messages_and_takes_their_bytes_out_of_the_files(
    which: str, cx: Callable[..., Outcome], data: Path
) -> None:
    other, bob = uuid(), uuid()
    secret, kept = "[115,101,99,114,101,116]", "[107,101,112,116]"  # as bytes: secret, kept
    first, second, third = ulid(), ulid(), ulid()
    records = [
        *chat(0),
        {"user": {"id": bob, "email": "bob@example.com"}},
        {"chat_session": {"id": other, "app_id": APP, "user_id": bob}},
        {"message": {"id": first, "chat_session_id": SESSION, "content": json.loads(secret) * 100}},
        {"message": {"id": second, "chat_session_id": SESSION, "content": json.loads(secret) * 100}},
        {"message": {"id": third, "chat_session_id": other, "content": json.loads(kept)}},
    ]
    cx("import", "-", typed=json_lines(records))
    target = {"message": first.lower(), "session": SESSION.upper(), "user": "Alice@example.com"}[which]
    gone = {first} if which == "message" else {first, second}
    assert cx("purge", f"--{which}", target) == (0, f"{len(gone)} messages purged\n", "")
    for id, told in contents(cx).items():
        assert (told == ("gdpr_purged", [])) is (id in gone)
    if len(gone) == 2:
        stored = b"".join(files_of(at(data)))
        assert secret[1:-1].encode() not in stored
        assert kept.encode() in stored
    assert cx("purge", f"--{which}", target).output == "0 messages purged\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--message", "01ARZ3NDEKTSV4RRFFQ69G5FAV"), "there is no such message"),
        (("--message", "x"), "expected a ULID"),
        (("--session", APP), "there is no such message"),
        (("--session", "x"), "expected a UUID"),
        (("--user", "nobody@example.com"), "there is no user nobody@example.com"),
    ],
)
def test_purge_says_what_it_does_not_find(
    arguments: tuple[str, ...], line: str, cx: Callable[..., Outcome], settings: Settings
) -> None:
    cx("migrate")
    assert refusal(cx("purge", *arguments)) == line


def test_prepare_may_run_in_a_process_that_prepared_before(settings: Settings) -> None:
    app.prepare(settings, create=True)
    app.prepare(settings, create=True)
    db.close_database()
