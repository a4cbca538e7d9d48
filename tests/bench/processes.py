"""Servers as processes: start, wait, end, and measure processor time and memory."""

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
TIMEOUT = 60  # seconds, for the start of a server and for responses


class Response(NamedTuple):
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes


class Server(NamedTuple):
    """A running server."""

    pid: int
    port: int

    def send(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Response:
        """Send a request on a new connection."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)) as connection:
            connection.request(method, path, body or None, dict(headers or {}))
            response = connection.getresponse()
            return Response(
                response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
            )


def free_port() -> int:
    """Return a free port of the loopback address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def running(command: Sequence[Any], folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run a server during the block; `{port}` in its command line becomes a free port."""
    port = free_port()
    command = [str(word).replace("{port}", str(port)) for word in command]
    with (folder / f"{port}.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=clean_environment(environment), stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_for_port(process, port, folder / f"{port}.log")
        yield Server(process.pid, port)
    finally:
        end(process)


def clean_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment without variables that affect the service or Python."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("CX_", "PYTHON", "SHIV_"))}
    return {**inherited, **(more or {})}


def wait_for_port(process: "subprocess.Popen[bytes]", port: int, log: Path | None = None) -> None:
    """Wait until a process listens on a port."""
    start = time.monotonic()
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        output = log.read_text(errors="replace")[-2000:] if log else ""
        assert process.poll() is None and time.monotonic() - start < TIMEOUT, (
            f"{process.args!r} does not respond: {output}"
        )
        time.sleep(0.005)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and its descendants."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(15)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def descendants(pid: int) -> list[int]:
    """Return a process and its descendants."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process and its descendants in seconds, in user and kernel mode.

    Includes descendants that have ended and were waited for. The resolution is 1/100 s per process.
    """
    ticks = 0
    for process in descendants(pid):
        with contextlib.suppress(OSError):
            # The name of the program, in parentheses, may contain spaces.
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / TICK


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("VmRSS:"))
    return int(kilobytes) * 1024
