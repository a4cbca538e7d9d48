"""PostgreSQL with Patroni: after a failover, no completed write is lost."""

import contextlib
import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support import cluster, postgres
from tests.support.cluster import Load
from tests.support.server_process import serving

pytestmark = [*cluster.MARKS, pytest.mark.database]

NODES = ("pg1", "pg2")
BOUND = 25.0  # seconds that no request may exceed
QUICK = {"ttl: 30": "ttl: 6", "loop_wait: 10": "loop_wait: 1", "retry_timeout: 10": "retry_timeout: 2"}


def replace_all(text: str, changes: dict[str, str]) -> str:
    """A configuration with some texts replaced, all of which must occur."""
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


class Node:
    """A database node that Patroni manages."""

    def __init__(self, folder: Path, name: str, etcd: int) -> None:
        self.folder, self.data, self.name = folder, folder / "data", name
        self.port, self.api = postgres.free_port(), postgres.free_port()
        self.etcd = etcd
        self.patroni: Any = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the node until the end of the block."""
        changes = {
            "name: pg1": f"name: {self.name}",
            "10.0.0.21:8008": f"127.0.0.1:{self.api}",
            "10.0.0.21:5432": f"127.0.0.1:{self.port}",
            "10.0.0.31:2379,10.0.0.32:2379,10.0.0.33:2379": f"127.0.0.1:{self.etcd}",
            "/var/lib/postgresql/cx": str(self.data),
            "/usr/lib/postgresql/15/bin": str(postgres.programs()),
            "10.0.0.0/24": "127.0.0.1/32",
            "  parameters:": '  parameters:\n        unix_socket_directories: ""',
        }
        configuration = replace_all(cluster.documented_block("yaml", "synchronous_mode"), changes | QUICK)
        (self.folder / "patroni.yml").write_text(configuration)
        line = (cluster.find("patroni", "patroni"), self.folder / "patroni.yml")
        with cluster.daemon(self.folder, *line, port=self.api) as self.patroni:
            try:
                yield
            finally:
                self.kill()

    def kill(self) -> None:
        """Kill the node with all its processes."""
        with contextlib.suppress(ProcessLookupError):
            self.patroni.kill()
        with contextlib.suppress(OSError, ValueError):
            leader = int((self.data / "postmaster.pid").read_text().split()[0])
            children = Path(f"/proc/{leader}/task/{leader}/children").read_text().split()
            for process in (leader, *map(int, children)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    @property
    def members(self) -> dict[str, tuple[str, str]]:
        """The role and state of every node, as this one reports them."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.api}/cluster") as response:
            return {member["name"]: (member["role"], member["state"]) for member in json.load(response)["members"]}
        return {}


@pytest.fixture
def etcd() -> Iterator[int]:
    """The port of an etcd server, which stores the leader."""
    program, port, peers = cluster.find("etcd", "etcd-server"), postgres.free_port(), postgres.free_port()
    with cluster.unprivileged_folder("etcd") as folder:
        client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
        urls = ("--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer)
        more = ("--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}")
        with cluster.daemon(folder, program, "--data-dir", folder / "data", *urls, *more, port=port):
            yield port


@pytest.fixture
def nodes(etcd: int) -> Iterator[list[Node]]:
    """A leader and a synchronous standby."""
    cluster.find_postgresql()
    cluster.find("patroni", "patroni")
    with contextlib.ExitStack() as stack:
        made = [Node(stack.enter_context(cluster.unprivileged_folder(name)), name, etcd) for name in NODES]
        for node in made:
            stack.enter_context(node.running())
        cluster.until(lambda: sorted(role for role, _ in made[0].members.values()) == ["leader", "sync_standby"], 90)
        yield made


def test_failover_under_load_loses_no_completed_write(nodes: list[Node], tmp_path: Path) -> None:
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    superuser = f"postgresql://postgres:SECRET-1@{hosts}/{{}}?target_session_attrs=read-write"
    with psycopg.connect(superuser.format("postgres"), autocommit=True) as connection:
        connection.execute("CREATE ROLE cx LOGIN PASSWORD 'SECRET-4'")
        connection.execute("CREATE DATABASE cx OWNER cx TEMPLATE template0")
    url = f"postgresql://cx:SECRET-4@{hosts}/cx?target_session_attrs=read-write"
    flags = ("--database", url, "--workers", "2")

    def rows(sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(superuser.format("cx")) as connection:
            return connection.execute(sql.encode()).fetchall()

    with serving(tmp_path / "instance", *flags, CX_VERIFY_ANSWERS="true") as server:
        cluster.import_records(url, cluster.initial_records())
        load = Load(server)
        with load.running(0):
            time.sleep(2)
            (leader,) = [node for node in nodes if nodes[0].members[node.name][0] == "leader"]
            (standby,) = [node for node in nodes if node is not leader]
            leader.kill()
            cluster.until(lambda: standby.members.get(standby.name, ("",))[0] == "leader", 60)
            promoted = time.monotonic()
            cluster.until(lambda: all(writer.written[-1] > promoted + 1 for writer in load.writers))
        assert load.faults == []
        assert load.unavailable
        assert load.longest < BOUND
        load.assert_all_stored(rows)
        assert server.process.poll() is None
        assert "Traceback" not in server.errors
    print(f"no writes for {load.gap:.1f} s; the slowest request took {load.longest:.1f} s")
