"""The commands `app` and `bot`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from service import db
from service.models import App, AuditLog, Bot, BotPicture
from tests.support.command_line import Outcome, error_line
from tests.support.installation import settings_at
from tests.support.sample_data import picture

pytestmark = pytest.mark.database

Command = Callable[..., Outcome]
UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def shop(cx: Command) -> str:
    """The identifier of an app."""
    return cx("app", "add", "Shop").output.strip()


@pytest.fixture
def bot(cx: Command, shop: str) -> str:
    """The identifier of a bot."""
    return cx("bot", "add", "Hilda", "--app", shop, "--kind", "bot", "--tagline", "Prices").output.strip()


def rows(outcome: Outcome) -> list[dict[str, object]]:
    """The objects that a command has printed, one per line."""
    assert (outcome.status, outcome.errors) == (0, "")
    return [json.loads(line) for line in outcome.output.splitlines()]


def test_added_apps_are_listed_by_name(cx: Command, shop: str) -> None:
    other = cx("app", "add", "Another shop").output.strip()
    assert cx("app", "list").output == f"{other}  Another shop\n{shop}  Shop\n"
    assert rows(cx("app", "list", "--json")) == [{"id": other, "name": "Another shop"}, {"id": shop, "name": "Shop"}]


def test_app_can_be_renamed(cx: Command, shop: str) -> None:
    assert cx("app", "edit", shop.upper(), "--name", "Store") == Outcome(0, "", "")
    assert cx("app", "list").output == f"{shop}  Store\n"


def test_added_bots_are_listed(cx: Command, shop: str, bot: str) -> None:
    other = cx("app", "add", "Another shop").output.strip()
    cx("bot", "add", "Otto", "--app", other)
    assert cx("bot", "list", "--app", shop).output == f"{bot}  bot    draft      Hilda\n"
    assert [row["name"] for row in rows(cx("bot", "list", "--json"))] in (["Hilda", "Otto"], ["Otto", "Hilda"])


def test_every_column_of_a_bot_can_be_set_and_reset(cx: Command, bot: str, data) -> None:
    given = {
        "name": "Hugo",
        "slug": "hugo",
        "tagline": "T",
        "description": "D",
        "category": "C",
        "kind": "nobot",
        "status": "published",
        "presence": "away",
        "rating": "4.5",
        "country": "de",
        "region": "R",
        "city": "B",
        "accent_color": "#123456",
        "brand_color": "#654321",
        "contact_phone": "1",
        "social_links": '{"a": "b"}',
        "cover_url": "https://a.example/c.png",
        "icon_url": "https://a.example/i.png",
        "contact_email": "a@example.com",
        "contact_website": "https://a.example",
    }
    flags = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)]
    assert cx("bot", "edit", bot, *flags, "--no-is-active", "--is-featured") == Outcome(0, "", "")
    db.open_database(data, settings_at(data).database)
    stored = Bot.get_by_id(bot)
    expected = given | {"rating": 4.5, "country": "DE", "social_links": str(list(b'{"a":"b"}')).replace(" ", "")}
    assert {name: getattr(stored, name) for name in given} == expected
    assert (stored.is_active, stored.is_featured, stored.search_text) == (False, True, "hugo\nA\nt\nA\nd")
    assert cx("bot", "edit", bot, "--tagline", "", "--country", "") == Outcome(0, "", "")
    db.open_database(data, settings_at(data).database)
    assert (Bot.get_by_id(bot).tagline, Bot.get_by_id(bot).country) == ("", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("app", "add", ""), "name: expected str of length >= 1"),
        (("app", "add", "n" * 201), "name: expected str of length <= 200"),
        (("app", "edit", UNKNOWN, "--name", "A"), f"no such app: {UNKNOWN}"),
        (("bot", "add", "A", "--app", UNKNOWN), f"no such app: {UNKNOWN}"),
        (("bot", "list", "--app", UNKNOWN), f"no such app: {UNKNOWN}"),
        (("bot", "edit", UNKNOWN, "--name", "A"), f"no such bot: {UNKNOWN}"),
        (
            ("bot", "edit", UNKNOWN, "--country", "Germany"),
            "country: expected a country code of two letters",
        ),
        (("bot", "edit", UNKNOWN, "--contact-email", "a"), "contact_email: expected an e-mail address"),
        (("bot", "edit", UNKNOWN, "--rating", "nan"), "rating: expected a finite number"),
    ],
)
def test_invalid_arguments_are_reported(arguments: tuple[str, ...], message: str, cx: Command, shop: str) -> None:
    before = cx("export").output
    outcome = cx(*arguments)
    assert message in error_line(outcome)
    assert cx("export").output == before


def test_changes_are_recorded_in_the_audit_log(cx: Command, shop: str, bot: str, data) -> None:
    for _ in range(2):
        cx("app", "edit", shop, "--name", "Store")
        cx("bot", "edit", bot, "--tagline", "Prices and more", "--kind", "bot")
    db.open_database(data, settings_at(data).database)
    assert App.get_by_id(shop).name == "Store"
    entries = AuditLog.select().order_by(AuditLog.position)
    assert [(entry.kind, entry.actor_id, entry.subject_id, json.loads(entry.details)) for entry in entries] == [
        ("app_added", "operator", shop, {}),
        ("bot_added", "operator", bot, {"app": shop}),
        ("app_changed", "operator", shop, {"columns": ["name"]}),
        ("bot_changed", "operator", bot, {"app": shop, "columns": ["tagline"]}),
    ]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """The paths of a picture and of other files."""
    contents = {"picture": picture(), "text": b"Hello", "large": bytes(5 * 2**20 + 1)}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return {name: str(tmp_path / name) for name in (*contents, "missing")}


def stored_bot(bot: str, data: Path) -> Bot:
    db.open_database(data, settings_at(data).database)
    return Bot.get_by_id(bot)


def test_pictures_can_be_set_and_removed(cx: Command, shop: str, files: dict[str, str], data: Path) -> None:
    flags = ("--cover-file", files["picture"], "--icon-file", files["picture"], "--city", "Ulm")
    id = cx("bot", "add", "Otto", "--app", shop, *flags).output.strip()
    added = stored_bot(id, data)
    names = {picture.kind: f"/bot-pictures/{picture.name}" for picture in BotPicture.select()}
    assert names == {"cover": added.cover_url, "icon": added.icon_url}
    assert cx("bot", "edit", id, "--icon-file", files["picture"], "--city", "Bern") == Outcome(0, "", "")
    edited = stored_bot(id, data)
    assert edited.icon_url not in ("", added.icon_url)
    assert (edited.cover_url, edited.city) == (added.cover_url, "Bern")
    assert cx("bot", "edit", id, "--icon-url", "") == Outcome(0, "", "")
    assert (stored_bot(id, data).icon_url, BotPicture.get().kind) == ("", "cover")


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("text", "text: Expected a JPEG, PNG or WebP picture."),
        ("large", "large: the file is larger than 5 MiB"),
        ("missing", "missing: No such file or directory"),
    ],
)
def test_other_files_are_reported_and_change_nothing(
    file: str, message: str, cx: Command, shop: str, bot: str, files: dict[str, str]
) -> None:
    before = cx("export").output
    for action in (("add", "Otto", "--app", shop), ("edit", bot, "--city", "Ulm")):
        assert message in error_line(cx("bot", *action, "--icon-file", files[file]))
        assert cx("export").output == before


def test_a_picture_is_either_a_file_or_an_address(cx: Command, bot: str, files: dict[str, str]) -> None:
    flags = ("--cover-file", files["picture"], "--cover-url", "https://a.example")
    assert "use either --cover-file or --cover-url" in error_line(cx("bot", "edit", bot, *flags))
