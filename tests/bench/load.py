"""Load from wrk, and what came of it."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

SCRIPT = Path(__file__).with_name("load.lua")


class Seen(NamedTuple):
    """What wrk saw; times of answers in milliseconds."""

    requests: int
    seconds: float
    refused: int  # answers with a status from 400 on
    broken: int  # connections that failed, and answers that never came
    median: float
    p99: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


class Load:
    """A load that has begun."""

    def __init__(self, port: int, requests: Sequence[bytes], connections: int, seconds: int) -> None:
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.writelines(b"%d\n%s" % (len(request), request) for request in requests)
        self._requests = Path(file.name)
        line = [found() or "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "-s", SCRIPT]
        self._process = subprocess.Popen(
            [*map(str, line), f"http://127.0.0.1:{port}", "--", file.name], stdout=subprocess.PIPE, text=True
        )

    def seen(self) -> Seen:
        """Wait for its end."""
        try:
            said, _ = self._process.communicate()
        finally:
            self._requests.unlink()
        assert self._process.returncode == 0, said
        return Seen(**json.loads(said.strip().rpartition("\n")[2]))


def found() -> str | None:
    """Where wrk is."""
    return shutil.which("wrk")


def request(port: int, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
    """A request as it goes over the wire."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: keep-alive"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    lines += [f"Content-Length: {len(body)}"] if body or method == "POST" else []
    return "\r\n".join([*lines, "", ""]).encode() + body
