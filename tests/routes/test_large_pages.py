"""Pages of large rows end early: a page is no larger than `page_bytes`, except for a single larger row."""

from collections.abc import Iterator
from typing import Any

import pytest

from service import clock, db
from service.db.engine import PAGE_BYTES, page_bytes
from service.http.responses import LARGE as LARGEST_ADMITTED
from service.models import Bot, ChatSession, Event, Feedback, Message, Notification
from service.models.recompute import recompute
from tests.support.client import Client, walk

BYTES = 64 * 1024  # of a member that is an array of bytes in JSON
LARGE = f"[{','.join(['255'] * BYTES)}]"
ROWS = 30
ENVELOPE_BYTES = 1024  # bytes of a response without its rows


def large_messages(client: Client, session: ChatSession) -> list[str]:
    columns = {"owner_id": client.user.id, "app_id": session.app_id, "plain_text": "tulip", "search_text": "tulip"}
    rows = [Message.insert(id=clock.ulid(), chat_session_id=session.id, content=LARGE, **columns) for _ in range(ROWS)]
    for row in rows:
        row.execute()
    recompute([session.id])
    return [row.id for row in Message.select(Message.id).order_by(Message.id)]


@pytest.fixture
def large(alice: Client, admin: Client, session: ChatSession) -> dict[str, list[str]]:
    """Lists with large rows: the identifiers of the rows by path."""
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
    """Yield the responses of all pages."""
    cursor = ""
    while True:
        reply = client.get(f"{path}cursor={cursor}" if cursor else path.rstrip("?&"))
        assert reply.status == 200, reply.json
        yield reply
        cursor = reply.meta["next_cursor"]
        if not cursor:
            return


@pytest.mark.slow
def test_pagination_returns_each_large_row_once_in_bounded_responses(large, alice, admin):
    for path, ids in large.items():
        ids_found, sizes = [], []
        for reply in pages(admin if path.startswith("/apps") else alice, path):
            ids_found += [row["id"] for row in reply.data]
            sizes.append(len(reply.raw))
            assert reply.meta["per_page"] == ROWS
            assert reply.meta.get("total", ROWS) == ROWS
        assert sorted(ids_found) == sorted(ids), path
        assert max(sizes) <= page_bytes(ROWS + 1) + ENVELOPE_BYTES, path
        assert min(sizes[:-1]) > page_bytes(ROWS + 1) - len(LARGE) - ENVELOPE_BYTES, path


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of bytes of each row that a test fetches from the database."""
    sizes: list[int] = []
    engine = type(db.database.obj)
    fetch_joined_rows, fetch_rows = engine.fetch_joined, engine.fetch_each

    def fetch_joined(self: Any, *arguments: Any) -> Any:
        row = fetch_joined_rows(self, *arguments)
        sizes.append(len(row[1] or b"") if row else 0)
        return row

    def fetch_each(self: Any, *arguments: Any) -> Iterator[bytes]:
        for row in fetch_rows(self, *arguments):
            sizes.append(len(row))
            yield row

    monkeypatch.setattr(engine, "fetch_joined", fetch_joined)
    monkeypatch.setattr(engine, "fetch_each", fetch_each)
    return sizes


def test_rows_beyond_the_page_are_not_fetched(large, alice, fetched):
    for path in large:
        if not path.startswith("/apps"):
            fetched.clear()
            alice.get(path.rstrip("?&"))
            assert page_bytes(51) // 2 < sum(fetched) <= page_bytes(51) + len(LARGE) + ENVELOPE_BYTES, path


def test_row_larger_than_a_page_is_returned_alone(alice, session):
    sizes = [3, PAGE_BYTES, 3, PAGE_BYTES, PAGE_BYTES, 3]
    for size in sizes:
        Message.create(id=clock.ulid(), chat_session_id=session.id, content=f"[{' ' * size}]")
    recompute([session.id])
    lengths = [len(reply.data) for reply in pages(alice, f"/chats/{session.id}/messages?")]
    assert lengths == [1] * len(sizes)


@pytest.mark.parametrize("more", [0, 1])
def test_full_page_is_the_last_if_no_row_follows(alice, session, say, more):
    for _ in range(2 + more):
        say()
    first, *others = pages(alice, f"/chats/{session.id}/messages?limit=2&")
    assert len(first.data) == 2
    assert [len(reply.data) for reply in others] == [1] * more


def test_rows_larger_than_their_share_are_returned_if_they_fit(alice, session):
    contents = [LARGE] + ["[]"] * 49
    for content in contents:
        Message.create(id=clock.ulid(), chat_session_id=session.id, content=content)
    recompute([session.id])
    reply = alice.get(f"/chats/{session.id}/messages?limit=50")
    assert (len(reply.data), reply.meta["next_cursor"]) == (50, "")
    assert len(walk(alice, f"/chats/{session.id}/messages", limit=49)) == 50


@pytest.mark.sqlite_only
def test_large_page_is_not_read_on_the_event_loop(large, alice):
    path = next(iter(large)).partition("?")[0]
    with pytest.raises(db.NeedsThread), db.inline_read():
        alice.get(path)
    with db.inline_read():
        assert alice.get(f"{path}?limit=1").status == 200


def test_large_response_is_503_without_memory_except_after_a_write(alice, session):
    def without_memory(environ: dict[str, Any], start_response: Any) -> Any:
        return alice.application({**environ, "cx.reserve_memory": lambda size: False}, start_response)

    client = Client(without_memory, alice.token)
    path = f"/chats/{session.id}/messages"
    sent = client.post(path, {"content": [255] * (BYTES // 2)})
    assert sent.status == 201
    assert client.get(path).status == 200
    edited = client.patch(f"{path}/{sent.data['id']}", {"content": [254] * BYTES})
    assert edited.status == 200
    assert len(edited.raw) > LARGEST_ADMITTED
    response = client.get(path)
    assert response.error == (503, "busy")
    assert int(response.headers["Retry-After"]) > 0
    assert alice.get(path).status == 200
