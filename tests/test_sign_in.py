"""Signing in with a browser: the cookie that opens pages, and what keeps strangers from using it or our form."""

import re
from dataclasses import replace
from html import unescape
from urllib.parse import urlencode

import pytest

import app
from service import db
from service.auth import sign_in
from service.models import LoginSession, User
from tests.browsing import FORM, Browser
from tests.conftest import PASSWORD
from tests.test_consent import GOOD, path
from tests.watching import nothing_changes

CONSENT = f"/api/v1{path()}"
ALICE = {"email": "alice@example.com", "password": PASSWORD}
LONGEST = {
    "state": "\U0001f600" * 512,
    "install_id": "\U0001f600" * 128,
    "install_name": "\U0001f600" * 64,
    "redirect_uri": "http://127.0.0.1/".ljust(2048, "/"),
    "scope": ":" * 1000,
}
ODD = {"state": "\\'\"<>|^`{}"}  # which browsers send as they are


@pytest.fixture
def browser(alice, application):
    """A browser in which nobody is signed in."""
    return Browser(application)


@pytest.fixture
def signed_in(browser, alice):
    """Alice's browser."""
    return browser.signed_in(alice)


class TestSigningIn:
    def test_leads_back_to_where_one_was_going(self, browser):
        assert browser.open(CONSENT).status == 401
        assert "Sign in" in browser.text
        assert browser.send(**ALICE).status == 200
        assert browser.path == CONSENT
        assert "alice@example.com" in browser.text

    def test_leads_home_if_one_came_by_oneself(self, browser):
        browser.open("/sign-in")
        browser.send(**ALICE)
        assert (browser.path, browser.reply.status) == ("/", 200)

    def test_gives_another_chance_after_a_wrong_password(self, browser):
        browser.open(CONSENT)
        assert browser.send(email="alice@example.com", password="wrong").status == 401
        assert "The e-mail address or the password is wrong." in browser.text
        browser.send(**ALICE)
        assert browser.path == CONSENT

    @pytest.mark.parametrize("email", ["alice@example.com", "\"'><b>&amp;@example.com"])
    def test_keeps_the_email_address_and_never_the_password(self, browser, email):
        browser.open("/sign-in")
        for status in [401] * 20 + [429]:
            assert browser.send(email=email, password="a wrong one").status == status
            html = browser.reply.raw.decode()
            assert unescape(re.findall(r'autocomplete="username" value="([^"]*)"', html)[0]) == email
            assert "a wrong one" not in html
        assert 'type="password" autocomplete="current-password" required autofocus' in html

    def test_is_throttled_as_logins_are(self, browser):
        browser.open("/sign-in")
        for _ in range(20):
            assert browser.send(email="alice@example.com", password="wrong").status == 401
        assert browser.send(**ALICE).status == 429
        assert "try again later" in browser.text
        assert int(browser.reply.headers["Retry-After"]) > 0
        reply = browser.client.post("/auth/login", ALICE)
        assert reply.error == (429, "rate_limited")

    @pytest.mark.parametrize("email", ["nobody@example.com", "disabled@example.com"])
    def test_tells_nobody_who_exists(self, browser, person, email):
        person("disabled", is_disabled=True)
        browser.open("/sign-in")
        assert browser.send(email=email, password=PASSWORD).status == 401
        assert "The e-mail address or the password is wrong." in browser.text

    @pytest.mark.parametrize("missing", ["email", "password", "ticket"])
    def test_needs_every_part_of_the_form(self, browser, missing):
        browser.open("/sign-in")
        with nothing_changes(LoginSession, User):
            assert browser.send(**ALICE | {missing: ""}).status in (400, 401)

    @pytest.mark.parametrize(
        "next",
        [
            "",
            "x",
            "//evil.example",
            "/\\evil.example",
            "\\/evil.example",
            "http://evil.example",
            "javascript:alert(1)",
            "/%0aLocation:x\n",
            "/\tx",
            " /x",
            "/a b",
            "/ü",
            "/x\\y",
            "/" + "x" * 24 * 1024,
        ],
    )
    def test_leads_to_paths_of_our_own_only(self, browser, next):
        reply = browser.ask("GET", f"/sign-in?{sign_in.urlencode({'next': next})}")
        assert reply.status == 400
        assert "next: " in browser.text
        browser.open("/sign-in")
        action = f"/sign-in?{sign_in.urlencode({'next': next})}"
        ticket = sign_in.sign("form", [browser.cookies["cx_form"]])
        with nothing_changes(LoginSession, User):
            assert browser.ask("POST", action, {**ALICE, "ticket": ticket}).status == 400
        assert "Location" not in browser.reply.headers

    @pytest.mark.parametrize("next", ["/", "/docs", "/a?b=c&d=//e#f", CONSENT])
    def test_leads_to_any_path_of_our_own(self, browser, next):
        browser.open(f"/sign-in?{sign_in.urlencode({'next': next})}")
        browser.send(**ALICE)
        assert browser.path == next

    @pytest.mark.parametrize("question", [urlencode(GOOD | LONGEST), "&".join(map("=".join, (GOOD | ODD).items()))])
    def test_leads_back_to_every_question_of_a_client(self, browser, question):
        assert browser.open(f"/api/v1/auth/cli/authorize?{question}").status == 401
        assert browser.send(**ALICE).status == 200
        assert "asks for access to your account" in browser.text

    def test_keeps_no_logins_that_have_expired(self, host_clock, alice, bob, application):
        LoginSession.update(expires_at=host_clock.now + 60_000).where(LoginSession.user_id == alice.user.id).execute()
        for _ in range(3):
            Browser(application).signed_in(alice)
        assert LoginSession.select().where(LoginSession.user_id == alice.user.id).count() == 4
        host_clock.forward(hours=12)
        Browser(application).signed_in(alice)
        assert LoginSession.select().where(LoginSession.user_id == alice.user.id).count() == 1
        assert LoginSession.select().where(LoginSession.user_id == bob.user.id).count() == 1

    def test_writes_when_it_was(self, browser):
        browser.open("/sign-in")
        browser.send(**ALICE)
        assert User.get().last_login_at is not None


class TestTheCookie:
    def test_is_out_of_reach_of_scripts_and_other_sites(self, browser):
        browser.open("/sign-in")
        client, ticket = browser.client, sign_in.sign("form", [browser.cookies["cx_form"]])
        raw = sign_in.urlencode({**ALICE, "ticket": ticket}).encode()
        cookie = f"cx_form={browser.cookies['cx_form']}"
        reply = client.call("POST", "//sign-in", raw=raw, content_type=FORM, cookie=cookie, host="test")
        assert reply.status == 303
        name, *words = reply.headers["Set-Cookie"].split("; ")
        assert name.startswith("cx_signed_in=")
        assert set(words) == {"Path=/", "HttpOnly", "SameSite=Lax"}

    def test_is_secure_behind_https(self, settings, alice):
        application = app.build(replace(settings, public_url="https://chat.example/"))
        browser = Browser(application, "https://chat.example")
        browser.open("/sign-in")
        assert set(browser.cookies) == {"__Host-cx_form"}
        assert "; Secure" in browser.reply.headers["Set-Cookie"]
        browser.send(**ALICE)
        assert set(browser.cookies) == {"__Host-cx_form", "__Host-cx_signed_in"}
        assert browser.open(CONSENT).status == 200
        db.close_database()

    @pytest.mark.parametrize("blank", ["\xa0", "\x85", "\x1c", "\x0b"])
    def test_cannot_be_planted_by_a_neighbour_under_another_name(self, settings, alice, bob, blank):
        """Browsers guard names that begin with __Host-; to Python, these bytes before it are blanks as well."""
        browser = Browser(app.build(replace(settings, public_url="https://chat.example")), "https://chat.example")
        bobs = Browser(browser.client.application, "https://chat.example").signed_in(bob)
        browser.signed_in(alice)
        [(name, value)] = bobs.cookies.items()
        browser.cookies[f"{blank}{name}"] = value
        assert "alice@example.com" in browser.open(CONSENT).raw.decode()
        del browser.cookies[name]
        assert browser.open(CONSENT).status == 401

    @pytest.mark.parametrize("name", ["cx_signed_in", "__Host-cx_signed_in"])
    @pytest.mark.parametrize("value", ["x", "", "a.b.c", "é", '"quoted"', "x" * 5000])
    def test_cannot_be_made_up(self, browser, name, value):
        browser.cookies[name] = value
        assert browser.open(CONSENT).status == 401

    def test_of_a_form_does_not_sign_in(self, signed_in):
        carried = sign_in.verify("sign-in", signed_in.cookies["cx_signed_in"])
        signed_in.cookies["cx_signed_in"] = sign_in.sign("form", carried)
        assert signed_in.open(CONSENT).status == 401
        signed_in.cookies["cx_signed_in"] = sign_in.sign("sign-in", carried)
        assert signed_in.open(CONSENT).status == 200

    def test_opens_pages_only(self, signed_in, session):
        cookie = f"cx_signed_in={signed_in.cookies['cx_signed_in']}"
        for method, where in (
            ("GET", f"/chats/{session.id}/messages"),
            ("GET", "/users/me/settings"),
            ("PATCH", "/notifications/read-all"),
            ("POST", "/auth/logout"),
            ("DELETE", f"/chats/{session.id}"),
        ):
            reply = signed_in.client.call(method, where, cookie=cookie, sec_fetch_mode="navigate", host="test")
            assert reply.error == (401, "missing_credentials")

    @pytest.mark.parametrize("prefix", ["Bearer ", "Bearer cxa_", "Bearer cxr_"])
    def test_is_no_token(self, signed_in, prefix):
        value = signed_in.cookies["cx_signed_in"]
        reply = signed_in.client.get("/users/me/settings", authorization=f"{prefix}{value}")
        assert reply.error == (401, "invalid_token")

    def test_is_never_sent_along_by_pages_of_other_origins(self, settings, alice):
        """The header without which browsers keep cookies back is never sent, not even to an allowed origin."""
        application = app.build(replace(settings, allow_origin=("https://shop.example",)))
        browser = Browser(application).signed_in(alice)
        for method, where in (("GET", CONSENT), ("POST", CONSENT), ("OPTIONS", CONSENT), ("GET", "/sign-in")):
            reply = browser.ask(method, where, {} if method == "POST" else None, origin="https://shop.example")
            assert reply.headers["Access-Control-Allow-Origin"] == "https://shop.example"
            assert "Access-Control-Allow-Credentials" not in reply.headers

    def test_lasts_a_working_day(self, host_clock, alice, application):
        browser = Browser(application)
        browser.open("/sign-in")
        browser.send(**ALICE)
        host_clock.forward(hours=11, minutes=59)
        assert browser.open(CONSENT).status == 200
        host_clock.forward(minutes=1)
        assert browser.open(CONSENT).status == 401

    @pytest.mark.parametrize(
        "how",
        [
            lambda alice: alice.post("/auth/logout", {"scope": "global"}),
            lambda alice: alice.user.disable(),
            lambda alice: alice.user.change_password("other"),
        ],
        ids=["logged out everywhere", "disabled", "another password"],
    )
    def test_ends_at_once_with_its_login_session(self, signed_in, alice, how):
        assert signed_in.open(CONSENT).status == 200
        how(alice)
        assert signed_in.open(CONSENT).status == 401

    def test_works_beside_cookies_of_others(self, signed_in):
        signed_in.cookies |= {"a": "b", "cx_other": "=x=", "": ""}
        assert signed_in.open(CONSENT).status == 200


class TestTheForm:
    def test_cannot_be_sent_from_another_site(self, browser, mallory):
        """The browser keeps its cookies back from a form that another site sends."""
        elsewhere = Browser(browser.client.application)
        elsewhere.open("/sign-in")
        ticket = sign_in.sign("form", [elsewhere.cookies["cx_form"]])
        with nothing_changes():
            reply = browser.ask("POST", "/sign-in", {**mallory, "ticket": ticket})
        assert reply.status == 400
        assert "cx_signed_in" not in browser.cookies

    def test_cannot_be_sent_with_the_ticket_of_another_browser(self, browser, mallory):
        elsewhere = Browser(browser.client.application)
        elsewhere.open("/sign-in")
        browser.open("/sign-in")
        ticket = sign_in.sign("form", [elsewhere.cookies["cx_form"]])
        assert browser.send(**mallory, ticket=ticket).status == 400

    @pytest.mark.parametrize("ticket", ["", "x", "a.b"])
    def test_cannot_be_sent_without_a_ticket(self, browser, ticket):
        browser.open("/sign-in")
        assert browser.send(**ALICE, ticket=ticket).status == 400

    def test_works_in_two_tabs(self, browser):
        browser.open("/sign-in")
        first = browser.reply
        browser.open("/sign-in?next=/docs")
        browser.reply = first
        assert browser.send(**ALICE).status == 200

    @pytest.fixture
    def mallory(self, person):
        person("mallory")
        return {"email": "mallory@example.com", "password": PASSWORD}

    @pytest.mark.parametrize("kind", ["application/json", "multipart/form-data", "text/plain", ""])
    def test_is_of_one_type(self, browser, kind):
        browser.open("/sign-in")
        ticket = sign_in.sign("form", [browser.cookies["cx_form"]])
        assert browser.ask("POST", "/sign-in", {**ALICE, "ticket": ticket}, content_type=kind).status == 400
        assert "Content-Type" in browser.text


class TestSigningOut:
    def test_ends_the_login_session(self, signed_in):
        kept = dict(signed_in.cookies)
        signed_in.open(CONSENT)
        assert signed_in.send(1).status == 401  # "Not you?" leads back to the same page, for somebody else
        assert signed_in.path == CONSENT
        assert "cx_signed_in" not in signed_in.cookies
        signed_in.cookies = kept
        assert signed_in.open(CONSENT).status == 401

    def test_leaves_other_logins_alone(self, signed_in, alice):
        signed_in.open(CONSENT)
        signed_in.send(1)
        assert alice.get("/users/me/settings").status == 200

    def test_leads_to_paths_of_our_own_only(self, signed_in):
        signed_in.ask("POST", "/sign-out", {"next": "//evil.example"})
        assert signed_in.reply.status == 400

    def test_needs_somebody_who_is_signed_in(self, browser):
        assert browser.ask("POST", "/sign-out", {}).status == 401


class TestWhoIsAsked:
    @pytest.mark.parametrize(
        "headers",
        [
            {"sec_fetch_mode": "navigate"},
            {"upgrade_insecure_requests": "1", "accept": "text/html,application/xhtml+xml"},
        ],
    )
    def test_a_browser_that_wants_a_page_gets_the_form(self, anyone, headers):
        reply = anyone.get(path(), **headers)
        assert reply.status == 401
        assert reply.headers["Content-Type"].startswith("text/html")
        assert reply.headers["WWW-Authenticate"] == "Bearer"

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"accept": "text/html"},
            {"accept": "application/json, text/html", "upgrade_insecure_requests": "1"},
            {"sec_fetch_mode": "cors", "accept": "text/html"},
            {"sec_fetch_mode": "no-cors"},
        ],
    )
    def test_everybody_else_gets_the_envelope(self, anyone, headers):
        assert anyone.get(path(), **headers).error == (401, "missing_credentials")

    def test_a_token_counts_before_a_cookie(self, signed_in, person):
        bob = person("bob")
        cookie = f"cx_signed_in={signed_in.cookies['cx_signed_in']}"
        assert "bob@example.com" in bob.get(path(), cookie=cookie, host="test").raw.decode()
