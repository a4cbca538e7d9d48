"""Long polling and event streams: requests that wait for a change, so that none of them occupies a thread."""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from service import clock, db
from service.api.event_stream import HEARTBEAT, EventStream
from service.errors import ApiError, Busy

log = logging.getLogger("cx.server")

POLL_INTERVAL = 0.1  # seconds between two polls of the change feed
IDLE_POLLS = 20  # polls after the last request: most clients reconnect at once; a first poll may report old changes
MAX_SUSPENDED = 500  # requests of a process; further ones get their response at once
MAX_PER_CALLER = 20  # requests and event streams
HEARTBEAT_INTERVAL = 15.0  # seconds; proxies close connections that are silent for a minute
CHANGE_HISTORY_POLLS = 600  # for which changes are recorded; longer than a request runs before it is suspended

ChangeFeed = Callable[[], AbstractContextManager[Callable[[], set[str]]]]
"""Open while requests wait. Each call returns the topics that changed since the last one, or shortly before."""


@contextmanager
def no_changes() -> Iterator[Callable[[], set[str]]]:
    """Yield a change feed without changes."""
    yield set


class Suspend(BaseException):
    """Suspends a request. It starts again when one of its topics changes, or at `until` (monotonic clock).

    Not an `Exception`, so that no error handler turns it into a response.
    """

    def __init__(self, caller: str, topics: frozenset[str], until: float, poll: int) -> None:
        super().__init__(caller)
        self.caller, self.topics, self.until, self.poll = caller, topics, until, poll


class LongPoll:
    """Lets a handler wait for changes. This one does not wait; servers that can suspend requests provide another."""

    def wait(self, caller: str, topics: frozenset[str], seconds: float) -> None:
        """Suspend the request until one of the topics changes, at most `seconds` after it was received.

        Returns when that time is over, or when too many requests are suspended. Call it before anything is written,
        because the request starts again.
        """

    def require_room(self, caller: str) -> None:
        """Raise Busy if a caller may not open an event stream now."""


class StreamConnection(Protocol):
    """The connection of an event stream (see server/connection.py)."""

    def can_send_events(self) -> bool: ...
    def send_events(self, events: bytes) -> None: ...
    def end_events(self) -> None: ...


@dataclass(slots=True)
class OpenStream:
    """An event stream that is being sent."""

    stream: EventStream
    heartbeat_at: float
    is_due: bool = True  # one of its topics may have changed since the last read


Request = TypeVar("Request", bound=Hashable)


class SuspendedRequests(Generic[Request]):
    """The suspended requests and the event streams of a server; `resume` starts a request again.

    The events are read in the thread that polls for changes, one stream after the other.

    Polls are numbered. A request carries the number of the last poll before it began, so that no change between its
    queries and its suspension is lost.
    """

    def __init__(self, changes: ChangeFeed, resume: Callable[[Request], None], limit: int) -> None:
        self._changes, self._resume, self._limit = changes, resume, limit
        self._requests: dict[Request, Suspend] = {}
        self._streams: dict[StreamConnection, OpenStream] = {}
        self._changed: dict[str, int] = {}  # the poll in which a topic last changed
        self._poll = 0
        self._condition = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def long_poll(self, received_at: float) -> LongPoll:
        """Return the LongPoll of a request that was received at `received_at` (monotonic clock)."""
        return _LongPoll(self, received_at, self._poll)

    def count(self) -> int:
        """Return the number of suspended requests and event streams."""
        return len(self._requests) + len(self._streams)

    def has_room_for(self, caller: str) -> bool:
        """Return whether one more request of a caller may be suspended."""
        return len(self._requests) < MAX_SUSPENDED and self.has_stream_room_for(caller)

    def has_stream_room_for(self, caller: str) -> bool:
        """Return whether a caller may open one more event stream."""
        with self._condition:
            own = sum(suspend.caller == caller for suspend in self._requests.values())
            own += sum(opened.stream.caller == caller for opened in self._streams.values())
            return not self._is_closed and self.count() < self._limit and own < MAX_PER_CALLER

    def admit(self, request: Request, suspend: Suspend) -> None:
        """Add a request; resume it at once if one of its topics has changed meanwhile."""
        with self._condition:
            missed = any(self._changed.get(topic, 0) > suspend.poll for topic in suspend.topics)
            if not missed and not self._is_closed:
                self._requests[request] = suspend
                self._start_watching()
                return
        self._resume(request)

    def add_stream(self, connection: StreamConnection, stream: EventStream) -> None:
        """Send the events of a stream to a connection, to which the first ones were sent. Without room, it ends."""
        with self._condition:
            has_room = self.has_stream_room_for(stream.caller)
            if has_room:
                self._streams[connection] = OpenStream(stream, time.monotonic() + HEARTBEAT_INTERVAL)
                self._start_watching()
        if not has_room:
            connection.end_events()

    def _start_watching(self) -> None:
        self._condition.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="long poll", daemon=True)
            self._thread.start()

    def remove_stream(self, connection: StreamConnection) -> None:
        """Send no more events to a connection, if it has a stream."""
        with self._condition:
            self._streams.pop(connection, None)

    def leave(self, request: Request) -> None:
        """Resume a request whose client has disconnected, if it is suspended."""
        with self._condition:
            was_suspended = self._requests.pop(request, None) is not None
        if was_suspended:
            self._resume(request)

    def close(self) -> None:
        """Resume all requests, end all streams, and accept no more."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()
            requests, streams = list(self._requests), list(self._streams)
            self._requests.clear()
            self._streams.clear()
        for request in requests:
            self._resume(request)
        for connection in streams:
            connection.end_events()

    def _watch(self) -> None:
        while not self._is_closed:
            with self._condition:
                while not self.count() and not self._is_closed:
                    self._condition.wait()
            try:
                with self._changes() as poll:
                    remaining = IDLE_POLLS
                    while remaining and not self._is_closed:
                        time.sleep(POLL_INTERVAL)
                        self._resume_changed(poll())
                        self._send_events()
                        remaining = IDLE_POLLS if self.count() else remaining - 1
            except Exception as error:  # the database is unavailable; requests wait until their time is over
                log.warning("cannot poll for changes: %s", error)
                time.sleep(POLL_INTERVAL)
                self._resume_changed(set())
                self._send_heartbeats()

    def _resume_changed(self, topics: set[str]) -> None:
        """Resume the requests of some topics, and those whose time is over."""
        with self._condition:
            self._poll += 1
            if self._poll % CHANGE_HISTORY_POLLS == 0:
                oldest = self._poll - CHANGE_HISTORY_POLLS
                self._changed = {topic: poll for topic, poll in self._changed.items() if poll > oldest}
            self._changed |= dict.fromkeys(topics, self._poll)
            now = time.monotonic()
            resumed = [
                request
                for request, suspend in self._requests.items()
                if suspend.topics & topics or suspend.until <= now
            ]
            for request in resumed:
                del self._requests[request]
            for opened in self._streams.values() if topics else ():
                opened.is_due |= not opened.stream.topics.isdisjoint(topics)
        for request in resumed:
            self._resume(request)

    def _send_events(self) -> None:
        """Send the events of the streams whose topics have changed. A slow client gets them when it has read others."""
        with self._condition:
            due = [(connection, opened) for connection, opened in self._streams.items() if opened.is_due]
        with db.snapshot() if due else nullcontext():  # one for all, since most of them read the same rows
            for connection, opened in due:
                if connection.can_send_events():
                    self._send_due(connection, opened)
        self._send_heartbeats()

    def _send_due(self, connection: StreamConnection, opened: OpenStream) -> None:
        """Read the events of a stream, and send them."""
        try:
            events = opened.stream.read()
        except ApiError:  # the login has ended
            self._end_stream(connection)
            return
        except Exception as error:
            if db.is_unavailable(error):
                raise
            log.exception("an event stream failed")
            self._end_stream(connection)
            return
        opened.is_due = opened.stream.has_more
        if events:
            self._send(connection, opened, events)

    def _send_heartbeats(self) -> None:
        """Send a comment on the streams that are silent, and end those whose time is over."""
        now, monotonic_now = clock.now(), time.monotonic()
        with self._condition:
            streams = list(self._streams.items())
        over = [connection for connection, opened in streams if opened.stream.until <= now]
        silent = [(connection, opened) for connection, opened in streams if opened.heartbeat_at <= monotonic_now]
        for connection in over:
            self._end_stream(connection)
        for connection, opened in silent:
            if connection.can_send_events():
                self._send(connection, opened, HEARTBEAT)

    def _send(self, connection: StreamConnection, opened: OpenStream, events: bytes) -> None:
        opened.heartbeat_at = time.monotonic() + HEARTBEAT_INTERVAL
        connection.send_events(events)

    def _end_stream(self, connection: StreamConnection) -> None:
        self.remove_stream(connection)
        connection.end_events()


class _LongPoll(LongPoll, Generic[Request]):
    def __init__(self, suspended: SuspendedRequests[Request], received_at: float, poll: int) -> None:
        self._suspended, self._received_at, self._poll = suspended, received_at, poll

    def wait(self, caller: str, topics: frozenset[str], seconds: float) -> None:
        until = self._received_at + seconds
        if time.monotonic() < until and self._suspended.has_room_for(caller):
            raise Suspend(caller, topics, until, self._poll)

    def require_room(self, caller: str) -> None:
        if not self._suspended.has_stream_room_for(caller):
            raise Busy("Too many event streams are open; close one, or use a long poll.")
