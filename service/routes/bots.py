"""Bots: search, publish, presence."""

from typing import Annotated

from msgspec import Meta, Raw, Struct

from service import pictures
from service.api.operations import KIB, Routes
from service.api.parameter_types import Cursor, Media, PictureFile, Upload
from service.api.schemas import BodyColumns
from service.db import Page, render
from service.errors import Busy, ImageTooLarge, ImageUnreadable, UnsupportedMediaType
from service.fields import AnyUuid
from service.models import App, Bot, BotPicture, bots
from service.models.bots import VALIDATED, WRITABLE, Country
from service.models.callers import Caller
from service.settings import Settings
from service.types import JsonObject

routes = Routes("Bots", scope="bots")
images = Routes("Bots", prefix="", public=True, extension=True, always_served=True)

Search = Annotated[str, Meta(description="Text to find in name, tagline or description; case-insensitive.")]
NEW_BOT = BodyColumns(Bot, *WRITABLE, required=("name",), **VALIDATED)
BOT_CHANGES = BodyColumns(Bot, *WRITABLE, required=("name",), partial=True, **VALIDATED)
NewBot = Annotated[JsonObject, NEW_BOT]
BotChanges = Annotated[JsonObject, BOT_CHANGES]

PerPage = Annotated[int, Meta(ge=1, le=100, description="Maximum number of bots to return.")]


class BotsQuery(Struct):
    """Filters and page size for the active bots of an app."""

    app_id: AnyUuid
    search: Search = ""
    category: str = ""
    featured_only: bool = False
    country: Country = ""
    city: str = ""
    kind: bots.Kind | None = None
    presence: bots.Presence | None = None
    cursor: Cursor = Cursor()
    per_page: PerPage = 25


class AppBotsQuery(Struct):
    """Filters and page size for all bots of an app."""

    search: Search = ""
    status: bots.Status | None = None
    kind: bots.Kind | None = None
    cursor: Cursor = Cursor()
    per_page: PerPage = 25


class Publication(Struct):
    """The publication status of a bot; customers see published bots."""

    status: bots.Status


class Presence(Struct):
    """The presence of a bot."""

    presence: bots.Presence


class BotPictureForm(Upload):
    """The image file of a new cover or icon."""

    picture: PictureFile


class BotQuery(Struct):
    """The app of a bot."""

    app_id: AnyUuid


@routes.get("/bots", statuses=(200, 400, 401), meta=("next_cursor", "per_page"))
def list_bots(query: BotsQuery) -> Page[Bot]:
    """List the active bots of an app, featured bots first, then by rating."""
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


@routes.get("/bots/{id}", statuses=(200, 400, 401, 404))
def get_bot(bot: Bot, query: BotQuery) -> Annotated[Raw, Bot]:
    """Get an active bot of an app."""
    return bot.rendered_in(query.app_id)


@routes.get("/apps/{app_id}/bots", statuses=(200, 400, 401, 403, 404), meta=("next_cursor", "per_page"), extension=True)
def list_app_bots(app: App, query: AppBotsQuery) -> Page[Bot]:
    """List all bots of an app by name, including drafts and inactive bots (staff only)."""
    return Bot.catalogue(
        app.id, query.cursor, query.per_page, search=query.search, status=query.status, kind=query.kind
    )


@routes.post(
    "/apps/{app_id}/bots",
    statuses=(201, 400, 401, 403, 404),
    extension=True,
    example={"name": "Hilda", "tagline": "Opening hours and prices", "kind": "bot", "status": "published"},
)
def create_bot(caller: Caller, app: App, body: NewBot) -> Annotated[Raw, Bot]:
    """Create a bot of an app (staff only)."""
    return Bot.add(app.id, body, caller.id)


@routes.get("/apps/{app_id}/bots/{id}", statuses=(200, 400, 401, 403, 404), extension=True)
def get_app_bot(app: App, bot: Bot) -> Annotated[Raw, Bot]:
    """Get a bot of an app, also a draft or an inactive one (staff only)."""
    return render(Bot, bot.id)


@routes.patch(
    "/apps/{app_id}/bots/{id}",
    statuses=(200, 400, 401, 403, 404),
    extension=True,
    example={"tagline": "Opening hours, prices and parking", "is_featured": True},
)
def update_bot(caller: Caller, app: App, bot: Bot, body: BotChanges) -> Annotated[Raw, Bot]:
    """Update a bot of an app (staff only); `null` resets a member to its default."""
    return bot.edit(body, caller.id)


@routes.put(
    "/apps/{app_id}/bots/{id}/status",
    statuses=(200, 400, 401, 403, 404),
    extension=True,
    example={"status": "published"},
)
def publish_bot(caller: Caller, app: App, bot: Bot, body: Publication) -> Annotated[Raw, Bot]:
    """Publish a bot, or return it to draft (staff only)."""
    return bot.set_choice(Bot.status, body.status, caller)


@routes.put(
    "/apps/{app_id}/bots/{id}/presence",
    statuses=(200, 400, 401, 403, 404),
    extension=True,
    example={"presence": "online"},
)
def change_bot_presence(caller: Caller, app: App, bot: Bot, body: Presence) -> Annotated[Raw, Bot]:
    """Set the presence of a bot (staff only)."""
    return bot.set_choice(Bot.presence, body.presence, caller)


@routes.put(
    "/apps/{app_id}/bots/{id}/cover",
    statuses=(200, 400, 401, 403, 404, 413, 415, 503),
    max_body=6 * 1024 * KIB,
    errors=(Busy, ImageTooLarge, ImageUnreadable, UnsupportedMediaType),
    runs="slow",
    extension=True,
)
def upload_bot_cover(
    caller: Caller, app: App, bot: Bot, body: BotPictureForm, settings: Settings
) -> Annotated[Raw, Bot]:
    """Upload the cover of a bot, cropped to 3:1, at most 1,200 pixels wide (staff only)."""
    picture = pictures.make_cropped(body.picture, pictures.COVER)
    return bot.set_picture("cover", picture, settings.public_url, caller.id)


@routes.delete("/apps/{app_id}/bots/{id}/cover", statuses=(200, 400, 401, 403, 404), extension=True)
def remove_bot_cover(caller: Caller, app: App, bot: Bot) -> Annotated[Raw, Bot]:
    """Remove the cover of a bot (staff only)."""
    return bot.edit({"cover_url": ""}, caller.id)


@routes.put(
    "/apps/{app_id}/bots/{id}/icon",
    statuses=(200, 400, 401, 403, 404, 413, 415, 503),
    max_body=6 * 1024 * KIB,
    errors=(Busy, ImageTooLarge, ImageUnreadable, UnsupportedMediaType),
    runs="slow",
    extension=True,
)
def upload_bot_icon(
    caller: Caller, app: App, bot: Bot, body: BotPictureForm, settings: Settings
) -> Annotated[Raw, Bot]:
    """Upload the icon of a bot, cropped to a square, at most 512 pixels wide (staff only)."""
    picture = pictures.make_cropped(body.picture, pictures.SQUARE)
    return bot.set_picture("icon", picture, settings.public_url, caller.id)


@routes.delete("/apps/{app_id}/bots/{id}/icon", statuses=(200, 400, 401, 403, 404), extension=True)
def remove_bot_icon(caller: Caller, app: App, bot: Bot) -> Annotated[Raw, Bot]:
    """Remove the icon of a bot (staff only)."""
    return bot.edit({"icon_url": ""}, caller.id)


@images.get("/bot-pictures/{name}", statuses=(200, 304, 404), produces=pictures.CONTENT_TYPE)
def get_bot_picture(picture: BotPicture) -> Media:
    """Get the cover or icon of a bot; needs no token."""
    return Media(picture.content, picture.name, lasting=True)
