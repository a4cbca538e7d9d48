"""The most expensive writes that one customer may send, on many connections, beside another customer's small ones.

Run as a program, this module is the first customer: `HOST PORT SECONDS FILE`, a request in each file.
"""

import contextlib
import dataclasses
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from service import db
from service.auth import tokens
from service.settings import Settings
from tests import household as h
from tests.serving import ROOT, Record, Served, fill, serving
from tests.torture import Figure
from tests.valid import UNLIMITED, Household, Request, enlarged, has_larger, writing_operations

CONNECTIONS = 32
ANSWERS, WORDS = 5_000, 110  # of the bot: as many as it may have, each as long as a question may be
VOCABULARY = [f"word{number:03}" for number in range(450)]

# They end the login, or need what only a page or an earlier request gives.
LEFT_OUT = {"log_out", "change_password", "change_account", "sign_out_browser", "answer_consent", "exchange_code"}


def answers() -> Iterator[Record]:
    """The prepared answers of the bot."""
    for number in range(ANSWERS):
        question = " ".join(f"{VOCABULARY[(number * 7 + place * 3) % 450][4:]}" for place in range(WORDS))[:500]
        yield {"bot_answer": {"bot_id": h.HILDA, "language": "en", "question": question, "answer": f"Answer {number}"}}


def expensive(household: Household) -> Iterator[Request]:
    """The most expensive request of every operation that writes."""
    for operation in writing_operations():
        if operation.name in LEFT_OUT:
            continue
        request = household.request(operation)
        yield enlarged(request) if has_larger(request) else request
        if operation.name == "send_message":  # all words of the catalogue
            text = " ".join(word[4:] for word in VOCABULARY)
            yield request._replace(body=json.dumps({"content": {"text": text}}).encode())


def run(quick: bool) -> Iterator[Figure]:
    """Another customer's writes alone, then beside each of the expensive ones."""
    seconds = float(os.environ.get("TORTURE_SECONDS", 60 if quick else 300))
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        household = Household(dataclasses.replace(Settings(data=data), **UNLIMITED), Path(folder))
        with db.write():
            token = tokens.begin(h.BOB, Settings()).access_token
        db.close_database()
        fill(data, answers())
        requests = list(expensive(household))
        with serving(data, "--workers", "2", "--log-level", "warning") as server:
            each = seconds / (len(requests) + 5)
            bob = Bob(server, token)
            bob.send(0.5)
            alone = bob.send(each * 5)
            yield Figure("Small writes of a customer alone", told(alone))
            slowest = (0.0, "", "")
            for request in requests:
                with attack(server, request, each, Path(folder, "request")) as attacker:
                    beside = bob.send(each)
                    outcomes = attacker.communicate()[0].decode()
                name = f"{request.operation.name}, {len(request.body)} bytes"
                slowest = max(slowest, (percentile(beside, 99), name, told(beside)))
                print(f"{name}: {told(beside)}; {outcomes.strip()}", file=sys.stderr)
            bob.connection.close()
            assert set(bob.statuses) == {200}, bob.statuses
    yield Figure(
        f"The same beside {CONNECTIONS} connections that send the most expensive write ({slowest[1]})", slowest[2]
    )
    usual = percentile(alone, 99)
    assert quick or slowest[0] < max(0.1, usual), "other customers wait for long"
    assert quick or slowest[0] < 10 * usual, "other customers wait for much longer than usual"


class Bob:
    """The other customer, who changes his name again and again."""

    def __init__(self, server: Served, token: str) -> None:
        self.connection, self.token = server.connect(), token
        self.statuses = Counter[int]()

    def send(self, seconds: float) -> list[float]:
        """How long each of his requests takes, in seconds."""
        taken, until = list[float](), time.monotonic() + seconds
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        while time.monotonic() < until or len(taken) < 2:
            begun = time.monotonic()
            self.connection.request("PATCH", "/api/v1/users/me", json.dumps({"first_name": f"Bob {begun}"}), headers)
            answer = self.connection.getresponse()
            answer.read()
            taken.append(time.monotonic() - begun)
            self.statuses[answer.status] += 1
            time.sleep(0.005)
        return taken


@contextlib.contextmanager
def attack(server: Served, request: Request, seconds: float, file: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The first customer, in a process of its own, which ends by itself."""
    file.write_bytes(request.raw().replace(b"Connection: close\r\n", b""))
    line = [sys.executable, "-m", "tests.torture.writes", server.host, str(server.port), str(seconds + 0.5), str(file)]
    with subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()  # it has begun
        yield process


def told(seconds: list[float]) -> str:
    """How many requests there were, and how long they took."""
    middle, slow = percentile(seconds, 50) * 1000, percentile(seconds, 99) * 1000
    return f"{len(seconds)} requests, p50 {middle:.0f} ms, p99 {slow:.0f} ms, slowest {max(seconds) * 1000:.0f} ms"


def percentile(values: list[float], rank: int) -> float:
    return statistics.quantiles(values, n=100)[rank - 1]


def send_again_and_again(address: tuple[str, int], request: bytes, until: float, statuses: Counter[str]) -> None:
    """Send a request as soon as the last one is answered."""
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=30) as connection:
            answer: Any = connection.makefile("rb")
            while time.monotonic() < until:
                connection.sendall(request)
                status, length = answer.readline().split()[1].decode(), 0
                while (line := answer.readline()) not in (b"\r\n", b""):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                answer.read(length)
                statuses[status] += 1


if __name__ == "__main__":
    host, port, seconds, file = sys.argv[1:]
    print("begun", flush=True)
    seen = Counter[str]()
    given = (host, int(port)), Path(file).read_bytes(), time.monotonic() + float(seconds), seen
    threads = [threading.Thread(target=send_again_and_again, args=given) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(dict(seen))
