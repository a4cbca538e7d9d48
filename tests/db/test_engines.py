"""The engines of the database package, and keyset pagination."""

import itertools
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service import db
from service.db import Order, Position, contains, page, search_pattern, sqlite
from service.models import App, Bot
from tests.support.observe import query_plan, reads_a_page, statements
from tests.support.paths import ROOT
from tests.support.sqlite import DURABLE_PRAGMAS

pytestmark = pytest.mark.database


COLUMNS = (Bot.is_featured, Bot.rating, Bot.name, Bot.id)
DIRECTIONS = list(itertools.product([False, True], repeat=len(COLUMNS)))


def order_of(directions: tuple[bool, ...]) -> list[Order]:
    """Bots sorted by four columns, each in its own direction."""
    return [Order(column, descending) for column, descending in zip(COLUMNS, directions, strict=True)]


def sorted_by(order: list[Order]) -> list[str]:
    """The identifiers of all bots in an order."""
    bots = list(Bot.select())
    for column, descending, _ in reversed(order):
        bots.sort(key=lambda bot, name=column.name: getattr(bot, name), reverse=descending)
    return [bot.id for bot in bots]


def read_pages(order: list[Order], limit: int) -> list[list[str]]:
    """The identifiers on every page."""
    found, after = [], Position()
    while len(found) <= Bot.select().count():
        read = page(Bot.select(), order, after, limit)
        found.append([bot["id"] for bot in msgspec.json.decode(read.rows)])
        after = Position(after.number + 1, read.next_key)
        if not read.next_key:
            return found
    raise AssertionError("the list has no last page")


def fill(app: App, rows: list[tuple[Any, ...]]) -> None:
    with db.write():
        Bot.delete().execute()
        for row in rows:
            Bot.create(app_id=app.id, **dict(zip(("is_featured", "rating", "name"), row, strict=True)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.booleans(), st.sampled_from([0.1 + 0.2, 1 / 3, -1e300]), st.sampled_from(["", "a,\n", "b"])),
        max_size=15,
    ),
    limit=st.integers(1, 6),
    directions=st.sampled_from(DIRECTIONS),
)
def test_pages_with_mixed_directions_are_slices_of_the_sorted_list(rows, limit, directions, shop):
    fill(shop, rows)
    order = order_of(directions)
    read = read_pages(order, limit)
    assert list(itertools.chain(*read)) == sorted_by(order)
    assert all(len(part) == limit for part in read[:-1])
    assert len(read[-1]) > 0 or len(read) == 1


@pytest.mark.parametrize("directions", DIRECTIONS)
def test_page_after_any_row_has_the_remaining_rows(directions, shop):
    fill(shop, list(itertools.product([False, True], [1 / 3, 0.5], ["", "b"])) * 2)
    order = order_of(directions)
    expected = sorted_by(order)
    for index, id in enumerate(expected, 1):
        bot = Bot.get_by_id(id)
        after = Position(2, tuple(getattr(bot, column.name) for column in COLUMNS))
        read = page(Bot.select(), order, after, 100)
        assert [bot["id"] for bot in msgspec.json.decode(read.rows)] == expected[index:]
        assert read.next_key == ()


def test_page_past_the_end_is_empty_and_reads_no_rows(shop):
    fill(shop, [(True, 1.0, "a")])
    with statements() as seen:
        read = page(Bot.select(), order_of(DIRECTIONS[0]), Position(past_end=True), 5, total=7)
    assert (bytes(read.rows), read.next_key, read.counts, seen) == (b"[]", (), {"total": 7}, [])


def test_empty_result_is_an_empty_page(application):
    read = page(Bot.select(), order_of(DIRECTIONS[0]), Position(), 5)
    assert (bytes(read.rows), read.next_key, read.counts) == (b"[]", (), {})


def test_page_is_one_statement_of_one_row_and_reads_no_further(shop):
    fill(shop, [(True, 1.0, "a")] * 4)
    order = order_of((True, True, False, False))
    first = page(Bot.select(), order, Position(), 1)
    for after in (Position(), Position(2, first.next_key)):
        with statements() as seen:
            assert len(msgspec.json.decode(page(Bot.select(), order, after, 2).rows)) == 2
        ((sql, values),) = seen
        assert reads_a_page((sql, values))
        # A step that produces rows one by one stops with the page; a materialized step reads all of its rows.
        assert not any("MATERIALIZE" in step.upper() for step in query_plan(sql, values).steps)


@pytest.mark.parametrize("text", ["%", "_", "\\", "*", "?", "[a]", "'", '"', "a%b", "\n", "é", "🐈", "sAme"])
def test_contains_is_case_sensitive_and_literal(text, shop):
    fill(shop, [(False, 0.0, name) for name in (f"x{text}y", text, "xay", "", "É", "a b", "same")])
    found = {bot.name for bot in Bot.select().where(contains(Bot.name, search_pattern(text)))}
    assert found == {f"x{text}y", text}


def run_python(program):
    """The words that a Python program prints."""
    text = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return text.split()


def test_connections_have_memory_for_a_hundred_prepared_statements_without_statistics():
    report = """if True:
        import service.db, apsw
        connection = apsw.Connection(":memory:")
        for number in range(100):
            connection.execute(f"SELECT {number}")
        used, highest = connection.status(apsw.SQLITE_DBSTATUS_LOOKASIDE_USED)
        print(used, connection.status(apsw.SQLITE_DBSTATUS_LOOKASIDE_MISS_FULL)[1], apsw.memory_used())"""
    used, missed, counted = map(int, run_python(report))
    assert (used > 123, missed, counted) == (True, 0, 0)  # 123 is the default number of slots


def test_a_sqlite_that_can_corrupt_databases_is_refused():
    sqlite.check_version()
    sqlite.check_version("3.51.3")
    for version in ("3.40.1", "3.50.7", "3.51.2"):
        with pytest.raises(db.DatabaseUnusable, match=f"^SQLite {version} can corrupt .* SQLite 3.51.3 or newer$"):
            sqlite.check_version(version)


@pytest.mark.sqlite_only
def test_sqlite_makes_no_temporary_files(application, settings):
    """Which would fail on a full disk, and on hosts without a folder for them."""
    db.database.rewrite()
    for engine in (db.database.obj, db.ReadOnlySqlite(settings.data)):
        assert engine.execute_sql("PRAGMA temp_store").fetchone() == (2,)  # in memory


def test_savepoints_are_rolled_back_one_by_one(application):
    """All have the same name, so the name must refer to the latest, and a rollback must also release the savepoint."""

    def add(name):
        App.create(name=name)

    with pytest.raises(KeyError), db.write():
        add("0")
        with db.write():
            add("1")
            with pytest.raises(ValueError), db.write():
                add("2")
                raise ValueError
        assert names() == {"0", "1"}
        with pytest.raises(ValueError), db.write():
            add("3")
            with pytest.raises(LookupError), db.write():
                add("4")
                raise LookupError
            assert names() == {"0", "1", "3"}
            raise ValueError
        assert names() == {"0", "1"}
        raise KeyError
    assert names() == set()


def test_savepoint_statements_are_prepared_once(application):
    with statements() as seen:
        for _ in range(2):
            with db.write(), db.write():
                App.create(name="x")
    assert len({sql for sql, _ in seen if "SAVEPOINT" in sql}) == 2


def names():
    return {name for (name,) in App.select(App.name).where(App.name.in_(list("01234"))).tuples()}


def test_commits_are_synchronous_in_the_service_but_not_in_the_tests():
    assert dict(DURABLE_PRAGMAS)["synchronous"] == "full"
    assert dict(sqlite.PRAGMAS) == {**dict(DURABLE_PRAGMAS), "synchronous": "off"}
