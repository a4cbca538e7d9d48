"""The command-line client against a running server: signing in through a browser, and what it can do then."""

import argparse
import json
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

from service import client, commands, terminal
from service.commands import Stop
from service.commands import client as command
from tests.browsing import Browser, remote
from tests.conftest import PASSWORD
from tests.serving import APP, ROOT, SESSION, chat, environment, fill, serving

ALICE = {"email": "alice@example.com", "password": PASSWORD}
BOTS = [
    {"bot": {"app_id": APP, "name": f"Bot {number:03}", "status": "published", "tagline": "\x1b[31mred"}}
    for number in range(130)
]


class TestItsParts:
    def test_keep_tokens_where_only_their_owner_can_read_them(self, tmp_path):
        keyring = client.Keyring(tmp_path / "deep" / "client.json")
        service = client.Service("http://127.0.0.1:1/", keyring)
        with pytest.raises(client.Failed, match="not signed in at http://127.0.0.1:1: run"):
            service.tokens()
        service.keep({"access_token": "a", "refresh_token": "r"})
        assert service.tokens() == {"access_token": "a", "refresh_token": "r"}
        assert stat.S_IMODE(keyring.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(keyring.path.parent.stat().st_mode) == 0o700
        assert [path.name for path in keyring.path.parent.iterdir()] == ["client.json"]
        assert keyring.read()["install_id"] == keyring.read()["install_id"]

    def test_keep_the_tokens_of_several_services_apart(self, tmp_path):
        keyring = client.Keyring(tmp_path / "client.json")
        one, two = (client.Service(f"http://127.0.0.1:{port}", keyring) for port in (1, 2))
        for service in (one, two):
            service.keep({"access_token": service.url, "refresh_token": ""})
        one.keep({})
        assert two.tokens()["access_token"] == two.url
        with pytest.raises(client.Failed):
            one.tokens()

    @pytest.mark.parametrize("text", ["", "{", "[]x", "[]", "{}", '{"install_id": "x", "services": 5}'])
    def test_say_when_their_file_is_damaged(self, tmp_path, text):
        (tmp_path / "client.json").write_text(text)
        with pytest.raises(client.Failed, match=r"cannot read .*client\.json"):
            client.Keyring(tmp_path / "client.json").read()

    @pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://x", "http://", "file:///etc/passwd"])
    def test_take_addresses_of_the_web_only(self, url):
        with pytest.raises(client.Failed, match="begins with http"):
            client.ask("GET", url)

    def test_say_when_nobody_answers(self):
        with pytest.raises(client.Failed, match="cannot reach http://127.0.0.1:1:"):
            client.ask("GET", "http://127.0.0.1:1/x")

    def test_send_away_whoever_knocks_without_our_state(self):
        with client.Listener() as listener:
            strangers = [listener.url + query for query in ("", "?code=stolen&state=wrong", "?code=stolen")]
            strangers.append(listener.url.replace("callback", "favicon.ico"))
            knock(*strangers, f"{listener.url}?code=good&state=right&iss=x")
            assert listener.wait(60, "right") == {"code": "good", "state": "right", "iss": "x"}

    def test_are_not_kept_waiting_by_whoever_is_slow_or_talks_nonsense(self, capfd):
        """Any user of this computer may connect, and browsers open connections that they may need later."""
        with client.Listener() as listener, ExitStack() as opened:
            where = listener.server.server_address[:2]
            for said in (
                *[b""] * 20,
                b"GET /callback?code=",
                b"\x00\xff",
                b"GET " + b"x" * 99_999,
                b"GET / HTTP/1.1\r\n",
            ):
                opened.enter_context(closing(socket.create_connection(where, timeout=60))).sendall(said)
            knock(f"{listener.url}?code=good&state=right")
            assert listener.wait(60, "right")["code"] == "good"
        assert capfd.readouterr() == ("", "")

    def test_are_told_the_answer_only_when_the_page_is_out(self):
        with client.Listener() as listener:
            url = f"{listener.url}?code=good&state=right"
            with urllib.request.urlopen(url, timeout=60) as page:
                assert b"You can go back" in page.read()
                assert page.headers["Referrer-Policy"] == "no-referrer"
            assert listener.wait(60, "right")["code"] == "good"

    def test_write_through_no_link_that_somebody_planted(self, tmp_path):
        keyring, victim = client.Keyring(tmp_path / "client.json"), tmp_path / "victim"
        victim.write_text("precious")
        for name in ("client.json", "client.json.new"):
            (tmp_path / name).symlink_to(victim)
            keyring.write({"install_id": "x", "services": {}})
            assert victim.read_text() == "precious"
            assert not keyring.path.is_symlink()

    def test_lose_nothing_when_several_write_at_once(self, tmp_path):
        def sign_in(port):
            service = client.Service(f"http://127.0.0.1:{port}", client.Keyring(tmp_path / "client.json"))
            service.keep({"access_token": str(port), "refresh_token": ""})

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(sign_in, range(40)))
        assert len(client.Keyring(tmp_path / "client.json").read()["services"]) == 40

    def test_wait_for_as_long_as_one_likes(self):
        with client.Listener() as listener:
            knock(f"{listener.url}?code=good&state=right")
            assert listener.wait(float("inf"), "right")["code"] == "good"

    def test_stop_waiting(self):
        with client.Listener() as listener, pytest.raises(client.Failed, match="nobody answered"):
            listener.wait(0.05, "x")

    def test_let_no_message_command_the_terminal(self):
        assert terminal.clean("a\x1b[2Jb\nc\u202ed") == "a [2Jb c d"

    @pytest.mark.parametrize("content", [[], [1, 2], [300], list(b"{}"), list(b"[1]"), list(b'{"x": 1}')])
    def test_name_the_kind_of_what_has_no_text(self, content):
        assert command.text_of({"content": content, "content_type": "image"}) == "[image]"


class Impostor:
    """A service that answers what it is told to: by method and path, a status and a body, or a function of neither."""

    def __init__(self):
        self.asked, self.answers = [], {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                content = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                outer.asked.append((f"{self.command} {self.path}", self.headers["Authorization"], content))
                told = outer.answers.get(f"{self.command} {self.path}", (404, {}))
                status, body = told(self.headers) if callable(told) else told
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            do_GET = do_POST = answer

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
    """Ours to use the impostor with, signed in."""
    ours = client.Service(impostor.url, client.Keyring(tmp_path / "client.json"))
    ours.keep({"access_token": "cxa_1", "refresh_token": "cxr_1"})
    return ours


METADATA, TOKEN = "GET /.well-known/oauth-authorization-server", "POST /api/v1/auth/cli/token"
EXPIRED = (401, {"error": {"message": "expired"}})


class TestAServiceThatIsNotWhatItSeems:
    def test_cannot_pose_as_another_to_get_its_codes(self, service, impostor):
        """The person would approve at the honest one, and the code would go to the impostor (RFC 9700, section 4.4)."""
        honest = "https://honest.example"
        impostor.answers[METADATA] = (200, {"issuer": honest, "authorization_endpoint": f"{honest}/authorize"})
        with pytest.raises(client.Failed, match=f"says that its address is {honest}"):
            service.log_in("", pytest.fail, browse=False, patience=0)

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
    def test_cannot_send_the_browser_elsewhere(self, service, impostor, page):
        page = page and page.replace("{url}", impostor.url)
        impostor.answers[METADATA] = (200, {"issuer": impostor.url, "authorization_endpoint": page})
        with pytest.raises(client.Failed, match="would send you elsewhere"):
            service.log_in("", pytest.fail, browse=False, patience=0)

    @pytest.mark.parametrize("body", [[], {}, "x", 5, None])
    def test_is_told_from_ours(self, service, impostor, body):
        impostor.answers[METADATA] = (200, body)
        with pytest.raises(client.Failed):
            service.log_in("", pytest.fail, browse=False, patience=0)

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_cannot_send_our_token_elsewhere(self, service, impostor, status):
        impostor.answers["GET /api/v1/users/me"] = (status, {})
        with pytest.raises(client.Refused, match=f"answered {status}"):
            service.call("GET", "/users/me")
        assert [what for what, *_ in impostor.asked] == ["GET /api/v1/users/me"]

    def test_cannot_command_the_terminal(self, service, impostor, monkeypatch, capsys):
        monkeypatch.setattr(client, "config_folder", lambda: service.keyring.path.parent)
        flags = argparse.Namespace(url=impostor.url, act=command.tell_who, json=False)
        me = {"first_name": "\x1b[2J\x9b", "last_name": "\ud800", "email": "\x07", "role": "\r"}
        impostor.answers["GET /api/v1/users/me"] = (200, {"data": me})
        command.run(flags, None)
        assert capsys.readouterr().out.removesuffix("\n").isprintable()
        impostor.answers["GET /api/v1/users/me"] = (400, {"error": {"message": "\x1b[2J"}})
        assert commands.run(["client", "whoami", "--url", impostor.url]) == 1
        assert capsys.readouterr().err == "cx-service:  [2J\n"


class TestWithoutEncryption:
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
    def test_signing_in_at_another_computer_is_warned_of(self, tmp_path, monkeypatch, capsys, url, warns):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        flags = argparse.Namespace(url=url, act=command.log_in, json=False, scope="", no_browser=True, patience=0)
        with pytest.raises(Stop, match="cannot reach"):
            command.run(flags, None)
        assert ("Careful: without https" in capsys.readouterr().err) == warns


class TestRenewing:
    def test_is_done_by_one_of_several_clients(self, service, impostor):
        """Each refresh token works once; after its ten seconds, another use would end the login."""
        waiting = threading.Barrier(8)

        def me(headers):
            if headers["Authorization"] == "Bearer cxa_2":
                return 200, {"data": {}}
            waiting.wait(60)  # all of them have asked with the old token
            return EXPIRED

        impostor.answers["GET /api/v1/users/me"] = me
        impostor.answers[TOKEN] = (200, {"access_token": "cxa_2", "refresh_token": "cxr_2", "token_type": "Bearer"})
        others = [client.Service(impostor.url, client.Keyring(service.keyring.path)) for _ in range(8)]
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda other: other.call("GET", "/users/me"), others)) == [{"data": {}}] * 8
        assert [what for what, *_ in impostor.asked].count(TOKEN) == 1
        assert service.tokens() == {"access_token": "cxa_2", "refresh_token": "cxr_2"}

    def test_is_not_taken_for_the_end_of_the_login_when_the_service_has_trouble(self, service, impostor):
        impostor.answers["GET /api/v1/users/me"] = EXPIRED
        impostor.answers[TOKEN] = (503, {"error": "storage_unavailable"})
        with pytest.raises(client.Refused, match="answered 503"):
            service.call("GET", "/users/me")
        assert service.tokens()["refresh_token"] == "cxr_1"

    def test_does_not_bring_back_what_was_forgotten_meanwhile(self, service, impostor):
        def me(headers):
            service.keep({})
            return EXPIRED

        impostor.answers["GET /api/v1/users/me"] = me
        with pytest.raises(client.Ended, match="not signed in"):
            service.call("GET", "/users/me")
        assert TOKEN not in [what for what, *_ in impostor.asked]


class TestLoggingOut:
    @pytest.mark.parametrize("answer", [EXPIRED, (200, {"data": {"logged_out": True}})])
    def test_forgets_the_tokens(self, service, impostor, answer):
        impostor.answers["POST /api/v1/auth/logout"] = answer
        impostor.answers[TOKEN] = (400, {"error": "invalid_grant"})
        service.log_out()
        with pytest.raises(client.Ended):
            service.tokens()
        service.log_out()

    @pytest.mark.parametrize("is_there", [True, False])
    def test_says_if_the_login_goes_on_there(self, service, impostor, is_there):
        impostor.answers["POST /api/v1/auth/logout"] = (503, {})
        service = service if is_there else client.Service("http://127.0.0.1:1", service.keyring)
        service.keep({"access_token": "cxa_1", "refresh_token": "cxr_1"})
        with pytest.raises(client.Failed, match="but the login goes on there"):
            service.log_out()
        with pytest.raises(client.Ended):
            service.tokens()


def knock(*urls):
    """Ask for some addresses, one after the other, without waiting for it here."""

    def ask():
        for url in urls:
            with suppress(OSError), urllib.request.urlopen(url, timeout=60) as answer:
                answer.read()

    threading.Thread(target=ask).start()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    data = tmp_path_factory.mktemp("client") / "data"
    fill(data, [*chat(250), *BOTS])
    with serving(data, "--verify-answers") as running:
        yield running


@contextmanager
def started(home, served, *arguments, **settings):
    """The client at work, with a home of its own."""
    line = [sys.executable, str(ROOT / "app.py"), "client", *arguments, "--url", served.url]
    env = {**environment(**settings), "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")}
    with subprocess.Popen(
        line, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def run(home, served, *arguments, **settings):
    """What a command prints; its exit status and its complaints."""
    with started(home, served, *arguments, **settings) as process:
        printed, complaints = process.communicate(timeout=60)
        return process.returncode, printed, complaints


def log_in(home, served, *arguments, answer="approve"):
    """Log in, with a person at the browser: what is printed, the exit status, and the complaints."""
    with started(home, served, "login", "--no-browser", *arguments) as process:
        page = next(line for line in process.stderr if line.startswith("http://")).strip()
        browser = Browser(remote(served), served.url)
        assert browser.open(page.removeprefix(served.url)).status == 401
        browser.send(**ALICE)
        browser.send(answer=answer)
        with urllib.request.urlopen(browser.onward, timeout=60) as reply:
            assert b"You can go back" in reply.read()
        printed, complaints = process.communicate(timeout=60)
        return process.returncode, printed, complaints


@pytest.mark.slow
class TestInATerminal:
    def test_logs_in_and_says_who_it_is(self, tmp_path, served):
        status, printed, _ = log_in(tmp_path, served)
        assert (status, printed) == (0, f"alice@example.com <alice@example.com>, user at {served.url}\n")
        assert run(tmp_path, served, "whoami")[:2] == (0, printed)
        kept = tmp_path / "config" / "cx-service" / "client.json"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600

    def test_reads_lists_and_logs_out(self, tmp_path, served):
        log_in(tmp_path, served)
        _, printed, _ = run(tmp_path, served, "chats")
        assert printed.split()[0] == SESSION
        assert printed.split()[-1] == "open"
        _, printed, _ = run(tmp_path, served, "read", SESSION)
        assert [line.split()[-1] for line in printed.splitlines()] == [str(number) for number in range(250)]
        _, printed, _ = run(tmp_path, served, "bots", APP)
        assert len(printed.splitlines()) == 130
        assert "\x1b" not in printed
        assert run(tmp_path, served, "bots")[1] == printed
        _, printed, _ = run(tmp_path, served, "bots", APP, "--search", "bot 007", "--json")
        assert json.loads(printed)["name"] == "Bot 007"
        assert run(tmp_path, served, "logout")[:2] == (0, f"signed out at {served.url}\n")
        status, printed, complaints = run(tmp_path, served, "whoami")
        assert (status, printed) == (1, "")
        assert (
            complaints
            == f"cx-service: not signed in at {served.url}: run `cx-service client login --url {served.url}`\n"
        )

    def test_says_when_it_was_denied(self, tmp_path, served):
        status, printed, complaints = log_in(tmp_path, served, answer="deny")
        assert (status, printed) == (1, "")
        assert complaints.endswith("cx-service: the sign-in was refused: access_denied\n")

    def test_asks_for_no_more_than_it_was_told_to(self, tmp_path, served):
        log_in(tmp_path, served, "--scope", "profile:read")
        status, _, complaints = run(tmp_path, served, "read", SESSION)
        assert (status, complaints) == (1, "cx-service: The token lacks the scope chats:read.\n")

    def test_gives_up_when_nobody_answers(self, tmp_path, served):
        status, _, complaints = run(tmp_path, served, "login", "--no-browser", "--patience", "0.2")
        assert status == 1
        assert complaints.endswith("nobody answered in the browser within 0 seconds\n")

    def test_opens_the_browser_that_the_person_has(self, tmp_path, served):
        script = tmp_path / "browser"
        script.write_text(f'#!/bin/sh\nprintf %s "$1" > {tmp_path}/opened\n')
        script.chmod(0o755)
        run(tmp_path, served, "login", "--patience", "2", BROWSER=str(script))
        opened = (tmp_path / "opened").read_text()
        assert opened.startswith(f"{served.url}/api/v1/auth/cli/authorize?client_id=service-cli&")

    def test_renews_its_tokens_silently(self, tmp_path, served):
        log_in(tmp_path, served)
        kept = client.Keyring(tmp_path / "config" / "cx-service" / "client.json")
        found = kept.read()
        before = found["services"][served.url]["refresh_token"]
        found["services"][served.url]["access_token"] = "cxa_expired"
        kept.write(found)
        assert run(tmp_path, served, "whoami")[0] == 0
        assert kept.read()["services"][served.url]["refresh_token"] != before

    def test_says_when_the_login_was_revoked(self, tmp_path, served):
        log_in(tmp_path, served)
        token = served.log_in()
        for install in served.call("GET", "/api/v1/users/me/installs", token=token).data:
            served.call("DELETE", f"/api/v1/users/me/installs/{install['id']}", token=token)
        status, _, complaints = run(tmp_path, served, "whoami")
        assert status == 1
        assert "the sign-in has ended: run" in complaints
        assert run(tmp_path, served, "logout")[0] == 0

    def test_says_when_it_cannot_keep_anything(self, tmp_path, served):
        (tmp_path / "config").mkdir()
        (tmp_path / "config" / "cx-service").symlink_to("/proc/nothing")
        assert "cannot write" in run(tmp_path, served, "login", "--no-browser")[2]
