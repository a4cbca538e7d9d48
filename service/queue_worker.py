"""Threads that process the tasks of a queue in the database, beside the threads that serve requests."""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

import peewee

from service import db
from service.models.leases import Leased

log = logging.getLogger("cx.server")

POLL_INTERVAL = 0.5  # seconds
SHORT_INTERVAL = 0.1  # seconds from a task to the next poll of a prompt worker; doubled until POLL_INTERVAL
ERROR_DELAY = 5.0  # seconds
SHUTDOWN_TIMEOUT = 1.0  # seconds for a task in progress

Task = TypeVar("Task", bound=Leased)


class QueueWorker(Generic[Task]):
    """Processes tasks until `stop` is set. Subclasses define what a task is; several threads may use one worker.

    A worker that `is_prompt` polls at shorter intervals for a while after each task.
    """

    name = ""  # of the threads
    subject = ""  # what is processed, for log messages
    shutdown_timeout = SHUTDOWN_TIMEOUT

    def __init__(self, stop: threading.Event, *, is_prompt: bool = False) -> None:
        self.stop, self.is_prompt = stop, is_prompt
        self.in_progress: list[Task] = []

    def claim(self) -> Task | None:
        """Claim a task that is due. Returns None if there is none."""
        raise NotImplementedError

    def process(self, task: Task) -> None:
        """Process a claimed task: remove or postpone it."""
        raise NotImplementedError

    def finish(self) -> None:
        """Write what `process` has left to the next `claim`, because there is none."""

    def is_done(self) -> bool:
        """Return whether no further task can arrive."""
        return False

    def run(self) -> None:
        """Process tasks until `stop` is set, or no further task can arrive."""
        is_done, delay = False, POLL_INTERVAL
        while not is_done and not self.stop.is_set():
            try:
                if self.run_once():
                    delay = 0.0
                else:
                    delay = min(2 * delay or SHORT_INTERVAL, POLL_INTERVAL) if self.is_prompt else POLL_INTERVAL
                is_done = self.is_done()
            except Exception as error:  # the task stays claimed, and is due again when the lease ends
                delay = ERROR_DELAY
                db.reconnect_after(error)
                if db.is_unavailable(error):
                    log.warning("%s are not processed, because the database is unavailable: %s", self.subject, error)
                else:
                    log.exception("one of the %s was not processed", self.subject)
            self.stop.wait(delay)
        try:
            self.finish()
        except peewee.DatabaseError as error:
            log.warning("the last of the %s was not noted as processed: %s", self.subject, error)
        db.close_database()

    def run_once(self) -> bool:
        """Process one task. Returns whether there was one."""
        task = self.claim()
        if task is None:
            return False
        self.in_progress.append(task)
        try:
            self.process(task)
        finally:
            self.in_progress.remove(task)
        return True

    def release(self) -> None:
        """Release the tasks in progress, so that other workers can claim them at once."""
        try:
            for task in list(self.in_progress):
                task.postpone(0)
        except peewee.DatabaseError as error:  # others can claim them when the lease ends
            log.warning("%s were not released: %s", self.subject, error)


@contextmanager
def running(workers: Sequence[QueueWorker[Task]], stop: threading.Event) -> Iterator[None]:
    """Run a thread for each worker until the end of the block, then wait for them for a short time.

    A worker that is listed several times has several threads.
    """
    threads = [
        threading.Thread(target=worker.run, name=f"{worker.name}-{number}", daemon=True)
        for number, worker in enumerate(workers)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        stopped_at = time.monotonic()
        for worker, thread in zip(workers, threads, strict=True):
            thread.join(max(0.0, stopped_at + worker.shutdown_timeout - time.monotonic()))
        for worker in dict.fromkeys(workers):
            worker.release()
