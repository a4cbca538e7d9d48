"""Canned replies: texts that the staff of an app inserts into messages by a shortcut."""

from typing import Self

import peewee
from msgspec import Raw

from service import clock, validators
from service.db import Order, Page, Position, Table, page, render, write
from service.errors import CannedReplyExists, CannedReplyLimitReached, CannedReplyNotFound
from service.fields import Identifier, SqlValue, Text, Timestamp, reference
from service.models.apps import App
from service.models.callers import Caller

LIMIT = 1_000  # canned replies of an app; an import may add more


def check_shortcut(text: str) -> str:
    """Return a shortcut without case. Raises ValueError for white space and control characters."""
    if not text.isprintable() or any(character.isspace() for character in text):
        raise ValueError("expected a text without white space")
    return validators.fold(text)


class CannedReply(Table):
    """A canned reply of an app."""

    get_for_errors = (CannedReplyNotFound,)
    id = Identifier(primary_key=True, default=clock.uuid)
    app_id = reference("app")
    shortcut = Text(64, min_length=1, validator=check_shortcut, default=None)
    language = Text(64, validator=validators.language_tag)
    text = Text(10_000, min_length=1, default=None)
    created_at = Timestamp(default=clock.timestamp)
    updated_at = Timestamp(default=clock.timestamp)

    @classmethod
    def get_for(cls, caller: Caller, id: str, *above: Table) -> Self:
        """Return a canned reply of the app above it. Raises CannedReplyNotFound."""
        reply = cls.find(id)
        app = above[-1]
        if reply is None or not isinstance(app, App) or reply.app_id != app.id:
            raise CannedReplyNotFound
        return reply

    @classmethod
    def page_of(cls, app_id: str, prefix: str, after: Position, limit: int) -> "Page[CannedReply]":
        """Return a page of an app's canned replies by shortcut: those whose shortcut begins with a text."""
        own = cls.select().where(cls.app_id == app_id)
        folded = validators.fold(prefix)
        if folded:
            own = own.where(peewee.fn.substr(cls.shortcut, 1, len(folded)) == folded)
        return page(own, [Order(cls.shortcut), Order(cls.id)], after, limit)

    @classmethod
    def add(cls, app_id: str, columns: dict[str, SqlValue]) -> Raw:
        """Create a canned reply. Return it, rendered. Raises CannedReplyLimitReached or CannedReplyExists."""
        now = clock.timestamp()
        reply = cls(app_id=app_id, created_at=now, updated_at=now, **columns)
        with write(app_id):
            if cls.select().where(cls.app_id == app_id).limit(LIMIT).count() >= LIMIT:
                raise CannedReplyLimitReached
            reply._require_unique()
            reply.save(force_insert=True)
            return render(cls, reply.id)

    def edit(self, columns: dict[str, SqlValue]) -> Raw:
        """Set columns. Return the canned reply, rendered. Raises CannedReplyNotFound or CannedReplyExists."""
        with write(self.app_id):
            reply = CannedReply.find(self.id)
            if reply is None:  # deleted concurrently
                raise CannedReplyNotFound
            changed = {name: value for name, value in columns.items() if value != getattr(reply, name)}
            if changed:
                for name, value in {**changed, "updated_at": clock.timestamp()}.items():
                    setattr(reply, name, value)
                reply._require_unique()
                reply.save()
            return render(CannedReply, self.id)

    def remove(self) -> None:
        """Delete the canned reply. Raises CannedReplyNotFound if it was deleted concurrently."""
        with write(self.app_id):
            if not CannedReply.delete().where(CannedReply.id == self.id).execute():
                raise CannedReplyNotFound

    def _require_unique(self) -> None:
        """Raise CannedReplyExists if the app has another one with the same shortcut and language."""
        same = (CannedReply.app_id == self.app_id) & (CannedReply.shortcut == self.shortcut)
        same &= (CannedReply.language == self.language) & (CannedReply.id != self.id)
        if CannedReply.select().where(same).exists():
            raise CannedReplyExists

    class Meta:
        indexes = ((("app_id", "shortcut", "id"), False),)
