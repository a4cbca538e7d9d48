"""Signing in with a browser: the session cookie, and the protection of the cookie and the form."""

import re
from dataclasses import replace
from html import unescape
from urllib.parse import urlencode

import pytest

import app
from service import db
from service.models import LoginSession, User
from service.signing import sign, verify
from tests.support.consent import VALID_PARAMETERS, path
from tests.support.observe import nothing_changes
from tests.support.passwords import PASSWORD
from tests.support.web_client import FORM, Browser

CONSENT = f"/api/v1{path()}"
ALICE = {"email": "alice@example.com", "password": PASSWORD}
LONGEST_PARAMETERS = {
    "state": "\U0001f600" * 512,
    "install_id": "\U0001f600" * 128,
    "install_name": "\U0001f600" * 64,
    "redirect_uri": "http://127.0.0.1/".ljust(2048, "/"),
    "scope": ":" * 1000,
}
UNUSUAL_PARAMETERS = {"state": "\\'\"<>|^`{}"}  # browsers send these unescaped


@pytest.fixture
def browser(alice, application):
    """A browser that is not signed in."""
    return Browser(application)


@pytest.fixture
def signed_in(browser, alice):
    """A browser in which Alice is signed in."""
    return browser.signed_in(alice)


class TestSigningIn:
    def test_redirects_to_the_requested_page(self, browser):
        assert browser.open(CONSENT).status == 401
        assert "Sign in" in browser.text
        assert browser.send(**ALICE).status == 200
        assert browser.path == CONSENT
        assert "alice@example.com" in browser.text

    def test_redirects_to_the_start_page_by_default(self, browser):
        browser.open("/sign-in")
        browser.send(**ALICE)
        assert (browser.path, browser.reply.status) == ("/", 200)

    def test_can_be_repeated_after_a_wrong_password(self, browser):
        browser.open(CONSENT)
        assert browser.send(email="alice@example.com", password="wrong").status == 401
        assert "The e-mail address or the password is wrong." in browser.text
        browser.send(**ALICE)
        assert browser.path == CONSENT

    @pytest.mark.parametrize("email", ["alice@example.com", "\"'><b>&amp;@example.com"])
    def test_form_keeps_the_email_address_but_not_the_password(self, browser, email):
        browser.open("/sign-in")
        for status in [401] * 20 + [429]:
            assert browser.send(email=email, password="a wrong one").status == status
            html = browser.reply.raw.decode()
            assert unescape(re.findall(r'autocomplete="username" value="([^"]*)"', html)[0]) == email
            assert "a wrong one" not in html
        assert 'type="password" autocomplete="current-password" required autofocus' in html

    def test_shares_the_rate_limit_of_logins(self, browser):
        browser.open("/sign-in")
        for _ in range(20):
            assert browser.send(email="alice@example.com", password="wrong").status == 401
        assert browser.send(**ALICE).status == 429
        assert "try again later" in browser.text
        assert int(browser.reply.headers["Retry-After"]) > 0
        reply = browser.client.post("/auth/login", ALICE)
        assert reply.error == (429, "rate_limited")

    @pytest.mark.parametrize("email", ["unknown@example.com", "disabled@example.com"])
    def test_does_not_reveal_which_accounts_exist(self, browser, person, email):
        person("disabled", is_disabled=True)
        browser.open("/sign-in")
        assert browser.send(email=email, password=PASSWORD).status == 401
        assert "The e-mail address or the password is wrong." in browser.text

    @pytest.mark.parametrize("missing", ["email", "password", "csrf_token"])
    def test_requires_every_field_of_the_form(self, browser, missing):
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
    def test_does_not_redirect_to_other_sites(self, browser, next):
        reply = browser.navigate("GET", f"/sign-in?{urlencode({'next': next})}")
        assert reply.status == 400
        assert "next: " in browser.text
        browser.open("/sign-in")
        action = f"/sign-in?{urlencode({'next': next})}"
        csrf_token = sign("form", [browser.cookies["cx_form"]])
        with nothing_changes(LoginSession, User):
            assert browser.navigate("POST", action, {**ALICE, "csrf_token": csrf_token}).status == 400
        assert "Location" not in browser.reply.headers

    @pytest.mark.parametrize("next", ["/", "/docs", "/a?b=c&d=//e#f", CONSENT])
    def test_redirects_to_any_path_of_the_service(self, browser, next):
        browser.open(f"/sign-in?{urlencode({'next': next})}")
        browser.send(**ALICE)
        assert browser.path == next

    @pytest.mark.parametrize(
        "query",
        [
            urlencode(VALID_PARAMETERS | LONGEST_PARAMETERS),
            "&".join(map("=".join, (VALID_PARAMETERS | UNUSUAL_PARAMETERS).items())),
        ],
    )
    def test_redirects_to_every_valid_consent_page(self, browser, query):
        assert browser.open(f"/api/v1/auth/cli/authorize?{query}").status == 401
        assert browser.send(**ALICE).status == 200
        assert "requests access to your account" in browser.text

    def test_deletes_expired_sessions(self, host_clock, alice, bob, application):
        LoginSession.update(expires_at=host_clock.now + 60_000).where(LoginSession.user_id == alice.user.id).execute()
        for _ in range(3):
            Browser(application).signed_in(alice)
        assert LoginSession.select().where(LoginSession.user_id == alice.user.id).count() == 4
        host_clock.forward(hours=12)
        Browser(application).signed_in(alice)
        assert LoginSession.select().where(LoginSession.user_id == alice.user.id).count() == 1
        assert LoginSession.select().where(LoginSession.user_id == bob.user.id).count() == 1

    def test_stores_the_time_of_the_login(self, browser):
        browser.open("/sign-in")
        browser.send(**ALICE)
        assert User.get().last_login_at is not None


class TestTheCookie:
    def test_is_http_only_and_same_site(self, browser):
        browser.open("/sign-in")
        client, csrf_token = browser.client, sign("form", [browser.cookies["cx_form"]])
        raw = urlencode({**ALICE, "csrf_token": csrf_token}).encode()
        cookie = f"cx_form={browser.cookies['cx_form']}"
        reply = client.call("POST", "//sign-in", raw=raw, content_type=FORM, cookie=cookie, host="test")
        assert reply.status == 303
        name, *attributes = reply.headers["Set-Cookie"].split("; ")
        assert name.startswith("cx_signed_in=")
        assert set(attributes) == {"Path=/", "HttpOnly", "SameSite=Lax"}

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

    @pytest.mark.parametrize("space", ["\xa0", "\x85", "\x1c", "\x0b"])
    def test_of_another_subdomain_is_ignored_under_a_similar_name(self, settings, alice, bob, space):
        """Browsers protect names that begin with __Host-, but Python strips these characters before the name."""
        browser = Browser(app.build(replace(settings, public_url="https://chat.example")), "https://chat.example")
        bobs = Browser(browser.client.application, "https://chat.example").signed_in(bob)
        browser.signed_in(alice)
        [(name, value)] = bobs.cookies.items()
        browser.cookies[f"{space}{name}"] = value
        assert "alice@example.com" in browser.open(CONSENT).raw.decode()
        del browser.cookies[name]
        assert browser.open(CONSENT).status == 401

    @pytest.mark.parametrize("name", ["cx_signed_in", "__Host-cx_signed_in"])
    @pytest.mark.parametrize("value", ["x", "", "a.b.c", "é", '"quoted"', "x" * 5000])
    def test_invalid_values_are_refused(self, browser, name, value):
        browser.cookies[name] = value
        assert browser.open(CONSENT).status == 401

    def test_of_a_form_is_not_a_session_cookie(self, signed_in):
        payload = verify("sign-in", signed_in.cookies["cx_signed_in"])
        signed_in.cookies["cx_signed_in"] = sign("form", payload)
        assert signed_in.open(CONSENT).status == 401
        signed_in.cookies["cx_signed_in"] = sign("sign-in", payload)
        assert signed_in.open(CONSENT).status == 200

    def test_is_accepted_by_pages_only(self, signed_in, session):
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
    def test_is_not_a_bearer_token(self, signed_in, prefix):
        value = signed_in.cookies["cx_signed_in"]
        reply = signed_in.client.get("/users/me/settings", authorization=f"{prefix}{value}")
        assert reply.error == (401, "invalid_token")

    def test_cross_origin_requests_never_allow_credentials(self, settings, alice):
        """Without this header browsers send no cookies, and even allowed origins do not get it."""
        application = app.build(replace(settings, allow_origin=("https://shop.example",)))
        browser = Browser(application).signed_in(alice)
        for method, where in (("GET", CONSENT), ("POST", CONSENT), ("OPTIONS", CONSENT), ("GET", "/sign-in")):
            reply = browser.navigate(method, where, {} if method == "POST" else None, origin="https://shop.example")
            assert reply.headers["Access-Control-Allow-Origin"] == "https://shop.example"
            assert "Access-Control-Allow-Credentials" not in reply.headers

    def test_expires_after_twelve_hours(self, host_clock, alice, application):
        browser = Browser(application)
        browser.open("/sign-in")
        browser.send(**ALICE)
        host_clock.forward(hours=11, minutes=59)
        assert browser.open(CONSENT).status == 200
        host_clock.forward(minutes=1)
        assert browser.open(CONSENT).status == 401

    @pytest.mark.parametrize(
        "end_session",
        [
            lambda alice: alice.post("/auth/logout", {"scope": "global"}),
            lambda alice: alice.user.disable(),
            lambda alice: alice.user.change_password("other"),
        ],
        ids=["logged out everywhere", "disabled", "password changed"],
    )
    def test_is_invalid_after_its_session_ended(self, signed_in, alice, end_session):
        assert signed_in.open(CONSENT).status == 200
        end_session(alice)
        assert signed_in.open(CONSENT).status == 401

    def test_works_with_other_cookies(self, signed_in):
        signed_in.cookies |= {"a": "b", "cx_other": "=x=", "": ""}
        assert signed_in.open(CONSENT).status == 200


class TestTheForm:
    def test_cannot_be_sent_from_another_site(self, browser, mallory):
        """Browsers send no SameSite cookies with a form of another site."""
        other = Browser(browser.client.application)
        other.open("/sign-in")
        csrf_token = sign("form", [other.cookies["cx_form"]])
        with nothing_changes():
            reply = browser.navigate("POST", "/sign-in", {**mallory, "csrf_token": csrf_token})
        assert reply.status == 400
        assert "cx_signed_in" not in browser.cookies

    def test_cannot_be_sent_with_the_csrf_token_of_another_browser(self, browser, mallory):
        other = Browser(browser.client.application)
        other.open("/sign-in")
        browser.open("/sign-in")
        csrf_token = sign("form", [other.cookies["cx_form"]])
        assert browser.send(**mallory, csrf_token=csrf_token).status == 400

    @pytest.mark.parametrize("csrf_token", ["", "x", "a.b"])
    def test_cannot_be_sent_without_a_csrf_token(self, browser, csrf_token):
        browser.open("/sign-in")
        assert browser.send(**ALICE, csrf_token=csrf_token).status == 400

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
    def test_refuses_other_content_types(self, browser, kind):
        browser.open("/sign-in")
        csrf_token = sign("form", [browser.cookies["cx_form"]])
        assert (
            browser.navigate("POST", "/sign-in", {**ALICE, "csrf_token": csrf_token}, content_type=kind).status == 400
        )
        assert "Content-Type" in browser.text


class TestSigningOut:
    def test_ends_the_login_session(self, signed_in):
        cookies = dict(signed_in.cookies)
        signed_in.open(CONSENT)
        assert signed_in.send(1).status == 401  # "Not you?" leads to the same page, for another user
        assert signed_in.path == CONSENT
        assert "cx_signed_in" not in signed_in.cookies
        signed_in.cookies = cookies
        assert signed_in.open(CONSENT).status == 401

    def test_does_not_end_other_sessions(self, signed_in, alice):
        signed_in.open(CONSENT)
        signed_in.send(1)
        assert alice.get("/users/me/settings").status == 200

    def test_does_not_redirect_to_other_sites(self, signed_in):
        signed_in.navigate("POST", "/sign-out", {"next": "//evil.example"})
        assert signed_in.reply.status == 400

    def test_needs_a_signed_in_user(self, browser):
        assert browser.navigate("POST", "/sign-out", {}).status == 401


class TestMissingCredentials:
    @pytest.mark.parametrize(
        "headers",
        [
            {"sec_fetch_mode": "navigate"},
            {"upgrade_insecure_requests": "1", "accept": "text/html,application/xhtml+xml"},
        ],
    )
    def test_navigation_gets_the_form(self, anyone, headers):
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
    def test_other_requests_get_the_envelope(self, anyone, headers):
        assert anyone.get(path(), **headers).error == (401, "missing_credentials")

    def test_bearer_token_takes_precedence_over_the_cookie(self, signed_in, person):
        bob = person("bob")
        cookie = f"cx_signed_in={signed_in.cookies['cx_signed_in']}"
        assert "bob@example.com" in bob.get(path(), cookie=cookie, host="test").raw.decode()
