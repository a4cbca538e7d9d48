"""Configures the lookaside memory of SQLite, which serves small allocations (sqlite.org/malloc.html, section 3).

By default it is so small that six prepared statements fill it; then every statement takes a quarter longer.
"""

import contextlib
import ctypes
import importlib
import sys
from types import ModuleType

SQLITE_CONFIG_MEMSTATUS, SQLITE_CONFIG_LOOKASIDE = 9, 13  # as in sqlite3.h
SLOT_BYTES, SLOTS = 512, 1000  # for each connection


def enlarge_lookaside(sqlite3: ModuleType) -> bool:
    """Give each connection memory for a hundred prepared statements. Returns whether that succeeded.

    Must be called before the first connection, because the library is shut down to be configured. Done only for a
    library that is bundled with its Python module, so no other code uses it, and only on Linux, where variadic C
    functions are called like others.
    """
    with contextlib.suppress(ImportError, OSError, AttributeError, TypeError):
        if sys.platform == "linux":
            library = ctypes.CDLL(importlib.import_module(f"{sqlite3.__package__}._sqlite3").__file__)
            library.sqlite3_shutdown()
            error = library.sqlite3_config(SQLITE_CONFIG_LOOKASIDE, SLOT_BYTES, SLOTS)
            error = error or library.sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0)
            return not (library.sqlite3_initialize() or error)
    return False
