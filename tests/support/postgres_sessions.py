"""Sessions on the databases of a PostgreSQL server, and the log of its statements."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import psycopg

from service import db
from tests.support import postgres


def logged_statements(server: postgres.Server) -> list[str]:
    """The statements in the log of a server, each after its kind."""
    log = (server.folder / "server.log").read_text()
    return re.findall(r"LOG:  ((?:statement|execute [^:]+): .*(?:\n\t.*)*)", log)


@contextlib.contextmanager
def other_session(url: str) -> Iterator["psycopg.Connection[Any]"]:
    """Another connection to a database, in autocommit mode."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def query_value(url: str, sql: str) -> Any:
    """The first value of a query's result, on another connection."""
    with other_session(url) as connection:
        return connection.execute(sql).fetchone()[0]  # type: ignore[index]


@contextlib.contextmanager
def trigger(url: str, table: type[db.Table], body: str, *, at_commit: bool = False) -> Iterator[None]:
    """Execute statements for each row that is inserted or updated in a table, at once or at the commit."""
    on = f'ON "{table._meta.table_name}"'
    later = ("CONSTRAINT TRIGGER", "AFTER", "DEFERRABLE INITIALLY DEFERRED")
    kind, when, late = later if at_commit else ("TRIGGER", "BEFORE", "")
    with other_session(url) as connection:
        connection.execute("CREATE SEQUENCE times")
        connection.execute(
            f"CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; RETURN new; END $$"
        )
        connection.execute(f"CREATE {kind} act {when} INSERT OR UPDATE {on} {late} FOR EACH ROW EXECUTE FUNCTION act()")
    try:
        yield
    finally:
        with other_session(url) as connection:
            connection.execute("DROP FUNCTION act CASCADE")
            connection.execute("DROP SEQUENCE times")
