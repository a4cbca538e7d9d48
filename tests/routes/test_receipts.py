"""Receipts: which messages the other side has received and read, in the `status` of messages and in the stream."""

import pytest

from service import clock
from service.models import Bot, ChatSession, Message
from service.models.receipts import SEARCHED
from tests.support.client import Client
from tests.support.event_stream import Event, EventParser
from tests.support.messages import edit, read, send, sent
from tests.support.observe import at_once, database_steps, statements

pytestmark = pytest.mark.database


@pytest.fixture
def session(session: ChatSession) -> ChatSession:
    """A session in which no bot replies."""
    ChatSession.update(bot_id=None).execute()
    session.bot_id = None
    return session


def statuses(client: Client, session: ChatSession) -> list[str]:
    """The statuses of the messages of a session, oldest first."""
    return [message["status"] for message in client.get(f"/chats/{session.id}/messages").data]


def status_of(client: Client, message: Message) -> str:
    listed = client.get(f"/chats/{message.chat_session_id}/messages?limit=200").data
    (status,) = [row["status"] for row in listed if row["id"] == message.id]
    return str(status)


def receive(client: Client, session: ChatSession, message: Message | None = None) -> None:
    """Confirm that messages have arrived."""
    body = {"status": "delivered"} | ({"message_id": message.id} if message else {})
    assert client.put(f"/chats/{session.id}/read", body).status == 200


def hide_receipts(client: Client, *, hide: bool = True) -> None:
    assert client.patch("/users/me/settings", {"privacy": {"show_read_receipts": not hide}}).status == 200


def receipts(client: Client, after: str) -> list[Event]:
    """The events with receipts since a position."""
    raw = client.get(f"/updates/stream?after={after}").raw
    return [event for event in EventParser().feed(raw) if event.name == "receipt"]


def position(client: Client) -> str:
    return str(client.get("/updates").data["after"])


def test_reading_of_staff_is_that_of_the_app(alice: Client, agent: Client, session: ChatSession) -> None:
    first, second = sent(alice, session), sent(alice, session)
    read(agent, session, first)
    assert statuses(alice, session) == statuses(agent, session) == ["read", "sent"]
    read(agent, session, second)
    assert statuses(alice, session) == ["read", "read"]


def test_customer_reads_messages_of_staff(alice: Client, agent: Client, session: ChatSession) -> None:
    sent(agent, session)
    assert statuses(agent, session) == ["sent"]
    read(alice, session)
    assert statuses(agent, session) == ["read"]


def test_reading_own_messages_is_no_receipt(alice: Client, agent: Client, session: ChatSession) -> None:
    sent(alice, session)
    read(alice, session)
    assert statuses(agent, session) == ["sent"]


def test_a_reply_is_a_receipt_of_the_messages_before_it(alice: Client, agent: Client, session: ChatSession) -> None:
    sent(alice, session)
    sent(agent, session)
    assert statuses(alice, session) == ["read", "sent"]


def test_a_reply_of_a_bot_is_a_receipt(alice: Client, session: ChatSession, bot: Bot) -> None:
    ChatSession.update(bot_id=bot.id).execute()
    reply = send(alice, session, "When will my order arrive?")
    assert reply.status == 201
    assert [row["sender_type"] for row in alice.get(f"/chats/{session.id}/messages").data] == ["user", "bot"]
    assert reply.data["status"] == "read" and statuses(alice, session) == ["read", "sent"]


def test_delivered_is_what_a_client_has_confirmed(alice: Client, agent: Client, session: ChatSession) -> None:
    message = sent(agent, session)
    alice.get(f"/chats/{session.id}/messages")  # a list is no confirmation
    assert status_of(agent, message) == "sent"
    receive(alice, session, message)
    assert status_of(agent, message) == "delivered"
    assert alice.get(f"/chats/{session.id}").data["unread_count"] == 1
    read(alice, session)
    receive(alice, session)
    assert status_of(agent, message) == "read"


def test_receipts_never_move_backwards(alice: Client, agent: Client, session: ChatSession) -> None:
    first = sent(alice, session)
    sent(alice, session)
    read(agent, session)
    before = position(alice)
    read(agent, session, first)
    receive(agent, session, first)
    assert statuses(alice, session) == ["read", "read"]
    assert alice.get(f"/updates?after={before}&wait=0").data["chats"] == []


def test_reading_again_writes_no_receipt(alice: Client, agent: Client, session: ChatSession) -> None:
    sent(alice, session)
    read(agent, session)
    with statements() as seen:
        read(agent, session)
    assert not [sql for sql, _ in seen if sql.startswith("UPDATE") and "chat_session" in sql]


class TestHidden:
    """Users who hide their receipts give none, and see none."""

    def test_a_customer(self, alice: Client, agent: Client, session: ChatSession) -> None:
        sent(alice, session)
        sent(agent, session)
        hide_receipts(alice)
        read(alice, session)
        receive(alice, session)
        assert statuses(agent, session) == ["read", "sent"] and statuses(alice, session) == ["sent", "sent"]
        hide_receipts(alice, hide=False)
        assert statuses(alice, session) == ["read", "sent"]

    def test_a_member_of_staff(self, alice: Client, agent: Client, admin: Client, session: ChatSession) -> None:
        sent(agent, session)
        sent(alice, session)
        read(alice, session)
        hide_receipts(agent)
        read(agent, session)
        assert statuses(agent, session) == ["sent", "sent"] and statuses(alice, session) == ["read", "sent"]
        read(admin, session)
        assert statuses(alice, session) == ["read", "read"]

    def test_every_response_with_the_message(self, alice: Client, agent: Client, session: ChatSession) -> None:
        message = sent(agent, session, "needle")
        read(alice, session)
        agent.post(f"/chats/{session.id}/messages/{message.id}/pin")
        paths = (f"/chats/{session.id}/messages", f"/chats/{session.id}/pinned-messages", "/chats/search?q=needle")
        found = [agent.get(path).data[0]["status"] for path in paths] + [
            edit(agent, message, "needle 2").data["status"]
        ]
        assert found == ["read"] * 4
        hide_receipts(agent)
        found = [agent.get(path).data[0]["status"] for path in paths] + [
            edit(agent, message, "needle 3").data["status"]
        ]
        assert found == ["sent"] * 4

    def test_the_etag_depends_on_the_setting(self, alice: Client, agent: Client, session: ChatSession) -> None:
        sent(agent, session)
        read(alice, session)
        path = f"/chats/{session.id}/messages"
        etag = agent.get(path).headers["ETag"]
        assert agent.get(path, if_none_match=etag).status == 304
        hide_receipts(agent)
        assert agent.get(path, if_none_match=etag).data[0]["status"] == "sent"

    def test_events(self, alice: Client, agent: Client, session: ChatSession) -> None:
        sent(alice, session)
        after = position(alice)
        read(agent, session)
        assert len(receipts(alice, after)) == 1
        hide_receipts(alice)
        assert receipts(alice, after) == []

    def test_a_repeated_request(self, alice: Client, agent: Client, session: ChatSession) -> None:
        key = send(agent, session, key="a key").data["id"]
        read(alice, session)
        assert [send(agent, session, key="a key").data[name] for name in ("id", "status")] == [key, "read"]
        hide_receipts(agent)
        assert send(agent, session, key="a key").data["status"] == "sent"


class TestWithoutReceipts:
    def test_private_notes(self, alice: Client, agent: Client, admin: Client, session: ChatSession) -> None:
        message = sent(alice, session)
        after = position(alice)
        note = sent(agent, session, is_private=True)  # writing it is no receipt either
        assert statuses(agent, session) == ["sent", "sent"]
        assert alice.get(f"/updates?after={after}&wait=0").data["chats"] == []
        read(admin, session, note)
        assert statuses(admin, session) == ["read", "sent"]
        [event] = receipts(alice, after)
        assert event.data["message_id"] == message.id

    def test_deleted_messages(self, alice: Client, agent: Client, session: ChatSession) -> None:
        message = sent(alice, session)
        alice.delete(f"/chats/{session.id}/messages/{message.id}")
        after = position(alice)
        read(agent, session)
        assert receipts(alice, after) == [] and receipts(agent, after=position(agent)) == []

    def test_read_once_messages(self, alice: Client, agent: Client, session: ChatSession) -> None:
        message = sent(agent, session, "secret", is_read_once=True)
        read(alice, session)
        assert status_of(agent, message) == "sent"
        revealed = alice.post(f"/chats/{session.id}/messages/{message.id}/reveal")
        assert revealed.data["status"] == "sent"

    def test_messages_with_another_status(self, alice: Client, agent: Client, session: ChatSession) -> None:
        message = sent(agent, session)
        Message.update(status="failed").where(Message.id == message.id).execute()
        read(alice, session)
        assert status_of(agent, message) == "failed"

    def test_stored_and_exported_messages(self, alice: Client, agent: Client, session: ChatSession) -> None:
        message = sent(agent, session)
        read(alice, session)
        assert Message.get_by_id(message.id).status == "sent"


class TestStream:
    def test_event_has_the_newest_message_that_was_read(
        self, alice: Client, agent: Client, session: ChatSession
    ) -> None:
        message = sent(alice, session)
        after = position(alice)
        receive(agent, session)
        [event] = receipts(alice, after)
        about = {"chat_session_id": session.id, "message_id": message.id, "side": "app"}
        assert event.data == {**about, "status": "delivered"}
        read(agent, session)
        assert [event.data for event in receipts(alice, after)] == [
            {**about, "status": "delivered"},
            {**about, "status": "read"},
        ]

    def test_change_without_a_receipt_has_no_receipt(self, alice: Client, agent: Client, session: ChatSession) -> None:
        sent(alice, session)
        read(agent, session)
        after = position(alice)
        sent(alice, session)
        assert receipts(alice, after) == []

    def test_long_poll_reports_the_chat(self, alice: Client, agent: Client, session: ChatSession) -> None:
        sent(alice, session)
        after = position(alice)
        read(agent, session)
        assert alice.get(f"/updates?after={after}&wait=0").data["chats"] == [session.id]


def test_status_is_rendered_without_a_statement_more(alice: Client, agent: Client, session: ChatSession) -> None:
    def count() -> int:
        with statements() as seen:
            alice.get(f"/chats/{session.id}/messages")
        return len(seen)

    sent(alice, session)
    before = count()
    read(agent, session)
    assert count() == before


def test_receipts_of_both_sides_at_once_are_all_stored(alice: Client, agent: Client, session: ChatSession) -> None:
    sent(alice, session)
    sent(agent, session)
    at_once(2, lambda number: read((alice, agent)[number], session))
    assert statuses(alice, session) == ["read", "read"]


def write_many(session: ChatSession, **columns: object) -> None:
    """Store more messages than are searched for one of the other side."""
    about = {"chat_session_id": session.id, "owner_id": session.user_id, "app_id": session.app_id, **columns}
    for _ in range(SEARCHED + 10):
        Message.create(id=clock.ulid(), **about)


def test_reading_reaches_a_message_before_many_of_the_same_side(
    alice: Client, agent: Client, session: ChatSession
) -> None:
    old = sent(agent, session)
    write_many(session, sender_id=alice.user.id, sender_type="user")
    assert status_of(agent, old) == "sent"
    sent(alice, session)
    assert status_of(agent, old) == "read"


def test_cost_of_a_message_is_the_same_after_many_of_the_same_side(alice: Client, session: ChatSession) -> None:
    sent(alice, session)
    few = database_steps(lambda: sent(alice, session))
    write_many(session, sender_id=alice.user.id, sender_type="user")
    sent(alice, session)
    assert database_steps(lambda: sent(alice, session)) < few * 1.2
