"""A client that calls the application in process, and fails on every response that the operation does not declare."""

import io
import json
import sys
import time
from typing import Any


class Reply:
    """A response: status, headers, body."""

    def __init__(self, status: int, headers: dict[str, str], raw: bytes) -> None:
        self.status, self.headers, self.raw = status, headers, raw

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def data(self) -> Any:
        """The payload of a success; fails on anything else."""
        assert self.json["success"] is True, self.json
        return self.json["data"]

    @property
    def meta(self) -> Any:
        return self.json["meta"]

    @property
    def error(self) -> tuple[int, str]:
        """Status and code of an error. Fails if the envelope has other members."""
        assert set(self.json) == {"success", "error"}, self.json
        assert self.json["success"] is False
        assert set(self.json["error"]) == {"code", "message"}
        assert self.json["error"]["message"]
        return self.status, self.json["error"]["code"]

    @property
    def message(self) -> str:
        return str(self.json["error"]["message"])


class Client:
    """Calls the application; `alice.get("/chats/…")` is relative to `/api/v1` and has her token."""

    def __init__(self, application: Any, token: str = "", user: Any = None) -> None:
        self.application, self.token, self.user = application, token, user
        self.may_crash = False  # otherwise a 500 fails the test, which undeclared responses become

    def call(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, **headers: str) -> Reply:
        """One request; a header `content_type` is Content-Type. Absolute paths begin with two slashes."""
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        path = path[1:] if path.startswith("//") else f"/api/v1{path}"
        path, _, query = path.partition("?")
        if self.token:
            headers.setdefault("authorization", f"Bearer {self.token}")
        environ = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "SERVER_NAME": "test",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": headers.pop("address", "127.0.0.1"),
            "CONTENT_LENGTH": str(len(content)),
            "wsgi.input": io.BytesIO(content),
            "wsgi.errors": sys.stderr,
            "wsgi.url_scheme": "http",
        }
        for name, value in headers.items():
            environ["CONTENT_TYPE" if name == "content_type" else f"HTTP_{name.upper()}"] = value
        if method != "GET":
            time.sleep(0.001 - time.time() % 0.001)  # so that no two writes have the same timestamp in milliseconds
        started: list[Any] = []
        sent_body = self.application(environ, lambda *arguments: started.append(arguments))
        payload = b"".join(sent_body)
        if hasattr(sent_body, "close"):  # of a file (PEP 3333)
            sent_body.close()
        status, sent = started[-1][:2]
        reply = Reply(int(status[:3]), dict(sent), payload)
        assert reply.headers["X-Request-ID"]
        assert reply.status != 500 or self.may_crash, f"{method} {path} returned 500; the reason is in the log"
        return reply

    def get(self, path: str, **headers: Any) -> Reply:
        return self.call("GET", path, **headers)

    def post(self, path: str, body: Any = None, **more: Any) -> Reply:
        return self.call("POST", path, body, **more)

    def put(self, path: str, body: Any = None, **more: Any) -> Reply:
        return self.call("PUT", path, body, **more)

    def patch(self, path: str, body: Any = None, **more: Any) -> Reply:
        return self.call("PATCH", path, body, **more)

    def delete(self, path: str, **more: Any) -> Reply:
        return self.call("DELETE", path, **more)


def text_of(message: dict[str, Any]) -> str:
    """The text of a message on the wire."""
    return str(json.loads(bytes(message["content"]))["text"])


def walk(client: Client, path: str, **query: Any) -> list[dict[str, Any]]:
    """All pages of a list, as a client walks them: follow `next_cursor` until it is empty."""
    found: list[dict[str, Any]] = []
    cursor, number = "", 0
    while True:
        parameters = {**query, **({"cursor": cursor} if cursor else {})}
        reply = client.get(f"{path}?{'&'.join(f'{name}={value}' for name, value in parameters.items())}")
        number += 1
        assert reply.status == 200, reply.json
        assert reply.meta.get("page", number) == number
        found += reply.data
        cursor = reply.meta["next_cursor"]
        if not cursor:
            return found
