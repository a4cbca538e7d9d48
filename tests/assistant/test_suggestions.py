"""Drafts of the assistant for staff: who gets one, what the assistant receives, and that nothing else happens."""

import dataclasses
import html
import json
import re
import threading

import pytest

from service import db
from service.assistant import staff_requests
from service.assistant.instructions import FOR_STAFF
from service.http.application import build_app
from service.models import AssistantUsage, Bot, CannedAnswer, ChatSession, Message, Notification, PendingReply, User
from service.models.audit_log import AuditLog
from service.routes import operations
from tests.support.client import Client
from tests.support.fake_ai import calls, completion, hangs, resets, says, sends, writes
from tests.support.messages import send
from tests.support.observe import nothing_changes
from tests.support.web_client import Browser, Forms

pytestmark = [pytest.mark.slow, pytest.mark.database]


@pytest.fixture
def staff(application, agent, session, alice):
    """The agent, after the customer has written."""
    agent.put(f"/chats/{session.id}/assignee", {"user_id": agent.user.id})
    send(alice, session, "Where is my parcel?")
    return agent


def suggestion(client, session):
    return client.post(f"/chats/{session.id}/suggestion")


def test_staff_gets_a_draft_and_nothing_else_happens(staff, session, ai):
    ai.behave = says("It is on its way.")
    with nothing_changes(Message, ChatSession, Notification, PendingReply, User):
        found = suggestion(staff, session)
    assert (found.status, found.data) == (200, {"text": "It is on its way."})


def test_assistant_receives_what_a_bot_would_send(staff, alice, session, bot, ai):
    CannedAnswer.create(bot_id=bot.id, question="Where is my parcel?", answer="It takes two days.")
    send(staff, session, "Hello, one moment"), send(staff, session, "Secret note", is_private=True)
    send(alice, session, "Take your time")
    User.update(first_name="Alice", last_name="Liddell").where(User.id == alice.user.id).execute()
    suggestion(staff, session)
    (request,) = ai.requests
    system, *messages = request.body["messages"]
    assert system["content"].startswith(FOR_STAFF.format(app="Shop"))
    for words in ("Q: Where is my parcel?\nA: It takes two days.", "The first name of the customer is Alice."):
        assert words in system["content"]
    assert [(one["role"], one["content"]) for one in messages] == [
        ("user", "Where is my parcel?"),
        ("assistant", "Hello, one moment"),
        ("user", "Take your time"),
    ]
    assert "tools" not in request.body and b"Secret" not in request.content and b"Liddell" not in request.content


@pytest.mark.parametrize("columns", [{"kind": "nobot"}, {"status": "draft"}, {"is_active": False}])
def test_bot_need_not_reply(staff, session, ai, columns):
    Bot.update(columns).execute()
    assert suggestion(staff, session).data["text"] == "I am the assistant."


def test_the_last_message_to_the_assistant_is_the_customers(staff, session, ai):
    send(staff, session, "One moment")
    assert suggestion(staff, session).status == 200
    (request,) = ai.requests
    assert [one["role"] for one in request.body["messages"]] == ["system", "user"]


def test_chat_without_a_bot_has_suggestions(alice, agent, shop, ai):
    session = ChatSession.create(app_id=shop.id, user_id=alice.user.id)
    send(alice, session, "Hello")
    assert suggestion(agent, session).data["text"] == "I am the assistant."


def test_customers_and_other_staff_get_none(staff, alice, bob, other_agent, session, ai):
    assert {suggestion(one, session).error for one in (alice, bob, other_agent)} == {(403, "forbidden")}
    assert ai.requests == []


def test_without_a_message_of_the_customer_there_is_nothing_to_reply_to(agent, session, ai):
    send(agent, session, "Welcome!")
    assert suggestion(agent, session).error == (404, "message_not_found")
    assert ai.requests == []


def test_without_an_assistant_there_are_no_suggestions(staff, session, settings):
    application = build_app(operations(), dataclasses.replace(settings, assistant_url=""))
    assert suggestion(Client(application, staff.token), session).error == (404, "assistant_not_configured")


@pytest.mark.parametrize(
    "behave",
    [sends({}, 500), sends({}, 401), sends(b"<html>"), says(""), calls("call_person"), resets, writes(b"HTTP/1.1 2")],
)
def test_assistant_that_fails_is_unavailable(staff, session, ai, behave, caplog):
    ai.behave = behave
    with nothing_changes(Message, ChatSession):
        assert suggestion(staff, session).error == (503, "assistant_unavailable")
    assert "no suggestion from the assistant for chat session" in caplog.text and "parcel" not in caplog.text


def test_slow_assistant_is_unavailable(staff, session, ai, monkeypatch):
    monkeypatch.setattr(staff_requests, "TIMEOUT", 0.1)
    ai.behave = hangs
    assert suggestion(staff, session).error == (503, "assistant_unavailable")


def limited(settings, staff, **limits):
    return Client(build_app(operations(), dataclasses.replace(settings, **limits)), staff.token)


def test_budget_and_rate_are_those_of_the_app(host_clock, staff, session, shop, settings, ai):
    one = limited(settings, staff, assistant_rate=1)
    assert suggestion(one, session).status == 200
    found = suggestion(one, session)
    assert (found.error, found.headers["Retry-After"]) == ((429, "assistant_limit_reached"), "60")
    AssistantUsage.update(tokens=500).execute()
    found = suggestion(limited(settings, staff, assistant_tokens=500), session)
    assert (found.error, "Retry-After" in found.headers) == ((429, "assistant_limit_reached"), False)
    assert len(ai.requests) == 1


def test_audit_log_has_the_person_who_asked(staff, alice, session, shop, ai):
    ai.behave = sends({**completion("It is lost."), "usage": {"total_tokens": 9}})
    suggestion(staff, session)
    entry = AuditLog.select().where(AuditLog.kind == "assistant_asked").get()
    expected = {"app": shop.id, "session": session.id, "tokens": 9, "outcome": "suggestion"}
    assert (entry.actor_id, entry.subject_id, json.loads(entry.details)) == (staff.user.id, alice.user.id, expected)


def test_requests_in_progress_use_at_most_half_of_the_threads_and_no_transaction(staff, alice, session, ai):
    received, done = threading.Event(), threading.Event()

    def behave(handler):
        if len(ai.requests) == 2:
            received.set()
        assert done.wait(30)
        says("Late")(handler)

    ai.behave = behave
    found = []

    def ask():
        found.append(suggestion(staff, session).status)
        db.close_database()

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert received.wait(30)
    assert suggestion(staff, session).error == (503, "busy")
    assert send(alice, session, "Hello?").status == 201  # a write is possible meanwhile
    done.set()
    for thread in threads:
        thread.join()
    assert found == [200, 200]
    ai.behave = says("Again")
    assert suggestion(staff, session).status == 200


# Console


def open_chat(application, client, session):
    browser = Browser(application).signed_in(client)
    browser.open(f"/console/chats/{session.id}")
    return browser


def press(browser, session, **fields):
    """Press the button. Returns the composer of the page that follows, with its text."""
    browser.navigate("POST", f"/console/chats/{session.id}/suggestion", {**composer(browser), "act": "send", **fields})
    return composer(browser)


def composer(browser):
    page = browser.reply.raw.decode()
    (text,) = re.findall('<textarea name="text"[^>]*>([^<]*)</textarea>', page)
    return {**next(form for _, form in Forms(page).found if "text" in form), "text": html.unescape(text)}


def test_button_adds_the_draft_to_the_composer(application, staff, session, ai):
    browser = open_chat(application, staff, session)
    assert "Suggest a reply" in browser.text
    ai.behave = says("It is on\nits way.")
    with nothing_changes(Message, ChatSession):
        assert press(browser, session)["text"] == "It is on\nits way."
        assert press(browser, session, text="Hello!")["text"] == "Hello!\n\nIt is on\nits way."
    assert browser.reply.status == 200


def test_draft_can_be_sent(application, staff, alice, session, ai):
    browser = open_chat(application, staff, session)
    form = press(browser, session)
    browser.navigate("POST", f"/console/chats/{session.id}", {**form, "act": "send"})
    newest = Message.select().order_by(Message.id.desc()).first()
    assert (newest.plain_text, newest.sender_id, newest.sender_type) == ("I am the assistant.", staff.user.id, "agent")


def test_error_keeps_the_text(application, staff, session, ai):
    browser = open_chat(application, staff, session)
    ai.behave = sends({}, 500)
    assert press(browser, session, text="Hello!")["text"] == "Hello!"
    assert browser.reply.status == 503 and "The assistant has not replied; try again." in browser.text


def test_customers_have_no_button(application, staff, alice, session, ai):
    browser = open_chat(application, alice, session)
    assert "Suggest a reply" not in browser.text
    press(browser, session)
    assert (browser.reply.status, ai.requests) == (403, [])


def test_console_without_an_assistant_has_no_button(settings, staff, session):
    application = build_app(operations(), dataclasses.replace(settings, assistant_url=""))
    assert "Suggest a reply" not in open_chat(application, staff, session).text
