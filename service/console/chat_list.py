"""The list of chats: the inbox, and beside a chat on wide screens."""

from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from service.console import display_names, layout
from service.console.display_names import DisplayProfile
from service.console.labels import capitalized_label
from service.console.layout import OptionalUuid, Row
from service.db import Page, Position
from service.models import App, Bot, inbox
from service.models.callers import Caller
from service.models.chats import STATUSES
from service.models.inbox import SessionOverview
from service.models.session_filters import OWN, UNASSIGNED, SessionFilters, check_assignee
from service.models.staff import list_staff
from service.translation import gettext

NEWEST = Position()
MAX_CHOICES = 100  # apps, bots or members of staff in a filter
ALL = "all"
CURRENT = "current"
CURRENT_STATUSES = ("open", "active", "pending", "on_hold")  # neither ended nor snoozed
STATUS_CHOICES = (CURRENT, ALL, *STATUSES)


def check_status_choice(text: str) -> str:
    """Return a choice of the status filter unchanged. Raises ValueError."""
    if text not in STATUS_CHOICES:
        raise ValueError(f"expected one of {', '.join(STATUS_CHOICES)}")
    return text


class ChatListQuery(Struct):
    """Filters of the list of chats; empty ones select all, but `status` the current chats, for staff."""

    status: Annotated[str, Meta(description="A status, `all` or `current`."), layout.optional(check_status_choice)] = ""
    assignee: Annotated[str, Meta(description="A UUID, `me` or `none`."), layout.optional(check_assignee)] = ""
    app: OptionalUuid = ""
    bot: OptionalUuid = ""


class Choice(NamedTuple):
    """A choice of a filter."""

    value: str
    label: str


class ChatList(NamedTuple):
    """A page of the list of chats, with the choices of its filters."""

    page: Page[SessionOverview]
    rows: list[Row]
    titles: dict[str, DisplayProfile]
    filters: ChatListQuery
    status: str  # the choice in effect
    choices: dict[Literal["assignee", "app", "bot"], list[Choice]]
    is_filtered: bool  # by more than the default

    def link(self, **changes: object) -> str:
        """Return the query string of the list with some filters changed."""
        return layout.page_link(self.filters, **changes).removesuffix("?")


def status_choices() -> dict[str, str]:
    """Return the choices of the status filter with their labels."""
    groups = {CURRENT: gettext("Current chats"), ALL: gettext("All chats")}
    return groups | {word: capitalized_label(word) for word in STATUSES}


def read_chat_list(caller: Caller, query: ChatListQuery, after: Position = NEWEST) -> ChatList:
    """Return a page of the list of chats. Choices that a filter does not have are ignored."""
    choices = _choices(caller, query.app)
    filters = ChatListQuery(query.status)
    status = query.status or (ALL if caller.role == "user" else CURRENT)
    for name, choices_of_name in choices.items():
        if getattr(query, name) in {choice.value for choice in choices_of_name}:
            setattr(filters, name, getattr(query, name))
    statuses = {ALL: (), CURRENT: CURRENT_STATUSES}.get(status, (status,))
    assignee = caller.id if filters.assignee == OWN else filters.assignee
    found = SessionFilters(statuses, assignee, filters.app, filters.bot)
    page = inbox.list_sessions(caller, after, layout.PAGE_ROWS, found)
    rows: list[Row] = msgspec.json.decode(page.rows)
    is_filtered = found != SessionFilters()
    return ChatList(page, rows, display_names.chat_titles(caller, rows), filters, status, choices, is_filtered)


def _choices(caller: Caller, chosen_app: str) -> dict[Literal["assignee", "app", "bot"], list[Choice]]:
    """Return the choices of the filters that the caller has: customers have none of these."""
    if caller.role == "user":
        return {}
    apps = _named(App.select().order_by(App.name, App.id).limit(MAX_CHOICES)) if caller.role == "admin" else []
    app_id = (chosen_app if caller.role == "admin" else caller.app_id) or ""
    bots = Bot.select().where(Bot.app_id == app_id).order_by(Bot.name, Bot.id).limit(MAX_CHOICES) if app_id else []
    staff = msgspec.json.decode(list_staff(app_id, Position(), MAX_CHOICES).rows)
    assignees = [
        Choice(row["id"], row["name"] or gettext("A member of staff")) for row in staff if row["id"] != caller.id
    ]
    return {
        "assignee": [
            Choice(OWN, gettext("You")),
            Choice(UNASSIGNED, gettext("None")),
            *sorted(assignees, key=lambda one: one.label),
        ],
        "app": apps if len(apps) > 1 else [],
        "bot": _named(bots),
    }


def _named(rows: Iterable[App | Bot]) -> list[Choice]:
    return [Choice(row.id, row.name or row.id) for row in rows]
