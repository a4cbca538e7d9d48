"""A fake MCP server on loopback: it answers requests as the protocol says, except where a test says otherwise."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from tests.support.fake_ai import Behaviour, FakeServer, Handler, fake_server, sends

SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
FORECAST = {"name": "forecast", "description": "Forecasts the weather.", "inputSchema": SCHEMA}


class FakeMcpServer(FakeServer):
    """The results of the requests by method, and the behaviours that replace answers, by method."""

    def __init__(self) -> None:
        super().__init__()
        self.behave = self.dispatch
        self.session_id = "session-1"
        self.behaviours: dict[str, Behaviour] = {"notifications/initialized": sends(b"", 202)}
        self.results: dict[str, Any] = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "fake"}},
            "tools/list": {"tools": [FORECAST]},
            "tools/call": {"content": [{"type": "text", "text": "Sunny."}]},
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/mcp"

    @property
    def methods(self) -> list[str]:
        """The methods of all requests; DELETE ends a session."""
        return [request.body["method"] if request.body else "DELETE" for request in self.requests]

    def dispatch(self, handler: Handler) -> None:
        """Answer a request."""
        request = self.requests[-1].body
        if request is None:
            sends(b"", 204)(handler)
        elif request["method"] in self.behaviours:
            self.behaviours[request["method"]](handler)
        else:
            sends(self.answer(self.results[request["method"]]), mcp_session_id=self.session_id)(handler)

    def answer(self, result: Any) -> dict[str, Any]:
        """Return the answer to the last request."""
        return {"jsonrpc": "2.0", "id": self.requests[-1].body["id"], "result": result}

    def streams(self, *messages: Any, end: bytes = b"\n\n") -> Behaviour:
        """Send messages as a stream of events; `None` stands for the answer."""

        def behave(handler: Handler) -> None:
            result = self.results[self.requests[-1].body["method"]]
            texts = (json.dumps(self.answer(result) if message is None else message) for message in messages)
            events = b"\n\n".join(f"event: message\ndata: {text}".encode() for text in texts)
            sends(b": open\n\ndata:\n\n" + events + end, content_type="text/event-stream; charset=utf-8")(handler)

        return behave


@contextlib.contextmanager
def fake_mcp_server() -> Iterator[FakeMcpServer]:
    """Run a fake MCP server during the block."""
    server = FakeMcpServer()
    with fake_server(server):
        yield server
