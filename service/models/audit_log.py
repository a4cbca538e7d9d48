"""The audit log: data shares, consents, logins and administrative actions, hash-chained so that changes are detected.

The hash of an entry is the SHA-256, in lower-case hexadecimal digits, of this JSON array (RFC 8259) in UTF-8, without
white space, escaping only quotation marks, backslashes and control characters:

    [hash of the previous entry, position, created_at, kind, actor_id, subject_id, details]

The position is a number and counts from 1; all others are strings, including `details`, the JSON text as stored. The
hash before the first entry is 64 zeros. This SQL returns the hashed texts, so that other programs can verify the chain:

    SELECT json_array(coalesce(lag(hash) OVER (ORDER BY position), printf('%064d', 0)),
        position, created_at, kind, actor_id, subject_id, details), hash FROM audit_log
"""

import contextlib
import hashlib
import re
import time
from collections.abc import Generator
from typing import Literal, NamedTuple, get_args

import msgspec
import peewee

from service import clock
from service.db import Page, Position, Row, Table, database, snapshot, write
from service.db.engine import exceptions
from service.fields import INTERNAL, Integer, Text, Timestamp

Kind = Literal[
    "login",
    "logout",
    "login_ended",
    "install_revoked",
    "install_replaced",
    "refresh_token_reused",
    "code_reused",
    "password_changed",
    "password_reset",
    "email_verified",
    "consent_approved",
    "consent_denied",
    "data_share_created",
    "data_share_revoked",
    "calendar_feed_renewed",
    "calendar_feed_revoked",
    "user_added",
    "user_disabled",
    "user_enabled",
    "user_changed",
    "user_deleted",
    "app_added",
    "app_changed",
    "bot_added",
    "bot_changed",
    "answer_added",
    "answer_changed",
    "answer_removed",
    "answers_imported",
    "assignee_changed",
    "chat_handed_over",
    "assistant_asked",
    "tool_permitted",
    "tool_refused",
    "tool_called",
    "feedback_changed",
    "imported",
    "purged",
    "backup_created",
    "backup_downloaded",
    "backup_deleted",
    "branding_changed",
    "delivery_retried",
    "announcement_sent",
    "push_topic_renewed",
    "push_topic_ended",
    "push_browser_added",
    "push_browser_removed",
    "webhook_ended",
    "webhook_enabled",
    "server_credential_added",
    "server_credential_rotated",
    "server_credential_revoked",
]
KINDS: tuple[str, ...] = get_args(Kind)
MISUSES: tuple[Kind, ...] = ("refresh_token_reused", "code_reused")  # of copied tokens; they end the login session
OPERATOR, SERVICE = "operator", "service"  # actors other than users: the command line, and the service itself

_HEAD = re.compile(r"(0|[1-9][0-9]{0,18}):([0-9a-f]{64})", re.ASCII)


class BrokenChain(Exception):
    """The audit log was altered. The text names the first entry that is wrong."""


class VerificationTimeout(Exception):
    """The audit log has too many entries to be verified within the time limit."""


class Head(NamedTuple):
    """Position and hash of the last entry, as text `NUMBER:HASH`."""

    position: int = 0
    hash: str = "0" * 64

    def __str__(self) -> str:
        return f"{self.position}:{self.hash}"

    @classmethod
    def read(cls, text: str) -> "Head":
        """Return a head from its text. Raises ValueError."""
        found = _HEAD.fullmatch(text)
        if not found:
            raise ValueError("expected NUMBER:HASH, as `audit verify` prints it")
        return cls(int(found[1]), found[2])

    def followed_by(self, *texts: str) -> "Head":
        """Return the head after one more entry with these `texts`, its columns between position and hash."""
        hashed = msgspec.json.encode((self.hash, self.position + 1, *texts))
        return Head(self.position + 1, hashlib.sha256(hashed).hexdigest())


BEGINNING = Head()


class AuditLog(Table):
    """An entry. It has no foreign keys, because entries outlive all other rows."""

    position = Integer(primary_key=True)
    created_at = Timestamp(visibility=INTERNAL)  # never earlier than that of the previous entry
    kind = Text(visibility=INTERNAL)
    actor_id = Text(visibility=INTERNAL)  # a user, or OPERATOR or SERVICE
    subject_id = Text(visibility=INTERNAL)  # the owner of a login, account, grant or feedback, or the object
    details = Text(visibility=INTERNAL)  # a JSON object with sorted members
    hash = Text(visibility=INTERNAL)

    @classmethod
    def record(cls, kind: Kind, actor_id: str, subject_id: str, **details: object) -> None:
        """Append an entry, inside the write of the action that it records. Details that are None are omitted.

        Call it last, and acquire no lock after it: all writers share the lock of the audit log, which is held until the
        commit, so its holder must never wait for another lock. Details contain no secrets and no texts of users.
        """
        if not database.in_transaction():
            raise RuntimeError(f"{kind}: an audit entry must be recorded in the transaction of its action")
        present = {name: value for name, value in details.items() if value is not None}
        text = msgspec.json.encode(present, order="sorted").decode()
        with write("ledger"):  # the name of its lock, shared with earlier versions that use the same database
            last = cls.select(cls.position, cls.hash, cls.created_at).order_by(cls.position.desc()).tuples().first()
            position, hash, last_time = last or (*BEGINNING, "")
            texts = (max(last_time, clock.timestamp()), kind, actor_id, subject_id, text)
            columns = cls._meta.sorted_fields
            head = Head(position, hash).followed_by(*texts)
            cls.insert_many([(head.position, *texts, head.hash)], columns).execute()

    @classmethod
    def list_page(
        cls,
        after: Position,
        limit: int,
        *,
        kind: str = "",
        person_id: str = "",
        since: str = "",
        until: str = "",
    ) -> "Page[AuditLog]":
        """Return a page of the entries, newest first; those of a person are by the person or about the person."""
        conditions = {
            "kind": cls.kind == kind,
            "person": (cls.actor_id == person_id) | (cls.subject_id == person_id),
            "since": cls.created_at >= since,
            "until": cls.created_at <= until,
            "after": cls.position < (after.key[0] if after.key else 0),
        }
        given = {"kind": kind, "person": person_id, "since": since, "until": until, "after": after.key}
        found = cls.select().order_by(cls.position.desc()).limit(limit + 1)
        for name in filter(given.get, conditions):
            found = found.where(conditions[name])
        entries = [entry.__data__ | {"details": msgspec.Raw(entry.details.encode())} for entry in found]
        next_key = (entries[limit - 1]["position"],) if len(entries) > limit else ()
        return Page(msgspec.json.encode(entries[:limit]), next_key)

    @classmethod
    def verify(cls, expected: Head = BEGINNING, time_limit: float = float("inf")) -> Head:
        """Verify all entries. Return the last head.

        Raises BrokenChain, also if no entry has the head `expected`, and VerificationTimeout after `time_limit`, in
        seconds.
        """
        last, deadline = BEGINNING, time.monotonic() + time_limit
        with contextlib.closing(cls._chain()) as chain:
            for last in chain:
                if last.position % 1000 == 0 and time.monotonic() > deadline:
                    raise VerificationTimeout
                if last.position == expected.position and last != expected:
                    raise BrokenChain(f"entry {expected.position} differs from --head: the audit log was rewritten")
        if last.position < expected.position:
            raise BrokenChain(f"entry {last.position + 1} is missing: --head is entry {expected.position}")
        return last

    @classmethod
    def _chain(cls) -> Generator[Head]:
        """Yield the head before the first entry and after each. Raises BrokenChain at the first entry that is wrong."""
        select = f"SELECT {', '.join(column.sql for column in cls._meta.sorted_fields)} FROM audit_log"
        last = BEGINNING
        yield last
        try:
            with snapshot(), exceptions:
                for row in database.stream(f"{select} ORDER BY position"):
                    last = _next(last, row)
                    yield last
            return
        except peewee.DatabaseError as error:
            reason = str(error).partition("\n")[0].partition(" with text ")[0]
        # Drivers read ahead. Reading single entries finds the number of the unreadable one.
        with contextlib.suppress(peewee.DatabaseError), exceptions:
            while row := next(database.stream(f"{select} WHERE position = {last.position + 1}"), None):
                last = _next(last, row)
                yield last
        raise BrokenChain(f"entry {last.position + 1} cannot be read: {reason}")


def _next(last: Head, row: Row) -> Head:
    """Return the head after a row. Raises BrokenChain if the row does not follow."""
    position, *texts, hash = row
    if position != last.position + 1:
        raise BrokenChain(f"entry {last.position + 1} is missing: found entry {position} instead")
    head = last.followed_by(*texts)
    if hash != head.hash or any(type(text) is not str for text in texts):  # bytes are hashed like their text
        raise BrokenChain(f"entry {position} was altered")
    return head
