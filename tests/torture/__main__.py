"""Runs all parts, or those named, and prints the results as a table."""

import argparse
import importlib
import os
import sys
import time
import traceback

from tests.torture import PARTS, seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="run the short form, as the tests do")
    parser.add_argument("--seed", type=int, default=seed(), help="seed of random numbers [SEED; 1]")
    flags = parser.parse_args()
    if unknown := set(flags.parts) - set(PARTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    os.environ["SEED"] = str(flags.seed)
    failed = 0
    print(f"seed {flags.seed}", file=sys.stderr)
    print("| part | guarantee | result |\n|---|---|---|")
    for part in flags.parts or PARTS:
        start = time.monotonic()
        try:
            for figure in importlib.import_module(f"tests.torture.{part}").run(flags.quick):
                print(f"| {part} | {figure.claim} | {figure.result} |", flush=True)
        except Exception as error:  # continue with the other parts
            failed += 1
            print(f"{part} failed: {error}", file=sys.stderr)
            if not isinstance(error, AssertionError):
                traceback.print_exc()
        print(f"{part} took {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
