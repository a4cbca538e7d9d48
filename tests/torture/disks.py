"""Full, read-only and failing disks: reads continue, writes get status 503, and recover without a restart."""

import contextlib
import http.client
import os
import random
import re
import resource
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from service import db
from tests.support.server_process import PROGRAM, Served, send_request, serving
from tests.torture import NOT_TESTED, Figure, missing, seed
from tests.torture.writers import UNBOUNDED, WriterGroup, log_in_all, session_of, wait_until, wait_until_ready

NOT_STARTED = re.compile(r"^cx-service: the database cannot be used: .*\n\Z", re.M)
READ_FAILS = ("pread64", "EIO")
ERRORS = (
    ("pwrite64", "EIO"),
    ("pwrite64", "ENOSPC"),
    ("pwrite64", "EROFS"),
    ("fsync,fdatasync", "EIO"),
    ("ftruncate", "EIO"),
    READ_FAILS,
)


def run(quick: bool) -> Iterator[Figure]:
    yield in_folder(unwritable, 1 if quick else 10)
    if os.geteuid():
        reason = f"{NOT_TESTED}only root may mount file systems"
        yield Figure("a file system that fills up", reason)
        yield Figure("a file system that turns read-only", reason)
    else:
        yield in_folder(filled_up, 1 if quick else 10)
        yield (
            in_folder(turned_read_only)
            if Path("/dev/loop-control").exists()
            else Figure("a file system that turns read-only", f"{NOT_TESTED}there are no loop devices here")
        )
    if reason := missing("strace"):
        yield Figure("errors of the disk", reason)
    else:
        yield in_folder(errors, 1 if quick else 33)
        yield in_folder(errors_at_start, 1 if quick else 10)


def in_folder(trial: Callable[..., Figure], *arguments: int) -> Figure:
    with tempfile.TemporaryDirectory(prefix="cx-disks-") as folder:
        return trial(Path(folder), *arguments)


class Readers:
    """Two clients that read lists continuously."""

    def __init__(self, group: WriterGroup, server: Served, allowed: frozenset[int] = frozenset([200])) -> None:
        self.server, self.allowed = server, allowed
        self.tokens = [writer.tokens["access_token"] for writer in group.writers[:2]]
        self.read, self.slowest, self.errors = 0, 0.0, list[str]()
        self.statuses = Counter[int]()

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        stopped = threading.Event()
        threads = [threading.Thread(target=self._read, args=(number, stopped)) for number in range(2)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stopped.set()
            for thread in threads:
                thread.join(60)
        assert not self.errors, self.errors[:3]

    def _read(self, number: int, stopped: threading.Event) -> None:
        paths = [f"/chats/{session_of(number)}/messages", "/notifications", "/data-shares", "/events", "/chats"]
        with contextlib.closing(self.server.connect()) as connection:
            while not stopped.is_set():
                for path in paths:
                    start = time.monotonic()
                    try:
                        response = send_request(connection, "GET", f"/api/v1{path}", token=self.tokens[number])
                    except (OSError, http.client.HTTPException) as error:
                        self.errors.append(f"{path}: {error!r}")
                        return
                    self.slowest = max(self.slowest, time.monotonic() - start)
                    self.read += 1
                    self.statuses[response.status] += 1
                    if response.status not in self.allowed:
                        self.errors.append(f"{path}: {response.status} {response.raw!r}")


def all_writers_succeed(group: WriterGroup) -> Callable[[], bool]:
    """Return a function that returns whether every writer has succeeded since this call."""
    before = [writer.acknowledged for writer in group.writers]
    return lambda: all(writer.acknowledged > old for writer, old in zip(group.writers, before, strict=True))


def run_with_failure(
    group: WriterGroup, server: Served, failure: Callable[[], contextlib.AbstractContextManager[None]]
) -> str:
    """Write and reads while nothing can be stored. Returns a summary."""
    log_in_all(group, server)
    readers = Readers(group, server)
    with group.at_work(server), readers.at_work():
        wait_until(all_writers_succeed(group), "no writer can write")
        group.slowest = readers.slowest = 0.0
        before, refused = readers.read, group.counts["refused"]
        with failure():
            wait_until(lambda: group.counts["refused"] > refused + 10, "writes are not refused")
            time.sleep(0.5)
            wait_until(lambda: server.call("GET", "/readyz").status == 503, "/readyz still returns 200")
            assert server.call("GET", "/healthz").status == 200
            large = server.call(
                "POST", "/api/v1/auth/login", bytes(2**20)
            )  # uses a temporary file, if one can be written
            assert large.error in ((503, "storage_unavailable"), (400, "invalid_json")), large.raw  # or memory
        read, refused, slowest = readers.read - before, group.counts["refused"] - refused, group.slowest
        took = wait_until(all_writers_succeed(group), "a writer cannot write after space was freed")
    assert read > 10
    assert server.process.poll() is None
    group.check_stored()
    group.check_responses(server)
    return (
        f"{read:,} reads answered (slowest {readers.slowest:.2f} s), {refused:,} writes refused with 503 "
        f"(slowest {slowest:.2f} s), all writing again {took:.2f} s later without a restart"
    )


# No writes.


def unwritable(folder: Path, times: int) -> Figure:
    """Set a limit that prevents all writes to files, including the log and temporary files."""
    group = WriterGroup(folder / "data", seed())

    @contextlib.contextmanager
    def limited(server: Served) -> Iterator[None]:
        processes = (server.process.pid, *server.workers)
        for most in (0, resource.RLIM_INFINITY):
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(process, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
            if not most:
                yield

    with serving(group.data, "--workers", "2", *UNBOUNDED) as server:
        wait_until_ready(server)
        summary = [run_with_failure(group, server, lambda: limited(server)) for _ in range(times)][-1]
        with limited(server):
            assert server.stop() == 0, "does not stop in order if it cannot write a log"
    group.check_stored()
    claim = f"no byte can be written anywhere, logs and temporary files included, {times} times under 8 writers"
    return Figure(claim, f"0 of {group.counts['acknowledged']:,} acknowledged writes lost; the last time {summary}")


def mounted(folder: Path, *options: str) -> contextlib.AbstractContextManager[None]:
    """Mount a file system at a folder during a block."""

    @contextlib.contextmanager
    def mounting() -> Iterator[None]:
        folder.mkdir(exist_ok=True)
        subprocess.run(["mount", *options, str(folder)], check=True)
        try:
            yield
        finally:
            wait_until(
                lambda: not subprocess.run(["umount", str(folder)], capture_output=True).returncode, "cannot unmount"
            )

    return mounting()


def filled_up(folder: Path, times: int) -> Figure:
    """Fill a small file system with the database, the log and the temporary files."""
    place = folder / "disk"

    @contextlib.contextmanager
    def full() -> Iterator[None]:
        filler = place / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        yield
        filler.unlink()

    with mounted(place, "-t", "tmpfs", "-o", "size=96m", "cx"):
        group = WriterGroup(place / "data", seed())
        with serving(group.data, "--workers", "2", *UNBOUNDED, TMPDIR=str(place)) as server:
            wait_until_ready(server)
            summary = [run_with_failure(group, server, full) for _ in range(times)][-1]
            with full():
                assert server.stop() == 0
        group.check_stored()
    claim = f"a file system that fills up, {times} times under 8 writers"
    return Figure(claim, f"0 of {group.counts['acknowledged']:,} acknowledged writes lost; the last time {summary}")


def turned_read_only(folder: Path) -> Figure:
    """Abort an ext4 file system, as after a disk error, and repair it.

    During the abort, Linux may report success for a sync in progress and discard its data: a single process that writes
    and syncs sees this once in forty times, two on one file once in five. Until the repair, the service reads such data
    from memory, and confirms a write that is repeated. So all responses from the abort on are in doubt, except that a
    new write must be refused.
    """
    image, place = folder / "image", folder / "disk"
    with image.open("wb") as file:
        file.truncate(160 * 2**20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    with mounted(place, "-o", "loop", str(image)):
        group = WriterGroup(place / "data", seed())
        with serving(group.data, "--workers", "2", *UNBOUNDED) as server:
            wait_until_ready(server)
            log_in_all(group, server)
            readers = Readers(group, server)
            with group.at_work(server), readers.at_work():
                wait_until(all_writers_succeed(group), "no writer can write")
                group.in_doubt = True
                subprocess.run(["mount", "-o", "remount,abort", str(place)], capture_output=True)
                before = readers.read
                wait_until(lambda: group.counts["refused"] > 50, "writes are not refused")
                for number in range(20):
                    new = {"description": f"new {number}"}
                    refused = server.call("POST", "/api/v1/feedback", new, readers.tokens[0])
                    assert refused.error == (503, "storage_unavailable"), refused.raw
                wait_until(lambda: server.call("GET", "/readyz").status == 503, "/readyz still returns 200")
                read = readers.read - before
            assert server.stop() == 0
            group.in_doubt = False
    assert read > 10
    with mounted(place, "-o", "loop", str(image)):  # replays the journal of the file system
        group.check_stored()
        with serving(group.data, *UNBOUNDED) as server:
            wait_until_ready(server)
            with group.at_work(server):
                wait_until(all_writers_succeed(group), "a writer cannot write on the repaired disk")
            group.check_responses(server)
    summary = f"{read:,} reads answered, {group.counts['refused']:,} writes refused; after the repair nothing is lost"
    return Figure("an ext4 that turns read-only under 8 writers, and is repaired", summary)


# Errors of system calls.


def errors(folder: Path, most: int) -> Figure:
    """Make writes, syncs, truncations and reads of a running service fail for a while; then it must recover."""
    rng, group, runs, read = random.Random(seed()), WriterGroup(folder / "data", seed()), 0, Counter[int]()
    chosen = ERRORS if most > 1 else [READ_FAILS, *rng.sample(ERRORS, 2)]
    with serving(group.data, *UNBOUNDED) as server:
        wait_until_ready(server)
        log_in_all(group, server)
        if reason := cannot_attach(server):
            return Figure("errors of the disk of a running service", reason)
        for number in range(most):
            for call, error in chosen:
                first = number + 1 if most > 1 else rng.randrange(1, 10)
                when = rng.choice([f"{first}+", f"{first}+5", f"{first}..{first + 40}"])
                try:
                    read += run_with_errors(group, server, call, f"{call}:error={error}:when={when}")
                except AssertionError as fault:
                    raise AssertionError(f"{call} {error} {when} (SEED={seed()}): {fault}") from fault
                runs += 1
        assert "Traceback" not in server.errors, server.errors[-5000:]
        assert server.stop() == 0
    group.check_stored()
    with serving(group.data, *UNBOUNDED) as server:
        wait_until_ready(server)
        group.check_responses(server)
    counts = group.counts
    assert counts["refused"] > runs
    assert read[503], "no read failed"
    shutil.rmtree(group.data)
    return Figure(
        f"reads, writes, syncs or truncations fail in a running service, with EIO, ENOSPC or EROFS: {runs} runs",
        f"0 of {counts['acknowledged']:,} acknowledged writes lost; {counts['refused']:,} writes and {read[503]:,} "
        f"reads refused with 503, {read[200]:,} reads answered, no other status; after each run all clients succeeded",
    )


def cannot_attach(server: Served) -> str:
    """Return why errors cannot be injected into a running process; otherwise an empty text."""
    line = ["strace", "-qq", "-o", "/dev/null", "-p", str(server.process.pid), "-e", "trace=none"]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    try:
        _, errors = process.communicate(timeout=1)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.communicate()
        return ""
    return f"{NOT_TESTED}strace may not attach to a running process: {errors.strip()}"


@contextlib.contextmanager
def injected(server: Served, data: Path, call: str, injection: str) -> Iterator[None]:
    """Make system calls of a running server on its database fail during the block."""
    files = [f"-P{data / db.FILE_NAME}{end}" for end in ("", "-wal")]
    options = ["-e", f"trace={call}", "-e", f"inject={injection}"]
    line = ["strace", "-f", "-qq", "-o", "/dev/null", "-p", str(server.process.pid), *files, *options]
    tasks = Path(f"/proc/{server.process.pid}/task")
    with subprocess.Popen(line, stderr=subprocess.PIPE) as process:

        def is_attached() -> bool:
            assert process.poll() is None, process.communicate()[1]
            traced = [re.search(r"^TracerPid:\t(\d+)", status.read_text(), re.M) for status in tasks.glob("*/status")]
            return all(found and int(found[1]) == process.pid for found in traced)

        try:
            wait_until(is_attached, "strace does not attach")
            yield
        finally:
            process.terminate()  # strace detaches from the server
            process.wait()


def run_with_errors(group: WriterGroup, server: Served, call: str, injection: str) -> Counter[int]:
    """Write and reads while calls fail, and check the recovery. Returns the statuses of the reads."""
    reads_fail = call == READ_FAILS[0]
    readers = Readers(group, server, frozenset([200, 503] if reads_fail else [200]))
    with group.at_work(server), readers.at_work():
        with injected(server, group.data, call, injection):
            time.sleep(0.6)
            assert server.call("GET", "/readyz").status in (200, 503)
            assert server.call("GET", "/healthz").status == 200
        wait_until(all_writers_succeed(group), "a writer cannot write after the errors")
        wait_until_ready(server)
        readers.allowed = frozenset([200])
        before = readers.read
        wait_until(lambda: readers.read > before + 20 or bool(readers.errors), "no reads succeed after the errors")
    assert server.process.poll() is None
    return readers.statuses


def errors_at_start(folder: Path, most: int) -> Figure:
    """Make calls fail from the first on: the service starts, or refuses with one line."""
    rng, group, runs, refused_to_start = random.Random(seed()), WriterGroup(folder / "data", seed()), 0, 0
    with serving(group.data, *UNBOUNDED) as server:
        log_in_all(group, server)
    for number in range(most):
        for call, error in ERRORS if most > 1 else [READ_FAILS]:
            first = number + 1
            when = rng.choice([f"{first}", f"{first}+5", f"{first}..{first + 40}"])
            try:
                run_with(group, f"{call}:error={error}:when={when}", reads_fail=(call, error) == READ_FAILS)
            except AssertionError as fault:
                if not NOT_STARTED.search(str(fault)):
                    raise AssertionError(f"{call} {error} {when} (SEED={seed()}): {fault}") from fault
                refused_to_start += 1
            runs += 1
            with serving(group.data, *UNBOUNDED) as server:  # without errors
                wait_until_ready(server)
                group.check_stored()
    return Figure(
        f"the n-th write, sync, truncation or read from the start on fails with EIO, ENOSPC or EROFS: {runs} runs",
        f"0 of {group.counts['acknowledged']:,} acknowledged writes lost; {refused_to_start} starts refused",
    )


def is_up(server: Served) -> bool:
    """Return whether a server responds."""
    try:
        return server.call("GET", "/healthz").status == 200
    except OSError:
        return False


def run_with(group: WriterGroup, injected: str, *, reads_fail: bool) -> None:
    """Run the service under disk errors. Raises AssertionError with its error line if it does not start."""
    files = [f"-P{group.data / db.FILE_NAME}{end}" for end in ("", "-wal")]
    strace = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "--seccomp-bpf", *files, "-e", f"inject={injected}"]
    calls = injected.partition(":")[0]
    with serving(group.data, *UNBOUNDED, program=[*strace, "-e", f"trace={calls}", *PROGRAM]) as server:
        wait_until(lambda: server.process.poll() is not None or is_up(server), "does not respond")
        assert server.process.poll() is None, server.errors
        allowed = frozenset([200, 503] if reads_fail else [200])
        readers = Readers(group, server, allowed)
        with group.at_work(server), readers.at_work():
            time.sleep(0.6)
        assert server.process.poll() is None
