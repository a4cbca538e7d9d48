"""Stores e-mails in the database, where admins read them in the console: what a demo does in place of sending them."""

from email.message import EmailMessage
from email.policy import default

from service.models import StoredMail
from service.models.stored_mails import TARGET

_POLICY = default.clone(utf8=True, max_line_length=0)  # readable, with headers in one line


class MailStore:
    """Takes e-mails as `smtp.MailServer` does."""

    target = TARGET

    def send(self, mail: EmailMessage, address: str) -> None:
        """Store a mail to the address of a user."""
        StoredMail.store(address, mail["Subject"], mail.as_string(policy=_POLICY))
