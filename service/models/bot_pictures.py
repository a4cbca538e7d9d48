"""Covers and icons of bots."""

from typing import Literal, get_args

from service import pictures
from service.db import Table
from service.fields import EXPORT_ONLY, INTERNAL, Choice, SqlValue, Text, reference
from service.models.stored_pictures import StoredPicture, as_text, imported_image, random_name

FOLDER = "/bot-pictures/"

Kind = Literal["cover", "icon"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SHAPES: dict[Kind, pictures.Shape] = {"cover": pictures.COVER, "icon": pictures.SQUARE}
COLUMNS: dict[Kind, str] = {"cover": "cover_url", "icon": "icon_url"}  # of the bot, with the addresses


class BotPicture(StoredPicture, Table):
    """The cover or the icon of a bot, which has at most one of each."""

    folder = FOLDER
    id = Text(primary_key=True, visibility=INTERNAL)  # see `key_of`
    bot_id = reference("bot", visibility=EXPORT_ONLY)
    kind = Choice(*KINDS, default=None, visibility=EXPORT_ONLY)
    name = Text(64, unique=True, default=random_name, visibility=EXPORT_ONLY)
    image = Text(default=None, visibility=EXPORT_ONLY)

    @classmethod
    def from_import(cls, given: dict[str, SqlValue]) -> dict[str, SqlValue]:
        """Return the key and the picture: unchanged if it has the shape, otherwise converted like an upload."""
        bot_id, kind = given.get("bot_id", ""), given.get("kind", "cover")
        return {"id": key_of(bot_id, kind)} | imported_image("bot_picture", given, SHAPES[kind])

    @classmethod
    def paths_of(cls, bot_id: str) -> dict[Kind, str]:
        """Return the paths of the pictures of a bot."""
        return {picture.kind: picture.url("") for picture in cls.select().where(cls.bot_id == bot_id)}

    @classmethod
    def store(cls, bot_id: str, kind: Kind, picture: bytes, public_url: str) -> str:
        """Store a picture in place of the previous one, inside the write that sets its address. Return its URL."""
        cls.keep_only(bot_id, kind, "")
        return cls.create(id=key_of(bot_id, kind), bot_id=bot_id, kind=kind, image=as_text(picture)).url(public_url)

    @classmethod
    def keep_only(cls, bot_id: str, kind: Kind, url: str) -> None:
        """Remove the picture unless it has this address."""
        cls.delete().where(cls.id == key_of(bot_id, kind), cls.name != url.rpartition("/")[2]).execute()


def key_of(bot_id: str, kind: str) -> str:
    """Return the key of a picture."""
    return f"{bot_id} {kind}"
