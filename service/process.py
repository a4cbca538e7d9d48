"""The process of a command: its standard streams and its exit status, the same in every environment."""

import contextlib
import io
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from service import interrupts

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDIN, STDOUT, STDERR = range(3)


class OutputError(Exception):
    """Standard output cannot be written. Not an OSError, so that commands do not mistake it for an error of a file."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write standard output: {error.strerror}")
        self.is_broken_pipe = isinstance(error, BrokenPipeError)


class Output(io.FileIO):
    """Standard output. Raises OutputError, which differs from the errors of other files."""

    def write(self, data: "ReadableBuffer") -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputError(error) from None


class Errors(io.FileIO):
    """Standard error, which the log is written to. Data that cannot be written is dropped without an error."""

    def write(self, data: "ReadableBuffer") -> int:
        try:
            written = super().write(data)
        except OSError:
            return memoryview(data).nbytes
        return memoryview(data).nbytes if written is None else written


def run(command: Callable[[], int]) -> int:
    """Run a command with standard streams that are the same in every environment. Returns the exit status.

    An error of standard output is reported in one line; a broken pipe is not reported.
    """
    _open_streams()
    try:
        try:
            status = command()
        except SystemExit as exit_request:  # argparse has printed the help or the usage
            status = int(exit_request.code or 0)
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
        interrupts.exit_at_once()  # while Python shuts down, an interrupt would print a KeyboardInterrupt
    return status


def _open_streams() -> None:
    """Open the three standard streams, with the same buffering with and without PYTHONUNBUFFERED."""
    for descriptor, mode in ((STDIN, os.O_RDONLY), (STDOUT, os.O_RDONLY), (STDERR, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:  # closed by the parent; standard output is opened for reading, so that writing fails
            os.open(os.devnull, mode)  # uses the lowest free number, which is this one
    sys.stdin = sys.stdin or io.TextIOWrapper(io.BufferedReader(io.FileIO(STDIN, closefd=False)))
    output = Output(STDOUT, "wb", closefd=False)
    sys.stdout = _text(output, sys.stdout, "strict", output.isatty())
    sys.stderr = _text(Errors(STDERR, "wb", closefd=False), sys.stderr, "backslashreplace", True)


def _text(raw: io.FileIO, original: TextIO | None, errors: str, line_buffering: bool) -> TextIO:
    """Return a text stream with the encoding that Python has chosen for this environment."""
    encoding, errors = (original.encoding, original.errors or errors) if original else ("utf-8", errors)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=line_buffering)


def _discard_output() -> None:
    """Discard the buffered output, so that Python can flush standard output when it exits."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, STDOUT)
    os.close(null)
