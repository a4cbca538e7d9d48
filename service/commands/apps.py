"""`app` and `bot`: add, list and edit apps and their bots."""

import argparse
from pathlib import Path
from typing import get_args

import msgspec

from service import pictures
from service.api.parameter_types import MAX_PICTURE
from service.api.schemas import BodyColumns
from service.commands import Stop, add_actions
from service.commands.rows import existing, id_of, open_database, print_row, read_columns
from service.db import write
from service.errors import ApiError
from service.fields import Boolean, Choice, JsonText, Number
from service.models import App, Bot
from service.models.audit_log import OPERATOR
from service.models.bot_pictures import COLUMNS, KINDS, SHAPES, Kind
from service.routes.apps import APP_CHANGES, NEW_APP
from service.routes.bots import BOT_CHANGES, NEW_BOT
from service.settings import Settings
from service.types import JsonValue
from service.validators import byte_size


def add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    add_action = add_actions(parser, "data", "database")
    if name == "app":
        add = add_action("add", "add an app, and print its identifier", add_app)
        listing = add_action("list", "list the apps", list_apps)
        edit = add_action("edit", "rename an app", edit_app)
    else:
        add = add_action("add", "add a bot, and print its identifier", add_bot)
        add.add_argument("--app", metavar="ID", required=True, help="identifier of the bot's app")
        listing = add_action("list", "list the bots of all apps, or of one", list_bots)
        listing.add_argument("--app", metavar="ID", help="identifier of an app")
        edit = add_action("edit", "change a bot; an empty value resets it to its default", edit_bot)
    add.add_argument("name")
    listing.add_argument("--json", action="store_true", help="print one JSON object per line")
    edit.add_argument("id")
    edit.add_argument("--name", default=argparse.SUPPRESS)
    if name == "bot":
        for action in (add, edit):
            _add_column_flags(action, BOT_CHANGES)
            for kind in KINDS:
                help = f"a file to use as {kind}: JPEG, PNG or WebP, at most {byte_size(MAX_PICTURE)}"
                action.add_argument(f"--{kind}-file", dest=kind, metavar="FILE", type=Path, help=help)


def add_app(flags: argparse.Namespace, settings: Settings) -> None:
    """Add an app, and print its identifier."""
    columns = read_columns(flags, NEW_APP)
    open_database(settings, create=True)
    print(id_of(App.add(columns, OPERATOR)))


def list_apps(flags: argparse.Namespace, settings: Settings) -> None:
    """Print one line per app."""
    open_database(settings)
    for app in App.select().order_by(App.name, App.id):
        print_row(flags, {"id": app.id, "name": app.name}, app.name)


def edit_app(flags: argparse.Namespace, settings: Settings) -> None:
    """Change an app."""
    columns = read_columns(flags, APP_CHANGES)
    open_database(settings)
    existing(App, flags.id).edit(columns, OPERATOR)


def add_bot(flags: argparse.Namespace, settings: Settings) -> None:
    """Add a bot, and print its identifier."""
    columns, files = read_columns(flags, NEW_BOT), _read_pictures(flags)
    open_database(settings)
    app = existing(App, flags.app)
    with write():
        id = id_of(Bot.add(app.id, columns, OPERATOR))
        _set_pictures(Bot.get_by_id(id), files, settings)
    print(id)


def list_bots(flags: argparse.Namespace, settings: Settings) -> None:
    """Print one line per bot."""
    open_database(settings)
    bots = Bot.select().order_by(Bot.app_id, Bot.name, Bot.id)
    if flags.app:
        bots = bots.where(Bot.app_id == existing(App, flags.app).id)
    for bot in bots:
        row = {name: getattr(bot, name) for name in ("id", "app_id", "name", "kind", "status", "is_active")}
        print_row(flags, row, f"{bot.kind:<5}  {bot.status:<9}  {bot.name}")


def edit_bot(flags: argparse.Namespace, settings: Settings) -> None:
    """Change a bot."""
    columns, files = read_columns(flags, BOT_CHANGES), _read_pictures(flags)
    open_database(settings)
    bot = existing(Bot, flags.id)
    with write(bot.id):
        bot.edit(columns, OPERATOR)
        _set_pictures(bot, files, settings)


def _add_column_flags(parser: argparse.ArgumentParser, columns: BodyColumns) -> None:
    """Add a flag for each column but the name. Flags that are not given are missing in the namespace."""
    for name, column in columns.columns.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(column, Boolean):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS)
        elif isinstance(column, Choice):
            parser.add_argument(flag, choices=get_args(column.accepts), default=argparse.SUPPRESS)
        elif isinstance(column, Number):
            parser.add_argument(flag, type=float, metavar="NUMBER", default=argparse.SUPPRESS)
        elif isinstance(column, JsonText):
            parser.add_argument(flag, type=_read_json, metavar="JSON", default=argparse.SUPPRESS)
        elif name != "name":
            parser.add_argument(flag, metavar="TEXT", default=argparse.SUPPRESS)


def _read_json(text: str) -> JsonValue:
    try:
        value: JsonValue = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None
    return value


def _read_pictures(flags: argparse.Namespace) -> dict[Kind, bytes]:
    """Return the pictures of the files that the flags name, by the same rules as the API."""
    files: dict[Kind, Path] = {kind: path for kind in KINDS if (path := getattr(flags, kind))}
    for kind in files:
        if hasattr(flags, COLUMNS[kind]):
            raise Stop(f"use either --{kind}-file or --{kind}-url")
    return {kind: _read_picture(path, SHAPES[kind]) for kind, path in files.items()}


def _read_picture(path: Path, shape: pictures.Shape) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_PICTURE + 1)
        if len(raw) > MAX_PICTURE:
            raise Stop(f"{path}: the file is larger than {byte_size(MAX_PICTURE)}")
        return pictures.make_cropped(raw, shape)
    except OSError as error:
        raise Stop(f"cannot read {path}: {error.strerror}") from None
    except ApiError as error:
        raise Stop(f"{path}: {error}") from None


def _set_pictures(bot: Bot, files: dict[Kind, bytes], settings: Settings) -> None:
    for kind, picture in files.items():
        bot.set_picture(kind, picture, settings.public_url, OPERATOR)
