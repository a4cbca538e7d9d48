"""Timestamps as the console shows and reads them, in the time zone and the language of the user."""

import html
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from service import clock
from service.translation import Html, current_language, gettext, gettext_noop, ngettext
from service.translation.dates import FORMATS, DateFormats


class Times:
    """Formats and parses timestamps in a time zone; in UTC if `zone` is empty."""

    def __init__(self, zone: str) -> None:
        self.name = zone or "UTC"
        self.zone = ZoneInfo(self.name)

    def local(self, stamp: str) -> datetime:
        """Return a timestamp as local time."""
        time = datetime.fromisoformat(stamp)
        try:
            return time.astimezone(self.zone)
        except OverflowError:  # within a day of the years 1 and 9999
            return time

    def time(self, stamp: str) -> str:
        """Return the time, as in 14:05."""
        return f"{self.local(stamp):%H:%M}"

    def date(self, stamp: str) -> str:
        """Return the date, as in 20 Nov 2026."""
        formats = self.formats
        return formats.format(formats.date, self.local(stamp))

    def full(self, stamp: str) -> str:
        """Return date and time, as in 20 Nov 2026, 14:05."""
        return self.formats.date_and_time.format(date=self.date(stamp), time=self.time(stamp))

    def day(self, stamp: str) -> str:
        """Return the day: Today, Yesterday, or a date, as in Friday, 20 November 2026."""
        formats, days_ago = self.formats, self._days_ago(stamp)
        if days_ago in (0, 1):
            return gettext("Yesterday") if days_ago else gettext("Today")
        return formats.format(formats.full_date, self.local(stamp))

    def month(self, month: str) -> str:
        """Return a calendar month such as 2026-11, as in November 2026."""
        formats = self.formats
        return formats.format(formats.month_and_year, datetime.fromisoformat(f"{month}-01"))

    def brief(self, stamp: str) -> str:
        """Return the time for today, Yesterday, or the date; the year is omitted in the current year."""
        formats, days_ago, local = self.formats, self._days_ago(stamp), self.local(stamp)
        if days_ago in (0, 1):
            return gettext("Yesterday") if days_ago else self.time(stamp)
        this_year = local.year == self.local(clock.timestamp()).year
        return formats.format(formats.date_of_year if this_year else formats.date, local)

    def element(self, stamp: str, *, brief: bool = False, only_date: bool = False) -> Html:
        """Return a `<time>` element with date and time, with the date only, or `brief` with the rest as its title."""
        title = f' title="{html.escape(self.full(stamp))}"' if brief else ""
        text = self.brief(stamp) if brief else self.date(stamp) if only_date else self.full(stamp)
        return Html(f'<time datetime="{html.escape(stamp)}"{title}>{html.escape(text)}</time>')

    @property
    def formats(self) -> DateFormats:
        """The formats of the language of the request."""
        return FORMATS[current_language()]

    def _days_ago(self, stamp: str) -> int:
        return (self.local(clock.timestamp()).date() - self.local(stamp).date()).days

    def field(self, stamp: str | None) -> str:
        """Return the value of a `datetime-local` field; empty without a timestamp."""
        return self.local(stamp).strftime("%Y-%m-%dT%H:%M").rjust(16, "0") if stamp else ""

    def read(self, text: str) -> str:
        """Return the timestamp of a `datetime-local` field. Raises ValueError."""
        try:
            local = datetime.fromisoformat(text)
            aware = local if local.tzinfo else local.replace(tzinfo=self.zone)
            return clock.read_timestamp(aware.astimezone(UTC).isoformat())
        except (ValueError, OverflowError):
            raise ValueError(gettext_noop("expected a date and a time")) from None


def age_of(stamp: str) -> str:
    """Return the time since a timestamp in words, such as 3 hours."""
    minutes = int((datetime.fromisoformat(clock.timestamp()) - datetime.fromisoformat(stamp)).total_seconds()) // 60
    if minutes >= 24 * 60:
        return ngettext("{count} day", "{count} days", minutes // (24 * 60))
    if minutes >= 60:
        return ngettext("{count} hour", "{count} hours", minutes // 60)
    return ngettext("{count} minute", "{count} minutes", max(1, minutes))
