"""The next step of a new installation: what staff does until a customer chats."""

from typing import NamedTuple, TypeVar

import peewee

from service.models import App, Bot, ChatSession
from service.models.callers import Caller
from service.translation import gettext

OfApp = TypeVar("OfApp", Bot, ChatSession)


class NextStep(NamedTuple):
    """One step, with the address of the page to take it on."""

    title: str
    text: str
    label: str
    address: str


def find_next_step(caller: Caller) -> NextStep | None:
    """Return the next step for staff: an app, then a bot; None if there are both, and for customers."""
    if caller.role == "user":
        return None
    app = App.select().first() if caller.role == "admin" else App.find(caller.app_id or "")
    if app is None:
        return create_app() if caller.role == "admin" else None
    if _own(Bot, caller).exists():
        return None
    return NextStep(
        gettext("Create your first bot"),
        gettext(
            "A bot is what customers choose to start a chat. It replies by itself, or your staff replies in its name."
        ),
        gettext("Create a bot"),
        f"/console/apps/{app.id}/new-bot",
    )


def find_inbox_step(caller: Caller) -> NextStep | None:
    """Return the next step for an empty inbox: as above, then sending customers the address of their page."""
    step = find_next_step(caller)
    bot = None if step or caller.role == "user" else _own(Bot, caller).first()
    if bot is None or _own(ChatSession, caller).exists():
        return step
    return NextStep(
        gettext("No chats yet"),
        gettext("Customers sign in, choose a bot and write. Send them the address of their page."),
        gettext("Link for customers"),
        f"/console/bots?app_id={bot.app_id}",
    )


def _own(table: type[OfApp], caller: Caller) -> "peewee.ModelSelect[OfApp]":
    """Select the rows of the apps that a member of staff works for."""
    return table.select() if caller.role == "admin" else table.select().where(table.app_id == caller.app_id)


def create_app() -> NextStep:
    """Return the step of an admin without an app."""
    return NextStep(
        gettext("Create your first app"),
        gettext("An app is a shop, a product or a site. It has bots, and customers chat with them."),
        gettext("Create an app"),
        "/console/apps",
    )
