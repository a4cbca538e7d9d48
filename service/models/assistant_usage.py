"""How much each app uses the assistant, and the limits: requests in a minute, and tokens in a calendar month (UTC)."""

from typing import Literal, NamedTuple

from service import clock
from service.db import Table, write
from service.fields import INTERNAL, Integer, Text, reference
from service.models.audit_log import AuditLog
from service.models.chats import ChatSession

Limit = Literal["rate", "budget"]
Outcome = Literal["reply", "handover", "tool_call", "suggestion", "translation", "error"]


class UsageLimits(NamedTuple):
    """The limits of each app; 0 is no limit."""

    rate: int = 0  # requests in a minute
    tokens: int = 0  # in a month


class AssistantUsage(Table):
    """The use of the assistant by an app, in the month and in the minute of its last request."""

    app_id = reference("app", primary_key=True, visibility=INTERNAL)
    month = Text(visibility=INTERNAL)  # 2026-11
    tokens = Integer(default=0, visibility=INTERNAL)
    minute = Integer(default=0, visibility=INTERNAL)  # since 1970
    requests = Integer(default=0, visibility=INTERNAL)  # in this minute

    @classmethod
    def admit(cls, app_id: str, limits: UsageLimits) -> Limit | None:
        """Count a request of an app that is about to begin. Return the limit that it would exceed, if there is one.

        Requests that are in progress may exceed the budget by their own tokens.
        """
        month, minute = clock.timestamp()[:7], clock.now() // clock.MINUTE
        with write(app_id):
            usage = cls.get_or_none(cls.app_id == app_id)
            tokens = usage.tokens if usage and usage.month == month else 0
            requests = usage.requests if usage and usage.minute == minute else 0
            if limits.tokens and tokens >= limits.tokens:
                return "budget"
            if limits.rate and requests >= limits.rate:
                return "rate"
            now = {"month": month, "tokens": tokens, "minute": minute, "requests": requests + 1}
            cls.insert(app_id=app_id, **now).on_conflict(conflict_target=[cls.app_id], update=now).execute()
            return None

    @classmethod
    def record(cls, session: ChatSession, actor_id: str, tokens: int, outcome: Outcome) -> None:
        """Add the tokens of a request about a chat session, and its entry in the audit log."""
        with write(session.app_id):
            cls.update(tokens=cls.tokens + tokens).where(cls.app_id == session.app_id).execute()
            about = {"app": session.app_id, "session": session.id, "tokens": tokens, "outcome": outcome}
            AuditLog.record("assistant_asked", actor_id, session.user_id, **about)


def until_next_minute() -> int:
    """Return the milliseconds until requests that exceed the rate are possible again."""
    return clock.MINUTE - clock.now() % clock.MINUTE
