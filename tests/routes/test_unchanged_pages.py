"""An unchanged page of messages is 304 (RFC 9110, section 13.1.2)."""

from collections.abc import Callable
from typing import Any

import pytest

from service import clock
from service.models import ChatSession, Message
from service.models.messages import trace_removals
from tests.support.client import Client
from tests.support.observe import statements


@pytest.fixture
def page(session: ChatSession, alice: Client) -> str:
    """The path of the messages of a session with three messages."""
    path = f"/chats/{session.id}/messages"
    for number in range(3):
        alice.post(path, {"content": f"line {number}"})
    return path


def etag(client: Client, path: str) -> str:
    reply = client.get(path)
    assert reply.status == 200
    return reply.headers["ETag"]


def is_not_modified(client: Client, path: str, known: str) -> bool:
    """Return whether the response is 304; fails if status, body and ETag do not match."""
    reply = client.get(path, if_none_match=known)
    assert (reply.status, reply.raw == b"") in ((304, True), (200, False))
    assert (reply.headers["ETag"] == known) == (reply.status == 304)
    return reply.status == 304


def test_known_page_is_304_without_reading_messages(alice, page):
    known = etag(alice, page)
    with statements() as seen:
        assert is_not_modified(alice, page, known)
    assert not [sql for sql, _ in seen if '"message"' in sql]
    for header in (f'"other", W/{known}', "*"):
        assert alice.get(page, if_none_match=header).status == 304
    assert not is_not_modified(alice, page, '"other"')


def test_response_is_private_and_revalidated(alice, page):
    reply = alice.get(page, if_none_match=etag(alice, page))
    assert reply.headers["Cache-Control"] == "private, no-cache"
    assert "Content-Type" not in reply.headers


def test_each_page_has_its_own_etag(alice, agent, page):
    cursor = alice.get(f"{page}?limit=1").meta["next_cursor"]
    queries = ("", "?limit=1", "?limit=2", "?direction=backward", f"?cursor={cursor}")
    etags = [etag(alice, page + query) for query in queries] + [etag(agent, page)]
    assert len(set(etags)) == len(etags)


def test_access_is_checked_before_the_etag(alice, bob, anyone, page):
    known = etag(alice, page)
    assert bob.get(page, if_none_match=known).error == (400, "session_not_found")
    assert anyone.get(page, if_none_match=known).error == (401, "missing_credentials")
    assert alice.get(f"{page}?limit=x", if_none_match=known).error == (400, "invalid_parameter")


Change = Callable[[Client, Client, str, str], Any]
CHANGES: dict[str, Change] = {
    "send": lambda alice, agent, page, id: alice.post(page, {"content": "x"}),
    "reply": lambda alice, agent, page, id: agent.post(page, {"content": "x"}),
    "edit": lambda alice, agent, page, id: alice.patch(f"{page}/{id}", {"content": "other"}),
    "pin": lambda alice, agent, page, id: alice.post(f"{page}/{id}/pin"),
    "delete": lambda alice, agent, page, id: agent.delete(f"{page}/{id}"),
    "purge": lambda alice, agent, page, id: Message.purge(Message.id == id),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_changes_the_etag(change, alice, agent, page):
    id = alice.get(page).data[0]["id"]
    known = {client: etag(client, page) for client in (alice, agent)}
    before = alice.get(page).raw
    CHANGES[change](alice, agent, page, id)
    assert alice.get(page).raw != before
    for client in (alice, agent):
        assert not is_not_modified(client, page, known[client])


def test_unpinning_changes_the_etag(alice, page):
    id = alice.get(page).data[0]["id"]
    alice.post(f"{page}/{id}/pin")
    known = etag(alice, page)
    alice.delete(f"{page}/{id}/pin")
    assert not is_not_modified(alice, page, known)


def test_requests_without_effect_keep_the_etag(alice, agent, page):
    id = alice.get(page).data[0]["id"]
    alice.post(f"{page}/{id}/pin")
    known = etag(alice, page)
    alice.post(f"{page}/{id}/pin")
    alice.patch(f"{page}/{id}", {"content": alice.get(page).data[0]["content"]})
    alice.put(f"{page.removesuffix('/messages')}/read", {"message_id": id})
    assert is_not_modified(alice, page, known)


def test_notes_do_not_change_the_etag_of_customers(alice, agent, page):
    known = {client: etag(client, page) for client in (alice, agent)}
    note = agent.post(page, {"content": "a note", "is_private": True}).data["id"]
    agent.patch(f"{page}/{note}", {"content": "another"})
    agent.delete(f"{page}/{note}")
    assert is_not_modified(alice, page, known[alice])
    assert not is_not_modified(agent, page, known[agent])


def test_removed_quotation_changes_the_etag_of_another_session(alice, agent, page, session, shop):
    """Import can create a reply in another session."""
    other = ChatSession.create(app_id=shop.id, user_id=alice.user.id)
    other_page = f"/chats/{other.id}/messages"
    id = alice.get(page).data[0]["id"]
    for is_private in (False, True):
        sent = agent.post(other_page, {"content": "see there", "is_private": is_private}).data["id"]
        Message.update(reply_to_message_id=id, reply_snapshot="[1]").where(Message.id == sent).execute()
        known = {client: etag(client, other_page) for client in (alice, agent)}
        for query in trace_removals(Message.id == id, clock.now()):
            query.execute()
        assert is_not_modified(alice, other_page, known[alice]) == is_private
        assert not is_not_modified(agent, other_page, known[agent])
