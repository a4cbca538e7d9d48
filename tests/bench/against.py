"""Another executable of the service beside this one, alternating: `make bench AGAINST=FILE`.

Each has its own data, which it imports itself, since its schema may differ.
"""

import os
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.bench import dataset, measure, report, run, small
from tests.bench.checks import Claim, first_response, work
from tests.bench.servers import Service
from tests.bench.workloads import API, WORKLOADS, read

FREQUENT = work("search")._replace(
    name="frequent",
    title="search of a frequent word in 1,000 bots",
    requests=read(f"{API}/bots?app_id={dataset.SHOP}&search=parcel"),
    items=25,
)
WORKS = {found.name: found._replace(share=None, peer=None, p99=None) for found in (*WORKLOADS, FREQUENT)}
CHECKS = ("import", "start")
ROWS = (*WORKS, *CHECKS)
MESSAGES, QUICK_MESSAGES = 100_000, 20_000


def results(folder: Path, file: Path, rows: Sequence[str], quick: bool) -> str:
    """Measure some rows. Returns the tables."""
    kinds = Service(), Service("other", file)
    plan = measure.RoundPlan(3, 1) if quick else measure.RoundPlan(7, 2)
    messages = QUICK_MESSAGES if quick else MESSAGES
    claims = []
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        folders = [Path(scratch, str(number)) for number in range(plan.rounds if "import" in rows else 1)]
        costs = [[import_cost(kind, place, messages) for kind in kinds] for place in folders]
        if "import" in rows:
            claims.append(claim(f"import of {messages:,} messages, processor time of a row", "µs", costs))
        with ExitStack() as stack:
            running = [run.start(stack, kind, folders[0]) for kind in kinds]
            lines = [
                measure.compare(WORKS[row], running[0], running[1:], None, folders[0], plan)
                for row in rows
                if row in WORKS
            ]
        if "start" in rows:
            rounds = [
                [first_response(kind, folders[0], token) for kind, _, token in running] for _ in range(plan.rounds)
            ]
            claims.append(claim("warm start to the first response", "s", rounds))
    tables = report.table(map(report.workload_row, lines)), report.table(report.check_row(c._asdict()) for c in claims)
    return "\n\n".join(filter(None, tables))


def claim(title: str, unit: str, rounds: Sequence[Sequence[float]]) -> Claim:
    """Return the medians of this executable and of the other."""
    own, other = map(statistics.median, zip(*rounds, strict=True))
    return Claim(title, own, unit, others={report.PEERS["other"]: other})


def import_cost(kind: Service, folder: Path, messages: int) -> float:
    """Import records. Returns the processor time of a row in microseconds."""
    rows = sum(1 for _ in small.records(messages))
    before = os.times()
    kind.import_records(folder, small.records(messages))
    after = os.times()
    spent = sum(after[2:4]) - sum(before[2:4])  # of child processes
    return spent / rows * 1e6
