"""`copy`: copies all rows unchanged or none; with PostgreSQL, in all three directions."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import app
from service import clock, db
from service.commands import run
from service.db import Table, migrations, open_file
from service.fields import ShortIdentifier
from service.models import (
    TABLES,
    Announcement,
    App,
    Approval,
    AssistantMonth,
    AssistantUsage,
    AuditLog,
    Avatar,
    Bot,
    CalendarFeed,
    ChatRating,
    ChatSession,
    ClockState,
    Delivery,
    DeviceAuthorization,
    EndedWebhook,
    Feedback,
    FeedbackScreenshot,
    IdempotencyKey,
    LoginAttempt,
    LoginSession,
    Message,
    PendingReply,
    PushKey,
    PushSubscription,
    PushTopic,
    ReadMarker,
    ServerCredential,
    StoredBranding,
    StoredMail,
    User,
)
from service.operate import database_copy, import_export
from service.settings import Settings
from tests.support import postgres, sample_data
from tests.support.command_line import Outcome, error_line
from tests.support.passwords import PASSWORD
from tests.support.server_process import Served, command, json_lines, serving

pytestmark = [pytest.mark.slow, pytest.mark.database]

HAS_POSTGRESQL = postgres.is_chosen()
SQLITE, POSTGRESQL = "sqlite", "postgresql"
DIRECTIONS = (
    [(SQLITE, POSTGRESQL), (POSTGRESQL, SQLITE), (POSTGRESQL, POSTGRESQL)] if HAS_POSTGRESQL else [(SQLITE, SQLITE)]
)

Contents = dict[str, list[tuple[Any, ...]]]


def connect(where: str) -> Any:
    return db.connect(Path(), where) if "://" in where else db.connect(Path(where), create=True)


def open_at(where: str) -> Any:
    """Open the database at a location in this process."""
    db.close_database()
    db.database.initialize(connect(where))
    return db.database


def prepare(where: str) -> None:
    """Create the rows of the first start of a service."""
    db.close_database()
    app.prepare(Settings(database=where) if "://" in where else Settings(data=Path(where)), create=True)


def contents(where: str) -> Contents:
    """All rows of all tables; empty if there are no tables."""
    if not open_at(where).get_tables():
        return {}
    keys = {table: table._meta.get_primary_keys() for table in TABLES}
    return {table.__name__: list(table.select().order_by(*keys[table]).tuples()) for table in TABLES}


def fill(where: str, folder: Path) -> None:
    """Rows in every table."""
    prepare(where)
    records = folder / "records.jsonl"
    records.write_bytes(json_lines(sample_data.records()))
    assert import_export.import_files([records]) == []
    LoginSession.create(user_id=sample_data.ALICE, expires_at=2**53, scopes="chats:read", install_id="i")
    LoginAttempt.create(at=clock.now(), account="alice@example.com", network="127.0.0.1")
    approval = {"id": "t", "user_id": sample_data.ALICE, "is_granted": True, "decided_at": clock.now()}
    Approval.create(**approval, code_challenge="c", redirect_uri="http://127.0.0.1/", scopes="", install_id="i")
    device = {"id": "d", "user_code": "u", "network": "n", "created_at": clock.now(), "expires_at": 2**53}
    client = {"scope": "", "scopes": "", "install_id": "i", "install_name": ""}
    DeviceAuthorization.create(**device, **client, poll_interval=5000, polled_at=0, user_id=sample_data.ALICE)
    request = {"user_id": sample_data.ALICE, "operation": "POST /feedback", "key": "k", "fingerprint": "f"}
    IdempotencyKey.create(**request, body='{"success":true}', expires_at=clock.now() + clock.DAY)
    about = {"chat_session_id": sample_data.SESSION, "message_id": sample_data.HELLO}
    ReadMarker.create(**about, user_id=sample_data.ALICE)
    PendingReply.create(**about, languages="de en", due_at=clock.now() + clock.DAY)  # no server sends it during a test
    CalendarFeed.create(user_id=sample_data.ALICE, digest="d")
    PushTopic.create(user_id=sample_data.ALICE, topic="t")
    PushKey.ensure()
    browser = {"endpoint": "https://push.example", "p256dh": "k", "auth": "s", "login_session_id": "l"}
    PushSubscription.create(user_id=sample_data.ALICE, **browser)
    ServerCredential.create(name="Gateway", mcp_server_id="files", secret_digest="d", previous_digest="")
    EndedWebhook.create(url="https://hooks.example")
    Delivery.create(channel="email", kind="login", user_id=sample_data.ALICE, due_at=clock.now())
    StoredMail.create(user_id=sample_data.ALICE, address="alice@example.com", subject="Hello", content="Hello")
    Announcement.create(app_id=sample_data.SHOP, title="News")
    AssistantUsage.create(app_id=sample_data.SHOP, month="2026-11")
    AssistantMonth.create(app_id=sample_data.SHOP, month="2026-11", tokens=60, replies=1)
    ClockState.record()
    StoredBranding.create(id=1, name="Shop", accent="#0b6e5f", logo="AAAA")


class Databases(NamedTuple):
    """The source and the target of a copy."""

    source: str
    target: str
    to_postgresql: bool


@pytest.fixture
def new_location(tmp_path: Path) -> Iterator[Callable[[str, str], str]]:
    """Return the location of a new database of a kind."""
    made: list[str] = []

    def make(kind: str, name: str) -> str:
        if kind == SQLITE:
            return str(tmp_path / name)
        made.append(postgres.database_of(tmp_path / name))
        return made[-1]

    yield make
    db.close_database()
    for url in made:
        postgres.drop(url)


@pytest.fixture(params=DIRECTIONS, ids="-to-".join)
def new(request: pytest.FixtureRequest, new_location: Callable[[str, str], str]) -> Databases:
    """Two databases that do not exist yet."""
    source, target = request.param
    return Databases(new_location(source, "old"), new_location(target, "new"), target == POSTGRESQL)


@pytest.fixture
def databases(new: Databases, tmp_path: Path) -> Databases:
    """A database with rows in all tables, and one that does not exist yet."""
    fill(new.source, tmp_path)
    return new


@pytest.fixture
def cx(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Copy from one location to another."""

    def copy(source: str, target: str) -> Outcome:
        db.close_database()
        capsys.readouterr()
        try:
            status = run(["copy", "--from", source, "--to", target])
        except SystemExit as leaving:
            status = int(leaving.code or 0)
        finally:
            db.close_database()
        return Outcome(status, *capsys.readouterr())

    return copy


def copy(databases: Databases, progress: Callable[[int], None] = lambda rows: None) -> dict[str, int]:
    """Copy with a progress callback."""
    db.close_database()
    source, target = connect(databases.source), connect(databases.target)
    with source.disconnecting(), target.disconnecting():
        return database_copy.copy(source, target, progress)


# All rows.


def test_all_rows_are_copied_and_the_source_is_unchanged(databases: Databases, cx: Callable[..., Outcome]) -> None:
    before = contents(databases.source)
    assert all(before.values())
    status, output, errors = cx(databases.source, databases.target)
    assert (status, errors) == (0, "")
    assert contents(databases.target) == before == contents(databases.source)
    lines = [line.split() for line in output.splitlines()]
    assert [(name, int(number)) for number, name in lines[:-1]] == [
        (table._meta.table_name, len(before[table.__name__])) for table in TABLES
    ]
    assert lines[-1][:3] == [str(sum(map(len, before.values()))), "rows", "copied"]


def test_rows_created_by_a_first_start_are_replaced(databases: Databases, cx: Callable[..., Outcome]) -> None:
    prepare(databases.target)
    ClockState.record()
    own = contents(databases.target)["SigningKey"]
    assert len(own) == 1
    assert cx(databases.source, databases.target).status == 0
    assert contents(databases.target) == contents(databases.source)
    assert own[0] not in contents(databases.target)["SigningKey"]


def test_copying_there_and_back_gives_the_same_database(
    databases: Databases, cx: Callable[..., Outcome], tmp_path: Path
) -> None:
    back = str(tmp_path / "back")
    assert (cx(databases.source, databases.target).status, cx(databases.target, back).status) == (0, 0)
    assert contents(back) == contents(databases.source)


def test_source_with_only_a_signing_key_is_copied(new: Databases, cx: Callable[..., Outcome]) -> None:
    prepare(new.source)
    assert cx(new.source, new.target).status == 0
    assert contents(new.target) == contents(new.source)


def test_progress_counts_each_row_twice(databases: Databases) -> None:
    steps: list[int] = []
    copied = copy(databases, steps.append)
    assert sum(steps) == 2 * sum(copied.values())


def test_target_with_an_older_schema_is_migrated(
    databases: Databases, cx: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_at(databases.target)
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "STEPS", migrations.STEPS[:1])
        migrations.migrate()
    assert cx(databases.source, databases.target).status == 0
    assert contents(databases.target) == contents(databases.source)
    assert migrations.version() == len(migrations.STEPS)


def test_rows_written_during_the_copy_are_not_copied(databases: Databases) -> None:
    before = contents(databases.source)
    other = connect(databases.source)
    seen: list[int] = []

    def write_between(rows: int) -> None:
        if not seen:
            for table, columns in (("app", "(id, name)"), ("login_attempt", "(id, at, account, network)")):
                values = ", ".join(["'1'"] * len(columns.split()))
                other.execute_sql(f"INSERT INTO {table} {columns} VALUES ({values})")
        seen.append(rows)

    with other.disconnecting():
        copy(databases, write_between)
    assert contents(databases.target) == before != contents(databases.source)


# Extreme values.

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20) | st.sampled_from(
    [
        "",
        "\\N",
        "\\.",
        "\t\n\r\\",
        "'\"",
        "null",
        "\x01\x7f\x1b[31m",
        "\ufeff\ufffe\uffff",
        "\U0010ffff",
        "é",
        "e\u0301",
    ]
)
LARGE = 2**63
INTEGERS = st.integers(-LARGE, LARGE - 1) | st.sampled_from([-LARGE, LARGE - 1, 2**53 + 1, -1, 0])
NUMBERS = st.floats(allow_nan=False) | st.sampled_from([5e-324, 1.7976931348623157e308, 0.1 + 0.2, 1 / 3, -0.0])
UUIDS = st.uuids().map(str)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "TEXT": TEXTS,
    "BIGINT": INTEGERS,
    "BOOL": st.booleans(),
    "REAL": NUMBERS,
}
PARENTS = {"app": App, "user": User, "bot": Bot, "chat_session": ChatSession, "message": Message}
PARENTS |= {"feedback": Feedback}
UNIQUE = {
    "source_event_id",
    *(column.name for table in TABLES for column in table._meta.sorted_fields if column.unique),
}
PARENT_ID = sample_data.uuid(1)  # the parent of all odd rows, in each of the tables that have children


def generated_rows(table: type[Table], number: int) -> st.SearchStrategy[tuple[type[Table], list[Any]]]:
    """A row with any values that its column types allow, except for references and unique values."""
    unique = UNIQUE | {key.name for key in table._meta.get_primary_keys()}

    def values(column: Any) -> st.SearchStrategy[Any]:
        if column.constraints:
            return st.just(PARENT_ID)
        kind = UUIDS if isinstance(column, ShortIdentifier) else VALUES[column.field_type]
        if column.name in unique and kind is TEXTS:
            return kind.map(lambda value: f"{number}{value}")
        return st.none() | kind if column.null else kind

    return st.tuples(*map(values, table._meta.sorted_fields)).map(lambda row: (table, list(row)))


SINGLE = (
    Avatar,
    CalendarFeed,
    PushTopic,
    PushKey,
    PendingReply,
    AuditLog,
    AssistantUsage,
    AssistantMonth,
    ClockState,
    StoredBranding,
    ReadMarker,
    FeedbackScreenshot,
    ChatRating,
)  # at most one row, or one for each parent
GENERATED_ROWS = st.tuples(*(generated_rows(table, n) for table in TABLES for n in range(1 if table in SINGLE else 3)))


@given(rows=GENERATED_ROWS)
@hypothesis_settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
def test_values_of_all_types_are_copied_unchanged(new: Databases, rows: Any) -> None:
    for where in new[:2]:
        open_at(where)
        migrations.migrate()
        for table in reversed(TABLES):
            table.delete().execute()
    open_at(new.source)
    for name, parent in PARENTS.items():
        references = {column.name: PARENT_ID for column in parent._meta.sorted_fields if column.constraints}
        required = {"user": {"email": "a@b.c"}, "feedback": {"description": "Fine"}}.get(name, {})
        parent.create(id=PARENT_ID, **references, **required)
    for table, row in rows:
        table.insert_many([row], fields=table._meta.sorted_fields).execute()
    copy(new)
    copied, expected = contents(new.target), contents(new.source)
    assert copied == expected
    assert all(len(expected[table.__name__]) >= 1 for table in TABLES)


def test_long_texts_are_copied(databases: Databases) -> None:
    open_at(databases.source)
    Bot.update(description="💥" * 100_000).execute()
    copy(databases)
    assert contents(databases.target) == contents(databases.source)


# Errors: nothing changes.


def is_empty(where: str) -> bool:
    """Whether a database has no tables."""
    return not contents(where)


@pytest.mark.parametrize(
    "make",
    [
        lambda: App.create(name="Shop"),
        lambda: User.create(email="a@b.c"),
        lambda: LoginAttempt.create(at=1, account="", network=""),
    ],
    ids=["app", "user", "login_attempt"],
)
def test_target_with_rows_is_refused(make: Callable[[], Any], databases: Databases, cx: Callable[..., Outcome]) -> None:
    prepare(databases.target)
    made = make()
    before = contents(databases.target)
    line = error_line(cx(databases.source, databases.target))
    assert f'is not empty ("{made._meta.table_name}" has rows): name a new or empty database' in line
    assert contents(databases.target) == before


def test_second_copy_is_refused(databases: Databases, cx: Callable[..., Outcome]) -> None:
    assert cx(databases.source, databases.target).status == 0
    before = contents(databases.target)
    assert "is not empty" in error_line(cx(databases.source, databases.target))
    assert contents(databases.target) == before


@pytest.mark.parametrize(
    ("version", "line"),
    [
        (1, "schema 1, but this program needs schema {today}: run `cx-service migrate` on it first"),
        (99, "schema 99, but this program needs schema {today}: use a newer version"),
    ],
)
def test_source_with_another_schema_is_refused(
    version: int, line: str, databases: Databases, cx: Callable[..., Outcome]
) -> None:
    open_at(databases.source).execute_sql(f"UPDATE schema_version SET version = {version}")
    assert line.format(today=len(migrations.STEPS)) in error_line(cx(databases.source, databases.target))
    assert is_empty(databases.target)


def test_target_with_a_newer_schema_is_refused(databases: Databases, cx: Callable[..., Outcome]) -> None:
    prepare(databases.target)
    db.database.execute_sql("UPDATE schema_version SET version = 99")
    assert "schema 99, which is newer than this program" in error_line(cx(databases.source, databases.target))


def test_databases_of_other_programs_are_refused(databases: Databases, cx: Callable[..., Outcome]) -> None:
    open_at(databases.target).execute_sql("CREATE TABLE cake (id INTEGER)")
    for source, target in ((databases.source, databases.target), (databases.target, databases.source)):
        assert error_line(cx(source, target)) == "this database belongs to another program"
    assert open_at(databases.target).get_tables() == ["cake"]


def test_empty_source_is_refused(new: Databases, cx: Callable[..., Outcome]) -> None:
    open_at(new.source)
    assert error_line(cx(new.source, new.target)).startswith("there is nothing to copy in ")
    assert is_empty(new.target)


def test_folder_without_a_database_is_refused(tmp_path: Path, cx: Callable[..., Outcome]) -> None:
    typo, target = tmp_path / "typo", tmp_path / "new"
    assert error_line(cx(str(typo), str(target))) == f"there is no database in {typo}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["", "mysql://cx@localhost/cx", "sqlite:///service.db"])
def test_invalid_location_is_refused(
    where: str, databases: Databases, cx: Callable[..., Outcome], tmp_path: Path
) -> None:
    before = sorted(tmp_path.iterdir())
    assert error_line(cx(where, databases.target)) == "WHERE must be a postgresql:// address or a data folder"
    assert error_line(cx(databases.source, where)) == "WHERE must be a postgresql:// address or a data folder"
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("arguments", [(), ("--from", "a"), ("--to", "a"), ("--data", "a", "--from", "a", "--to", "b")])
def test_source_and_target_are_required(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(["copy", *arguments])
    assert capsys.readouterr().err.startswith("usage: cx-service ")


def test_database_is_not_copied_to_itself(databases: Databases, cx: Callable[..., Outcome], tmp_path: Path) -> None:
    if "://" in databases.source:
        others = [f"{databases.source}?application_name=other", databases.source.replace("127.0.0.1", "localhost")]
    else:
        link = tmp_path / "link"
        link.symlink_to(databases.source)
        others = [str(link), str(Path(databases.source) / ".." / "old")]
    before = contents(databases.source)
    for other in (databases.source, *others):
        assert error_line(cx(databases.source, other)).endswith("cannot be copied to itself")
    assert contents(databases.source) == before


# Atomicity.


@pytest.mark.parametrize(("share", "started"), [(0, False), (0.3, True), (0.5, False), (0.7, True), (1, False)])
def test_interrupted_copy_leaves_the_target_unchanged(share: float, started: bool, databases: Databases) -> None:
    if started:
        prepare(databases.target)
    before = contents(databases.target)
    steps = 2 * sum(map(len, contents(databases.source).values()))
    calls: list[int] = []

    def interrupt(rows: int) -> None:
        calls.append(rows)
        if len(calls) == max(1, int(share * steps)):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy(databases, interrupt)
    assert contents(databases.target) == before
    copy(databases)
    assert contents(databases.target) == contents(databases.source)


TRIGGERS = {  # a trigger that changes the apps written to the target
    SQLITE: """CREATE TRIGGER spoil AFTER INSERT ON app BEGIN {}; END""",
    POSTGRESQL: """CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; RETURN NULL; END $$;
        CREATE TRIGGER spoil AFTER INSERT ON app FOR EACH ROW EXECUTE FUNCTION spoil()""",
}


@pytest.mark.parametrize(
    ("action", "line"),
    [
        ("UPDATE app SET name = name || '.' WHERE id = new.id", "has different rows"),
        ("DELETE FROM app WHERE id = new.id", "has 0 rows instead of 2"),
    ],
)
def test_difference_rolls_the_copy_back(
    action: str, line: str, databases: Databases, cx: Callable[..., Outcome]
) -> None:
    prepare(databases.target)
    db.database.execute_sql(TRIGGERS[db.database.kind].format(action))
    before = contents(databases.target)
    error = error_line(cx(databases.source, databases.target))
    assert error.startswith('nothing was copied: "app" in ') and error.endswith(line)
    assert contents(databases.target) == before


ERRORS = {SQLITE: "SELECT RAISE(ROLLBACK, 'no more room')", POSTGRESQL: "RAISE EXCEPTION 'no more room'"}


def test_error_of_the_target_is_reported(databases: Databases, cx: Callable[..., Outcome]) -> None:
    prepare(databases.target)
    kind = db.database.kind
    db.database.execute_sql(TRIGGERS[kind].format(ERRORS[kind]))
    before = contents(databases.target)
    assert error_line(cx(databases.source, databases.target)) == "the copy failed: no more room"
    assert contents(databases.target) == before


# Values that the service never writes; only SQLite can store them.


def write_raw(databases: Databases, sql: str, *values: Any) -> None:
    """Write a value into the source that the service never writes."""
    if "://" in databases.source:
        pytest.skip("PostgreSQL cannot store the value")
    db.close_database()
    with contextlib.closing(open_file(f"{databases.source}/service.db")) as file, file:
        file.execute(sql, values)


def test_nul_character_is_copied_except_to_postgresql(databases: Databases, cx: Callable[..., Outcome]) -> None:
    write_raw(databases, "UPDATE message SET action_id = ? WHERE id = ?", "a\0secret", sample_data.EDITED)
    if not databases.to_postgresql:
        assert cx(databases.source, databases.target).status == 0
        assert Message.get_by_id(sample_data.EDITED).action_id == "a\0secret"
        return
    line = error_line(cx(databases.source, databases.target))
    error = f"message '{sample_data.EDITED}': action_id: a NUL character, which PostgreSQL cannot store"
    assert line == f"nothing was copied: {error}"
    assert is_empty(databases.target)


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("UPDATE message SET content = CAST('secret' AS BLOB) WHERE id = ?", "content: Expected `str`, got `bytes`"),
        ("UPDATE message SET is_private = 5 WHERE id = ?", "is_private: Invalid enum value 5"),
    ],
)
def test_invalid_value_is_reported_with_its_row(
    sql: str, error: str, databases: Databases, cx: Callable[..., Outcome]
) -> None:
    write_raw(databases, sql, sample_data.EDITED)
    assert (
        error_line(cx(databases.source, databases.target))
        == f"nothing was copied: message '{sample_data.EDITED}': {error}"
    )
    assert is_empty(databases.target)


def test_text_that_is_not_utf_8_is_reported_but_not_shown(databases: Databases, cx: Callable[..., Outcome]) -> None:
    write_raw(
        databases, "UPDATE message SET action_id = CAST(x'736563726574ff' AS TEXT) WHERE id = ?", sample_data.PINNED
    )
    error = "cannot be read: a text is not valid UTF-8"
    assert error_line(cx(databases.source, databases.target)) == f'nothing was copied: "message" {error}'
    assert is_empty(databases.target)


def test_missing_reference_is_reported(databases: Databases, cx: Callable[..., Outcome]) -> None:
    write_raw(databases, "DELETE FROM chat_session WHERE id = ?", sample_data.BUSY)
    line = error_line(cx(databases.source, databases.target))
    assert re.match(r"the copy failed: .*foreign key constraint", line, re.IGNORECASE)
    assert sample_data.BUSY not in line
    assert is_empty(databases.target)


# Database URLs.


def test_password_is_never_printed(databases: Databases, cx: Callable[..., Outcome]) -> None:
    unreachable = f"postgresql://cx:s3cret@127.0.0.1:{postgres.free_port()}/cx"
    for outcome in (
        cx(databases.source, unreachable),
        cx(unreachable, databases.target),
        cx("postgresql://cx:s3cret@[", databases.target),
    ):
        assert outcome.status == 1
        assert outcome.errors.startswith("cx-service: ")
        assert "s3cret" not in outcome.errors + outcome.output
    if databases.to_postgresql:
        done = cx(databases.source, databases.target.replace("cx@", "cx:s3cret@"))
        assert (done.status, "s3cret" in done.errors + done.output) == (0, False)


@pytest.mark.skipif(not HAS_POSTGRESQL, reason="applies to PostgreSQL only")
def test_missing_parts_of_an_address_come_from_the_environment(
    databases: Databases, cx: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_server(where: str) -> str:
        if "://" not in where:
            return where
        server, _, name = where.rpartition("/")
        port = server.rpartition(":")[2]
        for variable, value in (("PGHOST", "127.0.0.1"), ("PGPORT", port), ("PGUSER", "cx"), ("PGPASSWORD", "s3cret")):
            monkeypatch.setenv(variable, value)
        return f"postgresql:///{name}"

    assert cx(*map(without_server, databases[:2])).status == 0
    assert contents(databases.target) == contents(databases.source)


def test_help_explains_where(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["copy", "--help"])
    output = capsys.readouterr().out
    for word in ("postgresql://", "folder", "PGPASSWORD", "~/.pgpass", "empty", "Stop the service first"):
        assert word in output


def test_settings_in_the_environment_are_ignored(
    databases: Databases, cx: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CX_DATA", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("CX_DATABASE", "postgresql://unused@127.0.0.1:1/nothing")
    assert cx(databases.source, databases.target).status == 0
    assert not (tmp_path / "elsewhere").exists()


# The command with running services.


def served(where: str, tmp_path: Path) -> contextlib.AbstractContextManager[Served]:
    """A server on the database at a location."""
    if "://" in where:
        return serving(tmp_path / "unused", "--database", where)
    return serving(Path(where), "--database", "")


@pytest.mark.slow
def test_tokens_cursors_and_pictures_stay_valid(databases: Databases, tmp_path: Path) -> None:
    api, chats = "/api/v1", f"/api/v1/chats/{sample_data.SESSION}/messages?limit=1"
    feedback = {"feedback_type": "bug", "description": "It moved"}
    once = {"headers": {"Idempotency-Key": "moving", "Content-Type": "application/json"}}
    with served(databases.source, tmp_path) as old:
        login = {"email": "alice@example.com", "password": PASSWORD}
        tokens = old.call("POST", f"{api}/auth/login", login).data["tokens"]
        token = tokens["access_token"]
        cursor = old.call("GET", chats, token=token).meta["next_cursor"]
        next_page = old.call("GET", f"{chats}&cursor={cursor}", token=token)
        me = old.call("GET", f"{api}/users/me", token=token).data
        picture = old.call("GET", me["profile_image"])
        created = old.call("POST", f"{api}/feedback", json.dumps(feedback), token, **once)
        assert (next_page.status, picture.status, created.status) == (200, 200, 201)
        assert cursor and "Idempotency-Replayed" not in created.headers
    done = command("copy", "--from", databases.source, "--to", databases.target)
    assert (done.returncode, done.stderr) == (0, b"")
    with served(databases.target, tmp_path) as new:
        repeated = new.call("GET", f"{chats}&cursor={cursor}", token=token)
        assert repeated.raw == next_page.raw
        assert new.call("GET", f"{api}/users/me", token=token).data == me
        shown = new.call("GET", me["profile_image"])
        tag = picture.headers["ETag"]
        assert (shown.raw, shown.headers["ETag"]) == (picture.raw, tag)
        known = {"headers": {"If-None-Match": tag}}
        assert new.call("GET", me["profile_image"], **known).status == 304
        replayed = new.call("POST", f"{api}/feedback", json.dumps(feedback), token, **once)
        assert (replayed.raw, replayed.headers["Idempotency-Replayed"]) == (created.raw, "true")
        renewed = new.call("POST", f"{api}/auth/refresh", {"refresh_token": tokens["refresh_token"]})
        fresh = renewed.data["tokens"]["access_token"]
        assert new.call("GET", f"{api}/users/me", token=fresh).data == me
        assert new.call("POST", f"{api}/auth/login", login).status == 200


@pytest.mark.slow
def test_one_of_two_concurrent_copies_succeeds(databases: Databases) -> None:
    with ThreadPoolExecutor() as pool:
        copies = [pool.submit(command, "copy", "--from", databases.source, "--to", databases.target) for _ in range(2)]
    done = sorted((one.result() for one in copies), key=lambda one: one.returncode)
    assert [one.returncode for one in done] == [0, 1]
    # The second copy waits at most five seconds for the first.
    assert any(reason in done[1].stderr for reason in (b"is not empty", b"locked", b"lock timeout"))
    assert contents(databases.target) == contents(databases.source)
