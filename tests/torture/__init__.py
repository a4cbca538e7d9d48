"""Long tests of the guarantees in docs/reliability.md: crashes, full disks, wrong clocks, load (`make torture`).

Each part is a module with `run(quick)`, which yields results and raises AssertionError if a guarantee does not hold.
`python -m tests.torture --quick PART` runs the short form of one part, as do the tests.
"""

import os
import shutil
from typing import NamedTuple

PARTS = ("crashes", "disks", "clocks", "load", "writes", "hostile", "large", "outbox")
NOT_TESTED = "NOT TESTED: "


class Figure(NamedTuple):
    """A result of one guarantee, as in docs/reliability.md."""

    claim: str
    result: str


def seed() -> int:
    """Return the seed of all random numbers. It repeats the choices of a test, but not the timing of threads."""
    return int(os.environ.get("SEED", "1"))


def missing(program: str) -> str:
    """Return why a guarantee cannot be tested if a program is missing; otherwise an empty text."""
    return "" if shutil.which(program) else f"{NOT_TESTED}{program} is missing; on Debian: apt-get install {program}"
