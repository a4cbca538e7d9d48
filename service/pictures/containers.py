"""Picture files taken apart before a decoder sees them: what it needs, and what else is obeyed.

A decoder would read every one of a million comments, and unpack every one of a thousand colour profiles.
"""

import re
import struct
import zlib
from typing import NamedTuple

from service.errors import ImageUnreadable, UnsupportedMediaType

MOST = 16_000_000  # pixels
MOST_REDUCED = 50_000_000  # pixels of a JPEG that is decoded smaller than it is; one of several scans cannot be
SCANS = 100  # of a JPEG: each costs a pass over all its pixels, and a few bytes
PIECES = 20_000  # segments or chunks of a file

_MAGIC = {"JPEG": b"\xff\xd8\xff", "PNG": b"\x89PNG\r\n\x1a\n", "WEBP": b"RIFF"}
_MARKER = re.compile(rb"\xff([^\x00\xd0-\xd7\xff])")  # of a JPEG; fill bytes, escaped bytes and restarts are none
_TEM, _SOI, _EOI, _SOS, _APP1 = 0x01, 0xD8, 0xD9, 0xDA, 0xE1
_DECODED = {*range(0xC0, 0xD0), _SOS, 0xDB, 0xDC, 0xDD, 0xE0, 0xEE}  # what a decoder of JPEG needs
_ORIENTATION = 0x0112  # Exif


class Parts(NamedTuple):
    """A file taken apart: what the decoder needs, and what else is obeyed."""

    kind: str  # JPEG, PNG or WEBP
    bare: bytes
    exif: bytes = b""
    most: int = MOST  # pixels


def recognise(raw: bytes) -> str:
    """The kind of picture that a file's content, not its name, says it is. Raises UnsupportedMediaType."""
    for kind, magic in _MAGIC.items():
        if raw.startswith(magic) and (kind != "WEBP" or raw[8:12] == b"WEBP"):
            return kind
    raise UnsupportedMediaType("Expected a JPEG, PNG or WebP picture.")


def take_apart(raw: bytes) -> Parts:
    """A file as its parts. Raises UnsupportedMediaType for another kind of file, ImageUnreadable for a damaged one."""
    kind = recognise(raw)
    return {"JPEG": _take_jpeg_apart, "PNG": _take_png_apart, "WEBP": _take_webp_apart}[kind](raw)


def _take_jpeg_apart(raw: bytes) -> Parts:
    """The first picture of a JPEG: telephones put others behind it (ITU-T T.81, annex B)."""
    kept, exif = [raw[:2]], b""
    scans, at = 0, 2
    for _ in range(PIECES):
        marker = _MARKER.search(raw, at)
        if marker is None:
            raise ImageUnreadable
        code, at = marker[1][0], marker.end()
        if code == _EOI:
            kept.append(raw[marker.start() : at])
            return Parts("JPEG", b"".join(kept), exif, MOST_REDUCED if scans == 1 else MOST)
        if code in (_TEM, _SOI):
            continue
        end = at + int.from_bytes(raw[at : at + 2])
        content = raw[at + 2 : end]
        if code == _SOS:
            scans += 1
            following = _MARKER.search(raw, end)
            end = following.start() if following else len(raw)
        if code in _DECODED:
            kept.append(raw[marker.start() : end])
        elif code == _APP1 and content.startswith(b"Exif\0\0"):
            exif = exif or content
        if scans > SCANS:
            break
        at = end
    raise ImageUnreadable("The picture is made of too many parts.")


def _take_png_apart(raw: bytes) -> Parts:
    """The still picture of a PNG, whose end must be there."""
    kept, exif = [raw[:8]], b""
    at = 8
    for _ in range(PIECES):
        kind, end = raw[at + 4 : at + 8], at + 12 + int.from_bytes(raw[at : at + 4])
        if end > len(raw):
            raise ImageUnreadable
        if kind in (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"):
            if zlib.crc32(raw[at + 4 : end - 4]) != int.from_bytes(raw[end - 4 : end]):
                raise ImageUnreadable
            kept.append(raw[at:end])
        elif kind == b"eXIf":
            exif = exif or raw[at + 8 : end - 4]
        if kind == b"IEND":
            return Parts("PNG", b"".join(kept), exif)
        at = end
    raise ImageUnreadable("The picture is made of too many parts.")


def _take_webp_apart(raw: bytes) -> Parts:
    return Parts("WEBP", raw, webp_chunks(raw).get(b"EXIF", b""))


def webp_chunks(raw: bytes) -> dict[bytes, bytes]:
    """The chunks of a WebP, the first of each kind; one that ends before its time is damaged (RFC 9649)."""
    chunks: dict[bytes, bytes] = {}
    at, end = 12, 8 + int.from_bytes(raw[4:8], "little")
    for _ in range(PIECES):
        if at >= end:
            return chunks
        kind, size = raw[at : at + 4], int.from_bytes(raw[at + 4 : at + 8], "little")
        content = raw[at + 8 : at + 8 + size]
        at += 8 + size + size % 2
        if at > min(end, len(raw)):
            raise ImageUnreadable
        chunks.setdefault(kind, content)
    raise ImageUnreadable("The picture is made of too many parts.")


def orientation_of(exif: bytes) -> int:
    """How the camera was held, 1 to 8; 1, upright, where the file does not say it readably.

    Read here, as Pillow would fetch whatever the other entries point to, however often and however large.
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
