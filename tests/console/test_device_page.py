"""The page for the code of a client without a browser, in Chromium."""

from collections.abc import Callable, Iterator
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from tests.support.chromium import DARK, LIGHT, NARROW, WIDE, Visit, sign_in
from tests.support.chromium import visit_fixture as visit_fixture
from tests.support.server_process import Served, chat, fill, serving
from tests.support.web_client import FORM

pytestmark = [pytest.mark.slow, pytest.mark.database]

WINDOWS = [(colours, width) for colours in (LIGHT, DARK) for width in (WIDE, NARROW)]
REFUSED = "the server responded with a status of 40"  # Chromium's message for the sign-in page and for a wrong code


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("device") / "data"
    fill(data, chat(1))
    with serving(data, "--workers", "2") as running:
        yield running


@pytest.fixture
def code(server: Served) -> str:
    """The user code of a new request."""
    form = {"client_id": "service-cli", "install_id": "laptop-1", "install_name": "Anna's laptop"}
    headers = {"Content-Type": FORM}
    raw = urlencode(form).encode()
    reply = server.call("POST", "/api/v1/auth/cli/device-authorization", raw, headers=headers)
    return str(reply.json["user_code"])


def open_page(visit: Callable[..., Visit], path: str = "/device", **options: object) -> Visit:
    """Open the page, signed in as Alice."""
    visitor = visit(**options)
    visitor.expected = (REFUSED,)
    page = visitor.open(path)
    sign_in(page, "alice@example.com")
    expect(page.get_by_label("Code that the client shows")).to_be_visible()
    return visitor


def test_every_step_is_accessible_in_four_windows(visit: Callable[..., Visit], code: str) -> None:
    visitor = open_page(visit)
    page = visitor.page
    visitor.check_accessibility(WINDOWS)
    page.get_by_label("Code that the client shows").fill("BCDF-GHJK")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("alert")).to_contain_text("This code is wrong")
    visitor.check_accessibility(WINDOWS)
    page.get_by_label("Code that the client shows").fill(code.lower())
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text("Anna's laptop")).to_be_visible()
    visitor.check_accessibility(WINDOWS)
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Access granted")


def test_works_with_the_keyboard_and_without_scripts(visit: Callable[..., Visit], code: str) -> None:
    visitor = open_page(visit, f"/device?user_code={code}", java_script_enabled=False)
    page = visitor.page
    expect(page.get_by_label("Code that the client shows")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Anna's laptop")).to_be_visible()
    page.get_by_role("button", name="Deny").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Access denied")
