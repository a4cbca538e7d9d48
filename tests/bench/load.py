"""Load generation with wrk."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

SCRIPT = Path(__file__).with_name("load.lua")


class Result(NamedTuple):
    """The measurements of wrk; durations in milliseconds."""

    requests: int
    seconds: float
    errors: int  # responses with a status of 400 or more
    failed: int  # failed connections, and missing responses
    median: float
    p99: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


class Load:
    """A running load."""

    def __init__(self, port: int, requests: Sequence[bytes], connections: int, seconds: int) -> None:
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.writelines(b"%d\n%s" % (len(request), request) for request in requests)
        self._requests = Path(file.name)
        command = [find_wrk() or "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "-s", SCRIPT]
        self._process = subprocess.Popen(
            [*map(str, command), f"http://127.0.0.1:{port}", "--", file.name], stdout=subprocess.PIPE, text=True
        )

    def result(self) -> Result:
        """Wait for the end."""
        try:
            output, _ = self._process.communicate()
        finally:
            self._requests.unlink()
        assert self._process.returncode == 0, output
        return Result(**json.loads(output.strip().rpartition("\n")[2]))


def find_wrk() -> str | None:
    """Return the path of wrk."""
    return shutil.which("wrk")


def request(port: int, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
    """Return the bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: keep-alive"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    lines += [f"Content-Length: {len(body)}"] if body or method == "POST" else []
    return "\r\n".join([*lines, "", ""]).encode() + body
