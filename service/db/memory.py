"""Memory that SQLite keeps for its small pieces, so that a statement need not ask the system for each of them.

A connection has room of its own for such pieces (sqlite.org/malloc.html, section 3), by default so little that half a
dozen prepared statements fill it; every statement then takes a quarter longer.
"""

import contextlib
import ctypes
import importlib
import sys
from types import ModuleType

MEMSTATUS, LOOKASIDE = 9, 13  # as sqlite3.h has them
SLOT, SLOTS = 512, 1000  # bytes; for each connection


def give_room(sqlite3: ModuleType) -> bool:
    """Let each connection have room for a hundred prepared statements; whether that could be arranged.

    Only for a library that comes along with its module, and so is nobody else's, and before its first connection: it is
    shut down for a moment. Only on Linux, where a function with any number of arguments is called like others.
    """
    with contextlib.suppress(ImportError, OSError, AttributeError, TypeError):
        if sys.platform == "linux":
            library = ctypes.CDLL(importlib.import_module(f"{sqlite3.__package__}._sqlite3").__file__)
            library.sqlite3_shutdown()
            refused = library.sqlite3_config(LOOKASIDE, SLOT, SLOTS) or library.sqlite3_config(MEMSTATUS, 0)
            return not (library.sqlite3_initialize() or refused)
    return False
