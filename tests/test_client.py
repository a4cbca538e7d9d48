"""The command-line client against a running server: signing in through a browser, and what it can do then."""

import json
import stat
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager, suppress

import pytest

from service import client
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
        service.keep({"access_token": "a", "refresh_token": "r", "scope": "x"})
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

    @pytest.mark.parametrize("text", ["", "{", "[]x"])
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
            assert listener.wait(10, "right") == {"code": "good", "state": "right", "iss": "x"}

    def test_stop_waiting(self):
        with client.Listener() as listener, pytest.raises(client.Failed, match="nobody answered"):
            listener.wait(0.05, "x")

    def test_let_no_message_command_the_terminal(self):
        assert command.clean("a\x1b[2Jb\nc\u202ed") == "a [2Jb c d"

    @pytest.mark.parametrize("content", [[], [1, 2], [300], list(b"{}"), list(b"[1]"), list(b'{"x": 1}')])
    def test_name_the_kind_of_what_has_no_text(self, content):
        assert command.text_of({"content": content, "content_type": "image"}) == "[image]"


def knock(*urls):
    """Ask for some addresses, one after the other, without waiting for it here."""

    def ask():
        for url in urls:
            with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
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
        with urllib.request.urlopen(browser.onward, timeout=20) as reply:
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
