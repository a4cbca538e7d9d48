"""A maker of pictures: sound ones, odd ones, and files that only look like some."""

import functools
import io
import random
import struct
import zlib
from collections.abc import Callable, Iterable
from typing import Any

from PIL import Image, ImageCms

RED, GREEN, BLUE, WHITE = (220, 20, 20), (20, 160, 20), (20, 20, 220), (255, 255, 255)
CORNERS = (RED, GREEN, BLUE, WHITE)  # of `quarters`: top left, top right, bottom left, bottom right
SIGNATURE = b"\x89PNG\r\n\x1a\n"
SECRET = b"51.4934 N 0.0098 W"  # where a picture was taken

Colour = tuple[int, ...]


def save(image: Image.Image, kind: str, **options: Any) -> bytes:
    """A picture as a file."""
    output = io.BytesIO()
    image.save(output, kind, **options)
    return output.getvalue()


def quarters(size: int = 64, mode: str = "RGB") -> Image.Image:
    """Four coloured quarters, which tell where up is."""
    image = Image.new("RGB", (size, size))
    for number, colour in enumerate(CORNERS):
        left, top = (number % 2) * size // 2, (number // 2) * size // 2
        image.paste(colour, (left, top, left + size // 2, top + size // 2))
    return image.convert(mode)


def plain(width: int = 8, height: int = 8, colour: Any = RED, mode: str = "RGB") -> Image.Image:
    return Image.new(mode, (width, height), colour)


def noise(width: int, height: int) -> Image.Image:
    """A picture that no compression makes small."""
    return Image.frombytes("RGB", (width, height), random.Random(7).randbytes(width * height * 3))


def look(raw: bytes) -> Image.Image:
    """An avatar as a browser shows it."""
    return Image.open(io.BytesIO(raw)).convert("RGBA")


def is_like(found: Any, wanted: Colour, within: int = 24) -> bool:
    """Whether two colours look the same; compression changes them a little."""
    return all(abs(one - other) <= within for one, other in zip(found, wanted, strict=False))


def corners(raw: bytes) -> list[Colour]:
    """The colours of an avatar's four quarters, by the nearest of CORNERS."""
    image = look(raw)
    places = [(x * image.width // 4, y * image.height // 4) for y in (1, 3) for x in (1, 3)]
    found: list[Any] = [image.getpixel(place) for place in places]
    return [next((colour for colour in CORNERS if is_like(each, colour, 60)), each) for each in found]


def webp_chunks(raw: bytes) -> list[bytes]:
    """The kinds of a WebP's chunks, in their order."""
    found, at = [], 12
    while at < len(raw):
        found.append(raw[at : at + 4])
        size = int.from_bytes(raw[at + 4 : at + 8], "little")
        at += 8 + size + size % 2
    return found


# PNG.


def chunk(kind: bytes, content: bytes = b"") -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(
    width: int,
    height: int,
    depth: int,
    colour: int,
    rows: bytes,
    *others: bytes,
    interlaced: bool = False,
    level: int = 6,
) -> bytes:
    """A PNG from its rows, each with its filter byte; `others` are chunks between head and data."""
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    data = zlib.compress(rows, level)
    return SIGNATURE + chunk(b"IHDR", head) + b"".join(others) + chunk(b"IDAT", data) + chunk(b"IEND")


def rows(width: int, height: int, pixel: bytes) -> bytes:
    """Rows of one pixel over and over."""
    return (b"\0" + pixel * width) * height


def with_chunks(raw: bytes, *others: bytes) -> bytes:
    """A PNG with more chunks behind its head."""
    return raw[:33] + b"".join(others) + raw[33:]


def apng(first: Colour, second: Colour, size: int = 8) -> bytes:
    frames = [plain(size, size, first), plain(size, size, second)]
    return save(frames[0], "PNG", save_all=True, append_images=frames[1:], duration=100)


# JPEG.


def segment(code: int, content: bytes = b"") -> bytes:
    return struct.pack(">BBH", 0xFF, code, len(content) + 2) + content


def with_segments(raw: bytes, *others: bytes) -> bytes:
    """A JPEG with more segments at its beginning."""
    return raw[:2] + b"".join(others) + raw[2:]


def jpeg(image: Image.Image | None = None, **options: Any) -> bytes:
    return save(image or plain(), "JPEG", **options)


def claiming(width: int, height: int, **options: Any) -> bytes:
    """A JPEG whose head tells of another size than its data have."""
    raw = jpeg(**options)
    at = raw.index(b"\xff\xc2" if options.get("progressive") else b"\xff\xc0")
    return raw[: at + 5] + struct.pack(">HH", height, width) + raw[at + 9 :]


def scans(raw: bytes, number: int) -> bytes:
    """A progressive JPEG that repeats its last scan until it has a number of them."""
    last = raw[raw.rindex(b"\xff\xda") : -2]
    return raw[:-2] + last * (number - raw.count(b"\xff\xda")) + raw[-2:]


def ycck(colour: Colour = (10, 20, 30, 40)) -> bytes:
    """A CMYK JPEG of which Adobe's marker says that it is YCCK."""
    raw = jpeg(plain(colour=colour, mode="CMYK"))
    at = raw.index(b"Adobe") + 11
    return raw[:at] + b"\2" + raw[at + 1 :]


def exif(orientation: int, order: str = "<", *, kind: int = 3, more: bytes = b"") -> bytes:
    """Exif that tells an orientation and carries something else."""
    begin = b"II*\0" if order == "<" else b"MM\0*"
    return begin + struct.pack(f"{order}IHHHIHHI", 8, 1, 0x0112, kind, 1, orientation, 0, 0) + more


def oriented(kind: str, orientation: int, order: str = "<", **options: Any) -> bytes:
    """A picture with an orientation, as a camera stores it."""
    given = exif(orientation, order, more=SECRET)
    return save(quarters(), kind, exif=given if kind != "JPEG" else b"Exif\0\0" + given, **options)


# Colour profiles.


@functools.cache
def srgb() -> bytes:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


@functools.cache
def swapped() -> bytes:
    """A profile in which red means blue."""
    return srgb().replace(b"rXYZ", b"xXYZ", 1).replace(b"bXYZ", b"rXYZ", 1).replace(b"xXYZ", b"bXYZ", 1)


def linear_grey() -> bytes:
    """A profile in which half of the number is half of the light; a screen shows that brighter (ICC.1)."""
    white = struct.pack(">iii", 0xF6D6, 0x10000, 0xD32D)
    tags = {b"wtpt": b"XYZ \0\0\0\0" + white, b"kTRC": b"curv\0\0\0\0" + struct.pack(">I", 0)}
    table, content, at = struct.pack(">I", len(tags)), b"", 128 + 4 + 12 * len(tags)
    for kind, it in tags.items():
        table += kind + struct.pack(">II", at + len(content), len(it))
        content += it
    head = struct.pack(">I4sI4s4s4s", at + len(content), b"none", 0x02100000, b"mntr", b"GRAY", b"XYZ ")
    head += bytes(12) + b"acsp" + bytes(28) + white
    return head.ljust(128, b"\0") + table + content


# WebP.


def webp(image: Image.Image | None = None, **options: Any) -> bytes:
    return save(image or plain(), "WEBP", **options)


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"".join(kind + struct.pack("<I", len(it)) + it + b"\0" * (len(it) % 2) for kind, it in chunks)
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def lossless_head(width: int, height: int) -> bytes:
    """A WebP of which only the head is there."""
    return riff((b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + b"\0" * 8))


# The corpus: what a file is, how it is made, and how an upload of it is answered.

Case = tuple[str, Callable[[], bytes], int]


def _sound() -> Iterable[Case]:
    for kind in ("JPEG", "PNG", "WEBP"):
        yield f"a {kind}", lambda kind=kind: save(quarters(), kind), 200
        yield f"1×1 {kind}", lambda kind=kind: save(plain(1, 1), kind), 200
        yield f"1×10000 {kind}", lambda kind=kind: save(plain(1, 10_000), kind), 200
        yield f"10000×1 {kind}", lambda kind=kind: save(plain(10_000, 1), kind), 200
        yield f"2×3 {kind}", lambda kind=kind: save(plain(2, 3), kind), 200
        yield f"{kind} with broken Exif", lambda kind=kind: save(plain(), kind, exif=b"Exif\0\0II*\0\xff\xff"), 200
        yield f"{kind} with a broken profile", lambda kind=kind: save(plain(), kind, icc_profile=b"acsp" * 99), 200
        yield f"{kind} and then something else", lambda kind=kind: save(plain(), kind) + b"<script>" * 9, 200
    for depth, pixel in ((1, b"\xaa"), (2, b"\x1b"), (4, b"\x4f"), (8, b"\x90"), (16, b"\x90\x10")):
        width, row = 8, b"\0" + (pixel * 8)[:depth]
        yield f"{depth}-bit grey PNG", lambda w=width, r=row, d=depth: png(w, 4, d, 0, r * 4), 200
    for colour, name, size in ((2, "RGB", 3), (4, "grey and alpha", 2), (6, "RGBA", 4)):
        for depth in (8, 16):
            pixel = b"\x90\x50\x20\xc0"[:size] if depth == 8 else b"\x90\x01\x50\x02\x20\x03\xc0\x04"[: 2 * size]
            yield f"{depth}-bit {name} PNG", lambda d=depth, c=colour, p=pixel: png(8, 8, d, c, rows(8, 8, p)), 200
    palette, clear = chunk(b"PLTE", bytes(RED + GREEN)), chunk(b"tRNS", b"\0")
    yield "palette PNG", lambda: png(8, 8, 8, 3, rows(8, 8, b"\1"), palette), 200
    yield "1-bit palette PNG", lambda: png(8, 8, 1, 3, rows(1, 8, b"\x0f"), palette), 200
    yield "palette PNG with transparency", lambda: png(8, 8, 8, 3, rows(8, 8, b"\0"), palette, clear), 200
    yield "grey PNG with a transparent tone", lambda: png(8, 8, 8, 0, rows(8, 8, b"\7"), chunk(b"tRNS", b"\0\7")), 200
    yield "1-bit PNG with a transparent tone", lambda: png(8, 8, 1, 0, b"\0\0" * 8, chunk(b"tRNS", b"\0\0")), 200
    yield "16-bit PNG with a transparent tone", lambda: png(8, 8, 16, 0, b"\0" * 136, chunk(b"tRNS", b"\0\7")), 200
    yield "RGB PNG with a transparent colour", lambda: save(plain(), "PNG", transparency=RED), 200
    yield "PNG of which rows are missing", lambda: png(8, 8, 8, 2, rows(8, 7, b"abc")), 200
    yield "interlaced PNG", lambda: png(1, 1, 8, 2, b"\0\1\2\3", interlaced=True), 200
    yield "APNG", lambda: apng(RED, BLUE), 200
    yield "PNG with text", lambda: with_chunks(save(plain(), "PNG"), chunk(b"tEXt", b"Comment\0" + SECRET)), 200
    yield "PNG with a bomb of text", lambda: with_chunks(save(plain(), "PNG"), bomb(b"zTXt", b"a\0\0")), 200
    yield (
        "PNG with a bomb of international text",
        lambda: with_chunks(save(plain(), "PNG"), bomb(b"iTXt", b"a\0\1\0\0\0")),
        200,
    )
    yield "PNG with a bomb of a profile", lambda: with_chunks(save(plain(), "PNG"), bomb(b"iCCP", b"a\0\0")), 200
    yield "PNG with a thousand bombs", lambda: with_chunks(save(plain(), "PNG"), bomb(b"iCCP", b"a\0\0") * 300), 200
    yield "grey JPEG", lambda: jpeg(plain(mode="L", colour=90)), 200
    yield "CMYK JPEG", lambda: jpeg(plain(mode="CMYK", colour=(10, 20, 30, 40))), 200
    yield "YCCK JPEG", ycck, 200
    yield "progressive JPEG", lambda: jpeg(quarters(), progressive=True), 200
    yield "progressive JPEG of 100 scans", lambda: scans(jpeg(progressive=True), 100), 200
    yield "JPEG with restart markers", lambda: jpeg(noise(64, 64), restart_marker_blocks=1), 200
    yield "JPEG with fill bytes", lambda: with_segments(jpeg(), b"\xff" * 99), 200
    yield "JPEG with a comment that holds markers", lambda: with_segments(jpeg(), segment(0xFE, b"\xff\xda" * 999)), 200
    yield "MPO", lambda: save(quarters(), "MPO", save_all=True, append_images=[plain(64, 64)]), 200
    yield "MPO whose index is garbage", lambda: with_segments(jpeg(), segment(0xE2, b"MPF\0II*\0" + b"\xff" * 40)), 200
    yield (
        "JPEG with a profile of which half is missing",
        lambda: with_segments(jpeg(), segment(0xE2, b"ICC_PROFILE\0\1\2" + swapped())),
        200,
    )
    yield "lossless WebP", lambda: webp(quarters(), lossless=True), 200
    yield "transparent WebP", lambda: webp(plain(mode="RGBA", colour=(200, 0, 0, 90))), 200
    yield "moving WebP", lambda: webp(plain(), save_all=True, append_images=[plain(colour=BLUE)]), 200


def bomb(kind: bytes, begin: bytes) -> bytes:
    """A chunk of PNG that unpacks to a thousand times its size."""
    return chunk(kind, begin + zlib.compress(bytes(2**23), 9))


def _refused() -> Iterable[Case]:
    for kind in ("GIF", "BMP", "TIFF", "ICO", "JPEG2000", "TGA", "PPM"):
        yield f"a {kind}", lambda kind=kind: save(plain(16, 16), kind), 415
    for name, raw in {
        "AVIF": b"\0\0\0\x20ftypavif\0\0\0\0avifmif1miafMA1B",
        "HEIC": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
        "SVG": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
        "HTML": b"<!doctype html><script>alert(1)</script>",
        "PDF": b"%PDF-1.7\n",
        "text": b"hello",
        "one byte": b"\xff",
        "a sound file": b"RIFF\4\0\0\0WAVE",
        "RIFF and no more": b"RIFF\0\0\0\0",
        "PNG behind a blank": b" " + SIGNATURE,
        "PNG with its line ends changed": b"\x89PNG\n\x1a\n",
        "zeros": bytes(64),
    }.items():
        yield name, lambda raw=raw: raw, 415
    for kind in ("JPEG", "PNG", "WEBP"):
        for percent in (20, 50, 90, 99):
            yield f"{percent} % of a {kind}", lambda k=kind, p=percent: _part(save(noise(40, 40), k), p), 400
        yield f"{kind} without its last byte", lambda kind=kind: save(noise(41, 41), kind)[:-1], 400
    yield "the beginning of a JPEG", lambda: b"\xff\xd8\xff", 400
    yield "JPEG without a picture", lambda: b"\xff\xd8\xff\xd9", 400
    yield "JPEG without scans", lambda: b"\xff\xd8" + segment(0xC0, b"\x08\0\1\0\1\1\1\x11\0") + b"\xff\xd9", 400
    yield "JPEG of no height", lambda: claiming(8, 0), 400
    yield "JPEG of 51 megapixels", lambda: claiming(10_000, 5_100), 400
    yield "JPEG that is too wide", lambda: claiming(10_001, 1), 400
    yield "progressive JPEG of 17 megapixels", lambda: claiming(10_000, 1_700, progressive=True), 400
    yield "progressive JPEG of 101 scans", lambda: scans(jpeg(progressive=True), 101), 400
    yield "JPEG of a million comments", lambda: with_segments(jpeg(), segment(0xFE) * 1_000_000), 400
    yield "JPEG of five million fill bytes and no end", lambda: b"\xff\xd8" + b"\xff" * 5_000_000, 400
    yield (
        "JPEG of half a million pieces of Exif",
        lambda: with_segments(jpeg(), segment(0xE1, b"Exif\0\0II") * 400_000),
        400,
    )
    yield "the beginning of a PNG", lambda: SIGNATURE, 400
    yield "PNG without data", lambda: SIGNATURE + save(plain(), "PNG")[8:33] + chunk(b"IEND"), 400
    yield "PNG without a head", lambda: SIGNATURE + chunk(b"IEND"), 400
    yield "PNG of no width", lambda: png(0, 8, 8, 2, b"\0" * 8), 400
    yield "PNG of an unknown kind", lambda: png(8, 8, 3, 7, b"\0" * 99), 400
    yield "PNG whose chunk ends behind the file", lambda: SIGNATURE + b"\xff\xff\xff\xffIHDR", 400
    yield "PNG with a wrong check sum", lambda: png(8, 8, 8, 2, rows(8, 8, b"abc"))[:-13] + b"\0" + chunk(b"IEND"), 400
    yield "palette PNG without its palette", lambda: png(8, 8, 8, 3, rows(8, 8, b"\0") + b"\0")[:60], 400
    yield "PNG of 17 megapixels", lambda: png(4_250, 4_000, 8, 2, b""), 400
    yield "PNG of 16 megapixels and a column", lambda: png(4_001, 4_000, 8, 2, b""), 400
    yield "PNG that is too tall", lambda: png(1, 10_001, 8, 0, b""), 400
    yield "PNG of four billion rows", lambda: png(1, 2**32 - 1, 8, 0, b""), 400
    yield "PNG of a million chunks", lambda: with_chunks(save(plain(), "PNG"), chunk(b"abCd") * 400_000), 400
    yield "RIFF, WEBP and no more", lambda: b"RIFF\4\0\0\0WEBP", 400
    yield "WebP of no size", lambda: b"RIFF\0\0\0\0WEBP", 400
    yield "WebP of 268 megapixels", lambda: lossless_head(16_384, 16_384), 400
    yield "WebP of 17 megapixels", lambda: lossless_head(4_250, 4_000), 400
    yield "WebP that is too wide", lambda: webp(plain(10_001, 1)), 400
    yield "WebP of garbage", lambda: riff((b"VP8 ", random.Random(1).randbytes(999))), 400
    yield "WebP without a picture", lambda: riff((b"VP8X", bytes(10)), (b"EXIF", exif(6))), 400
    yield "WebP of a million chunks", lambda: riff(*[(b"junk", b"")] * 500_000), 400


def _part(raw: bytes, percent: int) -> bytes:
    return raw[: len(raw) * percent // 100]


CORPUS: list[Case] = [*_sound(), *_refused()]
