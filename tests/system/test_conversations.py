"""Real conversations are imported and read by their owners: all bytes, in order, in both directions."""

import json
from collections.abc import Callable, Iterator
from itertools import cycle, groupby, islice
from pathlib import Path
from typing import Any

import pytest

from service import db
from service.auth import tokens
from service.demo import make as corpus
from service.fields import as_bytes
from service.models import ChatSession, User
from service.operate import import_export
from service.settings import Settings
from tests.support.client import Client, walk
from tests.support.postgres import is_chosen
from tests.support.server_process import ALICE, SESSION, Record, chat, fill, json_lines, send_request, serving

pytestmark = [pytest.mark.slow, pytest.mark.database]

DIRECTIONS = ("forward", "backward")
LONG = 100_000
CONVERSATIONS = list(corpus.conversations())
SAMPLE = [one for _, same in groupby(CONVERSATIONS, lambda one: one.language) for one in islice(same, 3)]

Texts = dict[str, list[str]]  # the texts of each chat session, in order


def owners_and_texts(records: list[Record]) -> tuple[dict[str, str], Texts]:
    """The owner and the texts of each chat session."""
    owners = {one["chat_session"]["id"]: one["chat_session"]["user_id"] for one in records if "chat_session" in one}
    texts: Texts = {session: [] for session in owners}
    for one in records:
        if "message" in one:
            texts[one["message"]["chat_session_id"]].append(one["message"]["text"])
    return owners, texts


def as_content(texts: list[str], direction: str) -> list[list[int]]:
    """Texts as the content of messages in responses, in the order of a direction."""
    ordered = texts if direction == "forward" else texts[::-1]
    return [as_bytes({"text": text}) for text in ordered]


@pytest.fixture
def owner(application: Any, settings: Settings) -> Callable[[str], Client]:
    """Log in an imported user."""
    clients: dict[str, Client] = {}

    def log_in(user_id: str) -> Client:
        if user_id not in clients:
            with db.write():
                clients[user_id] = Client(application, tokens.log_in(user_id, settings).access_token)
        return clients[user_id]

    return log_in


def import_records(path: Path, records: list[Record]) -> None:
    path.write_bytes(json_lines(records))
    assert import_export.import_files([path]) == []


@pytest.mark.parametrize("of", [SAMPLE, pytest.param(CONVERSATIONS, marks=pytest.mark.slow)], ids=["some", "all"])
def test_conversations_are_returned_as_imported(
    of: list[corpus.Conversation], owner: Callable[[str], Client], tmp_path: Path
) -> None:
    records = list(corpus.records(of))
    import_records(tmp_path / "in", records)
    owners, expected = owners_and_texts(records)
    assert len(expected) == len(of)
    for session, texts in expected.items():
        alice, path = owner(owners[session]), f"/chats/{session}/messages"
        assert alice.get(f"{path}?limit=1").meta["total"] == len(texts)
        for direction in DIRECTIONS:
            messages = walk(alice, path, direction=direction, limit=7)
            assert [one["content"] for one in messages] == as_content(texts, direction)
            assert {one["chat_session_id"] for one in messages} == {session}
            stamps = [one["created_at"] for one in messages]
            assert stamps == sorted(stamps, reverse=direction == "backward")


def test_conversations_are_returned_as_imported_over_http(tmp_path: Path) -> None:
    records = list(corpus.records(SAMPLE))
    fill(tmp_path / "data", records)
    owners, expected = owners_and_texts(records)
    alice = next(one["user"] for one in records if one.get("user", {}).get("email", "").startswith("alice@"))
    own = [session for session, owner in owners.items() if owner == alice["id"]]
    assert len(own) > 30
    with serving(tmp_path / "data") as server:
        token, connection = server.log_in(alice["email"], alice["password"]), server.connect()
        for session in own:
            for direction in DIRECTIONS:
                path = f"/api/v1/chats/{session}/messages?direction={direction}&limit=200"
                page = send_request(connection, "GET", path, token=token)
                assert [one["content"] for one in page.data] == as_content(expected[session], direction)
                assert page.meta == {"next_cursor": "", "page": 1, "per_page": 200, "total": len(expected[session])}
        connection.close()


def test_export_after_import_is_identical(application: Any, tmp_path: Path) -> None:
    first: list[bytes] = []
    import_records(tmp_path / "in", list(corpus.records(SAMPLE)))
    import_export.export(first.append)
    (tmp_path / "out").write_bytes(b"".join(first))
    again: list[bytes] = []
    assert import_export.import_files([tmp_path / "out"]) == []
    import_export.export(again.append)
    assert again == first


def long_session(length: int) -> tuple[list[Record], list[str]]:
    """The records of a session with many messages of the corpus within a few seconds, and their texts."""
    lines = cycle([line for one in CONVERSATIONS for line in one.lines])
    texts = list(islice(lines, length))
    stamp = "2026-11-20T10:00:{:02}.{:03}Z"
    stamps = (stamp.format(place * 50 // length, place * 50_000 // length % 1000) for place in range(length))
    messages = [
        {"message": {"chat_session_id": SESSION, "text": text, "created_at": moment}}
        for text, moment in zip(texts, stamps, strict=True)
    ]
    return [*chat(0), *messages], texts


@pytest.fixture
def get_page(owner: Callable[[str], Client]) -> Iterator[Callable[[str], tuple[Any, int]]]:
    """Request a page. Returns it and its cost in thousands of instructions of SQLite, or 0 on PostgreSQL."""
    if is_chosen():
        yield lambda path: (owner(ALICE).get(path), 0)
        return
    connection = db.database.connection()

    def get(path: str) -> tuple[Any, int]:
        steps = 0

        def count() -> bool:
            nonlocal steps
            steps += 1
            return False

        connection.set_progress_handler(count, 1000)
        page = owner(ALICE).get(path)
        connection.set_progress_handler(None)
        return page, steps

    yield get
    connection.set_progress_handler(None)


@pytest.mark.parametrize("length", [2_000, pytest.param(LONG, marks=pytest.mark.extended)])
def test_all_pages_of_a_long_session_have_the_same_cost(
    length: int, get_page: Callable[[str], tuple[Any, int]], tmp_path: Path
) -> None:
    records, texts = long_session(length)
    import_records(tmp_path / "in", records)
    assert ChatSession.get_by_id(SESSION).shown_total == length
    assert User.select().count() == 1
    for direction in DIRECTIONS:
        expected, place, cursor, number, costs = as_content(texts, direction), 0, "", 0, []
        while number == 0 or cursor:
            number += 1
            following = f"&cursor={cursor}" if cursor else ""
            page, steps = get_page(f"/chats/{SESSION}/messages?limit=200&direction={direction}{following}")
            contents = [one["content"] for one in page.data]
            assert contents == expected[place : place + 200]
            place, cursor = place + len(contents), page.meta["next_cursor"]
            assert page.meta == {"next_cursor": cursor, "page": number, "per_page": 200, "total": length}
            costs.append(steps)
        assert (place, number) == (length, length // 200)
        assert max(costs) <= 1.2 * min(costs) + 2


def test_corpus_has_unescaped_text() -> None:
    lines = json_lines(corpus.records(SAMPLE)).decode()
    assert all(json.loads(line) for line in lines.split("\n") if line)
    assert "\\u" not in lines
