"""What waits in memory until clients read it: how much, and in which form."""

import threading

SMALL = 64 * 1024  # bytes of a body that goes out in one piece with its header
UNSENT = 80 * 1024 * 1024  # bytes of all responses of this process: twenty of the largest pages


class Room:
    """The bytes that may wait in memory."""

    def __init__(self, size: int) -> None:
        self.left, self._lock = size, threading.Lock()

    def take(self, count: int) -> bool:
        """Take some of the room that is left, or give it back; whether there is as much."""
        with self._lock:
            if count > self.left:
                return False
            self.left -= count
            return True


class Rest:
    """The rest of a response, as one of waitress's buffers; every piece is sent from where it lies."""

    def __init__(self, rest: memoryview) -> None:
        self.rest = rest

    def __len__(self) -> int:
        return len(self.rest)

    def get(self, count: int) -> memoryview:
        """The next bytes."""
        return self.rest[:count]

    def skip(self, count: int, allow_prune: bool = False) -> None:
        """Pass over bytes that were sent."""
        self.rest = self.rest[count:]

    def close(self) -> None:
        """Let go of the response."""
        self.rest = memoryview(b"")
