"""The files of a release: names, packages for other hosts, and the executable for several hosts."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest

from tests.support.executable import PYTHON, clean_environment
from tests.support.executable import executable_fixture as executable_fixture
from tests.support.paths import ROOT

OTHER = ("3.99", "riscv64", "linux-musl")


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / ".ci")
    return importlib.import_module("release")


def run(file: Path, cache: Path) -> tuple[int, str]:
    """Return the status and the output of `--version`."""
    command = [PYTHON, file, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(SHIV_ROOT=cache), timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_names_are_distinct_and_say_what_the_files_are_for(release: ModuleType) -> None:
    names = [release.file_name("cx-service", "1.2.3", target) for target in release.TARGETS]
    assert len(set(names)) == len(names) == 15
    assert "cx-service-1.2.3-cp311-linux-x86_64-glibc.pyz" in names
    assert "cx-service-1.2.3-cp313-linux-arm64-musl.pyz" in names
    assert "cx-service-1.2.3-cp312-macos-arm64.pyz" in names


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-postgresql.lock"])
def test_requirements_of_a_host_are_those_whose_markers_hold(lock: str, release: ModuleType) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    locked = set(re.findall(r"^([\w.-]+)==", text, re.MULTILINE))
    for target in release.TARGETS:
        found = release.requirements_of(text, target)
        names = set(re.findall(r"^([\w.-]+)==", found, re.MULTILINE))
        assert ";" not in found
        assert {"apsw", "pillow", "msgspec", "argon2-cffi-bindings", "peewee"} <= names <= locked


def test_each_requirement_keeps_its_hashes(release: ModuleType) -> None:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    found = release.requirements_of(text, release.Target("3.11", "x86_64", "linux-gnu"))
    blocks = re.split(r"^(?=[\w.-]+==)", found, flags=re.MULTILINE)[1:]
    assert all(
        re.fullmatch(r"\S+ \\\n(    --hash=sha256:[0-9a-f]{64} \\\n)*    --hash=sha256:[0-9a-f]{64}\n", block)
        for block in blocks
    )
    assert set(re.findall(r"sha256:\w+", found)) <= set(re.findall(r"sha256:\w+", text))


def test_files_are_stored_once_for_all_hosts_that_share_them(release: ModuleType) -> None:
    hosts = [release.Target(python, machine, "linux-gnu") for python in ("3.11", "3.12") for machine in ("a", "b")]
    files = {
        host: {"same": b"", "python": host.python.encode(), "machine": host.machine.encode(), "own": host.tag.encode()}
        for host in hosts
    }
    del files[hosts[0]]["same"]
    merged = release.merged(files)
    assert merged["for/cpython-311/python"] == b"3.11"
    assert merged["for/b-linux-gnu/machine"] == b"b"
    assert merged["for/cpython-312-a-linux-gnu/own"] == b"cpython-312-a-linux-gnu"
    assert {name for name in merged if name.endswith("/same")} == {"for/cpython-312/same", "for/b-linux-gnu/same"}
    assert len(merged) == 2 + 2 + 4 + 2


def test_executables_above_their_limit_are_reported(release: ModuleType, tmp_path: Path) -> None:
    assert release.LIMITS == {"cx-service": (17, 80), "cx-service-full": (17, 80)}
    sizes = {
        "cx-service-1-cp311-linux-x86_64-glibc.pyz": 17,
        "cx-service-1-cp312-linux-x86_64-glibc.pyz": 18,
        "cx-service-full-1-cp311-linux-x86_64-glibc.pyz": 17,
        "cx-service-full-1-cp312-linux-x86_64-glibc.pyz": 18,
        "cx-service-1.pyz": 81,
        "cx-service-full-1.pyz": 81,
    }
    for name, size in sizes.items():
        with (tmp_path / name).open("wb") as file:
            file.truncate(size * 2**20)
    assert release.too_large(tmp_path) == [
        "cx-service-1-cp312-linux-x86_64-glibc.pyz has 18.0 MiB, more than 17 MiB",
        "cx-service-1.pyz has 81.0 MiB, more than 80 MiB",
        "cx-service-full-1-cp312-linux-x86_64-glibc.pyz has 18.0 MiB, more than 17 MiB",
        "cx-service-full-1.pyz has 81.0 MiB, more than 80 MiB",
    ]


def test_table_says_what_passed_failed_and_was_not_tried(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "releases.md"
    table.write_text(f"before\n{release.BEGIN}\nformer\n{release.END}\nafter\n")
    monkeypatch.setattr(release, "TABLE", table)
    own, other = release.Target("3.11", "x86_64", "linux-gnu"), release.Target("3.13", "aarch64", "linux-gnu")
    hosts = [release.hosts.Host(own, ()), release.hosts.Host(other, (), is_emulated=True)]
    names = [release.file_name("cx-service", release.VERSION, target) for target in (own, other)]
    results = {
        ("cx-service", own, names[0]): ["serve", "FAILED: log in"],
        ("cx-service", other, names[1]): ["serve", "doctor"],
    }
    trials = [
        release.Trial(f"a_{release.VERSION}.deb", "bookworm", ["install", "purge"]),
        release.Trial("b.deb", "bookworm", ["install", "FAILED: purge"]),
        release.Trial("c.deb", "trixie", []),
    ]
    release.write_table(results, hosts, trials)
    lines = table.read_text().splitlines()
    assert (lines[:2], lines[-2:]) == (["before", release.BEGIN], [release.END, "after"])
    assert "former" not in lines
    assert "| linux-x86_64-glibc | 3.11 | failed | not tried | not tried | not tried |" in lines
    assert "| linux-arm64-glibc | 3.13 | passed, emulated | not tried | not tried | not tried |" in lines
    assert [line for line in lines if ".deb" in line] == [
        "| `a_….deb` | bookworm | passed |",
        "| `b.deb` | bookworm | failed |",
        "| `c.deb` | trixie | not tried |",
    ]


def test_each_host_tries_its_executable_and_that_for_all_hosts(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = release.Target("3.11", "x86_64", "linux-gnu")
    names = [release.file_name("cx-service", release.VERSION, target), f"cx-service-{release.VERSION}.pyz"]
    for name in names:
        (tmp_path / name).touch()
    monkeypatch.setattr(release, "FOLDER", tmp_path)
    monkeypatch.setattr(release, "smoke", lambda command: ["serve", command[-1]])
    results = release.try_executables(["cx-service", "cx-service-full"], [release.hosts.Host(target, ("python3.11",))])
    assert results == {("cx-service", target, name): ["serve", str(tmp_path / name)] for name in names}
    assert [line.partition(" on ")[0] for line in capsys.readouterr().out.splitlines()] == names


@pytest.mark.slow
def test_two_builds_of_wheel_and_sdist_have_the_same_bytes(release: ModuleType, tmp_path: Path) -> None:
    builds = []
    for umask in (0o022, 0o077):
        folder, former = tmp_path / f"{umask}", os.umask(umask)
        folder.mkdir()
        try:
            release.build_packages(folder)
        finally:
            os.umask(former)
        builds.append({file.name: file.read_bytes() for file in folder.iterdir()})
    assert {name.rpartition(".")[2] for name in builds[0]} == {"whl", "gz"}
    assert builds[0] == builds[1]


@pytest.mark.extended
def test_releases_of_two_checkouts_have_the_same_bytes(release: ModuleType, tmp_path: Path) -> None:
    """For a host that this one is not, so that nothing is tried. Downloads wheels."""
    sums = []
    for number, umask in enumerate((0o022, 0o077), 1):
        root = tmp_path / ("checkout" * number)
        shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(*release.NOT_SOURCES))
        options = ["--edition", "cx-service", "--python", release.Target().python, "--platform", "aarch64-linux-musl"]
        command = [sys.executable, root / ".ci" / "release.py", *options]
        variables = {**os.environ, "PYTHONHASHSEED": str(number), "TZ": f"UTC+{number}"}
        done = subprocess.run(command, env=variables, umask=umask, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        sums.append((root / "dist" / "release" / "SHA256SUMS").read_text())
    assert {line.rpartition(".")[2] for line in sums[0].splitlines()} == {"pyz", "whl", "gz", "txt", "json"}
    assert sums[0] == sums[1]


@pytest.mark.slow
def test_executable_for_several_hosts_unpacks_the_files_of_this_one(
    release: ModuleType, executable: Path, tmp_path: Path
) -> None:
    with ZipFile(executable) as archive:
        own = {name: archive.read(name) for name in archive.namelist()}
    own["environment.json"] = release.environment_of(own, "build")
    other = {name: b"of another host" if name.endswith(".so") else content for name, content in own.items()}
    files = {release.Target(): own, release.Target(*OTHER): other}
    file, cache = tmp_path / "several.pyz", tmp_path / "cache"
    tags = [target.tag for target in files]
    release.write_archive(file, release.merged(files) | {"__main__.py": release.launcher("build", tags)})
    status, output = run(file, cache)
    assert (status, output.split()[0]) == (0, "cx-service")
    [unpacked] = (cache / release.Target().tag).glob("*/site-packages")
    stored = {name.removeprefix("site-packages/"): own[name] for name in own if name.startswith("site-packages/")}
    assert {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()} == set(stored)
    assert all((unpacked / name).read_bytes() == content for name, content in stored.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("downloads", "advice"),
    [
        ("{own} file-for-this-host.pyz\nx other.pyz", "Take file-for-this-host.pyz instead."),
        ("x other.pyz", "No file of this version is for this host."),
    ],
)
def test_executable_for_another_host_names_the_right_one(
    downloads: str, advice: str, release: ModuleType, tmp_path: Path
) -> None:
    file, wrong = tmp_path / "wrong.pyz", release.Target(*OTHER)
    main = release.launcher("build", [wrong.tag], downloads.format(own=release.Target().tag))
    release.write_archive(file, {"__main__.py": main})
    status, output = run(file, tmp_path)
    assert status == 78
    assert output.startswith("cx-service: needs Python 3.99 on riscv64 Linux (musl); found ")
    assert output.endswith(f". {advice}\n")
    assert output.count("\n") == 1
