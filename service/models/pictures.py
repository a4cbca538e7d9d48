"""Avatars, stored as the base64 text that an export holds."""

import base64
import re
import secrets
from typing import Any

import peewee

from service import pictures
from service.db import Table, write
from service.errors import InvalidBody, NotFound, Refusal
from service.fields import EXPORT, Column, Text, reference
from service.models.people import User

FOLDER = "/avatars/"
NAME = re.compile(r"[\w-]{1,59}\.webp", re.ASCII)


class Avatar(Table):
    """The picture of one user, under a name that cannot be guessed and that no other picture ever gets."""

    reach_raises = (NotFound,)
    user_id = reference("user", primary_key=True, leaves=EXPORT)
    name = Text(64, unique=True, default=lambda: f"{secrets.token_urlsafe(16)}.webp", leaves=EXPORT)
    image = Text(default=None, leaves=EXPORT)

    @classmethod
    def adopt(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Any picture that could be uploaded; one that is an avatar already stays as it is."""
        if not NAME.fullmatch(given.get("name", "a.webp")):
            raise InvalidBody("$.avatar.name: expected at most 59 letters, digits, - and _, then .webp")
        try:
            raw = base64.b64decode(given.get("image") or "", validate=True)
            return {} if pictures.is_avatar(raw) else {"image": _as_text(pictures.make_avatar(raw))}
        except (ValueError, Refusal) as error:
            raise InvalidBody(f"$.avatar.image: {error}") from None

    @classmethod
    def path_column(cls) -> Column:
        return cls.name

    @classmethod
    def reach(cls, caller: object, id: str, *above: Any) -> "Avatar":
        """The picture, for everybody who knows its name. Raises NotFound."""
        avatar = cls.get_or_none(cls.name == id) if NAME.fullmatch(id) else None  # PostgreSQL takes no text with NUL
        if avatar is None:
            raise NotFound
        return avatar

    @classmethod
    def replace_by(cls, user_id: str, picture: bytes, public_url: str) -> str:
        """Give a user another picture; its URL. The old one is gone in the same moment."""
        with write(user_id):
            cls.delete().where(cls.user_id == user_id).execute()
            avatar = cls.create(user_id=user_id, image=_as_text(picture))
            url = f"{public_url.rstrip('/')}{FOLDER}{avatar.name}"
            User.update(profile_image=url).where(User.id == user_id).execute()
            return url

    @classmethod
    def remove_of(cls, user_id: str) -> None:
        """Take a user's picture away, wherever it is."""
        with write(user_id):
            cls.delete().where(cls.user_id == user_id).execute()
            User.update(profile_image="").where(User.id == user_id).execute()

    @classmethod
    def settle(cls) -> None:
        """See that users show the pictures that were imported for them."""
        named: Any = cls.select(peewee.Value(FOLDER).concat(cls.name)).where(cls.user_id == User.id)
        unseen = named.where(~User.profile_image.endswith(cls.name))
        User.update(profile_image=named).where(peewee.fn.EXISTS(unseen)).execute()

    @property
    def content(self) -> bytes:
        """The bytes of the picture."""
        return base64.b64decode(self.image)


def _as_text(picture: bytes) -> str:
    return base64.b64encode(picture).decode()
