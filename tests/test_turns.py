"""Whose turn it is to write: a token among workers, which keeps an order and which nobody depends on."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service import db
from service.db import sqlite, turns
from service.db.turns import Turns
from service.models import App
from tests.postgres import on_sqlite_alone

SHORT = 0.5  # seconds


@pytest.fixture(params=[SHORT])
def shared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Turns]:
    monkeypatch.setattr(turns, "PATIENCE", request.param)
    made = Turns()
    yield made
    made._giving.close()
    made._taking.close()


def die_with(shared: Turns) -> None:
    """What a worker does that is killed in its turn."""
    shared._taking.recv(1)


def tokens(shared: Turns) -> int:
    """How many are there; they are gone then."""
    shared._taking.setblocking(False)
    found = 0
    while True:
        try:
            shared._taking.recv(1)
        except BlockingIOError:
            return found
        found += 1


def is_asleep(thread: threading.Thread) -> bool:
    """Whether it waits for something, for all that the kernel knows."""
    return Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def let_wait_in_order(waiting: list[threading.Thread], shared: Turns) -> None:
    """Start threads, each when the one before it waits for its turn, and let them all have it."""
    with shared.next():
        for thread in waiting:
            thread.start()
            asleep = 0  # times in a row: a thread that only waits for the interpreter gets it in between
            while asleep < 10:
                time.sleep(0.01)
                asleep = asleep + 1 if is_asleep(thread) else 0
    for thread in waiting:
        thread.join()


@pytest.mark.parametrize("shared", [60.0], indirect=True)
def test_whoever_waits_longest_is_next(shared: Turns) -> None:
    order = list[int]()

    def wait(number: int) -> None:
        with shared.next():
            order.append(number)

    waiting = [threading.Thread(target=wait, args=(number,)) for number in range(5)]
    let_wait_in_order(waiting, shared)
    assert order == list(range(5)) and tokens(shared) == 1


@pytest.mark.parametrize("shared", [60.0], indirect=True)
def test_a_group_commit_waits_for_one_of_the_writers_that_are_alone(
    shared: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, next_turn = list[str](), shared.next

    def next_seen() -> contextlib.AbstractContextManager[None]:
        seen.append(threading.current_thread().name)
        return next_turn()

    def wait() -> None:
        with shared.next() if threading.current_thread().name == "group" else shared.next_alone():
            pass

    monkeypatch.setattr(shared, "next", next_seen)
    waiting = [threading.Thread(target=wait, name=name) for name in ("alone", "alone", "alone", "group")]
    with next_turn():
        for thread in waiting:
            thread.start()
        while "group" not in seen or "alone" not in seen:
            time.sleep(0.01)
        time.sleep(0.1)
        assert sorted(seen) == ["alone", "group"]  # who wait for the token; the others wait for the one
    for thread in waiting:
        thread.join()
    assert sorted(seen) == ["alone"] * 3 + ["group"] and tokens(shared) == 1


def test_a_writer_waits_for_others_of_its_process_only_for_a_while(shared: Turns) -> None:
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with shared._alone:
            held.set()
            go_on.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(60)
    with shared.next_alone():
        assert tokens(shared) == 0
    go_on.set()
    holder.join()


def test_a_turn_ends_with_whatever_is_raised_in_it(shared: Turns) -> None:
    with pytest.raises(ZeroDivisionError), shared.next():
        raise ZeroDivisionError
    assert tokens(shared) == 1


def test_a_token_that_is_lost_is_waited_for_once(shared: Turns) -> None:
    die_with(shared)
    begun = time.monotonic()
    with shared.next():
        assert time.monotonic() - begun >= SHORT
        assert tokens(shared) == 0
    assert tokens(shared) == 1


def test_those_who_waited_in_vain_bring_back_too_many_for_a_moment(shared: Turns) -> None:
    together = threading.Barrier(2)

    def write() -> None:
        with shared.next():
            together.wait(60)

    die_with(shared)
    waiting = [threading.Thread(target=write) for _ in range(2)]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    with shared.next():
        assert tokens(shared) == 0
    assert tokens(shared) == 1


def test_whoever_gives_never_waits(shared: Turns) -> None:
    for _ in range(1_000):
        with contextlib.suppress(BlockingIOError):
            shared._giving.send(b".", socket.MSG_DONTWAIT)
    with shared.next():
        pass


@on_sqlite_alone
def test_a_write_within_a_write_waits_for_no_turn(
    application: object, shared: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    monkeypatch.setattr(sqlite, "turns", shared)
    monkeypatch.setattr(shared, "next", lambda: taken.append(1) or Turns.next(shared))
    with db.write(), db.write():
        App.create(name="Sun")
    assert taken == [1]
    with db.group_commit(), db.write():
        App.create(name="Venus")
    assert taken == [1, 1] and tokens(shared) == 1
