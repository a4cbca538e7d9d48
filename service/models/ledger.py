"""The ledger: grants, consents, logins and administrative acts, chained so that no entry changes without being found.

The hash of an entry is the SHA-256, in lower-case hexadecimal digits, of this JSON array (RFC 8259) in UTF-8, without
blanks and with nothing escaped but quotation marks, backslashes and control characters:

    [hash of the entry before, position, created_at, kind, actor_id, subject_id, details]

The position is a number and counts from 1; all others are strings, `details` too, which is the JSON text as stored.
Before the first entry stand 64 zeros. So SQLite can say what is hashed, for any other program to check:

    SELECT json_array(coalesce(lag(hash) OVER (ORDER BY position), printf('%064d', 0)),
        position, created_at, kind, actor_id, subject_id, details), hash FROM ledger
"""

import contextlib
import hashlib
import re
from collections.abc import Generator
from typing import Any, Literal, NamedTuple, get_args

import msgspec
import peewee

from service import clock
from service.db import Table, database, snapshot, write
from service.db.engine import exceptions
from service.fields import NEVER, Integer, Text, Timestamp

Kind = Literal[
    "login",
    "logout",
    "login_ended",
    "install_revoked",
    "install_replaced",
    "refresh_token_reused",
    "code_reused",
    "password_changed",
    "consent_approved",
    "consent_denied",
    "data_share_created",
    "data_share_revoked",
    "calendar_feed_renewed",
    "calendar_feed_revoked",
    "user_added",
    "user_disabled",
    "user_enabled",
    "bot_changed",
    "feedback_changed",
    "imported",
    "purged",
]
KINDS: tuple[str, ...] = get_args(Kind)
MISUSES: tuple[Kind, ...] = ("refresh_token_reused", "code_reused")  # of what was copied; they end a login
OPERATOR, SERVICE = "operator", "service"  # who acts where no user does: at the command line, and by itself

_HEAD = re.compile(r"(0|[1-9][0-9]{0,18}):([0-9a-f]{64})", re.ASCII)


class Broken(Exception):
    """The ledger is not as it was written; the text names the first entry that does not fit."""


class Head(NamedTuple):
    """Which entry is the last, and its hash; written `NUMBER:HASH`."""

    position: int = 0
    hash: str = "0" * 64

    def __str__(self) -> str:
        return f"{self.position}:{self.hash}"

    @classmethod
    def read(cls, text: str) -> "Head":
        """What somebody has noted. Raises ValueError."""
        found = _HEAD.fullmatch(text)
        if not found:
            raise ValueError("expected NUMBER:HASH, as `ledger verify` prints it")
        return cls(int(found[1]), found[2])

    def followed_by(self, *texts: str) -> "Head":
        """The head after one more entry, whose columns but position and hash are `texts`."""
        hashed = msgspec.json.encode((self.hash, self.position + 1, *texts))
        return Head(self.position + 1, hashlib.sha256(hashed).hexdigest())


BEGINNING = Head()


class Ledger(Table):
    """An entry. It refers to nothing, since it outlives everything."""

    position = Integer(primary_key=True)
    created_at = Timestamp(leaves=NEVER)  # never before that of the entry before
    kind = Text(leaves=NEVER)
    actor_id = Text(leaves=NEVER)  # a user, or OPERATOR or SERVICE
    subject_id = Text(leaves=NEVER)  # whose login, account, grant or feedback it is; of other things, their own
    details = Text(leaves=NEVER)  # a JSON object, its members sorted
    hash = Text(leaves=NEVER)

    @classmethod
    def record(cls, kind: Kind, actor_id: str, subject_id: str, **details: Any) -> None:
        """Append an entry, inside the write of the act that it tells of; details that are None are left out.

        Call it last, and take nothing after it that others may hold: the ledger's lock is everybody's and is held until
        the commit, and nobody who holds it must wait for anybody. Nothing secret belongs into the details, and no
        words of people's.
        """
        if not database.in_transaction():
            raise RuntimeError(f"{kind}: an entry of the ledger belongs into the write of its act")
        told = {name: value for name, value in details.items() if value is not None}
        text = msgspec.json.encode(told, order="sorted").decode()
        with write("ledger"):
            last = cls.select(cls.position, cls.hash, cls.created_at).order_by(cls.position.desc()).tuples().first()
            position, hash, then = last or (*BEGINNING, "")
            texts = (max(then, clock.timestamp()), kind, actor_id, subject_id, text)
            columns = cls._meta.sorted_fields
            head = Head(position, hash).followed_by(*texts)
            cls.insert_many([(head.position, *texts, head.hash)], columns).execute()

    @classmethod
    def verify(cls, noted: Head = BEGINNING) -> Head:
        """Read every entry; the last of them. Raises Broken, also where `noted` is none of them."""
        last = BEGINNING
        with contextlib.closing(cls._chain()) as chain:
            for last in chain:
                if last.position == noted.position and last != noted:
                    raise Broken(f"entry {noted.position} is not the one that was noted: the ledger was written anew")
        if last.position < noted.position:
            raise Broken(f"entry {last.position + 1} is missing, and all up to {noted.position}, which was noted")
        return last

    @classmethod
    def _chain(cls) -> Generator[Head]:
        """The head before the first entry and after each. Raises Broken at the first that does not fit."""
        select = f"SELECT {', '.join(column.sql for column in cls._meta.sorted_fields)} FROM ledger"
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
        # Drivers read ahead; one by one, the entry that cannot be read has a number.
        with contextlib.suppress(peewee.DatabaseError), exceptions:
            while row := database.execute_sql(f"{select} WHERE position = {last.position + 1}").fetchone():
                last = _next(last, row)
                yield last
        raise Broken(f"entry {last.position + 1} cannot be read: {reason}")


def _next(last: Head, row: tuple[Any, ...]) -> Head:
    """The head after a row, if that follows. Raises Broken."""
    position, *texts, hash = row
    if position != last.position + 1:
        raise Broken(f"entry {last.position + 1} is missing: entry {position} stands in its place")
    head = last.followed_by(*texts)
    if hash != head.hash or any(type(text) is not str for text in texts):  # bytes are hashed as the text for them
        raise Broken(f"entry {position} is not what was written")
    return head
