"""Measurements of the service alone, or of start and memory: deep pages, mixed load, start, memory, size."""

import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench import dataset
from tests.bench.deliveries import deliveries
from tests.bench.load import Load
from tests.bench.measure import Claim, run_round
from tests.bench.processes import resident_bytes
from tests.bench.servers import BenchServer, FastApi, Running, Service, Workload, executable
from tests.bench.streams import streams
from tests.bench.workloads import API, WORKLOADS

CONNECTIONS = 64  # of readers, and of writers
PAUSE = 0.5  # seconds, in which the server completes the requests of the last load


def work(name: str) -> Workload:
    return next(found for found in WORKLOADS if found.name == name)


def running(server_kind: BenchServer, stack: contextlib.ExitStack, folder: Path, workers: int = 2) -> Running:
    server = stack.enter_context(server_kind.serving(folder, workers))
    return Running(server_kind, server, server_kind.token(server))


def deep(folder: Path, long: Path, quick: bool) -> Iterator[Claim]:
    """Compare a page in the middle of a long chat session with the first page of a short one."""
    size = dataset.QUICK if quick else dataset.FULL
    with contextlib.ExitStack() as stack:
        service = running(Service(), stack, long)
        paths = [f"{API}/chats/{dataset.SHORT}/messages?limit=25", page_behind(service, size.messages // 2)]
        rounds_by_server: list[list[float]] = [[], []]
        for _ in range(3 if quick else 7):
            for path, found in zip(paths, rounds_by_server, strict=True):
                page_work = work("page")._replace(requests=[("GET", path, None)])
                found.append(run_round(page_work, service, {}, 1 if quick else 2).cost)
    ratio = statistics.median(far / near for near, far in zip(*rounds_by_server, strict=True))
    yield Claim(f"a page deep in {size.messages:,} messages, compared with the first of 1,000", ratio, "×", 1.1)


def page_behind(service: Running, place: int) -> str:
    """Return the path of the page after a number of messages, with a cursor of the service."""
    path = f"{API}/chats/{dataset.LONG}/messages"
    response = service.send(("GET", f"{path}?limit=1&cursor={dataset.ulid(1_000 + place)}", None))
    return f"{path}?limit=25&cursor={json.loads(response.body)['meta']['next_cursor']}"


def together(folder: Path, long: Path, quick: bool) -> Iterator[Claim]:
    """Measure reads beside writes; no request may fail."""
    seconds, rounds = (1, 2) if quick else (4, 5)
    ratios, failed = [], 0
    with contextlib.ExitStack() as stack:
        service = running(Service(), stack, folder)
        reading, writing = service.requests(work("page")), service.requests(work("send"))
        for _ in range(rounds):
            alone = Load(service.server.port, reading, CONNECTIONS, seconds).result()
            writers = Load(service.server.port, writing, CONNECTIONS, seconds)
            readers = Load(service.server.port, reading, CONNECTIONS, seconds).result()
            written = writers.result()
            failed += sum(result.errors + result.failed for result in (alone, readers, written))
            ratios.append(readers.p99 / alone.p99)
            time.sleep(PAUSE)
    yield Claim(
        f"p99 of {CONNECTIONS} readers beside {CONNECTIONS} writers, compared with alone",
        statistics.median(ratios),
        "×",
        3,
    )
    yield Claim("failed requests among these", failed, "", 0)


def start(folder: Path, long: Path, quick: bool) -> Iterator[Claim]:
    """Measure the time until the first response."""
    rounds = 2 if quick else 5
    with contextlib.ExitStack() as stack:
        tokens = [running(server_kind, stack, folder, 1).token for server_kind in (Service(), FastApi())]
    times: dict[str, list[float]] = {"cold": [], "warm": [], "fastapi": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as unpacked:
            for kind in ("cold", "warm"):
                times[kind].append(first_response(Service(), folder, tokens[0], SHIV_ROOT=unpacked))
        times["fastapi"].append(first_response(FastApi(), folder, tokens[1]))
    medians = {kind: statistics.median(found) for kind, found in times.items()}
    yield Claim("warm start to the first response", medians["warm"], "s", 0.35, {"FastAPI": medians["fastapi"]})
    yield Claim("cold start, including unpacking the executable", medians["cold"], "s", 1.5)


def first_response(server_kind: BenchServer, folder: Path, token: str, **environment: str) -> float:
    """Return the seconds from the start of the command to the first response, with one worker."""
    start = time.perf_counter()
    with server_kind.serving(folder, 1, **environment) as server:
        response = Running(server_kind, server, token).send(work("settings").requests[0])
        passed = time.perf_counter() - start
    assert response.status == 200, response
    return passed


def memory(folder: Path, long: Path, quick: bool) -> Iterator[Claim]:
    """Measure the memory of a worker."""
    count = 5_000 if quick else 100_000
    early, late = worker_memory(Service(), folder, count)
    _, fastapi = worker_memory(FastApi(), folder, count // 5)
    yield Claim(f"memory of a worker after {count:,} requests", late, "MiB", 60, {"FastAPI": fastapi})
    yield Claim(f"the same, compared with after {count // 10:,}", late / early, "×", 1.05)


def worker_memory(server_kind: BenchServer, folder: Path, count: int) -> tuple[float, float]:
    """Return the memory in MiB of the only worker after a tenth of the requests, and after all."""
    with contextlib.ExitStack() as stack:
        one = running(server_kind, stack, folder, 1)
        reads = ("page", "bots", "notifications", "events", "settings")
        requests = [request for name in reads for request in one.requests(work(name))]
        done, sizes = 0, []
        for limit in (count // 10, count):
            while done < limit:
                result = Load(one.server.port, requests, 16, 2).result()
                assert result.requests and not result.errors and not result.failed, result
                done += result.requests
            sizes.append(resident_bytes(one.server.pid) / 2**20)
        return sizes[0], sizes[1]


def size(folder: Path, long: Path, quick: bool) -> Iterator[Claim]:
    """Measure the size of the executable."""
    yield Claim("the executable", executable().stat().st_size / 2**20, "MiB", 16)


Check = Callable[[Path, Path, bool], Iterator[Claim]]

CHECKS: dict[str, Check] = {
    "deep": deep,
    "together": together,
    "streams": streams,
    "deliveries": deliveries,
    "start": start,
    "memory": memory,
    "size": size,
}
