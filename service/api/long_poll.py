"""Long polling: requests that wait for a change are suspended, so that none of them occupies a thread."""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Generic, TypeVar

log = logging.getLogger("cx.server")

POLL_INTERVAL = 0.1  # seconds between two polls of the change feed
IDLE_POLLS = 20  # polls after the last request: most clients reconnect at once; a first poll may report old changes
MAX_SUSPENDED = 500  # requests of a process; further ones get their response at once
MAX_PER_CALLER = 20
CHANGE_HISTORY_POLLS = 600  # for which changes are recorded; longer than a request runs before it is suspended

ChangeFeed = Callable[[], AbstractContextManager[Callable[[], set[str]]]]
"""Open while requests wait. Each call returns the topics that changed since the last one, or shortly before."""


@contextmanager
def no_changes() -> Iterator[Callable[[], set[str]]]:
    """A change feed without changes."""
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


Request = TypeVar("Request", bound=Hashable)


class SuspendedRequests(Generic[Request]):
    """The suspended requests of a server; `resume` starts one of them again.

    Polls are numbered. A request carries the number of the last poll before it began, so that no change between its
    queries and its suspension is lost.
    """

    def __init__(self, changes: ChangeFeed, resume: Callable[[Request], None], limit: int) -> None:
        self._changes, self._resume, self._limit = changes, resume, limit
        self._requests: dict[Request, Suspend] = {}
        self._changed: dict[str, int] = {}  # the poll in which a topic last changed
        self._poll = 0
        self._condition = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def long_poll(self, received_at: float) -> LongPoll:
        """The LongPoll of a request that was received at `received_at` (monotonic clock)."""
        return _LongPoll(self, received_at, self._poll)

    def count(self) -> int:
        """Returns the number of suspended requests."""
        return len(self._requests)

    def has_room_for(self, caller: str) -> bool:
        """Whether one more request of a caller may be suspended."""
        with self._condition:
            own = sum(suspend.caller == caller for suspend in self._requests.values())
            limit = min(self._limit, MAX_SUSPENDED)
            return not self._is_closed and len(self._requests) < limit and own < MAX_PER_CALLER

    def admit(self, request: Request, suspend: Suspend) -> None:
        """Add a request; resume it at once if one of its topics has changed meanwhile."""
        with self._condition:
            missed = any(self._changed.get(topic, 0) > suspend.poll for topic in suspend.topics)
            if not missed and not self._is_closed:
                self._requests[request] = suspend
                self._condition.notify()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._watch, name="long poll", daemon=True)
                    self._thread.start()
                return
        self._resume(request)

    def leave(self, request: Request) -> None:
        """Resume a request whose client has disconnected, if it is suspended."""
        with self._condition:
            was_suspended = self._requests.pop(request, None) is not None
        if was_suspended:
            self._resume(request)

    def close(self) -> None:
        """Resume all requests, and suspend no more."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()
            requests = list(self._requests)
            self._requests.clear()
        for request in requests:
            self._resume(request)

    def _watch(self) -> None:
        while not self._is_closed:
            with self._condition:
                while not self._requests and not self._is_closed:
                    self._condition.wait()
            try:
                with self._changes() as poll:
                    remaining = IDLE_POLLS
                    while remaining and not self._is_closed:
                        time.sleep(POLL_INTERVAL)
                        self._resume_changed(poll())
                        remaining = IDLE_POLLS if self._requests else remaining - 1
            except Exception as error:  # the database is unavailable; requests wait until their time is over
                log.warning("cannot poll for changes: %s", error)
                time.sleep(POLL_INTERVAL)
                self._resume_changed(set())

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
        for request in resumed:
            self._resume(request)


class _LongPoll(LongPoll, Generic[Request]):
    def __init__(self, suspended: SuspendedRequests[Request], received_at: float, poll: int) -> None:
        self._suspended, self._received_at, self._poll = suspended, received_at, poll

    def wait(self, caller: str, topics: frozenset[str], seconds: float) -> None:
        until = self._received_at + seconds
        if time.monotonic() < until and self._suspended.has_room_for(caller):
            raise Suspend(caller, topics, until, self._poll)
