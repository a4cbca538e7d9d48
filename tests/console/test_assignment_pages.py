"""Assignment and snoozing in the console, and the tabs of the inbox."""

from typing import Any

import pytest

from service import clock
from service.models import App, ChatSession, Message
from tests.support.client import Client
from tests.support.host_clock import Clock
from tests.support.observe import nothing_changes
from tests.support.web_client import Browser, Forms

pytestmark = pytest.mark.database


def page(session: ChatSession) -> str:
    return f"/console/chats/{session.id}"


def current(session: ChatSession) -> ChatSession:
    return ChatSession.get_by_id(session.id)


def submit(browser: Browser, session: ChatSession, **fields: str) -> Any:
    """Open the page of a chat, and submit its form with these values."""
    browser.open(page(session))
    for action, values in Forms(browser.reply.raw.decode()).found:
        if values.get("act") in (fields["act"], None) and "csrf_token" in values:
            return browser.navigate("POST", action, {"csrf_token": values["csrf_token"], **fields})
    raise AssertionError("no form")


@pytest.fixture
def staff(application: Any, agent: Client) -> Browser:
    return Browser(application).signed_in(agent)


class TestAssignment:
    def test_of_a_chat_shows_the_assignee_to_staff(
        self, staff: Browser, agent: Client, admin: Client, alice: Client, session: ChatSession, application: Any
    ) -> None:
        assert submit(staff, session, act="assign", assignee=admin.user.id).status == 200
        assert current(session).assignee_id == admin.user.id
        name = agent.get(f"/chats/{session.id}").data["assignee_name"] or "a member of staff"
        assert "Assigned." in staff.text and f"assigned to {name}" in staff.text
        customer = Browser(application).signed_in(alice)
        customer.open(page(session))
        assert "assigned to" not in customer.text.lower() and "Give back" not in customer.text

    def test_takes_a_chat_over_and_gives_it_back(
        self, staff: Browser, agent: Client, alice: Client, session: ChatSession
    ) -> None:
        staff.open(page(session))
        assert "Take over the chat" in staff.text and "Give back to the bot" not in staff.text
        submit(staff, session, act="assign", assignee=agent.user.id)
        assert "Take over the chat" not in staff.text and "Give back to the bot" in staff.text
        alice.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello?"}})
        assert [message.sender_type for message in Message.select()] == ["user"]
        submit(staff, session, act="assign", assignee="")
        assert current(session).assignee_id is None and "Given back to the bot." in staff.text
        alice.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello?"}})
        assert [message.sender_type for message in Message.select().order_by(Message.id)] == ["user", "user", "bot"]

    def test_is_for_staff(self, alice: Client, bob: Client, session: ChatSession, application: Any) -> None:
        browser = Browser(application).signed_in(alice)
        with nothing_changes():
            assert submit(browser, session, act="assign", assignee=alice.user.id).status == 403
            assert submit(browser, session, act="snooze", until="2099-01-01T09:00").status == 403

    def test_to_a_customer_is_refused(self, staff: Browser, bob: Client, session: ChatSession) -> None:
        with nothing_changes():
            assert submit(staff, session, act="assign", assignee=bob.user.id).status == 404


class TestSnoozing:
    def test_hides_a_chat_until_a_time_in_the_time_zone_of_the_user(
        self, staff: Browser, agent: Client, session: ChatSession, host_clock: Clock
    ) -> None:
        agent.patch("/users/me", {"timezone": "Asia/Tokyo"})
        assert submit(staff, session, act="snooze", until="2099-01-01T09:00").status == 200
        assert (current(session).status, current(session).snoozed_until) == ("snoozed", "2099-01-01T00:00:00.000Z")
        assert (
            "Snoozed." in staff.text
            and "snoozed until" in staff.text
            and 'value="2099-01-01T09:00"' in str(staff.reply.raw)
        )

    @pytest.mark.parametrize("until", ["", "tomorrow", "2000-01-01T00:00", "9999-99-99T00:00"])
    def test_needs_a_time_in_the_future(self, until: str, staff: Browser, session: ChatSession) -> None:
        with nothing_changes():
            assert submit(staff, session, act="snooze", until=until).status == 400
        assert "Until: expected" in staff.text

    def test_proposes_the_next_morning(self, staff: Browser, session: ChatSession) -> None:
        staff.open(page(session))
        tomorrow = clock.timestamp(clock.now() + clock.DAY)[:10]
        assert f'value="{tomorrow}T09:00"' in staff.reply.raw.decode()


class TestTabsOfTheInbox:
    def test_select_the_chats_of_the_caller_and_those_without_an_assignee(
        self, staff: Browser, agent: Client, bob: Client, shop: App, session: ChatSession
    ) -> None:
        other = bob.post("/chats", {"app_id": shop.id}).data["id"]
        submit(staff, session, act="assign", assignee=agent.user.id)
        found = {}
        for tab in ("", "me", "none"):
            html = staff.open(f"/?assignee={tab}").raw.decode()
            found[tab] = {id for id in (session.id, other) if f'id="c-{id}"' in html}
        assert found == {"": {session.id, other}, "me": {session.id}, "none": {other}}
        staff.open("/?assignee=me&status=resolved")
        assert "No chat matches the filters" in staff.text

    def test_are_for_staff(self, alice: Client, session: ChatSession, application: Any) -> None:
        browser = Browser(application).signed_in(alice)
        assert "Unassigned" not in browser.open("/").raw.decode()
        assert browser.open("/?assignee=someone").status == 400
