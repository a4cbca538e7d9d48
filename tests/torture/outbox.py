"""Workers are killed while they deliver to a webhook: no event is lost, and at most one is repeated for each kill."""

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
from tests.support.passwords import PASSWORD
from tests.support.server_process import Served, fill, serving
from tests.torture import Figure, seed
from tests.torture.writers import CUSTOMERS, email, records, session_of, wait_until, wait_until_ready

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TIMEOUT = 60.0  # seconds
EMPTY_TIMEOUT = 600.0  # seconds: a delivery of a killed worker is due again after its lease


class Receiver:
    """A webhook that records the events `message.created` in the order in which they arrive."""

    def __init__(self) -> None:
        self.received: list[tuple[str, str, str]] = []  # identifiers of delivery, chat session and message
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if event["type"] == "message.created":
                    found = self.headers["webhook-id"], event["data"]["chat_session_id"], event["data"]["message_id"]
                    receiver.received.append(found)
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Customer:
    """Sends messages until it is stopped; a request without a response is repeated."""

    def __init__(self, server: Served, number: int, stopped: threading.Event) -> None:
        self.server, self.number, self.stopped = server, number, stopped
        self.sent: list[str] = []  # identifiers of messages

    def run(self) -> None:
        token = self.request("POST", "/auth/login", {"email": email(self.number), "password": PASSWORD})["tokens"]
        count = 0
        while not self.stopped.is_set():
            body = {"content": {"text": "Hello"}, "client_message_id": str(count)}
            path = f"/chats/{session_of(self.number)}/messages"
            self.sent.append(self.request("POST", path, body, token["access_token"])["id"])
            count += 1

    def request(self, method: str, path: str, body: object, token: str = "") -> "dict[str, dict[str, str]]":
        """Returns the data of the response."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        deadline = time.monotonic() + TIMEOUT
        while True:
            connection = http.client.HTTPConnection(self.server.host, self.server.port, timeout=TIMEOUT)
            try:
                connection.request(method, f"/api/v1{path}", json.dumps(body), headers)
                response = connection.getresponse()
                reply = json.loads(response.read())
                if response.status in (200, 201):
                    return dict(reply["data"])
                assert response.status == 503, reply
            except (OSError, http.client.HTTPException):
                assert time.monotonic() < deadline, "no response"
            finally:
                connection.close()


def run(quick: bool) -> Iterator[Figure]:
    kills = 5 if quick else 50
    with tempfile.TemporaryDirectory(prefix="cx-outbox-") as folder:
        data, receiver = Path(folder, "data"), Receiver()
        fill(data, records())
        with serving(data, "--workers", "2", "--webhook", receiver.url, CX_WEBHOOK_SECRET=SECRET) as server:
            wait_until_ready(server)
            sent = send_under_kills(server, kills, random.Random(seed()))
            wait_until(lambda: pending(data) == 0, "the outbox is not empty", EMPTY_TIMEOUT)
        receiver.server.shutdown()
    delivered = Counter(message_id for _, _, message_id in receiver.received)
    lost = [message_id for message_id in sent if message_id not in delivered]
    repeated = sum(count - 1 for count in delivered.values())
    assert not lost, f"{len(lost)} events are lost"
    assert repeated <= kills, f"{repeated} events are repeated after {kills} kills"
    check_order(receiver.received)
    yield Figure(
        f"Workers are killed {kills} times while they deliver to a webhook: no event is lost, and at most one is "
        "repeated for each kill",
        f"0 of {len(sent):,} messages lost, {repeated} events repeated; those of each chat in order",
    )


def send_under_kills(server: Served, kills: int, rng: random.Random) -> list[str]:
    """Sends messages while workers are killed. Returns the identifiers of the acknowledged messages."""
    stopped = threading.Event()
    customers = [Customer(server, number, stopped) for number in range(CUSTOMERS)]
    threads = [threading.Thread(target=customer.run) for customer in customers]
    for thread in threads:
        thread.start()
    for _ in range(kills):
        time.sleep(rng.uniform(0.5, 1.5))
        os.kill(rng.choice(server.workers), signal.SIGKILL)
    time.sleep(1)
    stopped.set()
    for thread in threads:
        thread.join(2 * TIMEOUT)
        assert not thread.is_alive()
    return [message_id for customer in customers for message_id in customer.sent]


def pending(data: Path) -> int:
    """Returns the number of deliveries."""
    connection = db.open_file(data / db.FILE_NAME)
    try:
        return int(next(connection.execute("SELECT count(*) FROM delivery"))[0])
    finally:
        connection.close()


def check_order(received: list[tuple[str, str, str]]) -> None:
    """Asserts that the events of each chat session arrived in the order of the messages; repetitions do not count."""
    newest: dict[str, str] = {}
    seen = set[str]()
    for _, session_id, message_id in received:
        if message_id not in seen:
            assert message_id > newest.get(session_id, ""), f"an event of {session_id} is out of order"
            newest[session_id] = message_id
            seen.add(message_id)
