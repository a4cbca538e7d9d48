"""`doctor`: checks an installation."""

import argparse
import json

from service.operate.doctor import examine
from service.settings import Settings

EPILOG = "The exit status is 1 if there is an error. Pass the settings of `serve`, as flags or environment variables."


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.epilog = EPILOG
    parser.set_defaults(run=run)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Runs all checks and prints their findings."""
    findings = examine(settings)
    healthy = all(finding.level != "error" for finding in findings)
    if flags.json:
        rows = [finding._asdict() for finding in findings]
        print(json.dumps({"healthy": healthy, "findings": rows}, ensure_ascii=False))
    else:
        for level, about, text in findings:
            print(f"{level:<8} {about:<11} {text}")
    return 0 if healthy else 1
