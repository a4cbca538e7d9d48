"""The use of the assistant by each app and calendar month (UTC), for the staff of the app."""

from typing import Annotated, Literal

import peewee
from msgspec import Meta, Struct

from service import clock
from service.db import Table
from service.fields import INTERNAL, Integer, Text, reference

Outcome = Literal["reply", "handover", "tool_call", "suggestion", "translation", "error"]

KEPT_MONTHS = 24  # of each app, with the current one
COLUMNS: dict[Outcome, str] = {
    "reply": "replies",
    "handover": "handovers",
    "tool_call": "tool_calls",
    "suggestion": "suggestions",
    "translation": "translations",
    "error": "errors",
}

Count = Annotated[int, Meta(ge=0)]


class MonthlyUse(Struct):
    """The requests of an app to the assistant in a month, their tokens, and their number by outcome."""

    month: Annotated[str, Meta(pattern=r"^\d{4}-\d\d$", description="Calendar month in UTC, such as 2026-11.")]
    requests: Count = 0
    tokens: Count = 0
    replies: Annotated[int, Meta(ge=0, description="Replies to customers.")] = 0
    handovers: Annotated[int, Meta(ge=0, description="Calls of a person.")] = 0
    tool_calls: Annotated[int, Meta(ge=0, description="Requests that called a tool.")] = 0
    suggestions: Annotated[int, Meta(ge=0, description="Drafts for staff.")] = 0
    translations: Annotated[int, Meta(ge=0, description="Translations of messages.")] = 0
    errors: Annotated[int, Meta(ge=0, description="Requests without a usable response.")] = 0


class AssistantMonth(Table):
    """The requests of an app that have ended in a month, by outcome, and their tokens."""

    app_id = reference("app", visibility=INTERNAL)
    month = Text(visibility=INTERNAL)  # 2026-11
    tokens = Integer(default=0, visibility=INTERNAL)
    replies = Integer(default=0, visibility=INTERNAL)
    handovers = Integer(default=0, visibility=INTERNAL)
    tool_calls = Integer(default=0, visibility=INTERNAL)
    suggestions = Integer(default=0, visibility=INTERNAL)
    translations = Integer(default=0, visibility=INTERNAL)
    errors = Integer(default=0, visibility=INTERNAL)

    @classmethod
    def count(cls, app_id: str, tokens: int, outcome: Outcome) -> None:
        """Count a request of an app that has ended now, inside a write."""
        column = vars(cls._meta)["fields"][COLUMNS[outcome]]
        first = {cls.app_id: app_id, cls.month: current_month(), cls.tokens: tokens, column: 1}
        more = {cls.tokens: cls.tokens + tokens, column: column + 1}
        cls.insert(first).on_conflict(conflict_target=[cls.app_id, cls.month], update=more).execute()

    @classmethod
    def delete_old(cls, app_id: str) -> None:
        """Delete the months of an app before the newest KEPT_MONTHS, inside a write."""
        cls.delete().where(cls.app_id == app_id, cls.month < months_before(KEPT_MONTHS - 1)).execute()

    @classmethod
    def list_of(cls, app_id: str) -> list[MonthlyUse]:
        """Return the months of an app, newest first: from the current one to the first with a request, at most 24."""
        own = cls.select().where(cls.app_id == app_id, cls.month >= months_before(KEPT_MONTHS - 1))
        found = {row.month: row for row in own}
        months = [months_before(number) for number in range(KEPT_MONTHS)]
        return [_use(found.get(month), month) for month in months if found and month >= min(found)]

    class Meta:
        primary_key = peewee.CompositeKey("app_id", "month")


def current_month() -> str:
    """Return the current month in UTC, as 2026-11."""
    return clock.timestamp()[:7]


def months_before(number: int) -> str:
    """Return the month that is a number of months before the current one."""
    year, month = map(int, current_month().split("-"))
    years, months = divmod(12 * year + month - 1 - number, 12)
    return f"{years:04}-{months + 1:02}"


def _use(row: AssistantMonth | None, month: str) -> MonthlyUse:
    """Return a month without requests if there is no row."""
    if row is None:
        return MonthlyUse(month)
    counts = {column: getattr(row, column) for column in COLUMNS.values()}
    return MonthlyUse(month, sum(counts.values()), row.tokens, **counts)
