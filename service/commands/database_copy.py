"""`copy`: copies everything to another database."""

import argparse
from pathlib import Path

from service import db
from service.commands import Stop
from service.commands.progress import ProgressBar
from service.db.engine import Engine
from service.operate import database_copy
from service.settings import Settings

SCHEMES = ("postgresql://", "postgres://")
EPILOG = """\
WHERE is a postgresql:// address (as in `serve --database`) or a folder that holds service.db (as in `serve --data`).
Any combination is possible. PGPASSWORD, ~/.pgpass and service files may supply the password and other parts of an
address.

The target must be new or empty. Everything is copied, including what an export omits: signing keys, login sessions, and
the responses stored for idempotency keys. Users stay signed in; cursors and picture addresses stay valid. All rows are
read back and compared before the transaction is committed; on any difference the target stays as it was.

Stop the service first: rows written during the copy may be missing from it. Then start the service on the target.

  cx-service copy --from cx-data --to postgresql://cx@db.example/cx
"""


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("--from", dest="source", metavar="WHERE", required=True, help="source; not changed")
    parser.add_argument("--to", dest="target", metavar="WHERE", required=True, help="target; a new or empty database")
    parser.set_defaults(run=run)


def run(flags: argparse.Namespace, _: Settings) -> None:
    """Copy all rows, and print their number per table."""
    try:
        source = _open(flags.source)
        with source.disconnecting():
            database_copy.check_schema(source)
            target = _open(flags.target, create=True)
            with target.disconnecting():
                copied = database_copy.copy(source, target, ProgressBar(2 * database_copy.count_rows(source)))
    except database_copy.CopyError as error:
        raise Stop(str(error)) from None
    for name, number in copied.items():
        print(f"{number:>12,} {name}")
    print(f"{sum(copied.values()):>12,} rows copied to {target.name} and verified")


def _open(where: str, *, create: bool = False) -> Engine:
    """Open the database at an address or in a folder."""
    if where.startswith(SCHEMES):
        return db.connect(Path(), where)
    if not where or "://" in where:
        raise Stop("WHERE must be a postgresql:// address or a data folder")
    return db.connect(Path(where), create=create)
