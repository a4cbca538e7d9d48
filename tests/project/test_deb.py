"""The Debian packages of a release: fields, contents, modes and scripts. `make release` also installs them."""

import importlib
import io
import platform
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.cluster import find
from tests.support.executable import executable_fixture as executable_fixture
from tests.support.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.sqlite_only("the same on both databases")]

VERSION = "1.2.3rc1"
SCRIPTS = ("postinst", "prerm", "postrm")
NOTICES = b"==== a licence\n\nText.\n"


@pytest.fixture(scope="module")
def deb() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / ".ci")
        yield importlib.import_module("deb")


@pytest.fixture(scope="module")
def program(deb: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program in place of the executable."""
    file = tmp_path_factory.mktemp("program") / "cx-service"
    file.write_text(f"#!{deb.PYTHON}\n")
    return file


@pytest.fixture(scope="module", params=["amd64", "arm64"])
def package(
    deb: ModuleType, program: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The package of an architecture."""
    for tool in deb.BUILD_TOOLS:
        find(tool, "debhelper")
    made: Path = deb.build_deb(request.param, VERSION, program, NOTICES, tmp_path_factory.mktemp("packages"))
    assert made.name == f"cx-service_1.2.3~rc1_{request.param}.deb"
    return made


def archive(package: Path, option: str) -> tarfile.TarFile:
    """The files, or the control files, of a package."""
    content = subprocess.run(["dpkg-deb", option, package], check=True, capture_output=True).stdout
    return tarfile.open(fileobj=io.BytesIO(content))


def read(archive: tarfile.TarFile, name: str) -> str:
    file = archive.extractfile(f"./{name}")
    assert file
    return file.read().decode()


def test_fields(package: Path, deb: ModuleType) -> None:
    assert deb.field(package, "Package") == "cx-service"
    assert deb.field(package, "Version") == "1.2.3~rc1"
    assert deb.field(package, "Architecture") == package.stem.rpartition("_")[2]
    dependencies = set(deb.field(package, "Depends").split(", "))
    assert {"python3 (>= 3.11)", "python3 (<< 3.14)", "libc6 (>= 2.28)", "zlib1g", "adduser"} <= dependencies
    assert any(name.startswith("debconf ") for name in dependencies)


@pytest.mark.parametrize(
    ("version", "expected"), [("1.2.3", "1.2.3"), ("1.2.3rc1", "1.2.3~rc1"), ("1.2.3.dev4", "1.2.3~dev4")]
)
def test_versions_before_a_release_sort_before_it(version: str, expected: str, deb: ModuleType) -> None:
    assert deb.debian_version(version) == expected


def test_files_belong_to_root_and_have_the_modes(package: Path) -> None:
    with archive(package, "--fsys-tarfile") as files:
        assert {(member.uname, member.gname) for member in files} == {("root", "root")}
        assert not [member.name for member in files if member.isdir() and member.mode != 0o755]
        modes = {member.name.removeprefix("./"): member.mode for member in files if member.isfile()}
    assert {name: mode for name, mode in modes.items() if mode != 0o644} == {
        "usr/bin/cx-service": 0o755,
        "usr/lib/cx-service/cx-service": 0o755,
        "etc/cx-service.env": 0o600,
    }
    assert {
        "usr/lib/systemd/system/cx-service.service",
        "usr/share/man/man1/cx-service.1.gz",
        "usr/share/bash-completion/completions/cx-service",
        "usr/share/fish/vendor_completions.d/cx-service.fish",
        "usr/share/doc/cx-service/copyright",
        "usr/share/doc/cx-service/changelog.gz",
        "usr/share/doc/cx-service/CHANGELOG.md.gz",
        "usr/share/doc/cx-service/third-party-licences.txt",
    } <= set(modes)


def test_contents(package: Path, deb: ModuleType) -> None:
    with archive(package, "--fsys-tarfile") as files:
        assert read(files, deb.EXECUTABLE) == f"#!{deb.PYTHON}\n"
        assert "complete -o default -F" in read(files, deb.COMPLETIONS["bash"])
        assert "Permission is hereby granted" in read(files, "usr/share/doc/cx-service/copyright")
        unit = read(files, "usr/lib/systemd/system/cx-service.service")
        settings = read(files, "etc/cx-service.env").splitlines()
    assert unit == deb.UNIT.read_text().replace(deb.UNIT_PROGRAM, deb.PROGRAM)
    assert "\nExecStart=/usr/bin/cx-service serve " in unit
    assert "\nEnvironmentFile=-/etc/cx-service.env\n" in unit
    assert all(line.startswith("#") for line in settings)


def test_scripts_are_valid_and_enable_start_and_stop_the_unit(package: Path) -> None:
    with archive(package, "--ctrl-tarfile") as control:
        assert read(control, "conffiles") == "/etc/cx-service.env\n"
        scripts = {name: read(control, name) for name in SCRIPTS}
        question = read(control, "templates")
    for text in (*scripts.values(), (ROOT / ".ci/deb/files/usr/bin/cx-service").read_text()):
        assert not subprocess.run(["sh", "-n"], input=text, text=True).returncode
    assert "deb-systemd-helper enable 'cx-service.service'" in scripts["postinst"]
    assert "_dh_action=restart" in scripts["postinst"]
    assert "deb-systemd-invoke stop 'cx-service.service'" in scripts["prerm"]
    assert "deb-systemd-helper purge 'cx-service.service'" in scripts["postrm"]
    assert "db_input high cx-service/delete-data" in scripts["postrm"]
    assert "Template: cx-service/delete-data\nType: boolean\nDefault: false\n" in question


def test_every_override_of_lintian_has_a_reason_and_nothing_else_is_found(package: Path, deb: ModuleType) -> None:
    lines = (deb.FOLDER / "debian" / "lintian-overrides").read_text().splitlines()
    assert [line for line in lines if not line.startswith(("# ", "cx-service: "))] == []
    assert lines[0].startswith("# ")
    find("lintian", "lintian")
    assert deb.lintian(package) == ""


def test_same_sources_give_the_same_bytes(
    package: Path, program: Path, deb: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    again = deb.build_deb(package.stem.rpartition("_")[2], VERSION, program, NOTICES, tmp_path)
    assert again.read_bytes() == package.read_bytes()


def test_command_uses_the_folders_of_the_service_for_its_user_only(tmp_path: Path) -> None:
    text = (ROOT / ".ci/deb/files/usr/bin/cx-service").read_text()
    data = tmp_path / "data"
    command = text.replace("/var/lib/cx-service", str(data)).replace("/usr/lib/cx-service/cx-service", "env")

    def variables(**settings: str) -> set[str]:
        done = subprocess.run(["sh"], input=command, env=settings, check=True, capture_output=True, text=True)
        return {line for line in done.stdout.splitlines() if line.startswith(("CX_DATA", "SHIV_ROOT"))}

    assert variables() == set()
    data.mkdir()
    assert variables() == {f"CX_DATA={data}", "SHIV_ROOT=/var/cache/cx-service"}
    assert variables(CX_DATA="other") == {"CX_DATA=other", "SHIV_ROOT=/var/cache/cx-service"}


@pytest.mark.extended
def test_data_stays_through_upgrade_removal_and_purge_until_its_deletion_is_confirmed(
    deb: ModuleType, executable: Path, tmp_path: Path
) -> None:
    """In a clean Debian with the Python of the executable. Downloads Debian; .ci/deb/trial.sh has the steps."""
    python = "{}.{}".format(*sys.version_info[:2])
    if python not in deb.hosts.DEBIAN_PYTHONS:
        pytest.skip(f"NOT TESTED: no Debian has Python {python}")
    for tool, package in (*((tool, "debhelper") for tool in deb.BUILD_TOOLS), ("mmdebstrap", "mmdebstrap")):
        find(tool, package)
    architecture = deb.ARCHITECTURES[platform.machine()]
    made = deb.build_deb(architecture, VERSION, executable, NOTICES, tmp_path)
    done = deb.trial(made, deb.hosts.DEBIAN_PYTHONS[python])
    assert done[-1] == "purge with the answer yes, deletes data and user", done
