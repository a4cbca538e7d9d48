"""Bots answer customers at once with what they are prepared for, and leave to people what is theirs."""

import pytest

from service.errors import SessionArchived
from service.models import Bot, BotAnswer, ChatSession, Message, Notification, User, speaking
from service.models.chats import LIVE, OVER
from service.models.speaking import LOOK_BACK, SILENCE, TALKATIVE
from tests.browsing import Browser, Forms
from tests.conftest import text_of, walk
from tests.test_chats import delete, fill, now, total
from tests.test_conversing import edit, last, read, send, sent, told, unread
from tests.watching import at_once, nothing_changes, query_plan, statements

OPENING = "We are open from 9 to 5."


def lines(client, session):
    """Who said what."""
    return [(row["sender_type"], text_of(row)) for row in walk(client, f"/chats/{session.id}/messages")]


def answers(client, session):
    """What the bot has said."""
    return [text for sender, text in lines(client, session) if sender == "bot"]


def send_in(client, session, text, accept_language):
    """Send from a browser that likes some languages."""
    return client.post(f"/chats/{session.id}/messages", {"content": {"text": text}}, accept_language=accept_language)


def write_in_the_console(application, client, session, text, accept_language=""):
    """Send by hand, with a browser that likes some languages."""
    browser = Browser(application).signed_in(client)
    browser.open(f"/console/chats/{session.id}")
    form = next(form for _, form in Forms(browser.reply.raw.decode()).found if "text" in form)
    path = f"/console/chats/{session.id}"
    browser.ask("POST", path, {**form, "act": "send", "text": text}, accept_language=accept_language)
    assert browser.reply.status == 200 and text in browser.text
    return browser


@pytest.fixture(autouse=True)
def prepared(bot):
    return BotAnswer.create(bot_id=bot.id, language="en", question="When are you open?", answer=OPENING)


# At once


def test_a_bot_answers_its_customer(host_clock, alice, bot, session):
    reply = send(alice, session, "When are you open?")
    assert reply.status == 201
    asked, answer = walk(alice, f"/chats/{session.id}/messages")
    assert asked == reply.data
    assert answer["id"] > asked["id"]
    columns = ("sender_id", "sender_type", "channel", "status", "content_type", "conversation_id", "is_private")
    values = [bot.id, "bot", "web", "sent", "text", session.conversation_id, False]
    assert [answer[name] for name in columns] == values
    assert (text_of(answer), answer["created_at"]) == (OPENING, "2026-11-20T10:00:00.000Z")


def test_an_answer_counts_like_every_message(alice, agent, session):
    send(alice, session, "When are you open?")
    assert [total(client, session) for client in (alice, agent)] == [2, 2]
    assert (unread(alice, session), last(alice, session)) == (1, OPENING)
    read(alice, session)
    assert unread(alice, session) == 0


def test_the_customer_and_the_staff_who_wrote_before_are_told(host_clock, alice, agent, other_agent, session):
    sent(agent, session, "Hello")
    host_clock.forward(minutes=31)
    send(alice, session, "When are you open?")
    assert told(alice)[0] == ("Hilda", OPENING)
    assert sorted(told(agent)) == [("Alice", "When are you open?"), ("Hilda", OPENING)]
    assert told(other_agent) == []
    (announcing,) = Notification.select().where(Notification.body == OPENING, Notification.user_id == alice.user.id)
    assert now(Message.get_by_id(announcing.message_id)).sender_type == "bot"


def test_a_bot_answers_in_the_console_too(alice, bot, session, application):
    BotAnswer.create(bot_id=bot.id, language="de", question="When are you open?", answer="Von 9 bis 5.")
    browser = write_in_the_console(application, alice, session, "When are you open?", "de")
    assert "Von 9 bis 5." in browser.text
    assert answers(alice, session) == ["Von 9 bis 5."]


def test_a_bot_without_a_name_speaks_for_the_app(alice, bot, session):
    Bot.update(name="").execute()
    send(alice, session, "When are you open?")
    assert told(alice) == [("Shop", OPENING)]


def test_question_and_answer_are_one_write(alice, session, monkeypatch):
    def fail(*_):
        raise SessionArchived

    monkeypatch.setattr(speaking, "_say", fail)
    with nothing_changes():
        assert send(alice, session, "When are you open?").error == (400, "session_archived")


def test_the_answer_is_found_before_the_write(alice, session):
    with statements() as seen:
        send(alice, session, "When are you open?")
    texts = [sql.lower() for sql, _ in seen]
    first_write = next(place for place, sql in enumerate(texts) if sql.startswith(("update", "insert", "delete")))
    looks = [place for place, sql in enumerate(texts) if '"bot_answer' in sql]
    assert len(looks) == 3 and looks[-1] < first_write


@pytest.mark.parametrize("columns", [{"kind": "nobot"}, {"status": "draft"}, {"is_active": False}])
def test_a_bot_that_does_not_answer_keeps_silent(alice, session, columns):
    Bot.update(columns).execute()
    send(alice, session, "When are you open?")
    assert lines(alice, session) == [("user", "When are you open?")]


def test_nobody_answers_without_a_bot(alice, shop):
    session = ChatSession.create(app_id=shop.id, user_id=alice.user.id)
    send(alice, session, "When are you open?")
    assert answers(alice, session) == []


@pytest.mark.parametrize(
    "content", [{"image": "x.png"}, {"text": ""}, {"text": " \n"}, {"text": "👍"}, {"text": 1}, [1]]
)
def test_what_says_nothing_is_not_answered(alice, session, content):
    assert alice.post(f"/chats/{session.id}/messages", {"content": content}).status == 201
    assert total(alice, session) == 1


@pytest.mark.parametrize("is_private", [False, True])
@pytest.mark.parametrize("who", ["agent", "admin"])
def test_staff_are_not_answered(request, session, who, is_private):
    client = request.getfixturevalue(who)
    send(client, session, "When are you open?", is_private=is_private)
    assert answers(client, session) == []


def test_an_agent_is_a_customer_in_a_session_of_their_own(agent, shop, bot):
    own = ChatSession.create(app_id=shop.id, user_id=agent.user.id, bot_id=bot.id)
    send(agent, own, "When are you open?", is_private=True)
    assert answers(agent, own) == []
    send(agent, own, "When are you open?")
    assert answers(agent, own) == [OPENING]


def test_an_edited_question_is_not_answered_again(alice, session):
    edit(alice, sent(alice, session, "Hello"), "When are you open?")
    assert len(answers(alice, session)) == 1


@pytest.mark.parametrize("key", [{"client_message_id": "1"}, {"key": "k"}])
def test_a_message_that_is_sent_again_is_answered_once(alice, session, key):
    first, second = (send(alice, session, "When are you open?", **key) for _ in range(2))
    assert first.raw == second.raw
    assert answers(alice, session) == [OPENING]


def test_many_messages_at_once_are_all_answered(alice, session):
    assert [reply.status for reply in at_once(4, lambda _: send(alice, session, "When are you open?"))] == [201] * 4
    assert [sender for sender, _ in lines(alice, session)] == ["user", "bot"] * 4
    assert total(alice, session) == 8


def test_an_answer_reads_as_that_of_an_assistant(alice, session):
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
def test_the_language_is_that_of_the_setting_else_of_the_browser_else_of_the_profile(
    alice, bot, session, setting, header, locale, language
):
    for tag in ("de", "fr", "es"):
        BotAnswer.create(bot_id=bot.id, language=tag, question="When are you open?", answer=tag)
    User.update(locale=locale).where(User.id == alice.user.id).execute()
    alice.patch("/users/me/settings", {"chat_language": setting})
    send_in(alice, session, "When are you open?", header)
    assert answers(alice, session) == [language]


# Where people have taken over


def test_a_bot_is_silent_for_half_an_hour_after_a_person_has_written(host_clock, alice, agent, session):
    send(alice, session, "When are you open?")
    sent(agent, session, "I am here")
    for _ in range(2):
        send(alice, session, "When are you open?")
        host_clock.forward(seconds=SILENCE / 2000)
    assert len(answers(alice, session)) == 1
    send(alice, session, "When are you open?")
    assert len(answers(alice, session)) == 2


def test_a_note_does_not_silence_a_bot_since_that_would_betray_it(alice, agent, session):
    send(agent, session, "He is a bore", is_private=True)
    send(alice, session, "When are you open?")
    assert answers(alice, session) == [OPENING]


def test_a_message_that_a_person_has_taken_back_does_not_silence_a_bot(alice, agent, session):
    delete(agent, sent(agent, session, "I am here"))
    send(alice, session, "When are you open?")
    assert answers(alice, session) == [OPENING]


def test_a_person_in_another_session_does_not_silence_a_bot(alice, agent, session, shop, bot):
    other = ChatSession.create(app_id=shop.id, user_id=alice.user.id, bot_id=bot.id)
    sent(agent, other, "I am here")
    send(alice, session, "When are you open?")
    assert answers(alice, session) == [OPENING]


@pytest.mark.parametrize("status", [*LIVE, *OVER])
def test_a_bot_answers_a_message_that_reopens_its_session(alice, session, status):
    ChatSession.update(status=status).execute()
    assert speaking.is_left_to_people(session.id) is (status not in TALKATIVE)
    send(alice, session, "When are you open?")
    assert answers(alice, session) == [OPENING]


def test_looking_for_people_is_bounded(alice, session):
    fill(session, 30)
    with statements() as seen:
        assert not speaking.is_left_to_people(session.id)
    sql, values = seen[-1]
    assert LOOK_BACK in values
    plan = query_plan(sql, values)
    assert (plan.ranges, plan.sorts) == (["message_public"], False), plan
