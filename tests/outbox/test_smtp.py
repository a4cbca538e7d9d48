"""The SMTP client: TLS, authentication, and the faults of a server at every stage."""

import dataclasses
import ssl
import time
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from typing import Any

import pytest

from service.outbox import smtp
from service.outbox.smtp import MailServer as Client
from service.outbox.smtp import mail_server_of
from service.outbox.transport import DeliveryError
from service.settings import Settings
from tests.support import postgres
from tests.support.mail_server import (
    CUT,
    HANG,
    PASSWORD,
    USER,
    Certificate,
    MailServer,
    mail_server,
    make_certificate,
    raw_server,
)

SETTINGS = Settings(mail_from="Shop <shop@chat.example>", public_url="https://chat.example")
ADDRESS = "ada@example.com"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"), "IP:127.0.0.1")


@pytest.fixture(scope="session")
def other_certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"), "DNS:other.example")


@pytest.fixture
def trust(monkeypatch: pytest.MonkeyPatch) -> Callable[[Certificate], None]:
    """Return a function that makes clients trust a certificate, as documented."""
    return lambda found: monkeypatch.setenv("SSL_CERT_FILE", str(found.certificate))


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the client require STARTTLS, as of a server that is not on this host."""
    monkeypatch.setattr(smtp, "is_loopback", lambda host: False)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smtp, "TIMEOUT", 0.3)


@pytest.fixture
def server() -> Iterator[MailServer]:
    with mail_server() as running:
        yield running


def client_of(address: str, scheme: str = "smtp", user: str = "", password: str = "", **more: str) -> Client:
    url = f"{scheme}://{user and f'{user}@'}{address}"
    return Client(dataclasses.replace(SETTINGS, smtp=url, smtp_password=password, **more))


def mail(text: str = "Hello") -> EmailMessage:
    made = EmailMessage(smtp.POLICY)
    made["Subject"] = "Greeting"
    made.set_content(text)
    return made


def failure(client: Client, address: str = ADDRESS, text: str = "Hello") -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        client.send(mail(text), address)
    return caught.value


def test_mail_is_sent_and_the_reply_returned(server: MailServer) -> None:
    text = "Grüße\n.\n.. two dots\nlast"
    assert client_of(server.address).send(mail(text), ADDRESS) == "250 queued as 1"
    (received,) = server.mails
    assert (received.sender, received.recipient, received.user) == ("shop@chat.example", ADDRESS, "")
    assert received.content.isascii() and not received.is_tls
    assert received.part("plain") == f"{text}\n"


class TestTls:
    def test_from_the_beginning(self, certificate: Certificate, trust: Callable[[Certificate], None]) -> None:
        trust(certificate)
        with mail_server(tls=certificate.context) as server:
            client_of(server.address, "smtps").send(mail(), ADDRESS)
        assert server.mails[0].is_tls

    def test_with_starttls(self, certificate: Certificate, trust: Callable[[Certificate], None], remote: None) -> None:
        trust(certificate)
        with mail_server(starttls=certificate.context) as server:
            client_of(server.address).send(mail(), ADDRESS)
        assert server.mails[0].is_tls

    def test_is_required_of_other_hosts(self, server: MailServer, remote: None) -> None:
        error = failure(client_of(server.address))
        assert (str(error), error.is_final) == ("the server does not offer STARTTLS, which is required", False)
        assert not server.mails

    @pytest.mark.parametrize("scheme", ["smtps", "smtp"])
    def test_certificate_of_an_unknown_authority_is_refused(
        self, scheme: str, certificate: Certificate, remote: None
    ) -> None:
        context = certificate.context
        with mail_server(**{"tls" if scheme == "smtps" else "starttls": context}) as server:
            error = failure(client_of(server.address, scheme))
        assert str(error) == "the certificate of the server is not valid: self-signed certificate"
        assert not error.is_final and not server.mails

    @pytest.mark.parametrize("scheme", ["smtps", "smtp"])
    def test_certificate_of_another_host_is_refused(
        self, scheme: str, other_certificate: Certificate, trust: Callable[[Certificate], None], remote: None
    ) -> None:
        trust(other_certificate)
        with mail_server(**{"tls" if scheme == "smtps" else "starttls": other_certificate.context}) as server:
            error = failure(client_of(server.address, scheme))
        assert "IP address mismatch" in str(error) and not error.is_final and not server.mails

    def test_server_without_it_is_an_error(self, server: MailServer, impatient: None) -> None:
        error = failure(client_of(server.address, "smtps"))
        assert not error.is_final and not server.mails

    @pytest.mark.parametrize(
        ("host", "expected"),
        [
            ("localhost", True),
            ("127.0.0.1", True),
            ("127.8.0.1", True),
            ("::1", True),
            ("mail.example", False),
            ("localhost.example", False),
            ("192.0.2.1", False),
            ("2001:db8::1", False),
        ],
    )
    def test_is_not_required_on_this_host(self, host: str, expected: bool) -> None:
        assert smtp.is_loopback(host) is expected


class TestAuthentication:
    @pytest.fixture
    def guarded(
        self, certificate: Certificate, trust: Callable[[Certificate], None], remote: None
    ) -> Iterator[MailServer]:
        trust(certificate)
        with mail_server(starttls=certificate.context, needs_user=True) as server:
            yield server

    def test_signs_in(self, guarded: MailServer) -> None:
        client_of(guarded.address, "smtp", USER, PASSWORD).send(mail(), ADDRESS)
        assert [(received.user, received.is_tls) for received in guarded.mails] == [(USER, True)]

    def test_wrong_password_is_a_temporary_error(self, guarded: MailServer) -> None:
        error = failure(client_of(guarded.address, "smtp", USER, "wrong"))
        assert str(error).startswith("535 ") and not error.is_final and "wrong" not in str(error)

    def test_missing_user_is_a_temporary_error(self, guarded: MailServer) -> None:
        error = failure(client_of(guarded.address))
        assert str(error).startswith("530 ") and not error.is_final

    def test_server_without_it_is_an_error(self, server: MailServer) -> None:
        error = failure(client_of(server.address, "smtp", USER, PASSWORD))
        assert not error.is_final and "AUTH" in str(error) and not server.mails


class TestFaults:
    @pytest.mark.parametrize("command", ["MAIL", "RCPT", "DATA"])
    @pytest.mark.parametrize(
        ("reply", "is_final"),
        [
            ("421 closing", False),
            ("450 greylisted", False),
            ("452 full", False),
            ("550 unknown", True),
            ("554 spam", True),
        ],
    )
    def test_negative_reply_to_a_mail(self, server: MailServer, command: str, reply: str, is_final: bool) -> None:
        server.replies[command] = reply
        error = failure(client_of(server.address))
        assert (str(error), error.is_final) == (reply, is_final)
        assert not server.mails

    @pytest.mark.parametrize("reply", ["421 closing", "550 no"])
    def test_negative_reply_to_ehlo_is_temporary(self, server: MailServer, reply: str) -> None:
        server.replies["EHLO"] = reply
        error = failure(client_of(server.address))
        assert not error.is_final and not server.mails

    @pytest.mark.parametrize("greeting", [b"421 busy\r\n", b"554 blocked\r\n", b"HTTP/1.1 400 Bad Request\r\n"])
    def test_negative_greeting_is_temporary(self, greeting: bytes) -> None:
        with raw_server(greeting) as address:
            assert not failure(client_of(address)).is_final

    @pytest.mark.parametrize("command", ["EHLO", "MAIL", "RCPT", "DATA"])
    @pytest.mark.parametrize("fault", [HANG, CUT])
    def test_hanging_server_and_cut_connection_are_temporary(
        self, server: MailServer, command: str, fault: str, impatient: None
    ) -> None:
        server.replies[command] = fault
        begun = time.monotonic()
        error = failure(client_of(server.address))
        assert not error.is_final and time.monotonic() - begun < 2
        assert str(error) == ("the server did not reply in time" if fault == HANG else "Connection unexpectedly closed")

    def test_slow_reply_ends_at_the_timeout(self, impatient: None) -> None:
        begun = time.monotonic()
        with raw_server(b"220", *[b"-x\r\n220"] * 100, every=0.05) as address:
            error = failure(client_of(address))
        assert str(error) == "the server did not reply in time" and time.monotonic() - begun < 2

    def test_deadline_of_a_mail_includes_all_replies(self, server: MailServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(smtp, "DEADLINE", 0.5)
        server.replies["RCPT"] = HANG
        begun = time.monotonic()
        assert str(failure(client_of(server.address))) == "the server did not reply in time"
        assert time.monotonic() - begun < 3

    def test_mail_that_is_too_large_is_a_final_error(self) -> None:
        with mail_server(data_size_limit=2000) as server:
            error = failure(client_of(server.address), text="x" * 3000)
        assert str(error).startswith("552 ") and error.is_final and not server.mails

    def test_server_that_is_not_there_is_a_temporary_error(self) -> None:
        error = failure(client_of(f"127.0.0.1:{postgres.free_port()}"))
        assert (str(error), error.is_final) == ("Connection refused", False)

    def test_unknown_host_is_a_temporary_error(self) -> None:
        assert not failure(client_of("mail.invalid")).is_final

    def test_reply_is_shown_in_one_line_without_control_characters(self, server: MailServer) -> None:
        server.replies["RCPT"] = "550-first\r\n550 \x1b[31msecond"
        assert str(failure(client_of(server.address))) == "550 first [31msecond"


class TestAddresses:
    def test_domain_beyond_ascii_is_sent_in_ascii(self, server: MailServer) -> None:
        client_of(server.address).send(mail(), "ada@bücher.example")
        assert server.mails[0].recipient == "ada@xn--bcher-kva.example"

    def test_local_part_beyond_ascii_needs_smtputf8(self) -> None:
        with mail_server(enable_SMTPUTF8=False) as server:
            error = failure(client_of(server.address), "jürgen@example.com")
        assert "letters beyond ASCII" in str(error) and error.is_final
        with mail_server(enable_SMTPUTF8=True) as supporting:
            client_of(supporting.address).send(mail(), "jürgen@example.com")
        assert supporting.mails[0].recipient == "jürgen@example.com"

    @pytest.mark.parametrize(
        "address",
        [
            "ada(x)@example.com",
            "ada,bob@example.com",
            "<ada@example.com",
            '"ada"@example.com',
            "ada@example.com>",
            "ada@example.com\r\nRCPT TO:<bob@example.com>",
            "ada@[192.0.2.1]",
            ".ada@example.com",
            f"ada@{'x' * 64}.example",
            "ada@example..com",
            "ada",
        ],
    )
    def test_address_with_several_readings_is_a_final_error(self, server: MailServer, address: str) -> None:
        assert failure(client_of(server.address), address).is_final
        assert not server.mails


class TestSettings:
    def test_without_a_server_there_is_none(self) -> None:
        assert mail_server_of(Settings()) is None

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ({"mail_from": ""}, "--smtp needs --mail-from, and --public-url for the links in e-mails"),
            ({"public_url": ""}, "--smtp needs --mail-from, and --public-url for the links in e-mails"),
            ({"smtp_password": "hush"}, "a user in --smtp and CX_SMTP_PASSWORD need each other"),
            ({"smtp": "smtp://bot@localhost"}, "a user in --smtp and CX_SMTP_PASSWORD need each other"),
            (
                {"smtp": "smtp://bot@localhost", "smtp_password": "hüsh"},
                "the user in --smtp and CX_SMTP_PASSWORD must consist of ASCII characters",
            ),
            ({"mail_from": "a@x..y"}, "--mail-from: not an address that e-mail can be sent to"),
            (
                {"documented_only": True},
                "--smtp needs the pages of its links, which --documented-only turns off",
            ),
            ({"smtp": ""}, "--mail-from and CX_SMTP_PASSWORD need --smtp"),
        ],
    )
    def test_that_do_not_fit_together_are_an_error(self, changes: dict[str, Any], error: str) -> None:
        settings = dataclasses.replace(SETTINGS, smtp="smtp://localhost")
        with pytest.raises(ValueError) as caught:
            mail_server_of(dataclasses.replace(settings, **changes))
        assert str(caught.value) == error

    @pytest.mark.parametrize(
        ("url", "address"),
        [
            ("smtps://mail.example", ("mail.example", 465, "")),
            ("smtp://mail.example", ("mail.example", 587, "")),
            ("smtp://bot@[::1]:2525/", ("::1", 2525, "bot")),
            ("smtps://bot%40chat.example@mail.example", ("mail.example", 465, "bot@chat.example")),
            ("smtps://bot@chat.example@mail.example", ("mail.example", 465, "bot@chat.example")),
        ],
    )
    def test_url_has_host_port_and_user(self, url: str, address: tuple[str, int, str]) -> None:
        client = Client(dataclasses.replace(SETTINGS, smtp=url, smtp_password="hush" if address[2] else ""))
        assert (client._host, client._port, client._user) == address


def test_certificates_are_checked_by_default() -> None:
    context = client_of("mail.example", "smtps")._tls
    assert context.verify_mode == ssl.CERT_REQUIRED and context.check_hostname
