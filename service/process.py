"""The process of a command: its standard streams and its exit status, the same in every environment."""

import contextlib
import io
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from service import interrupts

STDIN, STDOUT, STDERR = range(3)


class OutputError(Exception):
    """Standard output cannot be written. No OSError, so that no command takes it for a fault of one of its files."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write standard output: {error.strerror}")
        self.is_broken_pipe = isinstance(error, BrokenPipeError)


class Output(io.FileIO):
    """Standard output, whose errors can be told from those of other files."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputError(error) from None


class Errors(io.FileIO):
    """Standard error, where the log goes as well. What cannot be written there is lost, and changes nothing."""

    def write(self, data: Any) -> int:
        try:
            written = super().write(data)
        except OSError:
            return len(data)
        return len(data) if written is None else written


def run(command: Callable[[], int]) -> int:
    """Run a command with standard streams that are the same in every environment; returns the exit status.

    Errors of standard output are reported in one line, those of a reader that has gone not at all.
    """
    _open_streams()
    try:
        try:
            status = command()
        except SystemExit as ending:  # argparse has printed the help or the usage
            status = int(ending.code or 0)
        sys.stdout.flush()
    except OutputError as error:
        status = 1
        _discard_output()
        if not error.is_broken_pipe:
            print(f"cx-service: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        status = interrupts.STATUS
        with contextlib.suppress(OutputError):
            sys.stdout.flush()
        _discard_output()
    if interrupts.raises_error():
        interrupts.exit_at_once()  # Python's own end would print a KeyboardInterrupt
    return status


def _open_streams() -> None:
    """Give the process three standard streams, buffered alike with and without PYTHONUNBUFFERED."""
    for descriptor, mode in ((STDIN, os.O_RDONLY), (STDOUT, os.O_RDONLY), (STDERR, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:  # closed by the parent; as standard output, what cannot be written is an error
            os.open(os.devnull, mode)  # takes the lowest free number, which is this one
    sys.stdin = sys.stdin or io.TextIOWrapper(io.BufferedReader(io.FileIO(STDIN, closefd=False)))
    output = Output(STDOUT, "wb", closefd=False)
    sys.stdout = _text(output, sys.stdout, "strict", output.isatty())
    sys.stderr = _text(Errors(STDERR, "wb", closefd=False), sys.stderr, "backslashreplace", True)


def _text(raw: io.FileIO, before: TextIO | None, errors: str, line_buffering: bool) -> TextIO:
    """A text stream with the encoding that Python has chosen for this environment."""
    encoding, errors = (before.encoding, before.errors or errors) if before else ("utf-8", errors)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=line_buffering)


def _discard_output() -> None:
    """Let what is still buffered for standard output go nowhere, so that Python can flush it at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, STDOUT)
    os.close(null)
