"""Waiting for news: what is told to whom, that nothing is missed or told twice, and how long it takes."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from service import db, updates
from service.auth import tokens
from service.models import ChatSession, LoginSession, Message
from tests.conftest import PASSWORD
from tests.serving import SESSION, chat, command, fill, serving
from tests.watching import at_once


def ask(client, after="", **query):
    return client.get(
        "/updates?" + "&".join(f"{name}={value}" for name, value in {"after": after, **query}.items())
    ).data


def told(client, after):
    """What is new since a position, and the next one."""
    found = ask(client, after)
    return found["chats"], found["notifications"], found["after"]


def start(client):
    found = ask(client)
    assert (found["chats"], found["notifications"]) == ([], False)
    return found["after"]


def test_the_first_answer_only_says_where_to_begin(alice, session, say):
    say("Hello")
    after = start(alice)
    assert told(alice, after)[:2] == ([], False)


CHANGES = {
    "a message": lambda alice, agent, session, message: agent.post(f"{session}/messages", {"content": {"text": "Hi"}}),
    "other words": lambda alice, agent, session, message: alice.patch(message, {"content": {"text": "Oh"}}),
    "a pin": lambda alice, agent, session, message: alice.post(f"{message}/pin"),
    "a deletion": lambda alice, agent, session, message: alice.delete(message),
    "a status": lambda alice, agent, session, message: alice.post(f"{session}/end"),
    "an archived session": lambda alice, agent, session, message: alice.delete(session),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("reader", ["alice", "agent", "admin"])
def test_every_change_in_a_session_is_told_once_to_all_who_may_read_it(request, reader, change, alice, agent, session):
    client = request.getfixturevalue(reader)
    path = f"/chats/{session.id}"
    sent = alice.post(f"{path}/messages", {"content": {"text": "Hello"}}).data
    after = start(client)
    assert CHANGES[change](alice, agent, path, f"{path}/messages/{sent['id']}").status in (200, 201)
    chats, _, after = told(client, after)
    assert chats == [session.id]
    assert told(client, after)[:2] == ([], False)


def test_what_happens_to_notes_is_told_to_the_staff_only(host_clock, alice, agent, session):
    """Customers would learn from an answer without reason when somebody writes about them."""
    path, before = f"/chats/{session.id}/messages", start(alice)
    new = {"content": "Hi", "is_private": True}
    note = f"{path}/{agent.post(path, new).data['id']}"
    purged = agent.post(path, new).data["id"]
    for change in (
        lambda: agent.post(path, new),
        lambda: agent.patch(note, {"content": "Oh"}),
        lambda: agent.post(f"{note}/pin"),
        lambda: agent.delete(f"{note}/pin"),
        lambda: agent.delete(note),
        lambda: Message.purge(Message.id == purged),
    ):
        after = start(agent)
        change()
        assert told(agent, after)[0] == [session.id]
        assert ask(alice, before)["after"] == before
        assert start(alice) == before


def test_a_position_tells_nothing_of_others(host_clock, alice, bob, session, shop):
    before = start(alice)
    bob.post("/chats", {"app_id": shop.id})
    assert start(alice) == before


def test_what_takes_a_pin_off_is_told_and_doing_it_again_is_not(alice, session, say):
    path = f"/chats/{session.id}/messages/{say('Hello').id}/pin"
    alice.post(path)
    after = start(alice)
    alice.post(path)
    assert told(alice, after)[0] == []
    alice.delete(path)
    assert told(alice, after)[0] == [session.id]


def test_nobody_is_told_of_what_is_not_theirs(alice, bob, other_agent, session):
    positions = [(client, start(client)) for client in (bob, other_agent)]
    alice.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello"}})
    for client, after in positions:
        assert told(client, after)[:2] == ([], False)


def test_a_new_session_is_told(alice, agent, shop):
    after, other = start(alice), start(agent)
    made = alice.post("/chats", {"app_id": shop.id}).data
    assert told(alice, after)[0] == told(agent, other)[0] == [made["id"]]


def test_notifications_that_come_go_or_are_read_are_told(alice, agent, session):
    after = start(alice)
    agent.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello"}})
    _, notified, after = told(alice, after)
    assert notified
    notification = alice.get("/notifications").data[0]["id"]
    for change in (
        lambda: alice.put(f"/notifications/{notification}/read"),
        lambda: alice.delete(f"/notifications/{notification}/read"),
        lambda: alice.patch("/notifications/read-all"),
        lambda: alice.delete(f"/notifications/{notification}"),
    ):
        assert change().status == 200
        _, notified, after = told(alice, after)
        assert notified
    alice.patch("/notifications/read-all")
    assert told(alice, after)[:2] == ([], False)


def test_a_session_is_told_again_when_it_changes_again(alice, session, say):
    after = start(alice)
    for number in range(3):
        alice.post(f"/chats/{session.id}/messages", {"content": {"text": str(number)}})
        chats, _, after = told(alice, after)
        assert chats == [session.id]


def test_an_old_position_is_good_again(alice, session):
    old = start(alice)
    alice.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello"}})
    assert told(alice, old)[0] == told(alice, old)[0] == [session.id]


def test_many_changes_come_in_several_answers_none_twice_none_missing(alice, shop):
    after = start(alice)
    made = [ChatSession.create(app_id=shop.id, user_id=alice.user.id).id for _ in range(2 * updates.MOST + 5)]
    found = []
    while True:
        chats, _, after = told(alice, after)
        if not chats:
            break
        assert len(chats) <= updates.MOST
        found += chats
    assert found == made


def test_a_clock_set_back_hides_nothing(host_clock, alice, session):
    alice.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello"}})
    after = start(alice)
    from service import clock

    host_clock.back(hours=1)
    clock.forget()
    alice.post(f"/chats/{session.id}/pin", {})
    alice.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello again"}})
    assert told(alice, after)[0] == [session.id]


def test_a_writer_that_finishes_late_is_not_missed(alice, shop, session):
    """Its moment is earlier than one that was told already."""
    other = ChatSession.create(app_id=shop.id, user_id=alice.user.id)
    after = start(alice)
    ChatSession.touch(other.id)
    newest = ChatSession.newest()
    chats, _, after = told(alice, after)
    assert chats == [other.id]
    late = dict.fromkeys(ChatSession.moments, newest - updates.MARGIN + 1)
    ChatSession.update(late).where(ChatSession.id == session.id).execute()
    assert told(alice, after)[0] == [session.id]


@pytest.mark.parametrize("after", ["x", "cxa_x", "a.b.c"])
def test_a_position_of_nobodys_is_refused(alice, after):
    assert alice.get(f"/updates?after={after}").error == (400, "invalid_cursor")


def test_a_position_of_somebody_else_is_refused(alice, bob, session):
    assert bob.get(f"/updates?after={start(alice)}").error == (400, "invalid_cursor")


@pytest.mark.parametrize(("wait", "status"), [("0", 200), ("55", 200), ("56", 200), ("-1", 200), ("soon", 400)])
def test_a_wait_has_bounds(alice, wait, status):
    assert alice.get(f"/updates?wait={wait}").status == status


def test_an_import_and_a_purge_are_told(alice, session, say):
    message = say("Hello")
    after = start(alice)
    Message.purge(Message.id == message.id)
    assert told(alice, after)[0] == [session.id]


def test_changes_at_the_same_time_are_all_told(alice, agent, session, shop):
    sessions = [ChatSession.create(app_id=shop.id, user_id=alice.user.id).id for _ in range(8)]
    after = start(alice)
    found, done = [], threading.Event()

    def read() -> None:
        nonlocal after
        try:
            for _ in range(2000):
                last = done.is_set()
                chats, _, after = told(alice, after)
                found.extend(chats)
                if last and not chats:
                    return
        finally:
            db.close_database()

    reader = threading.Thread(target=read)
    reader.start()
    answers = at_once(
        8,
        lambda n: [
            agent.post(f"/chats/{sessions[n]}/messages", {"content": {"text": str(k)}}).status for k in range(5)
        ],
    )
    done.set()
    reader.join()
    assert answers == [[201] * 5] * 8
    assert set(found) == set(sessions)


class TestNews:
    """What the waiting room looks at."""

    def test_names_everybody_whom_a_change_concerns(self, alice, agent, session, shop):
        with updates.news() as look:
            look()
            assert look() == set()
            # In another thread, since a connection does not notice what it writes itself.
            at_once(1, lambda _: agent.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello"}}))
            found = look()
            assert {f"user {alice.user.id}", f"app {shop.id}", updates.ANYBODY} <= found

    def test_topics_are_what_a_caller_may_read(self, alice, agent, admin, shop):
        from service.auth.tokens import authenticate

        callers = {client.user.email: authenticate(f"Bearer {client.token}") for client in (alice, agent, admin)}
        logins = {email: f"login {caller.session_id}" for email, caller in callers.items()}
        for email, expected in (
            ("alice@example.com", {f"user {alice.user.id}"}),
            ("agnes@example.com", {f"user {agent.user.id}", f"app {shop.id}"}),
            ("ada@example.com", {f"user {admin.user.id}", updates.ANYBODY}),
        ):
            assert updates.topics(callers[email]) == expected | {logins[email]}

    def test_names_each_login_that_ended(self, alice, settings):
        with db.write():
            old, *others = (tokens.open_session(alice.user.id, settings) for _ in range(3))
        old.end()
        with updates.news() as look:
            look()
            at_once(1, lambda _: LoginSession.end_all(alice.user.id, but=others[0].id))
            assert f"login {others[1].id}" in look()
            at_once(1, lambda _: LoginSession.end_all(alice.user.id))
            found = look()
            assert f"login {others[0].id}" in found and f"login {others[1].id}" not in found


def end_elsewhere(running, data, token):
    other = running.log_in()
    [own] = [row for row in running.call("GET", "/api/v1/auth/sessions", token=token).data if row["is_current"]]
    assert running.call("DELETE", f"/api/v1/auth/sessions/{own['id']}", token=other).status == 200


def change_the_password(running, data, token):
    body = {"current_password": PASSWORD, "new_password": "another one"}
    assert running.call("POST", "/api/v1/auth/password", body, running.log_in()).status == 200


def disable(running, data, token):
    assert command("user", "disable", "alice@example.com", "--data", data).returncode == 0


ENDINGS = {
    "logout": lambda running, data, token: running.call("POST", "/api/v1/auth/logout", {}, token),
    "another session": end_elsewhere,
    "another password": change_the_password,
    "an operator": disable,
}


@pytest.mark.slow
class TestAServer:
    @pytest.fixture
    def running(self, tmp_path):
        data = tmp_path / "data"
        fill(data, chat())
        with serving(data, "--threads", "2", "--workers", "2") as served:
            yield served

    def test_answers_as_soon_as_something_happens_in_whichever_worker(self, running):
        token = running.log_in()
        after = running.call("GET", "/api/v1/updates", token=token).data["after"]
        with ThreadPoolExecutor(1) as pool:
            for number in range(5):
                waiting = pool.submit(running.call, "GET", f"/api/v1/updates?after={after}&wait=55", token=token)
                time.sleep(0.3)
                assert not waiting.done()
                body = {"content": {"text": str(number)}}
                assert running.call("POST", f"/api/v1/chats/{SESSION}/messages", body, token).status == 201
                found = waiting.result().data  # a client here waits for 30 seconds at most, and the request for 55
                assert found["chats"] == [SESSION]
                after = found["after"]

    def test_many_who_wait_keep_nobody_from_being_answered(self, running):
        token = running.log_in()
        after = running.call("GET", "/api/v1/updates", token=token).data["after"]
        with ThreadPoolExecutor(40) as pool:
            path = f"/api/v1/updates?after={after}&wait=25"
            waiting = [pool.submit(running.call, "GET", path, token=token) for _ in range(40)]
            time.sleep(0.5)
            assert sum(one.done() for one in waiting) <= 20  # those that came when so many of the same caller waited
            for _ in range(20):
                assert running.call("GET", f"/api/v1/chats/{SESSION}/messages", token=token).status == 200
            assert not all(one.done() for one in waiting)
            body = {"content": {"text": "Something new"}}
            assert running.call("POST", f"/api/v1/chats/{SESSION}/messages", body, token).status == 201
            assert [one.result().status for one in waiting] == [200] * 40

    @pytest.mark.parametrize("end", ENDINGS)
    def test_ends_a_wait_when_the_login_ends(self, running, tmp_path, end):
        """At once: a client here waits for 30 seconds at most, and the request would for 55."""
        token = running.log_in()
        after = running.call("GET", "/api/v1/updates", token=token).data["after"]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(running.call, "GET", f"/api/v1/updates?after={after}&wait=55", token=token)
            time.sleep(0.5)
            assert not waiting.done()
            ENDINGS[end](running, tmp_path / "data", token)
            assert waiting.result().error == (401, "invalid_token")
