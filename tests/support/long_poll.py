"""A server whose requests wait for topics, and a change feed that the test controls."""

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from service.server import Server, listen
from service.settings import Settings

HELLO = b"hello"


class FakeChanges:
    """A change feed that returns the topics set by a test, and counts how often it is opened and polled."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.polls = self.openings = 0
        self.fails = self.reports_first = False

    @contextlib.contextmanager
    def open(self) -> Iterator[Callable[[], set[str]]]:
        self.openings += 1
        if self.reports_first:
            self.topics = {"news"}
        yield self.poll

    def poll(self) -> set[str]:
        self.polls += 1
        if self.fails:
            self.fails = False
            raise RuntimeError("the database is away")
        found, self.topics = self.topics, set()
        return found


class LongPollServer:
    """A server with one thread, whose application waits for a topic on demand."""

    def __init__(self, threads: int = 1) -> None:
        self.changes, self.started = FakeChanges(), 0
        self.before_wait: Callable[[], None] = lambda: None
        self.changed: set[str] = set()
        settings = Settings(threads=threads)
        self.server = Server(self.application, listen("127.0.0.1", 0), settings, changes=self.changes.open)
        self.port = self.server.socket.getsockname()[1]
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.server.run_until, args=(self.is_over.is_set,))
        self.thread.start()

    def application(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        """Wait for a topic at `/wait/SECONDS/TOPIC`; respond to other paths at once."""
        self.started += 1
        if environ["PATH_INFO"].startswith("/wait/"):
            _, _, seconds, topic = environ["PATH_INFO"].split("/")
            self.before_wait()
            if topic not in self.changed:
                environ["cx.long_poll"].wait(environ.get("HTTP_WHO", "caller"), frozenset({topic}), float(seconds))
        start_response("200 OK", [("Content-Length", str(len(HELLO)))])
        return [HELLO]

    def request(self, path: str, **headers: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers=headers)
        return connection

    def wait_for_suspended(self, number: int) -> None:
        """Wait until this number of requests is suspended."""
        limit = time.monotonic() + 60
        while len(self.server.suspended._requests) != number:
            assert time.monotonic() < limit
            time.sleep(0.005)

    def report_changes(self, *topics: str) -> None:
        self.changed |= set(topics)
        self.changes.topics = set(topics)

    def stop(self) -> None:
        if not self.is_over.is_set():
            self.is_over.set()
            with contextlib.suppress(OSError):  # it may have ended since
                self.server.pull_trigger()
        self.thread.join(60)


def read_body(connection: http.client.HTTPConnection) -> bytes:
    with contextlib.closing(connection):
        return connection.getresponse().read()
