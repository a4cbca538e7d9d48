"""Stored pictures: files in the database as base64 text, as in exports, each at an address with a random name."""

import base64
import re
import secrets
from typing import Any, ClassVar, Self, TypeAlias

from service import pictures
from service.db import Table
from service.errors import ApiError, InvalidBody, NotFound
from service.fields import Column, SqlValue

NAME = re.compile(r"[\w-]{1,59}\.webp", re.ASCII)

# A table that is StoredPicture: Python has no type for both (an intersection).
Stored: TypeAlias = Any


class StoredPicture:
    """A table of pictures in the column `image`, with `random_name` as the default of `name`."""

    get_for_errors: ClassVar[tuple[type[ApiError], ...]] = (NotFound,)
    folder: ClassVar[str]  # of the addresses
    name: SqlValue
    image: SqlValue

    @classmethod
    def path_column(cls) -> Column:
        column: Column = cls.name
        return column

    @classmethod
    def get_for(cls, caller: object, id: str, *above: Table) -> Self:
        """Return the picture, for every caller with its name. Raises NotFound."""
        table: Stored = cls
        # PostgreSQL refuses texts with NUL.
        picture: Self | None = table.get_or_none(cls.name == id) if NAME.fullmatch(id) else None
        if picture is None:
            raise NotFound
        return picture

    @property
    def content(self) -> bytes:
        """Return the bytes of the picture."""
        return base64.b64decode(self.image)

    def url(self, public_url: str) -> str:
        """Return the address of the picture: a path, or with a public URL, an absolute URL."""
        return f"{public_url.rstrip('/')}{self.folder}{self.name}"


def random_name() -> str:
    """Return the name of a new picture. It is unguessable and never reused."""
    return f"{secrets.token_urlsafe(16)}.webp"


def as_text(picture: bytes) -> str:
    """Return a picture as stored."""
    return base64.b64encode(picture).decode()


def imported_image(kind: str, given: dict[str, SqlValue], shape: pictures.Shape) -> dict[str, SqlValue]:
    """Return the picture of an imported record: unchanged if it has the shape, otherwise converted like an upload."""
    if not NAME.fullmatch(given.get("name", "a.webp")):
        raise InvalidBody(f"$.{kind}.name: expected at most 59 letters, digits, - and _, then .webp")
    try:
        raw = base64.b64decode(given.get("image") or "", validate=True)
        return {} if pictures.is_cropped(raw, shape) else {"image": as_text(pictures.make_cropped(raw, shape))}
    except (ValueError, ApiError) as error:
        raise InvalidBody(f"$.{kind}.image: {error}") from None
