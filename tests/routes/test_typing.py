"""Typing indicators: who sees that a user is writing, for how long, and through which processes they pass."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service import db, typing_indicators, updates
from service.auth.tokens import authenticate
from service.models import ChatSession
from tests.support.client import Client
from tests.support.event_stream import Event, EventClient, EventParser, wait_until_receiving
from tests.support.observe import nothing_changes
from tests.support.server_process import SESSION, Served, chat, fill, log_in_staff, serving

pytestmark = pytest.mark.database


@pytest.fixture(autouse=True)
def _forget_indicators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typing_indicators, "_last_sent", {})


MARKER = '["typing","marker","","","user",""]'  # an indicator that no customer and no agent sees


def is_indicator(event: Event) -> bool:
    return event.name == "typing" and event.data["chat_session_id"] != "marker"


class Listeners:
    """The streams of some users, in one process, and what its thread that polls does."""

    def __init__(self, poll: Any, clients: dict[str, Client]) -> None:
        self.poll = poll
        self.streams = {
            name: updates.UpdateStream(authenticate(f"Bearer {c.token}"), "") for name, c in clients.items()
        }

    def topics(self) -> set[str]:
        """The topics of the indicators so far. PostgreSQL passes them on in order, but not at once."""
        topics, before = set[str](), typing_indicators.received.count
        db.send_signal(MARKER)
        while not any(
            indicator.chat_session_id == "marker" for indicator in typing_indicators.received.since(before)[1]
        ):
            topics |= self.poll()
        return topics

    def received(self) -> dict[str, list[Event]]:
        """The typing events of those streams that are woken."""
        topics = self.topics()
        woken = {name: stream for name, stream in self.streams.items() if stream.topics & topics}
        found = {name: list(EventParser().feed(stream.read())) for name, stream in woken.items()}
        return {name: [event for event in events if is_indicator(event)] for name, events in found.items()}

    def names(self) -> list[str]:
        """The users who received one event each."""
        found = self.received()
        assert all(len(events) <= 1 for events in found.values())
        return sorted(name for name, events in found.items() if events)


@pytest.fixture
def listeners(
    alice: Client, bob: Client, agent: Client, admin: Client, other_agent: Client, session: ChatSession
) -> Iterator[Listeners]:
    clients = {"alice": alice, "bob": bob, "agent": agent, "admin": admin, "other_agent": other_agent}
    with updates.watch() as poll:
        poll()
        yield Listeners(poll, clients)


def show(client: Client, session: ChatSession) -> bool:
    reply = client.post(f"/chats/{session.id}/typing")
    assert reply.status == 200
    return bool(reply.data["shown"])


def test_staff_see_that_the_customer_is_writing(alice: Client, session: ChatSession, listeners: Listeners) -> None:
    assert show(alice, session)
    found = listeners.received()
    assert {name for name, events in found.items() if events} == {"agent", "admin"}
    [event] = found["agent"]
    assert event.data == {"chat_session_id": session.id, "sender_type": "user"} and event.last_id == ""
    assert listeners.names() == []


def test_customer_sees_no_more_of_staff_than_that_it_is_writing(
    agent: Client, session: ChatSession, listeners: Listeners
) -> None:
    assert show(agent, session)
    found = listeners.received()
    assert {name for name, events in found.items() if events} == {"alice", "admin"}
    assert found["alice"][0].data == {"chat_session_id": session.id, "sender_type": "agent"}


def test_indicators_of_a_user_are_throttled(alice: Client, session: ChatSession, listeners: Listeners) -> None:
    assert show(alice, session) and show(alice, session)
    assert listeners.names() == ["admin", "agent"]


def test_an_indicator_writes_nothing(alice: Client, session: ChatSession, listeners: Listeners) -> None:
    with nothing_changes():
        assert show(alice, session)
    assert listeners.names() == ["admin", "agent"]


def test_an_indicator_wakes_no_long_poll(
    alice: Client, agent: Client, session: ChatSession, listeners: Listeners
) -> None:
    assert show(alice, session)
    topics = listeners.topics()
    assert f"signals app {session.app_id}" in topics and not topics & updates.topics(
        authenticate(f"Bearer {agent.token}")
    )


def test_users_who_hide_it_show_no_indicator_but_see_those_of_others(
    alice: Client, agent: Client, session: ChatSession, listeners: Listeners
) -> None:
    alice.patch("/users/me/settings", {"privacy": {"show_typing_indicator": False}})
    assert not show(alice, session)
    assert listeners.names() == []
    assert show(agent, session)
    assert listeners.names() == ["admin", "alice"]


def test_an_archived_session_has_no_indicators(alice: Client, session: ChatSession, listeners: Listeners) -> None:
    alice.post(f"/chats/{session.id}/archive")
    listeners.received()
    assert not show(alice, session)
    assert listeners.names() == []


def test_access_is_determined_again_for_every_sign(
    alice: Client, agent: Client, session: ChatSession, listeners: Listeners
) -> None:
    assert show(alice, session)
    type(agent.user).update(role="customer", app_id=None).where(type(agent.user).id == agent.user.id).execute()
    assert listeners.names() == ["admin"]


def test_a_thinking_assistant_is_the_bot_that_writes(
    session: ChatSession, listeners: Listeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typing_indicators, "BOT_INTERVAL", 0.01)
    monkeypatch.setattr(typing_indicators, "MIN_INTERVAL", 0.0)
    with typing_indicators.of_bot(session):
        found: list[Event] = []
        while len(found) < 2:  # again and again
            found += listeners.received().get("alice", [])
    assert found[0].data == {"chat_session_id": session.id, "sender_type": "bot"}
    listeners.received()
    assert listeners.names() == []


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    fill(tmp_path / "data", chat())
    with serving(tmp_path / "data", "--threads", "2", "--workers", "2") as served:
        yield served


@pytest.mark.slow
def test_an_indicator_passes_workers(server: Served, tmp_path: Path) -> None:
    customer, staff = server.log_in(), log_in_staff(server, tmp_path / "data")
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(EventClient(server.connect(), staff)) for _ in range(8)]  # at both workers
        wait_until_receiving(streams, server, SESSION, customer)
        assert server.call("POST", f"/api/v1/chats/{SESSION}/typing", token=customer).data == {"shown": True}
        expected = {"chat_session_id": SESSION, "sender_type": "user"}
        assert [stream.next("typing").data for stream in streams] == [expected] * 8


@pytest.mark.slow
@pytest.mark.postgresql_only
def test_an_indicator_passes_instances(server: Served, tmp_path: Path) -> None:
    customer, staff = server.log_in(), log_in_staff(server, tmp_path / "data")
    with serving(tmp_path / "data") as other, EventClient(other.connect(), staff) as stream:
        wait_until_receiving([stream], server, SESSION, customer)
        assert server.call("POST", f"/api/v1/chats/{SESSION}/typing", token=customer).data == {"shown": True}
        assert stream.next("typing").data == {"chat_session_id": SESSION, "sender_type": "user"}
