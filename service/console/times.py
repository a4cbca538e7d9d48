"""Moments as a person reads and writes them: in their own time zone."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from service import clock


class Times:
    """The moments of somebody who lives in a time zone; in UTC, if they have not said."""

    def __init__(self, zone: str) -> None:
        self.name = zone or "UTC"
        self.zone = ZoneInfo(self.name)

    def local(self, stamp: str) -> datetime:
        """A timestamp of ours on the clock on the wall."""
        moment = datetime.fromisoformat(stamp)
        try:
            return moment.astimezone(self.zone)
        except OverflowError:  # within a day of the years 1 and 9999
            return moment

    def time(self, stamp: str) -> str:
        """14:05"""
        return f"{self.local(stamp):%H:%M}"

    def date(self, stamp: str) -> str:
        """20 Nov 2026"""
        moment = self.local(stamp)
        return f"{moment.day} {moment:%b} {moment.year}"

    def full(self, stamp: str) -> str:
        """20 Nov 2026, 14:05"""
        return f"{self.date(stamp)}, {self.time(stamp)}"

    def day(self, stamp: str) -> str:
        """Today, Yesterday, or Friday, 20 November 2026."""
        moment, today = self.local(stamp), self.local(clock.timestamp())
        for name, back in (("Today", 0), ("Yesterday", 1)):
            if moment.date() == (today - timedelta(days=back)).date():
                return name
        return f"{moment:%A}, {moment.day} {moment:%B} {moment.year}"

    def brief(self, stamp: str) -> str:
        """14:05 today, Yesterday, 20 Nov this year, and before that with the year."""
        day = self.day(stamp)
        if day in ("Today", "Yesterday"):
            return self.time(stamp) if day == "Today" else day
        this_year = self.local(stamp).year == self.local(clock.timestamp()).year
        return self.date(stamp).rpartition(" ")[0] if this_year else self.date(stamp)

    def field(self, stamp: str | None) -> str:
        """The value of a field of type `datetime-local`; empty for no moment."""
        return self.local(stamp).strftime("%Y-%m-%dT%H:%M").rjust(16, "0") if stamp else ""

    def read(self, text: str) -> str:
        """What such a field holds, as a timestamp of ours. Raises ValueError."""
        try:
            moment = datetime.fromisoformat(text)
            aware = moment if moment.tzinfo else moment.replace(tzinfo=self.zone)
            return clock.read_timestamp(aware.astimezone(UTC).isoformat())
        except (ValueError, OverflowError):
            raise ValueError("expected a date and a time") from None
