"""`upgrade`: checks a downloaded executable before it replaces this one."""

import argparse
from pathlib import Path

from service.commands.doctor import print_findings
from service.operate.upgrade import check
from service.settings import Settings

EPILOG = """\
Nothing is changed, and the file is not run. The exit status is 1 if there is an error. Pass the settings of `serve`
that name the database. To upgrade, replace the old file by the new one, and restart the service.
"""


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", metavar="FILE", type=Path, required=True, help="the downloaded executable")
    parser.epilog = EPILOG
    parser.set_defaults(run=run)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Check the file, the host and the database, and print the findings."""
    return print_findings(check(flags.check, settings))
