"""Recomputes derived values of chat sessions after rows were written in bulk."""

from collections.abc import Collection

import peewee

from service import clock
from service.db import Order, Query, Table, compiled, literal, pad_values
from service.fields import SqlValue
from service.models.assignments import valid_assignee
from service.models.chats import ChatSession
from service.models.contents import EMPTY
from service.models.message_images import MessageImage
from service.models.messages import Message, trace_removals
from service.models.notifications import Notification
from service.models.users import User

MAX_SESSIONS = 500  # maximum in one statement; for more, all sessions are recomputed


def sessions_of(table: type[Table], identifiers: Collection[str]) -> set[str]:
    """Return the chat sessions to recompute after rows of a table changed."""
    if table is ChatSession:
        return set(identifiers)
    if table not in (Message, MessageImage, Notification, User) or not identifiers:
        return set()
    return {session for (session,) in _sessions_of(*pad_values([*identifiers]), table=table).rows()}


@compiled
def _sessions_of(*identifiers: str, table: type[Table]) -> Query:
    messages: Collection[str] | Query = identifiers
    if table is Notification:
        messages = Notification.select(Notification.message_id).where(Notification.id.in_(identifiers))
    elif table is User:  # a user who is no longer staff loses the notifications of notes
        notified = Notification.select(Notification.message_id).where(Notification.user_id.in_(identifiers))
        messages = Message.select(Message.id).where(Message.id.in_(notified), Message.is_private)
    elif table is MessageImage:
        messages = MessageImage.select(MessageImage.message_id).where(MessageImage.id.in_(identifiers))
    found = Message.select(Message.chat_session_id).where(Message.id.in_(messages))
    if table is not User:
        return found.distinct()
    return found | ChatSession.select(ChatSession.id).where(ChatSession.assignee_id.in_(identifiers))


def recompute(session_ids: Collection[str]) -> None:
    """Recompute totals, activity, assignees, search columns, quotes and notifications of chat sessions."""
    if session_ids:
        ids = pad_values(sorted(session_ids)) if len(session_ids) <= MAX_SESSIONS else ()
        _recompute(clock.now(), clock.timestamp(), *ids).run_all()


@compiled
def _recompute(now: int, timestamp: str, *ids: str) -> list[Query]:
    sessions = ids or ChatSession.select(ChatSession.id)
    inside = Message.chat_session_id.in_(sessions)

    def of_session(value: SqlValue) -> Query:
        return ChatSession.select(value).where(ChatSession.id == Message.chat_session_id)

    owner = of_session(Message.owner_id.of_identifier(ChatSession.user_id))
    app = of_session(Message.app_id.of_identifier(ChatSession.app_id))
    conversation = of_session(ChatSession.conversation_id)
    moved = Message.owner_id.is_null() | (Message.owner_id != owner) | (Message.app_id != app)
    own = (Message.chat_session_id == ChatSession.id) & Message.deleted_at.is_null()
    shown = Message.select(peewee.fn.count(Message.id)).where(own)
    public = Message.select(Message.created_at).where(own, ~Message.is_private)
    newest = public.order_by(Order(Message.id, True, explicit_nulls=True).sql()).limit(literal(1))
    totals = {
        "shown_total": shown,
        "public_total": shown.where(~Message.is_private),
        **ChatSession.changes(now),
        "active_at": peewee.fn.coalesce(newest, ChatSession.created_at),
    }
    # Private notes are for staff: no other user is notified of one, and no public reply quotes one.
    notes, note = Message.select(Message.id).where(inside, Message.is_private), Message.alias("note")
    app_of_note = ChatSession.select(ChatSession.app_id).join(note, on=(note.chat_session_id == ChatSession.id))
    app_of_note = app_of_note.where(note.id == Notification.message_id)
    staff = User.select(User.id).where(User.staff_of(app_of_note))
    leaked = Notification.message_id.in_(notes) & Notification.user_id.not_in(staff)
    quoted = Message.alias("quoted")
    is_note = quoted.is_private & quoted.hidden_at.is_null()
    private = quoted.select(quoted.id).where(quoted.id == Message.reply_to_message_id, is_note)
    quoting = inside & ~Message.is_private & peewee.fn.EXISTS(private)
    removed = (
        Message.deleted_at.is_null(False) | Message.hidden_at.is_null(False) | Message.gdpr_purged_at.is_null(False)
    )
    valid = valid_assignee(ChatSession.assignee_id, ChatSession.app_id)
    left = ChatSession.id.in_(sessions) & ChatSession.assignee_id.is_null(False) & ~valid
    return [
        Message.update(owner_id=owner, app_id=app).where(inside, moved),
        Message.update(conversation_id=conversation).where(inside, Message.conversation_id.is_null()),
        ChatSession.update(totals).where(ChatSession.id.in_(sessions)),
        ChatSession.update(assignee_id=None, given_back_at=timestamp).where(left),
        *trace_removals(inside & removed, now),
        Notification.update(body="", payload=EMPTY).where(leaked),
        Message.update(reply_to_message_id=None, reply_snapshot=EMPTY).where(quoting),
    ]
