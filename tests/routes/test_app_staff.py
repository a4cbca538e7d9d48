"""The list of the staff of an app."""

import pytest

from service import db
from service.models import User
from tests.support.client import walk
from tests.support.observe import nothing_changes, query_plan, statements

pytestmark = pytest.mark.database


def listed(client, app, **query):
    return [row["id"] for row in walk(client, f"/apps/{app.id}/staff", **query)]


def test_the_staff_of_an_app_are_its_agents_and_admins(person, shop, other_shop, alice, agent, other_agent, admin):
    carla = person("carla", role="agent", app_id=shop.id, display_name="Carla C.")
    person("dora", role="agent", app_id=shop.id, is_disabled=False).user.disable()
    person("eve", role="agent"), person("finn", app_id=shop.id)
    expected = [
        {"id": agent.user.id, "name": "Agnes", "role": "agent"},
        {"id": carla.user.id, "name": "Carla C.", "role": "agent"},
        {"id": admin.user.id, "name": "Ada", "role": "admin"},
    ]
    for client in (agent, admin):
        assert client.get(f"/apps/{shop.id}/staff").data == sorted(expected, key=lambda row: row["id"])
    assert listed(admin, other_shop) == sorted([other_agent.user.id, admin.user.id])


def test_each_listed_user_can_be_assigned(agent, admin, shop, session):
    for id in listed(agent, shop):
        assert agent.put(f"/chats/{session.id}/assignee", {"user_id": id}).data["assignee_id"] == id


@pytest.mark.parametrize("per_page", [1, 2, 3, 100])
def test_pages_are_complete_and_in_order(admin, agent, shop, per_page):
    for number in range(7):
        role = {"role": "agent", "app_id": shop.id} if number % 2 else {"role": "admin"}
        User.create(email=f"{number}@example.com", **role)
    expected = sorted(user.id for user in User.select())
    assert listed(agent, shop, per_page=per_page) == expected


def test_only_the_staff_of_the_app_has_access(alice, other_agent, shop):
    with nothing_changes():
        for client in (alice, other_agent):
            assert client.get(f"/apps/{shop.id}/staff").error == (403, "forbidden")


def test_a_page_reads_ranges_of_an_index(admin, agent, shop):
    User.insert_many({"email": f"{number}@example.com"} for number in range(300)).execute()
    db.database.execute_sql('ANALYZE "user"')
    cursor = agent.get(f"/apps/{shop.id}/staff?per_page=1").meta["next_cursor"]
    for query in ("", f"?cursor={cursor}"):
        with statements() as seen:
            assert agent.get(f"/apps/{shop.id}/staff{query}").data
        plans = [query_plan(*statement) for statement in seen if "first_name" in statement[0]]
        assert [plan.ranges for plan in plans][-2:] == [["user_of_app"], ["user_of_role"]], plans
