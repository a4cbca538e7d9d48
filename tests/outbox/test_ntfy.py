"""Push notifications on a server that receives them as ntfy documents it: topics, messages, and the pages."""

import re
import threading
from html import unescape

import pytest
import segno

import app
from service import clock, translation
from service.models import AuditLog, Delivery, Notification, PushTopic, User
from service.models.user_deletion import delete_user
from service.operate.import_export import export
from service.outbox.ntfy import NtfyTransport
from service.outbox.push_messages import MAX_TEXT
from service.outbox.transports import transports_of
from service.outbox.worker import DeliveryWorker
from service.settings import Settings
from tests.support.client import Client
from tests.support.fake_ai import sends
from tests.support.messages import read, send
from tests.support.web_client import Browser, Forms
from tests.support.webhooks import receiving

TEXT = "the words of a customer"
TOKEN = "tk_hush"


@pytest.fixture
def ntfy():
    with receiving(sends({"id": "x"})) as server:
        yield server


@pytest.fixture
def make_settings(settings, ntfy):
    def make(**more):
        return Settings(
            data=settings.data,
            database=settings.database,
            verify_answers=True,
            **{
                "ntfy": ntfy.url.removesuffix("/v1"),
                "public_url": "https://chat.example",
                "ntfy_token": TOKEN,
                "name": "Shop",
                **more,
            },
        )

    return make


@pytest.fixture
def served(application, make_settings, alice, monkeypatch):
    """Alice as a client of a service with a push server."""
    monkeypatch.setattr(Delivery, "configured", ())
    return Client(app.build(make_settings()), alice.token, alice.user)


@pytest.fixture
def topic(served):
    return served.post("/users/me/push-topic").data["topic"]


@pytest.fixture
def work(host_clock, make_settings, monkeypatch):
    """Return a function that delivers what is due after a minute."""

    def run(**more):
        worker = DeliveryWorker(NtfyTransport(make_settings(**more)), threading.Event())
        host_clock.forward(minutes=1)
        while worker.run_once():
            pass

    return run


def bodies(ntfy):
    return [request.body for request in ntfy.requests]


class TestMessages:
    def test_have_the_name_of_the_installation_and_no_text(self, ntfy, topic, work, agent, session):
        send(agent, session, TEXT)
        work()
        assert bodies(ntfy) == [
            {
                "topic": topic,
                "title": "Shop",
                "message": "New message",
                "click": f"https://chat.example/console/chats/{session.id}",
                "priority": 3,
            }
        ]
        (request,) = ntfy.requests
        assert (request.path, request.headers["Authorization"]) == ("/", f"Bearer {TOKEN}")
        assert TEXT.encode() not in request.content

    def test_have_titles_and_texts_if_the_operator_says_so(self, ntfy, host_clock, topic, work, agent, session):
        User.update(display_name="Agnes").where(User.id == agent.user.id).execute()
        for text in ("one", "two"):
            send(agent, session, text)
            host_clock.forward(seconds=1)
        work(push_content=True)
        assert bodies(ntfy)[0]["message"] == "Agnes: one\nAgnes: two"

    def test_have_a_limited_length(self, ntfy, topic, work, alice):
        Notification.notify(alice.user.id, "news", "x" * 200, {}, body="😀" * 10_000)
        work(push_content=True)
        assert len(bodies(ntfy)[0]["message"]) == MAX_TEXT
        assert len(ntfy.requests[0].content) < 4096 + 512  # the limit of ntfy, and the other members

    def test_are_in_the_language_of_the_user(self, ntfy, topic, work, agent, served, session):
        served.patch("/users/me/settings", {"appearance": {"language": "de"}})
        send(agent, session)
        work()
        with translation.use("de"):
            assert bodies(ntfy)[0]["message"] == translation.gettext("New message") != "New message"

    def test_about_time_sensitive_events_have_a_high_priority(self, ntfy, host_clock, topic, work, served):
        at = clock.timestamp(clock.now() + clock.MINUTE)
        event = {"title": "Medicine", "starts_at": at, "reminder_at": at, "is_time_sensitive": True}
        assert served.post("/events", event).status == 201
        host_clock.forward(minutes=1)
        served.get("/notifications")
        work()
        message = bodies(ntfy)[0]
        assert (message["priority"], message["message"]) == (4, "New notification")
        assert message["click"] == "https://chat.example/console/notifications"

    @pytest.mark.parametrize("more", [{"public_url": ""}, {"documented_only": True}])
    def test_have_no_link_without_a_page(self, ntfy, topic, work, agent, session, more):
        send(agent, session)
        work(**more)
        assert "click" not in bodies(ntfy)[0]

    def test_always_have_a_title(self, ntfy, topic, work, agent, session):
        """Otherwise ntfy shows the topic, which is secret."""
        send(agent, session)
        work(name="")
        send(agent, session)
        work(name="", public_url="")
        assert [body["title"] for body in bodies(ntfy)] == ["chat.example", "Chat"]

    @pytest.mark.parametrize("state", ["read", "switched off", "no topic"])
    def test_are_not_sent_to_users_who_do_not_want_them(self, ntfy, topic, work, served, agent, session, state):
        send(agent, session)
        if state == "read":
            read(served, session)
        elif state == "switched off":
            served.patch("/users/me/settings", {"notifications": {"push_enabled": False}})
        else:
            PushTopic.delete().execute()
        work()
        assert bodies(ntfy) == [] and Delivery.select().count() == 0

    def test_are_repeated_after_an_error_of_the_server(self, ntfy, host_clock, topic, work, agent, session):
        ntfy.behave = sends({}, 503)
        send(agent, session)
        work()
        ntfy.behave = sends({})
        work()
        assert len(ntfy.requests) == 2 and Delivery.select().count() == 0

    def test_that_the_server_refuses_are_given_up(self, ntfy, topic, work, agent, session, caplog):
        ntfy.behave = sends({"error": "hush"}, 400)
        send(agent, session)
        work()
        (failed,) = Delivery.select()
        assert (failed.error, failed.failed_at is None) == ("status 400", False)
        assert not [word for word in (topic, TOKEN, "hush") if word in caplog.text]


class TestTopics:
    def test_is_created_renewed_and_ended(self, served, ntfy, topic):
        server = ntfy.url.removesuffix("/v1")
        address = served.get("/users/me/push-topic").data
        assert address == {
            "server": server,
            "topic": topic,
            "app_url": f"ntfy://127.0.0.1:{ntfy.server_port}/{topic}?secure=false",
            "web_url": f"{server}/{topic}",
        }
        assert re.fullmatch(r"[\w-]{32}", topic)
        renewed = served.post("/users/me/push-topic").data["topic"]
        assert renewed != topic and served.get("/users/me/push-topic").data["topic"] == renewed
        for _ in range(2):
            assert served.delete("/users/me/push-topic").data == {"ended": True}
        assert served.get("/users/me/push-topic").error == (404, "push_topic_not_found")
        kinds = ["push_topic_renewed", "push_topic_renewed", "push_topic_ended"]
        entries = AuditLog.select().where(AuditLog.kind.startswith("push_topic")).order_by(AuditLog.position)
        assert [entry.kind for entry in entries] == kinds
        assert topic not in "".join(entry.details for entry in entries)

    def test_address_of_a_server_with_tls_is_short(self, application, make_settings, alice):
        client = Client(app.build(make_settings(ntfy="https://push.example")), alice.token, alice.user)
        topic = client.post("/users/me/push-topic").data["topic"]
        assert client.get("/users/me/push-topic").data["app_url"] == f"ntfy://push.example/{topic}"

    def test_what_waits_is_not_sent_after_its_end(self, ntfy, topic, work, served, agent, session):
        send(agent, session)
        served.delete("/users/me/push-topic")
        assert Delivery.select().count() == 0
        served.post("/users/me/push-topic")
        work()
        assert bodies(ntfy) == []

    def test_is_in_no_export(self, topic, alice):
        lines = []
        export(lines.append)
        assert alice.user.email.encode() in b"".join(lines)
        assert topic.encode() not in b"".join(lines)

    def test_is_deleted_with_the_user(self, topic, alice, admin):
        delete_user(alice.user, admin.user.id)
        assert PushTopic.select().count() == 0

    def test_is_the_users_own(self, topic, served, agent, make_settings):
        other = Client(served.application, agent.token, agent.user)
        assert other.get("/users/me/push-topic").error == (404, "push_topic_not_found")
        assert other.post("/users/me/push-topic").data["topic"] != topic


class TestPages:
    @pytest.fixture
    def browser(self, served, alice):
        return Browser(served.application, "https://chat.example").signed_in(alice)

    def submit(self, browser, **values):
        """Submit the last form of the page to its address."""
        forms = [fields for action, fields in Forms(browser.reply.raw.decode()).found if action == browser.path]
        browser.navigate("POST", browser.path, forms[-1] | values)

    def test_show_and_change_the_address(self, browser, served):
        assert "Push notifications" in browser.open("/console/settings").raw.decode()
        browser.open("/console/push")
        self.submit(browser, act="renew")
        assert "Push address created." in browser.text
        shown = unescape(browser.reply.raw.decode())
        address = served.get("/users/me/push-topic").data
        assert address["app_url"] in shown and address["web_url"] in shown
        browser.open("/console/push")
        self.submit(browser, act="renew")
        assert address["topic"] not in browser.reply.raw.decode()
        browser.open("/console/push")
        self.submit(browser, act="end")
        assert "Push notifications ended." in browser.text
        assert served.get("/users/me/push-topic").error == (404, "push_topic_not_found")

    def test_show_the_address_as_a_qr_code(self, browser, topic, served):
        code = segno.make_qr(served.get("/users/me/push-topic").data["app_url"], error="m")
        drawn = code.svg_inline(scale=4, dark="#000", light="#fff")
        page = browser.open("/console/push").raw.decode()
        assert f'role="img" aria-label="QR code of the address for the app">{drawn}</div>' in page

    def test_change_nothing_without_the_token_of_the_session(self, browser, topic, alice):
        browser.open("/console/push")
        self.submit(browser, act="end", csrf_token="x")
        assert browser.reply.status == 400
        assert PushTopic.of(alice.user.id) == topic

    def test_offer_push_only_with_a_server(self, browser, application, alice):
        browser.open("/console/settings")
        assert 'type="checkbox" name="push_enabled"' in browser.reply.raw.decode()
        self.submit(browser, act="settings", push_enabled="false")
        assert User.preferences_of(alice.user.id)["notifications"]["push_enabled"] is False
        Delivery.configure(())
        page = browser.open("/console/settings").raw.decode()
        assert 'type="checkbox" name="push_enabled"' not in page and "/console/push" not in page
        self.submit(browser, act="settings")
        assert User.preferences_of(alice.user.id)["notifications"]["push_enabled"] is False
        assert Browser(application).signed_in(alice).open("/console/push").status == 404


class TestSettings:
    @pytest.mark.parametrize("url", ["http://8.8.8.8", "http://[2001:4860:4860::8888]:80"])
    def test_public_server_needs_tls(self, url):
        with pytest.raises(ValueError, match="--ntfy must have the form https://push.example"):
            transports_of(Settings(ntfy=url))

    @pytest.mark.parametrize("token", ["a b", "tokén", "a\r\nX: y"])
    def test_invalid_token_is_an_error_that_does_not_show_it(self, token):
        with pytest.raises(ValueError, match="CX_NTFY_TOKEN must consist") as caught:
            transports_of(Settings(ntfy="https://push.example", ntfy_token=token))
        assert token not in str(caught.value)

    def test_server_gets_no_token_without_one(self, ntfy, topic, work, agent, session):
        send(agent, session)
        work(ntfy_token="")
        assert "Authorization" not in ntfy.requests[0].headers
