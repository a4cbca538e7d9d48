"""Behind a reverse proxy: which headers set the address and the scheme of the client."""

import contextlib
import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.http.client_address import proxy_network, read_request_info
from service.models import LoginAttempt
from service.settings import Settings
from tests.support.client import Client, Reply
from tests.support.passwords import PASSWORD
from tests.support.paths import ROOT
from tests.support.server_process import chat, environment, fill, send_request, serving

pytestmark = pytest.mark.database


PROXY, OTHER_PEER = "10.0.0.5", "192.0.2.1"
ALICE_ADDRESS, BOB_ADDRESS = "203.0.113.7", "198.51.100.9"
LIMIT = 3


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return dataclasses.replace(settings, trusted_proxy="10.0.0.0/24", login_failures=LIMIT)


def guess(anyone: Client, address: str, **headers: str) -> Reply:
    return anyone.post("/auth/login", {"email": "alice@example.com", "password": "a guess"}, address=address, **headers)


def seen(peer: str, trusted: str = "10.0.0.0/24", scheme: str = "http", **headers: str) -> tuple[str, str]:
    """The address and the scheme that the service sees."""
    environ: dict[str, Any] = {"REMOTE_ADDR": peer, "PATH_INFO": "/", "wsgi.url_scheme": scheme, "HTTP_HOST": "chat"}
    environ |= {f"HTTP_{name.upper()}": value for name, value in headers.items()}
    origin = read_request_info(environ, Settings(trusted_proxy=trusted))
    return origin.address, origin.base_url.partition(":")[0]


# Trusted proxies.


def test_the_trusted_proxy_sets_the_address_of_the_client() -> None:
    assert seen(PROXY, x_forwarded_for=ALICE_ADDRESS, x_forwarded_proto="https") == (ALICE_ADDRESS, "https")


def test_no_proxy_is_trusted_by_default() -> None:
    assert Settings().trusted_proxy == ""
    assert seen(PROXY, "", x_forwarded_for=ALICE_ADDRESS, x_forwarded_proto="https") == (PROXY, "http")


@pytest.mark.parametrize("peer", [OTHER_PEER, "10.0.1.5", "::1", "", "unknown"])
def test_headers_of_other_clients_are_ignored(peer: str) -> None:
    assert seen(peer, x_forwarded_for=ALICE_ADDRESS, x_forwarded_proto="https") == (peer, "http")


@pytest.mark.parametrize(
    ("trusted", "peer"),
    [
        ("10.0.0.5", "10.0.0.5"),
        ("10.0.0.5/32", "10.0.0.5"),
        ("10.0.0.0/24", "10.0.0.0"),
        ("10.0.0.0/24", "10.0.0.255"),
        ("127.0.0.1", "::ffff:127.0.0.1"),  # the form on a dual-stack socket
        ("::1", "::1"),
        ("2001:db8::/64", "2001:0db8:0:0:ffff::1"),
        ("0.0.0.0/0", OTHER_PEER),
    ],
)
def test_the_trusted_proxy_is_an_address_or_a_network(trusted: str, peer: str) -> None:
    assert seen(peer, trusted, x_forwarded_for=ALICE_ADDRESS) == (ALICE_ADDRESS, "http")


@pytest.mark.parametrize("header", ["forwarded", "x_real_ip", "client_ip", "x_forwarded_by", "x_forwarded_host"])
def test_other_headers_are_ignored(header: str) -> None:
    assert seen(PROXY, **{header: f"for={ALICE_ADDRESS};proto=https;host=evil.example"}) == (PROXY, "http")


def test_forwarded_hosts_are_ignored() -> None:
    environ = {"REMOTE_ADDR": PROXY, "PATH_INFO": "/", "wsgi.url_scheme": "http", "HTTP_HOST": "chat.example"}
    origin = read_request_info({**environ, "HTTP_X_FORWARDED_HOST": "evil.example"}, Settings(trusted_proxy=PROXY))
    assert origin.base_url == "http://chat.example"


def test_the_public_url_takes_precedence_over_the_proxy() -> None:
    environ = {"REMOTE_ADDR": PROXY, "PATH_INFO": "/", "wsgi.url_scheme": "http", "HTTP_X_FORWARDED_PROTO": "http"}
    configured = Settings(trusted_proxy=PROXY, public_url="https://chat.example/")
    assert read_request_info(environ, configured).base_url == "https://chat.example"


# Values of the headers.


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        (ALICE_ADDRESS, ALICE_ADDRESS),
        (f" \t{ALICE_ADDRESS} ", ALICE_ADDRESS),
        (f"{ALICE_ADDRESS}:51234", ALICE_ADDRESS),
        ("2001:DB8::7", "2001:db8::7"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("[2001:db8::7]:51234", "2001:db8::7"),
        ("::ffff:203.0.113.7", ALICE_ADDRESS),
        (f"{BOB_ADDRESS}, {ALICE_ADDRESS}", ALICE_ADDRESS),
        (f"127.0.0.1, {PROXY},{ALICE_ADDRESS}", ALICE_ADDRESS),
        (f"{'1.1.1.1,' * 2000}{ALICE_ADDRESS}", ALICE_ADDRESS),
    ],
)
def test_the_last_hop_is_the_client(forwarded: str, address: str) -> None:
    assert seen(PROXY, x_forwarded_for=forwarded)[0] == address


MALFORMED = [
    "",
    ",",
    f"{ALICE_ADDRESS},",
    "unknown",
    "_hidden",
    "[",
    "[]",
    ":80",
    ":1.",
    '"',
    '"203.0.113.7',
    "203.0.113",
    "1.2.3.4.5",
]
MALFORMED += [
    "[::1",
    "::1]",
    "[203.0.113.7",
    "203.0.113.7:",
    "203.0.113.7:x",
    "٢٠٣.0.113.7",
    "for=203.0.113.7",
    "203.0.113.7/24",
]
MALFORMED += ["<script>", "203.0.113.7\x00", "0x7f.1", "1" * 5000, "[" * 5000, "null", "2001:db8::7::"]


@pytest.mark.parametrize("forwarded", MALFORMED, ids=lambda forwarded: ascii(forwarded[:20]))
def test_an_invalid_address_counts_as_the_proxy(forwarded: str) -> None:
    assert seen(PROXY, x_forwarded_for=forwarded)[0] == PROXY


@pytest.mark.parametrize(
    ("forwarded", "scheme"),
    [
        ("https", "https"),
        ("HTTPS", "https"),
        (" https\t", "https"),
        ("http", "http"),
        ("http, https", "https"),
        ("https, http", "http"),
        ("", "http"),
        ("https,", "http"),
        ("javascript", "http"),
        ("https://evil.example/", "http"),
        ("httpſ", "http"),
    ],
)
def test_the_scheme_is_http_or_https(forwarded: str, scheme: str) -> None:
    assert seen(PROXY, x_forwarded_proto=forwarded)[1] == scheme


def test_a_proxy_without_headers_is_the_client() -> None:
    assert seen(PROXY) == (PROXY, "http")
    assert seen(PROXY, scheme="https") == (PROXY, "https")


# Effects.


def test_failed_logins_are_counted_per_client_behind_the_proxy(anyone: Client, alice: Client) -> None:
    for _ in range(LIMIT):
        assert guess(anyone, PROXY, x_forwarded_for=ALICE_ADDRESS).error == (401, "invalid_credentials")
    assert guess(anyone, PROXY, x_forwarded_for=ALICE_ADDRESS).error == (429, "rate_limited")
    assert guess(anyone, "10.0.0.6", x_forwarded_for="203.0.113.200").error == (429, "rate_limited")  # her /24
    assert guess(anyone, PROXY, x_forwarded_for=BOB_ADDRESS).error == (401, "invalid_credentials")
    right = {"email": "alice@example.com", "password": PASSWORD}
    assert anyone.post("/auth/login", right, address=PROXY, x_forwarded_for=BOB_ADDRESS).status == 200


def test_forged_hops_do_not_evade_throttling(anyone: Client, alice: Client) -> None:
    for number in range(LIMIT):
        forwarded = f"8.8.{number}.8, {ALICE_ADDRESS}"  # a proxy that appends
        assert guess(anyone, PROXY, x_forwarded_for=forwarded).error == (401, "invalid_credentials")
    assert guess(anyone, PROXY, x_forwarded_for=f"9.9.9.9, {ALICE_ADDRESS}").error == (429, "rate_limited")
    for number in range(LIMIT):
        assert guess(anyone, OTHER_PEER, x_forwarded_for=f"8.8.{number}.8").error == (401, "invalid_credentials")
    assert guess(anyone, OTHER_PEER, x_forwarded_for="9.9.9.9").error == (429, "rate_limited")
    assert {attempt.network for attempt in LoginAttempt.select()} == {"203.0.113.0/24", "192.0.2.0/24"}


@pytest.mark.parametrize("forwarded", ["", "unknown", ":80", "[", "x" * 5000], ids=ascii)
def test_malformed_hops_do_not_evade_throttling(forwarded: str, anyone: Client, alice: Client) -> None:
    for _ in range(LIMIT):
        assert guess(anyone, PROXY, x_forwarded_for=forwarded).error == (401, "invalid_credentials")
    assert guess(anyone, PROXY, x_forwarded_for=forwarded).error == (429, "rate_limited")
    assert {attempt.network for attempt in LoginAttempt.select()} == {"10.0.0.0/24"}


def cookies(anyone: Client, address: str, **headers: str) -> str:
    return anyone.get("//sign-in", address=address, **headers).headers["Set-Cookie"]


def test_cookies_are_secure_if_the_proxy_reports_https(anyone: Client) -> None:
    secure = cookies(anyone, PROXY, x_forwarded_proto="https")
    assert secure.startswith("__Host-cx_form=") and "; Secure" in secure
    for address, proto in [(PROXY, "http"), (PROXY, "ftp"), (OTHER_PEER, "https")]:
        plain = cookies(anyone, address, x_forwarded_proto=proto)
        assert plain.startswith("cx_form=") and "Secure" not in plain


def test_oauth_metadata_has_the_address_of_the_request(anyone: Client) -> None:
    path = "//.well-known/oauth-authorization-server"
    reply = anyone.get(path, address=PROXY, x_forwarded_proto="https", host="chat.example")
    assert reply.json["issuer"] == "https://chat.example"


# The setting.


@pytest.mark.parametrize(
    "text", ["localhost", "10.0.0.5/24", "10.0.0", "10.0.0.0/33", "*", "10.0.0.5 10.0.0.6", "[::1]"]
)
def test_an_invalid_setting_is_reported_in_one_sentence(text: str) -> None:
    with pytest.raises(ValueError) as error:
        proxy_network(text)
    assert str(error.value) == f"--trusted-proxy must be an address or a network such as 10.0.0.0/24, not {text!r}"


@pytest.mark.slow
def test_the_service_does_not_start_with_an_invalid_setting(tmp_path: Path) -> None:
    line = [sys.executable, str(ROOT / "app.py"), "serve", "--port", "0", "--trusted-proxy", "all"]
    done = subprocess.run(line, cwd=tmp_path, env=environment(), capture_output=True, timeout=30)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().splitlines() == [
        "cx-service: --trusted-proxy must be an address or a network such as 10.0.0.0/24, not 'all'"
    ]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(("trusted", "is_trusted"), [("127.0.0.1", True), ("10.0.0.0/8", False), ("", False)])
def test_headers_of_a_real_connection(trusted: str, is_trusted: bool, tmp_path: Path) -> None:
    fill(tmp_path / "data", chat())
    headers = {"X-Forwarded-Proto": "https", "Content-Type": "application/json"}
    wrong = {"email": "alice@example.com", "password": "a guess"}
    with serving(tmp_path / "data", CX_TRUSTED_PROXY=trusted, CX_LOGIN_FAILURES="1") as server:
        cookie = server.call("GET", "/sign-in", headers=headers).headers["Set-Cookie"]
        assert ("; Secure" in cookie) is is_trusted
        with contextlib.closing(server.connect()) as connection:
            statuses = [
                send_request(
                    connection, "POST", "/api/v1/auth/login", wrong, headers={**headers, "X-Forwarded-For": forwarded}
                ).status
                for forwarded in (
                    ALICE_ADDRESS,
                    ALICE_ADDRESS,
                    BOB_ADDRESS,
                    f"1.1.1.1, {BOB_ADDRESS}",
                    ":1.",
                    '"',
                    ":80",
                )
            ]
    assert statuses == ([401, 429, 401, 429, 401, 429, 429] if is_trusted else [401] + [429] * 6)
