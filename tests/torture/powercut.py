"""A simulator of power failures: the possible contents of a disk at any time of a recorded run.

`strace` records the writes, syncs and responses of the service. After a power failure at a random time, all synced
writes are there; each of the others is there, is missing, or is there in some sectors of 512 bytes, in any order. A new
file may be missing until its folder was synced. It is assumed that the disk keeps what it has confirmed, and that a
sector is written completely or not at all.

Based on SQLite's test6.c and Jepsen's lazyfs.
"""

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SECTOR = 512
CALLS = "openat,pwrite64,fsync,fdatasync,ftruncate,sendto"

_LINE = re.compile(r"(\d+) +(?:<\.\.\. )?(\w+)(.*)")
_TARGET = re.compile(r"\((?:AT_FDCWD(?:<[^>]*>)?, )?(?:(?:\d+)<([^>]*)>|\"([^\"]*)\")(.*)")
_RESPONSE = re.compile(rb"HTTP/1\.1 2\d\d .*?\r\nX-Request-ID: ([\w.]+)\r\n", re.S)


def recorder(trace: Path) -> list[str]:
    """Return the beginning of a command line that records the system calls of the rest."""
    options = ["-D", "-f", "-y", "-xx", "-s", "100000", "--seccomp-bpf", "-e", f"trace={CALLS}", "-e", "signal=none"]
    return ["strace", *options, "-o", str(trace)]


class Step(NamedTuple):
    """A system call on a file, or a response."""

    call: str  # write, truncate, create, sync or response
    path: str = ""
    offset: int = 0
    data: bytes = b""
    since: int = 0  # of a sync, the number of steps before it began; later ones may not be covered


def steps_of(trace: Path, folder: Path) -> list[Step]:
    """Return the calls on files of a folder, and the responses, in order."""
    found: list[Step] = []
    start: dict[str, tuple[str, int]] = {}  # by thread, the sync in progress
    with trace.open() as lines:
        for line in lines:
            match = _LINE.match(line)
            if not match:
                continue
            thread, call, rest = match.groups()
            if call in ("fsync", "fdatasync"):
                if "resumed>" not in rest:
                    path = _unhex(_TARGET.match(rest)[1]).decode()  # type: ignore[index]
                    start[thread] = (path, len(found))
                if re.search(r"= 0$", rest):
                    path, since = start.pop(thread)
                    found.append(Step("sync", path, since=since))
            elif "resumed>" not in rest:
                found += [step for step in _step(call, rest) if step.path.startswith(str(folder)) or not step.path]
    return found


def _step(call: str, rest: str) -> Iterator[Step]:
    """Yield the step of a system call at its start, if it is one."""
    match = _TARGET.match(rest)
    if not match:
        return
    path, more = _unhex(match[1] or match[2] or "").decode("latin-1"), match[3]
    if call == "pwrite64":
        text, offset = re.match(r', "([^"]*)", \d+, (\d+)', more).groups()  # type: ignore[union-attr]
        yield Step("write", path, int(offset), _unhex(text))
    elif call == "ftruncate":
        yield Step("truncate", path, int(re.match(r", (\d+)", more)[1]))  # type: ignore[index]
    elif call == "openat" and "O_CREAT" in more:
        yield Step("create", path)
    elif call == "sendto" and (response := _RESPONSE.match(_unhex((re.match(r', "([^"]*)"', more) or ["", ""])[1]))):
        yield Step("response", data=response[1])


def _unhex(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


class _File:
    """A file on the disk: its synced content, and its pending steps."""

    def __init__(self, content: bytes = b"", is_linked: bool = False) -> None:
        self.content, self.is_linked = bytearray(content), is_linked
        self.pending: list[tuple[int, Step]] = []  # with the number of the step

    def sync(self, since: int) -> None:
        """Apply the pending steps before `since`."""
        for _, step in (entry for entry in self.pending if entry[0] < since):
            apply(self.content, step)
        self.pending = [entry for entry in self.pending if entry[0] >= since]

    def survivor(self, rng: random.Random) -> bytes | None:
        """Return the content after a power failure; None if the file is missing."""
        if not self.is_linked and rng.random() < 0.5:
            return None
        left, policy = bytearray(self.content), rng.random()
        for _, step in self.pending:
            outcome = rng.random() if policy < 0.6 else 0.0 if policy < 0.8 else 1.0  # some of the steps, none, or all
            if outcome > 0.66:
                apply(left, step)
            elif outcome > 0.33 and step.call == "write":
                for start in range(0, len(step.data), SECTOR):
                    if rng.random() < 0.5:
                        part = step.data[start : start + SECTOR]
                        apply(left, step._replace(offset=step.offset + start, data=part))
        return bytes(left)


def apply(content: bytearray, step: Step) -> None:
    """Apply a step to the content of a file."""
    end = step.offset + len(step.data)
    if step.call == "truncate":
        del content[step.offset :]
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    content[step.offset : end] = step.data


def cuts(
    steps: list[Step], before: dict[str, bytes], number: int, rng: random.Random
) -> Iterator[tuple[dict[str, bytes], set[str]]]:
    """Yield the files by name after power failures at random times, and the acknowledged requests.

    `before` are the synced files, by path, at the start of the record.
    """
    moments = sorted(rng.randrange(1, len(steps)) for _ in range(number))
    files = {path: _File(content, is_linked=True) for path, content in before.items()}
    acknowledged: set[str] = set()
    for index, step in enumerate(steps):
        while moments and moments[0] == index:
            moments.pop(0)
            left = {Path(path).name: file.survivor(rng) for path, file in files.items()}
            yield {name: content for name, content in left.items() if content is not None}, set(acknowledged)
        if step.call == "response":
            acknowledged.add(step.data.decode())
        elif step.call == "sync":
            for path, file in files.items():
                file.is_linked |= str(Path(path).parent) == step.path
            if step.path in files:
                files[step.path].sync(step.since)
        elif step.call == "create":
            files.setdefault(step.path, _File())
        elif step.call in ("write", "truncate"):
            files.setdefault(step.path, _File()).pending.append((index, step))
