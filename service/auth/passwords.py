"""Password hashing: argon2id through passlib, with at most one hash per core at a time.

A hash takes tens of milliseconds and 19 MiB on purpose, so none is ever made inside a write.
"""

import functools
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from passlib.context import CryptContext

# Characters of a password that is set, by whichever way. One that was set before the rule keeps working.
SHORTEST = 8
LONGEST = 1024  # longer ones are refused before they cost anything

_slots = threading.BoundedSemaphore(max(1, os.cpu_count() or 1))


@functools.cache
def _context() -> "CryptContext":
    """OWASP's floor for argon2id: 19 MiB, two passes, one lane. Imported late: most commands never hash.

    Passlib hashes something for the first dummy check; that is done here, so that the first check of all takes as long
    for an address that is not known as for one that is.
    """
    from passlib.context import CryptContext

    parameters = {"type": "ID", "memory_cost": 19456, "time_cost": 2, "parallelism": 1}
    context = CryptContext(schemes=["argon2"], **{f"argon2__{name}": value for name, value in parameters.items()})
    context.dummy_verify()
    return context


def hash_password(password: str) -> str:
    """The hash to store. Raises ValueError for a password that is too short or too long."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise ValueError(f"a password has {SHORTEST} to {LONGEST} characters")
    with _slots:
        return str(_context().hash(password))


def is_right(password: str, stored_hash: str | None) -> bool:
    """Whether a password belongs to a hash; without a usable hash, the same work is done and the answer is no."""
    with _slots:
        if stored_hash and len(password) <= LONGEST:
            try:
                return bool(_context().verify(password, stored_hash))
            except ValueError:  # not a hash of ours
                pass
        _context().dummy_verify()
        return False
