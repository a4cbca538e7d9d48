"""How a customer without chats finds a bot."""

import re
from html import unescape

import pytest

from service.models import App, Bot, ChatSession
from tests.support.client import Client
from tests.support.web_client import Browser, Forms

pytestmark = [pytest.mark.slow, pytest.mark.database]

PAGE = "/console/bots"


@pytest.fixture
def browser(bob: Client) -> Browser:
    return Browser(bob.application).signed_in(bob)


def names(browser: Browser) -> list[str]:
    return re.findall(r"<h2><bdi>(.*?)</bdi></h2>", browser.reply.raw.decode())


def test_inbox_without_chats_leads_to_the_bots_of_the_only_app(browser: Browser, shop: App, bot: Bot) -> None:
    Bot.update(tagline="Knows all about tea").where(Bot.id == bot.id).execute()
    assert f'href="{PAGE}"' in browser.open("/").raw.decode()
    browser.open(PAGE)
    assert names(browser) == ["Hilda"]
    assert "Knows all about tea" in browser.text
    assert 'class="avatar' in browser.reply.raw.decode()


def test_no_field_asks_for_an_identifier(browser: Browser, shop: App, other_shop: App, bot: Bot) -> None:
    html = browser.open(PAGE).raw.decode()
    assert "Choose an app" in html
    assert "open the link" in html
    assert not re.search(r"<(input|select)[^>]*name=.(app_id|bot_id)", html)


def test_link_of_an_app_starts_a_chat(browser: Browser, shop: App, other_shop: App, bot: Bot) -> None:
    browser.open(f"{PAGE}?app_id={shop.id}")
    assert names(browser) == ["Hilda"]
    [fields] = [fields for action, fields in Forms(browser.reply.raw.decode()).found if "bot_id" in fields]
    assert browser.navigate("POST", PAGE, fields).status == 200
    assert ChatSession.get().bot_id == bot.id
    browser.open(PAGE)  # now the app is that of a chat
    assert names(browser) == ["Hilda"]


def test_link_of_an_app_keeps_its_app_in_the_search(
    browser: Browser, bob: Client, shop: App, other_shop: App, bot: Bot
) -> None:
    Bot.create(app_id=other_shop.id, name="Ida", status="published")
    ChatSession.create(app_id=other_shop.id, user_id=bob.user.id)
    html = browser.open(f"{PAGE}?app_id={shop.id}&search=hil").raw.decode()
    assert names(browser) == ["Hilda"]
    assert f'<option value="{shop.id}" selected>' in html
    assert f'<option value="{other_shop.id}">' in html


def test_unknown_app_has_no_bots(browser: Browser, shop: App, other_shop: App, bot: Bot) -> None:
    assert browser.open(f"{PAGE}?app_id=00000000-0000-4000-8000-00000000dead").status == 200
    assert "No matching bots" in browser.text


@pytest.mark.parametrize("path", ["/console/catalogue?app_id={}", "/console/apps"])
def test_staff_find_the_link_for_customers(path: str, admin: Client, shop: App, bot: Bot) -> None:
    staff = Browser(admin.application).signed_in(admin)
    html = unescape(staff.open(path.format(shop.id)).raw.decode())
    assert f'href="{PAGE}?app_id={shop.id}"' in html
