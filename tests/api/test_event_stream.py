"""Event streams of a server: they hold no thread, and end with their time, the client or the server."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import peewee
import pytest

from service import clock
from service.api import long_poll
from service.api.event_stream import BEGIN, HEARTBEAT, EventStream, event
from service.errors import InvalidToken
from tests.support.long_poll import HELLO, LongPollServer, read_body

TOPIC, CALLER = "news", "caller"
FIRST = event("changes", {"number": 0})
LIMIT = 60  # seconds until a test fails


class FakeStream(EventStream):
    """A stream that counts its reads, and returns or raises what the test sets."""

    def __init__(self, caller: str = CALLER) -> None:
        self.caller, self.topics, self.until = caller, frozenset({TOPIC}), clock.now() + clock.HOUR
        self.first = BEGIN + FIRST
        self.reads = 0
        self.returned: list[bytes | Exception] = []

    def read(self) -> bytes:
        self.reads += 1
        result = self.returned.pop(0) if self.returned else b""
        if isinstance(result, Exception):
            raise result
        return result


class StreamServer(LongPollServer):
    """A server with one thread, whose application opens a stream for every request."""

    def __init__(self) -> None:
        self.streams: list[FakeStream] = []
        self.opened: list[RawStream] = []
        super().__init__()

    def application(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        if environ["PATH_INFO"] == "/":
            return super().application(environ, start_response)
        stream = FakeStream(environ["PATH_INFO"])
        self.streams.append(stream)
        environ["cx.open_stream"](stream)
        start_response("200 OK", [("Content-Type", "text/event-stream")])
        return [stream.first]

    def open(self, caller: str = CALLER, version: str = "1.1") -> "RawStream":
        self.opened.append(RawStream(self.port, caller, version))
        return self.opened[-1]

    def wait_for_reads(self, number: int, count: int) -> None:
        """Wait until a stream was read this often."""
        wait_until(lambda: len(self.streams) > number and self.streams[number].reads >= count)

    def count(self) -> int:
        return self.server.suspended.count()


class RawStream:
    """The bytes of a stream."""

    def __init__(self, port: int, caller: str, version: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
        self.socket.sendall(f"GET /{caller} HTTP/{version}\r\nHost: a\r\n\r\n".encode())
        self.received = b""

    def wait_for(self, expected: bytes, count: int = 1) -> None:
        while self.received.count(expected) < count:
            piece = self.socket.recv(65536)
            assert piece, self.received
            self.received += piece

    def read_to_end(self) -> bytes:
        while piece := self.socket.recv(65536):
            self.received += piece
        return self.received


def wait_until(condition: Any) -> None:
    limit = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.005)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "cx.server"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StreamServer]:
    monkeypatch.setattr(long_poll, "POLL_INTERVAL", 0.02)
    monkeypatch.setattr(long_poll, "IDLE_POLLS", 25)
    monkeypatch.setattr(long_poll.db, "is_unavailable", lambda error: isinstance(error, peewee.OperationalError))
    monkeypatch.setattr(long_poll.db, "snapshot", contextlib.nullcontext)
    made = StreamServer()
    yield made
    made.stop()
    for stream in made.opened:
        stream.socket.close()


def test_a_stream_is_a_chunked_response_that_the_server_closes(server: StreamServer) -> None:
    stream = server.open()
    server.wait_for_reads(0, 1)
    server.stop()
    head, _, body = stream.read_to_end().partition(b"\r\n\r\n")
    fields = head.decode().split("\r\n")[1:]
    assert {"Transfer-Encoding: chunked", "Connection: close"} <= set(fields)
    assert not [field for field in fields if field.startswith("Content-Length")]
    assert body == b"%x\r\n%s\r\n0\r\n\r\n" % (len(BEGIN + FIRST), BEGIN + FIRST)


def test_a_stream_in_http_1_0_ends_with_the_connection(server: StreamServer) -> None:
    stream = server.open(version="1.0")
    server.wait_for_reads(0, 1)
    server.stop()
    head, _, body = stream.read_to_end().partition(b"\r\n\r\n")
    assert b"chunked" not in head and body == BEGIN + FIRST


def test_streams_occupy_no_thread(server: StreamServer) -> None:
    before = threading.active_count()
    streams = [server.open(str(number)) for number in range(50)]
    for stream in streams:
        stream.wait_for(FIRST)
    wait_until(lambda: server.count() == 50)
    assert read_body(server.request("/")) == HELLO
    assert threading.active_count() <= before + 1  # the one that polls for changes
    for number in range(50):
        server.wait_for_reads(number, 1)  # for changes during the first response
    assert [stream.reads for stream in server.streams] == [1] * 50
    for stream in server.streams:
        stream.returned = [event("changes", {"number": 1})]
    server.changes.topics = {TOPIC}
    for stream in streams:
        stream.wait_for(b'data: {"number":1}\n\n')


def test_a_stream_is_read_again_while_it_has_more(server: StreamServer) -> None:
    stream = server.open()
    server.wait_for_reads(0, 1)
    fake = server.streams[0]
    fake.returned, fake.has_more = [b"data: 1\n\n", b"data: 2\n\n"], True
    server.changes.topics = {TOPIC}
    stream.wait_for(b"data: 2\n\n")
    fake.has_more = False
    wait_until(lambda: not server.changes.topics)
    assert stream.received.index(b"data: 1\n\n") < stream.received.index(b"data: 2\n\n")


def test_silent_streams_get_heartbeats(server: StreamServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_poll, "HEARTBEAT_INTERVAL", 0.05)
    stream = server.open()
    stream.wait_for(HEARTBEAT, 3)
    assert server.streams[0].reads == 1


def test_a_stream_ends_when_its_time_is_over(server: StreamServer) -> None:
    stream = server.open()
    server.wait_for_reads(0, 1)
    server.streams[0].until = clock.now()
    assert stream.read_to_end().endswith(b"0\r\n\r\n")
    assert server.count() == 0


def test_a_stream_ends_with_the_login(server: StreamServer, caplog: pytest.LogCaptureFixture) -> None:
    stream = server.open()
    server.wait_for_reads(0, 1)
    server.streams[0].returned = [InvalidToken()]
    server.changes.topics = {TOPIC}
    assert stream.read_to_end().endswith(b"0\r\n\r\n")
    assert server.count() == 0 and logged(caplog) == []


def test_a_stream_that_fails_ends_alone(server: StreamServer, caplog: pytest.LogCaptureFixture) -> None:
    failing, other = server.open(), server.open()
    server.wait_for_reads(0, 1)
    server.wait_for_reads(1, 1)
    server.streams[0].returned, server.streams[1].returned = [ZeroDivisionError()], [b"data: 1\n\n"]
    server.changes.topics = {TOPIC}
    wait_until(lambda: server.count() == 1 and not server.streams[1].returned)
    server.stop()
    assert logged(caplog) == ["an event stream failed"]
    assert sorted(stream.read_to_end().count(b"data: 1\n\n") for stream in (failing, other)) == [0, 1]


def test_events_are_read_again_after_the_database_was_unavailable(
    server: StreamServer, caplog: pytest.LogCaptureFixture
) -> None:
    stream = server.open()
    server.wait_for_reads(0, 1)
    server.streams[0].returned = [peewee.OperationalError("the database is away"), b"data: 1\n\n"]
    server.changes.topics = {TOPIC}
    stream.wait_for(b"data: 1\n\n")
    assert "cannot poll for changes: the database is away" in caplog.text


def test_the_stream_of_a_disconnected_client_is_removed(server: StreamServer) -> None:
    stream = server.open()
    server.wait_for_reads(0, 1)
    stream.socket.close()
    wait_until(lambda: server.count() == 0 and not server.server.active_channels)


def test_events_after_a_disconnect_are_dropped(server: StreamServer) -> None:
    """The thread that reads them may not have noticed it yet."""
    stream = server.open()
    server.wait_for_reads(0, 1)
    [connection] = server.server.active_channels.values()
    stream.socket.close()
    wait_until(lambda: not server.server.active_channels)
    connection.send_events(HEARTBEAT)
    connection.end_events()
    assert not connection.total_outbufs_len


def test_a_slow_client_takes_limited_memory(server: StreamServer) -> None:
    """Further events are read when it has read the previous ones."""
    stream = server.open()
    server.wait_for_reads(0, 1)
    fake, large = server.streams[0], b"data: " + bytes(4_000_000).replace(b"\0", b"x") + b"\n\n"
    fake.returned, fake.has_more = [large, large, large, b"data: end\n\n"], True
    server.changes.topics = {TOPIC}
    server.wait_for_reads(0, 2)
    polls = server.changes.polls
    wait_until(lambda: server.changes.polls > polls + 20)
    assert fake.reads == 2
    stream.wait_for(b"data: end\n\n")


def test_streams_over_the_limits_end_after_the_first_events(
    server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_poll, "MAX_PER_CALLER", 2)
    for number in range(2):
        server.open()
        server.wait_for_reads(number, 1)
    assert server.open().read_to_end().endswith(FIRST + b"\r\n0\r\n\r\n")
    monkeypatch.setattr(server.server.suspended, "_limit", 3)
    server.open("another")
    server.wait_for_reads(3, 1)
    assert server.open("late").read_to_end().endswith(FIRST + b"\r\n0\r\n\r\n")
    assert server.count() == 3


def test_a_stopping_server_ends_all_streams_and_opens_no_more(server: StreamServer) -> None:
    streams = [server.open(str(number)) for number in range(5)]
    for number in range(5):
        server.wait_for_reads(number, 1)
    server.stop()
    for stream in streams:
        assert stream.read_to_end().endswith(b"0\r\n\r\n")
    assert server.count() == 0
