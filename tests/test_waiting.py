"""Requests that wait: put aside without a thread, called back by what they wait for, and never in the others' way."""

import contextlib
import http.client
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from service import waiting
from service.server import Server, listen
from service.settings import Settings

HELLO = b"hello"


class Happenings:
    """What happens, and how often somebody looks."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.looks = self.openings = 0
        self.fails = self.alarms_first = False

    @contextlib.contextmanager
    def open(self) -> Iterator[Callable[[], set[str]]]:
        self.openings += 1
        if self.alarms_first:
            self.topics = {"news"}
        yield self.look

    def look(self) -> set[str]:
        self.looks += 1
        if self.fails:
            self.fails = False
            raise RuntimeError("the database is away")
        found, self.topics = self.topics, set()
        return found


class House:
    """A server with one thread, whose application waits where it is asked to."""

    def __init__(self, threads: int = 1) -> None:
        self.happenings, self.begun, self.before_wait = Happenings(), 0, lambda: None
        self.happened: set[str] = set()
        self.server = Server(self.answer, listen("127.0.0.1", 0), Settings(threads=threads), news=self.happenings.open)
        self.port = self.server.socket.getsockname()[1]
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.server.run_until, args=(self.is_over.is_set,))
        self.thread.start()

    def answer(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        """`/wait/SECONDS/TOPIC` waits for a topic; everything else answers at once."""
        self.begun += 1
        if environ["PATH_INFO"].startswith("/wait/"):
            _, _, seconds, topic = environ["PATH_INFO"].split("/")
            self.before_wait()
            if topic not in self.happened:
                environ["cx.patience"].wait(environ.get("HTTP_WHO", "anybody"), frozenset({topic}), float(seconds))
        start_response("200 OK", [("Content-Length", str(len(HELLO)))])
        return [HELLO]

    def ask(self, path: str, **headers: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers=headers)
        return connection

    def settle(self, number: int) -> None:
        """Wait until so many are put aside."""
        limit = time.monotonic() + 60
        while len(self.server.waiting._waiting) != number:
            assert time.monotonic() < limit
            time.sleep(0.005)

    def happen(self, *topics: str) -> None:
        self.happened |= set(topics)
        self.happenings.topics = set(topics)

    def stop(self) -> None:
        if not self.is_over.is_set():
            self.is_over.set()
            with contextlib.suppress(OSError):  # it may have ended since
                self.server.pull_trigger()
        self.thread.join(60)


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    monkeypatch.setattr(waiting, "TICK", 0.02)
    monkeypatch.setattr(waiting, "LINGER", 25)
    made = House()
    yield made
    made.stop()


def finished(connection: http.client.HTTPConnection) -> bytes:
    with contextlib.closing(connection):
        return connection.getresponse().read()


def test_many_wait_and_one_thread_still_answers_the_others(house: House) -> None:
    waiters = [house.ask("/wait/20/news", who=str(number)) for number in range(50)]
    house.settle(50)
    assert finished(house.ask("/")) == HELLO
    house.happen("news")
    assert [finished(waiter) for waiter in waiters] == [HELLO] * 50


def test_only_those_are_called_whom_it_concerns(house: House) -> None:
    mine, theirs = house.ask("/wait/20/mine"), house.ask("/wait/20/theirs")
    house.settle(2)
    house.happen("mine")
    assert finished(mine) == HELLO
    house.settle(1)
    assert house.begun == 3
    house.happen("theirs")
    assert finished(theirs) == HELLO


def test_a_false_alarm_sends_them_back_to_wait(house: House) -> None:
    waiter = house.ask("/wait/20/news")
    house.settle(1)
    house.happenings.topics = {"news"}
    limit = time.monotonic() + 60
    while house.begun < 2 and time.monotonic() < limit:
        time.sleep(0.005)
    house.settle(1)
    house.happen("news")
    assert finished(waiter) == HELLO


def test_time_ends_the_wait(house: House) -> None:
    begun = time.monotonic()
    assert finished(house.ask("/wait/0.1/nothing")) == HELLO
    assert time.monotonic() - begun >= 0.1
    assert house.begun == 2


def test_no_time_is_no_wait(house: House) -> None:
    assert finished(house.ask("/wait/0/nothing")) == HELLO
    assert (house.begun, house.happenings.looks) == (1, 0)


def test_nothing_is_missed_between_looking_and_waiting(house: House) -> None:
    """Something happens, and is noticed, after the request looked and before it was put aside."""
    other = house.ask("/wait/20/other")
    house.settle(1)
    room = house.server.waiting

    def happen() -> None:
        house.before_wait = lambda: None
        house.happen("news")
        turn = room._turn
        while room._turn < turn + 2:
            time.sleep(0.005)

    house.before_wait = happen
    asked = house.ask("/wait/20/news")
    assert finished(asked) == HELLO, "begun anew at once, because the news came while it was under way"
    house.happen("other")
    assert finished(other) == HELLO


def test_who_is_called_back_for_nothing_comes_again_to_the_same_watch(house: House) -> None:
    """A watch begins with what happened shortly before; one that began anew with each return would never rest."""
    house.happenings.alarms_first = True
    waiter = house.ask("/wait/20/news")
    looks = house.happenings.looks
    limit = time.monotonic() + 60
    while house.happenings.looks < looks + 10 and time.monotonic() < limit:
        time.sleep(0.005)
    assert (house.begun, house.happenings.openings) == (2, 1)
    house.happen("news")
    assert finished(waiter) == HELLO


def test_nobody_looks_while_nobody_waits(house: House) -> None:
    assert finished(house.ask("/wait/0.2/nothing")) == HELLO
    looks = house.happenings.looks
    assert looks and house.happenings.openings == 1
    time.sleep(2 * waiting.LINGER * waiting.TICK)
    assert house.happenings.looks <= looks + waiting.LINGER + 1


def test_when_looking_fails_people_wait_on(house: House, caplog: pytest.LogCaptureFixture) -> None:
    house.happenings.fails = True
    assert finished(house.ask("/wait/0.2/nothing")) == HELLO
    assert "cannot look for news: the database is away" in caplog.text
    assert house.happenings.openings >= 2


def test_there_is_room_for_some_and_whoever_comes_on_top_is_answered(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MOST", 3)
    waiters = [house.ask("/wait/20/news", who=str(number)) for number in range(3)]
    house.settle(3)
    assert finished(house.ask("/wait/20/news", who="late")) == HELLO
    house.happen("news")
    assert [finished(waiter) for waiter in waiters] == [HELLO] * 3


def test_one_person_takes_no_more_than_some_of_the_room(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MOST_OF_ONE", 2)
    greedy = [house.ask("/wait/20/news", who="greedy") for _ in range(2)]
    house.settle(2)
    assert finished(house.ask("/wait/20/news", who="greedy")) == HELLO
    modest = house.ask("/wait/20/news", who="modest")
    house.settle(3)
    house.happen("news")
    assert [finished(waiter) for waiter in [*greedy, modest]] == [HELLO] * 3


def test_a_stopping_server_sends_everybody_home(house: House) -> None:
    waiters = [house.ask("/wait/20/news") for _ in range(5)]
    house.settle(5)
    house.is_over.set()
    house.server.pull_trigger()
    assert [finished(waiter) for waiter in waiters] == [HELLO] * 5


def test_a_client_that_goes_away_is_seen_to_go(house: House) -> None:
    waiter = house.ask("/wait/20/news")
    house.settle(1)
    waiter.close()
    limit = time.monotonic() + 60
    while house.server.active_channels:
        assert time.monotonic() < limit
        time.sleep(0.01)
    house.happen("news")
    house.settle(0)
    assert finished(house.ask("/")) == HELLO


def test_what_is_asked_behind_a_waiting_request_is_answered_after_it(house: House) -> None:
    with socket.create_connection(("127.0.0.1", house.port), timeout=60) as connection:
        connection.sendall(b"GET /wait/0.2/nothing HTTP/1.1\r\nHost: a\r\n\r\n")
        house.settle(1)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        answers = b""
        while part := connection.recv(65536):
            answers += part
    assert answers.count(HELLO) == 2


def test_talking_while_waiting_costs_no_memory(house: House) -> None:
    with socket.create_connection(("127.0.0.1", house.port), timeout=60) as connection:
        connection.sendall(b"GET /wait/20/nothing HTTP/1.1\r\nHost: a\r\n\r\n")
        house.settle(1)
        connection.settimeout(0.5)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(TimeoutError):  # nobody takes it any more
            for _ in range(3000):
                connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
