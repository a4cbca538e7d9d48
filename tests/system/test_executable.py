"""The executables: reproducible builds, start and unpacking, unsupported hosts, PostgreSQL."""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from zipfile import ZipFile

import psycopg
import pytest

from service import version
from service.db import SQLITE_VERSION
from tests.support import pictures as made
from tests.support import postgres
from tests.support.avatars import FORM, form
from tests.support.executable import DEFAULT, POSTGRESQL, PYTHON, ROOT, build, clean_environment
from tests.support.executable import executable_fixture as executable_fixture
from tests.support.executable import postgresql_executable_fixture as postgresql_executable_fixture
from tests.support.server_process import INTERRUPTING, Served

pytestmark = [pytest.mark.sqlite_only("uses PostgreSQL and SQLite in all runs of the tests"), pytest.mark.database]

MIB = 2**20
LARGEST = {DEFAULT: 11 * MIB, POSTGRESQL: 17 * MIB}
LACKING = "NOT TESTED: PostgreSQL is missing; on Debian: apt-get install postgresql"
UNREACHABLE = "postgresql://127.0.0.1:1/cx"

OWN_VERSION = PYTHON.name.removeprefix("python")
VERSION = "import sys; print('%s.%s' % sys.version_info[:2])"

either = pytest.mark.parametrize("name", LARGEST)


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


def test_setup_cfg_lists_all_packages() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    listed = set(setup["options"]["packages"].split())
    mapped = {"service.static", "service.templates"}
    modules = (ROOT / "service").rglob("*.py")
    assert listed - mapped == {".".join(module.parent.relative_to(ROOT).parts) for module in modules}


@either
@pytest.mark.slow
@pytest.mark.extended
def test_build_is_reproducible_in_another_folder(name: str, tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns(".venv", "dist", "build", "cx-data", "__pycache__", "*.egg-info", ".*_cache")
    checkout = shutil.copytree(ROOT, tmp_path / "another name", ignore=ignored)
    other = build(
        checkout, name, UMASK="077", TZ="Pacific/Kiritimati", PYTHONHASHSEED="7", LC_ALL="C", SOURCE_DATE_EPOCH="1"
    )
    assert hashlib.sha256(other.read_bytes()).digest() == hashlib.sha256(build(name=name).read_bytes()).digest()


@either
@pytest.mark.slow
def test_checksum_is_correct(name: str) -> None:
    executable = build(name=name)
    stated = executable.with_name(f"{name}.sha256").read_text()
    assert stated == f"{hashlib.sha256(executable.read_bytes()).hexdigest()}  {name}\n"


@either
@pytest.mark.slow
def test_executable_contains_pages_and_demo_but_no_build_paths(name: str) -> None:
    executable = build(name=name)
    with ZipFile(executable) as archive:
        names = [name.removeprefix("site-packages/") for name in archive.namelist()]
        holds_root = [
            name for name in names if str(ROOT).encode() in archive.read(archive.namelist()[names.index(name)])
        ]
    for kind in ("static", "templates"):
        for file in (ROOT / kind).rglob("*"):
            if file.is_file():
                path = f"service/{kind}/{file.relative_to(ROOT / kind)}"
                assert (f"{path}.gz" if kind == "static" else path) in names
    assert {"service/demo/records.jsonl", "service/demo/records.jsonl.NOTICE.txt", "LICENSE"} <= set(names)
    assert not holds_root
    assert executable.stat().st_size <= LARGEST[name]


@pytest.mark.slow
def test_executable_starts_by_its_shebang(executable: Path, tmp_path: Path) -> None:
    environment = clean_environment(SHIV_ROOT=tmp_path)
    assert subprocess.run([executable, "--help"], env=environment, capture_output=True).returncode == 0


@pytest.mark.slow
def test_executable_prints_its_version(executable: Path, tmp_path: Path) -> None:
    result = outcome(start(executable, "--version", SHIV_ROOT=tmp_path))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    end = re.escape(f", {version.HOST}, SQLite {SQLITE_VERSION}\n")
    assert re.fullmatch(rf"cx-service {version.VERSION}, commit {commit[:12]}\+?{end}", result[1])
    assert (result[0], result[2]) == (0, "")


@pytest.mark.slow
def test_concurrent_first_starts_succeed(executable: Path, tmp_path: Path) -> None:
    processes = [start(executable, "--help", SHIV_ROOT=tmp_path / "new") for _ in range(2)]
    for status, output, errors in map(outcome, processes):
        assert (status, errors) == (0, "")
        assert output
    assert unpacked(tmp_path / "new") == {"cx-service.pyz"}


@pytest.mark.slow
def test_missing_unpack_folder_is_reported(executable: Path, tmp_path: Path) -> None:
    no_folder = tmp_path / "a file"
    no_folder.touch()
    status, output, errors = outcome(start(executable, "--help", HOME=no_folder))
    assert (status, output) == (1, "")
    assert re.fullmatch(r"cx-service: .*SHIV_ROOT.*\n", errors)


@pytest.mark.parametrize("mode", [0o1777, 0o702, 0o770, 0o720])
@pytest.mark.slow
def test_folder_writable_by_others_is_refused(mode: int, executable: Path, tmp_path: Path) -> None:
    shared, cache = tmp_path / "shared", tmp_path / "cache"
    shared.mkdir()
    shared.chmod(mode)
    assert outcome(start(executable, "--help", SHIV_ROOT=shared, XDG_CACHE_HOME=cache))[0] == 0
    assert not list(shared.iterdir())
    assert unpacked(cache / "cx-service") == {"cx-service.pyz"}
    assert (cache / "cx-service").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_default_folder_writable_by_a_group_is_refused(executable: Path, tmp_path: Path) -> None:
    folder = tmp_path / ".cache" / "cx-service"
    folder.mkdir(parents=True)
    folder.chmod(0o770)
    status, output, errors = outcome(start(executable, "--help", HOME=tmp_path))
    assert (status, output) == (1, "")
    assert re.fullmatch(r"cx-service: .*SHIV_ROOT.*\n", errors)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("module", ["fcntl", "_bootstrap", "service.commands", "peewee"])
@pytest.mark.slow
def test_interrupt_during_the_start_is_status_130_and_silent(module: str, executable: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING)
    settings = {"PYTHONPATH": tmp_path, "INTERRUPT_AT": module, "SHIV_ROOT": tmp_path / "unpacked"}
    assert outcome(start(executable, "serve", "--help", **settings)) == (130, "", "")


@pytest.mark.slow
def test_new_build_deletes_unpacked_builds_that_do_not_run(executable: Path, tmp_path: Path) -> None:
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
    """Other versions of Python, installed by pyenv. The launcher must parse on old versions to report them."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = {path.parent.parent.name.split(".")[1]: path for path in versions.glob("3.*/bin/python3")}
    return [path for minor, path in sorted(found.items()) if int(minor) >= 6 and not PYTHON.name.endswith(f".{minor}")]


@pytest.mark.slow
def test_other_python_version_is_reported_in_one_line(executable: Path, tmp_path: Path) -> None:
    for_another = tmp_path / "for-another.pyz"
    with ZipFile(executable) as archive, ZipFile(for_another, "w") as copy:
        for name in archive.namelist():
            if not name.startswith("site-packages/"):
                tag = b'BUILT_FOR = "cpython-399-x86_64-linux-gnu"'
                copy.writestr(name, re.sub(rb'BUILT_FOR = "[^"]*"', tag, archive.read(name)))
    attempts = [(for_another, "3.99", PYTHON)] + [(executable, OWN_VERSION, python) for python in other_pythons()]
    processes = [start(file, "--help", python=python, SHIV_ROOT=tmp_path) for file, _, python in attempts]
    for (file, needed, python), process in zip(attempts, processes, strict=True):
        status, output, errors = outcome(process)
        assert (status, output) == (78, "")
        found = subprocess.run([python, "-c", VERSION], capture_output=True, text=True, check=True).stdout.strip()
        platform = r"\S+ (Linux \((glibc|musl)\)|macOS)"
        assert re.fullmatch(
            rf"cx-service: needs Python {needed} on {platform}; found {found}( on {platform})?\. "
            rf"Try: python{needed} {file.name} \.\.\.\n",
            errors,
        ), errors


# PostgreSQL.


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    if not postgres.programs():
        pytest.fail(LACKING) if os.environ.get("CI") else pytest.skip(LACKING)
    with postgres.running(**postgres.QUICK) as running:
        yield running


@pytest.fixture
def database(server: postgres.Server, request: pytest.FixtureRequest) -> str:
    """The URL of a new database."""
    name = hashlib.sha256(request.node.name.encode()).hexdigest()[:16]
    with psycopg.connect(f"{server.url}/postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
    return f"{server.url}/{name}"


@contextlib.contextmanager
def serving_demo(executable: Path, folder: Path, *arguments: str, **settings: str | Path) -> Iterator[Served]:
    """The executable serving the demo in a minimal environment."""
    output, errors = folder / "output", folder / "errors"
    line = [PYTHON, executable, "serve", "--demo", "--port", "0", "--data", folder / "data", *arguments]
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(line, cwd="/", stdout=out, stderr=err, env=clean_environment(**settings))
    try:
        yield Served(process, output, errors)
    finally:
        process.terminate()
        process.wait(30)


def assert_alice_reads_her_chats(server: Served) -> None:
    token = server.log_in("alice@demo.example", "demo-password")
    (newest,) = server.call("GET", "/api/v1/chats?limit=1", token=token).data
    page = server.call("GET", f"/api/v1/chats/{newest['id']}/messages", token=token)
    assert page.data and all(message["content"] for message in page.data)


@pytest.mark.slow
def test_postgresql_executable_needs_no_installed_libraries(
    postgresql_executable: Path, database: str, tmp_path: Path
) -> None:
    with serving_demo(postgresql_executable, tmp_path, "--database", database, SHIV_ROOT=tmp_path / "unpacked") as demo:
        assert_alice_reads_her_chats(demo)
        mapped = Path(f"/proc/{demo.process.pid}/maps").read_text()
    libraries = set(re.findall(r"/\S*lib(?:pq|ldap|krb5)\b\S*", mapped))
    assert [library for library in libraries if "/libpq" in library]
    assert all(library.startswith(f"{tmp_path}/unpacked/") for library in libraries)
    assert not (tmp_path / "data" / "service.db").exists()
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) > 700 FROM message").fetchone() == (True,)


@pytest.mark.slow
def test_postgresql_executable_needs_no_home_folder(postgresql_executable: Path, database: str, tmp_path: Path) -> None:
    no_folder = tmp_path / "a file"
    no_folder.touch()
    settings = {"HOME": no_folder, "SHIV_ROOT": tmp_path / "unpacked"}
    with serving_demo(postgresql_executable, tmp_path, "--database", database, **settings) as demo:
        assert_alice_reads_her_chats(demo)


@pytest.mark.slow
def test_postgresql_executable_supports_sqlite(postgresql_executable: Path, tmp_path: Path) -> None:
    with serving_demo(postgresql_executable, tmp_path, SHIV_ROOT=tmp_path / "unpacked") as demo:
        assert_alice_reads_her_chats(demo)
    assert (tmp_path / "data" / "service.db").exists()


@pytest.mark.slow
def test_executable_converts_pictures_and_has_translations(executable: Path, tmp_path: Path) -> None:
    with serving_demo(executable, tmp_path, SHIV_ROOT=tmp_path / "unpacked") as demo:
        token = demo.log_in("alice@demo.example", "demo-password")
        for kind in ("JPEG", "PNG", "WEBP"):
            raw = made.save(made.quarters(), kind, icc_profile=made.srgb())
            body, headers = form(raw, kind=f"image/{kind.lower()}"), {"Content-Type": FORM}
            reply = demo.call("POST", "/api/v1/users/me/avatar", body, token, headers=headers)
            assert reply.status == 200, reply.json
        for language, word in (("de", "Passwort"), ("ja", "パスワード"), ("ar", "كلمة المرور")):
            page = demo.call("GET", "/sign-in", headers={"Accept-Language": language})
            assert word in page.raw.decode()


@pytest.mark.slow
def test_default_executable_names_the_one_with_the_driver(executable: Path, tmp_path: Path) -> None:
    with ZipFile(executable) as archive:
        assert not [name for name in archive.namelist() if "psycopg" in name or "Cryptodome" in name]
    for command in ("serve", "migrate"):
        line = start(
            executable, command, "--database", UNREACHABLE, "--data", str(tmp_path / "data"), SHIV_ROOT=tmp_path
        )
        status, output, errors = outcome(line)
        assert (status != 0, output) == (True, "")
        assert re.fullmatch(r"cx-service: [^\n]*\bcx-service-postgresql\.pyz\b[^\n]*\n", errors)
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_postgresql_executable_contains_the_licences(
    postgresql_executable: Path,
) -> None:
    with ZipFile(postgresql_executable) as archive:
        names = archive.namelist()
        notice = archive.read("NOTICE.txt").decode()
    for library in ("psycopg", "pycryptodomex"):
        assert [name for name in names if re.search(rf"/{library}-[^/]*/(licenses/)?LICENSE", name)]
    bundled = {re.split(r"-[0-9a-f]{8}\.so", Path(name).name)[0] for name in names if "psycopg_binary.libs/" in name}
    assert {"libpq", "libssl", "libldap"} <= bundled
    assert all(re.search(rf"\b{re.escape(library)}\b", notice) for library in bundled)
    texts = {text for text in re.findall(r"[\w.-]+\.txt", notice) if text != "NOTICE.txt"}
    assert {"GPL-3.0.txt", "LGPL-2.1.txt"} <= texts <= set(names)


@pytest.mark.slow
def test_driver_can_be_replaced_as_documented(postgresql_executable: Path, database: str, tmp_path: Path) -> None:
    unpacked = tmp_path / "unpacked" / "site-packages"
    with ZipFile(postgresql_executable) as archive:
        archive.extractall(unpacked.parent)
    for name in ("psycopg", "psycopg_binary", "psycopg_binary.libs"):
        shutil.rmtree(unpacked / name)
        shutil.copytree(Path(psycopg.__file__).parent.parent / name, unpacked / name)
    (unpacked / "psycopg" / "version.py").write_text("__version__ = print('mine') or '3.3'\n")
    shutil.rmtree(unpacked / "psycopg" / "__pycache__", ignore_errors=True)
    done = subprocess.run(
        [PYTHON, "-m", "app", "migrate", "--database", database],
        env=clean_environment(PYTHONPATH=unpacked),
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr, done.stdout.splitlines()[0]) == (0, "", "mine")
