"""Requests that write, answered together: one commit, and so one wait for the disk, for all that came meanwhile."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from typing import Any

from service import logs
from service.db import Elsewhere, close_database

log = logging.getLogger("cx.server")

MOST = 32  # requests in a commit

Together = Callable[[], AbstractContextManager[Callable[[], AbstractContextManager[None]]]]


class Batches:
    """A thread that answers requests in the order of their coming.

    `together` opens a transaction, and gives what each request has a part of its own in, which it leaves whole or not
    at all. No answer goes out before the commit. What takes its time or fails is begun anew `elsewhere`; not so what
    could not be committed, for a disk that failed to sync may say the next time that it did (the PostgreSQL wiki,
    "Fsync Errors").
    """

    def __init__(self, together: Together, elsewhere: Callable[[Any], None], wake: Callable[[], None]) -> None:
        self.together, self.elsewhere, self.wake = together, elsewhere, wake
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="batches", daemon=True)
        self._thread.start()

    def add(self, channel: Any) -> None:
        """Have the request of a connection answered."""
        self._queue.put(channel)

    def count(self) -> int:
        """How many wait."""
        return self._queue.qsize()

    def stop(self) -> None:
        """End the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            batch = [first]
            try:
                with logs.lines.held():
                    self._answer(batch)
            except Exception:
                log.exception("%s requests failed", len(batch))
                for channel in batch:
                    channel.will_close = True
                self.wake()
        close_database()

    def _waiting(self) -> Iterator[Any]:
        """What waits by now, as long as there is room for it."""
        with contextlib.suppress(Empty):
            for _ in range(MOST - 1):
                channel = self._queue.get_nowait()
                if channel is None:
                    self._queue.put(None)
                    return
                yield channel

    def _answer(self, batch: list[Any]) -> None:
        """Answer the first of a batch, and what has come by the time that it is our turn."""
        made, late, is_over = [], set[Any](), False
        try:
            with self.together() as apart:
                batch += self._waiting()
                for channel in batch:
                    channel.see_who_is_there()
                    try:
                        with apart():
                            made.append((channel, channel.make()))
                    except Elsewhere:
                        late.add(channel)
                        self.elsewhere(channel)
                is_over = True
        except (Exception, Elsewhere) as error:
            batch += [] if is_over else self._waiting()
            left = [channel for channel in batch if channel not in late]
            if is_over:
                log.error("%s requests could not be committed: %s", len(left), error)
                made = [(channel, channel.make(is_refused=True)) for channel in left]
            else:
                made = []
                for channel in left:
                    self.elsewhere(channel)
        for channel, answer in made:
            channel.give(answer)
        self.wake()
