"""The page of backups: they are made while the service runs, and stored in its data folder."""

import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from service import db
from service.db.files import FolderLock
from service.models import AuditLog, User
from service.operate import backups, doctor, stored_backups
from service.operate.doctor import host
from service.settings import Settings
from tests.support.client import Client, Reply
from tests.support.observe import nothing_changes
from tests.support.web_client import Browser, Forms

pytestmark = [pytest.mark.slow, pytest.mark.database]

PAGE = "/console/backups"
NAMES = [f"cx-2026010{day}T120000.000Z.db" for day in range(1, 6)]
TIMEOUT = 120


@pytest.fixture
def browser(admin: Client) -> Browser:
    return Browser(admin.application).signed_in(admin)


@pytest.fixture
def folder(settings: Settings, application: Any) -> Path:
    folder = stored_backups.folder_of(settings)
    folder.mkdir(mode=0o700, parents=True)
    return folder


def send(browser: Browser, path: str = PAGE, **values: str) -> Reply:
    """Send a form of the page of backups with these values."""
    forms = Forms(browser.open("/console/events").raw.decode()).found
    csrf_token = next(fields["csrf_token"] for _, fields in forms if "csrf_token" in fields)
    return browser.navigate("POST", path, {"csrf_token": csrf_token, **values})


def wait_until_complete(settings: Settings) -> stored_backups.BackupState:
    limit = time.monotonic() + TIMEOUT
    while (state := stored_backups.state(settings)).is_running:
        assert time.monotonic() < limit
        time.sleep(0.05)
    return state


def entries() -> list[tuple[str, str]]:
    found = AuditLog.select().where(AuditLog.kind.startswith("backup_")).order_by(AuditLog.position)
    return [(entry.kind, entry.subject_id) for entry in found]


def test_backup_is_made_and_downloaded(
    browser: Browser, settings: Settings, tmp_path: Path, admin: Client, alice: Client
) -> None:
    assert "No backups here" in browser.open(PAGE).raw.decode()
    send(browser, act="make")
    assert "The backup is being made." in browser.text
    state = wait_until_complete(settings)
    assert (state.error, len(state.backups)) == ("", 1)
    [backup] = state.backups
    shown = browser.open(PAGE).raw.decode()
    assert f"{backup.size / 1024:,.0f} KiB" in shown
    assert "Age of the last backup: 1 minute" in browser.text
    reply = send(browser, f"{PAGE}/download", name=backup.name)
    assert reply.headers["Content-Disposition"] == f'attachment; filename="{backup.name}"'
    assert reply.headers["Content-Type"] == "application/vnd.sqlite3"
    assert reply.headers["Cache-Control"] == "no-store"
    assert int(reply.headers["Content-Length"]) == len(reply.raw) == backup.size
    copy = tmp_path / "copy.db"
    copy.write_bytes(reply.raw)
    assert backups.examine(copy).rows > 0
    with db.open_file(copy) as connection:
        emails = {email for (email,) in connection.execute('SELECT email FROM "user"')}
    assert emails == {User.get_by_id(one.user.id).email for one in (admin, alice)}
    assert entries() == [("backup_created", ""), ("backup_downloaded", backup.name)]
    assert {entry.actor_id for entry in AuditLog.select().where(AuditLog.kind.startswith("backup_"))} == {admin.user.id}
    assert (settings.data / "backups").stat().st_mode & 0o777 == 0o700
    assert (settings.data / "backups" / backup.name).stat().st_mode & 0o777 == 0o600


def test_second_request_does_not_make_a_second_backup(
    browser: Browser, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def write(_: Settings, target: Path) -> str:
        assert go_on.wait(TIMEOUT)
        target.write_bytes(b"")
        return ""

    monkeypatch.setattr(stored_backups, "_run_command", write)
    for _ in range(2):
        assert send(browser, act="make").status == 200
        assert "A backup is being made." in browser.text
    with db.write():  # writers do not wait for the backup
        User.update(phone="1").execute()
    go_on.set()
    assert len(wait_until_complete(settings).backups) == 1
    assert entries() == [("backup_created", "")]


def test_failed_backup_is_reported_until_the_next_one(browser: Browser, settings: Settings, folder: Path) -> None:
    (folder / "unfinished.db").mkdir()
    send(browser, act="make")
    state = wait_until_complete(settings)
    assert "it exists, and is not a regular file" in state.error
    assert state.backups == []
    browser.open(PAGE)
    assert "The last backup failed:" in browser.text
    (folder / "unfinished.db").rmdir()
    send(browser, act="make")
    assert (wait_until_complete(settings).error, len(stored_backups.state(settings).backups)) == ("", 1)
    browser.open(PAGE)
    assert "The last backup failed" not in browser.text


def test_full_disk_is_reported_before_the_backup(
    browser: Browser, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "free_space", lambda folder: (host.MIN_FREE - 1, 1))
    with nothing_changes():
        assert send(browser, act="make").status == 400
    assert "free some disk space" in browser.text
    assert not stored_backups.state(settings).is_running
    monkeypatch.undo()
    assert send(browser, act="make").status == 200
    assert len(wait_until_complete(settings).backups) == 1


def test_newest_backups_remain(browser: Browser, settings: Settings, folder: Path) -> None:
    for name in NAMES:
        (folder / name).write_bytes(b"")
    send(browser, act="make")
    names = [backup.name for backup in wait_until_complete(settings).backups]
    assert names[1:] == [NAMES[4], NAMES[3]]
    assert len(names) == stored_backups.KEPT


def test_backup_is_deleted(browser: Browser, folder: Path) -> None:
    for name in NAMES[:2]:
        (folder / name).write_bytes(b"")
    send(browser, act="delete", name=NAMES[0])
    assert "Deleted." in browser.text
    assert [path.name for path in folder.iterdir()] == [NAMES[1]]
    assert entries() == [("backup_deleted", NAMES[0])]


@pytest.mark.parametrize("name", ["", NAMES[0], "../service.db", "unfinished.db", f"../backups/{NAMES[1]}"])
def test_unknown_names_are_not_found(name: str, browser: Browser, folder: Path) -> None:
    (folder / NAMES[1]).write_bytes(b"")
    (folder / "unfinished.db").write_bytes(b"")
    with nothing_changes():
        for path, values in ((PAGE, {"act": "delete"}), (f"{PAGE}/download", {})):
            assert send(browser, path, name=name, **values).status == 404
            assert "There is no such backup." in browser.text
    assert len(list(folder.iterdir())) == 2


def test_backup_that_was_interrupted_does_not_block_the_next(
    browser: Browser, settings: Settings, folder: Path
) -> None:
    (folder / "running").touch()
    assert not stored_backups.state(settings).is_running
    lock = FolderLock(folder, exclusive=True)
    assert stored_backups.state(settings).is_running
    lock.release()
    send(browser, act="make")
    assert len(wait_until_complete(settings).backups) == 1


def test_page_is_for_admins(agent: Client, alice: Client) -> None:
    for client in (agent, alice):
        other = Browser(client.application).signed_in(client)
        assert other.open(PAGE).status == 403
        for path, values in ((PAGE, {"act": "make"}), (f"{PAGE}/download", {"name": NAMES[0]})):
            with nothing_changes():
                assert send(other, path, **values).status == 403


def test_forms_need_the_csrf_token(browser: Browser, folder: Path) -> None:
    (folder / NAMES[0]).write_bytes(b"")
    for path, values in ((PAGE, {"act": "make"}), (PAGE, {"act": "delete"}), (f"{PAGE}/download", {})):
        with nothing_changes():
            reply = browser.navigate("POST", path, {"csrf_token": "x", "name": NAMES[0], **values})
        assert reply.status == 400
        assert "go back and try again" in browser.text
    assert [path.name for path in folder.iterdir()] == [NAMES[0]]


def test_doctor_reports_old_backups(folder: Path, settings: Settings) -> None:
    if settings.database:
        pytest.skip("the doctor checks the folder of a database on SQLite")
    (folder / NAMES[0]).write_bytes(b"")
    findings = [finding for finding in doctor.examine_host(settings) if NAMES[0] in finding.text]
    assert [finding.level for finding in findings] == ["ok"]


def test_page_shows_the_age_of_the_last_backup(browser: Browser, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / NAMES[0]).write_bytes(b"")
    browser.open(PAGE)
    assert re.search(r"Age of the last backup: \d+ days", browser.text)
