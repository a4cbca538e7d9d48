"""A request and its response: calls the WSGI application, and formats the response as HTTP/1.1."""

import functools
import logging
import os
import sys
import time
from collections.abc import Iterable
from email.utils import formatdate
from typing import Any, Protocol, TypeAlias
from wsgiref.types import WSGIEnvironment

from service import metrics
from service.api.event_stream import EventStream
from service.errors import ApiError, BadRequest, BodyTooLarge, HeadersTooLarge, InternalError, StorageUnavailable
from service.http.middleware import RequestHandled, Steps, WsgiResponse
from service.http.responses import error_response
from service.memoize import memoized
from service.server.http_parser import Request
from service.server.memory_limits import MAX_COPIED, UnsentFile

log = logging.getLogger("cx.server")
requests_log = logging.getLogger("cx.requests")

PARSER_ERRORS: dict[int, type[ApiError]] = {
    error.status: error for error in (BodyTooLarge, HeadersTooLarge, InternalError, StorageUnavailable)
}

Server: TypeAlias = Any  # waitress gives no types


class Channel(Protocol):
    """The connection of a request (see server/connection.py)."""

    addr: tuple[str | int, ...]
    connected: bool
    server: Server

    def check_client(self) -> None: ...
    def reserve_memory(self, count: int) -> bool: ...
    def send_response(self, exchange: "Exchange | None") -> None: ...
    def abort(self) -> None: ...


class Exchange:
    """A request and its response."""

    pieces: tuple[bytes, ...] = ()  # of the response, once it is made
    file: UnsentFile | None = None  # after the pieces
    stream: EventStream | None = None  # whose first events are in the pieces

    def __init__(self, channel: Channel, request: Request) -> None:
        self.channel, self.request = channel, request
        # Whose turn it is (see FairQueue): the credential, once it is verified the user; without one, the address.
        self.client = client_of(channel, request)
        options = _connection_options(request.headers.get("HTTP_CONNECTION", ""))
        self.is_last = bool(  # of its connection
            request.error or "close" in options or (request.version == "1.0" and "keep-alive" not in options)
        )
        self.is_last |= request.is_incomplete

    def prepare(self) -> bool:
        """Do what comes before the transaction. Returns whether the request needs one. Raises NeedsThread.

        Does nothing if the client has disconnected.
        """
        self.channel.check_client()
        if not self.channel.connected:
            return False
        environ = self.environ()
        self._steps: Steps[WsgiResponse] = self.channel.server.application.steps(environ)
        needs_transaction = self._next_step()
        self.client = environ.get("cx.user") or self.client
        return needs_transaction

    def run(self) -> None:
        """Run the handler, inside the transaction."""
        self._next_step()

    def finish(self, failure: Exception | None) -> None:
        """Make the response after the commit, or after its failure."""
        self._next_step(failure)

    def _next_step(self, failure: Exception | None = None) -> bool:
        """Run the next step. Returns whether there is another one."""
        try:
            try:
                self._steps.send(failure)
                return True
            except StopIteration as end:
                if end.value:  # None if an earlier step has failed
                    status, headers, body, _ = end.value  # downloads are slow operations: they come from `make`
                    self.format_response(status, headers, body)
        except Exception:  # of the application, outside of its own error handling
            log.exception("a request failed")
            self.is_last = True
        return False

    def make(self) -> None:
        """Run all steps, or respond to a request that the parser refused."""
        if self.request.error:
            self.refuse()
            return
        started: tuple[str, list[tuple[str, str]]] = "", []

        def start_response(status: str, headers: list[tuple[str, str]]) -> None:
            nonlocal started
            started = status, headers

        body = self.channel.server.application(self.environ(), start_response)
        self.file = body if isinstance(body, UnsentFile) else None
        self.format_response(*started, b"" if self.file else b"".join(body))

    def format_response(self, status: str, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        """Format header and body; in one piece unless the body is too large to be copied."""
        version = self.request.version
        self.is_last |= self.channel.server.draining or self.stream is not None
        lines = [f"HTTP/{version} {status}", f"Date: {date_of(int(time.time()))}", *map(": ".join, headers)]
        if self.is_chunked:
            lines.append("Transfer-Encoding: chunked")
            body = chunk(body)
        if self.is_last or version == "1.0":
            lines.append(f"Connection: {'close' if self.is_last else 'Keep-Alive'}")
        head = "\r\n".join(lines)
        if not head.count("\r") == head.count("\n") == len(lines) - 1:
            raise ValueError("a header contains a line break")
        start = f"{head}\r\n\r\n".encode()
        self.pieces = (start + body,) if len(body) <= MAX_COPIED else (start, body)

    @property
    def is_chunked(self) -> bool:
        """Whether the end of the response is marked. In HTTP/1.0, it is the end of the connection."""
        return self.stream is not None and self.request.version == "1.1"

    def open_stream(self, stream: EventStream) -> None:
        """Let a stream follow the response."""
        self.stream = stream

    def refuse(self) -> None:
        """Respond to a request that the parser refused."""
        error = self.request.error
        api_error = PARSER_ERRORS.get(error.code, BadRequest)(f"{error.reason}: {error.body.rstrip('.')}.")
        response = error_response(api_error)
        request_id, size = os.urandom(8).hex(), len(response.body)
        sent = {"X-Content-Type-Options": "nosniff", "X-Request-ID": request_id, "Content-Length": str(size)}
        metrics.shared.count_response(metrics.UNROUTED, response.status, 0.0)
        client = str(self.channel.addr[0])
        requests_log.info(
            RequestHandled("-", "-", response.status, 0.0, size, metrics.UNROUTED, client, "", request_id)
        )
        headers = (response.headers | sent).items()
        self.format_response(f"{response.status} {error.reason}", headers, response.body)

    def environ(self) -> WSGIEnvironment:
        """Return the WSGI environ (PEP 3333)."""
        request, server, body = self.request, self.channel.server, self.request.get_body_stream()
        body.seek(0)  # it was read if the request is restarted
        return {
            "REQUEST_METHOD": request.command,
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query,
            "SCRIPT_NAME": "",
            "REMOTE_ADDR": self.channel.addr[0],
            "SERVER_NAME": server.server_name,
            "SERVER_PORT": str(server.effective_port),
            "SERVER_PROTOCOL": f"HTTP/{request.version}",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": body,
            "wsgi.errors": sys.stderr,
            "wsgi.file_wrapper": UnsentFile,
            "wsgi.multithread": True,
            "wsgi.multiprocess": True,
            "wsgi.run_once": False,
            "cx.route": request.route,
            "cx.reserve_memory": self.channel.reserve_memory,
            "cx.long_poll": server.suspended.long_poll(request.begun),
            "cx.open_stream": self.open_stream,
            **request.headers,
        }


def client_of(channel: Channel, request: Request) -> str:
    """Return whose turn it is to have a request processed: the credential, or without one the address."""
    headers = request.headers
    return headers.get("HTTP_AUTHORIZATION") or headers.get("HTTP_COOKIE") or str(channel.addr[0])


def chunk(data: bytes) -> bytes:
    """Return a part of a chunked body; without data, its end (RFC 9112, section 7.1)."""
    return b"%x\r\n%s\r\n" % (len(data), data)


@memoized(64)
def _connection_options(text: str) -> frozenset[str]:
    """Return the options in a Connection header, in lower case (RFC 9110, section 7.6.1)."""
    return frozenset(option.strip(" \t") for option in text.lower().split(","))


@functools.lru_cache(1)
def date_of(second: int) -> str:
    """Return a time in the format of HTTP (RFC 9110, section 5.6.7)."""
    return formatdate(second, usegmt=True)
