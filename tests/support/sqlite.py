"""SQLite without synchronous commits, in the process of the tests: no test simulates a power failure here.

The programs that tests start commit synchronously, and `make torture` tests that no commit is lost.
"""

from service.db import sqlite

DURABLE_PRAGMAS = sqlite.PRAGMAS


def disable_synchronous_commits() -> None:
    """Let the commits of this process return before they are on the disk."""
    sqlite.PRAGMAS = tuple(  # type: ignore[assignment]  # mypy expects the same length
        (name, "off" if name == "synchronous" else value) for name, value in DURABLE_PRAGMAS
    )
