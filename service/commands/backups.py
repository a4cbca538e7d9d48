"""`backup` and `restore`: everything in one file, and back."""

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from service import backups, db, migrations
from service.commands import Stop
from service.commands.transfer import Bar
from service.settings import Settings

BACKUP = """\
The file holds rows, pictures, signing keys and logins, and is for its owner only: whoever has it can be anybody. It
appears when it is whole and has been checked, also while the service runs; the last line is what `sha256sum -c` takes.
"""
RESTORE = """\
Stop the service first. The backup is checked before anything is replaced, and the database that was there is kept
beside it as service.db.before-…; of a PostgreSQL, name an empty database. Logins that were ended after the backup was
made are open again. A backup of an earlier schema is brought up to date by the next `serve`.
"""


def add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    stream = "standard output" if name == "backup" else "standard input"
    parser.add_argument("file", metavar="FILE", help=f"the backup; - is {stream}")
    if name == "backup":
        parser.add_argument("--force", action="store_true", help="replace the file if it exists")
    parser.epilog = BACKUP if name == "backup" else RESTORE
    parser.set_defaults(run=back_up if name == "backup" else restore)


def back_up(flags: argparse.Namespace, settings: Settings) -> None:
    """Make a backup, and say what it holds."""
    _heed_signals()
    target: Any = Path(flags.file) if flags.file != "-" else sys.stdout.buffer
    if flags.file == "-" and sys.stdout.isatty():
        raise Stop("a backup is nothing to look at: name a file, or send it on to another program")
    begun = time.monotonic()
    source = _open(settings)
    try:
        with source.until_closed():
            found = backups.back_up(source, target, Bar, replace=flags.force)
    except backups.Unsound as error:
        raise Stop(str(error)) from None
    said = sys.stdout if flags.file != "-" else sys.stderr
    print(f"{_summary(found)}, in {time.monotonic() - begun:.1f} s", file=said)
    print(f"{found.digest}  {flags.file}", file=said)


def restore(flags: argparse.Namespace, settings: Settings) -> None:
    """Restore a backup, and say what came with it and where the old database is."""
    _heed_signals()
    db.forget_database()
    given: Any = Path(flags.file) if flags.file != "-" else sys.stdin.buffer
    kept = None
    try:
        if settings.database:
            found = backups.restore_into(db.connect(settings.data, settings.database), given, Bar)
        else:
            found, kept = backups.restore(given, settings.data)
    except backups.Unsound as error:
        raise Stop(str(error)) from None
    if kept:
        print(f"the database that was there is kept as {kept}")
    behind = "" if settings.database or found.schema == len(migrations.STEPS) else ", which `serve` brings up to date"
    print(f"restored: {_summary(found)}{behind}")


def _open(settings: Settings) -> Any:
    """The database as it is, whichever schema it has; a file that cannot be written is read all the same."""
    if settings.database:
        return db.connect(settings.data, settings.database)
    return db.connect(settings.data, writable=os.access(settings.data, os.W_OK))


def _summary(found: backups.Contents) -> str:
    return f"{found.size:,} bytes, {found.messages:,} messages, {found.rows:,} rows, schema {found.schema}"


def _heed_signals() -> None:
    """Tidy up before ending when told to end."""

    def end(number: int, _: Any) -> NoReturn:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)
