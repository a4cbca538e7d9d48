"""The last hour of this server in samples, for the charts of the console.

Each process keeps its own ring of samples in memory: a new process starts without any. The counters in a sample are
those of all processes of the server (see `metrics`).
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

from service import db, metrics
from service.metrics import Traffic
from service.models import PendingReply

log = logging.getLogger("cx.server")

INTERVAL = 10.0  # seconds between two samples
MAX_SAMPLES = 360  # one hour


class Sample(NamedTuple):
    """The state of the server at a time; the last two are None if the database did not respond, or has no files."""

    at: float  # seconds since 1970
    traffic: Traffic
    database_bytes: int | None
    pending_replies: int | None


class Point(NamedTuple):
    """A value at a time; None where it is not known."""

    at: float
    value: float | None


samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)


def take_sample() -> Sample:
    """Return the current state."""
    try:
        pending, sizes = PendingReply.select().count(), db.database.sizes()
    except Exception as error:
        db.reconnect_after(error)
        if not db.is_unavailable(error):
            log.warning("no sample of the database: %s", error)
        pending, sizes = None, {}
    used = sum(size for part, size in sizes.items() if part != "free") if sizes else None
    return Sample(time.time(), metrics.shared.traffic(), used, pending)


@contextmanager
def recording(stopping: threading.Event) -> Iterator[None]:
    """Take samples in a thread until `stopping` is set."""

    def record() -> None:
        while not stopping.wait(INTERVAL):
            with db.database.disconnecting():
                samples.append(take_sample())

    threading.Thread(target=record, name="history", daemon=True).start()
    yield


def request_rates(taken: list[Sample]) -> list[Point]:
    """Return the requests per second between samples."""
    return [Point(b.at, (b.traffic.requests - a.traffic.requests) / _seconds(a, b)) for a, b in pairwise(taken)]


def error_rates(taken: list[Sample]) -> list[Point]:
    """Return the responses per minute with a status of 500 or 503 between samples."""
    return [Point(b.at, 60 * (b.traffic.errors - a.traffic.errors) / _seconds(a, b)) for a, b in pairwise(taken)]


def mean_durations(taken: list[Sample]) -> list[Point]:
    """Return the mean duration of requests in milliseconds between samples; None without requests."""
    return [Point(b.at, _mean_duration(a.traffic, b.traffic)) for a, b in pairwise(taken)]


def slow_durations(taken: list[Sample]) -> list[Point]:
    """Return the milliseconds within which 95 percent of the requests between samples were answered.

    They are the upper bounds of buckets; slower requests than the last bound count as that.
    """
    return [Point(b.at, _slow_duration(a.traffic, b.traffic)) for a, b in pairwise(taken)]


def _seconds(first: Sample, second: Sample) -> float:
    return max(second.at - first.at, 0.001)  # the clock of the host may be set back


def _mean_duration(first: Traffic, second: Traffic) -> float | None:
    number = second.requests - first.requests
    return 1000 * (second.seconds - first.seconds) / number if number else None


def _slow_duration(first: Traffic, second: Traffic) -> float | None:
    counts = [after - before for before, after in zip(first.buckets, second.buckets, strict=True)]
    total, below = sum(counts), 0.0
    if not total:
        return None
    for count, bound in zip(counts, metrics.BUCKETS, strict=False):
        below += count
        if below >= 0.95 * total:
            return 1000 * bound
    return 1000 * metrics.BUCKETS[-1]
