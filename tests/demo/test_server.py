"""The server of the demo: MCP as clients speak it, and chat completions."""

import asyncio
import contextlib
import dataclasses
import http.client
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from service.assistant.client import Assistant, AssistantError
from service.demo.server import MAX_BODY, Server
from service.mcp_client.connection import HANDSHAKE_VERSIONS, Connection
from service.mcp_client.servers import servers_of
from service.settings import Settings


@pytest.fixture(scope="module")
def port():
    """The port of a running server."""
    with Server(socket.create_server(("127.0.0.1", 0))) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield running.server_address[1]
        finally:
            running.shutdown()
            thread.join()


@pytest.fixture
def call(port):
    """Send a request. Returns the status and the decoded body, if there is one."""

    def called(body=b"", path="/mcp", method="POST", **headers):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, content, named)
            response = connection.getresponse()
            received = response.read()
            return response.status, json.loads(received) if received else None

    return called


@pytest.fixture
def request_of(call):
    """Send a request of JSON-RPC. Returns its result or its error."""

    def requested(method, parameters):
        status, body = call({"jsonrpc": "2.0", "id": 7, "method": method, "params": parameters})
        assert (status, body["jsonrpc"], body["id"]) == (200, "2.0", 7)
        return body.get("result") or body["error"]

    return requested


def test_client_of_the_service_lists_and_calls_the_tools(port):
    (named,) = servers_of(dataclasses.replace(Settings(), mcp=(f"demo=http://127.0.0.1:{port}/mcp",)))
    with Connection(named) as connection:
        assert {tool.name: tool.only_reads for tool in connection.tools()} == {
            "get_forecast": True,
            "track_parcel": True,
        }
        first, again = (connection.call("get_forecast", {"city": city}) for city in ("Bern", "Bern"))
        assert first == again and json.loads(first.text)["city"] == "Bern" and not first.is_error
        assert json.loads(connection.call("track_parcel", {"number": "kl-4711-bath "}).text) == {
            "number": "KL-4711-BATH",
            "status": "in_transit",
            "place": "Reading",
        }
        unknown = connection.call("track_parcel", {"number": "X-100"})
        assert (unknown.text, unknown.is_error) == ("No parcel has this number.", True)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_client_of_the_package_mcp_lists_and_calls_the_tools(mode, port):
    async def use():
        url = f"http://127.0.0.1:{port}/mcp"
        async with (
            httpx2.AsyncClient(timeout=60) as web,
            Client(streamable_http_client(url, http_client=web), mode=mode) as client,
        ):
            names = [tool.name for tool in (await client.list_tools()).tools]
            return client.protocol_version, names, await client.call_tool("get_forecast", {"city": "Bern"})

    with ThreadPoolExecutor(1) as pool:  # this thread may have the event loop of a browser
        version, names, result = pool.submit(lambda: asyncio.run(use())).result()
    assert (version, names) == (HANDSHAKE_VERSIONS[0], ["get_forecast", "track_parcel"])
    assert result.structured_content["city"] == "Bern"


@pytest.mark.parametrize("version", [*HANDSHAKE_VERSIONS, "2001-01-01"])
def test_version_is_negotiated(version, request_of):
    expected = version if version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[0]
    assert request_of("initialize", {"protocolVersion": version})["protocolVersion"] == expected


@pytest.mark.parametrize("arguments", [{}, {"city": ""}, {"city": "x" * 61}, {"city": 1}, {"city": "Bern", "x": 1}, []])
def test_invalid_arguments_are_an_error_of_the_tool(arguments, request_of):
    result = request_of("tools/call", {"name": "get_forecast", "arguments": arguments})
    assert result["isError"] and result["content"][0]["text"].startswith("Expected ")


@pytest.mark.parametrize(
    ("method", "parameters", "code"),
    [
        ("tools/call", {"name": "make_rain"}, -32602),
        ("tools/call", {"name": []}, -32602),
        ("tools/call", [], -32602),
        ("resources/list", {}, -32601),
    ],
)
def test_invalid_requests_have_an_error(method, parameters, code, request_of):
    assert request_of(method, parameters)["code"] == code


@pytest.mark.parametrize(
    ("status", "body", "more"),
    [
        (202, {"jsonrpc": "2.0", "method": "notifications/initialized"}, {}),
        (202, {"jsonrpc": "2.0", "id": 1, "result": {}}, {}),
        (400, [], {}),
        (400, {"method": "ping", "id": 1}, {}),
        (400, b"{", {}),
        (400, b"[" * 100_000, {}),
        (400, {}, {"MCP_Protocol_Version": "2001-01-01"}),
        (403, {}, {"Origin": "http://evil.example"}),
        (404, {}, {"path": "/other"}),
        (405, b"", {"method": "GET"}),
        (405, b"", {"method": "DELETE"}),
        (413, b"", {"Content_Length": str(MAX_BODY + 1)}),
        (411, b"", {"Content_Length": "-1"}),
        (400, {"messages": 3}, {"path": "/v1/chat/completions"}),
        (400, {}, {"path": "/v1/chat/completions"}),
        (400, [], {"path": "/v1/chat/completions"}),
    ],
)
def test_other_messages_have_a_status(status, body, more, call):
    assert call(body, **more)[0] == status


def test_assistant_replies_as_a_model_does(port):
    assistant = Assistant(f"http://127.0.0.1:{port}/v1")
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    function = {"type": "function", "function": {"name": "x__get_forecast", "parameters": parameters}}
    asked = [{"role": "user", "content": "What is the weather in Bern?"}]
    found = assistant.complete(asked, may_call_person=True, functions=[function], on_text=print)
    assert (found.text, found.call) == ("", ("x__get_forecast", '{"city": "Bern"}'))
    result = {"role": "tool", "content": "Refused: no."}
    assert assistant.complete([*asked, result]).text == "I have not looked it up, because you did not allow it."
    with pytest.raises(AssistantError) as error:
        assistant.complete([{"role": "user", "content": "Hello"}], may_call_person=True, on_text=print)
    assert error.value.is_final
