"""Log lines: one for each record, with the same data in both forms, and without private data."""

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

from service import logs
from service.http import middleware
from service.http.application import build_app
from service.models import ChatSession
from service.routes import operations
from service.settings import Settings
from tests.support.client import Client
from tests.support.observe import at_once
from tests.support.passwords import PASSWORD
from tests.support.paths import ROOT
from tests.support.raw_http import MALFORMED_REQUESTS, raw
from tests.support.server_process import chat, fill, serving

pytestmark = pytest.mark.database


STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
FORGED = "\n2026-11-20T10:00:00.000Z INFO cx.requests GET /admin 200\r\x1b[31m\x9b\u2028\x85é"
Written = Callable[[], list[str]]


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """The parent of all loggers of the service, at the lowest level."""
    logger = logging.getLogger("cx")
    logger.setLevel(logging.DEBUG)
    yield logger
    logger.setLevel(logging.NOTSET)


@pytest.fixture(params=["text", "json"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def written(log: logging.Logger, form: str) -> Iterator[Written]:
    """The lines that have been written so far, in a form."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.FORMATTERS[form]())
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
def test_a_text_line_begins_with_its_time(log: logging.Logger, written: Written) -> None:
    log.warning("there are %s", 3)
    (line,) = written()
    assert re.fullmatch(rf"{STAMP} WARNING cx there are 3", line)


@pytest.mark.parametrize("form", ["json"], indirect=True)
def test_a_json_line_is_an_object(log: logging.Logger, written: Written) -> None:
    log.warning("there are %s", 3)
    record = json.loads(written()[0])
    assert re.fullmatch(STAMP, record.pop("time"))
    assert record == {"level": "warning", "logger": "cx", "message": "there are 3"}


def test_times_are_those_of_the_record_truncated_to_milliseconds(form: str) -> None:
    formatter = logs.FORMATTERS[form]()
    record = logging.makeLogRecord({"msg": "x", "levelname": "INFO"})
    for created, seconds in ((0.0019, "00.001Z"), (59.999, "59.999Z"), (1.5, "01.500Z"), (1.25, "01.250Z")):
        record.created = created
        assert f"1970-01-01T00:00:{seconds}" in formatter.format(record)


def test_lines_cannot_be_forged(log: logging.Logger, written: Written) -> None:
    log.warning("received %s", FORGED)
    (line,) = written()
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029]", line)
    assert "é" in line and "GET /admin 200" in line


def test_a_lone_surrogate_can_be_written(form: str) -> None:
    record = logging.makeLogRecord({"msg": "\ud800é", "levelname": "INFO"})
    assert "\\ud800é" in logs.FORMATTERS[form]().format(record).encode().decode()


@pytest.mark.parametrize("form", ["text"], indirect=True)
def test_a_traceback_in_text_is_indented_below_its_line(written: Written) -> None:
    fail(f"oh{FORGED}")
    first, *below = written()
    assert re.fullmatch(rf"{STAMP} ERROR cx\.server it broke", first)
    assert below[0] == "    Traceback (most recent call last):"
    assert [line for line in below if "GET /admin" in line]
    assert all(re.fullmatch(r"    [^\x00-\x1f\x7f-\x9f\u2028\u2029]+", line) for line in below)


@pytest.mark.parametrize("form", ["json"], indirect=True)
def test_a_traceback_in_json_is_a_member(written: Written) -> None:
    fail(f"oh{FORGED}")
    (line,) = written()
    record = json.loads(line)
    assert record["message"] == "it broke"
    assert record["traceback"].startswith("Traceback (most recent call last):\n")
    assert record["traceback"].endswith(f"ValueError: oh{FORGED}")


def test_announcements_are_written_at_every_level(log: logging.Logger, written: Written) -> None:
    log.setLevel(logging.ERROR)
    logging.getLogger("cx.server").info("unheard")
    logs.announce("it listens")
    (line,) = written()
    assert "it listens" in line


# Buffered records.


class Watched(io.StringIO):
    """Counts the writes to it, and can be full."""

    times, is_full = 0, False

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError("No space left on device")
        self.times += 1
        return super().write(text)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> logs.BufferedHandler:
    handler = logs.BufferedHandler()
    handler.setFormatter(logs.TextFormatter())
    handler.setStream(Watched())
    monkeypatch.setattr(logging, "raiseExceptions", False)
    return handler


def emit(lines: logs.BufferedHandler, *messages: Any) -> None:
    for one in messages:
        lines.handle(logging.LogRecord("cx", logging.INFO, "", 0, "it is %d", (one,), None))


def numbers(lines: logs.BufferedHandler) -> list[int]:
    return [int(line.rpartition(" ")[2]) for line in lines.stream.getvalue().splitlines()]


def test_buffered_records_are_written_together_at_the_end(lines: logs.BufferedHandler) -> None:
    with lines.buffered():
        emit(lines, 1, 2, 3)
        assert not numbers(lines)
    assert numbers(lines) == [1, 2, 3] and lines.stream.times == 1
    emit(lines, 4)
    assert numbers(lines) == [1, 2, 3, 4] and lines.stream.times == 2


def test_buffered_records_are_written_after_an_exception(lines: logs.BufferedHandler) -> None:
    with pytest.raises(ValueError, match="broke"), lines.buffered():
        emit(lines, 1)
        raise ValueError("it broke")
    assert numbers(lines) == [1]


def test_a_full_buffer_is_written_at_once(lines: logs.BufferedHandler) -> None:
    with lines.buffered():
        emit(lines, *range(2 * logs.MAX_BUFFERED + 1))
        assert numbers(lines) == [*range(2 * logs.MAX_BUFFERED)]
    assert numbers(lines) == [*range(2 * logs.MAX_BUFFERED + 1)] and lines.stream.times == 3


def test_records_of_other_threads_are_not_buffered(lines: logs.BufferedHandler) -> None:
    with lines.buffered():
        emit(lines, 1)
        at_once(1, lambda _: emit(lines, 2))
        assert numbers(lines) == [2]
    assert numbers(lines) == [2, 1]


def test_a_record_that_cannot_be_formatted_does_not_affect_others(lines: logs.BufferedHandler) -> None:
    with lines.buffered():
        emit(lines, 1, "no number", 3)
    assert numbers(lines) == [1, 3]
    lines.stream.is_full = True
    with lines.buffered():
        emit(lines, 4)
    lines.stream.is_full = False
    emit(lines, 5)
    assert numbers(lines) == [1, 3, 5]


# Requests.


@pytest.mark.parametrize("form", ["json"], indirect=True)
def test_a_request_is_logged_with_members(alice: Client, session: ChatSession, written: Written) -> None:
    reply = alice.get(f"/chats/{session.id}/messages?limit=3", x_request_id="given", address="203.0.113.7")
    record = json.loads(written()[-1])
    assert 0 < record.pop("duration_ms") < 60_000
    assert re.fullmatch(STAMP, record.pop("time"))
    path = f"/api/v1/chats/{session.id}/messages"
    assert record == {
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
        "request_id": "given",
    }


@pytest.mark.parametrize("form", ["text"], indirect=True)
def test_the_text_line_of_a_request_has_the_same_data(alice: Client, written: Written) -> None:
    reply = alice.get("/users/me", x_request_id="given", address="203.0.113.7")
    about = rf"\d+\.\dms {len(reply.raw)}B get_profile 203\.0\.113\.7 {alice.user.id} given"
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
def test_requests_without_operation_or_user_are_logged(
    anyone: Client, written: Written, method: str, path: str, status: int, operation: str
) -> None:
    reply = anyone.call(method, path)
    record = json.loads(written()[-1])
    assert (record["status"], record["operation"], record["user"]) == (status, operation, "")
    assert record["bytes"] == len(reply.raw)
    assert record["request_id"] == reply.headers["X-Request-ID"]


@pytest.mark.parametrize("form", ["json"], indirect=True)
@pytest.mark.parametrize("path", ["//healthz", "/nowhere"])
def test_the_logged_client_is_the_one_of_the_trusted_proxy(
    application: Any, settings: Settings, written: Written, path: str
) -> None:
    anyone = Client(build_app(operations(), replace(settings, trusted_proxy="10.0.0.5")))
    for peer, seen in (("10.0.0.5", "203.0.113.7"), ("10.0.0.6", "10.0.0.6")):
        anyone.get(path, address=peer, x_forwarded_for="203.0.113.7")
        assert json.loads(written()[-1])["client"] == seen


@pytest.mark.parametrize("form", ["json"], indirect=True)
def test_a_crash_is_logged_with_the_request_and_its_traceback(settings: Settings, written: Written) -> None:
    def crash(*_: Any) -> list[bytes]:
        raise RuntimeError("an internal detail")

    broken = Client(middleware.Middleware(crash, settings))
    broken.may_crash = True
    reply = broken.get("/users/me", x_request_id="trace-me")
    assert reply.error == (500, "internal_error")
    failed, answered = map(json.loads, written())
    assert failed["request_id"] == answered["request_id"] == "trace-me"
    assert failed["message"] == "request trace-me failed"
    assert "RuntimeError: an internal detail" in failed["traceback"]
    assert (answered["status"], answered["bytes"]) == (500, len(reply.raw))


def test_no_secrets_are_logged(alice: Client, anyone: Client, written: Written) -> None:
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


def test_at_level_warning_no_record_of_a_request_is_created(
    anyone: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def make(*_: Any) -> None:
        raise AssertionError("a line was made")

    monkeypatch.setattr(middleware, "RequestHandled", make)
    caplog.set_level(logging.WARNING, "cx.requests")
    assert anyone.get("//healthz").status == 200
    anyone.may_crash = True
    caplog.set_level(logging.INFO, "cx.requests")
    with pytest.raises(AssertionError):
        anyone.get("//healthz")


# A server.


@pytest.mark.slow
def test_all_lines_of_a_server_are_json(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data, chat())
    with serving(data, "--workers", "2", "--log-format", "json", "--log-level", "debug") as server:
        token = server.log_in()
        server.logged("/auth/login")  # each worker writes its own lines, so the order of theirs is not said
        server.call("GET", "/api/v1/users/me", token=token)
        server.logged("/users/me")
        status, headers, body = raw(server, MALFORMED_REQUESTS[1])
        assert server.stop() == 0
    messages = [json.loads(line) for line in server.errors.splitlines()]
    assert messages[0]["message"] == f"cx-service listens on {server.url}"
    requests = [one for one in messages if one["logger"] == "cx.requests"]
    assert [one["status"] for one in requests] == [200, 200, 400]
    assert requests[1]["user"] and requests[1]["client"] == "127.0.0.1"
    refused = requests[2]
    assert (refused["method"], refused["path"], refused["operation"]) == ("-", "-", "none")
    assert (refused["request_id"], refused["bytes"], status) == (headers["x-request-id"], len(body), 400)
    assert token not in server.errors and PASSWORD not in server.errors


@pytest.mark.slow
def test_an_exception_that_ends_a_thread_is_logged() -> None:
    code = "import threading; from service import logs; logs.configure('info', 'json'); "
    code += "threading.Thread(target=lambda: 1 // 0).start()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=30)
    (record,) = map(json.loads, done.stderr.splitlines())
    assert record["message"] == "a thread has failed"
    assert record["traceback"].endswith("ZeroDivisionError: integer division or modulo by zero")
