"""What every answer tells browsers, whatever the operation and however it ends: generated from the declarations."""

from collections.abc import Iterator

import pytest

from service import assets
from tests.conftest import Client, Reply
from tests.samples import eve_fixture as eve_fixture
from tests.serving import Served, chat, fill, serving
from tests.test_access import undone
from tests.test_serve import raw
from tests.valid import Place, Request
from tests.valid import place_fixture as place_fixture

PAGE = {  # OWASP's secure headers project; what a page of ours may load stands in its policy
    "Cache-Control": "no-store",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
STRICT = {
    "default-src": "'none'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
}
SCRIPTED = STRICT | {"script-src": "'self'", "connect-src": "'self'"}


def policy(reply: Reply) -> dict[str, str]:
    """The directives of a Content-Security-Policy."""
    parts = reply.headers["Content-Security-Policy"].split(";")
    return dict(part.strip().partition(" ")[::2] for part in parts)


def is_careful(reply: Reply) -> bool:
    """Whether an answer carries what an answer of its kind must."""
    headers = reply.headers
    if headers["X-Content-Type-Options"] != "nosniff" or "Server" in headers or not headers["X-Request-ID"]:
        return False
    if not reply.raw and reply.status != 303:  # 204 and 304
        return True
    if headers.get("Content-Type", "text/html").startswith("text/html"):
        strict = reply.status == 303 or policy(reply) in (STRICT, SCRIPTED)
        return strict and {name: headers[name] for name in PAGE} == PAGE
    if "sandbox" in headers["Content-Security-Policy"]:  # files, which may be kept
        return policy(reply) == {"default-src": "'none'", "sandbox": ""} and bool(headers["Cache-Control"])
    is_json = headers["Content-Type"] == "application/json" and headers["Cache-Control"] in (
        "no-store",
        "private, no-cache",
    )
    return is_json and policy(reply) == {"default-src": "'none'", "frame-ancestors": "'none'"}


def ways(request: Request, place: Place) -> Iterator[Reply]:
    """The same operation, ending in all the ways that it can, the good one first."""
    yield place.ask(request)
    if request.operation.body:
        yield place.ask(request._replace(body=b" " * (request.operation.most + 1)))
    for headers in ({}, {"sec_fetch_mode": "navigate"})[: 1 + request.operation.is_page]:
        yield place.ask(request._replace(token="cxa_forged"), **headers)
        yield place.ask(request._replace(body=b"\xff", query="cursor=%ff"), **headers)
        yield place.ask(request._replace(path=f"{request.path}x"), **headers)
    yield place.ask(request, "TRACE")
    yield place.ask(request, "OPTIONS")
    yield place.ask(request, if_none_match="*")


def test_every_answer_of_every_operation_is_careful(place: Place) -> None:
    seen = set()
    for request in place.household.requests():
        with undone(request.operation.name):
            good, *others = ways(request, place)
        for reply in (good, *others):
            assert is_careful(reply), (request.operation.name, reply.status, reply.headers)
            seen.add(reply.status)
        if not request.operation.public:  # nobody on the way may keep it
            assert good.headers["Cache-Control"] in ("private, no-cache", "no-store"), request.operation.name
    assert seen >= {200, 201, 204, 303, 304, 400, 401, 404, 405, 413}


@pytest.mark.parametrize("name", assets.parts())
def test_the_parts_of_pages_are_careful(name: str, place: Place) -> None:
    reply = place.client.get(f"//static/{name}")
    assert is_careful(reply)
    assert reply.status == 200


@pytest.mark.parametrize("path", ["/crash", "/page-crash", "/nowhere", "//nowhere", "//console/nowhere"])
@pytest.mark.parametrize("headers", [{}, {"sec_fetch_mode": "navigate"}])
def test_crashes_and_what_is_nowhere_are_careful(path: str, headers: dict[str, str], eve: Client) -> None:
    eve.may_crash = True
    reply = eve.get(path, **headers)
    assert reply.status in (404, 500)
    assert is_careful(reply)


# Below the operations.


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("careful") / "data"
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
def test_the_servers_own_refusals_are_careful(request_: bytes, status: int, server: Served) -> None:
    told, sent, body = raw(server, request_)
    names = {"x-request-id": "X-Request-ID"}  # which waitress spells in its own way
    reply = Reply(told, {names.get(name, name.title()): value for name, value in sent.items()}, body)
    assert reply.status == status
    assert is_careful(reply)
    assert reply.headers["Cache-Control"] == "no-store"
