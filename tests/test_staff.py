"""What staff does, and what customers see of it: bots and feedback; taking one's picture away (sections 6 and 7)."""

import json
from typing import Any

import pytest

from service import clock, transfer
from service.models import Avatar, Bot, Feedback, LoginSession, User
from service.pictures import make_avatar
from tests.conftest import Client, walk
from tests.household import picture
from tests.samples import NOBODY
from tests.watching import at_once, nothing_changes, query_plan, statements

pytestmark = pytest.mark.usefixtures("host_clock")  # first, so that all tokens are of its time

NOW = "2026-11-20T10:00:00.000Z"
LATER = "2026-11-20T10:01:00.000Z"
STATUSES, PRESENCES = ("draft", "published"), ("online", "away", "rsvp", "offline")


def address(bot, what=""):
    return f"/apps/{bot.app_id}/bots/{bot.id}/{what}"


def feed(client, bot):
    """The identifiers of the bots that clients meet."""
    return [row["id"] for row in walk(client, "/bots", app_id=bot.app_id)]


def shown(client, bot):
    return client.get(f"/bots/{bot.id}?app_id={bot.app_id}")


class TestTheBotsOfAnApp:
    def test_are_all_listed_for_its_staff_by_name(self, agent, admin, shop, other_shop):
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

    def test_have_the_members_that_clients_see_and_no_more(self, agent, bot):
        (row,) = agent.get(f"/apps/{bot.app_id}/bots").data
        assert row == shown(agent, bot).data

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
    def test_are_not_filtered_by_what_cannot_be_read(self, agent, shop, query):
        assert agent.get(f"/apps/{shop.id}/bots?{query}").status == 400

    def test_are_nobody_elses_business(self, alice, other_agent, anyone, shop):
        for who in (alice, other_agent):
            assert who.get(f"/apps/{shop.id}/bots?status=gone").error == (403, "forbidden")
            assert who.get(f"/apps/{NOBODY}/bots").error == (404, "app_not_found")
            assert who.get("/apps/x/bots").error == (400, "invalid_id")
        assert anyone.get("/apps/x/bots").error == (401, "missing_credentials")

    def test_take_no_cursor_of_another_app(self, admin, bot, shop, other_shop):
        Bot.create(app_id=shop.id, name="Otto")
        cursor = admin.get(f"/apps/{shop.id}/bots?per_page=1").meta["next_cursor"]
        assert admin.get(f"/apps/{other_shop.id}/bots?cursor={cursor}").error == (400, "invalid_cursor")

    def test_are_read_in_the_order_of_an_index(self, agent, bot):
        with statements() as seen:
            agent.get(f"/apps/{bot.app_id}/bots")
        sql, values = next((sql, values) for sql, values in seen if "row" in sql)
        plan = query_plan(sql, values)
        assert (plan.ranges, plan.sorts) == (["bot_app_id_name_id"], False), plan


class TestPublishing:
    def test_shows_a_bot_to_clients_at_once_and_takes_it_away_again(self, agent, alice, shop, host_clock):
        bot = Bot.create(app_id=shop.id, name="Otto")
        assert feed(alice, bot) == []
        host_clock.forward(minutes=1)
        told = agent.put(address(bot, "status"), {"status": "published"}).data
        assert (told["id"], told["status"], told["created_at"], told["updated_at"]) == (bot.id, "published", NOW, LATER)
        assert feed(alice, bot) == [bot.id]
        assert shown(alice, bot).data == told
        assert agent.put(address(bot, "status"), {"status": "draft"}).data["status"] == "draft"
        assert feed(alice, bot) == []
        assert shown(alice, bot).error == (404, "bot_not_found")

    def test_does_not_show_what_is_not_active(self, admin, alice, shop):
        bot = Bot.create(app_id=shop.id, name="Otto", is_active=False)
        assert admin.put(address(bot, "status"), {"status": "published"}).data["is_active"] is False
        assert feed(alice, bot) == []

    def test_leaves_everything_else_alone(self, agent, bot, host_clock):
        before = Bot.get_by_id(bot.id).__data__
        host_clock.forward(minutes=1)
        agent.put(address(bot, "status"), {"status": "draft", "name": "Eve", "is_active": False, "app_id": NOBODY})
        assert Bot.get_by_id(bot.id).__data__ == before | {"status": "draft", "updated_at": LATER}


@pytest.mark.parametrize(("member", "words"), [("status", STATUSES), ("presence", PRESENCES)])
class TestAWordOfABot:
    def test_follows_every_other(self, agent, admin, bot, member, words):
        for before in words:
            for after in words:
                Bot.update({member: before}).where(Bot.id == bot.id).execute()
                for who in (agent, admin):
                    assert who.put(address(bot, member), {member: after}).data[member] == after
                assert getattr(Bot.get_by_id(bot.id), member) == after

    def test_that_it_has_already_changes_nothing(self, agent, bot, host_clock, member, words):
        first = agent.put(address(bot, member), {member: words[0]})
        host_clock.forward(minutes=1)
        with nothing_changes():
            assert agent.put(address(bot, member), {member: words[0]}).raw == first.raw

    @pytest.mark.parametrize("word", ["", "Draft", "busy", None, 1, ["draft"]])
    def test_is_one_of_the_list(self, agent, bot, member, words, word):
        with nothing_changes():
            assert agent.put(address(bot, member), {member: word}).error == (400, "invalid_body")
            assert agent.put(address(bot, member), {}).error == (400, "invalid_body")

    def test_is_set_by_the_staff_of_the_app_only(self, alice, other_agent, anyone, bot, person, member, words):
        body = {member: words[-1]}
        jobless, former = person("ann", role="agent"), person("carl", role="user", app_id=bot.app_id)
        with nothing_changes(Bot):
            for who in (alice, other_agent, jobless, former):
                assert who.put(address(bot, member), body).error == (403, "forbidden")
                assert who.put(address(bot, member), raw=b"{").error == (403, "forbidden")
            assert anyone.put(address(bot, member), body).error == (401, "missing_credentials")

    def test_belongs_to_a_bot_of_that_app(self, admin, other_agent, bot, other_shop, member, words):
        foreign = f"/apps/{other_shop.id}/bots/{bot.id}/{member}"
        with nothing_changes():
            for who in (admin, other_agent):
                assert who.put(foreign, {member: words[0]}).error == (404, "bot_not_found")
            assert admin.put(f"/apps/{bot.app_id}/bots/{NOBODY}/{member}", raw=b"{").error == (404, "bot_not_found")
            assert admin.put(f"/apps/{NOBODY}/bots/{bot.id}/{member}", {}).error == (404, "app_not_found")
            assert admin.put(f"/apps/{bot.app_id}/bots/{{1}}/{member}", {}).error == (400, "invalid_id")

    def test_stays_for_whoever_has_lost_the_role(self, agent, bot, member, words):
        User.update(role="user").where(User.id == agent.user.id).execute()
        with nothing_changes():
            assert agent.put(address(bot, member), {member: words[0]}).error == (403, "forbidden")
        agent.user.disable()
        assert agent.put(address(bot, member), {member: words[0]}).error == (401, "invalid_token")

    @pytest.mark.parametrize(("scopes", "told"), [("bots", 200), ("bots:read", 403), ("chats", 403)])
    def test_needs_the_scope_of_bots(self, agent, bot, member, words, scopes, told):
        LoginSession.update(scopes=scopes).execute()
        assert agent.put(address(bot, member), {member: words[0]}).status == told
        assert agent.get(f"/apps/{bot.app_id}/bots").status == (403 if scopes == "chats" else 200)

    def test_may_be_set_by_many_at_once(self, agent, bot, member, words):
        told = at_once(4, lambda number: agent.put(address(bot, member), {member: words[number % 2]}).status)
        assert told == [200] * 4
        assert getattr(Bot.get_by_id(bot.id), member) in words[:2]


def test_an_imported_bot_and_one_that_staff_changed_are_searched_alike(agent, alice, shop):
    bot = Bot.create(app_id=shop.id, name="Käthe", tagline="Cats")
    agent.put(address(bot, "status"), {"status": "published"})
    assert [row["id"] for row in alice.get(f"/bots?app_id={shop.id}&search=CATS").data] == [bot.id]


def give(client: Client, description: str, **members: Any) -> str:
    """Feedback of somebody's; its identifier."""
    return str(client.post("/feedback", {"description": description, **members}).data["id"])


def told(client, query=""):
    """The descriptions that somebody is shown."""
    return [row["description"] for row in client.get(f"/feedback{query}").data]


class TestTheListOfFeedback:
    def test_holds_ones_own_the_newest_first(self, alice, bob, host_clock):
        for number in range(3):
            give(alice, str(number))
            give(bob, "Bob's")
            host_clock.forward(seconds=1)
        assert told(alice) == ["2", "1", "0"]

    def test_shows_records_as_they_were_answered(self, alice):
        made = alice.post("/feedback", {"description": "x", "device_info": {"os": "Plan 9"}}).data
        assert alice.get("/feedback").data == [made]

    def test_is_walked_without_gaps_even_where_all_are_of_one_moment(self, alice):
        for number in range(7):
            give(alice, str(number))
        found = walk(alice, "/feedback", limit=3)
        assert sorted(row["description"] for row in found) == [*"0123456"]
        assert found == sorted(found, key=lambda row: row["id"], reverse=True)

    @pytest.mark.parametrize(("asked", "used"), [("25", 25), ("100", 100), ("101", 100), ("0", 1)])
    def test_has_at_most_100_a_page(self, alice, asked, used):
        assert alice.get(f"/feedback?limit={asked}").meta == {"next_cursor": "", "per_page": used}
        assert alice.get("/feedback").meta["per_page"] == 25

    def test_is_not_narrowed_by_an_empty_status(self, alice):
        give(alice, "one")
        assert alice.get("/feedback?status=").data == alice.get("/feedback").data != []

    @pytest.mark.parametrize("query", ["status=two+words", "everybody=maybe", "cursor=x", "limit=x"])
    def test_is_not_narrowed_by_what_cannot_be_read(self, alice, query):
        assert alice.get(f"/feedback?{query}").status == 400

    def test_of_everybody_is_for_admins(self, alice, bob, admin, agent, host_clock):
        give(alice, "Alice's")
        host_clock.forward(seconds=1)
        give(bob, "Bob's")
        assert told(admin) == []
        assert told(admin, "?everybody=true") == ["Bob's", "Alice's"]
        for who in (alice, bob, agent):
            assert who.get("/feedback?everybody=true").error == (403, "forbidden")
            assert who.get("/feedback?everybody=true&status=done&limit=1").error == (403, "forbidden")

    def test_can_be_narrowed_to_a_status(self, alice, admin):
        one, _ = give(alice, "one"), give(alice, "two")
        admin.patch(f"/feedback/{one}", {"status": "done"})
        assert told(alice, "?status=done") == told(admin, "?status=done&everybody=1") == ["one"]
        assert told(alice, "?status=new") == ["two"]
        assert told(alice, "?status=imported_word") == []

    def test_takes_no_cursor_of_somebody_else_nor_of_another_list(self, alice, admin):
        for _ in range(2):
            give(admin, "x")
        own = admin.get("/feedback?limit=1").meta["next_cursor"]
        all_ = admin.get("/feedback?limit=1&everybody=true").meta["next_cursor"]
        for who, query in (
            (alice, f"cursor={own}"),
            (admin, f"cursor={all_}"),
            (admin, f"everybody=true&cursor={own}"),
        ):
            assert who.get(f"/feedback?{query}").error == (400, "invalid_cursor")

    @pytest.mark.parametrize("query", ["", "?everybody=true", "?everybody=true&status=new", "?status=new"])
    def test_is_read_in_the_order_of_an_index(self, admin, query):
        with statements() as seen:
            admin.get(f"/feedback{query}")
        sql, values = next((sql, values) for sql, values in seen if "row" in sql)
        plan = query_plan(sql, values)
        assert not plan.sorts and any("feedback" in step for step in plan.words), plan


class TestTheStatusOfFeedback:
    def test_is_set_by_admins_from_any_word_to_any(self, alice, admin, host_clock):
        id = give(alice, "x")
        words = ("new", "seen", "in_progress", "done", "declined")
        for before in (*words, "imported"):
            for after in words:
                Feedback.update(status=before, updated_at=NOW).where(Feedback.id == id).execute()
                host_clock.forward(seconds=1)
                row = admin.patch(f"/feedback/{id}", {"status": after}).data
                assert (row["status"], row["updated_at"]) == (after, NOW if before == after else clock.timestamp())
                assert alice.get("/feedback").data == [row]

    def test_changes_nothing_else(self, alice, admin, host_clock):
        before = alice.post("/feedback", {"description": "x", "app_version": "1"}).data
        host_clock.forward(minutes=1)
        after = admin.patch(f"/feedback/{before['id']}", {"status": "seen", "description": "y", "user_id": NOBODY}).data
        assert after == before | {"status": "seen", "updated_at": LATER}

    def test_set_a_second_time_keeps_the_first_moment(self, alice, admin, host_clock):
        id = give(alice, "x")
        first = admin.patch(f"/feedback/{id}", {"status": "done"})
        host_clock.forward(minutes=1)
        with nothing_changes():
            assert admin.patch(f"/feedback/{id}", {"status": "done"}).raw == first.raw

    @pytest.mark.parametrize("status", ["", "Done", "finished", None, 1, ["done"]])
    def test_is_one_of_five_words(self, alice, admin, status):
        id = give(alice, "x")
        with nothing_changes():
            assert admin.patch(f"/feedback/{id}", {"status": status}).error == (400, "invalid_body")
            assert admin.patch(f"/feedback/{id}", {}).error == (400, "invalid_body")

    def test_is_nobody_elses_to_set(self, alice, bob, agent, anyone):
        id = give(alice, "x")
        with nothing_changes():
            for who in (alice, bob, agent):
                assert who.patch(f"/feedback/{id}", raw=b"{").error == (403, "forbidden")
                assert who.patch(f"/feedback/{NOBODY}", {"status": "done"}).error == (404, "feedback_not_found")
                assert who.patch("/feedback/x", {"status": "done"}).error == (400, "invalid_id")
            assert anyone.patch(f"/feedback/{id}", {"status": "done"}).error == (401, "missing_credentials")

    @pytest.mark.parametrize(("scopes", "expected"), [("feedback", 200), ("feedback:read", 403), ("profile", 403)])
    def test_needs_the_scope_of_feedback(self, admin, scopes, expected):
        id = give(admin, "x")
        LoginSession.update(scopes=scopes).execute()
        assert admin.patch(f"/feedback/{id}", {"status": "done"}).status == expected
        assert admin.get("/feedback").status == (403 if scopes == "profile" else 200)

    def test_travels_in_an_export(self, alice, admin, tmp_path):
        id = give(alice, "x")
        admin.patch(f"/feedback/{id}", {"status": "in_progress"})
        written: list[bytes] = []
        transfer.give_out(written.append)
        (record,) = [json.loads(line)["feedback"] for line in written if b'{"feedback"' in line]
        assert record["status"] == "in_progress"


class TestTakingAPictureAway:
    @pytest.fixture
    def pictured(self, alice):
        Avatar.replace_by(alice.user.id, make_avatar(picture()), "https://chat.example")
        return alice

    def test_leaves_nothing_at_its_address(self, pictured, bob, anyone):
        Avatar.replace_by(bob.user.id, make_avatar(picture()), "")
        where = pictured.get("/users/me").data["profile_image"].removeprefix("https://chat.example")
        assert anyone.get(f"/{where}").status == 200
        assert pictured.delete("/users/me/avatar").data == {"profile_image": ""}
        assert anyone.get(f"/{where}").error == (404, "not_found")
        assert pictured.get("/users/me").data["profile_image"] == ""
        assert [avatar.user_id for avatar in Avatar.select()] == [bob.user.id]

    def test_a_second_time_changes_nothing(self, pictured):
        first = pictured.delete("/users/me/avatar")
        with nothing_changes():
            assert pictured.delete("/users/me/avatar").raw == first.raw

    def test_works_for_one_that_is_elsewhere(self, alice):
        User.update(profile_image="https://example.com/a.png").where(User.id == alice.user.id).execute()
        assert alice.delete("/users/me/avatar").status == 200
        assert alice.get("/users/me").data["profile_image"] == ""

    def test_needs_the_scope_of_the_profile(self, pictured, anyone):
        LoginSession.update(scopes="profile:read chats").execute()
        with nothing_changes():
            assert pictured.delete("/users/me/avatar").error == (403, "insufficient_scope")
            assert anyone.delete("/users/me/avatar").error == (401, "missing_credentials")

    def test_and_showing_another_at_the_same_time_never_disagree(self, pictured):
        """Whichever comes last, the address that the profile shows is that of the picture that is there."""
        new = make_avatar(picture(side=9))

        def act(number):
            if number % 2:
                return pictured.delete("/users/me/avatar").status
            return bool(Avatar.replace_by(pictured.user.id, new, ""))

        assert at_once(6, act) == [True, 200] * 3
        address = pictured.get("/users/me").data["profile_image"]
        assert [f"/avatars/{avatar.name}" for avatar in Avatar.select()] == ([address] if address else [])
