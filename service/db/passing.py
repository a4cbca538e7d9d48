"""Reads for which others wait: how long they may take, and who is reading so."""

import threading
import time

PASSING = 0.005  # seconds of the processor that reads in passing may take
LINGERING = 0.1  # seconds that they may take in all, when disk or processor are busy


class Passing(threading.local):
    """The time in which this thread reads in passing."""

    until = 0.0  # on the monotonic clock; 0.0 while it may take its time
    worked_until = 0.0  # on the clock of what it has worked, from the first look at that on
    writes = False  # which others wait for as well, but take what they take

    def __enter__(self) -> None:
        self.until, self.worked_until = time.monotonic() + LINGERING, 0.0

    def __exit__(self, *_: object) -> None:
        self.until = 0.0

    def is_over(self) -> bool:
        if not self.until or self.writes:
            return False
        worked = time.thread_time()
        self.worked_until = self.worked_until or worked + PASSING
        return worked > self.worked_until or time.monotonic() > self.until
