"""The reference command-line client: signs in through a browser, keeps its tokens, calls the API.

It knows the service over HTTP only, like every other client (RFC 8252; contract, section 10).
"""

import base64
import contextlib
import hashlib
import hmac
import http.client
import http.server
import json
import os
import secrets
import socket
import sys
import time
import urllib.parse
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAME = "service-cli"
PATIENCE = 30  # seconds for an answer of the service

GO_BACK = b"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>You can go back</title>
<body style="font: 1rem/1.6 system-ui, sans-serif; color-scheme: light dark; margin: 2rem">
<h1>You can go back</h1><p>The command line has your answer. You can close this page.</p>
"""


class Failed(Exception):
    """What was asked for cannot be done; the text is told to the person."""


class Refused(Failed):
    """The service answered with an error; `status` is that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Keyring:
    """The tokens of each service, in a file that only its owner can read."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or config_folder() / "client.json"

    def read(self) -> dict[str, Any]:
        """Everything that is kept: the identifier of this install, and tokens by address."""
        try:
            found: dict[str, Any] = json.loads(self.path.read_text("utf-8"))
        except FileNotFoundError:
            found = {}
        except (OSError, ValueError) as error:
            raise Failed(f"cannot read {self.path}: {error}") from None
        return {"install_id": secrets.token_hex(16), "services": {}} | found

    def write(self, kept: dict[str, Any]) -> None:
        """Put the file in place whole."""
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside.unlink(missing_ok=True)
            beside.touch(0o600)
            beside.write_text(json.dumps(kept, indent=1), "utf-8")
            beside.replace(self.path)
        except OSError as error:
            raise Failed(f"cannot write {self.path}: {error.strerror}") from None


def config_folder() -> Path:
    """The folder of this program's settings, where the platform wants it."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "cx-service"
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "cx-service"


class Service:
    """A service, as the person who is signed in there."""

    def __init__(self, url: str, keyring: Keyring) -> None:
        self.url, self.keyring = url.rstrip("/"), keyring

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to a request under `/api/v1`, its envelope and all; expired tokens are renewed on the way."""
        tokens = self.tokens()
        try:
            return self._call(method, path, body, tokens["access_token"])
        except Refused as refused:
            if refused.status != 401:
                raise
        self.keep(self.trade({"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}))
        return self._call(method, path, body, self.tokens()["access_token"])

    def _call(self, method: str, path: str, body: Any, token: str) -> Any:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return ask(method, f"{self.url}/api/v1{path}", content, headers)

    def tokens(self) -> dict[str, str]:
        """The tokens that are kept for this service. Raises Failed if nobody is signed in."""
        found = self.keyring.read()["services"].get(self.url)
        if not found:
            raise Failed(f"not signed in at {self.url}: run `cx-service client login --url {self.url}`")
        return dict(found)

    def keep(self, tokens: dict[str, Any]) -> None:
        """Keep tokens, or forget the ones that are kept where there are none."""
        kept = self.keyring.read()
        kept["services"].pop(self.url, None)
        if tokens:
            kept["services"][self.url] = {name: tokens[name] for name in ("access_token", "refresh_token")}
        self.keyring.write(kept)

    def trade(self, form: dict[str, str]) -> dict[str, Any]:
        """Tokens for a code or a refresh token (RFC 6749, sections 4.1.3 and 6)."""
        content = urllib.parse.urlencode({**form, "client_id": NAME}).encode()
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        try:
            return dict(ask("POST", f"{self.url}/api/v1/auth/cli/token", content, kind))
        except Refused as refused:
            raise Failed(f"the sign-in has ended: run `cx-service client login --url {self.url}`") from refused

    def log_in(self, scope: str, show: Callable[[str], None], *, browse: bool, patience: float) -> None:
        """Let a person sign in and approve in a browser, and keep the tokens. `show` is told what to do by hand."""
        metadata = ask("GET", f"{self.url}/.well-known/oauth-authorization-server")
        kept = self.keyring.read()
        self.keyring.write(kept)  # the identifier of this install, and a file that can be written, before all else
        verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
        digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        with Listener() as listener:
            question = {
                "client_id": NAME,
                "response_type": "code",
                "code_challenge": digest,
                "code_challenge_method": "S256",
                "redirect_uri": listener.url,
                "state": state,
                "install_id": kept["install_id"],
                "install_name": socket.gethostname()[:64],
                "scope": scope,
            }
            page = f"{metadata['authorization_endpoint']}?{urllib.parse.urlencode(question)}"
            if not (browse and webbrowser.open(page)):
                show(page)
            told = listener.wait(patience, state)
            if not hmac.compare_digest(told.get("iss", "").encode(), metadata["issuer"].encode()):
                raise Failed("the answer came from another service; nothing was kept")
            if "code" not in told:
                raise Failed(f"the sign-in was refused: {told.get('error', 'no code came')}")
            form = {"grant_type": "authorization_code", "code": told["code"], "redirect_uri": listener.url}
            self.keep(self.trade({**form, "code_verifier": verifier}))

    def log_out(self) -> None:
        """End the login there, if it has not ended already, and forget its tokens."""
        with contextlib.suppress(Failed):
            self.call("POST", "/auth/logout")
        self.keep({})


class Listener:
    """Waits on a port of the loopback interface for the browser to come back (RFC 8252, section 7.3)."""

    def __enter__(self) -> "Listener":
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with contextlib.suppress(OSError):
                self.server = _Server(family, host)
                shown = f"[{host}]" if ":" in host else host
                self.url = f"http://{shown}:{self.server.server_address[1]}/callback"
                return self
        raise Failed("cannot listen on the loopback interface")

    def __exit__(self, *_: Any) -> None:
        self.server.server_close()

    def wait(self, seconds: float, state: str) -> dict[str, str]:
        """What the browser brings back with our state; everything else that knocks is sent away. Raises Failed."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.server.timeout = min(1.0, max(0.01, end - time.monotonic()))
            self.server.handle_request()
            while self.server.told:
                told = self.server.told.pop()
                if hmac.compare_digest(told.get("state", "").encode(), state.encode()):
                    return told
        raise Failed(f"nobody answered in the browser within {seconds:.0f} seconds")


class _Server(http.server.HTTPServer):
    def __init__(self, family: socket.AddressFamily, host: str) -> None:
        self.address_family = family
        self.told: list[dict[str, str]] = []
        super().__init__((host, 0), _Handler)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    timeout = 2  # seconds that a connection may keep us from the next

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        is_answer = path == "/callback" and query
        if is_answer:
            self.server.told.append(dict(urllib.parse.parse_qsl(query)))
        self.send_response(200 if is_answer else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(GO_BACK if is_answer else b"")

    def log_message(self, *_: Any) -> None:
        """The query holds a code: it is not for logs."""


def ask(method: str, url: str, content: bytes | None = None, headers: dict[str, str] | None = None) -> Any:
    """The JSON of an answer; redirects are not followed. Raises Refused for an error, Failed where nobody answers."""
    parts = urllib.parse.urlsplit(url)
    kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    if parts.scheme not in kinds or not parts.hostname:
        raise Failed(f"{url}: expected an address that begins with http:// or https://")
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    try:
        with contextlib.closing(kinds[parts.scheme](parts.hostname, parts.port, timeout=PATIENCE)) as connection:
            connection.request(method, path, content, headers or {})
            answer = connection.getresponse()
            raw = answer.read()
        if answer.status < 300:
            return json.loads(raw)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Failed(f"cannot reach {parts.scheme}://{parts.netloc}: {error}") from None
    raise Refused(answer.status, _sentence(raw) or f"the service answered {answer.status}")


def _sentence(raw: bytes) -> str:
    """The message in an error of the service; empty if it is none of ours."""
    try:
        return str(json.loads(raw)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""
