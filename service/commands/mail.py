"""`mail`: tries the sending of e-mails."""

import argparse

from service import clock
from service.commands import Stop, add_actions
from service.outbox.mails import Content, build
from service.outbox.smtp import mail_server_of
from service.outbox.transport import DeliveryError
from service.settings import Settings


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    add_action = add_actions(parser, "smtp", "mail_from", "public_url")
    test = add_action("test", "send one e-mail at once, and print the reply of the server", send_test)
    test.add_argument("address", metavar="ADDRESS")


def send_test(flags: argparse.Namespace, settings: Settings) -> None:
    """Send an e-mail to an address. Raises Stop with the error of the server."""
    server = mail_server_of(settings)
    if server is None:
        raise Stop("e-mail is not configured: --smtp is not set")
    content = Content("Test of cx-service", ("The service can send e-mails.",))
    try:
        print(server.send(build(content, clock.ulid(), flags.address, settings), flags.address))
    except DeliveryError as error:
        raise Stop(f"the e-mail was not sent: {error}") from None
