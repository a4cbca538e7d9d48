"""Classifies the error codes of PostgreSQL (https://www.postgresql.org/docs/current/errcodes-appendix.html)."""

import re

import peewee

CONFLICTS = ("40001", "40P01")  # serialization_failure, also a conflict with recovery on a replica; deadlock_detected
UNAVAILABLE = re.compile(r"08...|25006|25P0[34]|40001|40P01|53...|55000|55P03|57014|57P0.|58...|XX00[12]")


def is_unavailable(error: BaseException | None) -> bool:
    """Return whether the server is unreachable, out of connections, full, read-only, damaged, or busy too long."""
    code = _sqlstate(error)
    return UNAVAILABLE.fullmatch(code) is not None if code else isinstance(error, peewee.OperationalError)


def is_conflict(error: BaseException) -> bool:
    """Return whether the transaction was rolled back because it conflicted with another."""
    return _sqlstate(error) in CONFLICTS


def _sqlstate(error: BaseException | None) -> str:
    """Return the SQLSTATE of an error; empty without one."""
    original = getattr(error, "orig", error)  # the error of the driver, where Peewee has wrapped it
    return getattr(original, "sqlstate", None) or ""
