"""What a thread does between BEGIN and COMMIT: the processor time between two statements of a transaction."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from service.db import Sqlite


class Stretch(NamedTuple):
    """Processor time in a transaction without a statement."""

    seconds: float
    before: str
    after: str


class Meter:
    """Records every stretch of this process; a request has one thread."""

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []
        self._since, self._before = 0.0, ""

    def start(self, statement: str) -> None:
        self._since, self._before = time.thread_time(), statement

    def stop(self, statement: str) -> None:
        if self._before:
            self.stretches.append(Stretch(time.thread_time() - self._since, self._before, statement))
        self._before = ""

    def longest(self) -> Stretch:
        """The longest stretch since the last call."""
        found, self.stretches = self.stretches, []
        return max(found, default=Stretch(0.0, "", ""))


@contextlib.contextmanager
def metered() -> Iterator[Meter]:
    """A meter that sees all transactions on SQLite until the end of the block."""
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
