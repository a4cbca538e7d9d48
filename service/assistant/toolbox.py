"""The tools of the named MCP servers, as functions that the assistant may call."""

import hashlib
import logging
import re
import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from service.mcp_client.connection import Connection, McpError, Tool, ToolResult
from service.mcp_client.servers import McpServer
from service.types import JsonObject

log = logging.getLogger("cx.server")

LIST_SECONDS = 60.0  # for which a list of tools is used, and after an error none is requested
MAX_FUNCTIONS = 64
MAX_SCHEMA = 16 * 1024  # bytes
MAX_NAME = 64  # characters of the name of a function
MAX_DESCRIPTION = 1024  # characters
REASON = "why_for_customer"  # a member that is added to the arguments of each function


class Function(NamedTuple):
    """A tool, and what a grant of it covers: all tools that only read of a trusted server, or itself."""

    name: str
    server: McpServer
    tool: Tool
    granted: list[str]

    def described(self) -> JsonObject:
        """Return the function in the format of the assistant, with a member for the reason of the call."""
        why = {"type": "string", "description": "Why this helps the customer: one sentence in the customer's language."}
        properties = self.tool.input_schema.get("properties")
        members = properties if isinstance(properties, dict) else {}
        parameters = self.tool.input_schema | {"properties": {REASON: why} | members}
        description = f"{self.server.name}: {self.tool.description}"[:MAX_DESCRIPTION]
        return {
            "type": "function",
            "function": {"name": self.name, "description": description, "parameters": parameters},
        }


class Toolbox:
    """The tools of some servers. Their lists are requested when they are needed, and again after LIST_SECONDS."""

    def __init__(self, servers: Sequence[McpServer]) -> None:
        self.servers = servers
        self._lists: dict[str, tuple[float, list[Tool]]] = {}

    def functions(self) -> dict[str, Function]:
        """Return the functions by name. A server with an error offers none."""
        found = [function for server in self.servers for function in self._functions_of(server)]
        return {function.name: function for function in found[:MAX_FUNCTIONS]}

    def call(self, function: Function, arguments: JsonObject) -> ToolResult:
        """Call a tool. Raises McpError."""
        with Connection(function.server) as connection:
            return connection.call(function.tool.name, arguments)

    def _functions_of(self, server: McpServer) -> list[Function]:
        tools = self._tools_of(server)
        reading = [tool.name for tool in tools if server.is_trusted and tool.only_reads]
        granted = dict.fromkeys(reading, reading)
        named = [(_name(server.name, tool.name), tool) for tool in tools]
        return [Function(name, server, tool, granted.get(tool.name, [tool.name])) for name, tool in named]

    def _tools_of(self, server: McpServer) -> list[Tool]:
        since, tools = self._lists.get(server.name, (0.0, []))
        if since and time.monotonic() - since < LIST_SECONDS:
            return tools
        try:
            with Connection(server) as connection:
                tools = [tool for tool in connection.tools() if _is_usable(tool)]
        except McpError as error:
            log.warning("no tools of the MCP server %s: %s", server.name, error)
            tools = []
        self._lists[server.name] = time.monotonic(), tools
        return tools


def _is_usable(tool: Tool) -> bool:
    """Return whether the assistant can call a tool: `*` is no name, because a grant of it would allow every tool."""
    schema = tool.input_schema
    return tool.name != "*" and schema.get("type") == "object" and len(msgspec.json.encode(schema)) <= MAX_SCHEMA


def _name(server: str, tool: str) -> str:
    """Return the name of a function: letters, digits, - and _; with a hash where others were replaced or cut off."""
    plain = f"{server}__{tool}"
    name = re.sub("[^a-zA-Z0-9_-]", "_", plain)
    if name == plain and len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 9]}_{hashlib.sha256(plain.encode()).hexdigest()[:8]}"
