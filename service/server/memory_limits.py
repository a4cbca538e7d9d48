"""Limits on the memory that bodies and unsent responses take."""

import os
import threading
from typing import BinaryIO

MAX_COPIED = 64 * 1024  # bytes of a body that is joined with its header and sent in one piece
MAX_BURST = 1024 * 1024  # bytes of a file that are sent to a fast client before other connections have their turn
MAX_UNSENT = 80 * 1024 * 1024  # bytes of all unsent responses of a process: twenty of the largest pages


class MemoryLimit:
    """A number of bytes that many connections share."""

    def __init__(self, size: int) -> None:
        self.available, self._lock = size, threading.Lock()

    def reserve(self, count: int) -> bool:
        """Reserve bytes. Returns False if fewer are available."""
        with self._lock:
            if count > self.available:
                return False
            self.available -= count
            return True

    def release(self, count: int) -> None:
        """Return reserved bytes."""
        with self._lock:
            self.available += count


class UnsentData:
    """The unsent part of a response, as a buffer of waitress; nothing is copied."""

    def __init__(self, data: memoryview) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def get(self, count: int) -> memoryview:
        """Return the next bytes."""
        return self.data[:count]

    def skip(self, count: int, allow_prune: bool = False) -> None:
        """Drop bytes that were sent."""
        self.data = self.data[count:]

    def close(self) -> None:
        """Release the response."""
        self.data = memoryview(b"")


class UnsentFile:
    """The unsent part of a file, as a buffer of waitress and as `wsgi.file_wrapper`; it is read as the client reads.

    The event loop reads it in pieces of a few pages, which the kernel reads ahead.
    """

    def __init__(self, file: BinaryIO, block_size: int = 0) -> None:
        self.file, self.position = file, file.tell()
        self.end = os.fstat(file.fileno()).st_size
        self.burst = 0  # bytes sent without a pause

    def __len__(self) -> int:
        return self.end - self.position

    def get(self, count: int) -> bytes:
        """Return the next bytes; none after a burst, which ends the turn of this connection. Raises OSError."""
        if self.burst >= MAX_BURST:
            self.burst = 0
            return b""
        data = os.pread(self.file.fileno(), min(count, len(self)), self.position)
        if not data and len(self):
            raise OSError("the file is shorter than before")
        return data

    def skip(self, count: int, allow_prune: bool = False) -> None:
        """Drop bytes that were sent."""
        self.position += count
        self.burst += count

    def close(self) -> None:
        """Close the file."""
        self.file.close()
        self.position = self.end
