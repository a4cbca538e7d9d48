"""The largest legal responses of every list, sixteen at a time, to clients that read slowly; and what others notice.

Every list is as large as it may be: by what the API takes where a row is written through it, else by an import.
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
from service.models.chats import PIN_BYTES, PIN_LIMIT
from service.models.people import INSTALL_LIMIT
from service.models.settling import settle
from service.models.sharing import ACTIVE_BYTES, ACTIVE_LIMIT
from tests.conftest import at
from tests.serving import ALICE, APP, SESSION, Served, chat, fill, serving
from tests.torture import Figure

MIB = 1024 * 1024
CLIENTS = 16
RATE = 1_000_000  # bytes a second that a client reads
TICK = 0.05  # seconds between two of its reads
GROWTH = 150.0  # MiB that all processes of the server may grow by
WAIT = 0.1  # seconds of another client, 99 times of 100
QUICK = ("messages", "data-shares", "pinned-messages")
PINS, TEXTS = (f"00000000-0000-4000-8000-00000000000{number}" for number in (4, 5))
BYTES = f"[{','.join(['255'] * 64 * 1024)}]"  # the largest content of a message that is a text


def messages(session_id: str, number: int, **columns: Any) -> None:
    """Messages of one of Alice's chat sessions."""
    about = {"chat_session_id": session_id, "owner_id": ALICE, "app_id": APP, "sender_id": ALICE}
    for _ in range(number):
        Message.insert(id=clock.ulid(), **about, **columns).execute()


def furnish(data: Path) -> None:
    """Make every list of Alice's as large as it may be."""
    fill(data, chat(0))
    app.prepare(at(data))
    for id in (PINS, TEXTS):
        ChatSession.create(id=id, app_id=APP, user_id=ALICE)
    words = "tulip " * 10_000
    with db.write():
        messages(SESSION, 200, content=BYTES, original_content=BYTES, plain_text="tulip", search_text="tulip")
        messages(TEXTS, 200, content=compact_json(list(words.encode())), plain_text=words, search_text=words)
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
    settle([SESSION, PINS, TEXTS])
    assert User.get_by_id(ALICE)
    db.close_database()


def lists(feed: str) -> dict[str, str]:
    """The lists, and what asks for the most of each."""
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
    """The pages of the console that show such lists."""
    return {
        "page of a chat": f"/console/chats/{SESSION}",
        "page of texts": f"/console/chats/{TEXTS}",
        "page of pins": f"/console/chats/{PINS}",
        "page of a search": "/console/search?q=tulip",
        "page of events": "/console/events",
        "page of notifications": "/console/notifications",
        "page of feedback": "/console/feedback",
        "page of data shares": "/console/shares",
        "page of bots": f"/console/bots?app_id={APP}",
        "page of the account": "/console/account",
    }


class Read(NamedTuple):
    """A response as a slow client read it."""

    status: int
    size: int  # bytes of the body that came
    length: int  # bytes that were announced


async def read_slowly(server: Served, path: str, token: str) -> Read:
    """Ask for something, and read RATE bytes of the response a second."""
    reader, writer = await asyncio.open_connection(server.host, server.port, limit=128 * 1024)
    asked = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    writer.write(asked.encode())
    raw = await reader.readuntil(b"\r\n\r\n")
    status, length = int(raw[9:12]), int(re.findall(rb"Content-Length: (\d+)", raw)[0])
    size, begun = 0, time.monotonic()
    with contextlib.suppress(ConnectionError):
        while part := await reader.read(int(RATE * TICK)):
            size += len(part)
            await asyncio.sleep(max(0.0, size / RATE - (time.monotonic() - begun)))
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return Read(status, size, length)


async def read_all(server: Served, path: str, token: str) -> list[Read]:
    return await asyncio.gather(*(read_slowly(server, path, token) for _ in range(CLIENTS)))


def memory(server: Served) -> float:
    """What all processes of the server hold, in MiB."""
    told = (Path(f"/proc/{number}/status").read_text() for number in (server.process.pid, *server.workers))
    return sum(int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) for status in told) / 1024


class Watcher(threading.Thread):
    """Another client, who asks for her settings again and again; and a look at the memory now and then."""

    def __init__(self, server: Served, token: str) -> None:
        super().__init__(daemon=True)
        self.server, self.token = server, token
        self.waits: list[float] = []
        self.peak = 0.0
        self.is_over = threading.Event()

    def run(self) -> None:
        connection = self.server.connect()
        while not self.is_over.wait(0.005):
            begun = time.monotonic()
            connection.request("GET", "/api/v1/users/me/settings", headers={"Authorization": f"Bearer {self.token}"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
            self.waits.append(time.monotonic() - begun)
            self.peak = max(self.peak, memory(self.server))
        connection.close()

    def stop(self) -> tuple[float, float]:
        """The wait that 99 of 100 requests did not exceed, in seconds; the most memory, in MiB."""
        self.is_over.set()
        self.join()
        return sorted(self.waits)[int(len(self.waits) * 0.99)], self.peak


def run(quick: bool) -> Iterator[Figure]:
    """Yields figures; raises AssertionError."""
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        furnish(data)
        for kind, workers in (("lists", 2), ("pages of the console", 1))[: 1 if quick else 2]:
            with serving(data, "--workers", str(workers)) as server:
                yield from _try(server, kind, quick)


def _try(server: Served, kind: str, quick: bool) -> Iterator[Figure]:
    token = server.log_in()
    feed = server.call("POST", "/api/v1/events/feed", {}, token).data["url"].partition("/api/")[2]
    found = lists(f"/api/{feed}") if kind == "lists" else pages()
    chosen = {name: path for name, path in found.items() if name in QUICK or not quick}
    for _ in range(20):
        server.call("GET", "/api/v1/users/me/settings", token=token)
    alone = Watcher(server, token)
    alone.start()
    time.sleep(2)
    calm, before = alone.stop()
    worst, most = 0.0, 0.0
    outcomes: Counter[int] = Counter()
    for name, path in chosen.items():
        watcher = Watcher(server, token)
        watcher.start()
        begun = time.monotonic()
        with ThreadPoolExecutor(1) as pool:  # the thread of a test may have an event loop already
            responses = pool.submit(asyncio.run, read_all(server, path, token)).result()
        wait, peak = watcher.stop()
        outcomes.update(response.status for response in responses)
        worst, most = max(worst, wait), max(most, peak - before)
        size = max(response.length for response in responses) / MIB
        told = f"{size:.2f} MiB in {time.monotonic() - begun:.1f} s, {peak - before:+.0f} MiB, p99 {wait * 1000:.0f} ms"
        print(f"large: {name}: {told}; {Counter(r.status for r in responses)}", file=sys.stderr, flush=True)
        assert {response.status for response in responses} <= {200, 503}, name
        cut = [response for response in responses if response.size != response.length]
        assert not cut, f"{name}: {len(cut)} responses were cut off: {cut[0]}"
        assert peak - before <= GROWTH, f"{name}: {peak - before:.0f} MiB more"
    assert outcomes[200] > outcomes[503]
    # What others wait depends on what else the host does; pages of the console are made in Python, at their expense.
    if kind == "lists" and not quick and not os.environ.get("CX_BUSY_HOST"):
        assert worst <= WAIT, f"others waited {worst * 1000:.0f} ms"
    yield Figure(
        f"The largest {kind}, {CLIENTS} at a time, cost others little",
        f"{len(chosen)} {kind}, each {CLIENTS} times at once, read at {RATE / 1e6:.0f} MB/s: {outcomes[200]} responses "
        f"whole, {outcomes[503]} refused, {most:.0f} MiB more memory; another client's p99 was "
        f"{worst * 1000:.0f} ms at most, {calm * 1000:.0f} ms without them",
    )
