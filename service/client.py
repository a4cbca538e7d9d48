"""The reference command-line client: signs in through a browser, stores its tokens, calls the API.

It uses only the HTTP API, like any other client. The login follows RFC 8252 (OAuth 2.0 for native apps), or RFC 8628
(device authorization) where no browser of this computer can be used.
"""

import base64
import contextlib
import fcntl
import hashlib
import hmac
import http.client
import http.server
import json
import os
import queue
import re
import secrets
import socket
import sys
import threading
import time
import urllib.parse
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

CLIENT_ID = "service-cli"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
DEVICE_ERRORS = ("authorization_pending", "slow_down", "access_denied", "expired_token")  # RFC 8628, section 3.5
SLOWER = 5.0  # seconds to add to the interval after `slow_down`
TIMEOUT = 30  # seconds, for a response of the service

CALLBACK_PAGE = b"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>You can go back</title><link rel="icon" href="data:,">
<body style="font: 1rem/1.6 system-ui, sans-serif; color-scheme: light dark; margin: 2rem">
<h1>You can go back</h1><p>The command line has received the result. You can close this page.</p>
"""

JsonObject: TypeAlias = dict[str, Any]


class ClientError(Exception):
    """The command has failed. The text is printed for the user."""


class ErrorResponse(ClientError):
    """The service returned an error with an HTTP status; `code` is that of OAuth (RFC 6749, section 5.2), or empty."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status, self.code = status, code


class NotSignedIn(ClientError):
    """There are no tokens for the service, or they are no longer valid."""


class Stored(TypedDict):
    """The content of the file of a token store."""

    install_id: str
    services: dict[str, dict[str, str]]  # tokens by URL


class TokenStore:
    """The tokens for each service, in a file that only its owner can read."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or config_folder() / "client.json"

    def read(self) -> Stored:
        """Return the content of the file. Raises ClientError."""
        try:
            content = json.loads(self.path.read_text("utf-8"))
            return {"install_id": str(content["install_id"]), "services": dict(content["services"])}
        except FileNotFoundError:
            return {"install_id": secrets.token_hex(16), "services": {}}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ClientError(f"cannot read {self.path}: {error}") from None

    def write(self, content: Stored) -> None:
        """Replace the file atomically."""
        temporary = self.path.with_name(f"{self.path.name}.new")
        try:
            temporary.unlink(missing_ok=True)
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(json.dumps(content, indent=1).encode())
            temporary.replace(self.path)
        except OSError as error:
            raise ClientError(f"cannot write {self.path}: {error.strerror}") from None

    @contextlib.contextmanager
    def update(self) -> Iterator[Stored]:
        """Yield the content of the file, locked for other clients, and write it at the end of the block."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.path.parent, os.O_RDONLY)
        except OSError as error:
            raise ClientError(f"cannot write {self.path}: {error.strerror}") from None
        try:
            with contextlib.suppress(OSError):  # the file system has no locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            content = self.read()
            yield content
            self.write(content)
        finally:
            os.close(lock)


def config_folder() -> Path:
    """Return the configuration folder of this program on this platform."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "cx-service"
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "cx-service"


class Service:
    """A service that the user is signed in to."""

    def __init__(self, url: str, token_store: TokenStore) -> None:
        self.url, self.token_store = url.rstrip("/"), token_store

    def call(self, method: str, path: str, body: object = None) -> JsonObject:
        """Return the envelope of a response below `/api/v1`. Refreshes expired tokens. Raises ClientError."""
        tokens = self.tokens()
        try:
            return self._call(method, path, body, tokens["access_token"])
        except ErrorResponse as error:
            if error.status != 401:
                raise
        return self._call(method, path, body, self.refresh(tokens))

    def refresh(self, expired: dict[str, str]) -> str:
        """Return an access token in place of an expired one, unless another client has refreshed it already."""
        with self.token_store.update() as content:
            tokens = self.tokens()
            if tokens["access_token"] == expired["access_token"]:
                tokens = self.request_tokens({"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]})
                content["services"][self.url] = tokens
            return tokens["access_token"]

    def _call(self, method: str, path: str, body: object, token: str) -> JsonObject:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return send(method, f"{self.url}/api/v1{path}", content, headers)

    def tokens(self) -> dict[str, str]:
        """Return the stored tokens for this service. Raises NotSignedIn."""
        tokens = self.token_store.read()["services"].get(self.url)
        if not tokens:
            raise NotSignedIn(f"not signed in at {self.url}: run `cx-service client login --url {self.url}`")
        return dict(tokens)

    def store_tokens(self, tokens: dict[str, str]) -> None:
        """Store the tokens for this service, or delete those stored if `tokens` is empty."""
        with self.token_store.update() as content:
            content["services"].pop(self.url, None)
            if tokens:
                content["services"][self.url] = tokens

    def request_tokens(self, form: dict[str, str]) -> dict[str, str]:
        """Exchange a code or a refresh token for tokens (RFC 6749, sections 4.1.3 and 6)."""
        try:
            response = self._send_form(f"{self.url}/api/v1/auth/cli/token", form)
            return {name: response[name] for name in ("access_token", "refresh_token")}
        except ErrorResponse as error:
            if error.status not in (400, 401) or error.code in DEVICE_ERRORS:
                raise
            raise NotSignedIn(f"the login has ended: run `cx-service client login --url {self.url}`") from error

    def _send_form(self, url: str, form: dict[str, str]) -> JsonObject:
        content = urllib.parse.urlencode({**form, "client_id": CLIENT_ID}).encode()
        return send("POST", url, content, {"Content-Type": "application/x-www-form-urlencoded"})

    def find_endpoint(self, name: str) -> str:
        """Return a URL of the metadata, which must belong to the same service (RFC 8414, section 3.3)."""
        metadata = send("GET", f"{self.url}/.well-known/oauth-authorization-server")
        issuer, page = (str(metadata.get(member)) for member in ("issuer", name))
        if issuer != self.url:
            raise ClientError(f"the service at {self.url} has the public URL {issuer}: use that one if you trust it")
        return self._own(page)

    def _own(self, page: str) -> str:
        """Return a URL of the service. Raises ClientError for one of another site."""
        if not page.startswith(f"{self.url}/") or not re.fullmatch(r"[!-~]+", page):
            raise ClientError(f"the service at {self.url} has its sign-in page on another site: {page}")
        return page

    def log_in(self, scope: str, show: Callable[[str], None], *, timeout: float) -> None:
        """Sign in through a browser on this computer, and store the tokens. `show` receives the URL to open."""
        address = self.find_endpoint("authorization_endpoint")
        with self.token_store.update() as content:  # also checks that the file can be written
            install_id = content["install_id"]
        verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
        digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        with CallbackListener() as listener:
            query = {
                "client_id": CLIENT_ID,
                "response_type": "code",
                "code_challenge": digest,
                "code_challenge_method": "S256",
                "redirect_uri": listener.url,
                "state": state,
                "install_id": install_id,
                "install_name": socket.gethostname()[:64],
                "scope": scope,
            }
            page = f"{address}?{urllib.parse.urlencode(query)}"
            show(page)
            webbrowser.open(page)
            result = listener.wait(timeout, state)
            if not hmac.compare_digest(result.get("iss", "").encode(), self.url.encode()):
                raise ClientError("the authorization response is from another service; nothing was stored")
            if "code" not in result:
                raise ClientError(f"the sign-in was denied: {result.get('error', 'no code')}")
            form = {"grant_type": "authorization_code", "code": result["code"], "redirect_uri": listener.url}
            self.store_tokens(self.request_tokens({**form, "code_verifier": verifier}))

    def log_in_on_another_device(self, scope: str, show: Callable[[str, str], None], *, timeout: float) -> None:
        """Sign in through a browser on any device (RFC 8628), and store the tokens.

        `show` receives the URL to open, and the code to enter there.
        """
        endpoint = self.find_endpoint("device_authorization_endpoint")
        with self.token_store.update() as content:  # also checks that the file can be written
            form = {"install_id": content["install_id"], "install_name": socket.gethostname()[:64], "scope": scope}
        try:
            begun = self._send_form(endpoint, form)
            page, user_code, device_code = (
                str(begun[name]) for name in ("verification_uri", "user_code", "device_code")
            )
            interval, lifetime = max(1.0, float(begun["interval"])), float(begun["expires_in"])
        except (KeyError, TypeError, ValueError):
            raise ClientError("the service returned no device code") from None
        show(self._own(page), user_code)
        self.store_tokens(self._poll(device_code, interval, min(timeout, lifetime, 1e6)))

    def _poll(self, device_code: str, interval: float, seconds: float) -> dict[str, str]:
        """Return the tokens once the user has approved the request. Raises ClientError."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(min(interval, max(0.0, deadline - time.monotonic())))
            try:
                return self.request_tokens({"grant_type": DEVICE_GRANT, "device_code": device_code})
            except ErrorResponse as error:
                if error.code in ("access_denied", "expired_token"):
                    raise ClientError(f"the sign-in was denied: {error.code}") from None
                if error.code != "authorization_pending":  # slow_down, or a failure that may pass
                    interval += SLOWER
        raise ClientError(f"the sign-in was not approved within {seconds:.0f} seconds")

    def log_out(self) -> None:
        """Delete the tokens, and end the login session. Raises ClientError if the service did not end it."""
        try:
            self.call("POST", "/auth/logout")
        except NotSignedIn:
            pass
        except ClientError as error:
            raise ClientError(f"{error}; the tokens were deleted, but the login session is still active") from None
        finally:
            self.store_tokens({})


class CallbackListener:
    """Listens on a port of the loopback interface for the redirect of the browser (RFC 8252, section 7.3)."""

    def __enter__(self) -> "CallbackListener":
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with contextlib.suppress(OSError):
                self.server = _Server(family, host)
                url_host = f"[{host}]" if ":" in host else host
                self.url = f"http://{url_host}:{self.server.server_address[1]}/callback"
                threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
                return self
        raise ClientError("cannot listen on the loopback interface")

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def wait(self, seconds: float, state: str) -> dict[str, str]:
        """Return the query of the redirect with this state; other requests are ignored. Raises ClientError."""
        deadline = time.monotonic() + min(seconds, 1e6)
        with contextlib.suppress(queue.Empty):
            while True:
                result = self.server.results.get(timeout=max(0.0, deadline - time.monotonic()))
                if hmac.compare_digest(result.get("state", "").encode(), state.encode()):
                    return result
        raise ClientError(f"no response from the browser within {seconds:.0f} seconds")


class _Server(http.server.ThreadingHTTPServer):
    """A server with a thread per connection, so that idle connections of browsers do not block the others."""

    request_queue_size = 128

    def __init__(self, family: socket.AddressFamily, host: str) -> None:
        self.address_family = family
        self.results: queue.SimpleQueue[dict[str, str]] = queue.SimpleQueue()
        super().__init__((host, 0), _Handler)

    def handle_error(self, *_: object) -> None:
        """Ignore closed connections."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        is_result = path == "/callback" and query
        try:
            self.send_response(200 if is_result else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Referrer-Policy", "no-referrer")
            self.end_headers()
            self.wfile.write(CALLBACK_PAGE if is_result else b"")
        finally:
            if is_result:  # after the page was sent, since the program may end now
                self.server.results.put(dict(urllib.parse.parse_qsl(query)))

    def log_message(self, *_: object) -> None:
        """Log nothing, since the query contains a code."""


def send(method: str, url: str, content: bytes | None = None, headers: dict[str, str] | None = None) -> JsonObject:
    """Return the JSON of a response. Redirects are not followed.

    Raises ErrorResponse for an error status, ClientError if there is no valid response.
    """
    parts = urllib.parse.urlsplit(url)
    connections = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    if parts.scheme not in connections or not parts.hostname:
        raise ClientError(f"{url}: expected a URL that begins with http:// or https://")
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    try:
        with contextlib.closing(connections[parts.scheme](parts.hostname, parts.port, timeout=TIMEOUT)) as connection:
            connection.request(method, path, content, headers or {})
            response = connection.getresponse()
            raw = response.read()
        if response.status < 300:
            return dict(json.loads(raw))
    except (OSError, ValueError, TypeError, http.client.HTTPException) as error:
        raise ClientError(f"cannot reach {parts.scheme}://{parts.netloc}: {error}") from None
    code, message = _read_error(raw)
    raise ErrorResponse(response.status, message or f"the service returned status {response.status}", code)


def _read_error(raw: bytes) -> tuple[str, str]:
    """Return the code of OAuth and the message of an error response; empty if it has neither form of this service."""
    try:
        content = dict(json.loads(raw))
        if isinstance(content["error"], str):
            return content["error"], str(content.get("error_description", ""))
        return "", str(content["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "", ""
