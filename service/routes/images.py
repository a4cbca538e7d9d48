"""Pictures of messages: upload, and download by those who may read the message."""

from service import pictures
from service.api.operations import KIB, Routes
from service.api.parameter_types import ImageQuery, Media, PictureFile, Upload
from service.errors import Busy, ImageLimitReached, ImageTooLarge, ImageUnreadable, UnsupportedMediaType
from service.models import ChatSession, Message, MessageImage
from service.models.callers import Caller
from service.models.encoded_pictures import EncodedPicture
from service.models.message_images import UploadedImage

routes = Routes("Chat sessions and messages", scope="chats", extension=True)
console = Routes("Console", prefix="", scope="console", extension=True)


class ImageForm(Upload):
    """The image file of a picture to send."""

    image: PictureFile


def encoded_picture(body: ImageForm) -> EncodedPicture:
    """Return the picture in the form that is stored."""
    return EncodedPicture.of(pictures.make_picture(body.image))


@routes.post(
    "/chats/{id}/images",
    statuses=(201, 400, 401, 403, 404, 413, 415, 503),
    max_body=6 * 1024 * KIB,
    prepare=encoded_picture,
    errors=(Busy, ImageLimitReached, ImageTooLarge, ImageUnreadable, UnsupportedMediaType),
    runs="slow",
)
def upload_image(caller: Caller, session: ChatSession, prepared: EncodedPicture) -> UploadedImage:
    """Upload a picture to send with a message within a day."""
    return MessageImage.upload(caller, session, prepared)


@routes.get(
    "/chats/{session_id}/messages/{message_id}/images/{id}",
    statuses=(200, 304, 400, 401, 403, 404),
    produces=pictures.CONTENT_TYPE,
    runs="slow",
)
def get_image(session: ChatSession, message: Message, image: MessageImage, query: ImageQuery) -> Media:
    """Get a picture of a message, or its thumbnail."""
    return image_media(image, query)


def image_media(image: MessageImage, query: ImageQuery) -> Media:
    """Return a picture or its thumbnail; clients check on each use whether the caller may still read it."""
    content = image.thumbnail_content if query.size == "thumbnail" else image.content
    return Media(content, f"{image.id} {query.size}", personal=True, file_name=f"{image.id}.webp")


@console.get(
    "/console/chats/{session_id}/messages/{message_id}/images/{id}",
    statuses=(200, 304, 400, 401, 403, 404),
    produces=pictures.CONTENT_TYPE,
    runs="slow",
)
def show_image(session: ChatSession, message: Message, image: MessageImage, query: ImageQuery) -> Media:
    """Show a picture of a message, or its thumbnail."""
    return image_media(image, query)
