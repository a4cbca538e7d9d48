"""The server with a fake assistant: requests do not wait for it, and each message gets one reply."""

import contextlib
import signal
import subprocess
import sys
import time

import pytest

from service import clock, db
from service.assistant import reply_worker
from service.models import Message, PendingReply
from tests.support import server_process
from tests.support.client import text_of
from tests.support.fake_ai import fake_server, hangs, says
from tests.support.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.database]

BOT = "00000000-0000-4000-8000-000000000009"
SESSIONS = [f"00000000-0000-4000-8000-00000000010{number}" for number in range(8)]


@contextlib.contextmanager
def opened(data):
    """Open the database of a server in this process."""
    db.open_database(data, server_process.database_variables(data).get("CX_DATABASE", ""))
    try:
        yield
    finally:
        db.close_database()


def count(data, rows):
    """The number of rows of a query on the database of a server."""
    with opened(data):
        return rows.count()


@pytest.fixture
def ai():
    with fake_server() as server:
        yield server


@pytest.fixture
def data(tmp_path):
    """Alice and her chat sessions with a bot."""
    folder = tmp_path / "data"
    bot = {"id": BOT, "app_id": server_process.APP, "name": "Hilda", "kind": "bot", "status": "published"}
    own = {"app_id": server_process.APP, "user_id": server_process.ALICE, "bot_id": BOT}
    sessions = [{"chat_session": {"id": id, **own}} for id in SESSIONS]
    server_process.fill(folder, [*server_process.chat(0), {"bot": bot}, *sessions])
    return folder


def send(server, token, session, text="When are you open?"):
    return server.call("POST", f"/api/v1/chats/{session}/messages", {"content": {"text": text}}, token)


def bot_replies(server, token, session):
    """The replies of the bot."""
    page = server.call("GET", f"/api/v1/chats/{session}/messages", token=token)
    assert page.status == 200
    return [text_of(row) for row in page.data if row["sender_type"] == "bot"]


def wait_for_reply(server, token, session):
    """Wait for a reply of the bot and return all replies."""
    while not (found := bot_replies(server, token, session)):
        time.sleep(0.02)
    return found


def serving_with_assistant(data, ai, *arguments):
    return server_process.serving(data, *arguments, CX_ASSISTANT_URL=ai.url, CX_ASSISTANT_KEY="sk-secret")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_server_replies_with_an_assistant(data, ai, workers):
    with serving_with_assistant(data, ai, "--workers", workers) as server:
        token = server.log_in()
        assert send(server, token, SESSIONS[0]).status == 201
        assert wait_for_reply(server, token, SESSIONS[0]) == ["I am the assistant."]
        assert ai.requests[0].headers["Authorization"] == "Bearer sk-secret"
        assert server.stop() == 0
        assert "sk-secret" not in server.errors and "open" not in server.errors


def test_hanging_assistant_does_not_delay_requests(data, ai):
    ai.behave = hangs
    with serving_with_assistant(data, ai, "--threads", "1") as server:
        token = server.log_in()
        for session in SESSIONS:
            assert send(server, token, session).status == 201
        while len(ai.requests) < reply_worker.THREADS:
            time.sleep(0.02)
        for session in SESSIONS * 10:
            assert bot_replies(server, token, session) == []
        assert send(server, token, SESSIONS[0]).status == 201
        assert len(ai.requests) == reply_worker.THREADS  # both still hang
        assert server.stop() == 0
    assert count(data, PendingReply.select()) == len(SESSIONS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_reply_in_progress_is_requested_again_after_a_restart(data, ai, number):
    ai.behave = hangs
    with serving_with_assistant(data, ai) as server:
        token = server.log_in()
        send(server, token, SESSIONS[0])
        while not ai.requests:
            time.sleep(0.02)
        status = server.stop(number)
        assert status == (0 if number == signal.SIGTERM else -number)
    if number == signal.SIGKILL:  # the message was not released, and its lease has not ended
        assert count(data, PendingReply.select().where(PendingReply.due_at > clock.now())) == 1
        with opened(data):
            PendingReply.update(due_at=0).execute()
    ai.behave = says("At last")
    with serving_with_assistant(data, ai) as server:
        assert wait_for_reply(server, token, SESSIONS[0]) == ["At last"]


def test_two_instances_reply_once_to_each_message(data, ai):
    with (
        serving_with_assistant(data, ai, "--workers", "2", "--share-folder") as one,
        serving_with_assistant(data, ai, "--workers", "2", "--share-folder") as other,
    ):
        token = one.log_in()
        for round in range(1, 5):
            for session, server in zip(SESSIONS, (one, other) * 4, strict=True):
                assert send(server, token, session).status == 201
            for session in SESSIONS:
                while len(bot_replies(other, token, session)) < round:
                    time.sleep(0.02)
    assert len(ai.requests) == 4 * len(SESSIONS)
    assert count(data, Message.select().where(Message.sender_type == "bot")) == 4 * len(SESSIONS)
    assert count(data, PendingReply.select()) == 0


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("CX_ASSISTANT_URL", "ftp://ai.example", "the URL of the assistant must have the form"),
        ("CX_ASSISTANT_KEY", "s e c", "the key of the assistant must consist"),
    ],
)
def test_serve_refuses_invalid_assistant_settings(tmp_path, variable, text, message):
    variables = {"CX_ASSISTANT_URL": "https://ai.example", variable: text}
    command = [
        sys.executable,
        str(ROOT / "app.py"),
        "serve",
        "--port",
        "0",
        "--data",
        str(tmp_path / "data"),
    ]
    done = subprocess.run(command, env=server_process.environment(**variables), capture_output=True, timeout=60)
    errors = done.stderr.decode()
    assert (done.returncode, errors.count("\n")) == (1, 1)
    assert message in errors and "s e c" not in errors
    assert not (tmp_path / "data").exists()
