"""Clients of the MCP server."""

from typing import Any

import pytest

from tests.support.client import Client
from tests.support.mcp import LATEST, Connect, McpClient, tokens_of
from tests.support.web_client import Browser


@pytest.fixture(name="connect")
def connect_fixture(application: Any, anyone: Client) -> Connect:
    """Connect a client of a user to the MCP server, with some scopes and a version of the protocol."""

    def connect(user: Client, scope: str = "", version: str = LATEST) -> McpClient:
        token = tokens_of(anyone, Browser(application).signed_in(user), scope)["access_token"]
        return McpClient(anyone, token, version)

    return connect


@pytest.fixture(name="hers")
def hers_fixture(connect: Connect, alice: Client) -> McpClient:
    """Alice's client, with access to everything."""
    return connect(alice)
