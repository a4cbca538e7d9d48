"""Translations in the browser: staff read a customer's message and reply, each in their own language."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support import sample_data as h
from tests.support.chromium import DARK, LIGHT, NARROW, WIDE, Visit, visit_fixture  # noqa: F401
from tests.support.fake_ai import FakeServer, fake_server, says, sends
from tests.support.passwords import PASSWORD
from tests.support.server_process import Served, fill, serving

pytestmark = [pytest.mark.slow, pytest.mark.database]

CHAT = f"/console/chats/{h.SESSION}"
FRENCH = "Où est mon colis ? Je l'attends depuis mardi."
QUESTION = {"message": {"chat_session_id": h.SESSION, "sender_id": h.ALICE, "text": FRENCH}}
ENGLISH = "Where is my parcel? I have been waiting for it since Tuesday."
REPLY, FRENCH_REPLY = "It is on its way.", "Il est en route."
WINDOWS = [(LIGHT, WIDE), (DARK, NARROW)]


@pytest.fixture
def ai() -> Iterator[FakeServer]:
    with fake_server() as server:
        server.behave = says(f"Language: fr\n{ENGLISH}")
        yield server


@pytest.fixture
def server(tmp_path: Path, ai: FakeServer) -> Iterator[Served]:
    fill(tmp_path / "data", [*h.records(locale="fr"), QUESTION])
    with serving(tmp_path / "data", CX_ASSISTANT_URL=ai.url) as running:
        yield running


def enter(visit: Callable[..., Visit], name: str, *options: object, **more: object) -> Visit:
    """Open a window and the chat of Alice."""
    visitor = visit(*options, **more)
    visitor.expected = ("401",)  # the sign-in page
    page = visitor.open(f"{CHAT}#end")
    page.get_by_label("E-mail address").fill(h.EMAILS[name])
    page.get_by_label("Password").fill(PASSWORD)
    with page.expect_navigation():
        page.get_by_label("Password").press("Enter")
    expect(page.get_by_label("Your message")).to_be_visible()
    return visitor


@pytest.mark.parametrize("has_scripts", [True, False], ids=["scripts", "no scripts"])
def test_staff_reads_a_message_in_their_own_language(
    visit: Callable[..., Visit], ai: FakeServer, has_scripts: bool
) -> None:
    visitor = enter(visit, "agent", DARK, NARROW, java_script_enabled=has_scripts)
    page = visitor.page
    message = page.locator(".messages .message", has_text=FRENCH)
    message.get_by_role("button", name="Translate").click()
    expect(message.locator(".text").first).to_have_text(ENGLISH)
    expect(message.locator(".text").first).to_have_attribute("lang", "en")
    label = message.get_by_text("Translated from French by the assistant")
    expect(label).to_be_visible()
    expect(message.get_by_role("button", name="Translate")).to_have_count(0)
    expect(message.get_by_text(FRENCH)).to_be_hidden()
    label.click()
    expect(message.get_by_text(FRENCH)).to_be_visible()
    assert len(ai.requests) == 1
    if has_scripts:
        visitor.check_accessibility(WINDOWS)
    page.reload()
    expect(page.get_by_text("Translated from French by the assistant")).to_be_visible()


def test_error_is_shown_and_the_message_can_be_translated_again(visit: Callable[..., Visit], ai: FakeServer) -> None:
    ai.behave = sends({}, 500)
    visitor = enter(visit, "agent")
    visitor.expected += ("503",)
    message = visitor.page.locator(".messages .message", has_text=FRENCH)
    message.get_by_role("button", name="Translate").click()
    expect(visitor.page.get_by_role("alert")).to_contain_text("The assistant has not replied; try again.")
    ai.behave = says(ENGLISH)
    message.get_by_role("button", name="Translate").click()
    expect(message.get_by_text("Translated by the assistant")).to_be_visible()


@pytest.mark.parametrize("has_scripts", [True, False], ids=["scripts", "no scripts"])
def test_customer_is_told_that_a_reply_is_translated(
    visit: Callable[..., Visit], ai: FakeServer, has_scripts: bool
) -> None:
    ai.behave = says(f"Language: en\n{FRENCH_REPLY}")
    visitor = enter(visit, "agent", LIGHT, WIDE, java_script_enabled=has_scripts)
    page = visitor.page
    page.get_by_label("Send in French").check()
    page.get_by_label("Your message").fill(REPLY)
    page.get_by_role("button", name="Send", exact=True).click()
    own = page.locator(".messages .own:not(.unsent)", has_text=REPLY)
    expect(own.locator(".text").first).to_have_text(REPLY)
    own.get_by_text("Sent in French, translated automatically").click()
    expect(own.get_by_text(FRENCH_REPLY)).to_be_visible()
    expect(page.get_by_label("Send in French")).to_be_checked()

    customer = enter(visit, "alice", DARK, NARROW)
    received = customer.page.locator(".messages .message", has_text=FRENCH_REPLY)
    expect(received.locator(".text").first).to_have_text(FRENCH_REPLY)
    label = received.get_by_text("Translated automatically")
    expect(label).to_be_visible()
    expect(received.get_by_text(REPLY)).to_be_hidden()
    label.click()
    expect(received.get_by_text(REPLY)).to_be_visible()
    expect(customer.page.get_by_text("Translate", exact=True)).to_have_count(0)
    customer.check_accessibility(WINDOWS)
    if has_scripts:
        visitor.check_accessibility(WINDOWS)


def test_reply_that_is_not_translated_returns_to_the_composer(visit: Callable[..., Visit], ai: FakeServer) -> None:
    ai.behave = sends({}, 500)
    visitor = enter(visit, "agent")
    visitor.expected += ("503",)
    page = visitor.page
    page.get_by_label("Send in French").check()
    page.get_by_label("Your message").fill(REPLY)
    page.get_by_label("Your message").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("The assistant has not replied; try again.")
    expect(page.get_by_label("Your message")).to_have_value(REPLY)
    expect(page.locator(".messages .message", has_text=REPLY)).to_have_count(0)
    expect(page.get_by_label("Send in French")).to_be_checked()
    page.reload()
    expect(page.get_by_label("Your message")).to_have_value(REPLY)
    expect(page.get_by_label("Send in French")).to_be_checked()
    ai.behave = says(FRENCH_REPLY)
    page.get_by_label("Your message").press("Enter")
    own = page.locator(".messages .own:not(.unsent)", has_text=REPLY)
    expect(own.get_by_text("Sent in French, translated automatically")).to_be_visible()
    expect(page.locator(".messages .message", has_text=REPLY)).to_have_count(1)


def test_private_note_has_no_choice(visit: Callable[..., Visit], ai: FakeServer) -> None:
    page = enter(visit, "agent", LIGHT, NARROW).page
    page.get_by_label("Send in French").check()
    page.get_by_role("checkbox", name="Private note").check()
    expect(page.get_by_label("Send in French")).to_be_hidden()
    page.get_by_label("Your private note").fill("Call her")
    page.get_by_role("button", name="Add private note").click()
    expect(page.locator(".messages .private:not(.unsent)", has_text="Call her")).to_be_visible()
    assert ai.requests == []
