"""Starts an executable with a Python, and tries what depends on its compiled libraries. Prints what succeeded.

    python .ci/smoke.py EXECUTABLE PYTHON [ARGUMENT …]

It serves the demo on a free port of the loopback interface, logs in (argon2), sends a message and finds it again
(SQLite with FTS5), asks a question for which the bot needs a tool of the demo's MCP server (another process), uploads
an avatar (Pillow), makes a backup, and runs the doctor on the data.
"""

import json
import os
import re
import select
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

EMAIL, PASSWORD = "alice@demo.example", "demo-password"
SECONDS = 300  # to start; emulated processors are slow
TEXT = "smoketest"
CHAT = "b1695ed2-7632-51a7-afd1-b4ce71621874"  # of the user with a bot
QUESTION, TOOL = "What is the weather in Lisbon?", "get_forecast"


class Failed(Exception):
    """A trial failed."""


def png() -> bytes:
    """Return a picture of 8 × 8 grey pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0\x80\x80\x80\x80\x80\x80\x80\x80" * 8)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def wait_for_address(process: "subprocess.Popen[str]") -> str:
    """Return the address that the service prints."""
    assert process.stderr
    limit, output = time.monotonic() + SECONDS, ""
    while time.monotonic() < limit and process.poll() is None:
        if select.select([process.stderr], [], [], 1)[0]:
            output += os.read(process.stderr.fileno(), 65536).decode()
            if found := re.search(r"listens on (http://\S+)", output):
                return found[1]
    raise Failed(f"did not start: {output.strip()[-500:]}")


class Trial(NamedTuple):
    """The trial of a file of a release."""

    file: str
    where: str
    done: list[str]  # what succeeded; the last element may be an error

    @property
    def result(self) -> str:
        """What the documentation says."""
        if not self.done:
            return "not tried"
        return "failed" if self.done[-1].startswith("FAILED") else "passed"

    def report(self) -> "Trial":
        """Print the trial."""
        print(f"{self.file} on {self.where}: {', '.join(self.done)}", flush=True)
        return self


class Service:
    """A running service, and the token of a user."""

    def __init__(self, address: str) -> None:
        self.address, self.token = address, ""

    def call(self, method: str, path: str, body: object = None, content: bytes = b"", kind: str = "") -> Any:
        """Return the data of the response."""
        headers = {"Content-Type": kind or "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        payload = content or (json.dumps(body).encode() if body is not None else None)
        connection = HTTPConnection(self.address.removeprefix("http://"), timeout=SECONDS)
        with closing(connection):
            connection.request(method, f"/api/v1{path}", payload, headers)
            response = connection.getresponse()
            content = response.read()
        if response.status >= 400:
            raise Failed(f"{method} {path}: {response.status} {content.decode()}")
        return json.loads(content)["data"]


def ask_for_tool(service: Service) -> None:
    """Ask a question, and wait until the bot asks for permission to use a tool."""
    service.call("POST", f"/chats/{CHAT}/messages", {"content": {"text": QUESTION}})
    limit = time.monotonic() + SECONDS
    while time.monotonic() < limit:
        (newest,) = service.call("GET", f"/chats/{CHAT}/messages?direction=backward&limit=1")
        if TOOL in bytes(newest["content"]).decode():
            return
        time.sleep(0.5)
    raise Failed("tool: the bot does not ask for permission")


def trials(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Yield what was tried successfully. Raises an exception for what fails."""

    def run(*arguments: str) -> str:
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, env=environment, timeout=SECONDS)
        if done.returncode:
            raise Failed(f"{arguments[0]}: {done.stderr.strip()[-500:]}")
        return done.stdout.strip()

    yield run("--version").partition(",")[0]
    data = ["--data", str(folder / "data")]
    process = subprocess.Popen(
        [*command, "serve", "--demo", "--port", "0", *data],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stderr
    try:
        service = Service(wait_for_address(process))
        yield "serve"
        login = service.call("POST", "/auth/login", {"email": EMAIL, "password": PASSWORD})
        service.token = login["tokens"]["access_token"]
        yield "log in"
        chat = service.call("GET", "/chats?limit=1")[0]["id"]
        service.call("POST", f"/chats/{chat}/messages", {"content": {"text": TEXT}})
        yield "send"
        if not service.call("GET", f"/chats/search?q={TEXT}"):
            raise Failed("search: the message is not found")
        yield "search"
        ask_for_tool(service)
        yield "tool"
        form = (
            b'--x\r\nContent-Disposition: form-data; name="avatar"; filename="a.png"\r\n\r\n' + png() + b"\r\n--x--\r\n"
        )
        service.call("POST", "/users/me/avatar", content=form, kind="multipart/form-data; boundary=x")
        yield "avatar"
        run("backup", str(folder / "backup.db"), *data)
        yield "backup"
    finally:
        process.terminate()
        status = process.wait(SECONDS)
        process.stderr.close()
    if status:
        raise Failed(f"serve ended with status {status}")
    run("doctor", *data)
    yield "doctor"


def smoke(command: Sequence[str], data: Path | None = None) -> list[str]:
    """Return what was tried, in order; the last element is the error, if there is one.

    The data is in a temporary folder, or in `data`, which the command sees under this name.
    """
    done: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PATH": os.environ["PATH"], "HOME": folder}
        try:
            for trial in trials(list(command), data or Path(folder), environment):
                done.append(trial)
        except (Failed, OSError, KeyError, ValueError, subprocess.TimeoutExpired) as error:
            return [*done, f"FAILED: {error}"]
    return done


def main() -> None:
    """Try one executable."""
    executable, *python = sys.argv[1:]
    done = smoke([*python, str(Path(executable).resolve())])
    print(", ".join(done))
    sys.exit(done[-1].startswith("FAILED"))


if __name__ == "__main__":
    main()
