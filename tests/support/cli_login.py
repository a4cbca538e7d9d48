"""The login of a command-line client, step by step."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from tests.support.client import Client, Reply
from tests.support.consent import VALID_PARAMETERS, path
from tests.support.web_client import FORM, Browser

VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"  # of RFC 7636, appendix B

TOKEN = "/auth/cli/token"


def consent_address(**changes: str | None) -> str:
    """Return the address of the consent page in a browser."""
    return f"/api/v1{path(**changes)}"


@pytest.fixture(name="browser")
def browser_fixture(alice: Client, application: Any) -> Browser:
    """A browser in which Alice is signed in."""
    return Browser(application).signed_in(alice)


@pytest.fixture(name="approve")
def approve_fixture(browser: Browser) -> Callable[..., dict[str, str]]:
    """Approve in Alice's browser, and return the parameters of the client's callback."""

    def run(**changes: str | None) -> dict[str, str]:
        assert browser.open(consent_address(**changes)).status == 200
        assert browser.send(answer="approve").status == 200
        return callback_parameters(browser)

    return run


@pytest.fixture(name="request_tokens")
def request_tokens_fixture(anyone: Client) -> Callable[..., Reply]:
    """Request tokens. A parameter that is None is omitted."""

    def post(**changes: str | None) -> Reply:
        parameters = {
            "grant_type": "authorization_code",
            "client_id": "service-cli",
            "code_verifier": VERIFIER,
            "redirect_uri": VALID_PARAMETERS["redirect_uri"],
        } | changes
        raw = urlencode({name: value for name, value in parameters.items() if value is not None}).encode()
        return anyone.post(TOKEN, raw=raw, content_type=FORM)

    return post


def callback_parameters(browser: Browser) -> dict[str, str]:
    """Return the parameters of the redirect to the client."""
    return dict(parse_qsl(urlsplit(browser.redirect_url).query, keep_blank_values=True))
