"""Snoozed chat sessions: until a time, or until the customer writes."""

from service import clock
from service.db import Query, compiled, literal, retry_on_conflict, write
from service.errors import Forbidden, InvalidBody, SessionNotFound
from service.models.callers import Caller
from service.models.chats import ChatSession
from service.models.notifications import Notification
from service.translation import gettext_noop

REOPENED = "chat_reopened"  # type of the notification of the assignee
BATCH_SIZE = 100  # chat sessions, each reopened in a transaction of its own


def snooze(caller: Caller, session: ChatSession, until: str) -> None:
    """Snooze a chat session until a time. Raises Forbidden, or InvalidBody for a time that is not in the future."""
    if not caller.is_staff(session.app_id):
        raise Forbidden(not_found=SessionNotFound)
    if until <= clock.timestamp():
        raise InvalidBody("$.until: expected a time in the future")
    with write(session.id):
        session.set_status("snoozed", caller)
        columns = {"snoozed_until": until, **ChatSession.changes(clock.now(), is_private=True)}
        differs = ChatSession.snoozed_until.is_null() | (ChatSession.snoozed_until != until)
        ChatSession.update(columns).where(ChatSession.id == session.id, differs).execute()


def reopen_due() -> int:
    """Open the chat sessions whose time has come, and notify their assignees. Return how many are reopened.

    Of several processes that call this at the same time, one reopens each chat session.
    """
    due = [id for (id,) in _due(clock.timestamp()).rows()]
    return sum(retry_on_conflict(lambda id=id: _reopen(id)) for id in due)  # type: ignore[misc]


def _reopen(id: str) -> bool:
    with write(id):
        session = ChatSession.get_by_id(id)
        if session.snoozed_until is None or session.snoozed_until > clock.timestamp():
            return False  # another process was faster, or the time was changed
        is_snoozed: bool = session.status == "snoozed"  # an import may set the time for any status
        status = "open" if is_snoozed else session.status
        changes = ChatSession.changes(clock.now(), is_private=not is_snoozed)
        ChatSession.update(status=status, snoozed_until=None, **changes).where(ChatSession.id == id).execute()
        if is_snoozed and session.assignee_id:
            about = {"session_id": id, "conversation_id": session.conversation_id}
            title = gettext_noop("A snoozed chat is open again")
            Notification.notify(session.assignee_id, REOPENED, title, {"session_id": id}, **about)
        if is_snoozed:
            session.emit("chat.status_changed", status=status)
        return is_snoozed


@compiled
def _due(now: str) -> Query:
    found = ChatSession.select(ChatSession.id).where(ChatSession.snoozed_until <= now)
    return found.order_by(ChatSession.snoozed_until).limit(literal(BATCH_SIZE))
