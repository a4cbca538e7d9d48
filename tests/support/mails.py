"""E-mails of the service, in the process of the test."""

import dataclasses
import re
import threading

from service.outbox.transports import transports_of
from service.outbox.worker import DeliveryWorker
from service.settings import Settings
from tests.support.mail_server import MailServer, Received

URL = "https://chat.example"


def with_mail(settings: Settings, server: MailServer) -> Settings:
    """The settings of a service that sends e-mails to a server."""
    sender = "Shop <shop@chat.example>"
    return dataclasses.replace(settings, smtp=f"smtp://{server.address}", mail_from=sender, public_url=URL)


def deliver(settings: Settings) -> None:
    """Make all deliveries that are due."""
    for transport in transports_of(settings):
        worker = DeliveryWorker(transport, threading.Event())
        while worker.run_once():
            pass


def link_in(received: Received, path: str) -> str:
    """The only link of a mail that begins with a path, relative to the service; it is the same in both parts."""
    pattern = rf"{re.escape(URL + path)}[^\s\"<>]*"
    (in_text,), (in_html,) = (set(re.findall(pattern, received.part(kind))) for kind in ("plain", "html"))
    assert in_html.replace("&amp;", "&") == in_text
    return str(in_text.removeprefix(URL))
