"""The entry point of the executable: checks the Python version, unpacks with shiv, and starts the program.

.ci/build.py puts it into the archive as `__main__.py`. It must also parse on older versions of Python, to report them.
It runs at every start, so it imports little: shiv, and the list of the files in the archive, only to unpack.
"""

import _signal as signal  # the module `signal` imports others
import os
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # unless the parent process ignores it
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # no traceback, also during the imports below

import re
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING, Iterator, NoReturn  # noqa: UP035 (older Pythons, see above)

if TYPE_CHECKING:
    from zipfile import ZipFile

BUILT_FOR = "@BUILT_FOR@"  # such as cpython-311-x86_64-linux-gnu; several are separated by spaces
BUILD_ID = "@BUILD_ID@"
DOWNLOADS = "@DOWNLOADS@"  # of this version: what each is built for, a space, its name; one a line
IN_USE = ".cx-service.lock"


def stop(status: int, reason: str) -> NoReturn:
    """Exit with one line of text, instead of a traceback."""
    sys.stderr.write(f"cx-service: {reason}\n")
    sys.exit(status)


def platform_name(tag: str) -> str:
    """Return a readable name of the platform in the tag of an extension module."""
    names = {"x86_64": "x86-64", "aarch64": "arm64", "darwin": "macOS"}
    names.update({"linux-gnu": "Linux (glibc)", "linux-musl": "Linux (musl)"})
    machine, _, system = tag.split("-", 2)[-1].partition("-")
    if machine == "darwin":
        machine, system = system, machine
    return " ".join(names.get(part, part) for part in (machine, system) if part)


def version_of(tag: str) -> str:
    """Return the version of Python in the tag of an extension module."""
    return re.sub(r"cpython-3(\d+)-.*", r"3.\1", tag)


def running_tag() -> str:
    """Return the tag of extension modules of this Python; on macOS with the machine, which theirs does not have."""
    tag = EXTENSION_SUFFIXES[0].split(".")[1]
    return f"{tag}-{os.uname().machine}" if tag.endswith("-darwin") else tag


def either(texts: "list[str]") -> str:
    """Return the distinct texts as alternatives, such as "3.11, 3.12 or 3.13"."""
    *others, last = dict.fromkeys(texts)
    return f"{', '.join(others)} or {last}" if others else last


def refuse_python(running: str) -> NoReturn:
    """Exit, since this Python cannot load the libraries in the archive. Prints what is required, and what helps."""
    tags = BUILT_FOR.split()
    platforms = either([platform_name(tag) for tag in tags])
    found = ".".join(map(str, sys.version_info[:2]))
    if sys.implementation.name != "cpython":
        found = f"{found} ({sys.implementation.name})"
    same_platform = [tag for tag in tags if platform_name(tag) == platform_name(running)]
    if not same_platform:
        found += f" on {platform_name(running)}"
    downloads = dict(line.split(" ") for line in DOWNLOADS.splitlines() if " " in line)
    if running in downloads:
        advice = f"Take {downloads[running]} instead."
    elif same_platform or not downloads:
        advice = f"Try: python{version_of((same_platform or tags)[-1])} {Path(sys.argv[0]).name} ..."
    else:
        advice = "No file of this version is for this host."
    stop(78, f"needs Python {either([version_of(tag) for tag in tags])} on {platforms}; found {found}. {advice}")


def cache_folders() -> Iterator[str]:
    """Yield the folders to unpack into, in order of preference: SHIV_ROOT, systemd's, the user's cache folder."""
    yield os.environ.get("SHIV_ROOT", "")
    yield os.environ.get("CACHE_DIRECTORY", "").split(":")[0]
    if os.environ.get("XDG_CACHE_HOME"):
        yield os.environ["XDG_CACHE_HOME"] + "/cx-service"
    yield "~/.cache/cx-service"


def claim(place: Path, name: str) -> None:
    """Create the folder, and hold a shared lock on this build in it until the last process of this start has ended.

    Unpacked files are executed, so the folder must belong to this user, not be writable by others, and allow execution.
    """
    import fcntl

    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = place.stat()
    no_code = os.statvfs(str(place)).f_flag & getattr(os, "ST_NOEXEC", 0)
    if status.st_uid != os.geteuid() or status.st_mode & 0o022 or no_code:
        raise PermissionError(str(place))
    fcntl.flock(os.open(str(place / (name + IN_USE)), os.O_CREAT | os.O_NOFOLLOW, 0o600), fcntl.LOCK_SH)


def remove_other_builds(place: Path, name: str) -> None:
    """Delete unpacked older builds that no running process has locked.

    The folder may be shared with other programs: only builds with a lock file are deleted. The empty lock files stay,
    since deleting one would race with a process that is about to lock it.
    """
    import fcntl
    import shutil

    for lock in place.glob("*" + IN_USE):
        if lock.name != name + IN_USE:
            unpacked = str(lock)[: -len(IN_USE)]
            with suppress(OSError), lock.open("r+b") as handle:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(unpacked, ignore_errors=True)
                shutil.rmtree(unpacked + ".tmp", ignore_errors=True)


def select_files(archive: "ZipFile", running: str) -> None:
    """Names the files for this host in an archive for several, which has them in folders, as shiv unpacks them."""
    python, version, platform = running.split("-", 2)
    folders = tuple(f"for/{group}/" for group in (f"{python}-{version}", platform, running))
    for entry in archive.infolist():
        if entry.filename.startswith(folders):
            entry.filename = entry.filename.split("/", 2)[2]
            archive.NameToInfo[entry.filename] = entry


def unpack(place: Path, name: str, running: str) -> None:
    """Unpack the archive at the first start. Exits if that fails."""
    from zipfile import ZipFile

    from _bootstrap import extract_site_packages

    try:
        with ZipFile(sys.argv[0]) as archive:
            select_files(archive, running)
            extract_site_packages(archive, place / name)
    except OSError as error:
        stop(1, f"cannot unpack into {place}: {error.strerror}; set SHIV_ROOT to a writable folder with free space")
    remove_other_builds(place, name)


def add_packages(folder: Path) -> None:
    """Add the unpacked packages to the module path, before those of the host, as shiv does."""
    hosts = (place for place, path in enumerate(sys.path) if Path(path).name in ("site-packages", "dist-packages"))
    sys.path.insert(next(hosts, len(sys.path)), str(folder))


def main() -> None:
    """Check the version, choose a folder, unpack at the first start, and run the program."""
    running = running_tag()
    if running not in BUILT_FOR.split():
        refuse_python(running)

    name = f"{Path(sys.argv[0]).resolve().name}_{BUILD_ID}"  # the name that shiv uses
    for choice in filter(None, cache_folders()):
        with suppress(OSError, RuntimeError):  # RuntimeError if there is no home folder
            place = Path(choice).expanduser().absolute()
            if " " in BUILT_FOR and place.name != running:  # each Python needs other files
                place = place / running
            claim(place, name)
            break
    else:
        stop(1, "found no private folder to unpack into; set SHIV_ROOT to a folder that only you can write")

    os.environ["SHIV_ROOT"] = str(place)
    if not (place / name).is_dir():
        unpack(place, name, running)
    add_packages(place / name / "site-packages")

    import app

    app.main()


main()
