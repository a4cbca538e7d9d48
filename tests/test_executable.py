"""The executable as a stranger meets it: the same for every builder, at home on any host, plain when it is not."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.executable import PYTHON, ROOT, build, clean_environment
from tests.executable import executable_fixture as executable_fixture

MIB = 2**20


def start(executable: Path, *arguments: str, python: Path = PYTHON, **settings: str | Path) -> subprocess.Popen[str]:
    command = [str(python), str(executable), *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(**settings)
    )


def outcome(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


def unpacked(folder: Path) -> set[str]:
    return {path.name.rsplit("_", 1)[0] for path in folder.iterdir() if path.is_dir()}


def test_setup_cfg_lists_every_package() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    listed = set(setup["options"]["packages"].split())
    mapped = {"service.static", "service.templates"}
    modules = (ROOT / "service").rglob("*.py")
    assert listed - mapped == {".".join(module.parent.relative_to(ROOT).parts) for module in modules}


@pytest.mark.slow
def test_another_builder_elsewhere_gets_the_same_bytes(executable: Path, tmp_path: Path) -> None:
    left_out = shutil.ignore_patterns(
        ".git", ".venv", "dist", "build", "cx-data", "__pycache__", "*.egg-info", ".*_cache"
    )
    elsewhere = shutil.copytree(ROOT, tmp_path / "another name", ignore=left_out)
    other = build(
        elsewhere, UMASK="077", TZ="Pacific/Kiritimati", PYTHONHASHSEED="7", LC_ALL="C", SOURCE_DATE_EPOCH="1"
    )
    assert hashlib.sha256(other.read_bytes()).digest() == hashlib.sha256(executable.read_bytes()).digest()


@pytest.mark.slow
def test_the_checksum_beside_it_is_its_own(executable: Path) -> None:
    stated = executable.with_name("cx-service.pyz.sha256").read_text()
    assert stated == f"{hashlib.sha256(executable.read_bytes()).hexdigest()}  cx-service.pyz\n"


@pytest.mark.slow
def test_it_holds_the_pages_the_demo_and_nothing_of_the_builder(executable: Path) -> None:
    with ZipFile(executable) as archive:
        names = [name.removeprefix("site-packages/") for name in archive.namelist()]
        holds_root = [
            name for name in names if str(ROOT).encode() in archive.read(archive.namelist()[names.index(name)])
        ]
    for kind in ("static", "templates"):
        for file in (ROOT / kind).rglob("*"):
            if file.is_file():
                assert f"service/{kind}/{file.relative_to(ROOT / kind)}" in names
    assert "service/demo.jsonl" in names
    assert not holds_root
    assert executable.stat().st_size <= 16 * MIB


@pytest.mark.slow
def test_it_starts_by_its_own_first_line(executable: Path, tmp_path: Path) -> None:
    environment = clean_environment(SHIV_ROOT=tmp_path)
    assert subprocess.run([executable, "--help"], env=environment, capture_output=True).returncode == 0


@pytest.mark.slow
def test_two_first_starts_at_once_both_succeed(executable: Path, tmp_path: Path) -> None:
    processes = [start(executable, "--help", SHIV_ROOT=tmp_path / "new") for _ in range(2)]
    for status, output, errors in map(outcome, processes):
        assert (status, errors) == (0, "")
        assert output
    assert unpacked(tmp_path / "new") == {"cx-service.pyz"}


@pytest.mark.slow
def test_without_a_place_to_unpack_it_says_what_to_set(executable: Path, tmp_path: Path) -> None:
    no_folder = tmp_path / "a file"
    no_folder.touch()
    status, output, errors = outcome(start(executable, "--help", HOME=no_folder))
    assert (status, output) == (1, "")
    assert re.fullmatch(r"cx-service: .*SHIV_ROOT.*\n", errors)


@pytest.mark.slow
def test_it_runs_nothing_from_a_folder_that_strangers_can_write(executable: Path, tmp_path: Path) -> None:
    shared, cache = tmp_path / "shared", tmp_path / "cache"
    shared.mkdir()
    shared.chmod(0o1777)
    assert outcome(start(executable, "--help", SHIV_ROOT=shared, XDG_CACHE_HOME=cache))[0] == 0
    assert not list(shared.iterdir())
    assert unpacked(cache / "cx-service") == {"cx-service.pyz"}
    assert (cache / "cx-service").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_a_new_build_removes_what_older_ones_unpacked_unless_they_still_run(executable: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    (place / "of-another-program").mkdir(parents=True)
    older = [shutil.copyfile(executable, tmp_path / name) for name in ("finished.pyz", "running.pyz")]
    assert outcome(start(older[0], "--help", SHIV_ROOT=place))[0] == 0
    (lock,) = place.glob("finished.pyz_*.cx-service.lock")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert outcome(start(older[1], "--help", SHIV_ROOT=place))[0] == 0
        assert unpacked(place) == {"finished.pyz", "running.pyz", "of-another-program"}
    (lock,) = place.glob("running.pyz_*.cx-service.lock")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert outcome(start(executable, "--help", SHIV_ROOT=place))[0] == 0
        assert unpacked(place) == {"running.pyz", "cx-service.pyz", "of-another-program"}


def other_pythons() -> list[Path]:
    """Pythons of other versions, where pyenv keeps some; the launcher must parse on old ones to refuse them."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = {path.parent.parent.name.split(".")[1]: path for path in versions.glob("3.*/bin/python3")}
    return [path for minor, path in sorted(found.items()) if int(minor) >= 6 and not PYTHON.name.endswith(f".{minor}")]


@pytest.mark.slow
def test_a_python_it_was_not_built_for_is_refused_in_one_line(executable: Path, tmp_path: Path) -> None:
    for_another = tmp_path / "for-another.pyz"
    with ZipFile(executable) as archive, ZipFile(for_another, "w") as copy:
        for name in archive.namelist():
            if not name.startswith("site-packages/"):
                copy.writestr(name, re.sub(rb'BUILT_FOR = ".*"', b'BUILT_FOR = "another"', archive.read(name)))
    attempts = [start(for_another, "--help", SHIV_ROOT=tmp_path)]
    attempts += [start(executable, "--help", python=python, SHIV_ROOT=tmp_path) for python in other_pythons()]
    for status, output, errors in map(outcome, attempts):
        assert (status, output) == (78, "")
        assert re.fullmatch(r"cx-service: this file was built for \S+, this Python is .*\n", errors)
