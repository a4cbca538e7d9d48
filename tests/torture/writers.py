"""Eight people who write at the same time, each of whom remembers what was acknowledged; and what must then be true.

A write whose answer was lost or refused is in doubt: it may be there or not, but wholly, and never twice.
"""

import contextlib
import functools
import http.client
import json
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from service import clock, db
from tests.conftest import PASSWORD, PASSWORD_HASH, Reply
from tests.serving import APP, Record, Served, ask, fill

CUSTOMERS, AGENTS = 4, 4
WRITERS = CUSTOMERS + AGENTS
OVER = {"resolved", "ended", "closed"}
PINS = 5  # that one writer keeps; far below the limit of a session
CREATED = {  # what has a name that its writer gave it: where the name is stored
    "message": "SELECT client_message_id, id FROM message",
    "feedback": "SELECT description, id FROM feedback",
    "data_share": "SELECT mcp_server_id, id FROM data_share",
    "event": "SELECT source_event_id, id FROM event",
}
PATIENCE = 60.0  # seconds until whatever is waited for will never come
UNBOUNDED = [f"--login-failures{of}=1000000" for of in ("", "-account", "-network")]  # who is killed did not succeed


def person(number: int) -> str:
    return f"00000000-0000-4000-8000-1{number:011}"


def session_of(number: int) -> str:
    """The chat session of a customer, in which an agent writes too."""
    return f"00000000-0000-4000-8000-2{number % CUSTOMERS:011}"


def email(number: int) -> str:
    return f"writer{number}@example.com"


def household() -> list[Record]:
    """An app, its customers with a chat session each, and its agents."""
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


class Unanswered(Exception):
    """Nobody knows what became of a request: the connection broke, or the service said «not now»."""


class Writer:
    """One person at work, and what they were promised."""

    def __init__(self, crew: "Crew", number: int, seed: int) -> None:
        self.crew, self.number, self.dice = crew, number, random.Random(seed * WRITERS + number)
        self.session, self.is_customer = session_of(number), number < CUSTOMERS
        self.count = self.asked = self.acknowledged = 0
        self.tokens: dict[str, str] = {}
        self.connection: http.client.HTTPConnection | None = None
        self.created: dict[str, dict[str, str]] = {kind: {} for kind in CREATED}  # identifiers by name; "" in doubt
        self.may_be: dict[tuple[str, str], set[Any]] = {("status", self.session): {"open"}} if self.is_customer else {}
        self.read: set[str] = set()  # messages whose announcement was acknowledged as read
        self.stamps: list[tuple[str, str]] = []  # identifier and created_at of messages, in the order of their answers
        self.again: Callable[[], None] | None = None

    # What they do.

    def step(self) -> None:
        """Do something; sometimes once more what was not answered. Raises Unanswered."""
        if self.again and self.dice.random() < 0.7:
            self.again()
            self.again = None
            self.crew.tally["repeated"] += 1
            return
        self.again = None
        if not self.tokens:
            self.log_in()
            return
        deeds = [self.send] * 4 + [self.pin, self.delete, self.give_feedback, self.share, self.plan, self.prefer] * 2
        deeds += [self.read_all, self.refresh] + [self.end] * self.is_customer
        self.dice.choice(deeds)()

    def send(self) -> None:
        name = self.name()
        body = {"content": {"text": name}, "client_message_id": name}
        self.does(self.create, "message", name, f"/chats/{self.session}/messages", body)

    def give_feedback(self) -> None:
        name = self.name()
        self.does(self.create, "feedback", name, "/feedback", {"description": name})

    def plan(self) -> None:
        name = self.name()
        told = {"title": name, "starts_at": "2030-01-01T10:00:00Z", "source": "torture", "source_event_id": name}
        self.does(self.create, "event", name, "/events", told)

    def share(self) -> None:
        """Give a grant, and withdraw it again at once: only so many may hold."""
        name = self.name()
        told = {"mcp_server_id": name, "allowed_tools": ["*"]}
        self.does(self.create, "data_share", name, "/data-shares", told)
        given = self.created["data_share"][name]
        if self.dice.random() < 0.8:
            self.does(self.change, ("revoked", given), lambda _: True, "DELETE", f"/data-shares/{given}")

    def pin(self) -> None:
        held = [key for key, values in self.may_be.items() if key[0] == "pinned" and True in values]
        if len(held) >= PINS:
            key = self.dice.choice(held)
            self.does(self.change, key, lambda _: False, "DELETE", f"/chats/{self.session}/messages/{key[1]}/pin")
        elif own := self.own_message():
            path = f"/chats/{self.session}/messages/{own}/pin"
            self.does(self.change, ("pinned", own), lambda _: True, "POST", path)

    def delete(self) -> None:
        own = self.own_message()
        if own and ("pinned", own) not in self.may_be and self.dice.random() < 0.3:
            path = f"/chats/{self.session}/messages/{own}"
            self.does(self.change, ("deleted", own), lambda _: True, "DELETE", path)

    def prefer(self) -> None:
        """A number that only rises, in the document of settings."""
        self.count += 1
        value = self.count
        key, body = ("set", f"counter_{self.number}"), {f"counter_{self.number}": value}
        self.does(self.change, key, lambda _: value, "PATCH", "/users/me/settings", body)

    def end(self) -> None:
        """End the chat session; the next message of theirs opens it again."""
        key, path = ("status", self.session), f"/chats/{self.session}/end"
        self.does(self.change, key, lambda _: "resolved", "POST", path)

    def read_all(self) -> None:
        """Everything that was acknowledged to anybody in their session before they asked."""
        announced = {id for writer in self.crew.writers if writer is not self for id in writer.announced(self)}
        self.does(self._read_all, announced)

    def refresh(self) -> None:
        self.does(self._refresh)

    def log_in(self) -> None:
        self.does(self._log_in)

    # How.

    def does(self, deed: Callable[..., None], *arguments: Any) -> None:
        """Do it; if nobody knows what became of it, it may be repeated next. Raises Unanswered."""
        self.again = functools.partial(deed, *arguments)
        self.again()
        self.again = None

    def create(self, kind: str, name: str, path: str, body: dict[str, Any]) -> None:
        made, status = self.created[kind], ("status", self.session)
        made.setdefault(name, "")
        reopens = kind == "message" and self.is_customer
        before = self.may_be.get(status, set())
        after = {"open" if value in OVER else value for value in before}
        if reopens:
            self.may_be[status] = before | after
        answer = self.ask("POST", path, body, key="" if kind == "message" else name, about=(kind, name, 0))
        assert answer.status == 201, f"{kind} {name}: {answer.status} {answer.raw!r}"
        assert made[name] in ("", answer.data["id"]), f"{kind} {name} was stored twice"
        made[name] = answer.data["id"]
        if reopens:
            self.may_be[status] = after
        if kind == "message":
            self.stamps.append((answer.data["id"], answer.data["created_at"]))

    def change(
        self, key: tuple[str, str], become: Callable[[Any], Any], method: str, path: str, body: Any = None
    ) -> None:
        """Change something that only this writer changes."""
        before = self.may_be.get(key, {None})
        after = {become(value) for value in before}
        self.may_be[key] = before | after
        answer = self.ask(method, path, body, about=(*key, become(None)))
        assert answer.status == 200, f"{method} {path}: {answer.status} {answer.raw!r}"
        self.may_be[key] = after

    def _read_all(self, announced: set[str]) -> None:
        answer = self.ask("PATCH", "/notifications/read-all", {})
        assert answer.status == 200, answer.raw
        self.read |= announced

    def _refresh(self) -> None:
        answer = self.ask("POST", "/auth/refresh", {"refresh_token": self.tokens["refresh_token"]})
        assert answer.status == 200, f"a refresh token that was given out is refused: {answer.raw!r}"
        self.tokens = answer.data["tokens"]

    def _log_in(self) -> None:
        answer = self.ask("POST", "/auth/login", {"email": email(self.number), "password": PASSWORD})
        assert answer.status == 200, answer.raw
        self.tokens = answer.data["tokens"]

    def ask(self, method: str, path: str, body: Any = None, key: str = "", about: Any = ()) -> Reply:
        """The answer to a request that writes. Raises Unanswered."""
        self.asked += 1
        request_id = f"{self.number}.{self.asked}"
        self.crew.about[request_id] = about
        headers = {"Content-Type": "application/json", "X-Request-ID": request_id}
        headers |= {"Idempotency-Key": key} if key else {}
        begun = time.monotonic()
        try:
            if self.connection is None:
                self.connection = self.crew.connect()
        except OSError:
            raise Unanswered from None
        try:
            token = self.tokens.get("access_token", "")
            answer = ask(self.connection, method, f"/api/v1{path}", body, token, headers=headers)
        except (OSError, http.client.HTTPException) as error:
            self.hang_up()
            self.crew.tally["lost"] += 1
            raise Unanswered from error
        self.crew.longest = max(self.crew.longest, time.monotonic() - begun)
        if begun < self.crew.in_doubt_until:
            self.crew.tally["doubtful"] += 1
            raise Unanswered
        if answer.status == 503:
            assert answer.error == (503, "storage_unavailable") and answer.headers["Retry-After"], answer.raw
            self.crew.tally["refused"] += 1
            raise Unanswered
        if answer.status < 300:
            self.acknowledged += 1
            self.crew.tally["acknowledged"] += 1
        return answer

    def hang_up(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def name(self) -> str:
        self.count += 1
        return f"{self.number}-{self.count}"

    def own_message(self) -> str:
        """One of their own latest messages that are surely there."""
        latest = [id for id in list(self.created["message"].values())[-20:] if id]
        there = [id for id in latest if ("deleted", id) not in self.may_be]
        return self.dice.choice(there) if there else ""

    def announced(self, reader: "Writer") -> set[str]:
        """Their messages that were acknowledged by now, of which a reader was told."""
        if reader.session != self.session or not reader.is_customer:
            return set()
        return {id for id in list(self.created["message"].values()) if id}


class Crew:
    """Eight writers, whatever server they find."""

    def __init__(self, data: Path, seed: int) -> None:
        self.data, self.seed = data, seed
        self.tally: Counter[str] = Counter()
        self.longest = 0.0  # seconds that an answer took
        self.in_doubt_until = 0.0  # whatever is answered to a request that was begun before
        self.faults: list[str] = []
        self.about: dict[str, Any] = {}  # what a request, by its identifier, creates or changes, and into what
        self.server: Served | None = None
        self.writers = [Writer(self, number, seed) for number in range(WRITERS)]
        fill(data, household())

    def connect(self) -> http.client.HTTPConnection:
        if self.server is None:
            raise ConnectionRefusedError
        connection = self.server.connect()
        connection.connect()
        return connection

    @contextlib.contextmanager
    def in_doubt(self) -> Iterator[None]:
        """A moment in which nobody can say what an answer is worth."""
        self.in_doubt_until = math.inf
        try:
            yield
        finally:
            self.in_doubt_until = time.monotonic()

    @contextlib.contextmanager
    def at_work(self, server: Served) -> Iterator[None]:
        """Write to a server during the block, as far as it answers."""
        self.server, over = server, threading.Event()

        def work(writer: Writer) -> None:
            while not over.is_set():
                try:
                    writer.step()
                except Unanswered:
                    over.wait(0.02)
                except Exception as error:
                    self.faults.append(f"writer {writer.number}: {error!r}")
                    return
            writer.hang_up()

        threads = [threading.Thread(target=work, args=(writer,)) for writer in self.writers]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join(60)
            assert not any(thread.is_alive() for thread in threads), "a request hangs"
            assert not self.faults, self.faults[:3]

    # What must then be true.

    def expect_stored(self, data: Path | None = None, *, keeps_answers: bool = True) -> None:
        """In the database itself: all that was acknowledged, and whatever belongs together agrees."""
        with rows_of(data or self.data) as rows:
            expect_sound(rows, keeps_answers=keeps_answers)
            for kind, sql in CREATED.items():
                self._expect_created(kind, rows(sql))
            self._expect_values(values_in(rows))
            unread = set(rows("SELECT message_id, user_id FROM notification WHERE read_at IS NULL"))
        marked = {(id, person(writer.number)) for writer in self.writers for id in writer.read}
        assert not unread & marked, "acknowledged as read, and unread again"

    def _expect_created(self, kind: str, stored: list[tuple[Any, ...]]) -> None:
        """Everything acknowledged is there under its identifier, nothing twice, nothing that nobody asked for."""
        held = dict(stored)
        assert len(held) == len(stored), f"a {kind} is there twice"
        promised = {name: id for writer in self.writers for name, id in writer.created[kind].items()}
        lost = {name: id for name, id in promised.items() if id and held.get(name) != id}
        assert not lost, f"acknowledged and not there, {kind}: {lost}"
        assert held.keys() <= promised.keys(), f"a {kind} that nobody wrote: {held.keys() - promised.keys()}"

    def _expect_values(self, told: dict[str, dict[str, Any]]) -> None:
        for writer in self.writers:
            for (what, key), values in writer.may_be.items():
                found = told[what].get(key)
                expected = {value or None for value in values}
                assert (found or None) in expected, f"{what} of {key}: expected one of {values}, found {found}"

    def expect_answered(self, server: Served) -> None:
        """What a restarted server answers: the same, to everybody."""
        self.server = server
        for writer in self.writers:
            with contextlib.closing(server.connect()) as connection:
                self._check_person(writer, functools.partial(_get, connection, writer))

    def _check_person(self, writer: Writer, get: Callable[[str], Reply]) -> None:
        settings = get("/users/me/settings").data
        own = {key[1]: values for key, values in writer.may_be.items() if key[0] == "set"}
        assert all(settings.get(name) in values for name, values in own.items())
        for kind, path, name in (("feedback", "/feedback", "description"), ("event", "/events", "source_event_id")):
            held = {row[name]: row["id"] for row in _walk(get, path)}
            assert {name: id for name, id in writer.created[kind].items() if id}.items() <= held.items(), kind
        active = {row["id"] for row in get("/data-shares").data}
        for id in filter(None, writer.created["data_share"].values()):
            revoked = writer.may_be.get(("revoked", id), {None})
            assert {None if id in active else True} <= revoked, f"grant {id}"
        path = f"/chats/{writer.session}/messages"
        messages = list(_walk(get, path))
        texts = {row["id"]: json.loads(bytes(row["content"]))["text"] for row in messages}
        assert len(texts) == len(messages) == get(f"{path}?limit=1").meta["total"]
        for name, id in writer.created["message"].items():
            if id and True not in writer.may_be.get(("deleted", id), ()):
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
    """The rows of statements, asked of the file itself."""
    with contextlib.closing(db.sqlite3.connect(data / db.FILE_NAME)) as connection:
        yield lambda sql: connection.execute(sql).fetchall()  # type: ignore[no-any-return]


def values_in(rows: Rows) -> dict[str, dict[str, Any]]:
    """What is stored of that which changes: by what it is, and of what."""
    marked = {
        "pinned": "SELECT id FROM message WHERE pinned_at IS NOT NULL",
        "deleted": "SELECT id FROM message WHERE deleted_at IS NOT NULL",
        "revoked": "SELECT id FROM data_share WHERE revoked_at IS NOT NULL",
    }
    settings = [json.loads(text) for (text,) in rows('SELECT settings FROM "user"')]
    return {
        **{what: {id: True for (id,) in rows(sql)} for what, sql in marked.items()},
        "status": dict(rows("SELECT id, status FROM chat_session")),
        "set": {name: value for own in settings for name, value in own.items()},
    }


def expect_sound(rows: Rows, *, keeps_answers: bool = True) -> None:
    """No page is damaged, and no operation is there by half: whatever one write stores together agrees.

    Totals are the numbers of rows. Everybody was told of every message of somebody else's, once. Whoever wrote has read
    that far. What came with a key is there if its answer was kept.
    """
    assert rows("PRAGMA integrity_check") == [("ok",)]
    assert rows("PRAGMA foreign_key_check") == []
    counts = "SELECT chat_session_id, count(*), count(*) FROM message WHERE deleted_at IS NULL GROUP BY 1"
    totals = {id: totals for id, *totals in rows("SELECT id, shown_total, public_total FROM chat_session")}
    assert totals == {id: [0, 0] for id in totals} | {id: counted for id, *counted in rows(counts)}
    owners = dict(rows("SELECT id, user_id FROM chat_session"))
    wrote: dict[str, set[str]] = {}
    expected: Counter[tuple[str, str]] = Counter()
    for id, session, sender in rows("SELECT id, chat_session_id, sender_id FROM message ORDER BY id"):
        told = (wrote.setdefault(session, set()) | {owners[session]}) - {sender}
        expected.update((id, user) for user in told)
        if sender != owners[session]:
            wrote[session].add(sender)
    told_of = "SELECT message_id, user_id FROM notification WHERE type = 'chat_message'"
    assert Counter(rows(told_of)) == expected
    markers = rows("SELECT chat_session_id, user_id, message_id FROM read_marker")
    own = "SELECT chat_session_id, sender_id, max(id) FROM message GROUP BY 1, 2"
    assert sorted(markers) == sorted(rows(own)), "the read markers of senders are not at their last message"
    kept = {key for (key,) in rows("SELECT key FROM kept_answer")}
    made = {name for kind in ("feedback", "data_share", "event") for name, _ in rows(CREATED[kind])}
    assert kept <= made and (kept == made or not keeps_answers), "an answer is kept for what is not there, or none"


def _get(connection: http.client.HTTPConnection, writer: Writer, path: str) -> Reply:
    """An answer to a reader, whose token must still be good."""
    answer = ask(connection, "GET", f"/api/v1{path}", token=writer.tokens.get("access_token", ""))
    if answer.status == 401 and not writer.tokens:
        writer.log_in()
        writer.hang_up()
        return _get(connection, writer, path)
    assert answer.status == 200, f"{path}: {answer.status} {answer.raw!r}"
    return answer


def _walk(get: Callable[[str], Reply], path: str) -> Iterator[dict[str, Any]]:
    """All rows of a list."""
    cursor = ""
    while True:
        page = get(f"{path}?limit=100{cursor and f'&cursor={cursor}'}")
        yield from page.data
        if not page.meta["next_cursor"]:
            return
        cursor = page.meta["next_cursor"]


def log_all_in(crew: Crew, server: Served) -> None:
    """See that everybody has tokens before there is trouble: who logs in must be written down."""
    with crew.at_work(server):
        until(lambda: all(writer.tokens for writer in crew.writers), "nobody can log in")


def until(holds: Callable[[], bool], otherwise: str, seconds: float = PATIENCE) -> float:
    """Wait until something holds; how many seconds it took."""
    begun = time.monotonic()
    while not holds():
        assert time.monotonic() - begun < seconds, otherwise
        time.sleep(0.01)
    return time.monotonic() - begun


def until_ready(server: Served) -> None:
    """Wait until a server takes writes."""

    def is_ready() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return server.call("GET", "/readyz").status == 200
        return False

    until(is_ready, "not ready")


def rising(stamps: list[tuple[str, str]]) -> bool:
    """Whether identifiers rise and moments do not fall, each identifier being of its moment."""
    pairs = list(zip(stamps, stamps[1:], strict=False))
    return all(a[0] < b[0] and a[1] <= b[1] for a, b in pairs) and all(
        clock.milliseconds(at) <= clock.ulid_time(id) + 1 for id, at in stamps
    )
