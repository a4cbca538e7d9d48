"""The processes of a server: a parent that keeps a number of workers running, and takes them down together."""

import contextlib
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from waitress import wasyncore

from service import metrics

log = logging.getLogger("cx.server")

STOPPING = (signal.SIGTERM, signal.SIGINT)
GOOD_LIFE = 60.0  # seconds after which the end of a worker is no sign that the next one would end, too
LONGEST_PAUSE = 60.0  # seconds


class Lifeline(wasyncore.file_dispatcher):  # type: ignore[misc]
    """A worker's end of a pipe that nobody writes to, and whose other end only the parent holds.

    It ends when the parent does, however that comes about, on every system; Linux alone could send a signal instead,
    and would send it too early where the parent has threads.
    """

    def __init__(self, descriptor: int, watch: dict[int, Any], let_go: Callable[[], None]) -> None:
        super().__init__(descriptor, watch)
        os.close(descriptor)  # it has a copy
        self.let_go = let_go

    def writable(self) -> bool:
        return False

    def handle_read(self) -> None:
        self.close()
        log.error("the parent process is gone; stopping")
        self.let_go()


class Workers:
    """The parent process: keeps a number of workers running, and takes them down together.

    `work` is given the descriptor that ends with the parent. A worker that dies is replaced at once; while they die
    young, after pauses of 1, 2, 4 seconds and so on.
    """

    def __init__(self, work: Callable[[int], int], sock: socket.socket, count: int) -> None:
        self.work, self.sock = work, sock
        metrics.prepare(count)
        self.running: dict[int, float] = {}  # when each process was started
        self.due = [0.0] * count  # when others are to be started
        self.died_young = 0  # in a row
        self.stopping = False
        self.lifeline, self.our_end = os.pipe()
        self.woken, self.wakes = os.pipe()  # written to at every signal

    def run(self) -> int:
        """Keep them running until told to stop; the exit status."""
        for number in STOPPING:
            signal.signal(number, self.stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # the default would not even wake us
        for descriptor in (self.woken, self.wakes):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self.wakes, warn_on_full_buffer=False)
        failed = 0
        self.start_due()
        while self.running or not self.stopping:
            self.wait()
            for status in self.ended():
                failed |= int(self.stopping and status != 0)
            self.start_due()
        return failed

    def wait(self) -> None:
        """Wait until a signal comes, or until a worker is to be started."""
        pause = None if self.stopping or not self.due else max(0.0, min(self.due) - time.monotonic())
        select.select([self.woken], [], [], pause)
        with contextlib.suppress(BlockingIOError):
            os.read(self.woken, 4096)

    def ended(self) -> Iterator[int]:
        """The statuses of those that have ended; unless all are to end, others are due in their place."""
        while self.running:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                break
            begun = self.running.pop(process, None)
            if begun is None:
                continue  # as process 1 of a container, we are also handed what others leave behind
            lived = time.monotonic() - begun
            yield status
            if not self.stopping:
                metrics.board.leave(process)
                self.replace(f"worker {process} ended with status {os.waitstatus_to_exitcode(status)}", lived)

    def replace(self, why: str, lived: float) -> None:
        """Have another one started, at once or after a while."""
        if lived >= GOOD_LIFE:
            self.died_young = 0
        pause = min(LONGEST_PAUSE, 2.0 ** (self.died_young - 1)) if self.died_young else 0.0
        self.died_young += 1
        self.due.append(time.monotonic() + pause)
        log.error("%s; starting another%s", why, f" in {pause:.0f} s" if pause else "")

    def start_due(self) -> None:
        """Start those whose time has come."""
        for when in sorted(self.due):
            if when <= time.monotonic() and not self.stopping:
                self.due.remove(when)
                self.start()

    def start(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # until the worker minds them, and we know of the worker
        try:
            if not self.stopping:
                seat = metrics.board.free_seat()
                process = os.fork()
                metrics.board.sit(seat, process)
                if process == 0:
                    self.be_worker()
                self.running[process] = time.monotonic()
        except OSError as error:  # no more processes, or no memory
            self.replace(f"a worker cannot be started: {error.strerror}", 0.0)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)

    def be_worker(self) -> None:
        """Work, then leave without what the parent registered for its own end."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (self.our_end, self.woken, self.wakes):
                os.close(descriptor)
            status = self.work(self.lifeline)
        except BaseException:
            log.exception("worker failed")
        with contextlib.suppress(OSError):  # of a log that is full
            sys.stderr.flush()
        os._exit(status)

    def stop(self, *_: Any) -> None:
        self.stopping = True
        self.sock.close()  # as long as we held it, the kernel would take connections that no worker answers
        for process in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
