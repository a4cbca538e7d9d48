"""The page of the deliveries of the outbox."""

import re
from html import unescape

import pytest

from service import clock
from service.models import AuditLog, Delivery
from tests.support.client import Client
from tests.support.web_client import Browser, Forms

pytestmark = [pytest.mark.slow, pytest.mark.database]

PATH, URL = "/console/deliveries", "https://hooks.example/chat"


@pytest.fixture
def browser(admin: Client) -> Browser:
    return Browser(admin.application).signed_in(admin)


@pytest.fixture
def failed(browser: Browser) -> Delivery:
    """A webhook whose deliveries have failed."""
    columns = {"due_at": clock.now(), "attempts": 3, "failed_at": clock.now(), "error": "status 500 <b>"}
    return Delivery.create(channel="webhook", target=URL, kind="chat.created", **columns)


def texts(browser: Browser, path: str) -> list[str]:
    """The texts of the deliveries of a page."""
    assert browser.open(path).status == 200
    items = re.findall(r"<li [^>]*data-delivery=.*?</li>", browser.reply.raw.decode(), re.DOTALL)
    return [" ".join(unescape(re.sub("<[^>]*>", " ", item)).split()) for item in items]


def try_again(browser: Browser) -> int:
    """Press the button of the only delivery of the page. Returns the status of the next page."""
    [(action, fields)] = [form for form in Forms(browser.reply.raw.decode()).found if "id" in form[1]]
    return browser.navigate("POST", action, fields).status


def test_pending_and_failed_ones_are_in_lists_of_their_own(browser: Browser, failed: Delivery, alice: Client) -> None:
    Delivery.create(channel="email", kind="verification", user_id=alice.user.id, due_at=clock.MAX_TIME)
    [pending] = texts(browser, PATH)
    assert pending.startswith(f"E-mail verification to {alice.user.email} created ")
    assert "0 attempts due " in pending
    [other] = texts(browser, f"{PATH}?failed=true")
    assert other.startswith(f"Webhook chat.created {URL} status 500 <b> created ")
    assert "3 attempts" in other and "due" not in other
    assert texts(browser, f"{PATH}?failed=true&channel=email") == []


def test_a_failed_one_is_tried_again(browser: Browser, failed: Delivery) -> None:
    assert len(texts(browser, f"{PATH}?failed=true")) == 1
    assert try_again(browser) == 200
    assert "3 attempts due" in texts(browser, PATH)[0]
    assert texts(browser, f"{PATH}?failed=true") == []
    assert Delivery.get_by_id(failed.id).due_at <= clock.now()
    [entry] = AuditLog.select().where(AuditLog.kind == "delivery_retried")
    assert entry.subject_id == failed.id


def test_one_that_was_delivered_meanwhile_is_not_found(browser: Browser, failed: Delivery) -> None:
    browser.open(f"{PATH}?failed=true")
    failed.remove()
    assert try_again(browser) == 404


def test_long_lists_have_pages(browser: Browser) -> None:
    for _ in range(30):
        Delivery.create(channel="webhook", target=URL, kind="chat.created", due_at=clock.MAX_TIME)
    assert len(texts(browser, PATH)) == 25
    [link] = re.findall(r'href="([^"]*cursor=[^"]*)"', browser.reply.raw.decode())
    assert len(texts(browser, PATH + unescape(link))) == 5


@pytest.mark.parametrize(
    ("configured", "text"),
    [
        ((), "Neither e-mail nor push notifications nor webhooks are configured."),
        ((("webhook", URL),), "No delivery is pending."),
    ],
)
def test_an_empty_list_says_why(
    configured: tuple[tuple[str, str], ...], text: str, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Delivery, "configured", configured)
    assert texts(browser, PATH) == [] and text in browser.reply.raw.decode()
