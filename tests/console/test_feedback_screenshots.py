"""The form of feedback with a screenshot, and the screenshots on the page of feedback."""

import re
from typing import Any

import pytest

from service.models import Feedback, FeedbackScreenshot, encoded_pictures
from tests.support.access import as_form
from tests.support.client import Client, Reply
from tests.support.images import PICTURE
from tests.support.observe import nothing_changes
from tests.support.web_client import Browser, Forms

pytestmark = [pytest.mark.slow, pytest.mark.database]

PAGE = "/console/feedback"
FORM = "/console/feedback/new"
TEXT = "Der Knopf fehlt & <b>هدايا</b>"


@pytest.fixture
def browser(alice: Client) -> Browser:
    return Browser(alice.application).signed_in(alice)


def fields_of(browser: Browser) -> dict[str, str]:
    """Return the fields of the form of feedback."""
    [fields] = [fields for action, fields in Forms(browser.open(PAGE).raw.decode()).found if action == FORM]
    return fields


def post(browser: Browser, fields: dict[str, str], content: bytes = b"", **values: str) -> Reply:
    """Send the form of feedback with a file."""
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    form: dict[str, Any] = {**fields, "feedback_type": "bug", "description": TEXT, "screenshot": content, **values}
    headers = {"sec_fetch_mode": "navigate", "accept": "text/html", "host": browser.host, "cookie": cookie}
    return browser.client.call("POST", f"/{FORM}", **as_form(form), **headers)


def image_addresses(html: bytes) -> list[str]:
    return re.findall(r'<img src="([^"]+/screenshot\?size=thumbnail)"', html.decode())


def test_feedback_is_sent_with_a_screenshot_once(browser: Browser) -> None:
    fields = fields_of(browser)
    for _ in range(2):
        reply = post(browser, fields, PICTURE)
        assert (reply.status, reply.headers["Location"]) == (303, f"{PAGE}?done=thanks")
    [feedback] = Feedback.select()
    assert (feedback.description, feedback.feedback_type) == (TEXT, "bug")
    assert feedback.screenshot_url == f"/api/v1/feedback/{feedback.id}/screenshot"
    assert FeedbackScreenshot.get().feedback_id == feedback.id


def test_feedback_is_sent_without_a_screenshot(browser: Browser) -> None:
    assert post(browser, fields_of(browser)).status == 303
    assert Feedback.get().screenshot_url == ""
    assert not FeedbackScreenshot.select().exists()


def test_same_form_with_another_screenshot_asks_for_confirmation(browser: Browser) -> None:
    fields = fields_of(browser)
    post(browser, fields)
    with nothing_changes():
        reply = post(browser, fields, PICTURE)
    assert reply.status == 400
    assert b"already sent" in reply.raw


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        (b"GIF89a" + bytes(100), 415, "JPEG"),
        (PICTURE[:-20], 400, "damaged"),
    ],
)
def test_invalid_screenshot_keeps_the_input_and_sends_nothing(
    content: bytes, status: int, message: str, browser: Browser
) -> None:
    fields = fields_of(browser)
    with nothing_changes():
        reply = post(browser, fields, content)
    assert reply.status == status
    html = reply.raw.decode()
    assert message in html
    assert "Der Knopf fehlt &amp; &lt;b&gt;" in html
    assert '<option value="bug" selected>' in html
    assert "Choose the screenshot again." in html


def test_empty_message_with_a_screenshot_is_refused(browser: Browser) -> None:
    fields = fields_of(browser)
    with nothing_changes():
        reply = post(browser, fields, PICTURE, description=" ")
    assert (reply.status, b"Enter a message." in reply.raw) == (400, True)


def test_file_that_is_too_large_is_refused(browser: Browser) -> None:
    fields = fields_of(browser)
    with nothing_changes():
        reply = post(browser, fields, bytes(5 * 1024 * 1024 + 1))
    assert (reply.status, b"larger than 5 MiB" in reply.raw) == (413, True)


def test_limit_of_screenshots_sends_no_feedback(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(encoded_pictures.USER_LIMITS, "user", 0)
    fields = fields_of(browser)
    with nothing_changes():
        reply = post(browser, fields, PICTURE)
    assert (reply.status, b"too many screenshots" in reply.raw) == (400, True)


def test_form_needs_the_csrf_token(browser: Browser) -> None:
    fields = fields_of(browser)
    with nothing_changes():
        assert post(browser, fields, PICTURE, csrf_token="x").status == 400


def test_author_and_admins_see_the_thumbnail(browser: Browser, admin: Client, bob: Client, agent: Client) -> None:
    post(browser, fields_of(browser), PICTURE)
    [address] = image_addresses(browser.open(PAGE).raw)
    staff = Browser(admin.application).signed_in(admin)
    assert image_addresses(staff.open(f"{PAGE}?everybody=true").raw) == [address]
    for reader in (browser, staff):
        reply = reader.open(address)
        assert (reply.status, reply.headers["Content-Type"]) == (200, "image/webp")
    for user in (bob, agent):
        other = Browser(user.application).signed_in(user)
        assert other.open(address).status == 403
        assert image_addresses(other.open(PAGE).raw) == []
    assert Browser(bob.application).open(address).status == 401


def test_author_removes_the_screenshot_repeatedly(browser: Browser) -> None:
    post(browser, fields_of(browser), PICTURE)
    found = Forms(browser.open(PAGE).raw.decode()).found
    [fields] = [fields for action, fields in found if action == PAGE and "id" in fields]
    for _ in range(2):
        reply = browser.navigate("POST", PAGE, {**fields, "act": "remove"})
        assert reply.status == 200
        assert image_addresses(reply.raw) == []
    assert "Screenshot removed." in browser.text
    assert not FeedbackScreenshot.select().exists()


def test_other_users_cannot_remove_the_screenshot(browser: Browser, admin: Client, bob: Client) -> None:
    post(browser, fields_of(browser), PICTURE)
    id = Feedback.get().id
    for user in (admin, bob):
        other = Browser(user.application).signed_in(user)
        token = fields_of(other)["csrf_token"]
        with nothing_changes():
            reply = other.navigate("POST", PAGE, {"csrf_token": token, "act": "remove", "id": id})
        assert reply.status == 403


def test_member_that_is_given_twice_is_refused(browser: Browser, alice: Client) -> None:
    body = as_form({"description": TEXT, "screenshot": PICTURE})
    member = b'--x\r\nContent-Disposition: form-data; name="feedback_type"\r\n\r\nbug\r\n'
    with nothing_changes():
        reply = alice.call("POST", f"/{FORM}", **body | {"raw": 2 * member + body["raw"]})
    assert reply.status == 400
