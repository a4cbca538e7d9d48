"""Tables of tasks that workers claim for a limited time."""

from collections.abc import Iterable
from typing import Any, Self, TypeAlias

import peewee

from service import clock
from service.fields import SqlValue, primary_key

# A table that is Leased: Python has no type for both (an intersection).
Leasing: TypeAlias = Any


class Leased:
    """A table of tasks with `attempts`, the number that were started, and `due_at`, in ms.

    A worker claims a task by postponing `due_at`; if the row still exists at that time, another worker may claim it.
    """

    attempts: SqlValue
    due_at: SqlValue

    @classmethod
    def claim_first(cls, candidates: "Iterable[Self]", lease: int, **columns: object) -> "Self | None":
        """Claim the first candidate that no other worker has claimed meanwhile, for `lease` ms. Return it, or None."""
        for task in candidates:
            if task.set_due_at(clock.now() + lease, attempts=cls.attempts + 1, **columns):
                task.attempts += 1
                return task
        return None

    def postpone(self, milliseconds: int, **columns: object) -> None:
        """Release a claimed task; it is due again after `milliseconds`."""
        self.set_due_at(clock.now() + milliseconds, **columns)

    def set_due_at(self, due_at: int, **columns: object) -> bool:
        """Set when the task is due, and other columns, unless another worker has changed it. Return whether it was."""
        table: Leasing = type(self)
        unchanged = self._has_key() & (table.due_at == self.due_at)
        changed = table.update(due_at=due_at, **columns).where(unchanged).execute()
        self.due_at = due_at
        return bool(changed)

    def remove(self) -> bool:
        """Delete the row. Return whether it still existed."""
        table: Leasing = type(self)
        return bool(table.delete().where(self._has_key()).execute())

    def _has_key(self) -> peewee.Expression:
        """Return the condition that a row is this one."""
        table: Leasing = type(self)
        key = primary_key(table)
        found: peewee.Expression = key == getattr(self, key.name)
        return found
