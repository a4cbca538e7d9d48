"""A PostgreSQL of the tests' own: a server on loopback as an ordinary user, and a database for whoever needs one."""

import contextlib
import hashlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

SERVER = "CX_TEST_POSTGRESQL"  # the address of a running server, for test processes, or from whoever has one already
ALONE = "a matter of SQLite alone"
QUICK = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200"}


def programs() -> Path | None:
    """The folder of initdb, pg_ctl and the server, of the newest version that is installed."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    found = shutil.which("initdb")
    return debian[-1] if debian else Path(found).parent if found else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ordinary() -> str | None:
    """Whom to become: the server refuses to run as root."""
    if os.getuid():
        return None
    names = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


class Server:
    """A server with a folder of its own."""

    def __init__(self, folder: Path, port: int = 0, **options: str) -> None:
        found = programs()
        assert found, "there is no PostgreSQL here"
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
            subprocess.run(line, check=True, user=ordinary(), cwd="/", stdout=log, stderr=log, timeout=120)

    def create(self) -> None:
        """Make the folder of a new server."""
        self.folder.mkdir(mode=0o700)
        if ordinary():
            shutil.chown(self.folder, ordinary())
        # Not the order of bytes, and not Unicode's either: the service must not depend on it.
        self.run("initdb", "-D", self.folder, "-A", "trust", "-U", "cx", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")

    def start(self) -> None:
        told = " ".join(f"-c {name}='{value}'" for name, value in self.options.items())
        self.run("pg_ctl", "-D", self.folder, "-o", told, "-l", self.folder / "server.log", "-w", "start")

    def stop(self, mode: str = "immediate") -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.run("pg_ctl", "-D", self.folder, "-m", mode, "-w", "stop")


@contextlib.contextmanager
def running(**options: str) -> Iterator[Server]:
    """A server for the length of the block."""
    folder = Path(tempfile.mkdtemp(prefix="cx-postgres-"))
    folder.chmod(0o755)
    server = Server(folder / "data", **options)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def is_chosen() -> bool:
    """Whether this run of the tests is about PostgreSQL."""
    return SERVER in os.environ


on_sqlite_alone = pytest.mark.skipif(f"'{SERVER}' in os.environ", reason=ALONE)  # which is asked when it runs


def only_on_sqlite() -> None:
    """Leave a test that asks SQLite itself, or looks into its file, out of a run on PostgreSQL."""
    if is_chosen():
        pytest.skip(ALONE)


made: dict[str, str] = {}  # the addresses of the databases that this process has asked for, by name


def database_of(data: Path) -> str:
    """The address of the database that stands for a data folder, made if it is missing; empty on SQLite."""
    if not is_chosen():
        return ""
    name = f"cx_{hashlib.sha256(str(data.resolve()).encode()).hexdigest()[:16]}"
    if name not in made:
        with psycopg.connect(f"{os.environ[SERVER]}/postgres", autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone():
                with contextlib.suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
                    connection.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
        made[name] = f"{os.environ[SERVER]}/{name}"
    return made[name]


def drop(*urls: str) -> None:
    """Drop databases, whoever is connected to them."""
    if urls:
        with psycopg.connect(f"{os.environ[SERVER]}/postgres", autocommit=True) as connection:
            for url in urls:
                name = url.rpartition("/")[2]
                connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
                made.pop(name, None)


def files_of(url: str) -> list[bytes]:
    """What lies on the disk for a database, of which nothing waits in memory any more."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        where = """SELECT current_setting('data_directory'), 'base', oid::text FROM pg_database
            WHERE datname = current_database()"""
        folder = Path(*connection.execute(where).fetchone() or ())
    if not os.access(folder, os.R_OK):
        pytest.skip("the server keeps its files elsewhere")
    return [path.read_bytes() for path in folder.iterdir()]


@contextlib.contextmanager
def swept() -> Iterator[None]:
    """Drop, at the end, the databases that were first asked for inside."""
    before = set(made.values())
    try:
        yield
    finally:
        drop(*set(made.values()) - before)
