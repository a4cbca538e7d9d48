"""Malformed requests to all operations: each gets an error in the declared format, and has no side effects."""

import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple, get_origin

import msgspec
import pytest

from service.api.operations import Operation
from service.api.parameter_types import LowerBound, UpperBound
from service.api.schemas import hints_of, wire_type
from service.errors import COMMON_STATUSES
from service.fields import AnyUuid
from service.routes import operations
from tests.support.access import rolled_back
from tests.support.client import Reply
from tests.support.malformed_bodies import CONTENT_TYPES, FORMS_WITHOUT_FILE, INVALID_FORMS, NOT_JSON
from tests.support.observe import nothing_changes
from tests.support.operations import accepts_any_identifier
from tests.support.raw_http import envelope, raw
from tests.support.server_process import Served, chat, fill, serving
from tests.support.valid_requests import Request, SampleService
from tests.support.valid_requests import sample_service_fixture as sample_service_fixture

pytestmark = pytest.mark.database


LINE = re.compile(r"[!-~]+ [!-~]+ \d{3} \d+\.\dms \d+B \w+ [!-~]+ [!-~]+ [A-Za-z0-9._-]{1,64}")
KIB = 1024
SHARE = 7  # quick runs send every seventh malformed request


class MalformedRequest(NamedTuple):
    """A malformed request, and the statuses that its response may have."""

    how: str
    request: Request
    method: str = ""
    headers: dict[str, str] = {}
    statuses: tuple[int, ...] = (400,)
    undeclared: tuple[int, ...] = ()  # statuses of requests that do not reach the operation


Malform = Callable[[Request], Iterator[MalformedRequest]]
MALFORMATIONS: dict[str, Malform] = {}


def malformation(malform: Malform) -> Malform:
    """Register a function that makes malformed requests; it is applied to every operation."""
    MALFORMATIONS[malform.__name__] = malform
    return malform


def utf8(text: str) -> str:
    """A text as in a WSGI environ."""
    return text.encode().decode("latin-1")


NOT_FOUND_CODES = (400, 404, 405)
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


@malformation
def paths(request: Request) -> Iterator[MalformedRequest]:
    for how, form in PATHS.items():
        if request.path == "/" and how == "no slash":
            continue
        yield MalformedRequest(
            how, request._replace(path=form.format(request.path)), "", {}, NOT_FOUND_CODES, NOT_FOUND_CODES
        )


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


@malformation
def identifiers(request: Request) -> Iterator[MalformedRequest]:
    if accepts_any_identifier(request.operation):
        return
    given = [part for part in request.path.split("/") if len(part) in (26, 36)]
    for id in given:
        for how, form in IDENTIFIERS.items():
            path = request.path.replace(id, form.replace("%s", id))
            yield MalformedRequest(f"{how} for {id}", request._replace(path=path))


METHODS = ("PROPFIND", "QUERY", "TRACE", "CONNECT", "TRACK", "DEBUG", "G\0T", "GET\n", "X" * 5_000, "\xff", "PRI", "*")


@malformation
def methods(request: Request) -> Iterator[MalformedRequest]:
    for method in METHODS:
        yield MalformedRequest(method[:20], request, method, {}, (405,), (405,))
    for header in ("x_http_method_override", "x_http_method", "x_method_override"):
        override = {header: request.operation.method}
        query = f"_method={request.operation.method}&{request.query}"
        yield MalformedRequest(header, request._replace(query=query), "TRACE", override, (405,), (405,))


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


@malformation
def credentials(request: Request) -> Iterator[MalformedRequest]:
    if request.operation.public:
        return
    for how, form in CREDENTIALS.items():
        authorization = form.replace("%s", request.token).replace("%.60s", request.token[:60])
        yield MalformedRequest(how, request, headers={"authorization": authorization}, statuses=(401,))


COOKIES = (
    *("cx_signed_in", "cx_signed_in=", "=x", ";;;", "cx_signed_in=x; cx_signed_in=y", "cx_signed_in=\xff", '"', "\0"),
    *("a=" + "b" * 30_000, "=;" * 10_000, "cx_signed_in=" + "." * 500, "$Version=1; cx_signed_in=x"),
)


@malformation
def cookies(request: Request) -> Iterator[MalformedRequest]:
    if request.operation.is_page and not request.operation.public:
        for cookie in COOKIES:
            yield MalformedRequest(cookie[:40], request._replace(token=""), headers={"cookie": cookie}, statuses=(401,))
        with_navigation = {"cookie": "cx_signed_in=x", "sec_fetch_mode": "navigate"}
        yield MalformedRequest("in a browser", request._replace(token=""), headers=with_navigation, statuses=(401,))


TYPES_OF_BODIES = (
    "text/plain",
    "application/xml",
    "multipart/form-data",
    "application/jsonp",
    "\xff",
    "a/b; charset=x",
)
SMALL_ENOUGH = {how: body for how, body in (INVALID_FORMS | FORMS_WITHOUT_FILE).items() if len(body) < 64 * KIB}


@malformation
def bodies(request: Request) -> Iterator[MalformedRequest]:
    operation = request.operation
    if not operation.body:
        return
    statuses = (200,) if operation.is_lenient else (400,)
    if operation.accepts == "application/json":
        for how, body in NOT_JSON.items():
            yield MalformedRequest(how, request._replace(body=body), statuses=statuses)
        for kind in (*TYPES_OF_BODIES, "application/x-www-form-urlencoded"):
            body = request.body or b"{}"
            yield MalformedRequest(kind, request._replace(body=body, content_type=kind), statuses=statuses)
    elif operation.accepts == "multipart/form-data":
        for how, body in SMALL_ENOUGH.items():
            yield MalformedRequest(how, request._replace(body=body, content_type="multipart/form-data; boundary=b"))
        for kind, is_valid in CONTENT_TYPES:
            if not is_valid:
                yield MalformedRequest(kind[:60], request._replace(content_type=kind))
    else:
        for kind in (*TYPES_OF_BODIES, "application/json", ""):
            yield MalformedRequest(kind, request._replace(content_type=kind))
        for name, value in (pair.split(b"=", 1) for pair in request.body.split(b"&")):
            if name.decode() in declared(operation.body):
                yield MalformedRequest(
                    f"{name!r} twice", request._replace(body=request.body + b"&" + name + b"=" + value)
                )
                for malformed in (b"%ff", b"%00", b"\xff", b"%ED%A0%80"):
                    body = request.body.replace(name + b"=" + value, name + b"=" + malformed)
                    yield MalformedRequest(f"{name!r} as {malformed!r}", request._replace(body=body))
    yield MalformedRequest("too large", request._replace(body=b" " * (operation.max_body + 1)), statuses=(413,))


ODD: tuple[Any, ...] = (True, -1, 2**70, 0.5, "", "x" * 20_000, "\u202e", [], [[]], [None], {}, {"": {}})


@malformation
def members(request: Request) -> Iterator[MalformedRequest]:
    """Each member of a JSON object with values of other types."""
    if request.operation.accepts != "application/json" or not request.operation.body or request.operation.is_lenient:
        return
    kind = wire_type(request.operation.body)
    for value in (None, [], [{}], "x", 5, True):
        yield MalformedRequest(f"{value!r}", request._replace(body=json.dumps(value).encode()))
    valid = json.loads(request.body or b"{}")
    ignored = {"updated_at"}  # of the settings document
    for member in (one for one in msgspec.structs.fields(kind) if one.name not in ignored):
        for value in ODD:
            try:
                msgspec.convert(value, member.type, strict=True)
            except msgspec.ValidationError:
                body = json.dumps(valid | {member.encode_name: value}).encode()
                yield MalformedRequest(f"{member.encode_name}: {str(value)[:20]!r}", request._replace(body=body))


def declared(kind: Any) -> dict[str, Any]:
    """The types of the members of a query or form, by their encoded names."""
    return {member.encode_name: hints_of(kind)[member.name] for member in msgspec.structs.fields(kind)} if kind else {}


def is_text(hint: Any) -> bool:
    """Whether a parameter accepts any text."""
    kind = hint.__origin__ if get_origin(hint) is Annotated else hint
    return kind is str and hint not in (LowerBound, UpperBound, AnyUuid)


ODD_TEXTS = ("nonsense", "%zz", "%1b[31m", "[]", "{}", "-", "1e5", "0x1", "%D9%A1", "null", "%0d%0a", "x" * 20_000)


@malformation
def parameters(request: Request) -> Iterator[MalformedRequest]:
    statuses = (200,) if request.operation.is_lenient else (400,)
    for name, hint in declared(request.operation.query).items():
        others = "".join(f"&{pair}" for pair in request.query.split("&") if pair.partition("=")[0] != name)
        malformed = {"twice": f"{name}=1&{name}=1", "thousands": f"{name}=1&" * 2_000 + f"{name}=1"}
        malformed |= {text: f"{name}={text}" for text in ("%ff", "\xff", "%00", "%ED%A0%80", "%c0%af", "x%ff" * 5_000)}
        if not is_text(hint):
            malformed |= {text[:20]: f"{name}={text}" for text in ODD_TEXTS}
        for how, query in malformed.items():
            yield MalformedRequest(f"{name}: {how}", request._replace(query=query + others), statuses=statuses)


KEYS = ("x" * 256, "a\x07b", "a\nb", "\x1b[31m", "a\0", "a\x9bb")


@malformation
def keys(request: Request) -> Iterator[MalformedRequest]:
    if request.operation.is_repeatable:
        for key in KEYS:
            yield MalformedRequest(ascii(key)[:20], request, headers={"idempotency_key": key})


def has_declared_format(reply: Reply, operation: Operation) -> bool:
    """Whether an error has the format of its operation: a page, an error of OAuth or JSON-RPC, or the envelope."""
    if reply.headers["Content-Type"].startswith("text/html"):
        return operation.is_page and reply.raw.startswith(b"<!doctype html>")
    if operation.is_oauth and reply.status not in (404, 405):
        return set(reply.json) == {"error", "error_description"}
    if operation.is_bare and "jsonrpc" in reply.json:
        return set(reply.json) == {"jsonrpc", "id", "error"} and reply.status == 400
    return reply.error[0] == reply.status


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The log lines of the requests. Fails if there are others."""
    caplog.set_level(logging.INFO)

    def lines() -> list[str]:
        assert {record.levelname for record in caplog.records} <= {"INFO"}
        found = [record.getMessage() for record in caplog.records if record.name == "cx.requests"]
        assert [line for line in found if not LINE.fullmatch(line)] == []
        return found

    return lines


def test_original_requests_are_valid(sample_service: SampleService) -> None:
    refused = {
        "exchange_code": 400,
        "introspect_data_share": 401,
        "sign_in_browser": 400,
        "show_setup": 400,
        "create_first_admin": 400,
        "answer_consent": 400,
        "answer_device": 400,
        "get_push_topic": 404,
        "renew_push_topic": 404,
        "show_push_address": 404,
        "change_push_address": 404,
        "suggest_reply": 404,
        "suggest_text": 404,
        "store_translation": 404,
        **dict.fromkeys(("get_push_key", "subscribe_browser", "change_push_browser"), 404),
        "change_backups": 404,
        "download_backup": 404,
        **dict.fromkeys(("reveal_message", "show_read_once"), 403),
        "rate_chat_session": 400,
        "get_rating": 404,
        **dict.fromkeys(("show_verification", "verify_email", "show_unsubscription", "unsubscribe_user"), 400),
        **dict.fromkeys(("show_new_password", "set_new_password", "request_new_password"), 400),
        **dict.fromkeys(("show_forgotten_password", "request_email_verification"), 404),
    }  # codes and links are valid once; there are an admin, no backup, e-mail, AI, read-once message and ended chat
    for request in sample_service.installation.requests():
        with rolled_back(request.operation.name):
            status = sample_service.send(request).status
        assert status == refused.get(request.operation.name, request.operation.status), request


def test_thousands_of_malformed_requests_cover_all_operations(sample_service: SampleService) -> None:
    malformed = [
        one
        for request in sample_service.installation.requests()
        for malform in MALFORMATIONS.values()
        for one in malform(request)
    ]
    assert len(malformed) > 5_000
    assert {one.request.operation.name for one in malformed} == {operation.name for operation in operations()}


def fault(malformed_request: MalformedRequest, reply: Reply) -> str:
    """The fault of a response; empty if there is none."""
    operation = malformed_request.request.operation
    if reply.status not in malformed_request.statuses:
        return f"expected {malformed_request.statuses}"
    if reply.status == 200:
        return "" if "X-Request-Warning" in reply.headers else "no warning"
    if reply.status not in operation.all_statuses | COMMON_STATUSES | set(malformed_request.undeclared):
        return "not declared"
    if not has_declared_format(reply, operation) or b"Traceback" in reply.raw:
        return "wrong format"
    return "" if reply.headers["X-Content-Type-Options"] == "nosniff" else "no nosniff"


@pytest.mark.parametrize("every", [SHARE, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MALFORMATIONS)
def test_a_malformed_request_is_refused_without_side_effects(
    name: str, every: int, sample_service: SampleService, logged: Callable[[], list[str]]
) -> None:
    malformed = [one for request in sample_service.installation.requests() for one in MALFORMATIONS[name](request)][
        ::every
    ]
    faults = []
    with nothing_changes():
        for malformed_request in malformed:
            reply = sample_service.send(
                malformed_request.request, malformed_request.method, **malformed_request.headers
            )
            if wrong := fault(malformed_request, reply):
                faults.append(
                    (
                        wrong,
                        malformed_request.request.operation.name,
                        malformed_request.how,
                        reply.status,
                        reply.raw[:200],
                    )
                )
        assert faults == []
    assert len(logged()) == len(malformed)


# Paths that a server might normalize, sent over a socket.


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
def test_similar_paths_are_unknown_over_the_wire(first: str, status: int, server: Served) -> None:
    before = len(server.errors.splitlines())
    received, headers, body = raw(server, f"{first}\r\nHost: a\r\nConnection: close\r\n\r\n".encode("latin-1"))
    assert received == status
    assert envelope(body)
    assert headers["x-content-type-options"] == "nosniff"
    lines = server.logged(since=before)
    assert all(LINE.fullmatch(line.partition(" cx.requests ")[2]) for line in lines), lines
    assert len(lines) == 1
