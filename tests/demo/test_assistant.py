"""The canned assistant of the demo: what it replies to, what it calls, and what it says about results."""

import json
import re
import time

import pytest

from service.assistant.tool_worker import INTERRUPTED, REFUSED, UNAVAILABLE
from service.assistant.toolbox import REASON, Function
from service.demo import RECORDS
from service.demo.assistant import QUESTIONS, TEXTS, question_in, reply
from service.demo.tools import PARCELS, SKIES, TOOLS
from service.http_client import HttpServer
from service.mcp_client.connection import Tool
from service.mcp_client.servers import McpServer
from tests.support.rules import for_each

ASKED = {
    "What is the weather in Lisbon?": ("get_forecast", "Lisbon", "en"),
    "what's the weather like in new york today please": ("get_forecast", "new york", "en"),
    "Hello! What is the forecast for São Paulo, and why?": ("get_forecast", "São Paulo", "en"),
    "Where is parcel KL-4711-BATH?": ("track_parcel", "KL-4711-BATH", "en"),
    "my order k-2187 is late": ("track_parcel", "K-2187", "en"),
    "Wie wird das Wetter morgen in Bad Ischl?": ("get_forecast", "Bad Ischl", "de"),
    "Wie ist das Wetter in Bern heute?": ("get_forecast", "Bern", "de"),
    "Wo ist meine Bestellung K-2187?": ("track_parcel", "K-2187", "de"),
    "¿Qué tiempo hace en Sevilla hoy?": ("get_forecast", "Sevilla", "es"),
    "¿Dónde está mi paquete KL-4711-BATH?": ("track_parcel", "KL-4711-BATH", "es"),
    "Quel temps fera-t-il demain à Lyon ?": ("get_forecast", "Lyon", "fr"),
    "Où est mon colis KL-4711-BATH ?": ("track_parcel", "KL-4711-BATH", "fr"),
    "Where is parcel K-2187? And what is the weather in Oslo?\n\nThanks": ("get_forecast", "Oslo", "en"),
    "What is the weather in Oslo?\n\nWhere is parcel K-2187?": ("track_parcel", "K-2187", "en"),
}
NOT_ASKED = ["Hello", "Where is my parcel?", "How is the weather?", "I live in Bern.", "KL-4711-BATH", "Once", "No"]


@pytest.fixture(scope="module")
def functions():
    """The functions as the service describes them."""
    server = McpServer("tools.example", "", HttpServer("http://127.0.0.1:1/mcp"), "")
    tools = [
        Tool(one["name"], one["inputSchema"], one["description"])
        for one in (tool.described() for tool in TOOLS.values())
    ]
    return [Function(f"tools__{tool.name}", server, tool, [tool.name]).described() for tool in tools]


def user(text):
    return {"role": "user", "content": text}


def after_call(text, result):
    """The messages after a call, with the press of a button among them."""
    offer = {"role": "assistant", "content": "May I?"}
    call = {"role": "assistant", "content": None, "tool_calls": []}
    return [user(text), offer, user("Once"), call, {"role": "tool", "tool_call_id": "call-0", "content": result}]


@for_each("text", {text: text for text in ASKED})
def test_questions_are_recognized(text):
    found = question_in(text)
    assert (found.tool, found.value, found.texts) == (*ASKED[text][:2], TEXTS[ASKED[text][2]])
    assert re.search(QUESTIONS, text)


@for_each("text", {text: text for text in NOT_ASKED})
def test_other_messages_are_not(text, functions):
    assert question_in(text) is None and not re.search(QUESTIONS, text)
    assert reply([user(text)], functions) is None


def test_messages_with_canned_answers_are_no_questions():
    records = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    asked = [record["bot_answer"]["question"] for record in records if "bot_answer" in record]
    assert len(asked) > 100
    assert [text for text in asked if re.search(QUESTIONS, text)] == []


@pytest.mark.parametrize("text", ["weather ", "weather in ", "parcel ", "parcel K-1", "météo à"])
def test_longest_message_is_searched_fast(text):
    started = time.process_time()
    re.search(QUESTIONS, text * (64 * 1024 // len(text)))
    assert time.process_time() - started < 1


@for_each("text", {text: text for text in ASKED})
def test_call_has_the_argument_and_a_reason(text, functions):
    tool, value, _ = ASKED[text]
    message = reply([user("Hello"), {"role": "assistant", "content": "Hi"}, user(text)], functions)
    called = message["tool_calls"][0]["function"]
    arguments = json.loads(called["arguments"])
    assert (called["name"], message["content"]) == (f"tools__{tool}", None)
    assert value in arguments.pop(REASON)
    assert list(arguments.values()) == [value]


def test_newest_message_counts(functions):
    assert reply([user("What is the weather in Bern?"), user("Hello")], functions) is None


def test_without_the_function_there_is_no_reply():
    assert reply([user("What is the weather in Bern?")], []) is None


@pytest.mark.parametrize("language", TEXTS)
def test_results_become_sentences(language):
    asked = {tool: text for text, (tool, _, spoken) in ASKED.items() if spoken == language}
    said = [
        reply(after_call(asked["get_forecast"], json.dumps(TOOLS["get_forecast"].call({"city": city}))), [])["content"]
        for city in ("Bern", "Zürich", "Lyon", "Oslo", "Rome", "Quito", "Perth", "Kyoto", "Sofia", "Riga", "Bonn")
    ]
    assert {sky for sky in TEXTS[language].skies.values() for text in said if sky in text} == {
        *TEXTS[language].skies.values()
    }
    for number in PARCELS:
        result = json.dumps(TOOLS["track_parcel"].call({"number": number}))
        said.append(reply(after_call(asked["track_parcel"], result), [])["content"])
        assert number in said[-1] and PARCELS[number]["place"] in said[-1]
    assert len(set(said)) == len(said) and not any("{" in text for text in said)


@pytest.mark.parametrize("text", [*ASKED][:1] + ["Where is parcel KL-1000?"])
@pytest.mark.parametrize(
    ("result", "words"),
    [(REFUSED, "did not allow"), (UNAVAILABLE, "ask again later"), (INTERRUPTED, "ask again later")],
)
def test_refusals_and_errors_are_told(text, result, words):
    assert words in reply(after_call(text, result), [])["content"]


def test_unknown_parcel_is_told():
    assert reply(after_call("Where is parcel K-1000?", "No parcel has this number."), [])["content"] == (
        "There is no parcel with this number."
    )


def test_texts_are_complete():
    for texts in TEXTS.values():
        assert texts.skies.keys() == set(SKIES)
        assert texts.statuses.keys() == {parcel["status"] for parcel in PARCELS.values()}
