"""Chat sessions: create, list, read, assign, archive, end. Their messages are in `messages`."""

from typing import Annotated

from msgspec import Meta, Raw, Struct

from service import clock, typing_indicators
from service.api.operations import Routes
from service.api.parameter_types import Cursor
from service.assistant import suggestions
from service.db import Page
from service.errors import (
    AlreadyAssigned,
    AppNotFound,
    AssigneeNotFound,
    BotNotFound,
    ConversationNotFound,
    MessageNotFound,
    RatingNotFound,
    SessionArchived,
    SessionNotOver,
    UnknownStatus,
)
from service.fields import DATE_TIME, UUID, AnyUlid, AnyUuid
from service.models import (
    ChatRating,
    ChatSession,
    assignments,
    bot_replies,
    inbox,
    posting,
    ratings,
    receipts,
    snoozing,
)
from service.models.callers import Caller
from service.models.chats import STATUSES, check_status
from service.models.inbox import Context, SessionOverview
from service.models.session_filters import OWN, UNASSIGNED, SessionFilters, check_assignee
from service.settings import Settings

routes = Routes("Chat sessions and messages", scope="chats")

ANY_STATUS = "|".join(STATUSES)
GivenUuid = Annotated[AnyUuid, Meta(min_length=1)]


def check_statuses(text: str) -> str:
    """Return statuses that are separated by commas unchanged. Raises ValueError."""
    for word in text.split(","):
        check_status(word)
    return text


class ChatsQuery(Struct):
    """Filters and page size for the list of chat sessions."""

    cursor: Cursor = Cursor()
    limit: Annotated[int, Meta(ge=1, le=200, description="Maximum number of chat sessions to return.")] = 50
    status: Annotated[
        str,
        Meta(
            description="Return only chat sessions with this status, or one of these, separated by commas.",
            extra_json_schema={"pattern": f"^(({ANY_STATUS})(,({ANY_STATUS}))*)?$"},
        ),
        check_statuses,
    ] = ""
    assignee: Annotated[
        str,
        Meta(
            description="Return only chat sessions that are assigned to you (`me`), to no user (`none`), or to the user"
            " with this identifier (staff only).",
            extra_json_schema={"anyOf": [{"enum": ["", OWN, UNASSIGNED]}, UUID]},
        ),
        check_assignee,
    ] = ""
    app_id: Annotated[AnyUuid, Meta(description="Return only chat sessions of this app.")] = ""
    bot_id: Annotated[AnyUuid, Meta(description="Return only chat sessions with this bot.")] = ""

    def filters(self, caller: Caller) -> SessionFilters:
        """Return the conditions of the list for a caller."""
        statuses = tuple(filter(None, self.status.split(",")))
        assignee = caller.id if self.assignee == OWN else self.assignee
        return SessionFilters(statuses, assignee, self.app_id, self.bot_id)


class ContextQuery(Struct):
    """Size of the context."""

    limit: Annotated[int, Meta(ge=1, le=200, description="Maximum number of messages to return.")] = 50


class Beginning(Struct):
    """The app, bot and conversation of a new chat session."""

    app_id: GivenUuid
    bot_id: GivenUuid | None = None
    conversation_id: GivenUuid | None = None


class ReadUpTo(Struct):
    """The last message that was read; by default the newest message.

    With the status `delivered`, the message has only arrived at the client: nothing is marked as read.
    """

    message_id: AnyUlid | None = None
    status: receipts.ReceiptStatus = "read"


class Shown(Struct):
    """Whether the others see the indicator; not if you hide it, or if the chat session is archived."""

    shown: bool


class Assignee(Struct):
    """The new assignee of a chat session; null gives the chat back to its bot."""

    user_id: GivenUuid | None
    if_unassigned: Annotated[
        bool, Meta(description="Fail with `already_assigned` if the chat session is assigned to another user.")
    ] = False


class Snooze(Struct):
    """The end of a snooze."""

    until: Annotated[
        str, Meta(description="RFC 3339, in the future.", extra_json_schema=DATE_TIME), clock.read_timestamp
    ]


class Suggestion(Struct):
    """A draft of a message."""

    text: str


class Status(Struct):
    """The status of a chat session."""

    # The enumeration is for the OpenAPI document only: an unknown status is refused with `unknown_status`.
    status: Annotated[str, Meta(extra_json_schema={"enum": list(STATUSES)})]


@routes.post(
    "/chats",
    statuses=(201, 400, 401, 404),
    extension=True,
    errors=(AppNotFound, BotNotFound, ConversationNotFound),
    example={"app_id": "28cb2155-1c83-5d6c-ad2c-ca61622ab497"},
)
def create_chat_session(caller: Caller, body: Beginning) -> SessionOverview:
    """Create a chat session."""
    return inbox.overview(caller, ChatSession.start(caller, body.app_id, body.bot_id, body.conversation_id).id)


@routes.get("/chats", statuses=(200, 400, 401), extension=True, meta=("next_cursor", "per_page"))
def list_chat_sessions(caller: Caller, query: ChatsQuery) -> Page[SessionOverview]:
    """List the chat sessions that you can read, most recent activity first."""
    return inbox.list_sessions(caller, query.cursor, query.limit, query.filters(caller))


@routes.get("/chats/{id}", statuses=(200, 400, 401, 403, 404), extension=True)
def get_chat_session(caller: Caller, session: ChatSession) -> SessionOverview:
    """Get a chat session with its last message and unread count."""
    return inbox.overview(caller, session.id)


@routes.put(
    "/chats/{id}/read",
    statuses=(200, 400, 401, 403, 404),
    extension=True,
    errors=(MessageNotFound,),
    example={},
)
def mark_chat_session_read(caller: Caller, session: ChatSession, body: ReadUpTo) -> SessionOverview:
    """Mark a chat session as read up to a message; the position never moves backwards."""
    return inbox.mark_read(caller, session, body.message_id, body.status)


@routes.post("/chats/{id}/typing", statuses=(200, 400, 401, 403, 404), extension=True, runs="read")
def show_typing(caller: Caller, session: ChatSession) -> Shown:
    """Show the others in a chat session for six seconds that you are writing."""
    return Shown(typing_indicators.show(caller, session))


@routes.get("/chats/{id}/context", statuses=(200, 400, 401, 403, 404), extension=True, runs="slow")
def get_chat_context(session: ChatSession, query: ContextQuery) -> Context:
    """Get the newest messages of a chat session as an AI may see them, and the languages for the reply."""
    return inbox.context(session, query.limit)


@routes.put(
    "/chats/{id}/assignee",
    statuses=(200, 400, 401, 403, 404),
    extension=True,
    errors=(AlreadyAssigned, AssigneeNotFound),
    example={"user_id": None},
)
def assign_chat_session(caller: Caller, session: ChatSession, body: Assignee) -> SessionOverview:
    """Assign a chat session to a member of the staff of its app, or give it back to its bot (staff only)."""
    assignments.assign(caller, session, body.user_id, if_unassigned=body.if_unassigned)
    return inbox.overview(caller, session.id)


@routes.post("/chats/{id}/handover", statuses=(200, 400, 401, 403, 404), extension=True, errors=(SessionArchived,))
def hand_over_chat_session(caller: Caller, session: ChatSession) -> SessionOverview:
    """Call a person into a chat session; its bot does not reply until the chat is given back or ends."""
    bot_replies.call_person(caller, session)
    return inbox.overview(caller, session.id)


@routes.post(
    "/chats/{id}/suggestion",
    statuses=(200, 400, 401, 403, 404, 429, 503),
    extension=True,
    runs="slow",
    errors=suggestions.ERRORS,
)
def suggest_reply(caller: Caller, session: ChatSession, settings: Settings) -> Suggestion:
    """Get a draft of a reply by the assistant; nothing is sent (staff only)."""
    return Suggestion(suggestions.suggest(caller, session, settings))


@routes.put(
    "/chats/{id}/snooze",
    statuses=(200, 400, 401, 403, 404),
    extension=True,
    example={"until": "2099-01-01T09:00:00Z"},
)
def snooze_chat_session(caller: Caller, session: ChatSession, body: Snooze) -> SessionOverview:
    """Snooze a chat session until a time, or until its customer writes (staff only)."""
    snoozing.snooze(caller, session, body.until)
    return inbox.overview(caller, session.id)


@routes.put(
    "/chats/{id}/status",
    statuses=(200, 400, 403, 404),
    errors=(UnknownStatus,),
    example={"status": "resolved"},
)
def change_chat_session_status(caller: Caller, session: ChatSession, body: Status) -> Status:
    """Set the status of a chat session."""
    return Status(posting.set_status(session, body.status, caller))


@routes.post("/chats/{id}/archive", statuses=(200, 400, 403, 404))
def archive_chat_session(caller: Caller, session: ChatSession) -> Status:
    """Archive a chat session."""
    return Status(session.set_status("archived", caller))


@routes.post("/chats/{id}/end", statuses=(200, 400, 403, 404))
def end_chat_session(caller: Caller, session: ChatSession) -> Status:
    """End a chat session; its status becomes `resolved`."""
    return Status(session.set_status("resolved", caller))


@routes.delete("/chats/{id}", statuses=(200, 400, 403, 404))
def delete_chat_session(caller: Caller, session: ChatSession) -> Status:
    """Archive a chat session; its messages are kept."""
    return Status(session.set_status("archived", caller))


class NewRating(Struct):
    """The rating of a chat session."""

    score: ratings.Score
    comment: Annotated[str, Meta(max_length=2_000)] = ""


@routes.put(
    "/chats/{id}/rating",
    statuses=(200, 400, 401, 403, 404),
    extension=True,
    errors=(SessionNotOver,),
    example={"score": 5, "comment": "Thank you for the quick help."},
)
def rate_chat_session(caller: Caller, session: ChatSession, body: NewRating) -> Annotated[Raw, ChatRating]:
    """Rate a chat session that is over, or change your rating."""
    return ratings.rate(caller, session, body.score, body.comment)


@routes.get("/chats/{id}/rating", statuses=(200, 400, 401, 403, 404), extension=True, errors=(RatingNotFound,))
def get_rating(session: ChatSession) -> Annotated[Raw, ChatRating]:
    """Get the rating of a chat session by its customer."""
    return ratings.read_rating(session)
