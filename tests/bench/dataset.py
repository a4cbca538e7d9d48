"""The data of the benchmark: records for the import of the service, and copied from it to the other servers."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

SHOP, ALICE, BOB, TALK, NOTES, OTHERS, LONG, SHORT = (f"00000000-0000-4000-8000-{number:012}" for number in range(1, 9))
EMAIL, PASSWORD = "alice@example.com", "correct horse battery staple"
START = "2026-01-01T00:00:00.000Z"
RARE = "narwhal"  # a word in 20 bots

WORDS = "the parcel you ordered leaves today and Zoë asks whether plans for 東京 still hold, please tell us"
PIN_SESSIONS, PINS_EACH = 8, 60

Record = dict[str, dict[str, Any]]


class Size(NamedTuple):
    """The amount of data."""

    messages: int  # of the long session
    bots: int
    others: int = 1_000  # rows of other kinds


FULL, QUICK, LITTLE = (
    Size(messages=1_000_000, bots=100_000),
    Size(messages=50_000, bots=10_000),
    Size(messages=40, bots=40, others=101),
)


def uuid(kind: int, number: int) -> str:
    return f"00000000-0000-4000-{0x8000 + kind:04x}-{number:012}"


def ulid(number: int) -> str:
    return f"01K{number:023}"


def text(number: int) -> str:
    """Return a text of a message whose JSON has about 1 kB."""
    return f"{number}: {WORDS[: 44 + number % 25 * 2]}"


def people() -> Iterator[Record]:
    """Yield an app; Alice, who sends the requests; and Bob, who has as much data."""
    settings = {
        "appearance": {"language": "de", "theme": "dark"},
        "chat_language": "de",
        "notifications": {"email_enabled": False, "marketing_enabled": False, "push_enabled": True},
        "privacy": {"share_analytics": False, "show_read_receipts": True, "show_typing_indicator": False},
    }
    yield {"app": {"id": SHOP, "name": "Shop"}}
    yield {"user": {"id": ALICE, "email": EMAIL, "password": PASSWORD, "settings": settings}}
    yield {"user": {"id": BOB, "email": "bob@example.com"}}


def session(id: str, messages: range, user_id: str = ALICE) -> Iterator[Record]:
    """Yield a chat session of a user without a bot."""
    yield {"chat_session": {"id": id, "app_id": SHOP, "user_id": user_id, "created_at": START}}
    for number in messages:
        yield {"message": {"id": ulid(number), "chat_session_id": id, "sender_id": user_id, "text": text(number)}}


def pinned_session(number: int) -> str:
    return uuid(9, number)


def pinnable() -> list[tuple[str, str]]:
    """Return chat sessions and messages to pin, below the limit of pins per session."""
    first = 100_000_000
    return [
        (pinned_session(place), ulid(first + place * PINS_EACH + number))
        for number in range(PINS_EACH)
        for place in range(PIN_SESSIONS)
    ]


def bots(count: int) -> Iterator[Record]:
    about = f"We answer whatever you ask about {WORDS}, day and night, in four languages."
    for number in range(count):
        word = RARE if number % (count // 20) == 0 else "parcel"
        yield {
            "bot": {
                "id": uuid(10, number),
                "app_id": SHOP,
                "name": f"Bot {number * 7919 % count:06}",
                "slug": f"bot-{number}",
                "tagline": f"Knows each {word}",
                "description": about,
                "category": "logistics",
                "kind": "bot",
                "status": "published",
                "presence": "online",
                "rating": number % 50 / 10,
                "is_featured": number % 100 == 0,
                "country": "DE",
                "city": "Berlin",
                "icon_url": f"https://shop.example/bots/{number}.png",
                "contact_email": "hello@shop.example",
                "created_at": START,
                "updated_at": START,
            }
        }


def inbox(user_id: str, kind: int, count: int) -> Iterator[Record]:
    for number in range(count):
        at = f"2026-02-{1 + number % 28:02}T10:{number // 28:02}:00.000Z"
        payload = {"message_id": ulid(number), "session_id": TALK}
        yield {
            "notification": {
                "id": uuid(kind, number),
                "user_id": user_id,
                "title": "A message from the shop",
                "body": text(number),
                "session_id": TALK,
                "payload": payload,
                "created_at": at,
                "read_at": at if number % 5 else None,
            }
        }
        yield {
            "event": {
                "id": uuid(kind + 1, number),
                "user_id": user_id,
                "app_id": SHOP,
                "title": f"Delivery {number}",
                "notes": text(number),
                "starts_at": at,
                "ends_at": f"{at[:11]}11{at[13:]}",
                "created_at": START,
                "updated_at": START,
            }
        }


def records(size: Size) -> Iterator[Record]:
    """Yield the data for all operations."""
    yield from people()
    yield from session(TALK, range(size.others))
    yield from session(NOTES, range(1_000, 1_010))
    yield from session(OTHERS, range(2_000, 2_000 + size.others), BOB)
    for place in range(PIN_SESSIONS):
        yield from session(pinned_session(place), range(0))
    for chat, message in pinnable():
        row = {"id": message, "chat_session_id": chat, "sender_id": ALICE, "text": text(int(message[3:]))}
        yield {"message": row}
    yield from bots(size.bots)
    yield from inbox(ALICE, 20, size.others // 2)
    yield from inbox(BOB, 30, size.others // 2)


def long_records(size: Size) -> Iterator[Record]:
    """Yield a long and a short chat session with the same texts."""
    yield from people()
    yield from session(SHORT, range(size.others))
    yield from session(LONG, range(1_000, 1_000 + size.messages))


LINES = {"all": records, "long": long_records}


def json_lines(records: Iterator[Record]) -> Iterator[bytes]:
    for record in records:
        yield json.dumps(record, ensure_ascii=False).encode() + b"\n"
