"""The time that the database may take for a request that is answered on the event loop."""

import threading
import time

PROCESSOR = 0.005  # seconds of processor time
ELAPSED = 0.1  # seconds in all, when the disk or the processor are busy


class TimeBudget(threading.local):
    """The budget of this thread; entered while it reads on the event loop, without a limit otherwise."""

    until = 0.0  # on the monotonic clock; 0.0 while there is no limit
    processor_until = 0.0  # on the clock of this thread's processor time, from the first call of `is_spent` on

    def __enter__(self) -> None:
        self.until, self.processor_until = time.monotonic() + ELAPSED, 0.0

    def __exit__(self, *_: object) -> None:
        self.until = 0.0

    def is_spent(self) -> bool:
        """Whether the time is up. SQLite calls this while a statement runs, and interrupts it then."""
        if not self.until:
            return False
        spent = time.thread_time()
        self.processor_until = self.processor_until or spent + PROCESSOR
        return spent > self.processor_until or time.monotonic() > self.until
