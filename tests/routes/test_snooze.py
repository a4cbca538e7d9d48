"""Snoozing until a time: who may do it, when a chat reopens, and who is notified."""

import threading
import time

import pytest

from service import clock, timer
from service.models import ChatSession, Notification, snoozing
from service.models.chats import STATUSES
from tests.support.messages import send
from tests.support.observe import at_once, nothing_changes, query_plan, statements
from tests.support.server_process import ALICE, APP, SESSION, chat, fill, serving

pytestmark = pytest.mark.database

UNTIL = "2026-11-20T11:00:00.000Z"  # an hour after the time of `host_clock`


def snooze(client, session, until=UNTIL):
    return client.put(f"/chats/{session.id}/snooze", {"until": until})


def state(session):
    row = ChatSession.get_by_id(session.id)
    return row.status, row.snoozed_until


def reopened(client):
    """Return the sessions that notifications announce as reopened."""
    rows = Notification.select().where(Notification.user_id == client.user.id, Notification.type == "chat_reopened")
    return [row.session_id for row in rows]


@pytest.fixture
def assigned(agent, session):
    assert agent.put(f"/chats/{session.id}/assignee", {"user_id": agent.user.id}).status == 200
    return session


def test_staff_snoozes_a_chat_until_a_time(host_clock, alice, agent, admin, session):
    for client, until in ((agent, "2026-11-20T12:00:00+01:00"), (admin, "2026-12-24T18:00:00.5Z")):
        found = snooze(client, session, until).data
        assert (found["status"], found["snoozed_until"]) == ("snoozed", clock.read_timestamp(until))
        assert agent.get("/chats?status=snoozed").data == [agent.get(f"/chats/{session.id}").data]
        shown = alice.get(f"/chats/{session.id}").data
        assert (shown["status"], shown["snoozed_until"]) == ("snoozed", None)
    assert [row["title"] for row in alice.get("/notifications").data] == ["Your chat is snoozed"]


def test_snoozing_again_until_the_same_time_changes_nothing(host_clock, agent, session):
    snooze(agent, session)
    with nothing_changes():
        assert snooze(agent, session).status == 200


def test_only_staff_snoozes(host_clock, alice, bob, other_agent, session):
    with nothing_changes():
        for client in (alice, bob, other_agent):
            assert snooze(client, session).error == (403, "forbidden")


@pytest.mark.parametrize("until", ["2026-11-20T10:00:00Z", "2020-01-01T00:00:00Z", "tomorrow", "2026-12-01", "", None])
def test_the_time_must_be_in_the_future(host_clock, agent, session, until):
    with nothing_changes():
        assert snooze(agent, session, until).error == (400, "invalid_body")


def test_a_snoozed_chat_reopens_at_its_time(host_clock, alice, agent, assigned):
    snooze(agent, assigned)
    host_clock.forward(minutes=59)
    assert (snoozing.reopen_due(), state(assigned)) == (0, ("snoozed", UNTIL))
    host_clock.forward(minutes=1)
    assert (snoozing.reopen_due(), state(assigned)) == (1, ("open", None))
    assert (snoozing.reopen_due(), reopened(agent), reopened(alice)) == (0, [assigned.id], [])


def test_a_reopened_chat_is_an_update(host_clock, alice, agent, assigned):
    snooze(agent, assigned, "2026-11-20T10:05:00Z")
    after = {client: client.get("/updates").data["after"] for client in (alice, agent)}
    host_clock.forward(minutes=5)
    snoozing.reopen_due()
    found = {client: client.get(f"/updates?wait=0&after={position}").data for client, position in after.items()}
    assert [found[client]["chats"] for client in (alice, agent)] == [[assigned.id], [assigned.id]]
    assert [found[client]["notifications"] for client in (alice, agent)] == [False, True]


def test_without_an_assignee_there_is_no_notification(host_clock, agent, session):
    snooze(agent, session)
    host_clock.forward(hours=2)
    assert snoozing.reopen_due() == 1
    assert not Notification.select().where(Notification.type == "chat_reopened").exists()


def test_a_clock_that_is_set_back_doubles_the_remaining_time_at_most(host_clock, agent, session):
    snooze(agent, session)
    host_clock.forward(minutes=59)
    assert snoozing.reopen_due() == 0
    host_clock.back(days=300)
    host_clock.monotonic += 2 * clock.MINUTE * 1_000_000
    assert snoozing.reopen_due() == 1


@pytest.mark.parametrize("status", sorted({*STATUSES} - {"snoozed"}))
def test_every_other_status_ends_the_snooze(host_clock, agent, session, status):
    snooze(agent, session)
    agent.put(f"/chats/{session.id}/status", {"status": status})
    assert state(session) == (status, None)
    host_clock.forward(hours=2)
    assert (snoozing.reopen_due(), state(session)) == (0, (status, None))


def test_the_same_status_does_not_end_the_snooze(host_clock, agent, session):
    snooze(agent, session)
    agent.put(f"/chats/{session.id}/status", {"status": "snoozed"})
    assert state(session) == ("snoozed", UNTIL)


def test_a_snooze_without_a_time_does_not_end(host_clock, agent, session):
    agent.put(f"/chats/{session.id}/status", {"status": "snoozed"})
    host_clock.forward(days=300)
    assert (snoozing.reopen_due(), state(session)) == (0, ("snoozed", None))


def test_a_message_of_the_customer_reopens_a_chat(host_clock, alice, agent, assigned):
    snooze(agent, assigned)
    send(agent, assigned, "Tomorrow")
    assert state(assigned) == ("snoozed", UNTIL)
    send(alice, assigned, "Now, please")
    assert state(assigned) == ("open", None)
    assert "Now, please" in [row["body"] for row in agent.get("/notifications").data]
    host_clock.forward(hours=2)
    assert (snoozing.reopen_due(), reopened(agent)) == (0, [])


def test_a_time_of_another_status_is_removed_without_a_notification(host_clock, agent, assigned):
    ChatSession.update(status="resolved", snoozed_until=clock.timestamp()).execute()
    assert (snoozing.reopen_due(), state(assigned)) == (0, ("resolved", None))
    assert reopened(agent) == []


def test_of_several_processes_one_reopens_a_chat(host_clock, agent, assigned):
    snooze(agent, assigned)
    host_clock.forward(hours=2)
    assert sorted(at_once(4, lambda _: snoozing.reopen_due())) == [0, 0, 0, 1]
    assert reopened(agent) == [assigned.id]


def test_due_chats_are_a_range_of_an_index(agent, session):
    with statements() as seen:
        snoozing.reopen_due()
    ((sql, values),) = seen
    plan = query_plan(sql, values)
    assert (plan.ranges, plan.scans, plan.sorts) == (["chat_session_snoozed"], [], False), plan


def test_the_timer_continues_after_an_error(monkeypatch, caplog):
    stop, calls = threading.Event(), []

    def reopen_due():
        calls.append(None)
        if len(calls) == 1:
            raise RuntimeError("broken")
        stop.set()
        return 0

    monkeypatch.setattr(timer, "INTERVAL", 0.001)
    monkeypatch.setattr(timer.db, "reconnect_after", lambda error: None)
    monkeypatch.setattr(timer.db, "is_unavailable", lambda error: False)
    timer.run(stop, (reopen_due, lambda: 0))
    assert len(calls) == 2
    (message,) = [record.message for record in caplog.records]
    assert message.endswith("reopen_due failed")


@pytest.mark.slow
def test_a_running_service_reopens_a_chat_without_a_request(tmp_path):
    due = clock.timestamp(clock.now() + 2 * clock.SECOND)
    snoozed = {"id": SESSION, "app_id": APP, "user_id": ALICE, "status": "snoozed", "snoozed_until": due}
    data = tmp_path / "data"
    fill(data, [*chat()[:2], {"chat_session": snoozed}])
    with serving(data, "--workers", "2") as server:
        token = server.log_in()
        path, deadline = f"/api/v1/chats/{SESSION}", time.monotonic() + 30
        while (found := server.call("GET", path, None, token).data)["status"] == "snoozed":
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert found["status"] == "open"
