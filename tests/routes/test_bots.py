"""The bot directory: lists, filters, search, likes."""

import json
import random
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as some

from service import clock, db, validators
from service.db import migrations
from service.db.migrations import step_1
from service.models import App, Bot, LoginSession
from service.operate import import_export
from service.routes.bots import BotsQuery
from service.settings import Settings
from tests.support.client import Client, Reply
from tests.support.installation import settings_at
from tests.support.observe import database_steps, nothing_changes, query_plan, reads_a_page, statements
from tests.support.postgres import is_chosen

pytestmark = pytest.mark.database


UNKNOWN = "00000000-0000-4000-8000-000000000000"
MANY = 100_000

FIELDS = {  # section 2.7: the type of each member and what it is by default
    "id": (str, ...),
    "app_id": (str, ...),
    "name": (str, ""),
    "slug": (str, ""),
    "tagline": (str, ""),
    "description": (str, ""),
    "category": (str, ""),
    "kind": (str, "nobot"),
    "status": (str, "draft"),
    "presence": (str, "offline"),
    "is_active": (bool, True),
    "is_featured": (bool, False),
    "rating": (float, 0.0),
    "country": (str, ""),
    "region": (str, ""),
    "city": (str, ""),
    "accent_color": (str, ""),
    "brand_color": (str, ""),
    "cover_url": (str, ""),
    "icon_url": (str, ""),
    "contact_email": (str, ""),
    "contact_phone": (str, ""),
    "contact_website": (str, ""),
    "social_links": (list, []),
    "created_at": (str, ...),
    "updated_at": (str, ...),
}

FULL = {
    "id": "0b0e8a3c-5b7e-4d1a-9c55-2f4f1f6f0001",
    "name": 'Käthe "Kater" \\ 🐈\u2028',
    "slug": "kaethe",
    "tagline": "Knows cats\nand dogs\t\x7f",
    "description": "Ask <b>anything</b> & more; 100 % free_",
    "category": "pets",
    "kind": "bot",
    "status": "published",
    "presence": "rsvp",
    "is_active": True,
    "is_featured": True,
    "rating": 4.7,
    "country": "DE",
    "region": "Bayern",
    "city": "München",
    "accent_color": "#ff0066",
    "brand_color": "rgb(0 0 0)",
    "cover_url": "https://example.com/cover.png",
    "icon_url": "https://example.com/icon.png",
    "contact_email": "kaethe@example.com",
    "contact_phone": "+49301234567",
    "contact_website": "https://example.com",
    "social_links": list(b'[{"kind":"web","url":"https://example.com/\xc3\xa4"}]'),
    "created_at": "2026-11-20T10:00:00.000Z",
    "updated_at": "2026-11-20T11:00:00.123Z",
}


def feed(client: Client, app: Any, **query: Any) -> Reply:
    """A page of an app's feed."""
    return client.get(f"/bots?{urlencode({'app_id': getattr(app, 'id', app), **query})}")


def names(client: Client, app: Any, **query: Any) -> list[str]:
    """The names of the bots on a page of an app's feed."""
    reply = feed(client, app, **query)
    assert reply.status == 200, reply.json
    return [bot["name"] for bot in reply.data]


def pages(client: Client, app: Any, **query: Any) -> Iterator[list[dict[str, Any]]]:
    """The pages of an app's feed, one after the other."""
    cursor, most = "", Bot.select().count() + 20
    for number in range(most):
        reply = feed(client, app, **query, **({"cursor": cursor} if cursor else {}))
        assert reply.status == 200, reply.json
        assert number + 1 < most, "the walk does not end"
        cursor = reply.meta["next_cursor"]
        yield reply.data
        if not cursor:
            return


def on_a_walk(client: Client, app: Any, **query: Any) -> list[str]:
    """The identifiers that a client meets on a walk through an app's feed."""
    return [bot["id"] for page in pages(client, app, **query) for bot in page]


def in_order(bots: list[Any]) -> list[str]:
    """The identifiers of bots as the feed must have them."""
    return [bot.id for bot in sorted(bots, key=lambda bot: (not bot.is_featured, -bot.rating, bot.name, bot.id))]


@pytest.fixture
def add(shop: App) -> Callable[..., Bot]:
    """Put a bot into the shop's feed."""

    def make(name: str = "Hilda", **columns: Any) -> Bot:
        return Bot.create(**{"app_id": shop.id, "name": name, "status": "published", **columns})

    return make


@pytest.fixture
def take_in(shop: App, tmp_path: Path) -> Callable[..., list[str]]:
    """Import bots, by default of the shop. Returns the errors."""

    def run_import(*bots: dict[str, Any]) -> list[str]:
        file = tmp_path / "bots.jsonl"
        file.write_text("".join(json.dumps({"bot": {"app_id": shop.id, **bot}}) + "\n" for bot in bots))
        return import_export.import_files([file])

    return run_import


# Who sees what


@pytest.mark.parametrize("who", ["alice", "agent", "other_agent", "admin"])
def test_every_authenticated_caller_can_read_bots(who, request, shop, bot):
    client = request.getfixturevalue(who)
    assert names(client, shop) == ["Hilda"]
    assert client.get(f"/bots/{bot.id}?app_id={shop.id}").data["name"] == "Hilda"


@pytest.mark.parametrize("path", ["/bots?app_id={app}", "/bots", "/bots/{id}?app_id={app}", "/bots/x", "/bots/{id}"])
def test_without_credentials_it_is_401_whatever_else_is_invalid(path, anyone, shop, bot):
    reply = anyone.get(path.format(app=shop.id, id=bot.id))
    assert reply.error == (401, "missing_credentials")
    assert reply.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(("scopes", "status"), [("bots", 200), ("bots:read", 200), ("profile chats", 403), ("", 403)])
def test_a_narrow_token_needs_the_scope_of_bots(scopes, status, alice, shop, bot):
    LoginSession.update(scopes=scopes).execute()
    assert feed(alice, shop).status == status
    assert alice.get(f"/bots/{bot.id}?app_id={shop.id}").status == status


HIDDEN = {
    "inactive": {"is_active": False},
    "a draft": {"status": "draft"},
    "an inactive draft": {"is_active": False, "status": "draft"},
}


@pytest.mark.parametrize("columns", HIDDEN.values(), ids=HIDDEN)
@pytest.mark.parametrize("who", ["alice", "agent", "admin"])
def test_a_bot_is_hidden_if_it_is(columns, who, request, shop, add):
    client = request.getfixturevalue(who)
    add("Shown")
    hidden = add("Hidden", is_featured=True, rating=5, category="x", **columns)
    for query in ({}, {"featured_only": "true"}, {"search": "hidden"}, {"category": "x"}):
        assert "Hidden" not in names(client, shop, **query)
    with nothing_changes():
        assert client.get(f"/bots/{hidden.id}?app_id={shop.id}").error == (404, "bot_not_found")
    Bot.update(is_active=True, status="published").where(Bot.id == hidden.id).execute()
    assert names(client, shop) == ["Hidden", "Shown"]
    assert client.get(f"/bots/{hidden.id}?app_id={shop.id}").data["id"] == hidden.id


def test_an_app_has_its_own_bots_only(alice, shop, other_shop, add, bot):
    other = add("Otto", app_id=other_shop.id)
    assert (names(alice, shop), names(alice, other_shop)) == (["Hilda"], ["Otto"])
    assert names(alice, shop, search="otto") == []
    assert alice.get(f"/bots/{other.id}?app_id={other_shop.id}").data["name"] == "Otto"
    for foreign, app in ((other, shop), (bot, other_shop)):
        assert alice.get(f"/bots/{foreign.id}?app_id={app.id}").error == (404, "bot_not_found")


def test_an_unknown_app_has_no_bots(alice, bot):
    reply = feed(alice, UNKNOWN)
    assert (reply.status, reply.data, reply.meta) == (200, [], {"next_cursor": "", "per_page": 25})


def test_the_identifier_of_an_app_can_have_any_case(alice, shop, bot):
    assert names(alice, shop.id.upper()) == ["Hilda"]
    assert alice.get(f"/bots/{bot.id.upper()}?app_id={shop.id.upper()}").data["id"] == bot.id


def test_reading_changes_nothing(alice, shop, bot):
    feed(alice, shop)
    with nothing_changes():
        feed(alice, shop, search="h")
        alice.get(f"/bots/{bot.id}?app_id={shop.id}")


def test_a_bot_is_cacheable_by_its_caller(alice, shop, bot):
    for reply in (feed(alice, shop), alice.get(f"/bots/{bot.id}?app_id={shop.id}")):
        assert reply.headers["Cache-Control"] == "private, no-cache"


# A bot on the wire


def test_a_bot_has_every_specified_field_with_its_default(host_clock, alice, shop):
    bot = Bot.create(app_id=shop.id)
    assert Bot.get_by_id(bot.id).status == "draft"
    Bot.update(status="published").execute()
    shown = alice.get(f"/bots/{bot.id}?app_id={shop.id}").data
    assert list(shown) == list(FIELDS)
    assert {name: type(value) for name, value in shown.items()} == {name: kind for name, (kind, _) in FIELDS.items()}
    made = {"id": bot.id, "app_id": shop.id, "created_at": "2026-11-20T10:00:00.000Z", "status": "published"}
    made["updated_at"] = made["created_at"]
    assert shown == {name: made.get(name, default) for name, (_, default) in FIELDS.items()}


def test_every_field_is_returned_as_it_was_imported(alice, shop, take_in):
    assert take_in(FULL) == []
    expected = {"app_id": shop.id, **FULL}
    reply = alice.get(f"/bots/{FULL['id']}?app_id={shop.id}")
    assert set(reply.json) == {"success", "data"}
    assert reply.data == expected
    listed = feed(alice, shop)
    assert set(listed.json) == {"success", "data", "meta"}
    assert listed.data == [expected]


@pytest.mark.parametrize("links", [[], {"web": "https://example.com/ä"}, "x", None, [1, -(2**63), 2**63 - 1]])
def test_social_links_are_integers(links, alice, shop, take_in):
    assert take_in({"status": "published", "social_links": links}) == []
    (bot,) = feed(alice, shop).data
    if isinstance(links, list):
        assert bot["social_links"] == links
    else:
        links_text = bytes(bot["social_links"]).decode()
        assert links_text == (json.dumps(links, ensure_ascii=False, separators=(",", ":")) if links else "")


@pytest.mark.parametrize("rating", [0, 5, -1, 4.5, 0.1 + 0.2, 1 / 3, 1e300, -1e300, 5e-324, 10**15, -0.0])
def test_a_rating_is_a_number(rating, alice, shop, take_in):
    assert take_in({"status": "published", "rating": rating}) == []
    assert feed(alice, shop).data[0]["rating"] == pytest.approx(rating, rel=1e-14)


# One bot


NOT_IDENTIFIERS = ["x", "{id}x", "{{id}}", "urn:uuid:{id}", "", "0b0e8a3c5b7e4d1a9c552f4f1f6f0001", "{id} ", "{id}%00"]


def test_a_malformed_identifier_of_a_bot_is_400(alice, shop, bot):
    for text in filter(None, NOT_IDENTIFIERS):
        reply = alice.get(f"/bots/{text.format(id=bot.id)}?app_id={shop.id}".replace("%00", "\0"))
        assert reply.error == (400, "invalid_id"), text


def test_a_malformed_identifier_of_an_app_is_400(alice, shop, bot):
    for text in NOT_IDENTIFIERS:
        named = text.format(id=shop.id)
        for path in (f"/bots?app_id={named}", f"/bots/{bot.id}?app_id={named}"):
            reply = alice.get(path)
            assert reply.error == (400, "invalid_parameter"), text
            assert reply.message.startswith("app_id: ")


def test_the_app_is_required_exactly_once(alice, shop, bot):
    for path in ("/bots", f"/bots/{bot.id}"):
        missing = alice.get(path)
        assert (missing.error, missing.message) == ((400, "invalid_parameter"), "app_id: required.")
        twice = alice.get(f"{path}?app_id={shop.id}&app_id={shop.id}")
        assert (twice.error, twice.message) == ((400, "invalid_parameter"), "app_id: given more than once.")


def test_an_unknown_bot_or_app_is_404(alice, shop, bot):
    with nothing_changes():
        assert alice.get(f"/bots/{UNKNOWN}?app_id={shop.id}").error == (404, "bot_not_found")
        assert alice.get(f"/bots/{bot.id}?app_id={UNKNOWN}").error == (404, "bot_not_found")
    assert alice.get(f"/bots/{bot.id}?app_id={shop.id}").status == 200


def test_identifier_existence_and_query_are_checked_in_this_order(alice, shop, bot):
    assert alice.get("/bots/x").error == (400, "invalid_id")
    assert alice.get(f"/bots/{UNKNOWN}").error == (404, "bot_not_found")
    assert alice.get(f"/bots/{bot.id}").error == (400, "invalid_parameter")


# Filters

STAFF = {
    "Ada": {"category": "food", "city": "Bern", "country": "CH", "kind": "bot", "presence": "online"},
    "Bea": {"category": "food", "city": "Bonn", "country": "DE", "kind": "nobot", "presence": "away"},
    "Cid": {"category": "Food", "city": "bern", "country": "ch", "kind": "bot", "presence": "rsvp", "is_featured": 1},
    "Dan": {"category": "law", "city": "", "country": "", "kind": "bot", "presence": "offline", "tagline": "a lawyer"},
    "Eva": {"category": "law & order", "city": "Köln", "country": "DEU", "presence": "online", "is_featured": 1},
}

FILTERED = [
    ({}, "Cid Eva Ada Bea Dan"),
    ({"category": "food"}, "Ada Bea"),
    ({"category": "Food"}, "Cid"),
    ({"category": "foo"}, ""),
    ({"category": "food "}, ""),
    ({"category": "f%"}, ""),
    ({"category": "law & order"}, "Eva"),
    ({"category": ""}, "Cid Eva Ada Bea Dan"),
    ({"city": "Bern"}, "Ada"),
    ({"city": "BERN"}, ""),
    ({"city": "Ber"}, ""),
    ({"city": "Köln"}, "Eva"),
    ({"city": ""}, "Cid Eva Ada Bea Dan"),
    ({"country": "CH"}, "Cid Ada"),
    ({"country": "ch"}, "Cid Ada"),
    ({"country": "cH"}, "Cid Ada"),
    ({"country": "DE"}, "Bea"),
    ({"country": "fr"}, ""),
    ({"country": ""}, "Cid Eva Ada Bea Dan"),
    ({"kind": "bot"}, "Cid Ada Dan"),
    ({"kind": "nobot"}, "Eva Bea"),
    ({"presence": "online"}, "Eva Ada"),
    ({"presence": "away"}, "Bea"),
    ({"presence": "rsvp"}, "Cid"),
    ({"presence": "offline"}, "Dan"),
    *(({"featured_only": word}, "Cid Eva") for word in ("true", "1", "TRUE", "True")),
    *(({"featured_only": word}, "Cid Eva Ada Bea Dan") for word in ("false", "0", "FALSE")),
    ({"search": "A"}, "Eva Ada Bea Dan"),
    ({"search": "   "}, "Cid Eva Ada Bea Dan"),
    ({"search": "lawyer", "category": "law"}, "Dan"),
    ({"search": "lawyer", "category": "food"}, ""),
    ({"country": "ch", "kind": "bot", "featured_only": "true"}, "Cid"),
    ({"country": "ch", "kind": "bot", "presence": "online", "city": "Bern", "category": "food", "search": "ad"}, "Ada"),
    ({"featured_only": "1", "search": "e", "kind": "nobot", "presence": "online", "city": "Köln"}, "Eva"),
    ({"unknown": "x", "page": "2", "limit": "1", "is_active": "false", "status": "draft"}, "Cid Eva Ada Bea Dan"),
]


@pytest.fixture
def staff(add):
    with db.write():
        for name, columns in STAFF.items():
            add(name, **columns)


@pytest.mark.parametrize(("query", "expected"), FILTERED)
def test_filters_select_bots(query, expected, alice, shop, staff):
    assert names(alice, shop, **query) == expected.split()
    bots = {bot.id: bot.name for bot in Bot.select()}
    assert [bots[id] for id in on_a_walk(alice, shop, per_page=1, **query)] == expected.split()


REFUSED = {
    "country": ("D", "DEU", "D1", "49", "ÄÖ", "d e", " DE", "DE ", "%", "ﬁ"),
    "kind": ("", "Bot", "robot", "bot ", "bot,nobot", "null"),
    "presence": ("", "ONLINE", "busy", "on line"),
    "featured_only": ("", "yes", "on", "2", "true ", "null", "-1", "t"),
    "per_page": ("", "ten", "1.5", "1e2", "+5", " 5", "0x10", "٣", "--1", "NaN", "9" * 1001),
    "search": ("\0", "a\0b", b"\xff", b"\xed\xa0\x80"),
    "category": ("\0", b"\xff"),
    "city": ("\0", b"\xff"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_malformed_value_is_400_and_named(name, alice, shop, staff):
    with nothing_changes():
        for value in REFUSED[name]:
            reply = feed(alice, shop, **{name: value})
            assert reply.error == (400, "invalid_parameter"), value
            assert reply.message.startswith(f"{name}: ")


TWICE = {
    "search": "a",
    "category": "food",
    "featured_only": "true",
    "country": "DE",
    "city": "Bern",
    "kind": "bot",
    "presence": "away",
    "per_page": "5",
}


def test_a_repeated_parameter_is_400_and_named(alice, shop, staff):
    for name, value in TWICE.items():
        reply = alice.get(f"/bots?app_id={shop.id}&{name}={value}&{name}={value}")
        assert reply.error == (400, "invalid_parameter")
        assert reply.message == f"{name}: given more than once."


def test_a_repeated_cursor_is_invalid(alice, shop, staff):
    cursor = feed(alice, shop, per_page=1).meta["next_cursor"]
    assert alice.get(f"/bots?app_id={shop.id}&cursor={cursor}&cursor={cursor}").error == (400, "invalid_cursor")


def test_all_malformed_values_are_named_at_once(alice, shop):
    message = feed(alice, "x", kind="x", per_page="x", country="x").message
    assert all(f"{name}: " in message for name in ("app_id", "kind", "per_page", "country"))


HOSTILE = ["' OR 1=1 --", '"; DROP TABLE bot; --', "%", "_", "*", "[a-z]", "\\", "?", ":1", "${x}", "\x1b[0m"]


def test_values_are_never_interpreted_as_sql(alice, shop, staff):
    with nothing_changes():
        for hostile in HOSTILE:
            for name in ("search", "category", "city"):
                assert names(alice, shop, **{name: hostile}) == []


# Search

FOUND = [
    ("tagline", "The best cook", "BEST"),
    ("description", "The best cook", "st co"),
    ("name", "Anna", "NA"),
    ("name", "Anna", "  nn\t\n\u00a0\u3000"),
    ("name", "Anna Lena", "a l"),
    ("name", "ÄRGER", "ärger"),
    ("name", "ärger", "ÄRGER"),
    ("name", unicodedata.normalize("NFD", "ÄRGER"), unicodedata.normalize("NFC", "ärger")),
    ("name", unicodedata.normalize("NFC", "ärger"), unicodedata.normalize("NFD", "ÄRGER")),
    ("name", "Straße", "STRASSE"),
    ("name", "STRASSE", "straße"),
    ("name", "GROẞ", "groß"),
    ("name", "Groß", "s"),
    ("name", "İstanbul", "i̇stanbul"),
    ("name", "İstanbul", "İSTANBUL"),
    ("name", "istanbul", "ISTANBUL"),
    ("name", "ΟΔΥΣΣΕΥΣ", "Οδυσσευς"),
    ("name", "Οδυσσεύς", "ΟΔΥΣΣΕΎΣ"),
    ("name", "Ὀδυσσεύς και", "εύσ"),
    ("name", "ᾼ", "αι"),
    ("name", "ﬁsh", "FI"),
    ("name", "ПРИВЕТ", "привет"),
    ("name", "ᏣᎳᎩ", "ꮳꮃꭹ"),
    ("name", "𐐀", "𐐨"),
    ("name", "こんにちは世界", "世界"),
    ("name", "한국어", unicodedata.normalize("NFD", "한국")),
    ("name", "🤖 robot 👩🏽‍🚀", "👩🏽‍🚀"),
    ("name", "100% sure", "0% S"),
    ("name", "snake_case", "E_c"),
    ("name", "back\\slash", "\\S"),
    ("name", 'O\'Neil "x"', "o'neil \""),
    ("description", "one\ntwo", "ONE\nTWO"),
    ("description", "x" * 9_999 + "é", "xÉ"),
]

MISSED = [
    ("name", "Anna", "anne"),
    ("name", "snakeXcase", "e_c"),
    ("name", "100 sure", "0% s"),
    ("name", "Anna", "a*"),
    ("name", "Ärger", "arger"),
    ("name", "Anna", "an na"),
    ("name", "backslash", "\\s"),
    ("slug", "anna", "anna"),
    ("category", "anna", "anna"),
    ("city", "anna", "anna"),
    ("contact_email", "anna@example.com", "anna"),
]


def test_a_search_ignores_case(alice, shop, add, take_in):
    for member, text, search in FOUND:
        Bot.delete().execute()
        add("Other")
        made = add(**{"name": "Made", member: text})
        assert take_in({"status": "published", "name": "Taken in", member: text}) == []
        found = {bot["id"] for bot in feed(alice, shop, search=search).data}
        assert len(found) == 2, search
        assert made.id in found


def test_a_search_finds_matching_bots_only(alice, shop, add):
    for member, text, search in MISSED:
        Bot.delete().execute()
        add(**{"name": "Made", member: text})
        assert names(alice, shop, search=search) == [], search


PARTING = ["", " ", "\n", "\nA\n", "\na\n", "A", "\t", "\x1f", "|", "\\n", "\u0301", "\u2028"]


def test_a_match_does_not_span_two_members(alice, shop, add):
    add("Hilda", tagline="helps", description="everyone")
    for between in PARTING:
        for search in (f"Hilda{between}helps", f"a{between}h", f"helps{between}everyone", f"s{between}e"):
            assert names(alice, shop, search=search) == [], between
    assert names(alice, shop, search="HELPS") == ["Hilda"]


def test_members_are_separated_in_the_search_text(alice, shop, add):
    add("Hilda", tagline="\u0301x")
    assert names(alice, shop, search="hilda") == ["Hilda"]
    assert names(alice, shop, search="á") == []


def test_a_member_can_contain_the_separator(alice, shop, add):
    add("x\nA\ny", tagline="z")
    assert names(alice, shop, search="X\nA\nY") == ["x\nA\ny"]
    assert names(alice, shop, search="y\na\nz") == []


def test_a_very_long_search_finds_nothing(alice, shop, bot):
    assert names(alice, shop, search="ß" * 100_000) == []


@given(some.text(max_size=12), some.text(max_size=6))
def test_folding_ignores_case_and_composition(text, more):
    folded = validators.fold(text)
    assert validators.fold(folded) == folded
    for form in ("NFC", "NFD"):
        assert validators.fold(unicodedata.normalize(form, text)) == folded
    assert validators.fold(text.casefold()) == folded
    assert not any("A" <= letter <= "Z" for letter in folded)
    assert folded in validators.fold(f"{more}\n{text}\n{more}")


# Pages


SIZES = [(1, 1), (24, 24), (25, 25), (26, 26), (99, 99), (100, 100), (101, 100), (0, 1), (-1, 1), ("9" * 900, 100)]


def test_a_page_has_25_bots_by_default_and_at_most_100(alice, shop, add):
    with db.write():
        for number in range(102):
            add(f"{number:03}")
    for query, used in (({}, 25), *(({"per_page": per_page}, used) for per_page, used in SIZES)):
        reply = feed(alice, shop, **query)
        assert [bot["name"] for bot in reply.data] == [f"{number:03}" for number in range(used)]
        assert set(reply.meta) == {"next_cursor", "per_page"}
        assert (reply.meta["per_page"], type(reply.meta["next_cursor"])) == (used, str)
        assert reply.meta["next_cursor"]


def test_the_last_page_has_no_next_cursor(alice, shop, add):
    for sizes in ([0], [1], [2], [2, 1], [2, 2], [2, 2, 1]):
        assert [len(page) for page in pages(alice, shop, per_page=2)] == sizes
        add()


ALIKE = [0.1 + 0.2, 0.3, 1 / 3, 0.0, -1.5, 1e300, -1e300, 5.0, 4.999999999999999, 5e-324, 2.0**53]


def alike(number: int, app: App) -> list[Bot]:
    """Bots of which many share a place in the order."""
    dice = random.Random(number)
    rows = [
        {
            "app_id": app.id,
            "status": "published",
            "is_featured": dice.random() < 0.3,
            "rating": dice.choice(ALIKE),
            "name": dice.choice(["", "a", "A", "Ä", "a\n", "a,\n", "é", "\uffff", "𐐀", "'", '"', "\\"]),
            "kind": dice.choice(["bot", "nobot"]),
        }
        for _ in range(number)
    ]
    Bot.insert_many(rows).execute()
    return list(Bot.select())


@pytest.mark.parametrize("size", [1, 3, 7, 50, 100])
def test_a_walk_returns_every_bot_once_and_in_order(size, alice, shop):
    bots = alike(101, shop)
    assert on_a_walk(alice, shop, per_page=size) == in_order(bots)
    featured = [bot for bot in bots if bot.is_featured]
    assert on_a_walk(alice, shop, per_page=size, featured_only="true") == in_order(featured)
    of_a_kind = [bot for bot in bots if bot.kind == "bot"]
    assert on_a_walk(alice, shop, per_page=size, kind="bot") == in_order(of_a_kind)


LETTERS = some.characters(codec="utf-8", exclude_characters="\0")


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(
    rows=some.lists(
        some.tuples(
            some.booleans(),
            some.sampled_from(ALIKE) | some.floats(allow_nan=False, allow_infinity=False),
            some.sampled_from(["", "a", "b"]) | some.text(LETTERS, max_size=3),
        ),
        max_size=12,
    ),
    size=some.integers(1, 5),
)
def test_a_walk_is_sorted(rows, size, alice, shop):
    with db.write():
        Bot.delete().execute()
        for featured, rating, name in rows:
            Bot.create(app_id=shop.id, status="published", is_featured=featured, rating=rating, name=name)
    assert on_a_walk(alice, shop, per_page=size) == in_order(list(Bot.select()))


def test_a_walk_is_complete_with_imported_ratings(alice, shop, take_in):
    ratings = (1 / 3, 0.1 + 0.2, 1e22 / 3, -1 / 7, 1.797693134862315e308, 5e-324)
    assert take_in(*({"status": "published", "rating": rating} for rating in ratings * 4)) == []
    assert on_a_walk(alice, shop, per_page=1) == in_order(list(Bot.select()))


def test_unchanged_bots_are_returned_once_and_in_order(alice, shop, add):
    bots = [add(f"{number:02}", rating=number % 3, is_featured=number % 2) for number in range(30)]
    met, moved, removed = [], bots[4], bots[5]
    for number, page in enumerate(pages(alice, shop, per_page=4)):
        met += [bot["id"] for bot in page]
        add(f"new {number}", rating=number % 3, is_featured=number % 2)
        if number == 1:
            Bot.update(rating=9).where(Bot.id == moved.id).execute()
            Bot.update(is_active=False).where(Bot.id == removed.id).execute()
    still = [bot for bot in bots if bot not in (moved, removed)]
    assert [id for id in met if id in {bot.id for bot in still}] == in_order(still)
    assert len(met) == len(set(met))


def test_a_walk_continues_when_the_bot_of_the_cursor_is_deleted(alice, shop, add):
    bots = [add(f"{number:02}") for number in range(6)]
    cursor = feed(alice, shop, per_page=3).meta["next_cursor"]
    Bot.delete().where(Bot.id == bots[2].id).execute()
    assert names(alice, shop, cursor=cursor) == ["03", "04", "05"]


@pytest.mark.parametrize("rating", [9, -9])
def test_a_bot_that_moves_during_a_walk_is_returned_at_its_new_place(rating, alice, shop, add):
    bots = [add(f"{number:02}", rating=5) for number in range(6)]
    cursor = feed(alice, shop, per_page=3).meta["next_cursor"]
    for index in (1, 4):
        Bot.update(rating=rating).where(Bot.id == bots[index].id).execute()
    assert names(alice, shop, cursor=cursor) == (["03", "05"] if rating > 5 else ["03", "05", "01", "04"])


def test_the_page_size_can_change_during_a_walk(alice, shop, add):
    with db.write():
        for number in range(9):
            add(f"{number:02}")
    first = feed(alice, shop, per_page=2)
    second = feed(alice, shop, per_page=5, cursor=first.meta["next_cursor"])
    third = feed(alice, shop, cursor=second.meta["next_cursor"])
    met = [bot["name"] for reply in (first, second, third) for bot in reply.data]
    assert met == [f"{number:02}" for number in range(9)]
    assert (second.meta["per_page"], third.meta) == (5, {"next_cursor": "", "per_page": 25})


def test_an_empty_cursor_is_the_first_page(alice, shop, staff):
    assert names(alice, shop, cursor="") == names(alice, shop)


def test_a_cursor_can_be_reused_and_survives_a_restart(alice, shop, staff, settings):
    cursor = feed(alice, shop, per_page=2).meta["next_cursor"]
    assert names(alice, shop, cursor=cursor) == names(alice, shop, cursor=cursor) == ["Ada", "Bea", "Dan"]
    db.close_database()
    assert names(alice, shop, cursor=cursor) == ["Ada", "Bea", "Dan"]


def test_a_cursor_is_valid_for_the_app_in_another_case(alice, shop, staff):
    cursor = feed(alice, shop, per_page=4, country="").meta["next_cursor"]
    assert names(alice, shop.id.upper(), cursor=cursor) == ["Dan"]


FOREIGN = [
    {"search": "a"},
    {"category": "food"},
    {"featured_only": "true"},
    {"country": "CH"},
    {"city": "Bern"},
    {"kind": "bot"},
    {"presence": "online"},
    {"app_id": UNKNOWN},
]


@pytest.mark.parametrize("other", FOREIGN)
def test_a_cursor_is_bound_to_its_filters(other, alice, shop, staff, add):
    for name, columns in STAFF.items():  # more of each, so that every list has a second page
        add(f"{name}a", **columns)
    plain = feed(alice, shop, per_page=1).meta["next_cursor"]
    assert feed(alice, shop, cursor=plain, **other).error == (400, "invalid_cursor")
    if "app_id" not in other:
        filtered = feed(alice, shop, per_page=1, **other).meta["next_cursor"]
        assert feed(alice, shop, cursor=filtered, **other).status == 200
        assert feed(alice, shop, cursor=filtered).error == (400, "invalid_cursor")


def test_a_cursor_is_bound_to_its_caller(alice, bob, shop, staff):
    cursor = feed(alice, shop, per_page=1).meta["next_cursor"]
    with nothing_changes():
        assert feed(bob, shop, cursor=cursor).error == (400, "invalid_cursor")
    assert feed(alice, shop, cursor=cursor).status == 200


def test_a_cursor_of_another_list_is_invalid(alice, shop, staff, session, say):
    say("one")
    say("two")
    foreign = alice.get(f"/chats/{session.id}/messages?limit=1").meta["next_cursor"]
    assert feed(alice, shop, cursor=foreign).error == (400, "invalid_cursor")


def test_a_malformed_cursor_is_400(alice, shop, staff):
    for text in ("x", "null", "e30.x", " ", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "ä", b"\xff", "\0", "." * 10_000):
        assert feed(alice, shop, cursor=text).error == (400, "invalid_cursor")


def test_an_altered_cursor_is_400(alice, shop, staff):
    cursor = feed(alice, shop, per_page=1).meta["next_cursor"]
    for place in range(0, len(cursor), 7):
        altered = cursor[:place] + ("A" if cursor[place] != "A" else "B") + cursor[place + 1 :]
        assert feed(alice, shop, cursor=altered).error == (400, "invalid_cursor")
    for altered in (cursor[:-1], cursor + "A", cursor + "=", cursor.lower(), f" {cursor}", f"{cursor}\n"):
        assert feed(alice, shop, cursor=altered).error == (400, "invalid_cursor")


# Searches follow what is taken in


def test_a_replaced_bot_is_found_by_its_new_text_only(alice, shop, take_in):
    kept = {"id": FULL["id"], "status": "published"}
    assert take_in({**kept, "name": "Old", "tagline": "STRASSE", "description": "x"}) == []
    assert names(alice, shop, search="straße") == ["Old"]
    assert take_in({**kept, "name": "New", "description": "ÄPFEL"}) == []
    assert (names(alice, shop, search="old"), names(alice, shop, search="straße")) == ([], [])
    assert (names(alice, shop, search="new"), names(alice, shop, search="äpfel")) == (["New"], ["New"])
    assert take_in(kept) == []
    assert names(alice, shop, search="new") == []
    assert names(alice, shop) == [""]


def test_an_import_that_fails_leaves_searches_alone(alice, shop, take_in):
    kept = {"id": FULL["id"], "status": "published"}
    assert take_in({**kept, "name": "Old"}) == []
    with nothing_changes():
        assert take_in({**kept, "name": "New"}, {"name": "Bad", "rating": "5"}) != []
    assert names(alice, shop, search="old") == ["Old"]


def test_a_saved_bot_is_found_by_its_new_text_only(alice, shop, bot):
    bot.name = "Gerda"
    bot.save()
    assert (names(alice, shop, search="hilda"), names(alice, shop, search="GERDA")) == ([], ["Gerda"])


def test_the_search_text_is_never_returned(alice, shop, bot):
    exported: list[bytes] = []
    import_export.export(exported.append)
    for raw in (*exported, feed(alice, shop).raw, alice.get(f"/bots/{bot.id}?app_id={shop.id}").raw):
        assert b"search_text" not in raw


@pytest.fixture
def older(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database of a release that knew neither searches nor the feed's index, with three bots."""
    db.open_database(settings.data, settings.database, create=True)
    with monkeypatch.context() as then:
        then.setattr(migrations, "STEPS", (step_1.STATEMENTS,))
        assert migrations.migrate() == 1
    db.database.execute_sql("INSERT INTO app VALUES ('" + UNKNOWN + "', 'Shop')")
    for number, rating in enumerate((1 / 3, 1 / 3, 1.7976931348623157e308)):
        row = {**FULL, "id": clock.uuid(), "app_id": UNKNOWN, "name": f"KÄTHE {number}", "rating": rating}
        row["social_links"] = "[]"
        marks = ", ".join([db.database.param] * len(row))
        db.database.execute_sql(f"INSERT INTO bot ({', '.join(row)}) VALUES ({marks})", list(row.values()))
    db.close_database()


class TestBotsOfAnOlderDatabase:
    @pytest.fixture
    def settings(self, tmp_path: Path) -> Settings:
        """Those of an installation of its own."""
        return settings_at(tmp_path / "data")

    def test_are_found(self, older, alice):
        assert names(alice, UNKNOWN, search="käthe 1") == ["KÄTHE 1"]
        assert names(alice, UNKNOWN, search="DOGS") == ["KÄTHE 2", "KÄTHE 0", "KÄTHE 1"]
        assert names(alice, UNKNOWN, search="0\nknows") == []

    def test_are_equal_to_newly_imported_ones(self, older, application):
        found = {bot.id: (bot.rating, bot.search_text) for bot in Bot.select()}
        for bot in Bot.select():
            bot.save()
        assert found == {bot.id: (bot.rating, bot.search_text) for bot in Bot.select()}
        assert {rating for rating, _ in found.values()} == {0.333333333333333, 1.79769313486231e308}


# Speed


def test_the_index_of_the_feed_covers_filters_and_order(application):
    """Else every bot that a filter leaves out would be fetched for its sake; PostgreSQL fetches them, see step 2."""
    elsewhere = {"search": "search_text", "featured_only": "is_featured"}
    filters = {"app_id"} if is_chosen() else set(BotsQuery.__struct_fields__) - {"cursor", "per_page"}
    (index,) = [index for index in db.database.get_indexes("bot") if index.name == "bot_feed"]
    order = {"is_featured", "rating", "name", "id"}
    assert {name.partition(" ")[0] for name in index.columns} == {elsewhere.get(name, name) for name in filters} | order


EVERY_FILTER = {"search": "a", "category": "food", "country": "CH", "city": "Bern", "kind": "bot", "presence": "online"}


@pytest.mark.parametrize("chosen", [*EVERY_FILTER, "featured_only", "nothing", "everything"])
@pytest.mark.parametrize("analyzed", [False, True])
def test_every_page_uses_the_index_of_the_feed(analyzed, chosen, alice, shop, staff, add):
    query = {"everything": EVERY_FILTER, "nothing": {}, "featured_only": {"featured_only": "true"}}
    filters: dict[str, str] = query.get(chosen) or {name: EVERY_FILTER[name] for name in {chosen} - {"nothing"}}
    for _ in range(3):
        add("Ada", **STAFF["Ada"], is_featured=True)
    if analyzed:
        db.database.execute_sql("ANALYZE")
    cursor = feed(alice, shop, per_page=1, **filters).meta["next_cursor"]
    assert cursor
    for position in ({}, {"cursor": cursor}):
        with statements() as seen:
            assert names(alice, shop, per_page=1, **filters, **position)
        (page,) = filter(reads_a_page, seen)
        plan = query_plan(*page)
        assert plan.ranges == ["bot_feed"] * (4 if position else 1), plan
        assert (plan.scans, plan.sorts) == ([], False), plan


@pytest.fixture
def crowd(shop: App) -> Callable[[int], None]:
    """Give the shop so many bots in all, of about 200 characters each and one of them with an unheard-of word."""
    dice = random.Random(7)
    words = ["".join(dice.choices("abcdefghiklmnoprstuw", k=dice.randint(3, 9))) for _ in range(2_000)]

    def row(number: int) -> tuple[Any, ...]:
        name, tagline, description = (" ".join(dice.choices(words, k=length)) for length in (3, 6, 20))
        bot = {**FULL, "id": clock.uuid(), "app_id": shop.id, "name": name, "tagline": tagline}
        bot |= {"description": description + (" zyzzyva" if number == 500 else ""), "social_links": "[]"}
        bot |= {"is_featured": dice.random() < 0.02, "rating": round(dice.random() * 5, 1)}
        return *bot.values(), Bot.from_import(bot)["search_text"]

    def grow(total: int) -> None:
        columns = [*FULL, "app_id", "search_text"]
        with db.write():
            db.database.bulk_insert("bot", columns, map(row, range(Bot.select().count(), total)))

    return grow


def costs(client: Client, app: App) -> list[int]:
    """What the pages of a walk cost the database: every one of a short walk, some of a long one."""
    found, cursor, number = [], "", 0
    while cursor or not number:
        query = {"per_page": 100, "cursor": cursor}
        if number < 20 or number % 50 == 0:
            found.append(database_steps(lambda query=query: feed(client, app, **query)))
        cursor, number = feed(client, app, **query).meta["next_cursor"], number + 1
    return found


@pytest.mark.postgresql_only("SQLite has one of its own, see test_trigrams")
def test_a_search_on_postgresql_uses_the_trigram_index(alice, shop, crowd):
    crowd(3_000)
    db.database.execute_sql("VACUUM ANALYZE bot")
    with statements() as seen:
        assert len(names(alice, shop, search="ZYZZYVA")) == 1
    (page,) = filter(reads_a_page, seen)
    lines = [line for (line,) in db.database.execute_sql(f"EXPLAIN {page[0]}", page[1])]
    assert any("Bitmap Index Scan on bot_search" in line for line in lines), lines


@pytest.mark.sqlite_only
@pytest.mark.extended
def test_the_cost_of_a_page_does_not_depend_on_the_number_of_bots(alice, shop, crowd):
    crowd(1_000)
    few = costs(alice, shop)
    few_featured = database_steps(lambda: feed(alice, shop, featured_only="true", per_page=10))
    searching = database_steps(lambda: feed(alice, shop, search="xxx"))
    crowd(MANY)
    many = costs(alice, shop)
    assert len(many) > len(few) == 10
    assert many[0] <= few[0] * 1.05
    assert max(many) <= max(few) * 1.05 <= few[0] * 1.2
    assert database_steps(lambda: feed(alice, shop, featured_only="true", per_page=10)) <= few_featured * 1.05
    # A search has to look at every bot; it looks once.
    assert names(alice, shop, search="xxx") == []
    assert len(names(alice, shop, search="ZYZZYVA")) == 1
    assert database_steps(lambda: feed(alice, shop, search="xxx")) <= searching * 1.05 * MANY / 1_000
