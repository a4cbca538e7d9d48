"""Killed at random moments under eight writers, and the power cut: what was acknowledged is there, nothing by half."""

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
from tests.serving import PROGRAM, serving
from tests.torture import Figure, missing, seed
from tests.torture.powercut import cuts, recorder, steps_of
from tests.torture.writers import CREATED, UNBOUNDED, Crew, expect_sound, rows_of, until, until_ready, values_in

PLANTED = (
    "DELETE FROM feedback WHERE id IN (SELECT id FROM feedback LIMIT 1)",
    "UPDATE event SET id = lower(hex(randomblob(16))) WHERE id IN (SELECT id FROM event LIMIT 1)",
    "DELETE FROM notification WHERE id IN (SELECT id FROM notification WHERE message_id IS NOT NULL LIMIT 1)",
    "UPDATE chat_session SET shown_total = shown_total + 1 WHERE id IN (SELECT id FROM chat_session LIMIT 1)",
    "UPDATE data_share SET revoked_at = NULL",
    "UPDATE message SET pinned_at = NULL, deleted_at = NULL",
    "UPDATE \"user\" SET settings = '{}'",
    "DELETE FROM kept_answer",
)
KINDS = ("one process", "all processes", "one process", "all processes", "one worker of two")
LAX = """import sys; sys.path.insert(0, {root!r}); sys.argv[0] = "app.py"
import app, service.db.sqlite as sqlite
sqlite.PRAGMAS = tuple((name, {level!r} if name == "synchronous" else value) for name, value in sqlite.PRAGMAS)
app.main()"""


def run(quick: bool) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="cx-crashes-") as folder:
        yield from kills(Path(folder), 8 if quick else 200)
    if lacking := missing("strace"):
        yield Figure("acknowledged writes survive a power cut", lacking)
        return
    for level, number, writes in (("full", 40, 60), ("normal", 40, 60)) if quick else POWER_CUTS:
        with tempfile.TemporaryDirectory(prefix="cx-power-") as folder:
            yield power_cuts(Path(folder), level, number, writes)


# kill -9.


def kills(folder: Path, rounds: int) -> Iterator[Figure]:
    """Kill, look at a copy of what is left, start again, and go on where everybody was."""
    dice, crew, ready = random.Random(seed()), Crew(folder / "data", seed()), []
    tally = crew.tally
    with serving(crew.data, *UNBOUNDED) as server, crew.at_work(server):
        until(lambda: tally["acknowledged"] > 150, "nobody can write")
    for number in range(rounds):
        kind = KINDS[number % len(KINDS)]
        begun = time.monotonic()
        with serving(crew.data, "--workers", "1" if kind == "one process" else "2", *UNBOUNDED) as server:
            until_ready(server)
            ready.append(time.monotonic() - begun)
            if number % 20 == 19:
                crew.expect_answered(server)
            written = tally["acknowledged"]
            with crew.at_work(server):
                until(lambda written=written: tally["acknowledged"] > written, "nobody can write")
                time.sleep(dice.uniform(0, 0.8))
                if kind == "one worker of two":
                    os.kill(dice.choice(server.workers), signal.SIGKILL)
                    time.sleep(dice.uniform(0.01, 0.8))
                os.killpg(server.process.pid, signal.SIGKILL)
                server.process.wait()
        crew.expect_stored(_copied(crew.data, folder / "copy"))
    with serving(crew.data) as server:
        until_ready(server)
        crew.expect_answered(server)
        assert server.stop() == 0
    crew.expect_stored()
    expect_found(crew, folder / "copy")
    assert tally["lost"]
    yield Figure(
        f"kill -9 under 8 writers, {rounds} times: nothing acknowledged is lost, nothing is there by half or twice",
        f"0 of {tally['acknowledged']:,} acknowledged writes lost; {tally['lost']:,} answers lost, "
        f"{tally['repeated']:,} of them asked for again; every copy sound",
    )
    yield Figure(
        "ready again after kill -9",
        f"{statistics.median(ready):.2f} s from exec to a ready answer (median), {max(ready):.2f} s at most",
    )


def expect_found(crew: Crew, copy: Path) -> None:
    """See that what is looked at afterwards would show: each of these is found in a copy."""
    for fault in PLANTED:
        _copied(crew.data, copy)
        with contextlib.closing(db.sqlite3.connect(copy / db.FILE_NAME, isolation_level=None)) as connection:
            connection.execute(fault)
        try:
            crew.expect_stored(copy)
        except AssertionError:
            continue
        raise AssertionError(f"not found: {fault}")


def _copied(data: Path, to: Path) -> Path:
    """A copy of what a killed service has left, without the memory that its processes shared."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    for file in data.glob(f"{db.FILE_NAME}*"):
        if not file.name.endswith("-shm"):
            shutil.copyfile(file, to / file.name)
    return to


# The power cut.

POWER_CUTS = (("full", 2000, 1200), ("normal", 200, 400), ("off", 200, 400))  # cuts, and acknowledged writes


def power_cuts(folder: Path, level: str, number: int, writes: int) -> Figure:
    """Record a run, cut the power at many moments, and look at what every cut leaves.

    As the service is, no cut may lose anything. With less than `synchronous = FULL`, cuts must be found that do: else
    this would find nothing at all.
    """
    dice, crew = random.Random(seed()), Crew(folder / "data", seed())
    before = {str(path): path.read_bytes() for path in crew.data.iterdir()}
    lax = (sys.executable, "-c", LAX.format(root=str(Path(PROGRAM[1]).parent), level=level))
    program = [*recorder(folder / "trace"), *(PROGRAM if level == "full" else lax)]
    with serving(crew.data, "--workers", "2", *UNBOUNDED, program=program) as server:
        until_ready(server)
        with crew.at_work(server):
            until(lambda: crew.tally["acknowledged"] > writes, "nobody can write", 600)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.process.pid, signal.SIGKILL)
        server.process.wait()
    steps = steps_of(folder / "trace", crew.data)
    losses = damages = most = 0
    images = folder / "images" / "data"
    for left, answered in cuts(steps, before, number, dice):
        shutil.rmtree(images, ignore_errors=True)
        images.mkdir(parents=True)
        for name, content in left.items():
            if not name.endswith("-shm"):  # memory that processes shared
                (images / name).write_bytes(content)
        try:
            lost = _lost(crew, images, answered)
        except (AssertionError, db.sqlite3.DatabaseError) as error:
            assert level != "full", f"a power cut left this (SEED={seed()}): {error}"
            damages += 1
            continue
        assert level != "full" or not lost, f"a power cut lost these (SEED={seed()}): {lost}"
        losses += bool(lost)
        most = max(most, len(lost))
    acknowledged = sum(step.call == "answer" for step in steps)
    assert acknowledged >= writes
    if level == "full":
        claim, seen = "a power cut at a random moment", f"0 of {number:,} cuts lost a write or left anything by half"
    else:
        assert losses + damages, f"the simulator found no loss with synchronous = {level}"
        claim = f"the same simulator on synchronous = {level.upper()}, to prove that it finds losses"
        seen = f"{losses:,} of {number:,} cuts lost acknowledged writes, up to {most:,}; {damages:,} left damage"
    return Figure(claim, f"{seen} ({acknowledged:,} answers)")


def _lost(crew: Crew, data: Path, answered: set[str]) -> list[str]:
    """What was acknowledged by these answers, and is not there. Raises AssertionError if anything is there by half."""
    with rows_of(data) as rows:
        rows("PRAGMA synchronous = 0")
        expect_sound(rows)
        there = {(kind, name) for kind, sql in CREATED.items() for name, _ in rows(sql)}
        values = values_in(rows)
    lost = []
    for what, key, value in filter(None, (crew.about.get(id) for id in answered)):
        if what in CREATED:
            is_there = (what, key) in there
        elif what == "set":
            is_there = values[what].get(key, 0) >= value  # it only rises
        else:
            is_there = what not in ("deleted", "revoked") or key in values[what]  # for good, unlike the others
        lost += [f"{what} {key}"] * (not is_there)
    return lost
