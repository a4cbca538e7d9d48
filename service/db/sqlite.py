"""SQLite: the one file in the data folder."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import peewee

from service.db.engine import Engine, Order, Unusable

# Through Peewee only: two SQLite libraries that open one file in one process would drop each other's locks.
sqlite3 = peewee.sqlite3  # type: ignore[attr-defined]

FILE_NAME = "service.db"

# Order matters: nothing that touches the file comes before the busy timeout, which `timeout=` sets.
PRAGMAS = (
    ("journal_mode", "wal"),
    ("synchronous", "full"),  # an answered write survives a power cut
    ("foreign_keys", 1),
    ("journal_size_limit", 64 * 1024 * 1024),
    ("trusted_schema", 0),
    ("cell_size_check", 1),
)


def has_wal_reset_bug(version: tuple[int, ...]) -> bool:
    """Whether this SQLite can corrupt a database that two connections write to (sqlite.org/wal.html#walresetbug)."""
    mended = {(3, 44): 6, (3, 50): 7}
    return version < (3, 51, 3) and version[2] < mended.get((version[0], version[1]), version[2] + 1)


class Sqlite(Engine, peewee.SqliteDatabase):
    """One file. Whoever writes holds its one write lock, whatever is written."""

    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        path = folder / FILE_NAME
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise Unusable(f"cannot write the data folder {folder}: {error.strerror}") from None
        self.name = str(path)
        # Connections are opened by each thread at its first use, so never before a fork.
        super().__init__(str(path), pragmas=PRAGMAS, timeout=5, lock_type="IMMEDIATE")

    @contextmanager
    def write(self, *things: str) -> Iterator[None]:
        try:
            with self.atomic():
                yield
        except peewee.OperationalError as error:
            if "readonly" in str(error) and not self.in_transaction():
                self.disconnect()  # it was opened while the disk was read-only, and would stay so when it no longer is
            raise

    @contextmanager
    def bulk_write(self) -> Iterator[None]:
        """SQLite would look through all children whenever a parent comes after one of them, and write pages early."""
        normal = {name: self.execute_sql(f"PRAGMA {name}").fetchone()[0] for name in ("foreign_keys", "cache_size")}
        self.execute_sql("PRAGMA foreign_keys = 0")
        self.execute_sql("PRAGMA cache_size = -65536")  # 64 MiB
        try:
            with self.write():
                yield
        finally:
            for name, value in normal.items():
                self.execute_sql(f"PRAGMA {name} = {value}")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with self.atomic("DEFERRED"):
            yield

    def is_unavailable(self, error: BaseException | None) -> bool:
        """Locked, full, read-only or unreadable."""
        if not isinstance(error, peewee.OperationalError):
            return False
        taken_back = ("no transaction is active", "no such savepoint")  # by SQLite itself, before Peewee tried; see why
        if any(words in str(error) for words in taken_back):
            return self.is_unavailable(error.__context__ and error.__context__.__context__)
        words = ("locked", "busy", "full", "readonly", "unable to open", "disk i/o")
        return any(word in str(error).lower() for word in words)

    def join_rows(self, parts: Sequence[str], order: Sequence[Order], limit: int) -> str:
        rows = parts[0]
        if len(parts) > 1:
            rows = " UNION ALL ".join(f"SELECT * FROM ({part}) AS part" for part in parts) + f" LIMIT {limit}"
        return f"SELECT count(*), group_concat(\"row\", ',\n') FROM ({rows}) AS page"

    def contains(self, column: Any, text: str) -> Any:
        return peewee.fn.instr(column, text) > 0

    def state(self) -> Any:
        return self.execute_sql("PRAGMA data_version").fetchone()

    def stream(self, sql: str) -> Iterator[tuple[Any, ...]]:
        return iter(self.execute_sql(sql))

    def sizes(self) -> dict[str, int]:
        path = Path(self.database)
        journal = path.with_name(f"{path.name}-wal")
        disk = os.statvfs(path.parent)
        return {
            "database": path.stat().st_size,
            "journal": journal.stat().st_size if journal.exists() else 0,
            "free": disk.f_bavail * disk.f_frsize,
        }

    def identity(self) -> tuple[Any, ...]:
        return tuple(self.execute_sql("PRAGMA database_list").fetchone())

    def rewrite(self) -> None:
        self.execute_sql("VACUUM")
        busy, *_ = self.execute_sql("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise Unusable("the journal is in use and still holds old bytes: run this again when it is quieter")

    def disconnect(self) -> None:
        if not self.is_closed():
            self.close()
