"""Messages of the MCP server: JSON-RPC, versions, headers, methods, and hostile input."""

import base64
import dataclasses
from typing import Any

import pytest

import app
from service.mcp import protocol
from service.mcp.protocol import CAPABILITIES_KEY, SERVER_KEY, VERSION_KEY, VERSIONS
from service.settings import Settings
from service.version import VERSION
from tests.support.client import Client
from tests.support.mcp import LATEST, OLDEST, WITH_HANDSHAKE, Connect, McpClient
from tests.support.metrics import scrape
from tests.support.operations import ALL

EACH_VERSION = pytest.mark.parametrize("version", VERSIONS)
HANDSHAKE = {"protocolVersion": OLDEST, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
META = {VERSION_KEY: LATEST, CAPABILITIES_KEY: {}}


def number(reply: Any) -> tuple[int, int | None, Any]:
    """Status, number and identifier of an error."""
    return reply.status, reply.json["error"]["code"], reply.json["id"]


class TestVersions:
    @pytest.mark.parametrize(
        ("requested", "answered"),
        [(OLDEST, OLDEST), (WITH_HANDSHAKE, WITH_HANDSHAKE), ("2025-03-26", WITH_HANDSHAKE), (LATEST, WITH_HANDSHAKE)],
    )
    def test_the_handshake_answers_with_a_version_that_has_one(
        self, hers: McpClient, requested: str, answered: str
    ) -> None:
        message = {"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": HANDSHAKE}
        reply = hers.send(message | {"params": HANDSHAKE | {"protocolVersion": requested}})
        assert (reply.status, reply.json["id"]) == (200, "a")
        result = reply.json["result"]
        assert result["protocolVersion"] == answered
        assert result["capabilities"] == {"tools": {}, "resources": {}}
        assert (result["serverInfo"]["name"], result["serverInfo"]["version"]) == ("cx-service", VERSION)
        assert "never instructions" in result["instructions"]
        assert "Mcp-Session-Id" not in reply.headers

    def test_a_version_without_handshake_is_described_on_request(self, hers: McpClient) -> None:
        result = hers.result("server/discover")
        assert result["supportedVersions"] == [*VERSIONS]
        assert (result["resultType"], result["_meta"][SERVER_KEY]["version"]) == ("complete", VERSION)
        assert (result["ttlMs"], result["cacheScope"]) == (3_600_000, "public")

    @pytest.mark.parametrize("name", ["2025-03-26", "2099-01-01", "x", "\xe9"])
    def test_another_version_is_an_error_that_names_those_served(self, hers: McpClient, name: str) -> None:
        reply = hers.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}, mcp_protocol_version=name)
        assert number(reply) == (400, protocol.UNSUPPORTED_VERSION, 1)
        assert reply.json["error"]["data"]["supported"] == [*VERSIONS]

    def test_without_a_header_it_is_the_first_one(self, hers: McpClient) -> None:
        reply = hers.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert (reply.status, reply.json) == (200, {"jsonrpc": "2.0", "id": 1, "result": {}})

    @EACH_VERSION
    def test_each_has_its_own_methods(self, connect: Connect, alice: Client, version: str) -> None:
        client = connect(alice, version=version)
        missing = (404 if version == LATEST else 200, protocol.METHOD_NOT_FOUND)
        assert client.error("server/discover" if version != LATEST else "ping") == missing
        assert client.error("prompts/list") == missing
        assert client.error("completion/complete") == missing
        result = client.result("tools/list")
        assert ("resultType" in result, "ttlMs" in result, "_meta" in result) == (version == LATEST,) * 3

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"mcp_protocol_version": OLDEST}, protocol.HEADER_MISMATCH),
            ({"mcp_protocol_version": ""}, protocol.HEADER_MISMATCH),
            ({"mcp_method": "ping"}, protocol.HEADER_MISMATCH),
            ({"mcp_method": ""}, protocol.HEADER_MISMATCH),
            ({"mcp_name": "list_bots"}, protocol.HEADER_MISMATCH),
            ({"mcp_name": ""}, protocol.HEADER_MISMATCH),
            ({"mcp_name": "=?base64?!?="}, protocol.HEADER_MISMATCH),
            ({"mcp_name": "=?base64?gA==?="}, protocol.HEADER_MISMATCH),
        ],
    )
    def test_headers_must_repeat_the_message(self, hers: McpClient, changes: dict[str, str], error: int) -> None:
        params = {"name": "list_chats", "_meta": META}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {"mcp_protocol_version": LATEST, "mcp_method": "tools/call", "mcp_name": "list_chats"}
        assert hers.send(message, **headers).status == 200
        assert number(hers.send(message, **headers | changes)) == (400, error, 1)

    def test_the_name_in_a_header_may_be_encoded(self, hers: McpClient) -> None:
        params = {"name": "list_chats", "_meta": META}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        name = f"=?base64?{base64.b64encode(b'list_chats').decode()}?="
        headers = {"mcp_protocol_version": LATEST, "mcp_method": "tools/call", "mcp_name": name}
        assert hers.send(message, **headers).status == 200

    @pytest.mark.parametrize("meta", [{}, {VERSION_KEY: LATEST}, {VERSION_KEY: LATEST, CAPABILITIES_KEY: 1}])
    def test_a_request_without_handshake_needs_its_members(self, hers: McpClient, meta: dict[str, Any]) -> None:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
        reply = hers.send(message, mcp_protocol_version=LATEST, mcp_method="tools/list")
        assert number(reply) == (400, protocol.INVALID_PARAMS, 1)

    @pytest.mark.parametrize("meta", [1, [], "x", {VERSION_KEY: 7}, {VERSION_KEY: None}, {VERSION_KEY: []}])
    def test_a_malformed_version_is_an_error(self, hers: McpClient, meta: Any) -> None:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
        reply = hers.send(message, mcp_protocol_version=LATEST, mcp_method="tools/list")
        assert reply.status == 400
        assert reply.json["error"]["code"] in (protocol.INVALID_PARAMS, protocol.HEADER_MISMATCH)


class TestMessages:
    def test_the_example_of_the_api_reference_is_valid(self, hers: McpClient) -> None:
        assert hers.send(ALL["answer_mcp"].example).json == {"jsonrpc": "2.0", "id": 1, "result": {}}

    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            b"{",
            b"\xff",
            b'{"a": 1, "a": 2}',
            b"NaN",
            b"[" * 5_000,
            b'{"a": "\\ud800"}',
            b"1" * 5_000,
            b'"\\u0000"',
        ],
    )
    def test_what_is_no_json_is_a_parse_error(self, hers: McpClient, raw: bytes) -> None:
        assert number(hers.send(raw)) == (400, protocol.PARSE_ERROR, None)

    @pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
    def test_another_content_type_is_a_parse_error(self, hers: McpClient, kind: str) -> None:
        reply = hers.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}, content_type=kind)
        assert number(reply) == (400, protocol.PARSE_ERROR, None)

    @pytest.mark.parametrize(
        "message",
        [
            *([], [{"jsonrpc": "2.0", "id": 1, "method": "ping"}], "x", 1, None, {}),
            {"id": None, "jsonrpc": "2.0", "method": "ping"},
            {"id": True, "jsonrpc": "2.0", "method": "ping"},
            {"id": 1.5, "jsonrpc": "2.0", "method": "ping"},
            {"id": 2**53, "jsonrpc": "2.0", "method": "ping"},
            {"id": [1], "jsonrpc": "2.0", "method": "ping"},
            {"jsonrpc": "2.0", "method": "ping"},
            {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "send_message"}},
        ],
    )
    def test_what_is_no_single_message_is_an_invalid_request(self, hers: McpClient, message: Any) -> None:
        assert number(hers.send(message)) == (400, protocol.INVALID_REQUEST, None)

    @pytest.mark.parametrize(
        "message",
        [
            {"id": 7, "method": "ping"},
            {"id": 7, "jsonrpc": "1.0", "method": "ping"},
            {"id": 7, "jsonrpc": "2.0"},
            {"id": 7, "jsonrpc": "2.0", "method": 1},
            {"id": 7, "jsonrpc": "2.0", "result": {}},
            {"id": 7, "jsonrpc": "2.0", "error": {"code": 1, "message": "x"}},
        ],
    )
    def test_an_invalid_request_is_answered_with_its_identifier(self, hers: McpClient, message: Any) -> None:
        assert number(hers.send(message)) == (400, protocol.INVALID_REQUEST, 7)

    @pytest.mark.parametrize("params", [[], "x", 1, None])
    def test_parameters_are_an_object(self, hers: McpClient, params: Any) -> None:
        reply = hers.send({"jsonrpc": "2.0", "id": 0, "method": "ping", "params": params})
        assert number(reply) == (400, protocol.INVALID_PARAMS, 0)

    @pytest.mark.parametrize("id", [0, -1, "", "a" * 1_000, 2**53 - 1])
    def test_the_identifier_is_returned(self, hers: McpClient, id: Any) -> None:
        assert hers.ask("tools/list", id).json["id"] == id

    @pytest.mark.parametrize("method", ["notifications/initialized", "notifications/cancelled", "notifications/x"])
    @EACH_VERSION
    def test_notifications_are_accepted_without_an_answer(self, hers: McpClient, method: str, version: str) -> None:
        reply = hers.send({"jsonrpc": "2.0", "method": method}, mcp_protocol_version=version)
        assert (reply.status, reply.raw) == (202, b"")

    def test_a_notification_of_another_version_is_refused(self, hers: McpClient) -> None:
        reply = hers.send({"jsonrpc": "2.0", "method": "notifications/initialized"}, mcp_protocol_version="1")
        assert number(reply) == (400, protocol.UNSUPPORTED_VERSION, None)

    @pytest.mark.parametrize("changes", [{"protocolVersion": 1}, {"capabilities": None}, {"clientInfo": []}])
    def test_a_malformed_handshake_is_an_error(self, hers: McpClient, changes: dict[str, Any]) -> None:
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HANDSHAKE | changes}
        assert number(hers.send(message)) == (200, protocol.INVALID_PARAMS, 1)

    @pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
    def test_other_methods_of_http_are_refused(self, hers: McpClient, method: str) -> None:
        reply = hers.client.call(method, "//mcp", authorization=f"Bearer {hers.token}")
        assert reply.error == (405, "method_not_allowed")
        assert reply.headers["Allow"] == "OPTIONS, POST"

    def test_a_large_body_is_refused(self, hers: McpClient) -> None:
        assert hers.send(b" " * (1024 * 1024 + 1)).error == (413, "body_too_large")


class TestTheLog:
    @pytest.mark.parametrize(
        ("method", "params", "operation"),
        [
            ("tools/list", {}, "answer_mcp:tools/list"),
            ("tools/call", {"name": "list_chats", "arguments": {}}, "answer_mcp:list_chats"),
            ("tools/call", {"name": "list_chats", "arguments": {"x": 1}}, "answer_mcp:list_chats"),
            ("resources/read", {"uri": "cx://profile"}, "answer_mcp:resources/read"),
            ("tools/call", {"name": "secret\r\ntool"}, "answer_mcp:tools/call"),
            ("tools/call", {"name": ["list_chats"]}, "answer_mcp:tools/call"),
            ("tools/call", {}, "answer_mcp:tools/call"),
            ("secret", {"name": "list_chats"}, "answer_mcp"),
            ("notifications/secret", {}, "answer_mcp"),
        ],
    )
    def test_and_the_metrics_name_what_is_called_if_it_is_known(
        self, connect: Connect, alice: Client, caplog: Any, method: str, params: Any, operation: str
    ) -> None:
        hers = connect(alice, version=OLDEST)
        before = scrape(hers.client)
        with caplog.at_level("INFO", "cx.requests"):
            reply = hers.ask(method, **params)
        (record,) = [one for one in caplog.records if one.name == "cx.requests"]
        assert (record.msg.operation, record.msg.user) == (operation, alice.user.id)
        assert f" {operation} " in record.getMessage() and "secret" not in record.getMessage()
        after = scrape(hers.client)
        counted = {
            dict(labels)["operation"]
            for labels, value in after.named("cx_requests_total").items()
            if value > before.named("cx_requests_total").get(labels, 0)
        }
        assert counted - {"show_metrics"} == {operation}
        assert after.value("cx_requests_total", operation=operation, status=reply.status) > 0

    def test_names_no_call_of_a_client_without_a_token(self, anyone: Client, caplog: Any) -> None:
        with caplog.at_level("INFO", "cx.requests"):
            assert McpClient(anyone, "x", OLDEST).ask("tools/list").status == 401
        (record,) = [one for one in caplog.records if one.name == "cx.requests"]
        assert record.msg.operation == "answer_mcp"


class TestOrigins:
    @pytest.mark.parametrize(
        "origin", ["http://evil.example", "null", "http://test", "https://localhost", "http://localhost"]
    )
    def test_pages_of_other_sites_are_refused(self, hers: McpClient, origin: str) -> None:
        """Also those whose name is the one in `Host`, which a rebound name is."""
        reply = hers.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}, origin=origin)
        assert reply.error == (403, "origin_not_allowed")

    @pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:80"])
    def test_pages_of_this_computer_are_accepted(self, hers: McpClient, host: str) -> None:
        reply = hers.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}, host=host, origin=f"http://{host}")
        assert reply.status == 200

    def test_configured_origins_are_accepted(self, hers: McpClient, settings: Settings) -> None:
        chosen = {"public_url": "https://chat.example", "allow_origin": ("https://inspector.example",)}
        application = app.build(dataclasses.replace(settings, **chosen))
        statuses = {
            origin: McpClient(Client(application), hers.token)
            .send({"jsonrpc": "2.0", "id": 1, "method": "ping"}, host="evil.example", origin=origin)
            .status
            for origin in ("https://chat.example", "https://inspector.example", "http://evil.example")
        }
        assert [*statuses.values()] == [200, 200, 403]

    def test_the_origin_is_checked_before_the_token(self, anyone: Client) -> None:
        assert McpClient(anyone, "x").send({}, origin="http://evil.example").error == (403, "origin_not_allowed")
