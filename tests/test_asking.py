"""An assistant answers for bots, later: what it is asked, when it is not, and what happens when it does not answer."""

import dataclasses
import logging
import threading

import pytest

from service import asking, assistant, clock, db
from service.asking import GIVE_UP, LEASE, PAUSES, Asker, assistant_of
from service.models import Bot, BotAnswer, ChatSession, DueAnswer, Message, Notification, speaking
from service.models.speaking import CHARACTERS
from tests.conftest import text_of
from tests.standin import completion, says, sends, standing_in, writes
from tests.test_bot_answers import OPENING, answers, lines, send_in, write_in_the_console
from tests.test_chats import delete, total
from tests.test_conversing import edit, send, sent, told, unread
from tests.watching import at_once, nothing_changes, query_plan, statements

pytestmark = pytest.mark.slow


def waiting():
    """The messages that wait for an answer."""
    return [due.message_id for due in DueAnswer.select().order_by(DueAnswer.message_id)]


@pytest.fixture
def ai():
    with standing_in() as server:
        yield server


@pytest.fixture
def settings(settings, ai):
    return dataclasses.replace(settings, assistant_url=ai.url, assistant_model="small", assistant_key="sk-secret")


@pytest.fixture(autouse=True)
def prepared(bot):
    return BotAnswer.create(bot_id=bot.id, language="en", question="When are you open?", answer=OPENING)


@pytest.fixture
def asker(settings, application):
    return Asker(assistant_of(settings), threading.Event())


def test_the_customer_does_not_wait_for_it(alice, session, ai):
    reply = send(alice, session, "When are you open?")
    assert (reply.status, text_of(reply.data)) == (201, "When are you open?")
    assert (waiting(), ai.asked, answers(alice, session)) == ([reply.data["id"]], [], [])


def test_its_answer_comes_from_the_bot(alice, bot, session, asker):
    send(alice, session, "When are you open?")
    assert asker.turn() and not asker.turn()
    assert lines(alice, session) == [("user", "When are you open?"), ("bot", "I am the assistant.")]
    assert (waiting(), asker.claimed) == ([], {})
    assert told(alice) == [("Hilda", "I am the assistant.")]
    assert [total(alice, session), unread(alice, session)] == [2, 1]
    assert Message.get(Message.sender_type == "bot").sender_id == bot.id


def test_it_is_told_who_it_is_and_what_was_said(alice, bot, session, ai, asker):
    Bot.update(tagline="Knows shoes.", description="All of them.").execute()
    alice.patch("/users/me/settings", {"chat_language": "fr"})
    send(alice, session, "Hello")
    asker.turn()
    send_in(alice, session, "Which one is yours?", "de")
    asker.turn()
    (_, asked) = ai.asked
    assert asked.headers["Authorization"] == "Bearer sk-secret"
    told, *said = asked.body["messages"]
    assert (asked.body["model"], told["role"]) == ("small", "system")
    assert told["content"].startswith("You are Hilda of Shop, ")
    for words in ("Knows shoes.", "All of them.", "Answer in the language fr "):
        assert words in told["content"]
    assert [(message["role"], message["content"]) for message in said] == [
        ("user", "Hello"),
        ("assistant", "I am the assistant."),
        ("user", "Which one is yours?"),
    ]


def test_the_languages_of_the_browser_come_with_the_message(alice, session, ai, asker):
    send_in(alice, session, "Hello", "de-AT, en;q=0.5")
    asker.turn()
    told = ai.asked[0].body["messages"][0]["content"]
    assert "Answer in the language de-AT " in told and "answer in en." in told


def test_the_console_does_not_wait_for_it_either(alice, session, ai, application):
    write_in_the_console(application, alice, session, "Hello", "de-AT")
    assert (ai.asked, len(waiting()), DueAnswer.get().languages) == ([], 1, "de-AT")


def given(ai):
    """The texts that the assistant was given the last time, a list for each turn."""
    return [message["content"].split("\n\n") for message in ai.asked[-1].body["messages"][1:]]


def test_it_is_given_what_the_context_gives(alice, session, say, ai, asker):
    delete(alice, say("deleted"))
    Message.purge(Message.id == say("purged").id)
    say("note", is_private=True), say("burn this", is_read_once=True)
    say("old words"), say("Welcome", sender_type="bot"), say("From now on, it is dark", sender_type="system")
    send(alice, session, "Hello")
    shown = alice.get(f"/chats/{session.id}/context").data["messages"]
    asker.turn()
    assert ai.asked[0].body["messages"][1:] == [{"role": row["role"], "content": row["text"]} for row in shown]
    assert given(ai) == [["old words"], ["Welcome"], ["From now on, it is dark"], ["Hello"]]


def test_messages_of_one_side_in_a_row_are_one_turn(alice, session, say, ai, asker):
    say("Hi", sender_type="bot"), say("How are you?", sender_type="bot"), say("Well"), say("Thanks")
    send(alice, session, "Bye")
    asker.turn()
    assert given(ai) == [["Hi", "How are you?"], ["Well", "Thanks", "Bye"]]


def test_it_is_given_the_newest_that_fit(alice, session, say, ai, asker):
    say("too much"), say("y" * (CHARACTERS - 5))
    send(alice, session, "Hello")
    asker.turn()
    assert given(ai) == [["y" * (CHARACTERS - 5), "Hello"]]
    send(alice, session, "z" * (CHARACTERS + 1))
    asker.turn()
    assert given(ai) == [["z" * CHARACTERS]]


def test_it_is_given_no_more_than_so_many(alice, session, say, ai, asker, monkeypatch):
    monkeypatch.setattr(speaking, "CONTEXT", 3)
    say("1"), say("2"), say("3")
    send(alice, session, "Hello")
    asker.turn()
    assert given(ai) == [["2", "3", "Hello"]]


def test_it_reads_what_a_message_says_by_now(alice, session, ai, asker):
    edit(alice, sent(alice, session, "one"), "two")
    asker.turn()
    assert ai.texts == ["two"]


def test_no_text_of_a_customer_says_where_it_is(alice, session, ai, asker):
    with standing_in() as elsewhere:
        send(alice, session, f"Ignore that. http://{elsewhere.url}/ @http://evil.example/ \r\nHost: evil")
        asker.turn()
        assert (len(ai.asked), elsewhere.asked) == (1, [])


# Who is not answered


@pytest.mark.parametrize("columns", [{"kind": "nobot"}, {"status": "draft"}, {"is_active": False}])
def test_it_is_not_asked_for_a_bot_that_does_not_answer(alice, session, columns):
    Bot.update(columns).execute()
    send(alice, session, "When are you open?")
    assert waiting() == []


def test_it_is_not_asked_what_a_bot_would_not_answer(alice, agent, session):
    send(alice, session, "👍")
    alice.post(f"/chats/{session.id}/messages", {"content": {"image": "x.png"}})
    send(agent, session, "Note", is_private=True)
    assert waiting() == []
    send(agent, session, "I am here")
    send(alice, session, "When are you open?")
    assert waiting() == []


def test_only_the_newest_message_is_answered(alice, session, ai, asker):
    send(alice, session, "One"), send(alice, session, "Two")
    while asker.turn():
        pass
    assert (ai.texts, answers(alice, session)) == (["One\n\nTwo"], ["I am the assistant."])


def test_what_says_nothing_takes_no_answer_away(alice, session, ai, asker):
    send(alice, session, "One"), send(alice, session, "👍")
    asker.turn()
    assert answers(alice, session) == ["I am the assistant."]


def test_each_session_has_its_answer(alice, bob, session, shop, bot, ai, asker):
    other = ChatSession.create(app_id=shop.id, user_id=bob.user.id, bot_id=bot.id)
    send(alice, session, "One"), send(bob, other, "Two")
    while asker.turn():
        pass
    assert (ai.texts, len(answers(alice, session)), len(answers(bob, other))) == (["One", "Two"], 1, 1)


def meanwhile(alice, agent, bot, session, message, what):
    """Something that makes an answer unwanted."""
    if what == "deleted":
        delete(alice, message)
    elif what == "purged":
        Message.purge(Message.id == message.id)
    elif what == "a person answers":
        sent(agent, session, "I am here")
    elif what == "a newer message":
        sent(alice, session, "Another question")
    elif what == "the bot is gone":
        Bot.update(is_active=False).execute()
    else:
        assert alice.put(f"/chats/{session.id}/status", {"status": what}).status == 200


WHATEVER = ("deleted", "purged", "a person answers", "the bot is gone", "archived", "resolved", "on_hold")


@pytest.mark.parametrize("what", WHATEVER)
def test_it_is_not_asked_what_nobody_waits_for(alice, agent, bot, session, ai, asker, what):
    meanwhile(alice, agent, bot, session, sent(alice, session, "Hello"), what)
    asker.turn()
    assert (ai.asked, waiting(), Message.select().where(Message.sender_type == "bot").count()) == ([], [], 0)


@pytest.mark.parametrize("what", [*WHATEVER, "a newer message"])
def test_an_answer_that_nobody_waits_for_any_more_is_dropped(alice, agent, bot, session, ai, asker, what):
    message = sent(alice, session, "Hello")
    asked, done = threading.Event(), threading.Event()

    def behave(handler):
        asked.set()
        assert done.wait(30)
        says("too late")(handler)

    ai.behave = behave
    thread = threading.Thread(target=lambda: (asker.turn(), db.close_database()))
    thread.start()
    assert asked.wait(30)
    meanwhile(alice, agent, bot, session, message, what)
    done.set()
    thread.join()
    assert Message.select().where(Message.sender_type == "bot").count() == 0
    assert len(waiting()) == (what == "a newer message")


def test_purging_a_session_takes_what_waits_away(alice, session, ai, asker):
    sent(alice, session, "Hello")
    Message.purge(Message.chat_session_id == session.id)
    assert waiting() == []


# When it does not answer


def test_it_is_asked_again_with_growing_pauses_and_then_the_bot_answers(host_clock, alice, session, ai, asker, caplog):
    ai.behave = sends({}, 500)
    send_in(alice, session, "When are you open?", "en")
    for pause in PAUSES:
        assert asker.turn() and not asker.turn()
        host_clock.forward(seconds=(pause - 1) / 1000)
        assert not asker.turn()
        host_clock.forward(seconds=0.001)
    assert answers(alice, session) == []
    assert asker.turn()
    assert (answers(alice, session), waiting(), len(ai.asked)) == ([OPENING], [], 1 + len(PAUSES))
    assert len(caplog.records) == 4
    for record in caplog.records:
        assert record.levelno == logging.WARNING
        assert "status 500" in record.getMessage()


def test_it_may_answer_at_last(host_clock, alice, session, ai, asker):
    ai.behave = sends(b"<html>")
    send(alice, session, "Hello")
    asker.turn()
    ai.behave = says("Here I am")
    host_clock.forward(seconds=PAUSES[0] / 1000)
    asker.turn()
    assert answers(alice, session) == ["Here I am"]


@pytest.mark.parametrize(("told", "seconds"), [("60", 60), ("2", 5), ("99999", 120)])
def test_it_may_say_when_to_ask_again(host_clock, alice, session, ai, asker, told, seconds):
    ai.behave = sends({}, 429, retry_after=told)
    send(alice, session, "Hello")
    asker.turn()
    host_clock.forward(seconds=seconds - 0.001)
    assert not asker.turn()
    host_clock.forward(seconds=0.001)
    assert asker.turn()
    assert len(ai.asked) == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 307])
def test_where_it_refuses_the_bot_answers_at_once(alice, session, ai, asker, status):
    ai.behave = sends({}, status)
    send(alice, session, "When are you open?")
    asker.turn()
    assert (answers(alice, session), waiting(), len(ai.asked)) == ([OPENING], [], 1)


def test_the_bot_answers_in_the_language_that_the_assistant_would_have_used(alice, bot, session, ai, asker):
    BotAnswer.create(bot_id=bot.id, language="de", question="When are you open?", answer="Von 9 bis 5.")
    ai.behave = sends({}, 401)
    send_in(alice, session, "When are you open?", "de")
    asker.turn()
    assert answers(alice, session) == ["Von 9 bis 5."]


def test_nobody_is_kept_waiting_for_long(host_clock, alice, session, ai, asker):
    send(alice, session, "When are you open?")
    host_clock.forward(seconds=GIVE_UP / 1000 + 0.001)
    asker.turn()
    assert (answers(alice, session), ai.asked) == ([OPENING], [])


def test_neither_texts_nor_keys_are_logged(alice, session, ai, asker, caplog):
    caplog.set_level(logging.DEBUG)
    for behave in (writes(b"my cat"), sends(b"my cat", 400), sends(completion(["my cat"])), says("my cat")):
        ai.behave = behave
        send(alice, session, "When is my cat fed?")
        asker.turn()
    written = " ".join(record.getMessage() for record in caplog.records if record.name != "peewee")
    assert "cat" not in written and "sk-secret" not in written


# Several who ask


def test_a_message_is_asked_about_by_one(alice, session, ai, settings):
    send(alice, session, "Hello")
    turns = at_once(4, lambda _: Asker(assistant_of(settings), threading.Event()).turn())
    assert sorted(turns) == [False, False, False, True]
    assert (len(ai.asked), answers(alice, session)) == (1, ["I am the assistant."])


def test_several_take_one_each(alice, shop, bot, ai, settings):
    sessions = [ChatSession.create(app_id=shop.id, user_id=alice.user.id, bot_id=bot.id) for _ in range(4)]
    for number, session in enumerate(sessions):
        send(alice, session, f"Number {number}")
    turns = at_once(4, lambda _: Asker(assistant_of(settings), threading.Event()).turn())
    assert (turns, len(ai.asked)) == ([True] * 4, 4)
    assert [len(answers(alice, session)) for session in sessions] == [1] * 4


def test_who_was_killed_is_succeeded_when_the_lease_ends(host_clock, alice, session, ai, asker):
    send(alice, session, "Hello")
    assert DueAnswer.claim(LEASE)
    host_clock.forward(seconds=(LEASE - 1) / 1000)
    assert not asker.turn()
    host_clock.forward(seconds=0.001)
    assert asker.turn()
    assert answers(alice, session) == ["I am the assistant."]


def test_who_comes_back_too_late_stores_nothing(host_clock, alice, session, ai, asker):
    send(alice, session, "Hello")
    slow = DueAnswer.claim(LEASE)
    host_clock.forward(seconds=LEASE / 1000)
    asker.turn()
    with nothing_changes():
        assert not speaking.deliver(slow, "Me too")
        slow.postpone(0)


def test_whoever_is_killed_each_time_is_succeeded_by_the_bot(host_clock, alice, session, ai, asker):
    send(alice, session, "When are you open?")
    for _ in range(1 + len(PAUSES)):
        assert DueAnswer.claim(LEASE)
        host_clock.forward(seconds=LEASE / 1000)
    asker.turn()
    assert (answers(alice, session), ai.asked) == ([OPENING], [])


def test_when_the_answer_cannot_be_stored_the_message_waits_on(host_clock, alice, session, ai, asker, monkeypatch):
    send(alice, session, "Hello")
    with monkeypatch.context() as broken, nothing_changes(Message, Notification, ChatSession):
        broken.setattr(speaking, "_say", None)
        with pytest.raises(TypeError):
            asker.turn()
    assert (len(waiting()), asker.claimed) == (1, {})
    host_clock.forward(seconds=LEASE / 1000)
    asker.turn()
    assert answers(alice, session) == ["I am the assistant."]


# Beside the server


def test_threads_answer_until_they_are_stopped(alice, session, ai, settings):
    stop = threading.Event()
    with asking.asking(settings, stop):
        running = [thread for thread in threading.enumerate() if thread.name.startswith("asking")]
        assert len(running) == asking.THREADS
        send(alice, session, "Hello")
        while waiting():
            stop.wait(0.01)
    assert stop.is_set() and not any(thread.is_alive() for thread in running)
    assert answers(alice, session) == ["I am the assistant."]


def test_a_fault_stops_no_thread(alice, session, ai, settings, monkeypatch, caplog):
    monkeypatch.setattr(asking, "REST", 0.01)
    stop, failed = threading.Event(), threading.Event()
    claim = DueAnswer.claim

    def fail_once(lease):
        if failed.is_set():
            return claim(lease)
        failed.set()
        raise RuntimeError

    monkeypatch.setattr(DueAnswer, "claim", fail_once)
    with asking.asking(settings, stop):
        send(alice, session, "Hello")
        while waiting():
            stop.wait(0.01)
    assert "an answer failed" in caplog.text


def test_what_is_under_way_at_the_end_is_handed_over(alice, session, ai, settings, asker, monkeypatch):
    monkeypatch.setattr(asking, "LAST_WORD", 0.01)
    asked, done = threading.Event(), threading.Event()

    def behave(handler):
        asked.set()
        assert done.wait(30)
        says("too late")(handler)

    ai.behave = behave
    send(alice, session, "Hello")
    with asking.asking(settings, threading.Event()):
        assert asked.wait(30)
        assert DueAnswer.get().due_at > clock.now()
    assert DueAnswer.get().due_at <= clock.now()
    ai.behave = says("Now")
    asker.turn()
    done.set()
    for thread in threading.enumerate():
        if thread.name.startswith("asking"):
            thread.join()
    assert answers(alice, session) == ["Now"]


def test_what_waits_when_there_is_no_assistant_any_more_gets_the_answer_of_the_bot(alice, session, ai, settings):
    send(alice, session, "When are you open?")
    with asking.asking(dataclasses.replace(settings, assistant_url=""), threading.Event()):
        for thread in threading.enumerate():
            if thread.name.startswith("asking"):
                thread.join()
    assert (answers(alice, session), waiting(), ai.asked) == ([OPENING], [], [])


def test_without_an_assistant_there_is_no_thread(settings, application):
    with asking.asking(dataclasses.replace(settings, assistant_url=""), threading.Event()):
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("asking")]


def test_what_waits_is_found_without_a_search(application, host_clock):
    with statements() as seen:
        assert DueAnswer.claim(LEASE) is None
    plan = query_plan(*seen[0])
    assert (plan.ranges, plan.scans) == (["due_answer_due_at"], []), plan


def test_the_lease_outlasts_the_patience_with_an_assistant():
    assert (assistant.CONNECT + assistant.PATIENCE) * clock.SECOND < LEASE
