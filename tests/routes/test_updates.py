"""Updates: which changes are reported to which user, that each is reported once, and how long requests wait."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from service import clock, db, updates
from service.auth import tokens
from service.models import ChatSession, LoginSession, Message
from tests.support.login_endings import ENDINGS
from tests.support.observe import at_once
from tests.support.server_process import SESSION, chat, fill, serving

pytestmark = pytest.mark.database


def get_updates(client, after="", **query):
    return client.get(
        "/updates?" + "&".join(f"{name}={value}" for name, value in {"after": after, **query}.items())
    ).data


def changes_since(client, after):
    """Return the changed chat sessions, whether notifications changed, and the next position."""
    found = get_updates(client, after)
    return found["chats"], found["notifications"], found["after"]


def current_position(client):
    found = get_updates(client)
    assert (found["chats"], found["notifications"]) == ([], False)
    return found["after"]


def test_first_response_has_only_the_position(alice, session, say):
    say("Hello")
    after = current_position(alice)
    assert changes_since(alice, after)[:2] == ([], False)


CHANGES = {
    "a message": lambda alice, agent, session, message: agent.post(f"{session}/messages", {"content": {"text": "Hi"}}),
    "an edit": lambda alice, agent, session, message: alice.patch(message, {"content": {"text": "Oh"}}),
    "a pin": lambda alice, agent, session, message: alice.post(f"{message}/pin"),
    "a deletion": lambda alice, agent, session, message: alice.delete(message),
    "a status": lambda alice, agent, session, message: alice.post(f"{session}/end"),
    "an archived session": lambda alice, agent, session, message: alice.delete(session),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("reader", ["alice", "agent", "admin"])
def test_every_change_is_reported_once_to_all_users_with_access(request, reader, change, alice, agent, session):
    client = request.getfixturevalue(reader)
    path = f"/chats/{session.id}"
    sent = alice.post(f"{path}/messages", {"content": {"text": "Hello"}}).data
    after = current_position(client)
    assert CHANGES[change](alice, agent, path, f"{path}/messages/{sent['id']}").status in (200, 201)
    chats, _, after = changes_since(client, after)
    assert chats == [session.id]
    assert changes_since(client, after)[:2] == ([], False)


def test_changes_of_notes_are_reported_to_staff_only(host_clock, alice, agent, session):
    """An empty response would reveal to customers when staff write about them."""
    path, before = f"/chats/{session.id}/messages", current_position(alice)
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
        after = current_position(agent)
        change()
        assert changes_since(agent, after)[0] == [session.id]
        assert get_updates(alice, before)["after"] == before
        assert current_position(alice) == before


def test_position_does_not_depend_on_other_users(host_clock, alice, bob, session, shop):
    before = current_position(alice)
    bob.post("/chats", {"app_id": shop.id})
    assert current_position(alice) == before


def test_unpinning_is_reported_and_repeated_pinning_is_not(alice, session, say):
    path = f"/chats/{session.id}/messages/{say('Hello').id}/pin"
    alice.post(path)
    after = current_position(alice)
    alice.post(path)
    assert changes_since(alice, after)[0] == []
    alice.delete(path)
    assert changes_since(alice, after)[0] == [session.id]


def test_changes_are_not_reported_without_access(alice, bob, other_agent, session):
    positions = [(client, current_position(client)) for client in (bob, other_agent)]
    alice.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello"}})
    for client, after in positions:
        assert changes_since(client, after)[:2] == ([], False)


def test_new_session_is_reported(alice, agent, shop):
    after, other = current_position(alice), current_position(agent)
    created = alice.post("/chats", {"app_id": shop.id}).data
    assert changes_since(alice, after)[0] == changes_since(agent, other)[0] == [created["id"]]


def test_added_removed_and_read_notifications_are_reported(alice, agent, session):
    after = current_position(alice)
    agent.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello"}})
    _, has_notifications, after = changes_since(alice, after)
    assert has_notifications
    notification = alice.get("/notifications").data[0]["id"]
    for change in (
        lambda: alice.put(f"/notifications/{notification}/read"),
        lambda: alice.delete(f"/notifications/{notification}/read"),
        lambda: alice.patch("/notifications/read-all"),
        lambda: alice.delete(f"/notifications/{notification}"),
    ):
        assert change().status == 200
        _, has_notifications, after = changes_since(alice, after)
        assert has_notifications
    alice.patch("/notifications/read-all")
    assert changes_since(alice, after)[:2] == ([], False)


def test_session_is_reported_again_after_another_change(alice, session, say):
    after = current_position(alice)
    for number in range(3):
        alice.post(f"/chats/{session.id}/messages", {"content": {"text": str(number)}})
        chats, _, after = changes_since(alice, after)
        assert chats == [session.id]


def test_old_position_stays_valid(alice, session):
    old = current_position(alice)
    alice.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello"}})
    assert changes_since(alice, old)[0] == changes_since(alice, old)[0] == [session.id]


def test_many_changes_are_reported_once_in_several_responses(alice, shop):
    after = current_position(alice)
    created = [ChatSession.create(app_id=shop.id, user_id=alice.user.id).id for _ in range(2 * updates.MAX_CHATS + 5)]
    found = []
    while True:
        chats, _, after = changes_since(alice, after)
        if not chats:
            break
        assert len(chats) <= updates.MAX_CHATS
        found += chats
    assert found == created


def test_changes_are_reported_after_the_clock_is_set_back(host_clock, alice, session):
    alice.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello"}})
    after = current_position(alice)
    from service import clock

    host_clock.back(hours=1)
    clock.reset()
    alice.post(f"/chats/{session.id}/pin", {})
    alice.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello again"}})
    assert changes_since(alice, after)[0] == [session.id]


def test_late_commit_is_reported(alice, shop, session):
    """Its revision is earlier than one that was reported already."""
    other = ChatSession.create(app_id=shop.id, user_id=alice.user.id)
    after = current_position(alice)
    ChatSession.mark_changed(other.id)
    newest = ChatSession.latest_revision()
    chats, _, after = changes_since(alice, after)
    assert chats == [other.id]
    late = dict.fromkeys(ChatSession.revision_columns, newest - updates.MARGIN + 1)
    ChatSession.update(late).where(ChatSession.id == session.id).execute()
    assert changes_since(alice, after)[0] == [session.id]


@pytest.mark.parametrize("after", ["x", "cxa_x", "a.b.c"])
def test_invalid_position_is_400(alice, after):
    assert alice.get(f"/updates?after={after}").error == (400, "invalid_cursor")


def test_position_of_another_user_is_400(alice, bob, session):
    assert bob.get(f"/updates?after={current_position(alice)}").error == (400, "invalid_cursor")


@pytest.mark.parametrize(("wait", "status"), [("0", 200), ("55", 200), ("56", 200), ("-1", 200), ("soon", 400)])
def test_wait_has_bounds(alice, wait, status):
    assert alice.get(f"/updates?wait={wait}").status == status


def test_purge_is_reported(alice, session, say):
    message = say("Hello")
    after = current_position(alice)
    Message.purge(Message.id == message.id)
    assert changes_since(alice, after)[0] == [session.id]


def test_concurrent_changes_are_all_reported(alice, agent, session, shop):
    sessions = [ChatSession.create(app_id=shop.id, user_id=alice.user.id).id for _ in range(8)]
    after = current_position(alice)
    found, done = [], threading.Event()

    def read() -> None:
        """Read while there are writers, however long they take, and then until there is nothing more to read."""
        nonlocal after
        reads_left = 2000  # after the last write
        try:
            while reads_left:
                is_done = done.is_set()
                reads_left -= is_done
                chats, _, after = changes_since(alice, after)
                found.extend(chats)
                if is_done and not chats:
                    return
        finally:
            db.close_database()

    reader = threading.Thread(target=read)
    reader.start()
    statuses = at_once(
        8,
        lambda n: [
            agent.post(f"/chats/{sessions[n]}/messages", {"content": {"text": str(k)}}).status for k in range(5)
        ],
    )
    done.set()
    reader.join()
    assert statuses == [[201] * 5] * 8
    assert set(found) == set(sessions)


class TestWatch:
    """`updates.watch`, which the long poll uses."""

    def test_returns_the_topics_of_a_change(self, alice, agent, session, shop):
        with updates.watch() as changed_topics:
            changed_topics()
            assert changed_topics() == set()
            # In another thread: a connection does not detect its own writes.
            at_once(1, lambda _: agent.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello"}}))
            found = changed_topics()
            assert {f"user {alice.user.id}", f"app {shop.id}", updates.ADMIN_TOPIC} <= found

    def test_topics_are_what_a_caller_may_read(self, alice, agent, admin, shop):
        from service.auth.tokens import authenticate

        callers = {client.user.email: authenticate(f"Bearer {client.token}") for client in (alice, agent, admin)}
        logins = {email: f"login {caller.session_id}" for email, caller in callers.items()}
        for email, expected in (
            ("alice@example.com", {f"user {alice.user.id}"}),
            ("agnes@example.com", {f"user {agent.user.id}", f"app {shop.id}"}),
            ("ada@example.com", {f"user {admin.user.id}", updates.ADMIN_TOPIC}),
        ):
            assert updates.topics(callers[email]) == expected | {logins[email]}

    def test_returns_each_ended_login(self, alice, settings):
        with db.write():
            old, *others = (tokens.create_token_session(alice.user.id, settings) for _ in range(3))
        old.end()
        with updates.watch() as changed_topics:
            changed_topics()
            at_once(1, lambda _: LoginSession.end_all(alice.user.id, except_id=others[0].id))
            assert f"login {others[1].id}" in changed_topics()
            at_once(1, lambda _: LoginSession.end_all(alice.user.id))
            found = changed_topics()
            assert f"login {others[0].id}" in found and f"login {others[1].id}" not in found


@pytest.mark.slow
class TestServer:
    @pytest.fixture
    def server(self, tmp_path):
        data = tmp_path / "data"
        fill(data, chat())
        with serving(data, "--threads", "2", "--workers", "2") as served:
            yield served

    def test_change_in_any_worker_resumes_the_request(self, server):
        token = server.log_in()
        after = server.call("GET", "/api/v1/updates", token=token).data["after"]
        with ThreadPoolExecutor(1) as pool:
            for number in range(5):
                waiting = pool.submit(server.call, "GET", f"/api/v1/updates?after={after}&wait=55", token=token)
                time.sleep(0.3)
                assert not waiting.done()
                body = {"content": {"text": str(number)}}
                assert server.call("POST", f"/api/v1/chats/{SESSION}/messages", body, token).status == 201
                found = waiting.result().data  # the client waits for 30 seconds at most, and the request for 55
                assert found["chats"] == [SESSION]
                after = found["after"]

    def test_reminder_resumes_the_request_at_its_time(self, server):
        token = server.log_in()
        due = clock.timestamp(clock.now() + clock.SECOND)
        event = {"title": "Lunch", "starts_at": clock.timestamp(clock.now() + clock.HOUR), "reminder_at": due}
        assert server.call("POST", "/api/v1/events", event, token).status == 201
        after = server.call("GET", "/api/v1/updates", token=token).data["after"]
        found = server.call("GET", f"/api/v1/updates?after={after}&wait=55", token=token).data
        assert found["notifications"] is True  # the client waits for 30 seconds at most

    def test_suspended_requests_do_not_block_other_requests(self, server):
        token = server.log_in()
        after = server.call("GET", "/api/v1/updates", token=token).data["after"]
        with ThreadPoolExecutor(40) as pool:
            path = f"/api/v1/updates?after={after}&wait=25"
            waiting = [pool.submit(server.call, "GET", path, token=token) for _ in range(40)]
            time.sleep(0.5)
            assert sum(future.done() for future in waiting) <= 20  # those over the limit per caller
            for _ in range(20):
                assert server.call("GET", f"/api/v1/chats/{SESSION}/messages", token=token).status == 200
            assert not all(future.done() for future in waiting)
            body = {"content": {"text": "Another"}}
            assert server.call("POST", f"/api/v1/chats/{SESSION}/messages", body, token).status == 201
            assert [future.result().status for future in waiting] == [200] * 40

    @pytest.mark.parametrize("end", ENDINGS)
    def test_end_of_the_login_ends_the_wait(self, server, tmp_path, end):
        """At once: the client waits for 30 seconds at most, and the request for 55."""
        token = server.log_in()
        after = server.call("GET", "/api/v1/updates", token=token).data["after"]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(server.call, "GET", f"/api/v1/updates?after={after}&wait=55", token=token)
            time.sleep(0.5)
            assert not waiting.done()
            ENDINGS[end](server, tmp_path / "data", token)
            assert waiting.result().error == (401, "invalid_token")
