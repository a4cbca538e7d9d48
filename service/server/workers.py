"""The processes of a server: a parent that keeps a number of workers running, and takes them down together."""

import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from service import metrics

log = logging.getLogger("cx.server")

STOPPING = (signal.SIGTERM, signal.SIGINT)
BACK_OFF = 1.0  # seconds before a worker that died is replaced


class Workers:
    """The parent process: keeps a number of workers running, and takes them down together."""

    def __init__(self, work: Callable[[], int], sock: socket.socket, count: int) -> None:
        self.work, self.sock, self.count = work, sock, count
        self.running: set[int] = set()
        self.stopping = False

    def run(self) -> int:
        for number in STOPPING:
            signal.signal(number, self.stop)
        for _ in range(self.count):
            self.start()
        failed = 0
        while self.running:
            try:
                process, status = os.wait()
            except InterruptedError:
                continue
            self.running.discard(process)
            if self.stopping:
                failed |= int(status != 0)
            else:
                metrics.board.leave(process)
                log.error("worker %s ended with status %s; starting another", process, status)
                time.sleep(BACK_OFF)
                self.start()
        return failed

    def start(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # until the worker minds them, and we know of the worker
        if not self.stopping:
            seat = metrics.board.free_seat()
            process = os.fork()
            metrics.board.sit(seat, process)
            if process == 0:
                self.be_worker()
            self.running.add(process)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)

    def be_worker(self) -> None:
        """Work, then leave without what the parent registered for its own end."""
        status = 1
        try:
            status = self.work()
        except BaseException:
            log.exception("worker failed")
        sys.stderr.flush()
        os._exit(status)

    def stop(self, *_: Any) -> None:
        self.stopping = True
        self.sock.close()  # as long as we held it, the kernel would take connections that no worker answers
        for process in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
