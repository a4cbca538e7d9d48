"""Queries that are built once: their values change, their SQL does not."""

import re
from typing import Any

import msgspec
import pytest

from service.db import Order, Position, database, page, prepared
from service.models import App
from tests.postgres import on_sqlite_alone
from tests.watching import at_once, statements

built: list[Any] = []  # the shapes, each time that one is


@prepared
def named(name: str, *, backward: bool = False) -> Any:
    assert not isinstance(name, str)
    built.append(backward)
    found = App.select().where(App.name == name)
    return found.order_by(App.id.desc() if backward else App.id)


@prepared
def renamed(name: str, id: str) -> Any:
    return App.update(name=name).where(App.id == id)


@prepared
def swapped(name: str, other: str, id: str) -> Any:
    return [App.update(name=name).where(App.id == id), App.update(name=other).where(App.name == name)]


@pytest.fixture
def apps(application: Any) -> list[str]:
    App.create(name="Moon")
    return sorted(App.create(name="Sun").id for _ in range(2))


def test_a_query_is_built_once_and_asked_with_many_values(apps):
    named("Venus").count()
    begun = len(built)
    with statements() as seen:
        assert [named(name).count() for name in ("Sun", "Moon", "'; --", "Zoë")] == [2, 1, 0, 0]
    assert len(built) == begun
    assert len({sql for sql, _ in seen}) == 1
    assert [values for _, values in seen] == [["Sun"], ["Moon"], ["'; --"], ["Zoë"]]


def test_there_is_one_for_each_shape(apps):
    assert [named("Sun").value(), named("Sun", backward=True).value()] == apps
    assert {True, False} == set(built)


def test_rows_are_given_as_asked_for(apps):
    assert named("Sun").row() == (apps[0], "Sun")
    assert named("Sun").value() == apps[0]
    assert (named("Mars").row(), named("Mars").value()) == (None, None)


def test_a_write_tells_how_many_rows_it_changed(apps):
    assert renamed("Earth", apps[0]).run() == 1
    assert renamed("Earth", "nobody's").run() == 0
    assert named("Earth").value() == apps[0]


def test_several_writes_go_one_after_the_other_each_with_its_own_values(apps):
    with statements() as seen:
        swapped("Earth", "Mars", apps[0]).run_all()
        swapped("Mars", "Venus", apps[1]).run_all()
    assert [App.get_by_id(id).name for id in apps] == ["Venus", "Venus"]  # the first by way of Earth and Mars
    assert [sql for sql, _ in seen[:2]] == [sql for sql, _ in seen[2:4]]


def test_a_page_counts_another_query_at_the_same_moment(apps):
    order = [Order(App.id)]
    with statements() as seen:
        first = page(named("Sun"), order, Position(), 1, total=named("Sun"), others=named("Moon"), fixed=7)
        second = page(named("Sun"), order, Position(2, first.next_key), 1, total=named("Sun"))
    assert first.counts == {"total": 2, "others": 1, "fixed": 7} and second.counts == {"total": 2}
    assert apps == [*first.next_key, *(row["id"] for row in msgspec.json.decode(second.rows))]
    assert second.next_key == ()
    assert len(seen) == 2
    assert page(named("Sun"), order, Position(nowhere=True), 1, total=named("Sun")).counts == {"total": 2}


def test_a_row_is_known_by_its_identifier(apps):
    found = App.known(apps[0])
    assert found == App.get_by_id(apps[0]) and found.__data__ == App.get_by_id(apps[0]).__data__
    assert App.known("nobody's") is None


def test_many_threads_build_the_same(apps):
    assert at_once(8, lambda number: named("Sun").count()) == [2] * 8


@pytest.fixture
def often_asked(session, bot, say) -> list[str]:
    """Paths that clients ask for again and again."""
    say("Hello")
    chat = f"/chats/{session.id}"
    return [
        *(chat, f"{chat}/messages?limit=1", f"{chat}/context?limit=1", f"/bots?app_id={bot.app_id}&limit=1"),
        *("/chats?limit=1", "/chats/search?q=hello&limit=1", "/updates", "/notifications?limit=1", "/events?limit=1"),
        *("/notifications/unread-count", "/users/me/settings", f"/bots/{bot.id}?app_id={bot.app_id}"),
    ]


@on_sqlite_alone
def test_no_limit_makes_sqlite_plan_a_query_anew(alice, often_asked):
    """What is often asked is never given a number that is a limit by itself."""
    with statements() as seen:
        assert {alice.get(path).status for path in often_asked} == {200}
    limits = [limit for sql, _ in seen for limit in re.findall(r"LIMIT ([^\s)]+(?: \+ \d)?)", sql)]
    assert len(limits) >= 12 and set(limits) <= {"1", "100", "? + 0"}, limits


def test_what_is_often_asked_is_built_once(alice, often_asked, monkeypatch):
    first = [alice.get(path).status for path in often_asked]

    def build(*_: Any, **__: Any) -> None:
        raise AssertionError("SQL was built anew")

    monkeypatch.setattr(type(database.obj), "get_sql_context", build)
    assert [alice.get(path).status for path in often_asked] == first == [200] * len(often_asked)
