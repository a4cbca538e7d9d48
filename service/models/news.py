"""When something last changed, for those who wait for news of it."""

from typing import Any

import peewee

from service import clock


class Newsworthy:
    """A table whose `news_at` is the moment of the newest change, in milliseconds; 0 where nothing ever changed."""

    @classmethod
    def newest(cls) -> int:
        """The moment of the newest change of all."""
        table: Any = cls
        return int(table.select(peewee.fn.max(table.news_at)).scalar() or 0)

    @classmethod
    def next_moment(cls) -> Any:
        """The moment of a change, as SQL: now, but later than every other that can be seen."""
        table: Any = cls
        other = table.alias("other")
        later = peewee.fn.coalesce(other.select(peewee.fn.max(other.news_at)), 0) + 1
        now = clock.now()
        return peewee.Case(None, [(later > now, later)], now)

    @classmethod
    def touch(cls, which: Any) -> None:
        """Something has changed in the rows of a condition; inside the write that changes it."""
        table: Any = cls
        table.update(news_at=cls.next_moment()).where(which).execute()

    @classmethod
    def with_news_since(cls, moment: int, *columns: Any) -> list[tuple[Any, ...]]:
        """The columns of all rows that changed at a moment or later, and when."""
        table: Any = cls
        return list(table.select(*columns, table.news_at).where(table.news_at >= max(1, moment)).tuples())
