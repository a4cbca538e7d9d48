"""The use of the assistant by app and month: what is counted, how long it is kept, and who may see it."""

import dataclasses
import re
from typing import Any

import msgspec
import pytest

from service.assistant.client import AssistantError
from service.assistant.metering import metered_assistant
from service.db import migrations
from service.db.migrations import step_35
from service.models import App, AssistantMonth, AssistantUsage, ChatSession
from service.models.assistant_usage import UsageLimits
from service.settings import Settings
from tests.support.client import Client
from tests.support.fake_ai import FakeServer, calls, completion, sends
from tests.support.host_clock import Clock
from tests.support.observe import at_once, nothing_changes, statements
from tests.support.web_client import Browser

pytestmark = pytest.mark.database

HELLO = [{"role": "user", "content": "Hello"}]
COUNTS = ("requests", "tokens", "replies", "handovers", "tool_calls", "suggestions", "translations", "errors")
NONE = dict.fromkeys(COUNTS, 0)


def uses(tokens: int) -> Any:
    """Send a reply that used a number of tokens."""
    return sends({**completion("I am the assistant."), "usage": {"total_tokens": tokens}})


def ask(settings: Settings, session: ChatSession, outcome: Any = "reply") -> None:
    """Make a request to the assistant about a chat session."""
    assistant = metered_assistant(settings)
    assert assistant
    assistant.complete(session, "service", HELLO, outcome=outcome, may_call_person=True)


@pytest.fixture
def settings(settings: Settings, ai: FakeServer) -> Settings:
    return dataclasses.replace(settings, assistant_url=ai.url, assistant_rate=0)


@pytest.fixture
def path(shop: App) -> str:
    return f"/apps/{shop.id}/assistant-usage"


def test_requests_are_counted_by_app_month_and_outcome(
    host_clock: Clock,
    alice: Client,
    session: ChatSession,
    other_shop: App,
    ai: FakeServer,
    settings: Settings,
) -> None:
    ai.behave = uses(5)
    ask(settings, session)
    ask(settings, session, "suggestion")
    ask(settings, session, "translation")
    host_clock.forward(days=11)  # 1 December
    ask(settings, session)
    ask(settings, session)
    ai.behave = sends({"choices": [], "usage": {"total_tokens": 7}})
    with pytest.raises(AssistantError):
        ask(settings, session)
    ai.behave = calls("call_person")
    ask(settings, session)
    ai.behave = uses(1000)
    ask(settings, ChatSession.create(app_id=other_shop.id, user_id=alice.user.id))
    december, november = msgspec.to_builtins(AssistantUsage.of_app(session.app_id, 0).months)
    handed_over = december["tokens"] - 5 - 5 - 7
    assert 0 < handed_over < 1000
    assert december == {
        **NONE,
        "month": "2026-12",
        "requests": 4,
        "tokens": 17 + handed_over,
        "replies": 2,
        "handovers": 1,
        "errors": 1,
    }
    outcomes = {"replies": 1, "suggestions": 1, "translations": 1}
    assert november == {**NONE, "month": "2026-11", "requests": 3, "tokens": 15, **outcomes}


def test_months_without_requests_are_listed_between_others(
    host_clock: Clock, agent: Client, shop: App, path: str
) -> None:
    assert agent.get(path).data == {"budget": None, "remaining": None, "months": []}
    AssistantMonth.create(app_id=shop.id, month="2026-08", tokens=3, replies=1)
    months = agent.get(path).data["months"]
    assert [month["month"] for month in months] == ["2026-11", "2026-10", "2026-09", "2026-08"]
    assert [(month["tokens"], month["requests"]) for month in months] == [(0, 0)] * 3 + [(3, 1)]


def test_the_newest_24_months_are_kept(host_clock: Clock, agent: Client, shop: App, other_shop: App, path: str) -> None:
    for app in (shop, other_shop):
        for month in ("2024-10", "2024-11", "2024-12"):
            AssistantMonth.create(app_id=app.id, month=month, tokens=1)
    listed = [month["month"] for month in agent.get(path).data["months"]]
    assert (len(listed), listed[0], listed[-1]) == (24, "2026-11", "2024-12")
    AssistantUsage.admit(shop.id, UsageLimits())
    kept = AssistantMonth.select(AssistantMonth.app_id, AssistantMonth.month).order_by(AssistantMonth.month)
    assert [row.month for row in kept if row.app_id == shop.id] == ["2024-12"]
    assert len(kept) == 4
    AssistantMonth.create(app_id=shop.id, month="2024-01")
    with nothing_changes(AssistantMonth):  # once a month
        AssistantUsage.admit(shop.id, UsageLimits())


def test_a_request_has_one_further_statement_and_no_further_transaction(
    session: ChatSession, ai: FakeServer, settings: Settings
) -> None:
    ask(settings, session)
    with statements() as executed:
        ask(settings, session)
    written = [sql for sql, *_ in executed if sql.startswith(("INSERT", "UPDATE", "DELETE"))]
    assert [table for sql in written for table in ("assistant_month", "assistant_usage") if f'"{table}"' in sql] == [
        "assistant_usage",
        "assistant_usage",
        "assistant_month",
    ]


def test_requests_that_end_at_once_are_all_counted(
    session: ChatSession, ai: FakeServer, settings: Settings, agent: Client, path: str
) -> None:
    ai.behave = uses(5)
    at_once(8, lambda _: AssistantUsage.record(session, "service", 5, "reply"))
    (month,) = agent.get(path).data["months"]
    assert (month["requests"], month["replies"], month["tokens"]) == (8, 8, 40)


def test_what_is_left_of_the_budget_is_what_the_next_request_may_use(
    host_clock: Clock, session: ChatSession, shop: App, ai: FakeServer, settings: Settings
) -> None:
    ai.behave = uses(60)
    settings = dataclasses.replace(settings, assistant_tokens=100)
    assert AssistantUsage.of_app(shop.id, 100).remaining == 100
    ask(settings, session)
    assert AssistantUsage.of_app(shop.id, 100).remaining == 40
    ask(settings, session)
    assert AssistantUsage.of_app(shop.id, 100).remaining == 0
    with pytest.raises(AssistantError, match="monthly tokens"):
        ask(settings, session)
    assert AssistantUsage.of_app(shop.id, 100).months[0].requests == 2
    host_clock.forward(days=11)  # 1 December
    assert (AssistantUsage.of_app(shop.id, 100).budget, AssistantUsage.of_app(shop.id, 100).remaining) == (100, 100)


def test_use_is_for_the_staff_of_the_app(alice: Client, other_agent: Client, admin: Client, path: str) -> None:
    assert admin.get(path).status == 200
    for client in (alice, other_agent):
        assert client.get(path).error == (403, "forbidden")
        assert Browser(client.application).signed_in(client).open(f"/console{path}").status == 403


def test_page_shows_the_months(host_clock: Clock, agent: Client, shop: App, path: str) -> None:
    browser = Browser(agent.application).signed_in(agent)
    assert browser.open(f"/console{path}").status == 200
    assert "The AI has not been used yet." in browser.text
    assert "Tokens left" not in browser.text
    AssistantMonth.create(app_id=shop.id, month="2026-09", tokens=1_234_567, replies=20, errors=3)
    browser.open(f"/console{path}")
    html = browser.reply.raw.decode()
    months = re.findall(r'<time datetime="[\d-]{7}">(.*?)</time>', html)
    assert months == ["November 2026", "October 2026", "September 2026"]
    assert re.findall(r"<td>(.*?)</td>", html)[16:] == ["1,234,567", "23", "20", "0", "0", "0", "0", "3"]
    assert "Lowest 0, highest 1,234,567, mean 411,522." in browser.text


def test_migration_takes_over_the_tokens_of_the_month(application: Any, shop: App, other_shop: App) -> None:
    AssistantUsage.create(app_id=shop.id, month="2026-11", tokens=60)
    AssistantUsage.create(app_id=other_shop.id, month="2026-11")
    assert step_35.STATEMENTS in migrations.STEPS
    migrations.db.database.execute_sql(step_35.STATEMENTS[-1])
    (month,) = AssistantMonth.select()
    assert (month.app_id, month.month, month.tokens, month.replies) == (shop.id, "2026-11", 60, 0)
