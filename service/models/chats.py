"""Chat sessions: access, status, and starting a new one."""

from collections.abc import Sequence
from typing import Self

import peewee

from service import clock, validators
from service.db import Table, write
from service.errors import AppNotFound, BotNotFound, ConversationNotFound, Forbidden, SessionNotFound, UnknownStatus
from service.fields import EXPORT_ONLY, INTERNAL, Choice, Identifier, Integer, Text, Timestamp, reference
from service.models.apps import App
from service.models.bots import Bot
from service.models.callers import Caller
from service.models.change_tracking import ChangeTracked
from service.models.notifications import Notification
from service.models.webhooks import EventType, emit

PAUSED_STATUSES = ("pending", "snoozed", "on_hold")
LIVE_STATUSES = ("open", "active", *PAUSED_STATUSES)
ENDED_STATUSES = ("resolved", "ended", "closed")
STATUSES = (*LIVE_STATUSES, *ENDED_STATUSES, "archived")


def check_status(text: str) -> str:
    """Return a status of chat sessions unchanged. Raises ValueError for any other text."""
    if text not in STATUSES:
        raise ValueError(f"expected one of {', '.join(STATUSES)}")
    return text


class ChatSession(ChangeTracked, Table):
    """A bounded exchange of a user with a bot. The sessions of the two over time are one conversation."""

    get_for_errors = (SessionNotFound, Forbidden)
    id = Identifier(primary_key=True, default=clock.uuid)
    app_id = reference("app")
    conversation_id = Identifier(default=clock.uuid, index=True)
    user_id = reference("user")
    bot_id = reference("bot", null=True)
    status = Choice(*STATUSES)
    created_at = Timestamp(default=clock.timestamp)
    shown_total = Integer(default=0, visibility=INTERNAL)  # messages that are not deleted, stored for lists
    public_total = Integer(default=0, visibility=INTERNAL)  # those that are not private
    active_at = Timestamp(null=True, visibility=INTERNAL)  # creation of the newest public message, or of the session
    revision = Integer(default=0, visibility=INTERNAL)
    public_revision = Integer(default=0, visibility=INTERNAL)  # of what the customer may see
    # The last Accept-Language header of the customer.
    accept_language = Text(1000, validator=validators.accept_language, visibility=EXPORT_ONLY)
    assignee_id = reference("user", null=True, visibility=EXPORT_ONLY)  # the member of staff who replies, not the bot
    # The last time that the chat was given back to the bot: earlier messages of staff do not silence it.
    given_back_at = Timestamp(null=True, visibility=EXPORT_ONLY)
    # When a person was called: the bot is silent until the chat is given back or ends.
    handed_over_at = Timestamp(null=True, visibility=EXPORT_ONLY)
    snoozed_until = Timestamp(null=True, visibility=EXPORT_ONLY)
    # The newest message of the other side that was received or read; empty before the first. See `receipts`.
    delivered_to_customer = Text(visibility=INTERNAL)
    read_by_customer = Text(visibility=INTERNAL)
    delivered_to_staff = Text(visibility=INTERNAL)
    read_by_staff = Text(visibility=INTERNAL)
    receipt_revision = Integer(default=0, visibility=INTERNAL)  # the revision of the last change of these
    revision_columns = ("revision", "public_revision")

    def save(self, force_insert: bool = False, only: Sequence[peewee.Field] | None = None) -> int:
        self.active_at = self.active_at or self.created_at
        self.revision = self.revision or max(clock.now(), ChatSession.latest_revision() + 1)
        self.public_revision = self.public_revision or self.revision
        return super().save(force_insert, only)

    @classmethod
    def get_for(cls, caller: Caller, id: str, *above: Table) -> Self:
        """Return the chat session, for its customer and the staff of its app. Raises SessionNotFound or Forbidden."""
        session = cls.find(id)
        if session is None:
            raise SessionNotFound
        if session.user_id != caller.id and not caller.is_staff(session.app_id):
            raise Forbidden(not_found=SessionNotFound)
        return session

    @classmethod
    def start(cls, caller: Caller, app_id: str, bot_id: str | None, conversation_id: str | None) -> "ChatSession":
        """Create a chat session of the caller, in a new conversation or in an existing one with the same bot.

        Raises AppNotFound, BotNotFound or ConversationNotFound.
        """
        with write(caller.id):
            if not App.select().where(App.id == app_id).exists():
                raise AppNotFound
            if bot_id and Bot.get_for(caller, bot_id).app_id != app_id:
                raise BotNotFound
            if conversation_id:
                with_bot = cls.bot_id == bot_id if bot_id else cls.bot_id.is_null()
                own = cls.select().where(cls.user_id == caller.id, cls.app_id == app_id, with_bot)
                if not own.where(cls.conversation_id == conversation_id).exists():
                    raise ConversationNotFound
            columns = {"conversation_id": conversation_id} if conversation_id else {}
            session = cls.create(user_id=caller.id, app_id=app_id, bot_id=bot_id, **columns)
            session.emit("chat.created", status=session.status)
            return session

    def set_status(self, status: str, caller: Caller) -> str:
        """Set the status, from any other, and notify the customer unless it is the caller. Raises UnknownStatus."""
        try:
            check_status(status)
        except ValueError as error:
            raise UnknownStatus(f"Unknown status; {error}.") from None
        with write(self.id):
            over = {} if status in LIVE_STATUSES else {"handed_over_at": None}
            columns = {"status": status, "snoozed_until": None, **over, **ChatSession.changes(clock.now())}
            differs = ChatSession.status != status
            changed = ChatSession.update(columns).where(ChatSession.id == self.id, differs).execute()
            if changed and caller.id != self.user_id:
                about = {"session_id": self.id, "conversation_id": self.conversation_id}
                title = f"Your chat is {status.replace('_', ' ')}"
                Notification.notify(self.user_id, "chat_status", title, {"status": status}, **about)
            if changed:
                self.emit("chat.status_changed", status=status)
        return status

    def emit(self, event: EventType, **data: str | None) -> None:
        """Queue an event about the session for the webhooks, inside the write that causes it."""
        about = {"app_id": self.app_id, "conversation_id": self.conversation_id, "user_id": self.user_id}
        emit(event, self.id, chat_session_id=self.id, **about, **data)

    class Meta:
        ordered = ("user_id", "active_at"), ("app_id", "active_at"), ("active_at",), ("revision",)
        indexes = tuple(((*columns, "id"), False) for columns in (*ordered, ("user_id", "public_revision")))


# The filters of lists. The last columns are for conditions that are checked without reading the rows.
_by_activity = ChatSession.active_at, ChatSession.id
_checked = ChatSession.assignee_id, ChatSession.bot_id
ChatSession.add_index(ChatSession.status, *_by_activity, *_checked, name="chat_session_status")
ChatSession.add_index(ChatSession.app_id, ChatSession.status, *_by_activity, *_checked, name="chat_session_app_status")
ChatSession.add_index(
    ChatSession.assignee_id,
    ChatSession.status,
    *_by_activity,
    ChatSession.app_id,
    ChatSession.bot_id,
    name="chat_session_assignee",
    where=ChatSession.assignee_id.is_null(False),
)
ChatSession.add_index(
    ChatSession.snoozed_until, name="chat_session_snoozed", where=ChatSession.snoozed_until.is_null(False)
)
