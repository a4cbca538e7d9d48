"""The pages of bots: those that customers can chat with, and for staff the catalogue of an app."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from service import validators
from service.api.operations import MAX_FORM, Routes
from service.api.parameter_types import Cursor, HtmlPage, Redirect
from service.console import display_names, layout
from service.console.app_choice import apps_of
from service.console.display_names import DisplayProfile
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure, OptionalUuid
from service.console.next_step import create_app, find_next_step
from service.db import Page
from service.errors import InvalidBody
from service.models import App, Bot, ChatSession, bots
from service.models.callers import Caller
from service.models.ratings import Satisfaction, satisfaction
from service.settings import Settings
from service.translation import gettext

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")

Kind = bots.Kind | Literal[""]
Status = bots.Status | Literal[""]
Presence = bots.Presence | Literal[""]


class BotsQuery(Struct):
    """Filters of the bots of an app."""

    app_id: OptionalUuid = ""
    search: str = ""
    category: str = ""
    featured_only: bool = False
    country: Annotated[str, Meta(description="ISO 3166-1 alpha-2 code, case-insensitive."), validators.country] = ""
    city: str = ""
    kind: Kind = ""
    presence: Presence = ""
    cursor: Cursor = Cursor()


class CatalogueQuery(Struct):
    """Filters of the catalogue."""

    app_id: OptionalUuid = ""
    search: str = ""
    status: Status = ""
    kind: Kind = ""
    cursor: Cursor = Cursor()
    done: str = ""


class BotForm(ConsoleForm, kw_only=True):
    """The bot of a new chat."""

    app_id: OptionalUuid = ""
    bot_id: OptionalUuid = ""


class CatalogueForm(ConsoleForm, kw_only=True):
    """New status and presence of a bot."""

    app_id: OptionalUuid = ""
    bot_id: OptionalUuid = ""
    status: Status = ""
    presence: Presence = ""


@routes.get("/console/bots", statuses=(200, 400, 401))
def show_bots(caller: Caller, query: BotsQuery) -> HtmlPage:
    """Show the page of bots."""
    return bots_page(caller, query)


def bots_page(caller: Caller, query: BotsQuery, failure: FormFailure = NO_FAILURE) -> HtmlPage:
    """Return the page of bots."""
    query.app_id = query.app_id or failure.values.get("app_id", "")
    apps = apps_of(caller, query.app_id)
    query.app_id = query.app_id or (apps[0].id if apps else "")
    page: Page[Bot] = Page(b"[]", ())
    if query.app_id:
        page = Bot.feed(
            query.app_id,
            query.cursor,
            24,
            search=query.search,
            country=query.country,
            is_featured=query.featured_only,
            category=query.category,
            city=query.city,
            kind=query.kind,
            presence=query.presence,
        )
    return layout.show(
        caller,
        "bots",
        gettext("Bots"),
        page=page,
        query=query,
        failure=failure,
        apps=apps,
        profiles=profiles_of(page),
        website_links=website_links(page),
        next_step=find_next_step(caller),
    )


@routes.post("/console/bots", statuses=(303, 400, 401, 404), max_body=MAX_FORM)
@layout.form_handler(bots_page, BotsQuery)
def begin_chat(caller: Caller, body: BotForm) -> Redirect:
    """Create a chat session with a bot."""
    if not body.app_id:
        raise InvalidBody("Choose a bot first.")
    session_id = layout.run_once(
        caller, "begin", body, lambda: ChatSession.start(caller, body.app_id, body.bot_id or None, None).id
    )
    return Redirect(f"/console/chats/{session_id}#end")


@routes.get("/console/catalogue", statuses=(200, 400, 401, 403, 404), errors=App.get_for_errors)
def show_catalogue(caller: Caller, query: CatalogueQuery, settings: Settings) -> HtmlPage:
    """Show the catalogue of an app (staff only)."""
    return catalogue_page(caller, query, settings)


def catalogue_page(
    caller: Caller, query: CatalogueQuery, settings: Settings, failure: FormFailure = NO_FAILURE
) -> HtmlPage:
    """Return the page of the catalogue."""
    query.app_id = query.app_id or failure.values.get("app_id", "")
    apps = [app for app in apps_of(caller, query.app_id) if caller.is_staff(app.id)]
    query.app_id = query.app_id or (apps[0].id if apps else "")
    page, satisfied = Page[Bot](b"[]", ()), Satisfaction(0, None, None)
    if query.app_id or caller.role != "admin":
        app = App.get_for(caller, query.app_id)
        filters = {"search": query.search, "status": query.status, "kind": query.kind}
        satisfied = satisfaction(app.id)
        page = Bot.catalogue(app.id, query.cursor, layout.PAGE_ROWS, **filters)
    return layout.show(
        caller,
        "catalogue",
        gettext("Bot catalogue"),
        page=page,
        query=query,
        done=query.done,
        failure=failure,
        apps=apps,
        profiles=profiles_of(page),
        satisfaction=satisfied,
        has_assistant=bool(settings.assistant_url),
        next_step=create_app(),
    )


@routes.post("/console/catalogue", statuses=(303, 400, 401, 403, 404), max_body=MAX_FORM, errors=App.get_for_errors)
@layout.form_handler(catalogue_page, CatalogueQuery)
def change_bot(caller: Caller, body: CatalogueForm, settings: Settings) -> Redirect:
    """Set the status and the presence of a bot (staff only)."""
    app = App.get_for(caller, body.app_id)
    bot = Bot.get_for(caller, body.bot_id, app)
    if body.status:
        bot.set_choice(Bot.status, body.status, caller)
    if body.presence:
        bot.set_choice(Bot.presence, body.presence, caller)
    return Redirect(f"/console/catalogue?app_id={app.id}&done=changed#b-{bot.id}")


def profiles_of(page: Page[Bot]) -> dict[str, DisplayProfile]:
    """Return the profiles of the bots on a page."""
    return display_names.bots(row["id"] for row in msgspec.json.decode(page.rows))


def website_links(page: Page[Bot]) -> dict[str, str]:
    """Return the websites of bots that are safe as links, by bot identifier."""
    links: dict[str, str] = {}
    for row in msgspec.json.decode(page.rows):
        try:
            links[row["id"]] = validators.web_address(row["contact_website"])
        except ValueError:  # empty, or not an http or https address
            continue
    return links
