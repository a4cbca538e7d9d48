"""Executes the lines that `serve --demo` prints in a shell.

python tests/support/demo_tour.py EXECUTABLE FOLDER    serves the demo and executes its lines

The program is for a network namespace with only loopback. It prints the outputs, and the failed network accesses: the
kernel counts packets without a route, and those to a closed port of loopback, such as that of a name server.
"""

import fcntl
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

HEADING = "In a shell, line by line:\n"
TIMEOUT = 60  # seconds
SIOCSIFFLAGS, IFF_UP = 0x8914, 1  # netdevice(7)
COUNTERS = {"Ip": ["OutNoRoutes"], "Ip6": ["OutNoRoutes"], "Udp": ["NoPorts"], "Tcp": ["AttemptFails"]}


class Done(NamedTuple):
    """A line, its exit status and what it wrote."""

    line: str
    status: int
    output: str


def printed_lines(output: str) -> list[str]:
    """The lines of the tour in the output of `serve --demo`."""
    _, found, lines = output.partition(HEADING)
    assert found, output
    return lines.splitlines()


def execute_lines(lines: Iterable[str]) -> list[Done]:
    """Execute the lines in one shell, except comments. None may write to standard error."""
    commands = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    script = "set -o pipefail\n" + "".join(f"{line}\nprintf '\\0%s\\0' $?\n" for line in commands)
    variables = {name: value for name, value in os.environ.items() if not name.startswith("CX_")}
    run = subprocess.run(["bash", "-c", script], capture_output=True, env=variables, timeout=TIMEOUT)
    assert not run.stderr, run.stderr.decode()
    parts = run.stdout.decode().split("\0")
    return [
        Done(line, int(status), text) for line, text, status in zip(commands, parts[::2], parts[1::2], strict=False)
    ]


def failed_accesses() -> dict[str, int]:
    """The failed network accesses in this namespace, by kind."""
    rows = [line.split() for line in Path("/proc/net/snmp").read_text().splitlines()]
    found = {
        names[0].rstrip(":") + name: int(value)
        for names, values in zip(rows[::2], rows[1::2], strict=True)
        for name, value in zip(names[1:], values[1:], strict=True)
    }
    found |= {name: int(value) for name, value in map(str.split, Path("/proc/net/snmp6").read_text().splitlines())}
    wanted = (kind + name for kind, names in COUNTERS.items() for name in names)
    return {name: found[name] for name in wanted}


def raise_loopback() -> None:
    """Activate the loopback interface of a new namespace."""
    with socket.socket() as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def access_network() -> None:
    """Accesses a remote address and a name server, which must be counted."""
    for family, address in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with socket.socket(family) as remote:
            assert remote.connect_ex((address, 80))
    try:
        socket.getaddrinfo("example.com", 80)
    except OSError:
        return
    raise AssertionError("there is a name server")


def main(executable: str, folder: str) -> None:
    """Serve the demo, execute the lines, and print the results as JSON."""
    raise_loopback()
    interfaces = [name for _, name in socket.if_nameindex()]
    output, errors = Path(folder, "out"), Path(folder, "err")
    line = [sys.executable, executable, "serve", "--demo", "--port", "0", "--data", str(Path(folder, "data"))]
    with output.open("wb") as out, errors.open("wb") as err:
        server = subprocess.Popen(line, stdout=out, stderr=err)
    try:
        begun = time.monotonic()
        while not re.search(r"listens on http://\S+\n", errors.read_text()):
            assert server.poll() is None and time.monotonic() - begun < TIMEOUT, errors.read_text()
            time.sleep(0.02)
        done = execute_lines(printed_lines(output.read_text()))
    finally:
        server.terminate()
        server.wait(TIMEOUT)
    before = failed_accesses()
    access_network()
    print(json.dumps({"interfaces": interfaces, "done": done, "before": before, "after": failed_accesses()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
