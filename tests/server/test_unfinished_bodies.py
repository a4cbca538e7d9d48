"""Unfinished bodies of many clients, at the real server and behind proxies: other clients still get responses."""

import contextlib
import http.client
import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support import postgres
from tests.support.cluster import caddy, daemon, find, unprivileged_folder
from tests.support.passwords import PASSWORD
from tests.support.server_process import TIMEOUT, Served, chat, fill, send_request, serving

HOLDERS = 200  # connections with an unfinished body
HELD = 600 * 1024  # bytes that each of them has sent; in total more than the memory limit of a process
HUGE = 8 * 1024 * 1024  # bytes that a few clients have sent; more than the operation accepts
LOGINS = 10
LOGIN = json.dumps({"email": "alice@example.com", "password": PASSWORD}).encode().ljust(16 * 1024)
JSON = {"Content-Type": "application/json"}
HEAD = "POST /api/v1/feedback HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n{begin}"

pytestmark = [pytest.mark.extended, pytest.mark.sqlite_only("the same on both databases"), pytest.mark.database]


@contextlib.contextmanager
def direct(server: Served) -> Iterator[int]:
    yield server.port


@contextlib.contextmanager
def haproxy(server: Served) -> Iterator[int]:
    program, port = find("haproxy", "haproxy"), postgres.free_port()
    configuration = f"""
        defaults
            mode http
            timeout connect 5s
            timeout client 70s
            timeout server 70s
        listen chat
            bind 127.0.0.1:{port}
            server service 127.0.0.1:{server.port}
    """
    with unprivileged_folder("haproxy") as folder:
        (folder / "haproxy.cfg").write_text(configuration + "\n")
        with daemon(folder, program, "-db", "-f", folder / "haproxy.cfg", port=port):
            yield port


FRONTS: list[Callable[[Served], Any]] = [direct, caddy, haproxy]


def hold(port: int, number: int, count: int = HELD) -> socket.socket:
    """A connection that has sent a part of a body, with a length or in chunks, and then stays silent."""
    client = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
    begin = "Transfer-Encoding: chunked\r\n\r\n1000000\r\n" if number % 2 else f"Content-Length: {count + 1}\r\n\r\n"
    with contextlib.suppress(ConnectionError):  # the server closed it early
        client.sendall(HEAD.format(port=port, begin=begin).encode() + bytes(count))
    return client


def is_open(client: socket.socket) -> bool:
    """Whether no response was sent."""
    client.setblocking(False)
    try:
        client.recv(1)
    except BlockingIOError:
        return True
    except ConnectionError:
        pass
    return False


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("front", FRONTS, ids=lambda front: front.__name__)
def test_logins_and_uploads_succeed_beside_many_unfinished_bodies(
    front: Callable[[Served], Any], workers: int, tmp_path: Path
) -> None:
    fill(tmp_path / "data", chat())
    with (
        serving(tmp_path / "data", "--workers", str(workers)) as server,
        front(server) as port,
        contextlib.ExitStack() as stack,
    ):
        token = server.log_in()
        holders = [hold(port, 0, HUGE) for _ in range(8 * workers)]
        with ThreadPoolExecutor(20) as pool:
            holders += pool.map(lambda number: hold(port, number), range(HOLDERS - len(holders)))
        for client in holders:
            stack.enter_context(client)

        def call(path: str, body: bytes) -> int:
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)) as connection:
                return send_request(connection, "POST", path, body, token, headers=JSON).status

        assert sum(map(is_open, holders)) > HOLDERS // 4  # as many as the memory limit allows
        assert [call("/api/v1/auth/login", LOGIN) for _ in range(LOGINS)] == [200] * LOGINS
        large = json.dumps({"description": "It is slow."}).encode().ljust(500_000)
        assert [call("/api/v1/feedback", large) for _ in range(LOGINS)] == [201] * LOGINS
        assert "Traceback" not in server.errors
