"""Makes dist/cx-service.pyz, the same bytes from every checkout with the same sources, Python and lock file.

With --postgresql it makes dist/cx-service-postgresql.pyz, which holds the driver of PostgreSQL as well: that is LGPL,
and where it is installed Peewee takes twice as long to import, so nobody has it who does not ask for it.

shiv alone does not: what pip installs names the build folder and the builder's Python, and the archive keeps the
order and modes of the file system. So everything is staged and cleaned first, and the archive is written anew.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

ROOT = Path(__file__).resolve().parent.parent
LAUNCHER = Path(__file__).with_name("launcher.py")
FINGERPRINT = "made-from.sha256"
BUILT_FOR = EXTENSION_SUFFIXES[0].split(".")[1]


class Executable(NamedTuple):
    """One of the files that are made here."""

    name: str
    lock: Path  # what is installed into it
    notices: tuple[Path, ...]  # beside the code, for whoever looks into the archive

    @property
    def path(self) -> Path:
        return ROOT / "dist" / self.name

    @property
    def checksum(self) -> Path:
        return self.path.with_name(f"{self.name}.sha256")


LICENCE = ROOT / "LICENSE"
NOTICES = Path(__file__).with_name("notices")  # what travels with psycopg and the libraries that it brings
DEFAULT = Executable("cx-service.pyz", ROOT / "requirements.lock", (LICENCE,))
POSTGRESQL = Executable("cx-service-postgresql.pyz", ROOT / "requirements-postgresql.lock", (LICENCE, NOTICES))

OURS = {"app.py": "app.py", "service": "service", "static": "service/static", "templates": "service/templates"}

PRUNED = (
    "bin",  # commands of the libraries; each names the builder's Python
    "*.dist-info/RECORD",  # these three name the build folder or differ from run to run
    "*.dist-info/REQUESTED",
    "*.dist-info/direct_url.json",
    "**/*.pyi",
    "peewee-stubs",
    "pwiz.py",
    "passlib/tests",
    "cffi",  # argon2's bindings are compiled already, and need its extension module alone
    "pycparser",
    "PIL/_avif.*",  # the largest part of Pillow, for a format that we refuse
    "pillow.libs/libavif-*",
    "PIL/_imagingtk.*",
)


def sources(path: Path) -> Iterator[Path]:
    """The files of a folder that belong to the project: nothing hidden, compiled or left by an editor."""
    if path.is_file():
        yield path
    elif path.is_dir():
        for child in sorted(path.iterdir()):
            if not child.name.startswith((".", "__pycache__")) and not child.name.endswith((".pyc", "~")):
                yield from sources(child)


def fingerprint(executable: Executable) -> bytes:
    """A digest of all that an executable is made from, kept in the archive, so that staleness is certain."""
    ours = [ROOT / path for path in OURS]
    inputs = [file for path in (*ours, *executable.notices) for file in sources(path)]
    inputs += [Path(__file__).resolve(), LAUNCHER, executable.lock, ROOT / "requirements-dev.lock"]
    digest = hashlib.sha256(BUILT_FOR.encode())
    for file in inputs:
        digest.update(f"\n{file.relative_to(ROOT)} ".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest().encode()


def is_fresh(executable: Executable, made_from: bytes) -> bool:
    """Whether the executable on disk is what a build would make now."""
    try:
        with ZipFile(executable.path) as archive:
            return archive.read(FINGERPRINT) == made_from and executable.checksum.exists()
    except (OSError, BadZipFile, KeyError):
        return False


def run_python(*arguments: str | Path) -> None:
    """Run a tool of the environment that this script runs in, out of reach of what could make two builds differ."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SHIV_"))}
    environment.pop("SOURCE_DATE_EPOCH", None)
    environment |= {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    status = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment).returncode
    if status:
        sys.exit(f"build: stopped, since this failed: python {' '.join(map(str, arguments))}")


def fill(stage: Path, lock: Path) -> None:
    """Put the locked libraries and our own code into the stage, without the parts that are not needed."""
    pip = ["-m", "pip", "install", "-qq", "--no-input", "--no-compile", "--no-deps", "--require-hashes"]
    run_python(*pip, "--only-binary=:all:", "--target", stage, "-r", lock)
    for pattern in PRUNED:
        for path in list(stage.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for source, target in OURS.items():
        for file in sources(ROOT / source):
            copy = stage / target / file.relative_to(ROOT / source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def compile_all(folder: Path) -> None:
    """Compile beforehand, so that the first start need not, and a read-only folder costs later ones nothing.

    Unchecked, since an unpacked file has the date of its unpacking.
    """
    run_python("-m", "compileall", "-q", "-s", folder, "--invalidation-mode", "unchecked-hash", folder)


def pack(stage: Path, beside: dict[str, bytes], output: Path) -> None:
    """Let shiv make its archive of the stage, then write it anew: sorted, dated alike, compiled, with our launcher.

    What is `beside` the code stays in the archive when the rest is unpacked.
    """
    plain = stage.with_name("shiv.pyz")
    shiv = ["-m", "shiv", "--reproducible", "-e", "app:main", "-p", "/usr/bin/env python3"]
    run_python(*shiv, "--site-packages", stage, "-o", plain)
    compile_all(stage)
    with ZipFile(plain) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    entries |= {f"site-packages/{file.relative_to(stage)}": file.read_bytes() for file in stage.rglob("*.pyc")}
    build_id = json.loads(entries["environment.json"])["build_id"]
    launcher = LAUNCHER.read_text(encoding="utf-8").replace("@BUILT_FOR@", BUILT_FOR).replace("@BUILD_ID@", build_id)
    entries["__main__.py"] = launcher.encode()
    entries |= beside

    with output.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with ZipFile(file, "w", ZIP_DEFLATED, compresslevel=9) as archive:
            for name, content in sorted(entries.items()):
                entry = ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
                entry.create_system, entry.external_attr = 3, 0o100644 << 16
                archive.writestr(entry, content, ZIP_DEFLATED)
    output.chmod(0o755)


def make(executable: Executable, made_from: bytes) -> None:
    """Make the file and its checksum, and put them in place whole."""
    with tempfile.TemporaryDirectory(dir=executable.path.parent) as folder:
        stage, output = Path(folder, "site-packages"), Path(folder, executable.name)
        fill(stage, executable.lock)
        notices = {file.name: file.read_bytes() for path in executable.notices for file in sources(path)}
        pack(stage, {FINGERPRINT: made_from, **notices}, output)
        digest = hashlib.sha256(output.read_bytes()).hexdigest()
        executable.checksum.write_text(f"{digest}  {executable.name}\n", encoding="ascii")
        output.replace(executable.path)
    size = executable.path.stat().st_size / 2**20
    print(f"{executable.path.relative_to(ROOT)}  {size:.1f} MiB  for {BUILT_FOR}  sha256 {digest}")


def main() -> None:
    """Build, one process at a time."""
    parser = argparse.ArgumentParser(description="Make dist/cx-service.pyz and its checksum.")
    parser.add_argument("--if-stale", action="store_true", help="only if what it is made from has changed")
    parser.add_argument("--postgresql", action="store_true", help="make dist/cx-service-postgresql.pyz in its place")
    options = parser.parse_args()
    executable = POSTGRESQL if options.postgresql else DEFAULT
    executable.path.parent.mkdir(exist_ok=True)
    turn = os.open(executable.path.parent, os.O_RDONLY)
    fcntl.flock(turn, fcntl.LOCK_EX)
    made_from = fingerprint(executable)
    if not (options.if_stale and is_fresh(executable, made_from)):
        print(f"Building {executable.path.relative_to(ROOT)}; this takes about half a minute ...", flush=True)
        make(executable, made_from)


if __name__ == "__main__":
    main()
