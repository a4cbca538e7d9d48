"""E-mails of a demo, stored in place of being sent."""

from email import message_from_string, policy
from email.message import EmailMessage
from typing import Literal

import msgspec
from msgspec import Struct

from service import clock
from service.db import Page, Position, Query, Table, compiled, write
from service.errors import Forbidden, MailNotFound
from service.fields import INTERNAL, DateTime, Text, Ulid, UlidIdentifier, reference
from service.models.callers import Caller
from service.models.deliveries import Delivery
from service.models.users import User

TARGET = "database"  # of their deliveries, so that these are never sent later
MAX_MAILS = 200  # stored at a time; the oldest are deleted first
LIFETIME = 7 * clock.DAY


class StoredMailInfo(Struct):
    """An e-mail in the list of stored ones."""

    id: Ulid
    address: str
    subject: str
    created_at: DateTime


class StoredMail(Table):
    """An e-mail to a user, as it would be sent. It may have texts of messages, and links that give access."""

    get_for_errors = (MailNotFound, Forbidden)
    id = UlidIdentifier(primary_key=True, default=clock.ulid)
    user_id = reference("user", index=True, visibility=INTERNAL)
    address = Text(visibility=INTERNAL)
    subject = Text(visibility=INTERNAL)
    content = Text(visibility=INTERNAL)  # headers and body, with LF line ends

    @staticmethod
    def is_enabled() -> bool:
        """Return whether e-mails are stored in place of being sent."""
        return ("email", TARGET) in Delivery.configured

    @classmethod
    def store(cls, address: str, subject: str, content: str) -> None:
        """Store an e-mail to the address of a user, and delete the oldest ones. No effect if there is no such user."""
        user = User.by_email(address)
        if user is None:
            return
        with write(user.id):
            cls.create(user_id=user.id, address=address, subject=subject, content=content)
            newest = cls.select(cls.id).order_by(cls.id.desc()).limit(MAX_MAILS)
            cls.delete().where(cls.id.not_in(newest)).execute()

    @classmethod
    def get_for(cls, caller: Caller, id: str, *above: Table) -> "StoredMail":
        """Return the e-mail, for admins. Raises MailNotFound or Forbidden."""
        mail = cls.find(id)
        if mail is None or caller.role != "admin":
            raise MailNotFound if mail is None else Forbidden(not_found=MailNotFound)
        return mail

    @classmethod
    def list_page(cls, after: Position, limit: int) -> Page[StoredMailInfo]:
        """Return a page of the e-mails, newest first."""
        found = cls.select(cls.id, cls.address, cls.subject).order_by(cls.id.desc())
        if after.key:
            found = found.where(cls.id < after.key[0])
        rows = list(found.limit(limit + 1))
        shown = [StoredMailInfo(row.id, row.address, row.subject, row.created_at) for row in rows[:limit]]
        return Page(msgspec.json.encode(shown), (shown[-1].id,) if len(rows) > limit else ())

    @property
    def created_at(self) -> str:
        """The time of the e-mail."""
        return clock.timestamp(clock.ulid_time(self.id))

    @property
    def message(self) -> EmailMessage:
        """The e-mail with its headers and parts."""
        return message_from_string(self.content, policy=policy.default)

    def part(self, subtype: Literal["plain", "html"]) -> str:
        """Return a part of the e-mail: its text, or its HTML."""
        found = self.message.get_body((subtype,))
        return str(found.get_content()) if found else ""

    @classmethod
    def delete_old(cls) -> int:
        """Delete the e-mails that are older than LIFETIME. Return their number."""
        old = [id for (id,) in _before(clock.first_ulid(clock.now() - LIFETIME)).rows()]
        return int(cls.delete().where(cls.id.in_(old)).execute()) if old else 0


@compiled
def _before(id: str) -> Query:
    return StoredMail.select(StoredMail.id).where(StoredMail.id < id)
