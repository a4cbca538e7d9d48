"""An assistant: a server that speaks the OpenAI chat-completions form, asked over HTTP. No database here.

Whatever that server does, asking it ends within PATIENCE and reads no more than LARGEST bytes. Where it is, only the
operator says: redirects are not followed, and proxies of the environment are not used.
"""

import email.utils
import http.client
import io
import socket
import ssl
import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from service import clock

CONNECT = 5.0  # seconds until a connection is there
PATIENCE = 30.0  # seconds for everything
LARGEST = 256 * 1024  # bytes of an answer, its head included
LONGEST = 10_000  # characters of what it says
ENDING = "/chat/completions"
BUSY = (408, 425, 429)  # of 4xx: the same request may be answered later


class NoAnswer(Exception):
    """The assistant did not answer; the text holds nothing that anybody wrote, and may be logged.

    `is_final` if it would not answer the same question later; else `after` so many milliseconds at the earliest.
    """

    def __init__(self, reason: str, *, is_final: bool = False, after: int = 0) -> None:
        super().__init__(reason)
        self.is_final, self.after = is_final, after


class _Said(Struct):
    content: str


class _Choice(Struct):
    message: _Said


class _Completion(Struct):
    choices: Annotated[list[_Choice], Meta(min_length=1)]


class Assistant:
    """The assistant at an address, with or without `/chat/completions` at its end. Raises ValueError for no address."""

    def __init__(self, url: str, model: str = "", key: str = "") -> None:
        fault = "the address of the assistant must be like https://ai.example/v1"
        try:
            parts = urlsplit(url)
            port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        except (ValueError, KeyError):
            raise ValueError(fault) from None
        beyond = parts.query or parts.fragment or parts.username is not None or parts.password is not None
        if not parts.hostname or beyond or not _is_plain(url):
            raise ValueError(fault)
        if not _is_plain(key):
            raise ValueError("the key of the assistant must be of ASCII characters without blanks")
        self._host, self._port, self._model = parts.hostname, port, model
        self._path = f"{parts.path.rstrip('/').removesuffix(ENDING)}{ENDING}"
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "cx-service"}
        self._headers |= {"Authorization": f"Bearer {key}"} if key else {}

    def answer(self, messages: Sequence[dict[str, str]]) -> str:
        """What the assistant says to messages, each with a `role` and a `content`. Raises NoAnswer."""
        asked = {"messages": messages} | ({"model": self._model} if self._model else {})
        try:
            return _text_in(self._ask(msgspec.json.encode(asked)))
        except TimeoutError:
            raise NoAnswer("it took too long") from None
        except (OSError, ValueError, http.client.HTTPException) as error:  # of the last, the text may be the server's
            raise NoAnswer((isinstance(error, OSError) and error.strerror) or type(error).__name__) from None

    def _ask(self, content: bytes) -> bytes:
        end = time.monotonic() + PATIENCE
        connection = self._connection()
        connection.response_class = partial(_response, end)  # type: ignore[assignment]
        try:
            connection.connect()
            connection.sock.settimeout(PATIENCE - CONNECT)
            connection.request("POST", self._path, content, self._headers | {"Connection": "close"})
            with connection.getresponse() as response:
                if response.status != 200:
                    raise _refused(response)
                return response.read(LARGEST)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls:
            return http.client.HTTPSConnection(self._host, self._port, timeout=CONNECT, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=CONNECT)


class _Wire(io.RawIOBase):
    """What a socket receives until a moment; the time-out of the socket alone would begin anew with every byte."""

    def __init__(self, end: float, sock: socket.socket) -> None:
        self._end, self._sock, self._left = end, sock, LARGEST
        self._raw = sock.makefile("rb", buffering=0)

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        if not self._left:
            raise NoAnswer(f"it sent more than {LARGEST} bytes")
        self._sock.settimeout(seconds)
        count = self._raw.readinto(memoryview(buffer)[: self._left])
        self._left -= count or 0
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def _response(end: float, sock: socket.socket, **more: Any) -> http.client.HTTPResponse:
    return http.client.HTTPResponse(_Wire(end, sock), **more)  # type: ignore[arg-type]


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _refused(response: http.client.HTTPResponse) -> NoAnswer:
    is_final = response.status < 500 and response.status not in BUSY
    return NoAnswer(f"status {response.status}", is_final=is_final, after=_pause(response.headers))


def _pause(headers: Any) -> int:
    """The milliseconds that a Retry-After asks for (RFC 9110, section 10.2.3); 0 if it is not understood."""
    given = headers.get("Retry-After", "").strip()
    if given.isascii() and given.isdecimal() and len(given) < 7:
        return int(given) * clock.SECOND
    try:
        moment = email.utils.parsedate_to_datetime(given)
        return max(0, int(moment.timestamp() * 1000) - clock.now())
    except (ValueError, OverflowError):
        return 0


def _text_in(body: bytes) -> str:
    """What a completion says. Raises NoAnswer."""
    try:
        said = msgspec.json.decode(body, type=_Completion).choices[0].message.content
    except (msgspec.DecodeError, ValueError, RecursionError):  # the second of what is no UTF-8
        raise NoAnswer("what it sent is no chat completion") from None
    text = said.replace("\0", "").strip()
    if not text:
        raise NoAnswer("it said nothing")
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def instructions(name: str, app: str, about: Sequence[str], languages: Sequence[str]) -> str:
    """What an assistant is told before the messages: for whom it speaks, and in which languages, the dearest first."""
    told = [f"You are {' of '.join(filter(None, (name or 'the bot', app)))}, and talk with a customer in a chat."]
    told += [text.strip() for text in about]
    if languages:
        told.append(f"Answer in the language {languages[0]} (a BCP 47 tag), whatever the language of the messages.")
        told += [f"If you do not speak it, answer in {' or '.join(languages[1:])}."] * (len(languages) > 1)
    else:
        told.append("Answer in the language of the customer.")
    return "\n".join(filter(None, told))
