"""Requests that write, answered together: one commit, and so one wait for the disk, for all that came meanwhile."""

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from typing import Any

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
        while batch := self._taken():
            try:
                self._answer(batch)
            except Exception:
                log.exception("%s requests failed", len(batch))
                for channel in batch:
                    channel.will_close = True
                self.wake()
        close_database()

    def _taken(self) -> list[Any]:
        """What waits, once anything does; nothing at the end."""
        batch = [self._queue.get()]
        try:
            while len(batch) < MOST and batch[-1] is not None:
                batch.append(self._queue.get_nowait())
        except Empty:
            pass
        if batch[-1] is None and len(batch) > 1:
            self._queue.put(None)
        return [channel for channel in batch if channel is not None]

    def _answer(self, batch: list[Any]) -> None:
        left, made, is_over = list(batch), [], False
        try:
            with self.together() as apart:
                for channel in batch:
                    channel.see_who_is_there()
                    try:
                        with apart():
                            made.append((channel, channel.make()))
                    except Elsewhere:
                        left.remove(channel)
                        self.elsewhere(channel)
                is_over = True
        except (Exception, Elsewhere) as error:
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
