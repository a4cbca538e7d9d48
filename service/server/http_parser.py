"""The HTTP parser: refuses requests that are malformed, ambiguous or too large before they reach an operation.

Strict where a proxy and this server might disagree on where a request ends, which would allow request smuggling
(RFC 9112, sections 3, 5, 6 and 11.2).
"""

import contextlib
import functools
import logging
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from waitress.buffers import OverflowableBuffer
from waitress.parser import HTTPRequestParser, ParsingError, unquote_bytes_to_wsgi
from waitress.receiver import ChunkedReceiver, FixedStreamReceiver
from waitress.utilities import BadRequest, Error, RequestHeaderFieldsTooLarge

from service.http.middleware import Route
from service.memoize import memoized
from service.server.memory_limits import MemoryLimit

# Waitress gives no types.
Adjustments: TypeAlias = Any
Receiver: TypeAlias = Any

log = logging.getLogger("cx.server")

SMALL_BODY = 16 * 1024  # bytes of each body that do not count as large; every connection may hold as many
MAX_LARGE_BODIES = 64 * 1024 * 1024  # bytes of all bodies beyond that, in memory or temporary files, of a process
DEFAULT_MAX_BODY = 8 * 1024 * 1024  # bytes, for an application without routes
MAX_FIELDS = 100  # of a header
MAX_CHUNK_LINE = 4096  # bytes of a chunk's size line, or of the trailers

UNIQUE_FIELDS = ("HTTP_HOST", "HTTP_TRANSFER_ENCODING", "CONTENT_LENGTH")

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
    """Return the name of a field in the WSGI environ. Empty for names with "_", which could be mistaken for others."""
    key = "" if "_" in name else name.upper().replace("-", "_")
    return key if key in ("", "CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"


@memoized(1024)
def _read_fields(text: str) -> dict[str, str]:
    """Return the fields of a header. Memoized: a client repeats them with every request. Raises ParsingError."""
    if not HEADER.fullmatch(text):
        raise ParsingError("Invalid header")
    fields: dict[str, str] = {}
    for name, value in FIELD.findall(text):
        key = _key(name)
        if key not in fields:
            fields[key] = value.strip(" \t")
        elif key in UNIQUE_FIELDS:
            raise ParsingError(f"{name} occurs more than once")
        elif key:
            fields[key] += ", " + value.strip(" \t")
    fields.pop("", None)
    if not HOST.fullmatch(fields.get("HTTP_HOST", "")):
        raise ParsingError("Host is invalid")
    return fields


def host_of(scheme: str, authority: str) -> str:
    """Return a host and its port in normal form, for comparison."""
    default = {"http": ":80", "https": ":443"}.get(scheme.lower(), "")
    return authority.lower().removesuffix(default).removesuffix(":")


class _ServiceUnavailable(Error):  # type: ignore[misc]
    code, reason = 503, "Service Unavailable"


body_memory = MemoryLimit(MAX_LARGE_BODIES)


class _Body(OverflowableBuffer):  # type: ignore[misc]
    """A body that is being received; in a temporary file from 512 KiB on."""

    length = reserved = 0  # bytes of the body, and of `body_memory`
    failure = ""  # the reason why it cannot be stored

    def append(self, data: bytes) -> None:
        self.length += len(data)
        if self.failure:
            return
        try:
            missing = max(0, self.length - SMALL_BODY) - self.reserved
            if missing and not body_memory.reserve(missing):
                raise OSError("Too many large bodies")
            self.reserved += missing
            super().append(data)
        except OSError as error:
            self.failure = error.strerror or str(error)
            self.close()

    def __len__(self) -> int:
        return self.length

    def close(self) -> None:
        if self.reserved:
            body_memory.release(self.reserved)
            self.reserved = 0
        with contextlib.suppress(OSError):  # closing a file writes its buffer
            super().close()


class _ChunkedBody(ChunkedReceiver):  # type: ignore[misc]
    """Decodes a chunked body strictly (RFC 9112, section 7.1); ignores extensions and trailers."""

    error: Error | None
    chunk_remainder: int

    def __init__(self, body: _Body) -> None:
        super().__init__(body)
        self.read_line, self.line, self.trailers = self._read_size, b"", 0

    def received(self, data: bytes) -> int:
        """Process received data. Returns the number of bytes that belong to the body."""
        rest = data
        while rest and not self.completed and not self.error:
            if self.chunk_remainder:
                self.buf.append(rest[: self.chunk_remainder])
                taken = min(len(rest), self.chunk_remainder)
                self.chunk_remainder -= taken
                rest = rest[taken:]
                continue
            line, end, rest = (self.line + rest).partition(b"\r\n")
            if len(line) > MAX_CHUNK_LINE:
                self.error = BadRequest("The line before a chunk is too long")
            elif end:
                self.line = b""
                self.read_line(line)
            else:
                self.line = line
        return len(data) - len(rest)

    def _read_size(self, line: bytes) -> None:
        found = SIZE.fullmatch(line)
        if not found:
            self.error = BadRequest("Invalid chunk size")
            return
        self.chunk_remainder = int(found[1], 16)
        self.read_line = self._read_chunk_end if self.chunk_remainder else self._read_trailer

    def _read_chunk_end(self, line: bytes) -> None:
        if line:
            self.error = BadRequest("Chunk not properly terminated")
        self.read_line = self._read_size

    def _read_trailer(self, line: bytes) -> None:
        self.trailers += len(line)
        self.completed = not line
        if line and (self.trailers > MAX_CHUNK_LINE or not FIELD.fullmatch(f"{line.decode('latin-1')}\r\n")):
            self.error = BadRequest("Invalid trailer")


class Request(HTTPRequestParser):  # type: ignore[misc]
    """A request that is being received; `headers` has the names of the WSGI environ.

    `find_route` sets `route` when the header is complete. A body over the limit of the operation is not stored; the
    application refuses it by its Content-Length.
    """

    body_rcv: Receiver
    route: Route | None = None
    is_incomplete = False  # the client may still be sending a body that is not stored
    has_begun = False  # something other than line ends was received

    def __init__(
        self, adjustments: Adjustments, find_route: Callable[[str, str], Route] | None = None, public_host: str = ""
    ) -> None:
        super().__init__(adjustments)
        self.find_route, self.public_host = find_route, public_host

    def parse_header(self, header_plus: bytes) -> None:
        """Parse the start line and the fields; replaces the parser of waitress."""
        self.header_plus = b""  # waitress collected the parts of the header in it
        line, _, rest = header_plus.decode("latin-1").removesuffix("\r\n").partition("\r\n")
        start = START.fullmatch(line)
        if not start:
            raise ParsingError("The start line is not valid HTTP/1.1")
        if rest.count("\n") > MAX_FIELDS:
            self.error, self.completed = RequestHeaderFieldsTooLarge(f"more than {MAX_FIELDS} fields"), True
            return
        self.headers = _read_fields(rest).copy()
        self.command, uri, self.version = start.groups()
        self._read_framing()
        self._read_target(uri)
        if self.find_route:
            self.route = self.find_route(self.command, self.path)
        if self.content_length and self.content_length > self.body_limit:
            self.stop()

    @property
    def body_limit(self) -> int:
        """The largest body that is stored, in bytes. Requests without an operation get the smallest limit."""
        if self.route is None:
            return DEFAULT_MAX_BODY
        return self.route.operation.max_body if self.route.operation else SMALL_BODY

    @property
    def reserved(self) -> int:
        """Bytes that its body has reserved of `body_memory`."""
        return self.body_rcv.buf.reserved if self.body_rcv else 0

    def stop(self, error: Error | None = None) -> None:
        """Stop storing the body, and drop the stored part; `error` is the reason, unless the body is too large."""
        self.close()
        self.body_rcv = None
        self.completed = self.is_incomplete = True
        self.error = error

    def refuse_body(self) -> None:
        """Stop storing the body, and respond with 503."""
        self.stop(_ServiceUnavailable("There is no memory for this request right now"))

    def _read_target(self, target: str) -> None:
        """Parse the path and the query. An encoded slash stays encoded: it is no separator (RFC 3986, section 2.2)."""
        if not target.startswith("/") and SCHEME.match(target):
            target = self._read_authority(target)
        path, _, self.query = target.partition("#")[0].partition("?")
        if "%" in path:
            path = unquote_bytes_to_wsgi(ENCODED_SLASH.sub("%252F", path).encode("latin-1"))
        self.path = path

    def _read_authority(self, target: str) -> str:
        """Return the path and query of a target in absolute form; its host replaces Host (RFC 9112, section 3.2.2)."""
        found = ABSOLUTE.fullmatch(target)
        if not found or not HOST.fullmatch(found[2]) or found[2].startswith(":"):
            raise ParsingError("The target must be a path, or an http or https URL")
        scheme, authority, rest = found.groups()
        named = self.headers.get("HTTP_HOST", "" if self.public_host else authority)
        if host_of(scheme, authority) not in (host_of(scheme, named), self.public_host):
            raise ParsingError("The target names another host")
        self.headers["HTTP_HOST"] = authority
        return rest if rest.startswith("/") else f"/{rest}"

    def _read_framing(self) -> None:
        """Parse the fields that determine the host and the end of the request. Raises ParsingError if ambiguous."""
        headers, is_current = self.headers, self.version == "1.1"
        coding, length = headers.get("HTTP_TRANSFER_ENCODING"), headers.get("CONTENT_LENGTH")
        if is_current and "HTTP_HOST" not in headers:
            raise ParsingError("Host is missing")
        if coding is not None:
            if not is_current or length is not None or coding.lower() != "chunked":
                raise ParsingError("Transfer-Encoding must be chunked, without Content-Length")
            del headers["HTTP_TRANSFER_ENCODING"]  # the application gets the decoded body and its length
            self.chunked, self.body_rcv = True, _ChunkedBody(_Body(self.adj.inbuf_overflow))
        elif length is not None:
            if not LENGTH.fullmatch(length):
                raise ParsingError("Content-Length is invalid")
            self.content_length = int(length)
            if self.content_length:
                self.body_rcv = FixedStreamReceiver(self.content_length, _Body(self.adj.inbuf_overflow))
        self.expect_continue = is_current and headers.get("HTTP_EXPECT", "").lower() == "100-continue"

    def received(self, data: bytes) -> int:
        if not self.has_begun and not self.header_plus and data[0] > 32:
            self.has_begun = True
        elif not self.has_begun and not self._starts_cleanly(data):
            self.error, self.completed = BadRequest("Only line ends may precede a request"), True
            return len(data)
        consumed: int = super().received(data)
        if self.body_rcv is None or self.error:
            return consumed
        body = self.body_rcv.buf
        if body.failure:
            log.error("a body could not be stored: %s", body.failure)
            self.refuse_body()
        elif body.length > self.body_limit and not self.completed:  # in chunks
            self.headers["CONTENT_LENGTH"] = str(body.length)
            self.stop()
        return consumed

    def _starts_cleanly(self, data: bytes) -> bool:
        """Return whether only line ends precede the start line; waitress ignores all white space there."""
        begin = self.header_plus + data if self.header_plus else data
        rest = begin.lstrip()
        self.has_begun = bool(rest)
        before = begin[: len(begin) - len(rest)].replace(b"\r\n", b"")
        return not before or (before == b"\r" and not rest)
