"""The content and the headers of e-mails."""

import email
import email.policy
import re
from email.message import EmailMessage

import pytest

from service.outbox.mails import Content, Item, build
from service.outbox.transport import DeliveryError
from service.settings import Settings
from service.translation import use

ID = "01JDQ3C5Q8Y5X2V9W7N4K6M1AB"
ADDRESS = "ada@example.com"
SETTINGS = Settings(smtp="smtp://localhost", mail_from="shop@chat.example", public_url="https://chat.example")
LINK = f"https://chat.example/unsubscribe?token={'x' * 200}"
CONTENT = Content(
    "Two new messages",
    ("There are new messages.",),
    (Item("Ada wrote", "Hello <b>you</b>\nand all"), Item("Bob wrote")),
    "Open the chat",
    "https://chat.example/console/chats/1?a=1&b=2",
    ("A note.",),
    "chat-1",
    LINK,
)


def built(
    content: Content = CONTENT, address: str = ADDRESS, settings: Settings = SETTINGS, name: str = ""
) -> EmailMessage:
    """The mail as its recipient reads it."""
    sent = build(content, ID, address, settings, name).as_bytes()
    assert sent.isascii() and all(len(line) <= 998 for line in sent.split(b"\r\n"))  # RFC 5322, section 2.1.1
    parsed = email.message_from_bytes(sent, policy=email.policy.SMTP)
    assert isinstance(parsed, EmailMessage) and not parsed.defects
    return parsed


def part(mail: EmailMessage, kind: str) -> str:
    body = mail.get_body((kind,))
    assert body is not None
    return str(body.get_content()).replace("\r\n", "\n")


def test_headers_of_a_mail() -> None:
    mail = built()
    assert mail["From"] == "shop@chat.example" and mail["To"] == ADDRESS
    assert mail["Message-ID"] == f"<{ID.lower()}@chat.example>"
    assert mail["In-Reply-To"] == mail["References"] == "<chat-1@chat.example>"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["List-Unsubscribe"] == f"<{LINK}>"
    assert mail["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000", mail["Date"])
    assert mail.get_content_type() == "multipart/alternative"


def test_mail_without_thread_and_link_has_none_of_their_headers() -> None:
    mail = built(Content("Subject", ("Text",)))
    assert not {"In-Reply-To", "References", "List-Unsubscribe", "List-Unsubscribe-Post"} & set(mail.keys())
    assert "<a" not in part(mail, "html") and "http" not in part(mail, "plain")


def test_long_identifiers_are_not_encoded() -> None:
    """Programs do not decode identifiers and links, and a long one is not folded."""
    settings = Settings(mail_from=f"a@{'x' * 60}.example", public_url="https://chat.example")
    raw = build(CONTENT, ID, ADDRESS, settings).as_bytes()
    assert f"\r\nList-Unsubscribe: <{LINK}>\r\n".encode() in raw
    assert f"\r\nReferences: <chat-1@{'x' * 60}.example>\r\n".encode() in raw
    assert f"\r\nMessage-ID: <{ID.lower()}@{'x' * 60}.example>\r\n".encode() in raw


def test_same_delivery_has_the_same_message_id() -> None:
    assert built()["Message-ID"] == built()["Message-ID"]


def test_text_has_everything() -> None:
    assert part(built(name="Shop"), "plain") == (
        "There are new messages.\n\nAda wrote\nHello <b>you</b>\nand all\n\nBob wrote\n\n"
        "Open the chat:\nhttps://chat.example/console/chats/1?a=1&b=2\n\nA note.\n\n"
        f"Unsubscribe:\n{LINK}\n\n-- \nShop\n"
    )


def test_html_has_everything_escaped_and_loads_nothing() -> None:
    html = part(built(name="Shop & Co"), "html")
    for text in (
        "There are new messages.",
        "Ada wrote",
        "Hello &lt;b&gt;you&lt;/b&gt;\nand all",
        "Bob wrote",
        'href="https://chat.example/console/chats/1?a=1&amp;b=2"',
        "A note.",
        LINK,
        "Shop &amp; Co",
        '<html lang="en">',
    ):
        assert text in html
    assert not re.search(r"(?i)src=|url\(|<link|<img|<script|<style|@import", html)


def test_arabic_is_written_from_right_to_left() -> None:
    with use("ar"):
        assert '<html lang="ar" dir="rtl">' in part(built(), "html")


class TestHostileTexts:
    @pytest.mark.parametrize("end", ["\r\n", "\n", "\r", "\x85", "\u2028", "\x0b", "\x00"])
    def test_line_ends_do_not_add_headers(self, end: str) -> None:
        name = f"Ada{end}Bcc: eve@example.com{end}{end}<b>Hello"
        mail = built(Content(f"From {name}", ("Text",), (Item(name, name),)), name=name)
        assert mail["Bcc"] is None and mail["Subject"] == "From Ada Bcc: eve@example.com <b>Hello"
        assert mail["From"] == '"Ada Bcc: eve@example.com <b>Hello" <shop@chat.example>'
        assert mail.get_content_type() == "multipart/alternative"

    def test_long_subject_is_cut_and_decoded_again(self) -> None:
        assert built(Content("ü" * 500, ("Text",)))["Subject"] == "ü" * 150

    @pytest.mark.parametrize("address", ["ada@example.com\nBcc: eve@example.com", "ada", "a b@example.com"])
    def test_address_that_is_none_is_a_final_error(self, address: str) -> None:
        with pytest.raises(DeliveryError) as caught:
            built(address=address)
        assert caught.value.is_final


def test_sender_has_the_name_of_the_setting_else_of_the_installation() -> None:
    named = Settings(mail_from="Läden, Nord <shop@bücher.example>", public_url="https://chat.example")
    assert built(settings=named, name="Shop")["From"] == '"Läden, Nord" <shop@xn--bcher-kva.example>'
    assert built(name="Shop")["From"] == "Shop <shop@chat.example>"
    assert built(settings=named)["Message-ID"].endswith("@xn--bcher-kva.example>")
