"""Eight concurrent writers that record the acknowledged writes, and the checks of the database afterwards.

A write whose response was lost or had status 503 is in doubt: it was stored completely or not at all, and never twice.
"""

import contextlib
import functools
import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from service import clock, db
from tests.support.client import Reply
from tests.support.passwords import PASSWORD, PASSWORD_HASH
from tests.support.server_process import APP, Record, Served, fill, send_request

CUSTOMERS, AGENTS = 4, 4
WRITERS = CUSTOMERS + AGENTS
ENDED = {"resolved", "ended", "closed"}
PINS = 5  # of one writer; far below the limit of a chat session
CREATED = {  # rows that store a name chosen by the writer: the query of names and identifiers
    "message": "SELECT client_message_id, id FROM message",
    "feedback": "SELECT description, id FROM feedback",
    "data_share": "SELECT mcp_server_id, id FROM data_share",
    "event": "SELECT source_event_id, id FROM event",
}
TIMEOUT = 60.0  # seconds
UNBOUNDED = [f"--login-failures{of}=1000000" for of in ("", "-account", "-network")]  # a killed login counts as failed


def person(number: int) -> str:
    return f"00000000-0000-4000-8000-1{number:011}"


def session_of(number: int) -> str:
    """Return the chat session of a customer, which is also used by one agent."""
    return f"00000000-0000-4000-8000-2{number % CUSTOMERS:011}"


def email(number: int) -> str:
    return f"writer{number}@example.com"


def records() -> list[Record]:
    """Return an app, its customers with one chat session each, and its agents."""
    roles = [{"role": "user"}] * CUSTOMERS + [{"role": "agent", "app_id": APP}] * AGENTS
    people = [
        {"id": person(n), "email": email(n), "password_hash": PASSWORD_HASH, **role} for n, role in enumerate(roles)
    ]
    sessions = [{"id": session_of(n), "app_id": APP, "user_id": person(n)} for n in range(CUSTOMERS)]
    return [
        {"app": {"id": APP, "name": "Shop"}},
        *({"user": row} for row in people),
        *({"chat_session": row} for row in sessions),
    ]


class InDoubt(Exception):
    """The result of a request is unknown: the connection broke, or the status was 503."""


class Writer:
    """A writer, and its acknowledged writes."""

    def __init__(self, group: "WriterGroup", number: int, seed: int) -> None:
        self.group, self.number, self.rng = group, number, random.Random(seed * WRITERS + number)
        self.session, self.is_customer = session_of(number), number < CUSTOMERS
        self.count = self.sent = self.acknowledged = 0
        self.tokens: dict[str, str] = {}
        self.connection: http.client.HTTPConnection | None = None
        self.created: dict[str, dict[str, str]] = {kind: {} for kind in CREATED}  # identifiers by name; "" if in doubt
        self.possible_values: dict[tuple[str, str], set[Any]] = (
            {("status", self.session): {"open"}} if self.is_customer else {}
        )
        self.read: set[str] = set()  # messages whose notifications were acknowledged as read
        self.stamps: list[tuple[str, str]] = []  # identifier and created_at of messages, in the order of the responses
        self.repeat: Callable[[], None] | None = None

    # Actions.

    def step(self) -> None:
        """Perform an action, or repeat the last one that is in doubt. Raises InDoubt."""
        if self.repeat and self.rng.random() < 0.7:
            self.repeat()
            self.repeat = None
            self.group.counts["repeated"] += 1
            return
        self.repeat = None
        if not self.tokens:
            self.log_in()
            return
        actions = [self.send] * 4 + [
            self.pin,
            self.delete,
            self.give_feedback,
            self.share,
            self.plan,
            self.change_setting,
        ] * 2
        actions += [self.read_all, self.refresh] + [self.end] * self.is_customer
        self.rng.choice(actions)()

    def send(self) -> None:
        name = self.name()
        body = {"content": {"text": name}, "client_message_id": name}
        self.attempt(self.create, "message", name, f"/chats/{self.session}/messages", body)

    def give_feedback(self) -> None:
        name = self.name()
        self.attempt(self.create, "feedback", name, "/feedback", {"description": name})

    def plan(self) -> None:
        name = self.name()
        body = {"title": name, "starts_at": "2030-01-01T10:00:00Z", "source": "torture", "source_event_id": name}
        self.attempt(self.create, "event", name, "/events", body)

    def share(self) -> None:
        """Create a data share, and usually revokes it, since their number is limited."""
        name = self.name()
        body = {"mcp_server_id": name, "allowed_tools": ["read"]}
        self.attempt(self.create, "data_share", name, "/data-shares", body)
        share = self.created["data_share"][name]
        if self.rng.random() < 0.8:
            self.attempt(self.change, ("revoked", share), lambda _: True, "DELETE", f"/data-shares/{share}")

    def pin(self) -> None:
        pins = [key for key, values in self.possible_values.items() if key[0] == "pinned" and True in values]
        if len(pins) >= PINS:
            key = self.rng.choice(pins)
            self.attempt(self.change, key, lambda _: False, "DELETE", f"/chats/{self.session}/messages/{key[1]}/pin")
        elif own := self.own_message():
            path = f"/chats/{self.session}/messages/{own}/pin"
            self.attempt(self.change, ("pinned", own), lambda _: True, "POST", path)

    def delete(self) -> None:
        own = self.own_message()
        if own and ("pinned", own) not in self.possible_values and self.rng.random() < 0.3:
            path = f"/chats/{self.session}/messages/{own}"
            self.attempt(self.change, ("deleted", own), lambda _: True, "DELETE", path)

    def change_setting(self) -> None:
        """Increment a number in the settings."""
        self.count += 1
        value = self.count
        key, body = ("set", f"counter_{self.number}"), {f"counter_{self.number}": value}
        self.attempt(self.change, key, lambda _: value, "PATCH", "/users/me/settings", body)

    def end(self) -> None:
        """End the chat session; the next message of the customer reopens it."""
        key, path = ("status", self.session), f"/chats/{self.session}/end"
        self.attempt(self.change, key, lambda _: "resolved", "POST", path)

    def read_all(self) -> None:
        """Mark all notifications as read. Includes all messages acknowledged before."""
        announced = {id for writer in self.group.writers if writer is not self for id in writer.announced(self)}
        self.attempt(self._read_all, announced)

    def refresh(self) -> None:
        self.attempt(self._refresh)

    def log_in(self) -> None:
        self.attempt(self._log_in)

    # Requests.

    def attempt(self, action: Callable[..., None], *arguments: Any) -> None:
        """Perform an action. If it is in doubt, the next step may repeat it. Raises InDoubt."""
        self.repeat = functools.partial(action, *arguments)
        self.repeat()
        self.repeat = None

    def create(self, kind: str, name: str, path: str, body: dict[str, Any]) -> None:
        made, status = self.created[kind], ("status", self.session)
        made.setdefault(name, "")
        reopens = kind == "message" and self.is_customer
        before = self.possible_values.get(status, set())
        after = {"open" if value in ENDED else value for value in before}
        if reopens:
            self.possible_values[status] = before | after
        response = self.request("POST", path, body, key="" if kind == "message" else name, about=(kind, name, 0))
        assert response.status == 201, f"{kind} {name}: {response.status} {response.raw!r}"
        assert made[name] in ("", response.data["id"]), f"{kind} {name} was stored twice"
        made[name] = response.data["id"]
        if reopens:
            self.possible_values[status] = after
        if kind == "message":
            self.stamps.append((response.data["id"], response.data["created_at"]))

    def change(
        self, key: tuple[str, str], new_value_of: Callable[[Any], Any], method: str, path: str, body: Any = None
    ) -> None:
        """Change a value that only this writer changes."""
        before = self.possible_values.get(key, {None})
        after = {new_value_of(value) for value in before}
        self.possible_values[key] = before | after
        response = self.request(method, path, body, about=(*key, new_value_of(None)))
        assert response.status == 200, f"{method} {path}: {response.status} {response.raw!r}"
        self.possible_values[key] = after

    def _read_all(self, announced: set[str]) -> None:
        response = self.request("PATCH", "/notifications/read-all", {})
        assert response.status == 200, response.raw
        self.read |= announced

    def _refresh(self) -> None:
        response = self.request("POST", "/auth/refresh", {"refresh_token": self.tokens["refresh_token"]})
        assert response.status == 200, f"a valid refresh token is refused: {response.raw!r}"
        self.tokens = response.data["tokens"]

    def _log_in(self) -> None:
        response = self.request("POST", "/auth/login", {"email": email(self.number), "password": PASSWORD})
        assert response.status == 200, response.raw
        self.tokens = response.data["tokens"]

    def request(self, method: str, path: str, body: Any = None, key: str = "", about: Any = ()) -> Reply:
        """Send a request that writes. Raises InDoubt."""
        self.sent += 1
        request_id = f"{self.number}.{self.sent}"
        self.group.about[request_id] = about
        headers = {"Content-Type": "application/json", "X-Request-ID": request_id}
        headers |= {"Idempotency-Key": key} if key else {}
        start = time.monotonic()
        try:
            if self.connection is None:
                self.connection = self.group.connect()
        except OSError:
            raise InDoubt from None
        try:
            token = self.tokens.get("access_token", "")
            response = send_request(self.connection, method, f"/api/v1{path}", body, token, headers=headers)
        except (OSError, http.client.HTTPException) as error:
            self.disconnect()
            self.group.counts["lost"] += 1
            raise InDoubt from error
        self.group.slowest = max(self.group.slowest, time.monotonic() - start)
        if response.status == 503:
            assert response.error == (503, "storage_unavailable") and response.headers["Retry-After"], response.raw
            self.group.counts["refused"] += 1
            raise InDoubt
        if self.group.in_doubt:
            self.group.counts["doubtful"] += 1
            raise InDoubt
        if response.status < 300:
            self.acknowledged += 1
            self.group.counts["acknowledged"] += 1
        return response

    def disconnect(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def name(self) -> str:
        self.count += 1
        return f"{self.number}-{self.count}"

    def own_message(self) -> str:
        """Return one of its latest messages that are not deleted or in doubt; empty if there is none."""
        latest = [id for id in list(self.created["message"].values())[-20:] if id]
        remaining = [id for id in latest if ("deleted", id) not in self.possible_values]
        return self.rng.choice(remaining) if remaining else ""

    def announced(self, reader: "Writer") -> set[str]:
        """Return its acknowledged messages about which a reader was notified."""
        if reader.session != self.session or not reader.is_customer:
            return set()
        return {id for id in list(self.created["message"].values()) if id}


class WriterGroup:
    """Eight writers, and the checks of their writes."""

    def __init__(self, data: Path, seed: int) -> None:
        self.data, self.seed = data, seed
        self.counts: Counter[str] = Counter()
        self.slowest = 0.0  # seconds, of a response
        self.in_doubt = False  # whether all responses are in doubt
        self.errors: list[str] = []
        self.about: dict[str, Any] = {}  # by request identifier: what the request creates or changes, and the new value
        self.server: Served | None = None
        self.writers = [Writer(self, number, seed) for number in range(WRITERS)]
        fill(data, records())

    def connect(self) -> http.client.HTTPConnection:
        if self.server is None:
            raise ConnectionRefusedError
        connection = self.server.connect()
        connection.connect()
        return connection

    @contextlib.contextmanager
    def at_work(self, server: Served) -> Iterator[None]:
        """Write to a server during the block."""
        self.server, stopped = server, threading.Event()

        def work(writer: Writer) -> None:
            while not stopped.is_set():
                try:
                    writer.step()
                except InDoubt:
                    stopped.wait(0.02)
                except Exception as error:
                    self.errors.append(f"writer {writer.number}: {error!r}")
                    return
            writer.disconnect()

        threads = [threading.Thread(target=work, args=(writer,)) for writer in self.writers]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stopped.set()
            for thread in threads:
                thread.join(60)
            assert not any(thread.is_alive() for thread in threads), "a request hangs"
            assert not self.errors, self.errors[:3]

    # Checks.

    def check_stored(self, data: Path | None = None, *, has_all_keys: bool = True) -> None:
        """Check the database: all acknowledged writes are stored, and the rows are consistent."""
        with rows_of(data or self.data) as rows:
            check_consistency(rows, has_all_keys=has_all_keys)
            for kind, sql in CREATED.items():
                self._check_created(kind, rows(sql))
            self._check_values(values_in(rows))
            unread = set(rows("SELECT message_id, user_id FROM notification WHERE read_at IS NULL"))
        marked = {(id, person(writer.number)) for writer in self.writers for id in writer.read}
        assert not unread & marked, "acknowledged as read, and unread again"

    def _check_created(self, kind: str, stored: list[tuple[Any, ...]]) -> None:
        """Check that the acknowledged rows are stored with their identifiers, without duplicates and others."""
        stored_rows = dict(stored)
        assert len(stored_rows) == len(stored), f"a {kind} is stored twice"
        acknowledged_rows = {name: id for writer in self.writers for name, id in writer.created[kind].items()}
        lost = {name: id for name, id in acknowledged_rows.items() if id and stored_rows.get(name) != id}
        assert not lost, f"acknowledged and lost, {kind}: {lost}"
        assert stored_rows.keys() <= acknowledged_rows.keys(), (
            f"unknown {kind}: {stored_rows.keys() - acknowledged_rows.keys()}"
        )

    def _check_values(self, stored: dict[str, dict[str, Any]]) -> None:
        for writer in self.writers:
            for (kind, key), values in writer.possible_values.items():
                found = stored[kind].get(key)
                expected = {value or None for value in values}
                assert (found or None) in expected, f"{kind} of {key}: expected one of {values}, found {found}"

    def check_responses(self, server: Served) -> None:
        """Check the responses of a restarted server to all writers."""
        self.server = server
        for writer in self.writers:
            with contextlib.closing(server.connect()) as connection:
                self._check_writer(writer, functools.partial(_get, connection, writer))

    def _check_writer(self, writer: Writer, get: Callable[[str], Reply]) -> None:
        settings = get("/users/me/settings").data
        own = {key[1]: values for key, values in writer.possible_values.items() if key[0] == "set"}
        assert all(settings.get(name) in values for name, values in own.items())
        for kind, path, name in (("feedback", "/feedback", "description"), ("event", "/events", "source_event_id")):
            stored_rows = {row[name]: row["id"] for row in _walk(get, path)}
            assert {name: id for name, id in writer.created[kind].items() if id}.items() <= stored_rows.items(), kind
        active = {row["id"] for row in get("/data-shares").data}
        for id in filter(None, writer.created["data_share"].values()):
            revoked = writer.possible_values.get(("revoked", id), {None})
            assert {None if id in active else True} <= revoked, f"data share {id}"
        path = f"/chats/{writer.session}/messages"
        messages = list(_walk(get, path))
        texts = {row["id"]: json.loads(bytes(row["content"]))["text"] for row in messages}
        assert len(texts) == len(messages) == get(f"{path}?limit=1").meta["total"]
        for name, id in writer.created["message"].items():
            if id and True not in writer.possible_values.get(("deleted", id), ()):
                assert texts[id] == name
        pinned = {row["id"] for row in get(f"/chats/{writer.session}/pinned-messages").data}
        assert pinned == {row["id"] for row in messages if row["is_pinned"]}
        notifications = list(_walk(get, "/notifications"))
        unread = sum(not row["is_read"] for row in notifications)
        assert unread == get("/notifications?limit=1").meta["unread_count"]
        assert unread == get("/notifications/unread-count").data["unread_count"]


Rows = Callable[[str], list[tuple[Any, ...]]]


@contextlib.contextmanager
def rows_of(data: Path) -> Iterator[Rows]:
    """Yield a function that queries the database file."""
    with contextlib.closing(db.open_file(data / db.FILE_NAME)) as connection:
        yield lambda sql: connection.execute(sql).fetchall()  # type: ignore[no-any-return]


def values_in(rows: Rows) -> dict[str, dict[str, Any]]:
    """Return the stored values that writers change, by kind and key."""
    marked = {
        "pinned": "SELECT id FROM message WHERE pinned_at IS NOT NULL",
        "deleted": "SELECT id FROM message WHERE deleted_at IS NOT NULL",
        "revoked": "SELECT id FROM data_share WHERE revoked_at IS NOT NULL",
    }
    settings = [json.loads(text) for (text,) in rows('SELECT settings FROM "user"')]
    return {
        **{kind: {id: True for (id,) in rows(sql)} for kind, sql in marked.items()},
        "status": dict(rows("SELECT id, status FROM chat_session")),
        "set": {name: value for own in settings for name, value in own.items()},
    }


def check_consistency(rows: Rows, *, has_all_keys: bool = True) -> None:
    """Check that no page is damaged, and that the rows of each write are complete.

    Totals equal the numbers of rows. Each user has one notification for each message of others. The read marker of a
    sender is at the sender's last message. The rows of stored idempotency keys exist.
    """
    assert rows("PRAGMA integrity_check") == [("ok",)]
    assert rows("PRAGMA foreign_key_check") == []
    counts = "SELECT chat_session_id, count(*), count(*) FROM message WHERE deleted_at IS NULL GROUP BY 1"
    totals = {id: totals for id, *totals in rows("SELECT id, shown_total, public_total FROM chat_session")}
    assert totals == {id: [0, 0] for id in totals} | {id: counted for id, *counted in rows(counts)}
    owners = dict(rows("SELECT id, user_id FROM chat_session"))
    senders_by_session: dict[str, set[str]] = {}
    expected: Counter[tuple[str, str]] = Counter()
    for id, session, sender in rows("SELECT id, chat_session_id, sender_id FROM message ORDER BY id"):
        receivers = (senders_by_session.setdefault(session, set()) | {owners[session]}) - {sender}
        expected.update((id, user) for user in receivers)
        if sender != owners[session]:
            senders_by_session[session].add(sender)
    notified = "SELECT message_id, user_id FROM notification WHERE type = 'chat_message'"
    assert Counter(rows(notified)) == expected
    markers = rows("SELECT chat_session_id, user_id, message_id FROM read_marker")
    own = "SELECT chat_session_id, sender_id, max(id) FROM message GROUP BY 1, 2"
    assert sorted(markers) == sorted(rows(own)), "the read markers of senders are not at their last message"
    stored_keys = {key for (key,) in rows("SELECT key FROM idempotency_key")}
    made = {name for kind in ("feedback", "data_share", "event") for name, _ in rows(CREATED[kind])}
    assert stored_keys <= made and (stored_keys == made or not has_all_keys), (
        "idempotency keys do not match the stored rows"
    )


def _get(connection: http.client.HTTPConnection, writer: Writer, path: str) -> Reply:
    """Send a read, with a token that must still be valid."""
    response = send_request(connection, "GET", f"/api/v1{path}", token=writer.tokens.get("access_token", ""))
    if response.status == 401 and not writer.tokens:
        writer.log_in()
        writer.disconnect()
        return _get(connection, writer, path)
    assert response.status == 200, f"{path}: {response.status} {response.raw!r}"
    return response


def _walk(get: Callable[[str], Reply], path: str) -> Iterator[dict[str, Any]]:
    """Yield all rows of a list."""
    cursor = ""
    while True:
        page = get(f"{path}?limit=100{cursor and f'&cursor={cursor}'}")
        yield from page.data
        if not page.meta["next_cursor"]:
            return
        cursor = page.meta["next_cursor"]


def log_in_all(group: WriterGroup, server: Served) -> None:
    """Log in all writers beforehand, since a login needs a write."""
    with group.at_work(server):
        wait_until(lambda: all(writer.tokens for writer in group.writers), "no writer can log in")


def wait_until(holds: Callable[[], bool], message: str, seconds: float = TIMEOUT) -> float:
    """Wait until a condition holds. Returns the seconds."""
    start = time.monotonic()
    while not holds():
        assert time.monotonic() - start < seconds, message
        time.sleep(0.01)
    return time.monotonic() - start


def wait_until_ready(server: Served) -> None:
    """Wait until a server accepts writes."""

    def is_ready() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return server.call("GET", "/readyz").status == 200
        return False

    wait_until(is_ready, "not ready")


def is_increasing(stamps: list[tuple[str, str]]) -> bool:
    """Return whether identifiers increase, times do not decrease, and each identifier matches its time."""
    pairs = list(zip(stamps, stamps[1:], strict=False))
    return all(a[0] < b[0] and a[1] <= b[1] for a, b in pairs) and all(
        clock.milliseconds(at) <= clock.ulid_time(id) + 1 for id, at in stamps
    )
