"""Bot replies: which messages a bot replies to, when staff replies instead, and how a reply is stored."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import peewee

from service import clock, responder
from service.db import Query, compiled, database, literal, write
from service.errors import SessionArchived
from service.fields import json_of_bytes
from service.models import inbox, receipts
from service.models.actions import payload_offering
from service.models.apps import App
from service.models.audit_log import SERVICE, AuditLog
from service.models.bots import Bot
from service.models.callers import Caller
from service.models.canned_answers import BotReply, automatic_reply, nearest_answers
from service.models.chats import ChatSession
from service.models.inbox import ContextMessage
from service.models.languages import languages_of
from service.models.messages import NEWEST_FIRST, PUBLIC, Message
from service.models.posting import PERSON_NEEDED, call_staff, post
from service.models.reply_queue import PendingReply
from service.models.users import User
from service.settings import Settings

REPLY_STATUSES = ("open", "active")  # statuses of chat sessions in which bots reply
STAFF_PAUSE = 30 * clock.MINUTE  # without bot replies, after a message of staff
STAFF_LOOKBACK = 100  # newest messages among which a message of staff is searched
CONTEXT_MESSAGES = 50  # maximum number sent to an assistant
CONTEXT_CHARACTERS = 30_000  # maximum total of their texts


class ReplyOptions(NamedTuple):
    """How to reply to a customer's message."""

    accept_language: str = ""  # the header of the request
    by_assistant: bool = False  # reply later, through the assistant
    demo_questions: str = ""  # regular expression of the messages that are for the assistant; empty: all

    @classmethod
    def of(cls, accept_language: str, settings: Settings) -> "ReplyOptions":
        """Return the options of a request."""
        return cls(accept_language, bool(settings.assistant_url), settings.demo_questions)

    def is_for_assistant(self, text: str) -> bool:
        """Return whether the assistant replies to a text. That of a demo replies to its questions only."""
        return self.by_assistant and bool(re.search(self.demo_questions, text))


class PlannedReply(NamedTuple):
    """The reply to a message, None if the assistant is to write it, and the languages to reply in."""

    reply: BotReply | None
    languages: list[str]
    calls_person: bool = False  # the customer asks for a person
    ends_turn: bool = False  # of the assistant, which may wait for a permission


class Question(NamedTuple):
    """A message to which the assistant is to reply, with its context; `bot` has no name if there is none."""

    session: ChatSession
    app: App
    bot: Bot
    text: str
    messages: list[ContextMessage]
    languages: list[str]
    first_name: str = ""  # of the customer
    answers: Sequence[tuple[str, str]] = ()  # canned answers near to the text, with their questions


def plan_reply(session: ChatSession, text: str, options: ReplyOptions) -> PlannedReply | None:
    """Return the bot's reply to a customer's text, None if it does not reply. Call it before the write."""
    if session.bot_id is None or not responder.sentences(text):
        return None
    languages = languages_of(session, options.accept_language)
    calls_person = responder.asks_for_person(text)
    if not calls_person and options.is_for_assistant(text):
        return PlannedReply(None, languages) if replying_bot(session) else None
    reply = automatic_reply(session, text, languages)
    return PlannedReply(reply, languages, calls_person, ends_turn=options.by_assistant) if reply else None


def store_or_queue(session: ChatSession, message: Message, planned: PlannedReply) -> None:
    """Store the reply to a message, or queue the message for the assistant, inside the write that stores it."""
    if is_left_to_staff(session.id):
        return
    if planned.calls_person:
        _hand_over(session, session.user_id, planned.reply)
    elif planned.reply:
        if planned.ends_turn:  # as a message does that replaces another one in the queue
            PendingReply.delete().where(PendingReply.chat_session_id == session.id).execute()
        _post(session, planned.reply)
    else:
        PendingReply.add(message.id, session.id, planned.languages)


def call_person(caller: Caller, session: ChatSession) -> None:
    """Hand a chat session over to people, for its customer or staff. Raises SessionArchived."""
    reply = BotReply(responder.handover_reply(languages_of(session))) if replying_bot(session) else None
    with write(session.id):
        session = ChatSession.get_by_id(session.id)
        if session.status == "archived":
            raise SessionArchived
        if not session.handed_over_at:
            _hand_over(session, caller.id, reply)


def _hand_over(session: ChatSession, caller_id: str, reply: BotReply | None) -> None:
    """Leave a session to people, inside a write: the bot sends a reply and is silent, and staff is notified."""
    if reply:
        _post(session, reply)
    now, former = clock.now(), ChatSession.get_by_id(session.id)
    columns = {"status": "pending", "snoozed_until": None, "handed_over_at": clock.timestamp(now)}
    ChatSession.update(columns | ChatSession.changes(now)).where(ChatSession.id == session.id).execute()
    PendingReply.delete().where(PendingReply.chat_session_id == session.id).execute()
    call_staff(former, caller_id, PERSON_NEEDED)
    if former.status != "pending":
        session.emit("chat.status_changed", status="pending")
    AuditLog.record("chat_handed_over", caller_id, session.user_id, session=session.id)


def is_left_to_staff(session_id: str) -> bool:
    """Return whether bots do not reply in a session.

    Because of its status, an assignee, a handover, or a recent message of staff.

    Messages of staff before the chat was given back to the bot do not count. Private notes do not count, because the
    missing reply would reveal them to the customer.
    """
    session = ChatSession.get_by_id(session_id)
    if session.status not in REPLY_STATUSES or session.assignee_id or session.handed_over_at:
        return True
    since = max(clock.timestamp(clock.now() - STAFF_PAUSE), session.given_back_at or "")
    return bool(_messages_of_staff(session_id, since).value())


@compiled
def _messages_of_staff(session_id: str, since: str) -> Query:
    """Select the number of messages of staff since a time, among the newest of a session.

    Only of messages of staff is `created_at` read, which SQLite stores behind the content.
    """
    newest = Message.select(Message.id, Message.sender_type).where(Message.chat_session_id == session_id, PUBLIC)
    newest = newest.order_by(NEWEST_FIRST.sql()).limit(literal(STAFF_LOOKBACK)).alias("newest")
    same = Message.alias("same")
    created_at = same.select(same.created_at).where(same.id == newest.c.id)
    by_staff = peewee.Select((newest,), (peewee.fn.count(peewee.SQL("*")),))
    return by_staff.where(newest.c.sender_type == "agent", created_at > since).bind(database)


def question(pending: PendingReply) -> Question | None:
    """Return the question to the assistant for a pending reply; None if no reply is needed any more."""
    session = ChatSession.get_by_id(pending.chat_session_id)
    message = Message.get_or_none(Message.id == pending.message_id, PUBLIC)
    bot = replying_bot(session)
    if message is None or bot is None or not message.plain_text or is_left_to_staff(session.id):
        return None
    messages = inbox.context(session, CONTEXT_MESSAGES).messages
    return _question(session, bot, message.plain_text, messages, pending.languages.split())


def question_to_staff(session: ChatSession) -> Question | None:
    """Return the newest message of a customer as a question to which staff reply; None if there is no text.

    Later messages of the other side are left out: assistants continue a last message of their own, or refuse it.
    """
    context = inbox.context(session, CONTEXT_MESSAGES)
    messages = context.messages
    while messages and messages[-1].role != "user":
        messages.pop()
    bot = session.bot_id and Bot.find(session.bot_id)
    return _question(session, bot or Bot(), messages[-1].text, messages, context.languages) if messages else None


def _question(
    session: ChatSession, bot: Bot, text: str, messages: list[ContextMessage], languages: list[str]
) -> Question:
    first_name = " ".join(User.get_by_id(session.user_id).first_name.split())
    answers, app = nearest_answers(bot.id, text, languages), App.get_by_id(session.app_id)
    return Question(session, app, bot, text, _newest_within_limit(messages), languages, first_name, answers)


def store_reply(pending: PendingReply, reply: BotReply, *, calls_person: bool = False) -> bool:
    """Store a pending reply, at most once. Return whether it was stored, which it is only if still needed.

    With `calls_person`, the chat session is handed over to people with this reply, or with a sentence about it if it
    has no text. Otherwise, a reply without a text is none.
    """
    with write(pending.chat_session_id):
        if not pending.remove():
            return False
        session = ChatSession.get_by_id(pending.chat_session_id)
        if not (reply.text or calls_person) or replying_bot(session) is None or is_left_to_staff(session.id):
            return False
        if calls_person:
            handover = BotReply(responder.handover_reply(pending.languages.split()))
            _hand_over(session, SERVICE, reply if reply.text else handover)
        else:
            _post(session, reply)
        return True


def replying_bot(session: ChatSession) -> Bot | None:
    """Return the session's bot if it replies and is visible to clients."""
    found: Bot | None = Bot.get_or_none(Bot.id == session.bot_id, Bot.kind == "bot", Bot.is_visible())
    return found


def _post(session: ChatSession, reply: BotReply) -> None:
    columns = {
        "sender_id": session.bot_id,
        "sender_type": "bot",
        "content": json_of_bytes({"text": reply.text}),
    }
    message = post(session, **columns, action_payload=payload_offering(reply.actions))
    receipts.give_of_bot(message)


def _newest_within_limit(messages: Sequence[ContextMessage]) -> list[ContextMessage]:
    """Return the newest messages that fit into CONTEXT_CHARACTERS, at least one."""
    remaining, found = CONTEXT_CHARACTERS, list[ContextMessage]()
    for message in reversed(messages):
        if found and len(message.text) > remaining:
            break
        message.text = message.text[:CONTEXT_CHARACTERS]
        remaining -= len(message.text)
        found.append(message)
    return found[::-1]
