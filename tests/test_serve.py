"""The real server, a process of its own: HTTP as it goes over the wire, signals and workers."""

import contextlib
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

from service.server import PATIENCE
from tests.cluster import takes_connections, until
from tests.conftest import PASSWORD, Reply
from tests.postgres import free_port
from tests.serving import (
    ALICE,
    PROGRAM,
    SESSION,
    Served,
    ask,
    chat,
    command,
    environment,
    fill,
    serving,
    where,
)

pytestmark = pytest.mark.slow

MESSAGES = f"/api/v1/chats/{SESSION}/messages"


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


def raw(server: Served, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Bytes as they are, on a connection of their own: status, headers and body of the answer."""
    with socket.create_connection((server.host, server.port), timeout=60) as connection:
        connection.sendall(request)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}, body


def envelope(body: bytes) -> str:
    """The code of a failure in the envelope."""
    told = json.loads(body)
    assert set(told) == {"success", "error"} and set(told["error"]) == {"code", "message"}, told
    assert told["success"] is False
    return str(told["error"]["code"])


# HTTP.


def test_it_answers(server: Served, token: str) -> None:
    page = server.call("GET", f"{MESSAGES}?limit=2", token=token)
    assert (page.status, page.meta["total"], len(page.data)) == (200, 30, 2)
    assert page.headers["Content-Type"] == "application/json"
    assert "Server" not in page.headers


@pytest.mark.parametrize(("path", "status"), [("/healthz", "ok"), ("/readyz", "ready")])
def test_operators_see_that_it_lives_and_is_ready(path: str, status: str, server: Served) -> None:
    assert server.call("GET", path).data["status"] == status


def test_head_is_get_without_the_body(server: Served, token: str) -> None:
    get, head = (server.call(method, f"{MESSAGES}?limit=2", token=token) for method in ("GET", "HEAD"))
    assert (head.status, head.raw) == (200, b"")
    assert head.headers["Content-Length"] == get.headers["Content-Length"] == str(len(get.raw))


def test_options_names_the_methods(server: Served) -> None:
    answer = server.call("OPTIONS", MESSAGES)
    assert (answer.status, answer.raw) == (204, b"")
    assert {"GET", "HEAD", "OPTIONS"} <= set(answer.headers["Allow"].split(", "))
    assert "Content-Length" not in answer.headers or answer.headers["Content-Length"] == "0"


def test_a_connection_stays_open(server: Served, token: str) -> None:
    with contextlib.closing(server.connect()) as connection:
        statuses = [
            ask(connection, "GET", MESSAGES, token=token).status,
            ask(connection, "GET", "/nowhere").status,
            ask(connection, "HEAD", MESSAGES, token=token).status,
            ask(connection, "OPTIONS", MESSAGES).status,
            ask(connection, "POST", "/api/v1/auth/login", b"{").status,
            ask(connection, "GET", MESSAGES).status,
        ]
        assert connection.sock is not None
    assert statuses == [200, 404, 200, 204, 400, 401]


GARBAGE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # a TLS hello
    b"nonsense\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nno colon\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n folded: first\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"POST /api/v1/auth/login HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=repr)
def test_what_is_not_http_gets_the_envelope_with_400(garbage: bytes, server: Served) -> None:
    status, headers, body = raw(server, garbage)
    assert (status, envelope(body)) == (400, "bad_request")
    assert headers["content-type"] == "application/json"
    assert headers["x-request-id"]
    assert headers["connection"] == "close"
    assert b"waitress" not in body.lower()


def test_clients_that_go_away_without_reading_do_no_harm(data: Path) -> None:
    with serving(data) as server:
        for _ in range(50):
            with socket.create_connection((server.host, server.port)) as client:
                client.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
                client.recv(1)  # the answer has come; closing now resets the connection
        assert server.call("GET", "/healthz").status == 200
        assert "Traceback" not in server.errors
        assert server.stop() == 0


def test_an_endless_header_gets_the_envelope_with_431(server: Served) -> None:
    status, headers, body = raw(server, b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Long: " + b"a" * 40_000 + b"\r\n\r\n")
    assert (status, envelope(body)) == (431, "headers_too_large")
    assert headers["x-request-id"]


@pytest.mark.parametrize("how", ["length", "chunked"])
def test_a_body_over_the_limit_gets_413_that_the_client_can_read(how: str, server: Served) -> None:
    body = b'{"email": "' + b"a" * 2**21 + b'"}'
    content: Any = body if how == "length" else (body[start : start + 9999] for start in range(0, len(body), 9999))
    answer = server.call("POST", "/api/v1/auth/login", content, encode_chunked=how == "chunked")
    assert answer.status == 413
    assert envelope(answer.raw) == "body_too_large"


def test_a_chunked_body_is_a_body(server: Served) -> None:
    login = json.dumps({"email": "alice@example.com", "password": PASSWORD}).encode()
    chunks = (login[place : place + 7] for place in range(0, len(login), 7))
    answer = server.call("POST", "/api/v1/auth/login", chunks, encode_chunked=True)
    assert answer.data["user"]["id"] == ALICE


def test_requests_sent_at_once_are_answered_in_order(server: Served) -> None:
    asked = [b"/healthz", b"/nowhere", b"/readyz"]
    lines = [b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path for path in asked]
    lines[-1] = lines[-1].replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with socket.create_connection((server.host, server.port), timeout=60) as connection:
        connection.sendall(b"".join(lines))
        told = b""
        while chunk := connection.recv(65536):
            told += chunk
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"200", b"404", b"200"]


def test_a_half_open_connection_hinders_nobody(server: Served) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            slow = stack.enter_context(socket.create_connection((server.host, server.port), timeout=60))
            slow.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
        assert server.call("GET", "/healthz").status == 200


def test_the_log_has_a_line_with_the_request_id_and_never_a_token(server: Served, token: str) -> None:
    answer = server.call("GET", f"{MESSAGES}?limit=1", token=token, headers={"X-Request-ID": "log-me"})
    assert answer.headers["X-Request-ID"] == "log-me"
    (line,) = server.logged("log-me")
    assert f"GET {MESSAGES} 200" in line
    assert token not in server.errors and PASSWORD not in server.errors


# Starting.


def test_a_port_in_use_is_one_line_and_status_1(server: Served, tmp_path: Path) -> None:
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
def test_where_it_cannot_serve_it_says_so_in_one_line(arguments: tuple[str, ...], line: str, tmp_path: Path) -> None:
    done = command("serve", "--port", "0", *arguments, "--data", tmp_path / "data")
    assert (done.returncode, done.stdout) == (1, b"")
    assert re.fullmatch(rf"cx-service: {line}\n", done.stderr.decode())


def test_a_public_url_that_is_no_site_is_one_line_and_nothing_is_made(tmp_path: Path) -> None:
    done = command("serve", "--port", "0", "--data", tmp_path / "data", "--public-url", "https://chat.example/sub")
    assert (done.returncode, done.stdout) == (1, b"")
    assert re.fullmatch(r"cx-service: --public-url must be http:// or https://[^\n]+\n", done.stderr.decode())
    assert not (tmp_path / "data").exists()


def test_the_start_line_names_the_address_that_is_bound_and_the_public_url(data: Path) -> None:
    with serving(data, "--public-url", "https://chat.example/") as server:
        assert (
            f"cx-service listens on http://127.0.0.1:{server.port} (public URL https://chat.example)\n" in server.errors
        )
        assert server.call("GET", "/healthz").status == 200


def test_documented_only_keeps_the_document_and_what_operators_need(data: Path) -> None:
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
        for asked, by in ((second, token), (server, other_token)):
            assert asked.call("POST", f"{MESSAGES}/{message}/pin", token=by).data == {"pinned": True}
            assert asked.call("DELETE", f"{MESSAGES}/{message}/pin", token=by).data == {"unpinned": True}
        following = f"{MESSAGES}?limit=1&cursor={first.meta['next_cursor']}"
        pages = [asked.call("GET", following, token=token).data for asked in (server, second)]
        assert pages[0] == pages[1] != first.data
        second.call("POST", "/api/v1/auth/logout", {}, other_token)
        assert server.call("GET", MESSAGES, token=other_token).status == 401


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_full_log_changes_neither_responses_nor_the_exit_status(workers: str, unbuffered: str, data: Path) -> None:
    port = free_port()
    told = environment(**where(data), PYTHONUNBUFFERED=unbuffered)
    line = [*PROGRAM, "serve", "--data", str(data), "--port", str(port), "--workers", workers]
    with Path("/dev/full").open("wb") as full, subprocess.Popen(line, stdout=full, stderr=full, env=told) as one:
        try:
            until(lambda: one.poll() is not None or takes_connections(port))
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
                assert ask(connection, "GET", "/readyz").status == 200
        finally:
            one.terminate()
        assert one.wait(60) == 0


# Ending.


class Caller(threading.Thread):
    """A client that asks again and again on a connection that it keeps, and counts what becomes of its requests."""

    def __init__(self, server: Served, token: str) -> None:
        super().__init__()
        self.server, self.token = server, token
        self.outcomes: Counter[str] = Counter()

    def run(self) -> None:
        connection = self.server.connect()
        while "refused" not in self.outcomes and sum(self.outcomes.values()) < 100_000:
            try:
                connection.connect() if connection.sock is None else None
                self.outcomes["answered" if self.ask(connection) else "wrong"] += 1
            except ConnectionRefusedError:
                self.outcomes["refused"] += 1  # before anything was sent
            except (OSError, http.client.HTTPException) as error:
                self.outcomes[f"lost: {error!r}"] += 1
                connection.close()
        connection.close()

    def ask(self, connection: http.client.HTTPConnection) -> bool:
        """Ask once; whether the answer is right."""
        answer: Reply = ask(connection, "GET", f"{MESSAGES}?limit=20", token=self.token)
        return answer.status == 200 and len(answer.data) == 20


def until_answered(callers: list[Caller], number: int) -> None:
    """Wait until so many requests have been answered."""
    begun = time.monotonic()
    while sum(caller.outcomes["answered"] for caller in callers) < number:
        assert time.monotonic() - begun < 60
        time.sleep(0.02)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_under_load_it_answers_whatever_was_sent(workers: str, number: int, data: Path) -> None:
    with serving(data, "--workers", workers) as server:
        token = server.log_in()
        callers = [Caller(server, token) for _ in range(8)]
        for caller in callers:
            caller.start()
        until_answered(callers, 80)
        assert server.stop(number) == 0
        for caller in callers:
            caller.join(30)
        outcomes = sum((caller.outcomes for caller in callers), Counter[str]())
    assert set(outcomes) == {"answered", "refused"}, outcomes
    assert outcomes["refused"] == 8
    assert "Traceback" not in server.errors


class Waiter(Caller):
    """A client that waits for what is new, and comes again when there is nothing."""

    def ask(self, connection: http.client.HTTPConnection) -> bool:
        begin = ask(connection, "GET", "/api/v1/updates", token=self.token)
        after = f"/api/v1/updates?wait=20&after={begin.data['after']}"
        return begin.status == 200 and ask(connection, "GET", after, token=self.token).status == 200


class Speaker(Caller):
    """A client that sends messages."""

    def ask(self, connection: http.client.HTTPConnection) -> bool:
        return ask(connection, "POST", MESSAGES, {"content": {"text": "Hello"}}, self.token).status == 201


class Uploader(Caller):
    """A client that sends a large body slowly."""

    def ask(self, connection: http.client.HTTPConnection) -> bool:
        def pieces() -> Iterator[bytes]:
            for _ in range(20):
                yield bytes(20_000)
                time.sleep(0.02)

        headers = {"Content-Type": "multipart/form-data; boundary=a", "Content-Length": "400000"}
        answer = ask(connection, "POST", "/api/v1/users/me/avatar", pieces(), self.token, headers=headers)
        return answer.error == (400, "invalid_body")


def test_told_to_stop_under_a_mixed_load_it_keeps_and_answers_whatever_was_sent(data: Path) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(data, "--workers", "2"))
        token = server.log_in()
        before = server.call("GET", f"{MESSAGES}?limit=1", token=token).meta["total"]
        kinds = (Caller, Caller, Speaker, Speaker, Waiter, Waiter, Uploader, Uploader)
        callers = [kind(server, token) for kind in kinds * 3]
        for caller in callers:
            caller.start()
        for beginning in (b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n") * 20:
            slow = stack.enter_context(socket.create_connection((server.host, server.port), timeout=60))
            slow.sendall(beginning)
        until_answered(callers, 100)
        assert server.stop() == 0
        for caller in callers:
            caller.join(30)
        outcomes = sum((caller.outcomes for caller in callers), Counter[str]())
        assert set(outcomes) == {"answered", "refused"}, outcomes
        assert outcomes["refused"] == len(callers)
        assert "Traceback" not in server.errors
        sent = sum(caller.outcomes["answered"] for caller in callers if isinstance(caller, Speaker))
        again = stack.enter_context(serving(data))
        assert again.call("GET", f"{MESSAGES}?limit=1", token=token).meta["total"] - before == sent > 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_idle_server_stops_at_once(workers: str, data: Path) -> None:
    with serving(data, "--workers", workers) as server:
        server.call("GET", "/healthz")
        begun = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begun < PATIENCE  # after which it would give up waiting
    assert "Traceback" not in server.errors


@pytest.mark.parametrize("workers", ["2", "4"])
def test_told_to_stop_while_its_workers_start_it_stops(workers: str, data: Path) -> None:
    for delay in range(6):
        with serving(data, "--workers", workers) as server:
            time.sleep(delay * 0.02)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(60) in (0, -signal.SIGTERM)


def test_a_request_that_is_still_being_sent_is_answered(data: Path) -> None:
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
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
        assert answer.startswith(b"HTTP/1.1 200") and b"Connection: close" in answer
        assert server.process.wait(60) == 0


@pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="its malloc is told")
def test_the_memory_for_passwords_is_given_back(data: Path) -> None:
    """19 MiB for each thread that has hashed one, unless it is."""

    def memory() -> float:
        pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    with serving(data, "--threads", "6") as server:
        server.log_in()
        before = memory()
        people = [threading.Thread(target=server.log_in) for _ in range(24)]
        for person in people:
            person.start()
        for person in people:
            person.join()
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
