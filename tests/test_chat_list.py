"""The list of chat sessions: who finds which, in what order, and at what cost."""

import pytest

from service import clock, db
from service.models import ChatSession
from tests.conftest import walk
from tests.watching import is_of_a_page, query_plan, statements


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


@pytest.mark.parametrize("query", ["status=", "status=gone", "status=OPEN", "limit=x", "cursor=x", "limit=1&limit=2"])
def test_garbage_is_refused(alice, query):
    assert alice.get(f"/chats?{query}").status == 400


def test_a_stranger_finds_nothing(anyone):
    assert anyone.get("/chats").error == (401, "missing_credentials")


@pytest.mark.parametrize("name", ["alice", "admin"])
def test_a_page_is_a_range_of_an_index(request, name, shop, bob):
    client = request.getfixturevalue(name)
    moments = [hold(client.user, shop, number).created_at for number in range(30)]
    others = [{"user_id": bob.user.id, "app_id": shop.id, "created_at": moment} for moment in moments * 30]
    ChatSession.insert_many(others).execute()
    db.database.execute_sql("ANALYZE chat_session")
    cursor = client.get("/chats?limit=10").meta["next_cursor"]
    index = "chat_session_created_at_id" if name == "admin" else "chat_session_user_id_created_at_id"
    for query, reads in (("limit=10", 1), (f"limit=10&cursor={cursor}", 2)):
        with statements() as seen:
            assert len(client.get(f"/chats?{query}").data) == 10
        [page] = filter(is_of_a_page, seen)
        plan = query_plan(*page)
        assert not plan.sorts, plan
        if name == "admin" and reads == 1:
            assert all(index in step for step in plan.scans), plan  # along the index, from its end
        else:
            assert (plan.ranges, plan.scans) == ([index] * reads, []), plan
