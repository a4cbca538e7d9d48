"""Apps and their bots: creation and changes by staff."""

import json
from typing import Any

import pytest

from service.models import App, AuditLog, Bot, LoginSession
from service.models.bots import WRITABLE
from tests.support.client import Client, walk
from tests.support.observe import nothing_changes

pytestmark = pytest.mark.database


class TestListOfApps:
    def test_has_all_apps_by_name_for_admins(self, admin: Client, shop: App, other_shop: App) -> None:
        App.create(name="A")
        names = [row["name"] for row in walk(admin, "/apps", per_page=1)]
        assert names == sorted([shop.name, other_shop.name, "A"])

    def test_has_the_own_app_for_agents_and_none_for_customers(
        self, agent: Client, alice: Client, shop: App, other_shop: App
    ) -> None:
        assert agent.get("/apps").data == [{"id": shop.id, "name": shop.name}] == [agent.get(f"/apps/{shop.id}").data]
        assert alice.get("/apps").data == []
        alice.user.app_id = shop.id  # a customer who was an agent
        alice.user.save()
        assert alice.get("/apps").data == []


class TestApps:
    def test_can_be_created_and_renamed_by_admins(self, admin: Client) -> None:
        created = admin.post("/apps", {"name": "New"}).data
        assert created == admin.get(f"/apps/{created['id']}").data == {"id": created["id"], "name": "New"}
        assert admin.patch(f"/apps/{created['id']}", {"name": "Newer"}).data["name"] == "Newer"
        assert admin.patch(f"/apps/{created['id']}", {}).data["name"] == "Newer"

    @pytest.mark.parametrize("body", [{}, {"name": ""}, {"name": None}, {"name": 1}, {"name": "n" * 201}])
    def test_need_a_name(self, admin: Client, shop: App, body: Any) -> None:
        with nothing_changes():
            assert admin.post("/apps", body).error == (400, "invalid_body")
            if body:
                assert admin.patch(f"/apps/{shop.id}", body).error == (400, "invalid_body")

    def test_cannot_be_changed_by_other_users(self, agent: Client, alice: Client, shop: App) -> None:
        with nothing_changes():
            for client in (agent, alice):
                assert client.post("/apps", {"name": "New"}).error == (403, "forbidden")
                assert client.patch(f"/apps/{shop.id}", {"name": "New"}).error == (403, "forbidden")

    def test_an_admin_who_loses_the_role_loses_access(self, admin: Client) -> None:
        admin.user.role = "user"
        admin.user.save()
        assert admin.post("/apps", {"name": "New"}).error == (403, "forbidden")

    def test_repeated_request_with_a_key_creates_one(self, admin: Client) -> None:
        sent = [admin.post("/apps", {"name": "New"}, idempotency_key="k").data for _ in range(2)]
        assert sent[0] == sent[1]
        assert App.select().where(App.name == "New").count() == 1


class TestBots:
    def test_can_be_created_with_every_member(self, agent: Client, alice: Client, shop: App) -> None:
        members = {
            **{name: name for name in WRITABLE if name not in ("kind", "status", "presence")},
            "kind": "bot",
            "status": "published",
            "presence": "away",
            "is_active": True,
            "is_featured": True,
            "rating": 4.5,
            "country": "de",
            "contact_email": "A@example.com",
            "social_links": {"a": "b"},
            **dict.fromkeys(("cover_url", "icon_url", "contact_website"), "https://a.example/b"),
        }
        created = agent.post(f"/apps/{shop.id}/bots", members)
        assert created.status == 201
        stored = {"country": "DE", "contact_email": "a@example.com", "social_links": list(b'{"a":"b"}')}
        assert {name: created.data[name] for name in members} == members | stored
        assert created.data == agent.get(f"/apps/{shop.id}/bots/{created.data['id']}").data
        assert [row["id"] for row in alice.get(f"/bots?app_id={shop.id}&search=TAGLINE").data] == [created.data["id"]]

    def test_have_the_defaults_of_the_specification(self, agent: Client, alice: Client, shop: App) -> None:
        created = agent.post(f"/apps/{shop.id}/bots", {"name": "New"}).data
        assert (created["kind"], created["status"], created["presence"]) == ("nobot", "draft", "offline")
        assert alice.get(f"/bots/{created['id']}?app_id={shop.id}").error == (404, "bot_not_found")

    def test_can_be_changed(self, agent: Client, alice: Client, bot: Bot) -> None:
        path = f"/apps/{bot.app_id}/bots/{bot.id}"
        before = agent.get(path).data
        changed = agent.patch(path, {"name": "Xaver", "city": "Köln", "kind": None}).data
        differing = {name for name in changed if changed[name] != before[name]}
        assert differing - {"kind"} == {"name", "city", "updated_at"}
        assert changed["kind"] == "nobot"
        assert [row["id"] for row in alice.get(f"/bots?app_id={bot.app_id}&search=xaver").data] == [bot.id]
        assert agent.patch(path, {"name": "Xaver"}).data == changed

    @pytest.mark.parametrize(
        "body",
        [
            {"name": ""},
            {"name": None},
            {"kind": "robot"},
            {"rating": "5"},
            {"country": "Germany"},
            {"contact_email": "no address"},
            {"cover_url": "javascript:alert(1)"},
            {"description": "d" * 10_001},
            {"is_active": "yes"},
        ],
    )
    def test_refuse_invalid_members(self, agent: Client, bot: Bot, body: Any) -> None:
        with nothing_changes():
            assert agent.patch(f"/apps/{bot.app_id}/bots/{bot.id}", body).error == (400, "invalid_body")
            assert agent.post(f"/apps/{bot.app_id}/bots", {"name": "New", **body}).error == (400, "invalid_body")

    def test_of_another_app_cannot_be_changed(
        self, agent: Client, other_agent: Client, alice: Client, bot: Bot, other_shop: App
    ) -> None:
        with nothing_changes():
            for client in (other_agent, alice):
                assert client.post(f"/apps/{bot.app_id}/bots", {"name": "New"}).error == (403, "forbidden")
                assert client.patch(f"/apps/{bot.app_id}/bots/{bot.id}", {"name": "New"}).error == (403, "forbidden")
            path = f"/apps/{other_shop.id}/bots/{bot.id}"
            assert other_agent.patch(path, {"name": "New"}).error == (404, "bot_not_found")

    def test_stay_in_their_app(self, agent: Client, bot: Bot, other_shop: App) -> None:
        body = {"app_id": other_shop.id, "id": other_shop.id, "search_text": "x"}
        with nothing_changes():
            assert agent.patch(f"/apps/{bot.app_id}/bots/{bot.id}", body).data["app_id"] == bot.app_id

    @pytest.mark.parametrize(("scopes", "result"), [("bots", 200), ("bots:read", 403), ("chats", 403)])
    def test_require_the_scope(self, agent: Client, bot: Bot, scopes: str, result: int) -> None:
        LoginSession.update(scopes=scopes).execute()
        assert agent.patch(f"/apps/{bot.app_id}/bots/{bot.id}", {"city": "Ulm"}).status == result


def test_audit_log_has_the_names_of_changed_columns_only(admin: Client, bot: Bot) -> None:
    path = f"/apps/{bot.app_id}/bots/{bot.id}"
    for _ in range(2):
        admin.patch(path, {"contact_phone": "+4912345", "city": "Ulm"})
    (entry,) = AuditLog.select().where(AuditLog.kind == "bot_changed")
    assert (entry.actor_id, entry.subject_id) == (admin.user.id, bot.id)
    assert json.loads(entry.details) == {"app": bot.app_id, "columns": ["city", "contact_phone"]}
