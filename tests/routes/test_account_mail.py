"""Verification of addresses, forgotten passwords, invitations, and the pages that the links in e-mails open."""

import dataclasses
import time
from statistics import median

import pytest

from service import clock, db
from service.auth import mail_links, passwords
from service.models import AuditLog, Delivery, LoginSession, User
from service.models.user_deletion import delete_user
from service.signing import sign
from tests.support.client import Client
from tests.support.mails import URL, deliver, link_in
from tests.support.mails import channels_of_this_test_fixture as channels_of_this_test_fixture
from tests.support.mails import running_server_fixture as running_server_fixture
from tests.support.mails import server_fixture as server_fixture
from tests.support.mails import settings_fixture as settings_fixture
from tests.support.passwords import PASSWORD
from tests.support.web_client import FORM, Browser, Forms

NEW = "a new password"
LINKS = {"verify": mail_links.VERIFICATION, "password": mail_links.PASSWORD, "unsubscribe": mail_links.UNSUBSCRIPTION}


@pytest.fixture
def page(application):
    return Browser(application, URL)


@pytest.fixture
def arrived(server, settings):
    """Return a function that delivers what is due, and return the newest mail."""

    def newest():
        deliver(settings)
        return server.mails[-1]

    return newest


def user_of(client):
    return User.get_by_id(client.user.id)


def link(kind, client):
    user = user_of(client)
    if kind == "verify":
        address = mail_links.verification_link(URL, user)
    elif kind == "password":
        address = mail_links.password_link(URL, user, mail_links.RESET_LIFETIME)
    else:
        address = mail_links.unsubscription_link(URL, user)
    return address.removeprefix(URL)


def kinds():
    return [entry.kind for entry in AuditLog.select().order_by(AuditLog.position)]


def log_in(anyone, email, password):
    return anyone.post("/auth/login", {"email": email, "password": password}).status


def form_of(page, action):
    """The number of the first form of a page with an action."""
    return [found for found, _ in Forms(page.reply.raw.decode()).found].index(action)


def queued(kind):
    return [row.user_id for row in Delivery.select().where(Delivery.kind == kind)]


class TestVerification:
    def test_link_verifies_the_address(self, alice, page, arrived, anyone):
        assert alice.post("/users/me/email-verification").data == {"sent": True}
        address = link_in(arrived(), "/verify")
        assert page.open(address).status == 200 and "alice@example.com" in page.text
        assert not user_of(alice).is_verified  # a program that opens links verifies nothing
        assert page.navigate("POST", address, {}).status == 200
        assert user_of(alice).is_verified and kinds()[-1] == "email_verified"
        assert alice.get("/users/me").data["is_verified"] is True

    def test_second_use_changes_nothing(self, alice, page):
        for _ in range(2):
            assert page.navigate("POST", link("verify", alice), {}).status == 200
        assert kinds().count("email_verified") == 1

    def test_verified_address_gets_no_mail(self, alice):
        User.update(is_verified=True).execute()
        assert alice.post("/users/me/email-verification").data == {"sent": False}
        assert Delivery.select().count() == 0

    def test_is_limited_per_address(self, alice):
        answers = [alice.post("/users/me/email-verification").status for _ in range(4)]
        assert answers == [200, 200, 200, 429]

    def test_token_is_of_one_address(self, alice, page):
        address = link("verify", alice)
        User.update(email="other@example.com").where(User.id == alice.user.id).execute()
        assert page.navigate("POST", address, {}).status == 400
        assert not user_of(alice).is_verified

    def test_account_page_has_a_button(self, alice, page, arrived):
        page.signed_in(alice).open("/console/account")
        assert "Not verified" in page.text
        page.send(form_of(page, "/console/account"), act="verify")
        assert "An e-mail with a link is on its way to you." in page.text
        page.navigate("POST", link_in(arrived(), "/verify"), {})
        page.open("/console/account")
        assert "Not verified" not in page.text and "Verified" in page.text


class TestForgottenPassword:
    def request(self, page, email="alice@example.com"):
        page.open("/forgot-password")
        return page.send(email=email)

    def test_link_sets_a_new_password_and_ends_all_sessions(self, alice, page, arrived, anyone):
        page.open("/sign-in")
        assert 'href="/forgot-password"' in page.reply.raw.decode()
        assert self.request(page).status == 200
        address = link_in(arrived(), "/reset-password")
        before = user_of(alice).password_hash
        assert page.open(address).status == 200
        assert user_of(alice).password_hash == before
        assert page.send(new_password=NEW).status == 200 and "Your password is set" in page.text
        assert user_of(alice).is_verified and kinds()[-1] == "password_reset"
        assert alice.get("/users/me").error == (401, "invalid_token")
        assert [log_in(anyone, "alice@example.com", word) for word in (PASSWORD, NEW)] == [401, 200]

    def test_link_works_once(self, alice, page):
        page.open(link("password", alice))
        first = page.reply
        assert page.send(new_password=NEW).status == 200
        page.reply = first
        assert page.send(new_password="yet another one").status == 400
        assert passwords.is_correct(NEW, user_of(alice).password_hash)

    def test_password_that_is_too_short_is_refused_on_the_page(self, alice, page):
        page.open(link("password", alice))
        assert page.send(new_password="short").status == 400
        assert "The password needs at least 8 characters." in page.text
        assert page.send(new_password=NEW).status == 200

    def test_change_of_the_password_ends_the_link(self, alice, page):
        address = link("password", alice)
        alice.post("/auth/password", {"current_password": PASSWORD, "new_password": NEW})
        assert page.open(address).status == 400

    def test_response_is_the_same_for_unknown_and_disabled_users(self, alice, bob, page):
        User.update(is_disabled=True).where(User.id == bob.user.id).execute()
        answers = set()
        for email in ("alice@example.com", "bob@example.com", "unknown@example.com"):
            assert self.request(page, email).status == 200
            answers.add(page.reply.raw)
        assert len(answers) == 1
        assert [row.user_id for row in Delivery.select()] == [alice.user.id]

    def test_response_takes_the_same_time_for_unknown_addresses(self, alice, page, monkeypatch):
        monkeypatch.setattr("service.auth.login_throttle.MAILS_PER_ADDRESS", 1_000)
        monkeypatch.setattr("service.auth.login_throttle.MAILS_PER_NETWORK", 1_000)
        page.open("/forgot-password")
        form = page.reply
        times = {"alice@example.com": [], "unknown@example.com": []}
        for _ in range(15):
            for email, taken in times.items():
                page.reply, begun = form, time.perf_counter()
                assert page.send(email=email).status == 200
                taken.append(time.perf_counter() - begun)
        known, unknown = (median(taken) for taken in times.values())
        assert abs(known - unknown) < 0.01

    def test_requests_are_limited_per_address_known_or_not(self, alice, page):
        for email in ("alice@example.com", "unknown@example.com"):
            assert [self.request(page, email).status for _ in range(4)] == [200, 200, 200, 429]
        assert "Too many e-mails were requested" in page.text and Delivery.select().count() == 3

    def test_requests_are_limited_per_network(self, page):
        statuses = [self.request(page, f"user{number}@example.com").status for number in range(21)]
        assert statuses == [200] * 20 + [429]

    def test_requests_do_not_prevent_a_login(self, alice, page, anyone, settings):
        for _ in range(4):
            self.request(page)
        assert log_in(anyone, "alice@example.com", PASSWORD) == 200

    def test_form_of_another_site_is_refused(self, alice, page, application):
        self.request(page)
        form = {"email": "alice@example.com", "csrf_token": sign("form", ["other"])}
        assert page.navigate("POST", "/forgot-password", form).status == 400
        assert Delivery.select().count() == 1

    def test_address_that_is_none_is_refused_on_the_page(self, page):
        assert self.request(page, "alice").status == 400
        assert "expected an e-mail address" in page.text


class TestInvitation:
    def invite(self, page, **more):
        page.open("/console/users")
        form = form_of(page, "/console/users")
        return page.send(form, **{"email": "grace@example.com", "display_name": "Grace", "act": "invite"} | more)

    def test_link_sets_the_first_password(self, admin, page, arrived, application, anyone):
        assert self.invite(page.signed_in(admin)).status == 200 and "User invited by e-mail." in page.text
        grace = User.by_email("grace@example.com")
        assert (grace.display_name, grace.password_hash, grace.is_verified) == ("Grace", "", False)
        assert log_in(anyone, "grace@example.com", "") == 400 and log_in(anyone, "grace@example.com", "x") == 401
        received = arrived()
        assert received.recipient == "grace@example.com" and "Choose a password" in received.part("plain")
        other = Browser(application, URL)
        other.open(link_in(received, "/reset-password"))
        assert other.send(new_password=NEW).status == 200
        assert log_in(anyone, "grace@example.com", NEW) == 200
        assert User.by_email("grace@example.com").is_verified

    def test_is_valid_for_seven_days(self, admin, page, arrived, host_clock):
        self.invite(page.signed_in(admin))
        token = link_in(arrived(), "/reset-password").partition("token=")[2]
        host_clock.forward(days=7, seconds=-1)
        assert mail_links.user_to_reset(token)
        host_clock.forward(seconds=1)
        assert Browser(page.client.application, URL).open(f"/reset-password?token={token}").status == 400

    def test_form_that_is_sent_twice_invites_once(self, admin, page):
        page.signed_in(admin).open("/console/users")
        form = page.reply
        for _ in range(2):
            page.reply = form
            page.send(form_of(page, "/console/users"), email="grace@example.com", act="invite")
            assert page.reply.status == 200
        assert queued("invitation") == [User.by_email("grace@example.com").id]

    def test_is_sent_again_until_there_is_a_password(self, admin, page, arrived, server):
        self.invite(page.signed_in(admin))
        arrived()
        grace = User.by_email("grace@example.com")
        address = f"/console/users/{grace.id}"
        page.open(address)
        access = len(Forms(page.reply.raw.decode()).found) - 2
        assert "Send the invitation again" in page.text
        page.send(access, act="invite")
        assert "User invited by e-mail." in page.text
        token = link_in(arrived(), "/reset-password").partition("token=")[2]
        assert len(server.mails) == 2 and mail_links.user_to_reset(token).id == grace.id
        User.update(password_hash="x").where(User.id == grace.id).execute()
        assert page.send(access, act="invite").status == 400
        assert "Only an enabled user without a password can be invited again." in page.text
        assert "Send the invitation again" not in page.text and queued("invitation") == []

    def test_known_address_is_an_error(self, admin, alice, page):
        assert self.invite(page.signed_in(admin), email="alice@example.com").status == 400
        assert queued("invitation") == []


class TestTokens:
    @pytest.mark.parametrize("kind", LINKS)
    @pytest.mark.parametrize(
        "change", [lambda text: "", lambda text: f"{text}x", lambda text: text[:-1], lambda text: "a.b"]
    )
    def test_that_is_wrong_is_refused(self, kind, change, alice, page):
        path, _, token = link(kind, alice).partition("?token=")
        for method, form in (("GET", None), ("POST", {})):
            assert page.navigate(method, f"{path}?token={change(token)}", form).status == 400

    @pytest.mark.parametrize("kind", LINKS)
    @pytest.mark.parametrize("other", LINKS)
    def test_is_valid_for_its_purpose_only(self, kind, other, alice, page):
        token = link(kind, alice).partition("?token=")[2]
        assert page.open(f"{LINKS[other]}?token={token}").status == (200 if other == kind else 400)

    @pytest.mark.parametrize(("kind", "lifetime"), [("verify", clock.DAY), ("password", 30 * clock.MINUTE)])
    def test_expires(self, kind, lifetime, alice, page, host_clock):
        address = link(kind, alice)
        host_clock.forward(seconds=lifetime / 1_000 - 1)
        assert page.open(address).status == 200
        host_clock.forward(seconds=1)
        assert page.open(address).status == 400
        assert "This link is not valid" in page.text

    @pytest.mark.parametrize("kind", LINKS)
    def test_acts_on_its_user_only(self, kind, alice, bob, page):
        before = User.select().where(User.id == bob.user.id).dicts().get()
        page.open(link(kind, alice))
        assert page.send(**({"new_password": NEW} if kind == "password" else {})).status == 200
        assert User.select().where(User.id == bob.user.id).dicts().get() == before
        assert LoginSession.select().where(LoginSession.user_id == bob.user.id, LoginSession.ended_at.is_null()).count()

    @pytest.mark.parametrize("kind", LINKS)
    def test_of_a_disabled_or_deleted_user_is_refused(self, kind, alice, page):
        address = link(kind, alice)
        User.update(is_disabled=True).where(User.id == alice.user.id).execute()
        assert page.open(address).status == 400
        delete_user(user_of(alice), "operator")
        assert page.open(address).status == 400

    def test_unsubscribing_works_by_a_button_and_does_not_expire(self, alice, page, host_clock):
        address = link("unsubscribe", alice)
        host_clock.forward(days=400)
        page.open(address)
        assert User.preferences_of(alice.user.id)["notifications"]["email_enabled"] is True
        assert page.navigate("POST", address, {}).status == 200
        assert User.preferences_of(alice.user.id)["notifications"]["email_enabled"] is False

    @pytest.mark.parametrize("content_type", [FORM, "multipart/form-data; boundary=x", "text/plain"])
    def test_unsubscribing_accepts_every_form_of_mail_programs(self, content_type, alice, anyone):
        """RFC 8058, section 3.2: a form of either type."""
        body = b"List-Unsubscribe=One-Click"
        if content_type.startswith("multipart"):
            body = b'--x\r\nContent-Disposition: form-data; name="List-Unsubscribe"\r\n\r\nOne-Click\r\n--x--\r\n'
        address = f"/{link('unsubscribe', alice)}"
        assert anyone.call("POST", address, raw=body, content_type=content_type).status == 200
        assert User.preferences_of(alice.user.id)["notifications"]["email_enabled"] is False


class TestWithoutMail:
    @pytest.fixture
    def settings(self, settings):
        return dataclasses.replace(settings, smtp="", mail_from="")

    def test_nothing_is_offered(self, alice, admin, page):
        assert "forgot-password" not in page.open("/sign-in").raw.decode()
        assert page.open("/forgot-password").status == 404
        assert "Not verified" not in page.signed_in(alice).open("/console/account").raw.decode()
        assert (
            "Invite by e-mail"
            not in Browser(page.client.application, URL).signed_in(admin).open("/console/users").raw.decode()
        )
        assert alice.post("/users/me/email-verification").error == (404, "mail_not_configured")

    @pytest.mark.parametrize("enabled", [True, False])
    def test_settings_page_has_no_switch_and_keeps_the_setting(self, enabled, alice, page):
        alice.patch("/users/me/settings", {"notifications": {"email_enabled": enabled}})
        page.signed_in(alice).open("/console/settings")
        assert "By e-mail" not in page.text
        settings_form = len(Forms(page.reply.raw.decode()).found) - 1
        assert page.send(settings_form, act="settings", theme="dark").status == 200
        preferences = User.preferences_of(alice.user.id)
        assert preferences["appearance"]["theme"] == "dark"
        assert preferences["notifications"]["email_enabled"] is enabled

    def test_nothing_is_queued(self, admin, page, application):
        page.signed_in(admin).open("/console/users")
        form = form_of(page, "/console/users")
        assert page.send(form, email="grace@example.com", act="invite").status == 404
        assert User.by_email("grace@example.com") is None
        page.navigate("POST", "/forgot-password", {"email": "ada@example.com"})
        assert Delivery.select().count() == 0

    def test_users_are_signed_in_as_before(self, alice, anyone):
        assert log_in(Client(anyone.application), "alice@example.com", PASSWORD) == 200
        with db.write():
            assert LoginSession.is_from_new_program(alice.user.id, "another")
        assert Delivery.select().count() == 0
