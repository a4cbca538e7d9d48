"""A cluster as in docs/topologies.md, of nginx, three instances and PostgreSQL, and clients that load it."""

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

from tests.support import postgres
from tests.support.client import Reply
from tests.support.documentation import code_block
from tests.support.passwords import PASSWORD, PASSWORD_HASH
from tests.support.paths import ROOT
from tests.support.server_process import ALICE, APP, SESSION, Record, Served, command, json_lines, send_request, serving

TIMEOUT = 30
MARKS = [
    pytest.mark.extended,
    pytest.mark.sqlite_only("starts its own PostgreSQL server; runs with the tests on SQLite"),
]
SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"


def find(program: str, package: str) -> str:
    """The path of a program. If it is missing, the test is skipped, or fails if CI is set."""
    found = shutil.which(program, path=os.environ.get("PATH", "") + SBIN)
    if found:
        return found
    reason = f"NOT TESTED: {program} is missing; on Debian: apt-get install {package}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def find_postgresql() -> None:
    """Check that PostgreSQL is installed. If it is missing, the test is skipped, or fails if CI is set."""
    if not postgres.programs():
        find("initdb", "postgresql")


def documented_block(language: str, word: str) -> str:
    """The only code block of docs/topologies.md in a language that contains a word."""
    blocks: list[str] = re.findall(
        rf"^```{language}\n(.*?)^```$", (ROOT / "docs/topologies.md").read_text(), re.M | re.S
    )
    (block,) = [block for block in blocks if word in block]
    return block


def adapt(text: str, **changes: str) -> str:
    """A configuration with the values of some directives replaced. Each directive must occur once."""
    for name, value in changes.items():
        text, count = re.subn(rf"^(\s*{name}(?: = | )).*?(;?)$", rf"\g<1>{value}\g<2>", text, flags=re.M)
        assert count == 1, name
    return text


@contextlib.contextmanager
def unprivileged_folder(name: str) -> Iterator[Path]:
    """A temporary folder of the unprivileged user that runs the programs, who cannot read the folders of pytest."""
    folder = Path(tempfile.mkdtemp(prefix=f"cx-{name}-"))
    folder.chmod(0o755)
    if user := postgres.unprivileged_user():
        shutil.chown(folder, user)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def daemon(folder: Path, *line: object, port: int = 0, **variables: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program as an unprivileged user until the end of the block; with a port, once it listens."""
    environ = {"PATH": os.environ.get("PATH", "") + SBIN, "HOME": str(folder), "LC_ALL": "C.UTF-8", **variables}
    errors = folder / f"{Path(str(line[0])).name}.{time.monotonic_ns()}.log"
    with errors.open("wb") as log:
        process = subprocess.Popen(
            [str(word) for word in line],
            cwd=folder,
            env=environ,
            user=postgres.unprivileged_user(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        if port:
            until(lambda: process.poll() is not None or accepts_connections(port))
            assert process.poll() is None, errors.read_text()
        yield process
    finally:
        end(process)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a program and its child processes."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(15)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def accepts_connections(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def until(condition: Callable[[], object], timeout: float = TIMEOUT) -> None:
    """Wait until a condition is true; fail after `timeout` seconds."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < timeout, "the condition did not become true"
        time.sleep(0.02)


class Proxy:
    """nginx as docs/topologies.md configures it, to which clients connect."""

    def __init__(self, port: int, certificate: Path) -> None:
        self.host, self.port = "127.0.0.1", port
        self.url = f"https://{self.host}:{port}"
        self._trust = ssl.create_default_context(cafile=str(certificate))

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.host, self.port, timeout=TIMEOUT, context=self._trust)


@contextlib.contextmanager
def nginx(ports: list[int]) -> Iterator[Proxy]:
    """Run nginx as a reverse proxy of the instances on some ports."""
    program, openssl, port = find("nginx", "nginx-light"), find("openssl", "openssl"), postgres.free_port()
    with unprivileged_folder("nginx") as folder:
        files = ("-keyout", folder / "key.pem", "-out", folder / "certificate.pem")
        subject = ("-subj", "/CN=chat.example", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1")
        options = (
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            *files,
            *subject,
        )
        subprocess.run(
            [openssl, *map(str, options)], check=True, capture_output=True, user=postgres.unprivileged_user(), cwd="/"
        )
        configuration = documented_block("nginx", "upstream")
        servers = iter(ports)
        configuration, count = re.subn(
            r"(server )10\.0\.0\.\d+:8080", lambda found: f"{found[1]}127.0.0.1:{next(servers)}", configuration
        )
        assert count == len(ports)
        configuration = adapt(
            configuration,
            listen=f"127.0.0.1:{port} ssl",
            ssl_certificate=str(folder / "certificate.pem"),
            ssl_certificate_key=str(folder / "key.pem"),
            access_log=str(folder / "access.log"),
        )
        temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")  # the defaults of Debian belong to root
        paths = "".join(f"    {kind}_temp_path {folder / kind};\n" for kind in temporary)
        (folder / "nginx.conf").write_text(configuration.replace("http {\n", f"http {{\n{paths}"))
        arguments = ("-e", folder / "error.log", "-g", f"pid {folder}/pid; daemon off;", "-c", folder / "nginx.conf")
        with daemon(folder, program, *arguments, port=port):
            yield Proxy(port, folder / "certificate.pem")


@contextlib.contextmanager
def pgbouncer(database: str, size: int) -> Iterator[str]:
    """Run PgBouncer with `size` connections to the database at a URL. Yields the URL of the pool."""
    program, port = find("pgbouncer", "pgbouncer"), postgres.free_port()
    with unprivileged_folder("pgbouncer") as folder:
        (folder / "users.txt").write_text('"cx" ""\n')
        configuration = adapt(
            documented_block("ini", "pool_mode"),
            cx=f"host=127.0.0.1 port={urlsplit(database).port} dbname={urlsplit(database).path[1:]}",
            listen_addr="127.0.0.1",
            listen_port=str(port),
            auth_type="trust",
            auth_file=str(folder / "users.txt"),
            default_pool_size=str(size),
        )
        (folder / "pgbouncer.ini").write_text(configuration)
        with daemon(folder, program, folder / "pgbouncer.ini", port=port):
            yield f"postgresql://cx@127.0.0.1:{port}/cx"


@contextlib.contextmanager
def caddy(server: Served) -> Iterator[int]:
    """Run Caddy as docs/operating.md configures it, without TLS. Yields its port."""
    program, port = find("caddy", "caddy"), postgres.free_port()
    configuration = code_block("", "reverse_proxy").replace("chat.example {", f"http://127.0.0.1:{port} {{")
    configuration = configuration.replace("127.0.0.1:8080", f"127.0.0.1:{server.port}")
    with unprivileged_folder("caddy") as folder:
        (folder / "Caddyfile").write_text("{\n    admin off\n    auto_https off\n}\n" + configuration)
        with daemon(folder, program, "run", "--config", folder / "Caddyfile", port=port):
            yield port


class Cluster:
    """Three instances, two of them with two workers, on one database and behind nginx."""

    WORKERS = (1, 2, 2)

    def __init__(self, folder: Path, url: str, direct: str) -> None:
        self.folder, self.url, self.direct = folder, url, direct
        self.ports = [postgres.free_port() for _ in self.WORKERS]
        self.instances: list[Served] = []
        self._running: list[contextlib.ExitStack] = []
        self.proxy: Proxy

    def start(self, number: int) -> tuple[contextlib.ExitStack, Served]:
        """Start an instance."""
        stack = contextlib.ExitStack()
        flags = ("--database", self.url, "--port", str(self.ports[number]), "--workers", str(self.WORKERS[number]))
        instance = stack.enter_context(
            serving(self.folder / f"instance-{number}", *flags, CX_TRUSTED_PROXY="127.0.0.1", CX_VERIFY_ANSWERS="true")
        )
        return stack, instance

    def start_all(self) -> None:
        """Start all instances concurrently."""
        with ThreadPoolExecutor() as pool:
            started = list(pool.map(self.start, range(len(self.WORKERS))))
        self._running, self.instances = [stack for stack, _ in started], [instance for _, instance in started]

    def stop_all(self) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda stack: stack.close(), self._running))

    def restart(self, number: int) -> None:
        """Start an instance again that has ended."""
        self._running[number].close()
        self._running[number], self.instances[number] = self.start(number)

    def kill(self, number: int) -> None:
        """Kill an instance and its workers."""
        os.killpg(self.instances[number].process.pid, signal.SIGKILL)
        self.instances[number].process.wait()

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """The rows of a query, read from the database directly."""
        with psycopg.connect(self.direct) as connection:
            return connection.execute(sql.encode()).fetchall()

    def reset_data(self) -> None:
        """Start the instances that have ended, and replace all data by the initial records."""
        for number, instance in enumerate(self.instances):
            if instance.process.poll() is not None:
                self.restart(number)
        rows = self.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        tables = {str(name) for (name,) in rows} - {"schema_version", "signing_key"}
        with psycopg.connect(self.direct) as connection:
            connection.execute(f"TRUNCATE {', '.join(map(json.dumps, sorted(tables)))}".encode())
        import_records(self.direct, initial_records())


def import_records(url: str, records: list[Record]) -> None:
    """Import records into the database at a URL."""
    done = command("import", "-", "--database", url, input=json_lines(records))
    assert done.returncode == 0, done.stderr.decode()


@contextlib.contextmanager
def cluster(folder: Path, url: str, direct: str = "") -> Iterator[Cluster]:
    """Run a cluster with the initial records. `direct` is the URL of the database if `url` is that of a pool."""
    made = Cluster(folder, url, direct or url)
    with nginx(made.ports) as made.proxy:
        try:
            made.start_all()
            made.reset_data()
            yield made
        finally:
            made.stop_all()


# Load.

WRITERS, READERS = 8, 3
PINNABLE = 10  # messages that one writer pins and unpins
MESSAGES, NOTIFICATIONS = 200, 400


def message(number: int) -> str:
    """The identifier of a message."""
    return f"01JD4Q8M00{number:016}"


def initial_records() -> list[Record]:
    """Alice, the user of all clients, with a chat session and notifications."""
    alice = {"id": ALICE, "email": "alice@example.com", "password_hash": PASSWORD_HASH}
    return [
        {"app": {"id": APP, "name": "Shop"}},
        {"user": alice},
        {"chat_session": {"id": SESSION, "app_id": APP, "user_id": ALICE}},
        *({"message": {"id": message(n), "chat_session_id": SESSION, "text": f"line {n}"}} for n in range(MESSAGES)),
        *({"notification": {"user_id": ALICE, "title": f"number {n}"}} for n in range(NOTIFICATIONS)),
    ]


class Target(Protocol):
    """The target of requests: an instance, or the proxy of several."""

    def connect(self) -> http.client.HTTPConnection: ...


class LoadClient:
    """A client with a login session of Alice. It retries requests after a 503, as the response allows."""

    def __init__(self, target: Target) -> None:
        self.connection = target.connect()
        self.unavailable: list[float] = []  # times of responses with 503
        self.faults: list[str] = []  # lost connections and unexpected responses
        self.longest = 0.0  # seconds that the slowest request took
        self.tokens = {"access_token": "", "refresh_token": ""}

    def log_in(self) -> None:
        reply = self.call("POST", "/auth/login", {"email": "alice@example.com", "password": PASSWORD})
        self.tokens = reply.data["tokens"]

    def call(self, method: str, path: str, body: Any = None, key: str = "") -> Reply:
        """Send a request until the response is not 503. Raises AssertionError after the timeout."""
        headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
        first = time.monotonic()
        while time.monotonic() - first < TIMEOUT:
            begun = time.monotonic()
            try:
                reply = send_request(
                    self.connection, method, f"/api/v1{path}", body, self.tokens["access_token"], headers=headers
                )
            except (OSError, http.client.HTTPException) as error:
                self.connection.close()
                self.faults.append(f"{method} {path}: {error!r}")
                time.sleep(0.1)
                continue
            finally:
                self.longest = max(self.longest, time.monotonic() - begun)
            if reply.status != 503:
                if reply.status not in (200, 201):
                    self.faults.append(f"{method} {path}: {reply.status} {reply.raw!r}")
                return reply
            self.unavailable.append(time.monotonic())
            if reply.error != (503, "storage_unavailable") or not reply.headers.get("Retry-After"):
                self.faults.append(f"{method} {path}: {reply.headers} {reply.raw!r}")
            time.sleep(0.1)
        raise AssertionError(f"{method} {path}: 503 for {TIMEOUT} seconds")


class Writer(LoadClient):
    """Writes to the same records as the other writers, and records the responses."""

    def __init__(self, target: Target, number: int) -> None:
        super().__init__(target)
        self.number, self.rounds, self.marked_read = number, 0, 0
        self.pinned: set[str] = set()
        self.grants: dict[str, tuple[str, bool]] = {}  # by server: identifier, and whether it was revoked
        self.feedback: dict[str, str] = {}  # identifiers by description
        self.written: list[float] = []  # times of completed writes

    def work(self) -> None:
        """Execute each kind of write once."""
        self.rounds += 1
        self.set_preference()
        self.pin()
        self.send_feedback()
        self.grant_access()
        self.read_all()
        if self.rounds % 2 == 0:
            self.refresh()

    def write(self, method: str, path: str, body: Any = None, key: str = "") -> Reply:
        reply = self.call(method, path, body, key)
        self.written.append(time.monotonic())
        return reply

    def set_preference(self) -> None:
        """Change the member of this writer in the settings, which are one document."""
        own = {f"device_{self.number}": self.rounds}
        reply = self.write("PATCH", "/users/me/settings", own)
        assert own.items() <= reply.data.items()

    def pin(self) -> None:
        id = message(self.number * PINNABLE + self.rounds % PINNABLE)
        if id in self.pinned:
            assert self.write("DELETE", f"/chats/{SESSION}/messages/{id}/pin").data == {"unpinned": True}
            self.pinned.discard(id)
        else:
            assert self.write("POST", f"/chats/{SESSION}/messages/{id}/pin").data == {"pinned": True}
            self.pinned.add(id)

    def send_feedback(self) -> None:
        """Send feedback twice with one key, as after a lost response."""
        description = f"{self.number}-{self.rounds}"
        first, second = (
            self.write("POST", "/feedback", {"description": description}, key=description) for _ in range(2)
        )
        assert second.headers["Idempotency-Replayed"] == "true" and second.raw == first.raw
        self.feedback[description] = first.data["id"]

    def grant_access(self) -> None:
        name = f"{self.number}-{self.rounds}"
        body = {"mcp_server_id": name, "allowed_tools": ["read"]}
        grant = self.write("POST", "/data-shares", body, key=name).data["id"]
        is_revoked = self.rounds % 3 != 0
        if is_revoked:
            assert self.write("DELETE", f"/data-shares/{grant}").data["revoked_at"]
        self.grants[name] = grant, is_revoked

    def read_all(self) -> None:
        self.marked_read += self.write("PATCH", "/notifications/read-all", {}).data["marked_read"]

    def refresh(self) -> None:
        body = {"refresh_token": self.tokens["refresh_token"]}
        self.tokens = self.write("POST", "/auth/refresh", body).data["tokens"]


class Reader(LoadClient):
    """Reads lists page by page. Each instance must accept the cursors of the others."""

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
    """Writers and readers that send requests concurrently, and the results."""

    def __init__(self, target: Target) -> None:
        self.writers = [Writer(target, number) for number in range(WRITERS)]
        self.clients: list[Writer | Reader] = [*self.writers, *(Reader(target) for _ in range(READERS))]
        self.failed: list[BaseException] = []
        self._stop = threading.Event()

    @contextlib.contextmanager
    def running(self, seconds: float) -> Iterator[None]:
        """Send requests during the block, and for at least so many seconds."""
        for client in self.clients:
            client.log_in()
        threads = [threading.Thread(target=self._work, args=(client,)) for client in self.clients]
        for thread in threads:
            thread.start()
        begun = time.monotonic()
        try:
            yield
            time.sleep(max(0.0, begun + seconds - time.monotonic()))
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(2 * TIMEOUT)
            for client in self.clients:
                client.connection.close()
        if self.failed:
            raise self.failed[0]
        assert not any(thread.is_alive() for thread in threads), "a request hangs"

    def _work(self, client: Writer | Reader) -> None:
        try:
            while not self._stop.is_set():
                client.work()
        except BaseException as error:
            self.failed.append(error)

    @property
    def unavailable(self) -> list[float]:
        """The times of all responses with 503."""
        return sorted(itertools.chain.from_iterable(client.unavailable for client in self.clients))

    @property
    def faults(self) -> list[str]:
        """All lost connections and unexpected responses."""
        return [fault for client in self.clients for fault in client.faults]

    @property
    def longest(self) -> float:
        """The seconds that the slowest request took."""
        return max(client.longest for client in self.clients)

    @property
    def gap(self) -> float:
        """The longest time between two writes, in seconds."""
        written = sorted(itertools.chain.from_iterable(writer.written for writer in self.writers))
        return max(later - earlier for earlier, later in itertools.pairwise(written))

    def assert_all_stored(self, rows: Callable[[str], list[tuple[Any, ...]]]) -> None:
        """Fail unless each completed write is stored exactly once. `rows` reads from the database directly."""
        feedback = {description: id for writer in self.writers for description, id in writer.feedback.items()}
        assert sorted(rows("SELECT description, id FROM feedback")) == sorted(feedback.items())
        grants = {name: grant for writer in self.writers for name, grant in writer.grants.items()}
        stored = rows("SELECT mcp_server_id, id, revoked_at IS NOT NULL FROM data_share")
        assert sorted(stored) == sorted((name, *grant) for name, grant in grants.items())
        pinned = {id for writer in self.writers for id in writer.pinned}
        assert {id for (id,) in rows("SELECT id FROM message WHERE pinned_at IS NOT NULL")} == pinned
        ((settings,),) = rows(f"SELECT settings FROM \"user\" WHERE id = '{ALICE}'")
        own = {name: value for name, value in json.loads(settings).items() if name.startswith("device_")}
        assert own == {f"device_{writer.number}": writer.rounds for writer in self.writers}
        marked = sum(writer.marked_read for writer in self.writers)
        assert marked <= NOTIFICATIONS and (self.unavailable or marked == NOTIFICATIONS)
        assert rows("SELECT count(*) FROM notification WHERE read_at IS NULL") == [(0,)]
        assert rows("SELECT count(*) FROM login_session WHERE ended_at IS NOT NULL") == [(0,)]
        assert rows("SELECT shown_total, public_total FROM chat_session") == [(MESSAGES, MESSAGES)]
