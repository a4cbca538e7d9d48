"""Parses the output of /metrics."""

import re
from typing import Any, NamedTuple

from tests.support.client import Client, Reply

NAME, LABEL = r"[a-zA-Z_:][a-zA-Z0-9_:]*", r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"'

SAMPLE = re.compile(rf"({NAME})(?:{{({LABEL}(?:,{LABEL})*)}})? (-?\d+(?:\.\d+)?(?:e[+-]\d+)?)")

KINDS = {"counter", "gauge", "histogram"}


class Metrics(NamedTuple):
    """The kind of each metric family, and each sample by its name and labels."""

    kinds: dict[str, str]
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]

    def value(self, name: str, **labels: object) -> float:
        return self.samples[name, frozenset((label, str(text)) for label, text in labels.items())]

    def named(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        return {labels: value for (found, labels), value in self.samples.items() if found == name}

    def total(self, name: str, **labels: object) -> float:
        wanted = {(label, str(text)) for label, text in labels.items()}
        return sum(value for found, value in self.named(name).items() if wanted <= found)


def parse(text: str) -> Metrics:
    """Parse the text format 0.0.4. Fails for any line that the format does not allow."""
    assert text.endswith("\n") and "\r" not in text
    metrics = Metrics({}, {})
    described, family = "", ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            _, _, described, description = line.split(" ", 3)
            assert description and described not in metrics.kinds, line
        elif line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert family == described and kind in KINDS, line
            metrics.kinds[family] = kind
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            name = found[1]
            suffixes = ("_bucket", "_sum", "_count") if metrics.kinds[family] == "histogram" else ("",)
            assert name in {family + suffix for suffix in suffixes}, line
            labels = frozenset((label, text) for label, text in re.findall(LABEL, found[2] or ""))
            assert (name, labels) not in metrics.samples, line
            metrics.samples[name, labels] = float(found[0].rpartition(" ")[2])
    return metrics


def scrape(client: Any, **headers: str) -> Metrics:
    reply: Reply = client.get("//metrics", **headers) if isinstance(client, Client) else client.call("GET", "/metrics")
    assert reply.status == 200, reply.raw
    assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parse(reply.raw.decode())
