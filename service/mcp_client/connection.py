"""A connection to an MCP server: it lists the tools, and calls them (MCP, Streamable HTTP).

All requests of a connection end within TIMEOUT. Answers are JSON, or a stream of events of which one has the answer.
Servers can send requests and notifications in such a stream; they are ignored, because this client offers them nothing.

A connection begins with the handshake `initialize`. If the server refuses it, as those do that speak only revisions
without one, every request has its version in `_meta`, and in headers what proxies need to know.
"""

import base64
import contextlib
import http.client
import time
from collections.abc import Iterator
from typing import Annotated, Self, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from service import version
from service.http_client import Limits, RequestError, is_printable
from service.mcp_client.servers import McpServer
from service.types import JsonObject

TIMEOUT = 10.0  # seconds, for all requests of a connection
CONNECT_TIMEOUT = 5.0  # seconds
CLOSE_TIMEOUT = 1.0  # seconds
MAX_RESULT = 32 * 1024  # bytes of the response to a call, including its header
MAX_LIST = 256 * 1024  # bytes of a page of the list of tools
MAX_PAGES = 8
MAX_TOOLS = 64
MAX_SESSION_ID = 1024  # characters
HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")  # of the protocol, preferred first
VERSION_WITHOUT_HANDSHAKE = "2026-07-28"
VERSIONS = (VERSION_WITHOUT_HANDSHAKE, *HANDSHAKE_VERSIONS)
METHOD_NOT_FOUND, INVALID_PARAMS, HEADER_MISMATCH, UNSUPPORTED_VERSION = -32601, -32602, -32020, -32022
REFUSALS = (METHOD_NOT_FOUND, INVALID_PARAMS, HEADER_MISMATCH, UNSUPPORTED_VERSION)  # of the handshake
CLIENT = {"name": "cx-service", "version": version.VERSION}
NO_COMMON_VERSION = f"the server speaks none of the revisions {', '.join(VERSIONS)} of the protocol"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION_WITHOUT_HANDSHAKE,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": CLIENT,
}
JSON_TYPE, EVENT_STREAM = "application/json", "text/event-stream"

Result = TypeVar("Result", bound="_Result")


class McpError(Exception):
    """The server has not answered as the protocol says. The text has no part of its answer, and may be logged."""


class _VersionRefused(McpError):
    """The server does not speak the revision of a request."""

    def __init__(self) -> None:
        super().__init__(NO_COMMON_VERSION)


class Annotations(Struct, rename="camel"):
    """What a server says about a tool. It may be untrue."""

    read_only_hint: bool = False


class Tool(Struct, rename="camel"):
    """A tool of a server, with the JSON schema of its arguments."""

    name: Annotated[str, Meta(min_length=1, max_length=255)]
    input_schema: JsonObject
    description: str = ""
    annotations: Annotations | None = None

    @property
    def only_reads(self) -> bool:
        """Whether the server says that the tool changes nothing."""
        return self.annotations is not None and self.annotations.read_only_hint


class ToolResult(Struct):
    """The result of a call: its text, and whether the tool failed."""

    text: str
    is_error: bool


class _Result(Struct, rename="camel", kw_only=True):
    result_type: str = "complete"  # revisions with a handshake have no others


class _Initialized(_Result, rename="camel"):
    protocol_version: str


class _ToolPage(_Result, rename="camel"):
    tools: list[Tool]
    next_cursor: str | None = None


class _Content(Struct):
    type: str
    text: str = ""


class _Called(_Result, rename="camel"):
    content: list[_Content] = []
    structured_content: Raw = Raw(b"")
    is_error: bool = False


class _Error(Struct):
    code: int


class _Answer(Struct):
    """A response of JSON-RPC; other messages have no `result` and no `error`."""

    id: int | str | None = None
    result: Raw = Raw(b"")
    error: _Error | None = None


class Connection:
    """A session with a server, during a `with` block. Each method raises McpError."""

    def __init__(self, server: McpServer) -> None:
        self._server, self._number, self._end_by = server, 0, time.monotonic() + TIMEOUT
        self._has_handshake = True
        self._headers = {"Content-Type": JSON_TYPE, "Accept": f"{JSON_TYPE}, {EVENT_STREAM}"}
        self._headers |= {"Authorization": f"Bearer {server.token}"} if server.token else {}

    def __enter__(self) -> Self:
        try:
            self._shake_hands()
        except _VersionRefused:
            self._has_handshake = False
        return self

    def _shake_hands(self) -> None:
        parameters = {"protocolVersion": HANDSHAKE_VERSIONS[0], "capabilities": {}, "clientInfo": CLIENT}
        found = self._request("initialize", parameters, MAX_RESULT, _Initialized)
        if found.protocol_version not in HANDSHAKE_VERSIONS:
            raise McpError(NO_COMMON_VERSION)
        self._headers["MCP-Protocol-Version"] = found.protocol_version
        with self._post({"method": "notifications/initialized"}, MAX_RESULT):
            pass

    def __exit__(self, *_: object) -> None:
        """End the session at the server, if it has one. Errors are ignored: sessions expire."""
        if "Mcp-Session-Id" in self._headers:
            limits = Limits(connect=CLOSE_TIMEOUT, total=CLOSE_TIMEOUT, max_bytes=MAX_RESULT)
            address = self._server.address
            with contextlib.suppress(RequestError), address.request("DELETE", address.path, b"", self._headers, limits):
                pass

    def tools(self) -> list[Tool]:
        """Return the tools of the server, at most MAX_TOOLS.

        In the revision without a handshake, tools are left out whose arguments must be repeated in headers.
        """
        found, parameters = list[Tool](), dict[str, object]()
        for _ in range(MAX_PAGES):
            page = self._request("tools/list", parameters, MAX_LIST, _ToolPage)
            found += (tool for tool in page.tools if self._has_handshake or not _needs_headers(tool))
            if page.next_cursor is None or len(found) >= MAX_TOOLS:
                break
            parameters = {"cursor": page.next_cursor}
        if len({tool.name for tool in found}) < len(found):
            raise McpError("two tools have the same name")
        return found[:MAX_TOOLS]

    def call(self, name: str, arguments: JsonObject) -> ToolResult:
        """Call a tool. Contents other than text are named only."""
        called = self._request("tools/call", {"name": name, "arguments": arguments}, MAX_RESULT, _Called)
        parts = [part.text if part.type == "text" else f"[{part.type}]" for part in called.content]
        return ToolResult("\n".join(parts) or bytes(called.structured_content).decode(), called.is_error)

    def _request(self, method: str, parameters: JsonObject, max_bytes: int, type: type[Result]) -> Result:
        self._number += 1
        if not self._has_handshake:
            parameters = parameters | {"_meta": META}
        message = {"id": self._number, "method": method, "params": parameters}
        with self._post(message, max_bytes) as response:
            answer = self._answer_in(response, max_bytes)
            session_id = response.headers.get("Mcp-Session-Id", "")
        if answer.error:
            raise _VersionRefused if _refuses_version(message, answer) else McpError(f"error {answer.error.code}")
        if method == "initialize" and session_id:
            if not is_printable(session_id) or len(session_id) > MAX_SESSION_ID:
                raise McpError("the identifier of the session is not valid")
            self._headers["Mcp-Session-Id"] = session_id
        try:
            result = msgspec.json.decode(answer.result, type=type)
        except (ValueError, RecursionError):
            raise McpError(f"the result of {method} is not valid") from None
        if result.result_type != "complete":
            raise McpError(f"the server needs more than the request {method}")
        return result

    @contextlib.contextmanager
    def _post(self, message: JsonObject, max_bytes: int) -> Iterator[http.client.HTTPResponse]:
        """Send a message. The response has a status 2xx, and is open during the block."""
        content = msgspec.json.encode({"jsonrpc": "2.0"} | message)
        limits = Limits(connect=CONNECT_TIMEOUT, total=self._end_by - time.monotonic(), max_bytes=max_bytes)
        address = self._server.address
        try:
            with address.post(address.path, content, self._headers | self._routing(message), limits) as response:
                if 300 <= response.status < 400:
                    raise McpError(f"redirect with status {response.status}, which is not followed")
                if not 200 <= response.status < 300:
                    is_about_version = response.status in (400, 404) and _refuses_version(message, _read(response))
                    raise _VersionRefused if is_about_version else McpError(f"status {response.status}")
                yield response
        except RequestError as error:
            raise McpError(str(error)) from None

    def _routing(self, message: JsonObject) -> dict[str, str]:
        """Return the headers that repeat a message for proxies, in the revision without a handshake."""
        if self._has_handshake:
            return {}
        headers = {"MCP-Protocol-Version": VERSION_WITHOUT_HANDSHAKE, "Mcp-Method": message["method"]}
        return headers | ({"Mcp-Name": _encoded(message["params"]["name"])} if "name" in message["params"] else {})

    def _answer_in(self, response: http.client.HTTPResponse, max_bytes: int) -> _Answer:
        """Return the response to the last request."""
        is_stream = response.headers.get_content_type() == EVENT_STREAM
        for message in _events_in(response, max_bytes) if is_stream else [response.read(max_bytes)]:
            try:
                answer = msgspec.json.decode(message, type=_Answer)
            except (ValueError, RecursionError):
                raise McpError("the response is not a message of JSON-RPC") from None
            if answer.id == self._number and (answer.error or answer.result):
                return answer
        raise McpError("the response ends without an answer" if is_stream else "the response is not an answer")


def _read(response: http.client.HTTPResponse) -> _Answer:
    """Return the message in a response with an error status; an empty one if there is none."""
    try:
        return msgspec.json.decode(response.read(MAX_RESULT), type=_Answer)
    except (ValueError, RecursionError):
        return _Answer()


def _refuses_version(message: JsonObject, answer: _Answer) -> bool:
    """Return whether a server refuses the revision of a message: of the handshake, any refusal may be about it."""
    code = answer.error.code if answer.error else 0
    return code in REFUSALS if message["method"] == "initialize" else code == UNSUPPORTED_VERSION


def _encoded(name: str) -> str:
    """Return the name of a tool as the value of a header (streamable HTTP, section "Value Encoding")."""
    if is_printable(name) and not name.startswith("=?base64?"):
        return name
    return f"=?base64?{base64.b64encode(name.encode()).decode()}?="


def _needs_headers(tool: Tool) -> bool:
    """Return whether a tool has arguments that must be repeated in headers, which this client does not do."""
    return b'"x-mcp-header"' in msgspec.json.encode(tool.input_schema)


def _events_in(response: http.client.HTTPResponse, max_bytes: int) -> Iterator[bytes]:
    """Yield the data of the events of a stream (WHATWG HTML, 9.2.6); an event that is cut off is discarded."""
    data = list[bytes]()
    while line := response.readline(max_bytes):
        line = line.rstrip(b"\r\n")
        if line.startswith(b"data:"):
            data.append(line.removeprefix(b"data:").removeprefix(b" "))
        elif not line:
            if any(data):
                yield b"\n".join(data)
            data.clear()
