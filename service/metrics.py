"""Prometheus metrics, summed over the workers of a server.

The processes of a server share memory that is allocated before the first fork. Each process has a slot in it: a row of
numbers that only this process writes. Any process can answer a scrape: it sums over all slots. The process that
replaces a dead worker takes over its slot and its counters, so counters never decrease. Metrics by operation have one
cell for each declared operation, so the addresses that clients request do not add time series.
"""

import mmap
import os
import platform
import resource
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

SLOT_SIZE = 8192  # numbers in a slot; pages of memory that are never written cost nothing
BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds
ASSISTANT_BUCKETS = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0)  # seconds
STATUSES = (200, 201, 202, 204, 303, 304, 400, 401, 403, 404, 405, 413, 415, 429, 431, 500, 503)
UNROUTED = "none"  # the operation label of requests that match no operation

# The cells of a slot. When a worker has died, its parent resets the gauges and PROCESS.
GAUGES = IN_FLIGHT, CONNECTIONS, QUEUED, WAITING = range(4)
PROCESS, STARTS, DEATHS, ENDED_SECONDS, REPORTED_SECONDS = range(4, 9)
DURATIONS = 9
ASSISTANT_DURATIONS = DURATIONS + len(BUCKETS) + 1
ASSISTANT_SECONDS = ASSISTANT_DURATIONS + len(ASSISTANT_BUCKETS) + 1
ASSISTANT_TOKENS, ASSISTANT_REFUSED = ASSISTANT_SECONDS + 1, ASSISTANT_SECONDS + 2
ASSISTANT_FIRST = ASSISTANT_REFUSED + 1  # durations until the first piece of a reply, and their sum
ASSISTANT_FIRST_SECONDS = ASSISTANT_FIRST + len(ASSISTANT_BUCKETS) + 1
OPERATIONS = ASSISTANT_FIRST_SECONDS + 1
WIDTH = len(STATUSES) + 2  # cells of an operation: one for each status, one for all other statuses, and the seconds
SECONDS = WIDTH - 1
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")  # per second


class Sample(NamedTuple):
    """One number of a family: its value, its labels, and the suffix of the name."""

    value: float
    labels: dict[str, object] = {}
    suffix: str = ""


class Family(NamedTuple):
    """All samples of one metric."""

    name: str
    kind: str
    help: str
    samples: Sequence[Sample]


class Traffic(NamedTuple):
    """The requests that all processes have answered, and what they are working on."""

    requests: float
    errors: float  # responses with status 500 or 503
    seconds: float
    buckets: tuple[float, ...]  # requests by duration: those above the previous bound of BUCKETS
    connections: float
    queued: float


class SharedMetrics:
    """The slots of a server's processes. The first slot belongs to the process that created it."""

    def __init__(self, workers: int = 0) -> None:
        self.slots, self.started_at = 1 + workers, time.time()
        self._cells = memoryview(mmap.mmap(-1, self.slots * SLOT_SIZE * 8)).cast("d")
        self._lock = threading.Lock()
        self._base = 0
        self._rows = {UNROUTED: OPERATIONS}
        self._columns = {status: place for place, status in enumerate(STATUSES)}
        self._cells[PROCESS] = os.getpid()

    def name_operations(self, names: Iterable[str]) -> None:
        """Assign cells to the operations; all processes serve the same operations, so they assign the same cells."""
        rows = {name: OPERATIONS + WIDTH * place for place, name in enumerate([UNROUTED, *names])}
        if max(rows.values()) + WIDTH > SLOT_SIZE:
            raise ValueError(f"no space for the metrics of {len(rows)} operations")
        self._rows = rows

    # Slots. A slot is chosen before the fork; after it, both processes record that it is in use.

    def free_slot(self) -> int:
        """Return the number of a slot that no worker uses."""
        return next(slot for slot in range(1, self.slots) if not self._cells[slot * SLOT_SIZE + PROCESS])

    def worker_started(self, slot: int, process: int) -> None:
        """Record the start of a worker, by the result of `fork`: the process ID in the parent, 0 in the worker."""
        if process:
            self._cells[slot * SLOT_SIZE + PROCESS] = process
            self.add(STARTS)
        else:
            self._base = slot * SLOT_SIZE

    def worker_ended(self, process: int) -> None:
        """Record the end of a worker, and free its slot."""
        for base in range(SLOT_SIZE, self.slots * SLOT_SIZE, SLOT_SIZE):
            if self._cells[base + PROCESS] == process:
                for cell in (*GAUGES, PROCESS):
                    self._cells[base + cell] = 0
        times = os.times()
        self._cells[self._base + ENDED_SECONDS] = times.children_user + times.children_system
        self.add(DEATHS)

    # Writing.

    def add(self, cell: int, amount: float = 1) -> None:
        """Add to a cell of this process."""
        with self._lock:
            self._cells[self._base + cell] += amount

    def set_gauges(self, connections: int, queued: int, waiting: int) -> None:
        """Set the gauges of this process."""
        base, cells = self._base, self._cells
        cells[base + CONNECTIONS], cells[base + QUEUED], cells[base + WAITING] = connections, queued, waiting

    def count_response(self, operation: str, status: int, seconds: float) -> None:
        """Count a response."""
        cells, base = self._cells, self._base
        row = base + self._rows.get(operation, OPERATIONS)
        counter = row + self._columns.get(status, len(STATUSES))
        place = DURATIONS + base
        for bound in BUCKETS:
            if seconds <= bound:
                break
            place += 1
        with self._lock:
            cells[counter] += 1
            cells[row + SECONDS] += seconds
            cells[place] += 1

    def count_assistant(self, seconds: float, tokens: int) -> None:
        """Count a request to the assistant."""
        place = sum(seconds > bound for bound in ASSISTANT_BUCKETS)
        self.add(ASSISTANT_DURATIONS + place)
        self.add(ASSISTANT_SECONDS, seconds)
        self.add(ASSISTANT_TOKENS, tokens)

    def count_assistant_first(self, seconds: float) -> None:
        """Count the first piece of a reply of the assistant."""
        self.add(ASSISTANT_FIRST + sum(seconds > bound for bound in ASSISTANT_BUCKETS))
        self.add(ASSISTANT_FIRST_SECONDS, seconds)

    # Reading.

    def total(self, cell: int) -> float:
        """Return a cell, summed over all slots."""
        return float(sum(self._cells[cell::SLOT_SIZE]))

    def traffic(self) -> Traffic:
        """Return the counters and gauges of all processes in short."""
        rows, columns = self._rows.values(), [self._columns[status] for status in (500, 503)]
        buckets = tuple(self.total(DURATIONS + place) for place in range(len(BUCKETS) + 1))
        errors = sum(self.total(row + column) for row in rows for column in columns)
        seconds = sum(self.total(row + SECONDS) for row in rows)
        return Traffic(sum(buckets), errors, seconds, buckets, self.total(CONNECTIONS), self.total(QUEUED))

    def usages(self) -> "dict[int, Usage]":
        """Return the resources that each process uses, by slot; empty where the system does not report them."""
        processes = {slot: int(self._cells[slot * SLOT_SIZE + PROCESS]) for slot in range(self.slots)}
        return {slot: usage for slot, process in processes.items() if (usage := process_usage(process))}

    def families(self, declared: Iterable[tuple[str, Collection[int]]]) -> Iterator[Family]:
        """Return all metrics. The statuses that are `declared` for an operation are included while their count is 0."""
        initial = {(name, status) for name, statuses in declared for status in (*statuses, 500, 503)}
        requests, seconds = [], []
        for name, row in self._rows.items():
            for status, column in self._columns.items():
                count = self.total(row + column)
                if count or (name, status) in initial:
                    requests.append(Sample(count, {"operation": name, "status": status}))
            if others := self.total(row + len(STATUSES)):
                requests.append(Sample(others, {"operation": name, "status": "other"}))
            seconds.append(Sample(self.total(row + SECONDS), {"operation": name}))
        yield Family("cx_requests_total", "counter", "Requests answered, by operation and status.", requests)
        yield Family("cx_request_seconds_total", "counter", "Time spent on requests, by operation.", seconds)
        help = "Time from the start of a request to its response, without the network."
        total = sum(sample.value for sample in seconds)
        yield self._histogram("cx_request_duration_seconds", help, DURATIONS, BUCKETS, total)
        yield from self._assistant()
        for name, kind, help, cell in (
            ("cx_requests_in_flight", "gauge", "Requests in progress.", IN_FLIGHT),
            ("cx_requests_queued", "gauge", "Requests waiting for a thread.", QUEUED),
            ("cx_requests_waiting", "gauge", "Long polls waiting for a change.", WAITING),
            ("cx_connections", "gauge", "Open connections.", CONNECTIONS),
            ("cx_worker_starts_total", "counter", "Worker processes started; 0 with a single process.", STARTS),
            ("cx_worker_deaths_total", "counter", "Worker processes that ended unexpectedly.", DEATHS),
        ):
            yield Family(name, kind, help, [Sample(self.total(cell))])
        yield from self._processes()

    def _assistant(self) -> Iterator[Family]:
        name, seconds = "cx_assistant_request_duration_seconds", self.total(ASSISTANT_SECONDS)
        help = "Time of requests to the AI server."
        yield self._histogram(name, help, ASSISTANT_DURATIONS, ASSISTANT_BUCKETS, seconds)
        name, seconds = "cx_assistant_first_piece_seconds", self.total(ASSISTANT_FIRST_SECONDS)
        help = "Time until the first piece of a reply, of AI servers that stream."
        yield self._histogram(name, help, ASSISTANT_FIRST, ASSISTANT_BUCKETS, seconds)
        help = "Tokens of requests to the AI server and of its responses."
        yield Family("cx_assistant_tokens_total", "counter", help, [Sample(self.total(ASSISTANT_TOKENS))])
        help = "Requests to the AI server that were not made, because an app has reached a limit."
        yield Family("cx_assistant_refused_total", "counter", help, [Sample(self.total(ASSISTANT_REFUSED))])

    def _histogram(self, name: str, help: str, first: int, bounds: Sequence[float], seconds: float) -> Family:
        """Return a histogram whose buckets are the cells from `first` on."""
        samples, below = [], 0.0
        for place, bound in enumerate((*bounds, "+Inf")):
            below += self.total(first + place)
            samples.append(Sample(below, {"le": bound}, "_bucket"))
        samples += [Sample(seconds, {}, "_sum"), Sample(below, {}, "_count")]
        return Family(name, "histogram", help, samples)

    def _processes(self) -> Iterator[Family]:
        """Return the kernel's figures of each process, where available, under the names of all client libraries."""
        usages = self.usages()
        yield Family(
            "process_start_time_seconds",
            "gauge",
            "Start of the server, in seconds since 1970.",
            [Sample(self.started_at)],
        )
        if not usages:
            return
        # A process that has just ended may be in neither of the two sums; the counter must not decrease.
        seconds = sum(usage.seconds for usage in usages.values()) + self.total(ENDED_SECONDS)
        seconds = max(seconds, *self._cells[REPORTED_SECONDS::SLOT_SIZE], 0.0)
        self._cells[self._base + REPORTED_SECONDS] = seconds
        help = "Processor time of all processes, including those that ended."
        yield Family("process_cpu_seconds_total", "counter", help, [Sample(seconds)])
        help = "Memory of each process, including the memory that processes share."
        memory = [Sample(usage.memory, {"worker": slot}) for slot, usage in usages.items()]
        yield Family("process_resident_memory_bytes", "gauge", help, memory)
        descriptors = [Sample(usage.descriptors, {"worker": slot}) for slot, usage in usages.items()]
        yield Family("process_open_fds", "gauge", "Open file descriptors of each process.", descriptors)
        limit = float(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        yield Family(
            "process_max_fds", "gauge", "Maximum number of open file descriptors of a process.", [Sample(limit)]
        )


class Usage(NamedTuple):
    """The resources that a process uses: processor seconds, bytes of memory, open file descriptors."""

    seconds: float
    memory: int
    descriptors: int


def process_usage(process: int) -> Usage | None:
    """Return the resources of a process by /proc (see proc(5)); None without such a process, or on other systems."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()  # from field 3, the state, on
        descriptors = sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())
    except OSError:
        return None
    user, system, pages = (int(fields[field - 3]) for field in (14, 15, 24))
    return Usage((user + system) / CLOCK_TICKS, pages * mmap.PAGESIZE, descriptors)


def build_info(**labels: object) -> Family:
    """Return the version of the service and of Python, as labels."""
    return Family(
        "cx_build_info", "gauge", "Versions; always 1.", [Sample(1, {**labels, "python": platform.python_version()})]
    )


def render(families: Iterable[Family]) -> str:
    """Return the text format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats)."""
    lines = []
    for name, kind, help, samples in families:
        lines += [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
        for value, labels, suffix in samples:
            rendered = ",".join(f'{label}="{_escape(str(text))}"' for label, text in labels.items())
            number = int(value) if float(value).is_integer() else value
            lines.append(f"{name}{suffix}{{{rendered}}} {number}" if rendered else f"{name}{suffix} {number}")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


shared = SharedMetrics()


def create_shared(workers: int) -> None:
    """Allocate the metrics of a server that is about to fork `workers` processes."""
    global shared
    shared = SharedMetrics(workers)
