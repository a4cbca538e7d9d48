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

from service import cursors, db, decoding, keeping
from service.auth.tokens import authenticate
from service.clock import read_ulid, read_uuid
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
from service.fields import Identifier, primary_key
from service.operations import Operation, Origin, PageMeta
from service.settings import Settings

log = logging.getLogger("cx.requests")

SECURITY_HEADERS = {"X-Content-Type-Options": "nosniff"}
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_CONTROL = re.compile(r"[^\x21-\x7e]")


@dataclass
class Reply:
    """An answer before it goes out."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class Success(msgspec.Struct, omit_defaults=True):
    """The envelope of success (section 2.1 of the document)."""

    success: bool
    data: Any
    meta: PageMeta | msgspec.UnsetType = msgspec.UNSET


def refuse(refusal: Refusal, statuses: Iterable[int] = ()) -> Reply:
    """The envelope of failure."""
    told = refusal.within(frozenset(statuses) or frozenset({refusal.status}))
    error = {"code": told.code, "message": told.message}
    headers = {"Content-Type": "application/json", "Cache-Control": "no-store", **told.headers}
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
        bound_to = [given["caller"].id if "caller" in given else None, *(thing.id for thing in found.values())]
        warnings: list[str] = []
        if operation.query:
            locate = functools.partial(cursors.read, operation, bound_to)
            text = request.environ.get("QUERY_STRING", "")
            given["query"], warnings = decoding.read_query(text, operation.query, operation.is_lenient, locate)
        raw = b""
        if operation.body:
            raw = self.read_body()
            given["body"] = self.decode_body(raw, warnings)
        given["origin"] = Origin(request.environ.get("REMOTE_ADDR", ""), request.get_header("User-Agent", ""))
        arguments = found | {name: given[name] for name in operation.wants}
        key = request.get_header("Idempotency-Key", "") if operation.status == 201 else ""
        if key:
            asked = keeping.Asked(given["caller"].id, operation.name, key, repr(bound_to).encode() + raw)
            status, body, replayed = keeping.once(asked, lambda: (operation.status, self.act(arguments, bound_to)))
        else:
            status, body, replayed = operation.status, self.act(arguments, bound_to), False
        headers = {"Content-Type": "application/json"}
        headers["Cache-Control"] = "no-store" if operation.public else "private, no-cache"
        if warnings:
            headers["X-Request-Warning"] = "; ".join(warnings)
        if replayed:
            headers["Idempotency-Replayed"] = "true"
        return Reply(status, body, headers)

    def look_up(self, identifiers: dict[str, str], given: dict[str, Any]) -> dict[str, Any]:
        """The rows that the path names, if the caller may reach them; all identifiers are read before the first."""
        read: list[str] = []
        for identifier, _, table in self.operation.loads:
            try:
                is_uuid = isinstance(primary_key(table), Identifier)
                read.append((read_uuid if is_uuid else read_ulid)(identifiers[identifier]))
            except ValueError as error:
                raise InvalidId(f"{identifier}: {error}.") from None
        found: dict[str, Any] = {}
        for (_, parameter, table), value in zip(self.operation.loads, read, strict=True):
            found[parameter] = table.reach(given["caller"], value, *found.values())
        return found

    def act(self, arguments: dict[str, Any], bound_to: list[Any]) -> bytes:
        """The handler's result in the envelope."""
        result = self.operation.handler(**arguments)
        if not isinstance(result, db.Page):
            return msgspec.json.encode(Success(success=True, data=result))
        query = arguments["query"]
        page = query.cursor.number
        values: dict[str, Any] = {
            "next_cursor": cursors.make(self.operation, bound_to, query, page + 1, result.next_key),
            "page": page,
            "per_page": getattr(query, "limit", None) or getattr(query, "per_page", None),
            **result.counts,
        }
        meta = PageMeta(**{name: values[name] for name in self.operation.meta})
        return msgspec.json.encode(Success(success=True, data=result.rows, meta=meta))

    def read_body(self) -> bytes:
        """The bytes of the body. Raises BodyTooLarge."""
        declared = bottle.request.content_length
        raw: bytes = bottle.request.environ["wsgi.input"].read(min(max(declared, 0), self.operation.most + 1))
        if declared > self.operation.most or len(raw) > self.operation.most:
            raise BodyTooLarge(f"The body is larger than {self.operation.most} bytes.")
        return raw

    def decode_body(self, raw: bytes, warnings: list[str]) -> Any:
        """The body as the declared type; on a lenient operation an unreadable one selects nothing."""
        kind = self.operation.body
        if raw.strip() in (b"", b"null") and decoding.may_be_empty(kind):
            return kind()
        try:
            decoding.expect_json(bottle.request.get_header("Content-Type", ""))
            return decoding.read_body(raw, kind)
        except Refusal as fault:
            if not self.operation.is_lenient:
                raise
            warnings.append(f"body: {_CONTROL.sub(' ', str(fault))}")
            return kind.nothing()

    def verify(self, reply: Reply) -> None:
        """Fail on an answer that the operation does not declare: a wrong status, or data of another shape."""
        allowed = self.operation.statuses | ANY_OPERATION
        narrow = reply.status == 403 and b'"insufficient_scope"' in reply.body
        assert reply.status in allowed or narrow, f"{self.operation.name} answered {reply.status}"
        if reply.status == self.operation.status:
            data = msgspec.json.decode(reply.body)["data"]
            msgspec.convert(data, self.operation.data, strict=True)


Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Service:
    """The WSGI application: routing, and what holds for every answer whatever happened."""

    def __init__(self, operations: Iterable[Operation], settings: Settings) -> None:
        self.settings = settings
        self.bottle = bottle.Bottle()
        self.bottle.config["catchall"] = False
        self.bottle.default_error_handler = self.not_routed
        taken: dict[tuple[str, str], Operation] = {}
        for operation in operations:
            place = operation.method, re.sub(r"{\w+}", "{}", operation.full_path)
            if place in taken or operation.name in {other.name for other in taken.values()}:
                raise TypeError(f"{operation.method} {operation.full_path} ({operation.name}) is declared twice")
            taken[place] = operation
            rule = re.sub(r"{(\w+)}", r"<\1>", operation.full_path)
            self.bottle.route(rule, operation.method, Door(operation, settings))

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
            environ["PATH_INFO"].encode("latin-1").decode("utf-8")
            body: Iterable[bytes] = self.bottle(environ, respond)
        except UnicodeError:
            body = self._send(refuse(NotFound()), respond)
        except Exception:
            log.exception("request %s failed", request_id)
            body = self._send(refuse(InternalError()), respond)
        path = _CONTROL.sub("?", environ.get("PATH_INFO", ""))
        taken = (time.perf_counter() - begun) * 1000
        log.info("%s %s %s %.1fms %s", environ.get("REQUEST_METHOD"), path, status, taken, request_id)
        return body

    @staticmethod
    def _send(reply: Reply, respond: Callable[..., Any]) -> Iterable[bytes]:
        headers = [*reply.headers.items(), ("Content-Length", str(len(reply.body)))]
        respond(f"{reply.status} {bottle.HTTP_CODES[reply.status]}", headers)
        return [reply.body]

    def not_routed(self, error: bottle.HTTPError) -> bytes:
        """Answer what Bottle's router refuses: 404, 405, and OPTIONS wherever some method is known."""
        if error.status_code not in (404, 405):
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
