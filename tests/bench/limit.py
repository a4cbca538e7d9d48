"""The limit: waitress as the service runs it, sending responses from memory: `python -m tests.bench.limit`.

The responses are those of the service to the same requests, byte for byte, without routing, checks and queries.
"""

import os
import pickle
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import waitress


def application(responses: dict[tuple[str, bool], tuple[str, list[tuple[str, str]], bytes]]) -> Callable[..., Any]:
    """Return a WSGI application that sends responses by path and by the presence of If-None-Match."""

    def respond(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        query = f"?{environ['QUERY_STRING']}" if environ["QUERY_STRING"] else ""
        status, headers, body = responses[environ["PATH_INFO"] + query, "HTTP_IF_NONE_MATCH" in environ]
        start_response(status, headers)
        return [body]

    return respond


def main(file: str, port: str, workers: str, threads: str) -> None:
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=1024)
    for _ in range(int(workers) - 1):
        if os.fork() == 0:
            break
    # The file is trusted: the benchmark has just written it.
    responses = pickle.loads(Path(file).read_bytes())
    waitress.serve(application(responses), sockets=[listener], threads=int(threads), _quiet=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
