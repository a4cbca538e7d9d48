"""Event streams that are open at one worker: memory, processor time, and how soon a message reaches all of them."""

import contextlib
import json
import resource
import selectors
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from service.api.long_poll import MAX_PER_CALLER
from tests.bench import dataset
from tests.bench.measure import Claim
from tests.bench.processes import TIMEOUT, Server, processor_seconds, resident_bytes
from tests.bench.servers import Service
from tests.support.passwords import PASSWORD, PASSWORD_HASH

STREAMS, QUICK_STREAMS = 2_000, 200
IDLE_SECONDS, QUICK_IDLE_SECONDS = 30, 5
MESSAGES = 9
PAUSE = 2.0  # seconds without changes, in which all streams are silent again
KIND = 90  # of the identifiers
APP, CUSTOMER, SESSION = (dataset.uuid(KIND, number) for number in range(3))
PATH = "/api/v1/updates/stream"


def records(agents: int) -> Iterator[dataset.Record]:
    """Yield an app with a customer, a chat session and agents, who all receive its changes."""
    person = {"password_hash": PASSWORD_HASH}
    yield {"app": {"id": APP, "name": "Streams"}}
    yield {"user": {"id": CUSTOMER, "email": "customer@example.com", **person}}
    yield {"chat_session": {"id": SESSION, "app_id": APP, "user_id": CUSTOMER}}
    for number in range(agents):
        about = {"id": dataset.uuid(KIND, 1_000 + number), "email": f"agent-{number}@example.com", "role": "agent"}
        yield {"user": {**about, "app_id": APP, **person}}


def log_in(server: Server, email: str) -> str:
    """Return the `Authorization` header of a user."""
    body = json.dumps({"email": email, "password": PASSWORD}).encode()
    response = server.send("POST", "/api/v1/auth/login", body, {"Content-Type": "application/json"})
    return f"Bearer {json.loads(response.body)['data']['tokens']['access_token']}"


class Streams:
    """Open streams, and when each of them last received an event."""

    def __init__(self, server: Server, credentials: list[str]) -> None:
        self._selector = selectors.DefaultSelector()
        self.received: dict[int, float] = {}
        self.count = len(credentials) * MAX_PER_CALLER
        for authorization in credentials:
            for _ in range(MAX_PER_CALLER):
                connection = socket.create_connection(("127.0.0.1", server.port))
                connection.sendall(f"GET {PATH} HTTP/1.1\r\nHost: a\r\nAuthorization: {authorization}\r\n\r\n".encode())
                self._selector.register(connection, selectors.EVENT_READ)
        self.wait_for_all()

    def wait(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Receive for some seconds, or until a condition is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not is_over():
            for key, _ in self._selector.select(0.05):
                data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                assert data, "a stream has ended"
                if b"event: changes" in data:
                    self.received[key.fd] = time.monotonic()

    def wait_for_all(self) -> None:
        """Wait until each stream has received an event."""
        self.wait(TIMEOUT, lambda: len(self.received) == self.count)
        assert len(self.received) == self.count, f"{len(self.received)} of {self.count} streams received an event"

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()


def streams(folder: Path, long: Path, quick: bool) -> Iterator[Claim]:
    """Measure idle streams, and messages that wake all of them."""
    count, seconds = (QUICK_STREAMS, QUICK_IDLE_SECONDS) if quick else (STREAMS, IDLE_SECONDS)
    _, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))
    service, own = Service(), folder / "streams"
    agents = count // MAX_PER_CALLER
    if not own.exists():
        service.import_records(own, records(STREAMS // MAX_PER_CALLER))
    with service.serving(own, 1) as server, contextlib.ExitStack() as stack:
        credentials = [log_in(server, f"agent-{number}@example.com") for number in range(agents)]
        customer = log_in(server, "customer@example.com")
        time.sleep(PAUSE)
        before = resident_bytes(server.pid)
        opened = stack.enter_context(contextlib.closing(Streams(server, credentials)))
        opened.wait(PAUSE)
        more = (resident_bytes(server.pid) - before) / 2**20
        yield Claim(f"{count:,} event streams at one worker: additional memory", more, "MiB", 60)
        used = processor_seconds(server.pid)
        opened.wait(seconds)
        share = (processor_seconds(server.pid) - used) / seconds * 100
        yield Claim("the same without changes, of a core", share, "%", 2)
        slowest = []
        for number in range(MESSAGES):
            opened.received.clear()
            delays = wake(server, customer, opened, f"Message {number}")
            slowest.append(delays[int(len(delays) * 0.99) - 1])
            opened.wait(PAUSE)
    yield Claim("the same, p99 from the response to a message until its event", statistics.median(slowest), "ms", 250)


def wake(server: Server, authorization: str, opened: Streams, text: str) -> list[float]:
    """Send a message. Returns the milliseconds until each stream received its event, in ascending order."""
    headers = {"Authorization": authorization, "Content-Type": "application/json"}
    path, body = f"/api/v1/chats/{SESSION}/messages", json.dumps({"content": text}).encode()
    assert server.send("POST", path, body, headers).status == 201
    sent = time.monotonic()
    opened.wait_for_all()
    return sorted(1_000 * (moment - sent) for moment in opened.received.values())
