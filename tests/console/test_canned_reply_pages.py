"""The pages of canned replies, and their use in a chat without scripts."""

from html import unescape
from typing import Any

import pytest

from service import clock
from service.models import App, CannedReply, ChatSession, Message
from tests.support.client import Client
from tests.support.web_client import Browser, Forms


@pytest.fixture
def staff(agent: Client, application: Any) -> Browser:
    return Browser(application).signed_in(agent)


@pytest.fixture
def path(shop: App) -> str:
    return f"/console/apps/{shop.id}/canned-replies"


def submit(browser: Browser, path: str, **values: str) -> Any:
    """Send the form of a page that has the given fields."""
    browser.open(path)
    [(action, fields)] = [form for form in Forms(browser.reply.raw.decode()).found if "shortcut" in form[1]]
    return browser.navigate("POST", action, {**fields, **values})


def stored() -> list[tuple[str, str, str]]:
    return [
        (reply.shortcut, reply.text, reply.language) for reply in CannedReply.select().order_by(CannedReply.shortcut)
    ]


def test_canned_reply_is_added_once(staff: Browser, path: str) -> None:
    staff.open(path)
    assert "no canned replies yet" in staff.text
    [(action, fields)] = [form for form in Forms(staff.reply.raw.decode()).found if "shortcut" in form[1]]
    for _ in range(2):
        staff.navigate("POST", action, {**fields, "shortcut": "/Thanks", "text": "Thank\r\nyou!", "language": "en"})
        assert "Canned reply added." in staff.text
    assert stored() == [("thanks", "Thank\nyou!", "en")]
    assert "/thanks" in staff.text


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"shortcut": "two words"}, "Shortcut: expected a text without white space"),
        ({"shortcut": "/"}, "Shortcut:"),
        ({"text": " "}, "Text:"),
        ({"language": "no language"}, "Language:"),
        ({"shortcut": "hi"}, "has another canned reply with this shortcut"),
    ],
)
def test_invalid_canned_reply_keeps_the_input(values: dict[str, str], error: str, staff: Browser, path: str) -> None:
    submit(staff, path, shortcut="hi", text="Hi.")
    reply = submit(staff, path, **{"shortcut": "new", "text": "My text", "language": "", **values})
    assert reply.status == 400
    assert error in staff.text
    assert len(stored()) == 1
    if "text" not in values:
        assert "My text" in reply.raw.decode()


def test_canned_reply_is_edited_and_deleted(staff: Browser, path: str, shop: App) -> None:
    reply = CannedReply.create(app_id=shop.id, shortcut="hi", text="Hi.")
    submit(staff, f"{path}/{reply.id}", act="save", shortcut="hello", text="Hello.", language="en")
    assert "Saved." in staff.text
    assert stored() == [("hello", "Hello.", "en")]
    submit(staff, f"{path}/{reply.id}", act="delete")
    assert "Deleted." in staff.text
    assert stored() == []
    assert staff.open(f"{path}/{reply.id}").status == 404


def test_list_is_filtered_by_the_beginning_of_the_shortcut(staff: Browser, path: str, shop: App) -> None:
    for shortcut in ("shipping", "shop", "thanks"):
        CannedReply.create(app_id=shop.id, shortcut=shortcut, text=f"About {shortcut}")
    staff.open(f"{path}?prefix=SH")
    assert ["About shipping" in staff.text, "About shop" in staff.text, "About thanks" in staff.text] == [
        True,
        True,
        False,
    ]
    staff.open(f"{path}?prefix=x")
    assert "No shortcut begins with" in staff.text


def test_pages_are_for_the_staff_of_the_app(
    path: str, shop: App, alice: Client, other_agent: Client, application: Any
) -> None:
    reply = CannedReply.create(app_id=shop.id, shortcut="hi", text="Secret.")
    for client in (alice, other_agent):
        browser = Browser(application).signed_in(client)
        for address in (path, f"{path}/{reply.id}"):
            assert browser.open(address).status == 403
            assert "Secret." not in browser.text


def test_catalogue_links_to_the_page(staff: Browser, path: str) -> None:
    assert f'href="{path}"' in staff.open("/console/catalogue").raw.decode()


def test_canned_reply_is_inserted_without_scripts(staff: Browser, path: str, shop: App, session: ChatSession) -> None:
    reply = CannedReply.create(app_id=shop.id, shortcut="hi", text="Hi <b>there</b>.")
    chat = f"/console/chats/{session.id}"
    assert f'href="{path}?chat={session.id}"' in staff.open(chat).raw.decode()
    html = staff.open(f"{path}?chat={session.id}").raw.decode()
    assert f'href="{chat}?canned={reply.id}#end"' in html
    html = staff.open(f"{chat}?canned={reply.id}").raw.decode()
    assert f">{'Hi &lt;b&gt;there&lt;/b&gt;.'}</textarea>" in html
    assert "canned=" not in html.partition('class="conversation"')[2].replace("canned-", "")
    assert not Message.select().where(Message.chat_session_id == session.id, Message.plain_text.contains("Hi")).exists()


@pytest.mark.parametrize("case", ["unknown", "of another app", "for a customer"])
def test_other_canned_replies_are_not_inserted(
    case: str, staff: Browser, alice: Client, shop: App, session: ChatSession, application: Any
) -> None:
    app_id = App.create(name="Other").id if case == "of another app" else shop.id
    reply = CannedReply.create(app_id=app_id, shortcut="hi", text="Secret.")
    browser = Browser(application).signed_in(alice) if case == "for a customer" else staff
    id = clock.uuid() if case == "unknown" else reply.id
    response = browser.open(f"/console/chats/{session.id}?canned={id}")
    assert response.status == 200
    assert "Secret." not in unescape(response.raw.decode())
