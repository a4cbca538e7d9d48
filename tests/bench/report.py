"""The results as a table in Markdown."""

from collections.abc import Iterable
from typing import Any

from tests.bench.run import DELAY, SLOW_DISK

PEERS = {"pocketbase": "PocketBase", "fastapi": "FastAPI", "ninja": "Django Ninja", "other": "other executable"}
COLUMNS = ("operation", "service", "check", "result", "limit ratio", *PEERS.values(), "best of the others", "p99")


def markdown(results: dict[str, Any]) -> str:
    """Return the report."""
    lines = results["lines"]
    parts = [
        about(results),
        table(workload_row(line) for line in lines if "claims" not in line),
        *slow_disk_rows(results.get(SLOW_DISK, [])),
        table(check_row(claim) for line in lines for claim in line.get("claims", ())),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def slow_disk_rows(lines: list[dict[str, Any]]) -> list[str]:
    """Return the rows with delayed syncs."""
    heading = f"The writes with each sync delayed by {DELAY} ms, as on a disk that confirms only stored data:"
    return [heading, table(map(workload_row, lines))] if lines else []


def about(results: dict[str, Any]) -> str:
    """Return the date, the machine, the versions, and the meaning of the columns."""
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return (
        f"Measured on {results['date']}{' in the short form' if results['quick'] else ''}, with "
        f"{results['processors']} processors and Python {results['python']}, compared with {versions}. "
        "Service: processor time of all its processes per request, and requests per second. Limit ratio: processor "
        "time of a server that sends the same bytes from memory, relative to the service; for writes, commits of the "
        "service relative to bare SQLite. Other servers: processor time relative to the service, and in parentheses "
        "the requests per second of the service relative to theirs. Values are medians of alternating rounds. Goals "
        "are in parentheses with ≥ or ≤; ✗ marks a missed goal."
    )


def table(rows: Iterable[dict[str, str]]) -> str:
    found = list(rows)
    if not found:
        return ""
    names = [name for name in COLUMNS if any(name in row for row in found)]
    cells = [names, ["---"] * len(names), *([row.get(name, "–") for name in names] for row in found)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def workload_row(line: dict[str, Any]) -> dict[str, str]:
    """Return the row of an operation."""
    if "absent" in line:
        return {"operation": line["title"], "service": f"✗ {line['absent']}"}
    measured, goals = line["measured"], line["goals"]
    own = measured["service"]
    row = {"operation": line["title"], "service": f"{own['cost']:,.0f} µs, {own['rate']:,.0f}/s"}
    if goals["share"]:
        row["limit ratio"] = with_goal(f"{share(line):.2f}", share(line), minimum=goals["share"])
    for name, title in PEERS.items():
        if name in measured:
            row[title] = f"{measured[name]['times_cost']:.1f} × ({measured[name]['times_rate']:.1f} ×)"
    if goals["peer"]:
        row["best of the others"] = with_goal(f"{best(line):.1f} ×", best(line), minimum=goals["peer"])
    row["p99"] = with_goal(f"{own['p99']:,.0f} ms", own["p99"], maximum=goals["p99"])
    return row


def share(line: dict[str, Any]) -> float:
    """Return the ratio to the limit, 1 if equal: by processor time, or by commits per second."""
    measured = line["measured"]
    return float(measured["bare"]["times_rate"] if "bare" in measured else measured["limit"]["times_cost"])


def best(line: dict[str, Any]) -> float:
    """Return the processor time of the best other server, relative to the service."""
    return float(min(line["measured"][name]["times_cost"] for name in PEERS if name in line["measured"]))


def check_row(claim: dict[str, Any]) -> dict[str, str]:
    """Return the row of a check."""
    row = {
        "check": claim["title"],
        "result": with_goal(amount(claim["value"], claim["unit"]), claim["value"], maximum=claim["maximum"]),
    }
    return row | {title: amount(value, claim["unit"]) for title, value in claim["others"].items()}


def amount(number: float, unit: str) -> str:
    return f"{number:,.{0 if number >= 20 or not unit else 2}f} {unit}".strip()


def with_goal(text: str, value: float, *, minimum: float | None = None, maximum: float | None = None) -> str:
    """Return a value with its goal, marked if it misses the goal."""
    goal = f" (≥ {minimum:g})" if minimum is not None else f" (≤ {maximum:g})" if maximum is not None else ""
    missed = (minimum is not None and value < minimum) or (maximum is not None and value > maximum)
    return f"{'✗ ' if missed else ''}{text}{goal}"
