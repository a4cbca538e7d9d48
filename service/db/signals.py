"""Signals: texts that a process sends to all processes of its server, in memory that they share.

Nothing is stored: a process receives what is sent while it listens. Each process writes to a part of its own, so that
none of them waits for another.
"""

import mmap
import struct
import threading

ENTRIES = 64  # of a process, until the first is overwritten
MAX_BYTES = 7900  # of a text; PostgreSQL sends less than 8000 (NOTIFY)
ENTRY = struct.Struct(f"=H{MAX_BYTES}s")
COUNT = struct.Struct("=q")  # texts that a process has sent
PART = COUNT.size + ENTRIES * ENTRY.size


class SharedSignals:
    """The memory of a server's processes. A process that replaces a dead one takes over its part."""

    def __init__(self, processes: int = 1) -> None:
        self.processes = processes
        self.process = 0  # the index of this process; set after the fork
        self._memory = mmap.mmap(-1, processes * PART)
        self._lock = threading.Lock()

    def send(self, text: str) -> None:
        """Send a text of at most MAX_BYTES in UTF-8. Raises ValueError for a longer one."""
        encoded = text.encode()
        if len(encoded) > MAX_BYTES:
            raise ValueError("the text of a signal is too long")
        with self._lock:
            count, base = self._count(self.process), self.process * PART
            place = base + COUNT.size + count % ENTRIES * ENTRY.size
            ENTRY.pack_into(self._memory, place, len(encoded), encoded)
            COUNT.pack_into(self._memory, base, count + 1)  # last: a process that sees it sees the text

    def counts(self) -> list[int]:
        """Return how many texts each process has sent."""
        return [self._count(process) for process in range(self.processes)]

    def received(self, counts: list[int]) -> list[str]:
        """Return the texts sent since some `counts`, which are updated. Of very many, only the newest."""
        texts = []
        for process, first in enumerate(counts):
            counts[process] = count = self._count(process)
            found = {number: self._entry(process, number) for number in range(max(first, count - ENTRIES), count)}
            oldest = self._count(process) - ENTRIES  # it may be overwritten, as all before it may have been meanwhile
            texts += [text for number, text in found.items() if number > oldest]
        return [text.decode() for text in texts]

    def _count(self, process: int) -> int:
        return int(COUNT.unpack_from(self._memory, process * PART)[0])

    def _entry(self, process: int, number: int) -> bytes:
        place = process * PART + COUNT.size + number % ENTRIES * ENTRY.size
        length, text = ENTRY.unpack_from(self._memory, place)
        return bytes(text[:length])


shared = SharedSignals()


def create_shared(processes: int) -> None:
    """Allocate the memory of a server with several processes, before the first fork."""
    global shared
    shared = SharedSignals(processes)
