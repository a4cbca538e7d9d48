"""What readers of chats meet: their sessions and what is new in them, and what an AI is given."""

import itertools
from collections.abc import Iterable
from typing import Any, Literal

import msgspec
import peewee
from msgspec import Struct

from service import clock
from service.db import (
    Order,
    Page,
    Position,
    Prepared,
    Table,
    fixed,
    padded,
    page,
    prepared,
    snapshot,
    sum_of,
    write,
)
from service.fields import Sortable, Stamp, Ulid, Uuid, reference
from service.models.chats import PIN_LIMIT, STATUSES, ChatSession, Message
from service.models.languages import languages_of
from service.models.notifications import Notification
from service.models.people import Caller, User
from service.models.reach import Part, parts_of, sessions_within

UNREAD_MOST = 100  # unread messages that are counted
PREVIEW = 200  # characters of a text that stand for a message elsewhere
CONTEXT_LENGTH = 512 * 1024  # characters of all its texts; the newest one is there however long it is
CONTEXT_DEPTH = 1_000  # messages that are looked at for what an AI may see

LIVE = Message.deleted_at.is_null()
PUBLIC = LIVE & ~Message.is_private
NEWEST_FIRST = Order(
    Message.id, True, apart=True
)  # of one session; not max(), for which PostgreSQL takes another index


class LastMessage(Struct):
    """The newest message of a chat session that the caller may see."""

    id: Ulid
    sender_type: str
    text: str
    created_at: Stamp


class SessionOverview(Struct):
    """A chat session, and what is new in it for the caller."""

    id: Uuid
    app_id: Uuid
    conversation_id: Uuid
    user_id: Uuid
    bot_id: Uuid | None
    status: Literal[STATUSES]  # type: ignore[valid-type]
    created_at: Stamp
    unread_count: int
    last_message: LastMessage | None


class ContextMessage(Struct):
    """A message as an AI is given it."""

    id: Ulid
    role: Literal["user", "assistant", "system"]
    text: str
    created_at: Stamp


class Context(Struct):
    """What an AI may know of a chat session: its newest messages in their order, and the languages of the customer."""

    messages: list[ContextMessage]
    languages: list[str]


class ReadMarker(Table):
    """How far a user has read a chat session."""

    chat_session_id = reference("chat_session")
    user_id = reference("user")
    message_id = Sortable()

    @classmethod
    def advance(cls, session_id: str, user_id: str, message_id: str) -> None:
        """Note that a user has read a session up to a message, unless it was further; so is what announces those."""
        _advanced(session_id, user_id, message_id).run()
        if _heard(session_id, user_id, message_id, clock.timestamp()).run():
            User.touch(user_id)

    class Meta:
        primary_key = peewee.CompositeKey("chat_session_id", "user_id")


def list_sessions(caller: Caller, after: Position, limit: int, status: str) -> Page[SessionOverview]:
    """A page of the sessions that a caller may reach, the latest activity first.

    A session in which somebody writes during a walk moves to the first page; none is met twice.
    """
    more = ([status] if status else []) + list(after.key)
    shape = {"apart": caller.role != "admin", "by_status": bool(status), "goes_on": bool(after.key)}
    with snapshot():
        found = (_listed(caller.id, caller.app_id, limit + 1, *more, part=part, **shape) for part in parts_of(caller))
        keys = merge(limit + 1, found)
        rows = _overviews(caller, [id for _, id in keys[:limit]])
    return Page(msgspec.json.encode(rows), keys[limit - 1] if len(keys) > limit else ())


@prepared
def _listed(
    user_id: str, works_for: Any, most: int, *more: Any, part: Part, apart: bool, by_status: bool, goes_on: bool
) -> Any:
    key = (ChatSession.active_at, ChatSession.id)
    found = ChatSession.select(*key).where(sessions_within(part, user_id, works_for))
    if by_status:
        found = found.where(ChatSession.status == more[0])
    if goes_on:
        found = found.where(peewee.Tuple(*key) < peewee.Tuple(*more[-len(key) :]))
    return found.order_by(*(Order(column, True, apart=apart).sql() for column in key)).limit(sum_of(most))


@prepared
def _advanced(session_id: str, user_id: str, message_id: str) -> Any:
    given = peewee.EXCLUDED.message_id
    return ReadMarker.insert(chat_session_id=session_id, user_id=user_id, message_id=message_id).on_conflict(
        conflict_target=(ReadMarker.chat_session_id, ReadMarker.user_id),
        update={ReadMarker.message_id: given},
        where=given > ReadMarker.message_id,
    )


@prepared
def _heard(session_id: str, user_id: str, message_id: str, now: str) -> Any:
    told = (Notification.user_id == user_id) & (Notification.session_id == session_id)
    told &= Notification.read_at.is_null() & (Notification.type == "chat_message")
    return Notification.update(read_at=now).where(told, Notification.message_id <= message_id)


def revision(caller: Caller, session: ChatSession) -> tuple[Any, ...]:
    """What differs after everything that changes what a caller sees of a session's messages."""
    staff = caller.is_staff(session.app_id)
    return staff, session.news_at if staff else session.public_news_at


def messages(
    caller: Caller, session: ChatSession, after: Position, limit: int, direction: Literal["forward", "backward"]
) -> Page[Message]:
    """A page of a session's messages, `forward` from the oldest or `backward` from the newest."""
    staff = caller.is_staff(session.app_id)
    total = session.shown_total if staff else session.public_total
    order = [Order(Message.id, descending=direction == "backward", apart=True)]
    return page(_messages(session.id, staff=staff), order, after, limit, total=total)


def pinned_messages(caller: Caller, session: ChatSession) -> msgspec.Raw:
    """The pinned messages of a session, newest pin first."""
    order = [Order(Message.pinned_at, descending=True), Order(Message.id, descending=True)]
    staff = caller.is_staff(session.app_id)
    found = _messages(session.id, staff=staff, pinned=True)
    return page(found, order, Position(), 2 * PIN_LIMIT if staff else PIN_LIMIT, goes_on=False).rows


@prepared
def _messages(session_id: str, *, staff: bool, pinned: bool = False) -> Any:
    found = _seen(session_id, staff=staff)
    return found.where(Message.pinned_at.is_null(False)) if pinned else found


def _seen(session_id: str, *, staff: bool) -> Any:
    """The identifiers of the messages of a session that its staff sees, or its owner."""
    shown = Message.select(Message.id).where(Message.chat_session_id == session_id, LIVE)
    return shown if staff else shown.where(~Message.is_private)


def overview(caller: Caller, session_id: str) -> SessionOverview:
    """One session, as it is listed."""
    (found,) = _overviews(caller, [session_id])
    return found


def context(session: ChatSession, limit: int) -> Context:
    """What an AI may see: nothing that was deleted or purged, no private notes, nothing to be read only once."""
    with snapshot():
        bottom = _newest(session.id, staff=False, depth=CONTEXT_DEPTH).value() or ""
        lengths = [length for _, length in _told(session.id, bottom, limit, lengths=True).rows()]
        fitting = sum(total <= CONTEXT_LENGTH for total in itertools.accumulate(lengths))
        rows = _told(session.id, bottom, max(fitting, 1)).rows()
        languages = languages_of(session)
    roles: dict[str, Literal["user", "system"]] = {"user": "user", "system": "system"}
    messages = [ContextMessage(id, roles.get(who, "assistant"), *more) for id, who, *more in reversed(rows)]
    return Context(messages, languages)


@prepared
def _told(session_id: str, bottom: str, most: int, *, lengths: bool = False) -> Any:
    length = peewee.fn.length(Message.plain_text)
    shown = (Message.id, Message.sender_type, Message.plain_text, Message.created_at)
    found = Message.select(Message.id, length) if lengths else Message.select(*shown)
    found = found.where(Message.chat_session_id == session_id, PUBLIC, Message.id >= bottom)
    found = found.where(Message.plain_text != "", ~Message.is_read_once, Message.gdpr_purged_at.is_null())
    return found.order_by(NEWEST_FIRST.sql()).limit(sum_of(most))


@prepared
def _newest(session_id: str, *, staff: bool, depth: int) -> Any:
    return nth(_seen(session_id, staff=staff), NEWEST_FIRST, depth)


def mark_read(caller: Caller, session: ChatSession, message_id: str | None) -> SessionOverview:
    """Note that the caller has read a session, up to a message or all of it. Raises MessageNotFound."""
    with write(session.id):
        if message_id:
            message_id = Message.reach(caller, message_id, session).id
        else:
            message_id = _newest(session.id, staff=caller.is_staff(session.app_id), depth=1).value()
        if message_id:
            ReadMarker.advance(session.id, caller.id, message_id)
        return overview(caller, session.id)


def _overviews(caller: Caller, ids: list[str]) -> list[SessionOverview]:
    """Some sessions, the latest activity first, as a caller meets them."""
    found = _overview(caller.id, caller.app_id, *padded(ids), role=caller.role).rows()
    return [SessionOverview(*row[:8], LastMessage(*row[8:]) if row[8] else None) for row in found]  # type: ignore[call-arg]


@prepared
def _overview(user_id: str, works_for: str | None, *ids: str, role: str) -> Any:
    here = ChatSession.app_id == works_for

    def seen(messages: Any) -> Any:
        inside = (messages.chat_session_id == ChatSession.id) & messages.deleted_at.is_null()
        if role == "admin":
            return inside
        return inside & (here | ~messages.is_private if role == "agent" else ~messages.is_private)

    inner, newest = Message.alias("inner_message"), Message.alias("newest")
    marker = ReadMarker.select(ReadMarker.message_id)
    marker = marker.where(ReadMarker.chat_session_id == ChatSession.id, ReadMarker.user_id == user_id)
    answer = inner.select(peewee.fn.max(inner.id))  # who answers has read what stands before; also in an import
    answer = answer.where(inner.chat_session_id == ChatSession.id, inner.sender_id == user_id)
    furthest = peewee.Select((marker.union_all(answer).alias("read"),), (peewee.fn.max(peewee.SQL("message_id")),))
    unread = inner.select(inner.id).where(seen(inner), inner.id > peewee.fn.coalesce(furthest, ""))
    counted = peewee.Select((unread.limit(fixed(UNREAD_MOST)).alias("unread"),), (peewee.fn.count(peewee.SQL("*")),))
    latest = inner.select(inner.id).where(seen(inner)).order_by(Order(inner.id, True, apart=True).sql()).limit(fixed(1))
    shown = (ChatSession.id, ChatSession.app_id, ChatSession.conversation_id, ChatSession.user_id, ChatSession.bot_id)
    text = peewee.fn.substr(newest.plain_text, 1, PREVIEW)
    return (
        ChatSession.select(*shown, ChatSession.status, ChatSession.created_at, counted)
        .select_extend(newest.id, newest.sender_type, text, newest.created_at)
        .join(newest, peewee.JOIN.LEFT_OUTER, on=(newest.id == latest))
        .where(ChatSession.id.in_(ids))
        .order_by(ChatSession.active_at.desc(), ChatSession.id.desc())
    )


def merge(limit: int, parts: Iterable[Prepared]) -> list[Any]:
    """The greatest rows of several queries that give theirs in falling order."""
    return sorted((row for part in parts for row in part.rows()), reverse=True)[:limit]


def nth(messages: Any, newest_first: Order, depth: int) -> Any:
    """The message that is the `depth`-th newest of some; none where there are fewer."""
    return messages.order_by(newest_first.sql()).limit(fixed(1)).offset(fixed(depth - 1))
