"""A replacement for the host's clock."""

from service import clock


class Clock:
    """A clock that only changes when the test sets it."""

    def __init__(self) -> None:
        self.now = clock.milliseconds("2026-11-20T10:00:00.000Z")
        self.monotonic = 0  # nanoseconds

    def forward(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        self.now += int(seconds * clock.SECOND + minutes * clock.MINUTE + hours * clock.HOUR + days * clock.DAY)

    def back(self, **amounts: float) -> None:
        self.forward(**{unit: -amount for unit, amount in amounts.items()})
