"""The SQLite engine: one file in the data folder."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from itertools import chain, islice
from pathlib import Path

import apsw
import peewee
from playhouse import apsw_ext

from service.db import trigrams
from service.db.engine import (
    Connection,
    Cursor,
    DatabaseUnusable,
    Engine,
    NeedsThread,
    Order,
    Result,
    Row,
    Rows,
    TransactionLost,
    exceptions,
    page_bytes,
    reason,
)
from service.db.files import PRIVATE, FolderLock, ServingLock, create, replace_durably
from service.db.time_budget import TimeBudget
from service.db.write_lock import write_lock

# Memory of each connection for small allocations (sqlite.org/malloc.html, section 3): enough for a hundred prepared
# statements. By default, six fill it, and every statement takes longer. The statistics would need a lock.
apsw.shutdown()
apsw.config(apsw.SQLITE_CONFIG_LOOKASIDE, 512, 1000)
apsw.config(apsw.SQLITE_CONFIG_MEMSTATUS, 0)
apsw.initialize()

log = logging.getLogger("cx.server")

FILE_NAME = "service.db"
GROUP_TIMEOUT = 1.0  # seconds that a group commit waits for other programs, before its requests run one by one
POLL_INTERVAL = 0.005  # seconds between the attempts of a group commit to begin
CHECKPOINT_PAGES = 1_000  # of the journal, from which on it is copied to the file; the default of SQLite
CHECKPOINT_PAUSE = 1.0  # seconds after a failure
PROGRESS_STEPS = 20_000  # virtual machine instructions between checks of the time budget: below a millisecond
REPORT_STEPS = 100_000  # the same between reports of the progress of a long statement: some milliseconds
SqliteError = apsw.Error
SqliteDamage = (apsw.CorruptError, apsw.NotADBError)
# Errors after which the state of a connection may differ from the file.
RECONNECT = (apsw.ReadOnlyError, apsw.IOError, *SqliteDamage)
# Errors that are caused by the storage or a lock, not by the statement.
UNAVAILABLE = (
    *RECONNECT,
    apsw.BusyError,
    apsw.LockedError,
    apsw.FullError,
    apsw.CantOpenError,
    apsw.ProtocolError,
    TransactionLost,
)
# Older versions can corrupt a file that several connections write to (sqlite.org/wal.html#walresetbug).
MINIMUM_VERSION = (3, 51, 3)
VERSION = apsw.sqlite_lib_version()
READS = ("SELECT ", "BEGIN DEFERRED")  # beginnings of the statements that are allowed inside `inline_read`
WRITES = ("INSERT ", "UPDATE ", "DELETE ")
INLINE_BYTES = 1024 * 1024  # maximum size of a page that is read on the event loop
ROWS = 500  # of an INSERT with many rows; SQLite binds at most 32,766 values

READ_PRAGMAS = (
    ("cell_size_check", 1),
    ("trusted_schema", 0),
    ("temp_store", "memory"),  # sorts of large pages and journals of statements would need temporary files
)
# The order matters: the busy timeout, which `timeout=` sets, comes before statements that access the file.
PRAGMAS = (
    ("journal_mode", "wal"),
    ("synchronous", "full"),  # a write survives a power failure once its response is sent
    ("foreign_keys", 1),
    ("journal_size_limit", 64 * 1024 * 1024),
    *READ_PRAGMAS,
)


class DatabaseMissing(DatabaseUnusable):
    """A folder does not exist or contains no database."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"there is no database in {folder}")


def open_file(file: str | Path, *, timeout: float = 0) -> apsw.Connection:
    """Open a file of SQLite in autocommit mode: a path, a URI, or "" for a temporary database. Raises SqliteError.

    All of the program must use this library: two libraries in a process would release each other's locks on a file.
    `timeout` is the time in seconds to wait for locks.
    """
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(str(file), flags=flags)
    connection.set_busy_timeout(int(timeout * 1000))
    return connection


def check_version(version: str = VERSION) -> None:
    """Raise DatabaseUnusable if the version of SQLite can corrupt a database."""
    if tuple(map(int, version.split("."))) < MINIMUM_VERSION:
        needed = ".".join(map(str, MINIMUM_VERSION))
        raise DatabaseUnusable(
            f"SQLite {version} can corrupt a database that has several connections: install the package apsw of PyPI, "
            f"which contains SQLite {needed} or newer"
        )


def saved_copies(folder: Path) -> list[Path]:
    """Return the copies of databases in a folder, saved before a backup was restored or the schema was changed."""
    return sorted(path for what in ("before", "schema") for path in folder.glob(f"{FILE_NAME}.{what}-*"))


class _ThreadState(threading.local):
    """The state of this thread's connection."""

    must_reconnect = False  # before the next statement outside a transaction


def lock_folder(folder: Path) -> FolderLock:
    """Return a shared lock on a data folder.

    Raises DatabaseUnusable while a backup is being restored into it, and OSError.
    """
    try:
        return FolderLock(folder)
    except BlockingIOError:
        raise DatabaseUnusable(f"a backup is being restored into {folder}: wait until it is complete") from None


def lock_for_serving(folder: Path, *, is_shared: bool) -> ServingLock:
    """Return the lock of a service on a data folder, which is created if it is missing. Raises DatabaseUnusable."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return ServingLock(folder, is_shared=is_shared)
    except BlockingIOError:
        raise DatabaseUnusable(
            f"another service serves the data folder {folder}: stop it, or start all of them with --share-folder"
        ) from None
    except OSError as error:
        raise DatabaseUnusable(f"cannot write the data folder {folder}: {error.strerror}") from None


class Sqlite(Engine, apsw_ext.APSWDatabase):  # type: ignore[misc]  # Peewee gives no types
    """A file. A writer excludes all other writers, regardless of names."""

    kind = "sqlite"
    text_aggregate = "group_concat"
    reads_inline = groups_writes = True  # in WAL mode, readers do not wait for writers
    _budget = TimeBudget()
    _thread = _ThreadState()
    _state: peewee._ConnectionLocal  # of Peewee: the connection of this thread, and its transactions
    _checkpoint_due: threading.Event | None = None  # None: commits checkpoint the journal

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        check_version()
        path = folder / FILE_NAME
        try:
            if create:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder_lock = lock_folder(folder)  # before the file is created: during a restore, it does not exist
            os.close(os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), PRIVATE))
        except OSError as error:
            if isinstance(error, FileNotFoundError | NotADirectoryError) and not create:
                raise DatabaseMissing(folder) from None
            raise DatabaseUnusable(f"cannot write the data folder {folder}: {error.strerror}") from None
        self.name = str(path)
        # Each thread opens its connection at its first use, so none is open during a fork.
        super().__init__(str(path), pragmas=PRAGMAS, timeout=5, lock_type="IMMEDIATE")

    def write(self, *names: str) -> AbstractContextManager[None]:
        if self._budget.until:
            raise NeedsThread
        return self._write() if self.in_transaction() else self._write_with_lock()

    @contextmanager
    def _write_with_lock(self) -> Iterator[None]:
        with write_lock.hold_for_request(), self._write():
            yield

    @contextmanager
    def _write(self) -> Iterator[None]:
        try:
            with self.atomic():
                yield
                self._require_transaction(self.connection())  # Peewee's commit of a lost transaction raises no error
        except peewee.DatabaseError as error:
            self.reconnect_after(error)
            raise

    def inline_read(self) -> AbstractContextManager[None]:
        return self._budget

    def is_reading_inline(self) -> bool:
        return bool(self._budget.until)

    @contextmanager
    def inline_snapshot(self) -> Iterator[None]:
        """Open a snapshot, as an optimization: SQLite may end it after an error, and a failure to begin it is ignored.

        Peewee does not see the transaction, so the connection can be reopened inside it.
        """
        with suppress(peewee.DatabaseError):
            self.execute_sql("BEGIN DEFERRED")
        try:
            yield
        finally:
            try:
                if self.connection().in_transaction:
                    self.execute_sql("COMMIT")
            except peewee.DatabaseError:
                self.disconnect()  # ends the transaction

    @contextmanager
    def group_commit(self) -> Iterator[Callable[[], None]]:
        self.execute_sql("PRAGMA busy_timeout = 0")
        with write_lock.hold(), ExitStack() as transaction:
            self._begin_write(transaction)
            yield lambda: self._require_transaction(self.connection())

    def _begin_write(self, transaction: ExitStack) -> None:
        """Begin a transaction as soon as other programs allow it. SQLite itself would poll at increasing intervals."""
        deadline = time.monotonic() + GROUP_TIMEOUT
        while True:
            try:
                transaction.enter_context(self._write())
                return
            except peewee.OperationalError as error:
                if not isinstance(_cause(error), apsw.BusyError) or time.monotonic() > deadline:
                    raise
            time.sleep(POLL_INTERVAL)

    @contextmanager
    def checkpointing(self) -> Iterator[None]:
        due, is_stopping = threading.Event(), threading.Event()

        def run() -> None:
            while due.wait() and not is_stopping.is_set():
                due.clear()
                try:
                    self._checkpoint()
                except Exception as error:
                    log.warning("the journal was not copied to the database: %s", error)
                    self.reconnect_after(error)
                    is_stopping.wait(CHECKPOINT_PAUSE)
            self.disconnect()

        thread = threading.Thread(target=run, name="checkpoint", daemon=True)
        thread.start()
        self._checkpoint_due = due
        try:
            yield
        finally:
            self._checkpoint_due = None
            is_stopping.set()
            due.set()
            thread.join()

    def _checkpoint(self) -> None:
        """Copy the journal to the file, so that the next writer restarts the journal."""
        if not self._copy_journal():
            with write_lock.hold():  # for what was written meanwhile, which is little
                self._copy_journal()

    def _copy_journal(self) -> bool:
        """Copy the part of the journal that no reader needs. Return whether it is copied, or another thread copies."""
        is_busy, pages, copied = self.execute_sql("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return bool(is_busy) or pages == copied

    def _note_commit(self, connection: Connection, name: str, pages: int) -> int:
        """Request a checkpoint when the journal has many pages."""
        if pages >= CHECKPOINT_PAGES and self._checkpoint_due:
            self._checkpoint_due.set()
        return apsw.SQLITE_OK

    def _connect(self) -> Connection:
        connection = super()._connect()
        if self._checkpoint_due:
            connection.set_wal_hook(self._note_commit)
        # Plans do not depend on bound values. Otherwise SQLite would plan many statements again at each execution.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.set_progress_handler(
            self._budget.is_spent, PROGRESS_STEPS
        )  # a statement that it stops fails with "interrupted"
        return connection

    def execute_sql(self, sql: str, params: Sequence[object] | None = None) -> Cursor:
        if self._budget.until and not sql.startswith(READS):
            raise NeedsThread
        if self._thread.must_reconnect and not self.in_transaction():
            self._thread.must_reconnect = False
            self.disconnect()
        state = self._state
        connection = self.connection() if state.closed else state.conn
        if state.transactions and not connection.in_transaction:
            self._require_transaction(connection)
        try:
            if not state.transactions and sql.startswith(WRITES):
                with write_lock.hold_for_request():  # a group commit that SQLite refused would sleep
                    return connection.execute(sql, params or ())
            return connection.execute(sql, params or ())  # without Peewee's debug log and hooks
        except apsw.Error as error:
            self.reconnect_after(error)
            with exceptions:
                raise

    def _require_transaction(self, connection: Connection) -> None:
        """Raise TransactionLost if SQLite has rolled back the transaction of this thread, as it may after a disk error.

        Otherwise, the next savepoint would begin, and commit, a separate transaction.
        """
        if self._state.transactions and not connection.in_transaction:
            raise TransactionLost("SQLite has rolled the transaction back")

    def reconnect_after(self, error: BaseException) -> None:
        """Reopen this thread's connection after its transaction if the effect of an error may persist in it.

        A connection opened on a read-only disk stays read-only, and incorrectly read pages stay in its cache.
        """
        if isinstance(_cause(error), RECONNECT):
            self._thread.must_reconnect = True

    @contextmanager
    def bulk_write(self) -> Iterator[None]:
        """Disable foreign keys: SQLite scans all children whenever a parent is inserted after one of them.

        The cache is larger, so that pages are not written before the end.
        """
        defaults = {name: self.execute_sql(f"PRAGMA {name}").fetchone()[0] for name in ("foreign_keys", "cache_size")}
        self.execute_sql("PRAGMA foreign_keys = 0")
        self.execute_sql("PRAGMA cache_size = -65536")  # 64 MiB
        try:
            with self.write():
                yield
        finally:
            for name, value in defaults.items():
                self.execute_sql(f"PRAGMA {name} = {value}")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with nullcontext() if self.connection().in_transaction else self.atomic("DEFERRED"):
            yield

    def is_unavailable(self, error: BaseException | None) -> bool:
        """Return whether the database is locked, full, read-only, unreadable or damaged.

        Fetching rows raises errors of SQLite that Peewee does not wrap.
        """
        if error and "no transaction is active" in str(error):  # SQLite has rolled back: check the original error
            return self.is_unavailable(error.__context__ and error.__context__.__context__)
        return isinstance(_cause(error), UNAVAILABLE)

    def format_sql(self, template: str, values: Sequence[str]) -> str:
        """With printf, which takes half the time of concatenation."""
        return f"printf('{template}', {', '.join(values)})"

    def join_rows(self, parts: Sequence[str], order: Sequence[Order]) -> str:
        """Return SQL that ends with an error at a row larger than its share of a page, because SQL cannot stop.

        A running total of the bytes would double the time of every page.
        """
        size = 'octet_length("row")'
        guarded = f'CASE WHEN {size} > ? THEN abs(-9223372036854775807 - ({size} > 0)) ELSE "row" END'
        return f"SELECT count(*), CAST(group_concat({guarded}, ',\n') AS BLOB), count(*) FROM ({_all(parts)}) AS page"

    def byte_length(self, column: peewee.Field) -> peewee.Node:
        return peewee.fn.octet_length(column)

    def byte_limit(self, rows: int) -> int:
        return (INLINE_BYTES if self.is_reading_inline() else page_bytes(rows)) // rows

    def fetch_joined(self, sql: str, values: Sequence[object]) -> Row:
        try:
            return super().fetch_joined(sql, values)
        except peewee.OperationalError as error:
            if str(error) != "integer overflow":
                raise
        if self.is_reading_inline():
            raise NeedsThread
        return None

    def fetch_each(self, parts: Sequence[str], order: Sequence[Order], values: Sequence[object]) -> Rows:
        with closing(self.execute_sql(f'SELECT CAST("row" AS BLOB) FROM ({_all(parts)}) AS page', values)) as rows:
            for (row,) in rows:
                yield row

    def contains(self, column: peewee.Node, text: object) -> peewee.Node:
        return peewee.fn.instr(column, text) > 0

    def read_matches(self, read: Callable[[str], Result], column: peewee.Field, text: str, *, covered: bool) -> Result:
        def read_within(steps: int) -> Result | None:
            connection = self.connection()
            calls = iter(range(steps // PROGRESS_STEPS - 1))
            is_spent = self._budget.is_spent
            connection.set_progress_handler(lambda: is_spent() or next(calls, None) is None, PROGRESS_STEPS)
            try:
                return read("")
            except peewee.OperationalError as error:
                if is_spent() or not isinstance(_cause(error), apsw.InterruptError):
                    raise
                return None
            finally:
                connection.set_progress_handler(is_spent, PROGRESS_STEPS)

        return trigrams.read_matches(read, read_within, self, column, text, covered=covered)

    def is_match(self, table: type[peewee.Model], expression: object) -> peewee.Node:
        return trigrams.is_match(table, expression)

    def bulk_insert(
        self, table: str, columns: Sequence[str], rows: Iterable[Sequence[object]], on_conflict: str = ""
    ) -> None:
        """With many rows in a statement if the table has a trigram index: FTS5 writes a segment for each statement."""
        if table.strip('"') not in trigrams.INDEXED:
            super().bulk_insert(table, columns, rows, on_conflict)
            return
        into, placeholders = f"INSERT INTO {table} ({', '.join(columns)})", f"({', '.join('?' * len(columns))})"
        rows = iter(rows)
        while batch := list(islice(rows, ROWS)):
            values = ", ".join([placeholders] * len(batch))
            self.execute_sql(f"{into} VALUES {values} {on_conflict}", list(chain.from_iterable(batch)))

    def change_marker(self) -> object:
        return self.execute_sql("PRAGMA data_version").fetchone()

    def stream(self, sql: str) -> Iterator[tuple[object, ...]]:
        try:
            yield from self.execute_sql(sql)
        except UnicodeDecodeError:
            raise peewee.DataError("a text is not valid UTF-8") from None

    def sizes(self) -> dict[str, int]:
        path = Path(self.name)
        journal = path.with_name(f"{path.name}-wal")
        disk = os.statvfs(path.parent)
        return {
            "database": path.stat().st_size,
            "journal": journal.stat().st_size if journal.exists() else 0,
            "free": disk.f_bavail * disk.f_frsize,
        }

    def identity(self) -> tuple[object, ...]:
        return tuple(self.execute_sql("PRAGMA database_list").fetchone())

    def migrating(self) -> AbstractContextManager[None]:
        return nullcontext() if self.in_transaction() else self._temporary_files()

    @contextmanager
    def _temporary_files(self) -> Iterator[None]:
        """Sort, journal and copy in temporary files: an index or a whole database may exceed the memory."""
        connection = self.connection()
        connection.execute("PRAGMA temp_store = file")
        try:
            yield
        finally:
            connection.execute("PRAGMA temp_store = memory")

    def rewrite(self) -> None:
        with self._temporary_files():
            self.execute_sql("VACUUM")
        busy, *_ = self.execute_sql("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise DatabaseUnusable(
                "the journal is in use and still contains deleted data: run this again when there is less load"
            )

    def write_copy(self, path: Path, advance: Callable[[int], None] = lambda written: None) -> None:
        """Write the committed data into a new file, without deleted rows. Writers are not blocked.

        `advance` is called with the number of bytes that were written since its last call.
        SQLite's backup API is not used: it restarts whenever another process writes, and copies free pages, in which
        deleted rows can still be read.
        """
        create(path)
        written = 0

        def report() -> bool:
            nonlocal written
            before, written = written, path.stat().st_size
            advance(written - before)
            return False

        with exceptions, closing(self._connect()) as connection:
            connection.set_progress_handler(report, REPORT_STEPS)  # signals are handled then, too
            connection.execute("VACUUM INTO ?", (str(path),))

    def save_copy(self, suffix: str) -> None:
        path, unfinished = (Path(f"{self.name}.{end}") for end in (suffix, f"{suffix}.unfinished"))
        try:
            self.write_copy(unfinished)
            replace_durably(unfinished, path)
            log.info("a copy of the database before its schema changes is saved as %s", path)
        except (OSError, peewee.DatabaseError) as error:
            unfinished.unlink(missing_ok=True)
            size = Path(self.name).stat().st_size
            raise DatabaseUnusable(
                f"cannot save a copy of {self.name} ({size:,} bytes) before its schema changes: {reason(error)}; "
                "free space, or make a backup elsewhere and run `cx-service migrate --no-copy`"
            ) from None

    def disconnect(self) -> None:
        if not self.is_closed():
            self.close()


@contextmanager
def reporting_reads(connection: Connection, advance: Callable[[int], None]) -> Iterator[None]:
    """In the block, `advance` is called with the number of bytes that the connection has read since its last call."""
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    read = 0

    def report() -> bool:
        nonlocal read
        before, read = read, connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)[0] * page_size
        advance(read - before)
        return False

    connection.set_progress_handler(report, REPORT_STEPS)
    try:
        yield
    finally:
        connection.set_progress_handler(None)


def _cause(error: BaseException | None) -> BaseException | None:
    """Return the error of SQLite that an error of Peewee wraps, also twice, or the error itself."""
    while isinstance(error, peewee.PeeweeException) and hasattr(error, "orig"):
        error = error.orig
    return error


def _all(parts: Sequence[str]) -> str:
    """Return SQL for the rows of all parts of a page, in order."""
    if len(parts) == 1:
        return parts[0]
    return " UNION ALL ".join(f"SELECT * FROM ({part}) AS part" for part in parts) + " LIMIT ? + 0"


class ReadOnlySqlite(Sqlite):
    """The file, opened without changing it. Also for read-only folders, and for files that are not a database."""

    def __init__(self, folder: Path) -> None:
        path = (folder / FILE_NAME).absolute()
        try:
            if not path.is_file():
                raise DatabaseMissing(folder)
            self.name, self._folder_lock = str(path), lock_folder(folder)
        except OSError as error:
            raise DatabaseUnusable(f"cannot read the data folder {folder}: {error.strerror}") from None
        # If no other process has the file open, SQLite would create a journal: with "immutable", it does not.
        self._is_immutable = not self._is_open()
        mode = "immutable=1" if self._is_immutable else "mode=ro"
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
        apsw_ext.APSWDatabase.__init__(self, f"{path.as_uri()}?{mode}", flags=flags, pragmas=READ_PRAGMAS, timeout=5)

    def is_outdated(self) -> bool:
        """Return whether another process has opened the file since, so that the data read may be inconsistent."""
        return self._is_immutable and self._is_open()

    def _is_open(self) -> bool:
        """Return whether another process has the file open, or has left data in the journal."""
        journal, shared = Path(f"{self.name}-wal"), Path(f"{self.name}-shm")
        return shared.exists() or (journal.exists() and journal.stat().st_size > 0)


class InMemorySqlite(Sqlite):
    """A database in memory, for a single thread."""

    def __init__(self) -> None:
        self.name = ":memory:"
        apsw_ext.APSWDatabase.__init__(self, self.name, lock_type="IMMEDIATE")
