"""Security headers of all responses of all operations, generated from the declarations."""

from collections.abc import Iterator

import pytest

from service import assets
from tests.support.access import rolled_back
from tests.support.client import Client, Reply
from tests.support.raw_http import raw
from tests.support.sample_operations import eve_fixture as eve_fixture
from tests.support.security_headers import DOCUMENT, PAGE, SCRIPTED, STRICT, policy
from tests.support.server_process import Served, chat, fill, serving
from tests.support.valid_requests import Request, SampleService
from tests.support.valid_requests import sample_service_fixture as sample_service_fixture

pytestmark = pytest.mark.database


def has_security_headers(reply: Reply) -> bool:
    """Whether a response has the security headers of its kind."""
    headers = reply.headers
    if headers["X-Content-Type-Options"] != "nosniff" or "Server" in headers or not headers["X-Request-ID"]:
        return False
    if not reply.raw and reply.status != 303:  # 204 and 304
        return True
    if headers.get("Content-Type") == "text/html; charset=utf-8" and "X-Frame-Options" not in headers:
        return policy(reply) == DOCUMENT and headers["Cache-Control"] == "private, no-cache"  # an e-mail
    if headers.get("Content-Type", "text/html").startswith("text/html"):
        strict = reply.status == 303 or policy(reply) in (STRICT, SCRIPTED)
        return strict and {name: headers[name] for name in PAGE} == PAGE
    if policy(reply) == {"default-src": "'none'"}:  # the service worker, which browsers may refuse with `sandbox`
        return headers["Content-Type"] == "text/javascript; charset=utf-8" and bool(headers["Cache-Control"])
    if "sandbox" in headers["Content-Security-Policy"]:  # files, which may be cached
        return policy(reply) == {"default-src": "'none'", "sandbox": ""} and bool(headers["Cache-Control"])
    is_json = headers["Content-Type"] == "application/json" and headers["Cache-Control"] in (
        "no-store",
        "private, no-cache",
    )
    return is_json and policy(reply) == {"default-src": "'none'", "frame-ancestors": "'none'"}


def responses(request: Request, sample_service: SampleService) -> Iterator[Reply]:
    """The responses to a valid request and to malformed ones; the successful one is first."""
    yield sample_service.send(request)
    if request.operation.body:
        yield sample_service.send(request._replace(body=b" " * (request.operation.max_body + 1)))
    for headers in ({}, {"sec_fetch_mode": "navigate"})[: 1 + request.operation.is_page]:
        yield sample_service.send(request._replace(token="cxa_forged"), **headers)
        yield sample_service.send(request._replace(body=b"\xff", query="cursor=%ff"), **headers)
        yield sample_service.send(request._replace(path=f"{request.path}x"), **headers)
    yield sample_service.send(request, "TRACE")
    yield sample_service.send(request, "OPTIONS")
    yield sample_service.send(request, if_none_match="*")


@pytest.mark.slow
def test_every_response_of_every_operation_has_security_headers(sample_service: SampleService) -> None:
    seen = set()
    for request in sample_service.installation.requests():
        with rolled_back(request.operation.name):
            success, *others = responses(request, sample_service)
        for reply in (success, *others):
            assert has_security_headers(reply), (request.operation.name, reply.status, reply.headers)
            seen.add(reply.status)
        if not request.operation.public:  # proxies must not cache it
            assert success.headers["Cache-Control"] in ("private, no-cache", "no-store"), request.operation.name
    assert seen >= {200, 201, 204, 303, 304, 400, 401, 404, 405, 413}


@pytest.mark.parametrize("name", assets.static_files())
def test_static_files_have_security_headers(name: str, sample_service: SampleService) -> None:
    reply = sample_service.client.get(f"//static/{name}")
    assert has_security_headers(reply)
    assert reply.status == 200


@pytest.mark.parametrize("path", ["/crash", "/page-crash", "/nowhere", "//nowhere", "//console/nowhere"])
@pytest.mark.parametrize("headers", [{}, {"sec_fetch_mode": "navigate"}])
def test_crashes_and_unknown_paths_have_security_headers(path: str, headers: dict[str, str], eve: Client) -> None:
    eve.may_crash = True
    reply = eve.get(path, **headers)
    assert reply.status in (404, 500)
    assert has_security_headers(reply)


# Errors of the server, before an operation is found.


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("security_headers") / "data"
    fill(folder, chat(1))
    with serving(folder) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: " + b"a" * 40_000 + b"\r\n\r\n", 431),
        (b"POST /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 405),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_errors_of_the_server_have_security_headers(request_: bytes, status: int, server: Served) -> None:
    received, sent, body = raw(server, request_)
    names = {"x-request-id": "X-Request-ID"}  # waitress capitalizes it differently
    reply = Reply(received, {names.get(name, name.title()): value for name, value in sent.items()}, body)
    assert reply.status == status
    assert has_security_headers(reply)
    assert reply.headers["Cache-Control"] == "no-store"
