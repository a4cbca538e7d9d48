"""E-mails through Postfix, as an operator uses it: with TLS, a password and a relay."""

from collections.abc import Iterator

import pytest

from service.outbox import smtp
from service.outbox.mails import Content, Item, build
from service.outbox.smtp import MailServer as Client
from service.outbox.transport import DeliveryError
from service.settings import Settings
from service.translation import use
from tests.support.cluster import until
from tests.support.mail_server import MailServer, mail_server
from tests.support.postfix import MAX_SIZE, PASSWORD, USER, Postfix, postfix

pytestmark = pytest.mark.slow

ID = "01jdq3c5q8y5x2v9w7n4k6m1ab"


@pytest.fixture(scope="module")
def relay() -> Iterator[MailServer]:
    """The server to which Postfix relays mails."""
    with mail_server() as server:
        yield server


@pytest.fixture(scope="module")
def running(relay: MailServer) -> Iterator[Postfix]:
    with postfix(relay.port) as found:
        yield found


@pytest.fixture(autouse=True)
def _as_of_another_host(running: Postfix, relay: MailServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(running.tls.certificate))
    monkeypatch.setattr(smtp, "is_loopback", lambda host: False)
    relay.mails.clear()


def settings_of(url: str, password: str = PASSWORD) -> Settings:
    return Settings(
        smtp=url, smtp_password=password, mail_from="Läden <shop@chat.example>", public_url="https://chat.example"
    )


def send(settings: Settings, text: str = "Guten Tag", address: str = "ada@example.com") -> str:
    content = Content("Grüße", (text,), (Item("مرحبا", "• één"),), "Open", "https://chat.example/console/chats/1")
    with use("de"):
        return Client(settings).send(build(content, ID, address, settings), address)


@pytest.mark.parametrize("scheme", ["smtps", "smtp"])
def test_mail_arrives_unchanged(scheme: str, running: Postfix, relay: MailServer) -> None:
    port = running.tls_port if scheme == "smtps" else running.starttls_port
    reply = send(settings_of(f"{scheme}://{USER}@127.0.0.1:{port}"))
    assert reply.startswith("250 2.0.0 Ok: queued as")
    until(lambda: relay.mails)
    (received,) = relay.mails
    assert (received.sender, received.recipient) == ("shop@chat.example", "ada@example.com")
    assert received.mail["Message-ID"] == f"<{ID}@chat.example>"
    assert received.mail["Subject"] == "Grüße" and received.mail["From"] == "Läden <shop@chat.example>"
    assert "Guten Tag\n\nمرحبا\n• één\n\nOpen:\nhttps://chat.example/console/chats/1" in received.part("plain")
    assert "with ESMTPSA" in received.mail["Received"] and not received.mail.defects


def test_wrong_password_is_a_temporary_error(running: Postfix, relay: MailServer) -> None:
    with pytest.raises(DeliveryError, match=r"^535 5\.7\.8 Error: authentication failed") as caught:
        send(settings_of(f"smtps://{USER}@127.0.0.1:{running.tls_port}", "wrong"))
    assert not caught.value.is_final


def test_missing_user_is_refused(running: Postfix, relay: MailServer) -> None:
    with pytest.raises(DeliveryError, match="^554 5.7.1 .*Access denied"):
        send(settings_of(f"smtps://127.0.0.1:{running.tls_port}", ""))


def test_mail_that_is_too_large_is_a_final_error(running: Postfix, relay: MailServer) -> None:
    with pytest.raises(DeliveryError, match=r"^552 5\.3\.4 Message size exceeds fixed limit") as caught:
        send(settings_of(f"smtps://{USER}@127.0.0.1:{running.tls_port}"), "x" * MAX_SIZE)
    assert caught.value.is_final


def test_address_that_the_server_refuses_is_a_final_error(running: Postfix, relay: MailServer) -> None:
    with pytest.raises(DeliveryError, match=r"^504 5\.5\.2 .*need fully-qualified address") as caught:
        send(settings_of(f"smtps://{USER}@127.0.0.1:{running.tls_port}"), address="ada@localhost")
    assert caught.value.is_final
    assert not relay.mails
