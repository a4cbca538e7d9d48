"""Password hashing: argon2id through passlib, with at most one hash per core at a time.

A hash takes tens of milliseconds and 19 MiB by design, so none is computed inside a write.
"""

import functools
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from passlib.context import CryptContext

# Length of a new password in characters. Shorter passwords that were set before this rule remain valid.
MIN_LENGTH = 8
MAX_LENGTH = 1024  # longer input is rejected before it is hashed

_slots = threading.BoundedSemaphore(max(1, os.cpu_count() or 1))


@functools.cache
def _context() -> "CryptContext":
    """Return the hashing context with OWASP's minimum for argon2id: 19 MiB, two passes, one lane.

    Passlib is imported late because most commands never hash. Its first dummy verification computes an extra hash; that
    is done here, so that the first login of a process takes the same time for unknown and known addresses.
    """
    from passlib.context import CryptContext

    parameters = {"type": "ID", "memory_cost": 19456, "time_cost": 2, "parallelism": 1}
    context = CryptContext(schemes=["argon2"], **{f"argon2__{name}": value for name, value in parameters.items()})
    context.dummy_verify()
    return context


def hash_password(password: str) -> str:
    """Return the hash to store. Raises ValueError for a password that is too short or too long."""
    if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        raise ValueError(f"a password has {MIN_LENGTH} to {MAX_LENGTH} characters")
    with _slots:
        return str(_context().hash(password))


def is_correct(password: str, stored_hash: str | None) -> bool:
    """Return whether a password matches a hash. Takes the same time without a usable hash, and returns False."""
    with _slots:
        if stored_hash and len(password) <= MAX_LENGTH:
            try:
                return bool(_context().verify(password, stored_hash))
            except ValueError:  # not an argon2 hash
                pass
        _context().dummy_verify()
        return False
