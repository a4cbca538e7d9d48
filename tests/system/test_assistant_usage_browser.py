"""The page of the use of the AI, and the way to it, in a real browser."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support import sample_data
from tests.support.chromium import DARK, LIGHT, NARROW, WIDE, Visit, open_chat, visit_fixture  # noqa: F401
from tests.support.fake_ai import FakeServer, fake_server, says
from tests.support.server_process import Served, fill, serving

pytestmark = [pytest.mark.slow, pytest.mark.database]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with fake_server() as ai:
        ai.behave = says("We are open from 9 to 5.")
        fill(tmp_path / "data", sample_data.records())
        with serving(tmp_path / "data", **variables(ai)) as running:
            yield running


def variables(ai: FakeServer) -> dict[str, str]:
    return {"CX_ASSISTANT_URL": ai.url, "CX_ASSISTANT_TOKENS": "50"}


def test_staff_see_what_the_ai_used_in_this_month(visit: Callable[..., Visit]) -> None:
    staff, customer = open_chat(visit, "agent"), open_chat(visit, "alice", DARK, NARROW)
    page = customer.open(f"/console/chats/{sample_data.SESSION}")
    page.get_by_label("Your message").fill("When is the shop open?")
    page.get_by_label("Your message").press("Enter")
    expect(page.locator(".message.bot").last).to_contain_text("from 9 to 5")
    page = staff.open(f"/console/catalogue?app_id={sample_data.SHOP}")
    page.get_by_role("link", name="Use of the AI").click()
    expect(page.get_by_role("heading", name="Use of the AI")).to_be_visible()
    cells = page.get_by_role("row").nth(1).get_by_role("cell")
    expect(cells).to_have_count(8)
    expect(cells.nth(1)).to_have_text("1")
    expect(page.get_by_role("meter", name="Tokens left in this month")).to_have_attribute("max", "50")
    expect(page.get_by_text("No tokens are left in this month")).to_be_visible()
    staff.check_accessibility([(LIGHT, WIDE), (DARK, NARROW), (DARK, WIDE), (LIGHT, NARROW)])
