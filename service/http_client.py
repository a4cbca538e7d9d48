"""Requests to servers that the operator names. They are bounded in time and size, whatever the server does.

Redirects are not followed, and proxy settings of the environment are ignored. Only the resolver of the host, which
looks up names, has a time limit of its own.
"""

import contextlib
import email.utils
import functools
import http.client
import io
import ipaddress
import select
import socket
import ssl
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from service import clock

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

TEMPORARY_STATUSES = (408, 425, 429)  # of 4xx: the same request may succeed later
KEEP_TIME = 1.0  # seconds for which a connection may be idle; servers keep them for longer, most for 5 s and more
REST_TIMEOUT = 0.05  # seconds for the rest of a response, without which its connection is not kept
REST_BYTES = 4096  # of the rest
_PORTS = {"http": 80, "https": 443}


class RequestError(Exception):
    """No response, or one that is too large. The text contains no part of it, and may be logged."""


class Limits:
    """The limits of a request: seconds to connect and in total, and bytes of the response, including its header."""

    def __init__(self, *, connect: float, total: float, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.connect_by = time.monotonic() + connect
        self.end_by = time.monotonic() + total


class HttpServer:
    """A server, and a path on it. Raises ValueError without a text for an invalid URL.

    With `allow_plain` False, `http` is for loopback and private addresses only, and with `plain_on_loopback` for
    loopback addresses only; all others need TLS.

    With `keeps_connection`, requests of one thread share a connection as long as they follow each other at once; it is
    closed by `close`.
    """

    def __init__(
        self,
        url: str,
        *,
        allow_query: bool = False,
        allow_plain: bool = True,
        plain_on_loopback: bool = False,
        keeps_connection: bool = False,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname or not is_printable(url):
            raise ValueError
        if "@" in parts.netloc or parts.fragment or (parts.query and not allow_query):
            raise ValueError
        self.path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        self._address = parts.hostname, parts.port or _PORTS[parts.scheme]
        self._headers = {"Host": parts.netloc, "User-Agent": "cx-service"}
        self._keeps_connection, self._kept_until = keeps_connection, 0.0
        self._kept: http.client.HTTPConnection | None = None
        if not keeps_connection:
            self._headers["Connection"] = "close"
        self._has_tls = parts.scheme == "https"
        self._needs_tls = _is_remote if plain_on_loopback else _never if allow_plain else _is_public
        if self._has_tls:
            self._needs_tls = _never
        if self._needs_tls(parts.hostname):
            raise ValueError

    @functools.cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()  # reads all certificates of the host, which takes a while

    def post(
        self, path: str, content: bytes, headers: dict[str, str], limits: Limits
    ) -> contextlib.AbstractContextManager[http.client.HTTPResponse]:
        """Send a POST request, as `request`."""
        return self.request("POST", path, content, headers, limits)

    @contextlib.contextmanager
    def request(
        self, method: str, path: str, content: bytes, headers: dict[str, str], limits: Limits
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request. The response is open during the block. Raises RequestError, also while it is read.

        If the server has closed a kept connection in place of a response, the request is sent again on a new one.
        """
        message = method, path or "/", content, self._headers | headers
        connection = self._take_kept() or http.client.HTTPConnection(*self._address)
        is_new = connection.sock is None
        try:
            try:
                response = self._exchange(connection, message, limits)
            except ConnectionError:
                if is_new:
                    raise
                connection.close()
                response = self._exchange(connection, message, limits)
            with response:
                yield response
                if self._keeps_connection and _is_complete(response, limits):
                    self._kept, self._kept_until = connection, time.monotonic() + KEEP_TIME
        except TimeoutError:
            raise RequestError("timeout") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            # The texts of the other errors may contain parts of the response.
            raise RequestError((isinstance(error, OSError) and error.strerror) or type(error).__name__) from None
        finally:
            if connection is not self._kept:
                connection.close()

    def _exchange(
        self, connection: http.client.HTTPConnection, message: tuple[str, str, bytes, dict[str, str]], limits: Limits
    ) -> http.client.HTTPResponse:
        """Send a request, on a new connection unless it is open. Returns the response after its header."""
        connection.response_class = partial(_response, limits)  # type: ignore[assignment]
        if connection.sock is None:
            connection.sock = self._connect(limits)
        connection.sock.settimeout(_seconds_until(limits.end_by))
        connection.request(*message)
        return connection.getresponse()

    def close(self) -> None:
        """Close the connection that is kept for the next request."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _take_kept(self) -> http.client.HTTPConnection | None:
        """Return the kept connection, unless it was idle for long, or the server has closed it or sent anything."""
        found = self._kept
        if found is not None and (time.monotonic() > self._kept_until or _has_input(found.sock)):
            self.close()
        found, self._kept = self._kept, None
        return found

    def _connect(self, limits: Limits) -> socket.socket:
        """Return a socket that is connected to the first of the addresses that accepts; with TLS, after its handshake.

        All addresses share the time limit.
        """
        found, failure = socket.getaddrinfo(*self._address, type=socket.SOCK_STREAM), OSError("no address")
        for number, (family, kind, protocol, _, address) in enumerate(found):
            if self._needs_tls(str(address[0])):
                kind_of_address = "loopback" if self._needs_tls is _is_remote else "private"
                raise RequestError(f"http:// is for {kind_of_address} addresses only")
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(_seconds_until(limits.connect_by) / (len(found) - number))
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.settimeout(_seconds_until(limits.connect_by))
                return self._tls.wrap_socket(sock, server_hostname=self._address[0]) if self._has_tls else sock
            except OSError as error:
                sock.close()
                failure = error
        raise failure


class _DeadlineReader(io.RawIOBase):
    """The received bytes of a socket until a deadline. The timeout of a socket alone would restart with every byte."""

    def __init__(self, limits: Limits, sock: socket.socket) -> None:
        self._limits, self._sock, self._left = limits, sock, limits.max_bytes
        self._raw = sock.makefile("rb", buffering=0)

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int | None:
        seconds = _seconds_until(self._limits.end_by)
        if not self._left:
            raise RequestError(f"the response is larger than {self._limits.max_bytes} bytes")
        self._sock.settimeout(seconds)
        count = self._raw.readinto(memoryview(buffer)[: self._left])
        self._left -= count or 0
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def _is_complete(response: http.client.HTTPResponse, limits: Limits) -> bool:
    """Read the rest of a response, if it is short and arrives at once. Return whether its connection can be kept."""
    limits.end_by = min(limits.end_by, time.monotonic() + REST_TIMEOUT)
    try:
        response.read(REST_BYTES)
    except (RequestError, OSError, ValueError, http.client.HTTPException):
        return False
    # Some servers send a body with status 204, which would be taken for the next response.
    has_hidden_body = response.status == 204 and response.headers.get("Content-Length", "0") != "0"
    return response.isclosed() and not response.will_close and not has_hidden_body


def _has_input(sock: socket.socket) -> bool:
    """Return whether there is something to read from a socket, also the end of its connection."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _response(limits: Limits, sock: socket.socket, **options: object) -> http.client.HTTPResponse:
    return http.client.HTTPResponse(_DeadlineReader(limits, sock), **options)  # type: ignore[arg-type]


def _seconds_until(deadline: float) -> float:
    """Return the seconds that are left. Raises TimeoutError at the deadline, because no timeout at all is 0."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def _never(_: str) -> bool:
    return False


def _is_public(host: str) -> bool:
    """Return whether a host is a public address. Of a name, the addresses are checked at each request."""
    found = _address(host)
    return found is not None and found.is_global


def _is_remote(host: str) -> bool:
    """Return whether a host is an address of another host, as `_is_public`."""
    found = _address(host)
    return found is not None and not found.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def is_printable(text: str) -> bool:
    """Return whether a text may be a URL or the value of a header: ASCII without spaces and control characters."""
    return text.isascii() and text.isprintable() and " " not in text


def retry_after(response: http.client.HTTPResponse) -> int:
    """Return the milliseconds of a Retry-After header (RFC 9110, section 10.2.3); 0 if it is missing or invalid."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdecimal() and len(value) < 7:
        return int(value) * clock.SECOND
    try:
        moment = email.utils.parsedate_to_datetime(value)
        return max(0, int(moment.timestamp() * 1000) - clock.now())
    except (ValueError, OverflowError):
        return 0
