"""Waitress as we run it: several workers on one socket, answers in our envelope, and nobody cut off at the end.

Plain waitress drops what is in flight at SIGTERM and answers unreadable requests in plain text.
"""

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
from waitress.adjustments import Adjustments
from waitress.buffers import OverflowableBuffer
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask, ThreadedTaskDispatcher, WSGITask
from waitress.utilities import BadRequest, Error

from service.settings import Settings

log = logging.getLogger("cx.server")

UNISON = 0.2  # seconds in which all workers stop listening, before the first client is told to connect anew
GRACE = 1.0  # seconds in which an idle connection may still send the request it has begun
PATIENCE = 10.0  # seconds until draining ends, whatever is still running
BACK_OFF = 1.0  # seconds before a worker that died is replaced
STOPPING = (signal.SIGTERM, signal.SIGINT)
KEPT = 8 * 1024 * 1024  # bytes of a body; more than any operation takes
LINE = 4096  # bytes that part the chunks of a body, or follow the last
CODES = {
    400: "bad_request",
    413: "body_too_large",
    431: "headers_too_large",
    500: "internal_error",
    503: "storage_unavailable",
}


class _NoRoom(Error):  # type: ignore[misc]
    code, reason = 503, "Service Unavailable"


class _Body(OverflowableBuffer):  # type: ignore[misc]
    """What a client sends, in a temporary file from 512 KiB on; what cannot be kept is counted and passed over."""

    length = 0
    lost = ""  # why it could not be kept

    def append(self, data: bytes) -> None:
        self.length += len(data)
        if self.lost or self.length > KEPT:
            return
        try:
            super().append(data)
        except OSError as error:
            self.lost = error.strerror or str(error)
            self.close()

    def __len__(self) -> int:
        return self.length

    def close(self) -> None:
        with contextlib.suppress(OSError):  # closing a file writes what it still holds
            super().close()


class _Request(HTTPRequestParser):  # type: ignore[misc]
    def parse_header(self, header_plus: bytes) -> None:
        try:
            super().parse_header(header_plus)
        except ValueError:  # a length of thousands of digits, an address with half a bracket
            raise ParsingError("Header is not readable") from None
        if self.chunked and "CONTENT_LENGTH" in self.headers:
            raise ParsingError("Content-Length beside Transfer-Encoding")
        if self.body_rcv is not None:  # an empty one is false
            self.body_rcv.buf = _Body(self.adj.inbuf_overflow)

    def received(self, data: bytes) -> int:
        consumed: int = super().received(data)
        body = self.body_rcv
        if body is None:
            return consumed
        if self.chunked and len(body.control_line) + len(body.trailer) > LINE:  # joined anew at every read
            self.error, self.completed = BadRequest("Chunks are parted by too much"), True
        elif self.completed and not self.error and body.buf.lost:
            log.error("a request could not be kept: %s", body.buf.lost)
            self.error = _NoRoom("There is no room for this request right now")
        return consumed


class _Answer(WSGITask):  # type: ignore[misc]
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
        self.status = f"{error.code} {error.reason}"
        self.response_headers += [("Content-Type", "application/json"), ("X-Request-ID", os.urandom(8).hex())]
        self.response_headers += [("Retry-After", "2")] * (error.code == 503)
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class _Channel(HTTPChannel):  # type: ignore[misc]
    parser_class = _Request
    task_class = _Answer
    error_task_class = _Refusal

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

    def __init__(self, application: Any, sock: socket.socket, settings: Settings) -> None:
        adjustments = Adjustments(
            threads=settings.threads,
            ident=None,
            connection_limit=1000,
            asyncore_use_poll=True,
            channel_timeout=60,
            max_request_header_size=32 * 1024,
            max_request_body_size=64 * 1024 * 1024,  # far above ours: waitress resets the connection where we answer
            clear_untrusted_proxy_headers=not settings.trusted_proxy,  # origins knows whom to believe
        )
        dispatcher = ThreadedTaskDispatcher()
        dispatcher.set_thread_count(settings.threads)
        where = (sock.family, sock.type, sock.proto, sock.getsockname())
        super().__init__(
            application, {}, True, sock, dispatcher=dispatcher, adj=adjustments, sockinfo=where, bind_socket=False
        )

    def run_until(self, is_over: Callable[[], bool]) -> None:
        """Serve until `is_over`, then take no more connections, answer what was asked, and return."""
        while not is_over():
            self._turn(1.0)
        self.handle_accepted_already()
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


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError when the address is taken or not ours."""
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family, kind, proto)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address[0], port, *address[2:]))  # getaddrinfo takes 65536 for 0
    sock.listen(1024)
    return sock


def serve(make_application: Callable[[], Any], sock: socket.socket, settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. Applications are made in the workers: nothing may be open yet."""
    if settings.workers == 1:
        return _work(make_application, sock, settings)
    return _Workers(lambda: _work(make_application, sock, settings), sock, settings.workers).run()


def _work(make_application: Callable[[], Any], sock: socket.socket, settings: Settings) -> int:
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
    servers.append(Server(make_application(), sock, settings))
    servers[0].run_until(stop.is_set)
    return 0


class _Workers:
    """The parent process: keeps a number of workers running, and takes them down together."""

    def __init__(self, work: Callable[[], int], sock: socket.socket, count: int) -> None:
        self.work, self.sock, self.count = work, sock, count
        self.running: set[int] = set()
        self.stopping = False

    def run(self) -> int:
        for number in STOPPING:
            signal.signal(number, self.stop)
        for _ in range(self.count):
            self.start()
        failed = 0
        while self.running:
            try:
                process, status = os.wait()
            except InterruptedError:
                continue
            self.running.discard(process)
            if self.stopping:
                failed |= int(status != 0)
            else:
                log.error("worker %s ended with status %s; starting another", process, status)
                time.sleep(BACK_OFF)
                self.start()
        return failed

    def start(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # until the worker minds them, and we know of the worker
        if not self.stopping:
            process = os.fork()
            if process == 0:
                self.be_worker()
            self.running.add(process)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)

    def be_worker(self) -> None:
        """Work, then leave without what the parent registered for its own end."""
        status = 1
        try:
            status = self.work()
        except BaseException:
            log.exception("worker failed")
        sys.stderr.flush()
        os._exit(status)

    def stop(self, *_: Any) -> None:
        self.stopping = True
        self.sock.close()  # as long as we held it, the kernel would take connections that no worker answers
        for process in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
