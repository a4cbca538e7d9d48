"""The list of chat sessions: who finds which, in what order, and at what cost."""

import json

import pytest

from service import clock, db
from service.db import compiled_queries
from service.models import ChatSession, Message, session_filters
from service.operate import import_export
from tests.support.client import walk
from tests.support.observe import query_plan, statements


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
def test_callers_list_the_sessions_that_they_may_read_newest_first(request, sessions, name, expected):
    client = request.getfixturevalue(name)
    reply = client.get("/chats")
    assert [row["id"] for row in reply.data] == [sessions[number].id for number in expected]
    assert reply.meta == {"next_cursor": "", "per_page": 50}
    for row in reply.data:
        assert client.get(f"/chats/{row['id']}/messages").status == 200


def test_an_agent_lists_own_sessions_with_other_apps(agent, other_shop):
    own = hold(agent.user, other_shop)
    assert [row["id"] for row in agent.get("/chats").data] == [own.id]


def test_an_agent_without_an_app_lists_own_sessions_only(person, sessions):
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
            "customer_name": "Alice",
            "bot_name": "Hilda",
            "app_name": "Shop",
            "assignee_id": None,
            "assignee_name": "",
            "snoozed_until": None,
            "handed_over_at": None,
            "last_message": None,
        }
    ]


def test_pages_are_complete_with_equal_times(alice, shop):
    made = [hold(alice.user, shop, number // 3).id for number in range(10)]
    for limit in (1, 3, 4, 200):
        found = [row["id"] for row in walk(alice, "/chats", limit=limit)]
        assert sorted(found) == sorted(made)
        assert [row["created_at"] for row in walk(alice, "/chats", limit=limit)] == sorted(
            (ChatSession.get_by_id(id).created_at for id in made), reverse=True
        )


def test_a_status_is_a_filter(alice, shop):
    archived = hold(alice.user, shop, status="archived")
    hold(alice.user, shop)
    assert [row["id"] for row in alice.get("/chats?status=archived").data] == [archived.id]
    assert alice.get("/chats?status=closed").data == []
    assert alice.get("/chats?status=").data == alice.get("/chats").data != []


@pytest.mark.parametrize("query", ["status=gone", "status=OPEN", "limit=x", "cursor=x", "limit=1&limit=2"])
def test_malformed_parameters_are_400(alice, query):
    assert alice.get(f"/chats?{query}").status == 400


def test_without_credentials_it_is_401(anyone):
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


# Filters


@pytest.fixture
def inbox(agent, admin, bob, shop, other_shop, bot):
    """The sessions of an inbox by name, the most recently active last."""
    columns = {
        "bob": {"bot_id": bot.id},
        "mine": {"assignee_id": agent.user.id, "bot_id": bot.id, "status": "active"},
        "mine, resolved": {"assignee_id": agent.user.id, "status": "resolved"},
        "of the admin": {"assignee_id": admin.user.id, "status": "snoozed"},
        "archived": {"status": "archived"},
        "elsewhere": {"app_id": other_shop.id},
    }
    return {
        name: hold(bob.user, shop, number, **given).id
        if "app_id" not in given
        else hold(bob.user, other_shop, number).id
        for number, (name, given) in enumerate(columns.items())
    }


OWN_APP = ["archived", "of the admin", "mine, resolved", "mine", "bob"]


@pytest.mark.parametrize("limit", [1, 2, 50])
@pytest.mark.parametrize(
    ("query", "of_agent", "of_admin"),
    [
        ("", OWN_APP, ["elsewhere", *OWN_APP]),
        ("status=open,active", ["mine", "bob"], ["elsewhere", "mine", "bob"]),
        ("status=open,open", ["bob"], ["elsewhere", "bob"]),
        ("assignee=me", ["mine, resolved", "mine"], ["of the admin"]),
        ("assignee=me&status=active,snoozed", ["mine"], ["of the admin"]),
        ("assignee=none", ["archived", "bob"], ["elsewhere", "archived", "bob"]),
        ("assignee=none&status=open", ["bob"], ["elsewhere", "bob"]),
        ("assignee={agent}", ["mine, resolved", "mine"], ["mine, resolved", "mine"]),
        ("assignee={admin}", ["of the admin"], ["of the admin"]),
        ("assignee={bob}", [], []),
        ("app_id={shop}", OWN_APP, OWN_APP),
        ("app_id={other_shop}", [], ["elsewhere"]),
        ("app_id={other_shop}&assignee=none&status=open", [], ["elsewhere"]),
        ("app_id={other_shop}&assignee={agent}", [], []),
        ("app_id={shop}&status=archived", ["archived"], ["archived"]),
        ("bot_id={bot}", ["mine", "bob"], ["mine", "bob"]),
        ("bot_id={bot}&assignee=none", ["bob"], ["bob"]),
        ("bot_id={bot}&assignee=me&app_id={shop}&status=open,active", ["mine"], []),
        ("bot_id={shop}", [], []),
    ],
)
def test_filters_select_the_sessions_that_match_all(
    inbox, agent, admin, bob, shop, other_shop, bot, query, of_agent, of_admin, limit
):
    rows = {"agent": agent.user, "admin": admin.user, "bob": bob.user}
    rows |= {"shop": shop, "other_shop": other_shop, "bot": bot}
    query = query.format(**{name: row.id for name, row in rows.items()})
    names = {id: name for name, id in inbox.items()}
    for client, expected in ((agent, of_agent), (admin, of_admin)):
        path = f"/chats?{query}" if limit == 50 else f"/chats?{query}&limit={limit}"
        found = []
        while True:
            reply = client.get(path)
            found += [names[row["id"]] for row in reply.data]
            if not reply.meta["next_cursor"]:
                break
            path = f"/chats?{query}&limit={limit}&cursor={reply.meta['next_cursor']}"
        assert found == expected


def test_a_customer_filters_own_sessions(inbox, alice, bob, bot, shop, other_shop):
    assert [row["id"] for row in bob.get(f"/chats?bot_id={bot.id}").data] == [inbox["mine"], inbox["bob"]]
    assert [row["id"] for row in bob.get(f"/chats?app_id={other_shop.id}").data] == [inbox["elsewhere"]]
    assert [row["id"] for row in bob.get("/chats?status=resolved,archived").data] == [
        inbox["archived"],
        inbox["mine, resolved"],
    ]
    assert alice.get(f"/chats?app_id={shop.id}").data == []


@pytest.mark.parametrize("query", ["assignee=x", "assignee=NONE", "app_id=x", "bot_id=1", "status=open,,active"])
def test_malformed_filters_are_400(agent, query):
    assert agent.get(f"/chats?{query}").error == (400, "invalid_parameter")


@pytest.fixture
def depth(monkeypatch):
    """A small limit of the sessions that a page with filters reads. It is part of the cached statements."""
    monkeypatch.setattr(session_filters, "DEPTH", 4)
    monkeypatch.setattr(compiled_queries, "_cache", {})


@pytest.mark.parametrize("limit", [1, 3, 50])
def test_pages_with_filters_are_complete_if_few_sessions_match(depth, agent, bob, shop, bot, limit):
    statuses = ("open", "resolved")
    columns = [
        {"status": statuses[number % 2], "assignee_id": None if number % 7 == 0 else agent.user.id, "bot_id": bot.id}
        for number in range(40)
    ]
    made = [hold(bob.user, shop, number, **given).id for number, given in enumerate(columns)]
    expected = [id for number, id in enumerate(made) if number % 7 == 0][::-1]
    assert [row["id"] for row in walk(agent, "/chats", limit=limit, assignee="none")] == expected
    assert [row["id"] for row in walk(agent, "/chats", limit=limit, bot_id=bot.id)] == made[::-1]
    assert walk(agent, "/chats", limit=limit, bot_id=shop.id) == []


FILTERS = {
    "status=open": "chat_session_app_status",
    "status=open&assignee=none": "chat_session_app_status",
    "status=open&bot_id={bot}": "chat_session_app_status",
    "status=open&assignee=me": "chat_session_assignee",
    "status=open&assignee=me&bot_id={bot}": "chat_session_assignee",
}


@pytest.mark.parametrize("query", FILTERS)
@pytest.mark.parametrize("name", ["agent", "admin", "admin of an app"])
def test_a_page_with_filters_is_a_range_of_an_index(request, query, name, shop, other_shop, bob, bot):
    client, index = request.getfixturevalue(name.partition(" ")[0]), FILTERS[query]
    if name == "admin":
        index = index.replace("_app_", "_")
    query = query.format(bot=bot.id) + (f"&app_id={shop.id}" if name == "admin of an app" else "")
    moments = [clock.timestamp(clock.milliseconds("2026-11-20T10:00:00.000Z") + number * 1000) for number in range(300)]
    ChatSession.insert_many(
        {
            "user_id": bob.user.id,
            "app_id": (shop, other_shop)[number % 2].id,
            "assignee_id": client.user.id if number % 5 == 0 else None,
            "bot_id": bot.id,
            "status": "open" if number % 3 else "resolved",
            "created_at": moment,
            "active_at": moment,
        }
        for number, moment in enumerate(moments)
    ).execute()
    db.database.execute_sql("ANALYZE chat_session")
    path, cursor = f"/chats?limit=5&{query}", ""
    for _ in range(2):
        with statements() as seen:
            reply = client.get(path + cursor)
        assert len(reply.data) == 5
        cursor = f"&cursor={reply.meta['next_cursor']}"
        plans = [query_plan(*statement) for statement in seen if statement[0].count("active_at") >= 2]
        assert [plan.ranges for plan in plans if index in plan.ranges], plans
        for plan in plans:
            assert not plan.sorts and not [scan for scan in plan.scans if "chat_session" in scan], plan


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


def test_a_note_does_not_move_a_session(host_clock, alice, agent, shop):
    early, late = (hold(alice.user, shop, number) for number in range(2))
    host_clock.forward(minutes=1)
    write(agent, early, is_private=True)
    assert listed(alice) == listed(agent) == [late.id, early.id]


def test_a_session_that_moves_up_during_a_walk_is_not_repeated(host_clock, alice, shop):
    made = [hold(alice.user, shop, number) for number in range(6)]
    host_clock.forward(minutes=1)
    first = alice.get("/chats?limit=2")
    write(alice, made[5]), write(alice, made[1])
    rest = alice.get(f"/chats?cursor={first.meta['next_cursor']}").data
    assert [row["id"] for row in first.data] == [made[5].id, made[4].id]
    assert [row["id"] for row in rest] == [made[3].id, made[2].id, made[0].id]
    assert set(listed(alice)[:2]) == {made[1].id, made[5].id}


def test_the_newest_message_is_the_newest_that_the_caller_may_read(alice, agent, session):
    write(agent, session, "x" * 201)
    write(agent, session, "between us", is_private=True)
    shown = [client.get("/chats").data[0]["last_message"] for client in (alice, agent)]
    assert [message["text"] for message in shown] == ["x" * 200, "between us"]
    (listed, _) = agent.get(f"/chats/{session.id}/messages").data
    same = {
        name: listed[name]
        for name in ("id", "sender_type", "created_at", "content_type", "is_read_once", "gdpr_purged")
    }
    assert shown[0] == {**same, "text": "x" * 200}


def test_deleted_and_purged_messages_are_not_shown(alice, session, say):
    first, second = say("first"), say("second")
    alice.delete(f"/chats/{session.id}/messages/{second.id}")
    assert alice.get("/chats").data[0]["last_message"]["text"] == "first"
    Message.purge(Message.id == first.id)
    assert (
        alice.get("/chats").data[0]["last_message"] | {"id": first.id, "text": "", "gdpr_purged": True}
        == (alice.get("/chats").data[0]["last_message"])
    )


def test_an_import_recomputes_the_newest_message(alice, shop, tmp_path):
    early, late = (hold(alice.user, shop, number) for number in range(2))
    file = tmp_path / "rows.jsonl"
    row = {"chat_session_id": early.id, "text": "Hello", "created_at": "2026-11-21T10:00:00Z"}
    file.write_text(json.dumps({"message": row}))
    assert listed(alice) == [late.id, early.id]
    assert not import_export.import_files([file])
    assert listed(alice) == [early.id, late.id]


def test_unread_counts_use_one_statement(alice, shop):
    for number in range(20):
        hold(alice.user, shop, number)
    with statements() as seen:
        assert len(listed(alice)) == 20
    assert len([sql for sql, _ in seen if "chat_session" in sql]) == 2
