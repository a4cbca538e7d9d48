"""Real conversations, imported and read back as their owners do: every byte, in order, in both directions."""

import json
from collections.abc import Callable, Iterator
from itertools import cycle, groupby, islice
from pathlib import Path
from typing import Any

import pytest

from service import db, transfer
from service.auth import tokens
from service.demo import make as corpus
from service.fields import as_bytes
from service.models import ChatSession, User
from service.settings import Settings
from tests.conftest import Client, walk
from tests.postgres import is_chosen
from tests.serving import ALICE, SESSION, Record, ask, chat, fill, json_lines, serving

pytestmark = pytest.mark.slow

DIRECTIONS = ("forward", "backward")
LONG = 100_000
EVERYTHING = list(corpus.conversations())
FEW = [one for _, same in groupby(EVERYTHING, lambda one: one.language) for one in islice(same, 3)]

Said = dict[str, list[str]]  # the texts of each chat session, in order


def said(records: list[Record]) -> tuple[dict[str, str], Said]:
    """Who owns each chat session, and what was said in it."""
    owners = {one["chat_session"]["id"]: one["chat_session"]["user_id"] for one in records if "chat_session" in one}
    texts: Said = {session: [] for session in owners}
    for one in records:
        if "message" in one:
            texts[one["message"]["chat_session_id"]].append(one["message"]["text"])
    return owners, texts


def as_content(texts: list[str], direction: str) -> list[list[int]]:
    """Texts as the content of messages on the wire, in the order of a direction."""
    ordered = texts if direction == "forward" else texts[::-1]
    return [as_bytes({"text": text}) for text in ordered]


@pytest.fixture
def owner(application: Any, settings: Settings) -> Callable[[str], Client]:
    """Logs in whom an import has brought."""
    known: dict[str, Client] = {}

    def log_in(user_id: str) -> Client:
        if user_id not in known:
            with db.write():
                known[user_id] = Client(application, tokens.begin(user_id, settings).access_token)
        return known[user_id]

    return log_in


def take_in(path: Path, records: list[Record]) -> None:
    path.write_bytes(json_lines(records))
    assert transfer.take_in([path]) == []


@pytest.mark.parametrize("of", [FEW, pytest.param(EVERYTHING, marks=pytest.mark.slow)], ids=["some", "all"])
def test_every_conversation_reads_as_it_was_said(
    of: list[corpus.Conversation], owner: Callable[[str], Client], tmp_path: Path
) -> None:
    records = list(corpus.records(of))
    take_in(tmp_path / "in", records)
    owners, expected = said(records)
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


def test_some_conversations_read_the_same_from_a_real_server(tmp_path: Path) -> None:
    records = list(corpus.records(FEW))
    fill(tmp_path / "data", records)
    owners, expected = said(records)
    alice = next(one["user"] for one in records if one.get("user", {}).get("email", "").startswith("alice@"))
    hers = [session for session, owner in owners.items() if owner == alice["id"]]
    assert len(hers) > 30
    with serving(tmp_path / "data") as server:
        token, connection = server.log_in(alice["email"], alice["password"]), server.connect()
        for session in hers:
            for direction in DIRECTIONS:
                path = f"/api/v1/chats/{session}/messages?direction={direction}&limit=200"
                page = ask(connection, "GET", path, token=token)
                assert [one["content"] for one in page.data] == as_content(expected[session], direction)
                assert page.meta == {"next_cursor": "", "page": 1, "per_page": 200, "total": len(expected[session])}
        connection.close()


def test_exporting_conversations_and_importing_them_again_gives_the_same_bytes(
    application: Any, tmp_path: Path
) -> None:
    first: list[bytes] = []
    take_in(tmp_path / "in", list(corpus.records(FEW)))
    transfer.give_out(first.append)
    (tmp_path / "out").write_bytes(b"".join(first))
    again: list[bytes] = []
    assert transfer.take_in([tmp_path / "out"]) == []
    transfer.give_out(again.append)
    assert again == first


def long_session(length: int) -> tuple[list[Record], list[str]]:
    """One session of many lines of the corpus, all said within the same few seconds, and its texts."""
    lines = cycle([line for one in EVERYTHING for line in one.lines])
    texts = list(islice(lines, length))
    stamp = "2026-11-20T10:00:{:02}.{:03}Z"
    stamps = (stamp.format(place * 50 // length, place * 50_000 // length % 1000) for place in range(length))
    spoken = [
        {"message": {"chat_session_id": SESSION, "text": text, "created_at": moment}}
        for text, moment in zip(texts, stamps, strict=True)
    ]
    return [*chat(0), *spoken], texts


@pytest.fixture
def work(owner: Callable[[str], Client]) -> Iterator[Callable[[str], tuple[Any, int]]]:
    """Asks for a page; it and how many thousand steps SQLite's machine took, which PostgreSQL has not."""
    if is_chosen():
        yield lambda path: (owner(ALICE).get(path), 0)
        return
    connection = db.database.connection()

    def ask_for(path: str) -> tuple[Any, int]:
        steps = 0

        def count() -> None:
            nonlocal steps
            steps += 1

        connection.set_progress_handler(count, 1000)
        page = owner(ALICE).get(path)
        connection.set_progress_handler(None, 0)
        return page, steps

    yield ask_for
    connection.set_progress_handler(None, 0)


@pytest.mark.parametrize("length", [2_000, pytest.param(LONG, marks=pytest.mark.slow)])
def test_a_long_session_reads_as_it_was_said_and_no_page_is_dearer_than_another(
    length: int, work: Callable[[str], tuple[Any, int]], tmp_path: Path
) -> None:
    records, texts = long_session(length)
    take_in(tmp_path / "in", records)
    assert ChatSession.get_by_id(SESSION).shown_total == length
    assert User.select().count() == 1
    for direction in DIRECTIONS:
        expected, place, cursor, number, costs = as_content(texts, direction), 0, "", 0, []
        while number == 0 or cursor:
            number += 1
            following = f"&cursor={cursor}" if cursor else ""
            page, steps = work(f"/chats/{SESSION}/messages?limit=200&direction={direction}{following}")
            contents = [one["content"] for one in page.data]
            assert contents == expected[place : place + 200]
            place, cursor = place + len(contents), page.meta["next_cursor"]
            assert page.meta == {"next_cursor": cursor, "page": number, "per_page": 200, "total": length}
            costs.append(steps)
        assert (place, number) == (length, length // 200)
        assert max(costs) <= 1.2 * min(costs) + 2


def test_the_corpus_is_json_lines_of_its_own_scripts() -> None:
    told = json_lines(corpus.records(FEW)).decode()
    assert all(json.loads(line) for line in told.split("\n") if line)
    assert "\\u" not in told
