"""The context of a chat session for an AI: messages, language, what is left out."""

import pytest

from service.models import Bot, CannedAnswer, ChatSession, Message, User, inbox
from tests.support.bot_replies import send_in
from tests.support.chats import NO_SESSION, delete, fill
from tests.support.messages import edit, send, sent
from tests.support.observe import database_steps, nothing_changes


@pytest.fixture
def bot(shop):
    """Hilda, for whom people answer."""
    return Bot.create(app_id=shop.id, name="Hilda", kind="nobot", status="published")


def context(client, session, query=""):
    return client.get(f"/chats/{session.id}/context{query}").data


def lines(client, session, query=""):
    return [(message["role"], message["text"]) for message in context(client, session, query)["messages"]]


def test_messages_are_in_order_with_the_role_of_the_sender(alice, agent, session, say):
    first = sent(alice, session, "Do you have apples?")
    say("We do", sender_type="bot")
    sent(agent, session, "Red ones")
    say("The shop closes", sender_type="system")
    say("From afar", sender_type="Übersetzer")
    assert lines(alice, session) == [
        ("user", "Do you have apples?"),
        ("assistant", "We do"),
        ("assistant", "Red ones"),
        ("system", "The shop closes"),
        ("assistant", "From afar"),
    ]
    shown = context(alice, session)["messages"][0]
    assert shown == {"id": first.id, "role": "user", "text": "Do you have apples?", "created_at": first.created_at}


@pytest.mark.parametrize("who", ["alice", "agent", "admin"])
def test_messages_that_are_not_for_the_ai_are_omitted(request, alice, agent, session, say, who):
    gone, purged = say("deleted"), say("purged")
    say("note", is_private=True), say("burn this", is_read_once=True), say("")
    alice.post(f"/chats/{session.id}/messages", {"content": {"image": "x.png"}})
    kept = say("kept")
    delete(alice, gone)
    Message.purge(Message.id == purged.id)
    assert lines(request.getfixturevalue(who), session) == [("user", "kept")]
    delete(alice, kept)
    assert lines(request.getfixturevalue(who), session) == []


def test_an_edited_message_has_its_current_text(alice, session):
    edit(alice, sent(alice, session, "one"), "two")
    assert lines(alice, session) == [("user", "two")]


def test_a_text_is_complete(alice, session):
    send(alice, session, "x" * 5000)
    assert lines(alice, session) == [("user", "x" * 5000)]


def test_a_limit_selects_the_newest(alice, session):
    fill(session, 0)
    for number in range(5):
        sent(alice, session, str(number))
    for query, expected in (("?limit=2", "34"), ("?limit=1", "4"), ("?limit=0", "4"), ("", "01234")):
        assert "".join(text for _, text in lines(alice, session, query)) == expected
    assert alice.get(f"/chats/{session.id}/context?limit=x").error == (400, "invalid_parameter")


def test_there_are_50_messages_by_default_and_at_most_200(alice, session, say):
    Message.insert_many(
        {"id": f"{number:026}", "chat_session_id": session.id, "content": "[]", "plain_text": "x"}
        for number in range(203)
    ).execute()
    for query, number in (("", 50), ("?limit=200", 200), ("?limit=201", 200)):
        assert len(context(alice, session, query)["messages"]) == number


def test_hidden_messages_do_not_count(alice, session, say):
    say("kept")
    for _ in range(5):
        say("burn this", is_read_once=True), say("note", is_private=True)
    assert lines(alice, session, "?limit=1") == [("user", "kept")]


def test_only_the_newest_messages_are_scanned(alice, session, say, monkeypatch):
    assert inbox.CONTEXT_DEPTH == 1000
    monkeypatch.setattr(inbox, "CONTEXT_DEPTH", 5)
    say("kept")
    fill(session, 4, is_read_once=True)
    assert lines(alice, session) == [("user", "kept")]
    fill(session, 100, is_read_once=True)
    assert lines(alice, session) == []

    def cost():
        return database_steps(lambda: context(alice, session))

    cost()
    few = cost()
    fill(session, 1000, is_read_once=True)
    assert cost() <= 1.05 * few


@pytest.mark.parametrize(
    ("changes", "header", "locale", "languages"),
    [
        ({}, "", "", []),
        ({"chat_language": "de-CH"}, "it", "fr", ["de-CH"]),
        ({}, "en;q=0.1, it", "fr", ["it", "en"]),
        ({}, "", "fr", ["fr"]),
        ({"appearance": {"language": "ja"}}, "", "", []),
        ({"appearance": {"language": "ja"}}, "it", "fr", ["it"]),
    ],
)
def test_the_languages_are_those_of_the_setting_the_browser_or_the_profile(
    alice, agent, session, changes, header, locale, languages
):
    assert alice.patch("/users/me/settings", changes).status == 200
    User.update(locale=locale).where(User.id == alice.user.id).execute()
    User.update(locale="ja").where(User.id == agent.user.id).execute()
    assert send_in(alice, session, "Hello", header).status == 201
    for client in (alice, agent):
        assert context(client, session)["languages"] == languages


def test_the_languages_are_those_of_the_customers_last_message(alice, agent, session):
    def languages_after(client, header):
        assert send_in(client, session, "Hello", header).status == 201
        return context(agent, session)["languages"]

    assert languages_after(alice, "fr-CH, fr;q=0.9") == ["fr-CH", "fr"]
    assert languages_after(alice, "") == ["fr-CH", "fr"]
    assert languages_after(alice, "*, <script>") == ["fr-CH", "fr"]
    assert languages_after(agent, "ja") == ["fr-CH", "fr"]
    assert languages_after(alice, "de") == ["de"]
    other = ChatSession.create(app_id=session.app_id, user_id=alice.user.id)
    assert context(agent, other)["languages"] == []


def test_the_bot_replies_in_the_languages_of_the_context(alice, session, bot):
    Bot.update(kind="bot").where(Bot.id == bot.id).execute()
    ChatSession.update(bot_id=bot.id, accept_language="fr").where(ChatSession.id == session.id).execute()
    for tag in ("de", "fr", "en"):
        CannedAnswer.create(bot_id=bot.id, language=tag, question="When are you open?", answer=tag)
    alice.patch("/users/me/settings", {"appearance": {"language": "de"}})
    assert send(alice, session, "When are you open?").status == 201
    assert lines(alice, session)[-1] == ("assistant", "fr")
    assert context(alice, session)["languages"] == ["fr"]


def test_a_context_is_available_to_readers_of_the_session(bob, other_agent, anyone, alice, session):
    with nothing_changes():
        for client in (bob, other_agent):
            assert client.get(f"/chats/{session.id}/context").error == (403, "forbidden")
        assert anyone.get(f"/chats/{session.id}/context").error == (401, "missing_credentials")
        assert alice.get(f"/chats/{NO_SESSION}/context").error == (404, "session_not_found")
