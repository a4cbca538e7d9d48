"""Whose turn it is to write, among the workers of a server: whoever has the token that they hand to each other.

SQLite itself wakes nobody who waits for its lock: whoever looks at the right moment has it, and others wait long. The
token merely keeps an order. Who waits for it in vain, since it went down with a worker, asks SQLite without it.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 1.0  # seconds in which the token should come


class Turns:
    """The token, in a socket that forked workers share; the kernel gives it to who has waited longest."""

    def __init__(self) -> None:
        self._giving, self._taking = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        patience = struct.pack("@ll", int(PATIENCE), int(PATIENCE % 1 * 1_000_000))
        self._taking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        self._giving.send(b".")
        self._alone = threading.RLock()  # of this process

    @contextmanager
    def next_alone(self) -> Iterator[None]:
        """Wait for our turn to write what one request writes.

        Of such writers of a process, one waits for the token at a time: as many as there are threads would otherwise
        stand before each group commit.
        """
        is_first = self._alone.acquire(timeout=PATIENCE)
        try:
            with self.next():
                yield
        finally:
            if is_first:
                self._alone.release()

    @contextmanager
    def next(self) -> Iterator[None]:
        """Wait for our turn; at the end of the block it is another's."""
        with contextlib.suppress(BlockingIOError):
            self._taking.recv(1)
            self._taking.recv(1, socket.MSG_DONTWAIT)  # one too many, which somebody brought who had waited in vain
        try:
            yield
        finally:
            with contextlib.suppress(BlockingIOError):  # there are plenty
                self._giving.send(b".", socket.MSG_DONTWAIT)


turns = Turns()
