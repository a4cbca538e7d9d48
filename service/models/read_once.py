"""Messages that the other side may read once.

Their content is in `sealed_content`, which no list, search, preview or context reads. Revealing it returns it, and
erases it in the same transaction.
"""

from msgspec import Raw

from service import clock
from service.db import Query, compiled, write
from service.errors import Forbidden, MessageNotFound, NothingToReveal
from service.fields import SqlValue, json_of_bytes
from service.models.callers import Caller
from service.models.chats import ChatSession
from service.models.contents import EMPTY
from service.models.messages import Message, rendered_for


def reveal(caller: Caller, session: ChatSession, message: Message) -> Raw:
    """Return a read-once message with its content, rendered, and erase the content.

    The customer reveals the messages of staff, staff those of the customer. Raises Forbidden, MessageNotFound, or
    NothingToReveal if it was revealed before.
    """
    if message.deleted_at:
        raise MessageNotFound
    sender_id = message.sender_id or (session.user_id if message.sender_type == "user" else None)
    if (caller.id == session.user_id) == (sender_id == session.user_id):
        raise Forbidden(not_found=MessageNotFound)
    with write(session.id):
        if not _unseal(message.id).run():
            raise NothingToReveal
        revealed = rendered_for(message.id, receipts=caller.shows_receipts)
        now = clock.timestamp()
        _mark_revealed(message.id, json_of_bytes({"revealed_at": now}), now).run()
        ChatSession.mark_changed(session.id)
        message.emit("message.revealed")
        return revealed


@compiled
def _unseal(id: str) -> Query:
    sealed = (Message.id == id) & (Message.sealed_content != EMPTY)
    return Message.update(content=Message.sealed_content, sealed_content=EMPTY).where(sealed)


@compiled
def _mark_revealed(id: str, content: SqlValue, now: SqlValue) -> Query:
    return Message.update(content=content, updated_at=now).where(Message.id == id)
