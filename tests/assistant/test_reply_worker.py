"""The worker that requests replies from the AI server: its requests, retries and the conditions without a request."""

import dataclasses
import logging
import threading

import pytest

from service import clock, db, queue_worker
from service.assistant import client, reply_worker
from service.assistant.client import CALL_PERSON
from service.assistant.metering import metered_assistant
from service.assistant.reply_worker import LEASE, MAX_AGE, RETRY_DELAYS, Worker
from service.models import Bot, CannedAnswer, ChatSession, Message, Notification, PendingReply, User, bot_replies
from service.models.audit_log import AuditLog
from service.models.bot_replies import CONTEXT_CHARACTERS
from service.models.canned_answers import BotReply
from service.responder import PHRASES
from tests.support.bot_replies import OPENING, answers, lines, send_in, write_in_the_console
from tests.support.chats import delete, total
from tests.support.client import text_of, walk
from tests.support.fake_ai import calls, completion, fake_server, says, sends, writes
from tests.support.messages import chat_notifications, edit, send, sent, unread
from tests.support.observe import at_once, nothing_changes, query_plan, statements

pytestmark = pytest.mark.slow


def pending():
    """The identifiers of the messages with a pending reply."""
    return [row.message_id for row in PendingReply.select().order_by(PendingReply.message_id)]


@pytest.fixture(autouse=True)
def canned_answer(bot):
    return CannedAnswer.create(bot_id=bot.id, language="en", question="When are you open?", answer=OPENING)


def test_sending_a_message_does_not_wait_for_the_assistant(alice, session, ai):
    reply = send(alice, session, "When are you open?")
    assert (reply.status, text_of(reply.data)) == (201, "When are you open?")
    assert (pending(), ai.requests, answers(alice, session)) == ([reply.data["id"]], [], [])


def test_reply_of_the_assistant_is_sent_by_the_bot(alice, bot, session, replier):
    send(alice, session, "When are you open?")
    assert replier.run_once() and not replier.run_once()
    assert lines(alice, session) == [("user", "When are you open?"), ("bot", "I am the assistant.")]
    assert (pending(), replier.in_progress) == ([], [])
    assert chat_notifications(alice) == [("Hilda", "I am the assistant.")]
    assert [total(alice, session), unread(alice, session)] == [2, 1]
    assert Message.get(Message.sender_type == "bot").sender_id == bot.id


def test_request_has_the_profile_and_the_messages(alice, bot, session, ai, replier):
    Bot.update(tagline="Knows shoes.", description="All of them.").execute()
    alice.patch("/users/me/settings", {"chat_language": "fr"})
    send(alice, session, "Hello")
    replier.run_once()
    send_in(alice, session, "Which one is yours?", "de")
    replier.run_once()
    (_, request) = ai.requests
    assert request.headers["Authorization"] == "Bearer sk-secret"
    system, *messages = request.body["messages"]
    assert (request.body["model"], system["role"]) == ("small", "system")
    assert system["content"].startswith("You are Hilda of Shop, ")
    for words in ("Knows shoes.", "All of them.", "Answer in the language fr "):
        assert words in system["content"]
    assert [(message["role"], message["content"]) for message in messages] == [
        ("user", "Hello"),
        ("assistant", "I am the assistant."),
        ("user", "Which one is yours?"),
    ]


def test_request_has_the_answers_near_to_the_question(alice, bot, session, ai, replier):
    CannedAnswer.create(bot_id=bot.id, question="Which sizes do you have?", answer="36 to 48.")
    send(alice, session, "Do you have my size? It is one of the large sizes.")
    replier.run_once()
    system = ai.requests[0].body["messages"][0]["content"]
    assert "Q: Which sizes do you have?\nA: 36 to 48.\nQ: When are you open?\nA: We are open from 9 to 5.\n" in system


def test_request_has_first_name_and_language_of_the_customer_and_nothing_else(alice, bot, session, ai, replier):
    others = {"last_name": "Liddell", "display_name": "al1ce", "phone": "+41790000000", "timezone": "Asia/Tokyo"}
    User.update(first_name="Alice \n X", locale="de-CH", **others).where(User.id == alice.user.id).execute()
    send(alice, session, "Hello")
    replier.run_once()
    (request,) = ai.requests
    system = request.body["messages"][0]["content"]
    assert "The first name of the customer is Alice X.\n" in system and "language de-CH " in system
    ids = (alice.user.id, alice.user.email, session.id, bot.id, session.app_id, session.conversation_id)
    assert not [text for text in (*others.values(), *ids) if text.encode() in request.content]


def test_request_has_the_languages_of_the_browser(alice, session, ai, replier):
    send_in(alice, session, "Hello", "de-AT, en;q=0.5")
    replier.run_once()
    system = ai.requests[0].body["messages"][0]["content"]
    assert "Answer in the language de-AT " in system and "answer in en." in system


def test_console_does_not_wait_for_the_assistant(alice, session, ai, application):
    write_in_the_console(application, alice, session, "Hello", "de-AT")
    assert (ai.requests, len(pending()), PendingReply.get().languages) == ([], 1, "de-AT")


def last_texts(ai):
    """The texts of the last request without the system message, a list for each message."""
    return [message["content"].split("\n\n") for message in ai.requests[-1].body["messages"][1:]]


def test_request_has_the_messages_of_the_context(alice, session, say, ai, replier):
    delete(alice, say("deleted"))
    Message.purge(Message.id == say("purged").id)
    say("note", is_private=True), say("burn this", is_read_once=True)
    say("old words"), say("Welcome", sender_type="bot"), say("From now on, it is dark", sender_type="system")
    send(alice, session, "Hello")
    shown = alice.get(f"/chats/{session.id}/context").data["messages"]
    replier.run_once()
    assert ai.requests[0].body["messages"][1:] == [{"role": row["role"], "content": row["text"]} for row in shown]
    assert last_texts(ai) == [["old words"], ["Welcome"], ["From now on, it is dark"], ["Hello"]]


def test_consecutive_messages_of_one_role_are_merged(alice, session, say, ai, replier):
    say("Hi", sender_type="bot"), say("How are you?", sender_type="bot"), say("Well"), say("Thanks")
    send(alice, session, "Bye")
    replier.run_once()
    assert last_texts(ai) == [["Hi", "How are you?"], ["Well", "Thanks", "Bye"]]


def test_request_has_the_newest_messages_up_to_the_character_limit(alice, session, say, ai, replier):
    say("too much"), say("y" * (CONTEXT_CHARACTERS - 5))
    send(alice, session, "Hello")
    replier.run_once()
    assert last_texts(ai) == [["y" * (CONTEXT_CHARACTERS - 5), "Hello"]]
    send(alice, session, "z" * (CONTEXT_CHARACTERS + 1))
    replier.run_once()
    assert last_texts(ai) == [["z" * CONTEXT_CHARACTERS]]


def test_request_has_a_limited_number_of_messages(alice, session, say, ai, replier, monkeypatch):
    monkeypatch.setattr(bot_replies, "CONTEXT_MESSAGES", 3)
    say("1"), say("2"), say("3")
    send(alice, session, "Hello")
    replier.run_once()
    assert last_texts(ai) == [["2", "3", "Hello"]]


def test_request_has_the_current_text_of_an_edited_message(alice, session, ai, replier):
    edit(alice, sent(alice, session, "one"), "two")
    replier.run_once()
    assert ai.texts == ["two"]


def test_text_of_a_message_does_not_change_the_address(alice, session, ai, replier):
    with fake_server() as elsewhere:
        send(alice, session, f"Ignore that. http://{elsewhere.url}/ @http://evil.example/ \r\nHost: evil")
        replier.run_once()
        assert (len(ai.requests), elsewhere.requests) == (1, [])


# Messages without a reply


@pytest.mark.parametrize("columns", [{"kind": "nobot"}, {"status": "draft"}, {"is_active": False}])
def test_bot_that_does_not_reply_makes_no_request(alice, session, columns):
    Bot.update(columns).execute()
    send(alice, session, "When are you open?")
    assert pending() == []


def test_message_that_needs_no_reply_makes_no_request(alice, agent, session):
    send(alice, session, "👍")
    alice.post(f"/chats/{session.id}/messages", {"content": {"image": "x.png"}})
    send(agent, session, "Note", is_private=True)
    assert pending() == []
    send(agent, session, "I am here")
    send(alice, session, "When are you open?")
    assert pending() == []


def test_only_the_newest_message_gets_a_reply(alice, session, ai, replier):
    send(alice, session, "One"), send(alice, session, "Two")
    while replier.run_once():
        pass
    assert (ai.texts, answers(alice, session)) == (["One\n\nTwo"], ["I am the assistant."])


def test_message_without_words_does_not_cancel_a_pending_reply(alice, session, ai, replier):
    send(alice, session, "One"), send(alice, session, "👍")
    replier.run_once()
    assert answers(alice, session) == ["I am the assistant."]


def test_each_chat_session_gets_its_reply(alice, bob, session, shop, bot, ai, replier):
    other = ChatSession.create(app_id=shop.id, user_id=bob.user.id, bot_id=bot.id)
    send(alice, session, "One"), send(bob, other, "Two")
    while replier.run_once():
        pass
    assert (ai.texts, len(answers(alice, session)), len(answers(bob, other))) == (["One", "Two"], 1, 1)


def make_obsolete(alice, agent, bot, session, message, event):
    """Do something that makes a reply obsolete."""
    if event == "deleted":
        delete(alice, message)
    elif event == "purged":
        Message.purge(Message.id == message.id)
    elif event == "an agent replies":
        sent(agent, session, "I am here")
    elif event == "a newer message":
        sent(alice, session, "Another question")
    elif event == "the bot is inactive":
        Bot.update(is_active=False).execute()
    else:
        assert alice.put(f"/chats/{session.id}/status", {"status": event}).status == 200


REASONS = ("deleted", "purged", "an agent replies", "the bot is inactive", "archived", "resolved", "on_hold")


@pytest.mark.parametrize("event", REASONS)
def test_obsolete_reply_is_not_requested(alice, agent, bot, session, ai, replier, event):
    make_obsolete(alice, agent, bot, session, sent(alice, session, "Hello"), event)
    replier.run_once()
    assert (ai.requests, pending(), Message.select().where(Message.sender_type == "bot").count()) == ([], [], 0)


@pytest.mark.parametrize("event", [*REASONS, "a newer message"])
def test_obsolete_reply_is_dropped(alice, agent, bot, session, ai, replier, event):
    message = sent(alice, session, "Hello")
    received, done = threading.Event(), threading.Event()

    def behave(handler):
        received.set()
        assert done.wait(30)
        says("too late")(handler)

    ai.behave = behave
    thread = threading.Thread(target=lambda: (replier.run_once(), db.close_database()))
    thread.start()
    assert received.wait(30)
    make_obsolete(alice, agent, bot, session, message, event)
    done.set()
    thread.join()
    assert Message.select().where(Message.sender_type == "bot").count() == 0
    assert len(pending()) == (event == "a newer message")


def test_purging_a_chat_session_cancels_its_pending_reply(alice, session, ai, replier):
    sent(alice, session, "Hello")
    Message.purge(Message.chat_session_id == session.id)
    assert pending() == []


# Handover


def handed_over(session):
    found = ChatSession.get_by_id(session.id)
    return found.status == "pending" and bool(found.handed_over_at)


@pytest.mark.parametrize(("text", "shown"), [("One moment, I call Ada.", None), (None, PHRASES["de"].handed_over)])
def test_assistant_calls_a_person(alice, agent, bot, session, ai, replier, text, shown):
    ai.behave = calls(CALL_PERSON, text=text)
    send_in(alice, session, "Where is my parcel?", "de")
    replier.run_once()
    assert (answers(alice, session), handed_over(session), pending()) == ([shown or text], True, [])
    titles = [row["title"] for row in walk(agent, "/notifications")]
    assert titles == ["A customer needs a person", "A customer waits for a reply"]
    entry = AuditLog.select().where(AuditLog.kind == "chat_handed_over").get()
    assert (entry.actor_id, entry.subject_id) == ("service", alice.user.id)
    send(alice, session, "Hello?")
    assert (pending(), replier.run_once()) == ([], False)


def test_assistant_that_calls_a_person_too_late_changes_nothing(alice, agent, session, ai, replier):
    sent(alice, session, "Hello")
    claimed = PendingReply.claim(LEASE)
    sent(agent, session, "I am here")
    with nothing_changes(ChatSession, Message, Notification):
        assert not bot_replies.store_reply(claimed, BotReply(""), calls_person=True)


def test_customer_who_asks_for_a_person_needs_no_assistant(alice, session, ai, replier):
    send(alice, session, "One"), send(alice, session, "Can I talk to a human?")
    assert (pending(), replier.run_once(), ai.requests) == ([], False, [])
    assert (answers(alice, session), handed_over(session)) == ([PHRASES["en"].handed_over], True)


def test_handover_cancels_a_pending_reply(alice, session, ai, replier):
    send(alice, session, "Hello")
    alice.post(f"/chats/{session.id}/handover")
    assert (pending(), replier.run_once()) == ([], False)


# Errors


def test_failed_requests_are_repeated_with_growing_delays_then_the_bot_replies(
    host_clock, alice, session, ai, replier, caplog
):
    ai.behave = sends({}, 502)
    send_in(alice, session, "When are you open?", "en")
    for delay in RETRY_DELAYS:
        assert replier.run_once() and not replier.run_once()
        host_clock.forward(seconds=(delay - 1) / 1000)
        assert not replier.run_once()
        host_clock.forward(seconds=0.001)
    assert answers(alice, session) == []
    assert replier.run_once()
    assert (answers(alice, session), pending(), len(ai.requests)) == ([OPENING], [], 1 + len(RETRY_DELAYS))
    assert len(caplog.records) == 4
    for record in caplog.records:
        assert record.levelno == logging.WARNING
        assert "status 502" in record.getMessage()


def test_repeated_request_may_succeed(host_clock, alice, session, ai, replier):
    ai.behave = sends(b"<html>")
    send(alice, session, "Hello")
    replier.run_once()
    ai.behave = says("Here I am")
    host_clock.forward(seconds=RETRY_DELAYS[0] / 1000)
    replier.run_once()
    assert answers(alice, session) == ["Here I am"]


@pytest.mark.parametrize(("retry_after", "seconds"), [("60", 60), ("2", 5), ("99999", 120)])
def test_retry_after_sets_the_delay(host_clock, alice, session, ai, replier, retry_after, seconds):
    ai.behave = sends({}, 429, retry_after=retry_after)
    send(alice, session, "Hello")
    replier.run_once()
    host_clock.forward(seconds=seconds - 0.001)
    assert not replier.run_once()
    host_clock.forward(seconds=0.001)
    assert replier.run_once()
    assert len(ai.requests) == 2


@pytest.mark.parametrize("status", [401, 403, 404, 413, 307])
def test_after_a_final_error_the_bot_replies_at_once(alice, session, ai, replier, status):
    ai.behave = sends({}, status)
    send(alice, session, "When are you open?")
    replier.run_once()
    assert (answers(alice, session), pending(), len(ai.requests)) == ([OPENING], [], 1)


def test_canned_answer_has_the_language_of_the_request(alice, bot, session, ai, replier):
    CannedAnswer.create(bot_id=bot.id, language="de", question="When are you open?", answer="Von 9 bis 5.")
    ai.behave = sends({}, 401)
    send_in(alice, session, "When are you open?", "de")
    replier.run_once()
    assert answers(alice, session) == ["Von 9 bis 5."]


def test_old_message_gets_a_canned_answer(host_clock, alice, session, ai, replier):
    send(alice, session, "When are you open?")
    host_clock.forward(seconds=MAX_AGE / 1000 + 0.001)
    replier.run_once()
    assert (answers(alice, session), ai.requests) == ([OPENING], [])


def test_log_contains_no_texts_and_no_keys(alice, session, ai, replier, caplog):
    caplog.set_level(logging.DEBUG)
    for behave in (writes(b"my cat"), sends(b"my cat", 400), sends(completion(["my cat"])), says("my cat")):
        ai.behave = behave
        send(alice, session, "When is my cat fed?")
        replier.run_once()
    written = " ".join(record.getMessage() for record in caplog.records if record.name != "peewee")
    assert "cat" not in written and "sk-secret" not in written


# Several workers


def test_only_one_worker_processes_a_message(alice, session, ai, settings):
    send(alice, session, "Hello")
    results = at_once(4, lambda _: Worker(metered_assistant(settings), threading.Event()).run_once())
    assert sorted(results) == [False, False, False, True]
    assert (len(ai.requests), answers(alice, session)) == (1, ["I am the assistant."])


def test_workers_process_different_messages(alice, shop, bot, ai, settings):
    sessions = [ChatSession.create(app_id=shop.id, user_id=alice.user.id, bot_id=bot.id) for _ in range(4)]
    for number, session in enumerate(sessions):
        send(alice, session, f"Number {number}")
    results = at_once(4, lambda _: Worker(metered_assistant(settings), threading.Event()).run_once())
    assert (results, len(ai.requests)) == ([True] * 4, 4)
    assert [len(answers(alice, session)) for session in sessions] == [1] * 4


def test_message_of_a_killed_worker_is_due_when_the_lease_ends(host_clock, alice, session, ai, replier):
    send(alice, session, "Hello")
    assert PendingReply.claim(LEASE)
    host_clock.forward(seconds=(LEASE - 1) / 1000)
    assert not replier.run_once()
    host_clock.forward(seconds=0.001)
    assert replier.run_once()
    assert answers(alice, session) == ["I am the assistant."]


def test_worker_whose_lease_has_ended_stores_nothing(host_clock, alice, session, ai, replier):
    send(alice, session, "Hello")
    slow = PendingReply.claim(LEASE)
    host_clock.forward(seconds=LEASE / 1000)
    replier.run_once()
    with nothing_changes():
        assert not bot_replies.store_reply(slow, BotReply("Me too"))
        slow.postpone(0)


def test_bot_replies_after_all_attempts_were_killed(host_clock, alice, session, ai, replier):
    send(alice, session, "When are you open?")
    for _ in range(1 + len(RETRY_DELAYS)):
        assert PendingReply.claim(LEASE)
        host_clock.forward(seconds=LEASE / 1000)
    replier.run_once()
    assert (answers(alice, session), ai.requests) == ([OPENING], [])


def test_reply_that_cannot_be_stored_stays_pending(host_clock, alice, session, ai, replier, monkeypatch):
    send(alice, session, "Hello")
    with monkeypatch.context() as broken, nothing_changes(Message, Notification, ChatSession):
        broken.setattr(bot_replies, "_post", None)
        with pytest.raises(TypeError):
            replier.run_once()
    assert (len(pending()), replier.in_progress) == (1, [])
    host_clock.forward(seconds=LEASE / 1000)
    replier.run_once()
    assert answers(alice, session) == ["I am the assistant."]


# Threads


def test_threads_reply_until_they_are_stopped(alice, session, ai, settings):
    stop = threading.Event()
    with reply_worker.reply_threads(settings, stop):
        running = [thread for thread in threading.enumerate() if thread.name.startswith("assistant-")]
        assert len(running) == reply_worker.THREADS
        send(alice, session, "Hello")
        while pending():
            stop.wait(0.01)
    assert stop.is_set() and not any(thread.is_alive() for thread in running)
    assert answers(alice, session) == ["I am the assistant."]


def test_error_does_not_end_a_thread(alice, session, ai, settings, monkeypatch, caplog):
    monkeypatch.setattr(queue_worker, "ERROR_DELAY", 0.01)
    stop, failed = threading.Event(), threading.Event()
    claim = PendingReply.claim

    def fail_once(lease):
        if failed.is_set():
            return claim(lease)
        failed.set()
        raise RuntimeError

    monkeypatch.setattr(PendingReply, "claim", fail_once)
    with reply_worker.reply_threads(settings, stop):
        send(alice, session, "Hello")
        while pending():
            stop.wait(0.01)
    assert "one of the bot replies was not processed" in caplog.text


def test_replies_in_progress_are_released_at_the_end(alice, session, ai, settings, replier, monkeypatch):
    monkeypatch.setattr(Worker, "shutdown_timeout", 0.01)
    received, done = threading.Event(), threading.Event()

    def behave(handler):
        received.set()
        assert done.wait(30)
        says("too late")(handler)

    ai.behave = behave
    send(alice, session, "Hello")
    with reply_worker.reply_threads(settings, threading.Event()):
        assert received.wait(30)
        assert PendingReply.get().due_at > clock.now()
    assert PendingReply.get().due_at <= clock.now()
    ai.behave = says("Now")
    replier.run_once()
    done.set()
    for thread in threading.enumerate():
        if thread.name.startswith("assistant-"):
            thread.join()
    assert answers(alice, session) == ["Now"]


def test_pending_messages_get_canned_answers_without_an_assistant(alice, session, ai, settings):
    send(alice, session, "When are you open?")
    with reply_worker.reply_threads(dataclasses.replace(settings, assistant_url=""), threading.Event()):
        for thread in threading.enumerate():
            if thread.name.startswith("assistant-"):
                thread.join()
    assert (answers(alice, session), pending(), ai.requests) == ([OPENING], [], [])


def test_without_an_assistant_there_is_no_thread(settings, application):
    with reply_worker.reply_threads(dataclasses.replace(settings, assistant_url=""), threading.Event()):
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("assistant-")]


def test_pending_messages_are_found_by_an_index(application, host_clock):
    with statements() as seen:
        assert PendingReply.claim(LEASE) is None
    plan = query_plan(*seen[0])
    assert (plan.ranges, plan.scans) == (["pending_reply_due_at"], []), plan


def test_lease_is_longer_than_the_timeout():
    assert (client.CONNECT_TIMEOUT + client.TIMEOUT) * clock.SECOND < LEASE
