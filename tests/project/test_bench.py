"""The benchmark: its workloads, its report and its picture."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from service.models.messages import PIN_LIMIT
from service.operate.import_export import import_files
from service.pictures import is_avatar, make_avatar
from tests.bench import chart, checks, dataset, load, processes, report, run, small
from tests.bench.limit import application
from tests.bench.measure import Claim, Round, summary
from tests.bench.servers import PROGRAMS, ROOT, Limit, encoded
from tests.bench.workloads import WORKLOADS
from tests.support.client import Client
from tests.support.cluster import find, until
from tests.support.executable import executable_fixture as executable_fixture

# By server: requests per second, microseconds per request.
MEASURED = {
    "page": {"service": (1000, 900), "limit": (4000, 450), "fastapi": (100, 9000), "pocketbase": (200, 7200)},
    "send": {"service": (900, 1000), "bare": (1000, 80), "ninja": (300, 2500), "fastapi": (400, 1500)},
}


def results(**more: Any) -> dict[str, Any]:
    lines = []
    for name, measured in MEASURED.items():
        rounds_by_server = {server: [Round(rate, cost, 5.0)] for server, (rate, cost) in measured.items()}
        lines.append(summary(next(work for work in WORKLOADS if work.name == name), rounds_by_server))
    lines.append({"name": "unchanged", "title": "unchanged page", "absent": "the response has no ETag"})
    claims = [
        Claim("warm start", 0.3, "s", 0.35, {"FastAPI": 0.9})._asdict(),
        Claim("memory", 61.0, "MiB", 60)._asdict(),
    ]
    lines.append({"name": "start", "claims": claims})
    about = {"date": "2026-11-21", "quick": False, "processors": 2, "python": "3.11.7", "versions": {"fastapi": "1.0"}}
    return {**about, "lines": lines, **more}


class TestTheWorkloads:
    def test_have_their_goals(self) -> None:
        goals = {work.name: (work.share, work.peer, work.p99) for work in WORKLOADS}
        assert goals == {
            "page": (0.5, 8, None),
            "page100": (0.5, 8, None),
            "bots": (0.4, 5, None),
            "search": (None, 5, 20),
            "notifications": (0.5, 5, None),
            "events": (0.5, 5, None),
            "settings": (0.5, 2, None),
            "unchanged": (0.7, None, None),
            "pin": (0.8, 2, None),
            "feedback": (0.8, 2, None),
            "send": (0.8, 2, None),
        }
        assert set(checks.CHECKS) == {"deep", "together", "streams", "deliveries", "start", "memory", "size"}
        assert {*run.QUICK, run.SLOW_DISK} < set(run.ROWS)
        assert all(work.writes for work in WORKLOADS if work.requests[0][0] != "GET")

    @pytest.fixture
    def alice(self, application: Any, tmp_path: Path) -> Client:
        """The user who sends all requests."""
        file = tmp_path / "records.jsonl"
        file.write_bytes(b"".join(dataset.json_lines(dataset.records(dataset.LITTLE))))
        assert import_files([file]) == []
        credentials = {"email": dataset.EMAIL, "password": dataset.PASSWORD}
        return Client(application, Client(application).post("/auth/login", credentials).data["tokens"]["access_token"])

    def test_return_the_expected_responses_of_the_service(self, alice: Client) -> None:
        for work in WORKLOADS:
            for method, path, body in work.requests[:: max(1, len(work.requests) // 2)]:
                reply = alice.call(method, path.removeprefix("/api/v1"), body, content_type="application/json")
                assert reply.status == work.status, (work.name, reply.json)
                assert not work.items or len(reply.data) == work.items, work.name
        page = alice.get(f"/chats/{dataset.TALK}/messages?limit=25")
        assert 24_000 < len(page.raw) < 28_000

    def test_pin_fewer_messages_than_the_limit(self) -> None:
        sessions = [session for session, _ in dataset.pinnable()]
        assert max(map(sessions.count, sessions)) < PIN_LIMIT
        assert len({message for _, message in dataset.pinnable()}) == len(sessions)


class TestTheTable:
    def test_has_the_results_and_marks_missed_goals(self) -> None:
        page, send, unchanged = report.markdown(results()).splitlines()[4:7]
        assert "900 µs, 1,000/s | 0.50 (≥ 0.5)" in page
        assert "| 8.0 × (5.0 ×) | 10.0 × (10.0 ×) | – | 8.0 × (≥ 8) |" in page
        assert "1,000 µs, 900/s | 0.90 (≥ 0.8) |" in send
        assert "✗ 1.5 × (≥ 2)" in send
        assert "✗ the response has no ETag" in unchanged

    def test_has_the_checks_of_the_service(self) -> None:
        *_, start, memory = report.markdown(results()).splitlines()
        assert start == "| warm start | 0.30 s (≤ 0.35) | 0.90 s |"
        assert memory == "| memory | ✗ 61 MiB (≤ 60) | – |"

    def test_has_the_writes_on_a_slow_disk(self) -> None:
        page, send, _ = results()["lines"][:3]
        lines = report.markdown(results(lines=[page], **{run.SLOW_DISK: [send]})).splitlines()
        (place,) = (number for number, line in enumerate(lines) if f"each sync delayed by {run.DELAY} ms" in line)
        assert "900 µs, 1,000/s" in lines[place - 2]
        assert lines[place + 4].startswith("| send a message | 1,000 µs, 900/s | 0.90 (≥ 0.8) |")
        assert "sync" not in report.markdown(results())

    def test_has_the_date_the_machine_and_the_versions(self) -> None:
        assert "2026-11-21, with 2 processors and Python 3.11.7, compared with fastapi 1.0" in report.markdown(
            results()
        )
        assert "in the short form" in report.markdown(results(quick=True))

    def test_has_medians_of_the_ratios_of_rounds(self) -> None:
        own = [Round(100, cost, 1) for cost in (10, 20, 40)]
        others = [Round(50, cost, 1) for cost in (30, 40, 200)]  # 3, 2 and 5 times
        line = summary(WORKLOADS[0], {"service": own, "fastapi": others})
        assert line["measured"]["fastapi"] == {"rate": 50, "cost": 40, "p99": 1, "times_cost": 3, "times_rate": 2}


class TestThePicture:
    def parsed_svg(self) -> ElementTree.Element:
        return ElementTree.fromstring(chart.svg(results()))

    def test_has_a_line_per_operation_and_the_date(self) -> None:
        words = [element.text for element in self.parsed_svg().iter() if element.tag.endswith("text")]
        assert "page of 25 messages" in words
        assert "send a message" in words
        assert "unchanged page" not in words
        assert any("2026-11-21" in str(word) for word in words)

    def test_has_slower_servers_further_to_the_right(self) -> None:
        places: dict[str, list[float]] = {}
        for element in self.parsed_svg():
            name = element.get("class", "").split()[0] if element.get("class") else ""
            if name in chart.MARKS:
                at = element.get("cx") or element.get("points", "").split(",")[0]
                places.setdefault(name, []).append(float(at))
        # The first mark of each server is in the legend, the second on the first line.
        limit, service, pocketbase, fastapi = (
            places[name][1] for name in ("limit", "service", "pocketbase", "fastapi")
        )
        assert limit < service < pocketbase < fastapi
        assert len(places["service"]) == 1 + len(MEASURED)
        assert service == places["service"][2]

    def test_has_colours_for_light_and_dark_pages(self) -> None:
        light, _, dark = chart.svg(results()).partition("@media(prefers-color-scheme:dark)")
        for _, _, by_day, by_night in chart.MARKS.values():
            assert by_day in light
            assert by_night in dark

    def test_in_docs_has_the_date_of_the_table(self) -> None:
        shown = ElementTree.parse(ROOT / "docs" / "bench.svg").getroot()
        assert "Processor time of a request" in shown.get("aria-label", "")
        date = shown.get("aria-label", "").rpartition("(")[2].rstrip(")")
        assert f"Measured on {date}" in (ROOT / "docs" / "bench.md").read_text()


def working(code: str) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()  # until it has finished its work
        yield process


SPEND = "import time\nwhile time.process_time() < 0.3: pass\n"


class TestTheMeasurement:
    @pytest.mark.parametrize(
        ("code", "spent"),
        [
            (f"{SPEND}print(flush=True); input()", 0.3),
            (f"import os\nif not os.fork():\n  exec({SPEND!r}); print(flush=True)\ninput()", 0.3),  # a running child
            (f"import os\nif not os.fork(): exec({SPEND!r}); os._exit(0)\nos.wait(); print(flush=True); input()", 0.3),
            ("import time; time.sleep(0.3); print(flush=True); input()", 0.0),
        ],
        ids=["by itself", "through a child", "through a child that has ended", "asleep"],
    )
    def test_of_processor_time_includes_children(self, code: str, spent: float) -> None:
        for process in working(code):
            measured = processes.processor_seconds(process.pid)
            assert spent <= measured + 0.02
            assert measured < spent + 0.25  # an interpreter's start, or two
            assert process.stdin
            process.stdin.write(b"\n\n")

    def test_of_memory_is_the_resident_memory(self) -> None:
        for process in working("held = b'x' * 50_000_000; print(flush=True); input()"):
            assert 50_000_000 < processes.resident_bytes(process.pid) < 150_000_000
            assert process.stdin
            process.stdin.write(b"\n")


class TestASmallHost:
    @pytest.mark.slow
    def test_has_one_core_and_little_memory(self) -> None:
        code = "import os, sys; print(len(os.sched_getaffinity(0)), flush=True); held = bytes([1]) * int(sys.argv[1])"
        with small.limits() as limited:
            statuses = []
            for size in (small.MEMORY // 2, small.MEMORY + 2**20):
                command = [*limited.command, sys.executable, "-c", code, str(size)]
                done = subprocess.run(command, capture_output=True, text=True)
                assert done.stdout == "1\n"
                statuses.append(done.returncode)
        assert statuses[0] == 0
        assert statuses[1] != 0

    def test_receives_the_largest_picture_that_is_accepted(self) -> None:
        assert is_avatar(make_avatar(small.largest_picture()))

    def test_measures_the_largest_memory_from_a_moment_on(self) -> None:
        code = "held = b'x' * 90_000_000; del held; print(flush=True); input(); held = b'x' * 50_000_000; input()"
        for process in working(code):
            server = processes.Server(process.pid, 0)
            assert small.peak(server) > 90_000_000 / 2**20
            small.forget_peak(server)
            assert process.stdin
            process.stdin.write(b"\n")
            process.stdin.flush()
            until(lambda pid=process.pid: processes.resident_bytes(pid) > 50_000_000)
            assert 50_000_000 / 2**20 < small.peak(server) < 80
            process.stdin.write(b"\n")

    def test_table_has_the_goals(self) -> None:
        claims = [Claim("warm start", 0.4, "s", 0.35), Claim("page", 2488.3, "/s")]
        *_, start, page = small.markdown(claims, small.Limits([], "limited by `ulimit -v`"), quick=False).splitlines()
        assert (start, page) == ("| warm start | ✗ 0.40 s (≤ 0.35) |", "| page | 2,488 /s |")

    @pytest.mark.slow
    def test_serves_without_failed_requests(self) -> None:
        find("wrk", "wrk")
        document = small.DOCUMENT.read_text()
        done = bench("--quick", "small")
        assert done.returncode == 0, done.stderr
        assert "in the short form" in done.stdout
        assert "| the same, failed requests | 0 (≤ 0) |" in done.stdout
        assert small.DOCUMENT.read_text() == document  # only complete runs update it
        assert small.BEGIN in document


class TestTheLimit:
    def test_sends_the_responses_of_the_service(self) -> None:
        limit = Limit()
        limit.add_response("/a?b=c", processes.Response(200, {"etag": '"1"', "date": "today"}, b"page"), known=False)
        limit.add_response("/a?b=c", processes.Response(304, {"etag": '"1"'}, b""), known=True)
        sent: list[Any] = []
        environ = {"PATH_INFO": "/a", "QUERY_STRING": "b=c"}
        respond = application(limit.responses)
        assert respond(environ, lambda *head: sent.append(head)) == [b"page"]
        assert respond({**environ, "HTTP_IF_NONE_MATCH": '"1"'}, lambda *head: sent.append(head)) == [b""]
        assert sent == [("200 OK", [("Etag", '"1"')]), ("304 Not Modified", [("Etag", '"1"')])]


class TestData:
    def test_is_created_again_only_if_it_has_changed(self, tmp_path: Path) -> None:
        sizes: list[dataset.Size] = []

        def fill(folder: Path, size: dataset.Size) -> None:
            folder.mkdir()
            sizes.append(size)

        first = run.data_folder(tmp_path, "long", dataset.LITTLE, fill)
        assert run.data_folder(tmp_path, "long", dataset.LITTLE, fill) == first
        other = dataset.LITTLE._replace(messages=1)
        assert run.data_folder(tmp_path, "long", other, fill) != first
        assert sizes == [dataset.LITTLE, other]


def test_request_is_valid_http() -> None:
    sent = load.request(80, "POST", "/feedback", encoded({"a": "é"}), {"Authorization": "Bearer x"})
    head, _, body = sent.partition(b"\r\n\r\n")
    assert head.splitlines() == [
        b"POST /feedback HTTP/1.1",
        b"Host: 127.0.0.1:80",
        b"Connection: keep-alive",
        b"Authorization: Bearer x",
        b"Content-Length: %d" % len(body),
    ]
    assert json.loads(body) == {"a": "é"}


def bench(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    variables = {**os.environ, **environment}
    command = [sys.executable, "-m", "tests.bench", *arguments]
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_missing_wrk_is_reported(tmp_path: Path) -> None:
    done = bench("size", PATH=str(tmp_path))
    assert done.returncode == 2
    assert "apt-get install wrk" in done.stderr


@pytest.mark.slow
def test_another_executable_is_measured_beside_this_one(executable: Path, tmp_path: Path) -> None:
    find("wrk", "wrk")
    other = tmp_path / "other.pyz"
    other.write_bytes(executable.read_bytes())
    done = bench("--quick", "--against", str(other), "settings", "start")
    assert done.returncode == 0, done.stderr
    heading, _, settings, _, _, _, start = done.stdout.splitlines()
    assert heading == "| operation | service | other executable | p99 |"
    assert re.fullmatch(r"\| settings \| [\d,]+ µs, [\d,]+/s \| \d+\.\d × \(\d+\.\d ×\) \| \d+ ms \|", settings)
    assert re.fullmatch(r"\| warm start to the first response \| \d\.\d\d s \| \d\.\d\d s \|", start)


@pytest.mark.slow
def test_slow_disk_delays_syncs(tmp_path: Path) -> None:
    find("strace", "strace")
    code = "import os, time; file = os.open('a', os.O_CREAT | os.O_WRONLY); start = time.perf_counter(); "
    code += "[os.fsync(file) for _ in range(10)]; os.fdatasync(file); print(time.perf_counter() - start)"
    done = subprocess.run(
        [*run.SLOW_DISK_COMMAND, sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=True
    )
    assert float(done.stdout) > 11 * run.DELAY / 1000


@pytest.mark.slow
def test_all_servers_are_measured() -> None:
    """Skipped without the tools, also in CI."""
    if not load.find_wrk() or not PROGRAMS.exists():
        pytest.skip("NOT TESTED: the benchmark needs wrk, and the other servers, which `make bench` installs")
    start = time.time()
    done = bench("--quick", "settings", "size")
    assert done.returncode == 0, done.stderr
    settings, executable = json.loads((ROOT / "build" / "bench" / "bench-quick.json").read_text())["lines"]
    assert set(settings["measured"]) == {"service", "limit", "pocketbase", "fastapi", "ninja"}
    assert all(result["cost"] > 0 and result["rate"] > 0 for result in settings["measured"].values())
    assert executable["claims"][0]["title"] == "the executable"
    assert (ROOT / "docs" / "bench.svg").stat().st_mtime < start  # only complete runs update it
