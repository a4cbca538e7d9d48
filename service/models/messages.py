"""Messages of chat sessions: access, editing, pinning, deletion and the legal purge."""

from collections.abc import Sequence
from typing import ClassVar, Self

import msgspec
import peewee

from service import clock, validators
from service.db import Order, Query, RenderedRow, Table, compiled, render, rendered_row, write
from service.errors import Forbidden, InvalidBody, MessageGone, MessageNotFound, PinLimitReached
from service.fields import (
    EXPORT_ONLY,
    INTERNAL,
    Boolean,
    Identifier,
    JsonAsBytes,
    OptionalText,
    ShortIdentifier,
    SqlValue,
    Text,
    Timestamp,
    TimestampFlag,
    UlidIdentifier,
    WireType,
    json_of_bytes,
    reference,
)
from service.models.callers import Caller
from service.models.chats import ChatSession
from service.models.contents import (
    CONTENTS,
    EMPTY,
    IMAGE,
    TRANSLATIONS,
    images_in,
    search_text_of,
    text_in,
    texts_of,
    with_images,
)
from service.models.message_images import MessageImage
from service.models.notifications import Notification
from service.models.reply_queue import PendingReply
from service.models.webhooks import EventType, emit
from service.translation import gettext_noop

PIN_LIMIT = 100  # pinned public messages of a chat session, and as many pinned private notes
PIN_BYTES = 1024 * 1024  # contents of the pinned messages of either kind; their list is not paginated
PREVIEW_LENGTH = 200  # characters of a text in replies, notifications and overviews
PHOTO, READ_ONCE = gettext_noop("Photo"), gettext_noop("Read-once message")  # previews of messages without a text
PURGED = "gdpr_purged"
RECEIPTS = ("delivered_to_customer", "read_by_customer", "delivered_to_staff", "read_by_staff")


class _IsPrivate(Boolean):
    """True for a private note. False for a message hidden from its customer, which is stored like a note."""

    def json(self) -> tuple[str, str]:
        return "%s", f"CASE WHEN {self.sql} AND \"hidden_at\" IS NULL THEN 'true' ELSE 'false' END"


class _DeletedAt(Timestamp):
    """The time of the deletion, for everyone or by the customer only (`hidden_at`: staff still see the message)."""

    def json(self) -> tuple[str, str]:
        return "%s", f"coalesce('\"' || coalesce({self.sql}, \"hidden_at\") || '\"', 'null')"


class Message(Table):
    """A message of a chat session."""

    get_for_errors = (MessageNotFound,)
    id = UlidIdentifier(primary_key=True)
    chat_session_id = reference("chat_session")
    conversation_id = Identifier(null=True)
    identity_id = Text(255, validator=validators.identifier, null=True, default=None)
    sender_id = Text(255, validator=validators.identifier, null=True, default=None)
    sender_type = Text(64, default="user")
    channel = Text(64, default="web")
    status = Text(64, default="sent")
    content_type = Text(64, default="text")
    content = JsonAsBytes()
    original_content = JsonAsBytes()
    translations = JsonAsBytes()
    reply_to_message_id = UlidIdentifier(null=True, refers_to="message")
    reply_snapshot = JsonAsBytes()
    action_id = Text(255, null=True, default=None)
    action_source_id = Text(255, null=True, default=None)
    action_payload = JsonAsBytes()
    is_edited = TimestampFlag("edited_at")
    edited_at = Timestamp(null=True)
    is_pinned = TimestampFlag("pinned_at")
    is_private = _IsPrivate(default=False)
    is_read_once = Boolean(default=False)
    deleted_at = _DeletedAt(null=True)
    gdpr_purged = TimestampFlag("gdpr_purged_at")
    gdpr_purged_at = Timestamp(null=True)
    gdpr_original_content_type = OptionalText(64)
    created_at = Timestamp(default=clock.timestamp)
    updated_at = Timestamp(default=clock.timestamp)
    pinned_at = Timestamp(null=True, visibility=EXPORT_ONLY)
    sealed_content = JsonAsBytes(visibility=EXPORT_ONLY)  # of a read-once message, until it is revealed
    # `translations` as staff see them, if the assistant has translated the message for staff.
    staff_translations = JsonAsBytes(visibility=EXPORT_ONLY)
    hidden_at = Timestamp(null=True, visibility=EXPORT_ONLY)  # since then visible to staff only; sets `is_private`
    client_message_id = Text(255, null=True, default=None, visibility=INTERNAL)  # repeated sends have the same
    plain_text = Text(visibility=INTERNAL)  # the text in `content`
    search_text = Text(visibility=INTERNAL)  # see `search_text_of`
    owner_id = ShortIdentifier(null=True, visibility=INTERNAL)  # the customer of the session; with `app_id`, for search
    app_id = ShortIdentifier(null=True, visibility=INTERNAL)

    also_accepts: ClassVar[dict[str, WireType]] = {"text": str}

    @classmethod
    def from_import(cls, given: dict[str, SqlValue]) -> dict[str, SqlValue]:
        """Return the content from `text`, the plain texts, and a missing identifier or creation time."""
        more: dict[str, SqlValue] = {"is_private": True, "deleted_at": None} if given.get("hidden_at") else {}
        text = text_in(given["content"]) if "content" in given else given.get("text", "")
        if "text" in given and "content" not in given:
            more["content"] = {"text": text}
        if _is_to_be_sealed(given):
            sealed = msgspec.json.decode(given["content"]) if "content" in given else more["content"]
            more |= {"sealed_content": sealed, **dict.fromkeys(("content", "original_content", *TRANSLATIONS))}
        elif not given.get("gdpr_purged") and not given.get("gdpr_purged_at"):
            more |= {"plain_text": text, "search_text": search_text_of(text)}
        try:
            if "id" in given:
                time = clock.timestamp(clock.ulid_time(given["id"]))
            else:
                time = given.get("created_at") or clock.timestamp()
                more["id"] = clock.ulid(clock.milliseconds(time))
        except OverflowError:
            raise ValueError("the time of a message lies between the years 1970 and 9999") from None
        created_at = given.get("created_at", time)
        return {"created_at": created_at, "updated_at": given.get("updated_at", created_at)} | more

    def save(self, force_insert: bool = False, only: Sequence[peewee.Field] | None = None) -> int:
        if not self.plain_text and not self.gdpr_purged_at:
            self.plain_text, self.search_text = texts_of(self.content).values()
        return super().save(force_insert, only)

    @classmethod
    def get_for(cls, caller: Caller, id: str, *above: ChatSession) -> Self:
        """Return the message, deleted or not; private notes for staff only. Raises MessageNotFound."""
        (session,) = above
        message = cls.find(id)
        if message is None or message.chat_session_id != session.id:
            raise MessageNotFound
        if message.is_private and not caller.is_staff(session.app_id):
            if message.hidden_at is None:
                raise MessageNotFound
            message.deleted_at = message.hidden_at
        return message

    def rendered(self, *, receipts: bool) -> msgspec.Raw:
        """Return the message, rendered, for a caller with or without receipts.

        Raises MessageNotFound if it was deleted or purged.
        """
        if self.deleted_at or self.gdpr_purged_at:
            raise MessageNotFound
        return rendered_for(self.id, receipts=receipts)

    @property
    def preview(self) -> str:
        """Return the beginning of the text, for lists and notifications."""
        return preview(self.plain_text, self.content_type) or (READ_ONCE if self.is_read_once else "")

    def snapshot(self) -> str:
        """Return the `reply_snapshot` of replies to this message."""
        about = {"sender_type": self.sender_type, "content_type": self.content_type}
        return json_of_bytes({**about, "text": self.plain_text[:PREVIEW_LENGTH]})

    def edit(self, caller: Caller, content: str) -> msgspec.Raw:
        """Replace the content of a message of the caller, and return the message, rendered.

        The first content stays in `original_content`. Replies and notifications that quote the message are updated,
        and its translations are removed; pictures stay. Raises Forbidden, MessageGone, InvalidBody or PinLimitReached.
        """
        if self.sender_id != caller.id:
            raise Forbidden(not_found=MessageNotFound)
        if self.is_read_once:
            raise InvalidBody("A read-once message cannot be edited.")
        own, texts = Message.id == self.id, texts_of(content)
        with write(self.chat_session_id):
            before = Message.get(own)
            if before.deleted_at or before.gdpr_purged_at:
                raise MessageGone
            if before.content_type == IMAGE:
                content = with_images(content, images_in(before.content))
            if content != before.content:
                now = clock.timestamp()
                original = before.content if before.original_content == EMPTY else before.original_content
                contents = {"content": content, "original_content": original, **dict.fromkeys(TRANSLATIONS, EMPTY)}
                if before.pinned_at:
                    before.require_pin_space(**contents)
                Message.update(edited_at=now, updated_at=now, **contents, **texts).where(own).execute()
                after = Message.get(own)
                ChatSession.mark_changed(after.chat_session_id, is_private=after.is_private)
                _mark_quoting(after.id, clock.now()).run_all()
                quoting = (Message.reply_to_message_id == after.id) & (Message.reply_snapshot != EMPTY)
                Message.update(reply_snapshot=after.snapshot()).where(quoting).execute()
                notifications = (Notification.message_id == after.id) & (Notification.payload != EMPTY)
                Notification.update(body=after.preview).where(notifications).execute()
                after.emit("message.edited")
            return rendered_for(self.id, receipts=caller.shows_receipts)

    def _change(self, *, pinned: bool = False, **values: SqlValue) -> bool:
        """Set columns inside a write, unless the message is deleted. Return whether they were set.

        With `pinned`, they are set only if the message is pinned.
        """
        changed = _changed(self.id, *values.values(), columns=tuple(values), pinned=pinned).row()
        if changed:
            self.is_private = bool(changed[0])  # an import may have changed it concurrently
            ChatSession.mark_changed(self.chat_session_id, is_private=self.is_private)
        return bool(changed)

    def require_pin_space(self, **changed: str) -> None:
        """Raise PinLimitReached if the pinned messages would be too large with this one and its `changed` columns."""
        *_, size = _pinned(self.chat_session_id, is_private=self.is_private).row()
        contents = {name: getattr(self, name) for name in CONTENTS}
        counted = sum(map(len, contents.values())) if self.pinned_at else 0
        growth = sum(map(len, {**contents, **changed}.values())) - counted
        if growth > 0 and size + growth > PIN_BYTES:
            raise PinLimitReached(f"The contents of pinned messages have at most {PIN_BYTES} bytes of JSON together.")

    def pin(self) -> None:
        """Pin the message; no effect if it is pinned. Raises MessageNotFound or PinLimitReached."""
        with write(self.chat_session_id):
            current = Message.find(self.id)
            if current is None or current.deleted_at or self.deleted_at:
                raise MessageNotFound
            if current.pinned_at is None:
                pins, newest, _ = _pinned(self.chat_session_id, is_private=current.is_private).row()
                if pins >= PIN_LIMIT:
                    raise PinLimitReached
                current.require_pin_space()
                # Later than every other pin of the session, so that the order of pins is unambiguous.
                pinned_at = max(clock.now(), clock.milliseconds(newest) + 1 if newest else 0)
                self._change(pinned_at=clock.timestamp(min(pinned_at, clock.MAX_TIME)))

    def unpin(self) -> None:
        """Unpin the message; no effect if it is not pinned. Raises MessageNotFound."""
        if self.deleted_at:
            raise MessageNotFound
        with write(self.chat_session_id):
            pinned = self._change(pinned=True, pinned_at=None)
            if not pinned and not Message.select().where(Message.id == self.id, Message.deleted_at.is_null()).exists():
                raise MessageNotFound

    def delete_by(self, caller: Caller, session: ChatSession) -> None:
        """Delete the message for everyone, if the caller is its sender or staff; otherwise hide it from the customer.

        No effect if it is deleted or hidden.
        """
        sender_id = self.sender_id or (session.user_id if self.sender_type == "user" else None)
        if caller.id == sender_id or caller.is_staff(session.app_id):
            self.soft_delete()
        elif not self.deleted_at:
            self._hide()

    def _hide(self) -> None:
        """Make the message visible to staff only."""
        with write(self.chat_session_id):
            current = Message.find(self.id)
            if current and not current.deleted_at and not current.is_private:
                self._change(is_private=True, hidden_at=clock.timestamp(), pinned_at=None, sealed_content=EMPTY)
                ChatSession.mark_changed(self.chat_session_id)
                totals = {"public_total": ChatSession.public_total - 1}
                ChatSession.update(totals).where(ChatSession.id == self.chat_session_id).execute()
                _remove_traces(self.id, clock.now()).run_all()
                Message.get_by_id(self.id).emit("message.deleted")

    def soft_delete(self) -> None:
        """Hide the message from everyone; its content stays stored without pictures. No effect if it is deleted."""
        with write(self.chat_session_id):
            if self._change(deleted_at=clock.timestamp(), sealed_content=EMPTY):
                public = 0 if self.is_private else 1
                ChatSession.update(
                    shown_total=ChatSession.shown_total - 1, public_total=ChatSession.public_total - public
                ).where(ChatSession.id == self.chat_session_id).execute()
                _remove_traces(self.id, clock.now()).run_all()
                self.emit("message.deleted")

    def emit(self, event: EventType) -> None:
        """Queue an event about the message for the webhooks, inside the write that causes it.

        `is_hidden` is true for a message that its customer does not see any more, but staff does.
        """
        emit(
            event,
            self.chat_session_id,
            message_id=self.id,
            chat_session_id=self.chat_session_id,
            conversation_id=self.conversation_id,
            app_id=self.app_id,
            user_id=self.owner_id,
            sender_id=self.sender_id,
            sender_type=self.sender_type,
            is_private=self.is_private and not self.hidden_at,
            is_hidden=bool(self.hidden_at),
            action_id=self.action_id,
            action_source_id=self.action_source_id,
        )

    @classmethod
    def purge(cls, condition: peewee.Expression) -> int:
        """Erase the content of messages permanently and keep them as tombstones. Return the number of messages."""
        with write():
            unpurged = condition & cls.gdpr_purged_at.is_null()
            for messages, is_private in ((unpurged & cls.is_private, True), (unpurged & ~cls.is_private, False)):
                sessions = ChatSession.id.in_(cls.select(cls.chat_session_id).where(messages))
                ChatSession.marking_query(sessions, clock.now(), is_private=is_private).execute()
            empty = dict.fromkeys((*CONTENTS, "sealed_content"), EMPTY) | {"plain_text": "", "search_text": ""}
            marks = {"gdpr_purged_at": clock.timestamp(), "gdpr_original_content_type": cls.content_type}
            purged = int(cls.update(content_type=PURGED, **marks, **empty).where(unpurged).execute())
            for query in trace_removals(condition, clock.now()):
                query.execute()
            return purged


def row_for_staff(*positions: peewee.Node) -> RenderedRow:
    """Return the row of a message for the staff of its app, with all translations; with `positions`, with receipts."""
    shown = peewee.Case(None, [(Message.staff_translations == EMPTY, Message.translations)], Message.staff_translations)
    status = {"status": _status(*positions)} if positions else {}
    return rendered_row(Message, translations=shown, **status)


def with_receipts(*positions: peewee.Node) -> RenderedRow:
    """Return the row of a message whose `status` depends on receipts."""
    return rendered_row(Message, status=_status(*positions))


def _status(*positions: peewee.Node) -> peewee.Node:
    """Return the status of a message that depends on receipts, as JSON.

    `positions` are those of the session: `delivered_to_customer`, `read_by_customer`, and the same two of the staff;
    without them, they are read from the session.
    """
    columns = (getattr(ChatSession, name) for name in RECEIPTS)
    to_customer, by_customer, to_staff, by_staff = positions or columns
    by_side = peewee.Case(None, [(BY_CUSTOMER, _of_side(to_staff, by_staff))], _of_side(to_customer, by_customer))
    derived = by_side if positions else ChatSession.select(by_side).where(ChatSession.id == Message.chat_session_id)
    stored = (~HAS_RECEIPTS | Message.is_private, peewee.SQL('json_quote("status")'))
    return peewee.Case(None, [stored], derived)


def _of_side(delivered: peewee.Node, read: peewee.Node) -> peewee.Node:
    """Return the JSON of the `status` of a message, from the positions of the other side."""
    known = [(Message.id <= read, peewee.SQL("'\"read\"'")), (Message.id <= delivered, peewee.SQL("'\"delivered\"'"))]
    return peewee.Case(None, known, peewee.SQL("'\"sent\"'"))


def rendered_for(id: str, *, receipts: bool) -> msgspec.Raw:
    """Return a message, rendered, for a caller with or without receipts. Raises peewee.DoesNotExist."""
    return render(Message, id, row=with_receipts if receipts else None)


def _is_to_be_sealed(given: dict[str, SqlValue]) -> bool:
    """Return whether an imported message is read-once and has its content where other messages have it."""
    removed = ("gdpr_purged", "gdpr_purged_at", "deleted_at", "hidden_at")
    is_shown = given.get("is_private") or given.get("content_type") == IMAGE or any(map(given.get, removed))
    has_content = "content" in given or "text" in given
    return bool(given.get("is_read_once") and has_content and "sealed_content" not in given and not is_shown)


def preview(text: str, content_type: str) -> str:
    """Return the beginning of a message's text; of a picture without text, the word for it."""
    return text[:PREVIEW_LENGTH] or (PHOTO if content_type == IMAGE else "")


# As `searched_text`: PostgreSQL's lower() changes only ASCII letters in a column with the collation C.
SEARCHED = peewee.Case(Message.search_text, [("", peewee.fn.lower(Message.plain_text))], Message.search_text)
NOT_DELETED = Message.deleted_at.is_null()
PUBLIC = NOT_DELETED & ~Message.is_private
BY_CUSTOMER = Message.sender_type == "user"
HAS_RECEIPTS = (Message.status == "sent") & ~Message.is_read_once  # if it is public; an import may have set a status
NEWEST_FIRST = Order(Message.id, True, explicit_nulls=True)  # of one session; for max(), PostgreSQL uses another index


@compiled
def _changed(id: str, *values: SqlValue, columns: tuple[str, ...], pinned: bool) -> Query:
    which = [Message.id == id, NOT_DELETED, *[Message.pinned_at.is_null(False)] * pinned]
    return Message.update(dict(zip(columns, values, strict=True))).where(*which).returning(Message.is_private)


@compiled
def _pinned(session_id: str, *, is_private: bool) -> Query:
    """Select the number, latest pin and bytes of a session's pinned messages or notes.

    The latest pin counts deleted messages too. The contents are arrays of integers, so they have as many bytes as
    characters.
    """
    counted = NOT_DELETED & (Message.is_private if is_private else ~Message.is_private)
    live = peewee.fn.count(Message.id).filter(counted)
    length = sum((peewee.fn.length(getattr(Message, name)) for name in CONTENTS), peewee.SQL("0"))
    size = peewee.fn.coalesce(peewee.fn.sum(length).filter(counted), 0)
    pinned = Message.select(live, peewee.fn.max(Message.pinned_at), size).where(Message.chat_session_id == session_id)
    return pinned.where(Message.pinned_at.is_null(False))


def _marking_quoting(messages: Query | list[str], now: SqlValue) -> list[Query]:
    """Return the queries that mark the sessions with replies to some messages as changed."""
    quoting = (Message.reply_to_message_id.in_(messages)) & (Message.reply_snapshot != EMPTY)
    sessions = Message.select(Message.chat_session_id).where(quoting)
    parts = [(ChatSession.id.in_(sessions.where(Message.is_private == private)), private) for private in (False, True)]
    return [ChatSession.marking_query(condition, now, is_private=private) for condition, private in parts]


@compiled
def _mark_quoting(id: str, now: int) -> list[Query]:
    return _marking_quoting([id], now)


def trace_removals(condition: peewee.Expression, now: SqlValue) -> list[Query]:
    """Return the queries that remove the text of messages from replies and notifications, and their pending replies.

    Messages that are deleted for everyone, or purged, lose their pictures.
    """
    removed = Message.select(Message.id).where(condition)
    erased = removed.where(Message.deleted_at.is_null(False) | Message.gdpr_purged_at.is_null(False))
    return [
        *_marking_quoting(removed, now),
        Message.update(reply_snapshot=EMPTY).where(Message.reply_to_message_id.in_(removed)),
        Notification.update(body="", payload=EMPTY).where(Notification.message_id.in_(removed)),
        PendingReply.delete().where(PendingReply.message_id.in_(removed)),
        MessageImage.delete().where(MessageImage.message_id.in_(erased)),
    ]


@compiled
def _remove_traces(id: str, now: int) -> list[Query]:
    return trace_removals(Message.id == id, now)


# For staff and customers: entries of private notes are skipped without reading their rows.
Message.add_index(Message.chat_session_id, Message.id, Message.is_private, name="message_shown", where=NOT_DELETED)
_pins = Message.pinned_at.is_null(False)
Message.add_index(Message.chat_session_id, Message.pinned_at, name="message_pinned", where=_pins)
Message.add_index(Message.reply_to_message_id, name="message_reply", where=Message.reply_to_message_id.is_null(False))
Message.add_index(Message.chat_session_id, Message.sender_id, Message.id, name="message_sender")
Message.add_index(Message.action_source_id, name="message_action", where=Message.action_source_id.is_null(False))
_sent = Message.chat_session_id, Message.sender_id, Message.client_message_id
Message.add_index(*_sent, name="message_client", where=Message.client_message_id.is_null(False))
Message.add_index(Message.owner_id, Message.id, name="message_owner", where=PUBLIC)
Message.add_index(Message.app_id, Message.id, name="message_app", where=NOT_DELETED)
# With `message_shown`, finds the newest message of a session whether or not it is deleted.
Message.add_index(Message.chat_session_id, Message.id, name="message_deleted", where=Message.deleted_at.is_null(False))
