"""Servers as processes of their own: started, waited for, always ended, and asked what they cost."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

TICK = os.sysconf("SC_CLK_TCK")  # of the times in /proc, per second
PATIENCE = 60  # seconds until a server must answer


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes


class Server(NamedTuple):
    """A running server."""

    pid: int
    port: int

    def ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        """One request on a connection of its own."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            connection.request(method, path, body or None, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())


def free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def running(line: Sequence[Any], folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A server until the end of the block; `{port}` in its command line becomes a free port."""
    port = free_port()
    line = [str(word).replace("{port}", str(port)) for word in line]
    with (folder / f"{port}.log").open("wb") as log:
        process = subprocess.Popen(
            line, cwd=folder, env=clean(environment), stdout=log, stderr=log, start_new_session=True
        )
    try:
        await_port(process, port, folder / f"{port}.log")
        yield Server(process.pid, port)
    finally:
        end(process)


def clean(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Our environment without what would change a service or a Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CX_", "PYTHON", "SHIV_"))}
    return {**kept, **(more or {})}


def await_port(process: "subprocess.Popen[bytes]", port: int, log: Path | None = None) -> None:
    """Wait until somebody listens."""
    begun = time.monotonic()
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        said = log.read_text(errors="replace")[-2000:] if log else ""
        assert process.poll() is None and time.monotonic() - begun < PATIENCE, f"{process.args} does not answer: {said}"
        time.sleep(0.005)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(15)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def processor_seconds(pid: int) -> float:
    """The time that processors have worked for a process and all that descend from it, in user and kernel mode.

    Of those that have ended too, once their parents have noticed. In steps of 1/100 s for each process.
    """
    ticks = 0
    for process in tree(pid):
        with contextlib.suppress(OSError):
            # The name of the program, in parentheses, may hold blanks.
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / TICK


def resident_bytes(pid: int) -> int:
    """The memory that one process has at hand, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("VmRSS:"))
    return int(kilobytes) * 1024
