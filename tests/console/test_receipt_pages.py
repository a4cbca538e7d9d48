"""Receipts in the page of a chat, without scripts."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from service.models import ChatSession
from tests.support.client import Client
from tests.support.messages import read, sent
from tests.support.web_client import Browser, Forms

pytestmark = pytest.mark.database

SignIn = Callable[[Client], Browser]


@pytest.fixture
def at(application: Any) -> SignIn:
    """Sign a user in."""
    return lambda client: Browser(application).signed_in(client)


@pytest.fixture
def session(session: ChatSession) -> ChatSession:
    """A session in which no bot replies."""
    ChatSession.update(bot_id=None).execute()
    return session


def shown(browser: Browser, session: ChatSession) -> list[str]:
    """The statuses that a chat page shows, oldest first; empty for messages without one."""
    page = browser.open(f"/console/chats/{session.id}").raw.decode()
    times = re.findall(r'class="message-time"><time(.*?)</p>', page, re.S)
    return [status for time in times for status in re.findall(r"<span data-receipt>(.*?)</span>|$", time)[:1]]


def mark(browser: Browser, session: ChatSession, act: str) -> None:
    """Use the form of the page that marks the chat as read, as its button and its script do."""
    forms = Forms(browser.open(f"/console/chats/{session.id}").raw.decode()).found
    fields = [fields for _, fields in forms if set(fields) == {"csrf_token", "message"}][-1]
    browser.navigate("POST", f"/console/chats/{session.id}", {**fields, "act": act})
    assert browser.reply.status == 200


def test_page_shows_the_status_of_messages_of_its_side(
    alice: Client, agent: Client, session: ChatSession, at: SignIn
) -> None:
    sent(agent, session)
    customer, staff = at(alice), at(agent)
    assert (shown(customer, session), shown(staff, session)) == ([""], ["Sent"])
    mark(customer, session, "delivered")
    assert (shown(customer, session), shown(staff, session)) == ([""], ["Delivered"])
    mark(customer, session, "read")
    assert (shown(customer, session), shown(staff, session)) == ([""], ["Read"])


def test_notes_and_read_once_messages_have_no_status(agent: Client, session: ChatSession, at: SignIn) -> None:
    sent(agent, session, is_private=True)
    sent(agent, session, is_read_once=True)
    assert shown(at(agent), session) == ["", ""]


def test_user_who_hides_receipts_sees_none(alice: Client, agent: Client, session: ChatSession, at: SignIn) -> None:
    sent(agent, session)
    read(alice, session)
    staff = at(agent)
    assert shown(staff, session) == ["Read"]
    agent.patch("/users/me/settings", {"privacy": {"show_read_receipts": False}})
    assert shown(staff, session) == [""]
