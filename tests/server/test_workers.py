"""The worker processes: replaced when they end, after growing pauses if they end early; they exit without a parent."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service.server.connection_counts import ConnectionCounts
from service.server.workers import Workers
from tests.support.paths import ROOT
from tests.support.raw_http import Caller
from tests.support.server_process import chat, fill, serving

pytestmark = pytest.mark.database


TIMEOUT = 60


@pytest.fixture
def parent() -> Iterator[Workers]:
    """The parent of one worker, in this process, without the worker."""
    with socket.socket() as sock:
        made = Workers(lambda _: 0, sock, ConnectionCounts(1))
        made.due.clear()
        yield made
        for descriptor in (made.worker_pipe, made.parent_pipe, made.wakeup_read, made.wakeup_write):
            os.close(descriptor)


def pauses(parent: Workers, *lives: float) -> list[int]:
    """The pauses before the replacement of workers that lived so many seconds, one after the other."""
    found = []
    for lived in lives:
        now = time.monotonic()
        parent.replace("worker 1 ended with status 1", lived)
        found.append(round(parent.due.pop() - now))
    return found


def test_workers_that_die_early_are_replaced_after_growing_pauses(parent: Workers) -> None:
    assert pauses(parent, *[0.1] * 10) == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_worker_that_lived_long_is_replaced_at_once(parent: Workers) -> None:
    assert pauses(parent, 1, 1, 1, 59, 61, 1, 1) == [0, 1, 2, 4, 0, 1, 2]


def test_a_failed_fork_is_retried(
    parent: Workers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    parent.due = [0.0]
    parent.start_due()
    assert len(parent.due) == 1
    assert "a worker cannot be started: Resource temporarily unavailable; starting another" in caplog.text


FAILING = """
import logging, socket, sys
from service.server import workers
from service.server.connection_counts import ConnectionCounts
from service.server.workers import Workers
workers.MAX_PAUSE = 3600.0
logging.basicConfig(format="%(message)s")
def work(parent_pipe):
    raise RuntimeError("no database")
parent = Workers(work, socket.socket(), ConnectionCounts(2))
parent.early_deaths = int(sys.argv[1])
sys.exit(parent.run())
"""


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.mark.slow
def test_workers_that_cannot_start_take_little_processor_time_and_stop_on_a_signal(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as errors:
        parent = subprocess.Popen([sys.executable, "-c", FAILING, "0"], cwd=ROOT, stderr=errors)
    try:
        until(lambda: "in 4 s" in log.read_text())
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(TIMEOUT) == 0
    finally:
        parent.kill()
    messages = [
        line.partition("; ")[2] for line in log.read_text().splitlines() if line.startswith("worker ") and ";" in line
    ]
    assert messages == ["starting another"] + [f"starting another in {pause} s" for pause in (1, 2, 4)]
    assert log.read_text().count("RuntimeError: no database") == 4


@pytest.mark.slow
def test_a_pausing_parent_stops_at_once_on_a_signal(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as errors:
        parent = subprocess.Popen([sys.executable, "-c", FAILING, "11"], cwd=ROOT, stderr=errors)
    try:
        until(lambda: log.read_text().count("starting another in") == 2)  # after 1024 seconds, and 2048
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(TIMEOUT) == 0
    finally:
        parent.kill()


@pytest.mark.slow
def test_workers_that_are_killed_repeatedly_are_replaced(tmp_path: Path) -> None:
    fill(tmp_path / "data", chat())
    with serving(tmp_path / "data", "--workers", "2") as server:
        server.call("GET", "/healthz")
        for _ in range(3):
            victim = server.workers[0]
            os.kill(victim, signal.SIGKILL)
            until(lambda: len(set(server.workers) - {victim}) == 2)  # noqa: B023
            assert f"worker {victim} ended with status -9" in server.errors
        assert {server.call("GET", "/readyz").status for _ in range(10)} == {200}
        assert server.stop() == 0


@pytest.mark.slow
def test_workers_without_a_parent_complete_their_requests_and_exit(tmp_path: Path) -> None:
    fill(tmp_path / "data", chat(30))
    with serving(tmp_path / "data", "--workers", "2") as server:
        callers = [Caller(server, server.log_in()) for _ in range(4)]
        workers = server.workers
        for caller in callers:
            caller.start()
        time.sleep(0.5)
        server.process.kill()
        until(lambda: not any(is_running(worker) for worker in workers))
        for caller in callers:
            caller.join(TIMEOUT)
        outcomes = sum((caller.outcomes for caller in callers), Counter[str]())
        assert set(outcomes) == {"completed", "refused"}, outcomes
        assert outcomes["refused"] == 4
        assert server.errors.count("the parent process is gone; stopping") == 2
        with socket.socket() as other:  # the port is free again
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind((server.host, server.port))


def is_running(process: int) -> bool:
    """Whether the process exists and is not a zombie."""
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
