"""Calendar feeds in the iCalendar format (RFC 5545)."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from service.types import JsonObject

CONTENT_TYPE = "text/calendar; charset=utf-8"
MAX_LINE_BYTES = 75  # octets of a line, without the line break (section 3.1)

_NOT_IN_TEXT = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # control characters (section 3.3.11)

HEAD = (
    "BEGIN:VCALENDAR",
    "VERSION:2.0",
    "PRODID:-//cx-service//Events//EN",
    "CALSCALE:GREGORIAN",
    "NAME:Events",  # RFC 7986; many programs support the next line only
    "X-WR-CALNAME:Events",
    "REFRESH-INTERVAL;VALUE=DURATION:PT1H",
    "X-PUBLISHED-TTL:PT1H",
)
# The component of a calendar without events: at least one is required (section 3.6). All times are in UTC.
EMPTY = (
    "BEGIN:VTIMEZONE",
    "TZID:Etc/UTC",
    "BEGIN:STANDARD",
    "DTSTART:19700101T000000",
    "TZOFFSETFROM:+0000",
    "TZOFFSETTO:+0000",
    "END:STANDARD",
    "END:VTIMEZONE",
)


def calendar(events: Iterable[JsonObject]) -> bytes:
    """Return a calendar of events, given with the members of the API's resource."""
    lines = (line for event in events for line in _event(event))
    first = next(lines, None)
    output = bytearray()  # a list of the lines of a large calendar would take many times its size
    for line in chain(HEAD, EMPTY if first is None else chain([first], lines), ["END:VCALENDAR"]):
        output += fold(line) + b"\r\n"
    return bytes(output)


def _event(event: JsonObject) -> Iterator[str]:
    title = escape(event["title"])
    yield "BEGIN:VEVENT"
    yield f"UID:{event['id']}"
    yield f"DTSTAMP:{date_time(event['updated_at'])}"  # without a METHOD: the last revision (section 3.8.7.2)
    yield f"CREATED:{date_time(event['created_at'])}"
    yield f"LAST-MODIFIED:{date_time(event['updated_at'])}"
    yield f"DTSTART:{date_time(event['starts_at'])}"
    if event["ends_at"] and date_time(event["ends_at"]) > date_time(
        event["starts_at"]
    ):  # must be later (section 3.8.2.2)
        yield f"DTEND:{date_time(event['ends_at'])}"
    yield f"SUMMARY:{title}"
    if event["notes"]:
        yield f"DESCRIPTION:{escape(event['notes'])}"
    yield "CLASS:PRIVATE"
    if event["is_time_sensitive"]:
        yield "PRIORITY:1"
    if event["reminder_at"]:
        yield "BEGIN:VALARM"
        yield "ACTION:DISPLAY"
        yield f"DESCRIPTION:{title}"
        yield f"TRIGGER;VALUE=DATE-TIME:{date_time(event['reminder_at'])}"
        yield "END:VALARM"
    yield "END:VEVENT"


def date_time(timestamp: str) -> str:
    """Return a timestamp as DATE-TIME in UTC; fractions of a second are truncated (section 3.3.5)."""
    return f"{timestamp[:19].replace('-', '').replace(':', '')}Z"


def escape(text: str) -> str:
    r"""Return a text as a TEXT value (section 3.3.11).

    Characters that some programs read as a line break become `\n`.
    """
    escaped = re.sub(r"([\\;,])", r"\\\1", text)
    return r"\n".join(_NOT_IN_TEXT.sub("", line) for line in escaped.splitlines())


def fold(line: str) -> bytes:
    """Return a line, folded into parts of at most 75 octets that do not split a character (section 3.1)."""
    raw = line.encode()
    parts, start, size = [], 0, MAX_LINE_BYTES
    while len(raw) - start > size:
        end = start + size
        while raw[end] & 0xC0 == 0x80:  # inside a character
            end -= 1
        parts.append(raw[start:end])
        start, size = end, MAX_LINE_BYTES - 1  # the leading space of a continuation counts
    return b"\r\n ".join([*parts, raw[start:]])
