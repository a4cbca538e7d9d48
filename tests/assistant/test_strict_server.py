"""Replies, handover and suggestions with a strict server of the protocol, which refuses what its reference forbids."""

import dataclasses
import json

import pytest

from service.assistant.metering import metered_assistant
from service.assistant.reply_worker import Worker
from service.models import AssistantUsage, CannedAnswer, ChatSession
from service.models.audit_log import AuditLog
from service.responder import PHRASES
from tests.support.bot_replies import OPENING, answers
from tests.support.messages import send
from tests.support.strict_ai import strict_server

pytestmark = [pytest.mark.slow, pytest.mark.database]


@pytest.fixture(params=[True, False], ids=["with functions", "without functions"])
def has_functions(request):
    return request.param


@pytest.fixture(params=[True, False], ids=["with streams", "without streams"])
def ai(request, has_functions):
    with strict_server(has_functions=has_functions, has_streams=request.param) as server:
        yield server


@pytest.fixture
def settings(settings, ai):
    return dataclasses.replace(settings, assistant_url=ai.url, assistant_model="strict-1", assistant_key=ai.key)


@pytest.fixture(autouse=True)
def canned_answer(bot):
    return CannedAnswer.create(bot_id=bot.id, language="en", question="When are you open?", answer=OPENING)


def unexpected(ai):
    """The requests that the server has refused, without those for their functions or streams if it has none."""
    accepted = {"tools": ai.has_functions, "stream": ai.has_streams}
    return [reason for reason in ai.refusals if accepted.get(reason.split()[-1], True)]


def test_conversation_has_replies_from_the_prepared_answers(alice, session, ai, replier):
    for text in ("Hello!", "On which days are you open in June? I like your shop.", "Bye"):
        send(alice, session, text), replier.run_once()
    assert (answers(alice, session), unexpected(ai)) == (["I do not know.", OPENING, "I do not know."], [])


def test_consecutive_messages_are_accepted(alice, session, ai, replier):
    send(alice, session, "Hello!"), send(alice, session, "When are you open?")
    replier.run_once()
    assert (answers(alice, session), unexpected(ai)) == ([OPENING], [])


def test_model_with_functions_calls_a_person(alice, session, ai, replier):
    send(alice, session, "I want a refund"), replier.run_once()
    status = ChatSession.get_by_id(session.id).status
    if ai.has_functions:
        assert (answers(alice, session), status) == ([PHRASES["en"].handed_over], "pending")
    else:
        assert (answers(alice, session), status) == (["I do not know."], "open")
    assert unexpected(ai) == []


def test_tokens_are_those_that_the_server_counts(alice, session, shop, ai, replier):
    for text in ("Hello!", "When are you open?"):
        send(alice, session, text), replier.run_once()
    entries = AuditLog.select().where(AuditLog.kind == "assistant_asked")
    assert sum(json.loads(entry.details)["tokens"] for entry in entries) == ai.tokens
    assert AssistantUsage.get(AssistantUsage.app_id == shop.id).tokens == ai.tokens > 0


def test_staff_gets_a_suggestion(alice, agent, session, ai):
    send(alice, session, "When are you open?")
    assert agent.post(f"/chats/{session.id}/suggestion").data == {"text": OPENING}
    assert ai.refusals == []


def test_wrong_key_is_refused_and_the_bot_replies(alice, session, settings, ai, replier):
    worker = Worker(metered_assistant(dataclasses.replace(settings, assistant_key="sk-wrong")), replier.stop)
    send(alice, session, "When are you open?"), worker.run_once()
    assert (answers(alice, session), ai.refusals) == ([OPENING], ["wrong key"])
