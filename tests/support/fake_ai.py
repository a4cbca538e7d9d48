"""A fake assistant: a server on loopback with configurable behaviour."""

import contextlib
import json
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

REPETITIONS = 10_000  # times 64 KiB: more than a client reads


class ReceivedRequest(NamedTuple):
    """A received request."""

    path: str
    headers: dict[str, str]
    body: Any
    content: bytes = b""


class Handler(BaseHTTPRequestHandler):
    server: "FakeServer"
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        decoded = json.loads(body) if body and self.headers["Content-Type"] == "application/json" else None
        self.server.requests.append(ReceivedRequest(self.path, dict(self.headers), decoded, body))
        with contextlib.suppress(OSError):  # the client may close the connection
            self.server.behave(self)
        self.close_connection = True

    do_DELETE = do_GET = do_PUT = do_POST

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


Behaviour = Callable[[Handler], None]


class FakeServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[ReceivedRequest] = []
        self.behave: Behaviour = says("I am the assistant.")
        self.stopped = threading.Event()

    def handle_error(self, *_: Any) -> None:
        """Ignore closed connections and TLS errors."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(*_)

    @property
    def scheme(self) -> str:
        return "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}/v1"

    @property
    def texts(self) -> list[str]:
        """The last message of each request."""
        return [request.body["messages"][-1]["content"] for request in self.requests]


@contextlib.contextmanager
def fake_server(server: FakeServer | None = None) -> Iterator[FakeServer]:
    """Run a fake assistant during the block; hanging requests end with it."""
    server = server or FakeServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.stopped.set()
        server.shutdown()
        thread.join()
        server.server_close()


def completion(content: Any) -> dict[str, Any]:
    """Return the JSON of a chat completion."""
    message = {"role": "assistant", "content": content, "refusal": None}
    return {"id": "c-1", "object": "chat.completion", "choices": [{"index": 0, "message": message}], "usage": {}}


def calls(*names: str, text: Any = None) -> Behaviour:
    """Send a valid response that calls functions, with a text if there is one."""
    found = completion(text)
    functions = [{"name": name, "arguments": "{}"} for name in names]
    found["choices"][0]["message"]["tool_calls"] = [
        {"id": f"call-{place}", "type": "function", "function": function} for place, function in enumerate(functions)
    ]
    return sends(found)


def sends(body: Any, status: int = 200, **headers: str) -> Behaviour:
    """Send a response with a body, which is JSON unless it is bytes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def behave(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in {"content_type": "application/json", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return behave


def says(text: Any) -> Behaviour:
    """Send a valid response."""
    return sends(completion(text))


def piece(content: Any = None, *, finish: str | None = None, index: int = 0, **delta: Any) -> bytes:
    """Return the event of a piece of a reply."""
    choice = {"index": index, "delta": {"content": content, **delta}, "finish_reason": finish}
    return b"data: " + json.dumps({"object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"


def used(tokens: Any) -> bytes:
    """Return the event with the number of tokens."""
    return b"data: " + json.dumps({"choices": [], "usage": {"total_tokens": tokens}}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def streams(*events: bytes, again: bytes = b"", wait: threading.Event | None = None) -> Behaviour:
    """Send events in a chunked response, and repeat one without an end; before the last one it waits."""

    def behave(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for number, event in enumerate(events, 1):
            if wait and number == len(events):
                wait.wait(60)
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        while again and not handler.server.stopped.is_set():
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(again), again))
        handler.wfile.write(b"0\r\n\r\n")

    return behave


def writes(*parts: bytes, again: bytes = b"", every: float = 0) -> Behaviour:
    """Send raw bytes, and repeat the last ones."""

    def behave(handler: Handler) -> None:
        handler.wfile.write(b"".join(parts))
        for _ in range(REPETITIONS if again else 0):
            handler.wfile.write(again)
            if handler.server.stopped.wait(every) if every else handler.server.stopped.is_set():
                return

    return behave


def hangs(handler: Handler) -> None:
    """Send nothing."""
    handler.server.stopped.wait(60)


def resets(handler: Handler) -> None:
    """Reset the connection."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
