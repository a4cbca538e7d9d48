"""The parent process: starts the workers, replaces those that die, and stops all of them together."""

import contextlib
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NamedTuple

from waitress import wasyncore

from service import metrics
from service.db import signals
from service.server.connection_counts import ConnectionCounts
from service.server.event_loop import EventLoop

log = logging.getLogger("cx.server")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
STABLE_AFTER = 60.0  # seconds; a worker that lived longer is replaced at once
MAX_PAUSE = 60.0  # seconds


class ParentMonitor(wasyncore.file_dispatcher):  # type: ignore[misc]
    """Calls `stop` when the parent process is gone.

    It holds a worker's end of a pipe, of which only the parent holds the other end; nothing is written to it. This
    works however the parent ends, on every system. Linux alone could send a signal instead (PR_SET_PDEATHSIG), but
    sends it when the thread that forked ends, not the process.
    """

    def __init__(self, descriptor: int, event_loop: EventLoop, stop: Callable[[], None]) -> None:
        super().__init__(descriptor, event_loop)
        os.close(descriptor)  # the base class made a copy
        self.stop = stop

    def writable(self) -> bool:
        return False

    def handle_read(self) -> None:
        self.close()
        log.error("the parent process is gone; stopping")
        self.stop()


class RunningWorker(NamedTuple):
    """A worker process."""

    slot: int  # in the shared metrics; from 1 on
    started: float  # on the monotonic clock


class Workers:
    """The parent process: keeps a number of workers running, and stops them together.

    `work` gets the descriptor for ParentMonitor, and returns the exit status of the worker. A worker that dies is
    replaced at once; after several early deaths in a row, after pauses of 1, 2, 4 … seconds.
    """

    def __init__(
        self,
        work: Callable[[int], int],
        sock: socket.socket,
        counts: ConnectionCounts,
        release_lock: Callable[[], object] = bool,
    ) -> None:
        self.work, self.sock, self.counts, self.release_lock = work, sock, counts, release_lock
        metrics.create_shared(len(counts))
        signals.create_shared(len(counts))
        self.running: dict[int, RunningWorker] = {}  # by process
        self.due = [0.0] * len(counts)  # when the next workers are to be started
        self.early_deaths = 0  # in a row
        self.stopping = False
        self.worker_pipe, self.parent_pipe = os.pipe()  # see ParentMonitor
        self.wakeup_read, self.wakeup_write = os.pipe()  # every signal writes to it

    def run(self) -> int:
        """Keep the workers running until a stop signal. Returns the exit status."""
        for number in STOP_SIGNALS:
            signal.signal(number, self.stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # the default handler would not write to the wake-up pipe
        for descriptor in (self.wakeup_read, self.wakeup_write):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self.wakeup_write, warn_on_full_buffer=False)
        failed = 0
        self.start_due()
        while self.running or not self.stopping:
            self.wait()
            for status in self.reap():
                failed |= int(self.stopping and status != 0)
            self.start_due()
        return failed

    def wait(self) -> None:
        """Wait for a signal, or until a worker is to be started."""
        pause = None if self.stopping or not self.due else max(0.0, min(self.due) - time.monotonic())
        select.select([self.wakeup_read], [], [], pause)
        with contextlib.suppress(BlockingIOError):
            os.read(self.wakeup_read, 4096)

    def reap(self) -> Iterator[int]:
        """Return the statuses of workers that have ended. Schedules replacements unless the server is stopping."""
        while self.running:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                break
            worker = self.running.pop(process, None)
            if worker is None:
                continue  # process 1 of a container also gets orphaned processes
            lived = time.monotonic() - worker.started
            yield status
            if not self.stopping:
                metrics.shared.worker_ended(process)
                self.counts.clear(worker.slot - 1)
                self.replace(f"worker {process} ended with status {os.waitstatus_to_exitcode(status)}", lived)

    def replace(self, reason: str, lived: float) -> None:
        """Schedule a worker in place of one that lived for some seconds."""
        if lived >= STABLE_AFTER:
            self.early_deaths = 0
        pause = min(MAX_PAUSE, 2.0 ** (self.early_deaths - 1)) if self.early_deaths else 0.0
        self.early_deaths += 1
        self.due.append(time.monotonic() + pause)
        log.error("%s; starting another%s", reason, f" in {pause:.0f} s" if pause else "")

    def start_due(self) -> None:
        """Start the workers that are due."""
        for when in sorted(self.due):
            if when <= time.monotonic() and not self.stopping:
                self.due.remove(when)
                self.start()

    def start(self) -> None:
        """Fork a worker; schedule another attempt if that fails."""
        # Blocked until the worker handles them, and until `stop` can see the worker in `running`.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            if not self.stopping:
                slot = metrics.shared.free_slot()
                process = os.fork()
                metrics.shared.worker_started(slot, process)
                if process == 0:
                    self.counts.worker = signals.shared.process = slot - 1
                    self.run_worker()
                self.running[process] = RunningWorker(slot, time.monotonic())
        except OSError as error:  # no more processes, or no memory
            self.replace(f"a worker cannot be started: {error.strerror}", 0.0)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)

    def run_worker(self) -> None:
        """Call `work` in the forked process, and exit without the exit handlers of the parent."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (self.parent_pipe, self.wakeup_read, self.wakeup_write):
                os.close(descriptor)
            status = self.work(self.worker_pipe)
        except BaseException:
            log.exception("worker failed")
        with contextlib.suppress(OSError):  # the log may be full
            sys.stderr.flush()
        os._exit(status)

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Stop all workers; a signal handler."""
        self.stopping = True
        self.sock.close()  # otherwise the kernel would accept connections that no worker serves
        self.release_lock()
        for process in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
