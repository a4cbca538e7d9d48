"""The console in a real browser: working days, with the keyboard and the mouse, in every size and colour."""

import re
from collections.abc import Callable, Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, Route, expect

from tests import household as h
from tests.browser import DARK, LIGHT, NARROW, WIDE, Visit, visit_fixture  # noqa: F401
from tests.conftest import PASSWORD, PASSWORD_HASH
from tests.serving import Record, Served, fill, serving

pytestmark = pytest.mark.slow

ADA = {"id": h.uuid(14), "email": "ada@example.com", "first_name": "Ada", "role": "admin", "timezone": "Asia/Tokyo"}
LONG = h.uuid(35)  # a chat session with many messages
RTL = "שלום! איפה החבילה שלי? أين الطرد؟"
EVERYWHERE = [(colours, width) for colours in (LIGHT, DARK) for width in (WIDE, NARROW)]
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
        "Data shares": "/console/shares",
        "Feedback": "/console/feedback",
        "Settings": "/console/settings",
        "Your picture": "/console/picture",
        "Account": "/console/account",
    },
    "ada": {
        "Inbox": "/?status=open",
        "Chat with Alice": f"{CHAT}#end",
        "Bot catalogue": f"/console/catalogue?app_id={h.SHOP}",
        "Feedback": "/console/feedback?everybody=true",
        "Events": "/console/events",
        "Bots": "/console/bots?search=nobody",
        "Page not found": f"/console/chats/{h.NOBODY}",
        "This request cannot be answered": "/?cursor=x",
        "This address does not open as a page": "/sign-out",
    },
}


def people() -> list[Record]:
    """The household, an admin, and a chat too long for one page."""
    said = [
        {"id": f"01JD4Q9M{number:02}0000000000000000", "text": f"line {number}", "chat_session_id": LONG}
        for number in range(99)
    ]
    said[40]["text"] = f"{RTL} {'long' * 200}"
    return [
        *h.records(),
        {"user": {**ADA, "password_hash": PASSWORD_HASH}},
        {"chat_session": {"id": LONG, "app_id": h.SHOP, "user_id": h.ALICE}},
        *({"message": {**one, "sender_id": h.ALICE}} for one in said),
    ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("console") / "data"
    fill(data, people())
    with serving(data, "--verify-answers") as running:
        yield running
        assert "Traceback" not in running.errors


@pytest.fixture
def enter(visit: Callable[..., Visit]) -> Callable[..., Visit]:
    """Somebody signs in and is at the inbox."""

    def sign_in(name: str, *how: object, **more: object) -> Visit:
        guest = visit(*how, **more)
        guest.expected = ("401",)  # of the first page, which asks to sign in
        page = guest.open("/")
        page.get_by_label("E-mail address").fill(f"{name}@example.com")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_label("Password").press("Enter")
        expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
        return guest

    return sign_in


def go(page: Page, name: str) -> None:
    """Follow a link of the menu, which is beside the page."""
    page.get_by_role("navigation", name="Console").get_by_role("link", name=name).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)


def message(page: Page, text: str) -> Locator:
    return page.get_by_role("listitem").filter(has=page.locator(".bubble", has_text=text))


def choose(page: Page, text: str, what: str) -> None:
    """Do something with a message, from its menu."""
    one = message(page, text)
    one.locator(".more > summary").click()
    if what == "Delete":
        one.locator(".ask > summary").click()
        what = "Delete message"
    one.get_by_role("link" if what in ("Reply", "Edit") else "button", name=what, exact=True).click()


def write(page: Page, text: str) -> None:
    page.get_by_label(WRITING).fill(text)
    page.get_by_role("button", name=re.compile("Send|Add private note")).click()
    expect(message(page, text)).to_be_visible()


def test_a_working_day_of_a_customer(enter: Callable[..., Visit], server: Served) -> None:
    guest = enter("alice")
    page = guest.page
    # She begins a chat with a bot, in two languages, and changes her mind.
    go(page, "Bots")
    page.get_by_label("Name or description").fill("hild")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("button", name="Chat with Hilda").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Chat with Hilda")
    write(page, RTL)
    expect(message(page, RTL).locator(".words")).to_have_css("direction", "rtl")
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
    # She finds it again.
    go(page, "Search")
    page.get_by_label("Words in your chats").fill("החבילה")
    page.keyboard.press("Enter")
    page.get_by_role("main").get_by_role("listitem").first.get_by_role("link").click()
    expect(message(page, RTL)).to_be_in_viewport()
    # Events, grants, feedback.
    go(page, "Events")
    page.get_by_label("Title").fill("Tea with Bob")
    page.get_by_label("Starts").fill("2990-07-01T10:00")
    page.get_by_label("Ends").fill("2990-07-01T09:00")
    page.get_by_role("button", name="Add event").click()
    expect(page.get_by_role("alert")).to_contain_text("expected no time before the start")
    guest.complaints.clear()  # 400
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
    expect(page.get_by_text("calendar.example")).to_be_visible()
    go(page, "Feedback")
    page.get_by_label("Your words").fill("Everything in its place.")
    page.get_by_role("button", name="Send feedback").click()
    expect(page.get_by_role("status")).to_contain_text("Thank you!")
    # Her picture, her settings, her other login.
    go(page, "Settings")
    page.get_by_role("link", name="Change your picture").click()
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
    assert guest.colour("body") == "rgb(22, 24, 27)"
    page.get_by_label("Theme").select_option("system")
    page.get_by_role("button", name="Save preferences").click()
    token = server.log_in()
    go(page, "Account")
    page.get_by_role("main").get_by_role("button", name="End the login").first.click()
    expect(page.get_by_role("status")).to_have_text("Session signed out.")
    assert server.call("GET", "/api/v1/users/me", token=token).status == 401
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")


def test_a_working_day_of_an_agent(enter: Callable[..., Visit]) -> None:
    customer, guest = enter("alice"), enter("agent")
    customer.open(f"{CHAT}#end")
    write(customer.page, "My lamp is broken.")
    page = guest.page
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
    answer = message(page, "A new one is on its way.")
    expect(answer.locator("blockquote")).to_have_text("My lamp is broken.")
    # Another chat has ended meanwhile, as the customer is told.
    page.get_by_text("Manage").click()
    page.get_by_role("button", name="End the chat").click()
    expect(page.get_by_role("status")).to_have_text("Chat ended.")
    customer.open("/console/notifications")
    expect(customer.page.get_by_role("link", name="Your chat is resolved")).to_be_visible()
    customer.open(f"{CHAT}#end")
    expect(message(customer.page, "A new one is on its way.")).to_contain_text("Sorry!")
    expect(message(customer.page, "She has a warranty.")).to_have_count(0)
    # It is read by being seen.
    expect(customer.page.locator("form[data-read]")).to_have_count(0)
    customer.open("/console/notifications?unread_only=true")
    expect(customer.page.get_by_text("A new one is on its way.")).to_have_count(0)
    # The catalogue.
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


def test_admins_work_through_feedback(enter: Callable[..., Visit]) -> None:
    page = enter("ada").page
    go(page, "Feedback")
    page.get_by_role("link", name="Everybody’s").click()
    page.get_by_label("Status of “Fine”").select_option("in_progress")
    page.get_by_role("button", name="Save the status of “Fine”").click()
    expect(page.locator(".line", has_text="Fine").first).to_contain_text("in progress")


@pytest.mark.parametrize("who", PAGES)
def test_every_page_is_for_everybody(who: str, enter: Callable[..., Visit]) -> None:
    """In light and dark, on a phone and a desktop: nothing that axe-core knows of stands in anybody's way."""
    guest = enter(who, reduced_motion="reduce")  # a button that still changes its colour would be found too pale
    guest.expected = ("400", "401", "404", "405")
    for heading, path in PAGES[who].items():
        guest.open(path)
        expect(guest.page.get_by_role("heading", level=1)).to_have_text(heading)
        for colours, width in EVERYWHERE:
            guest.page.emulate_media(color_scheme=colours)
            guest.page.set_viewport_size({"width": width, "height": 844})
            found = Axe().run(guest.page).response
            faults = [f"{fault['id']}: {fault['help']}: {fault['nodes'][0]['html']}" for fault in found["violations"]]
            assert not faults, (path, colours, width)
            assert len(found["passes"]) > 10
            assert not guest.is_too_wide(), (path, width)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_everything_works_without_scripts(width: int, enter: Callable[..., Visit]) -> None:
    page = enter("alice", LIGHT, width, java_script_enabled=False).page
    page.get_by_role("main").get_by_role("link", name="Hilda").first.click()
    words = f"Without scripts, {width} wide"
    page.get_by_label("Your message").fill(words)
    page.get_by_role("button", name="Send").click()
    expect(message(page, words)).to_be_visible()
    choose(page, words, "Reply")
    page.get_by_label("Your message").fill(f"An answer, {width}")
    page.get_by_role("button", name="Send").click()
    expect(message(page, f"An answer, {width}").locator("blockquote")).to_have_text(words)
    choose(page, f"An answer, {width}", "Delete")
    expect(message(page, f"An answer, {width}")).to_have_count(0)
    page.get_by_text("Manage").click()
    page.get_by_label("Status").select_option("snoozed")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_role("status")).to_have_text("Status changed.")
    page.wait_for_load_state()  # before its styles are there, other links are visible
    if width == NARROW:
        page.get_by_role("button", name="Menu").click()
    page.get_by_role("link", name="Notifications").last.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Notifications")


def test_the_keyboard_is_enough(enter: Callable[..., Visit]) -> None:
    page = enter("alice", LIGHT, NARROW).page
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
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
    page.locator(".message .more > summary").last.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".ask > summary").last).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".ask > summary").last).to_be_hidden()
    expect(page.locator(".message .more > summary").last).to_be_focused()


def test_an_open_chat_shows_what_is_new(enter: Callable[..., Visit], server: Served) -> None:
    guest, token = enter("alice"), server.log_in("agent@example.com")
    page = guest.page
    guest.open(f"/console/chats/{LONG}#end")
    page.get_by_label("Your message").fill("Half a sen")
    page.keyboard.press("Home")
    page.locator(".message .more").last.evaluate("menu => menu.open = true")
    opened = len([url for url in guest.asked if url.endswith(f"/chats/{LONG}")])
    path = f"/api/v1/chats/{LONG}/messages"
    sent = server.call("POST", path, {"content": {"text": "A lamp for you"}}, token).data
    expect(message(page, "A lamp for you")).to_be_in_viewport()
    expect(page.locator("[data-heard]")).to_contain_text("A lamp for you")
    # It is read by being seen, and what she was doing goes on.
    expect(page.locator("form[data-read]")).to_have_count(0)
    expect(page.get_by_label("Your message")).to_have_value("Half a sen")
    expect(page.get_by_label("Your message")).to_be_focused()
    page.keyboard.type("Not ")
    expect(page.get_by_label("Your message")).to_have_value("Not Half a sen")
    expect(page.locator(".message .more[open]")).to_have_count(1)
    expect(message(page, "line 60")).to_have_count(1)  # is older than what the page would show by now
    assert len([url for url in guest.asked if url.endswith(f"/chats/{LONG}")]) > opened
    # Other words, and a deletion, while she reads above: nothing moves.
    page.evaluate("scrollTo(0, 300)")
    server.call("PATCH", f"{path}/{sent['id']}", {"content": {"text": "A table for you"}}, token)
    expect(message(page, "A table for you")).to_have_count(1)
    expect(message(page, "A lamp for you")).to_have_count(0)
    second = server.call("POST", path, {"content": {"text": "And a chair"}}, token).data
    expect(message(page, "And a chair")).to_have_count(1)
    expect(message(page, "And a chair")).not_to_be_in_viewport()
    assert page.evaluate("scrollY") == 300
    expect(page.locator("form[data-read]")).to_have_count(1)
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    expect(page.locator("form[data-read]")).to_have_count(0)
    for one in (sent, second):
        server.call("DELETE", f"{path}/{one['id']}", token=token)
    expect(message(page, "for you")).to_have_count(0)
    expect(message(page, "And a chair")).to_have_count(0)
    # What has been put in place later works like the rest.
    page.keyboard.press("Escape")
    choose(page, "line 98", "Reply")
    expect(page.get_by_label("Your message")).to_be_focused()


def test_a_first_message_is_shown(enter: Callable[..., Visit], server: Served) -> None:
    guest, token = enter("alice"), server.log_in("agent@example.com")
    customer = server.log_in("alice@example.com")
    made = server.call("POST", "/api/v1/chats", {"app_id": h.SHOP}, customer).data["id"]
    page = guest.open(f"/console/chats/{made}")
    expect(page.get_by_text("No messages")).to_be_visible()
    server.call("POST", f"/api/v1/chats/{made}/messages", {"content": {"text": "Welcome!"}}, token)
    expect(message(page, "Welcome!")).to_be_visible()
    expect(page.get_by_text("No messages")).to_have_count(0)
    server.call("DELETE", f"/api/v1/chats/{made}", token=customer)
    expect(page.get_by_text("This chat is archived")).to_be_visible()


def test_the_inbox_shows_what_is_new(enter: Callable[..., Visit], server: Served) -> None:
    guest, token = enter("alice"), server.log_in("agent@example.com")
    server.call("PATCH", "/api/v1/notifications/read-all", token=server.log_in())
    page = guest.open("/")
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
    expect(page.locator("form[data-read]")).to_have_count(0)
    expect(bell).to_have_accessible_name("Notifications")
    expect(page).to_have_title(re.compile("^Chat with"))


def test_a_page_stops_asking_when_its_login_has_ended(enter: Callable[..., Visit], server: Served) -> None:
    guest = enter("alice")
    page, token = guest.page, server.log_in()
    path = f"/api/v1/chats/{h.QUIET}/messages"
    other = guest.context.new_page()
    other.goto(f"{server.url}/")
    with page.expect_response(re.compile("/console/news")) as answer:
        other.get_by_role("button", name="Sign out").click()
        server.call("POST", path, {"content": {"text": "Bye"}}, token)
    assert answer.value.status == 401
    asked = len(guest.asked)
    server.call("POST", path, {"content": {"text": "Bye again"}}, token)
    page.wait_for_timeout(4_000)
    assert len([url for url in guest.asked[asked:] if "/console/news" in url]) == 0


def test_a_button_pressed_twice_sends_once(enter: Callable[..., Visit]) -> None:
    page = enter("alice").page
    page.goto(f"{page.url}console/chats/{h.BUSY}#end")
    page.get_by_label("Your message").fill("Only once")
    page.get_by_role("button", name="Send").dblclick()
    expect(message(page, "Only once")).to_have_count(1)
    page.reload()
    expect(message(page, "Only once")).to_have_count(1)


def test_paging_keeps_the_place(enter: Callable[..., Visit]) -> None:
    page = enter("alice", LIGHT, NARROW).page
    page.goto(f"{page.url}console/chats/{LONG}#end")
    expect(message(page, "line 98")).to_be_in_viewport()
    first = page.locator(".message .words").first.inner_text()
    number = int(first.removeprefix("line "))
    page.get_by_role("link", name="Older messages").click()
    expect(message(page, f"line {number - 1}").last).to_be_in_viewport()
    page.get_by_role("link", name="Newer messages").click()
    expect(message(page, f"line {number}").first).to_be_in_viewport()
    page.goto(f"{page.url.partition('?')[0]}?at=01JD4Q9M200000000000000000#m-01JD4Q9M200000000000000000")
    expect(message(page, "line 20").first).to_be_in_viewport()
    choose(page, "line 20", "Pin")
    expect(page.get_by_role("status")).to_have_text("Pinned.")
    expect(message(page, "line 20").first).to_be_in_viewport()
    choose(page, "line 20", "Unpin")
    expect(page.get_by_text("1 pinned")).to_have_count(0)


def test_a_private_note_is_followed_by_private_notes(enter: Callable[..., Visit], server: Served) -> None:
    guest, customer = enter("agent"), server.log_in()
    page = guest.open(f"{CHAT}#end")
    public = guest.colour(".composer")
    expect(page.get_by_label("Your message")).to_be_focused()
    page.get_by_label("Private note", exact=True).check()
    assert guest.colour(".composer") != public
    expect(page.get_by_text("only staff can read it")).to_be_visible()
    page.get_by_label("Your private note").focus()
    for text in ("The first note", "The second note"):
        page.keyboard.type(text)
        page.keyboard.press("Enter")
    for text in ("The first note", "The second note"):
        expect(message(page, text)).to_have_class("message own private")
    # Whatever is done next, the choice stays: it is in the address.
    choose(page, "The first note", "Pin")
    expect(page.get_by_role("status")).to_have_text("Pinned.")
    for _ in range(2):
        expect(page.get_by_role("button", name="Add private note")).to_be_visible()
        assert guest.colour(".composer") != public
        page.reload()
    choose(page, "The first note", "Delete")
    choose(page, "The second note", "Reply")
    page.get_by_role("link", name="Cancel reply").click()
    expect(page.get_by_role("link", name="Cancel reply")).to_have_count(0)
    write(page, "The third note")
    expect(message(page, "The third note")).to_have_class("message own private")
    page.get_by_label("Private note", exact=True).uncheck()
    assert guest.colour(".composer") == public
    write(page, "For the customer")
    expect(message(page, "For the customer")).to_have_class("message own")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    read = server.call("GET", f"/api/v1/chats/{h.SESSION}/messages?limit=100", token=customer).data
    assert [bytes(one["content"]).decode() for one in read if b"note" in bytes(one["content"])] == []


def test_a_private_note_is_followed_by_private_notes_without_scripts(
    enter: Callable[..., Visit], server: Served
) -> None:
    guest = enter("agent", java_script_enabled=False)
    page = guest.open(f"{CHAT}#end")
    public = guest.colour(".composer")
    page.get_by_label("Private note", exact=True).check()
    assert guest.colour(".composer") != public
    write(page, "A note without scripts")
    assert guest.colour(".composer") != public
    choose(page, "A note without scripts", "Pin")
    expect(page.get_by_role("status")).to_have_text("Pinned.")
    page.get_by_role("link", name="Refresh").click()
    write(page, "Another without scripts")
    for text in ("A note without scripts", "Another without scripts"):
        expect(message(page, text)).to_have_class("message own private")


def test_a_refresh_that_began_before_keeps_the_choice_of_a_private_note(enter: Callable[..., Visit]) -> None:
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


def test_what_is_typed_after_sending_is_sent_next(enter: Callable[..., Visit]) -> None:
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
        expect(message(page, text).locator(".words")).to_have_text(text)
    expect(page.get_by_label("Your message")).to_have_value("Fluent three")
    expect(page.get_by_label("Your message")).to_be_focused()
    expect(message(page, "Fluent two")).to_be_in_viewport()


def test_a_message_that_is_not_sent_is_kept(enter: Callable[..., Visit]) -> None:
    guest = enter("alice")
    page = guest.open(f"/console/chats/{h.BUSY}#end")
    guest.expected += ("net::ERR", "503")
    for answer in (lambda route: route.abort(), lambda route: route.fulfill(status=503, body="<h1>Bad gateway</h1>")):
        page.route("**/console/chats/*", answer)
        page.get_by_label("Your message").fill("Not yet")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("The service did not answer.")
        expect(page.get_by_role("alert")).to_be_in_viewport()
        expect(page.get_by_label("Your message")).to_have_value("Not yet")
        page.unroute("**/console/chats/*")
    page.keyboard.press("Enter")
    expect(message(page, "Not yet")).to_have_count(1)
    expect(page.get_by_role("alert")).to_have_count(0)
    # After the login has ended, the page asks to sign in, and the message is kept.
    other = guest.context.new_page()
    other.goto(page.url.partition("/console")[0])
    other.get_by_role("button", name="Sign out").click()
    expect(other.get_by_role("heading", level=1)).to_have_text("Sign in")
    page.get_by_label("Your message").fill("Later")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Sign in again in another tab")
    expect(page.get_by_label("Your message")).to_have_value("Later")


def test_deleting_is_asked_about_and_keeps_the_place(enter: Callable[..., Visit]) -> None:
    page = enter("alice").page
    page.goto(f"{page.url}console/chats/{LONG}?at=01JD4Q9M600000000000000000#m-01JD4Q9M600000000000000000")
    beside = message(page, "line 62").last
    beside.evaluate("element => element.scrollIntoView({ block: 'center' })")
    menu = message(page, "line 61").last.locator(".more > summary")
    menu.focus()
    top = beside.bounding_box()
    page.keyboard.press("Enter")
    for _ in range(4):  # past Reply, Edit and Pin
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(message(page, "line 61")).to_have_count(1)  # until it is confirmed
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Delete message").locator("visible=true")).to_be_focused()
    page.keyboard.press("Enter")
    expect(message(page, "line 61")).to_have_count(0)
    expect(page.get_by_role("status")).to_have_text("Deleted.")
    expect(page.get_by_role("status").locator("p")).to_be_in_viewport(ratio=1)
    expect(beside.locator(".more > summary")).to_be_focused()
    after = beside.bounding_box()
    assert top and after and abs(top["y"] - after["y"]) < 150  # of 900 pixels
    expect(message(page, "line 86")).to_have_count(0)  # nor are there other messages than before


def test_deleting_keeps_the_place_without_scripts(enter: Callable[..., Visit]) -> None:
    page = enter("alice", java_script_enabled=False).page
    page.goto(f"{page.url}console/chats/{LONG}?at=01JD4Q9M500000000000000000#m-01JD4Q9M500000000000000000")
    choose(page, "line 51", "Delete")
    expect(message(page, "line 51")).to_have_count(0)
    for text in ("line 50", "line 52"):
        expect(message(page, text)).to_be_in_viewport()
    expect(page.get_by_role("status").locator("p")).to_be_in_viewport(ratio=1)


def test_what_was_done_is_told_where_the_reader_is(enter: Callable[..., Visit]) -> None:
    page = enter("alice").page
    page.goto(f"{page.url}console/chats/{LONG}#end")
    for action, told in (("Pin", "Pinned."), ("Unpin", "Unpinned.")):
        before = page.evaluate("scrollY")
        choose(page, "line 90", action)
        expect(page.get_by_role("status")).to_have_text(told)
        expect(page.get_by_role("status").locator("p")).to_be_in_viewport(ratio=1)
        assert abs(page.evaluate("scrollY") - before) < 150
    page.goto(f"{page.url.partition('/console')[0]}/console/settings")
    page.get_by_role("button", name="Save preferences").click()
    expect(page.get_by_role("status").locator("p")).to_be_in_viewport(ratio=1)
    expect(page.locator("[data-heard]")).to_have_text("Saved.")


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
    clients = page.get_by_role("heading", name="Command-line clients").locator("xpath=following-sibling::*[1]")
    password = page.locator("form.panel", has=page.get_by_role("heading", name="Change your password"))
    above, below = clients.bounding_box(), password.bounding_box()
    assert above and below
    assert below["y"] - (above["y"] + above["height"]) >= 16


def test_signing_in_keeps_the_email_address(visit: Callable[..., Visit]) -> None:
    guest = visit()
    guest.expected = ("401",)
    page = guest.open("/")
    page.get_by_label("E-mail address").fill("alice@example.com")
    page.get_by_label("Password").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_label("E-mail address")).to_have_value("alice@example.com")
    expect(page.get_by_label("Password")).to_be_focused()
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
