"""The resources of the MCP server: the profile and the chats of a user."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from service.models import ChatSession, Message
from tests.support.client import Client
from tests.support.mcp import LATEST, WITH_HANDSHAKE, Connect, McpClient


def read(client: McpClient, uri: str) -> Any:
    """The content of a resource."""
    (content,) = client.result("resources/read", uri=uri)["contents"]
    assert (content["uri"], content["mimeType"]) == (uri, "application/json")
    return json.loads(content["text"])


class TestLists:
    def test_has_the_profile_and_the_chats(self, hers: McpClient, session: ChatSession) -> None:
        profile, chat = hers.result("resources/list")["resources"]
        assert profile["uri"] == "cx://profile"
        assert (chat["uri"], chat["title"]) == (f"cx://chats/{session.id}", "Alice – Hilda – Shop")

    def test_continues_with_a_cursor(self, hers: McpClient, session: ChatSession) -> None:
        for _ in range(50):
            ChatSession.create(app_id=session.app_id, user_id=session.user_id)
        first = hers.result("resources/list")
        second = hers.result("resources/list", cursor=first["nextCursor"])
        assert (len(first["resources"]), len(second["resources"])) == (51, 1)
        assert "nextCursor" not in second

    @pytest.mark.parametrize(("cursor", "error"), [("x", (400, -32602)), (1, (400, -32602)), ([], (400, -32602))])
    def test_refuses_other_cursors(self, hers: McpClient, cursor: Any, error: tuple[int, int]) -> None:
        assert hers.error("resources/list", cursor=cursor) == error

    def test_has_the_chats_only_with_their_scope(self, connect: Connect, alice: Client, session: ChatSession) -> None:
        listed = connect(alice, "profile:read").result("resources/list")["resources"]
        assert [one["uri"] for one in listed] == ["cx://profile"]

    def test_the_template_is_that_of_the_chats(self, hers: McpClient) -> None:
        (template,) = hers.result("resources/templates/list")["resourceTemplates"]
        assert template["uriTemplate"] == "cx://chats/{id}"


class TestContents:
    def test_profile_is_that_of_the_user(self, hers: McpClient, alice: Client) -> None:
        assert read(hers, "cx://profile") == alice.get("/users/me").data

    def test_chat_is_what_an_assistant_may_read(
        self, hers: McpClient, session: ChatSession, say: Callable[..., Message]
    ) -> None:
        say("Hello")
        assert [message["text"] for message in read(hers, f"cx://chats/{session.id}")["messages"]] == ["Hello"]

    @pytest.mark.parametrize(
        "uri",
        [
            *("cx://chats/{id}", "cx://chats/", "cx://chats/x", "cx://chats/00000000-0000-4000-8000-000000000000"),
            *("cx://profile/", "cx:profile", "file:///etc/passwd", "http://127.0.0.1/", "", "cx://chats/x/../y", "é"),
            "cx://chats/" + "x" * 10_000,
        ],
    )
    @pytest.mark.parametrize(("version", "error"), [(LATEST, (400, -32602)), (WITH_HANDSHAKE, (200, -32002))])
    def test_other_addresses_are_not_found(
        self, connect: Connect, alice: Client, uri: str, version: str, error: tuple[int, int]
    ) -> None:
        assert connect(alice, version=version).error("resources/read", uri=uri) == error

    def test_the_chat_of_another_user_is_not_found(self, connect: Connect, bob: Client, session: ChatSession) -> None:
        assert connect(bob).error("resources/read", uri=f"cx://chats/{session.id}") == (400, -32602)

    def test_needs_an_address(self, connect: Connect, alice: Client) -> None:
        assert connect(alice, version=WITH_HANDSHAKE).error("resources/read") == (200, -32602)

    def test_needs_the_scope(self, connect: Connect, alice: Client) -> None:
        client = connect(alice, "chats:read")
        assert client.ask("resources/read", uri="cx://profile").error == (403, "insufficient_scope")
