"""Covers and icons of bots: uploads, addresses, removal, import and export."""

import base64
import dataclasses
import io
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import app
from service import pictures
from service.models import App, AuditLog, Bot, BotPicture
from service.models.bot_pictures import FOLDER, KINDS
from service.operate import import_export
from service.settings import Settings
from tests.support import pictures as made
from tests.support.access import as_form
from tests.support.client import Client, Reply
from tests.support.faults import full, read_only
from tests.support.observe import at_once, nothing_changes
from tests.support.pictures import BLUE, CORNERS, GREEN, RED, corners, is_like, look, plain

pytestmark = pytest.mark.database

LIMIT = 5_242_880
PICTURE = made.save(made.quarters(), "PNG")
Records = list[dict[str, Any]]


def path_of(bot: Bot, kind: str) -> str:
    return f"/apps/{bot.app_id}/bots/{bot.id}/{kind}"


def upload(client: Client, bot: Bot, kind: str = "icon", content: bytes = PICTURE) -> Reply:
    return client.put(path_of(bot, kind), **as_form({"picture": content}))


def url_of(client: Client, bot: Bot, kind: str = "icon", content: bytes = PICTURE) -> str:
    """Upload a picture. Return its address."""
    reply = upload(client, bot, kind, content)
    assert reply.status == 200
    return str(reply.data[f"{kind}_url"])


def fetch(client: Client, url: str) -> Reply:
    return client.get(f"/{url}")


class TestUploads:
    @pytest.mark.parametrize("kind", KINDS)
    def test_customers_get_the_picture_at_the_address_of_the_bot(
        self, kind: str, agent: Client, alice: Client, anyone: Client, bot: Bot
    ) -> None:
        url = url_of(agent, bot, kind)
        assert url.startswith(FOLDER)
        assert alice.get(f"/bots/{bot.id}?app_id={bot.app_id}").data[f"{kind}_url"] == url
        reply = fetch(anyone, url)
        headers = {name.lower(): value for name, value in reply.headers.items()}
        assert (reply.status, headers["content-type"]) == (200, "image/webp")
        assert headers["cache-control"] == "public, max-age=31536000, immutable"
        assert anyone.get(f"/{url}", if_none_match=headers["etag"]).status == 304

    def test_change_one_member_only(self, agent: Client, bot: Bot) -> None:
        before = agent.get(f"/apps/{bot.app_id}/bots/{bot.id}").data
        after = upload(agent, bot, "cover").data
        assert {name for name in after if after[name] != before[name]} - {"updated_at"} == {"cover_url"}

    def test_replace_the_previous_picture_of_the_same_kind(self, agent: Client, anyone: Client, bot: Bot) -> None:
        icon, cover = (url_of(agent, bot, kind) for kind in ("icon", "cover"))
        new = url_of(agent, bot, "icon", made.jpeg(plain(colour=BLUE)))
        assert fetch(anyone, icon).error == (404, "not_found")
        assert is_like(look(fetch(anyone, new).raw).getpixel((4, 4)), BLUE)
        assert fetch(anyone, cover).status == 200
        assert BotPicture.select().count() == 2

    def test_do_not_change_other_bots(self, agent: Client, anyone: Client, bot: Bot) -> None:
        other = Bot.create(app_id=bot.app_id, name="Otto")
        url = url_of(agent, other)
        url_of(agent, bot)
        agent.delete(path_of(bot, "icon"))
        assert fetch(anyone, url).status == 200
        assert Bot.get_by_id(other.id).icon_url == url

    def test_at_the_same_time_leave_one_picture(self, agent: Client, anyone: Client, bot: Bot) -> None:
        files = [made.jpeg(plain(colour=colour)) for colour in (RED, BLUE)]
        urls = {reply.data["icon_url"] for reply in at_once(2, lambda n: upload(agent, bot, "icon", files[n]))}
        (left,) = [url for url in urls if fetch(anyone, url).status == 200]
        assert Bot.get_by_id(bot.id).icon_url == left

    @pytest.mark.parametrize(
        ("content", "error"),
        [
            (b"", (400, "file_missing")),
            (PICTURE[:-1], (400, "image_unreadable")),
            (made.save(plain(), "GIF"), (415, "unsupported_media_type")),
            (bytes(LIMIT + 1), (413, "file_too_large")),
            (bytes(6 * 2**20), (413, "body_too_large")),
            (made.png(4_001, 4_000, 8, 2, b""), (400, "image_too_large")),
        ],
    )
    @pytest.mark.parametrize("kind", KINDS)
    def test_of_other_files_change_nothing(
        self, kind: str, content: bytes, error: tuple[int, str], agent: Client, bot: Bot
    ) -> None:
        upload(agent, bot, kind)
        with nothing_changes():
            assert upload(agent, bot, kind, content).error == error

    @pytest.mark.parametrize("kind", KINDS)
    def test_require_staff_of_the_app(
        self, kind: str, agent: Client, alice: Client, other_agent: Client, bot: Bot, other_shop: App
    ) -> None:
        upload(agent, bot, kind)
        elsewhere = f"/apps/{other_shop.id}/bots/{bot.id}/{kind}"
        with nothing_changes():
            for client in (alice, other_agent):
                assert upload(client, bot, kind).error == (403, "forbidden")
                assert client.delete(path_of(bot, kind)).error == (403, "forbidden")
            assert other_agent.put(elsewhere, **as_form({"picture": PICTURE})).error == (404, "bot_not_found")
            assert other_agent.delete(elsewhere).error == (404, "bot_not_found")

    @pytest.mark.parametrize("trouble", [read_only, full])
    def test_that_cannot_be_stored_are_503_and_the_old_picture_remains(
        self, trouble: Callable[[], AbstractContextManager[None]], agent: Client, anyone: Client, bot: Bot
    ) -> None:
        url = url_of(agent, bot, "cover")
        with nothing_changes(), trouble():
            reply = upload(agent, bot, "cover", made.jpeg(made.noise(1_200, 400)))
            assert reply.error == (503, "storage_unavailable")
            assert fetch(anyone, url).status == 200

    def test_are_absolute_with_a_public_url(self, settings: Settings, agent: Client, bot: Bot) -> None:
        installed = app.build(dataclasses.replace(settings, public_url="https://cx.example.com/"))
        url = url_of(Client(installed, agent.token, agent.user), bot)
        assert url.startswith(f"https://cx.example.com{FOLDER}")
        assert fetch(agent, url.removeprefix("https://cx.example.com")).status == 200

    def test_are_recorded_in_the_audit_log(self, agent: Client, bot: Bot) -> None:
        upload(agent, bot, "cover")
        for _ in range(2):
            agent.delete(path_of(bot, "cover"))
        entries = AuditLog.select().where(AuditLog.kind == "bot_changed")
        expected = (agent.user.id, bot.id, {"app": bot.app_id, "columns": ["cover_url"]})
        found = [(entry.actor_id, entry.subject_id, json.loads(entry.details)) for entry in entries]
        assert found == [expected, expected]


class TestRemoval:
    @pytest.mark.parametrize("kind", KINDS)
    def test_deletes_the_picture(self, kind: str, agent: Client, anyone: Client, bot: Bot) -> None:
        url = url_of(agent, bot, kind)
        first = agent.delete(path_of(bot, kind))
        assert first.data[f"{kind}_url"] == ""
        assert fetch(anyone, url).status == 404
        with nothing_changes():
            assert agent.delete(path_of(bot, kind)).data == first.data

    def test_an_external_address_replaces_the_picture(self, agent: Client, anyone: Client, bot: Bot) -> None:
        icon, cover = (url_of(agent, bot, kind) for kind in ("icon", "cover"))
        body = {"icon_url": "https://a.example/b.png"}
        assert agent.patch(f"/apps/{bot.app_id}/bots/{bot.id}", body).data["icon_url"] == body["icon_url"]
        assert fetch(anyone, icon).status == 404
        assert fetch(anyone, cover).status == 200
        assert agent.delete(path_of(bot, "icon")).data["icon_url"] == ""

    def test_other_changes_keep_the_picture(self, agent: Client, anyone: Client, bot: Bot) -> None:
        url = url_of(agent, bot)
        assert agent.patch(f"/apps/{bot.app_id}/bots/{bot.id}", {"city": "Ulm"}).data["icon_url"] == url
        assert fetch(anyone, url).status == 200


@pytest.mark.parametrize("name", ["x", "x.webp", "a" * 500, "%", "A%00", "é.webp"])
def test_an_unknown_name_is_404(name: str, agent: Client, anyone: Client, bot: Bot) -> None:
    upload(agent, bot)
    assert anyone.get(f"/{FOLDER}{name}").error == (404, "not_found")


# Shapes.

COVER_SIZES = [
    ((1_500, 500), (1_200, 400)),
    ((1_200, 400), (1_200, 400)),
    ((3_000, 4_000), (1_200, 400)),
    ((900, 900), (900, 300)),
    ((100, 100), (99, 33)),
    ((4_000, 30), (90, 30)),
    ((3, 1), (3, 1)),
    ((2, 9), (2, 1)),
    ((1, 1), (1, 1)),
]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize(("size", "expected"), COVER_SIZES)
def test_a_cover_is_three_times_as_wide_as_high_and_never_enlarged(
    kind: str, size: tuple[int, int], expected: tuple[int, int]
) -> None:
    cover = pictures.make_cropped(made.save(plain(*size), kind), pictures.COVER)
    assert look(cover).size == expected
    assert pictures.is_cropped(cover, pictures.COVER)


def test_a_cover_is_cropped_around_its_center() -> None:
    image = plain(300, 300)
    image.paste(BLUE, (0, 100, 300, 200))
    cover = look(pictures.make_cropped(made.save(image, "PNG"), pictures.COVER))
    assert cover.size == (300, 100)
    assert all(is_like(cover.getpixel(place), BLUE) for place in ((5, 5), (150, 50), (294, 94)))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_cover_is_rotated_before_it_is_cropped(orientation: int) -> None:
    image = plain(300, 200) if orientation < 5 else plain(200, 300)
    center = (0, 50, 300, 150) if orientation < 5 else (50, 0, 150, 300)
    image.paste(BLUE, center)
    raw = made.save(image, "PNG", exif=made.exif(orientation))
    cover = look(pictures.make_cropped(raw, pictures.COVER))
    assert cover.size == (300, 100)
    assert all(is_like(cover.getpixel(place), BLUE) for place in ((5, 5), (150, 50), (294, 94)))


def test_an_icon_is_square(agent: Client, anyone: Client, bot: Bot) -> None:
    raw = fetch(anyone, url_of(agent, bot, "icon", made.save(made.quarters(600), "PNG"))).raw
    assert (look(raw).size, corners(raw)) == ((512, 512), list(CORNERS))


def test_only_pictures_of_a_shape_are_stored_unchanged() -> None:
    for size in ((1_201, 400), (1_200, 401), (100, 100), (300, 99)):
        assert not pictures.is_cropped(made.webp(plain(*size)), pictures.COVER)


# Import and export.


@pytest.fixture
def imported(application: Any, tmp_path: Path) -> Callable[[Records], list[str]]:
    """Return a function that imports records and return the errors, with FILE for the name of the file."""

    def run(records: Records) -> list[str]:
        path = tmp_path / "records.jsonl"
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
        return [error.replace(str(path), "FILE") for error in import_export.import_files([path])]

    return run


def record(bot: Bot, raw: bytes = PICTURE, **more: Any) -> Records:
    members = {"bot_id": bot.id, "kind": "icon", "image": base64.b64encode(raw).decode(), **more}
    return [{"bot_picture": {name: value for name, value in members.items() if value is not None}}]


def export() -> bytes:
    output = io.BytesIO()
    import_export.export(output.write)
    return output.getvalue()


class TestImport:
    def test_of_an_export_restores_the_pictures(self, agent: Client, bot: Bot, imported: Any) -> None:
        for kind in KINDS:
            upload(agent, bot, kind, made.jpeg(made.noise(600, 600)))
        exported = export()
        records = [json.loads(line) for line in exported.splitlines()]
        found = [row["bot_picture"] for row in records if "bot_picture" in row]
        assert {(row["bot_id"], row["kind"]) for row in found} == {(bot.id, kind) for kind in KINDS}
        assert all(row.keys() == {"bot_id", "kind", "name", "image"} for row in found)
        BotPicture.delete().execute()
        Bot.update(cover_url="", icon_url="").execute()
        assert imported(records[::-1]) == []
        assert export() == exported

    @pytest.mark.parametrize("kind", KINDS)
    def test_converts_any_picture_and_sets_the_address(
        self, kind: str, anyone: Client, bot: Bot, imported: Any
    ) -> None:
        raw = made.oriented("JPEG", 6)
        assert imported(record(bot, raw, kind=kind)) == []
        shape = {"cover": pictures.COVER, "icon": pictures.SQUARE}[kind]
        stored = Bot.get_by_id(bot.id)
        assert fetch(anyone, getattr(stored, f"{kind}_url")).raw == pictures.make_cropped(raw, shape)
        assert {stored.cover_url, stored.icon_url} > {""}

    def test_replaces_the_picture_of_the_same_kind(self, agent: Client, anyone: Client, bot: Bot, imported) -> None:
        before = url_of(agent, bot)
        assert imported(record(bot, made.jpeg(plain(colour=GREEN)))) == []
        after = Bot.get_by_id(bot.id).icon_url
        assert fetch(anyone, before).status == 404
        assert is_like(look(fetch(anyone, after).raw).getpixel((4, 4)), GREEN)

    def test_leaves_absolute_and_external_addresses_alone(self, bot: Bot, imported: Any) -> None:
        assert imported(record(bot, name="a.webp")) == []
        for column, url in (("icon_url", f"https://cx.example.com{FOLDER}a.webp"), ("cover_url", "https://b.example")):
            Bot.update({getattr(Bot, column): url}).execute()
            assert imported([{"app": {"id": bot.app_id, "name": "Shop"}}]) == []
            assert getattr(Bot.get_by_id(bot.id), column) == url

    @pytest.mark.parametrize(
        ("members", "error"),
        [
            ({"kind": None}, "$.bot_picture: missing required member kind"),
            ({"bot_id": None}, "$.bot_picture: missing required member bot_id"),
            ({"kind": "photo"}, "$.bot_picture.kind: "),
            ({"bot_id": "00000000-0000-4000-8000-00000000dead"}, "$.bot_picture.bot_id: refers to a missing record"),
            ({"image": "!"}, "$.bot_picture.image: "),
            ({"image": None}, "$.bot_picture.image: Expected a JPEG, PNG or WebP picture."),
            ({"name": "../x.webp"}, "$.bot_picture.name: expected at most 59 letters"),
            ({"id": "x"}, "$.bot_picture: object contains unknown field id"),
        ],
    )
    def test_reports_errors(self, members: dict[str, Any], error: str, bot: Bot, imported: Any) -> None:
        with nothing_changes():
            (found,) = imported(record(bot, **members))
        assert found.startswith(f"FILE:1: {error}"), found

    def test_refuses_the_name_of_another_picture(self, agent: Client, bot: Bot, imported: Any) -> None:
        name = url_of(agent, bot, "cover").removeprefix(FOLDER)
        error = "FILE:1: $.bot_picture.name: another bot_picture has this value"
        assert imported(record(bot, name=name)) == [error]
