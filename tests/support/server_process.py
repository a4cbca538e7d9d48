"""The real server in its own process, on a free port. Tests call it over HTTP; it always ends with the test."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support import postgres
from tests.support.client import Reply
from tests.support.passwords import PASSWORD, PASSWORD_HASH
from tests.support.paths import ROOT

TIMEOUT = 30
PROGRAM = (sys.executable, str(ROOT / "app.py"))
APP, ALICE, SESSION = (f"00000000-0000-4000-8000-{number:012}" for number in (1, 2, 3))

# A sitecustomize.py that interrupts its process when a module is loaded.
INTERRUPTING = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == os.environ["INTERRUPT_AT"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
"""

Record = dict[str, dict[str, Any]]


def environment(**settings: str) -> dict[str, str]:
    """The environment of the tests without settings of the service."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CX_")}
    return {**inherited, **settings}


def database_variables(data: Path) -> dict[str, str]:
    """The environment variables that select the database of a data folder."""
    url = postgres.database_of(data)
    return {"CX_DATABASE": url} if url else {}


def command(*arguments: object, cwd: Path = ROOT, **more: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a command of the service to its end."""
    line = [sys.executable, str(ROOT / "app.py"), *map(str, arguments)]
    variables = environment(
        **database_variables(Path(cwd, line[line.index("--data") + 1]) if "--data" in line else cwd / "cx-data")
    )
    return subprocess.run(line, cwd=cwd, env=variables, capture_output=True, timeout=120, **more)


def json_lines(records: Iterable[Record]) -> bytes:
    """Record as JSON Lines."""
    return "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records).encode()


def chat(messages: int = 3) -> list[Record]:
    """The records of an app, a user who can log in, Alice, and her chat session with some messages."""
    alice = {"id": ALICE, "email": "alice@example.com", "password_hash": PASSWORD_HASH}
    lines = [{"message": {"chat_session_id": SESSION, "text": f"line {number}"}} for number in range(messages)]
    return [
        {"app": {"id": APP, "name": "Shop"}},
        {"user": alice},
        {"chat_session": {"id": SESSION, "app_id": APP, "user_id": ALICE}},
        *lines,
    ]


def fill(data: Path, records: Iterable[Record]) -> None:
    """Import records into a data folder."""
    done = command("import", "-", "--data", data, input=json_lines(records))
    assert done.returncode == 0, done.stderr.decode()


def log_in_staff(server: "Served", data: Path) -> str:
    """Add an agent of the shop; return a token."""
    agent = {"email": "agent@example.com", "role": "agent", "app_id": APP, "password_hash": PASSWORD_HASH}
    fill(data, [{"user": agent}])
    return server.log_in("agent@example.com")


class Served:
    """A running server and what it printed."""

    def __init__(self, process: "subprocess.Popen[bytes]", output: Path, errors: Path) -> None:
        self.process, self._output, self._errors = process, output, errors
        begun = time.monotonic()
        while not (found := re.search(r'listens on (http://(\S+):(\d+))["\n ]', self.errors)):
            assert process.poll() is None and time.monotonic() - begun < TIMEOUT, self.errors
            time.sleep(0.01)
        self.url, self.host, self.port = found[1], found[2].strip("[]"), int(found[3])

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def logged(self, words: str = "", since: int = 0) -> list[str]:
        """The log lines from a number on that contain some words. Waits for the first."""
        begun = time.monotonic()
        while not (found := [line for line in self.errors.splitlines()[since:] if words in line]):
            assert time.monotonic() - begun < TIMEOUT, self.errors
            time.sleep(0.01)
        return found

    @property
    def workers(self) -> list[int]:
        """The identifiers of the worker processes."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(number) for number in children.read_text().split()]

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT)

    def call(self, method: str, path: str, body: Any = None, token: str = "", **more: Any) -> Reply:
        """Send a request on a new connection."""
        with contextlib.closing(self.connect()) as connection:
            return send_request(connection, method, path, body, token, **more)

    def log_in(self, email: str = "alice@example.com", password: str = PASSWORD) -> str:
        """Log in. Returns the access token."""
        reply = self.call("POST", "/api/v1/auth/login", {"email": email, "password": password})
        return str(reply.data["tokens"]["access_token"])

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and wait for the end. Returns the exit status."""
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT)


def send_request(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any = None, token: str = "", **more: Any
) -> Reply:
    """Send a request on a connection that may be kept alive."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    content = json.dumps(body).encode() if isinstance(body, dict) else body
    connection.request(method, path, content, headers | more.pop("headers", {}), **more)
    response = connection.getresponse()
    return Reply(response.status, dict(response.getheaders()), response.read())


@contextlib.contextmanager
def serving(
    data: Path, *arguments: str, cwd: Path = ROOT, program: Sequence[str] = PROGRAM, **settings: str
) -> Iterator[Served]:
    """Run a server with a data folder on a free port until the end of the block."""
    data.parent.mkdir(exist_ok=True)
    output, errors = (data.parent / f"{data.name}.{time.monotonic_ns()}.{kind}" for kind in ("out", "err"))
    line = [*program, "serve", "--port", "0", "--data", str(data), *arguments]
    variables = environment(**database_variables(data), **settings)
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            line,
            cwd=cwd,
            env=variables,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    try:
        yield Served(process, output, errors)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(15)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # workers that a failed test left running
        process.wait()
