"""Finding bots (section 4.3 of the document; contract, section 6)."""

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from service import formats
from service.db import Page
from service.fields import AnyUuid
from service.models import App, Bot
from service.models.people import Caller
from service.operations import Routes
from service.signature import Cursor

routes = Routes("Bots", scope="bots")

Country = Annotated[
    str,
    Meta(description="ISO 3166-1 alpha-2, any case.", extra_json_schema={"pattern": "^([A-Za-z]{2})?$"}),
    formats.country,
]


class BotFilter(Struct):
    """Which bots of an app, and how many."""

    app_id: AnyUuid
    search: Annotated[str, Meta(description="Stands in the name, tagline or description; case does not matter.")] = ""
    category: str = ""
    featured_only: bool = False
    country: Country = ""
    city: str = ""
    kind: Literal["nobot", "bot"] | None = None
    presence: Literal["online", "away", "rsvp", "offline"] | None = None
    cursor: Cursor = Cursor()
    per_page: Annotated[int, Meta(ge=1, le=100)] = 25


class Catalogue(Struct):
    """Which bots of an app that one works for, and how many."""

    search: Annotated[str, Meta(description="Stands in the name, tagline or description; case does not matter.")] = ""
    status: Literal["draft", "published"] | None = None
    kind: Literal["nobot", "bot"] | None = None
    cursor: Cursor = Cursor()
    per_page: Annotated[int, Meta(ge=1, le=100)] = 25


class Publication(Struct):
    """Whether clients meet a bot."""

    status: Literal["draft", "published"]


class Presence(Struct):
    """Whether somebody is there to answer."""

    presence: Literal["online", "away", "rsvp", "offline"]


class AppScope(Struct):
    """The app that a bot is looked for in."""

    app_id: AnyUuid


@routes.get("/bots", answers=(200, 400, 401), meta=("next_cursor", "per_page"))
def list_bots(query: BotFilter) -> Page[Bot]:
    """The active bots of an app: featured ones first, then the best rated."""
    return Bot.feed(
        query.app_id,
        query.cursor,
        query.per_page,
        search=query.search,
        country=query.country,
        is_featured=query.featured_only,
        category=query.category,
        city=query.city,
        kind=query.kind,
        presence=query.presence,
    )


@routes.get("/bots/{id}", answers=(200, 400, 401, 404))
def get_bot(bot: Bot, query: AppScope) -> Annotated[Raw, Bot]:
    """One active bot of an app."""
    return bot.within(query.app_id)


@routes.get("/apps/{app_id}/bots", answers=(200, 400, 401, 403, 404), meta=("next_cursor", "per_page"), extension=True)
def list_app_bots(app: App, query: Catalogue) -> Page[Bot]:
    """All bots of an app that you work for, drafts and inactive ones too, by name."""
    return Bot.kept_by(app.id, query.cursor, query.per_page, search=query.search, status=query.status, kind=query.kind)


@routes.put(
    "/apps/{app_id}/bots/{id}/status",
    answers=(200, 400, 401, 403, 404),
    extension=True,
    example={"status": "published"},
)
def publish_bot(caller: Caller, app: App, bot: Bot, body: Publication) -> Annotated[Raw, Bot]:
    """Publish a bot of an app that you work for, or make it a draft again."""
    return bot.become(Bot.status, body.status, caller)


@routes.put(
    "/apps/{app_id}/bots/{id}/presence",
    answers=(200, 400, 401, 403, 404),
    extension=True,
    example={"presence": "online"},
)
def change_bot_presence(caller: Caller, app: App, bot: Bot, body: Presence) -> Annotated[Raw, Bot]:
    """Say whether somebody is there to answer for a bot of an app that you work for."""
    return bot.become(Bot.presence, body.presence, caller)
