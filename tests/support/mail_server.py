"""An SMTP server on loopback that keeps the mails it accepts, with faults at every stage."""

import asyncio
import contextlib
import email
import email.policy
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any, NamedTuple

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.support import postgres
from tests.support.cluster import find

USER, PASSWORD = "bot@chat.example", "hush"
HANG, CUT = "hang", "cut"  # in place of a reply


class Received(NamedTuple):
    """A mail that the server has accepted."""

    sender: str
    recipient: str
    content: bytes
    user: str  # who was signed in
    is_tls: bool

    @property
    def mail(self) -> EmailMessage:
        message = email.message_from_bytes(self.content, policy=email.policy.SMTP)
        assert isinstance(message, EmailMessage)
        return message

    def part(self, kind: str) -> str:
        """The content of the part `plain` or `html`."""
        body = self.mail.get_body((kind,))
        assert body is not None
        return str(body.get_content()).replace("\r\n", "\n")


class MailServer:
    """Replies to each command as `replies` says, by EHLO, AUTH, MAIL, RCPT and DATA; positively by default."""

    def __init__(self) -> None:
        self.mails: list[Received] = []
        self.replies: dict[str, str] = {}
        self.after_data: Callable[[], object] | None = None  # called when a mail was accepted, before the reply
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def react(self, command: str, server: SMTP, positive: str) -> str:
        reply = self.replies.get(command, positive)
        if reply == HANG:
            await asyncio.sleep(60)
        if reply == CUT:
            assert isinstance(server.transport, asyncio.Transport)
            server.transport.abort()
        return reply

    async def handle_EHLO(
        self, server: SMTP, session: Session, envelope: Envelope, hostname: str, responses: list[str]
    ) -> list[str]:
        session.host_name = hostname
        reply = await self.react("EHLO", server, "")
        return [reply] if reply else responses

    async def handle_HELO(self, server: SMTP, session: Session, envelope: Envelope, hostname: str) -> str:
        session.host_name = hostname
        return await self.react("EHLO", server, "250 mail.example")

    async def handle_MAIL(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        envelope.mail_from = address
        return await self.react("MAIL", server, "250 sender ok")

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        envelope.rcpt_tos.append(address)
        return await self.react("RCPT", server, "250 recipient ok")

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes) and envelope.mail_from is not None and server.transport
        user = session.auth_data.decode() if isinstance(session.auth_data, bytes) else ""
        for recipient in envelope.rcpt_tos:
            is_tls = bool(session.ssl or isinstance(server.transport.get_extra_info("sslcontext"), ssl.SSLContext))
            received = Received(envelope.mail_from, recipient, envelope.content, user, is_tls)
            if self.replies.get("DATA", CUT) == CUT:
                self.mails.append(received)
        if self.after_data:
            await asyncio.get_running_loop().run_in_executor(None, self.after_data)
        return await self.react("DATA", server, "250 queued as 1")

    def authenticate(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        is_right = (data.login, data.password) == (USER.encode(), PASSWORD.encode())
        return AuthResult(success=is_right, handled=False, auth_data=data.login)


class _Controller(Controller):
    """Runs a server in a thread. `stop` alone would leave open the connections that clients have not closed."""

    def __init__(self, handler: MailServer, **options: Any) -> None:
        super().__init__(handler, **options)
        self.connections: list[SMTP] = []

    def factory(self) -> SMTP:
        self.connections.append(super().factory())  # type: ignore[no-untyped-call]
        return self.connections[-1]

    def stop(self, no_assert: bool = False) -> None:
        asyncio.run_coroutine_threadsafe(self._disconnect(), self.loop).result(30)
        super().stop(no_assert)

    async def _disconnect(self) -> None:
        assert self.server
        self.server.close()
        await asyncio.sleep(0.05)  # for connections that are being accepted
        for connection in self.connections:
            if isinstance(connection.transport, asyncio.Transport):
                connection.transport.abort()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.05)  # for the callbacks that close the sockets


@contextlib.contextmanager
def mail_server(
    *,
    tls: ssl.SSLContext | None = None,
    starttls: ssl.SSLContext | None = None,
    needs_user: bool = False,
    **more: Any,
) -> Iterator[MailServer]:
    """Run a server until the end of the block: with TLS from the beginning, with STARTTLS, or without.

    With `needs_user`, which needs STARTTLS, it accepts mails of USER with PASSWORD only.
    """
    server = MailServer()
    server.port = postgres.free_port()
    options = {"tls_context": starttls, "require_starttls": bool(starttls), "ssl_context": tls, **more}
    options |= {"authenticator": server.authenticate, "auth_required": True} if needs_user else {}
    controller = _Controller(server, hostname="127.0.0.1", port=server.port, **options)
    controller.start()
    try:
        yield server
    finally:
        controller.stop()


@contextlib.contextmanager
def raw_server(*parts: bytes, every: float = 0.0) -> Iterator[str]:
    """Run a server that sends some bytes to each client, with pauses, and then nothing. Yields its address."""
    stopped = threading.Event()

    def serve(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            for part in parts:
                client.sendall(part)
                stopped.wait(every)
            stopped.wait(60)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            stopped.set()


class Certificate(NamedTuple):
    """The files of a self-signed certificate."""

    certificate: Path
    key: Path

    @property
    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        return context


def make_certificate(folder: Path, name: str) -> Certificate:
    """Make a certificate for a name, such as `IP:127.0.0.1`."""
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    options = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1")
    subject = ("-subj", "/CN=mail.example", "-addext", f"subjectAltName={name}")
    files = ("-keyout", str(made.key), "-out", str(made.certificate))
    subprocess.run([find("openssl", "openssl"), *options, *subject, *files], check=True, capture_output=True)
    return made
