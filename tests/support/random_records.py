"""Random lines for the import, of all kinds without pictures; about a tenth has an error."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from service import validators
from service.fields import (
    Boolean,
    Choice,
    Document,
    Identifier,
    Integer,
    Integers,
    JsonAsBytes,
    Number,
    Strings,
    Text,
    Timestamp,
    TimestampFlag,
    UlidIdentifier,
    members,
)
from service.models import RECORDS
from service.models.actions import Actions
from service.models.canned_replies import check_shortcut
from service.models.feedback import screenshot_address
from service.models.ratings import MAX_SCORE

PICTURES = ("avatar", "message_image", "feedback_screenshot", "bot_picture")
KINDS = tuple(kind for kind in RECORDS if kind not in PICTURES)
IDS = 400  # of each kind that lines refer to
TEXTS = ("", "a", "Hello", "Zoë in 東京", 'a "quoted": text', "back\\slash", "a : b", "line\nbreak", "🐈", "x" * 60)
VALID_TEXTS: dict[Any, list[str]] = {
    validators.identifier: ["42", "Alice", "00000000-0000-4000-8000-00000000000a"],
    validators.email_address: ["ada@example.com", "é@b"],
    validators.slug: ["general", "Bug-2"],
    validators.web_address: ["https://example.com/ü?x=1"],
    screenshot_address: ["https://example.com/shot.png?at=1"],
    validators.phone_number: ["+4930123456"],
    validators.accept_language: ["en", "fr-CH, fr, en"],
    validators.language_tag: ["en", "sr-Latn-RS"],
    validators.time_zone: ["UTC", "Asia/Kolkata"],
    check_shortcut: ["thanks", "/営業"],
}
NUMBERS = (0, 1, -1, 255, 256, 2**63 - 1, -(2**63), 2**63, 10**30)
STAMPS = (
    "2026-11-20T10:00:00.000Z",
    "2026-02-28T23:59:59.999Z",
    "2026-11-20T10:00:00Z",
    "2026-11-20t10:00:00.123456+05:30",
    "1970-01-01T00:00:00.000Z",
)
BAD_STAMPS = ("2026-02-30T10:00:00.000Z", "2026-11-20", "2026-11-20T24:00:00.000Z", "0000-01-01T00:00:00.000Z")


def identifier(kind: str, number: int) -> str:
    """Return an identifier of a record; every tenth in the other case."""
    text = f"01K{number:023}" if kind == "message" else f"00000000-0000-4000-8abc-{number:012}"
    swapped = text.lower() if kind == "message" else text.upper()
    return swapped if number % 10 == 0 else text


def lines(count: int, seed: int) -> Iterator[bytes]:
    """Yield lines: first those that the others refer to, which are valid."""
    chance = random.Random(seed)
    for kind in ("app", "user", "bot", "chat_session"):
        for number in range(IDS):
            yield _encoded(chance, {kind: _row(chance, kind, number)}, unusual=False)
    for number in range(count):
        kind = chance.choice(KINDS)
        record: dict[str, Any] = {kind: _row(chance, kind, number)}
        yield _broken(chance, record) if chance.random() < 0.1 else _encoded(chance, record, unusual=True)


def _row(chance: random.Random, kind: str, number: int) -> dict[str, Any]:
    columns = members(RECORDS[kind], export=True)
    row: dict[str, Any] = {"id": identifier(kind, number)} if "id" in columns else {}
    for name, column in columns.items():
        is_needed = column.wire is not None and not isinstance(column, TimestampFlag) and not _may_be_left_out(column)
        if name != "id" and (is_needed or chance.random() < 0.5):
            row[name] = _value(chance, column)
    if kind == "user":
        row |= {"email": f"{number}@example.com"}
    if kind == "event" and row.get("source_event_id"):
        row["source_event_id"] = str(number)
    if kind == "chat_rating":
        row["score"] = 1 + number % MAX_SCORE
    if kind == "message" and chance.random() < 0.3:
        row["text"] = chance.choice(TEXTS)
    # Their defaults depend on the time, or are random.
    fixed = {"created_at": STAMPS[0], "updated_at": STAMPS[0], "conversation_id": identifier("app", number)}
    return row | {name: value for name, value in fixed.items() if name in columns}


def _action(chance: random.Random, number: int) -> dict[str, Any]:
    labels = [text for text in TEXTS if text and "\n" not in text]
    payload = {"payload": chance.choice((None, {}, {"a": [1, {"b": None}]}))} if chance.random() < 0.5 else {}
    return {"id": f"{number}", "label": chance.choice(labels), **payload}


def _may_be_left_out(column: Any) -> bool:
    return column.null or column.default is not None


def _value(chance: random.Random, column: Any) -> Any:
    if getattr(column, "null", False) and chance.random() < 0.3:
        return None
    if isinstance(column, (Identifier, UlidIdentifier)):
        return identifier(column.refers_to or "app", chance.randrange(IDS))
    if isinstance(column, Choice):
        return chance.choice(column.wire.__args__)
    if isinstance(column, Text):
        return chance.choice(VALID_TEXTS[column.validator] if column.validator else TEXTS[1:])
    choices: dict[type, Callable[[], Any]] = {
        Timestamp: lambda: chance.choice(STAMPS),
        Boolean: lambda: chance.random() < 0.5,
        TimestampFlag: lambda: chance.random() < 0.5,
        Integer: lambda: chance.choice(NUMBERS),
        Number: lambda: chance.choice((0, 4.5, -0.0, 1e300, 1e-310, 3, chance.uniform(-9, 9))),
        JsonAsBytes: lambda: chance.choice((_json(chance, 3), _bytes_of(chance), [], None)),
        Document: lambda: {chance.choice(TEXTS): _json(chance, 2) for _ in range(chance.randrange(3))},
        Integers: lambda: [chance.choice(NUMBERS[:7]) for _ in range(chance.randrange(4))],
        Actions: lambda: [_action(chance, number) for number in range(chance.randrange(3))],
        Strings: lambda: [f"tool-{number}" for number in range(1 + chance.randrange(3))],
    }
    return next(make for type_, make in choices.items() if isinstance(column, type_))()


def _json(chance: random.Random, depth: int) -> Any:
    simple = (None, True, 1.5, chance.choice(NUMBERS), chance.choice(TEXTS), {"text": chance.choice(TEXTS)})
    if not depth or chance.random() < 0.6:
        return chance.choice(simple)
    if chance.random() < 0.5:
        return [_json(chance, depth - 1) for _ in range(chance.randrange(3))]
    return {chance.choice(TEXTS): _json(chance, depth - 1) for _ in range(chance.randrange(3))}


def _bytes_of(chance: random.Random) -> list[int]:
    text = json.dumps(chance.choice(({"text": chance.choice(TEXTS)}, _json(chance, 2))), ensure_ascii=False)
    found = [*text.encode()]
    return found if chance.random() < 0.9 else [*found, chance.choice(NUMBERS[:7])]


def _encoded(chance: random.Random, record: dict[str, Any], *, unusual: bool) -> bytes:
    separators = chance.choice(((",", ":"), (", ", ": "), (" , ", " : ")) if unusual else ((",", ":"),))
    text = json.dumps(record, ensure_ascii=unusual and chance.random() < 0.3, separators=separators)
    return text.encode() + chance.choice((b"\n", b"\r\n", b" \n"))


def _broken(chance: random.Random, record: dict[str, Any]) -> bytes:
    """Return a line with an error, or with what looks like one."""
    ((kind, row),) = record.items()
    name = chance.choice([*row])
    wrong: tuple[Any, ...] = (
        None,
        True,
        7,
        1.5,
        "",
        "x" * 3000,
        "\0",
        "\ud800",
        [],
        [None],
        {},
        {"a": "\0"},
        *NUMBERS,
        *BAD_STAMPS,
    )
    changes: tuple[Callable[[], Any], ...] = (
        lambda: record | {kind: row | {name: chance.choice(wrong)}},
        lambda: record | {kind: row | {chance.choice(("unknown", "", "Id")): 1}},
        lambda: record | {kind: {other: value for other, value in row.items() if other != name}},
        lambda: record | {chance.choice(("user", "nothing")): {}},
        lambda: {chance.choice(("nothing", "Message", "")): row},
    )
    raw = json.dumps(chance.choice(changes)()).encode()
    places = [place for place in range(len(raw)) if raw[place] in b'{,:"[']
    place = chance.choice(places)
    cuts: tuple[bytes, ...] = (
        raw,
        raw[:place],
        raw[:place]
        + chance.choice((b"\xff", b"\xed\xa0\x80", b"\0", b"\t", b"\xef\xbb\xbf", b",", b"}"))
        + raw[place:],
        raw.replace(b'":', b'" :', 1),
        raw.replace(b'{"', b'{"created_at":null,"', 2),
        raw.replace(b"}}", b',"id":"01K00000000000000000000007"}}'),
        raw.replace(b"}}", b',"content":{"text":"a","text":"b"}}}'),
        raw.replace(b"}}", b',"rating":1e999,"payload":' + b"[" * 120 + b"]" * 120 + b"}}"),
        raw.replace(b"}}", b',"content":[1,2],"content" :[3]}}'),
        raw.replace(b"}}", b',"content":{"text":"\\ud83d\\udc08 \\u0041"}}}'),
        raw.replace(b"}}", b',"content":[1,NaN]}}'),
        raw.replace(b"}}", b',"rating":123456789012345678901234567890,"social_links":[1.0,-0]}}'),
        raw[:-1] + b"}",
        raw[:-1],
        b"[" + raw + b"]",
        b"",
        b"\x0b",
    )
    return chance.choice(cuts) + b"\n"
