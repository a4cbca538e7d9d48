"""The life of a chat beside the document: beginning, writing, reading, searching (contract, section 5)."""

from typing import Annotated, Any

from msgspec import Meta, Raw, Struct

from service.db import Page
from service.errors import (
    AppNotFound,
    BotNotFound,
    ClientMessageIdReused,
    ConversationNotFound,
    MessageGone,
    MessageNotFound,
    PinLimitReached,
    SessionArchived,
)
from service.fields import AnyUlid, AnyUuid
from service.models import ChatSession, Message, searching
from service.models import conversing as talk
from service.models import reading as inbox
from service.models.chats import STATUSES, known_status
from service.models.people import Caller
from service.models.reading import Context, SessionOverview
from service.models.speaking import Heard, Hearing
from service.operations import Routes
from service.settings import Settings
from service.signature import Cursor, Origin

routes = Routes("Chat sessions and messages", scope="chats", extension=True)

GivenUuid = Annotated[AnyUuid, Meta(min_length=1)]
Content = Annotated[Any, Meta(description='Any JSON, a text as `{"text": …}`, or its bytes as an array of integers.')]


class SessionWindow(Struct):
    """Which chat sessions, and how many."""

    cursor: Cursor = Cursor()
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    status: Annotated[
        str,
        Meta(description="Only those with this status.", extra_json_schema={"enum": list(STATUSES)}),
        known_status,
    ] = ""


class Beginning(Struct):
    """Where a chat session begins, and with whom."""

    app_id: GivenUuid
    bot_id: GivenUuid | None = None
    conversation_id: GivenUuid | None = None


class NewMessage(Struct):
    """A message to be sent; the same `client_message_id` again sends nothing more."""

    content: Content
    is_private: bool = False
    reply_to_message_id: AnyUlid | None = None
    client_message_id: Annotated[str, Meta(min_length=1, max_length=255)] | None = None


class OtherWords(Struct):
    """What a message shall say."""

    content: Content


class ReadUpTo(Struct):
    """The message up to which a chat session is read; the newest without one."""

    message_id: AnyUlid | None = None


class ContextWindow(Struct):
    """How much an AI is given."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 50


def sought(text: str) -> str:
    """A text to search for. Raises ValueError for a blank one."""
    if not text.strip():
        raise ValueError("expected a text")
    return text


class Search(Struct):
    """What is searched for, and how many are shown."""

    q: Annotated[
        str, Meta(min_length=1, max_length=200, description="Stands in the text; case does not matter."), sought
    ]
    cursor: Cursor = Cursor()
    limit: Annotated[int, Meta(ge=1, le=100)] = 25


@routes.post(
    "/chats",
    answers=(201, 400, 401, 404),
    raises=(AppNotFound, BotNotFound, ConversationNotFound),
    example={"app_id": "28cb2155-1c83-5d6c-ad2c-ca61622ab497"},
)
def create_chat_session(caller: Caller, body: Beginning) -> SessionOverview:
    """Begin a chat session."""
    return inbox.overview(caller, talk.begin(caller, body.app_id, body.bot_id, body.conversation_id).id)


@routes.get("/chats", answers=(200, 400, 401), meta=("next_cursor", "per_page"))
def list_chat_sessions(caller: Caller, query: SessionWindow) -> Page[SessionOverview]:
    """The chat sessions that you may read, the latest activity first."""
    return inbox.list_sessions(caller, query.cursor, query.limit, query.status)


@routes.get("/chats/search", answers=(200, 400, 401), meta=("next_cursor", "per_page"))
def search_messages(caller: Caller, query: Search) -> Page[Message]:
    """The messages in which a text stands, the newest first; a page may hold fewer and still not be the last."""
    return searching.search(caller, query.q, query.cursor, query.limit)


@routes.get("/chats/{id}", answers=(200, 400, 401, 403, 404))
def get_chat_session(caller: Caller, session: ChatSession) -> SessionOverview:
    """One chat session, and what is new in it."""
    return inbox.overview(caller, session.id)


def draft_message(
    caller: Caller, session: ChatSession, body: NewMessage, origin: Origin, settings: Settings
) -> tuple[talk.Draft, Hearing, Heard | None]:
    """The message to be sent, what came with it, and what a bot replies to it."""
    content = talk.stored_content(body.content)
    draft = talk.Draft(content, body.is_private, body.reply_to_message_id, body.client_message_id)
    hearing = Hearing(origin.languages, bool(settings.assistant_url))
    return draft, hearing, talk.bot_reply(caller, session, draft, hearing)


@routes.post(
    "/chats/{id}/messages",
    answers=(201, 400, 401, 403, 404),
    prepare=draft_message,
    raises=(ClientMessageIdReused, MessageNotFound, SessionArchived),
    example={"content": {"text": "Hello! When will my parcel arrive?"}},
)
def send_message(
    caller: Caller, session: ChatSession, prepared: tuple[talk.Draft, Hearing, Heard | None]
) -> Annotated[Raw, Message]:
    """Send a message."""
    return talk.send(caller, session, *prepared)


def edited_content(body: OtherWords) -> str:
    """The new content of a message, as stored."""
    return talk.stored_content(body.content)


@routes.patch(
    "/chats/{session_id}/messages/{message_id}",
    answers=(200, 400, 401, 403, 404),
    prepare=edited_content,
    raises=(MessageGone, PinLimitReached),
    example={"content": {"text": "Hello! When will my two parcels arrive?"}},
)
def edit_message(caller: Caller, session: ChatSession, message: Message, prepared: str) -> Annotated[Raw, Message]:
    """Edit one of your messages."""
    return talk.edit(caller, message, prepared)


@routes.put(
    "/chats/{id}/read",
    answers=(200, 400, 401, 403, 404),
    raises=(MessageNotFound,),
    example={},
)
def mark_chat_session_read(caller: Caller, session: ChatSession, body: ReadUpTo) -> SessionOverview:
    """Note how far you have read a chat session; it never goes backwards."""
    return inbox.mark_read(caller, session, body.message_id)


@routes.get("/chats/{id}/context", answers=(200, 400, 401, 403, 404), runs="slow")
def get_chat_context(session: ChatSession, query: ContextWindow) -> Context:
    """What an AI may see of a chat session, and the languages to answer in."""
    return inbox.context(session, query.limit)
