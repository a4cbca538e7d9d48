"""The client of the assistant: a server with the OpenAI chat-completions API. It does not use the database.

A request ends within TIMEOUT, and reads at most MAX_BYTES of the response. Only the operator chooses the server.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from http.client import HTTPResponse
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Struct

from service.http_client import TEMPORARY_STATUSES, HttpServer, Limits, RequestError, is_printable, retry_after

CONNECT_TIMEOUT = 5.0  # seconds
TIMEOUT = 30.0  # seconds, for the whole request
MAX_BYTES = 256 * 1024  # of a response, including its header
MAX_STREAM_BYTES = 4 * 1024 * 1024  # of a response in pieces, each of which repeats what is known of the response
MAX_LINE = 64 * 1024  # bytes of a piece
STREAM: dict[str, object] = {"stream": True, "stream_options": {"include_usage": True}}
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
REFUSING = (400, 422, 500, 501)  # the statuses of servers, or models, that have no functions or do not stream
REFUSING_FINALLY = (400, 422, 501)  # those of REFUSING that an overloaded server does not send


TextReader = Callable[[str], None]


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

    The text may be empty if the assistant calls a person, or another function: `call` is its name and its arguments.
    """

    text: str
    calls_person: bool = False
    tokens: int = 0
    call: tuple[str, str] | None = None


class _Function(Struct):
    name: str
    arguments: str = ""


class _ToolCall(Struct):
    function: _Function


class _FunctionPiece(Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCallPiece(Struct):
    function: _FunctionPiece | None = None
    index: int = 0


class _Message(Struct):
    content: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(Struct):
    message: _Message


class _Completion(Struct):
    choices: Annotated[list[_Choice], Meta(min_length=1)]


class _Delta(Struct):
    content: str | None = None
    tool_calls: list[_ToolCallPiece] | None = None


class _ChoicePiece(Struct):
    delta: _Delta | None = None
    index: int = 0
    finish_reason: str | None = None


class _Piece(Struct):
    choices: list[_ChoicePiece]


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
        self._model, self._streams = model, True
        self._path = f"{self._server.path.rstrip('/').removesuffix(ENDPOINT)}{ENDPOINT}"
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        self._headers |= {"Authorization": f"Bearer {key}"} if key else {}

    def complete(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        may_call_person: bool = False,
        timeout: float | None = None,
        functions: Sequence[Mapping[str, object]] = (),
        on_text: TextReader | None = None,
    ) -> Completion:
        """Return the reply to messages, each with a `role` and a `content`. Raises AssistantError.

        `functions` are those that the assistant may call beside the one that calls a person. With `on_text`, the reply
        is requested in pieces, and this is called with the text so far. If the server refuses functions, the request is
        repeated without them; if it refuses pieces, without these, and no more are requested.
        """
        request: dict[str, object] = {"messages": messages} | ({"model": self._model} if self._model else {})
        end_by = time.monotonic() + (timeout or TIMEOUT)
        streamed = STREAM if on_text and self._streams else {}
        tools: dict[str, object] = {"tools": [*TOOLS, *functions]} if may_call_person else {}
        variants: list[dict[str, object]] = [*filter(None, (streamed | tools, streamed)), tools, {}]
        variants = [options for number, options in enumerate(variants) if options not in variants[:number]]
        status = 0
        for options in variants:
            try:
                found = self._request(request | options, end_by, on_text)
            except AssistantError as error:
                status = error.status
                if status not in REFUSING or not options:
                    raise
            else:
                self._streams &= not streamed or "stream" in options or status not in REFUSING_FINALLY
                return found
        raise AssertionError("unreachable")

    def _request(self, request: dict[str, Any], end_by: float, on_text: TextReader | None) -> Completion:
        content = msgspec.json.encode(request)
        functions = {tool["function"]["name"] for tool in request.get("tools", ())}
        received = _Received(on_text)
        try:
            body = self._post(content, end_by, received)
            if received.is_stream:
                return received.completion(functions)._replace(tokens=received.tokens(content))
        except AssistantError as error:
            error.tokens = received.tokens(content) if received.is_stream else 0
            raise
        tokens = _tokens_in(body) or (len(content) + len(body)) // BYTES_PER_TOKEN
        try:
            return _completion_in(body, functions)._replace(tokens=tokens)
        except AssistantError as error:
            error.tokens = tokens
            raise

    def _post(self, content: bytes, end_by: float, received: "_Received") -> bytes:
        """Return the body of the response; empty if it was `received` in pieces."""
        max_bytes = MAX_STREAM_BYTES if received.on_text else MAX_BYTES
        limits = Limits(connect=CONNECT_TIMEOUT, total=end_by - time.monotonic(), max_bytes=max_bytes)
        try:
            with self._server.post(self._path, content, self._headers, limits) as response:
                if response.status != 200:
                    reason, after = f"status {response.status}", retry_after(response)
                    is_final = response.status < 500 and response.status not in TEMPORARY_STATUSES
                    raise AssistantError(reason, is_final=is_final, after=after, status=response.status)
                if received.on_text and response.headers.get_content_type() == "text/event-stream":
                    received.read(response)
                    return b""
                return response.read(MAX_BYTES)
        except RequestError as error:
            raise AssistantError(str(error)) from None


class _Received:
    """A response that arrives in pieces: server-sent events, each with one JSON object in a line of its own."""

    def __init__(self, on_text: TextReader | None) -> None:
        self.on_text = on_text
        self.is_stream = False
        self._text = ""
        self._size = self._tokens = 0
        self._is_over = False
        self._calls: dict[int, _Function] = {}

    def read(self, response: HTTPResponse) -> None:
        """Read the pieces to the end of the first reply. Raises AssistantError if there is no end."""
        self.is_stream = True
        while line := response.readline(MAX_LINE):
            self._size += len(line)
            if not line.endswith(b"\n"):
                break
            name, _, data = line.strip().partition(b":")
            if name != b"data":
                continue
            if data.strip() == b"[DONE]":
                self._is_over = True
                return
            self._add(data)
            if len(self._text) > MAX_CHARACTERS:
                self._is_over = True
                return
        if not self._is_over:
            raise AssistantError("the stream of the response was cut")

    def _add(self, data: bytes) -> None:
        """Add a piece. Of other choices than the first, and after its end, only the number of tokens is used."""
        self._tokens = _tokens_in(data) or self._tokens
        try:
            choices = msgspec.json.decode(data, type=_Piece).choices
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise AssistantError("the response is not a chat completion") from None
        for choice in choices:
            if choice.index or self._is_over:
                continue
            self._is_over = choice.finish_reason is not None
            delta = choice.delta or _Delta()
            for call in delta.tool_calls or ():
                piece, function = call.function or _FunctionPiece(), self._calls.setdefault(call.index, _Function(""))
                function.name += piece.name or ""
                function.arguments += piece.arguments or ""
            if delta.content:
                self._text += delta.content.replace("\0", "")
                if self.on_text and self._text.strip():
                    self.on_text(_limited(self._text.strip()))

    def tokens(self, content: bytes) -> int:
        """Return the tokens of a request with this content."""
        return self._tokens or (len(content) + self._size) // BYTES_PER_TOKEN

    def completion(self, functions: Set[str]) -> Completion:
        """Return the reply, in which some functions may be called. Raises AssistantError."""
        return _completion(self._text, self._calls.values(), functions)


def _tokens_in(body: bytes) -> int:
    """Return the number of tokens that a response states; 0 without a plausible one."""
    try:
        return msgspec.json.decode(body, type=_Used).usage.total_tokens
    except (msgspec.DecodeError, ValueError, RecursionError):
        return 0


def _completion_in(body: bytes, functions: Set[str] = frozenset()) -> Completion:
    """Return the reply in the body of a response, in which some functions may be called. Raises AssistantError."""
    try:
        message = msgspec.json.decode(body, type=_Completion).choices[0].message
    except (msgspec.DecodeError, ValueError, RecursionError):  # ValueError if the body is not UTF-8
        raise AssistantError("the response is not a chat completion") from None
    return _completion(message.content, [call.function for call in message.tool_calls or ()], functions)


def _completion(content: str | None, calls: Iterable[_Function], functions: Set[str]) -> Completion:
    called = [(call.name, call.arguments) for call in calls if call.name in functions]
    if content is None and not called:
        raise AssistantError("the response is not a chat completion")
    text = (content or "").replace("\0", "").strip()
    if not text and not called:
        raise AssistantError("the reply is empty")
    calls_person = any(name == CALL_PERSON for name, _ in called)
    return Completion(_limited(text), calls_person, call=None if calls_person or not called else called[0])


def _limited(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
