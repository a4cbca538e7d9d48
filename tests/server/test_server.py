"""The real server in its own process: HTTP over sockets, signals and workers."""

import contextlib
import functools
import http.client
import json
import os
import platform
import re
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.server import DRAIN_TIMEOUT
from tests.support import server_process
from tests.support.cluster import accepts_connections, until
from tests.support.passwords import PASSWORD
from tests.support.postgres import free_port
from tests.support.raw_http import MALFORMED_REQUESTS, MESSAGES, Caller, envelope, raw
from tests.support.server_process import (
    ALICE,
    PROGRAM,
    Served,
    chat,
    command,
    database_variables,
    environment,
    fill,
    send_request,
)

pytestmark = [pytest.mark.slow, pytest.mark.database]

serving = functools.partial(server_process.serving, CX_SHARE_FOLDER="true")  # all servers of this module use one folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with Alice and her chat."""
    folder = tmp_path_factory.mktemp("served") / "data"
    fill(folder, chat(30))
    return folder


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[Served]:
    with serving(data) as running:
        yield running


@pytest.fixture(scope="module")
def token(server: Served) -> str:
    return server.log_in()


# HTTP.


def test_requests_are_processed(server: Served, token: str) -> None:
    page = server.call("GET", f"{MESSAGES}?limit=2", token=token)
    assert (page.status, page.meta["total"], len(page.data)) == (200, 30, 2)
    assert page.headers["Content-Type"] == "application/json"
    assert "Server" not in page.headers


@pytest.mark.parametrize(("path", "status"), [("/healthz", "ok"), ("/readyz", "ready")])
def test_health_and_readiness_are_reported(path: str, status: str, server: Served) -> None:
    assert server.call("GET", path).data["status"] == status


def test_head_is_get_without_the_body(server: Served, token: str) -> None:
    get, head = (server.call(method, f"{MESSAGES}?limit=2", token=token) for method in ("GET", "HEAD"))
    assert (head.status, head.raw) == (200, b"")
    assert head.headers["Content-Length"] == get.headers["Content-Length"] == str(len(get.raw))


def test_options_lists_the_methods(server: Served) -> None:
    reply = server.call("OPTIONS", MESSAGES)
    assert (reply.status, reply.raw) == (204, b"")
    assert {"GET", "HEAD", "OPTIONS"} <= set(reply.headers["Allow"].split(", "))
    assert "Content-Length" not in reply.headers or reply.headers["Content-Length"] == "0"


def test_connections_are_kept_alive(server: Served, token: str) -> None:
    with contextlib.closing(server.connect()) as connection:
        statuses = [
            send_request(connection, "GET", MESSAGES, token=token).status,
            send_request(connection, "GET", "/nowhere").status,
            send_request(connection, "HEAD", MESSAGES, token=token).status,
            send_request(connection, "OPTIONS", MESSAGES).status,
            send_request(connection, "POST", "/api/v1/auth/login", b"{").status,
            send_request(connection, "GET", MESSAGES).status,
        ]
        assert connection.sock is not None
    assert statuses == [200, 404, 200, 204, 400, 401]


@pytest.mark.parametrize("garbage", MALFORMED_REQUESTS, ids=repr)
def test_malformed_http_gets_400_in_the_envelope(garbage: bytes, server: Served) -> None:
    status, headers, body = raw(server, garbage)
    assert (status, envelope(body)) == (400, "bad_request")
    assert headers["content-type"] == "application/json"
    assert headers["x-request-id"]
    assert headers["connection"] == "close"
    assert b"waitress" not in body.lower()


def test_clients_that_disconnect_without_reading_do_not_affect_others(data: Path) -> None:
    with serving(data) as server:
        for _ in range(50):
            with socket.create_connection((server.host, server.port)) as client:
                client.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
                client.recv(1)  # the response has arrived; closing resets the connection
        assert server.call("GET", "/healthz").status == 200
        assert "Traceback" not in server.errors
        assert server.stop() == 0


def test_a_header_that_is_too_large_gets_431_in_the_envelope(server: Served) -> None:
    status, headers, body = raw(server, b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Long: " + b"a" * 40_000 + b"\r\n\r\n")
    assert (status, envelope(body)) == (431, "headers_too_large")
    assert headers["x-request-id"]


@pytest.mark.parametrize("how", ["length", "chunked"])
def test_a_body_over_the_limit_gets_413_that_the_client_can_read(how: str, server: Served) -> None:
    body = b'{"email": "' + b"a" * 2**21 + b'"}'
    content: Any = body if how == "length" else (body[start : start + 9999] for start in range(0, len(body), 9999))
    reply = server.call("POST", "/api/v1/auth/login", content, encode_chunked=how == "chunked")
    assert reply.status == 413
    assert envelope(reply.raw) == "body_too_large"


def test_a_chunked_body_is_decoded(server: Served) -> None:
    login = json.dumps({"email": "alice@example.com", "password": PASSWORD}).encode()
    chunks = (login[place : place + 7] for place in range(0, len(login), 7))
    reply = server.call("POST", "/api/v1/auth/login", chunks, encode_chunked=True)
    assert reply.data["user"]["id"] == ALICE


def test_responses_to_pipelined_requests_are_in_order(server: Served) -> None:
    paths = [b"/healthz", b"/nowhere", b"/readyz"]
    lines = [b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path for path in paths]
    lines[-1] = lines[-1].replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with socket.create_connection((server.host, server.port), timeout=60) as connection:
        connection.sendall(b"".join(lines))
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"200", b"404", b"200"]


def test_half_open_connections_do_not_block_others(server: Served) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            slow = stack.enter_context(socket.create_connection((server.host, server.port), timeout=60))
            slow.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
        assert server.call("GET", "/healthz").status == 200


def test_the_log_has_a_line_with_the_request_id_and_never_a_token(server: Served, token: str) -> None:
    reply = server.call("GET", f"{MESSAGES}?limit=1", token=token, headers={"X-Request-ID": "log-me"})
    assert reply.headers["X-Request-ID"] == "log-me"
    (line,) = server.logged("log-me")
    assert f"GET {MESSAGES} 200" in line
    assert token not in server.errors and PASSWORD not in server.errors


# Start.


def test_a_port_in_use_is_reported_in_one_line_with_status_1(server: Served, tmp_path: Path) -> None:
    done = command("serve", "--port", server.port, "--data", tmp_path / "data")
    assert (done.returncode, done.stdout) == (1, b"")
    expected = f"cx-service: cannot listen on 127.0.0.1:{server.port}: Address already in use\n"
    assert done.stderr.decode() == expected


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--port", "99999"), r"cannot listen on 127.0.0.1:99999: .+"),
        (("--host", "192.0.2.1"), r"cannot listen on 192.0.2.1:0: Cannot assign requested address"),
        (("--host", "no.such.host.invalid"), r"cannot listen on no.such.host.invalid:0: .+"),
        (("--workers", "0"), r"--workers and --threads must be at least 1"),
        (("--threads", "-1"), r"--workers and --threads must be at least 1"),
    ],
)
def test_a_failed_start_is_reported_in_one_line(arguments: tuple[str, ...], line: str, tmp_path: Path) -> None:
    done = command("serve", "--port", "0", *arguments, "--data", tmp_path / "data")
    assert (done.returncode, done.stdout) == (1, b"")
    assert re.fullmatch(rf"cx-service: {line}\n", done.stderr.decode())


def test_an_invalid_public_url_is_reported_in_one_line_and_creates_nothing(tmp_path: Path) -> None:
    done = command("serve", "--port", "0", "--data", tmp_path / "data", "--public-url", "https://chat.example/sub")
    assert (done.returncode, done.stdout) == (1, b"")
    assert re.fullmatch(r"cx-service: --public-url must be http:// or https://[^\n]+\n", done.stderr.decode())
    assert not (tmp_path / "data").exists()


def test_the_first_log_line_has_the_bound_address_and_the_public_url(data: Path) -> None:
    with serving(data, "--public-url", "https://chat.example/") as server:
        assert (
            f"cx-service listens on http://127.0.0.1:{server.port} (public URL https://chat.example)\n" in server.errors
        )
        assert server.call("GET", "/healthz").status == 200


def test_documented_only_serves_the_documented_operations_and_those_for_operators(data: Path) -> None:
    with serving(data, "--documented-only") as server:
        assert server.log_in()
        assert server.call("POST", "/api/v1/auth/refresh", {"refresh_token": "x"}).error == (404, "not_found")
        assert server.call("POST", "/api/v1/auth/logout", {}).error == (404, "not_found")
        assert [server.call("GET", path).status for path in ("/healthz", "/readyz")] == [200, 200]


def test_two_servers_share_one_database(data: Path, server: Served, token: str) -> None:
    with serving(data) as second:
        first = server.call("GET", f"{MESSAGES}?limit=1", token=token)
        message = first.data[0]["id"]
        other_token = second.log_in()
        for one, bearer in ((second, token), (server, other_token)):
            assert one.call("POST", f"{MESSAGES}/{message}/pin", token=bearer).data == {"pinned": True}
            assert one.call("DELETE", f"{MESSAGES}/{message}/pin", token=bearer).data == {"unpinned": True}
        following = f"{MESSAGES}?limit=1&cursor={first.meta['next_cursor']}"
        pages = [one.call("GET", following, token=token).data for one in (server, second)]
        assert pages[0] == pages[1] != first.data
        second.call("POST", "/api/v1/auth/logout", {}, other_token)
        assert server.call("GET", MESSAGES, token=other_token).status == 401


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_full_log_changes_neither_responses_nor_the_exit_status(workers: str, unbuffered: str, data: Path) -> None:
    port = free_port()
    variables = environment(**database_variables(data), PYTHONUNBUFFERED=unbuffered, CX_SHARE_FOLDER="true")
    line = [*PROGRAM, "serve", "--data", str(data), "--port", str(port), "--workers", workers]
    with Path("/dev/full").open("wb") as full, subprocess.Popen(line, stdout=full, stderr=full, env=variables) as one:
        try:
            until(lambda: one.poll() is not None or accepts_connections(port))
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
                assert send_request(connection, "GET", "/readyz").status == 200
        finally:
            one.terminate()
        assert one.wait(60) == 0


# Stop.


def wait_for_completed(callers: list[Caller], number: int) -> None:
    """Wait until so many requests are completed."""
    begun = time.monotonic()
    while sum(caller.outcomes["completed"] for caller in callers) < number:
        assert time.monotonic() - begun < 60
        time.sleep(0.02)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_under_load_completes_all_requests(workers: str, number: int, data: Path) -> None:
    with serving(data, "--workers", workers) as server:
        token = server.log_in()
        callers = [Caller(server, token) for _ in range(8)]
        for caller in callers:
            caller.start()
        wait_for_completed(callers, 80)
        assert server.stop(number) == 0
        for caller in callers:
            caller.join(30)
        outcomes = sum((caller.outcomes for caller in callers), Counter[str]())
    assert set(outcomes) == {"completed", "refused"}, outcomes
    assert outcomes["refused"] == 8
    assert "Traceback" not in server.errors


class LongPoller(Caller):
    """A client that repeats long polls."""

    def send(self, connection: http.client.HTTPConnection) -> bool:
        position = send_request(connection, "GET", "/api/v1/updates", token=self.token)
        after = f"/api/v1/updates?wait=20&after={position.data['after']}"
        return position.status == 200 and send_request(connection, "GET", after, token=self.token).status == 200


class Writer(Caller):
    """A client that sends messages."""

    def send(self, connection: http.client.HTTPConnection) -> bool:
        return send_request(connection, "POST", MESSAGES, {"content": {"text": "Hello"}}, self.token).status == 201


class Uploader(Caller):
    """A client that sends a large body slowly."""

    def send(self, connection: http.client.HTTPConnection) -> bool:
        def pieces() -> Iterator[bytes]:
            for _ in range(20):
                yield bytes(20_000)
                time.sleep(0.02)

        headers = {"Content-Type": "multipart/form-data; boundary=a", "Content-Length": "400000"}
        reply = send_request(connection, "POST", "/api/v1/users/me/avatar", pieces(), self.token, headers=headers)
        return reply.error == (400, "invalid_body")


def test_a_stop_under_a_mixed_load_stores_and_completes_all_requests(data: Path) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(data, "--workers", "2"))
        token = server.log_in()
        before = server.call("GET", f"{MESSAGES}?limit=1", token=token).meta["total"]
        kinds = (Caller, Caller, Writer, Writer, LongPoller, LongPoller, Uploader, Uploader)
        callers = [kind(server, token) for kind in kinds * 3]
        for caller in callers:
            caller.start()
        for beginning in (b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n") * 20:
            slow = stack.enter_context(socket.create_connection((server.host, server.port), timeout=60))
            slow.sendall(beginning)
        wait_for_completed(callers, 100)
        assert server.stop() == 0
        for caller in callers:
            caller.join(30)
        outcomes = sum((caller.outcomes for caller in callers), Counter[str]())
        assert set(outcomes) == {"completed", "refused"}, outcomes
        assert outcomes["refused"] == len(callers)
        assert "Traceback" not in server.errors
        sent = sum(caller.outcomes["completed"] for caller in callers if isinstance(caller, Writer))
        again = stack.enter_context(serving(data))
        assert again.call("GET", f"{MESSAGES}?limit=1", token=token).meta["total"] - before == sent > 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_idle_server_stops_at_once(workers: str, data: Path) -> None:
    with serving(data, "--workers", workers) as server:
        server.call("GET", "/healthz")
        begun = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begun < DRAIN_TIMEOUT  # the time that it waits for requests in progress
    assert "Traceback" not in server.errors


@pytest.mark.parametrize("workers", ["2", "4"])
def test_a_stop_while_workers_start_is_obeyed(workers: str, data: Path) -> None:
    for delay in range(6):
        with serving(data, "--workers", workers) as server:
            time.sleep(delay * 0.02)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(60) in (0, -signal.SIGTERM)


def test_a_stop_completes_a_request_that_is_being_received(data: Path) -> None:
    with serving(data) as server:
        login = json.dumps({"email": "alice@example.com", "password": PASSWORD}).encode()
        head = b"POST /api/v1/auth/login HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(login)
        server.call("GET", "/healthz")
        with socket.create_connection((server.host, server.port), timeout=60) as connection:
            connection.sendall(head + login[:9])
            time.sleep(0.2)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            connection.sendall(login[9:])
            response = b""
            while chunk := connection.recv(65536):
                response += chunk
        assert response.startswith(b"HTTP/1.1 200") and b"Connection: close" in response
        assert server.process.wait(60) == 0


@pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="the service configures the malloc of glibc")
def test_the_memory_of_password_hashing_is_released(data: Path) -> None:
    """Otherwise each thread that has hashed a password keeps 19 MiB."""

    def memory() -> float:
        pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    with serving(data, "--threads", "6") as server:
        server.log_in()
        before = memory()
        logins = [threading.Thread(target=server.log_in) for _ in range(24)]
        for login in logins:
            login.start()
        for login in logins:
            login.join()
        assert memory() < before + 40


def test_a_killed_worker_is_replaced(data: Path) -> None:
    with serving(data, "--workers", "2") as server:
        server.call("GET", "/healthz")
        before = server.workers
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        begun = time.monotonic()
        while len(set(server.workers) - {before[0]}) < 2:
            assert time.monotonic() - begun < 60
            time.sleep(0.05)
        assert before[1] in server.workers
        assert {server.call("GET", "/healthz").status for _ in range(20)} == {200}
        assert server.stop() == 0
    assert f"worker {before[0]} ended" in server.errors
