"""The operation of a request is found when its header has been read."""

import re
from functools import partial
from typing import Any

import pytest

from service.http.application import build_app, without_transaction
from service.http.middleware import Middleware, Route
from service.http.responses import Response
from service.routes import operations
from service.settings import Settings
from tests.support.server_process import SESSION

OPERATIONS = list(operations())


@pytest.fixture(scope="module")
def app() -> Middleware:
    return build_app(OPERATIONS, Settings())


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_the_operation_of_every_declared_path_is_found(operation: Any, app: Middleware) -> None:
    path = re.sub(r"{\w+}", SESSION, operation.full_path)
    assert app.find(operation.method, path).operation is operation
    if operation.method == "GET":
        assert app.find("HEAD", path).operation is operation


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nowhere"),
        ("GET", "//healthz"),
        ("GET", "/healthz/"),
        ("GET", "/static/console.css"),
        ("OPTIONS", "/healthz"),
        ("DELETE", "/healthz"),
        ("POST", "/\xff"),
    ],
)
def test_other_requests_have_a_route_without_an_operation(method: str, path: str, app: Middleware) -> None:
    assert app.find(method, path).operation is None


def test_a_route_that_the_server_has_found_is_not_looked_up_again() -> None:
    def look_up(method: str, path: str) -> Route:
        looked_up.append((method, path))
        return Route(path, partial(without_transaction, lambda environ: Response(200, b"found")))

    looked_up: list[tuple[str, str]] = []
    app = Middleware(look_up, Settings())
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/caf\xc3\xa9", "wsgi.url_scheme": "http"}
    for route in (None, app.find("GET", "/caf\xc3\xa9")):
        request: dict[str, Any] = {**environ, "cx.route": route}
        assert b"".join(app(request, lambda *_: None)) == b"found"
        assert request["PATH_INFO"] == "/café"
    assert looked_up == [("GET", "/café")]
