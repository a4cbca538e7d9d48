"""Starts the server of the demo as a process, which ends with the service."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

END_TIMEOUT = 5.0  # seconds


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Run the server during the block. Yields its URL, on a free port of the loopback interface. Raises OSError.

    Its standard input is a pipe to which nothing is written: it ends when no process has the other end, which are this
    process and those that it forks.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CX_")}
    with socket.create_server(("127.0.0.1", 0)) as sock:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "service.demo.server", str(sock.fileno())],
            env=inherited | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[sock.fileno()],
            process_group=0,  # so that it outlasts Ctrl-C until the service has stopped
        )
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    with process:
        try:
            yield url
        finally:
            assert process.stdin
            process.stdin.close()
            try:
                process.wait(END_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
