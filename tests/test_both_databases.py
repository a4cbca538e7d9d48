"""The bytes of an answer, of an export and of a cursor do not tell which database is behind them."""

from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import app
from service import clock, db, transfer
from service.auth import signing, tokens
from service.models import SigningKey
from service.settings import Settings
from tests import household as h
from tests import postgres
from tests.conftest import Client, at
from tests.serving import Record, json_lines

pytestmark = pytest.mark.skipif(f"'{postgres.SERVER}' not in os.environ", reason="needs PostgreSQL, beside SQLite")

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
    """Records whose texts, numbers, lists and times are hard to store, to sort or to render alike."""
    numbers = cycle(ODD_NUMBERS)
    for place, text in enumerate(ODD_TEXTS):
        id, moment = h.uuid(1000 + place), ODD_TIMES[place % len(ODD_TIMES)]
        own: dict[str, Any] = {"id": id, "user_id": h.ALICE}
        bot = {
            "id": id,
            "app_id": h.SHOP,
            "name": text,
            "tagline": text,
            "status": "published",
            "rating": next(numbers),
        }
        yield {"bot": {**bot, "social_links": {text: [text, next(numbers), None, True]}, "is_featured": place % 3 == 0}}
        yield {"event": {**own, "title": text, "notes": text, "starts_at": moment, "is_time_sensitive": place % 2 == 0}}
        yield {"notification": {**own, "title": text, "body": text, "created_at": moment, "is_read": place % 2 == 0}}
        yield {"feedback": {**own, "description": text or "-", "device_info": {text: next(numbers)}}}
        grant = {**own, "mcp_server_id": text or "-", "allowed_tools": [text or "-"], "scope_meta": INTEGERS}
        yield {"data_share": {**grant, "is_active": place % 2 == 0}}
        yield {"message": {"id": clock.ulid(), "chat_session_id": h.SESSION, "text": text, "is_pinned": place % 5 == 0}}
        yield {"message": {"id": clock.ulid(), "chat_session_id": h.SESSION, "content": INTEGERS, "sender_id": text}}
    for number in ODD_NUMBERS:
        yield {
            "bot": {"id": clock.uuid(), "app_id": h.SHOP, "name": "the same", "status": "published", "rating": number}
        }


class Installation:
    """A service, its database, and Alice and an agent who are logged in."""

    def __init__(self, settings: Settings) -> None:
        self.application = app.build(settings)
        self.engine: Any = db.database.obj
        self.settings = settings

    def use(self) -> None:
        """From now on, this process works on this database."""
        db.database.obj = self.engine
        signing.forget_keys()

    def log_in(self, user_id: str) -> Client:
        self.use()
        with db.write():
            return Client(self.application, tokens.begin(user_id, self.settings).access_token)

    def export(self) -> bytes:
        self.use()
        told: list[bytes] = []
        transfer.give_out(told.append)
        return b"".join(told)

    def take_in(self, path: Path) -> None:
        self.use()
        assert transfer.take_in([path]) == []


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Installation, Installation]]:
    """An installation on SQLite and one on PostgreSQL, with the same signing key and the same rows."""
    folder = tmp_path_factory.mktemp("both")
    (folder / "in").write_bytes(json_lines([*h.records(), *odd_records()]))
    on_sqlite = Installation(Settings(data=folder / "data", verify_answers=True))
    on_sqlite.take_in(folder / "in")
    (folder / "out").write_bytes(on_sqlite.export())
    keys = list(SigningKey.select().dicts())
    db.close_database()
    on_postgresql = Installation(at(folder / "data"))
    SigningKey.delete().execute()
    SigningKey.insert_many(keys).execute()
    on_postgresql.take_in(folder / "out")
    yield on_sqlite, on_postgresql
    for installation in (on_sqlite, on_postgresql):
        installation.use()
        db.close_database()
    postgres.drop(on_postgresql.settings.database)


def test_an_export_is_the_same_bytes(both):
    on_sqlite, on_postgresql = both
    told = on_sqlite.export()
    assert told.count(b"\n") > 400
    assert on_postgresql.export() == told


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
def ask(both) -> Callable[[int, str, str], Any]:
    """Asks the one or the other, in turn, as one person."""
    clients = {}

    def get(turn: int, path: str, who: str) -> Any:
        installation = both[turn % 2]
        installation.use()
        if (turn % 2, who) not in clients:
            clients[turn % 2, who] = installation.log_in(who)
        return clients[turn % 2, who].get(path)

    return get


@pytest.mark.parametrize("who", [h.ALICE, h.AGENT], ids=["alice", "agent"])
@pytest.mark.parametrize("path", LISTS)
def test_a_list_is_the_same_bytes_on_every_page_and_its_cursors_lead_on_in_the_other(path, who, ask):
    size = "per_page=7" if path.startswith("/bots") else "limit=7"
    cursor, turn = "", 0
    while cursor or not turn:
        asked = f"{path}&{size}{f'&cursor={cursor}' if cursor else ''}"
        here, there = ask(turn, asked, who), ask(turn + 1, asked, who)
        assert here.status == there.status
        assert here.raw == there.raw
        meta = here.json.get("meta", {})
        cursor, turn = meta.get("next_cursor", ""), turn + 1
    assert turn > 5 or "limit" not in here.json.get("meta", {})


@pytest.mark.parametrize("text", [text for text in ODD_TEXTS if 1 <= len(text) <= 3])
def test_a_search_finds_the_same(text, ask):
    path = f"/bots?app_id={h.SHOP}&per_page=200&search={quote(text)}"
    here, there = (ask(turn, path, h.ALICE) for turn in range(2))
    assert here.raw == there.raw
    assert here.data or not text.strip()


@pytest.mark.parametrize("value", ["%00", "a%00b", "%FF", "%ED%A0%80", "%F4%90%80%80"])
@pytest.mark.parametrize("name", ["search", "category", "app_id", "kind", "cursor", "city"])
def test_what_no_database_could_take_is_answered_alike(name, value, ask):
    """NUL, and bytes that are no UTF-8: PostgreSQL stores neither."""
    path = f"/bots?{name}={value}" if name == "app_id" else f"/bots?app_id={h.SHOP}&{name}={value}"
    here, there = (ask(turn, path, h.ALICE) for turn in range(2))
    assert (here.status, here.raw) == (there.status, there.raw)


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
def test_a_nul_is_refused_alike(method, path, body, both):
    replies = [each.log_in(h.ALICE).call(method, path, body) for each in both]
    assert len({(reply.status, reply.raw) for reply in replies}) == 1


@pytest.mark.parametrize(
    "header", ["authorization", "idempotency_key", "user_agent", "x_request_id", "accept_language"]
)
@pytest.mark.parametrize("value", ["a\0b", "\xff", "Bearer \0", "Bearer cxa_\0.\xff", "\x80" * 300])
def test_a_header_that_holds_one_is_answered_alike(header, value, both):
    replies = []
    for each in both:
        client = each.log_in(h.ALICE)
        replies.append(client.post("/feedback", {"description": ""}, **{header: value}))
        replies.append(client.get("/chats?limit=1", **{header: value}))
    assert [reply.raw for reply in replies[:2]] == [reply.raw for reply in replies[2:]]


@pytest.mark.parametrize("text", ["\U0001f408 \x01\x1f\x7f\u2028 \\ \" ' %s", "x" * 5000])
def test_what_is_written_is_answered_in_the_same_bytes(text, both, host_clock):
    host_clock.now = clock.milliseconds("2100-01-01T00:00:00.000Z")
    found = []
    for each in both:
        reply = each.log_in(h.BOB).post("/feedback", {"description": text, "device_info": {text: [1.5, 1e300]}})
        found.append(reply.raw.replace(reply.data["id"].encode(), b"its id"))
    assert found[0] == found[1]
