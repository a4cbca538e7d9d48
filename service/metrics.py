"""Numbers for Prometheus that add up over the workers of a server.

The processes of a server share one piece of memory, made before the first fork, in which each has a seat: a row of
numbers that only its own process writes. Whoever is asked sums over all seats. Whoever comes in place of a worker that
died takes its seat and counts on from there, so no counter ever goes backwards. What is counted by operation has a
cell for each of the declared ones, whatever addresses are asked for.
"""

import math
import mmap
import os
import platform
import resource
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOM = 8192  # numbers of a seat; memory that is never touched costs nothing
BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds
STATUSES = (200, 201, 204, 303, 304, 400, 401, 403, 404, 405, 413, 415, 429, 431, 500, 503)
UNROUTED = "none"  # the operation of what never reached one

# The numbers of a seat. The first ones are emptied, with PROCESS, by the parent of a worker that has died.
OF_THE_MOMENT = IN_FLIGHT, CONNECTIONS, QUEUED, WAITING = range(4)
PROCESS, STARTS, DEATHS, ENDED_SECONDS, TOLD_SECONDS = range(4, 9)
DURATIONS = 9
OPERATIONS = DURATIONS + len(BUCKETS) + 1
WIDTH = len(STATUSES) + 2  # of an operation: a number for each status, one for all others, and the seconds
SECONDS = WIDTH - 1
CLOCK = os.sysconf("SC_CLK_TCK")


class Sample(NamedTuple):
    """One number: what follows the name of its family, its labels, its value."""

    value: float
    labels: dict[str, object] = {}
    suffix: str = ""


class Family(NamedTuple):
    """All numbers of one name."""

    name: str
    kind: str
    about: str
    samples: Sequence[Sample]


class Board:
    """The seats of a server; the first is that of the process which made it."""

    def __init__(self, workers: int = 0) -> None:
        self.seats, self.begun = 1 + workers, time.time()
        self._cells = memoryview(mmap.mmap(-1, self.seats * ROOM * 8)).cast("d")
        self._lock = threading.Lock()
        self._base = 0
        self._rows = {UNROUTED: OPERATIONS}
        self._columns = {status: place for place, status in enumerate(STATUSES)}
        self._cells[PROCESS] = os.getpid()

    def name_operations(self, names: Iterable[str]) -> None:
        """Give each operation its cells: the same ones in all processes, since they serve the same operations."""
        rows = {name: OPERATIONS + WIDTH * place for place, name in enumerate([UNROUTED, *names])}
        if max(rows.values()) + WIDTH > ROOM:
            raise ValueError(f"there is no room for the numbers of {len(rows)} operations")
        self._rows = rows

    # Seats. A worker's place is found before the fork; both sides say then who sits there.

    def free_seat(self) -> int:
        """A seat of a worker, in which nobody sits."""
        return next(seat for seat in range(1, self.seats) if not self._cells[seat * ROOM + PROCESS])

    def sit(self, seat: int, process: int) -> None:
        """A worker has begun; `process` is 0 in itself, as after a fork."""
        if process:
            self._cells[seat * ROOM + PROCESS] = process
            self.add(STARTS)
        else:
            self._base = seat * ROOM

    def leave(self, process: int) -> None:
        """A worker has died."""
        for base in range(ROOM, self.seats * ROOM, ROOM):
            if self._cells[base + PROCESS] == process:
                for cell in (*OF_THE_MOMENT, PROCESS):
                    self._cells[base + cell] = 0
        times = os.times()
        self._cells[self._base + ENDED_SECONDS] = times.children_user + times.children_system
        self.add(DEATHS)

    # Writing.

    def add(self, cell: int, amount: float = 1) -> None:
        """Count."""
        with self._lock:
            self._cells[self._base + cell] += amount

    def tell(self, connections: int, queued: int, waiting: int) -> None:
        """How things are in this process."""
        base, cells = self._base, self._cells
        cells[base + CONNECTIONS], cells[base + QUEUED], cells[base + WAITING] = connections, queued, waiting

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """Count an answer."""
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

    # Reading.

    def elsewhere(self) -> float:
        """Connections that another worker has on average; without another, more than any."""
        others = self.seats - 2
        return (self.total(CONNECTIONS) - self._cells[self._base + CONNECTIONS]) / others if others > 0 else math.inf

    def total(self, cell: int) -> float:
        """A number, summed over all seats."""
        return float(sum(self._cells[cell::ROOM]))

    def families(self, declared: Iterable[tuple[str, Collection[int]]]) -> Iterator[Family]:
        """Everything that is known here; of the operations in `declared`, the statuses beside them from 0 on."""
        starting = {(name, status) for name, statuses in declared for status in (*statuses, 500, 503)}
        requests, seconds = [], []
        for name, row in self._rows.items():
            for status, column in self._columns.items():
                count = self.total(row + column)
                if count or (name, status) in starting:
                    requests.append(Sample(count, {"operation": name, "status": status}))
            if others := self.total(row + len(STATUSES)):
                requests.append(Sample(others, {"operation": name, "status": "other"}))
            seconds.append(Sample(self.total(row + SECONDS), {"operation": name}))
        yield Family("cx_requests_total", "counter", "Requests answered, by operation and status.", requests)
        yield Family("cx_request_seconds_total", "counter", "Time spent on answers, by operation.", seconds)
        yield self._durations(sum(sample.value for sample in seconds))
        for name, kind, about, cell in (
            ("cx_requests_in_flight", "gauge", "Requests that a thread works on.", IN_FLIGHT),
            ("cx_requests_queued", "gauge", "Requests that no thread has taken up yet.", QUEUED),
            ("cx_requests_waiting", "gauge", "Requests put aside until there is news.", WAITING),
            ("cx_connections", "gauge", "Open connections.", CONNECTIONS),
            ("cx_worker_starts_total", "counter", "Worker processes started, where there are several.", STARTS),
            ("cx_worker_deaths_total", "counter", "Worker processes that ended without being told to.", DEATHS),
        ):
            yield Family(name, kind, about, [Sample(self.total(cell))])
        yield from self._processes()

    def _durations(self, seconds: float) -> Family:
        samples, below = [], 0.0
        for place, bound in enumerate((*BUCKETS, "+Inf")):
            below += self.total(DURATIONS + place)
            samples.append(Sample(below, {"le": bound}, "_bucket"))
        samples += [Sample(seconds, {}, "_sum"), Sample(below, {}, "_count")]
        about = "Time from a request's turn to its answer, without its way over the network."
        return Family("cx_request_duration_seconds", "histogram", about, samples)

    def _processes(self) -> Iterator[Family]:
        """What the kernel tells of each process, where it does; the names are those that all client libraries use."""
        usages = {seat: use for seat in range(self.seats) if (use := usage(int(self._cells[seat * ROOM + PROCESS])))}
        yield Family("process_start_time_seconds", "gauge", "When the server began.", [Sample(self.begun)])
        if not usages:
            return
        # A process that has just ended may be missing among both the living and the ended.
        told = sum(use.seconds for use in usages.values()) + self.total(ENDED_SECONDS)
        told = max(told, *self._cells[TOLD_SECONDS::ROOM], 0.0)
        self._cells[self._base + TOLD_SECONDS] = told
        about = "Processor time of all processes, also of those that ended."
        yield Family("process_cpu_seconds_total", "counter", about, [Sample(told)])
        about = "Memory of each process; what they share is in all of them."
        memory = [Sample(use.memory, {"worker": seat}) for seat, use in usages.items()]
        yield Family("process_resident_memory_bytes", "gauge", about, memory)
        descriptors = [Sample(use.descriptors, {"worker": seat}) for seat, use in usages.items()]
        yield Family("process_open_fds", "gauge", "Open file descriptors of each process.", descriptors)
        most = float(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        yield Family("process_max_fds", "gauge", "How many file descriptors a process may open.", [Sample(most)])


class Usage(NamedTuple):
    """What a process has used: seconds, bytes, descriptors."""

    seconds: float
    memory: int
    descriptors: int


def usage(process: int) -> Usage | None:
    """What Linux tells of a process (proc(5)); None where there is no such process, or no Linux."""
    try:
        told = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()  # from its state, field 3, on
        descriptors = sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())
    except OSError:
        return None
    user, system, pages = (int(told[field - 3]) for field in (14, 15, 24))
    return Usage((user + system) / CLOCK, pages * mmap.PAGESIZE, descriptors)


def build_info(**labels: object) -> Family:
    """What runs here."""
    about = "What runs here; always 1."
    return Family("cx_build_info", "gauge", about, [Sample(1, {**labels, "python": platform.python_version()})])


def render(families: Iterable[Family]) -> str:
    """The text format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats)."""
    lines = []
    for name, kind, about, samples in families:
        lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        for value, labels, suffix in samples:
            told = ",".join(f'{label}="{_escape(str(text))}"' for label, text in labels.items())
            number = int(value) if float(value).is_integer() else value
            lines.append(f"{name}{suffix}{{{told}}} {number}" if told else f"{name}{suffix} {number}")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


board = Board()


def prepare(workers: int) -> None:
    """A new board for a server that is about to fork so many workers."""
    global board
    board = Board(workers)
