"""Translations by the assistant: of messages for staff, and of messages that staff sends."""

import dataclasses
import html
import json
import re
import threading

import pytest

from service import db
from service.assistant import staff_requests
from service.assistant.translations import INSTRUCTIONS
from service.http.application import build_app
from service.models import AssistantUsage, ChatSession, Message, MessageImage, Notification, User, message_translations
from service.models.audit_log import AuditLog
from service.models.message_translations import MAX_LANGUAGES, MAX_TEXT
from service.operate import import_export
from service.routes import operations
from tests.support.client import Client
from tests.support.fake_ai import calls, completion, hangs, resets, says, sends
from tests.support.images import upload_image
from tests.support.messages import edit, send, sent
from tests.support.observe import nothing_changes
from tests.support.web_client import Browser, Forms

pytestmark = [pytest.mark.slow, pytest.mark.database]

GERMAN = "Language: fr\nWo ist mein Paket?"
STORED = {"text": "Wo ist mein Paket?", "is_automatic": True, "source_language": "fr"}


@pytest.fixture
def ai(ai):
    ai.behave = says(GERMAN)
    return ai


@pytest.fixture
def message(alice, session):
    """A message of the customer, whose language is French."""
    User.update(locale="fr").where(User.id == alice.user.id).execute()
    return sent(alice, session, "Où est mon colis ?")


@pytest.fixture
def german(agent):
    """The agent, who reads German."""
    User.update(locale="de").where(User.id == agent.user.id).execute()
    return agent


def translate(client, message, **body):
    return client.post(f"/chats/{message.chat_session_id}/messages/{message.id}/translation", body)


def translations(client, message, path="messages"):
    """Return the translations of a message as a caller sees them in a list."""
    rows = client.get(f"/chats/{message.chat_session_id}/{path}").data
    (found,) = [row["translations"] for row in rows if row["id"] == message.id]
    return json.loads(bytes(found)) if found else None


class TestReading:
    def test_translation_is_returned_and_stored(self, german, message, ai):
        reply = translate(german, message)
        assert (reply.status, reply.data) == (200, {"language": "de", **STORED})
        assert translations(german, message) == {"de": STORED}

    def test_original_stays(self, german, message, ai):
        before = message.content, message.updated_at
        translate(german, message)
        after = Message.get_by_id(message.id)
        assert (after.content, after.updated_at) == before and after.edited_at is None

    def test_second_request_does_not_ask_the_assistant(self, german, admin, message, ai):
        first = translate(german, message)
        ai.behave = says("Something else")
        assert translate(german, message).data == translate(admin, message, language="de").data == first.data
        assert len(ai.requests) == 1

    def test_languages_are_stored_beside_each_other(self, german, message, ai):
        translate(german, message)
        ai.behave = says("Where is my parcel?")
        assert translate(german, message, language="en").data["source_language"] == ""
        assert set(translations(german, message)) == {"de", "en"}

    def test_customer_does_not_see_translations_for_staff(self, german, alice, message, ai):
        alice.post(f"/chats/{message.chat_session_id}/messages/{message.id}/pin")
        lists = [(path, alice.get(f"/chats/{message.chat_session_id}/{path}").raw) for path in PATHS]
        version = alice.get(f"/chats/{message.chat_session_id}/messages").headers["ETag"]
        translate(german, message)
        assert [(path, alice.get(f"/chats/{message.chat_session_id}/{path}").raw) for path in PATHS] == lists
        assert alice.get(f"/chats/{message.chat_session_id}/messages", if_none_match=version).status == 304
        assert b"Paket" not in alice.get("/chats/search?q=colis").raw
        assert translations(german, message, "pinned-messages") == {"de": STORED}

    def test_repeated_message_of_the_customer_has_no_translation(self, german, alice, session, ai):
        message = sent(alice, session, "Bonjour", client_message_id="one")
        translate(german, message)
        assert send(alice, session, "Bonjour", client_message_id="one").data["translations"] == []

    def test_staff_without_receipts_sees_translations(self, german, message, ai):
        german.patch("/users/me/settings", {"privacy": {"show_read_receipts": False}})
        translate(german, message)
        assert translations(german, message) == {"de": STORED}

    def test_list_of_staff_has_a_new_version(self, german, message, ai):
        path = f"/chats/{message.chat_session_id}/messages"
        version = german.get(path).headers["ETag"]
        translate(german, message)
        assert german.get(path, if_none_match=version).status == 200

    def test_nothing_else_changes(self, german, message, ai):
        with nothing_changes(Notification, User):
            translate(german, message)
        assert Message.select().count() == 1

    def test_customers_and_other_staff_get_none(self, alice, bob, other_agent, message, ai):
        assert {translate(one, message).error for one in (alice, bob, other_agent)} == {(403, "forbidden")}
        assert ai.requests == []

    @pytest.mark.parametrize("members", [{"is_private": True}, {"is_read_once": True}, {"content": {"number": 1}}])
    def test_messages_without_a_public_text_are_not_translated(self, german, session, ai, members):
        message = sent(german, session, **members)
        assert translate(german, message).error == (400, "nothing_to_translate")
        assert ai.requests == []

    def test_deleted_hidden_and_purged_messages_are_not_translated(self, german, alice, session, ai):
        deleted, hidden, purged = sent(alice, session), sent(german, session), sent(alice, session)
        alice.delete(f"/chats/{session.id}/messages/{deleted.id}")
        alice.delete(f"/chats/{session.id}/messages/{hidden.id}")
        Message.purge(Message.id == purged.id)
        assert {translate(german, one).error for one in (deleted, hidden, purged)} == {(400, "message_gone")}
        assert ai.requests == []

    def test_length_and_number_are_bounded(self, german, alice, session, message, ai):
        long = sent(alice, session, "x" * (MAX_TEXT + 1))
        assert translate(german, long).error == (400, "invalid_body")
        languages = ["de", "de-AT", "es", "fr", "it", "ja", "ko", "zh-Hant"]
        for language in languages:
            assert translate(german, message, language=language).status == 200
        assert translate(german, message, language="en").error == (400, "invalid_body")
        assert translate(german, message, language="DE-at-x-1").data["language"] == "de-AT"
        assert len(ai.requests) == len(languages) == MAX_LANGUAGES

    def test_pinned_messages_stay_within_their_limit(self, german, message, ai, monkeypatch):
        german.post(f"/chats/{message.chat_session_id}/messages/{message.id}/pin")
        monkeypatch.setattr("service.models.messages.PIN_BYTES", 200)
        assert translate(german, message).error == (400, "pin_limit_reached")
        assert translations(german, message) is None


PATHS = ("messages", "pinned-messages")


class TestTheLanguage:
    @pytest.mark.parametrize(
        ("locale", "chosen", "accepted", "expected"),
        [
            ("de-AT", None, "en", "de-AT"),
            ("de", "ja", "en", "ja"),
            ("", None, "it, en;q=0.5", "it"),
            ("x-private", None, "!, x-y, it", "it"),
            ("", None, "", "en"),
        ],
    )
    def test_is_by_default_that_of_the_caller(self, agent, message, ai, locale, chosen, accepted, expected):
        User.update(locale=locale).where(User.id == agent.user.id).execute()
        agent.patch("/users/me/settings", {"appearance": {"language": chosen}})
        path = f"/chats/{message.chat_session_id}/messages/{message.id}/translation"
        assert agent.post(path, {}, accept_language=accepted).data["language"] == expected

    @pytest.mark.parametrize("language", ["", "?", "english language", "x-private", 1])
    def test_is_a_tag(self, agent, message, ai, language):
        assert translate(agent, message, language=language).status == 400
        assert ai.requests == []


class TestTheAssistant:
    def test_receives_the_text_as_data_and_nothing_else(self, german, message, ai):
        translate(german, message)
        (request,) = ai.requests
        system, text = request.body["messages"]
        assert system == {"role": "system", "content": INSTRUCTIONS.format(language="de")}
        assert text == {"role": "user", "content": "Où est mon colis ?"}
        assert "tools" not in request.body and b"agnes" not in request.content and b"alice" not in request.content

    @pytest.mark.parametrize(
        ("reply", "text", "source"),
        [
            ("Language: pt-BR\n\nHallo\nAlice", "Hallo\nAlice", "pt-BR"),
            ("language: fr \nHallo", "Hallo", "fr"),
            ("Hallo", "Hallo", ""),
            ("Language: the best\nHallo", "Language: the best\nHallo", ""),
        ],
    )
    def test_may_name_the_language_of_the_text(self, german, message, ai, reply, text, source):
        ai.behave = says(reply)
        assert translate(german, message).data == {
            "language": "de", "text": text, "is_automatic": True, "source_language": source
        }  # fmt: skip

    @pytest.mark.parametrize(
        "behave",
        [sends({}, 500), says(""), says("Language: fr"), says("x" * 1000), calls("call_person"), resets],
        ids=["error", "empty", "no translation", "too long", "call", "reset"],
    )
    def test_error_stores_nothing(self, german, message, ai, behave, caplog):
        ai.behave = behave
        with nothing_changes(Message, ChatSession):
            assert translate(german, message).error == (503, "assistant_unavailable")
        assert "colis" not in caplog.text

    def test_has_a_time_limit(self, german, message, ai, monkeypatch):
        monkeypatch.setattr(staff_requests, "TIMEOUT", 0.1)
        ai.behave = hangs
        assert translate(german, message).error == (503, "assistant_unavailable")

    def test_that_is_not_configured_is_an_error(self, german, message, settings):
        application = build_app(operations(), dataclasses.replace(settings, assistant_url=""))
        assert translate(Client(application, german.token), message).error == (404, "assistant_not_configured")

    def test_budget_and_rate_are_those_of_the_app(self, host_clock, german, message, settings, ai):
        rated = dataclasses.replace(settings, assistant_rate=1)
        one = Client(build_app(operations(), rated), german.token)
        assert translate(one, message).status == 200
        found = translate(one, message, language="en")
        assert (found.error, found.headers["Retry-After"]) == ((429, "assistant_limit_reached"), "60")
        AssistantUsage.update(tokens=500).execute()
        limited = dataclasses.replace(settings, assistant_tokens=500)
        found = translate(Client(build_app(operations(), limited), german.token), message, language="en")
        assert found.error == (429, "assistant_limit_reached")
        assert len(ai.requests) == 1

    def test_requests_are_in_the_audit_log_without_text(self, german, alice, message, shop, ai):
        ai.behave = sends({**completion(GERMAN), "usage": {"total_tokens": 9}})
        translate(german, message)
        ai.behave = sends({**completion("x" * 1000), "usage": {"total_tokens": 8}})
        translate(german, message, language="en")
        entries = list(AuditLog.select().where(AuditLog.kind == "assistant_asked").order_by(AuditLog.position))
        assert {(entry.actor_id, entry.subject_id) for entry in entries} == {(german.user.id, alice.user.id)}
        about = {"app": shop.id, "session": message.chat_session_id}
        assert [json.loads(entry.details) for entry in entries] == [
            {**about, "tokens": 9, "outcome": "translation"},
            {**about, "tokens": 8, "outcome": "error"},
        ]


def while_asked(ai, act):
    """Let the assistant reply after an action of another thread."""

    def behave(handler):
        act()
        db.close_database()
        says(GERMAN)(handler)

    ai.behave = behave


class TestMeanwhile:
    def test_edited_message_gets_no_translation(self, german, alice, message, ai):
        while_asked(ai, lambda: edit(alice, message, "Merci, il est là."))
        assert translate(german, message).error == (400, "message_changed")
        assert translations(german, message) is None

    def test_deleted_message_gets_no_translation(self, german, alice, message, ai):
        while_asked(ai, lambda: alice.delete(f"/chats/{message.chat_session_id}/messages/{message.id}"))
        assert translate(german, message).error == (400, "message_gone")
        assert Message.get_by_id(message.id).staff_translations == "[]"

    def test_first_translation_is_kept(self, german, message, ai):
        other = message_translations.Translation("de", "Die erste", is_automatic=True)

        def store():
            caller = german_caller(german)
            message_translations.store_for_staff(caller, message_session(message), message, other)

        while_asked(ai, store)
        assert translate(german, message).data["text"] == "Die erste"

    def test_writes_are_possible(self, german, alice, session, message, ai):
        found = []
        while_asked(ai, lambda: found.append(send(alice, session, "Hello?").status))
        assert translate(german, message).status == 200 and found == [201]

    def test_requests_use_at_most_half_of_the_threads(self, german, message, ai):
        received, done = threading.Event(), threading.Event()

        def behave(handler):
            if len(ai.requests) == 2:
                received.set()
            assert done.wait(30)
            says(GERMAN)(handler)

        ai.behave, found = behave, []

        def ask(language):
            found.append(translate(german, message, language=language).status)
            db.close_database()

        threads = [threading.Thread(target=ask, args=(language,)) for language in ("de", "en")]
        for thread in threads:
            thread.start()
        assert received.wait(30)
        try:
            assert translate(german, message, language="it").error == (503, "busy")
        finally:
            done.set()
            for thread in threads:
                thread.join()
        assert found == [200, 200] and set(translations(german, message)) == {"de", "en"}


def send_with(client, session, languages):
    """Send a message in a request with these languages."""
    body = {"content": {"text": "Hello"}}
    assert client.post(f"/chats/{session.id}/messages", body, accept_language=languages).status == 201


def german_caller(client):
    return message_translations.Caller(client.user.id, "agent", client.user.app_id, "", None)


def message_session(message):
    return ChatSession.get_by_id(message.chat_session_id)


class TestLater:
    @pytest.fixture
    def translated(self, german, message, ai):
        translate(german, message)
        return message

    def test_edit_removes_translations(self, german, alice, translated):
        edit(alice, translated, "Merci")
        assert translations(german, translated) is None

    def test_message_that_the_customer_deletes_keeps_it_for_staff(self, german, alice, session, ai):
        message = sent(german, session, "Bonjour")
        ai.behave = says("Hallo")
        translate(german, message)
        alice.delete(f"/chats/{session.id}/messages/{message.id}")
        assert translations(german, message)["de"]["text"] == "Hallo"

    def test_purge_erases_translations(self, german, translated):
        Message.purge(Message.id == translated.id)
        row = Message.get_by_id(translated.id)
        assert (row.translations, row.staff_translations) == ("[]", "[]")

    def test_export_and_import_keep_translations(self, german, alice, translated, tmp_path):
        lines = []
        import_export.export(lines.append)
        file = tmp_path / "export.jsonl"
        file.write_bytes(b"".join(lines))
        records = map(json.loads, b"".join(lines).splitlines())
        (row,) = [record["message"] for record in records if "message" in record]
        assert json.loads(bytes(row["staff_translations"])) == {"de": STORED} and row["translations"] == []
        Message.update(staff_translations="[]").execute()
        assert import_export.import_files([file]) == []
        assert translations(german, translated) == {"de": STORED} and translations(alice, translated) is None

    @pytest.mark.parametrize(
        ("imported", "expected"),
        [
            ({"de": "Ein Paket"}, "Ein Paket"),
            ({"de": {"text": "Ein Paket"}}, "Ein Paket"),
            (["de"], STORED["text"]),
            ({"\ud800": "\ud801", "fr": 1}, STORED["text"]),
        ],
    )
    def test_imported_translations_are_used_and_stay(self, german, alice, message, ai, imported, expected):
        Message.update(translations=db_form(imported)).execute()
        assert translate(german, message).data["text"] == expected
        assert translations(alice, message) == imported


def db_form(value):
    return json.dumps(list(json.dumps(value).encode()))


# Console


def open_chat(application, client, session):
    browser = Browser(application).signed_in(client)
    browser.open(f"/console/chats/{session.id}")
    return browser


def press_translate(browser, session, message, forms=None):
    """Press the button of a message."""
    found = [form for _, form in Forms(browser.reply.raw.decode()).found if form.get("message") == message.id]
    browser.navigate("POST", f"/console/chats/{session.id}", {**found[0], "act": "translate"})


def shown(browser):
    """Return the messages on a page."""
    return browser.reply.raw.decode().partition('<ol class="messages"')[2].partition("</ol>")[0]


def composer(browser):
    page = browser.reply.raw.decode()
    (text,) = re.findall('<textarea name="text"[^>]*>([^<]*)</textarea>', page)
    return {**next(form for _, form in Forms(page).found if "number" in form), "text": html.unescape(text)}


class TestConsoleOfStaff:
    def test_button_shows_the_translation_and_the_original(self, application, german, session, message, ai):
        browser = open_chat(application, german, session)
        assert "Translate" in browser.text
        press_translate(browser, session, message)
        assert browser.path.endswith(f"#m-{message.id}")
        page = shown(browser)
        assert "Translated from French by the assistant" in browser.text and ">Translate<" not in page
        assert '<p class="text" dir="auto" lang="de">Wo ist mein Paket?</p>' in page
        assert page.index("Wo ist mein Paket?") < page.index('<details class="translation">') < page.index("Où est")

    def test_colleague_with_the_language_sees_it_at_once(self, application, german, person, shop, session, message, ai):
        translate(german, message)
        same = person("gerd", role="agent", app_id=shop.id, locale="de")
        assert "Translated from French" in open_chat(application, same, session).text
        other = person("ines", role="agent", app_id=shop.id, locale="es")
        assert "Paket" not in open_chat(application, other, session).text

    @pytest.mark.parametrize("tag", ["de", "\ud800"])
    def test_imported_translation_is_shown_to_staff(self, application, german, alice, session, message, ai, tag):
        Message.update(
            translations=db_form({tag: "Ein Paket?", "\ud801": {"is_automatic": True, "text": "x"}})
        ).execute()
        is_own = tag == "de"
        assert ("Translation · Show the original" in open_chat(application, german, session).text) == is_own
        assert "Ein Paket?" not in open_chat(application, alice, session).text

    def test_error_is_shown(self, application, german, session, message, ai):
        browser = open_chat(application, german, session)
        ai.behave = sends({}, 500)
        press_translate(browser, session, message)
        assert browser.reply.status == 503 and "The assistant has not replied; try again." in browser.text

    def test_message_in_the_same_language_has_the_action_in_its_menu(
        self, application, german, alice, session, message, ai
    ):
        User.update(locale="de-CH").where(User.id == alice.user.id).execute()
        page = open_chat(application, german, session).reply.raw.decode()
        assert '<form method="post" action="/console/chats' in page and 'class="translation"' not in page
        assert '<button name="act" value="translate">' in page

    def test_customers_have_no_button(self, application, alice, session, message, ai):
        browser = open_chat(application, alice, session)
        assert "Translate" not in browser.text and 'name="translate_to"' not in browser.reply.raw.decode()
        form = composer(browser)
        browser.navigate("POST", f"/console/chats/{session.id}", {**form, "message": message.id, "act": "translate"})
        assert (browser.reply.status, ai.requests) == (403, [])

    def test_without_an_assistant_there_is_no_button_but_the_translation(self, settings, german, session, message, ai):
        without = build_app(operations(), dataclasses.replace(settings, assistant_url=""))
        page = open_chat(without, german, session).reply.raw.decode()
        assert 'value="translate"' not in page and 'name="translate_to"' not in page
        message_translations.store_for_staff(
            german_caller(german), session, message, message_translations.Translation("de", "Paket?", is_automatic=True)
        )
        assert "Translated by the assistant" in open_chat(without, german, session).text


class TestSending:
    @pytest.fixture
    def browser(self, application, german, session, message, ai):
        ai.behave = says("Language: de\nIl est en route.")
        return open_chat(application, german, session)

    def send(self, browser, session, text="Es ist unterwegs.", **fields):
        form = {**composer(browser), "text": text, "act": "send", "translate_to": "fr", **fields}
        return browser.navigate("POST", f"/console/chats/{session.id}", form)

    def newest(self):
        return Message.select().order_by(Message.id.desc()).first()

    def test_message_has_both_texts(self, browser, alice, german, session):
        assert "Send in French" in browser.text
        self.send(browser, session)
        message = self.newest()
        assert (browser.reply.status, message.plain_text, message.sender_id) == (
            200,
            "Es ist unterwegs.",
            german.user.id,
        )
        expected = {"fr": {"text": "Il est en route.", "is_automatic": True, "source_language": "de"}}
        assert translations(alice, message) == translations(german, message) == expected

    def test_customer_sees_the_translation_and_is_told(self, browser, application, alice, session):
        self.send(browser, session)
        page = shown(open_chat(application, alice, session))
        first, original = page.index('lang="fr">Il est en route.</p>'), page.index("Es ist unterwegs.")
        assert first < page.index("Translated automatically") < original
        assert page.rindex("<details", 0, original) > first

    def test_sender_sees_the_own_text_and_what_was_sent(self, browser, session):
        self.send(browser, session)
        page = shown(browser)
        label = page.index("Sent in French, translated automatically")
        assert page.index("Es ist unterwegs.") < label < page.index("Il est en route.")

    def test_choice_is_kept_for_the_next_message(self, browser, session):
        self.send(browser, session)
        assert "translate_to=fr" in browser.path
        assert composer(browser)["translate_to"] == "fr"
        self.send(browser, session, translate_to="")
        assert "translate_to" not in browser.path

    @pytest.mark.parametrize(("behave", "status"), [(sends({}, 500), 503), (says("x" * 1000), 503)])
    def test_error_sends_nothing_and_keeps_the_text(self, browser, session, ai, behave, status):
        ai.behave = behave
        with nothing_changes(Message, ChatSession, Notification):
            self.send(browser, session)
        assert browser.reply.status == status and "The assistant has not replied; try again." in browser.text
        form = composer(browser)
        assert (form["text"], form["translate_to"]) == ("Es ist unterwegs.", "fr")
        self.send(browser, session, translate_to="", text="Anders")
        assert (self.newest().plain_text, self.newest().translations) == ("Anders", "[]")

    def test_limit_sends_nothing(self, settings, german, session, message, ai):
        browser = open_chat(build_app(operations(), dataclasses.replace(settings, assistant_rate=1)), german, session)
        self.send(browser, session)
        browser.open(f"/console/chats/{session.id}")
        self.send(browser, session, "Zweite")
        assert (browser.reply.status, self.newest().plain_text) == (429, "Es ist unterwegs.")

    def test_form_that_is_sent_twice_sends_one_message_and_asks_once(self, browser, session, ai):
        form = composer(browser)
        self.send(browser, session, number=form["number"])
        ai.behave = says("Une autre traduction")
        browser.open(f"/console/chats/{session.id}")
        self.send(browser, session, number=form["number"])
        assert browser.reply.status == 200 and Message.select().count() == 2 and len(ai.requests) == 1
        browser.open(f"/console/chats/{session.id}")
        self.send(browser, session, "Anderes", number=form["number"])
        assert (browser.reply.status, Message.select().count(), len(ai.requests)) == (400, 2, 1)

    def test_concurrent_repetition_sends_one_message(self, browser, application, german, session, ai):
        """Two attempts get different translations; the message has the one that is stored first."""
        other, form = open_chat(application, german, session), composer(browser)

        def behave(handler):
            if len(ai.requests) == 1:
                ai.behave = says("Language: de\nLe premier")
                self.send(other, session, number=form["number"])
                db.close_database()
            says("Language: de\nLe second")(handler)

        ai.behave = behave
        self.send(browser, session, number=form["number"])
        assert browser.reply.status == other.reply.status == 200 and Message.select().count() == 2
        assert "Le premier" in bytes(json.loads(self.newest().translations)).decode()

    def test_private_note_is_not_translated(self, browser, session, ai):
        self.send(browser, session, is_private="true")
        assert (self.newest().is_private, self.newest().translations, ai.requests) == (True, "[]", [])
        assert "translate_to=fr" in browser.path

    def test_read_once_message_is_not_translated(self, browser, session, ai):
        with nothing_changes(Message):
            self.send(browser, session, is_read_once="true")
        assert (browser.reply.status, ai.requests) == (400, [])

    def test_picture_without_a_text_is_sent_without_a_translation(self, browser, german, session, ai):
        image = upload_image(german, session).data["id"]
        self.send(browser, session, "", image_1=image)
        assert MessageImage.select().count() == 1 and self.newest().content_type == "image" and ai.requests == []

    def test_edit_removes_the_translation(self, browser, german, alice, session):
        self.send(browser, session)
        edit(german, self.newest(), "Es ist da.")
        assert translations(alice, self.newest()) is None

    def test_colleague_sees_what_was_sent_not_what_others_read(self, browser, application, admin, german, session, ai):
        message = sent(german, session, "Willkommen")
        ai.behave = says("Bienvenido")
        translate(admin, message, language="es")
        assert "Bienvenido" not in open_chat(application, admin, session).text
        ai.behave = says("Il est en route.")
        self.send(browser, session)
        assert "Sent in French, translated automatically" in open_chat(application, admin, session).text

    @pytest.mark.parametrize(("accepted", "offered"), [("fr-x-" + "abcdefgh-" * 6 + "a", "fr"), ("abcdefgh-a", "")])
    def test_language_of_the_customer_need_not_be_a_plain_one(
        self, application, german, alice, session, message, ai, accepted, offered
    ):
        send_with(alice, session, accepted)
        page = open_chat(application, german, session).reply.raw.decode()
        assert ('name="translate_to" value="fr"' in page, 'name="translate_to"' in page) == (bool(offered),) * 2

    def test_colleague_reads_it_in_a_third_language(self, browser, alice, admin, session, ai):
        self.send(browser, session)
        ai.behave = says("It is on its way.")
        translate(admin, self.newest(), language="en")
        assert set(translations(admin, self.newest())) == {"fr", "en"} and set(translations(alice, self.newest())) == {
            "fr"
        }

    def test_customer_in_the_same_language_gets_no_choice(self, application, german, alice, session, message, ai):
        alice.patch("/users/me/settings", {"chat_language": "de"})
        assert 'name="translate_to"' not in open_chat(application, german, session).reply.raw.decode()

    def test_customers_cannot_translate(self, application, alice, session, message, ai):
        browser = open_chat(application, alice, session)
        with nothing_changes(Message):
            self.send(browser, session)
        assert (browser.reply.status, ai.requests) == (403, [])

    @pytest.mark.parametrize("address", ["?translate_to=!", "?translate_to=" + "a" * 65])
    def test_invalid_language_is_an_error(self, browser, session, address):
        browser.open(f"/console/chats/{session.id}{address}")
        assert browser.reply.status == 400
