"""PostgreSQL, for installs that outgrow one machine: several instances of the service share one database.

Each thread keeps one connection, which is opened at its first use and anew after it was lost. Nothing is kept in a
connection that a transaction does not set for itself, so that PgBouncer may stand between in transaction mode.
"""

import hashlib
import re
import select
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import peewee

from service import clock
from service.db import sqlstates
from service.db.engine import Engine, Order, Unusable, exceptions, page_bytes
from service.db.functions import FUNCTIONS
from service.db.standby import Standby, Unanswered

OLDEST = 130000  # of the server: trusted extensions, and what libpq asks of a standby

# Whatever the address does not say. Waiting is bounded everywhere: a server that is gone must be noticed.
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
OF_A_REPLICA = {"connect_timeout": 2, "tcp_user_timeout": 2_000, "target_session_attrs": "any"}  # the primary is there
LOCK_TIMEOUT = "5s"  # as long as SQLite waits
NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, current_setting('transaction_read_only')::bool"
KEY = "key_"
TRIES = 5  # of a statement that crossed another
REWRITES = (0.0, 0.5, 2.0, 5.0)  # seconds before each try to be rid of old rows: readers are mostly short
WRITES = ("INSERT", "UPDATE", "DELETE")
SNAPSHOT = "ISOLATION LEVEL REPEATABLE READ READ ONLY"


class _Here(threading.local):
    reading: "Postgresql | None" = None  # the replica that answers this thread's statements


class Postgresql(Engine, peewee.PostgresqlDatabase):
    """A server. Whoever writes holds the locks of the things that it names, or one that shuts all others out."""

    kind = "postgresql"
    text_aggregate = "string_agg"
    _state: Any  # Peewee's: the connection of this thread, and its transactions

    def __init__(self, url: str, replica: str = "", *, writable: bool = True) -> None:
        driver = peewee.psycopg  # type: ignore[attr-defined]
        if driver is None:
            raise Unusable(
                "this installation lacks the driver of PostgreSQL: use cx-service-postgresql.pyz, "
                "or pip install 'cx-service[postgresql]'"
            )
        defaults = DEFAULTS if writable else DEFAULTS | OF_A_REPLICA
        try:
            given = driver.conninfo.conninfo_to_dict(url)
        except driver.ProgrammingError:
            raise Unusable("the address of the database is not a postgresql:// URL") from None
        self._driver, self._where, self._leads = driver, {**defaults, **given}, writable
        self.name = f"postgresql://{given.get('host', 'localhost')}/{given.get('dbname', '')}"
        self._standby = Standby(Postgresql(replica, writable=False)) if replica else None
        self._here = _Here()
        super().__init__(url, prefer_psycopg3=True)
        self._lock = nullcontext()  # Peewee's would let only one thread at a time wait for a server that is gone

    def _connect(self) -> Any:
        # No prepared statements: before 1.21, PgBouncer lets them meet another connection.
        connection = self._driver.connect(**self._where, autocommit=True, prepare_threshold=None)
        about = connection.info
        if about.server_version < OLDEST or about.parameter_status("server_encoding") != "UTF8":
            connection.close()
            raise Unusable("the database must be in UTF-8, on PostgreSQL 13 or newer")
        return connection

    def cursor(self, named_cursor: Any = None) -> Any:
        if not self.in_transaction() and not self.is_closed() and self._is_lost():
            self._forget_connection()
        return super().cursor(named_cursor)

    def execute_sql(self, sql: str, params: Any = None) -> Any:
        """Execute a statement; outside a transaction again, a few times, if it was undone since it crossed another.

        What writes alone gets a transaction to itself: only there is its waiting for rows bounded.
        """
        if self._here.reading:
            return self._here.reading.execute_sql(sql, params)
        if self.in_transaction():
            return super().execute_sql(sql, params)
        for left in reversed(range(TRIES)):
            try:
                with self.atomic() if sql.startswith(WRITES) else nullcontext():
                    return super().execute_sql(sql, params)
            except peewee.OperationalError as error:
                if not left or not self.is_conflict(error):
                    raise
        raise AssertionError("unreachable")

    def disconnect(self) -> None:
        if not self.is_closed():
            self.close()
        if self._standby:
            self._standby.database.disconnect()

    def _is_lost(self) -> bool:
        """Whether the server has said something while nothing was asked of it, which is goodbye."""
        connection = self._state.conn
        if connection.closed:
            return True
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def _forget_connection(self) -> None:
        connection = self._state.conn
        self.dispose()
        if connection:
            connection.close()

    # Transactions. BEGIN and what belongs to it go in one round trip.

    def begin(self, mode: str = "", *locks: str) -> None:  # type: ignore[override]
        """Begin a transaction, take locks, and take the time: the server's clock is the one that all instances share.

        The time is read last, so that whoever waited for a lock is later than whoever held it. Where nothing can be
        written, a transaction that was meant to write does not begin, so that whoever asks for one knows.
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
                raise self._driver.errors.ReadOnlySqlTransaction("the server takes no writes")
        if self._leads:
            clock.follow(now)

    def commit(self) -> None:
        """Commit. Never on another connection than the one that the transaction began on, where it would be nothing."""
        with exceptions:
            done = self._state.conn.execute("COMMIT")
        if done.statusmessage == "ROLLBACK":  # what the server makes of it when a statement failed and nobody cared
            raise peewee.InternalError("the transaction had failed before its end")

    def rollback(self) -> None:
        """Roll back; where the connection was lost, the server has done so."""
        try:
            self._state.conn.execute("ROLLBACK")
        except self._driver.Error:
            self._forget_connection()

    @contextmanager
    def write(self, *things: str) -> Iterator[None]:
        locks = _lock(things)
        if self.in_transaction():
            self.execute_sql(locks)
            with self.atomic():
                yield
        else:
            with self.atomic("", locks):
                yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with self.reading():
            source = self._here.reading or self
            with nullcontext() if source.in_transaction() else source.atomic(SNAPSHOT):
                yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Reads, of a replica if there is one that has caught up. Raises Unanswered where it fails in the middle."""
        standby = self._standby
        if not standby or self.in_transaction() or self._here.reading or not standby.is_as_new_as(self):
            yield
            return
        self._here.reading = standby.database
        try:
            yield
        except peewee.DatabaseError as error:
            if not self.is_unavailable(error):
                raise
            standby.rest(error)
            raise Unanswered(str(error)) from error
        finally:
            self._here.reading = None

    # Errors.

    def is_unavailable(self, error: BaseException | None) -> bool:
        """Not reachable, out of connections, full, read-only, or busy for longer than anybody waits."""
        return sqlstates.is_unavailable(error)

    def is_conflict(self, error: BaseException) -> bool:
        return isinstance(error, Unanswered) or sqlstates.is_conflict(error)

    # SQL.

    def fill_in(self, form: str, values: Sequence[str]) -> str:
        first, *others = form.split("%s")
        return " || ".join([f"'{first}'", *(f"{v} || '{text}'" for v, text in zip(values, others, strict=True))])

    def join_rows(self, parts: Sequence[str], order: Sequence[Order]) -> str:
        """Here the order of a union is its own, since PostgreSQL may run the parts at the same time.

        A running total leaves out the rows that no longer fit; the first row always does.
        """
        rows = parts[0]
        if len(parts) > 1:
            by = ", ".join(f"{KEY}{place} {part.direction}" for place, part in enumerate(order))
            rows = " UNION ALL ".join(f"({part})" for part in parts) + f" ORDER BY {by} LIMIT %s"
        size = 'octet_length("row")'
        total = f"sum({size} + 2) OVER (ROWS UNBOUNDED PRECEDING)"
        fits = f"{total} <= %s OR {total} = {size} + 2"
        joined = """convert_to(string_agg("row", E',\\n') FILTER (WHERE fits), 'UTF8')"""
        rows = f'SELECT "row", {fits} AS fits FROM ({rows}) AS page'
        return f"SELECT count(*), {joined}, count(*) FILTER (WHERE fits) FROM ({rows}) AS page"

    def byte_length(self, column: Any) -> Any:
        return peewee.fn.octet_length(column)

    def byte_limit(self, rows: int) -> int:
        return page_bytes(rows)

    def page_keys(self, order: Sequence[Order]) -> list[Any]:
        return [part.column.alias(f"{KEY}{place}") for place, part in enumerate(order)]

    def sought(self, text: str) -> str:
        """A pattern, which an index of trigrams can answer."""
        pattern = re.sub(r"([\\%_])", r"\\\1", text)
        return f"%{pattern}%"

    def contains(self, column: Any, text: Any) -> Any:
        return peewee.Expression(column, peewee.OP.LIKE, text if isinstance(text, peewee.Node) else peewee.Value(text))

    def state(self) -> Any:
        return self.execute_sql("SELECT pg_current_wal_insert_lsn()").fetchone()

    def stream(self, sql: str) -> Iterator[tuple[Any, ...]]:
        source = self._here.reading or self
        with exceptions, source.connection().cursor(name="rows") as cursor:
            yield from cursor.execute(sql)

    def identity(self) -> tuple[Any, ...]:
        known = "SELECT pg_postmaster_start_time(), oid FROM pg_database WHERE datname = current_database()"
        return tuple(self.execute_sql(known).fetchone())

    def fill(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], otherwise: str = "") -> None:
        """By COPY, which takes a quarter of the time, but knows no other way."""
        if otherwise:
            super().fill(table, columns, rows, otherwise)
            return
        into = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
        with exceptions, self.cursor() as cursor, cursor.copy(into) as lines:
            for row in rows:
                lines.write_row(row)

    def adapt(self, statement: str) -> str:
        """Texts sort by their bytes, as they do in SQLite; a cursor's position means the same in both."""
        return re.sub(r"\bTEXT\b", 'TEXT COLLATE "C"', statement)

    def prepare_schema(self) -> None:
        for function in FUNCTIONS:
            self.execute_sql(function)

    def rewrite(self) -> None:
        """Rows that somebody's snapshot still sees are kept by the server, which tells of them in a notice."""
        kept: list[str] = []

        def hear(notice: Any) -> None:
            kept.extend(re.findall(r"\d+", notice.message_detail or "")[:1])

        connection = self.connection()
        connection.add_notice_handler(hear)
        try:
            for table in self.get_tables():
                for pause in REWRITES:
                    kept.clear()
                    time.sleep(pause)
                    self.execute_sql(f'VACUUM (FULL, VERBOSE) "{table}"')
                    if not any(map(int, kept)):
                        break
                else:
                    raise Unusable("a long reader still sees old rows: run this again when it has ended")
        finally:
            connection.remove_notice_handler(hear)


def _lock(things: Sequence[str]) -> str:
    """SQL that takes the locks of some things, always in the same order, or the one that shuts all writers out."""
    if not things:
        return "SELECT pg_advisory_xact_lock(0)"
    digests = (hashlib.sha256(thing.encode()).digest() for thing in things)
    keys = sorted(int.from_bytes(digest[:8], signed=True) for digest in digests)
    return "; ".join(["SELECT pg_advisory_xact_lock_shared(0)", *(f"SELECT pg_advisory_xact_lock({k})" for k in keys)])
