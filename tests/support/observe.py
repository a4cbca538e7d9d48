"""Observes the effects of a request beside its response: rows, statements, work, threads."""

import functools
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from service import db
from service.models import TABLES, ClockState, LoginAttempt
from service.settings import Settings
from tests.support import postgres
from tests.support.postgres import is_chosen, require_sqlite


def stored(*tables: Any) -> dict[str, list[Any]]:
    """Return all rows by table; by default of all tables but those that failed logins and health checks write."""
    selected = tables or [table for table in TABLES if table not in (LoginAttempt, ClockState)]
    return {table.__name__: sorted(db.database.execute_sql(_all_of(table)).fetchall(), key=repr) for table in selected}


@functools.cache
def _all_of(table: Any) -> str:
    columns = ", ".join(column.column_name for column in table._meta.sorted_fields)
    return f'SELECT {columns} FROM "{table._meta.table_name}"'


def files_of(settings: Settings) -> list[bytes]:
    """Return the contents of the files of a database."""
    if settings.database:
        return postgres.files_of(settings.database)
    return [path.read_bytes() for path in settings.data.rglob("*") if path.is_file()]


@contextmanager
def nothing_changes(*tables: Any) -> Iterator[None]:
    """Fail if a row is written inside."""
    before = stored(*tables)
    yield
    assert stored(*tables) == before


def reads_a_page(statement: tuple[str, Any]) -> bool:
    """Return whether a statement reads a page of a list."""
    counted = ("SELECT count(*), CAST(group_", "SELECT count(*), convert_to(", "SELECT page.*, (SELECT count(*) ")
    return statement[0].startswith(counted)


@contextmanager
def statements() -> Iterator[list[tuple[str, Any]]]:
    """Give the list of the SQL statements that are executed inside, with their values."""
    seen: list[tuple[str, Any]] = []
    engine: Any = db.database.obj
    real = engine.execute_sql

    def execute_sql(sql: str, values: Any = None) -> Any:
        seen.append((sql, values))
        return real(sql, values)

    engine.execute_sql = execute_sql
    try:
        yield seen
    finally:
        del engine.execute_sql


class Plan(NamedTuple):
    """The query plan of a statement."""

    steps: list[str]  # in the database's own words, one line for each step
    ranges: list[str]  # the index of each range scan
    scans: list[str]  # full scans of tables, and materialized subqueries
    sorts: bool  # whether it sorts more rows than a page has


def query_plan(sql: str, values: Any) -> Plan:
    """Return the query plan of a statement for large tables."""
    return _plan_of_postgresql(sql, values) if is_chosen() else _plan_of_sqlite(sql, values)


def _plan_of_sqlite(sql: str, values: Any) -> Plan:
    steps = [row[-1] for row in db.database.execute_sql(f"EXPLAIN QUERY PLAN {sql}", values)]
    ranges = [
        found[1]
        for step in steps
        if (found := re.match(r"SEARCH .*USING .*?(INDEX \w+|(?<!INTEGER )PRIMARY KEY) \(", step))
    ]
    ranges = [name.removeprefix("INDEX ") for name in ranges]
    no_table = r"page\b|part\b|lookup\b|senders\b|\d+-ROW VALUES CLAUSE|CONSTANT ROW"
    scans = [step for step in steps if step.startswith("MATERIALIZE") or re.match(rf"SCAN (?!{no_table})", step)]
    return Plan(steps, ranges, scans, any("TEMP B-TREE" in step for step in steps))


def _plan_of_postgresql(sql: str, values: Any) -> Plan:
    """Return a plan without sequential scans and sorts, which PostgreSQL prefers for small tables."""
    with db.database.atomic():
        for node_type in ("seqscan", "bitmapscan", "sort"):
            db.database.execute_sql(f"SET LOCAL enable_{node_type} = off")
        ((root,),) = db.database.execute_sql(f"EXPLAIN (FORMAT JSON) {sql}", values).fetchone()
    nodes = list(_below(root["Plan"]))
    ranges = [node["Index Name"] for node in nodes if "Index Cond" in node]
    scans = [
        f"{node['Node Type']} {node['Relation Name']}"
        for node in nodes
        if "Relation Name" in node and "Index Cond" not in node
    ]
    sorts = any("Sort" in node["Node Type"] and _is_unbounded(node) for node in nodes)
    steps = [
        " ".join(str(node[name]) for name in ("Node Type", "Index Name", "Index Cond") if name in node)
        for node in nodes
    ]
    return Plan(steps, ranges, scans, sorts)


def _below(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a node of a plan of PostgreSQL, and all its descendants."""
    yield node
    for child in node.get("Plans", ()):
        yield from _below(child)


def _is_unbounded(node: dict[str, Any]) -> bool:
    """Return whether a node reads all rows of a table, without a LIMIT in between."""
    if node["Node Type"] == "Limit":
        return False
    return "Relation Name" in node or any(map(_is_unbounded, node.get("Plans", ())))


def database_steps(action: Callable[[], Any]) -> int:
    """Return the number of steps of SQLite's virtual machine that an action takes."""
    require_sqlite()
    count = 0

    def step() -> bool:
        nonlocal count
        count += 1
        return False

    connection = db.database.connection()
    connection.set_progress_handler(step, 1)
    try:
        action()
    finally:
        connection.set_progress_handler(None)
    return count


def at_once(number: int, action: Callable[[int], Any]) -> list[Any]:
    """Call an action in this number of threads at the same time; return their results or exceptions, in order."""
    results: list[Any] = [None] * number
    start = threading.Barrier(number)

    def run(index: int) -> None:
        try:
            start.wait()
            results[index] = action(index)
        except Exception as error:
            results[index] = error
        finally:
            db.close_database()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
