"""`upgrade --check`: says whether an executable fits this host and this database."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import msgspec
import pytest

from service.db import migrations
from service.operate.upgrade import DESCRIPTION, Release
from service.version import HOST, VERSION
from tests.support.command_line import Outcome
from tests.support.executable import executable_fixture as executable_fixture
from tests.support.faults import another_connection
from tests.support.installation import settings_at
from tests.support.postgres import is_chosen

pytestmark = pytest.mark.database

CURRENT = len(migrations.STEPS)
OTHER_HOST = "cpython-399-riscv64-linux-musl"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "download.pyz"


@pytest.fixture
def check(cx: Callable[..., Outcome], file: Path) -> Callable[..., tuple[int, dict[str, tuple[str, str]]]]:
    """Check the file. Returns the exit status, and for each subject the level and the text."""

    def run() -> tuple[int, dict[str, tuple[str, str]]]:
        status, output, errors = cx("upgrade", "--check", str(file))
        assert not errors
        lines = [line.split(maxsplit=2) for line in output.splitlines()]
        return status, {about: (level, text) for level, about, text in lines}

    return run


def write(file: Path, **members: object) -> None:
    """Write an executable with a description."""
    release = {"version": VERSION, "commit": "", "schema": CURRENT, "hosts": [HOST], "postgresql": True} | members
    with ZipFile(file, "w") as archive:
        archive.writestr(DESCRIPTION, msgspec.json.encode(Release(**release)))
        archive.writestr("code", "code " * 1000)


def test_a_file_that_fits_has_no_error(check, file, cx, data):
    cx("migrate")
    write(file, version="99.1.0", commit="0123456789ab")
    status, found = check()
    assert status == 0
    assert found["version"] == ("ok", f"99.1.0 (commit 0123456789ab); this program is {VERSION}")
    assert found["host"] == ("ok", f"the file is for {HOST}")
    assert found["database"] == ("ok", f"has schema {CURRENT}, as the file needs")


def test_the_checksum_is_compared_if_there_is_one(check, file):
    write(file)
    assert check()[1]["file"][0] == "warning"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    sums = file.with_name("SHA256SUMS")
    sums.write_text(f"{'0' * 64}  other.pyz\n{digest}  {file.name}\n")
    assert check()[1]["file"] == ("ok", f"{file} is complete, and has the checksum in SHA256SUMS")
    sums.write_text(f"{'0' * 64}  {file.name}\n")
    status, found = check()
    assert (status, found["file"][0]) == (1, "error")
    sums.unlink()
    file.with_name(f"{file.name}.sha256").write_text(f"{digest}  {file.name}\n")
    assert check()[1]["file"][0] == "ok"


def test_a_file_for_other_hosts_is_an_error(check, file):
    write(file, hosts=[OTHER_HOST])
    status, found = check()
    assert status == 1
    assert found["host"] == ("error", f"this host is {HOST}; the file is for {OTHER_HOST}: download another")


@pytest.mark.parametrize(
    "difference, status, level, text",
    [
        (-1, 1, "error", f"has schema {CURRENT}, but the file supports schemas up to {CURRENT - 1}"),
        (1, 0, "ok", f"has schema {CURRENT}; the first start migrates it to {CURRENT + 1}: make a backup first"),
    ],
)
def test_the_schema_is_compared(difference, status, level, text, check, file, cx):
    cx("migrate")
    write(file, schema=CURRENT + difference)
    status_now, found = check()
    needs = r"(; this takes about 1 s and up to [1-9] MiB of free space; [\d,]+ MiB are free)"
    assert (status_now, found["database"][0]) == (status, level)
    assert re.fullmatch(re.escape(text) + needs * (difference > 0 and not is_chosen()), found["database"][1])


def test_an_older_version_is_a_warning(check, file):
    write(file, version="0.0.9")
    assert check()[1]["version"] == ("warning", f"0.0.9; this program is {VERSION}, which is newer")


def test_a_database_of_a_newer_version_is_compared_too(check, file, cx, data):
    cx("migrate")
    with another_connection(settings_at(data)) as connection:
        connection.execute("UPDATE schema_version SET version = 999")
    write(file, schema=999)
    assert check()[1]["database"] == ("ok", "has schema 999, as the file needs")


def test_a_missing_database_is_a_warning_and_is_not_created(check, file, data):
    write(file)
    assert check()[1]["database"][0] == "warning"
    assert not (data / "service.db").exists()


def test_a_file_without_postgresql_does_not_fit_a_database_of_postgresql(cx, file, data):
    write(file, postgresql=False)
    status, output, _ = cx("upgrade", "--check", str(file), "--database", "postgresql://127.0.0.1:1/cx")
    assert status == 1
    assert "error    database    the file does not support PostgreSQL: download cx-service-full\n" in output


@pytest.mark.parametrize("content", [b"", b"<html>Not found</html>", b"PK\3\4"])
def test_another_file_is_an_error(content, check, file):
    file.write_bytes(content)
    status, found = check()
    assert status == 1
    assert found == {"file": ("error", f"{file} is not an executable of cx-service, or damaged: download it again")}


def test_an_incomplete_download_is_an_error(check, file):
    write(file)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    assert check()[0] == 1
    start = content.index(b"code code")
    file.write_bytes(content[:start] + b"x" + content[start + 1 :])
    assert check()[1]["file"] == ("error", f"{file} is damaged: download it again")


def test_an_archive_without_a_valid_description_is_an_error(check, file):
    with ZipFile(file, "w") as archive:
        archive.writestr("__main__.py", "")
    assert check()[1]["file"] == (
        "error",
        f"{file} is not an executable of cx-service, or one of a version before 0.2.0",
    )
    with ZipFile(file, "w") as archive:
        archive.writestr(DESCRIPTION, '{"version": 1}')
    assert check()[1]["file"][1].startswith(f"{file} has an invalid description: ")


def test_a_file_that_is_missing_is_an_error(check, file):
    assert check() == (1, {"file": ("error", f"{file} cannot be read: No such file or directory")})


@pytest.mark.sqlite_only("the executable has no driver for PostgreSQL")
@pytest.mark.slow
def test_the_executable_fits_the_host_that_builds_it(check, executable, file):
    file.write_bytes(executable.read_bytes())
    status, found = check()
    assert (status, found["host"]) == (0, ("ok", f"the file is for {HOST}"))
