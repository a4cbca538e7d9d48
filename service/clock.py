"""Time and identifiers: the one place that reads the clock, and that never lets it go backwards or stand still.

A host's clock may be set back, by a second or by a year. From then on time passes at half its speed, until the host
has caught up: what has expired stays so, and what waits for a moment waits twice as long at most.

Instants are whole milliseconds since 1970 inside, and RFC 3339 text with three decimals and `Z` on the wire and in
tables, which sorts as time does.
"""

import functools
import itertools
import mmap
import re
import secrets
import threading
import time
import uuid as uuid_module
from datetime import UTC, date, datetime, timedelta, timezone

from ulid import ULID

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
LAST = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z

_RFC_3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:([Zz])|([+\- ])(\d\d):(\d\d))", re.ASCII
)
_NAIVE = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", re.ASCII)

_NANOSECONDS = 1_000_000  # in a millisecond

_lock = threading.Lock()
_ahead = 0  # how far the clock that all follow is ahead of this host's
_latest = 0  # in nanoseconds, as the next: the moment that was last given here
_given = memoryview(mmap.mmap(-1, 16)).cast("q")  # by any worker, and its steady time; memory that forked workers share
_latest_ulid = 0
_series = itertools.count(secrets.randbits(79))


def host_time() -> int:
    """What the host's clock says, in milliseconds; tests replace it."""
    return time.time_ns() // 1_000_000


def steady_time() -> int:
    """Nanoseconds on a clock that nobody sets, the same in all processes of a host; tests replace it."""
    return time.monotonic_ns()


def now() -> int:
    """This moment in milliseconds, never earlier than any moment given before."""
    return not_before(host_time() + _ahead)


def follow(milliseconds: int) -> None:
    """Go by a clock that says `milliseconds` now, and that other hosts go by as well."""
    global _ahead
    _ahead = milliseconds - host_time() - 1  # both were cut to whole ones; never ahead of it
    not_before(milliseconds)  # another thread may follow at the same time, and have come from the server later than we


def not_before(milliseconds: int) -> int:
    """See that it is not before `milliseconds`, a time that the host told, or that of a row; this moment, then."""
    global _latest
    with _lock:
        # What is behind the other may be read or written between the two: then time passes too slowly, never too fast.
        given, at = _given
        steady = steady_time()
        _latest = max(_latest, milliseconds * _NANOSECONDS, given + (steady - at) // 2)
        _given[1], _given[0] = steady, _latest
        return _latest // _NANOSECONDS


def forget() -> None:
    """Forget the past, for tests that set the clock."""
    global _ahead, _latest, _latest_ulid
    with _lock:
        _ahead = _latest = _latest_ulid = _given[0] = _given[1] = 0


def timestamp(milliseconds: int | None = None) -> str:
    """RFC 3339 in UTC with three decimals: `2026-11-20T10:00:00.000Z`; without an argument, of this moment."""
    seconds, thousandths = divmod(now() if milliseconds is None else milliseconds, 1000)
    return f"{_second(seconds)}.{thousandths:03}Z"


@functools.lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    moment = _EPOCH + timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")


def milliseconds(stamp: str) -> int:
    """The instant of a timestamp that `timestamp` or `read_timestamp` made."""
    return (datetime.fromisoformat(stamp) - _EPOCH) // timedelta(milliseconds=1)


def read_timestamp(text: str, *, bare_date: str = "") -> str:
    """Any RFC 3339 date-time as our own text; digits beyond milliseconds are cut off.

    `bare_date` allows what else ISO 8601 knows: a time without an offset, in UTC, and a date alone, as the "start" or
    "end" of that day. A blank in place of the offset's plus sign is read as one, because a literal plus in a query
    arrives so. Raises ValueError with a reason.
    """
    if bare_date and _DATE.fullmatch(text):
        day = date.fromisoformat(text)
        return f"{day.isoformat()}T{'00:00:00.000' if bare_date == 'start' else '23:59:59.999'}Z"
    if bare_date and _NAIVE.fullmatch(text):
        text += "Z"
    match = _RFC_3339.fullmatch(text)
    if not match:
        raise ValueError("expected an RFC 3339 timestamp such as 2026-11-20T10:00:00Z")
    *parts, fraction, zulu, sign, hours, minutes = match.groups()
    try:
        offset = timedelta(0) if zulu else timedelta(hours=int(hours), minutes=int(minutes))
        zone = timezone(-offset if sign == "-" else offset)
        moment = datetime(*map(int, parts), int((fraction or "").ljust(6, "0")[:6]), tzinfo=zone)  # type: ignore[misc, arg-type]
        return timestamp((moment - _EPOCH) // timedelta(milliseconds=1))
    except (ValueError, OverflowError):
        raise ValueError("no such date or time") from None


def uuid() -> str:
    """A new random UUID (RFC 9562, version 4)."""
    return str(uuid_module.uuid4())


def read_uuid(text: str) -> str:
    """A hyphenated UUID in lower case. Raises ValueError for every other spelling."""
    if not _UUID.fullmatch(text):
        raise ValueError("expected a UUID")
    return text.lower()


def ulid(at: int | None = None, *, after: str = "") -> str:
    """A new ULID of the moment `at` (now), later than every other made here for that moment, and than `after`.

    Moments named by `at` may alternate, so theirs end in numbers of one rising series. An `after` that is not past yet
    is outrun by far, since others may count on from it, and draws nothing with it that is made later.
    """
    global _latest_ulid
    if at is not None:
        fresh = int.from_bytes(ULID.from_timestamp(at).bytes[:6]) << 80 | next(_series)
        return str(ULID.from_int(max(fresh, int(ULID.from_str(after)) + 1 if after else 0)))
    fresh = int(ULID.from_timestamp(now()))
    with _lock:
        if fresh < _latest_ulid or fresh >> 80 == _latest_ulid >> 80:
            fresh = _latest_ulid + 1
        _latest_ulid = fresh
    text = str(ULID.from_int(fresh))
    if text <= after:
        text = str(ULID.from_int(int(ULID.from_str(after)) + 1 + secrets.randbits(60)))
    return text


def read_ulid(text: str) -> str:
    """A ULID in upper case. Raises ValueError for every other spelling."""
    upper = text.upper()
    if not text.isascii() or not _ULID.fullmatch(upper):
        raise ValueError("expected a ULID")
    return upper


def ulid_time(text: str) -> int:
    """The moment of a ULID in milliseconds."""
    return int(ULID.from_str(text)) >> 80
