"""What the error codes of PostgreSQL mean to us (https://www.postgresql.org/docs/current/errcodes-appendix.html)."""

import re

import peewee

CONFLICTS = ("40001", "40P01")  # serialization_failure, also of a standby that had to go on; deadlock_detected
UNAVAILABLE = re.compile(r"08...|25006|25P0[34]|40001|40P01|53...|55000|55P03|57014|57P0.|58...|XX00[12]")


def is_unavailable(error: BaseException | None) -> bool:
    """Not reachable, out of connections, full, read-only, unreadable, damaged, or busy for too long."""
    state = _state_of(error)
    return UNAVAILABLE.fullmatch(state) is not None if state else isinstance(error, peewee.OperationalError)


def is_conflict(error: BaseException) -> bool:
    """The transaction was undone since it crossed another."""
    return _state_of(error) in CONFLICTS


def _state_of(error: BaseException | None) -> str:
    """The SQLSTATE of an error of ours."""
    original = getattr(error, "orig", error)  # the driver's, where Peewee has made it its own
    return getattr(original, "sqlstate", None) or ""
