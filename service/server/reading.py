"""Reading requests: what is too much, contradictory or unreadable is refused before an operation hears of it.

Strict where servers that stand in a row may differ on where a request ends (RFC 9112, sections 3, 5, 6 and 11.2).
"""

import contextlib
import functools
import logging
import re
from collections.abc import Callable
from typing import Any

from waitress.buffers import OverflowableBuffer
from waitress.parser import HTTPRequestParser, ParsingError, unquote_bytes_to_wsgi
from waitress.receiver import ChunkedReceiver, FixedStreamReceiver
from waitress.utilities import BadRequest, Error, RequestHeaderFieldsTooLarge

from service.edge import Route
from service.remembering import remembered
from service.server.unsent import Room

log = logging.getLogger("cx.server")

SMALL_BODY = 16 * 1024  # bytes of each body for which there is always room: as many connections as there may be
LARGE_BODIES = 64 * 1024 * 1024  # bytes of all bodies beyond that, in memory or in temporary files, in this process
LARGEST_BODY = 8 * 1024 * 1024  # bytes of a body for an application that does not tell the limits of its operations
FIELDS = 100  # of a header
LINE = 4096  # bytes that part the chunks of a body, or follow the last

ONCE = ("HTTP_HOST", "HTTP_TRANSFER_ENCODING", "CONTENT_LENGTH")

START = re.compile(r"([!#$%&'*+.^_`|~0-9A-Z-]+) ([!-~]+) HTTP/(1\.[01])")
FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~\x80-\xff]*)\r\n")
HEADER = re.compile(f"(?:{FIELD.pattern})*")
HOST = re.compile(r"([A-Za-z0-9._~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?")
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
ABSOLUTE = re.compile(r"(https?)://([^/?#]+)(.*)", re.IGNORECASE)
ENCODED_SLASH = re.compile("%2f", re.IGNORECASE)
LENGTH = re.compile(r"[0-9]{1,4000}")
SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(;[\t -~\x80-\xff]*)?")


@functools.lru_cache(1024)
def _key(name: str) -> str:
    """A field's name as an environ has it; none for one that could be taken for another's."""
    key = "" if "_" in name else name.upper().replace("-", "_")
    return key if key in ("", "CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"


@remembered(1024)
def _read_fields(text: str) -> dict[str, str]:
    """The fields of a header; a client sends the same ones with request after request. Raises ParsingError."""
    if not HEADER.fullmatch(text):
        raise ParsingError("Invalid header")
    fields: dict[str, str] = {}
    for name, value in FIELD.findall(text):
        key = _key(name)
        if key not in fields:
            fields[key] = value.strip(" \t")
        elif key in ONCE:
            raise ParsingError(f"{name} is there more than once")
        elif key:
            fields[key] += ", " + value.strip(" \t")
    fields.pop("", None)
    if not HOST.fullmatch(fields.get("HTTP_HOST", "")):
        raise ParsingError("Host must be a host")
    return fields


def host_of(scheme: str, authority: str) -> str:
    """A host and its port in the one way that two of them can be compared."""
    default = {"http": ":80", "https": ":443"}.get(scheme.lower(), "")
    return authority.lower().removesuffix(default).removesuffix(":")


class _NoRoom(Error):  # type: ignore[misc]
    code, reason = 503, "Service Unavailable"


body_room = Room(LARGE_BODIES)


class _Body(OverflowableBuffer):  # type: ignore[misc]
    """A body on its way in, in a temporary file from 512 KiB on."""

    length = held = 0  # bytes: of the body, and taken of the room
    failure = ""  # why it cannot be stored

    def append(self, data: bytes) -> None:
        self.length += len(data)
        if self.failure:
            return
        try:
            beyond = max(0, self.length - SMALL_BODY) - self.held
            if beyond and not body_room.take(beyond):
                raise OSError("Too many bodies at once")
            self.held += beyond
            super().append(data)
        except OSError as error:
            self.failure = error.strerror or str(error)
            self.close()

    def __len__(self) -> int:
        return self.length

    def close(self) -> None:
        if self.held:
            body_room.take(-self.held)
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
        if line and (self.trailers > LINE or not FIELD.fullmatch(f"{line.decode('latin-1')}\r\n")):
            self.error = BadRequest("Invalid trailer")


class Request(HTTPRequestParser):  # type: ignore[misc]
    """A request that is coming in; `headers` are named as an environ has them.

    `find` is asked for its `route` when the header is complete; there is none without it, or before that. A body over
    the limit of the operation is not taken in: the application, which is told its length, refuses it.
    """

    body_rcv: Any
    route: Route | None = None
    is_incomplete = False  # the client may still be sending a body that is not taken in
    has_begun = False  # more than line ends has come

    def __init__(
        self, adjustments: Any, find: Callable[[str, str], Route] | None = None, public_host: str = ""
    ) -> None:
        super().__init__(adjustments)
        self.find, self.public_host = find, public_host

    def parse_header(self, header_plus: bytes) -> None:
        """Read the start line and the fields; what waitress would find besides, nothing here asks for."""
        self.header_plus = b""  # of this header, which came in several parts
        line, _, rest = header_plus.decode("latin-1").removesuffix("\r\n").partition("\r\n")
        start = START.fullmatch(line)
        if not start:
            raise ParsingError("Start line is not one of HTTP/1.1")
        if rest.count("\n") > FIELDS:
            self.error, self.completed = RequestHeaderFieldsTooLarge(f"more than {FIELDS} fields"), True
            return
        self.headers = _read_fields(rest).copy()
        self.command, uri, self.version = start.groups()
        self._read_end()
        self._read_target(uri)
        if self.find:
            self.route = self.find(self.command, self.path)
        if self.content_length > self.body_limit:
            self.stop()

    @property
    def body_limit(self) -> int:
        """Bytes of the largest body that is taken in. An unknown path has no use for any."""
        if self.route is None:
            return LARGEST_BODY
        return self.route.operation.most if self.route.operation else SMALL_BODY

    @property
    def held(self) -> int:
        """Bytes of its body that take up the room for large ones."""
        return self.body_rcv.buf.held if self.body_rcv else 0

    def stop(self, error: Error | None = None) -> None:
        """Take in no more of the body, and drop the rest; `error` is the reason unless it is too large."""
        self.close()
        self.body_rcv = None
        self.completed = self.is_incomplete = True
        self.error = error

    def refuse_for_want_of_room(self) -> None:
        """Take in no more of the body, and answer 503."""
        self.stop(_NoRoom("There is no room for this request right now"))

    def _read_target(self, target: str) -> None:
        """Read the path and the query. An encoded slash stays as it is: it is no slash (RFC 3986, section 2.2)."""
        if SCHEME.match(target):
            target = self._read_authority(target)
        path, _, self.query = target.partition("#")[0].partition("?")
        if "%" in path:
            path = unquote_bytes_to_wsgi(ENCODED_SLASH.sub("%252F", path).encode("latin-1"))
        self.path = path

    def _read_authority(self, target: str) -> str:
        """The path and query of a target in absolute form; its host is taken for Host (RFC 9112, section 3.2.2)."""
        found = ABSOLUTE.fullmatch(target)
        if not found or not HOST.fullmatch(found[2]) or found[2].startswith(":"):
            raise ParsingError("The target must be a path, or begin with http or https and a host")
        scheme, authority, rest = found.groups()
        named = self.headers.get("HTTP_HOST", "" if self.public_host else authority)
        if host_of(scheme, authority) not in (host_of(scheme, named), self.public_host):
            raise ParsingError("The target names another host")
        self.headers["HTTP_HOST"] = authority
        return rest if rest.startswith("/") else f"/{rest}"

    def _read_end(self) -> None:
        """See that the fields which say where a request goes and where it ends can be read in one way only."""
        headers, is_current = self.headers, self.version == "1.1"
        coding, length = headers.get("HTTP_TRANSFER_ENCODING"), headers.get("CONTENT_LENGTH")
        if is_current and "HTTP_HOST" not in headers:
            raise ParsingError("Host must be there")
        if coding is not None:
            if not is_current or length is not None or coding.lower() != "chunked":
                raise ParsingError("Transfer-Encoding must be chunked, without Content-Length")
            del headers["HTTP_TRANSFER_ENCODING"]  # whoever is asked gets the whole body, and its length
            self.chunked, self.body_rcv = True, _Chunks(_Body(self.adj.inbuf_overflow))
        elif length is not None:
            if not LENGTH.fullmatch(length):
                raise ParsingError("Content-Length is invalid")
            self.content_length = int(length)
            if self.content_length:
                self.body_rcv = FixedStreamReceiver(self.content_length, _Body(self.adj.inbuf_overflow))
        self.expect_continue = is_current and headers.get("HTTP_EXPECT", "").lower() == "100-continue"

    def received(self, data: bytes) -> int:
        if not self.has_begun and not self._begins_well(data):
            self.error, self.completed = BadRequest("Only line ends may come before a request"), True
            return len(data)
        consumed: int = super().received(data)
        if self.body_rcv is None or self.error:
            return consumed
        body = self.body_rcv.buf
        if body.failure:
            log.error("a body could not be stored: %s", body.failure)
            self.refuse_for_want_of_room()
        elif body.length > self.body_limit and not self.completed:  # in chunks
            self.headers["CONTENT_LENGTH"] = str(body.length)
            self.stop()
        return consumed

    def _begins_well(self, data: bytes) -> bool:
        """Whether nothing but line ends comes before the start line; waitress passes over all white space."""
        begin = self.header_plus + data if self.header_plus else data
        rest = begin if begin[0] > 32 else begin.lstrip()
        self.has_begun = bool(rest)
        before = begin[: len(begin) - len(rest)].replace(b"\r\n", b"")
        return not before or (before == b"\r" and not rest)
