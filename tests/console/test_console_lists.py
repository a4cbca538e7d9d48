"""Lists on console pages have at most 25 rows and a bounded number of bytes each; further pages have the other rows."""

import html
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from service import clock, db
from service.console import layout, messages
from service.db.engine import PAGE_BYTES, page_bytes
from service.models import Bot, ChatSession, DataShare, Event, Feedback, LoginSession, Message, Notification
from service.models.messages import PIN_LIMIT
from service.models.recompute import recompute
from tests.support.client import Client
from tests.support.web_client import Browser

pytestmark = pytest.mark.slow


ROWS = 60
FRAME = 48 * 1024  # bytes of a page beside its list
KIB = 1024
SMALL, LONG = "short", "é" * 9_000


@pytest.fixture
def browser(alice: Client) -> Browser:
    return Browser(alice.application).signed_in(alice)


def pages_of(browser: Browser, path: str, row: str) -> Iterator[tuple[list[str], str]]:
    """The rows and the text of each page of a list, by following the links to the next page."""
    seen = set()
    while path not in seen:
        seen.add(path)
        reply = browser.open(path)
        assert reply.status == 200, path
        text = reply.raw.decode()
        yield re.findall(row, text), text
        link = re.search(r'<nav class="pagination" aria-label="Pages"><a class="secondary" href="([^"]+)"', text)
        if not link:
            return
        path = path.partition("?")[0] + html.unescape(link[1])
    raise AssertionError("the links form a cycle")


Make = Callable[[Client, str], list[str]]
HIDDEN_ID = r'name="id" value="([^"]+)"'


def make_shares(client: Client, text: str, **columns: Any) -> list[str]:
    tools = json.dumps([f"{number}{text}"[:255] for number in range(len(text) // 10 + 1)])
    common = {"user_id": client.user.id, "allowed_tools": tools, **columns}
    return [DataShare.create(mcp_server_id=f"server {number:02}", **common).id for number in range(ROWS)]


def make_events(client: Client, text: str) -> list[str]:
    common = {"user_id": client.user.id, "title": "x", "starts_at": "2990-01-01T00:00:00.000Z", "notes": text}
    return [Event.create(**common).id for _ in range(ROWS)]


def make_notifications(client: Client, text: str) -> list[str]:
    return [Notification.create(user_id=client.user.id, title="x", body=text).id for _ in range(ROWS)]


def make_feedback(client: Client, text: str) -> list[str]:
    return [Feedback.create(user_id=client.user.id, description=text).id for _ in range(ROWS)]


def make_clients(client: Client, text: str) -> list[str]:
    common = {"user_id": client.user.id, "kind": "client", "scopes": f"{text} " * 60, "label": "x"}
    common["expires_at"] = clock.now() + clock.DAY
    return [LoginSession.create(install_id=str(number), **common).id for number in range(ROWS)]


LISTS: dict[str, tuple[str, str, Make]] = {
    "shares": ("/console/shares", HIDDEN_ID, make_shares),
    "past shares": (
        "/console/shares?past=true",
        r"<bdi>(server \d\d)</bdi>",
        lambda client, text: [
            DataShare.get_by_id(id).mcp_server_id for id in make_shares(client, text, revoked_at=clock.timestamp())
        ],
    ),
    "events": ("/console/events", r"<form.*\n.*\n" + f".*{HIDDEN_ID}", make_events),
    "notifications": ("/console/notifications", HIDDEN_ID, make_notifications),
    "feedback": ("/console/feedback", r'id="f-([^"]+)"', make_feedback),
    "clients": ("/console/account?clients=true", HIDDEN_ID, make_clients),
}


@pytest.mark.parametrize("text", [SMALL, LONG], ids=["short", "long"])
@pytest.mark.parametrize("kind", LISTS)
def test_every_row_is_on_one_of_the_bounded_pages(kind: str, text: str, alice: Client, browser: Browser) -> None:
    path, row, make = LISTS[kind]
    with db.write():
        ids = make(alice, text[:100] if kind == "clients" else text)
    found, lengths, sizes = [], [], []
    for rows, page in pages_of(browser, path, row):
        rows = list(dict.fromkeys(rows))
        found += rows
        lengths.append(len(rows))
        sizes.append(len(page.encode()))
    assert sorted(found) == sorted(ids)
    assert max(lengths) <= layout.PAGE_ROWS
    assert max(sizes) <= db.HTML_PAGE_BYTES + FRAME
    if text == SMALL:
        assert lengths == [25, 25, 10]


def test_grant_shows_the_number_of_further_tools(alice: Client, browser: Browser) -> None:
    tools = json.dumps([f"tool-{number}" for number in range(40)] + ["x" * 300])
    DataShare.create(user_id=alice.user.id, mcp_server_id="files", allowed_tools=tools)
    text = browser.open("/console/shares").raw.decode()
    assert "tool-24<" in text
    assert "tool-25<" not in text
    assert "and 16 more" in text


def test_grant_on_a_further_page_can_be_revoked(alice: Client, browser: Browser) -> None:
    make_shares(alice, SMALL)
    *_, (rows, text) = pages_of(browser, "/console/shares", HIDDEN_ID)
    token = re.findall(r'name="csrf_token" value="([^"]+)"', text)[0]
    reply = browser.navigate("POST", "/console/shares", {"csrf_token": token, "act": "revoke", "id": rows[-1]})
    assert reply.status == 200
    assert "Access revoked." in reply.raw.decode()
    assert DataShare.get_by_id(rows[-1]).revoked_at


def make_messages(client: Client, session: ChatSession, content: str, number: int, **columns: Any) -> list[str]:
    common = {"owner_id": client.user.id, "app_id": session.app_id, "sender_id": client.user.id, **columns}
    common |= {"chat_session_id": session.id, "content": content}
    with db.write():
        ids = [clock.ulid() for _ in range(number)]
        for id in ids:
            Message.insert(id=id, **common).execute()
    recompute([session.id])
    return ids


def stored(value: Any) -> str:
    return f"[{','.join(map(str, json.dumps(value).encode()))}]"


CONTENTS = {
    "short texts": stored({"text": "short"}),
    "long texts": stored({"text": "long " * 4_000}),
    "other JSON": stored({"numbers": list(range(5_000))}),
    "bytes": f"[{','.join(['255'] * 64 * KIB)}]",
}


@pytest.mark.parametrize("content", CONTENTS)
def test_every_message_is_on_one_of_the_bounded_pages(
    content: str, alice: Client, session: ChatSession, browser: Browser
) -> None:
    ids = make_messages(alice, session, CONTENTS[content], 60)
    found: list[str] = []
    path = f"/console/chats/{session.id}"
    while True:
        text = browser.open(path + (f"?before={found[0]}" if found else "")).raw.decode()
        rows = re.findall(r'id="m-(\w+)"', text)
        assert 0 < len(rows) <= layout.PAGE_ROWS
        assert len(text.encode()) <= db.HTML_PAGE_BYTES + FRAME
        found = rows + found
        if "Older messages" not in text:
            break
    assert found == ids
    text = browser.open(f"{path}?at={ids[30]}").raw.decode()
    rows = re.findall(r'id="m-(\w+)"', text)
    assert ids[30] in rows
    assert "".join(rows) in "".join(ids)
    assert len(text.encode()) <= db.HTML_PAGE_BYTES + FRAME


def test_other_json_is_shown_up_to_a_bounded_length(alice: Client, session: ChatSession, browser: Browser) -> None:
    make_messages(alice, session, CONTENTS["bytes"], 1)
    (code,) = re.findall(r"<code>(.*?)</code>", browser.open(f"/console/chats/{session.id}").raw.decode(), re.DOTALL)
    assert len(code) == messages.MAX_JSON + 1
    assert code.endswith("…")


def test_pinned_messages_are_shown_by_their_beginnings(alice: Client, session: ChatSession, browser: Browser) -> None:
    long = "pin " * 1_000
    common = {"pinned_at": clock.timestamp(), "plain_text": long}
    make_messages(alice, session, stored({"text": long}), PIN_LIMIT, **common)
    text = browser.open(f"/console/chats/{session.id}").raw.decode()
    (pinned,) = re.findall(r'<div data-part="pinned">(.*?)</div>', text, re.DOTALL)
    assert f"{PIN_LIMIT} pinned" in pinned
    assert pinned.count(long[:200]) == PIN_LIMIT
    assert long[:201] not in pinned


def test_search_shows_the_beginnings_of_long_messages(alice: Client, session: ChatSession, browser: Browser) -> None:
    long = "tulip " * 1_000
    make_messages(alice, session, stored({"text": long}), 60, plain_text=long, search_text=long)
    pages = list(pages_of(browser, "/console/search?q=tulip", r"\?at=(\w+)#"))
    assert len([id for rows, _ in pages for id in rows]) == 60
    assert max(len(rows) for rows, _ in pages) <= layout.PAGE_ROWS
    assert max(len(text.encode()) for _, text in pages) <= FRAME + 25 * KIB


def test_bots_with_long_descriptions_are_on_bounded_pages(session: ChatSession, browser: Browser) -> None:
    common = {"app_id": session.app_id, "name": "x", "status": "published", "description": LONG}
    with db.write():
        ids = [Bot.create(**common).id for _ in range(ROWS)]
    pages = list(pages_of(browser, f"/console/bots?app_id={session.app_id}", r'id="b-([^"]+)"'))
    assert sorted(ids + [session.bot_id]) == sorted(id for rows, _ in pages for id in rows)
    assert max(len(text.encode()) for _, text in pages) <= db.HTML_PAGE_BYTES + FRAME


def test_pages_of_the_api_keep_their_size(alice: Client, browser: Browser) -> None:
    browser.open("/console/events")
    assert page_bytes(1_000) == PAGE_BYTES
    with db.limit_pages(10):
        assert page_bytes(1_000) == 10
        with db.limit_pages(20):
            assert page_bytes(1_000) == 20
        assert page_bytes(1_000) == 10
    assert page_bytes(1_000) == PAGE_BYTES
