"""Limits of the assistant for each app, and what is recorded of a request."""

import dataclasses
import json
import logging

import pytest

from service import metrics
from service.assistant.client import BYTES_PER_TOKEN, MAX_TOKENS, Assistant, AssistantError
from service.assistant.metering import metered_assistant
from service.assistant.reply_worker import Worker
from service.models import App, AssistantUsage, Bot, CannedAnswer, ChatSession, Message
from service.models.actions import Action, Actions, offer_of
from service.models.assistant_usage import UsageLimits
from service.models.audit_log import AuditLog
from service.responder import PHRASES
from tests.support.bot_replies import OPENING, answers
from tests.support.fake_ai import calls, completion, hangs, says, sends
from tests.support.messages import send
from tests.support.observe import at_once, nothing_changes

pytestmark = [pytest.mark.slow, pytest.mark.database]

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(autouse=True)
def canned_answer(bot):
    return CannedAnswer.create(bot_id=bot.id, language="en", question="When are you open?", answer=OPENING)


@pytest.fixture
def limited(settings, replier):
    """Return a worker with limits."""

    def make(**limits):
        return Worker(metered_assistant(dataclasses.replace(settings, **limits)), replier.stop)

    return make


def uses(tokens, text="I am the assistant."):
    """Send a reply that used a number of tokens."""
    return sends({**completion(text), "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": tokens}})


def used(app):
    return AssistantUsage.get(AssistantUsage.app_id == app.id).tokens


def entries():
    """Who asked the assistant about whom, and the details."""
    found = AuditLog.select().where(AuditLog.kind == "assistant_asked").order_by(AuditLog.position)
    return [(entry.actor_id, entry.subject_id, json.loads(entry.details)) for entry in found]


# Tokens


def test_number_of_tokens_is_that_of_the_response(ai):
    ai.behave = uses(123)
    assert Assistant(ai.url).complete(HELLO).tokens == 123
    ai.behave = uses(MAX_TOKENS)
    assert Assistant(ai.url).complete(HELLO).tokens == MAX_TOKENS


@pytest.mark.parametrize(
    "usage", [None, {}, [], "many", *({"total_tokens": n} for n in (0, -5, 1.5, "9", None, MAX_TOKENS + 1, 10**30))]
)
def test_number_that_is_not_plausible_is_replaced_by_an_estimate(ai, usage):
    ai.behave = sends({**completion("x" * 400), "usage": usage})
    found = Assistant(ai.url).complete(HELLO).tokens
    assert 400 / BYTES_PER_TOKEN < found < 400


def test_response_that_is_no_completion_has_used_tokens(ai):
    ai.behave = sends({"choices": [], "usage": {"total_tokens": 77}})
    with pytest.raises(AssistantError) as caught:
        Assistant(ai.url).complete(HELLO)
    assert caught.value.tokens == 77


# Budget


def test_budget_is_counted_by_app(alice, session, shop, other_shop, ai, limited):
    ai.behave = uses(60)
    worker = limited(assistant_tokens=100)
    bot = Bot.create(app_id=other_shop.id, name="Other", kind="bot", status="published")
    other = ChatSession.create(app_id=other_shop.id, user_id=alice.user.id, bot_id=bot.id)
    for _ in range(3):
        send(alice, session, "When are you open?")
        worker.run_once()
    send(alice, other, "When are you open?")
    worker.run_once()
    assert answers(alice, session) == ["I am the assistant."] * 2 + [OPENING]
    assert answers(alice, other) == ["I am the assistant."]
    assert (used(shop), used(other_shop), len(ai.requests)) == (120, 60, 3)


def test_customer_without_a_prepared_answer_gets_a_person_when_the_budget_is_spent(alice, session, ai, limited):
    ai.behave = uses(100)
    worker = limited(assistant_tokens=100)
    send(alice, session, "My parcel is lost"), worker.run_once()
    send(alice, session, "It is not there"), worker.run_once()
    assert answers(alice, session) == ["I am the assistant.", PHRASES["en"].handed_over]
    assert ChatSession.get_by_id(session.id).status == "pending"
    assert len(ai.requests) == 1


def test_prepared_answer_offers_its_buttons_when_the_budget_is_spent(alice, session, ai, limited):
    ai.behave = uses(100)
    worker = limited(assistant_tokens=100)
    CannedAnswer.update(actions=Actions().to_stored([Action("1", "Closed?")])).execute()
    for _ in range(2):
        send(alice, session, "When are you open?"), worker.run_once()
    by_assistant, by_bot = Message.select().where(Message.sender_type == "bot").order_by(Message.id)
    assert (by_assistant.plain_text, by_assistant.action_payload) == ("I am the assistant.", "[]")
    assert (by_bot.plain_text, by_bot.action_payload) == (OPENING, offer_of(["Closed?"]))


def test_reply_from_the_profile_is_a_prepared_answer(alice, session, ai, limited):
    ai.behave = uses(100)
    worker = limited(assistant_tokens=100)
    send(alice, session, "Hello there, my friend"), worker.run_once()
    send(alice, session, "Who are you?"), worker.run_once()
    assert answers(alice, session)[1].startswith("I am Hilda")
    assert ChatSession.get_by_id(session.id).status == "open"


def test_budget_is_new_in_the_next_month(host_clock, shop):
    limits = UsageLimits(tokens=100)
    assert AssistantUsage.admit(shop.id, limits) is None
    AssistantUsage.update(tokens=100).execute()
    assert AssistantUsage.admit(shop.id, limits) == "budget"
    host_clock.forward(days=11)  # 1 December
    assert AssistantUsage.admit(shop.id, limits) is None
    assert (used(shop), AssistantUsage.get().month) == (0, "2026-12")


def test_without_limits_all_requests_are_made(host_clock, alice, session, ai, limited):
    ai.behave = uses(MAX_TOKENS)
    worker = limited(assistant_tokens=0, assistant_rate=0)
    for _ in range(3):
        send(alice, session, "One"), worker.run_once()
    assert len(ai.requests) == 3


# Rate


def test_request_above_the_rate_is_made_in_the_next_minute(host_clock, alice, session, ai, limited, caplog):
    worker = limited(assistant_rate=2)
    for text in ("One", "Two", "Three"):
        send(alice, session, text), worker.run_once()
    assert (len(ai.requests), len(answers(alice, session))) == (2, 2)
    assert "limit of requests in a minute" in caplog.text
    host_clock.forward(seconds=59)
    assert not worker.run_once()
    host_clock.forward(seconds=1)
    assert worker.run_once()
    assert (len(ai.requests), len(answers(alice, session))) == (3, 3)


def test_concurrent_requests_do_not_exceed_the_rate(host_clock, shop):
    found = at_once(8, lambda _: AssistantUsage.admit(shop.id, UsageLimits(rate=3)))
    assert sorted(found, key=str) == [None] * 3 + ["rate"] * 5


# Records


def test_every_request_is_in_the_audit_log_without_text(alice, session, shop, ai, limited, caplog):
    caplog.set_level(logging.DEBUG)
    about = {"app": shop.id, "session": session.id}
    for behave in (uses(5, "my cat"), sends({"choices": [], "usage": {"total_tokens": 7}}), sends({}, 401)):
        ai.behave = behave
        send(alice, session, "When is my cat fed?"), limited().run_once()
    ai.behave = calls("call_person", text="my cat")
    send(alice, session, "Is my cat there?"), limited().run_once()
    found = [(actor, subject, details["outcome"]) for actor, subject, details in entries()]
    assert found == [("service", alice.user.id, word) for word in ("reply", "error", "error", "handover")]
    assert [details["tokens"] for _, _, details in entries()[:3]] == [5, 7, 0]
    assert all(about.items() <= details.items() and len(details) == 4 for *_, details in entries())
    assert used(shop) == sum(details["tokens"] for *_, details in entries())
    assert "cat" not in json.dumps(entries())


def test_request_that_is_refused_is_not_recorded(alice, session, ai, limited):
    worker = limited(assistant_tokens=1)
    send(alice, session, "One"), worker.run_once()
    send(alice, session, "When are you open?")
    with nothing_changes(AssistantUsage, App):
        worker.run_once()
    assert len(entries()) == 1


def test_metrics_count_time_tokens_and_refusals(alice, session, ai, limited, anyone):
    def scraped():
        lines = [line.rpartition(" ") for line in anyone.get("//metrics").raw.decode().splitlines()]
        return {name: float(value) for name, _, value in lines if name.startswith("cx_assistant")}

    before = scraped()
    ai.behave = uses(30)
    worker = limited(assistant_tokens=30)
    for text in ("One", "Two"):
        send(alice, session, text), worker.run_once()
    after = scraped()
    added = {name: value - before[name] for name, value in after.items()}
    name = "cx_assistant_request_duration_seconds"
    assert (added[f"{name}_count"], added[f'{name}_bucket{{le="+Inf"}}']) == (1, 1)
    assert added[f"{name}_sum"] > 0
    assert (added["cx_assistant_tokens_total"], added["cx_assistant_refused_total"]) == (30, 1)


@pytest.mark.parametrize(("seconds", "bucket"), [(0.0, 0), (0.5, 0), (0.6, 1), (30.0, 6), (31.0, 7)])
def test_time_is_counted_in_its_bucket(seconds, bucket):
    shared = metrics.SharedMetrics()
    shared.count_assistant(seconds, 0)
    cells = range(metrics.ASSISTANT_DURATIONS, metrics.ASSISTANT_SECONDS)
    assert [shared.total(cell) for cell in cells] == [float(place == bucket) for place in range(len(cells))]


def test_timeout_is_recorded(alice, session, ai, limited, monkeypatch):
    monkeypatch.setattr("service.assistant.client.TIMEOUT", 0.1)
    ai.behave = hangs
    send(alice, session, "Hello"), limited().run_once()
    assert [details["outcome"] for *_, details in entries()] == ["error"]
    ai.behave = says("late")
