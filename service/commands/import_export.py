"""`import` and `export`: all records as JSON Lines."""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path

from service.commands import Stop
from service.commands.progress import ProgressBar
from service.escape import clean
from service.models import RECORDS
from service.operate import import_export
from service.settings import Settings


def add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    if name == "import":
        parser.add_argument("files", nargs="+", metavar="FILE", help="JSON Lines; - is standard input")
    else:
        parser.add_argument("file", nargs="?", default="-", metavar="FILE", help="output file [-, standard output]")
    parser.set_defaults(run=import_files if name == "import" else export)


def import_files(flags: argparse.Namespace, settings: Settings) -> int:
    """Import files. Prints the number of records, or the errors; then nothing has been imported."""
    import app

    start = time.monotonic()
    paths = [None if name == "-" else Path(name) for name in flags.files]
    try:
        # Each byte counts twice: when it is read and when it is written.
        progress = ProgressBar(0 if None in paths else 2 * sum(path.stat().st_size for path in paths if path))
        app.prepare(settings, create=True)
        try:
            report = import_export.import_files(paths, progress)
        finally:
            progress.end()
    except OSError as error:
        if error.filename is None:  # the error is of a temporary file, not of an argument
            folder = tempfile.gettempdir()
            raise Stop(f"nothing was imported: cannot write temporary files in {folder}: {error.strerror}") from None
        raise Stop(f"cannot read {error.filename}: {error.strerror}") from None
    for line in report:
        print(clean(line), file=sys.stderr)
    if report:
        more = f"{report.total - len(report):,} more errors; " if report.total > len(report) else ""
        print(f"{more}nothing was imported", file=sys.stderr)
        return 1
    seconds = max(time.monotonic() - start, 0.001)
    for kind in RECORDS:
        if report.counts[kind]:
            print(f"{report.counts[kind]:>12,} {kind}")
    total = sum(report.counts.values())
    print(f"{total:>12,} records imported in {seconds:.1f} s, {total / seconds:,.0f} per second")
    return 0


def export(flags: argparse.Namespace, settings: Settings) -> None:
    """Export all records. An output file appears complete or not at all."""
    import app

    app.prepare(settings)
    progress = ProgressBar(import_export.count_rows())
    if flags.file == "-":
        import_export.export(sys.stdout.buffer.write, progress)
        sys.stdout.flush()
        return
    target = Path(flags.file)
    partial = target.with_name(f".{target.name}.partial")
    try:
        partial.unlink(missing_ok=True)  # left by an interrupted run
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # it holds password hashes
        with os.fdopen(descriptor, "wb") as file:
            import_export.export(file.write, progress)
        partial.replace(target)
    except OSError as error:
        raise Stop(f"cannot write {target}: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
