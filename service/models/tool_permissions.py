"""The permission of a customer for a call of a tool: the question in the chat, and the decision by a button."""

from collections.abc import Sequence
from typing import Literal

from service import clock
from service.db import write
from service.errors import GrantLimitReached, InsufficientScope
from service.fields import json_of_bytes
from service.models.actions import Action, Offer
from service.models.audit_log import AuditLog
from service.models.bot_replies import is_left_to_staff, replying_bot
from service.models.callers import Caller
from service.models.chats import ChatSession
from service.models.data_shares import DataShare
from service.models.posting import next_id, post
from service.models.reply_queue import PendingReply
from service.models.turns import Call, Turn, store_turn, turn_of

Decision = Literal["once", "chat", "always", "no"]
DECISIONS: tuple[Decision, ...] = ("once", "chat", "always", "no")
SCOPE = "data-shares"  # that a token needs to permit a call
WAIT = clock.DAY  # for a decision; then the turn ends
LIFETIME = 90 * clock.DAY  # of a grant


def is_allowed(session: ChatSession, call: Call) -> DataShare | None:
    """Return the grant that allows a call now, if there is one."""
    verdict = DataShare.check_access(session.user_id, call.server, call.tool, session.conversation_id)
    return DataShare.find(verdict.grant_id) if verdict.allowed and verdict.grant_id else None


def ask(pending: PendingReply, turn: Turn, text: str, labels: Sequence[str]) -> bool:
    """Ask the customer for the last call of a turn, with buttons. Return whether the turn waits for the decision."""
    with write(pending.chat_session_id):
        session = ChatSession.get_by_id(pending.chat_session_id)
        if replying_bot(session) is None or is_left_to_staff(session.id):
            pending.remove()
            return False
        turn.calls[-1].offer_id = next_id(session)
        if not store_turn(pending, turn, after=WAIT):
            return False
        offer = Offer([Action(id, label) for id, label in zip(DECISIONS, labels, strict=True)])
        content = json_of_bytes({"text": text})
        columns = {"sender_id": session.bot_id, "sender_type": "bot", "action_payload": offer.stored()}
        post(session, id=turn.calls[-1].offer_id, content=content, **columns)
        return True


def decide(caller: Caller, session: ChatSession, offer_id: str, action_id: str) -> bool:
    """Carry out the decision of the customer on an offer, inside the write that stores it.

    Return whether a turn has waited for it. Raises InsufficientScope.
    """
    pending = _waiting(session, offer_id)
    decision = next((one for one in DECISIONS if one == action_id), None)
    if pending is None or decision is None:
        return False
    if decision != "no" and not caller.may(SCOPE):
        raise InsufficientScope(SCOPE)
    turn = turn_of(pending)
    call, turn.continued_at = turn.calls[-1], clock.now()
    about = {"session": session.id, "app": session.app_id, "server": call.server, "tool": call.tool}
    call.state = "refused" if decision == "no" else "once" if decision == "once" else "granted"
    grant = _grant(session, call, decision) if call.state == "granted" else None
    if call.state == "granted" and grant is None:  # the customer has too many grants
        call.state = "once"
    store_turn(pending, turn)
    if call.state == "refused":
        AuditLog.record("tool_refused", caller.id, session.user_id, **about, outcome="customer")
    else:
        AuditLog.record("tool_permitted", caller.id, session.user_id, **about, grant=grant.id if grant else None)
    return True


def _waiting(session: ChatSession, offer_id: str) -> PendingReply | None:
    pending: PendingReply | None = PendingReply.get_or_none(PendingReply.chat_session_id == session.id)
    call = turn_of(pending).open_call if pending else None
    return pending if call and call.state == "asked" and call.offer_id == offer_id else None


def _grant(session: ChatSession, call: Call, decision: Decision) -> DataShare | None:
    conversation = session.conversation_id if decision == "chat" else None
    try:
        return DataShare.grant(
            session.user_id,
            app_id=session.app_id,
            conversation_id=conversation,
            mcp_server_id=call.server,
            allowed_tools=DataShare.allowed_tools.to_stored(call.tools),
            expires_at=clock.timestamp(clock.now() + LIFETIME),
        )
    except GrantLimitReached:
        return None
