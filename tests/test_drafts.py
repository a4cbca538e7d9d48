"""Drafts of the assistant in event streams: who sees them, how they grow, and how they end."""

import threading

import pytest

from service import db, drafts, updates
from service.auth.tokens import authenticate
from service.db import signals
from service.drafts import DraftSender, ReceivedDrafts
from tests.support.client import text_of
from tests.support.event_stream import EventClient, EventParser, wait_until_receiving
from tests.support.fake_ai import DONE, fake_server, piece, streams
from tests.support.messages import sent
from tests.support.server_process import ALICE, APP, chat, fill, serving

pytestmark = pytest.mark.database

BOT = "00000000-0000-4000-8000-000000000009"
CHAT = "00000000-0000-4000-8000-000000000100"  # with the bot


@pytest.fixture(autouse=True)
def received(monkeypatch):
    found = ReceivedDrafts()
    monkeypatch.setattr(drafts, "received", found)
    return found


@pytest.fixture
def poll(application):
    """The function that the thread of the event streams calls."""
    with updates.watch() as changed_topics:
        changed_topics()
        yield changed_topics


class Stream:
    """The event stream of a client, which reads when it is woken."""

    def __init__(self, client):
        self.stream = updates.UpdateStream(authenticate(f"Bearer {client.token}"), "")
        self.first = self.drafts(self.stream.first)

    @staticmethod
    def drafts(raw):
        return [event.data for event in EventParser().feed(raw) if event.name == "draft"]

    def read(self, topics):
        return self.drafts(self.stream.read()) if self.stream.topics & topics else []


def data(sender, status, text=""):
    session, message_id = sender.session, sender.message_id
    return {"chat_session_id": session.id, "message_id": message_id, "status": status, "text": text}


@pytest.fixture
def sender(alice, session):
    return DraftSender(session, sent(alice, session).id)


def wait_for(poll):
    """The topics of the next signals."""
    while not (topics := {topic for topic in poll() if topic.startswith("signals")}):
        pass
    return topics


def test_customer_and_staff_see_a_draft_and_others_do_not(alice, bob, agent, admin, other_agent, sender, poll):
    seen = {"alice": Stream(alice), "agent": Stream(agent), "admin": Stream(admin)}
    others = {"bob": Stream(bob), "other agent": Stream(other_agent)}
    sender.show("He")
    topics = wait_for(poll)
    for name, stream in seen.items():
        assert stream.read(topics) == [data(sender, "writing", "He")], name
    for name, stream in others.items():
        assert not stream.stream.topics & topics, name
        assert Stream.drafts(stream.stream.read()) == [], name
    assert not updates.topics(authenticate(f"Bearer {alice.token}")) & topics  # long polls are not woken


def test_a_stream_that_begins_in_the_middle_has_the_text_so_far(alice, sender, poll):
    sender.show("Hello")
    wait_for(poll)
    stream = Stream(alice)
    assert stream.first == [data(sender, "writing", "Hello")]
    sender.end(is_stored=True)
    assert stream.read(wait_for(poll)) == [data(sender, "stored")]
    assert Stream(alice).first == []


@pytest.mark.parametrize(("is_stored", "status"), [(True, "stored"), (False, "withdrawn")])
def test_a_draft_has_one_end(alice, sender, poll, is_stored, status):
    stream = Stream(alice)
    sender.show("Hello")
    stream.read(wait_for(poll))
    sender.end(is_stored=is_stored), sender.end(is_stored=is_stored)
    assert stream.read(wait_for(poll)) == [data(sender, status)]
    assert not [topic for topic in poll() if topic.startswith("signals")]


def test_a_reply_without_pieces_has_no_draft(sender, poll):
    sender.show("")
    sender.end(is_stored=True)
    assert not [topic for topic in poll() if topic.startswith("signals")]


def test_texts_that_follow_quickly_are_left_out(alice, sender, poll, monkeypatch):
    stream = Stream(alice)
    monkeypatch.setattr(drafts, "MIN_INTERVAL", 60.0)
    for text in ("a", "ab", "abc"):
        sender.show(text)
    assert stream.read(wait_for(poll)) == [data(sender, "writing", "a")]
    monkeypatch.setattr(drafts, "MIN_INTERVAL", 0.0)
    sender.show("abcd")
    assert stream.read(wait_for(poll)) == [data(sender, "writing", "abcd")]


@pytest.mark.parametrize("text", ["x" * 9_999, "ä" * 9_999, '"\n' * 5_000, "\x01" * 9_999, "x" * 5_000 + "👋" * 5_000])
def test_a_long_text_is_shortened(alice, sender, poll, text):
    stream = Stream(alice)
    sender.show(text)
    [shown] = stream.read(wait_for(poll))
    assert shown["text"].endswith("…") and text.startswith(shown["text"][:-1]) and len(shown["text"]) > 1_000
    assert drafts.MAX_TEXT + 500 < signals.MAX_BYTES


def test_a_text_of_the_greatest_length_is_whole(alice, sender, poll):
    text = "x" * (drafts.MAX_TEXT - 2)
    stream = Stream(alice)
    sender.show(text)
    assert stream.read(wait_for(poll))[0]["text"] == text


def test_the_draft_of_a_process_that_died_is_withdrawn(alice, sender, poll, monkeypatch):
    stream = Stream(alice)
    sender.show("Hello")
    stream.read(wait_for(poll))
    assert not [topic for topic in poll() if topic.startswith("signals")]
    with monkeypatch.context() as patch:
        patch.setattr(drafts, "EXPIRY", 0.0)
        topics = poll()
    assert stream.read(topics) == [data(sender, "withdrawn")]


def test_drafts_that_have_ended_are_forgotten(received, sender, poll, monkeypatch):
    for send in (lambda: sender.show("Hello"), lambda: sender.end(is_stored=True)):
        send()
        wait_for(poll)
    monkeypatch.setattr(drafts, "EXPIRY", 0.0)
    assert received.expire() == set() and received.since(0)[1] == []


def test_remembered_drafts_are_limited(received, sender, session):
    for number in range(drafts.MAX_DRAFTS + 5):
        draft = drafts.Draft(str(number), session.user_id, session.app_id, "m", "writing", "a")
        received.add(draft)
    found = received.since(0)[1]
    assert [draft.chat_session_id for draft in found] == [str(n) for n in range(5, drafts.MAX_DRAFTS + 5)]


def test_signals_of_other_versions_are_ignored(sender, poll):
    db.send_signal('["later", 1]')
    sender.show("Hello")
    assert wait_for(poll)


def test_access_is_determined_again_for_every_draft(alice, agent, sender, poll):
    stream = Stream(agent)
    sender.show("Hello")
    type(agent.user).update(role="customer", app_id=None).where(type(agent.user).id == agent.user.id).execute()
    assert stream.read(wait_for(poll)) == []


@pytest.mark.slow
class TestServer:
    @pytest.fixture
    def ai(self):
        with fake_server() as server:
            yield server

    @pytest.fixture
    def data(self, tmp_path):
        bot = {"id": BOT, "app_id": APP, "name": "Hilda", "kind": "bot", "status": "published"}
        session = {"id": CHAT, "app_id": APP, "user_id": ALICE, "bot_id": BOT}
        fill(tmp_path / "data", [*chat(0), {"bot": bot}, {"chat_session": session}])
        return tmp_path / "data"

    def test_a_reply_appears_while_it_is_written(self, data, ai):
        written = threading.Event()
        ai.behave = streams(piece("Half of it"), piece(" and the rest", finish="stop") + DONE, wait=written)
        with serving(data, "--workers", "2", CX_ASSISTANT_URL=ai.url) as server:
            token = server.log_in()
            opened = [EventClient(server.connect(), token) for _ in range(6)]  # at both workers
            try:
                wait_until_receiving(opened, server, CHAT, token)
                path = f"/api/v1/chats/{CHAT}/messages"
                question = server.call("POST", path, {"content": {"text": "Hello"}}, token).data["id"]
                for stream in opened:
                    draft = stream.next("draft").data
                    assert (draft["text"], draft["message_id"]) == ("Half of it", question)
                assert [row["id"] for row in server.call("GET", path, token=token).data] == [question]
                written.set()
                for stream in opened:
                    while stream.next("draft").data["status"] != "stored":
                        pass
            finally:
                for stream in opened:
                    stream.__exit__()
            newest = server.call("GET", path, token=token).data
            assert sorted(map(text_of, newest)) == ["Half of it and the rest", "Hello"]

    def test_a_reply_that_was_cut_is_withdrawn(self, data, ai):
        ai.behave = streams(piece("Half of it"), b"data: garbage\n\n")
        with serving(data, CX_ASSISTANT_URL=ai.url) as server:
            token = server.log_in()
            with EventClient(server.connect(), token) as stream:
                wait_until_receiving([stream], server, CHAT, token)
                server.call("POST", f"/api/v1/chats/{CHAT}/messages", {"content": {"text": "Hello"}}, token)
                while stream.next("draft").data["status"] != "withdrawn":
                    pass

    @pytest.mark.postgresql_only
    def test_a_draft_passes_instances(self, data, ai):
        written = threading.Event()
        ai.behave = streams(piece("Half of it"), piece(" and the rest", finish="stop") + DONE, wait=written)
        with serving(data, CX_ASSISTANT_URL=ai.url) as server, serving(data) as other:
            token = server.log_in()
            with EventClient(other.connect(), token) as stream:
                wait_until_receiving([stream], server, CHAT, token)
                server.call("POST", f"/api/v1/chats/{CHAT}/messages", {"content": {"text": "Hello"}}, token)
                assert stream.next("draft").data["text"] == "Half of it"
                written.set()
                assert stream.next("draft").data["status"] == "stored"
