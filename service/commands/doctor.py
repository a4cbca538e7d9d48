"""`doctor`: checks an installation."""

import argparse
import json
from collections.abc import Iterable

from service.commands.progress import ProgressBar
from service.operate.doctor import Finding, examine
from service.settings import Settings

EPILOG = "The exit status is 1 if there is an error. Pass the settings of `serve`, as flags or environment variables."


def add_arguments(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--quick", action="store_true", help="omit the checks that read the whole database, such as those of its pages"
    )
    parser.epilog = EPILOG
    parser.set_defaults(run=run)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Run all checks and print their findings."""
    return print_findings(examine(settings, quick=flags.quick, progress=ProgressBar), as_json=flags.json)


def print_findings(findings: Iterable[Finding], *, as_json: bool = False) -> int:
    """Print findings, one a line. Returns the exit status: 1 if there is an error."""
    findings = list(findings)
    healthy = all(finding.level != "error" for finding in findings)
    if as_json:
        rows = [finding._asdict() for finding in findings]
        print(json.dumps({"healthy": healthy, "findings": rows}, ensure_ascii=False))
    else:
        for level, about, text in findings:
            print(f"{level:<8} {about:<11} {text}")
    return 0 if healthy else 1
