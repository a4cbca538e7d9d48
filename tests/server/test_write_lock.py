"""The write lock: a token that workers pass to each other in order, and that is not required for correctness."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service import db
from service.db import sqlite, write_lock
from service.db.write_lock import WriteLock
from service.models import App

pytestmark = pytest.mark.database


SHORT = 0.5  # seconds


@pytest.fixture(params=[SHORT])
def shared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteLock]:
    monkeypatch.setattr(write_lock, "TIMEOUT", request.param)
    made = WriteLock()
    yield made
    made._sender.close()
    made._receiver.close()


def lose_token(shared: WriteLock) -> None:
    """Take the token as a worker that is then killed."""
    shared._receiver.recv(1)


def tokens(shared: WriteLock) -> int:
    """The number of tokens; removes them."""
    shared._receiver.setblocking(False)
    found = 0
    while True:
        try:
            shared._receiver.recv(1)
        except BlockingIOError:
            return found
        found += 1


def is_asleep(thread: threading.Thread) -> bool:
    """Whether the kernel reports that a thread is waiting."""
    return Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def run_in_order(waiting: list[threading.Thread], shared: WriteLock) -> None:
    """Start threads, each when the previous one waits for the token, then pass it on."""
    with shared.hold():
        for thread in waiting:
            thread.start()
            asleep = 0  # times in a row: a thread that only waits for the interpreter gets it in between
            while asleep < 10:
                time.sleep(0.01)
                asleep = asleep + 1 if is_asleep(thread) else 0
    for thread in waiting:
        thread.join()


@pytest.mark.parametrize("shared", [60.0], indirect=True)
def test_the_longest_waiting_writer_is_next(shared: WriteLock) -> None:
    order = list[int]()

    def wait(number: int) -> None:
        with shared.hold():
            order.append(number)

    waiting = [threading.Thread(target=wait, args=(number,)) for number in range(5)]
    run_in_order(waiting, shared)
    assert order == list(range(5)) and tokens(shared) == 1


@pytest.mark.parametrize("shared", [60.0], indirect=True)
def test_a_group_commit_waits_for_at_most_one_single_writer(shared: WriteLock, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, hold = list[str](), shared.hold

    def record_and_hold() -> contextlib.AbstractContextManager[None]:
        seen.append(threading.current_thread().name)
        return hold()

    def wait() -> None:
        with shared.hold() if threading.current_thread().name == "group" else shared.hold_for_request():
            pass

    monkeypatch.setattr(shared, "hold", record_and_hold)
    waiting = [threading.Thread(target=wait, name=name) for name in ("alone", "alone", "alone", "group")]
    with hold():
        for thread in waiting:
            thread.start()
        while "group" not in seen or "alone" not in seen:
            time.sleep(0.01)
        time.sleep(0.1)
        assert sorted(seen) == ["alone", "group"]  # these wait for the token; the others wait for the single writer
    for thread in waiting:
        thread.join()
    assert sorted(seen) == ["alone"] * 3 + ["group"] and tokens(shared) == 1


def test_waiting_for_writers_of_the_same_process_is_limited(shared: WriteLock) -> None:
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with shared._requests:
            held.set()
            go_on.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(60)
    with shared.hold_for_request():
        assert tokens(shared) == 0
    go_on.set()
    holder.join()


def test_the_token_is_passed_on_after_an_exception(shared: WriteLock) -> None:
    with pytest.raises(ZeroDivisionError), shared.hold():
        raise ZeroDivisionError
    assert tokens(shared) == 1


def test_lost_token_delays_one_writer_only(shared: WriteLock) -> None:
    lose_token(shared)
    begun = time.monotonic()
    with shared.hold():
        assert time.monotonic() - begun >= SHORT
        assert tokens(shared) == 0
    assert tokens(shared) == 1


def test_additional_tokens_are_removed_again(shared: WriteLock) -> None:
    together = threading.Barrier(2)

    def write() -> None:
        with shared.hold():
            together.wait(60)

    lose_token(shared)
    waiting = [threading.Thread(target=write) for _ in range(2)]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    with shared.hold():
        assert tokens(shared) == 0
    assert tokens(shared) == 1


def test_passing_the_token_on_never_blocks(shared: WriteLock) -> None:
    for _ in range(1_000):
        with contextlib.suppress(BlockingIOError):
            shared._sender.send(b".", socket.MSG_DONTWAIT)
    with shared.hold():
        pass


@pytest.mark.sqlite_only
def test_a_nested_write_does_not_wait_for_the_token(
    application: object, shared: WriteLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds: list[int] = []
    monkeypatch.setattr(sqlite, "write_lock", shared)
    monkeypatch.setattr(shared, "hold", lambda: holds.append(1) or WriteLock.hold(shared))
    with db.write(), db.write():
        App.create(name="Sun")
    assert holds == [1]
    with db.group_commit(), db.write():
        App.create(name="Venus")
    assert holds == [1, 1] and tokens(shared) == 1


@pytest.mark.sqlite_only
def test_a_statement_that_writes_without_a_transaction_waits_for_the_token(
    application: object, shared: WriteLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds: list[int] = []
    monkeypatch.setattr(sqlite, "write_lock", shared)
    monkeypatch.setattr(shared, "hold", lambda: holds.append(1) or WriteLock.hold(shared))
    app = App.create(name="Sun")
    App.update(name="Venus").where(App.id == app.id).execute()
    assert App.select().count() == 1 and holds == [1, 1]
    App.delete().where(App.id == app.id).execute()
    assert holds == [1, 1, 1] and tokens(shared) == 1
