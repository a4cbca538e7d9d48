"""What is derived in chats, made to agree again after rows were written in bulk."""

from collections.abc import Collection
from typing import Any

import peewee

from service import clock
from service.db import Order, Table, fixed, padded, prepared
from service.models.chats import ChatSession, Message, silencing
from service.models.contents import EMPTY
from service.models.notifications import Notification
from service.models.people import User

MOST = 500  # sessions that are named; of more, all are settled


def sessions_of(table: type[Table], identifiers: Collection[str]) -> set[str]:
    """The chat sessions to settle when rows of a table change."""
    if table is ChatSession:
        return set(identifiers)
    which: Any = identifiers
    if table is Notification:
        which = Notification.select(Notification.message_id).where(Notification.id.in_(identifiers))
    elif table is User:  # who may have left the staff that was told of notes
        told = Notification.select(Notification.message_id).where(Notification.user_id.in_(identifiers))
        which = Message.select(Message.id).where(Message.id.in_(told), Message.is_private)
    elif table is not Message:
        return set()
    rows: Any = Message.select(Message.chat_session_id).where(Message.id.in_(which)).distinct().tuples()
    return {session for (session,) in rows}


def settle(touched: Collection[str]) -> None:
    """Make what is derived agree again for the `touched` sessions, after messages were written in bulk."""
    if touched:
        _settled(clock.now(), *(padded(sorted(touched)) if len(touched) <= MOST else ())).run_all()


@prepared
def _settled(now: int, *ids: str) -> Any:
    some = ids or ChatSession.select(ChatSession.id)
    own = Message.chat_session_id.in_(some)

    def of_session(column: Any) -> Any:
        return ChatSession.select(column).where(ChatSession.id == Message.chat_session_id)

    owner, app, conversation = map(of_session, (ChatSession.user_id, ChatSession.app_id, ChatSession.conversation_id))
    moved = Message.owner_id.is_null() | (Message.owner_id != owner) | (Message.app_id != app)
    inside = (Message.chat_session_id == ChatSession.id) & Message.deleted_at.is_null()
    shown = Message.select(peewee.fn.count(Message.id)).where(inside)
    public = Message.select(Message.created_at).where(inside, ~Message.is_private)
    newest = public.order_by(Order(Message.id, True, apart=True).sql()).limit(fixed(1))
    counted = {
        "shown_total": shown,
        "public_total": shown.where(~Message.is_private),
        **ChatSession.news(now),
        "active_at": peewee.fn.coalesce(newest, ChatSession.created_at),
    }
    # Only staff meets a private note; others neither in a public reply nor announced.
    notes, note = Message.select(Message.id).where(own, Message.is_private), Message.alias("note")
    its_app = note.select(note.app_id).where(note.id == Notification.message_id)
    staff = User.select(User.id).where((User.role == "admin") | ((User.role == "agent") & (User.app_id == its_app)))
    told = Notification.message_id.in_(notes) & Notification.user_id.not_in(staff)
    quoted = Message.alias("quoted")
    is_note = quoted.is_private & quoted.hidden_at.is_null()
    private = quoted.select(quoted.id).where(quoted.id == Message.reply_to_message_id, is_note)
    answering = own & ~Message.is_private & peewee.fn.EXISTS(private)
    gone = Message.deleted_at.is_null(False) | Message.hidden_at.is_null(False) | Message.gdpr_purged_at.is_null(False)
    return [
        Message.update(owner_id=owner, app_id=app).where(own, moved),
        Message.update(conversation_id=conversation).where(own, Message.conversation_id.is_null()),
        ChatSession.update(counted).where(ChatSession.id.in_(some)),
        *silencing(own & gone, now),
        Notification.update(body="", payload=EMPTY).where(told),
        Message.update(reply_to_message_id=None, reply_snapshot=EMPTY).where(answering),
    ]
