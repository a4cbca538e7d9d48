"""A service on a Unix socket: permissions, abandoned sockets, workers, and the address of clients."""

import contextlib
import os
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.commands.health import UnixConnection
from service.server import is_abandoned
from tests.support.client import Reply
from tests.support.server_process import PROGRAM, chat, command, database_variables, environment, fill, send_request

pytestmark = [pytest.mark.slow, pytest.mark.database]


class OnSocket:
    """A running server on a Unix socket."""

    def __init__(self, process: "subprocess.Popen[bytes]", path: Path, log: Path) -> None:
        self.process, self.path, self.log = process, path, log

    def call(self, method: str, path: str, body: object = None, **headers: str) -> Reply:
        with contextlib.closing(UnixConnection(str(self.path))) as connection:
            return send_request(connection, method, path, body, headers=headers)

    def guess(self, *addresses: str) -> list[int]:
        """Statuses of wrong passwords for different accounts, from clients with these addresses."""
        wrong = [{"email": f"{number}@example.com", "password": "wrong"} for number in range(len(addresses))]
        headers = [{"X-Forwarded-For": address} if address else {} for address in addresses]
        return [
            self.call("POST", "/api/v1/auth/login", body, **more).status
            for body, more in zip(wrong, headers, strict=True)
        ]


@contextlib.contextmanager
def serving(folder: Path, *flags: str, path: Path | None = None) -> Iterator[OnSocket]:
    """Run a server on a Unix socket until the end of the block."""
    path, log = path or folder / "http.sock", folder / f"{time.monotonic_ns()}.log"
    line = [*PROGRAM, "serve", "--data", str(folder / "data"), "--listen", f"unix:{path}", *flags]
    with log.open("wb") as errors:
        variables = environment(**database_variables(folder / "data"))
        process = subprocess.Popen(line, stderr=errors, env=variables, start_new_session=True)
    try:
        begun = time.monotonic()
        while "listens on" not in log.read_text():
            assert process.poll() is None and time.monotonic() - begun < 60, log.read_text()
            time.sleep(0.02)
        yield OnSocket(process, path, log)
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fill(tmp_path / "data", chat(1))
    return tmp_path


@pytest.mark.parametrize("workers", ["1", "2"])
def test_requests_are_served_and_healthcheck_works(workers: str, folder: Path) -> None:
    with serving(folder, "--workers", workers) as server:
        assert f"cx-service listens on unix:{server.path}\n" in server.log.read_text()
        assert [server.call("GET", "/readyz").status for _ in range(20)] == [200] * 20
        assert " unix - " in server.log.read_text()
        assert command("healthcheck", "--listen", f"unix:{server.path}").returncode == 0
        server.process.terminate()
        assert server.process.wait(30) == 0
    done = command("healthcheck", "--listen", f"unix:{server.path}")
    assert (done.returncode, done.stderr.decode()) == (
        1,
        f"cx-service: no response from unix:{server.path}: [Errno 111] Connection refused\n",
    )


@pytest.mark.parametrize(("flags", "mode"), [((), 0o660), (("--socket-mode", "0600"), 0o600)])
def test_socket_has_the_configured_mode(flags: tuple[str, ...], mode: int, folder: Path) -> None:
    with serving(folder, *flags) as server:
        assert stat.S_IMODE(server.path.stat().st_mode) == mode


def test_abandoned_socket_is_replaced(folder: Path) -> None:
    with serving(folder) as server:
        os.killpg(server.process.pid, signal.SIGKILL)
        server.process.wait(30)
        assert is_abandoned(server.path)
    with serving(folder) as again:
        assert not is_abandoned(again.path)
        assert again.call("GET", "/readyz").status == 200


def test_socket_in_use_is_not_replaced(folder: Path) -> None:
    path = folder / "http.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        done = command("serve", "--data", folder / "data", "--listen", f"unix:{path}")
        assert (done.returncode, done.stdout) == (1, b"")
        assert done.stderr.decode() == f"cx-service: cannot listen on unix:{path}: Address already in use\n"
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("file", "Address already in use"),
        ("missing/http.sock", "No such file or directory"),
        ("x" * 120, "AF_UNIX path too long"),
    ],
)
def test_path_that_cannot_be_used_is_one_line(name: str, reason: str, folder: Path) -> None:
    (folder / "file").write_text("precious")
    done = command("serve", "--data", folder / "data", "--listen", f"unix:{folder / name}")
    assert done.returncode == 1
    assert done.stderr.decode() == f"cx-service: cannot listen on unix:{folder / name}: {reason}\n"
    assert (folder / "file").read_text() == "precious"


def test_clients_behind_the_trusted_proxy_have_their_own_addresses(folder: Path) -> None:
    flags = ("--trusted-proxy", "unix", "--login-failures-network", "1")
    with serving(folder, *flags) as server:
        assert server.guess("203.0.113.7", "203.0.113.7", "198.51.100.7") == [401, 429, 401]
        assert "203.0.113.7" in server.log.read_text()
        reply = server.call("GET", "/sign-in", **{"X-Forwarded-Proto": "https"})
        assert "; Secure" in reply.headers["Set-Cookie"]


@pytest.mark.parametrize("trusted", [(), ("--trusted-proxy", "127.0.0.1")])
def test_headers_of_other_clients_are_ignored(trusted: tuple[str, ...], folder: Path) -> None:
    with serving(folder, "--login-failures-network", "1", *trusted) as server:
        assert server.guess("203.0.113.7", "198.51.100.7") == [401, 429]
        assert "203.0.113.7" not in server.log.read_text()
        reply = server.call("GET", "/sign-in", **{"X-Forwarded-Proto": "https"})
        assert "; Secure" not in reply.headers["Set-Cookie"]


def test_metrics_are_for_this_host_only(folder: Path) -> None:
    with serving(folder, "--trusted-proxy", "unix") as server:
        assert server.call("GET", "/metrics").status == 200
        assert server.call("GET", "/metrics", **{"X-Forwarded-For": "203.0.113.7"}).status == 404
        assert server.call("GET", "/metrics", Via="1.1 proxy").status == 404


def test_demo_on_a_socket_needs_a_public_url(tmp_path: Path) -> None:
    done = command("serve", "--demo", "--data", tmp_path / "data", "--listen", f"unix:{tmp_path / 'http.sock'}")
    assert (done.returncode, done.stderr) == (1, b"cx-service: --demo on a Unix socket needs --public-url\n")
