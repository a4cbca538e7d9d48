"""POST requests to named servers: which URLs are accepted, and limits. The tests of the assistant have more faults."""

import contextlib
import socket
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
