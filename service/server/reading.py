"""Reading requests: what is too much, contradictory or unreadable is refused before an operation hears of it."""

import contextlib
import logging

from waitress.buffers import OverflowableBuffer
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.utilities import BadRequest, Error

log = logging.getLogger("cx.server")

KEPT = 8 * 1024 * 1024  # bytes of a body; more than any operation takes
LINE = 4096  # bytes that part the chunks of a body, or follow the last


class _NoRoom(Error):  # type: ignore[misc]
    code, reason = 503, "Service Unavailable"


class _Body(OverflowableBuffer):  # type: ignore[misc]
    """What a client sends, in a temporary file from 512 KiB on; what cannot be kept is counted and passed over."""

    length = 0
    lost = ""  # why it could not be kept

    def append(self, data: bytes) -> None:
        self.length += len(data)
        if self.lost or self.length > KEPT:
            return
        try:
            super().append(data)
        except OSError as error:
            self.lost = error.strerror or str(error)
            self.close()

    def __len__(self) -> int:
        return self.length

    def close(self) -> None:
        with contextlib.suppress(OSError):  # closing a file writes what it still holds
            super().close()


class Request(HTTPRequestParser):  # type: ignore[misc]
    def parse_header(self, header_plus: bytes) -> None:
        try:
            super().parse_header(header_plus)
        except ValueError:  # a length of thousands of digits, an address with half a bracket
            raise ParsingError("Header is not readable") from None
        if self.chunked and "CONTENT_LENGTH" in self.headers:
            raise ParsingError("Content-Length beside Transfer-Encoding")
        if self.body_rcv is not None:  # an empty one is false
            self.body_rcv.buf = _Body(self.adj.inbuf_overflow)

    def received(self, data: bytes) -> int:
        consumed: int = super().received(data)
        body = self.body_rcv
        if body is None:
            return consumed
        if self.chunked and len(body.control_line) + len(body.trailer) > LINE:  # joined anew at every read
            self.error, self.completed = BadRequest("Chunks are parted by too much"), True
        elif self.completed and not self.error and body.buf.lost:
            log.error("a request could not be kept: %s", body.buf.lost)
            self.error = _NoRoom("There is no room for this request right now")
        return consumed
