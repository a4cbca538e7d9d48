"""The PostgreSQL engine: several instances of the service share one database.

Each thread has one connection, which is opened at its first use and reopened when it is lost. Connections have
no session state beyond a transaction, so PgBouncer can be used in transaction mode. Only on a connection to the server
itself, frequent statements are prepared: the server then plans most of them once.
"""

import functools
import hashlib
import re
import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias

import peewee

from service import clock
from service.db import sqlstates
from service.db.engine import Connection, Cursor, DatabaseUnusable, Engine, Order, exceptions, page_bytes
from service.db.functions import FUNCTIONS
from service.db.replica import Replica, ReplicaFailed

MIN_SERVER_VERSION = 130000  # for trusted extensions, and for what libpq requires of a standby

# Connection parameters that the URL may override. All waits have a timeout, so that a lost server is detected.
DEFAULTS = {
    "application_name": "cx-service",
    "client_encoding": "UTF8",
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "target_session_attrs": "primary",
}
# Connections to a replica wait less, because the primary can be used instead.
REPLICA_DEFAULTS = {"connect_timeout": 2, "tcp_user_timeout": 2_000, "target_session_attrs": "any"}
CHANNEL = "cx_signals"  # of NOTIFY
LOCK_TIMEOUT = "5s"  # the same as the timeout of the SQLite engine
NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, current_setting('transaction_read_only')::bool"
KEY_PREFIX = "key_"
PREPARE_AFTER = 3  # executions of a statement on a connection
MAX_ATTEMPTS = 5  # to execute a statement after conflicts
REWRITE_DELAYS = (
    0.0,
    0.5,
    2.0,
    5.0,
    15.0,
)  # seconds before each attempt to remove old rows, which readers may still see
WRITES = ("INSERT", "UPDATE", "DELETE")
OLDEST_SNAPSHOT = """SELECT pid, concat_ws(', ', backend_type, nullif(application_name, ''), state, xact_start)
    FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND datname = current_database()
    ORDER BY age(backend_xmin) DESC LIMIT 1"""
SNAPSHOT = "ISOLATION LEVEL REPEATABLE READ READ ONLY"

# The driver may not be installed.
Driver: TypeAlias = Any
Notice: TypeAlias = Any


class _ThreadState(threading.local):
    replica: Engine | None = None  # the replica that executes this thread's statements


class Postgresql(Engine, peewee.PostgresqlDatabase):
    """A server. A writer locks the names that it passes, or excludes all other writers."""

    kind = "postgresql"
    text_aggregate = "string_agg"
    _state: peewee._ConnectionLocal  # of Peewee: the connection of this thread, and its transactions

    def __init__(self, url: str, replica: str = "", *, writable: bool = True) -> None:
        driver = peewee.psycopg  # type: ignore[attr-defined]
        if driver is None:
            raise DatabaseUnusable(
                "the PostgreSQL driver is not installed: use cx-service-postgresql.pyz, "
                "or pip install 'cx-service[postgresql]'"
            )
        defaults = DEFAULTS if writable else DEFAULTS | REPLICA_DEFAULTS
        try:
            given = driver.conninfo.conninfo_to_dict(url)
        except driver.ProgrammingError:
            raise DatabaseUnusable("the address of the database is not a postgresql:// URL") from None
        self._driver, self._parameters, self._is_primary = driver, {**defaults, **given}, writable
        self.name = f"postgresql://{given.get('host', 'localhost')}/{given.get('dbname', '')}"
        self._replica = Replica(Postgresql(replica, writable=False)) if replica else None
        self._thread = _ThreadState()
        super().__init__(url, prefer_psycopg3=True)
        self._lock = nullcontext()  # with Peewee's lock, only one thread at a time could wait for a lost server

    def _connect(self) -> Connection:
        connection = self._driver.connect(**self._parameters, autocommit=True, prepare_threshold=None)
        info = connection.info
        if info.server_version < MIN_SERVER_VERSION or info.parameter_status("server_encoding") != "UTF8":
            connection.close()
            raise DatabaseUnusable("the database must be in UTF-8, on PostgreSQL 13 or newer")
        # PgBouncer, which before 1.21 does not support prepared statements, gives connections identifiers of its own.
        if connection.execute("SELECT pg_backend_pid()").fetchone() == (info.backend_pid,):
            connection.cursor_factory = _preparing_cursor(self._driver)
            connection.prepare_threshold = PREPARE_AFTER
        return connection

    def cursor(self, named_cursor: str | None = None) -> Cursor:
        if not self.in_transaction() and not self.is_closed() and self._is_lost():
            self._drop_connection()
        return super().cursor(named_cursor)

    def execute_sql(self, sql: str, params: Sequence[object] | None = None) -> Cursor:
        """Execute a statement. Outside a transaction, it is retried on conflicts, up to MAX_ATTEMPTS times.

        A single statement that writes gets a transaction, because only a transaction has a lock timeout.
        """
        if self._thread.replica:
            return self._thread.replica.execute_sql(sql, params)
        if self.in_transaction():
            return super().execute_sql(sql, params)
        for remaining in reversed(range(MAX_ATTEMPTS)):
            try:
                with self.atomic() if sql.startswith(WRITES) else nullcontext():
                    return super().execute_sql(sql, params)
            except peewee.OperationalError as error:
                if not remaining or not self.is_conflict(error):
                    raise
        raise AssertionError("unreachable")

    def disconnect(self) -> None:
        if not self.is_closed():
            self.close()
        if self._replica:
            self._replica.database.disconnect()

    def _is_lost(self) -> bool:
        """Return whether the server has sent data outside a query, which means that it has closed the connection."""
        connection = self._state.conn
        if connection.closed:
            return True
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def _drop_connection(self) -> None:
        connection = self._state.conn
        self.dispose()
        if connection:
            connection.close()

    # Transactions. BEGIN and the statements that belong to it are sent in one round trip.

    def begin(self, mode: str = "", *locks: str) -> None:  # type: ignore[override]
        """Begin a transaction, acquire locks, and read the time. All instances share the clock of the server.

        The time is read last, so that a writer that has waited for a lock has a later time than its previous holder.
        On a read-only server, a transaction for writing is rolled back, and raises the server's error at once.
        """
        cursor = self.cursor()
        opening = (f"BEGIN {mode}", f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'", *locks, NOW)
        try:
            with exceptions:
                cursor.execute("; ".join(opening))
        except peewee.DatabaseError:
            self.rollback()
            raise
        while cursor.nextset():
            pass
        now, is_read_only = cursor.fetchone()
        if is_read_only and not mode:
            self.rollback()
            with exceptions:
                raise self._driver.errors.ReadOnlySqlTransaction("the server is read-only")
        if self._is_primary:
            clock.synchronize(now)

    def commit(self) -> None:
        """Commit, only on the connection on which the transaction began: on another, COMMIT would have no effect."""
        with exceptions:
            done = self._state.conn.execute("COMMIT")
        if done.statusmessage == "ROLLBACK":  # the response to COMMIT after a failed statement
            raise peewee.InternalError("the transaction had failed before its COMMIT")

    def rollback(self) -> None:
        """Roll back. If the connection is lost, the server has already rolled back."""
        try:
            self._state.conn.execute("ROLLBACK")
        except self._driver.Error:
            self._drop_connection()

    @contextmanager
    def write(self, *names: str) -> Iterator[None]:
        locks = _advisory_locks(names)
        if self.in_transaction():
            self.execute_sql(locks)
            with self.atomic():
                yield
        else:
            with self.atomic("", locks):
                yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with self.replica_read():
            source = self._thread.replica or self
            with nullcontext() if source.in_transaction() else source.atomic(SNAPSHOT):
                yield

    @contextmanager
    def replica_read(self) -> Iterator[None]:
        """Read, from a replica if one has caught up. Raises ReplicaFailed if it fails during the block."""
        replica = self._replica
        if not replica or self.in_transaction() or self._thread.replica or not replica.has_caught_up(self):
            yield
            return
        self._thread.replica = replica.database
        try:
            yield
        except peewee.DatabaseError as error:
            if not self.is_unavailable(error):
                raise
            replica.suspend(error)
            raise ReplicaFailed(str(error)) from error
        finally:
            self._thread.replica = None

    # Errors.

    def is_unavailable(self, error: BaseException | None) -> bool:
        """Return whether the server is unreachable, out of connections, full, read-only, or busy for too long."""
        return sqlstates.is_unavailable(error)

    def is_conflict(self, error: BaseException) -> bool:
        return isinstance(error, ReplicaFailed) or sqlstates.is_conflict(error)

    # SQL.

    def format_sql(self, template: str, values: Sequence[str]) -> str:
        first, *others = template.split("%s")
        return " || ".join([f"'{first}'", *(f"{v} || '{text}'" for v, text in zip(values, others, strict=True))])

    def join_rows(self, parts: Sequence[str], order: Sequence[Order]) -> str:
        """Sort the union, because PostgreSQL may execute its parts in parallel.

        A running total excludes the rows that do not fit; the first row always fits.
        """
        rows = parts[0]
        if len(parts) > 1:
            by = ", ".join(f"{KEY_PREFIX}{index} {part.direction}" for index, part in enumerate(order))
            rows = " UNION ALL ".join(f"({part})" for part in parts) + f" ORDER BY {by} LIMIT %s"
        size = 'octet_length("row")'
        total = f"sum({size} + 2) OVER (ROWS UNBOUNDED PRECEDING)"
        fits = f"{total} <= %s OR {total} = {size} + 2"
        joined = """convert_to(string_agg("row", E',\\n') FILTER (WHERE fits), 'UTF8')"""
        rows = f'SELECT "row", {fits} AS fits FROM ({rows}) AS page'
        return f"SELECT count(*), {joined}, count(*) FILTER (WHERE fits) FROM ({rows}) AS page"

    def byte_length(self, column: peewee.Field) -> peewee.Node:
        return peewee.fn.octet_length(column)

    def byte_limit(self, rows: int) -> int:
        return page_bytes(rows)

    def page_keys(self, order: Sequence[Order]) -> list[peewee.Node]:
        return [part.column.alias(f"{KEY_PREFIX}{index}") for index, part in enumerate(order)]

    def search_pattern(self, text: str) -> str:
        """Return a LIKE pattern, which can use the trigram index."""
        pattern = re.sub(r"([\\%_])", r"\\\1", text)
        return f"%{pattern}%"

    def contains(self, column: peewee.Node, text: object) -> peewee.Node:
        return peewee.Expression(column, peewee.OP.LIKE, text if isinstance(text, peewee.Node) else peewee.Value(text))

    def change_marker(self) -> object:
        return self.execute_sql("SELECT pg_current_wal_insert_lsn()").fetchone()

    def send_signal(self, text: str) -> None:
        self.execute_sql(f"SELECT pg_notify('{CHANNEL}', %s)", [text])

    @contextmanager
    def listening(self) -> Iterator[Callable[[], list[str]]]:
        """With a connection of its own: on the others, data outside of a query means that they are lost."""
        with exceptions, self._driver.connect(**self._parameters, autocommit=True) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            yield lambda: [notice.payload for notice in connection.notifies(timeout=0)]

    def stream(self, sql: str) -> Iterator[tuple[object, ...]]:
        source = self._thread.replica or self
        with exceptions, source.connection().cursor(name="rows") as cursor:
            yield from cursor.execute(sql)

    def identity(self) -> tuple[object, ...]:
        query = "SELECT pg_postmaster_start_time(), oid FROM pg_database WHERE datname = current_database()"
        return tuple(self.execute_sql(query).fetchone())

    def bulk_insert(
        self, table: str, columns: Sequence[str], rows: Iterable[Sequence[object]], on_conflict: str = ""
    ) -> None:
        """With COPY, which takes a quarter of the time but supports no ON CONFLICT."""
        if on_conflict:
            super().bulk_insert(table, columns, rows, on_conflict)
            return
        into = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
        with exceptions, self.cursor() as cursor, cursor.copy(into) as copy:
            for row in rows:
                copy.write_row(row)

    def adapt(self, statement: str) -> str:
        """Sort texts by bytes, as SQLite does, so that cursors have the same meaning in both."""
        return re.sub(r"\bTEXT\b", 'TEXT COLLATE "C"', statement)

    def prepare_schema(self) -> None:
        for function in FUNCTIONS:
            self.execute_sql(function)

    def rewrite(self) -> None:
        """Rewrite all tables. Rows that are visible to an open snapshot stay; the server reports their number."""
        remaining_rows: list[str] = []

        def count_remaining(notice: Notice) -> None:
            remaining_rows.extend(re.findall(r"\d+", notice.message_detail or "")[:1])

        connection = self.connection()
        connection.add_notice_handler(count_remaining)
        try:
            for table in self.get_tables():
                for delay in REWRITE_DELAYS:
                    remaining_rows.clear()
                    time.sleep(delay)
                    self.execute_sql(f'VACUUM (FULL, VERBOSE) "{table}"')
                    if not any(map(int, remaining_rows)):
                        break
                else:
                    reader = self.longest_reader() or "a long-running reader"
                    raise DatabaseUnusable(
                        f"deleted rows are still visible to {reader}: run this again when it has ended"
                    )
        finally:
            connection.remove_notice_handler(count_remaining)

    def longest_reader(self) -> str:
        """Return the process with the oldest snapshot, such as an autovacuum worker; empty if it has ended."""
        row = self.execute_sql(OLDEST_SNAPSHOT).fetchone()
        return f"process {row[0]} of the database server ({row[1]})" if row else ""


@functools.cache
def _preparing_cursor(driver: Driver) -> type[Cursor]:
    """Return the class of cursors that prepare no searches, because a good plan depends on the text of a pattern."""

    class PreparingCursor(driver.Cursor):  # type: ignore[misc]
        def execute(self, query: str, params: Sequence[object] | None = None, **options: object) -> Cursor:
            return super().execute(query, params, **options | {"prepare": False} if " LIKE " in query else options)

    return PreparingCursor


def _advisory_locks(names: Sequence[str]) -> str:
    """Return SQL that locks names in a fixed order, to avoid deadlocks, or without names excludes all other writers."""
    if not names:
        return "SELECT pg_advisory_xact_lock(0)"
    digests = (hashlib.sha256(name.encode()).digest() for name in names)
    keys = sorted(int.from_bytes(digest[:8], signed=True) for digest in digests)
    return "; ".join(["SELECT pg_advisory_xact_lock_shared(0)", *(f"SELECT pg_advisory_xact_lock({k})" for k in keys)])
