"""Avatars."""

import peewee

from service import pictures
from service.db import Table, write
from service.fields import EXPORT_ONLY, SqlValue, Text, reference
from service.models.stored_pictures import StoredPicture, as_text, imported_image, random_name
from service.models.users import User

FOLDER = "/avatars/"


class Avatar(StoredPicture, Table):
    """The picture of a user."""

    folder = FOLDER
    user_id = reference("user", primary_key=True, visibility=EXPORT_ONLY)
    name = Text(64, unique=True, default=random_name, visibility=EXPORT_ONLY)
    image = Text(default=None, visibility=EXPORT_ONLY)

    @classmethod
    def from_import(cls, given: dict[str, SqlValue]) -> dict[str, SqlValue]:
        """Return the picture as an avatar: unchanged if it is one, otherwise converted like an upload."""
        return imported_image("avatar", given, pictures.SQUARE)

    @classmethod
    def set_for(cls, user_id: str, picture: bytes, public_url: str) -> str:
        """Set the picture of a user, in place of the previous one. Return its URL."""
        with write(user_id):
            cls.delete().where(cls.user_id == user_id).execute()
            url = cls.create(user_id=user_id, image=as_text(picture)).url(public_url)
            User.update(profile_image=url).where(User.id == user_id).execute()
            return url

    @classmethod
    def remove_for(cls, user_id: str) -> None:
        """Remove the picture of a user, including an external URL."""
        with write(user_id):
            cls.delete().where(cls.user_id == user_id).execute()
            User.update(profile_image="").where(User.id == user_id).execute()

    @classmethod
    def recompute(cls) -> None:
        """Set the profile image of users to their imported pictures."""
        url = cls.select(peewee.Value(FOLDER).concat(cls.name)).where(cls.user_id == User.id)
        outdated = url.where(~User.profile_image.endswith(cls.name))
        User.update(profile_image=url).where(peewee.fn.EXISTS(outdated)).execute()
