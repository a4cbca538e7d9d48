"""Log lines, for people or as JSON Lines for programs; nowhere else do they get their form.

A record is one line for programs. For people it is a line that begins with its time; the lines of a traceback below it
are indented. Control characters are escaped in both, so whatever gets into a log forges no line of it. Neither form
ever holds query strings, headers or bodies, since nobody hands them in.
"""

import logging
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import msgspec
from msgspec import Struct

from service import clock
from service.terminal import escape

INDENT = "    "
AT_ONCE = 8  # lines: about as many as a pipe takes in one piece (POSIX, PIPE_BUF), so that workers do not mix theirs

_BLANK = vars(logging.LogRecord("", logging.INFO, "", 0, None, (), None))


class Event(Struct):
    """What has members to be told beside a sentence. Log it in place of a message: `str` of it is the line for people.

    Members are to be free of control characters.
    """

    def sentence(self) -> str:
        """The message for programs, which have the members as well."""
        return str(self)


class Told(logging.LogRecord):
    """The record of an event, for `handle` of a logger; made at once, since every request makes one."""

    def __init__(self, logger: logging.Logger, event: Event) -> None:
        self.__dict__ = _BLANK | {"name": logger.name, "msg": event, "created": time.time()}


class _Form(logging.Formatter):
    _told = (-1, "")  # the last second, and the text of it

    def time(self, record: logging.LogRecord) -> str:
        """RFC 3339 in UTC, to the millisecond, by the host's clock."""
        second = int(record.created)
        told = self._told
        if told[0] != second:
            told = self._told = (second, clock.timestamp(second * clock.SECOND)[:-4])
        return f"{told[1]}{int(record.created * 1000) % 1000:03}Z"

    def traceback(self, record: logging.LogRecord) -> str:
        return self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""


class Text(_Form):
    """For people."""

    def format(self, record: logging.LogRecord) -> str:
        lines = [f"{self.time(record)} {record.levelname} {record.name} {_printable(record.getMessage())}"]
        lines += [INDENT + _printable(line) for line in self.traceback(record).split("\n") if line]
        return "\n".join(lines)


class Json(_Form):
    """For programs."""

    def format(self, record: logging.LogRecord) -> str:
        event = record.msg if isinstance(record.msg, Event) else None
        told: dict[str, Any] = {
            "time": self.time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _encodable(event.sentence() if event else record.getMessage()),
        }
        if event:
            told |= msgspec.structs.asdict(event)
        if traceback := self.traceback(record):
            told["traceback"] = _encodable(traceback)
        line = msgspec.json.encode(told).decode()
        return _printable(line)


FORMS = {"text": Text, "json": Json}


class Lines(logging.StreamHandler[TextIO]):
    """Standard error. What a thread logs while `held` is formatted and written together, at the end.

    One by one, between requests, lines take as much of the processor as a database does to answer most of those.
    """

    def __init__(self) -> None:
        super().__init__()
        self._here = threading.local()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep what this thread logs inside until it ends; so whoever has something to tell must not wait for long."""
        self._here.held = held = list[logging.LogRecord]()
        try:
            yield
        finally:
            del self._here.held
            self._write(held)

    def handle(self, record: logging.LogRecord) -> bool:
        held: list[logging.LogRecord] | None = getattr(self._here, "held", None)
        if held is None:
            self._write([record])
            return True
        held.append(record)
        if len(held) == AT_ONCE:
            self._write(held)
            held.clear()
        return True

    def _write(self, records: Sequence[logging.LogRecord]) -> None:
        lines = []
        for record in records:
            try:
                lines.append(self.format(record) + self.terminator)
            except Exception:
                self.handleError(record)
        if lines:
            self.acquire()
            try:
                self.stream.write("".join(lines))
                self.flush()
            except Exception:
                self.handleError(records[0])
            finally:
                self.release()


lines = Lines()


def set_up(level: str, form: str) -> None:
    """Write the lines of this process to standard error."""
    lines.stream = sys.stderr
    lines.setFormatter(FORMS[form]())
    logging.basicConfig(level=level.upper(), handlers=[lines])
    logging.getLogger("peewee").setLevel("INFO")  # below, it writes values: password hashes, signing keys
    # What no line of ours shows is not found out for each of them (Python's logging HOWTO, section Optimization).
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    threading.excepthook = _tell_of_thread


def announce(sentence: str) -> None:
    """Write a line whatever the level is."""
    log = logging.getLogger("cx.server")
    log.handle(log.makeRecord(log.name, logging.INFO, "", 0, sentence, (), None))


def _tell_of_thread(args: threading.ExceptHookArgs) -> None:
    """Whatever ends a thread of a library is a record like any other."""
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        logging.getLogger("cx.server").error("a thread has failed", exc_info=args.exc_value)


def _printable(text: str) -> str:
    return text if text.isprintable() else escape(text)


def _encodable(text: str) -> str:
    """Without halves of characters, which JSON cannot hold."""
    return text.encode(errors="backslashreplace").decode()
