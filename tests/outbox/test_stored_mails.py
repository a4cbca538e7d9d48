"""E-mails of a demo: stored in place of being sent, listed and shown to admins, bounded, and purged."""

import dataclasses

import pytest

from service import clock, db, outbox
from service.commands import demo, run
from service.models import Delivery, Message, StoredMail, User
from service.models.stored_mails import LIFETIME, MAX_MAILS
from service.models.user_deletion import delete_user
from service.operate.import_export import export
from service.outbox.transports import transports_of
from service.settings import Settings
from tests.support.client import Client
from tests.support.mails import URL, deliver
from tests.support.mails import channels_of_this_test_fixture as channels_of_this_test_fixture
from tests.support.messages import send
from tests.support.security_headers import DOCUMENT, policy
from tests.support.web_client import Browser, Forms

TEXT = "the words of a customer <script>alert(1)</script>"


@pytest.fixture
def settings(settings):
    return dataclasses.replace(settings, store_mails=URL)


@pytest.fixture
def announced(alice, agent, session, settings, host_clock):
    """The stored e-mail about a message to Alice."""
    User.update(is_verified=True).where(User.id == alice.user.id).execute()
    send(agent, session, TEXT)
    host_clock.forward(minutes=5)
    deliver(settings)
    return StoredMail.get()


@pytest.fixture
def browser(admin, application):
    return Browser(application).signed_in(admin)


def store(user, text="Hello"):
    StoredMail.store(user.email, text, f"Subject: {text}\n\n{text}")


def test_mail_is_stored_as_it_would_be_sent(announced, alice, session):
    message = announced.message
    assert announced.address == message["To"] == "alice@example.com"
    assert announced.subject == message["Subject"] == "Agnes"
    assert message["References"] == f"<chat-{session.id}@demo.example>"
    assert message["List-Unsubscribe"].startswith(f"<{URL}/unsubscribe?token=")
    assert TEXT in announced.part("plain") and f"{URL}/console/chats/{session.id}#end" in announced.part("plain")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in announced.part("html")
    assert Delivery.select().count() == 0


def test_invitations_and_password_resets_are_stored_with_a_link_that_works(browser, application, settings):
    browser.open("/console/users")
    form = [action for action, _ in Forms(browser.reply.raw.decode()).found].index("/console/users")
    assert browser.send(form, email="grace@example.com", act="invite").status == 200
    page = Browser(application)
    page.open("/forgot-password")
    page.send(email="grace@example.com")
    deliver(settings)
    mails = list(StoredMail.select().order_by(StoredMail.id))
    assert [mail.subject for mail in mails] == ["Invitation to chat.example", "Choose a new password"]
    for mail in mails:
        link = mail.part("plain").partition(URL)[2].partition("\n")[0]
        assert Client(application).call("GET", f"/{link}").status == 200


def test_admins_read_them_in_the_console(announced, browser):
    assert 'href="/console/mails"' in browser.open("/").raw.decode()
    page = browser.open("/console/mails").raw.decode()
    assert f'href="/console/mails/{announced.id}"' in page and "alice@example.com" in page
    page = browser.open(f"/console/mails/{announced.id}").raw.decode()
    assert "the words of a customer &lt;script&gt;alert(1)&lt;/script&gt;" in page and "auto-generated" in page
    html = browser.open(f"/console/mails/{announced.id}/html")
    assert html.raw.decode() == announced.part("html")
    assert html.headers["Content-Type"] == "text/html; charset=utf-8" and policy(html) == DOCUMENT


def test_pages_have_a_link_to_them_only_if_they_are_stored(browser):
    outbox.configure(Settings())
    assert 'href="/console/mails"' not in browser.open("/").raw.decode()
    browser.open("/console/mails")
    assert "No e-mail is stored." in browser.text


def test_list_has_pages(alice, browser):
    for number in range(30):
        store(alice.user, f"Mail {number}.")
    page = browser.open("/console/mails").raw.decode()
    assert "Mail 29." in page and "Mail 5." in page and "Mail 4." not in page and "Older e-mails" in page


def test_newest_remain(alice):
    for number in range(MAX_MAILS + 2):
        store(alice.user, f"{number}")
    found = [mail.subject for mail in StoredMail.select().order_by(StoredMail.id)]
    assert found == [f"{number}" for number in range(2, MAX_MAILS + 2)]


def test_old_ones_are_deleted(alice, host_clock):
    store(alice.user, "old")
    host_clock.forward(seconds=1)
    store(alice.user, "new")
    host_clock.forward(seconds=LIFETIME // clock.SECOND - 1)
    assert StoredMail.delete_old() == 0
    host_clock.forward(seconds=0.001)
    assert [StoredMail.delete_old(), StoredMail.delete_old()] == [1, 0]
    assert StoredMail.get().subject == "new"


def test_deletion_of_a_user_deletes_the_users_mails(alice, bob, admin):
    store(alice.user)
    store(bob.user)
    delete_user(alice.user, admin.user.id)
    assert [mail.user_id for mail in StoredMail.select()] == [bob.user.id]


def test_purge_deletes_all(announced, settings, session):
    message = Message.get(Message.chat_session_id == session.id)
    database = ["--database", settings.database] if settings.database else ["--data", str(settings.data)]
    db.release_database()
    assert run(["purge", "--message", message.id, *database]) == 0
    assert StoredMail.select().count() == 0


def test_export_has_none(announced):
    lines = []
    export(lines.append)
    content = b"".join(lines)
    assert b"alice@example.com" in content and announced.id.encode() not in content and b"/unsubscribe" not in content


class TestDemo:
    def test_without_server_stores_its_mails(self, application, monkeypatch):
        monkeypatch.setattr(demo, "is_present", lambda: True)
        (transport,) = transports_of(demo.storing_mails(Settings(), URL))
        assert (transport.channel, transport.target) == ("email", "database")

    def test_with_server_sends_them(self, application, monkeypatch):
        monkeypatch.setattr(demo, "is_present", lambda: True)
        settings = Settings(smtp="smtp://127.0.0.1", mail_from="a@b.example", public_url=URL)
        assert demo.storing_mails(settings, URL) == settings

    @pytest.mark.parametrize("more", [{}, {"documented_only": True}])
    def test_stores_none_in_another_database_or_without_the_console(self, more, application, monkeypatch):
        if more:
            monkeypatch.setattr(demo, "is_present", lambda: True)
        assert demo.storing_mails(Settings(**more), URL) == Settings(**more)
