"""A streaming replica answers lists, and nobody notices: neither what was just written is missing, nor a failure."""

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
from tests import postgres
from tests.cluster import find_postgresql, until
from tests.conftest import Client
from tests.test_postgresql import ask, said, somebody, trigger
from tests.watching import at_once

pytestmark = pytest.mark.slow

SHARE = {"mcp_server_id": "files", "allowed_tools": ["*"]}
OURS = "FROM pg_stat_activity WHERE application_name = 'cx-service'"
LOGGED = {"fsync": "off", "log_statement": "all", "max_connections": "100"}


@pytest.fixture(scope="module")
def primary() -> Iterator[postgres.Server]:
    """A server that acknowledges what its log holds."""
    find_postgresql()
    with postgres.running(**LOGGED, autovacuum="off") as server:
        with psycopg.connect(f"{server.url}/postgres", autocommit=True) as connection:
            connection.execute("CREATE DATABASE service TEMPLATE template0")
        app.prepare(Settings(database=f"{server.url}/service"), create=True)
        db.close_database()
        yield server


@contextlib.contextmanager
def standing_by(leader: postgres.Server, name: str, **options: str) -> Iterator[postgres.Server]:
    """A streaming replica of a server."""
    folder = leader.folder.parent / name
    folder.mkdir(mode=0o700)
    if postgres.ordinary():
        shutil.chown(folder, postgres.ordinary())
    server = postgres.Server(folder, **{**LOGGED, "autovacuum": "off", **options})
    source = f"host=127.0.0.1 port={leader.port} user=cx"
    server.run("pg_basebackup", "-D", folder, "-d", source, "-R", "-X", "stream", "-c", "fast", "--no-sync")
    (folder / "server.log").unlink(missing_ok=True)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def standby(primary: postgres.Server) -> Iterator[postgres.Server]:
    with standing_by(primary, "standby", max_standby_streaming_delay="0") as server:
        yield server


@pytest.fixture
def settings(primary: postgres.Server, standby: postgres.Server, tmp_path: Path) -> Settings:
    return Settings(
        data=tmp_path, database=f"{primary.url}/service", replica=f"{standby.url}/service", verify_answers=True
    )


@pytest.fixture
def application(settings: Settings) -> Iterator[Any]:
    """The service on an empty database with a replica that has caught up."""
    db.open_database(settings.data, settings.database)
    db.database.execute_sql("; ".join(f'DELETE FROM "{table._meta.table_name}"' for table in reversed(TABLES)))
    yield app.build(settings)
    expect_sound(settings)


def expect_sound(settings: Settings) -> None:
    """Nothing is open but this thread's two connections, and these not for longer than the thread wants."""
    engine = db.database.obj
    assert engine._here.reading is None
    assert not engine.in_transaction() and not engine._standby.database.in_transaction()
    db.close_database()
    for url in (settings.database, settings.replica):
        until(lambda url=url: ask(url, f"SELECT count(*) {OURS}") == 0)


@pytest.fixture
def pages(standby: postgres.Server) -> Callable[[], int]:
    """Counts the pages of lists that the replica has answered."""
    before = len(of_pages(standby))
    return lambda: len(of_pages(standby)) - before


def of_pages(server: postgres.Server) -> list[str]:
    """The statements that read a page, of a server's log."""
    return [statement for statement in said(server) if "SELECT count(*), convert_to(string_agg" in statement]


def caught_up(primary: postgres.Server, standby: postgres.Server) -> None:
    """Wait until a standby has replayed what was written until now."""
    written = ask(f"{primary.url}/service", "SELECT pg_current_wal_flush_lsn()")
    until(lambda: ask(f"{standby.url}/service", f"SELECT pg_last_wal_replay_lsn() >= '{written}'"))


def share_and_list(client: Client, rounds: int) -> None:
    """Each grant is in the list as soon as it was given."""
    for _ in range(rounds):
        made = client.post("/data-shares", SHARE).data["id"]
        assert made in [grant["id"] for grant in client.get("/data-shares").data]


class TestWhoAnswers:
    def test_lists_come_from_the_replica(self, alice, bot, session, say, primary, standby, settings):
        say()
        for path, reads in (
            (f"/chats/{session.id}/messages", 1),
            (f"/chats/{session.id}/pinned-messages", 1),
            (f"/bots?app_id={bot.app_id}", 1),
            ("/data-shares", 1),
            ("/events", 1),
            ("/notifications", 1),
        ):
            alice.get(path)  # everybody is connected
            caught_up(primary, standby)
            asked, pages = len(said(standby)), (len(of_pages(primary)), len(of_pages(standby)))
            assert alice.get(path).status == 200
            assert (len(of_pages(primary)), len(of_pages(standby))) == (pages[0], pages[1] + 1), path
            assert len(said(standby)) - asked == 1 + reads, path

    def test_everything_else_comes_from_the_primary(self, alice, bot, session, say, standby):
        message = say()
        grant = alice.post("/data-shares", SHARE).data["id"]
        asked = len(said(standby))
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
        assert len(said(standby)) == asked

    def test_within_a_write_lists_are_of_the_primary(self, alice, pages):
        with db.write(alice.user.id):
            made = DataShare.give(alice.user.id, **{**SHARE, "allowed_tools": '["*"]'})
            assert made.id.encode() in bytes(DataShare.active_of(alice.user.id))
        assert pages() == 0


class TestReadingWhatOneWrote:
    def test_three_hundred_times(self, alice, pages):
        share_and_list(alice, 300)
        assert pages() > 0

    def test_by_many_at_once(self, person, pages):
        people = [person(f"reader{number}") for number in range(6)]
        assert at_once(6, lambda index: share_and_list(people[index], 25)) == [None] * 6
        assert pages() > 0

    def test_where_commits_are_acknowledged_before_they_are_in_the_log(self, alice, primary, settings):
        with somebody(f"{primary.url}/postgres") as connection:
            connection.execute("ALTER DATABASE service SET synchronous_commit = off")
        try:
            db.close_database()
            share_and_list(alice, 200)
        finally:
            with somebody(f"{primary.url}/postgres") as connection:
                connection.execute("ALTER DATABASE service RESET synchronous_commit")

    def test_from_the_primary_while_nothing_is_replayed(self, alice, primary, standby, settings, pages):
        assert ask(settings.replica, "SELECT pg_wal_replay_pause()::text") == ""
        try:
            share_and_list(alice, 20)
            assert pages() == 0
        finally:
            ask(settings.replica, "SELECT pg_wal_replay_resume()::text")
        caught_up(primary, standby)
        assert len(alice.get("/data-shares").data) == 20
        assert pages() == 1

    def test_from_the_primary_while_replay_is_delayed(self, alice, settings, pages):
        with somebody(settings.replica) as connection:
            connection.execute("ALTER SYSTEM SET recovery_min_apply_delay = '1s'")
            connection.execute("SELECT pg_reload_conf()")
            try:
                until(lambda: ask(settings.replica, "SHOW recovery_min_apply_delay") == "1s")
                share_and_list(alice, 20)
            finally:
                connection.execute("ALTER SYSTEM RESET recovery_min_apply_delay")
                connection.execute("SELECT pg_reload_conf()")


class TestFailures:
    PATHS = ("/data-shares", "/events", "/notifications", "/chats")

    def test_a_replica_that_stops_is_left_alone_for_a_while_and_asked_again(
        self, alice, person, primary, standby, caplog, pages
    ):
        people = [person(f"reader{number}") for number in range(4)]
        stopped = threading.Event()

        def read(index: int) -> set[int]:
            statuses = set()
            while not stopped.is_set():
                statuses |= {people[index].get(path).status for path in self.PATHS}
            return statuses | {people[index].get(path).status for path in self.PATHS}

        found: list[Any] = []
        reading = threading.Thread(target=lambda: found.extend(at_once(4, read)))
        reading.start()
        try:
            before = pages()
            until(lambda: pages() > before + 20)
            standby.stop("immediate")
        finally:
            stopped.set()
            reading.join()
        assert found == [{200}] * 4
        caplog.clear()
        for path in self.PATHS:
            assert alice.get(path).status == 200
        db.database.obj._standby.rests_until = 0.0
        with caplog.at_level(logging.WARNING):
            for path in self.PATHS * 3:
                assert alice.get(path).status == 200
        assert sum("left alone" in line for line in caplog.messages) == 1
        standby.start()
        caught_up(primary, standby)
        before = pages()
        assert alice.get("/data-shares").status == 200
        assert pages() == before
        db.database.obj._standby.rests_until = 0.0
        assert alice.get("/data-shares").status == 200
        assert pages() == before + 1

    @pytest.mark.parametrize("path", PATHS)
    def test_a_replica_that_is_lost_between_two_reads_is_not_noticed(self, path, alice, settings, monkeypatch, caplog):
        engine = db.database.obj
        Event.create(user_id=alice.user.id, title="x", starts_at="2026-11-20T10:00:00.000Z")
        alice.get(path)
        real, lost = engine._standby.database.execute_sql, []

        def execute_sql(sql: str, params: Any = None) -> Any:
            if ("string_agg" in sql or "active_at" in sql) and not lost:
                lost.append(sql)
                ask(settings.replica, f"SELECT count(pg_terminate_backend(pid)) {OURS}")
                until(engine._standby.database._is_lost)
            return real(sql, params)

        monkeypatch.setattr(engine._standby.database, "execute_sql", execute_sql)
        reply = alice.get(path)
        assert (reply.status, len(lost)) == (200, 1)
        assert not any("unavailable" in line for line in caplog.messages)

    def test_a_read_that_the_replica_cannot_keep_is_answered_by_the_primary(self, alice, primary, standby, settings):
        App.create(name="Gone soon")
        caught_up(primary, standby)
        runs = []

        def names() -> list[list[str]]:
            with db.snapshot():
                runs.append(db.database.obj._here.reading is not None)
                first = [row.name for row in App.select()]
                if len(runs) == 1:
                    with somebody(settings.database) as connection:
                        connection.execute("DELETE FROM app")
                        connection.execute("VACUUM app")
                    caught_up(primary, standby)
                return [first, [row.name for row in App.select()]]

        assert db.settled(names) == [[], []]
        assert runs == [True, False]
        conflicts = "SELECT confl_snapshot FROM pg_stat_database_conflicts WHERE datname = 'service'"
        assert ask(settings.replica, conflicts) >= 1

    def test_what_the_primary_could_not_say_is_not_blamed_on_the_replica(self, alice, settings):
        with trigger(settings.database, DataShare, "RAISE 'full' USING ERRCODE = '53100'"):
            assert alice.post("/data-shares", SHARE).error == (503, "storage_unavailable")
        assert db.database.obj._standby.rests_until == 0.0

    @pytest.mark.parametrize("outer", ["snapshot", "reading"])
    @pytest.mark.parametrize("inner", ["snapshot", "reading"])
    def test_blocks_within_blocks_and_errors_leave_nothing_behind(self, outer, inner, alice, primary, standby):
        engine = db.database.obj
        for error in (None, ZeroDivisionError, GeneratorExit, KeyboardInterrupt):
            caught_up(primary, standby)
            with contextlib.suppress(ZeroDivisionError, GeneratorExit, KeyboardInterrupt), getattr(engine, outer)():
                with getattr(engine, inner)():
                    assert engine._here.reading is engine._standby.database
                    assert App.select().count() >= 0
                    if error:
                        raise error
                assert engine._here.reading is engine._standby.database
                assert engine._standby.database.in_transaction() is (outer == "snapshot")
            assert engine._here.reading is None
            assert not engine.in_transaction() and not engine._standby.database.in_transaction()


class TestWhomToTrust:
    def test_a_server_in_recovery_is_no_primary_and_takes_no_writes(self, settings):
        engine = Postgresql(settings.replica)
        with pytest.raises(peewee.OperationalError, match="standby") as caught:
            engine.execute_sql("SELECT 1")
        assert engine.is_unavailable(caught.value)
        engine = Postgresql(settings.replica, writable=False)
        with engine.until_closed():
            for write in ("INSERT INTO app VALUES ('a', 'b')", "CREATE TABLE x ()"):
                with pytest.raises(peewee.InternalError) as refused:
                    engine.execute_sql(write)
                assert engine.is_unavailable(refused.value)
            assert not engine.in_transaction()
            assert engine.execute_sql("SELECT 1").fetchone() == (1,)

    def test_a_server_that_is_no_replica_of_this_primary_is_never_asked(self, alice, primary, settings):
        with postgres.running(**LOGGED) as other:
            with psycopg.connect(f"{other.url}/postgres", autocommit=True) as connection:
                connection.execute("CREATE DATABASE service TEMPLATE template0")
            app.prepare(Settings(database=f"{other.url}/service"), create=True)
            App.create(name="Elsewhere")
            db.close_database()
            for _ in range(4):  # far beyond where the primary is
                ask(f"{other.url}/service", "SELECT pg_switch_wal()::text, txid_current()")
            with standing_by(other, "other") as standby:
                caught_up(other, standby)
                for stranger in (other, standby, primary):
                    asked = len(said(stranger))
                    db.open_database(settings.data, settings.database, f"{stranger.url}/service")
                    with db.snapshot():
                        assert db.database.obj._here.reading is None
                        assert "Elsewhere" not in {row.name for row in App.select()}
                    assert len(said(stranger)) > asked
                    db.close_database()
        db.open_database(settings.data, settings.database, settings.replica)

    def test_one_that_became_a_primary_by_mistake_is_not_asked(self, alice, primary, settings):
        with standing_by(primary, "strayed") as strayed:
            caught_up(primary, strayed)
            strayed.run("pg_ctl", "-D", strayed.folder, "-w", "promote")
            with somebody(f"{strayed.url}/service") as connection:
                connection.execute("INSERT INTO app (id, name) VALUES (gen_random_uuid(), 'Astray')")
            db.open_database(settings.data, settings.database, f"{strayed.url}/service")
            with db.snapshot():
                assert db.database.obj._here.reading is None
                assert not App.select().exists()
            db.close_database()
        db.open_database(settings.data, settings.database, settings.replica)

    def test_after_a_failover_one_that_went_too_far_is_not_asked_and_one_that_follows_is(self, tmp_path):
        def read(standby: postgres.Server) -> tuple[bool, set[str]]:
            db.open_database(tmp_path, f"{new.url}/service", f"{standby.url}/service")
            with db.database.until_closed(), db.snapshot():
                return db.database.obj._here.reading is not None, {row.name for row in App.select()}

        with contextlib.ExitStack() as stack:
            old = stack.enter_context(postgres.running(**LOGGED))
            with psycopg.connect(f"{old.url}/postgres", autocommit=True) as connection:
                connection.execute("CREATE DATABASE service TEMPLATE template0")
            app.prepare(Settings(database=f"{old.url}/service"), create=True)
            db.close_database()
            new, ahead = (stack.enter_context(standing_by(old, name)) for name in ("new", "ahead"))
            across = stack.enter_context(standing_by(new, "across", wal_retrieve_retry_interval="100ms"))
            caught_up(old, across)
            new.stop("fast")
            with somebody(f"{old.url}/service") as connection:
                connection.execute("INSERT INTO app (id, name) VALUES (gen_random_uuid(), 'Never taken over')")
                for _ in range(4):
                    connection.execute("SELECT pg_switch_wal(), txid_current()")
            caught_up(old, ahead)
            old.stop()
            new.start()
            new.run("pg_ctl", "-D", new.folder, "-w", "promote")
            with somebody(f"{new.url}/service") as connection:
                connection.execute("INSERT INTO app (id, name) VALUES (gen_random_uuid(), 'Kept')")
            assert read(ahead) == (False, {"Kept"})
            assert read(new) == (False, {"Kept"})
            until(lambda: read(across) == (True, {"Kept"}))
            follower = stack.enter_context(standing_by(new, "follower"))
            caught_up(new, follower)
            assert read(follower) == (True, {"Kept"})
