"""Alternating rounds of a few seconds on each server, so that disturbances of the machine affect all servers."""

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from service.db import open_file
from tests.bench.dataset import NOTES, ulid
from tests.bench.load import Load
from tests.bench.processes import Response, processor_seconds
from tests.bench.servers import Limit, Running, Workload

TOLERANCE = 0.1  # relative difference in size of the lists of other servers
BARE_PINS = 500
WARM_UP = 50  # requests


class Claim(NamedTuple):
    """A goal, and the result."""

    title: str
    value: float
    unit: str
    maximum: float | None = None
    others: dict[str, float] = {}  # results of other servers, by title, in the same unit


class Unsupported(Exception):
    """The service does not support the operation."""


class Round(NamedTuple):
    """One round of one server."""

    rate: float  # requests per second
    cost: float  # processor time of the whole server per request, in microseconds
    p99: float  # milliseconds
    requests: int = 0


class RoundPlan(NamedTuple):
    """The number and the length of the rounds of each server."""

    rounds: int
    seconds: int


def verify(work: Workload, running: Running, service: Response | None) -> Response:
    """Check the response to an operation: status, rows, size, and authentication. Returns the response."""
    name = f"{running.server_kind.title}, {work.title}"
    request = running.server_kind.requests_of(work)[0]
    forged = running.send(request, Authorization=running.token[:-2] + "xx")
    # PocketBase treats an invalid token as none, and returns the empty list that its rules allow without a token.
    assert forged.status in (401, 403, 404, 400) or not running.server_kind.items(forged), f"{name}: no authentication"
    response = running.send(request)
    assert response.status in (work.status, 200), f"{name}: {response.status} {response.body.decode()[:500]}"
    if work.items:
        found = len(running.server_kind.items(response))
        assert found == work.items, f"{name}: {found} rows"
        if service:
            ratio = len(response.body) / len(service.body)
            assert abs(ratio - 1) <= TOLERANCE, f"{name}: {ratio:.2f} of the bytes of the service"
    return response


def cache_headers(work: Workload, running: Running) -> dict[str, str]:
    """Return the headers of a client with a cached response. Raises Unsupported."""
    if not work.known:
        return {}
    tag = running.send(work.requests[0]).headers.get("etag")
    if not tag:
        raise Unsupported("the response has no ETag")
    headers = {"If-None-Match": tag}
    response = running.send(work.requests[0], **headers)
    if response.status != 304:
        raise Unsupported(f"the status is {response.status}")
    return headers


def run_round(work: Workload, running: Running, headers: dict[str, str], seconds: int, done: int = 0) -> Round:
    """Run one round, beginning after the first `done` requests."""
    requests = running.requests(work, **headers)
    place = done % len(requests)
    before = processor_seconds(running.server.pid)
    result = Load(running.server.port, requests[place:] + requests[:place], work.connections, seconds).result()
    spent = processor_seconds(running.server.pid) - before
    assert not result.failed and not result.errors, f"{running.server_kind.title}, {work.title}: {result}"
    assert result.requests, f"{running.server_kind.title}, {work.title}: no response"
    return Round(result.rate, spent / result.requests * 1e6, result.p99, result.requests)


class BareSqlite:
    """Bare SQLite: a loop that commits single rows in the database of the service, with the same durability."""

    def __init__(self, folder: Path, work: Workload) -> None:
        self.database = open_file(folder / "service" / "service.db", timeout=5)
        for pragma in ("synchronous = full", "foreign_keys = 1"):
            self.database.execute(f"PRAGMA {pragma}")
        self.statement, self.values = self.prepare(work.writes)
        self.numbers = itertools.count(time.time_ns())

    def prepare(self, kind: str) -> tuple[str, Callable[[int], Sequence[Any]]]:
        """Return the statement, and a function of the values by number."""
        if kind == "pin":
            moments = ("2026-11-20T10:00:00.000Z", None)

            def pin_values(number: int) -> Sequence[Any]:
                # messages of a chat session without other pins
                return moments[number // BARE_PINS % 2], ulid(number % BARE_PINS)

            return "UPDATE message SET pinned_at = ? WHERE id = ?", pin_values
        like = f"WHERE chat_session_id = '{NOTES}' ORDER BY id DESC" if kind == "message" else ""
        selected = self.database.execute(f"SELECT * FROM {kind} {like} LIMIT 1")  # the identifier is the first column
        _, *rest = selected.fetchone()
        marks = ", ".join("?" * len(selected.description))
        form = "01B{:023}" if kind == "message" else "{:036}"
        return f"INSERT INTO {kind} VALUES ({marks})", lambda number: [form.format(number), *rest]

    def run_round(self, seconds: int) -> Round:
        """Run one round."""
        durations: list[float] = []
        processor_start, start = time.process_time(), time.perf_counter()
        last = start
        while last - start < seconds:
            self.database.execute(self.statement, self.values(next(self.numbers)))
            now = time.perf_counter()
            durations.append(now - last)
            last = now
        cost = (time.process_time() - processor_start) / len(durations) * 1e6
        return Round(len(durations) / (last - start), cost, statistics.quantiles(durations, n=100)[98] * 1e3)


def compare(
    work: Workload, service: Running, peers: Sequence[Running], limit: Limit | None, folder: Path, plan: RoundPlan
) -> dict[str, Any]:
    """Measure a row of the table: medians of the rounds, and of the ratios to the service in each round.

    Without a limit, the servers are compared only with each other.
    """
    headers = cache_headers(work, service)
    first = verify(work, service, None)
    others = [] if work.known else list(peers)
    for peer in others:
        verify(work, peer, first)
    with contextlib.ExitStack() as stack:
        bare = BareSqlite(folder, work) if limit and work.writes else None
        if bare:
            stack.callback(bare.database.close)
        elif limit and work.share:
            request = work.requests[0]
            limit.add_response(request[1], service.send(request, **headers), work.known)
            server = stack.enter_context(limit.serving(folder))
            others.insert(0, Running(limit, server, limit.token(server)))
        rounds_by_server: dict[str, list[Round]] = {}
        for running in [service, *others] * WARM_UP:
            running.send(running.server_kind.requests_of(work)[0], **headers)
        for _ in range(plan.rounds):
            for running in [service, *others]:
                found = rounds_by_server.setdefault(running.server_kind.name, [])
                done = sum(round_.requests for round_ in found)
                found.append(run_round(work, running, headers, plan.seconds, done))
            if bare:
                rounds_by_server.setdefault("bare", []).append(bare.run_round(plan.seconds))
    return summary(work, rounds_by_server)


def summary(work: Workload, rounds_by_server: dict[str, list[Round]]) -> dict[str, Any]:
    """Return a row of the table for the results."""
    own = rounds_by_server["service"]
    return {
        "name": work.name,
        "title": work.title,
        "goals": {"share": work.share, "peer": work.peer, "p99": work.p99},
        "measured": {
            name: {
                "rate": statistics.median(round_.rate for round_ in found),
                "cost": statistics.median(round_.cost for round_ in found),
                "p99": statistics.median(round_.p99 for round_ in found),
                "times_cost": statistics.median(
                    round_.cost / reference.cost for round_, reference in zip(found, own, strict=True)
                ),
                "times_rate": statistics.median(
                    reference.rate / round_.rate for round_, reference in zip(found, own, strict=True)
                ),
            }
            for name, found in rounds_by_server.items()
        },
    }
