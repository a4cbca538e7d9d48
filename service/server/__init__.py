"""Waitress as we run it: several workers on one socket, answers in our envelope, and nobody cut off at the end.

Plain waitress drops what is in flight at SIGTERM and answers unreadable requests in plain text.
"""

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask, ThreadedTaskDispatcher, WSGITask

from service import metrics
from service.asking import asking
from service.edge import Answered
from service.edge import log as request_log
from service.server.reading import Request
from service.server.workers import STOPPING, Workers
from service.settings import Settings
from service.waiting import News, Pause, WaitingRoom, nothing

log = logging.getLogger("cx.server")

UNISON = 0.2  # seconds in which all workers stop listening, before the first client is told to connect anew
GRACE = 1.0  # seconds in which an idle connection may still send the request it has begun
PATIENCE = 10.0  # seconds until draining ends, whatever is still running
CODES = {
    400: "bad_request",
    413: "body_too_large",
    431: "headers_too_large",
    500: "internal_error",
    503: "storage_unavailable",
}


class _Answer(WSGITask):  # type: ignore[misc]
    def get_environment(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environment()
        self.request.begun = getattr(self.request, "begun", time.monotonic())
        environ["cx.patience"] = self.channel.server.waiting.patience(self.request.begun)
        return environ

    def build_response_header(self) -> bytes:
        if self.channel.server.draining:
            self.set_close_on_finish()
        return bytes(super().build_response_header())


class _Refusal(ErrorTask):  # type: ignore[misc]
    """The answer to what is not readable as HTTP, in the envelope."""

    def execute(self) -> None:
        error = self.request.error
        told = {"code": CODES.get(error.code, "bad_request"), "message": f"{error.reason}: {error.body}."}
        body = msgspec.json.encode({"success": False, "error": told})
        request_id, client = os.urandom(8).hex(), str(self.channel.addr[0])
        self.status = f"{error.code} {error.reason}"
        self.response_headers += [("Content-Type", "application/json"), ("X-Request-ID", request_id)]
        self.response_headers += [("Retry-After", "2")] * (error.code == 503)
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)
        metrics.board.answered(metrics.UNROUTED, error.code, 0.0)
        request_log.info(Answered("-", "-", error.code, 0.0, len(body), metrics.UNROUTED, client, "", request_id))


class _Channel(HTTPChannel):  # type: ignore[misc]
    parser_class = Request
    task_class = _Answer
    error_task_class = _Refusal
    is_aside = False

    def service(self) -> None:
        """Answer a request, or put it aside if it waits; what follows it on the connection waits behind it."""
        self.is_aside = False
        try:
            super().service()
        except Pause as pause:
            self.is_aside = True
            self.server.waiting.admit(self, pause)
            self.server.pull_trigger()

    def readable(self) -> bool:
        """Also while it is aside, to see the client go; not on and on, when there is more to read."""
        return bool(super().readable() or (self.is_aside and len(self.requests) == 1 and self.request is None))

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

    def is_idle(self) -> bool:
        """Whether nothing was asked and nothing is on its way out."""
        return not (self.requests or self.request or self.total_outbufs_len)


class Server(TcpWSGIServer):  # type: ignore[misc]
    """A waitress server on a socket that is bound already, which drains when told to."""

    channel_class = _Channel
    draining = False

    def __init__(
        self,
        application: Any,
        sock: socket.socket,
        settings: Settings,
        news: News = nothing,
    ) -> None:
        adjustments = Adjustments(
            threads=settings.threads,
            ident=None,
            connection_limit=1000,
            asyncore_use_poll=True,
            channel_timeout=60,
            max_request_header_size=32 * 1024,
            max_request_body_size=64 * 1024 * 1024,  # far above ours: waitress resets the connection where we answer
            clear_untrusted_proxy_headers=False,  # origins knows whom to believe
        )
        dispatcher = ThreadedTaskDispatcher()
        dispatcher.set_thread_count(settings.threads)
        where = (sock.family, sock.type, sock.proto, sock.getsockname())
        self.waiting = WaitingRoom(news, self.add_task)
        super().__init__(
            application, {}, True, sock, dispatcher=dispatcher, adj=adjustments, sockinfo=where, bind_socket=False
        )

    def run_until(self, is_over: Callable[[], bool]) -> None:
        """Serve until `is_over`, then take no more connections, answer what was asked, and return."""
        while not is_over():
            self._turn(1.0)
        self.handle_accepted_already()
        self.waiting.close()
        begun = time.monotonic()
        while self.active_channels and time.monotonic() - begun < PATIENCE:
            self._turn(0.05)
            self.draining = time.monotonic() - begun > UNISON
            for channel in list(self.active_channels.values()):
                if channel.is_idle() and time.monotonic() - begun > GRACE:
                    channel.handle_close()
        self.task_dispatcher.shutdown(timeout=1)
        self.asyncore.close_all(self._map)

    def handle_accepted_already(self) -> None:
        """Take in the connections that the kernel accepted for us; closing the socket would reset them."""
        known = -1
        while known != len(self.active_channels):
            known = len(self.active_channels)
            self.handle_accept()
        self.accepting = False
        self.del_channel()
        self.socket.close()

    def _turn(self, timeout: float) -> None:
        self.asyncore.loop(timeout=timeout, use_poll=True, map=self._map, count=1)
        threads = self.task_dispatcher
        queued = max(0, len(threads.queue) + threads.active_count - len(threads.threads))  # beyond those that are free
        metrics.board.tell(len(self.active_channels), queued, self.waiting.count())


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError when the address is taken or not ours."""
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family, kind, proto)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address[0], port, *address[2:]))  # getaddrinfo takes 65536 for 0
    sock.listen(1024)
    return sock


def serve(make_application: Callable[[], Any], sock: socket.socket, settings: Settings, news: News = nothing) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. Applications are made in the workers: nothing may be open yet."""

    def work() -> int:
        return _work(make_application, sock, settings, news)

    if settings.workers == 1:
        return work()
    metrics.prepare(settings.workers)
    return Workers(work, sock, settings.workers).run()


def _work(make_application: Callable[[], Any], sock: socket.socket, settings: Settings, news: News) -> int:
    stop = threading.Event()
    servers: list[Server] = []

    def be_told(*_: Any) -> None:
        stop.set()
        for server in servers:
            server.pull_trigger()  # poll() goes on waiting after a signal

    for number in STOPPING:
        signal.signal(number, be_told)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    threading.stack_size(4 * 1024 * 1024)  # musl's 128 KiB would not survive deeply nested JSON
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # it warns of every request that waits its turn
    servers.append(Server(make_application(), sock, settings, news))
    with asking(settings, stop):
        servers[0].run_until(stop.is_set)
    return 0
