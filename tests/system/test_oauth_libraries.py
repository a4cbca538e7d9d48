"""Two independent OAuth libraries sign in at the executable."""

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

from tests.support.executable import PYTHON, clean_environment
from tests.support.executable import shipped_fixture as shipped_fixture
from tests.support.passwords import PASSWORD
from tests.support.server_process import SESSION, Served, chat, database_variables, fill
from tests.support.web_client import Browser, remote

CLIENT, CALLBACK = "service-cli", "http://127.0.0.1:8976/callback"
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"  # of RFC 7636, appendix B

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def served(shipped, tmp_path_factory):
    """The executable, with Alice and her chat."""
    folder = tmp_path_factory.mktemp("oauth")
    fill(folder / "data", chat())
    line = [PYTHON, shipped, "serve", "--port", "0", "--data", folder / "data"]
    output, errors = folder / "output", folder / "errors"
    variables = clean_environment(SHIV_ROOT=folder / "shiv", **database_variables(folder / "data"))
    with (
        output.open("wb") as out,
        errors.open("wb") as err,
        subprocess.Popen(line, cwd=folder, env=variables, stdout=out, stderr=err) as process,
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
    """The authorization server metadata (RFC 8414)."""
    found: dict[str, Any] = requests.get(f"{served.url}/.well-known/oauth-authorization-server", timeout=60).json()
    assert found["issuer"] == served.url
    return found


class Library(NamedTuple):
    """The steps of a login with an OAuth library."""

    start: Callable[..., Any]  # returns a session and the URL of the consent page
    exchange: Callable[..., Any]  # exchanges the callback URL for tokens
    expire: Callable[..., None]  # marks the access token of the session as expired
    errors: type[Exception]  # the exceptions; their `error` is the OAuth error code


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


def authlib_exchange(session, metadata, callback_url):
    parameters = dict(parse_qsl(urlsplit(callback_url).query))
    if "error" in parameters:  # left to framework integrations in Authlib, which do the same
        raise OAuthError(parameters["error"])
    return session.fetch_token(authorization_response=callback_url, code_verifier=VERIFIER)


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


def requests_exchange(session, metadata, callback_url):
    return session.fetch_token(metadata["token_endpoint"], authorization_response=callback_url, include_client_id=True)


def requests_expire(session):
    session.token = {**session.token, "expires_in": -1, "expires_at": 1}


LIBRARIES = {
    "Authlib": Library(authlib_start, authlib_exchange, authlib_expire, AuthlibBaseError),
    "requests-oauthlib": Library(requests_start, requests_exchange, requests_expire, oauthlib_errors.OAuth2Error),
}


@pytest.fixture(params=LIBRARIES)
def library(request):
    return LIBRARIES[request.param]


@pytest.fixture
def log_in(library, served, metadata, request):
    """Sign in and answer the consent page. Returns the session and the URL of the redirect."""

    def go(scope="profile:read", answer="approve"):
        session, page = library.start(metadata, scope, install_id=request.node.name[:128])
        browser = Browser(remote(served), served.url)
        assert page.startswith(f"{served.url}/")
        assert browser.open(page.removeprefix(served.url)).status == 401
        assert browser.send(email="alice@example.com", password=PASSWORD).status == 200
        assert browser.send(answer=answer).status == 200
        return session, browser.redirect_url

    return go


@pytest.fixture
def signed_in(library, metadata, log_in):
    """A session of the library with tokens that can read Alice's profile."""
    session, callback_url = log_in()
    library.exchange(session, metadata, callback_url)
    return session


def test_access_is_limited_to_the_scopes(signed_in, served):
    assert signed_in.token["scope"] in ("profile:read", ["profile:read"])
    assert signed_in.token["token_type"] == "Bearer"
    response = signed_in.get(f"{served.url}/api/v1/users/me")
    assert (response.status_code, response.json()["data"]["email"]) == (200, "alice@example.com")
    response = signed_in.get(f"{served.url}/api/v1/chats/{SESSION}/messages")
    assert (response.status_code, response.json()["error"]["code"]) == (403, "insufficient_scope")
    assert 'scope="chats:read"' in response.headers["WWW-Authenticate"]


def test_expired_tokens_are_refreshed(signed_in, library, served):
    for _ in range(2):  # the second time with the new refresh token
        before = dict(signed_in.token)
        library.expire(signed_in)
        assert signed_in.get(f"{served.url}/api/v1/users/me").status_code == 200
        assert signed_in.token["access_token"] != before["access_token"]
        assert signed_in.token["refresh_token"] != before["refresh_token"]
    assert signed_in.get(f"{served.url}/api/v1/notifications").status_code == 403


def test_unknown_scopes_are_not_granted(library, metadata, log_in, monkeypatch):
    monkeypatch.setenv("OAUTHLIB_RELAX_TOKEN_SCOPE", "1")  # otherwise oauthlib raises an error
    session, callback_url = log_in("profile:read root")
    library.exchange(session, metadata, callback_url)
    assert session.token["scope"] in ("profile:read", ["profile:read"])


def test_denial_raises_an_error(library, metadata, log_in):
    session, callback_url = log_in(answer="deny")
    with pytest.raises(library.errors) as raised:
        library.exchange(session, metadata, callback_url)
    assert raised.value.error == "access_denied"


def test_used_code_raises_an_error(library, metadata, log_in, served):
    session, callback_url = log_in()
    library.exchange(session, metadata, callback_url)
    first = session.token["access_token"]
    with pytest.raises(library.errors) as raised:
        library.exchange(session, metadata, callback_url)
    assert raised.value.error == "invalid_grant"
    assert served.call("GET", "/api/v1/users/me", token=first).error == (401, "invalid_token")


def test_other_state_raises_an_error(library, metadata, log_in):
    session, callback_url = log_in()
    with pytest.raises(library.errors) as raised:
        library.exchange(session, metadata, callback_url.replace("&state=", "&state=x"))
    assert raised.value.error == "mismatching_state"


def test_refresh_after_logout_raises_an_error(signed_in, library, served):
    assert signed_in.post(f"{served.url}/api/v1/auth/logout").status_code == 200
    library.expire(signed_in)
    with pytest.raises(library.errors) as raised:
        signed_in.get(f"{served.url}/api/v1/users/me")
    assert raised.value.error == "invalid_grant"
