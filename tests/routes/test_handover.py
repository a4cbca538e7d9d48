"""Handover: who calls people into a chat, what they and the customer see, and when the bot replies again."""

import pytest

from service import responder
from service.models import Bot, CannedAnswer, ChatSession
from service.models.audit_log import AuditLog
from service.responder import PHRASES
from tests.support.bot_replies import OPENING, answers, lines, write_in_the_console
from tests.support.client import walk
from tests.support.messages import send
from tests.support.observe import at_once, nothing_changes
from tests.support.web_client import Browser, Forms

pytestmark = pytest.mark.database

CALLED = PHRASES["en"].handed_over


@pytest.fixture(autouse=True)
def answer(bot):
    return CannedAnswer.create(bot_id=bot.id, language="en", question="When are you open?", answer=OPENING)


def call_person(client, session):
    return client.post(f"/chats/{session.id}/handover")


def give_back(client, session):
    return client.put(f"/chats/{session.id}/assignee", {"user_id": None})


def current(session):
    return ChatSession.get_by_id(session.id)


def calls(client):
    """The texts of the notifications that a customer needs a person."""
    rows = walk(client, "/notifications")
    return [row["body"] for row in rows if (row["type"], row["title"]) == ("chat_waiting", "A customer needs a person")]


def test_the_customer_calls_a_person(host_clock, alice, agent, admin, other_agent, session):
    send(alice, session, "My parcel is lost")
    found = call_person(alice, session)
    assert (found.status, found.data["status"]) == (200, "pending")
    assert found.data["handed_over_at"] == "2026-11-20T10:00:00.000Z"
    assert agent.get(f"/chats/{session.id}").data["handed_over_at"] == found.data["handed_over_at"]
    assert lines(alice, session)[-1] == ("bot", CALLED)
    assert [calls(client) for client in (agent, admin, other_agent, alice)] == [["My parcel is lost"]] * 2 + [[], []]


def test_the_bot_is_silent_and_the_chat_stays_pending(alice, agent, session):
    send(alice, session, "👋")
    call_person(alice, session)
    notified = len(walk(agent, "/notifications"))
    send(alice, session, "When are you open?")
    assert (answers(alice, session), current(session).status) == ([CALLED], "pending")
    assert len(walk(agent, "/notifications")) == notified
    alice.put(f"/chats/{session.id}/status", {"status": "open"})
    send(alice, session, "When are you open?")
    assert answers(alice, session) == [CALLED]


def test_the_bot_replies_again_when_the_chat_is_given_back(alice, agent, session):
    call_person(alice, session)
    found = give_back(agent, session).data
    assert (found["status"], found["handed_over_at"]) == ("open", None)
    send(alice, session, "When are you open?")
    assert answers(alice, session) == [CALLED, OPENING]
    with nothing_changes():
        give_back(agent, session)


def test_an_assignee_has_the_chat_until_it_is_given_back(alice, agent, session):
    call_person(alice, session)
    agent.put(f"/chats/{session.id}/assignee", {"user_id": agent.user.id})
    send(alice, session, "Hello?")
    assert current(session).status == "open"
    give_back(agent, session)
    send(alice, session, "When are you open?")
    assert (answers(alice, session), current(session).status) == ([CALLED, OPENING], "open")


def test_only_the_assignee_is_notified(alice, agent, admin, session):
    agent.put(f"/chats/{session.id}/assignee", {"user_id": agent.user.id})
    call_person(alice, session)
    assert (calls(agent), calls(admin)) == ([""], [])


@pytest.mark.parametrize("status", ["resolved", "ended", "closed"])
def test_a_chat_that_has_ended_is_the_bots_again(alice, agent, session, status):
    call_person(alice, session)
    agent.put(f"/chats/{session.id}/status", {"status": status})
    send(alice, session, "When are you open?")
    assert (answers(alice, session), current(session).handed_over_at) == ([CALLED, OPENING], None)


@pytest.mark.parametrize("status", ["snoozed", "on_hold", "active"])
def test_another_status_does_not_end_the_handover(alice, agent, session, status):
    call_person(alice, session)
    agent.put(f"/chats/{session.id}/status", {"status": status})
    send(alice, session, "When are you open?")
    assert answers(alice, session) == [CALLED]


def test_staff_calls_colleagues(alice, agent, admin, session):
    send(alice, session, "Hello")
    assert call_person(agent, session).data["status"] == "pending"
    assert (calls(agent), calls(admin)) == ([], ["Hello"])


def test_a_repeated_call_changes_nothing(alice, session):
    call_person(alice, session)
    with nothing_changes():
        assert call_person(alice, session).status == 200


def test_concurrent_calls_are_one(alice, agent, session):
    at_once(4, lambda _: call_person(alice, session))
    assert (answers(alice, session), calls(agent)) == ([CALLED], [""])


def test_others_cannot_call_a_person(bob, other_agent, session):
    with nothing_changes():
        assert {call_person(client, session).error for client in (bob, other_agent)} == {(403, "forbidden")}


def test_an_archived_chat_calls_no_person(alice, session):
    alice.post(f"/chats/{session.id}/archive")
    with nothing_changes():
        assert call_person(alice, session).error == (400, "session_archived")


def test_a_chat_without_a_bot_that_replies_has_no_message_of_it(alice, agent, session):
    Bot.update(kind="nobot").execute()
    assert call_person(alice, session).data["status"] == "pending"
    assert (lines(alice, session), calls(agent)) == ([], [""])


def test_deleted_text_leaves_the_notification(alice, agent, session):
    message = send(alice, session, "My secret").data
    call_person(alice, session)
    alice.delete(f"/chats/{session.id}/messages/{message['id']}")
    assert calls(agent) == [""]


def test_audit_log_has_no_text(alice, session):
    send(alice, session, "My parcel is lost")
    call_person(alice, session)
    entry = AuditLog.select().where(AuditLog.kind == "chat_handed_over").get()
    assert (entry.actor_id, entry.subject_id) == (alice.user.id, alice.user.id)
    assert entry.details == f'{{"session":"{session.id}"}}'


# Asking for a person


@pytest.mark.parametrize(
    "text",
    [
        *("Can I talk to a human?", "I WANT TO TALK TO A HUMAN", "This does not help. Let me talk to a person please!"),
        *(
            "Kann ich bitte mit einem Menschen sprechen?",
            "Je voudrais parler à un conseiller",
            "转人工",
            "担当者と話したい",
        ),
    ],
)
def test_a_customer_who_asks_for_a_person_gets_one(alice, agent, session, text):
    send(alice, session, text)
    assert (current(session).status, calls(agent), len(answers(alice, session))) == ("pending", [text], 1)


@pytest.mark.parametrize(
    "text",
    [
        *("Are you human?", "Is this a person?", "Who is the person on the picture?", "Where is your shop?", "Hello"),
        *("Bist du ein Mensch?", "Rede ich mit einem Menschen?", "你是真人吗", "あなたは人間ですか"),
    ],
)
def test_other_questions_call_no_person(alice, session, text):
    assert not responder.asks_for_person(text)


@pytest.mark.parametrize("language", PHRASES)
def test_every_language_has_requests_for_a_person(language):
    for text in PHRASES[language].person.split("|"):
        assert responder.asks_for_person(text), text
    for text in "|".join(PHRASES[language][:3]).split("|"):
        assert not responder.asks_for_person(text), text


def test_canned_answer_to_such_a_request_is_the_reply(alice, bot, session):
    CannedAnswer.create(bot_id=bot.id, question="How do I reach a person?", answer="Call 123, or wait here.")
    send(alice, session, "How do I reach a person?")
    assert (answers(alice, session), current(session).status) == (["Call 123, or wait here."], "pending")


def test_reply_has_the_language_of_the_customer(alice, session):
    alice.patch("/users/me/settings", {"chat_language": "de"})
    call_person(alice, session)
    assert answers(alice, session) == [PHRASES["de"].handed_over]


def test_staff_who_replied_just_now_are_not_called_again(alice, agent, session):
    send(agent, session, "Hello")
    send(alice, session, "Can I talk to a human?")
    assert (current(session).handed_over_at, calls(agent)) == (None, [])


# Console


def browser_of(application, client, session):
    browser = Browser(application).signed_in(client)
    browser.open(f"/console/chats/{session.id}")
    return browser


def test_customer_calls_a_person_in_the_console(application, alice, agent, session):
    assert "Talk to a person" not in browser_of(application, agent, session).text
    browser = browser_of(application, alice, session)
    assert "Talk to a person" in browser.text
    form = next(form for _, form in Forms(browser.reply.raw.decode()).found if "text" in form)
    browser.navigate("POST", f"/console/chats/{session.id}", {"csrf_token": form["csrf_token"], "act": "handover"})
    assert "A person was called." in browser.text and CALLED in browser.text
    assert "Talk to a person" not in browser.text
    assert calls(agent) == [""]


def test_staff_sees_until_when_the_chat_stays_pending(application, alice, agent, session):
    words = "the chat stays pending until it has an assignee"
    browser = browser_of(application, agent, session)
    assert words not in browser.text
    call_person(alice, session)
    assert words in browser_of(application, agent, session).text
    agent.put(f"/chats/{session.id}/assignee", {"user_id": agent.user.id})
    assert words not in browser_of(application, agent, session).text


def test_staff_gives_the_chat_back_in_the_console(application, alice, agent, session):
    call_person(alice, session)
    browser = browser_of(application, agent, session)
    assert "a person was called" in browser.text and "Give back to the bot" in browser.text
    form = next(form for _, form in Forms(browser.reply.raw.decode()).found if form.get("act") == "assign")
    fields = {"csrf_token": form["csrf_token"], "act": "assign", "assignee": ""}
    browser.navigate("POST", f"/console/chats/{session.id}", fields)
    assert "Given back to the bot." in browser.text and "a person was called" not in browser.text


def test_asking_for_a_person_in_the_console(application, alice, session):
    browser = write_in_the_console(application, alice, session, "Kann ich mit einem Menschen sprechen?", "de")
    assert PHRASES["de"].handed_over in browser.text


def test_a_chat_that_no_bot_replies_to_has_no_button(application, alice, session):
    Bot.update(kind="nobot").execute()
    assert "Talk to a person" not in browser_of(application, alice, session).text
