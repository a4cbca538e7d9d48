"""Messages while they are announced by webhooks and e-mail: what this costs senders, and whether every event arrives.

Run as a program, it is a receiver of webhooks: it prints its port, and returns the numbers of the received events.
"""

import base64
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.bench import dataset
from tests.bench.measure import Claim
from tests.bench.processes import TIMEOUT, Server, processor_seconds
from tests.bench.servers import ROOT, Service
from tests.bench.streams import log_in
from tests.support.passwords import PASSWORD_HASH

RATE = 10_000 / 60  # messages per second
ROUNDS, QUICK_ROUNDS = 12, 2
SECONDS, QUICK_SECONDS = 5, 2  # of a round
SENDERS = 8
CUSTOMERS = 200
DRAIN_TIMEOUT = 300  # seconds
KIND = 91  # of the identifiers
APP = dataset.uuid(KIND, 0)
AGENT = "agent@example.com"
SECRET = "whsec_" + base64.b64encode(bytes(32)).decode()


def records() -> Iterator[dataset.Record]:
    """Yield an app with an agent, and customers with a chat session each, who get e-mails about new messages."""
    person = {"password_hash": PASSWORD_HASH, "is_verified": True}
    yield {"app": {"id": APP, "name": "Deliveries"}}
    yield {"user": {"email": AGENT, "role": "agent", "app_id": APP, **person}}
    for number in range(CUSTOMERS):
        user = dataset.uuid(KIND, 1_000 + number)
        yield {"user": {"id": user, "email": f"customer-{number}@example.com", **person}}
        yield {"chat_session": {"id": session(number), "app_id": APP, "user_id": user}}


def session(number: int) -> str:
    return dataset.uuid(KIND, 10_000 + number % CUSTOMERS)


class Handler(BaseHTTPRequestHandler):
    """Counts the events about messages by their identifiers."""

    protocol_version = "HTTP/1.1"
    received: Counter[str] = Counter()

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if event["type"] == "message.created":
            self.received[event["data"]["message_id"]] += 1
        self.send_response(204)
        self.end_headers()

    def do_GET(self) -> None:
        counts = json.dumps({"events": len(self.received), "repeated": self.received.total() - len(self.received)})
        self.send_response(200)
        self.send_header("Content-Length", str(len(counts)))
        self.end_headers()
        self.wfile.write(counts.encode())

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


@contextmanager
def receiver() -> Iterator[Server]:
    """Run a receiver of webhooks in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.deliveries"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield Server(process.pid, int(process.stdout.readline()))
        finally:
            process.terminate()


def counts_of(receiver: Server) -> dict[str, int]:
    """Return the number of different events about messages, and of repetitions."""
    return dict(json.loads(receiver.send("GET", "/").body))


def send(server: Server, authorization: str, sender: int, seconds: int) -> list[float]:
    """Send the share of one sender at a constant rate. Returns the milliseconds until each response."""
    headers = {"Authorization": authorization, "Content-Type": "application/json"}
    begun, times = time.monotonic(), list[float]()
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT)) as connection:
        for number in range(sender, int(RATE * seconds), SENDERS):
            time.sleep(max(0.0, begun + number / RATE - time.monotonic()))
            sent = time.monotonic()
            body = json.dumps({"content": f"Message {number}"})
            connection.request("POST", f"/api/v1/chats/{session(number)}/messages", body, headers)
            response = connection.getresponse()
            response.read()
            assert response.status == 201, response.status
            times.append(1_000 * (time.monotonic() - sent))
    return times


def send_all(server: Server, authorization: str, seconds: int) -> list[float]:
    """Send messages for some seconds from all senders. Returns the milliseconds until each response."""
    with ThreadPoolExecutor(SENDERS) as pool:
        rounds = pool.map(lambda sender: send(server, authorization, sender, seconds), range(SENDERS))
        return [one for times in rounds for one in times]


def wait_until_received(target: Server, count: int) -> float:
    """Wait until a number of events was received. Returns the seconds."""
    begun = time.monotonic()
    while counts_of(target)["events"] < count and time.monotonic() - begun < DRAIN_TIMEOUT:
        time.sleep(0.2)
    return time.monotonic() - begun


def deliveries(folder: Path, long: Path, quick: bool) -> Iterator[Claim]:
    """Compare sending with and without a webhook and e-mail, in alternating rounds."""
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if quick else (ROUNDS, SECONDS)
    own = folder / "deliveries"
    if not own.exists():
        for name in ("announcing", "silent"):
            Service().import_records(own / name, records())
    medians, slowest, drained = list[float](), list[float](), list[float]()
    with ExitStack() as stack:
        target = stack.enter_context(receiver())
        settings: dict[str, Any] = {
            "CX_WEBHOOK": f"http://127.0.0.1:{target.port}/",
            "CX_WEBHOOK_SECRET": SECRET,
            "CX_SMTP": "smtp://127.0.0.1:9",  # connected to after the run: a mail waits for five minutes
            "CX_MAIL_FROM": "shop@chat.example",
            "CX_PUBLIC_URL": "http://chat.example",
        }
        announcing = stack.enter_context(Service().serving(own / "announcing", **settings))
        silent = stack.enter_context(Service().serving(own / "silent"))
        logins = {server.port: log_in(server, AGENT) for server in (announcing, silent)}
        count, processes = 0, (silent, announcing, target)
        used = [processor_seconds(server.pid) for server in processes]
        for _ in range(rounds):
            plain = send_all(silent, logins[silent.port], seconds)
            announced = send_all(announcing, logins[announcing.port], seconds)
            count += len(announced)
            drained.append(wait_until_received(target, count))
            medians.append(statistics.median(announced) / statistics.median(plain))
            slowest.append(statistics.quantiles(announced, n=100)[98])
        found = counts_of(target)
        alone, both, receiving = (
            1_000 * (processor_seconds(server.pid) - before) / count
            for server, before in zip(processes, used, strict=True)
        )
    title = f"{count:,} messages, {RATE * 60:,.0f} a minute, with a webhook and e-mail"
    yield Claim(f"{title}: median response time, compared with neither", statistics.median(medians), "×", 1.1)
    yield Claim("the same, p99 of the response time", statistics.median(slowest), "ms")
    yield Claim("the same, processor time of the service for a message, in addition", both - alone, "ms")
    yield Claim("the same, processor time of the receiver of the events, on the same cores", receiving, "ms")
    yield Claim("the same, time from the last message until its event was received", statistics.median(drained), "s")
    yield Claim("the same, events that were lost", count - found["events"], "", 0)
    yield Claim("the same, events that were received twice", found["repeated"], "", 0)


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        print(running.server_port, flush=True)
        running.serve_forever()
