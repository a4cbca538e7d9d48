"""How much each app uses the assistant, and the limits: requests in a minute, and tokens in a calendar month (UTC)."""

from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

from service import clock
from service.db import Table, write
from service.fields import INTERNAL, Integer, Text, reference
from service.models.assistant_months import KEPT_MONTHS, AssistantMonth, Count, MonthlyUse, Outcome, current_month
from service.models.audit_log import AuditLog
from service.models.chats import ChatSession

Limit = Literal["rate", "budget"]


class UsageLimits(NamedTuple):
    """The limits of each app; 0 is no limit."""

    rate: int = 0  # requests in a minute
    tokens: int = 0  # in a month


class AssistantUse(Struct):
    """The use of the assistant by an app, month by month, and the budget of a month."""

    budget: Annotated[Count | None, Meta(description="Tokens for each month; null is no limit.")]
    remaining: Annotated[Count | None, Meta(description="Tokens left in this month; null is no limit.")]
    months: Annotated[list[MonthlyUse], Meta(max_length=KEPT_MONTHS, description="Newest first.")]


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
        month, minute = current_month(), clock.now() // clock.MINUTE
        with write(app_id):
            usage = cls.get_or_none(cls.app_id == app_id)
            current = usage if usage and usage.month == month else None
            tokens = current.tokens if current else 0
            requests = usage.requests if usage and usage.minute == minute else 0
            if limits.tokens and tokens >= limits.tokens:
                return "budget"
            if limits.rate and requests >= limits.rate:
                return "rate"
            now = {"month": month, "tokens": tokens, "minute": minute, "requests": requests + 1}
            cls.insert(app_id=app_id, **now).on_conflict(conflict_target=[cls.app_id], update=now).execute()
            if current is None:
                AssistantMonth.delete_old(app_id)
            return None

    @classmethod
    def record(cls, session: ChatSession, actor_id: str, tokens: int, outcome: Outcome) -> None:
        """Count a request about a chat session that has ended, and add its entry to the audit log."""
        with write(session.app_id):
            cls.update(tokens=cls.tokens + tokens).where(cls.app_id == session.app_id).execute()
            AssistantMonth.count(session.app_id, tokens, outcome)
            about = {"app": session.app_id, "session": session.id, "tokens": tokens, "outcome": outcome}
            AuditLog.record("assistant_asked", actor_id, session.user_id, **about)

    @classmethod
    def of_app(cls, app_id: str, budget: int) -> AssistantUse:
        """Return the use of the assistant by an app. A `budget` of 0 is no limit."""
        usage = cls.get_or_none(cls.app_id == app_id, cls.month == current_month())
        remaining = max(0, budget - (usage.tokens if usage else 0))
        return AssistantUse(budget or None, remaining if budget else None, AssistantMonth.list_of(app_id))


def until_next_minute() -> int:
    """Return the milliseconds until requests that exceed the rate are possible again."""
    return clock.MINUTE - clock.now() % clock.MINUTE
