"""The hosts on which the executables of a release are tried: this one, emulated ones, and others that are given.

For arm64, Debian's packages of Python are unpacked, and run by qemu: apt-get install qemu-user-static mmdebstrap.
"""

import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from build import ROOT, Target

ROOTS = ROOT / "dist" / "roots"  # file systems of other hosts, which the next run uses again
QEMU = "qemu-aarch64-static"
DEBIAN_PYTHONS = {"3.11": "bookworm", "3.13": "trixie"}
LIBRARIES = "python3,zlib1g,libexpat1,libssl3,libbz2-1.0,liblzma5,libffi8"
DESCRIBE = (
    "import os, sysconfig; print('%d.%d' % __import__('sys').version_info[:2], os.uname().machine,"
    " 'darwin' if os.uname().sysname == 'Darwin' else sysconfig.get_config_var('SOABI').split('-', 3)[3])"
)


class Host(NamedTuple):
    """A host that can run Python."""

    target: Target
    command: tuple[str, ...]  # runs Python
    is_emulated: bool = False


def interpreter(version: str) -> str:
    """Return the path of a version of Python that runs, or "" if there is none."""
    if version == "{}.{}".format(*sys.version_info[:2]):
        return sys.executable
    path = shutil.which(f"python{version}")
    return path if path and not subprocess.run([path, "-c", ""], capture_output=True).returncode else ""


def describe(command: Iterable[str]) -> Target:
    """Return the target that a Python is. Raises CalledProcessError or OSError if it does not run."""
    output = subprocess.run([*command, "-I", "-c", DESCRIBE], check=True, capture_output=True, text=True).stdout
    return Target(*output.split())


def this_host(pythons: Iterable[str]) -> Iterator[Host]:
    """Yield the versions of Python of this host."""
    for version in pythons:
        if path := interpreter(version):
            yield Host(describe([path]), (path,))


def arm64(pythons: Iterable[str]) -> Iterator[Host]:
    """Yield an emulated arm64 host for each version of Python that Debian has. Prints why if there is none."""
    if platform.machine() == "aarch64":
        return
    if missing := [name for name in (QEMU, "mmdebstrap") if not shutil.which(name)]:
        print(f"NOT TRIED: arm64, which needs {' and '.join(missing)}", flush=True)
        return
    for version, suite in DEBIAN_PYTHONS.items():
        if version in pythons:
            root = ROOTS / f"{suite}-arm64"
            python = root / "usr" / "bin" / f"python{version}"
            if not python.exists():
                shutil.rmtree(root, ignore_errors=True)
                root.parent.mkdir(parents=True, exist_ok=True)
                options = ["--quiet", "--variant=extract", "--architectures=arm64", f"--include={LIBRARIES}"]
                subprocess.run(["mmdebstrap", *options, suite, root], check=True)
                if not (root / "lib").exists():
                    (root / "lib").symlink_to("usr/lib")  # which the package base-files would contain
            command = (QEMU, "-L", str(root), str(python))
            yield Host(describe(command), command, is_emulated=True)


def given(commands: Iterable[str]) -> Iterator[Host]:
    """Yield the hosts of commands that run Python, such as a Python built with musl."""
    for command in map(shlex.split, commands):
        yield Host(describe(command), tuple(command), is_emulated=Path(command[0]).name.startswith("qemu-"))
