"""Limits on the time of database statements on the event loop."""

import threading
import time

MAX_PROCESSOR_SECONDS = 0.005  # processor time of the thread
MAX_SECONDS = 0.1  # elapsed time, if the disk or the processors are busy


class TimeBudget(threading.local):
    """The time budget of this thread. It limits the time inside its `with` block only."""

    until = 0.0  # end of the budget on the monotonic clock; 0.0 outside the block
    processor_until = 0.0  # end by the processor time of this thread; set by the first call of `is_spent`

    def __enter__(self) -> None:
        self.until, self.processor_until = time.monotonic() + MAX_SECONDS, 0.0

    def __exit__(self, *_: object) -> None:
        self.until = 0.0

    def is_spent(self) -> bool:
        """Return whether the budget is spent. SQLite calls this while a statement runs, and interrupts it if so."""
        if not self.until:
            return False
        used = time.thread_time()
        self.processor_until = self.processor_until or used + MAX_PROCESSOR_SECONDS
        return used > self.processor_until or time.monotonic() > self.until
