"""A saturated server: ordinary clients beside slow, idle, endless, aborting and invalid ones, then SIGTERM.

Takes `TORTURE_SECONDS`, by default half an hour. Run as a program, this module is the hostile clients.
"""

import asyncio
import contextlib
import http.client
import os
import random
import resource
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support.passwords import PASSWORD
from tests.support.paths import ROOT
from tests.support.server_process import SESSION, Served, chat, fill, send_request, serving
from tests.torture import Figure

MESSAGES = f"/api/v1/chats/{SESSION}/messages"
READERS, WRITERS = 6, 2
HOSTILE = IDLE, SLOW_HEADER, SLOW_BODY, ENDLESS, NOT_READING, ABORTING, INVALID = 3_000, 200, 50, 4, 50, 4, 2
MIB = 1024 * 1024


class Client(threading.Thread):
    """An ordinary client that sends requests until the server accepts no more connections.

    Without pauses it keeps its connection. With pauses it does not, since a server may close idle connections.
    """

    pause = 0.0  # seconds

    def __init__(self, server: Served, token: str) -> None:
        super().__init__(daemon=True)
        self.server, self.token = server, token
        self.completed: list[tuple[float, float]] = []  # start and duration of each request
        self.outcomes: Counter[str] = Counter()
        self.is_stopping = False

    def requests(self) -> Iterator[tuple[str, str, Any, int]]:
        """Yield method, path, body and expected status."""
        while True:
            yield "GET", f"{MESSAGES}?limit=20", None, 200

    def run(self) -> None:
        connection = self.server.connect()
        for method, path, body, expected in self.requests():
            try:
                if connection.sock is None:
                    connection.connect()
            except OSError as error:
                self.outcomes["refused" if self.is_stopping else f"refused: {error!r}"] += (
                    1  # before the request was sent
                )
                if self.is_stopping:
                    break
                continue
            start = time.monotonic()
            try:
                status = send_request(connection, method, path, body, self.token).status
                self.outcomes["completed" if status == expected else f"completed with {status}"] += 1
                self.completed.append((start, time.monotonic() - start))
            except (OSError, http.client.HTTPException) as error:
                self.outcomes[f"lost: {error!r}"] += 1
                connection.close()
            if self.pause:
                connection.close()
                time.sleep(self.pause)
        connection.close()


class MessageClient(Client):
    """Sends a few messages per second."""

    pause = 0.2

    def requests(self) -> Iterator[tuple[str, str, Any, int]]:
        while True:
            yield "POST", MESSAGES, {"content": {"text": "What is new?"}}, 201


class LoginClient(Client):
    """Logs in repeatedly."""

    pause = 1.0

    def requests(self) -> Iterator[tuple[str, str, Any, int]]:
        while True:
            yield "POST", "/api/v1/auth/login", {"email": "alice@example.com", "password": PASSWORD}, 200


class LongPollClient(Client):
    """Sends long polls."""

    pause = 0.2

    def requests(self) -> Iterator[tuple[str, str, Any, int]]:
        after = self.server.call("GET", "/api/v1/updates", token=self.token).data["after"]
        while True:
            yield "GET", f"/api/v1/updates?wait=5&after={after}", None, 200


class Samples:
    """Samples of the processes of the server."""

    def __init__(self, server: Served, data: Path) -> None:
        self.processes, self.data = server.workers, data
        self.memory: list[list[float]] = []  # MiB of each process
        self.descriptors: list[list[int]] = []
        self.wal: list[int] = []  # bytes

    def sample(self) -> None:
        self.memory.append([resident(process) for process in self.processes])
        self.descriptors.append([sum(1 for _ in Path(f"/proc/{process}/fd").iterdir()) for process in self.processes])
        with contextlib.suppress(FileNotFoundError):
            self.wal.append((self.data / "service.db-wal").stat().st_size)

    def thirds(self, rows: list[list[Any]]) -> list[tuple[float, float]]:
        """Return the medians of each process in the first and the last third."""
        part = max(1, len(rows) // 3)
        return [
            (statistics.median(column[:part]), statistics.median(column[-part:])) for column in zip(*rows, strict=True)
        ]


def resident(process: int) -> float:
    """Return the memory of a process in MiB."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize() / MIB


def run(quick: bool) -> Iterator[Figure]:
    """Run ordinary clients alone, then beside hostile ones, then send SIGTERM."""
    seconds = float(os.environ.get("TORTURE_SECONDS", 20 if quick else 1_800))
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        data = Path(folder, "data")
        fill(data, chat(30))
        server = stack.enter_context(serving(data, "--workers", "2", "--log-level", "warning"))
        token = server.log_in()
        clients: list[Client] = [LoginClient(server, token), *(LongPollClient(server, token) for _ in range(4))]
        clients += [Client(server, token) for _ in range(READERS)] + [
            MessageClient(server, token) for _ in range(WRITERS)
        ]
        start = time.monotonic()
        for client in clients:
            client.start()
        time.sleep(min(60.0, seconds / 5))
        hostile = stack.enter_context(hostile_clients(server, token))
        hostile_start = time.monotonic()
        samples = Samples(server, data)
        while time.monotonic() - start < seconds:
            time.sleep(1)
            samples.sample()
        assert server.workers == samples.processes, f"workers died: {server.errors[-2000:]}"
        for client in clients:
            client.is_stopping = True
        ended = time.monotonic()
        assert server.stop() == 0, server.errors[-2000:]
        stopping = time.monotonic() - ended
        for client in clients:
            client.join(60)
        assert hostile.poll() is None, "the hostile clients ended"
        log = server.errors
        with serving(data) as restarted:
            stored = restarted.call("GET", f"{MESSAGES}?limit=1", token=token).meta["total"] - 30
    yield from figures(clients, hostile_start, ended, samples)
    outcomes = sum((client.outcomes for client in clients), Counter[str]())
    assert set(outcomes) == {"completed", "refused"}, outcomes
    sent = sum(client.outcomes["completed"] for client in clients if isinstance(client, MessageClient))
    assert stored == sent, f"{sent} messages were acknowledged, {stored} are stored"
    yield Figure("SIGTERM under load loses no request", f"0 of {outcomes.total()}; {stopping:.1f} s")
    assert "Traceback" not in log, log[-4000:]
    yield Figure("The log at level warning stays small", f"{len(log)} bytes in {seconds / 60:.1f} min")


def figures(clients: list[Client], hostile_start: float, ended: float, samples: Samples) -> Iterator[Figure]:
    """Yield the results."""
    measured = [client for client in clients if not isinstance(client, LongPollClient | LoginClient)]
    requests_done = [pair for client in measured for pair in client.completed if pair[0] < ended]
    alone = [duration for start, duration in requests_done if start < hostile_start]
    under_load = [duration for start, duration in requests_done if start >= hostile_start]
    assert min(len(alone), len(under_load)) > 20, "almost no responses"
    yield Figure("Ordinary clients alone", summary(alone))
    yield Figure(f"Ordinary clients beside {IDLE} idle and {sum(HOSTILE) - IDLE} hostile ones", summary(under_load))
    assert percentile(under_load, 99) < 15, "ordinary clients wait too long"
    for number, (first, last) in enumerate(samples.thirds(samples.memory)):
        yield Figure(f"Memory of worker {number + 1}, first and last third", f"{first:.0f} MiB, {last:.0f} MiB")
        assert last < first * 1.15 + 24, "memory grows"
    open_ones = [sum(row) for row in samples.descriptors]
    first, last = samples.thirds([[count] for count in open_ones])[0]
    yield Figure("Descriptors of all workers, first and last third", f"{first:.0f}, {last:.0f}; most {max(open_ones)}")
    assert last < sum(HOSTILE) + 500, "descriptors leak"
    if samples.wal:
        yield Figure("Write-ahead log at most", f"{max(samples.wal) / MIB:.0f} MiB")
        assert max(samples.wal) < 256 * MIB


def summary(seconds: list[float]) -> str:
    """Return the number of requests and their durations as text."""
    middle, slow = percentile(seconds, 50) * 1000, percentile(seconds, 99) * 1000
    return f"{len(seconds)} requests, p50 {middle:.0f} ms, p99 {slow:.0f} ms, slowest {max(seconds) * 1000:.0f} ms"


def percentile(values: list[float], rank: int) -> float:
    return statistics.quantiles(values, n=100)[rank - 1]


@contextlib.contextmanager
def hostile_clients(server: Served, token: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the hostile clients in another process during the block. They also end with this process."""
    line = [sys.executable, "-m", "tests.torture.load", server.host, str(server.port), token]
    with subprocess.Popen(line, cwd=ROOT, stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


class HostileClients:
    """The hostile clients, all in one thread."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self.address = host, port
        self.tasks: list[asyncio.Task[None]] = []
        self.page = f"GET {MESSAGES}?limit=100 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n".encode()

    async def run(self) -> None:
        """Run until standard input ends."""
        kinds = (
            self.idle,
            self.slow_header,
            self.slow_body,
            self.endless,
            self.not_reading,
            self.aborting,
            self.invalid,
        )
        for kind, count in zip(kinds, HOSTILE, strict=True):
            self.tasks += [asyncio.create_task(self.run_repeatedly(kind)) for _ in range(count)]
        await asyncio.to_thread(sys.stdin.buffer.read)
        os._exit(0)

    async def run_repeatedly(self, kind: Callable[[socket.socket], Awaitable[None]]) -> None:
        await asyncio.sleep(random.random() * 2)
        while True:
            with contextlib.suppress(OSError, TimeoutError), socket.socket() as connection:
                connection.setblocking(False)
                if kind == self.not_reading:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                await asyncio.wait_for(asyncio.get_running_loop().sock_connect(connection, self.address), 10)
                await kind(connection)
            await asyncio.sleep(0.1)

    async def send(self, connection: socket.socket, content: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(connection, content)

    async def idle(self, connection: socket.socket) -> None:
        """Send nothing."""
        await asyncio.get_running_loop().sock_recv(connection, 1)

    async def slow_header(self, connection: socket.socket) -> None:
        """Send a header slowly (slowloris)."""
        await self.send(connection, b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: ")
        while True:
            await self.send(connection, b"a")
            await asyncio.sleep(1)

    async def slow_body(self, connection: socket.socket) -> None:
        """Send a body slowly."""
        await self.send(connection, b"POST /api/v1/auth/login HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
        while True:
            await self.send(connection, b"a" * 100)
            await asyncio.sleep(1)

    async def endless(self, connection: socket.socket) -> None:
        """Send an endless body fast."""
        await self.send(
            connection, b"POST /api/v1/auth/login HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        while True:
            await self.send(connection, b"10000\r\n" + bytes(65_536) + b"\r\n")
            await asyncio.sleep(0.05)

    async def not_reading(self, connection: socket.socket) -> None:
        """Request much data, and reads nothing."""
        await asyncio.wait_for(self.send(connection, self.page * 100), 45)
        await asyncio.sleep(45)

    async def aborting(self, connection: socket.socket) -> None:
        """Abort the connection before the response."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.send(connection, self.page)
        await asyncio.sleep(random.random() * 0.02)

    async def invalid(self, connection: socket.socket) -> None:
        """Send invalid HTTP."""
        await self.send(connection, random.randbytes(random.randrange(2_000)) + b"\r\n\r\n")
        await asyncio.wait_for(asyncio.get_running_loop().sock_recv(connection, 1), 5)


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(HostileClients(sys.argv[1], int(sys.argv[2]), sys.argv[3]).run())
