"""The endpoint of the MCP server: from a request to a response; operations are called as the HTTP API calls them."""

import dataclasses
import functools
import io
from collections.abc import Iterable
from urllib.parse import urlencode, urlsplit
from wsgiref.types import WSGIEnvironment

import msgspec
from msgspec import UNSET, UnsetType

from service.api.operations import Operation
from service.api.parameter_types import RequestInfo
from service.errors import ApiError, BodyTooLarge, InvalidJson, OriginNotAllowed
from service.http import decoding
from service.http.endpoint_kinds import endpoint_of
from service.http.endpoints import Endpoint, PreparedRequest
from service.http.middleware import run
from service.http.responses import JSON, Response
from service.mcp import protocol
from service.mcp.methods import Session, call_of
from service.mcp.protocol import ErrorContent, RpcError, RpcMessage, RpcReply
from service.mcp.resources import CHATS, RESOURCES
from service.mcp.tools import TOOLS, BoundTool, Call
from service.settings import Settings
from service.validators import byte_size

LOOPBACK = ("localhost", "127.0.0.1", "::1")
METADATA = "/.well-known/oauth-protected-resource"

# Headers that are about the message of the protocol, not about the operation.
_OWN_HEADERS = ("HTTP_ACCEPT_ENCODING", "HTTP_IF_NONE_MATCH", "HTTP_IDEMPOTENCY_KEY", "HTTP_COOKIE", "cx.route")
_OWN_FUNCTIONS = ("cx.open_stream", "cx.reserve_memory", "cx.long_poll")


class McpEndpoint(Endpoint):
    """Serves the operation that is the MCP server."""

    def __init__(self, operation: Operation, settings: Settings, operations: Iterable[Operation]) -> None:
        super().__init__(operation, settings, operations)
        self._operations = operations

    @functools.cached_property
    def operations(self) -> dict[str, Operation]:
        """The operations that are called, by name. They are as in the API, but for tokens of the MCP server."""
        called = {CHATS, *(one.operation for one in (*TOOLS, *RESOURCES))}
        chosen = (one for one in self._operations if one.name in called)
        return {one.name: dataclasses.replace(one, resource=self.operation.resource) for one in chosen}

    @functools.cached_property
    def tools(self) -> dict[str, BoundTool]:
        """The tools by name."""
        return {tool.name: BoundTool(tool, self.operations[tool.operation]) for tool in TOOLS}

    def prepare(
        self, environ: WSGIEnvironment, identifiers: dict[str, str], request_info: RequestInfo
    ) -> PreparedRequest | Response:
        """Check origin and token, and read the message. Returns the response to a notification or a wrong message."""
        self._expect_known_origin(environ, request_info)
        caller = self.authenticate(environ.get("HTTP_AUTHORIZATION", ""), request_info)
        environ["cx.user"] = caller.id
        try:
            message = protocol.read_message(self._read_value(environ))
        except RpcError as error:
            return _error_response(error, error.id, 400)
        environ["cx.operation"] = self.operation.labels[call_of(message)]
        try:
            version = protocol.version_of(message, environ)
        except RpcError as error:
            return _error_response(error, None if message.id is UNSET else message.id, 400)
        if message.id is UNSET:
            return Response(202, headers={"Cache-Control": "no-store"})
        session = Session(caller, version, self.tools, self.operations, functools.partial(self._call, environ))
        answer = functools.partial(self._answer, session, message)
        return PreparedRequest([caller.id], None, "", {}, caller, run=answer)

    def _expect_known_origin(self, environ: WSGIEnvironment, request_info: RequestInfo) -> None:
        """Raise OriginNotAllowed for a page of another site (DNS rebinding).

        The name of the host counts only if it cannot be rebound: it is configured, or names this computer.
        """
        origin, site = environ.get("HTTP_ORIGIN", ""), request_info.base_url
        is_own = origin == site and (self.settings.public_url or urlsplit(site).hostname in LOOPBACK)
        if origin and not is_own and origin not in self.settings.allow_origin:
            raise OriginNotAllowed

    def _read_value(self, environ: WSGIEnvironment) -> object:
        """Return the JSON value of the body. Raises BodyTooLarge and RpcError."""
        length = int(environ.get("CONTENT_LENGTH") or 0)
        if length > self.operation.max_body:
            raise BodyTooLarge(f"The body is larger than {byte_size(self.operation.max_body)}.")
        try:
            decoding.expect_json(environ.get("CONTENT_TYPE", ""))
            return decoding.read_value(environ["wsgi.input"].read(length))
        except InvalidJson as error:
            raise RpcError(protocol.PARSE_ERROR, str(error)) from None

    def _answer(self, session: Session, message: RpcMessage) -> Response:
        """Return the response to a request. Raises ApiError where the token is not sufficient."""
        try:
            reply = self.operation.handler(body=message, mcp=session)
        except RpcError as error:
            return _error_response(error, message.id, protocol.status_of(error.number, session.version))
        return _json_response(200, reply)

    def _call(self, environ: WSGIEnvironment, name: str, call: Call) -> Response:
        """Return the response of an operation to this request's user. It takes the same steps as in the API."""
        operation = self.operations[name]
        body = msgspec.json.encode(call.body) if operation.body else b""
        own = {key: value for key, value in environ.items() if key not in (*_OWN_HEADERS, *_OWN_FUNCTIONS)}
        own |= {
            "REQUEST_METHOD": operation.method,
            "PATH_INFO": operation.full_path,
            "QUERY_STRING": urlencode(call.query),
            "CONTENT_TYPE": "application/json" if body else "",
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body),
            **({"HTTP_IDEMPOTENCY_KEY": call.key} if call.key else {}),
        }
        return run(endpoint_of(operation, self.settings, self._operations)(own, call.identifiers))

    def respond(self, request: PreparedRequest, result: Response) -> Response:
        return result

    def respond_to_error(self, error: ApiError, request_info: RequestInfo) -> Response:
        """Return the response for an error; challenges name the metadata of this resource (RFC 9728, section 5.1)."""
        response = super().respond_to_error(error, request_info)
        if "WWW-Authenticate" in response.headers:
            scheme, _, rest = response.headers["WWW-Authenticate"].partition(" ")
            metadata = f'resource_metadata="{request_info.base_url}{METADATA}{self.operation.resource}"'
            response.headers["WWW-Authenticate"] = f"{scheme} " + ", ".join(filter(None, (rest, metadata)))
        return response


def _error_response(error: RpcError, id: protocol.Id | UnsetType | None, status: int) -> Response:
    content = ErrorContent(error.number, str(error), error.data)
    return _json_response(status, RpcReply(id, error=content))


def _json_response(status: int, reply: object) -> Response:
    return Response(status, msgspec.json.encode(reply), {**JSON, "Cache-Control": "private, no-cache"})
