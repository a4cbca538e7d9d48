"""PostgreSQL, for installs that outgrow one machine: several instances of the service share one database.

Each thread keeps one connection, which is opened at its first use and anew after it was lost. Nothing is kept in a
connection that a transaction does not set for itself, so that PgBouncer may stand between in transaction mode.
"""

import hashlib
import logging
import re
import select
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import peewee

from service import clock
from service.db.engine import Engine, Order, Unusable

log = logging.getLogger("cx.server")
exceptions = peewee.__exception_wrapper__  # type: ignore[attr-defined]

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
}
LOCK_TIMEOUT = "5s"  # as long as SQLite waits
NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
KEY = "key_"
TRIES = 5  # of a statement that crossed another
REST = 5.0  # seconds in which a replica that failed is not asked
PATIENCE = (0.0, 0.002, 0.004)  # seconds between the times that a replica is asked whether it has caught up

# https://www.postgresql.org/docs/current/errcodes-appendix.html
CONFLICTS = ("40001", "40P01")  # serialization_failure, also of a standby that had to go on; deadlock_detected
UNAVAILABLE = re.compile(r"08...|40001|40P01|53...|55P03|57014|57P0.|58030|25006")

# The words of SQLite that columns and conditions are rendered with; the digits of a number are the same on both.
FUNCTIONS = (
    """CREATE OR REPLACE FUNCTION json_quote(text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
        AS $$ SELECT coalesce(to_json($1)::text, 'null') $$""",
    """CREATE OR REPLACE FUNCTION json_quote(bigint) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
        AS $$ SELECT coalesce($1::text, 'null') $$""",
    r"""CREATE OR REPLACE FUNCTION json_quote(double precision) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
        AS $$ SELECT coalesce(regexp_replace($1::text, '^(-?\d+)(e|$)', '\1.0\2'), 'null') $$""",
)


class Postgresql(Engine, peewee.PostgresqlDatabase):
    """A server. Whoever writes holds the locks of the things that it names, or one that shuts all others out."""

    kind = "postgresql"
    _state: Any  # Peewee's: the connection of this thread, and its transactions

    def __init__(self, url: str, replica: str = "", *, writable: bool = True) -> None:
        driver = peewee.psycopg  # type: ignore[attr-defined]
        if driver is None:
            raise Unusable(
                "this installation lacks the driver of PostgreSQL: use cx-service-postgresql.pyz, "
                "or pip install 'cx-service[postgresql]'"
            )
        defaults = {**DEFAULTS, "target_session_attrs": "read-write" if writable else "any"}
        try:
            given = driver.conninfo.conninfo_to_dict(url)
        except driver.ProgrammingError:
            raise Unusable("the address of the database is not a postgresql:// URL") from None
        self._driver, self._where, self._leads = driver, {**defaults, **given}, writable
        self.name = f"postgresql://{given.get('host', 'localhost')}/{given.get('dbname', '')}"
        self._replica = Postgresql(replica, writable=False) if replica else None
        self._rests_until = 0.0
        self._here = threading.local()  # `.reading`: the replica that answers this thread's statements
        super().__init__(url, prefer_psycopg3=True)

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
        """Execute a statement; outside a transaction again, a few times, if it was undone since it crossed another."""
        replica = getattr(self._here, "reading", None)
        if replica:
            return replica.execute_sql(sql, params)
        for left in reversed(range(TRIES)):
            try:
                return super().execute_sql(sql, params)
            except peewee.OperationalError as error:
                if not left or self.in_transaction() or not self.is_conflict(error):
                    raise
        raise AssertionError("unreachable")

    def disconnect(self) -> None:
        if not self.is_closed():
            self.close()
        if self._replica:
            self._replica.disconnect()

    def _is_lost(self) -> bool:
        """Whether the server has said goodbye while nothing was asked of it."""
        connection = self._state.conn
        if connection.closed:
            return True
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        if not poll.poll(0):
            return False
        try:
            connection.pgconn.consume_input()  # a notice, or the end
        except self._driver.Error:
            return True
        return bool(connection.pgconn.status != self._driver.pq.ConnStatus.OK)

    def _forget_connection(self) -> None:
        connection = self._state.conn
        self.dispose()
        if connection:
            connection.close()

    # Transactions. BEGIN and what belongs to it go in one round trip.

    def begin(self, mode: str = "", *locks: str) -> None:  # type: ignore[override]
        """Begin a transaction, take locks, and take the time: the server's clock is the one that all instances share.

        The time is read last, so that whoever waited for a lock is later than whoever held it.
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
        if self._leads:
            clock.follow(cursor.fetchone()[0])

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
        """Several reads that see one state, of a replica if there is one that has caught up."""
        if self.in_transaction() or getattr(self._here, "reading", None):
            yield
            return
        replica = self._fresh_replica()
        if replica is None:
            with self.atomic("ISOLATION LEVEL REPEATABLE READ READ ONLY"):
                yield
            return
        try:
            with replica.snapshot():
                self._here.reading = replica
                yield
        except peewee.OperationalError as error:
            self._rest(error)
            raise
        finally:
            self._here.reading = None

    def reading(self) -> AbstractContextManager[None]:
        return self.snapshot() if self._replica else nullcontext()

    def _fresh_replica(self) -> "Postgresql | None":
        """The replica, if it has replayed all that was written until now: so everybody reads what they wrote.

        Comparing positions needs no memory of who wrote what, which several instances would have to share.
        """
        if self._replica is None or time.monotonic() < self._rests_until:
            return None
        (written,) = self.execute_sql("SELECT pg_current_wal_flush_lsn()").fetchone()
        try:
            for pause in PATIENCE:
                time.sleep(pause)
                caught_up = self._replica.execute_sql("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (written,))
                if caught_up.fetchone()[0]:
                    return self._replica
        except peewee.OperationalError as error:
            self._rest(error)
        return None

    def _rest(self, error: BaseException) -> None:
        log.warning("the replica is left alone for %s seconds: %s", REST, error)
        self._rests_until = time.monotonic() + REST

    # Errors.

    def is_unavailable(self, error: BaseException | None) -> bool:
        """Not reachable, out of connections, full, read-only, or busy for longer than anybody waits."""
        state = _state_of(error)
        return UNAVAILABLE.fullmatch(state) is not None if state else isinstance(error, peewee.OperationalError)

    def is_conflict(self, error: BaseException) -> bool:
        resting = self._replica is not None and time.monotonic() < self._rests_until
        return _state_of(error) in CONFLICTS or (resting and self.is_unavailable(error))

    # SQL.

    def join_rows(self, parts: Sequence[str], order: Sequence[Order], limit: int) -> str:
        """Here the order of a union is its own, since PostgreSQL may run the parts at the same time."""
        rows = parts[0]
        if len(parts) > 1:
            by = ", ".join(f"{KEY}{place} {part.direction}" for place, part in enumerate(order))
            rows = " UNION ALL ".join(f"({part})" for part in parts) + f" ORDER BY {by} LIMIT {limit}"
        return f"SELECT count(*), string_agg(\"row\", E',\\n') FROM ({rows}) AS page"

    def page_keys(self, order: Sequence[Order]) -> list[Any]:
        return [part.column.alias(f"{KEY}{place}") for place, part in enumerate(order)]

    def contains(self, column: Any, text: str) -> Any:
        """As a pattern, which an index of trigrams can answer."""
        pattern = re.sub(r"([\\%_])", r"\\\1", text)
        return peewee.Expression(column, peewee.OP.LIKE, peewee.Value(f"%{pattern}%"))

    def stream(self, sql: str) -> Iterator[tuple[Any, ...]]:
        source = getattr(self._here, "reading", None) or self
        with source.connection().cursor(name="rows") as cursor:
            yield from cursor.execute(sql)

    def adapt(self, statement: str) -> str:
        """Texts sort by their bytes, as they do in SQLite; a cursor's position means the same in both."""
        return re.sub(r"\bTEXT\b", 'TEXT COLLATE "C"', statement)

    def prepare_schema(self) -> None:
        for function in FUNCTIONS:
            self.execute_sql(function)

    def rewrite(self) -> None:
        for table in self.get_tables():
            self.execute_sql(f'VACUUM FULL "{table}"')


def _lock(things: Sequence[str]) -> str:
    """SQL that takes the locks of some things, always in the same order, or the one that shuts all writers out."""
    if not things:
        return "SELECT pg_advisory_xact_lock(0)"
    digests = (hashlib.sha256(thing.encode()).digest() for thing in things)
    keys = sorted(int.from_bytes(digest[:8], signed=True) for digest in digests)
    return "; ".join(["SELECT pg_advisory_xact_lock_shared(0)", *(f"SELECT pg_advisory_xact_lock({k})" for k in keys)])


def _state_of(error: BaseException | None) -> str:
    """The SQLSTATE of an error of ours."""
    original = error.args[0] if isinstance(error, peewee.DatabaseError) and error.args else error
    return getattr(original, "sqlstate", None) or ""
