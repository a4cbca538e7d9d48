"""Time and identifiers. The only module that reads the clock; its time never goes backwards and never stops.

If the clock of the host is set back, by a second or by a year, time passes at half speed until the host has caught up.
So expired things stay expired, and a timeout takes at most twice as long.

In Python, an instant is an integer of milliseconds since 1970. On the wire and in tables, it is an RFC 3339 text with
three decimals and `Z`, which sorts chronologically.
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

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
MAX_TIME = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z

_RFC_3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:([Zz])|([+\- ])(\d\d):(\d\d))", re.ASCII
)
_NAIVE = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_OWN_FORM = re.compile(r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z", re.ASCII)  # of `timestamp`
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", re.ASCII)
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # of ULIDs
_BASE_32 = str.maketrans(_DIGITS, "0123456789abcdefghijklmnopqrstuv")  # to Python's digits

_NANOSECONDS = 1_000_000  # in a millisecond

_lock = threading.Lock()
_offset = 0  # milliseconds by which the clock that all instances share is ahead of the clock of this host
_latest = 0  # nanoseconds: the latest time that this process has returned
# Shared with forked workers: the latest time that any of them has returned, and its `monotonic_time`.
_shared = memoryview(mmap.mmap(-1, 16)).cast("q")
_latest_ulid = 0
_sequence = itertools.count(secrets.randbits(79))


def host_time() -> int:
    """Return the time of the host's clock in milliseconds. Tests replace it."""
    return time.time_ns() // 1_000_000


def monotonic_time() -> int:
    """Return the nanoseconds of a clock that cannot be set, the same in all processes of a host. Tests replace it."""
    return time.monotonic_ns()


def now() -> int:
    """Return the current time in milliseconds, never earlier than a time that was returned before."""
    return advance_to(host_time() + _offset)


def synchronize(milliseconds: int) -> None:
    """Use a clock that several hosts share, and whose time is `milliseconds` now."""
    global _offset
    _offset = milliseconds - host_time() - 1  # both are truncated; never ahead of the shared clock
    advance_to(milliseconds)  # another thread may set an older offset at the same time


def advance_to(milliseconds: int) -> int:
    """Advance the time to at least `milliseconds`, the time of the host or of a row. Returns the current time."""
    global _latest
    with _lock:
        # Another process may write between these two reads, or read between the two writes. Then the result is a pair
        # of an older time and a later monotonic time: time passes too slowly, never too fast.
        shared, written_at = _shared
        monotonic = monotonic_time()
        _latest = max(_latest, milliseconds * _NANOSECONDS, shared + (monotonic - written_at) // 2)
        _shared[1], _shared[0] = monotonic, _latest
        return _latest // _NANOSECONDS


def reset() -> None:
    """Return to the initial state. For tests that set the clock back."""
    global _offset, _latest, _latest_ulid
    with _lock:
        _offset = _latest = _latest_ulid = _shared[0] = _shared[1] = 0


def timestamp(milliseconds: int | None = None) -> str:
    """Return an RFC 3339 timestamp in UTC with three decimals, `2026-11-20T10:00:00.000Z`; by default of now."""
    seconds, thousandths = divmod(now() if milliseconds is None else milliseconds, 1000)
    return f"{_second(seconds)}.{thousandths:03}Z"


@functools.lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    instant = _EPOCH + timedelta(seconds=seconds)
    return instant.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")


def milliseconds(stamp: str) -> int:
    """Return the milliseconds since 1970 of a timestamp that `timestamp` or `read_timestamp` returned."""
    return (datetime.fromisoformat(stamp) - _EPOCH) // timedelta(milliseconds=1)


def read_timestamp(text: str, *, bare_date: str = "") -> str:
    """Return an RFC 3339 date-time in the form of `timestamp`; digits beyond milliseconds are truncated.

    With `bare_date`, two more forms of ISO 8601 are accepted: a time without an offset, which is UTC, and a date, which
    is the "start" or "end" of that day. A space in place of the plus sign of the offset is read as a plus sign,
    because an unencoded plus sign in a query is decoded to a space. Raises ValueError with the reason.
    """
    if _OWN_FORM.fullmatch(text) and _is_date(text[:10]):
        return text
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
        instant = datetime(*map(int, parts), int((fraction or "").ljust(6, "0")[:6]), tzinfo=zone)  # type: ignore[misc, arg-type]
        return timestamp((instant - _EPOCH) // timedelta(milliseconds=1))
    except (ValueError, OverflowError):
        raise ValueError("no such date or time") from None


@functools.lru_cache(maxsize=1024)
def _is_date(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


def uuid() -> str:
    """Return a new random UUID (RFC 9562, version 4)."""
    return str(uuid_module.uuid4())


def read_uuid(text: str) -> str:
    """Return a hyphenated UUID in lower case. Raises ValueError for other notations."""
    if not _UUID.fullmatch(text):
        raise ValueError("expected a UUID")
    return text.lower()


def ulid(at: int | None = None, *, after: str = "") -> str:
    """Return a new ULID with the time `at` (default: now), greater than all others made here for it, and than `after`.

    Callers may alternate between values of `at`, so these ULIDs end in a number from one increasing sequence. If
    `after` is in the future, the result is greater by a large random number, because other processes may count on from
    `after` as well; later ULIDs are not affected.
    """
    global _latest_ulid
    if at is not None:
        made = ulid_of(at << 80 | next(_sequence))
        return max(made, ulid_of(ulid_number(after) + 1)) if after else made
    number = now() << 80 | secrets.randbits(80)
    with _lock:
        if number < _latest_ulid or number >> 80 == _latest_ulid >> 80:
            number = _latest_ulid + 1
        _latest_ulid = number
    text = ulid_of(number)
    if text <= after:
        text = ulid_of(ulid_number(after) + 1 + secrets.randbits(60))
    return text


def first_ulid(at: int) -> str:
    """Return the smallest ULID with a time in milliseconds."""
    return ulid_of(at << 80)


def ulid_of(number: int) -> str:
    """Return the ULID with a number of 128 bits: the time in milliseconds, then 80 bits.

    Raises OverflowError for others.
    """
    if number >> 128:
        raise OverflowError("not a number of 128 bits")
    return "".join([_DIGITS[number >> shift & 31] for shift in range(125, -1, -5)])


def ulid_number(text: str) -> int:
    """Return the number of a ULID that `ulid_of` or `read_ulid` returned."""
    return int(text.translate(_BASE_32), 32)


def read_ulid(text: str) -> str:
    """Return a ULID in upper case. Raises ValueError for other notations."""
    upper = text.upper()
    if not text.isascii() or not _ULID.fullmatch(upper):
        raise ValueError("expected a ULID")
    return upper


def ulid_time(text: str) -> int:
    """Return the time of a ULID in milliseconds since 1970."""
    return int(read_ulid(text)[:10].translate(_BASE_32), 32)
