"""Ratings of chat sessions by customers, the satisfaction of an app's customers, and ratings of bots."""

import json
from typing import Any

import pytest

from service.commands import run
from service.models import AuditLog, Bot, ChatRating, ChatSession
from service.models.chats import LIVE_STATUSES, STATUSES
from service.models.user_deletion import delete_user
from service.operate import import_export
from tests.support.client import Client, Reply
from tests.support.installation import flags_of
from tests.support.observe import nothing_changes, query_plan, statements

pytestmark = pytest.mark.database


def rate(client: Client, session: ChatSession, score: Any = 4, **members: Any) -> Reply:
    return client.put(f"/chats/{session.id}/rating", {"score": score, **members})


def over(session: ChatSession, status: str = "resolved") -> ChatSession:
    ChatSession.update(status=status).where(ChatSession.id == session.id).execute()
    return session


def rated(client: Client, bot: Bot, *scores: int) -> None:
    """Rate chat sessions with a bot, one for each score."""
    for score in scores:
        session = ChatSession.create(app_id=bot.app_id, user_id=client.user.id, bot_id=bot.id, status="closed")
        assert rate(client, session, score).status == 200


def rating_of(bot: Bot) -> float:
    return float(Bot.get_by_id(bot.id).rating)


class TestRating:
    def test_is_returned_to_the_customer_and_staff(self, host_clock, alice, agent, admin, session):
        reply = rate(alice, over(session), 4, comment="Thanks")
        time = "2026-11-20T10:00:00.000Z"
        expected = {"chat_session_id": session.id, "score": 4, "comment": "Thanks"}
        assert (reply.status, reply.data) == (200, {**expected, "created_at": time, "updated_at": time})
        for client in (alice, agent, admin):
            assert client.get(f"/chats/{session.id}/rating").data == reply.data

    def test_can_be_changed_and_repeated(self, host_clock, alice, session):
        first = rate(alice, over(session), 4, comment="Thanks").data
        host_clock.forward(minutes=1)
        with nothing_changes(ChatRating):
            assert rate(alice, session, 4, comment="Thanks").data == first
        second = rate(alice, session, 2).data
        assert second == {**first, "score": 2, "comment": "", "updated_at": "2026-11-20T10:01:00.000Z"}

    @pytest.mark.parametrize("status", STATUSES)
    def test_is_possible_when_the_session_is_over(self, alice, session, status):
        reply = rate(alice, over(session, status))
        assert reply.status == (400 if status in LIVE_STATUSES else 200)
        assert reply.status == 200 or reply.error == (400, "session_not_over")

    def test_of_others_is_refused(self, alice, bob, agent, admin, session):
        over(session)
        with nothing_changes():
            for client in (bob, agent, admin):
                assert rate(client, session).error == (403, "forbidden")
            assert bob.get(f"/chats/{session.id}/rating").error == (403, "forbidden")
            assert alice.get(f"/chats/{session.id}/rating").error == (404, "rating_not_found")

    @pytest.mark.parametrize("score", [0, 6, -1, 4.5, "4", None, True])
    def test_is_a_number_from_one_to_five(self, alice, session, score):
        over(session)
        with nothing_changes():
            assert rate(alice, session, score).error == (400, "invalid_body")
            assert rate(alice, session, 4, comment="x" * 2001).error == (400, "invalid_body")

    def test_is_deleted_with_its_customer(self, alice, session):
        rate(alice, over(session))
        delete_user(alice.user, "")
        assert ChatRating.select().count() == 0

    @pytest.mark.parametrize("option", ["--session", "--user"])
    def test_loses_its_comment_by_a_purge(self, settings, alice, session, option):
        rate(alice, over(session), 2, comment="My name is Alice")
        subject = session.id if option == "--session" else alice.user.email
        assert run(["purge", option, subject, *flags_of(settings)]) == 0
        assert [(rating.score, rating.comment) for rating in ChatRating.select()] == [(2, "")]
        assert json.loads(AuditLog.select().order_by(AuditLog.position.desc()).get().details)["comments"] == 1

    def test_is_imported_as_it_was_exported(self, tmp_path, alice, bot, session):
        rate(alice, over(session), 2, comment="Thanks")
        stored, mean = list(ChatRating.select().dicts()), rating_of(bot)
        lines: list[bytes] = []
        import_export.export(lines.append)
        ChatRating.delete().execute()
        Bot.update(rating=0).execute()
        path = tmp_path / "records.jsonl"
        path.write_bytes(b"".join(lines))
        assert import_export.import_files([path]) == []
        assert list(ChatRating.select().dicts()) == stored
        assert rating_of(bot) == mean == 2

    @pytest.mark.parametrize("score", [0, 6, "4"])
    def test_in_an_import_is_a_number_from_one_to_five(self, tmp_path, session, score):
        path = tmp_path / "records.jsonl"
        path.write_text(json.dumps({"chat_rating": {"chat_session_id": session.id, "score": score}}))
        assert "$.chat_rating.score" in str(import_export.import_files([path]))


class TestBots:
    def test_rating_begins_at_the_mean_of_the_app(self, alice, bot, shop):
        other = Bot.create(app_id=shop.id, name="Other", status="published")
        rated(alice, other, 5, 5, 5, 5)
        assert rating_of(other) == 5
        rated(alice, bot, 2)  # the mean of the app is 22 / 5
        assert rating_of(bot) == round((2 + 5 * 22 / 5) / 6, 2)
        assert rating_of(other) == 5

    def test_rating_approaches_the_mean_of_the_bot(self, alice, bot, shop):
        other = Bot.create(app_id=shop.id, name="Other", status="published")
        rated(alice, other, 1)
        rated(alice, bot, *[5] * 20)
        assert rating_of(bot) == round((100 + 5 * 101 / 21) / 25, 2)

    def test_rating_is_that_of_the_app_only(self, alice, bot, other_shop):
        other = Bot.create(app_id=other_shop.id, name="Other", status="published")
        rated(alice, other, 1, 1)
        rated(alice, bot, 5)
        assert (rating_of(bot), rating_of(other)) == (5, 1)

    def test_session_without_a_bot_can_be_rated(self, alice, shop):
        session = ChatSession.create(app_id=shop.id, user_id=alice.user.id, status="closed")
        assert rate(alice, session).status == 200

    def test_means_are_read_from_an_index(self, alice, bot):
        with statements() as executed:
            rated(alice, bot, 5)
        plans = [query_plan(*seen).ranges for seen in executed if '"newest"' in seen[0]]
        assert plans == [["chat_rating_app_id_updated_at_score"], ["chat_rating_bot_id_updated_at_score"]]


class TestSatisfaction:
    def test_is_the_share_of_four_and_five(self, alice, agent, admin, bot, shop):
        path = f"/apps/{shop.id}/satisfaction"
        assert agent.get(path).data == {"ratings": 0, "mean": None, "satisfied": None}
        rated(alice, bot, 5, 4, 3)
        for client in (agent, admin):
            assert client.get(path).data == {"ratings": 3, "mean": 4.0, "satisfied": 0.6667}

    def test_is_for_staff(self, alice, other_agent, shop):
        for client in (alice, other_agent):
            assert client.get(f"/apps/{shop.id}/satisfaction").error == (403, "forbidden")
