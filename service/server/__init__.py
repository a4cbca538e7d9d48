"""The HTTP server: waitress, with several workers on one socket, group commits and graceful shutdown.

Plain waitress drops requests in progress at SIGTERM, answers malformed requests in plain text, and stops serving when a
few hundred clients connect and send nothing.
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
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import NamedTuple
from urllib.parse import urlsplit
from wsgiref.types import WSGIApplication

from waitress.adjustments import Adjustments
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from service import db, history, logs, metrics
from service.api.long_poll import ChangeFeed, SuspendedRequests, no_changes
from service.api.operations import Runs
from service.assistant.reply_worker import Worker, reply_threads
from service.http.client_address import UNIX
from service.http.middleware import Middleware
from service.outbox.transports import delivery_threads
from service.server.connection import Connection
from service.server.connection_counts import ConnectionCounts
from service.server.event_loop import EventLoop
from service.server.exchange import Exchange, client_of
from service.server.fair_queue import FairQueue
from service.server.group_commit import GroupCommit, Transaction
from service.server.http_parser import body_memory, host_of
from service.server.memory_limits import MAX_UNSENT, MemoryLimit
from service.server.workers import STOP_SIGNALS, ParentMonitor, Workers
from service.settings import Settings
from service.timer import TASKS, TASKS_OF_EACH_PROCESS, timer_thread

InlineRead = Callable[[], AbstractContextManager[None]]
"""Code inside raises NeedsThread if it writes or takes too long."""

__all__ = ("Server", "listen", "listen_unix", "serve")

log = logging.getLogger("cx.server")

DRAIN_TIMEOUT = 10.0  # seconds until a stopping worker exits, even if requests are still running
STOP_ACCEPTING = 0.2  # seconds in which all workers stop accepting; then responses have "Connection: close"
IDLE_GRACE = 1.0  # seconds in which an idle connection of a stopping worker may still complete a request
MAX_DESCRIPTORS = 10_240  # of a process, if the system allows it; the limit of macOS
MAX_CONNECTIONS = 4_000  # of a process; at most half of its descriptors, since databases and uploads need some
UNSENT_IN_KERNEL = 128 * 1024  # bytes of a response in the kernel's send buffer, which would take megabytes for each
ACCEPT_LEAD = 4  # connections that a worker may have more than the others before it accepts one at a time
MAX_ACCEPTS = 64  # connections accepted in one iteration
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
MAX_READ_SECONDS = 0.005  # after which reads of an iteration wait for the next one, with the requests that arrive
MAX_SEND_DELAY = 0.002  # seconds that a response waits for others of the same iteration
ACCEPT_PAUSE = 0.5  # seconds without accepting after the system is out of resources
CHECK_INTERVAL = 1.0  # seconds between two checks of the connections' time limits
M_MMAP_THRESHOLD, LARGE_BLOCK = -3, 256 * 1024  # from malloc.h; bytes
SWITCH_INTERVAL = 0.0005  # seconds that a thread waits for one that runs Python; by default 5 ms, for each statement
LOG_INTERVAL = 60.0  # seconds between two log lines of the same kind


class Task(NamedTuple):
    """A request for the thread pool, with the interface that waitress uses."""

    connection: Connection
    client: str
    queue: "TaskQueue"

    def service(self) -> None:
        """Process the request."""
        try:
            self.connection.service()
        finally:
            self.queue.end(self.client)

    def cancel(self) -> None:
        """Close the connection, because the server stops."""
        self.connection.cancel()


class TaskQueue(FairQueue[Task]):
    """The queue of the thread pool, with the interface that waitress uses. All calls but `end` require `lock`.

    At most `limit` requests of a client are in progress, so that one client does not occupy all threads.
    """

    def __init__(self, lock: threading.Lock, limit: int) -> None:
        super().__init__()
        self._lock, self._limit = lock, limit
        self._in_progress = Counter[str]()  # by client

    def may_take(self, client: str) -> bool:
        return self._in_progress[client] < self._limit

    def append(self, connection: Connection) -> None:
        """Add the request of a connection."""
        client = client_of(connection, connection.requests[0])
        self.add(client, Task(connection, client, self))

    def popleft(self) -> Task:
        """Remove and return the next request, which is in progress until `end`."""
        task = self.take()
        self._in_progress[task.client] += 1
        return task

    def end(self, client: str) -> None:
        """Note the end of a request. The thread that calls this looks for the next one, maybe of the same client."""
        with self._lock:
            self._in_progress[client] -= 1
            self._in_progress += Counter()  # drops the zeros


class Server(TcpWSGIServer):  # type: ignore[misc]
    """A waitress server on a bound socket, which drains its connections when it stops.

    New connections are always accepted. At the limit, the least useful ones are closed (`Connection.eviction_key`).
    There is no limit per address: all clients behind a proxy share one, and an attacker has many.
    """

    channel_class = Connection
    draining = False

    def __init__(
        self,
        application: WSGIApplication,
        sock: socket.socket,
        settings: Settings,
        changes: ChangeFeed = no_changes,
        inline_read: InlineRead | None = None,
        transaction: Transaction | None = None,
        counts: ConnectionCounts | None = None,
        release_lock: Callable[[], object] = bool,
    ) -> None:
        adjustments = Adjustments(
            threads=settings.threads,
            ident=None,
            max_request_header_size=32 * 1024,
            max_request_body_size=sys.maxsize,  # each operation has its own limit
            clear_untrusted_proxy_headers=False,  # see http/client_address.py
        )
        supported: dict[Runs, object] = {"read": inline_read, "write": transaction}
        self.can_run = {runs for runs, support in supported.items() if support}
        dispatcher = ThreadedTaskDispatcher()
        # On PostgreSQL, everything runs in the pool.
        limit = max(1, settings.threads // 2) if self.can_run else settings.threads
        dispatcher.queue = TaskQueue(dispatcher.lock, limit)
        dispatcher.set_thread_count(settings.threads)
        self.max_connections = min(MAX_CONNECTIONS, _descriptors(resource.getrlimit(resource.RLIMIT_NOFILE)[0]) // 2)
        self.find_route = getattr(application, "find", None)  # other WSGI applications have no routes
        public = urlsplit(settings.public_url)
        self.public_host = host_of(public.scheme, public.netloc) if settings.public_url else ""
        self.suspended = SuspendedRequests(changes, Connection.resume, self.max_connections // 2)
        self.unsent_memory = MemoryLimit(MAX_UNSENT)
        self.counts = counts or ConnectionCounts()
        self.release_lock = release_lock
        self.event_loop = EventLoop()
        self.inline_read = inline_read
        self.group_commit = GroupCommit(transaction, self.add_task, self.pull_trigger) if transaction else None
        self.large_bodies: set[Connection] = set()  # connections that are receiving more than 16 KiB
        self.reads = FairQueue[Connection]()  # connections with requests for the event loop
        self.ready: list[tuple[Connection, Exchange | None]] = []  # responses to send at the end of the iteration
        self._thread = 0
        self._paused_until = self._next_check = 0.0
        self._next_log: dict[str, float] = {}
        bound = (sock.family, sock.type, sock.proto, sock.getsockname())
        options = {"dispatcher": dispatcher, "adj": adjustments, "sockinfo": bound, "bind_socket": False}
        super().__init__(application, self.event_loop, True, sock, **options)

    def run_until(self, is_over: Callable[[], bool]) -> None:
        """Serve until `is_over` returns True, then stop accepting, complete all requests, and return."""
        self._thread = threading.get_ident()
        while not is_over():
            self._run_once(1.0)
        self.accept_pending()
        self.release_lock()
        self.suspended.close()
        begun = time.monotonic()
        while self.active_channels and time.monotonic() - begun < DRAIN_TIMEOUT:
            self._run_once(0.05)
            self.draining = time.monotonic() - begun > STOP_ACCEPTING
            for channel in list(self.active_channels.values()):
                if channel.is_idle() and time.monotonic() - begun > IDLE_GRACE:
                    channel.handle_close()
        if self.group_commit:
            self.group_commit.stop()
        self.task_dispatcher.shutdown(timeout=1)
        self.asyncore.close_all(self.event_loop)
        self.event_loop.close()

    def accept_pending(self) -> None:
        """Accept the connections that are complete in the kernel, then close the socket, which would reset them."""
        while self.accept_connection():
            pass
        self.accepting = False
        self.del_channel()
        self.socket.close()

    def process_reads(self) -> None:
        """Process reads in turns of their clients, for at most MAX_READ_SECONDS."""
        until = time.monotonic() + MAX_READ_SECONDS
        while self.reads:
            connection = self.reads.take()
            connection.read()
            if self.ready and connection.since - self.ready[0][0].since > MAX_SEND_DELAY:
                self.send_ready()
            if time.monotonic() >= until:
                break

    def send_ready(self) -> None:
        """Send the responses of this iteration together: a client that wakes up competes for the processor."""
        for channel, exchange in self.ready:
            channel.send_response(exchange)
        self.ready.clear()

    def pull_trigger(self) -> None:
        """Wake the event loop from another thread."""
        if threading.get_ident() != self._thread:
            super().pull_trigger()

    @property
    def is_busy(self) -> bool:
        """Whether accepting is paused (see `EventLoop`)."""
        return time.monotonic() < self._paused_until

    def readable(self) -> bool:
        return bool(self.accepting) and not self.is_busy

    def handle_accept(self) -> None:
        """Accept a connection, and more pending ones until this worker has its share."""
        share = self.counts.average_of_others() + ACCEPT_LEAD - len(self.active_channels)
        for _ in range(int(max(1, min(share, MAX_ACCEPTS)))):
            if not self.accept_connection() or self.is_busy:
                break

    def getsockname(self) -> tuple[str, str]:
        return (UNIX, "") if self.family == socket.AF_UNIX else super().getsockname()

    def set_socket_options(self, conn: socket.socket) -> None:
        if self.family == socket.AF_UNIX:  # which has none of these options
            return
        super().set_socket_options(conn)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_IN_KERNEL)

    def accept_connection(self) -> bool:
        """Accept a connection. Returns False if no more are pending."""
        try:
            accepted = self.accept()
            if accepted is None:
                return False
            self.set_socket_options(accepted[0])
        except OSError as error:  # on macOS also if the client has gone
            if error.errno in OUT_OF_RESOURCES:
                self._warn("cannot accept a connection: %s", error.strerror)
                self._paused_until = time.monotonic() + ACCEPT_PAUSE
                return self._evict()
            return False
        if len(self.active_channels) >= self.max_connections:
            self._warn("limit of %s connections reached: closing the longest idle ones", self.max_connections)
            if not self._evict():
                self._paused_until = time.monotonic() + ACCEPT_PAUSE
        address = (UNIX, 0) if self.family == socket.AF_UNIX else accepted[1]
        self.channel_class(self, accepted[0], address, self.adj, map=self.event_loop)
        return True

    def _evict(self) -> bool:
        """Close the least useful connections that have no request in progress. Returns False if there are none."""
        candidates = sorted(
            (channel for channel in self.active_channels.values() if not channel.requests), key=Connection.eviction_key
        )
        for channel in candidates[: 1 + self.max_connections // 32]:
            channel.handle_close()
        return bool(candidates)

    def free_body_memory(self, count: int) -> None:
        """Refuse the largest and slowest bodies until `count` bytes are available for others."""
        while count > body_memory.available and self.large_bodies:
            now = time.monotonic()
            max(self.large_bodies, key=lambda connection: connection.body_cost(now)).refuse_body()

    def _close_overdue(self, now: float) -> None:
        """Close the connections that have exceeded a time limit."""
        for channel in list(self.active_channels.values()):
            if channel.is_overdue(now):
                channel.handle_close()

    def _run_once(self, timeout: float) -> None:
        """Run one iteration of the event loop, which waits at most `timeout` seconds for events."""
        with logs.handler.buffered():
            self.event_loop.refresh()
            self.event_loop.run_once(0.0 if self.reads else timeout)
            self.process_reads()
            self.send_ready()
        queued = self._count_tasks() + len(self.reads) + (self.group_commit.count() if self.group_commit else 0)
        connections = len(self.active_channels)
        self.counts.set(connections)
        metrics.shared.set_gauges(connections, queued, self.suspended.count())
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + CHECK_INTERVAL
            self._close_overdue(now)

    def _count_tasks(self) -> int:
        """Return the number of requests for the thread pool that no idle thread is about to take."""
        threads = self.task_dispatcher
        with threads.lock:
            idle = len(threads.threads) - threads.active_count if threads.queue else 0
            return max(0, len(threads.queue) - idle)

    def _warn(self, message: str, *values: object) -> None:
        """Log a warning, at most once per LOG_INTERVAL."""
        now = time.monotonic()
        if now >= self._next_log.get(message, 0.0):
            self._next_log[message] = now + LOG_INTERVAL
            log.warning(message, *values)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises OSError when the address is in use or not local."""
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family, kind, proto)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address[0], port, *address[2:]))  # getaddrinfo takes 65536 for 0
    sock.listen(1024)
    return sock


def listen_unix(path: Path, mode: int) -> socket.socket:
    """Return a listening Unix socket. A socket on which no process listens is replaced. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if is_abandoned(path):
            path.unlink(missing_ok=True)
        sock.bind(str(path))
        path.chmod(mode)  # before `listen`: until then, connections are refused
        sock.listen(1024)
    except OSError:
        sock.close()
        raise
    return sock


def is_abandoned(path: Path) -> bool:
    """Return whether a path is a socket on which no process listens."""
    if not path.is_socket():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)  # a full queue of a slow process is not an abandoned socket
        return client.connect_ex(str(path)) == errno.ECONNREFUSED


def serve(
    make_application: Callable[[], Middleware],
    sock: socket.socket,
    settings: Settings,
    changes: ChangeFeed = no_changes,
    inline_read: InlineRead | None = None,
    transaction: Transaction | None = None,
    release_lock: Callable[[], object] | None = None,
    make_worker: Callable[..., Worker] = Worker,
) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit status.

    Applications are made in the workers, after the fork: database connections must not be open before it.
    `release_lock` is called when no more connections are accepted, before the requests in progress are complete, and in
    every worker when it starts. `make_worker` makes the worker that requests replies from the assistant.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _descriptors(soft) < _descriptors(hard):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (_descriptors(hard), hard))
    counts = ConnectionCounts(settings.workers)

    release_lock = release_lock or bool

    def work(parent_pipe: int | None = None) -> int:
        if parent_pipe is not None:
            release_lock()

        def make_server() -> Server:
            return Server(make_application(), sock, settings, changes, inline_read, transaction, counts, release_lock)

        return _work(settings, make_server, parent_pipe, make_worker)

    if settings.workers == 1:
        return work()
    return Workers(work, sock, counts, release_lock).run()


def _descriptors(limit: int) -> int:
    """Return the number of descriptors to use under a limit of the system."""
    return MAX_DESCRIPTORS if limit == resource.RLIM_INFINITY else min(limit, MAX_DESCRIPTORS)


def _return_freed_memory() -> None:
    """Make free() return large blocks to the system (mallopt(3); not on every system).

    Hashing a password takes 19 MiB, and decoding a picture more. Otherwise each thread keeps that much.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)


def _work(
    settings: Settings,
    make_server: Callable[[], Server],
    parent_pipe: int | None,
    make_worker: Callable[..., Worker],
) -> int:
    """Serve in this process until a stop signal. Returns the exit status."""
    stopping = threading.Event()
    servers: list[Server] = []

    def stop(number: int = 0, frame: FrameType | None = None) -> None:
        if not stopping.is_set():  # a second signal may interrupt `set`
            stopping.set()
        for server in servers:
            with contextlib.suppress(OSError):  # already closed
                server.trigger.pull_trigger()  # Python resumes select() after a signal

    for number in STOP_SIGNALS:
        signal.signal(number, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    _return_freed_memory()
    sys.setswitchinterval(SWITCH_INTERVAL)
    threading.stack_size(4 * 1024 * 1024)  # musl's default of 128 KiB is too small for deeply nested JSON
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # it warns of every request that waits for a thread
    with db.checkpointing():
        servers.append(make_server())
        if parent_pipe is not None:
            ParentMonitor(parent_pipe, servers[0].event_loop, stop)
        is_first = servers[0].counts.worker == 0  # of the workers; several instances exclude each other by transactions
        timers = timer_thread(stopping, TASKS if is_first else TASKS_OF_EACH_PROCESS)
        replies = reply_threads(settings, stopping, make_worker)
        deliveries = delivery_threads(settings, stopping, is_prompt=is_first)
        with history.recording(stopping), replies, deliveries, timers:
            servers[0].run_until(stopping.is_set)
    return 0
