"""Announcements of an app: who may send them, whom they reach, and how they are sent."""

import pytest

from service import db
from service.models import Announcement, AuditLog, ChatSession, Notification, User, announcements
from tests.support.client import walk
from tests.support.observe import at_once, nothing_changes, query_plan, statements

pytestmark = pytest.mark.database

UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def path(shop):
    return f"/apps/{shop.id}/announcements"


@pytest.fixture
def customers(person, shop):
    """Twelve customers of the shop, every third of whom does not accept marketing."""
    found = []
    for number in range(12):
        client = person(f"customer{number}")
        ChatSession.create(app_id=shop.id, user_id=client.user.id)
        accepts = {"notifications": {"marketing_enabled": number % 3 > 0}}
        assert client.patch("/users/me/settings", accepts).status == 200
        found.append(client)
    return found


def announce(client, path, title="New opening hours", **members):
    return client.post(path, {"title": title, **members})


def send_all():
    while Announcement.send_next():
        pass


def received(client):
    return [(row["title"], row["body"]) for row in walk(client, "/notifications") if row["type"] == "announcement"]


def test_customers_who_accept_marketing_are_notified(host_clock, agent, path, customers, bob):
    bob.patch("/users/me/settings", {"notifications": {"marketing_enabled": True}})  # no customer of the shop
    made = announce(agent, path, body="Until six.").data
    assert (made["recipients"], made["finished_at"]) == (0, None)
    send_all()
    expected = [[("New opening hours", "Until six.")] if number % 3 else [] for number in range(12)]
    assert [received(client) for client in customers] == expected
    assert received(bob) == received(agent) == []
    (listed,) = agent.get(path).data
    assert (listed["recipients"], listed["finished_at"]) == (8, "2026-11-20T10:00:00.000Z")


def test_each_customer_is_notified_once_by_several_processes_in_batches(agent, path, customers, monkeypatch):
    monkeypatch.setattr(announcements, "BATCH_SIZE", 3)
    for title in ("one", "two"):
        assert announce(agent, path, title).status == 201

    def work(number):
        while Announcement.select().where(Announcement.finished_at.is_null()).exists():
            Announcement.send_next()
        db.close_database()

    at_once(3, work)
    for number, client in enumerate(customers):
        assert sorted(received(client)) == ([("one", ""), ("two", "")] if number % 3 else [])
    assert {row.recipients for row in Announcement.select()} == {8}


def test_disabled_customers_are_left_out(agent, path, customers):
    User.update(is_disabled=True).execute()
    User.update(is_disabled=False).where(User.id == agent.user.id).execute()
    announce(agent, path)
    send_all()
    assert Notification.select().count() == 0


def test_only_staff_of_the_app_sends_and_lists(agent, admin, alice, other_agent, path):
    for client in (agent, admin):
        assert announce(client, path).status == 201 and client.get(path).status == 200
    with nothing_changes():
        for client in (alice, other_agent):
            assert announce(client, path).error == (403, "forbidden")
            assert client.get(path).error == (403, "forbidden")
        assert announce(admin, f"/apps/{UNKNOWN}/announcements").error == (404, "app_not_found")


@pytest.mark.parametrize("body", [{}, {"title": ""}, {"title": "x" * 201}, {"title": "x", "body": "x" * 10_001}])
def test_invalid_announcements_are_refused(agent, path, body):
    with nothing_changes():
        assert agent.post(path, body).error == (400, "invalid_body")


def test_an_announcement_is_in_the_audit_log(agent, shop, path):
    made = announce(agent, path).data
    entry = AuditLog.select().order_by(AuditLog.position.desc()).get()
    assert (entry.kind, entry.actor_id, entry.subject_id) == ("announcement_sent", agent.user.id, made["id"])
    assert shop.id in entry.details


def test_the_next_customers_are_found_by_an_index(agent, path, customers):
    announce(agent, path)
    with statements() as executed:
        Announcement.send_next()
    (select,) = [statement for statement in executed if 'FROM "user"' in statement[0] and "EXISTS" in statement[0]]
    plan = query_plan(*select)
    assert not plan.scans and not plan.sorts, plan
