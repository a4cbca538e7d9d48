"""Log lines: one for each record whatever is in it, the same in both forms, and nothing in them that is nobody's."""

import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service import edge, logs
from service.models import ChatSession
from service.routes import operations
from service.settings import Settings
from service.web import build_app
from tests.conftest import PASSWORD, Client
from tests.serving import ROOT, chat, fill, serving
from tests.test_serve import GARBAGE, raw
from tests.watching import at_once

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
FORGED = "\n2026-11-20T10:00:00.000Z INFO cx.requests GET /admin 200\r\x1b[31m\x9b\u2028\x85é"
Written = Callable[[], list[str]]


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """What all loggers of ours hang on, as talkative as it can be."""
    logger = logging.getLogger("cx")
    logger.setLevel(logging.DEBUG)
    yield logger
    logger.setLevel(logging.NOTSET)


@pytest.fixture(params=["text", "json"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def written(log: logging.Logger, form: str) -> Iterator[Written]:
    """What has been written so far, in a form: the lines that a program finds in it."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.FORMS[form]())
    log.addHandler(handler)
    yield lambda: stream.getvalue().split("\n")[:-1]
    log.removeHandler(handler)


def fail(text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        logging.getLogger("cx.server").exception("it %s", "broke")


# Forms.


@pytest.mark.parametrize("form", ["text"], indirect=True)
def test_a_line_for_people_begins_with_its_time(log: logging.Logger, written: Written) -> None:
    log.warning("there are %s", 3)
    (line,) = written()
    assert re.fullmatch(rf"{STAMP} WARNING cx there are 3", line)


@pytest.mark.parametrize("form", ["json"], indirect=True)
def test_a_line_for_programs_is_an_object(log: logging.Logger, written: Written) -> None:
    log.warning("there are %s", 3)
    told = json.loads(written()[0])
    assert re.fullmatch(STAMP, told.pop("time"))
    assert told == {"level": "warning", "logger": "cx", "message": "there are 3"}


def test_times_are_of_the_record_and_cut_to_milliseconds(form: str) -> None:
    formatter = logs.FORMS[form]()
    record = logging.makeLogRecord({"msg": "x", "levelname": "INFO"})
    for created, told in ((0.0019, "00.001Z"), (59.999, "59.999Z"), (1.5, "01.500Z"), (1.25, "01.250Z")):
        record.created = created
        assert f"1970-01-01T00:00:{told}" in formatter.format(record)


def test_nobody_forges_a_line(log: logging.Logger, written: Written) -> None:
    log.warning("somebody said %s", FORGED)
    (line,) = written()
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029]", line)
    assert "é" in line and "GET /admin 200" in line


def test_half_a_character_can_be_written(form: str) -> None:
    record = logging.makeLogRecord({"msg": "\ud800é", "levelname": "INFO"})
    assert "\\ud800é" in logs.FORMS[form]().format(record).encode().decode()


@pytest.mark.parametrize("form", ["text"], indirect=True)
def test_a_traceback_for_people_stands_indented_below_its_line(written: Written) -> None:
    fail(f"oh{FORGED}")
    first, *below = written()
    assert re.fullmatch(rf"{STAMP} ERROR cx\.server it broke", first)
    assert below[0] == "    Traceback (most recent call last):"
    assert [line for line in below if "GET /admin" in line]
    assert all(re.fullmatch(r"    [^\x00-\x1f\x7f-\x9f\u2028\u2029]+", line) for line in below)


@pytest.mark.parametrize("form", ["json"], indirect=True)
def test_a_traceback_for_programs_is_a_member(written: Written) -> None:
    fail(f"oh{FORGED}")
    (line,) = written()
    told = json.loads(line)
    assert told["message"] == "it broke"
    assert told["traceback"].startswith("Traceback (most recent call last):\n")
    assert told["traceback"].endswith(f"ValueError: oh{FORGED}")


def test_announcements_are_written_at_every_level(log: logging.Logger, written: Written) -> None:
    log.setLevel(logging.ERROR)
    logging.getLogger("cx.server").info("unheard")
    logs.announce("it listens")
    (line,) = written()
    assert "it listens" in line


# What is held.


class Watched(io.StringIO):
    """Counts how often it was written to, and may be full."""

    times, is_full = 0, False

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError("No space left on device")
        self.times += 1
        return super().write(text)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> logs.Lines:
    handler = logs.Lines()
    handler.setFormatter(logs.Text())
    handler.setStream(Watched())
    monkeypatch.setattr(logging, "raiseExceptions", False)
    return handler


def tell(lines: logs.Lines, *told: Any) -> None:
    for one in told:
        lines.handle(logging.LogRecord("cx", logging.INFO, "", 0, "it is %d", (one,), None))


def numbers(lines: logs.Lines) -> list[int]:
    return [int(line.rpartition(" ")[2]) for line in lines.stream.getvalue().splitlines()]


def test_what_is_held_is_written_together_at_the_end(lines: logs.Lines) -> None:
    with lines.held():
        tell(lines, 1, 2, 3)
        assert not numbers(lines)
    assert numbers(lines) == [1, 2, 3] and lines.stream.times == 1
    tell(lines, 4)
    assert numbers(lines) == [1, 2, 3, 4] and lines.stream.times == 2


def test_what_is_held_is_also_written_after_a_failure(lines: logs.Lines) -> None:
    with pytest.raises(ValueError, match="broke"), lines.held():
        tell(lines, 1)
        raise ValueError("it broke")
    assert numbers(lines) == [1]


def test_not_more_is_held_than_a_pipe_takes_in_one_piece(lines: logs.Lines) -> None:
    with lines.held():
        tell(lines, *range(2 * logs.AT_ONCE + 1))
        assert numbers(lines) == [*range(2 * logs.AT_ONCE)]
    assert numbers(lines) == [*range(2 * logs.AT_ONCE + 1)] and lines.stream.times == 3


def test_other_threads_do_not_wait_for_what_one_holds(lines: logs.Lines) -> None:
    with lines.held():
        tell(lines, 1)
        at_once(1, lambda _: tell(lines, 2))
        assert numbers(lines) == [2]
    assert numbers(lines) == [2, 1]


def test_a_record_that_cannot_be_written_takes_no_other_with_it(lines: logs.Lines) -> None:
    with lines.held():
        tell(lines, 1, "no number", 3)
    assert numbers(lines) == [1, 3]
    lines.stream.is_full = True
    with lines.held():
        tell(lines, 4)
    lines.stream.is_full = False
    tell(lines, 5)
    assert numbers(lines) == [1, 3, 5]


# Requests.


@pytest.mark.parametrize("form", ["json"], indirect=True)
def test_a_request_is_told_in_members(alice: Client, session: ChatSession, written: Written) -> None:
    reply = alice.get(f"/chats/{session.id}/messages?limit=3", x_request_id="told", address="203.0.113.7")
    told = json.loads(written()[-1])
    assert 0 < told.pop("duration_ms") < 60_000
    assert re.fullmatch(STAMP, told.pop("time"))
    path = f"/api/v1/chats/{session.id}/messages"
    assert told == {
        "level": "info",
        "logger": "cx.requests",
        "message": f"GET {path} 200",
        "method": "GET",
        "path": path,
        "status": 200,
        "bytes": len(reply.raw),
        "operation": "list_messages",
        "client": "203.0.113.7",
        "user": alice.user.id,
        "request_id": "told",
    }


@pytest.mark.parametrize("form", ["text"], indirect=True)
def test_people_read_the_same(alice: Client, written: Written) -> None:
    reply = alice.get("/users/me", x_request_id="told", address="203.0.113.7")
    about = rf"\d+\.\dms {len(reply.raw)}B get_profile 203\.0\.113\.7 {alice.user.id} told"
    assert re.fullmatch(rf"{STAMP} INFO cx\.requests GET /api/v1/users/me 200 {about}", written()[-1])


@pytest.mark.parametrize("form", ["json"], indirect=True)
@pytest.mark.parametrize(
    ("method", "path", "status", "operation"),
    [
        ("GET", "/users/me", 401, "get_profile"),
        ("GET", "/nowhere", 404, "none"),
        ("OPTIONS", "/users/me", 204, "none"),
        ("HEAD", "//healthz", 200, "check_health"),
        ("GET", "//static/nothing.css", 404, "none"),
    ],
)
def test_so_is_what_reaches_no_operation_or_nobody(
    anyone: Client, written: Written, method: str, path: str, status: int, operation: str
) -> None:
    reply = anyone.call(method, path)
    told = json.loads(written()[-1])
    assert (told["status"], told["operation"], told["user"]) == (status, operation, "")
    assert told["bytes"] == len(reply.raw)
    assert told["request_id"] == reply.headers["X-Request-ID"]


@pytest.mark.parametrize("form", ["json"], indirect=True)
@pytest.mark.parametrize("path", ["//healthz", "/nowhere"])
def test_the_client_is_whom_the_trusted_proxy_names(
    application: Any, settings: Settings, written: Written, path: str
) -> None:
    anyone = Client(build_app(operations(), replace(settings, trusted_proxy="10.0.0.5")))
    for peer, seen in (("10.0.0.5", "203.0.113.7"), ("10.0.0.6", "10.0.0.6")):
        anyone.get(path, address=peer, x_forwarded_for="203.0.113.7")
        assert json.loads(written()[-1])["client"] == seen


@pytest.mark.parametrize("form", ["json"], indirect=True)
def test_a_crash_is_told_with_the_request_and_its_traceback(settings: Settings, written: Written) -> None:
    def crash(*_: Any) -> list[bytes]:
        raise RuntimeError("the secret of the house")

    broken = Client(edge.Edge(crash, settings))
    broken.may_crash = True
    reply = broken.get("/users/me", x_request_id="trace-me")
    assert reply.error == (500, "internal_error")
    failed, answered = map(json.loads, written())
    assert failed["request_id"] == answered["request_id"] == "trace-me"
    assert failed["message"] == "request trace-me failed"
    assert "RuntimeError: the secret of the house" in failed["traceback"]
    assert (answered["status"], answered["bytes"]) == (500, len(reply.raw))


def test_nothing_that_is_secret_is_written(alice: Client, anyone: Client, written: Written) -> None:
    secret = "hush-hush"
    anyone.post("/auth/login", {"email": f"{secret}@example.com", "password": PASSWORD})
    anyone.post("/auth/login", {"email": alice.user.email, "password": PASSWORD})
    alice.get(f"/users/me?token={secret}", cookie=f"a={secret}", user_agent=secret, referer=f"/{secret}")
    anyone.get(f"//api/v1/events.ics?token={secret}", authorization=f"Bearer {secret}")
    alice.patch("/users/me", {"first_name": secret})
    text = "\n".join(written())
    assert "GET /api/v1/users/me 200" in text and "GET /api/v1/events.ics" in text
    for hidden in (secret, PASSWORD, alice.token, alice.user.email):
        assert hidden not in text


def test_at_warning_no_line_for_a_request_is_even_made(
    anyone: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def make(*_: Any) -> None:
        raise AssertionError("a line was made")

    monkeypatch.setattr(edge, "Answered", make)
    caplog.set_level(logging.WARNING, "cx.requests")
    assert anyone.get("//healthz").status == 200
    anyone.may_crash = True
    caplog.set_level(logging.INFO, "cx.requests")
    with pytest.raises(AssertionError):
        anyone.get("//healthz")


# A server.


@pytest.mark.slow
def test_all_that_a_server_writes_is_json(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data, chat())
    with serving(data, "--workers", "2", "--log-format", "json", "--log-level", "debug") as server:
        token = server.log_in()
        server.logged("/auth/login")  # each worker writes its own lines, so the order of theirs is not said
        server.call("GET", "/api/v1/users/me", token=token)
        server.logged("/users/me")
        status, headers, body = raw(server, GARBAGE[1])
        assert server.stop() == 0
    told = [json.loads(line) for line in server.errors.splitlines()]
    assert told[0]["message"] == f"cx-service listens on {server.url}"
    requests = [one for one in told if one["logger"] == "cx.requests"]
    assert [one["status"] for one in requests] == [200, 200, 400]
    assert requests[1]["user"] and requests[1]["client"] == "127.0.0.1"
    refused = requests[2]
    assert (refused["method"], refused["path"], refused["operation"]) == ("-", "-", "none")
    assert (refused["request_id"], refused["bytes"], status) == (headers["x-request-id"], len(body), 400)
    assert token not in server.errors and PASSWORD not in server.errors


@pytest.mark.slow
def test_what_ends_a_thread_is_a_record_too() -> None:
    code = "import threading; from service import logs; logs.set_up('info', 'json'); "
    code += "threading.Thread(target=lambda: 1 // 0).start()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=30)
    (told,) = map(json.loads, done.stderr.splitlines())
    assert told["message"] == "a thread has failed"
    assert told["traceback"].endswith("ZeroDivisionError: integer division or modulo by zero")
