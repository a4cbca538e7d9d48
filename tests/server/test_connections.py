"""Connections: time limits of each step of a request, limits on connections and memory, and malformed requests.

Most tests use a small application in this process; those that count descriptors use the real server.
"""

import contextlib
import errno
import json
import math
import re
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waitress.buffers import TempfileBasedBuffer

from service import server as package
from service.http.middleware import Route
from service.http.responses import Response
from service.server import Server, connection, http_parser, listen
from service.server.connection_counts import ConnectionCounts
from service.server.memory_limits import UnsentData
from service.settings import Settings
from tests.support.long_poll import HELLO, LongPollServer, read_body
from tests.support.server_process import chat, fill, serving

pytestmark = pytest.mark.database


BIG = bytes(8 * 1024 * 1024)
TIMEOUT = 60


class SmallServer(LongPollServer):
    """A server whose application returns the length of the body or a large response, or blocks its thread."""

    def __init__(self, threads: int = 1) -> None:
        self.go_on = threading.Event()
        super().__init__(threads)

    def application(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        if environ["PATH_INFO"].startswith("/wait/"):
            return super().application(environ, start_response)
        self.started += 1
        if environ["PATH_INFO"] == "/hold":
            self.go_on.wait(TIMEOUT)
        length = len(environ["wsgi.input"].read())
        content = BIG if environ["PATH_INFO"] == "/big" else f"{length};".encode() + HELLO
        start_response("200 OK", [("Content-Length", str(len(content)))])
        return [content]

    def connect(self, sent: bytes = b"") -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)
        client.sendall(sent)
        return client

    @property
    def connections(self) -> list[Any]:
        return list(self.server.active_channels.values())

    def until(self, condition: Callable[[], Any]) -> None:
        limit = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < limit
            self.server.pull_trigger()
            time.sleep(0.005)


@pytest.fixture
def small_server() -> Iterator[SmallServer]:
    made = SmallServer(threads=2)
    yield made
    made.stop()


def read_all(client: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    found = b""
    with client, contextlib.suppress(ConnectionResetError):
        while part := client.recv(65536):
            found += part
    return found


def get(path: str = "/", *lines: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: a", *lines, "", ""]).encode()


LAST = get("/", "Connection: close")
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def exchange(client: socket.socket, sent: bytes = get()) -> None:
    """Send a request on a connection that stays open, and read the response."""
    client.sendall(sent)
    found = b""
    while not found.endswith(HELLO):
        part = client.recv(65536)
        assert part, found
        found += part


# Time limits.


def head(length: int = 100_000) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % length


@pytest.mark.parametrize(
    ("sent", "seconds", "is_overdue"),
    [
        (b"", 74, False),
        (b"", 76, True),
        (b"\r\n\r\n", 76, True),
        (b"GET / HT", 19, False),
        (b"GET / HT", 21, True),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: 1\r\n", 21, True),
        (head(), 29, False),
        (head(), 31, True),
        (get("/wait/20/nothing"), 3_000, False),
    ],
)
def test_each_step_has_a_time_limit(sent: bytes, seconds: float, is_overdue: bool, small_server: SmallServer) -> None:
    with small_server.connect(sent) as client:
        small_server.until(lambda: small_server.connections)
        (one,) = small_server.connections
        small_server.until(lambda: not sent.strip() or one.is_suspended or one.request)
        assert one.is_overdue(one.since + seconds) is is_overdue
        assert client.fileno() >= 0


def receive(small_server: SmallServer, one: Any, count: int) -> None:
    """Wait until so many bytes of a body were received and processed."""
    small_server.until(lambda: one.request and one.request.body_bytes_received >= count)
    assert read_all(small_server.connect(LAST)).endswith(HELLO)


def test_a_large_part_of_a_body_does_not_extend_the_time_limit_beyond_the_slack(small_server: SmallServer) -> None:
    with small_server.connect(head(8_000_000) + bytes(3_000_000)):
        small_server.until(lambda: small_server.connections)
        (one,) = small_server.connections
        receive(small_server, one, 3_000_000)
        assert one.body_due <= time.monotonic() + connection.BODY_SLACK
        assert not one.is_overdue(one.body_due - 0.1)
        assert one.is_overdue(one.body_due + 0.1)


def test_each_part_of_a_body_extends_the_time_limit_at_the_minimum_rate(small_server: SmallServer) -> None:
    with small_server.connect(head()) as client:
        small_server.until(lambda: small_server.connections and small_server.connections[0].request)
        (one,) = small_server.connections
        receive(small_server, one, 0)
        one.body_due = before = time.monotonic() + 1
        client.sendall(bytes(10 * connection.MIN_BODY_RATE))
        receive(small_server, one, 10 * connection.MIN_BODY_RATE)
        assert one.body_due == pytest.approx(before + 10)


def test_a_body_has_a_time_limit_even_if_it_is_fast(small_server: SmallServer) -> None:
    with small_server.connect(head() + b"a"):
        small_server.until(lambda: small_server.connections and small_server.connections[0].request)
        (one,) = small_server.connections
        receive(small_server, one, 1)
        one.body_due = math.inf
        assert not one.is_overdue(one.since + 299)
        assert one.is_overdue(one.since + 301)


def test_the_idle_timeout_starts_again_after_a_response(small_server: SmallServer) -> None:
    with small_server.connect() as client:
        exchange(client)
        (one,) = small_server.connections
        small_server.until(one.is_idle)
        assert not one.is_overdue(one.last_sent + 74)
        assert one.is_overdue(max(one.last_sent, one.since) + 76)


def test_reading_a_response_has_a_time_limit(small_server: SmallServer) -> None:
    with small_server.connect(get("/big")):
        small_server.until(lambda: small_server.connections and small_server.connections[0].total_outbufs_len)
        (one,) = small_server.connections
        small_server.until(lambda: not one.requests)
        assert not one.is_overdue(max(one.last_sent, one.since) + 29)
        assert one.is_overdue(max(one.last_sent, one.since) + 31)
        one.last_sent = one.since + 301  # the client reads, but very slowly
        assert one.is_overdue(one.since + 301)


@pytest.mark.parametrize(
    ("step", "sent"),
    [
        ("IDLE_TIMEOUT", b""),
        ("HEADER_TIMEOUT", b"GET / HT"),
        ("REQUEST_TIMEOUT", head() + b"a"),
        ("READ_TIMEOUT", get("/big")),
    ],
)
def test_a_connection_that_exceeds_a_time_limit_is_closed(
    step: str, sent: bytes, small_server: SmallServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, step, 0.05)
    monkeypatch.setattr(package, "CHECK_INTERVAL", 0.01)
    with small_server.connect(sent):
        if step == "READ_TIMEOUT":
            small_server.until(lambda: small_server.started)
        small_server.until(lambda: not small_server.connections)


def test_a_response_that_is_read_slowly_is_complete(small_server: SmallServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "CHECK_INTERVAL", 0.01)
    small_server.server.unsent_memory.available = len(BIG)
    clients = [small_server.connect(get("/big")) for _ in range(12)]
    small_server.until(lambda: small_server.started == 12 and not any(one.requests for one in small_server.connections))
    time.sleep(0.1)  # several checks
    found = [b""] * len(clients)
    while any(len(part) < len(BIG) for part in found):
        for number, client in enumerate(clients):
            if len(found[number]) < len(BIG):
                part = client.recv(512 * 1024)
                assert part, f"closed after {len(found[number])} bytes"
                found[number] += part
    for client in clients:
        client.close()
    small_server.until(lambda: small_server.server.unsent_memory.available == len(BIG))


def test_unsent_responses_beyond_the_memory_limit_are_in_temporary_files(small_server: SmallServer) -> None:
    small_server.server.unsent_memory.available = 3 * len(BIG)
    clients = [small_server.connect(get("/big")) for _ in range(6)]
    small_server.until(lambda: small_server.started == 6 and not any(one.requests for one in small_server.connections))
    unsent = [buffer for one in small_server.connections for buffer in one.outbufs if len(buffer)]
    assert sorted(type(buffer).__name__ for buffer in unsent) == ["TempfileBasedBuffer"] * 3 + ["UnsentData"] * 3
    assert sum(len(buffer) for buffer in unsent if isinstance(buffer, UnsentData)) <= 3 * len(BIG)
    assert 0 <= small_server.server.unsent_memory.available < len(BIG)
    for client in clients:
        client.close()
    small_server.until(lambda: small_server.server.unsent_memory.available == 3 * len(BIG))


def test_a_response_is_sent_without_copying() -> None:
    whole = bytes(range(256)) * 1024
    rest = UnsentData(memoryview(whole)[1:])
    found = b""
    while len(rest):
        piece = rest.get(1000)
        assert piece.obj is whole
        found += piece
        rest.skip(len(piece), True)
    assert found == whole[1:]


def test_a_response_that_does_not_fit_on_the_disk_closes_its_connection_only(
    small_server: SmallServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    small_server.server.unsent_memory.available = 0
    with small_server.connect() as other:
        exchange(other)
        monkeypatch.setattr(TempfileBasedBuffer, "append", append)
        assert len(read_all(small_server.connect(get("/big")))) < len(BIG)
        exchange(other)


# Limit of connections.


def test_a_new_client_is_accepted_at_the_limit_of_connections(small_server: SmallServer) -> None:
    small_server.server.max_connections = 20
    silent = [small_server.connect(b"GET / HT" if number % 2 else b"") for number in range(100)]
    for _ in range(10):
        assert read_all(small_server.connect(LAST)).endswith(HELLO)
    assert len(small_server.connections) <= 20
    for client in silent:
        client.close()


def test_connections_without_a_request_are_closed_first(small_server: SmallServer) -> None:
    small_server.server.max_connections = 20
    with small_server.connect() as active, contextlib.ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(small_server.connect())
            exchange(active)
        time.sleep(0.01)
        for _ in range(100):
            stack.enter_context(small_server.connect())
        assert read_all(small_server.connect(LAST)).endswith(HELLO)
        exchange(active)


def test_connections_with_a_request_in_progress_are_not_closed_for_others(small_server: SmallServer) -> None:
    small_server.server.max_connections = 20
    polls = [small_server.request("/wait/20/news", who=str(number)) for number in range(19)]
    small_server.wait_for_suspended(19)
    for _ in range(60):
        assert read_all(small_server.connect(LAST)).endswith(HELLO)
    small_server.wait_for_suspended(19)
    small_server.report_changes("news")
    assert [read_body(poll) for poll in polls] == [HELLO] * 19


def test_suspended_requests_take_at_most_half_of_the_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "MAX_CONNECTIONS", 20)
    small_server = SmallServer()
    try:
        polls = [small_server.request("/wait/20/news", who=str(number)) for number in range(10)]
        small_server.wait_for_suspended(10)
        assert [read_body(small_server.request("/wait/20/news", who=str(number))) for number in range(5)] == [HELLO] * 5
        small_server.wait_for_suspended(10)
        small_server.report_changes("news")
        assert [read_body(poll) for poll in polls] == [HELLO] * 10
    finally:
        small_server.stop()


def test_a_client_that_disconnects_while_suspended_makes_room_for_another(small_server: SmallServer) -> None:
    small_server.request("/wait/20/nothing").close()
    small_server.until(lambda: small_server.started)
    small_server.wait_for_suspended(0)
    small_server.until(lambda: not small_server.connections)


def test_a_request_of_a_disconnected_client_is_not_processed(small_server: SmallServer) -> None:
    with small_server.connect(get("/hold")), small_server.connect(get("/hold")):
        small_server.until(lambda: small_server.started == 2)
        for _ in range(5):
            disconnected = small_server.connect(get())
            disconnected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            disconnected.close()
        half_closed = small_server.connect(get("/", "Connection: close"))
        half_closed.shutdown(socket.SHUT_WR)
        small_server.until(
            lambda: len(small_server.connections) == 8 and all(one.requests for one in small_server.connections)
        )
        small_server.go_on.set()
        assert read_all(half_closed).endswith(HELLO)
        small_server.until(lambda: len(small_server.connections) == 2)
        assert small_server.started == 3


# Pipelining.


def test_pipelined_requests_are_processed_one_after_the_other(small_server: SmallServer) -> None:
    client = small_server.connect()
    many = b"".join(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % n + bytes(n) for n in range(200))
    client.sendall(many + LAST)
    received = read_all(client)
    assert re.findall(rb"(\d+);hello", received) == [b"%d" % n for n in range(200)] + [b"0"]


def test_a_client_that_does_not_read_gets_one_response_at_a_time(small_server: SmallServer) -> None:
    client = small_server.connect(get("/big") * 500)
    small_server.until(lambda: small_server.connections and small_server.connections[0].total_outbufs_len)
    (one,) = small_server.connections
    small_server.until(lambda: not one.requests)
    assert small_server.started == 1
    assert len(one.unparsed) <= 2 * 8192
    client.close()
    small_server.until(lambda: not small_server.connections)


# Bodies.


@pytest.fixture
def small_memory(small_server: SmallServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Limit large bodies to 100,000 bytes in total. All of them must be available again after the test."""
    with monkeypatch.context() as patch:
        patch.setattr(http_parser.body_memory, "available", 100_000)
        yield 100_000
        for one in small_server.connections:
            with contextlib.suppress(OSError):
                one.socket.shutdown(socket.SHUT_RD)
        small_server.until(lambda: http_parser.body_memory.available == 100_000)


def send_part(small_server: SmallServer, length: int, sent: int) -> tuple[socket.socket, Any]:
    """A client that sends a part of a body, and its connection."""
    before = set(small_server.connections)
    client = small_server.connect(head(length) + bytes(sent))
    small_server.until(lambda: set(small_server.connections) - before)
    (one,) = set(small_server.connections) - before
    receive(small_server, one, sent)
    return client, one


def is_refused(client: socket.socket) -> bool:
    received = read_all(client)
    assert received.startswith(b"HTTP/1.1 503") and b'"storage_unavailable"' in received and b"Retry-After" in received
    return b"Connection: close\r\n" in received


def test_a_small_body_is_accepted_when_there_is_no_memory_for_large_ones(
    small_server: SmallServer, small_memory: int
) -> None:
    http_parser.body_memory.reserve(small_memory)
    small, large = http_parser.SMALL_BODY, http_parser.SMALL_BODY + 1
    assert b"%d;hello" % small in read_all(small_server.connect(head(small) + bytes(small) + LAST))
    before = small_server.started
    assert is_refused(small_server.connect(head(large) + bytes(large)))
    assert small_server.started == before
    http_parser.body_memory.release(small_memory)


def test_the_slowest_body_is_refused_at_the_limit_of_all_bodies(small_server: SmallServer, small_memory: int) -> None:
    (slow, one), (slower, other) = send_part(small_server, 90_000, 60_000), send_part(small_server, 90_000, 70_000)
    one.last_progress, other.last_progress = time.monotonic() - 1, time.monotonic() - 5
    new = small_server.connect(head(60_000) + bytes(59_999))
    assert is_refused(slower)
    exchange(new, b"a")
    small_server.until(lambda: http_parser.body_memory.available == small_memory - one.request.reserved)
    exchange(slow, bytes(30_000))
    new.close()
    slow.close()


def test_the_largest_of_equally_slow_bodies_is_refused(small_server: SmallServer, small_memory: int) -> None:
    (small, one), (large, other) = send_part(small_server, 90_000, 40_000), send_part(small_server, 90_000, 85_000)
    one.last_progress = other.last_progress = time.monotonic() - 5
    new = small_server.connect(head(60_000) + bytes(59_999))
    assert is_refused(large)
    exchange(new, b"a")
    small_server.until(lambda: http_parser.body_memory.available == small_memory - one.request.reserved)
    exchange(small, bytes(50_000))
    new.close()
    small.close()


def test_a_body_larger_than_the_limit_of_all_bodies_is_refused(small_server: SmallServer, small_memory: int) -> None:
    assert is_refused(small_server.connect(head(200_000) + bytes(200_000)))


def test_memory_is_released_when_a_client_disconnects(small_server: SmallServer, small_memory: int) -> None:
    client, _ = send_part(small_server, 90_000, 80_000)
    assert http_parser.body_memory.available == small_memory - 80_000 + http_parser.SMALL_BODY
    client.close()
    small_server.until(lambda: http_parser.body_memory.available == small_memory)
    assert b"90000;hello" in read_all(small_server.connect(head(90_000) + bytes(90_000) + LAST))


@pytest.fixture
def strict(small_server: SmallServer) -> SmallServer:
    """A server that accepts bodies of up to 20,000 bytes, as if an operation declared that limit."""
    application = small_server.application

    def check_length(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        if int(environ.get("CONTENT_LENGTH", "0")) <= 20_000:
            return application(environ, start_response)
        start_response("413 Content Too Large", [("Content-Length", "5")])
        return [b"large"]

    small_server.server.application = check_length
    small_server.server.find_route = lambda _, path: Route(
        path, lambda _: Response(200), SimpleNamespace(max_body=20_000, runs="slow")
    )  # type: ignore[arg-type]
    return small_server


def chunks(count: int) -> bytes:
    return (b"2710\r\n" + bytes(10_000) + b"\r\n") * count


TOO_LARGE = {
    "sized": head(20_001),
    "expected": head(20_001).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"),
    "sized by thousands of digits": head(10**3_000),
    "in chunks": CHUNKED + chunks(2) + b"1\r\na",
}


@pytest.mark.parametrize("sent", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_body_over_the_limit_of_its_operation_is_refused_before_it_is_received(
    sent: bytes, strict: SmallServer
) -> None:
    received = read_all(strict.connect(sent))
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"413"]
    assert b"Connection: close\r\n" in received


@pytest.mark.parametrize(
    "sent", [head(20_000) + bytes(20_000), CHUNKED + chunks(2) + b"0\r\n\r\n"], ids=["sized", "in chunks"]
)
def test_a_body_of_the_maximum_size_is_accepted(sent: bytes, strict: SmallServer) -> None:
    assert b"20000;hello" in read_all(strict.connect(sent + LAST))


@pytest.mark.parametrize(
    "sent", [head(30_000_000) + bytes(30_000_000), CHUNKED + chunks(3_000)], ids=["sized", "in chunks"]
)
def test_a_client_that_sends_all_of_a_refused_body_reads_the_response(sent: bytes, strict: SmallServer) -> None:
    client = strict.connect(sent)
    assert read_all(client).split()[1] == b"413"
    strict.until(lambda: not strict.connections)


def test_requests_after_a_refused_body_are_not_processed(strict: SmallServer) -> None:
    received = read_all(strict.connect(head(20_001) + get() + get()))
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"413"]
    assert strict.started == 0


def test_a_refused_body_is_discarded_until_its_time_limit(strict: SmallServer) -> None:
    with strict.connect(head(30_000_000) + bytes(1_000_000)):
        strict.until(lambda: strict.connections and strict.connections[0].discarded >= 1_000_000)
        (one,) = strict.connections
        assert one.body_due <= time.monotonic() + connection.BODY_SLACK
        assert one.is_overdue(one.body_due + 0.1)
        assert not one.is_overdue(one.body_due - 0.1)


def test_only_a_limited_part_of_a_refused_body_is_discarded(
    strict: SmallServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_DISCARDED", 100_000)
    client = strict.connect()
    with contextlib.suppress(ConnectionError):
        client.sendall(head(30_000_000) + bytes(30_000_000))
    read_all(client)
    strict.until(lambda: not strict.connections)


# Malformed and ambiguous requests.

MALFORMED = [
    b"GET /\r\n\r\n",
    b"GET / HTTP/0.9\r\n\r\n",
    b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
    b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n",
    *(
        blank + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
        for blank in (b" ", b"\t", b"\v", b"\f", b"\n", b"\r", b"\r\n ", b"\n\r\n")
    ),
    b" \r\n\r\n",
    b"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://a@b/ HTTP/1.1\r\nHost: b\r\n\r\n",
    b"GET http:/// HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://:80/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http:/a HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET foo:/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://a/ HTTP/1.1\r\n\r\n",
    b"GET /?a=\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"get / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / http/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    b"GET / HTTP/1.1\r\n: a\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n\tX: 1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\rY: 2\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\nY: 2\r\n\r\n",
    b"GET / HTTP/1.1\nHost: a\n\n\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
    POST + b"Content-Length: %s\r\n\r\n" % (b"1" * 5_000),
    POST + b"Content-Length: +1\r\n\r\na",
    POST + b"Content-Length: 1_0\r\n\r\na",
    POST + b"Content-Length: 0x1\r\n\r\na",
    POST + b"Content-Length:\r\n\r\na",
    POST + b"Content-Length: 1, 1\r\n\r\na",
    POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
    POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding:\r\n\r\n0\r\n\r\n",
    POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    CHUNKED + b"zz\r\n",
    CHUNKED + b"\r\n0\r\n\r\n",
    CHUNKED + b"1 \r\na\r\n0\r\n\r\n",
    CHUNKED + b"1\n\r\na\r\n0\r\n\r\n",
    CHUNKED + b"1;\n\r\na\r\n0\r\n\r\n",
    CHUNKED + b"0x1\r\na\r\n0\r\n\r\n",
    CHUNKED + b"-1\r\na\r\n0\r\n\r\n",
    CHUNKED + b"1\r\nab\r\n0\r\n\r\n",
    CHUNKED + b"1\r\na\n0\r\n\r\n",
    CHUNKED + b"f" * 16 + b"\r\na",
    CHUNKED + b"1;" + b"x" * 5_000,
    CHUNKED + b"0\r\nno field\r\n\r\n",
    CHUNKED + b"0\r\n" + b"A: 1\r\n" * 2_000,
]


def short(text: Any) -> str:
    return repr(text if isinstance(text, int) or len(text) < 90 else text[:60] + b"..." + text[-20:])


@pytest.mark.parametrize("malformed", MALFORMED, ids=short)
def test_malformed_and_ambiguous_requests_are_refused_and_the_connection_is_closed(
    malformed: bytes, small_server: SmallServer
) -> None:
    received = read_all(small_server.connect(malformed + LAST))
    (response,) = re.split(rb"(?=HTTP/1\.\d \d)", received)[1:]
    assert response.split()[1] == b"400"
    assert json.loads(response.partition(b"\r\n\r\n")[2])["error"]["code"] == "bad_request"
    assert b"Connection: close\r\n" in response
    assert small_server.started == 0


def test_too_many_header_fields_are_refused(small_server: SmallServer) -> None:
    assert read_all(small_server.connect(get("/", *["A: 1"] * 99, "Connection: close"))).split()[1] == b"431"
    assert read_all(small_server.connect(get("/", *["A: 1"] * 98, "Connection: close"))).split()[1] == b"200"


@pytest.mark.parametrize(
    ("sent", "length"),
    [
        (b"GET / HTTP/1.0\r\n\r\n", 0),
        (b"GET / HTTP/1.0\r\nHost: a\r\n\r\n", 0),
        (b"\r\n\r\n" + LAST, 0),
        (b"\r\n" + LAST, 0),
        (b"\r\n\r\n\r\n\r\n\r\n" + LAST, 0),
        (LAST.replace(b"Host: a", b"hOST:a.example:8080"), 0),
        (LAST.replace(b"Host: a", b"Host: [::1]:8080 "), 0),
        (LAST.replace(b"Host: a", b"Host:"), 0),
        (LAST.replace(b" / ", b" http://a/?b=c "), 0),
        (POST + b"Connection: close\r\nContent-Length: 003\r\n\r\nabc", 3),
        (POST + b"Connection: close\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc", 3),
        (CHUNKED.replace(b"chunked", b"Chunked") + b"3\r\nabc\r\n0\r\n\r\n" + LAST, 3),
        (CHUNKED + b'000a;a=b;c="d"\r\n0123456789\r\n1\r\n\n\r\n0;x\r\nA: 1\r\nB:\r\n\r\n' + LAST, 11),
    ],
    ids=short,
)
@pytest.mark.parametrize("pieces", [1, 1000])
def test_unusual_but_valid_requests_are_accepted(
    sent: bytes, length: int, pieces: int, small_server: SmallServer
) -> None:
    client = small_server.connect()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    step = max(1, len(sent) // pieces)
    for start in range(0, len(sent), step):
        client.sendall(sent[start : start + step])
    assert b"%d;hello" % length in read_all(client)


@pytest.mark.parametrize("value", ["close", "close, x", "x ,\tCLOSE", "keep-alive, close"])
def test_the_option_close_closes_the_connection(value: str, small_server: SmallServer) -> None:
    received = read_all(small_server.connect(get("/", f"Connection: {value}") + get()))
    assert received.count(HELLO) == 1
    assert b"Connection: close\r\n" in received


def test_other_connection_options_keep_the_connection_open(small_server: SmallServer) -> None:
    old = get("/", "Connection: x, Keep-Alive").replace(b"HTTP/1.1", b"HTTP/1.0")
    assert read_all(small_server.connect(get("/", "Connection: closed, x") + old + LAST)).count(HELLO) == 3


@pytest.mark.parametrize(
    ("target", "host", "public", "seen"),
    [
        ("http://a", "a", "", "a / "),
        ("http://a/b?c=d#e", "a", "", "a /b c=d"),
        ("http://a?c", "a", "", "a / c"),
        ("HTTP://A:80/b", "a", "", "A:80 /b "),
        ("https://a/b", "a:443", "", "a /b "),
        ("http://[::1]:8080/b", "[::1]:8080", "", "[::1]:8080 /b "),
        ("http://chat.example/b", "internal:8080", "chat.example", "chat.example /b "),
        ("http://internal:8080/b", "internal:8080", "chat.example", "internal:8080 /b "),
        ("http://evil/b", "internal:8080", "chat.example", ""),
        ("http://evil/b", "chat.example", "chat.example", ""),
    ],
)
def test_a_target_in_absolute_form_must_name_the_own_host(
    target: str, host: str, public: str, seen: str, small_server: SmallServer
) -> None:
    def echo(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        content = f"[{environ['HTTP_HOST']} {environ['PATH_INFO']} {environ['QUERY_STRING']}]".encode()
        start_response("200 OK", [("Content-Length", str(len(content)))])
        return [content]

    small_server.server.application, small_server.server.public_host = echo, public
    received = read_all(
        small_server.connect(LAST.replace(b" / ", f" {target} ".encode()).replace(b"Host: a", f"Host: {host}".encode()))
    )
    assert (f"[{seen}]".encode() in received) if seen else received.split()[1] == b"400"


def test_the_public_host_is_from_the_public_url() -> None:
    for url, host in (
        ("", ""),
        ("https://Chat.example/", "chat.example"),
        ("http://chat.example:8080", "chat.example:8080"),
    ):
        server = Server(lambda *_: [], listen("127.0.0.1", 0), Settings(public_url=url))
        server.run_until(lambda: True)
        assert server.public_host == host


# Expect: 100-continue.


@pytest.mark.parametrize("lines", [(), ("Content-Length: 0",)], ids=["no length", "length 0"])
def test_an_expectation_without_a_body_gets_its_response_at_once(
    lines: tuple[str, ...], small_server: SmallServer
) -> None:
    request = get("/", "Expect: 100-continue", *lines).replace(b"GET", b"POST")
    received = read_all(small_server.connect(request + LAST))
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"200", b"200"]
    assert small_server.started == 2


def test_the_header_of_a_request_with_an_expectation_never_joins_the_next_header(small_server: SmallServer) -> None:
    def echo(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        content = f"[{environ['PATH_INFO']} {environ.get('HTTP_WHO')}]".encode()
        start_response("200 OK", [("Content-Length", str(len(content)))])
        return [content]

    small_server.server.application = echo
    with small_server.connect(b"GET /first HTTP/1.1\r\nExpect: 100-continue\r\nX-Junk: ") as client:
        small_server.until(lambda: small_server.connections and small_server.connections[0].request)
        client.sendall(b"a\r\nHost: a\r\n\r\n")
        client.sendall(get("/second", "Who: bob", "Connection: close"))
        received = read_all(client)
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"200", b"200"]
    assert re.findall(rb"\[.*?]", received) == [b"[/first None]", b"[/second bob]"]


# Descriptors.


@pytest.mark.slow
def test_without_free_descriptors_accepting_is_paused(tmp_path: Path) -> None:
    fill(tmp_path / "data", chat())
    with serving(tmp_path / "data") as served, contextlib.ExitStack() as stack:
        assert served.call("GET", "/readyz").status == 200
        resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (64, 10_240))
        for _ in range(200):
            client = stack.enter_context(socket.create_connection((served.host, served.port), timeout=TIMEOUT))
            client.sendall(b"GET / HT")
        before, logged = processor_seconds(served.process.pid), len(served.errors)
        time.sleep(3)
        assert processor_seconds(served.process.pid) - before < 1.0
        assert len(served.errors) - logged < 10_000
        assert served.call("GET", "/healthz").status == 200
        assert "cannot accept a connection: Too many open files" in served.errors
        assert "Traceback" not in served.errors
        stack.close()
        assert {served.call("GET", "/readyz").status for _ in range(20)} == {200}
        assert served.stop() == 0


@pytest.mark.slow
def test_the_limit_of_descriptors_is_raised_as_far_as_allowed(tmp_path: Path) -> None:
    fill(tmp_path / "data", chat())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with serving(tmp_path / "data", "--workers", "2") as served:
            served.call("GET", "/healthz")
            for process in served.workers:
                assert resource.prlimit(process, resource.RLIMIT_NOFILE) == (min(hard, 10_240), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def processor_seconds(process: int) -> float:
    """The processor time of a process, in seconds."""
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / 100


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: a=b", "a\nb", "a\rb", "\ud800"])
def test_a_header_with_a_line_break_is_not_sent(
    small_server: LongPollServer, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    def respond(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Location", value), ("Content-Length", "2")])
        return [b"hi"]

    small_server.server.application = respond
    assert read_all(small_server.connect(get("/"))) == b""
    assert "a request failed" in caplog.text


def test_headers_are_sent_in_utf_8(small_server: LongPollServer) -> None:
    def respond(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Location", "/é"), ("Content-Length", "2")])
        return [b"hi"]

    small_server.server.application = respond
    assert "\r\nLocation: /é\r\n".encode() in read_all(small_server.connect(LAST))


@pytest.mark.parametrize(("average", "accepted"), [(math.inf, 64), (0, 4), (20, 24), (-9, 1)])
def test_a_worker_accepts_its_share_of_pending_connections(
    average: float, accepted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single worker accepts many at once; one of several accepts about as many as the others have on average."""
    monkeypatch.setattr(ConnectionCounts, "average_of_others", lambda _: average)
    monkeypatch.setattr(package, "IDLE_GRACE", 0.0)
    server = Server(lambda *_: [], listen("127.0.0.1", 0), Settings())
    with contextlib.ExitStack() as stack:
        for _ in range(70):
            stack.enter_context(socket.create_connection(server.socket.getsockname()))
        server.handle_accept()
        assert len(server.active_channels) == accepted
        server.run_until(lambda: True)


def test_a_worker_reads_the_average_number_of_connections_of_the_others() -> None:
    assert ConnectionCounts().average_of_others() == math.inf
    counts = ConnectionCounts(3)
    for worker, connections in enumerate((5, 9, 40)):
        counts.worker = worker
        counts.set(connections)
    assert counts.average_of_others() == 7
    counts.clear(0)
    assert counts.average_of_others() == 4.5
