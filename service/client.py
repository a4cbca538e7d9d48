"""The reference command-line client: signs in through a browser, keeps its tokens, calls the API.

It knows the service over HTTP only, like every other client (RFC 8252; contract, section 10).
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
from typing import Any

NAME = "service-cli"
PATIENCE = 30  # seconds for an answer of the service

GO_BACK = b"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>You can go back</title><link rel="icon" href="data:,">
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


class Ended(Failed):
    """Nobody is signed in there, or no longer."""


class Keyring:
    """The tokens of each service, in a file that only its owner can read."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or config_folder() / "client.json"

    def read(self) -> dict[str, Any]:
        """Everything that is kept: the identifier of this install, and tokens by address."""
        try:
            found = json.loads(self.path.read_text("utf-8"))
            return {"install_id": str(found["install_id"]), "services": dict(found["services"])}
        except FileNotFoundError:
            return {"install_id": secrets.token_hex(16), "services": {}}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Failed(f"cannot read {self.path}: {error}") from None

    def write(self, kept: dict[str, Any]) -> None:
        """Put the file in place whole."""
        beside = self.path.with_name(f"{self.path.name}.new")
        try:
            beside.unlink(missing_ok=True)
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(json.dumps(kept, indent=1).encode())
            beside.replace(self.path)
        except OSError as error:
            raise Failed(f"cannot write {self.path}: {error.strerror}") from None

    @contextlib.contextmanager
    def changing(self) -> Iterator[dict[str, Any]]:
        """Everything that is kept, to be changed; other clients of the same person wait meanwhile."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.path.parent, os.O_RDONLY)
        except OSError as error:
            raise Failed(f"cannot write {self.path}: {error.strerror}") from None
        try:
            with contextlib.suppress(OSError):  # on a file system that cannot
                fcntl.flock(lock, fcntl.LOCK_EX)
            kept = self.read()
            yield kept
            self.write(kept)
        finally:
            os.close(lock)


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
        return self._call(method, path, body, self.renew(tokens))

    def renew(self, expired: dict[str, str]) -> str:
        """An access token instead of an expired one, which another client may have renewed already."""
        with self.keyring.changing() as kept:
            tokens = self.tokens()
            if tokens["access_token"] == expired["access_token"]:
                tokens = self.trade({"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]})
                kept["services"][self.url] = tokens
            return tokens["access_token"]

    def _call(self, method: str, path: str, body: Any, token: str) -> Any:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return ask(method, f"{self.url}/api/v1{path}", content, headers)

    def tokens(self) -> dict[str, str]:
        """The tokens that are kept for this service. Raises Failed if nobody is signed in."""
        found = self.keyring.read()["services"].get(self.url)
        if not found:
            raise Ended(f"not signed in at {self.url}: run `cx-service client login --url {self.url}`")
        return dict(found)

    def keep(self, tokens: dict[str, str]) -> None:
        """Keep tokens, or forget the ones that are kept where there are none."""
        with self.keyring.changing() as kept:
            kept["services"].pop(self.url, None)
            if tokens:
                kept["services"][self.url] = tokens

    def trade(self, form: dict[str, str]) -> dict[str, str]:
        """Tokens for a code or a refresh token (RFC 6749, sections 4.1.3 and 6)."""
        content = urllib.parse.urlencode({**form, "client_id": NAME}).encode()
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        try:
            told = ask("POST", f"{self.url}/api/v1/auth/cli/token", content, kind)
            return {name: told[name] for name in ("access_token", "refresh_token")}
        except Refused as refused:
            if refused.status not in (400, 401):
                raise
            raise Ended(f"the sign-in has ended: run `cx-service client login --url {self.url}`") from refused

    def find_page(self) -> str:
        """The address of the consent page, which must be at this very service (RFC 8414, section 3.3)."""
        told = ask("GET", f"{self.url}/.well-known/oauth-authorization-server")
        issuer, page = (str(told.get(name)) for name in ("issuer", "authorization_endpoint"))
        if issuer != self.url:
            raise Failed(f"the service at {self.url} says that its address is {issuer}: use that one if you trust it")
        if not page.startswith(f"{self.url}/") or not re.fullmatch(r"[!-~]+", page):
            raise Failed(f"the service at {self.url} would send you elsewhere to sign in: {page}")
        return page

    def log_in(self, scope: str, show: Callable[[str], None], *, browse: bool, patience: float) -> None:
        """Let a person sign in and approve in a browser, and keep the tokens. `show` is told what to do by hand."""
        address = self.find_page()
        with self.keyring.changing() as kept:  # the identifier of this install, and a file that can be written
            install_id = kept["install_id"]
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
                "install_id": install_id,
                "install_name": socket.gethostname()[:64],
                "scope": scope,
            }
            page = f"{address}?{urllib.parse.urlencode(question)}"
            if not (browse and webbrowser.open(page)):
                show(page)
            told = listener.wait(patience, state)
            if not hmac.compare_digest(told.get("iss", "").encode(), self.url.encode()):
                raise Failed("the answer came from another service; nothing was kept")
            if "code" not in told:
                raise Failed(f"the sign-in was refused: {told.get('error', 'no code came')}")
            form = {"grant_type": "authorization_code", "code": told["code"], "redirect_uri": listener.url}
            self.keep(self.trade({**form, "code_verifier": verifier}))

    def log_out(self) -> None:
        """Forget the tokens, and end the login there if it has not ended already. Raises Failed if it goes on there."""
        try:
            self.call("POST", "/auth/logout")
        except Ended:
            pass
        except Failed as failed:
            raise Failed(f"{failed}; the tokens are forgotten here, but the login goes on there") from None
        finally:
            self.keep({})


class Listener:
    """Waits on a port of the loopback interface for the browser to come back (RFC 8252, section 7.3)."""

    def __enter__(self) -> "Listener":
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with contextlib.suppress(OSError):
                self.server = _Server(family, host)
                shown = f"[{host}]" if ":" in host else host
                self.url = f"http://{shown}:{self.server.server_address[1]}/callback"
                threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
                return self
        raise Failed("cannot listen on the loopback interface")

    def __exit__(self, *_: Any) -> None:
        self.server.shutdown()
        self.server.server_close()

    def wait(self, seconds: float, state: str) -> dict[str, str]:
        """What the browser brings back with our state; everything else that knocks is sent away. Raises Failed."""
        end = time.monotonic() + min(seconds, 1e6)
        with contextlib.suppress(queue.Empty):
            while True:
                told = self.server.told.get(timeout=max(0.0, end - time.monotonic()))
                if hmac.compare_digest(told.get("state", "").encode(), state.encode()):
                    return told
        raise Failed(f"nobody answered in the browser within {seconds:.0f} seconds")


class _Server(http.server.ThreadingHTTPServer):
    """A thread for each connection: browsers open some that they do not use, and nobody can keep us from the others."""

    request_queue_size = 128

    def __init__(self, family: socket.AddressFamily, host: str) -> None:
        self.address_family = family
        self.told: queue.SimpleQueue[dict[str, str]] = queue.SimpleQueue()
        super().__init__((host, 0), _Handler)

    def handle_error(self, *_: Any) -> None:
        """Whoever hangs up is no concern of the person at the terminal."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        is_answer = path == "/callback" and query
        try:
            self.send_response(200 if is_answer else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Referrer-Policy", "no-referrer")
            self.end_headers()
            self.wfile.write(GO_BACK if is_answer else b"")
        finally:
            if is_answer:  # now that the page is out: the program may end with the answer
                self.server.told.put(dict(urllib.parse.parse_qsl(query)))

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
            return dict(json.loads(raw))
    except (OSError, ValueError, TypeError, http.client.HTTPException) as error:
        raise Failed(f"cannot reach {parts.scheme}://{parts.netloc}: {error}") from None
    raise Refused(answer.status, _sentence(raw) or f"the service answered {answer.status}")


def _sentence(raw: bytes) -> str:
    """The message in an error of the service; empty if it is none of ours."""
    try:
        return str(json.loads(raw)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""
