"""Pages of large rows end early, so that none has more bytes than `page_bytes`, unless one row alone has more."""

from collections.abc import Iterator
from typing import Any

import pytest

from service import clock, db
from service.db.engine import PAGE_BYTES, page_bytes
from service.models import Bot, ChatSession, Event, Feedback, Message, Notification
from service.models.settling import settle
from service.replies import LARGE as LARGEST_ADMITTED
from tests.conftest import Client, walk
from tests.postgres import on_sqlite_alone

BYTES = 64 * 1024  # of a member that is an array of its bytes on the wire
LARGE = f"[{','.join(['255'] * BYTES)}]"
ROWS = 30
ENVELOPE = 1024  # bytes that are no rows


def large_messages(client: Client, session: ChatSession) -> list[str]:
    columns = {"owner_id": client.user.id, "app_id": session.app_id, "plain_text": "tulip", "search_text": "tulip"}
    rows = [Message.insert(id=clock.ulid(), chat_session_id=session.id, content=LARGE, **columns) for _ in range(ROWS)]
    for row in rows:
        row.execute()
    settle([session.id])
    return [row.id for row in Message.select(Message.id).order_by(Message.id)]


@pytest.fixture
def large(alice: Client, admin: Client, session: ChatSession) -> dict[str, list[str]]:
    """Lists with large rows by path, and the identifiers of the rows."""
    own = {"user_id": alice.user.id}
    bots = [Bot.create(app_id=session.app_id, name="x", status="published", social_links=LARGE) for _ in range(ROWS)]
    ids = [session.bot_id, *(bot.id for bot in bots)]
    messages = large_messages(alice, session)
    return {
        f"/chats/{session.id}/messages?limit=30&": messages,
        f"/chats/{session.id}/messages?direction=backward&limit=30&": messages,
        "/chats/search?q=tulip&limit=30&": messages,
        "/events?limit=30&": [
            Event.create(**own, title="x", starts_at=clock.timestamp(), notes=LARGE).id for _ in range(ROWS)
        ],
        "/notifications?limit=30&": [Notification.create(**own, payload=LARGE).id for _ in range(ROWS)],
        "/feedback?limit=30&": [Feedback.create(**own, description="x", device_info=LARGE).id for _ in range(ROWS)],
        f"/bots?app_id={session.app_id}&per_page=30&": ids,
        f"/apps/{session.app_id}/bots?per_page=30&": ids,
    }


def pages(client: Client, path: str) -> Iterator[Any]:
    """The replies of a walk."""
    cursor = ""
    while True:
        reply = client.get(f"{path}cursor={cursor}" if cursor else path.rstrip("?&"))
        assert reply.status == 200, reply.json
        yield reply
        cursor = reply.meta["next_cursor"]
        if not cursor:
            return


def test_a_walk_over_large_rows_meets_each_of_them_once_in_bounded_responses(large, alice, admin):
    for path, ids in large.items():
        found, sizes = [], []
        for reply in pages(admin if path.startswith("/apps") else alice, path):
            found += [row["id"] for row in reply.data]
            sizes.append(len(reply.raw))
            assert reply.meta["per_page"] == ROWS
            assert reply.meta.get("total", ROWS) == ROWS
        assert sorted(found) == sorted(ids), path
        assert max(sizes) <= page_bytes(ROWS + 1) + ENVELOPE, path
        assert min(sizes[:-1]) > page_bytes(ROWS + 1) - len(LARGE) - ENVELOPE, path


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of all rows that the database has given to the pages of a test."""
    sizes: list[int] = []
    engine = type(db.database.obj)
    joined, each = engine.fetch_joined, engine.fetch_each

    def fetch_joined(self: Any, *arguments: Any) -> Any:
        row = joined(self, *arguments)
        sizes.append(len(row[1] or b"") if row else 0)
        return row

    def fetch_each(self: Any, *arguments: Any) -> Iterator[bytes]:
        for row in each(self, *arguments):
            sizes.append(len(row))
            yield row

    monkeypatch.setattr(engine, "fetch_joined", fetch_joined)
    monkeypatch.setattr(engine, "fetch_each", fetch_each)
    return sizes


def test_rows_that_will_not_be_sent_are_not_fetched(large, alice, fetched):
    for path in large:
        if not path.startswith("/apps"):
            fetched.clear()
            alice.get(path.rstrip("?&"))
            assert page_bytes(51) // 2 < sum(fetched) <= page_bytes(51) + len(LARGE) + ENVELOPE, path


def test_a_row_that_is_larger_than_a_page_is_a_page_of_its_own(alice, session):
    sizes = [3, PAGE_BYTES, 3, PAGE_BYTES, PAGE_BYTES, 3]
    for size in sizes:
        Message.create(id=clock.ulid(), chat_session_id=session.id, content=f"[{' ' * size}]")
    settle([session.id])
    found = [len(reply.data) for reply in pages(alice, f"/chats/{session.id}/messages?")]
    assert found == [1] * len(sizes)


@pytest.mark.parametrize("more", [0, 1])
def test_a_page_that_is_just_full_is_the_last_one_unless_a_row_follows(alice, session, say, more):
    for _ in range(2 + more):
        say()
    first, *others = pages(alice, f"/chats/{session.id}/messages?limit=2&")
    assert len(first.data) == 2
    assert [len(reply.data) for reply in others] == [1] * more


def test_rows_above_their_share_of_a_page_are_all_on_it_if_they_fit(alice, session):
    contents = [LARGE] + ["[]"] * 49
    for content in contents:
        Message.create(id=clock.ulid(), chat_session_id=session.id, content=content)
    settle([session.id])
    reply = alice.get(f"/chats/{session.id}/messages?limit=50")
    assert (len(reply.data), reply.meta["next_cursor"]) == (50, "")
    assert len(walk(alice, f"/chats/{session.id}/messages", limit=49)) == 50


@on_sqlite_alone
def test_a_large_page_is_not_read_in_the_thread_of_the_server(large, alice):
    path = next(iter(large)).partition("?")[0]
    with pytest.raises(db.NeedsThread), db.inline_read():
        alice.get(path)
    with db.inline_read():
        assert alice.get(f"{path}?limit=1").status == 200


def test_a_large_response_is_refused_when_there_is_no_room_for_it_unless_something_was_changed(alice, session):
    def without_room(environ: dict[str, Any], start_response: Any) -> Any:
        return alice.application({**environ, "cx.take_room": lambda size: False}, start_response)

    client = Client(without_room, alice.token)
    path = f"/chats/{session.id}/messages"
    sent = client.post(path, {"content": [255] * (BYTES // 2)})
    assert sent.status == 201
    assert client.get(path).status == 200
    edited = client.patch(f"{path}/{sent.data['id']}", {"content": [254] * BYTES})
    assert edited.status == 200
    assert len(edited.raw) > LARGEST_ADMITTED
    refused = client.get(path)
    assert refused.error == (503, "busy")
    assert int(refused.headers["Retry-After"]) > 0
    assert alice.get(path).status == 200
