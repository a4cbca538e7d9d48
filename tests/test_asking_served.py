"""The real server with a stand-in of an assistant: nobody waits, nothing is lost, and nothing is said twice."""

import contextlib
import signal
import subprocess
import sys
import time

import pytest

from service import asking, clock, db
from service.models import DueAnswer, Message
from tests import serving
from tests.conftest import text_of
from tests.standin import hangs, says, standing_in

pytestmark = pytest.mark.slow

BOT = "00000000-0000-4000-8000-000000000009"
SESSIONS = [f"00000000-0000-4000-8000-00000000010{number}" for number in range(8)]


@contextlib.contextmanager
def opened(data):
    """The database of a server, from here."""
    db.open_database(data, serving.where(data).get("CX_DATABASE", ""))
    try:
        yield
    finally:
        db.close_database()


def count(data, rows):
    """How many rows of a server's database are so."""
    with opened(data):
        return rows.count()


@pytest.fixture
def ai():
    with standing_in() as server:
        yield server


@pytest.fixture
def data(tmp_path):
    """Alice, and her sessions with a bot that answers."""
    folder = tmp_path / "data"
    bot = {"id": BOT, "app_id": serving.APP, "name": "Hilda", "kind": "bot", "status": "published"}
    own = {"app_id": serving.APP, "user_id": serving.ALICE, "bot_id": BOT}
    sessions = [{"chat_session": {"id": id, **own}} for id in SESSIONS]
    serving.fill(folder, [*serving.chat(0), {"bot": bot}, *sessions])
    return folder


def send(server, token, session, text="When are you open?"):
    return server.call("POST", f"/api/v1/chats/{session}/messages", {"content": {"text": text}}, token)


def answers(server, token, session):
    """What the bot has said."""
    page = server.call("GET", f"/api/v1/chats/{session}/messages", token=token)
    assert page.status == 200
    return [text_of(row) for row in page.data if row["sender_type"] == "bot"]


def answer(server, token, session):
    """What the bot says, once it does."""
    while not (found := answers(server, token, session)):
        time.sleep(0.02)
    return found


def assisted(data, ai, *arguments):
    return serving.serving(data, *arguments, CX_ASSISTANT_URL=ai.url, CX_ASSISTANT_KEY="sk-secret")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_answers_with_an_assistant(data, ai, workers):
    with assisted(data, ai, "--workers", workers) as server:
        token = server.log_in()
        assert send(server, token, SESSIONS[0]).status == 201
        assert answer(server, token, SESSIONS[0]) == ["I am the assistant."]
        assert ai.asked[0].headers["Authorization"] == "Bearer sk-secret"
        assert server.stop() == 0
        assert "sk-secret" not in server.errors and "open" not in server.errors


def test_a_hanging_assistant_keeps_nobody_waiting(data, ai):
    ai.behave = hangs
    with assisted(data, ai, "--threads", "1") as server:
        token = server.log_in()
        for session in SESSIONS:
            assert send(server, token, session).status == 201
        while len(ai.asked) < asking.THREADS:
            time.sleep(0.02)
        for session in SESSIONS * 10:
            assert answers(server, token, session) == []
        assert send(server, token, SESSIONS[0]).status == 201
        assert len(ai.asked) == asking.THREADS  # which still hang
        assert server.stop() == 0
    assert count(data, DueAnswer.select()) == len(SESSIONS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_answer_under_way_is_got_by_whoever_comes_next(data, ai, number):
    ai.behave = hangs
    with assisted(data, ai) as server:
        token = server.log_in()
        send(server, token, SESSIONS[0])
        while not ai.asked:
            time.sleep(0.02)
        status = server.stop(number)
        assert status == (0 if number == signal.SIGTERM else -number)
    if number == signal.SIGKILL:  # nobody could hand anything over; the lease would last for a while
        assert count(data, DueAnswer.select().where(DueAnswer.due_at > clock.now())) == 1
        with opened(data):
            DueAnswer.update(due_at=0).execute()
    ai.behave = says("At last")
    with assisted(data, ai) as server:
        assert answer(server, token, SESSIONS[0]) == ["At last"]


def test_two_instances_answer_everything_once(data, ai):
    with assisted(data, ai, "--workers", "2") as one, assisted(data, ai, "--workers", "2") as other:
        token = one.log_in()
        for round in range(1, 5):
            for session, server in zip(SESSIONS, (one, other) * 4, strict=True):
                assert send(server, token, session).status == 201
            for session in SESSIONS:
                while len(answers(other, token, session)) < round:
                    time.sleep(0.02)
    assert len(ai.asked) == 4 * len(SESSIONS)
    assert count(data, Message.select().where(Message.sender_type == "bot")) == 4 * len(SESSIONS)
    assert count(data, DueAnswer.select()) == 0


@pytest.mark.parametrize(
    ("variable", "text", "complaint"),
    [
        ("CX_ASSISTANT_URL", "ftp://ai.example", "the address of the assistant must be like"),
        ("CX_ASSISTANT_KEY", "s e c", "the key of the assistant must be"),
    ],
)
def test_it_does_not_start_with_what_cannot_be_an_assistant(tmp_path, variable, text, complaint):
    given = {"CX_ASSISTANT_URL": "https://ai.example", variable: text}
    line = [sys.executable, str(serving.ROOT / "app.py"), "serve", "--port", "0", "--data", str(tmp_path / "data")]
    done = subprocess.run(line, env=serving.environment(**given), capture_output=True, timeout=60)
    told = done.stderr.decode()
    assert (done.returncode, told.count("\n")) == (1, 1)
    assert complaint in told and "s e c" not in told
    assert not (tmp_path / "data").exists()
