"""Chat sessions and messages as listed for a reader, read markers, and the context for an assistant."""

import itertools
import operator
from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec
import peewee
from msgspec import Struct

from service import clock
from service.db import (
    CompiledQuery,
    Order,
    Page,
    Position,
    Query,
    Row,
    Table,
    compiled,
    literal,
    pad_values,
    page,
    snapshot,
    write,
)
from service.fields import DateTime, SqlValue, Ulid, UlidIdentifier, Uuid, reference
from service.models import receipts
from service.models.apps import App
from service.models.bots import Bot
from service.models.callers import Caller
from service.models.chats import STATUSES, ChatSession
from service.models.languages import languages_of
from service.models.messages import (
    NEWEST_FIRST,
    NOT_DELETED,
    PIN_LIMIT,
    PREVIEW_LENGTH,
    PUBLIC,
    RECEIPTS,
    Message,
    row_for_staff,
    with_receipts,
)
from service.models.notifications import Notification
from service.models.receipts import ReceiptStatus
from service.models.session_filters import NO_FILTERS, SessionFilters, find_keys
from service.models.users import User

UNREAD_LIMIT = 100  # unread messages are counted up to this number
CONTEXT_LENGTH = 512 * 1024  # characters of all texts; the newest message is included whatever its length
CONTEXT_DEPTH = 1_000  # newest messages that are read for a context

_stored_receipts = operator.itemgetter(*RECEIPTS)


class LastMessage(Struct):
    """The newest message of a chat session that the caller may see."""

    id: Ulid
    sender_type: str
    text: str
    created_at: DateTime
    content_type: str
    is_read_once: bool
    gdpr_purged: bool


class SessionOverview(Struct):
    """A chat session with its unread messages and its newest message, as the caller sees it.

    Only staff see the assignee and the end of a snooze. Names that are not set are empty. A chat session with
    `handed_over_at` is left to people by its bot.
    """

    id: Uuid
    app_id: Uuid
    conversation_id: Uuid
    user_id: Uuid
    bot_id: Uuid | None
    status: Literal[STATUSES]  # type: ignore[valid-type]
    created_at: DateTime
    unread_count: int
    customer_name: str
    bot_name: str
    app_name: str
    assignee_id: Uuid | None
    assignee_name: str
    snoozed_until: DateTime | None
    handed_over_at: DateTime | None
    last_message: LastMessage | None


class ContextMessage(Struct):
    """A message in the context for an assistant."""

    id: Ulid
    role: Literal["user", "assistant", "system"]
    text: str
    created_at: DateTime


class Context(Struct):
    """The context for an assistant: the newest messages, oldest first, and the languages to reply in."""

    messages: list[ContextMessage]
    languages: list[str]


class PinnedPreview(NamedTuple):
    """The beginning of a pinned message."""

    id: str
    sender_type: str
    sender_id: str | None
    text: str
    content_type: str
    is_read_once: bool
    gdpr_purged: bool


class ReadMarker(Table):
    """The newest message of a chat session that a user has read."""

    chat_session_id = reference("chat_session")
    user_id = reference("user")
    message_id = UlidIdentifier()

    @classmethod
    def advance(cls, session_id: str, user_id: str, message_id: str) -> None:
        """Mark a session as read up to a message, and the notifications of these messages. Never moves backwards."""
        _advance(session_id, user_id, message_id).run()
        if _mark_notifications_read(session_id, user_id, message_id, clock.timestamp()).run():
            User.mark_changed(user_id)

    class Meta:
        primary_key = peewee.CompositeKey("chat_session_id", "user_id")


def list_sessions(
    caller: Caller, after: Position, limit: int, filters: SessionFilters = NO_FILTERS
) -> Page[SessionOverview]:
    """Return a page of the chat sessions that a caller may access, latest activity first.

    A session with a new message moves to the first page; no session appears twice. With filters, a page may hold fewer
    than `limit` sessions, or none, although more pages follow. A filter by assignee selects only sessions of which the
    caller is staff.
    """
    with snapshot():
        keys, end = find_keys(caller, filters, after, limit + 1)
        rows = _overviews(caller, [id for _, id in keys[:limit]])
    return Page(msgspec.json.encode(rows), keys[limit - 1] if len(keys) > limit else end)


@compiled
def _advance(session_id: str, user_id: str, message_id: str) -> Query:
    inserted = peewee.EXCLUDED.message_id
    return ReadMarker.insert(chat_session_id=session_id, user_id=user_id, message_id=message_id).on_conflict(
        conflict_target=(ReadMarker.chat_session_id, ReadMarker.user_id),
        update={ReadMarker.message_id: inserted},
        where=inserted > ReadMarker.message_id,
    )


@compiled
def _mark_notifications_read(session_id: str, user_id: str, message_id: str, now: str) -> Query:
    unread = (Notification.user_id == user_id) & (Notification.session_id == session_id)
    unread &= Notification.read_at.is_null() & (Notification.type == "chat_message")
    return Notification.update(read_at=now).where(unread, Notification.message_id <= message_id)


def revision(caller: Caller, session: ChatSession) -> tuple[object, ...]:
    """Return a value that differs after every change of the messages that a caller sees in a session."""
    staff = caller.is_staff(session.app_id)
    return staff, caller.shows_receipts, session.revision if staff else session.public_revision


def messages(
    caller: Caller, session: ChatSession, after: Position, limit: int, direction: Literal["forward", "backward"]
) -> Page[Message]:
    """Return a page of a session's messages, `forward` from the oldest or `backward` from the newest."""
    staff = caller.is_staff(session.app_id)
    total = session.shown_total if staff else session.public_total
    order = [Order(Message.id, descending=direction == "backward", explicit_nulls=True)]
    found = _messages(session.id, *_receipts(caller, session), staff=staff)
    return page(found, order, after, limit, total=total)


def pinned_messages(caller: Caller, session: ChatSession) -> msgspec.Raw:
    """Return the pinned messages of a session, most recently pinned first."""
    order = [Order(Message.pinned_at, descending=True), Order(Message.id, descending=True)]
    staff = caller.is_staff(session.app_id)
    found = _messages(session.id, *_receipts(caller, session), staff=staff, pinned=True)
    return page(found, order, Position(), 2 * PIN_LIMIT if staff else PIN_LIMIT, is_paginated=False).rows


def pinned_previews(caller: Caller, session: ChatSession) -> list[PinnedPreview]:
    """Return the beginnings of the pinned messages of a session, most recently pinned first."""
    staff = caller.is_staff(session.app_id)
    rows = _pinned_previews(session.id, 2 * PIN_LIMIT if staff else PIN_LIMIT, staff=staff).rows()
    return [PinnedPreview(*row) for row in rows]


@compiled
def _pinned_previews(session_id: str, limit: int, *, staff: bool) -> Query:
    text = peewee.fn.substr(Message.plain_text, 1, PREVIEW_LENGTH)
    found = _visible(session_id, staff=staff).where(Message.pinned_at.is_null(False))
    found = found.select(Message.id, Message.sender_type, Message.sender_id, text, Message.content_type)
    found = found.select_extend(Message.is_read_once, Message.gdpr_purged_at.is_null(False))
    return found.order_by(Message.pinned_at.desc(), Message.id.desc()).limit(limit)


def _receipts(caller: Caller, session: ChatSession) -> tuple[str, ...]:
    """Return the receipts of a session for `_messages`; none if the `status` of its messages is as stored."""
    receipts = _stored_receipts(session.__data__)
    return receipts if any(receipts) and caller.shows_receipts else ()


@compiled
def _messages(session_id: str, *receipts: SqlValue, staff: bool, pinned: bool = False) -> Query:
    found = _visible(session_id, staff=staff)
    if staff:
        found = found.select(row_for_staff(*receipts))
    elif receipts:
        found = found.select(with_receipts(*receipts))
    return found.where(Message.pinned_at.is_null(False)) if pinned else found


def _visible(session_id: str, *, staff: bool) -> "peewee.ModelSelect[Message]":
    """Select the messages of a session that are visible to its staff, or to its customer."""
    found = Message.select(Message.id).where(Message.chat_session_id == session_id, NOT_DELETED)
    return found if staff else found.where(~Message.is_private)


def overview(caller: Caller, session_id: str) -> SessionOverview:
    """Return the overview of one session."""
    (found,) = _overviews(caller, [session_id])
    return found


def context(session: ChatSession, limit: int) -> Context:
    """Return the messages that are sent to an AI: no deleted, purged, private or read-once (`is_read_once`) ones."""
    with snapshot():
        bottom = _newest(session.id, staff=False, depth=CONTEXT_DEPTH).value() or ""
        lengths = [length for _, length in _context_rows(session.id, bottom, limit, lengths=True).rows()]
        fitting = sum(total <= CONTEXT_LENGTH for total in itertools.accumulate(lengths))
        rows = _context_rows(session.id, bottom, max(fitting, 1)).rows()
        languages = languages_of(session)
    roles: dict[str, Literal["user", "system"]] = {"user": "user", "system": "system"}
    messages = [
        ContextMessage(id, roles.get(sender_type, "assistant"), *more) for id, sender_type, *more in reversed(rows)
    ]
    return Context(messages, languages)


@compiled
def _context_rows(session_id: str, bottom: str, limit: int, *, lengths: bool = False) -> Query:
    length = peewee.fn.length(Message.plain_text)
    columns = (Message.id, Message.sender_type, Message.plain_text, Message.created_at)
    found = Message.select(Message.id, length) if lengths else Message.select(*columns)
    found = found.where(Message.chat_session_id == session_id, PUBLIC, Message.id >= bottom)
    found = found.where(Message.plain_text != "", ~Message.is_read_once, Message.gdpr_purged_at.is_null())
    return found.order_by(NEWEST_FIRST.sql()).limit(limit)


@compiled
def _newest(session_id: str, *, staff: bool, depth: int) -> Query:
    return nth(_visible(session_id, staff=staff), NEWEST_FIRST, depth)


def mark_read(
    caller: Caller, session: ChatSession, message_id: str | None, status: ReceiptStatus = "read"
) -> SessionOverview:
    """Mark a session as read by the caller, up to a message or entirely. Raises MessageNotFound.

    With the status `delivered`, the other side sees that the messages have arrived, and nothing is marked as read.
    """
    with write(session.id):
        if message_id:
            message_id = Message.get_for(caller, message_id, session).id
        else:
            message_id = _newest(session.id, staff=caller.is_staff(session.app_id), depth=1).value()
        if message_id and status == "read":
            ReadMarker.advance(session.id, caller.id, message_id)
        if message_id:
            receipts.give(caller, session, message_id, status)
        return overview(caller, session.id)


def read_position(caller: Caller, session: ChatSession) -> str:
    """Return the newest message of a session that the caller has read or sent; empty if there is none."""
    marker = ReadMarker.get_or_none(ReadMarker.chat_session_id == session.id, ReadMarker.user_id == caller.id)
    sent = Message.select(peewee.fn.max(Message.id))
    own = sent.where(Message.chat_session_id == session.id, Message.sender_id == caller.id).scalar()
    return max(marker.message_id if marker else "", own or "")


def _overviews(caller: Caller, ids: list[str]) -> list[SessionOverview]:
    """Return the overviews of some sessions, latest activity first."""
    found = _overview(caller.id, caller.app_id, *pad_values(ids), role=caller.role).rows()
    return [SessionOverview(*row[:-7], _last_message(row[-7:])) for row in found]  # type: ignore[call-arg]


def _last_message(columns: Row) -> LastMessage | None:
    """Return the newest message, if there is one, from its columns. SQLite has numbers as truth values."""
    return LastMessage(*columns[:-2], *map(bool, columns[-2:])) if columns[0] else None


@compiled
def _overview(user_id: str, caller_app_id: str | None, *ids: str, role: str) -> Query:
    is_app = ChatSession.app_id == caller_app_id

    def visible(messages: "peewee.ModelAlias[Message]") -> peewee.Expression:
        inside: peewee.Expression = (messages.chat_session_id == ChatSession.id) & messages.deleted_at.is_null()
        if role == "admin":
            return inside
        public: peewee.Expression = inside & (
            is_app | ~messages.is_private if role == "agent" else ~messages.is_private
        )
        return public

    inner, newest = Message.alias("inner_message"), Message.alias("newest")
    marker = ReadMarker.select(ReadMarker.message_id)
    marker = marker.where(ReadMarker.chat_session_id == ChatSession.id, ReadMarker.user_id == user_id)
    sent = inner.select(peewee.fn.max(inner.id))  # a sender has read all earlier messages; imports have no marker
    sent = sent.where(inner.chat_session_id == ChatSession.id, inner.sender_id == user_id)
    read = peewee.Select((marker.union_all(sent).alias("read"),), (peewee.fn.max(peewee.SQL("message_id")),))
    unread = inner.select(inner.id).where(visible(inner), inner.id > peewee.fn.coalesce(read, ""))
    counted = peewee.Select((unread.limit(literal(UNREAD_LIMIT)).alias("unread"),), (peewee.fn.count(peewee.SQL("*")),))
    latest = inner.select(inner.id).where(visible(inner))
    latest = latest.order_by(Order(inner.id, True, explicit_nulls=True).sql()).limit(literal(1))
    columns = (ChatSession.id, ChatSession.app_id, ChatSession.conversation_id, ChatSession.user_id, ChatSession.bot_id)
    customer, assignee = User.alias("customer"), User.alias("assignee")

    def name_of(table: SqlValue, id: SqlValue, name: SqlValue) -> SqlValue:
        """Return the name in a row of another table, as a subquery: a join may begin with a scan of that table."""
        return peewee.fn.coalesce(table.select(name).where(table.id == id), "")

    names = (
        name_of(customer, ChatSession.user_id, _display_name(customer)),
        name_of(Bot, ChatSession.bot_id, Bot.name),
        name_of(App, ChatSession.app_id, App.name),
    )
    is_staff = {"admin": peewee.SQL("TRUE"), "agent": is_app}.get(role, peewee.SQL("FALSE"))

    def for_staff(column: SqlValue) -> SqlValue:
        return peewee.Case(None, [(is_staff, column)])

    assignee_name = name_of(assignee, for_staff(ChatSession.assignee_id), _display_name(assignee))
    assigned = for_staff(ChatSession.assignee_id), assignee_name
    text = peewee.fn.substr(newest.plain_text, 1, PREVIEW_LENGTH)
    return (
        ChatSession.select(*columns, ChatSession.status, ChatSession.created_at, counted)
        .select_extend(*names, *assigned, for_staff(ChatSession.snoozed_until), ChatSession.handed_over_at)
        .select_extend(newest.id, newest.sender_type, text, newest.created_at, newest.content_type)
        .select_extend(newest.is_read_once, newest.gdpr_purged_at.is_null(False))
        .join(newest, peewee.JOIN.LEFT_OUTER, on=(newest.id == latest))
        .where(ChatSession.id.in_(ids))
        .order_by(ChatSession.active_at.desc(), ChatSession.id.desc())
    )


def _display_name(user: "peewee.ModelAlias[User]") -> SqlValue:
    """Return the display name of a user, else first and last name, as SQL; empty if both are unset."""
    full_name = peewee.fn.trim(user.first_name.concat(" ").concat(user.last_name))
    return peewee.Case(None, [(user.display_name != "", user.display_name)], full_name)


def merge(limit: int, queries: Iterable[CompiledQuery]) -> list[Row]:
    """Return the first rows of several queries in descending order."""
    return sorted((row for query in queries for row in query.rows()), reverse=True)[:limit]


def nth(messages: Query, newest_first: Order, depth: int) -> Query:
    """Select the `depth`-th newest of some messages; no row if there are fewer."""
    return messages.order_by(newest_first.sql()).limit(literal(1)).offset(literal(depth - 1))
