"""Change tracking: the revision of a row is the time of its last change, for long polling and conditional requests."""

from typing import Any, ClassVar, TypeAlias

import peewee

from service import clock
from service.db import Query, Row, compiled
from service.fields import Column, SqlValue

# A table that is ChangeTracked: Python has no type for both (an intersection).
Tracked: TypeAlias = Any


class ChangeTracked:
    """A table whose column `revision` is the time of a row's last change in ms, 0 before the first.

    Revisions increase over the whole table: each is later than every revision visible to the transaction that sets it.
    """

    revision_columns: ClassVar[tuple[str, ...]] = ("revision",)  # a private change sets only the first

    @classmethod
    def latest_revision(cls) -> int:
        """Return the highest revision in the table."""
        return int(_latest_revision(table=cls).value() or 0)

    @classmethod
    def next_revision(cls, now: SqlValue) -> peewee.ColumnBase:
        """Return a new revision as SQL: `now` in ms, or one more than the highest revision if that is later."""
        table: Tracked = cls
        other = table.alias("other")
        later = peewee.fn.coalesce(other.select(peewee.fn.max(other.revision)), 0) + 1
        return peewee.Case(None, [(later > now, later)], now)

    @classmethod
    def changes(cls, now: SqlValue, *, is_private: bool = False) -> dict[str, SqlValue]:
        """Return the values of the revision columns for a change at `now`."""
        columns = cls.revision_columns[:1] if is_private else cls.revision_columns
        return dict.fromkeys(columns, cls.next_revision(now))

    @classmethod
    def mark_changed(cls, id: str, *, is_private: bool = False) -> None:
        """Set a new revision of a row, inside the write that changes it."""
        _mark_changed(id, clock.now(), table=cls, is_private=is_private).run()

    @classmethod
    def marking_query(cls, condition: peewee.Expression, now: SqlValue, *, is_private: bool = False) -> Query:
        """Return the UPDATE that sets a new revision of all rows that match a condition."""
        table: Tracked = cls
        query: Query = table.update(cls.changes(now, is_private=is_private)).where(condition)
        return query

    @classmethod
    def changed_since(cls, revision: int, *columns: Column) -> list[Row]:
        """Return the columns, and last the revision, of all rows with this revision or a later one."""
        return _changed_since(max(1, revision), table=cls, columns=columns).rows()


@compiled
def _mark_changed(id: str, now: int, *, table: Tracked, is_private: bool) -> Query:
    query: Query = table.marking_query(table.id == id, now, is_private=is_private)
    return query


@compiled
def _latest_revision(*, table: Tracked) -> Query:
    query: Query = table.select(peewee.fn.max(table.revision))
    return query


@compiled
def _changed_since(revision: int, *, table: Tracked, columns: tuple[Column, ...]) -> Query:
    query: Query = table.select(*columns, table.revision).where(table.revision >= revision)
    return query
