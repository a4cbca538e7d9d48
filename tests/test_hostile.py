"""Requests that no honest client makes, to every operation: each is refused in its form, and nothing else happens."""

import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple, get_origin

import msgspec
import pytest

from service.errors import ANY_OPERATION
from service.fields import AnyUuid
from service.operations import Operation
from service.routes import operations
from service.shapes import hints_of, resolve
from service.signature import LowerBound, UpperBound
from tests.conftest import Reply
from tests.serving import Served, chat, fill, serving
from tests.test_access import undone
from tests.test_decoding import NOT_JSON
from tests.test_forms import MISSING, REFUSED, TYPES
from tests.test_operations import is_free
from tests.test_serve import envelope, raw
from tests.valid import Place, Request
from tests.valid import place_fixture as place_fixture
from tests.watching import nothing_changes

LINE = re.compile(r"[!-~]+ [!-~]+ \d{3} \d+\.\dms \d+B \w+ [!-~]+ [!-~]+ [A-Za-z0-9._-]{1,64}")
KIB = 1024
SHARE = 7  # of the spoilt requests, one in so many is made every day


class Hostile(NamedTuple):
    """A request that was spoilt, and how it may be answered."""

    how: str
    request: Request
    method: str = ""
    headers: dict[str, str] = {}
    statuses: tuple[int, ...] = (400,)
    elsewhere: tuple[int, ...] = ()  # those that its operation need not declare, since it may not get there


Spoil = Callable[[Request], Iterator[Hostile]]
WAYS: dict[str, Spoil] = {}


def way(spoil: Spoil) -> Spoil:
    """A way of spoiling a request, which is tried with every operation."""
    WAYS[spoil.__name__] = spoil
    return spoil


def utf8(text: str) -> str:
    """A text as WSGI hands it over."""
    return text.encode().decode("latin-1")


NOWHERE = (400, 404, 405)
PATHS = {
    "a slash at the end": "{}/",
    "two slashes at the beginning": "/{}",
    "two slashes inside": "/x/{}",
    "another host": "//evil.example{}",
    "no slash": "x{}",
    "a dot": "/.{}",
    "back to where it is": "/x/..{}",
    "up": "/../..{}",
    "into the static files": "/static/..{}",
    "NUL": "{}\0",
    "newline": "{}\n",
    "line end and a header": "{}\r\nSet-Cookie: x=1",
    "escape": "{}\x1b[31m",
    "no UTF-8": "{}\xff",
    "no UTF-8 before": "\xff{}",
    "overlong UTF-8": "{}\xc0\xaf",
    "end of a line": utf8("{}\u2028"),
    "turned": utf8("{}\u202e"),
    "other digits": utf8("{}\u0660"),
    "semicolon": "{};jsessionid=1",
    "blank": "{} ",
    "percent": "{}%00",
    "backslash": "{}\\",
    "traversal": "{}/../../../../etc/passwd",
    "very long": "{}" + "/x" * 15_000,
    "one very long name": "{}/" + "x" * 30_000,
}


@way
def paths(request: Request) -> Iterator[Hostile]:
    for how, form in PATHS.items():
        if request.path == "/" and how == "no slash":
            continue
        yield Hostile(how, request._replace(path=form.format(request.path)), "", {}, NOWHERE, NOWHERE)


IDENTIFIERS = {
    "a word": "latest",
    "a number": "1",
    "braces": "{%s}",
    "urn": "urn:uuid:%s",
    "three in a row": "%s" * 3,
    "newline": "%s\n",
    "NUL": "%s\0",
    "quotes": "%s' OR 1=1 --",
    "template": "{{7*7}}",
    "percent signs": "%%",
    "no UTF-8": "\xff%s",
    "other digits": utf8("\u0661" * 36),
    "very long": "a" * 20_000,
}


@way
def identifiers(request: Request) -> Iterator[Hostile]:
    if is_free(request.operation):
        return
    given = [part for part in request.path.split("/") if len(part) in (26, 36)]
    for id in given:
        for how, form in IDENTIFIERS.items():
            path = request.path.replace(id, form.replace("%s", id))
            yield Hostile(f"{how} for {id}", request._replace(path=path))


METHODS = ("PROPFIND", "QUERY", "TRACE", "CONNECT", "TRACK", "DEBUG", "G\0T", "GET\n", "X" * 5_000, "\xff", "PRI", "*")


@way
def methods(request: Request) -> Iterator[Hostile]:
    for method in METHODS:
        yield Hostile(method[:20], request, method, {}, (405,), (405,))
    for header in ("x_http_method_override", "x_http_method", "x_method_override"):
        told = {header: request.operation.method}
        query = f"_method={request.operation.method}&{request.query}"
        yield Hostile(header, request._replace(query=query), "TRACE", told, (405,), (405,))


CREDENTIALS = {
    "nothing": "",
    "another scheme": "Basic YTpi",
    "a scheme alone": "Bearer",
    "a scheme and a blank": "Bearer ",
    "a tab": "Bearer\t%s",
    "two tokens": "Bearer %s %s",
    "a comma": "Bearer %s,",
    "a parameter": 'Bearer token="%s"',
    "no scheme": "%s",
    "a letter more": "Bearer %sA",
    "a letter less": "Bearer %.60s",
    "padding": "Bearer %s=",
    "another kind": "Bearer cxr_%s",
    "newline": "Bearer %s\n",
    "NUL": "Bearer %s\0",
    "no ASCII": "Bearer \xff",
    "other letters": utf8("Bearer cxa_\u0430"),
    "none": "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.",
    "very long": "Bearer cxa_" + "A" * 30_000,
    "dots": "Bearer cxa_" + "." * 1_000,
    "packed": "Bearer cxa_.eJyrVkrLz1eyUkpKLFKqBQAdVwSW.x",
    "null": "Bearer null",
    "negotiate": "Negotiate YIIZ",
}


@way
def credentials(request: Request) -> Iterator[Hostile]:
    if request.operation.public:
        return
    for how, form in CREDENTIALS.items():
        told = form.replace("%s", request.token).replace("%.60s", request.token[:60])
        yield Hostile(how, request, headers={"authorization": told}, statuses=(401,))


COOKIES = (
    *("cx_signed_in", "cx_signed_in=", "=x", ";;;", "cx_signed_in=x; cx_signed_in=y", "cx_signed_in=\xff", '"', "\0"),
    *("a=" + "b" * 30_000, "=;" * 10_000, "cx_signed_in=" + "." * 500, "$Version=1; cx_signed_in=x"),
)


@way
def cookies(request: Request) -> Iterator[Hostile]:
    if request.operation.is_page and not request.operation.public:
        for cookie in COOKIES:
            yield Hostile(cookie[:40], request._replace(token=""), headers={"cookie": cookie}, statuses=(401,))
        with_navigation = {"cookie": "cx_signed_in=x", "sec_fetch_mode": "navigate"}
        yield Hostile("in a browser", request._replace(token=""), headers=with_navigation, statuses=(401,))


TYPES_OF_BODIES = (
    "text/plain",
    "application/xml",
    "multipart/form-data",
    "application/jsonp",
    "\xff",
    "a/b; charset=x",
)
SMALL_ENOUGH = {how: body for how, body in (REFUSED | MISSING).items() if len(body) < 64 * KIB}


@way
def bodies(request: Request) -> Iterator[Hostile]:
    operation = request.operation
    if not operation.body:
        return
    statuses = (200,) if operation.is_lenient else (400,)
    if operation.accepts == "application/json":
        for how, body in NOT_JSON.items():
            yield Hostile(how, request._replace(body=body), statuses=statuses)
        for kind in (*TYPES_OF_BODIES, "application/x-www-form-urlencoded"):
            body = request.body or b"{}"
            yield Hostile(kind, request._replace(body=body, content_type=kind), statuses=statuses)
    elif operation.accepts == "multipart/form-data":
        for how, body in SMALL_ENOUGH.items():
            yield Hostile(how, request._replace(body=body, content_type="multipart/form-data; boundary=b"))
        for kind, is_one in TYPES:
            if not is_one:
                yield Hostile(kind[:60], request._replace(content_type=kind))
    else:
        for kind in (*TYPES_OF_BODIES, "application/json", ""):
            yield Hostile(kind, request._replace(content_type=kind))
        for name, value in (pair.split(b"=", 1) for pair in request.body.split(b"&")):
            if name.decode() in declared(operation.body):
                yield Hostile(f"{name!r} twice", request._replace(body=request.body + b"&" + name + b"=" + value))
                for spoilt in (b"%ff", b"%00", b"\xff", b"%ED%A0%80"):
                    body = request.body.replace(name + b"=" + value, name + b"=" + spoilt)
                    yield Hostile(f"{name!r} as {spoilt!r}", request._replace(body=body))
    yield Hostile("too large", request._replace(body=b" " * (operation.most + 1)), statuses=(413,))


ODD: tuple[Any, ...] = (True, -1, 2**70, 0.5, "", "x" * 20_000, "\u202e", [], [[]], [None], {}, {"": {}})


@way
def members(request: Request) -> Iterator[Hostile]:
    """Every member of a JSON object, with whatever its type does not hold."""
    if request.operation.accepts != "application/json" or not request.operation.body or request.operation.is_lenient:
        return
    kind = resolve(request.operation.body)
    for value in (None, [], [{}], "x", 5, True):
        yield Hostile(f"{value!r}", request._replace(body=json.dumps(value).encode()))
    valid = json.loads(request.body or b"{}")
    ignored = {"updated_at"}  # of the settings document
    for member in (one for one in msgspec.structs.fields(kind) if one.name not in ignored):
        for value in ODD:
            try:
                msgspec.convert(value, member.type, strict=True)
            except msgspec.ValidationError:
                body = json.dumps(valid | {member.encode_name: value}).encode()
                yield Hostile(f"{member.encode_name}: {str(value)[:20]!r}", request._replace(body=body))


def declared(kind: Any) -> dict[str, Any]:
    """The members of a query or form by their names on the wire, and their types."""
    return {member.encode_name: hints_of(kind)[member.name] for member in msgspec.structs.fields(kind)} if kind else {}


def is_text(hint: Any) -> bool:
    """Whether many a text may stand for a parameter."""
    kind = hint.__origin__ if get_origin(hint) is Annotated else hint
    return kind is str and hint not in (LowerBound, UpperBound, AnyUuid)


ODD_TEXTS = ("nonsense", "%zz", "%1b[31m", "[]", "{}", "-", "1e5", "0x1", "%D9%A1", "null", "%0d%0a", "x" * 20_000)


@way
def parameters(request: Request) -> Iterator[Hostile]:
    statuses = (200,) if request.operation.is_lenient else (400,)
    for name, hint in declared(request.operation.query).items():
        others = "".join(f"&{pair}" for pair in request.query.split("&") if pair.partition("=")[0] != name)
        spoilt = {"twice": f"{name}=1&{name}=1", "thousands": f"{name}=1&" * 2_000 + f"{name}=1"}
        spoilt |= {text: f"{name}={text}" for text in ("%ff", "\xff", "%00", "%ED%A0%80", "%c0%af", "x%ff" * 5_000)}
        if not is_text(hint):
            spoilt |= {text[:20]: f"{name}={text}" for text in ODD_TEXTS}
        for how, query in spoilt.items():
            yield Hostile(f"{name}: {how}", request._replace(query=query + others), statuses=statuses)


KEYS = ("x" * 256, "a\x07b", "a\nb", "\x1b[31m", "a\0", "a\x9bb")


@way
def keys(request: Request) -> Iterator[Hostile]:
    if request.operation.status == 201:
        for key in KEYS:
            yield Hostile(ascii(key)[:20], request, headers={"idempotency_key": key})


def is_in_its_form(reply: Reply, operation: Operation) -> bool:
    """Whether a refusal looks as it should: a page, OAuth's object, or the envelope."""
    if reply.headers["Content-Type"].startswith("text/html"):
        return operation.is_page and reply.raw.startswith(b"<!doctype html>")
    if operation.is_bare and reply.status not in (404, 405):
        return set(reply.json) == {"error", "error_description"}
    return reply.error[0] == reply.status


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the service has logged of requests; fails where there is more than a line for each."""
    caplog.set_level(logging.INFO)

    def lines() -> list[str]:
        assert {record.levelname for record in caplog.records} <= {"INFO"}
        found = [record.getMessage() for record in caplog.records if record.name == "cx.requests"]
        assert [line for line in found if not LINE.fullmatch(line)] == []
        return found

    return lines


def test_the_requests_that_are_spoilt_are_good_ones(place: Place) -> None:
    refused = {"exchange_code": 400, "sign_in_browser": 400, "answer_consent": 400}  # which need what is good only once
    for request in place.household.requests():
        with undone(request.operation.name):
            status = place.ask(request).status
        assert status == refused.get(request.operation.name, request.operation.status), request


def test_they_are_thousands(place: Place) -> None:
    spoilt = [one for request in place.household.requests() for spoil in WAYS.values() for one in spoil(request)]
    assert len(spoilt) > 5_000
    assert {one.request.operation.name for one in spoilt} == {operation.name for operation in operations()}


def fault(hostile: Hostile, reply: Reply) -> str:
    """What is wrong with an answer; empty where nothing is."""
    operation = hostile.request.operation
    if reply.status not in hostile.statuses:
        return f"expected {hostile.statuses}"
    if reply.status == 200:
        return "" if "X-Request-Warning" in reply.headers else "no warning"
    if reply.status not in operation.statuses | ANY_OPERATION | set(hostile.elsewhere):
        return "not declared"
    if not is_in_its_form(reply, operation) or b"Traceback" in reply.raw:
        return "not in its form"
    return "" if reply.headers["X-Content-Type-Options"] == "nosniff" else "no nosniff"


@pytest.mark.parametrize("every", [SHARE, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", WAYS)
def test_a_spoilt_request_is_refused_and_nothing_else_happens(
    name: str, every: int, place: Place, logged: Callable[[], list[str]]
) -> None:
    spoilt = [one for request in place.household.requests() for one in WAYS[name](request)][::every]
    faults = []
    with nothing_changes():
        for hostile in spoilt:
            reply = place.ask(hostile.request, hostile.method, **hostile.headers)
            if wrong := fault(hostile, reply):
                faults.append((wrong, hostile.request.operation.name, hostile.how, reply.status, reply.raw[:200]))
        assert faults == []
    assert len(logged()) == len(spoilt)


# Below WSGI: what a server might mend before an operation hears of it.


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("wire") / "data"
    fill(folder, chat(1))
    with serving(folder) as running:
        yield running
        assert "Traceback" not in running.errors


FIRST_LINES = {
    "GET //healthz HTTP/1.1": 404,
    "GET ///healthz HTTP/1.1": 404,
    "GET //evil.example/healthz HTTP/1.1": 404,
    "GET healthz HTTP/1.1": 404,
    "GET * HTTP/1.1": 404,
    "GET /%2fhealthz HTTP/1.1": 404,
    "GET /./healthz HTTP/1.1": 404,
    "GET /x/../healthz HTTP/1.1": 404,
    "GET /%2e%2e/healthz HTTP/1.1": 404,
    "GET /static/%2e%2e/%2e%2e/service.db HTTP/1.1": 404,
    "GET /static/..%2f..%2fapp.py HTTP/1.1": 404,
    "GET /healthz%00 HTTP/1.1": 404,
    "GET /healthz%0a HTTP/1.1": 404,
    "GET /healthz%0d%0aX-Forged:%20x HTTP/1.1": 404,
    "GET /healthz%1b[31m HTTP/1.1": 404,
    "GET /healthz%e2%80%a8 HTTP/1.1": 404,
    "GET /healthz%ff HTTP/1.1": 404,
    "GET /healthz%c0%af HTTP/1.1": 404,
    "GET /healthz\xff HTTP/1.1": 400,
    "GET /healthz;x=y HTTP/1.1": 404,
    "GET /healthz%3f HTTP/1.1": 404,
    "GET %2fhealthz HTTP/1.1": 404,
    "GET /.well-known%2Foauth-authorization-server HTTP/1.1": 404,
    "GET /static%2fconsole.css HTTP/1.1": 404,
    "GET /static/%2Fconsole.css HTTP/1.1": 404,
    "GET /avatars%2fx HTTP/1.1": 404,
    "GET /api/v1/users/me%2fsettings HTTP/1.1": 404,
    "GET /api/v1/chats/x%2Fy/messages HTTP/1.1": 404,
    "GET /api/v1/chats/%252f/messages HTTP/1.1": 404,
    "GET http://a/healthz%2f HTTP/1.1": 404,
    "GET http://b/healthz HTTP/1.1": 400,
    "GET foo:/healthz HTTP/1.1": 400,
    "GET /HEALTHZ HTTP/1.1": 404,
    "GET /" + "a" * 20_000 + " HTTP/1.1": 404,
    "GET /" + "a" * 40_000 + " HTTP/1.1": 431,
    "get /healthz HTTP/1.1": 400,
    "Get /healthz HTTP/1.1": 400,
    "PROPFIND /healthz HTTP/1.1": 405,
    "QUERY /healthz HTTP/1.1": 405,
    "X" * 5_000 + " /healthz HTTP/1.1": 405,
}


@pytest.mark.slow
@pytest.mark.parametrize(("first", "status"), FIRST_LINES.items(), ids=lambda value: ascii(value)[:50])
def test_what_is_almost_an_address_is_none_over_the_wire(first: str, status: int, server: Served) -> None:
    before = len(server.errors.splitlines())
    answered, headers, body = raw(server, f"{first}\r\nHost: a\r\nConnection: close\r\n\r\n".encode("latin-1"))
    assert answered == status
    assert envelope(body)
    assert headers["x-content-type-options"] == "nosniff"
    lines = server.logged(since=before)
    assert all(LINE.fullmatch(line.partition(" cx.requests ")[2]) for line in lines), lines
    assert len(lines) == 1
