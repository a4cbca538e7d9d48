"""The command-line client against a running server: login through a browser, and the commands after it."""

import argparse
import json
import re
import socket
import stat
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from service import client, commands, escape
from service.commands import Stop
from service.commands import client as command
from tests.support.passwords import PASSWORD
from tests.support.paths import ROOT
from tests.support.server_process import APP, SESSION, chat, environment, fill, serving
from tests.support.web_client import Browser, remote

pytestmark = pytest.mark.database


ALICE = {"email": "alice@example.com", "password": PASSWORD}
BOTS = [
    {"bot": {"app_id": APP, "name": f"Bot {number:03}", "status": "published", "tagline": "\x1b[31mred"}}
    for number in range(130)
]


class TestParts:
    def test_store_tokens_in_a_private_file(self, tmp_path):
        store = client.TokenStore(tmp_path / "deep" / "client.json")
        service = client.Service("http://127.0.0.1:1/", store)
        with pytest.raises(client.ClientError, match="not signed in at http://127.0.0.1:1: run"):
            service.tokens()
        service.store_tokens({"access_token": "a", "refresh_token": "r"})
        assert service.tokens() == {"access_token": "a", "refresh_token": "r"}
        assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
        assert [path.name for path in store.path.parent.iterdir()] == ["client.json"]
        assert store.read()["install_id"] == store.read()["install_id"]

    def test_store_the_tokens_of_each_service_separately(self, tmp_path):
        store = client.TokenStore(tmp_path / "client.json")
        one, two = (client.Service(f"http://127.0.0.1:{port}", store) for port in (1, 2))
        for service in (one, two):
            service.store_tokens({"access_token": service.url, "refresh_token": ""})
        one.store_tokens({})
        assert two.tokens()["access_token"] == two.url
        with pytest.raises(client.ClientError):
            one.tokens()

    @pytest.mark.parametrize("text", ["", "{", "[]x", "[]", "{}", '{"install_id": "x", "services": 5}'])
    def test_report_a_damaged_file(self, tmp_path, text):
        (tmp_path / "client.json").write_text(text)
        with pytest.raises(client.ClientError, match=r"cannot read .*client\.json"):
            client.TokenStore(tmp_path / "client.json").read()

    @pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://x", "http://", "file:///etc/passwd"])
    def test_accept_http_urls_only(self, url):
        with pytest.raises(client.ClientError, match="begins with http"):
            client.send("GET", url)

    def test_report_a_refused_connection(self):
        with pytest.raises(client.ClientError, match="cannot reach http://127.0.0.1:1:"):
            client.send("GET", "http://127.0.0.1:1/x")

    def test_ignore_callbacks_without_the_state(self):
        with client.CallbackListener() as listener:
            others = [listener.url + query for query in ("", "?code=stolen&state=wrong", "?code=stolen")]
            others.append(listener.url.replace("callback", "favicon.ico"))
            request_urls(*others, f"{listener.url}?code=good&state=right&iss=x")
            assert listener.wait(60, "right") == {"code": "good", "state": "right", "iss": "x"}

    def test_are_not_blocked_by_slow_or_invalid_requests(self, capfd):
        """Any user of this computer may connect, and browsers open connections in advance."""
        with client.CallbackListener() as listener, ExitStack() as opened:
            where = listener.server.server_address[:2]
            for sent in (
                *[b""] * 20,
                b"GET /callback?code=",
                b"\x00\xff",
                b"GET " + b"x" * 99_999,
                b"GET / HTTP/1.1\r\n",
            ):
                opened.enter_context(closing(socket.create_connection(where, timeout=60))).sendall(sent)
            request_urls(f"{listener.url}?code=good&state=right")
            assert listener.wait(60, "right")["code"] == "good"
        assert capfd.readouterr() == ("", "")

    def test_receive_the_result_after_the_page_was_sent(self):
        with client.CallbackListener() as listener:
            url = f"{listener.url}?code=good&state=right"
            with urllib.request.urlopen(url, timeout=60) as page:
                assert b"You can go back" in page.read()
                assert page.headers["Referrer-Policy"] == "no-referrer"
            assert listener.wait(60, "right")["code"] == "good"

    def test_do_not_write_through_a_symbolic_link(self, tmp_path):
        store, victim = client.TokenStore(tmp_path / "client.json"), tmp_path / "victim"
        victim.write_text("precious")
        for name in ("client.json", "client.json.new"):
            (tmp_path / name).symlink_to(victim)
            store.write({"install_id": "x", "services": {}})
            assert victim.read_text() == "precious"
            assert not store.path.is_symlink()

    def test_lose_no_tokens_on_concurrent_writes(self, tmp_path):
        def sign_in(port):
            service = client.Service(f"http://127.0.0.1:{port}", client.TokenStore(tmp_path / "client.json"))
            service.store_tokens({"access_token": str(port), "refresh_token": ""})

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(sign_in, range(40)))
        assert len(client.TokenStore(tmp_path / "client.json").read()["services"]) == 40

    def test_wait_without_a_timeout(self):
        with client.CallbackListener() as listener:
            request_urls(f"{listener.url}?code=good&state=right")
            assert listener.wait(float("inf"), "right")["code"] == "good"

    def test_stop_waiting_after_the_timeout(self):
        with (
            client.CallbackListener() as listener,
            pytest.raises(client.ClientError, match="no response from the browser"),
        ):
            listener.wait(0.05, "x")

    def test_escape_terminal_sequences_in_messages(self):
        assert escape.clean("a\x1b[2Jb\nc\u202ed") == "a [2Jb c d"

    @pytest.mark.parametrize("content", [[], [1, 2], [300], list(b"{}"), list(b"[1]"), list(b'{"x": 1}')])
    def test_print_the_content_type_of_messages_without_text(self, content):
        assert command.text_of({"content": content, "content_type": "image"}) == "[image]"


class Impostor:
    """A fake service. `responses` maps method and path to a status and a body, or to a function of the headers."""

    def __init__(self):
        self.requests, self.responses = [], {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def respond(self):
                content = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                outer.requests.append((f"{self.command} {self.path}", self.headers["Authorization"], content))
                response = outer.responses.get(f"{self.command} {self.path}", (404, {}))
                status, body = response(self.headers) if callable(response) else response
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            do_GET = do_POST = respond

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,)).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def impostor():
    with closing(Impostor()) as running:
        yield running


@pytest.fixture
def service(tmp_path, impostor):
    """The impostor as a signed-in client uses it."""
    service = client.Service(impostor.url, client.TokenStore(tmp_path / "client.json"))
    service.store_tokens({"access_token": "cxa_1", "refresh_token": "cxr_1"})
    return service


METADATA, TOKEN = "GET /.well-known/oauth-authorization-server", "POST /api/v1/auth/cli/token"
EXPIRED = (401, {"error": {"message": "expired"}})


class TestAnUntrustedService:
    def test_cannot_claim_another_issuer(self, service, impostor):
        """The user would approve at the honest service, but the impostor would get the code (RFC 9700, section 4.4)."""
        honest = "https://honest.example"
        impostor.responses[METADATA] = (200, {"issuer": honest, "authorization_endpoint": f"{honest}/authorize"})
        with pytest.raises(client.ClientError, match=f"has the public URL {honest}"):
            service.log_in("", pytest.fail, timeout=0)

    @pytest.mark.parametrize(
        "page",
        [
            "https://evil.example/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "--help",
            "",
            None,
            "{url}",
            "{url}@evil.example/",
            "{url}.evil.example/",
            "{url}/\x1b[2J",
            "{url}/ x",
            "{url}/\n",
        ],
    )
    def test_cannot_redirect_the_browser_to_another_site(self, service, impostor, page):
        page = page and page.replace("{url}", impostor.url)
        impostor.responses[METADATA] = (200, {"issuer": impostor.url, "authorization_endpoint": page})
        with pytest.raises(client.ClientError, match="sign-in page on another site"):
            service.log_in("", pytest.fail, timeout=0)

    @pytest.mark.parametrize("body", [[], {}, "x", 5, None])
    def test_with_invalid_metadata_is_an_error(self, service, impostor, body):
        impostor.responses[METADATA] = (200, body)
        with pytest.raises(client.ClientError):
            service.log_in("", pytest.fail, timeout=0)

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_cannot_redirect_requests_with_a_token(self, service, impostor, status):
        impostor.responses["GET /api/v1/users/me"] = (status, {})
        with pytest.raises(client.ErrorResponse, match=f"returned status {status}"):
            service.call("GET", "/users/me")
        assert [request for request, *_ in impostor.requests] == ["GET /api/v1/users/me"]

    def test_cannot_write_terminal_sequences(self, service, impostor, monkeypatch, capsys):
        monkeypatch.setattr(client, "config_folder", lambda: service.token_store.path.parent)
        flags = argparse.Namespace(url=impostor.url, act=command.print_user, json=False)
        me = {"first_name": "\x1b[2J\x9b", "last_name": "\ud800", "email": "\x07", "role": "\r"}
        impostor.responses["GET /api/v1/users/me"] = (200, {"data": me})
        command.run(flags, None)
        assert capsys.readouterr().out.removesuffix("\n").isprintable()
        impostor.responses["GET /api/v1/users/me"] = (400, {"error": {"message": "\x1b[2J"}})
        assert commands.run(["client", "whoami", "--url", impostor.url]) == 1
        assert capsys.readouterr().err == "cx-service:  [2J\n"


class TestDeviceLogin:
    @pytest.fixture
    def device(self, impostor, monkeypatch):
        """The impostor with a device code, and a client that does not wait."""
        endpoint = f"{impostor.url}/device-authorization"
        impostor.responses[METADATA] = (200, {"issuer": impostor.url, "device_authorization_endpoint": endpoint})
        codes = {"device_code": "d", "user_code": "u", "verification_uri": f"{impostor.url}/device"}
        impostor.responses["POST /device-authorization"] = (200, {**codes, "interval": 5, "expires_in": 60})
        waits = []
        monkeypatch.setattr(client.time, "sleep", waits.append)
        return waits

    def test_waits_longer_after_slow_down_and_failures(self, service, impostor, device):
        errors = iter(
            [
                (400, {"error": "authorization_pending", "error_description": "x"}),
                (400, {"error": "slow_down", "error_description": "x"}),
                (503, {"error": "storage_unavailable"}),
                (200, {"access_token": "cxa_2", "refresh_token": "cxr_2"}),
            ]
        )
        impostor.responses[TOKEN] = lambda _: next(errors)
        service.log_in_on_another_device("", lambda *_: None, timeout=60)
        assert device == pytest.approx([5, 5, 10, 15], abs=1)
        assert service.tokens() == {"access_token": "cxa_2", "refresh_token": "cxr_2"}

    @pytest.mark.parametrize("code", ["access_denied", "expired_token"])
    def test_ends_with_a_denial(self, service, impostor, device, code):
        impostor.responses[TOKEN] = (400, {"error": code, "error_description": "x"})
        with pytest.raises(client.ClientError, match=f"was denied: {code}"):
            service.log_in_on_another_device("", lambda *_: None, timeout=60)
        assert service.tokens()["access_token"] == "cxa_1"

    @pytest.mark.parametrize(
        "changes", [{"verification_uri": "https://evil.example/"}, {"verification_uri": "{url}/ x"}]
    )
    def test_shows_no_page_of_another_site(self, service, impostor, device, changes):
        status, codes = impostor.responses["POST /device-authorization"]
        changes = {name: value.replace("{url}", impostor.url) for name, value in changes.items()}
        impostor.responses["POST /device-authorization"] = (status, codes | changes)
        with pytest.raises(client.ClientError, match="on another site"):
            service.log_in_on_another_device("", pytest.fail, timeout=60)

    @pytest.mark.parametrize("body", [{}, {"device_code": "d"}, {"interval": None}, {"interval": "x"}])
    def test_reports_an_invalid_response(self, service, impostor, device, body):
        codes = impostor.responses["POST /device-authorization"][1]
        impostor.responses["POST /device-authorization"] = (200, codes | body if "interval" in body else body)
        with pytest.raises(client.ClientError, match="returned no device code"):
            service.log_in_on_another_device("", pytest.fail, timeout=60)


class TestWithoutTls:
    @pytest.mark.parametrize(
        ("url", "warns"),
        [
            ("http://0.0.0.0:1", True),
            ("http://127.0.0.1.evil.invalid:99999", True),
            ("http://127.0.0.1:1", False),
            ("http://LOCALHOST:1", False),
            ("http://[::1]:1", False),
            ("https://127.0.0.1:1", False),
        ],
    )
    def test_signing_in_at_another_host_prints_a_warning(self, tmp_path, monkeypatch, capsys, url, warns):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        flags = argparse.Namespace(url=url, act=command.log_in, json=False, scope="", no_browser=True, patience=0)
        with pytest.raises(Stop, match="cannot reach"):
            command.run(flags, None)
        assert ("Warning: without https" in capsys.readouterr().err) == warns


class TestRefreshing:
    def test_is_done_by_one_of_several_clients(self, service, impostor):
        """Each refresh token works once; after its ten seconds, another use would end the login."""
        waiting = threading.Barrier(8)

        def me(headers):
            if headers["Authorization"] == "Bearer cxa_2":
                return 200, {"data": {}}
            waiting.wait(60)  # until all have sent the old token
            return EXPIRED

        impostor.responses["GET /api/v1/users/me"] = me
        impostor.responses[TOKEN] = (200, {"access_token": "cxa_2", "refresh_token": "cxr_2", "token_type": "Bearer"})
        others = [client.Service(impostor.url, client.TokenStore(service.token_store.path)) for _ in range(8)]
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda other: other.call("GET", "/users/me"), others)) == [{"data": {}}] * 8
        assert [request for request, *_ in impostor.requests].count(TOKEN) == 1
        assert service.tokens() == {"access_token": "cxa_2", "refresh_token": "cxr_2"}

    def test_keeps_the_tokens_if_the_service_is_unavailable(self, service, impostor):
        impostor.responses["GET /api/v1/users/me"] = EXPIRED
        impostor.responses[TOKEN] = (503, {"error": "storage_unavailable"})
        with pytest.raises(client.ErrorResponse, match="returned status 503"):
            service.call("GET", "/users/me")
        assert service.tokens()["refresh_token"] == "cxr_1"

    def test_does_not_restore_tokens_deleted_in_the_meantime(self, service, impostor):
        def me(headers):
            service.store_tokens({})
            return EXPIRED

        impostor.responses["GET /api/v1/users/me"] = me
        with pytest.raises(client.NotSignedIn, match="not signed in"):
            service.call("GET", "/users/me")
        assert TOKEN not in [request for request, *_ in impostor.requests]


class TestLoggingOut:
    @pytest.mark.parametrize("response", [EXPIRED, (200, {"data": {"logged_out": True}})])
    def test_deletes_the_tokens(self, service, impostor, response):
        impostor.responses["POST /api/v1/auth/logout"] = response
        impostor.responses[TOKEN] = (400, {"error": "invalid_grant"})
        service.log_out()
        with pytest.raises(client.NotSignedIn):
            service.tokens()
        service.log_out()

    @pytest.mark.parametrize("is_reachable", [True, False])
    def test_reports_a_login_session_that_is_still_active(self, service, impostor, is_reachable):
        impostor.responses["POST /api/v1/auth/logout"] = (503, {})
        service = service if is_reachable else client.Service("http://127.0.0.1:1", service.token_store)
        service.store_tokens({"access_token": "cxa_1", "refresh_token": "cxr_1"})
        with pytest.raises(client.ClientError, match="but the login session is still active"):
            service.log_out()
        with pytest.raises(client.NotSignedIn):
            service.tokens()


def request_urls(*urls):
    """Request some URLs one after the other, in another thread."""

    def send():
        for url in urls:
            with suppress(OSError), urllib.request.urlopen(url, timeout=60) as response:
                response.read()

    threading.Thread(target=send).start()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    data = tmp_path_factory.mktemp("client") / "data"
    fill(data, [*chat(250), *BOTS])
    with serving(data, "--verify-answers") as running:
        yield running


@contextmanager
def started(home, served, *arguments, stdin=subprocess.DEVNULL, **settings):
    """Start the client with its own home folder."""
    line = [sys.executable, str(ROOT / "app.py"), "client", *arguments, "--url", served.url]
    env = {**environment(**settings), "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")}
    with subprocess.Popen(
        line, env=env, cwd=ROOT, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def run(home, served, *arguments, typed="", **settings):
    """Run the client with `typed` as standard input. Returns its exit status, output and errors."""
    with started(home, served, *arguments, stdin=subprocess.PIPE, **settings) as process:
        printed, errors = process.communicate(typed, timeout=60)
        return process.returncode, printed, errors


def start_chat(served):
    """Start a chat session of Alice. Returns its identifier."""
    return served.call("POST", "/api/v1/chats", {"app_id": APP}, served.log_in()).data["id"]


def log_in(home, served, *arguments, answer="approve"):
    """Sign in through a browser. Returns the exit status, output and errors."""
    with started(home, served, "login", *arguments, BROWSER="true") as process:
        page = next(line for line in process.stderr if line.startswith("http://")).strip()
        browser = Browser(remote(served), served.url)
        assert browser.open(page.removeprefix(served.url)).status == 401
        browser.send(**ALICE)
        browser.send(answer=answer)
        with urllib.request.urlopen(browser.redirect_url, timeout=60) as response:
            assert b"You can go back" in response.read()
        printed, errors = process.communicate(timeout=60)
        return process.returncode, printed, errors


def log_in_with_a_code(home, served, answer="approve"):
    """Sign in with a user code on another device. Returns the exit status, output and errors."""
    with started(home, served, "login", "--no-browser") as process:
        page = next(line for line in process.stderr if line.startswith("http://")).strip()
        code = next(line for line in process.stderr if line.startswith("Enter this code: ")).split()[-1]
        browser = Browser(remote(served), served.url)
        assert browser.open(page.removeprefix(served.url)).status == 401
        browser.send(**ALICE)
        browser.send(user_code=code, answer="continue")
        assert browser.send(answer=answer).status == 200
        printed, errors = process.communicate(timeout=60)
        return process.returncode, printed, errors


@pytest.mark.slow
class TestCommands:
    def test_login_prints_the_user(self, tmp_path, served):
        status, printed, _ = log_in(tmp_path, served)
        assert (status, printed) == (0, f"alice@example.com <alice@example.com>, user at {served.url}\n")
        assert run(tmp_path, served, "whoami")[:2] == (0, printed)
        file = tmp_path / "config" / "cx-service" / "client.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600

    def test_lists_are_printed_and_logout_ends_the_login(self, tmp_path, served):
        log_in(tmp_path, served)
        _, printed, _ = run(tmp_path, served, "chats")
        shown_time = r"\d{4}-\d\d-\d\d \d\d:\d\d"
        assert re.fullmatch(rf"{SESSION}  {shown_time}  open      Guest with Shop  line 249\n", printed)
        assert json.loads(run(tmp_path, served, "chats", "--json")[1])["id"] == SESSION
        _, printed, _ = run(tmp_path, served, "read", SESSION)
        assert [line.split()[-1] for line in printed.splitlines()] == [str(number) for number in range(250)]
        _, printed, _ = run(tmp_path, served, "bots", APP)
        assert len(printed.splitlines()) == 130
        assert "\x1b" not in printed
        assert run(tmp_path, served, "bots")[1] == printed
        _, printed, _ = run(tmp_path, served, "bots", APP, "--search", "bot 007", "--json")
        assert json.loads(printed)["name"] == "Bot 007"
        assert run(tmp_path, served, "logout")[:2] == (0, f"signed out at {served.url}\n")
        status, printed, errors = run(tmp_path, served, "whoami")
        assert (status, printed) == (1, "")
        assert (
            errors == f"cx-service: not signed in at {served.url}: run `cx-service client login --url {served.url}`\n"
        )

    def test_message_is_sent_from_the_arguments_or_from_standard_input(self, tmp_path, served):
        log_in(tmp_path, served)
        session = start_chat(served)
        status, printed, errors = run(tmp_path, served, "send", session, "Hello \u00fc")
        assert (status, errors) == (0, "")
        assert re.fullmatch(r"sent [0-9A-Z]{26}\n", printed)
        status, printed, _ = run(tmp_path, served, "send", session, "-", "--json", typed="two\nlines\n")
        assert command.text_of(json.loads(printed)) == "two\nlines"
        _, printed, _ = run(tmp_path, served, "read", session)
        assert [line.split("user     ")[1] for line in printed.splitlines()] == ["Hello \u00fc", "two lines"]
        assert f"{session}  " in run(tmp_path, served, "chats")[1].splitlines()[0]

    @pytest.mark.parametrize(
        ("arguments", "typed", "error"),
        [
            (["{session}", "  "], "", "the message is empty"),
            (["{session}", "-"], "\n", "the message is empty"),
            (["{session}", "Hi", "--note"], "", "You may not do this."),
            (["../users/me", "Hi"], "", "There is nothing at this address"),
            (["{session}", "x" * 70_000], "", "65536 bytes"),
        ],
    )
    def test_message_that_cannot_be_sent_is_reported(self, tmp_path, served, arguments, typed, error):
        log_in(tmp_path, served)
        session = start_chat(served)
        words = [word.replace("{session}", session) for word in arguments]
        status, printed, errors = run(tmp_path, served, "send", *words, typed=typed)
        assert (status, printed) == (1, "")
        assert re.search(error, errors, re.IGNORECASE), errors
        assert run(tmp_path, served, "read", session)[1] == ""

    def test_denied_sign_in_is_reported(self, tmp_path, served):
        status, printed, errors = log_in(tmp_path, served, answer="deny")
        assert (status, printed) == (1, "")
        assert errors.endswith("cx-service: the sign-in was denied: access_denied\n")

    def test_login_requests_the_given_scope(self, tmp_path, served):
        log_in(tmp_path, served, "--scope", "profile:read")
        status, _, errors = run(tmp_path, served, "read", SESSION)
        assert (status, errors) == (1, "cx-service: The token lacks the scope chats:read.\n")

    def test_login_ends_after_the_timeout(self, tmp_path, served):
        status, _, errors = run(tmp_path, served, "login", "--patience", "0.2", BROWSER="true")
        assert status == 1
        assert errors.endswith("no response from the browser within 0 seconds\n")
        status, _, errors = run(tmp_path, served, "login", "--no-browser", "--patience", "0.2")
        assert status == 1
        assert errors.endswith("the sign-in was not approved within 0 seconds\n")

    def test_login_without_a_browser_works_on_another_device(self, tmp_path, served):
        status, printed, errors = log_in_with_a_code(tmp_path, served)
        assert (status, printed) == (0, f"alice@example.com <alice@example.com>, user at {served.url}\n"), errors
        assert run(tmp_path, served, "whoami")[:2] == (0, printed)

    def test_login_without_a_browser_reports_a_denial(self, tmp_path, served):
        status, printed, errors = log_in_with_a_code(tmp_path, served, answer="deny")
        assert (status, printed) == (1, "")
        assert errors.endswith("cx-service: the sign-in was denied: access_denied\n")

    def test_login_opens_the_browser(self, tmp_path, served):
        script = tmp_path / "browser"
        script.write_text(f'#!/bin/sh\nprintf %s "$1" > {tmp_path}/opened\n')
        script.chmod(0o755)
        run(tmp_path, served, "login", "--patience", "2", BROWSER=str(script))
        opened = (tmp_path / "opened").read_text()
        assert opened.startswith(f"{served.url}/api/v1/auth/cli/authorize?client_id=service-cli&")

    def test_login_always_prints_the_address(self, tmp_path, served):
        for browser in ("true", "false", "missing-browser"):
            _, _, errors = run(tmp_path, served, "login", "--patience", "0.5", BROWSER=browser)
            assert f"\n{served.url}/api/v1/auth/cli/authorize?client_id=service-cli&" in errors

    def test_expired_token_is_refreshed(self, tmp_path, served):
        log_in(tmp_path, served)
        store = client.TokenStore(tmp_path / "config" / "cx-service" / "client.json")
        found = store.read()
        before = found["services"][served.url]["refresh_token"]
        found["services"][served.url]["access_token"] = "cxa_expired"
        store.write(found)
        assert run(tmp_path, served, "whoami")[0] == 0
        assert store.read()["services"][served.url]["refresh_token"] != before

    def test_revoked_login_is_reported(self, tmp_path, served):
        log_in(tmp_path, served)
        token = served.log_in()
        for install in served.call("GET", "/api/v1/users/me/installs", token=token).data:
            served.call("DELETE", f"/api/v1/users/me/installs/{install['id']}", token=token)
        status, _, errors = run(tmp_path, served, "whoami")
        assert status == 1
        assert "the login has ended: run" in errors
        assert run(tmp_path, served, "logout")[0] == 0

    def test_unwritable_configuration_folder_is_reported(self, tmp_path, served):
        (tmp_path / "config").mkdir()
        (tmp_path / "config" / "cx-service").symlink_to("/proc/nothing")
        assert "cannot write" in run(tmp_path, served, "login", "--no-browser")[2]
