"""Operations of chats beyond the specification: create a session, send, edit and read messages."""

import json
import re

import pytest

from service import clock, db
from service.models import Bot, ChatSession, IdempotencyKey, Message, Notification, ReadMarker, User
from service.models.chats import ENDED_STATUSES, LIVE_STATUSES, PAUSED_STATUSES
from service.models.inbox import UNREAD_LIMIT
from service.models.recompute import recompute
from service.models.sending import MAX_CONTENT_BYTES
from service.operate import import_export
from tests.support.chats import NO_MESSAGE, NO_SESSION, as_stored, delete, fill, now, pin, texts, total
from tests.support.client import text_of, walk
from tests.support.messages import chat_notifications, edit, last, read, send, sent, unread
from tests.support.observe import at_once, nothing_changes, query_plan, statements
from tests.support.postgres import is_chosen

SECRET = "meet me at the harbour"


@pytest.fixture
def bot(shop):
    """A bot whose replies are written by staff."""
    return Bot.create(app_id=shop.id, name="Hilda", kind="nobot", status="published")


def snapshot(message):
    return json.loads(bytes(json.loads(now(message).reply_snapshot)) or b"null")


@pytest.fixture
def colleague(person, shop):
    """Another agent of the shop."""
    return person("cleo", role="agent", app_id=shop.id, display_name="Cleo of the shop")


# Creating a session


def test_new_session_is_open_and_empty(alice, shop, bot):
    response = alice.post("/chats", {"app_id": shop.id, "bot_id": bot.id})
    assert response.status == 201
    assert response.data == alice.get(f"/chats/{response.data['id']}").data == alice.get("/chats").data[0]
    expected = {"app_id": shop.id, "bot_id": bot.id, "user_id": alice.user.id, "status": "open", "unread_count": 0}
    assert response.data | expected == response.data
    assert response.data["last_message"] is None


@pytest.mark.parametrize("nothing", [{}, {"bot_id": None, "conversation_id": None}])
def test_session_does_not_need_a_bot(alice, shop, nothing):
    first, second = (alice.post("/chats", {"app_id": shop.id.upper(), **nothing}).data for _ in range(2))
    assert first["bot_id"] is None
    assert first["conversation_id"] != second["conversation_id"]


def test_conversation_continues_with_the_same_bot_only(alice, bob, shop, other_shop, bot, session):
    another = Bot.create(app_id=shop.id, name="Gerda", status="published")
    body = {"app_id": shop.id, "bot_id": bot.id, "conversation_id": session.conversation_id}
    created = alice.post("/chats", body).data
    assert (created["conversation_id"], created["id"] == session.id) == (session.conversation_id, False)
    with nothing_changes():
        for wrong in ({"bot_id": another.id}, {"bot_id": None}, {"conversation_id": NO_SESSION}):
            assert alice.post("/chats", body | wrong).error == (404, "conversation_not_found")
        assert bob.post("/chats", body).error == (404, "conversation_not_found")
        assert alice.post("/chats", body | {"app_id": other_shop.id}).error == (404, "bot_not_found")


@pytest.mark.parametrize("columns", [{"is_active": False}, {"status": "draft"}])
def test_hidden_bot_is_not_found(alice, shop, other_shop, columns):
    hidden = Bot.create(app_id=shop.id, name="H", **{"status": "published", **columns})
    foreign = Bot.create(app_id=other_shop.id, name="F", status="published")
    with nothing_changes():
        for id in (hidden.id, foreign.id, NO_SESSION):
            assert alice.post("/chats", {"app_id": shop.id, "bot_id": id}).error == (404, "bot_not_found")
        assert alice.post("/chats", {"app_id": NO_SESSION}).error == (404, "app_not_found")


@pytest.mark.parametrize("body", [{}, {"app_id": ""}, {"app_id": "x"}, {"app_id": None}, {"app_id": 1}])
def test_session_requires_an_app(alice, body):
    with nothing_changes():
        assert alice.post("/chats", body).error == (400, "invalid_body")


def test_idempotency_key_creates_one_session(alice, shop):
    first, second = (alice.post("/chats", {"app_id": shop.id}, idempotency_key="k") for _ in range(2))
    assert first.raw == second.raw
    assert ChatSession.select().count() == 1


def test_session_is_returned_to_users_with_access(alice, agent, admin, bob, other_agent, session):
    assert {client.get(f"/chats/{session.id}").data["id"] for client in (alice, agent, admin)} == {session.id}
    for client in (bob, other_agent):
        assert client.get(f"/chats/{session.id}").error == (403, "forbidden")
    assert alice.get(f"/chats/{NO_SESSION}").error == (404, "session_not_found")
    assert alice.get("/chats/search!").error == (400, "invalid_id")


# Sending


def test_sent_message_is_listed(host_clock, alice, session):
    reply = send(alice, session, "Grüße 👋")
    assert reply.status == 201
    assert messages_of(alice, session) == [reply.data]
    columns = ("sender_id", "sender_type", "channel", "status", "content_type", "is_private", "conversation_id")
    values = [alice.user.id, "user", "web", "sent", "text", False, session.conversation_id]
    assert [reply.data[name] for name in columns] == values
    assert text_of(reply.data) == "Grüße 👋"
    assert reply.data["created_at"] == reply.data["updated_at"] == "2026-11-20T10:00:00.000Z"
    assert total(alice, session) == 1


def messages_of(client, session):
    return walk(client, f"/chats/{session.id}/messages")


@pytest.mark.parametrize(("who", "kind"), [("alice", "user"), ("agent", "agent"), ("admin", "agent")])
def test_role_determines_the_sender_type(request, session, who, kind):
    client = request.getfixturevalue(who)
    assert send(client, session).data["sender_type"] == kind


@pytest.mark.parametrize(
    ("content", "stored"),
    [
        ("Hello", b'"Hello"'),
        ({"text": "é", "more": [1, None]}, '{"text":"é","more":[1,null]}'.encode()),
        ([123, 125], b"{}"),
        ([{"a": 1}], b'[{"a":1}]'),
        (7, b"7"),
        (False, b"false"),
        ({}, b"{}"),
    ],
)
def test_content_is_any_json(alice, session, content, stored):
    reply = alice.post(f"/chats/{session.id}/messages", {"content": content})
    assert bytes(reply.data["content"]) == stored


@pytest.mark.parametrize("numbers", [[-1, 2**63 - 1], [255, 254], [34, 92, 117, 100, 56, 48, 48, 34], [91] * 3000])
def test_arrays_of_integers_are_stored_unchanged(alice, agent, session, numbers):
    reply = alice.post(f"/chats/{session.id}/messages", {"content": numbers})
    assert (reply.status, reply.data["content"]) == (201, numbers)
    assert [row["body"] for row in notifications_of(agent, session)] in ([""], ["?"])
    assert last(alice, session) in ("", "?")
    assert alice.get(f"/chats/{session.id}/context").status == 200


def notifications_of(client, session):
    return [row for row in walk(client, "/notifications") if row["session_id"] == session.id]


@pytest.mark.parametrize("body", [{}, {"content": None}, {"content": []}, {"content": [2**63]}, {"text": "Hello"}])
def test_message_without_content_is_400(alice, session, body):
    with nothing_changes():
        assert alice.post(f"/chats/{session.id}/messages", body).error[0] == 400


def test_content_has_at_most_64_kib(alice, session):
    room = MAX_CONTENT_BYTES - len('{"text":""}')
    assert MAX_CONTENT_BYTES == 65_536
    assert send(alice, session, "x" * (room - 1)).status == 201
    assert send(alice, session, "x" * room).status == 201
    message = sent(alice, session)
    with nothing_changes():
        for content in ({"text": "x" * (room + 1)}, {"text": "é" * (room // 2 + 1)}, [1] * (MAX_CONTENT_BYTES + 1)):
            reply = alice.post(f"/chats/{session.id}/messages", {"content": content})
            assert reply.error == (400, "invalid_body")
            assert reply.message.startswith("$.content")
        assert edit(alice, message, "x" * (room + 1)).error == (400, "invalid_body")


def test_sending_requires_access_to_the_session(bob, other_agent, anyone, session):
    with nothing_changes():
        for client in (bob, other_agent):
            assert send(client, session).error == (403, "forbidden")
        assert send(anyone, session).error == (401, "missing_credentials")


def test_notes_are_for_staff_only(alice, agent, session, shop, person):
    with nothing_changes():
        assert send(alice, session, is_private=True).error == (403, "forbidden")
    sent(agent, session, SECRET, is_private=True)
    assert (texts(alice, session), texts(agent, session)) == ([], [SECRET])
    assert (total(alice, session), total(agent, session)) == (0, 1)
    assert (last(alice, session), last(agent, session)) == (None, SECRET)


def test_agent_is_a_customer_in_a_session_with_another_app(agent, other_shop):
    own = ChatSession.create(app_id=other_shop.id, user_id=agent.user.id)
    with nothing_changes():
        assert send(agent, own, is_private=True).error == (403, "forbidden")
    assert send(agent, own).data["sender_type"] == "user"


@pytest.mark.parametrize("status", [*LIVE_STATUSES, *ENDED_STATUSES])
def test_message_of_the_customer_reopens_an_ended_or_paused_session(alice, agent, session, status):
    ChatSession.update(status=status).execute()
    sent(agent, session)
    assert alice.get(f"/chats/{session.id}").data["status"] == status
    sent(alice, session)
    assert alice.get(f"/chats/{session.id}").data["status"] == (
        "open" if status in (*ENDED_STATUSES, *PAUSED_STATUSES) else status
    )


def test_archived_session_refuses_messages(alice, agent, session):
    alice.delete(f"/chats/{session.id}")
    with nothing_changes():
        for client in (alice, agent):
            assert send(client, session).error == (400, "session_archived")


def test_identifiers_increase_after_a_message_from_the_future(host_clock, alice, session, say):
    ahead = clock.ulid(host_clock.now + 30 * clock.DAY)
    far = Message.create(id=ahead, chat_session_id=session.id, content=as_stored({"text": "to come"}))
    recompute([session.id])
    first = sent(alice, session)
    delete(alice, first)
    second = sent(alice, session)
    host_clock.back(hours=1)
    third = sent(alice, session)
    assert far.id < first.id < second.id < third.id
    assert first.created_at <= second.created_at <= third.created_at


def test_message_from_the_future_affects_only_its_session(host_clock, alice, session, shop):
    other = ChatSession.create(app_id=shop.id, user_id=alice.user.id)
    far = clock.ulid(host_clock.now + 3650 * clock.DAY)
    Message.create(id=far, chat_session_id=session.id)
    recompute([session.id])
    assert sent(alice, session).id > far
    assert clock.ulid_time(sent(alice, other).id) == host_clock.now


def test_concurrent_messages_have_increasing_identifiers_and_correct_totals(alice, agent, session):
    people = (alice, agent)
    replies = at_once(8, lambda index: [send(people[index % 2], session, f"{index}") for _ in range(4)])
    ids = [reply.data["id"] for part in replies for reply in part]
    assert len(set(ids)) == 32
    assert all(part == sorted(part) for part in ([reply.data["id"] for reply in thread] for thread in replies))
    assert (total(alice, session), total(agent, session)) == (32, 32)
    assert len(texts(alice, session, limit=200)) == 32
    assert Notification.select().where(Notification.user_id == alice.user.id).count() == 16


# Sending again


def test_repeated_client_message_id_sends_once(alice, agent, session):
    sent(agent, session)
    first = send(alice, session, client_message_id="é1")
    with nothing_changes():
        second = send(alice, session, client_message_id="é1")
    assert (first.status, first.raw) == (second.status, second.raw)
    assert "client_message_id" not in first.data


def test_client_message_id_is_per_sender_and_session(alice, agent, session, shop):
    other = ChatSession.create(app_id=shop.id, user_id=alice.user.id)
    messages = [sent(who, where, "x", client_message_id="1") for who in (alice, agent) for where in (session, other)]
    assert len({message.id for message in messages}) == 4


@pytest.mark.parametrize("other", [{"text": "Bye"}, {"is_private": True}, {"reply": True}])
def test_client_message_id_with_another_message_is_400(agent, session, say, other):
    quoted = say()
    if other.pop("reply", False):
        other["reply_to_message_id"] = quoted.id
    sent(agent, session, client_message_id="1")
    with nothing_changes():
        assert send(agent, session, client_message_id="1", **other).error == (400, "client_message_id_reused")


def test_client_message_id_has_1_to_255_characters(alice, session):
    assert send(alice, session, client_message_id="é" * 255).status == 201
    with nothing_changes():
        for wrong in ("", "x" * 256, 7):
            assert send(alice, session, client_message_id=wrong).error == (400, "invalid_body")
    assert send(alice, session, client_message_id=None).status == 201


def test_concurrent_client_message_id_sends_one_message(alice, agent, session):
    sent(agent, session)
    replies = at_once(8, lambda _: send(alice, session, client_message_id="1"))
    assert {reply.status for reply in replies} == {201}
    assert len({reply.data["id"] for reply in replies}) == 1
    assert total(alice, session) == 2
    assert len(chat_notifications(agent)) == 1


def test_repetition_after_an_edit_returns_the_edited_message(alice, session):
    message = sent(alice, session, "one", client_message_id="1")
    edit(alice, message, "two"), edit(alice, message, "three")
    assert text_of(send(alice, session, "one", client_message_id="1").data) == "three"
    assert send(alice, session, "three", client_message_id="1").error == (400, "client_message_id_reused")


def test_repetition_in_an_archived_session_returns_the_message(alice, session):
    first = send(alice, session, client_message_id="1")
    alice.delete(f"/chats/{session.id}")
    assert send(alice, session, client_message_id="1").data == first.data


@pytest.mark.parametrize("how", ["delete", "purge", "import"])
@pytest.mark.parametrize("by", ["client_message_id", "key"])
def test_repetition_after_removal_is_404(alice, session, tmp_path, how, by):
    def repeat():
        return send(alice, session, SECRET, **{by: "k"})

    message = Message.get_by_id(repeat().data["id"])
    assert repeat().data["id"] == message.id
    if how == "delete":
        delete(alice, message)
    elif how == "purge":
        Message.purge(Message.id == message.id)
    else:
        import_deleted(message, tmp_path)
    if by == "client_message_id" and how == "import":  # an import replaces the whole row
        return
    with nothing_changes():
        reply = repeat()
    assert reply.error == (404, "message_not_found")
    assert SECRET not in reply.raw.decode()


def import_deleted(message, folder):
    """Import a message again, as deleted."""
    row = {"id": message.id, "chat_session_id": message.chat_session_id, "text": SECRET, "sender_id": message.sender_id}
    file = folder / "deleted.jsonl"
    file.write_text(json.dumps({"message": {**row, "deleted_at": "2026-11-20T10:00:00Z"}}))
    assert not import_export.import_files([file])


def test_idempotency_key_stores_no_text(alice, session):
    first, second = (send(alice, session, SECRET, key="k") for _ in range(2))
    assert first.raw == second.raw
    assert second.headers["Idempotency-Replayed"] == "true"
    assert send(alice, session, "other", key="k").error == (400, "idempotency_key_reused")
    (stored,) = IdempotencyKey.select()
    assert (stored.body, stored.message_id) == ("", first.data["id"])


def test_repeated_response_does_not_quote_a_deleted_message(alice, agent, session):
    quoted = sent(agent, session, SECRET)
    keyed = {"reply_to_message_id": quoted.id, "key": "k"}
    assert snapshot(sent(alice, session, **keyed))["text"] == SECRET
    delete(alice, quoted)
    again = send(alice, session, **keyed)
    assert (again.status, again.data["reply_snapshot"]) == (201, [])


# Replying


def test_reply_quotes_the_message(alice, agent, session):
    question = sent(alice, session, "x" * 300)
    reply = sent(agent, session, "yes", reply_to_message_id=question.id.lower())
    assert reply.reply_to_message_id == question.id
    assert snapshot(reply) == {"sender_type": "user", "content_type": "text", "text": "x" * 200}


def test_reply_requires_a_visible_message_of_the_session(alice, agent, session, shop, say):
    foreign = say("elsewhere", ChatSession.create(app_id=shop.id, user_id=alice.user.id))
    note, gone = sent(agent, session, is_private=True), say("gone")
    delete(alice, gone)
    with nothing_changes():
        for id in (foreign.id, note.id, gone.id, NO_MESSAGE):
            assert send(alice, session, reply_to_message_id=id).error == (404, "message_not_found")
        assert send(agent, session, reply_to_message_id=gone.id).error == (404, "message_not_found")
        assert send(alice, session, reply_to_message_id="x").error == (400, "invalid_body")


def test_reply_to_a_note_must_be_a_note(agent, session):
    note = sent(agent, session, SECRET, is_private=True)
    with nothing_changes():
        reply = agent.post(f"/chats/{session.id}/messages", {"content": "Hi", "reply_to_message_id": note.id})
    assert reply.error == (400, "invalid_body")
    assert snapshot(sent(agent, session, reply_to_message_id=note.id, is_private=True))["text"] == SECRET


def test_reply_to_a_purged_message_has_no_quotation(alice, session, say):
    purged = say(SECRET)
    Message.purge(Message.id == purged.id)
    assert snapshot(sent(alice, session, reply_to_message_id=purged.id)) is None


# Notifying the others


def test_other_participants_are_notified(alice, agent, colleague, admin, bob, session):
    sent(alice, session, "first")
    sent(agent, session, "second")
    assert chat_notifications(alice) == [("Agnes", "second")]
    sent(colleague, session, "third")
    sent(alice, session, "fourth")
    assert chat_notifications(alice) == [("Cleo of the shop", "third"), ("Agnes", "second")]
    assert chat_notifications(agent) == [("Alice", "fourth"), ("Cleo of the shop", "third")]
    assert chat_notifications(colleague) == [("Alice", "fourth")]
    assert chat_notifications(admin) == chat_notifications(bob) == []


def test_notification_has_session_conversation_and_message(alice, agent, session):
    message = sent(agent, session)
    (row,) = alice.get("/notifications").data
    assert (row["session_id"], row["conversation_id"]) == (session.id, session.conversation_id)
    assert json.loads(bytes(row["payload"])) == {"message_id": message.id, "session_id": session.id}


def test_notes_notify_staff_who_wrote_before_and_not_the_customer(alice, agent, colleague, session):
    sent(colleague, session)
    Notification.delete().execute()
    sent(agent, session, SECRET, is_private=True)
    assert (chat_notifications(colleague), chat_notifications(alice)) == ([("Agnes", SECRET)], [])


def test_former_staff_are_not_notified(alice, agent, colleague, other_shop, session):
    for client in (agent, colleague):
        sent(client, session)
    User.update(app_id=other_shop.id).where(User.id == agent.user.id).execute()
    User.update(is_disabled=True).where(User.id == colleague.user.id).execute()
    before = Notification.select().count()
    sent(alice, session)
    assert Notification.select().count() == before


def test_sender_without_name_is_shown_as_the_app(alice, agent, session, shop):
    User.update(first_name="").execute()
    sent(agent, session)
    sent(alice, session)
    assert chat_notifications(alice)[0][0] == chat_notifications(agent)[0][0] == "Shop"
    User.update(first_name="x" * 100, last_name="y" * 100).execute()
    sent(agent, session)
    assert chat_notifications(alice)[0][0] == "x" * 100 + " " + "y" * 99


def test_imported_senders_are_notified(alice, agent, session, say):
    say("before", sender_id=agent.user.id, sender_type="agent")
    say("from outside", sender_id="crm-7")
    sent(alice, session, "Hello")
    assert chat_notifications(agent) == [("Alice", "Hello")]


def test_recipients_are_found_with_one_index_range_each(alice, agent, session):
    fill(session, 30, sender_id=agent.user.id), fill(session, 30, sender_id=alice.user.id)
    with statements() as seen:
        sent(alice, session)
    (statement,) = [(sql, values) for sql, values in seen if "MIN(" in sql.upper()]
    plan = query_plan(*statement)
    assert (set(plan.ranges), plan.scans, plan.sorts) == ({"message_sender"}, [], False), plan


def test_message_is_not_sent_if_the_notification_fails(alice, agent, session, monkeypatch):
    sent(agent, session)

    def fail(*_, **__):
        raise RuntimeError("full")

    monkeypatch.setattr(Notification, "notify", fail)
    alice.may_crash = True
    with nothing_changes():
        assert send(alice, session).status == 500


# Editing


def test_edit_keeps_the_original_content(host_clock, alice, session):
    message = sent(alice, session, "one")
    host_clock.forward(minutes=1)
    reply = edit(alice, message, "two")
    assert (reply.status, text_of(reply.data), reply.data["is_edited"]) == (200, "two", True)
    assert reply.data["edited_at"] == reply.data["updated_at"] == "2026-11-20T10:01:00.000Z"
    assert reply.data["created_at"] == message.created_at
    assert bytes(reply.data["original_content"]) == b'{"text":"one"}'
    assert messages_of(alice, session) == [reply.data]
    host_clock.forward(minutes=1)
    again = edit(alice, message, "three").data
    assert bytes(again["original_content"]) == b'{"text":"one"}'
    host_clock.forward(minutes=1)
    with nothing_changes():
        assert edit(alice, message, "three").data == again


def test_only_the_sender_can_edit_a_message(alice, agent, admin, bob, session, say):
    own, agents, imported = sent(alice, session), sent(agent, session), say()
    with nothing_changes():
        for client, message in ((agent, own), (admin, own), (alice, agents), (alice, imported), (bob, own)):
            assert edit(client, message, "other").error == (403, "forbidden")
        assert alice.patch(f"/chats/{session.id}/messages/{NO_MESSAGE}", {}).error == (404, "message_not_found")
        assert alice.patch(f"/chats/{session.id}/messages/{own.id}", {}).error == (400, "invalid_body")


@pytest.mark.parametrize("how", ["delete", "purge"])
def test_removed_message_cannot_be_edited(alice, session, how):
    message = sent(alice, session, SECRET)
    delete(alice, message) if how == "delete" else Message.purge(Message.id == message.id)
    with nothing_changes():
        reply = edit(alice, message, "other")
    assert reply.error == (400, "message_gone")
    assert SECRET not in reply.raw.decode()


def test_edit_updates_quotations_notifications_and_search(alice, agent, session):
    message = sent(agent, session, SECRET)
    reply = sent(alice, session, reply_to_message_id=message.id)
    Message.update(translations=as_stored({"de": "x"})).where(Message.id == message.id).execute()
    edit(agent, message, "never mind")
    assert snapshot(reply)["text"] == "never mind"
    assert chat_notifications(alice) == [("Agnes", "never mind")]
    assert last(alice, session) == "Hello"
    assert now(message).translations == "[]"
    assert alice.get("/chats/search?q=harbour").data == []
    assert len(alice.get("/chats/search?q=NEVER").data) == 1


def test_edit_does_not_fill_an_empty_quotation(alice, agent, session):
    message = sent(agent, session)
    reply = sent(agent, session, reply_to_message_id=message.id)
    Message.update(reply_snapshot="[]").where(Message.id == reply.id).execute()  # as an import may leave it
    edit(agent, message, "other")
    assert snapshot(reply) is None


def test_edit_notifies_no_one_and_keeps_the_order(alice, agent, session):
    message = sent(agent, session)
    read(alice, session)
    before = ChatSession.get_by_id(session.id)
    edit(agent, message, "other")
    assert (unread(alice, session), len(chat_notifications(alice))) == (0, 1)
    after = ChatSession.get_by_id(session.id)
    assert after.__data__ == before.__data__ | {
        "revision": after.revision,
        "public_revision": after.revision,
    }  # clients that show the text must update it


def test_concurrent_edits_keep_the_original_content(alice, session):
    message = sent(alice, session, "one")
    replies = at_once(6, lambda index: edit(alice, message, f"other {index}"))
    assert {reply.status for reply in replies} == {200}
    assert bytes(json.loads(now(message).original_content)) == b'{"text":"one"}'


def test_concurrent_edit_and_pin_are_both_stored(alice, session):
    message = sent(alice, session, "one")
    at_once(2, lambda index: pin(alice, message) if index else edit(alice, message, "two"))
    assert now(message).pinned_at
    assert now(message).plain_text == "two"


# Reading


def test_messages_of_others_are_unread_until_they_are_read(alice, agent, session):
    for number in range(3):
        sent(agent, session, str(number))
    assert (unread(alice, session), unread(agent, session)) == (3, 0)
    reply = read(alice, session)
    assert (reply.status, reply.data["unread_count"]) == (200, 0)
    assert unread(alice, session) == 0
    sent(agent, session)
    assert unread(alice, session) == 1


def test_read_position_never_moves_backwards(alice, agent, session):
    first, second, third = (sent(agent, session) for _ in range(3))
    assert read(alice, session, second).data["unread_count"] == 1
    assert read(alice, session, first).data["unread_count"] == 1
    assert read(alice, session, third).data["unread_count"] == 0
    with nothing_changes():
        assert read(alice, session, first).data["unread_count"] == 0


def test_replying_marks_earlier_messages_as_read(alice, agent, session):
    sent(agent, session)
    sent(alice, session)
    assert (unread(alice, session), unread(agent, session)) == (0, 1)
    assert alice.get("/notifications").meta["unread_count"] == 0


def test_imported_reply_marks_earlier_messages_as_read(alice, session, say):
    say("question", sender_type="bot")
    assert unread(alice, session) == 1
    delete(alice, say("answer", sender_id=alice.user.id))
    assert unread(alice, session) == 0
    say("another", sender_type="bot")
    assert unread(alice, session) == 1


def test_reading_marks_only_notifications_of_read_messages(alice, agent, session, shop):
    other_session = ChatSession.create(app_id=shop.id, user_id=alice.user.id)
    first, _, _ = sent(agent, session), sent(agent, session), sent(agent, other_session)
    Notification.notify(alice.user.id, "chat_status", "t", {}, session_id=session.id, message_id=first.id)
    read(alice, session, first)
    assert alice.get("/notifications").meta["unread_count"] == 3
    read(alice, session)
    assert alice.get("/notifications").meta["unread_count"] == 2


def test_read_position_is_per_user(alice, agent, colleague, session):
    sent(agent, session)
    read(alice, session)
    assert (unread(alice, session), unread(colleague, session)) == (0, 1)


def test_notes_and_deleted_messages_are_not_counted(alice, agent, colleague, session):
    sent(agent, session, is_private=True)
    gone = sent(agent, session)
    sent(agent, session)
    delete(agent, gone)
    assert (unread(alice, session), unread(colleague, session)) == (1, 2)


def test_agent_counts_notes_only_in_sessions_of_its_app(agent, admin, other_agent, session, other_shop):
    own = ChatSession.create(app_id=other_shop.id, user_id=agent.user.id)
    for where in (own, session):
        sent(admin, where, "public")
        sent(admin, where, SECRET, is_private=True)
    assert (unread(agent, own), last(agent, own)) == (1, "public")
    assert (unread(agent, session), last(agent, session)) == (2, SECRET)


def test_unread_count_is_at_most_100(alice, session):
    assert UNREAD_LIMIT == 100
    for number, counted in ((99, 99), (1, 100), (1, 100)):
        fill(session, number)
        assert unread(alice, session) == counted


def test_unread_count_uses_an_index_range(alice, bob, agent, session, other_shop):
    others = [ChatSession.create(app_id=other_shop.id, user_id=bob.user.id) for _ in range(30)]
    for where in (*others, session):
        fill(where, 30)
    fill(session, 300, is_private=True)
    db.database.execute_sql(
        f"REINDEX {'TABLE ' if is_chosen() else ''}message"
    )  # removes dead entries of earlier tests
    db.database.execute_sql("ANALYZE")
    for client in (alice, agent):
        with statements() as seen:
            client.get("/chats")
        ((sql, values),) = [statement for statement in seen if "read_marker" in statement[0]]
        plan = query_plan(sql, values)
        assert plan.ranges.count("message_shown") == 2 and "message_sender" in plan.ranges, (
            plan
        )  # for the unread count and the last message
        assert not [scan for scan in plan.scans if not re.fullmatch("SCAN (unread|read)", scan)], plan


def test_read_position_can_be_a_deleted_message(alice, agent, session):
    first, second = sent(agent, session), sent(agent, session)
    delete(agent, second)
    assert read(alice, session, second).data["unread_count"] == 0
    assert ReadMarker.get().message_id == second.id > first.id


def test_read_position_must_be_a_visible_message_of_the_session(alice, bob, agent, session, say, shop):
    foreign = say("elsewhere", ChatSession.create(app_id=shop.id, user_id=alice.user.id))
    note = sent(agent, session, is_private=True)
    with nothing_changes():
        for id in (NO_MESSAGE, foreign.id, note.id):
            assert alice.put(f"/chats/{session.id}/read", {"message_id": id}).error == (404, "message_not_found")
        assert alice.put(f"/chats/{session.id}/read", {"message_id": "x"}).error == (400, "invalid_body")
        assert read(bob, session).error == (403, "forbidden")


@pytest.mark.parametrize("raw", [b"", b" ", b"{}", b'{"message_id": null}'])
def test_empty_session_can_be_marked_as_read(alice, session, raw):
    with nothing_changes():
        assert alice.put(f"/chats/{session.id}/read", raw=raw).data["unread_count"] == 0


def test_null_body_is_400_and_marks_nothing(alice, session):
    with nothing_changes():
        assert alice.put(f"/chats/{session.id}/read", raw=b"null").error == (400, "invalid_body")


def test_concurrent_read_positions_end_with_the_latest(alice, agent, session):
    messages = [sent(agent, session) for _ in range(8)]
    replies = at_once(8, lambda index: read(alice, session, messages[index]))
    assert {reply.status for reply in replies} == {200}
    assert unread(alice, session) == 0


# Migration and import


def test_imported_messages_are_unread_and_shown(alice, agent, session, tmp_path):
    rows = [{"chat_session_id": session.id, "text": f"line {number}", "sender_id": "crm"} for number in range(3)]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps({"message": row}) for row in rows))
    assert not import_export.import_files([file])
    assert (unread(alice, session), last(alice, session)) == (3, "line 2")


def test_derived_columns_are_never_exported_or_returned(alice, agent, session):
    sent(agent, session, SECRET, client_message_id="mine")
    read(alice, session)
    lines = []
    import_export.export(lines.append)
    for raw in (*lines, send(alice, session).raw, alice.get("/chats").raw, alice.get("/chats/search?q=h").raw):
        for name in ("client_message_id", "plain_text", "search_text", "owner_id", "active_at", "read_marker"):
            assert name.encode() not in raw
    assert not [line for line in lines if b"idempotency_key" in line]


def test_messages_follow_a_change_of_the_session_owner(alice, bob, session, tmp_path):
    sent(alice, session, SECRET)
    row = {"id": session.id, "app_id": session.app_id, "user_id": bob.user.id, "bot_id": session.bot_id}
    file = tmp_path / "session.jsonl"
    file.write_text(json.dumps({"chat_session": {**row, "conversation_id": session.conversation_id}}))
    assert not import_export.import_files([file])
    found = [len(client.get("/chats/search?q=harbour").data) for client in (alice, bob)]
    assert found == [0, 1]


def test_purge_leaves_no_text_in_any_column(alice, agent, session):
    message = sent(agent, session, SECRET, key="k")
    sent(alice, session, "yes", reply_to_message_id=message.id, key="k")
    edit(agent, message, SECRET.upper())
    Message.purge(Message.chat_session_id == session.id)
    for table in (Message, Notification, IdempotencyKey):
        for row in table.select().dicts():
            text = json.dumps(row).casefold()
            assert "harbour" not in text
            assert ",".join(map(str, b"harbour")) not in text.replace(" ", "")
