"""The largest possible responses of all lists, sixteen at a time, to slow clients, and the effect on other clients.

Each list has the maximum size: the limits of the API if its rows are written through it, otherwise those of an import.
"""

import asyncio
import contextlib
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import app
from service import clock, db
from service.fields import compact_json
from service.models import Bot, ChatSession, DataShare, Event, Feedback, LoginSession, Message, Notification, User
from service.models.data_shares import ACTIVE_BYTES, ACTIVE_LIMIT
from service.models.logins import INSTALL_LIMIT
from service.models.messages import PIN_BYTES, PIN_LIMIT
from service.models.recompute import recompute
from tests.support.installation import settings_at
from tests.support.server_process import ALICE, APP, SESSION, Served, chat, fill, serving
from tests.torture import Figure

MIB = 1024 * 1024
CLIENTS = 16
RATE = 1_000_000  # bytes per second that a client reads
TICK = 0.05  # seconds between two of its reads
MAX_GROWTH = 150.0  # MiB of memory of all processes of the server
MAX_P99 = 0.1  # seconds, of another client
QUICK = ("messages", "data-shares", "pinned-messages", "page of texts", "page of pins", "page of data shares")
PINS, TEXTS = (f"00000000-0000-4000-8000-00000000000{number}" for number in (4, 5))
BYTES = f"[{','.join(['255'] * 64 * 1024)}]"  # the largest content of a message


def messages(session_id: str, number: int, **columns: Any) -> None:
    """Insert messages into a chat session of Alice."""
    common = {"chat_session_id": session_id, "owner_id": ALICE, "app_id": APP, "sender_id": ALICE}
    for _ in range(number):
        Message.insert(id=clock.ulid(), **common, **columns).execute()


def fill_lists(data: Path) -> None:
    """Give all lists of Alice their maximum size."""
    fill(data, chat(0))
    app.prepare(settings_at(data))
    for id in (PINS, TEXTS):
        ChatSession.create(id=id, app_id=APP, user_id=ALICE)
    text = "tulip " * 10_000
    with db.write():
        messages(SESSION, 200, content=BYTES, original_content=BYTES, plain_text="tulip", search_text="tulip")
        messages(TEXTS, 200, content=compact_json(list(text.encode())), plain_text=text, search_text=text)
        content = f"[{','.join(['255'] * (PIN_BYTES // PIN_LIMIT // 4 - 4))}]"
        messages(PINS, PIN_LIMIT, content=content, pinned_at=clock.timestamp())
        tools = json.dumps([f"{number:03}{'x' * 38}" for number in range(ACTIVE_BYTES // ACTIVE_LIMIT // 45)])
        own = {"user_id": ALICE}
        for number in range(ACTIVE_LIMIT):
            DataShare.create(**own, mcp_server_id=f"server {number}", allowed_tools=tools)
        for _ in range(1_000):
            Event.create(**own, title="x" * 200, starts_at=clock.timestamp(), notes="é" * 10_000)
        for _ in range(200):
            Notification.create(**own, payload=BYTES, body="é" * 10_000)
            Feedback.create(**own, description="é" * 10_000, device_info=BYTES[: 16 * 4096 - 1] + "]")
            Bot.create(app_id=APP, name="x", status="published", description="é" * 10_000, social_links=BYTES)
            LoginSession.create(**own, expires_at=clock.now() + clock.DAY, label="x" * 200)
        for number in range(INSTALL_LIMIT):
            install = {"kind": "client", "install_id": f"{number:0128}", "scopes": "chats " * 100}
            LoginSession.create(**own, **install, expires_at=clock.now() + clock.DAY, label="x" * 64)
    recompute([SESSION, PINS, TEXTS])
    assert User.get_by_id(ALICE)
    db.close_database()


def lists(feed: str) -> dict[str, str]:
    """Return the lists, with the request for the largest response of each."""
    return {
        "messages": f"/api/v1/chats/{SESSION}/messages?limit=200",
        "data-shares": "/api/v1/data-shares",
        "pinned-messages": f"/api/v1/chats/{PINS}/pinned-messages",
        "context": f"/api/v1/chats/{TEXTS}/context?limit=200",
        "search": "/api/v1/chats/search?q=tulip&limit=100",
        "chats": "/api/v1/chats?limit=200",
        "events": "/api/v1/events?limit=200",
        "events.ics": feed,
        "notifications": "/api/v1/notifications?limit=100",
        "feedback": "/api/v1/feedback?limit=200",
        "bots": f"/api/v1/bots?app_id={APP}&per_page=100",
        "sessions": "/api/v1/auth/sessions?limit=200",
        "installs": "/api/v1/users/me/installs",
    }


def pages() -> dict[str, str]:
    """Return the pages of the console that show such lists."""
    return {
        "page of a chat": f"/console/chats/{SESSION}",
        "page of texts": f"/console/chats/{TEXTS}",
        "page of pins": f"/console/chats/{PINS}",
        "page of a search": "/console/search?q=tulip",
        "page of events": "/console/events",
        "page of notifications": "/console/notifications",
        "page of feedback": "/console/feedback",
        "page of data shares": "/console/shares",
        "page of earlier data shares": "/console/shares?past=true",
        "page of bots": f"/console/bots?app_id={APP}",
        "page of logins": "/console/account",
        "page of command-line clients": "/console/account?clients=true",
    }


class Read(NamedTuple):
    """A response that was read slowly."""

    status: int
    size: int  # bytes of the received body
    length: int  # of the header Content-Length


async def read_slowly(server: Served, path: str, token: str) -> Read:
    """Send a request, and read RATE bytes of the response per second."""
    reader, writer = await asyncio.open_connection(server.host, server.port, limit=128 * 1024)
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    writer.write(request.encode())
    raw = await reader.readuntil(b"\r\n\r\n")
    status, length = int(raw[9:12]), int(re.findall(rb"Content-Length: (\d+)", raw)[0])
    size, start = 0, time.monotonic()
    with contextlib.suppress(ConnectionError):
        while part := await reader.read(int(RATE * TICK)):
            size += len(part)
            await asyncio.sleep(max(0.0, size / RATE - (time.monotonic() - start)))
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return Read(status, size, length)


async def read_all(server: Served, path: str, token: str) -> list[Read]:
    return await asyncio.gather(*(read_slowly(server, path, token) for _ in range(CLIENTS)))


def memory(server: Served) -> float:
    """Return the memory of all processes of the server in MiB."""
    statuses = (Path(f"/proc/{number}/status").read_text() for number in (server.process.pid, *server.workers))
    return sum(int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) for status in statuses) / 1024


class Watcher(threading.Thread):
    """Another client that requests its settings repeatedly, and samples the memory of the server."""

    def __init__(self, server: Served, token: str) -> None:
        super().__init__(daemon=True)
        self.server, self.token = server, token
        self.durations: list[float] = []
        self.peak = 0.0
        self.stopped = threading.Event()

    def run(self) -> None:
        connection = self.server.connect()
        while not self.stopped.wait(0.005):
            start = time.monotonic()
            connection.request("GET", "/api/v1/users/me/settings", headers={"Authorization": f"Bearer {self.token}"})
            response = connection.getresponse()
            response.read()
            assert response.status == 200
            self.durations.append(time.monotonic() - start)
            self.peak = max(self.peak, memory(self.server))
        connection.close()

    def stop(self) -> tuple[float, float]:
        """Return the 99th percentile of the durations in seconds, and the maximum memory in MiB."""
        self.stopped.set()
        self.join()
        return sorted(self.durations)[int(len(self.durations) * 0.99)], self.peak


def run(quick: bool) -> Iterator[Figure]:
    """Yield results. Raises AssertionError."""
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        fill_lists(data)
        for kind, workers in (("lists", 2), ("pages of the console", 2)):
            with serving(data, "--workers", str(workers)) as server:
                yield from _try(server, kind, quick)


def _try(server: Served, kind: str, quick: bool) -> Iterator[Figure]:
    token = server.log_in()
    feed = server.call("POST", "/api/v1/events/feed", {}, token).data["url"].partition("/api/")[2]
    found = lists(f"/api/{feed}") if kind == "lists" else pages()
    selected = {name: path for name, path in found.items() if name in QUICK or not quick}
    for _ in range(20):
        server.call("GET", "/api/v1/users/me/settings", token=token)
    alone = Watcher(server, token)
    alone.start()
    time.sleep(2)
    p99_alone, before = alone.stop()
    max_p99, most = 0.0, 0.0
    outcomes: Counter[int] = Counter()
    for name, path in selected.items():
        watcher = Watcher(server, token)
        watcher.start()
        start = time.monotonic()
        with ThreadPoolExecutor(1) as pool:  # the thread of a test may have an event loop
            responses = pool.submit(asyncio.run, read_all(server, path, token)).result()
        wait, peak = watcher.stop()
        outcomes.update(response.status for response in responses)
        max_p99, most = max(max_p99, wait), max(most, peak - before)
        size = max(response.length for response in responses) / MIB
        details = (
            f"{size:.2f} MiB in {time.monotonic() - start:.1f} s, {peak - before:+.0f} MiB, p99 {wait * 1000:.0f} ms"
        )
        print(f"large: {name}: {details}; {Counter(r.status for r in responses)}", file=sys.stderr, flush=True)
        assert {response.status for response in responses} <= {200, 503}, name
        cut = [response for response in responses if response.size != response.length]
        assert not cut, f"{name}: {len(cut)} responses are incomplete: {cut[0]}"
        assert peak - before <= MAX_GROWTH, f"{name}: {peak - before:.0f} MiB more"
    assert outcomes[200] > outcomes[503]
    # The durations depend on other load of the host.
    if not quick and not os.environ.get("CX_BUSY_HOST"):
        assert max_p99 <= MAX_P99, f"p99 of another client is {max_p99 * 1000:.0f} ms"
    yield Figure(
        f"The largest {kind}, {CLIENTS} at a time, hardly delay others",
        f"{len(selected)} {kind}, each {CLIENTS} times at once, read at {RATE / 1e6:.0f} MB/s: {outcomes[200]} "
        f"responses complete, {outcomes[503]} refused, {most:.0f} MiB more memory; p99 of another client was "
        f"{max_p99 * 1000:.0f} ms at most, {p99_alone * 1000:.0f} ms without them",
    )
