"""Messages of chat sessions: list, send, edit, delete, pin, search."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Raw, Struct

from service import clock, validators
from service.api.operations import Routes
from service.api.parameter_types import Cursor, RequestInfo
from service.assistant import translations
from service.db import Page
from service.errors import (
    ActionAlreadyChosen,
    ActionNotFound,
    ClientMessageIdReused,
    ImageNotFound,
    InvalidBody,
    MessageChanged,
    MessageGone,
    MessageNotFound,
    NothingToReveal,
    NothingToTranslate,
    PinLimitReached,
    SessionArchived,
)
from service.fields import AnyUlid
from service.models import ChatSession, Message, actions, inbox, read_once, search, sending
from service.models.bot_replies import PlannedReply, ReplyOptions
from service.models.callers import Caller
from service.models.contents import IMAGE
from service.models.languages import own_language
from service.models.message_images import MESSAGE_LIMIT
from service.models.message_translations import Translation, store_for_staff
from service.models.messages import PURGED
from service.settings import Settings
from service.types import JsonValue

routes = Routes("Chat sessions and messages", scope="chats")

Content = Annotated[
    JsonValue,
    Meta(description='A JSON value, text as `{"text": …}`, or the UTF-8 bytes of JSON as an array of integers.'),
]


class MessagesQuery(Struct):
    """Position, direction and page size for the list of messages."""

    cursor: Cursor = Cursor()
    limit: Annotated[int, Meta(ge=1, le=200, description="Maximum number of messages to return.")] = 50
    direction: Annotated[
        Literal["forward", "backward"], Meta(description="`forward`: oldest first. `backward`: newest first.")
    ] = "forward"

    takes_ulids: ClassVar[bool] = True


def search_text(text: str) -> str:
    """Return the text to search for. Raises ValueError for blank text."""
    if not text.strip():
        raise ValueError("expected a text")
    return text


class SearchQuery(Struct):
    """Search text and page size."""

    q: Annotated[str, Meta(min_length=1, max_length=200, description="Text to find; case-insensitive."), search_text]
    cursor: Cursor = Cursor()
    limit: Annotated[int, Meta(ge=1, le=100, description="Maximum number of messages to return.")] = 25


def image_ids(ids: list[str]) -> list[str]:
    """Return the identifiers of uploaded pictures. Raises ValueError."""
    found = [clock.read_uuid(id) for id in ids]
    if len(set(found)) < len(found):
        raise ValueError("a picture is given more than once")
    return found


def own_content_type(text: str) -> str:
    """Return a content type that clients may give. Raises ValueError for those that the service sets."""
    if text in (IMAGE, PURGED):
        raise ValueError("this type is set by the service only")
    return text


class NewMessage(Struct):
    """A message to send. A repeated `client_message_id` sends no second message.

    Staff offer actions in `action_payload`. The customer chooses one with `action_source_id`, the message that offers
    it, and `action_id`; then `content` is by default the label of the action. The content of an `is_read_once` message
    is in no list; the other side reveals it once.
    """

    content: Content = None
    content_type: Annotated[str, Meta(min_length=1, max_length=64), own_content_type] = "text"
    channel: Annotated[str, Meta(min_length=1, max_length=64)] = "web"
    is_private: bool = False
    is_read_once: bool = False
    action_id: Annotated[str, Meta(min_length=1, max_length=actions.MAX_LABEL)] | None = None
    action_source_id: AnyUlid | None = None
    action_payload: actions.Offer | None = None
    reply_to_message_id: AnyUlid | None = None
    client_message_id: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    images: Annotated[
        list[str],
        Meta(max_length=MESSAGE_LIMIT, description="Identifiers of uploaded pictures; `content` is their text."),
        image_ids,
    ] = []


class OtherWords(Struct):
    """The new content of a message."""

    content: Content


class TargetLanguage(Struct):
    """The language of a translation; by default the language that the caller reads."""

    language: (
        Annotated[str, Meta(min_length=1, max_length=64, description="A BCP 47 tag."), validators.plain_language] | None
    ) = None


class Deleted(Struct):
    """The message is deleted."""

    deleted: bool


class Pinned(Struct):
    """The message is pinned."""

    pinned: bool


class Unpinned(Struct):
    """The message is not pinned."""

    unpinned: bool


@routes.get(
    "/chats/{id}/messages",
    statuses=(200, 400, 401),
    meta=("next_cursor", "page", "per_page", "total"),
    revision=inbox.revision,
)
def list_messages(caller: Caller, session: ChatSession, query: MessagesQuery) -> Page[Message]:
    """List the messages of a chat session."""
    return inbox.messages(caller, session, query.cursor, query.limit, query.direction)


@routes.get("/chats/search", statuses=(200, 400, 401), extension=True, meta=("next_cursor", "per_page"))
def search_messages(caller: Caller, query: SearchQuery) -> Page[Message]:
    """Search messages, newest first; a page with fewer messages than `limit` is not necessarily the last."""
    return search.search(caller, query.q, query.cursor, query.limit)


def draft_message(
    caller: Caller, session: ChatSession, body: NewMessage, request_info: RequestInfo, settings: Settings
) -> tuple[sending.Draft, ReplyOptions, PlannedReply | None]:
    """Return the message to send, the context of the request, and the reply of the bot, if it replies."""
    action = chosen_action(caller, session, body)
    default = {"text": action.label} if action and body.content is None else body.content
    draft = sending.Draft(
        sending.stored_content(default),
        body.is_private,
        body.reply_to_message_id,
        body.client_message_id,
        tuple(body.images),
        body.content_type,
        body.channel,
        is_read_once=body.is_read_once,
    )
    if action:
        draft = draft.pressing(body.action_source_id, action)
    elif body.action_payload:
        draft = draft._replace(action_payload=body.action_payload.stored())
    options = ReplyOptions.of(request_info.languages, settings)
    return draft, options, sending.plan_bot_reply(caller, session, draft, options)


def chosen_action(caller: Caller, session: ChatSession, body: NewMessage) -> actions.Action | None:
    """Return the action that a message presses, if any. Raises InvalidBody."""
    if not body.action_source_id or not body.action_id:
        if body.action_source_id or body.action_id:
            raise InvalidBody("$.action_id: expected together with action_source_id")
        return None
    if body.action_payload or body.is_private:
        raise InvalidBody("$.action_source_id: expected without action_payload and is_private")
    return actions.choose(caller, session, body.action_source_id, body.action_id)


@routes.post(
    "/chats/{id}/messages",
    statuses=(201, 400, 401, 403, 404),
    extension=True,
    prepare=draft_message,
    errors=(
        ActionAlreadyChosen,
        ActionNotFound,
        ClientMessageIdReused,
        ImageNotFound,
        MessageNotFound,
        SessionArchived,
    ),
    example={"content": {"text": "Hello! When will my parcel arrive?"}},
)
def send_message(
    caller: Caller, session: ChatSession, prepared: tuple[sending.Draft, ReplyOptions, PlannedReply | None]
) -> Annotated[Raw, Message]:
    """Send a message."""
    return sending.send(caller, session, *prepared)


def edited_content(body: OtherWords) -> str:
    """Return the new content of a message, as stored."""
    return sending.stored_content(body.content)


@routes.patch(
    "/chats/{session_id}/messages/{message_id}",
    statuses=(200, 400, 401, 403, 404),
    extension=True,
    prepare=edited_content,
    errors=(MessageGone, PinLimitReached),
    example={"content": {"text": "Hello! When will my two parcels arrive?"}},
)
def edit_message(caller: Caller, session: ChatSession, message: Message, prepared: str) -> Annotated[Raw, Message]:
    """Edit one of your messages."""
    return message.edit(caller, prepared)


@routes.delete("/chats/{session_id}/messages/{message_id}", statuses=(200, 400, 403, 404))
def delete_message(caller: Caller, session: ChatSession, message: Message) -> Deleted:
    """Delete a message; if its sender is not the customer who deletes it, it stays visible to staff."""
    message.delete_by(caller, session)
    return Deleted(True)


@routes.post(
    "/chats/{session_id}/messages/{message_id}/reveal",
    statuses=(200, 400, 401, 403, 404),
    extension=True,
    errors=(NothingToReveal,),
)
def reveal_message(caller: Caller, session: ChatSession, message: Message) -> Annotated[Raw, Message]:
    """Read a read-once message of the other side: the response has its content, for the last time."""
    return read_once.reveal(caller, session, message)


def translate_message(
    caller: Caller,
    session: ChatSession,
    message: Message,
    body: TargetLanguage,
    request_info: RequestInfo,
    settings: Settings,
) -> Translation:
    """Return the translation of a message for staff."""
    language = body.language or own_language(caller, request_info.languages)
    return translations.translate_message(caller, session, message, language, settings)


@routes.post(
    "/chats/{session_id}/messages/{message_id}/translation",
    statuses=(200, 400, 401, 403, 404, 429, 503),
    extension=True,
    runs="slow",
    prepare=translate_message,
    errors=(*translations.ERRORS, MessageChanged, MessageGone, NothingToTranslate, PinLimitReached),
    example={"language": "en"},
)
def store_translation(caller: Caller, session: ChatSession, message: Message, prepared: Translation) -> Translation:
    """Get the translation of a message by the assistant, which is stored for all staff (staff only)."""
    return store_for_staff(caller, session, message, prepared)


@routes.get("/chats/{session_id}/pinned-messages", statuses=(200, 400, 401))
def list_pinned_messages(caller: Caller, session: ChatSession) -> Annotated[Raw, list[Message]]:
    """List the pinned messages of a chat session, most recently pinned first."""
    return inbox.pinned_messages(caller, session)


@routes.post("/chats/{session_id}/messages/{message_id}/pin", statuses=(200, 400, 401), errors=(PinLimitReached,))
def pin_message(session: ChatSession, message: Message) -> Pinned:
    """Pin a message."""
    message.pin()
    return Pinned(True)


@routes.delete("/chats/{session_id}/messages/{message_id}/pin", statuses=(200, 400, 401))
def unpin_message(session: ChatSession, message: Message) -> Unpinned:
    """Unpin a message."""
    message.unpin()
    return Unpinned(True)
