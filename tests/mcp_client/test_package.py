"""The client of MCP servers with a server of the package `mcp`."""

import contextlib
import dataclasses
import threading

import pytest
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.types import LATEST_PROTOCOL_VERSION, ToolAnnotations
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, SUPPORTED_PROTOCOL_VERSIONS

from service.mcp import protocol
from service.mcp_client import connection
from service.mcp_client.connection import Connection, McpError
from service.mcp_client.servers import servers_of
from service.settings import Settings
from tests.support.postgres import free_port

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def serving(*, json: bool, stateless: bool):
    """Run a server of the package during the block. Returns its URL."""
    server = MCPServer("weather")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def forecast(place: str, days: int = 1) -> str:
        """Forecasts the weather."""
        return f"{place}: {days} sunny days"

    @server.tool()
    def fail() -> str:
        """Fails."""
        raise RuntimeError("broken")

    application = server.streamable_http_app(json_response=json, stateless_http=stateless)
    port = free_port()
    web = uvicorn.Server(uvicorn.Config(application, port=port, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=web.run)
    thread.start()
    try:
        while not web.started:
            assert thread.is_alive()
            thread.join(0.01)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        web.should_exit = True
        thread.join()


def test_server_without_a_common_revision_of_the_protocol_is_an_error(monkeypatch):
    monkeypatch.setattr(connection, "HANDSHAKE_VERSIONS", ("2024-10-07",))  # which the package does not speak
    with serving(json=True, stateless=True) as url:
        (server,) = servers_of(dataclasses.replace(Settings(), mcp=(f"weather={url}",)))
        with pytest.raises(McpError, match=f"^{connection.NO_COMMON_VERSION}$"), Connection(server):
            pass


def test_package_speaks_revisions_of_the_client():
    assert set(connection.HANDSHAKE_VERSIONS) <= set(HANDSHAKE_PROTOCOL_VERSIONS)
    assert connection.VERSION_WITHOUT_HANDSHAKE == LATEST_PROTOCOL_VERSION
    assert set(protocol.VERSIONS) <= set(SUPPORTED_PROTOCOL_VERSIONS)
    assert protocol.VERSIONS[-1] == LATEST_PROTOCOL_VERSION


def refuse(self):
    """Stand for the answer of a server without a handshake; that of the package speaks all revisions."""
    raise connection._VersionRefused


@pytest.mark.parametrize("json", [False, True], ids=["events", "json"])
@pytest.mark.parametrize("stateless", [False, True], ids=["sessions", "stateless"])
@pytest.mark.parametrize("has_handshake", [True, False], ids=["handshake", "no handshake"])
def test_tools_are_listed_and_called(json, stateless, has_handshake, monkeypatch):
    if not has_handshake:
        monkeypatch.setattr(Connection, "_shake_hands", refuse)
    with serving(json=json, stateless=stateless) as url:
        (server,) = servers_of(dataclasses.replace(Settings(), mcp=(f"weather={url}",)))
        with Connection(server) as connection:
            forecast, fail = connection.tools()
            assert (forecast.name, forecast.description, forecast.only_reads) == (
                "forecast",
                "Forecasts the weather.",
                True,
            )
            assert (forecast.input_schema["required"], fail.only_reads) == (["place"], False)
            assert connection.call("forecast", {"place": "Bern", "days": 2}).text == "Bern: 2 sunny days"
            assert connection.call("fail", {}).is_error
            assert connection.call("forecast", {"days": "many"}).is_error
            with contextlib.suppress(McpError):  # a result or an error of the protocol, as the version of the package
                assert connection.call("unknown", {}).is_error
