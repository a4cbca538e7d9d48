"""Chats with bots that reply."""

from collections.abc import Sequence
from typing import Any

from service.models import ChatSession
from service.models.canned_answers import automatic_reply
from tests.support.client import Client, Reply, text_of, walk
from tests.support.web_client import Browser, Forms

OPENING = "We are open from 9 to 5."


def lines(client: Client, session: ChatSession) -> list[tuple[str, str]]:
    """Who said what."""
    return [(row["sender_type"], text_of(row)) for row in walk(client, f"/chats/{session.id}/messages")]


def answers(client: Client, session: ChatSession) -> list[str]:
    """What the bot has said."""
    return [text for sender, text in lines(client, session) if sender == "bot"]


def send_in(client: Client, session: ChatSession, text: str, accept_language: str) -> Reply:
    """Send from a browser that likes some languages."""
    return client.post(f"/chats/{session.id}/messages", {"content": {"text": text}}, accept_language=accept_language)


def write_in_the_console(
    application: Any, client: Client, session: ChatSession, text: str, accept_language: str = ""
) -> Browser:
    """Send by hand, with a browser that likes some languages."""
    browser = Browser(application).signed_in(client)
    browser.open(f"/console/chats/{session.id}")
    form = next(form for _, form in Forms(browser.reply.raw.decode()).found if "text" in form)
    path = f"/console/chats/{session.id}"
    browser.navigate("POST", path, {**form, "act": "send", "text": text}, accept_language=accept_language)
    assert browser.reply.status == 200 and text in browser.text
    return browser


def reply_text(session: ChatSession, text: str, languages: Sequence[str]) -> str | None:
    """Return the text of a bot's reply to a message, None if it does not reply."""
    reply = automatic_reply(session, text, languages)
    return reply and reply.text
