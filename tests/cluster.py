"""Several instances as one: nginx before them, PostgreSQL behind, set up as docs/topologies.md shows; and a load."""

import contextlib
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import psycopg
import pytest

from tests import postgres
from tests.conftest import PASSWORD, PASSWORD_HASH, Reply
from tests.serving import ALICE, APP, ROOT, SESSION, Record, Served, ask, command, json_lines, serving

PATIENCE = 30
ONCE = [
    pytest.mark.slow,
    pytest.mark.skipif(postgres.is_chosen(), reason="has a PostgreSQL of its own; tested in the run on SQLite"),
]
SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"


def find(program: str, package: str) -> str:
    """A program's path. Without it the test is skipped, or fails where CI is set."""
    found = shutil.which(program, path=os.environ.get("PATH", "") + SBIN)
    if found:
        return found
    told = f"NOT TESTED: {program} is missing; on Debian: apt-get install {package}"
    if os.environ.get("CI"):
        pytest.fail(told)
    pytest.skip(told)


def find_postgresql() -> None:
    """See that there is a PostgreSQL. Without it the test is skipped, or fails where CI is set."""
    if not postgres.programs():
        find("initdb", "postgresql")


def shown(language: str, word: str) -> str:
    """The one block of docs/topologies.md in a language that holds a word."""
    blocks: list[str] = re.findall(
        rf"^```{language}\n(.*?)^```$", (ROOT / "docs/topologies.md").read_text(), re.M | re.S
    )
    (block,) = [block for block in blocks if word in block]
    return block


def adapt(text: str, **changes: str) -> str:
    """A configuration with the values of some directives, each of which it must name once, changed for this test."""
    for name, value in changes.items():
        text, count = re.subn(rf"^(\s*{name}(?: = | )).*?(;?)$", rf"\g<1>{value}\g<2>", text, flags=re.M)
        assert count == 1, name
    return text


@contextlib.contextmanager
def workplace(name: str) -> Iterator[Path]:
    """A folder that belongs to whoever runs the programs, who is never root. Pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix=f"cx-{name}-"))
    folder.chmod(0o755)
    if user := postgres.ordinary():
        shutil.chown(folder, user)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def daemon(folder: Path, *line: object, port: int = 0, **variables: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A program until the end of the block, as an ordinary user; once it takes connections, if it has a port."""
    environ = {"PATH": os.environ.get("PATH", "") + SBIN, "HOME": str(folder), "LC_ALL": "C.UTF-8", **variables}
    errors = folder / f"{Path(str(line[0])).name}.{time.monotonic_ns()}.log"
    with errors.open("wb") as log:
        process = subprocess.Popen(
            [str(word) for word in line],
            cwd=folder,
            env=environ,
            user=postgres.ordinary(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        if port:
            until(lambda: process.poll() is not None or takes_connections(port))
            assert process.poll() is None, errors.read_text()
        yield process
    finally:
        end(process)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a program and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(15)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def takes_connections(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def until(is_so: Callable[[], object], patience: float = PATIENCE) -> None:
    """Wait for something that comes by itself."""
    begun = time.monotonic()
    while not is_so():
        assert time.monotonic() - begun < patience, "waited in vain"
        time.sleep(0.02)


class Front:
    """What clients connect to: nginx, as docs/topologies.md configures it."""

    def __init__(self, port: int, certificate: Path) -> None:
        self.host, self.port = "127.0.0.1", port
        self.url = f"https://{self.host}:{port}"
        self._trust = ssl.create_default_context(cafile=str(certificate))

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.host, self.port, timeout=PATIENCE, context=self._trust)


@contextlib.contextmanager
def nginx(ports: list[int]) -> Iterator[Front]:
    """nginx before the instances on some ports."""
    program, openssl, port = find("nginx", "nginx-light"), find("openssl", "openssl"), postgres.free_port()
    with workplace("nginx") as folder:
        names = ("-keyout", folder / "key.pem", "-out", folder / "certificate.pem")
        about = ("-subj", "/CN=chat.example", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1")
        make = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *names, *about)
        subprocess.run([openssl, *map(str, make)], check=True, capture_output=True, user=postgres.ordinary(), cwd="/")
        told = shown("nginx", "upstream")
        servers = iter(ports)
        told, count = re.subn(
            r"(server )10\.0\.0\.\d+:8080", lambda found: f"{found[1]}127.0.0.1:{next(servers)}", told
        )
        assert count == len(ports)
        told = adapt(
            told,
            listen=f"127.0.0.1:{port} ssl",
            ssl_certificate=str(folder / "certificate.pem"),
            ssl_certificate_key=str(folder / "key.pem"),
            access_log=str(folder / "access.log"),
        )
        temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")  # Debian's are root's
        paths = "".join(f"    {kind}_temp_path {folder / kind};\n" for kind in temporary)
        (folder / "nginx.conf").write_text(told.replace("http {\n", f"http {{\n{paths}"))
        asked = ("-e", folder / "error.log", "-g", f"pid {folder}/pid; daemon off;", "-c", folder / "nginx.conf")
        with daemon(folder, program, *asked, port=port):
            yield Front(port, folder / "certificate.pem")


@contextlib.contextmanager
def pgbouncer(database: str, size: int) -> Iterator[str]:
    """PgBouncer before the database at an address, with so many connections to it; its address there."""
    program, port = find("pgbouncer", "pgbouncer"), postgres.free_port()
    with workplace("pgbouncer") as folder:
        (folder / "users.txt").write_text('"cx" ""\n')
        told = adapt(
            shown("ini", "pool_mode"),
            cx=f"host=127.0.0.1 port={urlsplit(database).port} dbname={urlsplit(database).path[1:]}",
            listen_addr="127.0.0.1",
            listen_port=str(port),
            auth_type="trust",
            auth_file=str(folder / "users.txt"),
            default_pool_size=str(size),
        )
        (folder / "pgbouncer.ini").write_text(told)
        with daemon(folder, program, folder / "pgbouncer.ini", port=port):
            yield f"postgresql://cx@127.0.0.1:{port}/cx"


class Cluster:
    """Three instances, two of them with two workers, on one database and behind one nginx."""

    WORKERS = (1, 2, 2)

    def __init__(self, folder: Path, url: str, direct: str) -> None:
        self.folder, self.url, self.direct = folder, url, direct
        self.ports = [postgres.free_port() for _ in self.WORKERS]
        self.instances: list[Served] = []
        self._running: list[contextlib.ExitStack] = []
        self.front: Front

    def start(self, number: int) -> tuple[contextlib.ExitStack, Served]:
        """Start one of the instances."""
        stack = contextlib.ExitStack()
        told = ("--database", self.url, "--port", str(self.ports[number]), "--workers", str(self.WORKERS[number]))
        instance = stack.enter_context(
            serving(self.folder / f"instance-{number}", *told, CX_TRUSTED_PROXY="127.0.0.1", CX_VERIFY_ANSWERS="true")
        )
        return stack, instance

    def start_all(self) -> None:
        """Start all instances at once."""
        with ThreadPoolExecutor() as pool:
            started = list(pool.map(self.start, range(len(self.WORKERS))))
        self._running, self.instances = [stack for stack, _ in started], [instance for _, instance in started]

    def stop_all(self) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda stack: stack.close(), self._running))

    def start_again(self, number: int) -> None:
        """Start an instance that has ended."""
        self._running[number].close()
        self._running[number], self.instances[number] = self.start(number)

    def kill(self, number: int) -> None:
        """End an instance and its workers as a power cut would."""
        os.killpg(self.instances[number].process.pid, signal.SIGKILL)
        self.instances[number].process.wait()

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """What the database itself has to say."""
        with psycopg.connect(self.direct) as connection:
            return connection.execute(sql.encode()).fetchall()

    def begin_anew(self) -> None:
        """See that all instances run and nobody but Alice has anything."""
        for number, instance in enumerate(self.instances):
            if instance.process.poll() is not None:
                self.start_again(number)
        tables = self.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        emptied = {str(name) for (name,) in tables} - {"schema_version", "signing_key"}
        with psycopg.connect(self.direct) as connection:
            connection.execute(f"TRUNCATE {', '.join(map(json.dumps, sorted(emptied)))}".encode())
        take_in(self.direct, household())


def take_in(url: str, records: list[Record]) -> None:
    """Import records into the database at an address."""
    done = command("import", "-", "--database", url, input=json_lines(records))
    assert done.returncode == 0, done.stderr.decode()


@contextlib.contextmanager
def cluster(folder: Path, url: str, direct: str = "") -> Iterator[Cluster]:
    """Three instances behind nginx, which Alice may use; `direct` leads past what stands before the database."""
    made = Cluster(folder, url, direct or url)
    with nginx(made.ports) as made.front:
        try:
            made.start_all()
            made.begin_anew()
            yield made
        finally:
            made.stop_all()


# Load.

WRITERS, READERS = 8, 3
OWN = 10  # messages that one writer pins
MESSAGES, NOTIFICATIONS = 200, 400


def message(number: int) -> str:
    """The identifier of a message."""
    return f"01JD4Q8M00{number:016}"


def household() -> list[Record]:
    """Alice, whom all writers are at once, with a chat session and notifications."""
    alice = {"id": ALICE, "email": "alice@example.com", "password_hash": PASSWORD_HASH}
    return [
        {"app": {"id": APP, "name": "Shop"}},
        {"user": alice},
        {"chat_session": {"id": SESSION, "app_id": APP, "user_id": ALICE}},
        *({"message": {"id": message(n), "chat_session_id": SESSION, "text": f"line {n}"}} for n in range(MESSAGES)),
        *({"notification": {"user_id": ALICE, "title": f"number {n}"}} for n in range(NOTIFICATIONS)),
    ]


class Reachable(Protocol):
    """Where requests can go: an instance, or what stands before several."""

    def connect(self) -> http.client.HTTPConnection: ...


class Person:
    """Alice on one of her devices. Whatever is refused with 503 she tries again, as the answer says."""

    def __init__(self, where: Reachable) -> None:
        self.connection = where.connect()
        self.refused: list[float] = []  # when
        self.faults: list[str] = []  # what no client should ever meet
        self.longest = 0.0  # seconds that a request took
        self.tokens = {"access_token": "", "refresh_token": ""}

    def log_in(self) -> None:
        told = self.call("POST", "/auth/login", {"email": "alice@example.com", "password": PASSWORD})
        self.tokens = told.data["tokens"]

    def call(self, method: str, path: str, body: Any = None, key: str = "") -> Reply:
        """The answer to a request, once there is one. Raises AssertionError when there is none for too long."""
        headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
        first = time.monotonic()
        while time.monotonic() - first < PATIENCE:
            begun = time.monotonic()
            try:
                answer = ask(
                    self.connection, method, f"/api/v1{path}", body, self.tokens["access_token"], headers=headers
                )
            except (OSError, http.client.HTTPException) as error:
                self.connection.close()
                self.faults.append(f"{method} {path}: {error!r}")
                time.sleep(0.1)
                continue
            finally:
                self.longest = max(self.longest, time.monotonic() - begun)
            if answer.status != 503:
                if answer.status not in (200, 201):
                    self.faults.append(f"{method} {path}: {answer.status} {answer.raw!r}")
                return answer
            self.refused.append(time.monotonic())
            if answer.error != (503, "storage_unavailable") or not answer.headers.get("Retry-After"):
                self.faults.append(f"{method} {path}: {answer.headers} {answer.raw!r}")
            time.sleep(0.1)
        raise AssertionError(f"{method} {path}: refused for {PATIENCE} seconds")


class Writer(Person):
    """Writes to what the other writers write to as well, and remembers what was answered."""

    def __init__(self, where: Reachable, number: int) -> None:
        super().__init__(where)
        self.number, self.rounds, self.marked_read = number, 0, 0
        self.pinned: set[str] = set()
        self.given: dict[str, tuple[str, bool]] = {}  # grants by server: identifier, and whether it was revoked
        self.told: dict[str, str] = {}  # identifiers of feedback by description
        self.written: list[float] = []  # when

    def work(self) -> None:
        """One round of everything."""
        self.rounds += 1
        self.set_preference()
        self.pin()
        self.give_feedback()
        self.share()
        self.read_all()
        if self.rounds % 2 == 0:
            self.refresh()

    def write(self, method: str, path: str, body: Any = None, key: str = "") -> Reply:
        answer = self.call(method, path, body, key)
        self.written.append(time.monotonic())
        return answer

    def set_preference(self) -> None:
        """Her settings are one document, of which each writer has a member."""
        own = {f"device_{self.number}": self.rounds}
        answer = self.write("PATCH", "/users/me/settings", own)
        assert own.items() <= answer.data.items()

    def pin(self) -> None:
        id = message(self.number * OWN + self.rounds % OWN)
        if id in self.pinned:
            assert self.write("DELETE", f"/chats/{SESSION}/messages/{id}/pin").data == {"unpinned": True}
            self.pinned.discard(id)
        else:
            assert self.write("POST", f"/chats/{SESSION}/messages/{id}/pin").data == {"pinned": True}
            self.pinned.add(id)

    def give_feedback(self) -> None:
        """Twice with one key, as after a lost answer."""
        description = f"{self.number}-{self.rounds}"
        once, again = (self.write("POST", "/feedback", {"description": description}, key=description) for _ in range(2))
        assert again.headers["Idempotency-Replayed"] == "true" and again.raw == once.raw
        self.told[description] = once.data["id"]

    def share(self) -> None:
        name = f"{self.number}-{self.rounds}"
        told = {"mcp_server_id": name, "allowed_tools": ["*"]}
        given = self.write("POST", "/data-shares", told, key=name).data["id"]
        is_over = self.rounds % 3 != 0
        if is_over:
            assert self.write("DELETE", f"/data-shares/{given}").data["revoked_at"]
        self.given[name] = given, is_over

    def read_all(self) -> None:
        self.marked_read += self.write("PATCH", "/notifications/read-all", {}).data["marked_read"]

    def refresh(self) -> None:
        held = {"refresh_token": self.tokens["refresh_token"]}
        self.tokens = self.write("POST", "/auth/refresh", held).data["tokens"]


class Reader(Person):
    """Walks lists, whose cursors any instance must take."""

    def work(self) -> None:
        for direction, order in (("forward", range(MESSAGES)), ("backward", reversed(range(MESSAGES)))):
            found, cursor = [], ""
            for _ in range(MESSAGES // 25):
                page = self.call("GET", f"/chats/{SESSION}/messages?limit=25&direction={direction}&cursor={cursor}")
                found += [row["id"] for row in page.data]
                cursor = page.meta["next_cursor"]
            assert found == [message(number) for number in order] and cursor == ""
        assert self.call("GET", "/notifications?limit=5").meta["unread_count"] <= NOTIFICATIONS
        self.call("GET", "/data-shares")


class Load:
    """Writers and readers at work for some seconds, and afterwards what they know."""

    def __init__(self, where: Reachable) -> None:
        self.writers = [Writer(where, number) for number in range(WRITERS)]
        self.people: list[Writer | Reader] = [*self.writers, *(Reader(where) for _ in range(READERS))]
        self.failed: list[BaseException] = []
        self._over = threading.Event()

    @contextlib.contextmanager
    def running(self, seconds: float) -> Iterator[None]:
        """At work during the block, and for so many seconds from its beginning at least."""
        for person in self.people:
            person.log_in()
        threads = [threading.Thread(target=self._work, args=(person,)) for person in self.people]
        for thread in threads:
            thread.start()
        begun = time.monotonic()
        try:
            yield
            time.sleep(max(0.0, begun + seconds - time.monotonic()))
        finally:
            self._over.set()
            for thread in threads:
                thread.join(2 * PATIENCE)
            for person in self.people:
                person.connection.close()
        if self.failed:
            raise self.failed[0]
        assert not any(thread.is_alive() for thread in threads), "a request hangs"

    def _work(self, person: Writer | Reader) -> None:
        try:
            while not self._over.is_set():
                person.work()
        except BaseException as error:
            self.failed.append(error)

    @property
    def refused(self) -> list[float]:
        """When requests were refused with 503."""
        return sorted(itertools.chain.from_iterable(person.refused for person in self.people))

    @property
    def faults(self) -> list[str]:
        """What no client should have met."""
        return [fault for person in self.people for fault in person.faults]

    @property
    def longest(self) -> float:
        """How many seconds the slowest request took."""
        return max(person.longest for person in self.people)

    @property
    def gap(self) -> float:
        """For how many seconds nobody wrote anything."""
        written = sorted(itertools.chain.from_iterable(writer.written for writer in self.writers))
        return max(later - earlier for earlier, later in itertools.pairwise(written))

    def expect_all_stored(self, rows: Callable[[str], list[tuple[Any, ...]]]) -> None:
        """Every write that was answered is there, once; `rows` asks the database itself."""
        told = {description: id for writer in self.writers for description, id in writer.told.items()}
        assert sorted(rows("SELECT description, id FROM feedback")) == sorted(told.items())
        given = {name: grant for writer in self.writers for name, grant in writer.given.items()}
        held = rows("SELECT mcp_server_id, id, revoked_at IS NOT NULL FROM data_share")
        assert sorted(held) == sorted((name, *grant) for name, grant in given.items())
        pinned = {id for writer in self.writers for id in writer.pinned}
        assert {id for (id,) in rows("SELECT id FROM message WHERE pinned_at IS NOT NULL")} == pinned
        ((settings,),) = rows(f"SELECT settings FROM \"user\" WHERE id = '{ALICE}'")
        own = {name: value for name, value in json.loads(settings).items() if name.startswith("device_")}
        assert own == {f"device_{writer.number}": writer.rounds for writer in self.writers}
        marked = sum(writer.marked_read for writer in self.writers)
        assert marked <= NOTIFICATIONS and (self.refused or marked == NOTIFICATIONS)
        assert rows("SELECT count(*) FROM notification WHERE read_at IS NULL") == [(0,)]
        assert rows("SELECT count(*) FROM login_session WHERE ended_at IS NOT NULL") == [(0,)]
        assert rows("SELECT shown_total, public_total FROM chat_session") == [(MESSAGES, MESSAGES)]
