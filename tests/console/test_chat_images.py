"""Pictures on the page of a chat, without scripts: attaching, sending, showing."""

from collections.abc import Callable
from typing import Any

import pytest

from service.models import ChatSession, Message, MessageImage, message_images
from tests.support import pictures as made
from tests.support.access import as_form
from tests.support.client import Client, Reply
from tests.support.images import PICTURE, images_of, send_images, stored_images
from tests.support.observe import nothing_changes
from tests.support.pictures import look, plain
from tests.support.web_client import Browser, Forms

pytestmark = pytest.mark.database

WIDE = made.save(plain(3000, 1500), "PNG")


@pytest.fixture
def at(application: Any) -> Callable[[Client], Browser]:
    """Sign a user in."""
    return lambda client: Browser(application).signed_in(client)


def chat(session: ChatSession) -> str:
    return f"/console/chats/{session.id}"


def composer(browser: Browser) -> dict[str, str]:
    """Return the fields of the composer."""
    forms = Forms(browser.reply.raw.decode()).found
    (found,) = [fields for _, fields in forms if "number" in fields]
    return found


def attach(browser: Browser, session: ChatSession, content: bytes = PICTURE, **values: str) -> Reply:
    """Attach a picture, as a browser without scripts does."""
    body = as_form({**composer(browser), "act": "send", **values, "image": content})
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    headers = {"cookie": cookie, "sec_fetch_mode": "navigate", "accept": "text/html"}
    browser.reply = browser.client.post(f"/{chat(session)}/images", **body, **headers)
    return browser.reply


def send(browser: Browser, session: ChatSession, **values: str) -> Reply:
    return browser.navigate("POST", chat(session), {**composer(browser), "act": "send", **values})


class TestComposer:
    def test_keeps_text_and_pictures_until_the_message_is_sent(self, alice, session, at):
        browser = at(alice)
        browser.open(chat(session))
        assert attach(browser, session, WIDE, text="Look\r\nhere").status == 200
        assert composer(browser)["text"] == ""
        assert "Look" in browser.text
        assert attach(browser, session, text="Look").status == 200
        fields = composer(browser)
        assert {fields["image_1"], fields["image_2"]} == stored_images()
        assert browser.reply.raw.count(b"data:image/webp;base64,") == 2
        send(browser, session, text="Look", image_2="")
        (message,) = Message.select().where(Message.sender_id == alice.user.id)
        assert (message.content_type, message.plain_text) == ("image", "Look")
        assert [image.id for image in MessageImage.select().where(MessageImage.message_id == message.id)] == [
            fields["image_1"]
        ]

    def test_sends_pictures_without_a_text(self, alice, session, at):
        browser = at(alice)
        browser.open(chat(session))
        attach(browser, session)
        assert send(browser, session).status == 200
        assert Message.get(Message.sender_id == alice.user.id).content_type == "image"
        with nothing_changes():
            assert send(browser, session, text="").status == 400

    def test_keeps_note_and_reply(self, agent, session, at, say):
        quoted = say("Question")
        browser = at(agent)
        browser.open(f"{chat(session)}?reply={quoted.id}")
        attach(browser, session, is_private="true", reply=quoted.id)
        send(browser, session)
        message = Message.get(Message.sender_id == agent.user.id)
        assert (message.is_private, message.reply_to_message_id) == (True, quoted.id)

    def test_has_at_most_four_pictures(self, alice, session, at):
        browser = at(alice)
        browser.open(chat(session))
        for _ in range(4):
            assert attach(browser, session).status == 200
        with nothing_changes():
            assert attach(browser, session).status == 400
        assert "at most 4 pictures" in browser.text
        assert len([name for name in composer(browser) if name.startswith("image_")]) == 4

    @pytest.mark.parametrize(
        ("content", "status", "reason"),
        [
            (PICTURE[:-1], 400, "damaged"),
            (b"GIF89a", 415, "Expected a JPEG, PNG or WebP picture"),
            (b"", 400, "expected a file"),
            (bytes(5 * 2**20 + 1), 413, "larger than 5 MiB"),
        ],
    )
    def test_reports_an_invalid_file(self, content, status, reason, alice, session, at):
        browser = at(alice)
        browser.open(chat(session))
        with nothing_changes():
            assert attach(browser, session, content, text="Look").status == status
        assert reason in browser.text

    def test_keeps_text_and_pictures_after_an_invalid_file(self, alice, session, at):
        browser = at(alice)
        browser.open(chat(session))
        attach(browser, session)
        first = composer(browser)["image_1"]
        attach(browser, session, PICTURE[:-1], text="My long text")
        assert composer(browser)["image_1"] == first
        assert "My long text" in browser.text

    def test_reports_a_file_that_is_not_attached(self, alice, session, at):
        browser = at(alice)
        browser.open(chat(session))
        with nothing_changes():
            assert send(browser, session, text="Look", image="me.png").status == 400
        assert "Attach the picture" in browser.text
        assert "Look" in browser.text

    def test_does_not_show_the_uploads_of_others(self, alice, agent, session, at):
        browser = at(agent)
        browser.open(chat(session))
        attach(browser, session)
        foreign = composer(browser)["image_1"]
        other = at(alice)
        other.open(chat(session))
        attach(other, session, PICTURE[:-1], image_1=foreign)
        assert "image_1" not in composer(other)
        with nothing_changes():
            assert send(other, session, image_1=foreign).status == 404

    def test_needs_the_csrf_token(self, alice, session, at):
        browser = at(alice)
        browser.open(chat(session))
        with nothing_changes():
            for token in ("", "x"):
                assert attach(browser, session, csrf_token=token).status == 400

    def test_of_an_upload_beyond_the_limit_reports_it(self, alice, session, at, monkeypatch):
        monkeypatch.setitem(message_images.USER_LIMITS, "user", 0)
        browser = at(alice)
        browser.open(chat(session))
        assert attach(browser, session).status == 400
        assert "delete messages with pictures" in browser.text


class TestMessage:
    def test_shows_thumbnails_that_open_the_pictures(self, alice, session, at):
        (image,) = images_of(send_images(alice, session, text="Look", content=WIDE))
        browser = at(alice)
        page = browser.open(chat(session)).raw.decode()
        address = f"/console{image['url'].removeprefix('/api/v1')}"
        assert f'<a href="{address}" target="_blank"' in page
        assert f'<img src="{address}?size=thumbnail"' in page
        for path, side in ((address, 2048), (f"{address}?size=thumbnail", 320)):
            reply = browser.navigate("GET", path, sec_fetch_mode="no-cors")
            assert reply.status == 200
            assert max(look(reply.raw).size) == side
            assert reply.headers["Cache-Control"] == "private, no-cache"

    def test_pictures_need_a_user_who_may_read_the_message(self, alice, bob, agent, session, at, application):
        (image,) = images_of(send_images(agent, session, is_private=True))
        address = f"/console{image['url'].removeprefix('/api/v1')}"
        statuses = {agent: 200, alice: 404, bob: 403}
        for client, status in statuses.items():
            assert at(client).navigate("GET", address).status == status
        assert Browser(application).navigate("GET", address).status == 401

    def test_without_text_is_a_photo_in_lists(self, alice, session, at):
        sent = send_images(alice, session)
        alice.post(f"/chats/{session.id}/messages/{sent.data['id']}/pin")
        browser = at(alice)
        browser.open("/")
        assert "Photo" in browser.text
        browser.open(f"{chat(session)}?reply={sent.data['id']}")
        assert "Replying to Photo" in browser.text
        assert ": Photo" in browser.text  # the pinned messages

    def test_without_text_is_a_photo_in_notifications_in_the_language_of_the_page(self, alice, agent, session, at):
        send_images(agent, session)
        browser = at(alice)
        for language, word in (("en", "Photo"), ("ja", "写真")):
            browser.languages = language
            browser.open("/console/notifications")
            assert f'<p class="text" dir="auto">{word}</p>' in browser.reply.raw.decode()

    def test_that_is_edited_keeps_its_pictures(self, alice, session, at):
        sent = send_images(alice, session, text="Look").data
        browser = at(alice)
        browser.open(f"{chat(session)}?edit={sent['id']}")
        forms = Forms(browser.reply.raw.decode()).found
        (fields,) = [fields for _, fields in forms if "text" in fields]
        assert browser.navigate("POST", chat(session), {**fields, "act": "edit", "text": "See"}).status == 200
        assert Message.get_by_id(sent["id"]).plain_text == "See"
        assert "thumbnail" in browser.reply.raw.decode()
