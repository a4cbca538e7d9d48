"""Checkpoints of SQLite's journal: a thread of the service makes them, and commits do not wait for them."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import peewee
import pytest

from service.db import Sqlite, sqlite, write_lock

LIMIT = 20  # pages
TIMEOUT = 60  # seconds


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pages of the journal after each commit."""
    pages, note = list[int](), Sqlite._note_commit
    monkeypatch.setattr(sqlite, "CHECKPOINT_PAGES", LIMIT)
    monkeypatch.setattr(sqlite, "CHECKPOINT_PAUSE", 0.0)
    monkeypatch.setattr(Sqlite, "_note_commit", lambda *of: pages.append(of[-1]) or note(*of))
    return pages


@pytest.fixture
def database(tmp_path: Path, journal: list[int]) -> Iterator[Sqlite]:
    database = Sqlite(tmp_path, create=True)
    with database.checkpointing():
        database.execute_sql("CREATE TABLE numbers (number INTEGER)")
        yield database
        database.disconnect()


def write_until_restart(database: Sqlite, journal: list[int]) -> None:
    """Write until the journal is restarted."""
    until = time.monotonic() + TIMEOUT
    while len(journal) < 2 or journal[-1] >= journal[-2]:
        database.execute_sql("INSERT INTO numbers VALUES (1)")
        assert time.monotonic() < until
        time.sleep(0.001)


def test_journal_is_copied_by_the_thread_and_restarted(
    database: Sqlite, journal: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, copy = set[str](), Sqlite._copy_journal
    monkeypatch.setattr(Sqlite, "_copy_journal", lambda of: threads.add(threading.current_thread().name) or copy(of))
    for _ in range(3):
        write_until_restart(database, journal)
    assert threads == {"checkpoint"} and max(journal) >= LIMIT


def test_commits_checkpoint_the_journal_when_the_thread_has_ended(database: Sqlite, journal: list[int]) -> None:
    with database.checkpointing():
        pass
    database.disconnect()
    journal.clear()
    database.execute_sql("INSERT INTO numbers VALUES (1)")
    assert database.execute_sql("PRAGMA wal_autocheckpoint").fetchone() == (1000,) and journal == []


def test_writers_wait_only_for_the_rest_of_the_journal(
    database: Sqlite, journal: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written during the first copy would otherwise keep the journal from being restarted."""
    held, copy, done = list[bool](), Sqlite._copy_journal, threading.Event()

    def record(of: Sqlite) -> bool:
        held.append(is_held())
        if len(held) == 1:  # as if a writer had committed meanwhile
            return False
        result = copy(of)
        done.set()
        return result

    monkeypatch.setattr(Sqlite, "_copy_journal", record)
    while not journal or journal[-1] < LIMIT:
        database.execute_sql("INSERT INTO numbers VALUES (1)")
    assert done.wait(TIMEOUT)
    assert held[:2] == [False, True]


def is_held() -> bool:
    """Whether the token of the write lock is taken."""
    lock = write_lock.write_lock
    try:
        token = lock._receiver.recv(1, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    lock._sender.send(token)
    return False


def test_thread_continues_after_an_error(
    database: Sqlite, journal: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    copy, failed = Sqlite._copy_journal, threading.Event()

    def fail_once(of: Sqlite) -> bool:
        if not failed.is_set():
            failed.set()
            raise peewee.OperationalError("disk I/O error")
        return copy(of)

    monkeypatch.setattr(Sqlite, "_copy_journal", fail_once)
    write_until_restart(database, journal)
    assert failed.is_set() and "the journal was not copied to the database: disk I/O error" in caplog.text
