"""The client of the assistant: a server with the OpenAI chat-completions API. It does not use the database.

A request ends within TIMEOUT, and reads at most MAX_BYTES of the response. Only the operator chooses the server.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from service.http_client import TEMPORARY_STATUSES, HttpServer, Limits, RequestError, is_printable, retry_after

CONNECT_TIMEOUT = 5.0  # seconds
TIMEOUT = 30.0  # seconds, for the whole request
MAX_BYTES = 256 * 1024  # of a response, including its header
MAX_CHARACTERS = 10_000  # of a reply
ENDPOINT = "/chat/completions"


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
        try:
            self._server = HttpServer(url)
        except ValueError:
            raise ValueError("the URL of the assistant must have the form https://ai.example/v1") from None
        if not is_printable(key):
            raise ValueError("the key of the assistant must consist of printable ASCII characters without spaces")
        self._model = model
        self._path = f"{self._server.path.rstrip('/').removesuffix(ENDPOINT)}{ENDPOINT}"
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        self._headers |= {"Authorization": f"Bearer {key}"} if key else {}

    def complete(self, messages: Sequence[dict[str, str]]) -> str:
        """Returns the reply to messages, each with a `role` and a `content`. Raises AssistantError."""
        request = {"messages": messages} | ({"model": self._model} if self._model else {})
        try:
            return _reply_in(self._post(msgspec.json.encode(request)))
        except RequestError as error:
            raise AssistantError(str(error)) from None

    def _post(self, content: bytes) -> bytes:
        limits = Limits(connect=CONNECT_TIMEOUT, total=TIMEOUT, max_bytes=MAX_BYTES)
        with self._server.post(self._path, content, self._headers, limits) as response:
            if response.status != 200:
                is_final = response.status < 500 and response.status not in TEMPORARY_STATUSES
                raise AssistantError(f"status {response.status}", is_final=is_final, after=retry_after(response))
            return response.read(MAX_BYTES)


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
