"""Replies of an AI appear in the browser while they are written, and end with one message."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support import sample_data as h
from tests.support.chromium import DARK, LIGHT, NARROW, WIDE, Visit, sign_in, visit_fixture  # noqa: F401
from tests.support.fake_ai import DONE, FakeServer, fake_server, piece, streams
from tests.support.server_process import Served, fill, serving

pytestmark = [pytest.mark.slow, pytest.mark.database]

CHAT = f"/console/chats/{h.SESSION}"


@pytest.fixture
def ai() -> Iterator[FakeServer]:
    with fake_server() as server:
        yield server


@pytest.fixture
def server(tmp_path: Path, ai: FakeServer) -> Iterator[Served]:
    fill(tmp_path / "data", h.records())
    with serving(tmp_path / "data", CX_ASSISTANT_URL=ai.url) as running:
        yield running


def enter(visit: Callable[..., Visit], *options: object) -> Page:
    """Open a window and the chat of Alice."""
    visitor = visit(*options)
    visitor.expected = ("401",)  # the sign-in page
    page = visitor.open(CHAT)
    sign_in(page, "alice@example.com")
    expect(page.get_by_label("Your message")).to_be_visible()
    return page


def test_reply_appears_while_it_is_written(visit: Callable[..., Visit], ai: FakeServer) -> None:
    written = threading.Event()
    ai.behave = streams(piece("We are open <b>from"), piece(" 9 to 5", finish="stop") + DONE, wait=written)
    pages = [enter(visit, LIGHT, WIDE), enter(visit, DARK, NARROW)]
    pages[0].get_by_label("Your message").fill("When is the shop open?")
    pages[0].get_by_label("Your message").press("Enter")
    for page in pages:
        expect(page.locator(".message.draft .text")).to_have_text("We are open <b>from")
        expect(page.locator(".message.draft")).to_be_in_viewport()
    written.set()
    for page in pages:
        expect(page.locator(".message.bot:not(.draft)").last).to_contain_text("We are open <b>from 9 to 5")
        expect(page.locator(".message.draft")).to_have_count(0)
        expect(page.locator(".messages .message", has_text="We are open <b>from")).to_have_count(1)


def test_reply_that_was_cut_disappears(visit: Callable[..., Visit], ai: FakeServer) -> None:
    cut = threading.Event()
    ai.behave = streams(piece("We are"), b"data: garbage\n\n", wait=cut)
    page = enter(visit, LIGHT, NARROW)
    page.get_by_label("Your message").fill("When is the shop open?")
    page.get_by_label("Your message").press("Enter")
    expect(page.locator(".message.draft")).to_have_count(1)
    cut.set()
    expect(page.locator(".message.draft")).to_have_count(0)
