"""Lists without pages are bounded by what may be stored, or by what they return: each is one response."""

import json
from typing import Any

import pytest

from service import clock
from service.db.engine import PAGE_BYTES, page_bytes
from service.models import Bot, ChatSession, DataShare, Event, LoginSession, Message, User, inbox
from service.models.data_shares import ACTIVE_BYTES, ACTIVE_LIMIT
from service.models.logins import INSTALL_LIMIT
from service.models.messages import PIN_BYTES, PIN_LIMIT
from service.models.recompute import recompute
from tests.support.cli_login import approve_fixture as approve_fixture
from tests.support.cli_login import browser_fixture as browser_fixture
from tests.support.cli_login import consent_address
from tests.support.cli_login import request_tokens_fixture as request_tokens_fixture
from tests.support.client import Client, Reply
from tests.support.observe import nothing_changes

WIDE = "é" * 255  # 510 bytes
TOOLS = [f"{number:03}{WIDE[3:]}" for number in range(500)]  # 250 KiB


@pytest.fixture
def bot(shop):
    """A bot that does not answer."""
    return Bot.create(app_id=shop.id, name="Hilda", kind="nobot", status="published")


def give(client: Client, **members: Any) -> Reply:
    return client.post("/data-shares", {"mcp_server_id": "files", "allowed_tools": TOOLS, **members})


@pytest.mark.slow
def test_active_grants_have_a_total_limit_in_bytes(alice, bob):
    number = ACTIVE_BYTES // len(json.dumps(TOOLS, ensure_ascii=False).encode())
    given = [give(alice) for _ in range(number)]
    assert {reply.status for reply in given} == {201}
    with nothing_changes():
        assert give(alice).error == (400, "grant_limit_reached")
    assert str(ACTIVE_BYTES) in give(alice).message
    assert give(alice, allowed_tools=["read"]).status == 201
    assert give(bob).status == 201
    listed = alice.get("/data-shares")
    assert len(listed.data) == number + 1
    assert len(listed.raw) < PAGE_BYTES
    alice.delete(f"/data-shares/{given[0].data['id']}")
    assert give(alice).status == 201


def test_grants_beyond_the_limit_are_omitted_from_the_list_and_can_be_read(alice):
    tools = json.dumps(TOOLS, ensure_ascii=False)
    columns = {"user_id": alice.user.id, "mcp_server_id": "files", "allowed_tools": tools}
    stored = [DataShare.create(**columns) for _ in range(20)]
    reply = alice.get("/data-shares")
    assert 10 < len(reply.data) < 20
    assert len(reply.raw) <= PAGE_BYTES + 1024
    assert {alice.get(f"/data-shares/{grant.id}").status for grant in stored} == {200}
    for grant in reply.data:
        assert alice.delete(f"/data-shares/{grant['id']}").status == 200
    assert len(alice.get("/data-shares").data) == 20 - len(reply.data)


LARGE = [255] * (64 * 1024)  # a content of 256 KiB


def send(client: Client, session: ChatSession, content: Any, **members: Any) -> str:
    reply = client.post(f"/chats/{session.id}/messages", {"content": content, **members})
    assert reply.status == 201, reply.json
    return f"/chats/{session.id}/messages/{reply.data['id']}"


@pytest.mark.slow
def test_pinned_messages_have_a_total_limit_in_bytes(alice, agent, session):
    fitting = PIN_BYTES // (4 * len(LARGE) + 16)
    paths = [send(alice, session, LARGE) for _ in range(fitting + 1)]
    assert [alice.post(f"{path}/pin").status for path in paths[:-1]] == [200] * fitting
    with nothing_changes():
        assert alice.post(f"{paths[-1]}/pin").error == (400, "pin_limit_reached")
    small = send(alice, session, {"text": "small"})
    assert alice.post(f"{small}/pin").status == 200
    assert alice.post(f"{paths[0]}/pin").status == 200, "pinned already"
    notes = [send(agent, session, LARGE, is_private=True) for _ in range(fitting)]
    assert [agent.post(f"{path}/pin").status for path in notes] == [200] * fitting
    reply = agent.get(f"/chats/{session.id}/pinned-messages")
    assert len(reply.data) == 2 * fitting + 1
    assert len(reply.raw) < PAGE_BYTES


@pytest.mark.slow
def test_editing_a_pinned_message_cannot_exceed_the_limit(alice, session):
    fitting = PIN_BYTES // (4 * len(LARGE) + 16)
    paths = [send(alice, session, LARGE) for _ in range(fitting)]
    grown, other = send(alice, session, [255] * 9), send(alice, session, [255] * 9)
    for path in (*paths, grown):
        assert alice.post(f"{path}/pin").status == 200
    with nothing_changes():
        assert alice.patch(grown, {"content": LARGE}).error == (400, "pin_limit_reached")
    assert alice.patch(grown, {"content": [255] * 8}).status == 200
    assert alice.patch(other, {"content": LARGE}).status == 200
    alice.delete(f"{paths[0]}/pin")
    assert alice.patch(grown, {"content": LARGE[:-1000]}).status == 200
    assert alice.patch(grown, {"content": LARGE[:-2000]}).status == 200


def test_pins_beyond_the_limit_are_omitted_oldest_first(alice, session):
    content = f"[{','.join(['255'] * len(LARGE))}]"
    for number in range(PIN_LIMIT):
        at = f"2026-01-01T00:00:00.{number:03}Z"
        Message.create(id=clock.ulid(), chat_session_id=session.id, content=content, pinned_at=at)
    recompute([session.id])
    reply = alice.get(f"/chats/{session.id}/pinned-messages")
    room = page_bytes(PIN_LIMIT + 1)
    newest = [row.id for row in Message.select(Message.id).order_by(Message.id.desc()).limit(len(reply.data))]
    assert len(reply.raw) <= room + 1024
    assert [row["id"] for row in reply.data] == newest
    assert len(newest) == room // len(content)


def test_a_context_has_a_limit_in_characters(alice, session, monkeypatch):
    monkeypatch.setattr(inbox, "CONTEXT_LENGTH", 100)
    for text in ("a" * 30, "b" * 50, "c" * 50):
        send(alice, session, {"text": text})
    texts = [message["text"][0] for message in alice.get(f"/chats/{session.id}/context").data["messages"]]
    assert texts == ["b", "c"]
    send(alice, session, {"text": "d" * 101})
    texts = [message["text"][0] for message in alice.get(f"/chats/{session.id}/context").data["messages"]]
    assert texts == ["d"], "the newest is there however long it is"


def test_a_calendar_feed_has_a_limit_in_bytes(alice):
    token = alice.post("/events/feed").data["url"].partition("token=")[2]
    for _ in range(300):
        Event.create(user_id=alice.user.id, title="x", starts_at=clock.timestamp(), notes="é" * 10_000)
    feed = alice.get(f"/events.ics?token={token}").raw
    assert 200 < feed.count(b"BEGIN:VEVENT") < 300
    assert len(feed) < PAGE_BYTES * 1.1


def install(user: User, number: int) -> LoginSession:
    later = clock.now() + clock.DAY
    return LoginSession.create(
        user_id=user.id, kind="client", install_id=f"i{number}", expires_at=later, scopes="chats"
    )


def test_a_user_has_a_limited_number_of_command_line_clients(alice, browser, approve, request_tokens):  # noqa: F811
    held = [install(alice.user, number) for number in range(INSTALL_LIMIT - 1)]
    first, second = approve(install_id="first"), approve(install_id="second")
    assert request_tokens(code=first["code"]).status == 200
    refused = request_tokens(code=second["code"])
    assert (refused.status, refused.json["error"]) == (400, "invalid_grant")
    assert browser.open(consent_address(install_id="third")).status == 200
    page = browser.send(answer="approve")
    assert page.status == 400
    assert b"100 command-line clients" in page.raw
    assert approve(install_id="first")["code"], "one that acts already may be approved again"
    held[0].end()
    assert request_tokens(code=approve(install_id="third")["code"]).status == 200
    assert len(alice.get("/users/me/installs").data) == INSTALL_LIMIT


@pytest.mark.parametrize(
    ("contents", "rows", "other_members"),
    [
        (ACTIVE_BYTES, ACTIVE_LIMIT, 3 * 1024),
        (PIN_BYTES, PIN_LIMIT, 2 * 1024),
        (2 * PIN_BYTES, 2 * PIN_LIMIT, 2 * 1024),
    ],
)
def test_the_limits_fit_in_one_response(contents, rows, other_members):
    assert contents + rows * other_members <= page_bytes(rows)
