"""What a caller reaches of chats, in parts that are each one range of an index; joined by OR they would not be."""

from typing import Any, Literal

from service.models.chats import ChatSession
from service.models.people import Caller

Part = Literal["everything", "served", "own", "own elsewhere"]


def parts_of(caller: Caller) -> tuple[Part, ...]:
    """The parts that a caller reaches; no row is in two of them."""
    if caller.role == "admin":
        return ("everything",)
    if caller.role == "agent" and caller.app_id:
        return "served", "own elsewhere"
    return ("own",)


def within(part: Part, own: Any, app_id: Any, works_for: Any, served: Any) -> Any:
    """The condition of a part: of `own` rows, or of what staff has `served` of those of an app that it works for."""
    conditions = {
        "everything": served,
        "served": (app_id == works_for) & served,
        "own": own,
        "own elsewhere": own & (app_id != works_for),
    }
    return conditions[part]


def sessions_within(part: Part, user_id: Any, works_for: Any) -> Any:
    """The condition of a part of the chat sessions."""
    return within(part, ChatSession.user_id == user_id, ChatSession.app_id, works_for, ChatSession.id.is_null(False))
