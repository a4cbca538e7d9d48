"""docs/operating.md and the unit: what they show is what runs, what they say of numbers and lines is so."""

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

from service import asking, server
from service.db import FILE_NAME
from service.edge import Answered
from service.settings import Settings
from tests import postgres
from tests.cluster import Front, adapt, daemon, find, until, workplace
from tests.conftest import Client
from tests.pictures import jpeg
from tests.serving import PATIENCE, ROOT, Served, ask, chat, environment, fill, serving
from tests.test_metrics import scrape

TEXT = (ROOT / "docs" / "operating.md").read_text()
UNIT = ROOT / "docs" / "cx-service.service"
PROGRAM = "/usr/local/bin/cx-service.pyz"
EXPOSURE = 1.5  # of 10, as systemd-analyze rates it
ON_SQLITE = pytest.mark.skipif(postgres.is_chosen(), reason="the same, whichever the database")
MDWE = 65, 1  # PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN: what MemoryDenyWriteExecute= asks for (prctl(2))


def shown(language: str, word: str = "") -> str:
    """The one block of docs/operating.md in a language that holds a word."""
    blocks: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.M | re.S)
    (block,) = [block for name, block in blocks if name == language and word in block]
    return block


class Several(dict[str, str]):
    """The values of a directive that comes several times are lines of one."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value if name not in self or isinstance(value, str) else [*self[name], *value])


def unit() -> dict[str, str]:
    """The directives of the unit's service."""
    parser = RawConfigParser(dict_type=Several, strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNIT)
    return dict(parser["Service"])


# The unit.


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit, for a program that is there."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace(PROGRAM, sys.executable))
    return copy


@ON_SQLITE
def test_systemd_understands_the_unit(installed: Path) -> None:
    line = [find("systemd-analyze", "systemd"), "verify", "--man=no", str(installed)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@ON_SQLITE
def test_systemd_finds_little_to_criticise(installed: Path) -> None:
    line = [find("systemd-analyze", "systemd"), "security", "--offline=true", "--no-pager", str(installed)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE)
    rated = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert rated, done.stdout + done.stderr
    assert float(rated[1]) <= EXPOSURE


def test_systemd_is_more_patient_than_the_service() -> None:
    service = unit()
    longest = server.PATIENCE + asking.THREADS * asking.LAST_WORD + 1
    assert int(service["TimeoutStopSec"].removesuffix("s")) > 2 * longest
    assert service["KillMode"] == "mixed"  # the first process tells the others, once


@contextlib.contextmanager
def as_a_unit(folder: Path, *before: str) -> Iterator[tuple[Served, socket.socket]]:
    """What systemd starts, with what of the unit a process can be given without it; and the socket of sd_notify."""
    service = unit()
    program, *flags = shlex.split(service["ExecStart"])
    assert program == PROGRAM
    places = {"%S": str(folder / "state"), "%C": str(folder / "cache")}
    given = dict(line.split("=", 1) for line in service["Environment"].split("\n"))
    for name, value in given.items():
        for mark, place in places.items():
            value = value.replace(mark, place)
        given[name] = value
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
        manager.settimeout(PATIENCE)
        told = environment(**given, NOTIFY_SOCKET=str(folder / "notify"))
        process = subprocess.Popen(
            line, env=told, stdout=out, stderr=err, preexec_fn=confine, start_new_session=True, cwd=folder
        )
        try:
            yield Served(process, output, errors), manager
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def allowed_calls() -> set[str]:
    """The system calls that the unit's filters leave."""
    done = subprocess.run(
        [find("systemd-analyze", "systemd"), "syscall-filter"], capture_output=True, text=True, timeout=PATIENCE
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
def test_all_that_the_service_does_is_within_its_confines(tmp_path: Path) -> None:
    """Pictures and passwords too, in whose libraries machine code might be made."""
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
        assert running.process.wait(PATIENCE) == 0
    called = set(re.findall(r"^\d+ +(?:<\.\.\. )?(\w+)[( ]", log.read_text(), re.MULTILINE)) - {"resumed"}
    assert {"read", "mmap", "accept4"} <= called
    of_root = {"fchown"} if os.geteuid() == 0 else set()  # SQLite gives its files to whose folder it is
    assert called - of_root <= allowed, called - allowed
    assert "EACCES" not in re.findall(r"m(?:map|protect)\(.*", log.read_text())


@pytest.mark.slow
@ON_SQLITE
def test_the_unit_starts_and_stops_what_it_says(tmp_path: Path) -> None:
    with as_a_unit(tmp_path) as (running, manager):
        assert manager.recv(100) == b"READY=1"
        assert running.call("GET", "/readyz").status == 200  # at once: who was told so connects
        until(lambda: len(running.workers) == 2)
        mode = stat.S_IMODE((tmp_path / "state" / "cx-service" / FILE_NAME).stat().st_mode)
        assert mode == 0o600
        limits = Path(f"/proc/{running.workers[0]}/limits").read_text()
        assert re.search(rf"Max open files +{unit()['LimitNOFILE']} ", limits)
        told = scrape(running)
        assert told.value("process_max_fds") == int(unit()["LimitNOFILE"])
        assert running.stop() == 0
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.recv(100)


@pytest.mark.slow
@ON_SQLITE
@pytest.mark.parametrize("address", ["", "nothing", "/nowhere/at/all", "@nobody-listens-here"])
def test_where_nobody_wants_to_know_it_starts_all_the_same(address: str, tmp_path: Path) -> None:
    with serving(tmp_path / "data", NOTIFY_SOCKET=address) as running:
        assert running.call("GET", "/healthz").status == 200
    assert ("systemd cannot be told" in running.errors) == address.startswith(("/", "@"))


@pytest.mark.slow
@ON_SQLITE
def test_an_abstract_socket_is_told_too(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("")  # the kernel chooses a name
        manager.settimeout(PATIENCE)
        name = manager.getsockname()[1:].decode()
        with serving(tmp_path / "data", NOTIFY_SOCKET=f"@{name}"):
            assert manager.recv(100) == b"READY=1"


# nginx.


@contextlib.contextmanager
def nginx(port: int) -> Iterator[tuple[Front, int, Path]]:
    """nginx before the service on a port, as the document configures it; its plain port, and its log."""
    program, openssl = find("nginx", "nginx-light"), find("openssl", "openssl")
    secure, plain = postgres.free_port(), postgres.free_port()
    with workplace("operating") as folder:
        key, certificate, log = folder / "key.pem", folder / "certificate.pem", folder / "access.log"
        about = ("-subj", "/CN=chat.example", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1")
        make = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        names = ("-keyout", str(key), "-out", str(certificate))
        subprocess.run([openssl, *make, *names, *about], check=True, capture_output=True, user=postgres.ordinary())
        told = shown("nginx").replace("listen 80;", f"listen 127.0.0.1:{plain};")
        told = told.replace("listen 443 ssl;", f"listen 127.0.0.1:{secure} ssl;")
        told = told.replace("127.0.0.1:8080", f"127.0.0.1:{port}")
        told = told.replace("/var/log/nginx/cx-service.log", str(log))
        told = adapt(told, ssl_certificate=str(certificate), ssl_certificate_key=str(key))
        temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")  # Debian's are root's
        paths = "".join(f"{kind}_temp_path {folder / kind};\n" for kind in temporary)
        (folder / "nginx.conf").write_text(f"events {{}}\nhttp {{\naccess_log off;\n{paths}{told}}}\n")
        asked = ("-e", folder / "error.log", "-g", f"pid {folder}/pid; daemon off;", "-c", folder / "nginx.conf")
        with daemon(folder, program, *asked, port=secure):
            yield Front(secure, certificate), plain, log


@pytest.mark.slow
@ON_SQLITE
def test_behind_the_nginx_of_the_document(tmp_path: Path) -> None:
    fill(tmp_path / "data", chat())
    flags = ("--trusted-proxy", "127.0.0.1", "--log-format", "json")
    with serving(tmp_path / "data", *flags) as running, nginx(running.port) as (front, plain, log):
        with contextlib.closing(front.connect()) as connection:
            made_up = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "http", "X-Request-ID": "made-up"}
            told = ask(connection, "GET", "/api/v1/events.ics?token=hush-hush", headers=made_up)
            assert told.status == 404 and told.headers["X-Request-ID"] != "made-up"
            assert "; Secure" in ask(connection, "GET", "/sign-in").headers["Set-Cookie"]
            # The client is this host, which could read them: the address is closed here nevertheless.
            assert ask(connection, "GET", "/metrics").status == 404
            token = running.log_in()
            position = ask(connection, "GET", "/api/v1/updates", token=token).data["after"]
            waited = ask(connection, "GET", f"/api/v1/updates?after={position}&wait=2", token=token)
            assert waited.status == 200
            large = ask(connection, "POST", "/api/v1/feedback", b"x" * 2**21, token)
            assert large.error == (413, "body_too_large")
        with contextlib.closing(socket.create_connection(("127.0.0.1", plain), timeout=PATIENCE)) as unsafe:
            unsafe.sendall(b"GET /sign-in?a=b HTTP/1.0\r\nHost: chat.example\r\n\r\n")
            answer = unsafe.recv(65536).decode()
        assert answer.startswith("HTTP/1.1 301") and "Location: https://chat.example/sign-in?a=b\r\n" in answer
        assert scrape(running).value("cx_requests_total", operation="show_metrics", status=404) == 0
        (feed,) = map(json.loads, running.logged('"path":"/api/v1/events.ics"'))
        assert (feed["client"], feed["request_id"]) == ("127.0.0.1", told.headers["X-Request-ID"])
        seen = log.read_text()
        assert f"GET /api/v1/events.ics 404 {feed['bytes']} " in seen and feed["request_id"] in seen
        assert "hush-hush" not in seen + running.errors


# What the document says.


def test_every_number_is_explained_and_no_other(anyone: Client) -> None:
    listed = {
        name for row in re.findall(r"^\| (`(?:cx|process)_.*?) \|", TEXT, re.M) for name in re.findall("`(.*?)`", row)
    }
    told = set(scrape(anyone).kinds)
    assert told <= listed
    if not postgres.is_chosen():
        assert listed == told


def test_alerts_ask_for_numbers_that_there_are(anyone: Client) -> None:
    told = scrape(anyone)
    rules = yaml.safe_load(shown("yaml", "alert:"))["groups"][0]["rules"]
    assert len(rules) == 3
    for rule in rules:
        asked = set(re.findall(r"\b(?:cx|process)_\w+", rule["expr"])) - {"cx_disk_free_bytes"}
        assert asked <= set(told.kinds), rule["alert"]
    (job,) = yaml.safe_load(shown("yaml", "scrape_configs"))["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"{Settings().host}:{Settings().port}"]


def test_lines_of_the_log_look_as_shown() -> None:
    example = json.loads(shown("json"))
    event = msgspec.convert({name: example[name] for name in Answered.__struct_fields__}, Answered)
    assert example["message"] == event.sentence()
    assert set(example) == {"time", "level", "logger", "message", *Answered.__struct_fields__}
    assert shown("", "INFO cx.requests") == f"{example['time']} INFO cx.requests {event}\n"


def test_what_it_says_of_operations_and_numbers_is_so() -> None:
    from service.db.postgresql import LOCK_TIMEOUT
    from service.routes import health, operations

    names = {operation.name for operation in operations()}
    assert {"log_in", "sign_in_browser"} <= names
    flat = " ".join(TEXT.split())
    assert f"within {health.PATIENCE:.0f} seconds" in flat
    assert f"at least {health.LEAST_FREE // 2**20} MiB" in flat
    assert f"within {server.PATIENCE:.0f} seconds" in flat
    assert f"of which a worker takes {server.MOST:,} |" in flat
    assert f"It has {server.MOST:,} connections" in flat
    assert f"have {server.reading.LARGE_BODIES // 2**20} MiB together" in flat
    assert f"and {server.reading.SMALL_BODY // 2**10} KiB each besides" in flat
    assert f"longer than {LOCK_TIMEOUT.removesuffix('s')} seconds" in flat
