"""Builds container images for a release without a daemon, and starts them as far as this machine allows.

    python .ci/image.py IMAGE …

tries images. An image has the files of Debian that Python needs, without a shell, and the unpacked executable. They
come from Debian's packages, which mmdebstrap downloads and unpacks, also those of another architecture. Containerfile
has the configuration of the image. The archive is an OCI layout that `docker load` and `podman load` read too. The same
sources and the same versions of Debian's packages give the same bytes.
"""

import gzip
import hashlib
import io
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import hosts
from build import ROOT, Target, commit, compile_all
from deb import ARCHITECTURES, source_time
from smoke import Trial, smoke

CONTAINERFILE = ROOT / "Containerfile"
FOLDER = ROOT / "dist" / "image"  # the root file systems, for podman and docker
SUITE, PYTHON = "trixie", "3.13"
PACKAGES = f"base-files,ca-certificates,netbase,python{PYTHON}"
TARGETS = {architecture: Target(PYTHON, machine, "linux-gnu") for machine, architecture in ARCHITECTURES.items()}
CODE = "usr/lib/cx-service"
PROGRAM = f"""\
#!/usr/bin/python{PYTHON} -sE
import sys

sys.path.insert(0, "/{CODE}")

from app import main

main()
"""
USER = 10001
DATA = "var/lib/cx-service"
ACCOUNTS = {
    "etc/passwd": f"root:x:0:0:root:/root:/sbin/nologin\ncx-service:x:{USER}:{USER}::/{DATA}:/sbin/nologin\n",
    "etc/group": f"root:x:0:\ncx-service:x:{USER}:\n",
}
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
PRUNED = (
    "usr/bin/[!p]*",
    "usr/bin/p[!y]*",
    "usr/bin/pydoc*",
    "usr/bin/pygettext*",
    "usr/sbin/*",
    "usr/share/[!cd]*",
    "usr/share/c[!o]*",
    "usr/share/console*",
    "usr/share/d[!o]*",
    "usr/share/doc-base",
    "usr/share/doc/*/[!c]*",
    "usr/share/doc/*/changelog*",
    "usr/lib/*/perl*",
    "usr/lib/*/libsqlite3.*",  # the service brings its own
    f"usr/lib/python{PYTHON}/lib-dynload/_sqlite3.*",
    f"usr/lib/python{PYTHON}/sqlite3",
    "var/cache/*",
    "var/lib/*",
    "var/log/*",
)

LIMIT = 120  # MB, of all files
SECONDS = 900  # to make a root file system
QEMU = "/qemu"  # in the container, if it is emulated
# $1 is the root file system, $2 the volume, $3 qemu or ""; then come the settings and the command.
START = f"""\
mount --bind "$1" "$1"
mount --bind "$2" "$1/{DATA}"
mount -t proc proc "$1/proc"
for device in null urandom; do : >"$1/dev/$device"; mount --bind "/dev/$device" "$1/dev/$device"; done
if [ "$3" ]; then : >"$1{QEMU}"; mount --bind "$3" "$1{QEMU}"; fi
mount -o remount,ro,bind "$1"
shift 3
exec env -i "$@"
"""


def file_name(version: str, architecture: str) -> str:
    """Return the name of an image, such as cx-service-0.2.0-image-amd64.tar."""
    return f"cx-service-{version}-image-{architecture}.tar"


def instructions() -> Iterator[tuple[str, str]]:
    """Yield the instructions of Containerfile, and their arguments."""
    for line in CONTAINERFILE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, arguments = line.partition(" ")
            yield name, arguments


def configuration(version: str) -> dict[str, Any]:
    """Return what Containerfile declares, as the configuration of an image."""
    found: dict[str, Any] = {"Env": [], "Labels": {}}
    for name, arguments in instructions():
        if name == "ENV":
            found["Env"] += shlex.split(arguments)
        elif name == "LABEL":
            found["Labels"] |= dict(word.split("=", 1) for word in shlex.split(arguments))
        elif name == "USER":
            found["User"] = arguments
        elif name == "STOPSIGNAL":
            found["StopSignal"] = arguments
        elif name in ("ENTRYPOINT", "CMD"):
            found[name.capitalize()] = json.loads(arguments)
        elif name == "VOLUME":
            found["Volumes"] = {path: {} for path in json.loads(arguments)}
        elif name == "EXPOSE":
            found["ExposedPorts"] = {f"{arguments}/tcp": {}}
        elif name == "HEALTHCHECK":
            options, _, command = arguments.partition(" CMD ")
            found["Healthcheck"] = {"Test": ["CMD", *json.loads(command)], **health_options(options)}
        elif name not in ("FROM", "ARG", "ADD"):
            sys.exit(f"image: Containerfile has an unknown instruction: {name}")
    found["Labels"] |= {
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.revision": commit(),
    }
    return found


def health_options(text: str) -> dict[str, int]:
    """Return the options of a health check, with durations in nanoseconds."""
    options = dict(word.removeprefix("--").split("=") for word in text.split())
    names = {"interval": "Interval", "timeout": "Timeout", "start-period": "StartPeriod"}
    durations = {names[name]: int(value.removesuffix("s")) * 10**9 for name, value in options.items() if name in names}
    return durations | {"Retries": int(options["retries"])}


def make_root(architecture: str, files: Mapping[str, bytes], notices: bytes, python: str, folder: Path) -> None:
    """Write the root file system: Debian's packages, and the code of an executable.

    `python` is the path of the Python of the image on this machine. It compiles the modules; if it is "", nothing does.
    """
    command = ["mmdebstrap", "--quiet", "--variant=extract", f"--architectures={architecture}"]
    command += [f"--include={PACKAGES}", "--skip=cleanup/apt", SUITE, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        sys.exit(f"image: {shlex.join(command)} failed:\n{done.stderr}")
    packages = {package: control(package) for package in (folder / "var/cache/apt/archives").glob("*.deb")}
    certificates = sorted((folder / "usr/share/ca-certificates").rglob("*.crt"))
    texts = {
        **ACCOUNTS,
        CERTIFICATES: "".join(file.read_text(encoding="ascii") for file in certificates),
        "usr/bin/cx-service": PROGRAM,
        "usr/share/doc/cx-service/copyright": notices.decode(),
        **{f"var/lib/dpkg/status.d/{package.name.partition('_')[0]}": text for package, text in packages.items()},
    }
    for pattern in PRUNED:
        for path in list(folder.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    shutil.rmtree(folder / "dev")
    for name in ("dev", DATA):
        (folder / name).mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for name in ("etc/fstab", "etc/hostname", "etc/resolv.conf"):  # of this machine
        (folder / name).unlink(missing_ok=True)
    for name, content in files.items():
        if name.startswith("site-packages/") and not name.endswith(".pyc"):
            path = folder / CODE / name.partition("/")[2]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    if python:
        for code in (CODE, f"usr/lib/python{PYTHON}"):
            compile_all(folder / code, python)


def control(package: Path) -> str:
    """Return the control file of a Debian package, from which scanners read its version."""
    return subprocess.run(["dpkg-deb", "--field", package], check=True, capture_output=True, text=True).stdout


def layer(folder: Path) -> bytes:
    """Return the root file system as an archive: sorted, with the same times, owned by root except the volume."""
    seconds = int(source_time().timestamp())
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            entry = archive.gettarinfo(path, name)
            owner = USER if name == DATA else 0
            entry.uid = entry.gid = owner
            entry.uname = entry.gname = ""
            entry.mtime = seconds
            entry.mode = mode(entry, name)
            if entry.isreg():
                with path.open("rb") as file:
                    archive.addfile(entry, file)
            else:
                archive.addfile(entry)
    return output.getvalue()


def mode(entry: tarfile.TarInfo, name: str) -> int:
    """Return the mode of a file in the image, whatever the umask was."""
    if name == DATA:
        return 0o700
    if name in ("tmp", "var/tmp"):
        return 0o1777
    is_program = entry.isdir() or entry.issym() or name.startswith("usr/bin/") or entry.mode & 0o100
    return 0o755 if is_program else 0o644


def build_image(
    architecture: str, version: str, files: Mapping[str, bytes], notices: bytes, python: str, folder: Path
) -> Path:
    """Build the image of an architecture in a folder, from the files and the licences of an executable."""
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary, "root")
        make_root(architecture, files, notices, python, root)
        plain = layer(root)
    if len(plain) > LIMIT * 10**6:
        sys.exit(f"image: the files have {len(plain) / 10**6:.0f} MB, more than {LIMIT} MB")
    packed = gzip.compress(plain, mtime=0)
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"root-{architecture}.tar.gz").write_bytes(packed)
    path = folder / file_name(version, architecture)
    write_image(path, architecture, version, plain, packed)
    return path


def write_image(path: Path, architecture: str, version: str, plain: bytes, packed: bytes) -> None:
    """Write an image with one layer, as an archive of an OCI layout and with the list that docker reads."""
    blobs: dict[str, bytes] = {}

    def descriptor(content: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        media_type = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def document(content: object) -> bytes:
        return json.dumps(content, indent=1, sort_keys=True).encode()

    created = source_time().strftime("%Y-%m-%dT%H:%M:%SZ")
    config = {
        "architecture": architecture,
        "os": "linux",
        "created": created,
        "config": configuration(version),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(plain).hexdigest()}"]},
        "history": [{"created": created, "created_by": "make release"}],
    }
    configured, compressed = descriptor(document(config), "config.v1+json"), descriptor(packed, "layer.v1.tar+gzip")
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": configured,
        "layers": [compressed],
    }
    listed = descriptor(document(manifest), "manifest.v1+json")
    listed |= {"annotations": {"org.opencontainers.image.ref.name": version}}
    names = [f"blobs/{item['digest'].replace(':', '/')}" for item in (configured, compressed)]
    docker = [{"Config": names[0], "RepoTags": [f"cx-service:{version}"], "Layers": names[1:]}]
    entries = {
        **blobs,
        "index.json": document({"schemaVersion": 2, "manifests": [listed]}),
        "manifest.json": document(docker),
        "oci-layout": document({"imageLayoutVersion": "1.0.0"}),
    }
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in sorted(entries.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(content), int(source_time().timestamp())
            archive.addfile(entry, io.BytesIO(content))


def unpack(image: Path, folder: Path) -> dict[str, Any]:
    """Write the root file system of an image, and return its configuration."""

    def blob(archive: tarfile.TarFile, digest: str) -> bytes:
        file = archive.extractfile(f"blobs/{digest.replace(':', '/')}")
        assert file
        content = file.read()
        assert digest == f"sha256:{hashlib.sha256(content).hexdigest()}"
        return content

    with tarfile.open(image) as archive:
        index = archive.extractfile("index.json")
        assert index
        manifest = json.loads(blob(archive, json.load(index)["manifests"][0]["digest"]))
        config: dict[str, Any] = json.loads(blob(archive, manifest["config"]["digest"]))
        for part in manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(blob(archive, part["digest"]))) as files:
                files.extractall(folder, numeric_owner=True, filter="tar")  # noqa: S202 (an image that we built)
    return config


def start_command(config: Mapping[str, Any], root: Path, volume: Path, *, isolated: bool = False) -> list[str]:
    """Return the command that runs the program of an image: read-only, as its user, with the volume.

    If `isolated`, the program is process 1 of a process namespace, as in a container, below the process `unshare`.
    """
    emulator = "" if is_native(config["architecture"]) else shutil.which(hosts.QEMU) or ""
    program = [QEMU, f"/usr/bin/python{PYTHON}", "-sE", "/usr/bin/cx-service"] if emulator else ["/usr/bin/cx-service"]
    namespaces = ["--mount", "--pid", "--fork", "--kill-child"] if isolated else ["--mount"]
    command = ["unshare", *namespaces, "sh", "-euc", START, "sh", str(root), str(volume), emulator]
    settings = [*config["config"]["Env"], "HOME=/"]
    chroot = shutil.which("chroot", path=f"{os.environ['PATH']}:/usr/sbin")
    return [*command, *settings, str(chroot), f"--userspec={config['config']['User']}", str(root), *program]


def is_native(architecture: str) -> bool:
    """Return whether programs of an architecture run on this host."""
    return architecture == ARCHITECTURES.get(platform.machine())


def architecture_of(image: Path) -> str:
    """Return the architecture in the name of an image."""
    return image.stem.rpartition("-")[2]


def why_not_tried(image: Path) -> str:
    """Return why an image cannot be started on this host, or ""."""
    tools = ["unshare"] if is_native(architecture_of(image)) else ["unshare", hosts.QEMU]
    if missing := [tool for tool in tools if not shutil.which(tool)]:
        return f"needs {' and '.join(missing)}"
    return "needs root, for a mount namespace" if os.geteuid() else ""


def trial(image: Path) -> list[str]:
    """Return what was tried with an image, in order; the last element is the error, if there is one."""
    with tempfile.TemporaryDirectory() as temporary:
        root, volume = Path(temporary, "root"), Path(temporary, "volume")
        root.mkdir()
        volume.mkdir()
        os.chown(volume, USER, USER)
        config = unpack(image, root)
        return smoke(start_command(config, root, volume), Path("/", DATA))


def try_all(images: Iterable[Path]) -> list[Trial]:
    """Try images, and print the results."""
    trials = []
    for image in images:
        reason = why_not_tried(image)
        if reason:
            print(f"NOT TRIED: {image.name}, which {reason}", flush=True)
        how = "" if is_native(architecture_of(image)) else ", emulated"
        trials.append(Trial(image.name, f"a read-only root{how}", [] if reason else trial(image)).report())
    return trials


if __name__ == "__main__":
    sys.exit(any(trial.result == "failed" for trial in try_all(map(Path, sys.argv[1:]))))
