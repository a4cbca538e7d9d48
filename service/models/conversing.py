"""Talking: beginning a chat session, sending a message into it, and changing one's mind about the words."""

from typing import Any, NamedTuple

from msgspec import Raw

from service import clock, formats
from service.db import prepared, render, write
from service.errors import (
    AppNotFound,
    BotNotFound,
    ClientMessageIdReused,
    ConversationNotFound,
    Forbidden,
    InvalidBody,
    MessageGone,
    MessageNotFound,
    SessionNotFound,
)
from service.fields import as_bytes, compact_json
from service.models import speaking
from service.models.bots import Bot
from service.models.chats import ChatSession, Message, telling_quotes
from service.models.contents import EMPTY, text_in
from service.models.notifications import Notification
from service.models.people import App, Caller
from service.models.posting import post
from service.models.reading import PREVIEW, ReadMarker
from service.models.speaking import Heard, Hearing

LARGEST = 64 * 1024  # bytes of a content


class Draft(NamedTuple):
    """A message that somebody wants to send."""

    content: str  # as stored
    is_private: bool = False
    reply_to_message_id: str | None = None
    client_message_id: str | None = None


def stored_content(content: Any) -> str:
    """A content from outside, as stored. Raises InvalidBody."""
    try:
        found = [] if content is None else as_bytes(content)
    except ValueError as error:
        raise InvalidBody(f"$.content: {error}") from None
    if not 1 <= len(found) <= LARGEST:
        raise InvalidBody(f"$.content: expected 1 to {LARGEST} bytes of JSON")
    return compact_json(found)


def begin(caller: Caller, app_id: str, bot_id: str | None, conversation_id: str | None) -> ChatSession:
    """A new chat session of a user, in a conversation of theirs with the same bot, or in a new one.

    Raises AppNotFound, BotNotFound or ConversationNotFound.
    """
    with write(caller.id):
        if not App.select().where(App.id == app_id).exists():
            raise AppNotFound
        if bot_id and Bot.reach(caller, bot_id).app_id != app_id:
            raise BotNotFound
        if conversation_id:
            with_bot = ChatSession.bot_id == bot_id if bot_id else ChatSession.bot_id.is_null()
            own = ChatSession.select().where(ChatSession.user_id == caller.id, ChatSession.app_id == app_id, with_bot)
            if not own.where(ChatSession.conversation_id == conversation_id).exists():
                raise ConversationNotFound
        known = {"conversation_id": conversation_id} if conversation_id else {}
        return ChatSession.create(user_id=caller.id, app_id=app_id, bot_id=bot_id, **known)


def bot_reply(caller: Caller, session: ChatSession, draft: Draft, hearing: Hearing) -> Heard | None:
    """What the session's bot makes of a draft, before it is sent; None where no bot replies."""
    if draft.is_private or caller.id != session.user_id:
        return None
    return speaking.hear(session, text_in(draft.content), hearing)


def send(caller: Caller, session: ChatSession, draft: Draft, hearing: Hearing, heard: Heard | None) -> Raw:
    """Send a message and notify the others in its session, in one transaction. Returns the message, rendered.

    A customer's message reopens a session that is over or paused; `heard` is the `bot_reply` to it, stored with it or
    later. With the client_message_id of an earlier message, that one is returned and nothing is sent. Raises Forbidden
    for a private note of a customer.
    """
    if draft.is_private and not caller.is_staff(session.app_id):
        raise Forbidden(concealed=SessionNotFound)
    is_customer = caller.id == session.user_id
    with write(session.id):
        sent = _sent_before(caller, session, draft)
        if sent:
            return sent.again()
        snapshot = _quote(caller, session, draft)
        message = post(
            session,
            reopening=is_customer,
            languages=formats.accepted_languages(hearing.accept_language) if is_customer else (),
            sender_id=caller.id,
            sender_type="user" if is_customer else "agent",
            reply_snapshot=snapshot,
            **draft._asdict(),
        )
        ReadMarker.advance(session.id, caller.id, message.id)
        if heard:
            speaking.respond(session, message, heard)
        return message.again()


def edit(caller: Caller, message: Message, content: str) -> Raw:
    """Put other words into a message of the caller's own, whose first ones are kept; the message, rendered.

    Whatever repeats the words follows, and translations of the old ones go. Raises Forbidden, MessageGone or
    PinLimitReached.
    """
    if message.sender_id != caller.id:
        raise Forbidden(concealed=MessageNotFound)
    own = Message.id == message.id
    with write(message.chat_session_id):
        before = Message.get(own)
        if before.deleted_at or before.gdpr_purged_at:
            raise MessageGone
        if content != before.content:
            text, now = text_in(content), clock.timestamp()
            first = before.content if before.original_content == EMPTY else before.original_content
            contents = {"content": content, "original_content": first, "translations": EMPTY}
            if before.pinned_at:
                before.expect_pin_room(**contents)
            texts = {"plain_text": text, "search_text": formats.fold(text)}
            Message.update(edited_at=now, updated_at=now, **contents, **texts).where(own).execute()
            after = Message.get(own)
            ChatSession.touch(after.chat_session_id, is_private=after.is_private)
            _quotes_told(after.id, clock.now()).run_all()
            repeating = (Message.reply_to_message_id == after.id) & (Message.reply_snapshot != EMPTY)
            Message.update(reply_snapshot=_snapshot_of(after)).where(repeating).execute()
            announcing = (Notification.message_id == after.id) & (Notification.payload != EMPTY)
            Notification.update(body=after.plain_text[:PREVIEW]).where(announcing).execute()
        return render(Message, message.id)


@prepared
def _quotes_told(id: str, now: int) -> Any:
    return telling_quotes([id], now)


def _sent_before(caller: Caller, session: ChatSession, draft: Draft) -> Message | None:
    """The message that a client_message_id names already. Raises ClientMessageIdReused for another content."""
    if not draft.client_message_id:
        return None
    own = (Message.chat_session_id == session.id) & (Message.sender_id == caller.id)
    sent: Message | None = Message.get_or_none(own, Message.client_message_id == draft.client_message_id)
    if sent and not sent.gdpr_purged_at:  # of which nothing is left to compare
        content = sent.original_content if sent.edited_at else sent.content
        is_note = sent.is_private and not sent.hidden_at
        if draft != (content, is_note, sent.reply_to_message_id, sent.client_message_id):
            raise ClientMessageIdReused
    return sent


def _quote(caller: Caller, session: ChatSession, draft: Draft) -> str:
    """The snapshot of what a message replies to; a note is answered by notes only.

    Raises MessageNotFound or InvalidBody.
    """
    if not draft.reply_to_message_id:
        return EMPTY
    quoted = Message.reach(caller, draft.reply_to_message_id, session)
    if quoted.deleted_at:
        raise MessageNotFound
    if quoted.is_private and not draft.is_private:
        raise InvalidBody("$.is_private: a note is answered by notes only")
    return EMPTY if quoted.gdpr_purged_at else _snapshot_of(quoted)


def _snapshot_of(message: Message) -> str:
    """What a reply shows of the message that it quotes."""
    about = {"sender_type": message.sender_type, "content_type": message.content_type}
    return compact_json(as_bytes({**about, "text": message.plain_text[:PREVIEW]}))
