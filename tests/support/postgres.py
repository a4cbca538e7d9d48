"""PostgreSQL for tests: servers on loopback, run by an unprivileged user, and databases."""

import contextlib
import hashlib
import os
import pwd
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

SERVER = "CX_TEST_POSTGRESQL"  # the URL of the server that test processes use; may be set to use an existing server
SQLITE_ONLY = "tests SQLite only"
# Without autovacuum, which changes plans during a test, and keeps deleted rows visible while it analyses tables.
QUICK = {
    "autovacuum": "off",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
}


def programs() -> Path | None:
    """The folder of initdb, pg_ctl and the server, of the newest version that is installed."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    found = shutil.which("initdb")
    return debian[-1] if debian else Path(found).parent if found else None


def free_port() -> int:
    """A port for a server that chooses none itself. The system gives none of this range to other sockets."""
    while True:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", random.SystemRandom().randrange(15_000, 32_000)))
            return int(probe.getsockname()[1])


def unprivileged_user() -> str | None:
    """The user for the server, which does not run as root; None for the current user."""
    if os.getuid():
        return None
    names = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"  # codespell:ignore nobody


class Server:
    """A server with a new folder."""

    def __init__(self, folder: Path, port: int = 0, **options: str) -> None:
        found = programs()
        assert found, "PostgreSQL is missing"
        self.programs, self.folder, self.port = found, folder, port or free_port()
        self.url = f"postgresql://cx@127.0.0.1:{self.port}"
        self.options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "port": str(self.port),
        } | options

    def run(self, program: str, *arguments: object) -> None:
        line = [str(self.programs / program), *map(str, arguments)]
        with Path(f"{self.folder}.log").open("ab") as log:
            subprocess.run(line, check=True, user=unprivileged_user(), cwd="/", stdout=log, stderr=log, timeout=120)

    def create(self) -> None:
        """Create the folder of a new server."""
        self.folder.mkdir(mode=0o700)
        if user := unprivileged_user():
            shutil.chown(self.folder, user)
        # A collation that is neither by bytes nor Unicode's: the service must not depend on it.
        self.run("initdb", "-D", self.folder, "-A", "trust", "-U", "cx", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")

    def start(self) -> None:
        options = " ".join(f"-c {name}='{value}'" for name, value in self.options.items())
        self.run("pg_ctl", "-D", self.folder, "-o", options, "-l", self.folder / "server.log", "-w", "start")

    def stop(self, mode: str = "immediate") -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.run("pg_ctl", "-D", self.folder, "-m", mode, "-w", "stop")


@contextlib.contextmanager
def running(**options: str) -> Iterator[Server]:
    """Run a server until the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="cx-postgres-"))
    folder.chmod(0o755)
    server = Server(folder / "data", 0, **options)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def is_chosen() -> bool:
    """Whether the tests run on PostgreSQL."""
    return SERVER in os.environ


def require_sqlite() -> None:
    """Skip a test that uses SQLite directly if the tests run on PostgreSQL."""
    if is_chosen():
        pytest.skip(SQLITE_ONLY)


is_forbidden = False  # whether the running test declares no database
databases: dict[str, str] = {}  # the URLs of the databases that this process uses, by name


def database_of(data: Path) -> str:
    """The URL of the database of a data folder, which is created if it does not exist. Empty on SQLite."""
    assert not is_forbidden, "mark the test with `pytest.mark.database`, or use a fixture that opens one"
    if not is_chosen():
        return ""
    name = f"cx_{hashlib.sha256(str(data.resolve()).encode()).hexdigest()[:16]}"
    if name not in databases:
        with psycopg.connect(f"{os.environ[SERVER]}/postgres", autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone():
                with contextlib.suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
                    connection.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
        databases[name] = f"{os.environ[SERVER]}/{name}"
    return databases[name]


def drop(*urls: str) -> None:
    """Drop databases, and end the connections to them."""
    if urls:
        with psycopg.connect(f"{os.environ[SERVER]}/postgres", autocommit=True) as connection:
            for url in urls:
                name = url.rpartition("/")[2]
                connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
                databases.pop(name, None)


def files_of(url: str) -> list[bytes]:
    """The contents of the files of a database, after a checkpoint."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        where = """SELECT current_setting('data_directory'), 'base', oid::text FROM pg_database
            WHERE datname = current_database()"""
        folder = Path(*connection.execute(where).fetchone() or ())
    if not os.access(folder, os.R_OK):
        pytest.skip("the files of the server cannot be read")
    return [path.read_bytes() for path in folder.iterdir()]


@contextlib.contextmanager
def dropping_databases() -> Iterator[None]:
    """Drop the databases that were created in the block at its end."""
    before = set(databases.values())
    try:
        yield
    finally:
        drop(*set(databases.values()) - before)
