"""`/metrics`: well-formed text, numbers that add up over threads and workers, told to those who may read them."""

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from service import metrics, migrations
from service.metrics import Board, Family, Sample, render
from service.models import ChatSession, DueAnswer
from service.routes import health, operations
from service.settings import Settings
from service.web import build_app
from tests import postgres
from tests.cluster import until
from tests.conftest import Client, Reply
from tests.serving import Served, ask, chat, fill, serving

NAME, LABEL = r"[a-zA-Z_:][a-zA-Z0-9_:]*", r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:{{({LABEL}(?:,{LABEL})*)}})? (-?\d+(?:\.\d+)?(?:e[+-]\d+)?)")
KINDS = {"counter", "gauge", "histogram"}


class Told(NamedTuple):
    """What was scraped: the kind of each family, and each sample by its name and labels."""

    kinds: dict[str, str]
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]

    def value(self, name: str, **labels: object) -> float:
        return self.samples[name, frozenset((label, str(text)) for label, text in labels.items())]

    def named(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        return {labels: value for (found, labels), value in self.samples.items() if found == name}

    def total(self, name: str, **labels: object) -> float:
        wanted = {(label, str(text)) for label, text in labels.items()}
        return sum(value for found, value in self.named(name).items() if wanted <= found)


def parse(text: str) -> Told:
    """Read the text format 0.0.4 as its page describes it; whatever it does not allow is a failure."""
    assert text.endswith("\n") and "\r" not in text
    told = Told({}, {})
    helped, family = "", ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            _, _, helped, about = line.split(" ", 3)
            assert about and helped not in told.kinds, line
        elif line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert family == helped and kind in KINDS, line
            told.kinds[family] = kind
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            name = found[1]
            suffixes = ("_bucket", "_sum", "_count") if told.kinds[family] == "histogram" else ("",)
            assert name in {family + suffix for suffix in suffixes}, line
            labels = frozenset((label, text) for label, text in re.findall(LABEL, found[2] or ""))
            assert (name, labels) not in told.samples, line
            told.samples[name, labels] = float(found[0].rpartition(" ")[2])
    return told


def scrape(client: Any, **headers: str) -> Told:
    reply: Reply = client.get("//metrics", **headers) if isinstance(client, Client) else client.call("GET", "/metrics")
    assert reply.status == 200, reply.raw
    assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parse(reply.raw.decode())


# The format.


def test_every_name_is_what_its_kind_asks_for(anyone: Client) -> None:
    told = scrape(anyone)
    for name, kind in told.kinds.items():
        assert re.fullmatch(r"(cx|process)_[a-z_]+", name)
        assert name.endswith("_total") == (kind == "counter"), name
        if any(unit in name for unit in ("seconds", "bytes")):
            assert re.search(r"_(seconds|bytes)(_total)?$", name), name
    assert not [name for name in told.kinds if not any(found.startswith(name) for found, _ in told.samples)]


def test_labels_and_numbers_are_written_as_they_must_be() -> None:
    odd = 'a "quoted" \\ back\nslash é'
    text = render([Family("cx_odd", "gauge", "Odd.", [Sample(0.1 + 0.2, {"label": odd}), Sample(2.0**52)])])
    assert text.splitlines()[2:] == [
        r'cx_odd{label="a \"quoted\" \\ back\nslash é"} 0.30000000000000004',
        "cx_odd 4503599627370496",
    ]
    assert parse(text).value("cx_odd") == 2.0**52


def test_the_histogram_adds_up(anyone: Client) -> None:
    name = "cx_request_duration_seconds"
    before = scrape(anyone)  # of other tests in this process too, whose operations are others
    others = before.value(f"{name}_count") - before.total("cx_requests_total")
    taken = before.value(f"{name}_sum") - before.total("cx_request_seconds_total")
    for path in ("//healthz", "//readyz", "/nowhere"):
        anyone.get(path)
    told = scrape(anyone)
    buckets = {dict(labels)["le"]: value for labels, value in told.named(f"{name}_bucket").items()}
    assert list(buckets) == [*map(str, metrics.BUCKETS), "+Inf"]
    assert list(buckets.values()) == sorted(buckets.values())
    assert buckets["+Inf"] == told.value(f"{name}_count") == told.total("cx_requests_total") + others
    assert told.value(f"{name}_sum") == pytest.approx(told.total("cx_request_seconds_total") + taken)


def test_an_answer_falls_into_the_bucket_that_its_time_still_fits_in() -> None:
    board = Board()
    for seconds in (0.0, 0.002, 0.0021, 10.0, 10.1):
        board.answered("none", 200, seconds)
    told = parse(render(board.families([])))
    below = [told.value("cx_request_duration_seconds_bucket", le=bound) for bound in (0.002, 0.005, 2.5, 10.0, "+Inf")]
    assert below == [2, 3, 3, 4, 5]


# What is counted.


@pytest.mark.parametrize(
    ("method", "path", "operation", "status"),
    [
        ("GET", "//healthz", "check_health", 200),
        ("GET", "/users/me", "get_profile", 401),
        ("POST", "/auth/login", "log_in", 400),
        ("GET", "/nowhere", "none", 404),
        ("PUT", "/users/me", "none", 405),
        ("GET", "//metrics", "show_metrics", 200),
    ],
)
def test_a_request_is_counted_once(anyone: Client, method: str, path: str, operation: str, status: int) -> None:
    def count() -> tuple[float, float]:
        told = scrape(anyone)
        labels = frozenset({("operation", operation), ("status", str(status))})
        return told.named("cx_requests_total").get(labels, 0), told.total("cx_requests_total")

    before, all_before = count()
    assert anyone.call(method, path).status == status
    after, all_after = count()
    own = operation == "show_metrics"  # of which this one counted itself too
    assert (after - before, all_after - all_before) == (1 + own, 2)


def test_declared_statuses_begin_at_zero(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "board", Board())
    told = scrape(Client(build_app(operations(), settings)))
    for operation in operations():
        for status in operation.statuses | {500, 503}:
            assert told.value("cx_requests_total", operation=operation.name, status=status) == 0


def test_whatever_strangers_ask_for_makes_no_more_numbers(anyone: Client) -> None:
    anyone.get("//nowhere")
    anyone.call("BREW", "//nowhere")
    before = len(scrape(anyone).samples)
    for number in range(50):
        anyone.get(f"//{number}/{number}?x={number}", user_agent=str(number), x_request_id=str(number))
        anyone.call(f"BREW{number}", "//healthz", host=f"{number}.example")
    assert len(scrape(anyone).samples) <= before + 1  # 405 of no operation


def test_a_status_that_nobody_expects_is_counted_as_another() -> None:
    board = Board()
    board.answered("nobody", 418, 0.1)
    assert parse(render(board.families([]))).value("cx_requests_total", operation="none", status="other") == 1


def test_threads_lose_nothing() -> None:
    board = Board()

    def work() -> None:
        for _ in range(2000):
            board.add(metrics.IN_FLIGHT)
            board.answered("none", 200, 0.25)
            board.add(metrics.IN_FLIGHT, -1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = parse(render(board.families([])))
    assert told.value("cx_requests_total", operation="none", status=200) == 16_000
    assert told.value("cx_request_seconds_total", operation="none") == 4_000
    assert told.value("cx_requests_in_flight") == 0


def test_a_crash_is_no_longer_in_flight(settings: Settings) -> None:
    def crash(*_: Any) -> list[bytes]:
        raise KeyboardInterrupt

    client = Client(build_app(operations(), settings))
    client.application.router = crash
    before = metrics.board.total(metrics.IN_FLIGHT)
    with pytest.raises(KeyboardInterrupt):
        client.get("//healthz")
    assert metrics.board.total(metrics.IN_FLIGHT) == before


def test_there_is_room_for_many_operations_and_no_more() -> None:
    board = Board()
    board.name_operations(f"operation_{number}" for number in range(400))
    board.answered("operation_399", 200, 1.0)
    assert parse(render(board.families([]))).total("cx_requests_total", operation="operation_399") == 1
    with pytest.raises(ValueError, match="no room"):
        board.name_operations(f"operation_{number}" for number in range(500))


# The moment.


def test_processes_are_told_as_the_kernel_sees_them(anyone: Client) -> None:
    told = scrape(anyone)
    assert told.value("process_resident_memory_bytes", worker=0) > 10_000_000
    assert 3 < told.value("process_open_fds", worker=0) < told.value("process_max_fds")
    assert 0 < told.value("process_cpu_seconds_total") <= time.process_time() + 0.1
    assert told.value("process_start_time_seconds") <= time.time()
    assert metrics.usage(2**22 + 1) is None


def test_the_database_is_told_of(anyone: Client, say: Any, session: ChatSession) -> None:
    message = say("Is anybody there?")
    assert scrape(anyone).value("cx_bot_answers_due") == 0
    DueAnswer.add(message.id, session.id, ["en"])
    told = scrape(anyone)
    assert told.value("cx_bot_answers_due") == 1
    assert told.value("cx_database_up") == 1
    assert told.value("cx_schema_version") == len(migrations.STEPS)
    if not postgres.is_chosen():
        assert told.value("cx_database_bytes", part="database") > 100_000
        assert told.value("cx_database_bytes", part="journal") > 0
        assert told.value("cx_disk_free_bytes") > 0


def test_a_database_that_hangs_is_down_and_the_rest_is_told(anyone: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PATIENCE", 0.3)
    back = threading.Event()
    with pytest.raises(health.StorageUnavailable):
        health._reading.ask(lambda: back.wait(30))
    told = scrape(anyone)
    assert told.value("cx_database_up") == 0
    assert "cx_schema_version" not in told.kinds
    assert told.total("cx_requests_total") > 0
    back.set()
    until(lambda: scrape(anyone).value("cx_database_up") == 1)


# Who may read it.


LOCAL, OTHER, PROXY = "127.0.0.1", "203.0.113.7", "10.0.0.5"
TRUSTING, NAMING = {"trusted_proxy": "10.0.0.0/24"}, {"metrics_network": "203.0.113.0/24"}
BEHIND = {"trusted_proxy": LOCAL}

READERS: list[tuple[dict[str, str], str, dict[str, str], bool]] = [
    ({}, LOCAL, {}, True),
    ({}, "127.8.8.8", {}, True),
    ({}, "::1", {}, True),
    ({}, "::ffff:127.0.0.1", {}, True),
    ({}, OTHER, {}, False),
    ({}, PROXY, {}, False),
    ({}, "::2", {}, False),
    ({}, "", {}, False),
    ({}, "unknown", {}, False),
    ({}, "127.0.0.1.example", {}, False),
    # Through somebody whom nobody trusts.
    ({}, LOCAL, {"x_forwarded_for": LOCAL}, False),
    ({}, LOCAL, {"x_forwarded_for": ""}, False),
    ({}, LOCAL, {"forwarded": "for=127.0.0.1"}, False),
    ({}, LOCAL, {"via": "1.1 somewhere"}, False),
    ({}, LOCAL, {"x_real_ip": LOCAL}, False),
    ({}, LOCAL, {"x_forwarded_proto": "https"}, False),
    ({}, LOCAL, {"cf_connecting_ip": LOCAL}, False),
    (TRUSTING, LOCAL, {"x_forwarded_for": LOCAL}, False),
    # Through the proxy.
    (TRUSTING, PROXY, {"x_forwarded_for": LOCAL}, True),
    (TRUSTING, PROXY, {"x_forwarded_for": f"{LOCAL}, {OTHER}"}, False),
    (TRUSTING, PROXY, {"x_forwarded_for": OTHER}, False),
    (TRUSTING, PROXY, {}, False),
    (BEHIND, LOCAL, {}, True),  # beside the proxy, not through it
    (BEHIND, LOCAL, {"x_forwarded_for": LOCAL, "via": "1.1 proxy"}, True),
    (BEHIND, LOCAL, {"x_forwarded_for": OTHER}, False),
    (BEHIND, LOCAL, {"x_forwarded_for": "unknown"}, False),
    (BEHIND, LOCAL, {"x_forwarded_proto": "https"}, False),
    # Somebody named, in place of this host.
    (NAMING, OTHER, {}, True),
    (NAMING, "203.0.113.255", {}, True),
    (NAMING, "203.0.114.1", {}, False),
    (NAMING, LOCAL, {}, False),
    (NAMING, OTHER, {"x_forwarded_for": OTHER}, False),
    (NAMING | TRUSTING, PROXY, {"x_forwarded_for": OTHER}, True),
    (NAMING | TRUSTING, PROXY, {"x_forwarded_for": LOCAL}, False),
    ({"metrics_network": "::/0"}, "2001:db8::7", {}, True),
    ({"metrics_network": "::/0"}, LOCAL, {}, False),
]


@pytest.mark.parametrize(("chosen", "peer", "headers", "may"), READERS)
def test_only_who_may_reads_it(
    application: Any, settings: Settings, chosen: dict[str, str], peer: str, headers: dict[str, str], may: bool
) -> None:
    client = Client(build_app(operations(), replace(settings, **chosen)))  # type: ignore[arg-type]
    reply, nowhere = (client.get(path, address=peer, **headers) for path in ("//metrics", "//nowhere"))
    if may:
        assert reply.status == 200 and b"cx_requests_total" in reply.raw
    else:
        assert (reply.status, reply.raw) == (404, nowhere.raw)
        for told in (reply, nowhere):
            del told.headers["X-Request-ID"]
        assert reply.headers == nowhere.headers


def test_a_token_opens_it_to_nobody(admin: Client) -> None:
    assert admin.get("//metrics", address=OTHER).error == (404, "not_found")


def test_it_stays_with_documented_only(application: Any, settings: Settings) -> None:
    narrow = Client(build_app(operations(documented_only=True), replace(settings, documented_only=True)))
    counted = {dict(labels)["operation"] for labels in scrape(narrow).named("cx_request_seconds_total")}
    assert counted == {operation.name for operation in operations(documented_only=True)} | {"none"}


# Workers.


def numbers(told: Told) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """All that may never go backwards."""
    counters = {name for name, kind in told.kinds.items() if kind == "counter"}
    ends = tuple(
        f"{name}{end}" for name, kind in told.kinds.items() if kind == "histogram" for end in ("_bucket", "_count")
    )
    return {key: value for key, value in told.samples.items() if key[0] in counters or key[0] in ends}


def scrape_each(server: Served, times: int = 12) -> Iterator[Told]:
    """Several scrapes on connections of their own, which most likely meet several workers."""
    for _ in range(times):
        yield scrape(server)


def test_whoever_comes_in_place_of_a_dead_one_counts_on() -> None:
    board = Board(2)
    first, second = 70_001, 70_002
    for process in (first, second):
        board.sit(board.free_seat(), process)
    in_child = os.fork()
    if in_child == 0:
        board.sit(1, 0)
        board.add(metrics.IN_FLIGHT)
        board.tell(5, 4, 3)
        board.answered("none", 200, 1.0)
        os._exit(0)
    os.waitpid(in_child, 0)
    told = parse(render(board.families([])))
    assert told.value("cx_requests_total", operation="none", status=200) == 1
    assert [told.value(f"cx_{name}") for name in ("requests_in_flight", "connections", "requests_queued")] == [1, 5, 4]
    board.leave(first)
    told = parse(render(board.families([])))
    assert told.value("cx_requests_total", operation="none", status=200) == 1
    assert [told.value(f"cx_{name}") for name in ("requests_in_flight", "connections", "requests_waiting")] == [0, 0, 0]
    assert (told.value("cx_worker_starts_total"), told.value("cx_worker_deaths_total")) == (2, 1)
    assert board.free_seat() == 1


@pytest.mark.slow
def test_the_numbers_of_all_workers_are_added_up_and_outlive_them(tmp_path: Any) -> None:
    with serving(tmp_path / "data", "--workers", "3") as server:
        until(lambda: len(server.workers) == 3)
        for _ in range(60):
            server.call("GET", "/healthz")
        before = list(scrape_each(server))
        assert all(told.value("cx_requests_total", operation="check_health", status=200) == 60 for told in before)
        for earlier, later in zip(before, before[1:], strict=False):
            assert all(numbers(later)[key] >= value for key, value in numbers(earlier).items())
        assert len(before[0].named("process_resident_memory_bytes")) == 4

        victim = server.workers[0]
        os.kill(victim, signal.SIGKILL)
        until(lambda: len(set(server.workers) - {victim}) == 3)
        after = list(scrape_each(server))
        for told in after:
            assert all(numbers(told)[key] >= value for key, value in numbers(before[-1]).items())
            assert told.value("cx_requests_total", operation="check_health", status=200) == 60
            assert (told.value("cx_worker_starts_total"), told.value("cx_worker_deaths_total")) == (4, 1)


@pytest.mark.slow
def test_connections_and_those_who_wait_are_seen_from_every_worker(tmp_path: Any) -> None:
    data = tmp_path / "data"
    fill(data, chat())
    with serving(data, "--workers", "2") as server, contextlib.ExitStack() as stack:
        token = server.log_in()
        position = server.call("GET", "/api/v1/updates", token=token).data["after"]
        for _ in range(5):
            waiting = stack.enter_context(contextlib.closing(server.connect()))
            path = f"/api/v1/updates?after={position}&wait=3"
            waiting.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        until(lambda: all(told.value("cx_requests_waiting") == 5 for told in scrape_each(server, 6)))
        until(lambda: scrape(server).value("cx_requests_queued") == 0)
        assert scrape(server).value("cx_connections") >= 5
        # Whoever waits is not in flight, but for the moments in which it looks again.
        names = ("cx_requests_waiting", "cx_requests_in_flight")
        until(lambda: [scrape(server).value(name) for name in names] == [5, 1])
        until(lambda: all(told.value("cx_requests_waiting") == 0 for told in scrape_each(server, 6)))


@pytest.mark.slow
def test_headers_of_proxies_reach_the_decision_over_the_wire(tmp_path: Any) -> None:
    with serving(tmp_path / "data") as server, contextlib.closing(server.connect()) as connection:
        for name in ("X-Forwarded-For", "Forwarded", "Via", "X-Forwarded-Proto", "X-Real-IP"):
            assert ask(connection, "GET", "/metrics", headers={name: "127.0.0.1"}).status == 404, name
        assert ask(connection, "GET", "/metrics").status == 200
