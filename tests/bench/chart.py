"""The results as a picture: a line per operation with the processor times of all servers.

One SVG with colours for light and dark pages.
"""

import math
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

# Name, shape, and colour on light and dark pages. Colours and shapes are distinguishable for colour-blind readers.
MARKS = {
    "limit": ("the same bytes from memory", "ring", "#57606a", "#8b949e"),
    "service": ("cx-service", "dot", "#0969da", "#58a6ff"),
    "pocketbase": ("PocketBase", "square", "#1a7f37", "#3fb950"),
    "fastapi": ("FastAPI", "diamond", "#bc4c00", "#f0883e"),
    "ninja": ("Django Ninja", "triangle", "#8250df", "#bc8cff"),
}
WIDTH, LEFT, RIGHT, TOP, STEP = 760, 236, 28, 84, 26
INK, SOFT, GRID = ("#1f2328", "#e6edf3"), ("#57606a", "#8b949e"), ("#d0d7de", "#30363d")


def svg(results: dict[str, Any]) -> str:
    """Return the picture."""
    lines = [line for line in results["lines"] if "measured" in line]
    ratios = [result["times_cost"] for line in lines for name, result in line["measured"].items() if name in MARKS]
    low = 2 ** math.floor(math.log2(min(ratios, default=1)))
    high = 2 ** math.ceil(math.log2(max(ratios, default=2)))
    height = TOP + STEP * len(lines) + 40

    def across(ratio: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log2(ratio / low) / math.log2(high / low)

    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            f'aria-label="{title(results)}">',
            style(),
            f'<text class="title" x="16" y="26">{title(results)}</text>',
            *legend(),
            *axis(low, high, across, height - 34),
            *(part for place, line in enumerate(lines) for part in row(line, TOP + STEP * (place + 0.5), across)),
            f'<text class="soft" x="16" y="{height - 10}">{escape(footnote(results))}</text>',
            "</svg>",
            "",
        ]
    )


def title(results: dict[str, Any]) -> str:
    return f"Processor time of a request, cx-service = 1 ({results['date']})"


def footnote(results: dict[str, Any]) -> str:
    about = f"{results['processors']} processors, medians of alternating rounds."
    return f"Further left is better; the scale is logarithmic. {about}"


def style() -> str:
    def rules(dark: int) -> str:
        colours = "".join(f".{name}{{fill:{mark[2 + dark]};stroke:{mark[2 + dark]}}}" for name, mark in MARKS.items())
        words = f"text{{fill:{INK[dark]}}}.soft{{fill:{SOFT[dark]}}}"
        return f"{words}.grid{{stroke:{GRID[dark]}}}.one{{stroke:{SOFT[dark]}}}{colours}"

    font = 'text{font:13px system-ui,-apple-system,"Segoe UI",sans-serif}.title{font-size:15px;font-weight:600}'
    shapes = ".soft{font-size:12px}.ring{fill:none;stroke-width:2}.end{text-anchor:end}.middle{text-anchor:middle}"
    # `ring` is last, so that it stays hollow.
    return f"<style>{font}{rules(0)}@media(prefers-color-scheme:dark){{{rules(1)}}}{shapes}</style>"


def legend() -> Iterator[str]:
    at = 20.0
    for name, (words, *_) in MARKS.items():
        yield mark(name, at, 50)
        yield f'<text class="soft" x="{at + 11:.0f}" y="54">{words}</text>'
        at += 34 + 6.8 * len(words)


def axis(low: float, high: float, across: Any, bottom: float) -> Iterator[str]:
    ratio = low
    while ratio <= high:
        x = across(ratio)
        kind = "one" if ratio == 1 else "grid"
        yield f'<line class="{kind}" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom:.1f}"/>'
        words = f"{ratio:g}" if ratio >= 1 else f"1/{1 / ratio:g}"
        yield f'<text class="soft middle" x="{x:.1f}" y="{TOP - 6}">{words}</text>'
        ratio *= 2


def row(line: dict[str, Any], y: float, across: Any) -> Iterator[str]:
    yield f'<text class="end" x="{LEFT - 14}" y="{y + 4:.1f}">{escape(line["title"])}</text>'
    for name in MARKS:
        if name in line["measured"]:
            yield mark(name, across(line["measured"][name]["times_cost"]), y)


def mark(name: str, x: float, y: float) -> str:
    """Return the mark of a server at a point."""
    shape = MARKS[name][1]
    if shape in ("ring", "dot"):
        return f'<circle class="{name} {shape}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
    corners = {
        "square": ((-4.5, -4.5), (4.5, -4.5), (4.5, 4.5), (-4.5, 4.5)),
        "diamond": ((0, -6), (6, 0), (0, 6), (-6, 0)),
        "triangle": ((0, -5.5), (5.5, 4.5), (-5.5, 4.5)),
    }[shape]
    points = " ".join(f"{x + across:.1f},{y + down:.1f}" for across, down in corners)
    return f'<polygon class="{name}" points="{points}"/>'
