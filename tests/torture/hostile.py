"""Fuzzing over HTTP: valid requests of all operations, mutated at random, against a real server.

Requests without valid credentials must change nothing. Requests of a customer must change only that customer's data.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from service import db
from service.models import User
from service.models.posting import WAITING
from tests.support import sample_data as h
from tests.support.access import rows_by_owner
from tests.support.installation import settings_at
from tests.support.observe import stored
from tests.support.server_process import Served, serving
from tests.support.valid_requests import Request, SampleInstallation
from tests.torture import Figure

CONNECTIONS = 64
MUTATED_TIMEOUT = 0.6  # seconds, for the response to a request that may be incomplete
TIMEOUT = 20.0  # seconds, for the response to a complete request
WORKERS = 2
THREAD_DESCRIPTORS = WORKERS * 4 * 3  # each thread opens the database, its journal and its shared memory
MAX_GROWTH = 24.0  # MiB of memory of all workers together
THREAD_MEMORY = WORKERS * 4 * 28.0  # MiB that threads keep after hashing a password or reading a picture
EXCLUDED = {
    "log_out",
    "sign_out_browser",
    "change_password",
    "change_account",
    *("stream_updates", "stream_news"),
}  # they would end the login of the customer, or never end

LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (?:"
    r"INFO cx\.requests [!-~]+ [!-~]* \d{3} \d+\.\dms \d+B \w+(?::[\w/]+)? [!-~]+ [!-~]+ [A-Za-z0-9._-]{1,64}"
    r"|INFO cx\.pictures a picture could not be decoded: .*|INFO waitress Client disconnected while serving .*)"
)
SPECIAL = (
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b"%",
    b"%00",
    b"%ff",
    b"\xff",
    b"/",
    b"//",
    b"..",
    b"?",
    b"#",
)
HEADS = (
    *(
        b"Content-Length: 5",
        b"Content-Length: 0",
        b"Content-Length: -1",
        b"Content-Length: +5",
        b"Content-Length: 5, 5",
    ),
    *(b"Content-Length: " + b"9" * 5_000, b"Content-Length: 0x5", b"Content-Length:", b"Transfer-Encoding: chunked"),
    *(b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: \x0bchunked", b"Transfer-Encoding : chunked"),
    *(b"Host: b", b"Host:", b"Host: a b", b"Host: [::1", b"Authorization: Bearer x", b"Authorization: Basic Og=="),
    *(b"Expect: 100-continue", b"Expect: nonsense", b"Connection: upgrade\r\nUpgrade: h2c", b"Range: bytes=0-0,-1"),
    *(
        b" folded: x",
        b"\tfolded",
        b"no colon",
        b": no name",
        b"na me: x",
        b"X-Long: " + b"a" * 40_000,
        b"X: \x00\x1b[31m",
    ),
    *(b"X-Request-ID: forged\xe2\x80\xa8line", b"Cookie: cx_signed_in=x; ;=", b"Content-Type: multipart/form-data"),
    *(
        b"Sec-Fetch-Mode: navigate",
        b"X-Forwarded-For: \x00",
        b"X-HTTP-Method-Override: DELETE",
        b"Idempotency-Key: \x07",
    ),
)
FIRST = (
    *(
        b"GET http://evil.example/ HTTP/1.1",
        b"GET //evil.example/ HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"GET healthz HTTP/1.1",
    ),
    *(b"get / HTTP/1.1", b"PRI * HTTP/2.0", b"GET / HTTP/9.9", b"GET /", b"GET / HTTP/1.1 x", b"CONNECT a:1 HTTP/1.1"),
    *(
        b"GET / HTTP/1.0",
        b"HEAD / HTTP/1.1",
        b"\x16\x03\x01\x02\x00",
        b"GET /%2e%2e/%00 HTTP/1.1",
        b"\r\n\r\nGET / HTTP/1.1",
    ),
    *(
        b"GET /" + b"a" * 40_000 + b" HTTP/1.1",
        b"TRACE / HTTP/1.1",
        b"GET /\xff\xfe HTTP/1.1",
        b"GET /?%zz=\xff HTTP/1.1",
    ),
)
CHUNKS = (
    b"5\r\nhello\r\n0\r\n\r\n",
    b"zz\r\n",
    b"-1\r\n",
    b"5;x=y\r\nhel",
    b"ffffffffffffffff\r\n",
    b"0\r\nX: y\r\n\r\n",
    b"5\nhello\n0\n\n",
)


class Response(NamedTuple):
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes


Mutation = Callable[[bytes, random.Random], bytes]


def flip(raw: bytes, rng: random.Random) -> bytes:
    mutated = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 8))):
        mutated[rng.randrange(len(mutated))] ^= 1 << rng.randrange(8)
    return bytes(mutated)


def insert(raw: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + rng.choice((*SPECIAL, rng.randbytes(rng.randrange(1, 40)))) + raw[at:]


def remove(raw: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(raw))
    return raw[:at] + raw[at + rng.choice((1, 1, 4, 40)) :]


def cut(raw: bytes, rng: random.Random) -> bytes:
    return raw[: rng.randrange(len(raw))]


def repeat_a_line(raw: bytes, rng: random.Random) -> bytes:
    head, parted, body = raw.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    lines.insert(rng.randrange(len(lines)) + 1, rng.choice(lines))
    return b"\r\n".join(lines) + parted + body


def add_a_line(raw: bytes, rng: random.Random) -> bytes:
    first, parted, rest = raw.partition(b"\r\n")
    return first + parted + rng.choice(HEADS) + parted + rest


def change_the_first_line(raw: bytes, rng: random.Random) -> bytes:
    _, parted, rest = raw.partition(b"\r\n")
    return rng.choice(FIRST) + parted + rest


def change_line_endings(raw: bytes, rng: random.Random) -> bytes:
    head, parted, body = raw.partition(b"\r\n\r\n")
    end = rng.choice((b"\n", b"\r", b"\n\r", b"\r\r\n"))
    return (head + parted).replace(b"\r\n", end) + body


def change_the_length(raw: bytes, rng: random.Random) -> bytes:
    length = rng.choice((b"1", b"0", b"-1", b"7", b"999999", b"1e3", b"", b"9" * 30, b"\xd9\xa1"))
    return re.sub(rb"Content-Length: \d+", b"Content-Length: " + length, raw, count=1)


def send_in_chunks(raw: bytes, rng: random.Random) -> bytes:
    head, parted, body = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", raw, count=1).partition(
        b"\r\n\r\n"
    )
    whole = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
    return head + parted + rng.choice((whole, *CHUNKS))


def join(raw: bytes, rng: random.Random) -> bytes:
    return raw.replace(b"Connection: close\r\n", b"", 1) + rng.choice((raw, flip(raw, rng), b"\r\n" + raw, b"x" * 99))


MUTATIONS: tuple[Mutation, ...] = (
    *(flip, flip, insert, insert, remove, cut, repeat_a_line, add_a_line, add_a_line, change_the_first_line),
    *(change_line_endings, change_the_length, send_in_chunks, join),
)


def mutate(raw: bytes, rng: random.Random) -> bytes:
    """Apply one to three mutations to a request."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        raw = rng.choice(MUTATIONS)(raw, rng) or b"\0"
    return raw


def read_responses(raw: bytes, request_bytes: bytes) -> tuple[list[Response], bytes]:
    """Return all responses in the received bytes, and the incomplete rest. Raises AssertionError for invalid HTTP."""
    found: list[Response] = []
    while raw:
        head, parted, rest = raw.partition(b"\r\n\r\n")
        if not parted:
            break
        first, *lines = head.decode("ascii").split("\r\n")
        version = re.fullmatch(r"HTTP/1\.[01] (\d{3}) [A-Z][A-Za-z -]*", first)
        assert version, f"{head[:200]!r} in response to {request_bytes!r}"
        headers = {}
        for line in lines:
            header = re.fullmatch(r"([A-Za-z-]+): ([ -~]*)", line)
            assert header, f"{line!r} in response to {request_bytes!r}"
            headers[header[1].lower()] = header[2]
        status = int(version[1])
        length = int(headers.get("content-length", 0)) if status not in (100, 204, 304) else 0
        if b"HEAD" in request_bytes and (not rest or rest.startswith(b"HTTP/1.")):
            length = 0
        if len(rest) < length:
            break
        if status != 100:
            found.append(Response(status, headers, rest[:length]))
        raw = rest[length:]
    return found, raw


ERROR_MEMBERS = ({"success", "error"}, {"error", "error_description"}, {"jsonrpc", "id", "error"})  # API, OAuth, MCP


def check(response: Response, request_bytes: bytes) -> None:
    """Raise AssertionError for a response that is neither successful nor a declared error."""
    status, headers, body = response
    details = f"{status} {headers} {body[:200]!r} in response to {request_bytes!r}"
    allowed = (
        status == 503 and "retry-after" in headers or status == 501 and b"transfer-encoding" in request_bytes.lower()
    )
    assert status < 500 or allowed, details
    assert headers["x-content-type-options"] == "nosniff" and headers["x-request-id"], details
    assert b"Traceback" not in body and "server" not in headers, details
    if status >= 400 and body:
        if headers["content-type"] == "application/json":
            error = json.loads(body)
            assert set(error) in ERROR_MEMBERS, details
        else:
            assert headers["content-type"] == "text/html; charset=utf-8" and body.startswith(b"<!doctype html>"), (
                details
            )


async def send(server: Served, raw: bytes, rng: random.Random, timeout: float) -> list[Response]:
    """Send bytes, at once or in pieces. Returns the responses until the connection is closed or idle."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    received, responses, rest = b"", list[Response](), b""
    try:
        with contextlib.suppress(ConnectionError):
            places = sorted(rng.sample(range(len(raw)), min(len(raw), rng.choice((0, 0, 0, 1, 3, 30)))))
            for begin, end in zip([0, *places], [*places, len(raw)], strict=True):
                writer.write(raw[begin:end])
                await writer.drain()
                await asyncio.sleep(0)
        with contextlib.suppress(ConnectionError, TimeoutError):
            while piece := await asyncio.wait_for(reader.read(65536), TIMEOUT if rest else timeout):
                received += piece
                responses, rest = read_responses(received, raw)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    assert not rest, f"{rest!r} is incomplete, in response to {raw!r}"
    return responses


class Fuzzer:
    """Sends mutated requests, and checks the responses."""

    def __init__(self, server: Served, seed: int) -> None:
        self.server, self.rng = server, random.Random(seed)
        self.statuses: Counter[int] = Counter()
        self.without_response = 0  # requests without a response, since they are incomplete or the connection was closed
        self.ids: list[str] = []

    def run(self, requests: list[Request], count: int) -> None:
        """Send a number of requests concurrently."""
        with ThreadPoolExecutor(1) as pool:  # this thread may have an event loop, such as that of a browser
            pool.submit(asyncio.run, self._run(requests, count)).result()

    async def _run(self, requests: list[Request], count: int) -> None:
        waiting = iter([self.rng.choice(requests) for _ in range(count)])
        await asyncio.gather(*(self._send_all(waiting) for _ in range(CONNECTIONS)))

    async def _send_all(self, waiting: Iterator[Request]) -> None:
        for request in waiting:
            raw = request.raw()
            is_complete = self.rng.random() < 0.1
            request_bytes = raw if is_complete else mutate(raw, self.rng)
            responses = await send(self.server, request_bytes, self.rng, TIMEOUT if is_complete else MUTATED_TIMEOUT)
            assert len(responses) == 1 or not is_complete, f"{responses} in response to {request_bytes!r}"
            self.without_response += not responses
            for response in responses:
                check(response, request_bytes)
                self.statuses[response.status] += 1
                self.ids.append(response.headers["x-request-id"])


def memory(server: Served) -> float:
    """Return the memory of all workers in MiB."""
    statuses = (Path(f"/proc/{number}/status").read_text() for number in server.workers)
    return sum(int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) for status in statuses) / 1024


def descriptors(server: Served) -> int:
    """Return the number of open descriptors of all workers."""
    return sum(len(os.listdir(f"/proc/{number}/fd")) for number in server.workers)  # noqa: PTH208


def wait_until_closed(server: Served, before: int) -> int:
    """Wait until finished connections are closed. Returns the number of open descriptors."""
    start = time.monotonic()
    while (now := descriptors(server)) > before + THREAD_DESCRIPTORS and time.monotonic() - start < TIMEOUT:
        time.sleep(0.05)
    return now


def rows_of_others() -> list[object]:
    """All rows that do not belong to Alice, except requests of devices, which any client may create.

    Also left out is what a customer's own acts change: notifications of staff about a waiting customer, the revision
    of staff with them, and the rating of a bot.
    """
    found = [row for owner, rows in rows_by_owner().items() if owner != h.ALICE for row in rows]
    for table, columns in found:
        if table == "User" and columns["role"] != "user":
            del columns["revision"]
        if table == "Bot":
            del columns["rating"]
    return [(table, row) for table, row in found if table != "DeviceAuthorization" and row.get("type") != WAITING]


def digest(rows: object) -> str:
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def run(quick: bool) -> Iterator[Figure]:
    """Yield results. Raises AssertionError."""
    seed = int(os.environ.get("CX_SEED", "") or time.time())
    count = 700 if quick else 15_000
    print(f"hostile: CX_SEED={seed} repeats the same requests", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        installation = SampleInstallation(settings_at(folder / "data"), folder)
        User.create(email="admin@example.com", role="admin")  # without an admin, `serve` prints a link first
        with serving(folder / "data", "--workers", str(WORKERS)) as server:
            yield from _fuzz(server, installation, seed, count)
        db.close_database()
        assert server.process.returncode == 0
        assert "Traceback" not in server.errors


def _fuzz(server: Served, installation: SampleInstallation, seed: int, count: int) -> Iterator[Figure]:
    requests = [request for request in installation.requests() if request.operation.name not in EXCLUDED]
    anonymous = [
        request._replace(token=f"{request.token[:-2]}AA") for request in requests if not request.operation.public
    ]
    anonymous += [request for request in requests if request.operation.public and request.operation.method == "GET"]
    fuzzer = Fuzzer(server, seed)
    fuzzer.run(anonymous, 100)  # warm-up
    workers, before = server.workers, (memory(server), descriptors(server))

    rows = digest(stored())
    fuzzer.run(anonymous, count)
    assert digest(stored()) == rows, "a request without credentials changed data"
    assert set(fuzzer.statuses) - {200, 204, 304} <= {400, 401, 404, 405, 408, 411, 413, 414, 417, 431, 501, 503}
    yield Figure("mutated requests without credentials, none of which changed data", f"{count:,}")
    growth = memory(server) - before[0]
    assert growth < MAX_GROWTH, f"the memory of the workers grew by {growth:.0f} MiB"
    yield Figure("growth of the memory of two workers", f"{growth:.1f} MiB")

    others = rows_of_others()
    fuzzer.run(requests, count)
    assert digest(rows_of_others()) == digest(others), set(map(repr, rows_of_others())) ^ set(map(repr, others))
    assert User.get_by_id(h.ALICE).role == "user"
    yield Figure("mutated requests of a customer, none of which changed data of others", f"{count:,}")

    open_descriptors = wait_until_closed(server, before[1])
    assert server.call("GET", "/healthz").status == 200
    assert server.workers == workers, "a worker died"
    assert open_descriptors <= before[1] + THREAD_DESCRIPTORS, f"{open_descriptors} descriptors, {before[1]} before"
    growth = memory(server) - before[0]
    assert growth < MAX_GROWTH + THREAD_MEMORY, f"the memory of the workers grew by {growth:.0f} MiB"
    yield Figure("growth of memory and of descriptors at the end", f"{growth:.1f} MiB, {open_descriptors - before[1]}")

    lines = server.errors.splitlines()[2:]  # after the address and the link for the first admin
    invalid_lines = [line for line in lines if not LINE.fullmatch(line)]
    assert invalid_lines == [], invalid_lines[:3]
    counts = Counter(line.rpartition(" ")[2] for line in lines if "cx.requests" in line)
    assert max(counts[id] for id in fuzzer.ids) == 1
    yield Figure("log lines, each valid and for one request", f"{len(lines):,}")
    counts_by_status = ", ".join(f"{number:,} × {status}" for status, number in sorted(fuzzer.statuses.items()))
    yield Figure(
        "responses, all valid HTTP", f"{counts_by_status}; {fuzzer.without_response:,} requests without a response"
    )
