"""Messages of the Model Context Protocol: JSON-RPC 2.0 requests and notifications, versions, errors.

Revisions before 2026-07-28 begin with a handshake (`initialize`). In later ones, every request has its version in
`_meta`, and in headers what proxies need to know.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from service.api.parameter_types import BareBody
from service.types import JsonObject, JsonValue

HANDSHAKE_VERSIONS = ("2025-06-18", "2025-11-25")
VERSIONS = (*HANDSHAKE_VERSIONS, "2026-07-28")

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022
RESOURCE_NOT_FOUND = -32002  # before 2026-07-28; then INVALID_PARAMS

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"
NAMED_BY = {"tools/call": "name", "resources/read": "uri"}  # the member that the header Mcp-Name repeats

_LARGEST_ID = 2**53 - 1  # of integers that every client can represent
_ENCODED = re.compile(r"=\?base64\?(.*)\?=", re.ASCII)

Id = str | int


class RpcError(Exception):
    """Ends a request with an error of JSON-RPC."""

    def __init__(self, number: int, message: str, data: JsonValue = None, *, id: Id | None = None) -> None:
        super().__init__(message)
        self.number, self.data, self.id = number, data, id


class RpcMessage(Struct):
    """A request or a notification of the client (JSON-RPC 2.0, section 4)."""

    jsonrpc: Literal["2.0"]
    method: str
    params: JsonObject = {}
    id: Annotated[Id, Meta(description="Notifications have none.")] | UnsetType = UNSET

    @property
    def meta(self) -> JsonObject:
        """The member `_meta` of the parameters."""
        found = self.params.get("_meta")
        return found if isinstance(found, dict) else {}

    def text(self, name: str) -> str:
        """Return a parameter that is a text. Raises RpcError."""
        found = self.params.get(name)
        if not isinstance(found, str):
            raise RpcError(INVALID_PARAMS, f"params.{name}: expected a text")
        return found


class ErrorContent(Struct, omit_defaults=True):
    """An error (JSON-RPC 2.0, section 5.1)."""

    code: int
    message: str
    data: JsonValue = None


class RpcReply(BareBody):
    """The response to a request (JSON-RPC 2.0, section 5)."""

    id: Id | UnsetType | None
    jsonrpc: Literal["2.0"] = "2.0"
    result: JsonObject | UnsetType = UNSET
    error: ErrorContent | UnsetType = UNSET


def read_message(value: JsonValue) -> RpcMessage:
    """Return a message. Raises RpcError; batches, which no served revision has, and responses are errors as well."""
    if not isinstance(value, dict):
        raise RpcError(INVALID_REQUEST, "Expected one JSON-RPC request or notification, as an object.")
    id = value.get("id", UNSET)
    is_number = type(id) is int and abs(id) <= _LARGEST_ID
    if id is not UNSET and not is_number and not isinstance(id, str):
        raise RpcError(INVALID_REQUEST, "id: expected a text or an integer.")
    known = None if id is UNSET else id
    if value.get("jsonrpc") != "2.0" or not isinstance(value.get("method"), str):
        raise RpcError(INVALID_REQUEST, 'Expected the members "jsonrpc": "2.0" and "method".', id=known)
    params = value.get("params", {})
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "params: expected an object.", id=known)
    if id is UNSET and not value["method"].startswith("notifications/"):
        raise RpcError(INVALID_REQUEST, "id: required.")
    return RpcMessage("2.0", value["method"], params, id)


def version_of(message: RpcMessage, environ: Mapping[str, object]) -> str:
    """Return the version of a message.

    Raises RpcError for an unsupported one, and for headers that contradict the message.

    Without a header it is the first one, whose clients need not send it before the handshake.
    """
    header = str(environ.get("HTTP_MCP_PROTOCOL_VERSION", ""))
    requested = message.meta.get(VERSION_KEY, header or VERSIONS[0])
    if VERSION_KEY in message.meta and message.id is not UNSET:
        _expect_headers(message, environ)
    if requested not in VERSIONS:
        data: JsonObject = {"supported": list(VERSIONS), "requested": requested}
        raise RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
    has_meta = VERSION_KEY in message.meta and isinstance(message.meta.get(CAPABILITIES_KEY), dict)
    if requested not in HANDSHAKE_VERSIONS and message.id is not UNSET and not has_meta:
        raise RpcError(INVALID_PARAMS, f"params._meta: expected {VERSION_KEY} and {CAPABILITIES_KEY}.")
    return str(requested)


def _expect_headers(message: RpcMessage, environ: Mapping[str, object]) -> None:
    """Raise RpcError unless the headers repeat version, method and name of a request."""
    expected = {"MCP-Protocol-Version": message.meta[VERSION_KEY], "Mcp-Method": message.method}
    if message.method in NAMED_BY:
        expected["Mcp-Name"] = message.params.get(NAMED_BY[message.method])
    for name, value in expected.items():
        given = str(environ.get(f"HTTP_{name.upper().replace('-', '_')}", ""))
        if (_decoded(given) if name == "Mcp-Name" else given) != value:
            raise RpcError(HEADER_MISMATCH, f"Header mismatch: {name} is not that of the message.")


def _decoded(header: str) -> str:
    """Return the value of a header that may be encoded (streamable HTTP, section "Value Encoding")."""
    encoded = _ENCODED.fullmatch(header)
    try:
        return base64.b64decode(encoded[1], validate=True).decode() if encoded else header
    except (binascii.Error, UnicodeDecodeError):
        return ""


def status_of(number: int, version: str) -> int:
    """Return the HTTP status of an error in the response to a request."""
    if number in (PARSE_ERROR, INVALID_REQUEST, HEADER_MISMATCH, UNSUPPORTED_VERSION):
        return 400
    if version in HANDSHAKE_VERSIONS:
        return 200
    return {METHOD_NOT_FOUND: 404, INVALID_PARAMS: 400}.get(number, 200)
