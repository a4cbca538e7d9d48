"""The progress bar of long commands."""

import sys


class ProgressBar:
    """A progress bar on standard error. Prints nothing if that is not a terminal, or if the total is 0."""

    WIDTH = 40  # characters

    def __init__(self, total: int) -> None:
        self.total, self.done, self.shown_percent = max(total, 1), 0, -1
        self.is_visible = total > 0 and sys.stderr.isatty()

    def __call__(self, step: int) -> None:
        """Advance the bar by a number of units."""
        self.done += step
        percent = min(100, 100 * self.done // self.total)
        if self.is_visible and percent != self.shown_percent:
            self.shown_percent = percent
            bar = "#" * (self.WIDTH * percent // 100)
            end = "\n" if percent == 100 else ""
            print(f"\r[{bar:<{self.WIDTH}}] {percent:3}%", end=end, file=sys.stderr, flush=True)

    def end(self) -> None:
        """End the line of an unfinished bar, so that later output begins on a new line."""
        if 0 <= self.shown_percent < 100:
            print(file=sys.stderr, flush=True)
