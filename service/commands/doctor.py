"""`doctor`: what is wrong with an installation."""

import argparse
import json

from service.doctor import examine
from service.settings import Settings

ABOUT = "The exit status is 1 if there is a fault. Give it the settings that `serve` has, as flags or as variables."


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.epilog = ABOUT
    parser.set_defaults(run=run)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Look, and tell."""
    found = examine(settings)
    healthy = all(finding.level != "fault" for finding in found)
    if flags.json:
        told = [finding._asdict() for finding in found]
        print(json.dumps({"healthy": healthy, "findings": told}, ensure_ascii=False))
    else:
        for level, about, text in found:
            print(f"{level:<8} {about:<11} {text}")
    return 0 if healthy else 1
