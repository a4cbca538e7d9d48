"""Errors of uploaded files and pictures."""

from service.errors.base import ApiError
from service.errors.requests import BadRequest, BodyTooLarge


class FileMissing(BadRequest):
    """The form has no such file, or the file is empty."""

    code = "file_missing"


class FileTooLarge(BodyTooLarge):
    """The file is larger than this operation accepts."""

    code = "file_too_large"


class UnsupportedMediaType(ApiError):
    """This operation does not accept files of this type."""

    status = 415
    code = "unsupported_media_type"


class ImageUnreadable(BadRequest):
    """The picture is damaged or incomplete."""

    code = "image_unreadable"


class ImageTooLarge(BadRequest):
    """The picture has too many pixels."""

    code = "image_too_large"
