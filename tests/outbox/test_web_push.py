"""Web Push: messages that a stand-in for a push service receives and decrypts, subscriptions, and the pages."""

import importlib.util
import threading

import pytest

import app
from service import clock, db, translation
from service.auth import tokens
from service.models import AuditLog, Delivery, LoginSession, Notification, PushKey, PushSubscription, PushTopic, User
from service.models.push_subscriptions import MAX_BROWSERS, P256_ORDER
from service.models.user_deletion import delete_user
from service.operate.import_export import export
from service.outbox import push_encryption
from service.outbox.transports import transports_of
from service.outbox.web_push import WebPushTransport, is_allowed
from service.outbox.worker import DeliveryWorker
from service.settings import Settings
from tests.support.client import Client
from tests.support.fake_ai import sends
from tests.support.messages import read, send
from tests.support.push_browser import PushBrowser, claims_of
from tests.support.web_client import Browser, Forms
from tests.support.webhooks import receiving

TEXT = "the words of a customer"
URL = "https://chat.example"
PATH = "/users/me/web-push"


@pytest.fixture
def push_service():
    with receiving(sends({}, 201)) as server:
        yield server


@pytest.fixture
def origin(push_service):
    return push_service.url.removesuffix("/v1")


@pytest.fixture
def make_settings(settings, origin):
    def make(**more):
        chosen = {"web_push": (origin.removeprefix("http://"),), "public_url": URL, "name": "Shop", **more}
        return Settings(data=settings.data, database=settings.database, verify_answers=True, **chosen)

    return make


@pytest.fixture
def served(application, make_settings, alice, monkeypatch):
    """Alice as a client of a service with Web Push."""
    monkeypatch.setattr(Delivery, "configured", ())
    return Client(app.build(make_settings()), alice.token, alice.user)


@pytest.fixture
def browser(served, origin):
    """A browser in which Alice gets push notifications."""
    subscribed = PushBrowser(f"{origin}/push/1?token=a")
    assert served.post(PATH, subscribed.subscription).data == {"subscribed": True}
    return subscribed


@pytest.fixture
def work(host_clock, make_settings):
    """Return a function that delivers what is due after some minutes."""

    def run(minutes=1, **more):
        worker = DeliveryWorker(WebPushTransport(make_settings(**more)), threading.Event())
        host_clock.forward(minutes=minutes)
        while worker.run_once():
            pass

    return run


def another_browser(client, endpoint):
    """A further login of a user, in another browser that gets push notifications."""
    with db.write():
        token = tokens.log_in(client.user.id, Settings()).access_token
    other = Client(client.application, token, client.user)
    other.post(PATH, PushBrowser(endpoint).subscription)
    return other


def paths(push_service):
    return sorted(request.path for request in push_service.requests)


class TestEncryption:
    """Appendix A of RFC 8291."""

    PLAINTEXT = b"When I grow up, I want to be a watermelon"
    BROWSER = PushBrowser("", "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94", "BTBZMqHH6r4Tts7J_aSIgg")
    BODY = push_encryption.decode(
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3"
        "jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )

    def test_is_that_of_the_vector(self):
        number = int.from_bytes(push_encryption.decode("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"))
        salt = push_encryption.decode("DGv6ra1nlYgDCS1FRnbzlw")
        keys = self.BROWSER.subscription["keys"]
        assert keys["p256dh"].startswith("BCVxsr7N_eNgVRqvHtD0zTZsEc6")
        assert push_encryption.encrypt(self.PLAINTEXT, **keys, key=push_encryption.private_key(number), salt=salt) == (
            self.BODY
        )

    def test_stand_in_decrypts_the_vector(self):
        assert self.BROWSER.decrypt(self.BODY) == self.PLAINTEXT

    def test_keys_of_two_messages_differ(self):
        keys = self.BROWSER.subscription["keys"]
        bodies = [push_encryption.encrypt(b"", **keys) for _ in range(2)]
        assert len({body[:16] for body in bodies}) == len({body[21:86] for body in bodies}) == 2


class TestMessages:
    def test_have_the_name_of_the_installation_and_no_text(self, push_service, browser, work, agent, session):
        send(agent, session, TEXT)
        work()
        (request,) = push_service.requests
        message = browser.read(request)
        tag = message.pop("tag")
        assert message == {"title": "Shop", "body": "New message", "page": f"/console/chats/{session.id}"}
        assert request.path == "/push/1?token=a"
        expected = {"TTL": "86400", "Urgency": "normal", "Topic": tag, "Content-Type": "application/octet-stream"}
        assert {name: request.headers[name] for name in expected} == expected
        assert len(tag) == 32 and Delivery.select().count() == 0

    def test_are_signed_with_the_key_of_the_installation(self, push_service, browser, work, agent, session, origin):
        send(agent, session)
        work()
        key, claims = claims_of(push_service.requests[0])
        assert (claims["aud"], claims["sub"]) == (origin, URL)
        assert 0 < claims["exp"] - clock.host_time() // 1000 <= 86_400

    def test_have_titles_and_texts_if_the_operator_says_so(self, push_service, browser, work, agent, session):
        User.update(display_name="Agnes").where(User.id == agent.user.id).execute()
        send(agent, session, TEXT)
        work(push_content=True)
        assert browser.read(push_service.requests[0])["body"] == f"Agnes: {TEXT}"

    @pytest.mark.parametrize("letter", ["x", "😀", '"', "\x07"])
    def test_have_a_limited_length(self, letter, push_service, browser, work, alice):
        Notification.notify(alice.user.id, "news", letter * 200, {}, body=letter * 10_000)
        work(push_content=True, name="😀" * 200)
        assert len(browser.read(push_service.requests[0])["body"]) > 300

    def test_are_in_the_language_of_the_user(self, push_service, browser, work, agent, served, session):
        served.patch("/users/me/settings", {"appearance": {"language": "de"}})
        send(agent, session)
        work()
        with translation.use("de"):
            expected = translation.gettext("New message")
        assert browser.read(push_service.requests[0])["body"] == expected != "New message"

    def test_about_time_sensitive_events_are_urgent_and_sent_during_a_mute(
        self, push_service, host_clock, browser, work, served, agent, session
    ):
        until = clock.timestamp(clock.now() + clock.DAY)
        served.patch("/users/me/settings", {"notifications": {"muted_until": until}})
        at = clock.timestamp(clock.now() + clock.MINUTE)
        event = {"title": "Medicine", "starts_at": at, "reminder_at": at, "is_time_sensitive": True}
        assert served.post("/events", event).status == 201
        send(agent, session)
        host_clock.forward(minutes=1)
        served.get("/notifications")
        work()
        (request,) = push_service.requests
        assert request.headers["Urgency"] == "high" and browser.read(request)["page"] == "/console/notifications"
        work(minutes=24 * 60)
        assert browser.read(push_service.requests[1])["page"] == f"/console/chats/{session.id}"

    @pytest.mark.parametrize("state", ["read", "switched off", "host not allowed", "signed out"])
    def test_are_not_sent_when_they_are_not_wanted(self, state, push_service, browser, work, served, agent, session):
        send(agent, session)
        if state == "read":
            read(served, session)
        elif state == "switched off":
            served.patch("/users/me/settings", {"notifications": {"push_enabled": False}})
        elif state == "signed out":
            LoginSession.end_all(served.user.id)
        work(**({"web_push": ("push.example",)} if state == "host not allowed" else {}))
        assert push_service.requests == [] and Delivery.select().count() == 0

    def test_are_not_queued_for_users_without_browser_or_topic(self, served, origin, make_settings, agent, session):
        app.build(make_settings(ntfy="https://push.example"))
        send(agent, session)
        assert Delivery.select().count() == 0
        PushTopic.renew(served.user.id)
        send(agent, session)
        assert [row.target for row in Delivery.select()] == [""]
        served.post(PATH, PushBrowser(f"{origin}/push").subscription)
        send(agent, session)
        assert sorted(row.target for row in Delivery.select()) == ["", "browsers"]


class TestErrors:
    @pytest.mark.parametrize("status", [404, 410])
    def test_ended_subscription_is_removed(self, status, push_service, browser, work, agent, session):
        push_service.behave = sends({}, status)
        send(agent, session)
        work()
        assert (PushSubscription.select().count(), Delivery.select().count()) == (0, 0)

    @pytest.mark.parametrize("status", [403, 429, 500])
    def test_temporary_error_is_retried(self, status, push_service, browser, work, agent, session, caplog):
        push_service.behave = sends({"error": "hush"}, status)
        send(agent, session)
        work()
        (waiting,) = Delivery.select()
        assert (waiting.error, waiting.failed_at) == (f"status {status}", None)
        push_service.behave = sends({}, 201)
        work()
        assert len(push_service.requests) == 2 and Delivery.select().count() == 0
        assert "hush" not in caplog.text and browser.endpoint not in caplog.text

    @pytest.mark.parametrize("status", [400, 413])
    def test_message_that_is_refused_is_given_up(self, status, push_service, browser, work, agent, session):
        push_service.behave = sends({}, status)
        send(agent, session)
        work()
        (failed,) = Delivery.select()
        assert failed.failed_at and failed.error == f"status {status}"

    def test_browser_that_has_a_message_gets_no_second_one(self, push_service, browser, served, origin, work, agent):
        another_browser(served, f"{origin}/push/2")
        push_service.behave = lambda handler: sends({}, 201 if handler.path == "/push/2" else 503)(handler)
        Notification.notify(served.user.id, "news", "News", {})
        work()
        push_service.behave = sends({}, 201)
        work()
        assert paths(push_service) == ["/push/1?token=a", "/push/1?token=a", "/push/2"]

    def test_what_is_added_during_a_mute_is_sent_to_all(
        self, push_service, browser, served, origin, work, agent, session
    ):
        another_browser(served, f"{origin}/push/2")
        push_service.behave = lambda handler: sends({}, 201 if handler.path == "/push/2" else 503)(handler)
        send(agent, session)
        work()
        until = clock.timestamp(clock.now() + clock.HOUR)
        served.patch("/users/me/settings", {"notifications": {"muted_until": until}})
        work()
        send(agent, session)
        push_service.behave = sends({}, 201)
        work(minutes=61)
        assert paths(push_service) == ["/push/1?token=a"] * 2 + ["/push/2"] * 2


class TestKey:
    def test_is_created_once_and_stays(self, served, make_settings):
        key = served.get(PATH).data["public_key"]
        app.build(make_settings())
        PushKey.ensure()
        assert served.get(PATH).data["public_key"] == key and PushKey.select().count() == 1
        assert len(push_encryption.decode(key)) == 65 and 0 < PushKey.number() < P256_ORDER

    def test_is_that_of_the_requests(self, push_service, browser, served, work, agent, session):
        send(agent, session)
        work()
        assert claims_of(push_service.requests[0]).key == served.get(PATH).data["public_key"]

    def test_is_in_no_export(self, browser):
        lines = []
        export(lines.append)
        content = b"".join(lines)
        stored = PushKey.get().private_key, browser.endpoint, browser.subscription["keys"]["auth"]
        assert b"alice@example.com" in content and not [text for text in stored if text.encode() in content]


class TestSubscriptions:
    def test_are_those_of_a_login_session_and_ended_by_it(self, served, browser, origin):
        other = another_browser(served, f"{origin}/push/2")
        again = PushBrowser(f"{origin}/push/3")
        other.post(PATH, again.subscription)
        assert {row.endpoint for row in PushSubscription.select()} == {browser.endpoint, again.endpoint}
        for _ in range(2):
            assert other.delete(PATH).data == {"subscribed": False}
        assert [row.endpoint for row in PushSubscription.select()] == [browser.endpoint]
        entries = AuditLog.select().where(AuditLog.kind.startswith("push_browser")).order_by(AuditLog.position)
        assert [entry.kind for entry in entries] == ["push_browser_added"] * 3 + ["push_browser_removed"]
        assert origin not in "".join(entry.details for entry in entries)

    def test_belong_to_the_user_who_subscribed_last(self, served, browser, agent):
        Client(served.application, agent.token, agent.user).post(PATH, browser.subscription)
        assert [row.user_id for row in PushSubscription.select()] == [agent.user.id]

    def test_newest_remain(self, served, origin, host_clock):
        for number in range(MAX_BROWSERS + 1):
            host_clock.forward(seconds=1)
            another_browser(served, f"{origin}/{number}")
        found = [row.endpoint for row in PushSubscription.open_of(served.user.id)]
        assert found == [f"{origin}/{number}" for number in range(1, MAX_BROWSERS + 1)]

    def test_are_deleted_with_the_user(self, browser, alice, admin):
        delete_user(alice.user, admin.user.id)
        assert PushSubscription.select().count() == 0

    @pytest.mark.parametrize(
        "endpoint",
        [
            "http://127.0.0.1:1/push",
            "http://localhost/push",
            "https://example.com/push",
            "ftp://{host}/push",
            "http://user@{host}/push",
            "http://{host}/push#x",
            "http://{host}/pu sh",
            "http://{host}\\.example.com/",
            "//{host}/push",
            "x",
        ],
    )
    def test_of_hosts_that_the_operator_did_not_allow_are_refused(self, endpoint, served, origin):
        endpoint = endpoint.format(host=origin.removeprefix("http://"))
        reply = served.post(PATH, PushBrowser(endpoint).subscription)
        assert reply.error == (400, "invalid_body")
        assert "does not send to the push service of this browser" in reply.json["error"]["message"]
        assert PushSubscription.select().count() == 0

    @pytest.mark.parametrize(
        ("member", "value"),
        [
            ("p256dh", "A" * 87),
            ("p256dh", "BQ" + "A" * 85),
            ("p256dh", "B" + "A" * 85 + "E"),  # not on the curve
            ("p256dh", "B" + "A" * 86),  # at infinity, for the library
            ("p256dh", "BA"),
            ("auth", "QUJD"),
            ("auth", "ä"),
            ("auth", "*" * 22),
        ],
    )
    def test_with_invalid_keys_are_refused(self, member, value, served, origin):
        subscription = PushBrowser(f"{origin}/push").subscription
        subscription["keys"][member] = value
        assert served.post(PATH, subscription).error == (400, "invalid_body")

    def test_without_web_push_are_not_accepted(self, application, alice, origin):
        assert alice.get(PATH).error == alice.post(PATH, PushBrowser("https://a.example").subscription).error
        assert alice.get(PATH).error == (404, "push_unavailable")


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("https://push.example/x", True),
        ("https://push.example:444/x", False),
        ("https://a.push.example/x", False),
        ("https://db5p.notify.example/x?y=z", True),
        ("https://notify.example/x", False),
        ("https://evilnotify.example/x", False),
        ("https://notify.example.evil.example/x", False),
        ("http://8.8.8.8/x", False),
        ("https://8.8.8.8/x", True),
    ],
)
def test_allowed_endpoints_are_those_of_the_settings(endpoint, expected):
    assert is_allowed(endpoint, Settings(web_push=("push.example", "*.notify.example", "8.8.8.8"))) is expected


class TestPages:
    @pytest.fixture
    def page(self, served, alice):
        return Browser(served.application, URL).signed_in(alice)

    def submit(self, page, **values):
        """Submit a form as the script does."""
        form = [fields for action, fields in Forms(page.reply.raw.decode()).found if action == "/console/push/browser"]
        return page.navigate("POST", "/console/push/browser", form[0] | values)

    def test_subscribe_and_unsubscribe_a_browser(self, page, served, origin):
        browser = PushBrowser(f"{origin}/push")
        assert "/console/push" in page.open("/console/settings").raw.decode()
        assert served.get(PATH).data["public_key"] in page.open("/console/push").raw.decode()
        assert "Turn off in all browsers" not in page.text and "ntfy" not in page.text
        self.submit(page, act="subscribe", endpoint=browser.endpoint, **browser.subscription["keys"])
        assert "This browser now shows your notifications." in page.text
        assert f'data-endpoints="{browser.endpoint}"' in page.reply.raw.decode() and "Turn off in all" in page.text
        another_browser(served, f"{origin}/push/2")
        self.submit(page, act="unsubscribe")
        assert "Push notifications in this browser ended." in page.text and PushSubscription.select().count() == 1
        another_browser(served, f"{origin}/push/3")
        self.submit(page, act="unsubscribe_all")
        assert PushSubscription.select().count() == 0

    def test_show_what_is_not_accepted(self, page):
        browser = PushBrowser("https://other.example/push")
        page.open("/console/push")
        reply = self.submit(page, act="subscribe", endpoint=browser.endpoint, **browser.subscription["keys"])
        assert reply.status == 400 and "does not send to the push service of this browser" in page.text

    def test_need_the_token_of_the_session(self, page, browser):
        page.open("/console/push")
        assert self.submit(page, act="unsubscribe", csrf_token="x").status == 400
        assert PushSubscription.select().count() == 1

    def test_subscription_of_another_session_is_not_shown_as_on(self, page, browser, served):
        LoginSession.update(ended_at=1).where(LoginSession.id == PushSubscription.get().login_session_id).execute()
        assert 'data-endpoints=""' in page.open("/console/push").raw.decode()


class TestSettings:
    @pytest.mark.parametrize("host", ["https://push.example", "push.example/x", "*", "Push.example", "a@b", ""])
    def test_invalid_host_is_an_error(self, host):
        with pytest.raises(ValueError, match="--web-push must be the host"):
            transports_of(Settings(web_push=(host,), public_url=URL))

    @pytest.mark.parametrize("more", [{}, {"public_url": URL, "documented_only": True}])
    def test_needs_the_pages_at_a_public_url(self, more):
        with pytest.raises(ValueError, match="--web-push needs --public-url"):
            transports_of(Settings(web_push=("push.example",), **more))

    def test_needs_the_library(self, monkeypatch):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ValueError, match="which cx-service-postgresql.pyz contains"):
            transports_of(Settings(web_push=("push.example",), public_url=URL))
