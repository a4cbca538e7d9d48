"""A connection of a client: one request after the other, each in its time, answered or refused in our envelope."""

import contextlib
import logging
import socket
import time
from typing import Any

from waitress.buffers import OverflowableBuffer, TempfileBasedBuffer
from waitress.channel import ClientDisconnected, HTTPChannel

from service import db
from service.operations import Runs
from service.server.answers import Answer
from service.server.reading import SMALL_BODY, Request
from service.server.unsent import Rest
from service.waiting import Pause

log = logging.getLogger("cx.server")

IDLE = 75.0  # seconds in which nothing need be asked; reverse proxies let go after 60, and should be first
HEADER = 20.0  # seconds in which the header of a request must be whole, however slowly it comes
SLACK = 30.0  # seconds that a client may be behind the least rate for a body
RATE = 1024  # bytes a second, of the last seconds: each byte sent is worth its part of a second, up to SLACK
DISCARDED = 64 * 1024 * 1024  # bytes of a refused body that are read and dropped, so that the client reads the response
WHOLE = 300.0  # seconds in which a request must be whole, or an answer read to its end
UNREAD = 30.0  # seconds in which a client must read on
TOGETHER = 0.002  # seconds in which an answer waits for others of its turn


class Connection(HTTPChannel):  # type: ignore[misc]
    """What waitress calls a channel.

    `requests` holds the one request that is being answered, `request` one that is still coming, `unread` the bytes that
    follow; they are looked at when the answer is out. So a client that sends requests without reading answers makes us
    hold one answer, and of its requests no more than what one read brings.
    """

    request: Request | None
    requests: list[Request]
    is_aside = False
    was_answered = False
    unread = b""
    held = 0  # bytes of the room for unsent responses
    discards = False  # the last response is out, and the client may still be sending the body that it refuses
    discarded = 0

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.since = self.moved = time.monotonic()  # the step it is at (see `is_overdue`) began; bytes went out
        self.due = self.progressed = self.since  # more of a body must have come; the last 16 KiB of it were complete

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
        if self.discards:
            return spent > WHOLE or now > self.due
        if self.request is None:
            return min(spent, now - self.moved) > IDLE
        if not self.request.headers_finished:
            return spent > HEADER
        return spent > WHOLE or now > self.due

    def worth(self) -> tuple[Any, ...]:
        """What is lost when it is closed; the least comes first: who has asked nothing yet, for the longest time."""
        is_sending = self.request is not None and self.request.headers_finished
        is_receiving = bool(self.total_outbufs_len)
        return not self.discards, is_receiving, is_sending, self.was_answered, max(self.since, self.moved)

    def received(self, data: bytes) -> bool:
        """Take in what came, one request at a time. Only in the thread of the server."""
        self.unread += data
        if self.discards:
            self._discard()
        while self.unread and not (self.requests or self.total_outbufs_len or self.is_ending()):
            if self.request is None:
                self.request = Request(self.adj, self.server.find, self.server.public_host)
                self.since = self.progressed = time.monotonic()
                self.due = self.since + SLACK
            request, in_body = self.request, self.request.headers_finished
            if in_body:
                self.server.make_room_for_body(len(self.unread))
                if self.request is not request:
                    break  # its own body had to go
            count = request.received(self.unread)
            self.unread = self.unread[count:]
            if request.completed:
                self._finish()
            elif in_body:
                self._note_progress(request, count)
            elif request.expect_continue and request.headers_finished:
                self.send_continue()
        return True

    def _finish(self) -> None:
        """Answer the request that is complete, or that is refused before it is."""
        request, self.request = self.request, None
        self.server.large_bodies.discard(self)
        if request and not request.empty:
            self.requests.append(request)
            self.begin(request)

    def _note_progress(self, request: Request, count: int) -> None:
        """Note that some more bytes of a body have come."""
        now = time.monotonic()
        self.due = min(self.due + count / RATE, now + SLACK)
        if request.body_bytes_received % SMALL_BODY < count:
            self.progressed = now
        if request.held:
            self.server.large_bodies.add(self)

    def slowness(self, now: float) -> float:
        """How large its body is and how slowly it comes, in bytes times seconds since 16 KiB of it were complete."""
        return self.request.held * (now - self.progressed) if self.request else 0.0

    def refuse_body(self) -> None:
        """Answer 503 to a request whose body has to make room for others."""
        if self.request:
            self.request.refuse_for_want_of_room()
        self._finish()

    def _discard(self) -> None:
        """Drop what comes after the last response, until the client closes or has had its time."""
        count, self.unread = len(self.unread), b""
        self.due = min(self.due + count / RATE, time.monotonic() + SLACK)
        self.discarded += count
        if self.discarded > DISCARDED:
            self.handle_close()

    def begin(self, request: Request) -> None:
        """Have a request answered: on the event loop if it reads, in a group commit if it writes, else in a thread.

        A read that turns out to write, or to take long, is begun anew in a thread.
        """
        server, request.begun = self.server, time.monotonic()
        runs = self.runs(request)
        try:
            if runs == "read":
                with server.inline_read():
                    server.made.append((self, self.make()))
            elif runs == "write":
                self.since = request.begun
                self.server.watch.wake(self)
                server.group_commit.add(Answer(self, request))
            else:
                server.add_task(self)
        except db.NeedsThread:
            server.add_task(self)
        if server.made and self.since - server.made[0][0].since > TOGETHER:
            server.give()

    def runs(self, request: Request) -> Runs:
        """Where a request runs: as its operation declares, as far as the database allows, and its body is small."""
        operation = request.route.operation if request.route else None
        if request.error or (request.route and operation is None):
            runs: Runs = "read"
        elif operation is None or request.body_bytes_received > SMALL_BODY:
            runs = "slow"
        else:
            runs = operation.runs or "slow"
        can = {"read": self.server.inline_read, "write": self.server.group_commit}
        return runs if can.get(runs) else "slow"

    def is_ending(self) -> bool:
        """Whether no more requests are answered here."""
        return bool(self.will_close or self.close_when_flushed or self.discards or not self.connected)

    def readable(self) -> bool:
        """Whether to read on, after what was read already; aside, to see the client go, but not on and on."""
        if self.unread:
            self.received(b"")
        if self.discards:
            return not self.will_close
        return not (self.unread or self.total_outbufs_len or self.is_ending() or (self.requests and not self.is_aside))

    def service(self) -> None:
        """Answer a request whose turn has come in a thread."""
        self.see_who_is_there()
        self.answer()
        self.server.pull_trigger()

    def answer(self) -> None:
        """Answer a request, or put it aside if it waits."""
        self.give(self.make())

    def make(self) -> Answer | None:
        """The answer to a request, for `give`; none if it was put aside. For who has gone, nothing is done."""
        self.since = time.monotonic()
        answer = Answer(self, self.requests[0])
        try:
            if self.connected:
                answer.make()
        except Pause as pause:
            self.is_aside = True
            self.server.waiting.admit(self, pause)
            if not self.connected:
                self.server.waiting.leave(self)
            return None
        except Exception:  # beyond what the application answers itself
            log.exception("a request failed")
            answer.is_last = True
        return answer

    def give(self, answer: Answer | None) -> None:
        """Send an answer, as far as the client takes it at once."""
        if answer is None:
            return
        for piece in answer.pieces if self.connected else ():
            self.write_soon(piece)
        self._give_back(self.total_outbufs_len)
        self.was_answered, self.since = True, time.monotonic()
        answer.request.close()
        if answer.request.is_incomplete and self.connected:
            self.due, self.discards = self.since + SLACK, True
            self._end_sending()
        else:
            self.close_when_flushed |= answer.is_last or not self.connected
        self.requests = []

    def _end_sending(self) -> None:
        """Tell a client whose body is discarded that nothing follows the response, when all of it is out."""
        if self.discards and not self.total_outbufs_len:
            with contextlib.suppress(OSError, AttributeError):  # it has gone, or is closed by now
                self.socket.shutdown(socket.SHUT_WR)

    def write_soon(self, data: bytes) -> None:
        """Send what the kernel takes at once, and keep the rest."""
        with self.outbuf_lock:
            try:
                sent = 0 if self.total_outbufs_len else self.send(data, do_close=False)
                self.moved = time.monotonic()
                if sent < len(data):
                    self._keep(memoryview(data)[sent:])
            except (OSError, ClientDisconnected):  # it has gone, or there is no disk for the rest of a large answer
                self.will_close = True

    def _keep(self, rest: memoryview) -> None:
        """Keep the rest of a response; in a temporary file when there is no room for it in memory."""
        missing = self.total_outbufs_len + len(rest) - self.held
        if missing <= 0 or self.take_room(missing):
            kept: Any = Rest(rest)
        else:
            kept = TempfileBasedBuffer()
            try:
                kept.append(rest)
            except OSError:
                kept.close()
                raise
        self.outbufs += [kept, OverflowableBuffer(self.adj.outbuf_overflow)]  # waitress writes into the last one
        self.current_outbuf_count = 0
        self.total_outbufs_len += len(rest)

    def take_room(self, count: int) -> bool:
        """Take room for bytes of a response that wait until the client reads them; False if there is not enough."""
        with self.outbuf_lock:
            taken: bool = self.server.unsent.take(count)
            self.held += count * taken
            return taken

    def _give_back(self, needed: int) -> None:
        """Give back the room beyond what is needed."""
        with self.outbuf_lock:
            if self.held > needed:
                self.server.unsent.take(needed - self.held)
                self.held = needed

    def see_who_is_there(self) -> None:
        """Note whether the client has reset the connection; one that merely sends no more may still read."""
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except (ConnectionError, AttributeError):  # closed by now
            self.connected = False
        except OSError:  # there is nothing to read
            pass

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
        self._give_back(0)
        self.unread = b""
        self.server.large_bodies.discard(self)
        if self.request is not None:
            self.request.close()
        self.server.waiting.leave(self)

    def _flush_some(self, do_close: bool = True) -> bool:
        sent = bool(super()._flush_some(do_close))
        if sent:
            self.moved = time.monotonic()
            self._give_back(self.total_outbufs_len)
            self._end_sending()
        return sent
