"""The tools of the MCP server: declared by operations, and called as the API calls these."""

import gzip
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from service.api.openapi import document
from service.errors import StorageUnavailable
from service.mcp.endpoint import McpEndpoint
from service.mcp.resources import RESOURCES
from service.mcp.tools import TOOLS
from service.models import ChatSession, Event, Feedback, Message, inbox
from service.routes import operations
from tests.support.client import Client
from tests.support.mcp import OLDEST, Connect, McpClient
from tests.support.paths import ROOT

BY_NAME = {operation.name: operation for operation in operations()}
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


@pytest.fixture(name="listed")
def listed_fixture(hers: McpClient) -> dict[str, Any]:
    """The tools as clients see them, by name."""
    return {tool["name"]: tool for tool in hers.result("tools/list")["tools"]}


class TestDeclarations:
    def test_every_tool_calls_an_operation_of_the_api(self) -> None:
        for tool in TOOLS:
            operation = BY_NAME[tool.operation]
            assert not operation.public and not operation.admin_only
            assert operation.accepts == operation.produces == "application/json"

    def test_names_are_unique_and_in_order(self, listed: dict[str, Any]) -> None:
        assert [*listed] == [tool.name for tool in TOOLS]
        assert len(listed) == len(TOOLS)

    def test_arguments_are_the_parameters_and_the_body_of_the_operation(self, listed: dict[str, Any]) -> None:
        described = document(operations())
        for tool in TOOLS:
            operation = BY_NAME[tool.operation]
            wanted = described["paths"][operation.full_path][operation.method.lower()]
            names = {parameter["name"] for parameter in wanted["parameters"] if parameter["in"] == "query"}
            names |= {f"{parameter}_id" for _, parameter, _ in operation.path_rows}
            names |= {"idempotency_key"} if operation.status == 201 else set()
            if operation.body:
                reference = wanted["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                names |= set(described["components"]["schemas"][reference.rpartition("/")[2]]["properties"])
            assert set(listed[tool.name]["inputSchema"]["properties"]) == names
            assert set(listed[tool.name]["inputSchema"]["required"]) <= names

    def test_required_arguments_are_those_of_the_operation(self, listed: dict[str, Any]) -> None:
        assert listed["read_messages"]["inputSchema"]["required"] == ["session_id"]
        assert listed["search_messages"]["inputSchema"]["required"] == ["q"]
        assert listed["find_bots"]["inputSchema"]["required"] == ["app_id"]
        assert {"title", "starts_at"} <= set(listed["add_event"]["inputSchema"]["required"])

    def test_references_are_inside_the_schemas(self, listed: dict[str, Any]) -> None:
        for tool in listed.values():
            for schema in (tool["inputSchema"], tool["outputSchema"]):
                assert schema["type"] == "object" and schema["additionalProperties"] is False
                text = json.dumps(schema)
                for part in text.split('"$ref": "')[1:]:
                    path, name = part.partition('"')[0].rsplit("/", 1)
                    assert path == "#/$defs" and name in schema["$defs"]

    def test_tools_that_read_say_so(self, listed: dict[str, Any]) -> None:
        reading = {name for name, tool in listed.items() if tool["annotations"]["readOnlyHint"]}
        assert reading == {name for name in listed if name.startswith(("list_", "read_", "search_", "find_"))}
        for name in ("send_message", "add_event", "give_feedback"):
            assert not listed[name]["annotations"]["idempotentHint"]
            assert not listed[name]["annotations"]["destructiveHint"]

    def test_nothing_is_built_before_the_first_request(self, application: Any) -> None:
        endpoint = application.find("POST", "/mcp").respond.func
        assert isinstance(endpoint, McpEndpoint)
        assert not {"tools", "operations"} & set(vars(endpoint))

    def test_documentation_lists_them(self) -> None:
        page = (ROOT / "docs" / "mcp.md").read_text()
        wanted = {one.name: BY_NAME[one.operation] for one in TOOLS} | {
            one.uri: BY_NAME[one.operation] for one in RESOURCES
        }
        rows = {name: f"`{one.method} {one.full_path}` | `{one.needed_scope}`" for name, one in wanted.items()}
        assert re.findall(r"^\| `(.+?)` \| (`.+?` \| `.+?`) \|$", page, re.MULTILINE) == [*rows.items()]


class TestCalls:
    def test_chats_are_listed(self, hers: McpClient, session: ChatSession, alice: Client) -> None:
        found = hers.tool("list_chats", limit=1)
        reply = alice.get("/chats?limit=1").json
        assert found == {"data": reply["data"], "meta": reply["meta"]}

    def test_results_are_compressed_for_clients_that_accept_it(self, hers: McpClient) -> None:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        first = hers.send(message, accept_encoding="gzip")
        second = hers.send(message)
        assert first.headers["Content-Encoding"] == "gzip" and "Content-Encoding" not in second.headers
        assert json.loads(gzip.decompress(first.raw)) == second.json

    def test_messages_are_read_page_by_page(
        self, hers: McpClient, session: ChatSession, say: Callable[..., Message]
    ) -> None:
        ids = [say(text).id for text in ("one", "two", "three")]
        first = hers.tool("read_messages", session_id=session.id, limit=2)
        second = hers.tool("read_messages", session_id=session.id, limit=2, cursor=first["meta"]["next_cursor"])
        assert [message["id"] for message in (*first["data"], *second["data"])] == ids
        assert [message["content"] for message in second["data"]] == [{"text": "three"}]

    def test_a_message_is_sent_as_the_user(self, hers: McpClient, session: ChatSession, alice: Client) -> None:
        sent = hers.tool("send_message", session_id=session.id, content={"text": "Hello"})["data"]
        assert (sent["sender_id"], sent["chat_session_id"]) == (alice.user.id, session.id)
        assert (sent["content"], sent["translations"]) == ({"text": "Hello"}, None)
        assert sent["id"] in [message["id"] for message in alice.get(f"/chats/{session.id}/messages").data]

    def test_a_large_message_is_not_reported_as_failed(self, hers: McpClient, session: ChatSession) -> None:
        text = "x" * 65_000  # 250 KB in the API
        sent = hers.tool("send_message", session_id=session.id, content={"text": text})
        assert sent["data"]["content"] == {"text": text}

    @pytest.mark.parametrize(("content", "shown"), [([1, 2], [1, 2]), ([300], [300]), ([91, 93], []), ("x", "x")])
    def test_contents_are_json_where_their_bytes_are(
        self, hers: McpClient, session: ChatSession, content: Any, shown: Any
    ) -> None:
        assert hers.tool("send_message", session_id=session.id, content=content)["data"]["content"] == shown

    def test_a_repeated_call_with_a_key_is_done_once(self, hers: McpClient, session: ChatSession) -> None:
        call = {"session_id": session.id, "content": {"text": "Hello"}, "idempotency_key": "k"}
        assert hers.tool("send_message", **call) == hers.tool("send_message", **call)
        assert Message.select().where(Message.sender_type == "user").count() == 1
        assert "idempotency_key_reused" in hers.failure("send_message", **call | {"content": {"text": "Other"}})

    def test_other_tools(self, hers: McpClient, session: ChatSession, say: Callable[..., Message], bot: Any) -> None:
        say("A parcel")
        assert len(hers.tool("search_messages", q="parcel")["data"]) == 1
        event = hers.tool("add_event", title="Quiz", starts_at="2027-03-05T19:30:00Z")["data"]
        assert Event.get_by_id(event["id"]).title == "Quiz"
        assert [one["id"] for one in hers.tool("list_events")["data"]] == [event["id"]]
        given = hers.tool("give_feedback", feedback_type="praise", description="Fast", app_version="1")["data"]
        assert Feedback.get_by_id(given["id"]).description == "Fast"
        assert hers.tool("list_notifications", unread_only=True)["meta"]["unread_count"] == 0
        assert [one["id"] for one in hers.tool("find_bots", app_id=bot.app_id)["data"]] == [bot.id]

    def test_only_what_the_user_may_read_is_found(
        self, connect: Connect, bob: Client, session: ChatSession, say: Callable[..., Message]
    ) -> None:
        say("secret")
        his = connect(bob)
        assert his.tool("list_chats")["data"] == his.tool("search_messages", q="secret")["data"] == []
        assert his.failure("read_messages", session_id=session.id).startswith("session_not_found: ")
        assert his.failure("send_message", session_id=session.id, content={"text": "x"}).startswith("forbidden: ")

    @pytest.mark.parametrize("version", [OLDEST])
    def test_the_first_version_has_the_same_results(
        self, connect: Connect, alice: Client, session: ChatSession, version: str
    ) -> None:
        assert [one["id"] for one in connect(alice, version=version).tool("list_chats")["data"]] == [session.id]


class TestErrors:
    @pytest.mark.parametrize(
        ("tool", "arguments", "text"),
        [
            ("read_messages", {}, "invalid_arguments: session_id: required"),
            ("read_messages", {"session_id": ""}, "invalid_arguments: session_id: required"),
            ("read_messages", {"session_id": None}, "invalid_arguments: session_id: required"),
            ("read_messages", {"session_id": "../users"}, "invalid_id: "),
            ("read_messages", {"session_id": UNKNOWN_ID}, "session_not_found: "),
            ("read_messages", {"session_id": ["x"]}, "invalid_arguments: session_id: "),
            ("read_messages", {"session_id": {"a": 1}}, "invalid_arguments: session_id: "),
            ("list_chats", {"limit": "x"}, "invalid_parameter: limit: "),
            ("list_chats", {"limit": 1.5}, "invalid_arguments: limit: "),
            ("list_chats", {"limit": 10**30}, ""),
            ("list_chats", {"cursor": "x"}, "invalid_cursor: "),
            ("list_chats", {"status": "x&limit=1"}, "invalid_parameter: status: "),
            ("list_chats", {"user_id": UNKNOWN_ID}, "invalid_arguments: user_id: there is no such argument"),
            ("list_chats", {"x" * 10_000: 1}, "invalid_arguments: " + "x" * 100 + ": there is no such argument"),
            ("send_message", {"session_id": UNKNOWN_ID, "content": "x"}, "session_not_found: "),
            ("add_event", {}, "invalid_body: "),
            ("add_event", {"title": 1, "starts_at": "2027-03-05T19:30:00Z"}, "invalid_body: $.title: "),
            ("add_event", {"title": "x", "starts_at": "soon"}, "invalid_body: $.starts_at: "),
            (
                "add_event",
                {"title": "x", "starts_at": "2027-03-05T19:30:00Z", "idempotency_key": "k" * 256},
                "bad_request",
            ),
            (
                "add_event",
                {"title": "x", "starts_at": "2027-03-05T19:30:00Z", "idempotency_key": "k\nx"},
                "bad_request",
            ),
            ("give_feedback", {"feedback_type": 7}, "invalid_body: "),
            ("search_messages", {"q": " "}, "invalid_parameter: q: "),
        ],
    )
    def test_of_arguments_are_results_that_a_model_can_read(
        self, hers: McpClient, tool: str, arguments: dict[str, Any], text: str
    ) -> None:
        if text:
            assert hers.failure(tool, **arguments).startswith(text)
        else:
            assert hers.tool(tool, **arguments)["data"] == []

    @pytest.mark.parametrize(
        "params",
        [
            {},
            {"name": "x"},
            {"name": "list_chats", "arguments": []},
            {"name": "list_chats", "arguments": "x"},
            {"name": 1},
        ],
    )
    def test_of_the_call_are_errors_of_the_protocol(self, connect: Connect, alice: Client, params: Any) -> None:
        assert connect(alice, version=OLDEST).error("tools/call", **params) == (200, -32602)

    def test_malformed_input_of_a_lenient_operation_is_a_warning(self, hers: McpClient) -> None:
        result = hers.result("tools/call", name="list_notifications", arguments={"limit": "x"})
        assert not result["isError"]
        assert result["content"][1]["text"].startswith("Warning: limit: ")

    def test_a_large_result_is_refused(
        self, hers: McpClient, say: Callable[..., Message], session: ChatSession
    ) -> None:
        for _ in range(15):
            say("x" * 20_000)
        text = hers.failure("read_messages", session_id=session.id, limit=200)
        assert text.startswith("The result is larger than 256 KiB")
        assert len(hers.tool("read_messages", session_id=session.id, limit=1)["data"]) == 1

    def test_of_the_token_end_the_request(self, connect: Connect, alice: Client) -> None:
        client = connect(alice)
        alice.post("/auth/logout", {"scope": "global"})
        assert client.ask("tools/call", name="list_chats").error == (401, "invalid_token")

    def test_of_the_database_are_results(
        self, hers: McpClient, monkeypatch: pytest.MonkeyPatch, session: ChatSession
    ) -> None:
        def fail(*_: Any) -> None:
            raise StorageUnavailable

        monkeypatch.setattr(inbox, "list_sessions", fail)
        assert hers.failure("list_chats").endswith("Retry after 2 seconds.")

    def test_a_cursor_of_a_list_of_one_page_is_refused(self, hers: McpClient) -> None:
        assert hers.error("tools/list", cursor="x") == (400, -32602)
        assert hers.error("resources/templates/list", cursor="x") == (400, -32602)
