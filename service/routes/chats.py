"""Chat sessions and their messages (section 4.2 of the document; contract, sections 4 and 5)."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Raw, Struct

from service.db import Page
from service.errors import PinLimitReached, UnknownStatus
from service.models import ChatSession, Message
from service.models import reading as inbox
from service.models.chats import STATUSES
from service.models.people import Caller
from service.operations import Routes
from service.signature import Cursor

routes = Routes("Chat sessions and messages", scope="chats")


class MessageWindow(Struct):
    """Which messages, and how many."""

    cursor: Cursor = Cursor()
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    direction: Literal["forward", "backward"] = "forward"

    takes_ulids: ClassVar[bool] = True


class Deleted(Struct):
    """The message is hidden from every surface."""

    deleted: bool


class Pinned(Struct):
    """The message is pinned."""

    pinned: bool


class Unpinned(Struct):
    """The message is not pinned."""

    unpinned: bool


class Status(Struct):
    """The status of a chat session."""

    # Only shown: other words are refused with a code of their own.
    status: Annotated[str, Meta(extra_json_schema={"enum": list(STATUSES)})]


@routes.get(
    "/chats/{id}/messages",
    answers=(200, 400, 401),
    meta=("next_cursor", "page", "per_page", "total"),
    revision=inbox.revision,
)
def list_messages(caller: Caller, session: ChatSession, query: MessageWindow) -> Page[Message]:
    """The messages of a chat session, page by page in either direction."""
    return inbox.messages(caller, session, query.cursor, query.limit, query.direction)


@routes.delete("/chats/{session_id}/messages/{message_id}", answers=(200, 400, 403, 404))
def delete_message(caller: Caller, session: ChatSession, message: Message) -> Deleted:
    """Hide a message from its readers and from the AI; another person's, deleted by the customer, stays with staff."""
    message.delete_by(caller, session)
    return Deleted(True)


@routes.post("/chats/{session_id}/messages/{message_id}/pin", answers=(200, 400, 401), raises=(PinLimitReached,))
def pin_message(session: ChatSession, message: Message) -> Pinned:
    """Pin a message."""
    message.pin()
    return Pinned(True)


@routes.delete("/chats/{session_id}/messages/{message_id}/pin", answers=(200, 400, 401))
def unpin_message(session: ChatSession, message: Message) -> Unpinned:
    """Take the pin off a message."""
    message.unpin()
    return Unpinned(True)


@routes.get("/chats/{session_id}/pinned-messages", answers=(200, 400, 401))
def list_pinned_messages(caller: Caller, session: ChatSession) -> Annotated[Raw, list[Message]]:
    """The pinned messages of a chat session, newest pin first."""
    return inbox.pinned_messages(caller, session)


@routes.post("/chats/{id}/archive", answers=(200, 400, 403, 404))
def archive_chat_session(caller: Caller, session: ChatSession) -> Status:
    """Put a chat session away."""
    return Status(session.become("archived", caller))


@routes.delete("/chats/{id}", answers=(200, 400, 403, 404))
def delete_chat_session(caller: Caller, session: ChatSession) -> Status:
    """Put a chat session away; its messages are kept."""
    return Status(session.become("archived", caller))


@routes.post("/chats/{id}/end", answers=(200, 400, 403, 404))
def end_chat_session(caller: Caller, session: ChatSession) -> Status:
    """End a chat session as resolved."""
    return Status(session.become("resolved", caller))


@routes.put(
    "/chats/{id}/status",
    answers=(200, 400, 403, 404),
    raises=(UnknownStatus,),
    example={"status": "resolved"},
)
def change_chat_session_status(caller: Caller, session: ChatSession, body: Status) -> Status:
    """Move a chat session to any status."""
    return Status(session.become(body.status, caller))
