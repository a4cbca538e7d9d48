"""Bytes that no honest client sends: valid requests of every operation, spoilt at random, against a real server.

First nobody in particular sends them: nothing at all may change. Then a customer does: only what is hers may.
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
from tests import household as h
from tests.conftest import at
from tests.serving import Served, serving
from tests.test_access import belongings
from tests.torture import Figure
from tests.valid import Household, Request
from tests.watching import stored

AT_ONCE = 64  # connections
QUIET = 0.6  # seconds after which nothing more is expected of a request that may have no end
PATIENCE = 20.0  # seconds for the answer to a request that is whole
WORKERS = 2
OF_THREADS = WORKERS * 4 * 3  # descriptors: each thread opens the database, its journal and its index, sooner or later
GROWTH = 24.0  # MiB that all workers together may grow by
KEPT = WORKERS * 4 * 28.0  # MiB that threads may keep which have hashed a password or read a picture
ENDING = {"log_out", "sign_out_browser", "change_password", "change_account"}  # what would end the customer's login

LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (?:"
    r"INFO cx\.requests [!-~]+ [!-~]* \d{3} \d+\.\dms \d+B \w+ [!-~]+ [!-~]+ [A-Za-z0-9._-]{1,64}"
    r"|INFO cx\.pictures a picture could not be read: .*|INFO waitress Client disconnected while serving .*)"
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


class Answer(NamedTuple):
    """An answer as it came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes


Mutation = Callable[[bytes, random.Random], bytes]


def flip(raw: bytes, chance: random.Random) -> bytes:
    spoilt = bytearray(raw)
    for _ in range(chance.choice((1, 1, 2, 8))):
        spoilt[chance.randrange(len(spoilt))] ^= 1 << chance.randrange(8)
    return bytes(spoilt)


def insert(raw: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(raw) + 1)
    return raw[:at] + chance.choice((*SPECIAL, chance.randbytes(chance.randrange(1, 40)))) + raw[at:]


def remove(raw: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(raw))
    return raw[:at] + raw[at + chance.choice((1, 1, 4, 40)) :]


def cut(raw: bytes, chance: random.Random) -> bytes:
    return raw[: chance.randrange(len(raw))]


def repeat_a_line(raw: bytes, chance: random.Random) -> bytes:
    head, parted, body = raw.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    lines.insert(chance.randrange(len(lines)) + 1, chance.choice(lines))
    return b"\r\n".join(lines) + parted + body


def add_a_line(raw: bytes, chance: random.Random) -> bytes:
    first, parted, rest = raw.partition(b"\r\n")
    return first + parted + chance.choice(HEADS) + parted + rest


def begin_otherwise(raw: bytes, chance: random.Random) -> bytes:
    _, parted, rest = raw.partition(b"\r\n")
    return chance.choice(FIRST) + parted + rest


def end_lines_otherwise(raw: bytes, chance: random.Random) -> bytes:
    head, parted, body = raw.partition(b"\r\n\r\n")
    end = chance.choice((b"\n", b"\r", b"\n\r", b"\r\r\n"))
    return (head + parted).replace(b"\r\n", end) + body


def lie_about_the_length(raw: bytes, chance: random.Random) -> bytes:
    told = chance.choice((b"1", b"0", b"-1", b"7", b"999999", b"1e3", b"", b"9" * 30, b"\xd9\xa1"))
    return re.sub(rb"Content-Length: \d+", b"Content-Length: " + told, raw, count=1)


def send_in_chunks(raw: bytes, chance: random.Random) -> bytes:
    head, parted, body = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", raw, count=1).partition(
        b"\r\n\r\n"
    )
    whole = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
    return head + parted + chance.choice((whole, *CHUNKS))


def join(raw: bytes, chance: random.Random) -> bytes:
    return raw.replace(b"Connection: close\r\n", b"", 1) + chance.choice(
        (raw, flip(raw, chance), b"\r\n" + raw, b"x" * 99)
    )


MUTATIONS: tuple[Mutation, ...] = (
    *(flip, flip, insert, insert, remove, cut, repeat_a_line, add_a_line, add_a_line, begin_otherwise),
    *(end_lines_otherwise, lie_about_the_length, send_in_chunks, join),
)


def spoil(raw: bytes, chance: random.Random) -> bytes:
    """A request with one or a few things wrong; mostly they are."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        raw = chance.choice(MUTATIONS)(raw, chance) or b"\0"
    return raw


def read_answers(raw: bytes, asked: bytes) -> tuple[list[Answer], bytes]:
    """All answers in what came back, and the beginning of one that is not whole; fails on what is none."""
    found: list[Answer] = []
    while raw:
        head, parted, rest = raw.partition(b"\r\n\r\n")
        if not parted:
            break
        first, *lines = head.decode("ascii").split("\r\n")
        version = re.fullmatch(r"HTTP/1\.[01] (\d{3}) [A-Z][A-Za-z -]*", first)
        assert version, f"{head[:200]!r} answers {asked!r}"
        headers = {}
        for line in lines:
            header = re.fullmatch(r"([A-Za-z-]+): ([ -~]*)", line)
            assert header, f"{line!r} answers {asked!r}"
            headers[header[1].lower()] = header[2]
        status = int(version[1])
        length = int(headers.get("content-length", 0)) if status not in (100, 204, 304) else 0
        if b"HEAD" in asked and (not rest or rest.startswith(b"HTTP/1.")):
            length = 0
        if len(rest) < length:
            break
        if status != 100:
            found.append(Answer(status, headers, rest[:length]))
        raw = rest[length:]
    return found, raw


def check(answer: Answer, asked: bytes) -> None:
    """Fail on an answer that is neither a good one nor a refusal in its form."""
    status, headers, body = answer
    told = f"{status} {headers} {body[:200]!r} answers {asked!r}"
    allowed = status == 503 and "retry-after" in headers or status == 501 and b"transfer-encoding" in asked.lower()
    assert status < 500 or allowed, told
    assert headers["x-content-type-options"] == "nosniff" and headers["x-request-id"], told
    assert b"Traceback" not in body and "server" not in headers, told
    if status >= 400 and body:
        if headers["content-type"] == "application/json":
            refused = json.loads(body)
            assert set(refused) in ({"success", "error"}, {"error", "error_description"}), told
        else:
            assert headers["content-type"] == "text/html; charset=utf-8" and body.startswith(b"<!doctype html>"), told


async def send(server: Served, raw: bytes, chance: random.Random, patience: float) -> list[Answer]:
    """Send bytes, at once or in pieces; what comes back until the server hangs up, or falls silent."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    came, answers, begun = b"", list[Answer](), b""
    try:
        with contextlib.suppress(ConnectionError):
            places = sorted(chance.sample(range(len(raw)), min(len(raw), chance.choice((0, 0, 0, 1, 3, 30)))))
            for begin, end in zip([0, *places], [*places, len(raw)], strict=True):
                writer.write(raw[begin:end])
                await writer.drain()
                await asyncio.sleep(0)
        with contextlib.suppress(ConnectionError, TimeoutError):
            while piece := await asyncio.wait_for(reader.read(65536), PATIENCE if begun else patience):
                came += piece
                answers, begun = read_answers(came, raw)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    assert not begun, f"{begun!r} was cut off, and answers {raw!r}"
    return answers


class Fuzzer:
    """Spoils requests and looks at the answers."""

    def __init__(self, server: Served, seed: int) -> None:
        self.server, self.chance = server, random.Random(seed)
        self.statuses: Counter[int] = Counter()
        self.silent = 0  # requests that got no answer, since they have no end, or the connection was closed
        self.ids: list[str] = []

    def run(self, requests: list[Request], count: int) -> None:
        """Send so many, some of them at once."""
        with ThreadPoolExecutor(1) as apart:  # from whatever loop runs in this thread, such as that of a browser
            apart.submit(asyncio.run, self._run(requests, count)).result()

    async def _run(self, requests: list[Request], count: int) -> None:
        waiting = iter([self.chance.choice(requests) for _ in range(count)])
        await asyncio.gather(*(self._send_all(waiting) for _ in range(AT_ONCE)))

    async def _send_all(self, waiting: Iterator[Request]) -> None:
        for request in waiting:
            raw = request.raw()
            is_whole = self.chance.random() < 0.1
            asked = raw if is_whole else spoil(raw, self.chance)
            answers = await send(self.server, asked, self.chance, PATIENCE if is_whole else QUIET)
            assert len(answers) == 1 or not is_whole, f"{answers} answer {asked!r}"
            self.silent += not answers
            for answer in answers:
                check(answer, asked)
                self.statuses[answer.status] += 1
                self.ids.append(answer.headers["x-request-id"])


def memory(server: Served) -> float:
    """What all workers hold, in MiB."""
    told = (Path(f"/proc/{number}/status").read_text() for number in server.workers)
    return sum(int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) for status in told) / 1024


def descriptors(server: Served) -> int:
    """How many files and connections all workers hold open."""
    return sum(len(os.listdir(f"/proc/{number}/fd")) for number in server.workers)  # noqa: PTH208


def until_closed(server: Served, before: int) -> int:
    """Wait until connections that are gone are closed; how many descriptors are open then."""
    begun = time.monotonic()
    while (now := descriptors(server)) > before + OF_THREADS and time.monotonic() - begun < PATIENCE:
        time.sleep(0.05)
    return now


def digest(rows: object) -> str:
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def run(quick: bool) -> Iterator[Figure]:
    """Yields figures; raises AssertionError."""
    seed = int(os.environ.get("CX_SEED", "") or time.time())
    count = 700 if quick else 15_000
    print(f"hostile: CX_SEED={seed} makes the same requests again", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        household = Household(at(folder / "data"), folder)
        with serving(folder / "data", "--workers", str(WORKERS)) as server:
            yield from _fuzz(server, household, seed, count)
        db.close_database()
        assert server.process.returncode == 0
        assert "Traceback" not in server.errors


def _fuzz(server: Served, household: Household, seed: int, count: int) -> Iterator[Figure]:
    requests = [request for request in household.requests() if request.operation.name not in ENDING]
    unknown = [
        request._replace(token=f"{request.token[:-2]}AA") for request in requests if not request.operation.public
    ]
    unknown += [request for request in requests if request.operation.public and request.operation.method == "GET"]
    fuzzer = Fuzzer(server, seed)
    fuzzer.run(unknown, 100)  # until everything has been loaded
    workers, before = server.workers, (memory(server), descriptors(server))

    rows = digest(stored())
    fuzzer.run(unknown, count)
    assert digest(stored()) == rows, "somebody without credentials changed something"
    assert set(fuzzer.statuses) - {200, 204, 304} <= {400, 401, 404, 405, 408, 411, 413, 414, 417, 431, 501, 503}
    yield Figure("spoilt requests of nobody in particular, none of which changed anything", f"{count:,}")
    grown = memory(server) - before[0]
    assert grown < GROWTH, f"all workers have grown by {grown:.0f} MiB"
    yield Figure("growth of two workers meanwhile", f"{grown:.1f} MiB")

    others = digest({owner: rows for owner, rows in belongings().items() if owner != h.ALICE})
    fuzzer.run(requests, count)
    assert digest({owner: rows for owner, rows in belongings().items() if owner != h.ALICE}) == others
    assert User.get_by_id(h.ALICE).role == "user"
    yield Figure("spoilt requests of a customer, none of which changed what is not hers", f"{count:,}")

    open_now = until_closed(server, before[1])
    assert server.call("GET", "/healthz").status == 200
    assert server.workers == workers, "a worker has died"
    assert open_now <= before[1] + OF_THREADS, f"{open_now} descriptors, {before[1]} before"
    grown = memory(server) - before[0]
    assert grown < GROWTH + KEPT, f"all workers have grown by {grown:.0f} MiB"
    yield Figure("growth of both in the end, and of their descriptors", f"{grown:.1f} MiB, {open_now - before[1]}")

    lines = server.errors.splitlines()[1:]
    odd = [line for line in lines if not LINE.fullmatch(line)]
    assert odd == [], odd[:3]
    told = Counter(line.rpartition(" ")[2] for line in lines if "cx.requests" in line)
    assert max(told[id] for id in fuzzer.ids) == 1
    yield Figure("lines of the log, each well-formed and for one request", f"{len(lines):,}")
    shown = ", ".join(f"{number:,} × {status}" for status, number in sorted(fuzzer.statuses.items()))
    yield Figure("answers, all of which were HTTP, none a crash", f"{shown}; {fuzzer.silent:,} without an end")
