"""SQLite: the one file in the data folder."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import Any

import peewee

from service.db import trigrams
from service.db.engine import (
    Engine,
    NeedsThread,
    Order,
    Rows,
    TransactionLost,
    Unusable,
    exceptions,
    page_bytes,
    reason,
)
from service.db.files import PRIVATE, Hold, create, put_in_place
from service.db.memory import give_room
from service.db.time_budget import TimeBudget
from service.db.turns import turns

# Through Peewee only: two SQLite libraries that open one file in one process would drop each other's locks.
sqlite3 = peewee.sqlite3  # type: ignore[attr-defined]
give_room(sqlite3)

log = logging.getLogger("cx.server")

FILE_NAME = "service.db"
BRIEFLY = 1.0  # seconds in which several requests wait for other programs, before each waits for itself
LOOK = 0.005  # seconds between two looks whether they have
STEPS = 20_000  # of SQLite's machine between two looks at the time: a fraction of a millisecond
UNAVAILABLE = (  # in what SQLite says when the storage, or the lock on it, is at fault and not the statement
    *("locked", "busy", "full", "readonly", "unable to open", "disk i/o", "locking protocol"),
    *("disk image is malformed", "malformed database schema", "not a database", "corruption"),
)
# Of these, the errors after which a connection may hold what is not, or no longer, in the file.
MISLEADING = ("readonly", "disk i/o", "disk image is malformed", "malformed database schema", "not a database")
READS = ("SELECT ", "BEGIN DEFERRED")
INLINE_BYTES = 1024 * 1024  # of a page that the thread of the server reads
ROWS = 500  # of a statement that inserts many: it takes 32,766 values

# Order matters: nothing that touches the file comes before the busy timeout, which `timeout=` sets.
PRAGMAS = (
    ("journal_mode", "wal"),
    ("synchronous", "full"),  # an answered write survives a power cut
    ("foreign_keys", 1),
    ("journal_size_limit", 64 * 1024 * 1024),
    ("trusted_schema", 0),
    ("cell_size_check", 1),
)


class Missing(Unusable):
    """A folder has no database, or does not exist."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"there is no database in {folder}")


def has_wal_reset_bug(version: tuple[int, ...]) -> bool:
    """Whether this SQLite can corrupt a database that two connections write to (sqlite.org/wal.html#walresetbug)."""
    mended = {(3, 44): 6, (3, 50): 7}
    return version < (3, 51, 3) and version[2] < mended.get((version[0], version[1]), version[2] + 1)


def kept_copies(folder: Path) -> list[Path]:
    """The earlier databases that were kept in a folder when a backup was restored or the schema changed."""
    return sorted(path for what in ("before", "schema") for path in folder.glob(f"{FILE_NAME}.{what}-*"))


class _Here(threading.local):
    """What is known of this thread's connection."""

    is_misled = False  # so it is reopened before its next statement outside a transaction


def hold(folder: Path) -> Hold:
    """A share in a data folder. Raises Unusable while a backup is being restored into it, and OSError."""
    try:
        return Hold(folder)
    except BlockingIOError:
        raise Unusable(f"a backup is being restored into {folder}: wait until that has ended") from None


class Sqlite(Engine, peewee.SqliteDatabase):
    """One file. Whoever writes holds its one write lock, whatever is written."""

    kind = "sqlite"
    text_aggregate = "group_concat"
    reads_inline = groups_writes = True  # in WAL mode, readers wait for no writer
    _budget = TimeBudget()
    _here = _Here()
    _state: Any  # of Peewee: the connection of this thread, and its transactions

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        path = folder / FILE_NAME
        try:
            if create:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._hold = hold(folder)  # before the file is made: one that is just being restored is not there yet
            os.close(os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), PRIVATE))
        except OSError as error:
            if isinstance(error, FileNotFoundError | NotADirectoryError) and not create:
                raise Missing(folder) from None
            raise Unusable(f"cannot write the data folder {folder}: {error.strerror}") from None
        self.name = str(path)
        # Connections are opened by each thread at its first use, so never before a fork.
        super().__init__(str(path), pragmas=PRAGMAS, timeout=5, lock_type="IMMEDIATE")

    @contextmanager
    def write(self, *things: str) -> Iterator[None]:
        if self._budget.until:
            raise NeedsThread
        with nullcontext() if self.in_transaction() else turns.next_alone(), self._writing():
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with self.atomic():
                yield
                self._expect_transaction(self.connection())  # Peewee's commit of one that is lost seems to succeed
        except peewee.DatabaseError as error:
            self.distrust_after(error)
            raise

    def inline_read(self) -> AbstractContextManager[None]:
        return self._budget

    def is_reading_inline(self) -> bool:
        return bool(self._budget.until)

    @contextmanager
    def group_commit(self) -> Iterator[Callable[[], None]]:
        self.execute_sql("PRAGMA busy_timeout = 0")
        with turns.next(), ExitStack() as transaction:
            self._take_turn(transaction)
            yield lambda: self._expect_transaction(self.connection())

    def _take_turn(self, transaction: ExitStack) -> None:
        """Begin to write as soon as whoever asks for no turn lets us: SQLite itself would look more and more seldom."""
        until = time.monotonic() + BRIEFLY
        while True:
            try:
                transaction.enter_context(self._writing())
                return
            except peewee.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
            time.sleep(LOOK)

    def _connect(self) -> Any:
        connection = super()._connect()  # type: ignore[misc]
        connection.set_progress_handler(self._budget.is_spent, STEPS)  # what it stops fails with «interrupted»
        return connection

    def execute_sql(self, sql: str, params: Any = None) -> Any:
        if self._budget.until and not sql.startswith(READS):
            raise NeedsThread
        if self._here.is_misled and not self.in_transaction():
            self._here.is_misled = False
            self.disconnect()
        connection = self.connection()
        if self._state.transactions:
            self._expect_transaction(connection)
        try:
            with exceptions:  # without the debug log of Peewee, and its hooks, which nobody here asks for
                return connection.execute(sql, params or ())
        except peewee.DatabaseError as error:
            self.distrust_after(error)
            raise

    def _expect_transaction(self, connection: Any) -> None:
        """Raise TransactionLost if SQLite has rolled back the transaction that this thread is in.

        It may do so after an error of the disk; a later savepoint would begin, and commit, a transaction of its own.
        """
        if self._state.transactions and not connection.in_transaction:
            raise TransactionLost("SQLite has rolled the transaction back")

    def distrust_after(self, error: BaseException) -> None:
        """Reopen this thread's connection after its transaction if an error may last in it longer than on the disk.

        One that was opened on a read-only disk stays read-only, and pages that were read wrongly stay in its memory.
        """
        if self.is_unavailable(error) and any(words in str(error).lower() for words in MISLEADING):
            self._here.is_misled = True

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
        """Locked, full, read-only, unreadable or damaged. Fetching raises SQLite errors that Peewee does not wrap."""
        if error is None:
            return False
        operational = isinstance(error, peewee.OperationalError | sqlite3.OperationalError)
        if not operational and type(error) not in (peewee.DatabaseError, sqlite3.DatabaseError):
            return False
        if isinstance(error, TransactionLost):
            return True
        if "no transaction is active" in str(error):  # SQLite has rolled it back before Peewee tried to: see why
            return self.is_unavailable(error.__context__ and error.__context__.__context__)
        return any(words in str(error).lower() for words in UNAVAILABLE)

    def fill_in(self, form: str, values: Sequence[str]) -> str:
        """By printf, which takes half the time of joining."""
        return f"printf('{form}', {', '.join(values)})"

    def join_rows(self, parts: Sequence[str], order: Sequence[Order]) -> str:
        """A row that has more bytes than its share of a page ends the statement, for there is no way to end it early.

        A running total of the bytes would make every page take twice as long.
        """
        size = 'length(CAST("row" AS BLOB))'
        guarded = f'CASE WHEN {size} > ? THEN abs(-9223372036854775807 - ({size} > 0)) ELSE "row" END'
        return f"SELECT count(*), CAST(group_concat({guarded}, ',\n') AS BLOB), count(*) FROM ({_all(parts)}) AS page"

    def byte_length(self, column: Any) -> Any:
        return peewee.fn.length(column.cast("BLOB"))  # which older libraries have no function of its own for

    def byte_limit(self, rows: int) -> int:
        return (INLINE_BYTES if self.is_reading_inline() else page_bytes(rows)) // rows

    def fetch_joined(self, sql: str, values: Sequence[Any]) -> Any:
        try:
            return super().fetch_joined(sql, values)
        except peewee.OperationalError as error:
            if str(error) != "integer overflow":
                raise
        if self.is_reading_inline():
            raise NeedsThread
        return None

    def fetch_each(self, parts: Sequence[str], order: Sequence[Order], values: Sequence[Any]) -> Rows:
        with closing(self.execute_sql(f'SELECT CAST("row" AS BLOB) FROM ({_all(parts)}) AS page', values)) as rows:
            for (row,) in rows:
                yield row

    def contains(self, column: Any, text: Any) -> Any:
        return peewee.fn.instr(column, text) > 0

    def clue(self, column: Any, text: str) -> str:
        return trigrams.clue(self, column, text)

    def among(self, table: Any, clue: Any) -> Any:
        return trigrams.among(table, clue)

    def fill(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], otherwise: str = "") -> None:
        """Where trigrams are kept, many rows to a statement: with each, FTS5 writes a part of its index."""
        if table.strip('"') not in trigrams.INDEXED:
            super().fill(table, columns, rows, otherwise)
            return
        into, marks = f"INSERT INTO {table} ({', '.join(columns)})", f"({', '.join('?' * len(columns))})"
        rows = iter(rows)
        while some := list(islice(rows, ROWS)):
            values = ", ".join([marks] * len(some))
            self.execute_sql(f"{into} VALUES {values} {otherwise}", list(chain.from_iterable(some)))

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

    def write_copy(self, path: Path) -> None:
        """Write all that is committed into a new file, without what was deleted; writers go on meanwhile.

        Not by SQLite's backup interface, which begins again whenever another process writes, and takes free pages along
        in which deleted rows can still be read.
        """
        create(path)
        with exceptions, closing(self._connect()) as connection:
            connection.set_progress_handler(lambda: None, 100_000)  # so that a signal is heeded before the end
            connection.execute("VACUUM INTO ?", (str(path),))

    def keep(self, suffix: str) -> None:
        path, unfinished = (Path(f"{self.name}.{more}") for more in (suffix, f"{suffix}.unfinished"))
        try:
            self.write_copy(unfinished)
            put_in_place(unfinished, path)
            log.info("the database as it was before its schema changes is kept as %s", path)
        except (OSError, peewee.DatabaseError) as error:
            unfinished.unlink(missing_ok=True)
            size = Path(self.name).stat().st_size
            raise Unusable(
                f"before its schema changes, {size:,} bytes of {self.name} would be kept as {path.name}, "
                f"but {reason(error)}: make room, or make a backup elsewhere and run `cx-service migrate --no-copy`"
            ) from None

    def disconnect(self) -> None:
        if not self.is_closed():
            self.close()


def _all(parts: Sequence[str]) -> str:
    """SQL for the rows of several parts of a page, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    return " UNION ALL ".join(f"SELECT * FROM ({part}) AS part" for part in parts) + " LIMIT ? + 0"


class ReadOnlySqlite(Sqlite):
    """The file, looked at without changing anything: also where nothing can be written, or it is no database."""

    def __init__(self, folder: Path) -> None:
        path = (folder / FILE_NAME).absolute()
        try:
            if not path.is_file():
                raise Missing(folder)
            self.name, self._hold = str(path), hold(folder)
        except OSError as error:
            raise Unusable(f"cannot read the data folder {folder}: {error.strerror}") from None
        # When nobody has it open, whoever looks would make a journal: SQLite is to take the file as it lies.
        self._is_at_rest = not self._is_open()
        how = "immutable=1" if self._is_at_rest else "mode=ro"
        pragmas = [("trusted_schema", 0), ("cell_size_check", 1)]
        peewee.SqliteDatabase.__init__(self, f"{path.as_uri()}?{how}", uri=True, pragmas=pragmas, timeout=5)

    def is_overtaken(self) -> bool:
        """Whether somebody else has opened it meanwhile, so that what was read may be neither old nor new."""
        return self._is_at_rest and self._is_open()

    def _is_open(self) -> bool:
        """Whether somebody has it open, or had and left something in the journal."""
        journal, shared = Path(f"{self.name}-wal"), Path(f"{self.name}-shm")
        return shared.exists() or (journal.exists() and journal.stat().st_size > 0)


class FleetingSqlite(Sqlite):
    """A database in memory, for one thread."""

    def __init__(self) -> None:
        self.name = ":memory:"
        peewee.SqliteDatabase.__init__(self, self.name, lock_type="IMMEDIATE")
