"""Builds a release in dist/release: an executable for each kind of host, one for all of Linux, packages, and checksums.

The packages come from the lock files, with hashes, as wheels for the host. The modules are compiled with the host's
version of Python, so python3.11, python3.12 and python3.13 must be installed. The same sources give the same bytes.

The file for all Linux hosts has the files that all hosts share once. The others are in folders: `for/cpython-311` (a
version of Python), `for/x86_64-linux-gnu` (a platform) and `for/cpython-311-x86_64-linux-gnu`; the launcher unpacks
those of its host.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.parser import HeaderParser
from pathlib import Path
from typing import TypeAlias

import deb
import hosts
import image
from build import (
    DEFAULT,
    LICENCE,
    NOTICES,
    POSTGRESQL,
    ROOT,
    Executable,
    Target,
    description,
    fill,
    launcher,
    notices_of,
    packed,
    run_python,
    sources,
    write_archive,
)
from packaging.markers import Marker
from smoke import Trial, smoke

from service.version import VERSION

FOLDER = ROOT / "dist" / "release"
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = (
    ("x86_64", "linux-gnu"),
    ("aarch64", "linux-gnu"),
    ("x86_64", "linux-musl"),
    ("aarch64", "linux-musl"),
    ("arm64", "darwin"),
)
TARGETS = tuple(Target(python, *platform) for python in PYTHONS for platform in PLATFORMS)
EDITIONS: dict[str, Executable] = {"cx-service": DEFAULT, "cx-service-full": POSTGRESQL}

SYSTEMS = {"linux-gnu": "linux-{}-glibc", "linux-musl": "linux-{}-musl", "darwin": "macos-{}"}
MACHINES = {"aarch64": "arm64"}
OLDEST_GLIBC, NEWEST_GLIBC = 5, 28  # minor versions of glibc 2, of wheels
MUSL = (0, 1, 2)  # minor versions of musl 1, of wheels
MACOS = "macosx_14_0_arm64"  # for x86-64, argon2-cffi-bindings has no wheel
LIMITS = {"cx-service": (17, 80), "cx-service-full": (17, 80)}  # MiB of executables for one host, and for all of Linux
SHARED = "site-packages/"

TABLE = ROOT / "docs" / "releases.md"
BEGIN, END = "<!-- begin: table of `make release` -->", "<!-- end -->"

Results: TypeAlias = dict[tuple[str, Target, str], list[str]]  # what was tried, for an edition, a host and a file

_LICENCE = re.compile(r"[^/]+\.dist-info/(licenses/.+|(LICEN[CS]E|COPYING|NOTICE|AUTHORS)[^/]*)")
NOT_SOURCES = (".git", ".venv*", "dist", "build", "cx-data", "__pycache__", "*.egg-info", ".*_cache")
NOTICE_NAMES = {file.name for file in (LICENCE, *sources(NOTICES))}

_REQUIREMENT = re.compile(
    r"^(?P<name>[\w.-]+==\S+)(?: ; (?P<marker>.*?))? \\\n(?P<hashes>(?:    --hash=\S+(?: \\)?\n)+)", re.MULTILINE
)


def file_name(edition: str, version: str, target: Target) -> str:
    """Return the name of an executable, such as cx-service-0.2.0-cp311-linux-x86_64-glibc.pyz."""
    system = SYSTEMS[target.system].format(MACHINES.get(target.machine, target.machine))
    return f"{edition}-{version}-cp{target.python.replace('.', '')}-{system}.pyz"


def platform_tags(target: Target) -> list[str]:
    """Return the platforms of wheels for a host, best first (PEP 600, PEP 656)."""
    if target.system == "darwin":
        return [MACOS]
    if target.system == "linux-musl":
        return [f"musllinux_1_{minor}_{target.machine}" for minor in reversed(MUSL)]
    minors = range(NEWEST_GLIBC, OLDEST_GLIBC - 1, -1)
    return [*(f"manylinux_2_{minor}_{target.machine}" for minor in minors), f"manylinux2014_{target.machine}"]


def requirements_of(lock: str, target: Target) -> str:
    """Return the requirements of a lock file whose markers hold on a host (PEP 508), without the markers."""
    system = target.system.partition("-")[0]
    environment = {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": target.machine,
        "platform_python_implementation": "CPython",
        "platform_system": system.capitalize(),
        "python_full_version": f"{target.python}.0",
        "python_version": target.python,
        "sys_platform": system,
    }
    return "".join(
        f"{found['name']} \\\n{found['hashes']}"
        for found in _REQUIREMENT.finditer(lock)
        if not found["marker"] or Marker(found["marker"]).evaluate(environment)
    )


def compiler(version: str) -> str:
    """Return the path of a version of Python that runs. Exits if there is none."""
    if path := hosts.interpreter(version):
        return path
    sys.exit(f"release: python{version} is missing; install it, or build for other versions: --python 3.11")


def files_for(executable: Executable, target: Target, python: str, folder: Path) -> tuple[str, dict[str, bytes]]:
    """Return the identifier of the build, and the files of the executable for a host."""
    stage, lock = folder / "site-packages", folder / "requirements.txt"
    lock.write_text(requirements_of(executable.lock.read_text(encoding="utf-8"), target), encoding="utf-8")
    options = ["--implementation", "cp", "--python-version", target.python]
    for platform in platform_tags(target):
        options += ["--platform", platform]
    fill(stage, lock, *options)
    build_id, entries = packed(stage, python)
    return build_id, entries | notices_of(executable)


def merged(files: Mapping[Target, Mapping[str, bytes]]) -> dict[str, bytes]:
    """Return the files of an executable for several hosts: each once, in the folder of the hosts that share it."""
    found: dict[str, bytes] = {}
    for target, entries in files.items():
        python, platform = target.tag.split("-", 2)[:2], target.tag.split("-", 2)[2]
        groups = {
            "": list(files),
            f"for/{'-'.join(python)}/": [other for other in files if other.python == target.python],
            f"for/{platform}/": [other for other in files if other[1:] == target[1:]],
            f"for/{target.tag}/": [target],
        }
        for name, content in entries.items():
            group = next(g for g, members in groups.items() if all(files[m].get(name) == content for m in members))
            found[f"{group}{name}"] = content
    return found


def environment_of(entries: Mapping[str, bytes], build_id: str) -> bytes:
    """Return what shiv reads at the start, with another identifier of the build."""
    return json.dumps(json.loads(entries["environment.json"]) | {"build_id": build_id}).encode()


def write_merged(
    path: Path,
    executable: Executable,
    built: Mapping[Target, tuple[str, Mapping[str, bytes]]],
    downloads: str = "",
    python: str = "/usr/bin/env python3",
) -> None:
    """Write an executable for several hosts from the identifier and the files of each."""
    build_id = hashlib.sha256("".join(identifier for identifier, _ in built.values()).encode()).hexdigest()
    environment = {"environment.json": environment_of(next(iter(built.values()))[1], build_id)}
    entries = merged({target: {**files, **environment} for target, (_, files) in built.items()})
    tags = [target.tag for target in built]
    main = {"__main__.py": launcher(build_id, tags, downloads)}
    write_archive(path, entries | main | description(executable, tags), python)


def components(files: Iterable[Mapping[str, bytes]]) -> Iterator[dict[str, object]]:
    """Yield the packages in some executables, for CycloneDX."""
    metadata = {
        name: content.decode()
        for entries in files
        for name, content in entries.items()
        if name.startswith(SHARED) and name.endswith(".dist-info/METADATA")
    }
    for name in sorted(metadata):
        headers = HeaderParser().parsestr(metadata[name])
        licence = headers["License-Expression"] or headers["License"] or ""
        classifiers = [text for text in headers.get_all("Classifier", []) if text.startswith("License")]
        if headers["License-Expression"]:
            licences: list[dict[str, object]] = [{"expression": licence}]
        else:
            names = [text.split(" :: ")[-1] for text in classifiers] or [licence.partition("\n")[0]]
            licences = [{"license": {"name": text}} for text in names if text]
        purl = f"pkg:pypi/{headers['Name'].lower().replace('_', '-')}@{headers['Version']}"
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": headers["Name"],
            "version": headers["Version"],
            "purl": purl,
            "licenses": licences,
        }


def bill_of_materials(edition: str, version: str, files: Iterable[Mapping[str, bytes]]) -> bytes:
    """Return the packages in the executables of an edition as JSON (CycloneDX 1.6)."""
    application = {"type": "application", "bom-ref": edition, "name": edition, "version": version}
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": application | {"licenses": [{"license": {"id": "MIT"}}]}},
        "components": list(components(files)),
    }
    return json.dumps(document, indent=2).encode() + b"\n"


def licences(files: Iterable[Mapping[str, bytes]]) -> bytes:
    """Return the licences of everything in some executables, as text: each file once, with its name."""
    texts: dict[str, bytes] = {}
    for entries in files:
        for name, content in entries.items():
            path = name.removeprefix(SHARED)
            if _LICENCE.fullmatch(path) or "/" not in path and path in NOTICE_NAMES:
                texts[path] = content
    return b"\n".join(f"==== {path}\n\n".encode() + texts[path].strip() + b"\n" for path in sorted(texts))


def build_packages(folder: Path) -> None:
    """Build the sdist and the wheel for `pip install`, and check their metadata."""
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary, "sources")
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_SOURCES))
        for path in [copy, *copy.rglob("*")]:  # the archives have modes, and the sdist has times
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        command = ["-m", "uv", "build", "--quiet", "--no-build-isolation", "--out-dir", f"{copy}/dist", str(copy)]
        run_python(*command, SOURCE_DATE_EPOCH=str(int(deb.source_time().timestamp())))
        [wheel], [sdist] = copy.glob("dist/*.whl"), copy.glob("dist/*.tar.gz")
        rewrite_sdist(sdist)
        run_python("-m", "twine", "check", "--strict", wheel, sdist)
        for package in (wheel, sdist):
            shutil.copyfile(package, folder / package.name)


def rewrite_sdist(path: Path) -> None:
    """Sort the files of an sdist, and give them the same time and owner, so that it is the same for all builds."""
    seconds = int(deb.source_time().timestamp())
    with tarfile.open(path) as archive:
        files = {entry.name: (entry, archive.extractfile(entry)) for entry in archive}
        output = io.BytesIO()
        with tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as rewritten:
            for _, (entry, content) in sorted(files.items()):
                entry.mtime, entry.pax_headers = seconds, {}
                entry.uid = entry.gid = 0
                entry.uname = entry.gname = ""
                rewritten.addfile(entry, content)
    path.write_bytes(gzip.compress(output.getvalue(), mtime=0))


def build_debs(
    version: str, built: Mapping[Target, tuple[str, Mapping[str, bytes]]], notices: bytes, folder: Path
) -> None:
    """Build a Debian package for each machine of which the files for all versions of Python were built."""
    for machine, architecture in deb.ARCHITECTURES.items():
        files = {target: files for target, files in built.items() if target[1:] == (machine, "linux-gnu")}
        if len(files) < len(PYTHONS):
            continue
        name = deb.file_name(architecture, version)
        if missing := deb.missing_tools():
            print(f"NOT BUILT: {name}, which needs {' and '.join(missing)}: apt-get install debhelper", flush=True)
            continue
        print(f"Building {name} ...", flush=True)
        with tempfile.TemporaryDirectory() as temporary:
            path = Path(temporary, "cx-service")
            write_merged(path, DEFAULT, files, python=deb.PYTHON)
            deb.build_deb(architecture, version, path, notices, folder)


def build_images(
    version: str, built: Mapping[Target, tuple[str, Mapping[str, bytes]]], notices: bytes, folder: Path
) -> None:
    """Build a container image for each machine of which the files for the Python of the image were built."""
    for architecture, target in image.TARGETS.items():
        if target not in built:
            continue
        name = image.file_name(version, architecture)
        if not shutil.which("mmdebstrap"):
            print(f"NOT BUILT: {name}, which needs mmdebstrap: apt-get install mmdebstrap", flush=True)
            continue
        print(f"Building {name} ...", flush=True)
        image.build_image(architecture, version, built[target][1], notices, compiler(target.python), folder)


def too_large(folder: Path) -> list[str]:
    """Return the executables that exceed their limit, one line each."""
    found = []
    for file in sorted(folder.glob("*.pyz")):
        limit = LIMITS["cx-service-full" if "-full-" in file.name else "cx-service"]["-cp" not in file.name]
        if file.stat().st_size > limit * 2**20:
            found.append(f"{file.name} has {file.stat().st_size / 2**20:.1f} MiB, more than {limit} MiB")
    return found


def build_edition(edition: str, version: str, targets: Iterable[Target], folder: Path) -> None:
    """Build the executables of an edition, the one for all of Linux, packages, images, and the bill of materials."""
    executable = EDITIONS[edition]
    pythons = {target.python: compiler(target.python) for target in targets}
    built: dict[Target, tuple[str, dict[str, bytes]]] = {}
    for target in targets:
        print(f"Building for {target.tag} ...", flush=True)
        with tempfile.TemporaryDirectory() as temporary:
            built[target] = files_for(executable, target, pythons[target.python], Path(temporary))
    names = {target: file_name(edition, version, target) for target in targets}
    downloads = "\n".join(f"{target.tag} {name}" for target, name in names.items())
    for target, (build_id, entries) in built.items():
        main = {"__main__.py": launcher(build_id, [target.tag], downloads)}
        write_archive(folder / names[target], entries | main | description(executable, [target.tag]))
    linux = {target: files for target, files in built.items() if target.system != "darwin"}
    if len(linux) > 1:
        write_merged(folder / f"{edition}-{version}.pyz", executable, linux, downloads)
    files = [entries for _, entries in built.values()]
    notices = licences(files)
    if executable is DEFAULT:
        build_debs(version, built, notices, folder)
        build_images(version, built, notices, folder)
    (folder / f"{edition}-{version}.licences.txt").write_bytes(notices)
    (folder / f"{edition}-{version}.cdx.json").write_bytes(bill_of_materials(edition, version, files))


def main() -> None:
    """Build a release, and start what this host can start."""
    parser = argparse.ArgumentParser(description="Build the files of a release in dist/release.")
    parser.add_argument("--python", action="append", choices=PYTHONS, help="only for this version; repeatable")
    platforms = ["-".join(platform) for platform in PLATFORMS]
    parser.add_argument("--platform", action="append", choices=platforms, help="only for this platform; repeatable")
    parser.add_argument("--edition", action="append", choices=EDITIONS, help="only this edition; repeatable")
    parser.add_argument(
        "--interpreter", action="append", default=[], metavar="COMMAND", help="also try the files with this Python"
    )
    parser.add_argument("--no-build", action="store_true", help="only try the files of the last build")
    options = parser.parse_args()
    targets = [
        target
        for target in TARGETS
        if target.python in (options.python or PYTHONS) and "-".join(target[1:]) in (options.platform or platforms)
    ]
    editions = options.edition or list(EDITIONS)
    if not options.no_build:
        build_release(editions, targets)
    if large := too_large(FOLDER):
        sys.exit("\n".join(f"release: {line}" for line in large))
    pythons = {target.python for target in targets}
    given = [*hosts.this_host(pythons), *hosts.arm64(pythons), *hosts.given(options.interpreter)]
    tried_on = [host for host in given if host.target in targets]
    results = try_executables(editions, tried_on)
    trials = deb.try_all(sorted(FOLDER.glob("*.deb"))) + image.try_all(sorted(FOLDER.glob("*-image-*.tar")))
    if not (options.python or options.platform or options.edition):
        write_table(results, tried_on, trials)
    failed = [trial for trial in trials if trial.result == "failed"]
    sys.exit(bool(failed) or any(done[-1].startswith("FAILED") for done in results.values()))


def build_release(editions: Iterable[str], targets: Sequence[Target]) -> None:
    """Build all files, and replace those of the last build."""
    DEFAULT.path.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "dist") as temporary:
        folder = Path(temporary, "release")
        folder.mkdir()
        for edition in editions:
            build_edition(edition, VERSION, targets, folder)
        build_packages(folder)
        files = sorted(folder.iterdir())
        sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
        (folder / "SHA256SUMS").write_text(sums, encoding="ascii")
        shutil.rmtree(FOLDER, ignore_errors=True)
        folder.replace(FOLDER)
    for file in sorted(FOLDER.iterdir()):
        print(f"{file.stat().st_size / 2**20:6.1f} MiB  {file.relative_to(ROOT)}", flush=True)


def try_executables(editions: Iterable[str], tried_on: Iterable[hosts.Host]) -> Results:
    """Try the executables on all hosts, as many at a time as there are processors, and print the results."""
    work = {
        (edition, host.target, name): [*host.command, str(FOLDER / name)]
        for edition in editions
        for host in tried_on
        for name in (file_name(edition, VERSION, host.target), f"{edition}-{VERSION}.pyz")
        if (FOLDER / name).exists()
    }
    results = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for (edition, target, name), done in zip(work, pool.map(smoke, work.values()), strict=True):
            results[edition, target, name] = done
            print(f"{name} on {target.tag}: {', '.join(done)}", flush=True)
    return results


def write_table(results: Results, tried_on: Sequence[hosts.Host], trials: Iterable[Trial]) -> None:
    """Write what was tried on which host into docs/releases.md."""
    how = {host.target: "passed, emulated" if host.is_emulated else "passed" for host in tried_on}

    def result(edition: str, target: Target, name: str) -> str:
        done = results.get((edition, target, name))
        if not done:
            return "not tried"
        return "failed" if done[-1].startswith("FAILED") else how[target]

    head = [f"`{name}`" for edition in EDITIONS for name in (f"{edition}-…", edition)]
    lines = [f"| host | Python | {' | '.join(head)} |", "|---|---|---|---|---|---|"]
    for target in sorted(TARGETS, key=lambda target: (target[1:], target.python)):
        cells = []
        for edition in EDITIONS:
            cells.append(result(edition, target, file_name(edition, VERSION, target)))
            cells.append(result(edition, target, f"{edition}-{VERSION}.pyz") if target.system != "darwin" else "–")
        name = SYSTEMS[target.system].format(MACHINES.get(target.machine, target.machine))
        lines.append(f"| {name} | {target.python} | {' | '.join(cells)} |")
    lines += ["", "| package or image | on | result |", "|---|---|---|"]
    lines += [f"| `{trial.file.replace(VERSION, '…')}` | {trial.where} | {trial.result} |" for trial in trials]
    before, _, rest = TABLE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    table = "\n".join(lines)
    TABLE.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
