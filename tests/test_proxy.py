"""Behind a reverse proxy: who is believed about the client's address and scheme, and who is not."""

import contextlib
import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.models import LoginAttempt
from service.origins import proxy_network, read_origin
from service.settings import Settings
from tests.conftest import PASSWORD, Client, Reply
from tests.serving import ROOT, ask, chat, environment, fill, serving

PROXY, ELSEWHERE = "10.0.0.5", "192.0.2.1"
ALICES, BOBS = "203.0.113.7", "198.51.100.9"
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
    origin = read_origin(environ, Settings(trusted_proxy=trusted))
    return origin.address, origin.site.partition(":")[0]


# Whose word counts.


def test_the_proxy_tells_who_the_client_is() -> None:
    assert seen(PROXY, x_forwarded_for=ALICES, x_forwarded_proto="https") == (ALICES, "https")


def test_nobody_is_believed_by_default() -> None:
    assert Settings().trusted_proxy == ""
    assert seen(PROXY, "", x_forwarded_for=ALICES, x_forwarded_proto="https") == (PROXY, "http")


@pytest.mark.parametrize("peer", [ELSEWHERE, "10.0.1.5", "::1", "", "unknown"])
def test_whoever_is_not_the_proxy_is_not_believed(peer: str) -> None:
    assert seen(peer, x_forwarded_for=ALICES, x_forwarded_proto="https") == (peer, "http")


@pytest.mark.parametrize(
    ("trusted", "peer"),
    [
        ("10.0.0.5", "10.0.0.5"),
        ("10.0.0.5/32", "10.0.0.5"),
        ("10.0.0.0/24", "10.0.0.0"),
        ("10.0.0.0/24", "10.0.0.255"),
        ("127.0.0.1", "::ffff:127.0.0.1"),  # as a socket for both kinds of addresses tells it
        ("::1", "::1"),
        ("2001:db8::/64", "2001:0db8:0:0:ffff::1"),
        ("0.0.0.0/0", ELSEWHERE),
    ],
)
def test_the_proxy_is_an_address_or_a_network(trusted: str, peer: str) -> None:
    assert seen(peer, trusted, x_forwarded_for=ALICES) == (ALICES, "http")


@pytest.mark.parametrize("header", ["forwarded", "x_real_ip", "client_ip", "x_forwarded_by", "x_forwarded_host"])
def test_other_headers_tell_nothing(header: str) -> None:
    assert seen(PROXY, **{header: f"for={ALICES};proto=https;host=evil.example"}) == (PROXY, "http")


def test_another_host_is_not_taken_from_a_header() -> None:
    environ = {"REMOTE_ADDR": PROXY, "PATH_INFO": "/", "wsgi.url_scheme": "http", "HTTP_HOST": "chat.example"}
    origin = read_origin({**environ, "HTTP_X_FORWARDED_HOST": "evil.example"}, Settings(trusted_proxy=PROXY))
    assert origin.site == "http://chat.example"


def test_the_public_url_wins_over_the_proxy() -> None:
    environ = {"REMOTE_ADDR": PROXY, "PATH_INFO": "/", "wsgi.url_scheme": "http", "HTTP_X_FORWARDED_PROTO": "http"}
    told = Settings(trusted_proxy=PROXY, public_url="https://chat.example/")
    assert read_origin(environ, told).site == "https://chat.example"


# What it says.


@pytest.mark.parametrize(
    ("told", "address"),
    [
        (ALICES, ALICES),
        (f" \t{ALICES} ", ALICES),
        (f"{ALICES}:51234", ALICES),
        ("2001:DB8::7", "2001:db8::7"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("[2001:db8::7]:51234", "2001:db8::7"),
        ("::ffff:203.0.113.7", ALICES),
        (f"{BOBS}, {ALICES}", ALICES),
        (f"127.0.0.1, {PROXY},{ALICES}", ALICES),
        (f"{'1.1.1.1,' * 2000}{ALICES}", ALICES),
    ],
)
def test_the_last_hop_is_the_client(told: str, address: str) -> None:
    assert seen(PROXY, x_forwarded_for=told)[0] == address


MALFORMED = [
    "",
    ",",
    f"{ALICES},",
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


@pytest.mark.parametrize("told", MALFORMED, ids=lambda told: ascii(told[:20]))
def test_what_is_no_address_counts_as_the_proxy(told: str) -> None:
    assert seen(PROXY, x_forwarded_for=told)[0] == PROXY


@pytest.mark.parametrize(
    ("told", "scheme"),
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
def test_the_scheme_is_one_of_two(told: str, scheme: str) -> None:
    assert seen(PROXY, x_forwarded_proto=told)[1] == scheme


def test_a_proxy_that_says_nothing_is_the_client() -> None:
    assert seen(PROXY) == (PROXY, "http")
    assert seen(PROXY, scheme="https") == (PROXY, "https")


# What comes of it.


def test_guessing_is_counted_for_the_real_clients(anyone: Client, alice: Client) -> None:
    for _ in range(LIMIT):
        assert guess(anyone, PROXY, x_forwarded_for=ALICES).error == (401, "invalid_credentials")
    assert guess(anyone, PROXY, x_forwarded_for=ALICES).error == (429, "rate_limited")
    assert guess(anyone, "10.0.0.6", x_forwarded_for="203.0.113.200").error == (429, "rate_limited")  # her /24
    assert guess(anyone, PROXY, x_forwarded_for=BOBS).error == (401, "invalid_credentials")
    right = {"email": "alice@example.com", "password": PASSWORD}
    assert anyone.post("/auth/login", right, address=PROXY, x_forwarded_for=BOBS).status == 200


def test_a_client_cannot_make_up_hops_to_go_on_guessing(anyone: Client, alice: Client) -> None:
    for number in range(LIMIT):
        told = f"8.8.{number}.8, {ALICES}"  # a proxy that appends
        assert guess(anyone, PROXY, x_forwarded_for=told).error == (401, "invalid_credentials")
    assert guess(anyone, PROXY, x_forwarded_for=f"9.9.9.9, {ALICES}").error == (429, "rate_limited")
    for number in range(LIMIT):
        assert guess(anyone, ELSEWHERE, x_forwarded_for=f"8.8.{number}.8").error == (401, "invalid_credentials")
    assert guess(anyone, ELSEWHERE, x_forwarded_for="9.9.9.9").error == (429, "rate_limited")
    assert {attempt.network for attempt in LoginAttempt.select()} == {"203.0.113.0/24", "192.0.2.0/24"}


@pytest.mark.parametrize("told", ["", "unknown", ":80", "[", "x" * 5000], ids=ascii)
def test_malformed_hops_are_no_way_around_throttling(told: str, anyone: Client, alice: Client) -> None:
    for _ in range(LIMIT):
        assert guess(anyone, PROXY, x_forwarded_for=told).error == (401, "invalid_credentials")
    assert guess(anyone, PROXY, x_forwarded_for=told).error == (429, "rate_limited")
    assert {attempt.network for attempt in LoginAttempt.select()} == {"10.0.0.0/24"}


def cookies(anyone: Client, address: str, **headers: str) -> str:
    return anyone.get("//sign-in", address=address, **headers).headers["Set-Cookie"]


def test_cookies_are_secure_where_the_proxy_says_https(anyone: Client) -> None:
    secure = cookies(anyone, PROXY, x_forwarded_proto="https")
    assert secure.startswith("__Host-cx_form=") and "; Secure" in secure
    for address, proto in [(PROXY, "http"), (PROXY, "ftp"), (ELSEWHERE, "https")]:
        plain = cookies(anyone, address, x_forwarded_proto=proto)
        assert plain.startswith("cx_form=") and "Secure" not in plain


def test_oauth_clients_are_told_the_address_that_they_asked(anyone: Client) -> None:
    path = "//.well-known/oauth-authorization-server"
    told = anyone.get(path, address=PROXY, x_forwarded_proto="https", host="chat.example")
    assert told.json["issuer"] == "https://chat.example"


# The setting.


@pytest.mark.parametrize(
    "text", ["localhost", "10.0.0.5/24", "10.0.0", "10.0.0.0/33", "*", "10.0.0.5 10.0.0.6", "[::1]"]
)
def test_a_setting_that_is_neither_is_one_sentence(text: str) -> None:
    with pytest.raises(ValueError) as refusal:
        proxy_network(text)
    assert str(refusal.value) == f"--trusted-proxy must be an address or a network such as 10.0.0.0/24, not {text!r}"


@pytest.mark.slow
def test_the_service_does_not_start_with_one(tmp_path: Path) -> None:
    line = [sys.executable, str(ROOT / "app.py"), "serve", "--port", "0", "--trusted-proxy", "everybody"]
    done = subprocess.run(line, cwd=tmp_path, env=environment(), capture_output=True, timeout=30)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().splitlines() == [
        "cx-service: --trusted-proxy must be an address or a network such as 10.0.0.0/24, not 'everybody'"
    ]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(("trusted", "is_believed"), [("127.0.0.1", True), ("10.0.0.0/8", False), ("", False)])
def test_headers_over_the_wire(trusted: str, is_believed: bool, tmp_path: Path) -> None:
    fill(tmp_path / "data", chat())
    headers = {"X-Forwarded-Proto": "https", "Content-Type": "application/json"}
    wrong = {"email": "alice@example.com", "password": "a guess"}
    with serving(tmp_path / "data", CX_TRUSTED_PROXY=trusted, CX_LOGIN_FAILURES="1") as server:
        cookie = server.call("GET", "/sign-in", headers=headers).headers["Set-Cookie"]
        assert ("; Secure" in cookie) is is_believed
        with contextlib.closing(server.connect()) as connection:
            statuses = [
                ask(
                    connection, "POST", "/api/v1/auth/login", wrong, headers={**headers, "X-Forwarded-For": told}
                ).status
                for told in (ALICES, ALICES, BOBS, f"1.1.1.1, {BOBS}", ":1.", '"', ":80")
            ]
    assert statuses == ([401, 429, 401, 429, 401, 429, 429] if is_believed else [401] + [429] * 6)
