"""The client of the assistant: a server with the OpenAI chat-completions API. It does not use the database.

A request ends within TIMEOUT, and reads at most MAX_BYTES of the response. Only the operator chooses the server:
redirects are not followed, and proxy settings of the environment are ignored.
"""

import email.utils
import http.client
import io
import socket
import ssl
import time
from collections.abc import Sequence
from email.message import Message
from functools import partial
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from service import clock

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CONNECT_TIMEOUT = 5.0  # seconds
TIMEOUT = 30.0  # seconds, for the whole request
MAX_BYTES = 256 * 1024  # of a response, including its header
MAX_CHARACTERS = 10_000  # of a reply
ENDPOINT = "/chat/completions"
TEMPORARY_STATUSES = (408, 425, 429)  # of 4xx: the same request may succeed later


class AssistantError(Exception):
    """The assistant has not sent a reply. The text contains no user content, and may be logged.

    `is_final`: the same request would fail again. Otherwise `after` is the minimum time until a retry, in milliseconds.
    """

    def __init__(self, reason: str, *, is_final: bool = False, after: int = 0) -> None:
        super().__init__(reason)
        self.is_final, self.after = is_final, after


class _Message(Struct):
    content: str


class _Choice(Struct):
    message: _Message


class _Completion(Struct):
    choices: Annotated[list[_Choice], Meta(min_length=1)]


class Assistant:
    """The assistant at a URL, with or without `/chat/completions` at the end. Raises ValueError for an invalid URL."""

    def __init__(self, url: str, model: str = "", key: str = "") -> None:
        invalid = "the URL of the assistant must have the form https://ai.example/v1"
        try:
            parts = urlsplit(url)
            port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        except (ValueError, KeyError):
            raise ValueError(invalid) from None
        has_more = parts.query or parts.fragment or parts.username is not None or parts.password is not None
        if not parts.hostname or has_more or not _is_printable(url):
            raise ValueError(invalid)
        if not _is_printable(key):
            raise ValueError("the key of the assistant must consist of printable ASCII characters without spaces")
        self._host, self._port, self._model = parts.hostname, port, model
        self._path = f"{parts.path.rstrip('/').removesuffix(ENDPOINT)}{ENDPOINT}"
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "cx-service"}
        self._headers |= {"Authorization": f"Bearer {key}"} if key else {}

    def complete(self, messages: Sequence[dict[str, str]]) -> str:
        """Returns the reply to messages, each with a `role` and a `content`. Raises AssistantError."""
        request = {"messages": messages} | ({"model": self._model} if self._model else {})
        try:
            return _reply_in(self._post(msgspec.json.encode(request)))
        except TimeoutError:
            raise AssistantError("timeout") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            # The texts of the other errors may contain parts of the response.
            raise AssistantError((isinstance(error, OSError) and error.strerror) or type(error).__name__) from None

    def _post(self, content: bytes) -> bytes:
        deadline = time.monotonic() + TIMEOUT
        connection = self._connection()
        connection.response_class = partial(_response, deadline)  # type: ignore[assignment]
        try:
            connection.connect()
            connection.sock.settimeout(TIMEOUT - CONNECT_TIMEOUT)
            connection.request("POST", self._path, content, self._headers | {"Connection": "close"})
            with connection.getresponse() as response:
                if response.status != 200:
                    raise _status_error(response)
                return response.read(MAX_BYTES)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls:
            return http.client.HTTPSConnection(self._host, self._port, timeout=CONNECT_TIMEOUT, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_TIMEOUT)


class _DeadlineReader(io.RawIOBase):
    """The received bytes of a socket until a deadline. The timeout of a socket alone would restart with every byte."""

    def __init__(self, deadline: float, sock: socket.socket) -> None:
        self._deadline, self._sock, self._left = deadline, sock, MAX_BYTES
        self._raw = sock.makefile("rb", buffering=0)

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int | None:
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        if not self._left:
            raise AssistantError(f"the response is larger than {MAX_BYTES} bytes")
        self._sock.settimeout(seconds)
        count = self._raw.readinto(memoryview(buffer)[: self._left])
        self._left -= count or 0
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def _response(deadline: float, sock: socket.socket, **options: object) -> http.client.HTTPResponse:
    return http.client.HTTPResponse(_DeadlineReader(deadline, sock), **options)  # type: ignore[arg-type]


def _is_printable(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _status_error(response: http.client.HTTPResponse) -> AssistantError:
    is_final = response.status < 500 and response.status not in TEMPORARY_STATUSES
    return AssistantError(f"status {response.status}", is_final=is_final, after=_retry_after(response.headers))


def _retry_after(headers: Message) -> int:
    """Returns the milliseconds of a Retry-After header (RFC 9110, section 10.2.3); 0 if it is missing or invalid."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdecimal() and len(value) < 7:
        return int(value) * clock.SECOND
    try:
        moment = email.utils.parsedate_to_datetime(value)
        return max(0, int(moment.timestamp() * 1000) - clock.now())
    except (ValueError, OverflowError):
        return 0


def _reply_in(body: bytes) -> str:
    """Returns the text of a chat completion. Raises AssistantError."""
    try:
        content = msgspec.json.decode(body, type=_Completion).choices[0].message.content
    except (msgspec.DecodeError, ValueError, RecursionError):  # ValueError if the body is not UTF-8
        raise AssistantError("the response is not a chat completion") from None
    text = content.replace("\0", "").strip()
    if not text:
        raise AssistantError("the reply is empty")
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"


def instructions(name: str, app: str, about: Sequence[str], languages: Sequence[str]) -> str:
    """Returns the system message: the bot, its app, its profile, and the languages of the customer, preferred first."""
    lines = [f"You are {' of '.join(filter(None, (name or 'the bot', app)))}, and talk with a customer in a chat."]
    lines += [text.strip() for text in about]
    if languages:
        lines.append(f"Answer in the language {languages[0]} (a BCP 47 tag), whatever the language of the messages.")
        lines += [f"If you do not speak it, answer in {' or '.join(languages[1:])}."] * (len(languages) > 1)
    else:
        lines.append("Answer in the language of the customer.")
    return "\n".join(filter(None, lines))
