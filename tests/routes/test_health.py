"""`/readyz` reports missing requirements of the service at once, without details."""

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from service import db
from service.errors import StorageUnavailable
from service.routes import health
from service.settings import Settings
from tests.support import postgres
from tests.support.client import Client
from tests.support.faults import another_connection, between, locked
from tests.support.faults import read_only as read_only_connection
from tests.support.server_process import command, serving


@pytest.fixture(autouse=True)
def _check_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reuse no result, and allow for a slow machine."""
    monkeypatch.setattr(health, "READY_SECONDS", -1.0)
    monkeypatch.setattr(health, "DATABASE_TIMEOUT", 60.0)


@contextmanager
def read_only() -> Iterator[None]:
    """Make the database read-only, also for new connections."""
    if not postgres.is_chosen():
        with read_only_connection():
            yield
        return
    ((name,),) = db.database.execute_sql("SELECT current_database()").fetchall()
    setting = f'ALTER DATABASE "{name}" %s default_transaction_read_only'
    with between(f"{setting % 'SET'} = on", setting % "RESET"):
        yield


@contextmanager
def outdated() -> Iterator[None]:
    """Set the schema version of an older release, as after restoring an old backup."""
    with between(f"UPDATE schema_version SET version = {LATEST} - 1", f"UPDATE schema_version SET version = {LATEST}"):
        yield


@contextmanager
def nearly_full() -> Iterator[None]:
    """Require more free disk space than there is."""
    usual, health.MIN_FREE_BYTES = health.MIN_FREE_BYTES, 2**62
    try:
        yield
    finally:
        health.MIN_FREE_BYTES = usual


@contextmanager
def disk_full() -> Iterator[None]:
    """Let the kernel refuse every write to a file."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


LATEST = len(health.migrations.STEPS)
ON_SQLITE = pytest.mark.sqlite_only("the disk is that of the PostgreSQL server")


@pytest.mark.parametrize(
    "fault",
    [
        *(locked, read_only, outdated),
        *(pytest.param(fault, marks=ON_SQLITE) for fault in (nearly_full, disk_full)),
    ],
)
def test_service_is_not_ready_while_a_fault_lasts(
    anyone: Client, fault: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert anyone.get("//readyz").data == {"status": "ready"}
    with fault():  # type: ignore[operator]
        with monkeypatch.context() as patch:
            if fault is locked:  # detected by a timeout only
                patch.setattr(health, "DATABASE_TIMEOUT", 0.3)
            response = anyone.get("//readyz")
        assert response.error == (503, "storage_unavailable")
        assert response.message == StorageUnavailable.default_message()
        assert response.headers["Retry-After"] == "2"
        assert anyone.get("//healthz").data == {"status": "ok"}
    assert anyone.get("//readyz").data == {"status": "ready"}


def test_newer_schema_is_accepted(anyone: Client) -> None:
    newer, usual = (f"UPDATE schema_version SET version = {version}" for version in (LATEST + 1, LATEST))
    with between(newer, usual):
        assert anyone.get("//readyz").status == 200


def test_reason_is_logged(anyone: Client, caplog: pytest.LogCaptureFixture) -> None:
    with outdated():
        anyone.get("//readyz")
    assert f"schema version {LATEST - 1} is older than this program requires" in caplog.text


def test_readiness_check_commits_a_write(anyone: Client) -> None:
    with another_connection() as other:
        sql = "SELECT max(latest) FROM clock_state"  # what other connections see after the commit
        before = other.execute(sql).fetchone()
        anyone.get("//healthz")
        assert other.execute(sql).fetchone() == before
        anyone.get("//readyz")
        assert other.execute(sql).fetchone() != before


def test_successful_check_is_reused_for_a_limited_time(anyone: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "READY_SECONDS", 60.0)
    monkeypatch.setattr(health, "_ready_at", float("-inf"))
    assert anyone.get("//readyz").status == 200
    with read_only():
        assert anyone.get("//readyz").status == 200
        monkeypatch.setattr(health, "READY_SECONDS", -1.0)
        assert anyone.get("//readyz").status == 503


def test_hanging_database_does_not_block_checks(
    application: object, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe, released = health.HealthProbe(), threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(health, "DATABASE_TIMEOUT", 0.3)
        for _ in range(3):  # the first query hangs, the others wait for it
            with pytest.raises(StorageUnavailable):
                probe.run(released.wait)
    assert caplog.text.count("database check failed: no response") == 3
    released.set()
    assert probe.run(lambda: "released") == "released"


def test_programming_error_is_not_reported_as_unavailable_storage(application: object) -> None:
    with pytest.raises(ZeroDivisionError):
        health.HealthProbe().run(lambda: 1 // 0)


@pytest.mark.slow
def test_healthcheck_command_reports_the_state(tmp_path: Path, settings: Settings) -> None:
    with serving(tmp_path / "served") as server:
        arguments = ("healthcheck", "--port", server.port)
        for host in ("127.0.0.1", "0.0.0.0"):
            done = command(*arguments, "--host", host)
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert server.stop() == 0
        done = command(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith(f"cx-service: no response from 127.0.0.1:{server.port}: ".encode())
