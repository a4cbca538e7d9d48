"""Finding bots (section 4.3 of the document; contract, section 6)."""

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from service import formats
from service.db import Page
from service.fields import AnyUuid
from service.models import Bot
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
