"""Searches of bots with the trigram index: same results as a full scan, with few rows read."""

import json
import random
from collections.abc import Callable
from contextlib import closing
from typing import Any

import peewee
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import app
from service import clock, db, validators
from service.db import Position, trigrams
from service.models import App, Bot
from service.models.bots import search_text_of
from service.operate import backups, database_copy, import_export
from service.settings import Settings
from tests.support.observe import database_steps, query_plan, reads_a_page, statements
from tests.support.released_schemas import make_file

pytestmark = pytest.mark.database


BEGINNING = Position()
HILDA = "00000000-0000-4000-8000-000000000021"  # in the databases of older schemas


@pytest.fixture
def add(shop: App) -> Callable[..., Bot]:
    def add(name: str, tagline: str = "") -> Bot:
        return Bot.create(app_id=shop.id, status="published", name=name, tagline=tagline)

    return add


def found(shop: App, search: str, limit: int = 1_000) -> list[str]:
    """The sorted names of the bots that a search finds; the same for customers and staff."""
    pages = [list_bots(shop.id, BEGINNING, limit, search=search).rows for list_bots in (Bot.feed, Bot.catalogue)]
    public, full = (sorted(bot["name"] for bot in json.loads(bytes(page))) for page in pages)
    assert public == full
    return public


def candidates(text: str) -> list[str]:
    """The candidates of the index, whether they match or not."""
    expression = trigrams.match_expression(Bot.search_text, text)
    assert expression
    return sorted(bot.id for bot in Bot.select().where(db.is_match(Bot, expression)))


# Results

LETTERS = st.sampled_from("aAb\"'%_*^- \nßſ🐈𝔸\u0301\uffff")
WORDS = st.text(LETTERS, max_size=7)


@pytest.mark.parametrize("limit", [0, 2, trigrams.MAX_CANDIDATES])
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
@given(texts=st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=8), searches=st.lists(WORDS, max_size=4))
@pytest.mark.slow
def test_a_search_finds_the_same_bots_as_a_full_scan(limit, texts, searches, shop, monkeypatch):
    monkeypatch.setattr(trigrams, "MAX_CANDIDATES", limit)
    with db.write():
        Bot.delete().execute()
        for number, (name, tagline, description) in enumerate(texts):
            columns = {"name": f"{number}{name}", "tagline": tagline, "description": description}
            Bot.create(app_id=shop.id, status="published", **columns)
    indexed = {bot.name: search_text_of((bot.name, bot.tagline, bot.description)) for bot in Bot.select()}
    for search in [*searches, *(text[1:] for text in texts[0])] if texts else searches:
        folded = validators.fold(search.strip())
        assert found(shop, search) == sorted(name for name, text in indexed.items() if folded in text)


def test_pages_of_results_contain_every_bot_once(add, shop):
    for number in range(9):
        add(f"parcel {number}")
        add(f"letter {number}")
    after, names = BEGINNING, []
    while not names or after.key:
        page = Bot.feed(shop.id, after, 4, search="PARCEL")
        names += [bot["name"] for bot in json.loads(bytes(page.rows))]
        after = Position(2, page.next_key)
    assert names == [f"parcel {number}" for number in range(9)]


def test_a_bot_with_all_trigrams_but_not_the_text_is_not_found(add, shop):
    add("abcd bcda", "cdab dabc")
    add("abcdabc")
    assert found(shop, "abcdabc") == ["abcdabc"]


def test_the_index_does_not_expose_drafts_or_bots_of_other_apps(add, shop, other_shop):
    """It contains all bots; the access rules apply to its results."""
    add("narwhal")
    other = Bot.create(app_id=other_shop.id, status="published", name="narwhal of another app")
    Bot.create(app_id=shop.id, status="draft", name="narwhal draft")
    Bot.create(app_id=shop.id, status="published", is_active=False, name="narwhal inactive")

    def names(list_bots, app):
        return {bot["name"] for bot in json.loads(bytes(list_bots(app.id, BEGINNING, 10, search="narwhal").rows))}

    assert names(Bot.feed, shop) == {"narwhal"}
    assert names(Bot.catalogue, shop) == {"narwhal", "narwhal draft", "narwhal inactive"}
    assert names(Bot.feed, other_shop) == names(Bot.catalogue, other_shop) == {other.name}


WAYS = {  # MAX_CANDIDATES, and the steps after which reading the list is given up
    "index": (10_000, 10**6),
    "list": (-1, 10**6),
    "list, given up": (-1, 100),
    "as chosen": (trigrams.MAX_CANDIDATES, trigrams.MAX_STEPS),
    "as chosen, given up": (trigrams.MAX_CANDIDATES, 100),
}


@pytest.mark.sqlite_only
def test_pages_are_the_same_in_whichever_way_they_are_found(add_random_bots, shop, monkeypatch):
    vocabulary = add_random_bots(600)
    searches = [*vocabulary[::6], f"{vocabulary[0]} {vocabulary[1]}", vocabulary[0][:2], "absent"]
    interrupted = dict.fromkeys(WAYS, 0)

    def pages(list_bots: Callable[..., Any], search: str, way: str) -> list[bytes]:
        after, found = BEGINNING, []
        while not found or after.key:
            with statements() as seen:
                page = list_bots(shop.id, after, 25, search=search)
            interrupted[way] += sum(map(reads_a_page, seen)) - 1
            found.append(bytes(page.rows))
            after = Position(after.number + 1, page.next_key)
        return found

    for search in searches:
        for list_bots in Bot.feed, Bot.catalogue:
            found = []
            for way, (candidates, steps) in WAYS.items():
                monkeypatch.setattr(trigrams, "MAX_CANDIDATES", candidates)
                monkeypatch.setattr(trigrams, "MAX_STEPS", steps)
                monkeypatch.setattr("service.db.sqlite.PROGRESS_STEPS", min(steps, 20_000))
                found.append(pages(list_bots, search, way))
            assert found == [found[0]] * len(WAYS), search
    assert [way for way, number in interrupted.items() if number] == ["list, given up", "as chosen, given up"]


# Updates of the index


@pytest.mark.sqlite_only
class TestIndex:
    def test_is_updated_on_insert_update_and_delete(self, add, shop):
        bot, other = add("narwhal"), add("walrus")
        assert (candidates("narwhal"), candidates("walrus")) == ([bot.id], [other.id])
        bot.name = "Walrus"
        bot.save()
        assert (candidates("narwhal"), candidates("walrus")) == ([], sorted([bot.id, other.id]))
        Bot.delete().where(Bot.id == other.id).execute()
        assert candidates("walrus") == [bot.id]

    def test_is_updated_by_all_kinds_of_statements(self, add, shop):
        bot, id = add("narwhal"), clock.uuid()
        numbers = "SELECT number FROM bot_number"
        before = db.database.execute_sql(numbers).fetchall()
        Bot.update(search_text="walrus").execute()
        assert db.database.execute_sql(numbers).fetchall() == before  # otherwise searches read deleted entries
        assert (candidates("narwhal"), candidates("walrus")) == ([], [bot.id])
        Bot.update(id=id).execute()
        assert candidates("walrus") == [id]
        columns = ", ".join(column.sql for column in Bot._meta.sorted_fields)
        text = columns.replace('"search_text"', "'narwhal'")
        db.database.execute_sql(f"INSERT OR REPLACE INTO bot ({columns}) SELECT {text} FROM bot")
        assert candidates("narwhal") == [id]
        Bot.delete().execute()
        assert candidates("narwhal") == candidates("walrus") == []

    def test_is_restored_by_a_rollback(self, add, shop):
        add("narwhal")
        with pytest.raises(KeyError), db.write():
            Bot.update(search_text="walrus").execute()
            add("walrus")
            raise KeyError
        assert (len(candidates("narwhal")), candidates("walrus")) == (1, [])

    def test_is_updated_by_an_import_with_duplicate_bots(self, shop, tmp_path, monkeypatch):
        monkeypatch.setattr("service.db.sqlite.ROWS", 4)
        ids = [clock.uuid() for _ in range(10)]
        bots = [{"id": id, "app_id": shop.id, "name": name} for name in ("narwhal", "walrus") for id in ids]
        file = tmp_path / "bots.jsonl"
        file.write_text("".join(json.dumps({"bot": bot}) + "\n" for bot in bots))
        for _ in range(2):
            assert import_export.import_files([file]) == []
            assert (candidates("narwhal"), candidates("walrus")) == ([], sorted(ids))

    def test_survives_a_rewrite_of_the_file(self, add, shop, settings, tmp_path):
        deleted, bot = add("walrus"), add("narwhal")
        Bot.delete().where(Bot.id == deleted.id).execute()
        db.rewrite_files()
        assert candidates("narwhal") == [bot.id]
        db.database.write_copy(tmp_path / db.FILE_NAME)
        db.open_database(tmp_path)
        assert candidates("narwhal") == [bot.id]

    def test_is_built_by_a_database_copy(self, add, shop, tmp_path):
        bot = add("narwhal")
        database_copy.copy(db.database.obj, db.Sqlite(tmp_path / "copy", create=True))
        assert candidates("narwhal") == [bot.id]

    def test_is_built_by_the_migration_of_an_older_database(self, tmp_path):
        make_file(tmp_path / "data", 4)
        app.prepare(Settings(data=tmp_path / "data"), create=True)
        assert candidates("strasse") == [HILDA]
        db.close_database()


@pytest.mark.sqlite_only
def test_a_backup_may_contain_only_the_triggers_of_the_index(shop, tmp_path):
    path = tmp_path / "copy.db"
    db.database.write_copy(path)
    assert backups.examine(path).rows == database_copy.count_rows(db.database.obj)
    with closing(db.open_file(path)) as connection:
        connection.execute("DROP TRIGGER bot_inserted")
        connection.execute("CREATE TRIGGER bot_inserted AFTER INSERT ON message BEGIN DELETE FROM bot; END")
    with pytest.raises(backups.BackupError, match="has the trigger bot_inserted"):
        backups.examine(path)


# Cost


@pytest.fixture
def add_bots(shop: App) -> Callable[[int], None]:
    """Add bots to the shop up to a total: five with a rare word, the others with a common word."""

    def add(total: int) -> None:
        names = [column.name for column in Bot._meta.sorted_fields]
        rows = []
        for number in range(Bot.select().count(), total):
            columns = {
                "name": f"bot {number:05}",
                "tagline": "narwhal" if number < 5 else "parcel",
                "status": "published",
            }
            bot = Bot(app_id=shop.id, search_text=search_text_of(columns.values()), **columns)
            rows.append([bot.__data__.get(name, "[]") for name in names])
        with db.bulk_write():
            db.database.bulk_insert("bot", [f'"{name}"' for name in names], rows)

    return add


@pytest.fixture
def add_random_bots(shop: App) -> Callable[[int], list[str]]:
    """Add bots with words of very different frequencies. Returns the words, the most frequent first."""

    def add(total: int) -> list[str]:
        chance = random.Random(total)
        vocabulary = ["".join(chance.choices("aeioubdgklmnrst", k=5)) for _ in range(120)]
        weights = [1 / (place + 1) ** 1.5 for place in range(len(vocabulary))]
        with db.write():
            for number in range(total):
                texts = (" ".join(chance.choices(vocabulary, weights, k=size)) for size in (2, 4, 12))
                Bot.create(
                    **dict(zip(("name", "tagline", "description"), texts, strict=True)),
                    app_id=shop.id,
                    status="published" if number % 7 else "draft",
                    rating=chance.randrange(5),
                    is_featured=number % 50 == 0,
                )
        return vocabulary

    return add


def plan(shop: App, search: str, after: Position = BEGINNING) -> Any:
    """The query plan of a page of results."""
    with statements() as seen:
        Bot.feed(shop.id, after, 2, search=search)
    (page,) = filter(reads_a_page, seen)
    return query_plan(*page)


@pytest.mark.sqlite_only
def test_search_for_a_rare_word_needs_fewer_steps_than_bots(add_bots, shop):
    add_bots(3_000)
    assert found(shop, "narwhal") == [f"bot {number:05}" for number in range(5)]
    for list_bots in Bot.feed, Bot.catalogue:
        assert database_steps(lambda list_bots=list_bots: list_bots(shop.id, BEGINNING, 10, search="Narwhal")) < 3_000
        assert database_steps(lambda list_bots=list_bots: list_bots(shop.id, BEGINNING, 10, search="na")) > 3_000


@pytest.mark.sqlite_only
@pytest.mark.parametrize("analyzed", [False, True])
def test_few_candidates_are_read_by_key_and_many_in_the_order_of_the_list(analyzed, add_bots, shop):
    add_bots(trigrams.MAX_CANDIDATES + 10)
    if analyzed:
        db.database.execute_sql("ANALYZE")
    second_page = Position(2, Bot.feed(shop.id, BEGINNING, 2, search="narwhal").next_key)
    for after, parts in (BEGINNING, 1), (second_page, 4):
        few = plan(shop, "narwhal", after)
        assert few.ranges[-1] == "sqlite_autoindex_bot_1"  # one part can also be a range of the feed
        assert len(few.ranges) == parts and all("bot_trigrams VIRTUAL TABLE INDEX" in scan for scan in few.scans)
        for many in ("parcel", "na", "bot 0"):
            assert plan(shop, many, after).ranges == ["bot_feed"] * parts


@pytest.mark.sqlite_only
def test_reading_the_list_is_given_up_if_the_matches_are_at_its_end(add_bots, shop, monkeypatch):
    add_bots(1_500)
    monkeypatch.setattr(trigrams, "MAX_STEPS", 4_000)
    monkeypatch.setattr("service.db.sqlite.PROGRESS_STEPS", 2_000)
    for names, ways in (("bot 014", ["bot_feed", "sqlite_autoindex_bot_1"]), ("bot 000", ["bot_feed"])):
        Bot.update(search_text="walrus").where(Bot.name.startswith(names)).execute()
        with statements() as seen:
            page = Bot.feed(shop.id, BEGINNING, 25, search="walrus")
        assert json.loads(bytes(page.rows))[0]["name"] == f"{names}00"
        assert [query_plan(*statement).ranges[-1] for statement in filter(reads_a_page, seen)] == ways


@pytest.mark.sqlite_only
def test_reading_the_list_ends_with_the_time_budget_of_the_event_loop(add_bots, shop, monkeypatch):
    add_bots(1_500)
    Bot.update(search_text="walrus").where(Bot.name.startswith("bot 014")).execute()
    monkeypatch.setattr("service.db.sqlite.PROGRESS_STEPS", 100)
    monkeypatch.setattr("service.db.time_budget.MAX_PROCESSOR_SECONDS", -1)
    with db.inline_read(), pytest.raises(peewee.OperationalError, match="interrupted"):
        Bot.feed(shop.id, BEGINNING, 25, search="walrus")
    assert len(found(shop, "walrus", 200)) == 100


@pytest.mark.sqlite_only
@pytest.mark.parametrize("search", ["x" * 200, "bot 00001 " * 20, "".join(map(chr, range(0x1F300, 0x1F3C8)))])
def test_at_most_a_few_trigrams_are_looked_up(search, add_bots, shop):
    add_bots(3)
    with statements() as seen:
        found(shop, search)
    expressions = [values[0] for sql, values in seen if sql.startswith("SELECT count(*) FROM (")]
    assert expressions and all(text.count(" AND ") < trigrams.MAX_TRIGRAMS for text in expressions)


@pytest.mark.sqlite_only
def test_a_search_runs_on_the_event_loop(add_bots, shop):
    add_bots(50)
    with db.inline_read():
        assert len(found(shop, "narwhal")) == 5
