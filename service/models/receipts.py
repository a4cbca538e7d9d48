"""Receipts: which messages of a chat session the other side has received and read.

The sides are the customer, and the app: its staff and its bots. A receipt is the position of a side in the messages of
the other, from which lists derive the `status` of messages (see `messages.with_receipts`); reading writes no message.

Private notes, deleted messages and read-once messages have no receipts. Users who hide their receipts
(`show_read_receipts`) give none, and get none.
"""

from typing import Literal, NamedTuple

import peewee

from service import clock
from service.db import Query, compiled, literal, pad_values
from service.fields import Text
from service.models.callers import Caller
from service.models.chats import ChatSession
from service.models.messages import BY_CUSTOMER, HAS_RECEIPTS, NEWEST_FIRST, PUBLIC, Message

ReceiptStatus = Literal["delivered", "read"]
SEARCHED = 100  # messages that are searched for one of the other side
COLUMNS: dict[tuple[bool, ReceiptStatus], Text] = {
    (True, "delivered"): ChatSession.delivered_to_customer,
    (True, "read"): ChatSession.read_by_customer,
    (False, "delivered"): ChatSession.delivered_to_staff,
    (False, "read"): ChatSession.read_by_staff,
}


class Receipt(NamedTuple):
    """The status of the messages of one side up to a message."""

    chat_session_id: str
    message_id: str
    status: ReceiptStatus
    side: Literal["customer", "app"]  # that has received or read the messages


def give(caller: Caller, session: ChatSession, message_id: str, status: ReceiptStatus) -> None:
    """Record that a caller has received or read the messages up to one, inside a write. Never moves backwards."""
    if caller.shows_receipts:
        _give(session.id, message_id, status, is_customer=caller.id == session.user_id)


def give_of_bot(reply: Message) -> None:
    """Record that a bot has read the messages before its reply, inside the write that stores the reply."""
    _give(reply.chat_session_id, reply.id, "read", is_customer=False)


def _give(session_id: str, message_id: str, status: ReceiptStatus, *, is_customer: bool) -> None:
    found = _newest_unread(session_id, message_id, is_customer=is_customer).row()
    newest_of_other, newest, count = found or ("", "", 0)
    # If so many messages are all of the same side, the position passes them, so that the next search is short.
    newest = newest_of_other or (newest if count == SEARCHED else "")
    if newest:
        _advance(session_id, newest, clock.now(), newest, is_customer=is_customer, status=status).run()


@compiled
def _newest_unread(session_id: str, message_id: str, *, is_customer: bool) -> Query:
    """Select the newest message with receipts of the side that `is_customer` is not, and the newest of both sides.

    Only unread messages up to one are searched, of these the newest SEARCHED; the third column is their number.
    """
    read = ChatSession.select(COLUMNS[is_customer, "read"]).where(ChatSession.id == session_id)
    is_of_other = HAS_RECEIPTS & (~BY_CUSTOMER if is_customer else BY_CUSTOMER)
    unread = Message.select(Message.id, peewee.Case(None, [(is_of_other, Message.id)]).alias("of_other"))
    unread = unread.where(Message.chat_session_id == session_id, PUBLIC, Message.id <= message_id, Message.id > read)
    unread = unread.order_by(NEWEST_FIRST.sql()).limit(literal(SEARCHED))
    columns = peewee.fn.max(unread.c.of_other), peewee.fn.max(unread.c.id), peewee.fn.count(unread.c.id)
    return Message.select(*columns).from_(unread)


@compiled
def _advance(
    session_id: str, message_id: str, now: int, bound: str, *, is_customer: bool, status: ReceiptStatus
) -> Query:
    column = COLUMNS[is_customer, status]
    changes = ChatSession.changes(now) | {"receipt_revision": ChatSession.next_revision(now), column.name: message_id}
    return ChatSession.update(changes).where(ChatSession.id == session_id, column < bound)


def changed_receipts(revisions: dict[str, int]) -> list[Receipt]:
    """Return the receipts of some sessions that have changed after a revision of each."""
    found = []
    for id, revision, *positions in _positions(*pad_values([*revisions])).rows() if revisions else ():
        for (is_customer, status), message_id in zip(COLUMNS, positions, strict=True):
            if message_id and revision > revisions[id]:
                found.append(Receipt(id, message_id, status, "customer" if is_customer else "app"))
    return found


@compiled
def _positions(*ids: str) -> Query:
    found = ChatSession.select(ChatSession.id, ChatSession.receipt_revision, *COLUMNS.values())
    return found.where(ChatSession.id.in_(ids))
