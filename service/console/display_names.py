"""Display names and avatars of users, bots and apps, and names of browsers."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from service.models import App, Avatar, Bot, BotPicture, User
from service.models.bot_pictures import key_of
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
    unique = _unique(ids)
    avatars = Avatar.select(Avatar.user_id, Avatar.name).where(Avatar.user_id.in_(unique))
    pictures = {avatar.user_id: avatar.url("") for avatar in avatars}
    return {
        user.id: DisplayProfile(user_name(user) or gettext("Guest"), pictures.get(user.id, ""), _color(user.id))
        for user in User.select().where(User.id.in_(unique))
    }


def bots(ids: Iterable[str | None]) -> dict[str, DisplayProfile]:
    """Return the profiles of bots by identifier."""
    unique = _unique(ids)
    keys = [key_of(id, "icon") for id in unique]
    icons = BotPicture.select(BotPicture.bot_id, BotPicture.name).where(BotPicture.id.in_(keys))
    pictures = {icon.bot_id: icon.url("") for icon in icons}
    rows = Bot.select().where(Bot.id.in_(unique))
    return {
        bot.id: DisplayProfile(bot.name or gettext("Bot"), pictures.get(bot.id, ""), _color(bot.id)) for bot in rows
    }


def apps(ids: Iterable[str | None]) -> dict[str, DisplayProfile]:
    """Return the profiles of apps by identifier."""
    rows = App.select().where(App.id.in_(_unique(ids)))
    return {app.id: DisplayProfile(app.name or gettext("App"), "", _color(app.id)) for app in rows}


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
    return str(user.display_name or f"{user.first_name} {user.last_name}".strip())


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


def _unique(ids: Iterable[str | None]) -> list[str]:
    return sorted({id for id in ids if id})


def _color(id: str) -> int:
    return int(id[:8], 16) % COLORS
