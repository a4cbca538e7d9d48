"""The servers: how each is filled, started and requested, and how its responses are read."""

import functools
import hashlib
import json
import pickle
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench import dataset, load
from tests.bench.peers import pocketbase
from tests.bench.processes import Response, Server, clean_environment, running
from tests.bench.row_copy import copy_rows
from tests.support.executable import PYTHON, build

ROOT = Path(__file__).resolve().parent.parent.parent
PEERS = Path(__file__).with_name("peers")
PROGRAMS = ROOT / ".venv-bench" / "bin"
WORKERS, THREADS = 2, 4

Request = tuple[str, str, Any]  # method, path, body


class Workload(NamedTuple):
    """An operation that is measured on all servers, and its goals."""

    name: str
    title: str
    requests: list[Request]
    items: int = 0  # rows of a response; 0 if it is no list
    status: int = 200
    share: float | None = None  # minimum ratio to the limit, or to the commits of bare SQLite for writes
    peer: float | None = None  # minimum processor time of the best other server, as a multiple of the service's
    p99: float | None = None  # maximum, in milliseconds
    connections: int = 16
    writes: str = ""  # the corresponding write of bare SQLite
    known: bool = False  # requested with If-None-Match of an unchanged response


class BenchServer:
    """A server. By default it has the API of the service."""

    name = ""
    title = ""

    @contextmanager
    def serving(self, folder: Path, workers: int = WORKERS, **environment: str) -> Iterator[Server]:
        """Run the server on its part of a data folder."""
        raise NotImplementedError
        yield

    def fill(self, folder: Path) -> None:
        """Create its part of a data folder, from the data of the service."""

    def token(self, server: Server) -> str:
        """Return the `Authorization` header."""
        raise NotImplementedError

    def requests_of(self, work: Workload) -> list[Request]:
        return work.requests

    def items(self, response: Response) -> list[Any]:
        """Return the rows in a response."""
        return list(json.loads(response.body)["data"])


@functools.cache
def executable() -> Path:
    """Return the executable. Cached, so that no measurement includes the check of its freshness."""
    return build()


class Service(BenchServer):
    """An executable of the service, by default this one, with default settings except for the number of workers."""

    def __init__(self, name: str = "service", file: Path | None = None) -> None:
        self.name, self.file = name, file
        self.title = "cx-service" if file is None else str(file)

    def command(self, folder: Path, *words: object) -> list[str]:
        return [str(word) for word in (PYTHON, self.file or executable(), *words, "--data", folder / self.name)]

    @contextmanager
    def serving(self, folder: Path, workers: int = WORKERS, **environment: str) -> Iterator[Server]:
        command = self.command(folder, "serve", "--port", "{port}", "--workers", workers, "--access-minutes", 600)
        with running(command, folder, environment) as server:
            yield server

    def import_records(self, folder: Path, records: Iterator[dataset.Record]) -> None:
        """Import records into a new database."""
        command = self.command(folder, "import", "-")
        folder.mkdir(parents=True, exist_ok=True)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=clean_environment())
        with process:
            assert process.stdin
            process.stdin.writelines(dataset.json_lines(records))
        assert process.returncode == 0, "the import failed"

    def token(self, server: Server) -> str:
        credentials = json.dumps({"email": dataset.EMAIL, "password": dataset.PASSWORD}).encode()
        response = server.send("POST", "/api/v1/auth/login", credentials, {"Content-Type": "application/json"})
        return f"Bearer {json.loads(response.body)['data']['tokens']['access_token']}"


class Limit(BenchServer):
    """Waitress, sending responses of the service from memory."""

    name, title = "limit", "limit"

    def __init__(self) -> None:
        self.responses: dict[tuple[str, bool], Any] = {}

    def add_response(self, path: str, response: Response, known: bool) -> None:
        headers = [
            (name.title(), value) for name, value in response.headers.items() if name not in ("date", "connection")
        ]
        self.responses[path, known] = f"{response.status} {HTTPStatus(response.status).phrase}", headers, response.body

    @contextmanager
    def serving(self, folder: Path, workers: int = WORKERS, **environment: str) -> Iterator[Server]:
        file = folder / "responses"
        file.write_bytes(pickle.dumps(self.responses))
        command = [sys.executable, "-m", "tests.bench.limit", file, "{port}", workers, THREADS]
        with running(command, folder, {"PYTHONPATH": str(ROOT)}) as server:
            yield server

    def token(self, server: Server) -> str:
        return "Bearer " + "x" * 139


class PythonServer(BenchServer):
    """A server in Python, whose module creates its tables."""

    module = ""
    bearer = hashlib.sha256(b"Alice's").hexdigest()

    def environment(self, folder: Path) -> dict[str, str]:
        return {"BENCH_DATABASE": str(folder / f"{self.name}.db")}

    def fill(self, folder: Path) -> None:
        command = [PROGRAMS / "python", PEERS / f"{self.module}.py"]
        subprocess.run(command, check=True, env=clean_environment(self.environment(folder)))
        path = folder / f"{self.name}.db"
        copy_rows(folder, path)
        token = (hashlib.sha256(self.bearer.encode()).hexdigest(), dataset.ALICE, int(time.time()) + 10**8)
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("INSERT INTO token (digest, user_id, expires_at) VALUES (?, ?, ?)", token)

    def token(self, server: Server) -> str:
        return f"Bearer {self.bearer}"


class FastApi(PythonServer):
    name, title, module = "fastapi", "FastAPI", "fastapi_app"

    @contextmanager
    def serving(self, folder: Path, workers: int = WORKERS, **environment: str) -> Iterator[Server]:
        command = [PROGRAMS / "uvicorn", "--app-dir", PEERS, f"{self.module}:app", "--port", "{port}"]
        command += ["--workers", workers, "--no-access-log", "--log-level", "warning"]
        with running(command, folder, self.environment(folder)) as server:
            yield server


class Ninja(PythonServer):
    name, title, module = "ninja", "Django Ninja", "ninja_app"

    @contextmanager
    def serving(self, folder: Path, workers: int = WORKERS, **environment: str) -> Iterator[Server]:
        command = [PROGRAMS / "gunicorn", "--chdir", PEERS, f"{self.module}:application", "--bind", "127.0.0.1:{port}"]
        command += ["--workers", workers, "--worker-class", "gthread", "--threads", THREADS, "--keep-alive", 60]
        command += ["--no-control-socket"]
        with running(command, folder, self.environment(folder)) as server:
            yield server


class PocketBase(BenchServer):
    name, title = "pocketbase", "PocketBase"

    @contextmanager
    def serving(self, folder: Path, workers: int = WORKERS, **environment: str) -> Iterator[Server]:
        with pocketbase.serving(PROGRAMS / "pocketbase", folder / "pocketbase") as server:
            yield server

    def fill(self, folder: Path) -> None:
        pocketbase.create(PROGRAMS / "pocketbase", folder / "pocketbase")
        path = folder / "pocketbase" / "data.db"
        copy_rows(folder, path, users="users")

    def token(self, server: Server) -> str:
        return pocketbase.log_in(server, "users", {"identity": dataset.EMAIL, "password": dataset.PASSWORD})

    def requests_of(self, work: Workload) -> list[Request]:
        return pocketbase.requests(work.name)

    def items(self, response: Response) -> list[Any]:
        return list(json.loads(response.body)["items"])


class Running(NamedTuple):
    """A running server, and its token."""

    server_kind: BenchServer
    server: Server
    token: str

    def headers(self, body: Any = None, **more: str) -> dict[str, str]:
        return {
            "Authorization": self.token,
            **({"Content-Type": "application/json"} if body is not None else {}),
            **more,
        }

    def send(self, request: Request, **headers: str) -> Response:
        method, path, body = request
        return self.server.send(method, path, encoded(body), self.headers(body) | headers)

    def requests(self, work: Workload, **headers: str) -> list[bytes]:
        """Return the bytes of the requests of an operation."""
        return [
            load.request(self.server.port, method, path, encoded(body), self.headers(body) | headers)
            for method, path, body in self.server_kind.requests_of(work)
        ]


def encoded(body: Any) -> bytes:
    return b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
