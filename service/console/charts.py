"""Line charts as SVG, drawn on the server, each with a text that says the same."""

from collections.abc import Sequence
from typing import NamedTuple

from service.history import Point
from service.translation import gettext
from service.translation.numbers import format_number

WIDTH, HEIGHT, MARGIN = 320, 80, 4  # units of the drawing


class Chart(NamedTuple):
    """A chart: the title, the text alternative, and the lines as data of SVG paths."""

    title: str
    text: str
    lines: str
    current: str  # the last value, with its unit


def draw(title: str, points: Sequence[Point], unit: str, digits: int = 0) -> Chart:
    """Return the chart of some points in the order of time. Where a value is not known, the line is interrupted."""
    known = [point.value for point in points if point.value is not None]
    if not known:
        return Chart(title, gettext("No values yet."), "", "–")

    def number(value: float) -> str:
        return f"{format_number(value, digits)}{unit}"

    text = gettext(
        "Lowest {lowest}, highest {highest}, mean {mean}.",
        lowest=number(min(known)),
        highest=number(max(known)),
        mean=number(sum(known) / len(known)),
    )
    last = points[-1].value
    return Chart(title, text, _lines(points, max(known)), "–" if last is None else number(last))


def _lines(points: Sequence[Point], top: float) -> str:
    """Return the data of the path. The vertical axis begins at 0, the horizontal one with the first point."""
    begin, period = points[0].at, (points[-1].at - points[0].at) or 1.0
    commands, pen = [], "M"
    for at, value in points:
        if value is None:
            pen = "M"
            continue
        x = MARGIN + (WIDTH - 2 * MARGIN) * (at - begin) / period
        y = HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * value / (top or 1.0)
        commands.append(f"{pen}{x:.1f} {y:.1f}" + (" h0.1" if pen == "M" else ""))  # a single point is visible, too
        pen = "L"
    return " ".join(commands)
