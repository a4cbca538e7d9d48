"""Rounds: everybody does the same work in turn, a few seconds each, so that what disturbs one disturbs all."""

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from service.db import sqlite3
from tests.bench.contestants import Limit, Running, Work
from tests.bench.load import Load
from tests.bench.processes import Answer, processor_seconds
from tests.bench.world import NOTES, ulid

TOLERANCE = 0.1  # of the service's bytes, by which a peer's lists may differ
BARE_PINS = 500
WARM_UP = 50  # requests, so that each process has answered some


class Absent(Exception):
    """The service does not offer what a line asks for."""


class Turn(NamedTuple):
    """One round of one contestant."""

    rate: float  # requests per second
    cost: float  # processor time of the whole server for each, in microseconds
    p99: float  # milliseconds
    requests: int = 0


class Pace(NamedTuple):
    """How often, and for how many seconds, each is asked."""

    rounds: int
    seconds: int


def verify(work: Work, running: Running, ours: Answer | None) -> Answer:
    """The first answer to a piece of work, after we have seen that it is neither more nor less than it should be."""
    name = f"{running.contestant.title}, {work.title}"
    ask = running.contestant.asks(work)[0]
    forged = running.ask(ask, Authorization=running.token[:-2] + "xx")
    # PocketBase takes a bad token for none, and shows the empty list that its rules leave to a stranger.
    assert forged.status in (401, 403, 404, 400) or not running.contestant.items(forged), f"{name}: lets anybody in"
    answer = running.ask(ask)
    assert answer.status in (work.status, 200), f"{name}: {answer.status} {answer.body.decode()[:500]}"
    if work.items:
        found = len(running.contestant.items(answer))
        assert found == work.items, f"{name}: {found} rows"
        if ours:
            ratio = len(answer.body) / len(ours.body)
            assert abs(ratio - 1) <= TOLERANCE, f"{name}: {ratio:.2f} of the service's bytes"
    return answer


def tag_of(work: Work, running: Running) -> dict[str, str]:
    """The headers of a client that has the answer already. Raises Absent."""
    if not work.known:
        return {}
    tag = running.ask(work.asks[0]).headers.get("etag")
    if not tag:
        raise Absent("its answer has no ETag")
    headers = {"If-None-Match": tag}
    answer = running.ask(work.asks[0], **headers)
    if answer.status != 304:
        raise Absent(f"it was answered with {answer.status}")
    return headers


def take_turn(work: Work, running: Running, headers: dict[str, str], seconds: int, done: int = 0) -> Turn:
    """One round, which goes on with the requests that come after those that are `done`."""
    requests = running.requests(work, **headers)
    place = done % len(requests)
    before = processor_seconds(running.server.pid)
    seen = Load(running.server.port, requests[place:] + requests[:place], work.connections, seconds).seen()
    spent = processor_seconds(running.server.pid) - before
    assert not seen.broken and not seen.refused, f"{running.contestant.title}, {work.title}: {seen}"
    assert seen.requests, f"{running.contestant.title}, {work.title}: no answer"
    return Turn(seen.rate, spent / seen.requests * 1e6, seen.p99, seen.requests)


class Bare:
    """Bare SQLite: a loop that commits a row in the service's own database, as durably, and does nothing else."""

    def __init__(self, folder: Path, work: Work) -> None:
        self.database = sqlite3.connect(folder / "service" / "service.db", isolation_level=None, timeout=5)
        for pragma in ("synchronous = full", "foreign_keys = 1"):
            self.database.execute(f"PRAGMA {pragma}")
        self.statement, self.values = self.prepare(work.writes)
        self.turn = itertools.count(time.time_ns())

    def prepare(self, kind: str) -> tuple[str, Callable[[int], Sequence[Any]]]:
        """The statement, and its values by turn."""
        if kind == "pin":
            moments = ("2026-11-20T10:00:00.000Z", None)

            def pinning(turn: int) -> Sequence[Any]:
                return moments[turn // BARE_PINS % 2], ulid(turn % BARE_PINS)  # in a session where nobody else pins

            return "UPDATE message SET pinned_at = ? WHERE id = ?", pinning
        like = f"WHERE chat_session_id = '{NOTES}' ORDER BY id DESC" if kind == "message" else ""
        selected = self.database.execute(f"SELECT * FROM {kind} {like} LIMIT 1")  # the identifier comes first
        _, *rest = selected.fetchone()
        marks = ", ".join("?" * len(selected.description))
        form = "01B{:023}" if kind == "message" else "{:036}"
        return f"INSERT INTO {kind} VALUES ({marks})", lambda turn: [form.format(turn), *rest]

    def take_turn(self, seconds: int) -> Turn:
        """One round."""
        taken: list[float] = []
        worked, begun = time.process_time(), time.perf_counter()
        last = begun
        while last - begun < seconds:
            self.database.execute(self.statement, self.values(next(self.turn)))
            now = time.perf_counter()
            taken.append(now - last)
            last = now
        cost = (time.process_time() - worked) / len(taken) * 1e6
        return Turn(len(taken) / (last - begun), cost, statistics.quantiles(taken, n=100)[98] * 1e3)


def contest(
    work: Work, ours: Running, peers: Sequence[Running], limit: Limit, folder: Path, pace: Pace
) -> dict[str, Any]:
    """A line of the table: medians of everybody's rounds, and of what others cost in a round over what we did."""
    headers = tag_of(work, ours)
    first = verify(work, ours, None)
    others = [] if work.known else list(peers)
    for peer in others:
        verify(work, peer, first)
    with contextlib.ExitStack() as stack:
        if work.writes:
            bare = Bare(folder, work)
            stack.callback(bare.database.close)
        elif work.share:
            ask = work.asks[0]
            limit.learn(ask[1], ours.ask(ask, **headers), work.known)
            server = stack.enter_context(limit.serving(folder))
            others.insert(0, Running(limit, server, limit.token(server)))
        turns: dict[str, list[Turn]] = {}
        for running in [ours, *others] * WARM_UP:
            running.ask(running.contestant.asks(work)[0], **headers)
        for _ in range(pace.rounds):
            for running in [ours, *others]:
                found = turns.setdefault(running.contestant.name, [])
                done = sum(turn.requests for turn in found)
                found.append(take_turn(work, running, headers, pace.seconds, done))
            if work.writes:
                turns.setdefault("bare", []).append(bare.take_turn(pace.seconds))
    return told(work, turns)


def told(work: Work, turns: dict[str, list[Turn]]) -> dict[str, Any]:
    """A line of the table as the results hold it."""
    own = turns["service"]
    return {
        "name": work.name,
        "title": work.title,
        "goals": {"share": work.share, "peer": work.peer, "p99": work.p99},
        "seen": {
            name: {
                "rate": statistics.median(turn.rate for turn in found),
                "cost": statistics.median(turn.cost for turn in found),
                "p99": statistics.median(turn.p99 for turn in found),
                "times_cost": statistics.median(turn.cost / mine.cost for turn, mine in zip(found, own, strict=True)),
                "times_rate": statistics.median(mine.rate / turn.rate for turn, mine in zip(found, own, strict=True)),
            }
            for name, found in turns.items()
        },
    }
