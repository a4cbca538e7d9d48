"""A message comes into a chat session: counted, stored and announced, inside the write of whoever sends it."""

from collections.abc import Sequence
from typing import Any

import peewee

from service import clock
from service.db import database, fixed, prepared
from service.errors import SessionArchived
from service.models.bots import Bot
from service.models.chats import OVER, PAUSED, ChatSession, Message
from service.models.notifications import Notification
from service.models.people import App, User
from service.models.reading import NEWEST_FIRST, PREVIEW


def post(session: ChatSession, *, reopening: bool = False, languages: Sequence[str] = (), **columns: Any) -> Message:
    """Put a message into a session, later than all others, and tell everybody else in it. Raises SessionArchived.

    With `reopening`, a session that is over or paused is open again. `languages` are those that came with the message.
    """
    now = clock.timestamp()
    told = ", ".join(languages)
    _admit(session, now, told, is_private=columns.get("is_private", False), reopening=reopening)
    message = Message.create(
        id=clock.ulid(after=_newest(session)),
        chat_session_id=session.id,
        conversation_id=session.conversation_id,
        owner_id=session.user_id,
        app_id=session.app_id,
        created_at=now,
        updated_at=now,
        **columns,
    )
    _announce(message, session)
    return message


def _admit(session: ChatSession, now: str, languages: str, *, is_private: bool, reopening: bool) -> None:
    """Count a message in, before it is there. Raises SessionArchived."""
    shape = {"public": not is_private, "reopening": reopening, "with_languages": bool(languages)}
    if not _admitted(session.id, clock.now(), now, languages, **shape).run():
        raise SessionArchived


@prepared
def _admitted(
    session_id: str, news_at: int, now: str, languages: str, *, public: bool, reopening: bool, with_languages: bool
) -> Any:
    changes = {"shown_total": ChatSession.shown_total + 1, **ChatSession.news(news_at, is_private=not public)}
    if public:
        changes |= {"public_total": ChatSession.public_total + 1, "active_at": now}
    if reopening:
        changes["status"] = peewee.Case(None, [(ChatSession.status.in_((*OVER, *PAUSED)), "open")], ChatSession.status)
    if with_languages:
        changes["accept_language"] = languages
    return ChatSession.update(changes).where(ChatSession.id == session_id, ChatSession.status != "archived")


def _newest(session: ChatSession) -> str:
    """The newest message of a session, deleted or not; empty when there is none."""
    return max(filter(None, _ends(session.id).row()), default="")


@prepared
def _ends(session_id: str) -> Any:
    """The newest message that is there, and the newest that was deleted: the last of an index each."""
    inside = Message.select(Message.id).where(Message.chat_session_id == session_id)
    inside = inside.order_by(NEWEST_FIRST.sql()).limit(fixed(1))
    ends = [inside.where(Message.deleted_at.is_null(is_there)) for is_there in (True, False)]
    return peewee.Select((), ends).bind(database)


def _announce(message: Message, session: ChatSession) -> None:
    """Notify the session's owner, and the staff who wrote in it, of a message of somebody else's."""
    payload = {"message_id": message.id, "session_id": session.id}
    about = {"session_id": session.id, "conversation_id": session.conversation_id, "message_id": message.id}
    for id in sorted({*_writers(session), session.user_id} - {message.sender_id}):  # each is locked from here on
        user = User.known(id)
        if user and not user.is_disabled and _concerns(message, session, user):
            title = _name_of(message, session)
            Notification.tell(id, "chat_message", title, payload, body=message.plain_text[:PREVIEW], **about)


def _concerns(message: Message, session: ChatSession, user: User) -> bool:
    """Whether somebody who took part in a session is told of a message: its owner, and its staff of today."""
    is_staff = user.role == "admin" or (user.role == "agent" and user.app_id == session.app_id)
    return is_staff or (user.id == session.user_id and not message.is_private)


def _writers(session: ChatSession) -> list[str]:
    """Who wrote in a session: they are few, and each is one step in an index, however much they wrote."""
    found = [""]
    while following := _writer_after(session.id, found[-1]).value():
        found.append(following)
    return found[1:]


@prepared
def _writer_after(session_id: str, writer: str) -> Any:
    senders = Message.select(peewee.fn.min(Message.sender_id)).where(Message.chat_session_id == session_id)
    return senders.where(Message.sender_id > writer)


def _name_of(message: Message, session: ChatSession) -> str:
    """The name under which others meet a sender; never the address. Somebody without one speaks for the app."""
    sender: Any = (Bot if message.sender_type == "bot" else User).known(message.sender_id)
    if message.sender_type == "bot":
        name = sender.name
    else:
        name = sender.display_name or f"{sender.first_name} {sender.last_name}".strip()
    return str(name or App.get_by_id(session.app_id).name)[:200]
