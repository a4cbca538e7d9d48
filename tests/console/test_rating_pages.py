"""Ratings in the console, without scripts."""

from collections.abc import Callable
from typing import Any

import pytest

from service.models import ChatRating, ChatSession
from tests.support.client import Client
from tests.support.observe import nothing_changes
from tests.support.web_client import Browser, Forms

pytestmark = pytest.mark.database


@pytest.fixture
def at(application: Any) -> Callable[[Client], Browser]:
    """Sign a user in."""
    return lambda client: Browser(application).signed_in(client)


def rating_forms(browser: Browser, session: ChatSession) -> list[dict[str, str]]:
    browser.open(f"/console/chats/{session.id}")
    return [fields for _, fields in Forms(browser.reply.raw.decode()).found if "score" in fields]


def test_customer_rates_a_chat_that_is_over_and_staff_see_it(alice, agent, session, shop, at):
    browser, staff = at(alice), at(agent)
    assert rating_forms(browser, session) == []
    assert alice.post(f"/chats/{session.id}/end").status == 200
    (fields,) = rating_forms(browser, session)
    assert rating_forms(staff, session) == []
    path = f"/console/chats/{session.id}"
    with nothing_changes(ChatRating):
        assert browser.navigate("POST", path, {**fields, "act": "rate", "score": ""}).status == 400
    assert "Choose a number of stars." in browser.text
    values = {**fields, "act": "rate", "score": "4", "comment": "So <b>quick</b>"}
    assert browser.navigate("POST", path, values).status == 200
    assert "Thank you for your rating." in browser.text
    assert [(rating.score, rating.comment) for rating in ChatRating.select()] == [(4, "So <b>quick</b>")]
    assert b'value="4" required checked' in browser.reply.raw
    assert b">So &lt;b&gt;quick&lt;/b&gt;</textarea>" in browser.reply.raw
    staff.open(path)
    assert "Rated 4 of 5" in staff.text
    assert b"<bdi>So &lt;b&gt;quick&lt;/b&gt;</bdi>" in staff.reply.raw
    staff.open(f"/console/catalogue?app_id={shop.id}")
    assert "Satisfied customers: 100 %, mean 4.0 of 5 (1)" in staff.text


def test_archived_chat_can_be_rated(alice, session, at):
    assert alice.post(f"/chats/{session.id}/archive").status == 200
    assert len(rating_forms(at(alice), session)) == 1
