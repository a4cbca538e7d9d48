"""What the service is put through on purpose, and what it must then still hold: `make torture`.

Each part is a module with `run(quick)`, which yields figures and raises AssertionError where a claim does not hold.
`python -m tests.torture --quick PART` runs one of them in its short form, which the tests run too.
"""

from typing import NamedTuple


class Figure(NamedTuple):
    """What was seen of one claim, as `docs/reliability.md` tells it."""

    claim: str
    seen: str


PARTS = ("crashes", "disks", "clocks", "load", "hostile")
