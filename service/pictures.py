"""Avatars: picture bytes of strangers in, small and safe WebP bytes out; the only importer of Pillow.

Nothing of the original file survives but its pixels: what it says of places, cameras and authors is dropped, and what
it says of orientation and colour is obeyed (contract, section 7).
"""

import io
import threading
from typing import TYPE_CHECKING, Any

from service.errors import Busy, ImageTooLarge, ImageUnreadable, UnsupportedMediaType

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 512  # pixels of an avatar, at most
LONGEST = 10_000  # pixels a side
MOST = {"JPEG": 50_000_000, "PNG": 16_000_000, "WEBP": 16_000_000}  # pixels; JPEG is decoded reduced
SCANS = 100  # of a JPEG: each costs a pass over all its pixels, and a few bytes
CONTENT_TYPE = "image/webp"

_at_once = threading.BoundedSemaphore(2)
_MAGIC = {"JPEG": b"\xff\xd8\xff", "PNG": b"\x89PNG\r\n\x1a\n", "WEBP": b"RIFF"}
_ORIENTATION = 0x0112  # Exif


def make_avatar(raw: bytes) -> bytes:
    """A picture as avatar: upright, centre-cropped to a square, at most 512 pixels a side, never enlarged, WebP.

    Takes JPEG, PNG and WebP, of moving pictures the first. Raises UnsupportedMediaType, ImageUnreadable,
    ImageTooLarge, or Busy while two others are being decoded.
    """
    kind = recognise(raw)
    if not _at_once.acquire(blocking=False):
        raise Busy
    try:
        return _encode(_square(_decode(raw, kind)))
    except (ImageUnreadable, ImageTooLarge):
        raise
    except Exception as error:  # whatever a decoder says of a damaged file
        raise ImageUnreadable from error
    finally:
        _at_once.release()


def recognise(raw: bytes) -> str:
    """The kind of picture that a file's content, not its name, says it is. Raises UnsupportedMediaType."""
    for kind, magic in _MAGIC.items():
        if raw.startswith(magic) and (kind != "WEBP" or raw[8:12] == b"WEBP"):
            return kind
    raise UnsupportedMediaType("Expected a JPEG, PNG or WebP picture.")


def is_avatar(raw: bytes) -> bool:
    """Whether bytes are an avatar already, as `make_avatar` makes them."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(raw), formats=("WEBP",)) as image:
            image.load()
            return max(image.size) <= SIDE and not {"exif", "xmp", "icc_profile"} & set(image.info)
    except Exception:
        return False


def _decode(raw: bytes, kind: str) -> "Image":
    """The first frame, its pixels read."""
    from PIL import Image

    formats = ("JPEG", "MPO") if kind == "JPEG" else (kind,)  # many telephones put a second picture behind the first
    image = Image.open(io.BytesIO(raw), formats=formats)
    width, height = image.size
    if max(width, height) > LONGEST or width * height > MOST[kind]:
        raise ImageTooLarge(f"The picture has {width} × {height} pixels, which is too many.")
    if kind == "JPEG":
        if raw.count(b"\xff\xda") > SCANS:
            raise ImageUnreadable
        image.draft(None, (SIDE, SIDE))
    image.load()
    return image


def _square(image: "Image") -> "Image":
    """The middle of the picture, upright, in the colours of the web."""
    from PIL import ImageOps

    orientation, profile = _orientation(image), image.info.get("icc_profile")
    side = min(*image.size, SIDE)
    image = ImageOps.fit(_eight_bits(image), (side, side))
    return _upright(_in_srgb(image, profile), orientation)


def _eight_bits(image: "Image") -> "Image":
    """Modes that can be resized well: no palettes, no single bits, no 16-bit greys."""
    if image.mode.startswith("I"):
        image = image.convert("I").point(lambda value: value / 256).convert("L")
    if image.mode == "CMYK":
        return image
    has_alpha = image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info
    return image.convert("RGBA" if has_alpha else "RGB")


def _in_srgb(image: "Image", profile: bytes | None) -> "Image":
    """Colours as they were meant, without the profile that says so; one that cannot be used is passed over."""
    from PIL import ImageCms

    mode = "RGB" if image.mode == "CMYK" else image.mode
    if profile:
        try:
            meant = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            shown = ImageCms.profileToProfile(image, meant, ImageCms.createProfile("sRGB"), outputMode=mode)
            return shown or image
        except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
            pass
    return image.convert(mode)


def _orientation(image: "Image") -> Any:
    """How the camera was held (Exif); 1, upright, where the file does not say it readably."""
    try:
        return image.getexif().get(_ORIENTATION, 1)
    except Exception:
        return 1


def _upright(image: "Image", orientation: Any) -> "Image":
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
