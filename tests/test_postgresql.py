"""PostgreSQL as several instances share it: lost connections, locks, crossings, one clock, and a pooler between."""

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
from service.auth import codes, consent, throttle, tokens
from service.auth.codes import exchange
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
from tests import postgres
from tests.cluster import find_postgresql, until
from tests.conftest import PASSWORD, Client
from tests.serving import ROOT
from tests.test_cli_login import VERIFIER
from tests.test_consent import GOOD
from tests.watching import at_once, nothing_changes, statements

pytestmark = pytest.mark.slow

STATES = {  # what a server says, and whether it means «not now»
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
    """A server that tests may stop; all that it was asked is in its log, and looked through at the end."""
    find_postgresql()
    with postgres.running(**postgres.QUICK, log_statement="all", deadlock_timeout="50ms") as running:
        yield running
        asked = said(running)
        assert len(asked) > 10
        assert [statement for statement in asked if lasts(statement)] == []


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


def said(server: postgres.Server) -> list[str]:
    """What the service asked a server, with the kind of the question before it."""
    log = (server.folder / "server.log").read_text()
    return re.findall(r"LOG:  ((?:statement|execute [^:]+): .*(?:\n\t.*)*)", log)


def lasts(asked: str) -> bool:
    """Whether a statement leaves something in its connection, where a pooler would hand it on to somebody else."""
    kind, _, text = asked.partition(": ")
    words = r"SET (?!LOCAL |CONSTRAINTS )|DISCARD|RESET|PREPARE|(UN)?LISTEN|CREATE (LOCAL |GLOBAL )?TEMP"
    words += r"|DECLARE .* WITH HOLD"
    return (
        kind not in ("statement", "execute <unnamed>")
        or re.search(r"pg_(try_)?advisory_(?!xact)", text) is not None
        or any(re.match(words, part.strip(), re.I | re.S) for part in text.split(";"))
    )


@contextlib.contextmanager
def somebody(url: str) -> Iterator["psycopg.Connection[Any]"]:
    """Somebody else's connection to a database."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def ask(url: str, sql: str) -> Any:
    """The first value of what somebody else is told."""
    with somebody(url) as connection:
        return connection.execute(sql).fetchone()[0]  # type: ignore[index]


def end_connections(url: str) -> None:
    """End all connections to a database, as an operator would."""
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with somebody(url) as connection:
        connection.execute(f"SELECT pg_terminate_backend(pid) {others}")
        until(lambda: not connection.execute(f"SELECT 1 {others}").fetchone())


@contextlib.contextmanager
def trigger(url: str, table: type[db.Table], body: str, *, at_commit: bool = False) -> Iterator[None]:
    """Whatever is written to a table makes the server do something, at once or when the transaction ends."""
    on = f'ON "{table._meta.table_name}"'
    later = ("CONSTRAINT TRIGGER", "AFTER", "DEFERRABLE INITIALLY DEFERRED")
    kind, when, late = later if at_commit else ("TRIGGER", "BEFORE", "")
    with somebody(url) as connection:
        connection.execute("CREATE SEQUENCE times")
        connection.execute(
            f"CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; RETURN new; END $$"
        )
        connection.execute(f"CREATE {kind} act {when} INSERT OR UPDATE {on} {late} FOR EACH ROW EXECUTE FUNCTION act()")
    try:
        yield
    finally:
        with somebody(url) as connection:
            connection.execute("DROP FUNCTION act CASCADE")
            connection.execute("DROP SEQUENCE times")


DIE = "PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(5)"


def fail(state: str, times: int = 1_000) -> str:
    """The body of a trigger that fails the first times; the count outlasts what is undone."""
    return f"IF nextval('times') <= {times} THEN RAISE 'injected' USING ERRCODE = '{state}'; END IF"


def expect_sound(url: str) -> None:
    """The thread's connection is as good as a new one, and nothing is left on the server."""
    assert not db.database.in_transaction()
    with db.write("something"):
        made = App.create(name="Later")
    assert ask(url, f"SELECT name FROM app WHERE id = '{made.id}'") == "Later"
    assert ask(url, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    assert ask(url, "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in %'") == 0


class TestLostConnections:
    READ, WRITE = ("GET", "/users/me", None), ("PATCH", "/users/me", {"first_name": "Al"})
    ALONE = ("PATCH", "/notifications/read-all", None)

    @pytest.mark.parametrize("request_", [READ, WRITE, ALONE])
    def test_one_that_was_ended_while_nothing_was_asked_is_replaced_unnoticed(self, request_, alice, url):
        for _ in range(2):
            end_connections(url)
            assert alice.call(*request_).status == 200
        expect_sound(url)

    def test_a_server_that_was_restarted_meanwhile_is_not_noticed(self, alice, server, url):
        server.stop("fast")
        server.start()
        assert alice.call(*self.WRITE).status == 200
        server.stop("immediate")
        server.start()
        assert alice.call(*self.READ).status == 200
        expect_sound(url)

    def test_while_the_server_is_away_every_answer_is_503(self, alice, server, url):
        server.stop("fast")
        try:
            for request_ in (self.READ, self.WRITE, self.ALONE, self.READ):
                assert alice.call(*request_).error == (503, "storage_unavailable")
            assert not db.database.in_transaction()
        finally:
            server.start()
        assert alice.call(*self.READ).status == 200
        expect_sound(url)

    @pytest.mark.parametrize("depth", [1, 2, 3])
    @pytest.mark.parametrize("after", [0, 1])
    def test_one_that_is_lost_within_a_write_fails_it_and_the_next_works(self, depth, after, application, url):
        with pytest.raises(peewee.PeeweeException) as caught, contextlib.ExitStack() as stack:
            for name in range(depth):
                stack.enter_context(db.write(str(name)))
            App.create(name="Lost")
            end_connections(url)
            for _ in range(after):
                App.create(name="Lost too")
        assert db.is_unavailable(caught.value)
        assert not App.select().exists()
        expect_sound(url)

    def test_one_whose_loss_was_passed_over_fails_the_write_all_the_same(self, application, url):
        with pytest.raises(peewee.PeeweeException) as caught, db.write("a"):
            App.create(name="Lost")
            end_connections(url)
            for _ in range(3):
                with contextlib.suppress(peewee.PeeweeException):
                    App.create(name="Lost too")
        assert db.is_unavailable(caught.value)
        assert not App.select().exists()
        expect_sound(url)

    @pytest.mark.parametrize("read", [1, 50])
    def test_one_that_is_lost_while_it_streams_is_unavailable(self, read, application, url):
        with pytest.raises(peewee.PeeweeException) as caught, db.snapshot():
            rows = db.database.stream("SELECT generate_series(1, 100000)")
            assert [next(rows) for _ in range(read)] == [(number,) for number in range(1, read + 1)]
            end_connections(url)
            list(rows)
        assert db.is_unavailable(caught.value)
        expect_sound(url)

    @pytest.mark.parametrize("at_commit", [False, True])
    def test_one_that_is_lost_while_it_writes_is_not_taken_for_done(self, at_commit, alice, url):
        with trigger(url, User, f"PERFORM nextval('times'); {DIE}", at_commit=at_commit), nothing_changes():
            assert alice.call(*self.WRITE).error == (503, "storage_unavailable")
            assert ask(url, "SELECT last_value FROM times") == 1, "nobody knows what became of it, so not again"
            assert alice.call(*self.READ).status == 200
        assert alice.call(*self.WRITE).status == 200
        expect_sound(url)

    def test_a_commit_without_its_answer_is_not_sent_again_while_a_replica_rests(self, alice, url, settings):
        db.open_database(settings.data, url, f"postgresql://127.0.0.1:{postgres.free_port()}/nowhere")
        assert alice.get("/data-shares").data == []  # of the primary, since nobody answers there
        with trigger(url, Feedback, f"PERFORM nextval('times'); {DIE}", at_commit=True):
            assert alice.post("/feedback", {"description": "Once"}).error == (503, "storage_unavailable")
            assert ask(url, "SELECT last_value FROM times") == 1

    def test_threads_do_not_wait_for_each_other_to_give_up_a_server_that_is_gone(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            silent.settimeout(20)
            engine = Postgresql(f"postgresql://127.0.0.1:{silent.getsockname()[1]}/x?connect_timeout=60")
            with contextlib.ExitStack() as stack:

                def take(_: int) -> Any:
                    return engine.execute_sql("SELECT 1")

                waiting = threading.Thread(target=lambda: found.extend(at_once(3, take)))
                found: list[Any] = []
                waiting.start()
                for _ in range(3):  # all are there before the first is sent away
                    stack.enter_context(silent.accept()[0])
            waiting.join()
        assert [engine.is_unavailable(error) for error in found] == [True] * 3


class TestErrors:
    @pytest.mark.parametrize(("state", "unavailable"), STATES.items())
    def test_what_the_server_says_is_either_not_now_or_our_fault(self, state, unavailable, application, url):
        with pytest.raises(peewee.PeeweeException) as caught, db.write("a"):
            App.create(name="Undone")
            db.database.execute_sql(f"DO $$ BEGIN RAISE 'x' USING ERRCODE = '{state}'; END $$")
        assert db.is_unavailable(caught.value) is unavailable
        with pytest.raises(peewee.PeeweeException) as caught:
            db.database.execute_sql(f"DO $$ BEGIN RAISE 'x' USING ERRCODE = '{state}'; END $$")
        assert db.is_unavailable(caught.value) is unavailable
        assert not App.select().exists()
        expect_sound(url)

    @pytest.mark.parametrize("sql", ["SELEKT", "SELECT 1/0", "SELECT * FROM nowhere", "SELECT %s %s", "SELECT '\0'"])
    def test_bad_sql_is_our_fault(self, sql, application, url):
        for block in (contextlib.nullcontext(), db.write("a"), db.snapshot()):
            with pytest.raises(peewee.PeeweeException) as caught, block:
                db.database.execute_sql(sql, None if "%" not in sql else (1,))
            assert not db.is_unavailable(caught.value)
        expect_sound(url)

    @pytest.mark.parametrize("nested", [False, True])
    def test_a_failure_that_is_passed_over_does_not_commit(self, nested, application, url):
        with pytest.raises(peewee.InternalError) as caught, db.write("a"):
            App.create(name="Undone")
            with db.write("b") if nested else contextlib.nullcontext(), contextlib.suppress(peewee.ProgrammingError):
                db.database.execute_sql("SELEKT")
        assert not db.is_unavailable(caught.value)
        assert not App.select().exists()
        expect_sound(url)

    def test_of_a_write_within_a_write_the_inner_one_may_be_undone_alone(self, application, url):
        with db.write("a"):
            App.create(name="Kept")
            with contextlib.suppress(ZeroDivisionError), db.write("b"):
                App.create(name="Undone")
                raise ZeroDivisionError
            App.create(name="Kept too")
        assert {found.name for found in App.select()} == {"Kept", "Kept too"}
        expect_sound(url)

    def test_a_server_that_lets_nobody_in_is_unavailable(self, server, url):
        rules = server.folder / "pg_hba.conf"
        rules.write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        with somebody(url) as connection:
            connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
            connection.execute("CREATE ROLE crowd LOGIN CONNECTION LIMIT 0")
            connection.execute("SELECT pg_reload_conf()")
        place = server.url.partition("@")[2]
        for address in (
            f"postgresql://guarded:wrong@{place}/service",
            f"postgresql://crowd@{place}/service",  # 53300
            f"postgresql://nobody@{place}/service",
            f"{server.url}/nowhere",
            f"postgresql://cx@127.0.0.1:{postgres.free_port()}/service",
            f"postgresql://cx@host.invalid:{server.port}/service",
        ):
            engine = Postgresql(address)
            for begin in (engine.connect, engine.begin, engine.write("a").__enter__, engine.snapshot().__enter__):
                with pytest.raises(peewee.OperationalError) as caught:
                    begin()
                assert engine.is_unavailable(caught.value), address
                assert not engine.in_transaction() and engine.is_closed()
        right = Postgresql(f"postgresql://guarded:right@{place}/service")
        with right.until_closed():
            assert right.execute_sql("SELECT 1").fetchone() == (1,)

    def test_a_database_that_is_closed_to_connections_is_503(self, alice, server, url):
        alter = "ALTER DATABASE service ALLOW_CONNECTIONS"
        ask_server = f"{server.url}/postgres"
        with somebody(ask_server) as connection:
            connection.execute(f"{alter} false")
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'service'")
            gone = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'service'"
            until(lambda: connection.execute(gone).fetchone() == (0,))
            try:
                assert alice.get("/users/me").error == (503, "storage_unavailable")
            finally:
                connection.execute(f"{alter} true")
        assert alice.get("/users/me").status == 200

    def test_a_database_that_takes_no_writes_is_still_read(self, alice, server, url):
        with somebody(f"{server.url}/postgres") as connection:
            connection.execute("ALTER DATABASE service SET default_transaction_read_only = on")
        try:
            end_connections(url)
            assert alice.get("/users/me").status == 200
            assert alice.get("/notifications").status == 200
            for method, path in (("PATCH", "/users/me"), ("PATCH", "/notifications/read-all")):
                assert alice.call(method, path, {}).error == (503, "storage_unavailable")
        finally:
            with somebody(f"{server.url}/postgres") as connection:
                connection.execute("ALTER DATABASE service RESET default_transaction_read_only")
        end_connections(url)
        expect_sound(url)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a lock."""
    monkeypatch.setattr(postgresql, "LOCK_TIMEOUT", "50ms")


def elsewhere(action: Callable[[], Any]) -> Any:
    """What another thread gets."""
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
    def test_only_those_who_name_the_same_wait_and_all_for_one_without_a_name(
        self, held, wanted, waits, application, impatient, url
    ):
        def take() -> None:
            with db.write(*wanted):
                App.create(name="Other")

        with db.write(*held):
            found = elsewhere(take)
        assert (found is not None) is waits
        assert not waits or db.is_unavailable(found)
        assert App.select().count() == (0 if waits else 1)
        assert elsewhere(take) is None
        expect_sound(url)

    @pytest.mark.parametrize("wanted", [["a"], ["b"], []])
    def test_a_write_within_a_write_keeps_what_both_name_until_the_end(self, wanted, application, impatient, url):
        def take() -> None:
            with db.write(*wanted):
                pass

        with db.write("a"):
            with db.write("b"), db.write("a"):
                pass
            assert db.is_unavailable(elsewhere(take))
        assert elsewhere(take) is None
        expect_sound(url)

    def test_a_lock_that_is_not_had_within_a_write_undoes_all_of_it(self, application, impatient, url):
        def take() -> None:
            with db.write("b"):
                App.create(name="Undone")
                with db.write("a"):
                    pass

        with db.write("a"):
            assert db.is_unavailable(elsewhere(take))
        assert not App.select().exists()
        expect_sound(url)

    def test_a_write_of_one_statement_does_not_wait_for_ever_either(self, alice, impatient, url):
        with somebody(url) as other, other.transaction():
            other.execute('UPDATE "user" SET locale = locale')
            with pytest.raises(peewee.OperationalError) as caught:
                User.update(locale="en").execute()
        assert db.is_unavailable(caught.value)
        expect_sound(url)

    @pytest.mark.parametrize("names", [["a"], ["b", "a"], []])
    def test_of_many_who_read_and_then_write_none_is_lost(self, names, application):
        counter = App.create(name="0")

        def count(_: int) -> None:
            for _ in range(5):
                with db.write(*names):
                    before = App.get_by_id(counter.id).name
                    App.update(name=str(int(before) + 1)).where(App.id == counter.id).execute()

        assert at_once(8, count) == [None] * 8
        assert App.get_by_id(counter.id).name == "40"

    def test_names_in_any_order_never_cross(self, application):
        def take(index: int) -> None:
            orders = random.Random(index)
            for _ in range(25):
                with db.write(*orders.sample("abcd", orders.randint(0, 4))):
                    pass

        assert at_once(8, take) == [None] * 8


class TestCrossings:
    def test_of_two_who_take_each_others_locks_both_act_in_the_end(self, application, url):
        meet, begun = threading.Barrier(2), []

        def act(first: str, second: str) -> str:
            def action() -> str:
                begun.append(first)
                with db.write(first):
                    if len(begun) <= 2:
                        meet.wait()
                    with db.write(second):
                        return str(App.create(name=first).id)

            return db.settled(action)

        made = at_once(2, lambda index: act(*("ab" if index else "ba")))
        assert sorted(found.id for found in App.select()) == sorted(made)
        assert len(begun) == 3
        expect_sound(url)

    @pytest.mark.parametrize("state", ["40001", "40P01"])
    @pytest.mark.parametrize(
        ("times", "done"), [(1, True), (postgresql.TRIES - 1, True), (postgresql.TRIES, False), (1_000, False)]
    )
    def test_a_single_statement_is_tried_a_few_times(self, state, times, done, application, url):
        with trigger(url, App, fail(state, times)):
            if done:
                App.create(name="Once")
            else:
                with pytest.raises(peewee.OperationalError):
                    App.create(name="Never")
            assert ask(url, "SELECT last_value FROM times") == min(times + done, postgresql.TRIES)
        assert App.select().count() == done
        expect_sound(url)

    def test_within_a_write_no_statement_is_tried_again(self, application, url):
        with trigger(url, App, fail("40P01", 1)), pytest.raises(peewee.OperationalError), db.write("a"):
            App.create(name="Never")
        assert not App.select().exists()

    @pytest.mark.parametrize(("times", "done"), [(db.TRIES - 1, True), (db.TRIES, False)])
    def test_an_action_is_begun_a_few_times(self, times, done, application, url):
        def action() -> str:
            with db.write("a"):
                return str(App.create(name="Once").id)

        with trigger(url, App, fail("40P01", times)):
            if done:
                assert db.settled(action) == App.get().id
            else:
                with pytest.raises(peewee.OperationalError):
                    db.settled(action)
            assert ask(url, "SELECT last_value FROM times") == db.TRIES
        assert App.select().count() == done

    @pytest.mark.parametrize("state", ["40001", "40P01"])
    @pytest.mark.parametrize("key", ["", "again"])
    def test_a_request_that_meets_one_acts_once(self, state, key, alice, url):
        headers = {"idempotency_key": key} if key else {}
        body = {"mcp_server_id": "files", "allowed_tools": ["*"]}
        for table in (DataShare, Feedback):
            with trigger(url, table, fail(state, db.TRIES - 1)):
                path, content = ("/data-shares", body) if table is DataShare else ("/feedback", {"description": "Once"})
                reply = alice.post(path, content, **headers)
                assert reply.status == 201
                assert [row.id for row in table.select()] == [reply.data["id"]]
                if key:
                    again = alice.post(path, content, **headers)
                    assert (again.raw, again.headers["Idempotency-Replayed"]) == (reply.raw, "true")
            assert table.select().count() == 1
        expect_sound(url)

    @pytest.mark.parametrize("key", ["", "again"])
    def test_a_request_that_meets_one_again_and_again_is_503_and_acts_later(self, key, alice, url):
        headers = {"idempotency_key": key} if key else {}
        with trigger(url, Feedback, fail("40P01")), nothing_changes():
            assert alice.post("/feedback", {"description": "x"}, **headers).error == (503, "storage_unavailable")
        assert alice.post("/feedback", {"description": "x"}, **headers).status == 201
        assert Feedback.select().count() == 1
        expect_sound(url)

    def test_every_way_of_changing_a_chat_acts_once(self, alice, session, say, url):
        message, pinned = say(), say()
        with trigger(url, Message, fail("40P01", 2)):
            assert alice.post(f"/chats/{session.id}/messages/{pinned.id}/pin").status == 200
        with trigger(url, ChatSession, fail("40001", 3)):
            assert alice.delete(f"/chats/{session.id}/messages/{message.id}").status == 200
        with trigger(url, ChatSession, fail("40001", 3)):
            assert alice.post(f"/chats/{session.id}/end").status == 200
        left = ChatSession.get_by_id(session.id)
        assert (left.status, left.shown_total, left.public_total) == ("resolved", 1, 1)
        assert Message.select().where(Message.pinned_at.is_null(False)).count() == 1


def results(replies: list[Any]) -> list[Any]:
    """The statuses of answers, with the codes of refusals."""
    return sorted((reply.status, "" if reply.status < 300 else reply.error[1]) for reply in replies)


class TestManyAtOnce:
    def test_grants_stop_at_the_limit(self, alice):
        row = {"user_id": alice.user.id, "mcp_server_id": "files", "allowed_tools": '["*"]', "scope_meta": "[]"}
        DataShare.insert_many([{**row, "id": clock.uuid()} for _ in range(496)]).execute()
        body = {"mcp_server_id": "files", "allowed_tools": ["*"]}
        replies = at_once(12, lambda _: alice.post("/data-shares", body))
        assert results(replies) == [(201, "")] * 4 + [(400, "grant_limit_reached")] * 8
        assert DataShare.select().count() == 500

    def test_pins_stop_at_the_limit_and_one_after_the_other(self, alice, session, say):
        messages = [say() for _ in range(12)]
        row = {"chat_session_id": session.id, "pinned_at": clock.timestamp()}
        Message.insert_many([{**row, "id": clock.ulid()} for _ in range(96)]).execute()
        where = f"/chats/{session.id}/messages"
        replies = at_once(12, lambda index: alice.post(f"{where}/{messages[index].id}/pin"))
        assert results(replies) == [(200, "")] * 4 + [(400, "pin_limit_reached")] * 8
        pinned = [
            row.pinned_at for row in Message.select().where(Message.id.in_(messages), Message.pinned_at.is_null(False))
        ]
        assert len(set(pinned)) == 4

    def test_one_idempotency_key_acts_once(self, alice):
        replies = at_once(12, lambda _: alice.post("/feedback", {"description": "x"}, idempotency_key="k"))
        assert results(replies) == [(201, "")] * 12
        assert len({reply.raw for reply in replies}) == 1
        assert sum("Idempotency-Replayed" in reply.headers for reply in replies) == 11
        assert Feedback.select().count() == 1

    def test_settings_patched_at_once_are_all_kept(self, alice):
        replies = at_once(16, lambda index: alice.patch("/users/me/settings", {f"own_{index}": {"x": index}}))
        assert results(replies) == [(200, "")] * 16
        assert alice.get("/users/me/settings").data.items() >= {f"own_{i}": {"x": i} for i in range(16)}.items()

    def test_a_message_is_deleted_once_and_each_of_many_counts(self, alice, session, say):
        messages = [say(is_private=index == 8) for index in range(9)]
        for chosen, left in ((messages[:1] * 8, 8), (messages[1:8], 1)):
            paths = [f"/chats/{session.id}/messages/{message.id}" for message in chosen]
            replies = at_once(len(paths), lambda index, paths=paths: alice.delete(paths[index]))
            assert results(replies) == [(200, "")] * len(paths)
            counted = ChatSession.get_by_id(session.id)
            assert (counted.shown_total, counted.public_total) == (left, left - 1)

    def test_a_refresh_token_used_at_once_gives_everybody_the_same_next_login(self, anyone, person, settings):
        user = person("carol").user
        with db.write(user.id):
            pair = tokens.begin(user.id, settings)
        replies = at_once(8, lambda _: anyone.post("/auth/refresh", {"refresh_token": pair.refresh_token}))
        assert results(replies) == [(200, "")] * 8
        assert sorted(row.generation for row in LoginSession.select()) == [1, 2]
        given = [reply.data["tokens"]["access_token"] for reply in replies]
        assert {Client(anyone.application, token).get("/users/me").status for token in given} == {200}

    def test_a_login_that_is_ended_while_it_is_refreshed_stays_ended(self, anyone, alice, settings):
        for _ in range(4):
            with db.write(alice.user.id):
                pair = tokens.begin(alice.user.id, settings)
            client = Client(anyone.application, pair.access_token)

            def act(index: int, pair: Any = pair, client: Client = client) -> Any:
                if index % 4 == 3:
                    return client.post("/auth/logout", {})
                return anyone.post("/auth/refresh", {"refresh_token": pair.refresh_token})

            replies = at_once(8, act)
            given = [reply.data["tokens"] for reply in replies[:7] if reply.status == 200 and "tokens" in reply.data]
            for held in [*given, {"access_token": pair.access_token, "refresh_token": pair.refresh_token}]:
                assert Client(anyone.application, held["access_token"]).get("/users/me").status == 401
                assert anyone.post("/auth/refresh", {"refresh_token": held["refresh_token"]}).status == 401

    def test_logins_while_a_user_is_shut_out_do_not_come_back_with_the_user(self, anyone, alice):
        def act(index: int) -> Any:
            if index == 0:
                return User.get_by_id(alice.user.id).disable()
            return anyone.post("/auth/login", {"email": alice.user.email, "password": PASSWORD})

        replies = at_once(5, act)[1:]
        User.get_by_id(alice.user.id).enable()
        given = [reply.data["tokens"]["access_token"] for reply in replies if reply.status == 200]
        for token in [*given, alice.token]:
            assert Client(anyone.application, token).get("/users/me").status == 401

    def test_failed_logins_stop_at_their_limits(self, application, settings):
        def guess(index: int) -> Any:
            return throttle.begin_attempt(f"user{index % 2}@example.com", "192.0.2.1", settings)

        assert [error for error in at_once(10, guess) if isinstance(error, Exception)] == []
        limits = Settings(login_failures=9, login_failures_account=8, login_failures_network=15)

        def guess_on(index: int) -> Any:
            return throttle.begin_attempt("user0@example.com", "192.0.2.1", limits)

        found = at_once(12, guess_on)
        assert sum(isinstance(error, RateLimited) for error in found) == 9
        assert LoginAttempt.select().count() == 13

    def test_marking_all_as_read_counts_each_once(self, alice):
        Notification.insert_many([{"user_id": alice.user.id, "title": str(number)} for number in range(50)]).execute()
        replies = at_once(8, lambda _: alice.patch("/notifications/read-all"))
        assert sorted(reply.data["marked_read"] for reply in replies) == [0] * 7 + [50]


@pytest.fixture
def code(alice: Client) -> Callable[[], str]:
    """Makes codes that Alice has approved."""

    def make() -> str:
        caller = tokens.authenticate(f"Bearer {alice.token}")
        request = consent.ConsentRequest(**GOOD)
        told = codes.answer(caller, codes.make_ticket(caller, request), True, "http://test")
        return re.search(r"code=([^&]+)", told)[1]  # type: ignore[index]

    return make


class TestCodes:
    def trade(self, code: str, settings: Settings) -> Any:
        return exchange(code, VERIFIER, GOOD["redirect_uri"], settings)

    def test_a_code_used_at_once_is_good_once(self, code, settings, anyone):
        one = code()
        found = at_once(8, lambda _: self.trade(one, settings))
        pairs = [pair for pair in found if not isinstance(pair, Exception)]
        assert len(pairs) == 1
        assert all(isinstance(error, InvalidGrant) for error in found if error is not pairs[0])
        assert Client(anyone.application, pairs[0][0].access_token).get("/users/me").status == 401  # used again
        assert LoginSession.select().where(LoginSession.install_id.is_null(False)).count() == 1

    def test_codes_of_one_install_used_at_once_leave_one_login(self, code, settings):
        made = [code() for _ in range(6)]
        found = at_once(6, lambda index: self.trade(made[index], settings))
        assert [error for error in found if isinstance(error, Exception)] == []
        open_ = LoginSession.ended_at.is_null() & LoginSession.install_id.is_null(False)
        assert LoginSession.select().where(open_).count() == 1

    @pytest.mark.parametrize("act", ["disable", "change_password"])
    def test_a_login_does_not_begin_while_all_of_a_user_are_ended(self, act, code, alice, settings, impatient, url):
        one = code()
        with db.write(alice.user.id):  # which disabling and another password are
            assert db.is_unavailable(elsewhere(lambda: self.trade(one, settings)))
        assert Approval.get().used_at is None
        getattr(User.get_by_id(alice.user.id), act)(*([""] if act == "change_password" else []))
        with pytest.raises(InvalidGrant):
            self.trade(one, settings)


WRITER = """
import sys
from pathlib import Path
from service import clock, db
from service.models import App
real, ahead = clock.host_time, int(sys.argv[2])
clock.host_time = lambda: real() + ahead
db.open_database(Path("."), sys.argv[1])
for _ in range(60):
    with db.write("thing"):
        (number,) = db.database.execute_sql("SELECT nextval('turns')").fetchone()
        App.create(name=f"{number} {clock.now()}")
"""


class TestClock:
    @pytest.mark.slow
    def test_hosts_whose_clocks_differ_write_rising_times(self, application, url):
        with somebody(url) as connection:
            connection.execute("CREATE SEQUENCE turns")
        try:
            line = [sys.executable, "-c", WRITER, url]
            offsets = (-10 * clock.MINUTE, 0, 10 * clock.MINUTE)
            writers = [subprocess.Popen([*line, str(ahead)], cwd=ROOT) for ahead in offsets]
            assert [writer.wait(60) for writer in writers] == [0, 0, 0]
        finally:
            with somebody(url) as connection:
                connection.execute("DROP SEQUENCE turns")
        turns = sorted(tuple(map(int, row.name.split())) for row in App.select())
        times = [time for _, time in turns]
        assert len(times) == 180
        assert times == sorted(times)

    def test_a_server_that_is_set_back_does_not_take_the_service_with_it(self, application, monkeypatch):
        times = []
        for shift in (0, 3600, -3600, 0, 7200, 0):
            shifted = postgresql.NOW.replace("clock_timestamp()", f"clock_timestamp() + interval '{shift} s'")
            monkeypatch.setattr(postgresql, "NOW", shifted)
            with db.write("a"):
                times.append(clock.now())
        assert times == sorted(times)
        assert times[1] - times[0] > clock.HOUR - clock.SECOND

    def test_within_a_write_it_is_never_earlier_than_on_the_server(self, application):
        def act(_: int) -> None:
            for _ in range(20):
                with db.write("a"):
                    held = db.database.execute_sql("SELECT max(name) FROM app").fetchone()[0] or "0"
                    assert int(held) <= clock.now()
                    App.create(name=f"{clock.now():020}")

        assert at_once(8, act) == [None] * 8

    def test_a_host_that_differs_goes_by_the_server_from_its_first_write_on(self, application, monkeypatch):
        real = clock.host_time
        monkeypatch.setattr(clock, "host_time", lambda: real() + 10 * clock.MINUTE)
        clock.forget()
        with db.write("a"):
            assert abs(clock.now() - real()) < clock.MINUTE

    def test_cutting_to_milliseconds_never_puts_it_ahead_of_the_server(self, monkeypatch):
        host = [1_000]
        monkeypatch.setattr(clock, "host_time", lambda: host[0])
        monkeypatch.setattr(clock, "steady_time", lambda: 0)
        clock.follow(5_000)
        for later, told in ((0, 5_000), (1, 5_000), (2, 5_001), (60_000, 64_999)):
            host[0] = 1_000 + later
            assert clock.now() == told

    def test_who_follows_late_does_not_take_the_others_back(self, monkeypatch):
        monkeypatch.setattr(clock, "host_time", lambda: 0)
        monkeypatch.setattr(clock, "steady_time", lambda: 0)
        clock.follow(2_000)
        clock.follow(1_000)
        assert clock.now() == 2_000


class TestPooling:
    """See also the end of `server`: whatever any test of this module made the service ask."""

    @pytest.mark.parametrize(
        ("statement", "is_bad"),
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
            ("execute _pg3_0: SELECT 1", True),
            ("statement: BEGIN ; SET LOCAL lock_timeout = '5s'; SELECT pg_advisory_xact_lock_shared(0)", False),
            ('execute <unnamed>: UPDATE "app" SET "name" = $1', False),
            ("statement: SELECT 1", False),
        ],
    )
    def test_what_would_stay_in_a_connection_is_recognised(self, statement, is_bad):
        assert lasts(statement) is is_bad

    def test_a_working_day_leaves_nothing_in_a_connection(self, alice, bot, session, say, server, url):
        before = len(said(server))
        message = say()
        for _ in range(8):  # often enough for psycopg to prepare what it sees again and again
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
        asked = said(server)[before:]
        assert len(asked) > 100
        assert [statement for statement in asked if lasts(statement)] == []


def test_a_single_write_costs_three_round_trips_and_a_read_one(alice, url, server):
    before = len(said(server))
    with statements() as seen:
        User.update(locale="en").where(User.id == alice.user.id).execute()
        User.get_by_id(alice.user.id)
    assert len(seen) == 2
    assert len(said(server)) - before == 4
