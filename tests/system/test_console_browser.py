"""The console in a real browser: typical sessions, with keyboard and mouse, in all sizes and colours."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from time import sleep

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, Route, expect

from tests.support import sample_data as h
from tests.support.chromium import (
    DARK,
    LIGHT,
    NARROW,
    WIDE,
    Visit,
    is_update,
    lose_response,
    sends_message,
    sign_in,
    visit_fixture,  # noqa: F401
    windows,
)
from tests.support.cutting_proxy import CuttingProxy
from tests.support.passwords import PASSWORD, PASSWORD_HASH
from tests.support.server_process import Record, Served, fill, serving

pytestmark = [pytest.mark.slow, pytest.mark.database]

ADA = {"id": h.uuid(14), "email": "ada@example.com", "first_name": "Ada", "role": "admin", "timezone": "Asia/Tokyo"}
LONG = h.uuid(35)  # a chat session with many messages
RTL = "שלום! איפה החבילה שלי? أين الطرد؟"
WINDOWS = pytest.mark.parametrize(
    "windows",
    [
        pytest.param([(LIGHT, WIDE), (DARK, NARROW)], id="light and wide, dark and narrow"),
        pytest.param([(LIGHT, NARROW), (DARK, WIDE)], id="light and narrow, dark and wide", marks=pytest.mark.extended),
    ],
)
WRITING = re.compile("Your (message|private note)")
CHAT = f"/console/chats/{h.SESSION}"
PAGES = {
    "alice": {
        "Inbox": "/",
        "Chat with Hilda": f"{CHAT}#end",
        "Chat with Shop": f"/console/chats/{LONG}?at=01JD4Q9M400000000000000000",
        "Search": "/console/search?q=line",
        "Bots": "/console/bots",
        "Notifications": "/console/notifications",
        "Events": "/console/events?past=true",
        "Edit event": f"/console/events/{h.EVENT}",
        "Data shares": "/console/shares",
        "Feedback": "/console/feedback",
        "Settings": "/console/settings",
        "Profile picture": "/console/picture",
        "Account": "/console/account",
    },
    "ada": {
        "Inbox": "/?status=open",
        "Chat with Alice": f"{CHAT}#end",
        "Bot catalogue": f"/console/catalogue?app_id={h.SHOP}",
        "Feedback": "/console/feedback?everybody=true",
        "Events": "/console/events",
        "Bots": "/console/bots?search=unknown",
        "Users": "/console/users?search=ali",
        "Alice": f"/console/users/{h.ALICE}",
        "Apps": "/console/apps",
        "New bot": f"/console/apps/{h.SHOP}/new-bot",
        "Hilda": f"/console/apps/{h.SHOP}/bots/{h.HILDA}",
        "Pictures of Hilda": f"/console/apps/{h.SHOP}/bots/{h.HILDA}/pictures",
        "Canned answers of Hilda": f"/console/apps/{h.SHOP}/bots/{h.HILDA}/answers",
        "Canned answer": f"/console/apps/{h.SHOP}/bots/{h.HILDA}/answers/{h.ANSWER}",
        "Audit log": "/console/audit",
        "Branding": "/console/branding",
        "Backups": "/console/backups",
        "Health": "/console/health",
        "Data shares of all users": "/console/all-shares",
        "Credentials of MCP servers": "/console/server-credentials",
        "Page not found": f"/console/chats/{h.UNKNOWN_ID}",
        "Invalid request": "/?cursor=x",
        "This page cannot be opened directly": "/sign-out",
    },
}


def records() -> list[Record]:
    """The sample data, an admin, and a chat that is too long for one page."""
    messages = [
        {"id": f"01JD4Q9M{number:02}0000000000000000", "text": f"line {number}", "chat_session_id": LONG}
        for number in range(99)
    ]
    messages[40]["text"] = f"{RTL} {'long' * 200}"
    return [
        *h.records(),
        {"user": {**ADA, "password_hash": PASSWORD_HASH}},
        {"chat_session": {"id": LONG, "app_id": h.SHOP, "user_id": h.ALICE}},
        *({"message": {**one, "sender_id": h.ALICE}} for one in messages),
    ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("console") / "data"
    fill(data, records())
    with serving(data, "--verify-answers") as running:
        yield running
        assert "Traceback" not in running.errors


@pytest.fixture
def enter(visit: Callable[..., Visit]) -> Callable[..., Visit]:
    """Open a window, sign in a user and show the inbox."""

    def open_inbox(name: str, *options: object, **more: object) -> Visit:
        visitor = visit(*options, **more)
        visitor.expected = ("401",)  # the sign-in page
        page = visitor.open("/")
        sign_in(page, f"{name}@example.com")
        expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
        return visitor

    return open_inbox


def go(page: Page, name: str, heading: str = "") -> None:
    """Follow a link of the menu; the page has the same heading, or another one."""
    page.get_by_role("navigation", name="Console").get_by_role("link", name=name).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(heading or name)


def message(page: Page, text: str) -> Locator:
    return page.get_by_role("listitem").filter(has=page.locator(".message-body", has_text=text))


def choose(page: Page, text: str, action: str) -> None:
    """Choose an action in the menu of a message."""
    one = message(page, text)
    one.locator(".action-menu > summary").click()
    if action == "Delete":
        one.locator(".confirm > summary").click()
        action = "Delete message"
    one.get_by_role("link" if action in ("Reply", "Edit") else "button", name=action, exact=True).click()


def write(page: Page, text: str) -> None:
    page.get_by_label(WRITING).fill(text)
    page.get_by_role("button", name=re.compile("Send|Add private note")).click()
    expect(message(page, text)).to_be_visible()


def test_typical_session_of_a_customer(enter: Callable[..., Visit], server: Served) -> None:
    visitor = enter("alice")
    page = visitor.page
    # A chat with a bot: messages in two languages, an edit, a pin, a deletion.
    go(page, "Bots")
    page.get_by_label("Name or description").fill("hild")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("button", name="Chat with Hilda").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Chat with Hilda")
    write(page, RTL)
    expect(message(page, RTL).locator(".text")).to_have_css("direction", "rtl")
    write(page, "Helo")
    choose(page, "Helo", "Edit")
    expect(page.get_by_label("Message text")).to_be_focused()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("Hello again")
    page.keyboard.press("Enter")
    expect(message(page, "Hello again")).to_contain_text("edited")
    choose(page, RTL, "Pin")
    expect(page.get_by_text("1 pinned")).to_be_visible()
    choose(page, RTL, "Unpin")
    expect(page.get_by_text("1 pinned")).to_have_count(0)
    choose(page, "Hello again", "Delete")
    expect(message(page, "Hello again")).to_have_count(0)
    # Search.
    go(page, "Search")
    page.get_by_label("Text in your messages").fill("החבילה")
    page.keyboard.press("Enter")
    page.get_by_role("main").get_by_role("listitem").first.get_by_role("link").click()
    expect(message(page, RTL)).to_be_in_viewport()
    # Events, data shares, feedback.
    go(page, "Events")
    page.get_by_label("Title").fill("Tea with Bob")
    page.get_by_label("Starts").fill("2990-07-01T10:00")
    page.get_by_label("Ends").fill("2990-07-01T09:00")
    page.get_by_role("button", name="Add event").click()
    expect(page.get_by_role("alert")).to_contain_text("expected a time not before the start")
    visitor.console_messages.clear()  # 400
    expect(page.get_by_label("Title")).to_have_value("Tea with Bob")
    page.get_by_label("Ends").fill("2990-07-01T11:00")
    page.get_by_role("button", name="Add event").click()
    expect(page.get_by_role("status")).to_have_text("Event added.")
    page.locator("summary", has_text="Delete Tea with Bob").click()
    page.get_by_role("button", name="Delete event Tea with Bob").click()
    expect(page.get_by_text("Tea with Bob")).to_have_count(0)
    go(page, "Data shares")
    page.get_by_text("Grant access").click()
    page.get_by_label("Server").fill("calendar.example")
    page.get_by_label("Tools", exact=True).fill("read, write")
    page.get_by_role("button", name="Grant", exact=True).click()
    page.get_by_role("button", name="Revoke calendar.example").click()
    expect(page.get_by_role("button", name="Revoke calendar.example")).to_have_count(0)
    page.get_by_role("link", name="Revoked or expired").click()
    expect(page.get_by_role("main").get_by_text("calendar.example")).to_be_visible()
    go(page, "Feedback")
    page.get_by_label("Message", exact=True).fill("Everything in its place.")
    page.get_by_role("button", name="Send feedback").click()
    expect(page.get_by_role("status")).to_contain_text("Thank you!")
    # Picture, settings, other login sessions.
    go(page, "Settings")
    page.get_by_role("link", name="Change profile picture").click()
    picture = {"name": "me.png", "mimeType": "image/png", "buffer": h.picture(side=64)}
    page.get_by_label("New picture").set_input_files(picture)
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("status")).to_have_text("Picture updated.")
    assert page.locator("main img").evaluate("image => image.complete && image.naturalWidth") == 64
    page.get_by_role("button", name="Remove picture").click()
    expect(page.locator("main img")).to_have_count(0)
    go(page, "Settings")
    page.get_by_label("Theme").select_option("dark")
    page.get_by_role("button", name="Save preferences").click()
    expect(page.get_by_role("status")).to_have_text("Saved.")
    assert visitor.colour("body") == "rgb(22, 24, 27)"
    page.get_by_label("Theme").select_option("system")
    page.get_by_role("button", name="Save preferences").click()
    token = server.log_in()
    go(page, "Account")
    page.get_by_role("main").get_by_role("button", name="Sign out the session").first.click()
    expect(page.get_by_role("status")).to_have_text("Session signed out.")
    assert server.call("GET", "/api/v1/users/me", token=token).status == 401
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")


def test_typical_session_of_an_agent(enter: Callable[..., Visit]) -> None:
    customer, visitor = enter("alice"), enter("agent")
    customer.open(f"{CHAT}#end")
    write(customer.page, "My lamp is broken.")
    page = visitor.page
    page.reload()
    page.get_by_role("main").get_by_role("link", name="Alice").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Chat with Alice")
    page.get_by_label("Private note", exact=True).check()
    write(page, "She has a warranty.")
    page.get_by_label("Private note", exact=True).uncheck()
    choose(page, "My lamp is broken.", "Reply")
    expect(page.get_by_label("Your message")).to_be_focused()
    page.keyboard.type("A new one is on its way.")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("Sorry!")
    page.keyboard.press("Enter")
    reply = message(page, "A new one is on its way.")
    expect(reply.locator("blockquote")).to_have_text("My lamp is broken.")
    # The customer is notified of the end of a chat.
    page.get_by_text("Manage").click()
    page.get_by_role("button", name="End the chat").click()
    expect(page.get_by_role("status")).to_have_text("Chat ended.")
    customer.open("/console/notifications")
    expect(customer.page.get_by_role("link", name="Your chat is resolved")).to_be_visible()
    customer.open(f"{CHAT}#end")
    expect(message(customer.page, "A new one is on its way.")).to_contain_text("Sorry!")
    expect(message(customer.page, "She has a warranty.")).to_have_count(0)
    # Messages that are seen are marked as read.
    expect(customer.page.locator("form[data-mark-read]")).to_have_count(0)
    customer.open("/console/notifications?unread_only=true")
    expect(customer.page.get_by_text("A new one is on its way.")).to_have_count(0)
    # The bot catalogue.
    go(page, "Bot catalogue")
    page.get_by_label("Status of Draft").select_option("published")
    page.get_by_label("Presence of Draft").select_option("online")
    page.get_by_role("button", name="Save Draft").click()
    expect(page.get_by_role("status")).to_have_text("Saved.")
    customer.open("/console/bots")
    expect(customer.page.get_by_role("button", name="Chat with Draft")).to_be_visible()
    page.get_by_label("Status of Draft").select_option("draft")
    page.get_by_role("button", name="Save Draft").click()
    expect(page.get_by_label("Status of Draft")).to_have_value("draft")


def test_admins_change_the_status_of_feedback(enter: Callable[..., Visit]) -> None:
    page = enter("ada").page
    go(page, "Feedback")
    page.get_by_role("link", name="All users").click()
    page.get_by_role("combobox", name="Status of “Fine”").select_option("in_progress")
    page.get_by_role("button", name="Save the status of “Fine”").click()
    expect(page.locator(".list-item", has_text="Fine").first).to_contain_text("in progress")


@WINDOWS
@pytest.mark.parametrize("user", PAGES)
def test_pages_are_accessible(user: str, windows: list[tuple[str, int]], enter: Callable[..., Visit]) -> None:
    """axe-core finds no violations in light and dark colours, on a phone and a desktop."""
    visitor = enter(user, reduced_motion="reduce")  # axe-core must not measure the contrast during a transition
    visitor.expected = ("400", "401", "404", "405")
    for heading, path in PAGES[user].items():
        visitor.open(path)
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text(heading)
        visitor.check_accessibility(windows)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_console_works_without_scripts(width: int, enter: Callable[..., Visit]) -> None:
    page = enter("alice", LIGHT, width, java_script_enabled=False).page
    page.get_by_role("main").get_by_role("link", name="Hilda").first.click()
    text = f"Without scripts, {width} wide"
    page.get_by_label("Your message").fill(text)
    page.get_by_role("button", name="Send").click()
    expect(message(page, text)).to_be_visible()
    choose(page, text, "Reply")
    page.get_by_label("Your message").fill(f"A reply, {width}")
    page.get_by_role("button", name="Send").click()
    expect(message(page, f"A reply, {width}").locator("blockquote")).to_have_text(text)
    choose(page, f"A reply, {width}", "Delete")
    expect(message(page, f"A reply, {width}")).to_have_count(0)
    page.locator(".manage > summary").click()
    page.get_by_label("Status").select_option("snoozed")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_role("status")).to_have_text("Snoozed.")
    page.wait_for_load_state()  # before the styles are loaded, other links are visible
    if width == NARROW:
        page.get_by_role("button", name="Menu").click()
    page.get_by_role("link", name="Notifications").last.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Notifications")


def test_keyboard_is_sufficient(enter: Callable[..., Visit]) -> None:
    page = enter("alice", LIGHT, NARROW).page
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to main content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    page.get_by_role("button", name="Menu").focus()
    page.keyboard.press("Enter")
    menu = page.get_by_role("navigation", name="Console")
    expect(menu).to_be_visible()
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    expect(page.get_by_role("button", name="Menu")).to_be_focused()
    page.keyboard.press("Enter")
    for _ in range(3):
        page.keyboard.press("Tab")
    expect(menu.get_by_role("link", name="Search")).to_be_focused()
    assert page.locator(":focus").evaluate("element => getComputedStyle(element).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Search")
    page.goto(f"{page.url.partition('/console')[0]}/console/chats/{LONG}#end")
    page.locator(".message .action-menu > summary").last.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".confirm > summary").last).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".confirm > summary").last).to_be_hidden()
    expect(page.locator(".message .action-menu > summary").last).to_be_focused()


def test_open_chat_shows_changes(enter: Callable[..., Visit], server: Served) -> None:
    visitor, token = enter("alice"), server.log_in("agent@example.com")
    page = visitor.page
    visitor.open(f"/console/chats/{LONG}#end")
    page.get_by_label("Your message").fill("Half a sen")
    page.keyboard.press("Home")
    page.locator(".message .action-menu").last.evaluate("menu => menu.open = true")
    opened = len([url for url in visitor.requested_urls if url.endswith(f"/chats/{LONG}")])
    path = f"/api/v1/chats/{LONG}/messages"
    sent = server.call("POST", path, {"content": {"text": "A lamp for you"}}, token).data
    expect(message(page, "A lamp for you")).to_be_in_viewport()
    expect(page.locator("[data-announcer]")).to_contain_text("A lamp for you")
    # The message is marked as read; the draft, the focus and the open menu do not change.
    expect(page.locator("form[data-mark-read]")).to_have_count(0)
    expect(page.get_by_label("Your message")).to_have_value("Half a sen")
    expect(page.get_by_label("Your message")).to_be_focused()
    page.keyboard.type("Not ")
    expect(page.get_by_label("Your message")).to_have_value("Not Half a sen")
    expect(page.locator(".message .action-menu[open]")).to_have_count(1)
    expect(message(page, "line 78")).to_have_count(1)  # older than the messages of the page if it were loaded again
    assert len([url for url in visitor.requested_urls if url.endswith(f"/chats/{LONG}")]) > opened
    # An edit and a new message while the page is scrolled up: the position does not change.
    page.evaluate("scrollTo(0, 300)")
    server.call("PATCH", f"{path}/{sent['id']}", {"content": {"text": "A table for you"}}, token)
    expect(message(page, "A table for you")).to_have_count(1)
    expect(message(page, "A lamp for you")).to_have_count(0)
    second = server.call("POST", path, {"content": {"text": "And a chair"}}, token).data
    expect(message(page, "And a chair")).to_have_count(1)
    expect(message(page, "And a chair")).not_to_be_in_viewport()
    assert page.evaluate("scrollY") == 300
    expect(page.locator("form[data-mark-read]")).to_have_count(1)
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    expect(page.locator("form[data-mark-read]")).to_have_count(0)
    for one in (sent, second):
        server.call("DELETE", f"{path}/{one['id']}", token=token)
    expect(message(page, "for you")).to_have_count(0)
    expect(message(page, "And a chair")).to_have_count(0)
    # Menus of elements that were replaced work.
    page.keyboard.press("Escape")
    choose(page, "line 98", "Reply")
    expect(page.get_by_label("Your message")).to_be_focused()


def test_first_message_is_shown(enter: Callable[..., Visit], server: Served) -> None:
    visitor, token = enter("alice"), server.log_in("agent@example.com")
    customer = server.log_in("alice@example.com")
    made = server.call("POST", "/api/v1/chats", {"app_id": h.SHOP}, customer).data["id"]
    page = visitor.open(f"/console/chats/{made}")
    expect(page.get_by_role("heading", name="No messages")).to_be_visible()
    server.call("POST", f"/api/v1/chats/{made}/messages", {"content": {"text": "Welcome!"}}, token)
    expect(message(page, "Welcome!")).to_be_visible()
    expect(page.get_by_role("heading", name="No messages")).to_have_count(0)
    server.call("DELETE", f"/api/v1/chats/{made}", token=customer)
    expect(page.get_by_text("This chat is archived")).to_be_visible()


def test_inbox_shows_changes(enter: Callable[..., Visit], server: Served) -> None:
    visitor, token = enter("alice"), server.log_in("agent@example.com")
    server.call("PATCH", "/api/v1/notifications/read-all", token=server.log_in())
    page = visitor.open("/")
    bell = page.get_by_role("navigation", name="Console").get_by_role("link", name="Notifications")
    expect(bell).to_have_accessible_name("Notifications")
    first = page.locator(".chats li").first
    other = page.locator(".chats a").last
    address = str(other.get_attribute("href"))
    other.focus()
    session = address.removesuffix("#end").rpartition("/")[2]
    server.call("POST", f"/api/v1/chats/{session}/messages", {"content": {"text": "Are you there?"}}, token)
    expect(first).to_contain_text("Are you there?")
    expect(first.locator("a")).to_be_focused()
    expect(first.locator(".count")).to_contain_text("unread")
    expect(bell).to_have_accessible_name("Notifications 1 unread")
    expect(page).to_have_title("(1) Inbox")
    first.locator("a").click()
    expect(message(page, "Are you there?")).to_be_in_viewport()
    expect(page.locator("form[data-mark-read]")).to_have_count(0)
    expect(bell).to_have_accessible_name("Notifications")
    expect(page).to_have_title(re.compile("^Chat with"))


def count_streams(visitor: Visit) -> int:
    return sum("/console/news/stream" in url for url in visitor.requested_urls)


def test_two_browsers_see_each_others_messages_by_streams(enter: Callable[..., Visit], server: Served) -> None:
    customer, staff = enter("alice"), enter("agent")
    pages = [visitor.open(CHAT) for visitor in (customer, staff)]
    for number, (writer, reader) in enumerate([pages, pages[::-1], pages]):
        text = f"Live {number}"
        writer.get_by_label(WRITING).fill(text)
        writer.get_by_label(WRITING).press("Enter")
        expect(message(reader, text)).to_be_visible()
    for visitor in (customer, staff):
        assert not [url for url in visitor.requested_urls if "/console/news?" in url]


def test_page_without_a_stream_uses_a_long_poll(enter: Callable[..., Visit], server: Served) -> None:
    visitor, token = enter("alice"), server.log_in("agent@example.com")
    visitor.expected += ("503",)  # as at the limit of streams
    with visitor.intercept(lambda request: "/stream" in request.url, lambda route: route.fulfill(status=503)):
        page = visitor.open(CHAT)
        path = f"/api/v1/chats/{h.SESSION}/messages"
        for number in range(2):
            assert server.call("POST", path, {"content": f"By a poll {number}"}, token).status == 201
            expect(message(page, f"By a poll {number}")).to_be_visible()
    assert count_streams(visitor) == 2  # that of the first page, and the one that was refused


def test_stream_that_is_cut_continues(enter: Callable[..., Visit], server: Served) -> None:
    """Messages that are sent while there is no connection are shown after it."""
    visitor, token = enter("alice"), server.log_in("agent@example.com")
    visitor.expected += ("ERR_",)
    with visitor.page.expect_response("**/console/news/stream*"):
        page, path = visitor.open(CHAT), f"/api/v1/chats/{h.SESSION}/messages"
    page.wait_for_timeout(500)  # a stream that opens after the cut shows that there is a connection
    for number in range(3):
        visitor.context.set_offline(True)
        expect(page.get_by_text("No connection to the service.")).to_be_visible()
        assert server.call("POST", path, {"content": f"Meanwhile {number}"}, token).status == 201
        visitor.context.set_offline(False)
        expect(message(page, f"Meanwhile {number}")).to_have_count(1)
        expect(page.get_by_text("No connection to the service.")).to_be_hidden()


def test_nothing_is_missed_or_repeated_while_connections_are_cut(chromium: Browser, server: Served) -> None:
    token, path = server.log_in("agent@example.com"), f"/api/v1/chats/{h.SESSION}/messages"
    with closing(CuttingProxy(server.port)) as proxy, windows(chromium) as begin:
        visitor = begin(proxy)
        visitor.expected = ("401", "ERR_")  # the sign-in page; the cuts
        page = visitor.open(CHAT)
        sign_in(page, "alice@example.com")
        expect(page.get_by_label("Your message")).to_be_visible()
        with proxy.cutting(0.7):
            for number in range(20):
                assert server.call("POST", path, {"content": f"Through cuts {number}."}, token).status == 201
                page.wait_for_timeout(250)
        for number in range(20):
            expect(message(page, f"Through cuts {number}.")).to_have_count(1)
        assert proxy.cuts >= 10


def test_page_stops_polling_after_the_end_of_its_login(enter: Callable[..., Visit], server: Served) -> None:
    visitor = enter("alice")
    page, token = visitor.page, server.log_in()
    path = f"/api/v1/chats/{h.QUIET}/messages"
    other = visitor.context.new_page()
    other.goto(f"{server.url}/")
    with page.expect_response(re.compile(r"/console/news\?")) as response:
        other.get_by_role("button", name="Sign out").click()
        server.call("POST", path, {"content": {"text": "Bye"}}, token)
    assert response.value.status == 401
    before = len(visitor.requested_urls)
    server.call("POST", path, {"content": {"text": "Bye again"}}, token)
    page.wait_for_timeout(4_000)
    assert len([url for url in visitor.requested_urls[before:] if "/console/news" in url]) == 0


def test_double_click_sends_once(enter: Callable[..., Visit]) -> None:
    page = enter("alice").page
    page.goto(f"{page.url}console/chats/{h.BUSY}#end")
    page.get_by_label("Your message").fill("Only once")
    page.get_by_role("button", name="Send").dblclick()
    expect(message(page, "Only once").locator("time")).to_have_count(1)
    page.reload()
    expect(message(page, "Only once")).to_have_count(1)


def test_message_that_is_stored_during_a_reload_is_not_shown_as_unsent(enter: Callable[..., Visit]) -> None:
    visitor = enter("alice")
    page = visitor.open(f"/console/chats/{h.BUSY}#end")
    visitor.expected += ("net::ERR",)
    with visitor.without_updates(), visitor.intercept(sends_message, lose_response):
        page.get_by_label("Your message").fill("Before the reload")
        page.keyboard.press("Enter")
        expect(page.locator(".unsent.failed")).to_have_count(1)
    page.reload()
    expect(message(page, "Before the reload").locator("time")).to_have_count(1)
    expect(page.locator(".unsent")).to_have_count(0)
    assert page.evaluate("Object.keys(localStorage).filter(name => name.includes('unsent'))") == []


def test_paging_without_scripts_shows_the_next_messages(enter: Callable[..., Visit]) -> None:
    page = enter("alice", LIGHT, NARROW, java_script_enabled=False).page
    page.goto(f"{page.url}console/chats/{LONG}#end")
    expect(message(page, "line 98")).to_be_in_viewport()
    first = page.locator(".message .text").first.inner_text()
    number = int(first.removeprefix("line "))
    page.get_by_role("link", name="Older messages").click()
    expect(message(page, f"line {number - 1}").last).to_be_in_viewport()
    page.get_by_role("link", name="Newer messages").click()
    expect(message(page, f"line {number}").first).to_be_in_viewport()


@pytest.mark.parametrize("scripts", [True, False])
def test_chat_opens_at_its_newest_message(scripts: bool, enter: Callable[..., Visit]) -> None:
    page = enter("alice", LIGHT, NARROW, java_script_enabled=scripts).page
    page.goto(f"{page.url}console/chats/{LONG}")
    expect(message(page, "line 98")).to_be_in_viewport()
    page.goto(f"{page.url}?before=01JD4Q9M600000000000000000")
    expect(page.locator(".message").first).to_be_in_viewport()


def test_chat_stays_at_its_end_when_the_window_or_the_composer_changes_its_size(enter: Callable[..., Visit]) -> None:
    page = enter("alice", LIGHT, NARROW).page
    page.goto(f"{page.url}console/chats/{LONG}#end")
    newest = message(page, "line 98")
    expect(newest).to_be_in_viewport(ratio=1)
    for size in ({"width": NARROW, "height": 500}, {"width": WIDE, "height": 800}, {"width": NARROW, "height": 700}):
        page.set_viewport_size(size)  # type: ignore[arg-type]
        expect(newest).to_be_in_viewport(ratio=1)
    page.get_by_label("Your message").fill("one\ntwo\nthree\nfour\nfive\nsix\nseven")
    top = page.locator(".composer").evaluate("element => element.getBoundingClientRect().top")
    box = newest.bounding_box()
    assert box and box["y"] + box["height"] <= top
    page.evaluate("scrollTo({ top: 200, behavior: 'instant' })")
    expect(newest).not_to_be_in_viewport()
    page.set_viewport_size({"width": NARROW, "height": 800})
    expect(newest).not_to_be_in_viewport()


def test_update_that_was_requested_before_a_filter_does_not_undo_it(
    enter: Callable[..., Visit], server: Served
) -> None:
    def is_unfiltered(request: Request) -> bool:
        return is_update(request) and request.url == f"{server.url}/"

    visitor, held = enter("agent"), list[Route]()
    page = visitor.page
    page.wait_for_load_state()
    with visitor.intercept(is_unfiltered, held.append):
        with page.expect_request(is_unfiltered):
            body = {"content": {"text": "A change"}}
            server.call("POST", f"/api/v1/chats/{h.SESSION}/messages", body, server.log_in("alice@example.com"))
        page.locator("[data-filters] [name=status]").select_option("archived")
        expect(page).to_have_url(re.compile("status=archived"))
        expect(page.locator(f"#c-{h.SESSION}")).to_have_count(0)
    with page.expect_response(lambda response: "status=archived" in response.url):  # requested again
        for route in held:
            route.continue_()
    expect(page.locator(f"#c-{h.SESSION}")).to_have_count(0)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_typing_and_opening_a_menu_keep_the_scroll_position(width: int, enter: Callable[..., Visit]) -> None:
    page = enter("agent", LIGHT, width).page
    page.goto(f"{page.url}console/chats/{LONG}#end")
    expect(message(page, "line 98")).to_be_in_viewport()
    page.wait_for_load_state()
    page.evaluate("scrollTo({ top: 400, behavior: 'instant' })")
    page.get_by_label(WRITING).evaluate("field => field.focus({ preventScroll: true })")
    page.keyboard.type("A reply to an older message")
    expect(page.get_by_label(WRITING)).to_have_value("A reply to an older message")
    page.locator(".manage > summary").click()
    page.get_by_label("Snooze until").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("scrollY") == 400


@pytest.mark.parametrize("delay", [0.0, 0.5])
def test_reload_keeps_the_scroll_position(enter: Callable[..., Visit], delay: float) -> None:
    """Also if the page is shown, and scrolled to its end, before its script arrives."""
    page = enter("alice", LIGHT, NARROW).page
    page.route("**/static/chat.js", lambda route: (sleep(delay), route.continue_()))
    page.goto(f"{page.url}console/chats/{LONG}")
    expect(message(page, "line 98")).to_be_in_viewport()
    page.wait_for_load_state()
    page.evaluate("scrollTo({ top: 300, behavior: 'instant' })")
    text = page.locator(".message").nth(3).inner_text()
    page.reload()
    expect(page.locator(".message", has_text=text)).to_be_in_viewport()
    expect(message(page, "line 98")).not_to_be_in_viewport()


def test_older_messages_are_added_above(enter: Callable[..., Visit]) -> None:
    page = enter("alice", LIGHT, NARROW).page
    page.goto(f"{page.url}console/chats/{LONG}#end")
    expect(message(page, "line 98")).to_be_in_viewport()
    page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
    first = page.locator(".message .text").first
    number = int(first.inner_text().removeprefix("line "))
    before = message(page, f"line {number}").first.bounding_box()
    page.get_by_role("link", name="Older messages").click()
    expect(message(page, f"line {number - 1}")).to_have_count(1)
    after = message(page, f"line {number}").first.bounding_box()
    assert before and after and abs(before["y"] - after["y"]) < 20
    while page.get_by_role("link", name="Older messages").count():
        shown = page.locator(".message").count()
        page.get_by_role("link", name="Older messages").click()
        expect(page.locator(".message").nth(shown)).to_be_attached()
    expect(message(page, "line 0")).to_have_count(1)
    expect(message(page, "line 98")).to_have_count(1)
    assert len(page.locator(".messages .day").all_inner_texts()) == len({*page.locator(".day").all_inner_texts()})


def test_opened_message_stays_visible_after_an_action(enter: Callable[..., Visit]) -> None:
    page = enter("alice", LIGHT, NARROW).page
    page.goto(f"{page.url}console/chats/{LONG}?at=01JD4Q9M200000000000000000#m-01JD4Q9M200000000000000000")
    expect(message(page, "line 20").first).to_be_in_viewport()
    choose(page, "line 20", "Pin")
    expect(page.get_by_role("status").first).to_have_text("Pinned.")
    expect(message(page, "line 20").first).to_be_in_viewport()
    choose(page, "line 20", "Unpin")
    expect(page.get_by_text("1 pinned")).to_have_count(0)


def test_composer_stays_in_the_mode_for_private_notes(enter: Callable[..., Visit], server: Served) -> None:
    visitor, customer = enter("agent"), server.log_in()
    page = visitor.open(f"{CHAT}#end")
    public = visitor.colour(".composer")
    expect(page.get_by_label("Your message")).to_be_focused()
    page.get_by_label("Private note", exact=True).check()
    assert visitor.colour(".composer") != public
    expect(page.get_by_text("only staff can read it")).to_be_visible()
    page.get_by_label("Your private note").focus()
    for text in ("The first note", "The second note"):
        page.keyboard.type(text)
        page.keyboard.press("Enter")
    for text in ("The first note", "The second note"):
        expect(message(page, text)).to_have_class(re.compile("^message own private"))
    # The mode is in the address, so it stays after other actions.
    choose(page, "The first note", "Pin")
    expect(page.get_by_role("status")).to_have_text("Pinned.")
    for _ in range(2):
        expect(page.get_by_role("button", name="Add private note")).to_be_visible()
        assert visitor.colour(".composer") != public
        page.reload()
    choose(page, "The first note", "Delete")
    choose(page, "The second note", "Reply")
    page.get_by_role("link", name="Cancel reply").click()
    expect(page.get_by_role("link", name="Cancel reply")).to_have_count(0)
    write(page, "The third note")
    expect(message(page, "The third note")).to_have_class(re.compile("^message own private"))
    page.get_by_label("Private note", exact=True).uncheck()
    assert visitor.colour(".composer") == public
    write(page, "For the customer")
    expect(message(page, "For the customer")).to_have_class(re.compile("^message own( continued)?$"))
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    read = server.call("GET", f"/api/v1/chats/{h.SESSION}/messages?limit=100", token=customer).data
    assert [bytes(one["content"]).decode() for one in read if b"note" in bytes(one["content"])] == []


def test_composer_stays_in_the_mode_for_private_notes_without_scripts(
    enter: Callable[..., Visit], server: Served
) -> None:
    visitor = enter("agent", java_script_enabled=False)
    page = visitor.open(f"{CHAT}#end")
    public = visitor.colour(".composer")
    page.get_by_label("Private note", exact=True).check()
    assert visitor.colour(".composer") != public
    write(page, "A note without scripts")
    assert visitor.colour(".composer") != public
    choose(page, "A note without scripts", "Pin")
    expect(page.get_by_role("status")).to_have_text("Pinned.")
    page.get_by_role("link", name="Refresh").click()
    write(page, "Another without scripts")
    for text in ("A note without scripts", "Another without scripts"):
        expect(message(page, text)).to_have_class(re.compile("^message own private"))


def test_refresh_in_progress_does_not_change_the_mode_for_private_notes(enter: Callable[..., Visit]) -> None:
    customer, page = enter("alice"), enter("agent").open(f"{CHAT}?note=true#end")
    held: list[Route] = []
    page.route("**/console/chats/*note=true*", lambda route: held.append(route))
    customer.open(f"{CHAT}#end")
    write(customer.page, "Is that a note?")
    while not held:
        page.wait_for_timeout(10)
    page.get_by_label("Private note", exact=True).uncheck()
    held[0].continue_()
    choose(page, "Is that a note?", "Reply")
    expect(page.get_by_role("link", name="Cancel reply")).to_be_visible()
    expect(page.get_by_label("Private note", exact=True)).not_to_be_checked()


def test_text_typed_while_sending_is_the_next_message(enter: Callable[..., Visit]) -> None:
    page = enter("alice").page
    page.goto(f"{page.url}console/chats/{h.BUSY}#end")
    expect(page.get_by_label("Your message")).to_be_focused()
    held: list[Route] = []

    def hold_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/console/chats/*", hold_first)
    page.keyboard.type("Fluent one")
    page.keyboard.press("Enter")
    page.keyboard.type("Fluent two")
    page.keyboard.press("Enter")
    page.keyboard.type("Fluent three")
    expect(page.get_by_label("Your message")).to_have_value("Fluent three")
    held[0].continue_()
    for text in ("Fluent one", "Fluent two"):
        expect(message(page, text)).to_have_count(1)
        expect(message(page, text).locator(".text")).to_have_text(text)
    expect(page.get_by_label("Your message")).to_have_value("Fluent three")
    expect(page.get_by_label("Your message")).to_be_focused()
    expect(message(page, "Fluent two")).to_be_in_viewport()


def test_message_is_shown_before_it_is_confirmed(enter: Callable[..., Visit]) -> None:
    visitor = enter("alice")
    page = visitor.open(f"/console/chats/{h.BUSY}#end")
    held: list[Route] = []
    with visitor.intercept(sends_message, held.append):
        page.get_by_label("Your message").fill("At once")
        page.keyboard.press("Enter")
        expect(message(page, "At once")).to_contain_text("Sending")
        expect(message(page, "At once")).to_be_in_viewport()
        held[0].continue_()
    expect(message(page, "At once")).not_to_contain_text("Sending")
    expect(message(page, "At once")).to_have_count(1)
    expect(message(page, "At once").locator("time")).to_have_count(1)


def test_message_that_failed_can_be_sent_again_or_edited(enter: Callable[..., Visit]) -> None:
    visitor = enter("alice")
    page = visitor.open(f"/console/chats/{h.BUSY}#end")
    visitor.expected += ("net::ERR", "503")
    unsent = page.locator(".unsent.failed")
    for fail in (Route.abort, lambda route: route.fulfill(status=503, body="<h1>Bad gateway</h1>")):
        with visitor.intercept(sends_message, fail):
            page.get_by_label("Your message").fill("Not yet")
            page.keyboard.press("Enter")
            expect(page.get_by_role("alert")).to_contain_text("The service did not respond.")
            expect(page.get_by_role("alert")).to_be_in_viewport()
            expect(unsent).to_contain_text("Not sent.")
            expect(page.get_by_label("Your message")).to_have_value("")
        unsent.get_by_role("button", name="Edit").click()
        expect(unsent).to_have_count(0)
        expect(page.get_by_label("Your message")).to_have_value("Not yet")
    with visitor.intercept(sends_message, Route.abort):
        page.keyboard.press("Enter")
        expect(unsent).to_have_count(1)
    page.reload()  # nothing is lost
    expect(unsent).to_contain_text("Not yet")
    unsent.get_by_role("button", name="Try again").click()
    expect(message(page, "Not yet").locator("time")).to_have_count(1)
    expect(page.locator(".unsent")).to_have_count(0)
    expect(page.get_by_role("alert")).to_have_count(0)
    # After the end of the login, the page shows an error and keeps the message.
    other = visitor.context.new_page()
    other.goto(page.url.partition("/console")[0])
    other.get_by_role("button", name="Sign out").click()
    expect(other.get_by_role("heading", level=1)).to_have_text("Sign in")
    page.get_by_label("Your message").fill("Later")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Sign in again in another tab")
    expect(unsent).to_contain_text("Later")


def test_message_whose_response_was_lost_is_stored_once(enter: Callable[..., Visit]) -> None:
    visitor = enter("alice")
    page = visitor.open(f"/console/chats/{h.BUSY}#end")
    visitor.expected += ("net::ERR",)
    with visitor.without_updates():
        with visitor.intercept(sends_message, lose_response):
            page.get_by_label("Your message").fill("Sent and unconfirmed")
            page.keyboard.press("Enter")
            expect(page.locator(".unsent.failed")).to_have_count(1)
        page.locator(".unsent").get_by_role("button", name="Try again").click()
        expect(page.locator(".unsent")).to_have_count(0)
    expect(message(page, "Sent and unconfirmed")).to_have_count(1)


def test_stored_message_whose_response_was_lost_is_confirmed_by_an_update(
    enter: Callable[..., Visit], server: Served
) -> None:
    visitor, token = enter("alice"), server.log_in("agent@example.com")
    page = visitor.open(f"/console/chats/{h.BUSY}#end")
    visitor.expected += ("net::ERR",)
    with visitor.without_updates(), visitor.intercept(sends_message, lose_response):
        page.get_by_label("Your message").fill("Stored and unconfirmed")
        page.keyboard.press("Enter")
        expect(page.locator(".unsent.failed")).to_have_count(1)
    server.call("POST", f"/api/v1/chats/{h.BUSY}/messages", {"content": {"text": "An update"}}, token)
    expect(message(page, "An update")).to_have_count(1)
    expect(page.locator(".unsent")).to_have_count(0)
    expect(message(page, "Stored and unconfirmed")).to_have_count(1)


def test_text_of_the_composer_is_kept_for_each_chat_until_signing_out(enter: Callable[..., Visit]) -> None:
    page = enter("alice").page
    base = page.url
    field = page.get_by_label("Your message")
    for chat, text in ((h.BUSY, "Half a thought"), (LONG, "Another half")):
        page.goto(f"{base}console/chats/{chat}#end")
        field.fill(text)
    for chat, text in ((h.BUSY, "Half a thought"), (LONG, "Another half")):
        page.goto(f"{base}console/chats/{chat}#end")
        expect(field).to_have_value(text)
    field.fill("Sent now")
    page.keyboard.press("Enter")
    expect(message(page, "Sent now").locator("time")).to_have_count(1)
    page.reload()
    expect(field).to_have_value("")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    assert page.evaluate("Object.keys(localStorage).filter(name => name.startsWith('user:'))") == []


def test_lost_connection_is_shown_and_messages_are_sent_when_it_is_back(enter: Callable[..., Visit]) -> None:
    visitor = enter("alice")
    page = visitor.open(f"/console/chats/{h.BUSY}#end")
    visitor.expected += ("net::ERR",)
    notice = page.get_by_text("No connection to the service.")
    expect(notice).to_be_hidden()
    visitor.context.set_offline(True)
    expect(notice).to_be_visible()
    page.get_by_label("Your message").fill("From a tunnel")
    page.keyboard.press("Enter")
    expect(page.locator(".unsent.failed")).to_contain_text("From a tunnel")
    visitor.context.set_offline(False)
    expect(message(page, "From a tunnel").locator("time")).to_have_count(1)
    expect(page.locator(".unsent")).to_have_count(0)
    expect(notice).to_be_hidden()


def test_new_messages_are_counted_while_the_reader_is_above(enter: Callable[..., Visit], server: Served) -> None:
    visitor, token = enter("alice"), server.log_in("agent@example.com")
    page = visitor.open(f"/console/chats/{LONG}#end")
    expect(message(page, "line 98")).to_be_in_viewport()
    page.evaluate("scrollTo({ top: 200, behavior: 'instant' })")
    for number, label in ((1, "1 new message"), (2, "2 new messages")):
        server.call("POST", f"/api/v1/chats/{LONG}/messages", {"content": {"text": f"Below {number}"}}, token)
        expect(page.get_by_role("button", name=label)).to_be_visible()
    page.get_by_role("button", name="2 new messages").click()
    expect(message(page, "Below 2")).to_be_in_viewport()
    expect(page.locator("[data-new-messages]")).to_be_hidden()
    server.call("POST", f"/api/v1/chats/{LONG}/messages", {"content": {"text": "Below 3"}}, token)
    expect(message(page, "Below 3")).to_be_in_viewport()
    expect(page.locator(".unread-divider + li")).to_contain_text("Below 1")


def test_unread_messages_begin_at_a_line(enter: Callable[..., Visit], server: Served) -> None:
    customer, token = server.log_in(), server.log_in("agent@example.com")
    chat = server.call("POST", "/api/v1/chats", {"app_id": h.SHOP}, customer).data["id"]
    path = f"/api/v1/chats/{chat}/messages"
    server.call("POST", path, {"content": {"text": "My own"}}, customer)
    for text in ("Unread one", "Unread two"):
        server.call("POST", path, {"content": {"text": text}}, token)
    page = enter("alice").open(f"/console/chats/{chat}#end")
    rows = page.locator(".messages > li:not(.day)")
    expect(rows.nth(1)).to_have_text("New messages")
    expect(rows.nth(2)).to_contain_text("Unread one")
    expect(page.locator("form[data-mark-read]")).to_have_count(0)  # read now, and the line stays
    server.call("POST", path, {"content": {"text": "While reading"}}, token)
    expect(message(page, "While reading")).to_have_count(1)
    expect(rows.nth(1)).to_have_text("New messages")
    expect(page.locator(".unread-divider")).to_have_count(1)
    write(page, "An answer")
    expect(page.locator(".unread-divider")).to_have_count(0)
    page.reload()
    expect(page.locator(".unread-divider")).to_have_count(0)


def test_list_stays_beside_the_chat_on_wide_screens(enter: Callable[..., Visit], server: Served) -> None:
    visitor, token = enter("agent", LIGHT, WIDE), server.log_in()
    page = visitor.page
    expect(page.get_by_text("Choose a chat from the list.")).to_be_visible()
    page.get_by_label("Show").select_option("all")
    expect(page).to_have_url(re.compile(r"/\?status=all$"))
    page.locator(f"#c-{LONG} a").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Chat with Alice")
    beside = page.get_by_role("navigation", name="Chats")
    expect(beside.locator(".chats [aria-current]")).to_have_count(1)
    expect(beside.get_by_label("Show")).to_have_value("all")
    # The list shows changes of other chats, and its filters do not change the chat.
    server.call("POST", f"/api/v1/chats/{h.BUSY}/messages", {"content": {"text": "Over here!"}}, token)
    expect(beside.locator("li").first).to_contain_text("Over here!")
    page.get_by_label("Your message").fill("My text")
    beside.get_by_label("Show").select_option("archived")
    expect(page).to_have_url(re.compile("status=archived"))
    expect(beside.locator(f"#c-{h.BUSY}")).to_have_count(0)
    expect(page.get_by_label("Your message")).to_have_value("My text")
    page.set_viewport_size({"width": NARROW, "height": 800})
    expect(beside).to_be_hidden()
    page.get_by_role("link", name="Back to the inbox").click()
    expect(page).to_have_url(re.compile(r"/\?status=archived$"))


def test_updates_do_not_focus_the_composer(enter: Callable[..., Visit], server: Served) -> None:
    page = enter("agent", LIGHT, WIDE).open(f"{CHAT}#end")
    field = page.get_by_label("Your message")
    expect(field).to_be_focused()
    field.blur()
    text = {"content": {"text": "While you read"}}
    server.call("POST", f"/api/v1/chats/{CHAT.rpartition('/')[2]}/messages", text, server.log_in())
    expect(message(page, "While you read")).to_be_visible()
    expect(page.locator("form[data-mark-read]")).to_have_count(0)
    expect(page.locator("body")).to_be_focused()
    page.keyboard.press("r")
    expect(field).to_be_focused()
    expect(field).to_have_value("")


def test_keyboard_shortcuts(enter: Callable[..., Visit]) -> None:
    page = enter("agent", LIGHT, WIDE).page
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_contain_text("Next chat")
    dialog.get_by_role("button", name="Close").click()
    links = page.locator(".chats a")
    page.keyboard.press("j")
    expect(links.nth(0)).to_be_focused()
    page.keyboard.press("j")
    expect(links.nth(1)).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("Chat with"))
    page.wait_for_load_state()
    current = page.locator(".chats [aria-current]")
    address = str(current.get_attribute("href"))
    page.locator("h1").click()
    page.get_by_label("Your message").blur()
    page.keyboard.press("j")
    expect(page).not_to_have_url(re.compile(re.escape(address.partition("#")[0])))
    page.wait_for_load_state()
    page.get_by_label("Your message").blur()
    page.keyboard.press("k")
    expect(page).to_have_url(re.compile(re.escape(address.partition("#")[0])))
    page.wait_for_load_state()
    page.get_by_label("Your message").blur()
    page.keyboard.press("r")
    expect(page.get_by_label("Your message")).to_be_focused()
    page.keyboard.type("njk?")  # in a field, they are text
    expect(page.get_by_label("Your message")).to_have_value("njk?")
    page.get_by_label("Your message").fill("")
    page.get_by_label("Your message").blur()
    page.keyboard.press("n")
    expect(page.get_by_label("Your private note")).to_be_focused()
    page.get_by_label("Your private note").blur()
    page.keyboard.press("?")
    dialog.get_by_label("Use keyboard shortcuts").uncheck()
    dialog.get_by_role("button", name="Close").click()
    page.keyboard.press("/")
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("Chat with"))
    page.get_by_role("button", name="Keyboard shortcuts").click()
    dialog.get_by_label("Use keyboard shortcuts").check()
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("heading", level=1).click()
    page.keyboard.press("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Search")
    expect(page.get_by_label("Text in your messages")).to_be_focused()


def test_canned_reply_is_inserted_with_the_keyboard(enter: Callable[..., Visit], server: Served) -> None:
    visitor = enter("agent", LIGHT, WIDE, reduced_motion="reduce")
    page = visitor.open(f"{CHAT}#end")
    with visitor.intercept(lambda request: "prefix=" in request.url, lambda route: route.fulfill(body="")):
        page.locator("[data-canned-replies]").click()  # as if there were none
        expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("Canned replies"))
    token = server.log_in("agent@example.com")
    for shortcut, text in (("shipping", "It ships today."), ("shop", "We are open\nfrom nine to five.")):
        body = {"shortcut": shortcut, "text": text}
        server.call("POST", f"/api/v1/apps/{h.SHOP}/canned-replies", body, token)
    visitor.open(f"{CHAT}#end")
    field, options = page.get_by_label("Your message"), page.locator("#canned-replies li")
    expect(field).to_have_value("")
    field.press_sequentially("/sh")
    expect(options).to_have_text([re.compile("/shipping It ships today"), re.compile("/shop We are open")])
    expect(page.locator("#canned-replies [aria-selected=true]")).to_contain_text("/shipping")
    visitor.check_accessibility([(LIGHT, WIDE), (DARK, NARROW)])
    field.press("ArrowDown")
    field.press("Enter")
    expect(field).to_have_value("We are open\nfrom nine to five.")
    expect(options).to_have_count(0)
    field.fill("")
    page.get_by_role("link", name="Canned replies").click()
    expect(options.first).to_be_visible()
    page.keyboard.press("Escape")
    expect(options).to_have_count(0)
    expect(field).to_have_value("/")
    field.fill("/shi")
    page.get_by_role("option", name="/shipping").click()
    expect(field).to_have_value("It ships today.")
    expect(field).to_be_focused()
    page.keyboard.press("Enter")
    expect(message(page, "It ships today.").locator("time")).to_have_count(1)
    field.fill("/unknown")
    expect(options).to_have_count(0)
    page.keyboard.press("Enter")  # without a match, it is a text
    expect(message(page, "/unknown").locator("time")).to_have_count(1)


def test_times_are_in_the_time_zone_of_the_browser(enter: Callable[..., Visit]) -> None:
    for zone, time in (("Europe/Berlin", "13:02"), ("America/New_York", "07:02")):  # 12:02 in UTC
        visitor = enter("agent", timezone_id=zone)
        expect(visitor.page.locator("#main")).to_have_attribute("data-timezone", zone)  # after the page was reloaded
        visitor.page.wait_for_load_state()
        page = visitor.open(f"{CHAT}?at={h.HELLO}")
        expect(page.locator(f"#m-{h.HELLO} time").first).to_have_text(time)
    page = enter("ada", timezone_id="America/New_York").open(f"{CHAT}?at={h.HELLO}")
    expect(page.locator(f"#m-{h.HELLO} time").first).to_have_text("21:02")  # in Tokyo, as in the profile


def test_customer_is_shown_to_staff(enter: Callable[..., Visit]) -> None:
    page = enter("agent", LIGHT, 1500).open(f"{CHAT}#end")
    details = page.locator(".customer-details")
    details.locator("summary").click()
    expect(details.get_by_role("link", name="alice@example.com")).to_be_visible()
    for text in ("Other chats", "Next events", "Data shares for this chat"):
        expect(details).to_contain_text(text)
    panel, conversation = (page.locator(name).bounding_box() for name in (".customer-details .panel", ".messages"))
    assert panel and conversation and panel["x"] >= conversation["x"] + conversation["width"]  # beside the messages
    page.reload()
    expect(details.get_by_role("link", name="alice@example.com")).to_be_visible()  # stays open
    details.evaluate("""async details => {
      const toggled = new Promise(resolve => details.addEventListener("toggle", resolve));
      details.querySelector("summary").click();
      await toggled;  // the page stores the state at this event, which the browser sends later
    }""")
    page.reload()
    expect(details.get_by_role("link", name="alice@example.com")).to_be_hidden()
    customer = enter("alice").open(f"{CHAT}#end")
    expect(customer.locator(".customer-details")).to_have_count(0)


def test_menu_of_a_chat_follows_its_assignee(enter: Callable[..., Visit]) -> None:
    page, other = (enter(name).open(f"{CHAT}#end") for name in ("agent", "ada"))
    manage = page.locator(".manage")
    take_over, give_back = (
        page.get_by_role("button", name=name) for name in ("Take over the chat", "Give back to the bot")
    )
    expect(give_back).to_have_count(0)
    expect(page.get_by_text("The bot replies until a person takes over.")).to_be_visible()
    take_over.click()
    expect(page.locator("[data-part=status]")).to_contain_text("assigned to")
    expect(page.get_by_text("The bot replies until a person takes over.")).to_have_count(0)
    manage.locator("summary").click()
    expect(take_over).to_have_count(0)
    give_back.click()
    expect(page.locator("[data-part=status]")).not_to_contain_text("assigned to")
    manage.locator("summary").click()
    manage.get_by_label("Snooze until").fill("2099-01-01T10:00")
    other.get_by_role("button", name="Take over the chat").click()
    expect(page.locator("[data-part=status]")).to_contain_text("assigned to")
    expect(manage.get_by_label("Snooze until")).to_have_value("2099-01-01T10:00")  # kept while the menu is open
    manage.locator("summary").click()
    manage.locator("summary").click()
    give_back.click()
    expect(other.locator("[data-part=status]")).not_to_contain_text("assigned to")


def test_deletion_is_confirmed_and_keeps_the_scroll_position(enter: Callable[..., Visit]) -> None:
    page = enter("alice").page
    page.goto(f"{page.url}console/chats/{LONG}?at=01JD4Q9M600000000000000000#m-01JD4Q9M600000000000000000")
    beside = message(page, "line 62").last
    beside.evaluate("element => element.scrollIntoView({ block: 'center' })")
    menu = message(page, "line 61").last.locator(".action-menu > summary")
    menu.focus()
    top = beside.bounding_box()
    page.keyboard.press("Enter")
    for _ in range(4):  # past Reply, Edit and Pin
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(message(page, "line 61")).to_have_count(1)  # not confirmed yet
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Delete message").locator("visible=true")).to_be_focused()
    page.keyboard.press("Enter")
    expect(message(page, "line 61")).to_have_count(0)
    expect(page.get_by_role("status")).to_have_text("Deleted.")
    expect(page.get_by_role("status").locator("p")).to_be_in_viewport(ratio=1)
    expect(beside.locator(".action-menu > summary")).to_be_focused()
    after = beside.bounding_box()
    assert top and after and abs(top["y"] - after["y"]) < 150  # of 900 pixels
    expect(message(page, "line 86")).to_have_count(0)  # the page shows the same messages as before


def test_deletion_keeps_the_scroll_position_without_scripts(enter: Callable[..., Visit]) -> None:
    page = enter("alice", java_script_enabled=False).page
    page.goto(f"{page.url}console/chats/{LONG}?at=01JD4Q9M500000000000000000#m-01JD4Q9M500000000000000000")
    choose(page, "line 51", "Delete")
    expect(message(page, "line 51")).to_have_count(0)
    for text in ("line 50", "line 52"):
        expect(message(page, text)).to_be_in_viewport()
    expect(page.get_by_role("status").locator("p")).to_be_in_viewport(ratio=1)


def test_status_messages_are_shown_at_the_scroll_position(enter: Callable[..., Visit]) -> None:
    page = enter("alice").page
    page.goto(f"{page.url}console/chats/{LONG}#end")
    message(page, "line 90").last.evaluate(
        "element => element.scrollIntoView({ block: 'center', behavior: 'instant' })"
    )
    for action, status in (("Pin", "Pinned."), ("Unpin", "Unpinned.")):
        before = page.evaluate("scrollY")
        choose(page, "line 90", action)
        expect(page.get_by_role("status")).to_have_text(status)
        expect(page.get_by_role("status").locator("p")).to_be_in_viewport(ratio=1)
        assert abs(page.evaluate("scrollY") - before) < 150
    page.goto(f"{page.url.partition('/console')[0]}/console/settings")
    page.get_by_role("button", name="Save preferences").click()
    expect(page.get_by_role("status").locator("p")).to_be_in_viewport(ratio=1)
    expect(page.locator("[data-announcer]")).to_have_text("Saved.")


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_fields_stay_inside_their_column(width: int, enter: Callable[..., Visit]) -> None:
    page = enter("alice", LIGHT, width).page
    for path in ("events", "settings", "shares", "account"):
        page.goto(f"{page.url.partition('/console')[0].rstrip('/')}/console/{path}")
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        for field in page.locator("main :is(.form > label > :is(input, select, textarea))").all():
            column, own = field.locator("..").bounding_box(), field.bounding_box()
            assert column and own
            assert own["x"] >= column["x"] - 0.5, path
            assert own["x"] + own["width"] <= column["x"] + column["width"] + 0.5, path
    clients = page.locator("main > :is(ul.list, .empty-state)")
    password = page.locator("form.panel", has=page.get_by_role("heading", name="Change your password"))
    above, below = clients.bounding_box(), password.bounding_box()
    assert above and below
    assert below["y"] - (above["y"] + above["height"]) >= 16


def test_sign_in_form_keeps_the_email_address(visit: Callable[..., Visit]) -> None:
    visitor = visit()
    visitor.expected = ("401",)
    page = visitor.open("/")
    page.get_by_label("E-mail address").fill("alice@example.com")
    page.get_by_label("Password").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_label("E-mail address")).to_have_value("alice@example.com")
    expect(page.get_by_label("Password")).to_be_focused()
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()


@WINDOWS
def test_calendar_address_is_created_copied_and_revoked(
    enter: Callable[..., Visit], windows: list[tuple[str, int]]
) -> None:
    visitor = enter("alice")
    page = visitor.page
    go(page, "Events")
    page.get_by_text("Subscribe in a calendar program").click()
    page.get_by_role("button", name="Create a calendar address").click()
    expect(page.get_by_label("Calendar address")).to_have_value(re.compile(r"/api/v1/events\.ics\?token=cxf_"))
    page.get_by_role("button", name="Copy address").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    page.get_by_text("End the subscription").click()
    visitor.check_accessibility(windows)
    page.get_by_role("button", name="Revoke the calendar address").click()
    expect(page.locator(".toast.success")).to_have_text("Calendar address revoked.")
    expect(page.get_by_label("Calendar address")).to_have_count(0)


@WINDOWS
def test_credential_of_a_server_is_added_copied_replaced_and_revoked(
    enter: Callable[..., Visit], windows: list[tuple[str, int]]
) -> None:
    visitor = enter("ada")
    page = visitor.page
    go(page, "Server credentials", "Credentials of MCP servers")
    page.get_by_role("textbox", name="Name").fill("Gateway " * 20)
    page.get_by_role("textbox", name="Server").fill("https://mcp.example/" + "x" * 200)
    page.get_by_role("button", name="Add credential").click()
    secret = page.get_by_label("Client secret", exact=True)
    expect(secret).to_have_value(re.compile("^cxm_"))
    page.get_by_role("button", name="Copy Client secret").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    first = secret.input_value()
    page.get_by_text("Replace secret").click()
    visitor.check_accessibility(windows)
    page.get_by_label("End the previous secret now").check()
    page.get_by_role("button", name="Create a new secret").click()
    expect(page.locator(".toast.success")).to_have_text("Secret replaced.")
    expect(secret).not_to_have_value(first)
    page.get_by_text("Revoke", exact=True).click()
    page.get_by_role("button", name="Revoke credential").click()
    expect(page.locator(".toast.success")).to_have_text("Credential revoked.")
    expect(page.get_by_text("No MCP server has a credential.")).to_be_visible()


def test_credential_of_a_server_is_added_without_scripts(enter: Callable[..., Visit]) -> None:
    page = enter("ada", java_script_enabled=False).page
    go(page, "Server credentials", "Credentials of MCP servers")
    page.get_by_role("textbox", name="Name").fill("Gateway")
    page.get_by_role("textbox", name="Server").fill("files")
    page.get_by_role("button", name="Add credential").click()
    expect(page.get_by_label("Client secret", exact=True)).to_have_value(re.compile("^cxm_"))
    expect(page.get_by_role("button", name="Copy Client secret")).to_have_count(0)
    page.get_by_text("Revoke", exact=True).click()
    page.get_by_role("button", name="Revoke credential").click()
    expect(page.get_by_text("No MCP server has a credential.")).to_be_visible()


def test_calendar_address_is_created_without_scripts(enter: Callable[..., Visit]) -> None:
    page = enter("ada", java_script_enabled=False).page
    go(page, "Events")
    page.get_by_text("Subscribe in a calendar program").click()
    page.get_by_role("button", name="Create a calendar address").click()
    expect(page.get_by_label("Calendar address")).to_have_value(re.compile("token=cxf_"))
    expect(page.get_by_role("button", name="Copy address")).to_have_count(0)


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_screenshot_is_sent_with_feedback(enter: Callable[..., Visit], tmp_path: Path, scripts: bool) -> None:
    file, text = tmp_path / "shot.png", f"The button is hidden ({scripts})"
    file.write_bytes(h.picture())
    page = enter("alice", java_script_enabled=scripts).page
    go(page, "Feedback")
    page.get_by_label("Message").fill(text)
    page.get_by_label("Screenshot (optional)").set_input_files(file)
    page.get_by_role("button", name="Send feedback").click()
    thumbnail = page.get_by_role("img", name=f"Screenshot of “{text}”")
    expect(thumbnail).to_be_visible()
    assert page.request.get(page.url.partition("/console")[0] + str(thumbnail.get_attribute("src"))).ok


def test_screenshot_that_is_too_large_is_reported_before_the_form_is_sent(
    enter: Callable[..., Visit], tmp_path: Path
) -> None:
    file = tmp_path / "large.png"
    file.write_bytes(h.picture() + bytes(5 * 1024 * 1024))
    page = enter("alice").page
    go(page, "Feedback")
    page.get_by_label("Message").fill("Too large")
    field = page.get_by_label("Screenshot (optional)")
    field.set_input_files(file)
    page.get_by_role("button", name="Send feedback").click()
    assert field.evaluate("field => field.validationMessage") == "The file is larger than 5 MiB."
    expect(page.get_by_label("Message")).to_have_value("Too large")
    field.set_input_files([])
    page.get_by_role("button", name="Send feedback").click()
    expect(page.locator(".toast.success")).to_have_text("Thank you! Your feedback has arrived.")
