"""Builds dist/cx-service.pyz reproducibly: the same sources, Python and lock file give the same bytes.

With --postgresql it builds dist/cx-service-postgresql.pyz, which also contains the PostgreSQL driver. The driver is a
separate option because it is licensed under the LGPL, and because it doubles the time to import Peewee.

shiv alone is not reproducible: installed packages contain the path of the build folder and of the Python used, and the
archive has the order and modes of the file system. Therefore the files are staged and cleaned first, and the archive is
rewritten.
"""

import argparse
import fcntl
import gzip
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from service import translation  # noqa: E402
from service.db import migrations  # noqa: E402
from service.operate.upgrade import DESCRIPTION, Release  # noqa: E402
from service.version import VERSION  # noqa: E402

LAUNCHER = Path(__file__).with_name("launcher.py")
FINGERPRINT = "made-from.sha256"


class Target(NamedTuple):
    """A host that an executable is built for."""

    python: str = "{}.{}".format(*sys.version_info[:2])
    machine: str = platform.machine()
    system: str = EXTENSION_SUFFIXES[0].split(".")[1].split("-", 2)[-1].removeprefix(f"{platform.machine()}-")

    @property
    def tag(self) -> str:
        """What the launcher compares: the tag of extension modules, on macOS with the machine."""
        parts = (self.system, self.machine) if self.system == "darwin" else (self.machine, self.system)
        return "-".join(("cpython", self.python.replace(".", ""), *parts))


HOST = Target()


class Executable(NamedTuple):
    """An executable to build."""

    name: str
    lock: Path  # the packages in it
    notices: tuple[Path, ...]  # licences, at the top of the archive

    @property
    def path(self) -> Path:
        return ROOT / "dist" / self.name

    @property
    def checksum(self) -> Path:
        return self.path.with_name(f"{self.name}.sha256")


LICENCE = ROOT / "LICENSE"
NOTICES = Path(__file__).with_name("notices")  # licences of psycopg and its libraries
DEFAULT = Executable("cx-service.pyz", ROOT / "requirements.lock", (LICENCE,))
POSTGRESQL = Executable("cx-service-postgresql.pyz", ROOT / "requirements-postgresql.lock", (LICENCE, NOTICES))

SOURCES = {"app.py": "app.py", "service": "service", "static": "service/static", "templates": "service/templates"}

PRUNED = (
    "bin",  # commands of the libraries, which contain the path of the Python used
    "*.dist-info/RECORD",  # these three contain the build folder, or differ between runs
    "*.dist-info/REQUESTED",
    "*.dist-info/direct_url.json",
    "**/*.pyi",
    "peewee-stubs",
    "pwiz.py",
    *(f"passlib/{name}" for name in ("_data", "apache.py", "ext", "handlers/[!_a]*", "pwd.py", "tests", "totp.py")),
    "playhouse/[!_a]*",
    *(
        f"apsw/{name}" for name in ("*.py", "_unicode.*", "fts_test_strings", "sqlite_extra*", "tests")
    ),  # tools of SQLite
    "cffi",  # the compiled bindings of argon2 need only its extension module
    "pycparser",
    "Cryptodome/SelfTest",
    *(  # ciphers and digests that nothing imports
        f"Cryptodome/{name}.*"
        for name in (
            "Cipher/_ARC4",
            "Cipher/_chacha20",
            "Cipher/_pkcs1*_decode",
            "Cipher/_raw_arc2",
            "Cipher/_raw_blowfish",
            "Cipher/_raw_cast",
            "Cipher/_raw_eksblowfish",
            "Cipher/_raw_ocb",
            "Hash/_BLAKE2b",
            "Hash/_MD[24]",
            "Hash/_RIPEMD160",
            "Hash/_SHA224",
            "Hash/_SHA384",
            "Hash/_poly1305",
        )
    ),
    "PIL/_avif.*",  # the largest part of Pillow, for a format that the service refuses
    "PIL/_imagingtk.*",
    "PIL/_imagingft.*",  # fonts
    "PIL/_imagingcms.*",  # colour profiles, which the service never parses
    *(  # libraries that only these use, on Linux and macOS
        f"{folder}/lib{name}*"
        for folder in ("pillow.libs", "PIL/.dylibs")
        for name in ("avif", "freetype", "harfbuzz", "brotli", "png16", "lcms2")
    ),
)


def sources(path: Path) -> Iterator[Path]:
    """Yield the files of a folder, without hidden and compiled files and backups of editors."""
    if path.is_file():
        yield path
    elif path.is_dir():
        for child in sorted(path.iterdir()):
            if not child.name.startswith((".", "__pycache__")) and not child.name.endswith((".pyc", "~")):
                yield from sources(child)


def commit() -> str:
    """Return the commit of the sources, with a + if files were changed since. Outside a repository, it is empty."""
    command = ["git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+"]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def fingerprint(executable: Executable) -> bytes:
    """Return a digest of all inputs of an executable. It is stored in the archive, to detect a stale build."""
    folders = [ROOT / path for path in SOURCES]
    inputs = [file for path in (*folders, *executable.notices) for file in sources(path)]
    inputs += [Path(__file__).resolve(), LAUNCHER, executable.lock, ROOT / "requirements-dev.lock"]
    digest = hashlib.sha256(f"{HOST.tag} {commit()}".encode())
    for file in inputs:
        digest.update(f"\n{file.relative_to(ROOT)} ".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest().encode()


def is_fresh(executable: Executable, inputs: bytes) -> bool:
    """Return whether the executable on disk is up to date."""
    try:
        with ZipFile(executable.path) as archive:
            return archive.read(FINGERPRINT) == inputs and executable.checksum.exists()
    except (OSError, BadZipFile, KeyError):
        return False


def run_python(*arguments: str | Path, python: str = sys.executable, **variables: str) -> None:
    """Run a tool of the current environment, or of another Python, without variables that could make builds differ."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SHIV_"))}
    environment.pop("SOURCE_DATE_EPOCH", None)
    environment |= {
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        **variables,
    }
    status = subprocess.run([python, *arguments], cwd=ROOT, env=environment, umask=0o022).returncode
    if status:
        sys.exit(f"build: command failed: python {' '.join(map(str, arguments))}")


def fill(stage: Path, lock: Path, *options: str) -> None:
    """Put the locked packages and the sources into the stage, without the parts that are not needed.

    The options of pip select the packages of another host.
    """
    pip = ["-m", "pip", "install", "-qq", "--no-input", "--no-compile", "--no-deps", "--require-hashes"]
    run_python(*pip, "--only-binary=:all:", "--target", stage, "-r", lock, *options)
    for pattern in PRUNED:
        for path in list(stage.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for source, target in SOURCES.items():
        for file in sources(ROOT / source):
            copy = stage / target / file.relative_to(ROOT / source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
            if copy.suffix == ".po":
                copy.with_suffix(".mo").write_bytes(translation.compile_catalogue(copy.stem))
                copy.unlink()
            if source == "static":  # served in this form to clients that accept it
                copy.with_name(f"{copy.name}.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
                copy.unlink()

    version = stage / "service" / "version.py"
    version.write_text(version.read_text("utf-8").replace('COMMIT = ""', f'COMMIT = "{commit()}"'), "utf-8")


def compile_all(folder: Path, python: str) -> None:
    """Compile all modules, so that the first start is faster, and later ones too if the folder is read-only.

    The compiled files are not checked against the sources, since unpacked files have the dates of the unpacking.
    """
    options = ("-q", "-s", str(folder), "--invalidation-mode", "unchecked-hash")
    run_python("-m", "compileall", *options, folder, python=python)


def launcher(build_id: str, tags: Iterable[str], downloads: str = "") -> bytes:
    """Return the launcher of an executable; `downloads` are the other executables of a release."""
    text = LAUNCHER.read_text(encoding="utf-8").replace('"@DOWNLOADS@"', repr(downloads))
    return text.replace("@BUILT_FOR@", " ".join(tags)).replace("@BUILD_ID@", build_id).encode()


def packed(stage: Path, python: str = sys.executable) -> tuple[str, dict[str, bytes]]:
    """Return the identifier of the build, and the files of the archive that shiv builds, compiled with `python`."""
    plain = stage.with_name("shiv.pyz")
    shiv = ["-m", "shiv", "--reproducible", "-e", "app:main", "-p", "/usr/bin/env python3"]
    run_python(*shiv, "--site-packages", stage, "-o", plain)
    compile_all(stage, python)
    with ZipFile(plain) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    entries |= {f"site-packages/{file.relative_to(stage)}": file.read_bytes() for file in stage.rglob("*.pyc")}
    return json.loads(entries["environment.json"])["build_id"], entries


def write_archive(output: Path, entries: dict[str, bytes], python: str = "/usr/bin/env python3") -> None:
    """Write an executable: its files sorted and with equal dates."""
    with output.open("wb") as file:
        file.write(f"#!{python}\n".encode())
        with ZipFile(file, "w", ZIP_DEFLATED, compresslevel=9) as archive:
            for name, content in sorted(entries.items()):
                entry = ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
                entry.create_system, entry.external_attr = 3, 0o100644 << 16
                archive.writestr(entry, content, ZIP_DEFLATED)
    output.chmod(0o755)


def description(executable: Executable, hosts: list[str]) -> dict[str, bytes]:
    """Return the file in the archive that `upgrade --check` reads."""
    release = Release(VERSION, commit(), len(migrations.STEPS), hosts, executable is POSTGRESQL)
    return {DESCRIPTION: msgspec.json.encode(release)}


def notices_of(executable: Executable) -> dict[str, bytes]:
    """Return the licences that stay in the archive when the code is unpacked."""
    return {file.name: file.read_bytes() for path in executable.notices for file in sources(path)}


def build(executable: Executable, inputs: bytes) -> None:
    """Build an executable and its checksum, and replace both atomically."""
    with tempfile.TemporaryDirectory(dir=executable.path.parent) as folder:
        stage, output = Path(folder, "site-packages"), Path(folder, executable.name)
        fill(stage, executable.lock)
        build_id, entries = packed(stage)
        entries |= {FINGERPRINT: inputs, "__main__.py": launcher(build_id, [HOST.tag])}
        entries |= notices_of(executable) | description(executable, [HOST.tag])
        write_archive(output, entries)
        digest = hashlib.sha256(output.read_bytes()).hexdigest()
        executable.checksum.write_text(f"{digest}  {executable.name}\n", encoding="ascii")
        output.replace(executable.path)
    size = executable.path.stat().st_size / 2**20
    print(f"{executable.path.relative_to(ROOT)}  {size:.1f} MiB  for {HOST.tag}  sha256 {digest}")


def main() -> None:
    """Build an executable. Other processes that build wait."""
    parser = argparse.ArgumentParser(description="Build dist/cx-service.pyz and its checksum.")
    parser.add_argument("--if-stale", action="store_true", help="only if an input has changed")
    parser.add_argument("--postgresql", action="store_true", help="build dist/cx-service-postgresql.pyz instead")
    options = parser.parse_args()
    executable = POSTGRESQL if options.postgresql else DEFAULT
    executable.path.parent.mkdir(exist_ok=True)
    lock = os.open(executable.path.parent, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    inputs = fingerprint(executable)
    if not (options.if_stale and is_fresh(executable, inputs)):
        print(f"Building {executable.path.relative_to(ROOT)}; this takes about half a minute ...", flush=True)
        build(executable, inputs)


if __name__ == "__main__":
    main()
