"""Sends e-mails to an SMTP server (RFC 5321, RFC 6409): with TLS, except to a server on this host.

Each mail has a connection of its own. Errors of the connection are temporary, because the operator may correct them.
A negative reply to the mail itself is final if it is permanent (5xx).
"""

import re
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from email.policy import SMTP, EmailPolicy
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

from service.escape import clean
from service.outbox.transport import DeliveryError
from service.settings import Settings, split_mailbox

TIMEOUT = 20.0  # seconds, for connecting and for each reply
DEADLINE = 45.0  # seconds, for all replies to a mail; with the connection less than `worker.LEASE`
MAX_REPLY = 300  # characters of an error
DEFAULT_PORTS = {"smtps": 465, "smtp": 587}  # RFC 8314, section 3.3; RFC 6409, section 3.1
UNAUTHENTICATED = (530, 535, 538)  # replies to MAIL that concern the settings, not the mail (RFC 4954, section 6)

# Without comments and quoted parts, which would have several readings.
_ADDRESS = re.compile(r"([\w!#$%&'*+/=?^`{|}~-]+(?:\.[\w!#$%&'*+/=?^`{|}~-]+)*)@([\w-]+(?:\.[\w-]+)*)")
# Headers of identifiers and addresses. If `email` folded them, it would encode long ones, which no program decodes.
_UNFOLDED = frozenset({"in-reply-to", "list-unsubscribe", "references"})


class _Policy(EmailPolicy):
    """Mails as bytes: in ASCII, unless an address needs UTF-8."""

    def fold_binary(self, name: str, value: str) -> bytes:
        if name.lower() in _UNFOLDED:
            return f"{name}: {value}\r\n".encode("ascii")
        return super().fold_binary(name, value)


POLICY = _Policy(linesep=SMTP.linesep, cte_type="7bit")


class _Client(smtplib.SMTP):
    """A connection that ends if a reply takes longer than TIMEOUT, or a mail longer than DEADLINE.

    The timeout of the socket alone would begin again with every byte.
    """

    def __init__(self, *arguments: object, **more: object) -> None:
        self.deadline = time.monotonic() + DEADLINE
        super().__init__(*arguments, **more)  # type: ignore[arg-type]

    def getreply(self) -> tuple[int, bytes]:
        begun = time.monotonic()
        limit = max(0.0, min(TIMEOUT, self.deadline - begun))
        watch = threading.Timer(limit, self._cut)
        watch.daemon = True
        watch.start()
        try:
            return super().getreply()
        finally:
            watch.cancel()
            if time.monotonic() - begun >= limit:  # also if a part of a line arrived, which would count as a reply
                self.close()
                raise TimeoutError from None

    def _cut(self) -> None:
        """End the connection, on which another thread waits."""
        if self.sock:
            with suppress(OSError):
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)


class _TlsClient(_Client, smtplib.SMTP_SSL):
    """A connection with TLS from its beginning."""


class MailServer:
    """The SMTP server of the settings. Raises ValueError with a sentence for the operator."""

    target = ""  # of deliveries: there is one server

    def __init__(self, settings: Settings) -> None:
        parts = urlsplit(settings.smtp)
        self._host, self._port = parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme]
        self._user, self._password = unquote(parts.username or ""), settings.smtp_password
        if not settings.mail_from or not settings.public_url:
            raise ValueError("--smtp needs --mail-from, and --public-url for the links in e-mails")
        if settings.documented_only:
            raise ValueError("--smtp needs the pages of its links, which --documented-only turns off")
        if bool(self._user) != bool(self._password):
            raise ValueError("a user in --smtp and CX_SMTP_PASSWORD need each other")
        if not (self._user + self._password).isascii() or not self._user.isprintable():
            raise ValueError("the user in --smtp and CX_SMTP_PASSWORD must consist of ASCII characters")
        self._is_tls = parts.scheme == "smtps"
        self._starts_tls = not self._is_tls and not is_loopback(self._host)
        self._tls = ssl.create_default_context()
        try:
            self._sender = ascii_domain(split_mailbox(settings.mail_from)[1])
        except DeliveryError as error:
            raise ValueError(f"--mail-from: {error}") from None

    def send(self, mail: EmailMessage, address: str) -> str:
        """Send a mail. Returns the reply of the server. Raises DeliveryError."""
        recipient = ascii_domain(address)
        try:
            with self._connected() as client:
                return self._transmit(client, mail, recipient)
        except smtplib.SMTPResponseException as error:  # to the greeting, EHLO, STARTTLS or AUTH
            raise DeliveryError(_described(error.smtp_code, error.smtp_error)) from None
        except TimeoutError:
            raise DeliveryError("the server did not reply in time") from None
        except ssl.SSLCertVerificationError as error:
            raise DeliveryError(f"the certificate of the server is not valid: {error.verify_message}") from None
        except (OSError, smtplib.SMTPException, ValueError) as error:
            raise DeliveryError(_line(str(getattr(error, "strerror", "") or error))) from None

    @contextmanager
    def _connected(self) -> Iterator[smtplib.SMTP]:
        """Yield a connection with TLS where needed, on which the user is signed in."""
        own_name = self._sender.rpartition("@")[2]  # the name of this host may not be a valid one
        client: smtplib.SMTP = (
            _TlsClient(self._host, self._port, own_name, timeout=TIMEOUT, context=self._tls)
            if self._is_tls
            else _Client(self._host, self._port, own_name, timeout=TIMEOUT)
        )
        try:
            client.ehlo_or_helo_if_needed()
            if self._starts_tls:
                self._start_tls(client)
            if self._user:
                client.login(self._user, self._password)
            yield client
        finally:
            client.close()

    def _start_tls(self, client: smtplib.SMTP) -> None:
        if not client.has_extn("starttls"):
            raise DeliveryError("the server does not offer STARTTLS, which is required")
        client.starttls(context=self._tls)
        client.ehlo_or_helo_if_needed()

    def _transmit(self, client: smtplib.SMTP, mail: EmailMessage, recipient: str) -> str:
        options, content = self._options(client, mail, recipient)
        _expect(*client.mail(self._sender, options), unless=UNAUTHENTICATED)
        _expect(*client.rcpt(recipient))
        try:
            code, reply = client.data(content)
            _expect(code, reply)
        except smtplib.SMTPDataError as error:  # the reply to DATA itself
            _expect(error.smtp_code, error.smtp_error)
            raise
        with suppress(OSError, smtplib.SMTPException):  # the server has accepted the mail
            client.quit()
        return _described(code, reply)

    def _options(self, client: smtplib.SMTP, mail: EmailMessage, recipient: str) -> tuple[list[str], bytes]:
        """Return the options of MAIL, and the bytes of a mail."""
        options, policy = [], POLICY
        if not (self._sender + recipient).isascii():
            if not client.has_extn("smtputf8"):
                raise DeliveryError("the server does not support addresses with letters beyond ASCII", is_final=True)
            options, policy = ["SMTPUTF8", "BODY=8BITMIME"], POLICY.clone(utf8=True)
        content = mail.as_bytes(policy=policy)
        return options + [f"SIZE={len(content)}"] * client.has_extn("size"), content


def mail_server_of(settings: Settings) -> MailServer | None:
    """Return the configured SMTP server, if any. Raises ValueError with a sentence for the operator."""
    if settings.smtp:
        return MailServer(settings)
    if settings.mail_from or settings.smtp_password:
        raise ValueError("--mail-from and CX_SMTP_PASSWORD need --smtp")
    return None


def ascii_domain(address: str) -> str:
    """Return an address with its domain in ASCII (RFC 5890). Raises DeliveryError for one that a server may misread."""
    match = _ADDRESS.fullmatch(address)
    try:
        if match:
            return f"{match[1]}@{match[2].encode('idna').decode()}"
    except UnicodeError:
        pass
    raise DeliveryError("not an address that e-mail can be sent to", is_final=True)


def _expect(code: int, reply: bytes | str, unless: tuple[int, ...] = ()) -> None:
    """Raise DeliveryError for a reply that is not positive: final if it is permanent (5xx)."""
    if not 200 <= code < 300:
        raise DeliveryError(_described(code, reply), is_final=code >= 500 and code not in unless)


def _described(code: int, reply: bytes | str) -> str:
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
    return _line(f"{code} {text}")


def _line(text: str) -> str:
    return " ".join(clean(text).split())[:MAX_REPLY]


def is_loopback(host: str) -> bool:
    """Return whether a host is this one, by its name or address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
