"""Which thread answers which request, reads on the event loop, and group commits."""

import contextlib
import http.client
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import peewee
import pytest

from service import db
from service.db import engine, sqlite, time_budget
from service.models import ChatSession, Feedback, KeptAnswer, Message, User
from service.server import Server, answers, connection, group_commit, listen
from service.settings import Settings
from tests.conftest import PASSWORD, Client
from tests.postgres import on_sqlite_alone
from tests.trouble import another_connection

NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000000) SELECT i FROM n"
SLOW = f"SELECT count(*) FROM ({NUMBERS})"
LOOP, GROUP, POOL = "event loop", "group commit", "waitress"
GROUPED = [GROUP, GROUP, GROUP]  # prepared, run, finished


class House:
    """The service behind a real server in this process, which records the threads that worked on each request."""

    def __init__(self, application: Any, settings: Settings) -> None:
        self.application, self.threads = application, dict[str, list[str]]()
        self.in_transaction: Callable[[], Any] = lambda: None
        self.before_commit: Callable[[], None] = lambda: None
        self.before_call: Callable[[dict[str, Any]], None] = lambda environ: None
        self.before_step: Callable[[dict[str, Any]], None] = lambda environ: None
        self.sizes: list[int] = []  # of the transactions
        self.server = Server(
            self, listen("127.0.0.1", 0), settings, inline_read=db.inline_read, transaction=self.transaction
        )
        self.port = self.server.socket.getsockname()[1]
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.serve, name=LOOP)
        self.thread.start()

    def serve(self) -> None:
        self.server.run_until(self.is_over.is_set)
        db.close_database()

    def find(self, method: str, path: str) -> Any:
        return self.application.find(method, path)

    def record(self, environ: dict[str, Any]) -> None:
        key = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO'].removeprefix('/api/v1')}"
        self.threads.setdefault(key, []).append(threading.current_thread().name.partition("-")[0])

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        self.record(environ)
        self.before_call(environ)
        return self.application(environ, start_response)

    def steps(self, environ: dict[str, Any]) -> Any:
        """The steps of the application."""
        steps = self.application.steps(environ)

        def step(failure: Exception | None = None) -> None:
            self.record(environ)
            self.before_step(environ)
            steps.send(failure)

        try:
            step()
            yield
            self.sizes[-1] += 1
            step()
            failure = yield
            step(failure)
        except StopIteration as end:
            return end.value

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Callable[[], None]]:
        self.sizes.append(0)
        with db.group_commit() as expect_transaction:
            self.in_transaction()
            yield expect_transaction
            self.before_commit()

    def block(self) -> tuple[threading.Event, threading.Event]:
        """Hold commits up: the first event tells of one that has come so far, the second lets all go on."""
        blocked, go_on = threading.Event(), threading.Event()

        def wait() -> None:
            blocked.set()
            assert go_on.wait(60)

        self.before_commit = wait
        return blocked, go_on

    def ask(
        self, method: str, path: str, body: Any = None, token: str = "", **headers: str
    ) -> http.client.HTTPConnection:
        asking = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers |= {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        asking.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), headers)
        return asking

    def call(self, method: str, path: str, body: Any = None, token: str = "") -> tuple[int, Any]:
        return told(self.ask(method, path, body, token))

    def stop(self) -> None:
        self.is_over.set()
        with contextlib.suppress(OSError):  # it has ended
            self.server.trigger.pull_trigger()
        self.thread.join(60)


def told(asking: http.client.HTTPConnection) -> tuple[int, Any]:
    with contextlib.closing(asking):
        answer = asking.getresponse()
        return answer.status, json.loads(answer.read() or b"null")


@pytest.fixture
def house(application: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    for name in ("PROCESSOR", "ELAPSED"):  # this machine may be busy
        monkeypatch.setattr(time_budget, name, 60.0)
    monkeypatch.setattr(group_commit, "LONGEST", 60.0)
    made = House(application, settings)
    yield made
    made.stop()


def descriptions() -> list[str]:
    return sorted(row.description for row in Feedback.select())


pytestmark = on_sqlite_alone


class TestReadsOnTheEventLoop:
    def test_reads_are_answered_where_requests_come_in(self, house: House, alice: Client) -> None:
        for path in ("/users/me/settings", "/chats", "/notifications", "/nowhere"):
            house.call("GET", path, token=alice.token)
            assert house.threads[f"GET {path}"] == [LOOP]

    def test_what_has_to_write_is_begun_anew_in_a_thread(self, house: House, alice: Client) -> None:
        login = {"email": alice.user.email, "password": PASSWORD}
        first = alice.post("/auth/login", login).data["tokens"]["refresh_token"]
        token = alice.post("/auth/refresh", {"refresh_token": first}).data["tokens"]["access_token"]
        for _ in range(2):  # the first use of a token is noted
            assert house.call("GET", "/users/me", token=token)[0] == 200
        assert house.threads["GET /users/me"] == [LOOP, POOL, LOOP]

    def test_what_takes_long_is_begun_anew_in_a_thread(
        self, house: House, alice: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def look(*arguments: Any) -> Any:
            list(db.database.execute_sql(SLOW))
            return find(*arguments)

        find = User.preferences_of
        monkeypatch.setattr(User, "preferences_of", look)
        monkeypatch.setattr(time_budget, "PROCESSOR", 0.01)
        assert house.call("GET", "/users/me/settings", token=alice.token)[0] == 200
        assert house.threads["GET /users/me/settings"] == [LOOP, POOL]

    def test_nothing_is_written(self, application: Any, alice: Client) -> None:
        for write in (
            lambda: User.update(first_name="Mallory").where(User.id == alice.user.id).execute(),
            lambda: db.write().__enter__(),
            lambda: db.database.execute_sql("  UPDATE user SET first_name = ''"),
            lambda: db.database.execute_sql("WITH a AS (SELECT 1) DELETE FROM user"),
        ):
            with pytest.raises(db.NeedsThread), db.inline_read():
                write()
        assert User.get_by_id(alice.user.id).first_name == alice.user.first_name
        assert not db.database.in_transaction()

    def test_a_read_stops_when_its_time_is_over_and_the_next_has_its_own(
        self, application: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(time_budget, "PROCESSOR", 0.02)
        begun = time.thread_time()  # of the processor: others may have it meanwhile
        with db.inline_read(), pytest.raises(peewee.OperationalError, match="interrupted"):
            db.database.execute_sql(SLOW)
        assert time.thread_time() - begun < 0.2
        with db.inline_read():
            assert User.select().count() == 0
        assert db.database.execute_sql(SLOW).fetchone() == (3_000_000,)

    @pytest.mark.parametrize(
        ("patience", "order"), [(60.0, ["asked", "asked", "told", "told"]), (-1.0, ["asked", "told", "asked", "told"])]
    )
    def test_answers_of_one_turn_go_out_together_unless_that_takes_long(
        self, patience: float, order: list[str], house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun, go_on, seen = threading.Event(), threading.Event(), list[str]()
        give = connection.Connection.give

        def hold(environ: dict[str, Any]) -> None:
            if environ["PATH_INFO"].endswith("/first"):
                begun.set()
                assert go_on.wait(60)
            seen.append("asked")

        def told_of(channel: Any, answer: Any) -> None:
            seen.append("told")
            give(channel, answer)

        house.before_call = hold
        monkeypatch.setattr(connection, "TOGETHER", patience)
        monkeypatch.setattr(connection.Connection, "give", told_of)
        others = [house.ask("GET", "/nowhere") for _ in range(2)]
        assert all(other.getresponse().read() for other in others)
        first = house.ask("GET", "/first")
        assert begun.wait(60)
        seen.clear()
        for other in others:
            other.request("GET", "/api/v1/nowhere")
        go_on.set()
        assert [told(asking)[0] for asking in (first, *others)] == [404] * 3
        assert seen[-4:] == order

    def test_what_was_sent_at_once_does_not_wait_for_others(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        turn = house.server._turn  # one in which nothing comes takes a second; here an hour
        monkeypatch.setattr(house.server, "_turn", lambda timeout: turn(3600.0 if timeout == 1.0 else timeout))
        with socket.create_connection(("127.0.0.1", house.port), timeout=60) as client:
            ask = b"GET /nowhere HTTP/1.1\r\nHost: a\r\n"
            client.sendall((ask + b"\r\n") * 40 + ask + b"Connection: close\r\n\r\n")
            client.settimeout(60)
            found = b""
            while part := client.recv(65536):
                found += part
        assert found.count(b"HTTP/1.1 404") == 41

    def test_need_a_database_that_allows_them(self) -> None:
        assert not (engine.Engine.reads_inline or engine.Engine.groups_writes or engine.Engine().is_reading_inline())


@contextlib.contextmanager
def somebody_writing() -> Iterator[None]:
    """Another process, say."""
    with another_connection() as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@on_sqlite_alone
class TestGroupCommit:
    def test_writes_that_came_meanwhile_have_one_commit(self, house: House, alice: Client) -> None:
        blocked, go_on = house.block()
        first = house.ask("POST", "/feedback", {"description": "first"}, alice.token)
        assert blocked.wait(60)
        others = [house.ask("POST", "/feedback", {"description": str(number)}, alice.token) for number in range(5)]
        while house.server.group_commit.count() < 5:
            time.sleep(0.01)
        assert descriptions() == []
        go_on.set()
        assert [told(asking)[0] for asking in (first, *others)] == [201] * 6
        assert house.sizes == [1, 5]
        assert descriptions() == ["0", "1", "2", "3", "4", "first"]
        assert sorted(house.threads["POST /feedback"]) == sorted(GROUPED * 6)

    def test_it_is_written_as_soon_as_others_have_written(
        self, house: House, alice: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A busy handler of SQLite's would sleep on for a while."""
        monkeypatch.setattr(sqlite, "BRIEFLY", 60.0)
        with somebody_writing():
            asked = [house.ask("POST", "/feedback", {"description": str(number)}, alice.token) for number in range(3)]
            while house.server.group_commit.count() < 2:
                time.sleep(0.01)
            looks, sleep = list[float](), time.sleep
            monkeypatch.setattr(time, "sleep", lambda seconds: looks.append(seconds) or sleep(seconds))
            while len(looks) < 3:
                pass
        assert [told(asking)[0] for asking in asked] == [201] * 3
        assert set(looks) == {sqlite.LOOK} and sum(house.sizes) == 3
        assert sorted(house.threads["POST /feedback"]) == sorted(GROUPED * 3)

    def test_who_may_not_write_for_long_waits_elsewhere(
        self, house: House, alice: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite, "BRIEFLY", 0.01)
        with somebody_writing():
            asked = [house.ask("POST", "/feedback", {"description": str(number)}, alice.token) for number in range(3)]
            while house.threads.get("POST /feedback", []).count(POOL) < 3:
                time.sleep(0.01)
        assert [told(asking)[0] for asking in asked] == [201] * 3
        assert house.sizes[0] == 0

    def test_no_answer_goes_out_before_the_commit(self, house: House, alice: Client) -> None:
        def look() -> None:
            asking.sock.settimeout(0.2)
            with pytest.raises(TimeoutError):
                asking.sock.recv(1, 2)
            looked.append(len(Feedback.select()))

        looked: list[int] = []
        house.before_commit = look
        asking = http.client.HTTPConnection("127.0.0.1", house.port)
        asking.connect()
        asking.request(
            "POST", "/api/v1/feedback", '{"description": "x"}',
            {"Authorization": f"Bearer {alice.token}", "Content-Type": "application/json"},
        )  # fmt: skip
        while not looked:
            time.sleep(0.01)
        asking.sock.settimeout(60)
        assert told(asking)[0] == 201
        assert looked == [1]  # in the transaction

    def test_what_could_not_be_committed_is_refused_and_not_tried_again(self, house: House, alice: Client) -> None:
        def fail() -> None:
            house.before_commit = lambda: None
            raise peewee.OperationalError("database or disk is full")

        house.before_commit = fail
        status, answer = house.call("POST", "/feedback", {"description": "x"}, alice.token)
        assert (status, answer["error"]["code"]) == (503, "storage_unavailable")
        assert descriptions() == []
        assert house.threads["POST /feedback"] == GROUPED
        assert house.call("POST", "/feedback", {"description": "y"}, alice.token)[0] == 201
        assert descriptions() == ["y"]

    def test_when_sqlite_takes_the_transaction_back_nothing_seems_to_be_stored(
        self, house: House, alice: Client
    ) -> None:
        def lose() -> None:
            house.before_commit = lambda: None
            db.database.connection().rollback()

        house.before_commit = lose
        assert house.call("POST", "/feedback", {"description": "x"}, alice.token)[0] == 503
        assert descriptions() == []

    def test_one_that_crashes_costs_the_others_nothing(
        self, house: House, alice: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        submit = Feedback.submit.__func__  # type: ignore[attr-defined]

        def crash(cls: type[Feedback], *arguments: Any, **more: Any) -> Any:
            found = submit(cls, *arguments, **more)
            if b"crash" in bytes(found):
                raise RuntimeError("after it was written")
            return found

        monkeypatch.setattr(Feedback, "submit", classmethod(crash))
        blocked, go_on = house.block()
        first = house.ask("POST", "/feedback", {"description": "a"}, alice.token)
        assert blocked.wait(60)
        others = [house.ask("POST", "/feedback", {"description": text}, alice.token) for text in ("crash", "b")]
        while house.server.group_commit.count() < 2:
            time.sleep(0.01)
        go_on.set()
        assert [told(asking)[0] for asking in (first, *others)] == [201, 500, 201]
        assert house.sizes == [1, 2]
        assert descriptions()[:2] == ["a", "b"]  # and of the one that crashes after its own write, what that wrote

    @pytest.mark.parametrize("step", [1, 2, 3])
    def test_a_failure_beyond_the_application_closes_its_connection_only(
        self, step: int, house: House, alice: Client
    ) -> None:
        def fail(environ: dict[str, Any]) -> None:
            if house.threads["POST /feedback"] == [GROUP] * step:
                raise ValueError("beyond the application")

        house.before_step = fail
        with pytest.raises(http.client.RemoteDisconnected):
            house.call("POST", "/feedback", {"description": "fails"}, alice.token)
        assert house.call("POST", "/feedback", {"description": "x"}, alice.token)[0] == 201

    def test_a_response_that_cannot_be_put_together_closes_its_connection_only(
        self, house: House, alice: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: Any) -> None:
            raise ValueError("a header holds the end of a line")

        with monkeypatch.context() as broken:
            broken.setattr(answers.Answer, "put_together", fail)
            with pytest.raises(http.client.RemoteDisconnected):
                house.call("POST", "/feedback", {"description": "fails"}, alice.token)
        assert house.call("POST", "/feedback", {"description": "x"}, alice.token)[0] == 201

    def test_operations_declared_slow_have_a_thread_of_their_own(self, house: House, alice: Client) -> None:
        login = {"email": alice.user.email, "password": PASSWORD}
        assert house.call("POST", "/auth/login", login)[0] == 200
        assert house.threads["POST /auth/login"] == [POOL]

    def test_a_post_that_only_reads_does_not_wait_for_writers(self, house: House, alice: Client) -> None:
        with db.write():
            use = {"mcp_server_id": "files", "tool": "read"}
            status, answer = house.call("POST", "/data-shares/check", use, alice.token)
        assert (status, answer["data"]["allowed"]) == (200, False)
        assert house.threads["POST /data-shares/check"] == [LOOP]

    def test_a_request_refused_before_its_handler_does_not_wait_for_writers(self, house: House, alice: Client) -> None:
        with db.write():
            assert house.call("POST", "/feedback", {"description": 1}, alice.token)[0] == 400
            assert house.call("POST", "/feedback", {"description": "x"}, "wrong")[0] == 401
        assert house.sizes == []

    def test_what_is_left_when_its_time_is_up_waits_for_the_next(
        self, house: House, alice: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        blocked, go_on = house.block()
        first = house.ask("POST", "/feedback", {"description": "first"}, alice.token)
        assert blocked.wait(20)
        others = [house.ask("POST", "/feedback", {"description": str(number)}, alice.token) for number in range(3)]
        while house.server.group_commit.count() < 3:
            time.sleep(0.01)
        monkeypatch.setattr(group_commit, "LONGEST", 0.0)
        go_on.set()
        assert [told(asking)[0] for asking in (first, *others)] == [201] * 4
        assert house.sizes == [1, 1, 1, 1]

    def test_a_client_with_many_requests_waits_for_one_with_few(
        self, house: House, alice: Client, bob: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(group_commit, "MOST", 2)
        blocked, go_on = house.block()
        asked = [house.ask("POST", "/feedback", {"description": "first"}, alice.token)]
        assert blocked.wait(20)
        for number in range(4):
            asked.append(house.ask("POST", "/feedback", {"description": str(number)}, alice.token))
            while house.server.group_commit.count() <= number:
                time.sleep(0.001)
        asked.append(house.ask("POST", "/feedback", {"description": "of Bob"}, bob.token))
        while house.server.group_commit.count() < 5:
            time.sleep(0.001)
        go_on.set()
        assert [told(asking)[0] for asking in asked] == [201] * 6
        stored = [row.description for row in Feedback.select().order_by(peewee.SQL("rowid"))]
        assert stored == ["first", "0", "of Bob", "1", "2", "3"]

    def test_when_sqlite_rolls_back_in_the_middle_all_are_begun_anew_alone(
        self, house: House, alice: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        submit = Feedback.submit.__func__  # type: ignore[attr-defined]

        def lose(cls: type[Feedback], *arguments: Any, **columns: Any) -> Any:
            found = submit(cls, *arguments, **columns)
            if columns["description"] == "lost" and threading.current_thread().name == GROUP:
                db.database.connection().rollback()
                submit(cls, *arguments, **columns)  # a second write of the same request, which begins none of its own
            return found

        monkeypatch.setattr(Feedback, "submit", classmethod(lose))
        blocked, go_on = house.block()
        first = house.ask("POST", "/feedback", {"description": "first"}, alice.token)
        assert blocked.wait(20)
        house.before_commit = lambda: None
        others = [house.ask("POST", "/feedback", {"description": text}, alice.token) for text in ("a", "lost", "b")]
        while house.server.group_commit.count() < 3:
            time.sleep(0.01)
        go_on.set()
        assert [told(asking)[0] for asking in (first, *others)] == [201] * 4
        assert descriptions() == ["a", "b", "first", "lost"]
        assert POOL in house.threads["POST /feedback"]

    def test_a_large_body_has_a_thread_of_its_own(self, house: House, alice: Client) -> None:
        large = "x" * connection.SMALL_BODY
        assert house.call("POST", "/feedback", {"description": large}, alice.token)[0] in (201, 400)
        assert house.threads["POST /feedback"] == [POOL]

    def test_while_another_writes_it_waits_and_reads_go_on(self, house: House, alice: Client) -> None:
        with db.write():
            asking = house.ask("POST", "/feedback", {"description": "x"}, alice.token)
            time.sleep(0.2)
            assert house.call("GET", "/users/me", token=alice.token)[0] == 200
        assert told(asking)[0] == 201

    def test_a_server_that_stops_answers_first(self, house: House, alice: Client) -> None:
        blocked, go_on = house.block()
        asking = house.ask("POST", "/feedback", {"description": "last"}, alice.token)
        assert blocked.wait(60)
        house.is_over.set()
        house.server.trigger.pull_trigger()
        time.sleep(0.3)
        go_on.set()
        assert told(asking)[0] == 201
        house.thread.join(60)
        assert not house.thread.is_alive()
        assert GROUP not in [thread.name for thread in threading.enumerate()]


class Trouble:
    """Makes one statement of the group commit fail, as SQLite does when the disk is full or broken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.execute_sql = sqlite.Sqlite.execute_sql
        self.left, self.rolls_back, self.has_happened = 0, False, False
        monkeypatch.setattr(sqlite.Sqlite, "execute_sql", lambda *arguments: self.execute(*arguments))

    def expect(self, statement: int, *, rolls_back: bool) -> None:
        """Let the statement with this number in the next transaction of several fail."""
        self.left, self.rolls_back, self.has_happened = statement, rolls_back, False

    def execute(self, engine: Any, sql: str, params: Any = None) -> Any:
        if threading.current_thread().name == GROUP and engine.in_transaction() and self.left:
            self.left -= 1
            if not self.left:
                self.has_happened = True
                if self.rolls_back:
                    engine.connection().rollback()
                raise peewee.OperationalError("database or disk is full")
        return self.execute_sql(engine, sql, params)


@on_sqlite_alone
class TestAFailingDisk:
    @pytest.fixture
    def trouble(self, monkeypatch: pytest.MonkeyPatch) -> Trouble:
        return Trouble(monkeypatch)

    def ask_all(self, house: House, token: str, chat: str, number: int) -> list[http.client.HTTPConnection]:
        """Three requests that have one transaction; two of them are several writes inside of each other."""
        name, key = f"name {number}", {"Idempotency-Key": f"key {number}"}
        return [
            house.ask("PATCH", "/users/me", {"first_name": name}, token),
            house.ask("POST", "/feedback", {"description": name}, token, **key),
            house.ask("POST", f"/chats/{chat}/messages", {"content": {"text": name}}, token),
        ]

    @pytest.mark.parametrize("rolls_back", [False, True])
    def test_executes_no_request_twice_or_half(
        self, rolls_back: bool, house: House, alice: Client, session: Any, trouble: Trouble
    ) -> None:
        failed = 0
        for statement in itertools.count(1):
            blocked, go_on = house.block()
            first = house.ask("PUT", f"/chats/{session.id}/read", {}, alice.token)
            assert blocked.wait(20)
            asked = self.ask_all(house, alice.token, session.id, statement)
            while house.server.group_commit.count() < 3:
                time.sleep(0.001)
            trouble.expect(statement, rolls_back=rolls_back)
            house.before_commit = lambda: None
            go_on.set()
            assert told(first)[0] == 200
            statuses = [told(asking)[0] for asking in asked]
            name = f"name {statement}"
            stored = [
                User.select().where(User.first_name == name).count(),
                Feedback.select().where(Feedback.description == name).count(),
                Message.select().where(Message.plain_text == name).count(),
            ]
            assert stored == [status < 300 for status in statuses], (statement, statuses)
            assert KeptAnswer.select().where(KeptAnswer.key == f"key {statement}").count() == stored[1]
            assert ChatSession.get().shown_total == Message.select().count()
            assert set(statuses) <= {200, 201, 503}
            failed += 503 in statuses
            if not trouble.has_happened:
                break
        assert statement > 20 and (failed == 0) == rolls_back  # begun again alone, they succeed

    def test_that_is_full_stores_all_of_a_request_or_nothing(self, house: House, alice: Client, session: Any) -> None:
        """SQLite itself says so here: the file has room for a few pages more, and each time for one less."""
        seen = set[int]()
        for room in reversed(range(12)):
            (pages,) = db.database.execute_sql("PRAGMA page_count").fetchone()

            def limit(*_: Any, most: int = pages + room) -> Any:
                return db.database.execute_sql(f"PRAGMA max_page_count = {most}")

            house.in_transaction = house.before_call = limit  # of the connections of both threads
            asked = [
                house.ask("POST", "/feedback", {"description": f"{room} {number} {'x' * 9_000}"}, alice.token)
                for number in range(3)
            ]
            statuses = [told(asking)[0] for asking in asked]
            stored = {row.description.rpartition(" ")[0] for row in Feedback.select()}
            assert [status == 201 for status in statuses] == [f"{room} {number}" in stored for number in range(3)]
            seen |= set(statuses)
        assert seen == {201, 503}
        assert POOL in house.threads["POST /feedback"]  # since SQLite has rolled back, they were begun again alone
