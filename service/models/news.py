"""When something last changed, for those who wait for news of it."""

from typing import Any, ClassVar

import peewee

from service import clock
from service.db import prepared


class Newsworthy:
    """A table whose `news_at` is the moment of the newest change, in milliseconds; 0 where nothing ever changed."""

    moments: ClassVar[tuple[str, ...]] = ("news_at",)  # what a change sets; a private one only the first

    @classmethod
    def newest(cls) -> int:
        """The moment of the newest change of all."""
        return int(_newest(table=cls).value() or 0)

    @classmethod
    def next_moment(cls, now: Any) -> Any:
        """The moment of a change, as SQL: now, in milliseconds, but later than every other that can be seen."""
        table: Any = cls
        other = table.alias("other")
        later = peewee.fn.coalesce(other.select(peewee.fn.max(other.news_at)), 0) + 1
        return peewee.Case(None, [(later > now, later)], now)

    @classmethod
    def news(cls, now: Any, *, is_private: bool = False) -> dict[str, Any]:
        """The columns that say that something changes now."""
        return dict.fromkeys(cls.moments[:1] if is_private else cls.moments, cls.next_moment(now))

    @classmethod
    def touch(cls, id: str, *, is_private: bool = False) -> None:
        """Something has changed in a row; inside the write that changes it."""
        _touched(id, clock.now(), table=cls, is_private=is_private).run()

    @classmethod
    def telling(cls, which: Any, now: Any, *, is_private: bool = False) -> Any:
        """What says that something changes now in the rows of a condition; for the write that changes it."""
        table: Any = cls
        return table.update(cls.news(now, is_private=is_private)).where(which)

    @classmethod
    def with_news_since(cls, moment: int, *columns: Any) -> list[tuple[Any, ...]]:
        """The columns of all rows that changed at a moment or later, and when."""
        return _with_news(max(1, moment), table=cls, columns=columns).rows()


@prepared
def _touched(id: str, now: int, *, table: Any, is_private: bool) -> Any:
    return table.telling(table.id == id, now, is_private=is_private)


@prepared
def _newest(*, table: Any) -> Any:
    return table.select(peewee.fn.max(table.news_at))


@prepared
def _with_news(moment: int, *, table: Any, columns: tuple[Any, ...]) -> Any:
    return table.select(*columns, table.news_at).where(table.news_at >= moment)
