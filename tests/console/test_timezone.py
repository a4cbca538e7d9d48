"""Times in the time zone of the profile, else of the browser."""

from typing import Any

import pytest

from service.models import ChatSession, Event, User
from tests.support.client import Client
from tests.support.web_client import Browser


@pytest.fixture
def browser(alice: Client, application: Any) -> Browser:
    Event.create(user_id=alice.user.id, title="Tea", starts_at="2990-07-01T10:00:00.000Z")
    return Browser(application).signed_in(alice)


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("Asia/Kolkata", "15:30"),
        ("Asia%2FKolkata", "10:00"),
        ("", "10:00"),
        ("Nowhere", "10:00"),
        ("../../etc/passwd", "10:00"),
        ("x" * 3_000, "10:00"),
    ],
)
def test_times_are_in_the_time_zone_of_the_browser(zone: str, shown: str, browser: Browser) -> None:
    browser.cookies["cx_timezone"] = zone
    browser.open("/console/events")
    assert shown in browser.text
    assert "data-timezone" in browser.reply.raw.decode()


def test_profile_has_precedence(browser: Browser, alice: Client) -> None:
    browser.cookies["cx_timezone"] = "Asia/Kolkata"
    User.update(timezone="Asia/Tokyo").where(User.id == alice.user.id).execute()
    browser.open("/console/events")
    assert "19:00" in browser.text
    assert "data-timezone" not in browser.reply.raw.decode()


def test_times_of_forms_are_in_the_same_time_zone(browser: Browser, alice: Client, session: ChatSession) -> None:
    browser.cookies["cx_timezone"] = "Asia/Kolkata"
    event = Event.get(Event.user_id == alice.user.id)
    html = browser.open(f"/console/events/{event.id}").raw.decode()
    assert 'value="2990-07-01T15:30"' in html
