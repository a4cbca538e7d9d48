"""Chat sessions and their messages: who may reach them, and what may be done with them (contract, sections 4 and 5)."""

from collections.abc import Collection
from typing import Any, ClassVar, Literal

import msgspec
import peewee

from service import clock
from service.db import Order, Page, Position, Table, page, write
from service.errors import Forbidden, MessageNotFound, PinLimitReached, SessionNotFound, UnknownStatus
from service.fields import (
    EXPORT,
    NEVER,
    Boolean,
    Flag,
    Identifier,
    Integer,
    JsonAsBytes,
    Sortable,
    Text,
    Timestamp,
    Word,
    reference,
)
from service.models.inbox import Notification
from service.models.people import Caller, User

LIVE = ("open", "active", "pending", "snoozed", "on_hold")
OVER = ("resolved", "ended", "closed")
STATUSES = (*LIVE, *OVER, "archived")

PIN_LIMIT = 100
PURGED = "gdpr_purged"
CONTENTS = ("content", "original_content", "translations", "reply_snapshot", "action_payload")


def known_status(text: str) -> str:
    """A status of chat sessions. Raises ValueError for another word."""
    if text not in STATUSES:
        raise ValueError(f"expected one of {', '.join(STATUSES)}")
    return text


class ChatSession(Table):
    """One bounded exchange of a user with a bot; its conversation is the long-lived thread of the two."""

    id = Identifier(primary_key=True, default=clock.uuid)
    app_id = reference("app")
    conversation_id = Identifier(default=clock.uuid, index=True)
    user_id = reference("user")
    bot_id = reference("bot", null=True)
    status = Word(*STATUSES)
    created_at = Timestamp(default=clock.timestamp)
    shown_total = Integer(default=0, leaves=NEVER)  # messages not deleted, kept so that no page has to count
    public_total = Integer(default=0, leaves=NEVER)  # those of them that are not private

    @classmethod
    def reach(cls, caller: Caller, id: str, *above: Any) -> "ChatSession":
        """The session, for its owner and its staff. Raises SessionNotFound or Forbidden."""
        session = cls.get_or_none(cls.id == id)
        if session is None:
            raise SessionNotFound
        if session.user_id != caller.id and not caller.is_staff(session.app_id):
            raise Forbidden(concealed=SessionNotFound)
        return session

    @classmethod
    def listed_for(cls, caller: Caller, after: Position, limit: int, status: str) -> "Page[ChatSession]":
        """A page of the sessions that a caller may reach, the newest first."""
        own = cls.user_id == caller.id
        within = {"admin": cls.id.is_null(False), "agent": own | (cls.app_id == caller.app_id)}.get(caller.role, own)
        found = cls.select().where(within)
        if status:
            found = found.where(cls.status == status)
        apart = within is own  # staff have the index without the user
        return page(found, [Order(cls.created_at, True, apart), Order(cls.id, True, apart)], after, limit)

    def become(self, status: str) -> str:
        """Move to a status, from whichever."""
        try:
            known_status(status)
        except ValueError as error:
            raise UnknownStatus(f"Unknown status; {error}.") from None
        still = ChatSession.status != status
        ChatSession.update(status=status).where(ChatSession.id == self.id, still).execute()
        return status

    def seen_by(self, caller: Caller) -> Any:
        """The condition of the messages in this session that a caller may see."""
        shown = (Message.chat_session_id == self.id) & Message.deleted_at.is_null()
        return shown if caller.is_staff(self.app_id) else shown & ~Message.is_private

    def messages(
        self, caller: Caller, after: Position, limit: int, direction: Literal["forward", "backward"]
    ) -> "Page[Message]":
        """A page of messages, `forward` from the oldest or `backward` from the newest."""
        total = self.shown_total if caller.is_staff(self.app_id) else self.public_total
        order = [Order(Message.id, descending=direction == "backward", apart=True)]
        return page(Message.select().where(self.seen_by(caller)), order, after, limit, total=total)

    def pinned_messages(self, caller: Caller) -> msgspec.Raw:
        """The pinned messages, newest pin first."""
        pinned = Message.select().where(self.seen_by(caller), Message.pinned_at.is_null(False))
        order = [Order(Message.pinned_at, descending=True), Order(Message.id, descending=True)]
        return page(pinned, order, Position(), PIN_LIMIT).rows

    class Meta:
        indexes = tuple(((*who, "created_at", "id"), False) for who in (("user_id",), ("app_id",), ()))


class Message(Table):
    """A message of a chat session (section 2.6 of the document)."""

    id = Sortable(primary_key=True)
    chat_session_id = reference("chat_session")
    conversation_id = Identifier(null=True)
    identity_id = Text(255, null=True, default=None)
    sender_id = Text(255, null=True, default=None)
    sender_type = Text(64, default="user")
    channel = Text(64, default="web")
    status = Text(64, default="sent")
    content_type = Text(64, default="text")
    content = JsonAsBytes()
    original_content = JsonAsBytes()
    translations = JsonAsBytes()
    reply_to_message_id = Sortable(null=True, refers_to="message")
    reply_snapshot = JsonAsBytes()
    action_id = Text(255, null=True, default=None)
    action_source_id = Text(255, null=True, default=None)
    action_payload = JsonAsBytes()
    is_edited = Flag("edited_at")
    edited_at = Timestamp(null=True)
    is_pinned = Flag("pinned_at")
    is_private = Boolean(default=False)
    is_read_once = Boolean(default=False)
    deleted_at = Timestamp(null=True)
    gdpr_purged = Flag("gdpr_purged_at")
    gdpr_purged_at = Timestamp(null=True)
    gdpr_original_content_type = Text(64, null=True, default=None)
    created_at = Timestamp(default=clock.timestamp)
    updated_at = Timestamp(default=clock.timestamp)
    pinned_at = Timestamp(null=True, leaves=EXPORT)

    also_accepts: ClassVar[dict[str, Any]] = {"text": str}

    @classmethod
    def adopt(cls, given: dict[str, Any]) -> dict[str, Any]:
        """`text` is short for content; an identifier tells the time of creation, and the other way round."""
        more: dict[str, Any] = (
            {"content": {"text": given["text"]}} if "text" in given and "content" not in given else {}
        )
        try:
            if "id" in given:
                moment = clock.timestamp(clock.ulid_time(given["id"]))
            else:
                moment = given.get("created_at") or clock.timestamp()
                more["id"] = clock.ulid(clock.milliseconds(moment))
        except OverflowError:
            raise ValueError("the time of a message lies between the years 1970 and 9999") from None
        created_at = given.get("created_at", moment)
        return {"created_at": created_at, "updated_at": given.get("updated_at", created_at)} | more

    @classmethod
    def reach(cls, caller: Caller, id: str, *above: Any) -> "Message":
        """The message, deleted or not, for whom the session is open. Raises MessageNotFound."""
        (session,) = above
        message = cls.get_or_none(cls.id == id, cls.chat_session_id == session.id)
        if message is None or (message.is_private and not caller.is_staff(session.app_id)):
            raise MessageNotFound
        return message

    def _change(self, **values: Any) -> int:
        """Set columns if the message is not deleted; the number of rows changed."""
        live = (Message.id == self.id) & Message.deleted_at.is_null()
        return int(Message.update(**values).where(live).execute())

    def pin(self) -> None:
        """Pin the message; a second time changes nothing."""
        with write(self.chat_session_id):
            now = Message.get_or_none(Message.id == self.id, Message.deleted_at.is_null())
            if now is None:
                raise MessageNotFound
            if now.pinned_at is None:
                if Message.pins(self.chat_session_id) >= PIN_LIMIT:
                    raise PinLimitReached
                self._change(pinned_at=Message.next_pin(self.chat_session_id))

    @classmethod
    def next_pin(cls, session_id: str) -> str:
        """The moment of a new pin: later than every other in its session, so that the newest one is known."""
        others = cls.select(peewee.fn.max(cls.pinned_at)).where(cls.chat_session_id == session_id)
        newest = others.where(cls.pinned_at.is_null(False)).scalar()
        return clock.timestamp(max(clock.now(), clock.milliseconds(newest) + 1 if newest else 0))

    @classmethod
    def pins(cls, session_id: str) -> int:
        """How many messages of a session are pinned."""
        live = cls.deleted_at.is_null() & cls.pinned_at.is_null(False)
        return int(cls.select().where(cls.chat_session_id == session_id, live).count())

    def unpin(self) -> None:
        """Take the pin off; a second time changes nothing."""
        if self.deleted_at is not None or not self._change(pinned_at=None):
            raise MessageNotFound

    def soft_delete(self) -> None:
        """Hide the message from every surface and keep its content in storage; a second time changes nothing."""
        with write(self.chat_session_id):
            if self._change(deleted_at=clock.timestamp()):
                public = 0 if self.is_private else 1
                ChatSession.update(
                    shown_total=ChatSession.shown_total - 1, public_total=ChatSession.public_total - public
                ).where(ChatSession.id == self.chat_session_id).execute()
                silence(Message.id == self.id)

    @classmethod
    def purge(cls, which: Any) -> int:
        """The legal purge: empty the messages for good and leave tombstones; the number of messages purged."""
        with write():
            silence(which)
            empty = dict.fromkeys(CONTENTS, "[]")
            marks = {"gdpr_purged_at": clock.timestamp(), "gdpr_original_content_type": cls.content_type}
            purged = cls.update(content_type=PURGED, **marks, **empty).where(which, cls.gdpr_purged_at.is_null())
            return int(purged.execute())


def silence(which: Any) -> None:
    """Take the text of messages out of the replies that quote them and the notifications that announce them."""
    gone = Message.select(Message.id).where(which)
    Message.update(reply_snapshot="[]").where(Message.reply_to_message_id.in_(gone)).execute()
    Notification.update(body="", payload="[]").where(Notification.message_id.in_(gone)).execute()


def sessions_of(table: type[Table], identifiers: Collection[str]) -> set[str]:
    """The chat sessions to settle when rows of a table change."""
    if table is ChatSession:
        return set(identifiers)
    which: Any = identifiers
    if table is Notification:
        which = Notification.select(Notification.message_id).where(Notification.id.in_(identifiers))
    elif table is not Message:
        return set()
    rows: Any = Message.select(Message.chat_session_id).where(Message.id.in_(which)).distinct().tuples()
    return {session for (session,) in rows}


def settle(touched: Collection[str]) -> None:
    """Make what is derived agree again for the `touched` sessions, after messages were written in bulk."""
    some = sorted(touched) if len(touched) <= 500 else ChatSession.select(ChatSession.id)
    own = Message.chat_session_id.in_(some)
    of_session = ChatSession.select(ChatSession.conversation_id).where(ChatSession.id == Message.chat_session_id)
    Message.update(conversation_id=of_session).where(own, Message.conversation_id.is_null()).execute()
    shown = Message.select(peewee.fn.count(Message.id)).where(
        Message.chat_session_id == ChatSession.id, Message.deleted_at.is_null()
    )
    ChatSession.update(shown_total=shown, public_total=shown.where(~Message.is_private)).where(
        ChatSession.id.in_(some)
    ).execute()
    silence(own & (Message.deleted_at.is_null(False) | Message.gdpr_purged_at.is_null(False)))
    # A customer never meets a private note, neither quoted in a public reply nor announced.
    notes = Message.select(Message.id).where(own, Message.is_private)
    customers = User.select(User.id).where(User.role == "user")
    told = Notification.message_id.in_(notes) & Notification.user_id.in_(customers)
    Notification.update(body="", payload="[]").where(told).execute()
    quoted = Message.alias("quoted")
    private = quoted.select(quoted.id).where(quoted.id == Message.reply_to_message_id, quoted.is_private)
    Message.update(reply_snapshot="[]").where(own, ~Message.is_private, peewee.fn.EXISTS(private)).execute()


Message.add_index(Message.chat_session_id, Message.id, name="message_shown", where=Message.deleted_at.is_null())
Message.add_index(
    Message.chat_session_id,
    Message.id,
    name="message_public",
    where=Message.deleted_at.is_null() & ~Message.is_private,
)
Message.add_index(
    Message.chat_session_id, Message.pinned_at, name="message_pinned", where=Message.pinned_at.is_null(False)
)
Message.add_index(Message.reply_to_message_id, name="message_reply", where=Message.reply_to_message_id.is_null(False))
