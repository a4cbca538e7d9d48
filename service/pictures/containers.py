"""Parses the containers of picture files, and keeps the parts that a decoder needs, and the Exif data.

Other parts are not passed to decoders, which would read a million comments, or unpack a thousand colour profiles.
"""

import re
import struct
import zlib
from typing import NamedTuple

from service.errors import ImageUnreadable, UnsupportedMediaType

MAX_PIXELS = 12_500_000  # a photo of a usual telephone has 12,192,768
MAX_PIXELS_REDUCED = 50_000_000  # of a JPEG that is decoded at a reduced size, which needs a single scan
MAX_SCANS = 100  # of a JPEG: a scan of a few bytes costs a pass over all pixels
MAX_PARTS = 20_000  # segments or chunks of a file

_MAGIC = {"JPEG": b"\xff\xd8\xff", "PNG": b"\x89PNG\r\n\x1a\n", "WEBP": b"RIFF"}
_MARKER = re.compile(rb"\xff([^\x00\xd0-\xd7\xff])")  # of a JPEG, without fill bytes, escaped bytes and restarts
_TEM, _SOI, _EOI, _SOS, _APP1 = 0x01, 0xD8, 0xD9, 0xDA, 0xE1
_DECODED = {*range(0xC0, 0xD0), _SOS, 0xDB, 0xDC, 0xDD, 0xE0, 0xEE}  # the segments that a JPEG decoder needs
_ORIENTATION = 0x0112  # Exif


class Parts(NamedTuple):
    """The parts of a picture file that are used."""

    format: str  # JPEG, PNG or WEBP
    stripped: bytes  # the file with the parts that the decoder needs
    exif: bytes = b""
    max_pixels: int = MAX_PIXELS


def detect_format(raw: bytes) -> str:
    """Return the format of a picture by its content: JPEG, PNG or WEBP. Raises UnsupportedMediaType."""
    for format, magic in _MAGIC.items():
        if raw.startswith(magic) and (format != "WEBP" or raw[8:12] == b"WEBP"):
            return format
    raise UnsupportedMediaType("Expected a JPEG, PNG or WebP picture.")


def parse(raw: bytes) -> Parts:
    """Return the parts of a file.

    Raises UnsupportedMediaType for other formats, and ImageUnreadable for a damaged file.
    """
    parts = {"JPEG": _parse_jpeg, "PNG": _parse_png, "WEBP": _parse_webp}[detect_format(raw)](raw)
    return parts._replace(stripped=raw) if len(parts.stripped) == len(raw) else parts  # no copy of the same file


def _parse_jpeg(raw: bytes) -> Parts:
    """Return the parts of the first picture of a JPEG; phones append others (ITU-T T.81, annex B)."""
    needed, exif = [raw[:2]], b""
    scans, at = 0, 2
    for _ in range(MAX_PARTS):
        marker = _MARKER.search(raw, at)
        if marker is None:
            raise ImageUnreadable
        code, at = marker[1][0], marker.end()
        if code == _EOI:
            needed.append(raw[marker.start() : at])
            return Parts("JPEG", b"".join(needed), exif, MAX_PIXELS_REDUCED if scans == 1 else MAX_PIXELS)
        if code in (_TEM, _SOI):
            continue
        end = at + int.from_bytes(raw[at : at + 2])
        content = raw[at + 2 : end]
        if code == _SOS:
            scans += 1
            following = _MARKER.search(raw, end)
            end = following.start() if following else len(raw)
        if code in _DECODED:
            needed.append(raw[marker.start() : end])
        elif code == _APP1 and content.startswith(b"Exif\0\0"):
            exif = exif or content
        if scans > MAX_SCANS:
            break
        at = end
    raise ImageUnreadable("The picture has too many parts.")


def _parse_png(raw: bytes) -> Parts:
    """Return the parts of the still picture of a PNG, which must be complete."""
    needed, exif = [raw[:8]], b""
    at = 8
    for _ in range(MAX_PARTS):
        kind, end = raw[at + 4 : at + 8], at + 12 + int.from_bytes(raw[at : at + 4])
        if end > len(raw):
            raise ImageUnreadable
        if kind in (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"):
            if zlib.crc32(raw[at + 4 : end - 4]) != int.from_bytes(raw[end - 4 : end]):
                raise ImageUnreadable
            needed.append(raw[at:end])
        elif kind == b"eXIf":
            exif = exif or raw[at + 8 : end - 4]
        if kind == b"IEND":
            return Parts("PNG", b"".join(needed), exif)
        at = end
    raise ImageUnreadable("The picture has too many parts.")


def _parse_webp(raw: bytes) -> Parts:
    return Parts("WEBP", raw, webp_chunks(raw).get(b"EXIF", b""))


def webp_chunks(raw: bytes) -> dict[bytes, bytes]:
    """Return the first chunk of each type in a WebP (RFC 9649). Raises ImageUnreadable for a truncated file."""
    chunks: dict[bytes, bytes] = {}
    at, end = 12, 8 + int.from_bytes(raw[4:8], "little")
    for _ in range(MAX_PARTS):
        if at >= end:
            return chunks
        kind, size = raw[at : at + 4], int.from_bytes(raw[at + 4 : at + 8], "little")
        content = raw[at + 8 : at + 8 + size]
        at += 8 + size + size % 2
        if at > min(end, len(raw)):
            raise ImageUnreadable
        chunks.setdefault(kind, content)
    raise ImageUnreadable("The picture has too many parts.")


def read_orientation(exif: bytes) -> int:
    """Return the Exif orientation, 1 to 8; 1 (upright) if it is missing or malformed.

    Not read with Pillow, which would load the values of all other entries, whatever their number and size.
    """
    exif = exif.removeprefix(b"Exif\0\0")
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4], "")
    try:
        (at,) = struct.unpack_from(f"{order}I", exif, 4)
        (count,) = struct.unpack_from(f"{order}H", exif, at)
        for index in range(count if order else 0):
            tag, kind, _, value = struct.unpack_from(f"{order}HHIH", exif, at + 2 + 12 * index)
            if tag == _ORIENTATION and kind == 3:
                return int(value)
    except struct.error:
        pass
    return 1
