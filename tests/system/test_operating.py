"""docs/operating.md and the unit: their configurations work, and their limits and formats are correct."""

import contextlib
import ctypes
import json
import os
import re
import resource
import shlex
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from service import outbox, queue_worker, server, timer
from service.db import FILE_NAME
from service.http.middleware import RequestHandled
from service.settings import Settings
from tests.support import postgres
from tests.support.client import Client
from tests.support.cluster import Proxy, adapt, daemon, find, unprivileged_folder, until
from tests.support.documentation import TEXT, code_block
from tests.support.metrics import scrape
from tests.support.paths import ROOT
from tests.support.pictures import jpeg
from tests.support.server_process import TIMEOUT, Served, chat, environment, fill, send_request, serving

pytestmark = pytest.mark.database


UNIT = ROOT / "docs" / "cx-service.service"
PROGRAM = "/usr/local/bin/cx-service.pyz"
EXPOSURE = 1.5  # of 10, as systemd-analyze rates it
ON_SQLITE = pytest.mark.sqlite_only("the same on both databases")
MDWE = 65, 1  # PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN: the effect of MemoryDenyWriteExecute= (prctl(2))


class RepeatedDirectives(dict[str, str]):
    """Joins the values of a repeated directive as lines."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value if name not in self or isinstance(value, str) else [*self[name], *value])


def unit() -> dict[str, str]:
    """The directives of the section Service of the unit."""
    parser = RawConfigParser(dict_type=RepeatedDirectives, strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNIT)
    return dict(parser["Service"])


# The unit.


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit with an existing program."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace(PROGRAM, sys.executable))
    return copy


@ON_SQLITE
def test_unit_is_valid(installed: Path) -> None:
    line = [find("systemd-analyze", "systemd"), "verify", "--man=no", str(installed)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@ON_SQLITE
def test_unit_has_a_low_exposure(installed: Path) -> None:
    line = [find("systemd-analyze", "systemd"), "security", "--offline=true", "--no-pager", str(installed)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT)
    rated = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert rated, done.stdout + done.stderr
    assert float(rated[1]) <= EXPOSURE


def test_stop_timeout_of_the_unit_is_long_enough() -> None:
    service = unit()
    threads = outbox.worker.SHUTDOWN_TIMEOUT + queue_worker.SHUTDOWN_TIMEOUT + timer.SHUTDOWN_TIMEOUT
    longest = server.DRAIN_TIMEOUT + threads + 1
    assert int(service["TimeoutStopSec"].removesuffix("s")) > 2 * longest
    assert service["KillMode"] == "mixed"  # the parent process forwards the signal to the workers, once


@contextlib.contextmanager
def as_a_unit(folder: Path, *before: str) -> Iterator[tuple[Served, socket.socket]]:
    """Start the service with the settings of the unit that work without systemd. Yields it and the notify socket."""
    service = unit()
    program, *flags = shlex.split(service["ExecStart"])
    assert program == PROGRAM
    places = {"%S": str(folder / "state"), "%C": str(folder / "cache")}
    variables = dict(line.split("=", 1) for line in service["Environment"].split("\n"))
    for name, value in variables.items():
        for mark, place in places.items():
            value = value.replace(mark, place)
        variables[name] = value
    limit = int(service["LimitNOFILE"])

    def confine() -> None:
        os.umask(int(service["UMask"], 8))
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        assert ctypes.CDLL(None).prctl(*MDWE, 0, 0, 0) == 0

    line = [*before, sys.executable, str(ROOT / "app.py"), *flags, "--port", "0"]
    output, errors = folder / "out", folder / "err"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        output.open("wb") as out,
        errors.open("wb") as err,
    ):
        manager.bind(str(folder / "notify"))
        manager.settimeout(TIMEOUT)
        environ = environment(**variables, NOTIFY_SOCKET=str(folder / "notify"))
        process = subprocess.Popen(
            line, env=environ, stdout=out, stderr=err, preexec_fn=confine, start_new_session=True, cwd=folder
        )
        try:
            yield Served(process, output, errors), manager
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def allowed_calls() -> set[str]:
    """The system calls that the filters of the unit allow."""
    done = subprocess.run(
        [find("systemd-analyze", "systemd"), "syscall-filter"], capture_output=True, text=True, timeout=TIMEOUT
    )
    groups = {
        name: re.findall(r"^    ([@\w-]+)$", body, re.MULTILINE)
        for name, body in re.findall(r"^(@\S+)\n((?:    .*\n)+)", done.stdout + "\n", re.MULTILINE)
    }

    def of(name: str) -> set[str]:
        if not name.startswith("@"):
            return {name}
        return set().union(*map(of, groups[name]))

    first, second = unit()["SystemCallFilter"].split("\n")
    assert second.startswith("~")
    return set().union(*map(of, first.split())) - set().union(*map(of, second[1:].split()))


@pytest.mark.slow
@ON_SQLITE
def test_service_works_within_the_restrictions_of_the_unit(tmp_path: Path) -> None:
    """Including pictures and passwords, whose libraries might generate machine code."""
    strace, log = find("strace", "strace"), tmp_path / "calls"
    fill(tmp_path / "state" / "cx-service", chat())
    allowed = allowed_calls()
    assert {"read", "clone3", "mmap"} <= allowed and not {"ptrace", "mount", "setpriority"} & allowed
    with as_a_unit(tmp_path, strace, "-f", "-qq", "-o", str(log)) as (running, manager):
        assert manager.recv(100) == b"READY=1"
        token = running.log_in()
        form = b'--x\r\nContent-Disposition: form-data; name="avatar"; filename="a.png"\r\n\r\n%s\r\n--x--\r\n'
        kind = {"Content-Type": "multipart/form-data; boundary=x"}
        avatar = running.call("POST", "/api/v1/users/me/avatar", form % jpeg(), token, headers=kind)
        assert avatar.status == 200
        feedback = running.call("POST", "/api/v1/feedback", {"description": "x"}, token)
        assert feedback.status == 201
        assert [running.call("GET", path).status for path in ("/readyz", "/metrics", "/docs")] == [200, 200, 200]
        traced = int(Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()[0])
        os.kill(traced, signal.SIGTERM)
        assert running.process.wait(TIMEOUT) == 0
    called = set(re.findall(r"^\d+ +(?:<\.\.\. )?(\w+)[( ]", log.read_text(), re.MULTILINE)) - {"resumed"}
    assert {"read", "mmap", "accept4"} <= called
    of_root = {"fchown"} if os.geteuid() == 0 else set()  # as root, SQLite gives its files to the owner of the folder
    assert called - of_root <= allowed, called - allowed
    assert "EACCES" not in re.findall(r"m(?:map|protect)\(.*", log.read_text())


@pytest.mark.slow
@ON_SQLITE
def test_unit_starts_and_stops_the_service(tmp_path: Path) -> None:
    with as_a_unit(tmp_path) as (running, manager):
        assert manager.recv(100) == b"READY=1"
        assert running.call("GET", "/readyz").status == 200  # READY=1 means that connections are accepted
        until(lambda: len(running.workers) == 2)
        mode = stat.S_IMODE((tmp_path / "state" / "cx-service" / FILE_NAME).stat().st_mode)
        assert mode == 0o600
        limits = Path(f"/proc/{running.workers[0]}/limits").read_text()
        assert re.search(rf"Max open files +{unit()['LimitNOFILE']} ", limits)
        metrics = scrape(running)
        assert metrics.value("process_max_fds") == int(unit()["LimitNOFILE"])
        assert running.stop() == 0
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.recv(100)


@pytest.mark.slow
@ON_SQLITE
@pytest.mark.parametrize("address", ["", "nothing", "/nowhere/at/all", "@no-listener"])
def test_service_starts_without_a_working_notify_socket(address: str, tmp_path: Path) -> None:
    with serving(tmp_path / "data", NOTIFY_SOCKET=address) as running:
        assert running.call("GET", "/healthz").status == 200
    assert ("cannot notify systemd" in running.errors) == address.startswith(("/", "@"))


@pytest.mark.slow
@ON_SQLITE
def test_abstract_notify_socket_is_notified(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("")  # the kernel chooses a name
        manager.settimeout(TIMEOUT)
        name = manager.getsockname()[1:].decode()
        with serving(tmp_path / "data", NOTIFY_SOCKET=f"@{name}"):
            assert manager.recv(100) == b"READY=1"


# nginx.


@contextlib.contextmanager
def nginx(port: int) -> Iterator[tuple[Proxy, int, Path]]:
    """Run nginx with the documented configuration. Yields it, its port without TLS, and its log."""
    program, openssl = find("nginx", "nginx-light"), find("openssl", "openssl")
    secure, plain = postgres.free_port(), postgres.free_port()
    with unprivileged_folder("operating") as folder:
        key, certificate, log = folder / "key.pem", folder / "certificate.pem", folder / "access.log"
        subject = ("-subj", "/CN=chat.example", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1")
        options = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        files = ("-keyout", str(key), "-out", str(certificate))
        subprocess.run(
            [openssl, *options, *files, *subject], check=True, capture_output=True, user=postgres.unprivileged_user()
        )
        configuration = code_block("nginx").replace("listen 80;", f"listen 127.0.0.1:{plain};")
        configuration = configuration.replace("listen 443 ssl;", f"listen 127.0.0.1:{secure} ssl;")
        configuration = configuration.replace("127.0.0.1:8080", f"127.0.0.1:{port}")
        configuration = configuration.replace("/var/log/nginx/cx-service.log", str(log))
        configuration = adapt(configuration, ssl_certificate=str(certificate), ssl_certificate_key=str(key))
        temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")  # the defaults of Debian belong to root
        paths = "".join(f"{kind}_temp_path {folder / kind};\n" for kind in temporary)
        (folder / "nginx.conf").write_text(f"events {{}}\nhttp {{\naccess_log off;\n{paths}{configuration}}}\n")
        arguments = ("-e", folder / "error.log", "-g", f"pid {folder}/pid; daemon off;", "-c", folder / "nginx.conf")
        with daemon(folder, program, *arguments, port=secure):
            yield Proxy(secure, certificate), plain, log


@pytest.mark.slow
@ON_SQLITE
def test_service_behind_the_documented_nginx(tmp_path: Path) -> None:
    fill(tmp_path / "data", chat())
    flags = ("--trusted-proxy", "127.0.0.1", "--log-format", "json")
    with serving(tmp_path / "data", *flags) as running, nginx(running.port) as (proxy, plain, log):
        with contextlib.closing(proxy.connect()) as connection:
            forged = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "http", "X-Request-ID": "forged"}
            response = send_request(connection, "GET", "/api/v1/events.ics?token=hush-hush", headers=forged)
            assert response.status == 404 and response.headers["X-Request-ID"] != "forged"
            assert "; Secure" in send_request(connection, "GET", "/sign-in").headers["Set-Cookie"]
            # nginx blocks the path even for this host, which may read it directly.
            assert send_request(connection, "GET", "/metrics").status == 404
            token = running.log_in()
            position = send_request(connection, "GET", "/api/v1/updates", token=token).data["after"]
            long_poll = send_request(connection, "GET", f"/api/v1/updates?after={position}&wait=2", token=token)
            assert long_poll.status == 200
            large = send_request(connection, "POST", "/api/v1/feedback", b"x" * 2**21, token)
            assert large.error == (413, "body_too_large")
        with contextlib.closing(socket.create_connection(("127.0.0.1", plain), timeout=TIMEOUT)) as insecure:
            insecure.sendall(b"GET /sign-in?a=b HTTP/1.0\r\nHost: chat.example\r\n\r\n")
            redirect = insecure.recv(65536).decode()
        assert redirect.startswith("HTTP/1.1 301") and "Location: https://chat.example/sign-in?a=b\r\n" in redirect
        assert scrape(running).value("cx_requests_total", operation="show_metrics", status=404) == 0
        (feed,) = map(json.loads, running.logged('"path":"/api/v1/events.ics"'))
        assert (feed["client"], feed["request_id"]) == ("127.0.0.1", response.headers["X-Request-ID"])
        seen = log.read_text()
        assert f"GET /api/v1/events.ics 404 {feed['bytes']} " in seen and feed["request_id"] in seen
        assert "hush-hush" not in seen + running.errors


# Statements of docs/operating.md.


def test_all_metrics_are_documented(anyone: Client) -> None:
    listed = {
        name for row in re.findall(r"^\| (`(?:cx|process)_.*?) \|", TEXT, re.M) for name in re.findall("`(.*?)`", row)
    }
    exported = set(scrape(anyone).kinds)
    assert exported <= listed
    if not postgres.is_chosen():
        assert listed == exported


def test_alerts_use_existing_metrics(anyone: Client) -> None:
    metrics = scrape(anyone)
    rules = yaml.safe_load(code_block("yaml", "alert:"))["groups"][0]["rules"]
    assert len(rules) == 4
    for rule in rules:
        names = set(re.findall(r"\b(?:cx|process)_\w+", rule["expr"])) - {"cx_disk_free_bytes"}
        assert names <= set(metrics.kinds), rule["alert"]
    (job,) = yaml.safe_load(code_block("yaml", "scrape_configs"))["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"{Settings().host}:{Settings().port}"]


def test_log_lines_have_the_documented_format() -> None:
    example = json.loads(code_block("json"))
    event = msgspec.convert({name: example[name] for name in RequestHandled.__struct_fields__}, RequestHandled)
    assert example["message"] == event.summary()
    assert set(example) == {"time", "level", "logger", "message", *RequestHandled.__struct_fields__}
    assert code_block("", "INFO cx.requests") == f"{example['time']} INFO cx.requests {event}\n"


def test_documented_limits_are_correct() -> None:
    from service.db.postgresql import LOCK_TIMEOUT
    from service.routes import health, operations

    names = {operation.name for operation in operations()}
    assert {"log_in", "sign_in_browser"} <= names
    flat = " ".join(TEXT.split())
    assert f"within {health.DATABASE_TIMEOUT:.0f} seconds" in flat
    assert f"at least {health.MIN_FREE_BYTES // 2**20} MiB" in flat
    assert f"within {server.DRAIN_TIMEOUT:.0f} seconds" in flat
    assert f"at most {server.MAX_CONNECTIONS:,} per worker |" in flat
    assert f"accepts up to {server.MAX_CONNECTIONS:,} connections" in flat
    assert f"limited to {server.http_parser.MAX_LARGE_BODIES // 2**20} MiB in total" in flat
    assert f"plus {server.http_parser.SMALL_BODY // 2**10} KiB per request" in flat
    assert f"longer than {LOCK_TIMEOUT.removesuffix('s')} seconds" in flat
