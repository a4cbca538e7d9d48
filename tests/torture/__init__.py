"""What the service is put through on purpose, and what it must then still hold: `make torture`.

Each part is a module with `run(quick)`, which yields figures and raises AssertionError where a claim does not hold.
`python -m tests.torture --quick PART` runs one of them in its short form, which the tests run too.
"""

import os
import shutil
from typing import NamedTuple

PARTS = ("crashes", "disks", "clocks", "load", "writes", "hostile", "large")
UNTRIED = "NOT TESTED: "


class Figure(NamedTuple):
    """What was seen of one claim, as `docs/reliability.md` tells it."""

    claim: str
    seen: str


def seed() -> int:
    """The number that all chance begins with; the same one again repeats what a test decides, not what threads do."""
    return int(os.environ.get("SEED", "1"))


def missing(program: str) -> str:
    """Why a claim cannot be tried here, if a program is missing; else empty."""
    return "" if shutil.which(program) else f"{UNTRIED}{program} is missing; on Debian: apt-get install {program}"
