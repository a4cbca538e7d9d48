"""E-mails of a service in its own process, and its death while it sends one."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import app
from service import clock, db
from service.models import Delivery, User
from tests.support.installation import settings_at
from tests.support.mail_server import MailServer, mail_server
from tests.support.mails import URL, link_in
from tests.support.server_process import SESSION, TIMEOUT, Served, chat, command, fill, serving
from tests.support.web_client import Browser, remote

pytestmark = [pytest.mark.slow, pytest.mark.database]

NEW = "a new password"


@pytest.fixture
def server() -> Iterator[MailServer]:
    with mail_server() as running:
        yield running


@pytest.fixture
def data(tmp_path: Path) -> Path:
    fill(tmp_path / "data", chat())
    return tmp_path / "data"


@pytest.fixture
def variables(server: MailServer) -> dict[str, str]:
    return {"CX_SMTP": f"smtp://{server.address}", "CX_MAIL_FROM": "Shop <shop@chat.example>", "CX_PUBLIC_URL": URL}


def until(condition: Callable[[], object], seconds: float = TIMEOUT) -> None:
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds
        time.sleep(0.02)


def request_password(served: Served) -> Browser:
    page = Browser(remote(served), URL)
    page.open("/forgot-password")
    assert page.send(email="alice@example.com").status == 200
    return page


def test_forgotten_password_is_replaced(data: Path, server: MailServer, variables: dict[str, str]) -> None:
    with serving(data, "--workers", "2", **variables) as served:
        page = request_password(served)
        until(lambda: server.mails)
        address = link_in(server.mails[0], "/reset-password")
        page.open(address)
        assert page.send(new_password=NEW).status == 200
        token = served.log_in(password=NEW)
        assert served.call("GET", "/api/v1/users/me", token=token).data["is_verified"] is True
        time.sleep(1)  # the other worker may look for deliveries, too
    assert [received.mail["Subject"] for received in server.mails] == ["Choose a new password"]
    assert address.partition("token=")[2] not in served.errors


def test_service_that_is_killed_before_it_notes_a_mail_sends_it_at_most_twice(
    data: Path, server: MailServer, variables: dict[str, str]
) -> None:
    with serving(data, **variables) as served:
        server.after_data = lambda: served.process.send_signal(signal.SIGKILL)
        request_password(served)
        until(lambda: served.process.poll() is not None)
    assert served.process.returncode == -signal.SIGKILL
    server.after_data = None
    end_leases(data)
    with serving(data, **variables) as served:
        until(lambda: len(server.mails) == 2)
    end_leases(data)
    with serving(data, **variables):
        time.sleep(2)
    first, second = (received.mail["Message-ID"] for received in server.mails)
    assert first == second


def end_leases(data: Path) -> None:
    """Let the time pass after which another worker claims the deliveries of one that died."""
    app.prepare(settings_at(data))
    Delivery.update(due_at=clock.now() - 1).execute()
    db.close_database()
    db.release_database()


def test_invitation_by_a_command_is_sent_by_the_service(
    data: Path, server: MailServer, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without = command("user", "invite", "grace@example.com", "--data", data)
    assert without.stderr.decode() == "cx-service: e-mail is not configured: --smtp is not set\n"
    flags = ("--smtp", variables["CX_SMTP"], "--mail-from", variables["CX_MAIL_FROM"], "--public-url", URL)
    done = command("user", "invite", "grace@example.com", "--display-name", "Grace", *flags, "--data", data)
    assert (done.returncode, done.stderr) == (0, b"")
    again = command("user", "reinvite", "grace@example.com", *flags, "--data", data)
    assert (again.returncode, again.stderr) == (0, b"")
    with_password = command("user", "reinvite", "alice@example.com", *flags, "--data", data)
    expected = "cx-service: only an enabled user without a password can be invited again\n"
    assert (with_password.returncode, with_password.stderr.decode()) == (1, expected)
    with serving(data, **variables):
        until(lambda: len(server.mails) == 2)
    for received in server.mails:
        assert received.recipient == "grace@example.com"
        assert "Invitation to chat.example" in received.mail["Subject"]
    shown = json.loads(command("user", "show", "grace@example.com", "--json", "--data", data).stdout)
    assert (shown["id"], shown["display_name"]) == (done.stdout.decode().strip(), "Grace")


def test_invalid_settings_end_the_start(data: Path) -> None:
    failed = command("serve", "--smtp", "smtp://localhost", "--data", data)
    assert failed.returncode == 1
    assert failed.stderr.decode() == "cx-service: --smtp needs --mail-from, and --public-url for the links in e-mails\n"


def test_unread_message_is_announced(data: Path, server: MailServer, variables: dict[str, str]) -> None:
    agent = {"user": {"email": "ada@example.com", "role": "admin", "display_name": "Ada", "password": NEW}}
    fill(data, [agent])
    app.prepare(settings_at(data))
    User.update(is_verified=True).execute()
    db.close_database()
    db.release_database()
    with serving(data, **variables) as served:
        token = served.log_in("ada@example.com", NEW)
        path = f"/api/v1/chats/{SESSION}/messages"
        assert served.call("POST", path, {"content": {"text": "Good news"}}, token).status == 201
        assert not server.mails
    end_leases(data)  # five minutes later
    with serving(data, **variables):
        until(lambda: server.mails)
    assert server.mails[0].recipient == "alice@example.com" and "Good news" in server.mails[0].part("plain")
