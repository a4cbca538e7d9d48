"""The list of chat sessions: who finds which, in what order, and at what cost."""

import json

import pytest

from service import clock, db, transfer
from service.models import ChatSession, Message
from tests.conftest import walk
from tests.watching import query_plan, statements


def hold(user, app, number=0, **columns):
    """A chat session that began at some second."""
    moment = clock.timestamp(clock.milliseconds("2026-11-20T10:00:00.000Z") + number * 1000)
    return ChatSession.create(user_id=user.id, app_id=app.id, created_at=moment, **columns)


@pytest.fixture
def sessions(alice, bob, shop, other_shop):
    """Two sessions each of Alice and Bob, in two shops."""
    people, shops = (alice.user, bob.user), (shop, other_shop)
    return [hold(people[number // 2], shops[number % 2], number) for number in range(4)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("alice", [1, 0]), ("bob", [3, 2]), ("agent", [2, 0]), ("other_agent", [3, 1]), ("admin", [3, 2, 1, 0])],
)
def test_everybody_finds_what_they_may_read_the_newest_first(request, sessions, name, expected):
    client = request.getfixturevalue(name)
    reply = client.get("/chats")
    assert [row["id"] for row in reply.data] == [sessions[number].id for number in expected]
    assert reply.meta == {"next_cursor": "", "per_page": 50}
    for row in reply.data:
        assert client.get(f"/chats/{row['id']}/messages").status == 200


def test_an_agent_finds_a_session_of_their_own_elsewhere_too(agent, other_shop):
    own = hold(agent.user, other_shop)
    assert [row["id"] for row in agent.get("/chats").data] == [own.id]


def test_an_agent_without_an_app_finds_their_own_only(person, sessions):
    assert person("ann", role="agent").get("/chats").data == []


def test_a_session_has_these_members(alice, session, bot):
    assert alice.get("/chats").data == [
        {
            "id": session.id,
            "app_id": session.app_id,
            "conversation_id": session.conversation_id,
            "user_id": alice.user.id,
            "bot_id": bot.id,
            "status": "open",
            "created_at": session.created_at,
            "unread_count": 0,
            "last_message": None,
        }
    ]


def test_pages_follow_each_other_with_ties(alice, shop):
    made = [hold(alice.user, shop, number // 3).id for number in range(10)]
    for limit in (1, 3, 4, 200):
        found = [row["id"] for row in walk(alice, "/chats", limit=limit)]
        assert sorted(found) == sorted(made)
        assert [row["created_at"] for row in walk(alice, "/chats", limit=limit)] == sorted(
            (ChatSession.get_by_id(id).created_at for id in made), reverse=True
        )


def test_a_status_chooses(alice, shop):
    archived = hold(alice.user, shop, status="archived")
    hold(alice.user, shop)
    assert [row["id"] for row in alice.get("/chats?status=archived").data] == [archived.id]
    assert alice.get("/chats?status=closed").data == []
    assert alice.get("/chats?status=").data == alice.get("/chats").data != []


@pytest.mark.parametrize("query", ["status=gone", "status=OPEN", "limit=x", "cursor=x", "limit=1&limit=2"])
def test_garbage_is_refused(alice, query):
    assert alice.get(f"/chats?{query}").status == 400


def test_a_stranger_finds_nothing(anyone):
    assert anyone.get("/chats").error == (401, "missing_credentials")


@pytest.mark.parametrize("name", ["alice", "agent", "admin"])
def test_a_page_is_a_range_of_an_index(request, name, shop, bob):
    client = request.getfixturevalue(name)
    moments = [hold(client.user, shop, number).created_at for number in range(30)]
    others = {"user_id": bob.user.id, "app_id": shop.id}
    ChatSession.insert_many({**others, "created_at": moment, "active_at": moment} for moment in moments * 30).execute()
    db.database.execute_sql("ANALYZE chat_session")
    cursor = client.get("/chats?limit=10").meta["next_cursor"]
    for query in ("limit=10", f"limit=10&cursor={cursor}"):
        with statements() as seen:
            assert len(client.get(f"/chats?{query}").data) == 10
        pages = [query_plan(sql, values) for sql, values in seen if sql.count("active_at") >= 2]
        assert len(pages) == (2 if name == "agent" else 1)
        for plan in pages:
            assert not plan.sorts, plan
            assert (plan.ranges and not plan.scans) or (name == "admin" and query == "limit=10"), plan


# The latest activity


def write(client, session, text="Hello", **more):
    assert client.post(f"/chats/{session.id}/messages", {"content": {"text": text}, **more}).status == 201


def listed(client, query=""):
    return [row["id"] for row in client.get(f"/chats?{query}").data]


def test_the_latest_activity_comes_first(host_clock, alice, agent, shop):
    early, middle, late = (hold(alice.user, shop, number) for number in range(3))
    assert listed(alice) == listed(agent) == [late.id, middle.id, early.id]
    for session, sender in ((early, alice), (middle, agent)):
        host_clock.forward(minutes=1)
        write(sender, session)
    assert listed(alice) == listed(agent) == [middle.id, early.id, late.id]


def test_a_note_moves_no_session(host_clock, alice, agent, shop):
    early, late = (hold(alice.user, shop, number) for number in range(2))
    host_clock.forward(minutes=1)
    write(agent, early, is_private=True)
    assert listed(alice) == listed(agent) == [late.id, early.id]


def test_a_session_that_moves_up_during_a_walk_is_not_met_twice(host_clock, alice, shop):
    made = [hold(alice.user, shop, number) for number in range(6)]
    host_clock.forward(minutes=1)
    first = alice.get("/chats?limit=2")
    write(alice, made[5]), write(alice, made[1])
    rest = alice.get(f"/chats?cursor={first.meta['next_cursor']}").data
    assert [row["id"] for row in first.data] == [made[5].id, made[4].id]
    assert [row["id"] for row in rest] == [made[3].id, made[2].id, made[0].id]
    assert set(listed(alice)[:2]) == {made[1].id, made[5].id}


def test_the_newest_message_is_shown_as_far_as_the_caller_may_see_it(alice, agent, session):
    write(agent, session, "x" * 201)
    write(agent, session, "between us", is_private=True)
    shown = [client.get("/chats").data[0]["last_message"] for client in (alice, agent)]
    assert [message["text"] for message in shown] == ["x" * 200, "between us"]
    (listed, _) = agent.get(f"/chats/{session.id}/messages").data
    assert shown[0] == {**{name: listed[name] for name in ("id", "sender_type", "created_at")}, "text": "x" * 200}


def test_what_has_gone_is_not_shown(alice, session, say):
    first, second = say("first"), say("second")
    alice.delete(f"/chats/{session.id}/messages/{second.id}")
    assert alice.get("/chats").data[0]["last_message"]["text"] == "first"
    Message.purge(Message.id == first.id)
    assert (
        alice.get("/chats").data[0]["last_message"] | {"id": first.id, "text": ""}
        == (alice.get("/chats").data[0]["last_message"])
    )


def test_an_import_settles_what_was_last(alice, shop, tmp_path):
    early, late = (hold(alice.user, shop, number) for number in range(2))
    file = tmp_path / "rows.jsonl"
    row = {"chat_session_id": early.id, "text": "Hello", "created_at": "2026-11-21T10:00:00Z"}
    file.write_text(json.dumps({"message": row}))
    assert listed(alice) == [late.id, early.id]
    assert not transfer.take_in([file])
    assert listed(alice) == [early.id, late.id]


def test_what_is_new_costs_one_statement_however_many_sessions_are_listed(alice, shop):
    for number in range(20):
        hold(alice.user, shop, number)
    with statements() as seen:
        assert len(listed(alice)) == 20
    assert len([sql for sql, _ in seen if "chat_session" in sql]) == 2
