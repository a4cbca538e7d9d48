"""The package as `pip install` builds it from a checkout: complete, and equal to the executable."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zipfile import ZipFile

import pytest

from service.version import VERSION
from tests.support.paths import ROOT
from tests.support.server_process import INTERRUPTING, Served

pytestmark = [pytest.mark.slow, pytest.mark.sqlite_only("the demo of a wheel is on SQLite"), pytest.mark.database]

METADATA = ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE")
SOURCES = ("app.py", "service", "static", "templates", *METADATA)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from the sources without the network."""
    folder = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, folder / name)
    pip("wheel", "--no-build-isolation", "--wheel-dir", folder / "dist", folder)
    (made,) = (folder / "dist").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of the wheel in a virtual environment with the libraries of the tests."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip("--python", folder / "bin" / "python", "install", wheel)
    (packages,) = folder.glob("lib/python3.*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "cx-service"


def pip(*arguments: object) -> None:
    where = [arguments[0], arguments[1]] if arguments[0] == "--python" else []
    command, *more = map(str, arguments[len(where) :])
    line = [sys.executable, "-m", "pip", *map(str, where), command, "-qq", "--no-deps", "--no-index", *more]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def bare(**more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], **more}


@contextmanager
def serving(program: Path, folder: Path, *arguments: str) -> Iterator[Served]:
    output, errors = folder / "output", folder / "errors"
    line = [program, "serve", "--port", "0", "--data", folder / "data", *arguments]
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(line, cwd="/", stdout=out, stderr=err, env=bare())
    try:
        yield Served(process, output, errors)
    finally:
        process.terminate()
        process.wait(30)


def test_wheel_contains_all_files_of_the_package(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for folder, place in (("service", "service"), ("static", "service/static"), ("templates", "service/templates")):
        for file in (ROOT / folder).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                packaged = file.with_suffix(".mo") if file.suffix == ".po" else file
                assert f"{place}/{packaged.relative_to(ROOT / folder).as_posix()}" in names
    assert not [name for name in names if "tests" in name]


def test_installed_service_serves_the_demo(program: Path, tmp_path: Path) -> None:
    with serving(program, tmp_path, "--demo") as server:
        assert "alice@demo.example" in server.output
        token = server.log_in("alice@demo.example", "demo-password")
        (newest,) = server.call("GET", "/api/v1/chats?limit=1", token=token).data
        assert server.call("GET", f"/api/v1/chats/{newest['id']}/messages", token=token).data
        assert server.call("GET", "/docs").status == 200


def test_installed_service_has_the_version_of_the_sources(program: Path) -> None:
    done = subprocess.run([program, "--version"], cwd="/", env=bare(), capture_output=True, text=True)
    assert VERSION in done.stdout


@pytest.mark.parametrize("module", ["service.process", "service.commands", "peewee"])
def test_interrupt_of_an_installed_command_is_status_130_and_silent(module: str, program: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING)
    variables = bare(PYTHONPATH=str(tmp_path), INTERRUPT_AT=module)
    done = subprocess.run([program, "serve", "--help"], cwd="/", env=variables, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
