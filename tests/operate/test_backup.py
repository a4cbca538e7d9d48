"""`backup` and `restore`: backups made while the service runs, and restores of the complete state."""

import base64
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import app
from service import commands, db
from service.db import migrations, sqlite
from service.db.files import FolderLock, work_folder
from service.models import TABLES, Bot, SigningKey
from service.operate import backups
from tests.support import postgres, sample_data
from tests.support.command_line import Outcome, error_line
from tests.support.faults import another_connection
from tests.support.installation import flags_of, settings_at
from tests.support.paths import ROOT
from tests.support.server_process import (
    ALICE,
    APP,
    SESSION,
    Served,
    chat,
    command,
    environment,
    fill,
    send_request,
    serving,
)

pytestmark = [pytest.mark.slow, pytest.mark.database]

Run = Callable[..., Outcome]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return tmp_path / "other"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "backups" / "backup.db"


@pytest.fixture
def cx(capsys: pytest.CaptureFixture[str], file: Path) -> Iterator[Run]:
    """Run a command on a data folder, or on its PostgreSQL database."""
    file.parent.mkdir()
    previous = signal.getsignal(signal.SIGTERM)

    def run(*words: object) -> Outcome:
        *arguments, data = words
        assert isinstance(data, Path)
        db.close_database()
        capsys.readouterr()
        try:
            status = commands.run([*map(str, arguments), *flags_of(settings_at(data))])
        finally:
            db.release_database()
        return Outcome(status, *capsys.readouterr())

    yield run
    signal.signal(signal.SIGTERM, previous)


@pytest.fixture
def filled(sample_data_folder: Path) -> Path:
    return sample_data_folder


def contents(data: Path) -> dict[str, list[Any]]:
    """All rows of all tables."""
    db.open_database(data, settings_at(data).database)
    found = {table.__name__: sorted(table.select().tuples(), key=repr) for table in TABLES}
    db.release_database()
    return found


def schema_of(path: Path) -> int:
    with closing(db.open_file(path)) as connection:
        return int(connection.execute("SELECT version FROM schema_version").fetchone()[0])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Backup and restore.


def test_restored_backup_is_complete(filled: Path, other: Path, file: Path, cx: Run) -> None:
    before = contents(filled)
    status, output, errors = cx("backup", file, filled)
    assert (status, errors) == (0, "")
    about, line = output.splitlines()
    rows = sum(map(len, before.values()))
    assert re.fullmatch(
        rf"{file.stat().st_size:,} bytes, 5 messages, {rows} rows, schema {len(migrations.STEPS)}, in \d+\.\d s", about
    )
    assert line == f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file}"
    assert file.stat().st_mode & 0o777 == 0o600
    assert names(file.parent) == ["backup.db"]
    status, output, errors = cx("restore", file, other)
    assert (status, errors) == (0, "")
    assert output.splitlines()[-1].startswith(f"restored: {file.stat().st_size:,} bytes, 5 messages, {rows} rows")
    assert contents(other) == before == contents(filled)


@pytest.mark.sqlite_only
def test_progress_of_a_backup_grows_with_what_is_written_and_read(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "REPORT_STEPS", 100)
    source, totals, done = db.connect(filled), [], []
    with source.disconnecting():
        contents = backups.back_up(source, tmp_path / "copy.db", lambda total: totals.append(total) or done.append)
    assert len(totals) == 1 and len(done) > 10 and min(done) >= 0
    assert contents.size <= sum(done[:-1]) < 4 * contents.size  # what fits into the cache is read once
    assert sum(done) >= totals[0]


def test_backup_can_be_piped(filled: Path, other: Path) -> None:
    backup = command("backup", "-", "--data", filled)
    assert backup.returncode == 0, backup.stderr
    assert f"{hashlib.sha256(backup.stdout).hexdigest()}  -\n".encode() in backup.stderr
    done = command("restore", "-", "--data", other, input=backup.stdout)
    assert (done.returncode, done.stderr) == (0, b"")
    assert contents(other) == contents(filled)


def test_backup_contains_no_deleted_bytes(filled: Path, file: Path, cx: Run) -> None:
    app.prepare(settings_at(filled), create=True)
    secret = "confidential" * 20
    bot = Bot.create(app_id=sample_data.SHOP, name="x", description=secret)
    bot.delete_instance()
    cx("backup", file, filled)
    assert b"confidentialconfidential" not in file.read_bytes()


def test_backup_with_an_older_schema_is_migrated_by_the_next_start(other: Path, tmp_path: Path, cx: Run) -> None:
    from tests.support.released_schemas import make_file

    old = tmp_path / "old"
    make_file(old, 1)
    backup = tmp_path / "old.db"
    if not postgres.is_chosen():  # PostgreSQL databases are copied with the current schema only
        assert cx("backup", backup, old).status == 0
    else:
        shutil.copyfile(old / db.FILE_NAME, backup)
    assert schema_of(backup) == 1
    status, output, _ = cx("restore", backup, other)
    assert status == 0
    assert ("which `serve` will migrate" in output) is not postgres.is_chosen()
    app.prepare(settings_at(other), create=True)
    assert migrations.version() == len(migrations.STEPS)
    assert SigningKey.select().count() == 1


@pytest.mark.sqlite_only
def test_copy_with_its_journal_can_be_restored(filled: Path, other: Path, tmp_path: Path, cx: Run) -> None:
    with closing(db.open_file(filled / db.FILE_NAME)) as reader:
        reader.execute("SELECT 1 FROM app").fetchone()
        reader.execute("BEGIN")
        app.prepare(settings_at(filled), create=True)
        Bot.create(app_id=sample_data.SHOP, name="in the journal")
        db.close_database()
        copied = tmp_path / "copied"
        shutil.copytree(filled, copied)
    assert (copied / "service.db-wal").stat().st_size
    assert cx("restore", copied / "service.db", other).status == 0
    assert contents(other) == contents(filled)


# Errors are one line and change nothing.


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("missing/backup.db", "no such folder"),
        ("/dev/null/backup.db", "no such folder"),
        ("/dev/null", "it exists, and is not a regular file"),
        (".", "it exists, and is not a regular file"),
    ],
)
def test_unwritable_target_is_reported(name: str, line: str, filled: Path, file: Path, cx: Run) -> None:
    target = file.parent / name
    error = error_line(cx("backup", target, filled))
    assert error == f"cannot write {target}: {line}"
    assert names(file.parent) == []


@pytest.mark.sqlite_only
def test_backup_never_replaces_its_source(filled: Path, cx: Run) -> None:
    before = contents(filled)
    (filled.parent / "link").symlink_to(filled / "service.db")
    for name in (filled / "service.db", filled.parent / "link"):
        for force in ([], ["--force"]):
            assert error_line(cx("backup", *force, name, filled)).endswith("that is the database itself")
    assert contents(filled) == before


@pytest.mark.sqlite_only
def test_missing_database_is_reported(data: Path, file: Path, cx: Run) -> None:
    assert error_line(cx("backup", file, data)) == f"there is no database in {data}"
    assert not data.exists()


def test_older_backup_stays_until_the_newer_is_complete(filled: Path, file: Path, cx: Run) -> None:
    file.write_bytes(b"an older one")
    with another_connection(settings_at(filled)) as connection:
        connection.execute("UPDATE schema_version SET version = 999")
    assert "999" in error_line(cx("backup", "--force", file, filled))
    assert file.read_bytes() == b"an older one"
    assert names(file.parent) == ["backup.db"]
    with another_connection(settings_at(filled)) as connection:
        connection.execute(f"UPDATE schema_version SET version = {len(migrations.STEPS)}")
    assert cx("backup", "--force", file, filled).status == 0
    assert schema_of(file) == len(migrations.STEPS)


def test_existing_file_is_replaced_only_with_force(filled: Path, file: Path, cx: Run) -> None:
    file.write_bytes(b"an older one")
    line = f"cannot write {file}: it exists; name another file, or replace it with --force"
    assert error_line(cx("backup", file, filled)) == line
    assert file.read_bytes() == b"an older one"
    assert names(file.parent) == ["backup.db"]
    assert cx("backup", "--force", file, filled).status == 0
    assert schema_of(file) == len(migrations.STEPS)


@pytest.mark.sqlite_only
def test_file_created_during_a_backup_is_not_replaced(
    filled: Path, file: Path, cx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_copy = db.Sqlite.write_copy

    def create_file_first(*arguments: Any) -> None:
        file.write_bytes(b"of another process")
        write_copy(*arguments)

    monkeypatch.setattr(db.Sqlite, "write_copy", create_file_first)
    assert "it exists" in error_line(cx("backup", file, filled))
    assert file.read_bytes() == b"of another process"
    assert names(file.parent) == ["backup.db"]


@pytest.mark.sqlite_only
def test_full_disk_leaves_no_partial_backup(filled: Path, file: Path) -> None:
    file.parent.mkdir()
    line = f"ulimit -f 64; exec {sys.executable} app.py backup {file} --data {filled}"  # in KiB or half ones
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, env=environment(), capture_output=True, timeout=60)
    assert done.returncode == 1
    assert re.fullmatch(rf"cx-service: there is no backup in {file}: [^\n]+\n", done.stderr.decode())
    assert names(file.parent) == []


def test_files_of_a_killed_backup_are_deleted_by_the_next(filled: Path, file: Path, cx: Run) -> None:
    left = file.parent / ".backup.db.unfinished"
    (left / "deeper").mkdir(parents=True)
    (left / "service.db").write_bytes(b"half")
    assert cx("backup", file, filled).status == 0
    assert names(file.parent) == ["backup.db"]


@pytest.mark.parametrize("how", ["link", "folder"])
def test_temporary_folder_of_another_user_is_refused(
    how: str, filled: Path, file: Path, tmp_path: Path, cx: Run
) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    trap = file.parent / ".backup.db.unfinished"
    if how == "link":
        trap.symlink_to(foreign)
    elif os.geteuid():
        pytest.skip("only root can change the owner of a folder")
    else:
        trap.mkdir()
        os.chown(trap, 1, -1)
    assert error_line(cx("backup", file, filled)).endswith("it belongs to another user")
    assert names(foreign) == [] and names(file.parent) == [trap.name]


def test_concurrent_backups_to_the_same_file_are_refused(filled: Path, file: Path, cx: Run) -> None:
    with work_folder(file):
        assert error_line(cx("backup", file, filled)).endswith("another command is writing it")
    assert cx("backup", file, filled).status == 0


@pytest.mark.sqlite_only
def test_terminated_backup_deletes_its_temporary_files(filled: Path, file: Path) -> None:
    file.parent.mkdir()
    app.prepare(settings_at(filled), create=True)
    with db.write():
        for number in range(300):
            Bot.create(app_id=sample_data.SHOP, name=str(number), description=os.urandom(50_000).hex())
    db.close_database()
    line = [sys.executable, "app.py", "backup", str(file), "--data", str(filled)]
    with subprocess.Popen(line, cwd=ROOT, env=environment(), stderr=subprocess.PIPE) as process:
        while not (file.parent / ".backup.db.unfinished" / "service.db").exists():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) != 0
    assert names(file.parent) == []


def damage(what: str, path: Path) -> None:
    """Damage a backup."""
    if what == "text":
        path.write_bytes(b"Dear diary, " * 1000)
        return
    if what == "cut off":
        os.truncate(path, path.stat().st_size // 2)
        return
    if what == "overwritten":
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 2 // 4096 * 4096)
            file.write(b"\xff" * 4096)
        return
    with closing(db.open_file(path)) as connection:
        connection.execute(what)


DAMAGES = {
    "text": "file is not a database",
    "cut off": "malformed|it is damaged",
    "overwritten": "malformed|it is damaged",
    "DROP TABLE schema_version": "it is not a database of this service$",
    "UPDATE schema_version SET version = 999": "it has schema 999, which is newer than this program",
    **{
        f"UPDATE schema_version SET version = {value}": "^the schema version of the database is not a positive whole"
        for value in ("'abc'", "-5", "0", "2.5", "x'00'", "'' || char(27) || '[2J'")
    },
    "DELETE FROM schema_version": "^the schema version of the database is not a positive whole number",
    "DELETE FROM signing_key": "it has login sessions, but no signing key$",
    f"DELETE FROM app WHERE id = '{sample_data.SHOP}'": '^it is damaged: row .* refers to a missing row of "app"$',
    "CREATE TRIGGER evil AFTER INSERT ON message BEGIN DELETE FROM bot; END": "but has the trigger evil$",
    "CREATE VIEW evil AS SELECT 1": "but has the view evil$",
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damaged_backup_is_not_restored(what: str, filled: Path, other: Path, file: Path, cx: Run) -> None:
    cx("backup", file, filled)
    damage(what, file)
    before = contents(filled)
    for target in (other, filled):
        error = error_line(cx("restore", file, target))
        start = "nothing was restored into "
        assert error.startswith(start) and re.search(DAMAGES[what], error.partition(": ")[2]), error
    assert contents(filled) == before
    if not postgres.is_chosen():
        assert names(other) == [] and not set(names(filled)) - {"service.db", "service.db-wal", "service.db-shm"}


@pytest.mark.parametrize("given", ["missing.db", "."])
def test_missing_backup_is_reported(given: str, filled: Path, tmp_path: Path, cx: Run) -> None:
    error = error_line(cx("restore", tmp_path / given, filled))
    assert error.endswith(("No such file or directory", "Is a directory"))


@pytest.mark.sqlite_only
def test_database_in_use_is_not_restored(filled: Path, other: Path) -> None:
    changing = filled.parent / "changing.db"
    shutil.copyfile(filled / "service.db", changing)
    os.truncate(changing, 64 << 20)  # takes a while to copy
    stopped = threading.Event()

    def write() -> None:
        with changing.open("r+b", buffering=0) as file:
            while not stopped.wait(0.001):
                os.pwrite(file.fileno(), b"x", 100)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with pytest.raises(backups.BackupError, match="is in use: make a backup of it"):
            backups.restore(changing, other)
    finally:
        stopped.set()
        writer.join()


# The former database.


@pytest.mark.sqlite_only
class TestFormerDatabase:
    def test_is_kept_and_can_be_restored(self, filled: Path, other: Path, file: Path, cx: Run) -> None:
        app.prepare(settings_at(other), create=True)
        db.close_database()
        first = contents(other)
        cx("backup", file, filled)
        output = cx("restore", file, other).output
        (former,) = other.glob("service.db.before-*")
        assert output.startswith(f"the former database is kept as {former}\n")
        assert re.fullmatch(r"service\.db\.before-\d{8}T\d{6}\.\d{3}Z", former.name)
        assert former.stat().st_mode & 0o777 == 0o600
        assert cx("restore", former, other).status == 0
        assert contents(other) == first

    def test_is_not_restored_into_itself(self, filled: Path, cx: Run) -> None:
        assert error_line(cx("restore", filled / "service.db", filled)).endswith("is the database to be replaced")

    def test_that_is_damaged_is_kept_unchanged_with_its_journal(
        self, filled: Path, other: Path, file: Path, cx: Run
    ) -> None:
        cx("backup", file, filled)
        other.mkdir(mode=0o700)
        (other / "service.db").write_bytes(b"Dear diary, " * 1000)
        (other / "service.db-wal").write_bytes(b"a journal that would be replayed")
        (other / "service.db-shm").write_bytes(b"its index")
        assert cx("restore", file, other).status == 0
        assert not {"service.db-wal", "service.db-shm"} & set(names(other))
        kept = {path.name.partition("Z")[2]: path.read_bytes() for path in other.glob("service.db.before-*")}
        assert kept == {"": b"Dear diary, " * 1000, "-wal": b"a journal that would be replayed"}
        assert contents(other) == contents(filled)

    def test_is_kept_with_the_content_of_its_journal(self, filled: Path, other: Path, file: Path, cx: Run) -> None:
        """After a crash the newest rows are only in the journal."""
        cx("backup", file, filled)
        crash = f"""
import os, app
from pathlib import Path
from service.models import App
from service.settings import Settings
app.prepare(Settings(data=Path({str(other)!r})), create=True)
App.create(id={APP!r}, name="in the journal")
os._exit(0)"""
        subprocess.run([sys.executable, "-c", crash], cwd=ROOT, env=environment(), check=True, timeout=60)
        assert (other / "service.db-wal").stat().st_size
        assert cx("restore", file, other).status == 0
        assert contents(other) == contents(filled)
        (former,) = other.glob("service.db.before-*")
        with closing(db.open_file(former)) as connection:
            assert connection.execute("SELECT name FROM app").fetchall() == [("in the journal",)]

    def test_is_copied_on_file_systems_without_hard_links(
        self, filled: Path, other: Path, file: Path, cx: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def cannot(*_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        cx("backup", file, filled)
        app.prepare(settings_at(other), create=True)
        db.close_database()
        first = contents(other)
        monkeypatch.setattr(os, "link", cannot)
        assert cx("restore", file, other).status == 0
        monkeypatch.undo()
        (former,) = other.glob("service.db.before-*")
        assert cx("restore", former, other).status == 0
        assert contents(other) == first

    def test_is_reported_by_purge(self, filled: Path, other: Path, file: Path, cx: Run) -> None:
        cx("backup", file, filled)
        cx("restore", file, filled)
        (former,) = filled.glob("service.db.before-*")
        settings = settings_at(filled)
        assert commands.run(["purge", "--session", sample_data.SESSION, *flags_of(settings)]) == 1
        former.unlink()
        assert commands.run(["purge", "--session", sample_data.SESSION, *flags_of(settings)]) == 0


@pytest.mark.sqlite_only
def test_killed_restore_leaves_the_old_or_the_new_database(filled: Path, other: Path, file: Path, cx: Run) -> None:
    """Kill the restore before each change to the file system, and run it again."""
    cx("backup", file, filled)
    new = contents(filled)
    app.prepare(settings_at(other), create=True)
    db.close_database()
    old = contents(other)
    seen = []
    for step in itertools.count():
        crash = f"""
import os, sys
from service import commands
left = {step}
def watch(event, arguments):
    global left
    if event in ("os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir") or (
        event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    ):
        if left == 0:
            os._exit(9)
        left -= 1
sys.addaudithook(watch)
sys.exit(commands.run(["restore", {str(file)!r}, "--data", {str(other)!r}]))"""
        status = subprocess.run([sys.executable, "-B", "-c", crash], cwd=ROOT, env=environment(), timeout=60).returncode
        for journal in ("service.db-wal", "service.db-shm"):
            assert not (other / journal).exists()
        found = contents(other)
        assert found in (old, new)
        seen.append(found == new)
        if status == 0:
            break
        assert status == 9
    assert seen == sorted(seen) and not seen[0] and seen[-1]
    assert len(seen) > 8
    assert not list(other.glob(".*"))


# The lock of the folder.


@pytest.mark.sqlite_only
def test_restore_is_refused_while_the_folder_is_in_use(filled: Path, file: Path, cx: Run) -> None:
    cx("backup", file, filled)
    before = contents(filled)
    lock = FolderLock(filled)
    assert "the database is in use: stop the service" in error_line(cx("restore", file, filled))
    del lock
    with another_connection(settings_at(filled)) as connection:  # of a program that does not use the lock
        connection.execute("SELECT count(*) FROM app").fetchone()
        assert "is in use by another program" in error_line(cx("restore", file, filled))
    assert contents(filled) == before
    assert cx("restore", file, filled).status == 0


@pytest.mark.sqlite_only
@pytest.mark.parametrize("arguments", [("user", "list"), ("export",), ("serve", "--port", "0"), ("backup", "/x.db")])
def test_no_command_starts_during_a_restore(
    arguments: tuple[str, ...], filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db.release_database()
    lock = FolderLock(filled, exclusive=True)
    capsys.readouterr()
    assert commands.run([*arguments, "--data", str(filled)]) == 1
    assert "a backup is being restored into" in capsys.readouterr().err
    del lock


# With a running service.


class Writer(threading.Thread):
    """A client that gives feedback and sends messages, and records the acknowledged writes."""

    def __init__(self, server: Served, token: str) -> None:
        super().__init__()
        self.server, self.token = server, token
        self.feedback_ids: list[str] = []
        self.message_ids: list[str] = []
        self.slowest = 0.0
        self.stopped = threading.Event()

    def run(self) -> None:
        with closing(self.server.connect()) as connection:
            while not self.stopped.is_set():
                start = time.monotonic()
                response = send_request(connection, "POST", "/api/v1/feedback", {"description": "Fine"}, self.token)
                self.feedback_ids.append(response.data["id"])
                body = {"content": {"text": "Hello"}}
                self.message_ids.append(
                    send_request(connection, "POST", f"/api/v1/chats/{SESSION}/messages", body, self.token).data["id"]
                )
                self.slowest = max(self.slowest, time.monotonic() - start)


def test_backup_under_load_has_all_writes_acknowledged_before(data: Path, other: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    fill(data, [*chat(60), {"avatar": {"user_id": ALICE, "image": base64.b64encode(sample_data.picture()).decode()}}])
    with serving(data, "--workers", "2") as server:
        token = server.log_in()
        page = server.call("GET", f"/api/v1/chats/{SESSION}/messages?limit=7", token=token)
        following = f"/api/v1/chats/{SESSION}/messages?limit=7&cursor={page.meta['next_cursor']}"
        expected = server.call("GET", following, token=token).data
        url = server.call("GET", "/api/v1/users/me", token=token).data["profile_image"]
        picture = server.call("GET", url).raw
        writers = [Writer(server, token) for _ in range(8)]
        for writer in writers:
            writer.start()
        try:
            while min(len(writer.message_ids) for writer in writers) < 5:
                assert all(writer.is_alive() for writer in writers)
                time.sleep(0.01)
            feedback_ids = {id for writer in writers for id in list(writer.feedback_ids)}
            message_ids = {id for writer in writers for id in list(writer.message_ids)}
            backup = command("backup", file, "--data", data)
            assert backup.returncode == 0, backup.stderr.decode()
        finally:
            for writer in writers:
                writer.stopped.set()
            for writer in writers:
                writer.join()
        assert max(writer.slowest for writer in writers) < 30  # no write waited forever
        later = {id for writer in writers for id in writer.feedback_ids} - feedback_ids
        assert later
    done = command("restore", file, "--data", other)
    assert done.returncode == 0, done.stderr.decode()
    with serving(other) as restored:
        assert restored.call("GET", following, token=token).data == expected
        assert restored.call("GET", url).raw == picture
        feedback = read_ids(restored, "/api/v1/feedback?limit=100", token)
        messages = read_ids(restored, f"/api/v1/chats/{SESSION}/messages?limit=200", token)
        assert feedback_ids <= feedback and message_ids <= messages
        assert restored.call("POST", "/api/v1/feedback", {"description": "Again"}, token).status == 201
    report = command("doctor", "--json", "--data", other)
    findings = json.loads(report.stdout)["findings"]
    assert [finding for finding in findings if finding["level"] == "error" and finding["about"] != "server"] == []


def read_ids(server: Served, path: str, token: str) -> set[str]:
    """The identifiers of all rows of a list."""
    found: set[str] = set()
    cursor = ""
    while True:
        page = server.call("GET", f"{path}&cursor={cursor}" if cursor else path, token=token)
        found |= {item["id"] for item in page.data}
        cursor = page.meta["next_cursor"]
        if not cursor:
            return found


@pytest.mark.sqlite_only
def test_other_commands_run_beside_a_running_service(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    fill(data, chat())
    with serving(data, "--workers", "2") as server:
        assert command("backup", file, "--data", data).returncode == 0
        before = server.call("GET", f"/api/v1/chats/{SESSION}/messages", token=server.log_in()).data
        refused = command("restore", file, "--data", data)
        assert (refused.returncode, refused.stdout) == (1, b"")
        assert b"the database is in use" in refused.stderr
        assert command("user", "add", "bob@example.com", "--data", data, input=b"long enough\n").returncode == 0
        assert server.call("GET", f"/api/v1/chats/{SESSION}/messages", token=server.log_in()).data == before
        assert server.stop() == 0
    assert command("restore", file, "--data", data).returncode == 0


# SQLite and PostgreSQL.


@pytest.mark.postgresql_only
def test_backup_of_postgresql_can_be_restored_anywhere(
    filled: Path, other: Path, file: Path, cx: Run, tmp_path: Path
) -> None:
    before = contents(filled)
    cx("backup", file, filled)
    folder = tmp_path / "as a file"
    assert commands.run(["restore", str(file), "--data", str(folder)]) == 0
    db.open_database(folder)
    assert {table.__name__: sorted(table.select().tuples(), key=repr) for table in TABLES} == before
    db.release_database()
    assert cx("restore", file, other).status == 0
    assert contents(other) == before


@pytest.mark.postgresql_only
def test_restore_into_a_database_with_rows_is_refused(filled: Path, file: Path, cx: Run) -> None:
    cx("backup", file, filled)
    before = contents(filled)
    assert "is not empty" in error_line(cx("restore", file, filled))
    assert contents(filled) == before
