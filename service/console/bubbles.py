"""Messages as the console shows them."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from service.console import faces
from service.console.faces import Face
from service.console.times import Times
from service.models import ChatSession
from service.models.people import Caller

AROUND = 25  # messages before one that is looked for, and after

ROLES = {"user": "customer", "bot": "bot", "system": "system"}  # others are staff


class Bubble(NamedTuple):
    """A message on a page."""

    id: str
    text: str
    is_other: bool  # no text: some JSON, shown as it is
    face: Face
    role: str  # "own", "customer", "agent", "bot" or "system"
    sent: str
    day: str  # where another one begins
    quote: str
    is_private: bool
    is_pinned: bool
    is_edited: bool
    is_purged: bool
    is_hidden: bool  # deleted by the customer, so that only staff sees it
    may_edit: bool


def bubbles(rows: Iterable[dict[str, Any]], session: ChatSession, caller: Caller, times: Times) -> list[Bubble]:
    """Messages of one session as a caller sees them, in their order."""
    rows = list(rows)
    people = faces.people([session.user_id, *(row["sender_id"] for row in rows)])
    bots = faces.bots([session.bot_id, *(row["sender_id"] for row in rows)])
    (app,) = faces.apps([session.app_id]).values()
    found, last = [], ""
    for row in rows:
        kind = row["sender_type"]
        sender = row["sender_id"] or (session.user_id if kind == "user" else session.bot_id if kind == "bot" else "")
        face = people.get(sender) or bots.get(sender) or app
        role = "own" if sender == caller.id else ROLES.get(kind, "agent")
        text, is_other = text_of(row["content"])
        day = times.day(row["created_at"])
        found.append(
            Bubble(
                row["id"],
                text,
                is_other,
                face,
                role,
                row["created_at"],
                day if day != last else "",
                quoted(row["reply_snapshot"]),
                row["is_private"],
                row["is_pinned"],
                row["is_edited"],
                row["gdpr_purged"],
                row["deleted_at"] is not None,
                sender == caller.id and not row["gdpr_purged"] and not row["deleted_at"] and not is_other,
            )
        )
        last = day
    return found


def text_of(content: list[int]) -> tuple[str, bool]:
    """The text of a content as it is sent, and whether it is no text but other JSON."""
    value = _value(content)
    text = value.get("text") if isinstance(value, dict) else value
    if isinstance(text, str):
        return _printable(text), False
    return ("", False) if value is None else (_printable(json.dumps(value, ensure_ascii=False, indent=2)), True)


def quoted(snapshot: list[int]) -> str:
    """The text that a reply quotes; empty where there is none."""
    value = _value(snapshot)
    text = value.get("text") if isinstance(value, dict) else ""
    return _printable(text) if isinstance(text, str) else ""


def _value(content: list[int]) -> Any:
    """The JSON in a column of bytes; the integers themselves, where they are none."""
    if not content:
        return None
    try:
        return json.loads(bytes(content))
    except (ValueError, RecursionError):
        return content


def _printable(text: str) -> str:
    return text.encode(errors="replace").decode()
