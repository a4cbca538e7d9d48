"""The server with webhooks: kills of workers, receivers that cannot be reached, and the command `webhook`."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from service import db
from service.models import Delivery, EndedWebhook
from tests.support import server_process
from tests.support.fake_ai import sends
from tests.support.paths import ROOT
from tests.support.server_process import SESSION, TIMEOUT
from tests.support.webhooks import ACCEPTS, SECRET, receiving

pytestmark = [pytest.mark.slow, pytest.mark.database]


@contextlib.contextmanager
def opened(data):
    """Open the database of a server in this process."""
    db.open_database(data, server_process.database_variables(data).get("CX_DATABASE", ""))
    try:
        yield
    finally:
        db.close_database()


@pytest.fixture
def data(tmp_path):
    """Alice and her chat session."""
    folder = tmp_path / "data"
    server_process.fill(folder, server_process.chat(0))
    return folder


def serving(data, *receivers, **more):
    urls = " ".join(receiver if isinstance(receiver, str) else receiver.target for receiver in receivers)
    return server_process.serving(data, "--workers", "2", CX_WEBHOOK=urls, CX_WEBHOOK_SECRET=SECRET, **more)


def send(server, token, number):
    reply = server.call("POST", f"/api/v1/chats/{SESSION}/messages", {"content": {"text": f"{number}"}}, token)
    assert reply.status == 201
    return reply.data["id"]


def wait_until(condition):
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < TIMEOUT
        time.sleep(0.02)


def messages(receiver):
    """The identifiers of the messages in the events, in the order of arrival."""
    return [event["data"]["message_id"] for event in receiver.events()]


def make_due(data):
    with opened(data):
        Delivery.update(due_at=0).execute()


def waiting(data):
    with opened(data):
        return Delivery.select().count()


def test_events_are_sent_once_and_in_order_by_several_workers(data):
    with receiving() as receiver, serving(data, receiver) as server:
        token = server.log_in()
        ids = [send(server, token, number) for number in range(20)]
        wait_until(lambda: len(receiver.requests) >= 20)
        wait_until(lambda: waiting(data) == 0)
        assert messages(receiver) == ids
        assert server.stop() == 0
        assert SECRET.removeprefix("whsec_") not in server.errors + server.output


def test_a_worker_that_is_killed_before_the_response_causes_one_duplicate(data):
    everything_is_sent = threading.Event()

    def kill_workers(handler):
        everything_is_sent.wait(TIMEOUT)
        handler.server.behave = ACCEPTS
        for process in server.workers:
            os.kill(process, signal.SIGKILL)
        ACCEPTS(handler)

    with receiving(kill_workers) as receiver, serving(data, receiver) as server:
        token = server.log_in()
        ids = [send(server, token, number) for number in range(5)]
        wait_until(lambda: receiver.requests)
        everything_is_sent.set()
        wait_until(lambda: receiver.behave is ACCEPTS)
        make_due(data)  # in place of the end of the lease
        wait_until(lambda: len(receiver.requests) >= 6)
        wait_until(lambda: waiting(data) == 0)
        assert messages(receiver) == [ids[0], *ids]
        assert len(set(receiver.ids)) == 5  # receivers recognise the duplicate


def test_events_wait_for_a_receiver_that_cannot_be_reached(data):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        refused = f"http://127.0.0.1:{taken.getsockname()[1]}/hook"
        with receiving() as receiver, serving(data, refused, "https://hooks.invalid", receiver) as server:
            token = server.log_in()
            ids = [send(server, token, number) for number in range(3)]
            wait_until(lambda: len(receiver.requests) == 3)
            server.logged("failed (attempt 1): Connection refused")
            assert messages(receiver) == ids
            wait_until(lambda: waiting(data) == 6)
            assert server.stop() == 0


def test_status_410_ends_a_webhook_for_all_instances_until_it_is_enabled(data):
    with receiving(sends({}, 410)) as receiver:
        with serving(data, receiver) as server:
            token = server.log_in()
            send(server, token, "first")
            wait_until(lambda: webhook(data, "list", "--webhook", receiver.target).stdout.startswith(b"ended "))
        receiver.behave = ACCEPTS
        with serving(data, receiver) as server:
            send(server, token, "second")
            assert webhook(data, "enable", receiver.target).returncode == 0
            id = send(server, token, "third")
            wait_until(lambda: len(receiver.requests) == 2)
            assert messages(receiver)[1] == id
    listed = webhook(data, "list", "--webhook", receiver.target)
    assert listed.stdout.decode() == f"active, 0 pending, 1 failed  {receiver.target}\n"
    assert webhook(data, "enable", receiver.target).stderr.decode() == (
        f"cx-service: this webhook has not ended: {receiver.target}\n"
    )


def webhook(data, *arguments, **variables):
    variables = (
        server_process.database_variables(data) | {"CX_WEBHOOK_SECRET": SECRET, "CX_DATA": str(data)} | variables
    )
    line = [sys.executable, str(ROOT / "app.py"), "webhook", *arguments]
    return subprocess.run(line, env=server_process.environment(**variables), capture_output=True, timeout=TIMEOUT)


def test_command_sends_a_ping_to_every_webhook_or_to_a_url(tmp_path):
    with receiving() as first, receiving(sends({}, 500)) as second:
        done = webhook(tmp_path, "test", CX_WEBHOOK=f"{first.target} {second.target}")
        assert (done.returncode, done.stdout.decode()) == (1, f"{first.target}: delivered\n")
        assert done.stderr.decode() == f"cx-service: {second.target}: status 500\n"
        assert webhook(tmp_path, "test", first.target).returncode == 0
        assert first.types == ["ping", "ping"]
        done = webhook(tmp_path, "test", first.target, CX_WEBHOOK_SECRET="")
        assert done.stderr == b"cx-service: --webhook needs a secret in CX_WEBHOOK_SECRET or CX_WEBHOOK_SECRET_FILE\n"
    done = webhook(tmp_path, "test")
    assert (done.returncode, done.stderr) == (1, b"cx-service: there is no webhook: pass a URL, or set --webhook\n")


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("CX_WEBHOOK", "ftp://hooks.example", "the URL of a webhook must have the form"),
        ("CX_WEBHOOK_SECRET", "hush", "CX_WEBHOOK_SECRET must be whsec_"),
        ("CX_WEBHOOK_SECRET", "", "--webhook needs a secret"),
    ],
)
def test_serve_refuses_invalid_settings(tmp_path, variable, text, message):
    variables = {"CX_WEBHOOK": "https://hooks.example", "CX_WEBHOOK_SECRET": SECRET, variable: text}
    line = [sys.executable, str(ROOT / "app.py"), "serve", "--port", "0", "--data", str(tmp_path / "data")]
    done = subprocess.run(line, env=server_process.environment(**variables), capture_output=True, timeout=TIMEOUT)
    errors = done.stderr.decode()
    assert (done.returncode, errors.count("\n")) == (1, 1)
    assert message in errors and "hush" not in errors
    assert not (tmp_path / "data").exists()


def test_ended_webhook_is_listed_without_its_setting(data):
    with opened(data):
        EndedWebhook.end("https://hooks.example")
    assert b"https://hooks.example" in webhook(data, "list").stdout
    assert b'"ended_at": "20' in webhook(data, "list", "--json").stdout
