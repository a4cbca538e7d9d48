"""Reading requests: what is too much, contradictory or unreadable is refused before an operation hears of it.

Strict where servers that stand in a row may differ on where a request ends (RFC 9112, sections 3, 5, 6 and 11.2).
"""

import contextlib
import logging
import re
import threading

from waitress.buffers import OverflowableBuffer
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.receiver import ChunkedReceiver
from waitress.utilities import BadRequest, Error, RequestHeaderFieldsTooLarge

log = logging.getLogger("cx.server")

KEPT = 8 * 1024 * 1024  # bytes of a body; more than any operation takes
KEPT_AT_ONCE = 64 * 1024 * 1024  # bytes of all bodies that this process has, in memory or in temporary files
FIELDS = 100  # of a header
LINE = 4096  # bytes that part the chunks of a body, or follow the last

START = re.compile(rb"[!-~]+ [!-~]+ HTTP/1\.[01]")
FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~\x80-\xff]*)")
HOST = re.compile(rb"([A-Za-z0-9._~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?")
SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(;[\t -~\x80-\xff]*)?")


class _NoRoom(Error):  # type: ignore[misc]
    code, reason = 503, "Service Unavailable"


class _Kept:
    """The bytes of bodies that are kept at the moment."""

    def __init__(self) -> None:
        self.left, self._lock = KEPT_AT_ONCE, threading.Lock()

    def take(self, count: int) -> bool:
        """Take some of the room that is left, or give it back; whether there is as much."""
        with self._lock:
            if count > self.left:
                return False
            self.left -= count
            return True


class _Body(OverflowableBuffer):  # type: ignore[misc]
    """What a client sends, in a temporary file from 512 KiB on; what cannot be kept is counted and passed over."""

    kept = _Kept()
    length = held = 0
    lost = ""  # why it could not be kept

    def append(self, data: bytes) -> None:
        self.length += len(data)
        if self.lost or self.length > KEPT:
            return
        try:
            if not self.kept.take(len(data)):
                raise OSError("Too many bodies at once")
            self.held += len(data)
            super().append(data)
        except OSError as error:
            self.lost = error.strerror or str(error)
            self.close()

    def __len__(self) -> int:
        return self.length

    def close(self) -> None:
        self.kept.take(-self.held)
        self.held = 0
        with contextlib.suppress(OSError):  # closing a file writes what it still holds
            super().close()


class _Chunks(ChunkedReceiver):  # type: ignore[misc]
    """A body in chunks (RFC 9112, section 7.1), by the letter; extensions and trailers are passed over."""

    error: Error | None
    chunk_remainder: int

    def __init__(self, body: _Body) -> None:
        super().__init__(body)
        self.next, self.line, self.trailers = self._size, b"", 0

    def received(self, data: bytes) -> int:
        """Take in what came; how much of it was the body's."""
        rest = data
        while rest and not self.completed and not self.error:
            if self.chunk_remainder:
                self.buf.append(rest[: self.chunk_remainder])
                taken = min(len(rest), self.chunk_remainder)
                self.chunk_remainder -= taken
                rest = rest[taken:]
                continue
            line, end, rest = (self.line + rest).partition(b"\r\n")
            if len(line) > LINE:
                self.error = BadRequest("Chunks are parted by too much")
            elif end:
                self.line = b""
                self.next(line)
            else:
                self.line = line
        return len(data) - len(rest)

    def _size(self, line: bytes) -> None:
        found = SIZE.fullmatch(line)
        if not found:
            self.error = BadRequest("Invalid chunk size")
            return
        self.chunk_remainder = int(found[1], 16)
        self.next = self._end if self.chunk_remainder else self._trailer

    def _end(self, line: bytes) -> None:
        if line:
            self.error = BadRequest("Chunk not properly terminated")
        self.next = self._size

    def _trailer(self, line: bytes) -> None:
        self.trailers += len(line)
        self.completed = not line
        if line and (self.trailers > LINE or not FIELD.fullmatch(line)):
            self.error = BadRequest("Invalid trailer")


class Request(HTTPRequestParser):  # type: ignore[misc]
    """A request that is coming in."""

    def parse_header(self, header_plus: bytes) -> None:
        start, *lines = header_plus.removesuffix(b"\r\n\r\n").removesuffix(b"\r\n").split(b"\r\n")
        if not START.fullmatch(start):
            raise ParsingError("Start line is not one of HTTP/1.1")
        if len(lines) > FIELDS:
            self.error, self.completed = RequestHeaderFieldsTooLarge(f"more than {FIELDS} fields"), True
            return
        told: dict[bytes, list[bytes]] = {}
        for line in lines:
            field = FIELD.fullmatch(line)
            if not field:
                raise ParsingError("Invalid header")
            told.setdefault(field[1].lower(), []).append(field[2].strip(b" \t"))
        self._check(start, told)
        try:
            super().parse_header(header_plus)
        except ValueError:  # a length of thousands of digits, an address with half a bracket
            raise ParsingError("Header is not readable") from None
        if self.chunked:
            self.body_rcv = _Chunks(_Body(self.adj.inbuf_overflow))
        elif self.body_rcv is not None:  # an empty one is false
            self.body_rcv.buf = _Body(self.adj.inbuf_overflow)

    def _check(self, start: bytes, told: dict[bytes, list[bytes]]) -> None:
        """See that the fields which say where a request goes and where it ends can be read in one way only."""
        hosts, codings, lengths = (told.get(name, []) for name in (b"host", b"transfer-encoding", b"content-length"))
        is_current = start.endswith(b"1")
        if len(hosts) > 1 or (is_current and not hosts) or not all(map(HOST.fullmatch, hosts)):
            raise ParsingError("Host must be there once, and be a host")
        if codings and (not is_current or lengths or [coding.lower() for coding in codings] != [b"chunked"]):
            raise ParsingError("Transfer-Encoding must be chunked, without Content-Length")
        if len(lengths) > 1:
            raise ParsingError("Content-Length is there more than once")

    def received(self, data: bytes) -> int:
        consumed: int = super().received(data)
        body = self.body_rcv
        if self.completed and not self.error and body is not None and body.buf.lost:
            log.error("a request could not be kept: %s", body.buf.lost)
            self.error = _NoRoom("There is no room for this request right now")
        return consumed
