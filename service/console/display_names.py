"""Display names and avatars of users, bots and apps, and names of browsers."""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import peewee

from service.db import CompiledQuery, Query, Row, compiled, pad_values
from service.fields import SqlValue
from service.models import App, Avatar, Bot, BotPicture, User
from service.models.callers import Caller
from service.translation import gettext
from service.types import JsonObject

COLORS = 8  # background colors of avatars without a picture

# Product tokens of user agents. The first match counts: browsers also send the tokens of older browsers.
BROWSERS = {"Edg": "Edge", "OPR": "Opera", "Firefox": "Firefox", "Chrome": "Chrome", "Safari": "Safari"}
SYSTEMS = {"Android": "Android", "iPhone": "iPhone", "iPad": "iPad", "Windows": "Windows", "Mac OS": "Mac"}
SYSTEMS |= {"Linux": "Linux"}

_WORD = re.compile(r"\w", re.UNICODE)


class DisplayProfile(NamedTuple):
    """The name of a user, bot or app, with a picture or, without one, initials on a color."""

    name: str
    picture: str = ""
    color: int = 0

    @property
    def initials(self) -> str:
        """The first letters of the first two words of the name."""
        matches = [_WORD.search(word) for word in self.name.split()]
        return "".join(match[0] for match in filter(None, matches))[:2].upper() or "?"


def users(ids: Iterable[str | None]) -> dict[str, DisplayProfile]:
    """Return the profiles of users by identifier. They never contain e-mail addresses."""
    rows = _rows(_users, ids)
    return {id: _profile(id, _name(*names) or gettext("Guest"), Avatar.folder, picture) for id, *names, picture in rows}


def bots(ids: Iterable[str | None]) -> dict[str, DisplayProfile]:
    """Return the profiles of bots by identifier."""
    rows = _rows(_bots, ids)
    return {id: _profile(id, name or gettext("Bot"), BotPicture.folder, picture) for id, name, picture in rows}


def apps(ids: Iterable[str | None]) -> dict[str, DisplayProfile]:
    """Return the profiles of apps by identifier."""
    return {id: _profile(id, name or gettext("App")) for id, name in _rows(_apps, ids)}


def _rows(query: Callable[..., CompiledQuery], ids: Iterable[str | None]) -> list[Row]:
    unique: list[SqlValue] = sorted({id for id in ids if id})
    return query(*pad_values(unique)).rows() if unique else []


def _profile(id: str, name: str, folder: str = "", picture: str | None = None) -> DisplayProfile:
    return DisplayProfile(name, f"{folder}{picture}" if picture else "", int(id[:8], 16) % COLORS)


@compiled
def _users(*ids: str) -> Query:
    columns = User.id, User.display_name, User.first_name, User.last_name, Avatar.name
    found = User.select(*columns).join(Avatar, peewee.JOIN.LEFT_OUTER, on=Avatar.user_id == User.id)
    return found.where(User.id.in_(ids))


@compiled
def _bots(*ids: str) -> Query:
    icon = BotPicture.id == Bot.id.concat(peewee.SQL("' icon'"))  # its `key_of`
    found = Bot.select(Bot.id, Bot.name, BotPicture.name).join(BotPicture, peewee.JOIN.LEFT_OUTER, on=icon)
    return found.where(Bot.id.in_(ids))


@compiled
def _apps(*ids: str) -> Query:
    return App.select(App.id, App.name).where(App.id.in_(ids))


def chat_titles(caller: Caller, sessions: Iterable[JsonObject]) -> dict[str, DisplayProfile]:
    """Return the other side of each chat session: its bot or app for the customer, the customer for staff."""
    rows = list(sessions)
    customers = users(row["user_id"] for row in rows)
    partners = bots(row["bot_id"] for row in rows)
    companies = apps(row["app_id"] for row in rows)
    return {
        row["id"]: customers[row["user_id"]]
        if row["user_id"] != caller.id
        else partners.get(row["bot_id"]) or companies[row["app_id"]]
        for row in rows
    }


def user_name(user: User) -> str:
    """Return the display name of a user, else first and last name; empty if both are unset."""
    return _name(user.display_name, user.first_name, user.last_name)


def _name(display_name: str, first_name: str, last_name: str) -> str:
    return display_name or f"{first_name} {last_name}".strip()


def client_name(user_agent: str) -> str:
    """Return browser and system of a user agent, such as "Firefox on Linux"; for other programs the user agent."""
    browser = next((name for token, name in BROWSERS.items() if token in user_agent), "")
    system = next((name for token, name in SYSTEMS.items() if token in user_agent), "")
    is_browser = user_agent.startswith("Mozilla/") and browser
    return (
        (gettext("{browser} on {system}", browser=browser, system=system) if system else browser)
        if is_browser
        else user_agent or gettext("Unknown program")
    )
