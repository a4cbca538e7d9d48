"""A message comes into a chat session: counted, stored and announced, inside the write of whoever sends it."""

from typing import Any

import peewee

from service import clock
from service.errors import SessionArchived
from service.models.bots import Bot
from service.models.chats import OVER, ChatSession, Message
from service.models.notifications import Notification
from service.models.people import App, User
from service.models.reading import NEWEST_FIRST, PREVIEW


def post(session: ChatSession, *, reopening: bool = False, **columns: Any) -> Message:
    """Put a message into a session, later than all others, and tell everybody else in it. Raises SessionArchived.

    With `reopening`, a session that is over is open again.
    """
    now = clock.timestamp()
    _admit(session, now, is_private=columns.get("is_private", False), reopening=reopening)
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


def _admit(session: ChatSession, now: str, *, is_private: bool, reopening: bool) -> None:
    """Count a message in, before it is there. Raises SessionArchived."""
    changes = {"shown_total": ChatSession.shown_total + 1, **ChatSession.news(is_private=is_private)}
    if not is_private:
        changes |= {"public_total": ChatSession.public_total + 1, "active_at": now}
    if reopening:
        changes["status"] = peewee.Case(None, [(ChatSession.status.in_(OVER), "open")], ChatSession.status)
    there = (ChatSession.id == session.id) & (ChatSession.status != "archived")
    if not ChatSession.update(changes).where(there).execute():
        raise SessionArchived


def _newest(session: ChatSession) -> str:
    """The newest message of a session, deleted or not; empty when there is none."""
    inside = Message.select(Message.id).where(Message.chat_session_id == session.id)
    newest = inside.order_by(NEWEST_FIRST.sql()).limit(1)
    ends = (newest.where(Message.deleted_at.is_null(is_shown)).scalar() for is_shown in (True, False))
    return max(filter(None, ends), default="")


def _announce(message: Message, session: ChatSession) -> None:
    """Notify the session's owner, and the staff who wrote in it, of a message of somebody else's."""
    staff = (User.role == "admin") | ((User.role == "agent") & (User.app_id == session.app_id))
    told = (User.id.in_(_writers(session)) | (User.id == session.user_id)) & (User.id != message.sender_id)
    told &= staff if message.is_private else staff | (User.id == session.user_id)
    title = _name_of(message, session)
    payload = {"message_id": message.id, "session_id": session.id}
    about = {"session_id": session.id, "conversation_id": session.conversation_id, "message_id": message.id}
    for user in User.select(User.id).where(told, ~User.is_disabled).order_by(User.id):  # each is locked from here on
        Notification.tell(user.id, "chat_message", title, payload, body=message.plain_text[:PREVIEW], **about)


def _writers(session: ChatSession) -> list[str]:
    """Who wrote in a session: they are few, and each is one step in an index, however much they wrote."""
    found, senders = [""], Message.select(peewee.fn.min(Message.sender_id)).where(Message.chat_session_id == session.id)
    while following := senders.where(Message.sender_id > found[-1]).scalar():
        found.append(following)
    return found[1:]


def _name_of(message: Message, session: ChatSession) -> str:
    """The name under which others meet a sender; never the address. Somebody without one speaks for the app."""
    if message.sender_type == "bot":
        name = Bot.get_by_id(message.sender_id).name
    else:
        user = User.get_by_id(message.sender_id)
        name = user.display_name or f"{user.first_name} {user.last_name}".strip()
    return str(name or App.get_by_id(session.app_id).name)[:200]
