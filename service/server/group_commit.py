"""Group commit: the writes of several requests in one transaction, and so one wait for the disk for all of them."""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from typing import Any

from service import db, logs
from service.errors import StorageUnavailable
from service.server.answers import Answer

log = logging.getLogger("cx.server")

MOST = 32  # requests in a transaction
LONGEST = 0.005  # seconds after which a transaction takes no further request; the others wait for the next one
PREPARING = 0.005  # seconds after which no further request is prepared before those that are prepared have run

# Opens a transaction, and gives a function that raises if the database has rolled it back by itself.
Transaction = Callable[[], AbstractContextManager[Callable[[], None]]]


class FairQueue:
    """Requests that wait, one of each client in turn: with many connections, none gets more than its share."""

    def __init__(self) -> None:
        self._of: dict[str, deque[Answer]] = {}  # by client; who is next comes first
        self._count = 0

    def add(self, answer: Answer) -> None:
        """Put a request behind the others of its client."""
        self._of.setdefault(answer.client, deque()).append(answer)
        self._count += 1

    def take(self) -> Answer:
        """The next request, of which there is one."""
        self._count -= 1
        client = next(iter(self._of))
        waiting = self._of.pop(client)
        answer = waiting.popleft()
        if waiting:
            self._of[client] = waiting  # behind all other clients
        return answer

    def __len__(self) -> int:
        return self._count


class GroupCommit:
    """A thread that answers requests which write, those of each client in the order in which they were added.

    Before the transaction it prepares them: reads bodies, finds out who calls. Inside the transaction only their
    handlers run; responses are made and sent after the commit. What takes long to prepare is begun anew `alone`. If the
    transaction is lost before its end, nothing of it is stored, and its requests are begun anew, too. If the commit
    itself fails, they are answered with 503 and not repeated: a disk that failed to sync may report success the next
    time (PostgreSQL wiki, "Fsync Errors").
    """

    def __init__(self, transaction: Transaction, alone: Callable[[Any], None], wake: Callable[[], None]) -> None:
        self.transaction, self.alone, self.wake = transaction, alone, wake
        self._queue: SimpleQueue[Answer | None] = SimpleQueue()
        self._arrived: deque[Answer] = deque()  # taken from the queue, not prepared
        self._waiting = FairQueue()  # prepared
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="group commit", daemon=True)
        self._thread.start()

    def add(self, answer: Answer) -> None:
        """Have a request answered."""
        self._queue.put(answer)

    def count(self) -> int:
        """Returns the number of requests that wait."""
        return self._queue.qsize() + len(self._arrived) + len(self._waiting)

    def stop(self) -> None:
        """End the thread when nothing waits any more."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while self._arrived or self._waiting or not self._is_stopping:
            self._take()
            with logs.lines.held():
                if self._arrived:
                    self._prepare_all()
                if self._waiting:
                    self._commit()
        db.close_database()

    def _take(self) -> None:
        """Take what is in the queue; if there is nothing to do, wait until something is."""
        with contextlib.suppress(Empty):
            while not self._is_stopping:
                answer = self._queue.get(block=not (self._arrived or self._waiting))
                if answer is None:
                    self._is_stopping = True
                else:
                    self._arrived.append(answer)

    def _prepare_all(self) -> None:
        """Prepare what has arrived, as far as that takes no longer than it may."""
        until = time.monotonic() + PREPARING
        while self._arrived and time.monotonic() < until:
            self._prepare(self._arrived.popleft())

    def _prepare(self, answer: Answer) -> None:
        """Prepare a request; it is answered at once if it is refused."""
        try:
            with db.inline_read():
                goes_on = answer.prepare()
        except db.NeedsThread:
            self.alone(answer.channel)
            return
        if goes_on:
            self._waiting.add(answer)
        else:
            self._give(answer)
            self.wake()

    def _give(self, answer: Answer) -> None:
        """Send a response; where that fails, the connection is closed, and the thread goes on."""
        try:
            answer.channel.give(answer)
        except Exception:
            log.exception("a response could not be sent")
            answer.channel.will_close = True

    def _commit(self) -> None:
        """Run the requests that wait, as many as one transaction takes, and answer them."""
        ran: list[Answer] = []
        is_complete = False
        failure: Exception | None = None
        try:
            with self.transaction() as expect_transaction:
                until = time.monotonic() + LONGEST
                while self._waiting and len(ran) < MOST and (not ran or time.monotonic() < until):
                    ran.append(self._waiting.take())
                    ran[-1].run()
                    expect_transaction()
                is_complete = True
        except Exception as error:
            if not is_complete:
                self._run_alone(ran)
                return
            log.error("%s requests could not be committed: %s", len(ran), error)
            failure = StorageUnavailable()
        for answer in ran:
            answer.finish(failure)
            self._give(answer)
        self.wake()

    def _run_alone(self, ran: list[Answer]) -> None:
        """Begin the requests of a lost transaction anew, or all that wait if it did not begin."""
        if not ran:
            ran = [self._waiting.take() for _ in range(len(self._waiting))]
        for answer in ran:
            self.alone(answer.channel)
