"""Compiled queries: their values change, their SQL does not."""

from typing import Any

import apsw
import msgspec
import pytest

from service.db import Order, Position, compiled, database, page
from service.models import App
from tests.support.observe import at_once, statements

built: list[Any] = []  # the value of `backward`, each time a query is built


@compiled
def named(name: str, *, backward: bool = False) -> Any:
    assert not isinstance(name, str)
    built.append(backward)
    found = App.select().where(App.name == name)
    return found.order_by(App.id.desc() if backward else App.id)


@compiled
def renamed(name: str, id: str) -> Any:
    return App.update(name=name).where(App.id == id)


@compiled
def swapped(name: str, other: str, id: str) -> Any:
    return [App.update(name=name).where(App.id == id), App.update(name=other).where(App.name == name)]


@pytest.fixture
def apps(application: Any) -> list[str]:
    App.create(name="Moon")
    return sorted(App.create(name="Sun").id for _ in range(2))


def test_a_query_is_compiled_once_and_executed_with_many_values(apps):
    named("Venus").count()
    builds = len(built)
    with statements() as seen:
        assert [named(name).count() for name in ("Sun", "Moon", "'; --", "Zoë")] == [2, 1, 0, 0]
    assert len(built) == builds
    assert len({sql for sql, _ in seen}) == 1
    assert [values for _, values in seen] == [["Sun"], ["Moon"], ["'; --"], ["Zoë"]]


def test_there_is_one_query_for_each_combination_of_keyword_arguments(apps):
    assert [named("Sun").value(), named("Sun", backward=True).value()] == apps
    assert {True, False} == set(built)


def test_rows_are_returned_in_the_requested_form(apps):
    assert named("Sun").row() == (apps[0], "Sun")
    assert named("Sun").value() == apps[0]
    assert (named("Mars").row(), named("Mars").value()) == (None, None)


def test_a_write_returns_the_number_of_rows_changed(apps):
    assert renamed("Earth", apps[0]).run() == 1
    assert renamed("Earth", "missing").run() == 0
    assert named("Earth").value() == apps[0]


def test_several_writes_are_executed_in_order_each_with_its_values(apps):
    with statements() as seen:
        swapped("Earth", "Mars", apps[0]).run_all()
        swapped("Mars", "Venus", apps[1]).run_all()
    assert [App.get_by_id(id).name for id in apps] == ["Venus", "Venus"]  # the first through Earth and Mars
    assert [sql for sql, _ in seen[:2]] == [sql for sql, _ in seen[2:4]]


def test_a_page_counts_another_query_in_the_same_statement(apps):
    order = [Order(App.id)]
    with statements() as seen:
        first = page(named("Sun"), order, Position(), 1, total=named("Sun"), others=named("Moon"), fixed=7)
        second = page(named("Sun"), order, Position(2, first.next_key), 1, total=named("Sun"))
    assert first.counts == {"total": 2, "others": 1, "fixed": 7} and second.counts == {"total": 2}
    assert apps == [*first.next_key, *(row["id"] for row in msgspec.json.decode(second.rows))]
    assert second.next_key == ()
    assert len(seen) == 2
    assert page(named("Sun"), order, Position(past_end=True), 1, total=named("Sun")).counts == {"total": 2}


def test_a_row_is_found_by_its_identifier(apps):
    found = App.find(apps[0])
    assert found == App.get_by_id(apps[0]) and found.__data__ == App.get_by_id(apps[0]).__data__
    assert App.find("missing") is None


def test_concurrent_compilation_gives_the_same_query(apps):
    assert at_once(8, lambda number: named("Sun").count()) == [2] * 8


@pytest.fixture
def frequent_paths(session, bot, say) -> list[str]:
    """Paths of frequent requests."""
    say("Hello")
    chat = f"/chats/{session.id}"
    return [
        *(chat, f"{chat}/messages?limit=1", f"{chat}/context?limit=1", f"/bots?app_id={bot.app_id}&limit=1"),
        *("/chats?limit=1", "/chats/search?q=hello&limit=1", "/updates", "/notifications?limit=1", "/events?limit=1"),
        *("/notifications/unread-count", "/users/me/settings", f"/bots/{bot.id}?app_id={bot.app_id}"),
    ]


@pytest.mark.sqlite_only
def test_sqlite_never_plans_statements_of_frequent_requests_again(alice, frequent_paths):
    """Whichever values are bound to them. It would ask the authorizer while it plans them."""
    asked: list[Any] = []

    def authorize(*action: Any) -> int:
        asked.append(action)
        return apsw.SQLITE_OK

    connection = database.connection()
    connection.set_authorizer(authorize)
    try:
        assert {alice.get(path).status for path in frequent_paths} == {200} and asked
        asked.clear()
        assert {alice.get(path.replace("limit=1", "limit=2")).status for path in frequent_paths} == {200}
    finally:
        connection.set_authorizer(None)
    assert not asked


def test_queries_of_frequent_requests_are_compiled_once(alice, frequent_paths, monkeypatch):
    first = [alice.get(path).status for path in frequent_paths]

    def build(*_: Any, **__: Any) -> None:
        raise AssertionError("SQL was built again")

    monkeypatch.setattr(type(database.obj), "get_sql_context", build)
    assert [alice.get(path).status for path in frequent_paths] == first == [200] * len(frequent_paths)
