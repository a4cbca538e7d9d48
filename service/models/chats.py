"""Chat sessions and their messages: who may reach them, and what may be done with them (contract, sections 4 and 5)."""

from typing import Any, ClassVar

import msgspec
import peewee

from service import clock, formats
from service.db import Table, prepared, render, write
from service.errors import Forbidden, MessageNotFound, PinLimitReached, SessionNotFound, UnknownStatus
from service.fields import (
    EXPORT,
    NEVER,
    Boolean,
    Flag,
    Identifier,
    Integer,
    JsonAsBytes,
    OptionalText,
    Sortable,
    Text,
    Timestamp,
    Word,
    reference,
)
from service.models.contents import CONTENTS, EMPTY, text_in
from service.models.due_answers import DueAnswer
from service.models.news import Newsworthy
from service.models.notifications import Notification
from service.models.people import Caller

PAUSED = ("pending", "snoozed", "on_hold")
LIVE = ("open", "active", *PAUSED)
OVER = ("resolved", "ended", "closed")
STATUSES = (*LIVE, *OVER, "archived")

PIN_LIMIT = 100  # of the messages of a session that its customer sees, and as many of its private notes
PIN_BYTES = 1024 * 1024  # of the contents of either; all pinned messages are one response
PURGED = "gdpr_purged"


def known_status(text: str) -> str:
    """A status of chat sessions. Raises ValueError for another word."""
    if text not in STATUSES:
        raise ValueError(f"expected one of {', '.join(STATUSES)}")
    return text


class ChatSession(Newsworthy, Table):
    """One bounded exchange of a user with a bot; its conversation is the long-lived thread of the two."""

    reach_raises = (SessionNotFound, Forbidden)
    id = Identifier(primary_key=True, default=clock.uuid)
    app_id = reference("app")
    conversation_id = Identifier(default=clock.uuid, index=True)
    user_id = reference("user")
    bot_id = reference("bot", null=True)
    status = Word(*STATUSES)
    created_at = Timestamp(default=clock.timestamp)
    shown_total = Integer(default=0, leaves=NEVER)  # messages not deleted, kept so that no page has to count
    public_total = Integer(default=0, leaves=NEVER)  # those of them that are not private
    active_at = Timestamp(null=True, leaves=NEVER)  # when the newest of those was made, or the session
    news_at = Integer(default=0, leaves=NEVER)
    public_news_at = Integer(default=0, leaves=NEVER)  # of what its customer may see
    accept_language = Text(1000, form=formats.accept_language, leaves=EXPORT)  # tags of the customer's last such header
    moments = ("news_at", "public_news_at")

    def save(self, *arguments: Any, **options: Any) -> Any:
        self.active_at = self.active_at or self.created_at
        self.news_at = self.news_at or max(clock.now(), ChatSession.newest() + 1)
        self.public_news_at = self.public_news_at or self.news_at
        return super().save(*arguments, **options)

    @classmethod
    def reach(cls, caller: Caller, id: str, *above: Any) -> "ChatSession":
        """The session, for its owner and its staff. Raises SessionNotFound or Forbidden."""
        session = cls.known(id)
        if session is None:
            raise SessionNotFound
        if session.user_id != caller.id and not caller.is_staff(session.app_id):
            raise Forbidden(concealed=SessionNotFound)
        return session

    def become(self, status: str, caller: Caller) -> str:
        """Move to a status, from whichever; the owner is told of what somebody else has changed."""
        try:
            known_status(status)
        except ValueError as error:
            raise UnknownStatus(f"Unknown status; {error}.") from None
        still = ChatSession.status != status
        with write(self.id):
            changes = {"status": status, **ChatSession.news(clock.now())}
            changed = ChatSession.update(changes).where(ChatSession.id == self.id, still).execute()
            if changed and caller.id != self.user_id:
                about = {"session_id": self.id, "conversation_id": self.conversation_id}
                title = f"Your chat is {status.replace('_', ' ')}"
                Notification.tell(self.user_id, "chat_status", title, {"status": status}, **about)
        return status

    class Meta:
        ordered = ("user_id", "active_at"), ("app_id", "active_at"), ("active_at",), ("news_at",)
        indexes = tuple(((*columns, "id"), False) for columns in (*ordered, ("user_id", "public_news_at")))


class _IsPrivate(Boolean):
    """Whether a message is a note; one that its customer has deleted for themselves is none, but is kept like one."""

    def json(self) -> tuple[str, str]:
        return "%s", f"CASE WHEN {self.sql} AND \"hidden_at\" IS NULL THEN 'true' ELSE 'false' END"


class _DeletedAt(Timestamp):
    """When a message was deleted, for everyone or, where `hidden_at` says so, for its customer alone."""

    def json(self) -> tuple[str, str]:
        return "%s", f"coalesce('\"' || coalesce({self.sql}, \"hidden_at\") || '\"', 'null')"


class Message(Table):
    """A message of a chat session (section 2.6 of the document)."""

    reach_raises = (MessageNotFound,)
    id = Sortable(primary_key=True)
    chat_session_id = reference("chat_session")
    conversation_id = Identifier(null=True)
    identity_id = Text(255, form=formats.identifier, null=True, default=None)
    sender_id = Text(255, form=formats.identifier, null=True, default=None)
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
    is_private = _IsPrivate(default=False)
    is_read_once = Boolean(default=False)
    deleted_at = _DeletedAt(null=True)
    gdpr_purged = Flag("gdpr_purged_at")
    gdpr_purged_at = Timestamp(null=True)
    gdpr_original_content_type = OptionalText(64)
    created_at = Timestamp(default=clock.timestamp)
    updated_at = Timestamp(default=clock.timestamp)
    pinned_at = Timestamp(null=True, leaves=EXPORT)
    hidden_at = Timestamp(null=True, leaves=EXPORT)  # since when only staff sees it; then it is private, too
    client_message_id = Text(255, null=True, default=None, leaves=NEVER)  # by which its sender may send it again
    plain_text = Text(leaves=NEVER)  # the text in the content
    search_text = Text(leaves=NEVER)  # that, folded
    owner_id = Identifier(null=True, leaves=NEVER)  # of the session, as is the next: what a search goes through
    app_id = Identifier(null=True, leaves=NEVER)

    also_accepts: ClassVar[dict[str, Any]] = {"text": str}

    @classmethod
    def adopt(cls, given: dict[str, Any]) -> dict[str, Any]:
        """`text` is short for content; an identifier tells the time of creation, and the other way round."""
        more: dict[str, Any] = {"is_private": True, "deleted_at": None} if given.get("hidden_at") else {}
        text = text_in(given["content"]) if "content" in given else given.get("text", "")
        if "text" in given and "content" not in given:
            more["content"] = {"text": text}
        if not given.get("gdpr_purged") and not given.get("gdpr_purged_at"):
            more |= {"plain_text": text, "search_text": formats.fold(text)}
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

    def save(self, *arguments: Any, **options: Any) -> Any:
        self.plain_text = "" if self.gdpr_purged_at else text_in(self.content)
        self.search_text = formats.fold(self.plain_text)
        return super().save(*arguments, **options)

    @classmethod
    def reach(cls, caller: Caller, id: str, *above: Any) -> "Message":
        """The message, deleted or not, for whom the session is open. Raises MessageNotFound."""
        (session,) = above
        message = cls.known(id)
        if message is None or message.chat_session_id != session.id:
            raise MessageNotFound
        if message.is_private and not caller.is_staff(session.app_id):
            if message.hidden_at is None:
                raise MessageNotFound
            message.deleted_at = message.hidden_at
        return message

    def again(self) -> msgspec.Raw:
        """The message, rendered for its sender, who sends it again. Raises MessageNotFound if it has gone since."""
        if self.deleted_at or self.gdpr_purged_at:
            raise MessageNotFound
        return render(Message, self.id)

    def _change(self, *, pinned: bool = False, **values: Any) -> bool:
        """Set columns unless the message is deleted, and with `pinned` only if it is; whether they were. In a write."""
        changed = _changed(self.id, *values.values(), columns=tuple(values), pinned=pinned).row()
        if changed:
            self.is_private = bool(changed[0])  # an import may have changed that meanwhile
            ChatSession.touch(self.chat_session_id, is_private=self.is_private)
        return bool(changed)

    def expect_pin_room(self, **changed: str) -> None:
        """Raises PinLimitReached where all pinned messages would be too large with this one as it will be."""
        *_, size = _pinned(self.chat_session_id, is_private=self.is_private).row()
        contents = {name: getattr(self, name) for name in CONTENTS}
        counted = sum(map(len, contents.values())) if self.pinned_at else 0
        growth = sum(map(len, {**contents, **changed}.values())) - counted
        if growth > 0 and size + growth > PIN_BYTES:
            raise PinLimitReached(f"The contents of pinned messages have at most {PIN_BYTES} bytes of JSON together.")

    def pin(self) -> None:
        """Pin the message; a second time changes nothing."""
        with write(self.chat_session_id):
            now = Message.known(self.id)
            if now is None or now.deleted_at or self.deleted_at:
                raise MessageNotFound
            if now.pinned_at is None:
                pins, newest, _ = _pinned(self.chat_session_id, is_private=now.is_private).row()
                if pins >= PIN_LIMIT:
                    raise PinLimitReached
                now.expect_pin_room()
                # Later than every other in its session, until time ends, so that the last is known.
                moment = max(clock.now(), clock.milliseconds(newest) + 1 if newest else 0)
                self._change(pinned_at=clock.timestamp(min(moment, clock.LAST)))

    def unpin(self) -> None:
        """Take the pin off; a second time changes nothing."""
        if self.deleted_at:
            raise MessageNotFound
        with write(self.chat_session_id):
            pinned = self._change(pinned=True, pinned_at=None)
            if not pinned and not Message.select().where(Message.id == self.id, Message.deleted_at.is_null()).exists():
                raise MessageNotFound

    def delete_by(self, caller: Caller, session: ChatSession) -> None:
        """Delete the message for everyone, or for its customer alone if another person or a bot has sent it to them.

        A second time changes nothing.
        """
        sender_id = self.sender_id or (session.user_id if self.sender_type == "user" else None)
        if caller.id == sender_id or caller.is_staff(session.app_id):
            self.soft_delete()
        elif not self.deleted_at:
            self._hide()

    def _hide(self) -> None:
        """Show the message to staff only, from now on."""
        with write(self.chat_session_id):
            now = Message.known(self.id)
            if now and not now.deleted_at and not now.is_private:
                self._change(is_private=True, hidden_at=clock.timestamp(), pinned_at=None)
                ChatSession.touch(self.chat_session_id)
                lessened = {"public_total": ChatSession.public_total - 1}
                ChatSession.update(lessened).where(ChatSession.id == self.chat_session_id).execute()
                _silenced(self.id, clock.now()).run_all()

    def soft_delete(self) -> None:
        """Hide the message from every surface and keep its content in storage; a second time changes nothing."""
        with write(self.chat_session_id):
            if self._change(deleted_at=clock.timestamp()):
                public = 0 if self.is_private else 1
                ChatSession.update(
                    shown_total=ChatSession.shown_total - 1, public_total=ChatSession.public_total - public
                ).where(ChatSession.id == self.chat_session_id).execute()
                _silenced(self.id, clock.now()).run_all()

    @classmethod
    def purge(cls, which: Any) -> int:
        """The legal purge: empty the messages for good and leave tombstones; the number of messages purged."""
        with write():
            for query in silencing(which, clock.now()):
                query.execute()
            which &= cls.gdpr_purged_at.is_null()
            for some, is_private in ((which & cls.is_private, True), (which & ~cls.is_private, False)):
                sessions = ChatSession.id.in_(cls.select(cls.chat_session_id).where(some))
                ChatSession.telling(sessions, clock.now(), is_private=is_private).execute()
            empty = dict.fromkeys(CONTENTS, EMPTY) | {"plain_text": "", "search_text": ""}
            marks = {"gdpr_purged_at": clock.timestamp(), "gdpr_original_content_type": cls.content_type}
            return int(cls.update(content_type=PURGED, **marks, **empty).where(which).execute())


@prepared
def _changed(id: str, *values: Any, columns: tuple[str, ...], pinned: bool) -> Any:
    which = [Message.id == id, Message.deleted_at.is_null(), *[Message.pinned_at.is_null(False)] * pinned]
    return Message.update(dict(zip(columns, values, strict=True))).where(*which).returning(Message.is_private)


@prepared
def _pinned(session_id: str, *, is_private: bool) -> Any:
    """The number of pinned messages, or notes, of a session, its newest pin, deleted ones included, and their bytes.

    The contents are arrays of integers, so they have as many bytes as characters.
    """
    counted = Message.deleted_at.is_null() & (Message.is_private if is_private else ~Message.is_private)
    live = peewee.fn.count(Message.id).filter(counted)
    length = sum((peewee.fn.length(getattr(Message, name)) for name in CONTENTS), peewee.SQL("0"))
    size = peewee.fn.coalesce(peewee.fn.sum(length).filter(counted), 0)
    pinned = Message.select(live, peewee.fn.max(Message.pinned_at), size).where(Message.chat_session_id == session_id)
    return pinned.where(Message.pinned_at.is_null(False))


def telling_quotes(some: Any, now: Any) -> list[Any]:
    """What says that whatever quotes some messages is about to change with them, in whichever session."""
    quoting = (Message.reply_to_message_id.in_(some)) & (Message.reply_snapshot != EMPTY)
    sessions = Message.select(Message.chat_session_id).where(quoting)
    parts = [(ChatSession.id.in_(sessions.where(Message.is_private == hidden)), hidden) for hidden in (False, True)]
    return [ChatSession.telling(which, now, is_private=hidden) for which, hidden in parts]


def silencing(which: Any, now: Any) -> list[Any]:
    """What takes the text of messages out of replies that quote and notifications that tell of them; nobody answers."""
    gone = Message.select(Message.id).where(which)
    return [
        *telling_quotes(gone, now),
        Message.update(reply_snapshot=EMPTY).where(Message.reply_to_message_id.in_(gone)),
        Notification.update(body="", payload=EMPTY).where(Notification.message_id.in_(gone)),
        DueAnswer.delete().where(DueAnswer.message_id.in_(gone)),
    ]


@prepared
def _silenced(id: str, now: int) -> Any:
    return silencing(Message.id == id, now)


_shown, _public = Message.deleted_at.is_null(), Message.deleted_at.is_null() & ~Message.is_private
Message.add_index(Message.chat_session_id, Message.id, name="message_shown", where=_shown)
Message.add_index(Message.chat_session_id, Message.id, name="message_public", where=_public)
_pins = Message.pinned_at.is_null(False)
Message.add_index(Message.chat_session_id, Message.pinned_at, name="message_pinned", where=_pins)
Message.add_index(Message.reply_to_message_id, name="message_reply", where=Message.reply_to_message_id.is_null(False))
Message.add_index(Message.chat_session_id, Message.sender_id, Message.id, name="message_sender")
_sent = Message.chat_session_id, Message.sender_id, Message.client_message_id
Message.add_index(*_sent, name="message_client", where=Message.client_message_id.is_null(False))
Message.add_index(Message.owner_id, Message.id, name="message_owner", where=_public)
Message.add_index(Message.app_id, Message.id, name="message_app", where=_shown)
# The rest of `message_shown`, so that the newest message of a session is found whether or not it was deleted.
Message.add_index(Message.chat_session_id, Message.id, name="message_hidden", where=Message.deleted_at.is_null(False))
