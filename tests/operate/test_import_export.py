"""Import and export as JSON Lines."""

import io
import itertools
import json
import os
import pty
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import app
from service import clock, db
from service.auth import passwords
from service.commands import run
from service.errors import BadRequest
from service.fields import (
    Boolean,
    Choice,
    Document,
    Identifier,
    Integers,
    JsonAsBytes,
    Number,
    Strings,
    Text,
    Timestamp,
    TimestampFlag,
    UlidIdentifier,
    compact_json,
    members,
)
from service.models import RECORDS, ChatSession, Message, Notification, User
from service.models.actions import MAX_ACTIONS, Actions
from service.models.data_shares import Tools
from service.operate import import_export, import_lines
from tests.support.client import Client
from tests.support.installation import flags_of, settings_at
from tests.support.passwords import PASSWORD_HASH
from tests.support.paths import ROOT
from tests.support.random_records import VALID_TEXTS
from tests.support.random_records import lines as random_lines
from tests.support.server_process import (
    ALICE,
    APP,
    SESSION,
    Record,
    chat,
    command,
    database_variables,
    environment,
    json_lines,
)

pytestmark = pytest.mark.database


BOT, OTHER, BOB, MISSING = (f"00000000-0000-4000-8000-{number:012x}" for number in (4, 5, 6, 0xDEAD))
HIGH, LOW = 2**63 - 1, -(2**63)
NOW = "2026-11-20T10:00:00.000Z"


def prepare(data: Path) -> None:
    """Open a new, empty installation."""
    app.prepare(settings_at(data), create=True)


def write_records(path: Path, records: Iterable[Record]) -> Path:
    """Write a file of records."""
    path.write_bytes(json_lines(records))
    return path


@pytest.fixture
def import_records(application: Any, tmp_path: Path) -> Callable[..., list[str]]:
    """Import records, or raw lines, as `FILE`. Returns the errors."""

    def run_import(*records: Record | bytes) -> list[str]:
        path = tmp_path / "FILE"
        path.write_bytes(b"".join(one if isinstance(one, bytes) else json_lines([one]) for one in records))
        return [error.replace(str(path), "FILE") for error in import_export.import_files([path])]

    return run_import


def export() -> bytes:
    written: list[bytes] = []
    import_export.export(written.append)
    return b"".join(written)


def stored(kind: str) -> list[dict[str, Any]]:
    """The exported records of a kind."""
    records = [json.loads(line) for line in export().splitlines()]
    return [record[kind] for record in records if kind in record]


def one(kind: str) -> dict[str, Any]:
    (record,) = stored(kind)
    return record


def message(**columns: Any) -> Record:
    return {"message": {"chat_session_id": SESSION, **columns}}


# Atomicity.


@pytest.mark.parametrize("place", [0, 2, 5])
def test_one_error_prevents_the_import(place: int, import_records: Callable[..., list[str]]) -> None:
    before = export()
    records: list[Any] = chat()
    records.insert(place, {"bot": {"name": 7}})
    assert import_records(*records) == [f"FILE:{place + 1}: $.bot.name: expected str"]
    assert export() == before


def test_error_during_the_write_rolls_back(import_records: Callable[..., list[str]]) -> None:
    import_records(*chat())
    before = export()
    changed = {"app": {"id": APP, "name": "Another name"}}
    assert import_records(changed, {"user": {"email": "alice@example.com"}}) != []
    assert import_records(changed, message(reply_to_message_id=clock.ulid())) != []
    assert export() == before


def test_crash_during_the_import_changes_nothing(
    import_records: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    import_records(*chat())
    before = export()

    def crash(*_: Any) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(import_export, "recompute", crash)
        with pytest.raises(RuntimeError):
            import_records(message(text="lost"))
    assert export() == before
    with pytest.raises(db.peewee.IntegrityError):
        ChatSession.create(app_id=MISSING, user_id=ALICE)
    assert import_records(message(text="kept")) == []


def test_foreign_keys_are_enforced_after_an_import(import_records: Callable[..., list[str]]) -> None:
    import_records(*chat())
    with pytest.raises(db.peewee.IntegrityError):
        ChatSession.create(app_id=MISSING, user_id=ALICE)


# Errors.

ERRORS = [
    (b"nonsense\n", "$: is not JSON: Expecting value at line 1, column 1."),
    (b'{"app": {"name": "\xff"}}\n', "$: is not UTF-8: byte 18."),
    (b"[]\n", "$: expected object"),
    (b"{}\n", r"$: expected one member that names the kind of record: app, user, bot, chat_session, message, "),
    (b'{"app": {"name": "a"}, "bot": {}}\n', "$: expected one member that names the kind of record: "),
    (b'{"sandwich": {}}\n', "$: expected one member that names the kind of record: "),
    (b'{"app": []}\n', "$.app: expected object"),
    (b'{"app": {"name": "a", "name": "b"}}\n', '$: The member "name" occurs twice in one object.'),
    (b'{"app": {"name": "a\\u0000"}}\n', "$.app.name: NUL characters are not accepted"),
    (b'{"app": {"name": "\\ud800"}}\n', "$.app.name: lone surrogate"),
    (b'{"bot": {"rating": NaN}}\n', "$: is not JSON: NaN."),
    (b'{"app": {"colour": "red"}}\n', "$.app: object contains unknown field colour"),
    (b'{"message": {"shown_total": 1}}\n', "$.message: object contains unknown field shown_total"),
    (b'{"chat_session": {"shown_total": 1}}\n', "$.chat_session: object contains unknown field shown_total"),
    (b'{"notification": {"message_id": null}}\n', "$.notification: object contains unknown field message_id"),
    (b'{"app": {"id": "x"}}\n', "$.app.id: expected a UUID"),
    (b'{"app": {"id": null}}\n', "$.app.id: expected str"),
    (b'{"app": {"name": "%s"}}\n' % (b"a" * 201), "$.app.name: expected str of length <= 200"),
    (b'{"user": {}}\n', "$.user: missing required member email"),
    (b'{"user": {"email": "a@b.de", "role": "king"}}\n', "$.user.role: invalid enum value 'king'"),
    (b'{"user": {"email": "a@b.de", "password": ""}}\n', "$.user.password: a password has 8 to 1024 characters"),
    (b'{"user": {"email": "a@b.de", "password": "7 chars"}}\n', "$.user.password: a password has 8 to 1024 characters"),
    (b'{"user": {"email": "x"}}\n', "$.user.email: expected an e-mail address such as ada@example.com"),
    (b'{"user": {"email": "a b@c.de"}}\n', "$.user.email: expected an e-mail address such as ada@example.com"),
    (b'{"user": {"email": ""}}\n', "$.user.email: expected str of length >= 1"),
    (b'{"user": {"email": "a@b.de", "password": 7}}\n', "$.user.password: expected str"),
    (b'{"user": {"email": "a@b.de", "settings": []}}\n', "$.user.settings: expected object"),
    (b'{"user": {"email": "a@b.de", "is_verified": 1}}\n', "$.user.is_verified: expected bool"),
    (b'{"user": {"email": "a@b.de", "location": [1, 9223372036854775808]}}\n', "$.user.location[1]: expected int"),
    (b'{"user": {"email": "a@b.de", "location": [1, "2"]}}\n', "$.user.location[1]: expected int"),
    (b'{"bot": {}}\n', "$.bot: missing required member app_id"),
    (b'{"bot": {"app_id": null}}\n', "$.bot.app_id: expected str"),
    (b'{"bot": {"rating": "5"}}\n', "$.bot.rating: expected float"),
    (b'{"bot": {"social_links": [1, 9223372036854775808]}}\n', "$.bot.social_links: expected signed 64-bit integers"),
    (b'{"bot": {"created_at": "yesterday"}}\n', "$.bot.created_at: expected an RFC 3339 timestamp such as "),
    (b'{"bot": {"created_at": "2026-02-30T00:00:00Z"}}\n', "$.bot.created_at: no such date or time"),
    (b'{"message": {"id": "x"}}\n', "$.message.id: expected a ULID"),
    (b'{"message": {"text": null}}\n', "$.message.text: expected str"),
    (b'{"message": {"text": "a"}}\n', "$.message: missing required member chat_session_id"),
]


@pytest.mark.parametrize(("line", "error"), ERRORS, ids=[error for _, error in ERRORS])
def test_error_has_file_line_path_and_reason(line: bytes, error: str, import_records: Callable[..., list[str]]) -> None:
    before = export()
    (found,) = import_records(b"\n", {"app": {"name": "good"}}, line)
    assert found.startswith(f"FILE:3: {error}")
    assert re.match(r"FILE:\d+: \$[\w.\[\]]*: \S", found)
    assert export() == before


@pytest.mark.parametrize(
    "columns",
    [
        {"id": "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"},
        {"id": "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "created_at": NOW},
        {"created_at": "1969-12-31T23:59:59.999Z"},
    ],
)
def test_message_time_outside_the_range_of_ulids_is_an_error(
    columns: dict[str, str], import_records: Callable[..., list[str]]
) -> None:
    error = "FILE:1: $.message: the time of a message lies between the years 1970 and 9999"
    assert import_records(message(**columns)) == [error]


def test_first_twenty_errors_are_reported(import_records: Callable[..., list[str]]) -> None:
    bad: list[Record] = [{"app": {"name": number}} for number in range(30)]
    assert import_records(*bad) == [f"FILE:{line}: $.app.name: expected str" for line in range(1, 21)]
    lost = [message(reply_to_message_id=clock.ulid()) for _ in range(30)]
    errors = import_records(*chat(0), *lost)
    assert [error.split(": ")[0] for error in errors] == [f"FILE:{line}" for line in range(4, 24)]


def test_command_prints_errors_and_exits_with_status_1(tmp_path: Path) -> None:
    good, bad = write_records(tmp_path / "good", chat()), write_records(tmp_path / "bad", [{"app": {"name": 7}}] * 25)
    done = command("import", good, bad, "--data", tmp_path / "data")
    errors = [f"{bad}:{line}: $.app.name: expected str" for line in range(1, 21)]
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().splitlines() == [*errors, "5 more errors; nothing was imported"]
    assert command("export", "--data", tmp_path / "data").stdout == b""


def test_format_and_reference_errors_are_reported_together_in_line_order(
    import_records: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = export()

    def write_lock() -> None:
        raise AssertionError("an import with format errors takes no write lock")

    monkeypatch.setattr(db, "bulk_write", write_lock)
    lost = [{"bot": {"app_id": MISSING, "name": str(number)}} for number in range(25)]
    bad: list[Record] = [{"app": {"name": number}} for number in range(25)]
    mixed = [record for pair in zip(lost, bad, strict=True) for record in pair]
    errors = import_records(*mixed)
    reasons = {1: f"$.bot.app_id: refers to a missing record: {MISSING}", 0: "$.app.name: expected str"}
    assert errors == [f"FILE:{line}: {reasons[line % 2]}" for line in range(1, 21)]
    path = write_records(tmp_path / "again", mixed)
    assert import_export.import_files([path]).total == 50
    assert export() == before


def test_reference_to_an_invalid_record_is_no_further_error(import_records: Callable[..., list[str]]) -> None:
    app_record, user, *rest = chat()
    user["user"]["role"] = "king"
    error = "FILE:2: $.user.role: invalid enum value 'king'"
    assert import_records(app_record, user, *rest) == [error]
    assert import_records(app_record, {"person": {"id": ALICE.upper()}}, *rest) == [
        "FILE:2: $: expected one member that names the kind of record: " + ", ".join(RECORDS)
    ]
    broken = b'{"user": {"id": "%s", "email": \n' % ALICE.encode()
    (found,) = import_records(app_record, broken, *rest)
    assert found.startswith("FILE:2: $: is not JSON")


def test_reference_to_a_record_of_another_kind_is_an_error(import_records: Callable[..., list[str]]) -> None:
    assert import_records(*chat(0), {"bot": {"app_id": ALICE}}) == [
        f"FILE:4: $.bot.app_id: refers to a missing record: {ALICE}"
    ]
    assert import_records(*chat(0)) == []
    assert import_records({"bot": {"app_id": ALICE}}) == [f"FILE:1: $.bot.app_id: refers to a missing record: {ALICE}"]


def test_many_references_are_found_in_the_import_and_in_the_database(import_records: Callable[..., list[str]]) -> None:
    apps = [{"id": clock.uuid(), "name": "Shop"} for _ in range(1300)]
    assert import_records(*({"app": one} for one in apps[:650])) == []
    bots: list[Record] = [{"bot": {"app_id": one["id"].upper()}} for one in reversed(apps)]
    errors = import_records(*bots, *({"app": one} for one in apps[650:1200]))
    assert errors == [
        f"FILE:{line}: $.bot.app_id: refers to a missing record: {one['id']}"
        for line, one in enumerate(reversed(apps[1280:]), 1)
    ]
    assert import_records(*bots, *({"app": one} for one in apps[650:])) == []
    assert len(stored("bot")) == 1300


def test_command_prints_a_summary(tmp_path: Path) -> None:
    done = command("import", write_records(tmp_path / "in", chat()), "--data", tmp_path / "data")
    assert (done.returncode, done.stderr) == (0, b"")
    *counts, summary = done.stdout.decode().splitlines()
    assert [line.split() for line in counts] == [["1", "app"], ["1", "user"], ["1", "chat_session"], ["3", "message"]]
    assert re.fullmatch(r" +6 records imported in \d+\.\d s, [\d,]+ per second", summary)


@pytest.mark.parametrize(
    ("kind", "name", "columns"),
    [
        ("user", "app_id", {"email": "a@b.de"}),
        ("bot", "app_id", {}),
        ("chat_session", "app_id", {"user_id": ALICE}),
        ("chat_session", "user_id", {"app_id": APP}),
        ("chat_session", "bot_id", {"app_id": APP, "user_id": ALICE}),
        ("message", "chat_session_id", {}),
        ("notification", "user_id", {}),
        ("notification", "session_id", {"user_id": ALICE}),
    ],
)
def test_missing_reference_is_an_error(
    kind: str, name: str, columns: dict[str, str], import_records: Callable[..., list[str]]
) -> None:
    before = export()
    lost: Record = {kind: {**columns, name: MISSING.upper()}}
    assert import_records(*chat(0), lost) == [f"FILE:4: $.{kind}.{name}: refers to a missing record: {MISSING}"]
    assert export() == before


def test_reply_to_a_missing_message_is_an_error(import_records: Callable[..., list[str]]) -> None:
    missing = clock.ulid()
    error = f"FILE:4: $.message.reply_to_message_id: refers to a missing record: {missing}"
    assert import_records(*chat(0), message(reply_to_message_id=missing.lower())) == [error]


def test_two_rows_can_exchange_unique_values(alice, bob, import_records):
    swapped = [{"user": {"id": one.user.id, "email": other.user.email}} for one, other in ((alice, bob), (bob, alice))]
    assert import_records(*swapped) == []
    assert [User.get_by_id(one.user.id).email for one in (alice, bob)] == ["bob@example.com", "alice@example.com"]


def test_row_can_take_a_unique_value_that_a_later_row_releases(alice, bob, import_records):
    first, second = {"id": alice.user.id, "email": "bob@example.com"}, {"id": bob.user.id, "email": "new@example.com"}
    assert import_records({"user": first}, {"user": second}) == []
    assert import_records({"user": first | {"email": "new@example.com"}}) == [
        "FILE:1: $.user.email: another user has this value"
    ]
    assert User.get_by_id(alice.user.id).email == "bob@example.com"


OPAQUE = {(kind, name) for kind in RECORDS for name in ("id", "conversation_id")} | {("data_share", "app_id")}


@pytest.mark.parametrize("kind", RECORDS)
def test_every_reference_is_declared(kind: str) -> None:
    for name, column in members(RECORDS[kind], export=True).items():
        if isinstance(column, (Identifier, UlidIdentifier)) and (kind, name) not in OPAQUE:
            assert column.refers_to in RECORDS


@pytest.mark.parametrize("email", ["alice@example.com", " ALICE@Example.com "])
def test_email_address_is_unique(email: str, import_records: Callable[..., list[str]]) -> None:
    twice: Record = {"user": {"id": BOB, "email": email}}
    assert import_records(*chat(), twice) == ["FILE:7: $.user.email: another user has this value"]
    assert import_records(*chat()) == []
    assert import_records(twice) == ["FILE:1: $.user.email: another user has this value"]
    assert [user["id"] for user in stored("user")] == [ALICE]


# Files and order.


def test_empty_lines_and_a_missing_final_newline_are_accepted(import_records: Callable[..., list[str]]) -> None:
    assert import_records(b"\n  \r\n", json_lines(chat(1)).replace(b"\n", b"\r\n").rstrip()) == []
    assert len(stored("message")) == 1


def test_lines_can_be_in_any_order(import_records: Callable[..., list[str]], tmp_path: Path) -> None:
    first, second = clock.ulid(), clock.ulid()
    records = [
        *chat(0),
        {"bot": {"id": BOT, "app_id": APP, "created_at": NOW, "updated_at": NOW}},
        message(id=first, text="Hello", is_private=True),
        message(id=second, text="Again", reply_to_message_id=first, reply_snapshot={"text": "Hello"}),
        {"notification": {"id": OTHER, "user_id": ALICE, "session_id": SESSION, "created_at": NOW}},
    ]
    records[1]["user"] |= {"app_id": APP, "created_at": NOW}
    records[2]["chat_session"] |= {"bot_id": BOT, "created_at": NOW, "conversation_id": OTHER}
    assert import_records(*records) == []
    expected = export()
    shuffle = random.Random(5)
    for number in range(10):
        shuffled = [*records]
        shuffle.shuffle(shuffled)
        prepare(tmp_path / str(number))
        assert import_records(*shuffled) == []
        assert export() == expected
        db.close_database()


def test_files_can_refer_to_each_other(application: Any, tmp_path: Path) -> None:
    paths = [write_records(tmp_path / str(number), [record]) for number, record in enumerate(chat(1))]
    assert import_export.import_files([*reversed(paths)]) == []
    assert len(export().splitlines()) == 4


@pytest.mark.slow
def test_dash_is_standard_input_and_output(tmp_path: Path) -> None:
    path = write_records(tmp_path / "half", chat()[:2])
    done = command("import", path, "-", "--data", tmp_path / "data", input=json_lines(chat()[2:]))
    assert (done.returncode, done.stderr) == (0, b"")
    plain, dashed = (command("export", *more, "--data", tmp_path / "data") for more in ([], ["-"]))
    assert plain.stdout == dashed.stdout
    assert plain.stdout.count(b"\n") == 6
    error = command("import", "-", "--data", tmp_path / "data", input=b"\nnonsense\n")
    assert error.stderr.startswith(b"-:2: $: is not JSON")


def test_pipe_can_be_imported(application: Any, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(json_lines(chat()),))
    writer.start()
    assert import_export.import_files([pipe]) == []
    writer.join()
    assert len(stored("message")) == 3


@pytest.mark.parametrize("what", ["missing", "folder"])
def test_unreadable_file_is_reported_in_one_line(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder").mkdir()
    assert run(["import", str(tmp_path / what), *flags_of(settings_at(tmp_path / "data"))]) == 1
    db.close_database()
    assert what == "folder" or not (tmp_path / "data").exists()
    assert re.fullmatch(rf"cx-service: cannot read {tmp_path / what}: [^\n]+\n", capsys.readouterr().err)


# Replacing, defaults.


def test_row_with_an_existing_id_is_replaced_completely(import_records: Callable[..., list[str]]) -> None:
    full = {
        "id": ALICE.upper(),
        "email": "alice@example.com",
        "first_name": "Alice",
        "location": [1],
        "password": "8 chars!",
    }
    assert import_records({"user": full}) == []
    assert import_records({"user": {"id": ALICE, "email": "other@example.com", "last_name": "Smith"}}) == []
    user = one("user")
    assert (user["id"], user["email"], user["last_name"]) == (ALICE, "other@example.com", "Smith")
    assert (user["first_name"], user["location"], user["password_hash"]) == ("", [], "")


def test_later_of_two_lines_with_one_id_is_stored(import_records: Callable[..., list[str]]) -> None:
    assert import_records({"app": {"id": APP, "name": "first"}}, {"app": {"id": APP, "name": "second"}}) == []
    assert one("app") == {"id": APP, "name": "second"}


def test_totals_are_recomputed_for_added_replaced_hidden_and_moved_messages(
    import_records: Callable[..., list[str]],
) -> None:
    first, second = clock.ulid(), clock.ulid()
    other: Record = {"chat_session": {"id": OTHER, "app_id": APP, "user_id": ALICE}}

    def totals() -> dict[str, tuple[int, int]]:
        return {row.id: (row.shown_total, row.public_total) for row in ChatSession.select()}

    assert import_records(*chat(0), other, message(id=first), message(id=second)) == []
    assert totals() == {SESSION: (2, 2), OTHER: (0, 0)}
    assert import_records(message(id=first, is_private=True), message(id=second, deleted_at=NOW)) == []
    assert totals() == {SESSION: (1, 0), OTHER: (0, 0)}
    assert import_records({"message": {"id": first, "chat_session_id": OTHER}}) == []
    assert totals() == {SESSION: (0, 0), OTHER: (1, 1)}
    assert import_records(chat(0)[2]) == []
    assert totals() == {SESSION: (0, 0), OTHER: (1, 1)}


def test_missing_id_is_generated_and_missing_members_have_defaults(import_records: Callable[..., list[str]]) -> None:
    assert import_records({"app": {}}, {"app": {}}) == []
    assert len({row["id"] for row in stored("app")}) == 2
    app_id = stored("app")[0]["id"]
    assert import_records({"user": {"email": "a@b.de"}}, {"bot": {"app_id": app_id}}) == []
    user, bot = one("user"), one("bot")
    assert (user["role"], user["user_type"], user["location"], user["settings"]) == ("user", "customer", [], {})
    assert (user["last_login_at"], user["profile_image"], user["is_disabled"]) == (None, "", False)
    assert (bot["kind"], bot["status"], bot["is_active"], bot["social_links"]) == ("nobot", "draft", True, [])
    assert import_records({"chat_session": {"app_id": app_id, "user_id": user["id"]}}) == []
    session = one("chat_session")
    assert (session["status"], session["bot_id"]) == ("open", None)
    assert clock.read_uuid(session["conversation_id"])
    assert import_records({"message": {"chat_session_id": session["id"]}}) == []
    imported = one("message")
    assert imported["conversation_id"] == session["conversation_id"]
    assert (imported["content"], imported["content_type"], imported["is_pinned"]) == ([], "text", False)
    assert clock.timestamp(clock.ulid_time(imported["id"])) <= imported["created_at"] == imported["updated_at"]


def test_message_is_written_with_the_columns_of_its_session(
    import_records: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_export, "recompute", lambda sessions: None)
    monkeypatch.setattr(import_export, "BATCH_SIZE", 1)
    *others, session = chat(0)
    later = {"chat_session": {**session["chat_session"], "id": OTHER}}
    messages = message(), message(), message(chat_session_id=OTHER), message(chat_session_id=OTHER)
    assert import_records(*others, session, *messages, later) == []
    for imported in Message.select():
        session = ChatSession.get_by_id(imported.chat_session_id)
        columns = imported.owner_id, imported.app_id, imported.conversation_id
        expected = session.user_id, session.app_id, session.conversation_id
        assert columns in ([expected] if session.id == SESSION else [expected, (None, None, None)])


def test_message_has_the_conversation_of_the_last_line_of_its_session(
    import_records: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_export, "BATCH_SIZE", 1)
    *others, session = chat(0)
    again = {"chat_session": {**session["chat_session"], "conversation_id": OTHER}}
    assert import_records(*others, session, message(), message(), again) == []
    assert {row["conversation_id"] for row in stored("message")} == {OTHER}


@pytest.mark.parametrize("name", ["sender_id", "identity_id"])
def test_sender_uuid_is_stored_in_lower_case(name: str, import_records: Callable[..., list[str]]) -> None:
    given = ["ABCDEF00-0000-4000-8000-00000000000A", "Crm-User-7", "ABCDEF00", "", None]
    assert import_records(*chat(0), *(message(**{name: text}) for text in given)) == []
    found = sorted((row[name] for row in stored("message")), key=str)
    assert found == sorted(["abcdef00-0000-4000-8000-00000000000a", *given[1:]], key=str)


def test_sender_of_an_imported_message_is_recognized_in_any_case(
    alice: Client, session: ChatSession, import_records: Callable[..., list[str]]
) -> None:
    sent = {"id": clock.ulid(), "chat_session_id": session.id, "text": "Hello", "sender_id": alice.user.id.upper()}
    assert import_records({"message": sent}) == []
    path = f"/chats/{session.id}/messages/{sent['id']}"
    assert alice.patch(path, {"content": {"text": "Hello again"}}).status == 200


@pytest.mark.parametrize("kind", RECORDS)
def test_all_exported_members_are_accepted_by_the_import(kind: str) -> None:
    assert set(import_lines.line_type(kind).__struct_fields__) == {kind}
    inner = import_lines.line_type(kind).__annotations__[kind]
    assert set(inner.__struct_fields__) == set(members(RECORDS[kind], export=True)) | set(RECORDS[kind].also_accepts)


# Users.


def test_plain_password_is_hashed_before_the_write(
    import_records: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, anyone: Client
) -> None:
    hashed, hashed_before = [], []

    def hash_password(password: str) -> str:
        hashed.append(password)
        return passwords.hash_password(password)

    def bulk_write() -> AbstractContextManager[None]:
        hashed_before.extend(hashed)
        return real()

    real = db.bulk_write
    monkeypatch.setattr(db, "bulk_write", bulk_write)
    monkeypatch.setitem(import_lines.plan_of("user").converted, "password", hash_password)
    assert import_records({"user": {"id": ALICE, "email": " Alice@Example.COM", "password": "pässwörd"}}) == []
    assert hashed == hashed_before == ["pässwörd"]
    assert b"w\xc3\xb6rd" not in export()
    assert one("user")["password_hash"].startswith("$argon2id$")
    assert "password" not in one("user")
    login = anyone.post("/auth/login", {"email": "alice@example.com", "password": "pässwörd"})
    assert login.data["user"]["id"] == ALICE


def test_passwords_are_hashed_at_the_same_time_and_stored_in_the_order_of_the_file(
    import_records: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=30)

    def hash_password(password: str) -> str:
        both.wait()
        time.sleep(0.1 * (password == "first"))  # the later one is done first
        return f"hash of {password}"

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setitem(import_lines.plan_of("user").converted, "password", hash_password)
    user = {"id": ALICE, "email": "alice@example.com"}
    assert import_records(*({"user": {**user, "password": word}} for word in ("first", "second"))) == []
    assert one("user")["password_hash"] == "hash of second"


@pytest.mark.slow
def test_line_is_read_quickly_only_with_the_same_result(application: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def result(raw: bytes) -> Any:
        try:
            return import_lines.row_of(import_lines.read(raw))
        except (BadRequest, ValueError) as error:
            return str(error)

    monkeypatch.setattr(clock, "now", lambda: clock.milliseconds(NOW))
    monkeypatch.setattr(clock, "ulid", lambda at: "01K00000000000000000000000")
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=4))
    lines = [line for line in random_lines(20_000, seed=1) if line.strip()]
    quick = sum(import_lines._read_quickly(line) is not None for line in lines)
    results = [result(line) for line in lines]
    monkeypatch.setattr(import_lines, "_read_quickly", lambda raw: None)
    for line, found in zip(lines, results, strict=True):
        assert repr(result(line)) == repr(found), line  # with the types of all values
    assert len(lines) / 3 < quick < len(lines)
    assert len(lines) / 20 < sum(isinstance(found, str) for found in results) < len(lines) / 8


def test_password_hash_is_stored_unchanged(import_records: Callable[..., list[str]], anyone: Client) -> None:
    assert import_records(*chat(0)) == []
    assert one("user")["password_hash"] == PASSWORD_HASH


def test_disabled_user_cannot_log_in(import_records: Callable[..., list[str]], anyone: Client) -> None:
    assert import_records({"user": {"email": "a@b.de", "password": "8 chars!", "is_disabled": True}}) == []
    assert anyone.post("/auth/login", {"email": "a@b.de", "password": "x"}).error == (401, "invalid_credentials")


def test_agent_and_profile_members_are_exported_and_imported(import_records: Callable[..., list[str]]) -> None:
    agent = {"role": "agent", "app_id": APP, "display_name": "Noor", "phone": "+4930123456", "locale": "de-DE"}
    agent |= {"timezone": "Europe/Berlin", "settings": {"theme": "dark", "own": {"ü": [1, None]}}}
    assert import_records(*chat(0)[:1], {"user": {"email": "noor@example.com", **agent}}) == []
    assert one("user").items() >= agent.items()


# Messages.


def test_text_is_a_short_form_of_content(import_records: Callable[..., list[str]]) -> None:
    assert import_records(*chat(0), message(text="שלום \u2028 \U0001f600")) == []
    assert bytes(one("message")["content"]).decode() == '{"text":"שלום \u2028 \U0001f600"}'


def test_pinned_at_is_the_time_of_the_pin(import_records: Callable[..., list[str]]) -> None:
    pinned, both, flag = clock.ulid(), clock.ulid(), clock.ulid()
    later = "2026-11-21T12:00:00.000+02:00"
    assert import_records(*chat(0), message(id=pinned, pinned_at=later)) == []
    assert import_records(message(id=both, pinned_at=later, is_pinned=True)) == []
    assert import_records(message(id=flag, is_pinned=True, created_at=NOW), message(is_pinned=False)) == []
    rows = {row["id"]: (row["is_pinned"], row["pinned_at"]) for row in stored("message")}
    expected = "2026-11-21T10:00:00.000Z"
    assert [rows.pop(id) for id in (pinned, both, flag)] == [(True, expected), (True, expected), (True, NOW)]
    assert [*rows.values()] == [(False, None)]


def test_missing_message_id_derives_from_created_at(import_records: Callable[..., list[str]]) -> None:
    assert import_records(*chat(0), message(created_at="2026-11-20T12:00:00.1234+02:00")) == []
    imported = one("message")
    assert imported["created_at"] == imported["updated_at"] == "2026-11-20T10:00:00.123Z"
    assert clock.timestamp(clock.ulid_time(imported["id"])) == imported["created_at"]


def test_missing_created_at_derives_from_the_id(import_records: Callable[..., list[str]]) -> None:
    assert import_records(*chat(0), message(id="01arz3ndektsv4rrffq69g5fav")) == []
    imported = one("message")
    assert (imported["id"], imported["created_at"]) == ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "2016-07-30T23:54:10.259Z")


def test_messages_of_one_millisecond_keep_the_order_of_the_file(import_records: Callable[..., list[str]]) -> None:
    stamps = ["2026-11-20T10:00:00.001Z", "2026-11-20T10:00:00.000Z", "2026-11-20T10:00:00.002Z"]
    messages = [
        message(text=str(number), created_at=stamp, channel=channel)
        for number, stamp, channel in zip(
            range(60), itertools.cycle(stamps), itertools.cycle(["web", "user", "password", "web", "web"]), strict=False
        )
    ]
    assert import_records(*chat(0), *messages) == []
    texts = [int(json.loads(bytes(row["content"]))["text"]) for row in stored("message")]
    assert texts == sorted(range(60), key=lambda number: (stamps[number % 3], number))


@pytest.mark.parametrize("value", [[], [0], [LOW, -1, 0, 255, 256, HIGH], [*range(300)]], ids=str)
def test_array_of_integers_is_stored_unchanged(value: list[int], import_records: Callable[..., list[str]]) -> None:
    assert import_records(*chat(0), message(content=value, translations=value)) == []
    assert (one("message")["content"], one("message")["translations"]) == (value, value)


@pytest.mark.parametrize(
    "value", [{"a": [1, {"ü": "\U0001f600"}]}, {}, "text", 7, 2.5, True, False, [1.5], [True], [[]]]
)
def test_other_json_is_stored_as_its_bytes(value: Any, import_records: Callable[..., list[str]]) -> None:
    assert import_records(*chat(0), message(content=value)) == []
    assert bytes(one("message")["content"]).decode() == compact_json(value)


def test_null_is_treated_as_empty(import_records: Callable[..., list[str]]) -> None:
    assert import_records(*chat(0), message(content=None, sender_id=None, edited_at=None)) == []
    assert one("message")["content"] == []


def test_import_removes_hidden_text_from_replies_and_notifications(import_records: Callable[..., list[str]]) -> None:
    for hidden in ({"deleted_at": NOW}, {"gdpr_purged_at": NOW}):
        first, second = clock.ulid(), clock.ulid()
        payload = {"message_id": first, "text": "secret"}
        reply = message(id=second, reply_to_message_id=first, reply_snapshot={"text": "secret"})
        assert import_records(*chat(0), message(id=first), reply) == []
        assert (
            import_records({"notification": {"id": OTHER, "user_id": ALICE, "body": "secret", "payload": payload}})
            == []
        )
        assert Notification.get_by_id(OTHER).body == "secret"
        assert import_records(message(id=first, **hidden)) == []
        assert (one("notification")["body"], one("notification")["payload"]) == ("", [])
        assert Message.get_by_id(second).reply_snapshot == "[]"
        assert (
            import_records({"notification": {"id": OTHER, "user_id": ALICE, "body": "secret", "payload": payload}})
            == []
        )
        assert one("notification")["body"] == ""


@pytest.mark.parametrize("payload", [{"message_id": 7}, {"message_id": "x"}, [91] * 100_000, [300], "text", [49]])
def test_notification_payload_can_be_any_json(payload: Any, import_records: Callable[..., list[str]]) -> None:
    assert import_records(*chat(0), {"notification": {"user_id": ALICE, "payload": payload}}) == []
    assert Notification.get().message_id is None


# Exports.


def test_export_import_export_gives_the_same_bytes(import_records: Callable[..., list[str]], tmp_path: Path) -> None:
    assert import_records(*chat(), {"bot": {"app_id": APP, "rating": 4.1, "social_links": {"a": "b"}}}) == []
    first = export()
    assert import_records(first) == []
    assert export() == first
    db.close_database()
    prepare(tmp_path / "new")
    assert import_records(first) == []
    assert export() == first


def test_export_contains_no_signing_keys(import_records: Callable[..., list[str]], alice: Client) -> None:
    from service.models import SigningKey

    assert SigningKey.secrets()[0].encode() not in export()
    assert {next(iter(json.loads(line))) for line in export().splitlines()} <= set(RECORDS)


@pytest.mark.slow
def test_exported_file_is_private_and_complete(tmp_path: Path) -> None:
    data, target = tmp_path / "data", tmp_path / "out.jsonl"
    command("import", "-", "--data", data, input=json_lines(chat()))
    target.write_text("older")
    target.chmod(0o644)
    done = command("export", target, "--data", data, umask=0)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert target.stat().st_mode & 0o777 == 0o600
    assert target.read_bytes() == command("export", "--data", data).stdout
    assert {path.name for path in tmp_path.iterdir()} - {"data"} == {"out.jsonl"}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "stop"])
def test_failed_export_leaves_the_existing_file(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.jsonl"
    prepare(tmp_path / "data")

    def fail(write: Callable[[bytes], Any], _: Any) -> None:
        write(b"half")
        raise error

    monkeypatch.setattr(import_export, "export", fail)
    for before in (None, "older"):
        if before:
            target.write_text(before)
        assert run(["export", str(target), *flags_of(settings_at(tmp_path / "data"))]) == (
            1 if isinstance(error, OSError) else 130
        )
        assert (target.read_text() if target.exists() else None) == before
    assert {path.name for path in tmp_path.iterdir()} - {"data"} == {"out.jsonl"}
    errors = {f"cx-service: cannot write {target}: No space left on device\n"} if isinstance(error, OSError) else set()
    assert set(capsys.readouterr().err.splitlines(keepends=True)) == errors
    db.close_database()


@pytest.mark.parametrize("place", ["no/such/folder", "file/out", "folder"])
def test_unwritable_target_is_reported_in_one_line(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    prepare(tmp_path / "data")
    assert run(["export", str(tmp_path / place), *flags_of(settings_at(tmp_path / "data"))]) == 1
    db.close_database()
    assert re.fullmatch(rf"cx-service: cannot write {tmp_path / place}: [^\n]+\n", capsys.readouterr().err)
    assert {path.name for path in tmp_path.iterdir()} - {"data"} == {"file", "folder"}


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.slow
def test_closed_pipe_is_no_crash(unbuffered: str, tmp_path: Path) -> None:
    command("import", "-", "--data", tmp_path / "data", input=json_lines(chat(5000)))
    line = f"{sys.executable} {ROOT}/app.py export --data {tmp_path}/data | head -n 1"
    variables = environment(**database_variables(tmp_path / "data"), PYTHONUNBUFFERED=unbuffered)
    done = subprocess.run(["bash", "-c", line], capture_output=True, env=variables, timeout=60)
    assert done.stdout == b'{"app":{"id":"%s","name":"Shop"}}\n' % APP.encode()
    assert done.stderr == b""


# The progress bar.


def on_a_terminal(data: Path, *arguments: object, stdin: Any = None) -> str:
    """The output of a command whose standard error is a terminal."""
    master, terminal = pty.openpty()
    line = [sys.executable, str(ROOT / "app.py"), *map(str, arguments), "--data", str(data)]
    stdin, variables = stdin or subprocess.DEVNULL, environment(**database_variables(data))
    with subprocess.Popen(line, stdin=stdin, stdout=subprocess.DEVNULL, stderr=terminal, env=variables) as process:
        os.close(terminal)
        shown = b""
        try:
            while chunk := os.read(master, 1000):
                shown += chunk
        except OSError:  # the terminal was closed
            pass
        os.close(master)
        assert process.wait(30) == 0
    return shown.decode()


@pytest.mark.slow
def test_progress_bar_is_shown_on_a_terminal(tmp_path: Path) -> None:
    path, data = write_records(tmp_path / "in", chat(500)), tmp_path / "data"
    for shown in (on_a_terminal(data, "import", path), on_a_terminal(data, "export")):
        percents = [int(number) for number in re.findall(r"\r\[[# ]{40}\] +(\d+)%", shown)]
        assert percents == sorted(set(percents))
        assert len(percents) > 50
        assert shown.endswith(f"\r[{'#' * 40}] 100%\r\n")


@pytest.mark.slow
@pytest.mark.sqlite_only("the doctor reports the settings of the tests' PostgreSQL as errors")
def test_progress_of_a_backup_and_of_the_doctor_is_shown(tmp_path: Path) -> None:
    path, data = write_records(tmp_path / "in", chat(500)), tmp_path / "data"
    on_a_terminal(data, "import", path)
    for shown in (on_a_terminal(data, "backup", tmp_path / "backup.db"), on_a_terminal(data, "doctor", "--quick")):
        assert shown.endswith(f"\r[{'#' * 40}] 100%\r\n")


def test_no_progress_bar_if_the_size_is_unknown(tmp_path: Path) -> None:
    with write_records(tmp_path / "in", chat()).open("rb") as file:
        assert on_a_terminal(tmp_path / "data", "import", "-", stdin=file) == ""


# Valid records are exported as imported.

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
INT64 = st.integers(LOW, HIGH)
LINE = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20).map("{}.".format)
PAYLOAD = st.none() | st.dictionaries(ANY_TEXT, st.booleans(), max_size=2)
ACTION = st.fixed_dictionaries({"id": LINE, "label": LINE, "payload": PAYLOAD})
JSON = st.recursive(
    st.none() | st.booleans() | INT64 | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)
STAMPS = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)).map(
    lambda time: time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"appearance": {"theme": "dark", "font": "large"}, "chat_language": "", "mine": [1, {"deep": None}]},
    {"notifications": {"muted_until": "2026-11-20T10:00:00.000Z"}, "updated_at": "2026-11-20T10:00:00.000Z"},
]
REQUIRED = {
    "app_id",
    "user_id",
    "chat_session_id",
    "mcp_server_id",
    "allowed_tools",
    "description",
    "starts_at",
    "bot_id",
    "question",
    "answer",
    "shortcut",
    "text",
}


def values(column: Any, ids: dict[str, list[str]]) -> st.SearchStrategy[Any]:
    """Values that a column accepts, by its type."""
    if isinstance(column, (Identifier, UlidIdentifier)):
        choices: st.SearchStrategy[Any] = st.uuids().map(str)
        if column.refers_to:
            choices = st.sampled_from(ids[column.refers_to])
    elif isinstance(column, Choice):
        choices = st.sampled_from(column.wire.__args__)
    elif isinstance(column, Text):
        choices = st.sampled_from(VALID_TEXTS[column.validator]) if column.validator else ANY_TEXT.filter(bool)
    elif isinstance(column, Timestamp):
        choices = STAMPS
    elif isinstance(column, (Boolean, TimestampFlag)):
        choices = st.booleans()
    elif isinstance(column, Number):
        choices = st.floats(-1e300, 1e300)
    elif isinstance(column, JsonAsBytes):
        choices = st.lists(INT64, max_size=5) | JSON
    else:
        kinds = {Integers: st.lists(INT64), Strings: st.lists(ANY_TEXT), Document: st.dictionaries(ANY_TEXT, JSON)}
        tool = ANY_TEXT.filter(lambda text: text and text != "*")  # * is valid alone only
        actions = st.lists(ACTION, max_size=MAX_ACTIONS, unique_by=lambda action: str(action["id"]))
        kinds |= {Tools: st.lists(tool, min_size=1, unique=True), Actions: actions}
        choices = st.sampled_from(SETTINGS) if column.name == "settings" else kinds[type(column)]
    return choices | st.none() if getattr(column, "null", False) else choices


@st.composite
def databases(draw: st.DrawFn) -> list[Record]:
    """Record of all kinds that refer to each other."""
    ids: dict[str, list[str]] = {}
    pictures = {"avatar", "message_image", "feedback_screenshot", "bot_picture"}
    for kind in RECORDS.keys() - pictures - {"chat_rating"}:  # have separate tests
        count = draw(st.integers(1, 3))
        ids[kind] = [clock.ulid() if kind == "message" else clock.uuid() for _ in range(count)]
    records: list[Record] = []
    for kind, table in RECORDS.items():
        for id in ids.get(kind, ()):
            columns = {
                name: values(column, ids) for name, column in members(table, export=True).items() if name != "id"
            }
            required = columns.keys() & REQUIRED
            optional = {name: columns[name] for name in columns.keys() - required}
            row = draw(st.fixed_dictionaries({name: columns[name] for name in required}, optional=optional))
            unique = {"user": {"email": f"{id}@example.com"}, "event": {"source_event_id": id}}
            own = unique.get(kind, {})
            records.append({kind: {"id": id, **row, **own}})
    return draw(st.permutations(records))


def as_exported(column: Any, value: Any) -> Any:
    """A value in the format of exports."""
    if isinstance(column, JsonAsBytes):
        is_ready = isinstance(value, list) and all(type(item) is int for item in value)
        return [] if value is None else value if is_ready else [*compact_json(value).encode()]
    if isinstance(column, Number):
        return column.to_stored(value)
    return value


def wipe() -> None:
    with db.bulk_write():
        for table in RECORDS.values():
            table.delete().execute()


@hypothesis_settings(
    max_examples=40, deadline=None, database=None, suppress_health_check=[*HealthCheck], derandomize=True
)
@given(databases())
@pytest.mark.slow
def test_valid_records_are_exported_as_imported(application: Any, records: list[Record]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        wipe()
        assert import_export.import_files([write_records(Path(folder, "in"), records)]) == []
        first = export()
        Path(folder, "out").write_bytes(first)
        wipe()
        assert import_export.import_files([Path(folder, "out")]) == []
        assert export() == first
    rows = {(kind, row["id"]): row for line in first.splitlines() for kind, row in json.loads(line).items()}
    derived = {"reply_snapshot", "body", "payload"}  # the text of hidden messages is removed from these
    for kind, given_row in ((kind, row) for record in records for kind, row in record.items()):
        columns, row = members(RECORDS[kind], export=True), rows[kind, given_row["id"]]
        for name in given_row.keys() - derived:
            if not isinstance(columns[name], TimestampFlag) and not (name == "conversation_id" and kind == "message"):
                expected = as_exported(columns[name], given_row[name])
                if kind == "message" and given_row.get("hidden_at") and name in ("deleted_at", "is_private"):
                    expected = row["hidden_at"] if name == "deleted_at" else False  # in place of the given value
                if name == "reply_to_message_id" and not row["is_private"]:
                    of_a_note = rows.get(("message", expected), {}).get("is_private")
                    expected = None if of_a_note else expected  # no client can see it
                if name == "assignee_id" and expected:  # only staff can be assigned
                    user = User(**rows["user", expected])
                    is_valid = user.is_staff(row["app_id"]) and not user.is_disabled
                    assert row[name] == (expected if is_valid else None)
                    continue
                if kind == "message" and row["sealed_content"] and "sealed_content" not in given_row:
                    if name in ("original_content", "translations", "staff_translations"):
                        continue  # removed from a read-once message, whose content has moved
                    name = {"content": "sealed_content"}.get(name, name)
                if name == "given_back_at" and given_row.get("assignee_id") and not row["assignee_id"]:
                    continue  # the time of the import
                if expected is not None:
                    assert row[name] == expected, name
    assert len(rows) == len(records)


def test_standard_input_is_read_once(application: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json_lines(chat()))))
    assert import_export.import_files([None]) == []
    assert User.select().count() == 1


def test_changed_password_ends_the_login_sessions(alice, tmp_path):
    columns = {"id": alice.user.id, "email": "alice@example.com"}
    unchanged, changed = tmp_path / "kept.jsonl", tmp_path / "changed.jsonl"
    unchanged.write_text(json.dumps({"user": {**columns, "password_hash": alice.user.password_hash}}))
    changed.write_text(json.dumps({"user": {**columns, "password": "another one"}}))
    assert import_export.import_files([unchanged]) == []
    assert alice.post("/auth/logout", {"scope": "nonsense"}).status == 400
    assert import_export.import_files([changed]) == []
    assert alice.post("/auth/logout").error == (401, "invalid_token")


def test_languages_of_a_chat_session_are_exported_and_imported(import_records: Callable[..., list[str]]) -> None:
    import_records(*chat())
    session: dict[str, Any] = {"id": SESSION, "app_id": APP, "user_id": ALICE}
    for header, stored_value in (("en;q=0.1, de-AT", "de-AT, en"), ("fr", "fr"), ("", "")):
        assert import_records({"chat_session": {**session, "accept_language": header}}) == []
        assert one("chat_session")["accept_language"] == stored_value
        assert import_records({"chat_session": one("chat_session")}) == []
        assert one("chat_session")["accept_language"] == stored_value
    [error] = import_records({"chat_session": {**session, "accept_language": "<script>"}})
    assert error.startswith("FILE:1: $.chat_session.accept_language: expected language tags")


def test_message_hidden_by_its_customer_is_exported_and_imported(
    import_records: Callable[..., list[str]], application: Any
) -> None:
    import_records(*chat(1))
    hidden = {**one("message"), "deleted_at": NOW, "hidden_at": NOW}
    assert import_records({"message": hidden}) == []
    assert one("message") == hidden
    stored_message = Message.get()
    assert (stored_message.is_private, stored_message.deleted_at, stored_message.hidden_at) == (True, None, NOW)
    chat_session = ChatSession.get_by_id(SESSION)
    assert (chat_session.shown_total, chat_session.public_total) == (1, 0)
