"""Several instances on one PostgreSQL database: connections, locks, conflicts, the clock, and connection pooling."""

import contextlib
import random
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import peewee
import psycopg
import pytest

import app
from service import clock, db
from service.auth import authorization_codes, consent, login_throttle, tokens
from service.auth.authorization_codes import exchange
from service.db import postgresql
from service.db.postgresql import Postgresql
from service.errors import InvalidGrant, RateLimited
from service.models import (
    TABLES,
    App,
    Approval,
    ChatSession,
    DataShare,
    Feedback,
    LoginAttempt,
    LoginSession,
    Message,
    Notification,
    User,
)
from service.settings import Settings
from tests.support import postgres
from tests.support.cli_login import VERIFIER
from tests.support.client import Client
from tests.support.cluster import find_postgresql, until
from tests.support.consent import VALID_PARAMETERS
from tests.support.observe import at_once, nothing_changes, statements
from tests.support.passwords import PASSWORD
from tests.support.paths import ROOT
from tests.support.postgres_sessions import logged_statements, other_session, query_value, trigger

pytestmark = [pytest.mark.extended, pytest.mark.database]

SQLSTATES = {  # SQLSTATE, and whether it means that the database is unavailable
    "08006": True,  # connection_failure
    "25006": True,  # read_only_sql_transaction
    "25P03": True,  # idle_in_transaction_session_timeout
    "40001": True,  # serialization_failure
    "40P01": True,  # deadlock_detected
    "53100": True,  # disk_full
    "53200": True,  # out_of_memory
    "53300": True,  # too_many_connections
    "55P03": True,  # lock_not_available
    "57014": True,  # query_canceled
    "57P01": True,  # admin_shutdown
    "58030": True,  # io_error
    "22P02": False,  # invalid_text_representation
    "23503": False,  # foreign_key_violation
    "23505": False,  # unique_violation
    "25P02": False,  # in_failed_sql_transaction
    "42601": False,  # syntax_error
    "42P01": False,  # undefined_table
    "42501": False,  # insufficient_privilege
    "XX000": False,  # internal_error
}


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    """A server that tests can stop. The statements in its log are checked at the end."""
    find_postgresql()
    with postgres.running(**postgres.QUICK, log_statement="all", deadlock_timeout="50ms") as running:
        yield running
        logged = logged_statements(running)
        assert len(logged) > 10
        assert [statement for statement in logged if changes_session(statement)] == []


@pytest.fixture(scope="module")
def url(server: postgres.Server) -> str:
    """A database of the service."""
    with psycopg.connect(f"{server.url}/postgres", autocommit=True) as connection:
        connection.execute("CREATE DATABASE service TEMPLATE template0")
    app.prepare(Settings(database=f"{server.url}/service"), create=True)
    db.close_database()
    return f"{server.url}/service"


@pytest.fixture
def settings(url: str, tmp_path: Path) -> Settings:
    return Settings(data=tmp_path, database=url, verify_answers=True)


@pytest.fixture
def application(settings: Settings) -> Iterator[Any]:
    """The service on an empty database."""
    db.open_database(settings.data, settings.database)
    db.database.execute_sql("; ".join(f'DELETE FROM "{table._meta.table_name}"' for table in reversed(TABLES)))
    yield app.build(settings)
    db.close_database()


def changes_session(logged: str) -> bool:
    """Whether a statement changes session state, which other clients of a connection pooler would share.

    Prepared statements do, but test_round_trips.py shows that there are none on connections of PgBouncer.
    """
    kind, _, text = logged.partition(": ")
    words = r"SET (?!LOCAL |CONSTRAINTS )|DISCARD|RESET|PREPARE|(UN)?LISTEN|CREATE (LOCAL |GLOBAL )?TEMP"
    words += r"|DECLARE .* WITH HOLD"
    return (
        not re.fullmatch(r"statement|execute (<unnamed>|_pg3_\d+)", kind)  # those that the driver has prepared
        or re.search(r"pg_(try_)?advisory_(?!xact)", text) is not None
        or any(re.match(words, part.strip(), re.I | re.S) for part in text.split(";"))
    )


def end_connections(url: str) -> None:
    """End all connections to a database, as an operator would."""
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with other_session(url) as connection:
        connection.execute(f"SELECT pg_terminate_backend(pid) {others}")
        until(lambda: not connection.execute(f"SELECT 1 {others}").fetchone())


TERMINATE = "PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(5)"


def raise_error(state: str, times: int = 1_000) -> str:
    """The body of a trigger that raises an error the first times. It counts with a sequence, which has no rollback."""
    return f"IF nextval('times') <= {times} THEN RAISE 'injected' USING ERRCODE = '{state}'; END IF"


def assert_clean(url: str) -> None:
    """Assert that the connection of the thread works, and that no locks or open transactions remain on the server."""
    assert not db.database.in_transaction()
    with db.write("something"):
        made = App.create(name="Works")
    assert query_value(url, f"SELECT name FROM app WHERE id = '{made.id}'") == "Works"
    assert query_value(url, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    assert query_value(url, "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in %'") == 0


class TestLostConnections:
    READ, WRITE = ("GET", "/users/me", None), ("PATCH", "/users/me", {"first_name": "Al"})
    SINGLE_STATEMENT = ("PATCH", "/notifications/read-all", None)

    @pytest.mark.parametrize("request_", [READ, WRITE, SINGLE_STATEMENT])
    def test_terminated_idle_connection_is_replaced(self, request_, alice, url):
        for _ in range(2):
            end_connections(url)
            assert alice.call(*request_).status == 200
        assert_clean(url)

    def test_server_restart_between_requests_causes_no_error(self, alice, server, url):
        server.stop("fast")
        server.start()
        assert alice.call(*self.WRITE).status == 200
        server.stop("immediate")
        server.start()
        assert alice.call(*self.READ).status == 200
        assert_clean(url)

    def test_stopped_server_is_503(self, alice, server, url):
        server.stop("fast")
        try:
            for request_ in (self.READ, self.WRITE, self.SINGLE_STATEMENT, self.READ):
                assert alice.call(*request_).error == (503, "storage_unavailable")
            assert not db.database.in_transaction()
        finally:
            server.start()
        assert alice.call(*self.READ).status == 200
        assert_clean(url)

    @pytest.mark.parametrize("depth", [1, 2, 3])
    @pytest.mark.parametrize("after", [0, 1])
    def test_connection_lost_in_a_transaction_fails_it_and_the_next_succeeds(self, depth, after, application, url):
        with pytest.raises(peewee.PeeweeException) as caught, contextlib.ExitStack() as stack:
            for name in range(depth):
                stack.enter_context(db.write(str(name)))
            App.create(name="Lost")
            end_connections(url)
            for _ in range(after):
                App.create(name="Lost too")
        assert db.is_unavailable(caught.value)
        assert not App.select().exists()
        assert_clean(url)

    def test_suppressed_error_of_a_lost_connection_still_fails_the_transaction(self, application, url):
        with pytest.raises(peewee.PeeweeException) as caught, db.write("a"):
            App.create(name="Lost")
            end_connections(url)
            for _ in range(3):
                with contextlib.suppress(peewee.PeeweeException):
                    App.create(name="Lost too")
        assert db.is_unavailable(caught.value)
        assert not App.select().exists()
        assert_clean(url)

    @pytest.mark.parametrize("read", [1, 50])
    def test_connection_lost_while_streaming_is_unavailable(self, read, application, url):
        with pytest.raises(peewee.PeeweeException) as caught, db.snapshot():
            rows = db.database.stream("SELECT generate_series(1, 100000)")
            assert [next(rows) for _ in range(read)] == [(number,) for number in range(1, read + 1)]
            end_connections(url)
            list(rows)
        assert db.is_unavailable(caught.value)
        assert_clean(url)

    @pytest.mark.parametrize("at_commit", [False, True])
    def test_write_on_a_lost_connection_is_503_and_not_retried(self, at_commit, alice, url):
        with trigger(url, User, f"PERFORM nextval('times'); {TERMINATE}", at_commit=at_commit), nothing_changes():
            assert alice.call(*self.WRITE).error == (503, "storage_unavailable")
            assert query_value(url, "SELECT last_value FROM times") == 1, (
                "the outcome is unknown, so the write is not retried"
            )
            assert alice.call(*self.READ).status == 200
        assert alice.call(*self.WRITE).status == 200
        assert_clean(url)

    def test_unacknowledged_commit_is_not_retried_while_a_replica_is_suspended(self, alice, url, settings):
        db.open_database(settings.data, url, f"postgresql://127.0.0.1:{postgres.free_port()}/missing")
        assert alice.get("/data-shares").data == []  # from the primary, since the replica is unreachable
        with trigger(url, Feedback, f"PERFORM nextval('times'); {TERMINATE}", at_commit=True):
            assert alice.post("/feedback", {"description": "Once"}).error == (503, "storage_unavailable")
            assert query_value(url, "SELECT last_value FROM times") == 1

    def test_threads_connect_to_an_unresponsive_server_concurrently(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            silent.settimeout(20)
            engine = Postgresql(f"postgresql://127.0.0.1:{silent.getsockname()[1]}/x?connect_timeout=60")
            with contextlib.ExitStack() as stack:

                def connect(_: int) -> Any:
                    return engine.execute_sql("SELECT 1")

                thread = threading.Thread(target=lambda: errors.extend(at_once(3, connect)))
                errors: list[Any] = []
                thread.start()
                for _ in range(3):  # all have connected before the first connection is closed
                    stack.enter_context(silent.accept()[0])
            thread.join()
        assert [engine.is_unavailable(error) for error in errors] == [True] * 3


class TestErrors:
    @pytest.mark.parametrize(("state", "unavailable"), SQLSTATES.items())
    def test_sqlstate_decides_whether_the_database_is_unavailable(self, state, unavailable, application, url):
        with pytest.raises(peewee.PeeweeException) as caught, db.write("a"):
            App.create(name="Rolled back")
            db.database.execute_sql(f"DO $$ BEGIN RAISE 'x' USING ERRCODE = '{state}'; END $$")
        assert db.is_unavailable(caught.value) is unavailable
        with pytest.raises(peewee.PeeweeException) as caught:
            db.database.execute_sql(f"DO $$ BEGIN RAISE 'x' USING ERRCODE = '{state}'; END $$")
        assert db.is_unavailable(caught.value) is unavailable
        assert not App.select().exists()
        assert_clean(url)

    @pytest.mark.parametrize("sql", ["SELEKT", "SELECT 1/0", "SELECT * FROM missing", "SELECT %s %s", "SELECT '\0'"])
    def test_invalid_sql_does_not_mean_unavailable(self, sql, application, url):
        for block in (contextlib.nullcontext(), db.write("a"), db.snapshot()):
            with pytest.raises(peewee.PeeweeException) as caught, block:
                db.database.execute_sql(sql, None if "%" not in sql else (1,))
            assert not db.is_unavailable(caught.value)
        assert_clean(url)

    @pytest.mark.parametrize("nested", [False, True])
    def test_suppressed_error_prevents_the_commit(self, nested, application, url):
        with pytest.raises(peewee.InternalError) as caught, db.write("a"):
            App.create(name="Rolled back")
            with db.write("b") if nested else contextlib.nullcontext(), contextlib.suppress(peewee.ProgrammingError):
                db.database.execute_sql("SELEKT")
        assert not db.is_unavailable(caught.value)
        assert not App.select().exists()
        assert_clean(url)

    def test_inner_transaction_can_be_rolled_back_alone(self, application, url):
        with db.write("a"):
            App.create(name="Committed")
            with contextlib.suppress(ZeroDivisionError), db.write("b"):
                App.create(name="Rolled back")
                raise ZeroDivisionError
            App.create(name="Committed too")
        assert {found.name for found in App.select()} == {"Committed", "Committed too"}
        assert_clean(url)

    def test_server_that_refuses_connections_is_unavailable(self, server, url):
        rules = server.folder / "pg_hba.conf"
        rules.write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        with other_session(url) as connection:
            connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
            connection.execute("CREATE ROLE crowd LOGIN CONNECTION LIMIT 0")
            connection.execute("SELECT pg_reload_conf()")
        place = server.url.partition("@")[2]
        for address in (
            f"postgresql://guarded:wrong@{place}/service",
            f"postgresql://crowd@{place}/service",  # 53300
            f"postgresql://missing@{place}/service",
            f"{server.url}/missing",
            f"postgresql://cx@127.0.0.1:{postgres.free_port()}/service",
            f"postgresql://cx@host.invalid:{server.port}/service",
        ):
            engine = Postgresql(address)
            for connect in (engine.connect, engine.begin, engine.write("a").__enter__, engine.snapshot().__enter__):
                with pytest.raises(peewee.OperationalError) as caught:
                    connect()
                assert engine.is_unavailable(caught.value), address
                assert not engine.in_transaction() and engine.is_closed()
        right = Postgresql(f"postgresql://guarded:right@{place}/service")
        with right.disconnecting():
            assert right.execute_sql("SELECT 1").fetchone() == (1,)

    def test_database_that_allows_no_connections_is_503(self, alice, server, url):
        alter = "ALTER DATABASE service ALLOW_CONNECTIONS"
        server_url = f"{server.url}/postgres"
        with other_session(server_url) as connection:
            connection.execute(f"{alter} false")
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'service'")
            remaining = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'service'"
            until(lambda: connection.execute(remaining).fetchone() == (0,))
            try:
                assert alice.get("/users/me").error == (503, "storage_unavailable")
            finally:
                connection.execute(f"{alter} true")
        assert alice.get("/users/me").status == 200

    def test_read_only_database_can_be_read(self, alice, server, url):
        with other_session(f"{server.url}/postgres") as connection:
            connection.execute("ALTER DATABASE service SET default_transaction_read_only = on")
        try:
            end_connections(url)
            assert alice.get("/users/me").status == 200
            assert alice.get("/notifications").status == 200
            for method, path in (("PATCH", "/users/me"), ("PATCH", "/notifications/read-all")):
                assert alice.call(method, path, {}).error == (503, "storage_unavailable")
        finally:
            with other_session(f"{server.url}/postgres") as connection:
                connection.execute("ALTER DATABASE service RESET default_transaction_read_only")
        end_connections(url)
        assert_clean(url)


@pytest.fixture
def short_lock_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the lock timeout."""
    monkeypatch.setattr(postgresql, "LOCK_TIMEOUT", "50ms")


def in_another_thread(action: Callable[[], Any]) -> Any:
    """Run an action in another thread. Returns its result or its error."""
    (found,) = at_once(1, lambda _: action())
    return found


class TestLocks:
    @pytest.mark.parametrize(
        ("held", "wanted", "waits"),
        [
            (["a"], ["a"], True),
            (["a"], ["b"], False),
            (["a", "b"], ["c", "b"], True),
            (["a", "b"], ["c", "d"], False),
            (["a"], [], True),
            ([], ["a"], True),
            ([], [], True),
        ],
    )
    def test_writes_wait_for_a_common_name_or_for_a_write_without_names(
        self, held, wanted, waits, application, short_lock_timeout, url
    ):
        def write() -> None:
            with db.write(*wanted):
                App.create(name="Other")

        with db.write(*held):
            found = in_another_thread(write)
        assert (found is not None) is waits
        assert not waits or db.is_unavailable(found)
        assert App.select().count() == (0 if waits else 1)
        assert in_another_thread(write) is None
        assert_clean(url)

    @pytest.mark.parametrize("wanted", [["a"], ["b"], []])
    def test_locks_of_an_inner_write_are_held_until_the_outer_ends(self, wanted, application, short_lock_timeout, url):
        def write() -> None:
            with db.write(*wanted):
                pass

        with db.write("a"):
            with db.write("b"), db.write("a"):
                pass
            assert db.is_unavailable(in_another_thread(write))
        assert in_another_thread(write) is None
        assert_clean(url)

    def test_lock_timeout_of_an_inner_write_rolls_back_the_outer(self, application, short_lock_timeout, url):
        def write() -> None:
            with db.write("b"):
                App.create(name="Rolled back")
                with db.write("a"):
                    pass

        with db.write("a"):
            assert db.is_unavailable(in_another_thread(write))
        assert not App.select().exists()
        assert_clean(url)

    def test_single_statement_write_has_a_lock_timeout(self, alice, short_lock_timeout, url):
        with other_session(url) as other, other.transaction():
            other.execute('UPDATE "user" SET locale = locale')
            with pytest.raises(peewee.OperationalError) as caught:
                User.update(locale="en").execute()
        assert db.is_unavailable(caught.value)
        assert_clean(url)

    @pytest.mark.parametrize("names", [["a"], ["b", "a"], []])
    def test_concurrent_read_and_write_loses_no_update(self, names, application):
        counter = App.create(name="0")

        def increment(_: int) -> None:
            for _ in range(5):
                with db.write(*names):
                    before = App.get_by_id(counter.id).name
                    App.update(name=str(int(before) + 1)).where(App.id == counter.id).execute()

        assert at_once(8, increment) == [None] * 8
        assert App.get_by_id(counter.id).name == "40"

    def test_names_in_any_order_never_deadlock(self, application):
        def write(index: int) -> None:
            orders = random.Random(index)
            for _ in range(25):
                with db.write(*orders.sample("abcd", orders.randint(0, 4))):
                    pass

        assert at_once(8, write) == [None] * 8


class TestConflicts:
    def test_both_transactions_of_a_deadlock_succeed_after_a_retry(self, application, url):
        barrier, attempts = threading.Barrier(2), []

        def act(first: str, second: str) -> str:
            def action() -> str:
                attempts.append(first)
                with db.write(first):
                    if len(attempts) <= 2:
                        barrier.wait()
                    with db.write(second):
                        return str(App.create(name=first).id)

            return db.retry_on_conflict(action)

        made = at_once(2, lambda index: act(*("ab" if index else "ba")))
        assert sorted(found.id for found in App.select()) == sorted(made)
        assert len(attempts) == 3
        assert_clean(url)

    @pytest.mark.parametrize("state", ["40001", "40P01"])
    @pytest.mark.parametrize(
        ("times", "succeeds"),
        [(1, True), (postgresql.MAX_ATTEMPTS - 1, True), (postgresql.MAX_ATTEMPTS, False), (1_000, False)],
    )
    def test_single_statement_is_retried_up_to_the_limit(self, state, times, succeeds, application, url):
        with trigger(url, App, raise_error(state, times)):
            if succeeds:
                App.create(name="Once")
            else:
                with pytest.raises(peewee.OperationalError):
                    App.create(name="Never")
            assert query_value(url, "SELECT last_value FROM times") == min(times + succeeds, postgresql.MAX_ATTEMPTS)
        assert App.select().count() == succeeds
        assert_clean(url)

    def test_statement_in_a_transaction_is_not_retried(self, application, url):
        with trigger(url, App, raise_error("40P01", 1)), pytest.raises(peewee.OperationalError), db.write("a"):
            App.create(name="Never")
        assert not App.select().exists()

    @pytest.mark.parametrize(("times", "succeeds"), [(db.MAX_ATTEMPTS - 1, True), (db.MAX_ATTEMPTS, False)])
    def test_action_is_retried_up_to_the_limit(self, times, succeeds, application, url):
        def action() -> str:
            with db.write("a"):
                return str(App.create(name="Once").id)

        with trigger(url, App, raise_error("40P01", times)):
            if succeeds:
                assert db.retry_on_conflict(action) == App.get().id
            else:
                with pytest.raises(peewee.OperationalError):
                    db.retry_on_conflict(action)
            assert query_value(url, "SELECT last_value FROM times") == db.MAX_ATTEMPTS
        assert App.select().count() == succeeds

    @pytest.mark.parametrize("state", ["40001", "40P01"])
    @pytest.mark.parametrize("key", ["", "key"])
    def test_request_with_conflicts_takes_effect_once(self, state, key, alice, url):
        headers = {"idempotency_key": key} if key else {}
        body = {"mcp_server_id": "files", "allowed_tools": ["read"]}
        for table in (DataShare, Feedback):
            with trigger(url, table, raise_error(state, db.MAX_ATTEMPTS - 1)):
                path, content = ("/data-shares", body) if table is DataShare else ("/feedback", {"description": "Once"})
                response = alice.post(path, content, **headers)
                assert response.status == 201
                assert [row.id for row in table.select()] == [response.data["id"]]
                if key:
                    repeated = alice.post(path, content, **headers)
                    assert (repeated.raw, repeated.headers["Idempotency-Replayed"]) == (response.raw, "true")
            assert table.select().count() == 1
        assert_clean(url)

    @pytest.mark.parametrize("key", ["", "key"])
    def test_request_with_endless_conflicts_is_503_and_can_be_repeated(self, key, alice, url):
        headers = {"idempotency_key": key} if key else {}
        with trigger(url, Feedback, raise_error("40P01")), nothing_changes():
            assert alice.post("/feedback", {"description": "x"}, **headers).error == (503, "storage_unavailable")
        assert alice.post("/feedback", {"description": "x"}, **headers).status == 201
        assert Feedback.select().count() == 1
        assert_clean(url)

    def test_changes_of_a_chat_with_conflicts_take_effect_once(self, alice, session, say, url):
        message, pinned = say(), say()
        with trigger(url, Message, raise_error("40P01", 2)):
            assert alice.post(f"/chats/{session.id}/messages/{pinned.id}/pin").status == 200
        with trigger(url, ChatSession, raise_error("40001", 3)):
            assert alice.delete(f"/chats/{session.id}/messages/{message.id}").status == 200
        with trigger(url, ChatSession, raise_error("40001", 3)):
            assert alice.post(f"/chats/{session.id}/end").status == 200
        stored = ChatSession.get_by_id(session.id)
        assert (stored.status, stored.shown_total, stored.public_total) == ("resolved", 1, 1)
        assert Message.select().where(Message.pinned_at.is_null(False)).count() == 1


def results(responses: list[Any]) -> list[Any]:
    """The sorted statuses of responses, with the codes of errors."""
    return sorted((response.status, "" if response.status < 300 else response.error[1]) for response in responses)


class TestConcurrentRequests:
    def test_grants_never_exceed_the_limit(self, alice):
        row = {"user_id": alice.user.id, "mcp_server_id": "files", "allowed_tools": '["read"]', "scope_meta": "[]"}
        DataShare.insert_many([{**row, "id": clock.uuid()} for _ in range(496)]).execute()
        body = {"mcp_server_id": "files", "allowed_tools": ["read"]}
        responses = at_once(12, lambda _: alice.post("/data-shares", body))
        assert results(responses) == [(201, "")] * 4 + [(400, "grant_limit_reached")] * 8
        assert DataShare.select().count() == 500

    def test_pins_never_exceed_the_limit_and_have_distinct_times(self, alice, session, say):
        messages = [say() for _ in range(12)]
        row = {"chat_session_id": session.id, "pinned_at": clock.timestamp()}
        Message.insert_many([{**row, "id": clock.ulid()} for _ in range(96)]).execute()
        where = f"/chats/{session.id}/messages"
        responses = at_once(12, lambda index: alice.post(f"{where}/{messages[index].id}/pin"))
        assert results(responses) == [(200, "")] * 4 + [(400, "pin_limit_reached")] * 8
        pinned = [
            row.pinned_at for row in Message.select().where(Message.id.in_(messages), Message.pinned_at.is_null(False))
        ]
        assert len(set(pinned)) == 4

    def test_idempotency_key_takes_effect_once(self, alice):
        responses = at_once(12, lambda _: alice.post("/feedback", {"description": "x"}, idempotency_key="k"))
        assert results(responses) == [(201, "")] * 12
        assert len({response.raw for response in responses}) == 1
        assert sum("Idempotency-Replayed" in response.headers for response in responses) == 11
        assert Feedback.select().count() == 1

    def test_concurrent_settings_patches_are_all_stored(self, alice):
        responses = at_once(16, lambda index: alice.patch("/users/me/settings", {f"own_{index}": {"x": index}}))
        assert results(responses) == [(200, "")] * 16
        assert alice.get("/users/me/settings").data.items() >= {f"own_{i}": {"x": i} for i in range(16)}.items()

    def test_concurrent_deletions_count_each_message_once(self, alice, session, say):
        messages = [say(is_private=index == 8) for index in range(9)]
        for deleted, remaining in ((messages[:1] * 8, 8), (messages[1:8], 1)):
            paths = [f"/chats/{session.id}/messages/{message.id}" for message in deleted]
            responses = at_once(len(paths), lambda index, paths=paths: alice.delete(paths[index]))
            assert results(responses) == [(200, "")] * len(paths)
            stored = ChatSession.get_by_id(session.id)
            assert (stored.shown_total, stored.public_total) == (remaining, remaining - 1)

    def test_concurrent_refreshes_share_one_rotation(self, anyone, person, settings):
        user = person("carol").user
        with db.write(user.id):
            pair = tokens.log_in(user.id, settings)
        responses = at_once(8, lambda _: anyone.post("/auth/refresh", {"refresh_token": pair.refresh_token}))
        assert results(responses) == [(200, "")] * 8
        assert sorted(row.generation for row in LoginSession.select()) == [1, 2]
        issued = [response.data["tokens"]["access_token"] for response in responses]
        assert {Client(anyone.application, token).get("/users/me").status for token in issued} == {200}

    def test_login_session_ended_during_a_refresh_stays_ended(self, anyone, alice, settings):
        for _ in range(4):
            with db.write(alice.user.id):
                pair = tokens.log_in(alice.user.id, settings)
            client = Client(anyone.application, pair.access_token)

            def act(index: int, pair: Any = pair, client: Client = client) -> Any:
                if index % 4 == 3:
                    return client.post("/auth/logout", {})
                return anyone.post("/auth/refresh", {"refresh_token": pair.refresh_token})

            responses = at_once(8, act)
            issued = [
                response.data["tokens"]
                for response in responses[:7]
                if response.status == 200 and "tokens" in response.data
            ]
            for issued_pair in [*issued, {"access_token": pair.access_token, "refresh_token": pair.refresh_token}]:
                assert Client(anyone.application, issued_pair["access_token"]).get("/users/me").status == 401
                assert anyone.post("/auth/refresh", {"refresh_token": issued_pair["refresh_token"]}).status == 401

    def test_logins_while_a_user_is_disabled_stay_invalid_afterwards(self, anyone, alice):
        def act(index: int) -> Any:
            if index == 0:
                return User.get_by_id(alice.user.id).disable()
            return anyone.post("/auth/login", {"email": alice.user.email, "password": PASSWORD})

        responses = at_once(5, act)[1:]
        User.get_by_id(alice.user.id).enable()
        issued = [response.data["tokens"]["access_token"] for response in responses if response.status == 200]
        for token in [*issued, alice.token]:
            assert Client(anyone.application, token).get("/users/me").status == 401

    def test_failed_logins_never_exceed_their_limits(self, application, settings):
        def guess(index: int) -> Any:
            return login_throttle.record_attempt(f"user{index % 2}@example.com", "192.0.2.1", settings)

        assert [error for error in at_once(10, guess) if isinstance(error, Exception)] == []
        limits = Settings(login_failures=9, login_failures_account=8, login_failures_network=15)

        def guess_again(index: int) -> Any:
            return login_throttle.record_attempt("user0@example.com", "192.0.2.1", limits)

        found = at_once(12, guess_again)
        assert sum(isinstance(error, RateLimited) for error in found) == 9
        assert LoginAttempt.select().count() == 13

    def test_concurrent_mark_all_read_counts_each_notification_once(self, alice):
        Notification.insert_many([{"user_id": alice.user.id, "title": str(number)} for number in range(50)]).execute()
        responses = at_once(8, lambda _: alice.patch("/notifications/read-all"))
        assert sorted(response.data["marked_read"] for response in responses) == [0] * 7 + [50]


@pytest.fixture
def code(alice: Client) -> Callable[[], str]:
    """Issue authorization codes that Alice has approved."""

    def make() -> str:
        caller = tokens.authenticate(f"Bearer {alice.token}")
        request = consent.ConsentRequest(**VALID_PARAMETERS)
        url = authorization_codes.record_decision(
            caller, authorization_codes.make_csrf_token(caller, request), True, "http://test"
        )
        return re.search(r"code=([^&]+)", url)[1]  # type: ignore[index]

    return make


class TestAuthorizationCodes:
    def exchange(self, code: str, settings: Settings) -> Any:
        return exchange(code, VERIFIER, VALID_PARAMETERS["redirect_uri"], settings)

    def test_code_used_concurrently_is_exchanged_once(self, code, settings, anyone):
        one = code()
        found = at_once(8, lambda _: self.exchange(one, settings))
        pairs = [pair for pair in found if not isinstance(pair, Exception)]
        assert len(pairs) == 1
        assert all(isinstance(error, InvalidGrant) for error in found if error is not pairs[0])
        assert Client(anyone.application, pairs[0][0].access_token).get("/users/me").status == 401  # used again
        assert LoginSession.select().where(LoginSession.install_id.is_null(False)).count() == 1

    def test_concurrent_codes_of_one_install_leave_one_login_session(self, code, settings):
        codes = [code() for _ in range(6)]
        found = at_once(6, lambda index: self.exchange(codes[index], settings))
        assert [error for error in found if isinstance(error, Exception)] == []
        open_ = LoginSession.ended_at.is_null() & LoginSession.install_id.is_null(False)
        assert LoginSession.select().where(open_).count() == 1

    @pytest.mark.parametrize("act", ["disable", "change_password"])
    def test_exchange_waits_while_login_sessions_of_the_user_are_ended(
        self, act, code, alice, settings, short_lock_timeout, url
    ):
        one = code()
        with db.write(alice.user.id):  # the lock that disabling a user or changing a password takes
            assert db.is_unavailable(in_another_thread(lambda: self.exchange(one, settings)))
        assert Approval.get().used_at is None
        getattr(User.get_by_id(alice.user.id), act)(*([""] if act == "change_password" else []))
        with pytest.raises(InvalidGrant):
            self.exchange(one, settings)


WRITER = """
import sys
from pathlib import Path
from service import clock, db
from service.models import App
host_time, offset = clock.host_time, int(sys.argv[2])
clock.host_time = lambda: host_time() + offset
db.open_database(Path("."), sys.argv[1])
for _ in range(60):
    with db.write("thing"):
        (number,) = db.database.execute_sql("SELECT nextval('write_order')").fetchone()
        App.create(name=f"{number} {clock.now()}")
"""


class TestClock:
    @pytest.mark.slow
    def test_hosts_with_different_clocks_write_increasing_times(self, application, url):
        with other_session(url) as connection:
            connection.execute("CREATE SEQUENCE write_order")
        try:
            line = [sys.executable, "-c", WRITER, url]
            offsets = (-10 * clock.MINUTE, 0, 10 * clock.MINUTE)
            writers = [subprocess.Popen([*line, str(offset)], cwd=ROOT) for offset in offsets]
            assert [writer.wait(60) for writer in writers] == [0, 0, 0]
        finally:
            with other_session(url) as connection:
                connection.execute("DROP SEQUENCE write_order")
        rows = sorted(tuple(map(int, row.name.split())) for row in App.select())
        times = [time for _, time in rows]
        assert len(times) == 180
        assert times == sorted(times)

    def test_database_clock_set_back_does_not_set_back_the_service(self, application, monkeypatch):
        times = []
        for shift in (0, 3600, -3600, 0, 7200, 0):
            shifted = postgresql.NOW.replace("clock_timestamp()", f"clock_timestamp() + interval '{shift} s'")
            monkeypatch.setattr(postgresql, "NOW", shifted)
            with db.write("a"):
                times.append(clock.now())
        assert times == sorted(times)
        assert times[1] - times[0] > clock.HOUR - clock.SECOND

    def test_time_in_a_transaction_is_not_before_committed_times(self, application):
        def act(_: int) -> None:
            for _ in range(20):
                with db.write("a"):
                    latest = db.database.execute_sql("SELECT max(name) FROM app").fetchone()[0] or "0"
                    assert int(latest) <= clock.now()
                    App.create(name=f"{clock.now():020}")

        assert at_once(8, act) == [None] * 8

    def test_first_write_synchronizes_the_clock_with_the_server(self, application, monkeypatch):
        host_time = clock.host_time
        monkeypatch.setattr(clock, "host_time", lambda: host_time() + 10 * clock.MINUTE)
        clock.reset()
        with db.write("a"):
            assert abs(clock.now() - host_time()) < clock.MINUTE

    def test_truncation_to_milliseconds_never_exceeds_the_server_time(self, monkeypatch):
        host = [1_000]
        monkeypatch.setattr(clock, "host_time", lambda: host[0])
        monkeypatch.setattr(clock, "monotonic_time", lambda: 0)
        clock.synchronize(5_000)
        for elapsed, expected in ((0, 5_000), (1, 5_000), (2, 5_001), (60_000, 64_999)):
            host[0] = 1_000 + elapsed
            assert clock.now() == expected

    def test_late_synchronization_does_not_set_the_clock_back(self, monkeypatch):
        monkeypatch.setattr(clock, "host_time", lambda: 0)
        monkeypatch.setattr(clock, "monotonic_time", lambda: 0)
        clock.synchronize(2_000)
        clock.synchronize(1_000)
        assert clock.now() == 2_000


class TestPooling:
    """The teardown of `server` also checks the statements of all tests in this module."""

    @pytest.mark.parametrize(
        ("statement", "expected"),
        [
            ("statement: SET statement_timeout = 5", True),
            ("statement: SET search_path TO x", True),
            ("statement: BEGIN ; SET lock_timeout = '5s'", True),
            ("statement: SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", True),
            ("statement: SELECT pg_advisory_lock(1)", True),
            ("statement: SELECT pg_try_advisory_lock_shared(1)", True),
            ("statement: LISTEN news", True),
            ("statement: PREPARE x AS SELECT 1", True),
            ("statement: CREATE TEMP TABLE x ()", True),
            ("statement: DECLARE x CURSOR WITH HOLD FOR SELECT 1", True),
            ("execute x: SELECT 1", True),
            ("statement: BEGIN ; SET LOCAL lock_timeout = '5s'; SELECT pg_advisory_xact_lock_shared(0)", False),
            ('execute <unnamed>: UPDATE "app" SET "name" = $1', False),
            ("execute _pg3_0: SELECT 1", False),
            ("statement: SELECT 1", False),
        ],
    )
    def test_changes_of_session_state_are_recognized(self, statement, expected):
        assert changes_session(statement) is expected

    def test_typical_requests_do_not_change_session_state(self, alice, bot, session, say, server, url):
        before = len(logged_statements(server))
        message = say()
        for _ in range(8):  # often enough for the driver to prepare repeated statements
            assert alice.post("/auth/login", {"email": alice.user.email, "password": "wrong"}).status == 401
            assert alice.get(f"/chats/{session.id}/messages?limit=1").status == 200
            assert alice.get(f"/bots?app_id={bot.app_id}&search=hil").status == 200
            assert alice.get("/events").status == 200
            assert alice.get("/notifications").status == 200
            assert alice.post(f"/chats/{session.id}/messages/{message.id}/pin").status == 200
            assert alice.delete(f"/chats/{session.id}/messages/{message.id}/pin").status == 200
            assert alice.patch("/users/me/settings", {"theme": "dark"}).status == 200
            assert alice.post("/feedback", {"description": "x"}, idempotency_key=clock.uuid()).status == 201
            with db.snapshot():
                assert len(list(db.database.stream("SELECT id FROM feedback"))) >= 1
        logged = logged_statements(server)[before:]
        assert len(logged) > 100
        assert [statement for statement in logged if changes_session(statement)] == []


def test_a_single_write_costs_three_round_trips_and_a_read_one(alice, url, server):
    before = len(logged_statements(server))
    with statements() as seen:
        User.update(locale="en").where(User.id == alice.user.id).execute()
        User.get_by_id(alice.user.id)
    assert len(seen) == 2
    assert len(logged_statements(server)) - before == 4
