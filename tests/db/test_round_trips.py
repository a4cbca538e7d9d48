"""Requests on PostgreSQL: how often they wait for the server, and which of their statements are prepared."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from service import db
from service.db.postgresql import PREPARE_AFTER
from service.models import App, Bot, ChatSession
from service.settings import Settings
from tests.support import cluster
from tests.support.client import Client
from tests.support.observe import reads_a_page, statements

pytestmark = pytest.mark.postgresql_only

# Of these, the first reads the login.
READS = {
    "/users/me": 2,
    "/users/me/settings": 2,
    "/chats": 5,  # with BEGIN and COMMIT: two statements have to see the same state
    "/chats/{session}": 3,
    "/chats/{session}/messages": 3,
    "/bots?app_id={shop}": 2,
    "/bots?app_id={shop}&search=hil": 2,
    "/bots/{bot}?app_id={shop}": 3,
    "/notifications": 2,
    "/events": 2,
}


@contextmanager
def round_trips() -> Iterator[list[str]]:
    """Yield the list of what the driver sends inside, each time in one round trip."""
    sent: list[str] = []
    real = psycopg.Cursor.execute

    def execute(cursor: Any, query: Any, *values: Any, **options: Any) -> Any:
        sent.append(query)
        return real(cursor, query, *values, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.Cursor, "execute", execute)
        yield sent


@pytest.fixture
def paths(shop: App, bot: Bot, session: ChatSession, alice: Client, say: Any) -> dict[str, str]:
    say()
    names = {"shop": shop.id, "bot": bot.id, "session": session.id}
    return {path.format(**names): path for path in READS}


def prepared() -> list[str]:
    """The statements that are prepared on the connection of this thread."""
    return [sql for (sql,) in db.database.execute_sql("SELECT statement FROM pg_prepared_statements").fetchall()]


def test_reads_have_as_few_round_trips_as_stated(alice: Client, paths: dict[str, str]) -> None:
    found = {}
    for path, template in paths.items():
        assert alice.get(path).status == 200
        with round_trips() as sent:
            assert alice.get(path).status == 200
        found[template] = len(sent)
    assert found == READS


def test_frequent_statements_are_prepared_except_searches(alice: Client, paths: dict[str, str]) -> None:
    for path in paths:
        for _ in range(PREPARE_AFTER + 1):
            assert alice.get(path).status == 200
    found = prepared()
    assert len(found) > len(READS) and any('FROM "login_session"' in sql for sql in found)
    assert not [sql for sql in found if " LIKE " in sql]


def test_rows_are_rendered_without_calls_of_functions_in_sql(alice: Client, paths: dict[str, str]) -> None:
    with statements() as seen:
        assert alice.get(next(path for path in paths if path.endswith("/messages"))).status == 200
    (page,) = filter(reads_a_page, seen)
    plan = db.database.execute_sql(f"EXPLAIN (VERBOSE) {page[0]}", page[1]).fetchall()
    assert "json_quote" in page[0] and "json_quote" not in str(plan)


@pytest.mark.slow
def test_nothing_is_prepared_through_pgbouncer(settings: Settings) -> None:
    with cluster.pgbouncer(settings.database, 1) as url:
        db.open_database(settings.data, url)
        for _ in range(PREPARE_AFTER + 1):
            db.database.execute_sql("SELECT %s", ["a value"])
        assert prepared() == []
        db.close_database()
