"""Group commit: the writes of several requests in one transaction, and so one wait for the disk for all of them."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from typing import Any

from service import logs
from service.db import close_database
from service.errors import StorageUnavailable
from service.server.answers import Answer

log = logging.getLogger("cx.server")

MOST = 32  # requests in a transaction
LONGEST = 0.005  # seconds after which a transaction takes no further request; the others wait for the next one

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
    """A thread that runs what requests do in the database, those of each client in the order in which they were added.

    Requests arrive prepared: body read, caller known. Inside the transaction only their handlers run; responses are
    made and sent after the commit. If the transaction is lost before its end, nothing of it is stored, and each of its
    requests is begun anew `alone`. If the commit itself fails, they are answered with 503 and not repeated: a disk that
    failed to sync may report success the next time (PostgreSQL wiki, "Fsync Errors").
    """

    def __init__(self, transaction: Transaction, alone: Callable[[Any], None], wake: Callable[[], None]) -> None:
        self.transaction, self.alone, self.wake = transaction, alone, wake
        self._queue: SimpleQueue[Answer | None] = SimpleQueue()
        self._waiting = FairQueue()  # of this thread
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="group commit", daemon=True)
        self._thread.start()

    def add(self, answer: Answer) -> None:
        """Have a prepared request run."""
        self._queue.put(answer)

    def count(self) -> int:
        """Returns the number of requests that wait."""
        return self._queue.qsize() + len(self._waiting)

    def stop(self) -> None:
        """End the thread when nothing waits any more."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while self._waiting or not self._is_stopping:
            if not self._waiting:
                self._take(self._queue.get())
            with logs.lines.held():
                self._commit()
        close_database()

    def _take(self, answer: Answer | None) -> None:
        if answer is None:
            self._is_stopping = True
        else:
            self._waiting.add(answer)

    def _take_all(self) -> None:
        """Take what has come in the meantime."""
        try:
            while True:
                self._take(self._queue.get_nowait())
        except Empty:
            pass

    def _commit(self) -> None:
        """Run the requests that wait, as many as one transaction takes, and answer them."""
        ran: list[Answer] = []
        is_complete = False
        failure: Exception | None = None
        try:
            with self.transaction() as expect_transaction:
                self._take_all()
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
            answer.channel.give(answer)
        self.wake()

    def _run_alone(self, ran: list[Answer]) -> None:
        """Begin the requests of a lost transaction anew, or all that wait if it did not begin."""
        if not ran:
            self._take_all()
            ran = [self._waiting.take() for _ in range(len(self._waiting))]
        for answer in ran:
            self.alone(answer.channel)
