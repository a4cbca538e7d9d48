"""Who and what the console shows: people, bots and apps, by the names that others know them by."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from service.models import App, Avatar, Bot, User
from service.models.people import Caller
from service.models.pictures import FOLDER

COLOURS = 8  # that initials may stand on

# What browsers call themselves; the first that is found counts, since they also call themselves by their elders' names.
BROWSERS = {"Edg": "Edge", "OPR": "Opera", "Firefox": "Firefox", "Chrome": "Chrome", "Safari": "Safari"}
SYSTEMS = {"Android": "Android", "iPhone": "iPhone", "iPad": "iPad", "Windows": "Windows", "Mac OS": "Mac"}
SYSTEMS |= {"Linux": "Linux"}

_WORD = re.compile(r"\w", re.UNICODE)


class Face(NamedTuple):
    """How somebody is shown: a name, and a picture of ours or initials on a colour."""

    name: str
    picture: str = ""
    colour: int = 0

    @property
    def initials(self) -> str:
        """The first letters of the first two words."""
        found = [_WORD.search(word) for word in self.name.split()]
        return "".join(match[0] for match in filter(None, found))[:2].upper() or "?"


def people(ids: Iterable[str | None]) -> dict[str, Face]:
    """The faces of users by their identifiers; never an address."""
    wanted = _set(ids)
    names: Any = Avatar.select(Avatar.user_id, Avatar.name).where(Avatar.user_id.in_(wanted)).tuples()
    pictures = {id: f"{FOLDER}{name}" for id, name in names}
    return {
        user.id: Face(name_of(user) or "Guest", pictures.get(user.id, ""), _colour(user.id))
        for user in User.select().where(User.id.in_(wanted))
    }


def bots(ids: Iterable[str | None]) -> dict[str, Face]:
    """The faces of bots."""
    return {bot.id: Face(bot.name or "Bot", "", _colour(bot.id)) for bot in Bot.select().where(Bot.id.in_(_set(ids)))}


def apps(ids: Iterable[str | None]) -> dict[str, Face]:
    """The faces of apps."""
    return {app.id: Face(app.name or "App", "", _colour(app.id)) for app in App.select().where(App.id.in_(_set(ids)))}


def titles(caller: Caller, sessions: Iterable[dict[str, Any]]) -> dict[str, Face]:
    """Whom a caller talks with in each of some sessions: a bot or an app; where it is not their own, the customer."""
    rows = list(sessions)
    customers = people(row["user_id"] for row in rows)
    partners = bots(row["bot_id"] for row in rows)
    companies = apps(row["app_id"] for row in rows)
    return {
        row["id"]: customers[row["user_id"]]
        if row["user_id"] != caller.id
        else partners.get(row["bot_id"]) or companies[row["app_id"]]
        for row in rows
    }


def name_of(user: User) -> str:
    """The name that somebody goes by; empty, if they have told none."""
    return str(user.display_name or f"{user.first_name} {user.last_name}".strip())


def program(label: str) -> str:
    """The name of a browser and its system, for the user agent that it sent; of another program, what it sent."""
    browser = next((name for sign, name in BROWSERS.items() if sign in label), "")
    system = next((name for sign, name in SYSTEMS.items() if sign in label), "")
    known = label.startswith("Mozilla/") and browser
    return (f"{browser} on {system}" if system else browser) if known else label or "Unknown program"


def _set(ids: Iterable[str | None]) -> list[str]:
    return sorted({id for id in ids if id})


def _colour(id: str) -> int:
    return int(id[:8], 16) % COLOURS
