"""Assignment of chat sessions to staff. While a chat session has an assignee, its bot does not reply.

To give a chat back to the bot also ends a handover, see `bot_replies`.
"""

import peewee

from service import clock
from service.db import Query, compiled, write
from service.errors import AlreadyAssigned, AssigneeNotFound, Forbidden, SessionNotFound
from service.fields import SqlValue
from service.models.audit_log import AuditLog
from service.models.callers import Caller
from service.models.chats import ChatSession
from service.models.notifications import Notification
from service.models.reply_queue import PendingReply
from service.models.users import User
from service.models.webhooks import is_enabled
from service.translation import gettext_noop

ASSIGNED = "chat_assigned"  # type of the notification of a new assignee


def assign(caller: Caller, session: ChatSession, user_id: str | None, *, if_unassigned: bool = False) -> None:
    """Assign a chat session to a member of the staff of its app; None gives the chat back to its bot.

    Replies of the bot that are pending or in progress are not sent. Of concurrent assignments, the last one stays;
    with `if_unassigned`, the first one. Raises Forbidden, AssigneeNotFound or AlreadyAssigned.
    """
    if not caller.is_staff(session.app_id):
        raise Forbidden(not_found=SessionNotFound)
    with write(*filter(None, (session.id, user_id))):  # a user is disabled with the second lock
        current = ChatSession.get_by_id(session.id)
        former = current.assignee_id
        if if_unassigned and former not in (None, user_id):
            raise AlreadyAssigned
        if user_id:
            _require_staff(user_id, session.app_id)
        if user_id == former and (user_id or not current.handed_over_at):
            return
        now = clock.now()
        reopened = current.status == "pending" and current.handed_over_at and not user_id
        given_back = {} if user_id else {"given_back_at": clock.timestamp(now), "handed_over_at": None}
        columns = {"assignee_id": user_id, **given_back, **({"status": "open"} if reopened else {})}
        changes = ChatSession.changes(now, is_private=not (current.handed_over_at and not user_id))
        ChatSession.update(columns | changes).where(ChatSession.id == session.id).execute()
        PendingReply.delete().where(PendingReply.chat_session_id == session.id).execute()
        if user_id not in (None, caller.id):
            _notify(user_id, session)
        session.emit("chat.assigned", assignee_id=user_id)
        if reopened:
            session.emit("chat.status_changed", status="open")
        details = {"session": session.id, "assignee": user_id, "former": former}
        AuditLog.record("assignee_changed", caller.id, session.user_id, **details)


def end_invalid(user_id: str) -> int:
    """End the assignments of a user to chat sessions of apps whose staff the user has left. Return their number."""
    ended = _ending(clock.now(), clock.timestamp(), user_id).rows()
    if is_enabled():
        for (id,) in ended:
            ChatSession.get_by_id(id).emit("chat.assigned", assignee_id=None)
    return len(ended)


def valid_assignee(assignee_id: SqlValue, app_id: SqlValue) -> SqlValue:
    """Return the condition that a user may be the assignee of a chat session of an app."""
    staff = User.select(User.id).where(User.id == assignee_id, ~User.is_disabled, User.staff_of(app_id))
    return peewee.fn.EXISTS(staff)


@compiled
def _ending(now: int, timestamp: str, user_id: str) -> Query:
    valid = valid_assignee(ChatSession.assignee_id, ChatSession.app_id)
    columns = {"assignee_id": None, "given_back_at": timestamp, **ChatSession.changes(now, is_private=True)}
    ending = ChatSession.update(columns).where(ChatSession.assignee_id == user_id, ~valid)
    return ending.returning(ChatSession.id)


User.after_staff_change.append(end_invalid)


def _require_staff(user_id: str, app_id: str) -> None:
    """Raise AssigneeNotFound unless a user is enabled and on the staff of an app."""
    user = User.find(user_id)
    if user is None or user.is_disabled or not user.is_staff(app_id):
        raise AssigneeNotFound


def _notify(user_id: str, session: ChatSession) -> None:
    about = {"session_id": session.id, "conversation_id": session.conversation_id}
    Notification.notify(
        user_id, ASSIGNED, gettext_noop("A chat was assigned to you"), {"session_id": session.id}, **about
    )
