"""Two independent OAuth libraries sign in at the executable, as clients that we did not write would."""

import re
import subprocess
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import pytest
import requests
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Session as AuthlibSession
from oauthlib.oauth2.rfc6749 import errors as oauthlib_errors
from requests_oauthlib import OAuth2Session as RequestsSession

from tests.browsing import Browser, remote
from tests.conftest import PASSWORD
from tests.executable import PYTHON, clean_environment
from tests.executable import shipped_fixture as shipped_fixture
from tests.serving import SESSION, Served, chat, fill, where

CLIENT, CALLBACK = "service-cli", "http://127.0.0.1:8976/callback"
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"  # of RFC 7636, appendix B

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def served(shipped, tmp_path_factory):
    """The executable, serving Alice and her chat."""
    folder = tmp_path_factory.mktemp("oauth")
    fill(folder / "data", chat())
    line = [PYTHON, shipped, "serve", "--port", "0", "--data", folder / "data"]
    output, errors = folder / "output", folder / "errors"
    told = clean_environment(SHIV_ROOT=folder / "shiv", **where(folder / "data"))
    with (
        output.open("wb") as out,
        errors.open("wb") as err,
        subprocess.Popen(line, cwd=folder, env=told, stdout=out, stderr=err) as process,
    ):
        try:
            running = Served(process, output, errors)
            yield running
        finally:
            process.terminate()
    assert process.returncode == 0
    assert not re.search("Traceback|cx[acr]_|code=|ticket", running.errors)


@pytest.fixture(autouse=True)
def _plain_http(monkeypatch):
    for library in ("AUTHLIB", "OAUTHLIB"):
        monkeypatch.setenv(f"{library}_INSECURE_TRANSPORT", "1")


@pytest.fixture(scope="module")
def metadata(served):
    """What the service says of itself (RFC 8414)."""
    found: dict[str, Any] = requests.get(f"{served.url}/.well-known/oauth-authorization-server", timeout=60).json()
    assert found["issuer"] == served.url
    return found


class Library(NamedTuple):
    """How an OAuth library is told to do each step."""

    start: Callable[..., Any]  # a session for these scopes, and the address of the consent page
    trade: Callable[..., Any]  # what came to the callback, for tokens
    expire: Callable[..., None]  # let the session believe that its access token has expired
    errors: type[Exception]  # what it raises; `error` is what was named


def authlib_start(metadata, scope, **more):
    session = AuthlibSession(
        CLIENT,
        scope=scope,
        redirect_uri=CALLBACK,
        code_challenge_method="S256",
        token_endpoint=metadata["token_endpoint"],
        token_endpoint_auth_method=metadata["token_endpoint_auth_methods_supported"][0],
    )
    page, session.state = session.create_authorization_url(
        metadata["authorization_endpoint"], code_verifier=VERIFIER, **more
    )
    return session, page


def authlib_trade(session, metadata, came):
    told = dict(parse_qsl(urlsplit(came).query))
    if "error" in told:  # Authlib leaves this to its integrations into frameworks, which do the same
        raise OAuthError(told["error"])
    return session.fetch_token(authorization_response=came, code_verifier=VERIFIER)


def authlib_expire(session):
    session.token["expires_at"] = 1


def requests_start(metadata, scope, **more):
    session = RequestsSession(
        CLIENT,
        scope=scope,
        redirect_uri=CALLBACK,
        pkce="S256",
        auto_refresh_url=metadata["token_endpoint"],
        auto_refresh_kwargs={"client_id": CLIENT},
        token_updater=lambda token: None,
    )
    page, _ = session.authorization_url(metadata["authorization_endpoint"], **more)
    return session, page


def requests_trade(session, metadata, came):
    return session.fetch_token(metadata["token_endpoint"], authorization_response=came, include_client_id=True)


def requests_expire(session):
    session.token = {**session.token, "expires_in": -1, "expires_at": 1}


LIBRARIES = {
    "Authlib": Library(authlib_start, authlib_trade, authlib_expire, AuthlibBaseError),
    "requests-oauthlib": Library(requests_start, requests_trade, requests_expire, oauthlib_errors.OAuth2Error),
}


@pytest.fixture(params=LIBRARIES)
def library(request):
    return LIBRARIES[request.param]


@pytest.fixture
def approach(library, served, metadata, request):
    """Goes through sign-in and consent: the client's session, and the address to which the browser is sent."""

    def go(scope="profile:read", answer="approve"):
        session, page = library.start(metadata, scope, install_id=request.node.name[:128])
        browser = Browser(remote(served), served.url)
        assert page.startswith(f"{served.url}/")
        assert browser.open(page.removeprefix(served.url)).status == 401
        assert browser.send(email="alice@example.com", password=PASSWORD).status == 200
        assert browser.send(answer=answer).status == 200
        return session, browser.onward

    return go


@pytest.fixture
def signed_in(library, metadata, approach):
    """A session of the library with tokens for Alice's profile, to be read."""
    session, came = approach()
    library.trade(session, metadata, came)
    return session


def test_signs_in_and_acts_within_its_scopes(signed_in, served):
    assert signed_in.token["scope"] in ("profile:read", ["profile:read"])
    assert signed_in.token["token_type"] == "Bearer"
    answer = signed_in.get(f"{served.url}/api/v1/users/me")
    assert (answer.status_code, answer.json()["data"]["email"]) == (200, "alice@example.com")
    answer = signed_in.get(f"{served.url}/api/v1/chats/{SESSION}/messages")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "insufficient_scope")
    assert 'scope="chats:read"' in answer.headers["WWW-Authenticate"]


def test_refreshes_when_its_token_has_expired(signed_in, library, served):
    for _ in range(2):  # the second with the refresh token that the first gave
        before = dict(signed_in.token)
        library.expire(signed_in)
        assert signed_in.get(f"{served.url}/api/v1/users/me").status_code == 200
        assert signed_in.token["access_token"] != before["access_token"]
        assert signed_in.token["refresh_token"] != before["refresh_token"]
    assert signed_in.get(f"{served.url}/api/v1/notifications").status_code == 403


def test_learns_that_scopes_were_left_out(library, metadata, approach, monkeypatch):
    monkeypatch.setenv("OAUTHLIB_RELAX_TOKEN_SCOPE", "1")  # else it is an error there
    session, came = approach("profile:read root")
    library.trade(session, metadata, came)
    assert session.token["scope"] in ("profile:read", ["profile:read"])


def test_raises_its_own_error_when_the_person_says_no(library, metadata, approach):
    session, came = approach(answer="deny")
    with pytest.raises(library.errors) as raised:
        library.trade(session, metadata, came)
    assert raised.value.error == "access_denied"


def test_raises_its_own_error_for_a_code_that_was_used(library, metadata, approach, served):
    session, came = approach()
    library.trade(session, metadata, came)
    first = session.token["access_token"]
    with pytest.raises(library.errors) as raised:
        library.trade(session, metadata, came)
    assert raised.value.error == "invalid_grant"
    assert served.call("GET", "/api/v1/users/me", token=first).error == (401, "invalid_token")


def test_raises_its_own_error_for_a_state_that_is_not_its_own(library, metadata, approach):
    session, came = approach()
    with pytest.raises(library.errors) as raised:
        library.trade(session, metadata, came.replace("&state=", "&state=x"))
    assert raised.value.error == "mismatching_state"


def test_raises_its_own_error_when_the_login_has_ended(signed_in, library, served):
    assert signed_in.post(f"{served.url}/api/v1/auth/logout").status_code == 200
    library.expire(signed_in)
    with pytest.raises(library.errors) as raised:
        signed_in.get(f"{served.url}/api/v1/users/me")
    assert raised.value.error == "invalid_grant"
