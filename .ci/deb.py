"""Builds the Debian packages of a release with debhelper, and tries them in a clean Debian.

    python .ci/deb.py PACKAGE …

tries packages: it installs, starts, upgrades, removes and purges each (.ci/deb/trial.sh). The packages are built from
the files in .ci/deb: apt-get install debhelper; they are tried in roots that mmdebstrap makes. Roots for the other
architecture run by qemu-user-static. The same sources and the same debhelper give the same bytes.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import hosts
from build import LICENCE, ROOT
from smoke import Trial

FOLDER = Path(__file__).with_name("deb")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # Debian's names of machines
BUILD_TOOLS = ("dpkg-buildpackage", "dh")
MAINTAINER = "The cx-service authors <cx-service@localhost>"
SUITES = ("bookworm", "trixie")  # in which the packages are tried

UNIT = ROOT / "docs" / "cx-service.service"
UNIT_PROGRAM, PROGRAM = "/usr/local/bin/cx-service.pyz", "/usr/bin/cx-service"
EXECUTABLE = "usr/lib/cx-service/cx-service"
PYTHON = "/usr/bin/python3"  # Debian's, which runs the executable
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/cx-service",
    "fish": "usr/share/fish/vendor_completions.d/cx-service.fish",
}

SECONDS = 1800  # for a trial in one root; emulated processors are slow
BINFMT = "/proc/sys/fs/binfmt_misc"
MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"  # programs for arm64
MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"


def missing_tools() -> list[str]:
    """Return the tools of Debian that are needed to build packages and are missing."""
    return [tool for tool in BUILD_TOOLS if not shutil.which(tool)]


def debian_version(version: str) -> str:
    """Return a version of Python's form (PEP 440) in Debian's: 1.0rc1 as 1.0~rc1, which is before 1.0."""
    return re.sub(r"\.?(a|b|rc|dev)(\d+)", r"~\1\2", version)


def file_name(architecture: str, version: str) -> str:
    """Return the name of a package, such as cx-service_0.2.0_amd64.deb."""
    return f"cx-service_{debian_version(version)}_{architecture}.deb"


def source_time() -> datetime:
    """Return the time of the commit; outside a repository, that of the changelog."""
    command = ["git", "log", "-1", "--format=%ct"]
    try:
        seconds = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except OSError:
        seconds = ""
    return datetime.fromtimestamp(int(seconds or (ROOT / "CHANGELOG.md").stat().st_mtime), UTC)


def printed(*arguments: str) -> str:
    """Return what a command of the service prints."""
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(ROOT / "app.py"), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment, text=True).stdout


def python_range() -> str:
    """Return the versions of Python that setup.cfg allows, as dependencies."""
    found = re.search(r"python_requires = >=(\S+),<(\S+)", (ROOT / "setup.cfg").read_text(encoding="utf-8"))
    assert found
    return f"python3 (>= {found[1]}), python3 (<< {found[2]})"


def unit() -> str:
    """Return the unit of the documentation, with the path of the command of the package."""
    text = UNIT.read_text(encoding="utf-8")
    assert UNIT_PROGRAM in text
    return text.replace(UNIT_PROGRAM, PROGRAM)


def fill_source(source: Path, version: str, executable: Path, notices: bytes) -> None:
    """Write the files from which debhelper builds the package."""
    debian, files = source / "debian", source / "files"
    shutil.copytree(FOLDER / "debian", debian)
    shutil.copytree(FOLDER / "files", files)
    for path, old, new in (
        (debian / "control", "@MAINTAINER@", MAINTAINER),
        (debian / "control", "@PYTHON@", python_range()),
        (debian / "copyright", "@LICENCE@", licence()),
    ):
        path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    entry = f"cx-service ({debian_version(version)}) unstable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n\n"
    trailer = f" -- {MAINTAINER}  {format_datetime(source_time())}\n"
    texts = {
        debian / "changelog": entry + trailer,
        debian / "service": unit(),
        source / "cx-service.1": printed("man"),
        source / "CHANGELOG.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        **{files / path: printed("completion", shell) for shell, path in COMPLETIONS.items()},
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (source / "third-party-licences.txt").write_bytes(notices)
    (files / EXECUTABLE).parent.mkdir(parents=True)
    shutil.copyfile(executable, files / EXECUTABLE)
    (files / EXECUTABLE).chmod(0o755)
    seconds = source_time().timestamp()
    for path in source.rglob("*"):  # dpkg-deb keeps earlier times
        os.utime(path, (seconds, seconds))


def licence() -> str:
    """Return the text of the licence in the form of Debian's copyright file, without its title and its years."""
    paragraphs = LICENCE.read_text(encoding="utf-8").strip().split("\n\n")[2:]
    return "\n .\n".join(textwrap.indent(paragraph, " ") for paragraph in paragraphs)


def build_deb(architecture: str, version: str, executable: Path, notices: bytes, folder: Path) -> Path:
    """Build the package of an architecture in a folder. The executable names PYTHON in its first line."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary, "source")
        fill_source(source, version, executable, notices)
        command = ["dpkg-buildpackage", "--build=binary", f"--host-arch={architecture}", "--no-sign", "-d"]
        done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"deb: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        package = folder / file_name(architecture, version)
        shutil.copyfile(source.parent / package.name, package)
    return package


def lintian(package: Path) -> str:
    """Return the errors and warnings of lintian, one a line; overridden ones are not among them."""
    command = ["lintian", "--fail-on=none", "--allow-root", "--tag-display-limit=0", str(package)]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return "\n".join(line for line in found.splitlines() if line.startswith(("E:", "W:")))


def with_version(package: Path, version: str, folder: Path) -> Path:
    """Write the package with another version, for the trial of an upgrade."""
    copy, files = folder / "newer.deb", folder / "files"
    subprocess.run(["dpkg-deb", "--raw-extract", package, files], check=True)
    control = files / "DEBIAN" / "control"
    control.write_text(re.sub(r"(?m)^Version: .*", f"Version: {version}", control.read_text("utf-8")), "utf-8")
    command = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(files), str(copy)]
    subprocess.run(command, check=True, capture_output=True)
    shutil.rmtree(files)
    return copy


def field(package: Path, name: str) -> str:
    """Return a control field of a package."""
    command = ["dpkg-deb", "--field", str(package), name]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def run_emulated(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run a command as root of a user namespace in which the kernel starts programs for arm64 with qemu.

    The registration is visible in this namespace only (Linux 6.7). Other processes of the machine do not see it.
    """
    entry = f":qemu-aarch64:M::{MAGIC}:{MASK}:{shutil.which(hosts.QEMU)}:OCF"
    script = 'echo; read -r go; mount -t binfmt_misc none "$1"; printf %s "$2" >"$1/register"; shift 2; exec "$@"'
    process = subprocess.Popen(
        ["unshare", "--user", "--mount", "sh", "-euc", script, "sh", BINFMT, entry, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdin and process.stdout
    if first := process.stdout.readline().strip():  # an error; otherwise the namespace exists
        return subprocess.CompletedProcess(command, process.wait() or 1, first)
    for name in ("uid_map", "gid_map"):
        Path(f"/proc/{process.pid}/{name}").write_text("0 0 65536")
    output, _ = process.communicate("go\n")
    return subprocess.CompletedProcess(command, process.returncode, output)


def why_not_tried(package: Path) -> str:
    """Return why a package cannot be tried on this host, or ""."""
    tools = ["mmdebstrap"]
    if is_emulated(package):
        tools += [hosts.QEMU, "unshare"]
    if missing := [tool for tool in tools if not shutil.which(tool)]:
        return f"needs {' and '.join(missing)}"
    kernel = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
    if is_emulated(package) and (os.geteuid() or kernel < (6, 7)):
        return "needs root, and Linux 6.7, for a user namespace with emulation"
    return ""


def is_emulated(package: Path) -> bool:
    """Return whether programs of the package's architecture do not run on this host."""
    return field(package, "Architecture") != ARCHITECTURES.get(platform.machine())


def trial(package: Path, suite: str) -> list[str]:
    """Return what was tried in a clean root of a suite of Debian, in order; the last element is the error, if any."""
    architecture, version = field(package, "Architecture"), field(package, "Version")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # for the user of mmdebstrap
        first, script = Path(folder, "first.deb"), Path(folder, "trial.sh")
        shutil.copyfile(package, first)
        shutil.copyfile(FOLDER / "trial.sh", script)
        newer = with_version(package, f"{version}+newer", Path(folder))
        command = ["timeout", "--kill-after=60", str(SECONDS)]
        command += ["mmdebstrap", "--quiet", "--variant=apt", f"--architectures={architecture}"]
        command += [f"--customize-hook=copy-in {first} {newer} {script} /tmp", "--format=null"]
        command += ['--customize-hook=chroot "$1" sh /tmp/trial.sh /tmp/first.deb /tmp/newer.deb']
        if is_emulated(package):
            done = run_emulated([*command, "--mode=root", "--skip=check/qemu", suite, "/dev/null"])
        else:
            command += [suite, "/dev/null"]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    succeeded = re.findall(r"(?m)^tried: (.*)$", done.stdout)
    if done.returncode:
        return [*succeeded, f"FAILED: {done.stdout.strip()[-1500:]}"]
    return succeeded


def try_all(packages: Iterable[Path]) -> list[Trial]:
    """Check packages with lintian, try them in all suites, and print the results."""
    trials = []
    for package in packages:
        if shutil.which("lintian"):
            found = lintian(package)
            done = [f"FAILED: {found}"] if found else ["no errors and warnings"]
            trials.append(Trial(package.name, "lintian", done).report())
        else:
            print(f"NOT TRIED: lintian on {package.name}; apt-get install lintian", flush=True)
        reason = why_not_tried(package)
        if reason:
            print(f"NOT TRIED: {package.name}, which {reason}", flush=True)
        how = ", emulated" if is_emulated(package) else ""
        for suite in SUITES:
            trials.append(Trial(package.name, f"{suite}{how}", [] if reason else trial(package, suite)).report())
    return trials


if __name__ == "__main__":
    done = try_all(Path(argument).resolve() for argument in sys.argv[1:])
    sys.exit(any(trial.result == "failed" for trial in done))
