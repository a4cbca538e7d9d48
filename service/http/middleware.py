"""The WSGI application: request identifier, log line, metrics, and headers that every response has."""

import logging
import random
import re
import time
from collections.abc import Callable, Generator, Iterable
from http import HTTPStatus
from typing import BinaryIO, NamedTuple, TypeVar
from wsgiref.types import StartResponse, WSGIEnvironment
from wsgiref.util import FileWrapper

from service import metrics
from service.api.operations import Operation
from service.errors import InternalError
from service.http.client_address import address_of
from service.http.responses import Response, error_response
from service.logs import LogEvent, LogRecord
from service.memoize import memoized
from service.settings import Settings

log = logging.getLogger("cx.requests")

Result = TypeVar("Result")

PHRASES = {int(status): f"{int(status)} {status.phrase}" for status in HTTPStatus}
BODILESS = (204, 304)

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_CONTROL = re.compile(r"[^\x21-\x7e]")


class RequestHandled(LogEvent):
    """A request and its response."""

    method: str
    path: str
    status: int
    duration_ms: float
    bytes: int  # of the body
    operation: str
    client: str  # the address
    user: str  # the identifier; empty for public operations and unauthenticated clients
    request_id: str

    def __str__(self) -> str:
        about = f"{self.duration_ms:.1f}ms {self.bytes}B {self.operation} {self.client or '-'} {self.user or '-'}"
        return f"{self.summary()} {about} {self.request_id}"

    def summary(self) -> str:
        return f"{self.method} {self.path} {self.status}"


class RequestFailed(LogEvent):
    """A request that failed unexpectedly."""

    request_id: str

    def __str__(self) -> str:
        return f"request {self.request_id} failed"


Steps = Generator[None, Exception | None, Result]
"""The steps of a request that returns a result. It yields before and after the handler, which may write.

A server may begin a transaction at the first yield. It commits at the second, and sends the exception if that failed.
"""


class WsgiResponse(NamedTuple):
    """Status line, headers and body (PEP 3333)."""

    status: str
    headers: list[tuple[str, str]]
    body: bytes
    file: BinaryIO | None  # in place of the body


def run(steps: Steps[Result]) -> Result:
    """Run all steps."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


class Route(NamedTuple):
    """The route of a request.

    There is no operation for static files, unknown paths, OPTIONS, and methods that a path does not support.
    """

    path: str  # decoded
    respond: Callable[[WSGIEnvironment], Steps[Response]]
    operation: Operation | None = None


class Middleware:
    """The WSGI application, around a router."""

    def __init__(self, router: Callable[[str, str], Route], settings: Settings) -> None:
        self.router, self.settings = router, settings
        self._find = memoized(256)(self._look_up)

    def find(self, method: str, path: str) -> Route:
        """Return the route of a request; `path` is PATH_INFO (PEP 3333).

        A server may call this when it has received the header, and pass the route as `cx.route`.
        """
        return self._find(path, method)

    def _look_up(self, path: str, method: str) -> Route:
        # Invalid UTF-8, encoded slashes and a second leading slash must not match a route; U+FFFD matches none.
        path = path.encode("latin-1").decode("utf-8", "replace")
        is_valid = path[:1] == "/" != path[1:2] and not ("%" in path and "%2f" in path.lower())
        return self.router(method, path if is_valid else f"/\ufffd{path}")

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Return the interface of PEP 3333, for servers that do not use `steps`."""
        status, headers, body, file = run(self.steps(environ))
        start_response(status, headers)
        return environ.get("wsgi.file_wrapper", FileWrapper)(file) if file else [body]

    def steps(self, environ: WSGIEnvironment) -> Steps[WsgiResponse]:
        """Return the steps of a request."""
        begun = time.perf_counter()
        metrics.shared.add(metrics.IN_FLIGHT)
        offered = environ.get("HTTP_X_REQUEST_ID", "")
        request_id = offered if _REQUEST_ID.fullmatch(offered) else f"{random.getrandbits(64):016x}"
        environ["cx.request_id"] = request_id
        try:
            route = environ.get("cx.route") or self.find(environ["REQUEST_METHOD"], environ["PATH_INFO"])
            environ["PATH_INFO"] = route.path
            response = yield from route.respond(environ)
        except Exception:
            log.exception(RequestFailed(request_id))
            response = error_response(InternalError())
        finally:  # also if the request is suspended
            metrics.shared.add(metrics.IN_FLIGHT, -1)
        headers = [*response.headers.items(), ("X-Request-ID", request_id), ("X-Content-Type-Options", "nosniff")]
        if self.settings.allow_origin:
            headers += self.cross_origin(environ).items()
        if response.stream and "cx.open_stream" in environ and environ["REQUEST_METHOD"] == "GET":
            environ["cx.open_stream"](response.stream)
        elif response.status not in BODILESS:
            headers.append(("Content-Length", str(response.length)))
        body = b"" if response.status in BODILESS or environ["REQUEST_METHOD"] == "HEAD" else response.body
        file = response.download.file if response.download else None
        duration, operation = time.perf_counter() - begun, environ.get("cx.operation", metrics.UNROUTED)
        metrics.shared.count_response(operation, response.status, duration)
        if log.isEnabledFor(logging.INFO):
            method, path = _CONTROL.sub("?", environ["REQUEST_METHOD"]), _CONTROL.sub("?", environ.get("PATH_INFO", ""))
            client = environ.get("cx.client") or address_of(environ, self.settings)
            size, user = response.length if file else len(body), environ.get("cx.user", "")
            milliseconds = round(duration * 1000, 3)
            values = method, path, response.status, milliseconds, size, operation, client, user, request_id
            log.handle(LogRecord(log, RequestHandled(*values)))
        return WsgiResponse(PHRASES[response.status], headers, body, file)

    def cross_origin(self, environ: WSGIEnvironment) -> dict[str, str]:
        """Return the headers that let pages of allowed origins read the response (CORS; Fetch standard)."""
        origin = environ.get("HTTP_ORIGIN", "")
        if origin not in self.settings.allow_origin:
            return {"Vary": "Origin"}
        return {
            "Vary": "Origin",
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE",
            "Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key, If-None-Match, "
            "Last-Event-ID, MCP-Protocol-Version, Mcp-Method, Mcp-Name, X-Request-ID",
            "Access-Control-Expose-Headers": "ETag, X-Request-ID, X-Request-Warning, Retry-After, "
            "Idempotency-Replayed, WWW-Authenticate",
            "Access-Control-Max-Age": "600",
        }
