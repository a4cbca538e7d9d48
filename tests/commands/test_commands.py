"""The command line: commands, their output, and errors in one line with exit status 1."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import app
from service import commands, db
from service.auth import passwords
from service.clock import ulid, uuid
from service.db import migrations, postgresql, sqlite
from service.models import TABLES, LoginSession, User
from service.routes import operations
from service.settings import Settings
from service.version import HOST, VERSION
from tests.support.client import Client, text_of
from tests.support.command_line import Outcome, error_line
from tests.support.faults import another_connection
from tests.support.installation import settings_at
from tests.support.observe import files_of
from tests.support.paths import ROOT
from tests.support.postgres import is_chosen
from tests.support.server_process import (
    ALICE,
    APP,
    SESSION,
    chat,
    command,
    database_variables,
    environment,
    json_lines,
    serving,
)

pytestmark = pytest.mark.database


# Help and documentation.


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_command_has_help(name: str, cx: Callable[..., Outcome]) -> None:
    status, output, errors = cx(name, "--help")
    assert (status, errors) == (0, "")
    assert output.startswith(f"usage: cx-service {name}")
    assert "--data" in output or name in ("serve", "user", "healthcheck", "client", "completion", "mail", "man", "mcp")


@pytest.mark.parametrize("action", ["add", "list", "show", "edit", "role", "password", "disable", "enable", "delete"])
def test_every_action_on_users_has_help(action: str, cx: Callable[..., Outcome]) -> None:
    assert cx("user", action, "--help").output.startswith(f"usage: cx-service user {action}")


def test_help_lists_all_commands(cx: Callable[..., Outcome]) -> None:
    status, output, _ = cx("--help")
    assert status == 0
    for name, (_, about) in commands.COMMANDS.items():
        assert re.search(rf"^ +{name}\s+{about[:30]}", output, re.MULTILINE)


def test_documentation_lists_all_commands() -> None:
    rows = [line for line in (ROOT / "docs" / "commands.md").read_text().splitlines() if line.startswith("|")]
    for name in commands.COMMANDS:
        assert any(re.search(rf"`{name}\b", row.split("|")[1]) for row in rows), f"add {name} to docs/commands.md"


@pytest.mark.slow
def test_first_steps_with_own_data_run_as_printed(tmp_path: Path) -> None:
    block = (
        (ROOT / "docs" / "first-steps.md").read_text().split("## Your own data")[1].split("```sh\n")[1].split("```")[0]
    )
    *script, last = block.replace("dist/cx-service.pyz", f"{sys.executable} {ROOT / 'app.py'}").splitlines()
    assert last.endswith(" serve")
    variables = environment(**database_variables(tmp_path / "my-data"))
    line = ["sh", "-ec", "\n".join(script)]
    done = subprocess.run(line, input=b"long enough\n", cwd=tmp_path, env=variables, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    with serving(tmp_path / "my-data") as server:
        admin = server.log_in("anna@example.com", "long enough")
        customer = {"email": "carla@example.com", "password": "long enough too"}
        assert server.call("POST", "/api/v1/users", customer, admin).status == 201
        carla = server.log_in(**customer)
        [app] = server.call("GET", "/api/v1/apps", token=admin).data
        [bot] = server.call("GET", f"/api/v1/bots?app_id={app['id']}", token=carla).data
        session = server.call("POST", "/api/v1/chats", {"app_id": app["id"], "bot_id": bot["id"]}, carla).data
        path = f"/api/v1/chats/{session['id']}/messages"
        assert server.call("POST", path, {"content": {"text": "When are you open?"}}, carla).status == 201
        assert [text_of(message) for message in server.call("GET", path, token=carla).data] == [
            "When are you open?",
            "From nine to five.",
        ]


@pytest.mark.parametrize("arguments", [(), ("fly",), ("import",), ("purge",), ("user",), ("serve", "--port", "x")])
def test_invalid_command_line_prints_the_usage_with_status_2(
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
def test_unknown_flag_prints_the_usage_of_its_command_and_a_hint(
    arguments: tuple[str, ...], error: str, cx: Callable[..., Outcome]
) -> None:
    status, output, errors = cx(*arguments)
    assert (status, output) == (2, "")
    assert errors.startswith(f"usage: {error.partition(':')[0]} [-h]")
    assert errors.splitlines()[-1] == error


def test_client_has_no_flags_of_the_database(cx: Callable[..., Outcome]) -> None:
    for arguments in (("client",), ("client", "login"), ("client", "chats")):
        shown = cx(*arguments, "--help").output
        assert "--data" not in shown
        assert "--database" not in shown
    assert cx("client", "--data", "x", "whoami").status == 2


def test_flag_before_an_action_takes_effect(cx: Callable[..., Outcome], tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    outcome = cx("user", "--data", str(missing), "--database", "", "list")
    assert error_line(outcome) == f"there is no database in {missing}"


def test_version_is_the_same_everywhere(cx: Callable[..., Outcome], anyone: Client) -> None:
    assert cx("--version") == (0, f"cx-service {VERSION}, {HOST}, SQLite {db.SQLITE_VERSION}\n", "")
    assert json.loads(cx("openapi").output)["info"]["version"] == VERSION
    assert f'cx_build_info{{version="{VERSION}",' in anyone.get("//metrics").raw.decode()
    line = [sys.executable, "-c", "import setuptools; setuptools.setup()", "--version"]
    assert subprocess.run(line, cwd=ROOT, capture_output=True, check=True).stdout.decode() == f"{VERSION}\n"


def test_garbage_is_collected_while_a_command_runs_but_not_among_loaded_modules() -> None:
    program = """
import gc, sys
import app
from service.commands import describe
describe.print_routes = lambda *_: print(gc.isenabled(), gc.get_freeze_count() > 10_000)
sys.argv[1:] = ["routes"]
app.main()
"""
    line = [sys.executable, "-c", program]
    assert subprocess.run(line, cwd=ROOT, capture_output=True, check=True).stdout == b"True True\n"


def test_app_py_can_be_executed() -> None:
    done = command("routes", "--documented-only")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"/api/v1/auth/login" in done.stdout


# Operations.


def test_routes_lists_every_operation(cx: Callable[..., Outcome]) -> None:
    lines = cx("routes").output.splitlines()
    assert len(lines) == len(list(operations()))
    for operation in operations():
        (line,) = [line for line in lines if line.split()[:2] == [operation.method, operation.full_path]]
        assert line.endswith(operation.summary)
        assert ("  none  " in line) is operation.public


def test_openapi_prints_the_document_without_a_database(cx: Callable[..., Outcome], data: Path) -> None:
    document = json.loads(cx("openapi").output)
    assert document["openapi"].startswith("3.1")
    described = [operation for operation in operations() if not (operation.accepts_cookie and operation.extension)]
    assert {operation.full_path for operation in described} == set(document["paths"])
    assert not data.exists()


@pytest.mark.parametrize("name", ["routes", "openapi"])
def test_documented_only_omits_extensions(name: str, cx: Callable[..., Outcome]) -> None:
    shorter = cx(name, "--documented-only").output
    assert "/auth/refresh" in cx(name).output
    assert "/auth/refresh" not in shorter
    assert "/auth/login" in shorter
    assert "/healthz" in shorter and "/readyz" in shorter


# Users.


def test_user_is_added_with_a_password_from_standard_input(cx: Callable[..., Outcome]) -> None:
    status, output, errors = cx("user", "add", " Alice@Example.COM ", typed="pässwörd\n".encode())
    assert (status, errors) == (0, "")
    alice = User.by_email("alice@example.com")
    assert alice is not None
    assert output == f"{alice.id}\n"
    assert (alice.role, alice.app_id, alice.is_disabled) == ("user", None, False)
    assert passwords.is_correct("pässwörd", alice.password_hash)


def test_password_can_contain_spaces(cx: Callable[..., Outcome]) -> None:
    cx("user", "add", "alice@example.com", typed=b" two words \r\nnext line\n")
    alice = User.by_email("alice@example.com")
    assert alice is not None
    assert passwords.is_correct(" two words ", alice.password_hash)


@pytest.mark.parametrize("typed", [b"", b"\n", b"7 chars\n", "pässwör\n".encode(), b"x" * 1025])
def test_password_of_invalid_length_is_refused(typed: bytes, cx: Callable[..., Outcome]) -> None:
    assert error_line(cx("user", "add", "alice@example.com", typed=typed)) == "a password has 8 to 1024 characters"
    assert cx("user", "list").output == ""
    cx("user", "add", "alice@example.com", typed=b"8 chars!\n")
    line = error_line(cx("user", "password", "alice@example.com", typed=typed))
    assert line == "a password has 8 to 1024 characters"
    alice = User.by_email("alice@example.com")
    assert alice is not None
    assert passwords.is_correct("8 chars!", alice.password_hash)


def test_password_is_never_an_argument(cx: Callable[..., Outcome]) -> None:
    assert cx("user", "add", "alice@example.com", "secret").status == 2
    assert cx("user", "add", "alice@example.com", "--password", "secret").status == 2


@pytest.mark.parametrize("email", ["alice", "@", "a@b@c", "a b@example.com", "alice@", f"{'a' * 250}@b.de", "a\0@b.de"])
def test_invalid_email_address_is_refused(email: str, cx: Callable[..., Outcome]) -> None:
    line = error_line(cx("user", "add", email, typed=b"long enough\n"))
    assert line == "expected an e-mail address such as ada@example.com"


def test_existing_email_address_is_refused_in_any_case(cx: Callable[..., Outcome]) -> None:
    cx("user", "add", "alice@example.com", typed=b"long enough\n")
    assert (
        error_line(cx("user", "add", "ALICE@example.com", typed=b"x\n")) == "the user alice@example.com already exists"
    )


def test_agent_needs_an_existing_app(cx: Callable[..., Outcome]) -> None:
    add = ("user", "add", "agnes@example.com", "--role", "agent")
    assert "--app" in error_line(cx(*add, typed=b"long enough\n"))
    assert error_line(cx(*add, "--app", APP, typed=b"long enough\n")) == f"no such app: {APP}"
    assert error_line(cx(*add, "--app", "shop", typed=b"long enough\n")) == "expected a UUID"
    cx("import", "-", typed=json_lines(chat()))
    assert cx(*add, "--app", APP, typed=b"long enough\n").status == 0
    agnes = User.by_email("agnes@example.com")
    assert agnes is not None
    assert (agnes.role, agnes.user_type, agnes.app_id) == ("agent", "staff", APP)


def test_list_shows_whether_users_are_enabled(cx: Callable[..., Outcome]) -> None:
    cx("user", "add", "bob@example.com", typed=b"long enough\n")
    cx("user", "add", "ada@example.com", "--role", "admin", typed=b"long enough\n")
    cx("user", "disable", "bob@example.com")
    rows = [line.split() for line in cx("user", "list").output.splitlines()]
    assert [row[1:] for row in rows] == [
        ["admin", "enabled", "ada@example.com"],
        ["user", "disabled", "bob@example.com"],
    ]


def test_changed_password_ends_all_login_sessions(cx: Callable[..., Outcome]) -> None:
    cx("import", "-", typed=json_lines(chat()))
    session = LoginSession.create(user_id=ALICE, expires_at=2**50)
    assert cx("user", "password", "alice@example.com", typed=b"new words\n") == (0, "", "")
    alice = User.get_by_id(ALICE)
    assert passwords.is_correct("new words", alice.password_hash)
    assert LoginSession.get_by_id(session.id).ended_at is not None


def test_disabled_user_is_signed_out_and_can_be_enabled(cx: Callable[..., Outcome]) -> None:
    cx("import", "-", typed=json_lines(chat()))
    session = LoginSession.create(user_id=ALICE, expires_at=2**50)
    assert cx("user", "disable", "ALICE@example.com") == (0, "", "")
    assert User.get_by_id(ALICE).is_disabled
    assert LoginSession.get_by_id(session.id).ended_at is not None
    assert cx("user", "enable", "alice@example.com") == (0, "", "")
    assert not User.get_by_id(ALICE).is_disabled


@pytest.mark.parametrize("action", ["password", "disable", "enable", "show", "edit", "delete"])
def test_unknown_user_is_reported_in_one_line(action: str, cx: Callable[..., Outcome]) -> None:
    cx("migrate")
    line = error_line(cx("user", action, "missing@example.com", typed=b"long enough\n"))
    assert line == "no such user: missing@example.com"


def on_a_terminal(data: Path, *typed: str) -> tuple[int, str]:
    """Add a user from a terminal. Returns the exit status and the output."""
    line = [sys.executable, str(ROOT / "app.py"), "user", "add", "alice@example.com", "--data", str(data)]
    master, terminal = pty.openpty()
    variables = environment(**database_variables(data))
    with subprocess.Popen(
        line, stdin=terminal, stdout=terminal, stderr=terminal, env=variables, start_new_session=True
    ) as process:
        os.close(terminal)
        shown = b""
        prompts = [b"Password: ", b"Password again: "]
        try:
            while chunk := os.read(master, 1000):
                shown += chunk
                if prompts and prompts[0] in shown:
                    os.write(master, f"{typed[2 - len(prompts)]}\n".encode())
                    prompts.pop(0)
        except OSError:  # the terminal was closed
            pass
        os.close(master)
        return process.wait(30), shown.decode()


def test_terminal_prompts_twice_for_the_password_without_echo(data: Path) -> None:
    status, shown = on_a_terminal(data, "s3cret words", "s3cret words")
    assert status == 0
    assert shown.startswith("Password: ") and "Password again: " in shown
    assert "s3cret words" not in shown


def test_different_passwords_on_a_terminal_are_refused(data: Path) -> None:
    status, shown = on_a_terminal(data, "s3cret words", "other words")
    assert status == 1
    assert shown.endswith("cx-service: the passwords do not match\r\n")


def test_user_added_twice_concurrently_is_added_once(
    cx: Callable[..., Outcome], data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class ConcurrentInput(io.StringIO):
        """Types a password while another process adds the same user."""

        def readline(self, *_: object) -> str:
            User.create(email="alice@example.com")
            return "long enough\n"

    cx("migrate")
    monkeypatch.setattr(sys, "stdin", ConcurrentInput())
    capsys.readouterr()
    status = commands.run(["user", "add", "Alice@example.com"])
    assert error_line(Outcome(status, *capsys.readouterr())) == "the user alice@example.com already exists"
    assert User.select().count() == 1
    db.close_database()


# The schema and files.


def test_migrate_applies_migrations_once(cx: Callable[..., Outcome]) -> None:
    steps = len(migrations.STEPS)
    assert cx("migrate") == (0, f"schema {steps}: {steps} migrations applied\n", "")
    assert cx("migrate") == (0, f"schema {steps}: up to date\n", "")


@pytest.mark.sqlite_only
def test_data_folder_and_database_are_private(cx: Callable[..., Outcome], data: Path) -> None:
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
    ("user", "show", "alice@example.com"),
    ("user", "edit", "alice@example.com", "--first-name", "Alice"),
    ("user", "role", "alice@example.com", "admin"),
    ("user", "delete", "alice@example.com"),
    (
        *("user", "reinvite", "alice@example.com", "--smtp", "smtp://127.0.0.1"),
        *("--mail-from", "shop@chat.example", "--public-url", "https://chat.example"),
    ),
    ("app", "list"),
    ("app", "edit", APP, "--name", "Shop"),
    ("bot", "add", "Hilda", "--app", APP),
    ("bot", "list"),
    ("answer", "add", "--bot", APP, "When?", "Now."),
    ("answer", "list", "--bot", APP),
    ("answer", "import", "--bot", APP, "ANSWERS"),
    ("answer", "delete", APP),
    ("bot", "edit", APP, "--name", "Hilda"),
    ("announcement", "add", "--app", APP, "News"),
    ("announcement", "list", "--app", APP),
    ("audit", "list"),
    ("audit", "verify"),
    ("delivery", "list"),
    ("delivery", "show", "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
    ("delivery", "retry", "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
    ("webhook", "list"),
    ("webhook", "enable", "https://hooks.example"),
    ("doctor",),
    ("backup", "BACKUP"),
    ("copy", "--from", "DATABASE", "--to", "COPY"),
]
CREATES_A_DATABASE = [*CREATING, ("user", "add"), ("user", "invite"), ("app", "add"), ("restore",)]
WITH_ACTIONS = {"announcement", "answer", "app", "audit", "bot", "delivery", "mail", "mcp", "user", "webhook"}
WITHOUT_A_DATABASE = [
    *(("client",), ("config",), ("completion", "bash"), ("man",)),
    *(("healthcheck",), ("routes",), ("openapi",), ("upgrade",), ("mail", "test"), ("webhook", "test")),
    *(("mcp", "list"), ("mcp", "test")),
]


def test_all_commands_declare_whether_they_create_a_database(cx: Callable[..., Outcome]) -> None:
    lines = NEEDS_A_DATABASE + CREATES_A_DATABASE + WITHOUT_A_DATABASE
    known = {" ".join(line[: 2 if line[0] in WITH_ACTIONS else 1]) for line in lines}
    expected = {*commands.COMMANDS} - WITH_ACTIONS
    for name in WITH_ACTIONS:
        actions = re.findall(r"^    (\w+) ", cx(name, "--help").output, re.MULTILINE)
        expected |= {f"{name} {action}" for action in actions}
    assert known == expected


@pytest.mark.parametrize("arguments", NEEDS_A_DATABASE, ids=" ".join)
@pytest.mark.parametrize("folder", ["data", "no/such/folder", "an empty folder"])
def test_reading_command_never_creates_a_database(
    folder: str, arguments: tuple[str, ...], cx: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "an empty folder").mkdir()
    data = tmp_path / folder
    url = settings_at(data).database
    before = sorted(tmp_path.rglob("*"))
    places = {
        "ANSWERS": ROOT / "tests" / "commands" / "answers.csv",
        "BACKUP": tmp_path / "backup",
        "COPY": tmp_path / "copy",
        "DATABASE": url or data,
    }
    more = [] if arguments[0] == "copy" else ["--data", str(data), *(["--database", url] if url else [])]
    status, output, errors = cx(*(str(places.get(word, word)) for word in arguments), *more, typed=b"long enough\n")
    assert status == 1
    assert sorted(tmp_path.rglob("*")) == before
    if url:
        assert "there are no tables in " in output + errors or "there is nothing to copy in " in errors
        with another_connection(settings_at(data)) as connection:
            assert not connection.execute("SELECT 1 FROM pg_tables WHERE schemaname = 'public'").fetchall()
    else:
        assert f"there is no database in {data}" in output + errors
        assert arguments[0] == "doctor" or errors == f"cx-service: there is no database in {data}\n"


@pytest.mark.parametrize("arguments", EVERY_COMMAND, ids=lambda arguments: arguments[0])
def test_newer_schema_is_refused(arguments: tuple[str, ...], cx: Callable[..., Outcome], data: Path) -> None:
    cx("migrate")
    with another_connection(settings_at(data)) as connection:
        connection.execute("UPDATE schema_version SET version = 999")
    assert (
        error_line(cx(*arguments))
        == "the database has schema 999, which is newer than this program: use a newer version"
    )


@pytest.mark.parametrize("arguments", EVERY_COMMAND, ids=lambda arguments: arguments[0])
def test_database_of_another_program_is_refused_unchanged(
    arguments: tuple[str, ...], cx: Callable[..., Outcome], data: Path
) -> None:
    data.mkdir(mode=0o700)
    with another_connection(settings_at(data)) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    before = schema(data)
    assert error_line(cx(*arguments)) == "this database belongs to another program"
    assert schema(data) == before != []


@pytest.mark.sqlite_only
@pytest.mark.parametrize("arguments", EVERY_COMMAND, ids=lambda arguments: arguments[0])
def test_file_that_is_no_database_is_refused_unchanged(
    arguments: tuple[str, ...], cx: Callable[..., Outcome], data: Path
) -> None:
    data.mkdir(mode=0o700)
    (data / "service.db").write_bytes(b"Dear diary, " * 1000)
    assert "not a database" in error_line(cx(*arguments))
    assert (data / "service.db").read_bytes() == b"Dear diary, " * 1000


@pytest.mark.sqlite_only
@pytest.mark.parametrize("arguments", CREATING, ids=lambda arguments: arguments[0])
@pytest.mark.parametrize("place", ["a file/data", "a file", "/proc/cx-data"])
def test_unwritable_folder_is_refused(
    arguments: tuple[str, ...], place: str, cx: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "a file").touch()
    folder = tmp_path / place
    assert error_line(cx(*arguments, "--data", str(folder))).startswith(f"cannot write the data folder {folder}: ")


def test_locked_database_is_reported_in_one_line(
    cx: Callable[..., Outcome], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cx("migrate")
    monkeypatch.setattr(sqlite, "PRAGMAS", (*sqlite.PRAGMAS, ("busy_timeout", 50)))
    monkeypatch.setattr(postgresql, "LOCK_TIMEOUT", "50ms")
    with another_connection(settings_at(data)) as holder:
        holder.execute("BEGIN; SELECT pg_advisory_xact_lock(0)" if is_chosen() else "BEGIN IMMEDIATE")
        error = "canceling statement due to lock timeout" if is_chosen() else "database is locked"
        assert error_line(cx("import", "/dev/null")) == f"the database cannot be used: {error}"


@pytest.mark.sqlite_only
def test_full_disk_is_reported(cx: Callable[..., Outcome], data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cx("import", "-", typed=json_lines(chat()))
    before = cx("export").output
    monkeypatch.setattr(sqlite, "PRAGMAS", (*sqlite.PRAGMAS, ("max_page_count", 100)))
    records = json_lines({"app": {"name": "x" * 200}} for _ in range(5000))
    assert error_line(cx("import", "-", typed=records)) == "the database cannot be used: database or disk is full"
    assert cx("export").output == before


@pytest.mark.slow
def test_full_temporary_folder_is_reported_by_import(data: Path, tmp_path: Path) -> None:
    command("migrate", "--data", data)
    file = tmp_path / "in.jsonl"
    file.write_bytes(json_lines({"app": {"name": "x" * 200}} for _ in range(5000)))
    line = f"ulimit -f 1000; exec {sys.executable} -B app.py import {file} --data {data}"
    done = subprocess.run(
        ["sh", "-c", line], cwd=ROOT, env=environment(**database_variables(data)), capture_output=True, timeout=60
    )
    errors = done.stderr.decode()
    assert done.returncode == 1
    assert re.fullmatch(r"cx-service: nothing was imported: cannot write temporary files in \S+: [^\n]+\n", errors), (
        errors
    )


def schema(data: Path) -> list[tuple[str, ...]]:
    """The names of all objects in a database, each with a distinguishing property."""
    sql = "SELECT name, sql FROM sqlite_master ORDER BY name"
    if is_chosen():
        sql = """SELECT relname, attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
                WHERE relnamespace = 'public'::regnamespace
            UNION SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace
            ORDER BY 1, 2"""
    with another_connection(settings_at(data)) as connection:
        return list(connection.execute(sql).fetchall())


class _Interrupted(Exception):
    """A simulated power failure."""


@pytest.mark.slow
def test_interrupted_migration_changes_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db.open_database(data, settings_at(data).database, create=True)
    execute = db.database.obj.execute_sql
    completed = 0

    def interrupted(sql: str, *more: object) -> object:
        nonlocal left
        if left == 0 and not sql.startswith(("BEGIN", "ROLLBACK")):
            raise _Interrupted
        left -= 1
        return execute(sql, *more)

    while True:
        left = completed
        with monkeypatch.context() as patch:
            patch.setattr(db.database.obj, "execute_sql", interrupted)
            try:
                migrations.migrate()
                break
            except _Interrupted:
                pass
        assert schema(data) == []
        completed += 1
    assert completed > sum(map(len, migrations.STEPS))
    assert migrations.migrate() == 0
    db.close_database()


def test_interrupted_later_migration_keeps_the_earlier_ones(
    cx: Callable[..., Outcome], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cx("import", "-", typed=json_lines(chat()))
    before, rows = schema(data), cx("export").output
    steps = len(migrations.STEPS)
    step = ('ALTER TABLE "bot" ADD COLUMN mood TEXT', "UPDATE bot SET mood = 'new'", "UPDATE absent SET a = 1")
    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, step))
    error = 'relation "absent" does not exist' if is_chosen() else "no such table: absent"
    assert error in error_line(cx("migrate"))
    assert schema(data) == before
    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS[:-1], step[:-1]))
    assert cx("migrate").output == f"schema {steps + 1}: 1 migration applied\n"
    assert cx("export").output == rows


def test_migrations_create_the_declared_tables(cx: Callable[..., Outcome], data: Path) -> None:
    cx("migrate")
    db.open_database(data, settings_at(data).database, create=True)
    for table in TABLES:
        made = {column.name for column in db.database.get_columns(table._meta.table_name)}
        assert made == {column.column_name for column in table._meta.sorted_fields}, table
    db.close_database()


# Purge.


def contents(cx: Callable[..., Outcome]) -> dict[str, tuple[str, list[int]]]:
    records = [json.loads(line) for line in cx("export").output.splitlines()]
    messages = [record["message"] for record in records if "message" in record]
    return {one["id"]: (one["content_type"], one["content"]) for one in messages}


@pytest.mark.parametrize("which", ["message", "session", "user"])
def test_purge_erases_messages_and_their_bytes_in_the_files(which: str, cx: Callable[..., Outcome], data: Path) -> None:
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
    purged = {first} if which == "message" else {first, second}
    assert cx("purge", f"--{which}", target) == (0, f"{len(purged)} messages purged\n", "")
    for id, state in contents(cx).items():
        assert (state == ("gdpr_purged", [])) is (id in purged)
    if len(purged) == 2:
        stored = b"".join(files_of(settings_at(data)))
        assert secret[1:-1].encode() not in stored
        assert kept.encode() in stored
    assert cx("purge", f"--{which}", target).output == "0 messages purged\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--message", "01ARZ3NDEKTSV4RRFFQ69G5FAV"), "no such message"),
        (("--message", "x"), "expected a ULID"),
        (("--session", APP), "no such message"),
        (("--session", "x"), "expected a UUID"),
        (("--user", "missing@example.com"), "no such user: missing@example.com"),
    ],
)
def test_purge_reports_missing_messages(
    arguments: tuple[str, ...], line: str, cx: Callable[..., Outcome], settings: Settings
) -> None:
    cx("migrate")
    assert error_line(cx("purge", *arguments)) == line


def test_prepare_can_run_twice_in_one_process(settings: Settings) -> None:
    app.prepare(settings, create=True)
    app.prepare(settings, create=True)
    db.close_database()
