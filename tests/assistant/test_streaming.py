"""Replies of the assistant in pieces: what is a reply, and what the client does with streams that are none."""

import threading

import pytest

from service import metrics
from service.assistant import client
from service.assistant.client import CALL_PERSON, MAX_CHARACTERS, Assistant, AssistantError
from service.models import Message, PendingReply
from tests.support.bot_replies import answers
from tests.support.fake_ai import DONE, calls, completion, piece, says, sends, streams, used, writes
from tests.support.messages import send

pytestmark = pytest.mark.slow

HELLO = [{"role": "user", "content": "Hello"}]
END = piece(finish="stop")
CALL = piece(tool_calls=[{"index": 0, "id": "call-1", "function": {"name": CALL_PERSON, "arguments": ""}}])
BREAKS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


class Texts(list):
    """The texts that a reply has had."""

    def complete(self, ai, **options):
        return Assistant(ai.url).complete(HELLO, on_text=self.append, **options)


@pytest.fixture
def texts():
    return Texts()


def test_pieces_are_requested_only_for_a_reader(ai, texts):
    Assistant(ai.url).complete(HELLO)
    texts.complete(ai)
    first, second = (request.body for request in ai.requests)
    assert "stream" not in first
    assert second == {**first, "stream": True, "stream_options": {"include_usage": True}}


def test_texts_are_those_so_far_and_the_reply_is_the_last(ai, texts):
    ai.behave = streams(
        piece("", role="assistant"), piece(" Grüße"), piece(", \0"), piece("Alice "), END, used(9), DONE
    )
    assert texts.complete(ai) == ("Grüße, Alice", False, 9, None)
    assert texts == ["Grüße", "Grüße,", "Grüße, Alice"]


@pytest.mark.parametrize(
    "events",
    [
        (piece("Hello"), END),
        (piece("Hello"), DONE),
        (piece("Hello", finish="length"), DONE, b"garbage"),
        (b": comment\n\nevent: message\nid: 1\nretry: 5\n", piece("Hello"), DONE),
        (piece("Hello").replace(b"\n", b"\r\n"), DONE),
        (piece("Hello").replace(b"data: ", b"data:"), b"data:[DONE]\n\n"),
        (piece("Hello")[:30], piece("Hello")[30:], DONE),
        (piece("He"), b'data: {"choices": [{"index": 0}]}\n\n', piece("llo"), DONE),
    ],
)
def test_end_is_a_reason_or_done(ai, texts, events):
    ai.behave = streams(*events)
    assert texts.complete(ai).text == "Hello"


def test_second_answer_is_ignored(ai, texts):
    ai.behave = streams(piece("Yes"), piece("No", index=1), END, piece("No", index=1), piece("Another"), END, DONE)
    assert texts.complete(ai).text == "Yes" and set(texts) == {"Yes"}


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ((piece("Hello"),), "cut"),
        ((), "cut"),
        ((piece("Hello"), piece(" you")[:40]), "cut"),
        ((piece("Hello"), DONE[:9]), "cut"),
        ((piece("Hello"), b"data: {\n\n", END, DONE), "not a chat completion"),
        ((piece("Hello"), b"data: \xff\n\n", DONE), "not a chat completion"),
        ((piece("Hello"), b'data: {"error": {"message": "overloaded"}}\n\n', DONE), "not a chat completion"),
        ((piece("Hello"), piece(1), DONE), "not a chat completion"),
        ((b"data: " + b"[" * 50_000 + b"\n\n",), "not a chat completion"),
        ((piece("Hello"), b"data: " + b"x" * 100_000 + b"\n\n", DONE), "cut"),
        ((END, DONE), "the reply is empty"),
        ((CALL, END, DONE), "the reply is empty"),  # it was not offered
    ],
    ids=lambda value: repr(value)[-30:],
)
def test_stream_without_a_whole_reply_is_an_error(ai, texts, events, reason):
    ai.behave = streams(*events)
    with pytest.raises(AssistantError, match=reason) as caught:
        texts.complete(ai)
    assert not caught.value.is_final and caught.value.tokens > 0


def test_connection_that_breaks_within_a_piece_is_an_error(ai, texts):
    for size in (len(piece("Hello")) + 20, len(piece("Hello"))):
        ai.behave = writes(BREAKS, (piece("Hello") + END)[:size])
        with pytest.raises(AssistantError, match="cut"):
            texts.complete(ai)
    ai.behave = writes(
        BREAKS.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"), b"ff\r\n", piece("Hello")
    )
    with pytest.raises(AssistantError):
        texts.complete(ai)


def test_stream_without_an_end_is_a_timeout(ai, texts, monkeypatch):
    monkeypatch.setattr(client, "TIMEOUT", 0.3)
    ai.behave = streams(piece("Hello"), again=b": wait\n\n")
    with pytest.raises(AssistantError, match=r"timeout|larger"):
        texts.complete(ai)
    assert texts == ["Hello"]


def test_stream_that_is_too_large_is_an_error(ai, texts):
    ai.behave = streams(piece("Hello"), again=b": " + b"x" * 10_000 + b"\n\n")
    with pytest.raises(AssistantError, match="the response is larger than"):
        texts.complete(ai)


def test_reply_without_an_end_is_limited(ai, texts):
    ai.behave = streams(again=piece("x" * 900))
    assert texts.complete(ai).text == "x" * (MAX_CHARACTERS - 1) + "…" == texts[-1]


@pytest.mark.parametrize("events", [(piece("A moment."), CALL, END, DONE), (CALL, END, DONE)])
def test_call_of_the_function_calls_a_person(ai, texts, events):
    ai.behave = streams(*events)
    assert texts.complete(ai, may_call_person=True).calls_person


def called(index, name=None, arguments=None):
    """A piece of the call of a function."""
    return piece(tool_calls=[{"index": index, "function": {"name": name, "arguments": arguments}}])


def test_call_of_another_function_arrives_in_pieces(ai, texts):
    ai.behave = streams(
        called(0, "unknown", "{}"),
        called(1, "track", '{"num'),
        called(2, "track", "{}"),
        called(1, None, 'ber": 1}'),
        piece(finish="tool_calls"),
        DONE,
    )
    function = {"type": "function", "function": {"name": "track", "parameters": {}}}
    completion = texts.complete(ai, may_call_person=True, functions=[function])
    assert completion.call == ("track", '{"number": 1}') and not completion.calls_person
    assert [tool["function"]["name"] for tool in ai.requests[-1].body["tools"]] == [CALL_PERSON, "track"]


def test_server_that_ignores_the_request_for_pieces_is_read_as_before(ai, texts):
    assert texts.complete(ai).text == "I am the assistant." and texts == []
    ai.behave = calls(CALL_PERSON)
    assert texts.complete(ai, may_call_person=True).calls_person


@pytest.mark.parametrize(("status", "is_requested_again"), [(400, False), (422, False), (501, False), (500, True)])
def test_server_that_refuses_pieces_gets_the_request_without_them(ai, status, is_requested_again):
    def behave(handler):
        refuses = "stream" in handler.server.requests[-1].body
        (sends({}, status) if refuses else says("Hello"))(handler)

    ai.behave = behave
    assistant = Assistant(ai.url)
    for _ in range(2):
        assert assistant.complete(HELLO, may_call_person=True, on_text=str.strip).text == "Hello"
    sent = [("stream" in request.body, "tools" in request.body) for request in ai.requests]
    refused = [(True, True), (True, False), (False, True)]
    assert sent == (refused * 2 if is_requested_again else [*refused, (False, True)])


def test_a_refusal_of_everything_takes_four_requests(ai, texts):
    ai.behave = sends({}, 400)
    with pytest.raises(AssistantError, match="status 400"):
        texts.complete(ai, may_call_person=True)
    assert len(ai.requests) == 4


# The worker


@pytest.mark.database
def test_reply_is_stored_once_and_whole(alice, session, ai, replier):
    ai.behave = streams(piece("One "), piece("two"), END, used(5), DONE)
    send(alice, session, "Hello")
    assert replier.run_once() and not replier.run_once()
    assert answers(alice, session) == ["One two"]


@pytest.mark.database
@pytest.mark.parametrize(
    "behave",
    [
        streams(piece("Half of"), piece(" the")[:-9]),
        streams(piece("Half of"), b"data: garbage\n\n", DONE),
        streams(piece("Half of"), piece(None)),
    ],
)
def test_stream_that_was_cut_leaves_one_whole_reply(alice, session, ai, replier, behave):
    ai.behave = behave
    send(alice, session, "Hello")
    replier.run_once()
    assert (answers(alice, session), PendingReply.select().count()) == ([], 1)
    ai.behave = streams(piece("Half of it"), END, DONE)
    PendingReply.update(due_at=0).execute()
    replier.run_once()
    assert answers(alice, session) == ["Half of it"]


@pytest.mark.database
def test_after_the_last_attempt_the_bot_sends_its_prepared_reply(alice, session, ai, replier):
    ai.behave = streams(piece("Half of"))
    send(alice, session, "Hello")
    for _ in range(5):
        PendingReply.update(due_at=0).execute()
        replier.run_once()
    [answer] = answers(alice, session)
    assert "Half" not in answer and Message.select().where(Message.sender_type == "bot").count() == 1


def test_metrics_count_the_time_to_the_first_piece(alice, session, ai, replier):
    cells = range(metrics.ASSISTANT_FIRST, metrics.ASSISTANT_FIRST_SECONDS)
    before = sum(map(metrics.shared.total, cells))
    go_on = threading.Event()
    go_on.set()
    for behave in (streams(piece("One "), piece("two"), END, DONE, wait=go_on), sends(completion("Hello"))):
        ai.behave = behave
        send(alice, session, "Hello"), replier.run_once()
    assert sum(map(metrics.shared.total, cells)) == before + 1
