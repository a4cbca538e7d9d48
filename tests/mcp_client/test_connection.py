"""The client of MCP servers: its requests, and what it does if a server does not follow the protocol."""

import base64
import dataclasses
import json
import re
import time

import pytest

from service.mcp import protocol
from service.mcp_client import connection
from service.mcp_client.connection import (
    MAX_RESULT,
    MAX_TOOLS,
    NO_COMMON_VERSION,
    Connection,
    McpError,
    ToolResult,
)
from service.mcp_client.servers import servers_of
from service.settings import Settings
from tests.support.fake_ai import Behaviour, fake_server, hangs, resets, sends, writes
from tests.support.fake_mcp import FORECAST, SCHEMA, fake_mcp_server
from tests.support.paths import ROOT


@pytest.fixture
def fake():
    with fake_mcp_server() as server:
        yield server


def connect(fake, **variables):
    (server,) = servers_of(dataclasses.replace(Settings(), mcp=(f"weather={fake.url}",)), variables)
    return Connection(server)


def call(fake):
    with connect(fake) as opened:
        return opened.call("forecast", {"place": "Bern"})


def test_session_is_opened_and_ended(fake):
    with connect(fake, CX_MCP_WEATHER_TOKEN="hush") as opened:
        assert [tool.name for tool in opened.tools()] == ["forecast"]
        assert opened.call("forecast", {"place": "Bern"}) == ToolResult("Sunny.", False)
    assert fake.methods == ["initialize", "notifications/initialized", "tools/list", "tools/call", "DELETE"]
    first, *others = [request.headers for request in fake.requests]
    assert first["Authorization"] == "Bearer hush" and "MCP-Protocol-Version" not in first
    assert first["Accept"] == "application/json, text/event-stream"
    for headers in others:
        assert (headers["MCP-Protocol-Version"], headers["Mcp-Session-Id"]) == ("2025-06-18", "session-1")
        assert headers["Authorization"] == "Bearer hush"
    called = fake.requests[3].body
    assert called["params"] == {"name": "forecast", "arguments": {"place": "Bern"}} and called["jsonrpc"] == "2.0"


def test_server_without_session_and_token_gets_neither(fake):
    fake.behaviours["initialize"] = lambda handler: sends(fake.answer(fake.results["initialize"]))(handler)
    fake.session_id = ""
    call(fake)
    assert fake.methods[-1] == "tools/call"
    assert not [
        name for request in fake.requests for name in ("Authorization", "Mcp-Session-Id") if name in request.headers
    ]


def test_answer_may_be_in_a_stream_among_other_messages(fake):
    notification = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}
    request = {"jsonrpc": "2.0", "id": 3, "method": "sampling/createMessage", "params": {}}
    for method in ("initialize", "tools/call"):
        fake.behaviours[method] = fake.streams(notification, request, None, notification)
    assert call(fake).text == "Sunny."


def test_stream_that_stays_open_after_the_answer_does_not_delay_it(fake):
    def behave(handler):
        answer = json.dumps(fake.answer(fake.results["tools/call"])).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: "
        writes(head + answer + b"\n\n")(handler)
        hangs(handler)

    fake.behaviours["tools/call"] = behave
    started = time.monotonic()
    assert call(fake).text == "Sunny."
    assert time.monotonic() - started < connection.TIMEOUT / 2


def test_list_of_tools_has_pages_up_to_a_limit(fake):
    names = iter(range(1000))

    def page(handler):
        tools = [FORECAST | {"name": f"tool-{next(names)}"} for _ in range(10)]
        sends(fake.answer({"tools": tools, "nextCursor": f"after-{tools[-1]['name']}"}))(handler)

    fake.behaviours["tools/list"] = page
    with connect(fake) as opened:
        assert [tool.name for tool in opened.tools()] == [f"tool-{number}" for number in range(MAX_TOOLS)]
    pages = [
        request.body["params"] for request in fake.requests if request.body and request.body["method"] == "tools/list"
    ]
    assert pages[:2] == [{}, {"cursor": "after-tool-9"}] and len(pages) == 7


def test_server_that_never_ends_its_list_is_asked_a_limited_number_of_times(fake):
    fake.results["tools/list"] = {"tools": [], "nextCursor": "again"}
    with connect(fake) as opened:
        assert opened.tools() == []
    assert fake.methods.count("tools/list") == connection.MAX_PAGES


def test_tool_has_its_schema_and_says_whether_it_only_reads(fake):
    lying = FORECAST | {"name": "other", "annotations": {"readOnlyHint": False, "destructiveHint": False}}
    fake.results["tools/list"]["tools"] = [FORECAST | {"annotations": {"readOnlyHint": True}}, lying]
    with connect(fake) as opened:
        first, second = opened.tools()
    assert (first.only_reads, second.only_reads, first.input_schema) == (True, False, SCHEMA)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, ToolResult("a\nb", False)),
        ({"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}]}, ToolResult("[image]", False)),
        ({"content": [], "structuredContent": {"a": 1}}, ToolResult('{"a": 1}', False)),
        ({"content": [{"type": "text", "text": "no"}], "isError": True}, ToolResult("no", True)),
        ({}, ToolResult("", False)),
    ],
)
def test_result_of_a_call_is_a_text(result, expected, fake):
    fake.results["tools/call"] = result
    assert call(fake) == expected


def answers(result):
    """Return a function that makes a server answer calls with a result."""
    return lambda fake: lambda handler: sends(fake.answer(result))(handler)


FAULTS = {
    "an HTTP error": (lambda _: sends(b"secret", 500), "status 500"),
    "no permission": (lambda _: sends({}, 401), "status 401"),
    "a page": (lambda _: sends(b"<p>secret", content_type="text/html"), "the response is not a message of JSON-RPC"),
    "an error": (
        lambda fake: (
            lambda handler: sends(
                {"jsonrpc": "2.0", "id": fake.requests[-1].body["id"], "error": {"code": -32602, "message": "secret"}}
            )(handler)
        ),
        "error -32602",
    ),
    "an answer to another request": (
        lambda fake: lambda handler: sends(fake.answer({}) | {"id": 99})(handler),
        "the response is not an answer",
    ),
    "another result": (answers({"content": "secret"}), "the result of tools/call is not valid"),
    "a list": (lambda _: sends([1, 2]), "the response is not a message of JSON-RPC"),
    "deep JSON": (lambda _: sends(b"[" * 20_000), "the response is not a message of JSON-RPC"),
    "bytes that are no text": (lambda _: sends(b'{"id": "\xff"}'), "the response is not a message of JSON-RPC"),
    "a huge answer": (
        answers({"content": [{"type": "text", "text": "x" * MAX_RESULT}]}),
        f"the response is larger than {MAX_RESULT} bytes",
    ),
    "a huge stream": (
        lambda _: writes(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", again=b"data: x\n" * 8192),
        f"the response is larger than {MAX_RESULT} bytes",
    ),
    "a stream that is cut off": (
        lambda fake: fake.streams(None, end=b""),
        "the response ends without an answer",
    ),
    "a reset connection": (lambda _: resets, "Connection reset by peer"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_an_error_without_a_part_of_the_answer(fault, fake):
    behaviour, expected = FAULTS[fault]
    fake.behaviours["tools/call"] = behaviour(fake)
    with pytest.raises(McpError) as caught:
        call(fake)
    assert str(caught.value) == expected
    assert fake.methods[-1] == "DELETE"


@pytest.mark.parametrize("behaviour", [hangs, writes(b"HTTP/1.1 200 OK\r\nX: ", again=b"x", every=0.01)])
def test_slow_server_is_given_up_after_the_time_limit(behaviour, fake, monkeypatch):
    monkeypatch.setattr(connection, "TIMEOUT", 0.3)
    fake.behaviours["tools/call"] = behaviour
    with pytest.raises(McpError, match="^timeout$"):
        call(fake)


@pytest.mark.parametrize("method", ["initialize", "notifications/initialized", "tools/call"])
def test_redirect_is_not_followed(method, fake):
    with fake_server() as elsewhere:
        fake.behaviours[method] = sends(b"", 307, location=elsewhere.url)
        with pytest.raises(McpError, match="^redirect with status 307, which is not followed$"):
            call(fake)
        assert elsewhere.requests == []


@pytest.mark.parametrize("revision", connection.HANDSHAKE_VERSIONS)
def test_server_chooses_the_revision_of_the_protocol(revision, fake):
    fake.results["initialize"]["protocolVersion"] = revision
    assert call(fake).text == "Sunny."
    assert fake.requests[0].body["params"]["protocolVersion"] == connection.HANDSHAKE_VERSIONS[0]
    assert fake.requests[-2].headers["MCP-Protocol-Version"] == revision


@pytest.mark.parametrize("revision", ["2024-11-05", "2026-07-28", "x"])
def test_server_with_another_revision_of_the_protocol_is_an_error(revision, fake):
    fake.results["initialize"]["protocolVersion"] = revision
    with pytest.raises(McpError, match=f"^{re.escape(NO_COMMON_VERSION)}$"):
        call(fake)


def refuses(code: int, status: int, id: int) -> Behaviour:
    """Refuse the request with an identifier."""
    error = {"code": code, "message": "secret", "data": {"supported": ["2026-07-28"]}}
    return sends({"jsonrpc": "2.0", "id": id, "error": error}, status)


@pytest.mark.parametrize("status", [200, 400, 404])
@pytest.mark.parametrize("code", [-32601, -32602, -32020, -32022])
def test_server_without_a_handshake_gets_the_revision_with_each_request(status, code, fake):
    fake.behaviours["initialize"] = refuses(code, status, 1)
    with connect(fake) as opened:
        assert [tool.name for tool in opened.tools()] == ["forecast"]
        assert opened.call("forecast", {"place": "Bern"}).text == "Sunny."
    assert fake.methods == ["initialize", "tools/list", "tools/call"]
    listed, called = fake.requests[1:]
    assert called.body["params"] == {"name": "forecast", "arguments": {"place": "Bern"}, "_meta": connection.META}
    for request in (listed, called):
        assert request.body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        assert request.headers["MCP-Protocol-Version"] == "2026-07-28"
        assert request.headers["Mcp-Method"] == request.body["method"]
    assert (called.headers["Mcp-Name"], "Mcp-Name" in listed.headers) == ("forecast", False)


@pytest.mark.parametrize("status", [200, 400])
def test_server_without_a_common_revision_is_an_error_that_names_them(status, fake):
    fake.behaviours |= {"initialize": refuses(-32601, 404, 1), "tools/call": refuses(-32022, status, 2)}
    with pytest.raises(McpError, match=f"^{re.escape(NO_COMMON_VERSION)}$"):
        call(fake)


def test_name_that_is_no_value_of_a_header_is_encoded(fake):
    fake.behaviours["initialize"] = refuses(-32601, 404, 1)
    with connect(fake) as opened:
        for name in ("a b", "Wetter für morgen", "=?base64?YQ==?="):
            opened.call(name, {})
            sent = fake.requests[-1].headers["Mcp-Name"]
            assert base64.b64decode(sent.removeprefix("=?base64?").removesuffix("?=")).decode() == name


@pytest.mark.parametrize("has_handshake", [True, False])
def test_tool_whose_arguments_are_repeated_in_headers_is_left_out(has_handshake, fake):
    if not has_handshake:
        fake.behaviours["initialize"] = refuses(-32601, 404, 1)
    properties = {"region": {"type": "string", "x-mcp-header": "Region"}}
    routed = {"name": "routed", "inputSchema": {"type": "object", "properties": properties}}
    fake.results["tools/list"]["tools"].append(routed)
    with connect(fake) as opened:
        assert [tool.name for tool in opened.tools()] == ["forecast", "routed"][: 1 + has_handshake]


def test_result_that_asks_for_more_is_an_error(fake):
    fake.results["tools/call"] = {"resultType": "input_required", "inputRequests": {}}
    with pytest.raises(McpError, match="^the server needs more than the request tools/call$"):
        call(fake)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"error": {"code": -32000}}', b"[" * 10_000])
def test_other_refusal_of_the_handshake_is_an_error_with_its_status(body, fake):
    fake.behaviours["initialize"] = sends(body, 400)
    with pytest.raises(McpError, match="^status 400$"):
        call(fake)


def test_documentation_names_the_revisions_of_both_sides():
    text = (ROOT / "docs/mcp.md").read_text()
    for side, versions in (("server", protocol.VERSIONS), ("client", sorted(connection.VERSIONS))):
        (row,) = re.findall(rf"^\| the {side} .*$", text, re.MULTILINE)
        assert re.findall(r"\d{4}-\d\d-\d\d", row) == [*versions]


@pytest.mark.parametrize("id", ["a b", "\u00e9", "x" * 1025])
def test_identifier_of_a_session_that_is_not_valid_is_an_error(id, fake):
    fake.session_id = id
    with pytest.raises(McpError, match="^the identifier of the session is not valid$"):
        call(fake)


def test_two_tools_with_one_name_are_an_error(fake):
    fake.results["tools/list"]["tools"] = [FORECAST, FORECAST]
    with pytest.raises(McpError, match="^two tools have the same name$"), connect(fake) as opened:
        opened.tools()


def test_error_at_the_end_of_a_session_is_ignored(fake):
    with connect(fake) as opened:
        fake.behave = resets
    assert opened


# Settings


@pytest.mark.parametrize(
    "url",
    [
        "http://8.8.8.8/mcp",
        "http://10.0.0.5/mcp",
        "https://a:b@mcp.example",
        "https://mcp.example/?key=hush",
        "https://",
    ],
)
def test_url_without_tls_or_with_a_secret_is_refused_without_being_shown(url):
    with pytest.raises(ValueError, match="^the URL of the MCP server weather must have the form https") as caught:
        servers_of(dataclasses.replace(Settings(), mcp=(f"weather={url}",)))
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000/mcp", "http://[::1]/mcp", "http://localhost/mcp", "https://mcp.example"]
)
def test_url_with_tls_or_on_this_host_is_accepted(url):
    (server,) = servers_of(dataclasses.replace(Settings(), mcp=(f"weather={url}",)))
    assert (server.name, server.url, server.token) == ("weather", url, "")


def test_only_named_servers_are_trusted():
    named = dataclasses.replace(Settings(), mcp=("a=https://a.example", "b=https://b.example"))
    servers = servers_of(dataclasses.replace(named, mcp_trusted=("b",)))
    assert [server.is_trusted for server in servers] == [False, True]
    with pytest.raises(ValueError, match="^--mcp-trusted names a server that --mcp does not name: c$"):
        servers_of(dataclasses.replace(named, mcp_trusted=("c",)))


def test_token_is_in_a_variable_or_a_file_of_each_server(tmp_path):
    path = tmp_path / "token"
    path.write_text("hash\n")
    settings = dataclasses.replace(Settings(), mcp=("a.b-c=https://a.example", "b=https://b.example"))
    servers = servers_of(settings, {"CX_MCP_A_B_C_TOKEN": "hush", "CX_MCP_B_TOKEN_FILE": str(path)})
    assert [server.token for server in servers] == ["hush", "hash"]
    with pytest.raises(ValueError, match="^CX_MCP_B_TOKEN must consist of printable ASCII") as caught:
        servers_of(settings, {"CX_MCP_B_TOKEN": "hush\r\nhash"})
    assert "hush" not in str(caught.value)
