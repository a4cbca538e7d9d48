"""Chat sessions and messages: access, creation, status, pages."""

from types import SimpleNamespace

import pytest

from service import db
from service.http import pagination
from service.models import ChatSession, Message, Notification
from service.models.chats import STATUSES
from service.models.messages import PIN_LIMIT
from service.models.recompute import recompute
from service.routes.messages import MessagesQuery
from service.signing import sign
from tests.support.chats import (
    NO_MESSAGE,
    NO_SESSION,
    OPERATIONS,
    as_stored,
    delete,
    fill,
    now,
    pin,
    pinned,
    quote,
    texts,
    total,
)
from tests.support.client import Client, Reply, text_of, walk
from tests.support.observe import at_once, database_steps, nothing_changes, query_plan, statements, stored

ON_MESSAGES = {name: operation for name, operation in OPERATIONS.items() if operation.names_message}

every_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
every_message_operation = pytest.mark.parametrize("operation", ON_MESSAGES.values(), ids=ON_MESSAGES)
both_directions = pytest.mark.parametrize("direction", ["forward", "backward"])


@pytest.fixture
def other_session(alice, shop, bot):
    """Another chat session of Alice's."""
    return ChatSession.create(app_id=shop.id, user_id=alice.user.id, bot_id=bot.id)


@pytest.fixture
def note(say):
    """Write a note between staff into Alice's session."""
    return lambda text="for colleagues", **columns: say(text, is_private=True, sender_type="agent", **columns)


def messages(client: Client, session: ChatSession, query: str = "") -> Reply:
    return client.get(f"/chats/{session.id}/messages?{query}")


def unpin(client: Client, message: Message) -> Reply:
    return OPERATIONS["unpin"].ask(client, message.chat_session_id, message.id)


def status_of(session: ChatSession) -> str:
    return str(ChatSession.get_by_id(session.id).status)


# Access


@every_operation
@pytest.mark.parametrize("who", ["alice", "agent", "admin"])
def test_the_owner_and_the_staff_have_access(operation, who, request, session, say):
    message = say("from the bot", sender_type="bot")
    client = request.getfixturevalue(who)
    assert operation.ask(client, session.id, message.id).status == 200


@every_operation
@pytest.mark.parametrize("who", ["bob", "other_agent"])
def test_other_customers_and_staff_of_other_shops_have_no_access(operation, who, request, session, say):
    message, client = say(), request.getfixturevalue(who)
    with nothing_changes():
        refused = operation.ask(client, session.id, message.id)
        assert refused.error == operation.refusal("forbidden")
        unknown = operation.ask(client, NO_SESSION, message.id)
        assert unknown.error == operation.refusal("session_not_found")
    if operation.conceals:
        assert refused.json == unknown.json


@every_operation
def test_without_credentials_it_is_401(operation, anyone, session, say):
    message = say()
    with nothing_changes():
        for where in (session.id, NO_SESSION, "nonsense"):
            assert operation.ask(anyone, where, message.id).error == (401, "missing_credentials")


@every_operation
@pytest.mark.parametrize("who", ["alice", "agent", "admin"])
def test_an_unknown_session_is_not_found(operation, who, request, session, say):
    message, client = say(), request.getfixturevalue(who)
    with nothing_changes():
        assert operation.ask(client, NO_SESSION, message.id).error == operation.refusal("session_not_found")


@every_message_operation
@pytest.mark.parametrize("who", ["alice", "agent", "admin"])
def test_unknown_messages_and_those_of_another_session_are_not_found(
    operation, who, request, session, other_session, say
):
    say()
    elsewhere, client = say("elsewhere", other_session), request.getfixturevalue(who)
    with nothing_changes():
        unknown = operation.ask(client, session.id, NO_MESSAGE)
        foreign = operation.ask(client, session.id, elsewhere.id)
    assert unknown.error == foreign.error == operation.refusal("message_not_found")
    assert unknown.json == foreign.json


@every_message_operation
def test_a_message_is_not_found_through_another_session(operation, bob, session, shop, say):
    message = say()
    own = ChatSession.create(app_id=shop.id, user_id=bob.user.id)
    with nothing_changes():
        assert operation.ask(bob, own.id, message.id).error == operation.refusal("message_not_found")


@every_operation
def test_malformed_identifiers_are_400_before_anything_else(operation, alice, bob, session, say):
    message = say()
    unhyphenated = session.id.replace("-", "")
    malformed = ["nonsense", f"{{{session.id}}}", f"urn:uuid:{session.id}", unhyphenated, f"{session.id}0", message.id]
    with nothing_changes():
        for client in (alice, bob):
            for identifier in malformed:
                assert operation.ask(client, identifier, message.id).error == (400, "invalid_id")
            if operation.names_message:
                for identifier in ("nonsense", session.id, message.id[:-1], f"{message.id}0", f"8{message.id[1:]}"):
                    assert operation.ask(client, session.id, identifier).error == (400, "invalid_id")


@every_operation
def test_identifiers_can_have_any_case(operation, alice, session, say):
    assert operation.ask(alice, session.id.upper(), say().id.lower()).status == 200


@every_operation
def test_every_listed_status_is_produced_and_no_other(operation, alice, bob, anyone, session, say):
    message = say()
    requests = [(anyone, session.id), (bob, session.id), (alice, NO_SESSION), (alice, "nonsense"), (alice, session.id)]
    assert {operation.ask(client, where, message.id).status for client, where in requests} == operation.statuses


@every_operation
def test_an_agent_who_becomes_a_customer_loses_access_immediately(operation, agent, session, say):
    message = say()
    agent.user.role = "user"
    agent.user.save()
    with nothing_changes():
        assert operation.ask(agent, session.id, message.id).error == operation.refusal("forbidden")


def test_customers_cannot_read_sessions_of_others(bob, session, say):
    say("secret")
    for path in ("messages", "pinned-messages"):
        reply = bob.get(f"/chats/{session.id}/{path}")
        assert reply.error == (400, "session_not_found")
        assert "secret" not in str(reply.raw)


# Notes between staff


def test_private_notes_are_not_in_the_customers_list_and_total(alice, agent, admin, session, say, note):
    for number in range(3):
        say(f"line {number}")
        note(f"note {number}")
    lines, notes = [f"line {number}" for number in range(3)], [f"note {number}" for number in range(3)]
    for direction in ("forward", "backward"):
        for limit in (1, 2, 50):
            seen = texts(alice, session, direction=direction, limit=limit)
            assert seen == (lines if direction == "forward" else lines[::-1])
    assert total(alice, session) == 3
    for staff in (agent, admin):
        assert sorted(texts(staff, session, limit=2)) == lines + notes
        assert total(staff, session) == 6


def test_private_notes_are_not_in_the_customers_pins(alice, agent, session, say, note):
    line, hidden = say("line"), note("note")
    for message in (line, hidden):
        assert pin(agent, message).data == {"pinned": True}
    assert pinned(alice, session) == ["line"]
    assert pinned(agent, session) == ["note", "line"]


@every_message_operation
def test_a_private_note_is_not_found_for_a_customer(operation, alice, session, note):
    hidden = note()
    with nothing_changes():
        refused = operation.ask(alice, session.id, hidden.id)
        assert refused.json == operation.ask(alice, session.id, NO_MESSAGE).json
        assert refused.error == operation.refusal("message_not_found")


@every_message_operation
def test_staff_can_pin_and_delete_private_notes(operation, agent, session, note):
    assert operation.ask(agent, session.id, note().id).status == 200


def test_an_agent_is_a_customer_in_a_session_with_another_shop(agent, other_shop, other_agent, say):
    own = ChatSession.create(app_id=other_shop.id, user_id=agent.user.id)
    say("line", own)
    hidden = say("note", own, is_private=True)
    assert texts(agent, own) == ["line"]
    assert total(agent, own) == 1
    assert texts(other_agent, own) == ["line", "note"]
    with nothing_changes():
        assert delete(agent, hidden).error == (404, "message_not_found")


def test_no_public_reply_quotes_a_private_note(alice, agent, session, say, note):
    hidden = note("between us")
    say("as my colleague found", **quote(hidden))
    (answer,) = walk(alice, f"/chats/{session.id}/messages")
    assert answer["reply_snapshot"] == []
    assert "between us" not in str(bytes(answer["content"]))


def test_a_private_reply_can_quote_a_private_note(agent, session, note):
    note("agreed", **quote(note("between us")))
    assert bytes(walk(agent, f"/chats/{session.id}/messages")[1]["reply_snapshot"]) == b'{"text":"between us"}'


def test_customers_get_no_notification_of_a_private_note(alice, agent, session, note):
    hidden = note("between us")
    for client in (alice, agent):
        payload = as_stored({"text": "between us", "message_id": hidden.id})
        Notification.create(user_id=client.user.id, body="between us", payload=payload, message_id=hidden.id)
    recompute([session.id])
    assert Notification.get(Notification.user_id == agent.user.id).body == "between us"
    notification = Notification.get_or_none(Notification.user_id == alice.user.id)
    assert notification is None or (notification.body, notification.payload) == ("", "[]")


def test_deleting_a_private_note_lowers_the_total_of_staff_only(alice, agent, session, say, note):
    say()
    hidden = note()
    assert delete(agent, hidden).data == {"deleted": True}
    assert (total(alice, session), total(agent, session)) == (1, 1)


# The list


def test_messages_are_listed_oldest_first(alice, session, say):
    for number in range(5):
        say(f"line {number}")
    assert [text_of(message) for message in walk(alice, f"/chats/{session.id}/messages", limit=2)] == [
        "line 0",
        "line 1",
        "line 2",
        "line 3",
        "line 4",
    ]


def test_a_message_has_every_specified_member(alice, session, say):
    message = say("Grüße 🙂")
    (sent,) = messages(alice, session).data
    unset = [
        *("identity_id", "sender_id", "reply_to_message_id", "action_id", "action_source_id", "edited_at"),
        *("deleted_at", "gdpr_purged_at"),
    ]
    empty = ["original_content", "translations", "reply_snapshot", "action_payload"]
    off = ["is_edited", "is_pinned", "is_private", "is_read_once", "gdpr_purged"]
    expected = dict.fromkeys(unset) | dict.fromkeys(empty, []) | dict.fromkeys(off, False)
    assert sent == expected | {
        "id": message.id,
        "chat_session_id": session.id,
        "conversation_id": session.conversation_id,
        "sender_type": "user",
        "channel": "web",
        "status": "sent",
        "content_type": "text",
        "gdpr_original_content_type": "",
        "content": list('{"text":"Grüße 🙂"}'.encode()),
        "created_at": message.created_at,
        "updated_at": message.updated_at,
    }


def test_an_empty_session_is_an_empty_page(alice, session):
    reply = messages(alice, session)
    assert reply.data == []
    assert reply.meta == {"next_cursor": "", "page": 1, "per_page": 50, "total": 0}


@both_directions
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
def test_a_walk_returns_every_message_once_in_either_direction(alice, session, say, direction, limit):
    said = [say(f"line {number}").id for number in range(7)]
    met = [message["id"] for message in walk(alice, f"/chats/{session.id}/messages", direction=direction, limit=limit)]
    assert met == (said if direction == "forward" else said[::-1])


def test_forward_is_the_default_direction(alice, session, say):
    say("old"), say("new")
    assert texts(alice, session) == ["old", "new"]


def test_meta_has_page_size_and_total(alice, session, say):
    fill(session, 5)
    cursor, metas = "", []
    for _ in range(3):
        reply = messages(alice, session, f"limit=2&cursor={cursor}" if cursor else "limit=2")
        assert set(reply.meta) == {"next_cursor", "page", "per_page", "total"}
        assert set(reply.json) == {"success", "data", "meta"}
        metas.append((reply.meta["page"], reply.meta["per_page"], reply.meta["total"], len(reply.data)))
        cursor = reply.meta["next_cursor"]
    assert metas == [(1, 2, 5, 2), (2, 2, 5, 2), (3, 2, 5, 1)]
    assert cursor == ""


def test_a_full_last_page_is_the_last_one(alice, session):
    fill(session, 4)
    assert messages(alice, session, "limit=4").meta["next_cursor"] == ""


@pytest.mark.parametrize(
    ("query", "used"), [("", 50), ("limit=200", 200), ("limit=201", 200), ("limit=999999999999999999999", 200)]
)
def test_a_page_has_50_messages_by_default_and_at_most_200(alice, session, query, used):
    fill(session, 203)
    reply = messages(alice, session, query)
    assert (len(reply.data), reply.meta["per_page"], reply.meta["total"]) == (used, used, 203)


@pytest.mark.parametrize("limit", ["0", "-1", "-99999999999999999999"])
def test_a_page_has_at_least_one_message(alice, session, limit):
    fill(session, 3)
    reply = messages(alice, session, f"limit={limit}")
    assert (len(reply.data), reply.meta["per_page"]) == (1, 1)


@pytest.mark.parametrize(
    "query", ["limit=ten", "limit=", "limit=1.5", "limit=1&limit=2", "direction=sideways", "direction=", "limit=%FF"]
)
def test_malformed_parameters_are_400_and_named(alice, session, say, query):
    say()
    with nothing_changes():
        reply = messages(alice, session, query)
    assert reply.error == (400, "invalid_parameter")
    assert reply.message.startswith(query.partition("=")[0])


def test_unknown_parameters_are_ignored(alice, session, say):
    say("line")
    assert messages(alice, session, "colour=green&limit=1").meta["per_page"] == 1


# Cursors


def test_a_cursor_works_in_both_directions_and_is_exclusive(alice, session):
    said = fill(session, 6)
    cursor = messages(alice, session, "limit=3").meta["next_cursor"]  # the position of the third message
    ahead = messages(alice, session, f"cursor={cursor}&direction=forward").data
    back = messages(alice, session, f"cursor={cursor}&direction=backward").data
    assert [message["id"] for message in ahead] == said[3:]
    assert [message["id"] for message in back] == said[1::-1]
    cursor = messages(alice, session, "limit=2&direction=backward").meta["next_cursor"]  # of the fifth one
    assert [message["id"] for message in messages(alice, session, f"cursor={cursor}").data] == said[5:]


def test_the_page_size_can_change_during_a_walk(alice, session):
    said = fill(session, 6)
    cursor = messages(alice, session, "limit=1").meta["next_cursor"]
    assert [message["id"] for message in messages(alice, session, f"cursor={cursor}&limit=99").data] == said[1:]


@pytest.mark.parametrize("spell", [str.upper, str.lower])
def test_the_ulid_of_a_message_is_a_cursor_in_any_case_and_exclusive(alice, session, spell):
    said = fill(session, 5)
    ahead = messages(alice, session, f"cursor={spell(said[2])}").data
    back = messages(alice, session, f"cursor={spell(said[2])}&direction=backward").data
    assert [message["id"] for message in ahead] == said[3:]
    assert [message["id"] for message in back] == said[1::-1]


def test_the_ulid_of_no_message_is_a_position_in_time(alice, session):
    said = fill(session, 2)
    assert messages(alice, session, f"cursor={NO_MESSAGE}").meta["total"] == 2
    assert [message["id"] for message in messages(alice, session, f"cursor={NO_MESSAGE}").data] == said
    assert messages(alice, session, f"cursor={NO_MESSAGE}&direction=backward").data == []
    assert messages(alice, session, "cursor=7ZZZZZZZZZZZZZZZZZZZZZZZZZ").data == []


def test_a_cursor_remains_valid_when_its_message_is_deleted(alice, session):
    said = fill(session, 4)
    cursor = messages(alice, session, "limit=2").meta["next_cursor"]
    delete(alice, Message.get_by_id(said[1]))
    assert [message["id"] for message in messages(alice, session, f"cursor={cursor}").data] == said[2:]


def test_a_cursor_is_bound_to_session_caller_and_operation(alice, agent, admin, session, other_session):
    fill(session, 3), fill(other_session, 3)
    position = {"page": 2, "key": (NO_MESSAGE,)}
    window = MessagesQuery()
    events = pagination.make(SimpleNamespace(name="list_events"), [alice.user.id, session.id], window, **position)
    own = pagination.make(SimpleNamespace(name="list_messages"), [alice.user.id, session.id], window, **position)
    assert len(messages(alice, session, f"cursor={own}").data) == 3
    foreign = [
        events,
        messages(alice, other_session, "limit=1").meta["next_cursor"],
        messages(agent, session, "limit=1").meta["next_cursor"],
        messages(admin, session, "limit=1").meta["next_cursor"],
        alice.token.removeprefix("cxa_"),
        sign("refresh", [alice.user.id, 1, 2]),
    ]
    with nothing_changes():
        for cursor in foreign:
            assert messages(alice, session, f"cursor={cursor}").error == (400, "invalid_cursor")


def test_altered_cursors_are_400(alice, session):
    fill(session, 3)
    cursor = messages(alice, session, "limit=1").meta["next_cursor"]
    altered = [
        f"{cursor[:place]}{other}{cursor[place + 1 :]}"
        for place in range(len(cursor))
        for other in "AB."
        if cursor[place] != other
    ]
    # The last character of a base64 text has bits that decoders overlook, and some overlook whole characters.
    altered += [cursor[:-1] + other for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"]
    altered += [cursor + more for more in ("A", "=", "!", "%20", "%00", ".", "%FF")]
    altered += [
        cursor[:-1],
        cursor[1:],
        cursor.upper(),
        cursor.replace(".", ""),
        f"!{cursor}",
        cursor.replace(".", ".!"),
    ]
    altered += ["x", "0", "null", "None", "I" * 26, f"{NO_MESSAGE}0", NO_MESSAGE[:-1], "é" * 26]
    with nothing_changes():
        for text in set(altered) - {cursor}:
            reply = messages(alice, session, f"cursor={text}")
            assert reply.error == (400, "invalid_cursor"), text


def test_a_cursor_is_valid_for_the_session_in_another_case(alice, session):
    said = fill(session, 3)
    cursor = alice.get(f"/chats/{session.id.upper()}/messages?limit=1").meta["next_cursor"]
    assert [message["id"] for message in messages(alice, session, f"cursor={cursor}").data] == said[1:]


def test_a_repeated_cursor_is_400(alice, session):
    said = fill(session, 3)
    assert messages(alice, session, f"cursor={said[0]}&cursor={said[0]}").status == 400


def test_a_cursor_survives_a_restart(alice, session, settings):
    import app

    said = fill(session, 3)
    cursor = messages(alice, session, "limit=1").meta["next_cursor"]
    db.close_database()
    alice.application = app.build(settings)
    assert [message["id"] for message in messages(alice, session, f"cursor={cursor}").data] == said[1:]


@both_directions
def test_messages_that_arrive_during_a_walk_are_neither_skipped_nor_repeated(alice, session, say, direction):
    said = [say().id for _ in range(5)]
    met, cursor = [], ""
    while True:
        query = f"limit=2&direction={direction}"
        reply = messages(alice, session, f"{query}&cursor={cursor}" if cursor else query)
        met += [message["id"] for message in reply.data]
        cursor = reply.meta["next_cursor"]
        if not cursor:
            break
        if len(said) < 10:
            said.append(say().id)
    assert met == (said if direction == "forward" else said[4::-1])


@both_directions
def test_deletions_during_a_walk_skip_no_other_message(alice, session, direction):
    said = fill(session, 6)
    met = said if direction == "forward" else said[::-1]
    first = messages(alice, session, f"limit=2&direction={direction}")
    for identifier in (met[0], met[2]):
        delete(alice, Message.get_by_id(identifier))
    rest = messages(alice, session, f"direction={direction}&cursor={first.meta['next_cursor']}").data
    assert [message["id"] for message in rest] == met[3:]


# What a page costs


@pytest.mark.parametrize("who", ["alice", "agent"])
@both_directions
def test_a_page_uses_its_index_only(who, direction, request, session):
    client, said = request.getfixturevalue(who), fill(session, 20)
    for query in (f"direction={direction}", f"direction={direction}&cursor={said[9]}"):
        with statements() as executed:
            assert messages(client, session, query).status == 200
        reading = [(sql, values) for sql, values in executed if '"message"' in sql]
        assert len(reading) == 1, "a page costs one statement on the messages"
        plan = query_plan(*reading[0])
        assert plan.ranges.count("message_shown") == 1, plan
        assert (plan.scans, plan.sorts) == ([], False), plan


@pytest.mark.sqlite_only
@both_directions
@pytest.mark.parametrize("who", ["alice", "agent"])
@pytest.mark.slow
def test_the_cost_of_a_page_does_not_depend_on_the_length_of_the_session(
    who, direction, request, alice, agent, session, other_session
):
    client = request.getfixturevalue(who)
    for where, number in ((session, 40), (other_session, 1500)):
        fill(where, number), fill(where, number, is_private=True), fill(where, number)

    def cost(where: ChatSession, place: str) -> int:
        return database_steps(lambda: messages(client, where, f"limit=10&direction={direction}{place}"))

    def middle(where: ChatSession) -> str:
        count = Message.select().where(Message.chat_session_id == where.id).count()
        at = Message.select().where(Message.chat_session_id == where.id).order_by(Message.id).offset(count // 6).first()
        return f"&cursor={at.id}"

    cost(session, "")
    assert messages(client, other_session).meta["total"] == (3000 if who == "alice" else 4500)
    assert cost(other_session, "") <= 1.05 * cost(session, "")
    assert cost(other_session, middle(other_session)) <= 1.05 * cost(session, middle(session))


# Deleting messages


def test_a_deleted_message_is_removed_from_list_pins_and_totals(alice, agent, session, say):
    kept, gone = say("kept"), say("gone")
    pin(alice, kept), pin(alice, gone)
    assert delete(alice, gone).data == {"deleted": True}
    for client in (alice, agent):
        assert texts(client, session) == ["kept"]
        assert texts(client, session, direction="backward") == ["kept"]
        assert pinned(client, session) == ["kept"]
        assert total(client, session) == 1


def test_a_deleted_message_keeps_its_content_in_storage(alice, session, say):
    message = say("gone", original_content=as_stored({"text": "first"}), translations=as_stored({"de": "weg"}))
    pin(alice, message)
    before = now(message).__data__
    delete(alice, message)
    after = now(message).__data__
    assert after.pop("deleted_at") and before.pop("deleted_at") is None
    assert after == before
    assert not now(message).gdpr_purged_at


def test_a_second_deletion_returns_the_same_and_keeps_the_timestamp(host_clock, alice, agent, session, say):
    say("kept")
    message = say()
    first = delete(alice, message)
    assert now(message).deleted_at == "2026-11-20T10:00:00.000Z"
    host_clock.forward(minutes=5)
    with nothing_changes():
        for client in (alice, agent):
            second = delete(client, message)
            assert (second.status, second.json) == (first.status, first.json)
    assert total(alice, session) == 1


def test_a_deleted_message_is_removed_from_replies_that_quote_it(alice, session, other_session, say):
    gone, kept = say("gone"), say("kept")
    say("answer", **quote(gone))
    say("elsewhere", other_session, **quote(gone))
    say("another", **quote(kept))
    delete(alice, gone)
    (elsewhere,) = walk(alice, f"/chats/{other_session.id}/messages")
    _, answer, another = walk(alice, f"/chats/{session.id}/messages")
    assert answer["reply_snapshot"] == elsewhere["reply_snapshot"] == []
    assert answer["reply_to_message_id"] == gone.id
    assert text_of(answer) == "answer"
    assert bytes(another["reply_snapshot"]) == b'{"text":"kept"}'


def test_a_deleted_message_is_removed_from_its_notifications(alice, session, say):
    gone, kept = say("gone"), say("kept")
    for message in (gone, kept):
        text = {"text": "secret", "message_id": message.id}
        Notification.create(user_id=alice.user.id, body="secret", payload=as_stored(text), message_id=message.id)
    delete(alice, gone)
    notification, other = (Notification.get(Notification.message_id == message.id) for message in (gone, kept))
    assert (notification.body, notification.payload) == ("", "[]")
    assert other.body == "secret" and other.payload != "[]"


@pytest.mark.parametrize("name", ["pin", "unpin"])
def test_a_deleted_message_can_be_neither_pinned_nor_unpinned(alice, session, say, name):
    never, once = say(), say()
    pin(alice, once)
    delete(alice, never), delete(alice, once)
    with nothing_changes():
        for message in (never, once):
            assert OPERATIONS[name].ask(alice, session.id, message.id).error == (400, "message_not_found")


@pytest.mark.parametrize("sender_type", ["user", "bot", "agent", "system"])
def test_a_customer_can_delete_any_message_of_the_session(alice, session, say, sender_type):
    message = say(sender_type=sender_type)
    assert delete(alice, message).data == {"deleted": True}
    assert total(alice, session) == 0


@pytest.mark.parametrize("sender_type", ["agent", "bot"])
def test_a_message_of_others_that_the_customer_deletes_remains_visible_to_staff(
    host_clock, alice, agent, session, say, sender_type
):
    path = f"/chats/{session.id}"
    by_whom = {"sender_id": agent.user.id} if sender_type == "agent" else {}
    message = say("promised", sender_type=sender_type, **by_whom)
    say("mine", **quote(message), sender_id=alice.user.id)
    pin(alice, message)
    tag = messages(alice, session).headers["ETag"]
    for _ in range(2):
        assert delete(alice, message).data == {"deleted": True}
    assert [text_of(row) for row in walk(alice, f"{path}/messages")] == ["mine"]
    assert messages(alice, session).headers["ETag"] != tag
    assert [total(client, session) for client in (alice, agent)] == [1, 2]
    assert pinned(alice, session) == pinned(agent, session) == []
    assert [row["text"] for row in alice.get(f"{path}/context").data["messages"]] == ["mine"]
    assert [row["text"] for row in agent.get(f"{path}/context").data["messages"]] == ["mine"]
    assert [len(client.get("/chats/search?q=promised").data) for client in (alice, agent)] == [0, 1]
    kept, answer = walk(agent, f"{path}/messages")
    assert (text_of(kept), kept["deleted_at"], kept["is_private"]) == ("promised", "2026-11-20T10:00:00.000Z", False)
    assert (answer["reply_to_message_id"], answer["reply_snapshot"]) == (message.id, [])
    with nothing_changes():
        assert delete(alice, message).data == {"deleted": True}
        assert pin(alice, message).error == unpin(alice, message).error == (400, "message_not_found")
        body = {"content": "Why?", "reply_to_message_id": message.id}
        assert alice.post(f"{path}/messages", body).error == (404, "message_not_found")
        recompute([])
    delete(agent, message)
    assert [text_of(row) for row in walk(agent, f"{path}/messages")] == ["mine"]
    assert [total(client, session) for client in (alice, agent)] == [1, 1]


def test_staff_can_repeat_a_request_whose_message_the_customer_has_deleted(alice, agent, session):
    path, new = f"/chats/{session.id}/messages", {"content": {"text": "promised"}, "client_message_id": "1"}
    sent = agent.post(path, new).data
    delete(alice, Message.get_by_id(sent["id"]))
    again = agent.post(path, new)
    assert (again.status, again.data["id"], bool(again.data["deleted_at"])) == (201, sent["id"], True)
    assert walk(alice, path) == []


def test_stored_totals_are_consistent_after_the_customer_deletes_a_message_of_others(alice, agent, session, say):
    message = say("promised", sender_type="bot")
    say("mine", **quote(message), sender_id=alice.user.id)
    delete(alice, message)
    tables = Message, Notification
    before = [list(table.select().order_by(table.id).tuples()) for table in tables]
    recompute([session.id])
    assert [list(table.select().order_by(table.id).tuples()) for table in tables] == before
    assert [total(client, session) for client in (alice, agent)] == [1, 2]


@pytest.mark.parametrize("own", [{"sender_id": True}, {}], ids=["by its sender", "by its type"])
def test_a_message_of_the_customers_own_is_deleted_for_everyone(alice, agent, session, say, own):
    message = say(sender_type="user", **({"sender_id": alice.user.id} if own else {}))
    delete(alice, message)
    assert now(message).deleted_at and not now(message).hidden_at
    assert [total(client, session) for client in (alice, agent)] == [0, 0]


def test_a_message_that_staff_delete_is_deleted_for_everyone(alice, agent, session, say):
    message = say(sender_type="bot")
    delete(agent, message)
    assert [total(client, session) for client in (alice, agent)] == [0, 0]


def test_concurrent_deletions_are_counted_once(alice, session, say):
    say()
    message = say()
    replies = at_once(8, lambda _: delete(alice, message))
    assert [reply.status for reply in replies] == [200] * 8
    assert total(alice, session) == 1


# Pins


def test_the_newest_pin_comes_first_however_old_the_message_is(alice, agent, session, say):
    first, second, third = say("first"), say("second"), say("third")
    pin(alice, second), pin(agent, third), pin(alice, first)
    for client in (alice, agent):
        assert pinned(client, session) == ["first", "third", "second"]


def test_pins_of_one_millisecond_keep_their_order(host_clock, alice, session, say):
    said = [say(str(number)) for number in range(3)]
    for index in (1, 2, 0):
        pin(alice, said[index])
    assert pinned(alice, session) == ["0", "2", "1"]


def test_pinned_messages_are_marked_in_both_lists(alice, session, say):
    message, _ = say(), say()
    assert pin(alice, message).data == {"pinned": True}
    assert [found["is_pinned"] for found in messages(alice, session).data] == [True, False]
    (found,) = alice.get(f"/chats/{session.id}/pinned-messages").data
    assert found == messages(alice, session).data[0]
    assert "pinned_at" not in found
    assert set(alice.get(f"/chats/{session.id}/pinned-messages").json) == {"success", "data"}


def test_a_second_pin_returns_the_same_and_keeps_its_position(host_clock, alice, session, say):
    first, second = say("first"), say("second")
    answer = pin(alice, first)
    host_clock.forward(minutes=1)
    pin(alice, second)
    host_clock.forward(minutes=1)
    with nothing_changes():
        again = pin(alice, first)
    assert (again.status, again.json) == (answer.status, answer.json)
    assert pinned(alice, session) == ["second", "first"]


def test_a_pin_with_the_latest_time_does_not_prevent_others(alice, session, say):
    say("last", pinned_at="9999-12-31T23:59:59.999Z")
    assert pin(alice, say("later")).data == {"pinned": True}
    assert pinned(alice, session) == ["later", "last"]


def test_an_unpinned_message_is_removed_from_the_pins_only(alice, session, say):
    message = say("line")
    pin(alice, message)
    assert unpin(alice, message).data == {"unpinned": True}
    assert pinned(alice, session) == []
    assert [found["is_pinned"] for found in messages(alice, session).data] == [False]


def test_unpinning_an_unpinned_message_returns_the_same(alice, session, say):
    once, never = say(), say()
    pin(alice, once)
    first = unpin(alice, once)
    with nothing_changes():
        for message in (once, never):
            again = unpin(alice, message)
            assert (again.status, again.json) == (first.status, first.json)


def test_a_message_that_is_pinned_again_is_the_newest_pin(alice, session, say):
    first, second = say("first"), say("second")
    pin(alice, first), pin(alice, second), unpin(alice, first), pin(alice, first)
    assert pinned(alice, session) == ["first", "second"]


def test_the_hundred_and_first_pin_is_400(alice, agent, session, other_session, say):
    said = fill(session, PIN_LIMIT - 1, pinned_at="2026-01-01T00:00:00.000Z")
    last, more = say("last"), say("one more")
    assert PIN_LIMIT == 100
    assert pin(alice, last).status == 200
    with nothing_changes():
        for client in (alice, agent):
            assert pin(client, more).error == (400, "pin_limit_reached")
        assert pin(alice, last).data == {"pinned": True}
    assert len(alice.get(f"/chats/{session.id}/pinned-messages").data) == 100
    assert pin(alice, say("elsewhere", other_session)).status == 200
    delete(alice, Message.get_by_id(said[0]))
    assert pin(alice, more).status == 200
    assert pinned(alice, session)[:2] == ["one more", "last"]


def test_pinned_notes_and_pinned_messages_have_limits_of_their_own(alice, agent, session, say):
    fill(session, PIN_LIMIT - 1, pinned_at="2026-01-01T00:00:00.000Z")
    fill(session, PIN_LIMIT - 1, pinned_at="2026-01-01T00:00:00.000Z", is_private=True)
    note, one_note_more = say("note", is_private=True), say("one note more", is_private=True)
    last, more = say("last"), say("one more")
    assert pin(agent, note).status == 200
    assert pin(agent, one_note_more).error == (400, "pin_limit_reached")
    assert pin(alice, last).status == 200
    for client in (alice, agent):
        assert pin(client, more).error == (400, "pin_limit_reached")
    assert len(pinned(alice, session)) == PIN_LIMIT
    assert len(pinned(agent, session)) == 2 * PIN_LIMIT
    assert pinned(agent, session)[:2] == ["last", "note"]


def test_of_concurrent_pins_for_the_last_place_one_succeeds(alice, session, say):
    fill(session, 99, pinned_at="2026-01-01T00:00:00.000Z")
    said = [say() for _ in range(8)]
    replies = at_once(8, lambda index: pin(alice, said[index]))
    assert sorted(reply.status for reply in replies) == [200] + [400] * 7
    assert len(pinned(alice, session)) == 100


# The status of a session


@pytest.mark.parametrize("source", STATUSES)
def test_every_status_can_follow_every_other(alice, session, source):
    assert len(STATUSES) == 9
    for target in STATUSES:
        ChatSession.update(status=source).execute()
        reply = alice.put(f"/chats/{session.id}/status", {"status": target})
        assert (reply.status, reply.data) == (200, {"status": target})
        assert status_of(session) == target


@pytest.mark.parametrize(
    ("name", "target"), [("archive", "archived"), ("delete chat", "archived"), ("end", "resolved")]
)
@pytest.mark.parametrize("source", STATUSES)
def test_archive_delete_and_end_work_from_every_status(agent, session, say, name, target, source):
    message = say("kept")
    ChatSession.update(status=source).execute()
    with nothing_changes(Message):
        first = OPERATIONS[name].ask(agent, session.id)
    assert first.data == {"status": target}
    assert status_of(session) == target
    with nothing_changes():
        second = OPERATIONS[name].ask(agent, session.id)
    assert (second.status, second.json) == (first.status, first.json)
    assert now(message).deleted_at is None


def test_a_new_session_is_open(session):
    assert status_of(session) == "open"


def test_a_change_of_status_does_not_affect_other_sessions(alice, session, other_session):
    before = stored(ChatSession)["ChatSession"]
    alice.post(f"/chats/{session.id}/end")
    after = stored(ChatSession)["ChatSession"]
    assert len(set(before) & set(after)) == 1
    assert status_of(other_session) == "open"


@pytest.mark.parametrize("word", ["", "Open", "OPEN", " open", "open ", "deleted", "ended\n", "sent"])
def test_other_values_are_no_status(alice, session, word):
    with nothing_changes():
        reply = alice.put(f"/chats/{session.id}/status", {"status": word})
    assert reply.error == (400, "unknown_status")


@pytest.mark.parametrize("status", [None, 1, True, ["open"], {"open": 1}])
def test_a_status_is_a_string(alice, session, status):
    with nothing_changes():
        reply = alice.put(f"/chats/{session.id}/status", {"status": status})
    assert reply.error == (400, "invalid_body")
    assert reply.message.startswith("$.status")


@pytest.mark.parametrize(
    "raw", [b"", b"null", b"[]", b"{}", b'"closed"', b"{", b'{"status": "closed", "status": "open"}', b"\xff"]
)
def test_a_malformed_body_changes_no_status(alice, session, raw):
    with nothing_changes():
        assert alice.put(f"/chats/{session.id}/status", raw=raw).status == 400


def test_permission_is_checked_before_the_body(bob, alice, session):
    with nothing_changes():
        assert bob.put(f"/chats/{session.id}/status", {"status": "nonsense"}).error == (403, "forbidden")
        assert alice.put(f"/chats/{NO_SESSION}/status", raw=b"{").error == (404, "session_not_found")
        assert bob.get(f"/chats/{session.id}/messages?cursor=x").error == (400, "session_not_found")


def test_unknown_members_are_ignored(alice, session):
    assert alice.put(f"/chats/{session.id}/status", {"status": "snoozed", "why": 1}).data == {"status": "snoozed"}


@pytest.mark.parametrize("status", ["resolved", "ended", "closed", "archived"])
def test_ended_and_archived_sessions_remain_readable(alice, agent, session, say, status):
    pin(alice, say("still here"))
    ChatSession.update(status=status).execute()
    for client in (alice, agent):
        assert texts(client, session) == pinned(client, session) == ["still here"]


def test_a_deleted_chat_keeps_its_messages(alice, session, say):
    say("still here")
    assert alice.delete(f"/chats/{session.id}").data == {"status": "archived"}
    assert texts(alice, session) == ["still here"]
