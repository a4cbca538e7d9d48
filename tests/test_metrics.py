"""`/metrics`: well-formed text, sums over threads and workers, and access."""

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from service import metrics
from service.db import migrations
from service.http.application import build_app
from service.metrics import Family, Sample, SharedMetrics, render
from service.models import ChatSession, Delivery, PendingReply
from service.routes import health, operations
from service.settings import Settings
from tests.support import postgres
from tests.support.client import Client
from tests.support.cluster import until
from tests.support.metrics import Metrics, parse, scrape
from tests.support.server_process import Served, chat, fill, send_request, serving

pytestmark = pytest.mark.database


# The format.


def test_names_follow_the_conventions_of_their_type(anyone: Client) -> None:
    scraped = scrape(anyone)
    for name, kind in scraped.kinds.items():
        assert re.fullmatch(r"(cx|process)_[a-z_]+", name)
        assert name.endswith("_total") == (kind == "counter"), name
        if any(unit in name for unit in ("seconds", "bytes")):
            assert re.search(r"_(seconds|bytes)(_total)?$", name), name
    assert not [name for name in scraped.kinds if not any(found.startswith(name) for found, _ in scraped.samples)]


def test_labels_and_numbers_are_escaped_and_formatted() -> None:
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
    scraped = scrape(anyone)
    buckets = {dict(labels)["le"]: value for labels, value in scraped.named(f"{name}_bucket").items()}
    assert list(buckets) == [*map(str, metrics.BUCKETS), "+Inf"]
    assert list(buckets.values()) == sorted(buckets.values())
    assert buckets["+Inf"] == scraped.value(f"{name}_count") == scraped.total("cx_requests_total") + others
    assert scraped.value(f"{name}_sum") == pytest.approx(scraped.total("cx_request_seconds_total") + taken)


def test_a_response_is_counted_in_the_bucket_of_its_duration() -> None:
    shared = SharedMetrics()
    for seconds in (0.0, 0.002, 0.0021, 10.0, 10.1):
        shared.count_response("none", 200, seconds)
    scraped = parse(render(shared.families([])))
    below = [
        scraped.value("cx_request_duration_seconds_bucket", le=bound) for bound in (0.002, 0.005, 2.5, 10.0, "+Inf")
    ]
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
        scraped = scrape(anyone)
        labels = frozenset({("operation", operation), ("status", str(status))})
        return scraped.named("cx_requests_total").get(labels, 0), scraped.total("cx_requests_total")

    before, all_before = count()
    assert anyone.call(method, path).status == status
    after, all_after = count()
    own = operation == "show_metrics"  # of which this one counted itself too
    assert (after - before, all_after - all_before) == (1 + own, 2)


def test_declared_statuses_begin_at_zero(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "shared", SharedMetrics())
    scraped = scrape(Client(build_app(operations(), settings)))
    for operation in operations():
        for status in operation.all_statuses | {500, 503}:
            assert scraped.value("cx_requests_total", operation=operation.name, status=status) == 0


def test_unknown_addresses_add_no_time_series(anyone: Client) -> None:
    anyone.get("//nowhere")
    anyone.call("BREW", "//nowhere")
    before = len(scrape(anyone).samples)
    for number in range(50):
        anyone.get(f"//{number}/{number}?x={number}", user_agent=str(number), x_request_id=str(number))
        anyone.call(f"BREW{number}", "//healthz", host=f"{number}.example")
    assert len(scrape(anyone).samples) <= before + 1  # 405 of no operation


def test_an_unknown_status_is_counted_as_other() -> None:
    shared = SharedMetrics()
    shared.count_response("unknown", 418, 0.1)
    assert parse(render(shared.families([]))).value("cx_requests_total", operation="none", status="other") == 1


def test_concurrent_counting_loses_nothing() -> None:
    shared = SharedMetrics()

    def work() -> None:
        for _ in range(2000):
            shared.add(metrics.IN_FLIGHT)
            shared.count_response("none", 200, 0.25)
            shared.add(metrics.IN_FLIGHT, -1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    scraped = parse(render(shared.families([])))
    assert scraped.value("cx_requests_total", operation="none", status=200) == 16_000
    assert scraped.value("cx_request_seconds_total", operation="none") == 4_000
    assert scraped.value("cx_requests_in_flight") == 0


def test_a_crashed_request_is_not_in_flight(settings: Settings) -> None:
    def crash(*_: Any) -> list[bytes]:
        raise KeyboardInterrupt

    client = Client(build_app(operations(), settings))
    client.application.router = crash
    before = metrics.shared.total(metrics.IN_FLIGHT)
    with pytest.raises(KeyboardInterrupt):
        client.get("//healthz")
    assert metrics.shared.total(metrics.IN_FLIGHT) == before


def test_there_is_space_for_a_limited_number_of_operations() -> None:
    shared = SharedMetrics()
    shared.name_operations(f"operation_{number}" for number in range(400))
    shared.count_response("operation_399", 200, 1.0)
    assert parse(render(shared.families([]))).total("cx_requests_total", operation="operation_399") == 1
    with pytest.raises(ValueError, match="no space"):
        shared.name_operations(f"operation_{number}" for number in range(500))


# The moment.


def test_process_metrics_match_the_kernel(anyone: Client) -> None:
    scraped = scrape(anyone)
    assert scraped.value("process_resident_memory_bytes", worker=0) > 10_000_000
    assert 3 < scraped.value("process_open_fds", worker=0) < scraped.value("process_max_fds")
    assert 0 < scraped.value("process_cpu_seconds_total") <= time.process_time() + 0.1
    assert scraped.value("process_start_time_seconds") <= time.time()
    assert metrics.process_usage(2**22 + 1) is None


def test_database_metrics_are_reported(anyone: Client, say: Any, session: ChatSession) -> None:
    message = say("Is a person there?")
    assert scrape(anyone).value("cx_bot_replies_due") == 0
    PendingReply.add(message.id, session.id, ["en"])
    Delivery.create(channel="webhook", kind="chat.created", due_at=0)
    Delivery.create(channel="email", kind="login", due_at=0, failed_at=1)
    scraped = scrape(anyone)
    assert scraped.value("cx_bot_replies_due") == 1
    assert scraped.value("cx_deliveries", channel="webhook", state="pending") == 1
    assert scraped.value("cx_deliveries", channel="email", state="failed") == 1
    assert scraped.value("cx_deliveries", channel="email", state="pending") == 0
    assert scraped.value("cx_database_up") == 1
    assert scraped.value("cx_schema_version") == len(migrations.STEPS)
    if not postgres.is_chosen():
        assert scraped.value("cx_database_bytes", part="database") > 100_000
        assert scraped.value("cx_database_bytes", part="journal") > 0
        assert scraped.value("cx_disk_free_bytes") > 0


@pytest.mark.slow
def test_a_database_that_hangs_is_down_and_other_metrics_are_reported(
    anyone: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "DATABASE_TIMEOUT", 0.3)
    back = threading.Event()
    with pytest.raises(health.StorageUnavailable):
        health._read_probe.run(lambda: back.wait(30))
    scraped = scrape(anyone)
    assert scraped.value("cx_database_up") == 0
    assert "cx_schema_version" not in scraped.kinds
    assert scraped.total("cx_requests_total") > 0
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
    # Through an untrusted proxy.
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
    # An operator-named network, in place of this host.
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
def test_only_permitted_networks_can_read_metrics(
    application: Any, settings: Settings, chosen: dict[str, str], peer: str, headers: dict[str, str], may: bool
) -> None:
    client = Client(build_app(operations(), replace(settings, **chosen)))  # type: ignore[arg-type]
    reply, nowhere = (client.get(path, address=peer, **headers) for path in ("//metrics", "//nowhere"))
    if may:
        assert reply.status == 200 and b"cx_requests_total" in reply.raw
    else:
        assert (reply.status, reply.raw) == (404, nowhere.raw)
        for scraped in (reply, nowhere):
            del scraped.headers["X-Request-ID"]
        assert reply.headers == nowhere.headers


def test_a_token_does_not_give_access_to_metrics(admin: Client) -> None:
    assert admin.get("//metrics", address=OTHER).error == (404, "not_found")


def test_metrics_are_available_with_documented_only(application: Any, settings: Settings) -> None:
    narrow = Client(build_app(operations(documented_only=True), replace(settings, documented_only=True)))
    counted = {dict(labels)["operation"] for labels in scrape(narrow).named("cx_request_seconds_total")}
    assert counted == {operation.name for operation in operations(documented_only=True)} | {"none"}


# Workers.


def numbers(scraped: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The counters, which must not decrease."""
    counters = {name for name, kind in scraped.kinds.items() if kind == "counter"}
    ends = tuple(
        f"{name}{end}" for name, kind in scraped.kinds.items() if kind == "histogram" for end in ("_bucket", "_count")
    )
    return {key: value for key, value in scraped.samples.items() if key[0] in counters or key[0] in ends}


def scrape_each(server: Served, times: int = 12) -> Iterator[Metrics]:
    """Several scrapes on separate connections, which most likely reach several workers."""
    for _ in range(times):
        yield scrape(server)


def test_the_replacement_of_a_dead_worker_continues_its_counters() -> None:
    shared = SharedMetrics(2)
    first, second = 70_001, 70_002
    for process in (first, second):
        shared.worker_started(shared.free_slot(), process)
    in_child = os.fork()
    if in_child == 0:
        shared.worker_started(1, 0)
        shared.add(metrics.IN_FLIGHT)
        shared.set_gauges(5, 4, 3)
        shared.count_response("none", 200, 1.0)
        os._exit(0)
    os.waitpid(in_child, 0)
    scraped = parse(render(shared.families([])))
    assert scraped.value("cx_requests_total", operation="none", status=200) == 1
    assert [scraped.value(f"cx_{name}") for name in ("requests_in_flight", "connections", "requests_queued")] == [
        1,
        5,
        4,
    ]
    shared.worker_ended(first)
    scraped = parse(render(shared.families([])))
    assert scraped.value("cx_requests_total", operation="none", status=200) == 1
    assert [scraped.value(f"cx_{name}") for name in ("requests_in_flight", "connections", "requests_waiting")] == [
        0,
        0,
        0,
    ]
    assert (scraped.value("cx_worker_starts_total"), scraped.value("cx_worker_deaths_total")) == (2, 1)
    assert shared.free_slot() == 1


@pytest.mark.slow
def test_metrics_of_all_workers_are_summed_and_outlive_them(tmp_path: Any) -> None:
    with serving(tmp_path / "data", "--workers", "3") as server:
        until(lambda: len(server.workers) == 3)
        for _ in range(60):
            server.call("GET", "/healthz")
        before = list(scrape_each(server))
        assert all(scraped.value("cx_requests_total", operation="check_health", status=200) == 60 for scraped in before)
        for earlier, later in zip(before, before[1:], strict=False):
            assert all(numbers(later)[key] >= value for key, value in numbers(earlier).items())
        assert len(before[0].named("process_resident_memory_bytes")) == 4

        victim = server.workers[0]
        os.kill(victim, signal.SIGKILL)
        until(lambda: len(set(server.workers) - {victim}) == 3)
        after = list(scrape_each(server))
        for scraped in after:
            assert all(numbers(scraped)[key] >= value for key, value in numbers(before[-1]).items())
            assert scraped.value("cx_requests_total", operation="check_health", status=200) == 60
            assert (scraped.value("cx_worker_starts_total"), scraped.value("cx_worker_deaths_total")) == (4, 1)


@pytest.mark.slow
def test_connections_and_long_polls_are_visible_in_every_worker(tmp_path: Any) -> None:
    data = tmp_path / "data"
    fill(data, chat())
    with serving(data, "--workers", "2") as server, contextlib.ExitStack() as stack:
        token = server.log_in()
        position = server.call("GET", "/api/v1/updates", token=token).data["after"]
        for _ in range(5):
            waiting = stack.enter_context(contextlib.closing(server.connect()))
            path = f"/api/v1/updates?after={position}&wait=3"
            waiting.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        until(lambda: all(scraped.value("cx_requests_waiting") == 5 for scraped in scrape_each(server, 6)))
        until(lambda: scrape(server).value("cx_requests_queued") == 0)
        assert scrape(server).value("cx_connections") >= 5
        # Long polls are in flight only while they look for changes.
        names = ("cx_requests_waiting", "cx_requests_in_flight")
        until(lambda: [scrape(server).value(name) for name in names] == [5, 1])
        until(lambda: all(scraped.value("cx_requests_waiting") == 0 for scraped in scrape_each(server, 6)))


@pytest.mark.slow
def test_proxy_headers_are_used_for_access_to_metrics(tmp_path: Any) -> None:
    with serving(tmp_path / "data") as server, contextlib.closing(server.connect()) as connection:
        for name in ("X-Forwarded-For", "Forwarded", "Via", "X-Forwarded-Proto", "X-Real-IP"):
            assert send_request(connection, "GET", "/metrics", headers={name: "127.0.0.1"}).status == 404, name
        assert send_request(connection, "GET", "/metrics").status == 200
