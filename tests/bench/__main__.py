"""Runs the benchmark, and writes the results as a table, a JSON file and a picture."""

import argparse
import json
import shutil
import sys
from pathlib import Path

from tests.bench import against, chart, load, report, run, small
from tests.bench.servers import PROGRAMS, ROOT

FOLDER = ROOT / "build" / "bench"  # data, which is reused by the next run, and results
SMALL = "small"  # the service alone on a small host; measured by itself
TABLE, PICTURE = ROOT / "docs" / "bench.md", ROOT / "docs" / "bench.svg"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help=f"one of {', '.join(run.ROWS)}; all by default; or {SMALL}"
    )
    parser.add_argument("--quick", action="store_true", help="fewer rows, shorter rounds and less data")
    parser.add_argument(
        "--against",
        metavar="FILE",
        type=Path,
        help=f"compare with another executable only; rows: {', '.join(against.ROWS)}",
    )
    parser.add_argument(
        "--show", action="store_true", help="update docs/bench.md and the picture, even from a partial run"
    )
    flags = parser.parse_args()
    is_small = flags.rows == [SMALL]
    known = against.ROWS if flags.against else (*run.ROWS, *([SMALL] if is_small else []))
    if unknown := set(flags.rows) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if not load.find_wrk():
        print("The benchmark needs wrk; on Debian and Ubuntu: apt-get install wrk", file=sys.stderr)
        return 2
    if is_small:
        FOLDER.mkdir(parents=True, exist_ok=True)
        return small.main(FOLDER, flags.quick, flags.show)
    if flags.against:
        FOLDER.mkdir(parents=True, exist_ok=True)
        print(against.results(FOLDER, flags.against.resolve(), flags.rows or against.ROWS, flags.quick))
        return 0
    if not PROGRAMS.exists():
        print("The benchmark needs the other servers, which `make bench` installs", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows = flags.rows or (run.QUICK if flags.quick else run.ROWS)
    if run.SLOW_DISK in rows and not shutil.which("strace"):
        print(
            "Skipping the slow disk, which needs strace; on Debian and Ubuntu: apt-get install strace", file=sys.stderr
        )
        rows = [row for row in rows if row != run.SLOW_DISK]
    results = run.everything(FOLDER, rows, flags.quick)
    run.results_file(FOLDER, flags.quick).write_text(json.dumps(results, indent=2) + "\n")
    table = report.markdown(results)
    print(table)
    if flags.show or not (flags.rows or flags.quick):
        TABLE.write_text(f"# Benchmark\n\n![{chart.title(results)}](bench.svg)\n\n{table}")
        PICTURE.write_text(chart.svg(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
