"""The number of open connections of each worker, in memory that all workers share."""

import math
import mmap


class ConnectionCounts:
    """Each worker writes its own count and reads those of the others, to take its fair share of new connections."""

    def __init__(self, workers: int = 1) -> None:
        self._counts = memoryview(mmap.mmap(-1, 8 * workers)).cast("q")
        self.worker = 0  # the index of this process; set after the fork

    def __len__(self) -> int:
        return len(self._counts)

    def set(self, count: int) -> None:
        """Publish the count of this worker."""
        self._counts[self.worker] = count

    def clear(self, worker: int) -> None:
        """Reset the count of a worker that has died."""
        self._counts[worker] = 0

    def average_of_others(self) -> float:
        """Return the average count of the other workers; infinite if there are none."""
        others = len(self._counts) - 1
        return (sum(self._counts) - self._counts[self.worker]) / others if others else math.inf
