"""The container image of a release: its configuration, its files, and a start as in a container."""

import importlib
import json
import os
import platform
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.cluster import find
from tests.support.paths import ROOT

pytestmark = pytest.mark.sqlite_only("the same on both databases")

VERSION = "1.2.3"
NOTICES = b"==== a licence\n\nText.\n"


@pytest.fixture(scope="module")
def image() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / ".ci")
        yield importlib.import_module("image")


class TestConfiguration:
    def test_is_that_of_the_containerfile(self, image: ModuleType) -> None:
        found = image.configuration(VERSION)
        assert found["User"] == f"{image.USER}:{image.USER}"
        assert found["Volumes"] == {f"/{image.DATA}": {}}
        assert {f"CX_DATA=/{image.DATA}", f"TMPDIR=/{image.DATA}", f"SQLITE_TMPDIR=/{image.DATA}"} < set(found["Env"])
        assert f"SSL_CERT_FILE=/{image.CERTIFICATES}" in found["Env"]
        assert (found["Entrypoint"], found["Cmd"]) == (["cx-service"], ["serve"])
        assert found["ExposedPorts"] == {"8080/tcp": {}}
        assert found["StopSignal"] == "SIGTERM"
        assert found["Healthcheck"] == {
            "Test": ["CMD", "cx-service", "healthcheck"],
            "Interval": 30 * 10**9,
            "Timeout": 10 * 10**9,
            "StartPeriod": 60 * 10**9,
            "Retries": 3,
        }
        assert found["Labels"]["org.opencontainers.image.version"] == VERSION

    def test_unknown_instruction_is_an_error(
        self, image: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "Containerfile"
        file.write_text(image.CONTAINERFILE.read_text() + "RUN true\n")
        monkeypatch.setattr(image, "CONTAINERFILE", file)
        with pytest.raises(SystemExit, match="unknown instruction: RUN"):
            image.configuration(VERSION)


class TestFiles:
    def test_do_not_depend_on_times_modes_and_order(self, image: ModuleType, tmp_path: Path) -> None:
        names = [image.DATA, "usr/bin", "tmp"]
        layers = []
        for number, order in enumerate((names, names[::-1])):
            root = tmp_path / str(number)
            for name in order:
                (root / name).mkdir(parents=True, mode=0o777 - 0o20 * number)
            (root / "usr/bin/cx-service").write_text("text")
            (root / "usr/bin/link").symlink_to("cx-service")
            os.utime(root / "usr/bin/cx-service", (number, number))
            (root / "usr/bin/cx-service").chmod(0o640 + number)
            layers.append(image.layer(root))
        assert layers[0] == layers[1]

    def test_belong_to_root_except_the_volume(self, image: ModuleType, tmp_path: Path) -> None:
        for name in (image.DATA, "etc", "tmp", "usr/bin"):
            (tmp_path / name).mkdir(parents=True)
        for name in ("etc/passwd", "usr/bin/cx-service"):
            (tmp_path / name).write_text("")
        file = tmp_path.with_suffix(".tar")
        file.write_bytes(image.layer(tmp_path))
        with tarfile.open(file) as archive:
            found = {entry.name: (entry.uid, entry.gid, entry.mode) for entry in archive}
        assert found[image.DATA] == (image.USER, image.USER, 0o700)
        assert found["etc/passwd"] == (0, 0, 0o644)
        assert found["usr/bin/cx-service"] == (0, 0, 0o755)
        assert found["tmp"] == (0, 0, 0o1777)

    def test_are_limited_in_size(self, image: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert image.LIMIT == 120
        monkeypatch.setattr(image, "make_root", lambda *arguments: arguments[-1].mkdir())
        monkeypatch.setattr(image, "layer", lambda _: bytes(2_000_001))
        monkeypatch.setattr(image, "LIMIT", 2)
        with pytest.raises(SystemExit, match="the files have 2 MB, more than 2 MB"):
            image.build_image("amd64", VERSION, {}, NOTICES, "", tmp_path)

    def test_are_unpacked_from_an_image_whose_digests_are_right(self, image: ModuleType, tmp_path: Path) -> None:
        root, unpacked, file = tmp_path / "root", tmp_path / "unpacked", tmp_path / "image.tar"
        (root / "etc").mkdir(parents=True)
        (root / "etc/passwd").write_text("text")
        plain = image.layer(root)
        image.write_image(file, "arm64", VERSION, plain, image.gzip.compress(plain, mtime=0))
        first = file.read_bytes()
        assert image.unpack(file, unpacked)["architecture"] == "arm64"
        assert (unpacked / "etc/passwd").read_text() == "text"
        file.write_bytes(first.replace(b'"architecture": "arm64"', b'"architecture": "amd64"'))
        with pytest.raises(AssertionError):
            image.unpack(file, unpacked)


@pytest.fixture(scope="module")
def built(image: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image for this host. Downloads packages of Debian, and wheels for its Python."""
    find("mmdebstrap", "mmdebstrap")
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("image")
        patch.setattr(image, "FOLDER", folder / "roots")
        release = importlib.import_module("release")
        architecture = image.ARCHITECTURES[platform.machine()]
        python = image.hosts.interpreter(image.PYTHON)  # if it is missing, the start is slower
        _, files = release.files_for(release.DEFAULT, image.TARGETS[architecture], python or sys.executable, folder)
        made: Path = image.build_image(architecture, VERSION, files, NOTICES, python, folder)
        [root] = (folder / "roots").iterdir()
        assert root.name == f"root-{architecture}.tar.gz"
        return made


@pytest.fixture(scope="module")
def container(image: ModuleType, built: Path) -> Iterator[tuple[dict[str, Any], Path, Path]]:
    """The configuration of the image, its root file system, and an empty volume."""
    find("unshare", "util-linux")
    if os.geteuid():
        pytest.skip("NOT TESTED: a mount namespace needs root")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        root, volume = Path(folder, "root"), Path(folder, "volume")
        volume.mkdir()
        os.chown(volume, image.USER, image.USER)
        yield image.unpack(built, root), root, volume


def in_container(image: ModuleType, container: Any, code: str) -> str:
    """Return the output of Python code that runs in the image."""
    command = image.start_command(*container)
    command[-1:] = [f"/usr/bin/python{image.PYTHON}", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.extended
class TestImage:
    def test_has_no_shell_and_no_program_of_another_user(self, container: tuple[dict[str, Any], Path, Path]) -> None:
        root = container[1]
        programs = {path.name for folder in ("bin", "sbin") for path in (root / "usr" / folder).iterdir()}
        assert programs == {"cx-service", "python3.13"}
        files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
        assert [path for path in files if path.stat().st_mode & 0o6022] == []

    def test_names_its_packages_and_their_licences(self, container: tuple[dict[str, Any], Path, Path]) -> None:
        root = container[1]
        assert "VERSION_CODENAME=trixie\n" in (root / "etc/os-release").read_text()
        packages = {path.name: path.read_text() for path in (root / "var/lib/dpkg/status.d").iterdir()}
        assert {"libc6", "libssl3t64", "python3.13-minimal"} < set(packages)
        assert all(f"Package: {name}\n" in text and "\nVersion: " in text for name, text in packages.items())
        assert all((root / "usr/share/doc" / name / "copyright").is_file() for name in packages)
        assert (root / "usr/share/doc/cx-service/copyright").read_bytes() == NOTICES

    def test_is_read_by_umoci(self, image: ModuleType, built: Path, tmp_path: Path) -> None:
        umoci = find("umoci", "umoci")
        with tarfile.open(built) as archive:
            archive.extractall(tmp_path / "layout", filter="data")
        command = [umoci, "unpack", "--image", f"{tmp_path / 'layout'}:{VERSION}", str(tmp_path / "bundle")]
        subprocess.run(command, check=True, capture_output=True)
        config = json.loads((tmp_path / "bundle" / "config.json").read_text())
        assert config["process"]["args"] == ["cx-service", "serve"]
        assert config["process"]["user"] == {"uid": image.USER, "gid": image.USER}
        assert (tmp_path / "bundle" / "rootfs" / "usr/bin/cx-service").stat().st_mode & 0o777 == 0o755

    def test_trusts_certificate_authorities(self, image: ModuleType, container: Any) -> None:
        code = "import ssl; print(len(ssl.create_default_context().get_ca_certs()))"
        assert int(in_container(image, container, code)) > 100

    def test_can_write_to_its_volume_only(self, image: ModuleType, container: Any) -> None:
        code = (
            "import os, tempfile\nprint(tempfile.gettempdir())\nfound = []\n"
            "for name in os.listdir('/'):\n  if os.access('/' + name, os.W_OK): found.append(name)\n"
            "print(os.getuid(), os.getgid(), found)"
        )
        assert in_container(image, container, code) == f"/{image.DATA}\n{image.USER} {image.USER} []"

    def test_logs_in_sends_and_makes_backups(self, image: ModuleType, built: Path) -> None:
        find("unshare", "util-linux")
        assert image.trial(built)[-1] == "doctor"

    def test_sigterm_to_process_1_ends_the_service_with_status_0(
        self, image: ModuleType, container: Any, tmp_path: Path
    ) -> None:
        command = image.start_command(*container, isolated=True)
        address = "unix:/var/lib/cx-service/http.sock"
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen([*command, *container[0]["config"]["Cmd"], "--listen", address], stderr=log)
        socket = container[2] / "http.sock"
        limit = time.monotonic() + 60
        while not socket.exists() and time.monotonic() < limit:
            time.sleep(0.1)
        [inner] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        try:
            checked = subprocess.run(
                [*image.start_command(*container), "healthcheck", "--listen", address], capture_output=True, text=True
            )
            assert checked.returncode == 0, checked.stderr + (tmp_path / "log").read_text()
            os.kill(int(inner), signal.SIGTERM)
            assert process.wait(30) == 0, (tmp_path / "log").read_text()
        finally:
            process.kill()
            process.wait()
