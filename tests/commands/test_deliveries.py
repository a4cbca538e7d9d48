"""The commands `delivery` and `announcement`."""

import json
from collections.abc import Callable

import pytest

from service import clock, db
from service.models import Announcement, AuditLog, Delivery
from tests.support.command_line import Outcome, error_line

pytestmark = pytest.mark.database

Command = Callable[..., Outcome]


@pytest.fixture
def deliveries(cx: Command, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The identifiers of a pending webhook and of one that has failed."""
    assert cx("migrate").status == 0
    monkeypatch.setattr(Delivery, "configured", (("webhook", "https://shop.example/hook"),))
    with db.write():
        Delivery.add("webhook", "message.created", topic="a chat")
        Delivery.add("webhook", "chat.created", delay=clock.HOUR)
    first, second = (row.id for row in Delivery.select().order_by(Delivery.id))
    Delivery.get_by_id(first).fail("HTTP status 500")
    db.close_database()
    return [second, first]


def ids(outcome: Outcome) -> list[str]:
    assert outcome.status == 0, outcome
    return [json.loads(line)["id"] for line in outcome.output.splitlines()]


def test_deliveries_are_listed_newest_first(cx: Command, deliveries: list[str]) -> None:
    assert ids(cx("delivery", "list", "--json")) == deliveries
    assert ids(cx("delivery", "list", "--json", "--state", "failed")) == deliveries[1:]
    assert ids(cx("delivery", "list", "--json", "--channel", "email")) == []
    assert ids(cx("delivery", "list", "--json", "--limit", "1")) == deliveries[:1]
    _, failed = cx("delivery", "list").output.splitlines()
    assert failed.split(None, 4) == [
        deliveries[1],
        "failed",
        "webhook",
        "message.created",
        "https://shop.example/hook  HTTP status 500",
    ]


def test_a_delivery_is_shown(cx: Command, deliveries: list[str]) -> None:
    lines = dict(
        line.split(None, 1) for line in cx("delivery", "show", deliveries[1]).output.splitlines() if " " in line
    )
    assert (lines["state"], lines["error"]) == ("failed", "HTTP status 500")
    assert json.loads(cx("delivery", "show", deliveries[1], "--json").output)["kind"] == "message.created"


@pytest.mark.parametrize("index", [0, 1], ids=["pending", "failed"])
def test_a_delivery_is_tried_again(cx: Command, deliveries: list[str], index: int) -> None:
    assert cx("delivery", "retry", deliveries[index]) == (0, "", "")
    delivery = Delivery.get_by_id(deliveries[index])
    assert delivery.info.state == "pending" and delivery.due_at <= clock.now() < delivery.expires_at
    assert AuditLog.select().order_by(AuditLog.position.desc()).get().kind == "delivery_retried"


@pytest.mark.parametrize("action", ["show", "retry"])
def test_an_unknown_delivery_is_an_error(cx: Command, deliveries: list[str], action: str) -> None:
    unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    assert error_line(cx("delivery", action, unknown)).startswith(f"no such delivery: {unknown}")


def test_an_announcement_is_added_and_listed(cx: Command) -> None:
    shop = cx("app", "add", "Shop").output.strip()
    id = cx("announcement", "add", "--app", shop, "Open again", "From Monday on.").output.strip()
    assert cx("announcement", "list", "--app", shop).output.endswith("  unfinished  0 recipients  Open again\n")
    assert ids(cx("announcement", "list", "--app", shop, "--json")) == [id]
    assert Announcement.get_by_id(id).body == "From Monday on."


def test_an_invalid_announcement_is_an_error(cx: Command) -> None:
    shop = cx("app", "add", "Shop").output.strip()
    assert "title" in error_line(cx("announcement", "add", "--app", shop, "x" * 201))
