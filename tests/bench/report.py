"""Results as a table in Markdown."""

from collections.abc import Iterable
from typing import Any

from tests.bench.run import DELAY, WAITING

PEERS = {"pocketbase": "PocketBase", "fastapi": "FastAPI", "ninja": "Django Ninja"}
COLUMNS = ("work", "service", "claim", "seen", "of the limit", *PEERS.values(), "best of these", "p99")


def markdown(results: dict[str, Any]) -> str:
    """The whole report."""
    lines = results["lines"]
    parts = [
        about(results),
        table(contested(line) for line in lines if "claims" not in line),
        *waiting(results.get(WAITING, [])),
        table(claimed(claim) for line in lines for claim in line.get("claims", ())),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def waiting(lines: list[dict[str, Any]]) -> list[str]:
    """What was written on a disk that waits."""
    told = f"The same with {DELAY} ms more for each sync, as on a disk that answers when the data are safe:"
    return [told, table(map(contested, lines))] if lines else []


def about(results: dict[str, Any]) -> str:
    """When and on what it was measured, and how the figures are to be read."""
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return (
        f"Measured on {results['date']}{' in the short form' if results['quick'] else ''}, with "
        f"{results['processors']} processors and Python {results['python']}, beside {versions}. "
        "The service's processor time for each request, of the whole server, and requests per second; of the limit, "
        "what the service would take if it only sent the same bytes, or of the commits that bare SQLite makes; "
        "then the processor time of others for one of the service's, and the service's requests per second for one of "
        "theirs. Medians of rounds in turn. What misses its goal is marked with ✗."
    )


def table(rows: Iterable[dict[str, str]]) -> str:
    found = list(rows)
    if not found:
        return ""
    names = [name for name in COLUMNS if any(name in row for row in found)]
    cells = [names, ["---"] * len(names), *([row.get(name, "–") for name in names] for row in found)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def contested(line: dict[str, Any]) -> dict[str, str]:
    """A line that all were measured on."""
    if "absent" in line:
        return {"work": line["title"], "service": f"✗ {line['absent']}"}
    seen, goals = line["seen"], line["goals"]
    own = seen["service"]
    row = {"work": line["title"], "service": f"{own['cost']:,.0f} µs, {own['rate']:,.0f}/s"}
    if goals["share"]:
        row["of the limit"] = judged(f"{share(line):.2f}", share(line), least=goals["share"])
    for name, title in PEERS.items():
        if name in seen:
            row[title] = f"{seen[name]['times_cost']:.1f} × ({seen[name]['times_rate']:.1f} ×)"
    if goals["peer"]:
        row["best of these"] = judged(f"{best(line):.1f} ×", best(line), least=goals["peer"])
    row["p99"] = judged(f"{own['p99']:,.0f} ms", own["p99"], most=goals["p99"])
    return row


def share(line: dict[str, Any]) -> float:
    """How near the service comes to what is possible, 1 being there: by processor time, or by commits per second."""
    seen = line["seen"]
    return float(seen["bare"]["times_rate"] if "bare" in seen else seen["limit"]["times_cost"])


def best(line: dict[str, Any]) -> float:
    """What the peer that takes least takes of processor time, for one of the service's."""
    return float(min(line["seen"][name]["times_cost"] for name in PEERS if name in line["seen"]))


def claimed(claim: dict[str, Any]) -> dict[str, str]:
    """A claim about the service alone."""
    row = {
        "claim": claim["title"],
        "seen": judged(amount(claim["seen"], claim["unit"]), claim["seen"], most=claim["most"]),
    }
    return row | {title: amount(seen, claim["unit"]) for title, seen in claim["beside"].items()}


def amount(number: float, unit: str) -> str:
    return f"{number:.{0 if number >= 20 or not unit else 2}f} {unit}".strip()


def judged(text: str, seen: float, *, least: float | None = None, most: float | None = None) -> str:
    """A figure with its goal, marked if it misses that."""
    goal = f" (≥ {least:g})" if least is not None else f" (≤ {most:g})" if most is not None else ""
    missed = (least is not None and seen < least) or (most is not None and seen > most)
    return f"{'✗ ' if missed else ''}{text}{goal}"
