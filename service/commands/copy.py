"""`copy`: moving to another database."""

import argparse
from pathlib import Path

from service import copying, db
from service.commands import Stop
from service.commands.transfer import Bar
from service.db.engine import Engine
from service.settings import Settings

SCHEMES = ("postgresql://", "postgres://")
ABOUT = """\
WHERE is what `serve` has as --database, a postgresql:// address, or as --data, a folder that holds service.db; any of
them to any other. An address may leave out the password and more: PGPASSWORD, ~/.pgpass and service files are heeded.

The target must be new or empty. Everything goes over, also what an export leaves out: signing keys, logins, answers
kept for repeated requests. So people stay signed in, and cursors and addresses of pictures stay good. Afterwards all
rows are read back and compared; only then are they there to stay, else the target is as it was.

Stop the service first: what it writes meanwhile stays behind. Then start it on the target.

  cx-service copy --from cx-data --to postgresql://cx@db.example/cx
"""


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = ABOUT
    parser.add_argument("--from", dest="source", metavar="WHERE", required=True, help="what is copied; left as it is")
    parser.add_argument("--to", dest="target", metavar="WHERE", required=True, help="a new or an empty database")
    parser.set_defaults(run=run)


def run(flags: argparse.Namespace, _: Settings) -> None:
    """Copy everything, and say how much it was."""
    try:
        source = _open(flags.source)
        with source.until_closed():
            copying.see_that_it_is_current(source)
            target = _open(flags.target, create=True)
            with target.until_closed():
                copied = copying.copy(source, target, Bar(2 * copying.count_rows(source)))
    except copying.Uncopyable as error:
        raise Stop(str(error)) from None
    for name, number in copied.items():
        print(f"{number:>12,} {name}")
    print(f"{sum(copied.values()):>12,} rows copied to {target.name} and compared")


def _open(where: str, *, create: bool = False) -> Engine:
    """The database at an address or in a folder."""
    if where.startswith(SCHEMES):
        return db.connect(Path(), where)
    if not where or "://" in where:
        raise Stop("WHERE is a postgresql:// address or a data folder")
    return db.connect(Path(where), create=create)
