"""Webhooks: which events are sent, their signatures, and receivers that misbehave."""

import json
import socket
import threading
import time
from pathlib import Path

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from service import clock
from service.models import AuditLog, ChatSession, Delivery, EndedWebhook, User, snoozing
from service.models.user_deletion import delete_user
from service.models.webhooks import EVENT_TYPES
from service.outbox import requests
from service.outbox.transport import DeliveryError
from service.outbox.transports import transports_of
from service.outbox.webhooks import WebhookTransport, secrets_in
from service.outbox.worker import DeliveryWorker
from service.settings import Settings
from tests.support.fake_ai import hangs, resets, sends, writes
from tests.support.messages import send
from tests.support.observe import statements
from tests.support.webhooks import ACCEPTS, FORMER_SECRET, SECRET, receiving

HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def receiver():
    with receiving() as server:
        yield server


@pytest.fixture
def hooked(application, monkeypatch):
    """Return a function that configures receivers as webhooks, and return a worker for each."""
    monkeypatch.setattr(Delivery, "configured", ())

    def configure(*receivers):
        found = [WebhookTransport(receiver.target, secrets_in(SECRET)) for receiver in receivers]
        Delivery.configure((transport.channel, transport.target) for transport in found)
        return [DeliveryWorker(transport, threading.Event()) for transport in found]

    return configure


@pytest.fixture
def worker(hooked, receiver):
    return hooked(receiver)[0]


def work(*workers):
    """Process everything that is due."""
    for worker in workers:
        while worker.run_once():
            pass


def transport(receiver, secret=SECRET):
    return WebhookTransport(receiver.target, secrets_in(secret))


def failure(receiver, behave):
    receiver.behave = behave
    with pytest.raises(DeliveryError) as caught:
        transport(receiver).ping()
    assert SECRET not in str(caught.value)
    return caught.value


class TestSignatures:
    def test_receivers_verify_the_request(self, receiver):
        transport(receiver).ping()
        (event,) = receiver.events()
        assert (event["type"], event["data"]) == ("ping", {})
        assert abs(clock.milliseconds(event["timestamp"]) - clock.now()) < 5000
        (request,) = receiver.requests
        assert (request.path, request.headers["Content-Type"]) == ("/hook", "application/json")

    def test_receivers_with_another_secret_refuse_it(self, receiver):
        transport(receiver).ping()
        with pytest.raises(WebhookVerificationError):
            receiver.events(FORMER_SECRET)

    @pytest.mark.parametrize("part", ["content", "webhook-id", "webhook-timestamp"])
    def test_a_change_on_the_way_is_noticed(self, receiver, part):
        transport(receiver).ping()
        (request,) = receiver.requests
        headers, content = dict(request.headers), request.content
        if part == "content":
            content = content.replace(b"ping", b"pong")
        else:
            headers[part] = str(int(headers[part]) + 1) if part.endswith("timestamp") else clock.ulid()
        with pytest.raises(WebhookVerificationError, match="No matching signature"):
            Webhook(SECRET).verify(content, headers)

    def test_during_a_rotation_receivers_may_have_either_secret(self, receiver):
        transport(receiver, f"{SECRET} {FORMER_SECRET}").ping()
        assert receiver.events(SECRET) == receiver.events(FORMER_SECRET)

    def test_a_repetition_has_the_same_identifier_and_body_and_a_new_time(self, host_clock, alice, receiver, worker):
        alice.post("/feedback", {"description": "Nice"})
        receiver.behave = sends({}, 500)
        work(worker)
        receiver.behave = ACCEPTS
        host_clock.forward(hours=1)
        work(worker)
        first, second = receiver.requests
        assert (first.content, first.headers["webhook-id"]) == (second.content, second.headers["webhook-id"])
        times = [int(request.headers["webhook-timestamp"]) for request in receiver.requests]
        assert times[1] - times[0] == 3600


class TestSettings:
    @pytest.mark.parametrize(
        "secret",
        [
            *("", "hush", SECRET.removeprefix("whsec_"), "whsec_", "whsec_" + "A" * 30, "whsec_" + "A" * 88),
            *("whsec_" + "é" * 40, "whsec_" + "-" * 40, f"{SECRET} {SECRET} {SECRET}", f"{SECRET},{SECRET}"),
        ],
    )
    def test_invalid_secret_is_an_error_that_does_not_show_it(self, secret):
        with pytest.raises(ValueError, match=r"^CX_WEBHOOK_SECRET must be whsec_ and the base64") as caught:
            secrets_in(secret)
        assert not [word for word in secret.split() if word != "whsec_" and word in str(caught.value)]

    def test_secret_may_have_24_to_64_bytes_without_padding(self):
        assert [len(key) for key in secrets_in(f"whsec_{'A' * 32} whsec_{'A' * 86}")] == [24, 64]

    @pytest.mark.parametrize(
        "url",
        [
            *("hooks.example", "ftp://hooks.example", "https://", "https://me:hush@hooks.example", "https://h/#a"),
            *("http://8.8.8.8/hook", "https://hooks.example/a b", "https://hooks.example:99999"),
        ],
    )
    def test_invalid_url_is_an_error(self, url):
        with pytest.raises(ValueError, match="the URL of a webhook must have the form") as caught:
            transports_of(Settings(webhook=(url,), webhook_secret=SECRET))
        assert "hush" not in str(caught.value)

    def test_webhooks_need_a_secret(self):
        with pytest.raises(ValueError, match="--webhook needs a secret in CX_WEBHOOK_SECRET"):
            transports_of(Settings(webhook=("https://hooks.example",)))
        assert transports_of(Settings(webhook_secret=SECRET)) == []

    def test_a_url_that_is_named_twice_gets_events_once(self):
        twice = ("https://hooks.example", "https://hooks.example")
        assert len(transports_of(Settings(webhook=twice, webhook_secret=SECRET))) == 1


class TestEvents:
    """One event for each change that other programs may want to follow; `data` has identifiers and states only."""

    TEXT = "the words of a customer"

    def data(self, worker, receiver, kind):
        """The data of the events of a type, after all events were sent."""
        work(worker)
        assert self.TEXT not in b"".join(request.content for request in receiver.requests).decode()
        return [request.body["data"] for request in receiver.requests if request.body["type"] == kind]

    def about(self, session, **more):
        names = ("app_id", "conversation_id", "user_id")
        return {"chat_session_id": session.id, **{name: getattr(session, name) for name in names}, **more}

    def test_of_messages(self, alice, session, receiver, worker):
        id = send(alice, session, self.TEXT).data["id"]
        path = f"/chats/{session.id}/messages/{id}"
        assert alice.patch(path, {"content": {"text": f"{self.TEXT}, edited"}}).status == 200
        assert alice.delete(path).status == 200
        about = {"message_id": id, "sender_id": alice.user.id, "sender_type": "user"}
        flags = {"is_private": False, "is_hidden": False, "action_id": None, "action_source_id": None}
        expected = self.about(session, **about, **flags)
        assert self.data(worker, receiver, "message.created")[0] == expected
        assert self.data(worker, receiver, "message.edited") == [expected]
        assert self.data(worker, receiver, "message.deleted") == [expected]

    def test_of_a_press_name_the_action_and_its_offer(self, alice, agent, session, receiver, worker):
        action = {"id": "yes", "label": self.TEXT, "payload": {"x": self.TEXT}}
        source = send(agent, session, self.TEXT, action_payload={"actions": [action]}).data["id"]
        press = {"action_source_id": source, "action_id": "yes"}
        for _ in range(2):
            assert alice.post(f"/chats/{session.id}/messages", press).status == 201
        events = self.data(worker, receiver, "message.created")
        assert [(data["action_id"], data["action_source_id"]) for data in events] == [(None, None), ("yes", source)]

    def test_an_edit_without_a_change_is_none(self, alice, session, receiver, worker):
        id = send(alice, session, "same").data["id"]
        assert alice.patch(f"/chats/{session.id}/messages/{id}", {"content": {"text": "same"}}).status == 200
        assert self.data(worker, receiver, "message.edited") == []

    def test_of_private_notes_say_so(self, agent, session, receiver, worker):
        send(agent, session, self.TEXT, is_private=True)
        (note,) = self.data(worker, receiver, "message.created")
        assert (note["is_private"], note["is_hidden"]) == (True, False)

    def test_of_a_message_that_the_customer_hides(self, alice, agent, session, receiver, worker):
        id = send(agent, session, self.TEXT).data["id"]
        assert alice.delete(f"/chats/{session.id}/messages/{id}").status == 200
        (hidden,) = self.data(worker, receiver, "message.deleted")
        assert (hidden["message_id"], hidden["is_private"], hidden["is_hidden"]) == (id, False, True)

    def test_of_a_read_once_message_that_is_read(self, alice, agent, session, receiver, worker):
        id = send(agent, session, self.TEXT, is_read_once=True).data["id"]
        path = f"/chats/{session.id}/messages/{id}/reveal"
        assert [alice.post(path).status for _ in range(2)] == [200, 400]
        (revealed,) = self.data(worker, receiver, "message.revealed")
        assert (revealed["message_id"], revealed["sender_id"]) == (id, agent.user.id)

    def test_of_chats(self, alice, agent, bot, receiver, worker):
        id = alice.post("/chats", {"bot_id": bot.id, "app_id": bot.app_id}).data["id"]
        session = ChatSession.get_by_id(id)
        assert agent.put(f"/chats/{id}/assignee", {"user_id": agent.user.id}).status == 200
        for _ in range(2):
            assert agent.put(f"/chats/{id}/status", {"status": "resolved"}).status == 200
        send(alice, session)
        send(alice, session)
        assert self.data(worker, receiver, "chat.created") == [self.about(session, status="open")]
        assert self.data(worker, receiver, "chat.assigned") == [self.about(session, assignee_id=agent.user.id)]
        states = [data["status"] for data in self.data(worker, receiver, "chat.status_changed")]
        assert states == ["resolved", "open"]

    def test_of_a_snoozed_chat_that_is_open_again(self, host_clock, agent, session, receiver, worker):
        until = clock.timestamp(clock.now() + clock.HOUR)
        assert agent.put(f"/chats/{session.id}/snooze", {"until": until}).status == 200
        host_clock.forward(hours=1)
        assert snoozing.reopen_due() == 1
        states = [data["status"] for data in self.data(worker, receiver, "chat.status_changed")]
        assert states == ["snoozed", "open"]

    def test_of_a_chat_whose_assignee_leaves_the_staff(self, agent, admin, session, receiver, worker):
        assert agent.put(f"/chats/{session.id}/assignee", {"user_id": agent.user.id}).status == 200
        assert admin.patch(f"/users/{agent.user.id}", {"is_disabled": True}).status == 200
        assignees = [data["assignee_id"] for data in self.data(worker, receiver, "chat.assigned")]
        assert assignees == [agent.user.id, None]

    def test_of_feedback(self, alice, admin, receiver, worker):
        id = alice.post("/feedback", {"description": self.TEXT}).data["id"]
        for _ in range(2):
            assert admin.patch(f"/feedback/{id}", {"status": "done"}).status == 200
        about = {"feedback_id": id, "user_id": alice.user.id}
        assert self.data(worker, receiver, "feedback.created") == [{**about, "status": "new"}]
        assert self.data(worker, receiver, "feedback.status_changed") == [{**about, "status": "done"}]

    def test_of_data_shares(self, alice, receiver, worker):
        id = alice.post("/data-shares", {"mcp_server_id": "weather", "allowed_tools": ["forecast"]}).data["id"]
        for _ in range(2):
            assert alice.delete(f"/data-shares/{id}").status == 200
        about = {"data_share_id": id, "user_id": alice.user.id, "mcp_server_id": "weather"}
        expected = [about | {"app_id": None, "conversation_id": None}]
        assert self.data(worker, receiver, "data_share.created") == expected
        assert self.data(worker, receiver, "data_share.revoked") == expected

    def test_of_users(self, admin, receiver, worker):
        id = admin.post("/users", {"email": "new@example.com", "password": "correct horse"}).data["id"]
        delete_user(User.get_by_id(id), admin.user.id)
        expected = [{"user_id": id, "role": "user", "app_id": None}]
        assert self.data(worker, receiver, "user.created") == expected
        assert self.data(worker, receiver, "user.deleted") == expected
        assert b"new@example.com" not in b"".join(request.content for request in receiver.requests)

    def test_every_type_has_a_test(self):
        text = Path(__file__).read_text("utf-8")
        assert not [kind for kind in EVENT_TYPES if f'"{kind}"' not in text]

    def test_nothing_is_queued_and_read_without_webhooks(self, application, monkeypatch, alice, session):
        monkeypatch.setattr(Delivery, "configured", ())
        with statements() as executed:
            send(alice, session)
        assert not [sql for sql in executed if "webhook" in sql or "delivery" in sql]

    def test_a_change_that_is_undone_is_none(self, alice, session, receiver, worker, monkeypatch):
        monkeypatch.setattr("service.models.sending.ReadMarker.advance", None)
        alice.may_crash = True
        assert send(alice, session).status == 500
        assert Delivery.select().count() == 0


class TestOrder:
    def test_events_of_a_chat_wait_for_the_first_one(self, host_clock, alice, session, receiver, worker):
        ids = [send(alice, session, f"{number}").data["id"] for number in range(3)]
        receiver.behave = sends({}, 503)
        work(worker)
        assert len(receiver.requests) == 1
        receiver.behave = ACCEPTS
        host_clock.forward(minutes=1)
        work(worker)
        data = [request.body["data"] for request in receiver.requests]
        sent = [each["message_id"] for each in data if each["sender_type"] == "user"]
        assert sent == [ids[0], *ids]

    def test_other_chats_do_not_wait(self, alice, session, receiver, worker):
        other = ChatSession.create(app_id=session.app_id, user_id=alice.user.id)
        send(alice, session, "one")

        def refuse(handler):
            is_first = handler.server.requests[-1].body["data"]["chat_session_id"] == session.id
            sends({}, 500 if is_first else 200)(handler)

        receiver.behave = refuse
        send(alice, other, "two")
        work(worker)
        sessions = [event["data"]["chat_session_id"] for event in receiver.events()]
        assert sorted(sessions) == sorted([session.id, other.id])

    def test_webhooks_do_not_wait_for_each_other(self, hooked, receiver, alice, session):
        with receiving(hangs) as silent:
            slow, quick = hooked(silent, receiver)
            for number in range(3):
                send(alice, session, f"{number}")
            thread = threading.Thread(target=slow.run)
            thread.start()
            while not silent.requests:
                time.sleep(0.01)
            work(quick)
            assert receiver.types.count("message.created") >= 3
            assert thread.is_alive()
            slow.stop.set()
            silent.stopped.set()
            thread.join()


class TestGone:
    def test_status_410_ends_a_webhook(self, alice, session, receiver, worker):
        receiver.behave = sends({}, 410)
        send(alice, session, "one")
        send(alice, session, "two")
        work(worker)
        assert len(receiver.requests) == 1
        assert EndedWebhook.times().keys() == {receiver.target}
        assert Delivery.select().where(Delivery.failed_at.is_null()).count() == 0
        send(alice, session, "three")
        work(worker)
        assert len(receiver.requests) == 1
        entry = AuditLog.select().where(AuditLog.kind == "webhook_ended").get()
        assert (entry.actor_id, json.loads(entry.details)) == ("service", {"url": receiver.target})

    def test_other_webhooks_continue(self, hooked, receiver, alice, session):
        with receiving(sends({}, 410)) as gone:
            workers = hooked(gone, receiver)
            send(alice, session, "one")
            work(*workers)
            send(alice, session, "two")
            work(*workers)
            assert len(gone.requests) == 1
            assert receiver.types.count("message.created") >= 2

    def test_operators_enable_it_again(self, alice, session, receiver, worker):
        receiver.behave = sends({}, 410)
        send(alice, session, "one")
        work(worker)
        receiver.behave = ACCEPTS
        assert EndedWebhook.enable(receiver.target)
        assert not EndedWebhook.enable(receiver.target)
        id = send(alice, session, "two").data["id"]
        work(worker)
        assert receiver.events()[1]["data"]["message_id"] == id
        assert AuditLog.select().where(AuditLog.kind == "webhook_enabled").count() == 1

    def test_a_ping_does_not_end_it(self, receiver, worker):
        assert str(failure(receiver, sends({}, 410))) == "status 410"
        assert EndedWebhook.times() == {}


class TestFaults:
    @pytest.fixture(autouse=True)
    def _short_timeouts(self, monkeypatch):
        monkeypatch.setattr(requests, "CONNECT_TIMEOUT", 0.3)
        monkeypatch.setattr(requests, "TIMEOUT", 0.3)

    @pytest.mark.parametrize("status", [300, 301, 302, 307, 308, 400, 401, 403, 404, 408, 425, 429, 500, 503])
    def test_every_other_status_is_retried(self, receiver, status):
        error = failure(receiver, sends({}, status, location=receiver.url))
        assert (str(error), error.is_final) == (f"status {status}", False)
        assert len(receiver.requests) == 1  # redirects are not followed

    @pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
    def test_every_success_is_one(self, receiver, status):
        receiver.behave = sends(b"", status)
        transport(receiver).ping()

    def test_retry_after_is_respected(self, host_clock, alice, receiver, worker):
        alice.post("/feedback", {"description": "Nice"})
        receiver.behave = sends({}, 429, retry_after="600")
        work(worker)
        host_clock.forward(minutes=9, seconds=59)
        work(worker)
        assert len(receiver.requests) == 1
        host_clock.forward(seconds=1)
        work(worker)
        assert len(receiver.requests) == 2

    @pytest.mark.parametrize(
        "behave",
        [hangs, writes(HEAD, again=b"x", every=0.01), writes(again=b"HTTP/1.1 100 Continue\r\n\r\n", every=0.01)],
        ids=["hangs", "sends a byte now and then", "interim responses"],
    )
    def test_slow_receiver_is_given_up_after_the_timeout(self, receiver, behave):
        begun = time.monotonic()
        assert str(failure(receiver, behave)) == "timeout"
        assert time.monotonic() - begun < 2

    @pytest.mark.parametrize(
        "behave",
        [
            writes(HEAD, b"Content-Length: 999999999\r\n\r\n{}"),
            writes(HEAD, b"Content-Length: 0\r\n\r\n", again=b"x" * 65536),
            writes(HEAD, b"Content-Length: 999\r\n\r\n", again=b" ", every=0.01),
            writes(HEAD, b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
        ],
        ids=["too long", "too short", "slow body", "broken chunks"],
    )
    def test_receiver_that_lies_about_its_body_has_received_the_event(self, receiver, behave):
        receiver.behave = behave
        begun = time.monotonic()
        transport(receiver).ping()
        assert time.monotonic() - begun < 0.3

    @pytest.mark.parametrize(
        "behave",
        [resets, writes(), writes(b"SSH-2.0-x\r\n"), writes(HEAD, again=b"A: b\r\n"), writes(HEAD, again=b"x" * 9999)],
        ids=["resets", "closes", "other protocol", "endless header", "endless line"],
    )
    def test_broken_response_is_retried(self, receiver, behave):
        assert failure(receiver, behave).is_final is False

    def test_receiver_that_does_not_listen_is_retried(self, receiver):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            with pytest.raises(DeliveryError, match="Connection refused"):
                WebhookTransport(f"http://127.0.0.1:{taken.getsockname()[1]}", secrets_in(SECRET)).ping()

    def test_log_and_database_have_no_secret_and_no_response(self, alice, receiver, worker, caplog):
        receiver.behave = writes(b"HTTP/1.1 the words of the receiver\r\n\r\n")
        alice.post("/feedback", {"description": "Nice"})
        work(worker)
        (waiting,) = Delivery.select()
        assert waiting.error == "BadStatusLine"
        assert "BadStatusLine" in caplog.text
        assert "words" not in caplog.text and SECRET.removeprefix("whsec_") not in caplog.text
