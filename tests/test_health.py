"""`/readyz`: it notices what the service cannot do without, says so at once, and says no more to anybody."""

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
from tests import postgres
from tests.conftest import Client
from tests.serving import command, serving
from tests.trouble import another_connection, between, locked
from tests.trouble import read_only as read_only_connection


@pytest.fixture(autouse=True)
def _asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing counts for longer than it takes to find out, however long that takes on a busy machine."""
    monkeypatch.setattr(health, "LASTING", -1.0)
    monkeypatch.setattr(health, "PATIENCE", 60.0)


@contextmanager
def read_only() -> Iterator[None]:
    """Nothing can be written, through new connections either."""
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
    """An older backup was put in place of the database."""
    with between(f"UPDATE schema_version SET version = {LATEST} - 1", f"UPDATE schema_version SET version = {LATEST}"):
        yield


@contextmanager
def nearly_full() -> Iterator[None]:
    """The disk has less than what is asked of it."""
    usual, health.LEAST_FREE = health.LEAST_FREE, 2**62
    try:
        yield
    finally:
        health.LEAST_FREE = usual


@contextmanager
def no_byte_more() -> Iterator[None]:
    """The kernel takes no byte that is written to a file."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


LATEST = len(health.migrations.STEPS)
ON_SQLITE = pytest.mark.skipif(postgres.is_chosen(), reason="the disk is the server's own")


@pytest.mark.parametrize(
    "trouble",
    [
        *(locked, read_only, outdated),
        *(pytest.param(trouble, marks=ON_SQLITE) for trouble in (nearly_full, no_byte_more)),
    ],
)
def test_the_service_is_not_ready_until_the_trouble_is_over(
    anyone: Client, trouble: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert anyone.get("//readyz").data == {"status": "ready"}
    with trouble():  # type: ignore[operator]
        with monkeypatch.context() as patch:
            if trouble is locked:  # which is known by waiting only
                patch.setattr(health, "PATIENCE", 0.3)
            refusal = anyone.get("//readyz")
        assert refusal.error == (503, "storage_unavailable")
        assert refusal.message == StorageUnavailable.sentence()
        assert refusal.headers["Retry-After"] == "2"
        assert anyone.get("//healthz").data == {"status": "ok"}
    assert anyone.get("//readyz").data == {"status": "ready"}


def test_a_schema_that_another_instance_has_brought_further_is_no_trouble(anyone: Client) -> None:
    newer, usual = (f"UPDATE schema_version SET version = {version}" for version in (LATEST + 1, LATEST))
    with between(newer, usual):
        assert anyone.get("//readyz").status == 200


def test_why_it_is_not_ready_stands_in_the_log(anyone: Client, caplog: pytest.LogCaptureFixture) -> None:
    with outdated():
        anyone.get("//readyz")
    assert f"its schema is {LATEST - 1}, older than this program's" in caplog.text


def test_a_write_goes_all_the_way(anyone: Client) -> None:
    with another_connection() as other:
        sql = "SELECT max(latest) FROM moment"  # as others see it, once it was committed
        before = other.execute(sql).fetchone()
        anyone.get("//healthz")
        assert other.execute(sql).fetchone() == before
        anyone.get("//readyz")
        assert other.execute(sql).fetchone() != before


def test_what_was_found_counts_for_a_moment(anyone: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LASTING", 60.0)
    monkeypatch.setattr(health, "_ready_at", float("-inf"))
    assert anyone.get("//readyz").status == 200
    with read_only():
        assert anyone.get("//readyz").status == 200
        monkeypatch.setattr(health, "LASTING", -1.0)
        assert anyone.get("//readyz").status == 503


def test_a_database_that_hangs_keeps_nobody_waiting(
    application: object, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside, back = health.Aside(), threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(health, "PATIENCE", 0.3)
        for _ in range(3):  # the first hangs until it is told to go on, the others find that it does
            with pytest.raises(StorageUnavailable):
                aside.ask(back.wait)
    assert caplog.text.count("the database is not as it should be: it does not answer") == 3
    back.set()
    assert aside.ask(lambda: "here again") == "here again"


def test_a_fault_of_ours_is_not_taken_for_one_of_the_database(application: object) -> None:
    with pytest.raises(ZeroDivisionError):
        health.Aside().ask(lambda: 1 // 0)


@pytest.mark.slow
def test_a_container_asks_with_the_program_itself(tmp_path: Path, settings: Settings) -> None:
    with serving(tmp_path / "served") as server:
        asked = ("healthcheck", "--port", server.port)
        for host in ("127.0.0.1", "0.0.0.0"):
            done = command(*asked, "--host", host)
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert server.stop() == 0
        done = command(*asked)
    assert done.returncode == 1
    assert done.stderr.startswith(f"cx-service: nobody answers at 127.0.0.1:{server.port}: ".encode())
