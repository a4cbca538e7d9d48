"""Buttons in the page of a chat, without scripts: staff offer them, the customer chooses one."""

from collections.abc import Callable
from typing import Any

import pytest

from service.models import ChatSession, Message, actions
from tests.support.client import Client, Reply
from tests.support.observe import nothing_changes
from tests.support.web_client import Browser, Forms

pytestmark = pytest.mark.database


@pytest.fixture
def at(application: Any) -> Callable[[Client], Browser]:
    """Sign a user in."""
    return lambda client: Browser(application).signed_in(client)


def chat(session: ChatSession) -> str:
    return f"/console/chats/{session.id}"


def forms(browser: Browser, session: ChatSession, member: str) -> list[dict[str, str]]:
    """Return the fields of the forms on the page of a chat that have a certain member."""
    browser.open(chat(session))
    return [fields for _, fields in Forms(browser.reply.raw.decode()).found if member in fields]


def offer(browser: Browser, session: ChatSession, buttons: str, **values: str) -> Reply:
    (composer,) = forms(browser, session, "number")
    return browser.navigate("POST", chat(session), {**composer, "act": "send", "buttons": buttons, **values})


def presses(browser: Browser, session: ChatSession) -> list[dict[str, str]]:
    return [fields for fields in forms(browser, session, "act") if fields["act"] == "press"]


def press(browser: Browser, session: ChatSession, message: Message, action: str) -> Reply:
    """Press a button that the page may not show any more."""
    token = forms(browser, session, "csrf_token")[0]["csrf_token"]
    values = {"csrf_token": token, "act": "press", "message": message.id, "action": action}
    return browser.navigate("POST", chat(session), values)


def test_customer_chooses_one_of_the_buttons_of_staff(alice, agent, session, at):
    assert offer(at(agent), session, " Yes\r\n\r\nNo, <b>thanks</b>\r\n", text="Again?").status == 200
    (message,) = Message.select()
    assert message.action_payload == actions.offer_of(["Yes", "No, <b>thanks</b>"])
    browser = at(alice)
    (fields,) = presses(browser, session)
    assert "No, &lt;b&gt;thanks&lt;/b&gt;" in browser.reply.raw.decode()
    browser.navigate("POST", chat(session), {**fields, "action": "2"})
    assert browser.reply.status == 200
    chosen = Message.get(Message.sender_id == alice.user.id)
    assert (chosen.plain_text, chosen.action_id, chosen.action_source_id) == ("No, <b>thanks</b>", "2", message.id)
    for client in (alice, agent):
        browser = at(client)
        assert presses(browser, session) == []
        assert browser.reply.raw.count(b"(chosen)") == 1
        assert b'<li class="chosen"><bdi>No, &lt;b&gt;' in browser.reply.raw
    with nothing_changes(Message):
        assert press(at(agent), session, message, "1").status == 403
        browser = at(alice)
        assert press(browser, session, message, "1").status == 400
        assert "An action of this message was chosen before." in browser.text
        assert press(browser, session, message, "2").status == 200


def test_buttons_cannot_be_pressed_by_staff_or_in_an_archived_chat(alice, agent, session, at):
    offer(at(agent), session, "Yes", text="Again?")
    staff = at(agent)
    assert presses(staff, session) == []
    assert b"<bdi>Yes</bdi>" in staff.reply.raw
    assert b"(chosen)" not in staff.reply.raw
    assert len(presses(at(alice), session)) == 1
    assert alice.post(f"/chats/{session.id}/archive").status == 200
    assert presses(at(alice), session) == []


def test_customers_cannot_offer_buttons(alice, agent, session, at):
    browser = at(alice)
    assert forms(browser, session, "buttons") == []
    with nothing_changes():
        assert offer(browser, session, "Yes", text="Again?").status == 403
    assert len(forms(at(agent), session, "buttons")) == 1


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"buttons": "x" * 81}, "Buttons: a label has 1 to 80 characters"),
        ({"buttons": "\n".join("abcdefghi")}, "Buttons: at most eight are possible"),
        ({"buttons": "Yes", "is_private": "true"}, "A private note has no buttons."),
    ],
)
def test_invalid_buttons_keep_the_input(agent, session, at, values, reason):
    browser = at(agent)
    with nothing_changes():
        assert offer(browser, session, **{"text": "Again?", **values}).status == 400
    assert reason in browser.text
    for kept in ("Again?", values["buttons"]):
        assert f">{kept}</textarea>" in browser.reply.raw.decode()
