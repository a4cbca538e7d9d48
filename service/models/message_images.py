"""Pictures of messages, stored as base64 text, as in exports."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import peewee
from msgspec import Struct

from service import clock
from service.db import Query, Table, compiled, write
from service.errors import ImageLimitReached, ImageNotFound
from service.fields import (
    EXPORT_ONLY,
    INTERNAL,
    Identifier,
    Integer,
    SqlValue,
    Text,
    Timestamp,
    UlidIdentifier,
    Uuid,
    reference,
)
from service.models.callers import Caller
from service.models.chats import ChatSession
from service.models.encoded_pictures import USER_LIMITS, EncodedPicture, WithThumbnail
from service.types import JsonObject

MESSAGE_LIMIT = 4  # pictures of a message
UNSENT_LIMIT = 20  # uploaded pictures of a user that no message has yet; more replace the oldest
UNSENT_LIFETIME = clock.DAY


class UploadedImage(Struct):
    """An uploaded picture, which the next message can have."""

    id: Uuid
    width: int
    height: int


class ImageSize(NamedTuple):
    """A picture of a message, and its size in pixels."""

    id: str
    width: int
    height: int


class UnsentImage(NamedTuple):
    """An uploaded picture that is not sent yet, and its thumbnail in base64."""

    id: str
    thumbnail: str


class MessageImage(WithThumbnail, Table):
    """A picture of a message, or one that is uploaded and not sent yet."""

    get_for_errors = (ImageNotFound,)
    id = Identifier(primary_key=True, default=clock.uuid, visibility=EXPORT_ONLY)
    chat_session_id = reference("chat_session", visibility=EXPORT_ONLY)  # for which it was uploaded
    user_id = reference("user", visibility=EXPORT_ONLY)  # who uploaded it
    message_id = UlidIdentifier(
        null=True,
        refers_to="message",
        visibility=EXPORT_ONLY,
        constraints=[peewee.SQL('REFERENCES "message" ("id") DEFERRABLE INITIALLY DEFERRED')],
    )
    position = Integer(default=0, visibility=EXPORT_ONLY)  # among the pictures of the message
    created_at = Timestamp(default=clock.timestamp, visibility=EXPORT_ONLY)
    width = Integer(default=0, visibility=INTERNAL)
    height = Integer(default=0, visibility=INTERNAL)
    thumbnail = Text(visibility=INTERNAL)
    image = Text(default=None, visibility=EXPORT_ONLY)

    @classmethod
    def from_import(cls, given: dict[str, SqlValue]) -> dict[str, SqlValue]:
        """Return the picture: unchanged if it was exported, otherwise converted like an upload."""
        return EncodedPicture.from_import("message_image", given)._asdict()

    @classmethod
    def get_for(cls, caller: Caller, id: str, *above: Table) -> Self:
        """Return the picture of a message that the caller may read. Raises ImageNotFound."""
        message: SqlValue = above[-1]
        image = cls.find(id)
        if image is None or image.message_id != message.id or message.deleted_at or message.gdpr_purged_at:
            raise ImageNotFound
        return image

    @classmethod
    def upload(cls, caller: Caller, session: ChatSession, picture: EncodedPicture) -> UploadedImage:
        """Store a picture that the caller can send to a session within a day. Raises ImageLimitReached."""
        with write(caller.id):
            expired = clock.timestamp(clock.now() - UNSENT_LIFETIME)
            cls.delete().where(cls.message_id.is_null(), cls.created_at <= expired).execute()
            cls.delete().where(cls.message_id.is_null(), cls.id.in_(_surplus(caller.id))).execute()
            if cls.select().where(cls.user_id == caller.id).count() >= USER_LIMITS[caller.role]:
                raise ImageLimitReached
            created = cls.create(chat_session_id=session.id, user_id=caller.id, **picture._asdict())
            return UploadedImage(created.id, picture.width, picture.height)

    @classmethod
    def attach(cls, caller: Caller, session: ChatSession, message_id: str, ids: Sequence[str]) -> list[JsonObject]:
        """Give uploaded pictures to a message of the caller, inside the write that stores it.

        Return the `images` of its content. Raises ImageNotFound.
        """
        images: list[JsonObject] = []
        for position, id in enumerate(ids):
            size = _attach(id, caller.id, session.id, message_id, position).row()
            if not size:
                raise ImageNotFound
            url = f"/api/v1/chats/{session.id}/messages/{message_id}/images/{id}"
            images.append({"url": url, "width": size[0], "height": size[1]})
        return images

    @classmethod
    def of_messages(cls, message_ids: Sequence[str]) -> dict[str, list[ImageSize]]:
        """Return the sizes of the pictures of messages, by message, in their order."""
        found: dict[str, list[ImageSize]] = {}
        sent = cls.select(cls.message_id, cls.id, cls.width, cls.height).where(cls.message_id.in_(message_ids))
        rows: Query = sent.order_by(cls.position, cls.id).tuples()
        for message_id, *size in rows:
            found.setdefault(message_id, []).append(ImageSize(*size))
        return found

    @classmethod
    def unsent(cls, caller: Caller, session: ChatSession, ids: Sequence[str]) -> list[UnsentImage]:
        """Return the pictures among `ids` that the caller can send to a session, in the same order."""
        own = (cls.user_id == caller.id) & (cls.chat_session_id == session.id) & cls.message_id.is_null()
        rows: Query = cls.select(cls.id, cls.thumbnail).where(cls.id.in_(ids), own).tuples()
        return sorted((UnsentImage(*row) for row in rows), key=lambda image: ids.index(image.id))

    @classmethod
    def remove_unsent(cls, user_id: str) -> None:
        """Remove the pictures that a user has uploaded and not sent."""
        cls.delete().where(cls.user_id == user_id, cls.message_id.is_null()).execute()


def _surplus(user_id: str) -> Query:
    """Select the unsent pictures of a user that one more would replace."""
    unsent = MessageImage.select(MessageImage.id).where(
        MessageImage.user_id == user_id, MessageImage.message_id.is_null()
    )
    newest_first = unsent.order_by(MessageImage.created_at.desc(), MessageImage.id.desc())
    return newest_first.limit(UNSENT_LIMIT).offset(UNSENT_LIMIT - 1)


@compiled
def _attach(id: str, user_id: str, session_id: str, message_id: str, position: int) -> Query:
    unsent = (MessageImage.id == id) & MessageImage.message_id.is_null()
    own = (MessageImage.user_id == user_id) & (MessageImage.chat_session_id == session_id)
    attached = MessageImage.update(message_id=message_id, position=position).where(unsent, own)
    return attached.returning(MessageImage.width, MessageImage.height)


_sent = MessageImage.message_id.is_null(False)
MessageImage.add_index(MessageImage.message_id, MessageImage.position, name="message_image_sent", where=_sent)
_unsent = MessageImage.message_id.is_null()
MessageImage.add_index(MessageImage.created_at, name="message_image_unsent", where=_unsent)
MessageImage.add_index(MessageImage.user_id, MessageImage.message_id, name="message_image_user")
