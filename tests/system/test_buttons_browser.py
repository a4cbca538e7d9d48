"""Buttons in messages, and ratings, in a real browser."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from tests.support import sample_data
from tests.support.chromium import DARK, LIGHT, NARROW, WIDE, Visit, open_chat, visit_fixture  # noqa: F401
from tests.support.server_process import Served, fill, serving

pytestmark = [pytest.mark.slow, pytest.mark.database]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("buttons") / "data"
    fill(data, sample_data.records())
    with serving(data, "--verify-answers") as running:
        yield running
        assert "Traceback" not in running.errors


def test_customer_chooses_a_button_and_staff_see_it_at_once(visit: Callable[..., Visit]) -> None:
    staff, customer = open_chat(visit, "agent"), open_chat(visit, "alice", DARK, NARROW)
    page = staff.page
    page.locator("textarea[name=text]").fill("Again?")
    page.locator(".options > summary").click()
    page.get_by_label("Buttons, one a line").fill(
        "Yes\nNo, please send my money back to the account that I have paid from"
    )
    page.locator("textarea[name=text]").press("Enter")
    expect(page.locator(".offered li")).to_have_count(2)
    expect(page.locator("textarea[name=buttons]")).to_be_hidden()
    expect(page.locator("textarea[name=buttons]")).to_have_value("")
    customer.check_accessibility([(DARK, NARROW), (LIGHT, WIDE)])
    customer.page.get_by_role("button", name="Yes").click()
    for one in (customer, staff):
        expect(one.page.locator(".offered .chosen")).to_have_text("Yes (chosen)")
        expect(one.page.get_by_role("button", name="Yes")).to_have_count(0)
        assert one.page.locator(".message .text").last.inner_text() == "Yes"
    staff.check_accessibility([(LIGHT, WIDE), (DARK, NARROW)])


def test_customer_walks_through_the_menu_of_a_bot(visit: Callable[..., Visit]) -> None:
    staff, customer = open_chat(visit, "agent"), open_chat(visit, "alice", DARK, NARROW)
    page = staff.open(f"/console/apps/{sample_data.SHOP}/bots/{sample_data.HILDA}/answers")
    for question, answer, buttons in (
        ("Help", "Choose a subject.", "My parcel\nسياسة الإرجاع"),
        ("My parcel", "Which one?", "The red one"),
    ):
        page.locator("details.panel > summary").click()
        page.get_by_label("Question", exact=True).fill(question)
        page.get_by_label("Answer", exact=True).fill(answer)
        page.get_by_label("Buttons, one a line").fill(buttons)
        staff.check_accessibility([(LIGHT, WIDE), (DARK, NARROW)])
        with page.expect_navigation():
            page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("list", name="Buttons").first.get_by_role("listitem").first).to_have_text("My parcel")
    staff.check_accessibility([(LIGHT, WIDE), (DARK, NARROW)])
    page = customer.open(f"/console/chats/{sample_data.SESSION}")
    page.get_by_label("Your message").fill("Help")
    page.get_by_label("Your message").press("Enter")
    customer.page.get_by_role("button", name="My parcel").click()
    expect(page.locator(".offered .chosen")).to_have_text("My parcel (chosen)")
    expect(page.get_by_role("button", name="The red one")).to_be_visible()
    customer.check_accessibility([(DARK, NARROW), (LIGHT, WIDE)])
    expect(page.locator(".message .text")).to_have_text(
        ["Grüße 👋", "Hello", "Help", "Choose a subject.", "My parcel", "Which one?"]
    )


def test_message_that_is_refused_keeps_its_buttons(visit: Callable[..., Visit]) -> None:
    visitor = open_chat(visit, "agent")
    visitor.expected = ("401", "400")
    page = visitor.page
    page.locator("textarea[name=text]").fill("Which one?")
    page.locator(".options > summary").click()
    page.get_by_label("Buttons, one a line").fill("x" * 81)
    page.locator("textarea[name=text]").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("1 to 80 characters")
    expect(page.locator("textarea[name=text]")).to_have_value("Which one?")
    expect(page.locator("textarea[name=buttons]")).to_have_value("x" * 81)


def test_rating_is_shown_to_staff_and_leaves_the_composer(visit: Callable[..., Visit]) -> None:
    staff, customer = open_chat(visit, "agent"), open_chat(visit, "alice", DARK, NARROW)
    staff.page.get_by_text("Manage", exact=True).click()
    staff.page.get_by_role("button", name="End the chat").click()
    form = customer.page.locator("form.rating")
    form.get_by_label("4").check()
    form.get_by_label("Comment").fill("Quick")
    customer.check_accessibility([(DARK, NARROW), (LIGHT, WIDE)])
    form.get_by_role("button", name="Rate").click()
    expect(form.get_by_role("button", name="Change the rating")).to_be_visible()
    expect(customer.page.locator("form.composer")).to_have_count(1)
    expect(staff.page.locator("p.rating")).to_have_text("Rated 4 of 5: Quick")
