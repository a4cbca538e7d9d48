"""The stream of updates: what it sends, where it resumes, and when it ends."""

import contextlib
import http.client
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from service import updates
from service.api.long_poll import MAX_PER_CALLER
from service.auth.tokens import authenticate
from service.models import ChatSession, User
from service.updates import MAX_CHATS
from tests.support import cluster
from tests.support.client import Client
from tests.support.event_stream import PATH, Event, EventClient, EventParser
from tests.support.login_endings import ENDINGS
from tests.support.server_process import ALICE, APP, SESSION, TIMEOUT, Served, chat, fill, log_in_staff, serving

pytestmark = pytest.mark.database

MESSAGES = f"/api/v1/chats/{SESSION}/messages"


def events_of(client: Client, after: str = "", **headers: str) -> list[Event]:
    """The first events, without a server that adds more."""
    reply = client.get(f"/updates/stream?after={after}", **headers)
    assert reply.status == 200
    return list(EventParser().feed(reply.raw))


def changes_of(client: Client, after: str) -> list[Event]:
    """The first events `changes`, without the receipts before them."""
    return [event for event in events_of(client, after) if event.name == "changes"]


def test_first_event_has_the_position(alice: Client, session: ChatSession) -> None:
    [event] = events_of(alice)
    assert event.name == "changes"
    assert event.data == {"chats": [], "notifications": False, "after": event.last_id}
    assert events_of(alice, event.last_id) == []


def test_events_are_what_updates_returns(alice: Client, session: ChatSession) -> None:
    after = events_of(alice)[0].last_id
    alice.post(f"/chats/{session.id}/messages", {"content": "Hello"})
    [event] = changes_of(alice, after)
    assert event.data == alice.get(f"/updates?after={after}").data
    assert event.data["chats"] == [session.id] and event.last_id == event.data["after"]


def test_the_last_event_takes_precedence_over_the_query(alice: Client, session: ChatSession) -> None:
    """A browser that connects again uses the same address."""
    old = events_of(alice)[0].last_id
    alice.post(f"/chats/{session.id}/messages", {"content": "Hello"})
    [event] = changes_of(alice, old)
    assert events_of(alice, old, last_event_id=event.last_id) == []


def test_headers_let_proxies_pass_events_on_at_once(alice: Client) -> None:
    headers = alice.get("/updates/stream").headers
    assert headers["Content-Type"] == "text/event-stream"
    assert headers["Cache-Control"] == "no-store" and headers["X-Accel-Buffering"] == "no"


@pytest.mark.parametrize("after", ["x", "cxa_x", "a.b.c"])
def test_invalid_positions_are_errors_before_the_stream_begins(alice: Client, after: str) -> None:
    assert alice.get(f"/updates/stream?after={after}").error == (400, "invalid_cursor")
    assert alice.get("/updates/stream", last_event_id=after).error == (400, "invalid_cursor")


def test_position_of_another_user_is_400(alice: Client, bob: Client) -> None:
    assert bob.get(f"/updates/stream?after={events_of(alice)[0].last_id}").error == (400, "invalid_cursor")


def test_access_is_determined_again_for_every_event(agent: Client, alice: Client, session: ChatSession) -> None:
    stream = updates.UpdateStream(authenticate(f"Bearer {agent.token}"), "")
    alice.post(f"/chats/{session.id}/messages", {"content": "Hello"})
    assert session.id.encode() in stream.read()
    User.update(role="customer", app_id=None).where(User.id == agent.user.id).execute()
    alice.post(f"/chats/{session.id}/messages", {"content": "Hello again"})
    assert stream.read() == b"" and stream.topics == updates.stream_topics(authenticate(f"Bearer {agent.token}"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    fill(tmp_path / "data", chat())
    with serving(tmp_path / "data", "--threads", "2", "--workers", "2") as served:
        yield served


def send(server: Served, token: str, text: str = "Hello") -> None:
    assert server.call("POST", MESSAGES, {"content": text}, token).status == 201


def create_chats(server: Served, token: str, count: int) -> list[str]:
    created = []
    for _ in range(count):
        created.append(server.call("POST", "/api/v1/chats", {"app_id": APP}, token).data["id"])
        time.sleep(0.03)
    return created


@pytest.mark.slow
class TestServer:
    def open(self, server: Served, token: str, last_id: str = "") -> EventClient:
        return EventClient(server.connect(), token, last_id)

    def test_a_change_in_any_worker_is_an_event(self, server: Served) -> None:
        token = server.log_in()
        with self.open(server, token) as stream:
            first = stream.next()
            assert (stream.response.status, stream.parser.retry) == (200, 1000)
            for number in range(6):  # on connections to either worker
                send(server, token, str(number))
                event = stream.next()
                assert event.data["chats"] == [SESSION]
            assert stream.is_silent(0.5)
        assert server.call("GET", f"/api/v1/updates?after={first.last_id}", token=token).data["chats"] == [SESSION]

    def test_a_receipt_in_any_worker_is_an_event(self, server: Served, tmp_path: Path) -> None:
        customer, staff = server.log_in(), log_in_staff(server, tmp_path / "data")
        with self.open(server, customer) as stream:
            stream.next()
            for _ in range(6):  # on connections to either worker
                id = server.call("POST", MESSAGES, {"content": "Hello"}, customer).data["id"]
                assert server.call("PUT", f"/api/v1/chats/{SESSION}/read", {}, staff).status == 200
                expected = {"chat_session_id": SESSION, "message_id": id, "side": "app", "status": "read"}
                assert stream.next("receipt").data == expected

    def test_nothing_is_missed_or_repeated_when_connections_are_cut(self, server: Served) -> None:
        """New chats, each of which is reported once: an event that arrived is never sent again."""
        token = server.log_in()
        with self.open(server, token) as stream:
            last_id = stream.next().last_id
        found: list[str] = []
        with ThreadPoolExecutor(1) as pool:
            created = pool.submit(create_chats, server, token, 40)
            cuts = 0
            while len(found) < 40:
                with self.open(server, token, last_id) as stream:
                    event = stream.next()
                found += event.data["chats"]  # and the connection is cut
                last_id = event.last_id
                cuts += 1
            assert found == created.result() and cuts > 5
        with self.open(server, token, last_id) as stream:
            assert stream.is_silent(0.5)

    def test_a_long_list_of_changes_takes_several_events(self, server: Served, tmp_path: Path) -> None:
        token = server.log_in()
        with self.open(server, token) as stream:
            last_id = stream.next().last_id
        count = 2 * MAX_CHATS + 5
        ids = [f"00000000-0000-4000-9000-{number:012}" for number in range(count)]
        fill(tmp_path / "data", [{"chat_session": {"id": id, "app_id": APP, "user_id": ALICE}} for id in ids])
        found: list[str] = []
        with self.open(server, token, last_id) as stream:
            while len(found) < count:
                chats = stream.next().data["chats"]
                assert len(chats) <= MAX_CHATS
                found += chats
            assert sorted(found) == ids
            assert stream.is_silent(0.5)

    @pytest.mark.parametrize("end", ENDINGS)
    def test_end_of_the_login_ends_the_stream(self, server: Served, tmp_path: Path, end: str) -> None:
        token = server.log_in()
        with self.open(server, token) as stream:
            stream.next()
            ENDINGS[end](server, tmp_path / "data", token)
            stream.read_to_end()
        assert server.call("GET", PATH, token=token).error == (401, "invalid_token")

    def test_a_stop_ends_the_streams(self, server: Served) -> None:
        token = server.log_in()
        with contextlib.ExitStack() as stack:
            streams = [stack.enter_context(self.open(server, token)) for _ in range(6)]
            for stream in streams:
                stream.next()
            assert server.stop(signal.SIGTERM) == 0
            for stream in streams:
                stream.read_to_end()
        assert "Traceback" not in server.errors

    def test_open_streams_of_a_caller_are_limited(self, server: Served) -> None:
        token = server.log_in()
        with contextlib.ExitStack() as stack:
            refused: list[Any] = []
            opened = 0
            while len(refused) < 4:  # of each of the two workers
                stream = stack.enter_context(self.open(server, token))
                if stream.response.status != 200:
                    refused.append((stream.response.status, stream.response.headers["Retry-After"]))
                else:
                    stream.next()
                opened += 1
                assert opened <= 2 * MAX_PER_CALLER + 4 * len(refused) + 8
            assert {status for status, _ in refused} == {503} and all(after for _, after in refused)
            send(server, token)  # other requests are not affected


@pytest.mark.extended
@pytest.mark.sqlite_only("the same on both databases")
@pytest.mark.parametrize("proxy", ["nginx", "Caddy"])
def test_proxies_pass_events_on_at_once(server: Served, proxy: str) -> None:
    """As the documentation configures them. A proxy that buffers would send nothing before the stream ends."""
    token = server.log_in()
    with contextlib.ExitStack() as stack:
        if proxy == "nginx":
            connection = stack.enter_context(cluster.nginx([server.port] * 3)).connect()
        else:
            port = stack.enter_context(cluster.caddy(server))
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
        with EventClient(connection, token) as stream:
            stream.next()
            for number in range(3):
                send(server, token, str(number))
                assert stream.next().data["chats"] == [SESSION]
            server.call("POST", "/api/v1/auth/logout", {}, token)
            stream.read_to_end()
