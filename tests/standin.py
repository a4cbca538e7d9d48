"""A server on loopback that stands in for an assistant, and behaves as well or as badly as a test wants."""

import contextlib
import json
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

COUNTLESS = 10_000  # times 64 KiB: nobody reads that much


class Asked(NamedTuple):
    """A request that came."""

    path: str
    headers: dict[str, str]
    body: Any


class Handler(BaseHTTPRequestHandler):
    server: "StandIn"
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append(Asked(self.path, dict(self.headers), json.loads(body)))
        with contextlib.suppress(OSError):  # who asks may go away
            self.server.behave(self)
        self.close_connection = True

    do_GET = do_PUT = do_POST

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


Behaviour = Callable[[Handler], None]


class StandIn(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[Asked] = []
        self.behave: Behaviour = says("I am the assistant.")
        self.over = threading.Event()

    def handle_error(self, *_: Any) -> None:
        """Whoever goes away, or trusts us not, is no fault of ours."""
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
        return [asked.body["messages"][-1]["content"] for asked in self.asked]


@contextlib.contextmanager
def standing_in(server: StandIn | None = None) -> Iterator[StandIn]:
    """A stand-in for the length of the block; whatever hangs in it ends then."""
    server = server or StandIn()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def completion(content: Any) -> dict[str, Any]:
    """What such servers answer with."""
    message = {"role": "assistant", "content": content, "refusal": None}
    return {"id": "c-1", "object": "chat.completion", "choices": [{"index": 0, "message": message}], "usage": {}}


def sends(body: Any, status: int = 200, **headers: str) -> Behaviour:
    """An answer with a body, which is JSON unless it is bytes."""
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
    """A proper answer."""
    return sends(completion(text))


def writes(*parts: bytes, again: bytes = b"", every: float = 0) -> Behaviour:
    """Bytes as they are, the last of them again and again."""

    def behave(handler: Handler) -> None:
        handler.wfile.write(b"".join(parts))
        for _ in range(COUNTLESS if again else 0):
            handler.wfile.write(again)
            if handler.server.over.wait(every) if every else handler.server.over.is_set():
                return

    return behave


def hangs(handler: Handler) -> None:
    """Nothing at all."""
    handler.server.over.wait(60)


def resets(handler: Handler) -> None:
    """A connection that is torn down."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
