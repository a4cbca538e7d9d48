"""The lock of a serving process on its data folder."""

import contextlib
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.support.server_process import PROGRAM, Served, chat, command, fill, serving

pytestmark = [pytest.mark.slow, pytest.mark.sqlite_only, pytest.mark.database]

BOTH = pytest.mark.parametrize("workers", ["1", "2"])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    fill(folder, chat(1))
    return folder


def expect_refusal(data: Path, *flags: str) -> None:
    """A second service ends with one line, and changes nothing."""
    before = (data / "service.db").read_bytes()
    done = command("serve", "--port", "0", "--data", data, *flags)
    line = f"another service serves the data folder {data}: stop it, or start all of them with --share-folder"
    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (1, "", f"cx-service: {line}\n")
    assert (data / "service.db").read_bytes() == before


@BOTH
def test_second_service_ends_with_one_line(workers: str, data: Path) -> None:
    with serving(data, "--workers", workers) as server:
        expect_refusal(data, "--workers", workers)
        expect_refusal(data, "--share-folder")
        assert server.log_in()


@BOTH
def test_commands_work_beside_the_service(workers: str, data: Path, tmp_path: Path) -> None:
    with serving(data, "--workers", workers) as server:
        for arguments in (("user", "list"), ("doctor",), ("backup", tmp_path / "backup"), ("export",), ("migrate",)):
            done = command(*arguments, "--data", data)
            assert done.returncode == 0, (arguments, done.stderr)
        assert command("user", "add", "eve@example.com", "--data", data, input=b"long enough\n").returncode == 0
        assert server.log_in("eve@example.com", "long enough")


@BOTH
def test_crash_leaves_no_lock(workers: str, data: Path) -> None:
    with serving(data, "--workers", workers) as server:
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
        with serving(data) as again:
            assert again.log_in()


def test_replaced_worker_keeps_the_lock(data: Path) -> None:
    with serving(data, "--workers", "2") as server:
        while len(server.workers) < 2:
            time.sleep(0.01)
        for process in server.workers:
            os.kill(process, signal.SIGKILL)
        server.logged("starting another")
        assert server.log_in()
        expect_refusal(data)


@BOTH
def test_service_that_completes_its_requests_has_released_the_lock(workers: str, data: Path) -> None:
    with serving(data, "--workers", workers) as server, contextlib.ExitStack() as stack:
        unfinished = stack.enter_context(socket.create_connection((server.host, server.port), timeout=60))
        unfinished.sendall(b"POST /api/v1/auth/login HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")
        assert server.call("GET", "/healthz").status == 200
        server.process.send_signal(signal.SIGTERM)
        wait_until_refused(server)
        with serving(data) as again:
            assert server.process.poll() is None
            assert again.log_in()


@BOTH
def test_services_with_the_setting_share_the_folder(workers: str, data: Path) -> None:
    with serving(data, "--share-folder", "--workers", workers), serving(data, "--share-folder") as second:
        assert second.log_in()
        expect_refusal(data)


def test_lock_file_without_a_service_is_ignored(data: Path) -> None:
    (data / "service.lock").touch(0o600)
    with serving(data) as server:
        assert server.log_in()
        assert (data / "service.lock").stat().st_mode & 0o777 == 0o600


def test_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = command("serve", "--data", tmp_path / "file")
    assert done.returncode == 1
    assert done.stderr.decode() == f"cx-service: cannot write the data folder {tmp_path / 'file'}: File exists\n"


def wait_until_refused(server: Served) -> None:
    """Wait until the service accepts no more connections."""
    begun = time.monotonic()
    while time.monotonic() - begun < 30:
        try:
            socket.create_connection((server.host, server.port), timeout=60).close()
        except ConnectionRefusedError:
            return
        except ConnectionResetError:  # it arrived just when the socket was closed
            pass
        time.sleep(0.01)
    raise AssertionError(f"{PROGRAM} still accepts connections")
