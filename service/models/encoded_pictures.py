"""Pictures with a thumbnail, stored as base64 text, as in exports."""

import base64
from typing import NamedTuple, Self

from service import pictures
from service.errors import ApiError, InvalidBody
from service.fields import SqlValue

USER_LIMITS = {
    "user": 500,
    "agent": 20_000,
    "admin": 20_000,
}  # pictures of a user in messages, by role; in feedback too


class EncodedPicture(NamedTuple):
    """A picture and its thumbnail as stored."""

    image: str
    thumbnail: str
    width: int
    height: int

    @classmethod
    def of(cls, picture: pictures.Picture) -> Self:
        return cls(_as_text(picture.content), _as_text(picture.thumbnail), picture.width, picture.height)

    @classmethod
    def from_import(cls, kind: str, given: dict[str, SqlValue]) -> Self:
        """Return the picture of a record: unchanged if it was exported, otherwise converted like an upload.

        Raises InvalidBody.
        """
        try:
            raw = base64.b64decode(given.get("image") or "", validate=True)
            return cls.of(pictures.restore_picture(raw))
        except (ValueError, ApiError) as error:
            raise InvalidBody(f"$.{kind}.image: {error}") from None


class WithThumbnail:
    """A table of pictures in the column `image`, with thumbnails in the column `thumbnail`."""

    image: SqlValue
    thumbnail: SqlValue

    @property
    def content(self) -> bytes:
        """Return the bytes of the picture."""
        return base64.b64decode(self.image)

    @property
    def thumbnail_content(self) -> bytes:
        """Return the bytes of the thumbnail."""
        return base64.b64decode(self.thumbnail)


def _as_text(content: bytes) -> str:
    return base64.b64encode(content).decode()
