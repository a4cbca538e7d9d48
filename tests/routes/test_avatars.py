"""Avatars: uploads, stored pictures, and their responses."""

import base64
import dataclasses
import io
import json
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import app
from service import pictures
from service.api import openapi
from service.errors import ApiError
from service.models import Avatar, User
from service.models.avatars import FOLDER
from service.operate import import_export
from service.routes import operations
from service.settings import Settings
from tests.support import pictures as made
from tests.support.avatars import FORM, form, upload
from tests.support.client import Client, Reply
from tests.support.faults import full, read_only
from tests.support.observe import at_once, nothing_changes
from tests.support.paths import ROOT
from tests.support.pictures import BLUE, CORNERS, GREEN, RED, SECRET, WHITE, corners, is_like, look, plain, webp_chunks

pytestmark = pytest.mark.database


LIMIT = 5_242_880
PICTURE = made.save(made.quarters(), "PNG")


def show(client: Client, content: bytes = PICTURE) -> str:
    """Upload a picture; its URL."""
    return str(upload(client, content).data["profile_image"])


def profile_image(client: Client) -> str:
    """Where a user's picture is by now."""
    return str(User.get_by_id(client.user.id).profile_image)


def fetch(client: Client, url: str, **headers: str) -> Reply:
    reply = client.get(f"/{url}", **headers)
    reply.headers = {name.lower(): value for name, value in reply.headers.items()}
    return reply


def avatar_of(raw: bytes) -> Image.Image:
    """The avatar that becomes of a picture."""
    return look(pictures.make_avatar(raw))


def middle(raw: bytes) -> Any:
    image = avatar_of(raw)
    return image.getpixel((image.width // 2, image.height // 2))


# The answers and their order.


def test_the_response_has_the_address_of_the_picture(alice: Client) -> None:
    reply = upload(alice, PICTURE)
    assert (reply.status, set(reply.data)) == (200, {"profile_image"})
    assert profile_image(alice) == reply.data["profile_image"]


def test_the_specified_statuses_are_declared() -> None:
    (operation,) = (each for each in operations() if each.name == "upload_avatar")
    assert operation.all_statuses == {200, 400, 401, 413, 415, 503}


def test_an_upload_without_credentials_is_401(anyone: Client, alice: Client) -> None:
    with nothing_changes():
        assert upload(anyone, PICTURE).error == (401, "missing_credentials")
        assert upload(anyone, bytes(LIMIT + 1)).error[0] == 401


@pytest.mark.parametrize(
    "kind", ["", "application/json", "image/png", "application/x-www-form-urlencoded", "multipart/mixed"]
)
def test_a_body_that_is_not_a_form_is_400(kind: str, alice: Client) -> None:
    with nothing_changes():
        assert alice.post("/users/me/avatar", raw=PICTURE, content_type=kind).error == (400, "invalid_body")


def test_an_empty_file_is_400(alice: Client) -> None:
    with nothing_changes():
        assert upload(alice, b"").error == (400, "file_missing")
        assert upload(alice, b"", name="", kind="application/octet-stream").error == (400, "file_missing")


def test_the_size_of_the_file_is_checked_before_its_type(alice: Client) -> None:
    with nothing_changes():
        assert upload(alice, bytes(LIMIT)).error == (415, "unsupported_media_type")
        assert upload(alice, bytes(LIMIT + 1)).error == (413, "file_too_large")
        assert upload(alice, made.SIGNATURE + bytes(LIMIT)).error == (413, "file_too_large")
        assert upload(alice, bytes(6 * 2**20)).error == (413, "body_too_large")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_picture_of_exactly_five_mebibytes_is_accepted(kind: str, alice: Client) -> None:
    raw = made.save(plain(), kind)
    assert upload(alice, raw + bytes(LIMIT - len(raw))).status == 200
    assert upload(alice, raw + bytes(LIMIT - len(raw) + 1)).status == 413


def test_the_type_is_detected_from_the_content(alice: Client) -> None:
    with nothing_changes():
        gif = made.save(plain(), "GIF")
        assert upload(alice, gif, name="me.png", kind="image/png").error == (415, "unsupported_media_type")
    assert upload(alice, made.jpeg(), name="../../me.gif", kind="text/html").status == 200
    assert upload(alice, PICTURE, name="", kind="application/pdf").status == 200


CASES = {name: (make, status) for name, make, status in made.CORPUS}
CODES = {400: {"image_unreadable", "image_too_large"}, 415: {"unsupported_media_type"}}


@pytest.mark.parametrize(("make", "status"), CASES.values(), ids=CASES)
def test_every_file_has_its_response(make: Callable[[], bytes], status: int) -> None:
    raw = make()
    if status == 200:
        avatar = pictures.make_avatar(raw)
        assert set(webp_chunks(avatar)) <= {b"VP8 ", b"VP8X", b"ALPH"}
        assert pictures.is_avatar(avatar)
        assert avatar_of(avatar).size == look(avatar).size
    else:
        with pytest.raises(ApiError) as refused:
            pictures.make_avatar(raw)
        assert refused.value.status == status
        assert refused.value.code in CODES[status]


def test_a_rejected_file_does_not_change_the_picture(alice: Client) -> None:
    url = show(alice)
    with nothing_changes():
        assert upload(alice, PICTURE[:-1]).error == (400, "image_unreadable")
        assert upload(alice, made.png(4_001, 4_000, 8, 2, b"")).error == (400, "image_too_large")
        assert upload(alice, b"GIF89a").error == (415, "unsupported_media_type")
    assert fetch(alice, url).status == 200


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_file_that_is_truncated_anywhere_is_unreadable(kind: str) -> None:
    raw = made.save(made.noise(12, 12), kind)
    for length in range(12, len(raw)):
        with pytest.raises(ApiError) as refused:
            pictures.make_avatar(raw[:length])
        assert refused.value.code == "image_unreadable", length


@pytest.mark.parametrize("kind", ["JPEG", "progressive", "PNG", "WEBP", "lossless", "moving"])
def test_a_damaged_file_is_decoded_or_rejected(kind: str) -> None:
    image = made.noise(24, 24)
    raw = {
        "JPEG": lambda: made.jpeg(image, exif=made.exif(6), icc_profile=made.srgb()),
        "progressive": lambda: made.jpeg(image, progressive=True, icc_profile=made.srgb()),
        "PNG": lambda: made.save(image, "PNG", exif=made.exif(6), icc_profile=made.srgb()),
        "WEBP": lambda: made.webp(image, exif=made.exif(6), icc_profile=made.srgb()),
        "lossless": lambda: made.webp(image, lossless=True),
        "moving": lambda: made.webp(image, save_all=True, append_images=[plain(24, 24)]),
    }[kind]()
    chance = random.Random(kind)
    for _ in range(150):
        damaged = bytearray(raw)
        for _ in range(chance.choice((1, 1, 2, 20))):
            damaged[chance.randrange(len(raw))] = chance.choice((0, 0xFF, chance.randrange(256)))
        try:
            assert pictures.is_avatar(pictures.make_avatar(bytes(damaged)))
        except ApiError as refusal:
            assert refusal.status in (400, 415)


@pytest.mark.parametrize(
    ("raw", "taken"),
    [
        (made.png(4_000, 3_125, 1, 0, made.rows(500, 3_125, b"\0")), True),
        (made.png(10_000, 1_250, 1, 0, made.rows(1_250, 1_250, b"\0")), True),
        (made.png(10_000, 1_251, 1, 0, b""), False),
    ],
)
def test_twelve_and_a_half_megapixels_are_accepted(raw: bytes, taken: bool) -> None:
    if taken:
        assert avatar_of(raw).size == (512, 512)
    else:
        with pytest.raises(ApiError, match="10000 × 1251 pixels; the limits are 12.5 million"):
            pictures.make_avatar(raw)


def test_a_third_concurrent_picture_is_503(alice: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, end = threading.Semaphore(0), threading.Event()
    decode = pictures._decode

    def slowly(*arguments: Any) -> Any:
        begun.release()
        assert end.wait(60)
        return decode(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(pictures, "_decode", slowly)
        others = [threading.Thread(target=pictures.make_avatar, args=(PICTURE,)) for _ in range(2)]
        for other in others:
            other.start()
            assert begun.acquire(timeout=60)
        with nothing_changes():
            third = upload(alice, PICTURE)
            assert third.error == (503, "busy")
            assert int(third.headers["Retry-After"]) > 0
            assert upload(alice, b"GIF89a").error[0] == 415
        end.set()
        for other in others:
            other.join()
    assert upload(alice, PICTURE).status == 200


def test_a_rejected_picture_releases_its_decoder(alice: Client) -> None:
    for _ in range(3):
        assert upload(alice, PICTURE[:-1]).status == 400
    assert upload(alice, PICTURE).status == 200


def test_lack_of_memory_is_503_and_an_internal_error_is_500(
    alice: Client, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    def fail(error: type[Exception]) -> Callable[..., Any]:
        def raising(*_: Any) -> Any:
            raise error

        return raising

    with monkeypatch.context() as patch, nothing_changes():
        patch.setattr("PIL.PngImagePlugin.PngImageFile.load", fail(MemoryError))
        assert upload(alice, PICTURE).error == (503, "busy")
        assert "not enough memory for a picture" in caplog.text
    with monkeypatch.context() as patch, nothing_changes():
        patch.setattr(pictures, "_crop", fail(KeyError))
        alice.may_crash = True
        assert upload(alice, PICTURE).error == (500, "internal_error")
    assert upload(alice, PICTURE).status == 200


def test_the_error_of_the_decoder_is_logged(caplog: Any) -> None:
    caplog.set_level("INFO")
    with pytest.raises(ApiError):
        pictures.make_avatar(made.riff((b"VP8 ", b"garbage!")))
    assert "a picture could not be decoded" in caplog.text


# What becomes of a picture.


@pytest.mark.parametrize(
    ("size", "side"),
    [
        ((600, 600), 512),
        ((513, 512), 512),
        ((512, 512), 512),
        ((511, 700), 511),
        ((700, 3), 3),
        ((1, 1), 1),
        ((2000, 800), 512),
    ],
)
def test_an_avatar_is_square_at_most_512_and_never_enlarged(size: tuple[int, int], side: int) -> None:
    assert avatar_of(made.save(plain(*size), "PNG")).size == (side, side)


def test_a_picture_is_cropped_around_its_centre() -> None:
    image = plain(300, 100)
    image.paste(BLUE, (100, 0, 200, 100))
    avatar = avatar_of(made.save(image, "PNG"))
    assert avatar.size == (100, 100)
    assert all(is_like(avatar.getpixel(place), BLUE) for place in ((5, 5), (50, 50), (94, 94)))


TURNED = {  # what stands in the four corners once a picture is upright
    1: (0, 1, 2, 3),
    2: (1, 0, 3, 2),
    3: (3, 2, 1, 0),
    4: (2, 3, 0, 1),
    5: (0, 2, 1, 3),
    6: (2, 0, 3, 1),
    7: (3, 1, 2, 0),
    8: (1, 3, 0, 2),
}


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("orientation", TURNED)
def test_a_picture_is_rotated_by_its_orientation(orientation: int, order: str, kind: str) -> None:
    avatar = pictures.make_avatar(made.oriented(kind, orientation, order))
    assert corners(avatar) == [CORNERS[corner] for corner in TURNED[orientation]]


@pytest.mark.parametrize(
    "orientation",
    [
        made.exif(0),
        made.exif(9),
        made.exif(6, kind=2),
        made.exif(6)[:15],
        b"II*\0\xff\xff\xff\xff",
        b"MM\0*\0\0\0\x08\xff\xff",
        b"garbage!" * 9,
        b"",
    ],
)
def test_an_unreadable_orientation_is_ignored(orientation: bytes) -> None:
    raw = made.with_segments(made.jpeg(made.quarters()), made.segment(0xE1, b"Exif\0\0" + orientation))
    assert corners(pictures.make_avatar(raw)) == list(CORNERS)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_metadata_is_removed(kind: str, alice: Client) -> None:
    exif = b"Exif\0\0" + made.exif(1, more=SECRET)
    raw = made.save(made.quarters(), kind, exif=exif, xmp=b"<x>" + SECRET, icc_profile=made.srgb())
    more = {
        "JPEG": lambda: made.with_segments(raw, made.segment(0xFE, SECRET)),
        "PNG": lambda: made.with_chunks(raw, made.chunk(b"tEXt", b"a\0" + SECRET)),
    }
    raw = more.get(kind, lambda: raw)() + SECRET
    assert raw.count(SECRET) >= 3
    kept = fetch(alice, show(alice, raw)).raw
    assert SECRET not in kept
    assert webp_chunks(kept) == [b"VP8 "]


def test_transparency_is_kept() -> None:
    palette = made.chunk(b"PLTE", bytes(RED + GREEN)) + made.chunk(b"tRNS", b"\0")
    for raw in (
        made.png(8, 8, 8, 3, made.rows(8, 8, b"\0"), palette),
        made.png(8, 8, 8, 4, made.rows(8, 8, b"\x80\0")),
        made.png(8, 8, 8, 0, made.rows(8, 8, b"\7"), made.chunk(b"tRNS", b"\0\7")),
        made.webp(plain(mode="RGBA", colour=(0, 0, 0, 0)), lossless=True),
    ):
        assert middle(raw)[3] == 0


@pytest.mark.parametrize(
    ("raw", "colour"),
    [
        (made.png(8, 8, 1, 0, b"\0\xff" * 8), WHITE),
        (made.png(8, 8, 16, 0, made.rows(8, 8, b"\x80\x10")), (128, 128, 128)),
        (made.png(8, 8, 16, 2, made.rows(8, 8, b"\xc0\1\x40\2\x20\3")), (192, 64, 32)),
        (made.png(8, 8, 8, 4, made.rows(8, 8, b"\x40\xff")), (64, 64, 64)),
        (made.png(8, 8, 8, 3, made.rows(8, 8, b"\1"), made.chunk(b"PLTE", bytes(RED + GREEN))), GREEN),
        (made.jpeg(plain(mode="CMYK", colour=(0, 255, 255, 0))), (255, 0, 0)),
        (made.jpeg(plain(colour=GREEN), progressive=True), GREEN),
        (made.apng(RED, BLUE), RED),
        (made.webp(plain(), save_all=True, append_images=[plain(colour=BLUE)]), RED),
        (made.webp(plain(colour=BLUE)), BLUE),
        (made.save(plain(), "MPO", save_all=True, append_images=[plain(colour=BLUE)]), RED),
        (made.png(8, 8, 8, 2, made.rows(8, 3, b"abc")), (0, 0, 0)),  # and not what the memory held before
    ],
)
def test_colours_are_preserved(raw: bytes, colour: made.Colour) -> None:
    assert is_like(middle(raw), colour)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("profile", [made.srgb, made.swapped, made.linear_grey, lambda: b"\xff" * 5000])
def test_pixels_are_interpreted_as_srgb_whatever_the_colour_profile(kind: str, profile: Callable[[], bytes]) -> None:
    assert is_like(middle(made.save(plain(colour=(255, 0, 0)), kind, icc_profile=profile())), (255, 0, 0), 40)
    if kind != "JPEG":
        see_through = made.save(plain(mode="RGBA", colour=(255, 0, 0, 128)), kind, icc_profile=profile())
        assert is_like(middle(see_through), (255, 0, 0, 128), 40)
    if kind != "WEBP":
        grey = made.save(plain(mode="L", colour=100), kind, icc_profile=profile())
        assert is_like(middle(grey), (100, 100, 100), 4)


def test_a_colour_profile_is_never_parsed(tmp_path: Path) -> None:
    """In a process of its own, since the tests themselves make profiles."""
    code = """if True:
        import pathlib, sys
        from service import pictures
        for path in sys.argv[1:]:
            pictures.make_avatar(pathlib.Path(path).read_bytes())
        print(sorted(name for name in sys.modules if "cms" in name.lower()))
    """
    files = [tmp_path / kind for kind in ("JPEG", "PNG", "WEBP")]
    for file in files:
        file.write_bytes(made.save(plain(), file.name, icc_profile=made.swapped()))
    done = subprocess.run([sys.executable, "-c", code, *map(str, files)], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("[]\n", "", 0)


# What it costs.

COSTS = {
    "RGBA PNG": lambda: made.png(4_000, 3_125, 8, 6, made.rows(4_000, 3_125, b"\x10\x20\x30\x40"), level=1),
    "16-bit RGBA PNG": lambda: made.png(4_000, 3_125, 16, 6, made.rows(4_000, 3_125, b"\1\2\3\4\5\6\7\x08"), level=1),
    "grey and alpha PNG": lambda: made.png(4_000, 3_125, 8, 4, made.rows(4_000, 3_125, b"\x10\x20"), level=1),
    "16-bit grey PNG": lambda: made.png(4_000, 3_125, 16, 0, made.rows(4_000, 3_125, b"\x10\x20"), level=1),
    "tall PNG": lambda: made.png(1_250, 10_000, 8, 6, made.rows(1_250, 10_000, b"\x10\x20\x30\x40"), level=1),
    "interlaced PNG": lambda: made.png(4_000, 3_125, 8, 6, bytes(50_040_000), interlaced=True, level=1),
    "transparent palette PNG": lambda: made.png(
        4_000, 3_125, 8, 3, made.rows(4_000, 3_125, b"\1"), made.chunk(b"PLTE", b"abcdef"), made.chunk(b"tRNS", b"a")
    ),
    "PNG of bombs": lambda: made.with_chunks(made.save(plain(), "PNG"), made.bomb(b"iCCP", b"a\0\0") * 600),
    "JPEG": lambda: made.jpeg(plain(10_000, 5_000)),
    "CMYK JPEG": lambda: made.jpeg(plain(10_000, 5_000, mode="CMYK", colour=(1, 2, 3, 4))),
    "progressive JPEG": lambda: made.jpeg(plain(4_000, 3_125), progressive=True, subsampling=0),
    "progressive CMYK JPEG": lambda: made.scans(
        made.jpeg(plain(4_000, 3_125, mode="CMYK", colour=(1, 2, 3, 4)), progressive=True), 100
    ),
    "huge progressive JPEG": lambda: made.jpeg(plain(10_000, 5_000), progressive=True),
    "WebP": lambda: made.webp(plain(4_000, 3_125), method=0),
    "lossless WebP": lambda: made.webp(plain(4_000, 3_125, (1, 2, 3, 4), "RGBA"), lossless=True, method=0),
    "moving WebP": lambda: made.webp(
        plain(4_000, 3_125), save_all=True, append_images=[plain(4_000, 3_125, BLUE)], lossless=True, method=0
    ),
}
MEASURE = """
import resource, sys
from service import pictures
from service.errors import ApiError
from tests.support import pictures as made
for kind in ("JPEG", "PNG", "WEBP"):
    pictures.make_avatar(made.save(made.plain(600, 600), kind, icc_profile=made.srgb()))
raw = open(sys.argv[1], "rb").read()
def now(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name)) / 1024
open("/proc/self/clear_refs", "w").write("5")
before, used = now("VmRSS"), resource.getrusage(resource.RUSAGE_SELF)
try:
    getattr(pictures, sys.argv[2])(raw)
except ApiError:
    pass
after = resource.getrusage(resource.RUSAGE_SELF)
print(after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime, now("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "function"),
    [
        *((name, "make_avatar") for name in COSTS),
        *((name, "make_picture") for name in ("RGBA PNG", "JPEG", "progressive JPEG", "WebP")),
    ],
)
def test_the_largest_pictures_use_bounded_memory_and_time(name: str, function: str, tmp_path: Path) -> None:
    """75 MiB for most, with the 48 of the pixels; seconds of work with room for a slow machine.

    The decoder of WebP keeps two more copies of the pixels, and that of progressive JPEG all coefficients.
    """
    (tmp_path / "picture").write_bytes(raw := COSTS[name]())
    assert len(raw) <= LIMIT
    line = [sys.executable, "-c", MEASURE, str(tmp_path / "picture"), function]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=120)
    seconds, mebibytes = map(float, done.stdout.split())
    assert mebibytes < (160 if "WebP" in name else 120 if "progressive" in name else 75)
    assert seconds < 4


# Where it is shown.


def test_a_picture_needs_no_credentials(alice: Client, anyone: Client, bob: Client) -> None:
    url = show(alice)
    seen = fetch(anyone, url)
    assert seen.status == 200
    assert corners(seen.raw) == list(CORNERS)
    assert fetch(bob, url).raw == seen.raw
    assert fetch(anyone, url, authorization="Bearer nonsense").status == 200


def test_headers_of_a_picture_permit_caching_and_no_scripts(alice: Client, anyone: Client) -> None:
    headers = fetch(anyone, show(alice)).headers
    assert headers["content-type"] == "image/webp"
    assert headers["cache-control"] == "public, max-age=31536000, immutable"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert re.fullmatch(r'"[!#-~]+"', headers["etag"])


def test_a_client_with_the_current_picture_gets_304(alice: Client, anyone: Client) -> None:
    url = show(alice)
    tag = fetch(anyone, url).headers["etag"]
    for condition in (tag, f"W/{tag}", f'"other", {tag}', f'W/"other",W/{tag} , "x"', "*", " * "):
        reply = fetch(anyone, url, if_none_match=condition)
        assert (reply.status, reply.raw) == (304, b""), condition
        assert reply.headers["etag"] == tag
        assert "immutable" in reply.headers["cache-control"]
    for condition in ("", '"other"', tag.strip('"'), "W/", '"', ",", tag.upper(), "\xff"):
        assert fetch(anyone, url, if_none_match=condition).status == 200, condition


def test_head_returns_the_size(alice: Client, anyone: Client) -> None:
    url = show(alice)
    get, head = (anyone.call(method, f"/{url}") for method in ("GET", "HEAD"))
    assert (head.status, head.raw) == (200, b"")
    assert int(head.headers["Content-Length"]) == len(get.raw) > 0
    assert head.headers.keys() == get.headers.keys()


@pytest.mark.parametrize("name", ["x", "x.webp", "a" * 500, "%", "\xff", "A%00", "..", "é.webp", "' OR 1=1 --"])
def test_an_unknown_name_is_404(name: str, alice: Client, anyone: Client) -> None:
    show(alice)
    assert anyone.get(f"//avatars/{name}").error == (404, "not_found")


def test_names_cannot_be_guessed(alice: Client) -> None:
    names = {show(alice).removeprefix(FOLDER) for _ in range(20)}
    assert len(names) == 20
    for name in names:
        stem = name.removesuffix(".webp")
        assert len(base64.urlsafe_b64decode(stem + "==")) == 16
        assert alice.user.id[:8] not in name


def test_a_new_picture_replaces_the_old_one(alice: Client, anyone: Client) -> None:
    old, new = show(alice, PICTURE), show(alice, made.jpeg(plain(colour=BLUE)))
    assert fetch(anyone, old).error == (404, "not_found")
    assert fetch(anyone, old, if_none_match="*").status == 404
    assert is_like(look(fetch(anyone, new).raw).getpixel((4, 4)), BLUE)
    assert Avatar.select().count() == 1


def test_the_same_picture_again_has_another_name(alice: Client, anyone: Client) -> None:
    first, second = show(alice), show(alice)
    assert first != second
    assert fetch(anyone, first).status == 404
    assert fetch(anyone, second).status == 200


def test_pictures_of_other_users_do_not_change(alice: Client, bob: Client, anyone: Client) -> None:
    bobs = show(bob)
    show(alice)
    show(alice)
    assert profile_image(bob) == bobs
    assert fetch(anyone, bobs).status == 200


def test_of_two_concurrent_uploads_one_remains_and_is_used(alice: Client, anyone: Client) -> None:
    files = [made.jpeg(plain(colour=colour)) for colour in (RED, BLUE)]
    replies = at_once(2, lambda number: upload(alice, files[number]))
    urls = {reply.data["profile_image"] for reply in replies}
    (left,) = [url for url in urls if fetch(anyone, url).status == 200]
    assert profile_image(alice) == left
    assert Avatar.select().count() == 1


@pytest.mark.parametrize("public", ["https://cx.example.com", "https://cx.example.com/"])
def test_the_address_is_absolute_with_a_public_url(public: str, alice: Client, settings: Settings) -> None:
    installed = app.build(dataclasses.replace(settings, public_url=public))
    url = show(Client(installed, alice.token, alice.user))
    assert url.startswith(f"https://cx.example.com{FOLDER}")
    assert profile_image(alice) == url
    assert fetch(alice, url.removeprefix("https://cx.example.com")).status == 200


def test_the_address_is_relative_without_a_public_url_whatever_the_host_header_has(alice: Client) -> None:
    reply = alice.post("/users/me/avatar", raw=form(PICTURE), content_type=FORM, host="evil.example")
    assert reply.data["profile_image"].startswith(FOLDER)


@pytest.mark.parametrize("trouble", [read_only, full])
def test_a_picture_that_cannot_be_stored_is_503_and_the_old_one_remains(
    trouble: Callable[[], AbstractContextManager[None]], alice: Client, anyone: Client
) -> None:
    url = show(alice)
    with nothing_changes(), trouble():
        reply = upload(alice, made.jpeg(made.noise(600, 600)))
        assert reply.error == (503, "storage_unavailable")
        assert int(reply.headers["Retry-After"]) > 0
        assert fetch(anyone, url).status == 200
    assert upload(alice, PICTURE).status == 200


# How it is described.


def test_generators_send_the_bytes_as_they_are() -> None:
    described = openapi.document(operations())
    body = described["paths"]["/api/v1/users/me/avatar"]["post"]["requestBody"]
    assert body["required"]
    schema = body["content"]["multipart/form-data"]["schema"]
    schema = described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    assert schema["required"] == ["avatar"]
    file = schema["properties"]["avatar"]
    assert (file["type"], file["format"]) == ("string", "binary")
    assert file["contentMediaType"]
    assert "contentEncoding" not in file
    assert "maxLength" not in file


# Import and export.

USER = "00000000-0000-4000-8000-000000000003"
Lines = list[dict[str, Any]]


@pytest.fixture
def take_in(application: Any, tmp_path: Path) -> Callable[[Lines], list[str]]:
    """Import records: the faults, with FILE for the name of the file."""

    def run(records: Lines) -> list[str]:
        path = tmp_path / "records.jsonl"
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
        return [fault.replace(str(path), "FILE") for fault in import_export.import_files([path])]

    return run


def person(**more: Any) -> Lines:
    return [{"user": {"id": USER, "email": "dora@example.com", **more}}]


def avatar(raw: bytes = PICTURE, **more: Any) -> Lines:
    return [{"avatar": {"user_id": USER, "image": base64.b64encode(raw).decode(), **more}}]


def export() -> bytes:
    output = io.BytesIO()
    import_export.export(output.write)
    return output.getvalue()


def shown() -> str:
    """The picture of the imported user."""
    return str(User.get_by_id(USER).profile_image)


def lines(exported: bytes) -> Lines:
    return [json.loads(line) for line in exported.splitlines()]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_any_picture_can_be_imported(kind: str, take_in: Callable[..., list[str]], anyone: Client) -> None:
    raw = made.oriented(kind, 6)
    assert take_in(person() + avatar(raw)) == []
    assert fetch(anyone, shown()).raw == pictures.make_avatar(raw)


def test_an_exported_picture_is_imported_byte_for_byte(alice: Client, take_in: Callable[..., list[str]]) -> None:
    show(alice)
    assert take_in(person() + avatar()) == []
    first = export()
    records = lines(first)
    assert len([record for record in records if "avatar" in record]) == 2
    assert take_in(records[::-1]) == []
    assert export() == first
    Avatar.delete().execute()
    User.update(profile_image="").execute()
    assert take_in(records) == []
    assert export() == first


def test_an_exported_picture_is_not_compressed_again(alice: Client, take_in: Callable[..., list[str]]) -> None:
    kept = fetch(alice, show(alice, made.jpeg(made.noise(600, 600)))).raw
    assert pictures.is_avatar(kept)
    take_in(lines(export()))
    assert Avatar.get().content == kept


def test_the_second_picture_of_a_user_replaces_the_first(take_in: Callable[..., list[str]], anyone: Client) -> None:
    assert take_in(person() + avatar(made.jpeg(plain())) + avatar(made.jpeg(plain(colour=BLUE)))) == []
    assert Avatar.select().count() == 1
    assert is_like(look(fetch(anyone, shown()).raw).getpixel((4, 4)), BLUE)
    before = shown()
    assert take_in(avatar(made.jpeg(plain(colour=GREEN)))) == []
    assert shown() != before
    assert fetch(anyone, before).status == 404
    assert is_like(look(fetch(anyone, shown()).raw).getpixel((4, 4)), GREEN)


def test_an_import_leaves_other_users_and_absolute_urls_alone(take_in: Callable[..., list[str]], alice: Client) -> None:
    show(alice)
    before = profile_image(alice)
    assert take_in(person() + avatar()) == []
    assert profile_image(alice) == before
    absolute = f"https://cx.example.com{shown()}"
    assert take_in(person(profile_image=absolute)) == []
    assert shown() == absolute


def test_an_external_picture_remains_if_no_avatar_is_imported(take_in: Callable[..., list[str]]) -> None:
    assert take_in(person(profile_image="https://example.com/dora.png")) == []
    assert shown() == "https://example.com/dora.png"
    assert take_in(avatar()) == []
    assert shown().startswith(FOLDER)


FAULTS: dict[str, tuple[Lines, str]] = {
    "no image": ([{"avatar": {"user_id": USER}}], "$.avatar.image: Expected a JPEG, PNG or WebP picture."),
    "empty": (avatar(b""), "$.avatar.image: Expected a JPEG, PNG or WebP picture."),
    "another kind": (avatar(b"GIF89a"), "$.avatar.image: Expected a JPEG, PNG or WebP picture."),
    "truncated": (avatar(PICTURE[:-1]), "$.avatar.image: The picture is damaged or incomplete."),
    "too large": (avatar(made.png(4_001, 4_000, 8, 2, b"")), "$.avatar.image: The picture has 4001 × 4000 pixels"),
    "no base64": (avatar(image="!"), "$.avatar.image: "),
    "base64 with holes": (avatar(image="AA AA"), "$.avatar.image: "),
    "base64 without its end": (avatar(image="AAA"), "$.avatar.image: "),
    "no ASCII": (avatar(image="é"), "$.avatar.image: "),
    "a number": (avatar(image=1), "$.avatar.image: expected str"),
    "null": (avatar(image=None), "$.avatar.image: expected str"),
    "no user": (
        [{"avatar": {"image": base64.b64encode(PICTURE).decode()}}],
        "$.avatar: missing required member user_id",
    ),
    "an unknown user": (
        avatar(user_id="00000000-0000-4000-8000-00000000dead"),
        "$.avatar.user_id: refers to a missing record",
    ),
    "a path for a name": (avatar(name="../x.webp"), "$.avatar.name: expected at most 59 letters"),
    "an empty name": (avatar(name=""), "$.avatar.name: expected at most 59 letters"),
    "a long name": (avatar(name="a" * 60 + ".webp"), "$.avatar.name: expected"),
    "an unknown member": (avatar(colour="red"), "$.avatar: object contains unknown field colour"),
}


@pytest.mark.parametrize(("records", "fault"), FAULTS.values(), ids=FAULTS)
def test_an_error_has_its_line(records: Lines, fault: str, take_in: Callable[..., list[str]]) -> None:
    before = export()
    (found,) = take_in(person() + records)
    assert found.startswith(f"FILE:2: {fault}"), found
    assert export() == before


def test_two_users_cannot_share_a_name(alice: Client, take_in: Callable[..., list[str]]) -> None:
    name = show(alice).removeprefix(FOLDER)
    assert take_in(person() + avatar(name=name)) == ["FILE:2: $.avatar.name: another avatar has this value"]


def test_a_name_that_only_resembles_an_avatar_is_replaced() -> None:
    assert pictures.is_avatar(made.webp(plain(512, 512)))
    for raw in (
        made.webp(plain(513, 513)),
        made.webp(plain(100, 50)),
        made.webp(plain(), exif=made.exif(1)),
        made.webp(plain(), xmp=SECRET),
        made.webp(plain(), icc_profile=made.srgb()),
        made.webp(plain(), save_all=True, append_images=[plain(colour=BLUE)]),
        made.webp(plain())[:-2],
        made.webp(plain()) + SECRET,
        made.riff((b"VP8X", bytes(10)), (b"note", SECRET)),
        made.save(plain(), "PNG"),
        b"",
    ):
        assert not pictures.is_avatar(raw)
