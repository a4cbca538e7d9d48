"""Bots speak: which messages they answer, when they leave it to people, and how an answer comes into its session."""

from collections.abc import Sequence
from typing import NamedTuple

import peewee

from service import clock, responder
from service.db import write
from service.fields import as_bytes, compact_json
from service.models import reading
from service.models.answering import prepared_answer
from service.models.bots import Bot
from service.models.chats import ChatSession, Message
from service.models.due_answers import DueAnswer
from service.models.languages import languages_of
from service.models.posting import post
from service.models.reading import NEWEST_FIRST, PUBLIC, ContextMessage

TALKATIVE = ("open", "active")  # of the statuses of chat sessions; in all others, people have put it aside or away
SILENCE = 30 * clock.MINUTE  # of a bot, after a person has written
LOOK_BACK = 100  # messages among which that person is looked for
CONTEXT = 50  # messages that an assistant is given at most
CHARACTERS = 30_000  # of them


class Hearing(NamedTuple):
    """What came with a customer's message, and who is to answer it."""

    accept_language: str = ""
    by_assistant: bool = False  # later; else the bot itself, at once


class Heard(NamedTuple):
    """What a bot makes of a message: its answer, empty if an assistant is to be asked, and the languages for it."""

    answer: str
    languages: list[str]


class Question(NamedTuple):
    """What an assistant is told to answer."""

    session: ChatSession
    bot: Bot
    asked: str  # the text of the message
    messages: list[ContextMessage]
    languages: list[str]


def hear(session: ChatSession, text: str, hearing: Hearing) -> Heard | None:
    """What the bot of a session makes of a customer's text, None if it is nothing to it; before the write."""
    if session.bot_id is None or not responder.sentences(text):
        return None
    languages = languages_of(session, hearing.accept_language)
    if hearing.by_assistant:
        return Heard("", languages) if _speaker(session) else None
    answer = prepared_answer(session, text, languages)
    return Heard(answer, languages) if answer else None


def respond(session: ChatSession, message: Message, heard: Heard) -> None:
    """Answer a message, or let it wait for an assistant, inside the write that stores it."""
    if is_left_to_people(session.id):
        return
    if heard.answer:
        _say(session, heard.answer)
    else:
        DueAnswer.add(message.id, session.id, heard.languages)


def is_left_to_people(session_id: str) -> bool:
    """Whether a bot keeps silent in a session: it was put aside or away, or a person has written in it lately.

    Notes do not count: a silence must not betray them.
    """
    session = ChatSession.get_by_id(session_id)
    if session.status not in TALKATIVE:
        return True
    newest = Message.select(Message.sender_type, Message.created_at).where(
        Message.chat_session_id == session_id, PUBLIC
    )
    lately = newest.order_by(NEWEST_FIRST.sql()).limit(LOOK_BACK).alias("lately")
    since = clock.timestamp(clock.now() - SILENCE)
    people = peewee.Select((lately,), (peewee.fn.count(peewee.SQL("*")),))
    people = people.where(lately.c.sender_type == "agent", lately.c.created_at > since)
    return bool(people.bind(Message._meta.database).scalar())


def question(due: DueAnswer) -> Question | None:
    """What to ask an assistant for a message that waits; None if nobody should answer it any more."""
    session = ChatSession.get_by_id(due.chat_session_id)
    message = Message.get_or_none(Message.id == due.message_id, PUBLIC)
    bot = _speaker(session)
    if message is None or bot is None or not message.plain_text or is_left_to_people(session.id):
        return None
    messages = _newest_of(reading.context(session, CONTEXT).messages)
    return Question(session, bot, message.plain_text, messages, due.languages.split())


def deliver(due: DueAnswer, answer: str) -> bool:
    """Put an answer into its session, once, if it is still wanted there; whether it was put there."""
    with write(due.chat_session_id):
        if not due.settle():
            return False
        session = ChatSession.get_by_id(due.chat_session_id)
        if not answer or _speaker(session) is None or is_left_to_people(session.id):
            return False
        _say(session, answer)
        return True


def _speaker(session: ChatSession) -> Bot | None:
    """The bot that answers in a session, if it is one that does and clients meet it."""
    found: Bot | None = Bot.get_or_none(Bot.id == session.bot_id, Bot.kind == "bot", Bot.shown())
    return found


def _say(session: ChatSession, text: str) -> None:
    content = compact_json(as_bytes({"text": text}))
    post(session, sender_id=session.bot_id, sender_type="bot", content=content)


def _newest_of(messages: Sequence[ContextMessage]) -> list[ContextMessage]:
    """The newest of some messages, as many as fit, and always one."""
    left, found = CHARACTERS, list[ContextMessage]()
    for message in reversed(messages):
        if found and len(message.text) > left:
            break
        message.text = message.text[:CHARACTERS]
        left -= len(message.text)
        found.append(message)
    return found[::-1]
