"""Who is measured: how each is filled and started, what it is asked, and how its answers are read."""

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

from tests.bench import load, world
from tests.bench.copying import copy_rows
from tests.bench.peers import pocketbase
from tests.bench.processes import Answer, Server, clean, running
from tests.executable import PYTHON, build

ROOT = Path(__file__).resolve().parent.parent.parent
PEERS = Path(__file__).with_name("peers")
PROGRAMS = ROOT / ".venv-bench" / "bin"
WORKERS, THREADS = 2, 4

Ask = tuple[str, str, Any]  # method, path, body


class Work(NamedTuple):
    """A piece of work that is asked of all, and what is to be true of it."""

    name: str
    title: str
    asks: list[Ask]
    items: int = 0  # rows of an answer; 0 when it is no list
    status: int = 200
    share: float | None = None  # of the limit, at least; of the commits of bare SQLite for what is written
    peer: float | None = None  # times the service's processor time that the best peer takes, at least
    p99: float | None = None  # milliseconds, at most
    connections: int = 16
    writes: str = ""  # what bare SQLite does for it
    known: bool = False  # asked with the tag of an answer that has not changed


class Contestant:
    """Somebody who serves; asked as the service is, unless said otherwise."""

    name = ""
    title = ""

    @contextmanager
    def serving(self, folder: Path, workers: int = WORKERS, **environment: str) -> Iterator[Server]:
        """It, running on its part of a folder of data."""
        raise NotImplementedError
        yield

    def fill(self, folder: Path) -> None:
        """Make its part of a folder of data, in which the service's lies already."""

    def token(self, server: Server) -> str:
        """What its `Authorization` header is."""
        raise NotImplementedError

    def asks(self, work: Work) -> list[Ask]:
        return work.asks

    def items(self, answer: Answer) -> list[Any]:
        """The rows in an answer."""
        return list(json.loads(answer.body)["data"])


@functools.cache
def executable() -> Path:
    """The executable, looked at once, so that nobody's start is measured with it."""
    return build()


class Service(Contestant):
    """The executable, with its own defaults but for the number of workers."""

    name, title = "service", "cx-service"

    @contextmanager
    def serving(self, folder: Path, workers: int = WORKERS, **environment: str) -> Iterator[Server]:
        line = [PYTHON, executable(), "serve", "--port", "{port}", "--data", folder / "service", "--workers", workers]
        with running([*line, "--access-minutes", 600], folder, environment) as server:
            yield server

    def take_in(self, folder: Path, records: Iterator[world.Record]) -> None:
        """Import records into a new database."""
        line = [PYTHON, executable(), "import", "-", "--data", folder / "service"]
        folder.mkdir(parents=True, exist_ok=True)
        process = subprocess.Popen([*map(str, line)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=clean())
        with process:
            assert process.stdin
            process.stdin.writelines(world.json_lines(records))
        assert process.returncode == 0, "the import failed"

    def token(self, server: Server) -> str:
        whom = json.dumps({"email": world.EMAIL, "password": world.PASSWORD}).encode()
        answer = server.ask("POST", "/api/v1/auth/login", whom, {"Content-Type": "application/json"})
        return f"Bearer {json.loads(answer.body)['data']['tokens']['access_token']}"


class Limit(Contestant):
    """Waitress, sending from memory what the service has answered."""

    name, title = "limit", "limit"

    def __init__(self) -> None:
        self.answers: dict[tuple[str, bool], Any] = {}

    def learn(self, path: str, answer: Answer, known: bool) -> None:
        kept = [(name.title(), value) for name, value in answer.headers.items() if name not in ("date", "connection")]
        self.answers[path, known] = f"{answer.status} {HTTPStatus(answer.status).phrase}", kept, answer.body

    @contextmanager
    def serving(self, folder: Path, workers: int = WORKERS, **environment: str) -> Iterator[Server]:
        file = folder / "answers"
        file.write_bytes(pickle.dumps(self.answers))
        line = [sys.executable, "-m", "tests.bench.limit", file, "{port}", workers, THREADS]
        with running(line, folder, {"PYTHONPATH": str(ROOT)}) as server:
            yield server

    def token(self, server: Server) -> str:
        return "Bearer of the same length as the service's, as good as any other: " + "x" * 80


class Python(Contestant):
    """A peer in Python, whose module makes its own tables."""

    module = ""
    bearer = hashlib.sha256(b"Alice's").hexdigest()

    def environment(self, folder: Path) -> dict[str, str]:
        return {"BENCH_DATABASE": str(folder / f"{self.name}.db")}

    def fill(self, folder: Path) -> None:
        line = [PROGRAMS / "python", PEERS / f"{self.module}.py"]
        subprocess.run(line, check=True, env=clean(self.environment(folder)))
        path = folder / f"{self.name}.db"
        copy_rows(folder, path)
        token = (hashlib.sha256(self.bearer.encode()).hexdigest(), world.ALICE, int(time.time()) + 10**8)
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("INSERT INTO token (digest, user_id, expires_at) VALUES (?, ?, ?)", token)

    def token(self, server: Server) -> str:
        return f"Bearer {self.bearer}"


class FastApi(Python):
    name, title, module = "fastapi", "FastAPI", "fastapi_app"

    @contextmanager
    def serving(self, folder: Path, workers: int = WORKERS, **environment: str) -> Iterator[Server]:
        line = [PROGRAMS / "uvicorn", "--app-dir", PEERS, f"{self.module}:app", "--port", "{port}"]
        line += ["--workers", workers, "--no-access-log", "--log-level", "warning"]
        with running(line, folder, self.environment(folder)) as server:
            yield server


class Ninja(Python):
    name, title, module = "ninja", "Django Ninja", "ninja_app"

    @contextmanager
    def serving(self, folder: Path, workers: int = WORKERS, **environment: str) -> Iterator[Server]:
        line = [PROGRAMS / "gunicorn", "--chdir", PEERS, f"{self.module}:application", "--bind", "127.0.0.1:{port}"]
        line += ["--workers", workers, "--worker-class", "gthread", "--threads", THREADS, "--keep-alive", 60]
        line += ["--no-control-socket"]
        with running(line, folder, self.environment(folder)) as server:
            yield server


class PocketBase(Contestant):
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
        return pocketbase.log_in(server, "users", {"identity": world.EMAIL, "password": world.PASSWORD})

    def asks(self, work: Work) -> list[Ask]:
        return pocketbase.requests(work.name)

    def items(self, answer: Answer) -> list[Any]:
        return list(json.loads(answer.body)["items"])


class Running(NamedTuple):
    """A contestant that runs, and what opens it."""

    contestant: Contestant
    server: Server
    token: str

    def headers(self, body: Any = None, **more: str) -> dict[str, str]:
        return {
            "Authorization": self.token,
            **({"Content-Type": "application/json"} if body is not None else {}),
            **more,
        }

    def ask(self, ask: Ask, **headers: str) -> Answer:
        method, path, body = ask
        return self.server.ask(method, path, encoded(body), self.headers(body) | headers)

    def requests(self, work: Work, **headers: str) -> list[bytes]:
        """The requests of a piece of work as they go over the wire."""
        return [
            load.request(self.server.port, method, path, encoded(body), self.headers(body) | headers)
            for method, path, body in self.contestant.asks(work)
        ]


def encoded(body: Any) -> bytes:
    return b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
