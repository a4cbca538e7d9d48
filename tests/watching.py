"""Looking at what a request did behind the answer: rows, statements, work, threads."""

import functools
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from service import db
from service.models import TABLES, LoginAttempt, Moment
from service.settings import Settings
from tests import postgres
from tests.postgres import is_chosen, only_on_sqlite


def stored(*tables: Any) -> dict[str, list[Any]]:
    """Every row of some tables, or of all but what refusals and questions of readiness are meant to write."""
    chosen = tables or [table for table in TABLES if table not in (LoginAttempt, Moment)]
    return {table.__name__: sorted(db.database.execute_sql(_all_of(table)).fetchall(), key=repr) for table in chosen}


@functools.cache
def _all_of(table: Any) -> str:
    columns = ", ".join(column.column_name for column in table._meta.sorted_fields)
    return f'SELECT {columns} FROM "{table._meta.table_name}"'


def files_of(settings: Settings) -> list[bytes]:
    """What lies on the disk for a database."""
    if settings.database:
        return postgres.files_of(settings.database)
    return [path.read_bytes() for path in settings.data.rglob("*") if path.is_file()]


@contextmanager
def nothing_changes(*tables: Any) -> Iterator[None]:
    """Fails if a row is written inside."""
    before = stored(*tables)
    yield
    assert stored(*tables) == before


def is_of_a_page(statement: tuple[str, Any]) -> bool:
    """Whether a statement reads a page of a list."""
    counted = ("SELECT count(*), CAST(group_", "SELECT count(*), convert_to(", "SELECT page.*, (SELECT count(*) ")
    return statement[0].startswith(counted)


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


class Plan(NamedTuple):
    """What a database means to do for a statement."""

    words: list[str]  # its own, a line a step
    ranges: list[str]  # the indexes of which it reads a range, each as often as it does
    scans: list[str]  # the tables that it reads from one end to the other, and subqueries that it keeps whole
    sorts: bool  # whether it sorts more rows than a page has


def query_plan(sql: str, values: Any) -> Plan:
    """How a statement would be answered, if its tables were large."""
    return _plan_of_postgresql(sql, values) if is_chosen() else _plan_of_sqlite(sql, values)


def _plan_of_sqlite(sql: str, values: Any) -> Plan:
    steps = [row[-1] for row in db.database.execute_sql(f"EXPLAIN QUERY PLAN {sql}", values)]
    ranges = [
        found[1]
        for step in steps
        if (found := re.match(r"SEARCH .*USING .*?(INDEX \w+|(?<!INTEGER )PRIMARY KEY) \(", step))
    ]
    ranges = [name.removeprefix("INDEX ") for name in ranges]
    no_table = r"page\b|part\b|lookup\b|\d+-ROW VALUES CLAUSE|CONSTANT ROW"
    scans = [step for step in steps if step.startswith("MATERIALIZE") or re.match(rf"SCAN (?!{no_table})", step)]
    return Plan(steps, ranges, scans, any("TEMP B-TREE" in step for step in steps))


def _plan_of_postgresql(sql: str, values: Any) -> Plan:
    """With few rows in a table, PostgreSQL reads and sorts them all unless it is told not to."""
    with db.database.atomic():
        for way in ("seqscan", "bitmapscan", "sort"):
            db.database.execute_sql(f"SET LOCAL enable_{way} = off")
        ((root,),) = db.database.execute_sql(f"EXPLAIN (FORMAT JSON) {sql}", values).fetchone()
    nodes = list(_below(root["Plan"]))
    ranges = [node["Index Name"] for node in nodes if "Index Cond" in node]
    scans = [
        f"{node['Node Type']} {node['Relation Name']}"
        for node in nodes
        if "Relation Name" in node and "Index Cond" not in node
    ]
    sorts = any("Sort" in node["Node Type"] and _is_unbounded(node) for node in nodes)
    words = [
        " ".join(str(node[name]) for name in ("Node Type", "Index Name", "Index Cond") if name in node)
        for node in nodes
    ]
    return Plan(words, ranges, scans, sorts)


def _below(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A step of a plan of PostgreSQL's, and all steps whose rows it takes."""
    yield node
    for child in node.get("Plans", ()):
        yield from _below(child)


def _is_unbounded(node: dict[str, Any]) -> bool:
    """Whether a step takes all rows of a table that there are, with no LIMIT between."""
    if node["Node Type"] == "Limit":
        return False
    return "Relation Name" in node or any(map(_is_unbounded, node.get("Plans", ())))


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
