"""`copy`: everything goes to another database as it is, or nothing does; on PostgreSQL, in all three directions."""

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
from hypothesis import strategies as some

import app
from service import clock, copying, db, migrations, transfer
from service.commands import run
from service.db import Table, sqlite3
from service.models import (
    TABLES,
    App,
    Approval,
    Avatar,
    Bot,
    CalendarFeed,
    ChatSession,
    DueAnswer,
    KeptAnswer,
    Ledger,
    LoginAttempt,
    LoginSession,
    Message,
    Moment,
    ReadMarker,
    User,
)
from service.settings import Settings
from tests import household, postgres
from tests.conftest import PASSWORD
from tests.serving import Served, command, json_lines, serving

pytestmark = pytest.mark.slow

CHOSEN = postgres.is_chosen()
LITE, SERVER = "sqlite", "postgresql"
WAYS = [(LITE, SERVER), (SERVER, LITE), (SERVER, SERVER)] if CHOSEN else [(LITE, LITE)]

Contents = dict[str, list[tuple[Any, ...]]]


class Outcome(NamedTuple):
    """What the command said, and its exit status."""

    status: int
    output: str
    errors: str


def connect(where: str) -> Any:
    return db.connect(Path(), where) if "://" in where else db.connect(Path(where), create=True)


def opened(where: str) -> Any:
    """The database of this process is now the one at a place."""
    db.close_database()
    db.database.initialize(connect(where))
    return db.database


def prepare(where: str) -> None:
    """What the first start of the service makes."""
    db.close_database()
    app.prepare(Settings(database=where) if "://" in where else Settings(data=Path(where)), create=True)


def contents(where: str) -> Contents:
    """Every row of every table; nothing at all where there are no tables."""
    if not opened(where).get_tables():
        return {}
    keys = {table: table._meta.get_primary_keys() for table in TABLES}
    return {table.__name__: list(table.select().order_by(*keys[table]).tuples()) for table in TABLES}


def fill(where: str, folder: Path) -> None:
    """Rows in every table."""
    prepare(where)
    records = folder / "records.jsonl"
    records.write_bytes(json_lines(household.records()))
    assert transfer.take_in([records]) == []
    LoginSession.create(user_id=household.ALICE, expires_at=2**53, scopes="chats:read", install_id="i")
    LoginAttempt.create(at=clock.now(), account="alice@example.com", network="127.0.0.1")
    answered = {"id": "t", "user_id": household.ALICE, "is_granted": True, "answered_at": clock.now()}
    Approval.create(**answered, code_challenge="c", redirect_uri="http://127.0.0.1/", scopes="", install_id="i")
    asked = {"user_id": household.ALICE, "operation": "POST /feedback", "key": "k", "fingerprint": "f"}
    KeptAnswer.create(**asked, body='{"success":true}', kept_until=clock.now() + clock.DAY)
    about = {"chat_session_id": household.SESSION, "message_id": household.HELLO}
    ReadMarker.create(**about, user_id=household.ALICE)
    DueAnswer.create(**about, languages="de en", due_at=clock.now())
    CalendarFeed.create(user_id=household.ALICE, digest="d")
    Moment.note()


class Way(NamedTuple):
    """Where a copy comes from, and where it goes to."""

    source: str
    target: str
    to_server: bool


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Callable[[str, str], str]]:
    """Makes the name of a new database of a kind."""
    made: list[str] = []

    def make(kind: str, name: str) -> str:
        if kind == LITE:
            return str(tmp_path / name)
        made.append(postgres.database_of(tmp_path / name))
        return made[-1]

    yield make
    db.close_database()
    for url in made:
        postgres.drop(url)


@pytest.fixture(params=WAYS, ids="-to-".join)
def new(request: pytest.FixtureRequest, place: Callable[[str, str], str]) -> Way:
    """Two databases that are still to be made."""
    source, target = request.param
    return Way(place(source, "old"), place(target, "new"), target == SERVER)


@pytest.fixture
def way(new: Way, tmp_path: Path) -> Way:
    """A database with rows in every table, and one that is still to be made."""
    fill(new.source, tmp_path)
    return new


@pytest.fixture
def cx(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Copies from one place to another."""

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


def refusal(outcome: Outcome) -> str:
    """The one line of a copy that was not made."""
    assert (outcome.status, outcome.output) == (1, "")
    assert re.fullmatch(r"cx-service: [^\n]+\n", outcome.errors)
    return outcome.errors.removeprefix("cx-service: ").rstrip("\n")


def copy(way: Way, progress: Callable[[int], None] = lambda rows: None) -> dict[str, int]:
    """Copy, and watch it."""
    db.close_database()
    source, target = connect(way.source), connect(way.target)
    with source.until_closed(), target.until_closed():
        return copying.copy(source, target, progress)


# Everything.


def test_every_row_of_every_table_arrives_and_the_source_stays(way: Way, cx: Callable[..., Outcome]) -> None:
    before = contents(way.source)
    assert all(before.values())
    status, output, errors = cx(way.source, way.target)
    assert (status, errors) == (0, "")
    assert contents(way.target) == before == contents(way.source)
    lines = [line.split() for line in output.splitlines()]
    assert [(name, int(number)) for number, name in lines[:-1]] == [
        (table._meta.table_name, len(before[table.__name__])) for table in TABLES
    ]
    assert lines[-1][:3] == [str(sum(map(len, before.values()))), "rows", "copied"]


def test_what_a_target_got_that_was_started_once_makes_way(way: Way, cx: Callable[..., Outcome]) -> None:
    prepare(way.target)
    Moment.note()
    own = contents(way.target)["SigningKey"]
    assert len(own) == 1
    assert cx(way.source, way.target).status == 0
    assert contents(way.target) == contents(way.source)
    assert own[0] not in contents(way.target)["SigningKey"]


def test_a_database_goes_there_and_back(way: Way, cx: Callable[..., Outcome], tmp_path: Path) -> None:
    back = str(tmp_path / "back")
    assert (cx(way.source, way.target).status, cx(way.target, back).status) == (0, 0)
    assert contents(back) == contents(way.source)


def test_a_source_without_rows_but_its_key_is_copied(new: Way, cx: Callable[..., Outcome]) -> None:
    prepare(new.source)
    assert cx(new.source, new.target).status == 0
    assert contents(new.target) == contents(new.source)


def test_progress_is_told_of_each_row_twice(way: Way) -> None:
    steps: list[int] = []
    copied = copy(way, steps.append)
    assert sum(steps) == 2 * sum(copied.values())


def test_a_target_with_an_older_schema_is_brought_up_to_date(
    way: Way, cx: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(way.target)
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "STEPS", migrations.STEPS[:1])
        migrations.migrate()
    assert cx(way.source, way.target).status == 0
    assert contents(way.target) == contents(way.source)
    assert migrations.version() == len(migrations.STEPS)


def test_what_is_written_to_the_source_meanwhile_stays_behind(way: Way) -> None:
    before = contents(way.source)
    other = connect(way.source)
    seen: list[int] = []

    def write_between(rows: int) -> None:
        if not seen:
            for table, columns in (("app", "(id, name)"), ("login_attempt", "(id, at, account, network)")):
                values = ", ".join(["'1'"] * len(columns.split()))
                other.execute_sql(f"INSERT INTO {table} {columns} VALUES ({values})")
        seen.append(rows)

    with other.until_closed():
        copy(way, write_between)
    assert contents(way.target) == before != contents(way.source)


# Extreme values.

TEXTS = some.text(some.characters(codec="utf-8", exclude_characters="\0"), max_size=20) | some.sampled_from(
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
INTEGERS = some.integers(-LARGE, LARGE - 1) | some.sampled_from([-LARGE, LARGE - 1, 2**53 + 1, -1, 0])
NUMBERS = some.floats(allow_nan=False) | some.sampled_from([5e-324, 1.7976931348623157e308, 0.1 + 0.2, 1 / 3, -0.0])
VALUES: dict[str, some.SearchStrategy[Any]] = {
    "TEXT": TEXTS,
    "BIGINT": INTEGERS,
    "BOOL": some.booleans(),
    "REAL": NUMBERS,
}
PARENTS = {"app": App, "user": User, "bot": Bot, "chat_session": ChatSession}
ALONE = {"source_event_id", *(column.name for table in TABLES for column in table._meta.sorted_fields if column.unique)}
HERE = household.uuid(1)  # the parent of all odd rows, in each of the tables that have children


def odd_rows(table: type[Table], number: int) -> some.SearchStrategy[tuple[type[Table], list[Any]]]:
    """A row whose columns hold whatever their kinds can hold, but for references and what must be unique."""
    alone = ALONE | {key.name for key in table._meta.get_primary_keys()}

    def values(column: Any) -> some.SearchStrategy[Any]:
        if column.constraints:
            return some.just(HERE)
        kind = VALUES[column.field_type]
        if column.name in alone and kind is TEXTS:
            return kind.map(lambda value: f"{number}{value}")
        return some.none() | kind if column.null else kind

    return some.tuples(*map(values, table._meta.sorted_fields)).map(lambda row: (table, list(row)))


ONLY = (Avatar, CalendarFeed, DueAnswer, Ledger, Moment, ReadMarker)  # of which there is one, or one for a parent
ODD = some.tuples(*(odd_rows(table, n) for table in TABLES for n in range(1 if table in ONLY else 3)))


@given(rows=ODD)
@hypothesis_settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
def test_values_of_every_kind_arrive_unchanged(new: Way, rows: Any) -> None:
    for where in new[:2]:
        opened(where)
        migrations.migrate()
        for table in reversed(TABLES):
            table.delete().execute()
    opened(new.source)
    for name, parent in PARENTS.items():
        above = {column.name: HERE for column in parent._meta.sorted_fields if column.constraints}
        parent.create(id=HERE, **above, **({"email": "a@b.c"} if name == "user" else {}))
    for table, row in rows:
        table.insert_many([row], fields=table._meta.sorted_fields).execute()
    copy(new)
    there, here = contents(new.target), contents(new.source)
    assert there == here
    assert all(len(here[table.__name__]) >= 1 for table in TABLES)


def test_long_texts_arrive(way: Way) -> None:
    opened(way.source)
    Bot.update(description="💥" * 100_000).execute()
    copy(way)
    assert contents(way.target) == contents(way.source)


# Refusals: nothing changes.


def nothing_there(where: str) -> bool:
    """Whether a database is as good as new."""
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
def test_a_target_that_holds_anything_is_refused(make: Callable[[], Any], way: Way, cx: Callable[..., Outcome]) -> None:
    prepare(way.target)
    made = make()
    before = contents(way.target)
    line = refusal(cx(way.source, way.target))
    assert f'holds data already ("{made._meta.table_name}"): name a new or an empty database' in line
    assert contents(way.target) == before


def test_a_second_copy_is_refused(way: Way, cx: Callable[..., Outcome]) -> None:
    assert cx(way.source, way.target).status == 0
    before = contents(way.target)
    assert "holds data already" in refusal(cx(way.source, way.target))
    assert contents(way.target) == before


@pytest.mark.parametrize(
    ("version", "line"),
    [
        (1, "schema 1, and this program {today}: run `cx-service migrate` on it first"),
        (99, "schema 99, and this program {today}: use a newer program"),
    ],
)
def test_a_source_of_another_schema_is_refused(version: int, line: str, way: Way, cx: Callable[..., Outcome]) -> None:
    opened(way.source).execute_sql(f"UPDATE schema_version SET version = {version}")
    assert line.format(today=len(migrations.STEPS)) in refusal(cx(way.source, way.target))
    assert nothing_there(way.target)


def test_a_target_of_a_newer_schema_is_refused(way: Way, cx: Callable[..., Outcome]) -> None:
    prepare(way.target)
    db.database.execute_sql("UPDATE schema_version SET version = 99")
    assert "schema 99, newer than this program knows" in refusal(cx(way.source, way.target))


def test_databases_of_other_programs_are_refused(way: Way, cx: Callable[..., Outcome]) -> None:
    opened(way.target).execute_sql("CREATE TABLE cake (id INTEGER)")
    for source, target in ((way.source, way.target), (way.target, way.source)):
        assert refusal(cx(source, target)) == "this database belongs to another program"
    assert opened(way.target).get_tables() == ["cake"]


def test_an_empty_source_is_refused(new: Way, cx: Callable[..., Outcome]) -> None:
    opened(new.source)
    assert refusal(cx(new.source, new.target)).startswith("there is nothing to copy in ")
    assert nothing_there(new.target)


def test_a_folder_without_a_database_is_refused_and_stays_so(tmp_path: Path, cx: Callable[..., Outcome]) -> None:
    typo, target = tmp_path / "typo", tmp_path / "new"
    assert refusal(cx(str(typo), str(target))) == f"there is no database in {typo}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["", "mysql://cx@localhost/cx", "sqlite:///service.db"])
def test_what_is_no_place_is_refused(where: str, way: Way, cx: Callable[..., Outcome], tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    assert refusal(cx(where, way.target)) == "WHERE is a postgresql:// address or a data folder"
    assert refusal(cx(way.source, where)) == "WHERE is a postgresql:// address or a data folder"
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("arguments", [(), ("--from", "a"), ("--to", "a"), ("--data", "a", "--from", "a", "--to", "b")])
def test_both_places_are_named(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(["copy", *arguments])
    assert capsys.readouterr().err.startswith("usage: cx-service ")


def test_a_database_is_not_copied_into_itself(way: Way, cx: Callable[..., Outcome], tmp_path: Path) -> None:
    if "://" in way.source:
        others = [f"{way.source}?application_name=other", way.source.replace("127.0.0.1", "localhost")]
    else:
        link = tmp_path / "link"
        link.symlink_to(way.source)
        others = [str(link), str(Path(way.source) / ".." / "old")]
    before = contents(way.source)
    for other in (way.source, *others):
        assert refusal(cx(way.source, other)).endswith("cannot be copied into itself")
    assert contents(way.source) == before


# All or nothing.


@pytest.mark.parametrize(("share", "started"), [(0, False), (0.3, True), (0.5, False), (0.7, True), (1, False)])
def test_what_is_interrupted_leaves_the_target_as_it_was(share: float, started: bool, way: Way) -> None:
    if started:
        prepare(way.target)
    before = contents(way.target)
    steps = 2 * sum(map(len, contents(way.source).values()))
    told: list[int] = []

    def interrupt(rows: int) -> None:
        told.append(rows)
        if len(told) == max(1, int(share * steps)):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy(way, interrupt)
    assert contents(way.target) == before
    copy(way)
    assert contents(way.target) == contents(way.source)


ALTERING = {  # what a target does to the apps that it is given
    LITE: """CREATE TRIGGER spoil AFTER INSERT ON app BEGIN {}; END""",
    SERVER: """CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; RETURN NULL; END $$;
        CREATE TRIGGER spoil AFTER INSERT ON app FOR EACH ROW EXECUTE FUNCTION spoil()""",
}


@pytest.mark.parametrize(
    ("action", "line"),
    [
        ("UPDATE app SET name = name || '.' WHERE id = new.id", "gave back other rows"),
        ("DELETE FROM app WHERE id = new.id", "gave back 0 rows in place of 2"),
    ],
)
def test_a_difference_undoes_the_copy(action: str, line: str, way: Way, cx: Callable[..., Outcome]) -> None:
    prepare(way.target)
    db.database.execute_sql(ALTERING[db.database.kind].format(action))
    before = contents(way.target)
    said = refusal(cx(way.source, way.target))
    assert said.startswith('nothing was copied: of "app", ') and said.endswith(line)
    assert contents(way.target) == before


STOPPING = {LITE: "SELECT RAISE(ROLLBACK, 'no more room')", SERVER: "RAISE EXCEPTION 'no more room'"}


def test_what_stopped_the_target_is_told(way: Way, cx: Callable[..., Outcome]) -> None:
    prepare(way.target)
    kind = db.database.kind
    db.database.execute_sql(ALTERING[kind].format(STOPPING[kind]))
    before = contents(way.target)
    assert refusal(cx(way.source, way.target)) == "the copy was not finished: no more room"
    assert contents(way.target) == before


# What one side cannot hold: only SQLite takes it.


def spoiled(way: Way, sql: str, *values: Any) -> None:
    """Put something into the source that the service never writes."""
    if "://" in way.source:
        pytest.skip("PostgreSQL does not take it")
    db.close_database()
    with contextlib.closing(sqlite3.connect(f"{way.source}/service.db")) as file, file:
        file.execute(sql, values)


def test_a_nul_character_goes_where_it_can(way: Way, cx: Callable[..., Outcome]) -> None:
    spoiled(way, "UPDATE message SET action_id = ? WHERE id = ?", "a\0secret", household.NOTED)
    if not way.to_server:
        assert cx(way.source, way.target).status == 0
        assert Message.get_by_id(household.NOTED).action_id == "a\0secret"
        return
    line = refusal(cx(way.source, way.target))
    told = f"message '{household.NOTED}': action_id: a NUL character, which PostgreSQL cannot store"
    assert line == f"nothing was copied: {told}"
    assert nothing_there(way.target)


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("UPDATE message SET content = CAST('secret' AS BLOB) WHERE id = ?", "content: Expected `str`, got `bytes`"),
        ("UPDATE message SET is_private = 5 WHERE id = ?", "is_private: Invalid enum value 5"),
    ],
)
def test_what_no_column_may_hold_is_told_with_its_place(
    sql: str, told: str, way: Way, cx: Callable[..., Outcome]
) -> None:
    spoiled(way, sql, household.NOTED)
    assert refusal(cx(way.source, way.target)) == f"nothing was copied: message '{household.NOTED}': {told}"
    assert nothing_there(way.target)


def test_a_text_that_is_not_utf_8_is_told_and_not_shown(way: Way, cx: Callable[..., Outcome]) -> None:
    spoiled(way, "UPDATE message SET action_id = CAST(x'736563726574ff' AS TEXT) WHERE id = ?", household.PINNED)
    told = "cannot be read: Could not decode to UTF-8 column 'action_id'"
    assert refusal(cx(way.source, way.target)) == f'nothing was copied: "message" {told}'
    assert nothing_there(way.target)


def test_a_reference_that_leads_nowhere_is_told(way: Way, cx: Callable[..., Outcome]) -> None:
    spoiled(way, "DELETE FROM chat_session WHERE id = ?", household.BUSY)
    line = refusal(cx(way.source, way.target))
    assert re.match(r"the copy was not finished: .*foreign key constraint", line, re.IGNORECASE)
    assert household.BUSY not in line
    assert nothing_there(way.target)


# Addresses.


def test_a_password_is_never_shown(way: Way, cx: Callable[..., Outcome]) -> None:
    nobody = f"postgresql://cx:s3cret@127.0.0.1:{postgres.free_port()}/cx"
    for outcome in (cx(way.source, nobody), cx(nobody, way.target), cx("postgresql://cx:s3cret@[", way.target)):
        assert outcome.status == 1
        assert outcome.errors.startswith("cx-service: ")
        assert "s3cret" not in outcome.errors + outcome.output
    if way.to_server:
        done = cx(way.source, way.target.replace("cx@", "cx:s3cret@"))
        assert (done.status, "s3cret" in done.errors + done.output) == (0, False)


@pytest.mark.skipif(not CHOSEN, reason="a matter of PostgreSQL alone")
def test_what_an_address_leaves_out_comes_from_the_surroundings(
    way: Way, cx: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_server(where: str) -> str:
        if "://" not in where:
            return where
        server, _, name = where.rpartition("/")
        port = server.rpartition(":")[2]
        for variable, value in (("PGHOST", "127.0.0.1"), ("PGPORT", port), ("PGUSER", "cx"), ("PGPASSWORD", "s3cret")):
            monkeypatch.setenv(variable, value)
        return f"postgresql:///{name}"

    assert cx(*map(without_server, way[:2])).status == 0
    assert contents(way.target) == contents(way.source)


def test_the_help_says_what_where_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["copy", "--help"])
    said = capsys.readouterr().out
    for word in ("postgresql://", "folder", "PGPASSWORD", "~/.pgpass", "empty", "Stop the service first"):
        assert word in said


def test_the_places_of_the_surroundings_do_not_count(
    way: Way, cx: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CX_DATA", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("CX_DATABASE", "postgresql://nobody@127.0.0.1:1/nothing")
    assert cx(way.source, way.target).status == 0
    assert not (tmp_path / "elsewhere").exists()


# As people meet it.


def served(where: str, tmp_path: Path) -> contextlib.AbstractContextManager[Served]:
    """A server on the database at a place."""
    if "://" in where:
        return serving(tmp_path / "unused", "--database", where)
    return serving(Path(where), "--database", "")


@pytest.mark.slow
def test_whoever_was_signed_in_goes_on_as_if_nothing_had_happened(way: Way, tmp_path: Path) -> None:
    api, chats = "/api/v1", f"/api/v1/chats/{household.SESSION}/messages?limit=1"
    remark = {"feedback_type": "bug", "description": "It moved"}
    once = {"headers": {"Idempotency-Key": "moving", "Content-Type": "application/json"}}
    with served(way.source, tmp_path) as old:
        login = {"email": "alice@example.com", "password": PASSWORD}
        tokens = old.call("POST", f"{api}/auth/login", login).data["tokens"]
        token = tokens["access_token"]
        cursor = old.call("GET", chats, token=token).meta["next_cursor"]
        next_page = old.call("GET", f"{chats}&cursor={cursor}", token=token)
        me = old.call("GET", f"{api}/users/me", token=token).data
        picture = old.call("GET", me["profile_image"])
        answer = old.call("POST", f"{api}/feedback", json.dumps(remark), token, **once)
        assert (next_page.status, picture.status, answer.status) == (200, 200, 201)
        assert cursor and "Idempotency-Replayed" not in answer.headers
    done = command("copy", "--from", way.source, "--to", way.target)
    assert (done.returncode, done.stderr) == (0, b"")
    with served(way.target, tmp_path) as new:
        again = new.call("GET", f"{chats}&cursor={cursor}", token=token)
        assert again.raw == next_page.raw
        assert new.call("GET", f"{api}/users/me", token=token).data == me
        shown = new.call("GET", me["profile_image"])
        tag = picture.headers["ETag"]
        assert (shown.raw, shown.headers["ETag"]) == (picture.raw, tag)
        known = {"headers": {"If-None-Match": tag}}
        assert new.call("GET", me["profile_image"], **known).status == 304
        replayed = new.call("POST", f"{api}/feedback", json.dumps(remark), token, **once)
        assert (replayed.raw, replayed.headers["Idempotency-Replayed"]) == (answer.raw, "true")
        renewed = new.call("POST", f"{api}/auth/refresh", {"refresh_token": tokens["refresh_token"]})
        fresh = renewed.data["tokens"]["access_token"]
        assert new.call("GET", f"{api}/users/me", token=fresh).data == me
        assert new.call("POST", f"{api}/auth/login", login).status == 200


@pytest.mark.slow
def test_of_two_copies_at_once_one_is_made(way: Way) -> None:
    with ThreadPoolExecutor() as pool:
        copies = [pool.submit(command, "copy", "--from", way.source, "--to", way.target) for _ in range(2)]
    done = sorted((one.result() for one in copies), key=lambda one: one.returncode)
    assert [one.returncode for one in done] == [0, 1]
    assert b"holds data already" in done[1].stderr
    assert contents(way.target) == contents(way.source)
