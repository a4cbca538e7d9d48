"""What readers of chats meet: their sessions and what is new in them, searches, and what an AI is given."""

from typing import Any, Literal

import msgspec
import peewee
from msgspec import Struct

from service import clock, formats
from service.db import Order, Page, Position, Table, contains, page, prepared, snapshot, sought, write
from service.fields import Sortable, Stamp, Ulid, Uuid, reference
from service.models.chats import PIN_LIMIT, STATUSES, ChatSession, Message
from service.models.notifications import Notification
from service.models.people import Caller, User

UNREAD_MOST = 100  # unread messages that are counted
PREVIEW = 200  # characters of a text that stand for a message elsewhere
CONTEXT_DEPTH = 1_000  # messages that are looked at for what an AI may see
SEARCH_DEPTH = 20_000  # messages that are looked at for one page: 50 ms on a slow machine

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
    key = (ChatSession.active_at, ChatSession.id)
    order = (Order(column, True, apart=caller.role != "admin").sql() for column in key)
    found = ChatSession.select(*key).order_by(*order).limit(limit + 1)
    if status:
        found = found.where(ChatSession.status == status)
    if after.key:
        found = found.where(peewee.Tuple(*key) < peewee.Tuple(*after.key))
    parts = _parts(caller, ChatSession.app_id, ChatSession.user_id == caller.id, ChatSession.id.is_null(False))
    with snapshot():
        keys = _merge(limit + 1, *(found.where(part) for part in parts))
        rows = _overviews(caller, [id for _, id in keys[:limit]])
    return Page(msgspec.json.encode(rows), keys[limit - 1] if len(keys) > limit else ())


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
    found = _messages(session.id, staff=caller.is_staff(session.app_id), pinned=True)
    return page(found, order, Position(), PIN_LIMIT).rows


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


def search(caller: Caller, text: str, after: Position, limit: int) -> Page[Message]:
    """A page of the messages in which a text stands, whatever its case, among those that a caller may see.

    The newest first. No page looks at more than SEARCH_DEPTH messages, so it may hold fewer than `limit`, or none, and
    the next one goes on from there.
    """
    older = Message.select(Message.id).where(Message.id < after.key[0] if after.key else LIVE)
    own = (Message.owner_id == caller.id) & PUBLIC
    parts = [older.where(part) for part in _parts(caller, Message.app_id, own, LIVE)]
    with snapshot():
        newest_first = Order(Message.id, True, apart=caller.role != "admin")
        bottom = max(_bottom(part, newest_first, SEARCH_DEPTH) for part in parts)
        holds_it = contains(Message.search_text, sought(formats.fold(text.strip())))
        newest = (part.where(Message.id >= bottom, holds_it).order_by(newest_first.sql()) for part in parts)
        found = [id for (id,) in _merge(limit + 1, *(part.limit(limit + 1) for part in newest))]
        shown = page(Message.select().where(Message.id.in_(found)), [Order(Message.id, True)], Position(), limit)
    shown.next_key = shown.next_key or ((bottom,) if bottom else ())
    return shown


def context(session: ChatSession, limit: int) -> Context:
    """What an AI may see: nothing that was deleted or purged, no private notes, nothing to be read only once."""
    public = Message.select(Message.id).where(Message.chat_session_id == session.id, PUBLIC)
    allowed = (Message.plain_text != "") & ~Message.is_read_once & Message.gdpr_purged_at.is_null()
    with snapshot():
        found = public.where(allowed, Message.id >= _bottom(public, NEWEST_FIRST, CONTEXT_DEPTH))
        found = found.select(Message.id, Message.sender_type, Message.plain_text, Message.created_at)
        rows: Any = list(found.order_by(NEWEST_FIRST.sql()).limit(limit).tuples())
        owner = User.get_by_id(session.user_id)
        preferred = User.preferences_of(session.user_id)
    roles: dict[str, Literal["user", "system"]] = {"user": "user", "system": "system"}
    messages = [ContextMessage(id, roles.get(who, "assistant"), *more) for id, who, *more in reversed(rows)]
    languages = (preferred["chat_language"], owner.locale, preferred["appearance"]["language"])
    return Context(messages, [*dict.fromkeys(filter(None, languages))])


def mark_read(caller: Caller, session: ChatSession, message_id: str | None) -> SessionOverview:
    """Note that the caller has read a session, up to a message or all of it. Raises MessageNotFound."""
    with write(session.id):
        if message_id:
            message_id = Message.reach(caller, message_id, session).id
        else:
            message_id = _bottom(_seen(session.id, staff=caller.is_staff(session.app_id)), NEWEST_FIRST, 1)
        if message_id:
            ReadMarker.advance(session.id, caller.id, message_id)
        return overview(caller, session.id)


def _overviews(caller: Caller, ids: list[str]) -> list[SessionOverview]:
    """Some sessions, the latest activity first, as a caller meets them."""
    here = ChatSession.app_id == (caller.app_id if caller.role == "agent" else "")

    def seen(messages: Any) -> Any:
        inside = (messages.chat_session_id == ChatSession.id) & messages.deleted_at.is_null()
        if caller.role == "admin":
            return inside
        return inside & (here | ~messages.is_private if caller.role == "agent" else ~messages.is_private)

    inner, newest = Message.alias("inner_message"), Message.alias("newest")
    marker = ReadMarker.select(ReadMarker.message_id)
    marker = marker.where(ReadMarker.chat_session_id == ChatSession.id, ReadMarker.user_id == caller.id)
    answer = inner.select(peewee.fn.max(inner.id))  # who answers has read what stands before; also in an import
    answer = answer.where(inner.chat_session_id == ChatSession.id, inner.sender_id == caller.id)
    furthest = peewee.Select((marker.union_all(answer).alias("read"),), (peewee.fn.max(peewee.SQL("message_id")),))
    unread = inner.select(inner.id).where(seen(inner), inner.id > peewee.fn.coalesce(furthest, ""))
    counted = peewee.Select((unread.limit(UNREAD_MOST).alias("unread"),), (peewee.fn.count(peewee.SQL("*")),))
    latest = inner.select(inner.id).where(seen(inner)).order_by(Order(inner.id, True, apart=True).sql()).limit(1)
    shown = (ChatSession.id, ChatSession.app_id, ChatSession.conversation_id, ChatSession.user_id, ChatSession.bot_id)
    text = peewee.fn.substr(newest.plain_text, 1, PREVIEW)
    found: Any = (
        ChatSession.select(*shown, ChatSession.status, ChatSession.created_at, counted)
        .select_extend(newest.id, newest.sender_type, text, newest.created_at)
        .join(newest, peewee.JOIN.LEFT_OUTER, on=(newest.id == latest))
        .where(ChatSession.id.in_(ids))
        .order_by(ChatSession.active_at.desc(), ChatSession.id.desc())
        .tuples()
    )
    return [SessionOverview(*row[:8], LastMessage(*row[8:]) if row[8] else None) for row in found]  # type: ignore[call-arg]


def _parts(caller: Caller, app_id: Any, own: Any, served: Any) -> list[Any]:
    """What a caller may reach, `own` and what staff has `served`, as conditions that are each one range of an index."""
    if caller.role == "admin":
        return [served]
    if caller.role == "agent" and caller.app_id:
        return [(app_id == caller.app_id) & served, own & (app_id != caller.app_id)]
    return [own]


def _merge(limit: int, *parts: Any) -> list[Any]:
    """The greatest rows of several queries that give theirs in falling order."""
    return sorted((row for part in parts for row in part.tuples()), reverse=True)[:limit]


def _bottom(messages: Any, newest_first: Order, depth: int) -> str:
    """The message that is the `depth`-th newest of some; empty where there are fewer."""
    return messages.order_by(newest_first.sql()).offset(depth - 1).limit(1).scalar() or ""
