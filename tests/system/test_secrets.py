"""Keys, tokens and passwords are in no log, export or command line, and only in the responses that return them.

The files that contain them are accessible to their owner only.
"""

import base64
import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest

from service import db
from service.api.event_stream import EventStream
from service.auth import tokens
from service.commands import VISIBLE_PASSWORD, run
from service.models import SigningKey, User
from service.settings import Settings
from tests.support import sample_data as h
from tests.support.consent import path as consent_page
from tests.support.installation import flags_of, settings_at
from tests.support.passwords import PASSWORD
from tests.support.server_process import TIMEOUT, Served, chat, command, fill, serving
from tests.support.uploads import Sender, form
from tests.support.valid_requests import SampleInstallation
from tests.support.web_client import Browser, remote

pytestmark = pytest.mark.database


ASSISTANT_KEY = "canary-key-of-the-assistant"
TOKEN_OPERATIONS = {"log_in", "refresh_tokens", "exchange_code"}  # the operations that return tokens


class Tour(NamedTuple):
    """The traces of requests to all operations and of all kinds of logins."""

    log: str
    responses: dict[str, bytes]  # by operation
    export: bytes
    processes: str  # their command lines
    secrets: dict[str, str]


def command_lines(process: int) -> str:
    """The command lines of a process and its children, which all users of the machine can read."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return "\n".join(Path(f"/proc/{number}/cmdline").read_text() for number in (process, *children))


def log_in_client(server: Served) -> dict[str, str]:
    """Sign in with a browser, and log in a command-line client. Returns all secrets by name."""
    browser = Browser(remote(server), server.url)
    verifier = f"{uuid4().hex}{uuid4().hex}"
    digest = hashlib.sha256(verifier.encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    browser.open(f"/api/v1{consent_page(code_challenge=challenge)}")
    browser.send(email=h.EMAILS["bob"], password=PASSWORD)
    csrf_token = re.findall(r'name="csrf_token" value="([^"]+)"', browser.reply.raw.decode())[0]
    browser.send(answer="approve")
    code = parse_qs(urlsplit(browser.redirect_url).query)["code"][0]
    form = {"grant_type": "authorization_code", "client_id": "service-cli", "code": code, "code_verifier": verifier}
    reply = browser.navigate(
        "POST", "/api/v1/auth/cli/token", form | {"redirect_uri": "http://127.0.0.1:8976/callback"}
    )
    cookies = {f"the cookie {name}": value for name, value in browser.cookies.items()}
    named = {"the CSRF token": csrf_token, "the code": code, "the verifier": verifier}
    return cookies | named | {name: reply.json[name] for name in ("access_token", "refresh_token")}


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tour]:
    """Request to all operations, with debug logging."""
    folder = tmp_path_factory.mktemp("secrets")
    settings = settings_at(folder / "data")
    installation = SampleInstallation(settings, folder)
    variables = {"CX_ASSISTANT_URL": "http://127.0.0.1:9/v1", "CX_ASSISTANT_KEY": ASSISTANT_KEY}
    responses: dict[str, bytes] = {}
    with serving(folder / "data", "--log-level", "debug", "--workers", "2", **variables) as server:
        secrets = log_in_client(server)
        message = {"content": {"text": "When are you open?"}}  # which is sent to the assistant
        server.call("POST", f"/api/v1/chats/{h.SESSION}/messages", message, installation.token)
        server.logged("no reply from the assistant")  # before another request ends the session
        requests = (one for one in installation.requests() if one.operation.data is not EventStream)  # which do not end
        for number, request in enumerate(requests):
            with db.write():  # some operations end their login session
                pair = tokens.log_in(h.ALICE, settings)
            secrets |= {f"token {number}": pair.access_token, f"refresh token {number}": pair.refresh_token}
            url = f"{request.path}?{request.query}"
            cookie = f"cx_signed_in={secrets['the cookie cx_signed_in']}"
            headers = {"Content-Type": request.content_type, "Cookie": cookie}
            method = request.operation.method
            reply = server.call(method, url, request.body or None, pair.access_token, headers=headers)
            responses[request.operation.name] = reply.raw
            for invalid in (b'{"password": "%s"' % PASSWORD.encode(), b"\xff"):
                server.call(method, url, invalid, pair.refresh_token, headers=headers)
        processes = command_lines(server.process.pid)
        log = server.errors + server.output
    secrets |= {f"a key of {name}": value for name, value in enumerate_keys()}
    secrets |= {name: installation.names[name] for name in ("refresh_token", "console", "feed", "csrf_token")}
    secrets |= {"the password": PASSWORD, "the key of the assistant": ASSISTANT_KEY, "the token": installation.token}
    secrets |= {f"the hash of {user.email}": user.password_hash for user in User.select()}
    export = command("export", "--data", folder / "data").stdout
    yield Tour(log, responses, export, processes, secrets)
    db.close_database()


def enumerate_keys() -> Iterator[tuple[str, str]]:
    """The signing keys."""
    for number, key in enumerate(SigningKey.secrets()):
        yield f"signing {number}", key


def found(secrets: dict[str, str], text: str) -> list[str]:
    """The names of the secrets in a text."""
    return [name for name, value in secrets.items() if value and value in text]


@pytest.mark.slow
class TestTour:
    def test_is_complete(self, tour: Tour) -> None:
        assert len(tour.secrets) > 200
        assert tour.log.count(" 200 ") > 50
        assert "no reply from the assistant" in tour.log

    def test_log_has_no_secrets(self, tour: Tour) -> None:
        assert found(tour.secrets, tour.log) == []
        assert "Bearer" not in tour.log
        assert not re.search(r"cx[arc]_", tour.log)
        assert "Traceback" not in tour.log

    def test_command_lines_have_no_secrets(self, tour: Tour) -> None:
        assert found(tour.secrets, tour.processes) == []
        assert tour.processes.count("serve") >= 3

    def test_responses_have_no_other_secrets(self, tour: Tour) -> None:
        forms = ("the CSRF token", "console", "csrf_token")  # which are fields of pages
        for name, raw in tour.responses.items():
            assert [one for one in found(tour.secrets, raw.decode("latin-1")) if one not in forms] == [], name
            has_token = re.search(rb"cx[arc]_\w", raw)  # the OpenAPI document has examples that end after the prefix
            assert bool(has_token) <= (name in TOKEN_OPERATIONS), name

    def test_export_has_no_secrets_except_hashes(self, tour: Tour) -> None:
        assert tour.export.count(b"\n") > 20
        exported = found(tour.secrets, tour.export.decode())
        assert exported and all(name.startswith("the hash of") for name in exported)


# Files.


def modes(folder: Path) -> dict[str, int]:
    """The permissions of a folder and of all files in it."""
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}


def modes_of_open_files(process: int, folder: Path) -> list[int]:
    """The permissions of the files in a folder that a process has open."""
    found = []
    for entry in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed by now
            if entry.readlink().is_relative_to(folder):
                found.append(stat.S_IMODE(entry.stat().st_mode))
    return found


@pytest.fixture(params=[0o000, 0o022], ids=["all may write", "others may read"])
def permissive_umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """A umask that permits other users to read new files, or also to write them."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.sqlite_only
@pytest.mark.slow
def test_data_folder_is_accessible_to_its_owner_only(permissive_umask: int, tmp_path: Path) -> None:
    data, temporary = tmp_path / "data", tmp_path / "tmp"
    temporary.mkdir()
    fill(data, chat())
    assert modes(data) == {".": 0o700, "service.db": 0o600}
    assert command("user", "list", "--data", data).returncode == 0
    with serving(data, TMPDIR=str(temporary)) as server:
        token = server.log_in()
        sender = Sender(server, token, "Content-Length: 4000000")
        sender.send(form(bytes(3_000_000)))
        begun = time.monotonic()
        while not (found := modes_of_open_files(server.process.pid, temporary)):
            assert time.monotonic() - begun < TIMEOUT
        assert found == [0o600]
        while list(temporary.iterdir()):  # without O_TMPFILE, the file is unlinked shortly after its creation
            assert time.monotonic() - begun < TIMEOUT
        sender.socket.close()
        wal = {f"service.db{end}": 0o600 for end in ("", "-wal", "-shm")}
        assert modes(data) == {".": 0o700, "service.lock": 0o600, **wal}
    export = tmp_path / "all.jsonl"
    assert command("export", export, "--data", data).returncode == 0
    assert stat.S_IMODE(export.stat().st_mode) == 0o600


def test_export_is_accessible_to_its_owner_only_from_the_start(
    permissive_umask: int, application: Any, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that opens the file before a change of its permissions could continue to read it."""
    seen = []
    monkeypatch.setattr("service.operate.import_export.export", lambda *_: seen.append(modes(tmp_path / "out")))
    (tmp_path / "out").mkdir(mode=0o755)
    partial = tmp_path / "out" / ".all.jsonl.partial"
    partial.symlink_to(tmp_path / "elsewhere")
    assert run(["export", str(tmp_path / "out" / "all.jsonl"), *flags_of(settings)]) == 0
    assert [folder[".all.jsonl.partial"] for folder in seen] == [0o600]
    assert not (tmp_path / "elsewhere").exists()


# Database URLs, which may contain a password.

UNREACHABLE = "127.0.0.1:1"  # a port without a listener
URLS = (
    *("postgresql://cx:hunter2hunter2@{}/cx", "postgres://cx:hunter2hunter2@{}/cx?sslmode=nonsense"),
    *("postgresql://cx:hunter2/hunter2@{}/cx", "postgresql://cx:hunter2@hunter2@{}/cx"),
    *("postgresql://cx:hunter2#hunter2@{}/cx", "postgresql://cx:hunter2?hunter2@{}/cx"),
    *("postgresql://cx:hunter2:hunter2@{}/cx", "postgresql://cx:hunter2 hunter2@{}/cx"),
    *("postgresql://{}/cx?password=hunter2hunter2", "postgresql://{}/cx?password=hunter2&password=hunter2"),
    *("postgresql://{}/cx?user=cx&password=hunter2%zz", "postgresql://{}/cx?password=hunter2=hunter2"),
    *("postgresql://{}/cx?hunter2=hunter2&password=x", "mysql://cx:hunter2hunter2@{}/cx"),
)


@pytest.mark.parametrize("form", URLS)
@pytest.mark.parametrize("line", [["migrate"], ["export"], ["copy"]], ids=" ".join)
def test_errors_do_not_contain_the_password_of_the_database(
    line: list[str], form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, caplog: Any
) -> None:
    monkeypatch.setattr(db.database, "obj", None)
    address = form.format(UNREACHABLE)
    more = ["--from", address, "--to", str(tmp_path / "data")] if line == ["copy"] else ["--data", str(tmp_path)]
    monkeypatch.setenv("CX_DATABASE", address)
    assert run([*line, *more]) == 1
    output = capsys.readouterr()
    assert "cx-service: " in output.err
    assert "hunter" not in output.err + output.out + caplog.text


@pytest.mark.parametrize(
    ("word", "warns"),
    [
        ("--database=postgresql://cx:hunter2@127.0.0.1:1/cx", True),
        ("--database=postgresql://127.0.0.1:1/cx?user=cx&password=hunter2", True),
        ("--database=postgresql://cx@127.0.0.1:1/cx", False),
        ("--database=postgresql://cx:@127.0.0.1:1/cx?connect_timeout=1&passfile=x@y", False),
        ("--database=postgresql://[::1]:1/cx", False),
    ],
)
def test_password_on_the_command_line_has_a_warning(word: str, warns: bool, tmp_path: Path, capsys: Any) -> None:
    assert run(["migrate", "--data", str(tmp_path), word]) == 1
    errors = capsys.readouterr().err
    assert (VISIBLE_PASSWORD in errors) == warns
    assert "hunter2" not in errors


def test_representation_of_settings_has_no_password() -> None:
    shown = repr(Settings(database="postgresql://cx:hunter2@a/cx", replica="postgresql://cx:hunter2@b/cx"))
    assert "hunter2" not in shown


def test_passwords_are_not_arguments() -> None:
    done = command("user", "add", "a@example.com", "--password", "hunter2")
    assert done.returncode == 2
    assert b"unrecognized arguments" in done.stderr
