"""The page on which staff uploads and removes the cover and the icon of a bot."""

from msgspec import Struct

from service import pictures
from service.api.operations import KIB, MAX_FORM, Routes
from service.api.parameter_types import HtmlPage, PictureFile, Redirect, Upload
from service.console import layout
from service.console.layout import NO_FAILURE, ConsoleForm, FormFailure
from service.errors import Busy, ImageTooLarge, ImageUnreadable, UnsupportedMediaType
from service.models import App, Bot, BotPicture
from service.models.bot_pictures import COLUMNS, SHAPES, Kind
from service.models.callers import Caller
from service.settings import Settings
from service.translation import gettext

routes = Routes("Console", prefix="", scope="console", extension=True, produces="text/html")


class BotPicturesQuery(Struct):
    """The result of the previous form, see `layout.SUCCESS_MESSAGES`."""

    done: str = ""


class UploadQuery(Struct):
    """Which picture it is, and the CSRF token of the form, whose body contains only the file."""

    kind: Kind
    csrf_token: str = ""


class BotPictureUpload(Upload):
    """The image file of a cover or icon."""

    picture: PictureFile


class RemovalForm(ConsoleForm, kw_only=True):
    """The picture to remove."""

    kind: Kind


@routes.get("/console/apps/{app_id}/bots/{id}/pictures", statuses=(200, 400, 401, 403, 404))
def show_bot_pictures(caller: Caller, app: App, bot: Bot, query: BotPicturesQuery) -> HtmlPage:
    """Show the page of the cover and the icon of a bot (staff only)."""
    return bot_pictures_page(caller, app, bot, query)


def bot_pictures_page(
    caller: Caller, app: App, bot: Bot, query: BotPicturesQuery, failure: FormFailure = NO_FAILURE
) -> HtmlPage:
    """Return the page of the cover and the icon of a bot."""
    return layout.show(
        caller,
        "bot-pictures",
        gettext("Pictures of {name}", name=bot.name or gettext("Bot")),
        active="catalogue",
        done=query.done,
        failure=failure,
        app=app,
        bot=bot,
        addresses={kind: getattr(bot, column) for kind, column in COLUMNS.items()},
        uploaded=BotPicture.paths_of(bot.id),
    )


@routes.post(
    "/console/apps/{app_id}/bots/{id}/pictures",
    statuses=(303, 400, 401, 403, 404, 413, 415, 503),
    max_body=6 * 1024 * KIB,
    errors=(Busy, ImageTooLarge, ImageUnreadable, UnsupportedMediaType),
)
@layout.form_handler(bot_pictures_page, BotPicturesQuery)
def change_bot_picture(
    caller: Caller, app: App, bot: Bot, query: UploadQuery, body: BotPictureUpload, settings: Settings
) -> Redirect:
    """Upload the cover or the icon of a bot (staff only)."""
    picture = pictures.make_cropped(body.picture, SHAPES[query.kind])
    bot.set_picture(query.kind, picture, settings.public_url, caller.id)
    return Redirect(f"/console/apps/{app.id}/bots/{bot.id}/pictures?done=picture")


@routes.post("/console/apps/{app_id}/bots/{id}/pictures/removal", statuses=(303, 400, 401, 403, 404), max_body=MAX_FORM)
@layout.form_handler(bot_pictures_page, BotPicturesQuery)
def remove_bot_picture(caller: Caller, app: App, bot: Bot, body: RemovalForm) -> Redirect:
    """Remove the cover or the icon of a bot (staff only)."""
    bot.edit({COLUMNS[body.kind]: ""}, caller.id)
    return Redirect(f"/console/apps/{app.id}/bots/{bot.id}/pictures?done=removed")
