"""The client of the assistant: a server with the OpenAI chat-completions API. It does not use the database.

A request ends within TIMEOUT, and reads at most MAX_BYTES of the response. Only the operator chooses the server.
"""

import time
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

from service.http_client import TEMPORARY_STATUSES, HttpServer, Limits, RequestError, is_printable, retry_after

CONNECT_TIMEOUT = 5.0  # seconds
TIMEOUT = 30.0  # seconds, for the whole request
MAX_BYTES = 256 * 1024  # of a response, including its header
MAX_CHARACTERS = 10_000  # of a reply
MAX_TOKENS = 10_000_000  # of a request; a higher number in a response is wrong
BYTES_PER_TOKEN = 4  # estimated, if the response has no number
ENDPOINT = "/chat/completions"
CALL_PERSON = "call_person"  # the name of the function that the assistant may call
TOOLS = (
    {
        "type": "function",
        "function": {
            "name": CALL_PERSON,
            "description": "Calls a member of staff into this chat, who then replies in your place. Call it if the"
            " customer asks for a person, or if you cannot help. Before it, tell the customer in one sentence.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
)
REFUSING_TOOLS = (400, 422, 500, 501)  # the statuses of servers, or models, that have no functions


class AssistantError(Exception):
    """The assistant has not sent a reply. The text contains no user content, and may be logged.

    `is_final`: the same request would fail again. Otherwise `after` is the minimum time until a retry, in milliseconds.
    `tokens` were used nevertheless.
    """

    def __init__(
        self, reason: str, *, is_final: bool = False, after: int = 0, status: int = 0, tokens: int = 0
    ) -> None:
        super().__init__(reason)
        self.is_final, self.after, self.status, self.tokens = is_final, after, status, tokens


class Completion(NamedTuple):
    """The reply of the assistant, and the tokens of the request and the reply.

    The text may be empty if the assistant calls a person.
    """

    text: str
    calls_person: bool = False
    tokens: int = 0


class _Function(Struct):
    name: str


class _ToolCall(Struct):
    function: _Function


class _Message(Struct):
    content: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(Struct):
    message: _Message


class _Completion(Struct):
    choices: Annotated[list[_Choice], Meta(min_length=1)]


class _Usage(Struct):
    total_tokens: Annotated[int, Meta(gt=0, le=MAX_TOKENS)]


class _Used(Struct):
    usage: _Usage


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

    def complete(
        self, messages: Sequence[dict[str, str]], *, may_call_person: bool = False, timeout: float | None = None
    ) -> Completion:
        """Returns the reply to messages, each with a `role` and a `content`. Raises AssistantError.

        If the server refuses the function by which the assistant calls a person, the request is repeated without it.
        """
        request: dict[str, object] = {"messages": messages} | ({"model": self._model} if self._model else {})
        end_by = time.monotonic() + (timeout or TIMEOUT)
        if may_call_person:
            try:
                return self._request(request | {"tools": TOOLS}, end_by, may_call_person=True)
            except AssistantError as error:
                if error.status not in REFUSING_TOOLS:
                    raise
        return self._request(request, end_by)

    def _request(self, request: dict[str, object], end_by: float, *, may_call_person: bool = False) -> Completion:
        content = msgspec.json.encode(request)
        body = self._post(content, end_by)
        tokens = _tokens_in(body) or (len(content) + len(body)) // BYTES_PER_TOKEN
        try:
            return _completion_in(body, may_call_person=may_call_person)._replace(tokens=tokens)
        except AssistantError as error:
            error.tokens = tokens
            raise

    def _post(self, content: bytes, end_by: float) -> bytes:
        limits = Limits(connect=CONNECT_TIMEOUT, total=end_by - time.monotonic(), max_bytes=MAX_BYTES)
        try:
            with self._server.post(self._path, content, self._headers, limits) as response:
                if response.status != 200:
                    reason, after = f"status {response.status}", retry_after(response)
                    is_final = response.status < 500 and response.status not in TEMPORARY_STATUSES
                    raise AssistantError(reason, is_final=is_final, after=after, status=response.status)
                return response.read(MAX_BYTES)
        except RequestError as error:
            raise AssistantError(str(error)) from None


def _tokens_in(body: bytes) -> int:
    """Returns the number of tokens that a response states; 0 without a plausible one."""
    try:
        return msgspec.json.decode(body, type=_Used).usage.total_tokens
    except (msgspec.DecodeError, ValueError, RecursionError):
        return 0


def _completion_in(body: bytes, *, may_call_person: bool = False) -> Completion:
    """Returns the reply in the body of a response. Raises AssistantError."""
    try:
        message = msgspec.json.decode(body, type=_Completion).choices[0].message
    except (msgspec.DecodeError, ValueError, RecursionError):  # ValueError if the body is not UTF-8
        raise AssistantError("the response is not a chat completion") from None
    calls_person = may_call_person and any(call.function.name == CALL_PERSON for call in message.tool_calls or ())
    if message.content is None and not calls_person:
        raise AssistantError("the response is not a chat completion")
    text = (message.content or "").replace("\0", "").strip()
    if not text and not calls_person:
        raise AssistantError("the reply is empty")
    return Completion(text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…", calls_person)
