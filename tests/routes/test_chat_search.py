"""Search of messages: access, order and cost."""

import json

import peewee
import pytest

from service import clock, db
from service.db import migrations
from service.db.migrations import step_1, step_2
from service.models import ChatSession, Message
from service.models import search as search_module
from service.models.contents import searched_text
from service.models.recompute import recompute
from service.operate import import_export
from tests.support import postgres
from tests.support.chats import as_stored, delete, fill
from tests.support.client import text_of, walk
from tests.support.observe import database_steps, nothing_changes, query_plan, statements

pytestmark = pytest.mark.database


def search(client, text, **query):
    """The texts of the messages that a client finds, page by page."""
    return [text_of(message) for message in walk(client, "/chats/search", q=quoted(text), **query)]


def quoted(text):
    return "".join(f"%{byte:02X}" for byte in text.encode())


@pytest.fixture
def note(say):
    return lambda text, **columns: say(text, is_private=True, sender_type="agent", **columns)


@pytest.fixture
def elsewhere(alice, other_shop):
    """Alice's session with another shop."""
    return ChatSession.create(app_id=other_shop.id, user_id=alice.user.id)


@pytest.fixture
def bobs(bob, shop):
    return ChatSession.create(app_id=shop.id, user_id=bob.user.id)


# Who finds what


def test_callers_find_the_messages_that_they_may_read(
    alice, bob, agent, other_agent, admin, session, elsewhere, bobs, say, note
):
    say("apple 1"), say("apple 2", elsewhere), say("apple 3", bobs), note("apple 4"), note("apple 5", in_session=bobs)
    found = {client: search(client, "apple") for client in (alice, bob, agent, other_agent, admin)}
    assert found[alice] == ["apple 2", "apple 1"]
    assert found[bob] == ["apple 3"]
    assert found[agent] == ["apple 5", "apple 4", "apple 3", "apple 1"]
    assert found[other_agent] == ["apple 2"]
    assert found[admin] == ["apple 5", "apple 4", "apple 3", "apple 2", "apple 1"]


def test_an_agent_is_a_customer_in_the_sessions_of_another_app(agent, session, other_shop, say, note):
    own = ChatSession.create(app_id=other_shop.id, user_id=agent.user.id)
    say("apple 1"), say("apple 2", own), note("apple 3", in_session=own), note("apple 4"), say("apple 5", own)
    for limit in (1, 2, 3, 100):
        assert search(agent, "apple", limit=limit) == ["apple 5", "apple 4", "apple 2", "apple 1"]


def test_an_agent_without_an_app_finds_own_messages_only(person, session, say):
    say("apple")
    assert search(person("ann", role="agent"), "apple") == []


def test_a_found_message_is_shown_as_in_the_list(alice, session, say):
    say("apple")
    reply = alice.get("/chats/search?q=apple")
    assert reply.data == alice.get(f"/chats/{session.id}/messages").data
    assert reply.meta == {"next_cursor": "", "per_page": 25}


def test_without_credentials_it_is_401(anyone):
    assert anyone.get("/chats/search?q=x").error == (401, "missing_credentials")


# What is found


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Straße 5", "STRASSE"),
        ("İstanbul", "i̇STANBUL"),
        ("ΟΔΥΣΣΕΥΣ", "οδυσσευς"),
        ("Cafe\u0301 noir", "CAFÉ"),
        ("100% sure", "0% S"),
        ("a_b", "A_B"),
        ("back\\slash", "k\\s"),
        ("it's", "T'S"),
        ("two words", "  Two Words "),
        ("🙂 smile", "🙂"),
        ("x", "X"),
    ],
)
def test_a_search_ignores_case(alice, session, say, text, query):
    say(text), say("something quite different")
    assert search(alice, query) == [text]


def test_text_is_stored_once_if_only_its_ascii_letters_have_upper_case(alice, session, say):
    texts = ["Apple", "Zoë and 東京", "ÄPFEL", "Straße", "Cafe\u0301", "x"]
    stored = {Message.get_by_id(say(text).id).search_text for text in texts}
    assert stored == {"", "äpfel", "strasse", "caf\u00e9"}
    found = [search(alice, text) for text in ("zoë", "apfel", "äpfel", "LE")]
    assert found == [["Zoë and 東京"], [], ["ÄPFEL"], ["Apple"]]


def test_lower_of_the_database_changes_ascii_letters_only(session):
    characters = "".join(chr(number) for number in range(1, 0x30000) if not 0xD800 <= number < 0xE000)
    Message.create(id=clock.ulid(), chat_session_id=session.id, content=as_stored(characters))
    lower = Message.select(peewee.fn.lower(Message.plain_text)).tuples()
    assert [text for (text,) in lower] == [searched_text(characters, "")]


@pytest.mark.parametrize("query", ["%", "_", "a%c", "\\", "c a", "abcd", "' OR 1=1 --", '"text"', "{"])
def test_a_search_has_no_wildcards(alice, session, say, query):
    say("abc")
    assert search(alice, query) == []


def test_only_texts_are_searched(alice, session):
    for content in ({"image": "apple.png"}, ["apple"], {"text": ["apple"]}, {"text": {"a": "apple"}}):
        alice.post(f"/chats/{session.id}/messages", {"content": content})
    assert search(alice, "apple") == []
    alice.post(f"/chats/{session.id}/messages", {"content": "Apple"})
    assert len(alice.get("/chats/search?q=apple").data) == 1


@pytest.mark.parametrize("who", ["alice", "agent"])
def test_deleted_and_purged_messages_are_not_found(request, alice, session, say, who):
    gone, purged, kept = say("apple 1"), say("apple 2"), say("apple 3")
    delete(alice, gone)
    Message.purge(Message.id == purged.id)
    assert search(request.getfixturevalue(who), "apple") == ["apple 3"] == [kept.plain_text]


def test_imported_messages_are_found_and_those_purged_before_are_not(alice, session, tmp_path):
    rows = [
        {"text": "Apple 1"},
        {"content": {"text": "APPLE 2"}},
        {"text": "apple 3", "gdpr_purged": True},
        {"text": "apple 4", "gdpr_purged_at": "2026-11-20T10:00:00Z"},
        {"text": "apple 5", "deleted_at": "2026-11-20T10:00:00Z"},
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps({"message": {"chat_session_id": session.id, **row}}) for row in rows))
    assert not import_export.import_files([file])
    assert sorted(search(alice, "apple")) == ["APPLE 2", "Apple 1"]
    assert alice.get(f"/chats/{session.id}").data["last_message"]["text"] != "apple 5"


# Pages


def test_pages_are_complete_newest_first(alice, session, elsewhere, say):
    made = [say(f"apple {number}", where).plain_text for number in range(4) for where in (session, elsewhere)]
    say("pear")
    for limit in (1, 3, 8, 100):
        assert search(alice, "apple", limit=limit) == made[::-1]


def test_changes_during_a_walk_skip_no_other_message(alice, session, say):
    made = [say(f"apple {number}") for number in range(6)]
    first = alice.get("/chats/search?q=apple&limit=2")
    say("apple 6"), delete(alice, made[4]), delete(alice, made[2])
    rest = alice.get(f"/chats/search?q=apple&cursor={first.meta['next_cursor']}").data
    assert [text_of(message) for message in rest] == ["apple 3", "apple 1", "apple 0"]


@pytest.mark.parametrize(
    "query", ["", "q=", "q=%20", "q=%09%0A", f"q={'x' * 201}", "q=a&q=b", "q=%FF", "q=%00", "q=a&limit=x"]
)
def test_malformed_parameters_are_400(alice, query):
    assert alice.get(f"/chats/search?{query}").error == (400, "invalid_parameter")


def test_a_cursor_is_bound_to_its_text_and_caller(alice, agent, session, say):
    say("apple 1"), say("apple 2")
    cursor = alice.get("/chats/search?q=apple&limit=1").meta["next_cursor"]
    with nothing_changes():
        for client, text in ((agent, "apple"), (alice, "appl")):
            assert client.get(f"/chats/search?q={text}&cursor={cursor}").error == (400, "invalid_cursor")
    assert len(alice.get(f"/chats/search?q=apple&limit=100&cursor={cursor}").data) == 1


def test_a_page_has_25_rows_by_default_and_at_most_100(alice, session):
    fill(session, 3)
    for query, used in (("", 25), ("&limit=100", 100), ("&limit=101", 100), ("&limit=0", 1)):
        assert alice.get(f"/chats/search?q=x{query}").meta["per_page"] == used


# What a page costs


@pytest.mark.parametrize("who", ["alice", "agent", "admin"])
@pytest.mark.parametrize("depth", [1, 4])
def test_a_walk_is_complete_however_little_a_page_scans(
    request, session, elsewhere, say, note, monkeypatch, who, depth
):
    client = request.getfixturevalue(who)
    monkeypatch.setattr(search_module, "SEARCH_DEPTH", depth)
    for number in range(3):
        say(f"apple {number}"), say("pear"), say("apple elsewhere", elsewhere), note("plum"), say("pear", elsewhere)
    for limit in (1, 50):
        found = search(client, "apple", limit=limit)
        assert len(found) == (3 if who == "agent" else 6)
        assert [text for text in found if text[-1].isdigit()] == ["apple 2", "apple 1", "apple 0"]


def test_a_page_scans_a_limited_number_of_messages(alice, session, monkeypatch):
    monkeypatch.setattr(search_module, "SEARCH_DEPTH", 10)
    spread(session, 200)

    def cost():
        return database_steps(lambda: alice.get("/chats/search?q=nowhere"))

    cost()
    few = cost()
    spread(session, 1000)
    assert cost() <= 1.05 * few


def spread(session, number):
    """Many messages with their texts."""
    rows = [
        {"id": clock.ulid(), "chat_session_id": session.id, "content": "[]", "search_text": f"line {index}"}
        for index in range(number)
    ]
    with db.write():
        Message.insert_many(rows).execute()
        recompute([session.id])


@pytest.mark.parametrize(("who", "index"), [("alice", "message_owner"), ("agent", "message_app")])
def test_a_page_is_a_range_of_an_index(request, session, monkeypatch, who, index):
    monkeypatch.setattr(search_module, "SEARCH_DEPTH", 10)
    client = request.getfixturevalue(who)
    spread(session, 50)
    with statements() as seen:
        client.get("/chats/search?q=line&limit=2")
    looked = [query_plan(sql, values) for sql, values in seen if sql.startswith('SELECT "t1"."id" FROM "message"')]
    assert looked
    for plan in looked:
        assert (plan.scans, plan.sorts) == ([], False), plan
    assert [plan for plan in looked if plan.ranges == [index]]


# Databases of an older release


@pytest.fixture
def older(tmp_path, monkeypatch):
    """The database of a release that knew no searches, with a chat, and then brought up to date."""
    url = postgres.database_of(tmp_path)
    db.open_database(tmp_path, url, create=True)
    with monkeypatch.context() as then:
        then.setattr(migrations, "STEPS", (step_1.STATEMENTS, step_2.STATEMENTS))
        assert migrations.migrate() == 2
    ids = [f"00000000-0000-4000-8000-{number:012}" for number in range(3)]
    app, user, session = ids
    early, late = "2026-01-01T00:00:00.000Z", "2026-02-01T00:00:00.000Z"
    insert("app", id=app, name="Shop")
    insert("user", id=user, email="a@example.com", created_at=early, location="[]", settings="{}", role="user")
    chat = {"app_id": app, "conversation_id": session, "user_id": user, "status": "open"}
    insert("chat_session", id=session, created_at=early, **chat)
    empty = dict.fromkeys(("original_content", "translations", "reply_snapshot", "action_payload"), "[]")
    for number, text in {"1": "Straße", "2": "private", "3": "deleted", "4": "purged", "5": ""}.items():
        insert(
            "message",
            id=number.rjust(26, "0"),
            chat_session_id=session,
            content=as_stored({"text": text}) if text else "[1,999]",
            is_private=number == "2",
            deleted_at=late if number == "3" else None,
            gdpr_purged_at=late if number == "4" else None,
            created_at=late,
            **empty,
        )
    assert migrations.migrate() == len(migrations.STEPS) - 2
    yield ids
    db.close_database()
    if url:
        postgres.drop(url)


def insert(table, **row):
    """A row whose other columns are empty."""
    for column in db.database.get_columns(table):
        if not column.null:
            row.setdefault(column.name, {"text": "", "boolean": False}.get(column.data_type.lower(), 0))
    marks = ", ".join([db.database.param] * len(row))
    db.database.execute_sql(f'INSERT INTO "{table}" ({", ".join(row)}) VALUES ({marks})', list(row.values()))


def test_an_older_database_is_upgraded(older):
    app, user, session = older
    rows = {message.id[-1]: message for message in Message.select()}
    searched = {"1": "strasse", "2": "private", "3": "deleted", "4": "", "5": ""}
    assert {number: searched_text(row.plain_text, row.search_text) for number, row in rows.items()} == searched
    # PostgreSQL may still have instances of the previous version, which search this column.
    assert bool(rows["2"].search_text) == (db.database.kind == "postgresql")
    assert rows["1"].plain_text == "Straße"
    assert {(row.owner_id, row.app_id) for row in rows.values()} == {(user, app)}
    assert ChatSession.get_by_id(session).active_at == "2026-02-01T00:00:00.000Z"


def test_an_upgraded_database_equals_a_new_import(older):
    def derived():
        names = ("plain_text", "owner_id", "app_id")
        sessions = [session.active_at for session in ChatSession.select()]
        texts = {row.id: searched_text(row.plain_text, row.search_text) for row in Message.select()}
        return sessions, texts, {row.id: [getattr(row, name) for name in names] for row in Message.select()}

    before = derived()
    for message in Message.select():
        message.save()
    recompute([older[2]])
    assert derived() == before
