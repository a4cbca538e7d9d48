"""Files as responses: they are read from the disk while the client reads."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from service.server.connection import MIN_FILE_RATE, READ_TIMEOUT, REQUEST_TIMEOUT, Connection
from service.server.memory_limits import MAX_BURST, MAX_UNSENT, UnsentFile
from tests.support.long_poll import LongPollServer

SIZE = 12 * 1024 * 1024
TIMEOUT = 60


class FileServer(LongPollServer):
    """A server whose application returns a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened: list[BinaryIO] = []
        super().__init__(2)

    def application(self, environ: dict[str, Any], start_response: Any) -> Any:
        if environ["PATH_INFO"] != "/file":
            return super().application(environ, start_response)
        self.opened.append(self.path.open("rb"))
        start_response("200 OK", [("Content-Length", str(self.path.stat().st_size))])
        return environ["wsgi.file_wrapper"](self.opened[-1])

    def get(self, path: str = "/file") -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n".encode())
        return client

    def connection(self) -> Connection:
        """The connection that a file is being sent to."""
        limit = time.monotonic() + TIMEOUT
        while time.monotonic() < limit:
            for channel in list(self.server.active_channels.values()):
                if channel.total_outbufs_len:
                    return channel  # type: ignore[no-any-return]
            time.sleep(0.005)
        raise AssertionError("no file is being sent")

    def wait_until_closed(self) -> None:
        limit = time.monotonic() + TIMEOUT
        while not (self.opened and self.opened[-1].closed):
            assert time.monotonic() < limit
            time.sleep(0.005)


@pytest.fixture
def file_server(tmp_path: Path) -> Iterator[FileServer]:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(SIZE))
    server = FileServer(path)
    yield server
    server.stop()


def read_all(client: socket.socket) -> bytes:
    found = bytearray()
    with client:
        while part := client.recv(65536):
            found += part
    return bytes(found.partition(b"\r\n\r\n")[2])


def test_file_is_sent_completely_and_closed(file_server: FileServer) -> None:
    assert read_all(file_server.get()) == file_server.path.read_bytes()
    file_server.wait_until_closed()


def test_file_takes_no_memory_while_the_client_reads_slowly(file_server: FileServer) -> None:
    with file_server.get() as client:
        assert file_server.connection().total_outbufs_len > SIZE // 2
        assert file_server.server.unsent_memory.available > MAX_UNSENT - 64 * 1024
        assert len(read_all(file_server.get("/other"))) > 0
        assert len(client.recv(1)) == 1


def test_file_is_closed_when_the_client_disconnects(file_server: FileServer) -> None:
    client = file_server.get()
    file_server.connection()
    client.close()
    file_server.wait_until_closed()


def test_file_that_became_shorter_ends_the_connection(file_server: FileServer) -> None:
    client = file_server.get()
    file_server.connection()
    os.truncate(file_server.path, 1024)
    assert len(read_all(client)) < SIZE
    file_server.wait_until_closed()


def test_file_may_take_the_time_that_its_size_needs(file_server: FileServer) -> None:
    with file_server.get():
        channel = file_server.connection()
        now = channel.since + REQUEST_TIMEOUT + SIZE / MIN_FILE_RATE
        channel.last_sent = now
        assert not channel.is_overdue(now - 1)
        assert channel.is_overdue(now + 1)
        channel.last_sent = channel.since
        assert channel.is_overdue(channel.since + READ_TIMEOUT + 1)


def test_fast_client_lets_others_have_their_turn(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3 * MAX_BURST))
    file = UnsentFile(path.open("rb"))
    turns = [0]
    while len(file):
        data = file.get(256 * 1024)
        if data:
            file.skip(len(data))
            turns[-1] += len(data)
        else:
            turns.append(0)
    file.close()
    assert turns == [MAX_BURST] * 3
