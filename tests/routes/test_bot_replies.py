"""Bots answer customers at once with what they are prepared for, and leave to people what is theirs."""

import apsw
import pytest

from service import db
from service.errors import SessionArchived
from service.models import Bot, CannedAnswer, ChatSession, Message, Notification, User, bot_replies
from service.models.bot_replies import REPLY_STATUSES, STAFF_LOOKBACK, STAFF_PAUSE
from service.models.chats import ENDED_STATUSES, LIVE_STATUSES
from tests.support.bot_replies import OPENING, answers, lines, send_in, write_in_the_console
from tests.support.chats import as_stored, delete, fill, now, total
from tests.support.client import text_of, walk
from tests.support.messages import chat_notifications, edit, last, read, send, sent, unread
from tests.support.observe import at_once, nothing_changes, query_plan, statements


@pytest.fixture(autouse=True)
def prepared(bot):
    return CannedAnswer.create(bot_id=bot.id, language="en", question="When are you open?", answer=OPENING)


# At once


def test_a_bot_replies_to_its_customer(host_clock, alice, bot, session):
    reply = send(alice, session, "When are you open?")
    assert reply.status == 201
    question, bot_reply = walk(alice, f"/chats/{session.id}/messages")
    assert question == reply.data
    assert bot_reply["id"] > question["id"]
    columns = ("sender_id", "sender_type", "channel", "status", "content_type", "conversation_id", "is_private")
    values = [bot.id, "bot", "web", "sent", "text", session.conversation_id, False]
    assert [bot_reply[name] for name in columns] == values
    assert (text_of(bot_reply), bot_reply["created_at"]) == (OPENING, "2026-11-20T10:00:00.000Z")


def test_a_reply_is_counted_like_every_message(alice, agent, session):
    send(alice, session, "When are you open?")
    assert [total(client, session) for client in (alice, agent)] == [2, 2]
    assert (unread(alice, session), last(alice, session)) == (1, OPENING)
    read(alice, session)
    assert unread(alice, session) == 0


def test_the_customer_and_staff_who_wrote_before_are_notified(host_clock, alice, agent, other_agent, session):
    sent(agent, session, "Hello")
    host_clock.forward(minutes=31)
    send(alice, session, "When are you open?")
    assert chat_notifications(alice)[0] == ("Hilda", OPENING)
    assert sorted(chat_notifications(agent)) == [("Alice", "When are you open?"), ("Hilda", OPENING)]
    assert chat_notifications(other_agent) == []
    (announcing,) = Notification.select().where(Notification.body == OPENING, Notification.user_id == alice.user.id)
    assert now(Message.get_by_id(announcing.message_id)).sender_type == "bot"


def test_a_bot_replies_in_the_console(alice, bot, session, application):
    CannedAnswer.create(bot_id=bot.id, language="de", question="When are you open?", answer="Von 9 bis 5.")
    browser = write_in_the_console(application, alice, session, "When are you open?", "de")
    assert "Von 9 bis 5." in browser.text
    assert answers(alice, session) == ["Von 9 bis 5."]


def test_a_bot_without_a_name_uses_the_name_of_the_app(alice, bot, session):
    Bot.update(name="").execute()
    send(alice, session, "When are you open?")
    assert chat_notifications(alice) == [("Shop", OPENING)]


def test_message_and_reply_are_one_write(alice, session, monkeypatch):
    def fail(*_):
        raise SessionArchived

    monkeypatch.setattr(bot_replies, "_post", fail)
    with nothing_changes():
        assert send(alice, session, "When are you open?").error == (400, "session_archived")


def test_the_reply_is_chosen_before_the_write(alice, session):
    with statements() as seen:
        send(alice, session, "When are you open?")
    texts = [sql.lower() for sql, _ in seen]
    first_write = next(place for place, sql in enumerate(texts) if sql.startswith(("update", "insert", "delete")))
    looks = [place for place, sql in enumerate(texts) if '"bot_answer' in sql]
    assert len(looks) == 3 and looks[-1] < first_write


@pytest.mark.parametrize("columns", [{"kind": "nobot"}, {"status": "draft"}, {"is_active": False}])
def test_an_inactive_bot_does_not_reply(alice, session, columns):
    Bot.update(columns).execute()
    send(alice, session, "When are you open?")
    assert lines(alice, session) == [("user", "When are you open?")]


def test_a_session_without_a_bot_gets_no_reply(alice, shop):
    session = ChatSession.create(app_id=shop.id, user_id=alice.user.id)
    send(alice, session, "When are you open?")
    assert answers(alice, session) == []


@pytest.mark.parametrize(
    "content", [{"image": "x.png"}, {"text": ""}, {"text": " \n"}, {"text": "👍"}, {"text": 1}, [1]]
)
def test_a_message_without_words_gets_no_reply(alice, session, content):
    assert alice.post(f"/chats/{session.id}/messages", {"content": content}).status == 201
    assert total(alice, session) == 1


@pytest.mark.parametrize("is_private", [False, True])
@pytest.mark.parametrize("who", ["agent", "admin"])
def test_staff_get_no_reply(request, session, who, is_private):
    client = request.getfixturevalue(who)
    send(client, session, "When are you open?", is_private=is_private)
    assert answers(client, session) == []


def test_an_agent_is_a_customer_in_a_session_of_their_own(agent, shop, bot):
    own = ChatSession.create(app_id=shop.id, user_id=agent.user.id, bot_id=bot.id)
    send(agent, own, "When are you open?", is_private=True)
    assert answers(agent, own) == []
    send(agent, own, "When are you open?")
    assert answers(agent, own) == [OPENING]


def test_an_edited_message_gets_no_second_reply(alice, session):
    edit(alice, sent(alice, session, "Hello"), "When are you open?")
    assert len(answers(alice, session)) == 1


@pytest.mark.parametrize("key", [{"client_message_id": "1"}, {"key": "k"}])
def test_a_repeated_message_gets_one_reply(alice, session, key):
    first, second = (send(alice, session, "When are you open?", **key) for _ in range(2))
    assert first.raw == second.raw
    assert answers(alice, session) == [OPENING]


def test_concurrent_messages_all_get_a_reply(alice, session):
    assert [reply.status for reply in at_once(4, lambda _: send(alice, session, "When are you open?"))] == [201] * 4
    assert [sender for sender, _ in lines(alice, session)] == ["user", "bot"] * 4
    assert total(alice, session) == 8


def test_a_reply_has_the_role_assistant_in_the_context(alice, session):
    send(alice, session, "When are you open?")
    messages = alice.get(f"/chats/{session.id}/context").data["messages"]
    assert [(row["role"], row["text"]) for row in messages] == [("user", "When are you open?"), ("assistant", OPENING)]


@pytest.mark.parametrize(
    ("setting", "header", "locale", "language"),
    [
        ("fr", "de", "es", "fr"),
        ("", "de-AT;q=0.5, fr;q=0.9", "es", "fr"),
        ("", "", "de-AT", "de"),
        ("", "*", "de", "de"),
        ("", "\x00;q=, \xff,", "de", "de"),
    ],
)
def test_the_language_is_that_of_the_setting_the_browser_or_the_profile(
    alice, bot, session, setting, header, locale, language
):
    for tag in ("de", "fr", "es"):
        CannedAnswer.create(bot_id=bot.id, language=tag, question="When are you open?", answer=tag)
    User.update(locale=locale).where(User.id == alice.user.id).execute()
    alice.patch("/users/me/settings", {"chat_language": setting})
    send_in(alice, session, "When are you open?", header)
    assert answers(alice, session) == [language]


# Where people have taken over


def test_a_bot_does_not_reply_for_half_an_hour_after_staff(host_clock, alice, agent, session):
    send(alice, session, "When are you open?")
    sent(agent, session, "I am here")
    for _ in range(2):
        send(alice, session, "When are you open?")
        host_clock.forward(seconds=STAFF_PAUSE / 2000)
    assert len(answers(alice, session)) == 1
    send(alice, session, "When are you open?")
    assert len(answers(alice, session)) == 2


def test_a_note_does_not_stop_the_replies_of_a_bot(alice, agent, session):
    send(agent, session, "He is a bore", is_private=True)
    send(alice, session, "When are you open?")
    assert answers(alice, session) == [OPENING]


def test_a_deleted_message_of_staff_does_not_stop_the_replies_of_a_bot(alice, agent, session):
    delete(agent, sent(agent, session, "I am here"))
    send(alice, session, "When are you open?")
    assert answers(alice, session) == [OPENING]


def test_staff_in_another_session_do_not_stop_the_replies_of_a_bot(alice, agent, session, shop, bot):
    other = ChatSession.create(app_id=shop.id, user_id=alice.user.id, bot_id=bot.id)
    sent(agent, other, "I am here")
    send(alice, session, "When are you open?")
    assert answers(alice, session) == [OPENING]


@pytest.mark.parametrize("status", [*LIVE_STATUSES, *ENDED_STATUSES])
def test_a_bot_replies_to_a_message_that_reopens_its_session(alice, session, status):
    ChatSession.update(status=status).execute()
    assert bot_replies.is_left_to_staff(session.id) is (status not in REPLY_STATUSES)
    send(alice, session, "When are you open?")
    assert answers(alice, session) == [OPENING]


def test_the_search_for_staff_messages_is_bounded(alice, session):
    fill(session, 30)
    with statements() as seen:
        assert not bot_replies.is_left_to_staff(session.id)
    sql, values = seen[-1]
    assert f"LIMIT {STAFF_LOOKBACK}" in sql
    plan = query_plan(sql, values)
    assert plan.ranges[0] == "message_shown" and not plan.sorts, plan  # then the time of each message of staff


@pytest.mark.sqlite_only
def test_sending_does_not_read_the_contents_of_earlier_messages(alice, session):
    fill(session, 30, content=as_stored({"text": "x" * 60_000}))
    connection = db.database.obj.connection()
    connection.cache_flush()
    connection.pragma("shrink_memory")
    before, _ = connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)
    send(alice, session, "When are you open?")
    after, _ = connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)
    assert after - before < 200  # pages; the contents have 60 each
