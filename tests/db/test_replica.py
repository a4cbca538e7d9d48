"""Lists are read from a streaming replica, without stale reads, and without errors if the replica fails."""

import contextlib
import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import peewee
import psycopg
import pytest

import app
from service import db
from service.db.postgresql import Postgresql
from service.models import TABLES, App, DataShare, Event
from service.settings import Settings
from tests.support import postgres
from tests.support.client import Client
from tests.support.cluster import find_postgresql, until
from tests.support.observe import at_once
from tests.support.postgres_sessions import logged_statements, other_session, query_value, trigger

pytestmark = [pytest.mark.extended, pytest.mark.database]

GRANT = {"mcp_server_id": "files", "allowed_tools": ["read"]}
SERVICE_CONNECTIONS = "FROM pg_stat_activity WHERE application_name = 'cx-service'"
OPTIONS = {"fsync": "off", "log_statement": "all", "max_connections": "100"}


@pytest.fixture(scope="module")
def primary() -> Iterator[postgres.Server]:
    """A primary with synchronous commits and a log of all statements."""
    find_postgresql()
    with postgres.running(**OPTIONS, autovacuum="off") as server:
        with psycopg.connect(f"{server.url}/postgres", autocommit=True) as connection:
            connection.execute("CREATE DATABASE service TEMPLATE template0")
        app.prepare(Settings(database=f"{server.url}/service"), create=True)
        db.close_database()
        yield server


@contextlib.contextmanager
def running_replica(primary: postgres.Server, name: str, **options: str) -> Iterator[postgres.Server]:
    """A streaming replica of a server."""
    folder = primary.folder.parent / name
    folder.mkdir(mode=0o700)
    if postgres.unprivileged_user():
        shutil.chown(folder, postgres.unprivileged_user())
    server = postgres.Server(folder, **{**OPTIONS, "autovacuum": "off", **options})
    source = f"host=127.0.0.1 port={primary.port} user=cx"
    server.run("pg_basebackup", "-D", folder, "-d", source, "-R", "-X", "stream", "-c", "fast", "--no-sync")
    (folder / "server.log").unlink(missing_ok=True)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def replica(primary: postgres.Server) -> Iterator[postgres.Server]:
    with running_replica(primary, "replica", max_standby_streaming_delay="0") as server:
        yield server


@pytest.fixture
def settings(primary: postgres.Server, replica: postgres.Server, tmp_path: Path) -> Settings:
    return Settings(
        data=tmp_path, database=f"{primary.url}/service", replica=f"{replica.url}/service", verify_answers=True
    )


@pytest.fixture
def application(settings: Settings) -> Iterator[Any]:
    """The service on an empty database with a replica that has caught up."""
    db.open_database(settings.data, settings.database)
    db.database.execute_sql("; ".join(f'DELETE FROM "{table._meta.table_name}"' for table in reversed(TABLES)))
    yield app.build(settings)
    assert_clean(settings)


def assert_clean(settings: Settings) -> None:
    """Assert that only the two connections of this thread are open, and that they close with the database."""
    engine = db.database.obj
    assert engine._thread.replica is None
    assert not engine.in_transaction() and not engine._replica.database.in_transaction()
    db.close_database()
    for url in (settings.database, settings.replica):
        until(lambda url=url: query_value(url, f"SELECT count(*) {SERVICE_CONNECTIONS}") == 0)


@pytest.fixture
def pages(replica: postgres.Server) -> Callable[[], int]:
    """Return the number of pages that the replica has read since the test began."""
    before = len(page_statements(replica))
    return lambda: len(page_statements(replica)) - before


def page_statements(server: postgres.Server) -> list[str]:
    """The statements in the log of a server that read a page."""
    return [
        statement for statement in logged_statements(server) if "SELECT count(*), convert_to(string_agg" in statement
    ]


def wait_for_replay(primary: postgres.Server, replica: postgres.Server) -> None:
    """Wait until a replica has replayed all writes."""
    written = query_value(f"{primary.url}/service", "SELECT pg_current_wal_flush_lsn()")
    until(lambda: query_value(f"{replica.url}/service", f"SELECT pg_last_wal_replay_lsn() >= '{written}'"))


def create_and_list(client: Client, rounds: int) -> None:
    """Create grants, and assert that the next list has each."""
    for _ in range(rounds):
        made = client.post("/data-shares", GRANT).data["id"]
        assert made in [grant["id"] for grant in client.get("/data-shares").data]


class TestRouting:
    def test_lists_are_read_from_the_replica(self, alice, bot, session, say, primary, replica, settings):
        say()
        for path, reads in (
            (f"/chats/{session.id}/messages", 1),
            (f"/chats/{session.id}/pinned-messages", 1),
            (f"/bots?app_id={bot.app_id}", 1),
            ("/data-shares", 1),
            ("/events", 1),
            ("/notifications", 1),
        ):
            alice.get(path)  # opens the connections
            wait_for_replay(primary, replica)
            statements, pages = (
                len(logged_statements(replica)),
                (len(page_statements(primary)), len(page_statements(replica))),
            )
            assert alice.get(path).status == 200
            assert (len(page_statements(primary)), len(page_statements(replica))) == (pages[0], pages[1] + 1), path
            assert len(logged_statements(replica)) - statements == 1 + reads, path

    def test_other_operations_use_the_primary(self, alice, bot, session, say, replica):
        message = say()
        grant = alice.post("/data-shares", GRANT).data["id"]
        statements = len(logged_statements(replica))
        for method, path, body in (
            ("GET", "/users/me", None),
            ("GET", "/users/me/settings", None),
            ("GET", f"/data-shares/{grant}", None),
            ("GET", f"/bots/{bot.id}?app_id={bot.app_id}", None),
            ("PATCH", "/users/me", {"first_name": "Al"}),
            ("PATCH", "/notifications/read-all", None),
            ("POST", f"/chats/{session.id}/messages/{message.id}/pin", None),
            ("POST", f"/chats/{session.id}/archive", None),
            ("DELETE", f"/data-shares/{grant}", None),
        ):
            assert alice.call(method, path, body).status == 200, path
        assert len(logged_statements(replica)) == statements

    def test_lists_in_a_transaction_are_read_from_the_primary(self, alice, pages):
        with db.write(alice.user.id):
            made = DataShare.grant(alice.user.id, **{**GRANT, "allowed_tools": '["read"]'})
            assert made.id.encode() in bytes(DataShare.list_active(alice.user.id))
        assert pages() == 0


class TestReadYourWrites:
    def test_with_one_client(self, alice, pages):
        create_and_list(alice, 300)
        assert pages() > 0

    def test_with_concurrent_clients(self, person, pages):
        readers = [person(f"reader{number}") for number in range(6)]
        assert at_once(6, lambda index: create_and_list(readers[index], 25)) == [None] * 6
        assert pages() > 0

    def test_with_asynchronous_commits(self, alice, primary, settings):
        with other_session(f"{primary.url}/postgres") as connection:
            connection.execute("ALTER DATABASE service SET synchronous_commit = off")
        try:
            db.close_database()
            create_and_list(alice, 200)
        finally:
            with other_session(f"{primary.url}/postgres") as connection:
                connection.execute("ALTER DATABASE service RESET synchronous_commit")

    def test_with_paused_replay_on_the_primary(self, alice, primary, replica, settings, pages):
        assert query_value(settings.replica, "SELECT pg_wal_replay_pause()::text") == ""
        try:
            create_and_list(alice, 20)
            assert pages() == 0
        finally:
            query_value(settings.replica, "SELECT pg_wal_replay_resume()::text")
        wait_for_replay(primary, replica)
        assert len(alice.get("/data-shares").data) == 20
        assert pages() == 1

    def test_with_delayed_replay_on_the_primary(self, alice, settings, pages):
        with other_session(settings.replica) as connection:
            connection.execute("ALTER SYSTEM SET recovery_min_apply_delay = '1s'")
            connection.execute("SELECT pg_reload_conf()")
            try:
                until(lambda: query_value(settings.replica, "SHOW recovery_min_apply_delay") == "1s")
                create_and_list(alice, 20)
            finally:
                connection.execute("ALTER SYSTEM RESET recovery_min_apply_delay")
                connection.execute("SELECT pg_reload_conf()")


class TestFailures:
    PATHS = ("/data-shares", "/events", "/notifications", "/chats")

    def test_stopped_replica_is_suspended_and_used_again_later(self, alice, person, primary, replica, caplog, pages):
        readers = [person(f"reader{number}") for number in range(4)]
        stopped = threading.Event()

        def read(index: int) -> set[int]:
            statuses = set()
            while not stopped.is_set():
                statuses |= {readers[index].get(path).status for path in self.PATHS}
            return statuses | {readers[index].get(path).status for path in self.PATHS}

        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.extend(at_once(4, read)))
        thread.start()
        try:
            before = pages()
            until(lambda: pages() > before + 20)
            replica.stop("immediate")
        finally:
            stopped.set()
            thread.join()
        assert found == [{200}] * 4
        caplog.clear()
        for path in self.PATHS:
            assert alice.get(path).status == 200
        db.database.obj._replica.suspended_until = 0.0
        with caplog.at_level(logging.WARNING):
            for path in self.PATHS * 3:
                assert alice.get(path).status == 200
        assert sum("is not used" in line for line in caplog.messages) == 1
        replica.start()
        wait_for_replay(primary, replica)
        before = pages()
        assert alice.get("/data-shares").status == 200
        assert pages() == before
        db.database.obj._replica.suspended_until = 0.0
        assert alice.get("/data-shares").status == 200
        assert pages() == before + 1

    @pytest.mark.parametrize("path", PATHS)
    def test_connection_lost_between_two_reads_causes_no_error(self, path, alice, settings, monkeypatch, caplog):
        engine = db.database.obj
        Event.create(user_id=alice.user.id, title="x", starts_at="2026-11-20T10:00:00.000Z")
        alice.get(path)
        execute, lost = engine._replica.database.execute_sql, []

        def execute_sql(sql: str, params: Any = None) -> Any:
            if ("string_agg" in sql or "active_at" in sql) and not lost:
                lost.append(sql)
                query_value(settings.replica, f"SELECT count(pg_terminate_backend(pid)) {SERVICE_CONNECTIONS}")
                until(engine._replica.database._is_lost)
            return execute(sql, params)

        monkeypatch.setattr(engine._replica.database, "execute_sql", execute_sql)
        response = alice.get(path)
        assert (response.status, len(lost)) == (200, 1)
        assert not any("unavailable" in line for line in caplog.messages)

    def test_snapshot_canceled_by_the_replica_is_retried_on_the_primary(self, alice, primary, replica, settings):
        App.create(name="Deleted soon")
        wait_for_replay(primary, replica)
        runs = []

        def names() -> list[list[str]]:
            with db.snapshot():
                runs.append(db.database.obj._thread.replica is not None)
                first = [row.name for row in App.select()]
                if len(runs) == 1:
                    with other_session(settings.database) as connection:
                        connection.execute("DELETE FROM app")
                        connection.execute("VACUUM app")
                    wait_for_replay(primary, replica)
                return [first, [row.name for row in App.select()]]

        assert db.retry_on_conflict(names) == [[], []]
        assert runs == [True, False]
        conflicts = "SELECT confl_snapshot FROM pg_stat_database_conflicts WHERE datname = 'service'"
        assert query_value(settings.replica, conflicts) >= 1

    def test_error_of_the_primary_does_not_suspend_the_replica(self, alice, settings):
        with trigger(settings.database, DataShare, "RAISE 'full' USING ERRCODE = '53100'"):
            assert alice.post("/data-shares", GRANT).error == (503, "storage_unavailable")
        assert db.database.obj._replica.suspended_until == 0.0

    @pytest.mark.parametrize("outer", ["snapshot", "replica_read"])
    @pytest.mark.parametrize("inner", ["snapshot", "replica_read"])
    def test_nested_blocks_and_errors_restore_the_state(self, outer, inner, alice, primary, replica):
        engine = db.database.obj
        for error in (None, ZeroDivisionError, GeneratorExit, KeyboardInterrupt):
            wait_for_replay(primary, replica)
            with contextlib.suppress(ZeroDivisionError, GeneratorExit, KeyboardInterrupt), getattr(engine, outer)():
                with getattr(engine, inner)():
                    assert engine._thread.replica is engine._replica.database
                    assert App.select().count() >= 0
                    if error:
                        raise error
                assert engine._thread.replica is engine._replica.database
                assert engine._replica.database.in_transaction() is (outer == "snapshot")
            assert engine._thread.replica is None
            assert not engine.in_transaction() and not engine._replica.database.in_transaction()


class TestSuitableServers:
    def test_server_in_recovery_is_no_primary_and_is_read_only(self, settings):
        engine = Postgresql(settings.replica)
        with pytest.raises(peewee.OperationalError, match="standby") as caught:
            engine.execute_sql("SELECT 1")
        assert engine.is_unavailable(caught.value)
        engine = Postgresql(settings.replica, writable=False)
        with engine.disconnecting():
            for write in ("INSERT INTO app VALUES ('a', 'b')", "CREATE TABLE x ()"):
                with pytest.raises(peewee.InternalError) as write_error:
                    engine.execute_sql(write)
                assert engine.is_unavailable(write_error.value)
            assert not engine.in_transaction()
            assert engine.execute_sql("SELECT 1").fetchone() == (1,)

    def test_server_that_is_no_replica_of_the_primary_is_not_used(self, alice, primary, settings):
        with postgres.running(**OPTIONS) as other:
            with psycopg.connect(f"{other.url}/postgres", autocommit=True) as connection:
                connection.execute("CREATE DATABASE service TEMPLATE template0")
            app.prepare(Settings(database=f"{other.url}/service"), create=True)
            App.create(name="Elsewhere")
            db.close_database()
            for _ in range(4):  # beyond the position of the primary
                query_value(f"{other.url}/service", "SELECT pg_switch_wal()::text, txid_current()")
            with running_replica(other, "other") as replica:
                wait_for_replay(other, replica)
                for server in (other, replica, primary):
                    statements = len(logged_statements(server))
                    db.open_database(settings.data, settings.database, f"{server.url}/service")
                    with db.snapshot():
                        assert db.database.obj._thread.replica is None
                        assert "Elsewhere" not in {row.name for row in App.select()}
                    assert len(logged_statements(server)) > statements
                    db.close_database()
        db.open_database(settings.data, settings.database, settings.replica)

    def test_promoted_replica_is_not_used(self, alice, primary, settings):
        with running_replica(primary, "promoted") as promoted:
            wait_for_replay(primary, promoted)
            promoted.run("pg_ctl", "-D", promoted.folder, "-w", "promote")
            with other_session(f"{promoted.url}/service") as connection:
                connection.execute("INSERT INTO app (id, name) VALUES (gen_random_uuid(), 'Promoted')")
            db.open_database(settings.data, settings.database, f"{promoted.url}/service")
            with db.snapshot():
                assert db.database.obj._thread.replica is None
                assert not App.select().exists()
            db.close_database()
        db.open_database(settings.data, settings.database, settings.replica)

    def test_after_a_failover_only_replicas_of_the_new_primary_are_used(self, tmp_path):
        def read(replica: postgres.Server) -> tuple[bool, set[str]]:
            db.open_database(tmp_path, f"{new.url}/service", f"{replica.url}/service")
            with db.database.disconnecting(), db.snapshot():
                return db.database.obj._thread.replica is not None, {row.name for row in App.select()}

        with contextlib.ExitStack() as stack:
            old = stack.enter_context(postgres.running(**OPTIONS))
            with psycopg.connect(f"{old.url}/postgres", autocommit=True) as connection:
                connection.execute("CREATE DATABASE service TEMPLATE template0")
            app.prepare(Settings(database=f"{old.url}/service"), create=True)
            db.close_database()
            new, ahead = (stack.enter_context(running_replica(old, name)) for name in ("new", "ahead"))
            cascading = stack.enter_context(running_replica(new, "cascading", wal_retrieve_retry_interval="100ms"))
            wait_for_replay(old, cascading)
            new.stop("fast")
            with other_session(f"{old.url}/service") as connection:
                connection.execute("INSERT INTO app (id, name) VALUES (gen_random_uuid(), 'Lost by the failover')")
                for _ in range(4):
                    connection.execute("SELECT pg_switch_wal(), txid_current()")
            wait_for_replay(old, ahead)
            old.stop()
            new.start()
            new.run("pg_ctl", "-D", new.folder, "-w", "promote")
            with other_session(f"{new.url}/service") as connection:
                connection.execute("INSERT INTO app (id, name) VALUES (gen_random_uuid(), 'After the failover')")
            assert read(ahead) == (False, {"After the failover"})
            assert read(new) == (False, {"After the failover"})
            until(lambda: read(cascading) == (True, {"After the failover"}))
            follower = stack.enter_context(running_replica(new, "follower"))
            wait_for_replay(new, follower)
            assert read(follower) == (True, {"After the failover"})
