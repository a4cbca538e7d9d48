"""Receipts and typing indicators in two real browsers, of staff and of a customer."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from tests.support import sample_data
from tests.support.chromium import (
    DARK,
    LIGHT,
    NARROW,
    WIDE,
    Visit,
    open_chat,
    type_until_shown,
    visit_fixture,  # noqa: F401
)
from tests.support.server_process import Served, fill, serving

pytestmark = [pytest.mark.slow, pytest.mark.database]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("live") / "data"
    fill(data, sample_data.records())
    with serving(data, "--verify-answers", "--workers", "2") as running:
        yield running
        assert "Traceback" not in running.errors


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
    expect(last_time).to_contain_text("Read")
    customer.page.evaluate("scrollTo(0, 0)")
    send(staff, "One more")
    expect(last_time).to_contain_text("Delivered")
    customer.page.locator("[data-new-messages]").click()
    expect(last_time).to_contain_text("Read")
    staff.check_accessibility([(LIGHT, WIDE), (DARK, NARROW)])


def test_chat_opens_at_its_end_if_the_browser_has_not_scrolled_there(visit: Callable[..., Visit]) -> None:
    staff = open_chat(visit, "agent")
    for number in range(12):
        send(staff, f"Line {number}")
    hide = "() => document.getElementById('end')?.removeAttribute('tabindex')"  # then `autofocus` has no effect
    staff.page.add_init_script(f"new MutationObserver({hide}).observe(document, {{childList: true, subtree: true}})")
    chat = staff.page.url
    staff.page.goto(chat.partition("/console/")[0] + "/healthz")
    staff.page.goto(chat)
    expect(staff.page.locator(".message .text").last).to_be_in_viewport()


def test_each_side_sees_that_the_other_is_typing(visit: Callable[..., Visit]) -> None:
    staff, customer = open_chat(visit, "agent"), open_chat(visit, "alice", DARK, NARROW)
    for writer, reader, name in ((customer, staff, "Alice"), (staff, customer, "Shop")):
        indicator = reader.page.locator("[data-typing-indicator]")
        expect(indicator).to_be_hidden()
        type_until_shown(writer, indicator)
        expect(indicator).to_have_text(f"{name} is typing …")
        expect(indicator).to_be_in_viewport()
        expect(writer.page.locator("[data-typing-indicator]")).to_be_hidden()
        reader.check_accessibility([(LIGHT, WIDE), (DARK, NARROW)])
        writer.page.locator("textarea[name=text]").press("Enter")
        expect(indicator).to_be_hidden()


def test_typing_indicator_ends_by_itself(visit: Callable[..., Visit]) -> None:
    staff, customer = open_chat(visit, "agent"), open_chat(visit, "alice")
    indicator = staff.page.locator("[data-typing-indicator]")
    type_until_shown(customer, indicator)
    expect(indicator).to_be_hidden()


def test_private_notes_send_no_typing_indicator(visit: Callable[..., Visit]) -> None:
    staff = open_chat(visit, "agent")
    requested: list[str] = []
    staff.page.on("request", lambda request: requested.append(request.post_data or ""))
    field = staff.page.locator("textarea[name=text]")
    staff.page.get_by_role("checkbox", name="Private note").check()
    field.press_sequentially("Careful")
    assert not [body for body in requested if "act=typing" in body]
    staff.page.get_by_role("checkbox", name="Private note").uncheck()
    field.press_sequentially("!")
    assert len([body for body in requested if "act=typing" in body]) == 1
