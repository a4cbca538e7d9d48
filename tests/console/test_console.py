"""The pages of the console: content, forms and errors."""

import re
from collections.abc import Callable
from dataclasses import replace
from html import escape, unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import peewee
import pytest

from service import clock, db, validators
from service.api.parameter_types import RequestInfo
from service.auth import csrf, tokens
from service.auth.tokens import authenticate
from service.console import display_names, sign_in
from service.console.display_names import DisplayProfile, client_name
from service.console.times import Times
from service.errors import StaleForm
from service.fields import as_bytes, compact_json
from service.http.application import build_app
from service.models import (
    App,
    Avatar,
    Bot,
    CannedAnswer,
    CannedReply,
    ChatSession,
    DataShare,
    Delivery,
    Event,
    Feedback,
    Message,
    Notification,
    ServerCredential,
    User,
)
from service.models.audit_log import OPERATOR
from service.models.recompute import recompute
from service.routes import operations
from service.routes.console.updates import page_changes
from service.settings import Settings
from service.signing import sign
from service.updates import UpdateStream
from tests.support.access import as_form
from tests.support.client import Client, Reply
from tests.support.event_stream import EventParser
from tests.support.host_clock import Clock
from tests.support.observe import nothing_changes
from tests.support.operations import ALL
from tests.support.passwords import PASSWORD
from tests.support.sample_data import picture
from tests.support.sample_operations import UNKNOWN_ID
from tests.support.web_client import Browser, Forms

pytestmark = [pytest.mark.slow, pytest.mark.database]

PAGES = (
    "/",
    "/console/search?q=e",
    "/console/bots",
    "/console/notifications",
    "/console/events",
    "/console/events?past=true",
    "/console/shares",
    "/console/shares?past=true",
    "/console/feedback",
    "/console/settings",
    "/console/picture",
    "/console/account",
    "/console/account?clients=true",
)
FORMS = [operation for operation in ALL.values() if operation.scope == "console" and operation.method == "POST"]
ACTS = {
    "send_announcement": {"title": "News"},
    "retry_delivery": {"id": "{delivery}"},
    "change_chat": {"act": "status", "status": "closed"},
    "change_notifications": {"act": "read_all"},
    "change_events": {"act": "add", "title": "Tea", "starts_at": "2026-11-20T16:00"},
    "create_calendar_address": {},
    "revoke_calendar_address": {},
    "edit_event": {"title": "Tea", "starts_at": "2026-11-20T16:00"},
    "change_feedback": {"act": "give", "description": "Fine"},
    "begin_chat": {"app_id": "{app}", "bot_id": "{bot}"},
    "change_bot": {"app_id": "{app}", "bot_id": "{bot}", "status": "draft"},
    "change_shares": {"act": "grant", "mcp_server_id": "mail", "allowed_tools": "read"},
    "change_person": {"act": "profile", "display_name": "Eve"},
    "add_user": {"email": "new@example.com", "password": PASSWORD},
    "edit_user": {"act": "disable"},
    "end_user_logins": {},
    "delete_user_account": {"email": "{email}"},
    "change_apps": {"act": "add", "name": "New"},
    "add_bot": {"name": "New", "kind": "bot", "status": "published", "presence": "online"},
    "edit_bot": {"name": "New", "kind": "bot", "status": "published", "presence": "online"},
    "remove_bot_picture": {"kind": "icon"},
    "add_answer": {"question": "When?", "answer": "At nine."},
    "edit_answer": {"act": "save", "question": "When?", "answer": "At nine."},
    "add_canned_reply": {"shortcut": "welcome", "text": "Welcome!"},
    "edit_canned_reply": {"act": "save", "shortcut": "hi", "text": "Hello."},
    "verify_audit_log": {},
    "change_branding": {"name": "Shop"},
    "remove_logo": {},
    "revoke_any_share": {"id": "{grant}"},
    "issue_server_secret": {"act": "add", "name": "Gateway", "mcp_server_id": "files"},
    "revoke_server_credential": {"id": "{credential}"},
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

    def all(self, tag: str, **required: str) -> list[dict[str, str | None]]:
        """Return the attributes of the elements with a tag and the required attributes."""
        return [
            attributes
            for name, attributes in self.elements
            if name == tag and all(attributes.get(key.rstrip("_")) == value for key, value in required.items())
        ]


SignIn = Callable[[Client], Browser]


@pytest.fixture
def at(application: Any) -> SignIn:
    """Return a function that signs a user in with a new browser."""
    return lambda user: Browser(application).signed_in(user)


def submit(browser: Browser, path: str, **form: str) -> Reply:
    """Open a page, and send a form of it."""
    return browser.navigate("POST", path.partition("?")[0], form_fields_of(browser, path) | form)


def form_fields_of(browser: Browser, path: str) -> dict[str, str]:
    """Return the hidden fields of the forms of a page; of the events page if it has no forms."""
    html = browser.open(path).raw.decode()
    if 'name="csrf_token"' not in html:
        html = browser.open("/console/events").raw.decode()
    return {
        name: unescape(found[1])
        for name in ("csrf_token", "number")
        if (found := re.search(rf'name="{name}" value="([^"]+)"', html))
    }


def alert_of(reply: Reply) -> str:
    """Return the error message of a page."""
    [text] = re.findall(r'role="alert">(.*?)</p>', reply.raw.decode(), re.DOTALL)
    return unescape(re.sub(r"<[^>]*>", "", text))


def counts(reply: Reply) -> list[dict[str, str | None]]:
    """Return the counters of unread notifications that a page shows."""
    return [element for element in Outline(reply).all("span", class_="count") if "hidden" not in element]


def chat(session: ChatSession) -> str:
    return f"/console/chats/{session.id}"


class TestSigningIn:
    @pytest.mark.parametrize("path", PAGES)
    def test_anonymous_user_signs_in_and_returns_to_the_page(self, path: str, alice: Client, application: Any) -> None:
        browser = Browser(application)
        assert browser.open(path).status == 401
        assert "Sign in" in browser.text
        assert browser.send(email="alice@example.com", password=PASSWORD).status == 200
        assert browser.path == path

    def test_form_of_an_ended_session_leads_back_to_its_page(self, alice: Client, application: Any) -> None:
        browser = Browser(application)
        assert browser.navigate("POST", "/console/events", {"act": "add"}).status == 401
        assert browser.send(email="alice@example.com", password=PASSWORD).status == 200
        assert browser.path == "/console/events"

    @pytest.mark.parametrize("path", PAGES)
    def test_api_clients_get_a_json_error(self, path: str, anyone: Client) -> None:
        assert anyone.get(f"/{path}").error == (401, "missing_credentials")

    def test_cookie_is_invalid_after_signing_out(self, alice: Client, at: SignIn) -> None:
        browser = at(alice)
        cookies = dict(browser.cookies)
        browser.open("/")
        browser.send(0)
        assert browser.reply.status == 401
        browser.cookies = cookies
        assert browser.open("/console/account").status == 401

    def test_disabled_user_is_signed_out(self, alice: Client, at: SignIn) -> None:
        browser = at(alice)
        alice.user.disable()
        assert browser.open("/").status == 401


class TestEveryPage:
    @pytest.mark.parametrize("path", PAGES)
    def test_has_landmarks_a_skip_link_and_one_heading(self, path: str, alice: Client, at: SignIn, say: Any) -> None:
        say()
        page = Outline(at(alice).open(path))
        assert len(page.all("main", id="main")) == len(page.all("h1")) == len(page.all("header")) == 1
        assert page.all("a", href="#main")
        assert len(page.all("a", **{"aria-current": "page"})) == (path != "/console/picture")

    @pytest.mark.parametrize("path", PAGES)
    def test_every_form_has_a_local_action_and_a_csrf_token(self, path: str, admin: Client, at: SignIn) -> None:
        browser = at(admin)
        html = browser.open(path).raw.decode()
        for form in re.findall(r'<form[^>]*method="post".*?</form>', html, re.DOTALL):
            assert re.search(r'action="/(sign-out|console/\w+)', form)
            assert "/sign-out" in form or "csrf_token" in form

    @pytest.mark.parametrize("path", [*PAGES, "/console/feedback?everybody=true", "/console/catalogue"])
    def test_accepts_the_values_of_its_filter_form(
        self, path: str, admin: Client, shop: App, bot: Bot, session: ChatSession, at: SignIn
    ) -> None:
        browser = at(admin)
        html = browser.open(path).raw.decode()
        for action, form in Forms(html).found:
            if f'method="get" action="{action}"' in html:
                assert browser.open(f"{action}?{urlencode(form)}").status == 200, form

    def test_navigation_depends_on_the_role(self, agent: Client, admin: Client, alice: Client, at: SignIn) -> None:
        shown = {name: at(user).open("/").raw.decode() for name, user in (("a", agent), ("b", admin), ("c", alice))}
        assert ["/console/catalogue" in shown[name] for name in "abc"] == [True, True, False]

    def test_follows_the_theme_of_the_settings(self, alice: Client, at: SignIn) -> None:
        browser = at(alice)
        assert Outline(browser.open("/")).all("html") == [{"lang": "en"}]
        User.patch_preferences(alice.user.id, {"appearance": {"theme": "dark"}})
        assert Outline(browser.open("/")).all("html") == [{"lang": "en", "data-theme": "dark"}]

    def test_counts_unread_notifications(self, alice: Client, at: SignIn) -> None:
        assert not counts(at(alice).open("/"))
        Notification.create(user_id=alice.user.id, title="News")
        assert "(1) Inbox" in at(alice).open("/").raw.decode()
        assert len(counts(at(alice).open("/"))) == 2  # in the header and in the navigation

    def test_errors_are_html_pages_for_browsers(self, alice: Client, at: SignIn) -> None:
        browser = at(alice)
        for path, status in (("/?status=invalid", 400), ("/?cursor=x", 400), (f"/console/chats/{UNKNOWN_ID}", 404)):
            reply = browser.open(path)
            assert (reply.status, reply.headers["Content-Type"]) == (status, "text/html; charset=utf-8")
            assert alert_of(reply)
            assert Outline(reply).all("nav", id="navigation")


class TestUnknownAddresses:
    @pytest.mark.parametrize("path", ["/nowhere", "/console/nowhere", "/console/chats/", "/static/nothing.css", "//"])
    def test_show_an_error_page_with_the_navigation(self, path: str, alice: Client, at: SignIn) -> None:
        reply = at(alice).open(path)
        assert (reply.status, reply.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
        assert alert_of(reply) == "There is nothing at this address."
        page = Outline(reply)
        assert page.all("nav", id="navigation") and page.all("form", action="/sign-out")
        assert page.all("main", id="main")[0]["data-after"]

    def test_show_an_error_page_without_navigation_to_anonymous_users(self, application: Any) -> None:
        browser = Browser(application)
        reply = browser.open("/console/nowhere")
        assert reply.status == 404
        assert alert_of(reply) == "There is nothing at this address."
        assert not Outline(reply).all("nav") and Outline(reply).all("a", href="/")

    def test_show_an_error_page_if_the_database_is_unavailable(
        self, alice: Client, at: SignIn, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*arguments: Any) -> Any:
            raise peewee.OperationalError("disk I/O error")

        browser = at(alice)
        monkeypatch.setattr(sign_in, "caller_of", fail)
        monkeypatch.setattr(db, "is_unavailable", lambda error: isinstance(error, peewee.OperationalError))
        assert browser.open("/nowhere").status == 404
        assert alert_of(browser.reply) == "There is nothing at this address."

    def test_with_another_method_are_405(self, alice: Client, at: SignIn) -> None:
        reply = at(alice).open("/sign-out")
        assert (reply.status, reply.headers["Allow"]) == (405, "OPTIONS, POST")
        assert Outline(reply).all("nav", id="navigation") and alert_of(reply)

    @pytest.mark.parametrize("headers", [{}, {"accept": "text/html"}, {"sec_fetch_mode": "cors"}])
    def test_return_the_envelope_to_api_clients(self, headers: dict[str, str], alice: Client, anyone: Client) -> None:
        for client in (alice, anyone):
            for path in ("//nowhere", "//console/nowhere", "/nowhere", "//static/nothing.css"):
                assert client.get(path, **headers).error == (404, "not_found")

    def test_return_the_envelope_without_the_console(self, alice: Client, settings: Settings) -> None:
        documented = build_app(operations(documented_only=True), replace(settings, documented_only=True))
        client = Client(documented, alice.token)
        assert client.get("//nowhere", sec_fetch_mode="navigate").error == (404, "not_found")


class TestUpdates:
    """The long poll of the script of an open page."""

    def position(self, browser: Browser, path: str = "/") -> str:
        """Return the position of a page in the updates."""
        (main,) = Outline(browser.open(path)).all("main")
        return main["data-after"] or ""

    def poll(self, browser: Browser, after: str) -> dict[str, str]:
        reply = browser.open(f"/console/news?{urlencode({'after': after})}")
        assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
        [(tag, attributes)] = Outline(reply).elements
        assert tag == "p"
        return {name.removeprefix("data-"): value or "" for name, value in attributes.items()}

    def test_are_empty_at_first(self, alice: Client, say: Any, at: SignIn) -> None:
        say("Hello")
        browser = at(alice)
        found = self.poll(browser, self.position(browser))
        assert found.pop("after")
        assert found == {"chats": "", "notifications": "", "unread": "0"}

    @pytest.mark.parametrize("path", PAGES)
    def test_are_sent_to_every_page(
        self, path: str, alice: Client, agent: Client, session: ChatSession, at: SignIn
    ) -> None:
        browser = at(alice)
        after = self.position(browser, path)
        agent.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello"}})
        found = self.poll(browser, after)
        assert found | {"after": ""} == {"after": "", "chats": session.id, "notifications": "changed", "unread": "1"}
        assert self.poll(browser, found["after"])["chats"] == ""

    def test_are_sent_to_the_page_of_a_chat(
        self, alice: Client, agent: Client, session: ChatSession, at: SignIn
    ) -> None:
        browser = at(agent)
        alice.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello"}})  # the first notifies staff
        agent.patch("/notifications/read-all")
        after = self.position(browser, chat(session))
        alice.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello"}})
        found = self.poll(browser, after)
        assert found | {"after": ""} == {"after": "", "chats": session.id, "notifications": "", "unread": "0"}

    def test_list_every_changed_chat(self, alice: Client, shop: App, at: SignIn) -> None:
        browser = at(alice)
        after = self.position(browser)
        created = [ChatSession.create(app_id=shop.id, user_id=alice.user.id).id for _ in range(3)]
        assert self.poll(browser, after)["chats"].split() == created

    def test_contain_changes_of_notifications(self, alice: Client, at: SignIn) -> None:
        browser = at(alice)
        Notification.create(user_id=alice.user.id, title="News")
        after = self.position(browser)
        alice.patch("/notifications/read-all")
        found = self.poll(browser, after)
        assert found | {"after": ""} == {"after": "", "chats": "", "notifications": "changed", "unread": "0"}

    def test_of_other_users_are_not_sent(
        self, alice: Client, bob: Client, other_agent: Client, agent: Client, session: ChatSession, at: SignIn
    ) -> None:
        browsers = [at(bob), at(other_agent)]
        positions = [self.position(browser) for browser in browsers]
        agent.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello"}})
        for browser, after in zip(browsers, positions, strict=True):
            found = self.poll(browser, after)
            assert found | {"after": ""} == {"after": "", "chats": "", "notifications": "", "unread": "0"}

    def test_contain_changes_during_the_rendering_of_the_page(
        self, alice: Client, session: ChatSession, at: SignIn, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The chat changes after the messages of the page were read."""
        browser, read = at(alice), display_names.chat_titles

        def change_after_reading(*arguments: Any) -> Any:
            ChatSession.mark_changed(session.id)
            return read(*arguments)

        for path in ("/", chat(session)):
            with monkeypatch.context() as patch:
                patch.setattr(display_names, "chat_titles", change_after_reading)
                after = self.position(browser, path)
            assert self.poll(browser, after)["chats"] == session.id

    @pytest.mark.parametrize("after", ["x", "a.b.c", "x" * 16_385])
    def test_from_an_invalid_position_are_refused(self, after: str, alice: Client, at: SignIn) -> None:
        reply = at(alice).open(f"/console/news?after={after}")
        assert (reply.status, reply.headers["Content-Type"]) == (400, "text/html; charset=utf-8")
        assert alert_of(reply)

    def test_from_a_position_of_another_user_are_refused(self, alice: Client, bob: Client, at: SignIn) -> None:
        after = self.position(at(bob))
        assert at(alice).open(f"/console/news?after={after}").status == 400

    def test_need_a_signed_in_user(self, alice: Client, application: Any, at: SignIn) -> None:
        browser = Browser(application)
        after = self.position(at(alice))
        assert browser.open(f"/console/news?after={after}").status == 401
        assert "Sign in" in browser.text
        # The script uses only the status.
        assert browser.navigate("GET", f"/console/news?after={after}", sec_fetch_mode="cors").status == 401

    def test_are_events_of_a_stream(self, alice: Client, agent: Client, session: ChatSession, at: SignIn) -> None:
        browser = at(alice)
        after = self.position(browser)
        agent.post(f"/chats/{session.id}/messages", {"content": {"text": "Hello"}})
        reply = browser.open(f"/console/news/stream?{urlencode({'after': after})}")
        [event] = EventParser().feed(reply.raw)
        expected = {"chats": [session.id], "notifications": True, "after": event.last_id, "unread": 1}
        assert (event.name, event.data) == ("changes", expected)
        assert self.poll(browser, event.last_id)["chats"] == ""
        assert Browser(browser.client.application).open("/console/news/stream").status == 401

    def test_events_of_a_stream_write_nothing(self, alice: Client, session: ChatSession) -> None:
        """They are read in a snapshot with those of other streams."""
        Event.create(user_id=alice.user.id, title="Call", starts_at="2026-01-02", reminder_at="2026-01-01")
        stream = UpdateStream(authenticate(f"Bearer {alice.token}"), "", page_changes)
        ChatSession.mark_changed(session.id)
        with nothing_changes():
            [event] = EventParser().feed(stream.read())
        assert event.data["unread"] == 0

    def test_change_no_data(self, alice: Client, say: Any, at: SignIn) -> None:
        browser = at(alice)
        after = self.position(browser)
        with nothing_changes():
            self.poll(browser, after)


class TestForms:
    def make_form(self, session: ChatSession, bot: Bot) -> Callable[[str], tuple[str, dict[str, str]]]:
        def form(name: str) -> tuple[str, dict[str, str]]:
            grant = DataShare.grant(session.user_id, mcp_server_id="mail", allowed_tools='["read"]')
            email = User.get_by_id(session.user_id).email
            names = {"app": bot.app_id, "bot": bot.id, "grant": grant.id, "email": email}
            names["delivery"] = Delivery.create(channel="webhook", kind="chat.created", due_at=clock.MAX_TIME).id
            names["credential"] = ServerCredential.add({"name": "A", "mcp_server_id": "files"}, OPERATOR).client_id
            filled = {key: value.format(**names) for key, value in ACTS[name].items()}
            answer = CannedAnswer.create(bot_id=bot.id, question="Who?", answer="Hilda.")
            admin = User.get(User.role == "admin")
            event = Event.create(user_id=admin.id, title="Lunch", starts_at="2990-07-01T09:00:00.000Z")
            ids = {
                App: bot.app_id,
                Bot: bot.id,
                ChatSession: session.id,
                CannedAnswer: answer.id,
                User: session.user_id,
            }
            reply = CannedReply.create(app_id=bot.app_id, shortcut="hi", text="Hi.")
            ids |= {Event: event.id, CannedReply: reply.id}
            path = ALL[name].full_path
            for identifier, _, table in ALL[name].path_rows:
                path = path.replace(f"{{{identifier}}}", ids[table])
            return path, filled

        return form

    def test_are_all_tested(self) -> None:
        assert {operation.name for operation in FORMS} == {
            *ACTS,
            "change_picture",
            "change_bot_picture",
            "attach_image",
            "suggest_text",
            "show_read_once",
            "give_feedback",
            "change_logo",
            "change_push_address",
            "change_push_browser",
            "change_backups",
            "download_backup",
        }

    @pytest.mark.parametrize("name", ACTS)
    def test_need_the_csrf_token_of_the_session(
        self, name: str, admin: Client, bob: Client, session: ChatSession, bot: Bot, at: SignIn
    ) -> None:
        browser, other = at(admin), at(bob)
        path, form = self.make_form(session, bot)(name)
        foreign = form_fields_of(other, "/console/events")["csrf_token"]
        own = form_fields_of(browser, "/console/events")["csrf_token"]
        other_session = form_fields_of(at(admin), "/console/events")["csrf_token"]
        session_id = tokens.authenticate(f"Bearer {admin.token}").session_id
        for csrf_token in ("", "x", foreign, other_session, own + "x", own[:-2], sign("sign-in", [session_id])):
            with nothing_changes():
                reply = browser.navigate("POST", path, {**form, "csrf_token": csrf_token})
            assert reply.status == 400
            assert "go back and try again" in alert_of(reply)
        assert browser.navigate("POST", path, {**form, "csrf_token": own}).status == 200

    def test_show_the_maximum_size_in_mib_on_an_error_page(self, alice: Client, at: SignIn) -> None:
        browser = at(alice)
        csrf_token = form_fields_of(browser, "/console/picture")["csrf_token"]
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        for size, limit in ((5 * 1024 * 1024 + 1, "The file is larger than 5 MiB."), (7 * 1024 * 1024, "than 6 MiB.")):
            body = as_form({"avatar": bytes(size)})
            with nothing_changes():
                reply = alice.post(
                    f"//console/picture?csrf_token={csrf_token}",
                    token="",
                    cookie=cookie,
                    sec_fetch_mode="navigate",
                    **body,
                )
            assert reply.status == 413
            assert limit in alert_of(reply)
            assert Outline(reply).all("nav", id="navigation")

    def test_with_a_file_need_a_csrf_token_too(self, alice: Client, at: SignIn) -> None:
        browser, body = at(alice), as_form({"avatar": picture()})
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        for query in ("", "?csrf_token=x", f"?csrf_token={sign('form', ['x'])}"):
            with nothing_changes():
                reply = alice.post(f"//console/picture{query}", cookie=cookie, sec_fetch_mode="navigate", **body)
            assert reply.status == 400

    def test_cookie_is_same_site_and_http_only(self, alice: Client) -> None:
        with db.write():
            created = sign_in.begin(alice.user.id, RequestInfo("127.0.0.1", "tests"))
        assert "SameSite=Lax" in created
        assert "HttpOnly" in created

    def test_that_are_too_large_show_an_error_page(self, alice: Client, session: ChatSession, at: SignIn) -> None:
        browser = at(alice)
        with nothing_changes():
            reply = submit(browser, chat(session), act="send", text="x" * 300 * 1024)
        assert reply.status == 413
        assert "larger than" in alert_of(reply)


class TestOtherUsers:
    def test_get_an_error_page_for_a_chat(
        self, bob: Client, other_agent: Client, session: ChatSession, at: SignIn
    ) -> None:
        for user in (bob, other_agent):
            browser = at(user)
            reply = browser.open(chat(session))
            assert (reply.status, alert_of(reply)) == (403, "You may not do this.")
            csrf_token = form_fields_of(browser, "/console/events")["csrf_token"]
            for form in ({"act": "send", "text": "Hi"}, {"act": "status", "status": "closed"}, {"act": "read"}):
                with nothing_changes():
                    assert browser.navigate("POST", chat(session), {**form, "csrf_token": csrf_token}).status == 403

    @pytest.mark.parametrize("id", ["x", "../events", "0" * 36])
    def test_get_an_error_for_invalid_identifiers(self, id: str, alice: Client, at: SignIn) -> None:
        assert at(alice).open(f"/console/chats/{id}").status in (400, 404)

    def test_cannot_access_a_message_by_the_address_of_another_chat(
        self, alice: Client, bob: Client, session: ChatSession, say: Any, shop: App, at: SignIn
    ) -> None:
        own = ChatSession.create(app_id=shop.id, user_id=bob.user.id)
        message = say("Text of Alice")
        browser = at(bob)
        for act in ("pin", "unpin", "delete", "edit"):
            with nothing_changes():
                assert submit(browser, chat(own), act=act, message=message.id, text="x").status == 404
        assert "Text of Alice" not in browser.open(f"{chat(own)}?at={message.id}&reply={message.id}").raw.decode()


class TestAChat:
    def test_shows_both_sides(
        self, alice: Client, agent: Client, session: ChatSession, say: Any, bot: Bot, at: SignIn
    ) -> None:
        own_message = say("Mine", sender_id=alice.user.id)
        bot_message = say("Theirs", sender_id=bot.id, sender_type="bot")
        page = Outline(at(alice).open(chat(session)))
        assert page.all("li", id=f"m-{own_message.id}", class_="message own")
        assert page.all("li", id=f"m-{bot_message.id}", class_="message bot")
        page = Outline(at(agent).open(chat(session)))
        assert page.all("li", id=f"m-{own_message.id}", class_="message customer")

    def test_groups_consecutive_messages_of_a_sender(
        self, alice: Client, agent: Client, session: ChatSession, host_clock: Any, at: SignIn
    ) -> None:
        browser = at(agent)
        Bot.update(kind="nobot").execute()
        for client, text, minutes in (
            (alice, "first", 0),
            (alice, "second", 1),
            (alice, "later", 6),
            (agent, "reply", 1),
            (agent, "note", 1),
        ):
            host_clock.forward(minutes=minutes)
            body = {"content": {"text": text}, "is_private": text == "note"}
            assert client.post(f"/chats/{session.id}/messages", body).status == 201
        html = browser.open(chat(session)).raw.decode()
        classes = re.findall(r'<li id="m-\w+" [^>]*class="message ([\w ]+)"', html)
        assert classes == ["customer", "customer continued", "customer", "own", "own private"]

    def test_text_direction_is_automatic(self, alice: Client, session: ChatSession, say: Any, at: SignIn) -> None:
        say(RTL, sender_id=alice.user.id)
        html = at(alice).open(chat(session)).raw.decode()
        assert f'<p class="text" dir="auto">{RTL}</p>' in html

    def test_stores_a_message(self, alice: Client, session: ChatSession, at: SignIn) -> None:
        browser = at(alice)
        reply = submit(browser, chat(session), **EMPTY, act="send", text=f"  {RTL}\r\nsecond line  ")
        assert (reply.status, browser.path) == (200, f"{chat(session)}#end")
        message = Message.get(Message.sender_id == alice.user.id)
        assert message.plain_text == f"{RTL}\nsecond line"
        assert escape(RTL) in reply.raw.decode()

    def test_stores_a_message_once_if_the_form_is_sent_repeatedly(
        self, alice: Client, session: ChatSession, at: SignIn
    ) -> None:
        browser = at(alice)
        form = {**form_fields_of(browser, chat(session)), "act": "send", "text": "Hello"}
        for _ in range(3):
            assert browser.navigate("POST", chat(session), form).status == 200
        assert Message.select().where(Message.sender_id == alice.user.id).count() == 1
        with nothing_changes():
            refused = browser.navigate("POST", chat(session), {**form, "text": "Something else"})
        assert refused.status == 400
        assert "This form was already sent" in alert_of(refused)
        assert ">Something else</textarea>" in refused.raw.decode()

    @pytest.mark.parametrize("text", ["", " \r\n\t "])
    def test_refuses_empty_messages(self, text: str, alice: Client, session: ChatSession, at: SignIn) -> None:
        browser = at(alice)
        with nothing_changes():
            reply = submit(browser, chat(session), act="send", text=text)
        assert (reply.status, alert_of(reply)) == (400, "Error: Enter a message.")

    def test_refuses_more_than_64_kib_and_keeps_the_text_in_the_form(
        self, alice: Client, session: ChatSession, at: SignIn
    ) -> None:
        browser, room = at(alice), 64 * 1024 - len('{"text":""}')
        with nothing_changes():
            reply = submit(browser, chat(session), act="send", text="ש" * (room // 2 + 1))
        assert reply.status == 400
        assert "ש" * (room // 2 + 1) in reply.raw.decode()
        assert submit(browser, chat(session), act="send", text="x" * room).status == 200
        assert "x" * room in browser.reply.raw.decode()

    def test_reply_quotes_the_message(
        self, alice: Client, agent: Client, session: ChatSession, say: Any, at: SignIn
    ) -> None:
        question = say("Where is it?", sender_id=alice.user.id)
        browser = at(agent)
        assert "Replying to" in browser.open(f"{chat(session)}?reply={question.id}").raw.decode()
        submit(browser, chat(session), act="send", text="On its way", reply=question.id)
        assert '<blockquote dir="auto">Where is it?</blockquote>' in at(alice).open(chat(session)).raw.decode()

    def test_private_notes_are_visible_to_staff_only(
        self, alice: Client, agent: Client, session: ChatSession, at: SignIn
    ) -> None:
        submit(at(agent), chat(session), act="send", text="A note", is_private="true")
        assert "Private note</span>" in at(agent).open(chat(session)).raw.decode()
        browser = at(alice)
        assert "A note" not in browser.open(chat(session)).raw.decode()
        assert "is_private" not in browser.reply.raw.decode()
        with nothing_changes():
            assert submit(browser, chat(session), act="send", text="x", is_private="true").status == 403

    def test_reply_to_a_note_is_a_note(self, agent: Client, session: ChatSession, say: Any, at: SignIn) -> None:
        browser, note, message = at(agent), say("A note", is_private=True), say("Hello")
        checked = re.compile(r'name="is_private" value="true" checked')
        assert not checked.search(browser.open(f"{chat(session)}?reply={message.id}").raw.decode())
        assert checked.search(browser.open(f"{chat(session)}?reply={note.id}").raw.decode())
        with nothing_changes():
            assert submit(browser, chat(session), act="send", text="x", reply=note.id).status == 400
        assert "only a note may reply to a note" in browser.text

    def test_choice_of_a_private_note_is_kept(self, agent: Client, session: ChatSession, say: Any, at: SignIn) -> None:
        browser, message = at(agent), say("Hello")
        checked = re.compile(r'name="is_private" value="true" checked')

        def is_note(reply: Reply) -> bool:
            return bool(checked.search(reply.raw.decode()))

        assert not is_note(browser.open(chat(session)))
        submit(browser, chat(session), act="send", text="A note", is_private="true")
        assert browser.path == f"{chat(session)}?note=true#end"
        assert is_note(browser.reply)
        conversation = browser.reply.raw.decode().partition('class="conversation"')[2]
        paths = re.findall(rf'(?:href|action)="({chat(session)}[^"]*)"', conversation)
        assert paths
        for path in paths:
            assert "note=true" in path
        note_path = f"{chat(session)}?note=true"
        for form in ({"act": "pin"}, {"act": "unpin"}, {"act": "read"}, {"act": "status", "status": "pending"}):
            reply = browser.navigate(
                "POST", note_path, {**form_fields_of(browser, note_path), **form, "message": message.id}
            )
            assert reply.status == 200
            assert is_note(reply)
        refused = browser.navigate(
            "POST", note_path, {**form_fields_of(browser, note_path), "act": "send", "is_private": "true"}
        )
        assert refused.status == 400
        assert is_note(refused)
        submit(browser, note_path, act="send", text="No note")
        assert browser.path == f"{chat(session)}#end"
        assert not is_note(browser.reply)

    def test_customers_cannot_choose_private_notes(self, alice: Client, session: ChatSession, at: SignIn) -> None:
        assert "rivate note" not in at(alice).open(f"{chat(session)}?note=true").raw.decode()

    def test_shows_the_same_messages_after_every_form(
        self, alice: Client, session: ChatSession, say: Any, at: SignIn
    ) -> None:
        with db.write():
            ids = [say(f"line {number}", sender_id=alice.user.id).id for number in range(120)]
        browser = at(alice)
        for query in (f"?before={ids[80]}", f"?after={ids[20]}", f"?at={ids[50]}", ""):
            path = f"{chat(session)}{query}"
            shown = re.findall(r'id="m-(\w+)"', browser.open(path).raw.decode())
            for form in ({"act": "pin"}, {"act": "unpin"}, {"act": "edit", "text": "Another text"}):
                browser.navigate("POST", path, {**form_fields_of(browser, path), **form, "message": shown[7]})
                assert browser.path.endswith(f"#m-{shown[7]}")
                assert re.findall(r'id="m-(\w+)"', browser.reply.raw.decode()) == shown
            browser.navigate("POST", path, {**form_fields_of(browser, path), "act": "delete", "message": shown[7]})
            assert browser.path.endswith(f"#m-{shown[6]}")
            assert set(shown) - set(re.findall(r'id="m-(\w+)"', browser.reply.raw.decode())) == {shown[7]}

    def test_shows_the_end_after_its_only_message_was_deleted(
        self, alice: Client, session: ChatSession, say: Any, at: SignIn
    ) -> None:
        browser, message = at(alice), say("Alone", sender_id=alice.user.id)
        reply = submit(browser, chat(session), act="delete", message=message.id)
        assert browser.path == f"{chat(session)}?done=deleted#end"
        assert "Write the first message below." in reply.raw.decode()

    def test_archived_chat_has_no_hint_to_write(self, alice: Client, session: ChatSession, at: SignIn) -> None:
        browser = at(alice)
        assert "Write the first message below." in browser.open(chat(session)).raw.decode()
        reply = submit(browser, chat(session), act="status", status="archived")
        assert "accepts no new messages" in reply.raw.decode()
        assert "first message" not in reply.raw.decode()

    def test_edits_a_message(self, alice: Client, session: ChatSession, say: Any, at: SignIn) -> None:
        browser = at(alice)
        own_message = say("Helo", sender_id=alice.user.id)
        assert ">Helo</textarea>" in browser.open(f"{chat(session)}?edit={own_message.id}").raw.decode()
        reply = submit(browser, chat(session), act="edit", message=own_message.id, text="Hello")
        assert ">Hello</p>" in reply.raw.decode() and "· edited" in reply.raw.decode()
        with nothing_changes():
            refused = submit(browser, chat(session), act="edit", message=own_message.id, text="")
        assert refused.status == 400 and "Editing" in refused.raw.decode()

    def test_other_users_cannot_edit_a_message(
        self, alice: Client, agent: Client, session: ChatSession, say: Any, at: SignIn
    ) -> None:
        own_message = say("Hello", sender_id=alice.user.id)
        browser = at(agent)
        assert "Editing" not in browser.open(f"{chat(session)}?edit={own_message.id}").raw.decode()
        with nothing_changes():
            assert submit(browser, chat(session), act="edit", message=own_message.id, text="x").status == 403

    def test_pin_unpin_and_delete_can_be_repeated(
        self, alice: Client, session: ChatSession, say: Any, at: SignIn
    ) -> None:
        browser, message = at(alice), say("Remember this", sender_id=alice.user.id)
        for act, expected in (("pin", "1 pinned"), ("pin", "1 pinned"), ("unpin", "Pin</button>"), ("unpin", "Pin</")):
            assert expected in submit(browser, chat(session), act=act, message=message.id).raw.decode()
        for _ in range(2):
            assert "Remember this" not in submit(browser, chat(session), act="delete", message=message.id).raw.decode()
        assert Message.get().plain_text == "Remember this"

    def test_messages_that_the_customer_deleted_are_labelled_for_staff(
        self, alice: Client, agent: Client, session: ChatSession, say: Any, at: SignIn
    ) -> None:
        message = say("We promise", sender_type="agent", sender_id=agent.user.id)
        page = submit(at(alice), chat(session), act="delete", message=message.id).raw.decode()
        assert "We promise" not in page and "Deleted by the customer" not in page
        page = at(agent).open(chat(session)).raw.decode()
        assert "We promise" in page and "Deleted by the customer; visible to staff only" in page
        assert "Private note</span>" not in page and "Edit</a>" not in page and "Reply</a>" not in page

    def test_deleted_and_purged_messages_are_not_shown(
        self, alice: Client, agent: Client, session: ChatSession, say: Any, at: SignIn
    ) -> None:
        deleted, purged = say("Deleted text"), say("Purged text")
        deleted.soft_delete()
        Message.purge(Message.id == purged.id)
        for user in (alice, agent):
            for path in (chat(session), f"{chat(session)}?at={deleted.id}", "/", "/console/search?q=text"):
                html = at(user).open(path).raw.decode()
                assert "Deleted text" not in html and "Purged text" not in html and "(no text)" not in html
        assert "This message was deleted permanently." in at(alice).open(chat(session)).raw.decode()

    @pytest.mark.parametrize(
        ("content", "shown"),
        [
            ({"card": "x"}, "&quot;card&quot;: &quot;x&quot;"),
            ([1, 999], "999"),
            ([], "(no text)"),
            ("plain", ">plain<"),
        ],
    )
    def test_other_content_is_shown_as_json(
        self, content: Any, shown: str, alice: Client, session: ChatSession, at: SignIn
    ) -> None:
        Message.create(id=clock.ulid(), chat_session_id=session.id, content=compact_json(as_bytes(content)))
        recompute([session.id])
        assert shown in at(alice).open(chat(session)).raw.decode()

    def test_pages_contain_every_message_once(self, alice: Client, session: ChatSession, say: Any, at: SignIn) -> None:
        with db.write():
            ids = [say(f"line {number}").id for number in range(60)]
        browser = at(alice)

        def shown(path: str) -> list[str]:
            return re.findall(r'id="m-(\w+)"', browser.open(path).raw.decode())

        newest = shown(chat(session))
        middle = shown(f"{chat(session)}?before={newest[0]}")
        oldest = shown(f"{chat(session)}?before={middle[0]}")
        assert oldest + middle + newest == ids
        assert shown(f"{chat(session)}?after={oldest[-1]}") == middle + newest[: 25 - len(middle)]
        around = shown(f"{chat(session)}?at={ids[30]}")
        assert around == ids[18:42]
        assert f"?before={ids[18]}" in browser.reply.raw.decode()
        assert f"?after={ids[41]}" in browser.reply.raw.decode()

    def test_finds_messages_with_equal_timestamps(
        self, host_clock: Clock, alice: Client, session: ChatSession, say: Any, at: SignIn
    ) -> None:
        with db.write():
            ids = [say(f"line {number}", sender_id=alice.user.id).id for number in range(70)]
        assert len({clock.ulid_time(id) for id in ids}) == 1
        browser = at(alice)
        for place in (0, 1, 33, 34, 68, 69):
            found = re.findall(r'id="m-(\w+)"', browser.open(f"{chat(session)}?at={ids[place]}").raw.decode())
            assert found == ids[max(0, place - 12) : place + 12]
            html = browser.open(f"{chat(session)}?reply={ids[place]}").raw.decode()
            assert re.search(rf"Replying to.*?\bline {place}\b", html, re.DOTALL)

    def test_groups_messages_by_day_in_the_time_zone_of_the_user(
        self, alice: Client, session: ChatSession, say: Any, host_clock: Any, at: SignIn
    ) -> None:
        say("Late", created_at="2026-11-18T23:30:00.000Z")
        say("Soon", created_at="2026-11-20T09:59:00.000Z")
        html = at(alice).open(chat(session)).raw.decode()
        assert re.findall(r'<li class="day"><h2>(.*?)</h2>', html) == ["Wednesday, 18 November 2026", "Today"]
        User.update_profile(alice.user.id, {"timezone": "Asia/Tokyo"})
        html = at(alice).open(chat(session)).raw.decode()
        assert re.findall(r'<li class="day"><h2>(.*?)</h2>', html) == ["Yesterday", "Today"]
        assert '<time datetime="2026-11-18T23:30:00.000Z" title="19 Nov 2026, 08:30">08:30</time>' in html

    def test_marks_messages_as_read(self, alice: Client, session: ChatSession, say: Any, bot: Bot, at: SignIn) -> None:
        message = say("News", sender_id=bot.id, sender_type="bot")
        browser = at(alice)
        assert "Mark 1 as read" in browser.open(chat(session)).raw.decode()
        assert "Mark 1" not in submit(browser, chat(session), act="read", message=message.id).raw.decode()
        assert not counts(browser.open("/"))

    def test_changes_to_any_status(self, alice: Client, session: ChatSession, at: SignIn) -> None:
        browser = at(alice)
        for status, text in (
            ("resolved", "Chat ended."),
            ("pending", "Status changed."),
            ("archived", "Chat archived."),
        ):
            assert text in submit(browser, chat(session), act="status", status=status).raw.decode()
            assert ChatSession.get().status == status
        assert "accepts no new messages" in browser.reply.raw.decode()
        assert 'name="text"' not in browser.reply.raw.decode()
        for form in ({"act": "status", "status": "invalid"}, {"act": "send", "text": "Hello?"}):
            with nothing_changes():
                assert submit(browser, chat(session), **form).status == 400


class TestTheInbox:
    def test_shows_own_chats_and_to_staff_those_of_the_app(
        self, alice: Client, bob: Client, agent: Client, other_agent: Client, session: ChatSession, say: Any, at: SignIn
    ) -> None:
        say(RTL)
        for user, sees in ((alice, True), (agent, True), (bob, False), (other_agent, False)):
            assert (RTL in at(user).open("/").raw.decode()) == sees
        assert "Hilda" in at(alice).open("/").raw.decode()
        assert "Alice" in at(agent).open("/").raw.decode()
        assert "No chats yet" in at(bob).open("/").raw.decode()

    def test_filters_by_status_and_has_pages(self, alice: Client, shop: App, at: SignIn) -> None:
        for number in range(30):
            ChatSession.create(app_id=shop.id, user_id=alice.user.id, status="open" if number % 2 else "closed")
        browser = at(alice)
        first = re.findall(r'href="(/console/chats/[\w-]+)#end"', browser.open("/").raw.decode())
        [next_page] = re.findall(r'href="(\?cursor=[^"]+)"', browser.reply.raw.decode())
        second = re.findall(r'href="(/console/chats/[\w-]+)#end"', browser.open(f"/{unescape(next_page)}").raw.decode())
        assert (len(first), len(second), len({*first, *second})) == (25, 5, 30)
        browser.open("/?status=closed")
        assert len(re.findall("/console/chats/", browser.reply.raw.decode())) == 15
        assert "No matching chats" in browser.open("/?status=snoozed").raw.decode()

    def test_search_results_link_to_the_message(
        self, alice: Client, bob: Client, session: ChatSession, say: Any, at: SignIn
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
        """A hostile text in every text column."""
        User.update(first_name=EVIL[:100], display_name=EVIL[:100]).execute()
        App.update(name=EVIL).execute()
        columns = dict.fromkeys(("name", "tagline", "description", "category", "country", "city"), EVIL)
        columns |= {"contact_email": EVIL, "contact_phone": EVIL, "contact_website": "javascript:alert(1)"}
        Bot.update(**columns, is_featured=True, rating=4.5).execute()
        Bot.create(app_id=shop.id, name=EVIL, status="published", contact_website=f"https://a.example/{EVIL}")
        original = Message.create(
            id=clock.ulid(), chat_session_id=session.id, content=compact_json(as_bytes({"text": EVIL})),
            sender_id=alice.user.id, pinned_at=clock.timestamp(), sender_type=EVIL[:64],
        )  # fmt: skip
        for content in ({"text": EVIL}, {EVIL: EVIL}):
            Message.create(
                id=clock.ulid(), chat_session_id=session.id, content=compact_json(as_bytes(content)),
                reply_to_message_id=original.id, reply_snapshot=compact_json(as_bytes({"text": EVIL})),
            )  # fmt: skip
        recompute([session.id])
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
                tokens.log_in(user.id, settings, EVIL)
                tokens.create_token_session(user.id, settings, label=EVIL, scopes=EVIL, install_id=EVIL, kind="client")

    @pytest.mark.parametrize("name", ["alice", "agent", "admin"])
    def test_are_escaped_on_every_page(
        self, name: str, everywhere: None, session: ChatSession, at: SignIn, request: Any
    ) -> None:
        browser = at(request.getfixturevalue(name))
        message = Message.select().order_by(Message.id).first()
        paths = [*PAGES, chat(session), f"{chat(session)}?reply={message.id}", f"{chat(session)}?edit={message.id}"]
        paths += [f"/console/search?q={'%3Cevil'}", f"/console/bots?search={'%22%3E%3Cevil'}"]
        paths += ["/console/catalogue"] if name != "alice" else []
        paths += ["/console/feedback?everybody=true"] if name == "admin" else []
        for path in paths:
            reply = browser.open(path)
            assert reply.status == 200, path
            page = Outline(reply)
            assert "<evil" not in reply.raw.decode(), path
            assert "49<!--" not in reply.raw.decode()
            of_chat = ["chat.js", "images.js", "canned-replies.js"] if path.startswith(chat(session)) else []
            scripts = ["console.js", *of_chat, "shortcuts.js"]
            assert page.all("script") == [{"src": f"/static/{script}"} for script in scripts], path
            for tag, attributes in page.elements:
                assert not [name for name in attributes if name.startswith("on") or name == "style"], (path, tag)
                for attribute in ("href", "src", "action"):
                    address = attributes.get(attribute) or "/"
                    assert address.startswith(("/", "?", "#", "https://a.example/", "mailto:alice@")), (path, address)

    def test_are_escaped_in_forms_with_errors(self, alice: Client, session: ChatSession, at: SignIn) -> None:
        browser = at(alice)
        refused = submit(browser, "/console/events", act="add", title=EVIL, starts_at="invalid", notes=EVIL)
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
            refused = submit(browser, path, **form)
            assert refused.status == 400, path
            assert "<evil" not in refused.raw.decode()


class TestNotifications:
    def test_can_be_marked_and_deleted_singly(self, alice: Client, at: SignIn) -> None:
        one = Notification.create(user_id=alice.user.id, title="News")
        browser = at(alice)
        for act, is_read in (("read", True), ("read", True), ("unread", False)):
            assert submit(browser, "/console/notifications", act=act, id=one.id).status == 200
            assert bool(Notification.get().read_at) == is_read
        for _ in range(2):
            assert submit(browser, "/console/notifications", act="delete", id=one.id).status == 200
        assert not Notification.select().exists()
        assert "No notifications" in browser.reply.raw.decode()

    def test_that_are_newer_than_the_page_stay_unread(self, alice: Client, host_clock: Any, at: SignIn) -> None:
        seen = Notification.create(user_id=alice.user.id, title="Seen")
        browser = at(alice)
        form = form_fields_of(browser, "/console/notifications")
        [before] = re.findall(r'name="before" value="([^"]+)"', browser.reply.raw.decode())
        host_clock.forward(seconds=1)
        unseen = Notification.create(user_id=alice.user.id, title="Unseen")
        browser.navigate("POST", "/console/notifications", {**form, "act": "read_all", "before": before})
        assert Notification.get_by_id(seen.id).read_at
        assert not Notification.get_by_id(unseen.id).read_at

    def test_of_other_users_cannot_be_accessed(self, alice: Client, bob: Client, at: SignIn) -> None:
        one = Notification.create(user_id=alice.user.id, title="News of Alice")
        browser = at(bob)
        assert "News of Alice" not in browser.open("/console/notifications").raw.decode()
        for act in ("read", "unread", "delete"):
            with nothing_changes():
                assert submit(browser, "/console/notifications", act=act, id=one.id).status == 403
        submit(browser, "/console/notifications", act="read_all")
        assert not Notification.get().read_at


class TestEvents:
    def test_are_deleted_after_a_confirmation(self, alice: Client, at: SignIn) -> None:
        browser = at(alice)
        submit(browser, "/console/events", act="add", title="Tea", starts_at="2990-11-20T16:00")
        buttons = re.findall(r'<details class="confirm">(.*?)</details>', browser.reply.raw.decode(), re.DOTALL)
        assert [one.count('value="delete"') for one in buttons] == [1]
        assert browser.reply.raw.count(b'value="delete"') == 1
        assert "Delete event Tea" in re.sub(r"<[^>]*>", "", buttons[0])

    def test_are_added_in_the_time_zone_of_the_user(self, alice: Client, at: SignIn) -> None:
        User.update_profile(alice.user.id, {"timezone": "America/New_York"})
        form = {"title": f" {RTL} ", "starts_at": "2990-07-01T09:00", "ends_at": "2990-07-01T10:30"}
        submit(
            at(alice), "/console/events", act="add", reminder_at="2990-07-01T08:45", is_time_sensitive="true", **form
        )
        event = Event.get()
        assert (event.title, event.starts_at, event.ends_at) == (
            RTL, "2990-07-01T13:00:00.000Z", "2990-07-01T14:30:00.000Z",
        )  # fmt: skip
        assert (event.reminder_at, event.is_time_sensitive) == ("2990-07-01T12:45:00.000Z", True)

    def test_are_added_and_deleted_once(self, alice: Client, at: SignIn) -> None:
        browser = at(alice)
        form = {
            **form_fields_of(browser, "/console/events"),
            "act": "add",
            "title": "Tea",
            "starts_at": "2990-07-01T09:00",
        }
        form |= EMPTY
        for _ in range(2):
            assert "Tea" in browser.navigate("POST", "/console/events", form).raw.decode()
        assert Event.select().count() == 1
        event = Event.get()
        for _ in range(2):
            assert submit(browser, "/console/events", act="delete", id=event.id).status == 200
        assert not Event.select().exists()

    @pytest.mark.parametrize(
        ("form", "text"),
        [
            ({"title": "Tea"}, "Starts at: expected a date and a time."),
            ({"title": "Tea", "starts_at": "tomorrow"}, "Starts at: expected a date and a time."),
            ({"title": "Tea", "starts_at": "9999-12-31T23:59"}, ""),
            ({"title": " ", "starts_at": "2990-07-01T09:00"}, "Title: "),
            ({"title": "x" * 201, "starts_at": "2990-07-01T09:00"}, "Title: "),
            (
                {"title": "Tea", "starts_at": "2990-07-01T09:00", "ends_at": "2990-07-01T08:00"},
                "Ends at: expected a time not before",
            ),
        ],
    )
    def test_that_are_invalid_show_an_error_in_the_form(
        self, form: dict[str, str], text: str, alice: Client, at: SignIn
    ) -> None:
        User.update_profile(alice.user.id, {"timezone": "America/New_York"})
        browser = at(alice)
        with nothing_changes():
            reply = submit(browser, "/console/events", act="add", **form)
        assert reply.status == 400
        assert text in alert_of(reply)
        assert escape(form["title"].strip()) in reply.raw.decode()

    def test_of_other_users_cannot_be_accessed(self, alice: Client, bob: Client, at: SignIn) -> None:
        one = Event.create(user_id=alice.user.id, title="Lunch of Alice", starts_at="2990-07-01T09:00:00.000Z")
        browser = at(bob)
        assert "Lunch of Alice" not in browser.open("/console/events").raw.decode()
        with nothing_changes():
            assert submit(browser, "/console/events", act="delete", id=one.id).status == 403


class TestShares:
    def test_are_granted_revoked_and_listed_as_past(self, alice: Client, session: ChatSession, at: SignIn) -> None:
        browser = at(alice)
        form = {
            "mcp_server_id": "files",
            "allowed_tools": "read, write\nread",
            "conversation_id": session.conversation_id,
        }
        assert "Access granted." in submit(browser, "/console/shares", act="grant", **form).raw.decode()
        grant = DataShare.get()
        assert (grant.tools, grant.conversation_id) == (["read", "write"], session.conversation_id)
        for _ in range(2):
            assert submit(browser, "/console/shares", act="revoke", id=grant.id).status == 200
        assert "No MCP server has access." in browser.reply.raw.decode()
        assert re.search(r"files.*revoked", browser.open("/console/shares?past=true").raw.decode(), re.DOTALL)

    def test_are_granted_once(self, alice: Client, at: SignIn) -> None:
        browser = at(alice)
        form = {
            **form_fields_of(browser, "/console/shares"),
            "act": "grant",
            "mcp_server_id": "m",
            "allowed_tools": "read",
        }
        for _ in range(2):
            assert browser.navigate("POST", "/console/shares", form).status == 200
        assert DataShare.select().count() == 1

    @pytest.mark.parametrize(
        "form",
        [
            {"mcp_server_id": "", "allowed_tools": "read"},
            {"mcp_server_id": "m", "allowed_tools": "*"},
            {"mcp_server_id": "m", "allowed_tools": " , "},
            {"mcp_server_id": "m", "allowed_tools": "* read"},
            {"mcp_server_id": "m" * 256, "allowed_tools": "read"},
            {"mcp_server_id": "m", "allowed_tools": "read", "expires_at": "2020-01-01T10:00"},
            {"mcp_server_id": "m", "allowed_tools": "read", "expires_at": "later"},
        ],
    )
    def test_that_are_invalid_show_an_error_in_the_form(self, form: dict[str, str], alice: Client, at: SignIn) -> None:
        browser = at(alice)
        with nothing_changes():
            reply = submit(browser, "/console/shares", act="grant", **form)
        assert reply.status == 400
        assert alert_of(reply)
        assert f'value="{form["allowed_tools"]}"' in reply.raw.decode()

    def test_of_other_users_cannot_be_accessed(
        self, alice: Client, bob: Client, session: ChatSession, at: SignIn
    ) -> None:
        grant = DataShare.grant(alice.user.id, mcp_server_id="of Alice", allowed_tools='["read"]')
        browser = at(bob)
        assert "of Alice" not in browser.open("/console/shares").raw.decode()
        with nothing_changes():
            assert submit(browser, "/console/shares", act="revoke", id=grant.id).status == 403
            form = {"mcp_server_id": "m", "allowed_tools": "read", "conversation_id": session.conversation_id}
            assert submit(browser, "/console/shares", act="grant", **form).status == 404


class TestFeedback:
    def test_is_stored_once_and_shown_to_its_author(self, alice: Client, bob: Client, at: SignIn) -> None:
        browser = at(alice)
        form = {
            **form_fields_of(browser, "/console/feedback"),
            "act": "give",
            "description": RTL,
            "feedback_type": "idea",
        }
        for _ in range(2):
            assert RTL in browser.navigate("POST", "/console/feedback", form).raw.decode()
        assert Feedback.select().count() == 1
        assert RTL not in at(bob).open("/console/feedback").raw.decode()
        with nothing_changes():
            assert submit(browser, "/console/feedback", act="give", description=" ").status == 400
            assert submit(browser, "/console/feedback", act="give", description="x" * 10_001).status == 400

    def test_status_can_be_changed_by_admins_only(
        self, alice: Client, agent: Client, admin: Client, at: SignIn
    ) -> None:
        feedback = Feedback.create(user_id=alice.user.id, description="Fine")
        browser = at(admin)
        assert "Fine" in browser.open("/console/feedback?everybody=true").raw.decode()
        reply = submit(browser, "/console/feedback?everybody=true", act="status", id=feedback.id, status="in_progress")
        assert "in progress" in reply.raw.decode()
        assert Feedback.get().status == "in_progress"
        for user in (alice, agent):
            browser = at(user)
            with nothing_changes():
                assert browser.open("/console/feedback?everybody=true").status == 403
                assert submit(browser, "/console/feedback", act="status", id=feedback.id, status="done").status == 403


class TestSettings:
    def test_change_the_profile(self, alice: Client, at: SignIn) -> None:
        browser = at(alice)
        form = {"display_name": RTL, "locale": "he-IL", "phone": "+97231234567", "timezone": "Asia/Jerusalem"}
        assert "Saved." in submit(browser, "/console/settings", act="profile", **form).raw.decode()
        user = User.get_by_id(alice.user.id)
        assert [getattr(user, name) for name in form] == [*form.values()]
        assert (user.first_name, user.role) == ("", "user")

    @pytest.mark.parametrize(
        ("form", "text"),
        [
            ({"phone": "030"}, "Phone: expected a phone number"),
            ({"locale": "x y"}, "Locale: "),
            ({"timezone": "Mars/Base"}, "Timezone: "),
            ({"display_name": "x" * 101}, "Display name: "),
        ],
    )
    def test_invalid_values_show_an_error_in_the_form(
        self, form: dict[str, str], text: str, alice: Client, at: SignIn
    ) -> None:
        browser = at(alice)
        with nothing_changes():
            reply = submit(browser, "/console/settings", act="profile", first_name="Kept", **form)
        assert reply.status == 400
        assert text in alert_of(reply)
        assert 'value="Kept"' in reply.raw.decode()

    def test_offer_no_setting_without_an_effect(
        self, alice: Client, at: SignIn, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        always = {"csrf_token", "theme", "language", "chat_language", "marketing_enabled"}
        always |= {"show_read_receipts", "show_typing_indicator"}
        for channels, offered in (
            ((), set()),
            (("email",), {"email_enabled", "muted_until"}),
            (("email", "push"), {"email_enabled", "push_enabled", "muted_until"}),
        ):
            monkeypatch.setattr(Delivery, "configured", tuple((channel, "") for channel in channels))
            form = at(alice).open("/console/settings").raw.decode().partition("Save profile")[2]
            assert set(re.findall(r'name="(\w+)"', form)) - {"act"} == always | offered

    def test_keep_settings_that_are_not_offered(self, alice: Client, at: SignIn) -> None:
        kept = {"email_enabled": False, "push_enabled": True, "muted_until": "2990-01-01T00:00:00.000Z"}
        User.patch_preferences(alice.user.id, {"notifications": kept})
        submit(at(alice), "/console/settings", act="settings", marketing_enabled="true")
        assert User.preferences_of(alice.user.id)["notifications"] == {**kept, "marketing_enabled": True}

    def test_change_the_preferences_of_the_form_only(
        self, alice: Client, at: SignIn, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Delivery, "configured", (("email", ""), ("push", "")))
        User.patch_preferences(alice.user.id, {"remark": {"a": 1}, "privacy": {"share_analytics": True}})
        browser = at(alice)
        form = {"theme": "dark", "language": "he", "push_enabled": "true", "muted_until": "2990-01-01T00:00"}
        submit(browser, "/console/settings", act="settings", **form)
        preferences = User.preferences_of(alice.user.id)
        assert preferences["appearance"] == {"theme": "dark", "language": "he"}
        assert preferences["remark"] == {"a": 1}
        assert (preferences["notifications"]["push_enabled"], preferences["notifications"]["email_enabled"]) == (
            True,
            False,
        )
        assert preferences["notifications"]["muted_until"] == "2990-01-01T00:00:00.000Z"
        assert preferences["privacy"]["share_analytics"] is True
        assert preferences["privacy"]["show_read_receipts"] is False
        with nothing_changes():
            for wrong in ({"theme": "pink"}, {"language": "x y"}, {"muted_until": "later"}):
                assert submit(browser, "/console/settings", act="settings", **wrong).status == 400


class TestThePicture:
    def send(self, browser: Browser, content: bytes, name: str = "avatar") -> Reply:
        [action] = re.findall(r'action="(/console/picture[^"]*)"', browser.open("/console/picture").raw.decode())
        cookie = "; ".join(f"{key}={value}" for key, value in browser.cookies.items())
        body = as_form({name: content})
        body["raw"] = body["raw"].replace(b"me.png", b'"><evil>.png'.replace(b'"', b"%22"))
        return browser.client.post(f"/{unescape(action)}", cookie=cookie, sec_fetch_mode="navigate", **body)

    def test_is_changed_and_removed(
        self, alice: Client, session: ChatSession, say: Any, agent: Client, at: SignIn
    ) -> None:
        browser = at(alice)
        redirect = self.send(browser, picture())
        assert (redirect.status, redirect.headers["Location"]) == (303, "/console/picture?done=picture")
        name = Avatar.get().name
        say("Hello", sender_id=alice.user.id)
        for user, path in ((alice, "/"), (agent, "/"), (agent, chat(session))):
            assert f'src="/avatars/{name}"' in at(user).open(path).raw.decode()
        for _ in range(2):
            assert submit(browser, "/console/picture", act="x").status == 400  # no such form
            csrf_token = form_fields_of(browser, "/console/account")
            assert browser.navigate("POST", "/console/account", {**csrf_token, "act": "remove_picture"}).status == 200
        assert not Avatar.select().exists()

    @pytest.mark.parametrize(
        ("content", "status"), [(b"GIF89a", 415), (b"\x89PNG\r\n\x1a\n", 400), (b"", 400), (bytes(5 * 2**20 + 1), 413)]
    )
    def test_invalid_file_shows_an_error_page(self, content: bytes, status: int, alice: Client, at: SignIn) -> None:
        browser = at(alice)
        with nothing_changes():
            reply = self.send(browser, content)
        assert (reply.status, reply.headers["Content-Type"]) == (status, "text/html; charset=utf-8")
        assert alert_of(reply)
        assert "<evil" not in reply.raw.decode()

    def test_of_another_host_is_not_loaded(self, alice: Client, at: SignIn) -> None:
        User.update(profile_image="https://elsewhere.example/x.png").execute()
        assert "elsewhere" not in at(alice).open("/console/settings").raw.decode()


class TestTheAccount:
    def test_ends_sessions_and_clients(self, alice: Client, settings: Any, at: SignIn) -> None:
        with db.write():
            client = tokens.create_token_session(
                alice.user.id, settings, label="Laptop", scopes="chats:read", install_id="x", kind="client"
            )
        browser = at(alice)
        other = tokens.authenticate(f"Bearer {alice.token}").session_id
        assert "Laptop" in browser.open("/console/account?clients=true").raw.decode()
        assert "Laptop" not in browser.open("/console/account").raw.decode()
        for act, id in (("end", other), ("end", other), ("revoke", client.id), ("revoke", UNKNOWN_ID)):
            assert submit(browser, "/console/account", act=act, id=id).status == 200
        assert not tokens.is_open(other) and not tokens.is_open(client.id)
        assert "Laptop" not in browser.reply.raw.decode()

    def test_other_users_cannot_end_a_session(self, alice: Client, bob: Client, at: SignIn) -> None:
        id = tokens.authenticate(f"Bearer {alice.token}").session_id
        browser = at(bob)
        for act in ("end", "revoke"):
            with nothing_changes():
                submit(browser, "/console/account", act=act, id=id)
        assert tokens.is_open(id)

    def test_changes_the_password(self, alice: Client, at: SignIn) -> None:
        browser = at(alice)
        wrong = {"current_password": "not this one", "new_password": "correct horse"}
        for form in (wrong, {**wrong, "new_password": "short"}, {"new_password": "long enough"}):
            with nothing_changes():
                reply = submit(browser, "/console/account", act="password", **form)
            assert reply.status == 400
            assert alert_of(reply)
            assert not [value for value in form.values() if f'"{value}"' in reply.raw.decode()]
        form = {"current_password": PASSWORD, "new_password": "correct horse"}
        assert "Password changed." in submit(browser, "/console/account", act="password", **form).raw.decode()
        assert alice.get("/users/me").error == (401, "invalid_token")
        assert browser.open("/").status == 200

    def test_guessing_the_password_is_throttled(self, alice: Client, at: SignIn) -> None:
        browser = at(alice)
        form = {"current_password": "a guess", "new_password": "long enough"}
        statuses = [submit(browser, "/console/account", act="password", **form).status for _ in range(22)]
        assert statuses[-1] == 429


class TestBots:
    def test_are_found_by_every_filter(
        self, alice: Client, session: ChatSession, shop: App, bot: Bot, at: SignIn
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
        assert "No matching bots" in browser.open("/console/bots?city=Bonn").raw.decode()

    def test_of_other_apps_are_not_listed_to_customers(
        self, bob: Client, shop: App, other_shop: App, bot: Bot, at: SignIn
    ) -> None:
        browser = at(bob)
        html = browser.open("/console/bots").raw.decode()
        assert "Shop" not in html and "Choose an app" in html
        assert "Hilda" in browser.open(f"/console/bots?app_id={shop.id}").raw.decode()

    def test_start_a_chat_once(self, alice: Client, shop: App, bot: Bot, at: SignIn) -> None:
        browser = at(alice)
        form = {**form_fields_of(browser, "/console/bots"), "app_id": shop.id, "bot_id": bot.id}
        for _ in range(2):
            assert browser.navigate("POST", "/console/bots", form).status == 200
        session = ChatSession.get()
        assert browser.path == f"{chat(session)}#end"
        assert (session.user_id, session.bot_id) == (alice.user.id, bot.id)

    def test_that_do_not_exist_show_an_error_on_the_page(self, alice: Client, shop: App, bot: Bot, at: SignIn) -> None:
        browser = at(alice)
        for form in ({}, {"app_id": UNKNOWN_ID}, {"app_id": shop.id, "bot_id": UNKNOWN_ID}):
            with nothing_changes():
                reply = submit(browser, "/console/bots", **form)
            assert reply.status in (400, 404)
            assert alert_of(reply)


class TestTheCatalogue:
    def test_can_be_changed_by_staff_of_the_app(self, agent: Client, admin: Client, bot: Bot, at: SignIn) -> None:
        for user, presence, status in ((agent, "away", "draft"), (admin, "online", "published")):
            browser = at(user)
            form = {"app_id": bot.app_id, "bot_id": bot.id, "presence": presence, "status": status}
            assert "Saved." in submit(browser, "/console/catalogue", **form).raw.decode()
            stored = Bot.get_by_id(bot.id)
            assert (stored.presence, stored.status) == (presence, status)

    def test_is_forbidden_for_other_users(
        self, alice: Client, other_agent: Client, person: Any, bot: Bot, at: SignIn
    ) -> None:
        for user in (alice, other_agent, person("ann", role="agent")):
            browser = at(user)
            assert browser.open(f"/console/catalogue?app_id={bot.app_id}").status == 403
            csrf_token = form_fields_of(browser, "/console/events")["csrf_token"]
            form = {"app_id": bot.app_id, "bot_id": bot.id, "status": "draft", "csrf_token": csrf_token}
            with nothing_changes():
                assert browser.navigate("POST", "/console/catalogue", form).status == 403


class TestTimes:
    def test_are_in_the_time_zone(self, host_clock: Any) -> None:
        times = Times("Asia/Tokyo")
        assert times.full("2026-11-20T20:30:00.000Z") == "21 Nov 2026, 05:30"
        assert times.read("2026-11-21T05:30") == "2026-11-20T20:30:00.000Z"
        assert times.field("2026-11-20T20:30:00.000Z") == "2026-11-21T05:30"
        days = {"2026-11-20": "10:00", "2026-11-19": "Yesterday", "2026-01-02": "2 Jan", "2025-01-02": "2 Jan 2025"}
        assert {day: times.brief(f"{day}T01:00:00.000Z") for day in days} == days

    @pytest.mark.parametrize("stamp", ["0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"])
    @pytest.mark.parametrize("zone", ["", "Pacific/Kiritimati", "Pacific/Niue"])
    def test_support_the_first_and_last_timestamp(self, stamp: str, zone: str) -> None:
        assert Times(zone).full(stamp)
        assert Times(zone).day(stamp)
        assert len(Times(zone).field(stamp)) == 16

    @pytest.mark.parametrize("text", ["", "x", "2026-13-01T10:00", "0001-01-01T00:00", "9999-12-31T23:59"])
    def test_refuse_invalid_texts(self, text: str) -> None:
        with pytest.raises(ValueError, match="expected a date and a time"):
            Times("Pacific/Niue" if text > "5" else "Asia/Tokyo").read(text)

    def test_support_every_valid_time_zone(self) -> None:
        assert all(Times(zone).time("2026-11-20T20:30:00.000Z") for zone in validators.time_zones())


class TestDisplayNames:
    @pytest.mark.parametrize(
        ("name", "initials"), [("Alice Liddell", "AL"), ("שלום", "ש"), ("<b> x", "BX"), ("", "?"), ("🎉", "?")]
    )
    def test_have_initials(self, name: str, initials: str) -> None:
        assert DisplayProfile(name).initials == initials

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
    def test_of_clients_are_derived_from_the_user_agent(self, label: str, shown: str) -> None:
        assert client_name(label) == shown


def test_csrf_token_is_valid_for_one_session(alice: Client, bob: Client) -> None:
    callers = [tokens.authenticate(f"Bearer {client.token}") for client in (alice, bob)]
    csrf.expect_token(callers[0], csrf.make_token(callers[0]))
    with pytest.raises(StaleForm, match="sent from another site"):
        csrf.expect_token(callers[1], csrf.make_token(callers[0]))
