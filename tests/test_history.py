"""Samples of the last hour, and the charts drawn from them."""

import re
import threading

import pytest

from service import db, history
from service.console.charts import HEIGHT, MARGIN, WIDTH, draw
from service.history import Point, Sample
from service.metrics import BUCKETS, OPERATIONS, SharedMetrics, Traffic
from tests.support.faults import disk_full

NOTHING = Traffic(0, 0, 0.0, (0,) * (len(BUCKETS) + 1), 0, 0)


def sample(at: float, requests: float = 0, errors: float = 0, seconds: float = 0.0, place: int = 0) -> Sample:
    buckets = tuple(requests if number == place else 0 for number in range(len(BUCKETS) + 1))
    return Sample(at, Traffic(requests, errors, seconds, buckets, 0, 0), None, None)


def test_traffic_counts_the_requests_of_all_processes() -> None:
    shared = SharedMetrics(1)
    shared.name_operations(["one"])
    shared.count_response("one", 200, 0.001)
    shared.worker_started(1, 0)
    shared.count_response("one", 503, 0.5)
    shared.count_response("none", 500, 99.0)
    shared.set_gauges(3, 2, 1)
    traffic = shared.traffic()
    assert (traffic.requests, traffic.errors, traffic.connections, traffic.queued) == (3, 2, 3, 2)
    assert traffic.seconds == pytest.approx(99.501)
    assert (traffic.buckets[0], traffic.buckets[BUCKETS.index(0.5)], traffic.buckets[-1]) == (1, 1, 1)
    assert shared.total(OPERATIONS) == 0


def test_rates_are_differences_between_samples() -> None:
    taken = [sample(0), sample(10, requests=50, errors=5, seconds=1.0), sample(20, requests=50, errors=5, seconds=1.0)]
    assert history.request_rates(taken) == [Point(10, 5.0), Point(20, 0.0)]
    assert history.error_rates(taken) == [Point(10, 30.0), Point(20, 0.0)]
    assert history.mean_durations(taken) == [Point(10, 20.0), Point(20, None)]


def test_rates_are_finite_when_the_clock_is_set_back() -> None:
    assert history.request_rates([sample(10), sample(5, requests=1)]) == [Point(5, 1000.0)]


@pytest.mark.parametrize(("place", "milliseconds"), [(0, 2.0), (5, 100.0), (len(BUCKETS), 10_000.0)])
def test_slow_duration_is_the_bound_of_a_bucket(place: int, milliseconds: float) -> None:
    assert history.slow_durations([sample(0), sample(10, requests=9, place=place)]) == [Point(10, milliseconds)]


def test_slow_duration_ignores_the_slowest_requests() -> None:
    counts = (95.0, *[0.0] * (len(BUCKETS) - 1), 5.0)
    assert history.slow_durations([sample(0), Sample(1, NOTHING._replace(buckets=counts), None, None)])[0].value == 2.0


@pytest.mark.database
def test_sample_has_the_size_of_the_database_and_the_pending_replies(application: object) -> None:
    taken = history.take_sample()
    assert taken.pending_replies == 0
    assert taken.database_bytes is None or taken.database_bytes > 100_000


@pytest.mark.database
def test_sample_is_taken_without_a_database(application: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise disk_full()

    monkeypatch.setattr(type(db.database.obj), "sizes", lambda _: fail())
    taken = history.take_sample()
    assert (taken.database_bytes, taken.pending_replies) == (None, None)


@pytest.mark.database
def test_samples_are_recorded_until_the_server_stops(application: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "INTERVAL", 0.01)
    history.samples.clear()
    stopping = threading.Event()
    with history.recording(stopping):
        for _ in range(1000):
            if len(history.samples) > 1:
                break
            stopping.wait(0.01)
    stopping.set()
    assert len(history.samples) > 1
    [thread] = [one for one in threading.enumerate() if one.name == "history"] or [None]
    if thread:
        thread.join(5)
        assert not thread.is_alive()
    history.samples.clear()


def test_samples_are_kept_for_an_hour() -> None:
    assert history.samples.maxlen == history.MAX_SAMPLES == 3600 / history.INTERVAL


def coordinates(lines: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", lines)]


def test_chart_reaches_from_edge_to_edge_and_begins_at_zero() -> None:
    chart = draw("Requests", [Point(100, 0.0), Point(110, 5.0), Point(120, 10.0)], " ms")
    bottom, top, right = HEIGHT - MARGIN, MARGIN, WIDTH - MARGIN
    assert coordinates(chart.lines) == [(MARGIN, bottom), (WIDTH / 2, HEIGHT / 2), (right, top)]
    assert (chart.current, chart.text) == ("10 ms", "Lowest 0 ms, highest 10 ms, mean 5 ms.")


def test_chart_is_interrupted_where_no_value_is_known() -> None:
    chart = draw("Duration", [Point(0, 1.0), Point(1, None), Point(2, 3.0), Point(3, 3.0)], "", 1)
    assert re.findall("[ML]", chart.lines) == ["M", "M", "L"]
    assert chart.current == "3.0"


@pytest.mark.parametrize("points", [[], [Point(0, None)]])
def test_chart_without_values_says_so(points: list[Point]) -> None:
    chart = draw("Size", points, " MiB")
    assert (chart.text, chart.lines, chart.current) == ("No values yet.", "", "–")


@pytest.mark.parametrize("points", [[Point(5, 0.0)], [Point(5, 7.0)], [Point(5, 1.0), Point(5, 1.0)]])
def test_chart_of_one_moment_is_inside_the_drawing(points: list[Point]) -> None:
    for x, y in coordinates(draw("Queue", points, "").lines):
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT
