"""Notifications of staff about customers who wait for a reply."""

import pytest

from service.models import Notification, User, posting
from tests.support.client import walk
from tests.support.messages import send, sent
from tests.support.observe import nothing_changes

pytestmark = pytest.mark.database


def waiting_in(client):
    """Return the texts of the notifications about waiting customers, newest first."""
    rows = walk(client, "/notifications")
    assert {row["title"] for row in rows if row["type"] == "chat_waiting"} <= {"A customer waits for a reply"}
    return [row["body"] for row in rows if row["type"] == "chat_waiting"]


def test_staff_of_the_app_is_notified_of_the_first_message(alice, agent, admin, other_agent, bob, session):
    send(alice, session, "Hello?")
    send(alice, session, "Anyone?")
    assert [waiting_in(client) for client in (agent, admin)] == [["Hello?"], ["Hello?"]]
    assert [waiting_in(client) for client in (other_agent, alice, bob)] == [[], [], []]


@pytest.mark.parametrize("status", ["resolved", "ended", "closed", "pending", "snoozed", "on_hold"])
def test_staff_is_notified_of_a_message_that_reopens_a_chat(alice, agent, session, status):
    send(alice, session, "Hello?")
    agent.put(f"/chats/{session.id}/status", {"status": status})
    send(alice, session, "It is broken again.")
    assert waiting_in(agent) == ["It is broken again.", "Hello?"]


@pytest.mark.parametrize("former", ["resolved", "archived", "on_hold"])
def test_staff_is_notified_of_a_customer_who_sets_the_status_to_open(alice, agent, session, former):
    send(alice, session, "Hello?")
    agent.put(f"/chats/{session.id}/status", {"status": former})
    for status in ("open", "open", "active"):
        assert alice.put(f"/chats/{session.id}/status", {"status": status}).status == 200
    assert waiting_in(agent) == ["Hello?", "Hello?"]


def test_staff_is_not_notified_of_a_chat_that_staff_opens(alice, agent, admin, session):
    send(alice, session, "Hello?")
    for status in ("resolved", "open"):
        assert agent.put(f"/chats/{session.id}/status", {"status": status}).status == 200
    assert waiting_in(admin) == ["Hello?"]


def test_the_assignee_gets_the_message_only(alice, agent, admin, session):
    assert agent.put(f"/chats/{session.id}/assignee", {"user_id": agent.user.id}).status == 200
    send(alice, session, "Hello?")
    assert waiting_in(agent) == waiting_in(admin) == []
    assert [row["type"] for row in walk(agent, "/notifications")] == ["chat_message"]


def test_staff_who_wrote_before_gets_one_notification(alice, agent, admin, session):
    send(alice, session, "Hello?")
    send(agent, session, "Good morning.")
    agent.put(f"/chats/{session.id}/status", {"status": "resolved"})
    send(alice, session, "One more question.")
    assert [row["type"] for row in walk(agent, "/notifications")] == ["chat_message", "chat_waiting"]
    assert waiting_in(admin) == ["One more question.", "Hello?"]


def test_messages_of_staff_and_bots_announce_no_waiting_customer(agent, admin, session):
    send(agent, session, "Can we help you?")
    assert waiting_in(agent) == waiting_in(admin) == []


def test_an_agent_who_is_the_customer_is_not_notified_of_the_own_message(agent, admin, shop):
    session_id = agent.post("/chats", {"app_id": shop.id}).data["id"]
    agent.post(f"/chats/{session_id}/messages", {"content": {"text": "I have a question."}})
    assert (waiting_in(agent), waiting_in(admin)) == ([], ["I have a question."])


def test_disabled_staff_is_not_notified(alice, agent, session):
    User.update(is_disabled=True).where(User.id == agent.user.id).execute()
    send(alice, session, "Hello?")
    assert not Notification.select().where(Notification.user_id == agent.user.id).exists()


def test_the_number_of_notified_staff_is_limited_and_agents_come_first(alice, agent, admin, session, monkeypatch):
    monkeypatch.setattr(posting, "MAX_WAITING", 1)
    send(alice, session, "Hello?")
    assert (waiting_in(agent), waiting_in(admin)) == (["Hello?"], [])


def test_a_deleted_message_is_removed_from_the_notification(alice, agent, session):
    message = sent(alice, session, "My password is secret.")
    assert alice.delete(f"/chats/{session.id}/messages/{message.id}").status == 200
    assert waiting_in(agent) == [""]


def test_a_repeated_request_changes_nothing(alice, agent, session):
    send(alice, session, "Hello?", client_message_id="one")
    with nothing_changes():
        send(alice, session, "Hello?", client_message_id="one")
