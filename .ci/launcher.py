"""The first code of the executable: refuses a Python it was not built for, finds a folder to unpack into, starts shiv.

.ci/build.py puts it into the archive as `__main__.py`. It must parse on Pythons older than ours, to be able to refuse
them, and it runs at every start, so it imports little.
"""

import _signal as signal  # the module `signal` loads others first
import os
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not if the parent process has ignored it
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # without a traceback, also from the imports below

import re
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Iterator, NoReturn  # noqa: UP035 (older Pythons, see above)

BUILT_FOR = "@BUILT_FOR@"  # such as cpython-311-x86_64-linux-gnu
BUILD_ID = "@BUILD_ID@"
IN_USE = ".cx-service.lock"


def stop(status: int, reason: str) -> NoReturn:
    """Leave with one line that says what to do, instead of a traceback out of somebody else's code."""
    sys.stderr.write(f"cx-service: {reason}\n")
    sys.exit(status)


def platform_name(tag: str) -> str:
    """What people call the platform in the name of an extension module."""
    names = {"x86_64": "x86-64", "aarch64": "arm64", "darwin": "macOS"}
    names.update({"linux-gnu": "Linux (glibc)", "linux-musl": "Linux (musl)"})
    platform = tag.split("-", 2)[-1]
    machine, _, system = platform.partition("-")
    return " ".join(names.get(part, part) for part in (machine, system) if part)


def refuse_python(running: str) -> NoReturn:
    """Leave, since the libraries in the archive cannot be loaded here: say what they need and how to start it."""
    version = re.sub(r"cpython-3(\d+)-.*", r"3.\1", BUILT_FOR)
    found = ".".join(map(str, sys.version_info[:2]))
    if sys.implementation.name != "cpython":
        found = f"{found} ({sys.implementation.name})"
    if platform_name(running) != platform_name(BUILT_FOR):
        found += f" on {platform_name(running)}"
    name = Path(sys.argv[0]).name
    stop(78, f"needs Python {version} on {platform_name(BUILT_FOR)}; found {found}. Try: python{version} {name} ...")


def places() -> Iterator[str]:
    """Where the archive may be unpacked, best first: as told, systemd's folder for caches, the user's."""
    yield os.environ.get("SHIV_ROOT", "")
    yield os.environ.get("CACHE_DIRECTORY", "").split(":")[0]
    if os.environ.get("XDG_CACHE_HOME"):
        yield os.environ["XDG_CACHE_HOME"] + "/cx-service"
    yield "~/.cache/cx-service"


def claim(place: Path, name: str) -> None:
    """Create the folder and hold a shared lock on this build in it until the last process of this start is gone.

    What is unpacked there is run, so the folder must be ours, not writable for others, and allow code.
    """
    import fcntl

    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = place.stat()
    no_code = os.statvfs(str(place)).f_flag & getattr(os, "ST_NOEXEC", 0)
    if status.st_uid != os.geteuid() or status.st_mode & 0o022 or no_code:
        raise PermissionError(str(place))
    fcntl.flock(os.open(str(place / (name + IN_USE)), os.O_CREAT | os.O_NOFOLLOW, 0o600), fcntl.LOCK_SH)


def remove_other_builds(place: Path, name: str) -> None:
    """Delete what older builds unpacked here, except those that a process still runs and so holds a lock on.

    The folder may be shared with other programs: only what has a lock file of ours is touched. The empty lock files
    stay, since deleting one would race with a process that is about to lock it.
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


def main() -> None:
    """Check, choose, unpack if this is the first start, and hand over."""
    running = EXTENSION_SUFFIXES[0].split(".")[1]
    if running != BUILT_FOR:
        refuse_python(running)

    name = f"{Path(sys.argv[0]).resolve().name}_{BUILD_ID}"  # as shiv names it
    for choice in filter(None, places()):
        with suppress(OSError, RuntimeError):  # the latter when there is no home
            place = Path(choice).expanduser().absolute()
            claim(place, name)
            break
    else:
        stop(1, "found no folder of its own to unpack into; set SHIV_ROOT to one that you can write and others cannot")

    from zipfile import ZipFile

    from _bootstrap import bootstrap, extract_site_packages

    os.environ["SHIV_ROOT"] = str(place)
    if not (place / name).is_dir():
        try:
            with ZipFile(sys.argv[0]) as archive:
                extract_site_packages(archive, place / name)
        except OSError as fault:
            stop(1, f"cannot unpack into {place}: {fault.strerror}; set SHIV_ROOT to a writable folder with room")
        remove_other_builds(place, name)
    bootstrap()


main()
