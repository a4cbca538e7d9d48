"""Read-once messages in the console, without scripts."""

from collections.abc import Callable
from typing import Any

import pytest

from service.models import ChatSession, Message
from tests.support.client import Client, Reply
from tests.support.observe import nothing_changes
from tests.support.web_client import Browser, Forms

pytestmark = pytest.mark.database

SECRET = "The <code> is 4711"


@pytest.fixture
def at(application: Any) -> Callable[[Client], Browser]:
    """Sign a user in."""
    return lambda client: Browser(application).signed_in(client)


def chat(session: ChatSession) -> str:
    return f"/console/chats/{session.id}"


def forms(browser: Browser, session: ChatSession) -> list[tuple[str, dict[str, str]]]:
    browser.open(chat(session))
    return Forms(browser.reply.raw.decode()).found


def send(browser: Browser, session: ChatSession, **values: str) -> Reply:
    (composer,) = [fields for _, fields in forms(browser, session) if "number" in fields]
    return browser.navigate("POST", chat(session), {**composer, "act": "send", "text": SECRET, **values})


def reveals(browser: Browser, session: ChatSession) -> list[tuple[str, dict[str, str]]]:
    return [form for form in forms(browser, session) if form[0].endswith("/reveal")]


@pytest.mark.parametrize(("sender", "reader"), [("agent", "alice"), ("alice", "agent")])
def test_message_is_shown_to_the_other_side_once(request, session, at, sender, reader):
    writing, reading = (at(request.getfixturevalue(name)) for name in (sender, reader))
    assert send(writing, session, is_read_once="true").status == 200
    assert "4711" not in writing.text
    assert "Read-once message, not read yet" in writing.text
    assert reveals(writing, session) == []
    [(action, fields)] = reveals(reading, session)
    assert "4711" not in reading.text
    with nothing_changes(Message):
        assert reading.navigate("POST", action, {**fields, "csrf_token": ""}).status == 400
    [(action, fields)] = reveals(reading, session)
    assert reading.navigate("POST", action, fields).status == 200
    assert "The &lt;code&gt; is 4711" in reading.reply.raw.decode()
    assert "This message is not shown again." in reading.text
    with nothing_changes(Message):
        assert reading.navigate("POST", action, fields).status == 400
    assert "it was read before" in reading.text
    for browser in (writing, reading):
        assert reveals(browser, session) == []
        assert "Read-once message, read" in browser.text
        assert "4711" not in browser.text


@pytest.mark.parametrize("is_revealed", [False, True])
def test_lists_say_what_the_message_is(alice, agent, session, at, is_revealed):
    send(at(agent), session, is_read_once="true")
    message, browser = Message.get(), at(alice)
    if is_revealed:
        assert alice.post(f"/chats/{session.id}/messages/{message.id}/reveal").status == 200
    alice.post(f"/chats/{session.id}/messages/{message.id}/pin")
    row = browser.open("/").raw.decode().partition(f'id="c-{session.id}"')[2].partition("</li>")[0]
    assert ">Read-once message</span>" in row
    html = browser.open(f"{chat(session)}?reply={message.id}").raw.decode()
    pinned = html.partition('class="pinned"')[2].partition("</ul>")[0]
    assert "Read-once message</span>" in pinned
    assert html.partition("Replying to")[2].partition("</p>")[0].count("Read-once message") == 1
    assert "(no text)" not in html


def test_message_cannot_be_edited_or_revealed_by_its_sender(alice, session, at):
    browser = at(alice)
    send(browser, session, is_read_once="true")
    message = Message.get()
    browser.open(chat(session))
    assert f"edit={message.id}" not in browser.reply.raw.decode()
    (token,) = {fields["csrf_token"] for _, fields in forms(browser, session) if "csrf_token" in fields}
    with nothing_changes(Message):
        reply = browser.navigate("POST", f"{chat(session)}/reveal", {"csrf_token": token, "message": message.id})
    assert reply.status == 403


def test_private_note_is_not_read_once(agent, session, at):
    browser = at(agent)
    with nothing_changes(Message):
        assert send(browser, session, is_read_once="true", is_private="true").status == 400
    assert "A read-once message is not private" in browser.text
    (composer,) = [fields for _, fields in Forms(browser.reply.raw.decode()).found if "number" in fields]
    assert (composer["is_read_once"], composer["is_private"]) == ("true", "true")
