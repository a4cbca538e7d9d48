"""A host whose clock is set back and forth while people write, and that is started anew with a clock that is behind."""

import contextlib
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from service import clock
from tests.conftest import PASSWORD, Reply
from tests.serving import Served, serving
from tests.torture import UNTRIED, Figure, seed
from tests.torture.disks import everybody_writes
from tests.torture.writers import Crew, email, log_all_in, rising, until, until_ready

SECOND, HOUR, DAY, YEAR = 1, 3600, 86_400, 31_536_000
BACK = (-1 * SECOND, -10 * SECOND, -HOUR, -DAY, -YEAR, 0)
STRANGER = {"email": "nobody@example.com", "password": "guessed"}


def run(quick: bool) -> Iterator[Figure]:
    libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not libraries:
        yield Figure("a clock that steps", f"{UNTRIED}faketime is missing; on Debian: apt-get install faketime")
        return
    with tempfile.TemporaryDirectory(prefix="cx-clocks-") as folder:
        yield from steps(Path(folder), libraries[0], 10 if quick else 300)


class HostClock:
    """The clock that a service believes, and how to set it."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.file = folder / "clock"
        self.set(0)
        self.variables = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # which nobody can set
        }

    def set(self, seconds: int) -> None:
        """Let it differ from the true time by so many seconds."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.replace(self.file)


class Observer:
    """Somebody who was given a grant that expires, was locked out for guessing, and repeats a request."""

    def __init__(self, crew: Crew, server: Served) -> None:
        self.server, self.token = server, server.log_in(email(0))
        expires = clock.timestamp(clock.host_time() + 700)
        told = {"mcp_server_id": "passing", "allowed_tools": ["*"], "expires_at": expires}
        passing = self.post("/data-shares", told, key="passing").data["id"]
        crew.writers[0].created["data_share"]["passing"] = passing
        crew.writers[0].may_be["revoked", passing] = {None, True}  # over, though nobody withdrew it
        once = self.post("/feedback", {"description": "once"}, key="once")
        self.answer = once.raw
        crew.writers[0].created["feedback"]["once"] = once.data["id"]
        until(lambda: self.guess() == 429, "nobody is locked out for guessing")
        until(lambda: self.verdict() == "expired", "the grant does not expire")

    def post(self, path: str, body: dict[str, Any], key: str = "") -> Reply:
        headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
        answer = self.ask(path, body, headers)
        assert answer.status in (200, 201), answer.raw
        return answer

    def ask(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Reply:
        """The answer, once the database is not too busy for it."""
        while (answer := self.server.call("POST", f"/api/v1{path}", body, self.token, headers=headers)).status == 503:
            time.sleep(0.1)
        return answer

    def guess(self) -> int:
        """What a guess at a password is answered with."""
        return self.ask("/auth/login", STRANGER, {}).status

    def verdict(self) -> str:
        told = self.post("/data-shares/check", {"mcp_server_id": "passing", "tool": "any"}).data
        return str(told["reason"])

    def look(self) -> None:
        """What is over stays over, and what lasts goes on."""
        assert self.verdict() == "expired", "an expired grant counts again"
        assert self.guess() == 429, "the lock for guessing is gone"
        again = self.post("/feedback", {"description": "once"}, key="once")
        assert again.raw == self.answer and again.headers["Idempotency-Replayed"] == "true", "a key was forgotten"


@contextlib.contextmanager
def looking(observer: Observer) -> Iterator[None]:
    """Look all the time."""
    over, faults = threading.Event(), list[BaseException]()

    def look() -> None:
        while not over.wait(0.05):
            try:
                observer.look()
            except Exception as error:
                faults.append(error)
                return

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)
    assert not faults, faults


def steps(folder: Path, library: Path, number: int) -> Iterator[Figure]:
    host, dice, crew = HostClock(folder, library), random.Random(seed()), Crew(folder / "data", seed())
    with serving(crew.data, "--workers", "2", "--login-failures", "5", **host.variables) as server:
        until_ready(server)
        log_all_in(crew, server)
        observer = Observer(crew, server)
        with crew.at_work(server), looking(observer):
            for _ in range(number):
                host.set(dice.choice(BACK))
                time.sleep(dice.uniform(0.02, 0.3))
            host.set(0)
            until(everybody_writes(crew), "somebody cannot write")
        expect_order(crew)
        yield Figure(
            f"the clock steps back and forth by a second to a year, {number} times under 8 writers and 2 workers",
            f"0 of {crew.tally['acknowledged']:,} acknowledged writes lost, no token refused, identifiers and "
            "created_at rose for everybody, an expired grant stayed expired, a lock for guessing lasted, and so did a "
            "key for repeating",
        )
        yield from a_year_ahead(crew, observer, host)
    crew.expect_stored(keeps_answers=False)
    host.set(-YEAR)
    written = crew.tally["acknowledged"]
    with serving(crew.data, "--workers", "2", **host.variables) as server:
        until_ready(server)
        with crew.at_work(server):
            until(everybody_writes(crew), "somebody cannot write")
            time.sleep(1)
        expect_order(crew)
        observer.server, observer.token = server, server.log_in(email(0))
        assert observer.verdict() == "expired", "an expired grant counts again"
        crew.expect_answered(server)
        assert server.stop() == 0
    crew.expect_stored(keeps_answers=False)
    yield Figure(
        "started anew on a clock two years behind what is stored",
        f"{crew.tally['acknowledged'] - written:,} writes: no token refused, identifiers and created_at rose on, "
        "an expired grant stayed expired",
    )


def a_year_ahead(crew: Crew, observer: Observer, host: HostClock) -> Iterator[Figure]:
    """The clock is set ahead: what expires, expires; and nothing of it comes back when the clock does."""
    server = observer.server
    old = [writer.tokens for writer in crew.writers]
    host.set(YEAR)
    for writer in crew.writers:
        writer.tokens, writer.again = {}, None  # a year is longer than any of them lives
    written = crew.tally["acknowledged"]
    log_all_in(crew, server)
    until(lambda: observer.guess() == 429, "nobody is locked out")
    host.set(0)
    with crew.at_work(server):
        until(everybody_writes(crew), "somebody cannot write")
        time.sleep(1)
    expect_order(crew)
    for tokens in old:
        answer = server.call("GET", "/api/v1/users/me", token=tokens["access_token"])
        assert answer.error == (401, "invalid_token"), "an expired token counts again"
        answer = server.call("POST", "/api/v1/auth/refresh", {"refresh_token": tokens["refresh_token"]})
        assert answer.error[0] == 401, "an expired token counts again"
    host.set(YEAR + 2 * HOUR)
    assert observer.guess() == 401, "a lock for guessing lasts for ever"
    observer.post("/auth/login", {"email": email(1), "password": PASSWORD})
    host.set(0)
    for writer in crew.writers:
        writer.refresh()  # two hours are longer than access tokens live
    with crew.at_work(server):
        until(everybody_writes(crew), "somebody cannot write")
    yield Figure(
        "the clock is a year ahead for a while",
        f"{crew.tally['acknowledged'] - written:,} writes; tokens that expired stay so when it is back, those given "
        "since are good, a lock for guessing ends in its time",
    )


def expect_order(crew: Crew) -> None:
    for writer in crew.writers:
        assert rising(writer.stamps), f"identifiers or moments went backwards: {writer.stamps}"
