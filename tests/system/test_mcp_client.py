"""The client of the package `mcp` connects to a fresh service: a user approves it in Chromium, and it calls tools."""

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from playwright.sync_api import Request, Route, expect

from tests.support.chromium import DARK, LIGHT, NARROW, WIDE, Visit, sign_in, visit_fixture  # noqa: F401
from tests.support.mcp import LATEST, WITH_HANDSHAKE
from tests.support.server_process import SESSION, Served, chat, fill, serving

pytestmark = [pytest.mark.slow, pytest.mark.database]  # on SQLite only, as all tests in a browser

ALICE, CALLBACK = "alice@example.com", "http://127.0.0.1:8976/callback"
REFUSED = "the server responded with a status of 401 (Unauthorized)"  # Chromium's message for the sign-in page


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with Alice and her chat, and nothing that was prepared for assistants."""
    data = tmp_path_factory.mktemp("mcp") / "data"
    fill(data, chat())
    with serving(data) as running:
        yield running
        assert "Traceback" not in running.errors


class Memory:
    """What a client remembers, apart from its process."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Assistant:
    """A program with the client, in a thread of its own. Its user is the test, with a browser."""

    def __init__(self, server: Served, mode: str = "auto") -> None:
        self.server, self.mode, self.memory = server, mode, Memory()
        self.pages: queue.Queue[str] = queue.Queue()  # addresses that it opens in the browser
        self.callbacks: queue.Queue[str] = queue.Queue()  # addresses to which the browser was redirected

    async def _open(self, address: str) -> None:
        self.pages.put(address)

    async def _await_callback(self) -> AuthorizationCodeResult:
        address = await asyncio.to_thread(self.callbacks.get, timeout=60)
        self.reported = dict(parse_qsl(urlsplit(address).query))
        return AuthorizationCodeResult(**self.reported)

    async def _connected(self, work: Callable[[Client], Coroutine[Any, Any, Any]]) -> Any:
        metadata = OAuthClientMetadata(client_name="My assistant", redirect_uris=[CALLBACK])  # type: ignore[list-item]
        url = f"{self.server.url}/mcp"
        self.auth = OAuthClientProvider(url, metadata, self.memory, self._open, self._await_callback)
        async with httpx2.AsyncClient(auth=self.auth, timeout=60) as http:
            transport = streamable_http_client(url, http_client=http)
            async with Client(transport, mode=self.mode) as client:
                return await work(client)

    def begin(self, work: Callable[[Client], Coroutine[Any, Any, Any]]) -> Callable[[], Any]:
        """Start to work. Returns a function that waits for the result."""
        results: queue.Queue[Any] = queue.Queue()

        def run() -> None:
            try:
                results.put(asyncio.run(self._connected(work)))
            except BaseException as error:  # for the test to raise
                results.put(error)

        threading.Thread(target=run, daemon=True).start()

        def wait() -> Any:
            result = results.get(timeout=120)
            if isinstance(result, BaseException):
                raise result
            return result

        return wait


def approve(visitor: Visit, assistant: Assistant, answer: str = "Approve") -> None:
    """Open what the assistant opens, sign in if necessary, and answer."""
    visitor.expected = (REFUSED,)

    def is_callback(request: Request) -> bool:
        return request.url.startswith(CALLBACK)

    def receive(route: Route) -> None:
        assistant.callbacks.put(route.request.url)
        route.fulfill(body="<title>Done</title><h1>Done</h1>", content_type="text/html")

    with visitor.intercept(is_callback, receive):
        visitor.page.goto(assistant.pages.get(timeout=60))
        if visitor.page.get_by_label("Password").count():
            sign_in(visitor.page, ALICE)
        expect(visitor.page.get_by_text("My assistant")).to_be_visible()
        visitor.check_accessibility([(LIGHT, WIDE), (DARK, NARROW)])
        visitor.page.get_by_role("button", name=answer, exact=True).click()
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Done")
    visitor.requested_urls = [url for url in visitor.requested_urls if not url.startswith(CALLBACK)]


async def use_everything(client: Client) -> dict[str, Any]:
    """Call every tool and read every resource; the client checks the results against the schemas."""
    listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    found: dict[str, Any] = {"tools": listed, "version": client.protocol_version}
    arguments = {
        "list_chats": {},
        "read_messages": {"session_id": SESSION},
        "send_message": {"session_id": SESSION, "content": {"text": "Hello from my assistant"}},
        "search_messages": {"q": "assistant"},
        "add_event": {"title": "Quiz", "starts_at": "2027-03-05T19:30:00Z"},
        "list_events": {},
        "list_notifications": {},
        "give_feedback": {"feedback_type": "praise", "description": "Fast", "app_version": "1"},
    }
    for name, given in arguments.items():
        result = await client.call_tool(name, given)
        assert not result.is_error, result
        found[name] = result.structured_content
    app_id = found["list_chats"]["data"][0]["app_id"]
    found["find_bots"] = (await client.call_tool("find_bots", {"app_id": app_id})).structured_content
    found["failed"] = await client.call_tool("read_messages", {"session_id": "x"})
    resources = (await client.list_resources()).resources
    found["resources"] = [(await client.read_resource(str(one.uri))).contents[0].text for one in resources]
    found["templates"] = [one.uri_template for one in (await client.list_resource_templates()).resource_templates]
    try:
        await client.read_resource("cx://nothing")
    except MCPError as error:
        found["missing"] = str(error)
    return found


@pytest.mark.parametrize(("mode", "version"), [("auto", LATEST), ("legacy", WITH_HANDSHAKE)])
def test_connects_and_uses_everything(mode: str, version: str, server: Served, visit: Callable[..., Visit]) -> None:
    assistant = Assistant(server, mode)
    wait = assistant.begin(use_everything)
    approve(visit(), assistant)
    found = wait()
    assert found["version"] == version
    assert set(found["tools"]) <= set(found)
    assert found["search_messages"]["data"][0]["id"] == found["send_message"]["data"]["id"]
    assert found["list_events"]["data"][0]["title"] == "Quiz"
    assert found["failed"].is_error and found["failed"].content[0].text.startswith("invalid_id: ")
    assert len(found["resources"]) == 2 and "Hello from my assistant" in found["resources"][1]
    assert found["templates"] == ["cx://chats/{id}"]
    assert found["missing"] == "Resource not found"


def test_renews_its_access_and_remembers_it(server: Served, visit: Callable[..., Visit]) -> None:
    async def list_chats(client: Client) -> Any:
        return (await client.call_tool("list_chats")).structured_content

    async def list_chats_twice(client: Client) -> tuple[Any, ...]:
        first, tokens = await list_chats(client), assistant.memory.tokens
        assistant.auth.context.token_expiry_time = 1
        return first, await list_chats(client), tokens

    assistant = Assistant(server)
    wait = assistant.begin(list_chats_twice)
    approve(visit(), assistant)
    first, second, tokens = wait()
    assert first == second
    assert set(tokens.scope.split()) >= {"chats", "events", "feedback"}
    assert assistant.memory.tokens and assistant.memory.tokens.refresh_token != tokens.refresh_token
    assert assistant.begin(list_chats)() == first
    assert assistant.pages.empty()


def test_learns_that_the_user_denied_it(server: Served, visit: Callable[..., Visit]) -> None:
    async def nothing(client: Client) -> None: ...

    assistant = Assistant(server)
    wait = assistant.begin(nothing)
    approve(visit(), assistant, "Deny")
    with pytest.raises(BaseExceptionGroup):
        wait()
    assert assistant.reported["error"] == "access_denied"
    assert assistant.memory.tokens is None
