"""The page of one event."""

import re
from html import unescape
from typing import Any

import pytest

from service.models import App, Event, User
from tests.support.client import Client
from tests.support.observe import nothing_changes
from tests.support.web_client import Browser, Forms

pytestmark = [pytest.mark.slow, pytest.mark.database]

RTL = "מַתָּנוֹת & <b>هدايا</b>"
STORED = {
    "title": "Lunch",
    "notes": "  Bring a\nglass ",
    "starts_at": "2990-07-01T13:00:30.500Z",
    "ends_at": "2990-07-01T14:00:00.000Z",
    "reminder_at": "2990-07-01T12:45:59.999Z",
    "is_time_sensitive": True,
    "source": "google",
    "source_event_id": "abc/1",
}


@pytest.fixture
def event(alice: Client, shop: App) -> Event:
    User.update_profile(alice.user.id, {"timezone": "America/New_York"})
    return Event.create(user_id=alice.user.id, app_id=shop.id, **STORED)


@pytest.fixture
def browser(alice: Client) -> Browser:
    return Browser(alice.application).signed_in(alice)


def page_of(event: Event) -> str:
    return f"/console/events/{event.id}"


def edit(browser: Browser, event: Event, **values: str) -> str:
    """Send the form of an event with the values of some fields. Return the page."""
    fields = fields_of(browser.open(page_of(event)).raw.decode())
    return browser.navigate("POST", page_of(event), fields | values).raw.decode()


def fields_of(html: str) -> dict[str, str]:
    """Return the fields of the form of an event."""
    [fields] = [fields for action, fields in Forms(html).found if action.startswith("/console/events/")]
    [notes] = re.findall(r'<textarea name="notes"[^>]*>\n(.*?)</textarea>', html, re.DOTALL)
    return {name: unescape(value) for name, value in fields.items()} | {"notes": unescape(notes)}


def stored(event: Event) -> dict[str, Any]:
    return dict(Event.select().where(Event.id == event.id).dicts().get())


def test_list_links_to_the_form_of_each_event(browser: Browser, event: Event) -> None:
    html = browser.open("/console/events").raw.decode()
    assert f'href="{page_of(event)}"' in html
    assert "Edit Lunch" in browser.text


def test_form_has_all_members_that_the_api_accepts(browser: Browser, event: Event, shop: App) -> None:
    fields = fields_of(browser.open(page_of(event)).raw.decode())
    del fields["csrf_token"]
    assert fields == {
        "title": "Lunch",
        "notes": "  Bring a\nglass ",
        "starts_at": "2990-07-01T09:00",
        "ends_at": "2990-07-01T10:00",
        "reminder_at": "2990-07-01T08:45",
        "is_time_sensitive": "true",
        "app_id": shop.id,
        "source": "google",
        "source_event_id": "abc/1",
    }


def test_members_are_changed_in_the_time_zone_of_the_user(browser: Browser, event: Event) -> None:
    html = edit(
        browser,
        event,
        title=f" {RTL} ",
        notes="one\r\ntwo",
        starts_at="2990-12-01T09:00",
        ends_at="2990-12-01T09:30",
        reminder_at="",
        is_time_sensitive="false",
        app_id="",
        source="caldav",
        source_event_id="",
    )
    assert "Saved." in html
    given = {
        "title": RTL,
        "notes": "one\ntwo",
        "starts_at": "2990-12-01T14:00:00.000Z",
        "ends_at": "2990-12-01T14:30:00.000Z",
        "reminder_at": None,
        "is_time_sensitive": False,
        "app_id": None,
        "source": "caldav",
        "source_event_id": None,
    }
    assert {name: stored(event)[name] for name in given} == given


def test_form_that_is_sent_unchanged_changes_nothing(browser: Browser, event: Event) -> None:
    with nothing_changes():
        for _ in range(2):
            assert "Saved." in edit(browser, event)


def test_only_changed_fields_are_stored(browser: Browser, event: Event) -> None:
    before = stored(event)
    edit(browser, event, title="Dinner")
    after = stored(event)
    assert {name for name in after if after[name] != before[name]} == {"title", "updated_at"}


def test_form_that_is_sent_twice_changes_the_event_once(browser: Browser, event: Event) -> None:
    edit(browser, event, title="Dinner", starts_at="2990-07-01T08:00")
    with nothing_changes():
        assert "Saved." in edit(browser, event, title="Dinner", starts_at="2990-07-01T08:00")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"title": " "}, "Title:"),
        ({"title": "x" * 201}, "Title:"),
        ({"starts_at": ""}, "Starts at: expected a date and a time."),
        ({"starts_at": "tomorrow"}, "Starts at: expected a date and a time."),
        ({"ends_at": "2990-07-01T08:59"}, "Ends at: expected a time not before the start."),
        ({"reminder_at": "9999-12-31T23:59"}, "Reminder at: expected a date and a time."),
        ({"notes": "🍷" * 10_001}, "Notes:"),
        ({"source": "two words"}, "Source:"),
        ({"source_event_id": "x" * 256}, "Source event id:"),
        ({"app_id": "00000000-0000-4000-8000-00000000dead"}, "App id: no such app."),
    ],
)
def test_invalid_members_show_an_error_and_keep_the_input(
    values: dict[str, str], message: str, browser: Browser, event: Event
) -> None:
    with nothing_changes():
        html = edit(browser, event, **{"notes": RTL, **values})
    assert browser.reply.status == 400
    assert message in unescape(html)
    kept = fields_of(html)
    expected = {"notes": RTL, **values, "app_id": kept["app_id"]}
    assert {name: kept[name] for name in expected} == expected


def test_source_of_another_event_is_refused(browser: Browser, alice: Client, event: Event) -> None:
    other = Event.create(user_id=alice.user.id, **STORED | {"source_event_id": "abc/2"})
    with nothing_changes():
        assert "already have this event" in edit(browser, other, source_event_id="abc/1")
    assert browser.reply.status == 400


def test_notes_of_the_maximum_length_are_accepted(browser: Browser, event: Event) -> None:
    edit(browser, event, notes="🍷" * 10_000)
    assert stored(event)["notes"] == "🍷" * 10_000


def test_event_that_was_deleted_is_not_found(browser: Browser, event: Event) -> None:
    fields = fields_of(browser.open(page_of(event)).raw.decode())
    event.remove()
    with nothing_changes():
        assert browser.navigate("POST", page_of(event), fields | {"title": "Dinner"}).status == 404


def test_event_of_another_user_cannot_be_read_or_changed(
    browser: Browser, event: Event, bob: Client, admin: Client, agent: Client
) -> None:
    fields = fields_of(browser.open(page_of(event)).raw.decode())
    for user in (bob, agent, admin):
        other = Browser(user.application).signed_in(user)
        assert other.open(page_of(event)).status == 403
        assert "Lunch" not in other.text
        other.open("/console/events")
        [token] = {form["csrf_token"] for _, form in Forms(other.reply.raw.decode()).found if "csrf_token" in form}
        with nothing_changes():
            assert other.navigate("POST", page_of(event), fields | {"csrf_token": token}).status == 403


def test_apps_of_other_customers_are_not_offered(browser: Browser, event: Event, other_shop: App) -> None:
    html = browser.open(page_of(event)).raw.decode()
    assert f'value="{event.app_id}" selected' in html
    assert other_shop.id not in html
