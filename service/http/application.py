"""Builds the WSGI application: the router, static files, and requests that no operation serves.

Bottle's router decides on 404, 405 and OPTIONS. These never reach an operation.
"""

import functools
import re
from collections.abc import Callable, Iterable
from wsgiref.types import WSGIEnvironment

import bottle

from service import assets, metrics
from service.api.operations import Operation
from service.console import layout
from service.errors import ApiError, MethodNotAllowed, NotFound
from service.http import html_pages
from service.http.client_address import is_navigation, read_request_info
from service.http.compression import static_response
from service.http.endpoint_kinds import endpoint_of
from service.http.middleware import Middleware, Route, Steps
from service.http.responses import Response, error_response
from service.settings import Settings

_STATIC_FILES = assets.static_files()


def build_app(operations: Iterable[Operation], settings: Settings) -> Middleware:
    """Return the WSGI application for some operations. Raises TypeError where two have the same route or name."""
    router = make_router(operations := tuple(operations))
    metrics.shared.name_operations(label for operation in operations for label in operation.labels.values())
    endpoints = {operation.name: endpoint_of(operation, settings, operations) for operation in operations}
    static = functools.partial(without_transaction, send_static, settings=settings)

    def find(method: str, path: str) -> Route:
        try:
            operation, identifiers = router.match({"REQUEST_METHOD": method, "PATH_INFO": path})
        except bottle.HTTPError as error:
            return Route(path, functools.partial(without_transaction, not_routed, error=error, settings=settings))
        endpoint = endpoints[operation.name] if operation else static
        return Route(path, functools.partial(endpoint, identifiers=identifiers), operation)

    return Middleware(find, settings)


class _Router(bottle.Router):  # type: ignore[misc]  # Bottle gives no types
    """A router that is compiled once. Bottle's compiles all rules of a method again whenever one is added."""

    def _compile(self, method: str) -> None:
        """Bottle calls this for each rule that is added."""

    def compile(self) -> None:
        """Compile all rules."""
        for method in self.dyna_routes:
            super()._compile(method)


@functools.lru_cache(maxsize=2)
def make_router(operations: tuple[Operation, ...]) -> bottle.Router:
    """Return the router that finds an operation, or None for a static file. It is the same for all settings.

    Raises TypeError where two operations have the same route or name.
    """
    router, taken = _Router(), dict[object, Operation]()
    router.add(r"/static/<name:path><:re:\Z>", "GET", None)
    for operation in operations:
        for claim in (operation.name, (operation.method, re.sub(r"{\w+}", "{}", operation.full_path))):
            if taken.setdefault(claim, operation) is not operation:
                raise TypeError(f"{operation.method} {operation.full_path} ({operation.name}) is declared twice")
        rule = re.sub(r"{(\w+)}", r"<\1>", operation.full_path)
        # Bottle's own end of a rule also matches before a final newline.
        router.add(rule + (r"<:re:\Z>" if "<" in rule else ""), operation.method, operation)
    router.compile()
    return router


def without_transaction(
    respond: Callable[..., Response], environ: WSGIEnvironment, **arguments: object
) -> Steps[Response]:
    """Return the steps of a request that writes nothing: there are none before the response."""
    return respond(environ, **arguments)
    yield


def send_static(environ: WSGIEnvironment, identifiers: dict[str, str], settings: Settings) -> Response:
    """Return a file of static/. Browsers revalidate their copies, so that the files of a page are of one version."""
    file = _STATIC_FILES.get(identifiers["name"])
    if file is None:
        return respond_unrouted(environ, NotFound(), settings)
    return static_response(environ, file)


def not_routed(environ: WSGIEnvironment, error: bottle.HTTPError, settings: Settings) -> Response:
    """Return the response where no route matches: 404, 405, or the allowed methods for OPTIONS."""
    if error.status_code == 404:
        return respond_unrouted(environ, NotFound(), settings)
    known = {*error.get_header("Allow").split(","), "OPTIONS"} - {"PROXY"}
    allow = {"Allow": ", ".join(sorted(known | ({"HEAD"} if "GET" in known else set())))}
    if environ["REQUEST_METHOD"] == "OPTIONS":
        return Response(204, headers=allow)
    return respond_unrouted(environ, MethodNotAllowed(headers=allow), settings)


def respond_unrouted(environ: WSGIEnvironment, error: ApiError, settings: Settings) -> Response:
    """Return an error without an operation: a page for browser navigation, otherwise the envelope."""
    if settings.documented_only or not is_navigation(environ):
        return error_response(error)
    info = error.info({error.status})
    request_info = read_request_info(environ, settings)
    return html_pages.error_response(
        info, request_info, settings, functools.partial(layout.error_page, info, request_info)
    )
