"""A page of messages that has not changed is not sent again (RFC 9110, section 13.1.2)."""

from collections.abc import Callable
from typing import Any

import pytest

from service import clock
from service.models import ChatSession, Message
from service.models.chats import silencing
from tests.conftest import Client
from tests.watching import statements


@pytest.fixture
def page(session: ChatSession, alice: Client) -> str:
    """The address of a page, in a session with some messages."""
    path = f"/chats/{session.id}/messages"
    for number in range(3):
        alice.post(path, {"content": f"line {number}"})
    return path


def tag(client: Client, path: str) -> str:
    reply = client.get(path)
    assert reply.status == 200
    return reply.headers["ETag"]


def is_unchanged(client: Client, path: str, known: str) -> bool:
    """Whether a client that has a page is told so; else it gets another, with another tag."""
    reply = client.get(path, if_none_match=known)
    assert (reply.status, reply.raw == b"") in ((304, True), (200, False))
    assert (reply.headers["ETag"] == known) == (reply.status == 304)
    return reply.status == 304


def test_who_has_it_is_told_so_without_reading_it(alice, page):
    known = tag(alice, page)
    with statements() as seen:
        assert is_unchanged(alice, page, known)
    assert not [sql for sql, _ in seen if '"message"' in sql]
    for others in (f'"other", W/{known}', "*"):
        assert alice.get(page, if_none_match=others).status == 304
    assert not is_unchanged(alice, page, '"other"')


def test_it_is_private_and_asked_for_each_time(alice, page):
    reply = alice.get(page, if_none_match=tag(alice, page))
    assert reply.headers["Cache-Control"] == "private, no-cache"
    assert "Content-Type" not in reply.headers


def test_each_page_has_a_tag_of_its_own(alice, agent, page):
    cursor = alice.get(f"{page}?limit=1").meta["next_cursor"]
    asked = ("", "?limit=1", "?limit=2", "?direction=backward", f"?cursor={cursor}")
    tags = [tag(alice, page + query) for query in asked] + [tag(agent, page)]
    assert len(set(tags)) == len(tags)


def test_whoever_may_not_read_it_learns_nothing_of_it(alice, bob, anyone, page):
    known = tag(alice, page)
    assert bob.get(page, if_none_match=known).error == (400, "session_not_found")
    assert anyone.get(page, if_none_match=known).error == (401, "missing_credentials")
    assert alice.get(f"{page}?limit=x", if_none_match=known).error == (400, "invalid_parameter")


Act = Callable[[Client, Client, str, str], Any]
CHANGES: dict[str, Act] = {
    "send": lambda alice, agent, page, id: alice.post(page, {"content": "x"}),
    "answer": lambda alice, agent, page, id: agent.post(page, {"content": "x"}),
    "edit": lambda alice, agent, page, id: alice.patch(f"{page}/{id}", {"content": "other"}),
    "pin": lambda alice, agent, page, id: alice.post(f"{page}/{id}/pin"),
    "delete": lambda alice, agent, page, id: agent.delete(f"{page}/{id}"),
    "purge": lambda alice, agent, page, id: Message.purge(Message.id == id),
}


@pytest.mark.parametrize("change", CHANGES)
def test_after_every_change_there_is_another(change, alice, agent, page):
    id = alice.get(page).data[0]["id"]
    known = {client: tag(client, page) for client in (alice, agent)}
    before = alice.get(page).raw
    CHANGES[change](alice, agent, page, id)
    assert alice.get(page).raw != before
    for client in (alice, agent):
        assert not is_unchanged(client, page, known[client])


def test_taking_a_pin_off_is_a_change(alice, page):
    id = alice.get(page).data[0]["id"]
    alice.post(f"{page}/{id}/pin")
    known = tag(alice, page)
    alice.delete(f"{page}/{id}/pin")
    assert not is_unchanged(alice, page, known)


def test_what_changes_nothing_gives_the_same(alice, agent, page):
    id = alice.get(page).data[0]["id"]
    alice.post(f"{page}/{id}/pin")
    known = tag(alice, page)
    alice.post(f"{page}/{id}/pin")
    alice.patch(f"{page}/{id}", {"content": alice.get(page).data[0]["content"]})
    alice.put(f"{page.removesuffix('/messages')}/read", {"message_id": id})
    assert is_unchanged(alice, page, known)


def test_of_a_note_customers_learn_nothing(alice, agent, page):
    known = {client: tag(client, page) for client in (alice, agent)}
    note = agent.post(page, {"content": "a note", "is_private": True}).data["id"]
    agent.patch(f"{page}/{note}", {"content": "another"})
    agent.delete(f"{page}/{note}")
    assert is_unchanged(alice, page, known[alice])
    assert not is_unchanged(agent, page, known[agent])


def test_a_quotation_elsewhere_goes_with_what_it_quotes(alice, agent, page, session, shop):
    """As imports may have it."""
    other = ChatSession.create(app_id=shop.id, user_id=alice.user.id)
    elsewhere = f"/chats/{other.id}/messages"
    id = alice.get(page).data[0]["id"]
    for is_private in (False, True):
        sent = agent.post(elsewhere, {"content": "see there", "is_private": is_private}).data["id"]
        Message.update(reply_to_message_id=id, reply_snapshot="[1]").where(Message.id == sent).execute()
        known = {client: tag(client, elsewhere) for client in (alice, agent)}
        for query in silencing(Message.id == id, clock.now()):
            query.execute()
        assert is_unchanged(alice, elsewhere, known[alice]) == is_private
        assert not is_unchanged(agent, elsewhere, known[agent])
