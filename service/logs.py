"""The form of log lines: text for people, or JSON Lines for programs.

In JSON, a record is one line. As text, it is a line that begins with its time, followed by the indented lines of a
traceback. Control characters are escaped in both, so that logged data cannot forge a line. Log lines contain no query
strings, headers or bodies, because callers do not pass them.
"""

import logging
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import msgspec
from msgspec import Struct

from service import clock
from service.escape import escape

INDENT = "    "
MAX_BUFFERED = 8  # lines: about one write to a pipe (POSIX, PIPE_BUF), so that lines of workers do not mix

_TEMPLATE = vars(logging.LogRecord("", logging.INFO, "", 0, None, (), None))


class LogEvent(Struct):
    """A log message with members. Log an instance in place of a message: `str` of it is the line in the text form.

    Members must not contain control characters.
    """

    def summary(self) -> str:
        """Return the message in the JSON form, which has the members as well."""
        return str(self)


class LogRecord(logging.LogRecord):
    """The record of an event, for `Logger.handle`. Made quickly: each request logs one."""

    def __init__(self, logger: logging.Logger, event: LogEvent) -> None:
        self.__dict__ = _TEMPLATE | {"name": logger.name, "msg": event, "created": time.time()}


class _Formatter(logging.Formatter):
    _last_second = (-1, "")  # the second that was formatted last, and its text

    def time(self, record: logging.LogRecord) -> str:
        """Return the time of the record by the host's clock: RFC 3339 in UTC, with milliseconds."""
        second = int(record.created)
        last = self._last_second
        if last[0] != second:
            last = self._last_second = (second, clock.timestamp(second * clock.SECOND)[:-4])
        return f"{last[1]}{int(record.created * 1000) % 1000:03}Z"

    def traceback(self, record: logging.LogRecord) -> str:
        return self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""


class TextFormatter(_Formatter):
    """The text form, for people."""

    def format(self, record: logging.LogRecord) -> str:
        lines = [f"{self.time(record)} {record.levelname} {record.name} {_printable(record.getMessage())}"]
        lines += [INDENT + _printable(line) for line in self.traceback(record).split("\n") if line]
        return "\n".join(lines)


class JsonFormatter(_Formatter):
    """The JSON form, for programs."""

    def format(self, record: logging.LogRecord) -> str:
        event = record.msg if isinstance(record.msg, LogEvent) else None
        members: dict[str, object] = {
            "time": self.time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _encodable(event.summary() if event else record.getMessage()),
        }
        if event:
            members |= msgspec.structs.asdict(event)
        if traceback := self.traceback(record):
            members["traceback"] = _encodable(traceback)
        line = msgspec.json.encode(members).decode()
        return _printable(line)


FORMATTERS = {"text": TextFormatter, "json": JsonFormatter}


class BufferedHandler(logging.StreamHandler[TextIO]):
    """Writes to standard error. Records that a thread logs inside `buffered` are formatted and written together.

    Written one by one, between requests, log lines take as much processor time as the database for most requests.
    """

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.local()

    @contextmanager
    def buffered(self) -> Iterator[None]:
        """Buffer the records of this thread until the end of the block, which must come soon."""
        self._thread.buffer = buffer = list[logging.LogRecord]()
        try:
            yield
        finally:
            del self._thread.buffer
            self._write(buffer)

    def handle(self, record: logging.LogRecord) -> bool:
        buffer: list[logging.LogRecord] | None = getattr(self._thread, "buffer", None)
        if buffer is None:
            self._write([record])
            return True
        buffer.append(record)
        if len(buffer) == MAX_BUFFERED:
            self._write(buffer)
            buffer.clear()
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


handler = BufferedHandler()


def configure(level: str, form: str) -> None:
    """Write the log of this process to standard error."""
    handler.stream = sys.stderr
    handler.setFormatter(FORMATTERS[form]())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger("peewee").setLevel("INFO")  # its debug lines contain values: password hashes, signing keys
    # Do not collect what the lines do not show (Python's logging HOWTO, section Optimization).
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    threading.excepthook = _log_thread_failure


def announce(message: str) -> None:
    """Write a line at any log level."""
    log = logging.getLogger("cx.server")
    log.handle(log.makeRecord(log.name, logging.INFO, "", 0, message, (), None))


def _log_thread_failure(args: threading.ExceptHookArgs) -> None:
    """Log an exception that ends a thread, also a thread of a library."""
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        logging.getLogger("cx.server").error("a thread has failed", exc_info=args.exc_value)


def _printable(text: str) -> str:
    return text if text.isprintable() else escape(text)


def _encodable(text: str) -> str:
    """Return the text without lone surrogates, which UTF-8 cannot encode."""
    return text.encode(errors="backslashreplace").decode()
