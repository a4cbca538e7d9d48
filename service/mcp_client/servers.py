"""The MCP servers of the settings."""

from collections.abc import Mapping
from os import environ
from typing import NamedTuple

from service.http_client import HttpServer, is_printable
from service.settings import Settings, find_secret, mcp_token_variable


class McpServer(NamedTuple):
    """An MCP server: its name, which is that of its grants, its address, and its token."""

    name: str
    url: str
    address: HttpServer
    token: str
    is_trusted: bool = False  # its annotations of tools are believed


def servers_of(settings: Settings, environment: Mapping[str, str] = environ) -> list[McpServer]:
    """Return the servers of the settings. Raises ValueError with a sentence for the operator, without URL and token."""
    servers = [_server(entry, environment) for entry in settings.mcp]
    if unknown := set(settings.mcp_trusted) - {server.name for server in servers}:
        raise ValueError(f"--mcp-trusted names a server that --mcp does not name: {min(unknown)}")
    return [server._replace(is_trusted=server.name in settings.mcp_trusted) for server in servers]


def _server(entry: str, environment: Mapping[str, str]) -> McpServer:
    name, _, url = entry.partition("=")
    variable = mcp_token_variable(name)
    token = str(find_secret(variable, environment).value)
    if not is_printable(token):
        raise ValueError(f"{variable} must consist of printable ASCII characters without spaces")
    try:
        address = HttpServer(url, plain_on_loopback=True)
    except ValueError:
        expected = "https://weather.example/mcp, or http:// with a loopback address; without query, user and password"
        raise ValueError(f"the URL of the MCP server {name} must have the form {expected}") from None
    return McpServer(name, url, address, token)
