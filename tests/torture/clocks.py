"""A host whose clock is set back and forth during writes, and a restart with a clock that is behind."""

import contextlib
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from service import clock
from tests.support.client import Reply
from tests.support.passwords import PASSWORD
from tests.support.server_process import Served, serving
from tests.torture import NOT_TESTED, Figure, seed
from tests.torture.disks import all_writers_succeed
from tests.torture.writers import WriterGroup, email, is_increasing, log_in_all, wait_until, wait_until_ready

SECOND, HOUR, DAY, YEAR = 1, 3600, 86_400, 31_536_000
BACK = (-1 * SECOND, -10 * SECOND, -HOUR, -DAY, -YEAR, 0)
UNKNOWN_LOGIN = {"email": "unknown@example.com", "password": "guessed"}


def run(quick: bool) -> Iterator[Figure]:
    libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not libraries:
        yield Figure("a clock that steps", f"{NOT_TESTED}faketime is missing; on Debian: apt-get install faketime")
        return
    with tempfile.TemporaryDirectory(prefix="cx-clocks-") as folder:
        yield from steps(Path(folder), libraries[0], 10 if quick else 300)


class HostClock:
    """The clock of a service under libfaketime."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.file = folder / "clock"
        self.set(0)
        self.variables = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # it cannot be set on a real host either
        }

    def set(self, seconds: int) -> None:
        """Set the difference to the true time."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.replace(self.file)


class Observer:
    """A user with an expired data share, a login lock, and a request that is repeated with its key."""

    def __init__(self, group: WriterGroup, server: Served) -> None:
        self.server, self.token = server, server.log_in(email(0))
        expires = clock.timestamp(clock.host_time() + 5 * clock.SECOND)
        body = {"mcp_server_id": "expiring", "allowed_tools": ["*"], "expires_at": expires}
        expiring = self.post("/data-shares", body, key="expiring").data["id"]
        group.writers[0].created["data_share"]["expiring"] = expiring
        group.writers[0].possible_values["revoked", expiring] = {None, True}  # expired, but not revoked
        once = self.post("/feedback", {"description": "once"}, key="once")
        self.response = once.raw
        group.writers[0].created["feedback"]["once"] = once.data["id"]
        wait_until(lambda: self.guess() == 429, "failed logins are not throttled")
        wait_until(lambda: self.check_share() == "expired", "the data share does not expire")

    def post(self, path: str, body: dict[str, Any], key: str = "") -> Reply:
        headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
        response = self.send(path, body, headers)
        assert response.status in (200, 201), response.raw
        return response

    def send(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Reply:
        """Repeat a request until its status is not 503."""
        while (response := self.server.call("POST", f"/api/v1{path}", body, self.token, headers=headers)).status == 503:
            time.sleep(0.1)
        return response

    def guess(self) -> int:
        """Return the status of a login with a wrong password."""
        return self.send("/auth/login", UNKNOWN_LOGIN, {}).status

    def check_share(self) -> str:
        result = self.post("/data-shares/check", {"mcp_server_id": "expiring", "tool": "any"}).data
        return str(result["reason"])

    def check(self) -> None:
        """Check that the data share stays expired, and that the login lock and the idempotency key last."""
        assert self.check_share() == "expired", "an expired data share is valid again"
        assert self.guess() == 429, "the login lock is gone"
        repeat = self.post("/feedback", {"description": "once"}, key="once")
        assert repeat.raw == self.response and repeat.headers["Idempotency-Replayed"] == "true", (
            "an idempotency key was lost"
        )


@contextlib.contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """Check the observer continuously during the block."""
    stopped, errors = threading.Event(), list[BaseException]()

    def check_repeatedly() -> None:
        while not stopped.wait(0.05):
            try:
                observer.check()
            except Exception as error:
                errors.append(error)
                return

    thread = threading.Thread(target=check_repeatedly)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(60)
    assert not errors, errors


def steps(folder: Path, library: Path, number: int) -> Iterator[Figure]:
    host, rng, group = HostClock(folder, library), random.Random(seed()), WriterGroup(folder / "data", seed())
    with serving(group.data, "--workers", "2", "--login-failures", "5", **host.variables) as server:
        wait_until_ready(server)
        log_in_all(group, server)
        observer = Observer(group, server)
        with group.at_work(server), observed_by(observer):
            for _ in range(number):
                host.set(rng.choice(BACK))
                time.sleep(rng.uniform(0.02, 0.3))
            host.set(0)
            wait_until(all_writers_succeed(group), "a writer cannot write")
        check_order(group)
        yield Figure(
            f"the clock is set back and forth by a second to a year, {number} times under 8 writers and 2 workers",
            f"0 of {group.counts['acknowledged']:,} acknowledged writes lost, no token refused, identifiers and "
            "created_at increased for all clients, an expired data share stayed expired, a login lock and an "
            "idempotency key lasted",
        )
        yield from a_year_ahead(group, observer, host)
    group.check_stored(has_all_keys=False)
    host.set(-YEAR)
    written = group.counts["acknowledged"]
    with serving(group.data, "--workers", "2", **host.variables) as server:
        wait_until_ready(server)
        with group.at_work(server):
            wait_until(all_writers_succeed(group), "a writer cannot write")
            time.sleep(1)
        check_order(group)
        observer.server, observer.token = server, server.log_in(email(0))
        assert observer.check_share() == "expired", "an expired data share is valid again"
        group.check_responses(server)
        assert server.stop() == 0
    group.check_stored(has_all_keys=False)
    yield Figure(
        "restarted with a clock two years behind the stored times",
        f"{group.counts['acknowledged'] - written:,} writes: no token refused, identifiers and created_at kept "
        "increasing, an expired data share stayed expired",
    )


def a_year_ahead(group: WriterGroup, observer: Observer, host: HostClock) -> Iterator[Figure]:
    """Set the clock ahead and back: expired items must stay expired."""
    server = observer.server
    old = [writer.tokens for writer in group.writers]
    host.set(YEAR)
    for writer in group.writers:
        writer.tokens, writer.repeat = {}, None  # a year is longer than the lifetime of all tokens
    written = group.counts["acknowledged"]
    log_in_all(group, server)
    wait_until(lambda: observer.guess() == 429, "failed logins are not throttled")
    host.set(0)
    with group.at_work(server):
        wait_until(all_writers_succeed(group), "a writer cannot write")
        time.sleep(1)
    check_order(group)
    for tokens in old:
        response = server.call("GET", "/api/v1/users/me", token=tokens["access_token"])
        assert response.error == (401, "invalid_token"), "an expired token is valid again"
        response = server.call("POST", "/api/v1/auth/refresh", {"refresh_token": tokens["refresh_token"]})
        assert response.error[0] == 401, "an expired token is valid again"
    host.set(YEAR + 2 * HOUR)
    assert observer.guess() == 401, "a login lock does not end"
    observer.post("/auth/login", {"email": email(1), "password": PASSWORD})
    host.set(0)
    for writer in group.writers:
        writer.refresh()  # two hours are longer than the lifetime of an access token
    with group.at_work(server):
        wait_until(all_writers_succeed(group), "a writer cannot write")
    yield Figure(
        "the clock is a year ahead for a while",
        f"{group.counts['acknowledged'] - written:,} writes; expired tokens stay expired, tokens issued since are "
        "valid, and a login lock ends in time",
    )


def check_order(group: WriterGroup) -> None:
    for writer in group.writers:
        assert is_increasing(writer.stamps), f"identifiers or times decreased: {writer.stamps}"
