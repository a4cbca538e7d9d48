"""Connections: each step of a request has its time, there is room for one more client, and little is held for any.

With a small application in this process, and with the real server where descriptors and processor time are counted.
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

from service import metrics
from service import server as package
from service.edge import Route
from service.replies import Reply
from service.server import Server, connection, listen, reading
from service.server.unsent import Rest
from service.settings import Settings
from tests.serving import chat, fill, serving
from tests.test_waiting import HELLO, House, finished

BIG = bytes(8 * 1024 * 1024)
PATIENCE = 60


class Shop(House):
    """A server whose application tells how long the body was, answers with very much, or keeps its thread."""

    def __init__(self, threads: int = 1) -> None:
        self.goes_on = threading.Event()
        super().__init__(threads)

    def answer(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        if environ["PATH_INFO"].startswith("/wait/"):
            return super().answer(environ, start_response)
        self.begun += 1
        if environ["PATH_INFO"] == "/hold":
            self.goes_on.wait(PATIENCE)
        length = len(environ["wsgi.input"].read())
        told = BIG if environ["PATH_INFO"] == "/big" else f"{length};".encode() + HELLO
        start_response("200 OK", [("Content-Length", str(len(told)))])
        return [told]

    def connect(self, sent: bytes = b"") -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        client.sendall(sent)
        return client

    @property
    def connections(self) -> list[Any]:
        return list(self.server.active_channels.values())

    def until(self, condition: Callable[[], Any]) -> None:
        limit = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < limit
            self.server.pull_trigger()
            time.sleep(0.005)


@pytest.fixture
def shop() -> Iterator[Shop]:
    made = Shop(threads=2)
    yield made
    made.stop()


def everything(client: socket.socket) -> bytes:
    """What comes until the server closes."""
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


def answered(client: socket.socket, sent: bytes = get()) -> None:
    """Ask on a connection that stays open."""
    client.sendall(sent)
    found = b""
    while not found.endswith(HELLO):
        part = client.recv(65536)
        assert part, found
        found += part


# Time.


def head(length: int = 100_000) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % length


@pytest.mark.parametrize(
    ("sent", "seconds", "has_been_long_enough"),
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
def test_each_step_has_its_time(sent: bytes, seconds: float, has_been_long_enough: bool, shop: Shop) -> None:
    with shop.connect(sent) as client:
        shop.until(lambda: shop.connections)
        (one,) = shop.connections
        shop.until(lambda: not sent.strip() or one.is_aside or one.request)
        assert one.is_overdue(one.since + seconds) is has_been_long_enough
        assert client.fileno() >= 0


def receive(shop: Shop, one: Any, count: int) -> None:
    """Wait until so many bytes of a body have come, and the thread of the server is at something else."""
    shop.until(lambda: one.request and one.request.body_bytes_received >= count)
    assert everything(shop.connect(LAST)).endswith(HELLO)


def test_much_of_a_body_sent_at_once_does_not_buy_silence(shop: Shop) -> None:
    with shop.connect(head(8_000_000) + bytes(3_000_000)):
        shop.until(lambda: shop.connections)
        (one,) = shop.connections
        receive(shop, one, 3_000_000)
        assert one.due <= time.monotonic() + connection.SLACK
        assert not one.is_overdue(one.due - 0.1)
        assert one.is_overdue(one.due + 0.1)


def test_each_part_of_a_body_earns_time_at_the_least_rate(shop: Shop) -> None:
    with shop.connect(head()) as client:
        shop.until(lambda: shop.connections and shop.connections[0].request)
        (one,) = shop.connections
        receive(shop, one, 0)
        one.due = before = time.monotonic() + 1
        client.sendall(bytes(10 * connection.RATE))
        receive(shop, one, 10 * connection.RATE)
        assert one.due == pytest.approx(before + 10)


def test_body_has_its_time_however_fast_it_comes(shop: Shop) -> None:
    with shop.connect(head() + b"a"):
        shop.until(lambda: shop.connections and shop.connections[0].request)
        (one,) = shop.connections
        receive(shop, one, 1)
        one.due = math.inf
        assert not one.is_overdue(one.since + 299)
        assert one.is_overdue(one.since + 301)


def test_the_time_of_a_connection_that_was_answered_begins_anew(shop: Shop) -> None:
    with shop.connect() as client:
        answered(client)
        (one,) = shop.connections
        shop.until(one.is_idle)
        assert not one.is_overdue(one.moved + 74)
        assert one.is_overdue(max(one.moved, one.since) + 76)


def test_who_does_not_read_the_answer_has_its_time_too(shop: Shop) -> None:
    with shop.connect(get("/big")):
        shop.until(lambda: shop.connections and shop.connections[0].total_outbufs_len)
        (one,) = shop.connections
        shop.until(lambda: not one.requests)
        assert not one.is_overdue(max(one.moved, one.since) + 29)
        assert one.is_overdue(max(one.moved, one.since) + 31)
        one.moved = one.since + 301  # it has read all the time, and very slowly
        assert one.is_overdue(one.since + 301)


@pytest.mark.parametrize(
    ("step", "sent"), [("IDLE", b""), ("HEADER", b"GET / HT"), ("WHOLE", head() + b"a"), ("UNREAD", get("/big"))]
)
def test_when_the_time_is_over_the_connection_is_closed(
    step: str, sent: bytes, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, step, 0.05)
    monkeypatch.setattr(package, "LOOK", 0.01)
    with shop.connect(sent):
        if step == "UNREAD":
            shop.until(lambda: shop.begun)
        shop.until(lambda: not shop.connections)


def test_a_response_that_is_read_slowly_is_whole(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "LOOK", 0.01)
    shop.server.unsent.left = len(BIG)
    clients = [shop.connect(get("/big")) for _ in range(12)]
    shop.until(lambda: shop.begun == 12 and not any(one.requests for one in shop.connections))
    time.sleep(0.1)  # several looks
    found = [b""] * len(clients)
    while any(len(part) < len(BIG) for part in found):
        for number, client in enumerate(clients):
            if len(found[number]) < len(BIG):
                part = client.recv(512 * 1024)
                assert part, f"cut off after {len(found[number])} bytes"
                found[number] += part
    for client in clients:
        client.close()
    shop.until(lambda: shop.server.unsent.left == len(BIG))


def test_what_waits_in_memory_is_bounded_and_the_rest_waits_in_files(shop: Shop) -> None:
    shop.server.unsent.left = 3 * len(BIG)
    clients = [shop.connect(get("/big")) for _ in range(6)]
    shop.until(lambda: shop.begun == 6 and not any(one.requests for one in shop.connections))
    kept = [buffer for one in shop.connections for buffer in one.outbufs if len(buffer)]
    assert sorted(type(buffer).__name__ for buffer in kept) == ["Rest"] * 3 + ["TempfileBasedBuffer"] * 3
    assert sum(len(buffer) for buffer in kept if isinstance(buffer, Rest)) <= 3 * len(BIG)
    assert 0 <= shop.server.unsent.left < len(BIG)
    for client in clients:
        client.close()
    shop.until(lambda: shop.server.unsent.left == 3 * len(BIG))


def test_a_response_is_sent_from_where_it_lies() -> None:
    whole = bytes(range(256)) * 1024
    rest = Rest(memoryview(whole)[1:])
    found = b""
    while len(rest):
        piece = rest.get(1000)
        assert piece.obj is whole
        found += piece
        rest.skip(len(piece), True)
    assert found == whole[1:]


def test_who_is_to_get_more_than_the_disk_holds_is_cut_off_and_nobody_else(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    shop.server.unsent.left = 0
    with shop.connect() as other:
        answered(other)
        monkeypatch.setattr(TempfileBasedBuffer, "append", append)
        assert len(everything(shop.connect(get("/big")))) < len(BIG)
        answered(other)


# Room.


def test_a_new_client_is_taken_however_many_say_nothing(shop: Shop) -> None:
    shop.server.room = 20
    silent = [shop.connect(b"GET / HT" if number % 2 else b"") for number in range(100)]
    for _ in range(10):
        assert everything(shop.connect(LAST)).endswith(HELLO)
    assert len(shop.connections) <= 20
    for client in silent:
        client.close()


def test_who_has_asked_before_stays_longer_than_who_has_not(shop: Shop) -> None:
    shop.server.room = 20
    with shop.connect() as known, contextlib.ExitStack() as strangers:
        for _ in range(50):
            strangers.enter_context(shop.connect())
            answered(known)
        time.sleep(0.01)
        for _ in range(100):
            strangers.enter_context(shop.connect())
        assert everything(shop.connect(LAST)).endswith(HELLO)
        answered(known)


def test_who_waits_for_an_answer_is_not_closed_for_others(shop: Shop) -> None:
    shop.server.room = 20
    waiters = [shop.ask("/wait/20/news", who=str(number)) for number in range(19)]
    shop.settle(19)
    for _ in range(60):
        assert everything(shop.connect(LAST)).endswith(HELLO)
    shop.settle(19)
    shop.happen("news")
    assert [finished(waiter) for waiter in waiters] == [HELLO] * 19


def test_no_more_wait_than_leave_half_of_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "MOST", 20)
    shop = Shop()
    try:
        waiters = [shop.ask("/wait/20/news", who=str(number)) for number in range(10)]
        shop.settle(10)
        assert [finished(shop.ask("/wait/20/news", who=str(number))) for number in range(5)] == [HELLO] * 5
        shop.settle(10)
        shop.happen("news")
        assert [finished(waiter) for waiter in waiters] == [HELLO] * 10
    finally:
        shop.stop()


def test_a_client_that_goes_while_it_waits_makes_room_for_another(shop: Shop) -> None:
    shop.ask("/wait/20/nothing").close()
    shop.until(lambda: shop.begun)
    shop.settle(0)
    shop.until(lambda: not shop.connections)


def test_nothing_is_done_for_who_hung_up_before_the_turn_came(shop: Shop) -> None:
    with shop.connect(get("/hold")), shop.connect(get("/hold")):
        shop.until(lambda: shop.begun == 2)
        for _ in range(5):
            impatient = shop.connect(get())
            impatient.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            impatient.close()
        half_closed = shop.connect(get("/", "Connection: close"))
        half_closed.shutdown(socket.SHUT_WR)
        shop.until(lambda: len(shop.connections) == 8 and all(one.requests for one in shop.connections))
        shop.goes_on.set()
        assert everything(half_closed).endswith(HELLO)
        shop.until(lambda: len(shop.connections) == 2)
        assert shop.begun == 3


# Bytes.


def test_many_requests_at_once_are_answered_one_after_the_other(shop: Shop) -> None:
    client = shop.connect()
    many = b"".join(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % n + bytes(n) for n in range(200))
    client.sendall(many + LAST)
    told = everything(client)
    assert re.findall(rb"(\d+);hello", told) == [b"%d" % n for n in range(200)] + [b"0"]


def test_who_asks_and_asks_without_reading_gets_one_answer_at_a_time(shop: Shop) -> None:
    client = shop.connect(get("/big") * 500)
    shop.until(lambda: shop.connections and shop.connections[0].total_outbufs_len)
    (one,) = shop.connections
    shop.until(lambda: not one.requests)
    assert shop.begun == 1
    assert len(one.unread) <= 2 * 8192
    client.close()
    shop.until(lambda: not shop.connections)


# Bodies.


@pytest.fixture
def little_room(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Room for 100,000 bytes of large bodies, all of which is free again after the test."""
    with monkeypatch.context() as then:
        then.setattr(reading.body_room, "left", 100_000)
        yield 100_000
        for one in shop.connections:
            with contextlib.suppress(OSError):
                one.socket.shutdown(socket.SHUT_RD)
        shop.until(lambda: reading.body_room.left == 100_000)


def hold(shop: Shop, length: int, sent: int) -> tuple[socket.socket, Any]:
    """A client that sends a part of a body, and its connection."""
    before = set(shop.connections)
    client = shop.connect(head(length) + bytes(sent))
    shop.until(lambda: set(shop.connections) - before)
    (one,) = set(shop.connections) - before
    receive(shop, one, sent)
    return client, one


def is_refused(client: socket.socket) -> bool:
    told = everything(client)
    assert told.startswith(b"HTTP/1.1 503") and b'"storage_unavailable"' in told and b"Retry-After" in told
    return b"Connection: close\r\n" in told


def test_small_body_finds_room_when_there_is_none_for_large_ones(shop: Shop, little_room: int) -> None:
    reading.body_room.take(little_room)
    small, large = reading.SMALL_BODY, reading.SMALL_BODY + 1
    assert b"%d;hello" % small in everything(shop.connect(head(small) + bytes(small) + LAST))
    before = shop.begun
    assert is_refused(shop.connect(head(large) + bytes(large)))
    assert shop.begun == before
    reading.body_room.take(-little_room)


def test_bodies_of_all_clients_are_bounded_and_the_slowest_makes_room(shop: Shop, little_room: int) -> None:
    (slow, one), (slower, other) = hold(shop, 90_000, 60_000), hold(shop, 90_000, 70_000)
    one.progressed, other.progressed = time.monotonic() - 1, time.monotonic() - 5
    new = shop.connect(head(60_000) + bytes(59_999))
    assert is_refused(slower)
    answered(new, b"a")
    shop.until(lambda: reading.body_room.left == little_room - one.request.held)
    answered(slow, bytes(30_000))
    new.close()
    slow.close()


def test_of_bodies_that_are_equally_slow_the_largest_makes_room(shop: Shop, little_room: int) -> None:
    (small, one), (large, other) = hold(shop, 90_000, 40_000), hold(shop, 90_000, 85_000)
    one.progressed = other.progressed = time.monotonic() - 5
    new = shop.connect(head(60_000) + bytes(59_999))
    assert is_refused(large)
    answered(new, b"a")
    shop.until(lambda: reading.body_room.left == little_room - one.request.held)
    answered(small, bytes(50_000))
    new.close()
    small.close()


def test_body_that_needs_more_than_all_the_room_is_refused_itself(shop: Shop, little_room: int) -> None:
    assert is_refused(shop.connect(head(200_000) + bytes(200_000)))


def test_room_is_free_again_when_a_client_goes(shop: Shop, little_room: int) -> None:
    client, _ = hold(shop, 90_000, 80_000)
    assert reading.body_room.left == little_room - 80_000 + reading.SMALL_BODY
    client.close()
    shop.until(lambda: reading.body_room.left == little_room)
    assert b"90000;hello" in everything(shop.connect(head(90_000) + bytes(90_000) + LAST))


@pytest.fixture
def strict(shop: Shop) -> Shop:
    """Takes 20,000 bytes at every address, as if an operation declared that."""
    answer = shop.answer

    def judge(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        if int(environ.get("CONTENT_LENGTH", "0")) <= 20_000:
            return answer(environ, start_response)
        start_response("413 Content Too Large", [("Content-Length", "5")])
        return [b"large"]

    shop.server.application = judge
    shop.server.find = lambda _, path: Route(path, lambda _: Reply(200), SimpleNamespace(most=20_000, runs="slow"))  # type: ignore[arg-type]
    return shop


def chunks(count: int) -> bytes:
    return (b"2710\r\n" + bytes(10_000) + b"\r\n") * count


TOO_LARGE = {
    "sized": head(20_001),
    "expected": head(20_001).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"),
    "sized by thousands of digits": head(10**3_000),
    "in chunks": CHUNKED + chunks(2) + b"1\r\na",
}


@pytest.mark.parametrize("sent", TOO_LARGE.values(), ids=TOO_LARGE)
def test_body_over_the_limit_of_its_operation_is_refused_before_it_has_come(sent: bytes, strict: Shop) -> None:
    told = everything(strict.connect(sent))
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"413"]
    assert b"Connection: close\r\n" in told


@pytest.mark.parametrize(
    "sent", [head(20_000) + bytes(20_000), CHUNKED + chunks(2) + b"0\r\n\r\n"], ids=["sized", "in chunks"]
)
def test_body_as_large_as_the_limit_is_taken(sent: bytes, strict: Shop) -> None:
    assert b"20000;hello" in everything(strict.connect(sent + LAST))


@pytest.mark.parametrize(
    "sent", [head(30_000_000) + bytes(30_000_000), CHUNKED + chunks(3_000)], ids=["sized", "in chunks"]
)
def test_client_that_sends_all_of_a_refused_body_reads_the_response(sent: bytes, strict: Shop) -> None:
    client = strict.connect(sent)
    assert everything(client).split()[1] == b"413"
    strict.until(lambda: not strict.connections)


def test_requests_that_follow_a_refused_body_are_not_answered(strict: Shop) -> None:
    told = everything(strict.connect(head(20_001) + get() + get()))
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"413"]
    assert strict.begun == 0


def test_refused_body_is_discarded_for_as_long_as_others_have_time(strict: Shop) -> None:
    with strict.connect(head(30_000_000) + bytes(1_000_000)):
        strict.until(lambda: strict.connections and strict.connections[0].discarded >= 1_000_000)
        (one,) = strict.connections
        assert one.due <= time.monotonic() + connection.SLACK
        assert one.is_overdue(one.due + 0.1)
        assert not one.is_overdue(one.due - 0.1)


def test_no_more_of_a_refused_body_is_discarded_than_some(strict: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "DISCARDED", 100_000)
    client = strict.connect()
    with contextlib.suppress(ConnectionError):
        client.sendall(head(30_000_000) + bytes(30_000_000))
    everything(client)
    strict.until(lambda: not strict.connections)


# What is not HTTP, or could be read in two ways.

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


def shown(text: Any) -> str:
    return repr(text if isinstance(text, int) or len(text) < 90 else text[:60] + b"..." + text[-20:])


@pytest.mark.parametrize("malformed", MALFORMED, ids=shown)
def test_what_is_malformed_or_ambiguous_is_refused_and_the_connection_closed(malformed: bytes, shop: Shop) -> None:
    told = everything(shop.connect(malformed + LAST))
    (answer,) = re.split(rb"(?=HTTP/1\.\d \d)", told)[1:]
    assert answer.split()[1] == b"400"
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "bad_request"
    assert b"Connection: close\r\n" in answer
    assert shop.begun == 0


def test_more_fields_than_anybody_needs_are_too_much(shop: Shop) -> None:
    assert everything(shop.connect(get("/", *["A: 1"] * 99, "Connection: close"))).split()[1] == b"431"
    assert everything(shop.connect(get("/", *["A: 1"] * 98, "Connection: close"))).split()[1] == b"200"


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
    ids=shown,
)
@pytest.mark.parametrize("pieces", [1, 1000])
def test_what_is_by_the_letter_is_answered(sent: bytes, length: int, pieces: int, shop: Shop) -> None:
    client = shop.connect()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    step = max(1, len(sent) // pieces)
    for start in range(0, len(sent), step):
        client.sendall(sent[start : start + step])
    assert b"%d;hello" % length in everything(client)


@pytest.mark.parametrize("value", ["close", "close, x", "x ,\tCLOSE", "keep-alive, close"])
def test_connection_is_closed_if_close_is_among_the_words_of_the_header(value: str, shop: Shop) -> None:
    told = everything(shop.connect(get("/", f"Connection: {value}") + get()))
    assert told.count(HELLO) == 1
    assert b"Connection: close\r\n" in told


def test_other_words_keep_the_connection(shop: Shop) -> None:
    old = get("/", "Connection: x, Keep-Alive").replace(b"HTTP/1.1", b"HTTP/1.0")
    assert everything(shop.connect(get("/", "Connection: closed, x") + old + LAST)).count(HELLO) == 3


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
def test_target_in_absolute_form_is_served_for_the_own_host_only(
    target: str, host: str, public: str, seen: str, shop: Shop
) -> None:
    def echo(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        told = f"[{environ['HTTP_HOST']} {environ['PATH_INFO']} {environ['QUERY_STRING']}]".encode()
        start_response("200 OK", [("Content-Length", str(len(told)))])
        return [told]

    shop.server.application, shop.server.public_host = echo, public
    told = everything(
        shop.connect(LAST.replace(b" / ", f" {target} ".encode()).replace(b"Host: a", f"Host: {host}".encode()))
    )
    assert (f"[{seen}]".encode() in told) if seen else told.split()[1] == b"400"


def test_public_host_is_the_one_of_the_setting() -> None:
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
def test_expectation_without_a_body_is_answered_at_once(lines: tuple[str, ...], shop: Shop) -> None:
    asked = get("/", "Expect: 100-continue", *lines).replace(b"GET", b"POST")
    told = everything(shop.connect(asked + LAST))
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"200", b"200"]
    assert shop.begun == 2


def test_header_of_a_request_with_an_expectation_never_joins_the_next_header(shop: Shop) -> None:
    def echo(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        told = f"[{environ['PATH_INFO']} {environ.get('HTTP_WHO')}]".encode()
        start_response("200 OK", [("Content-Length", str(len(told)))])
        return [told]

    shop.server.application = echo
    with shop.connect(b"GET /first HTTP/1.1\r\nExpect: 100-continue\r\nX-Junk: ") as client:
        shop.until(lambda: shop.connections and shop.connections[0].request)
        client.sendall(b"a\r\nHost: a\r\n\r\n")
        client.sendall(get("/second", "Who: bob", "Connection: close"))
        told = everything(client)
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"200", b"200"]
    assert re.findall(rb"\[.*?]", told) == [b"[/first None]", b"[/second bob]"]


# Descriptors.


@pytest.mark.slow
def test_without_descriptors_it_rests_and_goes_on_when_there_are_some(tmp_path: Path) -> None:
    fill(tmp_path / "data", chat())
    with serving(tmp_path / "data") as served, contextlib.ExitStack() as crowd:
        assert served.call("GET", "/readyz").status == 200
        resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (64, 10_240))
        for _ in range(200):
            client = crowd.enter_context(socket.create_connection((served.host, served.port), timeout=PATIENCE))
            client.sendall(b"GET / HT")
        before, written = spent(served.process.pid), len(served.errors)
        time.sleep(3)
        assert spent(served.process.pid) - before < 1.0
        assert len(served.errors) - written < 10_000
        assert served.call("GET", "/healthz").status == 200
        assert "cannot take a connection: Too many open files" in served.errors
        assert "Traceback" not in served.errors
        crowd.close()
        assert {served.call("GET", "/readyz").status for _ in range(20)} == {200}
        assert served.stop() == 0


@pytest.mark.slow
def test_it_takes_the_descriptors_that_it_may_have(tmp_path: Path) -> None:
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


def spent(process: int) -> float:
    """Seconds of processor time."""
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / 100


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: a=b", "a\nb", "a\rb", "\ud800"])
def test_no_header_is_made_of_another(shop: House, value: str, caplog: pytest.LogCaptureFixture) -> None:
    def answer(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Location", value), ("Content-Length", "2")])
        return [b"hi"]

    shop.server.application = answer
    assert everything(shop.connect(get("/"))) == b""
    assert "a request failed" in caplog.text


def test_what_is_not_ascii_in_a_header_goes_out_as_utf_8(shop: House) -> None:
    def answer(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Location", "/é"), ("Content-Length", "2")])
        return [b"hi"]

    shop.server.application = answer
    assert "\r\nLocation: /é\r\n".encode() in everything(shop.connect(LAST))


@pytest.mark.parametrize(("elsewhere", "taken"), [(math.inf, 64), (0, 4), (20, 24), (-9, 1)])
def test_of_many_that_come_at_once_a_worker_takes_its_share(
    elsewhere: float, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, many in one turn, so that none waits for the answers to others; else about as many as others have."""
    monkeypatch.setattr(metrics.board, "elsewhere", lambda: elsewhere)
    monkeypatch.setattr(package, "GRACE", 0.0)
    server = Server(lambda *_: [], listen("127.0.0.1", 0), Settings())
    with contextlib.ExitStack() as stack:
        for _ in range(70):
            stack.enter_context(socket.create_connection(server.socket.getsockname()))
        server.handle_accept()
        assert len(server.active_channels) == taken
        server.run_until(lambda: True)


def test_a_worker_knows_how_many_connections_another_has_on_average() -> None:
    board = metrics.Board(3)
    assert metrics.Board().elsewhere() == metrics.Board(1).elsewhere() == math.inf
    for process, connections in ((70_001, 5), (70_002, 9), (70_003, 40)):
        seat = board.free_seat()
        board.sit(seat, process)
        board.sit(seat, 0)  # as it is in the worker itself
        board.tell(connections, 0, 0)
    assert board.elsewhere() == 7
