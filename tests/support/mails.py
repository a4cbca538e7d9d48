"""E-mails of the service, in the process of the test."""

import dataclasses
import re
import threading
from collections.abc import Iterator

import pytest

from service.models import Delivery
from service.outbox.transports import transports_of
from service.outbox.worker import DeliveryWorker
from service.settings import Settings
from tests.support.mail_server import MailServer, Received, mail_server

URL = "https://chat.example"


def with_mail(settings: Settings, server: MailServer) -> Settings:
    """The settings of a service that sends e-mails to a server."""
    sender = "Shop <shop@chat.example>"
    return dataclasses.replace(settings, smtp=f"smtp://{server.address}", mail_from=sender, public_url=URL)


@pytest.fixture(scope="module", name="running_server")
def running_server_fixture() -> Iterator[MailServer]:
    """An SMTP server for the tests of a module."""
    with mail_server() as server:
        yield server


@pytest.fixture(name="server")
def server_fixture(running_server: MailServer) -> MailServer:
    """The SMTP server, which has received nothing yet and accepts everything."""
    running_server.mails.clear()
    running_server.replies.clear()
    return running_server


@pytest.fixture(name="settings")
def settings_fixture(settings: Settings, server: MailServer) -> Settings:
    """The settings of a service that sends e-mails to `server`."""
    return with_mail(settings, server)


@pytest.fixture(name="channels_of_this_test", autouse=True)
def channels_of_this_test_fixture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Afterwards, the channels are those of before."""
    monkeypatch.setattr(Delivery, "configured", ())


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
