"""A power cut, simulated: what a disk may hold at any moment of a run, of which every write and sync was recorded.

`strace` records what the service writes, when it waits for the disk, and what it answers. At a random moment the power
goes: what was synced is there; of what was not, each write is there, is missing, or is there in some sectors of 512
bytes, whatever the order in which they came. A new file may be missing until its folder was synced. The disk keeps what
it says that it keeps, and a sector is written whole or not at all.

The research behind this: SQLite's test6.c, and Jepsen's lazyfs.
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
_ANSWER = re.compile(rb"HTTP/1\.1 2\d\d .*?\r\nX-Request-ID: ([\w.]+)\r\n", re.S)


def recorder(trace: Path) -> list[str]:
    """The beginning of a command line that records what the rest of it does."""
    told = ["-D", "-f", "-y", "-xx", "-s", "100000", "--seccomp-bpf", "-e", f"trace={CALLS}", "-e", "signal=none"]
    return ["strace", *told, "-o", str(trace)]


class Step(NamedTuple):
    """Something that happened: a call on a file, or an answer that left."""

    call: str  # write, truncate, create, sync, or answer
    path: str = ""
    offset: int = 0
    data: bytes = b""
    since: int = 0  # of a sync, the number of steps before it began: what came later it may not have covered


def steps_of(trace: Path, folder: Path) -> list[Step]:
    """What happened to the files of a folder, and which requests were answered, in order."""
    found: list[Step] = []
    begun: dict[str, tuple[str, int]] = {}  # of each thread, the sync that it waits for
    with trace.open() as lines:
        for line in lines:
            match = _LINE.match(line)
            if not match:
                continue
            thread, call, rest = match.groups()
            if call in ("fsync", "fdatasync"):
                if "resumed>" not in rest:
                    path = _unhex(_TARGET.match(rest)[1]).decode()  # type: ignore[index]
                    begun[thread] = (path, len(found))
                if re.search(r"= 0$", rest):
                    path, since = begun.pop(thread)
                    found.append(Step("sync", path, since=since))
            elif "resumed>" not in rest:
                found += [step for step in _step(call, rest) if step.path.startswith(str(folder)) or not step.path]
    return found


def _step(call: str, rest: str) -> Iterator[Step]:
    """The step that a call is when it begins, if it is one."""
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
    elif call == "sendto" and (answer := _ANSWER.match(_unhex((re.match(r', "([^"]*)"', more) or ["", ""])[1]))):
        yield Step("answer", data=answer[1])


def _unhex(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


class _File:
    """A file on the disk: what is surely there, and what may be."""

    def __init__(self, content: bytes = b"", is_linked: bool = False) -> None:
        self.content, self.is_linked = bytearray(content), is_linked
        self.pending: list[tuple[int, Step]] = []  # with the number of the step

    def sync(self, since: int) -> None:
        """What came before `since` is surely there."""
        for _, step in (entry for entry in self.pending if entry[0] < since):
            apply(self.content, step)
        self.pending = [entry for entry in self.pending if entry[0] >= since]

    def survivor(self, dice: random.Random) -> bytes | None:
        """What a power cut leaves of it; None if it is not there."""
        if not self.is_linked and dice.random() < 0.5:
            return None
        left, mood = bytearray(self.content), dice.random()
        for _, step in self.pending:
            fate = dice.random() if mood < 0.6 else 0.0 if mood < 0.8 else 1.0  # some of it, nothing, or all
            if fate > 0.66:
                apply(left, step)
            elif fate > 0.33 and step.call == "write":
                for start in range(0, len(step.data), SECTOR):
                    if dice.random() < 0.5:
                        part = step.data[start : start + SECTOR]
                        apply(left, step._replace(offset=step.offset + start, data=part))
        return bytes(left)


def apply(content: bytearray, step: Step) -> None:
    """Do to the content of a file what a step does."""
    end = step.offset + len(step.data)
    if step.call == "truncate":
        del content[step.offset :]
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    content[step.offset : end] = step.data


def cuts(
    steps: list[Step], before: dict[str, bytes], number: int, dice: random.Random
) -> Iterator[tuple[dict[str, bytes], set[str]]]:
    """What power cuts at random moments leave: files by name, and which requests had been answered until then.

    `before` are the files, by path, when the record begins; they are surely there.
    """
    moments = sorted(dice.randrange(1, len(steps)) for _ in range(number))
    files = {path: _File(content, is_linked=True) for path, content in before.items()}
    answered: set[str] = set()
    for index, step in enumerate(steps):
        while moments and moments[0] == index:
            moments.pop(0)
            left = {Path(path).name: file.survivor(dice) for path, file in files.items()}
            yield {name: content for name, content in left.items() if content is not None}, set(answered)
        if step.call == "answer":
            answered.add(step.data.decode())
        elif step.call == "sync":
            for path, file in files.items():
                file.is_linked |= str(Path(path).parent) == step.path
            if step.path in files:
                files[step.path].sync(step.since)
        elif step.call == "create":
            files.setdefault(step.path, _File())
        elif step.call in ("write", "truncate"):
            files.setdefault(step.path, _File()).pending.append((index, step))
