"""The pages on which staff creates and edits a bot."""

import msgspec
from msgspec import Struct

from service.api.operations import KIB, Routes
from service.api.parameter_types import HtmlPage, Redirect
from service.api.schemas import BodyColumns
from service.console import layout
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure
from service.db import render
from service.errors import InvalidBody
from service.fields import SqlValue
from service.models import App, Bot
from service.models.bot_pictures import COLUMNS
from service.models.bots import VALIDATED, WRITABLE
from service.models.callers import Caller
from service.translation import gettext
from service.types import JsonObject

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")

NEW_BOT = BodyColumns(Bot, *WRITABLE, required=("name",), **VALIDATED)
BOT_CHANGES = BodyColumns(Bot, *WRITABLE, required=("name",), partial=True, **VALIDATED)
MAX_BOT_FORM = 128 * KIB  # bytes: a description may have 10,000 characters of twelve bytes each


class BotPageQuery(Struct):
    """The result of the previous form, see `layout.SUCCESS_MESSAGES`."""

    done: str = ""


class BotProfileForm(ConsoleForm, kw_only=True):
    """All members of a bot that staff may set. A box that is not ticked is not sent."""

    name: str = ""
    slug: str = ""
    tagline: str = ""
    description: str = ""
    category: str = ""
    kind: str = ""
    status: str = ""
    presence: str = ""
    is_active: bool = False
    is_featured: bool = False
    rating: str = ""
    country: str = ""
    region: str = ""
    city: str = ""
    accent_color: str = ""
    brand_color: str = ""
    cover_url: str = ""
    icon_url: str = ""
    contact_email: str = ""
    contact_phone: str = ""
    contact_website: str = ""
    social_links: str = ""  # JSON


NEW_PROFILE = {"kind": "bot", "status": "published", "presence": "online", "is_active": True}


@routes.get("/console/apps/{app_id}/new-bot", statuses=(200, 400, 401, 403, 404))
def show_new_bot(caller: Caller, app: App, query: BotPageQuery) -> HtmlPage:
    """Show the form of a new bot (staff only)."""
    return new_bot_page(caller, app, query)


def new_bot_page(caller: Caller, app: App, query: BotPageQuery, failure: FormFailure = NO_FAILURE) -> HtmlPage:
    """Return the page with the form of a new bot."""
    return _profile_page(
        caller, app, gettext("New bot"), f"/console/apps/{app.id}/new-bot", NEW_PROFILE, query, failure
    )


@routes.post("/console/apps/{app_id}/new-bot", statuses=(303, 400, 401, 403, 404), max_body=MAX_BOT_FORM)
@layout.form_handler(new_bot_page, BotPageQuery)
def add_bot(caller: Caller, app: App, body: BotProfileForm) -> Redirect:
    """Create a bot (staff only)."""
    columns = NEW_BOT.read(read_profile(body))
    add = lambda: msgspec.json.decode(Bot.add(app.id, columns, caller.id))["id"]  # noqa: E731
    return Redirect(f"/console/apps/{app.id}/bots/{layout.run_once(caller, 'bot', body, add)}?done=bot_added")


@routes.get("/console/apps/{app_id}/bots/{id}", statuses=(200, 400, 401, 403, 404))
def show_bot(caller: Caller, app: App, bot: Bot, query: BotPageQuery) -> HtmlPage:
    """Show the form of a bot (staff only)."""
    return bot_page(caller, app, bot, query)


def bot_page(caller: Caller, app: App, bot: Bot, query: BotPageQuery, failure: FormFailure = NO_FAILURE) -> HtmlPage:
    """Return the page with the form of a bot."""
    current = msgspec.json.decode(render(Bot, bot.id))
    current["social_links"] = bytes(current["social_links"]).decode()
    return _profile_page(
        caller, app, bot.name or gettext("Bot"), f"/console/apps/{app.id}/bots/{bot.id}", current, query, failure
    )


@routes.post("/console/apps/{app_id}/bots/{id}", statuses=(303, 400, 401, 403, 404), max_body=MAX_BOT_FORM)
@layout.form_handler(bot_page, BotPageQuery)
def edit_bot(caller: Caller, app: App, bot: Bot, body: BotProfileForm) -> Redirect:
    """Edit a bot (staff only)."""
    bot.edit(BOT_CHANGES.read(without_uploaded(bot, read_profile(body))), caller.id)
    return Redirect(f"/console/apps/{app.id}/bots/{bot.id}?done=changed")


def read_profile(body: BotProfileForm) -> JsonObject:
    """Return the members of a bot as the API takes them. Raises InvalidBody."""
    members = {name: value for name, value in msgspec.structs.asdict(body).items() if name in BOT_CHANGES.columns}
    members = {name: layout.clean_text(value) if isinstance(value, str) else value for name, value in members.items()}
    try:
        members["rating"] = float(members["rating"] or 0)
    except ValueError:
        raise InvalidBody("$.rating: expected a number") from None
    try:
        links = msgspec.json.decode(members["social_links"]) if members["social_links"] else None
    except msgspec.DecodeError:
        raise InvalidBody(
            '$.social_links: expected JSON such as {"mastodon": "https://example.social/@shop"}'
        ) from None
    return members | {"social_links": links}


def without_uploaded(bot: Bot, members: JsonObject) -> JsonObject:
    """Return the members without unchanged addresses of pictures, which may be paths of uploaded pictures."""
    unchanged = {name for name in COLUMNS.values() if members[name] == getattr(bot, name)}
    return {name: value for name, value in members.items() if name not in unchanged}


def _profile_page(
    caller: Caller,
    app: App,
    title: str,
    action: str,
    current: dict[str, SqlValue],
    query: BotPageQuery,
    failure: FormFailure,
) -> HtmlPage:
    boxes = dict.fromkeys(("is_active", "is_featured"), False)
    return layout.show(
        caller,
        "bot",
        title,
        active="catalogue",
        done=query.done,
        failure=failure,
        app=app,
        action=action,
        current=current | (boxes | failure.values if failure.values else {}),
    )
