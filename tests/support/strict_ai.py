"""A strict assistant: a second stand-in for the protocol, which shares no code with `fake_ai`.

It accepts only requests that the reference of the chat completions API allows, with alternating roles as the templates
of many models require, and it counts tokens. Its model reads the canned answers in its instructions, and calls the
first function that is offered if the customer mentions a refund.
"""

import contextlib
import json
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from waitress.server import create_server

StartResponse = Callable[[str, list[tuple[str, str]]], object]

Name = Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}$")]


class Parameters(Struct, forbid_unknown_fields=True):
    type: Literal["object"]
    properties: dict[str, Any]


class Function(Struct, forbid_unknown_fields=True):
    name: Name
    description: Annotated[str, Meta(max_length=1024)]
    parameters: Parameters


class Tool(Struct, forbid_unknown_fields=True):
    type: Literal["function"]
    function: Function


class ChatMessage(Struct, forbid_unknown_fields=True):
    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Meta(min_length=1)]


class StreamOptions(Struct, forbid_unknown_fields=True):
    include_usage: bool


class ChatRequest(Struct, forbid_unknown_fields=True):
    model: Literal["strict-1"]
    messages: Annotated[list[ChatMessage], Meta(min_length=2)]
    tools: Annotated[list[Tool], Meta(min_length=1)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None


class StrictServer:
    """The application, with the key that it expects, and whether its model has functions, and it streams."""

    def __init__(self, *, has_functions: bool = True, has_streams: bool = True) -> None:
        self.key, self.has_functions, self.has_streams = "sk-strict", has_functions, has_streams
        self.url = ""
        self.tokens = 0  # of all completions
        self.refusals: list[str] = []

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        try:
            status, body = "200 OK", self.complete(environ)
        except (PermissionError, ValueError) as error:
            self.refusals.append(str(error))
            status = "401 Unauthorized" if isinstance(error, PermissionError) else "400 Bad Request"
            body = {"error": {"message": str(error), "type": "invalid_request_error", "param": None, "code": None}}
        if isinstance(body, list):
            start_response(status, [("Content-Type", "text/event-stream")])
            return body
        start_response(status, [("Content-Type", "application/json")])
        content = json.dumps(body, ensure_ascii=False).encode()
        return [content[:7], content[7:]]  # without a length, the response is chunked

    def complete(self, environ: dict[str, Any]) -> Any:
        """Return a completion, or its events. Raises ValueError or PermissionError for an invalid request."""
        if (environ["REQUEST_METHOD"], environ["PATH_INFO"]) != ("POST", "/v1/chat/completions"):
            raise ValueError("unknown path")
        if environ.get("HTTP_AUTHORIZATION") != f"Bearer {self.key}":
            raise PermissionError("wrong key")
        if environ.get("CONTENT_TYPE") != "application/json":
            raise ValueError("wrong content type")
        request = msgspec.json.decode(environ["wsgi.input"].read(), type=ChatRequest)
        roles = [message.role for message in request.messages]
        expected = ["system", *(("user", "assistant") * len(roles))[: len(roles) - 1]]
        if roles != expected or roles[-1] != "user":
            raise ValueError("roles must alternate, from the user to the user")
        if request.tools and not self.has_functions:
            raise ValueError("this model does not support tools")
        if request.stream and not self.has_streams:
            raise ValueError("this server does not support stream")
        if request.stream_options and not request.stream:
            raise ValueError("stream_options without stream")
        message, finish_reason = self.reply(request)
        used = [len(text.split()) for text in (environ["CONTENT_TYPE"], *(one.content for one in request.messages))]
        usage = {"prompt_tokens": sum(used), "completion_tokens": 8, "total_tokens": sum(used) + 8}
        self.tokens += usage["total_tokens"]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
        about = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": request.model}
        if request.stream:
            return list(self.events(about, message, finish_reason, usage if request.stream_options else None))
        return {**about, "choices": [choice], "usage": usage, "system_fingerprint": "fp"}

    def events(
        self, about: dict[str, Any], message: dict[str, Any], finish_reason: str, usage: dict[str, int] | None
    ) -> Iterator[bytes]:
        """Yield the parts of a stream, none of which is a whole event."""
        calls = [{"index": 0, **call} for call in message.get("tool_calls", ())]
        words = re.findall(r"\S+\s*", message["content"] or "")
        deltas = [{"role": "assistant", "content": ""}, *({"content": word} for word in words)]
        deltas += [{"tool_calls": calls}] if calls else []
        pieces: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}], "usage": None} for delta in deltas
        ]
        pieces.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}], "usage": None})
        pieces += [{"choices": [], "usage": usage}] if usage else []
        chunk = about | {"object": "chat.completion.chunk"}
        texts = [json.dumps(chunk | piece, ensure_ascii=False) for piece in pieces]
        stream = "".join(f"data: {text}\n\n" for text in [*texts, "[DONE]"]).encode()
        yield from (stream[place : place + 100] for place in range(0, len(stream), 100))

    def reply(self, request: ChatRequest) -> tuple[dict[str, Any], str]:
        """Return the message of the model, and why it ends."""
        system, question = request.messages[0].content, request.messages[-1].content
        message: dict[str, Any] = {"role": "assistant", "content": "I do not know.", "refusal": None}
        if "refund" in question and request.tools:
            function = {"name": request.tools[0].function.name, "arguments": "{}"}
            calls = [{"id": "call_1", "type": "function", "function": function}]
            return {**message, "content": None, "tool_calls": calls}, "tool_calls"
        words = set(re.findall(r"\w+", question.lower()))
        for asked, answer in re.findall(r"^Q: (.*)\nA: (.*)$", system, re.MULTILINE):
            if len(words & set(re.findall(r"\w+", asked.lower()))) >= 2:
                message["content"] = answer
                break
        return message, "stop"


@contextlib.contextmanager
def strict_server(**options: bool) -> Iterator[StrictServer]:
    """Run a strict assistant during the block."""
    application = StrictServer(**options)
    listening = socket.create_server(("127.0.0.1", 0))
    sockets: dict[int, Any] = {}
    server = create_server(application, map=sockets, sockets=[listening], threads=2)
    application.url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    stopped = threading.Event()

    def run() -> None:
        while not stopped.is_set():
            server.asyncore.poll(0.01, sockets)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield application
    finally:
        stopped.set()
        thread.join()
        server.task_dispatcher.shutdown()
        server.asyncore.close_all(sockets, ignore_all=True)
