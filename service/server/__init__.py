"""Waitress as we run it: several workers on one socket, answers in our envelope, and nobody cut off at the end.

Plain waitress drops what is in flight at SIGTERM, answers unreadable requests in plain text, and is shut by a few
hundred clients that connect and say nothing.
"""

import contextlib
import ctypes
import errno
import logging
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import urlsplit

from waitress.adjustments import Adjustments
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from service import logs, metrics
from service.asking import asking
from service.server.answers import CODES, Answer
from service.server.connection import Connection
from service.server.group_commit import GroupCommit, Transaction
from service.server.reading import body_room, host_of
from service.server.unsent import UNSENT, Room
from service.server.watch import Watch
from service.server.workers import STOPPING, Lifeline, Workers
from service.settings import Settings
from service.waiting import News, WaitingRoom, nothing

InlineRead = Callable[[], AbstractContextManager[None]]  # inside, what writes or takes long raises NeedsThread

__all__ = ("CODES", "Server", "listen", "serve")

log = logging.getLogger("cx.server")


UNISON = 0.2  # seconds in which all workers stop listening, before the first client is told to connect anew
GRACE = 1.0  # seconds in which an idle connection may still send the request it has begun
PATIENCE = 10.0  # seconds until draining ends, whatever is still running
DESCRIPTORS = 10_240  # that a process may have open, if the system lets it; macOS gives no more
MOST = 4_000  # connections of a process, if half of its descriptors are that many; databases and uploads want some too
AHEAD_OF_CLIENT = (
    128 * 1024
)  # bytes of answers that the kernel takes before they can be sent; else megabytes for each client
AHEAD = 4  # connections that a worker may have more than others before it takes one in at a turn
AT_ONCE = 64  # that it takes in at a turn
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
LOOK = 1.0  # seconds between two looks at how long connections have had
REST = 0.5  # seconds without new connections, when one could not be had
M_MMAP_THRESHOLD, LARGE = -3, 256 * 1024  # as malloc.h has it; bytes of a block
SELDOM = 60.0  # seconds between two log lines of the same kind


class Server(TcpWSGIServer):  # type: ignore[misc]
    """A waitress server on a socket that is bound already, which drains when told to.

    A new connection is always taken: when there is no room, those are closed that can best be spared. There is no limit
    for one address, since everybody behind a proxy has the same, and whoever means harm has many.
    """

    channel_class = Connection
    draining = False

    def __init__(
        self,
        application: Any,
        sock: socket.socket,
        settings: Settings,
        news: News = nothing,
        inline_read: InlineRead | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        adjustments = Adjustments(
            threads=settings.threads,
            ident=None,
            max_request_header_size=32 * 1024,
            max_request_body_size=sys.maxsize,  # each operation has its own limit
            clear_untrusted_proxy_headers=False,  # origins knows whom to believe
        )
        dispatcher = ThreadedTaskDispatcher()
        dispatcher.set_thread_count(settings.threads)
        where = (sock.family, sock.type, sock.proto, sock.getsockname())
        self.room = min(MOST, _descriptors(resource.getrlimit(resource.RLIMIT_NOFILE)[0]) // 2)
        self.find = getattr(application, "find", None)  # a plain WSGI application does not tell
        public = urlsplit(settings.public_url)
        self.public_host = host_of(public.scheme, public.netloc) if settings.public_url else ""
        self.waiting = WaitingRoom(news, Connection.call_back, self.room // 2)
        self.unsent = Room(UNSENT)
        self.watch = Watch()
        self.inline_read = inline_read
        self.group_commit = GroupCommit(transaction, self.add_task, self.pull_trigger) if transaction else None
        self.large_bodies: set[Connection] = set()  # which receive one of more than 16 KiB
        self.made: list[tuple[Connection, Answer | None]] = []
        self._thread = 0
        self._rests_until = self._looks_at = 0.0
        self._told: dict[str, float] = {}
        about = {"dispatcher": dispatcher, "adj": adjustments, "sockinfo": where, "bind_socket": False}
        super().__init__(application, self.watch, True, sock, **about)

    def run_until(self, is_over: Callable[[], bool]) -> None:
        """Serve until `is_over`, then take no more connections, answer what was asked, and return."""
        self._thread = threading.get_ident()
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
        if self.group_commit:
            self.group_commit.stop()
        self.task_dispatcher.shutdown(timeout=1)
        self.asyncore.close_all(self.watch)
        self.watch.close()

    def handle_accepted_already(self) -> None:
        """Take in the connections that the kernel accepted for us; closing the socket would reset them."""
        while self.take_in():
            pass
        self.accepting = False
        self.del_channel()
        self.socket.close()

    def give(self) -> None:
        """Send what was answered in this turn, so that no client wakes up, and takes the processor, between answers."""
        for channel, answer in self.made:
            channel.give(answer)
            self.watch.wake(channel)  # it may have read the next request already
        self.made.clear()

    def pull_trigger(self) -> None:
        """Have the thread of the server look around; in that thread it does anyway."""
        if threading.get_ident() != self._thread:
            super().pull_trigger()

    def add_task(self, channel: Connection) -> None:
        self.watch.wake(channel)
        super().add_task(channel)

    @property
    def is_busy(self) -> bool:
        """Whether it takes no connections now, and will later."""
        return time.monotonic() < self._rests_until

    def readable(self) -> bool:
        return bool(self.accepting) and not self.is_busy

    def handle_accept(self) -> None:
        """Take in a connection, and more of those that wait unless other workers have fewer."""
        fair = metrics.board.elsewhere() + AHEAD - len(self.active_channels)
        for _ in range(int(max(1, min(fair, AT_ONCE)))):
            if not self.take_in() or self.is_busy:
                break

    def set_socket_options(self, conn: socket.socket) -> None:
        super().set_socket_options(conn)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, AHEAD_OF_CLIENT)

    def take_in(self) -> bool:
        """Take in a connection; whether there may be another."""
        try:
            accepted = self.accept()
            if accepted is None:
                return False
            self.set_socket_options(accepted[0])
        except OSError as error:  # macOS: also of a client that has gone
            if error.errno in EXHAUSTED:
                self._warn("cannot take a connection: %s", error.strerror)
                self._rests_until = time.monotonic() + REST
                return self._make_room()
            return False
        if len(self.active_channels) >= self.room:
            self._warn("%s connections, no room for more: closing those that have asked nothing for long", self.room)
            if not self._make_room():
                self._rests_until = time.monotonic() + REST
        self.channel_class(self, accepted[0], accepted[1], self.adj, map=self.watch)
        return True

    def _make_room(self) -> bool:
        """Close some of the connections that can best be spared; whether there are any."""
        spare = sorted(
            (channel for channel in self.active_channels.values() if not channel.requests), key=Connection.worth
        )
        for channel in spare[: 1 + self.room // 32]:
            channel.handle_close()
        return bool(spare)

    def make_room_for_body(self, count: int) -> None:
        """Refuse the largest and slowest bodies, until there is room for some more bytes of another."""
        while count > body_room.left and self.large_bodies:
            now = time.monotonic()
            max(self.large_bodies, key=lambda connection: connection.slowness(now)).refuse_body()

    def _look(self, now: float) -> None:
        """Close the connections whose clients have had their time."""
        for channel in list(self.active_channels.values()):
            if channel.is_overdue(now):
                channel.handle_close()

    def _turn(self, timeout: float) -> None:
        with logs.lines.held():
            self.watch.ask()
            self.watch.turn(0.0 if self.made else timeout)
            self.give()
        threads = self.task_dispatcher
        queued = max(0, len(threads.queue) + threads.active_count - len(threads.threads))  # beyond those that are free
        queued += self.group_commit.count() if self.group_commit else 0
        metrics.board.tell(len(self.active_channels), queued, self.waiting.count())
        now = time.monotonic()
        if now >= self._looks_at:
            self._looks_at = now + LOOK
            self._look(now)

    def _warn(self, text: str, *values: Any) -> None:
        """Say it in the log, unless it was said lately."""
        now = time.monotonic()
        if now >= self._told.get(text, 0.0):
            self._told[text] = now + SELDOM
            log.warning(text, *values)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError when the address is taken or not ours."""
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family, kind, proto)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address[0], port, *address[2:]))  # getaddrinfo takes 65536 for 0
    sock.listen(1024)
    return sock


def serve(
    make_application: Callable[[], Any],
    sock: socket.socket,
    settings: Settings,
    news: News = nothing,
    inline_read: InlineRead | None = None,
    transaction: Transaction | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. Applications are made in the workers: nothing may be open yet."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _descriptors(soft) < _descriptors(hard):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (_descriptors(hard), hard))

    def work(lifeline: int | None = None) -> int:
        def make_server() -> Server:
            return Server(make_application(), sock, settings, news, inline_read, transaction)

        return _work(settings, make_server, lifeline)

    if settings.workers == 1:
        return work()
    return Workers(work, sock, settings.workers).run()


def _descriptors(limit: int) -> int:
    """How many descriptors we open under a limit of the system's."""
    return DESCRIPTORS if limit == resource.RLIM_INFINITY else min(limit, DESCRIPTORS)


def _give_memory_back() -> None:
    """Let the system have large blocks again once they are free (mallopt(3), where there is one).

    A password takes 19 MiB to hash, a picture more to read; each thread would keep as much ever after.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE)


def _work(settings: Settings, make_server: Callable[[], Server], lifeline: int | None) -> int:
    stop = threading.Event()
    servers: list[Server] = []

    def be_told(*_: Any) -> None:
        if not stop.is_set():  # a second signal may find us inside of it
            stop.set()
        for server in servers:
            with contextlib.suppress(OSError):  # it is closed already
                server.trigger.pull_trigger()  # the kernel is asked on after a signal

    for number in STOPPING:
        signal.signal(number, be_told)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    _give_memory_back()
    threading.stack_size(4 * 1024 * 1024)  # musl's 128 KiB would not survive deeply nested JSON
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # it warns of every request that waits its turn
    servers.append(make_server())
    if lifeline is not None:
        Lifeline(lifeline, servers[0].watch, be_told)
    with asking(settings, stop):
        servers[0].run_until(stop.is_set)
    return 0
