"""The first code of the executable: refuses a Python it was not built for, finds a folder to unpack into, starts shiv.

.ci/build.py puts it into the archive as `__main__.py`. It must parse on Pythons older than ours, to be able to refuse
them, and it runs at every start, so it imports little.
"""

import os
import sys
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Iterator, NoReturn  # noqa: UP035 (older Pythons, see above)

BUILT_FOR = "@BUILT_FOR@"
BUILD_ID = "@BUILD_ID@"
IN_USE = ".cx-service.lock"


def stop(status: int, reason: str) -> NoReturn:
    """Leave with one line that says what to do, instead of a traceback out of somebody else's code."""
    sys.stderr.write(f"cx-service: {reason}\n")
    sys.exit(status)


def places() -> Iterator[str]:
    """Where the archive may be unpacked, best first: as told, systemd's folder for caches, the user's."""
    yield os.environ.get("SHIV_ROOT", "")
    yield os.environ.get("CACHE_DIRECTORY", "").split(":")[0]
    if os.environ.get("XDG_CACHE_HOME"):
        yield os.environ["XDG_CACHE_HOME"] + "/cx-service"
    yield "~/.cache/cx-service"


def claim(place: Path, name: str) -> None:
    """Create the folder and hold a shared lock on this build in it until the last process of this start is gone.

    What is unpacked there is run, so the folder must be ours, closed to strangers, and allow code.
    """
    import fcntl

    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = place.stat()
    no_code = os.statvfs(str(place)).f_flag & getattr(os, "ST_NOEXEC", 0)
    if status.st_uid != os.geteuid() or status.st_mode & 0o002 or no_code:
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
        stop(78, f"this file was built for {BUILT_FOR}, this Python is {running}; start it with the Python it is for")

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
