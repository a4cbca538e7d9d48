"""The bench: what it measures, how it reads its own figures, and what it draws of them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from service.models.chats import PIN_LIMIT
from service.transfer import take_in
from tests.bench import chart, load, processes, report, run, trials, world
from tests.bench.contestants import PROGRAMS, ROOT, Limit, encoded
from tests.bench.limit import application
from tests.bench.measure import Turn, told
from tests.bench.works import WORKS
from tests.cluster import find
from tests.conftest import Client

# Of the service, of the limit or of bare SQLite, of the peers: requests per second, microseconds for each.
SEEN = {
    "page": {"service": (1000, 900), "limit": (4000, 450), "fastapi": (100, 9000), "pocketbase": (200, 7200)},
    "send": {"service": (900, 1000), "bare": (1000, 80), "ninja": (300, 2500), "fastapi": (400, 1500)},
}


def results(**more: Any) -> dict[str, Any]:
    lines = []
    for name, seen in SEEN.items():
        turns = {who: [Turn(rate, cost, 5.0)] for who, (rate, cost) in seen.items()}
        lines.append(told(next(work for work in WORKS if work.name == name), turns))
    lines.append({"name": "unchanged", "title": "unchanged page", "absent": "its answer has no ETag"})
    claims = [
        trials.Claim("warm start", 0.3, "s", 0.35, {"FastAPI": 0.9})._asdict(),
        trials.Claim("memory", 61.0, "MiB", 60)._asdict(),
    ]
    lines.append({"name": "start", "claims": claims})
    about = {"date": "2026-11-21", "quick": False, "processors": 2, "python": "3.11.7", "versions": {"fastapi": "1.0"}}
    return {**about, "lines": lines, **more}


class TestTheLines:
    def test_are_all_that_was_asked_for(self) -> None:
        goals = {work.name: (work.share, work.peer, work.p99) for work in WORKS}
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
        assert set(trials.TRIALS) == {"deep", "together", "start", "memory", "size"}
        assert {*run.QUICK, run.WAITING} < set(run.ROWS)
        assert all(work.writes for work in WORKS if work.asks[0][0] != "GET")

    @pytest.fixture
    def alice(self, application: Any, tmp_path: Path) -> Client:
        """Alice of the bench, in whose name all is asked."""
        file = tmp_path / "records.jsonl"
        file.write_bytes(b"".join(world.json_lines(world.records(world.LITTLE))))
        assert take_in([file]) == []
        whom = {"email": world.EMAIL, "password": world.PASSWORD}
        return Client(application, Client(application).post("/auth/login", whom).data["tokens"]["access_token"])

    def test_are_answered_by_the_service_as_each_says(self, alice: Client) -> None:
        for work in WORKS:
            for method, path, body in work.asks[:: max(1, len(work.asks) // 2)]:
                reply = alice.call(method, path.removeprefix("/api/v1"), body, content_type="application/json")
                assert reply.status == work.status, (work.name, reply.json)
                assert not work.items or len(reply.data) == work.items, work.name
        page = alice.get(f"/chats/{world.TALK}/messages?limit=25")
        assert 24_000 < len(page.raw) < 28_000

    def test_pin_fewer_messages_of_a_session_than_may_be(self) -> None:
        sessions = [session for session, _ in world.pinnable()]
        assert max(map(sessions.count, sessions)) < PIN_LIMIT
        assert len({message for _, message in world.pinnable()}) == len(sessions)


class TestTheTable:
    def test_tells_what_was_seen_and_marks_what_misses_its_goal(self) -> None:
        page, send, unchanged = report.markdown(results()).splitlines()[4:7]
        assert "900 µs, 1,000/s | 0.50 (≥ 0.5)" in page
        assert "| 8.0 × (5.0 ×) | 10.0 × (10.0 ×) | – | 8.0 × (≥ 8) |" in page
        assert "1,000 µs, 900/s | 0.90 (≥ 0.8) |" in send
        assert "✗ 1.5 × (≥ 2)" in send
        assert "✗ its answer has no ETag" in unchanged

    def test_tells_claims_about_the_service_alone(self) -> None:
        *_, start, memory = report.markdown(results()).splitlines()
        assert start == "| warm start | 0.30 s (≤ 0.35) | 0.90 s |"
        assert memory == "| memory | ✗ 61 MiB (≤ 60) | – |"

    def test_tells_of_a_disk_that_waits_beside_the_others(self) -> None:
        page, send, _ = results()["lines"][:3]
        lines = report.markdown(results(lines=[page], **{run.WAITING: [send]})).splitlines()
        (place,) = (number for number, line in enumerate(lines) if f"{run.DELAY} ms more for each sync" in line)
        assert "900 µs, 1,000/s" in lines[place - 2]
        assert lines[place + 4].startswith("| send a message | 1,000 µs, 900/s | 0.90 (≥ 0.8) |")
        assert "sync" not in report.markdown(results())

    def test_says_when_it_was_measured_and_beside_whom(self) -> None:
        assert "2026-11-21, with 2 processors and Python 3.11.7, beside fastapi 1.0" in report.markdown(results())
        assert "in the short form" in report.markdown(results(quick=True))

    def test_takes_ratios_from_rounds_and_not_from_medians(self) -> None:
        ours = [Turn(100, cost, 1) for cost in (10, 20, 40)]
        theirs = [Turn(50, cost, 1) for cost in (30, 40, 200)]  # 3, 2 and 5 times
        line = told(WORKS[0], {"service": ours, "fastapi": theirs})
        assert line["seen"]["fastapi"] == {"rate": 50, "cost": 40, "p99": 1, "times_cost": 3, "times_rate": 2}


class TestThePicture:
    def drawn(self) -> ElementTree.Element:
        return ElementTree.fromstring(chart.svg(results()))

    def test_has_a_line_for_each_piece_of_work_and_the_date(self) -> None:
        words = [element.text for element in self.drawn().iter() if element.tag.endswith("text")]
        assert "page of 25 messages" in words
        assert "send a message" in words
        assert "unchanged page" not in words
        assert any("2026-11-21" in str(word) for word in words)

    def test_puts_who_takes_more_time_further_to_the_right(self) -> None:
        places: dict[str, list[float]] = {}
        for element in self.drawn():
            name = element.get("class", "").split()[0] if element.get("class") else ""
            if name in chart.MARKS:
                at = element.get("cx") or element.get("points", "").split(",")[0]
                places.setdefault(name, []).append(float(at))
        # The first of each is that of the legend; the first line of work follows.
        limit, service, pocketbase, fastapi = (
            places[name][1] for name in ("limit", "service", "pocketbase", "fastapi")
        )
        assert limit < service < pocketbase < fastapi
        assert len(places["service"]) == 1 + len(SEEN)
        assert service == places["service"][2]

    def test_has_colours_for_light_and_dark_pages(self) -> None:
        light, _, dark = chart.svg(results()).partition("@media(prefers-color-scheme:dark)")
        for _, _, by_day, by_night in chart.MARKS.values():
            assert by_day in light
            assert by_night in dark

    def test_that_is_shown_was_drawn_by_the_bench(self) -> None:
        shown = ElementTree.parse(ROOT / "docs" / "bench.svg").getroot()
        assert "Processor time of a request" in shown.get("aria-label", "")
        date = shown.get("aria-label", "").rpartition("(")[2].rstrip(")")
        assert f"Measured on {date}" in (ROOT / "docs" / "bench.md").read_text()


def working(code: str) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()  # until it has done its work
        yield process


SPEND = "import time\nwhile time.process_time() < 0.3: pass\n"


class TestWhatAServerCosts:
    @pytest.mark.parametrize(
        ("code", "spent"),
        [
            (f"{SPEND}print(flush=True); input()", 0.3),
            (f"import os\nif not os.fork():\n  exec({SPEND!r}); print(flush=True)\ninput()", 0.3),  # a child that lives
            (f"import os\nif not os.fork(): exec({SPEND!r}); os._exit(0)\nos.wait(); print(flush=True); input()", 0.3),
            ("import time; time.sleep(0.3); print(flush=True); input()", 0.0),
        ],
        ids=["by itself", "through a child", "through a child that has ended", "asleep"],
    )
    def test_is_the_time_that_processors_worked_for_it(self, code: str, spent: float) -> None:
        for process in working(code):
            seen = processes.processor_seconds(process.pid)
            assert spent <= seen + 0.02
            assert seen < spent + 0.25  # an interpreter's start, or two
            assert process.stdin
            process.stdin.write(b"\n\n")

    def test_is_memory_that_it_has_at_hand(self) -> None:
        for process in working("held = b'x' * 50_000_000; print(flush=True); input()"):
            assert 50_000_000 < processes.resident_bytes(process.pid) < 150_000_000
            assert process.stdin
            process.stdin.write(b"\n")


class TestTheLimit:
    def test_sends_what_the_service_has_sent(self) -> None:
        limit = Limit()
        limit.learn("/a?b=c", processes.Answer(200, {"etag": '"1"', "date": "today"}, b"page"), known=False)
        limit.learn("/a?b=c", processes.Answer(304, {"etag": '"1"'}, b""), known=True)
        sent: list[Any] = []
        environ = {"PATH_INFO": "/a", "QUERY_STRING": "b=c"}
        answer = application(limit.answers)
        assert answer(environ, lambda *head: sent.append(head)) == [b"page"]
        assert answer({**environ, "HTTP_IF_NONE_MATCH": '"1"'}, lambda *head: sent.append(head)) == [b""]
        assert sent == [("200 OK", [("Etag", '"1"')]), ("304 Not Modified", [("Etag", '"1"')])]


class TestData:
    def test_are_made_anew_only_when_they_would_differ(self, tmp_path: Path) -> None:
        made: list[world.Size] = []

        def fill(folder: Path, size: world.Size) -> None:
            folder.mkdir()
            made.append(size)

        first = run.kept(tmp_path, "long", world.LITTLE, fill)
        assert run.kept(tmp_path, "long", world.LITTLE, fill) == first
        other = world.LITTLE._replace(messages=1)
        assert run.kept(tmp_path, "long", other, fill) != first
        assert made == [world.LITTLE, other]


def test_a_request_has_the_form_of_http() -> None:
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
    told = {**os.environ, **environment}
    line = [sys.executable, "-m", "tests.bench", *arguments]
    return subprocess.run(line, cwd=ROOT, env=told, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_without_wrk_it_says_what_to_install(tmp_path: Path) -> None:
    done = bench("size", PATH=str(tmp_path))
    assert done.returncode == 2
    assert "apt-get install wrk" in done.stderr


@pytest.mark.slow
def test_a_disk_can_be_made_to_wait(tmp_path: Path) -> None:
    find("strace", "strace")
    code = "import os, time; file = os.open('a', os.O_CREAT | os.O_WRONLY); begun = time.perf_counter(); "
    code += "[os.fsync(file) for _ in range(10)]; os.fdatasync(file); print(time.perf_counter() - begun)"
    done = subprocess.run([*run.SLOWED, sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=True)
    assert float(done.stdout) > 11 * run.DELAY / 1000


@pytest.mark.slow
def test_everybody_does_the_work() -> None:
    """Whoever lacks the tools need not have them: CI neither."""
    if not load.found() or not PROGRAMS.exists():
        pytest.skip("NOT TESTED: the bench needs wrk, and its peers, which `make bench` installs")
    begun = time.time()
    done = bench("--quick", "settings", "size")
    assert done.returncode == 0, done.stderr
    settings, executable = json.loads((ROOT / "build" / "bench" / "bench-quick.json").read_text())["lines"]
    assert set(settings["seen"]) == {"service", "limit", "pocketbase", "fastapi", "ninja"}
    assert all(seen["cost"] > 0 and seen["rate"] > 0 for seen in settings["seen"].values())
    assert executable["claims"][0]["title"] == "the executable"
    assert (ROOT / "docs" / "bench.svg").stat().st_mtime < begun  # which shows whole runs only
