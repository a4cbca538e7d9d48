"""The secret address of a calendar feed, on the page of events."""

import re
from html import unescape

import pytest

from service.models import AuditLog, CalendarFeed, Event
from tests.support.client import Client, Reply
from tests.support.observe import nothing_changes
from tests.support.web_client import Browser, Forms

pytestmark = [pytest.mark.slow, pytest.mark.database]

PAGE = "/console/events"
CREATE = "/console/calendar"
REVOKE = "/console/calendar/removal"


@pytest.fixture
def browser(alice: Client) -> Browser:
    Event.create(user_id=alice.user.id, title="Pub quiz", starts_at="2990-07-01T13:00:00.000Z")
    return Browser(alice.application).signed_in(alice)


def fields_of(browser: Browser, action: str) -> dict[str, str]:
    """Return the fields of a form on the page of events."""
    [fields] = [fields for found, fields in Forms(browser.open(PAGE).raw.decode()).found if found == action]
    return fields


def press(browser: Browser, action: str) -> Reply:
    """Submit a form on the page of events."""
    return browser.navigate("POST", action, fields_of(browser, action))


def addresses(reply: Reply) -> list[str]:
    return [unescape(url) for url in re.findall(r'value="([^"]*events\.ics[^"]*)"', reply.raw.decode())]


def open_address(anyone: Client, url: str) -> Reply:
    return anyone.get(url.removeprefix("http://test/api/v1"))


def kinds(user: Client) -> list[str]:
    found = AuditLog.select().where(AuditLog.subject_id == user.user.id, AuditLog.kind.startswith("calendar"))
    return [entry.kind for entry in found.order_by(AuditLog.position)]


def test_address_is_created_and_opens_the_calendar(browser: Browser, anyone: Client, alice: Client) -> None:
    assert "Create a calendar address" in browser.open(PAGE).raw.decode()
    reply = press(browser, CREATE)
    assert reply.status == 200
    [url] = addresses(reply)
    assert re.fullmatch(r"http://test/api/v1/events\.ics\?token=cxf_[A-Za-z0-9_-]{32}", url)
    assert b"SUMMARY:Pub quiz" in open_address(anyone, url).raw
    assert "Google Calendar" in browser.text
    assert kinds(alice) == ["calendar_feed_renewed"]


def test_address_is_shown_once(browser: Browser) -> None:
    press(browser, CREATE)
    assert addresses(browser.open(PAGE)) == []
    assert "only a digest of it is stored" in browser.text


def test_form_that_is_sent_twice_creates_one_address(browser: Browser, anyone: Client, alice: Client) -> None:
    fields = fields_of(browser, CREATE)
    first, again = (addresses(browser.navigate("POST", CREATE, fields)) for _ in range(2))
    assert first == again
    assert open_address(anyone, first[0]).status == 200
    assert kinds(alice) == ["calendar_feed_renewed"]


def test_new_address_replaces_the_previous_one(browser: Browser, anyone: Client) -> None:
    [first], [second] = (addresses(press(browser, CREATE)) for _ in range(2))
    assert first != second
    assert open_address(anyone, first).error == (404, "feed_not_found")
    assert open_address(anyone, second).status == 200


def test_form_without_a_number_creates_a_new_address_each_time(browser: Browser) -> None:
    given = {**fields_of(browser, CREATE), "number": ""}
    assert addresses(browser.navigate("POST", CREATE, given)) != addresses(browser.navigate("POST", CREATE, given))


def test_users_who_send_the_same_number_have_different_addresses(browser: Browser, bob: Client) -> None:
    other = Browser(bob.application).signed_in(bob)
    found = [
        addresses(one.navigate("POST", CREATE, {**fields_of(one, CREATE), "number": "same"}))
        for one in (browser, other)
    ]
    assert found[0] != found[1]


def test_address_is_revoked_repeatedly(browser: Browser, anyone: Client, alice: Client) -> None:
    [url] = addresses(press(browser, CREATE))
    fields = fields_of(browser, REVOKE)
    for _ in range(2):
        browser.navigate("POST", REVOKE, fields)
        assert "Calendar address revoked." in browser.text
        assert open_address(anyone, url).error == (404, "feed_not_found")
    assert not CalendarFeed.select().exists()
    assert "Create a calendar address" in browser.text
    assert kinds(alice) == ["calendar_feed_renewed", "calendar_feed_revoked"]


def test_form_that_has_expired_changes_nothing(browser: Browser) -> None:
    press(browser, CREATE)
    with nothing_changes():
        for action in (CREATE, REVOKE):
            reply = browser.navigate("POST", action, {"csrf_token": "x"})
            assert (reply.status, addresses(reply)) == (400, [])


def test_address_of_another_user_is_not_affected(browser: Browser, bob: Client, anyone: Client) -> None:
    other = Browser(bob.application).signed_in(bob)
    [url] = addresses(press(other, CREATE))
    press(browser, CREATE)
    press(browser, REVOKE)
    assert open_address(anyone, url).status == 200


def test_address_of_the_form_is_a_page_that_cannot_be_opened(browser: Browser) -> None:
    assert browser.open(CREATE).status == 405
    assert "This page cannot be opened directly" in browser.text
