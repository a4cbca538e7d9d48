"""Makes dist/cx-service.pyz, the same bytes from every checkout with the same sources, Python and lock file.

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
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

ROOT = Path(__file__).resolve().parent.parent
EXECUTABLE = ROOT / "dist" / "cx-service.pyz"
CHECKSUM = EXECUTABLE.with_name("cx-service.pyz.sha256")
LAUNCHER = Path(__file__).with_name("launcher.py")
LOCK = ROOT / "requirements.lock"
DEMO = ROOT / "tests" / "corpus.py"
FINGERPRINT = "made-from.sha256"
BUILT_FOR = EXTENSION_SUFFIXES[0].split(".")[1]

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


def fingerprint() -> bytes:
    """A digest of all that the executable is made from, kept in the archive, so that staleness is certain."""
    inputs = [file for path in OURS for file in sources(ROOT / path)]
    inputs += [Path(__file__).resolve(), LAUNCHER, LOCK, ROOT / "requirements-dev.lock", DEMO]
    digest = hashlib.sha256(BUILT_FOR.encode())
    for file in inputs:
        digest.update(f"\n{file.relative_to(ROOT)} ".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest().encode()


def is_fresh(made_from: bytes) -> bool:
    """Whether the executable on disk is what a build would make now."""
    try:
        with ZipFile(EXECUTABLE) as archive:
            return archive.read(FINGERPRINT) == made_from and CHECKSUM.exists()
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


def fill(stage: Path) -> None:
    """Put the locked libraries, our own code and the demo's data into the stage, and take out what nobody needs."""
    pip = ["-m", "pip", "install", "-qq", "--no-input", "--no-compile", "--no-deps", "--require-hashes"]
    run_python(*pip, "--only-binary=:all:", "--target", stage, "-r", LOCK)
    for pattern in PRUNED:
        for path in list(stage.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for source, target in OURS.items():
        for file in sources(ROOT / source):
            copy = stage / target / file.relative_to(ROOT / source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    demo = stage / "service" / "demo.jsonl"
    run_python(DEMO, "--demo", demo)


def compile_all(folder: Path) -> None:
    """Compile beforehand, so that the first start need not, and a read-only folder costs later ones nothing.

    Unchecked, since an unpacked file has the date of its unpacking.
    """
    run_python("-m", "compileall", "-q", "-s", folder, "--invalidation-mode", "unchecked-hash", folder)


def pack(stage: Path, made_from: bytes, output: Path) -> None:
    """Let shiv make its archive of the stage, then write it anew: sorted, dated alike, compiled, with our launcher."""
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
    entries[FINGERPRINT] = made_from

    with output.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with ZipFile(file, "w", ZIP_DEFLATED, compresslevel=9) as archive:
            for name, content in sorted(entries.items()):
                entry = ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
                entry.create_system, entry.external_attr = 3, 0o100644 << 16
                archive.writestr(entry, content, ZIP_DEFLATED)
    output.chmod(0o755)


def main() -> None:
    """Build, one process at a time, and put the file and its checksum in place whole."""
    parser = argparse.ArgumentParser(description="Make dist/cx-service.pyz and its checksum.")
    parser.add_argument("--if-stale", action="store_true", help="only if what it is made from has changed")
    options = parser.parse_args()
    EXECUTABLE.parent.mkdir(exist_ok=True)
    turn = os.open(EXECUTABLE.parent, os.O_RDONLY)
    fcntl.flock(turn, fcntl.LOCK_EX)
    made_from = fingerprint()
    if options.if_stale and is_fresh(made_from):
        return
    with tempfile.TemporaryDirectory(dir=EXECUTABLE.parent) as folder:
        stage, output = Path(folder, "site-packages"), Path(folder, EXECUTABLE.name)
        fill(stage)
        pack(stage, made_from, output)
        digest = hashlib.sha256(output.read_bytes()).hexdigest()
        CHECKSUM.write_text(f"{digest}  {EXECUTABLE.name}\n", encoding="ascii")
        output.replace(EXECUTABLE)
    size = EXECUTABLE.stat().st_size / 2**20
    print(f"{EXECUTABLE.relative_to(ROOT)}  {size:.1f} MiB  for {BUILT_FOR}  sha256 {digest}")


if __name__ == "__main__":
    main()
