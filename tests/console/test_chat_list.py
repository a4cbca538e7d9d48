"""The list of chats with its filters, and what staff see of a customer."""

import re
from typing import Any

import pytest

from service import clock, db
from service.console import display_names
from service.models import App, Avatar, Bot, BotPicture, ChatSession, DataShare, Event, Feedback, User
from tests.support.client import Client
from tests.support.sample_data import picture
from tests.support.web_client import Browser

FUTURE = "2099-01-01T10:00:00.000Z"


@pytest.fixture
def staff(agent: Client, application: Any) -> Browser:
    return Browser(application).signed_in(agent)


def listed(browser: Browser, path: str = "/") -> set[str]:
    """Return the chats in the list of a page."""
    return set(re.findall(r'id="c-([\w-]+)"', browser.open(path).raw.decode()))


def create_chat(app: App, client: Client, **columns: Any) -> str:
    return str(ChatSession.create(app_id=app.id, user_id=client.user.id, **columns).id)


class TestTheFilters:
    def test_select_the_current_chats_for_staff_and_all_for_customers(
        self, staff: Browser, alice: Client, shop: App, application: Any
    ) -> None:
        chats = {word: create_chat(shop, alice, status=word) for word in ("open", "pending", "snoozed", "resolved")}
        assert listed(staff) == {chats["open"], chats["pending"]}
        assert listed(staff, "/?status=all") == {*chats.values()}
        assert listed(staff, "/?status=resolved") == {chats["resolved"]}
        customer = Browser(application).signed_in(alice)
        assert listed(customer) == {*chats.values()}
        assert listed(customer, "/?status=current") == {chats["open"], chats["pending"]}

    def test_select_by_bot_and_assignee(
        self, staff: Browser, agent: Client, alice: Client, shop: App, bot: Bot
    ) -> None:
        with_bot = create_chat(shop, alice, bot_id=bot.id, status="open")
        assigned = create_chat(shop, alice, assignee_id=agent.user.id, status="open")
        assert listed(staff, f"/?bot={bot.id}") == {with_bot}
        assert listed(staff, "/?assignee=me") == {assigned}
        assert listed(staff, "/?assignee=none") == {with_bot}

    def test_select_by_app_for_admins(self, admin: Client, alice: Client, shop: App, application: Any) -> None:
        other = App.create(name="Other")
        chats = [create_chat(one, alice, status="open") for one in (shop, other)]
        browser = Browser(application).signed_in(admin)
        assert listed(browser) == {*chats}
        assert listed(browser, f"/?app={other.id}") == {chats[1]}

    def test_that_the_caller_does_not_have_are_ignored(
        self, staff: Browser, alice: Client, shop: App, application: Any
    ) -> None:
        chat = create_chat(shop, alice, status="open")
        unknown = clock.uuid()
        for browser in (staff, Browser(application).signed_in(alice)):
            assert listed(browser, f"/?app={unknown}&bot={unknown}&assignee={unknown}") == {chat}

    def test_stay_in_the_links_of_the_list_and_of_the_chat(self, staff: Browser, alice: Client, shop: App) -> None:
        chat = create_chat(shop, alice, status="open")
        html = staff.open("/?status=open&assignee=none").raw.decode()
        (address,) = re.findall(rf'href="(/console/chats/{chat}[^"]*)"', html)
        assert address == f"/console/chats/{chat}?status=open&amp;assignee=none#end"
        html = staff.open(f"/console/chats/{chat}?status=open&assignee=none").raw.decode()
        assert 'class="back-link" href="/?status=open&amp;assignee=none"' in html
        assert f'id="c-{chat}"' in html

    @pytest.mark.parametrize("query", ["status=unknown", "assignee=someone", "app=x", "bot=1"])
    def test_refuse_invalid_values(self, query: str, staff: Browser) -> None:
        assert staff.open(f"/?{query}").status == 400

    def test_offer_the_chat_that_is_open_although_it_does_not_match(
        self, staff: Browser, alice: Client, shop: App
    ) -> None:
        chat = create_chat(shop, alice, status="resolved")
        assert staff.open(f"/console/chats/{chat}").status == 200
        assert listed(staff, f"/console/chats/{chat}") == set()


class TestTheRows:
    def test_name_the_bot_or_the_app(
        self, staff: Browser, alice: Client, shop: App, bot: Bot, application: Any
    ) -> None:
        create_chat(shop, alice, bot_id=bot.id, status="open")
        create_chat(shop, alice, status="open")
        html = staff.open("/").raw.decode()
        assert f"<span><bdi>{bot.name}</bdi></span>" in html and f"<span><bdi>{shop.name}</bdi></span>" in html
        html = Browser(application).signed_in(alice).open("/").raw.decode()
        assert f"<span><bdi>{shop.name}</bdi></span>" in html  # of the chat with the bot

    def test_have_customer_last_message_time_status_and_unread_count(
        self, staff: Browser, alice: Client, shop: App
    ) -> None:
        chat = create_chat(shop, alice, status="open")
        for text in ("First", "Second"):
            alice.post(f"/chats/{chat}/messages", {"content": {"text": text}})
        row = staff.open("/").raw.decode().partition(f'id="c-{chat}"')[2].partition("</li>")[0]
        parts = (
            "<bdi>Alice",
            ">Second</span>",
            "<time datetime=",
            'status-open">open</span>',
            '<span class="count">2<',
        )
        assert [part for part in parts if part not in row] == []


class TestTheDetailsOfTheCustomer:
    @pytest.fixture
    def chat(self, alice: Client, shop: App) -> str:
        User.update(phone="+441632960961", timezone="Asia/Tokyo", locale="pt-BR").where(
            User.id == alice.user.id
        ).execute()
        return create_chat(shop, alice, status="open")

    def test_are_shown_to_staff_only(self, chat: str, staff: Browser, alice: Client, application: Any) -> None:
        staff.open(f"/console/chats/{chat}")
        for text in ("alice@example.com", "+441632960961", "Local time", "Asia/Tokyo", "pt-BR", "Customer since"):
            assert text in staff.text
        details = staff.reply.raw.decode().partition('class="customer-details"')[2].partition("</details>")[0]
        assert 'class="avatar' in details and "<h2><bdi>Alice" in details
        customer = Browser(application).signed_in(alice)
        assert customer.open(f"/console/chats/{chat}").status == 200
        assert "Customer since" not in customer.text

    def test_list_chats_and_events_of_the_app_only(
        self, chat: str, staff: Browser, admin: Client, alice: Client, shop: App, application: Any
    ) -> None:
        other = App.create(name="Other")
        chats = [create_chat(one, alice, status="resolved") for one in (shop, other)]
        for app_id, title in ((shop.id, "Fitting"), (other.id, "Elsewhere"), (None, "Dentist")):
            Event.create(user_id=alice.user.id, app_id=app_id, title=title, starts_at=FUTURE)
        Event.create(user_id=alice.user.id, app_id=shop.id, title="Past", starts_at="2001-01-01T10:00:00.000Z")
        html = staff.open(f"/console/chats/{chat}").raw.decode()
        assert [f"/console/chats/{id}" in html for id in chats] == [True, False]
        assert [title in staff.text for title in ("Fitting", "Elsewhere", "Dentist", "Past")] == [True] + [False] * 3
        html = Browser(application).signed_in(admin).open(f"/console/chats/{chat}").raw.decode()
        assert [f"/console/chats/{id}" in html for id in chats] == [True, True]

    def test_list_data_shares_of_the_chat(self, chat: str, staff: Browser, alice: Client, shop: App) -> None:
        conversation = ChatSession.get_by_id(chat).conversation_id
        grants: dict[str, dict[str, Any]] = {
            "of-the-chat": {"conversation_id": conversation},
            "of-the-app": {"app_id": shop.id},
            "of-another-chat": {"conversation_id": clock.uuid(), "app_id": shop.id},
            "of-all-apps": {},
            "revoked": {"conversation_id": conversation, "revoked_at": "2026-01-01T00:00:00.000Z"},
        }
        for name, columns in grants.items():
            DataShare.create(user_id=alice.user.id, mcp_server_id=name, allowed_tools='["read"]', **columns)
        staff.open(f"/console/chats/{chat}")
        assert [name in staff.text for name in grants] == [True, True, False, False, False]

    def test_list_feedback_for_admins(
        self, chat: str, staff: Browser, admin: Client, alice: Client, application: Any
    ) -> None:
        Feedback.create(user_id=alice.user.id, description="Too slow")
        staff.open(f"/console/chats/{chat}")
        assert "Too slow" not in staff.text
        browser = Browser(application).signed_in(admin)
        browser.open(f"/console/chats/{chat}")
        assert "Too slow" in browser.text


class TestDisplayNames:
    def test_have_the_pictures_of_users_and_the_icons_of_bots(self, alice: Client, bob: Client, shop: App) -> None:
        bots = [Bot.create(app_id=shop.id, name=name) for name in ("Hilda", "Otto")]
        with db.write():
            BotPicture.store(bots[0].id, "cover", picture(), "")
            icon = BotPicture.store(bots[0].id, "icon", picture(), "")
        avatar = Avatar.set_for(alice.user.id, picture(), "")
        shown = display_names.bots([bots[0].id, None, bots[1].id])
        assert {id: (profile.name, profile.picture) for id, profile in shown.items()} == {
            bots[0].id: ("Hilda", icon),
            bots[1].id: ("Otto", ""),
        }
        users = display_names.users([alice.user.id, bob.user.id, alice.user.id])
        assert {id: profile.picture for id, profile in users.items()} == {alice.user.id: avatar, bob.user.id: ""}
        assert display_names.apps([]) == {} == display_names.users([None])
