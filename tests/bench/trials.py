"""The lines that no load on all alike can tell: depth, readers among writers, starting, memory, size."""

import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.bench import world
from tests.bench.contestants import Contestant, FastApi, Running, Service, Work, executable
from tests.bench.load import Load
from tests.bench.measure import take_turn
from tests.bench.processes import resident_bytes
from tests.bench.works import API, WORKS

MANY = 64  # connections of readers, and of writers
QUIET = 0.5  # seconds in which a server answers what the last load has left behind


class Claim(NamedTuple):
    """What is to be true, and what was seen."""

    title: str
    seen: float
    unit: str
    most: float | None = None
    beside: dict[str, float] = {}  # what others took, by title, in the same unit


def work(name: str) -> Work:
    return next(found for found in WORKS if found.name == name)


def running(contestant: Contestant, stack: contextlib.ExitStack, folder: Path, workers: int = 2) -> Running:
    server = stack.enter_context(contestant.serving(folder, workers))
    return Running(contestant, server, contestant.token(server))


def deep(folder: Path, long: Path, quick: bool) -> Iterator[Claim]:
    """A page in the middle of a long session costs what the first page of a short one costs."""
    size = world.QUICK if quick else world.FULL
    with contextlib.ExitStack() as stack:
        service = running(Service(), stack, long)
        paths = [f"{API}/chats/{world.SHORT}/messages?limit=25", page_behind(service, size.messages // 2)]
        turns: list[list[float]] = [[], []]
        for _ in range(3 if quick else 7):
            for path, found in zip(paths, turns, strict=True):
                asked = work("page")._replace(asks=[("GET", path, None)])
                found.append(take_turn(asked, service, {}, 1 if quick else 2).cost)
    ratio = statistics.median(far / near for near, far in zip(*turns, strict=True))
    yield Claim(f"a page deep in {size.messages:,} messages, against the first of 1,000", ratio, "×", 1.1)


def page_behind(service: Running, place: int) -> str:
    """The address of the page behind so many messages, with a cursor such as walking there gives."""
    path = f"{API}/chats/{world.LONG}/messages"
    answer = service.ask(("GET", f"{path}?limit=1&cursor={world.ulid(1_000 + place)}", None))
    return f"{path}?limit=25&cursor={json.loads(answer.body)['meta']['next_cursor']}"


def together(folder: Path, long: Path, quick: bool) -> Iterator[Claim]:
    """Readers hardly feel writers, and nobody is turned away."""
    seconds, rounds = (1, 2) if quick else (4, 5)
    ratios, refused = [], 0
    with contextlib.ExitStack() as stack:
        service = running(Service(), stack, folder)
        reading, writing = service.requests(work("page")), service.requests(work("send"))
        for _ in range(rounds):
            alone = Load(service.server.port, reading, MANY, seconds).seen()
            writers = Load(service.server.port, writing, MANY, seconds)
            readers = Load(service.server.port, reading, MANY, seconds).seen()
            written = writers.seen()
            refused += sum(seen.refused + seen.broken for seen in (alone, readers, written))
            ratios.append(readers.p99 / alone.p99)
            time.sleep(QUIET)
    yield Claim(f"p99 of {MANY} readers beside {MANY} writers, against alone", statistics.median(ratios), "×", 3)
    yield Claim("requests of these that failed", refused, "", 0)


def start(folder: Path, long: Path, quick: bool) -> Iterator[Claim]:
    """The first answer comes soon."""
    rounds = 2 if quick else 5
    with contextlib.ExitStack() as stack:
        tokens = [running(contestant, stack, folder, 1).token for contestant in (Service(), FastApi())]
    times: dict[str, list[float]] = {"cold": [], "warm": [], "fastapi": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as unpacked:
            for kind in ("cold", "warm"):
                times[kind].append(first_answer(Service(), folder, tokens[0], SHIV_ROOT=unpacked))
        times["fastapi"].append(first_answer(FastApi(), folder, tokens[1]))
    medians = {kind: statistics.median(found) for kind, found in times.items()}
    yield Claim("warm start to the first answer", medians["warm"], "s", 0.35, {"FastAPI": medians["fastapi"]})
    yield Claim("cold start, which unpacks the executable", medians["cold"], "s", 1.5)


def first_answer(contestant: Contestant, folder: Path, token: str, **environment: str) -> float:
    """Seconds from the command to the settings of a user, with one worker."""
    begun = time.perf_counter()
    with contestant.serving(folder, 1, **environment) as server:
        answer = Running(contestant, server, token).ask(work("settings").asks[0])
        passed = time.perf_counter() - begun
    assert answer.status == 200, answer
    return passed


def memory(folder: Path, long: Path, quick: bool) -> Iterator[Claim]:
    """A worker does not grow."""
    count = 5_000 if quick else 100_000
    early, late = worker_memory(Service(), folder, count)
    _, theirs = worker_memory(FastApi(), folder, count // 5)
    yield Claim(f"memory of a worker after {count:,} requests", late, "MiB", 60, {"FastAPI": theirs})
    yield Claim(f"the same, against after {count // 10:,}", late / early, "×", 1.05)


def worker_memory(contestant: Contestant, folder: Path, count: int) -> tuple[float, float]:
    """MiB of its only worker after a tenth of so many requests of all kinds of lists, and after all."""
    with contextlib.ExitStack() as stack:
        one = running(contestant, stack, folder, 1)
        reads = ("page", "bots", "notifications", "events", "settings")
        requests = [request for name in reads for request in one.requests(work(name))]
        done, sizes = 0, []
        for most in (count // 10, count):
            while done < most:
                seen = Load(one.server.port, requests, 16, 2).seen()
                assert seen.requests and not seen.refused and not seen.broken, seen
                done += seen.requests
            sizes.append(resident_bytes(one.server.pid) / 2**20)
        return sizes[0], sizes[1]


def size(folder: Path, long: Path, quick: bool) -> Iterator[Claim]:
    """The executable is small."""
    yield Claim("the executable", executable().stat().st_size / 2**20, "MiB", 16)


Trial = Callable[[Path, Path, bool], Iterator[Claim]]

TRIALS: dict[str, Trial] = {"deep": deep, "together": together, "start": start, "memory": memory, "size": size}
