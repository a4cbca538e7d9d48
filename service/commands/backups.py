"""`backup` and `restore`: all data of the service as one file."""

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import BinaryIO, NoReturn

from service import db
from service.commands import Stop
from service.commands.progress import ProgressBar
from service.db import migrations
from service.db.engine import Engine
from service.operate import backups
from service.settings import Settings

BACKUP_EPILOG = """\
A backup holds all records, pictures, signing keys and login sessions. Keep it secret: it gives access to all accounts.
The file appears when it is complete and checked; the service may be running. The last line of the output has the format
of `sha256sum -c`.
"""
RESTORE_EPILOG = """\
Stop the service first. The backup is checked before anything is replaced, and the former database is saved as
service.db.before-…; for PostgreSQL, name an empty database. Login sessions that ended after the backup was made are
valid again. A backup with an older schema is migrated by the next `serve`.
"""


def add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    stream = "standard output" if name == "backup" else "standard input"
    parser.add_argument("file", metavar="FILE", help=f"the backup; - is {stream}")
    if name == "backup":
        parser.add_argument("--force", action="store_true", help="replace the file if it exists")
    parser.epilog = BACKUP_EPILOG if name == "backup" else RESTORE_EPILOG
    parser.set_defaults(run=back_up if name == "backup" else restore)


def back_up(flags: argparse.Namespace, settings: Settings) -> None:
    """Write a backup, and print a summary of its contents."""
    _exit_on_sigterm()
    is_stream = flags.file == "-"
    if is_stream and sys.stdout.isatty():
        raise Stop("refusing to write a backup to a terminal; name a file or pipe the output")
    target: Path | BinaryIO = sys.stdout.buffer if is_stream else Path(flags.file)
    start = time.monotonic()
    source = _open(settings)
    try:
        with source.disconnecting():
            contents = backups.back_up(source, target, ProgressBar, replace=flags.force)
    except backups.BackupError as error:
        raise Stop(str(error)) from None
    output = sys.stderr if is_stream else sys.stdout
    print(f"{_summary(contents)}, in {time.monotonic() - start:.1f} s", file=output)
    print(f"{contents.digest}  {flags.file}", file=output)


def restore(flags: argparse.Namespace, settings: Settings) -> None:
    """Restore a backup, and print a summary of its contents and the path of the former database."""
    _exit_on_sigterm()
    db.release_database()
    source: Path | BinaryIO = sys.stdin.buffer if flags.file == "-" else Path(flags.file)
    former = None
    try:
        if settings.database:
            target = db.connect(settings.data, settings.database)
            contents = backups.restore_into(target, source, ProgressBar)
        else:
            contents, former = backups.restore(source, settings.data)
    except backups.BackupError as error:
        raise Stop(str(error)) from None
    if former:
        print(f"the former database is kept as {former}")
    is_current = settings.database or contents.schema == len(migrations.STEPS)
    print(f"restored: {_summary(contents)}{'' if is_current else ', which `serve` will migrate'}")


def _open(settings: Settings) -> Engine:
    """Open the database without migrating it. A file that cannot be written is opened for reading."""
    if settings.database:
        return db.connect(settings.data, settings.database)
    return db.connect(settings.data, writable=os.access(settings.data, os.W_OK))


def _summary(contents: backups.Contents) -> str:
    return f"{contents.size:,} bytes, {contents.messages:,} messages, {contents.rows:,} rows, schema {contents.schema}"


def _exit_on_sigterm() -> None:
    """Turn SIGTERM into SystemExit, so that temporary files are deleted."""

    def end(number: int, _: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)
