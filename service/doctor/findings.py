"""What a check finds: that something is well, deserves a look, or is wrong."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from service.settings import Settings

FEW = 5  # rows that are named of many that are wrong


class Finding(NamedTuple):
    """One line for the operator: what is so, where, and what to do about it."""

    level: Literal["ok", "warning", "fault"]
    about: str
    text: str


Check = Callable[[Settings], Iterator[Finding]]


def ok(about: str, text: str) -> Finding:
    return Finding("ok", about, text)


def warning(about: str, text: str) -> Finding:
    return Finding("warning", about, text)


def fault(about: str, text: str) -> Finding:
    return Finding("fault", about, text)


def each(about: str, wrong: Iterable[str], well: str) -> Iterator[Finding]:
    """A fault for each of the first things that are wrong, and how many more there are; or that all is well."""
    number = 0
    for number, text in enumerate(wrong, 1):
        if number <= FEW:
            yield fault(about, text)
    if number > FEW:
        yield fault(about, f"and {number - FEW:,} more of the kind")
    if not number:
        yield ok(about, well)
