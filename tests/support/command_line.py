"""Outcomes of commands."""

import re
from typing import NamedTuple


class Outcome(NamedTuple):
    """The exit status and the output of a command."""

    status: int
    output: str
    errors: str


def error_line(outcome: Outcome) -> str:
    """Return the error line of a command that failed."""
    assert (outcome.status, outcome.output) == (1, "")
    assert re.fullmatch(r"cx-service: [^\n]+\n", outcome.errors)
    return outcome.errors.removeprefix("cx-service: ").rstrip("\n")
