"""The findings of a check: ok, a warning or an error."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from service.settings import Settings

MAX_ERRORS = 5  # errors of one check that are listed; the others are counted


class Finding(NamedTuple):
    """One line for the operator: the state, the subject, and what to do."""

    level: Literal["ok", "warning", "error"]
    about: str
    text: str


Check = Callable[[Settings], Iterator[Finding]]


def ok(about: str, text: str) -> Finding:
    return Finding("ok", about, text)


def warning(about: str, text: str) -> Finding:
    return Finding("warning", about, text)


def error(about: str, text: str) -> Finding:
    return Finding("error", about, text)


def errors_or_ok(about: str, errors: Iterable[str], ok_text: str) -> Iterator[Finding]:
    """Yield the first errors and the number of the others, or one `ok` if there are none."""
    number = 0
    for number, text in enumerate(errors, 1):
        if number <= MAX_ERRORS:
            yield error(about, text)
    if number > MAX_ERRORS:
        yield error(about, f"and {number - MAX_ERRORS:,} more of these")
    if not number:
        yield ok(about, ok_text)
