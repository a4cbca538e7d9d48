"""The next step of a new installation: what staff does before customers can chat."""

from typing import NamedTuple

from service.models import App, Bot
from service.models.callers import Caller
from service.translation import gettext


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
    bots = Bot.select() if caller.role == "admin" else Bot.select().where(Bot.app_id == app.id)
    if bots.exists():
        return None
    return NextStep(
        gettext("Create your first bot"),
        gettext(
            "A bot is what customers choose to start a chat. It replies by itself, or your staff replies in its name."
        ),
        gettext("Create a bot"),
        f"/console/apps/{app.id}/new-bot",
    )


def create_app() -> NextStep:
    """Return the step of an admin without an app."""
    return NextStep(
        gettext("Create your first app"),
        gettext("An app is a shop, a product or a site. It has bots, and customers chat with them."),
        gettext("Create an app"),
        "/console/apps",
    )
