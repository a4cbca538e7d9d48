"""Starts the server of the demo as a process, which ends with the service."""

import contextlib
import os
import signal
import socket
import threading
import traceback
from collections.abc import Iterator
from typing import NoReturn

from service.demo.server import Server

END_TIMEOUT = 5.0  # seconds


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Run the server during the block. Yields its URL, on a free port of the loopback interface. Raises OSError.

    It ends when the other end of its socket pair is shut down, or when this process and those that it forks, which have
    that end, have ended in any way.
    """
    own_end, other_end = socket.socketpair()
    with own_end:
        with other_end, socket.create_server(("127.0.0.1", 0)) as sock:
            url = f"http://127.0.0.1:{sock.getsockname()[1]}"
            process = os.fork()  # starts no program, whose path an emulated host would not execute
            if process == 0:
                _run(sock, other_end)
        try:
            yield url
        finally:
            _end(process, own_end)


def _run(sock: socket.socket, other_end: socket.socket) -> NoReturn:
    """Serve in the forked process, without the files of the service, and exit without its exit handlers."""
    try:
        os.setpgid(0, 0)  # so that it outlasts Ctrl-C until the service has stopped
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        needed = sorted((sock.fileno(), other_end.fileno()))
        for first, last in zip((2, *needed), (*needed, os.sysconf("SC_OPEN_MAX")), strict=True):
            os.closerange(first + 1, last)
        threading.Thread(target=Server(sock).serve_forever, daemon=True).start()
        other_end.recv(1)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _end(process: int, own_end: socket.socket) -> None:
    """End the server, by force after END_TIMEOUT."""
    own_end.settimeout(END_TIMEOUT)
    with contextlib.suppress(OSError):
        own_end.shutdown(socket.SHUT_WR)
        own_end.recv(1)  # returns when the process has closed its end
    with contextlib.suppress(ChildProcessError):  # the parent of the workers has already waited for it
        if os.waitpid(process, os.WNOHANG) == (0, 0):
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
