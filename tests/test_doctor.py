"""`doctor`: whatever is wrong is named, whatever is well is left in peace, and nothing is changed."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from service import commands, db, doctor
from service.db.files import Hold
from service.doctor import host
from service.doctor.findings import FEW, each
from service.settings import Settings
from tests import household, postgres
from tests.conftest import Client, at, flags_of
from tests.household import ALICE, HELLO, HILDA, NOBODY, NOTIFICATION, PURGED, SESSION
from tests.postgres import on_sqlite_alone
from tests.serving import ROOT, chat, command, environment, fill, serving
from tests.test_avatars import upload
from tests.trouble import another_connection


@pytest.fixture
def data(household_data: Path) -> Path:
    return household_data


def trouble(data: Path, **settings: Any) -> list[tuple[str, str, str]]:
    """What is found that is not well; the server of the tests is fast and careless."""
    found = doctor.examine(Settings(data=data, database=at(data).database, **settings))
    return [tuple(finding) for finding in found if finding.level != "ok" and finding.about != "server"]


def test_a_sound_installation_has_no_faults(data: Path) -> None:
    assert trouble(data) == []


def test_what_is_found_is_told_in_lines_and_to_programs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    careless = postgres.is_chosen()  # of what a crash does
    assert commands.run(["doctor", *flags_of(at(data))]) == int(careless)
    lines, errors = capsys.readouterr()
    assert errors == ""
    assert {line[:8].rstrip() for line in lines.splitlines()} == {"ok", *(["warning", "fault"] if careless else [])}
    assert commands.run(["doctor", "--json", *flags_of(at(data))]) == int(careless)
    told = json.loads(capsys.readouterr().out)
    assert told["healthy"] is not careless
    assert len(told["findings"]) == len(lines.splitlines())
    assert all(set(finding) == {"level", "about", "text"} for finding in told["findings"])


@pytest.mark.slow
def test_a_life_lived_leaves_no_faults(
    settings: Settings, alice: Client, agent: Client, session: Any, shop: Any, bot: Any
) -> None:
    """Every kind of change that people make, and then the legal purge."""
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
    upload(alice, household.picture())
    alice.post("/feedback", {"description": "Fine"})
    alice.post("/events", {"title": "Call", "starts_at": "2030-01-01T10:00:00Z"})
    alice.post("/data-shares", {"mcp_server_id": "files", "allowed_tools": ["read"]})
    agent.put(f"/apps/{shop.id}/bots/{bot.id}/presence", {"presence": "away"})
    assert commands.run(["purge", "--message", ids[5], *flags_of(settings)]) == 0
    found = doctor.examine(settings)
    assert [finding for finding in found if finding.level != "ok" and finding.about != "server"] == []


# Planted faults. Each is the only one that is named.


class Plant(NamedTuple):
    """Something that is wrong, and the line that names it."""

    sql: str
    about: str
    line: str
    level: str = "fault"


def change(table: str, id: str, what: str, key: str = "id") -> str:
    return f"""UPDATE "{table}" SET {what} WHERE {key} = '{id}'"""


LATER = f"6{HELLO[1:]}"  # a ULID of a time to come
TOTALS = f"chat_session {SESSION}: its totals are not those of its messages"
COMPARED = "messages are compared with other words than its question has"
NO_PICTURE = f"the picture of user {ALICE} cannot be shown"
ROWS = {
    "total": Plant(change("chat_session", SESSION, "shown_total = 99"), "derived", TOTALS),
    "public total": Plant(change("chat_session", SESSION, "public_total = 0"), "derived", TOTALS),
    "owner": Plant(change("message", HELLO, f"owner_id = '{NOBODY}'"), "derived", f"message {HELLO}: its owner"),
    "searched text": Plant(change("message", HELLO, "search_text = 'x'"), "derived", f"message {HELLO}: searches"),
    "purged text": Plant(change("message", PURGED, "plain_text = 'x'"), "derived", f"message {PURGED}: searches"),
    "searched bot": Plant(change("bot", HILDA, "search_text = ''"), "derived", f"bot {HILDA}: searches"),
    "words of an answer": Plant("UPDATE bot_answer SET words = 'x'", "derived", COMPARED),
    "unindexed answer": Plant("DELETE FROM bot_answer_word WHERE word = 'open'", "derived", COMPARED),
    "index of no answer": Plant(
        f"UPDATE bot_answer_word SET answer_id = '{NOBODY}' WHERE word = 'open'", "derived", "it is indexed but not"
    ),
    "no key": Plant("DELETE FROM signing_key", "keys", "there is no signing key"),
    "key": Plant("UPDATE signing_key SET secret = 'x'", "keys", r"signing_key \w{26} is damaged"),
    "picture": Plant(change("avatar", ALICE, "image = 'AAAA'", "user_id"), "avatars", NO_PICTURE),
    "picture in odd letters": Plant(change("avatar", ALICE, "image = 'ä'", "user_id"), "avatars", NO_PICTURE),
    "name of a picture": Plant(change("avatar", ALICE, "name = '../x'", "user_id"), "avatars", "an impossible name"),
    "lost picture": Plant(
        change("user", ALICE, "profile_image = '/avatars/x.webp'"),
        "avatars",
        f"user {ALICE} shows a picture",
    ),
    "lost session": Plant(
        change("notification", NOTIFICATION, f"session_id = '{NOBODY}'"),
        "references",
        f"notification {NOTIFICATION}: session_id names no chat_session: {NOBODY}",
    ),
    "ledger": Plant("UPDATE ledger SET actor_id = 'x' WHERE position = 1", "ledger", "entry 1 is not what was written"),
    "clock": Plant(f"UPDATE login_session SET rotated_at = {2**45}", "clock", "somebody logged in at 3084-"),
    "later message": Plant(change("message", HELLO, f"id = '{LATER}'"), "clock", f"message {LATER} is of", "warning"),
    "index": Plant("DROP INDEX message_pinned", "tables", "there is no index message_pinned"),
    "table": Plant("DROP TABLE calendar_feed", "tables", "there is no table calendar_feed"),
    "older": Plant("UPDATE schema_version SET version = 1", "schema", "the next start brings to", "warning"),
    "newer": Plant("UPDATE schema_version SET version = 99", "schema", "schema 99, and this program knows"),
    "stranger": Plant("ALTER TABLE schema_version RENAME TO recipes", "database", "belongs to another program"),
}
OF_A_FILE = {
    "reference": Plant(f"DELETE FROM bot WHERE id = '{HILDA}'", "references", f"{SESSION}: bot_id names no bot"),
    "trigger": Plant(
        "CREATE TRIGGER evil AFTER INSERT ON message BEGIN DELETE FROM bot; END", "tables", "there is a trigger evil"
    ),
    "other index": Plant(
        "DROP INDEX bot_answer_bot_id_id; CREATE INDEX bot_answer_bot_id_id ON bot_answer (id, bot_id)",
        "tables",
        "the index bot_answer_bot_id_id is not as this program makes it",
    ),
    "unindexed bot": Plant("DELETE FROM bot_number", "derived", f"bot {HILDA}: searches do not find it"),
    "no trigger": Plant("DROP TRIGGER bot_changed", "tables", "there is no trigger bot_changed"),
    "other trigger": Plant(
        "DROP TRIGGER bot_deleted; CREATE TRIGGER bot_deleted AFTER DELETE ON bot BEGIN SELECT 1; END",
        "tables",
        "the trigger bot_deleted is not as this program makes it",
    ),
    "no journal": Plant("PRAGMA journal_mode = delete", "file", "is not in WAL mode", "warning"),
}


def plant(data: Path, sql: str) -> None:
    with another_connection(at(data)) as connection:
        if not postgres.is_chosen():
            connection.execute("PRAGMA foreign_keys = 0")
        for statement in re.split("; (?!END)", sql):
            connection.execute(statement)


@pytest.mark.parametrize("what", ROWS)
def test_a_fault_in_the_rows_is_named(what: str, data: Path) -> None:
    planted = ROWS[what]
    plant(data, planted.sql)
    found = trouble(data)
    named = {(level, about) for level, about, text in found if not text.startswith("it could not be looked at")}
    assert named == {(planted.level, planted.about)}
    assert any(re.search(planted.line, text) for *_, text in found), found


@on_sqlite_alone
@pytest.mark.parametrize("what", OF_A_FILE)
def test_a_fault_of_the_file_is_named(what: str, data: Path) -> None:
    planted = OF_A_FILE[what]
    plant(data, planted.sql)
    level, about, text = trouble(data)[0]
    assert (level, about) == (planted.level, planted.about) and re.search(planted.line, text)


def test_export_and_import_settle_what_is_derived(data: Path, tmp_path: Path) -> None:
    """The advice that is given."""
    for what in ("total", "owner", "searched text", "purged text", "searched bot", "unindexed answer"):
        plant(data, ROWS[what].sql)
    assert len(trouble(data)) == 6
    everything = str(tmp_path / "all.jsonl")
    assert commands.run(["export", everything, *flags_of(at(data))]) == 0
    assert commands.run(["import", everything, *flags_of(at(data))]) == 0
    db.forget_database()
    assert trouble(data) == []


def test_many_of_a_kind_are_counted() -> None:
    found = list(each("derived", map(str, range(1000)), "well"))
    assert [finding.text for finding in found] == [*map(str, range(FEW)), "and 995 more of the kind"]


# Files and folders.


def overwrite(path: Path) -> None:
    """A page in the middle is lost."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 // 4096 * 4096)
        file.write(b"\xff" * 4096)


def grow(data: Path) -> None:
    journal = data / "service.db-wal"
    journal.touch(0o600)
    os.truncate(journal, 257 << 20)


def leave(data: Path, name: str, days: int = 0) -> None:
    path = data / name
    path.touch(0o600)
    os.utime(path, (time.time() - days * 86400,) * 2)


FILES: dict[str, tuple[Callable[[Path], Any], str, str, str]] = {
    "page": (lambda data: overwrite(data / "service.db"), "fault", "file", "service.db is damaged: "),
    "half": (lambda data: os.truncate(data / "service.db", 100 * 1024), "fault", "database|file", "damaged|malformed"),
    "text": (lambda data: (data / "service.db").write_bytes(b"x" * 9999), "fault", "database", "not a database"),
    "nothing in it": (lambda data: os.truncate(data / "service.db", 0), "fault", "database", "there is no database in"),
    "no file": (lambda data: (data / "service.db").unlink(), "fault", "database", "there is no database in "),
    "no folder": (shutil.rmtree, "fault", "folder", "there is no folder "),
    "open folder": (lambda data: data.chmod(0o755), "warning", "folder", "others may look into .*: chmod 700 "),
    "open file": (lambda data: (data / "service.db").chmod(0o640), "fault", "folder", "others may read .*: chmod 600 "),
    "endless journal": (grow, "warning", "leftovers", "service.db-wal has 269,484,032 bytes"),
    "old database": (lambda data: leave(data, "service.db.schema-2", 40), "warning", "leftovers", "40 days ago"),
    "half a restore": (lambda data: (data / ".service.db.unfinished").mkdir(), "warning", "leftovers", "was killed"),
    "half a copy": (lambda data: leave(data, "service.db.schema-2.unfinished"), "warning", "leftovers", "was killed"),
}


@pytest.mark.slow
@on_sqlite_alone
@pytest.mark.parametrize("what", FILES)
def test_a_fault_of_files_is_named(what: str, data: Path) -> None:
    plant, level, about, line = FILES[what]
    plant(data)
    found = trouble(data)
    assert any(one[0] == level and re.fullmatch(about, one[1]) and re.search(line, one[2]) for one in found), found


@on_sqlite_alone
def test_an_earlier_database_that_was_kept_lately_is_no_fault(data: Path) -> None:
    leave(data, "service.db.before-20261121T221300.000Z")
    assert trouble(data) == []


@on_sqlite_alone
@pytest.mark.skipif("os.geteuid() != 0", reason="only root gives files away")
def test_a_file_of_somebody_else_is_named(data: Path) -> None:
    os.chown(data / "service.db", 1, -1)
    ((level, about, text),) = trouble(data)
    assert (level, about) == ("fault", "folder")
    assert re.search("service.db belongs to .*, and the folder to .*: chown it", text)


@on_sqlite_alone
@pytest.mark.parametrize(
    ("free", "files", "level", "line"),
    [
        (10 << 20, 99, "fault", "10,485,760 bytes are free on the disk .*: make room"),
        (10 << 40, 0, "fault", "no more files can be made"),
        (65 << 20, 99, "warning", "too few for a backup, a purge or an upgrade"),
    ],
)
def test_a_disk_that_is_nearly_full_is_named(
    free: int, files: int, level: str, line: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(data, "service.db.schema-2")
    os.truncate(data / "service.db.schema-2", 80 << 20)
    monkeypatch.setattr(host, "room_on", lambda folder: (free, files))
    ((found, about, text),) = trouble(data)
    assert (found, about) == (level, "disk") and re.search(line, text)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"host": "0.0.0.0"}, "0.0.0.0 can be reached from outside"),
        ({"host": "::"}, ":: can be reached from outside"),
        ({"host": "192.0.2.1", "public_url": "http://chat.example"}, "http://chat.example has no TLS"),
        ({"public_url": "http://chat.example"}, "http://chat.example has no TLS"),
    ],
)
def test_a_public_address_without_tls_is_named(settings: dict[str, str], line: str, data: Path) -> None:
    ((level, about, text),) = trouble(data, **settings)
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
def test_other_addresses_are_well(settings: dict[str, str], data: Path) -> None:
    assert trouble(data, **settings) == []


@on_sqlite_alone
def test_a_sqlite_that_can_damage_files_is_named(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(db.sqlite3, "sqlite_version_info", (3, 40, 1))
    ((level, about, _),) = trouble(data)
    assert (level, about) == ("warning", "program")


def test_where_the_executable_unpacks_itself_must_be_its_own(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "unpacked"
    place.mkdir(mode=0o700)
    monkeypatch.setenv("SHIV_ROOT", str(place))
    assert trouble(data) == []
    place.chmod(0o770)
    assert "others can write to" in trouble(data)[0][2]
    monkeypatch.setenv("SHIV_ROOT", "/proc/1/nowhere")
    assert "cannot be written, so another version cannot be unpacked" in trouble(data)[0][2]


# It changes nothing, wherever it looks.


def beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(1 << 20)


def state(folder: Path) -> dict[str, tuple[bytes, float]]:
    """The files of a folder, their beginnings at least, but for the memory that its users share."""
    return {
        path.name: (beginning(path), path.stat().st_mtime)
        for path in folder.iterdir()
        if path.is_file() and not path.name.endswith("-shm")
    }


@pytest.mark.slow
@on_sqlite_alone
@pytest.mark.parametrize("what", [None, *FILES])
def test_it_changes_nothing(what: str | None, data: Path) -> None:
    if what:
        FILES[what][0](data)
    before = state(data) if data.exists() else {}
    trouble(data)
    assert (state(data) if data.exists() else {}) == before


@on_sqlite_alone
def test_it_reads_what_is_still_in_the_journal_and_leaves_it_there(data: Path) -> None:
    with another_connection(at(data)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE signing_key SET secret = 'x'")
        writer.execute("COMMIT")
        before = state(data)
        assert set(before) == {"service.db", "service.db-wal"}
        assert [about for _, about, _ in trouble(data)] == ["keys"]
        assert state(data) == before


@on_sqlite_alone
def test_it_waits_for_no_restore(data: Path) -> None:
    alone = Hold(data, alone=True)
    ((level, about, text),) = trouble(data)
    assert (level, about) == ("fault", "database") and "a backup is being restored" in text
    del alone


@pytest.mark.slow
@on_sqlite_alone
def test_a_disk_that_is_read_only_is_named_and_read(data: Path) -> None:
    alone = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    mounted = f"mount --bind {data} {data} && mount -o remount,ro,bind {data}"
    if not shutil.which("unshare") or subprocess.run([*alone, mounted], capture_output=True).returncode:
        reason = "NOT TESTED: unshare is missing (apt-get install util-linux), or this machine mounts nothing"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    line = f"{mounted} && exec {sys.executable} app.py doctor --json --data {data}"
    done = subprocess.run([*alone, line], cwd=ROOT, env=environment(), capture_output=True)
    told = json.loads(done.stdout)["findings"]
    assert [one["text"] for one in told if one["level"] == "fault" and "read-only" in one["text"]]
    assert {one["about"]: one["level"] for one in told}["derived"] == "ok"
    assert done.returncode == 1
    line = f"{mounted} && exec {sys.executable} app.py backup - --data {data}"
    made = subprocess.run([*alone, line], cwd=ROOT, env=environment(), capture_output=True)
    assert made.returncode == 0 and made.stdout.startswith(b"SQLite format 3")


@pytest.mark.slow
def test_beside_a_running_service_it_finds_no_faults(tmp_path: Path) -> None:
    data = tmp_path / "served"
    fill(data, chat())
    with serving(data, "--workers", "2") as server:
        token = server.log_in()
        done = command("doctor", "--json", "--data", data)
        told = json.loads(done.stdout)["findings"]
        assert [one for one in told if one["level"] != "ok" and one["about"] != "server"] == []
        assert server.call("POST", "/api/v1/feedback", {"description": "Fine"}, token).status == 201


# PostgreSQL.


@pytest.mark.skipif("not postgres.is_chosen()", reason="a matter of PostgreSQL")
def test_a_careless_server_is_named(data: Path) -> None:
    found = {(one.level, one.text.partition(":")[0]) for one in doctor.examine(at(data)) if one.about == "server"}
    assert found >= {
        ("warning", "synchronous_commit is off"),
        ("fault", "fsync is off"),
        ("fault", "full_page_writes is off"),
    }


@pytest.mark.slow
@pytest.mark.skipif("not postgres.is_chosen()", reason="a matter of PostgreSQL")
def test_a_careful_server_has_no_faults_and_a_replica_must_be_one(data: Path) -> None:
    with postgres.running() as server:
        url = f"{server.url}/postgres"
        assert commands.run(["copy", "--from", at(data).database, "--to", url]) == 0
        db.forget_database()
        found = doctor.examine(Settings(data=data, database=url))
        assert [one for one in found if one.level != "ok"] == []
        for replica, line in (("postgresql://127.0.0.1:1/x", "cannot be asked"), (url, "is no replica of")):
            found = doctor.examine(Settings(data=data, database=url, replica=replica))
            ((level, about, text),) = [one for one in found if one.level != "ok"]
            assert (level, about) == ("warning", "replica") and line in text
    ((level, about, _),) = [one for one in doctor.examine(Settings(data=data, database=url)) if one.level != "ok"]
    assert (level, about) == ("fault", "database")
