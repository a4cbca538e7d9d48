"""Searches of bots by the index of trigrams: they find what a look at every bot finds, and look at few."""

import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as some

import app
from service import backups, clock, copying, db, formats, transfer
from service.db import Position, trigrams
from service.models import App, Bot
from service.models.bots import searchable
from service.settings import Settings
from tests.postgres import on_sqlite_alone
from tests.test_upgrades import make_file
from tests.watching import database_steps, is_of_a_page, query_plan, statements

BEGINNING = Position()
HILDA = "00000000-0000-4000-8000-000000000021"  # of the older databases


@pytest.fixture
def add(shop: App) -> Callable[..., Bot]:
    def add(name: str, tagline: str = "") -> Bot:
        return Bot.create(app_id=shop.id, status="published", name=name, tagline=tagline)

    return add


def found(shop: App, search: str, limit: int = 1_000) -> list[str]:
    """The names of the bots that a search finds, by name; customers and staff find the same."""
    pages = [which(shop.id, BEGINNING, limit, search=search).rows for which in (Bot.feed, Bot.kept_by)]
    shown, kept = (sorted(bot["name"] for bot in json.loads(bytes(page))) for page in pages)
    assert shown == kept
    return shown


def candidates(text: str) -> list[str]:
    """The bots to which the index leads, found or not."""
    asked = db.clue(Bot.search_text, text)
    assert asked
    return sorted(bot.id for bot in Bot.select().where(db.among(Bot, asked)))


# What is found

LETTERS = some.sampled_from("aAb\"'%_*^- \nßſ🐈𝔸\u0301\uffff")
WORDS = some.text(LETTERS, max_size=7)


@pytest.mark.parametrize("most", [0, 2, trigrams.CANDIDATES])
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
@given(texts=some.lists(some.tuples(WORDS, WORDS, WORDS), max_size=8), searches=some.lists(WORDS, max_size=4))
def test_a_search_finds_what_a_look_at_every_bot_finds(most, texts, searches, shop, monkeypatch):
    monkeypatch.setattr(trigrams, "CANDIDATES", most)
    with db.write():
        Bot.delete().execute()
        for number, (name, tagline, description) in enumerate(texts):
            told = {"name": f"{number}{name}", "tagline": tagline, "description": description}
            Bot.create(app_id=shop.id, status="published", **told)
    known = {bot.name: searchable((bot.name, bot.tagline, bot.description)) for bot in Bot.select()}
    for search in [*searches, *(text[1:] for text in texts[0])] if texts else searches:
        sought = formats.fold(search.strip())
        assert found(shop, search) == sorted(name for name, text in known.items() if sought in text)


def test_a_walk_through_what_is_found_meets_every_bot_once(add, shop):
    for number in range(9):
        add(f"parcel {number}")
        add(f"letter {number}")
    after, met = BEGINNING, []
    while not met or after.key:
        page = Bot.feed(shop.id, after, 4, search="PARCEL")
        met += [bot["name"] for bot in json.loads(bytes(page.rows))]
        after = Position(2, page.next_key)
    assert met == [f"parcel {number}" for number in range(9)]


def test_a_bot_that_holds_all_pieces_and_not_the_word_is_not_found(add, shop):
    add("abcd bcda", "cdab dabc")
    add("abcdabc")
    assert found(shop, "abcdabc") == ["abcdabc"]


def test_the_index_leads_nobody_to_bots_of_another_app_or_to_drafts(add, shop, other_shop):
    """It knows of all bots; whose they are, and who may see them, is asked all the same."""
    add("narwhal")
    theirs = Bot.create(app_id=other_shop.id, status="published", name="narwhal of others")
    Bot.create(app_id=shop.id, status="draft", name="narwhal draft")
    Bot.create(app_id=shop.id, status="published", is_active=False, name="narwhal asleep")

    def names(which, app):
        return {bot["name"] for bot in json.loads(bytes(which(app.id, BEGINNING, 10, search="narwhal").rows))}

    assert names(Bot.feed, shop) == {"narwhal"}
    assert names(Bot.kept_by, shop) == {"narwhal", "narwhal draft", "narwhal asleep"}
    assert names(Bot.feed, other_shop) == names(Bot.kept_by, other_shop) == {theirs.name}


# The index follows


@on_sqlite_alone
class TestTheIndex:
    def test_follows_a_bot_that_comes_changes_and_goes(self, add, shop):
        bot, other = add("narwhal"), add("walrus")
        assert (candidates("narwhal"), candidates("walrus")) == ([bot.id], [other.id])
        bot.name = "Walrus"
        bot.save()
        assert (candidates("narwhal"), candidates("walrus")) == ([], sorted([bot.id, other.id]))
        Bot.delete().where(Bot.id == other.id).execute()
        assert candidates("walrus") == [bot.id]

    def test_follows_whatever_statement_writes(self, add, shop):
        bot, id = add("narwhal"), clock.uuid()
        numbers = "SELECT number FROM bot_number"
        before = db.database.execute_sql(numbers).fetchall()
        Bot.update(search_text="walrus").execute()
        assert db.database.execute_sql(numbers).fetchall() == before  # else searches pass the deleted entries
        assert (candidates("narwhal"), candidates("walrus")) == ([], [bot.id])
        Bot.update(id=id).execute()
        assert candidates("walrus") == [id]
        columns = ", ".join(column.sql for column in Bot._meta.sorted_fields)
        text = columns.replace('"search_text"', "'narwhal'")
        db.database.execute_sql(f"INSERT OR REPLACE INTO bot ({columns}) SELECT {text} FROM bot")
        assert candidates("narwhal") == [id]
        Bot.delete().execute()
        assert candidates("narwhal") == candidates("walrus") == []

    def test_follows_what_is_taken_back(self, add, shop):
        add("narwhal")
        with pytest.raises(KeyError), db.write():
            Bot.update(search_text="walrus").execute()
            add("walrus")
            raise KeyError
        assert (len(candidates("narwhal")), candidates("walrus")) == (1, [])

    def test_follows_an_import_that_names_a_bot_twice(self, shop, tmp_path, monkeypatch):
        monkeypatch.setattr("service.db.sqlite.ROWS", 4)
        ids = [clock.uuid() for _ in range(10)]
        told = [{"id": id, "app_id": shop.id, "name": name} for name in ("narwhal", "walrus") for id in ids]
        file = tmp_path / "bots.jsonl"
        file.write_text("".join(json.dumps({"bot": bot}) + "\n" for bot in told))
        for _ in range(2):
            assert transfer.take_in([file]) == []
            assert (candidates("narwhal"), candidates("walrus")) == ([], sorted(ids))

    def test_stays_when_the_file_is_written_anew(self, add, shop, settings, tmp_path):
        gone, bot = add("walrus"), add("narwhal")
        Bot.delete().where(Bot.id == gone.id).execute()
        db.rewrite_files()
        assert candidates("narwhal") == [bot.id]
        db.database.write_copy(tmp_path / db.FILE_NAME)
        db.open_database(tmp_path)
        assert candidates("narwhal") == [bot.id]

    def test_is_made_of_what_is_copied(self, add, shop, tmp_path):
        bot = add("narwhal")
        copying.copy(db.database.obj, db.Sqlite(tmp_path / "copy", create=True))
        assert candidates("narwhal") == [bot.id]

    def test_is_made_of_what_an_older_database_holds(self, tmp_path):
        make_file(tmp_path / "data", 4)
        app.prepare(Settings(data=tmp_path / "data"), create=True)
        assert candidates("strasse") == [HILDA]
        db.close_database()


@on_sqlite_alone
def test_a_backup_may_have_the_triggers_of_the_index_and_no_others_of_their_names(shop, tmp_path):
    path = tmp_path / "copy.db"
    db.database.write_copy(path)
    assert backups.examine(path).rows == copying.count_rows(db.database.obj)
    with closing(db.sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER bot_inserted")
        connection.execute("CREATE TRIGGER bot_inserted AFTER INSERT ON message BEGIN DELETE FROM bot; END")
    with pytest.raises(backups.Unsound, match="has the trigger bot_inserted"):
        backups.examine(path)


# What it costs


@pytest.fixture
def crowd(shop: App) -> Callable[[int], None]:
    """Gives the shop so many bots in all, a rare word in five of them and a common one in the others."""

    def grow(total: int) -> None:
        names = [column.name for column in Bot._meta.sorted_fields]
        rows = []
        for number in range(Bot.select().count(), total):
            told = {"name": f"bot {number:05}", "tagline": "narwhal" if number < 5 else "parcel", "status": "published"}
            bot = Bot(app_id=shop.id, search_text=searchable(told.values()), **told)
            rows.append([bot.__data__.get(name, "[]") for name in names])
        with db.bulk_write():
            db.database.fill("bot", [f'"{name}"' for name in names], rows)

    return grow


def plan(shop: App, search: str, after: Position = BEGINNING) -> Any:
    """How a page of what is found is read."""
    with statements() as seen:
        Bot.feed(shop.id, after, 2, search=search)
    (page,) = filter(is_of_a_page, seen)
    return query_plan(*page)


@on_sqlite_alone
def test_a_rare_word_costs_less_than_a_step_for_each_bot(crowd, shop):
    crowd(3_000)
    assert found(shop, "narwhal") == [f"bot {number:05}" for number in range(5)]
    for which in Bot.feed, Bot.kept_by:
        assert database_steps(lambda which=which: which(shop.id, BEGINNING, 10, search="Narwhal")) < 3_000
        assert database_steps(lambda which=which: which(shop.id, BEGINNING, 10, search="na")) > 3_000


@on_sqlite_alone
@pytest.mark.parametrize("analyzed", [False, True])
def test_few_candidates_are_read_by_their_keys_and_many_in_the_order_of_the_feed(analyzed, crowd, shop):
    crowd(trigrams.CANDIDATES + 10)
    if analyzed:
        db.database.execute_sql("ANALYZE")
    behind = Position(2, Bot.feed(shop.id, BEGINNING, 2, search="narwhal").next_key)
    for after, parts in (BEGINNING, 1), (behind, 4):
        few = plan(shop, "narwhal", after)
        assert few.ranges[-1] == "sqlite_autoindex_bot_1"  # a part of one name may be a range of the feed as well
        assert len(few.ranges) == parts and all("bot_trigrams VIRTUAL TABLE INDEX" in scan for scan in few.scans)
        for many in ("parcel", "na", "bot 0"):
            assert plan(shop, many, after).ranges == ["bot_feed"] * parts


@on_sqlite_alone
@pytest.mark.parametrize("search", ["x" * 200, "bot 00001 " * 20, "".join(map(chr, range(0x1F300, 0x1F3C8)))])
def test_no_more_than_a_few_pieces_are_looked_up(search, crowd, shop):
    crowd(3)
    with statements() as seen:
        found(shop, search)
    asked = [values[0] for sql, values in seen if sql.startswith("SELECT count(*) FROM (")]
    assert asked and all(text.count(" AND ") < trigrams.PIECES for text in asked)


@on_sqlite_alone
def test_a_search_runs_on_the_event_loop(crowd, shop):
    crowd(50)
    with db.inline_read():
        assert len(found(shop, "narwhal")) == 5
