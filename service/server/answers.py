"""What goes back to a client: the answer of the application, or in our envelope that there is none to be had."""

import functools
import logging
import os
import sys
import time
from collections.abc import Iterable
from email.utils import formatdate
from typing import Any

import msgspec

from service import metrics
from service.edge import Answered, Response, Steps
from service.replies import JSON
from service.server.reading import Request
from service.server.unsent import SMALL

log = logging.getLogger("cx.server")
requests_log = logging.getLogger("cx.requests")

CODES = {
    400: "bad_request",
    413: "body_too_large",
    431: "headers_too_large",
    500: "internal_error",
    503: "storage_unavailable",
}
REFUSED = {**JSON, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Answer:
    """The answer to a request: once made, the `pieces` that go out, and maybe the last of its connection."""

    pieces: tuple[bytes, ...] = ()
    client = ""  # the user who asks, or the address of a request without one

    def __init__(self, channel: Any, request: Request) -> None:
        self.channel, self.request = channel, request
        asked = {word.strip(" \t") for word in request.headers.get("HTTP_CONNECTION", "").lower().split(",")}
        self.is_last = bool(
            request.error or "close" in asked or (request.version == "1.0" and "keep-alive" not in asked)
        )
        self.is_last |= request.is_incomplete

    def prepare(self) -> bool:
        """Do what comes before the transaction; whether the request goes on in one. Raises NeedsThread.

        For a client that has gone, nothing is done.
        """
        self.channel.see_who_is_there()
        if not self.channel.connected:
            return False
        environ = self.environ()
        self._steps: Steps[Response] = self.channel.server.application.steps(environ)
        goes_on = self._go_on()
        self.client = environ.get("cx.user") or str(self.channel.addr[0])
        return goes_on

    def run(self) -> None:
        """Do what belongs into the transaction."""
        self._go_on()

    def finish(self, failure: Exception | None) -> None:
        """Make the response after the commit, or after its failure."""
        self._go_on(failure)

    def _go_on(self, failure: Exception | None = None) -> bool:
        """Go on to the next step; whether there is one."""
        try:
            try:
                self._steps.send(failure)
                return True
            except StopIteration as end:
                if end.value:  # None if an earlier step has failed
                    self.put_together(*end.value)
        except Exception:  # beyond what the application answers itself
            log.exception("a request failed")
            self.is_last = True
        return False

    def make(self) -> None:
        """Take all steps at once, or refuse a request that cannot be read."""
        if self.request.error:
            self.refuse()
            return
        told: tuple[str, list[tuple[str, str]]] = "", []

        def start_response(status: str, headers: list[tuple[str, str]]) -> None:
            nonlocal told
            told = status, headers

        body = b"".join(self.channel.server.application(self.environ(), start_response))
        self.put_together(*told, body)

    def put_together(self, status: str, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        """Header and body; in one piece unless the body is too large to be copied."""
        version = self.request.version
        self.is_last |= self.channel.server.draining
        lines = [f"HTTP/{version} {status}", f"Date: {date_of(int(time.time()))}", *map(": ".join, headers)]
        if self.is_last or version == "1.0":
            lines.append(f"Connection: {'close' if self.is_last else 'Keep-Alive'}")
        head = "\r\n".join(lines)
        if not head.count("\r") == head.count("\n") == len(lines) - 1:
            raise ValueError("a header holds the end of a line")
        start = f"{head}\r\n\r\n".encode()
        self.pieces = (start + body,) if len(body) <= SMALL else (start, body)

    def refuse(self) -> None:
        """Tell in the envelope that the request is not readable as HTTP."""
        error = self.request.error
        told = {"code": CODES.get(error.code, "bad_request"), "message": f"{error.reason}: {error.body.rstrip('.')}."}
        body = msgspec.json.encode({"success": False, "error": told})
        request_id, client = os.urandom(8).hex(), str(self.channel.addr[0])
        headers = [*REFUSED.items(), ("X-Request-ID", request_id), ("Content-Length", str(len(body)))]
        headers += [("Retry-After", "2")] * (error.code == 503)
        metrics.board.answered(metrics.UNROUTED, error.code, 0.0)
        requests_log.info(Answered("-", "-", error.code, 0.0, len(body), metrics.UNROUTED, client, "", request_id))
        self.put_together(f"{error.code} {error.reason}", headers, body)

    def environ(self) -> dict[str, Any]:
        """What the application is asked (PEP 3333)."""
        request, server, body = self.request, self.channel.server, self.request.get_body_stream()
        body.seek(0)  # it may have been read, and the request begun anew
        return {
            "REQUEST_METHOD": request.command,
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query,
            "SCRIPT_NAME": "",
            "REMOTE_ADDR": self.channel.addr[0],
            "SERVER_NAME": server.server_name,
            "SERVER_PORT": str(server.effective_port),
            "SERVER_PROTOCOL": f"HTTP/{request.version}",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": body,
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": True,
            "wsgi.run_once": False,
            "cx.route": request.route,
            "cx.take_room": self.channel.take_room,
            "cx.patience": server.waiting.patience(request.begun),
            **request.headers,
        }


@functools.lru_cache(1)
def date_of(second: int) -> str:
    """A time as HTTP has it (RFC 9110, section 5.6.7)."""
    return formatdate(second, usegmt=True)
