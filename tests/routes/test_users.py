"""Users: management by admins."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from service import clock, db
from service.auth import passwords
from service.models import (
    TABLES,
    App,
    AuditLog,
    ChatSession,
    DeviceAuthorization,
    IdempotencyKey,
    LoginSession,
    MessageImage,
    Notification,
    ReadMarker,
    User,
    user_deletion,
)
from tests.support.access import create_rows
from tests.support.client import Client, walk
from tests.support.observe import nothing_changes
from tests.support.passwords import PASSWORD

pytestmark = pytest.mark.database

Person = Callable[..., Client]
NEW = {"email": "New@Example.com", "password": "long enough"}


def emails(client: Client, **query: Any) -> list[str]:
    return [row["email"].partition("@")[0] for row in walk(client, "/users", **query)]


def test_other_roles_are_forbidden(alice: Client, agent: Client, admin: Client) -> None:
    for client in (alice, agent):
        with nothing_changes():
            assert client.get("/users").error == (403, "forbidden")
            assert client.post("/users", NEW).error == (403, "forbidden")
            for id in (admin.user.id, client.user.id):
                assert client.get(f"/users/{id}").error == (403, "forbidden")
                assert client.patch(f"/users/{id}", {"role": "admin"}).error == (403, "forbidden")
                assert client.delete(f"/users/{id}").error == (403, "forbidden")


def test_unknown_user_is_404(admin: Client) -> None:
    with nothing_changes():
        for method, body in (("GET", None), ("PATCH", {"first_name": "A"}), ("DELETE", None)):
            assert admin.call(method, f"/users/{clock.uuid()}", body).error == (404, "user_not_found")


class TestList:
    def test_has_all_users_by_address_in_pages(self, admin: Client, person: Person, shop: App) -> None:
        for name in ("bob", "alice", "carl"):
            person(name)
        assert emails(admin, limit=2) == emails(admin) == ["ada", "alice", "bob", "carl"]
        assert admin.get("/users?limit=101").json["meta"]["per_page"] == 100

    def test_has_filters(self, admin: Client, alice: Client, agent: Client, other_agent: Client, shop: App) -> None:
        User.update(is_disabled=True).where(User.id == alice.user.id).execute()
        assert emails(admin, role="agent") == ["agnes", "otto"]
        assert emails(admin, app_id=shop.id.upper()) == ["agnes"]
        assert emails(admin, state="disabled") == ["alice"]
        assert emails(admin, state="enabled") == ["ada", "agnes", "otto"]
        assert emails(admin, role="agent", app_id=shop.id, state="disabled") == []
        for query in ("role=boss", "app_id=x", "state=perhaps"):
            assert admin.get(f"/users?{query}").error == (400, "invalid_parameter")

    @pytest.mark.parametrize("text", ["ÉLODIE", "elodie@", "dupont", " zoë ", "EXAMPLE.COM"])
    def test_finds_text_in_address_and_names_in_any_case(self, admin: Client, person: Person, text: str) -> None:
        person("elodie")
        User.get(User.email == "elodie@example.com").change(
            admin.user.id, {"first_name": "Élodie", "last_name": "Dupont", "display_name": "Zoë"}
        )
        assert "elodie" in emails(admin, search=quote(text))
        assert ("ada" in emails(admin, search=quote(text))) == (text == "EXAMPLE.COM")

    def test_search_takes_wildcards_literally_and_does_not_cross_columns(self, admin: Client, person: Person) -> None:
        person("bob")
        for text in ("%", "b_b", "example.com\nbob", "combob"):
            assert emails(admin, search=quote(text)) == []

    def test_search_follows_a_change_of_the_profile(self, admin: Client, alice: Client) -> None:
        alice.patch("/users/me", {"display_name": "Wonder"})
        assert emails(admin, search="wonder") == ["alice"]
        alice.patch("/users/me", {"display_name": None})
        assert emails(admin, search="wonder") == []

    def test_has_no_secrets(self, admin: Client, alice: Client) -> None:
        [row] = admin.get("/users?search=alice").data
        assert row == {
            "id": alice.user.id,
            "email": "alice@example.com",
            "first_name": "Alice",
            "last_name": "",
            "display_name": "",
            "role": "user",
            "app_id": None,
            "is_disabled": False,
            "created_at": alice.user.created_at,
            "last_login_at": None,
            "profile_image": "",
        }
        assert admin.get(f"/users/{alice.user.id.upper()}").data == row


class TestCreation:
    def test_creates_a_user_who_can_log_in(self, admin: Client, shop: App) -> None:
        created = admin.post("/users", {**NEW, "role": "agent", "app_id": shop.id, "first_name": "Nia"})
        assert created.status == 201
        assert (created.data["email"], created.data["role"], created.data["app_id"]) == (
            "new@example.com",
            "agent",
            shop.id,
        )
        user = User.get_by_id(created.data["id"])
        assert (user.user_type, user.first_name) == ("staff", "Nia")
        assert passwords.is_correct("long enough", user.password_hash)
        login = {"email": "new@example.com", "password": "long enough"}
        assert Client(admin.application).post("/auth/login", login).status == 200

    @pytest.mark.parametrize(
        ("body", "error"),
        [
            ({"password": "short"}, (400, "invalid_body")),
            ({"email": "x"}, (400, "invalid_body")),
            ({"role": "boss"}, (400, "invalid_body")),
            ({"role": "agent"}, (400, "invalid_body")),
            ({"role": "user", "app_id": "SHOP"}, (400, "invalid_body")),
            ({"role": "agent", "app_id": clock.uuid()}, (404, "app_not_found")),
            ({"first_name": "n" * 101}, (400, "invalid_body")),
            ({"email": "ADA@example.com"}, (400, "user_exists")),
        ],
    )
    def test_invalid_body_creates_nothing(
        self, admin: Client, shop: App, body: dict[str, Any], error: tuple[int, str]
    ) -> None:
        body = {**body, "app_id": shop.id} if body.get("app_id") == "SHOP" else body
        with nothing_changes():
            assert admin.post("/users", {**NEW, **body}).error == error

    def test_repeated_request_with_a_key_creates_one(self, admin: Client) -> None:
        sent = [admin.post("/users", NEW, idempotency_key="k").data for _ in range(2)]
        assert sent[0] == sent[1]
        assert "long enough" not in IdempotencyKey.get().body


class TestChanges:
    def test_are_returned_and_stored(self, admin: Client, alice: Client) -> None:
        changed = admin.patch(f"/users/{alice.user.id}", {"first_name": "Al", "display_name": "A."}).data
        assert (changed["first_name"], changed["display_name"]) == ("Al", "A.")
        assert admin.get(f"/users/{alice.user.id}").data == changed
        assert admin.patch(f"/users/{alice.user.id}", {"display_name": ""}).data["display_name"] == ""

    def test_a_role_determines_whether_the_user_has_an_app(self, admin: Client, alice: Client, shop: App) -> None:
        path = f"/users/{alice.user.id}"
        with nothing_changes():
            assert admin.patch(path, {"role": "agent"}).error == (400, "invalid_body")
            assert admin.patch(path, {"app_id": shop.id}).error == (400, "invalid_body")
            assert admin.patch(path, {"role": "agent", "app_id": clock.uuid()}).error == (404, "app_not_found")
        agent = admin.patch(path, {"role": "agent", "app_id": shop.id}).data
        assert (agent["role"], agent["app_id"], User.get_by_id(alice.user.id).user_type) == ("agent", shop.id, "staff")
        with nothing_changes():
            for missing in (None, ""):
                assert admin.patch(path, {"app_id": missing}).error == (400, "invalid_body")
        user = admin.patch(path, {"role": "user"}).data
        assert (user["role"], user["app_id"], User.get_by_id(alice.user.id).user_type) == ("user", None, "customer")
        assert admin.patch(path, {"app_id": ""}).data == user

    def test_a_role_takes_effect_at_once(self, admin: Client, agent: Client, session: ChatSession) -> None:
        assert agent.get(f"/chats/{session.id}").status == 200
        admin.patch(f"/users/{agent.user.id}", {"role": "user"})
        assert agent.get(f"/chats/{session.id}").error == (403, "forbidden")

    def test_a_disabled_user_is_signed_out(self, admin: Client, alice: Client) -> None:
        path = f"/users/{alice.user.id}"
        assert admin.patch(path, {"is_disabled": True}).data["is_disabled"] is True
        assert alice.get("/users/me").error == (401, "invalid_token")
        assert (
            not LoginSession.select()
            .where(LoginSession.user_id == alice.user.id, LoginSession.ended_at.is_null())
            .exists()
        )
        assert admin.patch(path, {"is_disabled": False}).data["is_disabled"] is False
        assert alice.get("/users/me").error == (401, "invalid_token")
        login = {"email": alice.user.email, "password": PASSWORD}
        assert Client(admin.application).post("/auth/login", login).status == 200

    def test_without_an_effect_write_nothing(self, admin: Client, alice: Client) -> None:
        with nothing_changes():
            admin.patch(f"/users/{alice.user.id}", {})
            admin.patch(f"/users/{alice.user.id}", {"first_name": "Alice", "role": "user", "is_disabled": False})

    def test_keep_other_columns(self, admin: Client, alice: Client) -> None:
        before = User.get_by_id(alice.user.id).__data__
        admin.patch(f"/users/{alice.user.id}", {"last_name": "New"})
        after = User.get_by_id(alice.user.id).__data__
        assert {name for name in after if after[name] != before[name]} == {"last_name", "search_text"}


class TestTheLastAdmin:
    @pytest.mark.parametrize("change", [{"is_disabled": True}, {"role": "user"}])
    def test_cannot_be_disabled_or_demoted(self, admin: Client, person: Person, change: dict[str, Any]) -> None:
        person("old", role="admin", is_disabled=True)
        path = f"/users/{admin.user.id}"
        with nothing_changes():
            assert admin.patch(path, change).error == (400, "last_admin")
        person("second", role="admin")
        assert admin.patch(path, change).status == 200

    def test_cannot_be_deleted(self, admin: Client, person: Person) -> None:
        with nothing_changes():
            assert admin.delete(f"/users/{admin.user.id}").error == (400, "last_admin")
        second = person("second", role="admin")
        assert second.delete(f"/users/{admin.user.id}").data == {"deleted": True}
        assert admin.get("/users").error == (401, "invalid_token")

    def test_can_be_renamed(self, admin: Client) -> None:
        assert admin.patch(f"/users/{admin.user.id}", {"first_name": "Ada", "last_name": "L."}).status == 200


def rows_with(text: str) -> set[str]:
    """Return the tables that have a row with a text in any column."""
    found = set()
    for table in TABLES:
        for row in db.database.execute_sql(f'SELECT * FROM "{table._meta.table_name}"').fetchall():
            if any(text in str(value) for value in row):
                found.add(table.__name__)
    return found


class TestDeletion:
    @pytest.fixture
    def own_data(self, alice: Client, agent: Client, session: ChatSession, say: Any) -> None:
        """Rows of every kind of Alice, and a chat with the agent."""
        with db.write():
            create_rows(alice.user)
            create_rows(agent.user)
        first = say("Hello", sender_id=alice.user.id)
        say("Note", is_private=True, sender_id=agent.user.id)
        agent.post(f"/chats/{session.id}/messages", {"content": {"text": "Hi"}})
        alice.post(f"/chats/{session.id}/messages", {"content": {"text": "secret"}, "reply_to_message_id": first.id})
        alice.post("/feedback", {"description": "Fine"}, idempotency_key="k")

    @pytest.mark.usefixtures("own_data")
    def test_deletes_all_rows_but_the_audit_log(self, admin: Client, alice: Client, session: ChatSession) -> None:
        assert Notification.select().where(Notification.session_id == session.id).exists()
        assert rows_with(alice.user.id) > {"User", "ChatSession", "Message", "LoginSession", "Event", "Avatar"}
        assert admin.delete(f"/users/{alice.user.id}").data == {"deleted": True}
        assert rows_with(alice.user.id) == {"AuditLog"}
        assert rows_with(session.id) == set()
        assert rows_with("alice@example.com") == rows_with("secret") == set()
        assert rows_with("of Alice") == {"AuditLog"}  # the name of a server
        assert admin.delete(f"/users/{alice.user.id}").error == (404, "user_not_found")
        AuditLog.verify()

    @pytest.mark.usefixtures("own_data")
    def test_keeps_the_rows_of_other_users(self, admin: Client, alice: Client, agent: Client) -> None:
        before = {name: rows_with("of Agnes") for name in ("of Agnes",)}
        assert before["of Agnes"]
        admin.delete(f"/users/{alice.user.id}")
        assert {name: rows_with(name) for name in before} == before
        assert agent.get("/users/me").status == agent.get("/chats").status == 200

    @pytest.mark.usefixtures("own_data")
    def test_of_staff_keeps_their_messages_in_chats_of_others(
        self, admin: Client, alice: Client, agent: Client, session: ChatSession
    ) -> None:
        before = [message["id"] for message in walk(alice, f"/chats/{session.id}/messages")]
        admin.delete(f"/users/{agent.user.id}")
        after = walk(alice, f"/chats/{session.id}/messages")
        assert [message["id"] for message in after] == before
        assert agent.user.id in {message["sender_id"] for message in after}
        assert rows_with(agent.user.id) == {"AuditLog", "Message"}
        assert not ReadMarker.select().where(ReadMarker.user_id == agent.user.id).exists()

    @pytest.mark.usefixtures("own_data")
    def test_continues_after_an_interruption(
        self, admin: Client, alice: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(user_deletion, "BATCH_SIZE", 1)
        delete, left = user_deletion._delete, [3]

        def interrupted(*arguments: Any) -> None:
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            delete(*arguments)

        monkeypatch.setattr(user_deletion, "_delete", interrupted)
        with pytest.raises(KeyboardInterrupt):
            user_deletion.delete_user(User.get_by_id(alice.user.id), admin.user.id)
        assert User.get_by_id(alice.user.id).is_disabled
        assert ChatSession.select().exists()
        monkeypatch.setattr(user_deletion, "_delete", delete)
        assert admin.delete(f"/users/{alice.user.id}").status == 200
        assert rows_with(alice.user.id) == {"AuditLog"}

    def test_covers_every_reference(self) -> None:
        """Every table with a reference to a user is found by its declaration."""
        referring = {table.__name__ for table, _ in user_deletion.references_to(User)}
        named = {table.__name__ for table in TABLES if "user_id" in table._meta.sorted_field_names}
        assert referring >= named

    def test_clears_assignments_and_deletes_requests_of_other_devices(
        self, admin: Client, agent: Client, session: ChatSession
    ) -> None:
        agent.put(f"/chats/{session.id}/assignee", {"user_id": agent.user.id})
        columns = {"user_code": "u", "expires_at": clock.now() + 1000, "user_id": agent.user.id, "install_name": "i"}
        numbers = dict.fromkeys(("created_at", "poll_interval", "polled_at"), 0)
        texts = dict.fromkeys(("network", "scope", "scopes", "install_id"), "")
        DeviceAuthorization.create(id="d", **columns, **numbers, **texts)
        assert admin.delete(f"/users/{agent.user.id}").status == 200
        assert ChatSession.get_by_id(session.id).assignee_id is None
        assert DeviceAuthorization.find("d") is None

    def test_of_staff_keeps_their_pictures_in_chats_of_others(
        self, admin: Client, agent: Client, alice: Client, session: ChatSession, say: Any
    ) -> None:
        message = say("Look", sender_id=agent.user.id)
        columns = {"chat_session_id": session.id, "user_id": agent.user.id, "image": ""}
        sent = MessageImage.create(message_id=message.id, **columns)
        unsent = MessageImage.create(**columns)
        assert admin.delete(f"/users/{agent.user.id}").status == 200
        assert MessageImage.get_by_id(sent.id).user_id == alice.user.id
        assert MessageImage.find(unsent.id) is None
