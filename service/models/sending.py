"""Sending a message: content, replies, client message identifiers, and the bot's reply."""

from typing import NamedTuple

from msgspec import Raw

from service import validators
from service.db import write
from service.errors import ClientMessageIdReused, Forbidden, InvalidBody, MessageNotFound, SessionNotFound
from service.fields import SqlValue, as_bytes, json_of_bytes, json_of_integers
from service.models import bot_replies, receipts, tool_permissions
from service.models.actions import Action, pressed_before
from service.models.bot_replies import PlannedReply, ReplyOptions
from service.models.callers import Caller
from service.models.chats import ChatSession
from service.models.contents import EMPTY, IMAGE, text_in, texts_of, with_images, without_images
from service.models.inbox import ReadMarker
from service.models.message_images import MessageImage
from service.models.messages import Message
from service.models.posting import next_id, post
from service.types import JsonValue

MAX_CONTENT_BYTES = 64 * 1024


class Draft(NamedTuple):
    """A message to send."""

    content: str  # as stored
    is_private: bool = False
    reply_to_message_id: str | None = None
    client_message_id: str | None = None
    images: tuple[str, ...] = ()  # identifiers of pictures that the sender has uploaded
    content_type: str = "text"
    channel: str = "web"
    action_id: str | None = None  # of the pressed action, with the message that offers it
    action_source_id: str | None = None
    is_read_once: bool = False
    translations: str = EMPTY  # that the other side sees in place of the text
    action_payload: str = EMPTY  # the actions that the message offers, or the payload of the pressed one

    @property
    def is_offer(self) -> bool:
        return self.action_payload != EMPTY and not self.action_source_id

    def pressing(self, source_id: str | None, action: Action) -> "Draft":
        """Return the message as the press of an action."""
        payload = EMPTY if action.payload is None else json_of_bytes(action.payload)
        return self._replace(action_id=action.id, action_source_id=source_id, action_payload=payload)


def stored_content(content: JsonValue) -> str:
    """Return the stored form of a content from a request. Raises InvalidBody."""
    try:
        found = [] if content is None else as_bytes(content)
    except ValueError as error:
        raise InvalidBody(f"$.content: {error}") from None
    if not 1 <= len(found) <= MAX_CONTENT_BYTES:
        raise InvalidBody(f"$.content: expected 1 to {MAX_CONTENT_BYTES} bytes of JSON")
    return json_of_integers(found)


def require_translatable(draft: Draft) -> None:
    """Raise InvalidBody for a message that has no translation: a private note, or a read-once message."""
    if draft.is_private or draft.is_read_once:
        raise InvalidBody("Private notes and read-once messages are not translated.")


def plan_bot_reply(caller: Caller, session: ChatSession, draft: Draft, options: ReplyOptions) -> PlannedReply | None:
    """Return the bot's reply to a draft before it is sent; None if no bot replies."""
    if draft.is_private or draft.is_read_once or caller.id != session.user_id:
        return None
    return bot_replies.plan_reply(session, text_in(draft.content), options)


def send(
    caller: Caller, session: ChatSession, draft: Draft, options: ReplyOptions, bot_reply: PlannedReply | None
) -> Raw:
    """Send a message and notify the other participants of the session, in one transaction. Return it, rendered.

    A customer's message reopens a session that is ended or paused. `bot_reply` is stored after it, or queued for the
    assistant. If the client_message_id is that of an earlier message, or the action was pressed before, that message
    is returned and nothing is sent. Raises Forbidden for a private note or an offer of a customer,
    ClientMessageIdReused, ActionAlreadyChosen, MessageNotFound, ImageNotFound, InvalidBody or SessionArchived.
    """
    is_customer = caller.id == session.user_id
    is_staff = caller.is_staff(session.app_id)
    if (draft.is_private and not is_staff) or (draft.is_offer and (is_customer or not is_staff)):
        raise Forbidden(not_found=SessionNotFound)
    if draft.is_private and draft.is_offer:
        raise InvalidBody("A private note has no buttons.")
    if draft.is_read_once and (draft.is_private or draft.images or draft.action_source_id or draft.is_offer):
        raise InvalidBody("A read-once message is not private, and has no pictures and buttons.")
    if draft.translations != EMPTY:
        require_translatable(draft)
    texts = {} if draft.is_read_once else texts_of(draft.content)  # before the transaction, since it may take a while
    with write(session.id):
        earlier = sent_before(caller, session, draft)
        if earlier is None and draft.action_source_id and draft.action_id:
            earlier = pressed_before(session, draft.action_source_id, draft.action_id)
        if earlier:
            return earlier.rendered(receipts=caller.shows_receipts)
        snapshot = _snapshot(caller, session, draft)
        message = post(
            session,
            **_columns(caller, session, draft),
            **texts,
            reopen=is_customer,
            languages=validators.accepted_languages(options.accept_language) if is_customer else (),
            sender_id=caller.id,
            sender_type="user" if is_customer else "agent",
            reply_snapshot=snapshot,
        )
        ReadMarker.advance(session.id, caller.id, message.id)
        if not draft.is_private:
            receipts.give(caller, session, message.id, "read")
        decided = draft.action_source_id and tool_permissions.decide(
            caller, session, draft.action_source_id, draft.action_id or ""
        )
        if bot_reply and not decided:
            bot_replies.store_or_queue(session, message, bot_reply)
        return message.rendered(receipts=caller.shows_receipts)


def _columns(caller: Caller, session: ChatSession, draft: Draft) -> dict[str, SqlValue]:
    """Return the columns of a new message, after it got its pictures. Raises ImageNotFound or InvalidBody."""
    columns = draft._asdict() | {"id": next_id(session)}
    ids = columns.pop("images")
    if draft.is_read_once:
        columns |= {"content": EMPTY, "sealed_content": draft.content}
    if not ids:
        return columns
    if draft.content_type != "text":
        raise InvalidBody(f"$.content_type: a message with pictures has the type {IMAGE}")
    images = MessageImage.attach(caller, session, columns["id"], ids)
    return columns | {"content": with_images(draft.content, images), "content_type": IMAGE}


def sent_before(caller: Caller, session: ChatSession, draft: Draft) -> Message | None:
    """Return the message that was sent with the draft's client_message_id, if any.

    Raises ClientMessageIdReused if the two differ.
    """
    if not draft.client_message_id:
        return None
    own = (Message.chat_session_id == session.id) & (Message.sender_id == caller.id)
    sent: Message | None = Message.get_or_none(own, Message.client_message_id == draft.client_message_id)
    is_revealed = sent and sent.is_read_once and sent.sealed_content == EMPTY
    if sent and not sent.gdpr_purged_at and not is_revealed:  # these have no content to compare
        current = sent.sealed_content if sent.is_read_once else sent.content
        content = sent.original_content if sent.edited_at else current
        content, images = without_images(content) if sent.content_type == IMAGE else (content, ())
        same = {name: getattr(sent, name) for name in Draft._fields if name != "images"}
        same |= {"content": content, "is_private": sent.is_private and not sent.hidden_at, "images": images}
        same["content_type"] = "text" if sent.content_type == IMAGE else sent.content_type
        same["translations"] = draft.translations  # follows from the content, and may differ in each attempt
        if draft != Draft(**same):
            raise ClientMessageIdReused
    return sent


def _snapshot(caller: Caller, session: ChatSession, draft: Draft) -> str:
    """Return the snapshot of the message that a draft replies to; only notes may reply to a note.

    Raises MessageNotFound or InvalidBody.
    """
    if not draft.reply_to_message_id:
        return EMPTY
    quoted = Message.get_for(caller, draft.reply_to_message_id, session)
    if quoted.deleted_at:
        raise MessageNotFound
    if quoted.is_private and not draft.is_private:
        raise InvalidBody("$.is_private: only a note may reply to a note")
    return EMPTY if quoted.gdpr_purged_at else quoted.snapshot()
