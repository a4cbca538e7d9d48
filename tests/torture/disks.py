"""Disks that are full, read-only or broken: reads go on, writes are refused and say so, and later all is well."""

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
from tests.serving import PROGRAM, Served, ask, serving
from tests.torture import UNTRIED, Figure, missing, seed
from tests.torture.writers import UNBOUNDED, Crew, log_all_in, session_of, until, until_ready

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
        lacking = f"{UNTRIED}only root may mount file systems"
        yield Figure("a file system that fills up", lacking)
        yield Figure("a file system that turns read-only", lacking)
    else:
        yield in_folder(filled_up, 1 if quick else 10)
        yield (
            in_folder(turned_read_only)
            if Path("/dev/loop-control").exists()
            else Figure("a file system that turns read-only", f"{UNTRIED}there are no loop devices here")
        )
    if lacking := missing("strace"):
        yield Figure("errors of the disk", lacking)
    else:
        yield in_folder(errors, 1 if quick else 33)
        yield in_folder(errors_at_start, 1 if quick else 10)


def in_folder(trial: Callable[..., Figure], *arguments: int) -> Figure:
    with tempfile.TemporaryDirectory(prefix="cx-disks-") as folder:
        return trial(Path(folder), *arguments)


class Readers:
    """Two people who read lists all the time, whatever becomes of the disk."""

    def __init__(self, crew: Crew, server: Served, allowed: frozenset[int] = frozenset([200])) -> None:
        self.server, self.allowed = server, allowed
        self.tokens = [writer.tokens["access_token"] for writer in crew.writers[:2]]
        self.read, self.longest, self.faults = 0, 0.0, list[str]()
        self.statuses = Counter[int]()

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        over = threading.Event()
        threads = [threading.Thread(target=self._read, args=(number, over)) for number in range(2)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join(60)
        assert not self.faults, self.faults[:3]

    def _read(self, number: int, over: threading.Event) -> None:
        paths = [f"/chats/{session_of(number)}/messages", "/notifications", "/data-shares", "/events", "/chats"]
        with contextlib.closing(self.server.connect()) as connection:
            while not over.is_set():
                for path in paths:
                    begun = time.monotonic()
                    try:
                        answer = ask(connection, "GET", f"/api/v1{path}", token=self.tokens[number])
                    except (OSError, http.client.HTTPException) as error:
                        self.faults.append(f"{path}: {error!r}")
                        return
                    self.longest = max(self.longest, time.monotonic() - begun)
                    self.read += 1
                    self.statuses[answer.status] += 1
                    if answer.status not in self.allowed:
                        self.faults.append(f"{path}: {answer.status} {answer.raw!r}")


def everybody_writes(crew: Crew) -> Callable[[], bool]:
    """Whether every writer was told of a success since this was called."""
    before = [writer.acknowledged for writer in crew.writers]
    return lambda: all(writer.acknowledged > old for writer, old in zip(crew.writers, before, strict=True))


def endure(crew: Crew, server: Served, trouble: Callable[[], contextlib.AbstractContextManager[None]]) -> str:
    """Write and read through some trouble, during which nothing new can be stored; what was seen of it."""
    log_all_in(crew, server)
    readers = Readers(crew, server)
    with crew.at_work(server), readers.at_work():
        until(everybody_writes(crew), "nobody can write")
        crew.longest = readers.longest = 0.0
        before, refused = readers.read, crew.tally["refused"]
        with trouble():
            until(lambda: crew.tally["refused"] > refused + 10, "writes are not refused")
            time.sleep(0.5)
            until(lambda: server.call("GET", "/readyz").status == 503, "says that it is ready")
            assert server.call("GET", "/healthz").status == 200
            large = server.call("POST", "/api/v1/auth/login", bytes(2**20))  # kept in a temporary file, if it can be
            assert large.error in ((503, "storage_unavailable"), (400, "invalid_json")), large.raw  # or kept elsewhere
        read, refused, longest = readers.read - before, crew.tally["refused"] - refused, crew.longest
        took = until(everybody_writes(crew), "when there is room again, somebody still cannot write")
    assert read > 10
    assert server.process.poll() is None
    crew.expect_stored()
    crew.expect_answered(server)
    return (
        f"{read:,} reads answered (slowest {readers.longest:.2f} s), {refused:,} writes refused with 503 "
        f"(slowest {longest:.2f} s), all writing again {took:.2f} s later without a restart"
    )


# Nothing can be written.


def unwritable(folder: Path, times: int) -> Figure:
    """No file may grow or be written to, the log and temporary files neither."""
    crew = Crew(folder / "data", seed())

    @contextlib.contextmanager
    def limited(server: Served) -> Iterator[None]:
        processes = (server.process.pid, *server.workers)
        for most in (0, resource.RLIM_INFINITY):
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(process, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
            if not most:
                yield

    with serving(crew.data, "--workers", "2", *UNBOUNDED) as server:
        until_ready(server)
        seen = [endure(crew, server, lambda: limited(server)) for _ in range(times)][-1]
        with limited(server):
            assert server.stop() == 0, "does not stop in order when it cannot write a log"
    crew.expect_stored()
    claim = f"no byte can be written anywhere, logs and temporary files included, {times} times under 8 writers"
    return Figure(claim, f"0 of {crew.tally['acknowledged']:,} acknowledged writes lost; the last time {seen}")


def mounted(folder: Path, *how: str) -> contextlib.AbstractContextManager[None]:
    """Something mounted at a folder for the length of a block."""

    @contextlib.contextmanager
    def mounting() -> Iterator[None]:
        folder.mkdir(exist_ok=True)
        subprocess.run(["mount", *how, str(folder)], check=True)
        try:
            yield
        finally:
            until(lambda: not subprocess.run(["umount", str(folder)], capture_output=True).returncode, "cannot unmount")

    return mounting()


def filled_up(folder: Path, times: int) -> Figure:
    """A small file system with the database, the log and the temporary files, which somebody else fills."""
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
        crew = Crew(place / "data", seed())
        with serving(crew.data, "--workers", "2", *UNBOUNDED, TMPDIR=str(place)) as server:
            until_ready(server)
            seen = [endure(crew, server, full) for _ in range(times)][-1]
            with full():
                assert server.stop() == 0
        crew.expect_stored()
    claim = f"a file system that fills up, {times} times under 8 writers"
    return Figure(claim, f"0 of {crew.tally['acknowledged']:,} acknowledged writes lost; the last time {seen}")


def turned_read_only(folder: Path) -> Figure:
    """An ext4 that gives up, as after an error of its disk, and is repaired.

    While it does, Linux says of a sync that is under way that it has succeeded, and throws away what was to be synced:
    one process that only writes and syncs sees that once in forty times, two on one file once in five.
    """
    image, place = folder / "image", folder / "disk"
    with image.open("wb") as file:
        file.truncate(160 * 2**20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    with mounted(place, "-o", "loop", str(image)):
        crew = Crew(place / "data", seed())
        with serving(crew.data, "--workers", "2", *UNBOUNDED) as server:
            until_ready(server)
            log_all_in(crew, server)
            readers = Readers(crew, server)
            with crew.at_work(server), readers.at_work():
                until(everybody_writes(crew), "nobody can write")
                with crew.in_doubt():
                    subprocess.run(["mount", "-o", "remount,abort", str(place)], capture_output=True)
                before = readers.read
                until(lambda: crew.tally["refused"] > 50, "writes are not refused")
                time.sleep(0.5)
                assert server.call("GET", "/readyz").error == (503, "storage_unavailable")
                read = readers.read - before
            assert server.stop() == 0
    assert read > 10
    with mounted(place, "-o", "loop", str(image)):  # which replays the journal of the file system
        crew.expect_stored()
        with serving(crew.data, *UNBOUNDED) as server:
            until_ready(server)
            with crew.at_work(server):
                until(everybody_writes(crew), "nobody can write on the repaired disk")
            crew.expect_answered(server)
    seen = f"{read:,} reads answered, {crew.tally['refused']:,} writes refused; after the repair all is there"
    return Figure("an ext4 that turns read-only under 8 writers, and is repaired", seen)


# Errors.


def errors(folder: Path, most: int) -> Figure:
    """Writes, syncs, truncations and reads of a running service fail for a while; then it serves again by itself."""
    dice, crew, runs, read = random.Random(seed()), Crew(folder / "data", seed()), 0, Counter[int]()
    chosen = ERRORS if most > 1 else [READ_FAILS, *dice.sample(ERRORS, 2)]
    with serving(crew.data, *UNBOUNDED) as server:
        until_ready(server)
        log_all_in(crew, server)
        if lacking := cannot_attach(server):
            return Figure("errors of the disk of a running service", lacking)
        for number in range(most):
            for call, error in chosen:
                first = number + 1 if most > 1 else dice.randrange(1, 10)
                when = dice.choice([f"{first}+", f"{first}+5", f"{first}..{first + 40}"])
                try:
                    read += endure_errors(crew, server, call, f"{call}:error={error}:when={when}")
                except AssertionError as fault:
                    raise AssertionError(f"{call} {error} {when} (SEED={seed()}): {fault}") from fault
                runs += 1
        assert "Traceback" not in server.errors, server.errors[-5000:]
        assert server.stop() == 0
    crew.expect_stored()
    with serving(crew.data, *UNBOUNDED) as server:
        until_ready(server)
        crew.expect_answered(server)
    tally = crew.tally
    assert tally["refused"] > runs
    assert read[503], "no read has failed"
    shutil.rmtree(crew.data)
    return Figure(
        f"reads, writes, syncs or truncations fail in a running service, with EIO, ENOSPC or EROFS: {runs} runs",
        f"0 of {tally['acknowledged']:,} acknowledged writes lost; {tally['refused']:,} writes and {read[503]:,} reads "
        f"refused with 503, {read[200]:,} reads answered, no other status; after each run all wrote and read again",
    )


def cannot_attach(server: Served) -> str:
    """Why errors cannot be injected into a running process here; empty if they can."""
    line = ["strace", "-qq", "-o", "/dev/null", "-p", str(server.process.pid), "-e", "trace=none"]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    try:
        _, told = process.communicate(timeout=1)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.communicate()
        return ""
    return f"{UNTRIED}strace may not attach to a running process: {told.strip()}"


@contextlib.contextmanager
def injected(server: Served, data: Path, call: str, what: str) -> Iterator[None]:
    """System calls of a running server on its database fail during the block."""
    files = [f"-P{data / db.FILE_NAME}{end}" for end in ("", "-wal")]
    told = ["-e", f"trace={call}", "-e", f"inject={what}"]
    line = ["strace", "-f", "-qq", "-o", "/dev/null", "-p", str(server.process.pid), *files, *told]
    tasks = Path(f"/proc/{server.process.pid}/task")
    with subprocess.Popen(line, stderr=subprocess.PIPE) as process:

        def is_attached() -> bool:
            assert process.poll() is None, process.communicate()[1]
            traced = [re.search(r"^TracerPid:\t(\d+)", status.read_text(), re.M) for status in tasks.glob("*/status")]
            return all(found and int(found[1]) == process.pid for found in traced)

        try:
            until(is_attached, "strace does not attach")
            yield
        finally:
            process.terminate()  # then it lets go of the server
            process.wait()


def endure_errors(crew: Crew, server: Served, call: str, what: str) -> Counter[int]:
    """Write and read while calls fail, and see that all goes on when they no longer do; the statuses of the reads."""
    reads_fail = call == READ_FAILS[0]
    readers = Readers(crew, server, frozenset([200, 503] if reads_fail else [200]))
    with crew.at_work(server), readers.at_work():
        with injected(server, crew.data, call, what):
            time.sleep(0.6)
            assert server.call("GET", "/readyz").status in (200, 503)
            assert server.call("GET", "/healthz").status == 200
        until(everybody_writes(crew), "when the disk is well again, somebody still cannot write")
        until_ready(server)
        readers.allowed = frozenset([200])
        before = readers.read
        until(lambda: readers.read > before + 20 or bool(readers.faults), "nobody reads when the disk is well again")
    assert server.process.poll() is None
    return readers.statuses


def errors_at_start(folder: Path, most: int) -> Figure:
    """Calls fail from the first on: the service starts all the same, or says in one line why it does not."""
    dice, crew, runs, refused_to_start = random.Random(seed()), Crew(folder / "data", seed()), 0, 0
    with serving(crew.data, *UNBOUNDED) as server:
        log_all_in(crew, server)
    for number in range(most):
        for call, error in ERRORS if most > 1 else [READ_FAILS]:
            first = number + 1
            when = dice.choice([f"{first}", f"{first}+5", f"{first}..{first + 40}"])
            try:
                run_with(crew, f"{call}:error={error}:when={when}", reads_fail=(call, error) == READ_FAILS)
            except AssertionError as fault:
                if not NOT_STARTED.search(str(fault)):
                    raise AssertionError(f"{call} {error} {when} (SEED={seed()}): {fault}") from fault
                refused_to_start += 1
            runs += 1
            with serving(crew.data, *UNBOUNDED) as server:  # on a disk that is well again
                until_ready(server)
                crew.expect_stored()
    return Figure(
        f"the n-th write, sync, truncation or read from the start on fails with EIO, ENOSPC or EROFS: {runs} runs",
        f"0 of {crew.tally['acknowledged']:,} acknowledged writes lost; {refused_to_start} starts refused in one line",
    )


def is_up(server: Served) -> bool:
    """Whether a server answers."""
    try:
        return server.call("GET", "/healthz").status == 200
    except OSError:
        return False


def run_with(crew: Crew, injected: str, *, reads_fail: bool) -> None:
    """A run of the service under errors of its disk. Raises AssertionError with its one line if it does not start."""
    files = [f"-P{crew.data / db.FILE_NAME}{end}" for end in ("", "-wal")]
    strace = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "--seccomp-bpf", *files, "-e", f"inject={injected}"]
    calls = injected.partition(":")[0]
    with serving(crew.data, *UNBOUNDED, program=[*strace, "-e", f"trace={calls}", *PROGRAM]) as server:
        until(lambda: server.process.poll() is not None or is_up(server), "does not answer")
        assert server.process.poll() is None, server.errors
        allowed = frozenset([200, 503] if reads_fail else [200])
        readers = Readers(crew, server, allowed)
        with crew.at_work(server), readers.at_work():
            time.sleep(0.6)
        assert server.process.poll() is None
