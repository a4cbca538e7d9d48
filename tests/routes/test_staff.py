"""Operations of staff on bots and feedback, their effects for customers, and the removal of avatars."""

import json
from typing import Any

import pytest

from service import clock
from service.models import Avatar, Bot, Feedback, LoginSession, User
from service.operate import import_export
from service.pictures import make_avatar
from tests.support.client import Client, walk
from tests.support.observe import at_once, nothing_changes, query_plan, statements
from tests.support.sample_data import picture
from tests.support.sample_operations import UNKNOWN_ID

pytestmark = pytest.mark.usefixtures("host_clock")  # first, so that all tokens are issued at its time

NOW = "2026-11-20T10:00:00.000Z"
LATER = "2026-11-20T10:01:00.000Z"
STATUSES, PRESENCES = ("draft", "published"), ("online", "away", "rsvp", "offline")


def address(bot, member=""):
    return f"/apps/{bot.app_id}/bots/{bot.id}/{member}"


def published_ids(client, bot):
    """Return the identifiers of the bots in the public list."""
    return [row["id"] for row in walk(client, "/bots", app_id=bot.app_id)]


def get_bot(client, bot):
    return client.get(f"/bots/{bot.id}?app_id={bot.app_id}")


class TestBotsOfAnApp:
    def test_are_all_listed_for_staff_by_name(self, agent, admin, shop, other_shop):
        for name, columns in {
            "b": {"status": "published"},
            "a": {"status": "draft"},
            "d": {"status": "published", "is_active": False},
            "c": {"status": "published", "is_featured": True, "rating": 5.0},
        }.items():
            Bot.create(app_id=shop.id, name=name, **columns)
        Bot.create(app_id=other_shop.id, name="foreign", status="published")
        for who in (agent, admin):
            assert [row["name"] for row in walk(who, f"/apps/{shop.id}/bots", per_page=1)] == ["a", "b", "c", "d"]
        assert [row["name"] for row in walk(admin, f"/apps/{other_shop.id}/bots")] == ["foreign"]

    def test_have_the_same_members_as_for_customers(self, agent, bot):
        (row,) = agent.get(f"/apps/{bot.app_id}/bots").data
        assert row == get_bot(agent, bot).data

    @pytest.mark.parametrize(
        ("query", "names"),
        [
            ("status=draft", ["Äpfel"]),
            ("status=published", ["Hilda", "Otto"]),
            ("kind=bot", ["Hilda"]),
            ("kind=nobot&status=draft", ["Äpfel"]),
            ("search=%C3%A4PFEL", ["Äpfel"]),
            ("search=%20", ["Hilda", "Otto", "Äpfel"]),
            ("search=100%25", []),
            ("per_page=2", ["Hilda", "Otto"]),
        ],
    )
    def test_can_be_filtered(self, agent, bot, shop, query, names):
        Bot.create(app_id=shop.id, name="Otto", status="published")
        Bot.create(app_id=shop.id, name="Äpfel")
        assert [row["name"] for row in agent.get(f"/apps/{shop.id}/bots?{query}").data] == names

    @pytest.mark.parametrize(
        "query", ["status=", "status=gone", "kind=", "cursor=x", "per_page=x", "kind=bot&kind=bot"]
    )
    def test_invalid_filters_are_400(self, agent, shop, query):
        assert agent.get(f"/apps/{shop.id}/bots?{query}").status == 400

    def test_other_users_are_forbidden(self, alice, other_agent, anyone, shop):
        for who in (alice, other_agent):
            assert who.get(f"/apps/{shop.id}/bots?status=gone").error == (403, "forbidden")
            assert who.get(f"/apps/{UNKNOWN_ID}/bots").error == (404, "app_not_found")
            assert who.get("/apps/x/bots").error == (400, "invalid_id")
        assert anyone.get("/apps/x/bots").error == (401, "missing_credentials")

    def test_cursor_of_another_app_is_400(self, admin, bot, shop, other_shop):
        Bot.create(app_id=shop.id, name="Otto")
        cursor = admin.get(f"/apps/{shop.id}/bots?per_page=1").meta["next_cursor"]
        assert admin.get(f"/apps/{other_shop.id}/bots?cursor={cursor}").error == (400, "invalid_cursor")

    def test_are_read_in_index_order(self, agent, bot):
        with statements() as seen:
            agent.get(f"/apps/{bot.app_id}/bots")
        sql, values = next((sql, values) for sql, values in seen if "row" in sql)
        plan = query_plan(sql, values)
        assert (plan.ranges, plan.sorts) == (["bot_app_id_name_id"], False), plan


class TestPublishing:
    def test_shows_and_hides_a_bot_at_once(self, agent, alice, shop, host_clock):
        bot = Bot.create(app_id=shop.id, name="Otto")
        assert published_ids(alice, bot) == []
        host_clock.forward(minutes=1)
        result = agent.put(address(bot, "status"), {"status": "published"}).data
        assert (result["id"], result["status"], result["created_at"], result["updated_at"]) == (
            bot.id,
            "published",
            NOW,
            LATER,
        )
        assert published_ids(alice, bot) == [bot.id]
        assert get_bot(alice, bot).data == result
        assert agent.put(address(bot, "status"), {"status": "draft"}).data["status"] == "draft"
        assert published_ids(alice, bot) == []
        assert get_bot(alice, bot).error == (404, "bot_not_found")

    def test_does_not_show_inactive_bots(self, admin, alice, shop):
        bot = Bot.create(app_id=shop.id, name="Otto", is_active=False)
        assert admin.put(address(bot, "status"), {"status": "published"}).data["is_active"] is False
        assert published_ids(alice, bot) == []

    def test_changes_only_status_and_updated_at(self, agent, bot, host_clock):
        before = Bot.get_by_id(bot.id).__data__
        host_clock.forward(minutes=1)
        agent.put(address(bot, "status"), {"status": "draft", "name": "Eve", "is_active": False, "app_id": UNKNOWN_ID})
        assert Bot.get_by_id(bot.id).__data__ == before | {"status": "draft", "updated_at": LATER}


@pytest.mark.parametrize(("member", "values"), [("status", STATUSES), ("presence", PRESENCES)])
class TestStatusAndPresence:
    def test_can_change_from_every_value_to_every_value(self, agent, admin, bot, member, values):
        for before in values:
            for after in values:
                Bot.update({member: before}).where(Bot.id == bot.id).execute()
                for who in (agent, admin):
                    assert who.put(address(bot, member), {member: after}).data[member] == after
                assert getattr(Bot.get_by_id(bot.id), member) == after

    def test_same_value_changes_nothing(self, agent, bot, host_clock, member, values):
        first = agent.put(address(bot, member), {member: values[0]})
        host_clock.forward(minutes=1)
        with nothing_changes():
            assert agent.put(address(bot, member), {member: values[0]}).raw == first.raw

    @pytest.mark.parametrize("value", ["", "Draft", "busy", None, 1, ["draft"]])
    def test_other_values_are_400(self, agent, bot, member, values, value):
        with nothing_changes():
            assert agent.put(address(bot, member), {member: value}).error == (400, "invalid_body")
            assert agent.put(address(bot, member), {}).error == (400, "invalid_body")

    def test_only_staff_of_the_app_can_change_it(self, alice, other_agent, anyone, bot, person, member, values):
        body = {member: values[-1]}
        agent_without_app, former = person("ann", role="agent"), person("carl", role="user", app_id=bot.app_id)
        with nothing_changes(Bot):
            for who in (alice, other_agent, agent_without_app, former):
                assert who.put(address(bot, member), body).error == (403, "forbidden")
                assert who.put(address(bot, member), raw=b"{").error == (403, "forbidden")
            assert anyone.put(address(bot, member), body).error == (401, "missing_credentials")

    def test_bot_must_belong_to_the_app(self, admin, other_agent, bot, other_shop, member, values):
        foreign = f"/apps/{other_shop.id}/bots/{bot.id}/{member}"
        with nothing_changes():
            for who in (admin, other_agent):
                assert who.put(foreign, {member: values[0]}).error == (404, "bot_not_found")
            assert admin.put(f"/apps/{bot.app_id}/bots/{UNKNOWN_ID}/{member}", raw=b"{").error == (404, "bot_not_found")
            assert admin.put(f"/apps/{UNKNOWN_ID}/bots/{bot.id}/{member}", {}).error == (404, "app_not_found")
            assert admin.put(f"/apps/{bot.app_id}/bots/{{1}}/{member}", {}).error == (400, "invalid_id")

    def test_former_staff_cannot_change_it(self, agent, bot, member, values):
        User.update(role="user").where(User.id == agent.user.id).execute()
        with nothing_changes():
            assert agent.put(address(bot, member), {member: values[0]}).error == (403, "forbidden")
        agent.user.disable()
        assert agent.put(address(bot, member), {member: values[0]}).error == (401, "invalid_token")

    @pytest.mark.parametrize(("scopes", "result"), [("bots", 200), ("bots:read", 403), ("chats", 403)])
    def test_requires_the_scope_bots(self, agent, bot, member, values, scopes, result):
        LoginSession.update(scopes=scopes).execute()
        assert agent.put(address(bot, member), {member: values[0]}).status == result
        assert agent.get(f"/apps/{bot.app_id}/bots").status == (403 if scopes == "chats" else 200)

    def test_concurrent_changes_succeed(self, agent, bot, member, values):
        result = at_once(4, lambda number: agent.put(address(bot, member), {member: values[number % 2]}).status)
        assert result == [200] * 4
        assert getattr(Bot.get_by_id(bot.id), member) in values[:2]


def test_bot_changed_by_staff_is_found_by_search(agent, alice, shop):
    bot = Bot.create(app_id=shop.id, name="Käthe", tagline="Cats")
    agent.put(address(bot, "status"), {"status": "published"})
    assert [row["id"] for row in alice.get(f"/bots?app_id={shop.id}&search=CATS").data] == [bot.id]


def submit_feedback(client: Client, description: str, **members: Any) -> str:
    """Submit feedback; return its identifier."""
    return str(client.post("/feedback", {"description": description, **members}).data["id"])


def descriptions(client, query=""):
    """Return the descriptions of the listed feedback."""
    return [row["description"] for row in client.get(f"/feedback{query}").data]


class TestListOfFeedback:
    def test_has_feedback_of_the_caller_newest_first(self, alice, bob, host_clock):
        for number in range(3):
            submit_feedback(alice, str(number))
            submit_feedback(bob, "Bob's")
            host_clock.forward(seconds=1)
        assert descriptions(alice) == ["2", "1", "0"]

    def test_has_the_records_as_submitted(self, alice):
        created = alice.post("/feedback", {"description": "x", "device_info": {"os": "Plan 9"}}).data
        assert alice.get("/feedback").data == [created]

    def test_pages_have_no_gaps_with_equal_times(self, alice):
        for number in range(7):
            submit_feedback(alice, str(number))
        found = walk(alice, "/feedback", limit=3)
        assert sorted(row["description"] for row in found) == [*"0123456"]
        assert found == sorted(found, key=lambda row: row["id"], reverse=True)

    @pytest.mark.parametrize(("requested", "used"), [("25", 25), ("100", 100), ("101", 100), ("0", 1)])
    def test_page_has_at_most_100_records(self, alice, requested, used):
        assert alice.get(f"/feedback?limit={requested}").meta == {"next_cursor": "", "per_page": used}
        assert alice.get("/feedback").meta["per_page"] == 25

    def test_empty_status_does_not_filter(self, alice):
        submit_feedback(alice, "one")
        assert alice.get("/feedback?status=").data == alice.get("/feedback").data != []

    @pytest.mark.parametrize("query", ["status=two+words", "everybody=maybe", "cursor=x", "limit=x"])
    def test_invalid_parameters_are_400(self, alice, query):
        assert alice.get(f"/feedback?{query}").status == 400

    def test_of_all_users_is_for_admins(self, alice, bob, admin, agent, host_clock):
        submit_feedback(alice, "Alice's")
        host_clock.forward(seconds=1)
        submit_feedback(bob, "Bob's")
        assert descriptions(admin) == []
        assert descriptions(admin, "?everybody=true") == ["Bob's", "Alice's"]
        for who in (alice, bob, agent):
            assert who.get("/feedback?everybody=true").error == (403, "forbidden")
            assert who.get("/feedback?everybody=true&status=done&limit=1").error == (403, "forbidden")

    def test_can_be_filtered_by_status(self, alice, admin):
        one, _ = submit_feedback(alice, "one"), submit_feedback(alice, "two")
        admin.patch(f"/feedback/{one}", {"status": "done"})
        assert descriptions(alice, "?status=done") == descriptions(admin, "?status=done&everybody=1") == ["one"]
        assert descriptions(alice, "?status=new") == ["two"]
        assert descriptions(alice, "?status=imported_word") == []

    def test_cursor_of_another_user_or_list_is_400(self, alice, admin):
        for _ in range(2):
            submit_feedback(admin, "x")
        own = admin.get("/feedback?limit=1").meta["next_cursor"]
        all_ = admin.get("/feedback?limit=1&everybody=true").meta["next_cursor"]
        for who, query in (
            (alice, f"cursor={own}"),
            (admin, f"cursor={all_}"),
            (admin, f"everybody=true&cursor={own}"),
        ):
            assert who.get(f"/feedback?{query}").error == (400, "invalid_cursor")

    @pytest.mark.parametrize("query", ["", "?everybody=true", "?everybody=true&status=new", "?status=new"])
    def test_is_read_in_index_order(self, admin, query):
        with statements() as seen:
            admin.get(f"/feedback{query}")
        sql, values = next((sql, values) for sql, values in seen if "row" in sql)
        plan = query_plan(sql, values)
        assert not plan.sorts and any("feedback" in step for step in plan.steps), plan


class TestStatusOfFeedback:
    def test_admins_can_change_it_from_every_status_to_every_status(self, alice, admin, host_clock):
        id = submit_feedback(alice, "x")
        values = ("new", "seen", "in_progress", "done", "declined")
        for before in (*values, "imported"):
            for after in values:
                Feedback.update(status=before, updated_at=NOW).where(Feedback.id == id).execute()
                host_clock.forward(seconds=1)
                row = admin.patch(f"/feedback/{id}", {"status": after}).data
                assert (row["status"], row["updated_at"]) == (after, NOW if before == after else clock.timestamp())
                assert alice.get("/feedback").data == [row]

    def test_its_author_is_notified(self, alice, admin):
        id = submit_feedback(alice, "x")
        admin.patch(f"/feedback/{id}", {"status": "in_progress"})
        admin.patch(f"/feedback/{id}", {"status": "in_progress"})
        (notification,) = alice.get("/notifications").data
        assert (notification["type"], notification["title"]) == ("feedback_status", "Your feedback is in progress")

    def test_an_admin_who_changes_the_own_feedback_is_not_notified(self, admin):
        id = submit_feedback(admin, "x")
        admin.patch(f"/feedback/{id}", {"status": "done"})
        assert admin.get("/notifications").data == []

    def test_changes_only_status_and_updated_at(self, alice, admin, host_clock):
        before = alice.post("/feedback", {"description": "x", "app_version": "1"}).data
        host_clock.forward(minutes=1)
        after = admin.patch(
            f"/feedback/{before['id']}", {"status": "seen", "description": "y", "user_id": UNKNOWN_ID}
        ).data
        assert after == before | {"status": "seen", "updated_at": LATER}

    def test_repetition_keeps_updated_at(self, alice, admin, host_clock):
        id = submit_feedback(alice, "x")
        first = admin.patch(f"/feedback/{id}", {"status": "done"})
        host_clock.forward(minutes=1)
        with nothing_changes():
            assert admin.patch(f"/feedback/{id}", {"status": "done"}).raw == first.raw

    @pytest.mark.parametrize("status", ["", "Done", "finished", None, 1, ["done"]])
    def test_other_values_are_400(self, alice, admin, status):
        id = submit_feedback(alice, "x")
        with nothing_changes():
            assert admin.patch(f"/feedback/{id}", {"status": status}).error == (400, "invalid_body")
            assert admin.patch(f"/feedback/{id}", {}).error == (400, "invalid_body")

    def test_other_roles_are_forbidden(self, alice, bob, agent, anyone):
        id = submit_feedback(alice, "x")
        with nothing_changes():
            for who in (alice, bob, agent):
                assert who.patch(f"/feedback/{id}", raw=b"{").error == (403, "forbidden")
                assert who.patch(f"/feedback/{UNKNOWN_ID}", {"status": "done"}).error == (404, "feedback_not_found")
                assert who.patch("/feedback/x", {"status": "done"}).error == (400, "invalid_id")
            assert anyone.patch(f"/feedback/{id}", {"status": "done"}).error == (401, "missing_credentials")

    @pytest.mark.parametrize(("scopes", "expected"), [("feedback", 200), ("feedback:read", 403), ("profile", 403)])
    def test_requires_the_scope_feedback(self, admin, scopes, expected):
        id = submit_feedback(admin, "x")
        LoginSession.update(scopes=scopes).execute()
        assert admin.patch(f"/feedback/{id}", {"status": "done"}).status == expected
        assert admin.get("/feedback").status == (403 if scopes == "profile" else 200)

    def test_is_exported(self, alice, admin, tmp_path):
        id = submit_feedback(alice, "x")
        admin.patch(f"/feedback/{id}", {"status": "in_progress"})
        written: list[bytes] = []
        import_export.export(written.append)
        (record,) = [json.loads(line)["feedback"] for line in written if b'{"feedback"' in line]
        assert record["status"] == "in_progress"


class TestRemovingAnAvatar:
    @pytest.fixture
    def alice_with_avatar(self, alice):
        Avatar.set_for(alice.user.id, make_avatar(picture()), "https://chat.example")
        return alice

    def test_removes_the_picture_at_its_address(self, alice_with_avatar, bob, anyone):
        Avatar.set_for(bob.user.id, make_avatar(picture()), "")
        path = alice_with_avatar.get("/users/me").data["profile_image"].removeprefix("https://chat.example")
        assert anyone.get(f"/{path}").status == 200
        assert alice_with_avatar.delete("/users/me/avatar").data == {"profile_image": ""}
        assert anyone.get(f"/{path}").error == (404, "not_found")
        assert alice_with_avatar.get("/users/me").data["profile_image"] == ""
        assert [avatar.user_id for avatar in Avatar.select()] == [bob.user.id]

    def test_repetition_changes_nothing(self, alice_with_avatar):
        first = alice_with_avatar.delete("/users/me/avatar")
        with nothing_changes():
            assert alice_with_avatar.delete("/users/me/avatar").raw == first.raw

    def test_removes_an_external_address(self, alice):
        User.update(profile_image="https://example.com/a.png").where(User.id == alice.user.id).execute()
        assert alice.delete("/users/me/avatar").status == 200
        assert alice.get("/users/me").data["profile_image"] == ""

    def test_requires_the_scope_profile(self, alice_with_avatar, anyone):
        LoginSession.update(scopes="profile:read chats").execute()
        with nothing_changes():
            assert alice_with_avatar.delete("/users/me/avatar").error == (403, "insufficient_scope")
            assert anyone.delete("/users/me/avatar").error == (401, "missing_credentials")

    def test_concurrent_upload_and_removal_stay_consistent(self, alice_with_avatar):
        """In every order, the address in the profile is that of the stored picture."""
        new = make_avatar(picture(side=9))

        def change(number):
            if number % 2:
                return alice_with_avatar.delete("/users/me/avatar").status
            return bool(Avatar.set_for(alice_with_avatar.user.id, new, ""))

        assert at_once(6, change) == [True, 200] * 3
        address = alice_with_avatar.get("/users/me").data["profile_image"]
        assert [f"/avatars/{avatar.name}" for avatar in Avatar.select()] == ([address] if address else [])
