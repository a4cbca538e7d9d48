"""Measures the processor time between two statements of a transaction."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from service.db import Sqlite


class Interval(NamedTuple):
    """Processor time between two statements of a transaction."""

    seconds: float
    before: str
    after: str


class Meter:
    """Records all intervals in this process. A request runs in one thread."""

    def __init__(self) -> None:
        self.intervals: list[Interval] = []
        self._since, self._before = 0.0, ""

    def start(self, statement: str) -> None:
        self._since, self._before = time.thread_time(), statement

    def stop(self, statement: str) -> None:
        if self._before:
            self.intervals.append(Interval(time.thread_time() - self._since, self._before, statement))
        self._before = ""

    def longest(self) -> Interval:
        """The longest interval since the last call."""
        found, self.intervals = self.intervals, []
        return max(found, default=Interval(0.0, "", ""))


@contextlib.contextmanager
def measured() -> Iterator[Meter]:
    """Measure all transactions on SQLite until the end of the block."""
    meter, originals = Meter(), {name: getattr(Sqlite, name) for name in ("begin", "commit", "rollback", "execute_sql")}

    def begin(self: Any, *arguments: Any) -> None:
        originals["begin"](self, *arguments)
        meter.start("BEGIN")

    def commit(self: Any) -> Any:
        meter.stop("COMMIT")
        return originals["commit"](self)

    def rollback(self: Any) -> Any:
        meter.stop("ROLLBACK")
        return originals["rollback"](self)

    def execute_sql(self: Any, sql: str, params: Any = None) -> Any:
        meter.stop(sql)
        try:
            return originals["execute_sql"](self, sql, params)
        finally:
            if self.in_transaction():
                meter.start(sql)

    try:
        for replacement in (begin, commit, rollback, execute_sql):
            setattr(Sqlite, replacement.__name__, replacement)
        yield meter
    finally:
        for name, original in originals.items():
            setattr(Sqlite, name, original)
