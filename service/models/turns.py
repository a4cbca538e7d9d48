"""The state of a turn of the assistant that uses tools: the calls so far, and the call that waits for the customer.

It is a part of the pending reply, and ends with it: when the reply is stored, when the customer sends another message,
or when a person takes the chat session over.
"""

from typing import Literal

import msgspec
from msgspec import Struct

from service import clock
from service.models.chats import ChatSession
from service.models.reply_queue import PendingReply
from service.types import JsonObject

State = Literal["asked", "granted", "once", "refused", "started", "done"]


class Call(Struct):
    """A call of a tool, which the assistant has requested.

    `asked`: the customer has not decided. `granted`: a data share allows it. `once`: the customer allows this call.
    `started`: another attempt must not repeat it. `done`: it has a `result`, which may be a refusal.
    """

    function: str  # its name in requests to the assistant
    server: str
    tool: str
    arguments: JsonObject
    state: State
    offer_id: str = ""  # the message that asks the customer
    tools: list[str] = []  # what a grant would allow
    result: str = ""


class Turn(Struct):
    """The calls of a turn. `continued_at` is when the customer has decided, in ms."""

    calls: list[Call] = []
    continued_at: int = 0

    @property
    def open_call(self) -> Call | None:
        """The last call, if it has no result."""
        return self.calls[-1] if self.calls and self.calls[-1].state != "done" else None


def turn_of(pending: PendingReply) -> Turn:
    """Return the turn of a pending reply."""
    return msgspec.json.decode(pending.turn, type=Turn) if pending.turn else Turn()


def store_turn(pending: PendingReply, turn: Turn, *, after: int = 0) -> bool:
    """Store a turn, whose next step is due `after` ms, unless another worker or a decision has changed the row."""
    stored = msgspec.json.encode(turn).decode()
    return pending.set_due_at(clock.now() + after, turn=stored, attempts=0)


def refuse_waiting(user_id: str, server: str) -> None:
    """Refuse the calls of a server that wait for a user, inside a write."""
    sessions = ChatSession.select(ChatSession.id).where(ChatSession.user_id == user_id)
    for pending in PendingReply.select().where(PendingReply.chat_session_id.in_(sessions), PendingReply.turn != ""):
        turn = turn_of(pending)
        call = turn.open_call
        if call and call.state == "asked" and call.server == server:
            call.state, turn.continued_at = "refused", clock.now()
            store_turn(pending, turn)
