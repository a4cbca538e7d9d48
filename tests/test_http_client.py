"""POST requests to named servers: which URLs are accepted, and limits. The tests of the assistant have more faults."""

import contextlib
import http.server
import socket
import threading
import time

import pytest

from service import http_client
from service.http_client import HttpServer, Limits, RequestError
from tests.support.fake_ai import fake_server


def post(url: str, *, total: float = 5.0, **options: bool) -> int:
    server = HttpServer(url, **options)
    limits = Limits(connect=total, total=total, max_bytes=1024)
    with server.post(server.path, b"{}", {}, limits) as response:
        return response.status


@pytest.mark.parametrize(
    "url", ["http://8.8.8.8/", "http://[2001:4860:4860::8888]/", "http://[::ffff:8.8.8.8]:80/", "http://1.1.1.1:8080"]
)
def test_plain_url_with_a_public_address_is_refused(url: str) -> None:
    assert HttpServer(url)
    with pytest.raises(ValueError):
        HttpServer(url, allow_plain=False)


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1", "http://10.1.2.3/x", "http://192.168.0.1", "http://172.16.0.1", "http://[::1]:80"),
        *("http://[fd00::1]", "http://100.64.0.1", "http://helpdesk:8080", "https://8.8.8.8", "https://hooks.example"),
    ],
)
def test_tls_and_private_addresses_are_accepted(url: str) -> None:
    assert HttpServer(url, allow_plain=False)


def test_plain_request_to_a_name_with_a_public_address_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    public = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", 80))]
    monkeypatch.setattr(http_client.socket, "getaddrinfo", lambda *_, **__: public)
    with pytest.raises(RequestError, match="http:// is for private addresses only"):
        post("http://hooks.example", allow_plain=False)


def test_plain_request_may_be_for_loopback_addresses_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("http://10.1.2.3/x", "http://[fd00::1]", "http://8.8.8.8", "http://[::ffff:10.1.2.3]"):
        with pytest.raises(ValueError):
            HttpServer(url, plain_on_loopback=True)
    for url in ("http://127.0.0.1", "http://[::1]:80", "http://[::ffff:127.0.0.1]", "https://10.1.2.3"):
        assert HttpServer(url, plain_on_loopback=True)
    private = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.2.3", 80))]
    monkeypatch.setattr(http_client.socket, "getaddrinfo", lambda *_, **__: private)
    with pytest.raises(RequestError, match="http:// is for loopback addresses only"):
        post("http://localhost", plain_on_loopback=True)


def test_query_is_a_part_of_the_path_where_it_is_allowed() -> None:
    with fake_server() as server:
        assert post(f"{server.url}/hook?a=1", allow_query=True) == 200
        assert server.requests[0].path == "/v1/hook?a=1"
    with pytest.raises(ValueError):
        HttpServer("https://hooks.example/?a=1")


def test_second_address_is_tried_if_the_first_does_not_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(fake_server())
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # its queue is full, so that it answers no attempt to connect
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(silent.getsockname())
        addresses = silent.getsockname(), ("127.0.0.1", server.server_port)
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]
        monkeypatch.setattr(http_client.socket, "getaddrinfo", lambda *_, **__: found)
        assert post("http://two.example", total=2.0) == 200


def test_all_addresses_share_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as idle:  # it accepts no TLS handshake
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", idle.getsockname())] * 8
        monkeypatch.setattr(http_client.socket, "getaddrinfo", lambda *_, **__: found)
        begun = time.monotonic()
        with pytest.raises(RequestError, match="timeout"):
            post("https://eight.example", total=0.4)
        assert time.monotonic() - begun < 2


class KeptConnections(http.server.ThreadingHTTPServer):
    """Counts connections, and the requests on each. `closes` of its responses end a connection without notice."""

    daemon_threads = True

    def __init__(self, body: bytes = b"", *, status: int = 200, closes: bool = False) -> None:
        self.requests: list[int] = []  # of each connection
        counts = self.requests

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                self.number = len(counts)
                counts.append(0)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                if closes and counts[self.number]:
                    self.close_connection = True
                    return
                counts[self.number] += 1
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, *_: object) -> None:
        """Ignore connections that the client closes."""


def post_all(number: int, server: KeptConnections, **options: bool) -> list[int]:
    """Send some requests. Returns the number of requests on each connection."""
    running = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    running.start()
    client = HttpServer(f"http://127.0.0.1:{server.server_port}/", **options)
    try:
        for _ in range(number):
            with client.post("/", b"{}", {}, Limits(connect=5.0, total=5.0, max_bytes=64 * 1024)) as response:
                assert response.status in (200, 204)
    finally:
        client.close()
        server.shutdown()
        running.join()
        server.server_close()
    return server.requests


@pytest.mark.parametrize("body", [b"", b"ok"])
def test_connection_is_kept_for_the_next_request_if_that_is_chosen(body: bytes) -> None:
    assert post_all(3, KeptConnections(body), keeps_connection=True) == [3]
    assert post_all(3, KeptConnections(body)) == [1, 1, 1]


def test_connection_with_a_long_response_is_not_kept() -> None:
    assert post_all(2, KeptConnections(b"x" * 10_000), keeps_connection=True) == [1, 1]


def test_connection_is_not_kept_if_status_204_has_a_body() -> None:
    assert post_all(2, KeptConnections(b"{}", status=204), keeps_connection=True) == [1, 1]


def test_kept_connection_that_the_server_has_closed_is_replaced() -> None:
    assert post_all(3, KeptConnections(closes=True), keeps_connection=True) == [1, 1, 1]


def test_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "KEEP_TIME", -1.0)
    assert post_all(2, KeptConnections(), keeps_connection=True) == [1, 1]
