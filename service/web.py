"""From a request to an answer: one order of steps for every operation, and one envelope for whatever comes out.

The only importer of Bottle, which routes. 404, 405 and OPTIONS never reach an operation; they and every crash leave
through the same `refuse`.
"""

import functools
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import bottle
import msgspec

from service import assets, cursors, db, decoding, keeping
from service.auth.tokens import authenticate
from service.errors import (
    ANY_OPERATION,
    BodyTooLarge,
    InsufficientScope,
    InternalError,
    InvalidId,
    MethodNotAllowed,
    NotFound,
    Refusal,
    StorageUnavailable,
)
from service.fields import primary_key
from service.operations import Html, Operation, Origin
from service.settings import Settings

log = logging.getLogger("cx.requests")

PAGE_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}
JSON = {"Content-Type": "application/json"}
SECURITY_HEADERS = {"X-Content-Type-Options": "nosniff"}
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_CONTROL = re.compile(r"[^\x21-\x7e]")


@dataclass
class Reply:
    """An answer before it goes out."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def refuse(refusal: Refusal, statuses: Iterable[int] = ()) -> Reply:
    """The envelope of failure."""
    told = refusal.within(frozenset(statuses) or frozenset({refusal.status}))
    error = {"code": told.code, "message": told.message}
    headers = {**JSON, "Cache-Control": "no-store", **told.headers}
    return Reply(told.status, msgspec.json.encode({"success": False, "error": error}), headers)


class Door:
    """Carries requests to one operation and its answers back."""

    def __init__(self, operation: Operation, settings: Settings) -> None:
        self.operation, self.settings = operation, settings

    def __call__(self, **identifiers: str) -> bottle.HTTPResponse:
        try:
            reply = self.answer(identifiers)
        except Refusal as refusal:
            reply = refuse(refusal, self.operation.statuses)
        except Exception as error:
            if not db.is_unavailable(error):
                raise
            log.error("the database is unavailable: %s", error)
            reply = refuse(StorageUnavailable())
        if self.settings.verify_answers:
            self.verify(reply)
        return bottle.HTTPResponse(reply.body, reply.status, reply.headers)

    def answer(self, identifiers: dict[str, str]) -> Reply:
        """The steps of a request, in the order of the contract: caller, identifiers, things, query and body, act."""
        operation, request = self.operation, bottle.request
        given: dict[str, Any] = {"settings": self.settings}
        if not operation.public:
            given["caller"] = authenticate(request.get_header("Authorization", ""))
            if operation.scope and not given["caller"].may(operation.needed_scope):
                raise InsufficientScope(operation.needed_scope)
        found = self.look_up(identifiers, given)
        bound_to = [given["caller"].id if "caller" in given else None, *identifiers.values()]
        warnings: list[str] = []
        if operation.query:
            locate = functools.partial(cursors.read, operation, bound_to)
            text = request.environ.get("QUERY_STRING", "")
            given["query"], warnings = decoding.read_query(text, operation.query, operation.is_lenient, locate)
        raw = self.read_body() if operation.body else b""
        if operation.body:
            kind = request.get_header("Content-Type", "")
            given["body"], faults = decoding.read_body(raw, kind, operation.body, operation.is_lenient)
            warnings += faults
        given["origin"] = Origin(request.environ.get("REMOTE_ADDR", ""), request.get_header("User-Agent", ""))
        arguments = found | {name: given[name] for name in operation.wants}
        if operation.data is Html:
            return self.show(operation.handler(**arguments))
        act = functools.partial(self.act, arguments, bound_to)
        key, replayed = request.get_header("Idempotency-Key", "") if operation.status == 201 else "", False
        if key:
            asked = keeping.Asked(given["caller"].id, operation.name, key, repr(bound_to).encode() + raw)
            body, replayed = keeping.once(asked, act)
        else:
            body = act()
        headers = {**JSON, "Cache-Control": "no-store" if operation.public else "private, no-cache"}
        if warnings:
            headers["X-Request-Warning"] = _CONTROL.sub(" ", "; ".join(warnings))
        if replayed:
            headers["Idempotency-Replayed"] = "true"
        return Reply(operation.status, body, headers)

    def look_up(self, identifiers: dict[str, str], given: dict[str, Any]) -> dict[str, Any]:
        """The rows that the path names, if the caller may reach them; all identifiers are read before the first."""
        for identifier, _, table in self.operation.loads:
            try:
                identifiers[identifier] = primary_key(table).store(identifiers[identifier])
            except ValueError as error:
                raise InvalidId(f"{identifier}: {error}.") from None
        found: dict[str, Any] = {}
        for identifier, parameter, table in self.operation.loads:
            found[parameter] = table.reach(given["caller"], identifiers[identifier], *found.values())
        return found

    def show(self, page: Html) -> Reply:
        """A page, which nobody may keep, frame or make load anything from elsewhere."""
        template = (assets.folder("templates") / page.template).read_text("utf-8")
        return Reply(self.operation.status, bottle.template(template, **page.values).encode(), dict(PAGE_HEADERS))

    def act(self, arguments: dict[str, Any], bound_to: list[Any]) -> bytes:
        """The handler's result in the envelope."""
        result = self.operation.handler(**arguments)
        if not isinstance(result, db.Page):
            return msgspec.json.encode({"success": True, "data": result})
        query = arguments["query"]
        page = query.cursor.number
        values: dict[str, Any] = {
            "next_cursor": cursors.make(self.operation, bound_to, query, page + 1, result.next_key),
            "page": page,
            "per_page": getattr(query, "limit", None) or getattr(query, "per_page", None),
            **result.counts,
        }
        meta = {name: values[name] for name in self.operation.meta}
        return msgspec.json.encode({"success": True, "data": result.rows, "meta": meta})

    def read_body(self) -> bytes:
        """The bytes of the body. Raises BodyTooLarge."""
        declared = bottle.request.content_length
        raw: bytes = bottle.request.environ["wsgi.input"].read(min(max(declared, 0), self.operation.most + 1))
        if declared > self.operation.most or len(raw) > self.operation.most:
            raise BodyTooLarge(f"The body is larger than {self.operation.most} bytes.")
        return raw

    def verify(self, reply: Reply) -> None:
        """Fail on an answer that the operation does not declare: a wrong status, or data of another shape."""
        allowed = self.operation.statuses | ANY_OPERATION
        narrow = reply.status == 403 and b'"insufficient_scope"' in reply.body
        assert reply.status in allowed or narrow, f"{self.operation.name} answered {reply.status}"
        if reply.status == self.operation.status and self.operation.data is not Html:
            data = msgspec.json.decode(reply.body)["data"]
            msgspec.convert(data, self.operation.data, strict=True)


class Service:
    """The WSGI application: routing, and what holds for every answer whatever happened."""

    def __init__(self, operations: Iterable[Operation], settings: Settings) -> None:
        self.settings = settings
        self.bottle = bottle.Bottle()
        self.bottle.config["catchall"] = False
        self.bottle.default_error_handler = self.not_routed
        if not settings.documented_only:
            self.bottle.route("/static/<name:path>", "GET", self.send_static)
        taken: dict[tuple[str, str], Operation] = {}
        for operation in operations:
            place = operation.method, re.sub(r"{\w+}", "{}", operation.full_path)
            if place in taken or operation.name in {other.name for other in taken.values()}:
                raise TypeError(f"{operation.method} {operation.full_path} ({operation.name}) is declared twice")
            taken[place] = operation
            rule = re.sub(r"{(\w+)}", r"<\1>", operation.full_path)
            end = r"<:re:\Z>" if "<" in rule else ""  # Bottle's own end of a rule lets a newline follow
            self.bottle.route(rule + end, operation.method, Door(operation, settings))

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        begun = time.perf_counter()
        offered = environ.get("HTTP_X_REQUEST_ID", "")
        request_id = offered if _REQUEST_ID.fullmatch(offered) else secrets.token_hex(8)
        status = ""

        def respond(line: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            nonlocal status
            status = line[:3]
            extra = {"X-Request-ID": request_id, **SECURITY_HEADERS, **self.cross_origin(environ)}
            return start_response(line, [*headers, *extra.items()], *rest)

        try:
            # Bottle drops bytes that are not UTF-8; they must stay a fault of the path.
            path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace")
            environ["PATH_INFO"] = path.encode().decode("latin-1")
            body: Iterable[bytes] = self.bottle(environ, respond)
        except Exception:
            log.exception("request %s failed", request_id)
            body = self._send(refuse(InternalError()), respond)
            body = [] if environ["REQUEST_METHOD"] == "HEAD" else body
        method, path = (_CONTROL.sub("?", environ.get(name, "")) for name in ("REQUEST_METHOD", "PATH_INFO"))
        taken = (time.perf_counter() - begun) * 1000
        log.info("%s %s %s %.1fms %s", method, path, status, taken, request_id)
        return body

    @staticmethod
    def _send(reply: Reply, respond: Callable[..., Any]) -> Iterable[bytes]:
        headers = [*reply.headers.items(), ("Content-Length", str(len(reply.body)))]
        respond(f"{reply.status} {bottle.HTTP_CODES[reply.status]}", headers)
        return [reply.body]

    @staticmethod
    def send_static(name: str) -> bottle.HTTPResponse:
        """A part of the pages."""
        return bottle.static_file(name, root=str(assets.folder("static")))

    def not_routed(self, error: bottle.HTTPError) -> bytes:
        """Answer what Bottle's router refuses: 404, 405, and OPTIONS wherever some method is known."""
        if error.status_code not in (403, 404, 405):
            raise error.exception or error
        reply = refuse(NotFound())
        if error.status_code == 405:
            known = {*error.get_header("Allow").split(","), "OPTIONS"} - {"PROXY"}
            allow = {"Allow": ", ".join(sorted(known | ({"HEAD"} if "GET" in known else set())))}
            is_options = bottle.request.method == "OPTIONS"
            reply = Reply(204, headers=allow) if is_options else refuse(MethodNotAllowed(headers=allow))
        bottle.response.status = reply.status
        for name, value in reply.headers.items():
            bottle.response.set_header(name, value)
        return reply.body

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
            "Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key, X-Request-ID",
            "Access-Control-Expose-Headers": "X-Request-ID, X-Request-Warning, Retry-After, Idempotency-Replayed",
            "Access-Control-Max-Age": "600",
        }


def build_app(operations: Iterable[Operation], settings: Settings) -> Service:
    """The WSGI application of some operations. Raises TypeError where two of them claim one address or name."""
    return Service(operations, settings)
