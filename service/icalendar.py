"""A calendar as programs subscribe to it: iCalendar (RFC 5545)."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

CONTENT_TYPE = "text/calendar; charset=utf-8"
LONGEST = 75  # octets of a line, without its end (section 3.1)

_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # in a text (section 3.3.11)

HEAD = (
    "BEGIN:VCALENDAR",
    "VERSION:2.0",
    "PRODID:-//cx-service//Events//EN",
    "CALSCALE:GREGORIAN",
    "NAME:Events",  # RFC 7986; many programs know the next line only
    "X-WR-CALNAME:Events",
    "REFRESH-INTERVAL;VALUE=DURATION:PT1H",
    "X-PUBLISHED-TTL:PT1H",
)
# A calendar must hold something (section 3.6); the time zone that all our times are in does no harm.
NOTHING = (
    "BEGIN:VTIMEZONE",
    "TZID:Etc/UTC",
    "BEGIN:STANDARD",
    "DTSTART:19700101T000000",
    "TZOFFSETFROM:+0000",
    "TZOFFSETTO:+0000",
    "END:STANDARD",
    "END:VTIMEZONE",
)


def calendar(events: Iterable[dict[str, Any]]) -> bytes:
    """A calendar of events, which have the members of the document's resource."""
    inside = (line for event in events for line in _event(event))
    first = next(inside, None)
    whole = bytearray()  # the lines of a large calendar would take many times its size
    for line in chain(HEAD, NOTHING if first is None else chain([first], inside), ["END:VCALENDAR"]):
        whole += fold(line) + b"\r\n"
    return bytes(whole)


def _event(event: dict[str, Any]) -> Iterator[str]:
    title = escape(event["title"])
    yield "BEGIN:VEVENT"
    yield f"UID:{event['id']}"
    yield f"DTSTAMP:{moment(event['updated_at'])}"  # without a METHOD, when it was last revised (section 3.8.7.2)
    yield f"CREATED:{moment(event['created_at'])}"
    yield f"LAST-MODIFIED:{moment(event['updated_at'])}"
    yield f"DTSTART:{moment(event['starts_at'])}"
    if event["ends_at"] and moment(event["ends_at"]) > moment(event["starts_at"]):  # nothing else may stand there
        yield f"DTEND:{moment(event['ends_at'])}"
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
        yield f"TRIGGER;VALUE=DATE-TIME:{moment(event['reminder_at'])}"
        yield "END:VALARM"
    yield "END:VEVENT"


def moment(stamp: str) -> str:
    """A timestamp as DATE-TIME in UTC; fractions of a second are cut off (section 3.3.5)."""
    return f"{stamp[:19].replace('-', '').replace(':', '')}Z"


def escape(text: str) -> str:
    """A text as a value (section 3.3.11). Whatever some program may take for the end of a line becomes one."""
    marked = re.sub(r"([\\;,])", r"\\\1", text)
    return r"\n".join(_UNSENDABLE.sub("", line) for line in marked.splitlines())


def fold(line: str) -> bytes:
    """A line in pieces of at most 75 octets, none of which ends within a character (section 3.1)."""
    raw = line.encode()
    pieces, start, room = [], 0, LONGEST
    while len(raw) - start > room:
        end = start + room
        while raw[end] & 0xC0 == 0x80:  # in the middle of a character
            end -= 1
        pieces.append(raw[start:end])
        start, room = end, LONGEST - 1  # the blank counts
    return b"\r\n ".join([*pieces, raw[start:]])
