"""The server of the demo, a process of its own: the MCP server with the demo's tools, and the canned assistant.

It speaks the Model Context Protocol at `/mcp` (streamable HTTP, without sessions and streams), and answers chat
completions at `/v1/chat/completions`. It reads and writes no files, and connects to nothing.
"""

import json
import socket
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from service.demo import ASSISTANT_PATH, MCP_PATH, assistant
from service.demo.tools import TOOLS, ToolError
from service.types import JsonObject

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")  # of the protocol, newest first
MAX_BODY = 1024 * 1024  # bytes
TIMEOUT = 10.0  # seconds without a byte until a connection is closed
INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32600, -32601, -32602  # of JSON-RPC

Answer = tuple[int, JsonObject | None]
"""A status, and the JSON object of the body if there is one."""


class RpcError(Exception):
    """An error of JSON-RPC: its code and its message."""


def answer_mcp(body: Any) -> Answer:
    """Return the answer to a message of MCP."""
    if not isinstance(body, dict) or body.get("jsonrpc") != "2.0" or not isinstance(body.get("method", ""), str):
        return 400, {"jsonrpc": "2.0", "id": None, "error": {"code": INVALID_REQUEST, "message": "Invalid request"}}
    if "method" not in body or "id" not in body:  # a response, or a notification
        return 202, None
    answer: JsonObject = {"jsonrpc": "2.0", "id": body["id"]}
    parameters = body.get("params", {})
    try:
        if body["method"] not in METHODS:
            raise RpcError(METHOD_NOT_FOUND, "Method not found")
        if not isinstance(parameters, dict):
            raise RpcError(INVALID_PARAMS, "Invalid params")
        return 200, answer | {"result": METHODS[body["method"]](parameters)}
    except RpcError as error:
        code, message = error.args
        return 200, answer | {"error": {"code": code, "message": message}}


def initialize(parameters: JsonObject) -> JsonObject:
    """Return the version of the protocol and the capabilities."""
    wanted = parameters.get("protocolVersion")
    return {
        "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "cx-service-demo", "version": "1"},
    }


def call_tool(parameters: JsonObject) -> JsonObject:
    """Return the result of a tool; an error of the tool is a result, too. Raises RpcError."""
    name = parameters.get("name")
    tool = TOOLS.get(name) if isinstance(name, str) else None
    if tool is None:
        raise RpcError(INVALID_PARAMS, "Unknown tool")
    try:
        found = tool.call(parameters.get("arguments", {}))
    except ToolError as error:
        return {"content": [{"type": "text", "text": str(error)}], "isError": True}
    text = json.dumps(found, ensure_ascii=False)
    return {"content": [{"type": "text", "text": text}], "structuredContent": found, "isError": False}


METHODS: dict[str, Callable[[JsonObject], JsonObject]] = {
    "initialize": initialize,
    "ping": lambda _: {},
    "tools/list": lambda _: {"tools": [tool.described() for tool in TOOLS.values()]},
    "tools/call": call_tool,
}


def complete(body: Any) -> Answer:
    """Return the chat completion of a request; 404 if the assistant has no reply."""
    try:
        message = assistant.reply(body["messages"], body.get("tools", []))
    except (AttributeError, KeyError, TypeError):
        return 400, {"error": {"message": "The request is not one for a chat completion."}}
    if message is None:
        return 404, {"error": {"message": "The assistant of the demo knows about the weather and parcels only."}}
    reason = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return 200, {"id": "demo", "object": "chat.completion", "created": 0, "model": "demo", "choices": [choice]}


class Handler(BaseHTTPRequestHandler):
    """Answers requests. Web pages are refused: they send the header Origin."""

    protocol_version = "HTTP/1.1"
    timeout = TIMEOUT

    def do_POST(self) -> None:
        """Answer a message of MCP, or a request for a chat completion."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self._refuse(411)
        elif int(length) > MAX_BODY:
            self._refuse(413)
        else:
            self._send(*self._answer(self.rfile.read(int(length))))

    def do_GET(self) -> None:
        """Refuse the request: there are no streams and no sessions."""
        self._refuse(405, Allow="POST")

    do_DELETE = do_GET

    def _refuse(self, status: int, **headers: str) -> None:
        """Send a status, and close the connection: the body was not read."""
        self._send(status, None, Connection="close", **headers)

    def _send(self, status: int, content: JsonObject | None, **headers: str) -> None:
        body = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        described = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        for name, value in (described | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, content: bytes) -> Answer:
        if "Origin" in self.headers:
            return 403, None
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            return 400, None
        if self.path == f"{ASSISTANT_PATH}/chat/completions":
            return complete(body)
        if self.path != MCP_PATH:
            return 404, None
        if self.headers.get("MCP-Protocol-Version", VERSIONS[0]) not in VERSIONS:
            return 400, None
        return answer_mcp(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: the service logs the calls."""


class Server(ThreadingHTTPServer):
    """The server on a listening socket."""

    daemon_threads = True

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock.getsockname(), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = sock

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore closed connections; report other errors."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]
