"""Stores a message in a chat session: totals, the message itself, and notifications."""

from collections.abc import Sequence

import peewee

from service import clock
from service.db import Query, compiled, database, literal, write
from service.errors import SessionArchived
from service.fields import SqlValue
from service.models.apps import App
from service.models.bots import Bot
from service.models.callers import Caller
from service.models.chats import ENDED_STATUSES, PAUSED_STATUSES, ChatSession
from service.models.messages import NEWEST_FIRST, PUBLIC, Message
from service.models.notifications import Notification
from service.models.staff import staff_ids
from service.models.users import User
from service.translation import gettext_noop

OPEN_STATUSES = ("open", "active")
REOPENED_STATUSES = (*ENDED_STATUSES, *PAUSED_STATUSES)
WAITING = "chat_waiting"  # type of the notification of staff, with one of these titles
CUSTOMER_WAITS, PERSON_NEEDED = gettext_noop("A customer waits for a reply"), gettext_noop("A customer needs a person")
MAX_WAITING = 50  # members of staff who are notified, agents before admins


def post(
    session: ChatSession, *, id: str = "", reopen: bool = False, languages: Sequence[str] = (), **columns: SqlValue
) -> Message:
    """Store a message as the newest of a session and notify the other participants, inside a write.

    `id` is the `next_id` of this write, if the columns depend on it. With `reopen`, the message is the customer's: a
    session that is ended or paused is open again, and staff is notified; one that waits for staff after a handover
    stays as it is. `languages` are those of the request. Raises SessionArchived.
    """
    id = id or next_id(session)
    now = clock.timestamp(min(clock.ulid_time(id), clock.now()))  # the identifier may be after one from the future
    is_private = columns.get("is_private", False)
    assignee_id, reopens, is_waiting = _assignment(session.id, session.user_id).row()
    _count(session, now, ", ".join(languages), is_private=is_private, reopen=reopen)
    message = Message.create(
        id=id,
        chat_session_id=session.id,
        conversation_id=session.conversation_id,
        owner_id=session.user_id,
        app_id=session.app_id,
        created_at=now,
        updated_at=now,
        **columns,
    )
    _notify(message, session, assignee_id, is_waiting=reopen and is_waiting)
    if reopen and reopens:
        session.emit("chat.status_changed", status="open")
    message.emit("message.created")
    return message


def _count(session: ChatSession, now: str, languages: str, *, is_private: bool, reopen: bool) -> None:
    """Add a new message to the totals of a session. Raises SessionArchived."""
    variant = {"public": not is_private, "reopen": reopen, "with_languages": bool(languages)}
    if not _counting(session.id, clock.now(), now, languages, **variant).run():
        raise SessionArchived


@compiled
def _counting(
    session_id: str, revision: int, now: str, languages: str, *, public: bool, reopen: bool, with_languages: bool
) -> Query:
    changes = {"shown_total": ChatSession.shown_total + 1, **ChatSession.changes(revision, is_private=not public)}
    if public:
        changes |= {"public_total": ChatSession.public_total + 1, "active_at": now}
    if reopen:
        changes["status"] = peewee.Case(None, [(_reopens(), "open")], ChatSession.status)
        changes["snoozed_until"] = None
    if with_languages:
        changes["accept_language"] = languages
    return ChatSession.update(changes).where(ChatSession.id == session_id, ChatSession.status != "archived")


def next_id(session: ChatSession) -> str:
    """Return the identifier of the next message of a session: greater than those of all others, deleted or not."""
    return clock.ulid(after=max(filter(None, _newest_ids(session.id).row()), default=""))


@compiled
def _newest_ids(session_id: str) -> Query:
    """Select the newest message and the newest deleted message, each the end of an index."""
    inside = Message.select(Message.id).where(Message.chat_session_id == session_id)
    inside = inside.order_by(NEWEST_FIRST.sql()).limit(literal(1))
    newest = [inside.where(Message.deleted_at.is_null(not_deleted)) for not_deleted in (True, False)]
    return peewee.Select((), newest).bind(database)


def _notify(message: Message, session: ChatSession, assignee_id: str | None, *, is_waiting: bool) -> None:
    """Notify the customer, the assignee, and staff who have sent messages to the session, of another's message.

    Of a waiting customer without an assignee, notify the other staff, too.
    """
    payload = {"message_id": message.id, "session_id": session.id}
    about = {"session_id": session.id, "conversation_id": session.conversation_id, "message_id": message.id}
    participants = {*_senders(session), session.user_id, *filter(None, [assignee_id])}
    others = staff_ids(session.app_id, MAX_WAITING) if is_waiting and not assignee_id else ()
    # Sorted, so that concurrent writes lock the users in the same order.
    for id in sorted({*participants, *others} - {message.sender_id}):
        user = User.find(id)
        if user and not user.is_disabled and _may_see(user, message, session):
            if id in participants:
                type, title = "chat_message", _sender_name(message, session)
            else:
                type, title = WAITING, CUSTOMER_WAITS
            Notification.notify(id, type, title, payload, body=message.preview, **about)


def set_status(session: ChatSession, status: str, caller: Caller) -> str:
    """Set the status of a session as `ChatSession.set_status`, and notify the staff if its customer has reopened it."""
    if caller.id != session.user_id or status not in OPEN_STATUSES:
        return session.set_status(status, caller)
    with write(session.id):
        former = ChatSession.get_by_id(session.id)
        session.set_status(status, caller)
        if former.status not in OPEN_STATUSES:
            call_staff(former, caller.id, CUSTOMER_WAITS)
    return status


def call_staff(session: ChatSession, caller_id: str, title: str) -> None:
    """Notify the assignee, else the staff, about a customer who needs a person, inside a write; not the caller."""
    asked = Message.select().where(Message.chat_session_id == session.id, Message.sender_id == session.user_id, PUBLIC)
    message = asked.order_by(NEWEST_FIRST.sql()).first()
    payload = {"session_id": session.id} | ({"message_id": message.id} if message else {})
    about = {"session_id": session.id, "conversation_id": session.conversation_id}
    about |= {"message_id": message.id, "body": message.preview} if message else {}
    staff = [session.assignee_id] if session.assignee_id else staff_ids(session.app_id, MAX_WAITING)
    for id in sorted({*staff} - {caller_id, session.user_id}):
        Notification.notify(id, WAITING, title, payload, **about)


def _may_see(user: User, message: Message, session: ChatSession) -> bool:
    """Return whether a participant of a session may see a message; notes are for the current staff only."""
    return user.is_staff(session.app_id) or (user.id == session.user_id and not message.is_private)


@compiled
def _assignment(session_id: str, customer_id: str) -> Query:
    """Select the assignee, and whether the customer's next message reopens, and whether it is the first or reopens."""
    sent = Message.select(peewee.SQL("1"))
    sent = sent.where(Message.chat_session_id == session_id, Message.sender_id == customer_id)
    columns = ChatSession.assignee_id, _reopens(), _reopens() | ~peewee.fn.EXISTS(sent)
    return ChatSession.select(*columns).where(ChatSession.id == session_id)


def _reopens() -> peewee.Expression:
    """Return the condition that a message of the customer opens a session again."""
    waits = (ChatSession.status == "pending") & ChatSession.handed_over_at.is_null(False)
    reopens: peewee.Expression = ChatSession.status.in_(REOPENED_STATUSES)
    reopens &= ~(waits & ChatSession.assignee_id.is_null())
    return reopens


def _senders(session: ChatSession) -> list[str]:
    """Return the senders of a session: one index step for each, however many messages they wrote."""
    return [row[0] for row in _distinct_senders(session.id).rows()]


@compiled
def _distinct_senders(session_id: str) -> Query:
    first = Message.select(peewee.fn.min(Message.sender_id)).where(Message.chat_session_id == session_id)
    found = first.cte("senders", recursive=True, columns=("id",))
    following = first.where(Message.sender_id > found.c.id)
    senders = found.union_all(peewee.Select([found], [following]).where(found.c.id.is_null(False)))
    return senders.select_from(senders.c.id).where(senders.c.id.is_null(False)).bind(database)


def _sender_name(message: Message, session: ChatSession) -> str:
    """Return the display name of a sender, never the e-mail address; without a name, that of the app."""
    sender: SqlValue = (Bot if message.sender_type == "bot" else User).find(message.sender_id)
    if message.sender_type == "bot":
        name = sender.name
    else:
        name = sender.display_name or f"{sender.first_name} {sender.last_name}".strip()
    return str(name or App.get_by_id(session.app_id).name)[:200]
