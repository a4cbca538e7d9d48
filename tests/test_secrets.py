"""Keys, tokens and passwords are in no log, no answer where they do not belong, no export and no list of processes.

And the files that hold them are their owner's alone.
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
from service.auth import tokens
from service.commands import VISIBLE, run
from service.models import SigningKey, User
from service.settings import Settings
from tests import household as h
from tests.browsing import Browser, remote
from tests.conftest import PASSWORD, at, flags_of
from tests.postgres import on_sqlite_alone
from tests.serving import PATIENCE, Served, chat, command, fill, serving
from tests.test_consent import path as consent_page
from tests.test_uploads import Sender, form
from tests.valid import Household

ASSISTANT_KEY = "canary-key-of-the-assistant"
GIVING = {"log_in", "refresh_tokens", "exchange_code"}  # the operations that give out tokens


class Tour(NamedTuple):
    """What was left behind when all operations had been asked for, and somebody had signed in everywhere."""

    log: str
    answers: dict[str, bytes]  # by operation
    export: bytes
    processes: str  # their command lines
    secrets: dict[str, str]


def command_lines(process: int) -> str:
    """The command lines of a process and its children, as everybody on the machine sees them."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return "\n".join(Path(f"/proc/{number}/cmdline").read_text() for number in (process, *children))


def let_a_client_in(server: Served) -> dict[str, str]:
    """Sign in with a browser and let a command-line client in; every secret that came by."""
    browser = Browser(remote(server), server.url)
    verifier = f"{uuid4().hex}{uuid4().hex}"
    digest = hashlib.sha256(verifier.encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    browser.open(f"/api/v1{consent_page(code_challenge=challenge)}")
    browser.send(email=h.EMAILS["bob"], password=PASSWORD)
    ticket = re.findall(r'name="ticket" value="([^"]+)"', browser.reply.raw.decode())[0]
    browser.send(answer="approve")
    code = parse_qs(urlsplit(browser.onward).query)["code"][0]
    given = {"grant_type": "authorization_code", "client_id": "service-cli", "code": code, "code_verifier": verifier}
    told = browser.ask("POST", "/api/v1/auth/cli/token", given | {"redirect_uri": "http://127.0.0.1:8976/callback"})
    cookies = {f"the cookie {name}": value for name, value in browser.cookies.items()}
    named = {"the ticket": ticket, "the code": code, "the verifier": verifier}
    return cookies | named | {name: told.json[name] for name in ("access_token", "refresh_token")}


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tour]:
    """Everything that the service does, at its most talkative."""
    folder = tmp_path_factory.mktemp("secrets")
    settings = at(folder / "data")
    household = Household(settings, folder)
    told = {"CX_ASSISTANT_URL": "http://127.0.0.1:9/v1", "CX_ASSISTANT_KEY": ASSISTANT_KEY}
    answers: dict[str, bytes] = {}
    with serving(folder / "data", "--log-level", "debug", "--workers", "2", **told) as server:
        secrets = let_a_client_in(server)
        question = {"content": {"text": "When are you open?"}}  # which the assistant will be asked
        server.call("POST", f"/api/v1/chats/{h.SESSION}/messages", question, household.token)
        for number, request in enumerate(household.requests()):
            with db.write():  # some operations end the login that they come with
                pair = tokens.begin(h.ALICE, settings)
            secrets |= {f"token {number}": pair.access_token, f"refresh token {number}": pair.refresh_token}
            url = f"{request.path}?{request.query}"
            cookie = f"cx_signed_in={secrets['the cookie cx_signed_in']}"
            headers = {"Content-Type": request.content_type, "Cookie": cookie}
            method = request.operation.method
            reply = server.call(method, url, request.body or None, pair.access_token, headers=headers)
            answers[request.operation.name] = reply.raw
            for spoilt in (b'{"password": "%s"' % PASSWORD.encode(), b"\xff"):
                server.call(method, url, spoilt, pair.refresh_token, headers=headers)
        server.logged("the assistant did not answer")
        processes = command_lines(server.process.pid)
        log = server.errors + server.output
    secrets |= {f"a key of {name}": value for name, value in enumerate_keys()}
    secrets |= {name: household.names[name] for name in ("refresh_token", "console", "feed", "ticket")}
    secrets |= {"the password": PASSWORD, "the key of the assistant": ASSISTANT_KEY, "the token": household.token}
    secrets |= {f"the hash of {user.email}": user.password_hash for user in User.select()}
    export = command("export", "--data", folder / "data").stdout
    yield Tour(log, answers, export, processes, secrets)
    db.close_database()


def enumerate_keys() -> Iterator[tuple[str, str]]:
    """The signing keys."""
    for number, key in enumerate(SigningKey.secrets()):
        yield f"signing {number}", key


def found(secrets: dict[str, str], text: str) -> list[str]:
    """The names of the secrets that stand in a text."""
    return [name for name, value in secrets.items() if value and value in text]


@pytest.mark.slow
class TestATour:
    def test_went_everywhere(self, tour: Tour) -> None:
        assert len(tour.secrets) > 200
        assert tour.log.count(" 200 ") > 50
        assert "the assistant did not answer" in tour.log

    def test_left_none_in_the_log(self, tour: Tour) -> None:
        assert found(tour.secrets, tour.log) == []
        assert "Bearer" not in tour.log
        assert not re.search(r"cx[arc]_", tour.log)
        assert "Traceback" not in tour.log

    def test_left_none_in_the_list_of_processes(self, tour: Tour) -> None:
        assert found(tour.secrets, tour.processes) == []
        assert tour.processes.count("serve") >= 3

    def test_left_none_in_answers(self, tour: Tour) -> None:
        forms = ("the ticket", "console", "ticket")  # which stand in pages
        for name, raw in tour.answers.items():
            assert [one for one in found(tour.secrets, raw.decode("latin-1")) if one not in forms] == [], name
            gives = re.search(rb"cx[arc]_\w", raw)  # the examples of the document end after the prefix
            assert bool(gives) <= (name in GIVING), name

    def test_left_none_in_an_export_but_hashes(self, tour: Tour) -> None:
        assert tour.export.count(b"\n") > 20
        exported = found(tour.secrets, tour.export.decode())
        assert exported and all(name.startswith("the hash of") for name in exported)


# Files.


def modes(folder: Path) -> dict[str, int]:
    """Who may do what with a folder and all that is in it."""
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}


def modes_of_open_files(process: int, folder: Path) -> list[int]:
    """The same of the files in a folder that a process holds open."""
    found = []
    for entry in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed by now
            if entry.readlink().is_relative_to(folder):
                found.append(stat.S_IMODE(entry.stat().st_mode))
    return found


@pytest.fixture(params=[0o000, 0o022], ids=["everybody may", "others may read"])
def generous(request: pytest.FixtureRequest) -> Iterator[int]:
    """Whoever starts the service lets others read what it makes, and even write it."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@on_sqlite_alone
@pytest.mark.slow
def test_the_data_folder_is_its_owners_alone(generous: int, tmp_path: Path) -> None:
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
        while not (kept := modes_of_open_files(server.process.pid, temporary)):
            assert time.monotonic() - begun < PATIENCE
        assert kept == [0o600]
        while list(temporary.iterdir()):  # it has no name; where O_TMPFILE is not to be had, soon
            assert time.monotonic() - begun < PATIENCE
        sender.socket.close()
        wal = {f"service.db{end}": 0o600 for end in ("", "-wal", "-shm")}
        assert modes(data) == {".": 0o700, **wal}
    export = tmp_path / "all.jsonl"
    assert command("export", export, "--data", data).returncode == 0
    assert stat.S_IMODE(export.stat().st_mode) == 0o600


def test_an_export_is_its_owners_alone_from_its_first_byte_on(
    generous: int, application: Any, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opened it before it was closed to others would read on."""
    seen = []
    monkeypatch.setattr("service.transfer.give_out", lambda *_: seen.append(modes(tmp_path / "out")))
    (tmp_path / "out").mkdir(mode=0o755)
    left = tmp_path / "out" / ".all.jsonl.partial"
    left.symlink_to(tmp_path / "elsewhere")
    assert run(["export", str(tmp_path / "out" / "all.jsonl"), *flags_of(settings)]) == 0
    assert [folder[".all.jsonl.partial"] for folder in seen] == [0o600]
    assert not (tmp_path / "elsewhere").exists()


# Addresses of databases, which may hold a password.

NOWHERE = "127.0.0.1:1"  # where nobody listens
LEAKY = (
    *("postgresql://cx:hunter2hunter2@{}/cx", "postgres://cx:hunter2hunter2@{}/cx?sslmode=nonsense"),
    *("postgresql://cx:hunter2/hunter2@{}/cx", "postgresql://cx:hunter2@hunter2@{}/cx"),
    *("postgresql://cx:hunter2#hunter2@{}/cx", "postgresql://cx:hunter2?hunter2@{}/cx"),
    *("postgresql://cx:hunter2:hunter2@{}/cx", "postgresql://cx:hunter2 hunter2@{}/cx"),
    *("postgresql://{}/cx?password=hunter2hunter2", "postgresql://{}/cx?password=hunter2&password=hunter2"),
    *("postgresql://{}/cx?user=cx&password=hunter2%zz", "postgresql://{}/cx?password=hunter2=hunter2"),
    *("postgresql://{}/cx?hunter2=hunter2&password=x", "mysql://cx:hunter2hunter2@{}/cx"),
)


@pytest.mark.parametrize("form", LEAKY)
@pytest.mark.parametrize("line", [["migrate"], ["export"], ["copy"]], ids=" ".join)
def test_no_complaint_tells_the_password_of_the_database(
    line: list[str], form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, caplog: Any
) -> None:
    monkeypatch.setattr(db.database, "obj", None)
    address = form.format(NOWHERE)
    more = ["--from", address, "--to", str(tmp_path / "data")] if line == ["copy"] else ["--data", str(tmp_path)]
    monkeypatch.setenv("CX_DATABASE", address)
    assert run([*line, *more]) == 1
    told = capsys.readouterr()
    assert "cx-service: " in told.err
    assert "hunter" not in told.err + told.out + caplog.text


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
def test_a_password_on_the_command_line_is_warned_of(word: str, warns: bool, tmp_path: Path, capsys: Any) -> None:
    assert run(["migrate", "--data", str(tmp_path), word]) == 1
    told = capsys.readouterr().err
    assert (VISIBLE in told) == warns
    assert "hunter2" not in told


def test_settings_show_no_password() -> None:
    shown = repr(Settings(database="postgresql://cx:hunter2@a/cx", replica="postgresql://cx:hunter2@b/cx"))
    assert "hunter2" not in shown


def test_a_password_is_never_an_argument() -> None:
    done = command("user", "add", "a@example.com", "--password", "hunter2")
    assert done.returncode == 2
    assert b"unrecognized arguments" in done.stderr
