"""Workers are killed while they deliver to a webhook: no event is lost, and at most one is repeated for each kill."""

import contextlib
import http.client
import json
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from service import db
from tests.support.server_process import Served, fill, send_request, serving
from tests.torture import Figure, seed
from tests.torture.writers import CUSTOMERS, email, records, session_of, wait_until, wait_until_ready

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TIMEOUT = 60.0  # seconds
EMPTY_TIMEOUT = 600.0  # seconds: a delivery of a killed worker is due again after its lease


class Receiver:
    """A webhook that records the events `message.created` in the order in which they arrive."""

    def __init__(self) -> None:
        self.received: list[tuple[str, str]] = []  # identifiers of chat session and message
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if event["type"] == "message.created":
                    receiver.received.append((event["data"]["chat_session_id"], event["data"]["message_id"]))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """Ignore connections of workers that are killed."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def run(quick: bool) -> Iterator[Figure]:
    rounds, rng, sent = 3 if quick else 25, random.Random(seed()), list[str]()
    with tempfile.TemporaryDirectory(prefix="cx-outbox-") as folder:
        data, receiver = Path(folder, "data"), Receiver()
        fill(data, records())
        for number in range(rounds + 1):
            with serving(data, "--workers", "2", "--webhook", receiver.url, CX_WEBHOOK_SECRET=SECRET) as server:
                wait_until_ready(server)
                if number < rounds:
                    sent += send_until_killed(server, rng.uniform(0.3, 1.5))
                else:
                    wait_until(lambda: pending(data) == 0, "the outbox is not empty", EMPTY_TIMEOUT)
        receiver.server.shutdown()
        receiver.server.server_close()
    kills = 2 * rounds  # both workers
    delivered = Counter(message_id for _, message_id in receiver.received)
    lost = [message_id for message_id in sent if message_id not in delivered]
    repeated = sum(count - 1 for count in delivered.values())
    assert not lost, f"{len(lost)} events are lost"
    assert repeated <= kills, f"{repeated} events are repeated after {kills} kills"
    check_order(receiver.received)
    yield Figure(
        f"kill -9 of {kills} workers that deliver to a webhook: no event is lost, at most one is repeated for each",
        f"0 of {len(sent):,} messages lost, {repeated} events repeated; those of each chat in order",
    )


def send_until_killed(server: Served, seconds: float) -> list[str]:
    """Send messages of several customers until all processes are killed. Returns those that were acknowledged."""
    sent: list[str] = []
    threads = [threading.Thread(target=send, args=(server, number, sent)) for number in range(CUSTOMERS)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    os.killpg(server.process.pid, signal.SIGKILL)
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    return sent


def send(server: Served, number: int, sent: list[str]) -> None:
    """Send messages of a customer until the server does not respond."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        token = server.log_in(email(number))
        path, body = f"/api/v1/chats/{session_of(number)}/messages", {"content": {"text": "Hello"}}
        with contextlib.closing(server.connect()) as connection:
            while True:
                reply = send_request(connection, "POST", path, body, token)
                assert reply.status == 201, reply
                sent.append(reply.data["id"])


def pending(data: Path) -> int:
    """Return the number of deliveries."""
    connection = db.open_file(data / db.FILE_NAME)
    try:
        return int(next(connection.execute("SELECT count(*) FROM delivery"))[0])
    finally:
        connection.close()


def check_order(received: list[tuple[str, str]]) -> None:
    """Assert that the events of each chat session arrived in the order of the messages; repetitions do not count."""
    newest: dict[str, str] = {}
    seen = set[str]()
    for session_id, message_id in received:
        if message_id not in seen:
            assert message_id > newest.get(session_id, ""), f"an event of {session_id} is out of order"
            newest[session_id] = message_id
            seen.add(message_id)
