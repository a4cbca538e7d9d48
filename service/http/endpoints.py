"""From a routed request to a response: authentication, path, query, body, handler, response.

An `Endpoint` serves one operation. Its response is JSON in the envelope; `endpoint_kinds` has the other kinds.
"""

import functools
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVarTuple
from wsgiref.types import WSGIEnvironment

import msgspec

from service import db
from service.api.operations import Operation
from service.api.parameter_types import RequestInfo
from service.api.schemas import wire_type
from service.auth.tokens import authenticate
from service.console import sign_in
from service.db import Table
from service.errors import (
    ApiError,
    BodyTooLarge,
    Forbidden,
    InsufficientScope,
    InternalError,
    InvalidId,
    NotFound,
    StorageUnavailable,
)
from service.fields import Decoded
from service.http import decoding, multipart, pagination, responses
from service.http.client_address import read_request_info
from service.http.compression import compress
from service.http.middleware import Steps
from service.http.responses import JSON, Response
from service.models import Message
from service.models.callers import Caller
from service.models.idempotency_keys import KeyedRequest, Replay, Stored, run_once
from service.settings import Settings
from service.validators import byte_size

log = logging.getLogger("cx.requests")

_UNSENDABLE = re.compile(r"[^\x20-\x7e]")  # in a header

Arguments = TypeVarTuple("Arguments")
Result: TypeAlias = Any  # of a step or a handler; the kind of endpoint determines its type


@dataclass(slots=True)
class PreparedRequest:
    """A request that is authenticated and decoded; `run` calls the handler."""

    bound_to: list[object]  # the caller and the identifiers of the path; cursors are valid for these only
    query: Decoded
    if_none_match: str
    headers: dict[str, str]  # of the response
    caller: Caller | None = None
    language: str = ""  # of a page
    etag: str = ""  # derived from the operation's revision
    run: Callable[[], object] = lambda: None


class _Identified(msgspec.Struct):
    id: str


class Endpoint:
    """Serves an operation whose response is JSON in the envelope."""

    def __init__(self, operation: Operation, settings: Settings, operations: Iterable[Operation]) -> None:
        self.operation, self.settings = operation, settings
        self.constants = {"settings": settings, "operations": operations}  # parameters that are the same every time

    def __call__(self, environ: WSGIEnvironment, identifiers: dict[str, str]) -> Steps[Response]:
        """Return the steps of a request: what comes before the transaction, the handler, what comes after it."""
        request_info = read_request_info(environ, self.settings)
        environ |= {"cx.operation": self.operation.name, "cx.client": request_info.address}  # for the log
        request = outcome = _attempt(self.prepare, environ, identifiers.copy(), request_info)
        if isinstance(request, PreparedRequest):
            yield
            outcome = _attempt(request.run)
            failure = yield
            outcome = failure or outcome
            if not isinstance(outcome, Exception):
                outcome = _attempt(self.respond, request, outcome)
        if isinstance(outcome, Response) and self.operation.scope != "console":
            outcome = compress(environ, outcome)
        if isinstance(outcome, Response) and len(outcome.body) > responses.LARGE:
            outcome = _attempt(responses.reserve_memory, environ, outcome)
        if isinstance(outcome, Response):
            response = outcome
        else:
            response = self.respond_to_error(self.to_api_error(outcome, environ["cx.request_id"]), request_info)
        if self.settings.verify_answers:
            responses.verify_declared(self.operation, response)
        return response

    def prepare(
        self, environ: WSGIEnvironment, identifiers: dict[str, str], request_info: RequestInfo
    ) -> PreparedRequest | Response:
        """Authenticate the caller, look up the rows of the path, decode the query and the body, in this order.

        Returns a 304 response if the client's copy is current.
        """
        operation = self.operation
        caller = None if operation.public else self.authenticate(environ.get("HTTP_AUTHORIZATION", ""), request_info)
        environ["cx.user"] = caller.id if caller else ""
        rows = self.look_up(identifiers, caller)
        if operation.admin_only and caller and caller.role != "admin":
            raise Forbidden(not_found=NotFound)
        bound_to: list[object] = [caller and caller.id, *identifiers.values()]
        query, warnings = self.read_query(environ.get("QUERY_STRING", ""), bound_to)
        raw, body, body_warnings = self.read_body(environ)
        headers = {**JSON, "Cache-Control": "no-store" if operation.public else "private, no-cache"}
        request = PreparedRequest(bound_to, query, environ.get("HTTP_IF_NONE_MATCH", ""), headers, caller)
        if warnings or body_warnings:
            request.headers["X-Request-Warning"] = _UNSENDABLE.sub(" ", "; ".join(warnings + body_warnings))
        if operation.revision:
            revision = operation.revision(caller, *rows.values())
            request.etag = responses.etag_of(operation.name, bound_to, query, revision)
            response = Response(operation.status, headers=request.headers)
            response = responses.conditional_response(response, request.if_none_match, request.etag)
            if response.status == 304:
                return response
        arguments = {**self.constants, "caller": caller, "query": query, "body": body, "request_info": request_info}
        if operation.prepare:
            known = arguments | rows
            arguments["prepared"] = operation.prepare(**{name: known[name] for name in operation.prepare_parameters})
        handle = functools.partial(
            operation.handler, **rows, **{name: arguments[name] for name in operation.parameters}
        )
        request.run = functools.partial(db.retry_on_conflict, handle)
        key = environ.get("HTTP_IDEMPOTENCY_KEY", "")
        if key and caller and operation.status == 201:
            keyed = KeyedRequest(caller.id, operation.name, key, repr(bound_to).encode() + raw)
            act = functools.partial(run_once, keyed, handle, functools.partial(self.to_stored, request))
            request.run = functools.partial(db.retry_on_conflict, act)
        return request

    def authenticate(self, authorization: str, request_info: RequestInfo) -> Result:
        """Return the caller, or what the operation's `basic` returns.

        Raises Unauthenticated, or InsufficientScope if the token lacks the operation's scope.
        """
        if self.operation.accepts_cookie and not authorization:
            return sign_in.caller_of(request_info)
        if self.operation.basic and authorization.lower().startswith("basic "):
            return self.operation.basic(authorization)
        caller = authenticate(authorization, self.operation.resource)
        if self.operation.scope and not caller.may(self.operation.needed_scope):
            raise InsufficientScope(self.operation.needed_scope)
        return caller

    def look_up(self, identifiers: dict[str, str], caller: Caller | None) -> dict[str, Table]:
        """Return the rows that the path names, by parameter of the handler.

        All identifiers are validated before the first row is read. Raises InvalidId, and the errors of `get_for`.
        """
        for identifier, _, table in self.operation.path_rows:
            try:
                identifiers[identifier] = table.path_column().to_stored(identifiers[identifier])
            except ValueError as error:
                raise InvalidId(f"{identifier}: {error}.") from None
        rows: dict[str, Table] = {}
        for identifier, parameter, table in self.operation.path_rows:
            rows[parameter] = table.get_for(caller, identifiers[identifier], *rows.values())
        return rows

    def read_query(self, text: str, bound_to: list[object]) -> tuple[Decoded, list[str]]:
        """Return the decoded query, and warnings where the operation ignores malformed parameters."""
        if not self.operation.query:
            return None, []
        locate = functools.partial(pagination.read, self.operation, bound_to)
        return decoding.read_query(text, self.operation.query, self.operation.is_lenient, locate)

    def read_body(self, environ: WSGIEnvironment) -> tuple[bytes, Decoded, list[str]]:
        """Return the raw body (of uploads, a digest), the decoded body, and warnings about ignored malformed members.

        Raises BodyTooLarge and the errors of decoding.
        """
        kind, content_type = self.operation.body, environ.get("CONTENT_TYPE", "")
        length = int(environ.get("CONTENT_LENGTH") or 0)  # counted by the server, which stores no body over the limit
        if length > self.operation.max_body:
            raise BodyTooLarge(f"The body is larger than {byte_size(self.operation.max_body)}.")
        if not kind:
            return b"", None, []
        if self.operation.accepts == "multipart/form-data":
            upload = multipart.read_upload(environ["wsgi.input"].read, length, content_type, kind)
            return multipart.digest(upload), upload, []
        raw: bytes = environ["wsgi.input"].read(length)
        if self.operation.accepts == "application/x-www-form-urlencoded":
            return raw, decoding.read_form(raw, content_type, kind), []
        return raw, *decoding.read_body(raw, content_type, kind, self.operation.is_lenient)

    def respond(self, request: PreparedRequest, result: Result) -> Response:
        """Return the response for what the handler returned."""
        if isinstance(result, Replay):
            body = result.body or self.encode(request, result.message)
            return Response(self.operation.status, body, request.headers | {"Idempotency-Replayed": "true"})
        response = Response(self.operation.status, self.encode(request, result), request.headers)
        if 304 in self.operation.all_statuses:
            return responses.conditional_response(response, request.if_none_match, request.etag)
        return response

    def to_stored(self, request: PreparedRequest, result: Result) -> Stored:
        """Return what a repetition of the request needs: the identifier of a sent message, otherwise the body."""
        if self.operation.data is wire_type(Message):
            return Stored(message_id=msgspec.json.decode(result, type=_Identified).id)
        return Stored(self.encode(request, result))

    def encode(self, request: PreparedRequest, result: object) -> bytes:
        """Return the body for what the handler returned."""
        return responses.success_body(self.operation, request.bound_to, request.query, result)

    def to_api_error(self, error: Exception, request_id: str) -> ApiError:
        """Return the error that the client gets.

        Unexpected exceptions are logged and become 500, a lost database 503.
        """
        if isinstance(error, ApiError):
            return error
        db.reconnect_after(error)
        if db.is_unavailable(error):
            log.error("the database is unavailable: %s", error)
            return StorageUnavailable()
        log.error("request %s failed", request_id, exc_info=error)
        return InternalError()

    def respond_to_error(self, error: ApiError, request_info: RequestInfo) -> Response:
        """Return the response for an error."""
        return responses.error_response(error, self.operation.all_statuses)


def _attempt(function: Callable[[*Arguments], object], *arguments: *Arguments) -> Result:
    """Return the return value of a function, or the exception that it raised."""
    try:
        return function(*arguments)
    except Exception as error:
        return error
