"""Avatars: picture bytes of strangers in, small and safe WebP bytes out; the only importer of Pillow.

Nothing of the original file survives but its pixels: what it says of places, cameras and authors is dropped, and what
it says of orientation is obeyed (contract, section 7). Pixels are taken as sRGB: a colour profile never reaches the
library in C that would read it.
"""

import io
import logging
import threading
from typing import TYPE_CHECKING, Any

from service.errors import Busy, ImageTooLarge, ImageUnreadable, UnsupportedMediaType
from service.pictures.containers import Parts, orientation_of, recognise, take_apart, webp_chunks

if TYPE_CHECKING:
    from PIL.Image import Image

log = logging.getLogger("cx.pictures")

SIDE = 512  # pixels of an avatar, at most
LONGEST = 10_000  # pixels a side
CONTENT_TYPE = "image/webp"

_at_once = threading.BoundedSemaphore(2)
_AVATAR = {b"VP8X", b"ALPH", b"VP8 ", b"VP8L"}  # the chunks of a WebP that is nothing but a still picture


def make_avatar(raw: bytes) -> bytes:
    """A picture as avatar: upright, centre-cropped to a square, at most 512 pixels a side, never enlarged, WebP.

    Takes JPEG, PNG and WebP, of moving pictures the first. Raises UnsupportedMediaType, ImageUnreadable,
    ImageTooLarge, or Busy while two others are being decoded or memory is short.
    """
    recognise(raw)
    if not _at_once.acquire(blocking=False):
        raise Busy
    try:
        parts = take_apart(raw)
        return _encode(_upright(_square(_decode(parts)), orientation_of(parts.exif)))
    except MemoryError:
        log.error("no memory for a picture of %s bytes", len(raw))
        raise Busy from None
    finally:
        _at_once.release()


def is_avatar(raw: bytes) -> bool:
    """Whether bytes are an avatar already, as `make_avatar` makes them."""
    try:
        size = int.from_bytes(raw[4:8], "little") + 8
        if recognise(raw) != "WEBP" or size != len(raw) or not set(webp_chunks(raw)) <= _AVATAR:
            return False
        width, height = _decode(Parts("WEBP", raw, most=SIDE * SIDE)).size
        return width == height
    except (UnsupportedMediaType, ImageUnreadable, ImageTooLarge):
        return False


def _decode(parts: Parts) -> "Image":
    """The pixels of the first picture. Raises ImageUnreadable or ImageTooLarge."""
    from PIL.JpegImagePlugin import JpegImageFile
    from PIL.PngImagePlugin import PngImageFile
    from PIL.WebPImagePlugin import WebPImageFile

    decoders: dict[str, type[Any]] = {"JPEG": JpegImageFile, "PNG": PngImageFile, "WEBP": WebPImageFile}
    try:
        image: Image = decoders[parts.kind](io.BytesIO(parts.bare))
        width, height = image.size
        if max(width, height) > LONGEST or width * height > parts.most:
            at_most = f"at most {parts.most // 1_000_000} million, and {LONGEST} a side, are taken"
            raise ImageTooLarge(f"The picture has {width} × {height} pixels; {at_most}.")
        if parts.kind == "WEBP":
            return _first_frame(image)
        image.draft(None, (SIDE, SIDE))
        image.load()
        return image
    except (ImageTooLarge, MemoryError):
        raise
    except Exception as error:  # a decoder may say anything of a damaged file
        log.info("a picture could not be read: %r", error)
        raise ImageUnreadable from error


def _first_frame(image: Any) -> "Image":
    """The first picture of a WebP without the copy that its `load` would make, four bytes for each pixel."""
    from PIL import Image

    mode = {"RGB": "RGBX"}.get(image.mode, image.mode)
    pixels, _ = image._decoder.get_next()
    return Image.frombuffer(mode, image.size, pixels, "raw", mode, 0, 1)


def _square(image: "Image") -> "Image":
    """The middle of the picture, in the colours of the web."""
    from PIL import ImageOps

    image = _resizable(image)
    side = min(*image.size, SIDE)
    return _in_rgb(ImageOps.fit(image, (side, side)))


def _resizable(image: "Image") -> "Image":
    """A mode that can be resized well: no palettes, no single bits, no 16-bit greys."""
    from PIL import Image

    if image.mode == "I;16":
        return Image.frombytes("L", image.size, image.tobytes()[1::2])  # the higher bytes
    if "transparency" in image.info or image.mode == "LA":
        return image.convert("RGBA")
    wanted = {"1": "L", "P": "RGB"}.get(image.mode)
    return image.convert(wanted) if wanted else image


def _in_rgb(image: "Image") -> "Image":
    """The picture in a mode that WebP takes."""
    mode = "RGBA" if image.mode == "RGBA" else "RGB"
    return image if image.mode == mode else image.convert(mode)


def _upright(image: "Image", orientation: int) -> "Image":
    from PIL.Image import Transpose

    turn = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }.get(orientation)
    return image if turn is None else image.transpose(turn)


def _encode(image: "Image") -> bytes:
    output = io.BytesIO()
    image.info.clear()
    image.save(output, "WEBP", quality=85)
    return output.getvalue()
