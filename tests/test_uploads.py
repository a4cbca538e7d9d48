"""Uploads to the real server when disk, memory and clients are at their worst."""

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
from tests import pictures as made
from tests.conftest import Reply, at
from tests.postgres import is_chosen, on_sqlite_alone
from tests.serving import PATIENCE, Served, chat, fill, serving
from tests.trouble import another_connection

pytestmark = pytest.mark.slow

AVATAR = "/api/v1/users/me/avatar"
KIND = "multipart/form-data; boundary=b"
PICTURE = made.save(made.plain(), "PNG")
LARGE = made.save(made.noise(600, 600), "PNG")  # its avatar takes many pages of the database
MIB = 2**20


def form(content: bytes) -> bytes:
    head = b'--b\r\nContent-Disposition: form-data; name="avatar"; filename="me.png"\r\n\r\n'
    return head + content + b"\r\n--b--\r\n"


def upload(running: Served, token: str, content: bytes = LARGE) -> Reply:
    return running.call("POST", AVATAR, form(content), token, headers={"Content-Type": KIND})


def show(running: Served, token: str, content: bytes = LARGE) -> str:
    return str(upload(running, token, content).data["profile_image"])


def assert_unavailable(reply: Reply) -> None:
    assert reply.error == (503, "storage_unavailable")
    assert int(reply.headers["Retry-After"]) > 0


def mount(*arguments: object) -> None:
    """Mount something; where this machine does not allow it, say so."""
    try:
        subprocess.run(["mount", *map(str, arguments)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = f"NOT TESTED: this machine mounts nothing ({error}: {getattr(error, 'stderr', '')})"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Makes small disks."""
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


def stuff(place: Path) -> Path:
    """Fill a disk to its last byte; the file that does."""
    ballast = place / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(65_536))
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(512))
    return ballast


def until_empty(place: Path) -> None:
    """Wait until a disk has its space back, which may be a moment after a file was closed."""
    begun = time.monotonic()
    while (state := os.statvfs(place)).f_bfree < state.f_blocks:
        assert time.monotonic() - begun < PATIENCE
        time.sleep(0.01)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with Alice."""
    fill(tmp_path / "data", chat())
    return tmp_path / "data"


# A store that cannot take it.


@on_sqlite_alone
def test_on_a_full_disk_it_is_503_until_there_is_room(disk: Callable[..., Path]) -> None:
    place = disk(12)
    fill(place / "data", chat())
    with serving(place / "data") as running:
        token = running.log_in()
        url = show(running, token)
        before = running.call("GET", url)
        ballast = stuff(place)
        for _ in range(3):
            assert_unavailable(upload(running, token))
            assert running.call("GET", url).raw == before.raw
            assert running.call("GET", "/api/v1/users/me/settings", token=token).status == 200
        assert upload(running, token, b"GIF89a").error == (415, "unsupported_media_type")
        ballast.unlink()
        other = show(running, token)
        assert running.call("GET", other).status == 200
        assert running.call("GET", url).status == 404
        assert running.stop() == 0


@on_sqlite_alone
def test_where_files_may_not_grow_it_is_503_until_they_may(data: Path) -> None:
    with serving(data) as running:
        token = running.log_in()
        url = show(running, token)
        pid = running.process.pid
        usual = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1024, usual[1]))
        assert_unavailable(upload(running, token))
        assert running.call("GET", url).status == 200
        resource.prlimit(pid, resource.RLIMIT_FSIZE, usual)
        assert upload(running, token).status == 200


@on_sqlite_alone
def test_on_a_read_only_disk_it_is_503(data: Path, tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    aside.mkdir()
    with serving(data) as running:
        token = running.log_in()
        url = show(running, token)
    with serving(data, "--threads", "1") as running:  # which opens the database with its first request
        mount("--bind", data, aside)  # where the server opens nothing: what is being written to stays writable
        try:
            mount("-o", "remount,bind,ro", aside)
            mount("--bind", aside, data)
            assert_unavailable(upload(running, token))
            assert running.call("GET", url).status == 200
        finally:
            subprocess.run(["umount", "--lazy", data, aside], check=True)
        assert running.call("GET", url).status == 200
        url = show(running, token)  # by a thread whose connection was opened when nothing could be written
        assert running.call("GET", url).status == 200


def test_while_somebody_else_writes_for_too_long_it_is_503(data: Path) -> None:
    with serving(data) as running:
        token = running.log_in()
        url = show(running, token)
        with another_connection(at(data)) as other:
            other.execute("BEGIN; SELECT pg_advisory_xact_lock(0)" if is_chosen() else "BEGIN IMMEDIATE")
            assert_unavailable(upload(running, token))
            assert running.call("GET", url).status == 200
            other.execute("ROLLBACK")
        assert upload(running, token).status == 200


# Bodies on their way in.


@pytest.mark.parametrize("how", ["length", "chunked"])
@pytest.mark.parametrize("kind", ["full", "almost full", "gone"])
def test_where_a_body_cannot_be_kept_it_is_503_until_there_is_room(
    kind: str, how: str, data: Path, disk: Callable[..., Path]
) -> None:
    place = disk(8)
    with serving(data, TMPDIR=str(place)) as running:
        token = running.log_in()
        body = form(PICTURE + bytes(5_000_000))

        def ask() -> Reply:
            pieces = (body[start : start + 50_000] for start in range(0, len(body), 50_000))
            content = body if how == "length" else pieces
            headers = {"Content-Type": KIND}
            return running.call("POST", AVATAR, content, token, headers=headers, encode_chunked=how == "chunked")

        assert ask().status == 200
        until_empty(place)
        if kind == "gone":
            subprocess.run(["umount", "--lazy", place], check=True)
            place.rmdir()
        else:
            ballast = stuff(place)
            if kind == "almost full":
                os.truncate(ballast, ballast.stat().st_size - MIB)
        for _ in range(3):
            assert_unavailable(ask())
            assert upload(running, token, PICTURE).status == 200  # small enough to be kept in memory
        if kind == "gone":
            place.mkdir()
            mount("-t", "tmpfs", "-o", "size=8m", "none", place)
        else:
            ballast.unlink()
        assert ask().status == 200
        assert running.stop() == 0
        assert "Traceback" not in running.errors


def test_more_is_kept_than_any_operation_takes() -> None:
    assert max(operation.most for operation in operations()) < server.reading.LARGEST_BODY


def memory(running: Served) -> float:
    """What the server process holds, in MiB."""
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def files(running: Served) -> int:
    """The bytes of the server's temporary files, which have no name."""
    folder = Path(f"/proc/{running.process.pid}/fd")
    found = 0
    for entry in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed by now
            found += entry.stat().st_size if "(deleted)" in str(entry.readlink()) else 0
    return found


def until_no_file_is_open(running: Served) -> None:
    begun = time.monotonic()
    while files(running):
        assert time.monotonic() - begun < PATIENCE
        time.sleep(0.05)


class Sender:
    """A client that sends a request as it likes."""

    def __init__(self, running: Served, token: str, *lines: str) -> None:
        self.socket = socket.create_connection((running.host, running.port), timeout=PATIENCE)
        head = [f"POST {AVATAR} HTTP/1.1", "Host: a", f"Authorization: Bearer {token}", f"Content-Type: {KIND}", *lines]
        self.socket.sendall("\r\n".join([*head, "", ""]).encode())

    def send(self, content: bytes) -> bool:
        """Whether the server still listens."""
        try:
            self.socket.sendall(content)
        except OSError:
            return False
        return True

    def answer(self) -> tuple[int, bytes]:
        found = b""
        with contextlib.suppress(ConnectionError):
            while chunk := self.socket.recv(65_536):
                found += chunk
                head, parted, body = found.partition(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                if parted and length and len(body) >= int(length[0].partition(b":")[2]):
                    break
        self.socket.close()
        return (int(found.split()[1]), found.partition(b"\r\n\r\n")[2]) if found else (0, b"")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("uploads") / "data"
    fill(folder, chat())
    with serving(folder) as one:
        yield one


@pytest.fixture(scope="module")
def token(running: Served) -> str:
    return running.log_in()


def test_a_body_that_never_ends_is_cut_off(running: Served, token: str) -> None:
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
    assert most_files <= server.reading.LARGEST_BODY
    assert running.call("GET", "/healthz").status == 200
    until_no_file_is_open(running)


def test_a_body_of_far_more_than_is_taken_is_answered(running: Served, token: str) -> None:
    before = memory(running)
    for size in (7 * MIB, 30 * MIB, 60 * MIB):
        reply = running.call("POST", AVATAR, form(bytes(size)), token, headers={"Content-Type": KIND})
        assert reply.error == (413, "body_too_large")
    assert memory(running) - before < 20


def test_a_body_that_drips_hinders_nobody(running: Served, token: str) -> None:
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
    assert all(sender.answer()[0] == 200 for sender in senders[:2])
    for sender in senders[2:]:
        sender.socket.close()
    until_no_file_is_open(running)


def test_a_body_shorter_than_it_said_is_no_upload(running: Served, token: str) -> None:
    url = show(running, token)
    body = form(PICTURE)
    sender = Sender(running, token, f"Content-Length: {len(body) + 1}")
    sender.send(body)
    sender.socket.shutdown(socket.SHUT_WR)
    assert sender.answer()[0] in (0, 400)
    assert running.call("GET", url).status == 200


def test_a_body_longer_than_it_said_is_cut(running: Served, token: str) -> None:
    body = form(PICTURE)
    sender = Sender(running, token, f"Content-Length: {len(body) - 20}")
    sender.send(body)
    status, told = sender.answer()
    assert status == 400
    assert json.loads(told)["error"]["code"] == "invalid_body"


LIES = {
    "a length beside chunks": ["Content-Length: 5", "Transfer-Encoding: chunked"],
    "a length of thousands of digits": ["Content-Length: " + "9" * 5_000],
    "no number": ["Content-Length: many"],
    "a negative length": ["Content-Length: -1"],
    "two lengths": ["Content-Length: 5", "Content-Length: 6"],
}


@pytest.mark.parametrize("lines", LIES.values(), ids=LIES)
def test_a_length_that_is_none_gets_400_in_the_envelope(lines: list[str], running: Served, token: str) -> None:
    sender = Sender(running, token, *lines)
    sender.send(b"0\r\n\r\n")
    status, told = sender.answer()
    assert (status, json.loads(told)["error"]["code"]) == (400, "bad_request")


@pytest.mark.parametrize("begin", [b"a" * 9_000, b"5;" + b"x" * 9_000, b"0\r\n" + b"x: " + b"y" * 9_000])
def test_chunks_parted_by_too_much_get_400(begin: bytes, running: Served, token: str) -> None:
    sender = Sender(running, token, "Transfer-Encoding: chunked")
    sender.send(begin)
    status, told = sender.answer()
    assert (status, json.loads(told)["error"]["code"]) == (400, "bad_request")


def test_a_client_that_waits_for_100_is_told_to_go_on(running: Served, token: str) -> None:
    body = form(PICTURE)
    sender = Sender(running, token, f"Content-Length: {len(body)}", "Expect: 100-continue")
    assert sender.socket.recv(100).startswith(b"HTTP/1.1 100")
    sender.send(body)
    assert sender.answer()[0] == 200


def test_all_that_went_wrong_left_no_traces(running: Served) -> None:
    assert "Traceback" not in running.errors
