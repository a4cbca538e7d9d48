"""A client connection: receives requests one after the other, with time limits, and sends the responses."""

import contextlib
import logging
import socket
import time

from waitress.buffers import OverflowableBuffer, TempfileBasedBuffer
from waitress.channel import ClientDisconnected, HTTPChannel

from service import db
from service.api.event_stream import EventStream
from service.api.long_poll import Suspend
from service.api.operations import Runs
from service.server.exchange import Exchange, chunk, client_of
from service.server.http_parser import SMALL_BODY, Request
from service.server.memory_limits import UnsentData, UnsentFile

log = logging.getLogger("cx.server")

# Time limits, in seconds
IDLE_TIMEOUT = 75.0  # without a request; reverse proxies close idle connections after 60, and should be first
HEADER_TIMEOUT = 20.0  # until the header of a request is complete
REQUEST_TIMEOUT = 300.0  # until a request is complete, or a response is read
READ_TIMEOUT = 30.0  # without progress while the client reads a response
BODY_SLACK = 30.0  # that a client may be behind MIN_BODY_RATE

MIN_FILE_RATE = 32 * 1024  # bytes a second, on average, at which a client must read a file

MIN_BODY_RATE = 1024  # bytes a second, measured over the last BODY_SLACK seconds
MAX_DISCARDED = 64 * 1024 * 1024  # bytes of a refused body that are read, so that the client reads the response


class Connection(HTTPChannel):  # type: ignore[misc]
    """A channel of waitress, with limits.

    `requests` holds the request in progress, `request` the one that is being received, and `unparsed` the bytes after
    it, which are parsed when the response is sent. So a client that sends requests and reads no responses takes the
    memory of one response and one read.
    """

    request: Request | None
    requests: list[Request]
    is_busy = False  # see `EventLoop`
    is_suspended = False
    stream: Exchange | None = None  # the response to which events are added
    has_responded = False
    unparsed = b""
    file_time = 0.0  # seconds that the file in the response may take in addition
    reserved = 0  # bytes of the server's `unsent_memory`
    discards = False  # the response is sent, and the client may still be sending the refused body
    discarded = 0  # bytes

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)
        now = time.monotonic()
        self.since = now  # the current step began (see `is_overdue`)
        self.last_sent = now  # bytes were sent
        self.body_due = now  # more of a body must have been received
        self.last_progress = now  # the last 16 KiB of a body were complete

    def is_idle(self) -> bool:
        """Return whether there is no request, and no response to send."""
        return not (self.requests or self.request or self.unparsed or self.total_outbufs_len)

    def is_overdue(self, now: float) -> bool:
        """Return whether the client has exceeded the time limit of the current step."""
        spent = now - self.since
        if self.total_outbufs_len:
            return spent > REQUEST_TIMEOUT + self.file_time or min(spent, now - self.last_sent) > READ_TIMEOUT
        if self.requests:
            return False  # the server is working
        if self.discards:
            return spent > REQUEST_TIMEOUT or now > self.body_due
        if self.request is None:
            return min(spent, now - self.last_sent) > IDLE_TIMEOUT
        if not self.request.headers_finished:
            return spent > HEADER_TIMEOUT
        return spent > REQUEST_TIMEOUT or now > self.body_due

    def eviction_key(self) -> tuple[bool | float, ...]:
        """Sort connections by what closing them would lose; those that sent no request for the longest time first."""
        is_sending = self.request is not None and self.request.headers_finished
        is_receiving = bool(self.total_outbufs_len)
        return not self.discards, is_receiving, is_sending, self.has_responded, max(self.since, self.last_sent)

    def received(self, data: bytes) -> bool:
        """Parse received data, one request at a time. Called in the thread of the event loop only."""
        self.unparsed += data
        if self.discards:
            self._discard()
        while self.unparsed and not (self.requests or self.total_outbufs_len or self.is_closing()):
            if self.request is None:
                self.request = Request(self.adj, self.server.find_route, self.server.public_host)
                self.since = self.last_progress = time.monotonic()
                self.body_due = self.since + BODY_SLACK
            request, in_body = self.request, self.request.headers_finished
            if in_body:
                self.server.free_body_memory(len(self.unparsed))
                if self.request is not request:
                    break  # this body was refused
            count = request.received(self.unparsed)
            self.unparsed = self.unparsed[count:]
            if request.completed:
                self._complete_request()
            elif in_body:
                self._note_progress(request, count)
            elif request.expect_continue and request.headers_finished:
                self.send_continue()
        return True

    def _complete_request(self) -> None:
        """Process the request, which is complete or refused."""
        request, self.request = self.request, None
        self.server.large_bodies.discard(self)
        if request and not request.empty:
            self.requests.append(request)
            self.begin(request)

    def _note_progress(self, request: Request, count: int) -> None:
        """Record that bytes of a body were received."""
        now = time.monotonic()
        self.body_due = min(self.body_due + count / MIN_BODY_RATE, now + BODY_SLACK)
        if request.body_bytes_received % SMALL_BODY < count:
            self.last_progress = now
        if request.reserved:
            self.server.large_bodies.add(self)

    def body_cost(self, now: float) -> float:
        """Return how much memory the body takes, and for how long: bytes × seconds since its last complete 16 KiB."""
        return self.request.reserved * (now - self.last_progress) if self.request else 0.0

    def refuse_body(self) -> None:
        """Respond with 503 to the request that is being received, to free its memory."""
        if self.request:
            self.request.refuse_body()
        self._complete_request()

    def _discard(self) -> None:
        """Drop what is received after the last response, until the client closes or exceeds a limit."""
        count, self.unparsed = len(self.unparsed), b""
        self.body_due = min(self.body_due + count / MIN_BODY_RATE, time.monotonic() + BODY_SLACK)
        self.discarded += count
        if self.discarded > MAX_DISCARDED:
            self.handle_close()

    def begin(self, request: Request) -> None:
        """Let a request be processed: reads by the event loop, writes in a group commit, others by the thread pool."""
        server, request.begun = self.server, time.monotonic()
        runs = self.runs(request)
        if runs == "read":
            server.reads.add(client_of(self, request), self)
        elif runs == "write":
            self.since = request.begun
            server.group_commit.add(Exchange(self, request))
        else:
            server.add_task(self)

    def read(self) -> None:
        """Process a read on the event loop. One that turns out to write, or to take long, is restarted in a thread."""
        try:
            with self.server.inline_read():
                self.server.ready.append((self, self.process()))
        except db.NeedsThread:
            self.server.add_task(self)

    def runs(self, request: Request) -> Runs:
        """Return where a request runs: as its operation declares, if the database supports it and the body is small."""
        operation = request.route.operation if request.route else None
        if request.error or (request.route and operation is None):
            runs: Runs = "read"
        elif operation is None or request.body_bytes_received > SMALL_BODY:
            runs = "slow"
        else:
            runs = operation.runs or "slow"
        return runs if runs in self.server.can_run else "slow"

    def is_closing(self) -> bool:
        """Return whether no further requests are processed."""
        return bool(self.will_close or self.close_when_flushed or self.discards or not self.connected)

    def readable(self) -> bool:
        """Return whether to read from the socket, after parsing received data; while suspended, to notice its end."""
        if self.unparsed:
            self.received(b"")
        if self.discards:
            return not self.will_close
        is_processing = self.requests and not self.is_suspended
        return not (self.unparsed or self.total_outbufs_len or self.is_closing() or is_processing)

    def service(self) -> None:
        """Process the request in a thread of the pool."""
        self.check_client()
        self.send_response(self.process())
        self.server.pull_trigger()

    def process(self) -> Exchange | None:
        """Process the request; returns the exchange with its response, or None if the request was suspended.

        Does nothing if the client has disconnected.
        """
        self.since = time.monotonic()
        exchange = Exchange(self, self.requests[0])
        try:
            if self.connected:
                exchange.make()
        except Suspend as suspend:
            self.is_suspended = True
            self.server.event_loop.wake(self)
            self.server.suspended.admit(self, suspend)
            if not self.connected:
                self.server.suspended.leave(self)
            return None
        except Exception:  # of the application, outside of its own error handling
            log.exception("a request failed")
            exchange.is_last = True
        return exchange

    def send_response(self, exchange: Exchange | None) -> None:
        """Send a response, as much as the kernel accepts; the event loop sends the rest."""
        if exchange is None:
            return
        for piece in exchange.pieces if self.connected else ():
            self.write_soon(piece)
        self._send_file(exchange.file)
        if self.reserved:
            self._release_memory(self.total_outbufs_len)
        self.has_responded, self.since = True, time.monotonic()
        if exchange.stream and self.connected:
            self._begin_events(exchange, exchange.stream)
            return
        exchange.request.close()
        if exchange.request.is_incomplete and self.connected:
            self.body_due, self.discards = self.since + BODY_SLACK, True
            self._end_sending()
        else:
            self.close_when_flushed |= exchange.is_last or not self.connected
        self.requests = []
        self.server.event_loop.wake(self)

    def _begin_events(self, exchange: Exchange, stream: EventStream) -> None:
        """Add events to a response, until the stream ends. Meanwhile the request is suspended."""
        self.stream, self.is_suspended = exchange, True
        self.server.event_loop.wake(self)
        self.server.suspended.add_stream(self, stream)
        if not self.connected:
            self.server.suspended.remove_stream(self)

    def can_send_events(self) -> bool:
        """Return whether the client has read the previous events. Callable from any thread, as the next two are."""
        return not self.total_outbufs_len

    def send_events(self, events: bytes) -> None:
        """Send events, if the stream has not ended."""
        with self.outbuf_lock:
            if self.stream and self.connected:  # otherwise the socket may be closed
                self.since = time.monotonic()
                self.write_soon(chunk(events) if self.stream.is_chunked else events)
            if self.total_outbufs_len or self.will_close:
                self._wake()

    def end_events(self) -> None:
        """End the stream, and close the connection when everything is sent."""
        with self.outbuf_lock:
            if self.stream:
                if self.stream.is_chunked and self.connected:
                    self.write_soon(chunk(b""))
                self.stream.request.close()
                self.stream, self.is_suspended, self.requests = None, False, []
                self.close_when_flushed = True
                self._wake()

    def _wake(self) -> None:
        """Let the event loop evaluate this connection. Callable from any thread."""
        self.server.event_loop.wake(self)
        self.server.pull_trigger()

    def _send_file(self, file: UnsentFile | None) -> None:
        """Let the event loop send a file after the pieces."""
        self.file_time = len(file) / MIN_FILE_RATE if file else 0.0
        with self.outbuf_lock:
            if file and self.connected:
                self.outbufs += [file, OverflowableBuffer(self.adj.outbuf_overflow)]
                self.total_outbufs_len += len(file)
            elif file:
                file.close()

    def abort(self) -> None:
        """Close the connection without a response. Callable from any thread."""
        self.will_close = True
        self.server.event_loop.wake(self)

    def _end_sending(self) -> None:
        """Shut down sending when the response is sent and the client's body is being discarded."""
        if self.discards and not self.total_outbufs_len:
            with contextlib.suppress(OSError, AttributeError):  # the client has disconnected, or the socket is closed
                self.socket.shutdown(socket.SHUT_WR)

    def write_soon(self, data: bytes) -> None:
        """Send what the kernel accepts, and buffer the rest."""
        with self.outbuf_lock:
            try:
                sent = 0 if self.total_outbufs_len else self.send(data, do_close=False)
                self.last_sent = time.monotonic()
                if sent < len(data):
                    self._buffer(memoryview(data)[sent:])
            except (OSError, ClientDisconnected):  # disconnected, or no disk space for the rest
                self.will_close = True

    def _buffer(self, rest: memoryview) -> None:
        """Buffer the rest of a response: in memory, or in a temporary file if the limit of unsent memory is reached."""
        missing = self.total_outbufs_len + len(rest) - self.reserved
        if missing <= 0 or self.reserve_memory(missing):
            buffer: UnsentData | TempfileBasedBuffer = UnsentData(rest)
        else:
            buffer = TempfileBasedBuffer()
            try:
                buffer.append(rest)
            except OSError:
                buffer.close()
                raise
        self.outbufs += [buffer, OverflowableBuffer(self.adj.outbuf_overflow)]  # waitress appends to the last one
        self.current_outbuf_count = 0
        self.total_outbufs_len += len(rest)

    def reserve_memory(self, count: int) -> bool:
        """Reserve memory for an unsent response. Returns False if there is not enough."""
        with self.outbuf_lock:
            reserved: bool = self.server.unsent_memory.reserve(count)
            self.reserved += count * reserved
            return reserved

    def _release_memory(self, needed: int) -> None:
        """Release the reserved memory beyond `needed` bytes."""
        with self.outbuf_lock:
            if self.reserved > needed:
                self.server.unsent_memory.release(self.reserved - needed)
                self.reserved = needed

    def check_client(self) -> None:
        """Note whether the client has reset the connection. One that has only shut down sending may still read."""
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except (ConnectionError, AttributeError):  # reset, or closed here
            self.connected = False
        except OSError:  # nothing to read
            pass

    def resume(self) -> None:
        """Process a suspended request again, in a thread."""
        self.is_suspended = False
        self.server.add_task(self)

    def handle_close(self) -> None:
        """Close the connection, after reading pending data: otherwise the kernel resets it and drops the last response.

        Waitress calls this twice when a client disconnects while there is data to read.
        """
        if self.socket is None:
            return
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
            for _ in range(64):
                if not self.socket.recv(65536):
                    break
        super().handle_close()
        self._release_memory(0)
        self.unparsed = b""
        self.server.large_bodies.discard(self)
        if self.request is not None:
            self.request.close()
        self.server.suspended.remove_stream(self)
        self.server.suspended.leave(self)

    def _flush_some(self, do_close: bool = True) -> bool:
        sent = bool(super()._flush_some(do_close))
        if sent:
            self.last_sent = time.monotonic()
            self._release_memory(self.total_outbufs_len)
            self._end_sending()
        return sent
