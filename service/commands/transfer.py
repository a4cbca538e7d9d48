"""`import` and `export`: everything as JSON Lines, in and out."""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path

from service import transfer
from service.commands import Stop
from service.models import RECORDS
from service.settings import Settings
from service.terminal import clean


def add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    if name == "import":
        parser.add_argument("files", nargs="+", metavar="FILE", help="JSON Lines; - is standard input")
    else:
        parser.add_argument("file", nargs="?", default="-", metavar="FILE", help="where to; - is standard output")
    parser.set_defaults(run=take_in if name == "import" else give_out)


class Bar:
    """A progress bar on a terminal, and nothing elsewhere or without a total."""

    WIDTH = 40

    def __init__(self, total: int) -> None:
        self.total, self.done, self.shown = max(total, 1), 0, -1
        self.visible = total > 0 and sys.stderr.isatty()

    def __call__(self, step: int) -> None:
        self.done += step
        percent = min(100, 100 * self.done // self.total)
        if self.visible and percent != self.shown:
            self.shown = percent
            bar = "#" * (self.WIDTH * percent // 100)
            end = "\n" if percent == 100 else ""
            print(f"\r[{bar:<{self.WIDTH}}] {percent:3}%", end=end, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line of an unfinished bar, so that what follows has a line of its own."""
        if 0 <= self.shown < 100:
            print(file=sys.stderr, flush=True)


def take_in(flags: argparse.Namespace, settings: Settings) -> int:
    """Import files and say how much it was, or what is wrong with them."""
    import app

    begun = time.monotonic()
    paths = [None if name == "-" else Path(name) for name in flags.files]
    try:
        # Each byte counts twice: when it is read and when it is written.
        bar = Bar(0 if None in paths else 2 * sum(path.stat().st_size for path in paths if path))
        app.prepare(settings, create=True)
        try:
            report = transfer.take_in(paths, bar)
        finally:
            bar.end()
    except OSError as error:
        if error.filename is None:  # not of a file that was named
            where = tempfile.gettempdir()
            raise Stop(f"nothing was imported: what was checked waits in {where}: {error.strerror}") from None
        raise Stop(f"cannot read {error.filename}: {error.strerror}") from None
    for fault in report:
        print(clean(fault), file=sys.stderr)
    if report:
        more = f"{report.total - len(report):,} more faults; " if report.total > len(report) else ""
        print(f"{more}nothing was imported", file=sys.stderr)
        return 1
    taken = max(time.monotonic() - begun, 0.001)
    for kind in RECORDS:
        if report.counts[kind]:
            print(f"{report.counts[kind]:>12,} {kind}")
    total = sum(report.counts.values())
    print(f"{total:>12,} records imported in {taken:.1f} s, {total / taken:,.0f} a second")
    return 0


def give_out(flags: argparse.Namespace, settings: Settings) -> None:
    """Export everything; a file appears whole or not at all."""
    import app

    app.prepare(settings)
    bar = Bar(transfer.count_rows())
    if flags.file == "-":
        transfer.give_out(sys.stdout.buffer.write, bar)
        sys.stdout.flush()
        return
    target = Path(flags.file)
    beside = target.with_name(f".{target.name}.partial")
    try:
        beside.unlink(missing_ok=True)  # of a run that was cut off
        only_owner = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # it holds password hashes
        with os.fdopen(only_owner, "wb") as file:
            transfer.give_out(file.write, bar)
        beside.replace(target)
    except OSError as error:
        raise Stop(f"cannot write {target}: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()
