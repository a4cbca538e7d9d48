"""A client of the MCP server in process: a registered client, its tokens, and messages."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from service.mcp.protocol import CAPABILITIES_KEY, NAMED_BY, VERSION_KEY, VERSIONS
from tests.support.cli_login import TOKEN, VERIFIER
from tests.support.client import Client, Reply
from tests.support.consent import CHALLENGE, PATH
from tests.support.web_client import FORM, Browser

SITE = "http://test"
RESOURCE = f"{SITE}/mcp"
CALLBACK = "http://localhost:8976/callback"
OLDEST, WITH_HANDSHAKE, LATEST = VERSIONS


def register(client: Client, name: str = "My assistant", *addresses: str) -> str:
    """Return the identifier of a new client."""
    body = {"client_name": name, "redirect_uris": addresses or [CALLBACK]}
    reply = client.post("/auth/cli/register", body)
    assert reply.status == 201, reply.json
    return str(reply.json["client_id"])


def consent_path(client_id: str, /, **changes: str) -> str:
    """Return the path of the consent page for a client."""
    parameters = {
        "client_id": client_id,
        "response_type": "code",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "redirect_uri": CALLBACK,
        "state": "s",
        "resource": RESOURCE,
        "scope": "",
    }
    return f"/api/v1{PATH}?{urlencode(parameters | changes)}"


def approved(browser: Browser, client_id: str, **changes: str) -> str:
    """Approve in a browser, and return the code."""
    assert browser.open(consent_path(client_id, **changes)).status == 200
    assert browser.send(answer="approve").status == 200
    return dict(parse_qsl(urlsplit(browser.redirect_url).query))["code"]


def request_tokens(client: Client, **parameters: str) -> Reply:
    """The response of the token endpoint to a client with a code."""
    form = {"grant_type": "authorization_code", "code_verifier": VERIFIER, "redirect_uri": CALLBACK} | parameters
    return client.post(TOKEN, raw=urlencode(form).encode(), content_type=FORM, host="test")


def tokens_of(client: Client, browser: Browser, scope: str = "") -> dict[str, str]:
    """Return the tokens of a new client that a user approves, and its identifier."""
    client_id = register(client)
    code = approved(browser, client_id, scope=scope)
    reply = request_tokens(client, client_id=client_id, code=code, resource=RESOURCE)
    assert reply.status == 200, reply.json
    return {"client_id": client_id, **reply.json}


class McpClient:
    """A client of the MCP server with a token, of a version of the protocol."""

    def __init__(self, client: Client, token: str, version: str = LATEST) -> None:
        self.client, self.token, self.version = client, token, version

    def send(self, message: Any, **headers: str) -> Reply:
        """The response to a message, as JSON or as bytes."""
        raw = message if isinstance(message, bytes) else json.dumps(message).encode()
        own = {"authorization": f"Bearer {self.token}", "content_type": "application/json", "host": "test"}
        return self.client.call("POST", "//mcp", raw=raw, **own | headers)

    def ask(self, method: str, id: Any = 1, **params: Any) -> Reply:
        """The response to a request."""
        headers = {"mcp_protocol_version": self.version}
        if self.version == LATEST:
            params["_meta"] = {VERSION_KEY: self.version, CAPABILITIES_KEY: {}}
            headers["mcp_method"] = method
            if method in NAMED_BY:
                headers["mcp_name"] = params[NAMED_BY[method]]
        return self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params}, **headers)

    def result(self, method: str, **params: Any) -> Any:
        """The result of a request. Fails on errors."""
        reply = self.ask(method, **params)
        assert reply.status == 200, reply.json
        assert set(reply.json) == {"jsonrpc", "id", "result"}, reply.json
        return reply.json["result"]

    def error(self, method: str, **params: Any) -> tuple[int, int]:
        """The HTTP status and the number of an error."""
        reply = self.ask(method, **params)
        assert set(reply.json) == {"jsonrpc", "id", "error"}, reply.json
        return reply.status, reply.json["error"]["code"]

    def tool(self, name: str, **arguments: Any) -> Any:
        """The structured content of a call. Fails on errors."""
        result = self.result("tools/call", name=name, arguments=arguments)
        assert not result["isError"], result
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        return result["structuredContent"]

    def failure(self, name: str, **arguments: Any) -> str:
        """The text of a call that fails."""
        result = self.result("tools/call", name=name, arguments=arguments)
        assert result["isError"] and "structuredContent" not in result
        return str(result["content"][0]["text"])


Connect = Callable[..., McpClient]
"""Connects a client of a user, with some scopes and a version of the protocol."""
