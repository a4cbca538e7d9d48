"""The outermost layer: what holds for every answer, whatever happened inside.

A request identifier, a log line that nobody can forge, the headers for browsers, and an answer even after a crash.
"""

import logging
import random
import re
import time
from collections.abc import Callable, Generator, Iterable
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

from service import metrics
from service.errors import InternalError
from service.logs import Event, Told
from service.operations import Operation
from service.origins import address_of
from service.remembering import remembered
from service.replies import Reply, refuse
from service.settings import Settings

log = logging.getLogger("cx.requests")

Result = TypeVar("Result")

PHRASES = {int(status): f"{int(status)} {status.phrase}" for status in HTTPStatus}
BODILESS = (204, 304)

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_CONTROL = re.compile(r"[^\x21-\x7e]")


class Answered(Event):
    """A request and what became of it."""

    method: str
    path: str
    status: int
    duration_ms: float
    bytes: int  # of the body that went out
    operation: str
    client: str  # its address
    user: str  # their identifier; empty where nobody was asked who they are
    request_id: str

    def __str__(self) -> str:
        about = f"{self.duration_ms:.1f}ms {self.bytes}B {self.operation} {self.client or '-'} {self.user or '-'}"
        return f"{self.sentence()} {about} {self.request_id}"

    def sentence(self) -> str:
        return f"{self.method} {self.path} {self.status}"


class Failed(Event):
    """A request at which something went wrong on our side."""

    request_id: str

    def __str__(self) -> str:
        return f"request {self.request_id} failed"


Steps = Generator[None, Exception | None, Result]
"""A request on its way to a result. It stops before the handler, which may write, and after it: the server may begin a
transaction at the first stop and commits it at the second, where it sends the error if that failed."""


class Response(NamedTuple):
    """What goes out: status line, headers and body (PEP 3333)."""

    status: str
    headers: list[tuple[str, str]]
    body: bytes


def run(steps: Steps[Result]) -> Result:
    """Take all steps at once."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


class Route(NamedTuple):
    """Where a request goes: its path in UTF-8, the steps that answer it, and its operation.

    There is no operation for static files, unknown paths, OPTIONS and methods that a path does not have.
    """

    path: str
    answer: Callable[[dict[str, Any]], Steps[Reply]]
    operation: Operation | None = None


class Edge:
    """The WSGI application, around the router."""

    def __init__(self, router: Callable[[str, str], Route], settings: Settings) -> None:
        self.router, self.settings = router, settings
        self._find = remembered(256)(self._look_up)

    def find(self, method: str, path: str) -> Route:
        """The route of a request; `path` as PATH_INFO has it (PEP 3333).

        A server may ask as soon as it has read the header, and pass the route on as `cx.route`.
        """
        return self._find(path, method)

    def _look_up(self, path: str, method: str) -> Route:
        # Bytes that are not UTF-8, encoded slashes and slashes at the beginning are faults that must not be lost.
        path = path.encode("latin-1").decode("utf-8", "replace")
        is_readable = path[:1] == "/" != path[1:2] and not ("%" in path and "%2f" in path.lower())
        return self.router(method, path if is_readable else f"/\ufffd{path}")

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        status, headers, body = run(self.steps(environ))
        start_response(status, headers)
        return [body]

    def steps(self, environ: dict[str, Any]) -> Steps[Response]:
        """The steps to the response."""
        begun = time.perf_counter()
        metrics.board.add(metrics.IN_FLIGHT)
        offered = environ.get("HTTP_X_REQUEST_ID", "")
        request_id = offered if _REQUEST_ID.fullmatch(offered) else f"{random.getrandbits(64):016x}"
        environ["cx.request_id"] = request_id
        try:
            route = environ.get("cx.route") or self.find(environ["REQUEST_METHOD"], environ["PATH_INFO"])
            environ["PATH_INFO"] = route.path
            reply = yield from route.answer(environ)
        except Exception:
            log.exception(Failed(request_id))
            reply = refuse(InternalError())
        finally:  # also when the request is put aside
            metrics.board.add(metrics.IN_FLIGHT, -1)
        headers = [*reply.headers.items(), ("X-Request-ID", request_id), ("X-Content-Type-Options", "nosniff")]
        headers += self.cross_origin(environ).items()
        if reply.status not in BODILESS:
            headers.append(("Content-Length", str(len(reply.body))))
        body = b"" if reply.status in BODILESS or environ["REQUEST_METHOD"] == "HEAD" else reply.body
        taken, operation = time.perf_counter() - begun, environ.get("cx.operation", metrics.UNROUTED)
        metrics.board.answered(operation, reply.status, taken)
        if log.isEnabledFor(logging.INFO):
            method, path = _CONTROL.sub("?", environ["REQUEST_METHOD"]), _CONTROL.sub("?", environ.get("PATH_INFO", ""))
            client = environ.get("cx.client") or address_of(environ, self.settings)
            size, user = len(body), environ.get("cx.user", "")
            told = method, path, reply.status, round(taken * 1000, 3), size, operation, client, user, request_id
            log.handle(Told(log, Answered(*told)))
        return Response(PHRASES[reply.status], headers, body)

    def cross_origin(self, environ: dict[str, Any]) -> dict[str, str]:
        """The headers that let an allowed web origin read the answer; none by default (Fetch standard, CORS)."""
        origin = environ.get("HTTP_ORIGIN", "")
        if not self.settings.allow_origin:
            return {}
        if origin not in self.settings.allow_origin:
            return {"Vary": "Origin"}
        return {
            "Vary": "Origin",
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE",
            "Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key, If-None-Match, X-Request-ID",
            "Access-Control-Expose-Headers": "ETag, X-Request-ID, X-Request-Warning, Retry-After, Idempotency-Replayed",
            "Access-Control-Max-Age": "600",
        }
