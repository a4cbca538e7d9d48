"""What the database layer knows of its engine, and how it pages."""

import itertools
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from service import db
from service.db import Order, Position, contains, has_wal_reset_bug, page, sought
from service.models import App, Bot
from tests.serving import ROOT
from tests.watching import is_of_a_page, query_plan, statements

COLUMNS = (Bot.is_featured, Bot.rating, Bot.name, Bot.id)
DIRECTIONS = list(itertools.product([False, True], repeat=len(COLUMNS)))


@pytest.mark.parametrize("version", [(3, 40, 1), (3, 44, 5), (3, 50, 6), (3, 51, 2), (3, 45, 9)])
def test_versions_with_the_wal_reset_bug_are_known(version):
    assert has_wal_reset_bug(version)


@pytest.mark.parametrize("version", [(3, 44, 6), (3, 50, 7), (3, 51, 3), (3, 53, 4), (4, 0, 0)])
def test_versions_without_it_are_known_too(version):
    assert not has_wal_reset_bug(version)


def order_of(directions: tuple[bool, ...]) -> list[Order]:
    """Bots sorted by four columns, each in its own direction."""
    return [Order(column, descending) for column, descending in zip(COLUMNS, directions, strict=True)]


def sorted_by(order: list[Order]) -> list[str]:
    """The identifiers of all bots in an order."""
    bots = list(Bot.select())
    for column, descending, _ in reversed(order):
        bots.sort(key=lambda bot, name=column.name: getattr(bot, name), reverse=descending)
    return [bot.id for bot in bots]


def walk(order: list[Order], limit: int) -> list[list[str]]:
    """The identifiers on every page."""
    found, after = [], Position()
    while len(found) <= Bot.select().count():
        read = page(Bot.select(), order, after, limit)
        found.append([bot["id"] for bot in msgspec.json.decode(read.rows)])
        after = Position(after.number + 1, read.next_key)
        if not read.next_key:
            return found
    raise AssertionError("the walk does not end")


def fill(app: App, rows: list[tuple[Any, ...]]) -> None:
    with db.write():
        Bot.delete().execute()
        for row in rows:
            Bot.create(app_id=app.id, **dict(zip(("is_featured", "rating", "name"), row, strict=True)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(
    rows=some.lists(
        some.tuples(
            some.booleans(), some.sampled_from([0.1 + 0.2, 1 / 3, -1e300]), some.sampled_from(["", "a,\n", "b"])
        ),
        max_size=15,
    ),
    limit=some.integers(1, 6),
    directions=some.sampled_from(DIRECTIONS),
)
def test_pages_in_any_mixture_of_directions_are_a_sort_cut_into_pieces(rows, limit, directions, shop):
    fill(shop, rows)
    order = order_of(directions)
    read = walk(order, limit)
    assert list(itertools.chain(*read)) == sorted_by(order)
    assert all(len(part) == limit for part in read[:-1])
    assert len(read[-1]) > 0 or len(read) == 1


@pytest.mark.parametrize("directions", DIRECTIONS)
def test_after_every_single_row_comes_the_rest(directions, shop):
    fill(shop, list(itertools.product([False, True], [1 / 3, 0.5], ["", "b"])) * 2)
    order = order_of(directions)
    expected = sorted_by(order)
    for place, id in enumerate(expected, 1):
        bot = Bot.get_by_id(id)
        after = Position(2, tuple(getattr(bot, column.name) for column in COLUMNS))
        read = page(Bot.select(), order, after, 100)
        assert [bot["id"] for bot in msgspec.json.decode(read.rows)] == expected[place:]
        assert read.next_key == ()


def test_nowhere_is_behind_everything_and_asks_nothing(shop):
    fill(shop, [(True, 1.0, "a")])
    with statements() as seen:
        read = page(Bot.select(), order_of(DIRECTIONS[0]), Position(nowhere=True), 5, total=7)
    assert (bytes(read.rows), read.next_key, read.counts, seen) == (b"[]", (), {"total": 7}, [])


def test_no_rows_are_an_empty_page(application):
    read = page(Bot.select(), order_of(DIRECTIONS[0]), Position(), 5)
    assert (bytes(read.rows), read.next_key, read.counts) == (b"[]", (), {})


def test_a_page_is_one_statement_of_one_row_and_stops_when_it_is_full(shop):
    fill(shop, [(True, 1.0, "a")] * 4)
    order = order_of((True, True, False, False))
    first = page(Bot.select(), order, Position(), 1)
    for after in (Position(), Position(2, first.next_key)):
        with statements() as seen:
            assert len(msgspec.json.decode(page(Bot.select(), order, after, 2).rows)) == 2
        ((sql, values),) = seen
        assert is_of_a_page((sql, values))
        # What is computed row by row ends with the page; what is materialized is computed to its own end.
        assert not any("MATERIALIZE" in step.upper() for step in query_plan(sql, values).words)


@pytest.mark.parametrize("text", ["%", "_", "\\", "*", "?", "[a]", "'", '"', "a%b", "\n", "é", "🐈", "sAme"])
def test_containing_is_letter_for_letter(text, shop):
    fill(shop, [(False, 0.0, name) for name in (f"x{text}y", text, "xay", "", "É", "a b", "same")])
    found = {bot.name for bot in Bot.select().where(contains(Bot.name, sought(text)))}
    assert found == {f"x{text}y", text}


def in_another_process(program):
    text = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return text.split()


@pytest.mark.skipif(sys.platform != "linux", reason="the C library is asked on Linux only")
def test_sqlite_keeps_memory_for_small_pieces_and_counts_none_of_it():
    """It counts what it holds unless it was told not to, which is told along with the room."""
    counted = "ctypes.CDLL(_sqlite3.__file__).sqlite3_memory_used()"
    used = f"from pysqlite3 import _sqlite3, dbapi2; c = dbapi2.connect(':memory:'); import ctypes; print({counted})"
    assert int(*in_another_process(used)) > 0
    assert in_another_process(f"import service.db; {used}; print(c.execute('SELECT 5').fetchone())") == ["0", "(5,)"]


def test_a_library_that_belongs_to_others_too_is_left_alone():
    known = "import sqlite3; from service.db.memory import give_room; c = sqlite3.connect(':memory:');"
    assert in_another_process(f"{known} print(give_room(sqlite3), c.execute('SELECT 5').fetchone())") == [
        "False",
        "(5,)",
    ]


def test_parts_of_a_transaction_are_undone_one_by_one(application):
    """Each is a savepoint of the same name, so the last one must be meant, and one that was undone be gone."""

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


def test_parts_of_a_transaction_are_prepared_once(application):
    with statements() as seen:
        for _ in range(2):
            with db.write(), db.write():
                App.create(name="x")
    assert len({sql for sql, _ in seen if "SAVEPOINT" in sql}) == 2


def names():
    return {name for (name,) in App.select(App.name).where(App.name.in_(list("01234"))).tuples()}
