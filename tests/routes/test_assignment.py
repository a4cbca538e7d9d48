"""Assignment: who may assign whom, what the assignee and others see, and when the bot does not reply."""

import dataclasses
import json
import threading

import pytest

from service import updates
from service.assistant.client import Assistant, AssistantError, Completion
from service.assistant.metering import MeteredAssistant
from service.assistant.reply_worker import Worker
from service.models import CannedAnswer, ChatSession, PendingReply
from service.models.assistant_usage import UsageLimits
from service.models.users import User
from service.operate import import_export
from tests.support.bot_replies import OPENING, answers
from tests.support.messages import chat_notifications, send
from tests.support.observe import at_once, nothing_changes
from tests.support.server_process import ALICE, APP, SESSION, chat, command, fill

pytestmark = pytest.mark.database

QUESTION = "When are you open?"


@pytest.fixture(autouse=True)
def answer(bot):
    return CannedAnswer.create(bot_id=bot.id, language="en", question=QUESTION, answer=OPENING)


@pytest.fixture
def colleague(person, shop):
    """Another agent of the shop."""
    return person("carla", role="agent", app_id=shop.id, display_name="Carla")


def assign(client, session, user_id, **members):
    return client.put(f"/chats/{session.id}/assignee", {"user_id": user_id, **members})


def assignee(session):
    return ChatSession.get_by_id(session.id).assignee_id


def assigned_to(client):
    """Return the sessions that notifications announce as assigned to a user."""
    rows = client.get("/notifications").data
    return [row["session_id"] for row in rows if row["type"] == "chat_assigned"]


# Who may assign whom


def test_an_agent_takes_a_chat_over(agent, session):
    found = assign(agent, session, agent.user.id)
    assert (found.status, found.data["assignee_id"], found.data["assignee_name"]) == (200, agent.user.id, "Agnes")
    assert agent.get(f"/chats/{session.id}").data == found.data
    assert assigned_to(agent) == []


def test_staff_assigns_a_colleague_who_is_notified(agent, admin, colleague, session):
    for number, caller in enumerate((agent, admin), 1):
        assert assign(caller, session, colleague.user.id).data["assignee_name"] == "Carla"
        assert assigned_to(colleague) == [session.id] * number
        assign(caller, session, None)


def test_an_admin_can_be_assigned(agent, admin, session):
    assert assign(agent, session, admin.user.id).data["assignee_id"] == admin.user.id
    assert assigned_to(admin) == [session.id]


def test_assigning_the_assignee_again_changes_nothing(agent, colleague, session):
    assign(agent, session, colleague.user.id)
    with nothing_changes():
        assert assign(agent, session, colleague.user.id).status == 200


@pytest.mark.parametrize("members", [{}, {"if_unassigned": True}])
def test_only_enabled_staff_of_the_app_can_be_assigned(agent, alice, other_agent, colleague, session, members):
    colleague.user.disable()
    unknown = "00000000-0000-4000-8000-000000000000"
    with nothing_changes():
        for id in (alice.user.id, other_agent.user.id, colleague.user.id, unknown):
            assert assign(agent, session, id, **members).error == (404, "assignee_not_found")


def test_only_staff_assigns(alice, bob, other_agent, agent, session):
    with nothing_changes():
        for client in (alice, bob, other_agent):
            for user_id in (client.user.id, agent.user.id, None):
                assert assign(client, session, user_id).error == (403, "forbidden")


@pytest.mark.parametrize("body", [{}, {"user_id": ""}, {"user_id": "x"}, {"user_id": None, "if_unassigned": 1}])
def test_a_malformed_body_is_400(agent, session, body):
    assert agent.put(f"/chats/{session.id}/assignee", body).error == (400, "invalid_body")


# Concurrent assignments


def test_the_last_assignment_wins(agent, colleague, session):
    assign(agent, session, agent.user.id)
    assert assign(colleague, session, colleague.user.id).data["assignee_id"] == colleague.user.id


def test_a_conditional_assignment_fails_if_another_user_is_assigned(agent, colleague, session):
    assert assign(agent, session, agent.user.id, if_unassigned=True).status == 200
    with nothing_changes():
        assert assign(agent, session, agent.user.id, if_unassigned=True).status == 200
        assert assign(colleague, session, colleague.user.id, if_unassigned=True).error == (400, "already_assigned")
        assert assign(colleague, session, None, if_unassigned=True).error == (400, "already_assigned")


def test_of_concurrent_conditional_assignments_one_succeeds(agent, colleague, admin, session):
    clients = (agent, colleague, admin)

    def take_over(number):
        client = clients[number % 3]
        return client.user.id, assign(client, session, client.user.id, if_unassigned=True).status

    found = at_once(6, take_over)
    assert {id for id, status in found if status == 200} == {assignee(session)}
    assert sorted(status for _, status in found) == [200, 200, 400, 400, 400, 400]


# What is visible


def test_customers_do_not_see_the_assignee(alice, agent, session):
    before = alice.get("/chats").data
    assign(agent, session, agent.user.id)
    assert alice.get("/chats").data == before
    assert alice.get(f"/chats/{session.id}").data == before[0]
    assert alice.get("/notifications").data == []
    for value in ("none", "me", agent.user.id):
        assert alice.get(f"/chats?assignee={value}").data == []


def test_an_agent_does_not_see_the_assignee_of_own_chats_with_other_apps(agent, admin, other_shop):
    own = ChatSession.create(app_id=other_shop.id, user_id=agent.user.id)
    assign(admin, own, admin.user.id)
    (shown,) = agent.get("/chats").data
    assert (shown["id"], shown["assignee_id"], shown["assignee_name"]) == (own.id, None, "")
    assert agent.get(f"/chats?assignee={admin.user.id}").data == agent.get("/chats?assignee=none").data == []


def test_an_assignment_is_an_update_for_staff_only(alice, agent, colleague, session):
    after = {client: client.get("/updates").data["after"] for client in (alice, agent, colleague)}
    assign(agent, session, colleague.user.id)
    found = {client: client.get(f"/updates?wait=0&after={position}").data for client, position in after.items()}
    assert [found[client]["chats"] for client in (alice, agent, colleague)] == [[], [session.id], [session.id]]
    assert [found[client]["notifications"] for client in (alice, agent, colleague)] == [False, False, True]


def test_an_assignment_wakes_the_long_polls_of_staff(agent, session, shop):
    with updates.watch() as changed_topics:
        changed_topics()
        at_once(1, lambda _: assign(agent, session, agent.user.id))
        assert f"app {shop.id}" in changed_topics()


def test_the_assignee_is_notified_of_messages(alice, agent, session):
    send(alice, session, "Hello")
    assign(agent, session, agent.user.id)
    send(alice, session, "Are you there?")
    assert chat_notifications(agent) == [("Alice", "Are you there?")]


# The bot


def test_the_bot_does_not_reply_until_the_chat_is_given_back(host_clock, alice, agent, session):
    assign(agent, session, agent.user.id)
    for minutes in (0, 31):
        host_clock.forward(minutes=minutes)
        send(alice, session, QUESTION)
    assert answers(alice, session) == []
    assert assign(agent, session, None).data["assignee_id"] is None
    send(alice, session, QUESTION)
    assert answers(alice, session) == [OPENING]


def test_a_message_of_staff_does_not_silence_the_bot_after_the_chat_was_given_back(host_clock, alice, agent, session):
    assign(agent, session, agent.user.id)
    send(agent, session, "Hello")
    host_clock.forward(seconds=1)
    assign(agent, session, None)
    send(alice, session, QUESTION)
    assert answers(alice, session) == [OPENING]
    host_clock.forward(seconds=1)
    send(agent, session, "Hello again")
    send(alice, session, QUESTION)
    assert answers(alice, session) == [OPENING]


def test_a_chat_stays_assigned_when_its_status_changes(alice, agent, session):
    assign(agent, session, agent.user.id)
    agent.post(f"/chats/{session.id}/end")
    send(alice, session, QUESTION)
    assert (ChatSession.get_by_id(session.id).status, assignee(session)) == ("open", agent.user.id)
    assert answers(alice, session) == []


class FakeAssistant(Assistant):
    """An assistant that runs an action while a request is in progress."""

    def __init__(self, during, error=None):
        self.during, self.error = during, error

    def complete(self, messages, **options):
        self.during()
        if self.error:
            raise self.error
        return Completion("I am the assistant.")


def metered(assistant):
    return MeteredAssistant(assistant, UsageLimits())


class TestRepliesOfTheAssistant:
    @pytest.fixture
    def settings(self, settings):
        return dataclasses.replace(settings, assistant_url="http://127.0.0.1:9/v1")

    @pytest.fixture(autouse=True)
    def answer(self, alice, session):
        send(alice, session, QUESTION)
        assert PendingReply.select().count() == 1

    @pytest.mark.parametrize("back", [False, True])
    def test_that_are_pending_are_not_sent(self, alice, agent, session, back):
        assign(agent, session, agent.user.id)
        if back:
            assign(agent, session, None)
        assert not Worker(metered(FakeAssistant(pytest.fail)), threading.Event()).run_once()
        assert answers(alice, session) == []

    @pytest.mark.parametrize("error", [None, AssistantError("no", is_final=True), AssistantError("no")])
    @pytest.mark.parametrize("back", [False, True])
    def test_that_are_in_progress_are_not_sent(self, alice, agent, session, error, back):
        def take_over():
            assign(agent, session, agent.user.id)
            if back:
                assign(agent, session, None)

        assert Worker(metered(FakeAssistant(take_over, error)), threading.Event()).run_once()
        assert (answers(alice, session), PendingReply.select().count()) == ([], 0)

    def test_are_not_requested_while_the_chat_is_assigned(self, alice, agent, session):
        assign(agent, session, agent.user.id)
        send(alice, session, QUESTION)
        assert PendingReply.select().count() == 0
        assign(agent, session, None)
        send(alice, session, QUESTION)
        assert Worker(metered(FakeAssistant(lambda: None)), threading.Event()).run_once()
        assert answers(alice, session) == ["I am the assistant."]


# Users who leave the staff


def import_user(tmp_path, user, **columns):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"user": {"id": user.id, "email": user.email, **columns}}))
    assert import_export.import_files([file]) == []


def test_chats_of_a_disabled_agent_are_given_back(agent, admin, session):
    assign(agent, session, agent.user.id)
    after = admin.get("/updates").data["after"]
    agent.user.disable()
    assert assignee(session) is None
    assert ChatSession.get_by_id(session.id).given_back_at
    assert admin.get(f"/updates?wait=0&after={after}").data["chats"] == [session.id]


@pytest.mark.slow
def test_the_command_to_disable_an_agent_gives_back_the_chats(tmp_path):
    data, agent_id = tmp_path / "data", "00000000-0000-4000-8000-000000000004"
    agent = {"id": agent_id, "email": "agnes@example.com", "role": "agent", "app_id": APP}
    assigned = {"id": SESSION, "app_id": APP, "user_id": ALICE, "assignee_id": agent_id}
    fill(data, [*chat()[:2], {"user": agent}, {"chat_session": assigned}])
    for assignee_id in (agent_id, None):
        lines = map(json.loads, command("export", "--data", data).stdout.splitlines())
        (row,) = [line["chat_session"] for line in lines if "chat_session" in line]
        assert row["assignee_id"] == assignee_id
        assert command("user", "disable", "agnes@example.com", "--data", data).returncode == 0


def test_chats_of_an_agent_who_changes_the_app_are_given_back(tmp_path, agent, other_shop, session):
    assign(agent, session, agent.user.id)
    import_user(tmp_path, agent.user, role="agent", app_id=session.app_id)
    assert assignee(session) == agent.user.id
    import_user(tmp_path, agent.user, role="agent", app_id=other_shop.id)
    assert assignee(session) is None
    assert ChatSession.get_by_id(session.id).given_back_at


@pytest.mark.parametrize("columns", [{"role": "user"}, {"role": "agent", "is_disabled": True}])
def test_an_import_gives_back_the_chats_of_users_who_are_no_longer_staff(tmp_path, agent, session, columns):
    assign(agent, session, agent.user.id)
    import_user(tmp_path, agent.user, app_id=session.app_id, **columns)
    assert assignee(session) is None


def test_a_change_of_role_gives_back_the_chats_of_which_the_user_is_no_longer_staff(agent, admin, session, other_shop):
    elsewhere = ChatSession.create(app_id=other_shop.id, user_id=session.user_id)
    assign(admin, session, admin.user.id), assign(admin, elsewhere, admin.user.id)
    User.update(role="agent", app_id=session.app_id).where(User.id == admin.user.id).execute()
    User.staff_changed(admin.user.id)
    assert [assignee(session), assignee(elsewhere)] == [admin.user.id, None]


def test_assignments_are_exported_and_imported(tmp_path, agent, session):
    assign(agent, session, agent.user.id)
    lines = []
    import_export.export(lines.append)
    ChatSession.update(assignee_id=None).execute()
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"".join(lines))
    assert import_export.import_files([file]) == []
    assert assignee(session) == agent.user.id
