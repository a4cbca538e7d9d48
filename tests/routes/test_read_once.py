"""Read-once messages: where their content is not, and who may reveal it."""

import json
from typing import Any

import pytest

from service.models import ChatSession, IdempotencyKey, Message, actions
from service.operate import import_export
from tests.support.chats import as_stored, delete, now, pin, total
from tests.support.client import Client, Reply, text_of, walk
from tests.support.messages import chat_notifications, edit, last, send, sent
from tests.support.observe import at_once, nothing_changes
from tests.support.sample_data import UNKNOWN_ID, UNKNOWN_MESSAGE_ID

pytestmark = pytest.mark.database

SECRET = "The code is 4711"


def reveal(client: Client, message: Message, **headers: str) -> Reply:
    path = f"/chats/{message.chat_session_id}/messages/{message.id}/reveal"
    return client.post(path, **headers)


@pytest.fixture
def message(agent: Client, session: ChatSession) -> Message:
    """A read-once message of staff."""
    return sent(agent, session, SECRET, is_read_once=True)


def exported() -> list[bytes]:
    lines: list[bytes] = []
    import_export.export(lines.append)
    return lines


class TestUnread:
    def test_content_is_in_no_response(self, alice, agent, admin, session, message):
        assert pin(agent, message).status == 200
        send(alice, session, "Why?", reply_to_message_id=message.id)
        for client in (alice, agent, admin):
            paths = (f"/chats/{session.id}/messages", f"/chats/{session.id}/pinned-messages", "/chats")
            more = (f"/chats/{session.id}", f"/chats/{session.id}/context", "/notifications", "/chats/search?q=4711")
            for path in (*paths, *more):
                reply = client.get(path)
                assert reply.status == 200
                assert SECRET not in reply.raw.decode()
                assert str(list(SECRET.encode()))[1:-1].replace(" ", "") not in reply.raw.decode()
        found = walk(alice, f"/chats/{session.id}/messages")[0]
        assert (found["id"], found["content"], found["is_read_once"]) == (message.id, [], True)

    def test_message_is_listed_counted_and_announced(self, alice, agent, session):
        reply = send(agent, session, SECRET, is_read_once=True)
        assert (reply.status, reply.data["content"]) == (201, [])
        assert (total(alice, session), last(alice, session)) == (1, "")
        assert [body for _, body in chat_notifications(alice)] == ["Read-once message"]

    def test_bot_does_not_reply(self, alice, session):
        send(alice, session, "When are you open?", is_read_once=True)
        assert total(alice, session) == 1

    def test_is_sent_once_with_a_client_message_id(self, alice, agent, session):
        first = send(agent, session, SECRET, is_read_once=True, client_message_id="c")
        with nothing_changes():
            assert send(agent, session, SECRET, is_read_once=True, client_message_id="c").data == first.data
            for other in ({"text": "x", "is_read_once": True}, {"text": SECRET}):
                assert send(agent, session, client_message_id="c", **other).error == (400, "client_message_id_reused")
        assert reveal(alice, Message.get_by_id(first.data["id"])).status == 200
        with nothing_changes():
            again = send(agent, session, SECRET, is_read_once=True, client_message_id="c")
        assert (again.status, again.data["id"]) == (201, first.data["id"])

    @pytest.mark.parametrize(
        "members",
        [{"is_private": True}, {"images": [UNKNOWN_ID]}, {"action_payload": {"actions": [{"id": "x", "label": "y"}]}}],
    )
    def test_is_no_note_and_has_no_pictures_and_buttons(self, agent, session, members):
        with nothing_changes():
            assert send(agent, session, is_read_once=True, **members).error == (400, "invalid_body")

    def test_is_no_press(self, alice, session, say):
        source = say("Hi", sender_type="bot", action_payload=actions.offer_of(["Yes"])).id
        with nothing_changes():
            reply = send(alice, session, action_source_id=source, action_id="1", is_read_once=True)
        assert reply.error == (400, "invalid_body")

    def test_cannot_be_edited(self, agent, message):
        with nothing_changes():
            assert edit(agent, message, "Another code").error == (400, "invalid_body")


class TestRevealing:
    def test_returns_the_content_once(self, host_clock, alice, agent, session, message):
        reply = reveal(alice, message)
        assert (reply.status, text_of(reply.data)) == (200, SECRET)
        with nothing_changes():
            assert reveal(alice, message).error == (400, "nothing_to_reveal")
        for client in (alice, agent):
            (found,) = walk(client, f"/chats/{session.id}/messages")
            assert json.loads(bytes(found["content"])) == {"revealed_at": "2026-11-20T10:00:00.000Z"}
        assert SECRET not in str(now(message).__data__)
        assert as_stored({"text": SECRET}) not in str(now(message).__data__)

    def test_at_once_returns_it_once(self, alice, message):
        replies = at_once(4, lambda _: reveal(alice, message))
        assert sorted(reply.status for reply in replies) == [200, 400, 400, 400]

    def test_with_an_idempotency_key_stores_no_content(self, alice, message):
        assert text_of(reveal(alice, message, idempotency_key="k").data) == SECRET
        assert reveal(alice, message, idempotency_key="k").error == (400, "nothing_to_reveal")
        assert IdempotencyKey.select().count() == 0

    def test_is_for_the_other_side(self, alice, bob, agent, admin, other_agent, session, message):
        customers = sent(alice, session, SECRET, is_read_once=True)
        with nothing_changes():
            for client in (agent, admin, bob, other_agent):
                assert reveal(client, message).error == (403, "forbidden")
            for client in (alice, bob, other_agent):
                assert reveal(client, customers).error == (403, "forbidden")
        assert text_of(reveal(admin, customers).data) == SECRET
        with nothing_changes():
            assert reveal(agent, customers).error == (400, "nothing_to_reveal")

    def test_of_other_messages_is_refused(self, alice, agent, session):
        plain, note = sent(agent, session), sent(agent, session, is_private=True)
        with nothing_changes():
            assert reveal(alice, plain).error == (400, "nothing_to_reveal")
            assert reveal(alice, note).error == (404, "message_not_found")
            path = f"/chats/{session.id}/messages/{UNKNOWN_MESSAGE_ID}/reveal"
            assert alice.post(path).error == (404, "message_not_found")

    def test_changes_the_revision_of_the_list(self, alice, agent, session, message):
        etags = [agent.get(f"/chats/{session.id}/messages").headers["ETag"]]
        reveal(alice, message)
        etags.append(agent.get(f"/chats/{session.id}/messages").headers["ETag"])
        assert etags[0] != etags[1]

    def test_works_after_the_session_was_archived(self, alice, session, message):
        assert alice.post(f"/chats/{session.id}/archive").status == 200
        assert text_of(reveal(alice, message).data) == SECRET


class TestRemoval:
    @pytest.mark.parametrize("who", ["agent", "alice"])
    def test_erases_the_content(self, request, alice, message, who):
        assert delete(request.getfixturevalue(who), message).status == 200
        assert now(message).sealed_content == "[]"
        with nothing_changes():
            assert reveal(alice, message).error == (404, "message_not_found")

    def test_by_a_purge_erases_the_content(self, alice, message):
        Message.purge(Message.id == message.id)
        assert now(message).sealed_content == "[]"
        with nothing_changes():
            assert reveal(alice, message).error == (400, "nothing_to_reveal")


class TestTransfer:
    def test_exports_have_the_content_until_it_is_revealed(self, alice, session, message, import_lines):
        before = exported()
        assert as_stored({"text": SECRET}).encode() in b"".join(before)
        assert reveal(alice, message).status == 200
        after = exported()
        assert as_stored({"text": SECRET}).encode() not in b"".join(after)
        for lines, status in ((before, 200), (after, 400)):
            import_lines(lines)
            assert reveal(alice, message).status == status

    @pytest.mark.parametrize("content", [{"text": SECRET}, {"content": {"text": SECRET}}])
    def test_imports_without_a_sealed_content_seal_it(self, alice, session, import_lines, content):
        row = {"chat_session_id": session.id, "is_read_once": True, "sender_type": "agent", **content}
        import_lines([json.dumps({"message": {**row, "original_content": {"text": SECRET}}}).encode()])
        assert [row["content"] for row in walk(alice, f"/chats/{session.id}/messages")] == [[]]
        message = Message.get()
        assert (message.plain_text, message.search_text, message.original_content) == ("", "", "[]")
        assert text_of(reveal(alice, message).data) == SECRET

    @pytest.mark.parametrize(
        "removal", [{"is_private": True}, {"content_type": "image"}, {"deleted_at": "2026-11-20T10:00:00Z"}]
    )
    def test_imports_of_notes_pictures_and_removed_messages_are_unchanged(self, session, import_lines, removal):
        row = {"chat_session_id": session.id, "is_read_once": True, "text": SECRET, **removal}
        import_lines([json.dumps({"message": row}).encode()])
        assert Message.get().content == as_stored({"text": SECRET})


@pytest.fixture
def import_lines(tmp_path: Any) -> Any:
    """Return a function that imports lines."""

    def run(lines: list[bytes]) -> None:
        path = tmp_path / "records.jsonl"
        path.write_bytes(b"\n".join(line.strip() for line in lines))
        assert import_export.import_files([path]) == []

    return run
