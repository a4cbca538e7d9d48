"""Which thread processes which request, reads on the event loop, and group commits."""

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
from service import server as http_server
from service.db import engine, sqlite, time_budget
from service.models import ChatSession, Feedback, IdempotencyKey, Message, User
from service.server import Server, connection, exchange, group_commit, listen
from service.settings import Settings
from tests.support.client import Client
from tests.support.faults import another_connection, disk_full
from tests.support.passwords import PASSWORD

NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000000) SELECT i FROM n"
SLOW = f"SELECT count(*) FROM ({NUMBERS})"
LOOP, GROUP, POOL = "event loop", "group commit", "waitress"
GROUPED = [GROUP, GROUP, GROUP]  # prepared, run, finished


class RecordingServer:
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
        """Block commits: the first event is set when one is reached, the second lets all continue."""
        blocked, go_on = threading.Event(), threading.Event()

        def wait() -> None:
            blocked.set()
            assert go_on.wait(60)

        self.before_commit = wait
        return blocked, go_on

    def send(
        self, method: str, path: str, body: Any = None, token: str = "", **headers: str
    ) -> http.client.HTTPConnection:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers |= {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        client.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), headers)
        return client

    def call(self, method: str, path: str, body: Any = None, token: str = "") -> tuple[int, Any]:
        return receive(self.send(method, path, body, token))

    def stop(self) -> None:
        self.is_over.set()
        with contextlib.suppress(OSError):  # the server has stopped
            self.server.trigger.pull_trigger()
        self.thread.join(60)


def receive(client: http.client.HTTPConnection) -> tuple[int, Any]:
    with contextlib.closing(client):
        response = client.getresponse()
        return response.status, json.loads(response.read() or b"null")


@pytest.fixture
def service(application: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingServer]:
    for name in ("MAX_PROCESSOR_SECONDS", "MAX_SECONDS"):  # the machine may be busy
        monkeypatch.setattr(time_budget, name, 60.0)
    for name in ("MAX_SECONDS", "MAX_PREPARE_SECONDS"):
        monkeypatch.setattr(group_commit, name, 60.0)
    made = RecordingServer(application, settings)
    yield made
    made.stop()


def descriptions() -> list[str]:
    return sorted(row.description for row in Feedback.select())


pytestmark = [pytest.mark.sqlite_only, pytest.mark.database]


class TestReadsOnTheEventLoop:
    def test_reads_run_on_the_event_loop(self, service: RecordingServer, alice: Client) -> None:
        for path in ("/users/me/settings", "/chats", "/notifications", "/nowhere"):
            service.call("GET", path, token=alice.token)
            assert service.threads[f"GET {path}"] == [LOOP]

    def test_a_read_that_writes_is_restarted_in_a_thread(self, service: RecordingServer, alice: Client) -> None:
        login = {"email": alice.user.email, "password": PASSWORD}
        first = alice.post("/auth/login", login).data["tokens"]["refresh_token"]
        token = alice.post("/auth/refresh", {"refresh_token": first}).data["tokens"]["access_token"]
        for _ in range(2):  # the first use of a token is stored
            assert service.call("GET", "/users/me", token=token)[0] == 200
        assert service.threads["GET /users/me"] == [LOOP, POOL, LOOP]

    def test_a_read_that_takes_long_is_restarted_in_a_thread(
        self, service: RecordingServer, alice: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def slow_find(*arguments: Any) -> Any:
            list(db.database.execute_sql(SLOW))
            return find(*arguments)

        find = User.preferences_of
        monkeypatch.setattr(User, "preferences_of", slow_find)
        monkeypatch.setattr(time_budget, "MAX_PROCESSOR_SECONDS", 0.01)
        assert service.call("GET", "/users/me/settings", token=alice.token)[0] == 200
        assert service.threads["GET /users/me/settings"] == [LOOP, POOL]

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

    def test_each_read_has_its_own_time_budget(self, application: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time_budget, "MAX_PROCESSOR_SECONDS", 0.02)
        begun = time.thread_time()  # processor time, without other processes
        with db.inline_read(), pytest.raises(peewee.OperationalError, match="interrupted"):
            db.database.execute_sql(SLOW)
        assert time.thread_time() - begun < 0.2
        with db.inline_read():
            assert User.select().count() == 0
        assert db.database.execute_sql(SLOW).fetchone() == (3_000_000,)

    @pytest.mark.parametrize(
        ("delay", "order"), [(60.0, ["called", "called", "sent", "sent"]), (-1.0, ["called", "sent", "called", "sent"])]
    )
    def test_responses_of_one_iteration_are_sent_together_unless_that_takes_long(
        self, delay: float, order: list[str], service: RecordingServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun, go_on, seen = threading.Event(), threading.Event(), list[str]()
        send = connection.Connection.send_response

        def hold(environ: dict[str, Any]) -> None:
            if environ["PATH_INFO"].endswith("/first"):
                begun.set()
                assert go_on.wait(60)
            seen.append("called")

        def record_and_send(channel: Any, answer: Any) -> None:
            seen.append("sent")
            send(channel, answer)

        service.before_call = hold
        monkeypatch.setattr(http_server, "MAX_SEND_DELAY", delay)
        monkeypatch.setattr(connection.Connection, "send_response", record_and_send)
        others = [service.send("GET", "/nowhere") for _ in range(2)]
        assert all(other.getresponse().read() for other in others)
        first = service.send("GET", "/first")
        assert begun.wait(60)
        seen.clear()
        for other in others:
            other.request("GET", "/api/v1/nowhere")
        go_on.set()
        assert [receive(client)[0] for client in (first, *others)] == [404] * 3
        assert seen[-4:] == order

    def test_pipelined_requests_do_not_wait_for_events(
        self, service: RecordingServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        turn = service.server._run_once  # an iteration without events takes a second; here an hour
        monkeypatch.setattr(service.server, "_run_once", lambda timeout: turn(3600.0 if timeout == 1.0 else timeout))
        with socket.create_connection(("127.0.0.1", service.port), timeout=60) as client:
            head = b"GET /nowhere HTTP/1.1\r\nHost: a\r\n"
            client.sendall((head + b"\r\n") * 40 + head + b"Connection: close\r\n\r\n")
            client.settimeout(60)
            found = b""
            while part := client.recv(65536):
                found += part
        assert found.count(b"HTTP/1.1 404") == 41

    def test_a_client_with_many_reads_waits_for_one_with_few(
        self, service: RecordingServer, alice: Client, bob: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(http_server, "MAX_READ_SECONDS", 0.0)
        begun, go_on, seen = threading.Event(), threading.Event(), list[str]()
        clients = [service.send("GET", f"/open{number}", token=alice.token) for number in range(3)]
        other = service.send("GET", "/open", token=bob.token)
        assert all(client.getresponse().read() for client in (*clients, other))

        def hold(environ: dict[str, Any]) -> None:
            path = environ["PATH_INFO"].rpartition("/")[2]
            seen.append(path)
            if path == "first":
                begun.set()
                assert go_on.wait(60)
            if path == "0":  # the requests after it have arrived
                other.request("GET", "/api/v1/bob", headers={"Authorization": f"Bearer {bob.token}"})

        service.before_call = hold
        first = service.send("GET", "/first", token=alice.token)
        assert begun.wait(60)
        for number, client in enumerate(clients):
            client.request("GET", f"/api/v1/{number}", headers={"Authorization": f"Bearer {alice.token}"})
        go_on.set()
        assert [receive(client)[0] for client in (first, *clients, other)] == [404] * 5
        assert seen == ["first", "0", "1", "bob", "2"]

    def test_require_a_database_that_supports_them(self) -> None:
        assert not (engine.Engine.reads_inline or engine.Engine.groups_writes or engine.Engine().is_reading_inline())


@contextlib.contextmanager
def another_writer() -> Iterator[None]:
    """A write transaction of another connection."""
    with another_connection() as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@pytest.mark.sqlite_only
class TestGroupCommit:
    def test_writes_that_arrive_during_a_commit_share_the_next_one(
        self, service: RecordingServer, alice: Client
    ) -> None:
        blocked, go_on = service.block()
        first = service.send("POST", "/feedback", {"description": "first"}, alice.token)
        assert blocked.wait(60)
        others = [service.send("POST", "/feedback", {"description": str(number)}, alice.token) for number in range(5)]
        while service.server.group_commit.count() < 5:
            time.sleep(0.01)
        assert descriptions() == []
        go_on.set()
        assert [receive(client)[0] for client in (first, *others)] == [201] * 6
        assert service.sizes == [1, 5]
        assert descriptions() == ["0", "1", "2", "3", "4", "first"]
        assert sorted(service.threads["POST /feedback"]) == sorted(GROUPED * 6)

    def test_requests_that_arrive_together_are_prepared_in_one_snapshot(
        self, service: RecordingServer, alice: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        statements = list[str]()
        execute_sql = sqlite.Sqlite.execute_sql

        def record(engine: Any, sql: str, params: Any = None) -> Any:
            if threading.current_thread().name == GROUP and not engine.in_transaction():
                statements.append(sql.partition(" ")[0])
            return execute_sql(engine, sql, params)

        blocked, go_on = service.block()
        first = service.send("POST", "/feedback", {"description": "first"}, alice.token)
        assert blocked.wait(20)
        service.before_commit = lambda: None
        others = [service.send("POST", "/feedback", {"description": text}, alice.token) for text in "abc"]
        while service.server.group_commit.count() < 3:
            time.sleep(0.01)
        monkeypatch.setattr(sqlite.Sqlite, "execute_sql", record)
        go_on.set()
        assert [receive(client)[0] for client in (first, *others)] == [201] * 4
        assert statements == ["BEGIN", *["SELECT"] * 3, "COMMIT", "PRAGMA"]

    def test_snapshots_can_be_nested(self) -> None:
        with db.inline_snapshot(), db.snapshot(), db.snapshot():
            assert User.select().count() >= 0
        assert not db.database.connection().in_transaction

    def test_a_write_runs_as_soon_as_another_process_has_committed(
        self, service: RecordingServer, alice: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The busy handler of SQLite would continue to sleep."""
        monkeypatch.setattr(sqlite, "GROUP_TIMEOUT", 60.0)
        with another_writer():
            clients = [
                service.send("POST", "/feedback", {"description": str(number)}, alice.token) for number in range(3)
            ]
            while service.server.group_commit.count() < 2:
                time.sleep(0.01)
            pauses, sleep = list[float](), time.sleep
            monkeypatch.setattr(time, "sleep", lambda seconds: pauses.append(seconds) or sleep(seconds))
            while len(pauses) < 3:
                pass
        assert [receive(client)[0] for client in clients] == [201] * 3
        assert set(pauses) == {sqlite.POLL_INTERVAL} and sum(service.sizes) == 3
        assert sorted(service.threads["POST /feedback"]) == sorted(GROUPED * 3)

    def test_a_write_that_waits_long_for_the_lock_moves_to_a_thread(
        self, service: RecordingServer, alice: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite, "GROUP_TIMEOUT", 0.01)
        with another_writer():
            clients = [
                service.send("POST", "/feedback", {"description": str(number)}, alice.token) for number in range(2)
            ]
            while service.threads.get("POST /feedback", []).count(POOL) < 2:
                time.sleep(0.01)
        assert [receive(client)[0] for client in clients] == [201] * 2
        assert service.sizes[0] == 0

    def test_no_response_is_sent_before_the_commit(self, service: RecordingServer, alice: Client) -> None:
        def check() -> None:
            client.sock.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.sock.recv(1, 2)
            counts.append(len(Feedback.select()))

        counts: list[int] = []
        service.before_commit = check
        client = http.client.HTTPConnection("127.0.0.1", service.port)
        client.connect()
        client.request(
            "POST", "/api/v1/feedback", '{"description": "x"}',
            {"Authorization": f"Bearer {alice.token}", "Content-Type": "application/json"},
        )  # fmt: skip
        while not counts:
            time.sleep(0.01)
        client.sock.settimeout(60)
        assert receive(client)[0] == 201
        assert counts == [1]  # in the transaction

    def test_requests_of_a_failed_commit_get_503_and_are_not_repeated(
        self, service: RecordingServer, alice: Client
    ) -> None:
        def fail() -> None:
            service.before_commit = lambda: None
            raise disk_full()

        service.before_commit = fail
        status, reply = service.call("POST", "/feedback", {"description": "x"}, alice.token)
        assert (status, reply["error"]["code"]) == (503, "storage_unavailable")
        assert descriptions() == []
        assert service.threads["POST /feedback"] == GROUPED
        assert service.call("POST", "/feedback", {"description": "y"}, alice.token)[0] == 201
        assert descriptions() == ["y"]

    def test_a_transaction_that_sqlite_rolls_back_stores_nothing(self, service: RecordingServer, alice: Client) -> None:
        def roll_back() -> None:
            service.before_commit = lambda: None
            db.database.connection().execute("ROLLBACK")

        service.before_commit = roll_back
        assert service.call("POST", "/feedback", {"description": "x"}, alice.token)[0] == 503
        assert descriptions() == []

    def test_a_request_that_crashes_does_not_affect_the_others(
        self, service: RecordingServer, alice: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        submit = Feedback.submit.__func__  # type: ignore[attr-defined]

        def crash(cls: type[Feedback], *arguments: Any, **more: Any) -> Any:
            found = submit(cls, *arguments, **more)
            if b"crash" in bytes(found):
                raise RuntimeError("after it was written")
            return found

        monkeypatch.setattr(Feedback, "submit", classmethod(crash))
        blocked, go_on = service.block()
        first = service.send("POST", "/feedback", {"description": "a"}, alice.token)
        assert blocked.wait(60)
        others = [service.send("POST", "/feedback", {"description": text}, alice.token) for text in ("crash", "b")]
        while service.server.group_commit.count() < 2:
            time.sleep(0.01)
        go_on.set()
        assert [receive(client)[0] for client in (first, *others)] == [201, 500, 201]
        assert service.sizes == [1, 2]
        assert descriptions()[:2] == ["a", "b"]  # and the feedback of the failed request, whose own write was complete

    @pytest.mark.parametrize("step", [1, 2, 3])
    def test_a_failure_outside_of_the_application_closes_its_connection_only(
        self, step: int, service: RecordingServer, alice: Client
    ) -> None:
        def fail(environ: dict[str, Any]) -> None:
            if service.threads["POST /feedback"] == [GROUP] * step:
                raise ValueError("beyond the application")

        service.before_step = fail
        with pytest.raises(http.client.RemoteDisconnected):
            service.call("POST", "/feedback", {"description": "fails"}, alice.token)
        assert service.call("POST", "/feedback", {"description": "x"}, alice.token)[0] == 201

    def test_a_response_that_cannot_be_formatted_closes_its_connection_only(
        self, service: RecordingServer, alice: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: Any) -> None:
            raise ValueError("a header holds the end of a line")

        with monkeypatch.context() as broken:
            broken.setattr(exchange.Exchange, "format_response", fail)
            with pytest.raises(http.client.RemoteDisconnected):
                service.call("POST", "/feedback", {"description": "fails"}, alice.token)
        assert service.call("POST", "/feedback", {"description": "x"}, alice.token)[0] == 201

    def test_slow_operations_run_in_a_thread_of_the_pool(self, service: RecordingServer, alice: Client) -> None:
        login = {"email": alice.user.email, "password": PASSWORD}
        assert service.call("POST", "/auth/login", login)[0] == 200
        assert service.threads["POST /auth/login"] == [POOL]

    def test_clients_take_turns_in_the_thread_pool(self, service: RecordingServer, alice: Client, bob: Client) -> None:
        pool = service.server.task_dispatcher
        pool.set_thread_count(1)
        begun, go_on, seen = threading.Event(), threading.Event(), list[str]()

        def hold(environ: dict[str, Any]) -> None:
            seen.append(environ["QUERY_STRING"])
            begun.set()
            assert go_on.wait(60)

        service.before_call = hold
        clients, large = list[http.client.HTTPConnection](), {"description": "x" * connection.SMALL_BODY}
        for name, who in (("first", alice), ("0", alice), ("1", alice), ("2", alice), ("bob", bob)):
            clients.append(service.send("POST", f"/feedback?{name}", large, who.token))
            assert begun.wait(60)
            while len(pool.queue) < len(clients) - 1:
                time.sleep(0.001)
        go_on.set()
        assert [receive(client)[0] for client in clients] == [400] * 5  # the description is too long
        assert seen == ["first", "0", "bob", "1", "2"]

    def test_a_client_does_not_occupy_all_threads_of_the_pool(
        self, service: RecordingServer, alice: Client, bob: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool, begun, go_on = service.server.task_dispatcher, threading.Semaphore(0), threading.Event()
        seen, queue = list[str](), pool.queue
        locked, may_take = list[bool](), queue.may_take

        def may_take_with_lock(client: str) -> bool:
            locked.append(pool.lock.locked())
            return bool(may_take(client))

        def hold(environ: dict[str, Any]) -> None:
            seen.append(environ["QUERY_STRING"])
            begun.release()
            assert go_on.wait(60)

        service.before_call = hold
        monkeypatch.setattr(queue, "may_take", may_take_with_lock)
        large = {"description": "x" * connection.SMALL_BODY}
        names = [str(number) for number in range(len(pool.threads))]
        clients = [service.send("POST", f"/feedback?{name}", large, alice.token) for name in names]
        half = len(names) // 2
        for _ in range(half):
            assert begun.acquire(timeout=60)
        while len(pool.queue) < len(names) - half:
            time.sleep(0.001)
        clients.append(service.send("POST", "/feedback?bob", large, bob.token))
        assert begun.acquire(timeout=60)
        assert len(seen) == half + 1 and seen[-1] == "bob"
        assert all(locked) and len(locked) > len(names)  # the event loop counts the queue, which threads change
        go_on.set()
        assert [receive(client)[0] for client in clients] == [400] * (len(names) + 1)  # the description is too long
        assert sorted(seen) == sorted([*names, "bob"])

    def test_a_post_that_only_reads_does_not_wait_for_writers(self, service: RecordingServer, alice: Client) -> None:
        with db.write():
            use = {"mcp_server_id": "files", "tool": "read"}
            status, reply = service.call("POST", "/data-shares/check", use, alice.token)
        assert (status, reply["data"]["allowed"]) == (200, False)
        assert service.threads["POST /data-shares/check"] == [LOOP]

    def test_a_request_refused_before_its_handler_does_not_wait_for_writers(
        self, service: RecordingServer, alice: Client
    ) -> None:
        with db.write():
            assert service.call("POST", "/feedback", {"description": 1}, alice.token)[0] == 400
            assert service.call("POST", "/feedback", {"description": "x"}, "wrong")[0] == 401
        assert service.sizes == []

    def test_requests_after_the_time_limit_of_a_transaction_wait_for_the_next(
        self, service: RecordingServer, alice: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        blocked, go_on = service.block()
        first = service.send("POST", "/feedback", {"description": "first"}, alice.token)
        assert blocked.wait(20)
        others = [service.send("POST", "/feedback", {"description": str(number)}, alice.token) for number in range(3)]
        while service.server.group_commit.count() < 3:
            time.sleep(0.01)
        monkeypatch.setattr(group_commit, "MAX_SECONDS", 0.0)
        go_on.set()
        assert [receive(client)[0] for client in (first, *others)] == [201] * 4
        assert service.sizes == [1, 1, 1, 1]

    def test_a_client_with_many_requests_waits_for_one_with_few(
        self, service: RecordingServer, alice: Client, bob: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(group_commit, "MAX_REQUESTS", 2)
        blocked, go_on = service.block()
        clients = [service.send("POST", "/feedback", {"description": "first"}, alice.token)]
        assert blocked.wait(20)
        for number in range(4):
            clients.append(service.send("POST", "/feedback", {"description": str(number)}, alice.token))
            while service.server.group_commit.count() <= number:
                time.sleep(0.001)
        clients.append(service.send("POST", "/feedback", {"description": "of Bob"}, bob.token))
        while service.server.group_commit.count() < 5:
            time.sleep(0.001)
        go_on.set()
        assert [receive(client)[0] for client in clients] == [201] * 6
        stored = [row.description for row in Feedback.select().order_by(peewee.SQL("rowid"))]
        assert stored == ["first", "0", "of Bob", "1", "2", "3"]

    def test_clients_take_turns_before_their_requests_are_prepared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        prepared, first_prepared, go_on = list[str](), threading.Event(), threading.Event()

        class SlowRequest:
            """A request that takes as long to prepare as the group commit allows for all."""

            def __init__(self, name: str, client: str) -> None:
                self.name, self.client = name, client
                self.channel = self

            def prepare(self) -> bool:
                prepared.append(self.name)
                first_prepared.set()
                assert go_on.wait(60)
                time.sleep(group_commit.MAX_PREPARE_SECONDS)
                return False

            def send_response(self, exchange: Any) -> None:
                pass

        monkeypatch.setattr(group_commit, "MAX_PREPARE_SECONDS", 0.001)
        group = group_commit.GroupCommit(contextlib.nullcontext, bool, bool)  # type: ignore[arg-type]
        group.add(SlowRequest("alice 0", "alice"))  # type: ignore[arg-type]
        assert first_prepared.wait(60)
        for name, client in (("alice 1", "alice"), ("alice 2", "alice"), ("bob 1", "bob")):
            group.add(SlowRequest(name, client))  # type: ignore[arg-type]
        go_on.set()
        group.stop()
        assert prepared == ["alice 0", "alice 1", "bob 1", "alice 2"]

    def test_all_requests_of_a_transaction_that_sqlite_rolls_back_are_restarted_alone(
        self, service: RecordingServer, alice: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        submit = Feedback.submit.__func__  # type: ignore[attr-defined]

        def submit_and_roll_back(cls: type[Feedback], *arguments: Any, **columns: Any) -> Any:
            found = submit(cls, *arguments, **columns)
            if columns["description"] == "lost" and threading.current_thread().name == GROUP:
                db.database.connection().execute("ROLLBACK")
                submit(cls, *arguments, **columns)  # a second write of the same request, in the same transaction
            return found

        monkeypatch.setattr(Feedback, "submit", classmethod(submit_and_roll_back))
        blocked, go_on = service.block()
        first = service.send("POST", "/feedback", {"description": "first"}, alice.token)
        assert blocked.wait(20)
        service.before_commit = lambda: None
        others = [service.send("POST", "/feedback", {"description": text}, alice.token) for text in ("a", "lost", "b")]
        while service.server.group_commit.count() < 3:
            time.sleep(0.01)
        go_on.set()
        assert [receive(client)[0] for client in (first, *others)] == [201] * 4
        assert descriptions() == ["a", "b", "first", "lost"]
        assert POOL in service.threads["POST /feedback"]

    def test_a_request_with_a_large_body_runs_in_a_thread_of_the_pool(
        self, service: RecordingServer, alice: Client
    ) -> None:
        large = "x" * connection.SMALL_BODY
        assert service.call("POST", "/feedback", {"description": large}, alice.token)[0] in (201, 400)
        assert service.threads["POST /feedback"] == [POOL]

    def test_reads_continue_while_a_write_waits_for_another_process(
        self, service: RecordingServer, alice: Client
    ) -> None:
        with db.write():
            client = service.send("POST", "/feedback", {"description": "x"}, alice.token)
            time.sleep(0.2)
            assert service.call("GET", "/users/me", token=alice.token)[0] == 200
        assert receive(client)[0] == 201

    def test_a_stopping_server_completes_its_requests(self, service: RecordingServer, alice: Client) -> None:
        blocked, go_on = service.block()
        client = service.send("POST", "/feedback", {"description": "last"}, alice.token)
        assert blocked.wait(60)
        service.is_over.set()
        service.server.trigger.pull_trigger()
        time.sleep(0.3)
        go_on.set()
        assert receive(client)[0] == 201
        service.thread.join(60)
        assert not service.thread.is_alive()
        assert GROUP not in [thread.name for thread in threading.enumerate()]


class FailingStatement:
    """Makes one statement of the group commit fail, as SQLite does when the disk is full or broken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.execute_sql = sqlite.Sqlite.execute_sql
        self.left, self.rolls_back, self.has_failed = 0, False, False
        self.in_transaction = True
        monkeypatch.setattr(sqlite.Sqlite, "execute_sql", lambda *arguments: self.execute(*arguments))

    def expect(self, statement: int, *, rolls_back: bool, in_transaction: bool = True) -> None:
        """Make a statement fail, by its number in the transaction of the next group commit or before it."""
        self.left, self.rolls_back, self.has_failed = statement, rolls_back, False
        self.in_transaction = in_transaction

    def execute(self, engine: Any, sql: str, params: Any = None) -> Any:
        is_in_group = threading.current_thread().name == GROUP
        if is_in_group and engine.in_transaction() == self.in_transaction and self.left:
            self.left -= 1
            if not self.left:
                self.has_failed = True
                if self.rolls_back and engine.connection().in_transaction:
                    engine.connection().execute("ROLLBACK")
                raise disk_full()
        return self.execute_sql(engine, sql, params)


@pytest.mark.sqlite_only
class TestFailingDisk:
    @pytest.fixture
    def failing_statement(self, monkeypatch: pytest.MonkeyPatch) -> FailingStatement:
        return FailingStatement(monkeypatch)

    def send_all(
        self, service: RecordingServer, token: str, chat: str, number: int
    ) -> list[http.client.HTTPConnection]:
        """Three requests in one transaction; two of them have nested writes."""
        name, key = f"name {number}", {"Idempotency-Key": f"key {number}"}
        return [
            service.send("PATCH", "/users/me", {"first_name": name}, token),
            service.send("POST", "/feedback", {"description": name}, token, **key),
            service.send("POST", f"/chats/{chat}/messages", {"content": {"text": name}}, token),
        ]

    @pytest.mark.parametrize("rolls_back", [False, True])
    def test_all_requests_are_executed_once_or_not_at_all(
        self,
        rolls_back: bool,
        service: RecordingServer,
        alice: Client,
        session: Any,
        failing_statement: FailingStatement,
    ) -> None:
        failed = 0
        for statement in itertools.count(1):
            blocked, go_on = service.block()
            first = service.send("PUT", f"/chats/{session.id}/read", {}, alice.token)
            assert blocked.wait(20)
            clients = self.send_all(service, alice.token, session.id, statement)
            while service.server.group_commit.count() < 3:
                time.sleep(0.001)
            failing_statement.expect(statement, rolls_back=rolls_back)
            service.before_commit = lambda: None
            go_on.set()
            assert receive(first)[0] == 200
            statuses = [receive(client)[0] for client in clients]
            name = f"name {statement}"
            stored = [
                User.select().where(User.first_name == name).count(),
                Feedback.select().where(Feedback.description == name).count(),
                Message.select().where(Message.plain_text == name).count(),
            ]
            assert stored == [status < 300 for status in statuses], (statement, statuses)
            assert IdempotencyKey.select().where(IdempotencyKey.key == f"key {statement}").count() == stored[1]
            assert ChatSession.get().shown_total == Message.select().count()
            assert set(statuses) <= {200, 201, 503}
            failed += 503 in statuses
            if not failing_statement.has_failed:
                break
        assert statement > 20 and (failed == 0) == rolls_back  # retried separately, they succeed

    @pytest.mark.parametrize("rolls_back", [False, True])
    def test_failure_during_preparation_affects_no_request(
        self,
        rolls_back: bool,
        service: RecordingServer,
        alice: Client,
        session: Any,
        failing_statement: FailingStatement,
    ) -> None:
        for statement in itertools.count(1):
            blocked, go_on = service.block()
            first = service.send("PUT", f"/chats/{session.id}/read", {}, alice.token)
            assert blocked.wait(20)
            clients = self.send_all(service, alice.token, session.id, statement)
            while service.server.group_commit.count() < 3:
                time.sleep(0.001)
            failing_statement.expect(statement, rolls_back=rolls_back, in_transaction=False)
            service.before_commit = lambda: None
            go_on.set()
            assert [receive(client)[0] for client in (first, *clients)] == [200, 200, 201, 201], statement
            name = f"name {statement}"
            assert User.select().where(User.first_name == name).count() == 1
            assert Feedback.select().where(Feedback.description == name).count() == 1
            assert Message.select().where(Message.plain_text == name).count() == 1
            if not failing_statement.has_failed:
                break
        assert statement > 5

    def test_full_disk_stores_requests_completely_or_not_at_all(
        self, service: RecordingServer, alice: Client, session: Any
    ) -> None:
        """SQLite raises the error: the file has room for a few more pages, and one less each time."""
        seen = set[int]()
        for room in reversed(range(12)):
            (pages,) = db.database.execute_sql("PRAGMA page_count").fetchone()

            def set_limit(*_: Any, limit: int = pages + room) -> Any:
                return db.database.execute_sql(f"PRAGMA max_page_count = {limit}")

            service.in_transaction = service.before_call = set_limit  # of the connections of both threads
            clients = [
                service.send("POST", "/feedback", {"description": f"{room} {number} {'x' * 9_000}"}, alice.token)
                for number in range(3)
            ]
            statuses = [receive(client)[0] for client in clients]
            stored = {row.description.rpartition(" ")[0] for row in Feedback.select()}
            assert [status == 201 for status in statuses] == [f"{room} {number}" in stored for number in range(3)]
            seen |= set(statuses)
        assert seen == {201, 503}
        assert POOL in service.threads["POST /feedback"]  # retried separately after SQLite rolled back
