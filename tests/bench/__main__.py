"""Measures the service and what a user would take instead, and tells it as a table, a JSON file and a picture."""

import argparse
import json
import shutil
import sys

from tests.bench import chart, load, report, run
from tests.bench.contestants import PROGRAMS, ROOT

FOLDER = ROOT / "build" / "bench"  # data, which are kept for the next run, and results
TABLE, PICTURE = ROOT / "docs" / "bench.md", ROOT / "docs" / "bench.svg"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"one of {', '.join(run.ROWS)}; all unless named")
    parser.add_argument("--quick", action="store_true", help="some of them, for a shorter time and with less data")
    parser.add_argument("--show", action="store_true", help="show others what was seen, though it is not a whole run")
    flags = parser.parse_args()
    if unknown := set(flags.rows) - set(run.ROWS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if not load.found():
        print("The bench needs wrk; on Debian and Ubuntu: apt-get install wrk", file=sys.stderr)
        return 2
    if not PROGRAMS.exists():
        print("The bench needs its peers, which `make bench` installs", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows = flags.rows or (run.QUICK if flags.quick else run.ROWS)
    if run.WAITING in rows and not shutil.which("strace"):
        print("Without strace, no disk is made to wait; on Debian and Ubuntu: apt-get install strace", file=sys.stderr)
        rows = [row for row in rows if row != run.WAITING]
    results = run.everything(FOLDER, rows, flags.quick)
    run.results_file(FOLDER, flags.quick).write_text(json.dumps(results, indent=2) + "\n")
    table = report.markdown(results)
    print(table)
    if flags.show or not (flags.rows or flags.quick):
        TABLE.write_text(f"# How fast the service is\n\n![{chart.title(results)}](bench.svg)\n\n{table}")
        PICTURE.write_text(chart.svg(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
