"""`doctor`: reports every error, raises no false alarm, and changes nothing."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from service import commands, db
from service.db.files import FolderLock
from service.operate import doctor
from service.operate.doctor import host
from service.operate.doctor.findings import MAX_ERRORS, errors_or_ok
from service.settings import Settings
from tests.support import pictures as made
from tests.support import postgres, sample_data
from tests.support.access import as_form
from tests.support.avatars import upload
from tests.support.client import Client
from tests.support.faults import another_connection
from tests.support.installation import flags_of, settings_at
from tests.support.paths import ROOT
from tests.support.sample_data import (
    ALICE,
    FEEDBACK,
    HELLO,
    HILDA,
    IMAGE,
    NOTIFICATION,
    PURGED,
    REPLY,
    SESSION,
    UNKNOWN_ID,
)
from tests.support.server_process import chat, command, environment, fill, serving

pytestmark = pytest.mark.database


@pytest.fixture
def data(sample_data_folder: Path) -> Path:
    return sample_data_folder


def problems(data: Path, **settings: Any) -> list[tuple[str, str, str]]:
    """The warnings and errors, except those about the tests' PostgreSQL, which trades durability for speed."""
    found = doctor.examine(Settings(data=data, database=settings_at(data).database, **settings))
    return [tuple(finding) for finding in found if finding.level != "ok" and finding.about != "server"]


def test_sound_installation_has_no_problems(data: Path) -> None:
    assert problems(data) == []


def test_findings_are_printed_as_lines_or_json(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    is_unsafe = postgres.is_chosen()  # fsync is off on the server of the tests
    assert commands.run(["doctor", *flags_of(settings_at(data))]) == int(is_unsafe)
    lines, errors = capsys.readouterr()
    assert errors == ""
    assert {line[:8].rstrip() for line in lines.splitlines()} == {"ok", *(["warning", "error"] if is_unsafe else [])}
    assert commands.run(["doctor", "--json", *flags_of(settings_at(data))]) == int(is_unsafe)
    output = json.loads(capsys.readouterr().out)
    assert output["healthy"] is not is_unsafe
    assert len(output["findings"]) == len(lines.splitlines())
    assert all(set(finding) == {"level", "about", "text"} for finding in output["findings"])


def test_quick_checks_find_what_needs_no_reading_of_all_rows(data: Path) -> None:
    settings = settings_at(data)
    complete = {finding.about for finding in doctor.examine(settings)}
    inject(data, ROWS["total"].sql)
    inject(data, ROWS["no key"].sql)
    found = doctor.examine(settings, quick=True)
    assert [finding.about for finding in found if finding.level != "ok" and finding.about != "server"] == ["keys"]
    long = {"file"} if settings.database == "" else set()
    long |= {"references", "avatars", "images", "bot pictures", "audit", "derived"}
    assert {finding.about for finding in found} == complete - long


@pytest.mark.slow
def test_ordinary_use_leaves_no_problems(
    settings: Settings, alice: Client, agent: Client, session: Any, shop: Any, bot: Any
) -> None:
    """Every kind of change that users make, followed by a purge."""
    send = f"/chats/{session.id}/messages"
    ids = [alice.post(send, {"content": {"text": f"line {number} ß"}}).data["id"] for number in range(6)]
    note = agent.post(send, {"content": {"text": "a note"}, "is_private": True}).data["id"]
    agent.post(send, {"content": {"text": "an answer"}, "reply_to_message_id": ids[0]})
    alice.patch(f"{send}/{ids[1]}", {"content": {"text": "ÄNDERUNG"}})
    alice.delete(f"{send}/{ids[2]}")
    agent.delete(f"{send}/{note}")
    alice.post(f"{send}/{ids[3]}/pin")
    alice.put(f"/chats/{session.id}/read", {"message_id": ids[4]})
    alice.post("/chats", {"app_id": shop.id, "bot_id": bot.id})
    alice.post(f"/chats/{session.id}/end")
    alice.post(send, {"content": {"text": "again"}})
    upload(alice, sample_data.picture())
    agent.put(f"/apps/{shop.id}/bots/{bot.id}/cover", **as_form({"picture": sample_data.picture()}))
    alice.post("/feedback", {"description": "Fine"})
    alice.post("/events", {"title": "Call", "starts_at": "2030-01-01T10:00:00Z"})
    alice.post("/data-shares", {"mcp_server_id": "files", "allowed_tools": ["read"]})
    agent.put(f"/apps/{shop.id}/bots/{bot.id}/presence", {"presence": "away"})
    assert commands.run(["purge", "--message", ids[5], *flags_of(settings)]) == 0
    found = doctor.examine(settings)
    assert [finding for finding in found if finding.level != "ok" and finding.about != "server"] == []


# Injected errors. Each is the only one that is reported.


class Fault(NamedTuple):
    """An error in the database, and the line that reports it."""

    sql: str
    about: str
    line: str
    level: str = "error"


def change(table: str, id: str, assignment: str, key: str = "id") -> str:
    return f"""UPDATE "{table}" SET {assignment} WHERE {key} = '{id}'"""


LATER = f"6{HELLO[1:]}"  # a ULID in the future
TOTALS = f"chat_session {SESSION}: its totals differ from its messages"
STALE_INDEX = "its search index differs from its question"
WIDE = base64.b64encode(made.webp(made.plain(20, 10))).decode()
NO_PICTURE = f"the picture of user {ALICE} is damaged"
ROWS = {
    "total": Fault(change("chat_session", SESSION, "shown_total = 99"), "derived", TOTALS),
    "public total": Fault(change("chat_session", SESSION, "public_total = 0"), "derived", TOTALS),
    "owner": Fault(change("message", HELLO, f"owner_id = '{UNKNOWN_ID}'"), "derived", f"message {HELLO}: its owner"),
    "searched text": Fault(
        change("message", HELLO, "search_text = 'x'"), "derived", f"message {HELLO}: its search text"
    ),
    "purged text": Fault(
        change("message", PURGED, "plain_text = 'x'"), "derived", f"message {PURGED}: its search text"
    ),
    "searched bot": Fault(change("bot", HILDA, "search_text = ''"), "derived", f"bot {HILDA}: its search text"),
    "words of an answer": Fault("UPDATE bot_answer SET words = 'x'", "derived", STALE_INDEX),
    "unindexed answer": Fault("DELETE FROM bot_answer_word WHERE word = 'open'", "derived", STALE_INDEX),
    "index of no answer": Fault(
        f"UPDATE bot_answer_word SET answer_id = '{UNKNOWN_ID}' WHERE word = 'open'",
        "derived",
        "it is indexed but missing",
    ),
    "no key": Fault("DELETE FROM signing_key", "keys", "there is no signing key"),
    "key": Fault("UPDATE signing_key SET secret = 'x'", "keys", r"signing_key \w{26} is damaged"),
    "picture": Fault(change("avatar", ALICE, "image = 'AAAA'", "user_id"), "avatars", NO_PICTURE),
    "picture that is not ASCII": Fault(change("avatar", ALICE, "image = 'ä'", "user_id"), "avatars", NO_PICTURE),
    "name of a picture": Fault(change("avatar", ALICE, "name = '../x'", "user_id"), "avatars", "an invalid name"),
    "missing picture": Fault(
        change("user", ALICE, "profile_image = '/avatars/x.webp'"),
        "avatars",
        f"user {ALICE} has a missing picture",
    ),
    "icon": Fault("UPDATE bot_picture SET image = 'AAAA'", "bot pictures", f"the icon of bot {HILDA} is damaged"),
    "icon that is not square": Fault(
        f"UPDATE bot_picture SET image = '{WIDE}'", "bot pictures", f"the icon of bot {HILDA} is damaged"
    ),
    "name of an icon": Fault("UPDATE bot_picture SET name = '../x'", "bot pictures", "an invalid name"),
    "missing icon": Fault("DELETE FROM bot_picture", "bot pictures", f"bot {HILDA} has a missing icon"),
    "missing cover": Fault(
        change("bot", HILDA, "cover_url = '/bot-pictures/x.webp'"), "bot pictures", f"bot {HILDA} has a missing cover"
    ),
    "missing session": Fault(
        change("notification", NOTIFICATION, f"session_id = '{UNKNOWN_ID}'"),
        "references",
        f"notification {NOTIFICATION}: session_id is not a chat_session: {UNKNOWN_ID}",
    ),
    "picture of a message": Fault(
        change("message_image", IMAGE, "image = 'AAAA'"), "images", f"message_image {IMAGE}: it is damaged"
    ),
    "thumbnail": Fault(
        change("message_image", IMAGE, "thumbnail = ''"), "images", f"message_image {IMAGE}: it is damaged"
    ),
    "screenshot": Fault(
        "UPDATE feedback_screenshot SET image = 'AAAA'",
        "images",
        f"feedback_screenshot {FEEDBACK}: it is damaged",
    ),
    "audit": Fault("UPDATE audit_log SET actor_id = 'x' WHERE position = 1", "audit", "entry 1 was altered"),
    "clock": Fault(f"UPDATE login_session SET rotated_at = {2**45}", "clock", "the last login was at 3084-"),
    "later message": Fault(
        change("message", REPLY, f"id = '{LATER}'"), "clock", f"message {LATER} was sent at", "warning"
    ),
    "index": Fault("DROP INDEX message_pinned", "tables", "missing index message_pinned"),
    "table": Fault("DROP TABLE calendar_feed", "tables", "missing table calendar_feed"),
    "older": Fault("UPDATE schema_version SET version = 1", "schema", "the next start migrates it to", "warning"),
    "newer": Fault("UPDATE schema_version SET version = 99", "schema", "schema 99 is newer than this program"),
    "other program": Fault("ALTER TABLE schema_version RENAME TO recipes", "database", "belongs to another program"),
}
FILE_ERRORS = {
    "reference": Fault(f"DELETE FROM bot WHERE id = '{HILDA}'", "references", f"{SESSION}: bot_id is not a bot"),
    "trigger": Fault(
        "CREATE TRIGGER evil AFTER INSERT ON message BEGIN DELETE FROM bot; END", "tables", "unknown trigger evil"
    ),
    "other index": Fault(
        "DROP INDEX bot_answer_bot_id_id; CREATE INDEX bot_answer_bot_id_id ON bot_answer (id, bot_id)",
        "tables",
        "index bot_answer_bot_id_id differs from the schema of this program",
    ),
    "unindexed bot": Fault("DELETE FROM bot_number", "derived", f"bot {HILDA}: it is missing from the search index"),
    "no trigger": Fault("DROP TRIGGER bot_changed", "tables", "missing trigger bot_changed"),
    "other trigger": Fault(
        "DROP TRIGGER bot_deleted; CREATE TRIGGER bot_deleted AFTER DELETE ON bot BEGIN SELECT 1; END",
        "tables",
        "trigger bot_deleted differs from the schema of this program",
    ),
    "no journal": Fault("PRAGMA journal_mode = delete", "file", "is not in WAL mode", "warning"),
}


def inject(data: Path, sql: str) -> None:
    with another_connection(settings_at(data)) as connection:
        if not postgres.is_chosen():
            connection.execute("PRAGMA foreign_keys = 0")
        for statement in re.split("; (?!END)", sql):
            connection.execute(statement)


@pytest.mark.parametrize("case", ROWS)
def test_error_in_rows_is_reported(case: str, data: Path) -> None:
    injected = ROWS[case]
    inject(data, injected.sql)
    found = problems(data)
    reported = {(level, about) for level, about, text in found if not text.startswith("cannot be checked")}
    assert reported == {(injected.level, injected.about)}
    assert any(re.search(injected.line, text) for *_, text in found), found


@pytest.mark.sqlite_only
@pytest.mark.parametrize("case", FILE_ERRORS)
def test_error_in_the_file_is_reported(case: str, data: Path) -> None:
    injected = FILE_ERRORS[case]
    inject(data, injected.sql)
    level, about, text = problems(data)[0]
    assert (level, about) == (injected.level, injected.about) and re.search(injected.line, text)


def test_export_and_import_recompute_derived_values(data: Path, tmp_path: Path) -> None:
    """The findings recommend this."""
    for case in ("total", "owner", "searched text", "purged text", "searched bot", "unindexed answer"):
        inject(data, ROWS[case].sql)
    assert len(problems(data)) == 6
    exported = str(tmp_path / "all.jsonl")
    assert commands.run(["export", exported, *flags_of(settings_at(data))]) == 0
    assert commands.run(["import", exported, *flags_of(settings_at(data))]) == 0
    db.release_database()
    assert problems(data) == []


def test_further_errors_of_a_check_are_counted() -> None:
    found = list(errors_or_ok("derived", map(str, range(1000)), "consistent"))
    assert [finding.text for finding in found] == [*map(str, range(MAX_ERRORS)), "and 995 more of these"]


# Files and folders.


def overwrite(path: Path) -> None:
    """Overwrite a page with rows of a table."""
    with closing(db.open_file(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'feedback'").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)


def enlarge_journal(data: Path) -> None:
    journal = data / "service.db-wal"
    journal.touch(0o600)
    os.truncate(journal, 257 << 20)


def create_file(data: Path, name: str, days: int = 0) -> None:
    path = data / name
    path.touch(0o600)
    os.utime(path, (time.time() - days * 86400,) * 2)


FILES: dict[str, tuple[Callable[[Path], Any], str, str, str]] = {
    "page": (lambda data: overwrite(data / "service.db"), "error", "file", "service.db is damaged: "),
    "half": (lambda data: os.truncate(data / "service.db", 100 * 1024), "error", "database|file", "damaged|malformed"),
    "text": (lambda data: (data / "service.db").write_bytes(b"x" * 9999), "error", "database", "not a database"),
    "empty file": (lambda data: os.truncate(data / "service.db", 0), "error", "database", "there is no database in"),
    "no file": (lambda data: (data / "service.db").unlink(), "error", "database", "there is no database in "),
    "no folder": (shutil.rmtree, "error", "folder", " does not exist: "),
    "open folder": (lambda data: data.chmod(0o755), "warning", "folder", "other users can list .*: chmod 700 "),
    "open file": (
        lambda data: (data / "service.db").chmod(0o640),
        "error",
        "folder",
        "other users can read .*: chmod 600 ",
    ),
    "endless journal": (enlarge_journal, "warning", "leftovers", "service.db-wal has 269,484,032 bytes"),
    "old database": (lambda data: create_file(data, "service.db.schema-2", 40), "warning", "leftovers", "40 days old"),
    "interrupted restore": (
        lambda data: (data / ".service.db.unfinished").mkdir(),
        "warning",
        "leftovers",
        "interrupted command",
    ),
    "interrupted copy": (
        lambda data: create_file(data, "service.db.schema-2.unfinished"),
        "warning",
        "leftovers",
        "interrupted command",
    ),
}


@pytest.mark.slow
@pytest.mark.sqlite_only
@pytest.mark.parametrize("case", FILES)
def test_error_in_the_folder_is_reported(case: str, data: Path) -> None:
    inject, level, about, line = FILES[case]
    inject(data)
    found = problems(data)
    assert any(one[0] == level and re.fullmatch(about, one[1]) and re.search(line, one[2]) for one in found), found


@pytest.mark.sqlite_only
def test_recent_copy_of_the_database_is_no_problem(data: Path) -> None:
    create_file(data, "service.db.before-20261121T221300.000Z")
    assert problems(data) == []


@pytest.mark.sqlite_only
@pytest.mark.skipif("os.geteuid() != 0", reason="only root can change the owner of a file")
def test_file_of_another_owner_is_reported(data: Path) -> None:
    os.chown(data / "service.db", 1, -1)
    ((level, about, text),) = problems(data)
    assert (level, about) == ("error", "folder")
    assert re.search("service.db belongs to .*, but the folder to .*: chown it", text)


@pytest.mark.sqlite_only
@pytest.mark.parametrize(
    ("free", "files", "level", "line"),
    [
        (10 << 20, 99, "error", "10,485,760 bytes are free on the disk .*: free some space"),
        (10 << 40, 0, "error", "no free inodes"),
        (65 << 20, 99, "warning", "a backup, purge or migration needs"),
    ],
)
def test_nearly_full_disk_is_reported(
    free: int, files: int, level: str, line: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_file(data, "service.db.schema-2")
    os.truncate(data / "service.db.schema-2", 80 << 20)
    monkeypatch.setattr(host, "free_space", lambda folder: (free, files))
    ((found, about, text),) = problems(data)
    assert (found, about) == (level, "disk") and re.search(line, text)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"host": "0.0.0.0"}, "0.0.0.0 is reachable from other hosts"),
        ({"host": "::"}, ":: is reachable from other hosts"),
        ({"host": "192.0.2.1", "public_url": "http://chat.example"}, "http://chat.example has no TLS"),
        ({"public_url": "http://chat.example"}, "http://chat.example has no TLS"),
    ],
)
def test_public_address_without_tls_is_reported(settings: dict[str, str], line: str, data: Path) -> None:
    ((level, about, text),) = problems(data, **settings)
    assert (level, about) == ("warning", "address") and text.startswith(line)


@pytest.mark.parametrize(
    "settings",
    [
        {"host": "::1"},
        {"host": "localhost", "public_url": "http://localhost:8080"},
        {"host": "0.0.0.0", "public_url": "https://chat.example"},
        {"host": "10.0.0.11", "trusted_proxy": "10.0.0.10"},
    ],
)
def test_other_addresses_are_ok(settings: dict[str, str], data: Path) -> None:
    assert problems(data, **settings) == []


def test_unsafe_unpack_folder_is_reported(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "unpacked"
    place.mkdir(mode=0o700)
    monkeypatch.setenv("SHIV_ROOT", str(place))
    assert problems(data) == []
    place.chmod(0o770)
    assert "other users can write to" in problems(data)[0][2]
    monkeypatch.setenv("SHIV_ROOT", "/proc/1/nowhere")
    assert "is not writable, so another version cannot be unpacked" in problems(data)[0][2]


# Checks are read-only.


def beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(1 << 20)


def state(folder: Path) -> dict[str, tuple[bytes, float]]:
    """The files of a folder with their first MiB and their times, except SQLite's shared memory."""
    return {
        path.name: (beginning(path), path.stat().st_mtime)
        for path in folder.iterdir()
        if path.is_file() and not path.name.endswith("-shm")
    }


@pytest.mark.slow
@pytest.mark.sqlite_only
@pytest.mark.parametrize("case", [None, *FILES])
def test_checks_change_nothing(case: str | None, data: Path) -> None:
    if case:
        FILES[case][0](data)
    before = state(data) if data.exists() else {}
    problems(data)
    assert (state(data) if data.exists() else {}) == before


@pytest.mark.sqlite_only
def test_journal_is_read_and_not_applied(data: Path) -> None:
    with another_connection(settings_at(data)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE signing_key SET secret = 'x'")
        writer.execute("COMMIT")
        before = state(data)
        assert set(before) == {"service.db", "service.db-wal"}
        assert [about for _, about, _ in problems(data)] == ["keys"]
        assert state(data) == before


@pytest.mark.sqlite_only
def test_running_restore_is_an_error(data: Path) -> None:
    lock = FolderLock(data, exclusive=True)
    ((level, about, text),) = problems(data)
    assert (level, about) == ("error", "database") and "a backup is being restored" in text
    del lock


@pytest.mark.slow
@pytest.mark.sqlite_only
def test_read_only_disk_is_reported_and_checked(data: Path) -> None:
    unshare = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    mount = f"mount --bind {data} {data} && mount -o remount,ro,bind {data}"
    if not shutil.which("unshare") or subprocess.run([*unshare, mount], capture_output=True).returncode:
        reason = "NOT TESTED: unshare is missing (apt-get install util-linux), or this machine does not allow mounts"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    line = f"{mount} && exec {sys.executable} app.py doctor --json --data {data}"
    done = subprocess.run([*unshare, line], cwd=ROOT, env=environment(), capture_output=True)
    findings = json.loads(done.stdout)["findings"]
    assert [one["text"] for one in findings if one["level"] == "error" and "read-only" in one["text"]]
    assert {one["about"]: one["level"] for one in findings}["derived"] == "ok"
    assert done.returncode == 1
    line = f"{mount} && exec {sys.executable} app.py backup - --data {data}"
    made = subprocess.run([*unshare, line], cwd=ROOT, env=environment(), capture_output=True)
    assert made.returncode == 0 and made.stdout.startswith(b"SQLite format 3")


@pytest.mark.slow
def test_running_service_has_no_problems(tmp_path: Path) -> None:
    data = tmp_path / "served"
    fill(data, chat())
    with serving(data, "--workers", "2") as server:
        token = server.log_in()
        done = command("doctor", "--json", "--data", data)
        findings = json.loads(done.stdout)["findings"]
        assert [one for one in findings if one["level"] != "ok" and one["about"] != "server"] == []
        assert server.call("POST", "/api/v1/feedback", {"description": "Fine"}, token).status == 201


# PostgreSQL.


@pytest.mark.postgresql_only
def test_unsafe_postgresql_settings_are_reported(data: Path) -> None:
    found = {
        (one.level, one.text.partition(":")[0]) for one in doctor.examine(settings_at(data)) if one.about == "server"
    }
    assert found >= {
        ("warning", "synchronous_commit is off"),
        ("error", "fsync is off"),
        ("error", "full_page_writes is off"),
    }


@pytest.mark.slow
@pytest.mark.postgresql_only
def test_safe_postgresql_has_no_problems_and_replica_is_checked(data: Path) -> None:
    with postgres.running() as server:
        url = f"{server.url}/postgres"
        assert commands.run(["copy", "--from", settings_at(data).database, "--to", url]) == 0
        db.release_database()
        found = doctor.examine(Settings(data=data, database=url))
        assert [one for one in found if one.level != "ok"] == []
        for replica, line in (("postgresql://127.0.0.1:1/x", "is unreachable"), (url, "is not a replica of")):
            found = doctor.examine(Settings(data=data, database=url, replica=replica))
            ((level, about, text),) = [one for one in found if one.level != "ok"]
            assert (level, about) == ("warning", "replica") and line in text
    ((level, about, _),) = [one for one in doctor.examine(Settings(data=data, database=url)) if one.level != "ok"]
    assert (level, about) == ("error", "database")
