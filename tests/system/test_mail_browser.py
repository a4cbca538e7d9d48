"""The pages about e-mail in a browser: forgotten password, verification, unsubscribing, invitation."""

import re
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.support.chromium import DARK, LIGHT, NARROW, WIDE, Visit, sign_in, visit_fixture  # noqa: F401
from tests.support.cluster import until
from tests.support.mail_server import MailServer, mail_server
from tests.support.passwords import PASSWORD_HASH
from tests.support.server_process import Served, chat, fill, serving

pytestmark = [pytest.mark.slow, pytest.mark.database]

WINDOWS = [(colours, width) for colours in (LIGHT, DARK) for width in (WIDE, NARROW)]
NEW = "a new password"


@pytest.fixture(scope="module")
def mails() -> Iterator[MailServer]:
    with mail_server() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, mails: MailServer) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("mail") / "data"
    admin = {"email": "ada@example.com", "role": "admin", "display_name": "Ada", "password_hash": PASSWORD_HASH}
    fill(data, [*chat(), {"user": admin}])
    # Cookies are not marked as secure, because the browser connects without TLS.
    variables = {"CX_SMTP": f"smtp://{mails.address}", "CX_MAIL_FROM": "shop@chat.example"}
    with serving(data, "--verify-answers", "--public-url", "http://chat.example", **variables) as running:
        yield running
        assert "Traceback" not in running.errors


@pytest.fixture
def follow(mails: MailServer) -> Callable[..., str]:
    """Return a function that waits for a mail to an address, and return the path of its link to a page."""

    def find(address: str, path: str) -> str:
        until(lambda: [one for one in mails.mails if one.recipient == address and path in one.part("plain")])
        received = next(one for one in reversed(mails.mails) if one.recipient == address)
        (url,) = re.findall(rf"http://chat\.example{path}\S*", received.part("plain"))
        parts = urlsplit(url)
        return f"{parts.path}?{parts.query}"

    return find


def test_customer_replaces_a_forgotten_password(visit: Callable[..., Visit], follow: Callable[..., str]) -> None:
    visitor = visit()
    page = visitor.open("/sign-in")
    visitor.check_accessibility(WINDOWS)
    page.get_by_role("link", name="Forgot your password?").click()
    visitor.check_accessibility(WINDOWS)
    page.get_by_label("E-mail address").fill("alice@example.com")
    page.get_by_role("button", name="Send e-mail").click()
    expect(page.get_by_role("heading", name="Look into your e-mails")).to_be_visible()
    visitor.check_accessibility(WINDOWS)
    visitor.open(follow("alice@example.com", "/reset-password"))
    visitor.check_accessibility(WINDOWS)
    page.get_by_label("Password, at least 8 characters").fill(NEW)
    page.get_by_role("button", name="Set password").click()
    expect(page.get_by_role("heading", name="Your password is set")).to_be_visible()
    visitor.check_accessibility(WINDOWS)
    page.get_by_role("link", name="Sign in").click()
    sign_in(page, "alice@example.com", NEW)
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    visitor.open("/console/account")
    expect(page.get_by_text("Verified", exact=True)).to_be_visible()


def test_admin_verifies_the_address_and_invites_a_user(visit: Callable[..., Visit], follow: Callable[..., str]) -> None:
    visitor = visit()
    page = visitor.open("/sign-in")
    sign_in(page, "ada@example.com")
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    visitor.open("/console/account")
    visitor.check_accessibility(WINDOWS)
    page.get_by_role("button", name="Verify e-mail address").click()
    expect(page.get_by_text("An e-mail with a link is on its way to you.")).to_be_visible()
    visitor.open(follow("ada@example.com", "/verify"))
    visitor.check_accessibility(WINDOWS)
    page.get_by_role("button", name="Verify e-mail address").click()
    expect(page.get_by_role("heading", name="Your e-mail address is verified")).to_be_visible()
    visitor.open("/console/users")
    page.get_by_text("Add a user").click()
    visitor.check_accessibility(WINDOWS)
    page.get_by_role("group").get_by_label("E-mail address").fill("grace@example.com")
    page.get_by_role("button", name="Invite by e-mail").click()
    expect(page.get_by_text("User invited by e-mail.")).to_be_visible()
    assert follow("grace@example.com", "/reset-password")
