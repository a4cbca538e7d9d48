"""The service on a small host: one core, 512 MiB of memory, default settings: `make bench ROWS=small`.

The limits are those of Linux: `taskset`, and a control group; where this user cannot make one, `ulimit -v`, which also
counts memory that is reserved but not used. The load comes from another core.
"""

import contextlib
import datetime
import io
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from service.api.parameter_types import MAX_PICTURE
from service.pictures.containers import MAX_PIXELS
from tests.bench import dataset, report
from tests.bench.checks import work
from tests.bench.load import Load
from tests.bench.measure import Claim, run_round
from tests.bench.processes import Server, clean_environment, resident_bytes, running
from tests.bench.servers import ROOT, Running, Service, executable
from tests.bench.workloads import API
from tests.support.executable import PYTHON

MEMORY = 512 * 2**20
CORE = 0
CLIENTS = 32
SECONDS = 600  # of the load
MESSAGES = 100_000  # of the import
QUICK_SECONDS, QUICK_MESSAGES = 2, 2_000
ROUNDS = 5
SIDE = math.isqrt(MAX_PIXELS)  # of the largest picture

AVATAR = ("/users/me/avatar", "avatar")
MESSAGE_PICTURE = (f"/chats/{dataset.NOTES}/images", "image")

CONTROL_GROUPS = Path("/sys/fs/cgroup")
MIXED = ("page", "page", "page", "settings", "notifications", "events", "send")

DOCUMENT = ROOT / "docs" / "operating.md"
BEGIN, END = "<!-- begin: table of `make bench ROWS=small` -->", "<!-- end -->"


class Limits(NamedTuple):
    """The limits of a small host."""

    command: list[str]  # runs a command with them
    text: str


@contextlib.contextmanager
def limits() -> Iterator[Limits]:
    """Limit commands to one core and to MEMORY."""
    pinned = ["taskset", "--cpu-list", str(CORE)]
    with contextlib.ExitStack() as stack:
        try:
            group = stack.enter_context(control_group())
        except OSError:
            script = 'ulimit -v "$0"; exec "$@"'
            yield Limits(["sh", "-c", script, str(MEMORY // 1024), *pinned], "limited by `ulimit -v`")
        else:
            script = 'echo $$ >"$0/cgroup.procs"; exec "$@"'
            yield Limits(["sh", "-c", script, str(group), *pinned], "limited by a control group")


@contextlib.contextmanager
def control_group() -> Iterator[Path]:
    """Make a control group with the limit of memory, without swap. Raises OSError if this user cannot."""
    first = CONTROL_GROUPS / "memory"
    parent, names = (
        (first, ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"))
        if first.is_dir()
        else (CONTROL_GROUPS, ("memory.max", "memory.swap.max"))
    )
    group = Path(tempfile.mkdtemp(prefix="cx-bench-", dir=parent))
    try:
        (group / names[0]).write_text(str(MEMORY))
        with contextlib.suppress(OSError):  # the kernel may not limit swap
            (group / names[1]).write_text("0" if names[1] == "memory.swap.max" else str(MEMORY))
        yield group
    finally:
        group.rmdir()


def records(messages: int) -> Iterator[dataset.Record]:
    """Yield the data for all operations, and a session with many messages."""
    yield from dataset.records(dataset.Size(messages=0, bots=1_000))
    yield from dataset.session(dataset.LONG, range(10_000, 10_000 + messages))


def largest_picture() -> bytes:
    """Return a PNG of the largest size that is accepted, in pixels with transparency and in bytes."""
    noise = Image.frombytes("RGBA", (SIDE, 300), random.Random(7).randbytes(SIDE * 300 * 4))
    picture = Image.new("RGBA", (SIDE, SIDE), (220, 20, 20, 128))
    picture.paste(noise)
    output = io.BytesIO()
    picture.save(output, "PNG", compress_level=1)
    assert 0.8 * MAX_PICTURE < len(output.getvalue()) <= MAX_PICTURE, len(output.getvalue())
    return output.getvalue()


def photo() -> bytes:
    """Return a JPEG like that of a camera, with 12 million pixels."""
    gradient = Image.linear_gradient("L").resize((4_000, 3_000))
    output = io.BytesIO()
    Image.merge("RGB", (gradient, gradient.rotate(90), gradient.rotate(180))).save(output, "JPEG", quality=90)
    return output.getvalue()


@contextlib.contextmanager
def serving(limited: Limits, folder: Path, cache: Path) -> Iterator[Running]:
    """Run the service with default settings."""
    command = [*limited.command, PYTHON, executable(), "serve", "--port", "{port}", "--data", folder / "service"]
    with running(command, folder, {"SHIV_ROOT": str(cache)}) as server:
        yield Running(Service(), server, "")


def seconds_until_ready(limited: Limits, folder: Path, cache: Path) -> float:
    start = time.perf_counter()
    with serving(limited, folder, cache) as service:
        response = service.send(("GET", "/readyz", None))
        passed = time.perf_counter() - start
    assert response.status == 200, response
    return passed


def timed_import(limited: Limits, folder: Path, cache: Path, messages: int) -> tuple[float, float]:
    """Import the data into a new database. Returns the seconds, and the largest resident memory in MiB."""
    file = folder / "records.jsonl"
    with file.open("wb") as output:
        output.writelines(dataset.json_lines(records(messages)))
    command = [*limited.command, PYTHON, executable(), "import", file, "--data", folder / "service"]
    start = time.perf_counter()
    process = subprocess.Popen(
        [*map(str, command)], stdout=subprocess.DEVNULL, env=clean_environment({"SHIV_ROOT": str(cache)})
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    passed = time.perf_counter() - start
    assert process.returncode == 0, "the import failed"
    file.unlink()
    return passed, usage.ru_maxrss / 1024


def forget_peak(server: Server) -> None:
    """Let the kernel measure the largest resident memory of a process from now on."""
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")


def peak(server: Server) -> float:
    """Return the largest resident memory of a process in MiB."""
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(kilobytes) / 1024


def upload(service: Running, path: str, field: str, picture: bytes) -> float:
    """Upload a picture as a form. Returns the seconds."""
    head = f'--x\r\nContent-Disposition: form-data; name="{field}"; filename="picture"\r\n\r\n'
    headers = {"Authorization": service.token, "Content-Type": "multipart/form-data; boundary=x"}
    body = head.encode() + picture + b"\r\n--x--\r\n"
    start = time.perf_counter()
    response = service.server.send("POST", f"{API}{path}", body, headers)
    passed = time.perf_counter() - start
    assert response.status in (200, 201), response
    return passed


def signed_in(service: Running) -> Running:
    return service._replace(token=service.server_kind.token(service.server))


def mixed_requests(service: Running) -> list[bytes]:
    return [request for name in MIXED for request in service.requests(work(name))]


def measure(limited: Limits, folder: Path, quick: bool) -> Iterator[Claim]:
    """Yield the measurements."""
    cache = folder / "cache"
    messages, seconds = (QUICK_MESSAGES, QUICK_SECONDS) if quick else (MESSAGES, SECONDS)
    with tempfile.TemporaryDirectory(dir=folder) as other:
        cold = seconds_until_ready(limited, Path(other), cache)
    yield Claim("cold start until ready, including unpacking the executable", cold, "s")
    passed, memory = timed_import(limited, folder, cache, messages)
    yield Claim(f"import of {messages:,} messages", passed, "s")
    yield Claim("memory of the import", memory, "MiB")
    warm = [seconds_until_ready(limited, folder, cache) for _ in range(ROUNDS)]
    yield Claim("warm start until ready", statistics.median(warm), "s", 0.35)
    with serving(limited, folder, cache) as service:
        service.send(("GET", "/readyz", None))
        time.sleep(1)
        yield Claim("memory, idle", resident_bytes(service.server.pid) / 2**20, "MiB", 60)
        service = signed_in(service)
        passed = statistics.median(upload(service, *AVATAR, photo()) for _ in range(ROUNDS))
        yield Claim("upload of a photo of 12 million pixels as avatar", passed, "s")
    for title, (path, field) in (("avatar", AVATAR), ("picture of a message", MESSAGE_PICTURE)):
        with serving(limited, folder, cache) as service:
            service = signed_in(service)
            forget_peak(service.server)
            passed = upload(service, path, field, largest_picture())
            yield Claim(f"upload of the largest picture as {title}", passed, "s")
            yield Claim("memory during this upload", peak(service.server), "MiB", 120)
    with serving(limited, folder, cache) as service:
        service = signed_in(service)
        for name in ("page", "settings", "send", "pin"):
            rate = run_round(work(name), service, {}, 1 if quick else 5).rate
            yield Claim(f"{work(name).title}, {work(name).connections} clients", rate, "/s")
        forget_peak(service.server)
        result = Load(service.server.port, mixed_requests(service), CLIENTS, seconds).result()
        length = f"{seconds // 60} minutes" if seconds >= 60 else f"{seconds} seconds"
        yield Claim(f"reads and writes of {CLIENTS} clients for {length}", result.rate, "/s")
        yield Claim("the same, p99", result.p99, "ms")
        yield Claim("the same, failed requests", result.errors + result.failed, "", 0)
        yield Claim("the same, memory", peak(service.server), "MiB")


def markdown(claims: Sequence[Claim], limited: Limits, quick: bool) -> str:
    """Return the measurements as text."""
    about = (
        f"Measured on {datetime.date.today()}{' in the short form' if quick else ''} with Python "
        f"{platform.python_version()}, one core of {processor()}, and {MEMORY // 2**20} MiB of memory, {limited.text}:"
    )
    return f"{about}\n\n{report.table(report.check_row(claim._asdict()) for claim in claims)}"


def processor() -> str:
    """Return the name of the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "a processor")


def main(folder: Path, quick: bool, show: bool) -> int:
    """Measure, and print the result. A complete run also writes it to docs/operating.md."""
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, os.sched_getaffinity(0) - {CORE})  # of this process, and of wrk
    claims = []
    with limits() as limited, tempfile.TemporaryDirectory(dir=folder) as scratch:
        for claim in measure(limited, Path(scratch), quick):
            print(f"{claim.title}: {report.amount(claim.value, claim.unit)}", file=sys.stderr, flush=True)
            claims.append(claim)
    text = markdown(claims, limited, quick)
    print(text)
    if show or not quick:
        before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        DOCUMENT.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
    return 0
