"""`backup` and `restore`: one checked file while the service runs, and everything as it was from it."""

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
from service import backups, commands, db, migrations
from service.db.files import Hold, workshop
from service.models import TABLES, Bot, SigningKey
from tests import household, postgres
from tests.conftest import at, flags_of
from tests.postgres import on_sqlite_alone
from tests.serving import ALICE, APP, ROOT, SESSION, Served, ask, chat, command, environment, fill, serving
from tests.test_commands import Outcome, refusal
from tests.trouble import another_connection

pytestmark = pytest.mark.slow

Run = Callable[..., Outcome]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return tmp_path / "other"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "backup.db"


@pytest.fixture
def cx(capsys: pytest.CaptureFixture[str], file: Path) -> Iterator[Run]:
    """Runs a command on a data folder, or on the database that stands for it."""
    file.parent.mkdir()
    usual = signal.getsignal(signal.SIGTERM)

    def run(*words: object) -> Outcome:
        *arguments, data = words
        assert isinstance(data, Path)
        db.close_database()
        capsys.readouterr()
        try:
            status = commands.run([*map(str, arguments), *flags_of(at(data))])
        finally:
            db.forget_database()
        return Outcome(status, *capsys.readouterr())

    yield run
    signal.signal(signal.SIGTERM, usual)


@pytest.fixture
def filled(household_data: Path) -> Path:
    return household_data


def contents(data: Path) -> dict[str, list[Any]]:
    """Every row of every table."""
    db.open_database(data, at(data).database)
    found = {table.__name__: sorted(table.select().tuples(), key=repr) for table in TABLES}
    db.forget_database()
    return found


def schema_of(path: Path) -> int:
    with closing(db.sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT version FROM schema_version").fetchone()[0])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# There and back.


def test_a_restored_backup_is_everything(filled: Path, other: Path, file: Path, cx: Run) -> None:
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


def test_a_backup_can_pass_through_a_pipe(filled: Path, other: Path) -> None:
    made = command("backup", "-", "--data", filled)
    assert made.returncode == 0, made.stderr
    assert f"{hashlib.sha256(made.stdout).hexdigest()}  -\n".encode() in made.stderr
    done = command("restore", "-", "--data", other, input=made.stdout)
    assert (done.returncode, done.stderr) == (0, b"")
    assert contents(other) == contents(filled)


def test_a_backup_holds_no_bytes_of_what_was_deleted(filled: Path, file: Path, cx: Run) -> None:
    app.prepare(at(filled), create=True)
    secret = "confidential" * 20
    bot = Bot.create(app_id=household.SHOP, name="x", description=secret)
    bot.delete_instance()
    cx("backup", file, filled)
    assert b"confidentialconfidential" not in file.read_bytes()


def test_the_backup_of_an_earlier_schema_waits_for_the_next_start(other: Path, tmp_path: Path, cx: Run) -> None:
    from tests.test_upgrades import make_file

    old = tmp_path / "old"
    make_file(old, 1)
    made = tmp_path / "old.db"
    if not postgres.is_chosen():  # from which only what is current is copied
        assert cx("backup", made, old).status == 0
    else:
        shutil.copyfile(old / db.FILE_NAME, made)
    assert schema_of(made) == 1
    status, output, _ = cx("restore", made, other)
    assert status == 0
    assert ("which `serve` brings up to date" in output) is not postgres.is_chosen()
    app.prepare(at(other), create=True)
    assert migrations.version() == len(migrations.STEPS)
    assert SigningKey.select().count() == 1


@on_sqlite_alone
def test_a_copy_with_its_journal_can_be_restored(filled: Path, other: Path, tmp_path: Path, cx: Run) -> None:
    with closing(db.sqlite3.connect(filled / db.FILE_NAME)) as reader:
        reader.execute("SELECT 1 FROM app").fetchone()
        reader.execute("BEGIN")
        app.prepare(at(filled), create=True)
        Bot.create(app_id=household.SHOP, name="in the journal")
        db.close_database()
        copied = tmp_path / "copied"
        shutil.copytree(filled, copied)
    assert (copied / "service.db-wal").stat().st_size
    assert cx("restore", copied / "service.db", other).status == 0
    assert contents(other) == contents(filled)


# What is refused, in one line, and nothing has changed.


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("missing/backup.db", "no such folder"),
        ("/dev/null/backup.db", "no such folder"),
        ("/dev/null", "it exists, and is not a file"),
        (".", "it exists, and is not a file"),
    ],
)
def test_where_no_backup_can_be_it_says_so(name: str, line: str, filled: Path, file: Path, cx: Run) -> None:
    target = file.parent / name
    told = refusal(cx("backup", target, filled))
    assert told == f"cannot write {target}: {line}"
    assert names(file.parent) == []


@on_sqlite_alone
def test_a_backup_never_replaces_its_source(filled: Path, cx: Run) -> None:
    before = contents(filled)
    (filled.parent / "link").symlink_to(filled / "service.db")
    for name in (filled / "service.db", filled.parent / "link"):
        for force in ([], ["--force"]):
            assert refusal(cx("backup", *force, name, filled)).endswith("that is the database itself")
    assert contents(filled) == before


@on_sqlite_alone
def test_without_a_database_there_is_no_backup(data: Path, file: Path, cx: Run) -> None:
    assert refusal(cx("backup", file, data)) == f"there is no database in {data}"
    assert not data.exists()


def test_an_older_backup_stays_until_the_newer_is_whole(filled: Path, file: Path, cx: Run) -> None:
    file.write_bytes(b"an older one")
    with another_connection(at(filled)) as connection:
        connection.execute("UPDATE schema_version SET version = 999")
    assert "999" in refusal(cx("backup", "--force", file, filled))
    assert file.read_bytes() == b"an older one"
    assert names(file.parent) == ["backup.db"]
    with another_connection(at(filled)) as connection:
        connection.execute(f"UPDATE schema_version SET version = {len(migrations.STEPS)}")
    assert cx("backup", "--force", file, filled).status == 0
    assert schema_of(file) == len(migrations.STEPS)


def test_a_file_that_exists_is_replaced_with_force_only(filled: Path, file: Path, cx: Run) -> None:
    file.write_bytes(b"an older one")
    line = f"cannot write {file}: it exists; name another file, or replace it with --force"
    assert refusal(cx("backup", file, filled)) == line
    assert file.read_bytes() == b"an older one"
    assert names(file.parent) == ["backup.db"]
    assert cx("backup", "--force", file, filled).status == 0
    assert schema_of(file) == len(migrations.STEPS)


@on_sqlite_alone
def test_a_file_that_comes_to_exist_during_a_backup_is_not_replaced(
    filled: Path, file: Path, cx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_copy = db.Sqlite.write_copy

    def meanwhile(*arguments: Any) -> None:
        file.write_bytes(b"of another")
        write_copy(*arguments)

    monkeypatch.setattr(db.Sqlite, "write_copy", meanwhile)
    assert "it exists" in refusal(cx("backup", file, filled))
    assert file.read_bytes() == b"of another"
    assert names(file.parent) == ["backup.db"]


@on_sqlite_alone
def test_a_disk_without_room_leaves_no_half_backup(filled: Path, file: Path) -> None:
    file.parent.mkdir()
    line = f"ulimit -f 64; exec {sys.executable} app.py backup {file} --data {filled}"  # in KiB or half ones
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, env=environment(), capture_output=True, timeout=60)
    assert done.returncode == 1
    assert re.fullmatch(rf"cx-service: there is no backup in {file}: [^\n]+\n", done.stderr.decode())
    assert names(file.parent) == []


def test_what_a_killed_backup_left_is_swept_by_the_next(filled: Path, file: Path, cx: Run) -> None:
    left = file.parent / ".backup.db.unfinished"
    (left / "deeper").mkdir(parents=True)
    (left / "service.db").write_bytes(b"half")
    assert cx("backup", file, filled).status == 0
    assert names(file.parent) == ["backup.db"]


@pytest.mark.parametrize("how", ["link", "folder"])
def test_a_backup_is_not_made_in_a_folder_that_somebody_else_has_laid_out(
    how: str, filled: Path, file: Path, tmp_path: Path, cx: Run
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    trap = file.parent / ".backup.db.unfinished"
    if how == "link":
        trap.symlink_to(theirs)
    elif os.geteuid():
        pytest.skip("only root gives folders away")
    else:
        trap.mkdir()
        os.chown(trap, 1, -1)
    assert refusal(cx("backup", file, filled)).endswith("it is somebody else's")
    assert names(theirs) == [] and names(file.parent) == [trap.name]


def test_two_who_make_the_same_backup_do_not_meet(filled: Path, file: Path, cx: Run) -> None:
    with workshop(file):
        assert refusal(cx("backup", file, filled)).endswith("another command is making it just now")
    assert cx("backup", file, filled).status == 0


@on_sqlite_alone
def test_a_backup_that_is_told_to_end_tidies_up(filled: Path, file: Path) -> None:
    file.parent.mkdir()
    app.prepare(at(filled), create=True)
    with db.write():
        for number in range(300):
            Bot.create(app_id=household.SHOP, name=str(number), description=os.urandom(50_000).hex())
    db.close_database()
    line = [sys.executable, "app.py", "backup", str(file), "--data", str(filled)]
    with subprocess.Popen(line, cwd=ROOT, env=environment(), stderr=subprocess.PIPE) as process:
        while not (file.parent / ".backup.db.unfinished" / "service.db").exists():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) != 0
    assert names(file.parent) == []


def planted(what: str, path: Path) -> None:
    """Make a backup unsound."""
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
    with closing(db.sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(what)


UNSOUND = {
    "text": "file is not a database",
    "cut off": "malformed|it is damaged",
    "overwritten": "malformed|it is damaged",
    "DROP TABLE schema_version": "it is no database of this service$",
    "UPDATE schema_version SET version = 999": "it has schema 999, newer than this program knows",
    **{
        f"UPDATE schema_version SET version = {value}": "^the schema version of the database is not a positive whole"
        for value in ("'abc'", "-5", "0", "2.5", "x'00'", "'' || char(27) || '[2J'")
    },
    "DELETE FROM schema_version": "^the schema version of the database is not a positive whole number",
    "DELETE FROM signing_key": "it has logins and no signing key$",
    f"DELETE FROM app WHERE id = '{household.SHOP}'": '^it is damaged: row .* refers to a "app" that is not there$',
    "CREATE TRIGGER evil AFTER INSERT ON message BEGIN DELETE FROM bot; END": "but has the trigger evil$",
    "CREATE VIEW evil AS SELECT 1": "but has the view evil$",
}


@pytest.mark.parametrize("what", UNSOUND)
def test_an_unsound_backup_is_not_restored(what: str, filled: Path, other: Path, file: Path, cx: Run) -> None:
    cx("backup", file, filled)
    planted(what, file)
    before = contents(filled)
    for target in (other, filled):
        told = refusal(cx("restore", file, target))
        start = "nothing was restored into "
        assert told.startswith(start) and re.search(UNSOUND[what], told.partition(": ")[2]), told
    assert contents(filled) == before
    if not postgres.is_chosen():
        assert names(other) == [] and not set(names(filled)) - {"service.db", "service.db-wal", "service.db-shm"}


@pytest.mark.parametrize("given", ["missing.db", "."])
def test_what_is_not_there_is_not_restored(given: str, filled: Path, tmp_path: Path, cx: Run) -> None:
    told = refusal(cx("restore", tmp_path / given, filled))
    assert told.endswith(("No such file or directory", "Is a directory"))


@on_sqlite_alone
def test_a_file_that_is_being_written_to_is_not_restored(filled: Path, other: Path) -> None:
    changing = filled.parent / "changing.db"
    shutil.copyfile(filled / "service.db", changing)
    os.truncate(changing, 64 << 20)  # takes a while to copy
    over = threading.Event()

    def write() -> None:
        with changing.open("r+b", buffering=0) as file:
            while not over.wait(0.001):
                os.pwrite(file.fileno(), b"x", 100)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with pytest.raises(backups.Unsound, match="is being written to: make a backup of it"):
            backups.restore(changing, other)
    finally:
        over.set()
        writer.join()


# What was there before.


@on_sqlite_alone
class TestTheOldDatabase:
    def test_is_kept_and_can_be_restored(self, filled: Path, other: Path, file: Path, cx: Run) -> None:
        app.prepare(at(other), create=True)
        db.close_database()
        first = contents(other)
        cx("backup", file, filled)
        output = cx("restore", file, other).output
        (kept,) = other.glob("service.db.before-*")
        assert output.startswith(f"the database that was there is kept as {kept}\n")
        assert re.fullmatch(r"service\.db\.before-\d{8}T\d{6}\.\d{3}Z", kept.name)
        assert kept.stat().st_mode & 0o777 == 0o600
        assert cx("restore", kept, other).status == 0
        assert contents(other) == first

    def test_is_not_replaced_by_itself(self, filled: Path, cx: Run) -> None:
        assert refusal(cx("restore", filled / "service.db", filled)).endswith("is what would be replaced")

    def test_that_is_damaged_is_kept_with_its_journal_as_it_lies(
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

    def test_keeps_what_its_journal_held(self, filled: Path, other: Path, file: Path, cx: Run) -> None:
        """After a crash the newest rows are in the journal only."""
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
        (kept,) = other.glob("service.db.before-*")
        with closing(db.sqlite3.connect(kept)) as connection:
            assert connection.execute("SELECT name FROM app").fetchall() == [("in the journal",)]

    def test_stays_where_there_is_no_second_name_for_a_file(
        self, filled: Path, other: Path, file: Path, cx: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def cannot(*_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        cx("backup", file, filled)
        app.prepare(at(other), create=True)
        db.close_database()
        first = contents(other)
        monkeypatch.setattr(os, "link", cannot)
        assert cx("restore", file, other).status == 0
        monkeypatch.undo()
        (kept,) = other.glob("service.db.before-*")
        assert cx("restore", kept, other).status == 0
        assert contents(other) == first

    def test_is_purged_by_hand(self, filled: Path, other: Path, file: Path, cx: Run) -> None:
        cx("backup", file, filled)
        cx("restore", file, filled)
        (kept,) = filled.glob("service.db.before-*")
        settings = at(filled)
        assert commands.run(["purge", "--session", household.SESSION, *flags_of(settings)]) == 1
        kept.unlink()
        assert commands.run(["purge", "--session", household.SESSION, *flags_of(settings)]) == 0


@on_sqlite_alone
def test_a_restore_that_is_killed_anywhere_leaves_the_old_or_the_new(
    filled: Path, other: Path, file: Path, cx: Run
) -> None:
    """Killed before each change of the file system, and begun again."""
    cx("backup", file, filled)
    new = contents(filled)
    app.prepare(at(other), create=True)
    db.close_database()
    old = contents(other)
    seen = []
    for place in itertools.count():
        crash = f"""
import os, sys
from service import commands
left = {place}
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


# Who uses the folder.


@on_sqlite_alone
def test_nothing_is_restored_while_somebody_uses_the_folder(filled: Path, file: Path, cx: Run) -> None:
    cx("backup", file, filled)
    before = contents(filled)
    somebody = Hold(filled)
    assert "somebody uses it: stop the service" in refusal(cx("restore", file, filled))
    del somebody
    with another_connection(at(filled)) as program:  # which knows nothing of our holds
        program.execute("SELECT count(*) FROM app").fetchone()
        assert "is used by another program" in refusal(cx("restore", file, filled))
    assert contents(filled) == before
    assert cx("restore", file, filled).status == 0


@on_sqlite_alone
@pytest.mark.parametrize("arguments", [("user", "list"), ("export",), ("serve", "--port", "0"), ("backup", "/x.db")])
def test_nobody_begins_while_a_backup_is_restored(
    arguments: tuple[str, ...], filled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db.forget_database()
    alone = Hold(filled, alone=True)
    capsys.readouterr()
    assert commands.run([*arguments, "--data", str(filled)]) == 1
    assert "a backup is being restored into" in capsys.readouterr().err
    del alone


# Beside a running service.


class Writer(threading.Thread):
    """A client that gives feedback and sends messages, and remembers what was acknowledged."""

    def __init__(self, server: Served, token: str) -> None:
        super().__init__()
        self.server, self.token = server, token
        self.given: list[str] = []
        self.sent: list[str] = []
        self.slowest = 0.0
        self.over = threading.Event()

    def run(self) -> None:
        with closing(self.server.connect()) as connection:
            while not self.over.is_set():
                begun = time.monotonic()
                answer = ask(connection, "POST", "/api/v1/feedback", {"description": "Fine"}, self.token)
                self.given.append(answer.data["id"])
                told = {"content": {"text": "Hello"}}
                self.sent.append(
                    ask(connection, "POST", f"/api/v1/chats/{SESSION}/messages", told, self.token).data["id"]
                )
                self.slowest = max(self.slowest, time.monotonic() - begun)


def test_a_backup_under_load_restores_all_that_was_answered_before_it_began(
    data: Path, other: Path, tmp_path: Path
) -> None:
    file = tmp_path / "backup.db"
    fill(data, [*chat(60), {"avatar": {"user_id": ALICE, "image": base64.b64encode(household.picture()).decode()}}])
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
            while min(len(writer.sent) for writer in writers) < 5:
                assert all(writer.is_alive() for writer in writers)
                time.sleep(0.01)
            given = {id for writer in writers for id in list(writer.given)}
            sent = {id for writer in writers for id in list(writer.sent)}
            made = command("backup", file, "--data", data)
            assert made.returncode == 0, made.stderr.decode()
        finally:
            for writer in writers:
                writer.over.set()
            for writer in writers:
                writer.join()
        assert max(writer.slowest for writer in writers) < 30  # nobody was kept waiting for good
        later = {id for writer in writers for id in writer.given} - given
        assert later
    done = command("restore", file, "--data", other)
    assert done.returncode == 0, done.stderr.decode()
    with serving(other) as restored:
        assert restored.call("GET", following, token=token).data == expected
        assert restored.call("GET", url).raw == picture
        mine = walked(restored, "/api/v1/feedback?limit=100", token)
        said = walked(restored, f"/api/v1/chats/{SESSION}/messages?limit=200", token)
        assert given <= mine and sent <= said
        assert restored.call("POST", "/api/v1/feedback", {"description": "Again"}, token).status == 201
    looked = command("doctor", "--json", "--data", other)
    told = json.loads(looked.stdout)["findings"]
    assert [finding for finding in told if finding["level"] == "fault" and finding["about"] != "server"] == []


def walked(server: Served, path: str, token: str) -> set[str]:
    """The identifiers of a whole list."""
    found: set[str] = set()
    cursor = ""
    while True:
        page = server.call("GET", f"{path}&cursor={cursor}" if cursor else path, token=token)
        found |= {item["id"] for item in page.data}
        cursor = page.meta["next_cursor"]
        if not cursor:
            return found


@on_sqlite_alone
def test_a_running_service_keeps_its_folder_and_other_commands_run_beside_it(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    fill(data, chat())
    with serving(data, "--workers", "2") as server:
        assert command("backup", file, "--data", data).returncode == 0
        before = server.call("GET", f"/api/v1/chats/{SESSION}/messages", token=server.log_in()).data
        refused = command("restore", file, "--data", data)
        assert (refused.returncode, refused.stdout) == (1, b"")
        assert b"somebody uses it" in refused.stderr
        assert command("user", "add", "bob@example.com", "--data", data, input=b"long enough\n").returncode == 0
        assert server.call("GET", f"/api/v1/chats/{SESSION}/messages", token=server.log_in()).data == before
        assert server.stop() == 0
    assert command("restore", file, "--data", data).returncode == 0


# Between the two databases.


@pytest.mark.skipif("not postgres.is_chosen()", reason="a matter of PostgreSQL")
def test_a_backup_of_postgresql_is_a_file_that_restores_anywhere(
    filled: Path, other: Path, file: Path, cx: Run, tmp_path: Path
) -> None:
    before = contents(filled)
    cx("backup", file, filled)
    folder = tmp_path / "as a file"
    assert commands.run(["restore", str(file), "--data", str(folder)]) == 0
    db.open_database(folder)
    assert {table.__name__: sorted(table.select().tuples(), key=repr) for table in TABLES} == before
    db.forget_database()
    assert cx("restore", file, other).status == 0
    assert contents(other) == before


@pytest.mark.skipif("not postgres.is_chosen()", reason="a matter of PostgreSQL")
def test_nothing_is_restored_into_a_database_that_holds_something(filled: Path, file: Path, cx: Run) -> None:
    cx("backup", file, filled)
    before = contents(filled)
    assert "holds data already" in refusal(cx("restore", file, filled))
    assert contents(filled) == before
