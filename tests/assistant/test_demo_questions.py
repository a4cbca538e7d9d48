"""The assistant of a demo replies to some messages only; all others get canned answers at once."""

import dataclasses

import pytest

from service.models import CannedAnswer, PendingReply
from tests.support.bot_replies import OPENING, answers, write_in_the_console
from tests.support.fake_ai import says
from tests.support.messages import send, sent

pytestmark = pytest.mark.slow


@pytest.fixture
def settings(settings):
    return dataclasses.replace(settings, demo_questions="weather in")


@pytest.fixture(autouse=True)
def canned_answer(bot):
    return CannedAnswer.create(bot_id=bot.id, language="en", question="When are you open?", answer=OPENING)


def waiting():
    return [row.message_id for row in PendingReply.select()]


def test_other_messages_get_canned_answers_at_once(application, alice, session, ai, replier):
    send(alice, session, "When are you open?")
    assert (answers(alice, session), waiting()) == ([OPENING], [])
    write_in_the_console(application, alice, session, "When are you open?")
    assert (answers(alice, session), waiting()) == ([OPENING, OPENING], [])
    assert not replier.run_once() and not ai.requests


def test_questions_are_for_the_assistant(application, alice, session, ai, replier):
    question = sent(alice, session, "What is the weather in Bern?")
    assert (answers(alice, session), waiting()) == ([], [question.id])
    ai.behave = says("Sunny.")
    assert replier.run_once()
    write_in_the_console(application, alice, session, "And the weather in Oslo?")
    assert replier.run_once()
    assert answers(alice, session) == ["Sunny.", "Sunny."]


def test_canned_answer_ends_the_turn_of_a_question(alice, session, ai, replier):
    send(alice, session, "What is the weather in Bern?")
    send(alice, session, "When are you open?")
    assert (answers(alice, session), waiting()) == ([OPENING], [])
    assert not replier.run_once() and not ai.requests


def test_customer_who_asks_for_a_person_gets_one(alice, session, ai):
    send(alice, session, "I want to talk to a human about the weather in Bern")
    assert alice.get(f"/chats/{session.id}").data["handed_over_at"]
    assert waiting() == []


def test_staff_gets_no_drafts(application, alice, agent, session, ai):
    send(alice, session, "What is the weather in Bern?")
    agent.put(f"/chats/{session.id}/assignee", {"user_id": agent.user.id})
    assert agent.post(f"/chats/{session.id}/suggestion").error[1] == "assistant_not_configured"
    assert not ai.requests
