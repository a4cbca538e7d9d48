"""The limit: waitress as the service runs it, which sends answers from memory: `python -m tests.bench.limit`.

Its answers are what the service has sent to the same requests, byte for byte; nothing is routed, checked or asked for.
"""

import os
import pickle
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import waitress


def application(answers: dict[tuple[str, bool], tuple[str, list[tuple[str, str]], bytes]]) -> Callable[..., Any]:
    """Sends the answers by path, and whether the client has one already."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        query = f"?{environ['QUERY_STRING']}" if environ["QUERY_STRING"] else ""
        status, headers, body = answers[environ["PATH_INFO"] + query, "HTTP_IF_NONE_MATCH" in environ]
        start_response(status, headers)
        return [body]

    return answer


def main(file: str, port: str, workers: str, threads: str) -> None:
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=1024)
    for _ in range(int(workers) - 1):
        if os.fork() == 0:
            break
    # The answers are ours: whoever runs this has just written them.
    answers = pickle.loads(Path(file).read_bytes())
    waitress.serve(application(answers), sockets=[listener], threads=int(threads), _quiet=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
