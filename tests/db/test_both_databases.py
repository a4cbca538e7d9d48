"""Responses, exports and cursors are the same bytes on SQLite and on PostgreSQL."""

from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import app
from service import clock, db, signing
from service.auth import tokens
from service.models import SigningKey
from service.operate import import_export
from service.settings import Settings
from tests.support import postgres
from tests.support import sample_data as h
from tests.support.client import Client
from tests.support.installation import settings_at
from tests.support.server_process import Record, json_lines

pytestmark = [pytest.mark.postgresql_only("needs PostgreSQL in addition to SQLite"), pytest.mark.database]

ODD_TEXTS = [
    *("", " ", "a", "A", "Z", "z", "ä", "Ä", "é", "e\u0301", "ß", "ss", "ı", "İ", "\U0001f408", "\U0001f1e8\U0001f1ed"),
    *(
        "\uffff",
        "\ufffd",
        "\u2028",
        "\u2029",
        "\x7f",
        "\x85",
        "\xa0",
        "\u200f",
        "שלום",
        "中文",
        "a b",
        "a\tb",
        "a\r\nb",
    ),
    *(
        '"',
        "\\",
        '\\"',
        "'",
        "''",
        "/",
        "</script>",
        "%",
        "_",
        "%s",
        "%(a)s",
        "?",
        "$1",
        ":a",
        "{}",
        ",\n",
        "E'\\n'",
        "\\u0041",
    ),
    *(chr(number) for number in range(1, 32)),
]
ODD_NUMBERS = [
    *(0.0, -0.0, 1.0, 4.5, 0.1, 1 / 3, 2 / 3, 1e-5, 1.5e-7, 123456.789, 1e14, 1e15, 123456789012345.0, 1e16, 1e21),
    *(1.25e22, 5e-324, 2.5e-308, 1e300, -1e300, 1.79769313486231e308, -4.0, 100.0, 1e2, 12345678901234567.0),
]
INTEGERS = [0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]
ODD_TIMES = [
    "0001-01-01T00:00:00.000Z",
    "1969-12-31T23:59:59.999Z",
    "2026-11-20T10:00:00.000Z",
    "9999-12-31T23:59:59.999Z",
]


def odd_records() -> Iterator[Record]:
    """Record whose texts, numbers, lists and times are hard to store, to sort or to render consistently."""
    numbers = cycle(ODD_NUMBERS)
    for index, text in enumerate(ODD_TEXTS):
        id, timestamp = h.uuid(1000 + index), ODD_TIMES[index % len(ODD_TIMES)]
        common: dict[str, Any] = {"id": id, "user_id": h.ALICE}
        bot = {
            "id": id,
            "app_id": h.SHOP,
            "name": text,
            "tagline": text,
            "status": "published",
            "rating": next(numbers),
        }
        yield {"bot": {**bot, "social_links": {text: [text, next(numbers), None, True]}, "is_featured": index % 3 == 0}}
        yield {
            "event": {
                **common,
                "title": text,
                "notes": text,
                "starts_at": timestamp,
                "is_time_sensitive": index % 2 == 0,
            }
        }
        yield {
            "notification": {**common, "title": text, "body": text, "created_at": timestamp, "is_read": index % 2 == 0}
        }
        yield {"feedback": {**common, "description": text or "-", "device_info": {text: next(numbers)}}}
        grant = {**common, "mcp_server_id": text or "-", "allowed_tools": [text or "-"], "scope_meta": INTEGERS}
        yield {"data_share": {**grant, "is_active": index % 2 == 0}}
        yield {"message": {"id": clock.ulid(), "chat_session_id": h.SESSION, "text": text, "is_pinned": index % 5 == 0}}
        yield {"message": {"id": clock.ulid(), "chat_session_id": h.SESSION, "content": INTEGERS, "sender_id": text}}
    for number in ODD_NUMBERS:
        yield {
            "bot": {"id": clock.uuid(), "app_id": h.SHOP, "name": "the same", "status": "published", "rating": number}
        }


class Installation:
    """An application with its database."""

    def __init__(self, settings: Settings) -> None:
        self.application = app.build(settings)
        self.engine: Any = db.database.obj
        self.settings = settings

    def use(self) -> None:
        """Make this the open database of the process."""
        db.database.obj = self.engine
        signing.forget_keys()

    def log_in(self, user_id: str) -> Client:
        self.use()
        with db.write():
            return Client(self.application, tokens.log_in(user_id, self.settings).access_token)

    def export(self) -> bytes:
        self.use()
        chunks: list[bytes] = []
        import_export.export(chunks.append)
        return b"".join(chunks)

    def import_file(self, path: Path) -> None:
        self.use()
        assert import_export.import_files([path]) == []


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Installation, Installation]]:
    """An installation on SQLite and one on PostgreSQL, with the same signing key and the same rows."""
    folder = tmp_path_factory.mktemp("both")
    (folder / "in").write_bytes(json_lines([*h.records(), *odd_records()]))
    on_sqlite = Installation(Settings(data=folder / "data", verify_answers=True))
    on_sqlite.import_file(folder / "in")
    (folder / "out").write_bytes(on_sqlite.export())
    keys = list(SigningKey.select().dicts())
    db.close_database()
    on_postgresql = Installation(settings_at(folder / "data"))
    SigningKey.delete().execute()
    SigningKey.insert_many(keys).execute()
    on_postgresql.import_file(folder / "out")
    yield on_sqlite, on_postgresql
    for installation in (on_sqlite, on_postgresql):
        installation.use()
        db.close_database()
    postgres.drop(on_postgresql.settings.database)


def test_exports_are_identical(both):
    on_sqlite, on_postgresql = both
    exported = on_sqlite.export()
    assert exported.count(b"\n") > 400
    assert on_postgresql.export() == exported


LISTS = [
    f"/chats/{h.SESSION}/messages?direction=forward",
    f"/chats/{h.SESSION}/messages?direction=backward",
    f"/chats/{h.SESSION}/pinned-messages?",
    f"/bots?app_id={h.SHOP}",
    f"/bots?app_id={h.SHOP}&search=a",
    f"/bots?app_id={h.SHOP}&search=%25",
    f"/bots?app_id={h.SHOP}&search=%5C",
    f"/bots?app_id={h.SHOP}&search=%C3%84&featured_only=true",
    "/events?",
    "/events?time_sensitive_only=true&to=2026-11-20",
    "/notifications?",
    "/notifications?unread_only=true",
    "/chats?",
    "/data-shares?",
    "/feedback?",
    "/users/me?",
    "/users/me/settings?",
]


@pytest.fixture
def get(both) -> Callable[[int, str, str], Any]:
    """Send a GET request as a user: on even turns to the first installation, on odd turns to the second."""
    clients = {}

    def get(turn: int, path: str, user_id: str) -> Any:
        installation = both[turn % 2]
        installation.use()
        if (turn % 2, user_id) not in clients:
            clients[turn % 2, user_id] = installation.log_in(user_id)
        return clients[turn % 2, user_id].get(path)

    return get


@pytest.mark.parametrize("user_id", [h.ALICE, h.AGENT], ids=["alice", "agent"])
@pytest.mark.parametrize("path", LISTS)
def test_pages_are_identical_and_cursors_are_interchangeable(path, user_id, get):
    size = "per_page=7" if path.startswith("/bots") else "limit=7"
    cursor, turn = "", 0
    while cursor or not turn:
        url = f"{path}&{size}{f'&cursor={cursor}' if cursor else ''}"
        first, second = get(turn, url, user_id), get(turn + 1, url, user_id)
        assert first.status == second.status
        assert first.raw == second.raw
        meta = first.json.get("meta", {})
        cursor, turn = meta.get("next_cursor", ""), turn + 1
    assert turn > 5 or "limit" not in first.json.get("meta", {})


@pytest.mark.parametrize("text", [text for text in ODD_TEXTS if 1 <= len(text) <= 3])
def test_search_results_are_identical(text, get):
    path = f"/bots?app_id={h.SHOP}&per_page=200&search={quote(text)}"
    first, second = (get(turn, path, h.ALICE) for turn in range(2))
    assert first.raw == second.raw
    assert first.data or not text.strip()


@pytest.mark.parametrize("value", ["%00", "a%00b", "%FF", "%ED%A0%80", "%F4%90%80%80"])
@pytest.mark.parametrize("name", ["search", "category", "app_id", "kind", "cursor", "city"])
def test_unstorable_query_values_have_identical_responses(name, value, get):
    """PostgreSQL can store neither NUL characters nor invalid UTF-8."""
    path = f"/bots?{name}={value}" if name == "app_id" else f"/bots?app_id={h.SHOP}&{name}={value}"
    first, second = (get(turn, path, h.ALICE) for turn in range(2))
    assert (first.status, first.raw) == (second.status, second.raw)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/feedback", {"description": "a\0b"}),
        ("POST", "/feedback", {"description": "a", "device_info": {"a\0": 1}}),
        ("PATCH", "/users/me/settings", {"a": "\0"}),
        ("POST", "/data-shares", {"mcp_server_id": "\0", "allowed_tools": ["a"]}),
        ("POST", "/data-shares/check", {"mcp_server_id": "\0", "tool": "a"}),
        ("POST", "/auth/login", {"email": "a\0@example.com", "password": "\0"}),
        ("POST", "/auth/refresh", {"refresh_token": "\0"}),
        ("PATCH", "/notifications/read-all", {"before": "\0"}),
        ("GET", "/events?from=%00&to=%00", None),
        ("GET", "/notifications?cursor=%00", None),
        ("GET", "//avatars/%00.webp", None),
        ("GET", "//avatars/\0.webp", None),
        ("GET", "//avatars/\xff.webp", None),
        ("GET", "/chats/\0/messages", None),
        ("DELETE", "/data-shares/\0", None),
    ],
)
def test_nul_characters_have_identical_responses(method, path, body, both):
    responses = [installation.log_in(h.ALICE).call(method, path, body) for installation in both]
    assert len({(response.status, response.raw) for response in responses}) == 1


@pytest.mark.parametrize(
    "header", ["authorization", "idempotency_key", "user_agent", "x_request_id", "accept_language"]
)
@pytest.mark.parametrize("value", ["a\0b", "\xff", "Bearer \0", "Bearer cxa_\0.\xff", "\x80" * 300])
def test_invalid_headers_have_identical_responses(header, value, both):
    responses = []
    for installation in both:
        client = installation.log_in(h.ALICE)
        responses.append(client.post("/feedback", {"description": ""}, **{header: value}))
        responses.append(client.get("/chats?limit=1", **{header: value}))
    assert [response.raw for response in responses[:2]] == [response.raw for response in responses[2:]]


@pytest.mark.parametrize("text", ["\U0001f408 \x01\x1f\x7f\u2028 \\ \" ' %s", "x" * 5000])
def test_created_records_have_identical_responses(text, both, host_clock):
    host_clock.now = clock.milliseconds("2100-01-01T00:00:00.000Z")
    bodies = []
    for installation in both:
        response = installation.log_in(h.BOB).post(
            "/feedback", {"description": text, "device_info": {text: [1.5, 1e300]}}
        )
        bodies.append(response.raw.replace(response.data["id"].encode(), b"id"))
    assert bodies[0] == bodies[1]
