"""Receipts in two real browsers, of staff and of a customer."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from tests.support import sample_data
from tests.support.chromium import DARK, LIGHT, NARROW, WIDE, Visit, visit_fixture  # noqa: F401
from tests.support.passwords import PASSWORD
from tests.support.server_process import Served, fill, serving

pytestmark = [pytest.mark.slow, pytest.mark.database]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("live") / "data"
    fill(data, sample_data.records())
    with serving(data, "--verify-answers", "--workers", "2") as running:
        yield running
        assert "Traceback" not in running.errors


def open_chat(visit: Callable[..., Visit], name: str, *options: object) -> Visit:
    """Sign a user in and open a chat of Alice."""
    visitor = visit(*options)
    visitor.expected = ("401",)  # the sign-in page
    page = visitor.open(f"/console/chats/{sample_data.BUSY}")
    page.get_by_label("E-mail address").fill(sample_data.EMAILS[name])
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("Password").press("Enter")
    expect(page.get_by_label("Your message")).to_be_visible()
    return visitor


def send(visitor: Visit, text: str) -> None:
    field = visitor.page.locator("textarea[name=text]")
    field.fill(text)
    field.press("Enter")
    expect(visitor.page.locator(".message:not(.unsent) .text").last).to_have_text(text)


def test_staff_see_what_the_customer_has_received_and_read(visit: Callable[..., Visit]) -> None:
    staff = open_chat(visit, "agent")
    for number in range(12):  # more than a window shows
        send(staff, f"Line {number}")
    last_time = staff.page.locator(".message .message-time").last
    expect(last_time).to_contain_text("Sent")
    customer = open_chat(visit, "alice", DARK, NARROW)
    expect(last_time).to_contain_text("Delivered")  # the page is open, at its top
    customer.page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    expect(last_time).to_contain_text("Read")
    customer.page.evaluate("scrollTo(0, 0)")
    send(staff, "One more")
    expect(last_time).to_contain_text("Delivered")
    customer.page.locator("[data-new-messages]").click()
    expect(last_time).to_contain_text("Read")
    staff.check_accessibility([(LIGHT, WIDE), (DARK, NARROW)])
