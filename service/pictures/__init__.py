"""Decodes untrusted pictures, and encodes avatars, pictures of bots and pictures of messages as WebP.

The only importer of Pillow.

Only the pixels of the original file are kept. Metadata such as places, cameras and authors is dropped; the Exif
orientation is applied. Pixels are treated as sRGB: no colour profile is passed to the C library that would parse it.
"""

import contextlib
import io
import logging
import math
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from service.errors import Busy, ImageTooLarge, ImageUnreadable, UnsupportedMediaType
from service.pictures.containers import MAX_PIXELS, Parts, detect_format, parse, read_orientation, webp_chunks

if TYPE_CHECKING:
    from PIL.Image import Image

log = logging.getLogger("cx.pictures")

PICTURE_SIDE = 2048  # pixels of the longer side of a picture in a message, at most
TRANSPARENT_SIDE = 1280  # the same of a picture with transparency, which takes four times the memory to encode
PICTURE_BYTES = 1024 * 1024  # of a picture in a message, at most
THUMBNAIL_SIDE = 320  # pixels of the longer side of a thumbnail, at most
MAX_SIDE = 10_000  # pixels of a side of an uploaded picture
CONTENT_TYPE = "image/webp"

_REDUCED_SIDE = math.isqrt(MAX_PIXELS) // 2  # so that a JPEG that is not reduced has at most MAX_PIXELS
_SIDEWAYS = (5, 6, 7, 8)  # the Exif orientations of pictures whose width and height are exchanged
_BICUBIC_SUPPORT = 2  # pixels on each side, of the smaller picture
_STRIP_PIXELS = 125_000  # 0.5 MiB
_decoding = threading.BoundedSemaphore(2)
_PLAIN_CHUNKS = {b"VP8X", b"ALPH", b"VP8 ", b"VP8L"}  # the chunks of a WebP with one picture and no metadata
_QUALITIES = (85, 50)  # of WebP, from 0 to 100; a lower one if a picture is larger than PICTURE_BYTES

WebPImage: TypeAlias = Any  # with its decoder, which Pillow does not document


class Shape(NamedTuple):
    """The shape of a cropped picture."""

    ratio: int  # of the width to the height
    max_height: int  # in pixels

    @property
    def max_size(self) -> tuple[int, int]:
        """Width and height at most."""
        return self.ratio * self.max_height, self.max_height

    def within(self, width: int, height: int) -> tuple[int, int]:
        """Return the largest size of this shape inside a picture; a picture narrower than the ratio keeps its width."""
        cropped = max(1, min(width // self.ratio, height, self.max_height))
        return min(width, self.ratio * cropped), cropped


SQUARE = Shape(1, 512)  # of avatars, and of icons of bots
COVER = Shape(3, 400)  # of covers of bots


class Picture(NamedTuple):
    """A picture of a message, and its thumbnail, in WebP."""

    content: bytes
    thumbnail: bytes
    width: int
    height: int


def make_avatar(raw: bytes) -> bytes:
    """Return an avatar: `make_cropped` in the shape of a square."""
    return make_cropped(raw, SQUARE)


def make_cropped(raw: bytes, shape: Shape) -> bytes:
    """Return a picture in WebP: rotated upright, cropped to a shape around its center, never enlarged.

    Accepts JPEG, PNG and WebP; of an animation, the first picture. Raises UnsupportedMediaType, ImageUnreadable,
    ImageTooLarge, or Busy while two other pictures are being decoded or memory is short.
    """
    with _decoder(raw) as parts:
        orientation, longer = read_orientation(parts.exif), max(shape.max_size)
        cropped = _crop(_decode(parts, (longer, longer)), shape, orientation)
        return _encode(_upright(cropped, orientation))


def make_picture(raw: bytes) -> Picture:
    """Return a picture for a message: rotated upright, at most 2048 pixels a side and 1 MiB, never enlarged or cropped.

    With transparency, it has at most 1280 pixels a side. Accepts the same files as `make_cropped`, and raises the same
    errors.
    """
    with _decoder(raw) as parts:
        return _picture(_upright(_decode_scaled(parts), read_orientation(parts.exif)))


def restore_picture(raw: bytes) -> Picture:
    """Return an exported picture, unchanged, with a new thumbnail; any other file is converted by `make_picture`."""
    if len(raw) <= PICTURE_BYTES and is_plain_webp(raw):
        with _decoder(raw) as parts:
            image = _decode(parts, (PICTURE_SIDE, 1))
            if max(image.size) <= PICTURE_SIDE:
                return Picture(raw, _thumbnail(_in_rgb(image)), *image.size)
    return make_picture(raw)


def is_avatar(raw: bytes) -> bool:
    """Return whether a file has the form that `make_avatar` produces."""
    return is_cropped(raw, SQUARE)


def is_cropped(raw: bytes, shape: Shape) -> bool:
    """Return whether a file has the form that `make_cropped` produces."""
    try:
        if not is_plain_webp(raw):
            return False
        size = _decode(Parts("WEBP", raw, max_pixels=math.prod(shape.max_size)), (1, 1)).size
        return size == shape.within(*size)
    except (UnsupportedMediaType, ImageUnreadable, ImageTooLarge):
        return False


def is_plain_webp(raw: bytes) -> bool:
    """Return whether a file is a WebP with one picture and nothing else.

    Raises UnsupportedMediaType or ImageUnreadable.
    """
    size = int.from_bytes(raw[4:8], "little") + 8
    return detect_format(raw) == "WEBP" and size == len(raw) and set(webp_chunks(raw)) <= _PLAIN_CHUNKS


@contextlib.contextmanager
def _decoder(raw: bytes) -> Iterator[Parts]:
    """Yield the parts of a file, while it is one of at most two that are decoded at a time.

    Raises UnsupportedMediaType, ImageUnreadable, or Busy while two others are decoded or memory is short.
    """
    detect_format(raw)
    if not _decoding.acquire(blocking=False):
        raise Busy
    try:
        yield parse(raw)
    except MemoryError:
        log.error("not enough memory for a picture of %s bytes", len(raw))
        raise Busy from None
    finally:
        _decoding.release()


def _decode(parts: Parts, needed: tuple[int, int]) -> "Image":
    """Return the pixels of the first picture. Raises ImageUnreadable or ImageTooLarge.

    A JPEG is decoded at a reduced size if its longer and its shorter side then still have the `needed` pixels.
    """
    from PIL.JpegImagePlugin import JpegImageFile
    from PIL.PngImagePlugin import PngImageFile
    from PIL.WebPImagePlugin import WebPImageFile

    decoders: dict[str, Callable[[io.BytesIO], Image]] = {
        "JPEG": JpegImageFile,
        "PNG": PngImageFile,
        "WEBP": WebPImageFile,
    }
    try:
        image: Image = decoders[parts.format](io.BytesIO(parts.stripped))
        width, height = image.size
        if max(width, height) > MAX_SIDE or width * height > parts.max_pixels:
            limits = f"the limits are {parts.max_pixels / 1_000_000:g} million pixels, and {MAX_SIDE} a side"
            raise ImageTooLarge(f"The picture has {width} × {height} pixels; {limits}.")
        if parts.format == "WEBP":
            return _first_frame(image)
        image.draft(None, needed if width >= height else needed[::-1])
        image.load()
        return image
    except (ImageTooLarge, MemoryError):
        raise
    except Exception as error:  # decoders raise all kinds of exceptions for damaged files
        log.info("a picture could not be decoded: %r", error)
        raise ImageUnreadable from error


def _first_frame(image: WebPImage) -> "Image":
    """Return the first picture of a WebP, without the copy of four bytes for each pixel that its `load` would make."""
    from PIL import Image

    mode = {"RGB": "RGBX"}.get(image.mode, image.mode)
    pixels, _ = image._decoder.get_next()
    return Image.frombuffer(mode, image.size, pixels, "raw", mode, 0, 1)


def _decode_scaled(parts: Parts) -> "Image":
    """Return the pixels of a picture for a message, in RGB or RGBA."""
    image = _decode(parts, (_REDUCED_SIDE, 1))
    return _in_rgb(_scaled(image, TRANSPARENT_SIDE if _is_transparent(image) else PICTURE_SIDE))


def _scaled(image: "Image", side: int) -> "Image":
    """Return the picture with the same proportions, at most `side` pixels a side; not scaled if it is not larger."""
    longer = max(image.size)
    if longer <= side:
        return _resizable(image)
    width, height = image.size
    scaled = max(1, round(width * side / longer)), max(1, round(height * side / longer))
    return _resized(image, scaled, (0, 0, width, height))


def _resized(image: "Image", size: tuple[int, int], box: tuple[float, float, float, float]) -> "Image":
    """Return a part of a picture, scaled to a size in strips, so that no second picture of that size is in memory."""
    from PIL import Image

    left, upper, right, lower = box
    scale = (lower - upper) / size[1]
    margin = math.ceil(_BICUBIC_SUPPORT * max(scale, 1)) + 1  # the rows that influence those beside them
    rows = max(1, int(_STRIP_PIXELS / (image.width * scale)))
    resized = None
    for first in range(0, size[1], rows):
        count = min(rows, size[1] - first)
        begin, end = upper + first * scale, upper + (first + count) * scale
        top, bottom = max(0, math.floor(begin) - margin), min(image.height, math.ceil(end) + margin)
        strip = _resizable(image.crop((0, top, image.width, bottom)))
        # For RGBA, `resize` weights each pixel by its opacity.
        strip = strip.resize((size[0], count), Image.Resampling.BICUBIC, (left, begin - top, right, end - top))
        resized = resized or Image.new(strip.mode, size)
        resized.paste(strip, (0, first))
    assert resized
    return resized


def _picture(image: "Image") -> Picture:
    """Return a picture of at most PICTURE_BYTES, of lower quality or smaller if necessary."""
    for quality in _QUALITIES:
        content = _encode(image, quality)
        if len(content) <= PICTURE_BYTES:
            return Picture(content, _thumbnail(image), *image.size)
    return _picture(image.reduce(2))


def _thumbnail(image: "Image") -> bytes:
    return _encode(_scaled(image, THUMBNAIL_SIDE))


def _crop(image: "Image", shape: Shape, orientation: int) -> "Image":
    """Return the center of the picture, which has the shape when it is upright, in RGB or RGBA."""
    is_sideways = orientation in _SIDEWAYS
    size = shape.within(*(image.size[::-1] if is_sideways else image.size))
    size = size[::-1] if is_sideways else size
    scale = min(image.width / size[0], image.height / size[1])
    left, upper = (image.width - size[0] * scale) / 2, (image.height - size[1] * scale) / 2
    box = (left, upper, min(left + size[0] * scale, image.width), min(upper + size[1] * scale, image.height))
    return _in_rgb(_resized(image, size, box))


def _resizable(image: "Image") -> "Image":
    """Return the picture in a mode that can be resized well: without palette, single bits or 16-bit grey."""
    from PIL import Image

    if image.mode == "I;16":
        return Image.frombytes("L", image.size, image.tobytes()[1::2])  # the high bytes
    if "transparency" in image.info or image.mode == "LA":
        return image.convert("RGBA")
    target = {"1": "L", "P": "RGB"}.get(image.mode)
    return image.convert(target) if target else image


def _is_transparent(image: "Image") -> bool:
    """Return whether pixels may not be opaque; screenshots often have an alpha channel in which all are."""
    if image.mode == "RGBA":  # in strips, so that no channel of the whole picture is in memory
        rows = max(1, _STRIP_PIXELS // image.width)
        strips = (
            image.crop((0, top, image.width, min(top + rows, image.height))) for top in range(0, image.height, rows)
        )
        return any(strip.getchannel("A").getextrema() != (255, 255) for strip in strips)
    return image.mode in ("LA", "PA") or "transparency" in image.info


def _in_rgb(image: "Image") -> "Image":
    """Return the picture in a mode that WebP supports."""
    mode = "RGBA" if _is_transparent(image) else "RGB"
    return image if image.mode == mode else image.convert(mode)


def _upright(image: "Image", orientation: int) -> "Image":
    from PIL.Image import Transpose

    transpose = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }.get(orientation)
    return image if transpose is None else image.transpose(transpose)


def _encode(image: "Image", quality: int = _QUALITIES[0]) -> bytes:
    output = io.BytesIO()
    image.info.clear()
    image.save(output, "WEBP", quality=quality)
    return output.getvalue()
