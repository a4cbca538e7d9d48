"""Kills at random times under eight writers, and power failures: no acknowledged write is lost or partial."""

import contextlib
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from service import db
from tests.support.server_process import PROGRAM, serving
from tests.torture import Figure, missing, seed
from tests.torture.powercut import cuts, recorder, steps_of
from tests.torture.writers import (
    CREATED,
    UNBOUNDED,
    WriterGroup,
    check_consistency,
    rows_of,
    values_in,
    wait_until,
    wait_until_ready,
)

PLANTED_ERRORS = (
    "DELETE FROM feedback WHERE id IN (SELECT id FROM feedback LIMIT 1)",
    "UPDATE event SET id = lower(hex(randomblob(16))) WHERE id IN (SELECT id FROM event LIMIT 1)",
    "DELETE FROM notification WHERE id IN (SELECT id FROM notification WHERE type = 'chat_message' LIMIT 1)",
    "UPDATE chat_session SET shown_total = shown_total + 1 WHERE id IN (SELECT id FROM chat_session LIMIT 1)",
    "UPDATE data_share SET revoked_at = NULL",
    "UPDATE message SET pinned_at = NULL, deleted_at = NULL",
    "UPDATE \"user\" SET settings = '{}'",
    "DELETE FROM idempotency_key",
)
KINDS = ("one process", "all processes", "one process", "all processes", "one worker of two")
REDUCED_DURABILITY = """import sys; sys.path.insert(0, {root!r}); sys.argv[0] = "app.py"
import app, service.db.sqlite as sqlite
sqlite.PRAGMAS = tuple((name, {level!r} if name == "synchronous" else value) for name, value in sqlite.PRAGMAS)
app.main()"""


def run(quick: bool) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="cx-crashes-") as folder:
        yield from kills(Path(folder), 8 if quick else 200)
    if reason := missing("strace"):
        yield Figure("acknowledged writes survive a power failure", reason)
        return
    for level, number, writes in (("full", 40, 60), ("normal", 40, 60)) if quick else POWER_CUTS:
        with tempfile.TemporaryDirectory(prefix="cx-power-") as folder:
            yield power_cuts(Path(folder), level, number, writes)


# kill -9.


def kills(folder: Path, rounds: int) -> Iterator[Figure]:
    """Kill the service, check a copy of the files, restart it, and continue with the same writers."""
    rng, group, ready = random.Random(seed()), WriterGroup(folder / "data", seed()), []
    counts = group.counts
    with serving(group.data, *UNBOUNDED) as server, group.at_work(server):
        wait_until(lambda: counts["acknowledged"] > 150, "no writer can write")
    for number in range(rounds):
        kind = KINDS[number % len(KINDS)]
        start = time.monotonic()
        with serving(group.data, "--workers", "1" if kind == "one process" else "2", *UNBOUNDED) as server:
            wait_until_ready(server)
            ready.append(time.monotonic() - start)
            if number % 20 == 19:
                group.check_responses(server)
            written = counts["acknowledged"]
            with group.at_work(server):
                wait_until(lambda written=written: counts["acknowledged"] > written, "no writer can write")
                time.sleep(rng.uniform(0, 0.8))
                if kind == "one worker of two":
                    os.kill(rng.choice(server.workers), signal.SIGKILL)
                    time.sleep(rng.uniform(0.01, 0.8))
                os.killpg(server.process.pid, signal.SIGKILL)
                server.process.wait()
        group.check_stored(_copy_files(group.data, folder / "copy"))
    with serving(group.data) as server:
        wait_until_ready(server)
        group.check_responses(server)
        assert server.stop() == 0
    group.check_stored()
    check_detection(group, folder / "copy")
    assert counts["lost"]
    yield Figure(
        f"kill -9 under 8 writers, {rounds} times: no acknowledged write is lost, partial or duplicated",
        f"0 of {counts['acknowledged']:,} acknowledged writes lost; {counts['lost']:,} responses lost, "
        f"{counts['repeated']:,} of them requested again; every copy is intact",
    )
    yield Figure(
        "ready again after kill -9",
        f"{statistics.median(ready):.2f} s from exec to a ready response (median), {max(ready):.2f} s at most",
    )


def check_detection(group: WriterGroup, copy: Path) -> None:
    """Check the checks: each planted error must be found in a copy."""
    for statement in PLANTED_ERRORS:
        _copy_files(group.data, copy)
        with contextlib.closing(db.open_file(copy / db.FILE_NAME)) as connection:
            connection.execute(statement)
        try:
            group.check_stored(copy)
        except AssertionError:
            continue
        raise AssertionError(f"not detected: {statement}")


def _copy_files(data: Path, to: Path) -> Path:
    """Copy the files of a killed service, without the shared memory of its processes."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    for file in data.glob(f"{db.FILE_NAME}*"):
        if not file.name.endswith("-shm"):
            shutil.copyfile(file, to / file.name)
    return to


# Power failures.

POWER_CUTS = (("full", 2000, 1200), ("normal", 200, 400), ("off", 200, 400))  # failures, and acknowledged writes


def power_cuts(folder: Path, level: str, number: int, writes: int) -> Figure:
    """Record a run, simulate power failures at many times, and check the files after each.

    No failure may lose anything. With less than `synchronous = FULL` some must, which proves that losses are detected.
    """
    rng, group = random.Random(seed()), WriterGroup(folder / "data", seed())
    before = {str(path): path.read_bytes() for path in group.data.iterdir()}
    reduced = (sys.executable, "-c", REDUCED_DURABILITY.format(root=str(Path(PROGRAM[1]).parent), level=level))
    program = [*recorder(folder / "trace"), *(PROGRAM if level == "full" else reduced)]
    with serving(group.data, "--workers", "2", *UNBOUNDED, program=program) as server:
        wait_until_ready(server)
        with group.at_work(server):
            wait_until(lambda: group.counts["acknowledged"] > writes, "no writer can write", 600)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.process.pid, signal.SIGKILL)
        server.process.wait()
    steps = steps_of(folder / "trace", group.data)
    losses = damages = largest_loss = 0
    images = folder / "images" / "data"
    for files, request_ids in cuts(steps, before, number, rng):
        shutil.rmtree(images, ignore_errors=True)
        images.mkdir(parents=True)
        for name, content in files.items():
            if not name.endswith("-shm"):  # shared memory of processes
                (images / name).write_bytes(content)
        try:
            lost = _lost(group, images, request_ids)
        except (AssertionError, db.SqliteError) as error:
            assert level != "full", f"damage after a power failure (SEED={seed()}): {error}"
            damages += 1
            continue
        assert level != "full" or not lost, f"losses after a power failure (SEED={seed()}): {lost}"
        losses += bool(lost)
        largest_loss = max(largest_loss, len(lost))
    acknowledged = sum(step.call == "response" for step in steps)
    assert acknowledged >= writes
    if level == "full":
        claim, result = (
            "a power failure at a random time",
            f"0 of {number:,} failures lost a write or left a partial one",
        )
    else:
        assert losses + damages, f"the simulator found no loss with synchronous = {level}"
        claim = f"the same simulator with synchronous = {level.upper()}, to prove that it detects losses"
        result = (
            f"{losses:,} of {number:,} failures lost acknowledged writes, up to {largest_loss:,}; "
            f"{damages:,} left damage"
        )
    return Figure(claim, f"{result} ({acknowledged:,} responses)")


def _lost(group: WriterGroup, data: Path, request_ids: set[str]) -> list[str]:
    """Return the acknowledged writes that are missing. Raises AssertionError if the database is inconsistent."""
    with rows_of(data) as rows:
        rows("PRAGMA synchronous = 0")
        check_consistency(rows)
        stored_names = {(kind, name) for kind, sql in CREATED.items() for name, _ in rows(sql)}
        values = values_in(rows)
    lost = []
    for kind, key, value in filter(None, (group.about.get(id) for id in request_ids)):
        if kind in CREATED:
            is_stored = (kind, key) in stored_names
        elif kind == "set":
            is_stored = values[kind].get(key, 0) >= value  # it only increases
        else:
            is_stored = kind not in ("deleted", "revoked") or key in values[kind]  # permanent, unlike the others
        lost += [f"{kind} {key}"] * (not is_stored)
    return lost
