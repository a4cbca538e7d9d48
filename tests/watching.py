"""Looking at what a request did behind the answer: rows, statements, work, threads."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from service import db
from service.models import TABLES, LoginAttempt
from tests.postgres import only_on_sqlite


def stored(*tables: Any) -> dict[str, list[Any]]:
    """Every row of some tables, or of all but the failed logins, which refusals are meant to write."""
    chosen = tables or [table for table in TABLES if table is not LoginAttempt]
    return {table.__name__: sorted(table.select().tuples(), key=repr) for table in chosen}


@contextmanager
def nothing_changes(*tables: Any) -> Iterator[None]:
    """Fails if a row is written inside."""
    before = stored(*tables)
    yield
    assert stored(*tables) == before


@contextmanager
def statements() -> Iterator[list[tuple[str, Any]]]:
    """The SQL that is executed inside, with its values."""
    seen: list[tuple[str, Any]] = []
    real = db.database.obj.execute_sql

    def execute_sql(sql: str, values: Any = None) -> Any:
        seen.append((sql, values))
        return real(sql, values)

    db.database.obj.execute_sql = execute_sql
    try:
        yield seen
    finally:
        del db.database.obj.execute_sql


def query_plan(sql: str, values: Any) -> list[str]:
    """What SQLite means to do for a statement, a line a step."""
    only_on_sqlite()
    return [row[-1] for row in db.database.execute_sql(f"EXPLAIN QUERY PLAN {sql}", values)]


def database_steps(action: Callable[[], Any]) -> int:
    """How many steps of SQLite's virtual machine an action costs."""
    only_on_sqlite()
    count = 0

    def step() -> None:
        nonlocal count
        count += 1

    connection = db.database.connection()
    connection.set_progress_handler(step, 1)
    try:
        action()
    finally:
        connection.set_progress_handler(None, 1)
    return count


def at_once(number: int, action: Callable[[int], Any]) -> list[Any]:
    """What `number` threads get that begin an action at the same moment."""
    found: list[Any] = [None] * number
    start = threading.Barrier(number)

    def run(index: int) -> None:
        try:
            start.wait()
            found[index] = action(index)
        except Exception as error:
            found[index] = error
        finally:
            db.close_database()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
