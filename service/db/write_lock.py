"""A fair lock for writers: a token that the workers of a server pass to each other, in the order of their requests.

SQLite does not wake waiting writers: the first attempt after a release gets its lock, and other writers may wait long.
The token only provides an order; it does not protect data. If it is lost with a killed worker, a writer continues
without it after TIMEOUT.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

TIMEOUT = 1.0  # seconds to wait for the token


class WriteLock:
    """The token, a datagram in a socket pair that forked workers share. The kernel wakes the longest waiting reader."""

    def __init__(self) -> None:
        self._sender, self._receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        timeout = struct.pack("@ll", int(TIMEOUT), int(TIMEOUT % 1 * 1_000_000))
        self._receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        self._sender.send(b".")
        self._requests = threading.RLock()  # of this process

    @contextmanager
    def hold_for_request(self) -> Iterator[None]:
        """Hold the token for the write of a single request.

        Only one such writer of a process waits for the token at a time. Otherwise, there could be as many of them as
        threads ahead of each group commit.
        """
        is_locked = self._requests.acquire(timeout=TIMEOUT)
        try:
            with self.hold():
                yield
        finally:
            if is_locked:
                self._requests.release()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Wait for the token, at most TIMEOUT, and pass it on at the end of the block."""
        with contextlib.suppress(BlockingIOError):
            self._receiver.recv(1)
            self._receiver.recv(
                1, socket.MSG_DONTWAIT
            )  # a second token, sent by a writer that had continued without one
        try:
            yield
        finally:
            with contextlib.suppress(BlockingIOError):  # the socket is full of tokens
                self._sender.send(b".", socket.MSG_DONTWAIT)

    def close(self) -> None:
        """Close the sockets. Only tests do: a service keeps the lock until the process ends."""
        self._sender.close()
        self._receiver.close()


write_lock = WriteLock()
