"""From a routed request to a response: authentication, path, query, body, handler, response.

An `Endpoint` serves one operation. There is one class for each kind of response: JSON in the envelope, OAuth, media,
streams of events, and HTML pages.
"""

import functools
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVarTuple
from wsgiref.types import WSGIEnvironment

import msgspec

from service import db, translation
from service.api.event_stream import EventStream
from service.api.operations import Operation
from service.api.parameter_types import Download, HtmlPage, Media, Redirect, RequestInfo
from service.api.schemas import wire_type
from service.auth.tokens import authenticate
from service.console import layout, sign_in
from service.db import Table
from service.errors import (
    ApiError,
    BadRequest,
    BodyTooLarge,
    Forbidden,
    InsufficientScope,
    InternalError,
    InvalidId,
    InvalidParameter,
    NotFound,
    RateLimited,
    StorageUnavailable,
    Unauthenticated,
)
from service.fields import Decoded
from service.http import decoding, html_pages, multipart, pagination, responses
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
        """The steps of a request: what comes before the transaction, the handler, what comes after the commit."""
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
            request.etag = responses.etag_of(
                operation.name, bound_to, query, operation.revision(caller, *rows.values())
            )
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

    def authenticate(self, authorization: str, request_info: RequestInfo) -> Caller:
        """The caller. Raises Unauthenticated, or InsufficientScope if its token lacks the operation's scope."""
        if self.operation.accepts_cookie and not authorization:
            return sign_in.caller_of(request_info)
        caller = authenticate(authorization)
        if self.operation.scope and not caller.may(self.operation.needed_scope):
            raise InsufficientScope(self.operation.needed_scope)
        return caller

    def look_up(self, identifiers: dict[str, str], caller: Caller | None) -> dict[str, Table]:
        """The rows that the path names, by parameter of the handler.

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
        """The decoded query, and warnings where the operation ignores malformed parameters."""
        if not self.operation.query:
            return None, []
        locate = functools.partial(pagination.read, self.operation, bound_to)
        return decoding.read_query(text, self.operation.query, self.operation.is_lenient, locate)

    def read_body(self, environ: WSGIEnvironment) -> tuple[bytes, Decoded, list[str]]:
        """The raw body (of uploads, a digest), the decoded body, and warnings about ignored malformed members.

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
        """The response for what the handler returned."""
        if isinstance(result, Replay):
            body = result.body or self.encode(request, result.message)
            return Response(self.operation.status, body, request.headers | {"Idempotency-Replayed": "true"})
        response = Response(self.operation.status, self.encode(request, result), request.headers)
        if 304 in self.operation.all_statuses:
            return responses.conditional_response(response, request.if_none_match, request.etag)
        return response

    def to_stored(self, request: PreparedRequest, result: Result) -> Stored:
        """What a repetition of the request needs: the identifier of a sent message, otherwise the body."""
        if self.operation.data is wire_type(Message):
            return Stored(message_id=msgspec.json.decode(result, type=_Identified).id)
        return Stored(self.encode(request, result))

    def encode(self, request: PreparedRequest, result: object) -> bytes:
        """The body for what the handler returned."""
        return responses.success_body(self.operation, request.bound_to, request.query, result)

    def to_api_error(self, error: Exception, request_id: str) -> ApiError:
        """The error that the client gets. Unexpected exceptions are logged and become 500, a lost database 503."""
        if isinstance(error, ApiError):
            return error
        db.reconnect_after(error)
        if db.is_unavailable(error):
            log.error("the database is unavailable: %s", error)
            return StorageUnavailable()
        log.error("request %s failed", request_id, exc_info=error)
        return InternalError()

    def respond_to_error(self, error: ApiError, request_info: RequestInfo) -> Response:
        """The response for an error."""
        return responses.error_response(error, self.operation.all_statuses)


class OAuthEndpoint(Endpoint):
    """Serves an operation of OAuth: JSON without the envelope (RFC 6749, section 5)."""

    def encode(self, request: PreparedRequest, result: object) -> bytes:
        return msgspec.json.encode(result)

    def respond_to_error(self, error: ApiError, request_info: RequestInfo) -> Response:
        return responses.oauth_error_response(error)


class MediaEndpoint(Endpoint):
    """Serves an operation whose response is bytes, such as a picture."""

    def respond(self, request: PreparedRequest, result: Media) -> Response:
        return responses.media_response(result, self.operation.produces, request.if_none_match)


class EventStreamEndpoint(Endpoint):
    """Serves an operation whose response is a stream of events."""

    def respond(self, request: PreparedRequest, result: EventStream) -> Response:
        return responses.stream_response(result, self.operation.produces)


class PageEndpoint(Endpoint):
    """Serves an operation whose response is an HTML page, a redirect, or a download from a page."""

    def prepare(
        self, environ: WSGIEnvironment, identifiers: dict[str, str], request_info: RequestInfo
    ) -> PreparedRequest | Response:
        """As for every operation; the handler runs in the language of the user, and with limited lists."""
        request = super().prepare(environ, identifiers, request_info)
        if isinstance(request, PreparedRequest):
            request.language = sign_in.language_of(request_info, request.caller)
            request.run = functools.partial(html_pages.run, request.run, request.language)
        return request

    def respond(self, request: PreparedRequest, result: HtmlPage | Redirect | Download) -> Response:
        if isinstance(result, Download):
            return responses.download_response(result, self.operation.produces)
        if isinstance(result, HtmlPage) and result.page:
            query = request.query
            position = (query, query.cursor.number + 1, result.page.next_key) if query else (None, 0, ())
            result.values["next_cursor"] = pagination.make(self.operation, request.bound_to, *position)
        with translation.use(request.language):
            return html_pages.page_response(self.operation.status, result, self.settings)

    def respond_to_error(self, error: ApiError, request_info: RequestInfo) -> Response:
        """A page for navigation and malformed requests; JSON for the scripts of a page."""
        if not (request_info.is_navigation or isinstance(error, BadRequest)):
            return super().respond_to_error(error, request_info)
        info = error.info(self.operation.all_statuses)
        make_page = functools.partial(self.error_page, error, request_info)
        return html_pages.error_response(info, request_info, self.settings, make_page)

    def error_page(self, error: ApiError, request_info: RequestInfo) -> HtmlPage:
        """The sign-in page if signing in helps, otherwise a page with the message."""
        if isinstance(error, Unauthenticated | RateLimited) and not self.settings.documented_only:
            return sign_in.page_for_error(request_info, error)
        if self.operation.scope == "console":
            return layout.error_page(error.info(self.operation.all_statuses), request_info)
        problems = error.problems if isinstance(error, InvalidParameter) else ()
        return HtmlPage("consent-error.html", {"problems": problems, "message": translation.gettext(str(error))})


def endpoint_of(operation: Operation, settings: Settings, operations: Iterable[Operation]) -> Endpoint:
    """The endpoint of an operation, by the kind of its response."""
    kinds = {Media: MediaEndpoint, EventStream: EventStreamEndpoint}
    kind = PageEndpoint if operation.is_page else OAuthEndpoint if operation.is_oauth else Endpoint
    return kinds.get(operation.data, kind)(operation, settings, operations)


def _attempt(function: Callable[[*Arguments], object], *arguments: *Arguments) -> Result:
    """The return value of a function, or the exception that it raised."""
    try:
        return function(*arguments)
    except Exception as error:
        return error
