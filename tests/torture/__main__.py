"""Runs the parts, all of them or those that are named, and prints what was seen as a table."""

import argparse
import importlib
import os
import sys
import time
import traceback

from tests.torture import PARTS, seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}; all unless named")
    parser.add_argument("--quick", action="store_true", help="the short form, which the tests run")
    parser.add_argument("--seed", type=int, default=seed(), help="what chance begins with [SEED; 1]")
    flags = parser.parse_args()
    if unknown := set(flags.parts) - set(PARTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    os.environ["SEED"] = str(flags.seed)
    failed = 0
    print(f"seed {flags.seed}", file=sys.stderr)
    print("| part | claim | seen |\n|---|---|---|")
    for part in flags.parts or PARTS:
        begun = time.monotonic()
        try:
            for figure in importlib.import_module(f"tests.torture.{part}").run(flags.quick):
                print(f"| {part} | {figure.claim} | {figure.seen} |", flush=True)
        except Exception as error:  # the other parts are still to come
            failed += 1
            print(f"{part} failed: {error}", file=sys.stderr)
            if not isinstance(error, AssertionError):
                traceback.print_exc()
        print(f"{part} took {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
