"""E-mails: their headers, and their content as text and as HTML, in the language of `translation.use`."""

import unicodedata
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime
from typing import NamedTuple

from service import clock
from service.http.html_pages import render
from service.outbox.smtp import POLICY, ascii_domain
from service.settings import Settings, split_mailbox
from service.translation import gettext

MAX_SUBJECT = 150  # characters
DEMO_SENDER = "no-reply@demo.example"  # of e-mails that are not sent


class Item(NamedTuple):
    """A title, and a text and a time below it, such as those of a notification."""

    title: str
    text: str = ""
    time: str = ""


class Content(NamedTuple):
    """What an e-mail says. Users wrote parts of it."""

    subject: str
    paragraphs: tuple[str, ...]
    items: tuple[Item, ...] = ()
    label: str = ""  # of the link
    link: str = ""
    notes: tuple[str, ...] = ()  # below the link
    thread: str = ""  # the identifier of a conversation
    unsubscribe_link: str = ""


def build(content: Content, id: str, address: str, settings: Settings, name: str = "") -> EmailMessage:
    """Return an e-mail to an address. `name` is that of the installation. Raises DeliveryError for the address.

    The Message-ID follows from `id`, so that a mail that is sent twice after a crash is the same one to mail programs.
    """
    sender_name, sender = split_mailbox(settings.mail_from or DEMO_SENDER)
    sender = ascii_domain(sender)
    domain = sender.rpartition("@")[2]
    mail = EmailMessage(POLICY)
    mail["From"] = _address(sender, sender_name or name)
    mail["To"] = _address(ascii_domain(address))
    mail["Subject"] = one_line(content.subject)[:MAX_SUBJECT]
    mail["Date"] = format_datetime(datetime.fromtimestamp(clock.now() / 1000, UTC))
    mail["Message-ID"] = f"<{id.lower()}@{domain}>"
    if content.thread:  # of a mail that does not exist: mail programs group the replies to it
        mail["In-Reply-To"] = mail["References"] = f"<{content.thread}@{domain}>"
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834, section 5
    if content.unsubscribe_link:
        mail["List-Unsubscribe"] = f"<{content.unsubscribe_link}>"  # RFC 2369, section 3.2
        mail["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"  # RFC 8058, section 3.1
    mail.set_content(_text(content, name))
    mail.add_alternative(render("mail.html", content=content, name=name), subtype="html")
    return mail


def one_line(text: str) -> str:
    """Return a text without line breaks and control characters, for a header."""
    return " ".join("".join(" " if unicodedata.category(each) == "Cc" else each for each in text).split())


def _address(address: str, name: str = "") -> Address:
    username, _, domain = address.rpartition("@")
    return Address(one_line(name), username, domain)


def _text(content: Content, name: str) -> str:
    parts = [*content.paragraphs]
    parts += ["\n".join(filter(None, (one_line(item.title), item.text, item.time))) for item in content.items]
    parts += [f"{content.label}:\n{content.link}"] * bool(content.link)
    parts += content.notes
    parts += [f"{gettext('Unsubscribe')}:\n{content.unsubscribe_link}"] * bool(content.unsubscribe_link)
    return "\n\n".join([*parts, *[f"-- \n{one_line(name)}"] * bool(name)]) + "\n"
