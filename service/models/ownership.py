"""Rows that belong to one user."""

from typing import Any, ClassVar, Self, TypeAlias

from service.db import Table
from service.errors import ApiError, Forbidden, NotFound
from service.fields import SqlValue
from service.models.callers import Caller

# A table that is Owned: Python has no type for both (an intersection).
Owning: TypeAlias = Any


class Owned:
    """A table whose rows are accessible to the user in `user_id` only."""

    user_id: SqlValue
    # First the error for a row that does not exist.
    get_for_errors: ClassVar[tuple[type[NotFound], *tuple[type[ApiError], ...]]]

    @classmethod
    def get_for(cls, caller: Caller, id: str, *above: Table) -> Self:
        """Return the row, for its owner. Raises the first error of `get_for_errors`, or Forbidden."""
        table: Owning = cls
        row: Self | None = table.find(id)
        if row is None:
            raise cls.get_for_errors[0]
        row.require_access(caller)
        return row

    def require_access(self, caller: Caller) -> None:
        """Raise Forbidden for callers without access to the row."""
        self.require_owner(caller)

    def require_owner(self, caller: Caller) -> None:
        """Raise Forbidden for all callers but the owner."""
        if self.user_id != caller.id:
            raise Forbidden(not_found=self.get_for_errors[0])
