"""A connection of a client: one request after the other, each in its time, answered or refused in our envelope."""

import contextlib
import functools
import os
import socket
import sys
import time
from email.utils import formatdate
from typing import Any

import msgspec
from waitress.channel import HTTPChannel
from waitress.task import ErrorTask, Task

from service import db, metrics
from service.edge import Answered, log
from service.replies import JSON
from service.server.reading import Request
from service.waiting import Pause

IDLE = 75.0  # seconds in which nothing need be asked; reverse proxies let go after 60, and should be first
HEADER = 20.0  # seconds in which the header of a request must be whole, however slowly it comes
SLACK = 30.0  # seconds after which the rest of a request must come at a least rate
RATE = 1024  # bytes a second
WHOLE = 300.0  # seconds in which a request must be whole, or an answer read to its end
UNREAD = 30.0  # seconds in which a client must read on
CODES = {
    400: "bad_request",
    413: "body_too_large",
    431: "headers_too_large",
    500: "internal_error",
    503: "storage_unavailable",
}
REFUSED = {**JSON, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Answer(Task):  # type: ignore[misc]
    """The answer to a request, by the application: header and body in one piece."""

    wrote_header = True  # nobody else is to

    def execute(self) -> None:
        told: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]]) -> None:
            told[:] = status, headers

        body = b"".join(self.channel.server.application(self.environ(), start_response))
        status, headers = told
        lines = [f"HTTP/{self.version} {status}", f"Date: {date_of(int(self.start_time))}", *map(": ".join, headers)]
        asked = self.request.headers.get("HTTP_CONNECTION", "").lower()
        if self.channel.server.draining or asked == "close" or (self.version == "1.0" and asked != "keep-alive"):
            self.close_on_finish = True
        if self.close_on_finish or self.version == "1.0":
            lines.append(f"Connection: {'close' if self.close_on_finish else 'Keep-Alive'}")
        self.channel.write_soon("\r\n".join([*lines, "\r\n"]).encode("latin-1") + body)

    def finish(self) -> None:
        pass

    def environ(self) -> dict[str, Any]:
        """What the application is asked (PEP 3333)."""
        request, channel = self.request, self.channel
        begun = request.begun = getattr(request, "begun", time.monotonic())
        return {
            "REQUEST_METHOD": request.command,
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query,
            "SCRIPT_NAME": "",
            "REMOTE_ADDR": channel.addr[0],
            "SERVER_NAME": channel.server.server_name,
            "SERVER_PORT": str(channel.server.effective_port),
            "SERVER_PROTOCOL": f"HTTP/{self.version}",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": request.get_body_stream(),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": True,
            "wsgi.run_once": False,
            "cx.patience": channel.server.waiting.patience(begun),
            **request.headers,
        }


@functools.lru_cache(1)
def date_of(second: int) -> str:
    """A time as HTTP has it (RFC 9110, section 5.6.7)."""
    return formatdate(second, usegmt=True)


class Refusal(ErrorTask):  # type: ignore[misc]
    """The answer to what is not readable as HTTP, in the envelope."""

    def execute(self) -> None:
        error = self.request.error
        told = {"code": CODES.get(error.code, "bad_request"), "message": f"{error.reason}: {error.body.rstrip('.')}."}
        body = msgspec.json.encode({"success": False, "error": told})
        request_id, client = os.urandom(8).hex(), str(self.channel.addr[0])
        self.status = f"{error.code} {error.reason}"
        self.response_headers += [*REFUSED.items(), ("X-Request-ID", request_id)]
        self.response_headers += [("Retry-After", "2")] * (error.code == 503)
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)
        metrics.board.answered(metrics.UNROUTED, error.code, 0.0)
        log.info(Answered("-", "-", error.code, 0.0, len(body), metrics.UNROUTED, client, "", request_id))


class Connection(HTTPChannel):  # type: ignore[misc]
    """What waitress calls a channel.

    `requests` holds the one request that is being answered, `request` one that is still coming, `unread` the bytes that
    follow; they are looked at when the answer is out. So a client that sends requests without reading answers makes us
    hold one answer, and of its requests no more than what one read brings.
    """

    task_class = Answer
    error_task_class = Refusal
    request: Request | None
    sent_continue: bool
    is_aside = False
    was_answered = False
    unread = b""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.since = self.moved = time.monotonic()  # the step it is at (see `is_overdue`) began; bytes went out

    @property
    def is_busy(self) -> bool:
        """Whether another thread may change what there is to read and write: one that answers, unless it has ended.

        `requests` comes first: an answer is told to be the last one before its request is taken off them.
        """
        return bool((self.requests and not self.is_aside) or self.total_outbufs_len or self.close_when_flushed)

    def is_idle(self) -> bool:
        """Whether nothing was asked and nothing is on its way out."""
        return not (self.requests or self.request or self.unread or self.total_outbufs_len)

    def is_overdue(self, now: float) -> bool:
        """Whether the client has had the time that there is for what it is at."""
        spent = now - self.since
        if self.total_outbufs_len:
            return spent > WHOLE or min(spent, now - self.moved) > UNREAD
        if self.requests:
            return False  # the next step is ours
        if self.request is None:
            return min(spent, now - self.moved) > IDLE
        if not self.request.headers_finished:
            return spent > HEADER
        return spent > WHOLE or self.request.body_bytes_received < (spent - SLACK) * RATE

    def worth(self) -> tuple[Any, ...]:
        """What is lost when it is closed; the least comes first: who has asked nothing yet, for the longest time."""
        is_sending = self.request is not None and self.request.headers_finished
        return bool(self.total_outbufs_len), is_sending, self.was_answered, max(self.since, self.moved)

    def received(self, data: bytes) -> bool:
        """Take in what came, one request at a time. Only in the thread of the server."""
        self.unread += data
        while self.unread and not (self.requests or self.total_outbufs_len or self.is_ending()):
            with self.requests_lock:
                if self.request is None:
                    self.request, self.since = Request(self.adj), time.monotonic()
                request = self.request
                self.unread = self.unread[request.received(self.unread) :]
                if request.expect_continue and request.headers_finished and not self.sent_continue:
                    self.send_continue()
                if not request.completed:
                    continue
                self.request, self.sent_continue = None, False
                if request.empty:
                    continue
                self.requests.append(request)
            self.begin(request)
        return True

    def begin(self, request: Request) -> None:
        """Answer a request in passing if it merely reads, else in a thread: to hand it over takes as long again."""
        in_passing = self.server.in_passing
        if in_passing and not request.error and request.command in ("GET", "HEAD"):
            try:
                with in_passing():
                    self.service()
                return
            except db.Elsewhere:
                pass
        self.server.add_task(self)

    def is_ending(self) -> bool:
        """Whether no more requests are answered here."""
        return bool(self.will_close or self.close_when_flushed or not self.connected)

    def readable(self) -> bool:
        """Whether to read on, after what was read already; aside, to see the client go, but not on and on."""
        if self.unread:
            self.received(b"")
        return not (self.unread or self.total_outbufs_len or self.is_ending() or (self.requests and not self.is_aside))

    def service(self) -> None:
        """Answer a request, or put it aside if it waits. In the thread of the server, or in one of its own."""
        self.since = time.monotonic()
        if self.has_hung_up():
            self.connected = False  # nothing is done for it then
            self.server.pull_trigger()
        try:
            super().service()
        except Pause as pause:
            self.is_aside = True
            self.server.waiting.admit(self, pause)
            if not self.connected:
                self.server.waiting.leave(self)
            self.server.pull_trigger()
        else:
            self.was_answered, self.since = True, time.monotonic()

    def has_hung_up(self) -> bool:
        """Whether the client has reset the connection; one that merely sends no more may still read."""
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except (ConnectionError, AttributeError):  # closed by now
            return True
        except OSError:  # there is nothing to read
            pass
        return False

    def call_back(self) -> None:
        """Let a request that waits be answered now."""
        self.is_aside = False
        self.server.add_task(self)

    def handle_close(self) -> None:
        """Close; what was sent and not read is read away first, else the kernel takes our last answer back.

        Waitress closes twice when a client goes away while there is something to read.
        """
        if self.socket is None:
            return
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
            for _ in range(64):
                if not self.socket.recv(65536):
                    break
        super().handle_close()
        self.unread = b""
        if self.request is not None:
            self.request.close()
        self.server.waiting.leave(self)

    def _flush_some(self, do_close: bool = True) -> bool:
        sent = bool(super()._flush_some(do_close))
        if sent:
            self.moved = time.monotonic()
        return sent
