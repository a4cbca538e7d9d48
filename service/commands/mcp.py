"""`mcp`: lists and tests the MCP servers of the settings."""

import argparse
import json
import sys
from typing import TYPE_CHECKING

from service.commands import Stop, add_actions
from service.escape import clean, escape
from service.settings import Settings

if TYPE_CHECKING:
    from service.mcp_client.connection import Connection


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    add_action = add_actions(parser, "mcp", "mcp_trusted")
    listing = add_action("list", "list the MCP servers of the settings", list_servers)
    listing.add_argument("--json", action="store_true", help="print one JSON object per line")
    testing = add_action("test", "connect to the MCP servers, and list their tools, or call one", test_servers)
    testing.add_argument("name", nargs="?", metavar="NAME")
    testing.add_argument("--json", action="store_true", help="print one JSON object per tool, with its schema")
    testing.add_argument("--call", metavar="TOOL", help="call a tool of the server, and print the result")
    testing.add_argument("--arguments", metavar="JSON", default="{}", help="arguments of the call")


def list_servers(flags: argparse.Namespace, settings: Settings) -> None:
    """Print one line per server: its name, whether it is trusted and gets a token, and its URL."""
    from service.mcp_client.servers import servers_of

    for server in servers_of(settings):
        row = {"name": server.name, "url": server.url, "trusted": server.is_trusted, "token": bool(server.token)}
        state = f"{'trusted' if server.is_trusted else 'not trusted'}, {'token' if server.token else 'no token'}"
        line = f"{server.name}: {state}  {server.url}"
        print(escape(json.dumps(row)) if flags.json else clean(line))


def test_servers(flags: argparse.Namespace, settings: Settings) -> int:
    """Connect to every server, or one, and print its tools, or the result of a call. Returns 1 if one failed."""
    from service.mcp_client.connection import Connection, McpError
    from service.mcp_client.servers import servers_of

    servers = [server for server in servers_of(settings) if flags.name in (None, server.name)]
    if not servers:
        raise Stop(f"--mcp does not name this server: {flags.name}" if flags.name else "there is no server: set --mcp")
    if flags.call and not flags.name:
        raise Stop("--call needs the NAME of a server")
    failed = 0
    for server in servers:
        try:
            with Connection(server) as connection:
                if flags.call:
                    failed = _call(connection, flags)
                else:
                    _print_tools(server.name, connection, as_json=flags.json)
        except McpError as error:
            failed = 1
            print(f"cx-service: {server.name}: {error}", file=sys.stderr)
    return failed


def _print_tools(name: str, connection: "Connection", *, as_json: bool) -> None:
    """Print the tools of a server, with the members of their arguments; as JSON with the whole schema."""
    for tool in connection.tools():
        if as_json:
            row = {"server": name, "tool": tool.name, "description": tool.description}
            print(escape(json.dumps(row | {"only_reads": tool.only_reads, "schema": tool.input_schema})))
            continue
        properties = tool.input_schema.get("properties")
        members = ", ".join(properties) if isinstance(properties, dict) else ""
        effect = "only reads" if tool.only_reads else "may change data"
        print(clean(f"{name}: {tool.name}({members}), {effect}: {tool.description}".removesuffix(": ")))


def _call(connection: "Connection", flags: argparse.Namespace) -> int:
    """Call a tool, and print the result. Returns 1 if the tool failed."""
    try:
        arguments = json.loads(flags.arguments)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise Stop("--arguments must be a JSON object")
    result = connection.call(flags.call, arguments)
    print("\n".join(map(clean, result.text.splitlines())))
    return int(result.is_error)
