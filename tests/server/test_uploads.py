"""Uploads to the real server with full disks, little memory and slow or faulty clients."""

import contextlib
import json
import os
import resource
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service import server
from service.routes import operations
from tests.support import pictures
from tests.support.client import Reply
from tests.support.faults import another_connection
from tests.support.installation import settings_at
from tests.support.postgres import is_chosen
from tests.support.server_process import TIMEOUT, Served, chat, fill, serving
from tests.support.uploads import AVATAR, KIND, Sender, form

pytestmark = [pytest.mark.slow, pytest.mark.database]

PICTURE = pictures.save(pictures.plain(), "PNG")
LARGE = pictures.save(pictures.noise(600, 600), "PNG")  # its avatar needs many pages of the database
MIB = 2**20


def upload(running: Served, token: str, content: bytes = LARGE) -> Reply:
    return running.call("POST", AVATAR, form(content), token, headers={"Content-Type": KIND})


def upload_url(running: Served, token: str, content: bytes = LARGE) -> str:
    return str(upload(running, token, content).data["profile_image"])


def assert_unavailable(reply: Reply) -> None:
    assert reply.error == (503, "storage_unavailable")
    assert int(reply.headers["Retry-After"]) > 0


def mount(*arguments: object) -> None:
    """Mount a file system. Where that is not allowed, the test is skipped, or fails where CI is set."""
    try:
        subprocess.run(["mount", *map(str, arguments)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = f"NOT TESTED: this machine cannot mount ({error}: {getattr(error, 'stderr', '')})"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mount small disks."""
    mounted: list[Path] = []

    def make(mebibytes: int) -> Path:
        place = tmp_path / f"disk{len(mounted)}"
        place.mkdir()
        mount("-t", "tmpfs", "-o", f"size={mebibytes}m", "none", place)
        mounted.append(place)
        return place

    yield make
    for place in mounted:
        subprocess.run(["umount", "--lazy", "--recursive", place], check=True)


def fill_disk(place: Path) -> Path:
    """Fill a disk completely. Returns the file that fills it."""
    ballast = place / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(65_536))
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(512))
    return ballast


def until_empty(place: Path) -> None:
    """Wait until a disk is empty. Space may be released shortly after a file was closed."""
    begun = time.monotonic()
    while (state := os.statvfs(place)).f_bfree < state.f_blocks:
        assert time.monotonic() - begun < TIMEOUT
        time.sleep(0.01)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with Alice."""
    fill(tmp_path / "data", chat())
    return tmp_path / "data"


# Data folders that cannot be written.


@pytest.mark.sqlite_only
def test_a_full_disk_is_503_until_there_is_space(disk: Callable[..., Path]) -> None:
    place = disk(12)
    fill(place / "data", chat())
    with serving(place / "data") as running:
        token = running.log_in()
        url = upload_url(running, token)
        before = running.call("GET", url)
        ballast = fill_disk(place)
        for _ in range(3):
            assert_unavailable(upload(running, token))
            assert running.call("GET", url).raw == before.raw
            assert running.call("GET", "/api/v1/users/me/settings", token=token).status == 200
        assert upload(running, token, b"GIF89a").error == (415, "unsupported_media_type")
        ballast.unlink()
        other = upload_url(running, token)
        assert running.call("GET", other).status == 200
        assert running.call("GET", url).status == 404
        assert running.stop() == 0


@pytest.mark.sqlite_only
def test_a_file_size_limit_is_503_until_it_is_raised(data: Path) -> None:
    with serving(data) as running:
        token = running.log_in()
        url = upload_url(running, token)
        pid = running.process.pid
        usual = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1024, usual[1]))
        assert_unavailable(upload(running, token))
        assert running.call("GET", url).status == 200
        resource.prlimit(pid, resource.RLIMIT_FSIZE, usual)
        assert upload(running, token).status == 200


@pytest.mark.sqlite_only
def test_a_read_only_disk_is_503(data: Path, tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    aside.mkdir()
    with serving(data) as running:
        token = running.log_in()
        url = upload_url(running, token)
    with serving(data, "--threads", "1") as running:  # its thread opens the database with the first request
        mount("--bind", data, aside)  # a mount without open files, since one with files open for writing stays writable
        try:
            mount("-o", "remount,bind,ro", aside)
            mount("--bind", aside, data)
            assert_unavailable(upload(running, token))
            assert running.call("GET", url).status == 200
        finally:
            subprocess.run(["umount", "--lazy", data, aside], check=True)
        assert running.call("GET", url).status == 200
        url = upload_url(running, token)  # by a thread whose connection was opened while the disk was read-only
        assert running.call("GET", url).status == 200


def test_a_long_write_of_another_process_is_503(data: Path) -> None:
    with serving(data) as running:
        token = running.log_in()
        url = upload_url(running, token)
        with another_connection(settings_at(data)) as other:
            other.execute("BEGIN; SELECT pg_advisory_xact_lock(0)" if is_chosen() else "BEGIN IMMEDIATE")
            assert_unavailable(upload(running, token))
            assert running.call("GET", url).status == 200
            other.execute("ROLLBACK")
        assert upload(running, token).status == 200


# Bodies.


@pytest.mark.parametrize("how", ["length", "chunked"])
@pytest.mark.parametrize("kind", ["full", "almost full", "missing"])
def test_a_body_that_cannot_be_stored_is_503_until_there_is_space(
    kind: str, how: str, data: Path, disk: Callable[..., Path]
) -> None:
    place = disk(8)
    with serving(data, TMPDIR=str(place)) as running:
        token = running.log_in()
        body = form(PICTURE + bytes(5_000_000))

        def send() -> Reply:
            pieces = (body[start : start + 50_000] for start in range(0, len(body), 50_000))
            content = body if how == "length" else pieces
            headers = {"Content-Type": KIND}
            return running.call("POST", AVATAR, content, token, headers=headers, encode_chunked=how == "chunked")

        assert send().status == 200
        until_empty(place)
        if kind == "missing":
            subprocess.run(["umount", "--lazy", place], check=True)
            place.rmdir()
        else:
            ballast = fill_disk(place)
            if kind == "almost full":
                os.truncate(ballast, ballast.stat().st_size - MIB)
        for _ in range(3):
            assert_unavailable(send())
            assert upload(running, token, PICTURE).status == 200  # small enough for memory
        if kind == "missing":
            place.mkdir()
            mount("-t", "tmpfs", "-o", "size=8m", "none", place)
        else:
            ballast.unlink()
        assert send().status == 200
        assert running.stop() == 0
        assert "Traceback" not in running.errors


def test_the_default_limit_of_bodies_exceeds_those_of_all_operations() -> None:
    assert max(operation.max_body for operation in operations()) < server.http_parser.DEFAULT_MAX_BODY


def memory(running: Served) -> float:
    """The resident memory of the server process, in MiB."""
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def files(running: Served) -> int:
    """The total size of the server's temporary files, which are unlinked."""
    folder = Path(f"/proc/{running.process.pid}/fd")
    found = 0
    for entry in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed by now
            found += entry.stat().st_size if "(deleted)" in str(entry.readlink()) else 0
    return found


def until_no_file_is_open(running: Served) -> None:
    begun = time.monotonic()
    while files(running):
        assert time.monotonic() - begun < TIMEOUT
        time.sleep(0.05)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("uploads") / "data"
    fill(folder, chat())
    with serving(folder) as one:
        yield one


@pytest.fixture(scope="module")
def token(running: Served) -> str:
    return running.log_in()


def test_an_endless_body_is_refused(running: Served, token: str) -> None:
    before = memory(running)
    sender = Sender(running, token, "Transfer-Encoding: chunked")
    sent, most_memory, most_files = 0, 0.0, 0
    while sent < 100 * MIB and sender.send(b"10000\r\n" + bytes(65_536) + b"\r\n"):
        sent += 65_536
        if not sent % (4 * MIB):
            most_memory, most_files = max(most_memory, memory(running)), max(most_files, files(running))
    sender.socket.close()
    assert sent < 80 * MIB
    assert most_memory - before < 20
    assert most_files <= server.http_parser.DEFAULT_MAX_BODY
    assert running.call("GET", "/healthz").status == 200
    until_no_file_is_open(running)


def test_a_body_far_over_the_limit_gets_a_response(running: Served, token: str) -> None:
    before = memory(running)
    for size in (7 * MIB, 30 * MIB, 60 * MIB):
        reply = running.call("POST", AVATAR, form(bytes(size)), token, headers={"Content-Type": KIND})
        assert reply.error == (413, "body_too_large")
    assert memory(running) - before < 20


def test_a_slow_body_does_not_block_others(running: Served, token: str) -> None:
    before = memory(running)
    body = form(PICTURE + bytes(4_000_000))
    senders = [Sender(running, token, f"Content-Length: {len(body)}") for _ in range(20)]
    for sender in senders:
        sender.send(body[: 2 * MIB])
    assert upload(running, token, PICTURE).status == 200
    assert memory(running) - before < 40
    assert files(running) <= 20 * 2 * MIB
    for sender in senders[:2]:
        sender.send(body[2 * MIB :])
    assert all(sender.response()[0] == 200 for sender in senders[:2])
    for sender in senders[2:]:
        sender.socket.close()
    until_no_file_is_open(running)


def test_a_body_shorter_than_its_length_is_not_processed(running: Served, token: str) -> None:
    url = upload_url(running, token)
    body = form(PICTURE)
    sender = Sender(running, token, f"Content-Length: {len(body) + 1}")
    sender.send(body)
    sender.socket.shutdown(socket.SHUT_WR)
    assert sender.response()[0] in (0, 400)
    assert running.call("GET", url).status == 200


def test_a_body_longer_than_its_length_is_truncated(running: Served, token: str) -> None:
    body = form(PICTURE)
    sender = Sender(running, token, f"Content-Length: {len(body) - 20}")
    sender.send(body)
    status, body = sender.response()
    assert status == 400
    assert json.loads(body)["error"]["code"] == "invalid_body"


INVALID_LENGTHS = {
    "a length with chunks": ["Content-Length: 5", "Transfer-Encoding: chunked"],
    "a length of thousands of digits": ["Content-Length: " + "9" * 5_000],
    "not a number": ["Content-Length: many"],
    "a negative length": ["Content-Length: -1"],
    "two lengths": ["Content-Length: 5", "Content-Length: 6"],
}


@pytest.mark.parametrize("lines", INVALID_LENGTHS.values(), ids=INVALID_LENGTHS)
def test_an_invalid_length_gets_400_in_the_envelope(lines: list[str], running: Served, token: str) -> None:
    sender = Sender(running, token, *lines)
    sender.send(b"0\r\n\r\n")
    status, body = sender.response()
    assert (status, json.loads(body)["error"]["code"]) == (400, "bad_request")


@pytest.mark.parametrize("content", [b"a" * 9_000, b"5;" + b"x" * 9_000, b"0\r\n" + b"x: " + b"y" * 9_000])
def test_a_long_line_before_a_chunk_gets_400(content: bytes, running: Served, token: str) -> None:
    sender = Sender(running, token, "Transfer-Encoding: chunked")
    sender.send(content)
    status, body = sender.response()
    assert (status, json.loads(body)["error"]["code"]) == (400, "bad_request")


def test_client_that_expects_100_continue_receives_it(running: Served, token: str) -> None:
    body = form(PICTURE)
    sender = Sender(running, token, f"Content-Length: {len(body)}", "Expect: 100-continue")
    assert sender.socket.recv(100).startswith(b"HTTP/1.1 100")
    sender.send(body)
    assert sender.response()[0] == 200


def test_refused_uploads_log_no_traceback(running: Served) -> None:
    assert "Traceback" not in running.errors
