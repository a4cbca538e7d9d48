"""Tells which test opened a socket that stays open. The warning, in a later test, has only its file descriptor."""

import os
import re
import socket
import sys
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).parents[2])
FRAMES = 6
_UNCLOSED = re.compile(r"unclosed <(?:socket\.socket|ssl\.SSLSocket) fd=(\d+)")
_openings: dict[int, str] = {}  # by file descriptor, which stays in use as long as the socket is open


def record() -> None:
    """Record where each socket of this process is opened."""
    create = socket.socket.__init__

    def create_and_record(self: socket.socket, *args: Any, **options: Any) -> None:
        create(self, *args, **options)
        _openings[self.fileno()] = f"{os.environ.get('PYTEST_CURRENT_TEST', '')} at {_callers()}"

    socket.socket.__init__ = create_and_record  # type: ignore[method-assign]


def openings(report: str) -> list[str]:
    """Where the unclosed sockets were opened that a report names: the test, and lines of this project."""
    return [_openings.get(int(found), "unknown") for found in sorted(set(_UNCLOSED.findall(report)))]


def _callers() -> str:
    frame, lines = sys._getframe(2), list[str]()
    while frame and len(lines) < FRAMES:
        path = frame.f_code.co_filename
        if path.startswith(ROOT) and ".venv" not in path:
            lines.append(f"{path[len(ROOT) + 1 :]}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    return " < ".join(lines)
