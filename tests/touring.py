"""The lines that `serve --demo` prints, followed in a real shell.

python tests/touring.py EXECUTABLE FOLDER    where there is no network but loopback: serve the demo, follow its lines

The second use is for a network namespace of its own. It prints what was answered, and how often somebody tried to
leave: the kernel counts what it has no route for, and what nobody listens for on loopback, such as a name server.
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

HEADING = "On a command line, one line after the other:\n"
PATIENCE = 60  # seconds
SIOCSIFFLAGS, IFF_UP = 0x8914, 1  # netdevice(7)
LEAVING = {"Ip": ["OutNoRoutes"], "Ip6": ["OutNoRoutes"], "Udp": ["NoPorts"], "Tcp": ["AttemptFails"]}


class Done(NamedTuple):
    """A line, its exit status and what it wrote."""

    line: str
    status: int
    output: str


def printed_lines(output: str) -> list[str]:
    """The lines to try in what `serve --demo` printed, as they stand."""
    _, found, lines = output.partition(HEADING)
    assert found, output
    return lines.splitlines()


def follow(lines: Iterable[str]) -> list[Done]:
    """Run lines one after the other in one shell; those that do something. None of them may complain."""
    doing = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    script = "set -o pipefail\n" + "".join(f"{line}\nprintf '\\0%s\\0' $?\n" for line in doing)
    told = {name: value for name, value in os.environ.items() if not name.startswith("CX_")}
    run = subprocess.run(["bash", "-c", script], capture_output=True, env=told, timeout=PATIENCE)
    assert not run.stderr, run.stderr.decode()
    parts = run.stdout.decode().split("\0")
    return [Done(line, int(status), text) for line, text, status in zip(doing, parts[::2], parts[1::2], strict=False)]


def attempts() -> dict[str, int]:
    """How often somebody in this namespace tried in vain to reach something, by kind."""
    rows = [line.split() for line in Path("/proc/net/snmp").read_text().splitlines()]
    found = {
        names[0].rstrip(":") + name: int(value)
        for names, values in zip(rows[::2], rows[1::2], strict=True)
        for name, value in zip(names[1:], values[1:], strict=True)
    }
    found |= {name: int(value) for name, value in map(str.split, Path("/proc/net/snmp6").read_text().splitlines())}
    wanted = (kind + name for kind, names in LEAVING.items() for name in names)
    return {name: found[name] for name in wanted}


def raise_loopback() -> None:
    """Take the loopback interface of a new namespace up."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def try_to_leave() -> None:
    """Do what must be noticed: ask for an address far away, and for a name."""
    for family, address in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with socket.socket(family) as far:
            assert far.connect_ex((address, 80))
    try:
        socket.getaddrinfo("example.com", 80)
    except OSError:
        return
    raise AssertionError("there is a name server")


def main(executable: str, folder: str) -> None:
    """See the module's docstring."""
    raise_loopback()
    interfaces = [name for _, name in socket.if_nameindex()]
    output, errors = Path(folder, "out"), Path(folder, "err")
    line = [sys.executable, executable, "serve", "--demo", "--port", "0", "--data", str(Path(folder, "data"))]
    with output.open("wb") as out, errors.open("wb") as err:
        server = subprocess.Popen(line, stdout=out, stderr=err)
    try:
        begun = time.monotonic()
        while not re.search(r"listens on http://\S+\n", errors.read_text()):
            assert server.poll() is None and time.monotonic() - begun < PATIENCE, errors.read_text()
            time.sleep(0.02)
        done = follow(printed_lines(output.read_text()))
    finally:
        server.terminate()
        server.wait(PATIENCE)
    quiet = attempts()
    try_to_leave()
    print(json.dumps({"interfaces": interfaces, "done": done, "before": quiet, "after": attempts()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
