"""Valid and malformed HTTP requests, as bytes over a socket."""

import http.client
import json
import socket
import threading
from collections import Counter

from tests.support.client import Reply
from tests.support.server_process import (
    SESSION,
    Served,
    send_request,
)

MESSAGES = f"/api/v1/chats/{SESSION}/messages"


def raw(server: Served, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes on a new connection. Returns the status, the headers and the body of the response."""
    with socket.create_connection((server.host, server.port), timeout=60) as connection:
        connection.sendall(request)
        response = b""
        while chunk := connection.recv(65536):
            response += chunk
    head, _, body = response.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}, body


def envelope(body: bytes) -> str:
    """The code of an error in the envelope."""
    content = json.loads(body)
    assert set(content) == {"success", "error"} and set(content["error"]) == {"code", "message"}, content
    assert content["success"] is False
    return str(content["error"]["code"])


MALFORMED_REQUESTS = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # a TLS hello
    b"nonsense\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nno colon\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n folded: first\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"POST /api/v1/auth/login HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
]


class Caller(threading.Thread):
    """A client that repeats a request on one connection, and counts the outcomes."""

    def __init__(self, server: Served, token: str) -> None:
        super().__init__()
        self.server, self.token = server, token
        self.outcomes: Counter[str] = Counter()

    def run(self) -> None:
        connection = self.server.connect()
        while "refused" not in self.outcomes and sum(self.outcomes.values()) < 100_000:
            try:
                connection.connect() if connection.sock is None else None
                self.outcomes["completed" if self.send(connection) else "wrong"] += 1
            except ConnectionRefusedError:
                self.outcomes["refused"] += 1  # before anything was sent
            except (OSError, http.client.HTTPException) as error:
                self.outcomes[f"lost: {error!r}"] += 1
                connection.close()
        connection.close()

    def send(self, connection: http.client.HTTPConnection) -> bool:
        """Send one request. Returns whether the response is correct."""
        reply: Reply = send_request(connection, "GET", f"{MESSAGES}?limit=20", token=self.token)
        return reply.status == 200 and len(reply.data) == 20
