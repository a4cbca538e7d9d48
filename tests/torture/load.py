"""A saturated server: good clients beside slow, aborting, endless, silent and deaf ones, and SIGTERM amid all of it.

Lasts `TORTURE_SECONDS`, half an hour by itself. Run as a program, this module is the hostile clients.
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

from tests.conftest import PASSWORD
from tests.serving import ROOT, SESSION, Served, ask, chat, fill, serving
from tests.torture import Figure

MESSAGES = f"/api/v1/chats/{SESSION}/messages"
READERS, WRITERS = 6, 2
HOSTILE = IDLE, SLOW, DRIPPING, ENDLESS, DEAF, ABORTING, GARBLED = 3_000, 200, 50, 4, 50, 4, 2
MIB = 1024 * 1024


class Good(threading.Thread):
    """A client that asks and asks, until the server takes no more connections.

    Without pauses it keeps its connection; with them it does not, since a server may close what is idle at any time.
    """

    pause = 0.0  # seconds

    def __init__(self, server: Served, token: str) -> None:
        super().__init__(daemon=True)
        self.server, self.token = server, token
        self.answered: list[tuple[float, float]] = []  # when, and after how many seconds
        self.outcomes: Counter[str] = Counter()
        self.is_over = False

    def requests(self) -> Iterator[tuple[str, str, Any, int]]:
        """Method, path, body and the status that is expected."""
        while True:
            yield "GET", f"{MESSAGES}?limit=20", None, 200

    def run(self) -> None:
        connection = self.server.connect()
        for method, path, body, expected in self.requests():
            try:
                if connection.sock is None:
                    connection.connect()
            except OSError as error:
                self.outcomes["refused" if self.is_over else f"refused: {error!r}"] += 1  # before anything was sent
                if self.is_over:
                    break
                continue
            begun = time.monotonic()
            try:
                status = ask(connection, method, path, body, self.token).status
                self.outcomes["answered" if status == expected else f"answered with {status}"] += 1
                self.answered.append((begun, time.monotonic() - begun))
            except (OSError, http.client.HTTPException) as error:
                self.outcomes[f"lost: {error!r}"] += 1
                connection.close()
            if self.pause:
                connection.close()
                time.sleep(self.pause)
        connection.close()


class Writer(Good):
    """Sends messages, a few every second."""

    pause = 0.2

    def requests(self) -> Iterator[tuple[str, str, Any, int]]:
        while True:
            yield "POST", MESSAGES, {"content": {"text": "What is new?"}}, 201


class Visitor(Good):
    """Logs in now and then."""

    pause = 1.0

    def requests(self) -> Iterator[tuple[str, str, Any, int]]:
        while True:
            yield "POST", "/api/v1/auth/login", {"email": "alice@example.com", "password": PASSWORD}, 200


class Waiter(Good):
    """Waits for what is new."""

    pause = 0.2

    def requests(self) -> Iterator[tuple[str, str, Any, int]]:
        after = self.server.call("GET", "/api/v1/updates", token=self.token).data["after"]
        while True:
            yield "GET", f"/api/v1/updates?wait=5&after={after}", None, 200


class Seen:
    """The server's processes as they were from time to time."""

    def __init__(self, server: Served, data: Path) -> None:
        self.processes, self.data = server.workers, data
        self.memory: list[list[float]] = []  # MiB of each process
        self.descriptors: list[list[int]] = []
        self.wal: list[int] = []  # bytes

    def look(self) -> None:
        self.memory.append([resident(process) for process in self.processes])
        self.descriptors.append([sum(1 for _ in Path(f"/proc/{process}/fd").iterdir()) for process in self.processes])
        with contextlib.suppress(FileNotFoundError):
            self.wal.append((self.data / "service.db-wal").stat().st_size)

    def thirds(self, rows: list[list[Any]]) -> list[tuple[float, float]]:
        """The median of each process in the first third and in the last."""
        part = max(1, len(rows) // 3)
        return [
            (statistics.median(column[:part]), statistics.median(column[-part:])) for column in zip(*rows, strict=True)
        ]


def resident(process: int) -> float:
    """MiB of memory."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize() / MIB


def run(quick: bool) -> Iterator[Figure]:
    """Good clients alone, then beside the hostile ones, then SIGTERM."""
    seconds = float(os.environ.get("TORTURE_SECONDS", 20 if quick else 1_800))
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        data = Path(folder, "data")
        fill(data, chat(30))
        server = stack.enter_context(serving(data, "--workers", "2", "--log-level", "warning"))
        token = server.log_in()
        people: list[Good] = [Visitor(server, token), *(Waiter(server, token) for _ in range(4))]
        people += [Good(server, token) for _ in range(READERS)] + [Writer(server, token) for _ in range(WRITERS)]
        begun = time.monotonic()
        for person in people:
            person.start()
        time.sleep(min(60.0, seconds / 5))
        hostile = stack.enter_context(hostilities(server, token))
        besieged = time.monotonic()
        seen = Seen(server, data)
        while time.monotonic() - begun < seconds:
            time.sleep(1)
            seen.look()
        assert server.workers == seen.processes, f"workers died: {server.errors[-2000:]}"
        for person in people:
            person.is_over = True
        ended = time.monotonic()
        assert server.stop() == 0, server.errors[-2000:]
        took = time.monotonic() - ended
        for person in people:
            person.join(60)
        assert hostile.poll() is None, "the hostile clients gave up"
        log = server.errors
        with serving(data) as again:
            kept = again.call("GET", f"{MESSAGES}?limit=1", token=token).meta["total"] - 30
    yield from figures(people, besieged, ended, seen)
    outcomes = sum((person.outcomes for person in people), Counter[str]())
    assert set(outcomes) == {"answered", "refused"}, outcomes
    sent = sum(person.outcomes["answered"] for person in people if isinstance(person, Writer))
    assert kept == sent, f"{sent} messages were answered, {kept} are there"
    yield Figure(
        "SIGTERM under load loses no answered request, and no sent one", f"0 of {outcomes.total()}; {took:.1f} s"
    )
    assert "Traceback" not in log, log[-4000:]
    yield Figure("The log of warnings stays small", f"{len(log)} bytes in {seconds / 60:.1f} min")


def figures(people: list[Good], besieged: float, ended: float, seen: Seen) -> Iterator[Figure]:
    """What was seen until the end."""
    quick_ones = [person for person in people if not isinstance(person, Waiter | Visitor)]
    taken = [pair for person in quick_ones for pair in person.answered if pair[0] < ended]
    alone = [took for begun, took in taken if begun < besieged]
    beside = [took for begun, took in taken if begun >= besieged]
    assert min(len(alone), len(beside)) > 20, "next to nothing was answered"
    yield Figure("Good clients alone", told(alone))
    yield Figure(f"Good clients beside {IDLE} silent and {sum(HOSTILE) - IDLE} hostile ones", told(beside))
    assert percentile(beside, 99) < 15, "good clients wait for long"
    for number, (first, last) in enumerate(seen.thirds(seen.memory)):
        yield Figure(f"Memory of worker {number + 1}, first and last third", f"{first:.0f} MiB, {last:.0f} MiB")
        assert last < first * 1.15 + 24, "memory grows"
    open_ones = [sum(row) for row in seen.descriptors]
    first, last = seen.thirds([[count] for count in open_ones])[0]
    yield Figure("Descriptors of all workers, first and last third", f"{first:.0f}, {last:.0f}; most {max(open_ones)}")
    assert last < sum(HOSTILE) + 500, "descriptors leak"
    if seen.wal:
        yield Figure("Write-ahead log at most", f"{max(seen.wal) / MIB:.0f} MiB")
        assert max(seen.wal) < 256 * MIB


def told(seconds: list[float]) -> str:
    """How many requests there were, and how long they took."""
    middle, slow = percentile(seconds, 50) * 1000, percentile(seconds, 99) * 1000
    return f"{len(seconds)} requests, p50 {middle:.0f} ms, p99 {slow:.0f} ms, slowest {max(seconds) * 1000:.0f} ms"


def percentile(values: list[float], rank: int) -> float:
    return statistics.quantiles(values, n=100)[rank - 1]


@contextlib.contextmanager
def hostilities(server: Served, token: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The hostile clients, in a process of their own, until the end of the block; they end with this process, too."""
    line = [sys.executable, "-m", "tests.torture.load", server.host, str(server.port), token]
    with subprocess.Popen(line, cwd=ROOT, stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


class Hostile:
    """Clients that no server deserves, all in one thread."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self.address = host, port
        self.tasks: list[asyncio.Task[None]] = []
        self.page = f"GET {MESSAGES}?limit=100 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n".encode()

    async def run(self) -> None:
        """Be a nuisance until standard input ends."""
        kinds = (self.idle, self.slow, self.dripping, self.endless, self.deaf, self.aborting, self.garbled)
        for kind, count in zip(kinds, HOSTILE, strict=True):
            self.tasks += [asyncio.create_task(self.again_and_again(kind)) for _ in range(count)]
        await asyncio.to_thread(sys.stdin.buffer.read)
        os._exit(0)

    async def again_and_again(self, kind: Callable[[socket.socket], Awaitable[None]]) -> None:
        await asyncio.sleep(random.random() * 2)
        while True:
            with contextlib.suppress(OSError, TimeoutError), socket.socket() as connection:
                connection.setblocking(False)
                if kind == self.deaf:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                await asyncio.wait_for(asyncio.get_running_loop().sock_connect(connection, self.address), 10)
                await kind(connection)
            await asyncio.sleep(0.1)

    async def send(self, connection: socket.socket, content: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(connection, content)

    async def idle(self, connection: socket.socket) -> None:
        """Says nothing."""
        await asyncio.get_running_loop().sock_recv(connection, 1)

    async def slow(self, connection: socket.socket) -> None:
        """A header that takes for ever (slowloris)."""
        await self.send(connection, b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: ")
        while True:
            await self.send(connection, b"a")
            await asyncio.sleep(1)

    async def dripping(self, connection: socket.socket) -> None:
        """A body that takes for ever."""
        await self.send(connection, b"POST /api/v1/auth/login HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
        while True:
            await self.send(connection, b"a" * 100)
            await asyncio.sleep(1)

    async def endless(self, connection: socket.socket) -> None:
        """A body that does not end, and comes fast."""
        await self.send(
            connection, b"POST /api/v1/auth/login HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        while True:
            await self.send(connection, b"10000\r\n" + bytes(65_536) + b"\r\n")
            await asyncio.sleep(0.05)

    async def deaf(self, connection: socket.socket) -> None:
        """Asks for very much and reads nothing."""
        await asyncio.wait_for(self.send(connection, self.page * 100), 45)
        await asyncio.sleep(45)

    async def aborting(self, connection: socket.socket) -> None:
        """Asks, and is gone before the answer."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.send(connection, self.page)
        await asyncio.sleep(random.random() * 0.02)

    async def garbled(self, connection: socket.socket) -> None:
        """What is no HTTP."""
        await self.send(connection, random.randbytes(random.randrange(2_000)) + b"\r\n\r\n")
        await asyncio.wait_for(asyncio.get_running_loop().sock_recv(connection, 1), 5)


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(Hostile(sys.argv[1], int(sys.argv[2]), sys.argv[3]).run())
