"""E-mails to users: who gets which, when, in which language, and with which links."""

import json

import pytest

from service import clock, db, outbox, translation
from service.api.parameter_types import RequestInfo
from service.auth import mail_links, tokens
from service.console import sign_in
from service.models import Delivery, LoginSession, Notification, User
from service.outbox import email
from service.outbox.transports import transports_of
from service.settings import Settings
from service.translation import use
from tests.support.client import Client
from tests.support.mails import URL, deliver, link_in
from tests.support.mails import channels_of_this_test_fixture as channels_of_this_test_fixture
from tests.support.mails import running_server_fixture as running_server_fixture
from tests.support.mails import server_fixture as server_fixture
from tests.support.mails import settings_fixture as settings_fixture
from tests.support.messages import send

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:{0}.0) Gecko/20100101 Firefox/{0}.0"


@pytest.fixture
def alice(alice):
    User.update(is_verified=True, first_name="Alice").where(User.id == alice.user.id).execute()
    return alice


@pytest.fixture
def due(host_clock, settings):
    """Return a function that waits for announcements, and delivers what is due."""

    def wait(minutes=5):
        host_clock.forward(minutes=minutes)
        deliver(settings)

    return wait


def queue(kind, user_id, **payload):
    with db.write():
        Delivery.add("email", kind, user_id=user_id, payload=payload)


def change(client, **columns):
    User.update(**columns).where(User.id == client.user.id).execute()


class TestNotifications:
    def test_of_a_chat_are_one_mail(self, server, alice, agent, session, due, host_clock):
        for text in ("Good morning", "Is it the <red> one?"):
            send(agent, session, text)
            host_clock.forward(seconds=1)
        due()
        (received,) = server.mails
        mail = received.mail
        assert received.recipient == "alice@example.com"
        assert mail["Subject"] == "Agnes"
        assert mail["References"] == mail["In-Reply-To"] == f"<chat-{session.id}@chat.example>"
        assert mail["Auto-Submitted"] == "auto-generated"
        assert received.part("plain").startswith(
            "You have 2 unread notifications.\n\nAgnes\nGood morning\n20 Nov 2026, 10:00\n\n"
            f"Agnes\nIs it the <red> one?\n20 Nov 2026, 10:00\n\nOpen the chat:\n{URL}/console/chats/{session.id}#end\n"
        )
        assert "Is it the &lt;red&gt; one?" in received.part("html")
        assert Delivery.select().count() == 0

    def test_later_ones_are_another_mail_of_the_same_thread(self, server, alice, agent, session, due):
        for text in ("one", "two"):
            send(agent, session, text)
            due()
        first, second = (received.mail for received in server.mails)
        assert first["References"] == second["References"] and first["Message-ID"] != second["Message-ID"]
        assert "two" in server.mails[1].part("plain")

    def test_of_an_event_link_the_list(self, server, alice, due):
        with db.write():
            Notification.notify(alice.user.id, "event_reminder", "Tea", {"event_id": clock.uuid()})
        due()
        (received,) = server.mails
        assert received.mail["Subject"] == "Tea" and received.mail["References"] is None
        assert link_in(received, "/console/not") == "/console/notifications"

    def test_have_titles_in_the_language_of_the_user(self, server, alice, agent, session, due):
        alice.patch("/users/me/settings", {"appearance": {"language": "de"}})
        agent.put(f"/chats/{session.id}/status", {"status": "closed"})
        due()
        assert server.mails[0].mail["Subject"] == "Status Ihres Chats: geschlossen"

    def test_have_times_in_the_time_zone_of_the_user(self, server, alice, agent, session, due):
        change(alice, timezone="Asia/Tokyo", locale="ja")
        send(agent, session)
        due()
        assert "2026年11月20日 19:00" in server.mails[0].part("plain")

    def test_long_texts_are_cut(self, server, alice, agent, session, due):
        send(agent, session, "word " * 1_000)
        due()
        assert len(server.mails[0].part("plain")) < 2_000

    @pytest.mark.parametrize("columns", [{"is_verified": False}, {"is_disabled": True}])
    def test_go_to_verified_addresses_of_enabled_users_only(self, columns, server, alice, agent, session, due):
        send(agent, session)
        change(alice, **columns)
        due()
        assert not server.mails and Delivery.select().count() == 0

    def test_name_with_line_ends_adds_no_header(self, server, alice, agent, session, due):
        change(agent, display_name="Agnes\r\nBcc: eve@example.com\r\n\r\nHello")
        send(agent, session)
        due()
        (received,) = server.mails
        assert received.mail["Bcc"] is None and received.mail["Subject"] == "Agnes Bcc: eve@example.com Hello"
        assert not received.mail.defects

    def test_unsubscribing_needs_one_request(self, server, alice, agent, session, due, application):
        send(agent, session)
        due()
        mail = server.mails[0].mail
        assert mail["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
        link = mail["List-Unsubscribe"].strip("<>").removeprefix(URL)
        assert link == link_in(server.mails[0], "/unsubscribe")
        form = {"raw": b"List-Unsubscribe=One-Click", "content_type": "application/x-www-form-urlencoded"}
        assert Client(application).call("POST", f"/{link}", **form).status == 200
        assert alice.get("/users/me/settings").data["notifications"]["email_enabled"] is False
        send(agent, session)
        due()
        assert len(server.mails) == 1


class TestLanguages:
    @pytest.mark.parametrize("language", translation.LANGUAGES)
    @pytest.mark.parametrize("kind", ["notifications", "verification", "invitation", "password_reset", "login"])
    def test_every_mail_is_written_in_it(self, kind, language, server, alice, agent, session, due, settings):
        alice.patch("/users/me/settings", {"appearance": {"language": language}})
        change(alice, is_verified=kind != "verification", **({"password_hash": ""} if kind == "invitation" else {}))
        if kind == "notifications":
            send(agent, session, "Hello")
        else:
            login = LoginSession.get(LoginSession.user_id == alice.user.id)
            queue(kind, alice.user.id, login_session_id=login.id)
        due()
        (received,) = server.mails
        html = received.part("html")
        assert f'<html lang="{language}"{" dir=" if language == "ar" else ">"}' in html
        user = User.get_by_id(alice.user.id)
        with use(language):
            if kind == "notifications":
                content = email.announcement(user, list(Notification.select()), URL)
            elif kind == "login":
                content = email.login_notice(user, login.id, "chat.example", URL)
            else:
                content = email.LINKS[kind](user, "chat.example", URL)
        assert received.mail["Subject"] == content.subject
        for text in (*content.paragraphs, content.label, *content.notes):
            assert text in received.part("plain")
        if language != "en":
            with use("en"):
                english = "You have 1 unread notification."
                assert english not in received.part("plain")

    def test_of_the_settings_comes_before_that_of_the_profile(self, alice):
        change(alice, locale="fr-CA")
        assert email.language_of(User.get_by_id(alice.user.id)) == "fr"
        alice.patch("/users/me/settings", {"appearance": {"language": "es"}})
        assert email.language_of(User.get_by_id(alice.user.id)) == "es"


class TestAccountMails:
    def test_verification_is_not_sent_to_a_verified_address(self, server, alice, due):
        queue("verification", alice.user.id)
        due()
        assert not server.mails and Delivery.select().count() == 0

    def test_invitation_is_not_sent_to_a_user_with_a_password(self, server, alice, due):
        queue("invitation", alice.user.id)
        due()
        assert not server.mails

    @pytest.mark.parametrize("kind", ["verification", "password_reset", "login"])
    def test_none_is_sent_to_a_disabled_user(self, kind, server, bob, due):
        change(bob, is_disabled=True)
        queue(kind, bob.user.id, login_session_id=clock.uuid())
        due()
        assert not server.mails and Delivery.select().count() == 0

    @pytest.mark.parametrize(
        ("kind", "path"),
        [("verification", "/verify"), ("invitation", "/reset-password"), ("password_reset", "/reset-password")],
    )
    def test_have_a_link_to_a_page(self, kind, path, server, bob, due, application):
        if kind == "invitation":
            change(bob, password_hash="")
        queue(kind, bob.user.id)
        due()
        (received,) = server.mails
        assert "List-Unsubscribe" not in received.mail and "References" not in received.mail
        assert Client(application).call("GET", f"/{link_in(received, path)}").status == 200

    def test_stored_deliveries_have_no_token_and_no_address(self, server, alice, anyone, due):
        queue("password_reset", alice.user.id)
        (row,) = Delivery.select().dicts()
        assert "alice@" not in json.dumps(row) and json.loads(row["payload"]) == {}


class TestNewLogins:
    def log_in(self, alice, settings, label):
        with db.write():
            tokens.log_in(alice.user.id, settings, label)

    @pytest.fixture
    def alice(self, alice):
        LoginSession.delete().execute()
        return alice

    def test_first_one_is_not_reported(self, server, alice, settings, due):
        self.log_in(alice, settings, FIREFOX.format(140))
        assert Delivery.select().count() == 0

    def test_new_program_is_reported(self, server, alice, settings, due):
        self.log_in(alice, settings, FIREFOX.format(140))
        self.log_in(alice, settings, "shop app")
        due(0)
        (received,) = server.mails
        assert received.mail["Subject"] == "New sign-in to your account"
        assert "shop app\n20 Nov 2026, 10:00" in received.part("plain")
        assert link_in(received, "/console") == "/console/account"

    def test_known_program_is_not_reported_after_an_update_or_the_end_of_its_session(
        self, server, alice, settings, due, host_clock
    ):
        for number, days in ((140, 0), (141, 31), (142, 29)):
            host_clock.forward(days=days)
            self.log_in(alice, settings, FIREFOX.format(number))
        assert Delivery.select().count() == 0

    def test_browser_is_reported(self, server, alice, settings, due):
        self.log_in(alice, settings, "shop app")
        with db.write():
            sign_in.begin(alice.user.id, RequestInfo("127.0.0.1", FIREFOX.format(140), URL))
        due(0)
        assert "Firefox on Linux" in server.mails[0].part("plain")

    def test_unverified_address_gets_no_report(self, server, alice, settings, due):
        change(alice, is_verified=False)
        self.log_in(alice, settings, "one")
        self.log_in(alice, settings, "two")
        due(0)
        assert not server.mails

    def test_command_line_client_is_not_reported(self, server, alice, settings):
        self.log_in(alice, settings, "one")
        with db.write():
            tokens.create_token_session(alice.user.id, settings, label="laptop", install_id="x", kind="client")
        assert Delivery.select().count() == 0


def test_configured_channels_are_those_of_the_transports(application, settings):
    transports = transports_of(settings)
    assert [(transport.channel, transport.target) for transport in transports] == list(Delivery.configured)
    outbox.configure(Settings())
    assert Delivery.configured == tuple(transports_of(Settings())) == ()


class TestFaults:
    def test_temporary_error_is_retried_with_the_same_message_id(self, server, bob, due):
        server.replies["DATA"] = "cut"  # the server has the mail, but the service does not know
        queue("verification", bob.user.id)
        due(0)
        assert len(server.mails) == 1
        (row,) = Delivery.select()
        assert (row.failed_at, row.attempts, row.error) == (None, 1, "Connection unexpectedly closed")
        server.replies.clear()
        due(1)
        first, second = (received.mail["Message-ID"] for received in server.mails)
        assert first == second and Delivery.select().count() == 0

    def test_final_error_ends_the_delivery(self, server, bob, due):
        server.replies["RCPT"] = "550 no such user"
        queue("verification", bob.user.id)
        due(0)
        (row,) = Delivery.select()
        assert row.failed_at and row.error == "550 no such user"

    def test_token_is_made_when_the_mail_is_sent(self, server, bob, due, host_clock):
        server.replies["RCPT"] = "450 later"
        queue("password_reset", bob.user.id)
        due(0)
        server.replies.clear()
        due(60)
        token = link_in(server.mails[0], "/reset-password").partition("token=")[2]
        host_clock.forward(minutes=29)
        assert mail_links.user_to_reset(token).id == bob.user.id
