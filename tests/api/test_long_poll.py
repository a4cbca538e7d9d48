"""Suspended requests: they hold no thread, changes resume them, and they do not delay other requests."""

import resource
import socket
import time
from collections.abc import Iterator

import pytest

from service.api import long_poll
from tests.support.long_poll import HELLO, LongPollServer, read_body


@pytest.fixture
def long_poll_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LongPollServer]:
    monkeypatch.setattr(long_poll, "POLL_INTERVAL", 0.02)
    monkeypatch.setattr(long_poll, "IDLE_POLLS", 25)
    made = LongPollServer()
    yield made
    made.stop()


def test_suspended_requests_occupy_no_thread(long_poll_server: LongPollServer) -> None:
    waiters = [long_poll_server.request("/wait/20/news", who=str(number)) for number in range(50)]
    long_poll_server.wait_for_suspended(50)
    assert read_body(long_poll_server.request("/")) == HELLO
    long_poll_server.report_changes("news")
    assert [read_body(waiter) for waiter in waiters] == [HELLO] * 50


def test_only_requests_of_changed_topics_are_resumed(long_poll_server: LongPollServer) -> None:
    first, second = long_poll_server.request("/wait/20/first"), long_poll_server.request("/wait/20/second")
    long_poll_server.wait_for_suspended(2)
    long_poll_server.report_changes("first")
    assert read_body(first) == HELLO
    long_poll_server.wait_for_suspended(1)
    assert long_poll_server.started == 3
    long_poll_server.report_changes("second")
    assert read_body(second) == HELLO


def test_request_without_a_change_is_suspended_again(long_poll_server: LongPollServer) -> None:
    waiter = long_poll_server.request("/wait/20/news")
    long_poll_server.wait_for_suspended(1)
    long_poll_server.changes.topics = {"news"}
    limit = time.monotonic() + 60
    while long_poll_server.started < 2 and time.monotonic() < limit:
        time.sleep(0.005)
    long_poll_server.wait_for_suspended(1)
    long_poll_server.report_changes("news")
    assert read_body(waiter) == HELLO


def test_requests_are_resumed_when_their_time_is_over(long_poll_server: LongPollServer) -> None:
    start = time.monotonic()
    assert read_body(long_poll_server.request("/wait/0.1/nothing")) == HELLO
    assert time.monotonic() - start >= 0.1
    assert long_poll_server.started == 2


def test_wait_of_zero_seconds_does_not_suspend(long_poll_server: LongPollServer) -> None:
    assert read_body(long_poll_server.request("/wait/0/nothing")) == HELLO
    assert (long_poll_server.started, long_poll_server.changes.polls) == (1, 0)


def test_no_change_is_lost_before_the_suspension(long_poll_server: LongPollServer) -> None:
    """The change occurs, and is found, after the handler read the data and before the request is suspended."""
    other = long_poll_server.request("/wait/20/other")
    long_poll_server.wait_for_suspended(1)
    room = long_poll_server.server.suspended

    def happen() -> None:
        long_poll_server.before_wait = lambda: None
        long_poll_server.report_changes("news")
        turn = room._poll
        while room._poll < turn + 2:
            time.sleep(0.005)

    long_poll_server.before_wait = happen
    waiter = long_poll_server.request("/wait/20/news")
    assert read_body(waiter) == HELLO, "the change during the request must restart it at once"
    long_poll_server.report_changes("other")
    assert read_body(other) == HELLO


def test_requests_that_come_back_use_the_same_change_feed(long_poll_server: LongPollServer) -> None:
    """A new change feed first reports recent changes, so a new feed for each restart would restart requests forever."""
    long_poll_server.changes.reports_first = True
    waiter = long_poll_server.request("/wait/20/news")
    looks = long_poll_server.changes.polls
    limit = time.monotonic() + 60
    while long_poll_server.changes.polls < looks + 10 and time.monotonic() < limit:
        time.sleep(0.005)
    assert (long_poll_server.started, long_poll_server.changes.openings) == (2, 1)
    long_poll_server.report_changes("news")
    assert read_body(waiter) == HELLO


@pytest.mark.slow
def test_polling_stops_when_no_request_is_suspended(long_poll_server: LongPollServer) -> None:
    assert read_body(long_poll_server.request("/wait/0.2/nothing")) == HELLO
    looks = long_poll_server.changes.polls
    assert looks and long_poll_server.changes.openings == 1
    time.sleep(2 * long_poll.IDLE_POLLS * long_poll.POLL_INTERVAL)
    assert long_poll_server.changes.polls <= looks + long_poll.IDLE_POLLS + 1


def test_requests_stay_suspended_when_polling_fails(
    long_poll_server: LongPollServer, caplog: pytest.LogCaptureFixture
) -> None:
    long_poll_server.changes.fails = True
    assert read_body(long_poll_server.request("/wait/0.2/nothing")) == HELLO
    assert "cannot poll for changes: the database is away" in caplog.text
    assert long_poll_server.changes.openings >= 2


def test_requests_over_the_limit_get_their_response_at_once(
    long_poll_server: LongPollServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_poll, "MAX_SUSPENDED", 3)
    waiters = [long_poll_server.request("/wait/20/news", who=str(number)) for number in range(3)]
    long_poll_server.wait_for_suspended(3)
    assert read_body(long_poll_server.request("/wait/20/news", who="late")) == HELLO
    long_poll_server.report_changes("news")
    assert [read_body(waiter) for waiter in waiters] == [HELLO] * 3


def test_suspended_requests_of_a_caller_are_limited(
    long_poll_server: LongPollServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_poll, "MAX_PER_CALLER", 2)
    first_caller = [long_poll_server.request("/wait/20/news", who="first_caller") for _ in range(2)]
    long_poll_server.wait_for_suspended(2)
    assert read_body(long_poll_server.request("/wait/20/news", who="first_caller")) == HELLO
    second_caller = long_poll_server.request("/wait/20/news", who="second_caller")
    long_poll_server.wait_for_suspended(3)
    long_poll_server.report_changes("news")
    assert [read_body(waiter) for waiter in [*first_caller, second_caller]] == [HELLO] * 3


def test_stopping_server_resumes_all_requests(long_poll_server: LongPollServer) -> None:
    waiters = [long_poll_server.request("/wait/20/news") for _ in range(5)]
    long_poll_server.wait_for_suspended(5)
    long_poll_server.is_over.set()
    long_poll_server.server.pull_trigger()
    assert [read_body(waiter) for waiter in waiters] == [HELLO] * 5


def test_request_of_a_disconnected_client_is_removed(long_poll_server: LongPollServer) -> None:
    waiter = long_poll_server.request("/wait/20/news")
    long_poll_server.wait_for_suspended(1)
    waiter.close()
    limit = time.monotonic() + 60
    while long_poll_server.server.active_channels:
        assert time.monotonic() < limit
        time.sleep(0.01)
    long_poll_server.report_changes("news")
    long_poll_server.wait_for_suspended(0)
    assert read_body(long_poll_server.request("/")) == HELLO


def test_pipelined_request_waits_for_the_suspended_one(long_poll_server: LongPollServer) -> None:
    with socket.create_connection(("127.0.0.1", long_poll_server.port), timeout=60) as connection:
        connection.sendall(b"GET /wait/0.2/nothing HTTP/1.1\r\nHost: a\r\n\r\n")
        long_poll_server.wait_for_suspended(1)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        received = b""
        while part := connection.recv(65536):
            received += part
    assert received.count(HELLO) == 2


@pytest.mark.slow
def test_data_sent_while_suspended_takes_limited_memory(long_poll_server: LongPollServer) -> None:
    with socket.create_connection(("127.0.0.1", long_poll_server.port), timeout=60) as connection:
        connection.sendall(b"GET /wait/20/nothing HTTP/1.1\r\nHost: a\r\n\r\n")
        long_poll_server.wait_for_suspended(1)
        connection.settimeout(0.5)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(TimeoutError):  # the server no longer reads
            for _ in range(3000):
                connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
