"""The console: what its pages show, what their forms do, and what they refuse."""

import re
from collections.abc import Callable
from dataclasses import replace
from html import escape, unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import peewee
import pytest

from service import clock, db, formats
from service.auth import sign_in, tickets, tokens
from service.auth.signing import sign
from service.console import faces
from service.console.faces import Face, program
from service.console.times import Times
from service.errors import StaleForm
from service.fields import as_bytes, compact_json
from service.models import (
    App,
    Avatar,
    Bot,
    ChatSession,
    DataShare,
    Event,
    Feedback,
    Message,
    Notification,
    User,
)
from service.models.settling import settle
from service.routes import operations
from service.settings import Settings
from service.signature import Origin
from service.web import build_app
from tests.browsing import Browser, Forms
from tests.conftest import PASSWORD, Client, Clock, Reply
from tests.household import picture
from tests.samples import NOBODY
from tests.test_access import as_form
from tests.test_operations import ALL
from tests.watching import nothing_changes

pytestmark = pytest.mark.slow

PAGES = (
    "/",
    "/console/search?q=e",
    "/console/bots",
    "/console/notifications",
    "/console/events",
    "/console/events?past=true",
    "/console/shares",
    "/console/feedback",
    "/console/settings",
    "/console/picture",
    "/console/account",
)
FORMS = [operation for operation in ALL.values() if operation.scope == "console" and operation.method == "POST"]
ACTS = {
    "change_chat": {"act": "status", "status": "closed"},
    "change_notifications": {"act": "read_all"},
    "change_events": {"act": "add", "title": "Tea", "starts_at": "2026-11-20T16:00"},
    "change_feedback": {"act": "give", "description": "Fine"},
    "begin_chat": {"app_id": "{app}", "bot_id": "{bot}"},
    "change_bot": {"app_id": "{app}", "bot_id": "{bot}", "status": "draft"},
    "change_shares": {"act": "grant", "mcp_server_id": "mail", "allowed_tools": "*"},
    "change_person": {"act": "profile", "display_name": "Eve"},
    "change_account": {"act": "password", "current_password": PASSWORD, "new_password": "another one"},
}
EMPTY = dict.fromkeys(("conversation_id", "expires_at", "ends_at", "reminder_at", "notes", "id", "reply"), "")
EVIL = "\"'><evil onload=alert(1)>&lt;<script>alert(2)</script>{{7*7}}<!-- %"
RTL = "שלום, מה שלומך? مرحبا"


class Outline(HTMLParser):
    """The elements of a page."""

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(reply.raw.decode())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def all(self, tag: str, **having: str) -> list[dict[str, str | None]]:
        """The attributes of the elements with a name, and with some attributes."""
        return [
            found
            for name, found in self.elements
            if name == tag and all(found.get(key.rstrip("_")) == value for key, value in having.items())
        ]


Begin = Callable[[Client], Browser]


@pytest.fixture
def at(application: Any) -> Begin:
    """The browser of somebody who is signed in."""
    return lambda person: Browser(application).signed_in(person)


def do(browser: Browser, path: str, **form: str) -> Reply:
    """Open a page, and send a form of it."""
    return browser.ask("POST", path.partition("?")[0], tickets_of(browser, path) | form)


def tickets_of(browser: Browser, path: str) -> dict[str, str]:
    """What the forms of a page carry; of another page, where there are none."""
    html = browser.open(path).raw.decode()
    if 'name="ticket"' not in html:
        html = browser.open("/console/events").raw.decode()
    return {
        name: unescape(found[1])
        for name in ("ticket", "number")
        if (found := re.search(rf'name="{name}" value="([^"]+)"', html))
    }


def told(reply: Reply) -> str:
    """What a page says of what did not work."""
    [text] = re.findall(r'role="alert">(.*?)</p>', reply.raw.decode(), re.DOTALL)
    return unescape(re.sub(r"<[^>]*>", "", text))


def counts(reply: Reply) -> list[dict[str, str | None]]:
    """The numbers of what is unread that a page shows."""
    return [one for one in Outline(reply).all("span", class_="count") if "hidden" not in one]


def chat(session: ChatSession) -> str:
    return f"/console/chats/{session.id}"


class TestTheWayIn:
    @pytest.mark.parametrize("path", PAGES)
    def test_asks_a_stranger_to_sign_in_and_leads_back(self, path: str, alice: Client, application: Any) -> None:
        browser = Browser(application)
        assert browser.open(path).status == 401
        assert "Sign in" in browser.text
        assert browser.send(email="alice@example.com", password=PASSWORD).status == 200
        assert browser.path == path

    def test_leads_from_a_form_that_was_sent_too_late_back_to_its_page(self, alice: Client, application: Any) -> None:
        browser = Browser(application)
        assert browser.ask("POST", "/console/events", {"act": "add"}).status == 401
        assert browser.send(email="alice@example.com", password=PASSWORD).status == 200
        assert browser.path == "/console/events"

    @pytest.mark.parametrize("path", PAGES)
    def test_tells_programs_in_json(self, path: str, anyone: Client) -> None:
        assert anyone.get(f"/{path}").error == (401, "missing_credentials")

    def test_is_shut_after_signing_out(self, alice: Client, at: Begin) -> None:
        browser = at(alice)
        kept = dict(browser.cookies)
        browser.open("/")
        browser.send(0)
        assert browser.reply.status == 401
        browser.cookies = kept
        assert browser.open("/console/account").status == 401

    def test_is_shut_for_those_who_were_shut_out(self, alice: Client, at: Begin) -> None:
        browser = at(alice)
        alice.user.disable()
        assert browser.open("/").status == 401


class TestEveryPage:
    @pytest.mark.parametrize("path", PAGES)
    def test_has_landmarks_a_skip_link_and_one_heading(self, path: str, alice: Client, at: Begin, say: Any) -> None:
        say()
        page = Outline(at(alice).open(path))
        assert len(page.all("main", id="main")) == len(page.all("h1")) == len(page.all("header")) == 1
        assert page.all("a", href="#main")
        assert len(page.all("a", **{"aria-current": "page"})) == (path != "/console/picture")

    @pytest.mark.parametrize("path", PAGES)
    def test_sends_every_form_home_with_a_ticket(self, path: str, admin: Client, at: Begin) -> None:
        browser = at(admin)
        html = browser.open(path).raw.decode()
        for form in re.findall(r'<form[^>]*method="post".*?</form>', html, re.DOTALL):
            assert re.search(r'action="/(sign-out|console/\w+)', form)
            assert "/sign-out" in form or "ticket" in form

    @pytest.mark.parametrize("path", [*PAGES, "/console/feedback?everybody=true", "/console/catalogue"])
    def test_takes_its_filters_as_they_stand(
        self, path: str, admin: Client, shop: App, bot: Bot, session: ChatSession, at: Begin
    ) -> None:
        browser = at(admin)
        html = browser.open(path).raw.decode()
        for action, form in Forms(html).found:
            if f'method="get" action="{action}"' in html:
                assert browser.open(f"{action}?{urlencode(form)}").status == 200, form

    def test_knows_agents_and_admins(self, agent: Client, admin: Client, alice: Client, at: Begin) -> None:
        shown = {name: at(person).open("/").raw.decode() for name, person in (("a", agent), ("b", admin), ("c", alice))}
        assert ["/console/catalogue" in shown[name] for name in "abc"] == [True, True, False]

    def test_follows_the_theme_of_the_settings(self, alice: Client, at: Begin) -> None:
        browser = at(alice)
        assert Outline(browser.open("/")).all("html") == [{"lang": "en"}]
        User.patch_preferences(alice.user.id, {"appearance": {"theme": "dark"}})
        assert Outline(browser.open("/")).all("html") == [{"lang": "en", "data-theme": "dark"}]

    def test_counts_unread_notifications(self, alice: Client, at: Begin) -> None:
        assert not counts(at(alice).open("/"))
        Notification.create(user_id=alice.user.id, title="News")
        assert "(1) Inbox" in at(alice).open("/").raw.decode()
        assert len(counts(at(alice).open("/"))) == 2  # above the page, and beside it

    def test_refuses_in_html_whoever_comes_with_a_browser(self, alice: Client, at: Begin) -> None:
        browser = at(alice)
        for path, status in (("/?status=odd", 400), ("/?cursor=x", 400), (f"/console/chats/{NOBODY}", 404)):
            reply = browser.open(path)
            assert (reply.status, reply.headers["Content-Type"]) == (status, "text/html; charset=utf-8")
            assert told(reply)
            assert Outline(reply).all("nav", id="navigation")


class TestUnknownAddresses:
    @pytest.mark.parametrize("path", ["/nowhere", "/console/nowhere", "/console/chats/", "/static/nothing.css", "//"])
    def test_are_a_page_in_the_frame(self, path: str, alice: Client, at: Begin) -> None:
        reply = at(alice).open(path)
        assert (reply.status, reply.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
        assert told(reply) == "There is nothing at this address."
        page = Outline(reply)
        assert page.all("nav", id="navigation") and page.all("form", action="/sign-out")
        assert page.all("main", id="main")[0]["data-after"]

    def test_are_a_page_without_the_frame_for_strangers(self, application: Any) -> None:
        browser = Browser(application)
        reply = browser.open("/console/nowhere")
        assert reply.status == 404
        assert told(reply) == "There is nothing at this address."
        assert not Outline(reply).all("nav") and Outline(reply).all("a", href="/")

    def test_are_a_page_while_the_database_is_unavailable(
        self, alice: Client, at: Begin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*arguments: Any) -> Any:
            raise peewee.OperationalError("disk I/O error")

        browser = at(alice)
        monkeypatch.setattr(sign_in, "caller_of", fail)
        monkeypatch.setattr(db, "is_unavailable", lambda error: isinstance(error, peewee.OperationalError))
        assert browser.open("/nowhere").status == 404
        assert told(browser.reply) == "There is nothing at this address."

    def test_that_take_other_methods_say_so(self, alice: Client, at: Begin) -> None:
        reply = at(alice).open("/sign-out")
        assert (reply.status, reply.headers["Allow"]) == (405, "OPTIONS, POST")
        assert Outline(reply).all("nav", id="navigation") and told(reply)

    @pytest.mark.parametrize("headers", [{}, {"accept": "text/html"}, {"sec_fetch_mode": "cors"}])
    def test_are_the_envelope_for_programs(self, headers: dict[str, str], alice: Client, anyone: Client) -> None:
        for client in (alice, anyone):
            for path in ("//nowhere", "//console/nowhere", "/nowhere", "//static/nothing.css"):
                assert client.get(path, **headers).error == (404, "not_found")

    def test_are_the_envelope_where_there_is_no_console(self, alice: Client, settings: Settings) -> None:
        documented = build_app(operations(documented_only=True), replace(settings, documented_only=True))
        client = Client(documented, alice.token)
        assert client.get("//nowhere", sec_fetch_mode="navigate").error == (404, "not_found")


class TestNews:
    """What the script of an open page asks for."""

    def begin(self, browser: Browser, path: str = "/") -> str:
        """The position that a page carries."""
        (main,) = Outline(browser.open(path)).all("main")
        return main["data-after"] or ""

    def ask(self, browser: Browser, after: str) -> dict[str, str]:
        reply = browser.open(f"/console/news?{urlencode({'after': after})}")
        assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
        [(tag, told)] = Outline(reply).elements
        assert tag == "p"
        return {name.removeprefix("data-"): value or "" for name, value in told.items()}

    def test_is_nothing_at_first(self, alice: Client, say: Any, at: Begin) -> None:
        say("Hello")
        browser = at(alice)
        found = self.ask(browser, self.begin(browser))
        assert found.pop("after")
        assert found == {"chats": "", "notifications": "", "unread": "0"}

    @pytest.mark.parametrize("path", PAGES)
    def test_follows_every_page(self, path: str, alice: Client, agent: Client, session: ChatSession, at: Begin) -> None:
        browser = at(alice)
        after = self.begin(browser, path)
        agent.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello"}})
        found = self.ask(browser, after)
        assert found | {"after": ""} == {"after": "", "chats": session.id, "notifications": "changed", "unread": "1"}
        assert self.ask(browser, found["after"])["chats"] == ""

    def test_follows_a_chat(self, alice: Client, agent: Client, session: ChatSession, at: Begin) -> None:
        browser = at(agent)
        after = self.begin(browser, chat(session))
        alice.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello"}})
        found = self.ask(browser, after)
        assert found | {"after": ""} == {"after": "", "chats": session.id, "notifications": "", "unread": "0"}

    def test_names_chats_apart(self, alice: Client, shop: App, at: Begin) -> None:
        browser = at(alice)
        after = self.begin(browser)
        made = [ChatSession.create(app_id=shop.id, user_id=alice.user.id).id for _ in range(3)]
        assert self.ask(browser, after)["chats"].split() == made

    def test_is_of_notifications_alone(self, alice: Client, at: Begin) -> None:
        browser = at(alice)
        Notification.create(user_id=alice.user.id, title="News")
        after = self.begin(browser)
        alice.patch("/notifications/read-all")
        found = self.ask(browser, after)
        assert found | {"after": ""} == {"after": "", "chats": "", "notifications": "changed", "unread": "0"}

    def test_is_never_of_others(
        self, alice: Client, bob: Client, other_agent: Client, agent: Client, session: ChatSession, at: Begin
    ) -> None:
        browsers = [at(bob), at(other_agent)]
        begun = [self.begin(browser) for browser in browsers]
        agent.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello"}})
        for browser, after in zip(browsers, begun, strict=True):
            found = self.ask(browser, after)
            assert found | {"after": ""} == {"after": "", "chats": "", "notifications": "", "unread": "0"}

    def test_of_what_happens_while_a_page_is_made_is_not_lost(
        self, alice: Client, session: ChatSession, at: Begin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Somebody writes when the messages of the page were read already."""
        browser, read = at(alice), faces.titles

        def late(*arguments: Any) -> Any:
            ChatSession.touch(session.id)
            return read(*arguments)

        for path in ("/", chat(session)):
            with monkeypatch.context() as patch:
                patch.setattr(faces, "titles", late)
                after = self.begin(browser, path)
            assert self.ask(browser, after)["chats"] == session.id

    @pytest.mark.parametrize("after", ["x", "a.b.c", "x" * 16_385])
    def test_from_no_position_is_refused(self, after: str, alice: Client, at: Begin) -> None:
        reply = at(alice).open(f"/console/news?after={after}")
        assert (reply.status, reply.headers["Content-Type"]) == (400, "text/html; charset=utf-8")
        assert told(reply)

    def test_from_the_position_of_somebody_else_is_refused(self, alice: Client, bob: Client, at: Begin) -> None:
        after = self.begin(at(bob))
        assert at(alice).open(f"/console/news?after={after}").status == 400

    def test_is_not_for_strangers(self, alice: Client, application: Any, at: Begin) -> None:
        browser = Browser(application)
        after = self.begin(at(alice))
        assert browser.open(f"/console/news?after={after}").status == 401
        assert "Sign in" in browser.text
        # The script, which is told by the status alone.
        assert browser.ask("GET", f"/console/news?after={after}", sec_fetch_mode="cors").status == 401

    def test_changes_nothing(self, alice: Client, say: Any, at: Begin) -> None:
        browser = at(alice)
        after = self.begin(browser)
        with nothing_changes():
            self.ask(browser, after)


class TestForms:
    def world(self, session: ChatSession, bot: Bot) -> Callable[[str], tuple[str, dict[str, str]]]:
        def form(name: str) -> tuple[str, dict[str, str]]:
            filled = {key: value.format(app=bot.app_id, bot=bot.id) for key, value in ACTS[name].items()}
            return ALL[name].full_path.replace("{id}", session.id), filled

        return form

    def test_are_all_tried_here(self) -> None:
        assert {operation.name for operation in FORMS} == {*ACTS, "change_picture"}

    @pytest.mark.parametrize("name", ACTS)
    def test_do_nothing_without_the_ticket_of_this_login(
        self, name: str, admin: Client, bob: Client, session: ChatSession, bot: Bot, at: Begin
    ) -> None:
        browser, other = at(admin), at(bob)
        path, form = self.world(session, bot)(name)
        theirs = tickets_of(other, "/console/events")["ticket"]
        mine = tickets_of(browser, "/console/events")["ticket"]
        elsewhere = tickets_of(at(admin), "/console/events")["ticket"]
        session_id = tokens.authenticate(f"Bearer {admin.token}").session_id
        for ticket in ("", "x", theirs, elsewhere, mine + "x", mine[:-2], sign("sign-in", [session_id])):
            with nothing_changes():
                reply = browser.ask("POST", path, {**form, "ticket": ticket})
            assert reply.status == 400
            assert "go back and try again" in told(reply)
        assert browser.ask("POST", path, {**form, "ticket": mine}).status == 200

    def test_state_the_largest_file_in_mib_in_the_frame(self, alice: Client, at: Begin) -> None:
        browser = at(alice)
        ticket = tickets_of(browser, "/console/picture")["ticket"]
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        for size, limit in ((5 * 1024 * 1024 + 1, "The file is larger than 5 MiB."), (7 * 1024 * 1024, "than 6 MiB.")):
            body = as_form({"avatar": bytes(size)})
            with nothing_changes():
                reply = alice.post(
                    f"//console/picture?ticket={ticket}", token="", cookie=cookie, sec_fetch_mode="navigate", **body
                )
            assert reply.status == 413
            assert limit in told(reply)
            assert Outline(reply).all("nav", id="navigation")

    def test_with_a_file_need_a_ticket_too(self, alice: Client, at: Begin) -> None:
        browser, body = at(alice), as_form({"avatar": picture()})
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        for query in ("", "?ticket=x", f"?ticket={sign('form', ['x'])}"):
            with nothing_changes():
                reply = alice.post(f"//console/picture{query}", cookie=cookie, sec_fetch_mode="navigate", **body)
            assert reply.status == 400

    def test_do_not_come_from_other_sites(self, alice: Client) -> None:
        with db.write():
            made = sign_in.begin(alice.user.id, Origin("127.0.0.1", "tests"))
        assert "SameSite=Lax" in made
        assert "HttpOnly" in made

    def test_that_are_too_large_are_refused_on_a_page(self, alice: Client, session: ChatSession, at: Begin) -> None:
        browser = at(alice)
        with nothing_changes():
            reply = do(browser, chat(session), act="send", text="x" * 300 * 1024)
        assert reply.status == 413
        assert "larger than" in told(reply)


class TestStrangersToAChat:
    def test_meet_a_page_that_says_no(self, bob: Client, other_agent: Client, session: ChatSession, at: Begin) -> None:
        for person in (bob, other_agent):
            browser = at(person)
            reply = browser.open(chat(session))
            assert (reply.status, told(reply)) == (403, "You may not do this.")
            ticket = tickets_of(browser, "/console/events")["ticket"]
            for form in ({"act": "send", "text": "Hi"}, {"act": "status", "status": "closed"}, {"act": "read"}):
                with nothing_changes():
                    assert browser.ask("POST", chat(session), {**form, "ticket": ticket}).status == 403

    @pytest.mark.parametrize("id", ["x", "../events", "0" * 36])
    def test_cannot_make_up_an_address(self, id: str, alice: Client, at: Begin) -> None:
        assert at(alice).open(f"/console/chats/{id}").status in (400, 404)

    def test_cannot_touch_a_message_through_another_chat(
        self, alice: Client, bob: Client, session: ChatSession, say: Any, shop: App, at: Begin
    ) -> None:
        own = ChatSession.create(app_id=shop.id, user_id=bob.user.id)
        message = say("Alice's words")
        browser = at(bob)
        for act in ("pin", "unpin", "delete", "edit"):
            with nothing_changes():
                assert do(browser, chat(own), act=act, message=message.id, text="x").status == 404
        assert "Alice's words" not in browser.open(f"{chat(own)}?at={message.id}&reply={message.id}").raw.decode()


class TestAChat:
    def test_shows_both_sides(
        self, alice: Client, agent: Client, session: ChatSession, say: Any, bot: Bot, at: Begin
    ) -> None:
        mine = say("Mine", sender_id=alice.user.id)
        theirs = say("Theirs", sender_id=bot.id, sender_type="bot")
        page = Outline(at(alice).open(chat(session)))
        assert page.all("li", id=f"m-{mine.id}", class_="message own")
        assert page.all("li", id=f"m-{theirs.id}", class_="message bot")
        page = Outline(at(agent).open(chat(session)))
        assert page.all("li", id=f"m-{mine.id}", class_="message customer")

    def test_lets_every_text_choose_its_direction(
        self, alice: Client, session: ChatSession, say: Any, at: Begin
    ) -> None:
        say(RTL, sender_id=alice.user.id)
        html = at(alice).open(chat(session)).raw.decode()
        assert f'<p class="words" dir="auto">{RTL}</p>' in html

    def test_takes_a_message(self, alice: Client, session: ChatSession, at: Begin) -> None:
        browser = at(alice)
        reply = do(browser, chat(session), **EMPTY, act="send", text=f"  {RTL}\r\nsecond line  ")
        assert (reply.status, browser.path) == (200, f"{chat(session)}#end")
        message = Message.get(Message.sender_id == alice.user.id)
        assert message.plain_text == f"{RTL}\nsecond line"
        assert escape(RTL) in reply.raw.decode()

    def test_takes_a_message_once_however_often_the_button_is_pressed(
        self, alice: Client, session: ChatSession, at: Begin
    ) -> None:
        browser = at(alice)
        form = {**tickets_of(browser, chat(session)), "act": "send", "text": "Hello"}
        for _ in range(3):
            assert browser.ask("POST", chat(session), form).status == 200
        assert Message.select().where(Message.sender_id == alice.user.id).count() == 1
        with nothing_changes():
            refused = browser.ask("POST", chat(session), {**form, "text": "Something else"})
        assert refused.status == 400
        assert "You have sent this already" in told(refused)
        assert ">Something else</textarea>" in refused.raw.decode()

    @pytest.mark.parametrize("text", ["", " \r\n\t "])
    def test_takes_no_empty_message(self, text: str, alice: Client, session: ChatSession, at: Begin) -> None:
        browser = at(alice)
        with nothing_changes():
            reply = do(browser, chat(session), act="send", text=text)
        assert (reply.status, told(reply)) == (400, "That did not work. Write something first.")

    def test_takes_no_more_than_64_kib_and_keeps_what_was_written(
        self, alice: Client, session: ChatSession, at: Begin
    ) -> None:
        browser, room = at(alice), 64 * 1024 - len('{"text":""}')
        with nothing_changes():
            reply = do(browser, chat(session), act="send", text="ש" * (room // 2 + 1))
        assert reply.status == 400
        assert "ש" * (room // 2 + 1) in reply.raw.decode()
        assert do(browser, chat(session), act="send", text="x" * room).status == 200
        assert "x" * room in browser.reply.raw.decode()

    def test_quotes_what_is_answered(
        self, alice: Client, agent: Client, session: ChatSession, say: Any, at: Begin
    ) -> None:
        asked = say("Where is it?", sender_id=alice.user.id)
        browser = at(agent)
        assert "Replying to" in browser.open(f"{chat(session)}?reply={asked.id}").raw.decode()
        do(browser, chat(session), act="send", text="On its way", reply=asked.id)
        assert '<blockquote dir="auto">Where is it?</blockquote>' in at(alice).open(chat(session)).raw.decode()

    def test_keeps_notes_between_staff(self, alice: Client, agent: Client, session: ChatSession, at: Begin) -> None:
        do(at(agent), chat(session), act="send", text="A note", is_private="true")
        assert "Private note</span>" in at(agent).open(chat(session)).raw.decode()
        browser = at(alice)
        assert "A note" not in browser.open(chat(session)).raw.decode()
        assert "is_private" not in browser.reply.raw.decode()
        with nothing_changes():
            assert do(browser, chat(session), act="send", text="x", is_private="true").status == 403

    def test_answers_notes_by_notes(self, agent: Client, session: ChatSession, say: Any, at: Begin) -> None:
        browser, note, message = at(agent), say("A note", is_private=True), say("Hello")
        ticked = re.compile(r'name="is_private" value="true" checked')
        assert not ticked.search(browser.open(f"{chat(session)}?reply={message.id}").raw.decode())
        assert ticked.search(browser.open(f"{chat(session)}?reply={note.id}").raw.decode())
        with nothing_changes():
            assert do(browser, chat(session), act="send", text="x", reply=note.id).status == 400
        assert "a note is answered by notes only" in browser.text

    def test_keeps_the_choice_of_a_private_note(self, agent: Client, session: ChatSession, say: Any, at: Begin) -> None:
        browser, message = at(agent), say("Hello")
        ticked = re.compile(r'name="is_private" value="true" checked')

        def is_note(reply: Reply) -> bool:
            return bool(ticked.search(reply.raw.decode()))

        assert not is_note(browser.open(chat(session)))
        do(browser, chat(session), act="send", text="A note", is_private="true")
        assert browser.path == f"{chat(session)}?note=true#end"
        assert is_note(browser.reply)
        for path in re.findall(rf'(?:href|action)="({chat(session)}[^"]*)"', browser.reply.raw.decode()):
            assert "note=true" in path
        noted = f"{chat(session)}?note=true"
        for form in ({"act": "pin"}, {"act": "unpin"}, {"act": "read"}, {"act": "status", "status": "pending"}):
            reply = browser.ask("POST", noted, {**tickets_of(browser, noted), **form, "message": message.id})
            assert reply.status == 200
            assert is_note(reply)
        refused = browser.ask("POST", noted, {**tickets_of(browser, noted), "act": "send", "is_private": "true"})
        assert refused.status == 400
        assert is_note(refused)
        do(browser, noted, act="send", text="No note")
        assert browser.path == f"{chat(session)}#end"
        assert not is_note(browser.reply)

    def test_offers_no_private_notes_to_customers(self, alice: Client, session: ChatSession, at: Begin) -> None:
        assert "rivate note" not in at(alice).open(f"{chat(session)}?note=true").raw.decode()

    def test_shows_the_same_messages_after_every_form(
        self, alice: Client, session: ChatSession, say: Any, at: Begin
    ) -> None:
        with db.write():
            ids = [say(f"line {number}", sender_id=alice.user.id).id for number in range(120)]
        browser = at(alice)
        for query in (f"?before={ids[80]}", f"?after={ids[20]}", f"?at={ids[50]}", ""):
            path = f"{chat(session)}{query}"
            shown = re.findall(r'id="m-(\w+)"', browser.open(path).raw.decode())
            for form in ({"act": "pin"}, {"act": "unpin"}, {"act": "edit", "text": "Other words"}):
                browser.ask("POST", path, {**tickets_of(browser, path), **form, "message": shown[7]})
                assert browser.path.endswith(f"#m-{shown[7]}")
                assert re.findall(r'id="m-(\w+)"', browser.reply.raw.decode()) == shown
            browser.ask("POST", path, {**tickets_of(browser, path), "act": "delete", "message": shown[7]})
            assert browser.path.endswith(f"#m-{shown[6]}")
            assert set(shown) - set(re.findall(r'id="m-(\w+)"', browser.reply.raw.decode())) == {shown[7]}

    def test_shows_the_end_after_its_only_message_was_deleted(
        self, alice: Client, session: ChatSession, say: Any, at: Begin
    ) -> None:
        browser, message = at(alice), say("Alone", sender_id=alice.user.id)
        reply = do(browser, chat(session), act="delete", message=message.id)
        assert browser.path == f"{chat(session)}?done=deleted#end"
        assert "Write the first message below." in reply.raw.decode()

    def test_asks_for_no_first_message_when_it_is_archived(
        self, alice: Client, session: ChatSession, at: Begin
    ) -> None:
        browser = at(alice)
        assert "Write the first message below." in browser.open(chat(session)).raw.decode()
        reply = do(browser, chat(session), act="status", status="archived")
        assert "takes no more messages" in reply.raw.decode()
        assert "first message" not in reply.raw.decode()

    def test_gives_a_message_other_words(self, alice: Client, session: ChatSession, say: Any, at: Begin) -> None:
        browser = at(alice)
        mine = say("Helo", sender_id=alice.user.id)
        assert ">Helo</textarea>" in browser.open(f"{chat(session)}?edit={mine.id}").raw.decode()
        reply = do(browser, chat(session), act="edit", message=mine.id, text="Hello")
        assert ">Hello</p>" in reply.raw.decode() and ", edited" in reply.raw.decode()
        with nothing_changes():
            refused = do(browser, chat(session), act="edit", message=mine.id, text="")
        assert refused.status == 400 and "Editing" in refused.raw.decode()

    def test_edits_nobody_elses(self, alice: Client, agent: Client, session: ChatSession, say: Any, at: Begin) -> None:
        mine = say("Hello", sender_id=alice.user.id)
        browser = at(agent)
        assert "Editing" not in browser.open(f"{chat(session)}?edit={mine.id}").raw.decode()
        with nothing_changes():
            assert do(browser, chat(session), act="edit", message=mine.id, text="x").status == 403

    def test_pins_unpins_and_deletes_as_often_as_one_likes(
        self, alice: Client, session: ChatSession, say: Any, at: Begin
    ) -> None:
        browser, message = at(alice), say("Remember this", sender_id=alice.user.id)
        for act, expected in (("pin", "1 pinned"), ("pin", "1 pinned"), ("unpin", "Pin</button>"), ("unpin", "Pin</")):
            assert expected in do(browser, chat(session), act=act, message=message.id).raw.decode()
        for _ in range(2):
            assert "Remember this" not in do(browser, chat(session), act="delete", message=message.id).raw.decode()
        assert Message.get().plain_text == "Remember this"

    def test_shows_staff_what_the_customer_deleted_and_says_so(
        self, alice: Client, agent: Client, session: ChatSession, say: Any, at: Begin
    ) -> None:
        message = say("We promise", sender_type="agent", sender_id=agent.user.id)
        page = do(at(alice), chat(session), act="delete", message=message.id).raw.decode()
        assert "We promise" not in page and "Deleted by the customer" not in page
        page = at(agent).open(chat(session)).raw.decode()
        assert "We promise" in page and "Deleted by the customer, visible to staff only" in page
        assert "Private note</span>" not in page and "Edit</a>" not in page and "Reply</a>" not in page

    def test_never_shows_what_was_deleted_or_purged(
        self, alice: Client, agent: Client, session: ChatSession, say: Any, at: Begin
    ) -> None:
        gone, purged = say("Gone words"), say("Purged words")
        gone.soft_delete()
        Message.purge(Message.id == purged.id)
        for person in (alice, agent):
            for path in (chat(session), f"{chat(session)}?at={gone.id}", "/", "/console/search?q=words"):
                html = at(person).open(path).raw.decode()
                assert "Gone words" not in html and "Purged words" not in html
        assert "This message was removed permanently." in at(alice).open(chat(session)).raw.decode()

    @pytest.mark.parametrize(
        ("content", "shown"),
        [
            ({"card": "x"}, "&quot;card&quot;: &quot;x&quot;"),
            ([1, 999], "999"),
            ([], "(no text)"),
            ("plain", ">plain<"),
        ],
    )
    def test_shows_other_content_as_it_is(
        self, content: Any, shown: str, alice: Client, session: ChatSession, at: Begin
    ) -> None:
        Message.create(id=clock.ulid(), chat_session_id=session.id, content=compact_json(as_bytes(content)))
        settle([session.id])
        assert shown in at(alice).open(chat(session)).raw.decode()

    def test_walks_through_all_messages_without_losing_one(
        self, alice: Client, session: ChatSession, say: Any, at: Begin
    ) -> None:
        with db.write():
            ids = [say(f"line {number}").id for number in range(120)]
        browser = at(alice)

        def shown(path: str) -> list[str]:
            return re.findall(r'id="m-(\w+)"', browser.open(path).raw.decode())

        newest = shown(chat(session))
        middle = shown(f"{chat(session)}?before={newest[0]}")
        oldest = shown(f"{chat(session)}?before={middle[0]}")
        assert oldest + middle + newest == ids
        assert shown(f"{chat(session)}?after={oldest[-1]}") == middle + newest[: 50 - len(middle)]
        around = shown(f"{chat(session)}?at={ids[60]}")
        assert around == ids[35:85]
        assert f"?before={ids[35]}" in browser.reply.raw.decode()
        assert f"?after={ids[84]}" in browser.reply.raw.decode()

    def test_finds_each_of_the_messages_of_one_moment(
        self, host_clock: Clock, alice: Client, session: ChatSession, say: Any, at: Begin
    ) -> None:
        with db.write():
            ids = [say(f"line {number}", sender_id=alice.user.id).id for number in range(70)]
        assert len({clock.ulid_time(id) for id in ids}) == 1
        browser = at(alice)
        for place in (0, 1, 33, 34, 68, 69):
            found = re.findall(r'id="m-(\w+)"', browser.open(f"{chat(session)}?at={ids[place]}").raw.decode())
            assert found == ids[max(0, place - 25) : place + 25]
            asked = browser.open(f"{chat(session)}?reply={ids[place]}").raw.decode()
            assert re.search(rf"Replying to.*?\bline {place}\b", asked, re.DOTALL)

    def test_parts_the_days_in_the_time_zone_of_its_reader(
        self, alice: Client, session: ChatSession, say: Any, host_clock: Any, at: Begin
    ) -> None:
        say("Late", created_at="2026-11-18T23:30:00.000Z")
        say("Soon", created_at="2026-11-20T09:59:00.000Z")
        html = at(alice).open(chat(session)).raw.decode()
        assert re.findall(r'<li class="day"><h2>(.*?)</h2>', html) == ["Wednesday, 18 November 2026", "Today"]
        User.update_profile(alice.user.id, {"timezone": "Asia/Tokyo"})
        html = at(alice).open(chat(session)).raw.decode()
        assert re.findall(r'<li class="day"><h2>(.*?)</h2>', html) == ["Yesterday", "Today"]
        assert '<time datetime="2026-11-18T23:30:00.000Z" title="19 Nov 2026, 08:30">08:30</time>' in html

    def test_notes_how_far_it_was_read(
        self, alice: Client, session: ChatSession, say: Any, bot: Bot, at: Begin
    ) -> None:
        message = say("News", sender_id=bot.id, sender_type="bot")
        browser = at(alice)
        assert "Mark 1 as read" in browser.open(chat(session)).raw.decode()
        assert "Mark 1" not in do(browser, chat(session), act="read", message=message.id).raw.decode()
        assert not counts(browser.open("/"))

    def test_moves_to_any_status(self, alice: Client, session: ChatSession, at: Begin) -> None:
        browser = at(alice)
        for status, said in (
            ("resolved", "Chat ended."),
            ("pending", "Status changed."),
            ("archived", "Chat archived."),
        ):
            assert said in do(browser, chat(session), act="status", status=status).raw.decode()
            assert ChatSession.get().status == status
        assert "takes no more messages" in browser.reply.raw.decode()
        assert "<textarea" not in browser.reply.raw.decode()
        for form in ({"act": "status", "status": "odd"}, {"act": "send", "text": "Hello?"}):
            with nothing_changes():
                assert do(browser, chat(session), **form).status == 400


class TestTheInbox:
    def test_shows_own_chats_and_staff_those_of_its_app(
        self, alice: Client, bob: Client, agent: Client, other_agent: Client, session: ChatSession, say: Any, at: Begin
    ) -> None:
        say(RTL)
        for person, sees in ((alice, True), (agent, True), (bob, False), (other_agent, False)):
            assert (RTL in at(person).open("/").raw.decode()) == sees
        assert "Hilda" in at(alice).open("/").raw.decode()
        assert "Alice" in at(agent).open("/").raw.decode()
        assert "No chats yet" in at(bob).open("/").raw.decode()

    def test_filters_by_status_and_walks(self, alice: Client, shop: App, at: Begin) -> None:
        for number in range(30):
            ChatSession.create(app_id=shop.id, user_id=alice.user.id, status="open" if number % 2 else "closed")
        browser = at(alice)
        first = re.findall(r'href="(/console/chats/[\w-]+)#end"', browser.open("/").raw.decode())
        [onward] = re.findall(r'href="(\?cursor=[^"]+)"', browser.reply.raw.decode())
        second = re.findall(r'href="(/console/chats/[\w-]+)#end"', browser.open(f"/{unescape(onward)}").raw.decode())
        assert (len(first), len(second), len({*first, *second})) == (25, 5, 30)
        browser.open("/?status=closed")
        assert len(re.findall("/console/chats/", browser.reply.raw.decode())) == 15
        assert "No such chats" in browser.open("/?status=snoozed").raw.decode()

    def test_search_leads_to_the_place(
        self, alice: Client, bob: Client, session: ChatSession, say: Any, at: Begin
    ) -> None:
        message = say("A Needle in the hay")
        html = at(alice).open("/console/search?q=nEEdle").raw.decode()
        assert f"{chat(session)}?at={message.id}#m-{message.id}" in html
        assert "Nothing found" in at(bob).open("/console/search?q=needle").raw.decode()
        assert "Nothing found" not in at(alice).open("/console/search").raw.decode()


class TestHostileTexts:
    @pytest.fixture
    def everywhere(
        self, alice: Client, agent: Client, shop: App, bot: Bot, session: ChatSession, settings: Any
    ) -> None:
        """Texts of a bad person, wherever a text can stand."""
        User.update(first_name=EVIL[:100], display_name=EVIL[:100]).execute()
        App.update(name=EVIL).execute()
        columns = dict.fromkeys(("name", "tagline", "description", "category", "country", "city"), EVIL)
        columns |= {"contact_email": EVIL, "contact_phone": EVIL, "contact_website": "javascript:alert(1)"}
        Bot.update(**columns, is_featured=True, rating=4.5).execute()
        Bot.create(app_id=shop.id, name=EVIL, status="published", contact_website=f"https://a.example/{EVIL}")
        asked = Message.create(
            id=clock.ulid(), chat_session_id=session.id, content=compact_json(as_bytes({"text": EVIL})),
            sender_id=alice.user.id, pinned_at=clock.timestamp(), sender_type=EVIL[:64],
        )  # fmt: skip
        for content in ({"text": EVIL}, {EVIL: EVIL}):
            Message.create(
                id=clock.ulid(), chat_session_id=session.id, content=compact_json(as_bytes(content)),
                reply_to_message_id=asked.id, reply_snapshot=compact_json(as_bytes({"text": EVIL})),
            )  # fmt: skip
        settle([session.id])
        for user in User.select():
            Notification.create(user_id=user.id, type=EVIL[:64], title=EVIL, body=EVIL, session_id=session.id)
            Notification.create(user_id=user.id, title=EVIL)
            for starts_at in ("2026-11-20T10:00:00.000Z", "2990-11-20T10:00:00.000Z"):
                Event.create(user_id=user.id, title=EVIL, notes=EVIL, starts_at=starts_at)
            for revoked_at in (None, clock.timestamp()):
                DataShare.create(
                    user_id=user.id, mcp_server_id=EVIL, allowed_tools=compact_json([EVIL]), revoked_at=revoked_at
                )
            Feedback.create(user_id=user.id, description=EVIL, app_version=EVIL, feedback_type="x", status="new")
            with db.write():
                tokens.begin(user.id, settings, EVIL)
                tokens.open_session(user.id, settings, label=EVIL, scopes=EVIL, install_id=EVIL, kind="client")

    @pytest.mark.parametrize("who", ["alice", "agent", "admin"])
    def test_are_shown_and_nothing_else(
        self, who: str, everywhere: None, session: ChatSession, at: Begin, request: Any
    ) -> None:
        browser = at(request.getfixturevalue(who))
        message = Message.select().order_by(Message.id).first()
        paths = [*PAGES, chat(session), f"{chat(session)}?reply={message.id}", f"{chat(session)}?edit={message.id}"]
        paths += [f"/console/search?q={'%3Cevil'}", f"/console/bots?search={'%22%3E%3Cevil'}"]
        paths += ["/console/catalogue"] if who != "alice" else []
        paths += ["/console/feedback?everybody=true"] if who == "admin" else []
        for path in paths:
            reply = browser.open(path)
            assert reply.status == 200, path
            page = Outline(reply)
            assert "<evil" not in reply.raw.decode(), path
            assert "49<!--" not in reply.raw.decode()
            assert page.all("script") == [{"src": "/static/console.js"}], path
            for tag, attributes in page.elements:
                assert not [name for name in attributes if name.startswith("on") or name == "style"], (path, tag)
                for name in ("href", "src", "action"):
                    address = attributes.get(name) or "/"
                    assert address.startswith(("/", "?", "#", "https://a.example/")), (path, address)

    def test_come_back_as_they_were_typed(self, alice: Client, session: ChatSession, at: Begin) -> None:
        browser = at(alice)
        refused = do(browser, "/console/events", act="add", title=EVIL, starts_at="odd", notes=EVIL)
        assert refused.status == 400
        assert f'value="{escape(EVIL, quote=True).replace("&#x27;", "&#039;")}"' in refused.raw.decode()
        assert "<evil" not in refused.raw.decode()
        for path in ("/console/shares", "/console/feedback", "/console/settings"):
            form = {"act": {"/console/shares": "grant", "/console/feedback": "give"}.get(path, "profile")}
            form |= {
                "mcp_server_id": EVIL,
                "allowed_tools": "* x",
                "feedback_type": EVIL,
                "description": EVIL,
                "phone": EVIL,
            }
            refused = do(browser, path, **form)
            assert refused.status == 400, path
            assert "<evil" not in refused.raw.decode()


class TestNotifications:
    def test_are_marked_one_by_one(self, alice: Client, at: Begin) -> None:
        one = Notification.create(user_id=alice.user.id, title="News")
        browser = at(alice)
        for act, is_read in (("read", True), ("read", True), ("unread", False)):
            assert do(browser, "/console/notifications", act=act, id=one.id).status == 200
            assert bool(Notification.get().read_at) == is_read
        for _ in range(2):
            assert do(browser, "/console/notifications", act="delete", id=one.id).status == 200
        assert not Notification.select().exists()
        assert "Nothing yet" in browser.reply.raw.decode()

    def test_that_came_after_the_page_stay_unread(self, alice: Client, host_clock: Any, at: Begin) -> None:
        seen = Notification.create(user_id=alice.user.id, title="Seen")
        browser = at(alice)
        form = tickets_of(browser, "/console/notifications")
        [before] = re.findall(r'name="before" value="([^"]+)"', browser.reply.raw.decode())
        host_clock.forward(seconds=1)
        unseen = Notification.create(user_id=alice.user.id, title="Unseen")
        browser.ask("POST", "/console/notifications", {**form, "act": "read_all", "before": before})
        assert Notification.get_by_id(seen.id).read_at
        assert not Notification.get_by_id(unseen.id).read_at

    def test_of_others_are_out_of_reach(self, alice: Client, bob: Client, at: Begin) -> None:
        one = Notification.create(user_id=alice.user.id, title="News of Alice")
        browser = at(bob)
        assert "News of Alice" not in browser.open("/console/notifications").raw.decode()
        for act in ("read", "unread", "delete"):
            with nothing_changes():
                assert do(browser, "/console/notifications", act=act, id=one.id).status == 403
        do(browser, "/console/notifications", act="read_all")
        assert not Notification.get().read_at


class TestEvents:
    def test_are_deleted_after_a_confirmation(self, alice: Client, at: Begin) -> None:
        browser = at(alice)
        do(browser, "/console/events", act="add", title="Tea", starts_at="2990-11-20T16:00")
        buttons = re.findall(r'<details class="ask">(.*?)</details>', browser.reply.raw.decode(), re.DOTALL)
        assert [one.count('value="delete"') for one in buttons] == [1]
        assert browser.reply.raw.count(b'value="delete"') == 1
        assert "Delete event Tea" in re.sub(r"<[^>]*>", "", buttons[0])

    def test_are_planned_in_the_time_zone_of_their_owner(self, alice: Client, at: Begin) -> None:
        User.update_profile(alice.user.id, {"timezone": "America/New_York"})
        form = {"title": f" {RTL} ", "starts_at": "2990-07-01T09:00", "ends_at": "2990-07-01T10:30"}
        do(at(alice), "/console/events", act="add", reminder_at="2990-07-01T08:45", is_time_sensitive="true", **form)
        event = Event.get()
        assert (event.title, event.starts_at, event.ends_at) == (
            RTL, "2990-07-01T13:00:00.000Z", "2990-07-01T14:30:00.000Z",
        )  # fmt: skip
        assert (event.reminder_at, event.is_time_sensitive) == ("2990-07-01T12:45:00.000Z", True)

    def test_are_planned_once_and_taken_off_once(self, alice: Client, at: Begin) -> None:
        browser = at(alice)
        form = {**tickets_of(browser, "/console/events"), "act": "add", "title": "Tea", "starts_at": "2990-07-01T09:00"}
        form |= EMPTY
        for _ in range(2):
            assert "Tea" in browser.ask("POST", "/console/events", form).raw.decode()
        assert Event.select().count() == 1
        event = Event.get()
        for _ in range(2):
            assert do(browser, "/console/events", act="delete", id=event.id).status == 200
        assert not Event.select().exists()

    @pytest.mark.parametrize(
        ("form", "said"),
        [
            ({"title": "Tea"}, "Starts at: expected a date and a time."),
            ({"title": "Tea", "starts_at": "tomorrow"}, "Starts at: expected a date and a time."),
            ({"title": "Tea", "starts_at": "9999-12-31T23:59"}, ""),
            ({"title": " ", "starts_at": "2990-07-01T09:00"}, "Title: "),
            ({"title": "x" * 201, "starts_at": "2990-07-01T09:00"}, "Title: "),
            ({"title": "Tea", "starts_at": "2990-07-01T09:00", "ends_at": "2990-07-01T08:00"}, "Ends at: expected no"),
        ],
    )
    def test_that_make_no_sense_are_told_in_place(
        self, form: dict[str, str], said: str, alice: Client, at: Begin
    ) -> None:
        User.update_profile(alice.user.id, {"timezone": "America/New_York"})
        browser = at(alice)
        with nothing_changes():
            reply = do(browser, "/console/events", act="add", **form)
        assert reply.status == 400
        assert said in told(reply)
        assert escape(form["title"].strip()) in reply.raw.decode()

    def test_of_others_are_out_of_reach(self, alice: Client, bob: Client, at: Begin) -> None:
        one = Event.create(user_id=alice.user.id, title="Lunch of Alice", starts_at="2990-07-01T09:00:00.000Z")
        browser = at(bob)
        assert "Lunch of Alice" not in browser.open("/console/events").raw.decode()
        with nothing_changes():
            assert do(browser, "/console/events", act="delete", id=one.id).status == 403


class TestShares:
    def test_are_granted_and_revoked_and_remembered(self, alice: Client, session: ChatSession, at: Begin) -> None:
        browser = at(alice)
        form = {
            "mcp_server_id": "files",
            "allowed_tools": "read, write\nread",
            "conversation_id": session.conversation_id,
        }
        assert "Access granted." in do(browser, "/console/shares", act="grant", **form).raw.decode()
        grant = DataShare.get()
        assert (grant.tools, grant.conversation_id) == (["read", "write"], session.conversation_id)
        for _ in range(2):
            assert do(browser, "/console/shares", act="revoke", id=grant.id).status == 200
        assert re.search(r"Earlier</h2>.*files.*revoked", browser.reply.raw.decode(), re.DOTALL)
        assert "No MCP server has access." in browser.reply.raw.decode()

    def test_are_granted_once(self, alice: Client, at: Begin) -> None:
        browser = at(alice)
        form = {**tickets_of(browser, "/console/shares"), "act": "grant", "mcp_server_id": "m", "allowed_tools": "*"}
        for _ in range(2):
            assert browser.ask("POST", "/console/shares", form).status == 200
        assert DataShare.select().count() == 1

    @pytest.mark.parametrize(
        "form",
        [
            {"mcp_server_id": "", "allowed_tools": "*"},
            {"mcp_server_id": "m", "allowed_tools": " , "},
            {"mcp_server_id": "m", "allowed_tools": "* read"},
            {"mcp_server_id": "m" * 256, "allowed_tools": "*"},
            {"mcp_server_id": "m", "allowed_tools": "*", "expires_at": "2020-01-01T10:00"},
            {"mcp_server_id": "m", "allowed_tools": "*", "expires_at": "later"},
        ],
    )
    def test_that_make_no_sense_are_told_in_place(self, form: dict[str, str], alice: Client, at: Begin) -> None:
        browser = at(alice)
        with nothing_changes():
            reply = do(browser, "/console/shares", act="grant", **form)
        assert reply.status == 400
        assert told(reply)
        assert f'value="{form["allowed_tools"]}"' in reply.raw.decode()

    def test_of_others_are_out_of_reach(self, alice: Client, bob: Client, session: ChatSession, at: Begin) -> None:
        grant = DataShare.give(alice.user.id, mcp_server_id="of Alice", allowed_tools='["*"]')
        browser = at(bob)
        assert "of Alice" not in browser.open("/console/shares").raw.decode()
        with nothing_changes():
            assert do(browser, "/console/shares", act="revoke", id=grant.id).status == 403
            form = {"mcp_server_id": "m", "allowed_tools": "*", "conversation_id": session.conversation_id}
            assert do(browser, "/console/shares", act="grant", **form).status == 404


class TestFeedback:
    def test_is_given_once_and_shown_to_its_giver(self, alice: Client, bob: Client, at: Begin) -> None:
        browser = at(alice)
        form = {**tickets_of(browser, "/console/feedback"), "act": "give", "description": RTL, "feedback_type": "idea"}
        for _ in range(2):
            assert RTL in browser.ask("POST", "/console/feedback", form).raw.decode()
        assert Feedback.select().count() == 1
        assert RTL not in at(bob).open("/console/feedback").raw.decode()
        with nothing_changes():
            assert do(browser, "/console/feedback", act="give", description=" ").status == 400
            assert do(browser, "/console/feedback", act="give", description="x" * 10_001).status == 400

    def test_is_worked_through_by_admins_only(self, alice: Client, agent: Client, admin: Client, at: Begin) -> None:
        given = Feedback.create(user_id=alice.user.id, description="Fine")
        browser = at(admin)
        assert "Fine" in browser.open("/console/feedback?everybody=true").raw.decode()
        reply = do(browser, "/console/feedback?everybody=true", act="status", id=given.id, status="in_progress")
        assert "in progress" in reply.raw.decode()
        assert Feedback.get().status == "in_progress"
        for person in (alice, agent):
            browser = at(person)
            with nothing_changes():
                assert browser.open("/console/feedback?everybody=true").status == 403
                assert do(browser, "/console/feedback", act="status", id=given.id, status="done").status == 403


class TestSettings:
    def test_change_the_profile(self, alice: Client, at: Begin) -> None:
        browser = at(alice)
        form = {"display_name": RTL, "locale": "he-IL", "phone": "+97231234567", "timezone": "Asia/Jerusalem"}
        assert "Saved." in do(browser, "/console/settings", act="profile", **form).raw.decode()
        user = User.get_by_id(alice.user.id)
        assert [getattr(user, name) for name in form] == [*form.values()]
        assert (user.first_name, user.role) == ("", "user")

    @pytest.mark.parametrize(
        ("form", "said"),
        [
            ({"phone": "030"}, "Phone: expected a phone number"),
            ({"locale": "x y"}, "Locale: "),
            ({"timezone": "Mars/Base"}, "Timezone: "),
            ({"display_name": "x" * 101}, "Display name: "),
        ],
    )
    def test_refuse_in_place_what_makes_no_sense(
        self, form: dict[str, str], said: str, alice: Client, at: Begin
    ) -> None:
        browser = at(alice)
        with nothing_changes():
            reply = do(browser, "/console/settings", act="profile", first_name="Kept", **form)
        assert reply.status == 400
        assert said in told(reply)
        assert 'value="Kept"' in reply.raw.decode()

    def test_change_the_preferences_and_leave_others_alone(self, alice: Client, at: Begin) -> None:
        User.patch_preferences(alice.user.id, {"remark": {"a": 1}, "privacy": {"share_analytics": True}})
        browser = at(alice)
        form = {"theme": "dark", "language": "he", "push_enabled": "true", "muted_until": "2990-01-01T00:00"}
        do(browser, "/console/settings", act="settings", **form)
        chosen = User.preferences_of(alice.user.id)
        assert chosen["appearance"] == {"theme": "dark", "language": "he"}
        assert chosen["remark"] == {"a": 1}
        assert (chosen["notifications"]["push_enabled"], chosen["notifications"]["email_enabled"]) == (True, False)
        assert chosen["notifications"]["muted_until"] == "2990-01-01T00:00:00.000Z"
        assert not any(chosen["privacy"].values())
        with nothing_changes():
            for wrong in ({"theme": "pink"}, {"language": "x y"}, {"muted_until": "later"}):
                assert do(browser, "/console/settings", act="settings", **wrong).status == 400


class TestThePicture:
    def send(self, browser: Browser, content: bytes, name: str = "avatar") -> Reply:
        [action] = re.findall(r'action="(/console/picture[^"]*)"', browser.open("/console/picture").raw.decode())
        cookie = "; ".join(f"{key}={value}" for key, value in browser.cookies.items())
        body = as_form({name: content})
        body["raw"] = body["raw"].replace(b"me.png", b'"><evil>.png'.replace(b'"', b"%22"))
        return browser.client.post(f"/{unescape(action)}", cookie=cookie, sec_fetch_mode="navigate", **body)

    def test_is_changed_and_taken_away(
        self, alice: Client, session: ChatSession, say: Any, agent: Client, at: Begin
    ) -> None:
        browser = at(alice)
        moved = self.send(browser, picture())
        assert (moved.status, moved.headers["Location"]) == (303, "/console/picture?done=picture")
        name = Avatar.get().name
        say("Hello", sender_id=alice.user.id)
        for person, path in ((alice, "/"), (agent, "/"), (agent, chat(session))):
            assert f'src="/avatars/{name}"' in at(person).open(path).raw.decode()
        for _ in range(2):
            assert do(browser, "/console/picture", act="x").status == 400  # no such form
            ticket = tickets_of(browser, "/console/account")
            assert browser.ask("POST", "/console/account", {**ticket, "act": "remove_picture"}).status == 200
        assert not Avatar.select().exists()

    @pytest.mark.parametrize(
        ("content", "status"), [(b"GIF89a", 415), (b"\x89PNG\r\n\x1a\n", 400), (b"", 400), (bytes(5 * 2**20 + 1), 413)]
    )
    def test_is_refused_on_a_page(self, content: bytes, status: int, alice: Client, at: Begin) -> None:
        browser = at(alice)
        with nothing_changes():
            reply = self.send(browser, content)
        assert (reply.status, reply.headers["Content-Type"]) == (status, "text/html; charset=utf-8")
        assert told(reply)
        assert "<evil" not in reply.raw.decode()

    def test_of_elsewhere_is_not_loaded(self, alice: Client, at: Begin) -> None:
        User.update(profile_image="https://elsewhere.example/x.png").execute()
        assert "elsewhere" not in at(alice).open("/console/settings").raw.decode()


class TestTheAccount:
    def test_ends_logins_and_clients(self, alice: Client, settings: Any, at: Begin) -> None:
        with db.write():
            client = tokens.open_session(
                alice.user.id, settings, label="Laptop", scopes="chats:read", install_id="x", kind="client"
            )
        browser = at(alice)
        other = tokens.authenticate(f"Bearer {alice.token}").session_id
        assert "Laptop" in browser.open("/console/account").raw.decode()
        for act, id in (("end", other), ("end", other), ("revoke", client.id), ("revoke", NOBODY)):
            assert do(browser, "/console/account", act=act, id=id).status == 200
        assert not tokens.is_open(other) and not tokens.is_open(client.id)
        assert "Laptop" not in browser.reply.raw.decode()

    def test_ends_nobody_elses(self, alice: Client, bob: Client, at: Begin) -> None:
        id = tokens.authenticate(f"Bearer {alice.token}").session_id
        browser = at(bob)
        for act in ("end", "revoke"):
            with nothing_changes():
                do(browser, "/console/account", act=act, id=id)
        assert tokens.is_open(id)

    def test_changes_the_password(self, alice: Client, at: Begin) -> None:
        browser = at(alice)
        wrong = {"current_password": "not this one", "new_password": "correct horse"}
        for form in (wrong, {**wrong, "new_password": "short"}, {"new_password": "long enough"}):
            with nothing_changes():
                reply = do(browser, "/console/account", act="password", **form)
            assert reply.status == 400
            assert told(reply)
            assert not [word for word in form.values() if f'"{word}"' in reply.raw.decode()]
        form = {"current_password": PASSWORD, "new_password": "correct horse"}
        assert "Password changed." in do(browser, "/console/account", act="password", **form).raw.decode()
        assert alice.get("/users/me").error == (401, "invalid_token")
        assert browser.open("/").status == 200

    def test_bears_no_guessing(self, alice: Client, at: Begin) -> None:
        browser = at(alice)
        form = {"current_password": "a guess", "new_password": "long enough"}
        told_of = [do(browser, "/console/account", act="password", **form).status for _ in range(22)]
        assert told_of[-1] == 429


class TestBots:
    def test_are_found_by_every_filter(
        self, alice: Client, session: ChatSession, shop: App, bot: Bot, at: Begin
    ) -> None:
        about = {"category": "care", "country": "DE", "city": "Köln", "presence": "online", "is_featured": True}
        Bot.create(app_id=shop.id, name="Ida", kind="nobot", status="published", **about)
        Bot.create(app_id=shop.id, name="Draft")
        browser = at(alice)
        assert re.findall(r"<h2><bdi>(.*?)</bdi>", browser.open("/console/bots").raw.decode()) == ["Ida", "Hilda"]
        for query in (
            "search=IDA", "category=care", "kind=nobot", "presence=online", "country=de", "city=K%C3%B6ln",
            "featured_only=true",
        ):  # fmt: skip
            html = browser.open(f"/console/bots?{query}").raw.decode()
            assert "<bdi>Ida</bdi>" in html
            assert "<bdi>Hilda</bdi>" not in html, query
        assert "No such bots" in browser.open("/console/bots?city=Bonn").raw.decode()

    def test_of_other_apps_are_not_listed_to_customers(
        self, bob: Client, shop: App, other_shop: App, bot: Bot, at: Begin
    ) -> None:
        browser = at(bob)
        html = browser.open("/console/bots").raw.decode()
        assert "Shop" not in html and "Which app?" in html
        assert "Hilda" in browser.open(f"/console/bots?app_id={shop.id}").raw.decode()

    def test_lead_into_a_chat_once(self, alice: Client, shop: App, bot: Bot, at: Begin) -> None:
        browser = at(alice)
        form = {**tickets_of(browser, "/console/bots"), "app_id": shop.id, "bot_id": bot.id}
        for _ in range(2):
            assert browser.ask("POST", "/console/bots", form).status == 200
        session = ChatSession.get()
        assert browser.path == f"{chat(session)}#end"
        assert (session.user_id, session.bot_id) == (alice.user.id, bot.id)

    def test_that_are_not_there_are_told_in_place(self, alice: Client, shop: App, bot: Bot, at: Begin) -> None:
        browser = at(alice)
        for form in ({}, {"app_id": NOBODY}, {"app_id": shop.id, "bot_id": NOBODY}):
            with nothing_changes():
                reply = do(browser, "/console/bots", **form)
            assert reply.status in (400, 404)
            assert told(reply)


class TestTheCatalogue:
    def test_is_kept_by_the_staff_of_the_app(self, agent: Client, admin: Client, bot: Bot, at: Begin) -> None:
        for person, presence, status in ((agent, "away", "draft"), (admin, "online", "published")):
            browser = at(person)
            form = {"app_id": bot.app_id, "bot_id": bot.id, "presence": presence, "status": status}
            assert "Saved." in do(browser, "/console/catalogue", **form).raw.decode()
            kept = Bot.get_by_id(bot.id)
            assert (kept.presence, kept.status) == (presence, status)

    def test_is_shut_for_everybody_else(
        self, alice: Client, other_agent: Client, person: Any, bot: Bot, at: Begin
    ) -> None:
        for somebody in (alice, other_agent, person("ann", role="agent")):
            browser = at(somebody)
            assert browser.open(f"/console/catalogue?app_id={bot.app_id}").status == 403
            ticket = tickets_of(browser, "/console/events")["ticket"]
            form = {"app_id": bot.app_id, "bot_id": bot.id, "status": "draft", "ticket": ticket}
            with nothing_changes():
                assert browser.ask("POST", "/console/catalogue", form).status == 403


class TestTimes:
    def test_are_those_of_the_zone(self, host_clock: Any) -> None:
        times = Times("Asia/Tokyo")
        assert times.full("2026-11-20T20:30:00.000Z") == "21 Nov 2026, 05:30"
        assert times.read("2026-11-21T05:30") == "2026-11-20T20:30:00.000Z"
        assert times.field("2026-11-20T20:30:00.000Z") == "2026-11-21T05:30"
        days = {"2026-11-20": "10:00", "2026-11-19": "Yesterday", "2026-01-02": "2 Jan", "2025-01-02": "2 Jan 2025"}
        assert {day: times.brief(f"{day}T01:00:00.000Z") for day in days} == days

    @pytest.mark.parametrize("stamp", ["0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"])
    @pytest.mark.parametrize("zone", ["", "Pacific/Kiritimati", "Pacific/Niue"])
    def test_reach_to_the_ends_of_the_calendar(self, stamp: str, zone: str) -> None:
        assert Times(zone).full(stamp)
        assert Times(zone).day(stamp)
        assert len(Times(zone).field(stamp)) == 16

    @pytest.mark.parametrize("text", ["", "x", "2026-13-01T10:00", "0001-01-01T00:00", "9999-12-31T23:59"])
    def test_refuse_what_is_none(self, text: str) -> None:
        with pytest.raises(ValueError, match="expected a date and a time"):
            Times("Pacific/Niue" if text > "5" else "Asia/Tokyo").read(text)

    def test_know_every_zone_that_a_profile_may_have(self) -> None:
        assert all(Times(zone).time("2026-11-20T20:30:00.000Z") for zone in formats.time_zones())


class TestFaces:
    @pytest.mark.parametrize(
        ("name", "initials"), [("Alice Liddell", "AL"), ("שלום", "ש"), ("<b> x", "BX"), ("", "?"), ("🎉", "?")]
    )
    def test_have_initials(self, name: str, initials: str) -> None:
        assert Face(name).initials == initials

    @pytest.mark.parametrize(
        ("label", "shown"),
        [
            ("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140 Safari/537.36", "Chrome on Linux"),
            ("Mozilla/5.0 (Windows NT 10.0) Chrome/140 Safari/537.36 Edg/140", "Edge on Windows"),
            ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18 Safari/604.1", "Safari on iPhone"),
            ("curl/8.0", "curl/8.0"),
            ("", "Unknown program"),
        ],
    )
    def test_of_programs_have_a_name(self, label: str, shown: str) -> None:
        assert program(label) == shown


def test_a_ticket_is_of_one_login(alice: Client, bob: Client) -> None:
    callers = [tokens.authenticate(f"Bearer {client.token}") for client in (alice, bob)]
    tickets.expect(callers[0], tickets.make(callers[0]))
    with pytest.raises(StaleForm, match="sent from elsewhere"):
        tickets.expect(callers[1], tickets.make(callers[0]))
