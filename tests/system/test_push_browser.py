"""Push notifications in Chromium: a subscription by a press, and a message that the service worker shows.

Without a network, Chromium gets no subscription from a push service, so the page gets that of a stand-in. What the
stand-in receives is decrypted, and handed to the service worker as the browser would do it.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.support.chromium import DARK, LIGHT, NARROW, WIDE, Visit, sign_in, visit_fixture  # noqa: F401
from tests.support.cluster import until
from tests.support.fake_ai import sends
from tests.support.passwords import PASSWORD_HASH
from tests.support.push_browser import PushBrowser
from tests.support.server_process import APP, SESSION, Served, chat, fill, serving
from tests.support.webhooks import Receiver, receiving

pytestmark = [pytest.mark.slow, pytest.mark.database]

WINDOWS = [(colours, width) for colours in (LIGHT, DARK) for width in (WIDE, NARROW)]
SUBSCRIBING = """(() => {
  const given = %s, name = "subscribed with";
  const made = () => localStorage.getItem(name) && {
    endpoint: given.endpoint, toJSON: () => given, unsubscribe: async () => localStorage.removeItem(name)
  };
  PushManager.prototype.getSubscription = async () => made();
  PushManager.prototype.subscribe = async ({ userVisibleOnly, applicationServerKey }) => {
    if (!userVisibleOnly || applicationServerKey.length !== 65) throw new TypeError();
    localStorage.setItem(name, applicationServerKey);
    return made();
  };
})()"""
SHOWN = """navigator.serviceWorker.getRegistration("/static/").then((found) => found.getNotifications())
  .then((list) => list.map(({ title, body, data }) => ({ title, body, page: data.page })))"""


@pytest.fixture(scope="module")
def push_service() -> Iterator[Receiver]:
    with receiving(sends({}, 201)) as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, push_service: Receiver) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("push") / "data"
    agent = {"email": "agent@example.com", "role": "agent", "app_id": APP, "password_hash": PASSWORD_HASH}
    app, *rest = chat()
    fill(data, [app, {"user": agent}, *rest])
    flags = ("--web-push", f"127.0.0.1:{push_service.server_port}", "--public-url", "http://chat.example")
    with serving(data, "--verify-answers", "--name", "Shop", *flags) as running:
        yield running
        assert "Traceback" not in running.errors


def deliver(page: Page, server: Served, message: dict[str, Any]) -> None:
    """Hand a message to the service worker of a page, as the browser does, and wait until it is shown.

    Chromium forgets notifications that are asked for before they are shown.
    """
    devtools, registrations, shown = page.context.new_cdp_session(page), list[str](), list[str]()
    observed = {"service": "notifications"}
    devtools.send("BackgroundService.startObserving", observed)
    devtools.send("BackgroundService.setRecording", {**observed, "shouldRecord": True})
    devtools.on(
        "BackgroundService.backgroundServiceEventReceived",
        lambda event: shown.append(event["backgroundServiceEvent"]["eventName"]),
    )
    devtools.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda event: registrations.extend(each["registrationId"] for each in event["registrations"]),
    )
    devtools.send("ServiceWorker.enable")
    until(lambda: page.evaluate("1") and registrations)
    target = {"origin": server.url, "registrationId": registrations[0], "data": json.dumps(message)}
    devtools.send("ServiceWorker.deliverPushMessage", target)
    until(lambda: page.evaluate("1") and "Notification displayed" in shown)


def test_browser_shows_a_message_after_a_press(
    visit: Callable[..., Visit], server: Served, push_service: Receiver
) -> None:
    browser = PushBrowser(f"http://127.0.0.1:{push_service.server_port}/push")
    visitor = visit()
    visitor.context.add_init_script(SUBSCRIBING % json.dumps(browser.subscription))
    visitor.context.grant_permissions(["notifications"])
    page = visitor.open("/sign-in")
    sign_in(page, "alice@example.com")
    visitor.open("/console/push")
    visitor.check_accessibility(WINDOWS)
    page.get_by_role("button", name="Turn on in this browser").click()
    expect(page.get_by_text("This browser shows your notifications until you sign out.")).to_be_visible()
    visitor.check_accessibility(WINDOWS)

    message = {"content": {"text": "What a message says"}}
    path = f"/api/v1/chats/{SESSION}/messages"
    assert server.call("POST", path, message, server.log_in("agent@example.com")).status == 201
    until(lambda: push_service.requests)
    sent = browser.read(push_service.requests[0])
    deliver(page, server, sent)
    assert page.evaluate(SHOWN) == [{"title": "Shop", "body": "New message", "page": f"/console/chats/{SESSION}"}]

    page.get_by_role("button", name="Turn off in this browser").click()
    expect(page.get_by_role("button", name="Turn on in this browser")).to_be_visible()
    assert not page.evaluate("localStorage.length && localStorage.getItem('subscribed with')")
    assert not visitor.faults()


def test_blocked_notifications_are_explained(visit: Callable[..., Visit], server: Served) -> None:
    visitor = visit()
    visitor.context.add_init_script('Object.defineProperty(Notification, "permission", { value: "denied" })')
    page = visitor.open("/sign-in")
    sign_in(page, "alice@example.com")
    visitor.open("/console/push")
    expect(page.get_by_text("The settings of this browser block notifications of this page.")).to_be_visible()
    expect(page.get_by_role("button", name="Turn on in this browser")).to_be_hidden()
